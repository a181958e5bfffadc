//! The senders of ns-2, packet by packet.

use tollway_law::Time;
use tollway_law::sender::NewRenoConfig;

use super::super::{Config, Detection, Rto};
use super::pair::{CLIENT, Pair};
use crate::{Flags, Packet};

/// Transmissions compared per transfer.
const SENT: usize = 110;

/// The first segments that the sender transmits, as runs of numbers, if the channel loses the
/// transmissions that `lost` counts from 0.
fn sent(sack: bool, lost: &'static [usize]) -> String {
    let law = || NewRenoConfig { initial_window: 2.0, ..NewRenoConfig::default() }.build().into();
    let rto = Rto { initial: Time::from_secs(3), ..Rto::default() };
    let config = Config { handshake: false, detection: Detection::Ns2, sack, rto, ..Config::default() };
    let mut pair = Pair::with_laws(&config, law(), law());
    // A little more than ns-2's timer of twice the round trip, as its links take time to send.
    pair.latency = Time::from_micros(50_001);
    let mut count = 0;
    pair.lose = Box::new(move |side, packet: &Packet| {
        let data = side == CLIENT && packet.flags.has(Flags::DATA);
        count += usize::from(data);
        data && lost.contains(&(count - 1))
    });
    pair.open();
    pair.client().write_unlimited();
    let mut numbers = Vec::new();
    while numbers.len() < SENT {
        assert!(pair.step());
        let data =
            pair.sent.iter().filter(|(_, side, packet)| *side == CLIENT && packet.flags.has(Flags::DATA));
        numbers = data.map(|(_, _, packet)| packet.seq).collect();
    }
    numbers.truncate(SENT);
    let runs = numbers.chunk_by(|a, b| a + 1 == *b);
    let text = runs.map(|run| match run {
        [one] => one.to_string(),
        _ => format!("{}-{}", run[0], run[run.len() - 1]),
    });
    text.collect::<Vec<_>>().join(" ")
}

/// Recorded from ns-2.35: 50 ms each way, an `ErrorModel/List`.
#[test]
fn both_senders_send_what_ns_2_sends() {
    for (sack, lost, expected) in [
        (true, &[12, 16, 20, 24, 34][..], "0-27 12 16 20 24 28-38 30 39-104"),
        (true, &[12, 14, 16, 18, 20, 22, 24, 26, 28], "0-27 12 12 14-93"),
        (true, &[4, 5, 8, 20], "0-11 4-5 8 12-22 17 23-105"),
        (true, &[10, 11, 14, 17, 30, 33, 35], "0-23 10-11 14 17 24-33 26 29 31 34-102"),
        (false, &[12, 16, 20, 24, 34], "0-27 12 28-30 16 31-34 20 35-37 20-21 24-27 32-36 38-95"),
        (false, &[12, 14, 16, 18, 20, 22, 24, 26, 28], "0-27 12 12 14-93"),
        (false, &[4, 5, 8, 20], "0-11 4-5 12 8 13-14 8 13-103"),
        (false, &[10, 11, 14, 17, 30, 33, 35], "0-23 10 24-25 11 26-28 14 29-31 14 17-20 28-97"),
        (
            true,
            &[1, 10, 17, 18, 21, 22, 24, 26, 27, 28, 36, 38, 41, 50, 57, 70, 80, 84, 86, 88, 90, 93, 98],
            "0-5 1 6-13 9 14-16 15-18 17-20 18 18 18 20-31 26 28-29 31-41 36 42-44 42 45-59 54 60-67 63 68 67-70 68 70-73 71 74-77 75 78-85",
        ),
        (
            true,
            &[2, 5, 9, 12, 14, 16, 17, 18, 19, 21, 26, 28],
            "0-7 2 5 8-10 5 10-12 10 10 10 10 12-15 12 16-18 16 18-97",
        ),
        (false, &[4, 5, 11, 33, 42, 53], "0-11 4-5 12 11 13-14 11 13-33 27 34-39 35 40-50 45 51-100"),
        (
            true,
            &[9, 12, 44, 46, 48, 50, 52, 54, 62, 65, 75, 76],
            "0-21 9 12 22-51 42 42 44-54 50 53-65 60-62 66-91",
        ),
    ] {
        assert_eq!(sent(sack, lost), expected, "sack {sack}, lost {lost:?}");
    }
}

#[test]
fn a_transfer_ends() {
    for sack in [true, false] {
        let config = Config { detection: Detection::Ns2, sack, ..Config::default() };
        let mut pair = Pair::new(&config);
        pair.faults.loss = 0.1;
        pair.open();
        pair.client().write_frame(1_000_000);
        pair.client().finish();
        pair.server().finish();
        assert!(pair.drive(Time::from_secs(3600)));
        assert_eq!(pair.frames(1), [1_000_000]);
    }
}
