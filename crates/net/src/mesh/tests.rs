use proptest::prelude::*;
use tollway_law::link::{AnyLink, DropTail, StepConfig, XcpConfig};
use tollway_law::param::Threshold;
use tollway_proto::encoding::tcp_option::Forward;
use tollway_proto::faults::{LossPlace, Only};
use tollway_proto::port::{FlowQueuesConfig, Isolation, Limit};

use super::*;
use crate::sys::ip::tests::{packet, packet_v6, xcp_segment};
use crate::sys::{address, address_v6};

fn link(from: u32, to: u32, delay: u64) -> LinkSpec {
    LinkSpec {
        from,
        to,
        rate: Rate::from_mbps(8.0),
        trace: None,
        delay: Time::from_millis(delay),
        overhead: 0,
        law: AnyLink::DropTail(DropTail),
        limit: Limit { packets: 3, bytes: u64::MAX },
        queue: Default::default(),
    }
}

/// Three nodes in a row, 8 Mb/s and 5 and 10 ms apart.
pub(in crate::mesh) fn row() -> MeshSpec {
    MeshSpec {
        nodes: ["a", "r", "b"].map(String::from).to_vec(),
        links: vec![link(0, 1, 5), link(1, 2, 10), link(2, 1, 10), link(1, 0, 5)],
        losses: Vec::new(),
        impairments: Vec::new(),
        changes: Vec::new(),
        next: vec![None, Some(0), Some(0), Some(3), None, Some(1), Some(2), Some(2), None],
        seed: 1,
        outside: None,
    }
}

fn from_to(from: u32, to: u32, payload: usize) -> Vec<u8> {
    packet(address(from).octets(), address(to).octets(), 17, 2, payload)
}

fn deliveries(mesh: &mut Mesh, until: Time) -> Vec<(f64, u32)> {
    mesh.handle_timeout(until);
    std::iter::from_fn(|| {
        let delivery = mesh.poll_delivery()?;
        mesh.release(delivery, true);
        Some((delivery.at.as_millis_f64(), delivery.node))
    })
    .collect()
}

#[test]
fn the_world_is_behind_its_node() {
    let mut mesh = Mesh::new(&MeshSpec { outside: Some(2), ..row() }, 0);
    let world = [192, 0, 2, 7];
    let from_a = packet(address(0).octets(), world, 17, 2, 472);
    let back = packet(world, address(0).octets(), 17, 2, 472);
    mesh.handle_frame(Time::ZERO, 0, &from_a, 0);
    mesh.handle_frame(Time::ZERO, 2, &back, 0);
    // Only the outside node may forward packets of foreign sources, and nothing is multicast.
    mesh.handle_frame(Time::ZERO, 1, &back, 0);
    mesh.handle_frame(Time::ZERO, 0, &packet(address(0).octets(), [224, 0, 0, 1], 17, 2, 8), 0);
    mesh.handle_frame(Time::ZERO, 0, &packet(address(0).octets(), [255; 4], 17, 2, 8), 0);
    mesh.handle_frame(Time::ZERO, 0, &packet(address(0).octets(), [10, 77, 9, 9], 17, 2, 8), 0);
    assert_eq!(deliveries(&mut mesh, Time::from_secs(1)), [(16.0, 2), (16.0, 0)]);
    assert_eq!(mesh.strays().no_such_address, 4);
    let mut closed = Mesh::new(&row(), 0);
    closed.handle_frame(Time::ZERO, 0, &from_a, 0);
    assert_eq!(closed.strays().no_such_address, 1);
}

#[test]
fn the_segments_of_a_train_are_counted_and_framed_each_by_itself() {
    let mut spec = row();
    // 38 B of framing each: 40 + 960 + 38 B take 1.038 ms.
    spec.links[0].overhead = 38;
    spec.links[0].limit = Limit { packets: u32::MAX, bytes: 5000 };
    let mut mesh = Mesh::new(&spec, 0);
    let train = packet(address(0).octets(), address(1).octets(), 6, 2, 4 * 960);
    for _ in 0..3 {
        mesh.handle_frame(Time::ZERO, 0, &train, 960);
    }
    // One train is being sent, one waits, and the third is dropped.
    assert_eq!(mesh.waits(0).1, 8);
    let came = deliveries(&mut mesh, Time::from_millis(50));
    let at: Vec<f64> = came.iter().map(|delivery| (delivery.0 * 1e3).round()).collect();
    assert_eq!(at, [9152.0, 13304.0]);
    let stats = mesh.read_link(Time::from_millis(50), 0);
    assert_eq!((stats.sent_packets, stats.drops.full, stats.sent_bytes), (8, 4, 8 * 1038));
    assert_eq!((mesh.waits(0).0.count(), mesh.waits(0).1), (8, 0));
    let flow = &mesh.flows()[0];
    assert_eq!((flow.packets, flow.delivered), (12, 8));
}

