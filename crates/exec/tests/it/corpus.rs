//! The fuzz targets' corpora, replayed without a fuzzer.

#[path = "../../../../fuzz/src/words.rs"]
#[allow(unreachable_pub)]
mod words;

use std::path::Path;

#[test]
fn words_are_read_or_refused() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/words");
    let files: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 5);
    for file in files {
        let data = std::fs::read(file).unwrap();
        (0..data.len()).step_by(13).chain([data.len()]).for_each(|cut| words::words(&data[..cut]));
    }
}
