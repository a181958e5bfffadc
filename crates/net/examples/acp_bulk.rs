//! ACP in bulk between two hosts on loopback: throughput in Gbit per second of processor time. The
//! processor time is that of both ends together.
//!
//! ```text
//! cargo run --release -p tollway-net --example acp_bulk [GIGABYTES]
//! cargo run --release -p tollway-net --example acp_bulk -- listen          # prints its address
//! cargo run --release -p tollway-net --example acp_bulk -- send ADDRESS [GIGABYTES]
//! ```
//! The sender writes every payload byte and the receiver checks it. The result is one JSON object.
//! Every payload byte is written by the sender and checked by the receiver. Printed as one JSON
//! object.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use tollway_law::Time;
use tollway_law::sender::NewRenoConfig;
use tollway_net::host::{Host, HostConfig, HostEvent};
use tollway_proto::transport::Config;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let bytes = |text: Option<&String>| -> Result<u64, std::num::ParseFloatError> {
        Ok((text.map_or(Ok(2.0), |text| text.parse::<f64>())? * 1e9) as u64)
    };
    match args.first().map(String::as_str) {
        Some("listen") => listen(|addr| println!("{addr}")),
        Some("send") => {
            let addr = args.get(1).ok_or("send to which address?")?;
            send(addr.parse()?, bytes(args.get(2))?)
        }
        _ => both(bytes(args.first())?),
    }
}

fn host(key: Option<[u8; 16]>) -> Result<Host, tollway_net::Error> {
    let transport = Config {
        segment: 1500,
        header: 80,
        ack_size: 112,
        // This window fits a socket buffer of the system's default size.
        receive_buffer: 100 * 1420,
        delayed_ack: Some(Time::from_millis(5)),
        ..Config::default()
    };
    let config = HostConfig {
        transport: Arc::new(transport),
        law: Box::new(|| NewRenoConfig { initial_window: 100.0, ..Default::default() }.build().into()),
        patience: Time::from_secs(5),
        most: 100,
        most_per_address: 100,
    };
    Host::new(SocketAddr::from(([127, 0, 0, 1], 0)), config, key)
}

fn listen(tell: impl FnOnce(SocketAddr)) -> Result<(), Box<dyn std::error::Error>> {
    let mut server = host(Some(tollway_net::random()?))?;
    tell(server.addr());
    loop {
        match server.run(Time::from_secs(3600))? {
            Some(HostEvent::Finished(_)) | None => {}
            Some(event) => eprintln!("{event:?}"),
        }
    }
}

fn send(addr: SocketAddr, bytes: u64) -> Result<(), Box<dyn std::error::Error>> {
    let mut client = host(None)?;
    client.connect(addr, bytes)?;
    match client.run(Time::from_secs(3600))? {
        Some(HostEvent::Finished(_)) => Ok(()),
        Some(HostEvent::TimedOut(peer)) => {
            Err(format!("{} has not been heard of for 5 s: given up", peer.addr).into())
        }
        other => Err(format!("not finished: {other:?}").into()),
    }
}

fn both(bytes: u64) -> Result<(), Box<dyn std::error::Error>> {
    let mut server = host(Some(tollway_net::random()?))?;
    let addr = server.addr();
    let (wall, cpu) = (Instant::now(), process_cpu());
    let receiver = std::thread::spawn(move || match server.run(Time::from_secs(600)) {
        Ok(Some(HostEvent::Finished(_))) => Ok(server.stats().received),
        Ok(other) => Err(format!("{other:?}")),
        Err(error) => Err(error.to_string()),
    });
    send(addr, bytes)?;
    let received = receiver.join().map_err(|_| "the receiver panicked")??;
    let (wall, cpu) = (wall.elapsed().as_secs_f64(), process_cpu() - cpu);
    println!(
        "{{\"bytes\": {bytes}, \"wall_s\": {wall:.4}, \"cpu_s\": {cpu:.4}, \"gbit_per_cpu_s\": {:.3}, \"datagrams_received\": {received}}}",
        bytes as f64 * 8e-9 / cpu
    );
    Ok(())
}

fn process_cpu() -> f64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 * 1e-9
}
