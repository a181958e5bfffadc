//! Faults that stopped a session for good, found by the soak.

use tollway_law::Time;
use tollway_proto::switch::{Config, Health};
use tollway_proto::transport::State;
use tollway_proto::{Flags, Packet, Stamp};

use super::attacks::{Bench, ack, data, opened};
use super::net::{Net, Opener};

const MINUTE: Time = Time::from_secs(60);

/// Member `k` leaves.
fn leave(bench: &mut Bench, k: usize) {
    bench.switch.set_member(bench.now, 0, k, false);
    bench.drain();
}

/// The numbers of data that left by `side`.
fn sent(left: &[(u32, Packet)], side: u32) -> Vec<u32> {
    let data = left.iter().filter(|(by, packet)| *by == side && packet.flags.has(Flags::DATA));
    data.map(|(_, packet)| packet.seq).collect()
}

#[test]
fn a_late_packet_acknowledged_at_last_touches_no_other() {
    let mut bench = opened(2, None);
    (0..4).for_each(|seq| drop(bench.show(0, data(seq), &[])));
    bench.show(2, ack(1), &[]);
    leave(&mut bench, 0);
    // Packets 0 and 2 follow at the second, behind packet 3, which is lost.
    assert_eq!(sent(&bench.show(0, data(0), &[]), 2), [2]);
    assert_eq!(sent(&bench.show(0, data(2), &[]), 2), [3]);
    bench.show(2, ack(1), &[(2, 4)]);
    assert_eq!(bench.switch.session(0).outstanding().0, 1);
    // The ring of 64 comes round, and what is in the place of packet 0 is missing.
    (4..64).for_each(|seq| drop(bench.show(0, data(seq), &[])));
    bench.show(0, data(65), &[]);
    bench.show(2, ack(4), &[]);
    assert_eq!(sent(&bench.show(0, data(64), &[]), 2), [64]);
    assert_eq!(bench.switch.session(0).members().nth(1).unwrap().packets, 4);
}

#[test]
fn a_late_packet_fills_the_first_gap() {
    let mut bench = opened(2, None);
    [0, 1, 3, 4].into_iter().for_each(|seq| drop(bench.show(0, data(seq), &[])));
    leave(&mut bench, 0);
    // The second has held number 1 for packet 2, which the peer sends only after packet 0.
    assert_eq!(sent(&bench.show(0, data(0), &[]), 2), [1]);
    assert_eq!(sent(&bench.show(0, data(2), &[]), 2), [3]);
}

#[test]
fn the_rest_of_a_lost_frame_is_counted() {
    let mut bench = opened(2, None);
    let part = |seq, flag: Flags| Packet { flags: Flags::DATA.with(Flags::ACK).with(flag), ..data(seq) };
    bench.show(0, part(0, Flags::FIRST), &[]);
    bench.show(1, ack(1), &[]);
    leave(&mut bench, 0);
    let left = bench.show(0, part(1, Flags::LAST), &[]);
    assert_eq!((sent(&left, 1), sent(&left, 2)), (vec![], vec![]));
    assert_eq!(bench.switch.session(0).stats().lost, 1);
    assert_eq!(left[0].1.ack, 2);
}

#[test]
fn a_gap_at_a_member_reaches_the_peer_at_once() {
    let mut bench = opened(1, None);
    (0..4).for_each(|seq| drop(bench.show(0, data(seq), &[])));
    // Number 0 is lost, and number 2 comes before number 1.
    for ranges in [[(2, 3)], [(1, 3)], [(1, 4)]] {
        let left = bench.show(1, ack(0), &ranges);
        assert_eq!(left.len(), 1, "{ranges:?}");
        assert!(left[0].0 == 0 && left[0].1.flags.has(Flags::SACK));
    }
}

