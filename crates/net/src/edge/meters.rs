//! Meters of XCP's and FCP's senders, whose packets cross both directions of an interface.
//!
//! Senders are metered in one direction, where their packets enter the network; acknowledgements cross
//! the other. So both share the meters: [`proto::Meters`](Meters), as on the links of a scenario. A
//! connection is known from the packets
//! that open it, since a meter must know its first window. Tolls of others are not believed: their
//! packets are ordinary traffic.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollway_law::meter::{Duty, MeterConfig, Offence};
use tollway_law::{Budget, Time};
use tollway_proto::encoding::split::Split;
use tollway_proto::encoding::tcp_option::{Observed, Returned, decode_price, encode_price};
use tollway_proto::{Flags, Meters, Middle, Packet, Passed, SackRanges, Stamp, WireTimes};

use crate::sys::ip::{self, FiveTuple, Header};

/// The meters of an interface, as one of its directions sees them.
#[derive(Clone, Debug)]
pub struct EdgeMeters {
    posts: Arc<Mutex<Posts>>,
    /// True in the direction of acknowledgements.
    answers: bool,
}

/// The findings of an interface's meters.
#[derive(Clone, Debug, Default)]
pub struct MeterMoment {
    /// Connections seen with tolls.
    pub seen: u64,
    /// Accusations.
    pub accused: u64,
    /// The accused, at most 100.
    pub held: Vec<Held>,
}

/// A connection or host that its meter holds.
#[derive(Clone, Debug)]
pub struct Held {
    /// Its addresses and ports, or its address.
    pub of: String,
    /// The offence.
    pub offence: Offence,
    /// Packets dropped since.
    pub dropped: u64,
}

/// The treatment of a packet that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Metered {
    /// It goes on, maybe with a corrected toll.
    Passes,
    /// Its toll is not believed.
    Ordinary,
    /// It exceeds what its sender may send.
    Dropped,
}

#[derive(Debug)]
struct Posts {
    meters: Meters,
    /// The budget of each host under FCP; `None` under XCP.
    budget: Option<Budget>,
    /// The post of XCP's windows, or of FCP's payments.
    common: u32,
    /// The post of each host's budget.
    hosts: HashMap<IpAddr, u32>,
    /// Recent connections and older ones, by their data.
    recent: HashMap<FiveTuple, Known>,
    older: HashMap<FiveTuple, Known>,
    /// Numbers of connections that are no longer used, and the first that never was.
    free: Vec<u32>,
    next: u32,
}

/// A connection.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Its number at the meters.
    number: u32,
    /// Longest segment of both ends, without headers.
    segment: u16,
    /// The post of its host, once it has sent a toll.
    post: Option<u32>,
    /// The round trip that its last toll stated, s.
    rtt: f32,
}

impl EdgeMeters {
    /// Meters of XCP's senders, or with a budget of each host, in $/s, of FCP's.
    pub fn new(budget: Option<Budget>) -> EdgeMeters {
        let mut meters = Meters::default();
        let duty = if budget.is_some() { Duty::Balance } else { Duty::Windows };
        let common = meters.add_post(MeterConfig::default(), duty);
        let posts = Posts {
            meters,
            budget,
            common,
            hosts: HashMap::new(),
            recent: HashMap::new(),
            older: HashMap::new(),
            free: Vec::new(),
            next: 0,
        };
        EdgeMeters { posts: Arc::new(Mutex::new(posts)), answers: false }
    }

    /// The same meters, in the direction of acknowledgements.
    pub fn of_answers(&self) -> EdgeMeters {
        EdgeMeters { answers: true, ..self.clone() }
    }

    /// The findings so far.
    pub fn moment(&self) -> MeterMoment {
        let posts = self.posts();
        let (seen, accused) = posts.meters.counts();
        let mut held = Vec::new();
        let mut accuse = |of: String, offence, dropped| {
            if held.len() < LISTED {
                held.push(Held { of, offence, dropped });
            }
        };
        for (flow, known) in posts.recent.iter().chain(&posts.older) {
            if let Some(meter) = posts.meters.of(known.number)
                && let Some(found) = meter.accusation()
            {
                accuse(flow.to_string(), found.offence, meter.dropped());
            }
        }
        for (host, &post) in &posts.hosts {
            if let Some(account) = posts.meters.account(post)
                && let Some(found) = account.accusation()
            {
                accuse(host.to_string(), found.offence, account.dropped());
            }
        }
        held.sort_by(|a, b| a.of.cmp(&b.of));
        MeterMoment { seen, accused, held }
    }

