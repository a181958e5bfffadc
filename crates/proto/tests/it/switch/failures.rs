//! Members that die, hang and return, and a switch that dies.

use std::collections::BTreeMap;

use tollway_law::Time;
use tollway_proto::switch::Health;
use tollway_proto::transport::{Event, State};
use tollway_proto::{Flags, Packet, SackRanges};

use super::net::{Faults, LIFE, Net, Opener};

const MINUTE: Time = Time::from_secs(60);

/// How often each frame of the peer was delivered, and at which members.
fn deliveries(net: &Net) -> BTreeMap<u32, Vec<usize>> {
    let mut all = BTreeMap::<u32, Vec<usize>>::new();
    for (k, end) in net.ends[1..].iter().enumerate() {
        for frame in end.delivered.iter().filter(|frame| frame.0 == 0) {
            all.entry(frame.1).or_default().push(k);
        }
    }
    all
}

/// A net of four members, the peer sending for a second; then `fault`, and the rest.
fn with_fault(frames: u32, fault: impl FnOnce(&mut Net)) -> Net {
    let mut net = Net::new(11, 4, Opener::Peer);
    net.strict = false;
    net.open();
    net.write(0, frames / 2, 1000);
    net.drive(Time::from_millis(60));
    fault(&mut net);
    net.write(0, frames - frames / 2, 1000);
    net.until(MINUTE, |net| net.ends[0].connection.una() == frames + 1);
    net
}

fn health(net: &Net, member: usize) -> Health {
    net.session().members().nth(member).unwrap().health
}

#[test]
fn what_a_hung_member_has_not_acknowledged_goes_to_others() {
    let net = with_fault(2000, |net| net.ends[3].hung = true);
    let stats = net.session().stats();
    assert_eq!(stats.failures, 1);
    assert!(stats.rerouted > 0 && stats.lost == 0, "{stats:?}");
    assert_ne!(health(&net, 2), Health::Up);
    let all = deliveries(&net);
    assert_eq!(all.len(), 2000);
    // Twice only what the hung one had delivered, and its acknowledgement was under way.
    assert!(all.values().all(|at| at.len() == 1 || at.len() == 2 && at.contains(&2)));
}

#[test]
fn a_member_that_returns_takes_part_again() {
    let mut net = with_fault(2000, |net| net.ends[2].hung = true);
    net.drive(MINUTE);
    let before = net.ends[2].delivered.len();
    // It is reset: its session has gone on without it.
    net.ends[2].hung = false;
    net.ends[2].connection.write_frame(100);
    net.drive(MINUTE);
    assert!(net.ends[2].events.contains(&Event::Reset));
    net.restart(1);
    net.drive(Time::from_secs(10));
    assert_eq!(health(&net, 1), Health::Up);
    net.write(0, 400, 1000);
    net.until(MINUTE, |net| net.ends[0].connection.una() == 2401);
    assert_eq!(net.ends[2].delivered.len(), before + 100, "a quarter of them");
    assert_eq!(net.session().members().map(|member| member.outstanding).sum::<u64>(), 0);
}

#[test]
fn a_member_taken_out_and_admitted_again() {
    let mut net = with_fault(1000, |net| {
        let now = net.now;
        net.switch.set_member(now, 0, 0, false);
    });
    assert_eq!(health(&net, 0), Health::Down);
    net.drive(MINUTE);
    assert!(net.ends[1].events.contains(&Event::Reset));
    let before = net.ends[1].delivered.len();
    net.restart(0);
    net.drive(MINUTE);
    assert_eq!(health(&net, 0), Health::Down, "until the operator says so");
    let now = net.now;
    net.switch.set_member(now, 0, 0, true);
    net.drive(Time::from_secs(1));
    net.write(0, 400, 1000);
    net.until(MINUTE, |net| net.ends[0].connection.una() == 1401);
    assert_eq!(net.ends[1].delivered.len(), before + 100);
}

