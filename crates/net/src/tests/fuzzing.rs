//! Entry points for fuzz targets of private parsers. Not for any other use.
//!
//! Each takes any bytes, and panics if the parser violates its contract.

use std::net::SocketAddr;

use tollway_law::Time;
#[cfg(target_os = "linux")]
use tollway_law::Toll;
#[cfg(target_os = "linux")]
use tollway_proto::Flags;

pub use crate::network::fuzzing::node;
use crate::secure::{Heard, KeyFile, Secure};

/// A frame as an interface gives it. A link without changes keeps its bytes, and others change only
/// their fields.
#[cfg(target_os = "linux")]
pub fn frame(data: &[u8]) {
    use crate::hosts::PORT;
    use crate::hosts::frame::{self, FrameContent};

    let _ = frame::datagram(data);
    let Some(content) = frame::load(data, PORT) else { return };
    let (FrameContent::Datagram(packet) | FrameContent::Segment(packet, _)) = content;
    let mut same = data.to_vec();
    frame::store(&mut same, &packet);
    match (content, frame::load(&same, PORT)) {
        (FrameContent::Datagram(_), _) => assert_eq!(same, data, "a link that changes nothing"),
        (FrameContent::Segment(_, tuple), Some(FrameContent::Segment(again, other))) => {
            // The option may have held the same value in other bits.
            assert_eq!((again.toll.due, again.flags, other), (packet.toll.due, packet.flags, tuple));
        }
        _ => panic!("a segment is one still"),
    }
    let toll = Toll { due: -2500.0, rtt: packet.toll.rtt, offer: 8.0, stake: 1.0, echo: 3.0 };
    let mut written = data.to_vec();
    frame::store(
        &mut written,
        &tollway_proto::Packet { toll, flags: packet.flags.with(Flags::CE), ..packet },
    );
    let changed = written.iter().zip(data).filter(|(a, b)| a != b).count();
    match (content, frame::load(&written, PORT)) {
        (FrameContent::Datagram(_), Some(FrameContent::Datagram(again))) => {
            assert_eq!((again.flow, again.size), (packet.flow, packet.size));
            assert_eq!((again.toll.due, again.flags), (toll.due, packet.flags.with(Flags::CE)));
            assert!(changed <= 24 + 2 + 2, "a toll, flags and a checksum, and not {changed} bytes");
        }
        (FrameContent::Segment(_, tuple), Some(FrameContent::Segment(again, other))) => {
            assert_eq!((again.size, other), (packet.size, tuple));
            assert!(again.flags.has(Flags::CE));
            assert!(
                changed <= 1 + 2 + 2 + 2,
                "a mark, feedback and their checksums, and not {changed} bytes"
            );
        }
        _ => panic!("what a link writes leaves a frame what it was"),
    }
}

/// Frames at an interface under a law that marks and one that writes tolls.
///
/// The first byte of each gives the law, whether there is Ethernet, and the gap to the frame before;
/// the next its length. A frame that enters leaves with its length, once.
#[cfg(target_os = "linux")]
pub fn edge(data: &[u8]) {
    use crate::edge::{EdgeMeters, Lane, Trips};
    use tollway_law::Time;

    let tenants = tenants();
    let tenants = |lane: usize| if lane.is_multiple_of(3) { &[][..] } else { &tenants };
    let lane = |i: usize| Lane::new(&row().links[i % 2], tenants(i), i < 2, [i as u8; 16]);
    let mut lanes: Vec<Lane> = (0..4).map(lane).collect();
    // Those under the law with tolls share meters and round trips.
    let (meters, trips) = (EdgeMeters::new(None), Trips::default());
    lanes[1].set_shared(Some(meters.clone()), Some(trips.clone()));
    lanes[3].set_shared(Some(meters.of_answers()), Some(trips.back()));
    let (mut now, mut rest) = (Time::ZERO, data);
    while let [how, len, tail @ ..] = rest {
        let (own, tail) = tail.split_at(tail.len().min(usize::from(*len)));
        rest = tail;
        now += Time::from_micros(u64::from(how >> 2) * 100);
        let lane = &mut lanes[usize::from(how & 3)];
        while let Some((_, handle)) = lane.poll(now) {
            lane.free(handle);
        }
        let mut room = lane.spare();
        room[..own.len()].copy_from_slice(own);
        drop(lane.offer(now, room, own.len()));
    }
    for lane in &mut lanes {
        let mut end = now;
        while lane.poll_timeout() < Time::NEVER {
            end = end.max(lane.poll_timeout());
            while let Some((_, handle)) = lane.poll(end) {
                lane.free(handle);
            }
        }
        assert_eq!(lane.moment(end).queued, (0, 0), "nothing stays");
    }
}

