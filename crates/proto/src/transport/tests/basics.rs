//! Opening, sending, closing.

use tollway_law::sender::{NewRenoConfig, XcpConfig};
use tollway_law::{Time, Toll};

use super::super::{Config, Event, State, WindowGrowth};
use super::pair::{CLIENT, Pair, SERVER};
use crate::{Flags, Packet, SackRanges};

const LONG: Time = Time::from_secs(600);

#[test]
fn a_frame_crosses_with_handshake_and_without() {
    for handshake in [true, false] {
        let mut pair = Pair::new(&Config { handshake, ..Config::default() });
        pair.open();
        pair.client().write_frame(10_000);
        pair.client().finish();
        pair.server().finish();
        assert!(pair.drive(LONG));
        assert_eq!(pair.frames(SERVER), [10_000]);
        let client = [Event::Connected, Event::PeerFinished, Event::Finished, Event::Closed];
        for event in client {
            assert_eq!(pair.events[CLIENT].iter().filter(|&&e| e == event).count(), 1, "{event:?}");
            assert_eq!(pair.events[SERVER].iter().filter(|&&e| e == event).count(), 1, "{event:?}");
        }
        // 10 000 bytes in segments of 1460: seven, one or two of control beside them, nothing
        // twice.
        let stats = pair.client().stats();
        assert_eq!(stats.segments_sent, 7 + 1 + u64::from(handshake));
        assert_eq!((stats.retransmissions, stats.timeouts), (0, 0));
        assert_eq!(pair.server().stats().bytes_delivered, 10_000);
        assert_eq!(pair.client().srtt(), Time::from_millis(100));
        assert_eq!(pair.client().poll_timeout(), Time::NEVER);
    }
}

#[test]
fn frames_of_any_size_arrive_one_by_one_both_ways() {
    let sizes = [0, 1, 1459, 1460, 1461, 2920, 100_000, 0, 3];
    let mut pair = Pair::new(&Config::default());
    pair.open();
    for size in sizes {
        pair.client().write_frame(size);
        pair.server().write_frame(size + 1);
    }
    assert!(pair.drive(LONG));
    assert_eq!(pair.frames(SERVER), sizes);
    assert_eq!(pair.frames(CLIENT), sizes.map(|size| size + 1));
}

#[test]
fn data_carries_the_acknowledgement_when_it_flows_both_ways() {
    let config = Config { handshake: false, delayed_ack: Some(Time::from_millis(500)), ..Config::default() };
    let mut pair = Pair::new(&config);
    pair.open();
    pair.client().write_frame(100);
    pair.drive(Time::from_millis(50));
    assert_eq!(pair.server().stats().frames_delivered, 1);
    pair.server().write_frame(200);
    pair.drive(Time::from_millis(60));
    assert_eq!(pair.client().outstanding(), 0, "acknowledged by the answer");
    assert_eq!((pair.server().stats().acks_sent, pair.server().stats().segments_sent), (0, 1));
    assert_eq!(pair.client().srtt(), Time::from_millis(100));
}

#[test]
fn a_lost_syn_is_repeated_without_shrinking_the_window() {
    let mut pair = Pair::new(&Config::default());
    let mut syns = 0;
    pair.lose = Box::new(move |_, packet| {
        syns += u32::from(packet.flags.has(Flags::SYN));
        packet.flags.has(Flags::SYN) && syns < 3
    });
    pair.open();
    pair.client().write_frame(100);
    assert!(pair.drive(LONG));
    assert_eq!(pair.frames(SERVER), [100]);
    assert_eq!(pair.client().stats().timeouts, 2);
    assert!(pair.client().cwnd() >= 10.0);
    let times: Vec<_> =
        pair.sent.iter().filter(|s| s.1 == CLIENT && s.2.flags.has(Flags::SYN)).map(|s| s.0).collect();
    assert_eq!(times, [1, 2, 4].map(Time::from_secs));
}

