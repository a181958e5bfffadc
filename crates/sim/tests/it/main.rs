//! The simulator against results computed by hand, and its invariants under faults.

mod fixed_window;
mod liars;
mod machines;
mod replay;
mod sessions;
mod ways;

use fixed_window::FixedWindow;
use proptest::prelude::*;
use tollway_law::link::{AnyLink, CodelConfig, DropTail, RedConfig, StepConfig};
use tollway_law::param::Threshold;
use tollway_law::{Rate, Time};
use tollway_proto::faults::{Loss, LossPlace, Only};
use tollway_proto::port::{AnyQueue, FlowQueuesConfig, Limit};
use tollway_proto::{Change, Encoding, Flags};
use tollway_sim::{FlowId, FlowSpec, LinkId, LinkSpec, Network, RouteEnd, RouteId, SourceSpec};

const FOREVER: Time = Time::NEVER;

fn wire(mbps: f64, delay: Time) -> LinkSpec {
    LinkSpec {
        rate: Rate::from_mbps(mbps),
        delay,
        overhead: 0,
        law: AnyLink::DropTail(DropTail),
        limit: Limit::NONE,
        queue: Default::default(),
    }
}

/// Client, one duplex link, server.
struct Pair {
    network: Network<FixedWindow>,
    there: LinkId,
    back: LinkId,
    routes: (RouteId, RouteId),
}

impl Pair {
    fn new(there: LinkSpec, back: LinkSpec) -> Pair {
        let mut network = Network::new(7);
        let there = network.add_link(there);
        let back = network.add_link(back);
        let routes =
            (network.add_route(&[there], RouteEnd::Server), network.add_route(&[back], RouteEnd::Client));
        Pair { network, there, back, routes }
    }

    fn spec(&self, window: u32, start: Time) -> FlowSpec<FixedWindow> {
        FlowSpec {
            client: FixedWindow::new(window, 1500),
            server: FixedWindow::new(0, 1500),
            forward: self.routes.0,
            back: self.routes.1,
            start,
            stop: FOREVER,
            encoding: Encoding::Acp,
            segment: 1500,
        }
    }

    fn flow(&mut self, window: u32, start: Time) -> FlowId {
        let spec = self.spec(window, start);
        self.network.add_flow(spec)
    }

    fn check(&self) {
        let census = self.network.census();
        assert!(census.is_conserved(), "{census:?}");
        assert_eq!(self.network.packets_alive(), census.queued + census.in_flight);
    }
}

#[test]
fn a_packet_takes_its_serialisation_and_its_delay() {
    let mut pair = Pair::new(wire(10.0, Time::from_millis(5)), wire(10.0, Time::from_millis(5)));
    let flow = pair.flow(1, Time::from_millis(1));
    // 1500 bytes at 10 Mbps take 1.2 ms: arrival at 7.2 ms. 40 bytes take 32 us: back at 12.232 ms.
    let there = Time::from_micros(7_200);
    pair.network.run_until(there);
    assert_eq!(pair.network.server(flow).received, 0);
    pair.network.run_until(there + Time(1));
    assert_eq!(pair.network.server(flow).received, 1);
    pair.network.run_until(Time::from_micros(12_232));
    assert_eq!(pair.network.client(flow).acked, 0);
    pair.network.run_until(Time::from_micros(12_232) + Time(1));
    assert_eq!(pair.network.client(flow).acked, 1);
    pair.check();
}

#[test]
fn a_rate_that_is_no_whole_number_of_nanoseconds_a_byte_is_exact_in_the_long_run() {
    let mut pair = Pair::new(wire(7_000.0, Time::ZERO), wire(100_000.0, Time::ZERO));
    pair.flow(1_000, Time::ZERO);
    pair.network.run_until(Time::from_secs(2));
    let sent = pair.network.read_link(pair.there).sent_bytes as f64;
    let expected = 7e9 / 8.0 * 2.0;
    assert!((sent - expected).abs() < 2.0 * 1500.0, "{sent} {expected}");
}

#[test]
fn framing_counts_against_the_rate() {
    let mut spec = wire(10.0, Time::ZERO);
    spec.overhead = 38;
    let mut pair = Pair::new(spec, wire(1_000.0, Time::ZERO));
    let flow = pair.flow(50, Time::ZERO);
    pair.network.run_until(Time::from_secs(10));
    let payload = f64::from(pair.network.server(flow).received) * 1500.0 * 8.0 / 10.0;
    assert!((payload / 10e6 - 1500.0 / 1538.0).abs() < 1e-4, "{payload}");
    let stats = pair.network.read_link(pair.there);
    assert!((stats.busy_ns as f64 / 1e10 - 1.0).abs() < 1e-6, "{stats:?}");
}