/// A tenant for each action on packets that do not conform.
#[cfg(target_os = "linux")]
fn tenants() -> Vec<crate::edge::TenantSpec> {
    use crate::edge::{Filter, Labels, Members, TenantSpec};
    use tollway_law::aggregate::{Depths, Scheme};
    use tollway_law::bucket::Profile;
    use tollway_law::link::{AnyLink, DropTail, Limit};
    use tollway_law::{Bytes, Rate};
    use tollway_proto::Port;
    use tollway_proto::shaper::{Action, Increase, Order, PolicyConfig, TenantConfig};

    let tenant = |(action, dscp)| TenantSpec {
        name: String::new(),
        filter: Filter { dscp, ..Filter::default() },
        members: Members::Flows,
        config: TenantConfig {
            policy: PolicyConfig {
                profile: Profile {
                    depth: Bytes(500),
                    rate: Rate::from_mbps(1.0),
                    peak: None,
                    largest: Some(200),
                },
                scheme: Scheme::Logical(Depths::Equal),
                order: Order::Fcfs,
                action,
                increase: Increase::Standard,
            },
            queue: Port::new(
                AnyLink::DropTail(DropTail),
                Limit { packets: 5, ..Limit::NONE },
                Default::default(),
            ),
            room: 9,
            borrows: true,
        },
        labels: Labels { conforming: Some(46), excess: Some(8), excess_ecn: true },
    };
    let dscp = |from: u8| (from..from + 21).collect();
    [(Action::Shape, dscp(0)), (Action::Mark, dscp(21)), (Action::Drop, dscp(42))].map(tenant).to_vec()
}

/// Packets of programs at three nodes in a row, as the kernel delivers them.
///
/// Every packet must be accounted for. Its bytes must arrive unchanged, except for marks, feedback
/// and their checksums. The first byte gives the source, the kind and the gap to the packet before.
/// The next two give the segment length and the packet length.
#[cfg(target_os = "linux")]
pub fn mesh(data: &[u8]) {
    use crate::mesh::{FlowRecord, Mesh};
    use crate::sys::{address, ip, tun};
    use tollway_law::Time;

    let mut mesh = Mesh::new(&row(), tun::VNET_LEN);
    let (mut now, mut rest, mut offered) = (Time::ZERO, data, 0u64);
    let deliver = |mesh: &mut Mesh| {
        while let Some(delivery) = mesh.poll_delivery() {
            let frame = mesh.frame(delivery);
            assert!(ip::parse_any(&frame[tun::VNET_LEN..]).is_ok(), "what arrives is a packet still");
            mesh.release(delivery, true);
        }
    };
    while let [how, segment, len, tail @ ..] = rest {
        let (own, tail) = tail.split_at(tail.len().min(usize::from(*len)));
        rest = tail;
        let node = u32::from(how % 3);
        let mut frame = own.to_vec();
        // Some have valid addresses. Others test packets that no link would carry.
        if how & 4 != 0 && frame.len() >= tun::VNET_LEN + 20 {
            let packet = &mut frame[tun::VNET_LEN..];
            packet[0] = 0x40 | packet[0] & 0xf;
            let whole = (packet.len() as u16).to_be_bytes();
            packet[2..4].copy_from_slice(&whole);
            packet[12..16].copy_from_slice(&address(node).octets());
            let to = address(u32::from(packet[19] % 3)).octets();
            packet[16..20].copy_from_slice(&to);
        }
        now += Time::from_micros(u64::from(how >> 4) * 300);
        if how & 8 != 0 {
            let mut bytes = mesh.spare();
            bytes[..frame.len()].copy_from_slice(&frame);
            mesh.handle_train(now, node, bytes, frame.len(), (*segment).into());
        } else {
            mesh.handle_frame(now, node, &frame, (*segment).into());
        }
        offered += 1;
        deliver(&mut mesh);
    }
    // Some packets are still in flight.
    let mut check = |now: Time| {
        mesh.handle_timeout(now);
        deliver(&mut mesh);
        let strays = mesh.strays();
        assert!(strays.not_ip + strays.malformed + strays.no_such_address + strays.no_route <= offered);
        let lost: u64 = (0..4).map(|link| mesh.read_link(now, link)).map(|stats| stats.drops.total()).sum();
        let flows = mesh.flows();
        let sum = |count: fn(&FlowRecord) -> u64| flows.iter().map(count).sum::<u64>();
        assert_eq!(sum(|flow| flow.packets), sum(|flow| flow.delivered) + sum(|flow| flow.in_flight) + lost);
        sum(|flow| flow.in_flight)
    };
    check(now);
    assert_eq!(check(now + Time::from_secs(60)), 0, "nothing stays");
}

