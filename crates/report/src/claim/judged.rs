//! The recorded judgements: `papers/judged.tsv`, one line per claim.

use std::path::Path;

use super::verdict::{ClaimVerdict, Report, Status};
use crate::papers;

/// The recorded outcome of each claim.
///
/// A line has an experiment, a claim, its status, the number of neighbours in which it held, the
/// number of neighbours (0: judged once), and the neighbours in which it did not hold. The status
/// is `met`, `fragile`, `unmet`, or `base` if the claim holds at the base and was never judged in
/// its neighbourhood.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judgements(Vec<Line>);

/// The recorded outcome of one claim.
#[derive(Clone, Debug, PartialEq)]
struct Line {
    experiment: String,
    claim: String,
    status: Status,
    /// Number of neighbours judged; `None` if the neighbourhood was not judged.
    of: Option<usize>,
    /// Neighbours in which the claim does not hold.
    failed: Vec<String>,
}

/// An error in reading judgements.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[error("{path}: {message}")]
#[diagnostic(help("`tollway reproduce --record FILE` writes such a file"))]
pub struct JudgedError {
    path: String,
    message: String,
}

impl Judgements {
    /// Reads judgements from the file at `path`.
    ///
    /// # Errors
    /// The file cannot be read, or a line is no judgement.
    pub fn read(path: &Path) -> Result<Judgements, JudgedError> {
        let error = |message: String| JudgedError { path: path.display().to_string(), message };
        let text = papers::read(path).map_err(|e| error(e.to_string()))?;
        Judgements::parse(&text).map_err(error)
    }

    /// Parses judgements from text.
    ///
    /// # Errors
    /// The first bad line, with its number.
    pub fn parse(text: &str) -> Result<Judgements, String> {
        let mut lines = Vec::new();
        for (i, text) in text.lines().enumerate().skip(1) {
            let line =
                Line::parse(text).ok_or_else(|| format!("line {} is not a judgement: `{text}`", i + 1))?;
            lines.push(line);
        }
        Ok(Judgements(lines))
    }

    /// Replaces the record of an experiment by the outcome in `report`. Skipped claims keep their
    /// record.
    pub fn record(&mut self, experiment: &str, report: &Report) {
        let (old, mut lines) =
            std::mem::take(&mut self.0).into_iter().partition(|l: &Line| l.experiment == experiment);
        let old: Vec<Line> = old;
        for verdict in &report.claims {
            match verdict.status {
                Status::Skipped => lines.extend(old.iter().filter(|l| l.claim == verdict.id).cloned()),
                _ => lines.push(Line::of(experiment, verdict)),
            }
        }
        // Experiments by name, claims in the order of their file.
        lines.sort_by(|a, b| a.experiment.cmp(&b.experiment));
        self.0 = lines;
    }

    /// Lists the differences of an experiment's outcome from its record, one sentence each: at the
    /// base, and at each neighbour that was judged.
    pub fn differences(&self, experiment: &str, report: &Report) -> Vec<String> {
        let mut differences = Vec::new();
        let lines = || self.0.iter().filter(|line| line.experiment == experiment);
        for verdict in report.claims.iter().filter(|verdict| verdict.status != Status::Skipped) {
            let id = &verdict.id;
            let Some(line) = lines().find(|line| line.claim == *id) else {
                differences.push(format!("`{id}` has never been judged"));
                continue;
            };
            let holds = |status: Status| if status == Status::Unmet { "doesn't hold" } else { "holds" };
            if (verdict.status == Status::Unmet) != (line.status == Status::Unmet) {
                let (now, then) = (holds(verdict.status), holds(line.status));
                differences
                    .push(format!("`{id}` {now} at the base: {}; as judged, it {then}", verdict.measured));
            }
            if line.of.is_some() && verdict.is_whole() && line.of != verdict.neighbourhood {
                differences.push(format!("`{id}` was judged with another neighbourhood"));
                continue;
            }
            for at in verdict.neighbours.iter().filter(|_| line.of.is_some()) {
                let then = if line.failed.contains(&at.at) { Status::Unmet } else { Status::Met };
                // A neighbour was not counted if it repeats the value of a failing base.
                let unmet = line.status == Status::Unmet && at.status == Status::Unmet;
                let same = unmet && at.measured == verdict.measured;
                if at.status != then && !same {
                    let (now, then) = (holds(at.status), holds(then));
                    differences
                        .push(format!("`{id}` {now} with {}: {}; as judged, it {then}", at.at, at.measured));
                }
            }
        }
        for line in lines().filter(|line| !report.claims.iter().any(|claim| claim.id == line.claim)) {
            differences.push(format!("`{}` was judged, but is no longer claimed", line.claim));
        }
        differences
    }

    /// The fragile and unmet claims, as `(id, frequency)`. The frequency is `3 of 6`, or `None` for
    /// a claim judged once.
    pub(super) fn failing(&self) -> impl Iterator<Item = (&str, Option<String>)> {
        let failing = self.0.iter().filter(|line| matches!(line.status, Status::Fragile | Status::Unmet));
        failing.map(|line| (line.claim.as_str(), line.holds()))
    }

    /// The judgements as text: a heading, then one line per claim.
    pub fn to_text(&self) -> String {
        let mut text = format!("{HEADING}\n");
        for line in &self.0 {
            let (held, of) = match line.of {
                Some(of) => ((of - line.failed.len().min(of)).to_string(), of.to_string()),
                None => ("-".to_owned(), "-".to_owned()),
            };
            let status = match (line.status, line.of) {
                (Status::Met, None) => "base",
                (Status::Fragile, _) => "fragile",
                (Status::Unmet, _) => "unmet",
                _ => "met",
            };
            let failed = line.failed.join("; ");
            let fields = [&line.experiment, &line.claim, status, &held, &of, &failed];
            text.push_str(fields.join("\t").trim_end());
            text.push('\n');
        }
        text
    }
}

