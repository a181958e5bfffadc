//! Curves, and their decimation for display.

/// A named line.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Curve {
    pub(crate) name: String,
    /// Index into the palette.
    pub(crate) colour: usize,
    /// True if each point is marked, for few points with nothing known between them.
    pub(crate) dotted: bool,
    /// The points (time in seconds, value), in order of time. A NaN breaks the line.
    pub(crate) points: Vec<(f64, f64)>,
    /// The band around the curve: (time, least, largest).
    pub(crate) band: Vec<(f64, f64, f64)>,
    /// Drawn thin and pale below the others, without a name; one of many.
    pub(crate) faint: bool,
}

impl Curve {
    /// At most about `4 · columns` points that look the same on `columns` pixels from `from` to
    /// `until`: the first, least, largest and last point in each column, in their order.
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

/// Replaces each value by the mean of the values within half of `span` seconds before and after it.
/// NaN values stay, and do not count.
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
            // Rounding errors of the running sum become zero.
            point.1 = if mean.abs() < 1e-9 { 0.0 } else { mean };
        }
    }
}

/// Removes every other piece of length `span` from the line, so that a curve below it is visible.
pub(crate) fn dash(points: &mut [(f64, f64)], span: f64) {
    if span > 0.0 {
        points.iter_mut().filter(|p| (p.0 / span) % 2.0 >= 1.0).for_each(|p| p.1 = f64::NAN);
    }
}

/// The median of many curves at each instant with a value, with the range from 10 to 90 %, followed
/// by the curves, or an even selection of them, as faint ones.
pub(crate) fn crowd(curves: Vec<Curve>) -> Vec<Curve> {
    let mut points: Vec<(f64, f64)> =
        curves.iter().flat_map(|c| &c.points).copied().filter(|p| !p.1.is_nan()).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let name = format!("median of {}, with 10 to 90 %", curves.len());
    let mut median = Curve { name: name.clone(), ..Curve::default() };
    for moment in points.chunk_by(|a, b| b.0 - a.0 < 1e-9) {
        let at = |part: f64| moment[libm::round(part * (moment.len() - 1) as f64) as usize].1;
        median.points.push((moment[0].0, moment[moment.len() / 2].1));
        median.band.push((moment[0].0, at(0.1), at(0.9)));
    }
    let each = curves.len().div_ceil(MOST_FAINT);
    let faint = curves.into_iter().step_by(each).map(|c| Curve { name: name.clone(), faint: true, ..c });
    [median].into_iter().chain(faint).collect()
}

/// The top of a scale for `curves`, and the peak above it, if any. A peak lies in the first tenth
/// of a curve, exceeds twice all later values, and lasts less than a thirtieth of the curve.
pub(crate) fn top<'a>(curves: impl Iterator<Item = &'a Curve>) -> (f64, Option<f64>) {
    let mut starts: Vec<(usize, Vec<f64>)> = Vec::new();
    let (mut rest, mut high) = (f64::NEG_INFINITY, f64::NEG_INFINITY);
    for curve in curves {
        let known: Vec<(f64, f64)> = curve.points.iter().copied().filter(|p| p.1.is_finite()).collect();
        let ends = known.first().zip(known.last()).map_or((0.0, 0.0), |(first, last)| (first.0, last.0));
        let until = ends.0 + 0.1 * (ends.1 - ends.0);
        let (start, later): (Vec<_>, Vec<_>) = known.iter().copied().partition(|p| p.0 < until);
        rest = later.iter().fold(rest, |most, p| most.max(p.1));
        high = known.iter().fold(high, |most, p| most.max(p.1));
        starts.push((known.len() / 30, start.into_iter().map(|p| p.1).collect()));
    }
    let brief =
        |(most, start): &(usize, Vec<f64>)| start.iter().filter(|v| **v > 2.0 * rest).count() <= *most;
    if high > 2.0 * rest && rest > 0.0 && starts.iter().all(brief) {
        return (rest * 1.1, Some(high));
    }
    (high, None)
}

/// Upper bound on faint curves.
const MOST_FAINT: usize = 60;

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
        // A sender with a burst every other interval, a gap, then silence.
        let mut points: Vec<(f64, f64)> =
            (0..100).map(|i| (0.1 * f64::from(i), if i % 2 == 0 && i < 60 { 8.0 } else { 0.0 })).collect();
        points[70].1 = f64::NAN;
        smooth(&mut points, 1.0);
        assert!(points[10..50].iter().all(|p| (p.1 - 4.0).abs() < 0.4), "{points:?}");
        assert!(points[70].1.is_nan() && points[72].1 == 0.0 && points[99].1 == 0.0);
        assert_eq!(points[10].0, 1.0);
    }

    #[test]
    fn many_curves_become_a_median_with_a_band_over_faint_ones() {
        let points = |i: u32| vec![(1.0, f64::from(i)), (2.0, 1.0)];
        let curves = (0..101).map(|i| Curve { points: points(i), ..Curve::default() }).collect();
        let drawn = crowd(curves);
        assert_eq!((drawn[0].points[0], drawn[0].band[0]), ((1.0, 50.0), (1.0, 10.0, 90.0)));
        assert_eq!((drawn[0].points.len(), drawn[0].faint, drawn.len()), (2, false, 1 + 51));
        assert!(drawn[1..].iter().all(|c| c.faint && c.name == drawn[0].name));
    }

    #[test]
    fn a_peak_at_the_start_does_not_set_the_scale() {
        let of = |value: fn(u32) -> f64| Curve {
            points: (0..600).map(|i| (0.1 * f64::from(i), value(i))).collect(),
            ..Curve::default()
        };
        let found = |value| top([of(value)].iter());
        assert_eq!(found(|i| if i < 10 { 500.0 } else { 10.0 }), (11.0, Some(500.0)));
        // A level that lasts, a later peak, a peak below twice the rest, and a peak before silence
        // are all drawn whole.
        assert_eq!(found(|i| if i < 50 { 500.0 } else { 10.0 }).1, None);
        assert_eq!(found(|i| if i == 300 { 500.0 } else { 10.0 }).1, None);
        assert_eq!(found(|i| if i < 10 { 15.0 } else { 10.0 }), (15.0, None));
        assert_eq!(found(|i| if i < 10 { 15.0 } else { 0.0 }), (15.0, None));
        assert_eq!(top([].iter()), (f64::NEG_INFINITY, None));
    }
}
