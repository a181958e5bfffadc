//! A peer, a switch and members, with a channel between each end and the switch.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tollway_law::Time;
use tollway_law::sender::{AnySender, NewRenoConfig};
use tollway_proto::route::{Candidate, Policy};
use tollway_proto::switch::{self, Session, Switch};
use tollway_proto::transport::{Config, Connection, Event, State};
use tollway_proto::{Flags, Gate, Middle, Packet, Passed, SackRanges};

/// The faults of all channels, each a share of the packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub loss: f64,
    pub duplicate: f64,
    /// Delayed by up to 30 ms more.
    pub reorder: f64,
}

/// A frame: its source (0 is the peer, member k is k + 1, [`LIFE`] more for each process of it
/// before), and its place among that source's.
pub(crate) type Frame = (u32, u32);

/// The distance between the numbers of a source's processes.
pub(crate) const LIFE: u32 = 1 << 8;

/// An end of a connection, which knows what it got.
pub(crate) struct End {
    pub connection: Connection,
    /// Packets are lost at both its doors, and its timers don't run.
    pub hung: bool,
    /// The frame that came under each number; `None` is a null segment.
    got: HashMap<u32, Option<Frame>>,
    /// Processes before this one.
    pub life: u32,
    /// The number of frames it has sent.
    sent: u32,
    next: u32,
    /// In the order of delivery.
    pub delivered: Vec<Frame>,
    pub events: Vec<Event>,
}

/// Sees a packet of a side, and the side that it leaves to and as what, if it does.
pub(crate) type Watch = Box<dyn FnMut(usize, &Packet, Option<(u32, &Packet)>)>;

/// All of it. Side 0 is the peer, side k + 1 is member k.
pub(crate) struct Net {
    pub ends: Vec<End>,
    pub switch: Switch,
    pub now: Time,
    /// One way between each end and the switch.
    pub latency: Vec<Time>,
    pub faults: Faults,
    /// Sees each packet that comes to the switch, and as what it leaves in place.
    pub watch: Watch,
    /// Checks at each step the promises that hold without failures.
    pub strict: bool,
    pub config: Arc<Config>,
    pub law: fn() -> AnySender,
    /// The range of the `due` that channels write into tolls of data; they write none if it is
    /// zero.
    pub due: (f64, f64),
    opener: Opener,
    policy: Policy,
    session: switch::Config,
    /// By source: the peer's frames that members have, the members' that the peer has received.
    there: BTreeMap<u32, There>,
    /// By instant and order.
    flying: BTreeMap<(Time, u64), (Way, Packet, SackRanges)>,
    order: u64,
    rng: Pcg64Mcg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opener {
    Peer,
    Members,
}

/// The frames of a source that are at the other side: all before one, and others.
#[derive(Debug, Default)]
struct There {
    contiguous: u32,
    beyond: BTreeSet<u32>,
}

impl There {
    fn insert(&mut self, frame: u32) {
        if frame >= self.contiguous {
            self.beyond.insert(frame);
        }
    }

    /// The frames before `end` that are not there.
    fn lacking(&self, end: u32) -> u32 {
        end.saturating_sub(self.contiguous + self.beyond.range(..end).count() as u32)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    ToSwitch(usize),
    ToEnd(usize),
}

impl End {
    fn new(connection: Connection, first: u32) -> End {
        End {
            connection,
            hung: false,
            life: 0,
            got: HashMap::new(),
            sent: 0,
            next: first,
            delivered: Vec::new(),
            events: Vec::new(),
        }
    }
}

/// Says whether there are ranges, as engines do.
pub(crate) fn mark(packet: &mut Packet, sack: &SackRanges) {
    packet.flags = Flags(packet.flags.0 & !Flags::SACK.0);
    if !sack.is_empty() {
        packet.flags.set(Flags::SACK);
    }
}

pub(crate) fn newreno() -> AnySender {
    NewRenoConfig::default().build().into()
}

pub(crate) fn candidates(count: usize) -> Vec<Candidate> {
    (0..count as u64)
        .map(|name| Candidate { name, up: true, window: 1 << 20, ..Candidate::default() })
        .collect()
}

impl Net {
    pub(crate) fn new(seed: u64, members: usize, opener: Opener) -> Net {
        let transport = Config { send_buffer: 256, ..Config::default() };
        Net::with(seed, members, opener, Policy::RoundRobin, transport, switch::Config::default(), newreno)
    }

