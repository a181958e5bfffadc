//! Meters, and borders between domains: one middle that watches the wires of their links.

use tollway_law::link::Exchange;
use tollway_law::meter::{
    Ack, BalanceMeter, BudgetAccusation, BudgetMeter, DataPacket, Duty, FlowMeter, MeterConfig, Offence,
    Passage,
};
use tollway_law::{Kind, Time, Toll};

use crate::cbr::PLAIN;
use crate::{Flags, Gate, Middle, Packet, Passed, SackRanges, Stamp, WireTimes};

/// All meters of a network, and their state per flow.
#[derive(Debug, Default)]
pub struct Meters {
    posts: Vec<Post>,
    /// By flow: windows, which the first post that the flow's data pass watches.
    flows: Vec<Option<Box<Watched>>>,
    /// By flow: state of flows that pay a price.
    payers: Vec<Option<Box<Payer>>>,
    /// By flow, a full packet in bytes, as connections announce it when they open; empty while
    /// there is no post.
    segments: Vec<u32>,
    seen: u64,
    accused: u64,
}

/// The place of a meter.
#[derive(Debug)]
struct Post {
    config: MeterConfig,
    work: Work,
    /// The times of the last packet on the wire.
    wire: WireTimes,
    /// The instant at which the last packet came off the wire.
    last: Time,
    /// Start of the wire's present busy period: an upper bound on the queueing time before it.
    busy_since: Time,
}

/// The work of a post.
#[derive(Debug)]
enum Work {
    Windows,
    Budget(Box<BudgetMeter>),
    Balance,
    Border(Box<Exchange>),
}

#[derive(Debug)]
struct Watched {
    post: u32,
    /// True once the flow has sent packets with tolls.
    tolled: bool,
    meter: FlowMeter,
}

/// A flow that pays a price.
#[derive(Debug, Default)]
struct Payer {
    /// The post that checks its budget: the first such post on its path.
    entry: Option<u32>,
    /// The highest sequence number that left the network, where that is checked.
    highest: Option<u32>,
    /// The rest of the bytes that its first packet announced for its first round trip, and the end
    /// of that time; zero until it begins.
    opening: f32,
    opens_until: Time,
    /// The last price returned to it, $/B.
    price: f64,
    /// The meter at the network's other end.
    balance: Option<BalanceMeter>,
    /// True once that meter's finding was reported to the entry.
    told: bool,
}

impl Payer {
    /// The number of bytes of a packet that its flow's first packet announced.
    fn opens(&mut self, now: Time, size: u32, toll: &Toll) -> f32 {
        if toll.rtt <= 0.0 || !toll.rtt.is_finite() {
            (self.opening, self.opens_until) = (toll.offer * size as f32, Time::ZERO);
            return 0.0;
        }
        if self.opens_until == Time::ZERO {
            self.opens_until = now.saturating_add(Time::from_secs_f64(f64::from(toll.rtt)));
        }
        let opened = if now <= self.opens_until { self.opening.min(size as f32).max(0.0) } else { 0.0 };
        self.opening -= opened;
        opened
    }
}

impl Meters {
    /// Adds a meter with this duty. Returns its post.
    pub fn add_post(&mut self, config: MeterConfig, duty: Duty) -> u32 {
        self.add(
            config,
            match duty {
                Duty::Windows => Work::Windows,
                Duty::Budget(budget) => Work::Budget(Box::new(BudgetMeter::new(config, budget))),
                Duty::Balance => Work::Balance,
            },
        )
    }

    /// Adds a border. Returns its post.
    pub fn add_border(&mut self, exchange: Exchange) -> u32 {
        self.add(MeterConfig::default(), Work::Border(Box::new(exchange)))
    }

    fn add(&mut self, config: MeterConfig, work: Work) -> u32 {
        self.posts.push(Post {
            config,
            work,
            wire: WireTimes::default(),
            last: Time::ZERO,
            busy_since: Time::ZERO,
        });
        self.posts.len() as u32 - 1
    }

    /// The account at a post.
    pub fn account(&self, post: u32) -> Option<&BudgetMeter> {
        match &self.posts[post as usize].work {
            Work::Budget(meter) => Some(meter),
            _ => None,
        }
    }