#[test]
fn the_queue_is_integrated_exactly() {
    // Ten packets at once into 12 Mbps: one leaves each millisecond, so 9, 8, … 0 wait.
    let mut pair = Pair::new(wire(12.0, Time::from_millis(50)), wire(12.0, Time::ZERO));
    pair.network.with_link(pair.there, |link, now| link.measure(now, true));
    pair.flow(10, Time::ZERO);
    pair.network.run_until(Time::from_millis(20));
    let stats = pair.network.read_link(pair.there);
    assert_eq!(stats.queue_packet_ns, 45 * 1_000_000);
    assert_eq!(stats.queue_byte_ns, 45 * 1_500_000_000);
    assert_eq!((stats.queue_max_packets, stats.queue_max_bytes), (9, 13_500));
    assert_eq!(stats.busy_ns, 10_000_000);
    let later = pair.network.read_link(pair.there);
    assert_eq!((later.queue_packet_ns, later.queue_max_packets), (0, 0));
}

#[test]
fn a_full_queue_drops_what_comes_last() {
    let mut spec = wire(12.0, Time::ZERO);
    spec.limit = Limit { packets: 4, bytes: u64::MAX };
    let mut pair = Pair::new(spec, wire(12.0, Time::ZERO));
    let flow = pair.flow(10, Time::ZERO);
    pair.network.run_until(Time::from_secs(1));
    assert_eq!(pair.network.read_link(pair.there).drops.full, 5);
    assert!(pair.network.server(flow).received >= 5);
    pair.check();
}

#[test]
fn packets_dropped_from_the_queue_are_accounted_for() {
    let by_flow = FlowQueuesConfig { queues: 4, ..FlowQueuesConfig::default() }.build();
    for queue in [AnyQueue::default(), by_flow.into()] {
        let codel = CodelConfig { target: Time::from_millis(1), interval: Time::from_millis(2) };
        let law = AnyLink::Codel(Box::new(codel.build()));
        let limit = Limit { packets: 30, bytes: u64::MAX };
        let spec = LinkSpec { law, limit, queue, ..wire(12.0, Time::from_millis(1)) };
        let mut pair = Pair::new(spec, wire(1_000.0, Time::ZERO));
        let flows: Vec<FlowId> = (0..3).map(|k| pair.flow(20, Time::from_millis(5 * k))).collect();
        for ms in 1..100 {
            pair.network.run_until(Time::from_millis(ms));
            pair.check();
        }
        let drops = pair.network.read_link(pair.there).drops;
        assert!(drops.law > 5 && drops.full > 5, "{drops:?}");
        for &flow in &flows {
            pair.network.retire_flow(flow);
        }
        pair.network.run_until(Time::from_secs(1));
        // Otherwise a flow's number could never be reused.
        assert!(flows.iter().all(|&flow| pair.network.has_vanished(flow)));
        pair.check();
    }
}

#[test]
fn marks_on_departure_count() {
    let codel = CodelConfig { target: Time::from_millis(1), interval: Time::from_millis(2) };
    let spec = LinkSpec { law: AnyLink::Codel(Box::new(codel.build())), ..wire(12.0, Time::ZERO) };
    let mut pair = Pair::new(spec, wire(1_000.0, Time::ZERO));
    let mut flow = pair.spec(40, Time::ZERO);
    flow.client.flags = Flags::ECT;
    pair.network.add_flow(flow);
    pair.network.run_until(Time::from_millis(100));
    let stats = pair.network.read_link(pair.there);
    assert_eq!(stats.drops.total(), 0);
    assert!(stats.marks > 20, "{stats:?}");
}

#[test]
fn a_change_of_rate_takes_the_packet_in_transmission_along() {
    let mut pair = Pair::new(wire(8.0, Time::from_millis(10)), wire(8.0, Time::ZERO));
    let flow = pair.flow(2, Time::ZERO);
    // A third of the first packet has left when the rate halves. It takes 0.5 + 2 ms, the second 3
    // ms more.
    pair.network.run_until(Time::from_micros(500));
    pair.network.change(pair.there, Change::Rate(Rate::from_mbps(4.0)));
    for (at, received) in [(12_500, 0), (12_501, 1), (15_500, 1), (15_501, 2)] {
        pair.network.run_until(Time::from_micros(at));
        assert_eq!(pair.network.server(flow).received, received, "at {at} us");
    }
    pair.check();
}

