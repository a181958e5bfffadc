//! Verdicts on random networks as text, as JSON, and as numbers for claims.

use std::fmt::Write;

use serde_json::{Value, json};
use tollway_scenario::tables::SystemTables;

use super::starts::MOST_LOST;
use super::{Bounds, Case, Kind, Rest, Verified};
use crate::text::{Align, TextTable};

impl Verified {
    /// The worst network, by its worst flow or by its losses; `None` without networks.
    pub fn worst(&self) -> Option<&Case> {
        let outside = |case: &Case| match &case.rest {
            Some(rest) => (rest.deviation.abs(), 0.0),
            None => (case.lost, case.peak_queue_ms),
        };
        self.cases.iter().max_by(|a, b| {
            let (a, b) = (outside(a), outside(b));
            a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
        })
    }

    /// True if all networks meet all requirements.
    pub fn within(&self) -> bool {
        self.cases.iter().all(|case| case.problems.is_empty())
    }

    /// Fills the table `random`, or `starts`, by law.
    pub fn report(&self, tables: &mut SystemTables) {
        let table = match self.verify.kind {
            Kind::Steady => "random",
            Kind::Starts => "starts",
        };
        for (column, number) in self.numbers() {
            tables.set(table, &[("law", self.verify.law)], column, number);
        }
    }

    fn numbers(&self) -> Vec<(&'static str, f64)> {
        let most = |of: &dyn Fn(&Case) -> f64| self.cases.iter().map(of).fold(0.0, f64::max);
        let mut numbers = vec![
            ("networks", self.cases.len() as f64),
            ("outside", self.cases.iter().filter(|case| !case.problems.is_empty()).count() as f64),
            ("lost", most(&|case| case.lost)),
            ("peak_queue_ms", most(&|case| case.peak_queue_ms)),
        ];
        match self.verify.kind {
            Kind::Steady => {
                let rest = || self.cases.iter().filter_map(|case| case.rest.as_ref());
                let most = |of: &dyn Fn(&Rest) -> f64| rest().map(of).fold(0.0, f64::max);
                numbers.extend([
                    ("flows", rest().map(|rest| rest.judged as f64).sum()),
                    ("worst", most(&|rest| rest.deviation.abs())),
                    ("worst_balance", most(&|rest| rest.balance.unwrap_or(0.0).abs())),
                    ("queue_ms", most(&|rest| rest.queue_ms)),
                    ("drops", rest().map(|rest| rest.drops).sum()),
                ]);
            }
            Kind::Starts => numbers.extend([
                ("lossless", self.lossless() as f64 / self.cases.len().max(1) as f64),
                ("peak_queue_bdp", most(&|case| case.peak_queue_bdp.unwrap_or(0.0))),
            ]),
        }
        numbers
    }

    /// Number of networks that lose no more than [`MOST_LOST`] of their packets.
    fn lossless(&self) -> usize {
        self.cases.iter().filter(|case| case.lost <= MOST_LOST).count()
    }

    /// The verdicts as one JSON object.
    pub fn to_json(&self) -> Value {
        let steady = self.verify.kind == Kind::Steady;
        json!({
            "law": self.verify.law,
            "starts": !steady,
            "aim": steady.then(|| self.verify.aim.name()),
            "networks": self.cases.len(),
            "seed": self.verify.seed,
            "tolerance": steady.then(|| Bounds::of(self.verify.aim).tolerance),
            "within": self.within(),
            "worst": self.worst().map(Case::to_json),
            "cases": self.cases.iter().map(Case::to_json).collect::<Vec<_>>(),
        })
    }

