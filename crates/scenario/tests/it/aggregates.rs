//! Aggregates under load: flows start and end, cross-traffic shares the links, policies are
//! installed and removed.

use std::collections::BTreeMap;

use tollway_scenario::run::DigestMode;

use crate::{finish, parse};

/// A server with many clients, on two hosts.
const BASE: &str = r#"
name = "aggregates"
duration = "20 s"

[measure]
interval = "none"

[node.a]
[node.b]
[node.r]
[node.c]
count = 4

[link.a]
from = "a"
to = "r"
rate = "20 Mbps"
delay = "2 ms"

[link.b]
from = "b"
to = "r"
rate = "20 Mbps"
delay = "2 ms"

[link.c]
from = "r"
to = "c"
rate = "10 Mbps"
delay = { first = "5 ms", last = "100 ms" }

[flow.f]
from = "a"
to = "c"
law = "newreno"

[workload.w]
from = "a"
to = "c"
law = "newreno"
arrivals = { poisson = 20 }
sizes = "20 kB"

[cbr.u]
from = "a"
to = "c.1"
rate = "500 kbps"

[flow.g]
from = "b"
to = "c"
law = "cubic"

[aggregate.p]
rate = "4 Mbps"
depth = "20 kB"
"#;

fn numbers(more: &str, sets: &[&str]) -> BTreeMap<String, f64> {
    let scenario = parse(&format!("{BASE}{more}"), sets);
    finish(&scenario.variants()[0].plan, DigestMode::Results).result.systems.numbers().collect()
}

/// agg.conservation, in whole runs: a depth of thirteen packets, and dozens of connections that
/// start and end.
#[test]
fn no_burst_is_longer_than_the_bucket_is_deep() {
    for scheme in ["partitioned", "common", "logical"] {
        for action in ["shape", "mark", "drop"] {
            let sets = [&format!("aggregate.p.scheme={scheme}"), &format!("aggregate.p.action={action}")];
            let found = numbers("", &sets.map(String::as_str));
            for host in ["a", "b"] {
                let of = |what: &str| found[&format!("policies.p@{host}.{what}")];
                assert!(of("burst_bytes") <= 20_000.0, "{scheme}, {action}, {host}: {found:?}");
                assert!(of("conforming_mbps") > 1.0, "{scheme}, {action}, {host}: {found:?}");
                assert!(of("conforming_mbps") <= 4.01, "{scheme}, {action}, {host}: {found:?}");
                assert_eq!(of("excess_mbps") > 0.0, action == "mark", "{scheme}, {host}: {found:?}");
            }
            // Four flows, cross-traffic, and the running flows of the workload.
            assert!(found["policies.p@a.most_members"] > 5.0, "{found:?}");
            assert_eq!(found["policies.p@b.most_members"], 4.0);
        }
    }
}

/// agg.marking: arrivals in profile are reported for all kinds of receivers, also after a flow's
/// end. They equal the packets sent if nothing is lost; if queues overflow they are fewer.
#[test]
fn what_is_sent_in_profile_and_not_lost_arrives_in_profile() {
    let mark = [
        "aggregate.p.action=mark",
        "flow.f.size=2 MB",
        "flow.g.size=2 MB",
        "workload.w.stop=10 s",
        "cbr.u.stop=10 s",
    ];
    let lossless = [&mark[..], &["link.*.limit=64 MB", "link.*.rate=200 Mbps"]].concat();
    let lossy = [&mark[..], &["link.*.limit=8 packets"]].concat();
    for (sets, lost) in [(lossless, false), (lossy, true)] {
        let found = numbers("", &sets);
        for host in ["a", "b"] {
            let [sent, arrived] =
                ["", "_delivered"].map(|what| found[&format!("policies.p@{host}.conforming{what}_mbps")]);
            assert!(
                arrived > 0.1 && arrived <= sent && (arrived < sent) == lost,
                "{lost}, {host}: {found:?}"
            );
        }
    }
    assert!(!numbers("", &[]).contains_key("policies.p@a.conforming_delivered_mbps"));
}

/// agg.policies: from the instant of its installation, connections keep the new policy's profile;
/// after its removal, the old policy's.
#[test]
fn a_policy_is_in_force_from_the_instant_it_is_installed() {
    let late = "[aggregate.late]\nflows = \"g\"\nrate = \"1 Mbps\"\ndepth = \"3 kB\"\ninstall = \"10 s\"\nremove = \"15 s\"\n";
    let found = numbers(late, &[]);
    assert!(found["policies.late.burst_bytes"] <= 3000.0, "{found:?}");
    assert!((0.98..=1.01).contains(&found["policies.late.conforming_mbps"]), "{found:?}");
    assert_eq!(found["policies.late.most_members"], 4.0);
    // 4 Mb/s for three quarters of the time.
    assert!((2.9..=3.01).contains(&found["policies.p@b.conforming_mbps"]), "{found:?}");
}

/// Packets that wait when their policy is removed are sent.
#[test]
fn nobody_waits_for_a_policy_that_is_gone() {
    let sets = ["aggregate.p.remove=5s", "duration=10s", "flow.f.size=100 kB", "link.*.limit=64 MB"];
    let found = numbers("", &sets);
    // Except for packets in flight: no queue is full.
    let missing =
        found["sources.u.sent_packets"] - found["sources.u.arrived_packets"] - found["policies.p@a.drops"];
    assert!((0.0..=3.0).contains(&missing), "{found:?}");
}
