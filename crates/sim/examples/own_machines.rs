//! A network built in Rust with machines at its nodes: a new middle on the path, and apps at both
//! ends.
//!
//! ```text
//! cargo run --release -p tollway-sim --example own_machines
//! ```

use std::error::Error;
use std::sync::Arc;

use tollway_law::link::{AnyLink, DropTail};
use tollway_law::sender::{AnySender, NewRenoConfig};
use tollway_law::{Rate, Time};
use tollway_proto::app::{Caller, Echo};
use tollway_proto::port::{AnyQueue, Limit};
use tollway_proto::transport::{Config, Connection};
use tollway_proto::{Encoding, Flags, Gate, Middle, NodeMachine, Packet, Passed, SackRanges};
use tollway_sim::{End, FlowSpec, LinkSpec, Network, RouteEnd};

/// A middle that forwards every second pure acknowledgement and absorbs the others, for a path with
/// little capacity back.
#[derive(Debug, Default)]
struct Thin {
    acks: u64,
    absorbed: u64,
}

impl Middle for Thin {
    fn pass(&mut self, _: Time, _: Gate, packet: &mut Packet, _: &mut SackRanges) -> Passed {
        let carries = Flags(Flags::DATA.0 | Flags::SYN.0 | Flags::FIN.0 | Flags::ECE.0);
        if packet.flags.among(carries) != Flags::NONE {
            return Passed::Onward;
        }
        self.acks += 1;
        if self.acks.is_multiple_of(2) {
            return Passed::Onward;
        }
        self.absorbed += 1;
        Passed::Absorbed
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut network = Network::new(1);
    let mut link = |mbps: f64, ms: u64| {
        network.add_link(LinkSpec {
            rate: Rate::from_mbps(mbps),
            delay: Time::from_millis(ms),
            overhead: 0,
            law: AnyLink::DropTail(DropTail),
            limit: Limit { packets: 100, bytes: u64::MAX },
            queue: AnyQueue::default(),
        })
    };
    let (up, down) = (link(100.0, 1), link(20.0, 5));
    let (home, back) = (link(20.0, 5), link(100.0, 1));

    // Machines come before the routes that pass by them.
    let thin = network.add(NodeMachine::middle(Thin::default()));
    network.pass_by(up, thin, Gate(0));
    network.pass_by(home, thin, Gate(1));
    let caller = network.add(NodeMachine::app(Caller::new(200, 20_000)));
    let echo = network.add(NodeMachine::app(Echo::default()));

    let forward = network.add_route(&[up, down], RouteEnd::Server);
    let reverse = network.add_route(&[home, back], RouteEnd::Client);
    let config = Arc::new(Config::default());
    let law = || -> AnySender { NewRenoConfig::default().build().into() };
    let flow = network.add_flow(FlowSpec {
        client: Connection::client(&config, law(), 0),
        server: Connection::server(&config, law(), 0),
        forward,
        back: reverse,
        start: Time::from_millis(10),
        stop: Time::NEVER,
        encoding: Encoding::Acp,
        segment: u32::from(config.segment),
    });
    network.attach(flow, End::Client, caller);
    network.attach(flow, End::Server, echo);

    network.run_until(Time::from_secs(20));
    let caller = network.machine(caller).downcast_ref::<Caller>().ok_or("another machine")?;
    let thin = network.machine(thin).downcast_ref::<Thin>().ok_or("another machine")?;
    println!("{} messages came back as they were, {} did not", caller.answered, caller.wrong);
    println!("{} of {} acknowledgements went no further than the middle", thin.absorbed, thin.acks);
    assert_eq!((caller.answered, caller.wrong), (200, 0));
    assert!(thin.absorbed > 100 && network.census().is_conserved());
    Ok(())
}

#[test]
fn all_messages_come_back_through_a_middle_that_absorbs() {
    main().unwrap();
}
