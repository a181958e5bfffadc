//! Time series and summaries from result tables, for claims and plots.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use tollway_scenario::tables::RunResult;

/// One column of a table over time, for one flow or link. A missing number is NaN.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Series {
    pub(crate) name: String,
    /// The ends of the intervals, in seconds.
    pub(crate) times: Vec<f64>,
    pub(crate) values: Vec<f64>,
    /// The usual length of an interval, in seconds: the median step.
    pub(crate) interval: f64,
}

impl Series {
    /// Every interval as (start, end, value). An interval begins at the end of the previous one,
    /// but does not cover a gap.
    pub(crate) fn intervals(&self) -> impl Iterator<Item = (f64, f64, f64)> + '_ {
        self.times.iter().zip(&self.values).enumerate().map(|(i, (&end, &value))| {
            let before = if i == 0 { 0.0 } else { self.times[i - 1] };
            (before.max(end - self.interval * 1.000_001), end, value)
        })
    }

    /// The mean over time within `window`, without missing numbers; NaN if there are none.
    pub(crate) fn mean(&self, window: Window) -> f64 {
        let (mut sum, mut weight) = (0.0, 0.0);
        for (start, end, value) in self.intervals() {
            let overlap = end.min(window.until) - start.max(window.from);
            if overlap > 0.0 && !value.is_nan() {
                sum += overlap * value;
                weight += overlap;
            }
        }
        if weight > 0.0 { sum / weight } else { f64::NAN }
    }

    /// The times and values of the intervals that end in `window`, without missing numbers.
    pub(crate) fn within(&self, window: Window) -> impl Iterator<Item = (f64, f64)> + '_ {
        let inside = move |t: f64| t > window.from + 1e-9 && t <= window.until + 1e-9;
        self.times
            .iter()
            .copied()
            .zip(self.values.iter().copied())
            .filter(move |(t, v)| inside(*t) && !v.is_nan())
    }
}

/// A time window, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Window {
    pub(crate) from: f64,
    pub(crate) until: f64,
}

impl Window {
    pub(crate) fn length(self) -> f64 {
        self.until - self.from
    }
}

/// The slope of `points` (x, y) by least squares; NaN if all have one x.
pub(crate) fn slope(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let (xm, ym) = (points.iter().map(|p| p.0).sum::<f64>() / n, points.iter().map(|p| p.1).sum::<f64>() / n);
    let (mut cov, mut var) = (0.0, 0.0);
    for (x, y) in points {
        cov += (x - xm) * (y - ym);
        var += (x - xm) * (x - xm);
    }
    if var > 0.0 { cov / var } else { f64::NAN }
}

/// A flow's row in the summary.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlowInfo {
    pub(crate) name: String,
    numbers: Numbers,
}

