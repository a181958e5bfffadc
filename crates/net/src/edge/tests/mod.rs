mod meters;
mod tenants;
mod trips;

use proptest::prelude::*;
use tollway_law::link::{AnyLink, CodelConfig, DropTail, Shared, StepConfig, XcpConfig};
use tollway_law::param::Threshold;
use tollway_law::{Rate, Time};
use tollway_proto::encoding::tcp_option::Forward;
use tollway_proto::port::{ClassQueuesConfig, Limit};

use super::Lane;
use crate::emulator::LinkSpec;
use crate::sys::ip::tests::{packet, sum, xcp_segment};
use crate::sys::ip::{self, TCP, UDP};
use crate::sys::tun;

fn spec(law: AnyLink, mbps: f64) -> LinkSpec {
    LinkSpec {
        from: 0,
        to: 1,
        rate: Rate::from_mbps(mbps),
        trace: None,
        delay: Time::ZERO,
        overhead: 0,
        law,
        limit: Limit { packets: 1000, bytes: u64::MAX },
        queue: Default::default(),
    }
}

fn lane(law: AnyLink, mbps: f64) -> Lane {
    Lane::new(&spec(law, mbps), &[], true, [7; 16])
}

/// A frame with `tags` VLAN tags around an IP packet.
fn frame(tags: usize, packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; tun::VNET_LEN + 12];
    for _ in 0..tags {
        frame.extend([0x81, 0, 0, 9]);
    }
    let v6 = packet.first().is_some_and(|first| first >> 4 == 6);
    frame.extend(if v6 { [0x86, 0xdd] } else { [8, 0] });
    frame.extend(packet);
    frame
}

fn offer(lane: &mut Lane, now: Time, bytes: &[u8]) {
    let mut room = lane.spare();
    room[..bytes.len()].copy_from_slice(bytes);
    lane.offer(now, room, bytes.len());
}

/// The next frame that leaves, and the instant.
fn next(lane: &mut Lane) -> Option<(Time, Vec<u8>)> {
    let (at, handle) = lane.poll(Time::from_secs(100))?;
    let bytes = lane.frame(handle).to_vec();
    lane.free(handle);
    Some((at, bytes))
}

/// An IPv6 packet of UDP with `extension` headers of eight bytes.
fn v6(extensions: usize, ecn: u8, payload: usize) -> Vec<u8> {
    let mut bytes = vec![0; 40 + 8 * extensions + 8 + payload];
    let len = (bytes.len() - 40) as u16;
    bytes[0] = 0x60;
    bytes[1] = ecn << 4;
    bytes[4..6].copy_from_slice(&len.to_be_bytes());
    bytes[6] = if extensions > 0 { 60 } else { UDP };
    (bytes[23], bytes[39]) = (1, 2);
    for i in 0..extensions {
        bytes[40 + 8 * i] = if i + 1 < extensions { 60 } else { UDP };
    }
    let at = 40 + 8 * extensions;
    bytes[at..at + 4].copy_from_slice(&[0x1f, 0x90, 0, 80]);
    bytes
}

#[test]
fn frames_pass_unchanged_at_the_link_s_rate() {
    let mut lane = lane(AnyLink::DropTail(DropTail), 8.0);
    let plain = frame(0, &packet([10, 0, 0, 1], [10, 0, 0, 2], UDP, 0, 972));
    let tagged = frame(2, &packet([10, 0, 0, 1], [10, 0, 0, 2], TCP, 0, 960));
    let other = frame(0, &v6(1, 0, 944));
    // A frame that is no IP has its length without Ethernet's header.
    let mut strange = frame(0, &[0x20; 1000]);
    strange[tun::VNET_LEN + 12..tun::VNET_LEN + 14].copy_from_slice(&[0x88, 0x64]);
    let all = [plain, tagged, other, strange];
    for bytes in &all {
        offer(&mut lane, Time::ZERO, bytes);
    }
    for (bytes, millis) in all.iter().zip(1..) {
        assert_eq!(next(&mut lane), Some((Time::from_millis(millis), bytes.clone())));
    }
    assert_eq!(next(&mut lane), None);
    let moment = lane.moment(Time::from_secs(100));
    assert_eq!((moment.stats.sent_packets, moment.stats.sent_bytes, moment.queued), (4, 4000, (0, 0)));
}

