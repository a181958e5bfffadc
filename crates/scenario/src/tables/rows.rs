//! The rows an engine pushes, one struct a table.

use super::columns::Cells;
use super::schema::Table;

/// A flow over one measurement interval: a row of [`Table::Flows`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FlowRow<'a> {
    /// End of the interval, in seconds.
    pub time_s: f64,
    /// The flow's name.
    pub flow: &'a str,
    /// Wire bytes that arrived at the destination, in Mb/s.
    pub rate_mbps: f64,
    /// Payload handed over in order, in Mb/s.
    pub goodput_mbps: f64,
    /// Congestion window at the end of the interval, in packets.
    pub cwnd_packets: f64,
    /// Smoothed round-trip time in milliseconds, once there is a sample.
    pub rtt_ms: Option<f64>,
    /// Pacing rate in Mb/s, if the sender paces.
    pub pacing_mbps: Option<f64>,
    /// Packets sent and neither acknowledged nor held for lost.
    pub in_flight_packets: f64,
    /// Packets sent again in the interval.
    pub retransmissions: u64,
    /// What the sender spends at the end of the interval, $/s, if it spends anything.
    pub spending: Option<f64>,
    /// The price of its path, $/MB, once it is known.
    pub price: Option<f64>,
    /// The ends that were seen, as in [`FlowSummary::seen`].
    pub seen: Ends,
}

/// One direction of a link over one measurement interval: a row of [`Table::Links`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkRow<'a> {
    /// End of the interval, in seconds.
    pub time_s: f64,
    /// The link's name; the other direction ends in `.reverse`.
    pub link: &'a str,
    /// Part of the capacity used, framing included, 0 to 1.
    pub utilisation: f64,
    /// Mean over time of the bytes queued.
    pub queue_mean_bytes: f64,
    /// Most bytes queued.
    pub queue_max_bytes: f64,
    /// Mean over time of the packets queued.
    pub queue_mean_packets: f64,
    /// Most packets queued.
    pub queue_max_packets: f64,
    /// Packets dropped in the interval.
    pub drops: u64,
    /// Packets marked in the interval.
    pub marks: u64,
    /// The price that the link states at the end of the interval, $/MB, if it states one.
    pub price: Option<f64>,
}

/// A control interval of a link's explicit law: a row of [`Table::Control`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ControlRow<'a> {
    /// End of the control interval, in seconds.
    pub time_s: f64,
    /// The link's name.
    pub link: &'a str,
    /// Length of the control interval in milliseconds.
    pub interval_ms: f64,
    /// Aggregate feedback to be given in it, in Mb/s.
    pub feedback_mbps: f64,
    /// The mean round-trip time that the law reckoned with, in milliseconds.
    pub mean_rtt_ms: f64,
    /// The queue that the law took for standing, in bytes.
    pub persistent_queue_bytes: f64,
    /// Packets that carried feedback away.
    pub feedback_count: u64,
    /// Mean of what each of them carried, in packets of its sender's window.
    pub feedback_packets: f64,
}

/// A flow over its whole life: a row of [`Table::Summary`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FlowSummary<'a> {
    /// The flow's name.
    pub flow: &'a str,
    /// Its sender law's name.
    pub law: &'a str,
    /// When it started, in seconds.
    pub start_s: f64,
    /// When it finished or was stopped, in seconds; `None` if it was still running at the end.
    pub finish_s: Option<f64>,
    /// Completion time in seconds of a flow with a size.
    pub fct_s: Option<f64>,
    /// Payload it had to move, in bytes.
    pub size_bytes: Option<u64>,
    /// Wire bytes sent, retransmissions included.
    pub sent_bytes: u64,
    /// Payload handed over in order, in bytes.
    pub delivered_bytes: u64,
    /// Mean goodput in Mb/s from warm-up, or its start if that is later, to its end.
    pub goodput_mbps: f64,
    /// Mean rate on the wire in Mb/s over the same time.
    pub rate_mbps: f64,
    /// What the ideal allocation gives it, in Mb/s.
    pub ideal_mbps: Option<f64>,
    /// Rate over ideal.
    pub share_of_ideal: Option<f64>,
    /// Packets sent again.
    pub retransmissions: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Round trips and queueing delays, sampled every 100 ms.
    pub delays: Option<Delays>,
    /// Packets of a constant-rate source that did not arrive; `None` of a flow, which sends them again.
    pub lost_packets: Option<u64>,
    /// The ends that were seen: what only the other knows has no place in the table, whatever these fields say.
    pub seen: Ends,
}

/// The delays of a flow's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Delays {
    /// Round trips.
    pub rtt: Spread,
    /// Round trips less those over empty queues.
    pub queueing: Spread,
}

/// How delays are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// Their mean, in milliseconds.
    pub mean_ms: f64,
    /// Their median.
    pub p50_ms: f64,
    /// Their 95th percentile.
    pub p95_ms: f64,
    /// Their 99th percentile.
    pub p99_ms: f64,
}

/// Which ends of a flow there are in a run: a process that is one node may have but one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ends {
    /// Both of them.
    #[default]
    Both,
    /// The one whose data these are.
    Sender,
    /// The one that they are for.
    Receiver,
    /// The one that they are for, among others' that a switch elsewhere counts.
    Neither,
}

