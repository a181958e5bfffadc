//! Summary tables of runs: flows, links and their systems, with variants side by side.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use tollway_scenario::tables::{Keys, RunResult};

use crate::data::{self, FlowInfo, natural};
use crate::sizes::{SizeClass, quantile};
use crate::text::{Align, TextTable, escape, wrap};

/// The summary tables of one or more variants, for a terminal or a page.
#[derive(Clone, Debug)]
pub struct Overview {
    flows: Sheet,
    sources: Sheet,
    completions: Sheet,
    links: Sheet,
    systems: Vec<Sheet>,
}

impl Overview {
    /// Summarises `runs`. Many flows are shown by group, as least, median and greatest. Links
    /// without load, queue and drops are left out.
    pub fn new(runs: &[RunResult]) -> Overview {
        Overview {
            flows: flow_sheet(runs),
            sources: source_sheet(runs),
            completions: completion_sheet(runs),
            links: link_sheet(runs),
            systems: system_sheets(runs),
        }
    }

    /// The tables as plain text of at most `width` columns. Variants stand side by side if they
    /// fit, otherwise one below the other.
    pub fn to_text(&self, width: usize) -> String {
        let mut parts = Vec::new();
        let sheets =
            [&self.flows, &self.sources, &self.completions, &self.links].into_iter().chain(&self.systems);
        for sheet in sheets.filter(|sheet| !sheet.rows.is_empty()) {
            let beside = sheet.beside();
            let table = if beside.natural_width() <= width { beside } else { sheet.beneath() };
            let mut text = table.print(width);
            for line in sheet.notes.iter().flat_map(|note| wrap(note, width)) {
                text.push_str(&line);
                text.push('\n');
            }
            parts.push(text);
        }
        parts.join("\n")
    }

    /// The tables as HTML headings, tables and notes.
    pub(crate) fn to_html(&self) -> String {
        let mut html = String::new();
        let sheets = [
            ("Flows", &self.flows),
            ("Constant-rate sources", &self.sources),
            ("Completion times", &self.completions),
            ("Links", &self.links),
        ];
        let systems = self.systems.iter().map(|sheet| (sheet.of, sheet));
        for (name, sheet) in sheets.into_iter().chain(systems) {
            if sheet.rows.is_empty() {
                continue;
            }
            let table = if sheet.variants.len() <= SIDE_BY_SIDE { sheet.beside() } else { sheet.beneath() };
            html.push_str(&format!("<h2>{name}</h2>\n<div class=\"table\">{}</div>\n", table.to_html()));
            for note in &sheet.notes {
                html.push_str(&format!("<p class=\"subtitle\">{}</p>\n", escape(note)));
            }
        }
        html
    }
}

/// The content of a table, for either placement of variants.
#[derive(Clone, Debug)]
struct Sheet {
    /// The kind of its rows.
    of: &'static str,
    variants: Vec<String>,
    columns: Vec<&'static str>,
    /// For each row its name, and for each variant one cell per column.
    rows: Vec<(String, Vec<Vec<String>>)>,
    /// Explanations of the columns.
    notes: Vec<String>,
}

impl Sheet {
    fn new(
        of: &'static str,
        runs: &[RunResult],
        columns: &[Column],
        rows: Vec<(String, Vec<Vec<String>>)>,
        note: String,
    ) -> Sheet {
        let variants = runs.iter().map(|r| r.variant.clone()).collect();
        Sheet { of, variants, columns: columns.iter().map(|c| c.0).collect(), rows, notes: vec![note] }
    }

    /// A table with one row per name, and the variants side by side.
    fn beside(&self) -> TextTable {
        let mut head = vec![(self.of, Align::Left)];
        for _ in &self.variants {
            head.extend(self.columns.iter().map(|c| (*c, Align::Right)));
        }
        let mut table = TextTable::new(&head);
        table.groups(1, self.columns.len(), self.variants.iter().map(String::as_str));
        for (name, cells) in &self.rows {
            table.row([name].into_iter().chain(cells.iter().flatten()));
        }
        table
    }

