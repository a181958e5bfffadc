//! Experiment files with their claims and plots, and result tables as text and pages.
//!
//! All modules but [`runner`] and [`reproduce`] work on
//! [`RunResult`](tollway_scenario::tables::RunResult)s, one per variant, from memory or from disk,
//! and run no simulation.
//!
//! | from runs to … | with |
//! |---|---|
//! | verdicts on an experiment's claims | [`Experiment::parse`], [`claim::check`] |
//! | a figure | [`plot::Figure::new`], over an experiment's grid [`plot::Figure::of_grid`] |
//! | … as a PNG, SVG or PDF | [`plot::Figure::write`] |
//! | … as a page of HTML, with tables | [`html::Page`] |
//! | … of many experiments as one page, with their claims | [`Gallery`] |
//! | tables for a terminal | [`Overview::new`] |
//!
//! ```
//! use tollway_report::runner::Runner;
//! use tollway_report::Overview;
//! use tollway_scenario::file::Scenario;
//!
//! let text = r#"
//! name = "pair"
//! duration = "2 s"
//! node.a = {}
//! node.b = {}
//! link.wire = { from = "a", to = "b", rate = "10 Mbps", delay = "5 ms", law = "xcp" }
//! flow.bulk = { from = "a", to = "b", law = "xcp", count = 2 }
//! "#;
//! let scenario = Scenario::parse("pair.toml", text, &[] as &[&str]).unwrap();
//! let runs = Runner::default().run(&scenario, None).unwrap();
//! let results: Vec<_> = runs.into_iter().map(|ran| ran.result).collect();
//! println!("{}", Overview::new(&results).to_text(100));
//! # assert!(Overview::new(&results).to_text(100).contains("bulk"));
//! ```

pub mod agreement;
mod allocations;
mod band;
pub mod claim;
pub mod compare;
mod data;
mod deviation;
mod experiment;
mod fluid;
pub mod folder;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
#[path = "tests/fuzzing.rs"]
pub mod fuzzing;
mod gallery;
pub mod grid;
mod groups;
pub mod html;
#[cfg(any(feature = "metrics", feature = "view"))]
pub mod http;
mod ideal;
#[cfg(target_os = "linux")]
pub mod kernel_agreement;
pub mod live;
pub mod neighbourhood;
mod overview;
pub mod papers;
pub mod plot;
mod ranges;
mod reference;
mod refused;
pub mod reproduce;
pub mod runner;
pub mod seeds;
mod sizes;
mod slowdown;
pub mod sweep;
#[doc(hidden)]
pub mod text;
pub mod verify;
pub mod watch;

pub use allocations::{Allocations, FlowShares};
pub use deviation::{Aims, Deviation, FlowDeviation, NoDeviation, Throughput};
pub use experiment::{Experiment, ExperimentError};
pub use gallery::Gallery;
pub use ideal::{FlowDirection, Steady, Undefined, ideal_mbps, steady};
pub use overview::Overview;
pub use slowdown::{OfSize, Slowdown, slowdowns};
