//! The two tables that sum up a run: flows and links, variants side by side.

use tollway_scenario::tables::RunResult;

use crate::data::{self, FlowInfo, natural};
use crate::text::{Align, TextTable};

/// Flows and links of one or more variants, for a terminal or a page.
#[derive(Clone, Debug)]
pub struct Overview {
    pub(crate) flows: Vec<TextTable>,
    pub(crate) links: Vec<TextTable>,
}

impl Overview {
    /// Sums up `runs`: up to three variants stand side by side, more beneath each other. More than a dozen flows are given by
    /// group, as least, median and greatest.
    pub fn new(runs: &[RunResult]) -> Overview {
        let blocks: Vec<&[RunResult]> = runs.chunks(SIDE_BY_SIDE).collect();
        Overview {
            flows: blocks.iter().map(|b| flow_table(b)).collect(),
            links: blocks.iter().map(|b| link_table(b)).collect(),
        }
    }

    /// As plain text at most `width` columns wide.
    pub fn to_text(&self, width: usize) -> String {
        let tables = self.flows.iter().chain(&self.links).filter(|t| !t.is_empty());
        let mut text = tables.map(|t| t.print(width)).collect::<Vec<_>>().join("\n");
        if self.links.iter().any(|t| !t.is_empty()) {
            text.push_str(QUEUE_NOTE);
            text.push('\n');
        }
        text
    }
}

fn flow_table(runs: &[RunResult]) -> TextTable {
    let flows: Vec<Vec<FlowInfo>> = runs.iter().map(|r| data::summary(&r.summary, "flow")).collect();
    let mut table = TextTable::new(&head("flow", &["Mb/s", "of ideal", "resent"], runs.len()));
    table.groups(1, 3, runs.iter().map(|r| r.variant.as_str()));
    for label in labels(&flows) {
        let mut row = vec![label.to_string()];
        for all in &flows {
            row.extend([
                label.of(all, "rate_mbps").map_or(DASH.into(), rate),
                label.of(all, "share_of_ideal").map_or(DASH.into(), percent),
                label.of(all, "retransmissions").map_or(DASH.into(), whole),
            ]);
        }
        table.row(row);
    }
    table
}

fn link_table(runs: &[RunResult]) -> TextTable {
    let links: Vec<Vec<FlowInfo>> = runs.iter().map(|r| data::summary(&r.link_summary, "link")).collect();
    let mut names: Vec<&str> = Vec::new();
    for link in links.iter().flatten() {
        // A direction that carries only acknowledgements tells nothing.
        let idle = |l: &FlowInfo| l.get("utilisation") < 0.05 && l.get("drops") == 0.0;
        let all_idle = links.iter().flatten().filter(|l| l.name == link.name).all(idle);
        if !all_idle && !names.contains(&link.name.as_str()) {
            names.push(&link.name);
        }
    }
    // The busiest alone, where there are many.
    let load = |name: &str| {
        let all = links.iter().flatten().filter(|l| l.name == name);
        all.map(|l| l.get("utilisation") + l.get("queue_mean_packets")).fold(0.0, f64::max)
    };
    let hidden = names.len().saturating_sub(MOST_LINKS);
    if hidden > 0 {
        names.sort_by(|a, b| load(b).total_cmp(&load(a)));
        names.truncate(MOST_LINKS);
        names.sort_by_key(|n| natural(n));
    }
    let mut table = TextTable::new(&head("link", &["used", "queue", "peak", "drops"], runs.len()));
    table.groups(1, 4, runs.iter().map(|r| r.variant.as_str()));
    for name in names {
        let mut row = vec![name.to_string()];
        for all in &links {
            let link = all.iter().find(|l| l.name == name);
            let cell = |column: &str, print: fn(f64) -> String| {
                link.map(|l| l.get(column)).filter(|v| !v.is_nan()).map_or(DASH.into(), print)
            };
            row.extend([
                cell("utilisation", percent),
                cell("queue_mean_packets", packets),
                cell("queue_max_packets", packets),
                cell("drops", whole),
            ]);
        }
        table.row(row);
    }
    if hidden > 0 {
        table.row([format!("+ {hidden} less busy")]);
    }
    table
}

fn head<'a>(first: &'a str, columns: &[&'a str], times: usize) -> Vec<(&'a str, Align)> {
    let mut head = vec![(first, Align::Left)];
    for _ in 0..times {
        head.extend(columns.iter().map(|c| (*c, Align::Right)));
    }
    head
}

/// What a row of the flows' table is about.
enum Label {
    One(String),
    /// A group's least, median or greatest, by the part of the sorted values that lies below: 0, ½, 1.
    Of(String, f64),
}

impl Label {
    fn of(&self, flows: &[FlowInfo], column: &str) -> Option<f64> {
        match self {
            Label::One(name) => flows.iter().find(|f| f.name == *name).map(|f| f.get(column)),
            Label::Of(group, part) => {
                let members = flows.iter().filter(|f| group_of(&f.name) == group);
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

/// One row a flow, or where there are more than a dozen, three a group.
fn labels(flows: &[Vec<FlowInfo>]) -> Vec<Label> {
    let mut names: Vec<&str> = Vec::new();
    let mut known = std::collections::HashSet::new();
    for flow in flows.iter().flatten() {
        if known.insert(flow.name.as_str()) {
            names.push(&flow.name);
        }
    }
    if names.len() <= MOST_FLOWS {
        return names.into_iter().map(|n| Label::One(n.to_string())).collect();
    }
    let mut groups: Vec<&str> = names.iter().map(|n| group_of(n)).collect();
    groups.dedup();
    let of = |group: &str| {
        if names.iter().filter(|n| group_of(n) == group).count() == 1 {
            let one = names.iter().find(|n| group_of(n) == group).copied().unwrap_or(group);
            return vec![Label::One(one.to_string())];
        }
        [0.0, 0.5, 1.0].map(|part| Label::Of(group.to_string(), part)).into_iter().collect()
    };
    groups.into_iter().flat_map(of).collect()
}

/// `f` for `f.12`, the name itself for anything without a number at its end.
fn group_of(name: &str) -> &str {
    match name.rsplit_once('.') {
        Some((group, member)) if !member.is_empty() && member.bytes().all(|b| b.is_ascii_digit()) => group,
        _ => name,
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

fn packets(v: f64) -> String {
    if v >= 100.0 || v == 0.0 { format!("{v:.0}") } else { format!("{v:.1}") }
}

fn whole(v: f64) -> String {
    format!("{v:.0}")
}

/// Beneath the links.
pub(crate) const QUEUE_NOTE: &str = "queue: mean over time; peak: most ever; both in packets";
/// In place of what does not exist.
const DASH: &str = "–";
const SIDE_BY_SIDE: usize = 3;
const MOST_FLOWS: usize = 12;
const MOST_LINKS: usize = 8;