    /// A table with one row per name and variant.
    fn beneath(&self) -> TextTable {
        // Without variants both tables are equal.
        if self.variants.iter().all(String::is_empty) {
            return self.beside();
        }
        let mut head = vec![(self.of, Align::Left), ("variant", Align::Left)];
        head.extend(self.columns.iter().map(|c| (*c, Align::Right)));
        let mut table = TextTable::new(&head);
        for (name, cells) in &self.rows {
            for (i, (variant, cells)) in self.variants.iter().zip(cells).enumerate() {
                let name = if i == 0 { name.as_str() } else { "" };
                table.row([name, variant].into_iter().chain(cells.iter().map(String::as_str)));
            }
        }
        table
    }
}

fn flow_sheet(runs: &[RunResult]) -> Sheet {
    let flows: Vec<Vec<FlowInfo>> = runs.iter().map(|r| data::summary(&r.summary, "flow")).collect();
    let labels = labels(&flows);
    let any = |column: &str| flows.iter().flatten().any(|f| !f.get(column).is_nan());
    let mut columns: Vec<Column> = Vec::new();
    let mut notes: Vec<Cow<'_, str>> = Vec::new();
    // Delay comes first, since a rate alone hides the queue behind it.
    if any("rtt_mean_ms") {
        columns.push(("RTT ms", "rtt_mean_ms", millis));
        columns.push(("queued ms", "queueing_mean_ms", millis));
        columns.push(("95 %", "queueing_p95_ms", millis));
        columns.push(("99 %", "queueing_p99_ms", millis));
        notes.push(
            "RTT: mean of samples, usually every 100 ms; queued: RTT minus that of an empty path at the \
            packet's time, mean and percentiles"
                .into(),
        );
    }
    let rates = rate_column(&flows);
    columns.push(rates);
    notes.push(format!("{}: arrived, headers included", rates.0).into());
    if any("share_of_ideal") {
        columns.push(("of ideal", "share_of_ideal", percent));
        notes.push(
            "of ideal: fraction of the flow's max–min fair share, computed anew as flows start and stop"
                .into(),
        );
    }
    if any("fct_s") {
        columns.push(("done in", "fct_s", span));
        notes.push("done in: from the start until all data are acknowledged".into());
    }
    columns.push(("resent", "retransmissions", whole));
    notes.push("resent: packets".into());
    if labels.iter().any(|label| matches!(label, Label::Of(..))) {
        notes.push("least, median, greatest: computed for each column separately".into());
    }
    let mut rows = rows_of(&labels, &columns, &flows);
    let period = Period::of(runs);
    if let Some(name) = period.first() {
        let cells = |all: &Vec<FlowInfo>| {
            let before: Vec<f64> =
                all.iter().map(|f| f.get("retransmissions_before")).filter(|n| !n.is_nan()).collect();
            let resent = if before.is_empty() { DASH.into() } else { whole(before.iter().sum()) };
            columns
                .iter()
                .map(|(head, ..)| if *head == "resent" { resent.clone() } else { DASH.into() })
                .collect()
        };
        rows.push((format!("all, {name}"), flows.iter().map(cells).collect()));
    }
    notes.extend(period.note("flow").map(Cow::from));
    let rows = if flows.iter().all(Vec::is_empty) { Vec::new() } else { rows };
    Sheet::new("flow", runs, &columns, rows, notes.join("; "))
}