#[test]
fn a_shorter_delay_does_not_let_packets_overtake() {
    let mut pair = Pair::new(wire(8.0, Time::from_millis(10)), wire(8.0, Time::ZERO));
    let flow = pair.flow(2, Time::ZERO);
    // The second packet starts at 1.5 ms with the shorter delay. It would arrive at 4 ms, and the
    // first at 11.5 ms.
    pair.network.run_until(Time::from_micros(1_000));
    pair.network.change(pair.there, Change::Delay(Time::from_millis(1)));
    pair.network.run_until(Time::from_micros(11_500));
    assert_eq!(pair.network.server(flow).received, 0);
    pair.network.run_until(Time::from_micros(11_501));
    assert_eq!(pair.network.server(flow).received, 2);
}

#[test]
fn packets_that_waited_do_not_overtake_either() {
    // The first arrives at 11 ms. The others leave from 1 to 5 ms, four of them without delay.
    let mut pair = Pair::new(wire(12.0, Time::from_millis(10)), wire(12.0, Time::ZERO));
    let flow = pair.flow(5, Time::ZERO);
    pair.network.run_until(Time::from_micros(500));
    pair.network.change(pair.there, Change::Delay(Time::ZERO));
    pair.network.run_until(Time::from_millis(11));
    assert_eq!(pair.network.server(flow).received, 0);
    pair.network.run_until(Time::from_millis(11) + Time(1));
    assert_eq!(pair.network.server(flow).received, 5);
    pair.check();
}

#[test]
fn a_shared_medium_carries_one_packet_at_a_time() {
    let mut network = Network::new(1);
    let there = network.add_link(wire(10.0, Time::from_millis(1)));
    let back = network.add_link(wire(10.0, Time::from_millis(1)));
    network.add_medium(&[there, back]);
    let forward = network.add_route(&[there], RouteEnd::Server);
    let reverse = network.add_route(&[back], RouteEnd::Client);
    let flow = network.add_flow(FlowSpec {
        client: FixedWindow::new(100, 1500),
        server: FixedWindow::new(0, 1500),
        forward,
        back: reverse,
        start: Time::ZERO,
        stop: FOREVER,
        encoding: Encoding::Acp,
        segment: 1500,
    });
    network.run_until(Time::from_secs(10));
    let (data, acks) = (network.read_link(there), network.read_link(back));
    // One of the two always sends: a packet of 40 bytes for every packet of 1500.
    let busy = data.busy_ns + acks.busy_ns;
    assert!(busy > 9_990_000_000 && busy <= 10_000_000_000, "{busy}");
    let expected = 10e6 / 8.0 * 10.0 / 1540.0;
    assert!((f64::from(network.server(flow).received) / expected - 1.0).abs() < 0.02);
    assert!(network.census().is_conserved());
}

/// A medium of one station equals a wire: packets that arrive during a transmission find the same
/// room, and the measured queue is the same.
#[test]
fn a_medium_of_one_station_is_a_wire() {
    for mbps in [1.0, 16.0] {
        let run = |shared: bool| {
            let mut network = Network::<FixedWindow>::new(1);
            let limit = Limit { packets: 1, ..Limit::NONE };
            let first = network.add_link(wire(16.0, Time::from_millis(1)));
            let second = network.add_link(LinkSpec { limit, ..wire(8.0, Time::from_millis(1)) });
            if shared {
                network.add_medium(&[second]);
            }
            let route = network.add_route(&[first, second], RouteEnd::Sink);
            let rate = Rate::from_mbps(mbps);
            network.add_source(SourceSpec {
                route,
                rate,
                size: 1500,
                start: Time::ZERO,
                stop: FOREVER,
                on_off: None,
            });
            network.with_link(second, |link, now| link.measure(now, true));
            network.run_until(Time::from_secs(1));
            let stats = network.read_link(second);
            (stats.sent_packets, stats.drops.full, stats.queue_packet_ns, stats.queue_max_packets)
        };
        assert_eq!(run(true), run(false), "{mbps} Mb/s");
    }
}

