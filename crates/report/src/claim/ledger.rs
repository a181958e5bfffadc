//! The claims known to be fragile or unmet: `papers/unmet.toml`.

use std::path::Path;

use serde::Deserialize;

use super::judged::Judgements;
use super::verdict::{ClaimVerdict, Report, number};
use crate::papers;

/// The list of claims known to be fragile or unmet, each with its reason and its frequency in the
/// neighbourhood.
///
/// ```toml
/// [[unmet]]
/// id = "xcp.loss.ack"
/// holds = "3 of 6" # neighbours; left out where the claim is judged once
/// reason = "…"
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ledger {
    /// The entries.
    #[serde(default)]
    pub unmet: Vec<LedgerEntry>,
    /// The entries of claims over the kernel's TCP, which no list of judgements has.
    #[serde(default)]
    pub kernel: Vec<LedgerEntry>,
}

/// A claim known to be fragile or unmet.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LedgerEntry {
    /// The claim's id.
    pub id: String,
    /// The frequency: neighbours in which the claim holds, as `3 of 6`.
    pub holds: Option<String>,
    /// The reason.
    pub reason: String,
}

/// An error in reading the list.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The text is no list of claims.
    #[error("{path}: {message}")]
    Text {
        /// The file.
        path: String,
        /// The mistake and its place.
        message: String,
    },
}

impl Ledger {
    /// Reads the list at `path`. A missing file is an error; an empty list is an empty file.
    ///
    /// # Errors
    /// The file cannot be read, is not TOML of this shape, or has an entry without a reason.
    pub fn read(path: &Path) -> Result<Ledger, LedgerError> {
        let name = path.display().to_string();
        let text = papers::read(path).map_err(|source| LedgerError::Io { path: name.clone(), source })?;
        let ledger: Ledger = toml::from_str(&text)
            .map_err(|e| LedgerError::Text { path: name.clone(), message: e.to_string() })?;
        if let Some(entry) = ledger.unmet.iter().chain(&ledger.kernel).find(|e| e.reason.trim().is_empty()) {
            let message = format!("`{}` is listed without a reason", entry.id);
            return Err(LedgerError::Text { path: name, message });
        }
        Ok(ledger)
    }

    /// Lists the differences between the list and the judgements, one sentence each. They are
    /// fragile and unmet claims that are not listed or have another frequency, and listed claims
    /// that are met or were never judged.
    pub fn differences(&self, judged: &Judgements) -> Vec<String> {
        let mut differences = Vec::new();
        for (id, holds) in judged.failing() {
            let often = holds.as_deref().unwrap_or("judged once");
            match self.unmet.iter().find(|entry| entry.id == id) {
                None => {
                    differences.push(format!("`{id}` is fragile or unmet ({often}), but not on the list"))
                }
                Some(entry) if entry.holds != holds => {
                    let listed = entry.holds.as_deref().unwrap_or("no frequency");
                    differences.push(format!("`{id}` is on the list with {listed}, but judged {often}"));
                }
                Some(_) => {}
            }
        }
        for entry in &self.unmet {
            if !judged.failing().any(|(id, _)| id == entry.id) {
                differences.push(format!("`{}` is on the list, but neither fragile nor unmet", entry.id));
            }
        }
        differences
    }

    /// Lists the claims of a run whose value at the base their reason does not state, one sentence
    /// each. Claims without a value at the base are not among them.
    pub fn outdated(&self, report: &Report) -> Vec<String> {
        let stale = |claim: &ClaimVerdict| {
            let (reason, value) = (self.reason(&claim.id)?, number(claim.reading?.value));
            let words = reason.split(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c)));
            let mut stated = words.map(|word| word.trim_end_matches('.'));
            let id = &claim.id;
            (!stated.any(|word| word == value))
                .then(|| format!("`{id}` has {value} at the base, which its reason does not state"))
        };
        report.claims.iter().filter_map(stale).collect()
    }

    /// The unmet claims of a run over the kernel's TCP without an entry in the list.
    pub fn unexplained<'a>(&'a self, report: &'a Report) -> impl Iterator<Item = &'a ClaimVerdict> {
        let known = |id: &str| self.kernel.iter().any(|entry| entry.id == id);
        report.claims.iter().filter(move |claim| claim.failing() && !known(&claim.id))
    }

    /// The reason given for `id`; `None` if it is not listed.
    pub fn reason(&self, id: &str) -> Option<&str> {
        self.unmet.iter().find(|e| e.id == id).map(|e| e.reason.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::verdict::Reading;

    #[test]
    fn what_is_listed_has_a_reason() {
        let path = std::env::temp_dir().join(format!("tollway-unmet-{}.toml", std::process::id()));
        let read = |reason: &str| {
            std::fs::write(&path, format!("[[unmet]]\nid = \"a\"\nreason = \"{reason}\"\n")).unwrap();
            Ledger::read(&path)
        };
        assert_eq!(read("because").unwrap().reason("a"), Some("because"));
        let error = read(" ").unwrap_err().to_string();
        assert!(error.ends_with("`a` is listed without a reason"), "{error}");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn reasons_state_the_value_at_the_base() {
        let entry = |reason: &str| LedgerEntry { id: "a".into(), holds: None, reason: reason.into() };
        let outdated = |reason: &str, value: f64| {
            let reading = Some(Reading { value, of: None, least: None, most: None });
            let claim = ClaimVerdict { id: "a".into(), reading, ..ClaimVerdict::default() };
            Ledger { unmet: vec![entry(reason)], ..Ledger::default() }.outdated(&Report::new(vec![claim]))
        };
        assert!(outdated("Expected ≤ 170; at the base 162 with 5 senders, 112 with 20.", 112.0).is_empty());
        assert!(outdated("Expected 2 Mb/s ± 10 %; at the base 1.827.", 1.8271).is_empty());
        assert!(outdated("Expected > -1; -1.25e-5.", -1.25e-5).is_empty());
        assert_eq!(
            outdated("Expected 2 Mb/s; at the base 1.827 Mb/s.", 1.82),
            ["`a` has 1.82 at the base, which its reason does not state"]
        );
    }

    #[test]
    fn differences_go_both_ways() {
        let judged = Judgements::parse(
            "heading\nx\ta\tmet\t6\t6\nx\tb\tunmet\t0\t0\nx\tc\tfragile\t3\t6\tseed 2; seed 3; seed 4\nx\td\tfragile\t5\t6\tseed 2\n",
        )
        .unwrap();
        let entry = |id: &str, holds: Option<&str>| LedgerEntry {
            id: id.into(),
            holds: holds.map(str::to_owned),
            reason: "because".into(),
        };
        let ledger = |entries: &[LedgerEntry]| Ledger { unmet: entries.to_vec(), ..Ledger::default() };
        let (b, c, d) = (entry("b", None), entry("c", Some("3 of 6")), entry("d", Some("5 of 6")));
        assert!(ledger(&[b.clone(), c.clone(), d.clone()]).differences(&judged).is_empty());
        assert_eq!(
            ledger(&[entry("a", None), entry("c", Some("2 of 6")), d]).differences(&judged),
            [
                "`b` is fragile or unmet (judged once), but not on the list",
                "`c` is on the list with 2 of 6, but judged 3 of 6",
                "`a` is on the list, but neither fragile nor unmet"
            ]
        );
    }
}
