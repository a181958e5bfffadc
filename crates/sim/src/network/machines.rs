//! Machines at nodes: middles on the path of packets, and apps above connections.

use std::any::Any;
use std::collections::VecDeque;

use bytes::Bytes;
use tollway_proto::app::{self, Connections, MessagePort};
use tollway_proto::transport::Connection;
use tollway_proto::{Gate, NodeMachine, Passed};

use super::shaped::SHAPERS;
use super::*;

/// A machine and its attachments to the network.
#[derive(Debug)]
pub(super) struct Resident {
    machine: NodeMachine,
    /// The time of its pending event in the scheduler.
    armed: Time,
    /// The outlets of a middle, by gate.
    outlets: Vec<Option<Outlet>>,
    /// The ends that an app owns, by port.
    ports: Vec<usize>,
}

/// The route of a packet that leaves a middle, and its new flow.
#[derive(Clone, Copy, Debug)]
struct Outlet {
    route: u32,
    flow: u32,
}

/// A gate by which packets enter a middle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    machine: MachineId,
    gate: Gate,
    /// True if a route ends here.
    pub(super) ends: bool,
}

/// The end of a flow that an app owns.
#[derive(Debug)]
pub(super) struct Hosted {
    machine: MachineId,
    port: MessagePort,
    /// Messages sent here that have not been delivered at the other end.
    bodies: VecDeque<Bytes>,
}

impl<M: Machine> Network<M> {
    /// Adds a machine at a node. Machines must be added before the first
    /// [`run_until`](Network::run_until).
    pub fn add(&mut self, machine: NodeMachine) -> MachineId {
        assert!(!self.sealed, "machines are added before the first run");
        self.machines.push(Resident { machine, armed: Time::NEVER, outlets: Vec::new(), ports: Vec::new() });
        MachineId(self.machines.len() as u32 - 1)
    }

    /// Leads routes through a middle, by `gate`, at the far end of `link`. This holds for every
    /// route over `link` added later. Several middles there see a packet in the order of these
    /// calls.
    pub fn pass_by(&mut self, link: LinkId, machine: MachineId, gate: Gate) {
        self.openings.push(Opening { machine, gate, ends: false });
        self.passes.push((link, GATES + self.openings.len() as u32 - 1));
    }

    /// Makes a middle [watch](tollway_proto::WireTimes) the wire of `link`, by `gate`.
    pub fn watch(&mut self, link: LinkId, machine: MachineId, gate: Gate) {
        let seed = self.seed;
        self.links[link.0 as usize].set_watch(machine.0, gate, || Faults::new(seed, link.0));
    }

    /// Announces a flow to middles.
    pub(super) fn announce(&mut self, flow: FlowId, segment: u32) {
        let middles = self.machines.iter_mut().filter_map(|resident| resident.machine.as_middle());
        middles.for_each(|middle| middle.on_flow(flow.0, segment));
    }

    /// Returns true if a packet ends on the wire of link `id`: lost at random, or dropped by a
    /// middle that watches the wire.
    #[inline(never)]
    pub(super) fn ends_on_wire(&mut self, id: u32, slot: u32) -> bool {
        let link = &mut self.links[id as usize];
        let packet = self.slab.get_mut(slot);
        let Some((machine, gate)) = link.watch() else { return link.lost_on_wire(packet, 1) };
        let NodeMachine::Middle(middle) = &mut self.machines[machine as usize].machine else {
            unreachable!("an app has no gates")
        };
        middle.on_wire(self.now, gate, link.pace().wire(packet.size), packet);
        if link.lost_on_wire(packet, 1) {
            return true;
        }
        let (flow, size, toll) = (packet.flow, u32::from(packet.size), packet.toll);
        let mut sack = *self.slab.sack(self.slab.get(slot));
        let packet = self.slab.get_mut(slot);
        if middle.pass(self.now, gate, packet, &mut sack) != Passed::Onward {
            link.note_metered();
            return true;
        }
        if packet.toll != toll
            && let Some((encoding, _)) = self.slab.encoding(flow)
        {
            encoding.quantise_sender(&mut self.slab.get_mut(slot).toll, size);
        }
        false
    }

    /// Adds the entry of a route that ends at a gate.
    pub(super) fn opening(&mut self, machine: MachineId, gate: Gate) -> u32 {
        self.openings.push(Opening { machine, gate, ends: true });
        GATES + self.openings.len() as u32 - 1
    }

    /// Connects a middle's `gate` to `route`, which must have at least one link. Packets leave
    /// there as packets of `flow`.
    pub fn set_outlet(&mut self, machine: MachineId, gate: Gate, route: RouteId, flow: FlowId) {
        assert!(self.routes[route.0 as usize] < GATES, "an outlet's route begins with a link");
        let outlets = &mut self.machines[machine.0 as usize].outlets;
        outlets.resize(outlets.len().max(gate.0 as usize + 1), None);
        outlets[gate.0 as usize] = Some(Outlet { route: route.0, flow: flow.0 });
    }

