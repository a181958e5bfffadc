//! Measurement: reads counters at ends of intervals and makes rows of them.

mod flows;
mod links;

use std::sync::Arc;

use compact_str::CompactString;
use tollway_law::Time;
use tollway_proto::Lateness;
use tollway_sim::{End, FlowId, LinkId, SinkStats};

use super::build::Built;
use super::build::overlay;
use super::build::sessions::ReceiverShare;
use super::delays::{self, Samples, Way};
use super::digest::Digest;
use super::engine::{Engine, Place};
use super::workload::{Generator, Running};
use super::{Options, RunError, Watch};
use crate::plan::Plan;
use crate::tables::{Ends, FlowSummary, OneWayDelays, Percentiles, TableWriter};
use flows::{Counters, Figures, FlowMeter};
use links::{BeforeWarm, LinkMeter};

/// Reads counters and writes rows.
pub(super) struct Meter {
    writer: TableWriter,
    digest: Digest,
    interval: Option<Time>,
    next_row: Time,
    warmup: Time,
    warmed: bool,
    last: Time,
    lanes: Vec<FlowMeter>,
    /// The counters of each lane at its last row; empty if there are no rows.
    at_row: Vec<Counters>,
    /// The counters of each lane at the end of the warm-up; empty until then.
    warm: Vec<Counters>,
    /// Stops of lanes by time, the next one last.
    stops: Vec<(Time, usize)>,
    /// The links that get rows.
    links: Vec<LinkMeter>,
    /// The work and the losses of each link until the end of the warm-up; empty without a warm-up.
    at_warmup: Vec<BeforeWarm>,
    /// By the flow of the data's sender, in order.
    lanes_of: Vec<(FlowId, u32)>,
    ideal_mbps: Arc<[[Option<f64>; 2]]>,
    /// The start of its flows' names, and the name of its law, by workload.
    workload_names: Vec<(String, String)>,
    /// Ended flows of workloads without a row yet: name, workload, and the rest of the row.
    ended: Vec<(CompactString, usize, FlowSummary<'static>)>,
    /// Time between samples of round trips; independent of the rows' interval, so that the summary
    /// does not depend on it.
    sampled_every: Time,
    next_sample: Time,
    samples: Samples,
    /// The counters of each constant-rate source at the end of the warm-up.
    sources_at_warmup: Vec<SinkStats>,
    /// The overlay's senders.
    senders: overlay::Senders,
}

impl Meter {
    pub(super) fn new<E: Engine>(
        plan: &Plan,
        built: &mut Built<E>,
        options: &Options<'_>,
    ) -> Result<Meter, RunError> {
        let mut lanes = Vec::with_capacity(plan.flows.len());
        let mut lanes_of = Vec::with_capacity(plan.flows.len());
        for (i, flow) in plan.flows.iter().enumerate() {
            let both = plan.transports[flow.transport.0 as usize].both_ways;
            for forward in [true, false].into_iter().take(1 + usize::from(both)) {
                let [sender, receiver] =
                    [plan.sender_of(i), plan.receiver_of(i)].map(|flow| built.flows[flow]);
                if !(built.network.has(Place::End(sender, End::Client))
                    || built.network.has(Place::End(receiver, End::Server)))
                {
                    continue;
                }
                lanes_of.push((sender, lanes.len() as u32));
                lanes.push(FlowMeter {
                    flow: built.flows[i],
                    sender,
                    receiver,
                    plan_flow: i as u32,
                    reverse: (!forward).then(|| Box::new(format!("{}.reverse", flow.name))),
                    share: ReceiverShare::of(plan, i).map(Box::new),
                    start: if flow.after.is_some() { Time::NEVER } else { flow.start },
                    done: Time::NEVER,
                    samples: 0,
                    heard: 0,
                    at_stop: None,
                });
            }
        }
        lanes_of.sort_unstable();
        let mut stops: Vec<(Time, usize)> = lanes
            .iter()
            .enumerate()
            .map(|(i, lane)| (lane.plan(plan).stop, i))
            .filter(|(stop, _)| *stop < plan.duration)
            .collect();
        stops.sort_unstable_by(|a, b| b.cmp(a));
        let shown = plan.shown_links();
        let mut links = Vec::new();
        for (i, &shown) in shown.iter().enumerate() {
            let id = LinkId(i as u32);
            let rows = shown && built.network.has(Place::Link(id));
            built.network.with_link(id, |link, now| {
                link.measure(now, rows);
                if rows && plan.measure.interval.is_some() {
                    link.log_control();
                }
            });
            if rows {
                links.push(LinkMeter::new(i));
            }
        }
        for (cbr, &source) in plan.cbrs.iter().zip(&built.sources) {
            if let (Some(late), Some(one_way)) = (cbr.late, built.network.one_way(source)) {
                one_way.set_bound(late);
            }
        }
        let law = |i: usize| plan.transports[plan.workloads[i].transport.0 as usize].law.word().to_owned();
        let sampled_every = delays::sampled_every(lanes.len(), plan.duration);
        Ok(Meter {
            sources_at_warmup: vec![SinkStats::default(); plan.cbrs.len()],
            senders: overlay::Senders::new(plan),
            writer: TableWriter::new(&options.outputs)?,
            digest: Digest::new(),
            interval: plan.measure.interval,
            next_row: plan.measure.interval.unwrap_or(Time::NEVER),
            sampled_every,
            next_sample: sampled_every,
            samples: Samples::new(
                plan,
                lanes.len(),
                (plan.duration.saturating_sub(plan.measure.warmup).0 / sampled_every.0) as usize + 1,
            ),
            warmup: plan.measure.warmup,
            warmed: plan.measure.warmup == Time::ZERO,
            last: Time::ZERO,
            at_row: vec![Counters::default(); if plan.measure.interval.is_some() { lanes.len() } else { 0 }],
            warm: Vec::new(),
            lanes,
            stops,
            links,
            at_warmup: Vec::new(),
            lanes_of,
            ideal_mbps: Arc::clone(&options.ideal_mbps),
            workload_names: (0..plan.workloads.len())
                .map(|i| (format!("{}.", plan.workloads[i].name), law(i)))
                .collect(),
            ended: Vec::new(),
        })
    }