fn source_sheet(runs: &[RunResult]) -> Sheet {
    let sources: Vec<Vec<FlowInfo>> = runs.iter().map(|r| data::sources(&r.summary)).collect();
    let labels = labels(&sources);
    let any = |column: &str| sources.iter().flatten().any(|f| !f.get(column).is_nan());
    let mut columns: Vec<Column> = Vec::new();
    let mut notes = Vec::new();
    if any("delay_mean_ms") {
        columns.push(("one-way ms", "delay_mean_ms", millis));
        columns.push(("95 %", "delay_p95_ms", millis));
        columns.push(("99 %", "delay_p99_ms", millis));
        columns.push(("jitter ms", "jitter_ms", millis));
        notes.push(
            "one-way: delay of the packets that arrived, mean and percentiles; jitter: RFC 3550, mean".into(),
        );
    }
    let rates = rate_column(&sources);
    columns.push(rates);
    notes.push(format!("{}: arrived, headers included", rates.0));
    if any("late_packets") {
        columns.push(("late", "late_packets", whole));
        notes.push("late: packets later than the source's `late`".into());
    }
    columns.push(("lost", "lost_packets", whole));
    notes.push("lost: dropped packets, which are not retransmitted".into());
    if any("longest_loss_run") {
        columns.push(("in a row", "longest_loss_run", whole));
        notes.push("in a row: the most of them in succession".into());
    }
    let rows = rows_of(&labels, &columns, &sources);
    notes.extend(Period::of(runs).note("source"));
    Sheet::new("source", runs, &columns, rows, notes.join("; "))
}

/// The column of rates, in a unit that fits the greatest.
fn rate_column(flows: &[Vec<FlowInfo>]) -> Column {
    let rates = flows.iter().flatten().map(|flow| flow.get("rate_mbps"));
    match rates.fold(0.0, f64::max) {
        most if most >= 1e4 => ("Gb/s", "rate_mbps", |mbps| rate(mbps * 1e-3)),
        most if most > 0.0 && most < 1.0 => ("kb/s", "rate_mbps", |mbps| rate(mbps * 1e3)),
        _ => ("Mb/s", "rate_mbps", rate),
    }
}

/// The rows of labels in all variants.
fn rows_of(labels: &[Label], columns: &[Column], flows: &[Vec<FlowInfo>]) -> Vec<(String, Vec<Vec<String>>)> {
    let row = |label: &Label| {
        let cells = |all: &Vec<FlowInfo>| {
            let cell = |(_, column, print): &Column| label.of(all, column).map_or(DASH.into(), print);
            columns.iter().map(cell).collect()
        };
        (label.to_string(), flows.iter().map(cells).collect())
    };
    labels.iter().map(row).collect()
}

/// The warm-up before the measured period, in seconds; differs among variants if `None`.
struct Period(Option<f64>);

impl Period {
    fn of(runs: &[RunResult]) -> Period {
        let mut ends = runs.iter().map(|run| {
            let first = data::summary(&run.link_summary, "link").first().map(|link| link.get("from_s"));
            first.filter(|from| !from.is_nan()).unwrap_or(0.0)
        });
        let first = ends.next().unwrap_or(0.0);
        Period(ends.all(|end| end == first).then_some(first))
    }

    /// The name of the time before the period, if there is any.
    fn first(&self) -> Option<String> {
        match self.0 {
            Some(0.0) => None,
            Some(end) => Some(format!("first {}", span(end))),
            None => Some("warm-up".into()),
        }
    }

    /// The note on what rows of `of` cover.
    fn note(&self, of: &str) -> Option<String> {
        let lives =
            if of == "link" { String::new() } else { format!(", or all of a {of} that ended before") };
        match self.0 {
            Some(0.0) => None,
            Some(end) => Some(format!("rows cover the time from {} on, after the warm-up{lives}", span(end))),
            None => Some(format!("rows cover the time after each variant's warm-up{lives}")),
        }
    }
}