#[test]
fn stop_drops_what_was_not_sent_and_repairs_what_was() {
    let mut pair = Pair::new(&Config::default());
    let mut lost = false;
    pair.lose = Box::new(move |_, packet| {
        let lose = packet.seq == 5 && packet.flags.has(Flags::DATA) && !lost;
        lost |= lose;
        lose
    });
    pair.open();
    pair.client().write_unlimited();
    while pair.client().stats().segments_sent < 8 {
        assert!(pair.step());
    }
    pair.client().stop();
    pair.server().finish();
    assert!(pair.drive(LONG));
    assert!(pair.events[CLIENT].contains(&Event::Closed));
    assert!(pair.events[SERVER].contains(&Event::PeerFinished));
    let data = pair.client().stats().segments_sent - pair.client().stats().retransmissions - 2;
    assert_eq!(pair.server().stats().bytes_delivered, data * 1460);
}

#[test]
fn an_abort_resets_the_other_side() {
    let mut pair = Pair::new(&Config::default());
    pair.open();
    pair.client().write_unlimited();
    pair.drive(Time::from_millis(500));
    pair.client().abort();
    assert!(pair.drive(LONG));
    assert_eq!(pair.server().state(), State::Reset);
    assert_eq!(pair.events[SERVER].last(), Some(&Event::Reset));
}

#[test]
fn numbers_wrap() {
    let mut pair = Pair::new(&Config { initial_segment: u32::MAX - 20, ..Config::default() });
    pair.faults.loss = 0.05;
    pair.open();
    pair.client().write_frame(1_000_000);
    pair.server().write_frame(1_000_000);
    assert!(pair.drive(LONG));
    assert_eq!((pair.frames(SERVER), pair.frames(CLIENT)), (vec![1_000_000], vec![1_000_000]));
}

#[test]
fn delayed_acknowledgements_answer_two_segments_or_wait() {
    let delay = Time::from_millis(40);
    let mut pair = Pair::new(&Config { delayed_ack: Some(delay), handshake: false, ..Config::default() });
    pair.open();
    pair.client().write_frame(1460 * 9);
    assert!(pair.drive(LONG));
    assert_eq!(pair.server().stats().acks_sent, 5);
    let last = pair.sent.last().map(|s| (s.0, s.1));
    assert_eq!(last, Some((Time::from_secs(1) + Time::from_millis(50) + delay, SERVER)));
}

#[test]
fn the_window_obeys_the_receiver_and_grows_as_configured() {
    // 16 segments of buffer: no more are ever outstanding, and the law sees the limit.
    let config = Config { receive_buffer: 16 * 1460, handshake: false, ..Config::default() };
    let mut pair = Pair::new(&config);
    pair.open();
    pair.client().write_unlimited();
    pair.check = Box::new(|pair| assert!(pair.ends[CLIENT].outstanding() <= 16));
    pair.drive(Time::from_secs(3));
    assert_eq!(pair.client().outstanding(), 16);
    assert!(pair.client().cwnd() < 17.0, "{}", pair.client().cwnd());
    // 4 segments and 2 more for each that arrives.
    let growth = WindowGrowth::PerPacket { initial: 4, step: 2 };
    let mut pair = Pair::new(&Config { window_growth: growth, handshake: false, ..Config::default() });
    pair.open();
    pair.client().write_unlimited();
    pair.drive(Time::from_millis(99));
    let windows: Vec<_> = pair.sent.iter().filter(|s| s.1 == SERVER).map(|s| s.2.window).collect();
    assert_eq!(windows, [6, 8, 10, 12]);
}

#[test]
fn the_window_in_flight_is_the_laws() {
    let law = || NewRenoConfig { initial_window: 3.7, ..Default::default() }.build().into();
    let mut pair = Pair::with_laws(&Config::default(), law(), law());
    pair.faults.loss = 0.02;
    pair.check = Box::new(|pair| {
        let end = &pair.ends[CLIENT];
        // Data sent before the window fell may still be in flight; none are added.
        if !end.recovering() {
            assert!(
                f64::from(end.in_flight()) <= end.cwnd().max(1.0) + 3.0,
                "{} {}",
                end.in_flight(),
                end.cwnd()
            );
        }
    });
    pair.open();
    pair.client().write_frame(2_000_000);
    assert!(pair.drive(LONG));
    let burst = pair.sent.iter().filter(|s| s.1 == CLIENT && s.2.flags.has(Flags::DATA));
    let first = burst.clone().next().map(|s| s.0);
    assert_eq!(burst.filter(|s| Some(s.0) == first).count(), 3);
}

