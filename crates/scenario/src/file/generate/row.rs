//! One bottleneck, or several in a row.

use tollway_law::{Rate, Time};

use super::{Network, member};
use crate::file::reader::Reader;

/// A dumbbell: sources, a bottleneck and sinks.
pub(super) fn dumbbell(keys: &Reader<'_>, network: &mut Network) {
    let pairs = keys.count("pairs").unwrap_or_default();
    let [(rate, delay), (access, access_delay)] = links(keys);
    network.group("source", pairs);
    network.node("left");
    network.node("right");
    network.group("sink", pairs);
    network.link("source", "left", access, access_delay);
    network.link("left", "right", rate, delay);
    network.link("right", "sink", access, access_delay);
}

/// A parking lot: routers in a row, a host at either end, and a host before and after each
/// bottleneck.
pub(super) fn parking_lot(keys: &Reader<'_>, network: &mut Network) {
    let hops = keys.count("hops").unwrap_or_default();
    let [(rate, delay), (access, access_delay)] = links(keys);
    network.node("source");
    network.group("router", hops + 1);
    network.node("sink");
    network.group("entry", hops);
    network.group("exit", hops);
    network.link("source", &member("router", 0), access, access_delay);
    for hop in 0..hops {
        network.link(&member("router", hop), &member("router", hop + 1), rate, delay);
    }
    network.link(&member("router", hops), "sink", access, access_delay);
    for hop in 0..hops {
        network.link(&member("entry", hop), &member("router", hop), access, access_delay);
        network.link(&member("router", hop + 1), &member("exit", hop), access, access_delay);
    }
}

/// Rate and delay of bottlenecks and of the other links.
fn links(keys: &Reader<'_>) -> [(Rate, Time); 2] {
    let rate = keys.rate("rate").unwrap_or_default();
    let tenfold = Rate::from_bps((10.0 * rate.bps()).min(Rate::FASTEST_WIRE.bps()));
    let access = keys.rate("access-rate").unwrap_or(tenfold);
    [(rate, keys.span("delay")), (access, keys.span("access-delay"))]
}