#[test]
fn ipv6_packets_are_carried_marked_and_counted_as_ipv4_packets() {
    let mut spec = row();
    spec.links[0].limit.packets = 1000;
    spec.links[0].law =
        AnyLink::Step(Box::new(StepConfig { threshold: Threshold::Packets(1.0) }.build(Limit::NONE)));
    let mut mesh = Mesh::new(&MeshSpec { outside: Some(2), ..spec }, 0);
    let [a, b] = [0, 1].map(|node| address_v6(node).octets());
    // 60 + 940 bytes take 1 ms. A train of three counts as three packets with a header each.
    for _ in 0..4 {
        mesh.handle_frame(Time::ZERO, 0, &packet_v6(a, b, 6, 2, 940), 0);
    }
    mesh.handle_frame(Time::from_millis(100), 0, &packet_v6(a, b, 6, 2, 3 * 940), 940);
    // Addresses of no node and not of the outside, such as the kernel's multicast, are strays.
    let multicast = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    mesh.handle_frame(Time::from_millis(200), 0, &packet_v6(a, multicast, 6, 2, 0), 0);
    mesh.handle_frame(Time::from_millis(200), 0, &packet_v6(b, a, 6, 2, 0), 0);
    mesh.handle_timeout(Time::from_secs(1));
    let (mut at, mut marked) = (Vec::new(), 0);
    while let Some(delivery) = mesh.poll_delivery() {
        at.push(delivery.at.as_millis_f64());
        marked += u64::from(ip::parse_any(mesh.frame(delivery)).unwrap().ecn == Flags::CE);
        mesh.release(delivery, true);
    }
    assert_eq!(at, [6.0, 7.0, 8.0, 9.0, 108.0]);
    assert_eq!((mesh.strays().no_such_address, mesh.strays().not_ip), (2, 0));
    let [flow] = &mesh.flows()[..] else { panic!("one flow") };
    assert_eq!((flow.packets, flow.delivered, flow.delivered_bytes), (7, 7, 7000));
    assert_eq!(flow.payload_bytes, 7 * 940);
    assert!(marked > 0 && flow.marks == marked, "{marked}");
    assert_eq!(flow.tuple.to_string(), "tcp [fd77::1]:8080 > [fd77::2]:80");
}

#[test]
fn hosts_share_before_their_flows() {
    for (isolation, expected) in [(Isolation::None, 40), (Isolation::From, 100)] {
        let mut spec = row();
        spec.links[0].limit.packets = 1000;
        spec.links[1].limit.packets = 1000;
        spec.links[1].rate = Rate::from_mbps(1.0);
        let config = FlowQueuesConfig { hosts: isolation, ..FlowQueuesConfig::default() };
        spec.links[1].queue = config.build().into();
        let mut mesh = Mesh::new(&spec, 0);
        // Four flows of one host and one of another, told apart by their protocols.
        for _ in 0..150 {
            for (from, protocol) in [(0, 200), (0, 201), (0, 202), (0, 203), (1, 200)] {
                let frame = packet(address(from).octets(), address(2).octets(), protocol, 2, 980);
                mesh.handle_frame(Time::ZERO, from, &frame, 0);
            }
        }
        // A packet takes 8 ms.
        deliveries(&mut mesh, Time::from_millis(1615));
        let flows = mesh.flows();
        let other = flows.iter().find(|flow| flow.from == 1).unwrap().delivered;
        assert!(other.abs_diff(expected) <= 5, "{isolation:?}: {other}");
    }
}

#[test]
fn a_train_stays_where_it_was_read() {
    let mut mesh = Mesh::new(&row(), 0);
    for (second, len) in [(0, 972), (1, 4972)] {
        let frame = from_to(0, 1, len);
        let mut bytes = mesh.spare();
        bytes[..frame.len()].copy_from_slice(&frame);
        mesh.handle_train(Time::from_secs(second), 0, bytes, frame.len(), 0);
        mesh.handle_timeout(Time::from_secs(second + 1));
        let delivery = mesh.poll_delivery().unwrap();
        assert_eq!(mesh.frame(delivery), frame);
        mesh.release(delivery, true);
    }
    // A dropped frame leaves its buffer to the next.
    let bytes = mesh.spare();
    mesh.handle_train(Time::from_secs(2), 0, bytes, 40, 0);
    assert_eq!((mesh.strays().malformed + mesh.strays().not_ip, mesh.buffers.alive()), (1, 0));
}

