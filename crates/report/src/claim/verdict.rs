//! Verdicts on claims.

use serde::Serialize;

use crate::text::{Align, TextTable};

/// The status of a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// The claim holds at the base, and in at least nine of ten judged neighbours.
    Met,
    /// The claim holds at the base, but in fewer of its whole neighbourhood.
    Fragile,
    /// The claim does not hold at the base, or has no value there.
    #[default]
    Unmet,
    /// A program that the claim needs is not installed.
    Skipped,
}

impl Status {
    /// The printed word: `met`, `FRAGILE`, `UNMET`, `skipped`.
    pub fn word(self) -> &'static str {
        match self {
            Status::Met => "met",
            Status::Fragile => "FRAGILE",
            Status::Unmet => "UNMET",
            Status::Skipped => "skipped",
        }
    }
}

/// The outcome of a claim. `expected` and `measured` are text with units.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClaimVerdict {
    /// The claim's id.
    pub id: String,
    /// The claim's statement.
    #[serde(skip)]
    pub says: String,
    /// The claim's status.
    pub status: Status,
    /// The bound.
    pub expected: String,
    /// The value at the base, or the reason for its absence.
    pub measured: String,
    /// The values of other engines and laws at the base, by their name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<(&'static str, String)>,
    /// The paper's section, or another source of the claim.
    pub source: String,
    /// The tightest value at the base as a number, with its bounds.
    pub reading: Option<Reading>,
    /// Number of neighbours that count for the claim: 0 if it is judged once, `None` if the
    /// experiment's file does not define them.
    pub neighbourhood: Option<usize>,
    /// The outcome at each neighbour that was judged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub neighbours: Vec<AtNeighbour>,
}

/// The value with the least slack, and the range that its bounds allow, in the metric's unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Reading {
    /// The value.
    pub value: f64,
    /// The paper's number, for a claim to lie near one.
    pub of: Option<f64>,
    /// The least value allowed.
    pub least: Option<f64>,
    /// The largest value allowed.
    pub most: Option<f64>,
}

/// A claim's outcome at one neighbour of its experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AtNeighbour {
    /// The difference from the base: `seed 3`.
    pub at: String,
    /// The claim's outcome there.
    pub status: Status,
    /// The value, or the reason for its absence.
    pub measured: String,
    /// The tightest value there as a number.
    pub value: Option<f64>,
}

impl ClaimVerdict {
    /// Number of neighbours in which the claim holds.
    pub fn held(&self) -> usize {
        self.neighbours.iter().filter(|n| n.status == Status::Met).count()
    }

    /// The value, with those beside it.
    pub fn measured_text(&self) -> String {
        let beside = self.beside.iter().map(|(name, value)| format!("; {name} {value}"));
        self.measured.clone() + &beside.collect::<String>()
    }

    /// True if every neighbour was judged, or if the claim intentionally has no neighbours.
    pub fn is_whole(&self) -> bool {
        self.neighbourhood == Some(self.neighbours.len())
    }

    /// True if the claim is fragile or unmet.
    pub fn failing(&self) -> bool {
        matches!(self.status, Status::Fragile | Status::Unmet)
    }

    /// Neighbours in which the claim does not hold.
    pub fn failed(&self) -> impl Iterator<Item = &str> {
        self.neighbours.iter().filter(|n| n.status != Status::Met).map(|n| n.at.as_str())
    }

    /// The status as text: `met 6/6`, `FRAGILE 3/6: not with seed 2, seed 4, seed 5`, or `met at
    /// the base` if not all neighbours were judged.
    pub fn status_text(&self) -> String {
        let word = self.status.word();
        let (held, of) = (self.held(), self.neighbours.len());
        let failed: Vec<&str> = self.failed().collect();
        let mut text = match (self.status, self.is_whole()) {
            (Status::Skipped, _) => return word.to_owned(),
            (Status::Met, false) => "met at the base".to_owned(),
            _ => word.to_owned(),
        };
        if of > 0 {
            text.push_str(&format!(" {held}/{of}"));
        }
        if self.status != Status::Unmet && !failed.is_empty() {
            text.push_str(&format!(": not with {}", failed.join(", ")));
        }
        text
    }
}