#[test]
fn a_train_counts_as_its_segments() {
    let mut lane = lane(AnyLink::DropTail(DropTail), 8.0);
    let mut train = frame(0, &packet([10, 0, 0, 1], [10, 0, 0, 2], TCP, 0, 3 * 960 - 100));
    train[1] = 1;
    train[4..6].copy_from_slice(&960u16.to_ne_bytes());
    offer(&mut lane, Time::ZERO, &train);
    // Three headers of 40 bytes.
    assert_eq!(next(&mut lane).unwrap().0, Time::from_micros(2900));
    assert_eq!(lane.moment(Time::from_secs(1)).stats.sent_packets, 3);
}

#[test]
fn marks_are_written_into_both_versions_of_ip() {
    let marks = StepConfig { threshold: Threshold::Packets(0.0) };
    for ip_packet in [packet([10, 0, 0, 1], [10, 0, 0, 2], UDP, 2, 100), v6(0, 2, 100)] {
        let mut lane = lane(AnyLink::Step(Box::new(marks.build(Limit::NONE))), 1.0);
        for _ in 0..3 {
            offer(&mut lane, Time::ZERO, &frame(1, &ip_packet));
        }
        let seen: Vec<u8> = std::iter::from_fn(|| next(&mut lane))
            .map(|(_, bytes)| {
                let bytes = &bytes[tun::VNET_LEN + 18..];
                assert!(bytes[0] >> 4 == 6 || sum(&bytes[..20]) == 0, "the header's checksum");
                u8::from(ip::parse_any(bytes).unwrap().ecn == tollway_proto::Flags::CE)
            })
            .collect();
        assert_eq!(
            (seen.len(), lane.moment(Time::from_secs(1)).stats.marks),
            (3, u64::from(seen.iter().sum::<u8>()))
        );
        assert!(seen.contains(&1), "{seen:?}");
    }
}

#[test]
fn an_explicit_law_writes_into_tcp_s_option() {
    let mut lane = lane(XcpConfig::default().build(Rate::from_mbps(10.0)), 10.0);
    let asks = Forward { feedback: 0x7fff, rtt_ms: 40, cwnd: 10 };
    for i in 0..200u64 {
        let segment = xcp_segment([10, 0, 0, 1], [10, 0, 0, 2], 0, asks);
        offer(&mut lane, Time::from_millis(i), &frame(0, &segment));
        while let Some((_, handle)) = lane.poll(Time::from_millis(i)) {
            lane.free(handle);
        }
    }
    let segment = xcp_segment([10, 0, 0, 1], [10, 0, 0, 2], 0, asks);
    offer(&mut lane, Time::from_millis(200), &frame(0, &segment));
    let mut last = None;
    while let Some((_, bytes)) = next(&mut lane) {
        last = Some(bytes);
    }
    let bytes = &last.unwrap()[tun::VNET_LEN + 14..];
    let header = ip::parse(bytes).unwrap();
    let granted = ip::xcp_option(bytes, &header).unwrap().1;
    assert_ne!(granted.feedback, asks.feedback, "no sender gets all that it asks for");
    assert_eq!(sum(&bytes[20..]), 0, "TCP's checksum");
}