/// Completion times by size, for groups with more flows than can have rows.
fn completion_sheet(runs: &[RunResult]) -> Sheet {
    // By group and size, for each run.
    let mut times: BTreeMap<(String, SizeClass), Vec<Vec<f64>>> = BTreeMap::new();
    let mut flows: HashMap<String, usize> = HashMap::new();
    for (i, run) in runs.iter().enumerate() {
        for flow in data::summary(&run.summary, "flow") {
            let (took, size) = (flow.get("fct_s"), flow.get("size_bytes"));
            if took.is_nan() || size.is_nan() {
                continue;
            }
            let group = group_of(&flow.name).into_owned();
            *flows.entry(group.clone()).or_insert(0) += 1;
            let of_runs = times.entry((group, SizeClass::of(size as u64))).or_default();
            of_runs.resize(runs.len(), Vec::new());
            of_runs[i].push(took);
        }
    }
    times.retain(|(group, _), _| flows[group] > MOST_FLOWS);
    let rows = times.into_iter().map(|((group, class), of_runs)| {
        let cells = |mut times: Vec<f64>| {
            times.sort_by(f64::total_cmp);
            let mean = times.iter().sum::<f64>() / times.len() as f64;
            let print = |time: f64| if time.is_nan() { DASH.into() } else { span(time) };
            // One sample is no percentile.
            let of = |p| print(if times.len() > 1 { quantile(&times, p) } else { f64::NAN });
            vec![times.len().to_string(), print(mean), of(0.5), of(0.95), of(0.99)]
        };
        (format!("{group} {class}"), of_runs.into_iter().map(cells).collect())
    });
    let columns = ["done", "mean", "50 %", "95 %", "99 %"].map(|head| (head, "", whole as fn(f64) -> String));
    let note =
        "done: flows that finished; then the mean and percentiles of their completion times".to_owned();
    Sheet::new("flows of", runs, &columns, rows.collect(), note)
}

fn link_sheet(runs: &[RunResult]) -> Sheet {
    let links: Vec<Vec<FlowInfo>> = runs.iter().map(|r| data::summary(&r.link_summary, "link")).collect();
    // The score of each link in its most loaded variant.
    let mut load: HashMap<&str, f64> = HashMap::new();
    for link in links.iter().flatten() {
        let dropped = f64::from(u8::from(link.get("drops") > 0.0));
        // In a large network, queues of unshared links are not recorded.
        let queue = Some(link.get("queue_mean_packets")).filter(|queue| !queue.is_nan());
        let score = link.get("utilisation") + queue.unwrap_or(0.0) + dropped;
        let best = load.entry(&link.name).or_insert(0.0);
        *best = best.max(score);
    }
    let mut known = HashSet::new();
    let mut names: Vec<&str> =
        links.iter().flatten().map(|link| link.name.as_str()).filter(|name| known.insert(*name)).collect();
    names.sort_by(|a, b| load[b].total_cmp(&load[a]));
    let busy = names.iter().filter(|name| load[*name] >= BUSY).count();
    // If no link is busy, the few busiest are shown.
    names.truncate(if busy == 0 { FEW_LINKS } else { busy.min(MOST_LINKS) });
    names.sort_by_key(|name| natural(name));
    let columns: [Column; 7] = [
        ("used", "utilisation", percent),
        ("queue ms", "queue_mean_ms", millis),
        ("95 %", "wait_p95_ms", millis),
        ("99 %", "wait_p99_ms", millis),
        ("queue", "queue_mean_packets", packets),
        ("peak", "queue_max_packets", packets),
        ("drops", "drops", whole),
    ];
    let period = Period::of(runs);
    let row = |name: &str, columns: &[Option<Column>]| {
        let cells = |all: &Vec<FlowInfo>| {
            let link = all.iter().find(|link| link.name == name);
            let cell = |column: &Option<Column>| {
                let (_, column, print) = column.as_ref()?;
                link.map(|link| link.get(column)).filter(|v| !v.is_nan()).map(print)
            };
            columns.iter().map(|column| cell(column).unwrap_or_else(|| DASH.into())).collect()
        };
        links.iter().map(cells).collect::<Vec<Vec<String>>>()
    };
    let mut rows = Vec::new();
    for name in &names {
        rows.push((name.to_string(), row(name, &columns.map(Some))));
        if let Some(first) = period.first() {
            let before = columns.map(|(head, _, print)| match head {
                "peak" => Some((head, "queue_max_packets_before", print)),
                "drops" => Some((head, "drops_before", print)),
                _ => None,
            });
            rows.push((format!("  {first}"), row(name, &before)));
        }
    }
    let mut notes = vec![
        "used: fraction of capacity; queue ms: time to send the queue at the rate of each instant, mean over \
        time; 95 %, 99 %: percentiles of the packets' waits in ms; queue: its packets, mean over time; peak: most \
        packets; drops: packets"
            .to_string(),
    ];
    notes.extend(period.note("link"));
    let hidden = known.len() - names.len();
    if hidden > 0 {
        let links = if hidden == 1 { "1 link".into() } else { format!("{hidden} links") };
        notes.push(format!("{links} with less traffic: only in the result tables"));
    }
    Sheet { notes, ..Sheet::new("link", runs, &columns, rows, String::new()) }
}