/// Member 1's first packet is missing at the peer for a minute, and it answers what it is sent or
/// not. Returns its probes and what the peer was sent.
fn with_gap(answers: bool) -> (Bench, usize, Vec<u32>) {
    let mut bench = opened(2, None);
    bench.show(1, data(1), &[]);
    let (mut probes, mut nulls) = (0, Vec::new());
    for _ in 0..600 {
        bench.now += Time::from_millis(100);
        bench.switch_timeout();
        let left = bench.drain();
        let asked = sent(&left, 1).len();
        probes += asked;
        nulls.extend(sent(&left, 0));
        (0..asked * usize::from(answers)).for_each(|_| drop(bench.show(1, ack(0), &[])));
    }
    (bench, probes, nulls)
}

#[test]
fn a_source_is_asked_about_a_gap() {
    let (bench, probes, nulls) = with_gap(true);
    assert!((100..200).contains(&probes) && nulls.is_empty(), "{probes} {nulls:?}");
    assert_eq!(bench.switch.session(0).stats().failures, 0);
    // Null segments replace the packets of a source that is gone.
    let (bench, probes, nulls) = with_gap(false);
    assert!((6..10).contains(&probes), "{probes}");
    assert_eq!((nulls[0], bench.switch.session(0).stats().failures), (0, 1));
}

#[test]
fn a_process_that_had_reported_something_is_known_from_the_next() {
    let mut bench = Bench::with(2, Config::default());
    let at = |sent, packet| Packet { sent: Stamp(sent), ..packet };
    let syn = Packet { flags: Flags::SYN, size: 40, ..Packet::default() };
    assert_eq!(bench.show(1, at(1, syn), &[])[0].0, 0);
    bench.show(2, at(1, syn), &[]);
    let left = bench.show(0, Packet { flags: Flags::SYN.with(Flags::ACK), ..ack(1) }, &[]);
    let first = left.iter().find(|(side, _)| *side == 1).unwrap().1.seq;
    (1..=4).for_each(|seq| drop(bench.show(0, data(seq), &[])));
    // A lost packet, and one behind it.
    bench.show(1, at(2, ack(first + 1)), &[(first + 2, first + 3)]);
    // A repeated SYN is none of a new process.
    bench.show(1, at(1, syn), &[]);
    assert_eq!(bench.switch.session(0).stats().failures, 0);
    let left = bench.show(1, at(3, syn), &[]);
    assert_eq!(bench.switch.session(0).stats().failures, 1);
    let greeting = left.iter().find(|(side, packet)| *side == 1 && packet.flags.has(Flags::SYN));
    assert_ne!(greeting.unwrap().1.seq, first);
}

#[test]
fn a_fin_waits_for_no_member_that_is_gone() {
    let mut net = Net::new(31, 2, Opener::Peer);
    net.strict = false;
    net.open();
    net.write(0, 100, 1000);
    net.until(MINUTE, |net| net.ends[0].connection.una() == 101);
    net.ends[2].hung = true;
    net.ends[0].connection.finish();
    net.until(MINUTE, |net| net.ends[0].connection.is_acknowledged());
    assert_eq!(net.session().outstanding(), (0, 0));
}

#[test]
fn a_member_that_returns_after_the_end_stays_out() {
    let mut net = Net::new(32, 2, Opener::Peer);
    net.strict = false;
    net.open();
    net.until(MINUTE, |net| net.ends[2].connection.state() == State::Established);
    net.ends[2].hung = true;
    net.write(0, 100, 1000);
    net.ends[1].connection.finish();
    net.until(MINUTE, |net| net.ends[0].connection.has_peer_finished());
    net.restart(1);
    net.write(2, 10, 1000);
    net.drive(MINUTE);
    assert_eq!(net.session().members().nth(1).unwrap().health, Health::Down);
    assert_eq!(net.session().outstanding(), (0, 0));
}

/// The last of enough packets is given the time for an answer, however old the first is.
#[test]
fn a_burst_at_the_end_of_patience_may_be_answered() {
    let mut bench = opened(2, None);
    let round = |bench: &mut Bench, seqs: std::ops::Range<u32>| {
        seqs.filter(|&seq| sent(&bench.show(0, data(seq), &[]), 1).len() == 1).count()
    };
    assert_eq!(round(&mut bench, 0..2), 1);
    bench.now += Config::default().patience - Time::from_millis(20);
    assert_eq!(round(&mut bench, 2..12), 5);
    bench.now += Time::from_millis(100);
    bench.switch_timeout();
    assert_eq!(bench.switch.session(0).stats().failures, 0);
    // And no longer.
    bench.now += Time::from_secs(1);
    bench.switch_timeout();
    assert_eq!(bench.switch.session(0).stats().failures, 2);
}

