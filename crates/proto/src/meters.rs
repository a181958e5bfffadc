//! Meters, and borders between domains: one middle that watches the wires of their links.

use tollway_law::link::Exchange;
use tollway_law::meter::{
    Ack, BalanceMeter, BudgetAccusation, BudgetMeter, Data, Duty, FlowMeter, MeterConfig, Offence, Passage,
};
use tollway_law::{Kind, Time, Toll};

use crate::cbr::PLAIN;
use crate::{Flags, Gate, Middle, Packet, Passed, SackRanges, Stamp, Wire};

/// All meters of a network, and what they know of each flow.
#[derive(Debug, Default)]
pub struct Meters {
    posts: Vec<Post>,
    /// By flow: a flow's windows are watched at one post, the first that its data pass.
    flows: Vec<Option<Box<Watched>>>,
    /// By flow: what is known of those that pay a price.
    payers: Vec<Option<Box<Payer>>>,
    /// By flow, a full packet in bytes, as connections announce it when they open; empty while there is no post.
    segments: Vec<u32>,
    seen: u64,
    accused: u64,
}

/// Where a meter stands.
#[derive(Debug)]
struct Post {
    config: MeterConfig,
    work: Work,
    /// Of the packet that came last.
    wire: Wire,
    /// When the last packet came off the wire.
    last: Time,
    /// Since when the wire has been busy without a break: no packet has queued before it for longer.
    busy_since: Time,
}

/// What is done there.
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
    /// It has sent packets with tolls.
    tolled: bool,
    meter: FlowMeter,
}

/// A flow that pays a price.
#[derive(Debug, Default)]
struct Payer {
    /// Where its budget is looked after: the first such post that it passes.
    entry: Option<u32>,
    /// The largest number that left, where that is looked after.
    highest: Option<u32>,
    /// What is left of the bytes that its first packet announced for its first round trip, and when that is over; zero until it
    /// begins.
    opening: f32,
    opens_until: Time,
    /// The price that went back to it last, $/B.
    price: f64,
    /// What the network's other end knows of it.
    balance: Option<BalanceMeter>,
    /// What that found has come back to where it enters.
    told: bool,
}

impl Payer {
    /// How many bytes of a packet its flow's first packet announced.
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
    /// A meter with this duty; answers its post.
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

    /// A border; answers its post.
    pub fn add_border(&mut self, exchange: Exchange) -> u32 {
        self.add(MeterConfig::default(), Work::Border(Box::new(exchange)))
    }

    fn add(&mut self, config: MeterConfig, work: Work) -> u32 {
        self.posts.push(Post {
            config,
            work,
            wire: Wire::default(),
            last: Time::ZERO,
            busy_since: Time::ZERO,
        });
        self.posts.len() as u32 - 1
    }

    /// The account that is kept at a post.
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

    /// What a flow is accused of where it leaves the network.
    pub fn balance(&self, flow: u32) -> Option<BudgetAccusation> {
        self.payers.get(flow as usize)?.as_ref()?.balance.as_ref()?.accusation()
    }

    /// What is known of a flow whose windows are watched.
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

    /// The gate where data come past a post.
    pub fn entry(post: u32) -> Gate {
        Gate(post * 2)
    }

    /// The gate where acknowledgements go back from a post.
    pub fn exit(post: u32) -> Gate {
        Gate(post * 2 + 1)
    }

    /// A packet's last bit comes off the wire at a post; the packet may be damaged.
    fn note_wire(&mut self, now: Time, post: u32, of: Wire) {
        let Post { wire, last, busy_since, .. } = &mut self.posts[post as usize];
        *wire = of;
        let began = now.saturating_sub(of.time);
        // A carry of less than a nanosecond a packet is no break.
        if began > *last + Time(1) {
            *busy_since = began;
        }
        *last = now;
    }

