//! The cost of the transport: nanoseconds for a data packet and its acknowledgement through both
//! machines.
//!
//!     cargo run --release -p tollway-proto --example transport_pair [pairs] [connections] [loss]
//!
//! A steady flow of full segments with a window of 64, over a wire that is a queue in memory. Each
//! round passes one data packet to the receiver, its acknowledgement to the sender, and takes the
//! sender's next packet.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use tollway_law::Time;
use tollway_law::sender::{AnySender, CubicConfig, NewRenoConfig, XcpConfig};
use tollway_proto::transport::{Config, Connection, Detection};
use tollway_proto::{Packet, SackRanges};

/// One flow: both ends, and the data packets on their way.
struct Flow {
    sender: Connection,
    receiver: Connection,
    wire: VecDeque<Packet>,
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|text| text.parse::<u64>().ok());
    let pairs = arguments.next().unwrap_or(20_000_000);
    let flows = arguments.next().unwrap_or(10).max(1);
    let loss = arguments.next().unwrap_or(0);
    println!("size of a connection: {} bytes", size_of::<Connection>());
    let window = 64.0;
    let laws: [(&str, AnySender); 3] = [
        (
            "newreno",
            NewRenoConfig { initial_window: window, initial_ssthresh: 2.0, ..Default::default() }
                .build()
                .into(),
        ),
        (
            "cubic",
            CubicConfig { initial_window: window, initial_ssthresh: 2.0, ..Default::default() }
                .build()
                .into(),
        ),
        ("xcp", XcpConfig { initial_window: window, ..Default::default() }.build().into()),
    ];
    for (name, law) in laws {
        for detection in [Detection::Rfc6675, Detection::Rack { tail_probe: false }] {
            let (ns, again) = run(pairs, flows, loss, &law, detection);
            println!("{name:8} {detection:?}: {ns:.1} ns a pair, {again:.4} retransmissions a segment");
        }
    }
}

/// Answers nanoseconds a pair, and the share of retransmissions.
fn run(pairs: u64, flows: u64, loss: u64, law: &AnySender, detection: Detection) -> (f64, f64) {
    let config = Arc::new(Config {
        handshake: false,
        detection,
        // Windows of this size whatever the law does, so that laws compare.
        receive_buffer: 64 * 1460,
        ..Config::default()
    });
    let mut now = Time::from_secs(1);
    let mut all: Vec<Flow> = (0..flows as u32)
        .map(|flow| {
            let mut sender = Connection::client(&config, copy(law), flow);
            sender.open(now);
            sender.write_unlimited();
            let receiver = Connection::server(&config, copy(law), flow);
            Flow { sender, receiver, wire: VecDeque::with_capacity(256) }
        })
        .collect();
    let (mut packet, mut sack) = (Packet::default(), SackRanges::EMPTY);
    for flow in &mut all {
        while flow.sender.poll_transmit(now, &mut packet, &mut sack) {
            flow.wire.push_back(packet);
        }
    }
    let started = Instant::now();
    let (mut at, mut sent) = (0, 0u64);
    for _ in 0..pairs {
        let flow = &mut all[at];
        at = if at + 1 == flows as usize { 0 } else { at + 1 };
        now += Time::from_micros(1);
        if flow.sender.poll_timeout() <= now {
            flow.sender.handle_timeout(now);
        }
        let arrived = flow.wire.pop_front();
        sent += 1;
        if let Some(data) =
            arrived.filter(|_| loss == 0 || (sent.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % loss != 0)
        {
            flow.receiver.handle_packet(now, &data, &SackRanges::EMPTY);
            while flow.receiver.poll_transmit(now, &mut packet, &mut sack) {
                flow.sender.handle_packet(now, &packet, &sack);
            }
        }
        while flow.sender.poll_transmit(now, &mut packet, &mut sack) {
            flow.wire.push_back(packet);
        }
    }
    let ns = started.elapsed().as_nanos() as f64 / pairs as f64;
    let total =
        |count: fn(&Connection) -> u64| all.iter().map(|flow| count(&flow.sender)).sum::<u64>() as f64;
    (ns, total(|end| end.stats().retransmissions) / total(|end| end.stats().segments_sent))
}

fn copy(law: &AnySender) -> AnySender {
    match law {
        AnySender::NewReno(law) => law.clone().into(),
        AnySender::Cubic(law) => law.clone().into(),
        AnySender::Dctcp(law) => law.clone().into(),
        AnySender::Xcp(law) => law.clone().into(),
        AnySender::Bbr(law) => AnySender::Bbr(law.clone()),
        AnySender::Fcp(law) => (**law).clone().into(),
        AnySender::Rcp(law) => law.clone().into(),
        AnySender::Custom(_) => NewRenoConfig::default().build().into(),
    }
}
