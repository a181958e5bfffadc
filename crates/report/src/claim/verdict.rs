//! What became of the claims.

use serde::Serialize;

use crate::text::{Align, TextTable};

/// Whether a claim holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// It does.
    Met,
    /// It does not, or nothing could be measured.
    Unmet,
    /// A program it needs is not installed.
    Skipped,
}

impl Status {
    /// As printed: `met`, `UNMET`, `skipped`.
    pub fn word(self) -> &'static str {
        match self {
            Status::Met => "met",
            Status::Unmet => "UNMET",
            Status::Skipped => "skipped",
        }
    }
}

/// One claim's outcome. `expected` and `measured` are for people, with units.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The claim's id.
    pub id: String,
    /// What it says.
    #[serde(skip)]
    pub says: String,
    /// Whether it holds.
    pub status: Status,
    /// The bound.
    pub expected: String,
    /// What was measured, or why nothing could be.
    pub measured: String,
    /// Where the claim comes from.
    pub source: String,
    /// The outcome with each seed, if it was asked of several ([`Report::over_seeds`]).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub seeds: Vec<OfSeed>,
}

/// A claim's outcome with one of several seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OfSeed {
    /// The scenario's seed.
    pub seed: u64,
    /// Whether the claim holds with it.
    pub status: Status,
    /// What was measured.
    pub measured: String,
}

impl Verdict {
    /// `met`, `UNMET`, or with which of several seeds it is unmet: `UNMET with 2 of 6 seeds: 3, 5`.
    pub fn status_text(&self) -> String {
        let unmet = self.seeds.iter().filter(|of| of.status == Status::Unmet);
        let unmet: Vec<String> = unmet.map(|of| of.seed.to_string()).collect();
        match unmet.len() {
            0 => self.status.word().to_owned(),
            n => {
                format!("{} with {n} of {} seeds: {}", self.status.word(), self.seeds.len(), unmet.join(", "))
            }
        }
    }
}

/// The outcome of all claims of one or more experiments. As JSON:
/// `{"claims": [{"id", "status", "expected", "measured", "source"}], "met": n, "unmet": n, "skipped": n}`; over several seeds
/// each claim has `"seeds": [{"seed", "status", "measured"}]` too.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// One verdict a claim, in the order of the files.
    pub claims: Vec<Verdict>,
    /// How many are met.
    pub met: usize,
    /// How many are not.
    pub unmet: usize,
    /// How many were skipped.
    pub skipped: usize,
}

impl Report {
    /// Counts `claims`.
    pub fn new(claims: Vec<Verdict>) -> Report {
        let count = |status| claims.iter().filter(|c| c.status == status).count();
        let (met, unmet, skipped) = (count(Status::Met), count(Status::Unmet), count(Status::Skipped));
        Report { claims, met, unmet, skipped }
    }

    /// One experiment's outcome with several seeds, the first its own. A claim is met if it is with every seed; what is shown as
    /// measured is with the first seed that it is not met with, else with the first of all.
    pub fn over_seeds(reports: Vec<(u64, Report)>) -> Report {
        let mut verdicts: Vec<Verdict> = Vec::new();
        for (seed, report) in reports {
            for claim in report.claims {
                let of_seed = OfSeed { seed, status: claim.status, measured: claim.measured.clone() };
                // By name: a pattern makes as many claims as there are variants.
                let at = verdicts.iter().position(|known| known.id == claim.id).unwrap_or(verdicts.len());
                if at == verdicts.len() {
                    verdicts.push(claim);
                } else if claim.status == Status::Unmet && verdicts[at].status != Status::Unmet {
                    verdicts[at] = Verdict { seeds: std::mem::take(&mut verdicts[at].seeds), ..claim };
                }
                verdicts[at].seeds.push(of_seed);
            }
        }
        Report::new(verdicts)
    }

