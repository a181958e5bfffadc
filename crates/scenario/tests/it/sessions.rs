//! Sessions over switches, from their text: every frame is delivered once, to the member that its
//! switch chooses.

use std::sync::{Arc, Mutex};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use tollway_proto::route::{Candidate, Item, Policy, Route};
use tollway_scenario::plan::{OwnRoute, Spreading};
use tollway_scenario::run::{DigestMode, Finished};

use super::scenes::numbers;
use crate::{finish, parse};

/// A client, two switches in a row and three servers: one behind the first, two behind the second.
const CASCADE: &str = r#"
name = "sessions"
duration = "10 s"
[node.client]
[node.near]
[node.far]
[node.server]
count = 3
[link.client]
from = "client"
to = "near"
rate = "10 Mbps"
delay = "2 ms"
law = "xcp"
symmetric = true
[link.one]
from = "near"
to = "server.1"
rate = "20 Mbps"
delay = "2 ms"
law = "xcp"
symmetric = true
[link.joint]
from = "near"
to = "far"
rate = "20 Mbps"
delay = "2 ms"
law = "xcp"
symmetric = true
[link.two]
from = "far"
to = "server.2"
rate = "20 Mbps"
delay = "2 ms"
law = "xcp"
symmetric = true
[link.three]
from = "far"
to = "server.3"
rate = "20 Mbps"
delay = "5 ms"
law = "xcp"
symmetric = true
[switch.near]
node = "near"
[switch.far]
node = "far"
[flow.f]
from = "client"
to = "server"
session = "*"
law = "xcp"
frames = { size = "1 kB", count = 4000 }
"#;

const OUTBOUND: [&str; 3] = ["flow.f.from=server", "flow.f.to=client", "flow.f.frames.count=1000"];

fn ran(text: &str, sets: &[&str]) -> Finished {
    finish(&parse(text, sets).variants()[0].plan, DigestMode::Packets)
}

/// Frames of 1 kB delivered by each flow, and the number of completed flows.
fn frames(finished: &Finished) -> (Vec<u64>, usize) {
    let summary = &finished.result.summary;
    let count = |batch: &RecordBatch| {
        let bytes = batch["delivered_bytes"].as_primitive::<UInt64Type>();
        bytes.values().iter().map(|bytes| bytes / 1000).collect::<Vec<_>>()
    };
    let completed = numbers(summary, "fct_s").into_iter().flatten().count();
    (summary.iter().flat_map(count).collect(), completed)
}

#[test]
fn a_cascade_spreads_every_frame_once() {
    let finished = ran(CASCADE, &[]);
    // Half of them at the first switch, and half of the rest at the second.
    assert_eq!(frames(&finished).0, [2000, 1000, 1000]);
    let number = |path: &str| finished.result.systems.get(path).unwrap();
    assert_eq!(number("members.near.f.far.received_packets"), 2000.0);
    assert_eq!(number("members.far.f.server.3.receive_ratio"), 0.5);
    assert_eq!(number("switches.near.f.members_up"), 2.0);
    assert_eq!(finished.run.digest, ran(CASCADE, &[]).run.digest);
}

#[test]
fn a_cascade_merges_every_frame_once() {
    // Servers retransmit lost packets.
    for loss in ["link.joint.loss=0", "link.joint.loss=0.02"] {
        let finished = ran(CASCADE, &[&OUTBOUND[..], &[loss]].concat());
        assert_eq!(frames(&finished), (vec![1000; 3], 3), "{loss}");
        let number = |path: &str| finished.result.systems.get(path).unwrap();
        assert_eq!(number("members.near.f.far.sent_packets"), 2000.0);
        assert_eq!(number("members.far.f.server.2.sent_packets"), 1000.0);
    }
}

#[test]
fn shares_and_their_change_decide_who_gets_frames() {
    let shares = "switch.near.shares=[1, 3]";
    assert_eq!(frames(&ran(CASCADE, &[shares])).0, [1000, 1500, 1500]);
    let change = "change=[{ at = '1500 ms', switch = 'near', shares = [1, 0] }]";
    let changed = frames(&ran(CASCADE, &[shares, change])).0;
    assert_eq!(changed.iter().sum::<u64>(), 4000, "{changed:?}");
    assert!(changed[0] > 2000 && changed[1] > 100 && changed[1].abs_diff(changed[2]) <= 1, "{changed:?}");
}

