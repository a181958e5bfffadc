//! Frames, and raw ones on real interfaces.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use proptest::prelude::*;
use tollway_law::link::{AnyLink, DropTail, XcpConfig};
use tollway_law::sender::{NewRenoConfig, XcpConfig as XcpSender};
use tollway_law::{Rate, Time, Toll};
use tollway_proto::encoding::acp;
use tollway_proto::encoding::tcp_option::Forward;
use tollway_proto::port::Limit;
use tollway_proto::transport::{Config, Connection};
use tollway_proto::{Encoding, Flags, Packet, SackRanges};

use super::frame::{self, FrameContent, PREFIX};
use super::wire::{Mail, Wire};
use super::*;
use crate::kernel_tcp::{KernelSpec, PORTS};
use crate::network::{FlowSpec, Network};
use crate::sys::ip::{self, tests as packets};

/// The sum over 16-bit words, which is zero if the checksum is right (RFC 1071).
fn sum(words: impl Iterator<Item = u16>) -> u16 {
    let total: u32 = words.map(u32::from).sum();
    let folded = (total & 0xffff) + (total >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

/// The sum over a UDP or TCP packet's body and pseudo-header (RFC 768).
fn body_sum(packet: &[u8]) -> u16 {
    let body = &packet[20..];
    let words = packet[12..20].chunks(2).chain(body.chunks(2));
    let words = words.map(|pair| u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    sum(words.chain([u16::from(packet[9]), body.len() as u16]))
}

/// A frame around an IP packet; the checksum is not filled in if `unfinished`.
fn framed(packet: &[u8], unfinished: bool) -> Vec<u8> {
    let mut frame = vec![0; PREFIX];
    frame[0] = u8::from(unfinished);
    frame[tun::VNET_LEN..][..6].copy_from_slice(&HOST);
    frame[tun::VNET_LEN + 6..][..6].copy_from_slice(&HOST);
    frame[tun::VNET_LEN + 12..][..2].copy_from_slice(&[8, 0]);
    frame.extend_from_slice(packet);
    frame
}

/// ACP's datagram in a UDP packet for a node's socket, with a right checksum.
fn datagram(packet: &Packet, payload: usize) -> Vec<u8> {
    let mut bytes = packets::packet([10, 77, 0, 1], [10, 77, 0, 2], ip::UDP, 0, acp::LEN + payload);
    bytes[20..22].copy_from_slice(&PORT.to_be_bytes());
    bytes[22..24].copy_from_slice(&PORT.to_be_bytes());
    bytes[24..26].copy_from_slice(&((8 + acp::LEN + payload) as u16).to_be_bytes());
    acp::encode(packet, &SackRanges::EMPTY, &mut bytes[28..]).unwrap();
    let checksum = body_sum(&bytes);
    bytes[26..28].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

proptest! {
    #[test]
    fn what_links_write_into_a_datagram_is_read_again_and_leaves_a_right_checksum(
        flow in 0u32..1 << 20,
        payload in 0usize..200,
        due in any::<f64>().prop_filter("a number", |due| !due.is_nan()),
        (rtt, offer, echo) in (0f32..10.0, -1e6f32..1e6, 0f32..1e9),
        marked in any::<bool>(),
        unfinished in any::<bool>(),
    ) {
        let packet = Packet { flow, flags: Flags::DATA.with(Flags::TOLLED), ..Packet::default() };
        let mut frame = framed(&datagram(&packet, payload), unfinished);
        let before = [frame[PREFIX + 26], frame[PREFIX + 27]];
        let Some(FrameContent::Datagram(mut loaded)) = frame::load(&frame, PORT) else { panic!("not read") };
        prop_assert_eq!((loaded.flow, usize::from(loaded.size)), (flow, 28 + acp::LEN + payload));
        loaded.toll = Toll { due, rtt, offer, stake: 1.0, echo };
        if marked {
            loaded.flags.set(Flags::CE);
        }
        frame::store(&mut frame, &loaded);
        prop_assert_eq!(frame::load(&frame, PORT), Some(FrameContent::Datagram(loaded)));
        let at = frame::datagram(&frame).unwrap();
        prop_assert_eq!(acp::decode(&frame[at]).unwrap().packet.toll, loaded.toll);
        match unfinished {
            // The side that fills the checksum in computes it over the final bytes.
            true => prop_assert_eq!([frame[PREFIX + 26], frame[PREFIX + 27]], before),
            false => prop_assert_eq!(body_sum(&frame[PREFIX..]), 0),
        }
    }

    #[test]
    fn no_bytes_make_a_frame_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..160),
        (protocol, port) in (prop::sample::select(vec![ip::TCP, ip::UDP]), any::<bool>()),
    ) {
        if bytes.len() > PREFIX + 28 {
            bytes[1] &= 1;
            bytes[PREFIX] = 0x45;
            bytes[PREFIX + 2] = 0;
            bytes[PREFIX + 6] = 0;
            bytes[PREFIX + 7] = 0;
            bytes[PREFIX + 9] = protocol;
            if port {
                bytes[PREFIX + 22..PREFIX + 24].copy_from_slice(&PORT.to_be_bytes());
            }
        }
        let len = bytes.len();
        let _ = frame::datagram(&bytes);
        if let Some(FrameContent::Datagram(packet) | FrameContent::Segment(packet, _)) = frame::load(&bytes, PORT) {
            frame::store(&mut bytes, &Packet { flags: packet.flags.with(Flags::CE), ..packet });
        }
        prop_assert_eq!(bytes.len(), len);
    }
}

#[test]
fn a_train_is_nobodys_packet() {
    let mut frame = framed(&datagram(&Packet::default(), 100), true);
    assert!(frame::load(&frame, PORT).is_some());
    frame[1] = 5;
    frame[4] = 60;
    assert_eq!(frame::load(&frame, PORT), None);
}

#[test]
fn interfaces_have_names_that_tell_and_are_allowed() {
    let mut taken = HashSet::new();
    assert_eq!(name_of("r", 0, &mut taken), "to-r");
    assert_eq!(name_of("r", 7, &mut taken), "cable7");
    assert_eq!(name_of("a node of many words", 8, &mut taken), "cable8");
    assert_eq!(name_of("s/1", 9, &mut taken), "cable9");
}

#[test]
fn links_that_are_each_others_way_back_share_a_cable() {
    let links: Vec<LinkSpec> =
        [(0, 1), (1, 0), (0, 1), (2, 1)].into_iter().map(|(from, to)| link(from, to, false)).collect();
    let mut places = Vec::new();
    assert_eq!(pairs(&links, &mut places), [[0, 1], [0, 1], [2, 1]]);
    assert_eq!(places, [(0, 0), (0, 1), (1, 0), (2, 0)]);
}

fn link(from: u32, to: u32, xcp: bool) -> LinkSpec {
    let rate = Rate::from_mbps(20.0);
    LinkSpec {
        from,
        to,
        rate,
        trace: None,
        delay: Time::from_millis(2),
        overhead: 0,
        law: if xcp { XcpConfig::default().build(rate) } else { AnyLink::DropTail(DropTail) },
        limit: Limit { packets: 100, bytes: u64::MAX },
        queue: Default::default(),
    }
}

/// `a → r → b` and back; `None`, with a message, where there are no namespaces.
fn path(xcp: bool, threads: usize) -> Option<Network> {
    let links = [link(0, 1, xcp), link(1, 2, xcp), link(2, 1, xcp), link(1, 0, xcp)];
    match Network::in_namespaces(&["a", "r", "b"].map(String::from), &links, 1, threads, 1500) {
        Ok(network) => Some(network),
        Err(error) => {
            eprintln!("SKIPPED: {error}");
            None
        }
    }
}

fn flow(xcp: bool, bytes: u64) -> FlowSpec {
    let config = Arc::new(Config { segment: 1200, header: 80, ack_size: 112, ..Config::default() });
    let law = || {
        if xcp { XcpSender::default().build().into() } else { NewRenoConfig::default().build().into() }
    };
    let mut client = Connection::client(&config, law(), 0);
    client.write_stream(bytes);
    client.finish();
    FlowSpec {
        client,
        server: Connection::server(&config, law(), 0),
        forward: vec![0, 1],
        back: vec![2, 3],
        start: Time::from_millis(1),
        stop: Time::NEVER,
        encoding: Encoding::Acp,
        fingerprint: 0,
    }
}

#[test]
fn a_transfer_arrives_whole_and_the_kernel_counts_every_packet() {
    for (xcp, threads) in [(true, 1), (false, 2)] {
        let Some(mut network) = path(xcp, threads) else { return };
        let flow = network.add_flow(flow(xcp, 300_000)).unwrap();
        for step in 1..200 {
            network.run_until(Time::from_millis(50 * step)).unwrap();
            if !network.drain_done().is_empty() {
                break;
            }
        }
        assert_eq!(network.server(flow).stats().bytes_delivered, 300_000);
        network.settle().unwrap();
        let counters = network.counters();
        assert_eq!((counters.senseless, counters.strangers), (0, 0), "{counters:?}");
        let wires = network.wires();
        assert_eq!(wires.len(), 4);
        for wire in wires {
            assert!(wire.sent >= 100, "{wire:?}");
            assert_eq!(
                (wire.reported, wire.sent, wire.dropped),
                (wire.received, wire.received, 0),
                "{wire:?}"
            );
        }
    }
}

/// A kernel's connection, and a segment of the same flow with XCP's option, as from an XCP sender.
#[test]
fn xcps_option_in_tcp_is_answered_by_links_and_reaches_the_other_kernel() {
    let Some(mut network) = path(true, 1) else { return };
    let kernel = KernelSpec {
        congestion: "reno".into(),
        bytes: Some(40_000),
        packet: 1500,
        both_ways: false,
        receive_buffer: None,
        changes: false,
    };
    let flow = network.add_kernel_flow(&kernel, flow(true, 1)).unwrap();
    let ends = [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 3)];
    let wire =
        |network: &Network, node| network.namespace(node).unwrap().within(|| Wire::open(ETH0)).unwrap();
    let (here, there) = (wire(&network, 0), wire(&network, 2));
    // It asks for more than any link has, with a round trip of 40 ms.
    let asked = Forward { feedback: 0x7f00, rtt_ms: 40, cwnd: 100 };
    let mut segment = packets::xcp_segment(ends[0].octets(), ends[1].octets(), 2, asked);
    segment[20..22].copy_from_slice(&PORTS.to_be_bytes());
    segment[22..24].copy_from_slice(&PORTS.to_be_bytes());
    segment[36..38].fill(0);
    let checksum = body_sum(&segment);
    segment[36..38].copy_from_slice(&checksum.to_be_bytes());
    network.run_until(Time::from_millis(300)).unwrap();
    assert_eq!(here.send([&framed(&segment, false)[..]].into_iter()).unwrap(), 1);
    network.run_until(Time::from_millis(900)).unwrap();
    let mut mail = Mail::new(2000);
    let mut answered = None;
    while let Ok(count @ 1..) = there.receive(&mut mail) {
        for packet in (0..count).map(|i| &mail.frame(i)[PREFIX..]) {
            let Ok(header) = ip::parse(packet) else { continue };
            if let Some((_, forward)) = ip::xcp_option(packet, &header) {
                assert_eq!(body_sum(packet), 0, "its checksum is right again");
                answered = Some(forward);
            }
        }
    }
    let answered = answered.expect("it has arrived");
    assert_eq!((answered.rtt_ms, answered.cwnd), (asked.rtt_ms, asked.cwnd));
    assert!(answered.feedback < asked.feedback, "{answered:?}");
    assert_eq!(network.kernel_stats(flow, false).unwrap().delivered, 40_000);
    network.settle().unwrap();
}

#[test]
fn names_and_all_go_with_the_network() {
    let Some(network) = path(false, 1) else { return };
    let there = |name: &str| std::path::Path::new("/run/netns").join(name).exists();
    let names: Vec<String> = network.namespaces().into_iter().map(str::to_owned).collect();
    assert!(names.iter().all(|name| there(name)), "{names:?}");
    // The name of a live run must stay.
    let cleaned = clean_names();
    assert!(!cleaned.iter().any(|name| names.contains(name)), "{cleaned:?}");
    assert!(names.iter().all(|name| there(name)));
    drop(network);
    assert!(!names.iter().any(|name| there(name)));
}

#[test]
fn what_is_larger_than_an_interface_takes_is_told() -> io::Result<()> {
    let Some(network) = path(false, 1) else { return Ok(()) };
    let nic = network.namespace(0).unwrap().within(|| Wire::open(NIC))?;
    let frame = framed(&datagram(&Packet::default(), 3000), true);
    assert!(nic.send([&frame[..]].into_iter()).is_err());
    Ok(())
}
