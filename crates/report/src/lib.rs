//! Experiment files with their claims, plots, and the tables people read.
//!
//! Everything but [`session`] and [`reproduce`] is made of [`RunResult`](tollway_scenario::tables::RunResult)s, one a variant, in memory or read back
//! from disk, and runs no simulation.
//!
//! | from runs to … | with |
//! |---|---|
//! | verdicts on an experiment's claims | [`Experiment::parse`], [`claim::check`] |
//! | a figure | [`plot::Figure::new`] |
//! | … as a PNG | [`plot::write_png`] |
//! | … as a page of HTML, with tables | [`html::Page`] |
//! | tables for a terminal | [`Overview::new`] |

pub mod agreement;
pub mod claim;
mod data;
mod experiment;
pub mod html;
mod ideal;
mod overview;
pub mod plot;
mod reference;
pub mod reproduce;
pub mod session;
mod text;

pub use experiment::{Experiment, ExperimentError};
pub use ideal::ideal_mbps;
pub use overview::Overview;
