//! Shapers of a network: hosts that hold their connections to a profile.

use std::any::Any;

use tollway_proto::shaper::{ClassId, Shaper};

use super::{Network, Place};

impl Network {
    /// Adds the shaper of the host at `node`; answers its number.
    pub fn add_shaper(&mut self, node: u32, shaper: Shaper) -> u32 {
        let driver = self.nodes[node as usize].driver;
        let at = self.drivers[driver].add_shaper(shaper);
        self.shapers.push(Place { driver, at });
        SHAPERS | (self.shapers.len() as u32 - 1)
    }

    /// Has the client of a flow that has not opened yet ask `shaper`, its host's, before it sends data.
    pub fn gate_flow(&mut self, flow: u32, shaper: u32, class: ClassId) {
        let (client, shaper) = (self.flows[flow as usize][0], self.shapers[(shaper - SHAPERS) as usize]);
        assert!(client.driver == shaper.driver, "a host's shaper is for flows that begin there");
        self.drivers[client.driver].gate_end(client.at, shaper.at, class);
    }

    /// Has cross-traffic ask `shaper`, its host's, where at most `room` packets of it wait.
    pub fn gate_source(&mut self, source: u32, shaper: u32, class: ClassId, room: u32) {
        let (from, shaper) = (self.sources[source as usize][0], self.shapers[(shaper - SHAPERS) as usize]);
        assert!(from.driver == shaper.driver, "a host's shaper is for traffic that begins there");
        self.drivers[from.driver].gate_source(from.at, shaper.at, class, room);
    }

    /// A shaper, by its place among them.
    pub(super) fn shaper(&self, shaper: u32) -> Option<&dyn Any> {
        let Place { driver, at } = self.shapers[shaper as usize];
        self.is_here(Place { driver, at }).then(|| self.drivers[driver].gates.shaper(at) as _)
    }
}

/// Numbers of shapers begin here.
pub(super) const SHAPERS: u32 = 1 << 31;
