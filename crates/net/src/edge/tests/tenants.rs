//! Tenants of a direction, in virtual time.

use std::collections::BTreeMap;

use tollway_law::aggregate::{Depths, Scheme};
use tollway_law::bucket::Profile;
use tollway_law::link::{AnyLink, CodelConfig, DropTail, Limit};
use tollway_law::{Bytes, Rate, Time};
use tollway_proto::Port;
use tollway_proto::shaper::{Action, Increase, Order, PolicyConfig, TenantConfig};

use super::{frame, spec};
use crate::edge::{Filter, Labels, Lane, Members, TenantSpec};
use crate::sys::ip::tests::{packet, sum};
use crate::sys::ip::{self, TCP, UDP};
use crate::sys::prefix::Prefix;
use crate::sys::tun;

const SIZE: usize = 1000;

/// A tenant of packets from `from`, with logical partitions, a depth of 100 ms and drop-tail queues.
fn tenant(from: &str, mbps: f64) -> TenantSpec {
    let rate = Rate::from_mbps(mbps);
    TenantSpec {
        name: from.to_owned(),
        filter: Filter { from: Prefix::parse(from).unwrap(), ..Filter::default() },
        members: Members::Flows,
        config: TenantConfig {
            policy: PolicyConfig {
                profile: Profile { depth: Bytes((mbps * 12_500.0) as u64), rate, peak: None, largest: None },
                scheme: Scheme::Logical(Depths::Equal),
                order: Order::Fcfs,
                action: Action::Shape,
                increase: Increase::Standard,
            },
            queue: Port::new(
                AnyLink::DropTail(DropTail),
                Limit { packets: 100, ..Limit::NONE },
                Default::default(),
            ),
            room: 1000,
            borrows: false,
        },
        labels: Labels::default(),
    }
}

fn lane(tenants: &[TenantSpec], mbps: f64) -> Lane {
    Lane::new(&spec(AnyLink::DropTail(DropTail), mbps), tenants, true, [7; 16])
}

/// A UDP frame of 1000 bytes from a host's port, with a codepoint and an ECN field.
fn udp(from: [u8; 4], port: u16, tos: u8) -> Vec<u8> {
    let mut bytes = packet(from, [10, 9, 0, 1], UDP, tos, SIZE - 28);
    bytes[20..22].copy_from_slice(&port.to_be_bytes());
    frame(0, &bytes)
}

/// Sources of frames at constant rates, and the lane that they cross.
struct Load {
    lane: Lane,
    /// Frames that left, by source host and by type of service.
    left: BTreeMap<([u8; 4], u8), u64>,
    /// The departure of each.
    at: Vec<Time>,
}

impl Load {
    fn new(lane: Lane) -> Load {
        Load { lane, left: BTreeMap::new(), at: Vec::new() }
    }

    /// Offers each frame every `gap` µs of its own, for `seconds`.
    fn run(&mut self, seconds: u64, sources: &[(Vec<u8>, u64)]) {
        let mut due: Vec<u64> = sources.iter().zip(0..).map(|(_, i)| i).collect();
        loop {
            let (i, &at) = due.iter().enumerate().min_by_key(|(_, at)| **at).unwrap();
            if at > seconds * 1_000_000 {
                return;
            }
            let now = Time::from_micros(at);
            self.drain(now);
            super::offer(&mut self.lane, now, &sources[i].0);
            due[i] += sources[i].1;
        }
    }

    /// Lets frames leave until `now`.
    fn drain(&mut self, now: Time) {
        while self.lane.poll_timeout() <= now {
            let at = self.lane.poll_timeout();
            while let Some((left, handle)) = self.lane.poll(at) {
                let bytes = &self.lane.frame(handle)[tun::VNET_LEN + 14..];
                assert_eq!(sum(&bytes[..20]), 0, "the header's checksum");
                let from = [bytes[12], bytes[13], bytes[14], bytes[15]];
                *self.left.entry((from, bytes[1])).or_default() += 1;
                self.at.push(left);
                self.lane.free(handle);
            }
        }
    }

