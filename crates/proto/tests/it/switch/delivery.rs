//! Every frame once, in order, whatever the channel does.

use std::collections::VecDeque;
use std::sync::Arc;

use tollway_law::Time;
use tollway_proto::route::Policy;
use tollway_proto::switch::{self, FlowControl};
use tollway_proto::transport::{Config, Connection, Event};
use tollway_proto::{Gate, Middle, Packet, Passed, SackRanges, Switch};

use super::net::{Faults, Net, Opener, candidates, mark, newreno};

const MINUTE: Time = Time::from_secs(60);

fn delivered(net: &Net) -> usize {
    net.ends.iter().map(|end| end.delivered.len()).sum()
}

#[test]
fn frames_of_the_peer_go_around() {
    let mut net = Net::new(1, 4, Opener::Peer);
    net.open();
    net.write(0, 1000, 1000);
    net.drive(MINUTE);
    assert_eq!(net.check_delivery(0, 1000), [0, 250, 250, 250, 250]);
    let stats = net.session().stats();
    assert_eq!((stats.nulls, stats.refused, stats.duplicates, stats.forged), (0, 0, 0, 0));
    assert_eq!(net.ends[0].connection.stats().retransmissions, 0, "what is on another way is not lost");
    assert!(net.session().members().all(|member| member.ratio == 0.25 && member.packets == 250));
}

#[test]
fn frames_of_the_members_come_together() {
    let mut net = Net::new(2, 4, Opener::Members);
    net.open();
    (1..=4).for_each(|side| net.write(side, 300, 1000));
    net.until(MINUTE, |net| delivered(net) == 1200);
    (1..=4).for_each(|source| assert_eq!(net.check_delivery(source, 300)[0], 300));
    let stats = net.session().stats();
    assert_eq!((stats.nulls, stats.refused, stats.forged), (0, 0, 0));
}

#[test]
fn members_at_unlike_distances_look_like_no_loss() {
    let mut net = Net::new(3, 3, Opener::Peer);
    net.latency = [5, 1, 20, 80].map(Time::from_millis).to_vec();
    net.open();
    net.write(0, 3000, 1000);
    net.until(MINUTE, |net| delivered(net) == 3000);
    net.check_delivery(0, 3000);
    assert_eq!(net.ends[0].connection.stats().retransmissions, 0);
}

#[test]
fn a_whole_connection_is_opened_and_closed() {
    for opener in [Opener::Peer, Opener::Members] {
        let session = switch::Config { patience: MINUTE, ..switch::Config::default() };
        let transport = Config { send_buffer: 256, ..Config::default() };
        let mut net = Net::with(4, 3, opener, Policy::RoundRobin, transport, session, newreno);
        net.faults = Faults { loss: 0.05, duplicate: 0.05, reorder: 0.1 };
        net.open();
        net.write(0, 50, 1000);
        (1..=3).for_each(|side| net.write(side, 50, 700));
        net.ends.iter_mut().for_each(|end| end.connection.finish());
        net.until(MINUTE, |net| net.ends.iter().all(|end| end.events.contains(&Event::Closed)));
        net.check_delivery(0, 50);
        (1..=3).for_each(|source| assert_eq!(net.check_delivery(source, 50)[0], 50));
        assert!(!net.session().is_reset());
    }
}

#[test]
fn a_frame_over_several_packets_goes_to_one_member() {
    let mut net = Net::new(5, 3, Opener::Peer);
    net.faults = Faults { loss: 0.03, duplicate: 0.02, reorder: 0.1 };
    net.open();
    let sizes: Vec<u64> = (0..300).map(|i| 1 + i * 37 % 9000).collect();
    sizes.iter().for_each(|&bytes| net.write(0, 1, bytes));
    let frames = |net: &Net| -> Vec<u64> {
        let sizes = net.ends[1..].iter().flat_map(|end| &end.events).filter_map(|event| match event {
            Event::FrameDelivered { bytes, .. } => Some(*bytes),
            _ => None,
        });
        sizes.collect()
    };
    net.until(MINUTE, |net| frames(net).len() == 300);
    let (mut got, mut sent) = (frames(&net), sizes);
    got.sort_unstable();
    sent.sort_unstable();
    assert_eq!(got, sent);
}

#[test]
fn a_member_s_frame_over_several_packets_is_refused() {
    let mut net = Net::new(6, 2, Opener::Members);
    net.strict = false;
    net.open();
    net.write(1, 1, 5000);
    net.write(2, 10, 500);
    net.until(MINUTE, |net| net.ends[1].events.contains(&Event::Reset) && delivered(net) == 10);
}

#[test]
fn a_lossy_member_stalls_no_other_source() {
    let mut net = Net::new(7, 2, Opener::Members);
    net.open();
    net.write(1, 1, 1000);
    net.until(MINUTE, |net| delivered(net) == 1);
    // The first one's packets come late from now on: the second's are acknowledged all the same.
    net.latency[1] = Time::from_millis(1500);
    net.write(1, 1, 1000);
    net.drive(Time::from_millis(10));
    net.latency[1] = Time::from_millis(5);
    net.write(1, 3, 1000);
    net.write(2, 200, 1000);
    net.drive(Time::from_millis(1000));
    assert_eq!(net.ends[2].connection.una(), 201, "all is at the peer, and out of order there");
    assert_eq!(net.ends[2].connection.stats().retransmissions, 0);
    net.until(MINUTE, |net| delivered(net) == 205);
}