    /// The time of the next read.
    pub(super) fn next(&self) -> Time {
        let stop = self.stops.last().map_or(Time::NEVER, |stop| stop.0);
        let read = self.next_row.min(self.next_sample).min(stop);
        if self.warmed { read } else { read.min(self.warmup) }
    }

    /// Performs all reads that are due.
    pub(super) fn tick<E: Engine>(
        &mut self,
        plan: &Plan,
        built: &mut Built<E>,
        watch: Option<&dyn Watch>,
    ) -> Result<(), RunError> {
        let now = built.network.now();
        let samples = now >= self.next_sample;
        if now >= self.next_row || (now == plan.duration && self.interval.is_some() && now > self.last) {
            self.rows(plan, built, (now, samples), watch)?;
            self.last = now;
            self.next_row = self.interval.map_or(Time::NEVER, |interval| self.next_row + interval);
        } else if samples {
            self.sample(plan, built, now);
        }
        if samples {
            self.next_sample += self.sampled_every;
        }
        while let Some((_, lane)) = self.stops.pop_if(|stop| stop.0 <= now) {
            let lane = &mut self.lanes[lane];
            lane.at_stop = Some(Box::new(lane.counters(plan, built)));
        }
        if !self.warmed && now >= self.warmup {
            self.warmed = true;
            self.warm = self.lanes.iter().map(|lane| lane.counters(plan, built)).collect();
            for (at_warmup, &source) in self.sources_at_warmup.iter_mut().zip(&built.sources) {
                *at_warmup = built.network.read_source(source);
                if let Some(one_way) = built.network.one_way(source) {
                    one_way.restart();
                }
            }
            self.senders.warm(built);
            let mut meters = self.links.iter_mut().peekable();
            self.at_warmup.reserve_exact(plan.links.len());
            for i in 0..plan.links.len() {
                let meter = meters.next_if(|meter| meter.link == i);
                let stats = built.network.with_link(LinkId(i as u32), |link, now| {
                    if meter.is_some() {
                        link.restart_waits();
                    }
                    link.read(now)
                });
                self.at_warmup.push(BeforeWarm::of(&stats));
                if let Some(meter) = meter {
                    meter.warm(&stats);
                }
            }
        }
        Ok(())
    }

