//! Measurement of links, by interval and over a whole run.

use tollway_law::link::LinkLaw as _;
use tollway_law::{Price, Time};
use tollway_proto::link::{Link, LinkStats};
use tollway_sim::LinkId;

use super::{Meter, percentiles};
use crate::plan::{self, Plan};
use crate::run::build::Built;
use crate::run::engine::{Engine, Place};
use crate::run::{RunError, Watch};
use crate::tables::{ControlRow, LinkRow, LinkSummary, RunResult};

/// One direction of a link.
#[derive(Default)]
pub(super) struct LinkMeter {
    /// Index in the plan.
    pub(super) link: usize,
    last: LinkStats,
    /// Since the end of the warm-up.
    sums: Sums,
    /// Most bytes and packets queued before.
    most_before: Option<(u64, u32)>,
}

/// Figures of a link's queue over some reads.
#[derive(Clone, Copy, Default)]
struct Sums {
    byte_ns: u128,
    packet_ns: u128,
    drain_ns2: u128,
    max_bytes: u64,
    max_packets: u32,
}

impl Meter {
    /// Writes the rows of each link and of its control intervals.
    pub(super) fn link_rows<E: Engine>(
        &mut self,
        plan: &Plan,
        built: &mut Built<E>,
        now: Time,
        watch: Option<&dyn Watch>,
    ) -> Result<(), RunError> {
        let variant = plan.variant.as_deref().unwrap_or_default();
        let (span, time_s) = (now - self.last, now.nearest_secs());
        for meter in &mut self.links {
            let i = meter.link;
            let (stats, price, control) = built.network.with_link(LinkId(i as u32), |link, now| {
                (link.read(now), link.port.law.stated_price(), link.take_control())
            });
            meter.sums.add(&stats);
            // Since the last row: the queue's figures restart at each read, and `last` has what
            // other reads took.
            let mut queue = Sums::of(&meter.last);
            queue.add(&stats);
            let row = LinkRow {
                time_s,
                link: &plan.links[i].name,
                utilisation: utilisation(
                    &plan.links[i],
                    Sent::of(&meter.last),
                    Sent::of(&stats),
                    (self.last, now),
                ),
                queue_mean_bytes: queue.byte_ns as f64 / span.0 as f64,
                queue_max_bytes: queue.max_bytes as f64,
                queue_mean_packets: queue.packet_ns as f64 / span.0 as f64,
                queue_max_packets: f64::from(queue.max_packets),
                queue_mean_ms: queue.drain_ns2 as f64 * 1e-6 / span.0 as f64,
                drops: stats.drops.queue() - meter.last.drops.queue(),
                marks: stats.marks - meter.last.marks,
                price: price.map(Price::per_megabyte),
            };
            self.digest.word(stats.sent_bytes);
            self.digest.number(row.queue_mean_bytes);
            meter.last = LinkStats {
                queue_byte_ns: 0,
                queue_packet_ns: 0,
                queue_drain_ns2: 0,
                queue_max_bytes: 0,
                queue_max_packets: 0,
                ..stats
            };
            self.writer.link(&row)?;
            if let Some(watch) = watch {
                watch.link(variant, &row);
            }
            for control in control {
                self.writer.control(&ControlRow {
                    time_s: control.ends.nearest_secs(),
                    link: &plan.links[i].name,
                    interval_ms: control.ends.saturating_sub(control.begins).as_millis_f64(),
                    feedback_mbps: control.feedback * 8e-6,
                    mean_rtt_ms: control.avg_rtt * 1e3,
                    persistent_queue_bytes: control.persistent_queue as f64,
                    feedback_count: control.packets,
                    feedback_packets: control.packet_feedback / control.packets.max(1) as f64,
                })?;
            }
        }
        Ok(())
    }

