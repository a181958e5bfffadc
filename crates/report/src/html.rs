//! Figures and tables as one page of HTML that needs nothing beside itself.

use std::path::Path;

use serde_json::{Value, json};
use tollway_scenario::tables::RunResult;

use crate::band::picture;
use crate::claim::Report;
use crate::overview::Overview;
use crate::plot::{Axis, Figure, PALETTE, PlotError, Row};
use crate::text::escape;

/// A page: a title, the tables that sum up the runs, claims if there are any, and interactive plots.
///
/// The plotting script is inside the page, and the page's own policy forbids it to load anything from anywhere.
#[derive(Debug)]
pub struct Page<'a> {
    /// What is drawn, with its title and subtitle.
    pub figure: &'a Figure,
    /// What ran.
    pub runs: &'a [RunResult],
    /// What was claimed of it.
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

    /// The page's text, some 5 MB of it the plotting script.
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

/// A whole page around `body`, with the places in it that [`place`] left for `plots` filled. `title` is HTML.
pub(crate) fn document(title: &str, body: &str, plots: Vec<Value>) -> String {
    // `</script>` must not appear inside a script, whatever a flow is called.
    let plots = Value::from(plots).to_string().replace('<', "\\u003c");
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}{}\n\
         <script>\nconst plots = {plots};\n{SCRIPT}</script>\n</body>\n</html>\n",
        plotting_script()
    )
}

/// The place of a row's plot, the page's `index`th.
pub(crate) fn place(row: &Row, index: usize) -> String {
    let height = if row.panels.iter().any(|p| !p.label.is_empty()) { 320 } else { 300 };
    format!(
        "<section>\n<h2>{}</h2>\n<div class=\"plot\" id=\"plot{index}\" style=\"height:{height}px\"></div>\n</section>\n",
        escape(&row.title)
    )
}

/// A row a claim: what it says over its id, what was expected, what measured, and the band over its neighbourhood.
pub(crate) fn claims(report: &Report) -> String {
    let mut html = "<table>\n<thead><tr><th>claim</th><th>expected</th><th>measured</th><th>band</th><th>status</th></tr></thead>\n<tbody>\n".to_owned();
    for claim in &report.claims {
        html.push_str(&format!(
            "<tr><td>{}<br><small>{}</small></td><td>{}</td><td>{}</td><td>{}</td><td data-status=\"{}\">{}</td></tr>\n",
            escape(&claim.says),
            escape(&claim.id),
            escape(&claim.expected),
            escape(&claim.measured),
            picture(claim),
            claim.status.word().to_lowercase(),
            escape(&claim.status_text()),
        ));
    }
    html.push_str("</tbody>\n</table>\n");
    html
}

