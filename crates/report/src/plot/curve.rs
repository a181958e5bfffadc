//! Curves, and fewer points that look the same.

use super::Line;

/// A named line.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Curve {
    pub(crate) name: String,
    /// Its number in the palette.
    pub(crate) colour: usize,
    /// Whether each point is marked: few, and nothing known between them.
    pub(crate) dotted: bool,
    /// (time in seconds, value), in order of time; a value that is not a number breaks the line.
    pub(crate) points: Vec<(f64, f64)>,
}

impl Curve {
    /// At most about `4 · columns` points that draw the same line on `columns` pixels: of the points that share a column of
    /// `from` to `until`, the first, least, greatest and last, in their order.
    pub(crate) fn decimated(&self, columns: usize, from: f64, until: f64) -> Vec<(f64, f64)> {
        if self.points.len() <= 4 * columns || until <= from {
            return self.points.clone();
        }
        let column = |t: f64| ((t - from) / (until - from) * columns as f64).floor();
        self.points
            .chunk_by(|a, b| column(a.0) == column(b.0) && a.1.is_nan() == b.1.is_nan())
            .flat_map(|chunk| {
                let by = |a: &usize, b: &usize| chunk[*a].1.total_cmp(&chunk[*b].1);
                let least = (0..chunk.len()).min_by(by).unwrap_or(0);
                let most = (0..chunk.len()).max_by(by).unwrap_or(0);
                let mut keep = [0, least, most, chunk.len() - 1];
                keep.sort_unstable();
                let mut kept: Vec<usize> = keep.to_vec();
                kept.dedup();
                kept.into_iter().map(|i| chunk[i])
            })
            .collect()
    }
}

/// Replaces each value by the mean of those at most half of `span` seconds before and after it. Values that are no numbers
/// stay, and count for nothing.
pub(crate) fn smooth(points: &mut [(f64, f64)], span: f64) {
    let raw = points.to_vec();
    let reach = span / 2.0 + 1e-9;
    let (mut first, mut next) = (0, 0);
    let (mut sum, mut count) = (0.0, 0u32);
    for (i, point) in points.iter_mut().enumerate() {
        while next < raw.len() && raw[next].0 <= raw[i].0 + reach {
            if !raw[next].1.is_nan() {
                sum += raw[next].1;
                count += 1;
            }
            next += 1;
        }
        while raw[first].0 < raw[i].0 - reach {
            if !raw[first].1.is_nan() {
                sum -= raw[first].1;
                count -= 1;
            }
            first += 1;
        }
        if !point.1.is_nan() && count > 0 {
            let mean = sum / f64::from(count);
            // What taking away again leaves of nothing is nothing.
            point.1 = if mean.abs() < 1e-9 { 0.0 } else { mean };
        }
    }
}

/// Takes every other piece of length `span` out of the line, so that what lies beneath it can be seen.
pub(crate) fn dash(points: &mut [(f64, f64)], span: f64) {
    if span > 0.0 {
        points.iter_mut().filter(|p| (p.0 / span) % 2.0 >= 1.0).for_each(|p| p.1 = f64::NAN);
    }
}

/// Median, largest and smallest of many curves at each moment that any of them has.
pub(crate) fn envelope(curves: &[Line]) -> Vec<Line> {
    let mut points: Vec<(f64, f64)> =
        curves.iter().flat_map(|(_, p)| p).copied().filter(|p| !p.1.is_nan()).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let n = curves.len();
    let mut lines: [Line; 3] = [format!("median of {n}"), "largest".to_string(), "smallest".to_string()]
        .map(|name| (name, Vec::new()));
    for moment in points.chunk_by(|a, b| b.0 - a.0 < 1e-9) {
        let picks = [moment[moment.len() / 2], moment[moment.len() - 1], moment[0]];
        lines.iter_mut().zip(picks).for_each(|(line, pick)| line.1.push((moment[0].0, pick.1)));
    }
    lines.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dashes_leave_every_other_piece_out() {
        let mut points: Vec<(f64, f64)> = (0..8).map(|i| (f64::from(i), 1.0)).collect();
        dash(&mut points, 2.0);
        let drawn: Vec<bool> = points.iter().map(|p| p.1.is_finite()).collect();
        assert_eq!(drawn, [true, true, false, false, true, true, false, false]);
        dash(&mut points, 0.0);
    }

    #[test]
    fn decimation_keeps_peaks_gaps_and_order() {
        let mut points: Vec<(f64, f64)> = (0..100_000).map(|i| (i as f64, (i % 7) as f64)).collect();
        points[54_321].1 = 99.0;
        points[12_345].1 = -5.0;
        points[70_000].1 = f64::NAN;
        let curve = Curve { points, ..Curve::default() };
        let few = curve.decimated(500, 0.0, 1e5);
        assert!(few.len() <= 4 * 503, "{}", few.len());
        assert!(few.contains(&(54_321.0, 99.0)) && few.contains(&(12_345.0, -5.0)));
        assert!(few.windows(2).all(|w| w[0].0 < w[1].0));
        assert_eq!(few.iter().filter(|p| p.1.is_nan()).count(), 1);
    }

    #[test]
    fn smoothing_takes_means_and_keeps_gaps() {
        // A sender that bursts every other interval, a gap, then silence.
        let mut points: Vec<(f64, f64)> =
            (0..100).map(|i| (0.1 * f64::from(i), if i % 2 == 0 && i < 60 { 8.0 } else { 0.0 })).collect();
        points[70].1 = f64::NAN;
        smooth(&mut points, 1.0);
        assert!(points[10..50].iter().all(|p| (p.1 - 4.0).abs() < 0.4), "{points:?}");
        assert!(points[70].1.is_nan() && points[72].1 == 0.0 && points[99].1 == 0.0);
        assert_eq!(points[10].0, 1.0);
    }

    #[test]
    fn many_curves_become_three() {
        let curves: Vec<_> =
            (0..9).map(|i| (format!("f.{i}"), vec![(1.0, f64::from(i)), (2.0, 1.0)])).collect();
        let lines = envelope(&curves);
        assert_eq!(lines.iter().map(|l| l.1[0].1).collect::<Vec<_>>(), [4.0, 8.0, 0.0]);
        assert_eq!(lines[0].1.len(), 2);
    }
}
