//! What a router costs: processor time of its thread a datagram, XCP or FCP rewriting every one with data, senders in long trains.
//!
//! ```text
//! cargo run --release -p tollway-net --example router_cost [SECONDS] [xcp|fcp] [loopback|keys|namespaces]
//! ```
//!
//! `a` sends through the router `r` to `b` over links so fast that nothing waits for them; each node has a thread, and is a socket on
//! loopback, or (as root) a network namespace; with `keys` datagrams between the sockets are sealed. Printed as one JSON object. `bench/live.py` runs it.

use std::sync::Arc;

use tollway_law::link::{AnyLink, DropTail, FcpConfig, XcpConfig};
use tollway_law::sender::{AnySender, FcpConfig as FcpSender, XcpConfig as XcpSender};
use tollway_law::{Budget, Rate, Time};
use tollway_net::secure::KeyFile;
use tollway_net::{FlowSpec, LinkSpec, Network};
use tollway_proto::Encoding;
use tollway_proto::port::Limit;
use tollway_proto::transport::{Config, Connection, Detection};

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
    let mut network = match std::env::args().nth(3).as_deref() {
        None | Some("loopback" | "keys") => Network::new(&names, &links, 1, 3)?,
        #[cfg(target_os = "linux")]
        Some("namespaces") => Network::in_namespaces(&names, &links, 1, 3, 1500)?,
        Some(other) => return Err(format!("`{other}` is none of loopback, keys, namespaces").into()),
    };
    if std::env::args().nth(3).as_deref() == Some("keys") {
        for (node, keys) in KeyFile::mesh(&names)?.iter().enumerate() {
            network.seal(node as u32, keys)?;
        }
    }
    // Windows that one socket's buffer holds, so that the kernel drops nothing.
    let config = Arc::new(Config {
        segment: 1500,
        header: 80,
        ack_size: 112,
        receive_buffer: 440 * 1420,
        delayed_ack: Some(Time::from_millis(5)),
        detection: Detection::Rack { tail_probe: true },
        ..Config::default()
    });
    // Both ask for more than the receiver's window lets them have: trains are as long as it.
    let law = || -> AnySender {
        match fcp {
            false => XcpSender { initial_window: 440.0, ..Default::default() }.build().into(),
            true => {
                let budget = Budget::per_sec(1e6);
                FcpSender { budget, initial_packets: 440.0, ..Default::default() }.build().into()
            }
        }
    };
    let mut client = Connection::client(&config, law(), 0);
    client.write_unlimited();
    network.add_flow(FlowSpec {
        client,
        server: Connection::server(&config, law(), 0),
        forward: vec![0, 1],
        back: vec![2, 3],
        start: Time::ZERO,
        stop: Time::NEVER,
        encoding: Encoding::Acp,
        fingerprint: 0,
    })?;
    network.run_until(Time::from_secs(seconds))?;
    let dropped = network.settle()?;
    let loads = network.loads();
    let router =
        loads.iter().find(|load| load.nodes == ["r"]).ok_or("the router has no thread of its own")?;
    let counters = router.counters;
    println!(
        "{{\"datagrams\": {}, \"cpu_s\": {:.6}, \"us_per_datagram\": {:.4}, \"datagrams_per_receive\": {:.1}, \
         \"datagrams_per_send\": {:.1}, \"data_datagrams\": {}, \"kernel_drops\": {}}}",
        counters.received,
        router.cpu.as_secs_f64(),
        router.cpu.as_secs_f64() * 1e6 / counters.received.max(1) as f64,
        counters.received as f64 / counters.receives.max(1) as f64,
        counters.sent as f64 / counters.sends.max(1) as f64,
        network.server(0).stats().segments_received,
        dropped.unwrap_or(0),
    );
    Ok(())
}