#[test]
fn packets_cross_hop_by_hop_at_virtual_instants() {
    let mut mesh = Mesh::new(&row(), 0);
    // 1000 bytes take 1 ms on each link; the second one waits for the first.
    mesh.handle_frame(Time::from_millis(1), 0, &from_to(0, 2, 972), 0);
    mesh.handle_frame(Time::from_millis(1), 0, &from_to(0, 2, 972), 0);
    mesh.handle_frame(Time::from_millis(1), 0, &from_to(0, 1, 472), 0);
    let seen = deliveries(&mut mesh, Time::from_secs(1));
    assert_eq!(seen, [(8.5, 1), (18.0, 2), (19.0, 2)]);
    let flow = &mesh.flows()[0];
    assert_eq!((flow.packets, flow.delivered, flow.delivered_bytes, flow.payload_bytes), (2, 2, 2000, 1944));
    assert_eq!((flow.delay_min, flow.delay_max), (Time(17_000_000 >> 6 << 6), Time(18_000_000 >> 6 << 6)));
    assert_eq!(mesh.buffers.alive(), 0);
}

#[test]
fn what_happens_to_links_happens_at_its_instant() {
    let mut spec = row();
    let change = |at, what| MeshChange { at: Time::from_millis(at), link: 0, what };
    spec.changes = vec![
        // Half of the packet in transmission remains, at half the rate.
        change(1, Change::Rate(Rate::from_mbps(4.0))),
        change(10, Change::Delay(Time::from_millis(1))),
        change(20, Change::Blackout(true)),
        change(30, Change::Blackout(false)),
    ];
    let mut mesh = Mesh::new(&spec, 0);
    assert_eq!(mesh.poll_timeout(), Time::from_millis(1));
    for sent in [0.5, 10.0, 25.0, 31.0] {
        mesh.handle_frame(Time::from_secs_f64(sent * 1e-3), 0, &from_to(0, 1, 972), 0);
    }
    let seen = deliveries(&mut mesh, Time::from_secs(1));
    assert_eq!(seen, [(7.0, 1), (13.0, 1), (34.0, 1)]);
    assert_eq!((mesh.read_link(Time::from_secs(1), 0).drops.before, mesh.poll_timeout()), (1, Time::NEVER));
}

#[test]
fn what_cannot_be_carried_is_counted_by_why() {
    let mut spec = row();
    spec.next[2] = None;
    let mut mesh = Mesh::new(&spec, 4);
    let framed = |bytes: Vec<u8>| [vec![0; 4], bytes].concat();
    mesh.handle_frame(Time(1), 0, &framed(from_to(0, 2, 10)), 0);
    mesh.handle_frame(Time(1), 0, &framed(from_to(0, 3, 10)), 0);
    mesh.handle_frame(Time(1), 0, &framed(from_to(1, 2, 10)), 0);
    mesh.handle_frame(Time(1), 0, &framed(vec![0x50; 40]), 0);
    mesh.handle_frame(Time(1), 0, &[0; 3], 0);
    let strays = Strays { not_ip: 1, malformed: 1, no_such_address: 2, no_route: 1 };
    assert_eq!(mesh.strays(), strays);
    assert_eq!(mesh.poll_timeout(), Time::NEVER);
}

#[test]
fn a_mark_is_written_into_the_packet() {
    let mut spec = row();
    spec.links[0].law =
        AnyLink::Step(Box::new(StepConfig { threshold: Threshold::Packets(1.0) }.build(Limit::NONE)));
    let mut mesh = Mesh::new(&spec, 0);
    for _ in 0..4 {
        mesh.handle_frame(Time::from_millis(1), 0, &from_to(0, 1, 972), 0);
    }
    mesh.handle_timeout(Time::from_secs(1));
    let mut marked = 0;
    while let Some(delivery) = mesh.poll_delivery() {
        marked += u32::from(ip::parse(mesh.frame(delivery)).unwrap().ecn == Flags::CE);
        mesh.release(delivery, true);
    }
    assert!(marked > 0);
    assert_eq!(mesh.flows()[0].marks, u64::from(marked));
}

