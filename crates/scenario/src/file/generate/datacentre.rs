//! Fat-trees (Al-Fares, Loukissas and Vahdat, SIGCOMM 2008, section 3) and leaf-spine networks.

use super::{Network, member};
use crate::file::error::Mistakes;
use crate::file::reader::Reader;

/// A fat-tree: `k` pods of k/2 edge and k/2 aggregation switches, and k/2 hosts at each edge
/// switch.
///
/// Of the (k/2)² cores, aggregation switch `a` of every pod has links to k/2 cores from number
/// a·k/2 on.
pub(super) fn fat_tree(keys: &Reader<'_>, network: &mut Network, mistakes: &mut Mistakes) {
    let k = keys.count("k").unwrap_or_default();
    if !k.is_multiple_of(2) {
        mistakes
            .add(keys.at("k"), format!("a fat-tree's `k` must be even, and {k} is odd"), "odd")
            .help("half of a switch's ports lead up, half down: write 4, 8, 16 and so on");
        return;
    }
    let (rate, delay) = (keys.rate("rate").unwrap_or_default(), keys.span("delay"));
    let half = k / 2;
    network.group("host", k * half * half);
    network.group("edge", k * half);
    network.group("agg", k * half);
    network.group("core", half * half);
    for host in 0..k * half * half {
        network.link(&member("host", host), &member("edge", host / half), rate, delay);
    }
    for edge in 0..k * half {
        let pod = edge / half * half;
        for agg in pod..pod + half {
            network.link(&member("edge", edge), &member("agg", agg), rate, delay);
        }
    }
    for agg in 0..k * half {
        let first = agg % half * half;
        for core in first..first + half {
            network.link(&member("agg", agg), &member("core", core), rate, delay);
        }
    }
}

/// A leaf-spine network: each leaf has its hosts, and a link to every spine.
pub(super) fn leaf_spine(keys: &Reader<'_>, network: &mut Network) {
    let [leaves, spines, hosts] =
        ["leaves", "spines", "hosts"].map(|key| keys.count(key).unwrap_or_default());
    let (rate, delay) = (keys.rate("rate").unwrap_or_default(), keys.span("delay"));
    let uplink = keys.rate("uplink-rate").unwrap_or(rate);
    network.group("host", leaves * hosts);
    network.group("leaf", leaves);
    network.group("spine", spines);
    for host in 0..leaves * hosts {
        network.link(&member("host", host), &member("leaf", host / hosts), rate, delay);
    }
    for leaf in 0..leaves {
        for spine in 0..spines {
            network.link(&member("leaf", leaf), &member("spine", spine), uplink, delay);
        }
    }
}