/// The tables of systems, with the rows and columns of all runs.
fn system_sheets(runs: &[RunResult]) -> Vec<Sheet> {
    // The rows and columns of each table, in the order of their names.
    let mut found: BTreeMap<&'static str, (BTreeSet<&Keys>, BTreeSet<&'static str>)> = BTreeMap::new();
    for (table, rows) in runs.iter().flat_map(|run| run.systems.tables()) {
        let (keys, columns) = found.entry(table).or_default();
        keys.extend(rows.keys());
        columns.extend(rows.values().flat_map(|row| row.keys()));
    }
    let sheets = found.into_iter().map(|(of, (keys, columns))| {
        let columns: Vec<&'static str> = columns.into_iter().collect();
        let total = keys.len();
        let row = |keys: &Keys| {
            let name = keys.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(" ");
            let name = if name.is_empty() { "all".to_owned() } else { name };
            let cells = |run: &RunResult| {
                let row =
                    run.systems.tables().find(|(table, _)| *table == of).and_then(|(_, rows)| rows.get(keys));
                let cell = |column: &&'static str| {
                    row.and_then(|row| row.get(column)).map_or(DASH.into(), |value| number(*value))
                };
                columns.iter().map(cell).collect()
            };
            (name, runs.iter().map(cells).collect())
        };
        let rows = keys.into_iter().take(MOST_FLOWS).map(row).collect();
        let more = total.saturating_sub(MOST_FLOWS);
        let notes = if more == 0 { Vec::new() } else { vec![format!("{more} more rows with `--json`")] };
        Sheet { of, variants: runs.iter().map(|r| r.variant.clone()).collect(), columns, rows, notes }
    });
    sheets.collect()
}

/// A column's heading, its name in the result table, and the function that prints its cells.
type Column = (&'static str, &'static str, fn(f64) -> String);

/// The subject of a row in the table of flows.
enum Label {
    One(String),
    /// A group's least, median or greatest value, by the fraction of values below: 0, ½, 1.
    Of(String, f64),
}

impl Label {
    fn of(&self, flows: &[FlowInfo], column: &str) -> Option<f64> {
        match self {
            Label::One(name) => flows.iter().find(|f| f.name == *name).map(|f| f.get(column)),
            Label::Of(group, part) => {
                let members = flows.iter().filter(|f| group_of(&f.name) == *group);
                let mut values: Vec<f64> = members.map(|f| f.get(column)).filter(|v| !v.is_nan()).collect();
                values.sort_by(f64::total_cmp);
                let last = values.len().checked_sub(1)?;
                values.get((part * last as f64).round() as usize).copied()
            }
        }
        .filter(|v| !v.is_nan())
    }
}

