//! The rows that an engine pushes, one struct for each table: the only list of the table's columns.

use super::{ColumnKind, ColumnSpec, Table};
use crate::tables::columns::{Cells, Row};

/// Declares the row of a table: a struct with a field for each column, the list of columns, and the
/// writing of cells.
///
/// A column is `FIELD: KIND`, with `from sent` or `from received` if only that end of a flow has
/// the number. A computed column is `COLUMN = VALUE`. Entries after `beside` are fields without a
/// column.
macro_rules! row {
    (@type $life:lifetime number) => { f64 };
    (@type $life:lifetime count) => { u64 };
    (@type $life:lifetime maybe_number) => { Option<f64> };
    (@type $life:lifetime maybe_count) => { Option<u64> };
    (@type $life:lifetime $text:ident) => { &$life str };
    (@kind name) => { ColumnKind::Name };
    (@kind text) => { ColumnKind::Text };
    (@kind count) => { ColumnKind::Count };
    (@kind maybe_count) => { ColumnKind::Count };
    (@kind $($number:ident)?) => { ColumnKind::Number };
    (@nullable $($maybe:ident $end:ident)?) => { true };
    (@nullable maybe_number) => { true };
    (@nullable maybe_count) => { true };
    (@nullable $kind:ident) => { false };
    (@write $rows:ident $cells:ident $name:ident: count) => { $cells.counts($rows.map(|row| row.$name)) };
    (@write $rows:ident $cells:ident $name:ident: maybe_count) => { $cells.counts($rows.map(|row| row.$name)) };
    (@write $rows:ident $cells:ident $name:ident: number) => { $cells.numbers($rows.map(|row| row.$name)) };
    (@write $rows:ident $cells:ident $name:ident: maybe_number) => { $cells.numbers($rows.map(|row| row.$name)) };
    (@write $rows:ident $cells:ident $name:ident: count $end:ident) => {
        $cells.counts($rows.map(|row| row.seen.$end(row.$name)))
    };
    (@write $rows:ident $cells:ident $name:ident: number $end:ident) => {
        $cells.numbers($rows.map(|row| row.seen.$end(row.$name)))
    };
    (@write $rows:ident $cells:ident $name:ident: maybe_number $end:ident) => {
        $cells.numbers($rows.map(|row| row.seen.$end(row.$name).flatten()))
    };
    (@write $rows:ident $cells:ident $name:ident: maybe_count $end:ident) => {
        $cells.counts($rows.map(|row| row.seen.$end(row.$name).flatten()))
    };
    (@write $rows:ident $cells:ident $name:ident: $text:ident) => { $cells.texts($rows.map(|row| row.$name)) };
    (@write $rows:ident $cells:ident $name:ident = $value:expr) => { $cells.numbers($rows.map($value)) };
    (
        $(#[$doc:meta])*
        $row:ident of $table:ident = $columns:ident {
            $($name:ident $(: $kind:ident $(from $end:ident)?)? $(= $value:expr)?, $says:literal;)*
        } $(beside { $($(#[$note:meta])+ $field:ident: $type:ty,)* })?
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub struct $row<'a> {
            $($(#[doc = $says] pub $name: row!(@type 'a $kind),)?)*
            $($($(#[$note])+ pub $field: $type,)*)?
        }

        pub(super) const $columns: &[ColumnSpec] = &[$(ColumnSpec {
            name: stringify!($name),
            kind: row!(@kind $($kind)?),
            nullable: row!(@nullable $($kind $($end)?)?),
            says: $says,
        },)*];

        impl Row for $row<'_> {
            const TABLE: Table = Table::$table;

            fn write(rows: impl Iterator<Item = Self> + Clone, cells: &mut Cells<'_>) {
                $({
                    let rows = rows.clone();
                    row!(@write rows cells $name $(: $kind $($end)?)? $(= $value)?);
                })*
            }
        }
    };
}

row! {
    /// A flow over one measurement interval: a row of [`Table::Flows`].
    FlowRow of Flows = FLOWS {
        time_s: number, "end of the interval";
        flow: name, "the flow";
        rate_mbps: number from received, "rate of arrival at the destination, headers included; null if the receiver is another process \
            (`--node`)";
        goodput_mbps: number from received, "rate of payload delivered in order; data behind a gap count when the gap is filled; null in the \
            same cases";
        cwnd_packets: number from sent, "congestion window at the interval's end; null, like all further columns, if the sender is \
            another process";
        rtt_ms: maybe_number from sent, "smoothed round-trip time";
        pacing_mbps: maybe_number from sent, "pacing rate, if the sender paces";
        in_flight_packets: number from sent, "packets sent and neither acknowledged nor lost";
        retransmissions: count from sent, "packets retransmitted in the interval";
        spending: maybe_number from sent, "the sender's spending at the interval's end, $/s (law `fcp`)";
        price: maybe_number from sent, "price of its path, $/MB (law `fcp`)";
    } beside {
        /// The ends in this process, as in [`FlowSummary::seen`].
        seen: Ends,
    }
}

row! {
    /// One direction of a link over one measurement interval: a row of [`Table::Links`].
    LinkRow of Links = LINKS {
        time_s: number, "end of the interval";
        link: name, "the link; its other direction ends in `.reverse`";
        utilisation: number, "used fraction of the capacity, framing included, 0 to 1";
        queue_mean_bytes: number, "mean over time of the bytes queued";
        queue_max_bytes: number, "most bytes queued";
        queue_mean_packets: number, "mean over time of the packets queued";
        queue_max_packets: number, "most packets queued";
        queue_mean_ms: number, "mean over time of the time to send the queue, ms, at the rate of each instant (replayed traces: by the \
            opportunities that came)";
        drops: count, "packets dropped in the interval";
        marks: count, "packets marked in the interval";
        price: maybe_number, "price of the link at the interval's end, $/MB (law `fcp`)";
    }
}

row! {
    /// A control interval of a link's explicit law: a row of [`Table::Control`].
    ControlRow of Control = CONTROL {
        time_s: number, "end of the control interval";
        link: name, "the link";
        interval_ms: number, "length of the control interval";
        feedback_mbps: number, "aggregate feedback F of the interval";
        mean_rtt_ms: number, "mean round-trip time in the law's calculation";
        persistent_queue_bytes: number, "the law's estimate of the persistent queue";
        feedback_count: count, "packets with feedback";
        feedback_packets: number, "mean feedback of such a packet, as a change of its sender's window";
    }
}

row! {
    /// One direction of an overlay's hop over one measurement interval, at the sending daemon: a
    /// row of [`Table::Hops`].
    HopRow of Hops = HOPS {
        time_s: number, "end of the interval";
        hop: name, "the hop, `FROM-TO`";
        queue_mean_messages: number, "mean over time of the messages queued";
        queue_max_messages: number, "most messages queued";
        price: number, "mean over time of its price, $ per lot";
    }
}

row! {
    /// A flow over its whole lifetime: a row of [`Table::Summary`].
    FlowSummary of Summary = SUMMARY {
        flow: text, "the flow";
        law: text, "its sender law; `constant-rate` for a `[cbr.NAME]`";
        start_s: number, "start time";
        from_s: number, "start of the period that rates, delays, losses and resends cover: the warm-up's end, or the flow's start if \
            that is later or the flow ended before";
        finish_s: maybe_number, "time at which it finished or was stopped; null if it did not";
        fct_s: maybe_number, "flow completion time of a flow with a size";
        size_bytes: maybe_count, "payload to send";
        sent_bytes: count from sent, "wire bytes sent, retransmissions included; null if the sender is another process (`--node`)";
        delivered_bytes: count from received, "payload delivered in order; null if the receiver is another process";
        goodput_mbps: maybe_number from received, "mean goodput from `from_s` to its end; null in the same cases, and without such a time";
        rate_mbps: maybe_number from received, "mean rate on the wire over the same time; null in the same cases";
        ideal_mbps: maybe_number, "rate in the ideal allocation";
        share_of_ideal: maybe_number from received, "rate over ideal";
        retransmissions: count from sent, "packets retransmitted from `from_s` on; null if the sender is another process";
        retransmissions_before: maybe_count from sent, "packets retransmitted before; null also if the flow did not begin before `from_s`";
        timeouts: count from sent, "retransmission timeouts from `from_s` on; null if the sender is another process";
        timeouts_before: maybe_count from sent, "retransmission timeouts before; null in the cases of `retransmissions_before`";
        rtt_mean_ms = |row| Some(row.seen.sent(row.delays).flatten()?.rtt.mean_ms), "mean round trip, sampled every 100 ms after warm-up if data arrived (less often beyond \
            100 samples a flow and 200 000 in all); null, like the next seven columns, without samples";
        rtt_p50_ms = |row| row.seen.sent(row.delays).flatten()?.rtt.p50_ms, "median of the same samples; null, like their other percentiles, with one sample";
        rtt_p95_ms = |row| row.seen.sent(row.delays).flatten()?.rtt.p95_ms, "their 95th percentile";
        rtt_p99_ms = |row| row.seen.sent(row.delays).flatten()?.rtt.p99_ms, "their 99th percentile";
        queueing_mean_ms = |row| Some(row.seen.sent(row.delays).flatten()?.queueing.mean_ms), "mean time in queues: the samples minus propagation and transmission over the path at the packet's time";
        queueing_p50_ms = |row| row.seen.sent(row.delays).flatten()?.queueing.p50_ms, "median of that";
        queueing_p95_ms = |row| row.seen.sent(row.delays).flatten()?.queueing.p95_ms, "its 95th percentile";
        queueing_p99_ms = |row| row.seen.sent(row.delays).flatten()?.queueing.p99_ms, "its 99th percentile";
        delay_mean_ms = |row| Some(row.one_way?.delay.mean_ms), "mean one-way delay of a constant-rate source's packets, from `from_s` on; null, like the \
            next six columns, for flows, without arrivals, and if source and sink are different processes";
        delay_p50_ms = |row| row.one_way?.delay.p50_ms, "median one-way delay, within 1 %";
        delay_p95_ms = |row| row.one_way?.delay.p95_ms, "its 95th percentile";
        delay_p99_ms = |row| row.one_way?.delay.p99_ms, "its 99th percentile";
        jitter_ms = |row| row.one_way?.jitter_ms, "interarrival jitter (RFC 3550), mean over the packets";
        loss_runs = |row| Some(row.one_way?.loss_runs as f64), "runs of successive lost packets";
        longest_loss_run = |row| Some(row.one_way?.longest_loss_run as f64), "packets in the longest run";
        late_packets: maybe_count, "packets with a one-way delay beyond the source's `late`; null without one";
        lost_packets: maybe_count, "dropped packets of a constant-rate source, from `from_s` on (live: packets not arrived at the end); null \
            for flows";
        lost_packets_before: maybe_count, "its packets dropped before; null also if it did not begin before `from_s`";
    } beside {
        /// One-way delays of a constant-rate source.
        one_way: Option<OneWayDelays>,
        /// Round trips and queueing delays, sampled every 100 ms or less often.
        delays: Option<Delays>,
        /// The ends in this process. Columns of the other end are null, whatever these fields hold.
        seen: Ends,
    }
}

row! {
    /// One direction of a link over the whole run: a row of [`Table::LinkSummary`].
    LinkSummary of LinkSummary = LINK_SUMMARY {
        link: text, "the link; its other direction ends in `.reverse`";
        capacity_mbps: number, "its rate: the first, if it changes; the mean of a recording";
        from_s: number, "start of the period that the columns without `_before` cover: the warm-up's end";
        utilisation: number, "used fraction of the capacity";
        queue_mean_bytes: maybe_number, "mean over time of the bytes queued; null for links without rows in `links`";
        queue_max_bytes: maybe_number, "most bytes queued; null in the same cases";
        queue_mean_packets: maybe_number, "mean over time of the packets queued; null in the same cases";
        queue_max_packets: maybe_number, "most packets queued; null in the same cases";
        queue_mean_ms: maybe_number, "mean over time of the time to send the queue, at the rate of each instant (replayed traces: by the \
            opportunities that came); null in the same cases";
        wait_p50_ms: maybe_number, "median of the packets' waiting times, zero ones included, within 1 %; null in the same cases";
        wait_p95_ms: maybe_number, "their 95th percentile; null in the same cases";
        wait_p99_ms: maybe_number, "their 99th percentile; null in the same cases";
        limit_bytes: maybe_count, "limit of the queue; null if it has none in bytes";
        drops: count, "packets dropped";
        marks: count, "packets marked";
        queue_max_bytes_before: maybe_number, "most bytes queued before `from_s`; null like `queue_max_bytes`, and without warm-up";
        queue_max_packets_before: maybe_number, "most packets queued before; null in the same cases";
        drops_before: maybe_count, "packets dropped before; null without warm-up";
        marks_before: maybe_count, "packets marked before; null without warm-up";
    }
}

/// One-way delays and losses of a constant-rate source's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OneWayDelays {
    /// Delays from source to sink.
    pub delay: Percentiles,
    /// Mean interarrival jitter, ms; `None` with one packet.
    pub jitter_ms: Option<f64>,
    /// Runs of successive lost packets.
    pub loss_runs: u64,
    /// Packets in the longest of them.
    pub longest_loss_run: u64,
}

/// The delays of a flow's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Delays {
    /// Round-trip times.
    pub rtt: Percentiles,
    /// Round-trip times in excess of those over empty queues.
    pub queueing: Percentiles,
}

/// The distribution of delays, in milliseconds. One delay has no percentiles.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Percentiles {
    /// Mean, ms.
    pub mean_ms: f64,
    /// Median, ms.
    pub p50_ms: Option<f64>,
    /// 95th percentile, ms.
    pub p95_ms: Option<f64>,
    /// 99th percentile, ms.
    pub p99_ms: Option<f64>,
}

/// The ends of a flow's data in this process. A process that runs one node may have only one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ends {
    /// Both ends.
    #[default]
    Both,
    /// The sender of these data.
    Sender,
    /// The receiver of these data.
    Receiver,
    /// The receiver, but a switch in another process counts this sender's part of its data.
    Neither,
}

impl Ends {
    /// Returns `value`, which only the sender has.
    pub fn sent<T>(self, value: T) -> Option<T> {
        matches!(self, Ends::Both | Ends::Sender).then_some(value)
    }

    /// Returns `value`, which only the receiver has.
    pub fn received<T>(self, value: T) -> Option<T> {
        matches!(self, Ends::Both | Ends::Receiver).then_some(value)
    }
}
