//! The scenario file, what it resolves to, running it, and the result tables.
//!
//! What a user writes ([`mod@file`]) is checked and resolved into a [`plan::Plan`], from which the engine is built and run
//! ([`run`]); what is measured goes into [`tables`].
//!
//! ```
//! use tollway_scenario::file::Scenario;
//! use tollway_scenario::run::{Options, run};
//!
//! let text = r#"
//! name = "pair"
//! duration = "2 s"
//! node.a = {}
//! node.b = {}
//! link.wire = { from = "a", to = "b", rate = "10 Mbps", delay = "5 ms" }
//! flow.bulk = { from = "a", to = "b", law = "cubic" }
//! "#;
//! let scenario = Scenario::parse("pair.toml", text, &[] as &[&str]).unwrap();
//! let finished = run(&scenario.variants()[0].plan, &Options::default()).unwrap();
//! assert!(finished.run.packet_hops > 1000 && finished.run.census.is_conserved());
//! ```

pub mod file;
pub mod import;
pub mod plan;
pub mod run;
pub mod tables;

#[cfg(test)]
#[path = "tests/corpus.rs"]
mod corpus;
// The fuzz targets' files, which the corpus is replayed through, name this crate as others do.
#[cfg(test)]
extern crate self as tollway_scenario;
