//! Stale, replayed, foreign, absurd and infinite costs, and peers that break the protocol.

use std::sync::Arc;

use tollway_law::Time;
use tollway_proto::overlay::frame::{HopCost, LinkCost, LinkState};
use tollway_proto::overlay::{
    Config, DaemonId, Epoch, Event, Frame, Incarnation, LinkConfig, ProtocolError, TenantConfig,
};

use crate::net::{Message, Net};
use crate::row;

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
