//! The memory that a run takes, estimated from its plan.
//!
//! A wire holds the packets that its flows can send in its delay. A queue is full if its flows can
//! send as fast as its link. A drop-tail queue without limit grows until the end. Buffers and
//! sizes of flows bound both.

use std::collections::HashMap;

use tollway_law::{Bytes, Time};

use super::RunError;
use crate::plan::{LinkId, Path, Plan, Transport, TransportId};

/// Refuses a plan whose estimate exceeds `memory` bytes; by default, 80 % of free memory.
pub(super) fn check(plan: &Plan, memory: Option<u64>) -> Result<(), RunError> {
    let Some(allowed) = memory.map(|bytes| bytes as f64).or_else(|| free().map(|free| 0.8 * free)) else {
        return Ok(());
    };
    let terms = terms(plan);
    let needed: f64 = terms.iter().map(|(bytes, _)| bytes).sum();
    match terms.into_iter().max_by(|(one, _), (other, _)| one.total_cmp(other)) {
        Some((share, of)) if needed > allowed => Err(RunError::Memory {
            needed: rounded(needed),
            allowed: rounded(allowed),
            share: rounded(share),
            of: of.to_string(),
        }),
        _ => Ok(()),
    }
}

/// Two digits or more of an estimate, up to a petabyte.
fn rounded(bytes: f64) -> Bytes {
    let unit = if bytes < 1e9 { 1e6 } else { 1e8 };
    Bytes(((bytes.min(1e15) / unit).ceil() * unit) as u64)
}

/// Bytes of memory available without swapping; `None` if the system does not report it.
fn free() -> Option<f64> {
    let about = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = about.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok().map(|kib| kib * 1024.0)
}

/// The parts of the estimate, in bytes.
fn terms(plan: &Plan) -> Vec<(f64, Term<'_>)> {
    let (loads, flows) = loads(plan);
    let (mut queues, mut packets): (HashMap<&str, f64>, HashMap<&str, f64>) = Default::default();
    for (link, load) in plan.links.iter().zip(&loads) {
        if let Some(queue) = &link.law.queue {
            *queues.entry(&link.section).or_default() += queue.memory() as f64;
        }
        let rate = link.rate.bytes_per_sec();
        let carried = if load.bytes > rate { load.packets * rate / load.bytes } else { load.packets };
        let queue = if load.bytes < rate * (1.0 - 1e-6) || load.packets == 0.0 {
            0.0
        } else {
            let grown = if link.law.is_none() { plan.duration } else { load.rtt };
            let bytes = link.law.limit.bytes as f64 * load.packets / load.bytes;
            bytes.min(f64::from(link.law.limit.packets)).min(carried * grown.as_secs_f64())
        };
        let held = (queue + carried * link.delay.as_secs_f64()).max(load.instant).min(load.window);
        *packets.entry(&link.section).or_default() += held * PACKET;
    }
    let mut terms = vec![(plan.links.len() as f64 * LINK, Term::Links), (flows, Term::Flows)];
    terms.extend(queues.into_iter().map(|(section, bytes)| (bytes, Term::Queues(section))));
    terms.extend(packets.into_iter().map(|(section, bytes)| (bytes, Term::Packets(section))));
    terms
}

/// The load of each link, and bytes for flows.
fn loads(plan: &Plan) -> (Vec<Load>, f64) {
    let (streams, flows) = streams(plan);
    let rate = |link: &LinkId| plan.links[link.0 as usize].rate.bytes_per_sec();
    let mut asked = vec![0.0; plan.links.len()];
    for stream in &streams {
        stream.route.iter().for_each(|link| asked[link.0 as usize] += stream.bytes);
    }
    let mut loads = vec![Load::default(); plan.links.len()];
    for stream in &streams {
        // A stream's rate is its share of the most loaded link of its route.
        let shares = stream.route.iter().map(|link| rate(link) / asked[link.0 as usize]);
        let bytes = stream.bytes * shares.fold(1.0, f64::min);
        let packets = bytes / stream.packet_size;
        let instant = stream.bytes / stream.packet_size > MOST_PACKETS && stream.responds;
        for (route, size) in [(stream.route, stream.packet_size), (stream.back, stream.ack_size)] {
            for link in route {
                let load = &mut loads[link.0 as usize];
                load.bytes += packets * size;
                load.packets += packets;
                load.window += stream.window;
                load.instant += if instant { stream.window } else { 0.0 };
                load.rtt = load.rtt.max(stream.rtt);
            }
        }
    }
    (loads, flows)
}