    /// Frames that left from hosts whose third octet is this.
    fn of(&self, net: u8) -> u64 {
        self.left.iter().filter(|((from, _), _)| from[2] == net).map(|entry| entry.1).sum()
    }
}

#[test]
fn tenants_have_their_rates_while_others_flood() {
    let tenants: Vec<TenantSpec> = (1..=4).map(|i| tenant(&format!("10.0.{i}.0/24"), f64::from(i))).collect();
    let mut load = Load::new(lane(&tenants, 10.4));
    // 40 Mb/s from the first, 5 Mb/s more than its share from each other, and one with no tenant.
    let gap = |mbps: f64| (8000.0 / mbps) as u64;
    let mut sources: Vec<_> =
        (1..=4u8).map(|i| (udp([10, 0, i, 1], 1, 0), gap(if i == 1 { 40.0 } else { 9.0 }))).collect();
    sources.push((udp([10, 0, 9, 1], 1, 0), gap(0.2)));
    load.run(20, &sources);
    for i in 1..=4u8 {
        let mbps = load.of(i) as f64 * 8e-3 / 20.0;
        assert!((mbps / f64::from(i) - 1.0).abs() < 0.03, "{i}: {mbps}");
    }
    assert!(load.of(9) > 490, "{}", load.of(9));
    let moments = load.lane.moment(Time::from_secs(20)).tenants;
    assert_eq!(moments.iter().map(|tenant| tenant.stats.members).collect::<Vec<_>>(), [1; 4]);
    assert!(moments[0].stats.dropped > 90_000, "{moments:?}");
}

#[test]
fn a_host_has_an_equal_part_whatever_the_number_of_its_flows() {
    let mut spec = tenant("10.0.0.0/16", 4.0);
    spec.members = Members::Sources;
    let mut sources: Vec<_> = (0..50).map(|port| (udp([10, 0, 1, 1], port, 0), 50_000)).collect();
    sources.push((udp([10, 0, 2, 1], 1, 0), 2_000));
    let mut load = Load::new(lane(&[spec], 100.0));
    load.run(20, &sources);
    let part = load.of(1) as f64 / load.of(2) as f64;
    assert!((part - 1.0).abs() < 0.02, "{part}");
    assert_eq!(load.lane.moment(Time::from_secs(20)).tenants[0].stats.members, 2);
}

#[test]
fn what_a_member_leaves_the_others_have_with_logical_partitions_only() {
    // 0.4 Mb/s beside a flood.
    let sources = [(udp([10, 0, 1, 1], 1, 0), 20_000), (udp([10, 0, 2, 1], 1, 0), 1_000)];
    for (scheme, mbps) in [
        (Scheme::Logical(Depths::Equal), 3.6),
        (Scheme::Partitioned(Depths::Equal), 2.0),
        (Scheme::Common, 3.6),
    ] {
        let mut spec = tenant("10.0.0.0/16", 4.0);
        spec.config.policy.scheme = scheme;
        let mut load = Load::new(lane(&[spec], 100.0));
        load.run(20, &sources);
        let had = load.of(2) as f64 * 8e-3 / 20.0;
        assert!((had / mbps - 1.0).abs() < 0.03, "{scheme:?}: {had}");
        if scheme != Scheme::Common {
            assert!(load.of(1) >= 995, "{scheme:?}: {}", load.of(1));
        }
    }
}

