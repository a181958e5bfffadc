//! Measurement of flows, by interval.

use tollway_law::sender::{SenderLaw as _, Spender};
use tollway_law::{Price, Time};
use tollway_proto::transport::Connection;
use tollway_sim::{End, FlowId};

use super::{Meter, seen};
use crate::plan::{Flow, Plan};
use crate::run::build::sessions::ReceiverShare;
use crate::run::build::{Built, overlay};
use crate::run::delays::{Samples, Way};
use crate::run::engine::{Engine, Outside};
use crate::run::{RunError, Watch};
use crate::tables::{Ends, FlowRow, FlowSummary};

/// One direction of data of a flow.
pub(super) struct FlowMeter {
    pub(super) flow: FlowId,
    /// The flow of the sender; another flow for a receiver of copies.
    pub(super) sender: FlowId,
    /// The flow of the receiver; another flow for a session's senders to one receiver.
    pub(super) receiver: FlowId,
    /// Its index in the plan.
    pub(super) plan_flow: u32,
    /// The name of data from server to client; `None` for the other direction.
    #[expect(clippy::box_collection, reason = "a `Box<str>` takes 8 bytes more a flow")]
    pub(super) reverse: Option<Box<String>>,
    /// This sender's part of that receiver's data, if there are other senders.
    pub(super) share: Option<Box<ReceiverShare>>,
    pub(super) start: Time,
    /// [`Time::NEVER`] until the flow is done.
    pub(super) done: Time,
    /// Number of samples of its round trip.
    pub(super) samples: u32,
    /// Bytes received at the last sample.
    pub(super) heard: u64,
    /// Counters at the flow's stop; later arrivals were in flight, and count in no rate.
    pub(super) at_stop: Option<Box<Counters>>,
}

// A run has at least as many of these as flows.
const _: () = assert!(size_of::<FlowMeter>() == 72);

#[derive(Clone, Copy, Default)]
pub(super) struct Counters {
    pub(super) received: u64,
    pub(super) delivered: u64,
    pub(super) retransmissions: u64,
    pub(super) timeouts: u64,
}

/// One direction of a flow over the whole run, as far as its ends know.
#[derive(Clone, Copy)]
pub(super) struct Figures {
    pub(super) seen: Ends,
    pub(super) counters: Counters,
    sent_bytes: u64,
    /// The part of its span in which it ran.
    pub(super) heard: (Time, Time),
}

impl Figures {
    /// The figures of a flow's data, with the flows of its sender and receiver, in `span`.
    pub(super) fn of<E: Engine>(
        built: &Built<E>,
        [flow, sender, receiver]: [FlowId; 3],
        forward: bool,
        span: (Time, Time),
    ) -> Figures {
        let client = built.network.connection(sender, End::Client);
        let server = built.network.connection(receiver, End::Server);
        let (from, to) = if forward { (client, server) } else { (server, client) };
        let outside = built.network.outside(flow, forward);
        Figures {
            seen: seen(&built.network, [sender, receiver], forward),
            counters: outside.as_ref().map_or_else(|| Counters::of(from, to), Counters::outside),
            sent_bytes: outside.map_or(from.stats().bytes_sent, |outside| outside.sent),
            heard: built.network.heard(receiver, forward, span),
        }
    }

    /// The columns of the summary that need no more.
    pub(super) fn summary(&self) -> FlowSummary<'static> {
        FlowSummary {
            sent_bytes: self.sent_bytes,
            delivered_bytes: self.counters.delivered,
            retransmissions: self.counters.retransmissions,
            timeouts: self.counters.timeouts,
            seen: self.seen,
            ..FlowSummary::default()
        }
    }
}

