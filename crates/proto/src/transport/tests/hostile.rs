//! Packets that no honest sender sends.

use std::sync::Arc;

use proptest::prelude::*;
use tollway_law::sender::{AnySender, CubicConfig, NewRenoConfig, XcpConfig};
use tollway_law::{Time, Toll};

use super::super::{Config, Connection, Detection, FlowControl, Reader, WindowGrowth};
use crate::{Flags, Packet, SackRanges, Stamp};

/// Numbers near those in use are what breaks things; any other is tried as well.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![0u32..40, any::<u32>(), (0u32..40).prop_map(|n| u32::MAX - n)]
}

fn float() -> impl Strategy<Value = f64> {
    prop_oneof![any::<f64>(), -1e6..1e6, Just(f64::NAN), Just(f64::INFINITY)]
}

fn packets() -> impl Strategy<Value = (Packet, SackRanges)> {
    let toll = (float(), any::<f32>(), any::<f32>(), any::<f32>());
    let ranges = prop::collection::vec((number(), number()), 0..5);
    (toll, number(), number(), any::<u32>(), any::<u32>(), number(), any::<u16>(), any::<u16>(), ranges)
        .prop_map(|((due, rtt, offer, echo), seq, ack, sent, sent_echo, window, size, flags, ranges)| {
            let mut sack = SackRanges::EMPTY;
            for (start, end) in ranges {
                sack.push(start, end);
            }
            let packet = Packet {
                toll: Toll { due, rtt, offer, stake: 0.0, echo },
                seq,
                ack,
                sent: Stamp(sent),
                sent_echo: Stamp(sent_echo),
                window,
                size,
                // Resets end the story early: fewer of them.
                flags: Flags(if seq % 7 == 0 { flags } else { flags & !Flags::RST.0 }),
                ..Packet::default()
            };
            (packet, sack)
        })
}

