//! Whole scenarios, from text to tables.

mod aggregates;
mod captures;
mod control;
mod crowds;
mod datacentre;
mod delays;
mod determinism;
mod effects;
mod faults;
mod impairments;
mod income;
mod live;
mod machines;
mod manual;
mod meters;
mod multicast;
mod own_laws;
mod readers;
mod scenes;
mod sessions;

use tollway_scenario::file::Scenario;
use tollway_scenario::plan::Plan;
use tollway_scenario::run::{DigestMode, Finished, Options, run};
use tollway_scenario::tables::Outputs;

/// Parses a scenario, which must be valid.
fn parse(text: &str, sets: &[&str]) -> Scenario {
    match Scenario::parse("test.toml", text, sets) {
        Ok(scenario) => scenario,
        Err(error) => panic!("{sets:?}: {:?}\n{text}", error.mistakes()),
    }
}

/// Runs a plan to its end, with tables in memory.
fn finish(plan: &Plan, digest: DigestMode) -> Finished {
    let options = Options { outputs: Outputs::memory(), digest, ..Options::default() };
    match run(plan, &options) {
        Ok(finished) => finished,
        Err(error) => panic!("{error}"),
    }
}
