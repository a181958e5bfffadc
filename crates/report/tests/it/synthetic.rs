//! Synthetic runs similar to `scenarios/quickstart.toml`: four flows join and leave a bottleneck of
//! 10 Mb/s.

use tollway_scenario::tables::{FlowRow, FlowSummary, LinkRow, LinkSummary, Outputs, RunResult, TableWriter};

/// The variants.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Smooth and equal rates.
    Xcp,
    /// Sawtooth rates and a full buffer.
    Fifo,
    /// Sawtooth rates and half a buffer.
    Red,
}

/// One variant's run of 60 s with `flows` flows, in memory.
pub(crate) fn run(kind: Kind, flows: usize) -> RunResult {
    let variant = match kind {
        Kind::Xcp => "xcp",
        Kind::Fifo => "fifo",
        Kind::Red => "red",
    };
    let mut writer = TableWriter::new(&Outputs::memory()).expect("no file is opened");
    let join = |i: usize| 30.0 * i as f64 / (flows.max(2) - 1) as f64;
    let leave = |i: usize| 40.0 + join(i);
    let name = |i: usize| format!("f.{}", i + 1);
    let mut moved = vec![0.0; flows];
    let mut noise = Noise(7);
    let mut queue = 0.0;
    for step in 1..=600 {
        let time_s = f64::from(step) / 10.0;
        let active: Vec<usize> = (0..flows).filter(|&i| join(i) < time_s && time_s <= leave(i)).collect();
        let teeth = |i: usize| ((time_s * 0.31 + i as f64 * 0.37) % 1.0) * 0.9 + 0.55;
        let weights: Vec<f64> =
            active.iter().map(|&i| if kind == Kind::Xcp { 1.0 } else { teeth(i) }).collect();
        let total: f64 = weights.iter().sum();
        for (&i, weight) in active.iter().zip(&weights) {
            let ramp = if kind == Kind::Xcp { ((time_s - join(i)) / 1.2).min(1.0) } else { 1.0 };
            let jitter = 1.0 + (noise.next() - 0.5) * if kind == Kind::Xcp { 0.01 } else { 0.12 };
            let rate_mbps = 9.92 * weight / total * ramp * jitter;
            moved[i] += rate_mbps * 0.1;
            let flow = &name(i);
            let (rtt_ms, cwnd_packets) =
                (100.0 + queue * 1.2, rate_mbps * (0.1 + queue * 0.0012) * 1e6 / 12e3);
            let retransmissions = u64::from(kind != Kind::Xcp && noise.next() > 0.97);
            let row =
                FlowRow { time_s, flow, rate_mbps, cwnd_packets, retransmissions, ..FlowRow::default() };
            let row = FlowRow { goodput_mbps: rate_mbps * 0.96, rtt_ms: Some(rtt_ms), ..row };
            writer.flow(&row).expect("memory takes rows");
        }
        queue = match kind {
            Kind::Xcp => 0.5 + 3.0 * noise.next() + if time_s % 10.0 < 0.3 { 9.0 } else { 0.0 },
            Kind::Fifo => 40.0 + 43.0 * ((time_s * 0.23) % 1.0),
            Kind::Red => 18.0 + 22.0 * noise.next(),
        };
        let link = LinkRow {
            time_s,
            link: "bottleneck",
            utilisation: 0.99 + 0.01 * noise.next(),
            queue_mean_packets: queue,
            queue_max_packets: queue * 1.2,
            queue_mean_bytes: queue * 1500.0,
            queue_max_bytes: queue * 1800.0,
            queue_mean_ms: queue * 1.2,
            drops: u64::from(kind != Kind::Xcp && noise.next() > 0.9),
            marks: 0,
            ..LinkRow::default()
        };
        writer.link(&link).expect("memory takes rows");
        let back = LinkRow { time_s, link: "bottleneck.reverse", utilisation: 0.02, ..LinkRow::default() };
        writer.link(&back).expect("memory takes rows");
    }
    for (i, bits) in moved.iter().enumerate() {
        let ends = (leave(i) < 60.0).then(|| leave(i));
        let rate_mbps = bits / (leave(i).min(60.0) - join(i));
        let row = FlowSummary {
            flow: &name(i),
            law: if kind == Kind::Xcp { "xcp" } else { "newreno" },
            start_s: join(i),
            finish_s: ends,
            rate_mbps: Some(rate_mbps),
            goodput_mbps: Some(rate_mbps * 0.96),
            ideal_mbps: Some(3.7),
            share_of_ideal: Some(rate_mbps / 3.7),
            retransmissions: if kind == Kind::Xcp { 0 } else { 40 + i as u64 },
            ..FlowSummary::default()
        };
        writer.flow_summary(&row).expect("memory takes rows");
    }
    let (mean, max, drops) = match kind {
        Kind::Xcp => (2.0, 12.5, 0),
        Kind::Fifo => (61.5, 83.0, 58),
        Kind::Red => (29.0, 40.0, 61),
    };
    let link = LinkSummary {
        link: "bottleneck",
        capacity_mbps: 10.0,
        from_s: 5.0,
        utilisation: 0.995,
        queue_mean_bytes: Some(mean * 1500.0),
        queue_max_bytes: Some(max * 1500.0),
        queue_mean_packets: Some(mean),
        queue_max_packets: Some(max),
        queue_mean_ms: Some(mean * 1.2),
        limit_bytes: Some(125_000),
        drops,
        ..LinkSummary::default()
    };
    writer.link_summary(&link).expect("memory takes rows");
    let back = LinkSummary { link: "bottleneck.reverse", utilisation: 0.02, ..LinkSummary::default() };
    writer.link_summary(&back).expect("memory takes rows");
    let mut result = writer.finish(variant).expect("memory takes rows");
    let divergence = if kind == Kind::Xcp { 3e-6 } else { f64::NAN };
    result.systems.set("shadows", &[("link", "bottleneck")], "divergence", divergence);
    result
}

/// A small pseudo-random generator, which makes pictures reproducible.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}
