//! ECN: what is marked, and what of it comes back.

use tollway_law::Time;

use super::super::{Config, Connection};
use super::pair::{CLIENT, Pair, SERVER};
use crate::{Flags, Packet, SackRanges};

fn config() -> Config {
    Config { ecn: true, delayed_ack: Some(Time::from_millis(40)), handshake: false, ..Config::default() }
}

/// The segments that acknowledgements count as marked, and all that they count, if segments with
/// these marks arrive.
fn echoed(marks: &[bool]) -> (u32, u32) {
    let mut pair = Pair::new(&config());
    let server: &mut Connection = pair.server();
    let (mut una, mut marked, mut all) = (0, 0, 0);
    let mut now = Time::from_secs(1);
    let mut read = |server: &mut Connection, now| {
        let (mut ack, mut sack) = (Packet::default(), SackRanges::EMPTY);
        while server.poll_transmit(now, &mut ack, &mut sack) {
            let n = ack.ack - una;
            una = ack.ack;
            all += n;
            if ack.flags.has(Flags::ECE) {
                marked += n;
            }
            assert!(ack.window > 0 && ack.flags.has(Flags::STAMP_ECHO));
        }
    };
    for (seq, &mark) in marks.iter().enumerate() {
        let mut flags = Flags::DATA.with(Flags::ECT);
        if mark {
            flags.set(Flags::CE);
        }
        let packet = Packet { seq: seq as u32, size: 1500, flags, ..Packet::default() };
        now += Time::from_micros(100);
        server.handle_packet(now, &packet, &SackRanges::EMPTY);
        read(server, now);
    }
    now += Time::from_secs(1);
    server.handle_timeout(now);
    read(server, now);
    (marked, all)
}

#[test]
fn the_echo_is_exact_with_delayed_acknowledgements() {
    // Every pattern of twelve segments.
    for pattern in 0u32..1 << 12 {
        let marks: Vec<bool> = (0..12).map(|i| pattern >> i & 1 == 1).collect();
        assert_eq!(echoed(&marks), (pattern.count_ones(), 12), "{pattern:b}");
    }
}

#[test]
fn fresh_data_can_be_marked_and_repairs_cannot() {
    let mut pair = Pair::new(&Config { delayed_ack: None, ..config() });
    let mut lost = false;
    pair.lose = Box::new(move |side, packet| {
        let hit = side == CLIENT && packet.seq == 3 && !lost;
        lost |= hit;
        hit
    });
    pair.open();
    pair.client().write_stream(30_000);
    pair.client().finish();
    assert!(pair.drive(Time::from_secs(30)));
    let data = pair.sent.iter().filter(|(_, side, p)| *side == CLIENT && p.flags.has(Flags::DATA));
    let mut repairs = 0;
    for (_, _, packet) in data {
        let again = packet.flags.has(Flags::RETRANSMIT);
        repairs += u32::from(again);
        assert_eq!(packet.flags.has(Flags::ECT), !again);
    }
    assert_eq!(repairs, 1);
    assert!(pair.sent.iter().all(|(_, side, p)| *side != SERVER || !p.flags.has(Flags::ECT)));
}