    /// Handles the IP packet in `bytes`, which arrives. Its toll may be corrected.
    pub(super) fn on_arrival(
        &self,
        now: Time,
        bytes: &mut [u8],
        header: &Header,
        packet: &mut Packet,
        unfinished: bool,
    ) -> Metered {
        let tolled = packet.flags.has(Flags::TOLLED) && !self.answers;
        if !tolled && !packet.flags.has(Flags::SYN) {
            return Metered::Passes;
        }
        let Some((_, observed)) = ip::observed(bytes, header) else { return Metered::Ordinary };
        let mut posts = self.posts();
        if packet.flags.has(Flags::SYN) {
            let data = if self.answers { header.flow.back() } else { header.flow };
            posts.open(data, observed.longest, ip::answers(bytes, header));
        }
        if !tolled {
            return Metered::Passes;
        }
        let Some(toll) = posts.on_data(now, header, &observed, packet, ip::sequence(bytes, header)) else {
            return Metered::Ordinary;
        };
        match toll {
            Ok(toll) if toll == packet.toll => Metered::Passes,
            Ok(toll) => {
                packet.toll = toll;
                ip::restate(bytes, header, &toll, unfinished);
                Metered::Passes
            }
            Err(()) => Metered::Dropped,
        }
    }

    /// Handles the IP packet in `bytes`, which leaves with `packet`'s toll. What it returns may be
    /// corrected.
    pub(super) fn on_departure(
        &self,
        now: Time,
        bytes: &mut [u8],
        header: &Header,
        packet: &Packet,
        unfinished: bool,
    ) {
        let Some((start, observed)) = ip::observed(bytes, header) else { return };
        let mut posts = self.posts();
        if !self.answers {
            if packet.flags.has(Flags::TOLLED) && posts.budget.is_some() {
                posts.on_exit(now, header, packet, ip::sequence(bytes, header));
            }
        } else if let Some((at, code)) = posts.on_ack(now, header, &observed) {
            ip::store_field(bytes, usize::from(header.ip_len), start + at, code, unfinished);
        }
    }

