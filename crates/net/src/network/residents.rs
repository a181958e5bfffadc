//! Machines at a network's nodes: middles and apps.

use std::any::Any;

use tollway_proto::app::MessagePort;
use tollway_proto::{Gate, NodeMachine};

use super::part::Watched;
use super::shapers::SHAPERS;
use super::{Network, Place};
use crate::driver::{Entry, Next, Outlet};
use crate::error::Error;
use crate::label::TREE;

/// The end of a route.
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
    /// Adds a machine at a node. Returns its number.
    pub fn add(&mut self, node: u32, machine: NodeMachine) -> u32 {
        let driver = self.nodes[node as usize].driver;
        let at = self.drivers[driver].add(machine);
        self.machines.push(Place { driver, at });
        self.machines.len() as u32 - 1
    }

    /// Makes later routes that cross `link` pass a middle at its far end, by `gate`.
    ///
    /// Several middles there see a packet in the order of these calls. Nodes that are namespaces
    /// have no middles on ordinary routes.
    pub fn pass_by(&mut self, link: u32, machine: u32, gate: Gate) {
        self.passes.push((link, machine, gate));
    }

    /// Makes a middle [watch](tollway_proto::WireTimes) the wire of `link`, by `gate`.
    ///
    /// The network must have one thread, or be one node of several processes. One node sees packets
    /// as they arrive.
    pub fn watch(&mut self, link: u32, machine: u32, gate: Gate) {
        let (hop, Place { driver, at: machine }) =
            (self.links[link as usize], self.machines[machine as usize]);
        let to = self.specs[link as usize].1;
        match &mut self.part {
            Some(_) if driver != 0 => {}
            Some(part) if hop.driver != 0 => {
                let here = self.nodes[to as usize];
                if here.driver == 0 {
                    let from = part.at[self.specs[link as usize].0 as usize];
                    let pace = self.drivers[hop.driver].links[hop.at as usize].link.pace();
                    let entry = self.drivers[0].add_entry(here.at, from, Entry { machine, gate, pace });
                    part.entries.push((link, entry));
                }
            }
            _ => {
                assert!(hop.driver == driver, "what a machine sees of wires is one thread's");
                self.drivers[driver].links[hop.at as usize].watch = Some((machine, gate));
            }
        }
    }

    /// Updates the current pace of a watched link of another process.
    pub(super) fn tell_entry(&mut self, link: u32) {
        let entries = self.part.iter().flat_map(|part| &part.entries);
        let Some(&(_, entry)) = { entries }.find(|entry| entry.0 == link) else { return };
        let Place { driver, at } = self.links[link as usize];
        self.drivers[0].entries[entry as usize].pace = self.drivers[driver].links[at as usize].link.pace();
    }

    /// Sets the route on which packets leave a middle by `gate`, from its node to `end`.
    ///
    /// The packets belong to `flow`. Their data come from the client of the flow `of`.
    ///
    /// # Errors
    /// [`Error::Loop`] if the route passes a node twice.
    pub fn set_outlet(
        &mut self,
        machine: u32,
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
        let (Place { driver, at }, first) = (self.machines[machine as usize], self.links[route[0] as usize]);
        let fingerprint = self.end_mut(flow, 0).fingerprint;
        self.drivers[driver].set_outlet(at, gate, Outlet { label, first: first.at, fingerprint });
        Ok(())
    }

    /// Gives the client or the server of a flow to an app at its node. Returns the app's port.
    ///
    /// The flow must not be open yet. The end sends real bytes, and must not be behind a shaper.
    pub fn attach(&mut self, flow: u32, client: bool, machine: u32) -> MessagePort {
        let which = usize::from(!client);
        let (end, machine) = (self.flows[flow as usize][which], self.machines[machine as usize]);
        assert!(end.driver == machine.driver, "an app is for flows that end at its node");
        self.end_mut(flow, 1 - which).hears_app = true;
        self.drivers[end.driver].attach(end.at, machine.at)
    }

    /// A machine or a shaper, to be downcast to its type; `None` if another process has its node.
    pub fn machine(&self, machine: u32) -> Option<&dyn Any> {
        if let Some(shaper) = machine.checked_sub(SHAPERS) {
            return self.shaper(shaper);
        }
        let place = self.machines[machine as usize];
        let machine = || self.drivers[place.driver].residents[place.at as usize].machine.as_any();
        self.is_here(place).then(machine)
    }

    /// Calls `work` with a machine or a shaper at the current time.
    ///
    /// Packets that it sends or releases leave with the next run.
    ///
    /// # Errors
    /// As [`run_until`](Network::run_until).
    pub fn with_machine(&mut self, machine: u32, work: impl FnOnce(&mut dyn Any)) -> Result<(), Error> {
        if let Some(shaper) = machine.checked_sub(SHAPERS) {
            let Place { driver, at } = self.shapers[shaper as usize];
            return self.drivers[driver].with_shaper(self.now, at, |shaper| work(shaper));
        }
        let Place { driver, at } = self.machines[machine as usize];
        self.drivers[driver].with_machine(at, self.now, work)
    }

    /// The last step of a flow's packets.
    pub(super) fn at_end(&mut self, flow: u32, end: RouteEnd) -> Next {
        match end {
            RouteEnd::Client => Next::End(self.flows[flow as usize][0].at),
            RouteEnd::Server => {
                let server = self.flows[flow as usize][1];
                let here = self.is_here(server);
                if let Some(part) = self.part.as_mut().filter(|_| here)
                    && !part.ends.iter().any(|end| end.flow == flow && !end.client)
                {
                    part.ends.push(Watched::new(flow, false));
                }
                Next::End(server.at)
            }
            RouteEnd::Middle(machine, gate) => self.opening(machine, gate, Next::Nowhere),
        }
    }

    fn opening(&mut self, machine: u32, gate: Gate, then: Next) -> Next {
        let Place { driver, at } = self.machines[machine as usize];
        self.drivers[driver].add_opening(at, gate, then)
    }

    /// The step after `link` on a route that continues with `next`.
    pub(super) fn after(&mut self, link: u32, next: Next) -> Next {
        let passes: Vec<_> = self.passes.iter().rev().filter(|pass| pass.0 == link).copied().collect();
        passes.into_iter().fold(next, |next, (_, machine, gate)| self.opening(machine, gate, next))
    }
}
