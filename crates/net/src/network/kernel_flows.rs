//! Flows of a network that are the kernel's own.

use super::{FlowSpec, Network, Place};
use crate::error::Error;
use crate::kernel_tcp::{KernelSpec, KernelStats, MOST, Programs, Room};
use crate::sys::namespace::Namespace;

impl Network {
    /// Gives each of these nodes a kernel of its own, for flows of the kernel's to end there; before the first flow, and once.
    ///
    /// # Errors
    /// The system refuses a namespace or an interface.
    pub fn open_kernels(&mut self, nodes: &[u32]) -> Result<(), Error> {
        self.kernels = !nodes.is_empty();
        if self.hosts.is_some() {
            return Ok(()); // Each has one.
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

    /// Adds a flow whose ends are the kernel's, also in the middle of a run: the machines of `flow` stay idle. Both its nodes have kernels.
    ///
    /// # Errors
    /// As [`add_flow`](Network::add_flow), and the kernel may refuse sockets, or have no such congestion control.
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
                let room = self.room(node);
                self.drivers[end.driver].carry(room.at, number, end.at);
            }
        }
        let [client, server] = nodes.map(|node| (node, self.kernel_of(node)));
        let mut programs = Programs::new(number, kernel, (client, server), times)?;
        if let Some(began) = self.began {
            programs.begin(began).map_err(|source| Error::Namespace { action: "start a thread", source })?;
        }
        self.programs.push((id, programs));
        Ok(id)
    }

    /// How a flow of the kernel's fares, there or back; `None` if it is none.
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

    /// From now on receivers of a flow of the kernel's offer a window of `window` bytes at most; any if `None`. Answers whether it is one.
    ///
    /// # Errors
    /// The kernel gives no such room.
    pub fn set_kernel_buffer(&mut self, flow: u32, window: Option<u32>) -> Result<bool, Error> {
        let Ok(number) = self.programs.binary_search_by_key(&flow, |entry| entry.0) else { return Ok(false) };
        let set = self.programs[number].1.set_receive_buffer(window);
        set.map_err(|source| Error::Namespace { action: "give a connection another buffer", source })?;
        Ok(true)
    }

    /// Packets that came out of nodes' kernels, and that went in: what their interfaces' counters say, too, once the run is settled.
    pub fn kernel_packets(&self) -> (u64, u64) {
        let rooms =
            self.drivers.iter().flat_map(|driver| &driver.rooms).map(|room| (room.read, room.written));
        let grounds = self.drivers.iter().filter_map(|driver| Some(driver.ground.as_ref()?.segments));
        rooms.chain(grounds).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// The namespace whose kernel a node's flows of that kind are.
    fn kernel_of(&self, node: u32) -> &Namespace {
        self.namespace(node).unwrap_or_else(|| {
            let Place { driver, at } = self.room(node);
            &self.drivers[driver].rooms[at as usize].namespace
        })
    }

    /// The kernel of a node.
    fn room(&self, node: u32) -> Place {
        let Place { driver, at } = self.nodes[node as usize];
        let rooms = &self.drivers[driver].rooms;
        let room = rooms.iter().position(|room| room.node == at);
        Place { driver, at: room.expect("the nodes of such a flow have kernels") as u32 }
    }

    /// Tells what is done, and what arrived otherwise than it was sent.
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
