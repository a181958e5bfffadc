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
}

/// The outcome of all claims of one or more experiments. As JSON:
/// `{"claims": [{"id", "status", "expected", "measured", "source"}], "met": n, "unmet": n, "skipped": n}`.
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
            table.row([c.id.as_str(), &c.expected, &c.measured, c.status.word()]);
        }
        format!("{}{}\n", table.print(width), self.totals())
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
