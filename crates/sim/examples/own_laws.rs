//! A sender law that the house does not have, on a network built in Rust: Scalable TCP over the adaptive virtual queue,
//! beside NewReno and drop-tail. The book's chapter "A law of your own" walks through it.
//!
//! `cargo run --release -p tollway-sim --example own_laws`

use std::sync::Arc;

use tollway_law::link::{AnyLink, Avq, AvqConfig, DropTail};
use tollway_law::param::Threshold;
use tollway_law::sender::{Acked, AnySender, Flight, NewRenoConfig, SenderLaw, window_limited};
use tollway_law::{Rate, Time};
use tollway_proto::Encoding;
use tollway_proto::port::Limit;
use tollway_proto::transport::{Config, Connection};
use tollway_sim::{FlowSpec, LinkId, LinkSpec, Network, RouteEnd};

/// Scalable TCP (Kelly, *Computer Communication Review* 33(2), 2003; in small windows as Linux has it): a hundredth of a segment
/// more for each that is acknowledged, an eighth of the window less for a loss. How many round trips a loss costs does
/// not depend on the window.
#[derive(Clone, Debug)]
struct Scalable {
    window: f64,
    ssthresh: f64,
    /// In fast recovery, where the window rests.
    resting: bool,
    /// What tells of congestion until then tells of that which the window was reduced for (RFC 3168 § 6.1.2).
    reduced_until: Time,
}

impl Scalable {
    fn new() -> Scalable {
        Scalable { window: 10.0, ssthresh: f64::INFINITY, resting: false, reduced_until: Time::ZERO }
    }

    fn reduce(&mut self, flight: &Flight) {
        self.ssthresh = (self.window * 0.875).max(2.0);
        self.window = self.ssthresh;
        self.reduced_until = flight.now.saturating_add(flight.srtt);
    }
}

impl SenderLaw for Scalable {
    fn window(&self) -> f64 {
        self.window
    }

    fn on_ack(&mut self, flight: &Flight, acked: &Acked) {
        if acked.marked && !self.resting && flight.now >= self.reduced_until {
            self.reduce(flight);
            return;
        }
        if self.resting || acked.cumulative == 0 || !window_limited(self.window, flight) {
            return;
        }
        let each = if self.window < self.ssthresh { 1.0 } else { 1.0 / self.window.min(100.0) };
        // After a timeout one acknowledgement may cover much that was received long ago.
        let segments = if acked.recovering { 1 } else { acked.segments };
        self.window += each * f64::from(segments);
    }

    fn on_loss(&mut self, flight: &Flight) {
        if flight.now >= self.reduced_until {
            self.reduce(flight);
        }
        self.resting = true;
    }

    fn on_recovered(&mut self, _: &Flight) {
        self.resting = false;
    }

    fn on_timeout(&mut self, flight: &Flight, first: bool) {
        if first {
            self.reduce(flight);
        }
        self.window = 1.0;
        self.resting = false;
    }
}

/// Ten senders with round trips from 40 to 58 ms, and the bottleneck that they share.
struct Dumbbell {
    network: Network<Connection>,
    bottleneck: LinkId,
}

impl Dumbbell {
    fn new(law: AnyLink, sender: fn() -> AnySender) -> Dumbbell {
        let mut network = Network::new(1);
        let wire = |mbps, ms, law| LinkSpec {
            rate: Rate::from_mbps(mbps),
            delay: Time::from_millis(ms),
            overhead: 0,
            law,
            limit: Limit { packets: 400, bytes: u64::MAX },
            queue: Default::default(),
        };
        let bottleneck = network.add_link(wire(MBPS, 20, law));
        let ways: Vec<[LinkId; 2]> =
            (0..10).map(|i| [i, 20 + i].map(|ms| network.add_link(wire(1000.0, ms, drop_tail())))).collect();
        let config = Arc::new(Config { ecn: true, ..Config::default() });
        for (i, [up, back]) in (0..).zip(ways) {
            let mut client = Connection::client(&config, sender(), i);
            client.write_unlimited();
            let forward = network.add_route(&[up, bottleneck], RouteEnd::Server);
            let back = network.add_route(&[back], RouteEnd::Client);
            network.add_flow(FlowSpec {
                client,
                server: Connection::server(&config, sender(), i),
                forward,
                back,
                start: Time::from_millis(100 * u64::from(i)),
                stop: Time::NEVER,
                encoding: Encoding::Acp,
                segment: u32::from(config.segment),
            });
        }
        network.measure_link(bottleneck, true);
        Dumbbell { network, bottleneck }
    }

    /// What is seen of the bottleneck until `end`, from the last look on.
    fn watch(&mut self, end: Time) -> Seen {
        let (begin, before) = (self.network.now(), self.network.read_link(self.bottleneck));
        self.network.run_until(end);
        let after = self.network.read_link(self.bottleneck);
        let nanos = (end - begin).as_nanos() as f64;
        Seen {
            used: (after.busy_ns - before.busy_ns) as f64 / nanos,
            queue: after.queue_packet_ns as f64 / nanos,
            drops: after.drops.total() - before.drops.total(),
            marks: after.marks - before.marks,
        }
    }
}