    /// A summary, with a row for each failing network, in at most `width` columns.
    pub fn to_text(&self, width: usize) -> String {
        let mut text = String::new();
        let failing: Vec<&Case> = self.cases.iter().filter(|case| !case.problems.is_empty()).collect();
        if !failing.is_empty() {
            let columns =
                [("seed", Align::Right), ("bound not met", Align::Left), ("possible reason", Align::Left)];
            let remarked = failing.iter().any(|case| !case.remarks.is_empty());
            let mut table = TextTable::new(&columns[..if remarked { 3 } else { 2 }]);
            for case in &failing {
                table.row([case.seed.to_string(), case.problems.join("; "), case.remarks.join("; ")]);
            }
            text.push_str(&table.print(width));
            text.push('\n');
        }
        let networks = self.cases.len();
        let _ = write!(text, "{networks} network{}, ", if networks == 1 { "" } else { "s" });
        let outside = failing.len();
        let _ = match self.verify.kind {
            Kind::Steady => {
                let flows: usize =
                    self.cases.iter().filter_map(|case| Some(case.rest.as_ref()?.judged)).sum();
                let tolerance = 100.0 * Bounds::of(self.verify.aim).tolerance;
                let verdict = if outside == 0 {
                    format!("all within {tolerance:.0} %")
                } else {
                    format!("{outside} not within bounds")
                };
                writeln!(text, "{flows} flows compared with {}: {verdict}", self.verify.aim.title())
            }
            Kind::Starts => writeln!(
                text,
                "flows starting and stopping: {} lose at most {} %, {outside} not within bounds",
                self.lossless(),
                100.0 * MOST_LOST
            ),
        };
        if let Some((worst, rest)) = self.worst().and_then(|case| Some((case, case.rest.as_ref()?))) {
            let percent = 100.0 * rest.deviation;
            let _ = writeln!(text, "worst: {percent:+.1} %, flow {} of network {}", rest.flow, worst.seed);
        }
        text.push_str(&self.peaks());
        if let Some(first) = failing.first() {
            let starts = if self.verify.kind == Kind::Starts { " --starts" } else { "" };
            let _ = writeln!(
                text,
                "write one of them to a file: tollway verify{starts} --law {} --random 1 --seed {} --keep DIR",
                self.verify.law, first.seed
            );
        }
        text
    }

    /// The greatest loss and the longest queue, as lines of text.
    fn peaks(&self) -> String {
        let mut text = String::new();
        if let Some(case) = self.cases.iter().max_by(|a, b| a.lost.total_cmp(&b.lost)) {
            let _ = match case.lost > 0.0 {
                true => {
                    writeln!(text, "most packets lost: {:.2} %, network {}", 100.0 * case.lost, case.seed)
                }
                false => writeln!(text, "no packets lost"),
            };
        }
        let queue = |case: &Case| case.peak_queue_bdp.unwrap_or(case.peak_queue_ms);
        if let Some(case) = self.cases.iter().max_by(|a, b| queue(a).total_cmp(&queue(b))) {
            let long = match case.peak_queue_bdp {
                Some(bdp) => format!("{bdp:.2} BDP"),
                None => format!("{:.1} ms", case.peak_queue_ms),
            };
            let _ = writeln!(text, "longest queue: {long}, link {} of network {}", case.peak_link, case.seed);
        }
        text
    }
}

impl Case {
    fn to_json(&self) -> Value {
        let rest = |of: fn(&Rest) -> Value| self.rest.as_ref().map(of);
        json!({
            "seed": self.seed,
            "links": self.links,
            "flows": self.flows,
            "judged": rest(|rest| json!(rest.judged)),
            "deviation": rest(|rest| json!(rest.deviation)),
            "flow": rest(|rest| json!(rest.flow)),
            "utilisation": rest(|rest| json!(rest.utilisation)),
            "drops": rest(|rest| json!(rest.drops)),
            "queue_ms": rest(|rest| json!(rest.queue_ms)),
            "balance": rest(|rest| json!(rest.balance)),
            "changes": self.changes.map(|changes| json!({
                "joined": changes.joined,
                "settled": changes.settled,
                "resumed": changes.resumed,
                "filled": changes.filled,
                "overshoot_bdp": changes.overshoot,
                "standing_bdp": changes.standing,
                "drops": changes.drops,
            })),
            "lost": self.lost,
            "peak_queue_ms": self.peak_queue_ms,
            "peak_queue_bdp": self.peak_queue_bdp,
            "within": self.problems.is_empty(),
            "problems": self.problems,
            "remarks": self.remarks,
        })
    }
}
