//! Trees of a network: flows with several receivers, and the nodes where they branch.

use tollway_proto::{AnyMiddle, Gate};

use super::{Network, Place};
use crate::driver::{Next, Outlet, TREE};
use crate::error::Error;

/// What is at the end of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteEnd {
    /// The machine of the flow that answers.
    Server,
    /// The machine of the flow that opens.
    Client,
    /// A gate of a middle.
    Middle(u32, Gate),
}

impl Network {
    /// Adds a machine at a node, which ends the packets of routes that lead to its gates and makes others; answers its number.
    pub fn add_middle(&mut self, node: u32, machine: AnyMiddle) -> u32 {
        let driver = self.nodes[node as usize].driver;
        let at = self.drivers[driver].add_middle(machine);
        self.middles.push(Place { driver, at });
        self.middles.len() as u32 - 1
    }

    /// Where packets go that a middle sends by `gate`: on `route`, from its node to `end`, as packets of `flow`. Data in them are what
    /// the client of the flow `of` sends.
    ///
    /// # Errors
    /// [`Error::Loop`] if the route passes a node twice.
    pub fn set_outlet(
        &mut self,
        middle: u32,
        gate: Gate,
        (route, end): (&[u32], RouteEnd),
        flow: u32,
        of: u32,
    ) -> Result<(), Error> {
        let label = TREE | self.stretches;
        self.stretches += 1;
        self.drivers.iter_mut().for_each(|driver| driver.buffers.add_stretch(flow << 1));
        let next = self.at_end(flow, end);
        self.lead(label, route, next)?;
        if end == RouteEnd::Server {
            self.end_mut(flow, 1).hears = of << 1;
        }
        let (Place { driver, at }, first) = (self.middles[middle as usize], self.links[route[0] as usize]);
        self.drivers[driver].set_outlet(at, gate, Outlet { label, first: first.at });
        Ok(())
    }

    /// What a node does with packets of a flow that have come to an end of their way.
    pub(super) fn at_end(&mut self, flow: u32, end: RouteEnd) -> Next {
        match end {
            RouteEnd::Client => Next::End(self.flows[flow as usize][0].at),
            RouteEnd::Server => Next::End(self.flows[flow as usize][1].at),
            RouteEnd::Middle(middle, gate) => {
                let Place { driver, at } = self.middles[middle as usize];
                Next::Gate(self.drivers[driver].add_opening(at, gate))
            }
        }
    }
}