    /// The exchange rate at a post.
    pub fn border(&self, post: u32) -> Option<&Exchange> {
        match &self.posts[post as usize].work {
            Work::Border(exchange) => Some(exchange),
            _ => None,
        }
    }

    /// The offence of a flow, found where it leaves the network.
    pub fn balance(&self, flow: u32) -> Option<BudgetAccusation> {
        self.payers.get(flow as usize)?.as_ref()?.balance.as_ref()?.accusation()
    }

    /// The meter of a flow whose windows are watched.
    pub fn of(&self, flow: u32) -> Option<&FlowMeter> {
        self.flows.get(flow as usize)?.as_ref().map(|watched| &watched.meter)
    }

    /// Flows seen and flows accused.
    pub fn counts(&self) -> (u64, u64) {
        (self.seen, self.accused)
    }

    fn announce(&mut self, flow: u32, segment: u32) {
        if self.posts.is_empty() {
            return;
        }
        let flow = flow as usize;
        if self.segments.len() <= flow {
            self.segments.resize(flow + 1, 0);
        }
        self.segments[flow] = segment;
        if let Some(watched) = self.flows.get_mut(flow) {
            *watched = None;
        }
        if let Some(payer) = self.payers.get_mut(flow) {
            *payer = None;
        }
    }

    /// The gate for data that pass a post.
    pub fn entry(post: u32) -> Gate {
        Gate(post * 2)
    }

    /// The gate for acknowledgements that return from a post.
    pub fn exit(post: u32) -> Gate {
        Gate(post * 2 + 1)
    }

    /// Records that a packet's last bit comes off the wire at a post; the packet may be damaged.
    fn note_wire(&mut self, now: Time, post: u32, of: WireTimes) {
        let Post { wire, last, busy_since, .. } = &mut self.posts[post as usize];
        *wire = of;
        let began = now.saturating_sub(of.time);
        // A carry of less than a nanosecond a packet is no break.
        if began > *last + Time(1) {
            *busy_since = began;
        }
        *last = now;
    }

    /// Handles a packet at a post.
    fn on_entry(&mut self, now: Time, post: u32, packet: &mut Packet) -> Passage {
        let Post { config, work, wire, busy_since, .. } = &self.posts[post as usize];
        if !matches!(work, Work::Windows) {
            return self.on_payer(now, post, packet);
        }
        let began = now.saturating_sub(wire.time);
        let (data, opens) = (packet.flags.has(Flags::DATA), packet.flags.has(Flags::SYN));
        if packet.flags.has(PLAIN) || !(data || opens) {
            return Passage::Untouched;
        }
        let flow = packet.flow as usize;
        if self.flows.len() <= flow {
            self.flows.resize_with(flow + 1, || None);
        }
        let tolled = packet.flags.has(Flags::TOLLED);
        let watched = match &mut self.flows[flow] {
            Some(watched) => watched,
            // A flow without tolls cannot cheat with them.
            None if !tolled && !opens => return Passage::Untouched,
            vacant => vacant.insert(Box::new(Watched {
                post,
                tolled: false,
                meter: FlowMeter::new(*config, self.segments[flow]),
            })),
        };
        if watched.post != post {
            return Passage::Untouched;
        }
        if tolled && !watched.tolled {
            watched.tolled = true;
            self.seen += 1;
        }
        let data = DataPacket {
            size: u32::from(packet.size),
            seq: packet.seq,
            stamp: packet.sent.0,
            sent: began.saturating_sub(wire.delay),
            waited: began.saturating_sub(*busy_since),
        };
        if !watched.tolled {
            watched.meter.on_opening(&data);
            return Passage::Untouched;
        }
        let before = watched.meter.accusation().is_some();
        let passage = watched.meter.on_data(now, &data, tolled.then_some(&mut packet.toll));
        self.accused += u64::from(!before && watched.meter.accusation().is_some());
        passage
    }