    /// Writes the summaries of links; returns all tables with the digest of their contents.
    pub(in crate::run) fn finish_links<E: Engine>(
        mut self,
        plan: &Plan,
        built: &mut Built<E>,
    ) -> Result<(RunResult, u64), RunError> {
        let end = built.network.now();
        let measured = end.saturating_sub(if self.warmed { self.warmup } else { Time::ZERO });
        let mut meters = self.links.into_iter().peekable();
        for i in 0..plan.links.len() {
            let id = LinkId(i as u32);
            if !built.network.has(Place::Link(id)) {
                continue;
            }
            let stats = built.network.with_link(id, Link::read);
            // Links without a meter have unknown queue figures.
            let meter = meters.next_if(|meter| meter.link == i).map(|mut meter| {
                meter.sums.add(&stats);
                meter
            });
            let queue = |of: fn(&Sums) -> f64| meter.as_ref().map(|meter| of(&meter.sums));
            let wait =
                meter.as_ref().map(|_| built.network.with_link(id, |link, _| percentiles(&link.waits())));
            let most_before = meter.as_ref().and_then(|meter| meter.most_before);
            let before = self.at_warmup.get(i).copied();
            let base = before.unwrap_or_default();
            self.digest.word(stats.sent_bytes);
            self.digest.word(stats.drops.total());
            let link = &plan.links[i];
            let span = (measured.0 as f64).max(1.0);
            self.writer.link_summary(&LinkSummary {
                link: &link.name,
                capacity_mbps: link.rate.mbps(),
                from_s: end.saturating_sub(measured).nearest_secs(),
                utilisation: utilisation(
                    link,
                    base.sent,
                    Sent::of(&stats),
                    (end.saturating_sub(measured), end),
                ),
                queue_mean_bytes: queue(|sums| sums.byte_ns as f64).map(|sum| sum / span),
                queue_max_bytes: queue(|sums| sums.max_bytes as f64),
                queue_mean_packets: queue(|sums| sums.packet_ns as f64).map(|sum| sum / span),
                queue_max_packets: queue(|sums| f64::from(sums.max_packets)),
                queue_mean_ms: queue(|sums| sums.drain_ns2 as f64 * 1e-6).map(|sum| sum / span),
                wait_p50_ms: wait.and_then(|wait| wait.p50_ms),
                wait_p95_ms: wait.and_then(|wait| wait.p95_ms),
                wait_p99_ms: wait.and_then(|wait| wait.p99_ms),
                limit_bytes: limit_bytes(plan, i),
                drops: stats.drops.queue() - base.drops,
                marks: stats.marks - base.marks,
                queue_max_bytes_before: most_before.map(|most| most.0 as f64),
                queue_max_packets_before: most_before.map(|most| f64::from(most.1)),
                drops_before: before.map(|before| before.drops),
                marks_before: before.map(|before| before.marks),
            })?;
        }
        let digest = self.digest.value();
        let variant = plan.variant.clone().unwrap_or_default();
        Ok((self.writer.finish(variant)?, digest))
    }
}

impl LinkMeter {
    /// The meter of the plan's link `link`.
    pub(super) fn new(link: usize) -> LinkMeter {
        LinkMeter { link, ..LinkMeter::default() }
    }

    /// Ends the warm-up with a read.
    pub(super) fn warm(&mut self, stats: &LinkStats) {
        self.sums.add(stats);
        self.most_before = Some((self.sums.max_bytes, self.sums.max_packets));
        self.sums = Sums::default();
        // The running interval's row still includes the figures of this read.
        let mut queue = Sums::of(&self.last);
        queue.add(stats);
        self.last = LinkStats {
            queue_byte_ns: queue.byte_ns,
            queue_packet_ns: queue.packet_ns,
            queue_drain_ns2: queue.drain_ns2,
            queue_max_bytes: queue.max_bytes,
            queue_max_packets: queue.max_packets,
            ..self.last
        };
    }
}

impl Sums {
    fn of(stats: &LinkStats) -> Sums {
        let mut sums = Sums::default();
        sums.add(stats);
        sums
    }

    fn add(&mut self, stats: &LinkStats) {
        self.byte_ns += stats.queue_byte_ns;
        self.packet_ns += stats.queue_packet_ns;
        self.drain_ns2 += stats.queue_drain_ns2;
        self.max_bytes = self.max_bytes.max(stats.queue_max_bytes);
        self.max_packets = self.max_packets.max(stats.queue_max_packets);
    }
}

/// A link's counters at the end of the warm-up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BeforeWarm {
    sent: Sent,
    drops: u64,
    marks: u64,
}

impl BeforeWarm {
    pub(super) fn of(stats: &LinkStats) -> BeforeWarm {
        BeforeWarm { sent: Sent::of(stats), drops: stats.drops.queue(), marks: stats.marks }
    }
}

/// The work of a link since the start: busy time and bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    busy_ns: u64,
    bytes: u64,
}

impl Sent {
    fn of(stats: &LinkStats) -> Sent {
        Sent { busy_ns: stats.busy_ns, bytes: stats.sent_bytes }
    }
}

/// The utilisation of a link in `span`, from two reads of its figures: the fraction of time in
/// which it sent.
///
/// For a replayed trace, the fraction of the offered bytes that were used. A packet then counts
/// from the start of its wait for an opportunity.
fn utilisation(link: &plan::Link, before: Sent, after: Sent, span: (Time, Time)) -> f64 {
    match &link.trace {
        None => (after.busy_ns - before.busy_ns) as f64 / ((span.1 - span.0).0 as f64).max(1.0),
        Some(trace) => {
            let offered = trace.bytes_between(span.0, span.1).max(1) as f64;
            ((after.bytes - before.bytes) as f64 / offered).min(1.0)
        }
    }
}

/// The bound of a link's queue in bytes, if there is one. A bound in packets counts full packets of
/// the largest flow.
fn limit_bytes(plan: &Plan, link: usize) -> Option<u64> {
    let limit = plan.links[link].law.limit;
    let largest =
        plan.transports.iter().map(|transport| u64::from(transport.packet_size)).max().unwrap_or(1500);
    let packets = (limit.packets != u32::MAX).then(|| u64::from(limit.packets) * largest);
    let bytes = (limit.bytes != u64::MAX).then_some(limit.bytes);
    match (packets, bytes) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