/// The numeric columns of a row.
#[derive(Clone, Debug)]
enum Numbers {
    /// Numbers that come from no table.
    Own(Vec<(&'static str, f64)>),
    /// A row of a batch.
    Row(Arc<RecordBatch>, usize),
}

impl Default for Numbers {
    fn default() -> Numbers {
        Numbers::Own(Vec::new())
    }
}

impl FlowInfo {
    /// A flow with the given numbers.
    pub(crate) fn new(
        name: impl Into<String>,
        numbers: impl IntoIterator<Item = (&'static str, f64)>,
    ) -> FlowInfo {
        FlowInfo { name: name.into(), numbers: Numbers::Own(numbers.into_iter().collect()) }
    }

    /// A numeric column of the summary; NaN for null.
    pub(crate) fn get(&self, column: &str) -> f64 {
        let value = match &self.numbers {
            Numbers::Own(numbers) => {
                numbers.iter().find(|(name, _)| *name == column).map(|(_, value)| *value)
            }
            Numbers::Row(batch, row) => batch.column_by_name(column).and_then(|array| number(array, *row)),
        };
        value.unwrap_or(f64::NAN)
    }

    /// A count over the whole run: of the measured period, and of the time before.
    pub(crate) fn whole(&self, column: &str) -> f64 {
        let before = self.get(&format!("{column}_before"));
        self.get(column) + if before.is_nan() { 0.0 } else { before }
    }

    /// The columns that have a number, with it.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = (&'static str, f64)> + '_ {
        SUMMARY_NUMBERS.iter().map(|&column| (column, self.get(column))).filter(|(_, value)| !value.is_nan())
    }

    pub(crate) fn start(&self) -> f64 {
        let start = self.get("start_s");
        if start.is_nan() { 0.0 } else { start }
    }

    /// The flow's end in seconds; infinite if it did not end.
    pub(crate) fn end(&self) -> f64 {
        let ends = [self.get("finish_s"), self.get("start_s") + self.get("fct_s")];
        ends.into_iter().find(|end| !end.is_nan()).unwrap_or(f64::INFINITY)
    }
}

/// The series of `column` in one table, one per value of its name column (`flow`, `link` or `hop`).
/// They are in natural order of the names (`f.2` before `f.10`).
pub(crate) fn series(batches: &[RecordBatch], column: &str) -> Vec<Series> {
    let mut index: HashMap<String, usize> = HashMap::new();
    let mut all: Vec<Series> = Vec::new();
    for batch in batches {
        let key = ["flow", "link", "hop"].into_iter().find_map(|key| batch.column_by_name(key));
        let (Some(key), Some(times), Some(values)) = (key, numbers(batch, "time_s"), numbers(batch, column))
        else {
            continue;
        };
        let Some(key) = key.as_dictionary_opt::<Int32Type>() else { continue };
        let Some(names) = key.values().as_string_opt::<i32>() else { continue };
        // Keys have the same meaning within a batch, so each name is looked up once per batch.
        let mut slots: Vec<Option<usize>> = vec![None; names.len()];
        for row in 0..batch.num_rows() {
            let k = key.keys().value(row) as usize;
            let slot = *slots[k].get_or_insert_with(|| {
                *index.entry(names.value(k).to_string()).or_insert_with(|| {
                    all.push(Series { name: names.value(k).to_string(), ..Series::default() });
                    all.len() - 1
                })
            });
            all[slot].times.push(times[row]);
            all[slot].values.push(values[row]);
        }
    }
    let interval = usual_interval(&all);
    all.iter_mut().for_each(|s| s.interval = interval);
    all.sort_by_cached_key(|s| natural(&s.name));
    all
}

/// The rows of a summary table in natural order of their names, without constant-rate sources.
pub(crate) fn summary(batches: &[RecordBatch], key: &str) -> Vec<FlowInfo> {
    rows(batches, key, |law| law != CONSTANT_RATE)
}

/// The end of a run's warm-up, s; 0 without one.
pub(crate) fn warmup(run: &RunResult) -> f64 {
    let links = summary(&run.link_summary, "link");
    links.first().map_or(0.0, |link| link.get("from_s")).max(0.0)
}

/// The rows of the constant-rate sources in a summary of flows.
pub(crate) fn sources(batches: &[RecordBatch]) -> Vec<FlowInfo> {
    rows(batches, "flow", |law| law == CONSTANT_RATE)
}

fn rows(batches: &[RecordBatch], key: &str, wanted: impl Fn(&str) -> bool) -> Vec<FlowInfo> {
    let mut rows = Vec::new();
    for batch in batches {
        let laws = batch.column_by_name("law").and_then(|c| c.as_string_opt::<i32>());
        let Some(names) = batch.column_by_name(key).and_then(|c| c.as_string_opt::<i32>()) else { continue };
        let shared = Arc::new(batch.clone());
        for row in (0..batch.num_rows()).filter(|&row| wanted(laws.map_or("", |laws| laws.value(row)))) {
            let numbers = Numbers::Row(Arc::clone(&shared), row);
            rows.push(FlowInfo { name: names.value(row).to_string(), numbers });
        }
    }
    rows.sort_by_cached_key(|r| natural(&r.name));
    rows
}

/// The last instant in any table of `run`, in seconds.
pub(crate) fn duration(run: &RunResult) -> f64 {
    let last = |batches: &[RecordBatch]| {
        batches.last().and_then(|b| numbers(b, "time_s")).and_then(|t| t.last().copied()).unwrap_or(0.0)
    };
    last(&run.flows).max(last(&run.links))
}

/// True if `name` matches `pattern`: `*` stands for any text, and a group name for its members (`f`
/// for `f.1`).
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    if pattern == name || glob(pattern, name).is_some() {
        return true;
    }
    // The member of a group: `f.3` of `f`. The other direction of a link is no member.
    name.strip_prefix(pattern)
        .and_then(|rest| rest.strip_prefix('.'))
        .is_some_and(|rest| !rest.is_empty() && rest.rsplit('.').next() != Some("reverse"))
}

/// The text in `name` for the first `*` of `pattern`; `None` if `name` does not match.
pub(crate) fn glob(pattern: &str, name: &str) -> Option<String> {
    let Some((head, tail)) = pattern.split_once('*') else {
        return (pattern == name).then(String::new);
    };
    let rest = name.strip_prefix(head)?;
    if !tail.contains('*') {
        return rest.strip_suffix(tail).map(str::to_string);
    }
    (0..=rest.len())
        .filter(|&i| rest.is_char_boundary(i))
        .find(|&i| glob(tail, &rest[i..]).is_some())
        .map(|i| rest[..i].to_string())
}

/// A sort key that puts `f.2` before `f.10`.
pub(crate) fn natural(name: &str) -> Vec<(String, u64)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (text, tail) = rest.split_at(digits);
        let end = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        let (number, tail) = tail.split_at(end);
        parts.push((text.to_string(), number.parse().unwrap_or(u64::MAX)));
        rest = tail;
    }
    parts
}