impl Line {
    fn of(experiment: &str, verdict: &ClaimVerdict) -> Line {
        let whole = verdict.is_whole();
        Line {
            experiment: experiment.to_owned(),
            claim: verdict.id.clone(),
            status: verdict.status,
            of: whole.then_some(verdict.neighbours.len()),
            failed: verdict.failed().filter(|_| whole).map(str::to_owned).collect(),
        }
    }

    fn parse(text: &str) -> Option<Line> {
        let fields: Vec<&str> = text.split('\t').collect();
        let (&[experiment, claim, status, _, of], failed) = fields.split_first_chunk()?;
        let of = if of == "-" { None } else { Some(of.parse().ok()?) };
        let status = match (status, of) {
            ("met", Some(_)) | ("base", None) => Status::Met,
            ("fragile", Some(_)) => Status::Fragile,
            ("unmet", _) => Status::Unmet,
            _ => return None,
        };
        let failed = failed.iter().flat_map(|names| names.split("; ")).map(str::to_owned).collect();
        Some(Line { experiment: experiment.to_owned(), claim: claim.to_owned(), status, of, failed })
    }

    /// The frequency, as `3 of 6`.
    fn holds(&self) -> Option<String> {
        let of = self.of.filter(|of| *of > 0)?;
        Some(format!("{} of {of}", of - self.failed.len().min(of)))
    }
}

/// The names of the columns.
const HEADING: &str = "experiment\tclaim\tstatus\theld\tof\tnot held with";

#[cfg(test)]
mod tests {
    use super::super::verdict::ClaimVerdict;
    use super::*;

    fn report(
        base: &[(&str, Status)],
        neighbours: &[(&str, &[(&str, Status)])],
        size: Option<usize>,
    ) -> Report {
        let of = |claims: &[(&str, Status)]| {
            let verdict = |(id, status): &(&str, Status)| ClaimVerdict {
                id: (*id).into(),
                status: *status,
                measured: "2".into(),
                ..ClaimVerdict::default()
            };
            Report::new(claims.iter().map(verdict).collect())
        };
        let neighbours: Vec<_> =
            neighbours.iter().map(|(at, claims)| ((*at).to_owned(), of(claims))).collect();
        of(base).with_neighbours(size, &neighbours)
    }

    const MET: Status = Status::Met;
    const UNMET: Status = Status::Unmet;

    #[test]
    fn what_is_recorded_is_read_again() {
        let mut all = Judgements::default();
        all.record("x/b", &report(&[("b.a", MET)], &[], None));
        let neighbours: [(&str, &[(&str, Status)]); 2] = [
            ("seed 2", &[("a.a", MET), ("a.b", UNMET)]),
            ("link.b = { a = 1, b = 2 }", &[("a.a", UNMET), ("a.b", UNMET)]),
        ];
        all.record("x/a", &report(&[("a.a", MET), ("a.b", UNMET)], &neighbours, Some(2)));
        all.record("x/c", &report(&[("c.a", MET)], &[], Some(0)));
        let text = all.to_text();
        assert_eq!(
            text.lines().skip(1).collect::<Vec<_>>(),
            [
                "x/a\ta.a\tfragile\t1\t2\tlink.b = { a = 1, b = 2 }",
                "x/a\ta.b\tunmet\t0\t2\tseed 2; link.b = { a = 1, b = 2 }",
                "x/b\tb.a\tbase\t-\t-",
                "x/c\tc.a\tmet\t0\t0",
            ]
        );
        assert_eq!(Judgements::parse(&text).unwrap(), all);
        let failing: Vec<_> = all.failing().collect();
        assert_eq!(failing, [("a.a", Some("1 of 2".into())), ("a.b", Some("0 of 2".into()))]);
        // A skipped claim keeps its record.
        all.record("x/a", &report(&[("a.a", Status::Skipped)], &[], Some(2)));
        assert!(all.to_text().contains("a.a\tfragile") && !all.to_text().contains("a.b"));
        assert!(Judgements::parse("heading\nx/a\ta.a\tperfect\t1\t1").unwrap_err().starts_with("line 2"));
    }

    #[test]
    fn differences_are_told_at_the_base_and_at_each_neighbour() {
        let mut known = Judgements::default();
        let whole: [(&str, &[(&str, Status)]); 2] = [("seed 2", &[("a", MET)]), ("seed 3", &[("a", UNMET)])];
        known.record("x", &report(&[("a", MET)], &whole, Some(2)));
        let found = |now: &Report| known.differences("x", now);
        assert!(found(&report(&[("a", MET)], &whole, Some(2))).is_empty());
        assert!(found(&report(&[("a", MET)], &whole[1..], Some(2))).is_empty());
        for (now, said) in [
            (report(&[("a", UNMET)], &[], Some(2)), "`a` doesn't hold at the base: 2; as judged, it holds"),
            (
                report(&[("a", MET)], &[("seed 2", &[("a", UNMET)])], Some(2)),
                "`a` doesn't hold with seed 2: 2; as judged, it holds",
            ),
            (
                report(&[("a", MET)], &[("seed 3", &[("a", MET)])], Some(2)),
                "`a` holds with seed 3: 2; as judged, it doesn't hold",
            ),
            (report(&[("a", MET)], &[], Some(0)), "`a` was judged with another neighbourhood"),
            (report(&[("b", MET)], &[], Some(2)), "`b` has never been judged"),
        ] {
            assert_eq!(found(&now)[0], said);
        }
        assert_eq!(found(&report(&[], &[], Some(2))), ["`a` was judged, but is no longer claimed"]);
    }
}
