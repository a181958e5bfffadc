//! The scenario file of Tollway: what a user writes, checked and resolved into a [`plan::Plan`] from which either
//! engine is built.

pub mod file;
pub mod plan;