    /// Sets the start of a flow of the file that waited for others.
    pub(super) fn flow_begun(&mut self, flow: FlowId, at: Time) {
        let first = self.lanes_of.partition_point(|&(of, _)| of < flow);
        for &(_, lane) in self.lanes_of[first..].iter().take_while(|&&(of, _)| of == flow) {
            self.lanes[lane as usize].start = at;
        }
    }

    /// Sets the end of one direction of a flow of the file: all its data are acknowledged.
    pub(super) fn flow_done(&mut self, flow: FlowId, end: End, at: Time) {
        let first = self.lanes_of.partition_point(|&(of, _)| of < flow);
        for &(_, lane) in self.lanes_of[first..].iter().take_while(|&&(of, _)| of == flow) {
            let lane = &mut self.lanes[lane as usize];
            if lane.forward() == (end == End::Client) {
                lane.done = at;
            }
        }
    }

    /// Writes the summary of a workload's flow that is done.
    pub(super) fn workload_flow_done<E: Engine>(
        &mut self,
        built: &Built<E>,
        flow: FlowId,
        running: &Running,
        done: Time,
    ) -> Result<(), RunError> {
        let figures = Figures::of(built, [flow; 3], true, (running.start, done));
        self.workload_flow(&figures, running, done, true)
    }

    /// Writes the summary of a workload's flow until its end, or until the end of the run.
    fn workload_flow(
        &mut self,
        figures: &Figures,
        running: &Running,
        until: Time,
        done: bool,
    ) -> Result<(), RunError> {
        let Figures { counters, heard: (first, last), .. } = *figures;
        let seconds = until.saturating_sub(running.start).nearest_secs();
        let heard = last.saturating_sub(first).nearest_secs();
        let per_second = |bytes: u64| (heard > 0.0).then(|| bytes as f64 * 8e-6 / heard);
        let mut name = CompactString::new(&self.workload_names[running.workload].0);
        name.push_str(itoa::Buffer::new().format(running.number + 1));
        self.digest.word(counters.received);
        self.digest.word(until.0);
        let summary = FlowSummary {
            start_s: running.start.nearest_secs(),
            from_s: running.start.nearest_secs(),
            finish_s: done.then(|| until.nearest_secs()),
            fct_s: done.then_some(seconds),
            size_bytes: Some(running.size),
            goodput_mbps: per_second(counters.delivered),
            rate_mbps: per_second(counters.received),
            ..figures.summary()
        };
        self.ended.push((name, running.workload, summary));
        if self.ended.len() == ROWS_AT_ONCE { self.write_ended() } else { Ok(()) }
    }

    /// Writes the rows of ended flows of workloads.
    fn write_ended(&mut self) -> Result<(), RunError> {
        let names = &self.workload_names;
        self.writer.flow_summaries(&self.ended, |(name, workload, summary)| {
            // An index that may be out of bounds would be checked again for each column.
            let law = names.get(*workload).map_or("", |names| &names.1);
            FlowSummary { flow: name, law, ..*summary }
        })?;
        self.ended.clear();
        Ok(())
    }

