//! Connections that ask their host before they send: gates at endpoints and sources, and the shapers behind them.

use tollway_proto::shaper::{Action, ClassId, MemberId, Shaper};

use super::*;

/// Names a shaper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShaperId(pub u32);

/// All shapers of a network, and who is behind which.
#[derive(Debug, Default)]
pub(super) struct Gates {
    pub(super) hosts: Vec<Host>,
    gates: Vec<Gate>,
    free: Vec<u32>,
}

/// A shaper and, by member, whom it lets send.
#[derive(Debug)]
pub(super) struct Host {
    shaper: Shaper,
    subjects: Vec<Subject>,
    /// Its pending event, as the scheduler has it.
    armed: Time,
}

#[derive(Clone, Copy, Debug)]
struct Gate {
    host: u32,
    class: ClassId,
    /// `None` until it opens.
    member: Option<MemberId>,
    /// Packets that may wait, of a source.
    room: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Endpoint(u32),
    Source(u32),
}

/// What leaves when an endpoint is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Let {
    /// Anything.
    All,
    /// Nothing with data.
    Control,
    /// Anything, data being policed.
    Policed,
}

impl<M: Machine> Network<M> {
    /// Adds a host's shaper. Shapers come before the first [`run_until`](Network::run_until).
    pub fn add_shaper(&mut self, shaper: Shaper) -> ShaperId {
        assert!(!self.sealed, "shapers are added before the first run");
        self.gates.hosts.push(Host { shaper, subjects: Vec::new(), armed: Time::NEVER });
        ShaperId(self.gates.hosts.len() as u32 - 1)
    }

    /// Has the client of a flow that has not opened yet ask `shaper` before it sends data.
    pub fn gate_flow(&mut self, flow: FlowId, shaper: ShaperId, class: ClassId) {
        let gate = self.gates.add(Gate { host: shaper.0, class, member: None, room: 0 });
        self.endpoints[flow.0 as usize * 2].gate = gate;
    }

    /// Has a source of cross-traffic ask `shaper`, where at most `room` packets of it wait.
    pub fn gate_source(&mut self, source: SourceId, shaper: ShaperId, class: ClassId, room: u32) {
        let gate = self.gates.add(Gate { host: shaper.0, class, member: None, room });
        self.sources[source.0 as usize].gate = gate;
    }

    /// A shaper.
    pub fn shaper(&self, id: ShaperId) -> &Shaper {
        &self.gates.hosts[id.0 as usize].shaper
    }

    /// Works on a shaper at the present instant, then lets go what may leave.
    pub fn with_shaper<R>(&mut self, id: ShaperId, work: impl FnOnce(&mut Shaper) -> R) -> R {
        self.seal();
        let answer = work(&mut self.gates.hosts[id.0 as usize].shaper);
        self.serve(id.0);
        answer
    }

    pub(super) fn shaper_entity(&self, at: usize) -> u32 {
        (self.links.len() + self.mediums.len() + self.sources.len() + at) as u32
    }

    /// A gated endpoint opens: it comes under its policy.
    #[cold]
    pub(super) fn admit(&mut self, at: usize) {
        let gate = self.endpoints[at].gate;
        self.gates.enter(self.now, gate, Subject::Endpoint(at as u32));
    }

    /// A gated endpoint is done or gone.
    #[cold]
    pub(super) fn dismiss(&mut self, at: usize) {
        let gate = std::mem::replace(&mut self.endpoints[at].gate, OPEN);
        let Gate { host, member, .. } = self.gates.gates[gate as usize];
        self.gates.free.push(gate);
        if let Some(member) = member {
            self.gates.hosts[host as usize].shaper.exit(self.now, member);
            // Its tokens may be what others wait for.
            self.serve(host);
        }
    }

    /// Sends what a gated endpoint may send; what happened to it is a trigger for all behind the same shaper.
    #[cold]
    pub(super) fn send_gated(&mut self, at: usize) {
        let Gate { host, member, .. } = self.gates.gates[self.endpoints[at].gate as usize];
        let Some(member) = member else {
            while self.send_one(at, Let::All) {}
            return;
        };
        self.ask(at, host, member);
        self.serve(host);
    }

    /// Asks an endpoint what it would send, and sends what needs no turn.
    fn ask(&mut self, at: usize, host: u32, member: MemberId) {
        let now = self.now;
        let shaper = &mut self.gates.hosts[host as usize].shaper;
        let machine = &mut self.endpoints[at].machine;
        shaper.set_rtt(member, machine.round_trips());
        if let Some(segments) = shaper.increase(member) {
            machine.set_increase(segments);
        }
        match shaper.action(member) {
            Some(Action::Shape) => {}
            Some(Action::Mark | Action::Drop) => {
                shaper.withdraw(member);
                while self.send_one(at, Let::Policed) {}
                return;
            }
            None => {
                shaper.withdraw(member);
                while self.send_one(at, Let::All) {}
                return;
            }
        }
        loop {
            let size = self.endpoints[at].machine.poll_size(now);
            let shaper = &mut self.gates.hosts[host as usize].shaper;
            match size {
                Some(size) => {
                    shaper.want(now, member, size);
                    while self.send_one(at, Let::Control) {}
                    return;
                }
                None => {
                    shaper.withdraw(member);
                    if !self.send_one(at, Let::All) {
                        return;
                    }
                }
            }
        }
    }

