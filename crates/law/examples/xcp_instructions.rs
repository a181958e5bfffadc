//! A million packets through one XCP router, to count instructions (and, without valgrind,
//! nanoseconds):
//!
//! ```text
//! cargo build --release -p tollway-law --example xcp_instructions
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null \
//!     target/release/examples/xcp_instructions float|window|fixed32|fixed128|drop-tail
//! ```
//!
//! Per packet: the difference to `drop-tail`, which is the loop alone, divided by the packets.

use std::hint::black_box;

use tollway_law::link::xcp::{Arithmetic, Form};
use tollway_law::link::{AnyLink, DropTail, LinkLaw, Passing, XcpConfig};
use tollway_law::{Kind, Rate, Time, Toll};

fn main() {
    let which = std::env::args().nth(1).unwrap_or_default();
    let config = |arithmetic, form| XcpConfig { arithmetic, form, ..XcpConfig::default() };
    let capacity = Rate::from_mbps(1000.0);
    let mut law = match which.as_str() {
        "float" => config(Arithmetic::Float, Form::Throughput).build(capacity),
        "window" => config(Arithmetic::Float, Form::Window).build(capacity),
        "fixed32" => config(Arithmetic::Fixed32, Form::Throughput).build(capacity),
        "fixed128" => config(Arithmetic::Fixed128, Form::Throughput).build(capacity),
        "drop-tail" => AnyLink::DropTail(DropTail),
        _ => {
            eprintln!("say one of float, window, fixed32, fixed128, drop-tail");
            std::process::exit(2);
        }
    };
    let (mut due, mut best) = (0.0, f64::INFINITY);
    for batch in 0..100 {
        let start = std::time::Instant::now();
        due += pass(black_box(&mut law), batch * 10_000);
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!("{which}: 1000000 packets, mean feedback {} bytes/s", due / 1e6);
    println!("{which}: best batch {:.1} ns a packet", best / 1e4 * 1e9);
}

/// Ten thousand packets of 64 flows, 12 µs apart: each arrives and leaves.
fn pass(law: &mut AnyLink, first: u64) -> f64 {
    let mut due = 0.0;
    for k in first..first + 10_000 {
        let now = Time(k * 12_000);
        let flow = (k % 64) as f32;
        let mut toll =
            Toll { due: 1e24, rtt: 0.02 + 0.001 * flow, offer: 12e-6 * (32.0 + flow), ..Toll::default() };
        let queued = (k % 7) as u32;
        let packet = Passing::of(Kind::Tolled, 1500, queued, u64::from(queued) * 1500);
        law.on_arrival(now, packet, &toll);
        law.on_departure(now, packet, &mut toll);
        due += toll.due;
    }
    due
}
