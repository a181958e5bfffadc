//! Replays the checked-in fuzz corpus (`fuzz/corpus/nats`) through the function that the fuzz
//! target runs.

#[test]
fn the_corpus_is_harmless() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/nats");
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!files.is_empty());
    for file in files {
        tollway_overlay::nats::parse::read_anything(&std::fs::read(file).unwrap());
    }
}