    /// Lets everybody behind a shaper send whose turn has come.
    fn serve(&mut self, host: u32) {
        let now = self.now;
        while let Some(member) = self.gates.hosts[host as usize].shaper.next(now) {
            match self.gates.hosts[host as usize].subjects[member.0 as usize] {
                Subject::Endpoint(at) => self.release(at as usize, host, member),
                Subject::Source(source) => self.release_source(source as usize, host, member),
            }
        }
        let Host { shaper, armed, .. } = &mut self.gates.hosts[host as usize];
        let next = shaper.poll_timeout();
        if next != *armed {
            *armed = next;
            let entity = self.shaper_entity(host as usize);
            self.scheduler.set(entity, next);
        }
    }

    /// An endpoint's turn.
    fn release(&mut self, at: usize, host: u32, member: MemberId) {
        let now = self.now;
        let size = self.endpoints[at].machine.poll_size(now);
        let shaper = &mut self.gates.hosts[host as usize].shaper;
        match size {
            Some(size) if shaper.action(member) == Some(Action::Shape) => {
                if !shaper.grant(now, member, size) {
                    return;
                }
                self.send_one(at, Let::All);
            }
            _ => shaper.withdraw(member),
        }
        self.ask(at, host, member);
        let endpoint = &self.endpoints[at];
        let deadline = endpoint.deadline();
        if deadline < endpoint.armed {
            self.arm(at, deadline);
        }
    }

    /// The turn of a source whose packets wait.
    fn release_source(&mut self, source: usize, host: u32, member: MemberId) {
        let size = self.sources[source].spec.size;
        let shaper = &mut self.gates.hosts[host as usize].shaper;
        let marked = match shaper.action(member) {
            Some(Action::Shape) | None => {
                if !shaper.grant(self.now, member, size) {
                    return;
                }
                false
            }
            // It had waited under another policy.
            Some(_) => shaper.police(self.now, member, size),
        };
        match shaper.dequeue(member) {
            true => shaper.want(self.now, member, size),
            false => shaper.withdraw(member),
        }
        self.launch_plain(source, marked);
    }

    /// A gated source has a packet.
    #[cold]
    pub(super) fn emit_gated(&mut self, source: usize) {
        let gate = self.sources[source].gate;
        let size = self.sources[source].spec.size;
        if self.gates.gates[gate as usize].member.is_none() {
            self.gates.enter(self.now, gate, Subject::Source(source as u32));
        }
        let Gate { host, member, room, .. } = self.gates.gates[gate as usize];
        let Some(member) = member else { return };
        let shaper = &mut self.gates.hosts[host as usize].shaper;
        match shaper.action(member) {
            Some(Action::Shape) => {
                shaper.enqueue(self.now, member, size, room);
            }
            Some(action) => {
                let conforms = shaper.police(self.now, member, size);
                if conforms || action == Action::Mark {
                    self.launch_plain(source, conforms && action == Action::Mark);
                }
            }
            None => self.launch_plain(source, false),
        }
        self.serve(host);
    }

    /// A shaper's timer.
    pub(super) fn tick_shaper(&mut self, host: usize) {
        self.gates.hosts[host].shaper.handle_timeout(self.now);
        self.serve(host as u32);
    }

    /// Sends one packet of an endpoint, as [`send_all`](Network::send_all) does each; answers whether there was one.
    fn send_one(&mut self, at: usize, what: Let) -> bool {
        let now = self.now;
        let endpoint = &mut self.endpoints[at];
        let packet = self.slab.draft();
        let sent = match what {
            Let::Control => endpoint.machine.poll_control(now, packet, &mut self.sack_scratch),
            Let::All | Let::Policed => endpoint.machine.poll_transmit(now, packet, &mut self.sack_scratch),
        };
        if !sent {
            return false;
        }
        if what == Let::Policed && packet.flags.has(Flags::DATA) {
            let Gate { host, member, .. } = self.gates.gates[endpoint.gate as usize];
            let shaper = &mut self.gates.hosts[host as usize].shaper;
            let Some(member) = member else { return true };
            let marks = shaper.action(member) == Some(Action::Mark);
            match shaper.police(now, member, packet.size) {
                true if marks => packet.mark_in_profile(),
                false if !marks => {
                    self.sack_scratch.clear();
                    return true;
                }
                _ => {}
            }
        }
        self.launch(at);
        true
    }
}

impl Gates {
    fn add(&mut self, gate: Gate) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.gates[at as usize] = gate;
                at
            }
            None => {
                self.gates.push(gate);
                self.gates.len() as u32 - 1
            }
        }
    }

    fn enter(&mut self, now: Time, gate: u32, subject: Subject) {
        let gate = &mut self.gates[gate as usize];
        let host = &mut self.hosts[gate.host as usize];
        let member = host.shaper.enter(now, gate.class);
        gate.member = Some(member);
        host.subjects.resize(host.subjects.len().max(member.0 as usize + 1), subject);
        host.subjects[member.0 as usize] = subject;
    }
}

/// An endpoint or a source that asks nobody.
pub(crate) const OPEN: u32 = u32::MAX;
