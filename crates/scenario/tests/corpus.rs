//! Replays the checked-in fuzz corpus (`fuzz/corpus/scenario`) through the function that the fuzz target runs.

use std::fs;
use std::path::Path;

#[path = "../../../fuzz/src/scenarios.rs"]
#[allow(unreachable_pub)]
mod scenarios;

#[test]
fn scenario() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/scenario");
    let mut inputs = 0;
    for entry in fs::read_dir(&folder).expect("the corpus is in the repository") {
        let data = fs::read(entry.expect("the corpus can be listed").path()).expect("the corpus can be read");
        // Whole, and cut at every thirteenth byte.
        for cut in (0..data.len()).step_by(13).chain([data.len()]) {
            scenarios::scenario(&data[..cut]);
        }
        inputs += 1;
    }
    assert!(inputs >= 8, "{inputs} inputs in {}", folder.display());
}
