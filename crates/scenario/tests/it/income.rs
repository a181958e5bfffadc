//! The income of a link. Refunds of ending short flows must not lower its price for others;
//! payments at other links must not raise it.

use tollway_scenario::run::DigestMode;

use crate::scenes::{Outcome, numbers};
use crate::{finish, parse};

/// A long flow, and short flows that use more than half of the link.
const CROWD: &str = r#"
name = "crowd"
duration = "10 s"

[node.a]
[node.d]

[link.b]
from = "a"
to = "d"
rate = "100 Mbps"
delay = "10 ms"
limit = "unlimited"
law = "fcp"

[flow.long]
from = "a"
to = "d"
law = "fcp"

[workload.short]
from = "a"
to = "d"
law = "fcp"
arrivals = { poisson = 225 }
sizes = { pareto = { mean = "30 kB", shape = 1.2 } }
"#;

#[test]
fn a_long_flow_among_many_short_ones_fills_no_queue() {
    for seed in ["seed=1", "seed=2", "seed=3"] {
        let scenario = parse(CROWD, &[seed]);
        let outcome = Outcome::of(seed, &finish(&scenario.variants()[0].plan, DigestMode::Results));
        // A round trip holds 167 packets. Halving the price can at most double the rate, for two
        // round trips.
        assert!(outcome.peak < 500.0, "{seed}: {} packets", outcome.peak);
        assert!(outcome.used > 0.85 && outcome.drops == 0, "{seed}: {}", outcome.used);
    }
}

/// A flow with a round trip of half a millisecond, and five with a tenth of a second. These pay
/// nearly all their budget at a small link further on.
const NEIGHBOURS: &str = r#"
name = "neighbours"
duration = "5 s"

[measure]
warmup = "3 s"

[node.a]
[node.b]
[node.c]
[node.d]

[link.up]
from = "d"
to = "a"
rate = "50 Mbps"
delay = "25 ms"
limit = "1 BDP"
law = "fcp"

[link.b]
from = "a"
to = "b"
rate = "500 Mbps"
delay = "0.27 ms"
limit = "100 packets"
law = "fcp"

[link.far]
from = "b"
to = "c"
rate = "5 Mbps"
delay = "25 ms"
limit = "1 BDP"
law = "fcp"

[flow.short]
from = "a"
to = "b"
law = "fcp"
start = "2 s"

[flow.long]
from = "d"
to = "c"
count = 5
law = "fcp"
start = { random = "1 s" }
"#;

/// With a history of only a few mean round trips, the link adopted the far link's price, and a
/// fifth of it was used.
#[test]
fn flows_with_long_round_trips_pay_a_link_its_own_price() {
    let scenario = parse(NEIGHBOURS, &[]);
    let outcome = Outcome::of("", &finish(&scenario.variants()[0].plan, DigestMode::Results));
    assert!(outcome.used > 0.95, "{}", outcome.used);
}

/// Acknowledgements wait behind cross-traffic while the history of prices expires.
const STORM: &str = r#"
name = "storm"
duration = "1450 ms"

[node.n0]
[node.n1]
[node.n2]
[node.n3]

[link.l0]
from = "n0"
to = "n1"
rate = "1.68 Mbps"
law = "fcp"
symmetric = true

[link.b]
from = "n1"
to = "n2"
rate = "1 Mbps"
law = "fcp"
symmetric = true

[link.l2]
from = "n1"
to = "n3"
rate = "3.04 Mbps"
law = "fcp"
symmetric = true

[flow.f]
from = "n3"
to = "n2"
law = "fcp"

[workload.w]
from = "n2"
to = "n3"
law = "fcp"
arrivals = { interval = "71 ms" }
sizes = { empirical = [["500 B", 0.3], ["60858 B", 1.0]] }

[host.h]
flows = "*"

[cbr.c]
from = "n2"
to = "n0"
rate = "1.76 Mbps"
"#;

/// At a price near zero a host sent a terabit a second, and lost millions of packets at its own
/// interface.
#[test]
fn a_host_sends_no_more_than_its_interface_carries() {
    let dropped = |sets: &[&str]| {
        let scenario = parse(STORM, sets);
        Outcome::of("storm", &finish(&scenario.variants()[0].plan, DigestMode::Results)).drops
    };
    assert_eq!(dropped(&[]), 0);
    // The host may use its later rate at once: laws receive no change of their interface's rate.
    let raised = dropped(&[r#"change=[{ at = "1 s", link = "l2.reverse", rate = "300 Mbps" }]"#]);
    assert!((1..10_000).contains(&raised), "{raised}");
}

/// A flow is joined by another of its host.
const JOINED: &str = r#"
name = "joined"
duration = "1080 ms"

[node.a]
[node.d]

[link.b]
from = "a"
to = "d"
rate = "10 Mbps"
delay = "20 ms"
limit = "unlimited"
law = "fcp"

[flow.long]
from = "a"
to = "d"
law = "fcp"

[flow.next]
from = "a"
to = "d"
law = "fcp"
start = "1 s"

[host.h]
flows = "*"
"#;

/// A host keeps back for a flow's first round trip what the flow's first packet announces. Only
/// with `initial-always` does that depend on `initial-packets` here.
#[test]
fn a_host_keeps_back_what_a_newcomer_announces() {
    let sent = |more: &[&str]| {
        ["flow.next.fcp.initial-packets=10", "flow.next.fcp.initial-packets=1000"].map(|packets| {
            let scenario = parse(JOINED, &[more, &[packets]].concat());
            let finished = finish(&scenario.variants()[0].plan, DigestMode::Results);
            numbers(&finished.result.summary, "sent_bytes")[0].unwrap()
        })
    };
    for more in [&[][..], &["flow.next.size=2 kB"]] {
        let [ten, thousand] = sent(more);
        assert_eq!(ten, thousand, "{more:?}");
    }
    let [ten, thousand] = sent(&["flow.next.fcp.initial-always=true"]);
    assert!(thousand < 0.99 * ten, "{ten} {thousand}");
}