    /// Gives an end of a flow to an app, and returns the app's port. The end must not have opened
    /// yet, and must not have a shaper.
    pub fn attach(&mut self, flow: FlowId, end: End, machine: MachineId) -> MessagePort {
        let at = flow.0 as usize * 2 + usize::from(end == End::Server);
        assert!(self.endpoints[at].machine.connection().is_some(), "an app owns connections");
        let ports = &mut self.machines[machine.0 as usize].ports;
        let port = MessagePort(ports.len() as u32);
        ports.push(at);
        self.endpoints[at].shaped = HOSTED + self.hosted.len() as u32;
        self.hosted.push(Hosted { machine, port, bodies: VecDeque::new() });
        port
    }

    /// A machine or a shaper, to be downcast to its type.
    pub fn machine(&self, id: MachineId) -> &dyn Any {
        match id.0.checked_sub(SHAPERS) {
            Some(shaper) => self.shaped.shaper(shaper),
            None => self.machines[id.0 as usize].machine.as_any(),
        }
    }

    /// Calls `work` on a machine or a shaper at the present instant, then sends the packets it has
    /// or releases.
    pub fn with_machine<R>(&mut self, id: MachineId, work: impl FnOnce(&mut dyn Any) -> R) -> R {
        self.seal();
        if let Some(shaper) = id.0.checked_sub(SHAPERS) {
            return self.with_shaped(|shaped, now, mut network| {
                shaped.with_shaper(now, shaper, &mut network, |shaper| work(shaper))
            });
        }
        let answer = work(self.machines[id.0 as usize].machine.as_any_mut());
        match self.machines[id.0 as usize].machine {
            NodeMachine::Middle(_) => self.send_middle(id),
            NodeMachine::App(_) => self.serve_ports(id, None),
        }
        answer
    }

    pub(super) fn machine_entity(&self, at: usize) -> u32 {
        self.shaper_entity(self.shapers + at)
    }

    /// Sets a machine's timer.
    pub(super) fn arm_machine(&mut self, id: MachineId) {
        let Resident { machine, armed, .. } = &mut self.machines[id.0 as usize];
        let due = machine.poll_timeout();
        if due != *armed {
            *armed = due;
            let entity = self.machine_entity(id.0 as usize);
            self.scheduler.set(entity, due);
        }
    }

    /// Handles a machine's timer.
    #[cold]
    pub(super) fn tick_machine(&mut self, at: usize) {
        let (now, id) = (self.now, MachineId(at as u32));
        let Resident { machine, armed, ports, .. } = &mut self.machines[at];
        *armed = Time::NEVER;
        match machine {
            NodeMachine::Middle(middle) => {
                middle.handle_timeout(now);
                self.send_middle(id);
            }
            NodeMachine::App(app) => {
                let mut lent = Lent { endpoints: &mut self.endpoints, ports, used: Vec::new() };
                app.handle_timeout(now, &mut lent);
                for at in lent.used {
                    self.exchange(at);
                    self.settle(at);
                }
                self.serve_ports(id, None);
            }
        }
        let (entity, armed) = (self.machine_entity(at), self.machines[at].armed);
        self.scheduler.set(entity, armed);
    }

    /// Passes a packet at a gate to its middle, which decides its further route.
    #[cold]
    pub(super) fn cross(&mut self, entry: u32, slot: u32) {
        // Nothing is carried on: packets that the middle sends afterwards belong to this instant.
        let bound = std::mem::take(&mut self.bound);
        let Opening { machine: id, gate, ends } = self.openings[(entry - GATES) as usize];
        let mut sack = *self.slab.sack(self.slab.get(slot));
        let packet = self.slab.get_mut(slot);
        let (plain, toll) = (packet.flags.has(PLAIN), packet.toll);
        let came = packet.flags.has(Flags::SACK).then_some(packet.sack);
        let Resident { machine: NodeMachine::Middle(middle), outlets, .. } =
            &mut self.machines[id.0 as usize]
        else {
            unreachable!("an app has no gates")
        };
        let passed = middle.pass(self.now, gate, packet, &mut sack);
        let rewritten = packet.toll != toll;
        let (flow, size) = (packet.flow, packet.size);
        let outlet = match passed {
            Passed::By(gate) if !plain => outlets.get(gate.0 as usize).copied().flatten(),
            _ => None,
        };
        self.slab.set_sack(slot, came, &sack);
        if rewritten && let Some((encoding, _)) = self.slab.encoding(flow).filter(|_| !plain) {
            encoding.quantise_sender(&mut self.slab.get_mut(slot).toll, u32::from(size));
        }
        match (passed, outlet) {
            (Passed::Onward, _) if !ends => {
                let (next, size) = self.step(VARIES, slot);
                self.hand(next, slot, size);
            }
            (_, Some(outlet)) => {
                self.endpoints[flow as usize * 2].balance -= 1;
                self.endpoints[outlet.flow as usize * 2].balance += 1;
                let packet = self.slab.get_mut(slot);
                (packet.flow, packet.cursor) = (outlet.flow, outlet.route);
                self.offer(self.routes[outlet.route as usize], slot, size);
            }
            _ => {
                self.absorbed += 1;
                self.lose(slot);
            }
        }
        self.send_middle(id);
        self.bound = bound;
    }