    /// Writes the summaries of flows, at the end of the run, and frees the flows before: their
    /// summaries need that memory.
    pub(super) fn finish_flows<E: Engine>(
        &mut self,
        plan: &Plan,
        built: &mut Built<E>,
        workloads: &Generator,
    ) -> Result<(), RunError> {
        self.write_ended()?;
        let end = built.network.now();
        let lanes = std::mem::take(&mut self.lanes);
        let figures: Vec<Figures> = lanes.iter().map(|lane| lane.figures(plan, built)).collect();
        let is_here = |flow, end| built.network.has(Place::End(flow, end));
        let running = workloads.running().filter(|&(flow, running)| {
            running.start < end && (is_here(flow, End::Client) || is_here(flow, End::Server))
        });
        let running: Vec<(&Running, Figures)> = running
            .map(|(flow, running)| (running, Figures::of(built, [flow; 3], true, (running.start, end))))
            .collect();
        built.network.release_flows();
        for (i, (lane, figures)) in lanes.into_iter().zip(&figures).enumerate() {
            let Figures { seen, counters, heard: (first, last), .. } = *figures;
            let flow = lane.plan(plan);
            // A flow that ended during the warm-up is measured over its life.
            let before = self.warm.get(i).copied().filter(|_| first < self.warmup && last > self.warmup);
            let (from, base) =
                (if before.is_some() { self.warmup } else { first }, before.unwrap_or_default());
            let seconds = last.saturating_sub(from).as_secs_f64();
            let per_second =
                |now: u64, then: u64| (seconds > 0.0).then(|| (now - then) as f64 * 8e-6 / seconds);
            // The sender's clock stops a flow.
            let until =
                lane.at_stop.as_deref().filter(|_| seen.sent(()).is_some()).copied().unwrap_or(counters);
            let rate_mbps = per_second(until.received, base.received);
            // The ideal rates of a stopped run would be those of the whole run.
            let ideal_mbps = self
                .ideal_mbps
                .get(lane.plan_flow as usize)
                .and_then(|ways| ways[usize::from(!lane.forward())]);
            let ideal_mbps = ideal_mbps.filter(|_| end == plan.duration);
            self.digest.word(counters.received);
            self.digest.word(counters.retransmissions);
            let size = flow.data.bytes();
            let delays = self.samples.delays(i, lane.samples, plan, Way::of(plan, flow, lane.forward()));
            let start = if lane.start == Time::NEVER { end } else { lane.start };
            self.writer.flow_summary(&FlowSummary {
                flow: lane.name(plan),
                law: plan.transports[flow.transport.0 as usize].law.word(),
                start_s: start.nearest_secs(),
                from_s: if lane.start == Time::NEVER { end } else { from }.nearest_secs(),
                finish_s: (last < end).then(|| last.nearest_secs()),
                fct_s: match flow.data {
                    data if data.is_endless() => None,
                    // A flow that was stopped did not complete.
                    _ if lane.done == Time::NEVER || seen == Ends::Sender && lane.done > flow.stop => None,
                    _ if seen != Ends::Sender && counters.delivered < size.unwrap_or(0) => None,
                    _ => Some(lane.done.saturating_sub(lane.start).nearest_secs()),
                },
                size_bytes: size,
                goodput_mbps: per_second(until.delivered, base.delivered),
                rate_mbps,
                ideal_mbps,
                share_of_ideal: ideal_mbps
                    .filter(|&ideal| ideal > 0.0)
                    .zip(rate_mbps)
                    .map(|(i, rate)| rate / i),
                retransmissions: counters.retransmissions - base.retransmissions,
                retransmissions_before: before.map(|before| before.retransmissions),
                timeouts: counters.timeouts - base.timeouts,
                timeouts_before: before.map(|before| before.timeouts),
                delays,
                ..figures.summary()
            })?;
        }
        self.finish_sources(plan, built)?;
        let warmup = if self.warmed { self.warmup } else { Time::ZERO };
        let ideal_mbps = if end == plan.duration { self.ideal_mbps.get(plan.flows.len()..) } else { None };
        let ideal_mbps = ideal_mbps.unwrap_or_default();
        self.senders.finish(plan, built, (warmup, ideal_mbps), (&mut self.writer, &mut self.digest))?;
        for (running, figures) in running {
            self.workload_flow(&figures, running, end, false)?;
        }
        self.write_ended()
    }