fn usual_interval(all: &[Series]) -> f64 {
    let mut steps: Vec<f64> = all
        .iter()
        .take(64)
        .flat_map(|s| s.times.windows(2).take(256).map(|w| w[1] - w[0]))
        .filter(|d| *d > 0.0)
        .collect();
    if steps.is_empty() {
        return all.iter().flat_map(|s| s.times.first().copied()).fold(0.0, f64::max);
    }
    steps.sort_by(f64::total_cmp);
    steps[steps.len() / 2]
}

/// One number of a column; `None` for null.
fn number(array: &dyn Array, row: usize) -> Option<f64> {
    let there = array.is_valid(row);
    match array.data_type() {
        DataType::Float64 => there.then(|| array.as_primitive::<Float64Type>().value(row)),
        DataType::UInt64 => there.then(|| array.as_primitive::<UInt64Type>().value(row) as f64),
        _ => None,
    }
}

/// A numeric column as floats, with NaN for null.
pub(crate) fn numbers(batch: &RecordBatch, column: &str) -> Option<Vec<f64>> {
    let array = batch.column_by_name(column)?;
    match array.data_type() {
        DataType::Float64 => {
            Some(array.as_primitive::<Float64Type>().iter().map(|v| v.unwrap_or(f64::NAN)).collect())
        }
        DataType::UInt64 => Some(
            array.as_primitive::<UInt64Type>().iter().map(|v| v.map_or(f64::NAN, |v| v as f64)).collect(),
        ),
        _ => None,
    }
}

/// True if the summary of flows has this column of numbers.
pub(crate) fn is_summary_number(column: &str) -> bool {
    SUMMARY_NUMBERS[..FLOW_NUMBERS].contains(&column)
}

/// The numeric columns of the summary of flows.
pub(crate) fn summary_numbers() -> impl Iterator<Item = &'static str> + Clone {
    SUMMARY_NUMBERS[..FLOW_NUMBERS].iter().copied()
}

/// The number of columns in [`SUMMARY_NUMBERS`] that are of flows; the others are of links.
const FLOW_NUMBERS: usize = 33;

/// The law of constant-rate sources in a summary.
const CONSTANT_RATE: &str = "constant-rate";