#[test]
fn a_member_that_leaves_gets_no_more_frames() {
    let leaves = "change=[{ at = '1 s', switch = 'far', member = 'server.3' }]";
    let finished = ran(CASCADE, &[leaves]);
    let after = frames(&finished).0;
    // Its unacknowledged frames are sent to the other member again.
    assert!((4000..4040).contains(&after.iter().sum::<u64>()), "{after:?}");
    assert!(after[0] == 2000 && after[2] < 500, "{after:?}");
    assert_eq!(finished.result.systems.get("switches.far.f.members_up"), Some(1.0));
}

/// The second switch of the cascade, and two sources before the first: cluster to cluster.
#[test]
fn two_switches_back_to_back_lead_from_cluster_to_cluster() {
    let text = CASCADE
        .replace("[node.client]", "[node.client]\ncount = 3")
        .replace("from = \"near\"\nto = \"server.1\"", "from = \"far\"\nto = \"server.1\"");
    let finished = ran(&text, &["flow.f.frames.count=1000", "link.joint.loss=0.01"]);
    assert_eq!(frames(&finished), (vec![1000; 3], 3));
    let number = |path: &str| finished.result.systems.get(path).unwrap();
    assert_eq!(number("members.near.f.client.2.sent_packets"), 1000.0);
    assert_eq!(number("members.far.f.server.1.received_packets"), 1000.0);
}

#[test]
fn tcp_and_fcp_pass_a_switch() {
    for law in ["newreno", "cubic", "fcp"] {
        let link = if law == "fcp" { "fcp" } else { "drop-tail" };
        let laws = [format!("flow.f.law={law}"), format!("link.*.law={link}")];
        let mut sets: Vec<&str> = laws.iter().map(String::as_str).collect();
        assert_eq!(frames(&ran(CASCADE, &sets)).0.iter().sum::<u64>(), 4000, "{law}");
        sets.extend(OUTBOUND);
        assert_eq!(frames(&ran(CASCADE, &sets)), (vec![1000; 3], 3), "{law}");
    }
}

/// Four servers' frames to one client get half of a link that one other flow shares.
#[test]
fn a_session_has_one_share_of_a_link() {
    let finished = ran(include_str!("../../../../scenarios/switch.toml"), &["measure.warmup=8 s"]);
    let rates: Vec<f64> = numbers(&finished.result.summary, "rate_mbps").into_iter().flatten().collect();
    let session: f64 = rates[..4].iter().sum();
    assert!((session / 10.0 - 1.0).abs() < 0.05 && (rates[4] / 10.0 - 1.0).abs() < 0.05, "{rates:?}");
    assert!(rates[..4].iter().all(|rate| (rate / 2.5 - 1.0).abs() < 0.2), "{rates:?}");
}

/// Sends all frames to the first member.
struct First;

impl Route for First {
    fn pick(&mut self, _: &Item, members: &[Candidate]) -> Option<usize> {
        members.first()?.up.then_some(0)
    }
}

#[test]
fn a_routing_module_of_the_callers_spreads_frames() {
    let made = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&made);
    let turns = OwnRoute::new("turns", move |of: &Spreading<'_>| {
        into.lock().expect("no panic").push(format!("{} {} {:?}", of.switch, of.session, of.members));
        Policy::RoundRobin.module(0)
    });
    let with = |key, route: &OwnRoute| parse(CASCADE, &[]).with_route(key, route);
    let own = with("switch.*", &turns).expect("there are switches");
    let own = finish(&own.variants()[0].plan, DigestMode::Packets);
    assert_eq!(own.run.digest, ran(CASCADE, &[]).run.digest, "as the module of that name");
    let made = made.lock().expect("no panic");
    assert_eq!(*made, ["near f [\"server.1\", \"far\"]", "far f [\"server.2\", \"server.3\"]"]);

    let first = OwnRoute::new("first", |_: &Spreading<'_>| -> Box<dyn Route + Send> { Box::new(First) });
    let own = with("switch.near", &first).expect("there is a switch");
    assert_eq!(frames(&finish(&own.variants()[0].plan, DigestMode::Packets)).0, [4000, 0, 0]);
    let error = with("switch.middle", &first).map(drop).expect_err("there is none").to_string();
    assert!(error.ends_with("there are `switch.near`, `switch.far`"), "{error}");
}
