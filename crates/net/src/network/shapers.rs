//! Shapers of a network: hosts that keep their connections to a traffic profile.

use std::any::Any;

use tollway_proto::shaper::{ClassId, Shaper};

use super::{Network, Place};

impl Network {
    /// Adds the shaper of the host at `node`. Returns its number.
    pub fn add_shaper(&mut self, node: u32, shaper: Shaper) -> u32 {
        let driver = self.nodes[node as usize].driver;
        let at = self.drivers[driver].add_shaper(shaper);
        self.shapers.push(Place { driver, at });
        SHAPERS | (self.shapers.len() as u32 - 1)
    }

    /// Makes the client of a flow ask `shaper`, its host's, before it sends data. The flow must not
    /// be open yet.
    pub fn shape_flow(&mut self, flow: u32, shaper: u32, class: ClassId) {
        let (client, shaper) = (self.flows[flow as usize][0], self.shapers[(shaper - SHAPERS) as usize]);
        assert!(client.driver == shaper.driver, "a host's shaper is for flows that begin there");
        self.drivers[client.driver].shape_end(client.at, shaper.at, class);
    }

    /// Makes cross-traffic ask `shaper`, its host's, where at most `room` of its packets wait.
    pub fn shape_source(&mut self, source: u32, shaper: u32, class: ClassId, room: u32) {
        let (from, shaper) = (self.sources[source as usize][0], self.shapers[(shaper - SHAPERS) as usize]);
        assert!(from.driver == shaper.driver, "a host's shaper is for traffic that begins there");
        self.drivers[from.driver].shape_source(from.at, shaper.at, class, room);
    }

    /// A shaper, by its index.
    pub(super) fn shaper(&self, shaper: u32) -> Option<&dyn Any> {
        let Place { driver, at } = self.shapers[shaper as usize];
        self.is_here(Place { driver, at }).then(|| self.drivers[driver].shaped.shaper(at) as _)
    }
}

/// Number of the first shaper.
pub(super) const SHAPERS: u32 = 1 << 31;
