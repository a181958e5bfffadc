//! The fuzz targets' corpora, replayed without a fuzzer.

#[path = "../../../../fuzz/src/hosts.rs"]
#[allow(unreachable_pub)]
mod hosts;
#[cfg(target_os = "linux")]
#[path = "../../../../fuzz/src/packets.rs"]
#[allow(unreachable_pub)]
mod packets;

use std::path::Path;

#[test]
fn the_corpus_is_harmless() {
    if std::net::UdpSocket::bind("127.0.0.1:0").is_err() {
        eprintln!("SKIPPED: no UDP socket on loopback here");
        return;
    }
    replay("host", hosts::strangers);
}

#[cfg(target_os = "linux")]
#[test]
fn packets_of_programs_are_read_or_refused() {
    replay("ip", packets::ip);
}

#[cfg(target_os = "linux")]
#[test]
fn tunnels_give_back_what_entered() {
    replay("tunnel", packets::tunnel);
}

fn replay(target: &str, run: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 3);
    for file in files {
        run(&std::fs::read(file).unwrap());
    }
}
