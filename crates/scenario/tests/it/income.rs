//! What short flows take back when they go does not make a link cheap for those who stay.

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