fn connection(choice: u8, server: bool) -> Connection {
    let detection = match choice & 3 {
        _ if choice & 128 != 0 => Detection::Ns2,
        0 | 1 => Detection::Rfc6675,
        2 => Detection::Rack { tail_probe: true },
        _ => Detection::Rack { tail_probe: false },
    };
    let config = Arc::new(Config {
        sack: choice & 3 != 0,
        detection,
        handshake: choice & 4 != 0,
        delayed_ack: (choice & 8 != 0).then_some(Time::from_millis(40)),
        window_growth: if choice & 16 != 0 {
            WindowGrowth::Feedback { initial: 2 }
        } else {
            WindowGrowth::Whole
        },
        receive_buffer: 1 << 16,
        send_buffer: 256,
        reader: if choice & 32 != 0 { Reader::Every(Time::from_millis(20)) } else { Reader::AtOnce },
        flow_control: if choice & 96 == 96 { FlowControl::Soft } else { FlowControl::Credit },
        ..Config::default()
    });
    let law: AnySender = match choice % 3 {
        0 => NewRenoConfig::default().build().into(),
        1 => CubicConfig::default().build().into(),
        _ => XcpConfig::default().build().into(),
    };
    match server {
        true => Connection::server(&config, law, 0),
        false => Connection::client(&config, law, 0),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        rng_seed: proptest::test_runner::RngSeed::Fixed(20251122),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_packet_panics_or_corrupts(
        choice: u8,
        server: bool,
        story in prop::collection::vec((packets(), 0u64..400, any::<bool>()), 1..60),
    ) {
        let mut end = connection(choice, server);
        let mut now = Time::from_secs(1);
        end.open(now);
        end.write_frame(100_000);
        end.write_unlimited();
        let (mut out, mut sack) = (Packet::default(), SackRanges::EMPTY);
        for (i, ((packet, ranges), millis, timer)) in story.iter().enumerate() {
            now += Time::from_millis(*millis);
            if *timer {
                end.handle_timeout(now);
            }
            let kept = |end: &Connection| end.stats().segments_received - end.stats().duplicates;
            let (before, awaited) = (kept(&end), end.awaits(packet));
            let within = packet.seq.wrapping_sub(end.expected()) < end.receive_window();
            end.handle_packet(now, packet, ranges);
            // It accepts expected packets only, and those within a window that grows with the
            // packet.
            let segment = packet.flags.0 & (Flags::DATA.0 | Flags::FIN.0) != 0;
            prop_assert!(!within || (awaited && segment) == (kept(&end) > before));
            prop_assert!(within || !awaited);
            let mut burst = 0;
            while end.poll_transmit(now, &mut out, &mut sack) {
                burst += 1;
                prop_assert!(burst < 1000);
            }
            while end.poll_event().is_some() {}
            end.check_counts();
            prop_assert!(end.outstanding() <= 257);
            prop_assert!(end.cwnd().is_finite() && end.cwnd() >= 1.0);
            if i == 40 {
                end.stop();
            }
        }
    }
}

/// A sender without handshake that has ten segments in flight, 0…9.
fn sender() -> (Connection, Time) {
    let config = Arc::new(Config { handshake: false, ..Config::default() });
    let mut end = Connection::client(&config, NewRenoConfig::default().build().into(), 0);
    let now = Time::from_secs(1);
    end.open(now);
    end.write_unlimited();
    let (mut out, mut sack) = (Packet::default(), SackRanges::EMPTY);
    while end.poll_transmit(now, &mut out, &mut sack) {}
    assert_eq!(end.outstanding(), 10);
    (end, now)
}

#[test]
fn an_acknowledgement_of_what_was_never_sent_is_ignored() {
    let (mut end, now) = sender();
    let packet = Packet { flags: Flags::ACK, ack: 11, window: 1000, size: 40, ..Packet::default() };
    end.handle_packet(now, &packet, &SackRanges::EMPTY);
    assert_eq!(end.outstanding(), 10);
}

#[test]
fn ranges_outside_the_flight_are_ignored() {
    let (mut end, now) = sender();
    let flags = Flags::ACK.with(Flags::SACK);
    for range in [(0, 4), (5, 11), (11, 20), (7, 7), (8, 3), (u32::MAX - 3, 2)] {
        let mut sack = SackRanges::EMPTY;
        sack.push(range.0, range.1);
        end.handle_packet(now, &Packet { flags, window: 1000, size: 40, ..Packet::default() }, &sack);
        assert_eq!(end.in_flight(), 10, "{range:?}");
        assert!(!end.recovering());
    }
}

#[test]
fn a_blind_reset_is_answered_not_obeyed() {
    let (mut end, now) = sender();
    let mut out = Packet::default();
    let mut sack = SackRanges::EMPTY;
    let reset = |seq| Packet { flags: Flags::RST, seq, size: 40, ..Packet::default() };
    end.handle_packet(now, &reset(5), &sack);
    assert!(end.poll_transmit(now, &mut out, &mut sack));
    assert!(out.flags.has(Flags::ACK) && !out.flags.has(Flags::DATA));
    end.handle_packet(now, &reset(0), &sack);
    assert_eq!(end.state(), super::super::State::Reset);
}

#[test]
fn data_beyond_the_window_is_not_kept() {
    let config = Arc::new(Config { handshake: false, receive_buffer: 10 * 1460, ..Config::default() });
    let mut end = Connection::server(&config, NewRenoConfig::default().build().into(), 0);
    let data = |seq| Packet { flags: Flags::DATA, seq, size: 1500, ..Packet::default() };
    let now = Time::from_secs(1);
    for seq in [10, 11, u32::MAX, 1 << 31] {
        // The one before the window may be a late one.
        assert_eq!((end.awaits(&data(seq)), end.fits(&data(seq))), (false, seq == u32::MAX), "{seq}");
        end.handle_packet(now, &data(seq), &SackRanges::EMPTY);
    }
    assert!(end.awaits(&data(9)) && end.fits(&data(9)));
    assert!([39, 1501].iter().all(|&size| !end.fits(&Packet { size, ..data(9) })));
    assert_eq!(end.stats().duplicates, 4);
    // One kept for later counts once, however often it comes.
    (0..3).for_each(|_| end.handle_packet(now, &data(9), &SackRanges::EMPTY));
    assert!(!end.awaits(&data(9)) && end.fits(&data(9)));
    assert_eq!((end.stats().duplicates, end.stats().segments_delivered), (6, 0));
    (0..9).rev().for_each(|seq| end.handle_packet(now, &data(seq), &SackRanges::EMPTY));
    assert_eq!(end.stats().segments_delivered, 10);
}

#[test]
fn what_was_reported_received_and_is_missing_after_all_is_sent_again() {
    let (mut end, now) = sender();
    let (mut out, mut sack) = (Packet::default(), SackRanges::EMPTY);
    let ack = |flags, ack| Packet { flags, ack, window: 1000, size: 40, ..Packet::default() };
    sack.push(1, 3);
    end.handle_packet(now, &ack(Flags::ACK.with(Flags::SACK), 0), &sack);
    // It has dropped them (RFC 2018 § 8).
    end.handle_packet(now, &ack(Flags::ACK, 1), &SackRanges::EMPTY);
    while end.poll_transmit(now, &mut out, &mut sack) {}
    let then = end.poll_timeout();
    end.handle_timeout(then);
    assert!(end.poll_transmit(then, &mut out, &mut sack));
    assert_eq!(out.seq, 1);
}

#[test]
fn what_an_overtaken_acknowledgement_says_still_holds() {
    let config = Arc::new(Config { handshake: false, ..Config::default() });
    for (law, flags, before, after) in [
        (XcpConfig::default().build().into(), Flags::ECHO, 2.0, 3.0),
        // Half of the eight in flight.
        (NewRenoConfig::default().build().into(), Flags::ECE, 12.0, 4.0),
    ] {
        let mut end = Connection::client(&config, law, 0);
        let (sent, now) = (Time::from_secs(1), Time::from_millis(1100));
        end.open(sent);
        end.write_unlimited();
        let (mut out, mut sack) = (Packet::default(), SackRanges::EMPTY);
        while end.poll_transmit(sent, &mut out, &mut sack) {}
        let stamped = Flags::ACK.with(Flags::STAMP_ECHO);
        let mut ack =
            Packet { flags: stamped, ack: 2, window: 1000, sent_echo: Stamp::at(sent), ..Packet::default() };
        end.handle_packet(now, &ack, &SackRanges::EMPTY);
        assert_eq!(end.cwnd(), before);
        // 15 000 B/s for 0.1 s are a segment.
        (ack.ack, ack.flags, ack.toll.echo) = (1, stamped.with(flags), 15_000.0);
        end.handle_packet(now, &ack, &SackRanges::EMPTY);
        assert!((end.cwnd() - after).abs() < 1e-6, "{}", end.cwnd());
    }
}
