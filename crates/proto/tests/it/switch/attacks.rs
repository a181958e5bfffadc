//! Forged and optimistic acknowledgements, lying echoes, replayed and random packets.

use proptest::prelude::*;
use tollway_law::toll::Content;
use tollway_law::{Time, Toll};
use tollway_proto::route::Policy;
use tollway_proto::switch::{Config, Switch};
use tollway_proto::transport::Event;
use tollway_proto::{Flags, Gate, Middle, Packet, Passed, SackRanges, Stamp};

use super::net::{Net, Opener, candidates};

const NOW: Time = Time::from_secs(1);
const FRAME: Flags = Flags::DATA.with(Flags::FIRST).with(Flags::LAST);

/// A session without handshake whose numbers begin at 0, and what leaves it.
pub(crate) struct Bench {
    pub(crate) switch: Switch,
    pub(crate) now: Time,
}

impl Bench {
    fn new(members: usize, content: Option<Content>) -> Bench {
        Bench::with(members, Config { handshake: false, content, ..Config::default() })
    }

    pub(crate) fn with(members: usize, config: Config) -> Bench {
        let config = Config { ring: 64, ..config };
        let mut switch = Switch::new();
        switch.add_session(&config, Policy::RoundRobin.module(0), candidates(members));
        Bench { switch, now: NOW }
    }

    /// Shows a packet to a side; returns all that leaves, by side.
    pub(crate) fn show(
        &mut self,
        side: u32,
        mut packet: Packet,
        ranges: &[(u32, u32)],
    ) -> Vec<(u32, Packet)> {
        let mut sack = SackRanges::EMPTY;
        ranges.iter().for_each(|&(start, end)| assert!(sack.push(start, end)));
        if !ranges.is_empty() {
            packet.flags.set(Flags::SACK);
        }
        let mut left = Vec::new();
        if let Passed::By(gate) = self.switch.pass(self.now, Gate(side), &mut packet, &mut sack) {
            left.push((gate.0, packet));
        }
        left.extend(self.drain());
        left
    }

    pub(crate) fn drain(&mut self) -> Vec<(u32, Packet)> {
        let (mut out, mut sack, mut left) = (Packet::default(), SackRanges::EMPTY, Vec::new());
        while let Some(gate) = self.switch.poll_transmit(self.now, &mut out, &mut sack) {
            left.push((gate.0, out));
            assert!(left.len() < 10_000, "a switch that never stops sending");
        }
        left
    }

    /// The session's timers run.
    pub(crate) fn switch_timeout(&mut self) {
        self.switch.handle_timeout(self.now);
    }

    fn forged(&self) -> u64 {
        self.switch.session(0).stats().forged
    }
}

pub(crate) fn data(seq: u32) -> Packet {
    let flags = FRAME.with(Flags::ACK);
    Packet { seq, window: 50, flags, size: 1000, sent: Stamp(seq.wrapping_add(1)), ..Packet::default() }
}

pub(crate) fn ack(ack: u32) -> Packet {
    Packet { ack, window: 50, flags: Flags::ACK, size: 40, ..Packet::default() }
}

fn tolled(seq: u32, due: f64) -> Packet {
    let mut packet = data(seq);
    packet.flags.set(Flags::TOLLED);
    packet.toll = Toll { due, rtt: 0.1, offer: 0.001, ..Toll::default() };
    packet
}

fn echoing(number: u32, echo: f32) -> Packet {
    let mut packet = ack(number);
    packet.flags.set(Flags::ECHO);
    packet.toll.echo = echo;
    packet
}

/// Tells each side that the other has room.
pub(crate) fn opened(members: u32, content: Option<Content>) -> Bench {
    let mut bench = Bench::new(members as usize, content);
    (0..=members).for_each(|side| drop(bench.show(side, ack(0), &[])));
    bench
}