/// The outcome of all claims of one or more experiments. As JSON: `{"claims": [{"id", "status",
/// "expected", "measured", "source", "reading": {"value", "of", "least", "most"}, "neighbourhood",
/// "neighbours": [{"at", "status", "measured", "value"}]}], "met": n, "fragile": n, "unmet": n,
/// "skipped": n}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// One verdict per claim, in the order of the files.
    pub claims: Vec<ClaimVerdict>,
    /// Claims that are met.
    pub met: usize,
    /// Claims that hold at the base, but in too few neighbours.
    pub fragile: usize,
    /// Claims that do not hold at the base.
    pub unmet: usize,
    /// Claims that were skipped.
    pub skipped: usize,
}

impl Report {
    /// Counts `claims` by status.
    pub fn new(claims: Vec<ClaimVerdict>) -> Report {
        let count = |status| claims.iter().filter(|c| c.status == status).count();
        Report {
            met: count(Status::Met),
            fragile: count(Status::Fragile),
            unmet: count(Status::Unmet),
            skipped: count(Status::Skipped),
            claims,
        }
    }

    /// Adds the outcomes at neighbours, each with its name, to this outcome at an experiment's
    /// base. `neighbourhood` is the size of the experiment's neighbourhood.
    ///
    /// A claim that holds at the base and in fewer than nine of ten neighbours becomes fragile, if
    /// all neighbours were judged. If no seed changes a claim's value, only the other neighbours
    /// count.
    pub fn with_neighbours<'a>(
        self,
        neighbourhood: Option<usize>,
        neighbours: &'a [(String, Report)],
    ) -> Report {
        let judge = |mut verdict: ClaimVerdict| {
            verdict.neighbourhood = neighbourhood;
            // By name, since a pattern makes as many claims as there are variants.
            let of = |report: &'a Report| report.claims.iter().find(|claim| claim.id == verdict.id);
            let (seeds, others): (Vec<_>, Vec<_>) = neighbours
                .iter()
                .map(|(at, report)| (at, of(report)))
                .partition(|(at, _)| at.starts_with("seed "));
            let untouched = |found: &Option<&ClaimVerdict>| {
                verdict.reading.is_some() && found.is_some_and(|claim| claim.reading == verdict.reading)
            };
            let idle = !others.is_empty() && seeds.iter().all(|(_, found)| untouched(found));
            if idle {
                verdict.neighbourhood = verdict.neighbourhood.map(|size| size.saturating_sub(seeds.len()));
            }
            for (at, found) in seeds.into_iter().filter(|_| !idle).chain(others) {
                verdict.neighbours.push(AtNeighbour {
                    at: at.clone(),
                    status: found.map_or(Status::Unmet, |claim| claim.status),
                    measured: found.map_or_else(String::new, |claim| claim.measured.clone()),
                    value: found.and_then(|claim| claim.reading).map(|reading| reading.value),
                });
            }
            let enough = verdict.held() * 10 >= verdict.neighbours.len() * 9;
            if verdict.status == Status::Met && verdict.is_whole() && !enough {
                verdict.status = Status::Fragile;
            }
            verdict
        };
        Report::new(self.claims.into_iter().map(judge).collect())
    }

    /// Adds the outcome of another experiment.
    pub fn extend(&mut self, other: Report) {
        self.met += other.met;
        self.fragile += other.fragile;
        self.unmet += other.unmet;
        self.skipped += other.skipped;
        self.claims.extend(other.claims);
    }

    /// The report as indented JSON.
    pub fn to_json(&self) -> String {
        // Serialization fails only for maps with non-string keys or a failing writer.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// The report as a table for a terminal of `width` columns, with a line of totals.
    pub fn to_table(&self, width: usize) -> String {
        let mut table = TextTable::new(&[
            ("claim", Align::Left),
            ("expected", Align::Left),
            ("measured", Align::Left),
            ("status", Align::Left),
        ]);
        for c in &self.claims {
            table.row([c.id.as_str(), &c.expected, &c.measured_text(), &c.status_text()]);
        }
        format!("{}{}\n", table.print(width), self.totals())
    }

    /// [`to_table`](Report::to_table) with fragile and unmet claims only.
    pub fn failing_to_table(&self, width: usize) -> String {
        let claims = self.claims.iter().filter(|c| c.failing()).cloned().collect();
        Report { claims, ..*self }.to_table(width)
    }

    /// The totals, `5 met, 2 fragile, 1 unmet, 2 skipped`, and the number of met claims whose
    /// neighbourhood was not wholly judged.
    pub fn totals(&self) -> String {
        let mut text = format!("{} met, {} fragile, {} unmet", self.met, self.fragile, self.unmet);
        if self.skipped > 0 {
            text.push_str(&format!(", {} skipped", self.skipped));
        }
        let partly = self.claims.iter().filter(|c| c.status == Status::Met && !c.is_whole()).count();
        if partly > 0 {
            text.push_str(&format!(
                "; {partly} of the met claims were judged only at the base, or with some neighbours"
            ));
        }
        text
    }
}

