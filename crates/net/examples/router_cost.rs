//! Processor time that a router's thread spends on a datagram, in microseconds.
//!
//! ```text
//! cargo run --release -p tollway-net --example router_cost \
//!     [SECONDS] [xcp|fcp] [loopback|keys|namespaces|switch]
//! ```
//!
//! `a` sends through the router `r` to `b`. XCP or FCP rewrites every datagram with data, and the
//! senders send long trains. The links are so fast that no queue builds up. Each node has a thread,
//! and is a socket on loopback or (as root) a network namespace. With `keys`, datagrams between the
//! sockets are sealed. With `switch`, the router has an Anypoint switch, which spreads frames of
//! one packet each over two members at `b`.
//!
//! The result is one JSON object. `bench/live.py` runs this example.

use std::sync::Arc;

use tollway_law::link::{AnyLink, DropTail, FcpConfig, XcpConfig};
use tollway_law::sender::{AnySender, FcpConfig as FcpSender, XcpConfig as XcpSender};
use tollway_law::toll::Content;
use tollway_law::{Budget, Rate, Time};
use tollway_net::secure::KeyFile;
use tollway_net::{Error, FlowSpec, LinkSpec, Network, RouteEnd};
use tollway_proto::port::Limit;
use tollway_proto::route::{Candidate, Policy};
use tollway_proto::switch::{self, Switch};
use tollway_proto::transport::{Config, Connection, Detection};
use tollway_proto::{Encoding, Gate, NodeMachine};

/// Members of the session, with `switch`.
const MEMBERS: u32 = 2;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds: u64 = std::env::args().nth(1).map_or(Ok(3), |arg| arg.parse())?;
    let fcp = match std::env::args().nth(2).as_deref() {
        None | Some("xcp") => false,
        Some("fcp") => true,
        Some(other) => return Err(format!("`{other}` is neither xcp nor fcp").into()),
    };
    let names = ["a", "r", "b"].map(String::from);
    let rate = Rate::from_mbps(1_000_000.0);
    let link = |from, to, law: AnyLink| LinkSpec {
        from,
        to,
        rate,
        trace: None,
        delay: Time::ZERO,
        overhead: 0,
        law,
        limit: Limit { packets: 100_000, bytes: u64::MAX },
        queue: Default::default(),
    };
    let speaking = || match fcp {
        false => XcpConfig::default().build(rate),
        true => AnyLink::Fcp(Box::new(FcpConfig::default().build(rate))),
    };
    let plain = || AnyLink::DropTail(DropTail);
    let links = [link(0, 1, plain()), link(1, 2, speaking()), link(2, 1, plain()), link(1, 0, speaking())];
    let place = std::env::args().nth(3);
    let switched = place.as_deref() == Some("switch");
    let mut network = match place.as_deref() {
        None | Some("loopback" | "keys" | "switch") => Network::new(&names, &links, 1, 3)?,
        #[cfg(target_os = "linux")]
        Some("namespaces") => Network::in_namespaces(&names, &links, 1, 3, 1500)?,
        Some(other) => return Err(format!("`{other}` is none of loopback, keys, namespaces, switch").into()),
    };
    if place.as_deref() == Some("keys") {
        for (node, keys) in KeyFile::mesh(&names)?.iter().enumerate() {
            network.seal(node as u32, keys)?;
        }
    }
    // Windows that one socket buffer holds, so that the kernel drops nothing. The members share it.
    let members = if switched { u64::from(MEMBERS) } else { 1 };
    let config = Arc::new(Config {
        segment: 1500,
        header: 80,
        ack_size: 112,
        receive_buffer: 440 * 1420 / members,
        delayed_ack: Some(Time::from_millis(5)),
        detection: Detection::Rack { tail_probe: true },
        ..Config::default()
    });
    // Both laws ask for more than the receiver's window allows, so trains are as long as the
    // window.
    let law = || -> AnySender {
        match fcp {
            false => XcpSender { initial_window: 440.0, ..Default::default() }.build().into(),
            true => {
                let law = FcpSender { initial_packets: 440.0, initial_always: true, ..Default::default() };
                FcpSender { budget: Budget::per_sec(1e6), ..law }.build().into()
            }
        }
    };
    let spec = |start| FlowSpec {
        client: Connection::client(&config, law(), 0),
        server: Connection::server(&config, law(), 0),
        forward: vec![0, 1],
        back: vec![2, 3],
        start,
        stop: Time::NEVER,
        encoding: Encoding::Acp,
        fingerprint: 0,
    };
    if switched {
        let content = if fcp { Content::Price } else { Content::Feedback };
        add_session(&mut network, &config, content, spec)?;
    } else {
        let mut flow = spec(Time::ZERO);
        flow.client.write_unlimited();
        network.add_flow(flow)?;
    }
    network.run_until(Time::from_secs(seconds))?;
    let dropped = network.settle()?;
    let loads = network.loads();
    let router =
        loads.iter().find(|load| load.nodes == ["r"]).ok_or("the router has no thread of its own")?;
    let counters = router.counters;
    let data = (0..network.flows() as u32).map(|flow| network.server(flow).stats().segments_received);
    let path: f64 = loads.iter().map(|load| load.cpu.as_secs_f64()).sum();
    println!(
        "{{\"datagrams\": {}, \"cpu_s\": {:.6}, \"path_cpu_s\": {path:.6}, \"us_per_datagram\": {:.4}, \
         \"datagrams_per_receive\": {:.1}, \"datagrams_per_send\": {:.1}, \"data_datagrams\": {}, \"kernel_drops\": {}}}",
        counters.received,
        router.cpu.as_secs_f64(),
        router.cpu.as_secs_f64() * 1e6 / counters.received.max(1) as f64,
        counters.received as f64 / counters.receives.max(1) as f64,
        counters.sent as f64 / counters.sends.max(1) as f64,
        data.sum::<u64>(),
        dropped.unwrap_or(0),
    );
    Ok(())
}

/// Adds a connection from `a` that a switch at `r` spreads over members at `b`.
///
/// The client of the first flow sends, and each flow's server is a member.
fn add_session(
    network: &mut Network,
    config: &Config,
    content: Content,
    spec: impl Fn(Time) -> FlowSpec,
) -> Result<(), Error> {
    let session = switch::Config {
        header: config.header,
        ack_size: config.ack_size,
        content: Some(content),
        ..switch::Config::default()
    };
    let member = Candidate { up: true, window: u64::MAX, ..Candidate::default() };
    let mut machine = Switch::new();
    machine.add_session(&session, Policy::RoundRobin.module(0), vec![member; MEMBERS as usize]);
    let machine = network.add(1, NodeMachine::middle(machine));
    let at = |gate| RouteEnd::Middle(machine, Gate(gate));
    for member in 0..MEMBERS {
        let mut flow = spec(if member == 0 { Time::ZERO } else { Time::NEVER });
        let payload = u64::from(config.segment - config.header);
        flow.client.write_frames(payload, u64::MAX / payload);
        (flow.forward, flow.back) = (vec![0], vec![2]);
        let flow = network.add_flow_between(flow, [at(0), at(member + 1)])?;
        network.set_keyed(flow);
        network.set_outlet(machine, Gate(member + 1), (&[1], RouteEnd::Server), flow, 0)?;
    }
    network.set_outlet(machine, Gate(0), (&[3], RouteEnd::Client), 0, 0)
}