#[test]
fn an_xcp_link_answers_packets_that_carry_its_header_and_no_others() {
    let mut spec = row();
    spec.links[0].law = XcpConfig::default().build(Rate::from_mbps(8.0));
    spec.links[0].limit = Limit { packets: 1000, bytes: u64::MAX };
    let mut mesh = Mesh::new(&spec, 0);
    let asks = Forward { feedback: Feedback::Split.encode(50.0), rtt_ms: 40, cwnd: 10 };
    let (a, b) = (address(0).octets(), address(1).octets());
    let mut got = Vec::new();
    // The offered load is 1.5 times the link's rate, for most of a second, so there is nothing to
    // give.
    for i in 0..10_000u64 {
        let now = Time::from_micros(76 * i);
        let bytes = if i % 2 == 0 { xcp_segment(a, b, 0, asks) } else { packet(a, b, 17, 0, 40) };
        mesh.handle_frame(now, 0, &bytes, 0);
        while let Some(delivery) = mesh.poll_delivery() {
            let bytes = mesh.frame(delivery);
            let header = ip::parse(bytes).unwrap();
            got.extend(ip::xcp_option(bytes, &header).map(|found| Feedback::Split.decode(found.1.feedback)));
            mesh.release(delivery, true);
        }
    }
    assert!(got.len() > 500, "{}", got.len());
    assert!(got[400..].iter().all(|&feedback| feedback < 1.0), "{:?}", &got[400..410]);
}

#[test]
fn feedback_leaves_a_right_checksum_and_one_that_the_kernel_has_left_to_others_alone() {
    let asks = Forward { feedback: Feedback::Split.encode(5000.0), rtt_ms: 40, cwnd: 10 };
    for (law, flags, changed, right) in [
        (XcpConfig::default().build(Rate::from_mbps(8.0)), 0, true, true),
        (XcpConfig::default().build(Rate::from_mbps(8.0)), 1, true, false),
        // A link without a law for tolls writes nothing.
        (AnyLink::DropTail(DropTail), 0, false, true),
    ] {
        let mut spec = row();
        spec.links[0].law = law;
        let mut mesh = Mesh::new(&spec, tun::VNET_LEN);
        let segment = xcp_segment(address(0).octets(), address(1).octets(), 0, asks);
        let mut frame = [vec![0; tun::VNET_LEN], segment].concat();
        frame[0] = flags;
        mesh.handle_frame(Time::from_millis(1), 0, &frame, 0);
        mesh.handle_timeout(Time::from_secs(1));
        let delivery = mesh.poll_delivery().unwrap();
        let bytes = &mesh.frame(delivery)[tun::VNET_LEN..];
        let found = ip::xcp_option(bytes, &ip::parse(bytes).unwrap()).unwrap().1;
        assert_eq!(found.feedback != asks.feedback, changed, "{flags}");
        assert_eq!(crate::sys::ip::tests::sum(&bytes[20..]) == 0, right, "{flags}");
    }
}

#[test]
fn nodes_have_the_addresses_of_their_numbers() {
    for (node, end) in [(0, [0, 1]), (254, [0, 255]), (255, [1, 0]), (700, [2, 189])] {
        assert_eq!(address(node).octets(), [10, 77, end[0], end[1]]);
        assert_eq!(address_v6(node).octets()[14..], end);
        for address in addresses(node) {
            assert_eq!((node_of(address, node + 1), node_of(address, node)), (Some(node), None));
        }
    }
    // No node has the network's own address, or an address of another network.
    for address in ["10.77.0.0", "10.78.0.1", "fd77::", "fd78::1", "fd77::1:1", "::1"] {
        assert_eq!(node_of(address.parse().unwrap(), 9), None, "{address}");
    }
}

#[test]
fn what_is_lost_at_random_is_set_changed_and_told() {
    let loss = |probability| Loss { place: LossPlace::Before, only: Only::All, probability };
    let mut spec = row();
    spec.losses = vec![vec![loss(1.0)], vec![loss(0.5), loss(0.5)]];
    let mut mesh = Mesh::new(&spec, 0);
    assert_eq!([0, 1, 2].map(|link| mesh.setting(link).loss), [1.0, 0.75, 0.0]);
    mesh.handle_frame(Time::ZERO, 0, &from_to(0, 1, 972), 0);
    assert_eq!(deliveries(&mut mesh, Time::from_secs(1)), []);
    mesh.change_now(Time::from_secs(1), 0, Change::Losses(Vec::new()));
    mesh.change_now(Time::from_secs(1), 3, Change::Losses(vec![loss(1.0)]));
    // An unknown number is ignored.
    mesh.change_now(Time::from_secs(1), 4, Change::Losses(vec![loss(1.0)]));
    assert_eq!([0, 3].map(|link| mesh.setting(link).loss), [0.0, 1.0]);
    mesh.handle_frame(Time::from_secs(1), 0, &from_to(0, 1, 972), 0);
    mesh.handle_frame(Time::from_secs(1), 1, &from_to(1, 0, 972), 0);
    assert_eq!(deliveries(&mut mesh, Time::from_secs(2)), [(1006.0, 1)]);
}

