//! The gallery: one page with the figures and claims of all reproduced experiments.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::claim::{Ledger, Report, Status};
use crate::html::{claims, document, place, plot};
use crate::plot::{Figure, PlotError};
use crate::text::escape;

/// A self-contained HTML page over many experiments. It lists them with the status of their claims.
/// For each one it has the figure as plots that zoom, the claims, and the reasons for those that
/// are not met.
#[derive(Clone, Debug, Default)]
pub struct Gallery {
    entries: Vec<Entry>,
    plots: Vec<Value>,
}

#[derive(Clone, Debug)]
struct Entry {
    /// The experiment's name: `xcp/validation`.
    name: String,
    title: String,
    source: String,
    /// The HTML places of its plots.
    places: String,
    report: Report,
}

impl Gallery {
    /// Adds an experiment by its `name`, `PAPER/FIGURE`. The figure's subtitle is its source.
    pub fn add(&mut self, name: &str, figure: &Figure, report: &Report) {
        let mut places = String::new();
        for row in &figure.rows {
            places.push_str(&place(row, self.plots.len()));
            self.plots.push(plot(row));
        }
        self.entries.push(Entry {
            name: name.to_owned(),
            title: figure.title.clone(),
            source: figure.subtitle.clone(),
            places,
            report: report.clone(),
        });
    }

    /// The number of experiments.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are no experiments.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Writes the page as `index.html` in `folder`, beside the experiments' own pages and pictures,
    /// and returns its path. `ledger` gives the reasons for fragile and unmet claims.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, folder: &Path, ledger: &Ledger) -> Result<PathBuf, PlotError> {
        let path = folder.join("index.html");
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&path, self.to_html(ledger)))
            .map_err(|e| PlotError::Write { path: path.clone(), message: e.to_string() })?;
        Ok(path)
    }

    /// The page's HTML text.
    pub fn to_html(&self, ledger: &Ledger) -> String {
        let mut all = Report::default();
        self.entries.iter().for_each(|entry| all.extend(entry.report.clone()));
        let mut body = format!(
            "<div class=\"gallery\">\n<nav>\n<h1>Reproduced</h1>\n<p class=\"subtitle\">{}</p>\n{}</nav>\n<main>\n",
            escape(&all.totals()),
            self.contents(),
        );
        for entry in &self.entries {
            body.push_str(&entry.to_html(ledger));
        }
        body.push_str("</main>\n</div>\n");
        document("Reproduced with Tollway", &body, self.plots.clone())
    }

    /// The experiments by paper, each with the status of its claims.
    fn contents(&self) -> String {
        let mut html = String::new();
        let mut paper = "";
        for entry in &self.entries {
            let (of, figure) = entry.name.split_once('/').unwrap_or(("", &entry.name));
            if of != paper {
                html.push_str(&format!("<h2>{}</h2>\n", escape(of)));
                paper = of;
            }
            let (status, count) = entry.badge();
            html.push_str(&format!(
                "<a href=\"#{}\" title=\"{}\">{}<span data-status=\"{status}\">{count}</span></a>\n",
                escape(&entry.name),
                escape(&entry.title),
                escape(figure),
            ));
        }
        html
    }
}

impl Entry {
    /// The most important status of the claims, with its count as text.
    fn badge(&self) -> (&'static str, String) {
        let report = &self.report;
        let judged = report.met + report.fragile + report.unmet;
        match (report.unmet, report.fragile, report.met, report.skipped) {
            (0, 0, 0, 0) => ("skipped", String::new()),
            (0, 0, 0, skipped) => ("skipped", format!("{skipped} skipped")),
            (0, 0, met, _) => ("met", format!("{met} met")),
            (0, fragile, ..) => ("fragile", format!("{fragile} of {judged} fragile")),
            (unmet, ..) => ("unmet", format!("{unmet} of {judged} unmet")),
        }
    }

    fn to_html(&self, ledger: &Ledger) -> String {
        let name = escape(&self.name);
        let figures = if self.places.is_empty() {
            String::new()
        } else {
            format!(" · <a href=\"{name}.png\">picture</a>")
        };
        let mut html = format!(
            "<article id=\"{name}\">\n<h1>{}</h1>\n<p class=\"subtitle\">{}</p>\n\
             <p class=\"subtitle\"><code>tollway reproduce {name}</code> · <a href=\"{name}.html\">own page, with the runs' tables</a>{figures}</p>\n\
             <div class=\"beside\">\n<div>\n{}</div>\n<div>\n",
            escape(&self.title),
            escape(&self.source),
            self.places,
        );
        if !self.report.claims.is_empty() {
            html.push_str(&format!("<h2>Claims: {}</h2>\n", escape(&self.report.totals())));
            html.push_str(&claims(&self.report));
        }
        for claim in self.report.claims.iter().filter(|claim| claim.failing()) {
            let reason = ledger
                .reason(&claim.id)
                .unwrap_or("No reason is known: it is not in the list of fragile and unmet claims.");
            let is = if claim.status == Status::Fragile { "is fragile" } else { "is not met" };
            html.push_str(&format!(
                "<p class=\"reason\"><strong>{}</strong> {is}. {}</p>\n",
                escape(&claim.id),
                escape(reason)
            ));
        }
        html.push_str("</div>\n</div>\n</article>\n");
        html
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::{ClaimVerdict, LedgerEntry};

    fn verdict(id: &str, status: Status) -> ClaimVerdict {
        ClaimVerdict {
            id: id.into(),
            says: "so <it> is".into(),
            status,
            expected: "1".into(),
            measured: "2".into(),
            source: String::new(),
            ..ClaimVerdict::default()
        }
    }

    fn gallery() -> Gallery {
        let figure = |title: &str| Figure::new(title, "a <source>", &[], &[]);
        let mut gallery = Gallery::default();
        let mixed = Report::new(vec![verdict("a.b.one", Status::Met), verdict("a.b.two", Status::Unmet)]);
        gallery.add("a/b", &figure("First"), &mixed);
        gallery.add("a/c", &figure("Second"), &Report::new(vec![verdict("a.c.one", Status::Met)]));
        gallery.add("d/e", &figure("Third"), &Report::new(vec![verdict("d.e.one", Status::Skipped)]));
        gallery
    }

    #[test]
    fn each_paper_is_named_once_and_each_figure_says_what_became_of_its_claims() {
        let contents = gallery().contents();
        assert_eq!(contents.matches("<h2>").count(), 2);
        for badge in ["1 of 2 unmet", "1 met", "1 skipped"] {
            assert!(contents.contains(badge), "{badge} in {contents}");
        }
    }

    #[test]
    fn an_unmet_claim_stands_with_its_reason_or_says_that_there_is_none() {
        let listed = Ledger {
            unmet: vec![LedgerEntry { id: "a.b.two".into(), holds: None, reason: "2 < 3".into() }],
            ..Ledger::default()
        };
        assert!(gallery().to_html(&listed).contains("is not met. 2 &lt; 3"));
        assert!(gallery().to_html(&Ledger::default()).contains("No reason is known"));
    }

    #[test]
    fn what_files_say_is_text_and_the_page_loads_nothing() {
        let html = gallery().to_html(&Ledger::default());
        let head = html.split("<script").next().unwrap_or_default();
        assert!(head.contains("a &lt;source&gt;") && !head.contains("<source>") && !head.contains("so <it>"));
        assert!(head.contains("default-src 'none'"));
    }
}