#[test]
fn cross_traffic_keeps_its_rate_and_its_turns() {
    let mut network = Network::<FixedWindow>::new(1);
    let link = network.add_link(wire(10.0, Time::from_millis(1)));
    let route = network.add_route(&[link], RouteEnd::Sink);
    let spec = |on_off| SourceSpec {
        route,
        rate: Rate::from_mbps(3.3),
        size: 777,
        start: Time::from_secs(1),
        stop: Time::from_secs(11),
        on_off,
    };
    let steady = network.add_source(spec(None));
    let turns = network.add_source(spec(Some((Time::from_millis(300), Time::from_millis(700)))));
    network.run_until(Time::from_secs(20));
    let bits = |s| network.read_source(s).arrived_bytes as f64 * 8.0;
    assert!((bits(steady) / 33e6 - 1.0).abs() < 1e-3, "{}", bits(steady));
    assert!((bits(turns) / (0.3 * 33e6) - 1.0).abs() < 1e-2, "{}", bits(turns));
}

#[test]
fn a_retired_flow_vanishes_and_its_place_is_used_again() {
    let mut pair = Pair::new(wire(10.0, Time::from_millis(5)), wire(10.0, Time::from_millis(5)));
    let flow = pair.flow(3, Time::ZERO);
    pair.network.run_until(Time::from_millis(1));
    pair.network.retire_flow(flow);
    assert!(!pair.network.has_vanished(flow));
    pair.network.run_until(Time::from_millis(100));
    assert!(pair.network.has_vanished(flow));
    assert_eq!(pair.network.census().absorbed, 3);
    let FlowSpec { client, server, forward, back, start, stop, encoding, segment } =
        pair.spec(3, Time::from_millis(200));
    let again = FlowSpec { client: (), server: (), forward, back, start, stop, encoding, segment };
    pair.network.replace_flow(flow, again, |old, other| (*old, *other) = (client, server));
    pair.network.run_until(Time::from_millis(300));
    assert!(pair.network.server(flow).received > 0);
    pair.check();
}

#[test]
fn flows_added_in_mid_run_start_on_time() {
    let mut pair = Pair::new(wire(10.0, Time::from_millis(5)), wire(10.0, Time::from_millis(5)));
    pair.flow(1, Time::ZERO);
    pair.network.run_until(Time::from_millis(50));
    let late: Vec<_> = (0..5_000).map(|i| pair.flow(1, Time::from_millis(60 + i % 7))).collect();
    pair.network.run_until(Time::from_secs(20));
    assert!(late.iter().all(|&flow| pair.network.server(flow).received > 0));
    pair.check();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    // All kinds of faults at once: no packet appears or vanishes, and a run repeats to the bit.
    #[test]
    fn packets_are_conserved_and_runs_repeat(
        loss in 0.0f64..0.5,
        after in any::<bool>(),
        limit in 0u32..20,
        changes in prop::collection::vec((1u64..400, 0u8..6, 1u32..40), 0..12),
        shared in any::<bool>(),
    ) {
        let run = || {
            let mut spec = wire(10.0, Time::from_millis(3));
            spec.limit.packets = limit;
            let mut pair = Pair::new(spec, wire(5.0, Time::from_millis(4)));
            if shared {
                pair.network.add_medium(&[pair.there, pair.back]);
            }
            pair.network.trace_packets();
            let place = if after { LossPlace::After } else { LossPlace::Before };
            pair.network.change(pair.there, Change::Losses(vec![Loss { place, only: Only::Data, probability: loss }]));
            for window in 1..6 {
                pair.flow(window * 3, Time::from_millis(u64::from(window)));
            }
            let mut now = Time::ZERO;
            for &(after, kind, value) in &changes {
                now += Time::from_millis(after);
                pair.network.run_until(now);
                match kind {
                    0 => pair.network.change(pair.there, Change::Rate(Rate::from_mbps(f64::from(value)))),
                    1 => pair.network.change(pair.back, Change::Delay(Time::from_millis(u64::from(value)))),
                    2 => pair.network.change(pair.there, Change::Blackout(value % 2 == 0)),
                    3 => pair.network.change(pair.there, Change::Limit(Limit { packets: value, bytes: u64::MAX })),
                    4 => pair.network.change(pair.there, Change::Capacity(Rate::from_mbps(f64::from(value)))),
                    _ => pair.network.retire_flow(FlowId(value % 5)),
                }
                pair.check();
            }
            pair.network.run_until(now + Time::from_secs(2));
            pair.check();
            (pair.network.trace_digest(), pair.network.packet_hops(), pair.network.census())
        };
        prop_assert_eq!(run(), run());
    }

    #[test]
    fn losses_come_at_their_rate(probability in 0.01f64..0.9, seed in 0u64..1000) {
        let mut network = Network::<FixedWindow>::new(seed);
        let link = network.add_link(wire(100.0, Time::ZERO));
        let route = network.add_route(&[link], RouteEnd::Sink);
        network.change(link, Change::Losses(vec![Loss { place: LossPlace::After, only: Only::All, probability }]));
        let source = network.add_source(SourceSpec {
            route, rate: Rate::from_mbps(50.0), size: 500, start: Time::ZERO, stop: FOREVER, on_off: None,
        });
        network.run_until(Time::from_secs(1));
        let stats = network.read_source(source);
        let n = stats.sent_packets as f64;
        let lost = n - stats.arrived_packets as f64;
        let sigma = (n * probability * (1.0 - probability)).sqrt();
        prop_assert!((lost - n * probability).abs() < 5.0 * sigma + 1.0);
    }
}