impl Ends {
    /// `value`, which the sender knows.
    pub fn sent<T>(self, value: T) -> Option<T> {
        matches!(self, Ends::Both | Ends::Sender).then_some(value)
    }

    /// `value`, which the receiver knows.
    pub fn received<T>(self, value: T) -> Option<T> {
        matches!(self, Ends::Both | Ends::Receiver).then_some(value)
    }
}

/// One direction of a link over the whole run: a row of [`Table::LinkSummary`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkSummary<'a> {
    /// The link's name; the other direction ends in `.reverse`.
    pub link: &'a str,
    /// Its rate in Mb/s: the first, if that changes on the way.
    pub capacity_mbps: f64,
    /// Part of the capacity used after warm-up, 0 to 1.
    pub utilisation: f64,
    /// Mean over time of the bytes queued, after warm-up; `None`, as the next three, where the queue was not watched.
    pub queue_mean_bytes: Option<f64>,
    /// Most bytes queued.
    pub queue_max_bytes: Option<f64>,
    /// Mean over time of the packets queued, after warm-up.
    pub queue_mean_packets: Option<f64>,
    /// Most packets queued.
    pub queue_max_packets: Option<f64>,
    /// What the queue can hold, in bytes.
    pub limit_bytes: Option<u64>,
    /// Packets dropped.
    pub drops: u64,
    /// Packets marked.
    pub marks: u64,
}

/// A row that knows its table, and writes its cells in the order of the table's columns.
pub(super) trait Row {
    const TABLE: Table;

    fn write(&self, cells: &mut Cells<'_>);
}

impl Row for FlowRow<'_> {
    const TABLE: Table = Table::Flows;

    fn write(&self, cells: &mut Cells<'_>) {
        cells.number(self.time_s);
        cells.text(self.flow);
        cells.number(self.seen.received(self.rate_mbps));
        cells.number(self.seen.received(self.goodput_mbps));
        cells.number(self.seen.sent(self.cwnd_packets));
        cells.number(self.seen.sent(self.rtt_ms).flatten());
        cells.number(self.seen.sent(self.pacing_mbps).flatten());
        cells.number(self.seen.sent(self.in_flight_packets));
        cells.count(self.seen.sent(self.retransmissions));
        cells.number(self.seen.sent(self.spending).flatten());
        cells.number(self.seen.sent(self.price).flatten());
    }
}

impl Row for LinkRow<'_> {
    const TABLE: Table = Table::Links;

    fn write(&self, cells: &mut Cells<'_>) {
        cells.number(self.time_s);
        cells.text(self.link);
        cells.number(self.utilisation);
        cells.number(self.queue_mean_bytes);
        cells.number(self.queue_max_bytes);
        cells.number(self.queue_mean_packets);
        cells.number(self.queue_max_packets);
        cells.count(self.drops);
        cells.count(self.marks);
        cells.number(self.price);
    }
}

impl Row for ControlRow<'_> {
    const TABLE: Table = Table::Control;

    fn write(&self, cells: &mut Cells<'_>) {
        cells.number(self.time_s);
        cells.text(self.link);
        cells.number(self.interval_ms);
        cells.number(self.feedback_mbps);
        cells.number(self.mean_rtt_ms);
        cells.number(self.persistent_queue_bytes);
        cells.count(self.feedback_count);
        cells.number(self.feedback_packets);
    }
}

impl Row for FlowSummary<'_> {
    const TABLE: Table = Table::Summary;

    fn write(&self, cells: &mut Cells<'_>) {
        cells.text(self.flow);
        cells.text(self.law);
        cells.number(self.start_s);
        cells.number(self.finish_s);
        cells.number(self.fct_s);
        cells.count(self.size_bytes);
        cells.count(self.seen.sent(self.sent_bytes));
        cells.count(self.seen.received(self.delivered_bytes));
        cells.number(self.seen.received(self.goodput_mbps));
        cells.number(self.seen.received(self.rate_mbps));
        cells.number(self.ideal_mbps);
        cells.number(self.seen.received(self.share_of_ideal).flatten());
        cells.count(self.seen.sent(self.retransmissions));
        cells.count(self.seen.sent(self.timeouts));
        let delays = self.seen.sent(self.delays).flatten();
        for spread in [delays.map(|delays| delays.rtt), delays.map(|delays| delays.queueing)] {
            cells.number(spread.map(|spread| spread.mean_ms));
            cells.number(spread.map(|spread| spread.p50_ms));
            cells.number(spread.map(|spread| spread.p95_ms));
            cells.number(spread.map(|spread| spread.p99_ms));
        }
        cells.count(self.lost_packets);
    }
}

impl Row for LinkSummary<'_> {
    const TABLE: Table = Table::LinkSummary;

    fn write(&self, cells: &mut Cells<'_>) {
        cells.text(self.link);
        cells.number(self.capacity_mbps);
        cells.number(self.utilisation);
        cells.number(self.queue_mean_bytes);
        cells.number(self.queue_max_bytes);
        cells.number(self.queue_mean_packets);
        cells.number(self.queue_max_packets);
        cells.count(self.limit_bytes);
        cells.count(self.drops);
        cells.count(self.marks);
    }
}
