//! What counts as income of a link: what short flows take back when they go does not make it cheap for those who stay, and what flows
//! pay elsewhere does not make it dear.

use tollway_scenario::run::DigestMode;

use crate::scenes::Outcome;
use crate::{finish, parse};

/// A long flow, and short ones that take more than half of the link.
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
        // A round trip holds 167 packets. Twice the rate for two round trips is as much as half the price can do.
        assert!(outcome.peak < 500.0, "{seed}: {} packets", outcome.peak);
        assert!(outcome.used > 0.85 && outcome.drops == 0, "{seed}: {}", outcome.used);
    }
}

/// A flow of half a millisecond, and five of a tenth of a second that pay nearly all they have on a small link further on.
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

/// With a history of but a few mean round trips the link took the far one's price for its own, and a fifth of it was used.
#[test]
fn flows_with_long_round_trips_pay_a_link_its_own_price() {
    let scenario = parse(NEIGHBOURS, &[]);
    let outcome = Outcome::of("", &finish(&scenario.variants()[0].plan, DigestMode::Results));
    assert!(outcome.used > 0.95, "{}", outcome.used);
}
