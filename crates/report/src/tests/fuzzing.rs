//! Entry points for fuzz targets of private parsers; not a public API.
//!
//! Each accepts any bytes, and panics if a parser breaks its contract.

use std::path::Path;

use tollway_scenario::tables::{Outputs, RunResult, TableWriter};

use crate::claim::{self, Status};
use crate::experiment::Experiment;

/// Parses a request to `--metrics` or `--view`.
#[cfg(any(feature = "metrics", feature = "view"))]
pub fn http(data: &[u8]) {
    crate::http::fuzzing::read_anything(data);
}

/// Parses the runs in a sweep's journal, after its head.
pub fn journal(data: &[u8]) {
    crate::sweep::journal::fuzzing::read_anything(data);
}

/// Parses another simulator's rates.
pub fn reference(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    crate::reference::fuzzing::read_anything(text);
}

/// Parses claims and plots. Without runs, and for an empty run, no claim holds.
pub fn experiment(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(experiment) = Experiment::parse(text, Path::new("papers/fuzz/fuzz.toml")) else { return };
    let empty = empty();
    for runs in [&[][..], std::slice::from_ref(&empty)] {
        let report = claim::check(&experiment.claims, runs, &experiment.context(Vec::new()));
        let met = report.claims.iter().find(|claim| claim.status == Status::Met);
        assert!(met.is_none(), "{met:?}");
    }
}

fn empty() -> RunResult {
    let written = TableWriter::new(&Outputs::memory()).and_then(|writer| writer.finish(""));
    written.expect("memory takes rows")
}

/// Replays the checked-in corpus (`fuzz/corpus`).
#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    #[cfg(any(feature = "metrics", feature = "view"))]
    fn http() {
        replay("http", super::http);
    }

    #[test]
    fn journal() {
        replay("journal", super::journal);
    }

    #[test]
    fn reference() {
        replay("reference", super::reference);
    }

    #[test]
    fn experiment() {
        replay("experiment", super::experiment);
    }

    proptest! {
        #[test]
        fn any_bytes(data in prop::collection::vec(any::<u8>(), 0..300)) {
            super::journal(&data);
        }

        #[test]
        fn any_rates(rows in prop::collection::vec("[0-9.e-]{1,4},(inf|nan|[0-9.e-]{0,4})", 0..6)) {
            super::reference(format!("time_s,f_mbps\n{}\n", rows.join("\n")).as_bytes());
        }

        /// A claim with any metric and bound, without a run.
        #[test]
        fn any_claim(
            metric in prop::sample::select(crate::claim::Metric::ALL),
            bound in prop::sample::select(&["at-least", "at-most", "more-than", "less-than", "equals"][..]),
            value in "-?[0-9]|inf|nan|\\{ plus = 1 \\}",
            keys in "(link = \"\\*\"\n)?(flow = \"\\*\"\n)?(span = \"1 s\"\n)?(fraction = 0.5\n)?(capacity = \"1 Mbps\"\n)?(phases = true\n)?(name = \"\\*\"\n)?",
        ) {
            let metric = metric.name();
            let text = format!("[[claim]]\nid = \"a\"\nmetric = \"{metric}\"\n{bound} = {value}\n{keys}");
            super::experiment(text.as_bytes());
        }
    }

    /// Each file whole, and cut at every thirteenth byte.
    fn replay(target: &str, run: fn(&[u8])) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
        let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(files.len() >= 3);
        for file in files {
            let data = std::fs::read(file).unwrap();
            (0..data.len()).step_by(13).chain([data.len()]).for_each(|cut| run(&data[..cut]));
        }
    }
}