/// What is seen of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen {
    /// The share of the time in which it was busy.
    used: f64,
    /// Packets waiting, in the mean over time.
    queue: f64,
    drops: u64,
    marks: u64,
}

fn main() {
    print!("{}", table());
}

/// Each sender's law over each link's.
fn table() -> String {
    let mut text = format!("ten flows over {MBPS} Mb/s, from 20 to 40 s\n");
    for (name, link, sender, law) in [
        ("newreno", "drop-tail", newreno as fn() -> AnySender, drop_tail as fn() -> AnyLink),
        ("scalable", "drop-tail", scalable, drop_tail),
        ("newreno", "avq", newreno, avq),
        ("scalable", "avq", scalable, avq),
    ] {
        let mut dumbbell = Dumbbell::new(law(), sender);
        dumbbell.watch(Time::from_secs(20));
        let Seen { used, queue, drops, marks } = dumbbell.watch(Time::from_secs(40));
        let used = 100.0 * used;
        text += &format!(
            "{name:8}  {link:9}  {used:5.1} % used  {queue:5.1} queued  {drops:3} drops  {marks:4} marks"
        );
        if let Some(avq) = dumbbell.network.law(dumbbell.bottleneck).as_custom::<Avq>() {
            let mbps = avq.virtual_capacity().mbps();
            text += &format!("  virtual capacity {mbps:.1} Mb/s");
        }
        text.push('\n');
    }
    text
}

fn newreno() -> AnySender {
    NewRenoConfig::default().build().into()
}

fn scalable() -> AnySender {
    AnySender::custom(Scalable::new())
}

fn drop_tail() -> AnyLink {
    AnyLink::DropTail(DropTail)
}

fn avq() -> AnyLink {
    let config = AvqConfig { gamma: GAMMA, buffer: Threshold::Packets(100.0), ..Default::default() };
    AnyLink::custom(config.build(Rate::from_mbps(MBPS), Limit::NONE))
}

/// Of the bottleneck.
const MBPS: f64 = 100.0;
const GAMMA: f64 = 0.95;

#[cfg(test)]
mod tests {
    use tollway_proto::Change;

    use super::*;

    #[test]
    fn a_loss_costs_a_large_window_no_more_round_trips_than_a_small_one() {
        let flight = Flight::of(Time::from_secs(1), Time::from_millis(100), 1_000_000);
        for window in [200.0, 2_000.0, 20_000.0] {
            let mut law = Scalable { window, ssthresh: 2.0, ..Scalable::new() };
            law.on_loss(&flight);
            law.on_recovered(&flight);
            let mut round_trips = 0;
            while law.window() < window {
                (0..law.window() as u32).for_each(|_| law.on_ack(&flight, &Acked::of(1)));
                round_trips += 1;
            }
            // log(8/7) / log(1.01) = 13.4.
            assert_eq!(round_trips, 14, "{window}");
        }
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        let used = Flight::of(Time::from_secs(1), Time::from_millis(100), 10);
        for (flight, grown) in [(used, 11.0), (Flight { app_limited: true, ..used }, 10.0)] {
            let mut law = Scalable::new();
            law.on_ack(&flight, &Acked::of(1));
            assert_eq!(law.window(), grown);
        }
    }

    #[test]
    fn the_link_is_used_to_the_share_asked_for_with_hardly_a_queue() {
        let mut dumbbell = Dumbbell::new(avq(), scalable);
        for (begin, end, part) in [(10, 30, 1.0), (40, 60, 0.5)] {
            let rate = Rate::from_mbps(part * MBPS);
            dumbbell.network.change(dumbbell.bottleneck, Change::Rate(rate));
            dumbbell.network.change(dumbbell.bottleneck, Change::Capacity(rate));
            dumbbell.watch(Time::from_secs(begin));
            let seen = dumbbell.watch(Time::from_secs(end));
            assert!((seen.used - GAMMA).abs() < 0.01, "{seen:?}");
            assert!(seen.queue < 15.0 && seen.drops == 0, "{seen:?}");
        }
        assert!(dumbbell.network.census().is_conserved());
    }

    #[test]
    fn the_same_network_has_the_same_packets() {
        let digest = || {
            let mut dumbbell = Dumbbell::new(avq(), scalable);
            dumbbell.network.trace_packets();
            dumbbell.watch(Time::from_secs(3));
            dumbbell.network.trace_digest()
        };
        assert_eq!(digest(), digest());
    }

    #[test]
    fn the_book_shows_what_is_here() {
        let page = include_str!("../../../docs/src/extending.md");
        assert!(page.contains(&table()), "it prints\n{}", table());
        // Further left than it is here.
        let flush =
            |text: &str| text.lines().map(|line| format!("{}\n", line.trim_start())).collect::<String>();
        let here = flush(concat!(include_str!("own_laws.rs"), include_str!("../../law/src/link/avq.rs")));
        let blocks = page.split("```rust,ignore\n").skip(1).filter_map(|rest| rest.split("```").next());
        for block in blocks {
            assert!(here.contains(&flush(block)), "not here:\n{block}");
        }
        assert_eq!(page.matches("```rust,ignore\n").count(), 8);
    }
}
