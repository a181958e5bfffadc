//! What fuzz targets run of parsers that nobody else may call. Not for anybody else.
//!
//! Each takes any bytes, and panics where what it parses breaks its word.

use std::path::Path;

use tollway_scenario::tables::{Outputs, RunResult, TableWriter};

use crate::claim::{self, Status};
use crate::experiment::Experiment;

/// A request to `--metrics` or `--view`, and, what follows its head, a browser's wish.
#[cfg(any(feature = "metrics", feature = "view"))]
pub fn http(data: &[u8]) {
    crate::http::read_anything(data);
    #[cfg(all(feature = "view", target_os = "linux"))]
    if let Ok(text) = std::str::from_utf8(data) {
        crate::exec::view::hear(text.split_once("\r\n\r\n").map_or(text, |(_, body)| body));
    }
}

/// What an agent answers who asks it how it stands (`shape --status`).
#[cfg(target_os = "linux")]
pub fn standing(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(shown) = crate::shape::told(text, 80, 20) {
        assert!(shown.ends_with('\n'));
    }
}

/// Runs that a sweep has written down, behind their head.
pub fn journal(data: &[u8]) {
    crate::sweep::read_anything(data);
}

/// Another simulator's rates.
pub fn reference(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    crate::reference::read_anything(text);
}

/// Claims and plots: no claim holds where nothing has run, nor in a run that left nothing.
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
