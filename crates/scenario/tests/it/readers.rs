//! Receivers with a reading rate, and endless frames, from the file to the tables.

use tollway_scenario::run::DigestMode;

use super::scenes::numbers;
use super::{finish, parse};

const BASE: &str = r#"
name = "readers"
duration = "12 s"
[measure]
warmup = "4 s"
[node.a]
[node.b]
[link.l]
from = "a"
to = "b"
rate = "50 Mbps"
delay = "5 ms"
law = "xcp"
symmetric = true
[flow.f]
from = "a"
to = "b"
law = "xcp"
xcp = { pacing = true }
frames = { size = "1 kB" }
packet-size = "1052 B"
header = "52 B"
receive-buffer = "100 kB"
"#;

/// Goodput and rate of `f` in Mb/s, and its row of the table `receivers`.
fn run(sets: &[&str]) -> (f64, f64, [Option<f64>; 3]) {
    let scenario = parse(BASE, sets);
    let finished = finish(&scenario.variants()[0].plan, DigestMode::Results);
    let column = |name: &str| numbers(&finished.result.summary, name)[0].expect("a number");
    let row = ["unread_bytes", "most_unread_bytes", "dropped_packets"]
        .map(|column| finished.result.systems.get(&format!("receivers.f.{column}")));
    (column("goodput_mbps"), column("rate_mbps"), row)
}

#[test]
fn endless_frames_fill_the_link_as_a_stream_does() {
    let (goodput, rate, receivers) = run(&[]);
    assert!(goodput > 0.98 * 50.0 * 1000.0 / 1052.0 && rate <= 50.0, "{goodput} {rate}");
    assert_eq!(receivers, [None; 3]);
}

#[test]
fn a_reader_holds_back_what_it_cannot_read_by_credit_and_by_soft_flow_control() {
    for (control, least) in [("credit", 0.99), ("soft", 0.9)] {
        let control = format!("flow.f.flow-control={control}");
        // 1 kB every 400 µs: 20 Mb/s.
        let (goodput, _, [unread, most, dropped]) = run(&["flow.f.reader.every=400us", &control]);
        assert!((least * 20.0..=20.01).contains(&goodput), "{control}: {goodput}");
        assert!(unread <= most && most <= Some(100_000.0), "{control}: {unread:?} {most:?}");
        assert_eq!(dropped, Some(0.0), "{control}");
    }
}

#[test]
fn a_change_gives_a_flow_another_reader() {
    let change = "change=[{ at = '4 s', flow = 'f', reader = { every = '800 us' } }]";
    let (goodput, _, [_, most, _]) = run(&[change]);
    assert!((9.9..=10.1).contains(&goodput), "{goodput}");
    // About a round trip of its data is in flight.
    assert!(most > Some(80_000.0) && most <= Some(100_000.0), "{most:?}");
}
