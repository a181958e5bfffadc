//! Applications that read at their own pace, behind credit and behind soft flow control.

use tollway_law::Time;
use tollway_law::sender::{AnySender, LossResponse, NewRenoConfig, XcpConfig};

use super::super::{Buffer, Config, FlowControl, Reader};
use super::pair::{CLIENT, Faults, Pair, SERVER};
use crate::Flags;

const LONG: Time = Time::from_secs(600);
const MS: Time = ms(1);

const fn ms(n: u64) -> Time {
    Time::from_millis(n)
}

/// A buffer of 20 segments of 1460 bytes that the application empties one every `interval`.
fn slow(interval: Time) -> Config {
    let reader = Reader::Every(interval);
    Config { receive_buffer: 20 * 1460, handshake: false, reader, ..Config::default() }
}

fn soft(interval: Time) -> Config {
    Config { flow_control: FlowControl::Soft, ..slow(interval) }
}

fn xcp() -> AnySender {
    XcpConfig { pacing: true, advertise_limit: false, on_loss: LossResponse::Keep, ..Default::default() }
        .build()
        .into()
}

fn reno() -> AnySender {
    NewRenoConfig::default().build().into()
}

fn buffer(pair: &Pair) -> Buffer {
    pair.ends[SERVER].buffer().expect("it has a reader")
}

#[test]
fn frames_are_delivered_when_they_are_read_and_not_before() {
    let config = Config { reader: Reader::Every(Time::from_millis(30)), ..slow(MS) };
    let mut pair = Pair::new(&config);
    pair.latency = Time::from_millis(5);
    pair.open();
    pair.client().write_frames(2000, 3);
    pair.client().finish();
    pair.check = Box::new(|pair| {
        let since = pair.now.saturating_sub(Time::from_secs(1) + Time::from_millis(5));
        let read = (since.0 / Time::from_millis(30).0 + 1).min(3);
        assert!(pair.ends[SERVER].stats().frames_delivered <= read, "at {}", pair.now);
    });
    assert!(pair.drive(LONG));
    assert_eq!(pair.frames(SERVER), [2000; 3]);
    // The first as it comes, two more after 30 ms each; the end is heard of when they are read.
    assert_eq!(pair.now, Time::from_secs(1) + Time::from_millis(5 + 90));
    assert_eq!(buffer(&pair), Buffer { most_unread: 2 * 2000, ..Buffer::default() });
    assert!(pair.server().has_peer_finished());
}

#[test]
fn credit_never_lets_more_in_than_the_buffer_holds_and_keeps_the_reader_busy() {
    for (law, predicts) in [(reno as fn() -> AnySender, false), (reno, true), (xcp, false), (xcp, true)] {
        for rtt_ms in [1, 10, 40] {
            let mut pair = Pair::with_laws(&slow(ms(4)), law(), law());
            pair.predicts = predicts;
            (pair.latency, pair.due) = (Time::from_micros(500 * rtt_ms), 1e6);
            pair.open();
            pair.client().write_unlimited();
            pair.check = Box::new(|pair| assert!(buffer(pair).unread <= 20 * 1460));
            pair.drive(Time::from_secs(4));
            let read = pair.server().stats().segments_delivered;
            // 4 ms each: 1000 in 4 s, but for the first round trips.
            assert!((950..=1001).contains(&read), "{rtt_ms} ms: {read} segments");
            assert_eq!(buffer(&pair).dropped, 0);
            let stats = pair.client().stats();
            assert_eq!((stats.retransmissions, stats.timeouts), (0, 0), "{rtt_ms} ms");
        }
    }
}

#[test]
fn a_window_that_was_shut_is_opened_again_though_every_update_is_lost() {
    let mut pair = Pair::new(&slow(Time::from_millis(2)));
    pair.open();
    pair.client().write_frames(1460, 300);
    pair.client().finish();
    // Updates echo no stamp; answers do.
    pair.lose = Box::new(|side, packet| side == SERVER && !packet.flags.has(Flags::STAMP_ECHO));
    assert!(pair.drive(LONG));
    assert_eq!(pair.frames(SERVER).len(), 300);
}

#[test]
fn a_square_wave_reads_now_fast_now_slowly() {
    let reader = Reader::Wave { first: MS, second: ms(4), period: Time::from_secs(2) };
    let mut pair = Pair::new(&Config { reader, ..slow(MS) });
    (pair.latency, pair.predicts) = (MS, true);
    pair.open();
    pair.client().write_unlimited();
    // It is 1 s at the start: the slow half.
    let mut read = Vec::new();
    for _ in 0..3 {
        let before = pair.server().stats().segments_delivered;
        pair.drive(Time::from_secs(1));
        read.push(pair.server().stats().segments_delivered - before);
    }
    assert!(
        read[0].abs_diff(250) < 10 && read[1].abs_diff(1000) < 10 && read[2].abs_diff(250) < 10,
        "{read:?}"
    );
}

