//! Machines at nodes: middles on the path of datagrams, and apps above connections.

use std::any::Any;

use tollway_law::Time;
use tollway_proto::app::{self, Connections, MessagePort};
use tollway_proto::encoding::acp;
use tollway_proto::transport::Connection;
use tollway_proto::transport::stream::{Incoming, Outgoing};
use tollway_proto::{Encoding, Flags, Gate, NodeMachine, Packet, Passed, SackRanges};

use super::machines::{opens, refusal};
use super::{Driver, Endpoint, MACHINE, Next};
use crate::error::Error;
use crate::label::{CARRIED, CROSS};

/// A machine and its connections with the network.
#[derive(Debug)]
pub(crate) struct Resident {
    pub(crate) machine: NodeMachine,
    armed: Time,
    /// The outlets of a middle, by gate.
    outlets: Vec<Option<Outlet>>,
    /// The ends that an app owns, by port.
    ports: Vec<u32>,
}

/// A path out of a middle: the label of its datagrams, and their first link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outlet {
    pub(crate) label: u32,
    pub(crate) first: u32,
    /// The fingerprint of their flow.
    pub(crate) fingerprint: u32,
}

/// A gate by which datagrams enter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    machine: u32,
    gate: Gate,
    /// The next step of their route; [`Next::Nowhere`] if it ends here.
    then: Next,
}

/// The app of an end, and the bytes between the app and the connection.
#[derive(Debug)]
pub(crate) struct Hosted {
    machine: u32,
    port: MessagePort,
    outgoing: Outgoing,
    incoming: Incoming,
}

impl Hosted {
    /// Writes the payload of a packet that the connection has just built.
    pub(super) fn write(&mut self, packet: &Packet, header: u16, out: &mut [u8]) {
        let (front, back) = self.outgoing.payload(packet, header).unwrap_or_default();
        let (start, rest) = out.split_at_mut(front.len().min(out.len()));
        start.copy_from_slice(&front[..start.len()]);
        rest.iter_mut().zip(back).for_each(|(to, byte)| *to = *byte);
    }

    /// Takes in the payload of a packet that the connection has handled.
    ///
    /// `before` holds the connection's expected segment and its window before that packet.
    pub(super) fn note(&mut self, packet: &Packet, before: (u32, u32), machine: &Connection, payload: &[u8]) {
        self.incoming.insert(packet, before.0, machine.expected(), before.1, payload);
        self.outgoing.acknowledge(machine.una());
    }
}

impl Driver {
    pub(crate) fn add(&mut self, machine: NodeMachine) -> u32 {
        self.residents.push(Resident { machine, armed: Time::NEVER, outlets: Vec::new(), ports: Vec::new() });
        let at = self.residents.len() - 1;
        self.arm_resident(at);
        at as u32
    }

    /// Adds a gate of a machine, and the next step of a route; [`Next::Nowhere`] if the route ends
    /// here.
    pub(crate) fn add_opening(&mut self, machine: u32, gate: Gate, then: Next) -> Next {
        self.openings.push(Opening { machine, gate, then });
        Next::Gate(self.openings.len() as u32 - 1)
    }

    pub(crate) fn set_outlet(&mut self, machine: u32, gate: Gate, outlet: Outlet) {
        let outlets = &mut self.residents[machine as usize].outlets;
        outlets.resize(outlets.len().max(gate.0 as usize + 1), None);
        outlets[gate.0 as usize] = Some(outlet);
    }

    /// Gives an end to an app. Returns the app's port.
    pub(crate) fn attach(&mut self, end: u32, machine: u32) -> MessagePort {
        let ports = &mut self.residents[machine as usize].ports;
        let port = MessagePort(ports.len() as u32);
        ports.push(end);
        let (outgoing, incoming) = (Outgoing::new(), Incoming::new());
        self.ends[end as usize].hosted = Some(Box::new(Hosted { machine, port, outgoing, incoming }));
        port
    }

    /// Calls `work` with a machine, then sends the machine's packets.
    pub(crate) fn with_machine(
        &mut self,
        at: u32,
        now: Time,
        work: impl FnOnce(&mut dyn Any),
    ) -> Result<(), Error> {
        work(self.residents[at as usize].machine.as_any_mut());
        self.send_resident(at as usize, now, &[])
    }