    fn posts(&self) -> MutexGuard<'_, Posts> {
        self.posts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Posts {
    /// Records a packet that opens a connection, or `answers` one, whose data are `flow`. Its sender
    /// accepts segments of `longest` bytes.
    fn open(&mut self, flow: FiveTuple, longest: Option<u16>, answers: bool) {
        let longest = longest.unwrap_or(LEAST_SEGMENT).max(LEAST_SEGMENT);
        match self.known(&flow) {
            // A held one stays so, also if it pretends to begin again.
            Some(known) if answers || self.is_held(known.number) => {
                let segment = known.segment.min(longest);
                self.recent.insert(flow, Known { segment, ..known });
            }
            old => {
                let number = old.map_or_else(|| self.number(), |known| known.number);
                // Forgets the state of the last connection with this number.
                self.meters.on_flow(number, 0);
                self.recent.insert(flow, Known { number, segment: longest, post: None, rtt: 0.0 });
            }
        }
        if self.recent.len() >= MOST_FLOWS {
            let gone = std::mem::replace(&mut self.older, std::mem::take(&mut self.recent));
            self.free.extend(gone.into_values().map(|known| known.number));
        }
    }

    fn number(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }

    fn is_held(&self, number: u32) -> bool {
        self.meters.of(number).is_some_and(|meter| meter.accusation().is_some())
    }

    /// A connection that was seen to open.
    fn known(&mut self, flow: &FiveTuple) -> Option<Known> {
        if let Some(known) = self.recent.get(flow) {
            return Some(*known);
        }
        let known = self.older.remove(flow)?;
        self.recent.insert(*flow, known);
        Some(known)
    }

    /// The toll of a data packet as its meter has it, or an error if the packet is dropped. `None` if
    /// it cannot be metered.
    fn on_data(
        &mut self,
        now: Time,
        header: &Header,
        observed: &Observed,
        packet: &Packet,
        seq: Option<u32>,
    ) -> Option<Result<tollway_law::Toll, ()>> {
        let mut known = self.known(&header.flow)?;
        let post = match known.post {
            Some(post) => post,
            None => {
                let post = self.post_of(header.flow.source)?;
                let headers = header.ip_len + TCP_HEADER;
                self.meters.on_flow(known.number, u32::from(known.segment.saturating_add(headers)));
                post
            }
        };
        let (stamp, _) = observed.timestamps?;
        let mut copy = Packet { flow: known.number, seq: seq?, sent: Stamp(stamp), ..*packet };
        let gate = Meters::entry(post);
        self.meters.on_wire(now, gate, WireTimes::default(), &mut copy);
        let passed = self.meters.pass(now, gate, &mut copy, &mut SackRanges::EMPTY.clone());
        (known.post, known.rtt) = (Some(post), copy.toll.rtt);
        self.recent.insert(header.flow, known);
        Some(if passed == Passed::Absorbed { Err(()) } else { Ok(copy.toll) })
    }

    /// The post of a host's data; `None` if there are too many hosts.
    fn post_of(&mut self, host: IpAddr) -> Option<u32> {
        let Some(budget) = self.budget else { return Some(self.common) };
        if let Some(post) = self.hosts.get(&host) {
            return Some(*post);
        }
        if self.hosts.len() >= MOST_HOSTS {
            return None;
        }
        let post = self.meters.add_post(MeterConfig::default(), Duty::Budget(budget));
        self.hosts.insert(host, post);
        Some(post)
    }

    /// Compares the payment of a packet that leaves with the price of its way so far, which is no
    /// more than that of the whole way.
    fn on_exit(&mut self, now: Time, header: &Header, packet: &Packet, seq: Option<u32>) {
        let (Some(known), Some(seq)) = (self.known(&header.flow), seq) else { return };
        let mut copy = Packet { flow: known.number, seq, ..*packet };
        let gate = Meters::entry(self.common);
        self.meters.pass(now, gate, &mut copy, &mut SackRanges::EMPTY.clone());
    }

    /// Handles an acknowledgement on its way to the sender. Returns the offset of a code that is to
    /// change, and its new value.
    fn on_ack(&mut self, now: Time, header: &Header, observed: &Observed) -> Option<(usize, u16)> {
        let known = self.known(&header.flow.back())?;
        let post = known.post?;
        let mut copy =
            Packet { flow: known.number, sent: Stamp::at(now), flags: Flags::ACK, ..Packet::default() };
        if let Some((_, echo)) = observed.timestamps {
            copy.sent_echo = Stamp(echo);
            copy.flags.set(Flags::STAMP_ECHO);
        }
        let echo = observed.returned.and_then(|(at, returned)| Some((at, known.echo(header, returned)?)));
        if let Some((_, echo)) = echo {
            copy.toll.echo = echo;
            copy.flags.set(Flags::ECHO);
        }
        self.meters.on_wire(now, Meters::exit(post), WireTimes::default(), &mut copy);
        let (at, before) = echo?;
        (copy.toll.echo != before).then(|| (at, encode_price(f64::from(copy.toll.echo))))
    }
}

impl Known {
    /// The returned value in bytes/s, or $/B. `None` if no router has written it.
    fn echo(&self, header: &Header, returned: Returned) -> Option<f32> {
        match returned {
            Returned::Xcp(code) if Split(code).is_request() => None,
            Returned::Xcp(code) => {
                let packet = f32::from(self.segment) + f32::from(header.ip_len + TCP_HEADER);
                (self.rtt > 0.0).then(|| Split(code).decode() as f32 * packet / self.rtt)
            }
            Returned::Fcp(code) => (code > 0).then(|| decode_price(code) as f32),
        }
    }
}

/// Connections in a generation: those without a packet for two of them are forgotten.
const MOST_FLOWS: usize = 1 << 14;
/// Hosts with a budget; the packets of further ones are ordinary traffic.
const MOST_HOSTS: usize = 1 << 12;
/// Accused in a status.
const LISTED: usize = 100;
/// Longest segment of an end that states none (RFC 9293 § 3.7.1).
const LEAST_SEGMENT: u16 = 536;
const TCP_HEADER: u16 = 20;
