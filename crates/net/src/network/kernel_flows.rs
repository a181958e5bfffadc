//! Flows of a network that use the kernel's own TCP.

use std::net::SocketAddr;

use super::{FlowSpec, Network, Place};
use crate::error::Error;
use crate::kernel_tcp::{KernelSpec, KernelStats, MOST, Programs, Room};
use crate::sys::namespace::Namespace;

impl Network {
    /// Gives each of these nodes its own kernel, where kernel flows can end.
    ///
    /// Call it once, before the first flow.
    ///
    /// # Errors
    /// The system refuses a namespace or an interface.
    pub fn open_kernels(&mut self, nodes: &[u32]) -> Result<(), Error> {
        self.kernels = !nodes.is_empty();
        if self.hosts.is_some() {
            return Ok(()); // Each node has its own kernel already.
        }
        let mut rooms: Vec<Vec<_>> = self.drivers.iter().map(|_| Vec::new()).collect();
        for &node in nodes {
            let place = self.nodes[node as usize];
            rooms[place.driver].push(Room::new(node, place.at)?);
        }
        for (driver, rooms) in self.drivers.iter_mut().zip(rooms) {
            driver.set_rooms(rooms);
        }
        Ok(())
    }

    /// Adds a flow between the kernels of two nodes, also during a run.
    ///
    /// The machines of `flow` stay idle. Both nodes must have kernels.
    ///
    /// # Errors
    /// As for [`add_flow`](Network::add_flow). Also, the kernel may refuse sockets, or may not have
    /// the congestion control.
    pub fn add_kernel_flow(&mut self, kernel: &KernelSpec, mut flow: FlowSpec) -> Result<u32, Error> {
        let number = self.programs.len();
        if number >= MOST {
            let source = std::io::Error::other(format!("there are {MOST} ports for them"));
            return Err(Error::Namespace { action: "have more flows of the kernel's", source });
        }
        let times = (flow.start, flow.stop);
        (flow.start, flow.stop) = (tollway_law::Time::NEVER, tollway_law::Time::NEVER);
        let nodes = [flow.forward[0], flow.back[0]].map(|link| self.specs[link as usize].0);
        let id = self.add_flow(flow)?;
        if self.hosts.is_some() {
            self.note_kernel(number, id, nodes);
        } else {
            for (node, end) in nodes.into_iter().zip(self.flows[id as usize]) {
                let room = self.room(node).expect(KERNELS);
                self.drivers[end.driver].carry(room.at, number, end.at);
            }
        }
        let [client, server] = nodes.map(|node| (node, self.kernel(node).expect(KERNELS)));
        let mut programs = Programs::new(number, kernel, (client, server), times)?;
        if let Some(began) = self.began {
            programs.begin(began).map_err(|source| Error::Namespace { action: "start a thread", source })?;
        }
        self.programs.push((id, programs));
        Ok(id)
    }

    /// Counters of a kernel flow in one direction; `None` for other flows.
    pub fn kernel_stats(&self, flow: u32, back: bool) -> Option<KernelStats> {
        let number = self.programs.binary_search_by_key(&flow, |entry| entry.0).ok()?;
        let (_, programs) = &self.programs[number];
        let way = usize::from(back);
        if self.hosts.is_some() {
            let bytes = self.drivers.iter().map(|driver| driver.kernel_bytes(number, way));
            let (sent, received) = bytes.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            return Some(programs.stats(way, sent, received));
        }
        let [client, server] = self.flows[flow as usize]
            .map(|end| self.drivers[end.driver].ends[end.at as usize].carried.unwrap_or_default());
        Some(match back {
            false => programs.stats(0, client.sent, server.received),
            true => programs.stats(1, server.sent, client.received),
        })
    }

    /// The address of a kernel flow's client, or of its server if `back`; `None` for other flows.
    pub fn kernel_address(&self, flow: u32, back: bool) -> Option<SocketAddr> {
        let number = self.programs.binary_search_by_key(&flow, |entry| entry.0).ok()?;
        Some(self.programs[number].1.addresses[usize::from(back)])
    }

    /// Limits the window of a kernel flow's receivers to `window` bytes; no limit if `None`.
    ///
    /// Returns false if `flow` is no kernel flow.
    ///
    /// # Errors
    /// The kernel refuses a buffer of this size.
    pub fn set_kernel_buffer(&mut self, flow: u32, window: Option<u32>) -> Result<bool, Error> {
        let Ok(number) = self.programs.binary_search_by_key(&flow, |entry| entry.0) else { return Ok(false) };
        let set = self.programs[number].1.set_receive_buffer(window);
        set.map_err(|source| Error::Namespace { action: "give a connection another buffer", source })?;
        Ok(true)
    }

    /// Packets that nodes' kernels sent, and packets delivered to them.
    ///
    /// At the run's end they equal the counters of the kernels' interfaces.
    pub fn kernel_packets(&self) -> (u64, u64) {
        let rooms =
            self.drivers.iter().flat_map(|driver| &driver.rooms).map(|room| (room.read, room.written));
        let grounds = self.drivers.iter().filter_map(|driver| Some(driver.ground.as_ref()?.segments));
        rooms.chain(grounds).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// The namespace whose kernel has a node's kernel flows; `None` if no such flow ends there.
    pub fn kernel(&self, node: u32) -> Option<&Namespace> {
        self.namespace(node).or_else(|| {
            let Place { driver, at } = self.room(node)?;
            Some(&self.drivers[driver].rooms[at as usize].namespace)
        })
    }

    /// Index of a node's kernel.
    fn room(&self, node: u32) -> Option<Place> {
        let Place { driver, at } = self.nodes[node as usize];
        let rooms = &self.drivers[driver].rooms;
        let room = rooms.iter().position(|room| room.node == at)?;
        Some(Place { driver, at: room as u32 })
    }

    /// Notes completed flows, and reports wrong data.
    pub(super) fn look_at_programs(&mut self) -> Result<(), Error> {
        for (flow, programs) in &mut self.programs {
            if let Some(position) = programs.wrong() {
                let (segment, position) = ((position >> 16) as u32, (position & 0xffff) as usize);
                return Err(Error::Corrupt { flow: *flow, segment, position, at: self.now });
            }
            while let Some((way, at)) = programs.next_done() {
                self.drivers[0].done.push((*flow, way == 0, at));
            }
        }
        Ok(())
    }
}

const KERNELS: &str = "the nodes of such a flow have kernels";
