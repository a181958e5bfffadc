//! Nanoseconds per packet of a link's law: arrival and departure, control intervals included.
//!
//! `cargo bench -p tollway-law`; for instructions of XCP's, `examples/xcp_instructions.rs`.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use tollway_law::link::xcp::{Arithmetic, Beside, Form};
use tollway_law::link::{
    AnyLink, DropTail, FcpConfig, Limit, LinkLaw, Passing, RcpConfig, RedConfig, XcpConfig,
};
use tollway_law::{Kind, Rate, Time, Toll};

/// Packets a batch: they, and not the clock, are what is measured.
const PACKETS: u64 = 10_000;

/// 1 Gb/s full of 1500-byte packets; each arrives, and leaves with a few others behind it.
fn pass(law: &mut AnyLink, start: u64, tolls: &[Toll]) -> f64 {
    let mut due = 0.0;
    for (k, toll) in (0..PACKETS).zip(tolls.iter().cycle()) {
        let now = Time(start + k * 12_000);
        let mut toll = *toll;
        let queued = (k % 7) as u32;
        let packet = Passing::of(Kind::Tolled, 1500, queued, u64::from(queued) * 1500);
        law.on_arrival(now, packet, &toll);
        law.on_departure(now, packet, &mut toll);
        due += toll.due;
    }
    due
}

/// The tolls of 64 XCP flows.
fn xcp_flows() -> Vec<Toll> {
    let toll = |k| Toll {
        due: 1e24,
        rtt: 0.02 + 0.001 * k as f32,
        offer: 12e-6 * 64.0 * (0.5 + k as f32 / 64.0),
        ..Toll::default()
    };
    (0..64).map(toll).collect()
}

/// The tolls of 1000 FCP flows that spend a dollar a second each; one in twenty announces a change
/// by a tenth.
fn fcp_flows() -> Vec<Toll> {
    let toll = |k| Toll {
        rtt: 0.02 + 8e-5 * k as f32,
        offer: [0.1, -0.1].get(k % 20).copied().unwrap_or(0.0),
        stake: 8e-6 * (0.95 + 1e-4 * k as f32),
        ..Toll::default()
    };
    (0..1000_usize).map(toll).collect()
}

fn links(c: &mut Criterion) {
    let capacity = Rate::from_mbps(1000.0);
    let xcp = |arithmetic, form| XcpConfig { arithmetic, form, ..XcpConfig::default() }.build(capacity);
    let (sixty_four, thousand) = (xcp_flows(), fcp_flows());
    let laws = [
        ("drop-tail", AnyLink::DropTail(DropTail)),
        (
            "red",
            AnyLink::Red(Box::new(
                RedConfig::default().build(capacity, Limit { packets: 20, bytes: u64::MAX }),
            )),
        ),
        ("xcp/float", xcp(Arithmetic::Float, Form::Throughput)),
        ("xcp/float/window", xcp(Arithmetic::Float, Form::Window)),
        ("xcp/fixed32", xcp(Arithmetic::Fixed32, Form::Throughput)),
        ("xcp/fixed128", xcp(Arithmetic::Fixed128, Form::Throughput)),
        ("xcp/shadow32", XcpConfig { shadow: Beside::Fixed32, ..XcpConfig::default() }.build(capacity)),
    ];
    let laws = laws.map(|(name, law)| (name, law, &sixty_four));
    let thousand = [
        ("fcp", AnyLink::Fcp(Box::new(FcpConfig::default().build(capacity))), &thousand),
        ("rcp", AnyLink::Rcp(Box::new(RcpConfig::default().build(capacity))), &thousand),
    ];
    let mut group = c.benchmark_group("arrival and departure");
    group.throughput(Throughput::Elements(PACKETS));
    for (name, mut law, tolls) in laws.into_iter().chain(thousand) {
        let mut start = 0;
        group.bench_function(name, |b| {
            b.iter(|| {
                start += PACKETS * 12_000;
                black_box(pass(black_box(&mut law), start, tolls))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, links);
criterion_main!(benches);
