//! Measurement: counters read at interval ends, made rows.

mod links;

use std::sync::Arc;

use tollway_law::sender::{SenderLaw as _, Spender};
use tollway_law::{Price, Rate, Time};
use tollway_proto::link::Link;
use tollway_proto::transport::{Connection, Stats};
use tollway_sim::{End, FlowId};

use super::build::Built;
use super::build::overlay;
use super::build::sessions::Share;
use super::delays::{self, Samples, unloaded_rtt};
use super::digest::Digest;
use super::engine::{Engine, Outside, Place};
use super::workload::{Generator, Running};
use super::{Options, RunError, Watch};
use crate::plan::Plan;
use crate::tables::{Ends, FlowRow, FlowSummary, TableWriter};
use links::{LinkMeter, Sent};

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
    /// When which lane is stopped, the next one last.
    stops: Vec<(Time, usize)>,
    /// Kept for its memory.
    readings: Vec<Reading>,
    /// The links that get rows.
    links: Vec<LinkMeter>,
    /// What each link had sent by the end of the warm-up; empty where there was none.
    at_warmup: Vec<Sent>,
    /// By the flow whose sender's data they are, in order.
    lanes_of: Vec<(FlowId, usize)>,
    ideal_mbps: Arc<[[Option<f64>; 2]]>,
    workload_names: Vec<(String, String)>,
    /// When round trips are sampled next.
    next_sample: Time,
    /// Bytes of each constant-rate source that had arrived by the end of the warm-up.
    sources_at_warmup: Vec<u64>,
    /// Of the overlay.
    senders: overlay::Senders,
}

/// One direction of data of a flow.
struct FlowMeter {
    name: String,
    flow: FlowId,
    /// Where its data come from: another flow, for a receiver of copies.
    sender: FlowId,
    /// The flow with its receiver: another one, for a session's senders to one receiver.
    receiver: FlowId,
    /// The sender's part of what that receiver gets, if there are others.
    share: Option<Share>,
    plan_flow: usize,
    /// From client to server, or back.
    forward: bool,
    start: Time,
    stop: Time,
    done: Option<Time>,
    last: Counters,
    at_warmup: Counters,
    rtts: Samples,
    /// Bytes received at the last sample.
    heard: u64,
    /// When it was stopped: what comes later was on its way, and is part of no rate.
    at_stop: Option<Counters>,
}

#[derive(Clone, Copy, Default)]
struct Counters {
    received: u64,
    delivered: u64,
    retransmissions: u64,
}

impl FlowMeter {
    fn ends<'a, E: Engine>(&self, built: &'a Built<E>) -> (&'a Connection, &'a Connection) {
        let client = built.network.connection(self.sender, End::Client);
        let server = built.network.connection(self.receiver, End::Server);
        if self.forward { (client, server) } else { (server, client) }
    }

    fn counters<E: Engine>(&self, plan: &Plan, built: &Built<E>) -> Counters {
        if let Some(outside) = built.network.outside(self.flow, self.forward) {
            return Counters::outside(&outside);
        }
        let (sender, receiver) = self.ends(built);
        self.shared(plan, built, Counters::of(sender.stats(), receiver.stats()))
    }

    /// The counters without what other senders have sent to the same receiver.
    fn shared<E: Engine>(&self, plan: &Plan, built: &Built<E>, counters: Counters) -> Counters {
        let Some(share) = &self.share else { return counters };
        let (received, delivered) = share.bytes(plan, built);
        Counters { received, delivered, ..counters }
    }

    /// The ends of it that are known here.
    fn seen<E: Engine>(&self, plan: &Plan, built: &Built<E>) -> Ends {
        match seen(&built.network, [self.sender, self.receiver], self.forward) {
            Ends::Receiver if self.share.is_some_and(|share| !share.is_counted(plan, built)) => Ends::Neither,
            seen => seen,
        }
    }

    /// Whether there was anything of it since `last`.
    fn lived(&self, last: Time, now: Time) -> bool {
        self.start < now && self.done.is_none_or(|done| done > last)
    }
}

/// What a flow's two machines say at the end of an interval.
///
/// They lie apart and in no near cache: read by a loop that does little else, several are waited for at once.
struct Reading {
    lane: usize,
    counters: Counters,
    cwnd: f64,
    srtt: Time,
    pacing: Option<Rate>,
    in_flight: u32,
    spending: Option<f64>,
    price: Option<Price>,
}

