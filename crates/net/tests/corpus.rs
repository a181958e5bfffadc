//! The fuzz targets' corpora, replayed without a fuzzer.

#[path = "../../../fuzz/src/hosts.rs"]
#[allow(unreachable_pub)]
mod hosts;
#[cfg(target_os = "linux")]
#[path = "../../../fuzz/src/packets.rs"]
#[allow(unreachable_pub)]
mod packets;

use std::path::Path;

use tollway_net::fuzzing;

#[test]
fn the_corpus_is_harmless() {
    if std::net::UdpSocket::bind("127.0.0.1:0").is_err() {
        eprintln!("SKIPPED: no UDP socket on loopback here");
        return;
    }
    replay("host", hosts::strangers);
}

#[test]
fn nodes_hear_anything_of_their_neighbours() {
    if std::net::UdpSocket::bind("127.0.0.1:0").is_err() {
        eprintln!("SKIPPED: no UDP socket on loopback here");
        return;
    }
    replay("node", fuzzing::node);
}

#[test]
fn handshakes_and_sealed_datagrams_are_read_or_refused() {
    replay("sealed", fuzzing::sealed);
}

#[cfg(target_os = "linux")]
#[test]
fn what_interfaces_and_kernels_and_stores_say_is_read_or_refused() {
    replay("frame", fuzzing::frame);
    replay("types", fuzzing::types);
    replay("connections", fuzzing::connections);
    #[cfg(feature = "etcd")]
    replay("etcd", fuzzing::etcd);
}

#[cfg(target_os = "linux")]
#[test]
fn packets_of_programs_are_read_or_refused() {
    replay("ip", packets::ip);
    replay("mesh", fuzzing::mesh);
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