    /// Sends a middle's pending packets, and sets its timer.
    fn send_middle(&mut self, id: MachineId) {
        loop {
            let Resident { machine: NodeMachine::Middle(middle), outlets, .. } =
                &mut self.machines[id.0 as usize]
            else {
                return;
            };
            let out = self.slab.draft();
            let Some(gate) = middle.poll_transmit(self.now, out, &mut self.sack_scratch) else { break };
            let sack = std::mem::take(&mut self.sack_scratch);
            let Some(Outlet { route, flow }) = outlets.get(gate.0 as usize).copied().flatten() else {
                continue;
            };
            (out.flow, out.cursor) = (flow, route);
            self.endpoints[flow as usize * 2].balance += 1;
            let (first, size) = (self.routes[route as usize], out.size);
            let slot = self.slab.launch();
            self.slab.set_sack(slot, None, &sack);
            self.offer(first, slot, size);
        }
        self.arm_machine(id);
    }

    /// Exchanges messages between an app and one of its ends, then serves the app's other ports.
    pub(super) fn serve(&mut self, at: usize) {
        self.exchange(at);
        let Hosted { machine, .. } = self.hosted[(self.endpoints[at].shaped - HOSTED) as usize];
        self.serve_ports(machine, Some(at));
    }

    /// Serves the ports that an app names. The caller settles the end `but`.
    fn serve_ports(&mut self, id: MachineId, but: Option<usize>) {
        loop {
            let Resident { machine: NodeMachine::App(app), ports, .. } = &mut self.machines[id.0 as usize]
            else {
                return;
            };
            let Some(port) = app.poll_port() else { break };
            let Some(&at) = ports.get(port.0 as usize) else { continue };
            self.exchange(at);
            if but != Some(at) {
                self.settle(at);
            }
        }
        self.arm_machine(id);
    }

    /// Delivers messages to an app at one of its ends, takes the app's messages there, and sends
    /// them.
    fn exchange(&mut self, at: usize) {
        let now = self.now;
        let index = (self.endpoints[at].shaped - HOSTED) as usize;
        let peer = self.endpoints[at ^ 1].shaped.checked_sub(HOSTED).filter(|_| self.is_hosted(at ^ 1));
        let Hosted { machine, port, .. } = self.hosted[index];
        loop {
            let NodeMachine::App(app) = &mut self.machines[machine.0 as usize].machine else { return };
            let Some(connection) = self.endpoints[at].machine.connection() else { return };
            app::deliver(&mut **app, now, port, connection, |bytes| {
                let body = peer.and_then(|peer| self.hosted[peer as usize].bodies.pop_front());
                body.unwrap_or_else(|| vec![0; bytes as usize].into())
            });
            let mut more = app::refill(&mut **app, now, port, connection, |body| {
                if peer.is_some() {
                    self.hosted[index].bodies.push_back(body);
                }
            });
            loop {
                let machine = &mut self.endpoints[at].machine;
                if !machine.poll_transmit(now, self.slab.draft(), &mut self.sack_scratch) {
                    break;
                }
                more = true;
                self.launch(at);
            }
            if !more {
                return;
            }
        }
    }

    /// Returns true if an app owns this end.
    pub(super) fn is_hosted(&self, at: usize) -> bool {
        is_hosted(self.endpoints[at].shaped)
    }
}

/// Returns true if the number of a shaped sender stands for an app's end.
pub(super) fn is_hosted(shaped: u32) -> bool {
    (HOSTED..UNSHAPED).contains(&shaped)
}

/// Numbers below are of shaped senders; from here on they are of ends that apps own.
const HOSTED: u32 = 1 << 31;

/// An app's connections, borrowed for one call.
struct Lent<'a, M> {
    endpoints: &'a mut [Endpoint<M>],
    ports: &'a [usize],
    /// The ends that were borrowed.
    used: Vec<usize>,
}

impl<M: Machine> Connections for Lent<'_, M> {
    fn connection(&mut self, port: MessagePort) -> Option<&mut Connection> {
        let at = *self.ports.get(port.0 as usize)?;
        if !self.used.contains(&at) {
            self.used.push(at);
        }
        self.endpoints[at].machine.connection()
    }
}