    /// Writes the summaries of constant-rate sources.
    fn finish_sources<E: Engine>(&mut self, plan: &Plan, built: &mut Built<E>) -> Result<(), RunError> {
        let end = built.network.now();
        let lost = |stats: SinkStats| {
            stats.sent_packets.saturating_sub(stats.arrived_packets + stats.in_flight_packets)
        };
        let sources = plan.cbrs.iter().zip(&built.sources).zip(&self.sources_at_warmup);
        for ((cbr, &source), &at_warmup) in sources {
            let stats = built.network.read_source(source);
            let last = cbr.stop.min(end);
            let warm = self.warmed && self.warmup > Time::ZERO;
            let before = (warm && cbr.start < self.warmup && last > self.warmup).then_some(at_warmup);
            let (from, base) = match before {
                Some(before) => (self.warmup, before),
                None => (cbr.start, SinkStats::default()),
            };
            let seconds = last.saturating_sub(from).as_secs_f64();
            let arrived = (stats.arrived_bytes - base.arrived_bytes) as f64;
            let rate_mbps = (seconds > 0.0).then(|| arrived * 8e-6 / seconds);
            let lost_packets = lost(stats).saturating_sub(lost(base));
            let one_way = built.network.one_way(source).filter(|one_way| one_way.delays().count() > 0);
            let late_packets = one_way.as_ref().and_then(|one_way| cbr.late.map(|_| one_way.late()));
            let one_way = one_way.map(|one_way| {
                let (loss_runs, longest_loss_run) = one_way.loss_runs(lost_packets);
                let jitter_ms = one_way.jitter().map(Time::as_millis_f64);
                OneWayDelays { delay: percentiles(one_way.delays()), jitter_ms, loss_runs, longest_loss_run }
            });
            self.writer.flow_summary(&FlowSummary {
                flow: &cbr.name,
                law: CONSTANT_RATE,
                start_s: cbr.start.nearest_secs(),
                from_s: from.nearest_secs(),
                finish_s: (last < end).then(|| last.nearest_secs()),
                sent_bytes: stats.sent_packets * u64::from(cbr.packet_size),
                delivered_bytes: stats.arrived_bytes,
                goodput_mbps: rate_mbps,
                rate_mbps,
                one_way,
                late_packets,
                lost_packets: Some(lost_packets),
                lost_packets_before: before.map(lost),
                ..FlowSummary::default()
            })?;
        }
        Ok(())
    }
}

/// The mean and percentiles of a histogram.
fn percentiles(spans: &Lateness) -> Percentiles {
    let [p50_ms, p95_ms, p99_ms] =
        [0.5, 0.95, 0.99].map(|p| (spans.count() > 1).then(|| spans.percentile(p).as_millis_f64()));
    let mean_ms = spans.total().as_millis_f64() / spans.count().max(1) as f64;
    Percentiles { mean_ms, p50_ms, p95_ms, p99_ms }
}

/// The ends that this process runs of data between the client of the first flow and the server of
/// the second.
fn seen<E: Engine>(network: &E, [of_client, of_server]: [FlowId; 2], forward: bool) -> Ends {
    let ends = [Place::End(of_client, End::Client), Place::End(of_server, End::Server)];
    match ends.map(|end| network.has(end)) {
        [true, false] if forward => Ends::Sender,
        [true, false] => Ends::Receiver,
        [false, true] if forward => Ends::Receiver,
        [false, true] => Ends::Sender,
        _ => Ends::Both,
    }
}

/// Rows that are written together: columns are looked up once for all of them.
const ROWS_AT_ONCE: usize = 64;
/// The law of a constant-rate source in the summary.
const CONSTANT_RATE: &str = "constant-rate";