#[test]
fn a_closed_direction_still_delivers_the_other() {
    let mut pair = Pair::new(&Config::default());
    pair.open();
    pair.client().finish();
    pair.drive(Time::from_secs(2));
    pair.server().write_frame(50_000);
    pair.server().finish();
    assert!(pair.drive(LONG));
    assert_eq!(pair.frames(CLIENT), [50_000]);
    assert!(pair.events[CLIENT].contains(&Event::Closed) && pair.events[SERVER].contains(&Event::Closed));
}

#[test]
fn tolls_go_out_and_their_sum_comes_back() {
    let law = || XcpConfig { initial_window: 2.0, ..Default::default() }.build().into();
    let config = Config { handshake: false, delayed_ack: Some(Time::from_millis(500)), ..Config::default() };
    let mut pair = Pair::with_laws(&config, law(), law());
    pair.open();
    pair.client().write_frame(2 * 1460);
    pair.drive(Time::from_secs(1));
    let tolled: Vec<_> = pair.sent.iter().filter(|s| s.2.flags.has(Flags::TOLLED)).collect();
    assert_eq!(tolled.len(), 2);
    assert!(tolled.iter().all(|s| s.2.toll.rtt == 0.0 && s.2.toll.due == 0.0));
    let echoes: Vec<_> = pair.sent.iter().filter(|s| s.2.flags.has(Flags::ECHO)).collect();
    assert_eq!(echoes.len(), 1, "one acknowledgement for both");
    // The next ones know the round trip; no link cuts what they ask for, so all of it comes back.
    let start = pair.sent.len();
    pair.client().write_frame(2 * 1460);
    pair.drive(Time::from_secs(1));
    let sent = &pair.sent[start..];
    let asked: f64 = sent.iter().filter(|s| s.2.flags.has(Flags::TOLLED)).map(|s| s.2.toll.due).sum();
    let echoed: f32 = sent.iter().filter(|s| s.2.flags.has(Flags::ECHO)).map(|s| s.2.toll.echo).sum();
    assert!(asked > 0.0);
    assert_eq!(asked as f32, echoed);
}

#[test]
fn a_fin_is_acknowledged_at_once() {
    let delayed_ack = Some(Time::from_millis(500));
    let mut pair = Pair::new(&Config { delayed_ack, handshake: false, ..Config::default() });
    pair.open();
    pair.client().write_frame(1460 * 2);
    pair.client().finish();
    assert!(pair.drive(LONG));
    let last = pair.sent.last().map(|s| (s.0, s.1));
    assert_eq!(last, Some((Time::from_secs(1) + Time::from_millis(50), SERVER)));
}

#[test]
fn a_window_once_advertised_is_not_taken_back() {
    let mut pair = Pair::new(&Config { receive_buffer: 16 * 1460, handshake: false, ..Config::default() });
    pair.open();
    pair.client().write_unlimited();
    pair.drive(Time::from_millis(1010));
    pair.server().set_receive_buffer(4);
    pair.drive(Time::from_secs(1));
    let edges: Vec<u32> = pair.sent.iter().filter(|s| s.1 == SERVER).map(|s| s.2.ack + s.2.window).collect();
    assert!(edges.windows(2).all(|two| two[0] <= two[1]), "{edges:?}");
    assert_eq!(pair.client().outstanding(), 4, "but it shrinks as segments come");
}

#[test]
fn a_window_of_none_stops_the_sender_until_it_opens() {
    let mut pair = Pair::new(&Config { receive_buffer: 16 * 1460, handshake: false, ..Config::default() });
    pair.open();
    pair.server().set_receive_buffer(0);
    pair.client().write_stream(100 * 1460);
    pair.drive(Time::from_millis(250));
    let stuck = pair.server().stats().segments_delivered;
    assert!((16..24).contains(&stuck), "{stuck} segments: the window shown first, and probes");
    pair.server().set_receive_buffer(16);
    pair.drive(Time::from_secs(5));
    assert_eq!(pair.server().stats().segments_delivered, 100);
}

