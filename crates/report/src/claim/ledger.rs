//! The claims known not to be met: `papers/unmet.toml`.

use std::path::Path;

use serde::Deserialize;

use super::verdict::{Report, Status};

/// The list of claims that are known to be unmet, each with its reason. It is kept so that a newly failing claim shows,
/// and so does one that was mended and never struck off.
///
/// ```toml
/// [[unmet]]
/// id = "xcp.loss.ack"
/// reason = "…"
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ledger {
    /// The entries.
    #[serde(default)]
    pub unmet: Vec<LedgerEntry>,
}

/// One claim known to be unmet.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LedgerEntry {
    /// The claim's id.
    pub id: String,
    /// Why it is not met.
    pub reason: String,
}

/// Why the list cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The file system said no.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The text is no list of claims.
    #[error("{path}: {message}")]
    Text {
        /// The file.
        path: String,
        /// What is wrong, and where.
        message: String,
    },
}

impl Ledger {
    /// Reads the list. A missing file is an error: an empty list is an empty file.
    ///
    /// # Errors
    /// The file cannot be read, is not TOML of this shape, or gives an entry no reason.
    pub fn read(path: &Path) -> Result<Ledger, LedgerError> {
        let name = path.display().to_string();
        let text =
            std::fs::read_to_string(path).map_err(|source| LedgerError::Io { path: name.clone(), source })?;
        let ledger: Ledger = toml::from_str(&text)
            .map_err(|e| LedgerError::Text { path: name.clone(), message: e.to_string() })?;
        if let Some(entry) = ledger.unmet.iter().find(|e| e.reason.trim().is_empty()) {
            let message = format!("`{}` is listed without a reason", entry.id);
            return Err(LedgerError::Text { path: name, message });
        }
        Ok(ledger)
    }

    /// Where list and measurement differ, one sentence each: unmet claims that are not listed, and listed claims that
    /// are met. A listed claim that was not measured at all is left alone, unless `all` claims were.
    pub fn compare(&self, report: &Report, all: bool) -> Vec<String> {
        let mut differences = Vec::new();
        for claim in &report.claims {
            let listed = self.unmet.iter().any(|e| e.id == claim.id);
            match claim.status {
                Status::Unmet if !listed => {
                    differences.push(format!("`{}` is unmet and not on the list", claim.id));
                }
                Status::Met if listed => differences.push(format!("`{}` is on the list and met", claim.id)),
                _ => {}
            }
        }
        for entry in self.unmet.iter().filter(|_| all) {
            if !report.claims.iter().any(|c| c.id == entry.id) {
                differences.push(format!("`{}` is on the list, and no experiment claims it", entry.id));
            }
        }
        differences
    }

    /// The reason given for `id`, if it is listed.
    pub fn reason(&self, id: &str) -> Option<&str> {
        self.unmet.iter().find(|e| e.id == id).map(|e| e.reason.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::super::verdict::Verdict;
    use super::*;

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
    fn differences_go_both_ways() {
        let verdict = |id: &str, status| Verdict {
            id: id.into(),
            says: String::new(),
            status,
            expected: String::new(),
            measured: String::new(),
            source: String::new(),
            seeds: Vec::new(),
        };
        let report = Report::new(vec![
            verdict("a", Status::Met),
            verdict("b", Status::Unmet),
            verdict("c", Status::Unmet),
            verdict("d", Status::Skipped),
        ]);
        let entry = |id: &str| LedgerEntry { id: id.into(), reason: "because".into() };
        let ledger = Ledger { unmet: vec![entry("a"), entry("c"), entry("d"), entry("e")] };
        assert_eq!(
            ledger.compare(&report, true),
            [
                "`a` is on the list and met",
                "`b` is unmet and not on the list",
                "`e` is on the list, and no experiment claims it"
            ]
        );
        assert_eq!(ledger.compare(&report, false).len(), 2);
    }
}