#[test]
fn a_drained_member_finishes_its_frames_and_answers_and_others_go_on() {
    let mut net = Net::new(21, 3, Opener::Peer);
    net.open();
    net.write(0, 600, 1000);
    net.drive(Time::from_millis(60));
    net.drain_member(1, true);
    net.until(MINUTE, |net| net.ends[2].events.contains(&Event::PeerFinished));
    let before = net.ends[2].delivered.len();
    // Its half of the connection stays open: answers still arrive.
    net.write(2, 30, 500);
    net.write(0, 300, 1000);
    net.until(MINUTE, |net| net.ends[0].connection.una() == 901);
    assert_eq!(health(&net, 1), Health::Up);
    net.ends[2].connection.finish();
    net.until(MINUTE, |net| net.ends[2].events.contains(&Event::Closed));
    net.check_delivery(0, 900);
    assert_eq!(net.check_delivery(2, 30)[0], 30);
    assert_eq!(net.ends[2].delivered.len(), before);
    assert_eq!((health(&net, 1), net.session().stats().failures), (Health::Down, 0));
    assert!(!net.ends[0].events.contains(&Event::PeerFinished), "others may have data");
    // It comes back as another process.
    net.drain_member(1, false);
    net.drive(Time::from_secs(1));
    assert_eq!((health(&net, 1), net.ends[2].life), (Health::Up, 1));
    net.write(0, 300, 1000);
    net.until(MINUTE, |net| net.ends[0].connection.una() == 1201);
    assert_eq!(net.ends[2].delivered.len(), before + 100);
}

#[test]
fn a_drained_member_gets_its_open_frame_to_the_end() {
    let mut net = Net::new(22, 2, Opener::Peer);
    net.open();
    net.drive(Time::from_millis(100));
    // Of twenty packets, two are in the first window.
    net.write(0, 1, 20 * 1460);
    net.drive(Time::from_millis(12));
    let whole = |net: &Net, k: usize| {
        net.ends[k + 1]
            .events
            .iter()
            .any(|event| matches!(event, Event::FrameDelivered { bytes, .. } if *bytes == 20 * 1460))
    };
    let k = (0..2).find(|&k| !net.ends[k + 1].delivered.is_empty()).expect("a member has its begin");
    net.drain_member(k, true);
    net.until(MINUTE, |net| net.ends[k + 1].events.contains(&Event::PeerFinished));
    assert!(whole(&net, k));
}

#[test]
fn a_session_whose_members_are_all_drained_waits_for_another() {
    let mut net = Net::new(23, 1, Opener::Peer);
    net.open();
    net.write(0, 10, 1000);
    net.drive(Time::from_secs(1));
    net.drain_member(0, true);
    net.until(MINUTE, |net| net.ends[1].events.contains(&Event::PeerFinished));
    net.ends[1].connection.finish();
    net.write(0, 10, 1000);
    net.drive(Time::from_secs(2));
    assert!(!net.ends[0].events.contains(&Event::PeerFinished) && !net.session().is_reset());
    net.add_member(Time::from_millis(20));
    net.until(MINUTE, |net| net.ends[0].connection.una() == 21);
    assert_eq!(net.check_delivery(0, 20), [0, 10, 10]);
    // The end of the session is that of the members left.
    net.ends[0].connection.finish();
    net.ends[2].connection.finish();
    net.until(MINUTE, |net| net.session().is_closed());
}

/// A net whose members do not answer, opened by its peer.
fn unanswered(members: usize) -> Net {
    let mut net = Net::new(13, members, Opener::Peer);
    net.ends[1..].iter_mut().for_each(|end| end.hung = true);
    net.open();
    net.drive(Time::from_millis(20));
    assert_eq!(health(&net, 1), Health::Opening);
    net
}

/// Member `k` answers its SYN with a reset.
fn refuse(net: &mut Net, k: usize, ack: u32) {
    let refusal = Packet { ack, flags: Flags::RST.with(Flags::ACK), size: 40, ..Packet::default() };
    net.at_switch(k + 1, refusal, SackRanges::EMPTY);
}

#[test]
fn a_member_that_refuses_to_open_is_not_waited_for() {
    let mut net = unanswered(2);
    net.ends[1].hung = false;
    // Of another connection.
    refuse(&mut net, 1, 7);
    assert_eq!(health(&net, 1), Health::Opening);
    refuse(&mut net, 1, 1);
    assert_eq!(health(&net, 1), Health::Down);
    net.drive(Time::from_millis(1500));
    assert_eq!(net.ends[0].connection.state(), State::Established);
    assert_eq!(net.session().stats().failures, 0);
    // It is asked again after a while.
    net.drive(Time::from_secs(3));
    assert_eq!(health(&net, 1), Health::Opening);
}