#[test]
fn strict_windows_are_the_least_and_the_even_part() {
    let strict = switch::Config { flow_control: FlowControl::Strict, ..switch::Config::default() };
    let transport = Config { receive_buffer: 40 * 1460, ..Config::default() };
    let make =
        |opener, session| Net::with(8, 4, opener, Policy::RoundRobin, transport.clone(), session, newreno);
    for (session, inbound, outbound) in [(strict, 40, 10), (switch::Config::default(), 160, 40)] {
        let mut net = make(Opener::Peer, session.clone());
        net.open();
        net.ends[0].connection.write_unlimited();
        net.drive(Time::from_secs(5));
        let most = net.ends[0].connection.outstanding();
        // Ratios are of whole frames.
        assert!((inbound - inbound / 40 + 1..=inbound).contains(&most), "{most}");
        // One member alone.
        let mut net = make(Opener::Members, session);
        net.open();
        net.ends[1].connection.write_unlimited();
        net.drive(Time::from_secs(5));
        assert_eq!(net.ends[1].connection.outstanding(), outbound);
    }
}

/// Connections and switches in a row of instants, without loss: an end is `(switch, gate)`.
struct Row {
    switches: Vec<Switch>,
    ends: Vec<((usize, u32), Connection)>,
    /// Gates of switches that lead to each other.
    joints: Vec<[(usize, u32); 2]>,
    flying: VecDeque<((usize, u32), Packet, SackRanges)>,
    now: Time,
}

impl Row {
    /// Switches with these numbers of members.
    fn new(members: &[usize], joints: &[[(usize, u32); 2]], clients: &[(usize, u32)]) -> Row {
        let config = Arc::new(Config { send_buffer: 100, ..Config::default() });
        let mut row = Row {
            switches: Vec::new(),
            ends: Vec::new(),
            joints: joints.to_vec(),
            flying: VecDeque::new(),
            now: Time::from_secs(1),
        };
        for (at, &count) in members.iter().enumerate() {
            let mut switch = Switch::new();
            switch.add_session(&switch::Config::default(), Policy::RoundRobin.module(0), candidates(count));
            row.switches.push(switch);
            for gate in 0..=count as u32 {
                let place = (at, gate);
                if joints.iter().flatten().any(|&joint| joint == place) {
                    continue;
                }
                let make = if clients.contains(&place) { Connection::client } else { Connection::server };
                row.ends.push((place, make(&config, newreno(), 1)));
            }
        }
        let now = row.now;
        let clients = row.ends.iter_mut().filter(|end| clients.contains(&end.0));
        clients.for_each(|end| end.1.open(now));
        row
    }

    fn end(&mut self, place: (usize, u32)) -> &mut Connection {
        &mut self.ends.iter_mut().find(|end| end.0 == place).unwrap().1
    }

    /// A packet leaves a switch by a gate.
    fn leave(&mut self, place: (usize, u32), mut packet: Packet, sack: SackRanges) {
        mark(&mut packet, &sack);
        let joint = self.joints.iter().find(|joint| joint.contains(&place));
        match joint.map(|joint| joint[usize::from(joint[0] == place)]) {
            Some(other) => self.flying.push_back((other, packet, sack)),
            None => {
                let now = self.now;
                self.end(place).handle_packet(now, &packet, &sack);
            }
        }
    }

    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            self.now += Time::from_micros(100);
            let now = self.now;
            let (mut out, mut sack) = (Packet::default(), SackRanges::EMPTY);
            for (place, end) in &mut self.ends {
                end.handle_timeout(now);
                while end.poll_transmit(now, &mut out, &mut sack) {
                    self.flying.push_back((*place, out, sack));
                }
            }
            self.switches.iter_mut().for_each(|switch| switch.handle_timeout(now));
            for _ in 0..self.flying.len() {
                let Some(((at, gate), mut packet, mut sack)) = self.flying.pop_front() else { break };
                if let Passed::By(gate) = self.switches[at].pass(now, Gate(gate), &mut packet, &mut sack) {
                    self.leave((at, gate.0), packet, sack);
                }
            }
            for at in 0..self.switches.len() {
                while let Some(gate) = self.switches[at].poll_transmit(now, &mut out, &mut sack) {
                    self.leave((at, gate.0), out, std::mem::take(&mut sack));
                }
            }
        }
    }
}

#[test]
fn a_cascade_delivers_to_each_its_part() {
    // The second switch is the second member of the first.
    let mut row = Row::new(&[2, 2], &[[(0, 2), (1, 0)]], &[(0, 0)]);
    (0..400).for_each(|_| row.end((0, 0)).write_frame(1000));
    row.run(20_000);
    let delivered = [(0, 1), (1, 1), (1, 2)].map(|place| row.end(place).stats().frames_delivered);
    assert_eq!(delivered, [200, 100, 100]);
    let peer = row.end((0, 0));
    assert_eq!((peer.stats().retransmissions, peer.outstanding()), (0, 0));
}

#[test]
fn a_cluster_speaks_to_a_cluster() {
    // Members of the first open; the peer of each is the other.
    let clients = [(0, 1), (0, 2), (0, 3), (0, 4)];
    let mut row = Row::new(&[4, 4], &[[(0, 0), (1, 0)]], &clients);
    for place in clients {
        (0..200).for_each(|_| row.end(place).write_frame(1000));
    }
    row.run(20_000);
    let delivered: Vec<u64> = (1..=4).map(|gate| row.end((1, gate)).stats().frames_delivered).collect();
    assert_eq!(delivered, [200; 4]);
    for place in clients {
        assert_eq!((row.end(place).stats().retransmissions, row.end(place).outstanding()), (0, 0));
    }
}