#[test]
fn what_a_tenant_leaves_the_others_have_in_proportion_to_their_rates() {
    // Of 1, 2, 3 and 4 Mb/s: the first sends nothing, the second half its rate, the others 20 Mb/s.
    let free = [0.0, 1.0, 27.0 / 7.0, 36.0 / 7.0];
    for (action, peak, wanted) in [
        (Action::Shape, None, free),
        (Action::Drop, None, free),
        (Action::Shape, Some(Rate::from_mbps(4.5)), [0.0, 1.0, 4.5, 4.5]),
    ] {
        let mut tenants: Vec<TenantSpec> =
            (1..=4).map(|i| tenant(&format!("10.0.{i}.0/24"), f64::from(i))).collect();
        for spec in &mut tenants {
            (spec.config.borrows, spec.config.policy.action) = (true, action);
        }
        tenants[3].config.policy.profile.peak = peak;
        let mut load = Load::new(lane(&tenants, 100.0));
        let source = |net, gap| (udp([10, 0, net, 1], 1, 0), gap);
        load.run(20, &[source(2, 8_000), source(3, 400), source(4, 400)]);
        for (net, wanted) in (1..).zip(wanted) {
            let mbps = load.of(net) as f64 * 8e-3 / 20.0;
            assert!((mbps - wanted).abs() <= 0.03 * wanted, "{action:?} {peak:?} {net}: {mbps}");
        }
        // All together keep to the sum of rates and depths.
        assert!(load.left.values().sum::<u64>() <= 20 * 1250 + 125, "{:?}", load.left);
    }
}

#[test]
fn packets_above_the_rate_are_dropped_or_labelled() {
    // 8 Mb/s under 2 Mb/s; codepoint 10 and ECT(0) on the way in.
    let sources = [(udp([10, 0, 1, 1], 1, 10 << 2 | 2), 1_000)];
    let labels = Labels { conforming: Some(46), excess: Some(8), excess_ecn: true };
    for (action, kinds) in [(Action::Drop, 1), (Action::Mark, 2)] {
        let mut spec = tenant("10.0.0.0/16", 2.0);
        spec.config.policy.action = action;
        spec.labels = labels;
        let mut load = Load::new(lane(&[spec], 100.0));
        load.run(20, &sources);
        assert_eq!(load.left.len(), kinds, "{:?}", load.left);
        let conforming = load.left[&([10, 0, 1, 1], 46 << 2 | 2)] as f64 * 8e-3 / 20.0;
        assert!((conforming / 2.0 - 1.0).abs() < 0.02, "{conforming}");
        if kinds == 2 {
            assert_eq!(load.left.values().sum::<u64>(), 20_000);
            assert!(load.left[&([10, 0, 1, 1], 8 << 2 | 3)] > 14_000, "{:?}", load.left);
        }
    }
}

#[test]
fn a_peak_spaces_packets_and_larger_ones_than_the_largest_are_dropped() {
    let mut spec = tenant("10.0.0.0/16", 2.0);
    spec.config.policy.profile.peak = Some(Rate::from_mbps(20.0));
    spec.config.policy.profile.largest = Some(SIZE as u32);
    let mut load = Load::new(lane(&[spec.clone()], 1000.0));
    load.run(1, &[(udp([10, 0, 1, 1], 1, 0), 100)]);
    // 20 Mb/s until the 25 kB of the bucket are used up, then 2 Mb/s.
    let gaps: Vec<u64> = load.at.windows(2).map(|pair| (pair[1] - pair[0]).0 / 1000).collect();
    assert!(gaps.iter().all(|&gap| gap >= 399), "{gaps:?}");
    assert!(gaps[..20].iter().all(|&gap| gap < 520), "{gaps:?}");
    spec.config.policy.profile.largest = Some(SIZE as u32 - 1);
    let mut load = Load::new(lane(&[spec], 1000.0));
    load.run(1, &[(udp([10, 0, 1, 1], 1, 0), 1000)]);
    assert!(load.at.is_empty());
    assert!(load.lane.moment(Time::from_secs(1)).tenants[0].stats.policy.too_large > 900);
}

