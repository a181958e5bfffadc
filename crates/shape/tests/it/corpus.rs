//! The fuzz targets' corpora, replayed without a fuzzer.

#[path = "../../../../fuzz/src/policies.rs"]
#[allow(unreachable_pub)]
mod policies;

use std::path::Path;

#[test]
fn policies_are_read_or_refused() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/policies");
    let files: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 3);
    for file in files {
        let data = std::fs::read(file).unwrap();
        (0..data.len()).step_by(13).chain([data.len()]).for_each(|cut| policies::policies(&data[..cut]));
    }
}
