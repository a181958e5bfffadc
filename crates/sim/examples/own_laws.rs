//! Laws on a network built in Rust: Scalable TCP over the adaptive virtual queue, beside NewReno
//! and drop-tail. The book's chapter "A law of your own" explains it.
//!
//! `cargo run --release -p tollway-sim --example own_laws`

use std::sync::Arc;

use tollway_law::link::{AnyLink, Avq, AvqConfig, DropTail};
use tollway_law::param::Threshold;
use tollway_law::sender::{AnySender, NewRenoConfig, ScalableConfig};
use tollway_law::{Rate, Time};
use tollway_proto::Encoding;
use tollway_proto::port::Limit;
use tollway_proto::transport::{Config, Connection};
use tollway_sim::{FlowSpec, LinkId, LinkSpec, Network, RouteEnd};

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
        network.with_link(bottleneck, |link, now| link.measure(now, true));
        Dumbbell { network, bottleneck }
    }

    /// Runs until `end`, and returns the measurements of the bottleneck over this time.
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

/// The measurements of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen {
    /// The fraction of time in which it was busy.
    used: f64,
    /// Packets waiting, in the mean over time.
    queue: f64,
    drops: u64,
    marks: u64,
}

fn main() {
    print!("{}", table());
}

/// The measurements of each sender law over each link law, as text.
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
        let avq = dumbbell.network.with_link(dumbbell.bottleneck, |link, _| {
            Some(link.port.law.as_custom::<Avq>()?.virtual_capacity().mbps())
        });
        if let Some(mbps) = avq {
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
    AnySender::custom(ScalableConfig::default().build())
}

fn drop_tail() -> AnyLink {
    AnyLink::DropTail(DropTail)
}

fn avq() -> AnyLink {
    let config = AvqConfig { gamma: GAMMA, buffer: Threshold::Packets(100.0), ..Default::default() };
    AnyLink::custom(config.build(Rate::from_mbps(MBPS), Limit::NONE))
}

/// The bottleneck's rate, in Mb/s.
const MBPS: f64 = 100.0;
const GAMMA: f64 = 0.95;

#[cfg(test)]
mod tests {
    use tollway_proto::Change;

    use super::*;

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
        // Compared without indentation.
        let flush =
            |text: &str| text.lines().map(|line| format!("{}\n", line.trim_start())).collect::<String>();
        let here = flush(concat!(
            include_str!("own_laws.rs"),
            include_str!("own_machines.rs"),
            include_str!("../../law/src/link/avq.rs"),
            include_str!("../../law/src/sender/scalable.rs")
        ));
        let blocks = page.split("```rust,ignore\n").skip(1).filter_map(|rest| rest.split("```").next());
        for block in blocks {
            assert!(here.contains(&flush(block)), "not here:\n{block}");
        }
        assert_eq!(page.matches("```rust,ignore\n").count(), 7);
    }
}
