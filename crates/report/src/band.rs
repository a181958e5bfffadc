//! The picture of a claim: the range that its bounds allow, the paper's number, the base, and the
//! band over the neighbourhood.

use crate::claim::{ClaimVerdict, Reading, number};
use crate::text::escape;

/// The picture in SVG, coloured by the page's style; empty for a claim without a number.
pub(crate) fn picture(verdict: &ClaimVerdict) -> String {
    let Some(reading) = verdict.reading.filter(|reading| reading.value.is_finite()) else {
        return String::new();
    };
    let values: Vec<f64> = verdict
        .neighbours
        .iter()
        .filter_map(|neighbour| neighbour.value)
        .chain([reading.value])
        .filter(|value| value.is_finite())
        .collect();
    let range = |values: &[f64]| {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        (least, values.iter().copied().fold(f64::NEG_INFINITY, f64::max))
    };
    let (low, high) = range(&values);
    let bounds = [reading.least, reading.most, reading.of].into_iter().flatten().filter(|b| b.is_finite());
    let (from, until) = range(&bounds.chain(values).collect::<Vec<_>>());
    let margin = ((until - from) * 0.1).max(until.abs().max(from.abs()) * 1e-3).max(f64::MIN_POSITIVE);
    let (from, until) = (from - margin, until + margin);
    let x = |value: f64| ((value - from) / (until - from) * WIDTH).clamp(0.0, WIDTH);
    let rect = |class: &str, from: f64, until: f64, top: f64, height: f64| {
        let width = (until - from).max(1.0);
        format!(
            "<rect class=\"{class}\" x=\"{from:.1}\" y=\"{top}\" width=\"{width:.1}\" height=\"{height}\"/>"
        )
    };
    let line = |value: f64| {
        let x = x(value);
        format!("<line class=\"of\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"1\" y2=\"{}\"/>", HEIGHT - 1.0)
    };
    let allowed = (reading.least.map_or(0.0, x), reading.most.map_or(WIDTH, x));
    format!(
        "<svg class=\"band\" width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\"><title>{}</title>{}{}{}\
         <circle class=\"base\" cx=\"{:.1}\" cy=\"{}\" r=\"3\"/></svg>",
        escape(&caption(&reading, (low, high), verdict.neighbours.len())),
        rect("allowed", allowed.0, allowed.1, 3.0, HEIGHT - 6.0),
        rect("over", x(low), x(high), HEIGHT / 2.0 - 3.0, 6.0),
        reading.of.map(line).unwrap_or_default(),
        x(reading.value),
        HEIGHT / 2.0,
    )
}

/// The picture's content in words.
fn caption(reading: &Reading, (low, high): (f64, f64), neighbours: usize) -> String {
    let mut text = format!("base {}", number(reading.value));
    if neighbours > 0 {
        text.push_str(&format!(", with {neighbours} neighbours {} to {}", number(low), number(high)));
    }
    let allowed = match (reading.least, reading.most) {
        (Some(least), Some(most)) => format!("{} to {}", number(least), number(most)),
        (Some(least), None) => format!("from {}", number(least)),
        (None, Some(most)) => format!("up to {}", number(most)),
        (None, None) => return text,
    };
    text.push_str(&format!("; allowed: {allowed}"));
    if let Some(of) = reading.of {
        text.push_str(&format!("; the paper's: {}", number(of)));
    }
    text
}

const WIDTH: f64 = 150.0;
const HEIGHT: f64 = 20.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::{AtNeighbour, Status};

    fn verdict(reading: Option<Reading>, neighbours: &[f64]) -> ClaimVerdict {
        let at = |value: &f64| AtNeighbour {
            at: "seed 2".into(),
            status: Status::Met,
            measured: String::new(),
            value: Some(*value),
        };
        ClaimVerdict { reading, neighbours: neighbours.iter().map(at).collect(), ..ClaimVerdict::default() }
    }

    #[test]
    fn the_band_spans_all_neighbours_and_the_base_lies_in_it() {
        let reading = Reading { value: 10.0, of: Some(11.0), least: Some(9.0), most: Some(13.0) };
        let svg = picture(&verdict(Some(reading), &[8.0, 12.0]));
        assert!(
            svg.contains("base 10, with 2 neighbours 8 to 12; allowed: 9 to 13; the paper&#39;s: 11")
                || svg.contains("the paper's: 11"),
            "{svg}"
        );
        // 150 pixels from 7.5 to 13.5: 25 pixels per unit.
        assert!(svg.contains("class=\"over\" x=\"12.5\" y=\"7\" width=\"100.0\""), "{svg}");
        assert!(svg.contains("class=\"allowed\" x=\"37.5\" y=\"3\" width=\"100.0\""), "{svg}");
        assert!(svg.contains("x1=\"87.5\"") && svg.contains("cx=\"62.5\""), "{svg}");
    }

    #[test]
    fn one_bound_reaches_to_the_edge_and_no_number_has_no_picture() {
        let reading = Reading { value: 1.0, of: None, least: Some(0.0), most: None };
        let svg = picture(&verdict(Some(reading), &[]));
        assert!(svg.contains("base 1; allowed: from 0") && !svg.contains("class=\"of\""), "{svg}");
        assert!(picture(&verdict(None, &[1.0])).is_empty());
        assert!(picture(&verdict(Some(Reading { value: f64::INFINITY, ..reading }), &[])).is_empty());
    }
}