    fn arm_resident(&mut self, at: usize) {
        let Resident { machine, armed, .. } = &mut self.residents[at];
        let due = machine.poll_timeout();
        if due < *armed {
            *armed = due;
            self.set_timer(due, at, MACHINE);
        }
    }

    /// Handles a machine's timer, due at `due`.
    pub(super) fn tick_resident(&mut self, at: usize, due: Time, now: Time) -> Result<(), Error> {
        let Resident { machine, armed, ports, .. } = &mut self.residents[at];
        if *armed != due {
            return Ok(());
        }
        *armed = Time::NEVER;
        if machine.poll_timeout() <= now {
            self.timeouts.note(now.saturating_sub(due), 1);
            match machine {
                NodeMachine::Middle(middle) => middle.handle_timeout(now),
                NodeMachine::App(app) => {
                    let mut lent = Lent { ends: &mut self.ends, ports, used: Vec::new() };
                    app.handle_timeout(now, &mut lent);
                    let used = lent.used;
                    used.into_iter().try_for_each(|end| self.pump(end as usize, now))?;
                }
            }
        }
        self.send_resident(at, now, &[])
    }

    /// Sends a machine's packets, and sets its timer.
    ///
    /// New data of a middle take their payload from `datagram`.
    fn send_resident(&mut self, at: usize, now: Time, datagram: &[u8]) -> Result<(), Error> {
        if matches!(self.residents[at].machine, NodeMachine::App(_)) {
            return self.serve_ports(at, now, None);
        }
        loop {
            let Resident { machine: NodeMachine::Middle(middle), outlets, .. } = &mut self.residents[at]
            else {
                return Ok(());
            };
            let mut out = Packet::default();
            let Some(gate) = middle.poll_transmit(now, &mut out, &mut self.sack) else { break };
            let mut sack = std::mem::take(&mut self.sack);
            if out.flags.has(Flags::DATA) {
                sack.clear(); // There is no room for ranges between header and payload.
            }
            let Some(Outlet { label, first, fingerprint }) = outlets.get(gate.0 as usize).copied().flatten()
            else {
                continue;
            };
            out.flow = label;
            if self.apart && opens(&out) {
                out.ack = fingerprint;
            }
            let len = usize::from(out.size).saturating_sub(acp::OVERHEAD);
            let handle = self.buffers.alloc(out, len);
            let bytes = self.buffers.bytes_mut(handle);
            let tail = if out.flags.has(Flags::DATA) { len.min(datagram.len()) } else { 0 };
            bytes[..len - tail].fill(0);
            bytes[len - tail..].copy_from_slice(&datagram[datagram.len() - tail..]);
            if acp::encode(&out, &sack, bytes).is_err() {
                self.buffers.free(handle);
                return Err(Error::NoRoom { size: out.size, need: acp::OVERHEAD + acp::LEN });
            }
            self.counters.created += 1;
            self.begin(first, now, handle);
        }
        self.arm_resident(at);
        Ok(())
    }

    /// Handles a datagram at a gate of a middle. Its header is rewritten in place.
    pub(super) fn cross(
        &mut self,
        opening: u32,
        now: Time,
        datagram: &mut [u8],
        place: Option<(u32, usize)>,
    ) -> Result<(), Error> {
        let Ok(acp::Decoded { mut packet, mut sack, .. }) = acp::decode(datagram) else {
            self.counters.senseless += 1;
            return Ok(());
        };
        let Opening { machine: at, gate, then } = self.openings[opening as usize];
        let (label, toll, size) = (packet.flow, packet.toll, packet.size);
        let crosses = label & CROSS != 0;
        // Payload, and kernels' packets, follow the ranges directly.
        let room =
            |data: bool, came: usize| if data || label & CARRIED != 0 { came } else { SackRanges::MAX };
        let room = room(packet.flags.has(Flags::DATA), sack.as_slice().len());
        let own = self.buffers.own(label);
        packet.flow = if crosses { label ^ CROSS } else { (own & !CARRIED) >> 1 };
        let Resident { machine: NodeMachine::Middle(middle), outlets, .. } = &mut self.residents[at as usize]
        else {
            unreachable!("an app has no gates")
        };
        let back = outlets.get(gate.0 as usize).copied().flatten();
        if let Some(back) = back.filter(|back| self.apart && opens(&packet) && packet.ack != back.fingerprint)
        {
            self.counters.absorbed += 1;
            return self.turn_away(back, now, &packet);
        }
        let passed = middle.pass(now, gate, &mut packet, &mut sack);
        let outlet = match passed {
            Passed::By(gate) if !crosses => outlets.get(gate.0 as usize).copied().flatten(),
            _ => None,
        };
        (packet.flow, packet.size) = (outlet.map_or(label, |outlet| outlet.label), size);
        let encoding = self.buffers.encoding_of(own);
        if packet.toll != toll && encoding != Encoding::Acp && !crosses {
            encoding.quantise_sender(&mut packet.toll, u32::from(size));
        }
        // The datagram was decoded, so it has a header.
        let _ = acp::rewrite(datagram, &packet, &sack, room);
        match (passed, outlet) {
            (Passed::Onward, _) if then != Next::Nowhere => self.go_on(then, packet, now, datagram, place)?,
            (_, Some(Outlet { first, .. })) => {
                let handle = self.hold(packet, datagram, place);
                self.begin(first, now, handle);
            }
            _ => self.counters.absorbed += 1,
        }
        self.send_resident(at as usize, now, datagram)
    }

