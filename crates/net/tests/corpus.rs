//! The fuzz target's corpus, replayed without a fuzzer.

#[path = "../../../fuzz/src/hosts.rs"]
#[allow(unreachable_pub)]
mod hosts;

use std::path::Path;

#[test]
fn the_corpus_is_harmless() {
    if std::net::UdpSocket::bind("127.0.0.1:0").is_err() {
        eprintln!("SKIPPED: no UDP socket on loopback here");
        return;
    }
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/host");
    let files: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 3);
    for file in files {
        hosts::strangers(&std::fs::read(file).unwrap());
    }
}