impl FlowMeter {
    pub(super) fn plan<'a>(&self, plan: &'a Plan) -> &'a Flow {
        &plan.flows[self.plan_flow as usize]
    }

    #[inline]
    pub(super) fn name<'a>(&'a self, plan: &'a Plan) -> &'a str {
        self.reverse.as_deref().map_or(&self.plan(plan).name, String::as_str)
    }

    /// Returns true if its data go from client to server.
    #[inline]
    pub(super) fn forward(&self) -> bool {
        self.reverse.is_none()
    }

    #[inline]
    pub(super) fn ends<'a, E: Engine>(&self, built: &'a Built<E>) -> (&'a Connection, &'a Connection) {
        let client = built.network.connection(self.sender, End::Client);
        let server = built.network.connection(self.receiver, End::Server);
        if self.forward() { (client, server) } else { (server, client) }
    }

    #[inline]
    pub(super) fn counters<E: Engine>(&self, plan: &Plan, built: &Built<E>) -> Counters {
        if let Some(outside) = built.network.outside(self.flow, self.forward()) {
            return Counters::outside(&outside);
        }
        let (sender, receiver) = self.ends(built);
        self.shared(plan, built, Counters::of(sender, receiver))
    }

    /// The counters without data of other senders to the same receiver.
    #[inline]
    fn shared<E: Engine>(&self, plan: &Plan, built: &Built<E>, counters: Counters) -> Counters {
        let Some(share) = &self.share else { return counters };
        let (received, delivered) = share.bytes(plan, built);
        Counters { received, delivered, ..counters }
    }

    /// The ends that this process runs.
    #[inline]
    pub(super) fn seen<E: Engine>(&self, plan: &Plan, built: &Built<E>) -> Ends {
        let seen = seen(&built.network, [self.sender, self.receiver], self.forward());
        match (&self.share, seen) {
            (Some(share), Ends::Receiver) if !share.is_counted(plan, built) => Ends::Neither,
            _ => seen,
        }
    }

    /// The figures of the whole run, which ends now.
    pub(super) fn figures<E: Engine>(&self, plan: &Plan, built: &Built<E>) -> Figures {
        let seen = self.seen(plan, built);
        // The sender's clock stops a flow.
        let stop = if seen.sent(()).is_none() { Time::NEVER } else { self.plan(plan).stop };
        let span = (self.start, self.done.min(stop).min(built.network.now()));
        let flows = [self.flow, self.sender, self.receiver];
        Figures {
            seen,
            counters: self.counters(plan, built),
            ..Figures::of(built, flows, self.forward(), span)
        }
    }

    /// Returns true if the flow was active since `last`.
    #[inline]
    fn lived(&self, last: Time, now: Time) -> bool {
        self.start < now && self.done > last
    }

    /// Records the latest round trip if something has arrived since the last sample.
    #[inline(always)]
    fn sample(
        &mut self,
        plan: &Plan,
        (now, received, latest): (Time, u64, Time),
        into: Option<(&mut Samples, usize)>,
    ) {
        if received > self.heard {
            self.heard = received;
            if let Some((samples, lane)) = into
                && latest > Time::ZERO
            {
                let (flow, forward) = (self.plan(plan), self.forward());
                samples.note(lane, &mut self.samples, latest, |settings| {
                    settings.unloaded(plan, Way::of(plan, flow, forward), now.saturating_sub(latest), latest)
                });
            }
        }
    }

    /// The bytes received so far and the latest round trip, as [`sample`](FlowMeter::sample) takes
    /// them.
    #[inline(always)]
    fn heard_now<E: Engine>(&self, plan: &Plan, built: &Built<E>) -> (u64, Time) {
        let outside = built.network.outside(self.flow, self.forward());
        if outside.is_some() || self.share.is_some() {
            let latest = outside.map_or_else(|| self.ends(built).0.latest_rtt(), |outside| outside.srtt);
            return (self.received(plan, built), latest);
        }
        let (sender, receiver) = self.ends(built);
        (receiver.bytes_received(), sender.latest_rtt())
    }

    /// The bytes received that are not those of one receiver alone.
    #[cold]
    fn received<E: Engine>(&self, plan: &Plan, built: &Built<E>) -> u64 {
        self.counters(plan, built).received
    }

    /// The row of an interval of `seconds` that ends now, without its name, and the latest round
    /// trip. A row that is not `full` has a rate and a window. Updates the counters of the last
    /// row.
    #[inline]
    fn read<E: Engine>(
        &self,
        plan: &Plan,
        built: &Built<E>,
        last: &mut Counters,
        (now, seconds, full): (Time, f64, bool),
    ) -> (FlowRow<'static>, Time) {
        let (sender, receiver) = self.ends(built);
        let outside = built.network.outside(self.flow, self.forward());
        let counters = match &outside {
            None => Counters::of(sender, receiver),
            Some(outside) => Counters::outside(outside),
        };
        let counters = self.shared(plan, built, counters);
        let mut row = FlowRow {
            rate_mbps: (counters.received - last.received) as f64 * 8e-6 / seconds,
            cwnd_packets: outside.as_ref().map_or_else(|| sender.cwnd(), |outside| outside.cwnd),
            seen: self.seen(plan, built),
            ..FlowRow::default()
        };
        let srtt = outside.as_ref().map_or_else(|| sender.srtt(), |outside| outside.srtt);
        if full {
            row.goodput_mbps = (counters.delivered - last.delivered) as f64 * 8e-6 / seconds;
            row.retransmissions = counters.retransmissions - last.retransmissions;
            row.rtt_ms = (srtt > Time::ZERO).then(|| srtt.as_millis_f64());
            match &outside {
                None => {
                    row.in_flight_packets = f64::from(sender.in_flight());
                    row.pacing_mbps = sender.pacing_rate(now).map(|rate| rate.mbps());
                    if let Some(spender) = sender.law().spender() {
                        row.spending = Some(Spender::spending(spender));
                        row.price = Spender::price(spender).map(Price::per_megabyte);
                    }
                }
                Some(outside) => row.in_flight_packets = f64::from(outside.in_flight),
            }
        }
        *last = counters;
        let latest = if outside.is_none() { sender.latest_rtt() } else { srtt };
        (row, latest)
    }
}

