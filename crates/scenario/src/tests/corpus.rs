//! Replays the checked-in fuzz corpus (`fuzz/corpus`) through the functions of the fuzz targets.

use std::fs;
use std::path::Path;

use proptest::prelude::*;

#[path = "../../../../fuzz/src/inputs.rs"]
#[allow(unreachable_pub)]
mod inputs;
#[path = "../../../../fuzz/src/scenarios.rs"]
#[allow(unreachable_pub)]
mod scenarios;

#[test]
fn scenario() {
    assert!(replay("scenario", scenarios::scenario) >= 8);
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 200, ..ProptestConfig::with_cases(96) })]

    /// The valid part of a file drawn from random bytes runs.
    #[test]
    fn drawn(data in prop::collection::vec(any::<u8>(), 0..2000)) {
        scenarios::drawn(&data);
    }
}

#[test]
fn drawn_before() {
    // Only whole inputs: a part of one draws a different file.
    for data in inputs("drawn") {
        scenarios::drawn(&data);
    }
}

#[test]
fn table() {
    assert!(replay("table", scenarios::table) >= 2);
}

#[test]
fn graphml() {
    assert!(replay("graphml", inputs::graphml) >= 5);
}

#[test]
fn trace() {
    assert!(replay("trace", inputs::trace) >= 5);
}

#[test]
fn sizes() {
    assert!(replay("sizes", inputs::sizes) >= 5);
}

/// Runs all inputs of a target; returns their number.
fn replay(target: &str, run: fn(&[u8])) -> usize {
    let all = inputs(target);
    for data in &all {
        // The whole input, and prefixes at every thirteenth byte.
        for cut in (0..data.len()).step_by(13).chain([data.len()]) {
            run(&data[..cut]);
        }
    }
    all.len()
}

/// The checked-in inputs of a target, at least one.
fn inputs(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = fs::read_dir(&folder).expect("the corpus is in the repository");
    let read = |entry: std::io::Result<fs::DirEntry>| {
        fs::read(entry.expect("the corpus can be listed").path()).expect("the corpus can be read")
    };
    let all: Vec<Vec<u8>> = entries.map(read).collect();
    assert!(!all.is_empty(), "{target}");
    all
}