#[test]
fn a_member_cannot_acknowledge_what_it_was_not_sent() {
    let mut bench = opened(2, None);
    assert_eq!(bench.show(0, data(0), &[])[0].0, 1);
    // Number 1 is missing, and held at the second, where it is number 0.
    let left = bench.show(0, data(2), &[]);
    assert_eq!((left.len(), left[0].0, left[0].1.seq), (1, 2, 1));
    let before = bench.forged();
    for (member, number) in [(1, 2), (1, 5), (2, 1), (2, 2), (2, 90), (1, u32::MAX / 2)] {
        let left = bench.show(member, ack(number), &[]);
        assert!(left.iter().all(|(side, _)| *side == member), "the peer hears nothing: {left:?}");
    }
    assert_eq!(bench.forged() - before, 6);
    // Ranges of the same kind are not believed.
    for ranges in [&[(0, 1), (3, 9)][..], &[(5, 6)], &[(1, 0)], &[(0, u32::MAX)], &[(u32::MAX, 1)]] {
        let left = bench.show(2, ack(0), ranges);
        assert!(left.iter().all(|(_, packet)| packet.ack == 0), "{left:?}");
    }
    assert_eq!(bench.switch.session(0).outstanding().0, 3);
}

#[test]
fn a_peer_cannot_acknowledge_what_did_not_come() {
    let mut bench = opened(2, None);
    bench.show(1, data(0), &[]);
    bench.show(2, data(1), &[]);
    // The second one's first is missing: number 1 is held for it.
    for number in [2, 3, 4, 1000] {
        let left = bench.show(0, ack(number), &[]);
        assert!(left.iter().all(|(side, _)| *side == 0), "no member hears it: {left:?}");
    }
    assert_eq!(bench.forged(), 4);
    let left = bench.show(0, ack(1), &[(1, 3), (7, 9)]);
    assert!(left.iter().all(|(side, packet)| *side != 2 || packet.ack == 0), "{left:?}");
}

#[test]
fn an_echo_is_worth_no_more_than_its_packets_carried() {
    // A member of two claims ten times what its packet was granted.
    let mut bench = opened(2, Some(Content::Feedback));
    (0..2).for_each(|seq| drop(bench.show(0, tolled(seq, 100.0), &[])));
    assert!(bench.show(2, echoing(1, 60.0), &[]).is_empty(), "the first is waited for");
    let left = bench.show(1, echoing(1, 1000.0), &[]);
    assert_eq!((left[0].0, left[0].1.toll.echo), (0, 120.0), "twice the lesser");
    // The peer claims it.
    let mut bench = opened(2, Some(Content::Feedback));
    for side in 1..=2 {
        bench.show(side, tolled(0, 100.0), &[]);
    }
    for (side, packet) in bench.show(0, echoing(2, 1e9), &[]) {
        assert!(side > 0 && packet.toll.echo <= 100.0, "{side} {packet:?}");
    }
    // A price below what links before the switch asked.
    let mut bench = opened(1, Some(Content::Price));
    bench.show(0, tolled(0, 5e-8), &[]);
    let left = bench.show(1, echoing(1, 1e-18), &[]);
    assert_eq!(left[0].1.toll.echo, 5e-8);
}