impl Reading {
    /// Of a flow whose ends are no machines of ours.
    fn outside(lane: usize, flow: &Outside) -> Reading {
        Reading {
            lane,
            counters: Counters::outside(flow),
            cwnd: flow.cwnd,
            srtt: flow.srtt,
            pacing: None,
            in_flight: flow.in_flight,
            spending: None,
            price: None,
        }
    }

    #[inline]
    fn of(lane: usize, sender: &Connection, receiver: &Connection, now: Time) -> Reading {
        let spender = sender.law().spender();
        Reading {
            lane,
            counters: Counters::of(sender.stats(), receiver.stats()),
            cwnd: sender.cwnd(),
            srtt: sender.srtt(),
            pacing: sender.pacing_rate(now),
            in_flight: sender.in_flight(),
            spending: spender.map(Spender::spending),
            price: spender.and_then(Spender::price),
        }
    }
}

impl Counters {
    fn outside(flow: &Outside) -> Counters {
        let Outside { received, delivered, retransmissions, .. } = *flow;
        Counters { received, delivered, retransmissions }
    }

    fn of(sender: &Stats, receiver: &Stats) -> Counters {
        Counters {
            received: receiver.bytes_received,
            delivered: receiver.bytes_delivered,
            retransmissions: sender.retransmissions,
        }
    }
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
                lanes_of.push((sender, lanes.len()));
                lanes.push(FlowMeter {
                    name: if forward { flow.name.clone() } else { format!("{}.reverse", flow.name) },
                    flow: built.flows[i],
                    sender,
                    receiver,
                    share: Share::of(plan, i),
                    plan_flow: i,
                    forward,
                    start: if flow.after.is_some() { Time::NEVER } else { flow.start },
                    stop: flow.stop,
                    done: None,
                    last: Counters::default(),
                    at_warmup: Counters::default(),
                    rtts: Samples::default(),
                    heard: 0,
                    at_stop: None,
                });
            }
        }
        lanes_of.sort_unstable();
        let mut stops: Vec<(Time, usize)> = lanes
            .iter()
            .enumerate()
            .filter(|(_, lane)| lane.stop < plan.duration)
            .map(|(i, lane)| (lane.stop, i))
            .collect();
        stops.sort_unstable_by(|a, b| b.cmp(a));
        let shown = plan.shown_links();
        let mut links = Vec::new();
        for (i, &shown) in shown.iter().enumerate() {
            let rows = shown && built.network.has(Place::Link(built.links[i]));
            built.network.with_link(built.links[i], |link, now| {
                link.measure(now, rows);
                if rows && plan.measure.interval.is_some() {
                    link.log_control();
                }
            });
            if rows {
                links.push(LinkMeter { link: i, ..LinkMeter::default() });
            }
        }
        let law = |i: usize| plan.transports[plan.workloads[i].transport.0 as usize].law.word().to_owned();
        let sampled = delays::fit(lanes.len(), plan.duration.0 / SAMPLED_EVERY.0);
        Ok(Meter {
            sources_at_warmup: vec![0; plan.cbrs.len()],
            senders: overlay::Senders::new(plan),
            writer: TableWriter::new(&options.outputs)?,
            digest: Digest::new(),
            interval: plan.measure.interval,
            next_row: plan.measure.interval.unwrap_or(Time::NEVER),
            next_sample: if sampled { SAMPLED_EVERY } else { Time::NEVER },
            warmup: plan.measure.warmup,
            warmed: plan.measure.warmup == Time::ZERO,
            last: Time::ZERO,
            lanes,
            stops,
            readings: Vec::with_capacity(READ_AHEAD),
            links,
            at_warmup: Vec::new(),
            lanes_of,
            ideal_mbps: Arc::clone(&options.ideal_mbps),
            workload_names: (0..plan.workloads.len())
                .map(|i| (plan.workloads[i].name.clone(), law(i)))
                .collect(),
        })
    }

    /// When something has to be read next.
    pub(super) fn next(&self) -> Time {
        let stop = self.stops.last().map_or(Time::NEVER, |stop| stop.0);
        let read = self.next_row.min(self.next_sample).min(stop);
        if self.warmed { read } else { read.min(self.warmup) }
    }

    /// Reads what is due.
    pub(super) fn tick<E: Engine>(
        &mut self,
        plan: &Plan,
        built: &mut Built<E>,
        watch: Option<&dyn Watch>,
    ) -> Result<(), RunError> {
        let now = built.network.now();
        if now >= self.next_row || (now == plan.duration && self.interval.is_some() && now > self.last) {
            self.rows(plan, built, now, watch)?;
            self.last = now;
            self.next_row = self.interval.map_or(Time::NEVER, |interval| self.next_row + interval);
        }
        if now >= self.next_sample {
            self.sample(plan, built, now);
            self.next_sample += SAMPLED_EVERY;
        }
        while let Some((_, lane)) = self.stops.pop_if(|stop| stop.0 <= now) {
            let lane = &mut self.lanes[lane];
            lane.at_stop = Some(lane.counters(plan, built));
        }
        if !self.warmed && now >= self.warmup {
            self.warmed = true;
            for lane in &mut self.lanes {
                lane.at_warmup = lane.counters(plan, built);
            }
            for (at_warmup, &source) in self.sources_at_warmup.iter_mut().zip(&built.sources) {
                *at_warmup = built.network.read_source(source).arrived_bytes;
            }
            self.senders.warm(built);
            let mut meters = self.links.iter_mut().peekable();
            self.at_warmup.reserve_exact(built.links.len());
            for i in 0..built.links.len() {
                let stats = built.network.with_link(built.links[i], Link::read);
                self.at_warmup.push(Sent::of(&stats));
                let Some(meter) = meters.next_if(|meter| meter.link == i) else { continue };
                // What the read took off the running interval belongs to its row still.
                meter.last.queue_byte_ns += stats.queue_byte_ns;
                meter.last.queue_packet_ns += stats.queue_packet_ns;
                meter.last.queue_max_bytes = meter.last.queue_max_bytes.max(stats.queue_max_bytes);
                meter.last.queue_max_packets = meter.last.queue_max_packets.max(stats.queue_max_packets);
                (meter.byte_ns, meter.packet_ns, meter.max_bytes, meter.max_packets) = (0, 0, 0, 0);
            }
        }
        Ok(())
    }

    /// Samples the round trips of all flows that something arrived of since the last sample.
    fn sample<E: Engine>(&mut self, plan: &Plan, built: &Built<E>, now: Time) {
        for lane in self.lanes.iter_mut().filter(|lane| lane.start < now) {
            let received = lane.counters(plan, built).received;
            if received <= lane.heard {
                continue;
            }
            lane.heard = received;
            let outside = built.network.outside(lane.flow, lane.forward);
            let latest = outside.map_or_else(|| lane.ends(built).0.latest_rtt(), |outside| outside.srtt);
            if now > self.warmup && latest > Time::ZERO {
                lane.rtts.note(latest);
            }
        }
    }

    /// The rows of the interval that ends now.
    fn rows<E: Engine>(
        &mut self,
        plan: &Plan,
        built: &mut Built<E>,
        now: Time,
        watch: Option<&dyn Watch>,
    ) -> Result<(), RunError> {
        let variant = plan.variant.as_deref().unwrap_or_default();
        let span = now - self.last;
        let seconds = span.as_secs_f64();
        let time_s = now.nearest_secs();
        for first in (0..self.lanes.len()).step_by(READ_AHEAD) {
            let lanes = &mut self.lanes[first..];
            self.readings.clear();
            for (i, lane) in lanes.iter().enumerate().take(READ_AHEAD) {
                if lane.lived(self.last, now) {
                    let (sender, receiver) = lane.ends(built);
                    let mut reading = match built.network.outside(lane.flow, lane.forward) {
                        None => Reading::of(i, sender, receiver, now),
                        Some(outside) => Reading::outside(i, &outside),
                    };
                    reading.counters = lane.shared(plan, built, reading.counters);
                    self.readings.push(reading);
                }
            }
            for reading in &self.readings {
                let lane = &mut lanes[reading.lane];
                let counters = reading.counters;
                let row = FlowRow {
                    time_s,
                    flow: &lane.name,
                    rate_mbps: (counters.received - lane.last.received) as f64 * 8e-6 / seconds,
                    goodput_mbps: (counters.delivered - lane.last.delivered) as f64 * 8e-6 / seconds,
                    cwnd_packets: reading.cwnd,
                    rtt_ms: (reading.srtt > Time::ZERO).then(|| reading.srtt.as_millis_f64()),
                    pacing_mbps: reading.pacing.map(|rate| rate.mbps()),
                    in_flight_packets: f64::from(reading.in_flight),
                    retransmissions: counters.retransmissions - lane.last.retransmissions,
                    spending: reading.spending,
                    price: reading.price.map(Price::per_megabyte),
                    seen: lane.seen(plan, built),
                };
                self.digest.word(counters.received);
                self.digest.number(row.cwnd_packets);
                lane.last = counters;
                self.writer.flow(&row)?;
                if let Some(watch) = watch {
                    watch.flow(variant, &row);
                }
            }
        }
        self.senders.rows(plan, built, (self.last, now), (&mut self.writer, &mut self.digest), watch)?;
        overlay::hop_rows(plan, built, &mut self.writer)?;
        self.link_rows(plan, built, now, watch)
    }

    /// A flow of the file that waited for others begins at `at`.
    pub(super) fn flow_begun(&mut self, flow: FlowId, at: Time) {
        let first = self.lanes_of.partition_point(|&(of, _)| of < flow);
        for &(_, lane) in self.lanes_of[first..].iter().take_while(|&&(of, _)| of == flow) {
            self.lanes[lane].start = at;
        }
    }

    /// One end of a flow of the file has had all its data acknowledged.
    pub(super) fn flow_done(&mut self, flow: FlowId, end: End, at: Time) {
        let first = self.lanes_of.partition_point(|&(of, _)| of < flow);
        for &(_, lane) in self.lanes_of[first..].iter().take_while(|&&(of, _)| of == flow) {
            if self.lanes[lane].forward == (end == End::Client) {
                self.lanes[lane].done = Some(at);
            }
        }
    }

    /// A workload's flow is done, or the run is over.
    pub(super) fn workload_flow_done<E: Engine>(
        &mut self,
        built: &Built<E>,
        flow: FlowId,
        running: &Running,
        done: Option<Time>,
    ) -> Result<(), RunError> {
        let [client, server] = [End::Client, End::Server].map(|end| built.network.connection(flow, end));
        let outside = built.network.outside(flow, true);
        let counters = match &outside {
            None => Counters::of(client.stats(), server.stats()),
            Some(outside) => Counters::outside(outside),
        };
        let until = done.unwrap_or(built.network.now());
        let seconds = until.saturating_sub(running.start).nearest_secs();
        let (first, last) = built.network.heard(flow, true, (running.start, until));
        let heard = last.saturating_sub(first).nearest_secs();
        let per_second = |bytes: u64| if heard > 0.0 { bytes as f64 * 8e-6 / heard } else { 0.0 };
        let (workload, law) = &self.workload_names[running.workload];
        let name = format!("{workload}.{}", running.number + 1);
        self.digest.word(counters.received);
        self.digest.word(until.0);
        self.writer.flow_summary(&FlowSummary {
            flow: &name,
            law,
            start_s: running.start.nearest_secs(),
            finish_s: done.map(Time::nearest_secs),
            fct_s: done.map(|_| seconds),
            size_bytes: Some(running.size),
            sent_bytes: outside.map_or(client.stats().bytes_sent, |outside| outside.sent),
            delivered_bytes: counters.delivered,
            goodput_mbps: per_second(counters.delivered),
            rate_mbps: per_second(counters.received),
            ideal_mbps: None,
            share_of_ideal: None,
            retransmissions: counters.retransmissions,
            timeouts: client.stats().timeouts,
            delays: None,
            lost_packets: None,
            seen: seen(&built.network, [flow; 2], true),
        })?;
        Ok(())
    }

    /// Adds the summaries of flows, at the run's end.
    pub(super) fn finish_flows<E: Engine>(
        &mut self,
        plan: &Plan,
        built: &Built<E>,
        workloads: &Generator,
    ) -> Result<(), RunError> {
        let end = built.network.now();
        for lane in &self.lanes {
            let (sender, _) = lane.ends(built);
            let seen = lane.seen(plan, built);
            let outside = built.network.outside(lane.flow, lane.forward);
            let counters = lane.counters(plan, built);
            let flow = &plan.flows[lane.plan_flow];
            // It is the sender's clock that stops a flow.
            let stop = if seen.sent(()).is_none() { Time::NEVER } else { lane.stop };
            let last = lane.done.unwrap_or(end).min(stop).min(end);
            let (first, last) = built.network.heard(lane.receiver, lane.forward, (lane.start, last));
            let seconds = last.saturating_sub(first.max(self.warmup)).as_secs_f64();
            let base = if self.warmed { lane.at_warmup } else { Counters::default() };
            let per_second =
                |now: u64, then: u64| if seconds > 0.0 { (now - then) as f64 * 8e-6 / seconds } else { 0.0 };
            let until = lane.at_stop.filter(|_| stop == lane.stop).unwrap_or(counters);
            let rate_mbps = per_second(until.received, base.received);
            // Of a run that ended before its time it would be the ideal of another one.
            let ideal_mbps =
                self.ideal_mbps.get(lane.plan_flow).and_then(|ways| ways[usize::from(!lane.forward)]);
            let ideal_mbps = ideal_mbps.filter(|_| end == plan.duration);
            self.digest.word(counters.received);
            self.digest.word(counters.retransmissions);
            let size = flow.data.bytes();
            self.writer.flow_summary(&FlowSummary {
                flow: &lane.name,
                law: plan.transports[flow.transport.0 as usize].law.word(),
                start_s: if lane.start == Time::NEVER { end } else { lane.start }.nearest_secs(),
                finish_s: (last < end).then(|| last.nearest_secs()),
                fct_s: match flow.data {
                    data if data.is_endless() => None,
                    // One that was stopped on the way ended without completing.
                    _ if seen == Ends::Sender && lane.done > Some(lane.stop) => None,
                    _ if seen != Ends::Sender && counters.delivered < size.unwrap_or(0) => None,
                    _ => lane.done.map(|done| done.saturating_sub(lane.start).nearest_secs()),
                },
                size_bytes: size,
                sent_bytes: outside.map_or(sender.stats().bytes_sent, |outside| outside.sent),
                delivered_bytes: counters.delivered,
                goodput_mbps: per_second(until.delivered, base.delivered),
                rate_mbps,
                ideal_mbps,
                share_of_ideal: ideal_mbps.filter(|&ideal| ideal > 0.0).map(|ideal| rate_mbps / ideal),
                retransmissions: counters.retransmissions,
                timeouts: sender.stats().timeouts,
                delays: lane.rtts.clone().delays(unloaded_rtt(plan, flow, lane.forward)),
                lost_packets: None,
                seen,
            })?;
        }
        self.finish_sources(plan, built)?;
        let warmup = if self.warmed { self.warmup } else { Time::ZERO };
        let ideal_mbps = if end == plan.duration { self.ideal_mbps.get(plan.flows.len()..) } else { None };
        let ideal_mbps = ideal_mbps.unwrap_or_default();
        self.senders.finish(plan, built, (warmup, ideal_mbps), (&mut self.writer, &mut self.digest))?;
        for (&flow, running) in workloads.running() {
            let is_here = |end| built.network.has(Place::End(flow, end));
            if running.start >= end || !(is_here(End::Client) || is_here(End::Server)) {
                continue;
            }
            self.workload_flow_done(built, flow, running, None)?;
        }
        Ok(())
    }

    /// Adds the summaries of constant-rate sources.
    fn finish_sources<E: Engine>(&mut self, plan: &Plan, built: &Built<E>) -> Result<(), RunError> {
        let end = built.network.now();
        let sources = plan.cbrs.iter().zip(&built.sources).zip(&self.sources_at_warmup);
        for ((cbr, &source), &at_warmup) in sources {
            let stats = built.network.read_source(source);
            let last = cbr.stop.min(end);
            let seconds = last.saturating_sub(cbr.start.max(self.warmup)).as_secs_f64();
            let arrived = (stats.arrived_bytes - at_warmup) as f64;
            let rate_mbps = if seconds > 0.0 { arrived * 8e-6 / seconds } else { 0.0 };
            self.writer.flow_summary(&FlowSummary {
                flow: &cbr.name,
                law: CONSTANT_RATE,
                start_s: cbr.start.nearest_secs(),
                finish_s: (last < end).then(|| last.nearest_secs()),
                sent_bytes: stats.sent_packets * u64::from(cbr.packet_size),
                delivered_bytes: stats.arrived_bytes,
                goodput_mbps: rate_mbps,
                rate_mbps,
                lost_packets: Some(
                    stats.sent_packets.saturating_sub(stats.arrived_packets + stats.in_flight_packets),
                ),
                ..FlowSummary::default()
            })?;
        }
        Ok(())
    }
}

/// Which ends there are here of what goes from the client of the first of these flows to the server of the other, or back.
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

/// How often round trips are sampled, whatever the interval of rows: the summary does not depend on that.
const SAMPLED_EVERY: Time = Time::from_millis(100);
/// What the summary calls the law of a constant-rate source.
const CONSTANT_RATE: &str = "constant-rate";
/// How many flows are read before their rows are written.
const READ_AHEAD: usize = 64;