/// All streams, and bytes for flows.
fn streams(plan: &Plan) -> (Vec<Stream<'_>>, f64) {
    let mut flows = 0.0;
    let mut of = |path: &'_ Path, transport: TransportId, buffer: u32, bytes: f64, count: f64| {
        let transport = &plan.transports[transport.0 as usize];
        let Transport { packet_size, header, ack_size, initial_window, .. } = *transport;
        let buffer = if buffer == u32::MAX { f64::INFINITY } else { f64::from(buffer) };
        let payload = f64::from(packet_size.saturating_sub(header).max(1));
        let window = buffer.min((bytes / payload).ceil());
        flows += count * (FLOW + SEGMENT * window.min(f64::from(initial_window)));
        let rates = path.route.iter().map(|link| plan.links[link.0 as usize].rate.bytes_per_sec());
        (rates.fold(f64::INFINITY, f64::min), f64::from(packet_size), f64::from(ack_size), count * window)
    };
    let mut streams = Vec::with_capacity(plan.flows.len());
    let mut add = |path, (bytes, packet_size, ack_size, window)| {
        let Path { route, back, base_rtt, .. }: &Path = path;
        let rtt = *base_rtt;
        streams.push(Stream { route, back, bytes, packet_size, ack_size, window, rtt, responds: true });
    };
    for flow in &plan.flows {
        let bytes = flow.data.bytes().map_or(f64::INFINITY, |bytes| bytes as f64);
        let buffer = flow.receive_buffer.min(flow.send_buffer);
        add(&flow.path, of(&flow.path, flow.transport, buffer, bytes, 1.0));
    }
    for workload in &plan.workloads {
        let span = workload.stop.min(plan.duration).saturating_sub(workload.start);
        let arrivals = workload.arrivals.expected(span).min(workload.max_flows as f64);
        let (each, bytes) = (arrivals / workload.paths.len().max(1) as f64, workload.sizes.mean());
        for path in &workload.paths {
            add(path, of(path, workload.transport, u32::MAX, bytes, each));
        }
    }
    streams.extend(plan.cbrs.iter().map(|cbr| Stream {
        route: &cbr.route,
        back: &[],
        bytes: cbr.rate.bytes_per_sec(),
        packet_size: f64::from(cbr.packet_size.max(1)),
        ack_size: 0.0,
        window: f64::INFINITY,
        rtt: Time::ZERO,
        responds: false,
    }));
    (streams, flows)
}

/// A flow, the flows of a workload on a path, or cross-traffic.
struct Stream<'a> {
    route: &'a [LinkId],
    back: &'a [LinkId],
    /// Bytes a second, limited by the slowest link of the route.
    bytes: f64,
    packet_size: f64,
    ack_size: f64,
    /// Largest number of packets in flight.
    window: f64,
    rtt: Time,
    /// True if the stream sends faster when acknowledgements return at once.
    responds: bool,
}

/// The packets that can cross a link.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    /// Bytes a second.
    bytes: f64,
    /// Packets a second.
    packets: f64,
    /// Largest number of packets that flows can have in flight.
    window: f64,
    /// The part of `window` of flows with less than a nanosecond between packets, the engines'
    /// resolution.
    instant: f64,
    /// The longest round trip.
    rtt: Time,
}

/// A purpose of memory.
#[derive(Clone, Copy, Debug)]
enum Term<'a> {
    Links,
    Flows,
    Queues(&'a str),
    Packets(&'a str),
}

impl std::fmt::Display for Term<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Term::Links => write!(f, "for links; use smaller groups of nodes"),
            Term::Flows => {
                write!(f, "for flows and their windows; use fewer flows, or a smaller `initial-window`")
            }
            Term::Queues(link) => write!(f, "for the queues of `[link.{link}]`; give it fewer `queues`"),
            Term::Packets(link) => write!(
                f,
                "for packets in the queue of `[link.{link}]` or on it; give it a lower `rate`, `delay` or \
                `limit`, or its flows a `receive-buffer`"
            ),
        }
    }
}

/// Bytes of a link direction, measured with 100 000 of them.
const LINK: f64 = 600.0;
/// Bytes of a flow's two ends and its rows, measured with 100 000 flows.
const FLOW: f64 = 2500.0;
/// Bytes of a packet in a queue or on a wire, with its sender's segment; measured with three
/// million packets.
const PACKET: f64 = 96.0;
/// Bytes of a segment of a flow's first window.
const SEGMENT: f64 = 8.0;
/// Largest packet rate of a flow, 1/s: the engines' resolution is a nanosecond.
const MOST_PACKETS: f64 = 1e9;