#[test]
fn a_change_of_rate_keeps_count_of_the_time_the_transmitter_is_busy() {
    let mut pair = Pair::new(wire(8.0, Time::from_millis(10)), wire(8.0, Time::ZERO));
    pair.flow(2, Time::ZERO);
    // The first packet takes 0.5 + 2 ms, the second 3 ms.
    pair.network.run_until(Time::from_micros(500));
    pair.network.change(pair.there, Change::Rate(Rate::from_mbps(4.0)));
    for (at, busy) in [(5_000, 5_000_000), (12_000, 5_500_000)] {
        pair.network.run_until(Time::from_micros(at));
        assert_eq!(pair.network.read_link(pair.there).busy_ns, busy, "at {at} us");
    }
}

#[test]
fn what_waits_when_the_figures_are_read_is_the_first_of_the_next() {
    // Ten arrive at once: 9, 8, … wait, one fewer each millisecond.
    let mut pair = Pair::new(wire(12.0, Time::from_millis(50)), wire(12.0, Time::ZERO));
    pair.network.with_link(pair.there, |link, now| link.measure(now, true));
    pair.flow(10, Time::ZERO);
    for (ms, most) in [(2, 9), (5, 7), (9, 4), (20, 0)] {
        pair.network.run_until(Time::from_millis(ms));
        let stats = pair.network.read_link(pair.there);
        assert_eq!(
            (stats.queue_max_packets, stats.queue_max_bytes),
            (most, u64::from(most) * 1500),
            "{ms} ms"
        );
    }
}

#[test]
fn what_a_law_drops_or_marks_on_arrival_counts_as_that() {
    let none = Threshold::Packets(0.0);
    let red = RedConfig { min_threshold: none, max_threshold: none, ..RedConfig::default() };
    let law = AnyLink::Red(Box::new(red.build(Rate::from_mbps(12.0), Limit::NONE)));
    let mut pair = Pair::new(LinkSpec { law, ..wire(12.0, Time::ZERO) }, wire(12.0, Time::ZERO));
    pair.flow(5, Time::ZERO);
    pair.network.run_until(Time::from_secs(1));
    let drops = pair.network.read_link(pair.there).drops;
    assert_eq!((drops.law, drops.full, drops.total()), (5, 0, 5));

    let step = StepConfig { threshold: Threshold::Packets(1.0) };
    let law = AnyLink::Step(Box::new(step.build(Limit::NONE)));
    let mut pair = Pair::new(LinkSpec { law, ..wire(12.0, Time::from_millis(50)) }, wire(12.0, Time::ZERO));
    let mut flow = pair.spec(10, Time::ZERO);
    flow.client.flags = Flags::ECT;
    pair.network.add_flow(flow);
    pair.network.run_until(Time::from_millis(20));
    // The first leaves at once. Of the others, the third and all behind it find more than one
    // waiting.
    assert_eq!(pair.network.read_link(pair.there).marks, 7);
}

#[test]
fn a_change_of_delay_is_for_what_departs_from_then_on() {
    let mut pair = Pair::new(wire(12.0, Time::from_millis(10)), wire(12.0, Time::ZERO));
    let flow = pair.flow(5, Time::ZERO);
    // Three have left, or are leaving, when the delay doubles. They arrive after 11, 12 and 13 ms,
    // the others after 24 and 25.
    pair.network.run_until(Time::from_micros(2_500));
    pair.network.change(pair.there, Change::Delay(Time::from_millis(20)));
    for (at, received) in [(13_001, 3), (24_000, 3), (24_001, 4), (25_001, 5)] {
        pair.network.run_until(Time::from_micros(at));
        assert_eq!(pair.network.server(flow).received, received, "at {at} us");
    }
}