    /// Refuses an opening by a process that runs another scenario file.
    fn turn_away(&mut self, back: Outlet, now: Time, opening: &Packet) -> Result<(), Error> {
        let size = (acp::OVERHEAD + acp::LEN) as u16;
        let packet = Packet { size, ..refusal(now, back.label, opening) };
        let handle = self.buffers.alloc(packet, acp::LEN);
        // `size` has room for a header.
        let _ = acp::encode(&packet, &SackRanges::EMPTY, self.buffers.bytes_mut(handle));
        self.counters.created += 1;
        self.begin(back.first, now, handle);
        Ok(())
    }

    /// Exchanges messages between an app and one of its ends, then serves the app's other ports.
    pub(super) fn serve(&mut self, at: usize, now: Time) -> Result<(), Error> {
        self.exchange(at, now)?;
        let Some(hosted) = &self.ends[at].hosted else { return Ok(()) };
        self.serve_ports(hosted.machine as usize, now, Some(at))
    }

    /// Serves the ports that an app names; the caller settles the end `but`.
    fn serve_ports(&mut self, app: usize, now: Time, but: Option<usize>) -> Result<(), Error> {
        loop {
            let Resident { machine: NodeMachine::App(machine), ports, .. } = &mut self.residents[app] else {
                return Ok(());
            };
            let Some(port) = machine.poll_port() else { break };
            let Some(&at) = ports.get(port.0 as usize) else { continue };
            self.exchange(at as usize, now)?;
            if but != Some(at as usize) {
                self.settle(at as usize, now)?;
            }
        }
        self.arm_resident(app);
        Ok(())
    }

    /// Delivers to an app at one of its ends, then takes and sends the app's messages for it.
    fn exchange(&mut self, at: usize, now: Time) -> Result<(), Error> {
        loop {
            let Endpoint { machine: Some(connection), hosted: Some(hosted), live: true, .. } =
                &mut self.ends[at]
            else {
                return Ok(());
            };
            let Hosted { machine, port, outgoing, incoming } = &mut **hosted;
            let NodeMachine::App(app) = &mut self.residents[*machine as usize].machine else {
                return Ok(());
            };
            app::deliver(&mut **app, now, *port, connection, |bytes| {
                let mut body = vec![0; bytes as usize];
                incoming.read(&mut body);
                body.into()
            });
            let mut more =
                app::refill(&mut **app, now, *port, connection, |message| outgoing.write(&message));
            while self.send_one(at, now, false, |_| true)? {
                more = true;
            }
            if !more {
                return Ok(());
            }
        }
    }
}

/// An app's connections during one call.
struct Lent<'a> {
    ends: &'a mut [Endpoint],
    ports: &'a [u32],
    /// The ends that the app used.
    used: Vec<u32>,
}

impl Connections for Lent<'_> {
    fn connection(&mut self, port: MessagePort) -> Option<&mut Connection> {
        let end = *self.ports.get(port.0 as usize)?;
        if !self.used.contains(&end) {
            self.used.push(end);
        }
        self.ends[end as usize].machine.as_mut()
    }
}
