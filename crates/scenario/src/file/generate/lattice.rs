//! Rings and grids of routers.

use super::{Network, member};
use crate::file::reader::Reader;

/// A ring: each router has a link to the next, the last to the first.
pub(super) fn ring(keys: &Reader<'_>, network: &mut Network) {
    let routers = keys.count("routers").unwrap_or_default();
    let (rate, delay) = (keys.rate("rate").unwrap_or_default(), keys.span("delay"));
    network.group("router", routers);
    for router in 0..routers {
        let next = (router + 1) % routers;
        network.link(&member("router", router), &member("router", next), rate, delay);
    }
}

/// A grid: each router has links to its neighbours in row and column.
pub(super) fn grid(keys: &Reader<'_>, network: &mut Network) {
    let [rows, columns] = ["rows", "columns"].map(|key| keys.count(key).unwrap_or_default());
    let (rate, delay) = (keys.rate("rate").unwrap_or_default(), keys.span("delay"));
    network.group("router", rows * columns);
    for router in 0..rows * columns {
        let name = member("router", router);
        if router % columns + 1 < columns {
            network.link(&name, &member("router", router + 1), rate, delay);
        }
        if router / columns + 1 < rows {
            network.link(&name, &member("router", router + columns), rate, delay);
        }
    }
}
