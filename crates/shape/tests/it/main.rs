//! Policies on the public interface.
#![cfg(target_os = "linux")]

mod corpus;
