//! Scenario files, their resolution into plans, the runner, and the result tables.
//!
//! [`mod@file`] reads, checks and resolves a scenario file into a [`plan::Plan`] for each variant. [`words`]
//! reads a link in a few words.
//! [`run`] builds an engine from a plan and runs it. [`tables`] holds the measurements.
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
pub mod words;

#[cfg(test)]
#[path = "tests/corpus.rs"]
mod corpus;
// The fuzz targets' files name this crate `tollway_scenario`; the corpus test includes them.
#[cfg(test)]
extern crate self as tollway_scenario;
