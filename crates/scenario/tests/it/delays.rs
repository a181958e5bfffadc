//! Delays and constant-rate sources in the summary.

use arrow_array::RecordBatch;
use tollway_scenario::run::{DigestMode, Finished};

use super::scenes::{names, numbers};
use super::{finish, parse};

/// A 10 Mb/s link with a queue of 60 ms, shared by TCP and a source with about half of the rate.
const SCENE: &str = r#"
name = "delays"
duration = "30 s"
measure.warmup = "5 s"
[node.a]
[node.b]
[link.b]
from = "a"
to = "b"
rate = "10 Mbps"
delay = "20 ms"
limit = "50 packets"
[flow.f]
from = "a"
to = "b"
law = "cubic"
packet-size = "1500 B"
[cbr.c]
from = "a"
to = "b"
rate = "5 Mbps"
packet-size = "1500 B"
"#;

fn run(sets: &[&str]) -> Finished {
    finish(&parse(SCENE, sets).variants()[0].plan, DigestMode::Results)
}

fn of(summary: &[RecordBatch], flow: &str, column: &str) -> Option<f64> {
    let row = names(summary, "flow").iter().position(|name| name == flow).expect("it has a row");
    numbers(summary, column)[row]
}

#[test]
fn a_flow_has_its_round_trip_and_the_queue_s_part_of_it() {
    let summary = run(&[]).result.summary;
    let of = |column: &str| of(&summary, "f", column).expect("there are samples");
    for queued in ["queueing_mean_ms", "queueing_p50_ms", "queueing_p95_ms", "queueing_p99_ms"] {
        let rtt = of(&queued.replace("queueing", "rtt"));
        // 40 ms of propagation, 1.2 ms of transmission, and a little for the acknowledgement.
        let unloaded = rtt - of(queued);
        assert!((41.2..41.4).contains(&unloaded), "{queued}: {unloaded}");
        // Fifty packets of 1.2 ms.
        assert!((10.0..=60.0 + 1.2).contains(&of(queued)), "{queued}: {}", of(queued));
    }
    assert!(of("queueing_p50_ms") <= of("queueing_p95_ms") && of("queueing_p95_ms") <= of("queueing_p99_ms"));
}

#[test]
fn under_flow_queueing_a_flow_s_delay_is_its_own() {
    let queued = |sets: &[&str]| of(&run(sets).result.summary, "f", "queueing_p95_ms").unwrap();
    // With drop-tail the flow waits behind all queued packets; FQ-CoDel keeps its own queue short.
    let shared = queued(&["cbr.c.rate=9 Mbps"]);
    let apart = queued(&["cbr.c.rate=9 Mbps", "link.b.law=fq_codel"]);
    assert!(shared > 40.0 && apart < 30.0, "{shared} {apart}");
}

#[test]
fn constant_rate_sources_have_rows() {
    let result = run(&["cbr.c.rate=12 Mbps", "flow.f.stop=1 ms"]).result;
    let of = |column: &str| of(&result.summary, "c", column);
    let drops: f64 = numbers(&result.link_summary, "drops").into_iter().flatten().sum();
    let lost = of("lost_packets").unwrap();
    // Packets in flight or queued at the end are not counted.
    assert_eq!(lost, drops);
    assert!((9.9..=10.01).contains(&of("rate_mbps").unwrap()), "{:?}", of("rate_mbps"));
    assert_eq!((of("rtt_mean_ms"), of("finish_s"), of("start_s")), (None, None, Some(0.0)));
}

/// Four flows of one host and one of another.
const HOSTS: &str = r#"
name = "hosts"
duration = "20 s"
measure.warmup = "5 s"
node = { h = { count = 2 }, r = {}, s = {} }
link.access = { from = "h", to = "r", rate = "100 Mbps", delay = "1 ms" }
link.up = { from = "r", to = "s", rate = "10 Mbps", delay = "10 ms", law = "fq_codel" }
flow.four = { from = "h.1", to = "s", count = 4, law = "cubic" }
flow.one = { from = "h.2", to = "s", law = "cubic" }
"#;

#[test]
fn hosts_share_before_their_flows() {
    for (sets, expected) in
        [(&[][..], 2.0), (&["link.up.fq-codel.hosts=from"], 5.0), (&["link.up.fq-codel.hosts=both"], 2.0)]
    {
        let finished = finish(&parse(HOSTS, sets).variants()[0].plan, DigestMode::Results);
        let rate = of(&finished.result.summary, "one", "rate_mbps").expect("it has a rate");
        assert!((rate - expected).abs() < 0.1, "{sets:?}: {rate}");
    }
    let sources =
        ["cbr.u={from='h.2', to='s', rate='8 Mbps'}", "flow.one.stop=1 ms", "link.up.fq-codel.hosts=from"];
    let finished = finish(&parse(HOSTS, &sources).variants()[0].plan, DigestMode::Results);
    let rate = of(&finished.result.summary, "u", "rate_mbps").expect("it has a rate");
    assert!((4.7..5.3).contains(&rate), "{rate}");
}
