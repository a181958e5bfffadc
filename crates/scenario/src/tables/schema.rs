//! What columns each table has.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_ipc::reader::FileReader;
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use super::{TableError, sound};

/// One of the result tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Table {
    /// A row a flow an interval.
    Flows,
    /// A row a link direction an interval.
    Links,
    /// A row a control interval of an explicit law.
    Control,
    /// A row a flow, at the end.
    Summary,
    /// A row a link direction, at the end.
    LinkSummary,
}

impl Table {
    /// All of them, in the order they are documented in.
    pub const ALL: [Table; 5] =
        [Table::Flows, Table::Links, Table::Control, Table::Summary, Table::LinkSummary];

    /// Its name, which is also its file's, without the ending: `flows`, `links`, `control`, `summary`, `link_summary`.
    pub const fn name(self) -> &'static str {
        match self {
            Table::Flows => "flows",
            Table::Links => "links",
            Table::Control => "control",
            Table::Summary => "summary",
            Table::LinkSummary => "link_summary",
        }
    }

    /// Its columns in order.
    pub const fn columns(self) -> &'static [ColumnSpec] {
        match self {
            Table::Flows => FLOWS,
            Table::Links => LINKS,
            Table::Control => CONTROL,
            Table::Summary => SUMMARY,
            Table::LinkSummary => LINK_SUMMARY,
        }
    }

    /// Its Arrow schema.
    pub fn schema(self) -> SchemaRef {
        let field = |c: &ColumnSpec| Field::new(c.name, c.kind.data_type(), c.nullable);
        Arc::new(Schema::new(self.columns().iter().map(field).collect::<Vec<_>>()))
    }

    /// All batches of the Arrow IPC file at `path`.
    ///
    /// # Errors
    /// The file cannot be opened or read, or has other columns than this table.
    pub fn read_ipc(self, path: &Path) -> Result<Vec<RecordBatch>, TableError> {
        let file = File::open(path).map_err(|e| TableError::io("open", path, e))?;
        self.read_from(BufReader::new(file), path)
    }

    /// The same from elsewhere; errors call it `path`.
    ///
    /// # Errors
    /// It can't be read, or has other columns than this table.
    pub fn read_from(self, mut file: impl Read + Seek, path: &Path) -> Result<Vec<RecordBatch>, TableError> {
        sound::check(&mut file).map_err(|e| TableError::format("read", path, e))?;
        let reader = FileReader::try_new(file, None).map_err(|e| TableError::format("read", path, e))?;
        let (found, wanted) = (reader.schema(), self.schema());
        for field in wanted.fields() {
            let message = match found.field_with_name(field.name()) {
                Err(_) => format!("it has no column `{}`", field.name()),
                Ok(f) if f.data_type() != field.data_type() => {
                    format!(
                        "its column `{}` holds {}, not {}",
                        field.name(),
                        f.data_type(),
                        field.data_type()
                    )
                }
                Ok(_) => continue,
            };
            return Err(TableError::Schema { path: path.to_path_buf(), table: self.name(), message });
        }
        reader.map(|batch| batch.map_err(|e| TableError::format("read", path, e))).collect()
    }
}

/// A column: its name with its unit, and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnSpec {
    /// The name, ending in the unit where there is one.
    pub name: &'static str,
    /// What its cells are.
    pub kind: ColumnKind,
    /// Whether a cell may be missing.
    pub nullable: bool,
    /// One line for people.
    pub says: &'static str,
}

/// What a column's cells are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// A name that comes again and again: a dictionary of UTF-8 under 32-bit keys.
    Name,
    /// A text.
    Text,
    /// A 64-bit float.
    Number,
    /// An unsigned 64-bit count.
    Count,
}

impl ColumnKind {
    /// The Arrow type.
    pub fn data_type(self) -> DataType {
        match self {
            ColumnKind::Name => DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
            ColumnKind::Text => DataType::Utf8,
            ColumnKind::Number => DataType::Float64,
            ColumnKind::Count => DataType::UInt64,
        }
    }
}

const fn name(name: &'static str, says: &'static str) -> ColumnSpec {
    ColumnSpec { name, kind: ColumnKind::Name, nullable: false, says }
}

const fn text(name: &'static str, says: &'static str) -> ColumnSpec {
    ColumnSpec { name, kind: ColumnKind::Text, nullable: false, says }
}

const fn number(name: &'static str, says: &'static str) -> ColumnSpec {
    ColumnSpec { name, kind: ColumnKind::Number, nullable: false, says }
}

const fn count(name: &'static str, says: &'static str) -> ColumnSpec {
    ColumnSpec { name, kind: ColumnKind::Count, nullable: false, says }
}

const fn maybe(column: ColumnSpec) -> ColumnSpec {
    ColumnSpec { nullable: true, ..column }
}