/// A member that waits for the answer to its SYN takes no data, and its SYN may come again only
/// after it counts as dead.
#[test]
fn a_lost_greeting_is_repeated_within_patience() {
    let mut bench = Bench::with(2, Config::default());
    let syn = Packet { flags: Flags::SYN, size: 40, sent: Stamp(1), ..Packet::default() };
    (1..3).for_each(|side| drop(bench.show(side, syn, &[])));
    bench.show(0, Packet { flags: Flags::SYN.with(Flags::ACK), ..ack(1) }, &[]);
    let greetings = |bench: &mut Bench, heard: bool| {
        let mut count = 0;
        for _ in 0..29 {
            bench.now += Time::from_millis(100);
            bench.switch_timeout();
            let left = bench.drain();
            count += left.iter().filter(|(side, out)| *side == 1 && out.flags.has(Flags::SYN)).count();
        }
        if heard {
            bench.show(1, Packet { sent: Stamp(2), ..ack(1) }, &[]);
        }
        count
    };
    assert_eq!(greetings(&mut bench, true), 7);
    assert_eq!(greetings(&mut bench, false), 0);
}

/// Members open a session each in its time: one that leaves meanwhile resets it only once no other
/// can come.
#[test]
fn a_member_that_is_still_to_open_keeps_the_session() {
    for comes in [true, false] {
        let mut net = Net::new(33, 2, Opener::Members);
        net.strict = false;
        net.ends[2].hung = true;
        net.open();
        net.drive(Time::from_millis(12));
        net.switch.set_member(net.now, 0, 0, false);
        assert!(!net.session().is_reset());
        net.ends[2].hung = !comes;
        net.write(0, 100, 1000);
        if comes {
            net.until(MINUTE, |net| net.ends[2].delivered.len() == 100);
        } else {
            net.until(MINUTE, |net| net.session().is_reset());
        }
    }
}

/// The member whose SYN went to the peer, where it was lost, says nothing more: another's goes on
/// after `patience`. The peer may still have the first, whose stamp means nothing to the other.
#[test]
fn another_member_opens_the_session_where_the_first_has_failed() {
    let syn = |at: Time, ahead: u32| {
        let sent = Stamp(Stamp::at(at).0.wrapping_add(ahead));
        Packet { flags: Flags::SYN, size: 40, sent, ..Packet::default() }
    };
    // The second member's clock is ahead of the first's.
    const AHEAD: u32 = 1 << 28;
    for own in [false, true] {
        let mut bench = Bench::with(2, Config::default());
        let first = syn(bench.now, 0);
        assert_eq!(bench.show(1, first, &[])[0].0, 0);
        let to_peer = |left: &[(u32, Packet)]| left.iter().any(|(side, _)| *side == 0);
        let second = syn(bench.now, AHEAD);
        assert!(!to_peer(&bench.show(2, second, &[])));
        bench.now += Config::default().patience;
        bench.switch_timeout();
        let again = syn(bench.now, AHEAD);
        assert!(to_peer(&bench.show(2, again, &[])));
        bench.now += Time::from_millis(20);
        let flags = Flags::SYN.with(Flags::ACK).with(Flags::STAMP_ECHO);
        let sent_echo = if own { again.sent } else { first.sent };
        let left = bench.show(0, Packet { flags, sent_echo, ..ack(1) }, &[]);
        let echoes = left.iter().filter(|(side, out)| *side == 2 && out.flags.has(Flags::STAMP_ECHO));
        let echoes: Vec<Stamp> = echoes.map(|(_, out)| out.sent_echo).collect();
        assert_eq!(echoes, if own { vec![again.sent] } else { vec![] });
    }
}
