//! The scenario file, what it resolves to, running it, and the result tables.
//!
//! What a user writes ([`mod@file`]) is checked and resolved into a [`plan::Plan`], from which the engine is built and run
//! ([`run`]); what is measured goes into [`tables`].

pub mod file;
pub mod import;
pub mod plan;
pub mod run;
pub mod tables;
