//! Replays the checked-in fuzz corpus (`fuzz/corpus`) through the functions that the fuzz targets run.

use std::fs;
use std::path::Path;

#[path = "../../../fuzz/src/inputs.rs"]
#[allow(unreachable_pub)]
mod inputs;
#[path = "../../../fuzz/src/scenarios.rs"]
#[allow(unreachable_pub)]
mod scenarios;

#[test]
fn scenario() {
    assert!(replay("scenario", scenarios::scenario) >= 8);
}

#[test]
#[cfg(target_os = "linux")]
fn policies() {
    assert!(replay("policies", scenarios::policies) >= 3);
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

/// Runs every input of a target, and counts them.
fn replay(target: &str, run: fn(&[u8])) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut inputs = 0;
    for entry in fs::read_dir(&folder).expect("the corpus is in the repository") {
        let data = fs::read(entry.expect("the corpus can be listed").path()).expect("the corpus can be read");
        // Whole, and cut at every thirteenth byte.
        for cut in (0..data.len()).step_by(13).chain([data.len()]) {
            run(&data[..cut]);
        }
        inputs += 1;
    }
    inputs
}
