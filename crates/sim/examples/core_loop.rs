//! The cost of the event loop alone: fixed windows over the benchmark's dumbbell, without control
//! law or loss.
//!
//! `cargo run --release -p tollway-sim --example core_loop -- [flows] [seconds]`

use std::time::Instant;

use tollway_law::link::{AnyLink, DropTail};
use tollway_law::{Rate, Time};
use tollway_proto::Encoding;
use tollway_proto::port::Limit;
use tollway_sim::{FlowSpec, LinkSpec, Network, RouteEnd};

#[path = "../tests/it/fixed_window.rs"]
mod fixed_window;
use fixed_window::FixedWindow;

fn main() {
    let mut args = std::env::args().skip(1).map(|a| a.parse::<u64>().expect("a whole number"));
    let flows = args.next().unwrap_or(10);
    let seconds = args.next().unwrap_or(60);
    let bottleneck = if flows >= 100_000 { 10_000.0 } else { 100.0 };
    let window = (bottleneck * 1e6 / 8.0 / 1500.0 * 0.06 / flows as f64).ceil() as u32 + 1;
    let mut network = Network::new(1);
    let mut link = |mbps: f64, delay| {
        network.add_link(LinkSpec {
            rate: Rate::from_mbps(mbps),
            delay,
            overhead: 0,
            law: AnyLink::DropTail(DropTail),
            limit: Limit::NONE,
            queue: Default::default(),
        })
    };
    let there = link(bottleneck, Time::from_millis(10));
    let back = link(bottleneck, Time::from_millis(10));
    let access: Vec<_> = (0..flows)
        .map(|i| {
            let delay = Time(40_000_000 * i / (flows - 1).max(1));
            [link(1000.0, delay), link(1000.0, Time::ZERO), link(1000.0, Time::ZERO), link(1000.0, delay)]
        })
        .collect();
    for (i, [up, egress, up_back, down]) in access.into_iter().enumerate() {
        let forward = network.add_route(&[up, there, egress], RouteEnd::Server);
        let reverse = network.add_route(&[up_back, back, down], RouteEnd::Client);
        network.add_flow(FlowSpec {
            client: FixedWindow::new(window, 1500),
            server: FixedWindow::new(0, 1500),
            forward,
            back: reverse,
            start: Time(1_000_000_000 * i as u64 / flows),
            stop: Time::NEVER,
            encoding: Encoding::Acp,
            segment: 1500,
        });
    }
    let start = Instant::now();
    network.run_until(Time::from_secs(seconds));
    let spent = start.elapsed().as_secs_f64();
    let hops = network.packet_hops() as f64;
    println!(
        "{flows} flows, {hops} packet-hops in {spent:.3} s: {:.1} M/s, {:.1} ns a hop, {:.3} events a hop",
        hops / spent / 1e6,
        spent / hops * 1e9,
        network.events() as f64 / hops,
    );
    assert!(network.census().is_conserved());
}