#[test]
fn the_queue_of_a_member_is_under_the_law() {
    let mut spec = tenant("10.0.0.0/16", 2.0);
    let codel = AnyLink::Codel(Box::new(CodelConfig::default().build()));
    spec.config.queue = Port::new(codel, Limit { packets: 1000, ..Limit::NONE }, Default::default());
    let mut load = Load::new(lane(&[spec], 100.0));
    // 10 % above the rate, able to carry marks.
    load.run(20, &[(udp([10, 0, 1, 1], 1, 2), 3_600)]);
    let stats = load.lane.moment(Time::from_secs(20)).tenants[0].stats;
    assert!(stats.marked > 20, "{stats:?}");
    // The last marked one may still wait for tokens.
    assert!(stats.marked - load.left[&([10, 0, 1, 1], 3)] <= 1, "{:?}", load.left);
}

#[test]
fn a_handshake_states_the_round_trip_of_its_member() {
    let mut spec = tenant("10.0.0.0/16", 4.0);
    spec.config.policy.scheme = Scheme::Logical(Depths::ByRtt);
    let mut load = Load::new(lane(&[spec], 100.0));
    let segment = |host: u8, flags: u8| {
        let mut bytes = packet([10, 0, host, 1], [10, 9, 0, 1], TCP, 0, 960);
        bytes[33] = flags;
        frame(0, &bytes)
    };
    // Round trips of 50 and 150 ms divide the depth by 1 : 3, which idle members may send at once.
    super::offer(&mut load.lane, Time::ZERO, &segment(1, 2));
    super::offer(&mut load.lane, Time::ZERO, &segment(2, 0x12));
    super::offer(&mut load.lane, Time::from_millis(50), &segment(1, 0x10));
    super::offer(&mut load.lane, Time::from_millis(150), &segment(2, 0x10));
    load.drain(Time::from_millis(1900));
    super::offer(&mut load.lane, Time::from_millis(1900), &segment(1, 0x10));
    super::offer(&mut load.lane, Time::from_millis(1900), &segment(2, 0x10));
    load.drain(Time::from_secs(2));
    load.left.clear();
    for _ in 0..60 {
        super::offer(&mut load.lane, Time::from_secs(2), &segment(1, 0x10));
        super::offer(&mut load.lane, Time::from_secs(2), &segment(2, 0x10));
    }
    load.drain(Time::from_millis(2015));
    let (one, three) = (load.of(1), load.of(2));
    assert!((10..=17).contains(&one) && (35..=46).contains(&three), "{one} {three}");
}

#[test]
fn members_leave_and_their_number_is_limited() {
    let mut load = Load::new(lane(&[tenant("10.0.0.0/16", 2.0)], 100.0));
    for port in 0..5_000 {
        super::offer(&mut load.lane, Time::ZERO, &udp([10, 0, 1, 1], port, 0));
    }
    let members = |load: &mut Load, at| load.lane.moment(at).tenants[0].stats.members;
    assert_eq!(members(&mut load, Time::ZERO), 512);
    // The queues are empty after 5 s, and a last flow remains.
    load.drain(Time::from_secs(9));
    super::offer(&mut load.lane, Time::from_secs(9), &udp([10, 0, 1, 1], 7, 0));
    load.drain(Time::from_secs(9));
    assert_eq!(members(&mut load, Time::from_secs(9)), 1);
}

#[test]
fn the_most_specific_tenant_has_a_packet() {
    let mut by_code = tenant("*", 1.0);
    by_code.filter.dscp = vec![46];
    let specs = [tenant("*", 1.0), tenant("10.0.0.0/16", 1.0), tenant("10.0.1.1", 1.0), by_code];
    let specs = specs.map(|mut spec| {
        spec.config.policy.action = Action::Drop;
        spec
    });
    let mut lane = lane(&specs, 100.0);
    for bytes in [
        udp([10, 0, 1, 1], 1, 0),
        udp([10, 0, 1, 2], 1, 0),
        udp([10, 1, 1, 2], 1, 0),
        udp([10, 1, 1, 2], 1, 46 << 2),
        udp([10, 0, 1, 2], 1, 46 << 2),
    ] {
        super::offer(&mut lane, Time::ZERO, &bytes);
    }
    let counts: Vec<u64> = lane.moment(Time::ZERO).tenants.iter().map(|t| t.stats.policy.packets).collect();
    assert_eq!(counts, [1, 1, 1, 2]);
}