/// Three nodes in a row, with an XCP law, a law that marks, and loss.
#[cfg(target_os = "linux")]
fn row() -> crate::mesh::MeshSpec {
    use crate::emulator::LinkSpec;
    use tollway_law::link::{AnyLink, DropTail, StepConfig, XcpConfig};
    use tollway_law::param::Threshold;
    use tollway_law::{Rate, Time};
    use tollway_proto::faults::Loss;
    use tollway_proto::port::Limit;

    let rate = Rate::from_mbps(8.0);
    let link = |from, to, law| LinkSpec {
        from,
        to,
        rate,
        trace: None,
        delay: Time::from_millis(2),
        overhead: 0,
        law,
        limit: Limit { packets: 3, bytes: u64::MAX },
        queue: Default::default(),
    };
    let step = StepConfig { threshold: Threshold::Packets(1.0) }.build(Limit::NONE);
    let plain = || AnyLink::DropTail(DropTail);
    crate::mesh::MeshSpec {
        nodes: ["a", "r", "b"].map(String::from).to_vec(),
        links: vec![
            link(0, 1, XcpConfig::default().build(rate)),
            link(1, 2, AnyLink::Step(Box::new(step))),
            link(2, 1, plain()),
            link(1, 0, plain()),
        ],
        losses: vec![Vec::new(), Vec::new(), Loss::on_wire(0.1).into_iter().collect()],
        impairments: Vec::new(),
        changes: Vec::new(),
        next: vec![None, Some(0), Some(0), Some(3), None, Some(1), Some(2), Some(2), None],
        seed: 1,
        outside: Some(2),
    }
}

/// Datagrams to one of two peers with keys, from the other's address, and the whole as a key file.
///
/// An even first byte gives a datagram as it stands; an odd one is XORed into a sealed one. The
/// second is its length; and so on. Nothing unsealed is opened, and the peers can exchange packets
/// afterwards.
pub fn sealed(data: &[u8]) {
    let now = Time::from_secs(1);
    let _ = KeyFile::parse(&String::from_utf8_lossy(data));
    let files = KeyFile::mesh(&["a".into(), "b".into()]).expect("randomness");
    let addrs = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let [mut a, mut b] = [0, 1].map(|i: usize| {
        let peer = (files[1 - i].name.as_str(), addrs[1 - i]);
        Secure::new(&files[i], &[peer]).expect("each has the other's key")
    });
    let settle = |a: &mut Secure, b: &mut Secure| loop {
        let mut quiet = true;
        while let Some((_, mut datagram)) = a.poll_transmit() {
            b.handle_datagram(now, addrs[0], &mut datagram);
            quiet = false;
        }
        while let Some((_, mut datagram)) = b.poll_transmit() {
            a.handle_datagram(now, addrs[1], &mut datagram);
            quiet = false;
        }
        if quiet {
            break;
        }
    };
    a.open_all(now);
    settle(&mut a, &mut b);
    let mut rest = data;
    while let [turned, len, tail @ ..] = rest {
        let (given, tail) = tail.split_at(tail.len().min(usize::from(*len)));
        rest = tail;
        let mut datagram = given.to_vec();
        if let (true, Some(&at)) = (turned % 2 == 1, given.first()) {
            datagram.clear();
            assert!(a.seal(now, addrs[1], given, &mut datagram));
            let at = usize::from(at) % datagram.len();
            datagram[at] ^= turned;
        }
        assert!(!matches!(b.handle_datagram(now, addrs[0], &mut datagram), Heard::Packet(_)));
    }
    settle(&mut a, &mut b);
    let say = |from: &mut Secure, to: &mut Secure, at: usize| {
        let mut datagram = Vec::new();
        assert!(from.seal(now, addrs[1 - at], b"whole", &mut datagram));
        assert_eq!(to.handle_datagram(now, addrs[at], &mut datagram), Heard::Packet(5));
    };
    say(&mut a, &mut b, 0);
    say(&mut b, &mut a, 1);
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_node_hears_anything(data in prop::collection::vec(any::<u8>(), 0..600)) {
            if std::net::UdpSocket::bind("127.0.0.1:0").is_ok() {
                node(&data);
            }
        }
    }

    #[cfg(target_os = "linux")]
    proptest! {
        #[test]
        fn programs_may_send_anything(data in prop::collection::vec(any::<u8>(), 0..600)) {
            mesh(&data);
        }
    }

    #[test]
    fn nodes_hear_anything_of_their_neighbours() {
        if std::net::UdpSocket::bind("127.0.0.1:0").is_err() {
            eprintln!("SKIPPED: no UDP socket on loopback here");
            return;
        }
        replay("node", node);
    }

    #[test]
    fn handshakes_and_sealed_datagrams_are_read_or_refused() {
        replay("sealed", sealed);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_interfaces_say_is_read_or_refused() {
        replay("frame", frame);
        replay("mesh", mesh);
        replay("edge", edge);
    }

    fn replay(target: &str, run: fn(&[u8])) {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
        let files: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(files.len() >= 3);
        for file in files {
            run(&std::fs::read(file).unwrap());
        }
    }
}
