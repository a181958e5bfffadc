//! Links that replay a trace, against the emulator's own procedure, one opportunity after the
//! other.

use std::collections::VecDeque;

use proptest::prelude::*;
use tollway_law::{Rate, Time};
use tollway_sim::{Network, RouteEnd, SourceId, SourceSpec, Trace};

use crate::fixed_window::FixedWindow;
use crate::wire;

/// A source: bytes per packet, packets per second, start in microseconds.
type Stream = (u16, u32, u64);

fn spec_of((size, per_sec, start): Stream, route: tollway_sim::RouteId) -> SourceSpec {
    let rate = Rate::from_bytes_per_sec(f64::from(size) * f64::from(per_sec));
    SourceSpec { route, rate, size, start: Time::from_micros(start), stop: Time::NEVER, on_off: None }
}

/// Bytes that have arrived at the far end at the end of each millisecond, all sources together.
fn simulated(trace: &Trace, overhead: u32, streams: &[Stream], millis: u64) -> Vec<u64> {
    let mut network: Network<FixedWindow> = Network::new(1);
    let link = network.add_link(tollway_sim::LinkSpec { overhead, ..wire(10.0, Time::ZERO) });
    network.set_trace(link, trace.clone());
    let route = network.add_route(&[link], RouteEnd::Sink);
    let sources: Vec<SourceId> = streams.iter().map(|&s| network.add_source(spec_of(s, route))).collect();
    let at_each = |ms| {
        network.run_until(Time::from_millis(ms) + Time(1));
        sources.iter().map(|&s| network.read_source(s).arrived_bytes).sum()
    };
    (0..=millis).map(at_each).collect()
}

/// The same by Mahimahi's `LinkQueue`: a packet may use only opportunities after its arrival.
fn emulated(trace: &[u32], overhead: u32, streams: &[Stream], millis: u64) -> Vec<u64> {
    let mut packets: Vec<(Time, usize, u64)> = Vec::new();
    for (i, &(size, per_sec, start)) in streams.iter().enumerate() {
        let rate = Rate::from_bytes_per_sec(f64::from(size) * f64::from(per_sec));
        for k in 0.. {
            let at = Time::from_micros(start) + rate.time_for(k * u64::from(size));
            if at > Time::from_millis(millis) {
                break;
            }
            packets.push((at, i, u64::from(size)));
        }
    }
    packets.sort();
    let mut packets = VecDeque::from(packets);
    let (mut next, mut base, mut arrived) = (0, 0, 0);
    // The packet in transmission: bytes left to send, and its size.
    let mut under_way: Option<(u64, u64)> = None;
    let mut by_millis = Vec::new();
    for ms in 0..=millis {
        while base + u64::from(trace[next]) == ms {
            next += 1;
            if next == trace.len() {
                (next, base) = (0, base + u64::from(trace[trace.len() - 1]));
            }
            let mut left = 1500;
            while left > 0 {
                if under_way.is_none() {
                    // It arrived before this instant.
                    let Some(&(_, _, size)) = packets.front().filter(|p| p.0 < Time::from_millis(ms)) else {
                        break;
                    };
                    packets.pop_front();
                    under_way = Some((size + u64::from(overhead), size));
                }
                let Some((to_go, size)) = under_way.take() else { break };
                let sent = left.min(to_go);
                left -= sent;
                if to_go > sent {
                    under_way = Some((to_go - sent, size));
                } else {
                    arrived += size;
                }
            }
        }
        by_millis.push(arrived);
    }
    by_millis
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_packet_leaves_when_the_emulator_says(
        gaps in prop::collection::vec(0u32..9, 1..40),
        overhead in prop_oneof![Just(0u32), 1u32..200],
        streams in prop::collection::vec((60u16..=3000, 1u32..800, 0u64..20_000), 1..4),
    ) {
        let mut at = 0;
        let mut millis: Vec<u32> = gaps.iter().map(|gap| { at += gap; at }).collect();
        millis.push(at + 1);
        let trace = Trace::new(&millis).unwrap();
        let (ours, theirs) =
            (simulated(&trace, overhead, &streams, 300), emulated(&millis, overhead, &streams, 300));
        prop_assert_eq!(ours, theirs);
    }
}

/// Packets that arrive at the instant of an opportunity are too late for it.
#[test]
fn an_opportunity_does_not_wait() {
    let trace = Trace::new(&[0, 2, 4, 6]).unwrap();
    let streams = [(1500, 500, 0)];
    let ours = simulated(&trace, 0, &streams, 10);
    assert_eq!(ours, emulated(&[0, 2, 4, 6], 0, &streams, 10));
    // From 2 ms on one packet leaves at each opportunity, first that of 0 ms. 6 ms is also the next
    // period's 0 ms.
    assert_eq!(ours[..8], [0, 0, 1500, 1500, 3000, 3000, 4500, 4500]);
}

/// A full queue keeps a link at the mean rate of its trace.
#[test]
fn a_busy_link_has_the_mean_rate() {
    let trace = Trace::new(&[1, 1, 3, 8, 8, 8, 20]).unwrap();
    let mut network: Network<FixedWindow> = Network::new(1);
    let link = network.add_link(wire(1.0, Time::from_millis(3)));
    network.set_trace(link, trace.clone());
    let route = network.add_route(&[link], RouteEnd::Sink);
    let source = network.add_source(spec_of((1000, 1000, 0), route));
    let end = Time::from_secs(20);
    network.run_until(end);
    let arrived = network.read_source(source).arrived_bytes as f64;
    let expected = trace.mean_rate().bytes_in(end);
    assert!((arrived / expected - 1.0).abs() < 1e-3, "{arrived} {expected}");
    // A packet always waits for the next opportunity.
    let busy = network.read_link(link).busy_ns;
    assert!((19_990_000_000..=20_000_000_000).contains(&busy), "{busy}");
    assert!(network.census().is_conserved());
}
