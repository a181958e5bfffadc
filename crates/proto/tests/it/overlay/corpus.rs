//! Replays the corpus of the fuzz target `overlay`.

use std::fs;
use std::path::Path;

#[path = "../../../../../fuzz/src/overlay.rs"]
#[allow(unreachable_pub, reason = "the fuzz targets' crate exports it")]
mod fuzzed;

#[test]
fn no_input_of_the_corpus_upsets_a_daemon() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/overlay");
    let mut inputs = 0;
    for entry in fs::read_dir(&folder).expect("the corpus is in the repository") {
        let data = fs::read(entry.expect("the corpus can be listed").path()).expect("the corpus can be read");
        for cut in 0..=data.len() {
            fuzzed::overlay(&data[..cut]);
        }
        for at in 0..data.len() {
            let mut changed = data.clone();
            changed[at] ^= 0x81;
            fuzzed::overlay(&changed);
        }
        inputs += 1;
    }
    assert!(inputs >= 8, "{inputs} inputs");
}