    /// Handles a packet of a paying flow at the post that checks it.
    fn on_payer(&mut self, now: Time, post: u32, packet: &mut Packet) -> Passage {
        if packet.flags.has(PLAIN) || packet.kind() != Kind::Tolled {
            return Passage::Untouched;
        }
        let at = packet.flow as usize;
        if self.payers.len() <= at {
            self.payers.resize_with(at + 1, || None);
        }
        let payer = self.payers[at].get_or_insert_default();
        let size = u32::from(packet.size);
        let Post { config, work, .. } = &mut self.posts[post as usize];
        match work {
            Work::Windows => Passage::Untouched,
            Work::Border(exchange) => {
                exchange.on_data(now, size, &mut packet.toll);
                Passage::Rewritten
            }
            Work::Balance => {
                let meter = payer.balance.get_or_insert_with(|| BalanceMeter::new(*config));
                let before = meter.accusation().is_some();
                let newer = |highest: u32| packet.seq.wrapping_sub(highest) as i32 > 0;
                let fresh = payer.highest.is_none_or(newer);
                if fresh {
                    payer.highest = Some(packet.seq);
                }
                meter.on_data(now, fresh, &packet.toll);
                self.accused += u64::from(!before && meter.accusation().is_some());
                Passage::Untouched
            }
            Work::Budget(meter) => {
                if payer.entry.is_none() {
                    payer.entry = Some(post);
                    meter.on_flow();
                    self.seen += 1;
                }
                if payer.entry != Some(post) {
                    return Passage::Untouched;
                }
                let opening = payer.opens(now, size, &packet.toll);
                let before = meter.accusation().is_some();
                let price = (payer.price > 0.0).then_some(payer.price);
                let passage = meter.on_data(now, size, &mut packet.toll, opening, price);
                self.accused += u64::from(!before && meter.accusation().is_some());
                passage
            }
        }
    }

    /// Handles a packet that returns to a host.
    fn on_exit(&mut self, now: Time, post: u32, packet: &mut Packet) {
        if packet.flags.has(PLAIN) || !packet.flags.has(Flags::ACK) {
            return;
        }
        let priced = packet.flags.has(Flags::ECHO) && packet.toll.echo > 0.0;
        match &mut self.posts[post as usize].work {
            Work::Windows => {}
            Work::Balance => return,
            Work::Border(exchange) => {
                if priced {
                    packet.toll.echo = exchange.on_ack(packet.toll.echo);
                }
                return;
            }
            Work::Budget(account) => {
                if let Some(Some(payer)) = self.payers.get_mut(packet.flow as usize)
                    && payer.entry == Some(post)
                    && priced
                {
                    payer.price = f64::from(packet.toll.echo);
                    let found = payer.balance.as_ref().and_then(BalanceMeter::accusation);
                    // The finding comes with the first acknowledgement that leaves after it.
                    if let Some(found) = found.filter(|_| !payer.told)
                        && Stamp::at(found.at).0.wrapping_sub(packet.sent.0) as i32 <= 0
                    {
                        payer.told = true;
                        account.accuse(now, Offence::Underpaid);
                    }
                    packet.toll.echo = account.answer(packet.toll.echo);
                }
                return;
            }
        }
        if let Some(Some(watched)) = self.flows.get_mut(packet.flow as usize)
            && watched.post == post
        {
            watched.meter.on_ack(
                now,
                &Ack {
                    stamp: packet.flags.has(Flags::STAMP_ECHO).then_some(packet.sent_echo.0),
                    echo: packet.flags.has(Flags::ECHO).then_some(packet.toll.echo),
                },
            );
        }
    }
}

impl Middle for Meters {
    fn pass(&mut self, now: Time, gate: Gate, packet: &mut Packet, _: &mut SackRanges) -> Passed {
        if gate.0.is_multiple_of(2) && self.on_entry(now, gate.0 / 2, packet) == Passage::Dropped {
            return Passed::Absorbed;
        }
        Passed::Onward
    }

    /// Watches packets at the start of the return wire, including those that get lost on it.
    fn on_wire(&mut self, now: Time, gate: Gate, wire: WireTimes, packet: &mut Packet) {
        if gate.0.is_multiple_of(2) {
            self.note_wire(now, gate.0 / 2, wire);
        } else {
            self.on_exit(now, gate.0 / 2, packet);
        }
    }

    fn on_flow(&mut self, flow: u32, segment: u32) {
        self.announce(flow, segment);
    }
}

#[cfg(test)]
mod tests;