const FLOWS: &[ColumnSpec] = &[
    number("time_s", "end of the interval"),
    name("flow", "the flow"),
    maybe(number(
        "rate_mbps",
        "what arrived at the destination, every header byte counted; null where its receiver is another process (`--node`)",
    )),
    maybe(number(
        "goodput_mbps",
        "payload handed over in order; what lies behind a gap counts when that is filled; null likewise",
    )),
    maybe(number(
        "cwnd_packets",
        "congestion window at the interval's end; null, as all that follows, where its sender is another process",
    )),
    maybe(number("rtt_ms", "smoothed round-trip time")),
    maybe(number("pacing_mbps", "pacing rate, where the sender paces")),
    maybe(number("in_flight_packets", "sent and neither acknowledged nor lost")),
    maybe(count("retransmissions", "packets sent again in the interval")),
    maybe(number("spending", "what the sender spends at the interval's end, $/s (law `fcp`)")),
    maybe(number("price", "price of its path, $/MB (law `fcp`)")),
];

const LINKS: &[ColumnSpec] = &[
    number("time_s", "end of the interval"),
    name("link", "the link; its other direction ends in `.reverse`"),
    number("utilisation", "part of the capacity used, framing included, 0 to 1"),
    number("queue_mean_bytes", "mean over time of the bytes queued"),
    number("queue_max_bytes", "most bytes queued"),
    number("queue_mean_packets", "mean over time of the packets queued"),
    number("queue_max_packets", "most packets queued"),
    count("drops", "packets dropped in the interval"),
    count("marks", "packets marked in the interval"),
    maybe(number("price", "price it states at the interval's end, $/MB (law `fcp`)")),
];

const CONTROL: &[ColumnSpec] = &[
    number("time_s", "end of the control interval"),
    name("link", "the link"),
    number("interval_ms", "length of the control interval"),
    number("feedback_mbps", "aggregate feedback F to be given in it"),
    number("mean_rtt_ms", "mean round-trip time that the law reckoned with"),
    number("persistent_queue_bytes", "queue that the law took for standing"),
    count("feedback_count", "packets that carried feedback away"),
    number("feedback_packets", "mean of what each of them carried, as a change of its sender's window"),
];

const SUMMARY: &[ColumnSpec] = &[
    text("flow", "the flow"),
    text("law", "its sender law; `constant-rate` for a `[cbr.NAME]`"),
    number("start_s", "when it started"),
    maybe(number("finish_s", "when it finished or was stopped; null if it did not")),
    maybe(number("fct_s", "flow completion time of a flow with a size")),
    maybe(count("size_bytes", "payload it had to move")),
    maybe(count(
        "sent_bytes",
        "wire bytes sent, retransmissions included; null where its sender is another process (`--node`)",
    )),
    maybe(count(
        "delivered_bytes",
        "payload handed over in order; null where its receiver is another process",
    )),
    maybe(number("goodput_mbps", "mean goodput from warm-up or its start to its end; null likewise")),
    maybe(number("rate_mbps", "mean rate on the wire over the same time; null likewise")),
    maybe(number("ideal_mbps", "what the ideal allocation gives it")),
    maybe(number("share_of_ideal", "rate over ideal")),
    maybe(count("retransmissions", "packets sent again; null where its sender is another process")),
    maybe(count("timeouts", "retransmission timeouts; null likewise")),
    maybe(number(
        "rtt_mean_ms",
        "mean round trip, sampled every 100 ms after warm-up if something arrived; null, as the next seven, without samples",
    )),
    maybe(number("rtt_p50_ms", "median of the same samples")),
    maybe(number("rtt_p95_ms", "their 95th percentile")),
    maybe(number("rtt_p99_ms", "their 99th percentile")),
    maybe(number(
        "queueing_mean_ms",
        "mean of the samples less propagation and transmission over the path as the file has it at first: time in queues",
    )),
    maybe(number("queueing_p50_ms", "median of that")),
    maybe(number("queueing_p95_ms", "its 95th percentile")),
    maybe(number("queueing_p99_ms", "its 99th percentile")),
    maybe(count("lost_packets", "packets of a constant-rate source that did not arrive; null for flows")),
];

const LINK_SUMMARY: &[ColumnSpec] = &[
    text("link", "the link; its other direction ends in `.reverse`"),
    number("capacity_mbps", "its rate: the first, if that changes on the way; a recording's mean"),
    number("utilisation", "part of the capacity used after warm-up"),
    maybe(number(
        "queue_mean_bytes",
        "mean over time of the bytes queued; null for links that `links` leaves out",
    )),
    maybe(number("queue_max_bytes", "most bytes queued; null likewise")),
    maybe(number("queue_mean_packets", "mean over time of the packets queued; null likewise")),
    maybe(number("queue_max_packets", "most packets queued; null likewise")),
    maybe(count("limit_bytes", "what the queue can hold; null if it has no limit in bytes")),
    count("drops", "packets dropped, warm-up included"),
    count("marks", "packets marked, warm-up included"),
];