    pub(crate) fn with(
        seed: u64,
        members: usize,
        opener: Opener,
        policy: Policy,
        transport: Config,
        session: switch::Config,
        law: fn() -> AnySender,
    ) -> Net {
        let config = Arc::new(transport);
        let session = switch::Config {
            handshake: config.handshake,
            initial_segment: config.initial_segment,
            header: config.header,
            ack_size: config.ack_size,
            ..session
        };
        let mut net = Net {
            ends: Vec::new(),
            switch: Switch::new(),
            now: Time::from_secs(1),
            latency: vec![Time::from_millis(5); members + 1],
            faults: Faults::default(),
            watch: Box::new(|_, _, _| {}),
            strict: true,
            config,
            law,
            due: (0.0, 0.0),
            opener,
            policy,
            session,
            there: BTreeMap::new(),
            flying: BTreeMap::new(),
            order: 0,
            rng: Pcg64Mcg::seed_from_u64(seed),
        };
        net.ends = (0..=members).map(|side| net.end(side)).collect();
        net.kill_switch();
        net
    }

    /// The switch's process ends, and another begins.
    pub(crate) fn kill_switch(&mut self) {
        self.switch = Switch::new();
        let members = candidates(self.ends.len() - 1);
        assert_eq!(self.switch.add_session(&self.session, self.policy.module(0), members), Gate(0));
    }

    /// Another process is at each side.
    pub(crate) fn begin_anew(&mut self) {
        (0..self.ends.len()).for_each(|side| self.replace(side));
        self.open();
    }

    pub(crate) fn first(&self) -> u32 {
        self.config.initial_segment.wrapping_add(u32::from(self.config.handshake))
    }

    fn end(&self, side: usize) -> End {
        let make = if self.opens(side) { Connection::client } else { Connection::server };
        End::new(make(&self.config, (self.law)(), 7), self.first())
    }

    pub(crate) fn session(&self) -> &Session {
        self.switch.session(0)
    }

    pub(crate) fn open(&mut self) {
        (0..self.ends.len()).for_each(|side| self.open_end(side));
    }

    fn opens(&self, side: usize) -> bool {
        (side == 0) == (self.opener == Opener::Peer)
    }

    fn open_end(&mut self, side: usize) {
        if self.opens(side) {
            self.ends[side].connection.open(self.now);
        }
    }

    pub(crate) fn write(&mut self, side: usize, frames: u32, bytes: u64) {
        (0..frames).for_each(|_| self.ends[side].connection.write_frame(bytes));
    }

    /// A member joins the open session.
    pub(crate) fn add_member(&mut self, latency: Time) {
        let side = self.ends.len();
        self.ends.push(self.end(side));
        self.latency.push(latency);
        let candidate = candidates(side)[side - 1];
        assert_eq!(self.switch.add_member(0, candidate), side - 1);
        self.switch.set_member(self.now, 0, side - 1, true);
        self.flush_switch();
    }

    /// Drains member `k`, or ends that.
    pub(crate) fn drain_member(&mut self, k: usize, drain: bool) {
        self.switch.drain_member(self.now, 0, k, drain);
        self.flush_switch();
    }

    /// Member `k`'s process ends, and another begins.
    pub(crate) fn restart(&mut self, k: usize) {
        self.replace(k + 1);
        // The new process sends nothing at the instant of the old one's last packet.
        self.now += Time::from_micros(1);
        self.open_end(k + 1);
    }

    /// Another process is at a side.
    fn replace(&mut self, side: usize) {
        let mut fresh = self.end(side);
        fresh.delivered = std::mem::take(&mut self.ends[side].delivered);
        fresh.life = self.ends[side].life + 1;
        self.ends[side] = fresh;
    }

    fn chance(&mut self, part: f64) -> bool {
        part > 0.0 && self.rng.random_bool(part)
    }

    fn launch(&mut self, way: Way, packet: Packet, sack: SackRanges) {
        let (Way::ToSwitch(side) | Way::ToEnd(side)) = way;
        if self.chance(self.faults.loss) {
            return;
        }
        let copies = 1 + u32::from(self.chance(self.faults.duplicate));
        for _ in 0..copies {
            let mut at = self.now + self.latency[side];
            if self.chance(self.faults.reorder) {
                at += Time(self.rng.random_range(0..30_000_000));
            }
            self.order += 1;
            self.flying.insert((at, self.order), (way, packet, sack));
        }
    }