#[test]
fn losses_strike_those_who_are_meant_where_they_are_meant() {
    for place in [LossPlace::Before, LossPlace::After] {
        for (only, received, lost) in [(Only::Data, 0, [4, 0]), (Only::Ack, 4, [0, 4])] {
            let mut pair = Pair::new(wire(10.0, Time::ZERO), wire(10.0, Time::ZERO));
            for link in [pair.there, pair.back] {
                pair.network.change(link, Change::Losses(vec![Loss { place, only, probability: 1.0 }]));
            }
            let flow = pair.flow(4, Time::ZERO);
            pair.network.run_until(Time::from_secs(1));
            assert_eq!(pair.network.server(flow).received, received, "{only:?}");
            let drops = [pair.there, pair.back].map(|link| pair.network.read_link(link).drops);
            assert_eq!(drops.map(|drops| drops.total()), lost, "{only:?}");
            let here = drops.map(|d| if place == LossPlace::Before { d.before } else { d.after });
            assert_eq!(here, lost, "{place:?}");
        }
        // Packets in the other direction are spared.
        let mut pair = Pair::new(wire(10.0, Time::ZERO), wire(10.0, Time::ZERO));
        for (link, only) in [(pair.there, Only::Ack), (pair.back, Only::Data)] {
            pair.network.change(link, Change::Losses(vec![Loss { place, only, probability: 1.0 }]));
        }
        let flow = pair.flow(4, Time::ZERO);
        pair.network.run_until(Time::from_secs(1));
        assert!(pair.network.client(flow).acked > 4);
    }
}

#[test]
fn a_blackout_is_before_the_queue_and_spares_what_is_on_its_way() {
    let mut pair = Pair::new(wire(12.0, Time::from_millis(10)), wire(12.0, Time::ZERO));
    let flow = pair.flow(5, Time::ZERO);
    let late = pair.flow(3, Time::from_millis(2));
    pair.network.run_until(Time::from_millis(1));
    pair.network.change(pair.there, Change::Blackout(true));
    pair.network.run_until(Time::from_millis(16));
    assert_eq!((pair.network.server(flow).received, pair.network.server(late).received), (5, 0));
    let drops = pair.network.read_link(pair.there).drops;
    // The packets acknowledged at 11 to 15 ms let five more leave.
    assert_eq!((drops.before, drops.total()), (8, 8));
}

#[test]
fn a_packet_that_a_change_of_rate_slows_keeps_its_medium() {
    let mut network = Network::<FixedWindow>::new(1);
    let links = [8.0, 8.0].map(|mbps| network.add_link(wire(mbps, Time::ZERO)));
    network.add_medium(&links);
    let routes = links.map(|link| network.add_route(&[link], RouteEnd::Sink));
    let source = |route, start, size| SourceSpec {
        route,
        rate: Rate::from_bps(8e3),
        size,
        start,
        stop: FOREVER,
        on_off: None,
    };
    network.add_source(source(routes[0], Time::ZERO, 1500));
    let other = network.add_source(source(routes[1], Time::from_millis(1), 1000));
    // The first packet takes 0.5 + 2 ms. Then the other station sends, for 1 ms.
    network.run_until(Time::from_micros(500));
    network.change(links[0], Change::Rate(Rate::from_mbps(4.0)));
    network.run_until(Time::from_micros(3_500));
    assert_eq!(network.read_source(other).arrived_packets, 0);
    network.run_until(Time::from_micros(3_501));
    assert_eq!(network.read_source(other).arrived_packets, 1);
}

#[test]
fn a_flow_stops_when_it_is_told_to() {
    let mut pair = Pair::new(wire(10.0, Time::from_millis(5)), wire(10.0, Time::from_millis(5)));
    let spec = FlowSpec { stop: Time::from_millis(100), ..pair.spec(3, Time::ZERO) };
    let flow = pair.network.add_flow(spec);
    pair.network.run_until(Time::from_millis(101));
    let sent = pair.network.client(flow).sent;
    assert!(sent > 10);
    pair.network.run_until(Time::from_secs(1));
    assert_eq!(pair.network.client(flow).sent, sent);
}