#[test]
fn a_peer_is_reset_at_once_where_all_members_refuse() {
    let mut net = unanswered(2);
    (0..2).for_each(|k| refuse(&mut net, k, 1));
    net.drive(Time::from_millis(20));
    assert!(net.ends[0].events.contains(&Event::Reset));
}

#[test]
fn a_session_is_closed_once_both_directions_are() {
    let mut net = Net::new(14, 2, Opener::Peer);
    net.open();
    net.write(0, 10, 1000);
    net.ends[0].connection.finish();
    net.drive(Time::from_secs(1));
    assert!(!net.session().is_closed());
    net.ends[1].connection.finish();
    net.drive(Time::from_secs(1));
    assert!(!net.session().is_closed());
    net.ends[2].connection.finish();
    net.drive(Time::from_secs(1));
    assert!(net.session().is_closed());
    assert!(net.ends.iter().all(|end| end.events.contains(&Event::Closed)));
}

#[test]
fn the_peer_is_reset_when_no_member_is_left() {
    let mut net = Net::new(12, 2, Opener::Peer);
    net.strict = false;
    net.open();
    net.write(0, 1000, 1000);
    net.drive(Time::from_millis(60));
    (1..=2).for_each(|side| net.ends[side].hung = true);
    net.drive(MINUTE);
    assert!(net.session().is_reset());
    assert!(net.ends[0].events.contains(&Event::Reset));
    assert_eq!(net.session().outstanding().1, 0);
}

#[test]
fn a_reset_of_the_peer_ends_all() {
    let mut net = Net::new(13, 3, Opener::Peer);
    net.open();
    net.write(0, 100, 1000);
    net.drive(MINUTE);
    net.ends[0].connection.abort();
    net.drive(MINUTE);
    assert!(net.ends[1..].iter().all(|end| end.events.contains(&Event::Reset)));
}

#[test]
fn null_segments_take_the_place_of_a_dead_source() {
    let mut net = Net::new(14, 3, Opener::Members);
    net.strict = false;
    net.faults = Faults { loss: 0.1, duplicate: 0.0, reorder: 0.1 };
    net.open();
    (1..=3).for_each(|side| net.write(side, 300, 1000));
    net.drive(Time::from_millis(150));
    let now = net.now;
    net.ends[2].hung = true;
    net.switch.set_member(now, 0, 1, false);
    let own = |net: &Net, source| net.ends[0].delivered.iter().filter(|frame| frame.0 == source).count();
    net.until(MINUTE, |net| own(net, 1) == 300 && own(net, 3) == 300);
    net.check_delivery(1, 300);
    net.check_delivery(3, 300);
    let dead: Vec<u32> = net.ends[0].delivered.iter().filter(|frame| frame.0 == 2).map(|f| f.1).collect();
    assert!(dead.windows(2).all(|pair| pair[0] < pair[1]) && dead.len() < 300, "{dead:?}");
    net.until(MINUTE, |net| net.session().outstanding() == (0, 0));
}

#[test]
fn a_source_that_begins_anew_is_a_new_one() {
    let mut net = Net::new(15, 2, Opener::Members);
    net.strict = false;
    net.open();
    (1..=2).for_each(|side| net.write(side, 100, 1000));
    net.drive(Time::from_millis(40));
    net.restart(0);
    net.write(1, 50, 1000);
    net.drive(MINUTE);
    assert_eq!(net.ends[1].connection.una(), 51);
    assert_eq!(net.session().stats().failures, 1);
    assert!(net.ends[0].delivered.contains(&(1 + LIFE, 49)));
    assert_eq!(net.session().outstanding(), (0, 0));
}

#[test]
fn a_switch_that_lost_its_state_tells_both_sides() {
    for opener in [Opener::Peer, Opener::Members] {
        let mut net = Net::new(16, 2, opener);
        net.strict = false;
        net.open();
        net.write(0, 400, 1000);
        (1..=2).for_each(|side| net.write(side, 400, 1000));
        net.drive(Time::from_millis(60));
        net.kill_switch();
        net.drive(MINUTE);
        assert!(net.ends.iter().all(|end| end.events.contains(&Event::Reset)), "{opener:?}");
        net.begin_anew();
        net.write(0, 100, 1000);
        net.until(MINUTE, |net| net.ends[0].connection.una() == 101);
        net.check_delivery(LIFE, 100);
    }
}
