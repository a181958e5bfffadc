//! Stale, replayed, foreign, absurd and infinite costs, and peers that break the protocol.

use std::sync::Arc;

use tollway_law::Time;
use tollway_proto::overlay::frame::{GroupUpdate, HopCost, LinkCost, LinkState};
use tollway_proto::overlay::wire::{Decoder, Encoder, WireError};
use tollway_proto::overlay::{
    Config, Daemon, DaemonId, Epoch, Event, Frame, Incarnation, LinkConfig, MAX_GROUP, MAX_MEMBERSHIPS,
    PortId, ProtocolError, TenantConfig,
};

use super::net::{Message, Net};
use super::row;

fn state(daemon: u32, epoch: u64, number: u64, cost: f32, lot: f32, peers: &[u32]) -> Frame<Message> {
    let link = |&peer| LinkCost { peer: DaemonId(peer), weight: 1, cost, lot };
    let origin = Incarnation { daemon: DaemonId(daemon), epoch: Epoch(epoch) };
    let links = peers.iter().map(link).collect();
    Frame::States(vec![Arc::new(LinkState { origin, number, base: number, links, hops: Vec::new() })])
}

/// Messages that the first of three daemons sends in ten seconds after `frame` came from the
/// second.
fn sent_after(frame: Option<Frame<Message>>) -> (u32, Net) {
    let mut net = row(3, Config::default(), 3);
    net.sender(net.now, 0, &[2], 900, u32::MAX, TenantConfig::default());
    net.run(Time::from_secs(12));
    let before = net.senders[0].sent;
    if let Some(frame) = frame {
        // Link 0 leads from 0 to 1: its other half brings what 1 sends.
        net.inject(1, frame).expect("a link state breaks no protocol");
    }
    net.run(Time::from_secs(22));
    (net.senders[0].sent - before, net)
}

#[test]
fn absurd_costs_are_refused_and_change_nothing() {
    let (usual, _) = sent_after(None);
    for cost in [f32::INFINITY, f32::NAN, -1.0, 1e30] {
        let (sent, net) = sent_after(Some(state(1, 1, 1 << 40, cost, 1000.0, &[0, 2])));
        assert_eq!(sent, usual, "{cost}");
        assert_eq!(net.daemons[0].as_ref().unwrap().snapshot().refused, 1);
    }
    for lot in [0.0, f32::NAN, f32::INFINITY, -5.0] {
        assert_eq!(sent_after(Some(state(1, 1, 1 << 40, 1.0, lot, &[0, 2]))).0, usual, "{lot}");
    }
    // Links to itself, out of order, or without length are none.
    for peers in [&[1, 2][..], &[2, 0], &[0, 0, 2]] {
        assert_eq!(sent_after(Some(state(1, 1, 1 << 40, 0.0, 1000.0, peers))).0, usual, "{peers:?}");
    }
    assert_eq!(sent_after(Some(state(1, 1, u64::MAX, 0.0, 1000.0, &[0, 2]))).0, usual);
}

#[test]
fn absurd_costs_of_receivers_are_refused() {
    let origin = Incarnation { daemon: DaemonId(1), epoch: Epoch(1) };
    let hops = vec![HopCost { key: 1, cost: f32::NAN, lot: 1000.0 }];
    let frame = Frame::States(vec![Arc::new(LinkState {
        origin,
        number: 1 << 40,
        base: 1 << 40,
        links: Vec::new(),
        hops,
    })]);
    assert_eq!(sent_after(Some(frame)).0, sent_after(None).0);
}

#[test]
fn stale_and_replayed_states_change_nothing() {
    let (usual, _) = sent_after(None);
    // An early number, and a former start.
    assert_eq!(sent_after(Some(state(1, 1, 1, 20.0, 1000.0, &[0, 2]))).0, usual);
    assert_eq!(sent_after(Some(state(1, 0, 1 << 40, 20.0, 1000.0, &[0, 2]))).0, usual);
    // One without links would cut daemon 2 off.
    assert_eq!(sent_after(Some(state(1, 0, 1 << 40, 0.0, 1000.0, &[]))).0, usual);
}