#[test]
fn ordinary_traffic_has_its_own_queue_beside_that_of_an_explicit_law() {
    let xcp = XcpConfig::default().build(Rate::from_mbps(10.0));
    let codel = AnyLink::Codel(Box::new(CodelConfig::default().build()));
    let law = Shared::new(vec![(codel, 1.0), (xcp, 1.0)], Rate::from_mbps(10.0));
    let mut queue = ClassQueuesConfig { apart: true, ..ClassQueuesConfig::default() };
    queue.queue_of[1] = 1;
    let spec = LinkSpec { queue: queue.build().into(), ..spec(AnyLink::Shared(Box::new(law)), 10.0) };
    let mut lane = Lane::new(&spec, &[], true, [7; 16]);
    let plain = frame(0, &packet([10, 0, 0, 1], [10, 0, 0, 2], UDP, 0, 972));
    let asks = Forward { feedback: 0x7fff, rtt_ms: 40, cwnd: 10 };
    let tolled = frame(0, &xcp_segment([10, 0, 0, 3], [10, 0, 0, 2], 0, asks));
    let (mut left, mut bytes) = ([0u64; 2], [0u64; 2]);
    // 16 Mb/s of ordinary traffic, and 4.2 Mb/s of XCP's.
    for i in 0..20_000u64 {
        let now = Time::from_micros(i * 500);
        while let Some((_, handle)) = lane.poll(now) {
            let is_tolled = lane.frame(handle).len() == tolled.len();
            left[usize::from(is_tolled)] += 1;
            bytes[usize::from(is_tolled)] += lane.frame(handle).len() as u64;
            lane.free(handle);
        }
        offer(&mut lane, now, &plain);
        if i % 2 == 0 {
            offer(&mut lane, now, &tolled);
        }
    }
    // XCP's packets are fewer than its half, and none waits long; the rest is for the others.
    assert!(left[1] >= 9_990, "{left:?}");
    let mbps = bytes.map(|bytes| bytes as f64 * 8e-7);
    assert!(mbps[0] > 0.95 * (10.0 - mbps[1]), "{mbps:?}");
}

#[test]
fn a_new_link_takes_over_the_packets_of_the_old() {
    let mut lane = lane(AnyLink::DropTail(DropTail), 8.0);
    for id in 0..10u8 {
        let mut ip_packet = packet([10, 0, 0, 1], [10, 0, 0, 2], UDP, 0, 972);
        ip_packet[40] = id;
        offer(&mut lane, Time::ZERO, &frame(0, &ip_packet));
    }
    for id in 0..2 {
        let (_, handle) = lane.poll(Time::from_millis(2)).unwrap();
        assert_eq!(lane.frame(handle)[tun::VNET_LEN + 14 + 40], id);
        lane.free(handle);
    }
    lane.replace(
        Time::from_millis(2),
        &spec(AnyLink::Codel(Box::new(CodelConfig::default().build())), 80.0),
        &[],
    );
    let rest: Vec<(Time, u8)> =
        std::iter::from_fn(|| next(&mut lane)).map(|(at, bytes)| (at, bytes[tun::VNET_LEN + 54])).collect();
    let wanted: Vec<(Time, u8)> =
        (2..10).map(|id| (Time::from_micros(2000 + 100 * (u64::from(id) - 1)), id)).collect();
    assert_eq!(rest, wanted);
    assert_eq!(lane.moment(Time::from_secs(1)).stats.sent_packets, 11, "the third began twice");
}

proptest! {
    /// No frame is lost or changed but for marks and feedback, whatever it holds.
    #[test]
    fn any_bytes_pass(frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..20)) {
        crate::fuzzing::edge(&frames.concat());
        let mut lane = lane(AnyLink::DropTail(DropTail), 100.0);
        let mut kept = Vec::new();
        for bytes in &frames {
            offer(&mut lane, Time::ZERO, bytes);
            kept.extend((lane.moment(Time::ZERO).queued.0 > kept.len() as u64).then(|| bytes.clone()));
        }
        let out: Vec<Vec<u8>> = std::iter::from_fn(|| next(&mut lane)).map(|frame| frame.1).collect();
        prop_assert_eq!(out, kept);
    }
}
