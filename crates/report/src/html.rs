//! Self-contained HTML pages with figures and tables.

use std::path::Path;

use serde_json::{Value, json};
use tollway_scenario::tables::RunResult;

use crate::band::picture;
use crate::claim::Report;
use crate::overview::Overview;
use crate::plot::{Axis, Curve, Figure, PALETTE, Panel, PlotError, Row, style};
use crate::text::escape;

/// A page with a title, interactive plots, claims if any, and the runs' summary tables.
///
/// The plotting script is part of the page, and the page's content security policy forbids it to
/// load anything.
#[derive(Debug)]
pub struct Page<'a> {
    /// The plots, with title and subtitle.
    pub figure: &'a Figure,
    /// The runs in the summary tables.
    pub runs: &'a [RunResult],
    /// The verdicts on the claims.
    pub claims: Option<&'a Report>,
}

impl Page<'_> {
    /// Writes the page to `path`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), PlotError> {
        std::fs::write(path, self.to_html())
            .map_err(|e| PlotError::Write { path: path.to_path_buf(), message: e.to_string() })
    }

    /// The page's HTML text.
    pub fn to_html(&self) -> String {
        let title = escape(&self.figure.title);
        let mut body = format!("<main>\n<h1>{title}</h1>\n");
        if !self.figure.subtitle.is_empty() {
            body.push_str(&format!("<p class=\"subtitle\">{}</p>\n", escape(&self.figure.subtitle)));
        }
        if let Some(report) = self.claims.filter(|r| !r.claims.is_empty()) {
            body.push_str(&format!("<h2>Claims: {}</h2>\n", escape(&report.totals())));
            body.push_str(&format!("<div class=\"table\">{}</div>\n", claims(report)));
        }
        let mut plots = Vec::new();
        for row in &self.figure.rows {
            body.push_str(&place(row, plots.len()));
            plots.push(plot(row));
        }
        body.push_str(&Overview::new(self.runs).to_html());
        body.push_str("</main>\n");
        document(&title, &body, plots)
    }
}

/// A whole page around `body`, with the data of `plots` for the places made by [`place`]. `title`
/// is HTML.
pub(crate) fn document(title: &str, body: &str, plots: Vec<Value>) -> String {
    // `</script>` must not appear in a script, even in a flow's name.
    let plots = Value::from(plots).to_string().replace('<', "\\u003c");
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\
         <script>\nconst plots = {plots};\n{SCRIPT}</script>\n</body>\n</html>\n"
    )
}

/// The HTML place for a row's plot, number `index` on the page.
pub(crate) fn place(row: &Row, index: usize) -> String {
    let height = if row.panels.iter().any(|p| !p.label.is_empty()) { 320 } else { 300 };
    format!(
        "<section>\n<h2>{}</h2>\n<div class=\"plot\" id=\"plot{index}\" style=\"height:{height}px\"></div>\n</section>\n",
        escape(&row.title)
    )
}

/// A table with one row per claim: its statement over its id, the expected and the measured value,
/// and the band over its neighbourhood.
pub(crate) fn claims(report: &Report) -> String {
    let mut html = "<table>\n<thead><tr><th>claim</th><th>expected</th><th>measured</th><th>band</th><th>status</th></tr></thead>\n<tbody>\n".to_owned();
    for claim in &report.claims {
        html.push_str(&format!(
            "<tr><td>{}<br><small>{}</small></td><td>{}</td><td>{}</td><td>{}</td><td data-status=\"{}\">{}</td></tr>\n",
            escape(&claim.says),
            escape(&claim.id),
            escape(&claim.expected),
            escape(&claim.measured_text()),
            picture(claim),
            claim.status.word().to_lowercase(),
            escape(&claim.status_text()),
        ));
    }
    html.push_str("</tbody>\n</table>\n");
    html
}

/// A row as data for the page's script.
pub(crate) fn plot(row: &Row) -> Value {
    let colour = |index: usize| {
        let (r, g, b) = PALETTE[index % PALETTE.len()];
        format!("#{r:02x}{g:02x}{b:02x}")
    };
    let axis =
        |axis: &Axis| json!({"from": axis.from, "until": axis.until, "log": axis.log, "ticks": axis.ticks});
    let columns = COLUMNS / row.panels.len().max(1);
    let curve = |curve: &Curve| {
        let points = curve.decimated(columns, row.x.from, row.x.until);
        let band = curve.band.iter().step_by(curve.band.len().div_ceil(columns).max(1));
        json!({
            "name": curve.name, "colour": colour(curve.colour), "dotted": curve.dotted,
            "dash": style(curve), "faint": curve.faint,
            "band": band.map(|(x, low, high)| [rounded(*x), rounded(*low), rounded(*high)]).collect::<Vec<_>>(),
            "x": points.iter().map(|p| rounded(p.0)).collect::<Vec<_>>(),
            "y": points.iter().map(|p| rounded(p.1)).collect::<Vec<_>>(),
        })
    };
    let panel = |panel: &Panel| {
        let curves: Vec<Value> = panel.curves.iter().map(curve).collect();
        json!({"label": panel.label, "curves": curves, "marks": panel.marks, "warmup": panel.warmup})
    };
    json!({
        "title": row.title, "xTitle": row.x_title, "x": axis(&row.x), "y": axis(&row.y),
        "legend": row.legend.iter().map(|(name, index)| (name, colour(*index))).collect::<Vec<_>>(),
        "panels": row.panels.iter().map(panel).collect::<Vec<_>>(),
    })
}

/// A number with six significant digits, which suffice for a plot; null, a gap, for NaN and
/// infinity.
fn rounded(value: f64) -> Value {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { json!(0) } else { Value::Null };
    }
    let scale = libm::pow(10.0, 5.0 - libm::floor(libm::log10(value.abs())));
    let rounded = libm::round(value * scale) / scale;
    if rounded.is_finite() { json!(rounded) } else { json!(value) }
}

/// Expected width of a plot in pixel columns, to which long series are decimated.
const COLUMNS: usize = 1200;

/// Nothing may be loaded from the network, not even from the page's own server.
const POLICY: &str =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:";

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_digits_and_gaps() {
        assert_eq!(rounded(0.123_456_789), json!(0.123457));
        assert_eq!(rounded(f64::NAN), Value::Null);
        assert_eq!(rounded(-98_765_432.1), json!(-98765400.0));
    }
}