/// The numeric columns of both summaries.
const SUMMARY_NUMBERS: &[&str] = &[
    "start_s",
    "from_s",
    "finish_s",
    "fct_s",
    "size_bytes",
    "sent_bytes",
    "delivered_bytes",
    "goodput_mbps",
    "rate_mbps",
    "ideal_mbps",
    "share_of_ideal",
    "retransmissions",
    "retransmissions_before",
    "timeouts",
    "timeouts_before",
    "rtt_mean_ms",
    "rtt_p50_ms",
    "rtt_p95_ms",
    "rtt_p99_ms",
    "queueing_mean_ms",
    "queueing_p50_ms",
    "queueing_p95_ms",
    "queueing_p99_ms",
    "delay_mean_ms",
    "delay_p50_ms",
    "delay_p95_ms",
    "delay_p99_ms",
    "jitter_ms",
    "loss_runs",
    "longest_loss_run",
    "late_packets",
    "lost_packets",
    "lost_packets_before",
    "capacity_mbps",
    "utilisation",
    "queue_mean_bytes",
    "queue_max_bytes",
    "queue_mean_packets",
    "queue_max_packets",
    "queue_mean_ms",
    "wait_p50_ms",
    "wait_p95_ms",
    "wait_p99_ms",
    "limit_bytes",
    "drops",
    "marks",
    "queue_max_bytes_before",
    "queue_max_packets_before",
    "drops_before",
    "marks_before",
];

/// A row as an object, with columns in their order.
pub(crate) fn row_as_json(batch: &RecordBatch, row: usize) -> serde_json::Map<String, serde_json::Value> {
    let named = batch.schema_ref().fields().iter().zip(batch.columns());
    named.map(|(field, column)| (field.name().clone(), cell(column, row))).collect()
}

fn cell(column: &dyn Array, row: usize) -> serde_json::Value {
    if column.is_null(row) {
        return serde_json::Value::Null;
    }
    match column.data_type() {
        DataType::Float64 => column.as_primitive::<Float64Type>().value(row).into(),
        DataType::UInt64 => column.as_primitive::<UInt64Type>().value(row).into(),
        DataType::Dictionary(..) => {
            let dictionary = column.as_dictionary::<Int32Type>();
            match (dictionary.key(row), dictionary.values().as_string_opt::<i32>()) {
                (Some(key), Some(names)) => names.value(key).into(),
                _ => serde_json::Value::Null,
            }
        }
        DataType::Utf8 => column.as_string::<i32>().value(row).into(),
        _ => serde_json::Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        assert!(matches("f", "f") && matches("f", "f.1") && matches("f.*", "f.12") && matches("*", "x"));
        assert!(
            !matches("f", "fifo")
                && !matches("f.1", "f.12")
                && !matches("b", "b.reverse")
                && !matches("b", "b.1.reverse")
        );
        assert!(matches("b.reverse", "b.reverse") && matches("*.1", "f.1"));
        assert_eq!(glob("xcp-*", "xcp-1e-3"), Some("1e-3".into()));
        assert_eq!(glob("*-b-*", "a-b-c"), Some("a".into()));
    }

    #[test]
    fn names_sort_as_people_count() {
        let mut names = ["f.10", "f.2", "f.1", "a"];
        names.sort_by_key(|n| natural(n));
        assert_eq!(names, ["a", "f.1", "f.2", "f.10"]);
    }

    #[test]
    fn means_weigh_by_time_and_skip_gaps() {
        let s = Series {
            name: "x".into(),
            times: vec![1.0, 2.0, 3.0, 7.0],
            values: vec![1.0, 2.0, f64::NAN, 4.0],
            interval: 1.0,
        };
        assert!((s.mean(Window { from: 0.5, until: 2.0 }) - (0.5 + 2.0) / 1.5).abs() < 1e-5);
        assert!((s.mean(Window { from: 2.0, until: 7.0 }) - 4.0).abs() < 1e-9);
        assert!(s.mean(Window { from: 4.0, until: 5.0 }).is_nan());
        assert_eq!(s.within(Window { from: 1.0, until: 3.0 }).count(), 1);
    }
}
