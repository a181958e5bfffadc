//! Captures: their contents; and a run with one equals a run without.

use std::path::{Path, PathBuf};

use tollway_scenario::run::{Capture, CaptureError, DigestMode, Options, RunError, run};
use tollway_scenario::tables::Outputs;

use super::{finish, parse};

const SCENE: &str = r#"
name = "capture"
duration = "3 s"
[node.a]
[node.r]
[node.b]
[link.access]
from = "a"
to = "r"
rate = "100 Mbps"
[link.mid]
from = "r"
to = "b"
rate = "5 Mbps"
delay = "10 ms"
limit = "10 packets"
loss = 0.01
[flow.f]
from = "a"
to = "b"
law = "cubic"
ecn = true
[workload.w]
from = "a"
to = "b"
law = "newreno"
arrivals = { poisson = 5 }
sizes = "20 kB"
[cbr.c]
from = "a"
to = "b"
rate = "200 kbps"
"#;

/// One block of a pcapng file: kind and body.
pub(crate) type Block = (u32, Vec<u8>);

pub(crate) fn blocks(path: &Path) -> Vec<Block> {
    let bytes = std::fs::read(path).expect("the capture");
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let (mut at, mut found) = (0, Vec::new());
    while at < bytes.len() {
        let len = word(at + 4) as usize;
        assert!(len.is_multiple_of(4) && word(at + len - 4) as usize == len, "a block begins and ends alike");
        found.push((word(at), bytes[at + 8..at + len - 4].to_vec()));
        at += len;
    }
    found
}

pub(crate) fn word(body: &[u8], i: usize) -> u32 {
    u32::from_le_bytes(body[4 * i..4 * i + 4].try_into().expect("four bytes"))
}

pub(crate) fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("captures").join(name)
}

fn capture(path: PathBuf, links: &[&str]) -> Capture {
    Capture { links: links.iter().map(|link| (*link).to_owned()).collect(), ..Capture::new(path) }
}

#[test]
fn every_packet_is_there_in_order_and_nothing_changes() {
    for encoding in ["acp", "tcp-option", "draft-2"] {
        let scenario = parse(SCENE, &[&format!("flow.f.encoding={encoding}")]);
        let plan = &scenario.variants()[0].plan;
        let path = file(&format!("{encoding}.pcapng"));
        let options = Options {
            outputs: Outputs::memory(),
            digest: DigestMode::Packets,
            capture: Some(capture(path.clone(), &[])),
            ..Options::default()
        };
        let captured = run(plan, &options).expect("it runs");
        assert_eq!(captured.run.digest, finish(plan, DigestMode::Packets).run.digest);
        let blocks = blocks(&path);
        let interfaces = blocks.iter().filter(|block| block.0 == 1).count();
        assert_eq!(interfaces, plan.links.len(), "one for each direction");
        let packets: Vec<&[u8]> = blocks.iter().filter(|b| b.0 == 6).map(|b| b.1.as_slice()).collect();
        let time = |body: &[u8]| u64::from(word(body, 1)) << 32 | u64::from(word(body, 2));
        assert!(packets.windows(2).all(|pair| time(pair[0]) <= time(pair[1])));
        assert!(packets.iter().all(|body| word(body, 3) <= 128 && word(body, 4) >= word(body, 3)));
        let noted = |words: &str| {
            let says = |body: &&&[u8]| body.windows(words.len()).any(|part| part == words.as_bytes());
            packets.iter().filter(says).count() as u64
        };
        let (dropped, lost) = (noted("dropped at"), noted("lost on"));
        assert_eq!(packets.len() as u64 - dropped, captured.run.packet_hops, "{encoding}");
        assert_eq!(dropped + lost, captured.run.census.dropped, "{encoding}");
        assert!(dropped > 5 && lost > 5, "{dropped} {lost}");
    }
}

#[test]
fn a_link_that_is_not_there_is_named_with_those_that_are() {
    let scenario = parse(SCENE, &[]);
    let options = Options {
        outputs: Outputs::memory(),
        capture: Some(capture(file("none.pcapng"), &["mid*", "middle"])),
        ..Options::default()
    };
    let error = run(&scenario.variants()[0].plan, &options).unwrap_err();
    let RunError::Capture(error @ CaptureError::UnknownLink { .. }) = error else { panic!("{error}") };
    let said = error.to_string();
    assert!(said.contains("`middle`") && said.contains("`mid.reverse`"), "{said}");
}