impl Counters {
    pub(super) fn outside(flow: &Outside) -> Counters {
        let Outside { received, delivered, retransmissions, .. } = *flow;
        Counters { received, delivered, retransmissions, timeouts: 0 }
    }

    #[inline]
    pub(super) fn of(sender: &Connection, receiver: &Connection) -> Counters {
        let received = receiver.stats();
        Counters {
            received: received.bytes_received,
            delivered: received.bytes_delivered,
            retransmissions: sender.stats().retransmissions,
            timeouts: sender.stats().timeouts,
        }
    }
}

impl Meter {
    /// Samples the round trips of all flows with arrivals since the last sample.
    pub(super) fn sample<E: Engine>(&mut self, plan: &Plan, built: &Built<E>, now: Time) {
        let warm = now > self.warmup;
        let mut heard = Vec::with_capacity(READ_AHEAD);
        for (chunk, lanes) in self.lanes.chunks_mut(READ_AHEAD).enumerate() {
            heard.clear();
            heard.extend(lanes.iter().map(|lane| (lane.start < now).then(|| lane.heard_now(plan, built))));
            for (i, (lane, heard)) in lanes.iter_mut().zip(&heard).enumerate() {
                if let &Some((received, latest)) = heard {
                    let into = warm.then_some((&mut self.samples, chunk * READ_AHEAD + i));
                    lane.sample(plan, (now, received, latest), into);
                }
            }
        }
    }

    /// Writes the rows of the interval that ends now; also [samples](Meter::sample) if that is due.
    pub(super) fn rows<E: Engine>(
        &mut self,
        plan: &Plan,
        built: &mut Built<E>,
        (now, samples): (Time, bool),
        watch: Option<&dyn Watch>,
    ) -> Result<(), RunError> {
        let variant = plan.variant.as_deref().unwrap_or_default();
        let (seconds, time_s) = ((now - self.last).as_secs_f64(), now.nearest_secs());
        let warm = now > self.warmup;
        let full = watch.is_some() || !self.writer.keeps_rates_only();
        let mut rows: Vec<FlowRow<'_>> = Vec::with_capacity(READ_AHEAD);
        let counters = self.at_row.chunks_mut(READ_AHEAD);
        for (chunk, (lanes, counters)) in self.lanes.chunks_mut(READ_AHEAD).zip(counters).enumerate() {
            rows.clear();
            for (i, (lane, counters)) in lanes.iter_mut().zip(counters).enumerate() {
                let into = warm.then_some((&mut self.samples, chunk * READ_AHEAD + i));
                if lane.lived(self.last, now) {
                    let (row, latest) = lane.read(plan, built, counters, (now, seconds, full));
                    self.digest.word(counters.received);
                    self.digest.number(row.cwnd_packets);
                    if samples {
                        lane.sample(plan, (now, counters.received, latest), into);
                    }
                    rows.push(FlowRow { time_s, flow: lane.name(plan), ..row });
                } else if samples && lane.start < now {
                    let (received, latest) = lane.heard_now(plan, built);
                    lane.sample(plan, (now, received, latest), into);
                }
            }
            self.writer.flows(&rows)?;
            if let Some(watch) = watch {
                rows.iter().for_each(|row| watch.flow(variant, row));
            }
        }
        self.senders.rows(plan, built, (self.last, now), (&mut self.writer, &mut self.digest), watch)?;
        overlay::hop_rows(plan, built, &mut self.writer)?;
        self.link_rows(plan, built, now, watch)
    }
}

/// Number of flows read before their rows are written. Flows are rarely in a cache; a loop that
/// only reads lets the processor wait for several at once.
const READ_AHEAD: usize = 64;
