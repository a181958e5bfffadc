//! Middles and apps under seeded faults: between them no packet is lost, and none appears.

use std::collections::VecDeque;
use std::sync::Arc;

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tollway_law::Time;
use tollway_law::sender::{AnySender, NewRenoConfig};
use tollway_proto::Change;
use tollway_proto::app::{Caller, Echo};
use tollway_proto::faults::Loss;
use tollway_proto::middle::Counter;
use tollway_proto::transport::{Config, Connection};
use tollway_proto::{Encoding, Gate, Middle, NodeMachine, Packet, Passed, SackRanges};
use tollway_sim::{End, FlowSpec, LinkId, MachineId, Network, RouteEnd};

use crate::wire;

/// A middle that holds some packets back at random, sends copies of others later, and removes SACK
/// ranges from some.
#[derive(Debug)]
struct Holder {
    rng: Pcg64Mcg,
    held: VecDeque<(Time, Gate, Packet, SackRanges)>,
    due: VecDeque<(Gate, Packet, SackRanges)>,
    absorbed: u64,
    sent: u64,
}

impl Middle for Holder {
    fn pass(&mut self, now: Time, gate: Gate, packet: &mut Packet, sack: &mut SackRanges) -> Passed {
        match self.rng.random_range(0..10) {
            0..3 => {
                self.held.push_back((now + Time::from_millis(3), gate, *packet, *sack));
                self.absorbed += 1;
                Passed::Absorbed
            }
            3 => {
                sack.clear();
                Passed::By(gate)
            }
            _ => Passed::Onward,
        }
    }

    fn poll_transmit(&mut self, _: Time, out: &mut Packet, sack: &mut SackRanges) -> Option<Gate> {
        let (gate, packet, ranges) = self.due.pop_front()?;
        (*out, *sack) = (packet, ranges);
        self.sent += 1;
        Some(gate)
    }

    fn handle_timeout(&mut self, now: Time) {
        while self.held.front().is_some_and(|held| held.0 <= now) {
            self.due.extend(self.held.pop_front().map(|(_, gate, packet, sack)| (gate, packet, sack)));
        }
    }

    fn poll_timeout(&self) -> Time {
        self.held.front().map_or(Time::NEVER, |held| held.0)
    }
}

struct Run {
    network: Network<Connection>,
    counters: [MachineId; 2],
    holder: MachineId,
    apps: [MachineId; 2],
}

/// Runs `a → r → b` and back with two counters at `r`, and for a single flow a holder between them.
/// `count` flows connect apps at `a` and `b`.
fn run(seed: u64, count: u32, loss: f64, handshake: bool) -> Run {
    let mut network = Network::new(seed);
    let links: [LinkId; 4] = [(50.0, 1), (10.0, 4), (10.0, 4), (50.0, 1)]
        .map(|(mbps, ms)| network.add_link(wire(mbps, Time::from_millis(ms))));
    let [up, down, home, back] = links;
    network.change(down, Change::Losses(Loss::on_wire(loss).into_iter().collect()));
    let holder = Holder {
        rng: Pcg64Mcg::seed_from_u64(seed),
        held: VecDeque::new(),
        due: VecDeque::new(),
        absorbed: 0,
        sent: 0,
    };
    let [first, last] = [(); 2].map(|()| network.add(NodeMachine::middle(Counter::default())));
    let apps = [NodeMachine::app(Caller::new(30, 5000)), NodeMachine::app(Echo::default())];
    let apps = apps.map(|app| network.add(app));
    let holder = network.add(NodeMachine::middle(holder));
    for machine in [first, holder, last].into_iter().filter(|&machine| machine != holder || count == 1) {
        network.pass_by(up, machine, Gate(0));
        network.pass_by(home, machine, Gate(1));
    }
    let config = Arc::new(Config { handshake, ..Config::default() });
    let law = || -> AnySender { NewRenoConfig::default().build().into() };
    for flow in 0..count {
        let forward = network.add_route(&[up, down], RouteEnd::Server);
        let reverse = network.add_route(&[home, back], RouteEnd::Client);
        let id = network.add_flow(FlowSpec {
            client: Connection::client(&config, law(), 0),
            server: Connection::server(&config, law(), 0),
            forward,
            back: reverse,
            start: Time::from_millis(u64::from(flow)),
            stop: Time::NEVER,
            encoding: Encoding::Acp,
            segment: 1500,
        });
        network.attach(id, End::Client, apps[0]);
        network.attach(id, End::Server, apps[1]);
    }
    let flow = tollway_sim::FlowId(0);
    let [down, back] = [(down, RouteEnd::Server), (back, RouteEnd::Client)]
        .map(|(link, end)| network.add_route(&[link], end));
    network.set_outlet(holder, Gate(0), down, flow);
    network.set_outlet(holder, Gate(1), back, flow);
    network.trace_packets();
    network.run_until(Time::from_secs(60));
    Run { network, counters: [first, last], holder, apps }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24,
        rng_seed: proptest::test_runner::RngSeed::Fixed(20251123),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_message_comes_back_whatever_a_middle_holds_back(seed: u64, loss in 0.0..0.05, handshake: bool) {
        let Run { network, counters, holder, apps } = run(seed, 1, loss, handshake);
        let census = network.census();
        prop_assert!(census.is_conserved(), "{census:?}");
        prop_assert_eq!(network.packets_alive(), census.queued + census.in_flight);
        let caller = network.machine(apps[0]).downcast_ref::<Caller>().unwrap();
        prop_assert_eq!((caller.answered, caller.wrong), (30, 0));
        prop_assert_eq!(network.machine(apps[1]).downcast_ref::<Echo>().unwrap().echoed, 30);
        let holder = network.machine(holder).downcast_ref::<Holder>().unwrap();
        prop_assert_eq!(holder.absorbed, holder.sent);
        prop_assert_eq!(census.absorbed, holder.absorbed);
        let [first, last] = counters.map(|id| *network.machine(id).downcast_ref::<Counter>().unwrap());
        // Between them the holder keeps some packets, and sends some of the others by a gate.
        prop_assert!(first.packets > last.packets && last.frames > 0);
        let again = run(seed, 1, loss, handshake);
        prop_assert_eq!(network.trace_digest(), again.network.trace_digest());
    }
}

#[test]
fn an_app_has_a_port_for_each_of_its_connections() {
    let Run { mut network, counters, apps, .. } = run(3, 3, 0.01, true);
    let caller = network.machine(apps[0]).downcast_ref::<Caller>().unwrap();
    assert_eq!((caller.answered, caller.wrong), (90, 0));
    let [first, last] = counters.map(|id| *network.machine(id).downcast_ref::<Counter>().unwrap());
    assert!(first == last && first.frames >= 180, "{first:?} {last:?}");
    assert!(network.machine(counters[0]).downcast_ref::<Echo>().is_none());
    network.with_machine(apps[0], |caller| caller.downcast_mut::<Caller>().unwrap().answered = 0);
    assert_eq!(network.machine(apps[0]).downcast_ref::<Caller>().unwrap().answered, 0);
}