    fn flush(&mut self) {
        for side in 0..self.ends.len() {
            if self.ends[side].hung {
                continue;
            }
            let (mut packet, mut sack) = (Packet::default(), SackRanges::EMPTY);
            let mut burst = 0;
            while self.ends[side].connection.poll_transmit(self.now, &mut packet, &mut sack) {
                burst += 1;
                assert!(burst < 10_000, "an end that never stops sending");
                if packet.flags.has(Flags::DATA) {
                    // The engine's fields pass untouched: which frame it is.
                    packet.cursor = packet.seq.wrapping_sub(self.first());
                    let end = &mut self.ends[side];
                    packet.entered = tollway_proto::Stamp(side as u32 + end.life * LIFE);
                    end.sent = end.sent.max(packet.cursor + 1);
                    if self.due.1 > 0.0 && packet.flags.has(Flags::TOLLED) {
                        packet.toll.due = self.rng.random_range(self.due.0..self.due.1);
                    }
                }
                self.launch(Way::ToSwitch(side), packet, sack);
            }
            let end = &mut self.ends[side];
            while let Some(event) = end.connection.poll_event() {
                end.events.push(event);
            }
        }
    }

    /// A packet appears at the switch, from `side`.
    pub(crate) fn at_switch(&mut self, side: usize, mut packet: Packet, mut sack: SackRanges) {
        let came = packet;
        match self.switch.pass(self.now, Gate(side as u32), &mut packet, &mut sack) {
            Passed::By(gate) => {
                (self.watch)(side, &came, Some((gate.0, &packet)));
                self.depart(gate, packet, sack);
            }
            Passed::Absorbed => (self.watch)(side, &came, None),
            Passed::Onward => panic!("a gate that ends a route"),
        }
        self.flush_switch();
    }

    fn flush_switch(&mut self) {
        let mut burst = 0;
        let (mut packet, mut sack) = (Packet::default(), SackRanges::EMPTY);
        while let Some(gate) = self.switch.poll_transmit(self.now, &mut packet, &mut sack) {
            burst += 1;
            assert!(burst < 10_000, "a switch that never stops sending");
            packet.entered = tollway_proto::Stamp(u32::MAX);
            self.depart(gate, packet, std::mem::take(&mut sack));
        }
        let (inbound, outbound) = self.session().outstanding();
        assert!(inbound.max(outbound) <= self.session.ring);
    }

    fn depart(&mut self, gate: Gate, mut packet: Packet, sack: SackRanges) {
        mark(&mut packet, &sack);
        self.launch(Way::ToEnd(gate.0 as usize), packet, sack);
    }

    fn at_end(&mut self, side: usize, packet: Packet, sack: SackRanges) {
        let opens = packet.flags.has(Flags::SYN) && !packet.flags.has(Flags::ACK);
        if opens && self.ends[side].events.contains(&Event::Closed) {
            self.replace(side);
        }
        let (strict, first) = (self.strict, self.first());
        let end = &mut self.ends[side];
        if end.hung {
            return;
        }
        let open = end.connection.state() == State::Established;
        // Packets under way to the process before may acknowledge more.
        if packet.flags.has(Flags::ACK) && !packet.flags.has(Flags::RST) && open && end.life == 0 {
            let acked = packet.ack.wrapping_sub(first);
            // The FIN counts as one.
            let acked = if (acked as i32) < 0 { 0 } else { acked.min(end.sent) };
            let lost = if strict || side > 0 { 0 } else { self.switch.session(0).stats().lost };
            let lacking = self.there.entry(side as u32).or_default().lacking(acked);
            assert!(u64::from(lacking) <= lost, "{acked} of {side} acknowledged, {lacking} are not there");
        }
        if packet.flags.has(Flags::DATA) && end.connection.awaits(&packet) {
            let null = packet.entered == tollway_proto::Stamp(u32::MAX);
            let frame = (!null).then_some((packet.entered.0, packet.cursor));
            let known = *end.got.entry(packet.seq).or_insert(frame);
            assert!(!strict || known == frame, "number {} changed", packet.seq);
            // A packet of a failed member counts once another has received it.
            if let Some((source, place)) = frame.filter(|_| side == 0 || !strict) {
                self.there.entry(source).or_default().insert(place);
            }
        }
        end.connection.handle_packet(self.now, &packet, &sack);
        // Numbers to a process that begins anew are elsewhere.
        if packet.flags.has(Flags::SYN) && end.got.is_empty() {
            end.next = end.connection.expected();
        }
        while (end.connection.expected().wrapping_sub(end.next) as i32) > 0 {
            if let Some(Some(frame)) = end.got.remove(&end.next) {
                end.delivered.push(frame);
                if side > 0 {
                    self.there.entry(frame.0).or_default().insert(frame.1);
                }
            }
            end.next = end.next.wrapping_add(1);
        }
    }