#[test]
fn a_change_makes_what_was_due_due_at_another_time() {
    let mut mesh = Mesh::new(&row(), 0);
    mesh.handle_frame(Time::ZERO, 0, &from_to(0, 1, 972), 0);
    mesh.handle_frame(Time::from_millis(1), 2, &from_to(2, 1, 972), 0);
    assert_eq!(mesh.poll_timeout(), Time::from_millis(6));
    // Half of it remains, at ten times the rate.
    mesh.change_now(Time::from_micros(500), 0, Change::Rate(Rate::from_mbps(80.0)));
    assert_eq!(mesh.poll_timeout(), Time::from_micros(5550));
    // Arrivals due before a change precede it.
    mesh.change_now(Time::from_millis(20), 0, Change::Blackout(true));
    let came: Vec<u32> = std::iter::from_fn(|| mesh.poll_delivery()).map(|delivery| delivery.node).collect();
    assert_eq!(came, [1, 1]);
}

#[test]
fn a_flow_s_record_tells_what_came_when_and_what_the_kernel_took() {
    let mut mesh = Mesh::new(&row(), 0);
    for ms in [10, 20, 110, 160] {
        mesh.handle_frame(Time::from_millis(ms), 0, &from_to(0, 1, 972), 0);
    }
    mesh.handle_timeout(Time::from_secs(1));
    for taken in [true, true, true, false] {
        let delivery = mesh.poll_delivery().unwrap();
        mesh.release(delivery, taken);
    }
    let flow = &mesh.flows()[0];
    assert_eq!((flow.packets, flow.bytes, flow.delivered, flow.delivered_bytes), (4, 4000, 3, 3000));
    assert_eq!((flow.first, flow.last), (Time::from_millis(10), Time::from_millis(160)));
    // By tenths of a second.
    assert_eq!(flow.rates, [(0, 2000), (1, 1000)]);
    // Each segment of a train has the delay of the train. The train came last and is delivered
    // last.
    let train = packet(address(0).octets(), address(1).octets(), 6, 2, 4 * 960);
    mesh.handle_frame(Time::from_millis(2000), 0, &train, 960);
    mesh.handle_timeout(Time::from_secs(3));
    let delivery = mesh.poll_delivery().unwrap();
    mesh.release(delivery, true);
    let flow = &mesh.flows()[1];
    assert_eq!((flow.packets, flow.bytes, flow.delivered_bytes, flow.payload_bytes), (4, 4000, 4000, 3840));
    assert_eq!((flow.last, flow.delay_sum.0), (Time::from_millis(2009), 4 * flow.delay_min.0));
}

proptest! {
    #[test]
    fn every_packet_is_somewhere(
        sent in prop::collection::vec((0u64..3_000, 0u32..3, 0u32..3, 0usize..1400), 1..200),
        loss in 0.0..0.5f64,
    ) {
        let mut spec = row();
        let random = Loss { place: LossPlace::After, only: Only::All, probability: loss };
        spec.losses = vec![vec![random]; 4];
        let mut mesh = Mesh::new(&spec, 0);
        let mut now = Time::ZERO;
        let mut delivered = 0;
        for (gap, from, to, payload) in sent {
            now += Time(gap * 1000);
            mesh.handle_frame(now, from, &from_to(from, to, payload), 0);
            delivered += deliveries(&mut mesh, now).len() as u64;
        }
        let entered: u64 = mesh.flows().iter().map(|flow| flow.packets).sum();
        let dropped: u64 = (0..4)
            .map(|link| {
                let stats = mesh.read_link(now, link);
                stats.drops.total()
            })
            .sum();
        let held: u64 = (0..4).map(|link| mesh.waits(link).1).sum();
        prop_assert_eq!(entered, delivered + dropped + held);
        prop_assert_eq!(mesh.buffers.alive(), held);
        prop_assert_eq!(held, mesh.flows().iter().map(|flow| flow.in_flight).sum::<u64>());
        prop_assert_eq!(delivered, mesh.flows().iter().map(|flow| flow.delivered).sum::<u64>());
    }
}