/// The number with four significant digits and no trailing zeros: `0.9817`, `134400`, `1e-5`.
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

/// A number with its unit, if any.
pub(crate) fn quantity(value: f64, unit: &str) -> String {
    if unit.is_empty() { number(value) } else { format!("{} {unit}", number(value)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(statuses: &[Status]) -> Report {
        let ids = ["a", "b", "c"];
        let verdict = |(id, status): (&&str, &Status)| ClaimVerdict {
            id: (*id).to_owned(),
            status: *status,
            measured: format!("{id}'s"),
            ..ClaimVerdict::default()
        };
        Report::new(ids.iter().zip(statuses).map(verdict).collect())
    }

    #[test]
    fn nine_of_ten_neighbours_and_all_of_six_make_a_claim_met() {
        use Status::{Fragile, Met, Skipped, Unmet};
        let judged = |held: usize, of: usize, neighbourhood: usize| {
            let at =
                |i: usize| (format!("seed {i}"), report(&[if i < held { Met } else { Unmet }, Met, Skipped]));
            let neighbours: Vec<_> = (0..of).map(at).collect();
            report(&[Met, Unmet, Skipped]).with_neighbours(Some(neighbourhood), &neighbours)
        };
        for (held, of, status) in [(6, 6, Met), (5, 6, Fragile), (9, 10, Met), (8, 10, Fragile), (0, 0, Met)]
        {
            assert_eq!(judged(held, of, of).claims[0].status, status, "{held} of {of}");
        }
        let all = judged(5, 6, 6);
        assert_eq!((all.met, all.fragile, all.unmet, all.skipped), (0, 1, 1, 1));
        assert_eq!(all.claims[0].status_text(), "FRAGILE 5/6: not with seed 5");
        assert_eq!(all.claims[1].status_text(), "UNMET 6/6");
        assert_eq!(all.claims[2].status_text(), "skipped");
        // A part of the neighbourhood shows neither that a claim is met nor that it is fragile.
        let part = judged(0, 1, 6);
        assert_eq!((part.claims[0].status, part.claims[0].is_whole()), (Met, false));
        assert_eq!(part.claims[0].status_text(), "met at the base 0/1: not with seed 0");
        assert!(
            part.totals()
                .ends_with("1 of the met claims were judged only at the base, or with some neighbours")
        );
    }

    #[test]
    fn seeds_that_change_nothing_do_not_count_beside_what_does() {
        let with = |value: f64| {
            let reading = Reading { value, of: None, least: Some(1.0), most: None };
            let verdict = ClaimVerdict {
                id: "a".into(),
                status: Status::Met,
                reading: Some(reading),
                ..ClaimVerdict::default()
            };
            Report::new(vec![verdict])
        };
        let judged = |values: &[(&str, f64)]| {
            let neighbours: Vec<_> =
                values.iter().map(|(at, value)| ((*at).to_owned(), with(*value))).collect();
            let judged = with(2.0).with_neighbours(Some(values.len()), &neighbours);
            assert!(judged.claims[0].is_whole());
            judged.claims[0].status_text()
        };
        assert_eq!(judged(&[("seed 2", 2.0), ("seed 3", 2.0), ("starts 1", 3.0)]), "met 1/1");
        assert_eq!(judged(&[("seed 2", 2.0), ("seed 3", 2.5), ("starts 1", 2.0)]), "met 3/3");
        assert_eq!(judged(&[("seed 2", 2.0)]), "met 1/1");
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