#[test]
fn a_window_that_grows_by_feedback_keeps_what_is_no_whole_segment() {
    let config = Config {
        window_growth: WindowGrowth::Feedback { initial: 4 },
        handshake: false,
        ..Config::default()
    };
    let mut pair = Pair::new(&config);
    let now = pair.now;
    let (mut out, mut sack) = (Packet::default(), SackRanges::EMPTY);
    let windows = [0, 1, 2, 3].map(|seq| {
        let flags = Flags::DATA.with(Flags::TOLLED);
        // Half of a segment a round trip more.
        let toll = Toll { due: 7500.0, rtt: 0.1, ..Toll::default() };
        pair.server().handle_packet(
            now,
            &Packet { seq, size: 1500, flags, toll, ..Packet::default() },
            &sack,
        );
        assert!(pair.server().poll_transmit(now, &mut out, &mut sack));
        out.window
    });
    assert_eq!(windows, [4, 5, 5, 6]);
}

#[test]
fn endless_frames_leave_whole_until_they_are_stopped_and_hold_no_memory() {
    let mut pair = Pair::new(&Config::default());
    pair.open();
    pair.client().write_frames(3000, u64::MAX);
    assert_eq!(pair.client().unsent(), u64::MAX);
    pair.drive(Time::from_secs(1));
    pair.client().stop();
    pair.client().write_frame(1);
    assert!(pair.drive(Time::from_secs(10)));
    let frames = pair.frames(SERVER);
    let told = pair.server().stats().frames_delivered;
    assert!(frames.len() > 100 && frames.iter().all(|&bytes| bytes == 3000), "{}", frames.len());
    assert_eq!(told, frames.len() as u64);
    // Three segments a frame, SYN and FIN; the last frame may have been cut short.
    let sent = pair.client().stats().segments_sent - 2;
    assert_eq!(sent / 3, told);
}

#[test]
fn frames_written_together_are_those_written_one_by_one() {
    let mut pair = Pair::new(&Config::default());
    pair.open();
    pair.client().write_frames(2000, 3);
    pair.client().write_frames(0, 2);
    pair.client().write_frames(5, 0);
    pair.client().write_stream(10);
    pair.client().write_frame(7);
    assert_eq!(pair.client().unsent(), 3 * 2000 + 10 + 7);
    pair.client().finish();
    assert!(pair.drive(Time::from_secs(10)));
    assert_eq!(pair.frames(SERVER), [2000, 2000, 2000, 0, 0, 7]);
}

#[test]
fn what_a_paused_sender_has_not_begun_waits() {
    let mut pair = Pair::new(&Config::default());
    pair.open();
    pair.client().write_frame(500);
    pair.client().set_paused(true);
    pair.client().write_frame(700);
    assert!(pair.drive(LONG));
    assert_eq!(pair.frames(SERVER), []);
    pair.client().set_paused(false);
    assert!(pair.drive(LONG));
    assert_eq!(pair.frames(SERVER), [500, 700]);
}

#[test]
fn a_paused_sender_keeps_its_data_and_its_window() {
    for frames in [true, false] {
        let mut pair = Pair::new(&Config::default());
        pair.predicts = !frames;
        pair.open();
        match frames {
            true => pair.client().write_frames(3000, u64::MAX),
            false => pair.client().write_unlimited(),
        }
        pair.drive(Time::from_secs(1));
        pair.client().set_paused(true);
        assert!(pair.drive(LONG), "what is in flight arrives, and no more leaves");
        let (sent, window) = (pair.client().stats().segments_sent, pair.client().cwnd());
        assert_eq!(pair.client().outstanding(), 0);
        if frames {
            assert_eq!(pair.server().stats().bytes_delivered % 3000, 0, "a frame is finished first");
        }
        pair.client().finish();
        assert!(pair.drive(LONG) && !pair.client().is_finished(), "the end waits, too");
        pair.client().set_paused(false);
        pair.drive(Time::from_millis(10));
        let burst = pair.client().stats().segments_sent - sent;
        assert_eq!((burst, pair.client().cwnd()), (window as u64, window));
    }
}
