//! Meters at a pair of lanes, in virtual time: XCP's senders, of which one may lie.

use std::collections::BTreeMap;

use tollway_law::link::XcpConfig;
use tollway_law::meter::Offence;
use tollway_proto::encoding::split::Split;
use tollway_proto::encoding::tcp_option::Builder;

use super::*;
use crate::edge::EdgeMeters;

/// How a sender treats the truth.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lie {
    None,
    /// It grows by a packet for each acknowledgement, whatever that returns.
    Deaf,
    /// It states a fraction of its window.
    Small,
    /// It states four times its round trip.
    Long,
    /// It states a third of its round trip.
    Short,
}

/// A sender that always has data, its receiver, and the way between them beside the lanes.
struct Sender {
    lie: Lie,
    delay: Time,
    window: f64,
    rtt: f64,
    flying: u32,
    seq: u32,
    received: u64,
    /// The last acknowledgement.
    heard: Time,
}

enum Event {
    /// Data are at the router, at the receiver; an acknowledgement is at the router, at the sender.
    Data(Vec<u8>),
    Arrived(Vec<u8>),
    Answer(Vec<u8>),
    Returned(Vec<u8>),
    /// A sender that lost everything sends again.
    Timeout(usize),
}

struct World {
    up: Lane,
    down: Lane,
    meters: EdgeMeters,
    senders: Vec<Sender>,
    events: BTreeMap<(Time, u64), Event>,
    count: u64,
}

const FULL: usize = 1500;

/// A TCP segment of a connection with these options.
pub(super) fn segment(up: bool, flow: usize, flags: u8, seq: u32, options: &[u8], payload: usize) -> Vec<u8> {
    let ends = [[10, 0, 0, flow as u8 + 1], [10, 9, 0, 1]];
    let [from, to] = if up { ends } else { [ends[1], ends[0]] };
    let mut bytes = packet(from, to, TCP, 0, options.len() + payload);
    let port = 1000 + flow as u16;
    bytes[20..24].copy_from_slice(
        &[if up { port } else { 80 }, if up { 80 } else { port }].map(u16::to_be_bytes).concat(),
    );
    bytes[24..28].copy_from_slice(&seq.to_be_bytes());
    bytes[32] = ((20 + options.len()) as u8 / 4) << 4;
    bytes[33] = flags;
    bytes[40..40 + options.len()].copy_from_slice(options);
    frame(0, &bytes)
}

impl World {
    fn new(meters: bool, lies: &[Lie]) -> World {
        let law = XcpConfig::default().build(Rate::from_mbps(10.0));
        let (mut up, mut down) = (lane(law.clone(), 10.0), lane(law, 10.0));
        let all = EdgeMeters::new(None);
        up.set_shared(meters.then(|| all.clone()), None);
        down.set_shared(meters.then(|| all.of_answers()), None);
        let sender = |(lie, i): (&Lie, u64)| Sender {
            lie: *lie,
            delay: Time::from_millis(10 + 5 * i),
            // A request, and then the rest of the first window.
            window: 1.0,
            rtt: 0.0,
            flying: 0,
            seq: 1,
            received: 0,
            heard: Time::ZERO,
        };
        let senders = lies.iter().zip(0..).map(sender).collect();
        let mut world = World { up, down, meters: all, senders, events: BTreeMap::new(), count: 0 };
        for flow in 0..lies.len() {
            let longest = [2, 4, 5, 0xb4];
            for (way, flags) in [(true, 2), (false, 0x12)] {
                let lane = if way { &mut world.up } else { &mut world.down };
                offer(lane, Time::ZERO, &segment(way, flow, flags, 0, &longest, 0));
            }
            world.at(Time::from_millis(flow as u64), Event::Timeout(flow));
        }
        world
    }

    fn at(&mut self, at: Time, event: Event) {
        self.count += 1;
        self.events.insert((at, self.count), event);
    }

    /// Sends what the window allows.
    fn send(&mut self, now: Time, flow: usize) {
        loop {
            let sender = &mut self.senders[flow];
            if f64::from(sender.flying) + 1.0 > sender.window.max(1.0) {
                return;
            }
            let mut options = Builder::new();
            options.timestamps((now.0 / 1_000_000) as u32, 7).unwrap();
            let (rtt, window) = match sender.lie {
                Lie::None | Lie::Deaf => (sender.rtt, sender.window),
                Lie::Small => (sender.rtt, sender.window / 4.0),
                Lie::Long => (sender.rtt * 4.0, sender.window),
                Lie::Short => (sender.rtt / 3.0, sender.window),
            };
            let rtt_ms = (rtt * 1e3).round() as u16;
            let cwnd = window.max(1.0) as u16;
            options.forward(Forward { feedback: Split::encode(0.5).0, rtt_ms, cwnd }).unwrap();
            let bytes = segment(true, flow, 16, sender.seq, options.as_slice(), FULL - 40 - 20);
            sender.seq += 1440;
            sender.flying += 1;
            // Two packets of one instant leave a microsecond apart.
            let at = now + Time::from_micros(u64::from(sender.flying % 2));
            self.at(at, Event::Data(bytes));
        }
    }