    /// A packet has come to a post.
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
            // Who heeds no toll can't cheat by it.
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
        let data = Data {
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

    /// A packet of a flow that pays comes to where that is looked after.
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

    /// A packet goes back to a host.
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

    /// A meter stands where the wire back begins: it sees packets that get lost there.
    fn on_wire(&mut self, now: Time, gate: Gate, wire: Wire, packet: &mut Packet) {
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
mod tests {
    use super::*;

    #[test]
    fn who_takes_over_a_number_starts_with_a_clean_sheet() {
        let mut meters = Meters::default();
        let posts = [Duty::Windows, Duty::Balance].map(|duty| meters.add_post(MeterConfig::default(), duty));
        meters.announce(3, 1500);
        let flags = Flags::DATA.with(Flags::TOLLED);
        for post in posts {
            let mut packet = Packet { flow: 3, size: 1500, flags, ..Packet::default() };
            meters.on_entry(Time::from_secs(1), post, &mut packet);
        }
        assert!(meters.of(3).is_some() && meters.payers[3].is_some());
        meters.announce(3, 1500);
        assert!(meters.of(3).is_none() && meters.payers[3].is_none());
    }

    #[test]
    fn what_is_sent_again_is_no_news_of_what_is_paid() {
        let mut meters = Meters::default();
        let post = meters.add_post(MeterConfig::default(), Duty::Balance);
        meters.announce(0, 1500);
        // A packet each millisecond that pays what links ask; every other one is a repair, which paid the price of long ago.
        for ms in 0..20_000 {
            let (seq, stake) = if ms % 2 == 0 { (1000 + ms, 1e-8) } else { (ms, 1e-10) };
            let toll = Toll { due: 1e-8, rtt: 0.1, stake, ..Toll::default() };
            let flags = Flags::DATA.with(Flags::TOLLED);
            let mut packet = Packet { toll, seq, size: 1500, flags, ..Packet::default() };
            meters.on_entry(Time::from_millis(ms.into()), post, &mut packet);
        }
        assert_eq!(meters.balance(0), None);
    }

    fn data(flow: u32, toll: Toll) -> Packet {
        Packet { flow, toll, size: 1000, flags: Flags::DATA.with(Flags::TOLLED), ..Packet::default() }
    }

    fn meters(duties: &[Duty]) -> Meters {
        let mut meters = Meters::default();
        for (post, &duty) in duties.iter().enumerate() {
            assert_eq!(meters.add_post(MeterConfig::default(), duty), post as u32);
        }
        (0..4).for_each(|flow| meters.announce(flow, 1000));
        meters
    }

    #[test]
    fn what_a_first_packet_announces_is_of_so_many_bytes_of_one_round_trip() {
        let opened = |after: &[u64]| -> Vec<f32> {
            let mut payer = Payer::default();
            // Ten packets of 250 B.
            assert_eq!(
                payer.opens(Time::from_secs(1), 250, &Toll { rtt: 0.0, offer: 10.0, ..Toll::default() }),
                0.0
            );
            let toll = Toll { rtt: 0.1, ..Toll::default() };
            after.iter().map(|&ms| payer.opens(Time::from_millis(1100 + ms), 1000, &toll)).collect()
        };
        assert_eq!(opened(&[0, 10, 20, 30]), [1000.0, 1000.0, 500.0, 0.0]);
        // The round trip begins with the first packet that knows it.
        assert_eq!(opened(&[500, 600, 601]), [1000.0, 1000.0, 0.0]);
        // A packet that was no first one announces nothing of the kind.
        let toll = Toll { rtt: 0.1, offer: 10.0, ..Toll::default() };
        assert_eq!(Payer::default().opens(Time::ZERO, 1000, &toll), 0.0);
    }

    #[test]
    fn a_wire_is_busy_since_its_last_break() {
        let mut meters = meters(&[Duty::Windows]);
        let mut since = |now, on_wire| {
            meters.note_wire(Time(now), 0, Wire { time: Time(on_wire), delay: Time::ZERO });
            meters.posts[0].busy_since.0
        };
        assert_eq!(since(5000, 1000), 4000);
        // Back to back, but for a nanosecond that is carried.
        assert_eq!(since(6000, 1000), 4000);
        assert_eq!(since(7001, 1000), 4000);
        assert_eq!(since(8003, 1000), 7003);
        assert_eq!(since(9003, 1000), 7003);
    }

    #[test]
    fn who_states_no_window_is_not_watched() {
        let mut meters = meters(&[Duty::Windows]);
        for flags in
            [Flags::ACK.with(Flags::TOLLED), Flags::DATA, Flags::DATA.with(PLAIN), Flags::SYN.with(PLAIN)]
        {
            let mut packet = Packet { flags, ..data(1, Toll::default()) };
            assert_eq!(meters.on_entry(Time::from_secs(1), 0, &mut packet), Passage::Untouched);
            assert!(meters.of(1).is_none(), "{flags:?}");
        }
        // An opening is measured, and counts as a flow seen once a toll follows.
        let mut syn = Packet { flags: Flags::SYN, ..data(1, Toll::default()) };
        meters.on_entry(Time::from_secs(1), 0, &mut syn);
        assert!(meters.of(1).is_some() && meters.counts() == (0, 0));
        for _ in 0..2 {
            meters.on_entry(Time::from_secs(1), 0, &mut data(1, Toll::default()));
            assert_eq!(meters.counts(), (1, 0));
        }
    }

    #[test]
    fn a_flow_is_watched_where_it_first_passes_and_by_the_packets_it_announced() {
        let mut meters = meters(&[Duty::Windows, Duty::Windows]);
        meters.announce(2, 500);
        for post in [0, 1, 1] {
            meters.on_entry(Time::from_secs(1), post, &mut data(2, Toll::default()));
        }
        // One packet of twice the size; what passes the second post is no business of it.
        assert_eq!(meters.of(2).unwrap().allotment(), 2.0);
        assert_eq!(meters.counts(), (1, 0));
    }

    #[test]
    fn a_budget_is_kept_where_the_host_s_flow_enters_and_nowhere_else() {
        let budget = |usd| Duty::Budget(tollway_law::Budget::per_sec(usd));
        let mut meters = meters(&[budget(1.0), budget(1e-9)]);
        for ms in 1..1000 {
            for post in [0, 1] {
                let toll = Toll { rtt: 0.1, stake: 1e-7, ..Toll::default() };
                meters.on_entry(Time::from_millis(ms), post, &mut data(0, toll));
            }
        }
        assert_eq!(meters.counts(), (1, 0));
        assert!([0, 1].iter().all(|&post| meters.account(post).unwrap().accusation().is_none()));
        // Nor does traffic that pays nothing count.
        let mut plain = Packet { flags: Flags::DATA, ..data(3, Toll::default()) };
        meters.on_entry(Time::from_secs(1), 1, &mut plain);
        assert_eq!(meters.counts(), (1, 0));
    }

    #[test]
    fn an_underpayment_is_known_at_the_entry_with_the_first_answer_that_leaves_after_it() {
        let mut meters = meters(&[Duty::Budget(tollway_law::Budget::per_sec(1.0)), Duty::Balance]);
        for ms in 1..5000u64 {
            let toll = Toll { due: 1e-7, rtt: 0.1, stake: 1e-9, ..Toll::default() };
            for post in [0, 1] {
                let mut packet = Packet { seq: ms as u32, ..data(0, toll) };
                meters.on_entry(Time::from_millis(ms), post, &mut packet);
            }
        }
        let found = meters.balance(0).unwrap();
        assert_eq!((found.offence, meters.counts()), (Offence::Underpaid, (1, 1)));
        let ack = |meters: &mut Meters, sent: Time, flags: Flags| {
            let toll = Toll { echo: 1e-7, ..Toll::default() };
            let mut packet = Packet { sent: Stamp::at(sent), flags: Flags::ACK.with(flags), ..data(0, toll) };
            packet.flags = Flags::ACK.with(flags);
            meters.on_exit(Time::from_secs(6), 0, &mut packet);
            meters.account(0).unwrap().accusation().map(|found| found.offence)
        };
        let before = found.at.saturating_sub(Time::from_millis(1));
        assert_eq!(ack(&mut meters, before, Flags::ECHO), None);
        assert_eq!(ack(&mut meters, found.at, Flags::default()), None, "it brings no price");
        assert_eq!(ack(&mut meters, found.at, Flags::ECHO), Some(Offence::Underpaid));
        // From then on the host's packets are charged what their path asks.
        let mut cheap = data(0, Toll { rtt: 0.1, stake: 1e-9, ..Toll::default() });
        assert_eq!(meters.on_entry(Time::from_secs(6), 0, &mut cheap), Passage::Rewritten);
        assert_eq!(cheap.toll.stake, 1e-7);
    }

    /// What goes back, answering what was sent at `sent`, with a price of 1 or feedback of it.
    fn answer(flow: u32, sent: Time) -> Packet {
        let flags = Flags::ACK.with(Flags::ECHO).with(Flags::STAMP_ECHO);
        let toll = Toll { echo: 1.0, ..Toll::default() };
        Packet { flow, toll, flags, sent_echo: Stamp::at(sent), ..Packet::default() }
    }

    #[test]
    fn a_border_turns_prices_both_ways() {
        let mut meters = meters(&[Duty::Windows]);
        assert_eq!(meters.add_border(Exchange::new(tollway_law::link::ExchangeRate::Fixed(4.0))), 1);
        assert_eq!((meters.border(1).map(Exchange::factor), meters.border(0).is_some()), (Some(4.0), false));
        let mut packet = data(0, Toll { due: 2.0, stake: 3.0, ..Toll::default() });
        assert_eq!(meters.on_entry(Time::from_secs(1), 1, &mut packet), Passage::Rewritten);
        assert_eq!((packet.toll.due, packet.toll.stake), (8.0, 12.0));
        // A price that goes back, and nothing that is none.
        let back = |meters: &mut Meters, packet: Packet| {
            let mut packet = packet;
            meters.on_exit(Time::from_secs(1), 1, &mut packet);
            packet.toll.echo
        };
        let priced = answer(0, Time::ZERO);
        assert_eq!(back(&mut meters, priced), 0.25);
        for flags in [Flags::ACK, Flags::ECHO, Flags::ACK.with(Flags::ECHO).with(PLAIN)] {
            assert_eq!(back(&mut meters, Packet { flags, ..priced }), 1.0, "{flags:?}");
        }
    }

    #[test]
    fn a_round_trip_is_measured_from_before_the_link_to_the_answer() {
        let ms = Time::from_millis;
        // The packet was 2 ms on a wire that was busy for 8 ms before it, and 3 ms on its way: it left no later than at 995 ms.
        let entry = |meters: &mut Meters, flags| {
            meters.note_wire(ms(998), 0, Wire { time: ms(8), delay: ms(3) });
            meters.note_wire(ms(1000), 0, Wire { time: ms(2), delay: ms(3) });
            let mut packet = Packet { flags, sent: Stamp::at(ms(995)), ..data(1, Toll::default()) };
            meters.on_entry(ms(1000), 0, &mut packet);
        };
        for flags in [Flags::SYN, Flags::DATA.with(Flags::TOLLED)] {
            let mut meters = meters(&[Duty::Windows, Duty::Windows]);
            entry(&mut meters, flags);
            // Neither another flow's answers, nor those at another post, nor what is no answer.
            meters.on_exit(ms(1050), 1, &mut answer(1, ms(995)));
            meters.on_exit(ms(1050), 0, &mut answer(2, ms(995)));
            for none in [Flags::STAMP_ECHO, Flags::ACK, Flags::ACK.with(Flags::STAMP_ECHO).with(PLAIN)] {
                meters.on_exit(ms(1050), 0, &mut Packet { flags: none, ..answer(1, ms(995)) });
            }
            assert_eq!(meters.of(1).unwrap().rtt(), 0.0, "{flags:?}");
            meters.on_exit(ms(1100), 0, &mut answer(1, ms(995)));
            // And its sender may have measured those 8 ms, too.
            assert!((meters.of(1).unwrap().rtt() - 0.113).abs() < 1e-9, "{}", meters.of(1).unwrap().rtt());
        }
    }

    #[test]
    fn who_is_accused_is_counted_once_and_held() {
        let mut meters = meters(&[Duty::Windows, Duty::Budget(tollway_law::Budget::per_sec(1.0))]);
        let mut dropped = 0;
        for i in 1..300u64 {
            // Every 10 ms a packet that is answered after 100, and states a round trip of 500.
            let now = Time::from_millis(10 * i);
            let toll = Toll { rtt: 0.5, offer: 0.05, stake: 3e-5, ..Toll::default() };
            let mut packet = Packet { seq: i as u32, sent: Stamp::at(now), ..data(0, toll) };
            meters.note_wire(now, 0, Wire::default());
            meters.on_entry(now, 0, &mut packet);
            meters.on_exit(
                now,
                0,
                &mut Packet { flow: 0, ..answer(0, now.saturating_sub(Time::from_millis(100))) },
            );
            // Another spends three times its budget.
            let passage = meters.on_entry(now, 1, &mut Packet { seq: i as u32, ..data(1, toll) });
            dropped += u32::from(passage == Passage::Dropped);
        }
        assert_eq!(
            meters.of(0).unwrap().accusation().map(|found| found.offence),
            Some(Offence::RttOverstated)
        );
        let account = meters.account(1).unwrap();
        assert_eq!(account.accusation().map(|found| found.offence), Some(Offence::Overspent));
        assert_eq!((meters.counts(), account.dropped()), ((2, 2), u64::from(dropped)));
        assert!(dropped > 100, "{dropped}");
        // Of one who is held the price that goes back is what its meter says.
        let told = account.answer(1.0);
        let mut back = answer(1, Time::ZERO);
        meters.on_exit(Time::from_secs(3), 1, &mut back);
        assert!(told > 1.0 && back.toll.echo == told, "{told}");
        // That of another host's flow is left alone.
        let mut other = answer(0, Time::ZERO);
        meters.on_exit(Time::from_secs(3), 1, &mut other);
        assert_eq!(other.toll.echo, 1.0);
    }
}