/// A row as data and layout of one plot, its panels as subplots that zoom together. Colours of ground and text are the
/// script's, which knows whether it is dark.
pub(crate) fn plot(row: &Row) -> Value {
    let count = row.panels.len().max(1);
    let mut data = Vec::new();
    let mut layout = serde_json::Map::new();
    let mut notes = Vec::new();
    let mut named = vec![false; row.legend.len()];
    let gap = 0.025;
    let wide = (1.0 - gap * (count - 1) as f64) / count as f64;
    for (i, panel) in row.panels.iter().enumerate() {
        let suffix = if i == 0 { String::new() } else { (i + 1).to_string() };
        let from = i as f64 * (wide + gap);
        let range =
            |axis: &Axis| [axis.from, axis.until].map(|end| if axis.log { libm::log10(end) } else { end });
        let mut x = json!({
            "domain": [from, (from + wide).min(1.0)], "range": range(&row.x), "anchor": format!("y{suffix}"),
            "title": {"text": row.x_title, "font": {"size": 12}, "standoff": 6}, "zeroline": false, "nticks": (14 / count).clamp(3, 8), "tickangle": 0,
        });
        let mut y = json!({
            "range": range(&row.y), "anchor": format!("x{suffix}"), "showticklabels": i == 0,
            "rangemode": "tozero", "nticks": 6,
        });
        for (axis, is_log) in [(&mut x, row.x.log), (&mut y, row.y.log)] {
            if is_log {
                axis["type"] = "log".into();
            }
        }
        if i > 0 {
            x["matches"] = "x".into();
            y["matches"] = "y".into();
        }
        layout.insert(format!("xaxis{suffix}"), x);
        layout.insert(format!("yaxis{suffix}"), y);
        if !panel.label.is_empty() {
            notes.push(json!({
                "text": panel.label, "x": from + wide / 2.0, "y": 1.0, "xref": "paper", "yref": "paper",
                "xanchor": "center", "yanchor": "bottom", "showarrow": false, "font": {"size": 13},
            }));
        }
        // Later traces are drawn over earlier ones: as in the PNG, the first curve shall be on top.
        for curve in panel.curves.iter().rev() {
            let points = curve.decimated(COLUMNS / count, row.x.from, row.x.until);
            let (r, g, b) = PALETTE[curve.colour % PALETTE.len()];
            // One entry in the legend for a name, however many panels it is in.
            // A point alone makes no line.
            let lone = lone(&points);
            let marked = curve.dotted || lone.contains(&true);
            let first = named.get_mut(curve.colour).is_some_and(|n| !std::mem::replace(n, true));
            data.push(json!({
                "type": "scatter", "mode": if marked { "lines+markers" } else { "lines" }, "name": curve.name, "legendgroup": curve.name,
                "showlegend": first && row.legend.len() > 1, "xaxis": format!("x{suffix}"), "yaxis": format!("y{suffix}"),
                "line": {"color": format!("rgb({r},{g},{b})"), "width": 1.6},
                "x": points.iter().map(|p| rounded(p.0)).collect::<Vec<_>>(),
                "y": points.iter().map(|p| rounded(p.1)).collect::<Vec<_>>(),
                "hovertemplate": "%{y:.4~g}",
            }));
            if let Some(trace) = data.last_mut().filter(|_| marked && !curve.dotted) {
                let sizes: Vec<u32> = lone.iter().map(|lone| if *lone { DOT } else { 0 }).collect();
                trace["marker"] = json!({"size": sizes});
            }
        }
    }
    layout.insert("annotations".into(), notes.into());
    json!({"data": data, "layout": layout})
}

/// Which points have no neighbour that a line could lead to.
fn lone(points: &[(f64, f64)]) -> Vec<bool> {
    let there = |i: Option<usize>| i.and_then(|i| points.get(i)).is_some_and(|p| p.1.is_finite());
    (0..points.len()).map(|i| there(Some(i)) && !there(i.checked_sub(1)) && !there(Some(i + 1))).collect()
}

/// Six significant digits: a page is for eyes, the tables keep every bit. What is not a number becomes a gap.
fn rounded(value: f64) -> Value {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { json!(0) } else { Value::Null };
    }
    let scale = libm::pow(10.0, 5.0 - libm::floor(libm::log10(value.abs())));
    let rounded = libm::round(value * scale) / scale;
    if rounded.is_finite() { json!(rounded) } else { json!(value) }
}

/// Plotly's script in its element. The library hands it out together with a typesetter for formulas, which no plot here
/// has and which is a third of the size.
fn plotting_script() -> String {
    let mut scripts = plotly::Plot::offline_js_sources();
    if let Some(end) = scripts.find("</script>") {
        scripts.truncate(end + "</script>".len());
    }
    scripts
}

/// How many columns of pixels a plot is expected to have, for thinning out long series.
const COLUMNS: usize = 1200;

/// How large a point is that no line leads to.
const DOT: u32 = 8;

/// Nothing from the network, not even from the page's own server.
const POLICY: &str =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:";

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_comes_without_the_typesetter() {
        let script = plotting_script();
        assert!(script.contains("plotly.js v") && !script.contains("MathJax ="));
        assert_eq!(script.matches("<script").count(), 1 + script.matches("\"<script").count());
    }

    #[test]
    fn points_without_neighbours_stand_out() {
        let gap = f64::NAN;
        let of = |values: &[f64]| lone(&values.iter().map(|v| (0.0, *v)).collect::<Vec<_>>());
        assert_eq!(of(&[1.0]), [true]);
        assert_eq!(of(&[1.0, 2.0, gap, 3.0, gap]), [false, false, false, true, false]);
    }

    #[test]
    fn six_digits_and_gaps() {
        assert_eq!(rounded(0.123_456_789), json!(0.123457));
        assert_eq!(rounded(f64::NAN), Value::Null);
        assert_eq!(rounded(-98_765_432.1), json!(-98765400.0));
    }
}