#[test]
fn a_reader_may_change_on_the_way_and_so_may_its_buffer() {
    let mut pair = Pair::new(&Config { receive_buffer: 20 * 1460, ..Config::default() });
    (pair.latency, pair.predicts) = (MS, true);
    pair.open();
    pair.client().write_unlimited();
    pair.drive(Time::from_secs(1));
    assert_eq!(pair.server().buffer(), None);
    pair.server().set_reader(Reader::Every(ms(5)));
    let before = pair.server().stats().segments_delivered;
    pair.drive(Time::from_secs(1));
    let read = pair.server().stats().segments_delivered - before;
    assert!(read.abs_diff(200) < 4, "{read}");
    assert_eq!(buffer(&pair).most_unread, 20 * 1460);
    pair.server().set_receive_buffer(40);
    pair.drive(Time::from_secs(1));
    assert_eq!(buffer(&pair).most_unread, 40 * 1460);
    pair.server().set_reader(Reader::AtOnce);
    pair.drive(Time::from_millis(100));
    assert!(buffer(&pair).unread <= 1460, "{:?}", buffer(&pair));
}

#[test]
fn a_soft_receiver_finds_the_rate_of_its_reader_and_stays_below_its_buffer() {
    for interval in [2, 4, 8] {
        let mut pair = Pair::with_laws(&soft(Time::from_millis(interval)), xcp(), xcp());
        (pair.latency, pair.due) = (Time::from_millis(5), 1e9);
        pair.open();
        pair.client().write_unlimited();
        pair.drive(Time::from_secs(3));
        let before = (pair.server().stats().segments_delivered, buffer(&pair).dropped);
        pair.drive(Time::from_secs(4));
        let read = pair.server().stats().segments_delivered - before.0;
        let most = 4000 / interval;
        assert!(read * 100 >= most * 75 && read <= most + 1, "{interval} ms: {read} of {most}");
        assert!(buffer(&pair).unread <= 20 * 1460);
        assert!(buffer(&pair).dropped - before.1 <= read / 50, "{interval} ms: {:?}", buffer(&pair));
    }
}

#[test]
fn a_soft_receiver_bounds_the_rate_by_its_buffer_where_the_reader_is_fast() {
    let mut pair = Pair::with_laws(&soft(Time(1000)), xcp(), xcp());
    (pair.latency, pair.due) = (Time::from_millis(50), 1e9);
    pair.open();
    pair.client().write_unlimited();
    pair.drive(Time::from_secs(20));
    // λ_target ≤ B/d: twenty segments a round trip of 100 ms.
    let before = pair.server().stats().segments_delivered;
    pair.drive(Time::from_secs(5));
    let read = pair.server().stats().segments_delivered - before;
    assert!((850..=1050).contains(&read), "{read}");
}

#[test]
fn an_overflow_is_told_by_halves_and_everything_comes_once_and_in_order() {
    for seed in 1..20 {
        let mut pair = Pair::with_laws(&soft(ms(3)), xcp(), xcp());
        pair.seed(seed);
        pair.faults = Faults { loss: 0.02, duplicate: 0.05, reorder: 0.1 };
        (pair.latency, pair.disorder) = (Time::from_millis(5), Time::from_millis(20));
        (pair.due, pair.predicts) = (1e6, true);
        pair.open();
        let sizes: Vec<u64> = (0..400).map(|i| 1 + (i * 37) % 1400).collect();
        sizes.iter().for_each(|&size| pair.client().write_frame(size));
        pair.client().finish();
        pair.check = Box::new(|pair| {
            let held = pair.ends[SERVER].receive.reading.as_ref().map_or(0, |reading| reading.held());
            assert!(held <= 20 * 1460, "{held} bytes held");
        });
        assert!(pair.drive(LONG), "seed {seed}");
        assert_eq!(pair.frames(SERVER), sizes, "seed {seed}");
        assert!(pair.events[CLIENT].contains(&super::super::Event::Finished));
    }
}

#[test]
fn a_flood_against_soft_flow_control_is_dropped_at_the_buffer() {
    // A sender that takes no notice of feedback: NewReno, which fills whatever window it is shown.
    let mut pair = Pair::with_laws(&soft(ms(5)), reno(), reno());
    (pair.latency, pair.predicts) = (MS, true);
    pair.open();
    pair.client().write_unlimited();
    pair.check = Box::new(|pair| {
        let held = pair.ends[SERVER].receive.reading.as_ref().map_or(0, |reading| reading.held());
        assert!(held <= 20 * 1460, "{held} bytes held");
    });
    pair.drive(Time::from_secs(5));
    assert!(buffer(&pair).dropped > 0);
    // Of 1000 that it could read: it goes on, from timeout to timeout.
    assert!(pair.server().stats().segments_delivered > 400, "{:?}", pair.server().stats());
}