#[test]
fn a_reset_must_know_the_number() {
    let mut bench = opened(2, None);
    bench.show(0, data(0), &[]);
    for seq in [0, 5, 77] {
        let reset = Packet { seq, flags: Flags::RST, size: 40, ..Packet::default() };
        bench.show(0, reset, &[]);
        if seq != 0 {
            bench.show(1, reset, &[]);
        }
    }
    assert!(!bench.switch.session(0).is_reset());
    assert_eq!(bench.switch.session(0).stats().failures, 0);
    let reset = Packet { seq: 1, flags: Flags::RST, size: 40, ..Packet::default() };
    let left = bench.show(0, reset, &[]);
    assert!(bench.switch.session(0).is_reset());
    assert_eq!(left.iter().map(|left| left.0).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn what_is_sent_outside_the_ring_is_refused() {
    let mut bench = opened(2, None);
    for seq in [64, 1000, u32::MAX] {
        let left = bench.show(0, data(seq), &[]);
        assert!(left.iter().all(|(side, _)| *side == 0), "{left:?}");
        bench.show(1, data(seq), &[]);
    }
    assert_eq!(bench.switch.session(0).outstanding(), (0, 0));
}

#[test]
fn replays_change_nothing() {
    let mut net = Net::new(21, 3, Opener::Peer);
    let log = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let taken = log.clone();
    net.watch = Box::new(move |side, packet, _| taken.borrow_mut().push((side, *packet)));
    net.open();
    net.write(0, 300, 1000);
    (1..=3).for_each(|side| net.write(side, 100, 1000));
    for _ in 0..40 {
        net.drive(Time::from_millis(10));
        // Everything that came so far comes again, the latest first.
        let all: Vec<(usize, Packet)> = log.borrow().iter().rev().take(300).copied().collect();
        for (side, packet) in all.into_iter().filter(|(_, packet)| !packet.flags.has(Flags::SACK)) {
            net.at_switch(side, packet, SackRanges::EMPTY);
        }
        log.borrow_mut().truncate(3000);
    }
    net.drive(Time::from_secs(60));
    net.check_delivery(0, 300);
    (1..=3).for_each(|source| drop(net.check_delivery(source, 100)));
    assert!(net.ends.iter().all(|end| !end.events.contains(&Event::Reset)));
}

fn number() -> impl Strategy<Value = u32> {
    prop_oneof![6 => 0u32..70, 1 => any::<u32>(), 1 => (0u32..40).prop_map(|n| u32::MAX - n)]
}

fn packets() -> impl Strategy<Value = (Packet, Vec<(u32, u32)>)> {
    let toll = (any::<f64>(), any::<f32>(), any::<f32>(), any::<f32>(), any::<f32>());
    let ranges = prop::collection::vec((number(), number()), 0..5);
    let rest = (number(), number(), any::<u32>(), number(), any::<u16>(), any::<u16>(), 0u8..12);
    (toll, rest, ranges).prop_map(|((due, rtt, offer, stake, echo), rest, ranges)| {
        let (seq, ack, sent, window, size, flags, kind) = rest;
        // Mostly what gets somewhere.
        let flags = match kind {
            0..5 => FRAME.with(Flags::ACK).with(Flags::TOLLED),
            5..9 => Flags::ACK.with(Flags::ECHO),
            9 => Flags(flags & !Flags::RST.0),
            10 => FRAME,
            _ => Flags(flags),
        };
        let flags = Flags(flags.0 & !Flags::SACK.0);
        let toll = Toll { due, rtt, offer, stake, echo };
        let (sent, sent_echo) = (Stamp(sent), Stamp(seq));
        (Packet { toll, seq, ack, sent, sent_echo, window, size, flags, ..Packet::default() }, ranges)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever comes from whichever side: no panic, no growth, and never more than a packet for
    /// each member and number that leaves.
    #[test]
    fn no_packet_panics_or_grows(
        members in 1u32..4,
        content in prop_oneof![Just(None), Just(Some(Content::Feedback)), Just(Some(Content::Price))],
        story in prop::collection::vec((packets(), 0u32..4, 0u64..2000, any::<bool>()), 1..150),
    ) {
        let mut bench = Bench::new(members as usize, content);
        for ((packet, ranges), side, millis, timer) in story {
            bench.now += Time::from_millis(millis);
            if timer {
                bench.switch.handle_timeout(bench.now);
            }
            let left = bench.show(side % (members + 1), packet, &ranges);
            prop_assert!(left.len() <= 64 * members as usize + 70, "{} packets", left.len());
            for (_, packet) in left.iter().filter(|(_, packet)| packet.flags.has(Flags::ECHO)) {
                prop_assert!(!packet.toll.echo.is_nan());
            }
            let (inbound, outbound) = bench.switch.session(0).outstanding();
            prop_assert!(inbound <= 64 && outbound <= 64);
            bench.switch.handle_timeout(bench.now);
            bench.drain();
            prop_assert!(bench.switch.poll_timeout() > bench.now, "it would be called again and again");
        }
    }
}
