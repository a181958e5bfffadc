//! Middles on real datagrams: headers rewritten in place, packets held back and sent later.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::common::sockets;
use tollway_law::link::{AnyLink, DropTail};
use tollway_law::sender::NewRenoConfig;
use tollway_law::{Rate, Time};
use tollway_net::{FlowSpec, LinkSpec, Network, RouteEnd};
use tollway_proto::faults::{Loss, LossPlace, Only};
use tollway_proto::port::{AnyQueue, Limit};
use tollway_proto::transport::{Config, Connection};
use tollway_proto::{Change, Encoding, Flags, Gate, Middle, NodeMachine, Packet, Passed, SackRanges};

const WINDOW: u32 = 7;

/// A middle that narrows windows, removes ranges, and delays every third acknowledgement by 2 ms.
#[derive(Debug, Default)]
struct Narrow {
    seen: u64,
    ranges: u64,
    held: VecDeque<(Time, Packet)>,
    due: VecDeque<Packet>,
    sent: u64,
}

impl Middle for Narrow {
    fn pass(&mut self, now: Time, _: Gate, packet: &mut Packet, sack: &mut SackRanges) -> Passed {
        if packet.flags.has(Flags::DATA) || packet.flags.has(Flags::SYN) || packet.flags.has(Flags::FIN) {
            return Passed::Onward;
        }
        self.seen += 1;
        self.ranges += sack.as_slice().len() as u64;
        packet.window = packet.window.min(WINDOW);
        sack.clear();
        if self.seen.is_multiple_of(3) {
            self.held.push_back((now + Time::from_millis(2), *packet));
            return Passed::Absorbed;
        }
        // By the gate or along its own route: both are the same path.
        if self.seen.is_multiple_of(2) { Passed::By(Gate(0)) } else { Passed::Onward }
    }

    fn poll_transmit(&mut self, _: Time, out: &mut Packet, sack: &mut SackRanges) -> Option<Gate> {
        *out = self.due.pop_front()?;
        sack.push(900_000, 900_001);
        self.sent += 1;
        Some(Gate(0))
    }

    fn handle_timeout(&mut self, now: Time) {
        while self.held.front().is_some_and(|held| held.0 <= now) {
            self.due.extend(self.held.pop_front().map(|held| held.1));
        }
    }

    fn poll_timeout(&self) -> Time {
        self.held.front().map_or(Time::NEVER, |held| held.0)
    }
}

/// A middle that checks the acknowledgements at the next node.
#[derive(Debug, Default)]
struct Look {
    wide: u64,
    ranges: u64,
    marked: u64,
}

impl Middle for Look {
    fn pass(&mut self, _: Time, _: Gate, packet: &mut Packet, sack: &mut SackRanges) -> Passed {
        if packet.flags.among(Flags(Flags::DATA.0 | Flags::SYN.0 | Flags::FIN.0)) == Flags::NONE {
            self.wide += u64::from(packet.window > WINDOW);
            match sack.as_slice() {
                [] => {}
                [(900_000, 900_001)] => self.marked += 1,
                _ => self.ranges += 1,
            }
        }
        Passed::Onward
    }
}

#[test]
fn a_middle_rewrites_what_passes_and_holds_some_of_it_back() {
    if !sockets() {
        return;
    }
    for threads in [1, 2] {
        let names = ["a", "r", "b"].map(String::from);
        let link = |(from, to, mbps)| LinkSpec {
            from,
            to,
            rate: Rate::from_mbps(mbps),
            trace: None,
            delay: Time::from_millis(1),
            overhead: 0,
            law: AnyLink::DropTail(DropTail),
            limit: Limit { packets: 100, bytes: u64::MAX },
            queue: AnyQueue::default(),
        };
        let links = [(0, 1, 100.0), (1, 2, 20.0), (2, 1, 20.0), (1, 0, 100.0)].map(link);
        let mut network = Network::new(&names, &links, 1, threads).unwrap();
        let loss = Loss { place: LossPlace::After, only: Only::Data, probability: 0.03 };
        network.change(0, Change::Losses(vec![loss]));
        let narrow = network.add(1, NodeMachine::middle(Narrow::default()));
        let [behind, end] = [1, 0].map(|node| network.add(node, NodeMachine::middle(Look::default())));
        network.pass_by(2, narrow, Gate(5));
        network.pass_by(2, behind, Gate(0));
        network.pass_by(3, end, Gate(0));
        let config = Arc::new(Config { segment: 1200, header: 80, ack_size: 112, ..Config::default() });
        let law = || NewRenoConfig::default().build().into();
        let mut client = Connection::client(&config, law(), 0);
        client.write_stream(300_000);
        client.finish();
        let flow = network
            .add_flow(FlowSpec {
                client,
                server: Connection::server(&config, law(), 0),
                forward: vec![0, 1],
                back: vec![2, 3],
                start: Time::from_millis(1),
                stop: Time::NEVER,
                encoding: Encoding::Acp,
                fingerprint: 0,
            })
            .unwrap();
        network.set_outlet(narrow, Gate(0), (&[3], RouteEnd::Client), flow, flow).unwrap();
        let mut step = 0;
        while network.drain_done().is_empty() {
            step += 1;
            assert!(step < 600, "not done in 30 s");
            network.run_until(Time::from_millis(50 * step)).unwrap();
        }
        network.run_until(Time::from_millis(50 * (step + 1))).unwrap();
        assert_eq!(network.server(flow).stats().bytes_delivered, 300_000);
        let machine = |at| network.machine(at).unwrap();
        let (narrow, end) =
            (machine(narrow).downcast_ref::<Narrow>().unwrap(), machine(end).downcast_ref::<Look>().unwrap());
        assert!(narrow.seen > 200 && narrow.ranges > 0, "{narrow:?}");
        assert_eq!((end.wide, end.ranges, end.marked), (0, 0, narrow.sent), "{narrow:?}");
        assert_eq!(narrow.sent, narrow.seen / 3);
        // Packets that left by a gate did not reach the machine behind.
        assert_eq!(machine(behind).downcast_ref::<Look>().unwrap().marked, 0);
    }
}