impl std::fmt::Display for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Label::One(name) => f.write_str(name),
            Label::Of(group, part) => {
                let word = if *part == 0.0 {
                    "least"
                } else if *part == 1.0 {
                    "greatest"
                } else {
                    "median"
                };
                write!(f, "{group} {word}")
            }
        }
    }
}

/// One row per flow, or three per group if there are many flows.
fn labels(flows: &[Vec<FlowInfo>]) -> Vec<Label> {
    let mut names: Vec<&str> = Vec::new();
    let mut known = HashSet::new();
    for flow in flows.iter().flatten() {
        if known.insert(flow.name.as_str()) {
            names.push(&flow.name);
        }
    }
    if names.len() <= MOST_FLOWS && names.len() * flows.len() <= MOST_ROWS {
        return names.into_iter().map(|n| Label::One(n.to_string())).collect();
    }
    let mut known = HashSet::new();
    let groups: Vec<Cow<'_, str>> =
        names.iter().map(|n| group_of(n)).filter(|group| known.insert(group.clone())).collect();
    let of = |group: Cow<'_, str>| {
        let mut members = names.iter().filter(|n| group_of(n) == group);
        if let (Some(one), None) = (members.next(), members.next()) {
            return vec![Label::One(one.to_string())];
        }
        [0.0, 0.5, 1.0].map(|part| Label::Of(group.to_string(), part)).into_iter().collect()
    };
    groups.into_iter().flat_map(of).collect()
}

/// The group of a flow's name: `f` for `f.12`, `f.reverse` for its reverse direction
/// `f.12.reverse`, and the name itself without a number.
pub(crate) fn group_of(name: &str) -> Cow<'_, str> {
    let (forth, back) = name.strip_suffix(".reverse").map_or((name, ""), |forth| (forth, ".reverse"));
    match forth.rsplit_once('.') {
        Some((group, member)) if !member.is_empty() && member.bytes().all(|b| b.is_ascii_digit()) => {
            if back.is_empty() { group.into() } else { format!("{group}{back}").into() }
        }
        _ => name.into(),
    }
}

fn rate(v: f64) -> String {
    let decimals = if v >= 100.0 {
        1
    } else if v >= 1.0 {
        2
    } else {
        3
    };
    format!("{v:.decimals$}")
}

fn percent(v: f64) -> String {
    format!("{:.1} %", v * 100.0)
}

fn millis(v: f64) -> String {
    let decimals = if v >= 1000.0 {
        0
    } else if v >= 10.0 {
        1
    } else if v >= 0.1 || v == 0.0 {
        2
    } else {
        4
    };
    format!("{v:.decimals$}")
}

fn packets(v: f64) -> String {
    if v >= 100.0 || v == 0.0 { format!("{v:.0}") } else { format!("{v:.1}") }
}

fn whole(v: f64) -> String {
    format!("{v:.0}")
}

/// An integer in full, another number with four digits.
fn number(v: f64) -> String {
    if v.fract() == 0.0 || v.abs() >= 1000.0 {
        return format!("{v:.0}");
    }
    let decimals = if v.abs() >= 100.0 {
        1
    } else if v.abs() >= 10.0 {
        2
    } else {
        4
    };
    format!("{v:.decimals$}")
}

/// A span of time with three digits, in a unit that fits.
fn span(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s >= 1.0 || s == 0.0 => (s, "s"),
        s if s >= 1e-3 => (s * 1e3, "ms"),
        s => (s * 1e6, "µs"),
    };
    let decimals = if value.fract() == 0.0 || value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.decimals$} {unit}")
}

/// The text for a missing value.
const DASH: &str = "–";
const SIDE_BY_SIDE: usize = 3;
const MOST_FLOWS: usize = 12;
/// Flows times variants up to which each flow has a row.
const MOST_ROWS: usize = 60;
const MOST_LINKS: usize = 8;
const FEW_LINKS: usize = 3;
/// Least score of a busy link: half used, with a queue, or with drops.
const BUSY: f64 = 0.5;