    fn run(&mut self, until: Time) {
        loop {
            let lanes = self.up.poll_timeout().min(self.down.poll_timeout());
            let event = self.events.first_key_value().map_or(Time::NEVER, |((at, _), _)| *at);
            let now = lanes.min(event);
            if now > until {
                return;
            }
            while let Some((at, handle)) = self.up.poll(now) {
                let bytes = self.up.frame(handle).to_vec();
                self.up.free(handle);
                self.at(at, Event::Arrived(bytes));
            }
            while let Some((at, handle)) = self.down.poll(now) {
                let bytes = self.down.frame(handle).to_vec();
                self.down.free(handle);
                self.at(at, Event::Returned(bytes));
            }
            let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 <= now) else {
                continue;
            };
            match entry.remove() {
                Event::Data(bytes) => offer(&mut self.up, now, &bytes),
                Event::Answer(bytes) => offer(&mut self.down, now, &bytes),
                Event::Arrived(bytes) => self.receive(now, &bytes),
                Event::Returned(bytes) => self.acknowledge(now, &bytes),
                Event::Timeout(flow) => {
                    let sender = &mut self.senders[flow];
                    if now.saturating_sub(sender.heard) > Time::from_millis(300) || sender.rtt == 0.0 {
                        (sender.flying, sender.window) = (0, sender.window.min(4.0));
                        self.send(now, flow);
                    }
                    self.at(now + Time::from_millis(300), Event::Timeout(flow));
                }
            }
        }
    }

    fn receive(&mut self, now: Time, bytes: &[u8]) {
        let ip = &bytes[tun::VNET_LEN + 14..];
        let flow = usize::from(ip[15]) - 1;
        if ip[33] & 2 != 0 {
            return;
        }
        assert_eq!(sum(&ip[..20]), 0, "the header's checksum");
        let read = tollway_proto::encoding::tcp_option::parse(&ip[40..60]).unwrap();
        self.senders[flow].received += 1;
        let mut options = Builder::new();
        options.timestamps(7, read.timestamps.unwrap().0).unwrap();
        options.back(read.forward.unwrap().feedback).unwrap();
        let answer = segment(false, flow, 16, 1, options.as_slice(), 0);
        let delay = self.senders[flow].delay;
        self.at(now + Time(2 * delay.0), Event::Answer(answer));
    }

    fn acknowledge(&mut self, now: Time, bytes: &[u8]) {
        let ip = &bytes[tun::VNET_LEN + 14..];
        let flow = usize::from(ip[19]) - 1;
        if ip[33] & 2 != 0 {
            return;
        }
        let read = tollway_proto::encoding::tcp_option::parse(&ip[40..40 + 16]).unwrap();
        let sender = &mut self.senders[flow];
        sender.flying = sender.flying.saturating_sub(1);
        let rtt = (now.0 / 1_000_000).saturating_sub(u64::from(read.timestamps.unwrap().1)) as f64 * 1e-3;
        sender.rtt = if sender.rtt == 0.0 { rtt.max(1e-3) } else { sender.rtt + (rtt - sender.rtt) / 8.0 };
        sender.heard = now;
        let feedback = if sender.lie == Lie::Deaf { 1.0 } else { Split(read.back.unwrap()).decode() };
        let first = if sender.seq == 1441 { 9.0 } else { 0.0 };
        sender.window = (sender.window + first + feedback).clamp(1.0, 500.0);
        self.send(now, flow);
    }

    /// Received packets of each in the last ten of twenty seconds.
    fn parts(&mut self) -> Vec<u64> {
        self.run(Time::from_secs(10));
        self.senders.iter_mut().for_each(|sender| sender.received = 0);
        self.run(Time::from_secs(20));
        self.senders.iter().map(|sender| sender.received).collect()
    }
}

#[test]
fn honest_senders_are_not_accused() {
    let mut world = World::new(true, &[Lie::None; 4]);
    let parts = world.parts();
    let found = world.meters.moment();
    assert_eq!((found.seen, found.accused), (4, 0), "{found:?}");
    // 8333 packets in all.
    assert!(parts.iter().all(|part| (1900..2200).contains(part)), "{parts:?}");
}

#[test]
fn a_sender_that_lies_is_held() {
    for (lie, offence) in [
        (Lie::Deaf, Offence::Overdrawn),
        (Lie::Small, Offence::WindowUnderstated),
        (Lie::Long, Offence::RttOverstated),
        (Lie::Short, Offence::RttUnderstated),
    ] {
        let lies = [Lie::None, Lie::None, Lie::None, lie];
        let free = World::new(false, &lies).parts();
        let mut world = World::new(true, &lies);
        let parts = world.parts();
        let found = world.meters.moment();
        eprintln!("{lie:?}: {free:?}, metered {parts:?}, {found:?}");
        assert_eq!((found.accused, found.held.len()), (1, 1), "{lie:?}: {found:?}");
        assert_eq!(found.held[0].offence, offence, "{lie:?}");
        assert_eq!(found.held[0].of, "tcp 10.0.0.4:1003 > 10.9.0.1:80");
        let most = parts[..3].iter().min().unwrap() * 13 / 10;
        assert!(parts[3] <= most, "{lie:?}: {parts:?}, {free:?} without");
    }
}
