//! One sender with several receivers: losses of one are retransmitted, and every packet is
//! accounted for.

use tollway_scenario::file::Scenario;
use tollway_scenario::run::DigestMode;

use crate::faults::finished_flows;
use crate::{finish, parse};

/// A tree with branches at two routers, receivers at different distances, and losses on the path to
/// one of them.
const TREE: &str = r#"
name = "tree"
duration = "20 s"
seed = 5

[node.s]
[node.p]
[node.q]
[node.d]
count = 3

[link.up]
from = "s"
to = "p"
rate = "20 Mbps"
delay = "1 ms"
law = "fcp"

[link.across]
from = "p"
to = "q"
rate = "10 Mbps"
delay = "7 ms"
law = "fcp"

[link.one]
from = "p"
to = "d.1"
rate = "5 Mbps"
delay = "20 ms"
law = "fcp"

[link.two]
from = "q"
to = "d.2"
rate = "8 Mbps"
delay = "1 ms"
law = "fcp"
loss = 0.02

[link.three]
from = "q"
to = "d.3"
rate = "8 Mbps"
delay = "2 ms"
law = "fcp"

[flow.m]
from = "s"
to = "d"
law = "fcp"
multicast = true
size = "2 MB"

[flow.u]
from = "q"
to = "d.2"
law = "fcp"
"#;

#[test]
fn every_receiver_has_all_of_it_whatever_is_lost_to_one() {
    let scenario = parse(TREE, &[]);
    let plan = &scenario.variants()[0].plan;
    // A packet that appeared or vanished would end the run with an error.
    let finished = finish(plan, DigestMode::Packets);
    assert_eq!(finished_flows(&finished.result.summary), [(2_000_000, 2_000_000); 3]);
    // At least as many packets were absorbed as the two routers copied.
    assert!(finished.run.census.absorbed > 2 * 2_000_000 / 1460, "{:?}", finished.run.census);
    let again = finish(plan, DigestMode::Packets);
    assert_eq!(finished.run.digest, again.run.digest);
}

#[test]
fn what_is_no_tree_is_refused() {
    for (set, says) in [
        (&["flow.m.law=cubic"][..], "multicast needs the law `fcp`"),
        (&["flow.m.to=d.1"], "a receiver for each member"),
        (&["flow.m.sack=true"], "does not support SACK"),
        (&["flow.m.both-ways=true"], "send nothing"),
        (&["link.one.from=s"], "several links"),
        (&["link.two.from=d.3"], "on the route to another receiver"),
    ] {
        let Err(error) = Scenario::parse("tree.toml", TREE, set) else { panic!("{set:?} is taken") };
        let mistakes = format!("{:?}", error.mistakes());
        assert!(mistakes.contains(says), "{set:?}: {mistakes}");
    }
}
