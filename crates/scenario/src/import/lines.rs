//! Formats with one or two numbers a line. Empty lines and lines that begin with `#` are skipped.

use std::ops::Range;

use tollway_sim::{Trace, TraceError};

use super::ImportError;
use crate::plan::{CdfPoint, Sizes};

/// Reads a Mahimahi trace: each line is the millisecond of an opportunity to deliver 1500 bytes.
///
/// # Errors
/// [`ImportError`] at the first line that is not a whole number or is less than the previous line.
/// [`ImportError`] for the whole text if there is no opportunity, or if all are at 0.
pub fn trace(text: &str) -> Result<Trace, ImportError> {
    const HELP: &str =
        "each line is a time in milliseconds at which 1500 bytes can be sent, and times must not decrease";
    let mut milliseconds = Vec::new();
    let mut places = Vec::new();
    for (span, line) in lines(text) {
        match line.parse::<u32>() {
            Ok(ms) => milliseconds.push(ms),
            Err(_) => {
                return Err(ImportError::new(
                    span,
                    format!("`{}` is not a time in milliseconds", short(line)),
                    HELP,
                ));
            }
        }
        places.push(span.start);
    }
    Trace::new(&milliseconds).map_err(|error| {
        let start = match error {
            TraceError::Backwards { index, .. } => places[index],
            TraceError::Empty | TraceError::NoTime => 0,
        };
        let end = text[start..].find('\n').map_or(text.len(), |i| start + i);
        let message = match error {
            TraceError::Backwards { at, before, .. } => format!("{at} ms follows {before} ms"),
            other => format!("this is not a trace: {other}"),
        };
        ImportError::new(start..end, message, HELP)
    })
}

/// Reads a cumulative distribution of sizes.
///
/// Each line has a size in bytes and the fraction of sizes up to it, as a probability, or as a
/// percentage if the last line has 100. The distribution is linear between points, as in ns-2's
/// `RandomVariable/Empirical` with `interpolation_ 1`. The middle column of that format is
/// optional, and ignored.
///
/// # Errors
/// [`ImportError`] at the first line that is not two or three numbers, or is less than the previous
/// line. [`ImportError`] at the last line if it does not complete the distribution.
pub fn sizes(text: &str) -> Result<Vec<CdfPoint>, ImportError> {
    const HELP: &str = "each line is a size in bytes and its cumulative probability or percentage";
    let mut points: Vec<CdfPoint> = Vec::new();
    let mut last = 0..0;
    for (span, line) in lines(text) {
        let words = line.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty());
        let numbers: Vec<Option<f64>> = words.map(|word| word.parse().ok()).collect();
        let (size, cumulative) = match numbers[..] {
            [Some(size), Some(cumulative)] | [Some(size), Some(_), Some(cumulative)] => (size, cumulative),
            _ => {
                return Err(ImportError::new(span, format!("`{}` is not two numbers", short(line)), HELP));
            }
        };
        let fine = |x: f64| x.is_finite() && x >= 0.0;
        // Sizes have 64 bits, and a flow of an exbibyte is a mistake.
        if !fine(size) || !fine(cumulative) || size > (1u64 << 60) as f64 {
            return Err(ImportError::new(span, format!("`{}` is out of range", short(line)), HELP));
        }
        if let Some(before) = points.last()
            && (size < before.size || cumulative < before.cumulative)
        {
            let message = format!("`{}` follows `{} {}`", short(line), before.size, before.cumulative);
            return Err(ImportError::new(span, message, "both columns must grow"));
        }
        points.push(CdfPoint { size, cumulative });
        last = span;
    }
    match points.last().map(|point| point.cumulative) {
        None => return Err(ImportError::new(0..text.len(), "the file has no sizes", HELP)),
        Some(1.0) => {}
        Some(100.0) => points.iter_mut().for_each(|point| point.cumulative /= 100.0),
        Some(other) => {
            let message = format!("the last line's probability is {other}; it must be 1 or 100 %");
            return Err(ImportError::new(last, message, HELP));
        }
    }
    if points.last().is_some_and(|point| point.size < 1.0) {
        return Err(ImportError::new(last, "its largest size is zero", HELP));
    }
    Ok(points)
}

/// The lines with content, without surrounding space, and their places.
fn lines(text: &str) -> impl Iterator<Item = (Range<usize>, &str)> {
    let mut start = 0;
    text.split_inclusive('\n').filter_map(move |whole| {
        let line = whole.trim();
        let begin = start + (whole.len() - whole.trim_start().len());
        start += whole.len();
        (!line.is_empty() && !line.starts_with('#')).then_some((begin..begin + line.len(), line))
    })
}

/// The beginning of a line for a message: a line may be arbitrarily long.
fn short(line: &str) -> String {
    match line.char_indices().nth(40) {
        None => line.to_owned(),
        Some((end, _)) => format!("{}…", &line[..end]),
    }
}

impl Sizes {
    /// The mean size, bytes.
    pub fn mean(&self) -> f64 {
        match self {
            Sizes::Fixed(size) => *size as f64,
            Sizes::Exponential { mean } | Sizes::Pareto { mean, .. } => *mean,
            Sizes::Empirical(points) => {
                let first = points.first().map_or(0.0, |p| p.size * p.cumulative);
                let part =
                    |w: &[CdfPoint]| (w[1].cumulative - w[0].cumulative) * (w[0].size + w[1].size) / 2.0;
                first + points.windows(2).map(part).sum::<f64>()
            }
        }
    }
}
