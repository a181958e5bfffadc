//! Words of users on the public interface.
#![cfg(target_os = "linux")]

mod chapter;
mod corpus;
mod emulation;