    /// Works off the next arrival or timer; returns false if there is none.
    pub(crate) fn step(&mut self) -> bool {
        self.flush();
        let arrival = self.flying.first_key_value().map(|(&(at, _), _)| at);
        let timers = self.ends.iter().filter(|end| !end.hung).map(|end| end.connection.poll_timeout());
        let ends = timers.min().unwrap_or(Time::NEVER);
        let timer = ends.min(self.switch.poll_timeout());
        let next = arrival.unwrap_or(Time::NEVER).min(timer);
        if next == Time::NEVER {
            return false;
        }
        self.now = self.now.max(next);
        match arrival {
            Some(at) if at <= timer => match self.flying.pop_first() {
                Some((_, (Way::ToSwitch(side), packet, sack))) => self.at_switch(side, packet, sack),
                Some((_, (Way::ToEnd(side), packet, sack))) => self.at_end(side, packet, sack),
                None => {}
            },
            _ => {
                let now = self.now;
                let awake = self.ends.iter_mut().filter(|end| !end.hung);
                awake.for_each(|end| end.connection.handle_timeout(now));
                if self.switch.poll_timeout() <= now {
                    self.switch.handle_timeout(now);
                    self.flush_switch();
                }
            }
        }
        self.flush();
        true
    }

    /// Steps for `span`, or until nothing more happens; returns true in that case.
    pub(crate) fn drive(&mut self, span: Time) -> bool {
        let end = self.now + span;
        let mut steps = 0u64;
        while self.now < end {
            steps += 1;
            assert!(steps < 20_000_000, "it does not get on");
            if !self.step() {
                return true;
            }
        }
        false
    }

    /// Steps until `done`, for `span` at most.
    #[track_caller]
    pub(crate) fn until(&mut self, span: Time, done: impl Fn(&Net) -> bool) {
        let (end, mut steps) = (self.now + span, 0u64);
        while !done(self) {
            steps += 1;
            let on = self.now < end && steps < 1_000_000 && self.step();
            assert!(on, "not done after {steps} steps at {}: {:?}", self.now, self.states());
        }
    }

    /// The states of the ends and of the session.
    fn states(&self) -> Vec<String> {
        let end = |end: &End| {
            let (state, una, expected) =
                (end.connection.state(), end.connection.una(), end.connection.expected());
            let (out, unsent) = (end.connection.outstanding(), end.connection.unsent());
            format!(
                "{state:?} hung {} life {} una {una} expects {expected} out {out} unsent {unsent}",
                end.hung, end.life
            )
        };
        let session = self.session();
        let members = session.members().map(|member| format!("{member:?}"));
        let own = format!("{:?} {:?}", session.stats(), session.outstanding());
        self.ends.iter().map(end).chain(members).chain([own]).collect()
    }

    /// Every frame from `source` is delivered once, in order at each sink. Returns each sink's
    /// number.
    pub(crate) fn check_delivery(&self, source: u32, frames: u32) -> Vec<usize> {
        let mut all = Vec::new();
        let mut counts = Vec::new();
        for end in &self.ends {
            let own: Vec<u32> = end.delivered.iter().filter(|f| f.0 == source).map(|f| f.1).collect();
            assert!(own.windows(2).all(|pair| pair[0] < pair[1]), "out of order: {own:?}");
            counts.push(own.len());
            all.extend(own);
        }
        all.sort_unstable();
        assert_eq!(all, (0..frames).collect::<Vec<_>>(), "every frame once");
        counts
    }
}