    /// Adds another experiment's outcome.
    pub fn extend(&mut self, other: Report) {
        self.met += other.met;
        self.unmet += other.unmet;
        self.skipped += other.skipped;
        self.claims.extend(other.claims);
    }

    /// As JSON, indented.
    pub fn to_json(&self) -> String {
        // Only maps with keys that are no strings, or a failing writer, could make this fail.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// As a table for a terminal `width` columns wide, with a line of totals beneath.
    pub fn to_table(&self, width: usize) -> String {
        let mut table = TextTable::new(&[
            ("claim", Align::Left),
            ("expected", Align::Left),
            ("measured", Align::Left),
            ("status", Align::Left),
        ]);
        for c in &self.claims {
            table.row([c.id.as_str(), &c.expected, &c.measured, &c.status_text()]);
        }
        format!("{}{}\n", table.print(width), self.totals())
    }

    /// As [`to_table`](Report::to_table), of what is unmet only.
    pub fn unmet_to_table(&self, width: usize) -> String {
        let unmet = self.claims.iter().filter(|c| c.status == Status::Unmet).cloned().collect();
        Report { claims: unmet, ..*self }.to_table(width)
    }

    /// `5 met, 1 unmet, 2 skipped`.
    pub fn totals(&self) -> String {
        let mut text = format!("{} met, {} unmet", self.met, self.unmet);
        if self.skipped > 0 {
            text.push_str(&format!(", {} skipped", self.skipped));
        }
        text
    }
}

/// Four significant digits, no trailing zeros: `0.9817`, `134400`, `1e-5`.
pub(crate) fn number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0".into() } else { value.to_string() };
    }
    let magnitude = libm::floor(libm::log10(value.abs())) as i32;
    if !(-4..9).contains(&magnitude) {
        let text = format!("{value:.2e}");
        return match text.split_once('e') {
            Some((m, e)) if m.contains('.') => {
                format!("{}e{e}", m.trim_end_matches('0').trim_end_matches('.'))
            }
            _ => text,
        };
    }
    let decimals = (3 - magnitude).max(0) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
}

/// A number with its unit, if it has one.
pub(crate) fn quantity(value: f64, unit: &str) -> String {
    if unit.is_empty() { number(value) } else { format!("{} {unit}", number(value)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_seeds_one_failure_is_shown_and_counts() {
        let report = |a: (Status, &str), b: Status| {
            let verdict = |id: &str, status, measured: &str| Verdict {
                id: id.into(),
                says: String::new(),
                status,
                expected: "≥ 3".into(),
                measured: measured.into(),
                source: String::new(),
                seeds: Vec::new(),
            };
            Report::new(vec![verdict("a", a.0, a.1), verdict("b", b, "")])
        };
        use Status::{Met, Skipped, Unmet};
        let all = Report::over_seeds(vec![
            (7, report((Met, "5"), Skipped)),
            (8, report((Unmet, "2"), Skipped)),
            (9, report((Met, "4"), Skipped)),
            (10, report((Unmet, "1"), Skipped)),
        ]);
        assert_eq!((all.met, all.unmet, all.skipped), (0, 1, 1));
        assert_eq!((all.claims[0].status, all.claims[0].measured.as_str()), (Unmet, "2"));
        assert_eq!(all.claims[0].status_text(), "UNMET with 2 of 4 seeds: 8, 10");
        assert_eq!(all.claims[1].status_text(), "skipped");
        let measured: Vec<&str> = all.claims[0].seeds.iter().map(|of| of.measured.as_str()).collect();
        assert_eq!(measured, ["5", "2", "4", "1"]);
    }

    #[test]
    fn numbers_have_four_digits() {
        for (value, text) in [
            (0.981_74, "0.9817"),
            (2.5, "2.5"),
            (134_409.2, "134409"),
            (1e-5, "1e-5"),
            (0.0, "0"),
            (-3.0, "-3"),
            (0.999_96, "1"),
            (1.25e12, "1.25e12"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
