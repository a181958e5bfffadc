//! The scenario file, what it resolves to, running it, and the result tables.
//!
//! What a user writes ([`mod@file`]) is checked and resolved into a [`plan::Plan`], from which the engine is built and run
//! ([`run`]); what is measured goes into [`tables`]. Programs run over the network of a
//! plan by `exec`, and policies for this machine's own connections are read by `shape`, both on Linux.

#[cfg(target_os = "linux")]
pub mod exec;
pub mod file;
pub mod import;
pub mod plan;
pub mod run;
#[cfg(target_os = "linux")]
pub mod shape;
pub mod tables;

#[cfg(test)]
#[path = "tests/corpus.rs"]
mod corpus;
// The fuzz targets' files, which the corpus is replayed through, name this crate as others do.
#[cfg(test)]
extern crate self as tollway_scenario;