#[test]
fn nobody_speaks_for_another_daemons_links() {
    let (usual, _) = sent_after(None);
    let (sent, net) = sent_after(Some(state(0, 1, 1 << 40, 20.0, 1000.0, &[])));
    assert!(sent.abs_diff(usual) < usual / 20, "{sent} and {usual}");
    assert_eq!(net.daemons[0].as_ref().unwrap().snapshot().refused, 1);
    let (sent, net) = sent_after(Some(state(0, 9, 1, 20.0, 1000.0, &[])));
    assert_eq!(sent, usual);
    let later = Incarnation { daemon: DaemonId(0), epoch: Epoch(9) };
    assert!(net.events.contains(&(0, Event::Duplicate(later))));
}

#[test]
fn a_made_up_daemon_is_no_way_to_anywhere() {
    // Only daemon 7 says that it is 1's neighbour.
    let (sent, net) = sent_after(Some(state(7, 1, 1, 0.0, 1000.0, &[1])));
    let usual = sent_after(None).0;
    assert!(sent.abs_diff(usual) < usual / 20, "{sent} and {usual}");
    assert!(
        !net.events.iter().any(|(_, event)| matches!(event, Event::Reachable { daemon: DaemonId(7), .. }))
    );
    // And it is forgotten in the end.
    let mut net = net;
    net.run(Time::from_secs(200));
    let known = net.daemons[0].as_ref().unwrap().snapshot();
    assert_eq!(known.reachable, 2);
}

#[test]
fn a_peer_that_breaks_the_protocol_is_refused_by_name() {
    let mut net = row(2, Config::default(), 1);
    let daemon = net.daemons[0].as_mut().unwrap();
    let config = LinkConfig { peer: DaemonId(5), weight: 1, rate: tollway_law::Rate::from_mbps(1.0) };
    let port = daemon.open(net.now, config);
    let hello = |daemon, epoch| Frame::Hello(Incarnation { daemon: DaemonId(daemon), epoch: Epoch(epoch) });
    assert_eq!(
        daemon.handle_message(net.now, port, Frame::Receipts(Vec::new())),
        Err(ProtocolError::NoHello)
    );
    let stranger = ProtocolError::Stranger { expected: DaemonId(5), found: DaemonId(6) };
    assert_eq!(daemon.handle_message(net.now, port, hello(6, 1)), Err(stranger));
    assert!(stranger.to_string().contains("number 6, not 5"));
    assert_eq!(daemon.handle_message(net.now, port, hello(5, 1)), Ok(()));
    assert_eq!(daemon.handle_message(net.now, port, hello(5, 2)), Err(ProtocolError::Restarted));
    daemon.close(net.now, port);
    assert_eq!(daemon.handle_message(net.now, port, hello(5, 1)), Err(ProtocolError::Closed(port)));
}

#[test]
fn a_silent_peer_is_told_of_once() {
    let mut net = row(2, Config::default(), 1);
    // The peer is paused: its link carries nothing more from it.
    net.links[1].rate = tollway_law::Rate::from_bytes_per_sec(1e-3);
    net.run(Time::from_secs(60));
    let silent =
        net.events.iter().filter(|(node, event)| *node == 0 && matches!(event, Event::Silent(_))).count();
    assert_eq!(silent, 1);
}

/// Two daemons, and the ports of the link between them.
fn pair() -> [(Daemon<Message>, PortId); 2] {
    let mut pair = [0, 1].map(|at| {
        let config = Config { id: DaemonId(at), ..Config::default() };
        let mut daemon = Daemon::new(Time::ZERO, config, 1);
        let rate = tollway_law::Rate::from_mbps(100.0);
        let port = daemon.open(Time::ZERO, LinkConfig { peer: DaemonId(1 - at), weight: 1, rate });
        (daemon, port)
    });
    carry(&mut pair).unwrap();
    pair
}

/// Carries all frames; answers how many there were from the first daemon.
fn carry([(one, port), (other, back)]: &mut [(Daemon<Message>, PortId); 2]) -> Result<usize, ProtocolError> {
    let mut count = 0;
    loop {
        let sent = one.poll_message(Time::ZERO, *port);
        let replied = other.poll_message(Time::ZERO, *back);
        count += usize::from(sent.is_some());
        if sent.is_none() && replied.is_none() {
            return Ok(count);
        }
        sent.map_or(Ok(()), |frame| other.handle_message(Time::ZERO, *back, frame))?;
        replied.map_or(Ok(()), |frame| one.handle_message(Time::ZERO, *port, frame))?;
    }
}

fn long_name(i: usize) -> Vec<u8> {
    format!("{i:04000}").into_bytes()
}

