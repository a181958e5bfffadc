//! The overlay's daemons over links in memory: delivery and order under faults, attacks, prices,
//! and frames as bytes.

mod attacks;
mod corpus;
mod delivery;
mod net;
mod order;
mod prices;
mod site;
mod wire;

use tollway_law::{Rate, Time};
use tollway_proto::overlay::Config;

use net::Net;

/// `nodes` daemons in a row, 2 Mb/s and 10 ms apart, that know each other.
fn row(nodes: usize, config: Config, seed: u64) -> Net {
    let mut net = Net::new(nodes, config, seed);
    for node in 1..nodes {
        net.link(node - 1, node, Rate::from_mbps(2.0), Time::from_millis(10));
    }
    net.run(Time::from_secs(2));
    net
}

/// A generator for what tests choose at random.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n
    }
}
