//! Summaries by group, for results with too many rows to list.

use std::collections::HashMap;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use serde_json::{Map, Value, json};

use crate::data;
use crate::overview::group_of;
use crate::sizes::quantile;

/// The groups in a summary of flows.
pub(crate) fn flows(batches: &[RecordBatch]) -> Vec<Value> {
    let spreads = ["fct_s", "size_bytes", "goodput_mbps", "rate_mbps", "share_of_ideal", "rtt_mean_ms"];
    let totals = [
        "sent_bytes",
        "delivered_bytes",
        "retransmissions",
        "retransmissions_before",
        "timeouts",
        "timeouts_before",
        "lost_packets",
        "lost_packets_before",
    ];
    of(batches, "flow", &spreads, &totals)
}

/// The groups in a summary of links.
pub(crate) fn links(batches: &[RecordBatch]) -> Vec<Value> {
    let spreads = ["utilisation", "queue_mean_packets", "queue_max_packets", "queue_mean_ms", "wait_p99_ms"];
    of(batches, "link", &spreads, &["drops", "drops_before", "marks", "marks_before"])
}

/// One object per group, in order of their first rows: its number of rows, quantiles of the columns
/// `spreads`, and sums of the columns `totals`. A column without a number in the group is left out.
fn of(batches: &[RecordBatch], key: &str, spreads: &[&str], totals: &[&str]) -> Vec<Value> {
    let mut groups: Vec<Map<String, Value>> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    // Groups, each with a number of successive rows.
    let mut stretches: Vec<(u32, u32)> = Vec::new();
    let mut rows: Vec<usize> = Vec::new();
    for batch in batches {
        let Some(names) = batch.column_by_name(key).and_then(|names| names.as_string_opt::<i32>()) else {
            continue;
        };
        for row in 0..batch.num_rows() {
            let name = group_of(names.value(row));
            let group = known.get(&*name).copied().unwrap_or_else(|| {
                known.insert(name.to_string(), groups.len());
                groups.push([("group".to_owned(), Value::from(&*name))].into_iter().collect());
                rows.push(0);
                groups.len() - 1
            });
            rows[group] += 1;
            match stretches.last_mut() {
                Some((last, rows)) if *last == group as u32 => *rows += 1,
                _ => stretches.push((group as u32, 1)),
            }
        }
    }
    for (group, &rows) in groups.iter_mut().zip(&rows) {
        group.insert(format!("{key}s"), rows.into());
    }
    // One column after the other: a column of a million flows takes 8 MB.
    for column in spreads.iter().chain(totals) {
        let mut values: Vec<Vec<f64>> = rows.iter().map(|&rows| Vec::with_capacity(rows)).collect();
        let mut of_row =
            stretches.iter().flat_map(|&(group, rows)| std::iter::repeat_n(group as usize, rows as usize));
        for batch in batches {
            let groups = of_row.by_ref().take(batch.num_rows());
            let Some(numbers) = data::numbers(batch, column) else {
                groups.for_each(drop);
                continue;
            };
            for (group, number) in groups.zip(numbers).filter(|(_, number)| !number.is_nan()) {
                values[group].push(number);
            }
        }
        for (group, mut values) in groups.iter_mut().zip(values).filter(|(_, values)| !values.is_empty()) {
            let sum: f64 = values.iter().sum();
            let value = if totals.contains(column) { sum.into() } else { spread(&mut values, sum) };
            group.insert((*column).to_owned(), value);
        }
    }
    groups.into_iter().map(Value::Object).collect()
}

fn spread(values: &mut [f64], sum: f64) -> Value {
    values.sort_unstable_by(f64::total_cmp);
    let of = |p| quantile(values, p);
    json!({
        "count": values.len(),
        "mean": sum / values.len() as f64,
        "p50": of(0.5),
        "p95": of(0.95),
        "p99": of(0.99),
        "max": of(1.0),
    })
}

#[cfg(test)]
mod tests {
    use tollway_scenario::tables::{FlowSummary, LinkSummary, Outputs, TableWriter};

    use super::*;

    #[test]
    fn groups_have_counts_quantiles_and_sums_of_their_own() {
        let mut writer = TableWriter::new(&Outputs::memory()).unwrap();
        for i in 1..=100u64 {
            let fct_s = (i <= 20).then_some(i as f64);
            let name = if i % 2 == 0 { format!("even.{i}") } else { format!("odd.{i}") };
            let row =
                FlowSummary { flow: &name, law: "xcp", fct_s, retransmissions: i, ..FlowSummary::default() };
            writer.flow_summary(&row).unwrap();
        }
        for link in ["l.1", "l.1.reverse", "l.2"] {
            writer.link_summary(&LinkSummary { link, drops: 3, ..LinkSummary::default() }).unwrap();
        }
        let result = writer.finish("").unwrap();
        let flows = flows(&result.summary);
        assert_eq!([&flows[0]["group"], &flows[1]["group"]], ["odd", "even"]);
        assert_eq!([&flows[0]["flows"], &flows[1]["flows"]], [50, 50]);
        // The numbers 2, 4, … 20.
        let even = json!({"count": 10, "mean": 11.0, "p50": 10.0, "p95": 20.0, "p99": 20.0, "max": 20.0});
        assert_eq!(flows[1]["fct_s"], even);
        assert_eq!(flows[1]["retransmissions"], 2550.0);
        assert_eq!((flows.len(), flows[0].get("size_bytes")), (2, None));
        let links = links(&result.link_summary);
        assert_eq!(
            (&links[0]["group"], &links[0]["links"], &links[0]["drops"]),
            (&json!("l"), &json!(2), &json!(6.0))
        );
        assert_eq!(links[1]["group"], "l.reverse");
    }
}