#[test]
fn a_tag_s_conditions_name_the_tenant_and_the_tag_is_removed() {
    let specs = [[1, 0], [2, 0], [0, 4], [2, 4]].map(|sights| {
        let mut spec = tenant("*", 1.0);
        spec.filter.sights = sights;
        spec.config.policy.action = Action::Drop;
        spec
    });
    let mut lane = lane(&specs, 100.0);
    lane.set_labelled(true);
    let whole = udp([10, 0, 1, 1], 1, 0);
    for bits in [0u8, 1, 2, 4, 6, 8] {
        let mut bytes = whole.clone();
        // Headers and start of the checksum, counted with the tag.
        (bytes[2], bytes[6]) = (46, 38);
        bytes.splice(tun::VNET_LEN + 12..tun::VNET_LEN + 12, [0x88, 0xa8, 0, bits]);
        super::offer(&mut lane, Time::ZERO, &bytes);
    }
    // A longer one is not copied.
    let mut long = frame(1, &packet([10, 0, 1, 1], [10, 9, 0, 1], UDP, 0, 3000));
    long.splice(tun::VNET_LEN + 12..tun::VNET_LEN + 12, [0x88, 0xa8, 0, 1]);
    super::offer(&mut lane, Time::ZERO, &long);
    let counts: Vec<u64> = lane.moment(Time::ZERO).tenants.iter().map(|t| t.stats.policy.packets).collect();
    assert_eq!(counts, [2, 1, 1, 1]);
    let left: Vec<Vec<u8>> = std::iter::from_fn(|| super::next(&mut lane)).map(|frame| frame.1).collect();
    assert_eq!(left.len(), 7);
    let mut plain = whole;
    (plain[2], plain[6]) = (42, 34);
    assert!(left[..6].iter().all(|frame| *frame == plain));
    assert_eq!(left[6][tun::VNET_LEN + 12..], long[tun::VNET_LEN + 16..]);
}

#[test]
fn a_reload_keeps_the_packets_of_tenants() {
    let specs = [tenant("10.0.0.0/16", 1.0)];
    let mut load = Load::new(lane(&specs, 100.0));
    for port in 0..100 {
        super::offer(&mut load.lane, Time::ZERO, &udp([10, 0, 1, 1], port, 0));
    }
    load.drain(Time::from_millis(1));
    let link = spec(AnyLink::DropTail(DropTail), 100.0);
    load.lane.replace(Time::from_millis(1), &link, &[tenant("10.0.0.0/16", 3.0)]);
    assert_eq!(load.lane.moment(Time::from_millis(1)).queued.0, 100 - load.of(1));
    load.lane.replace(Time::from_millis(2), &link, &[]);
    load.drain(Time::from_millis(20));
    assert_eq!(load.of(1), 100);
}

#[test]
fn codepoints_are_read_and_written_in_both_versions_of_ip() {
    for (mut bytes, ecn) in
        [(packet([10, 0, 0, 1], [10, 0, 0, 2], UDP, 46 << 2 | 1, 9), 1), (super::v6(0, 2, 9), 2)]
    {
        let whole = ip::parse_any(&bytes).unwrap();
        for value in [0, 10, 46, 63] {
            ip::set_dscp(&mut bytes, value);
            assert_eq!(ip::dscp(&bytes), value);
            assert!(bytes[0] >> 4 == 6 || sum(&bytes[..20]) == 0, "the header's checksum");
            assert_eq!(ip::parse_any(&bytes).unwrap(), whole);
        }
        ip::set_dscp(&mut bytes, 46);
        let tos = if bytes[0] >> 4 == 6 { bytes[0] << 4 | bytes[1] >> 4 } else { bytes[1] };
        assert_eq!(tos, 46 << 2 | ecn);
    }
}
