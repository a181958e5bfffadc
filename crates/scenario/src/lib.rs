//! The scenario file and its checks, what is measured, and the result tables.

pub mod tables;