/// The long names that a daemon may have.
const MOST: usize = MAX_MEMBERSHIPS / (4000 + 64);

#[test]
fn a_daemon_belongs_to_so_much_and_no_more() {
    let mut pair = pair();
    let daemon = &mut pair[0].0;
    assert_eq!((0..).take_while(|&i| daemon.join(&long_name(i))).count(), MOST);
    assert!(daemon.join(&long_name(0)), "a second time it takes no room");
    daemon.leave(&long_name(1));
    assert!(daemon.join(&long_name(MOST)) && !daemon.join(&long_name(MOST + 1)));
    assert!(!daemon.join(&vec![b'a'; MAX_GROUP + 1]));
    carry(&mut pair).unwrap();
    let known = |i: usize| pair[1].0.members(&long_name(i)).count();
    assert_eq!([0, 1, MOST - 1, MOST, MOST + 1].map(known), [1, 0, 1, 1, 0]);
}

#[test]
fn a_daemon_that_announces_more_loses_its_link() {
    let update = |number, whole, groups: std::ops::Range<usize>, joined| {
        let origin = Incarnation { daemon: DaemonId(0), epoch: Epoch(1) };
        let changes = groups.map(|i| (long_name(i).into(), joined)).collect();
        Frame::Groups(Arc::new(GroupUpdate { origin, number, whole, changes }))
    };
    let [_, (mut daemon, port)] = pair();
    let mut take = |frame| daemon.handle_message(Time::ZERO, port, frame);
    let error = ProtocolError::Memberships(DaemonId(0));
    assert!(error.to_string().contains("daemon number 0 announces more than 16777216 bytes"));
    let refused = Err(error);
    assert_eq!(take(update(1, true, 0..MOST + 1, true)), refused);
    assert_eq!(take(update(1, true, 0..MOST, true)), Ok(()));
    assert_eq!(take(update(2, false, MOST..MOST + 1, true)), refused);
    assert_eq!(take(update(2, false, 0..1, false)), Ok(()));
    assert_eq!(take(update(3, false, MOST..MOST + 1, true)), Ok(()));
    assert_eq!([0, 1, MOST].map(|i| daemon.members(&long_name(i)).count()), [0, 1, 1]);
}

#[test]
fn names_that_are_too_long_or_too_many_are_no_frame() {
    let decoded = |changes| {
        let origin = Incarnation { daemon: DaemonId(0), epoch: Epoch(1) };
        let update = GroupUpdate { origin, number: 1, whole: true, changes };
        let mut bytes = Vec::new();
        Encoder::new().encode(&Frame::<Message>::Groups(Arc::new(update)), &mut bytes);
        Decoder::new().decode(&bytes).map(|frame| frame.is_some())
    };
    assert_eq!(decoded(vec![(vec![b'a'; MAX_GROUP].into(), true)]), Ok(true));
    let long = decoded(vec![(vec![b'a'; MAX_GROUP + 1].into(), true)]);
    assert_eq!(long, Err(WireError::Field("name of a group")));
    let many = decoded(vec![(Arc::from([]), true); MAX_MEMBERSHIPS / 64 + 1]);
    assert_eq!(many, Err(WireError::Field("number of groups")));
}

/// A client that subscribes and leaves, faster than a link carries it.
#[test]
fn changes_that_wait_for_a_link_are_bounded() {
    let mut pair = pair();
    for _ in 0..10_000 {
        assert!(pair[0].0.join(b"a"));
        pair[0].0.leave(b"a");
    }
    pair[0].0.join(b"b");
    let frames = carry(&mut pair).unwrap();
    assert!(frames < 1100, "{frames} frames");
    assert_eq!([b"a", b"b"].map(|group| pair[1].0.members(group).count()), [0, 1]);
}

/// All memberships are one frame, which may take a slow link longer than a peer may be silent.
#[test]
fn a_peer_whose_frame_takes_long_is_not_silent() {
    for comes in [false, true] {
        let [(mut daemon, port), _] = pair();
        for second in 1..60 {
            let now = Time::from_secs(second);
            daemon.handle_timeout(now);
            if comes {
                daemon.hear(now, port);
            }
        }
        let silent = std::iter::from_fn(|| daemon.poll_event()).any(|event| event == Event::Silent(port));
        assert_eq!(silent, !comes);
    }
}
