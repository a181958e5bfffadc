//! The check of claims against runs.

use std::path::{Path, PathBuf};

use tollway_scenario::tables::RunResult;

use super::bound::{Bound, Side};
use super::measure::{Sample, measure};
use super::verdict::{ClaimVerdict, Reading, Report, Status, number, quantity};
use super::{Claim, Measurement, Over};
use crate::data;
use crate::grid::{Cells, GridPart};

/// The context of an experiment's claims.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// The experiment file's folder, which has the reference series.
    pub folder: PathBuf,
    /// The source of the experiment, for claims without their own.
    pub source: String,
    /// Peer programs that are not installed. Claims that need one are skipped.
    pub missing: Vec<String>,
    /// The positions of variants in the experiment's grid.
    pub cells: Cells,
}

/// Checks `claims` against `runs`, one run per variant.
pub fn check(claims: &[Claim], runs: &[RunResult], context: &Context) -> Report {
    let mut verdicts = Vec::new();
    for claim in claims {
        let pattern = &claim.measurement.variant;
        if let Some(part) = &claim.measurement.part {
            verdicts.push(check_part(claim, part, runs, context));
            continue;
        }
        if !pattern.contains('*') {
            verdicts.push(check_one(claim, runs, context).verdict);
            continue;
        }
        let stars: Vec<String> = runs.iter().filter_map(|r| data::glob(pattern, &r.variant)).collect();
        if stars.is_empty() {
            verdicts.push(check_one(claim, runs, context).verdict);
        }
        for star in stars {
            verdicts.push(check_one(&of_variant(claim, &star), runs, context).verdict);
        }
    }
    Report::new(verdicts)
}

/// The claim for the variant in which `*` stands for `star`.
fn of_variant(claim: &Claim, star: &str) -> Claim {
    let fill = |m: &mut Measurement| m.variant = m.variant.replacen('*', star, 1);
    let mut claim = claim.clone();
    claim.id = format!("{}.{star}", claim.id);
    fill(&mut claim.measurement);
    for bound in &mut claim.bounds {
        if let Side::Other { measurement, .. } = bound.side_mut() {
            fill(measurement);
        }
    }
    claim
}

/// One verdict for all variants in a part of the grid.
fn check_part(claim: &Claim, part: &GridPart, runs: &[RunResult], context: &Context) -> ClaimVerdict {
    let mut whole = unmeasured(claim, context);
    if whole.status == Status::Skipped {
        return whole;
    }
    let variants: Vec<&str> = context.cells.within(part).collect();
    if variants.is_empty() {
        whole.measured = format!("the grid has no variant with {part}");
        return whole;
    }
    if claim.measurement.mean_of_variants {
        return check_mean(claim, &variants, whole, runs, context);
    }
    let mut met = true;
    let mut samples = Vec::new();
    let mut bounds: Vec<String> = Vec::new();
    let mut tightest: Option<(f64, Sample)> = None;
    for &variant in &variants {
        let outcome = match of_cell(claim, variant, &context.cells) {
            Ok(claim) => check_one(&claim, runs, context),
            Err(reason) => {
                whole.measured = reason;
                return whole;
            }
        };
        let Some((slack, worst)) = outcome.tightest else {
            whole.measured = format!("{variant}: {}", outcome.verdict.measured);
            return whole;
        };
        met &= outcome.verdict.status == Status::Met;
        samples.extend(outcome.samples);
        if tightest.as_ref().is_none_or(|(least, _)| slack < *least || slack.is_nan()) {
            let label = format!("{variant} {}", worst.label).trim_end().to_string();
            tightest = Some((slack, Sample { label, ..worst }));
            whole.reading = outcome.verdict.reading;
            // Bounds may differ between variants. The one of the tightest variant is shown beside
            // its value.
            bounds.insert(0, outcome.verdict.expected);
        } else {
            bounds.push(outcome.verdict.expected);
        }
    }
    whole.status = if met { Status::Met } else { Status::Unmet };
    whole.expected.clone_from(&bounds[0]);
    let unit = claim.measurement.metric.unit();
    let runs = if variants.len() == 1 { "run" } else { "runs" };
    whole.measured =
        format!("{} {runs}: {}", variants.len(), shown(&samples, tightest.as_ref().map(|t| &t.1), unit));
    whole
}

/// One verdict for the mean over `variants`, each of which has one value. A measurement on the
/// right side is that of the first variant.
fn check_mean(
    claim: &Claim,
    variants: &[&str],
    mut verdict: ClaimVerdict,
    runs: &[RunResult],
    context: &Context,
) -> ClaimVerdict {
    let of = |&variant: &&str| -> Result<(Claim, f64), String> {
        let claim = of_cell(claim, variant, &context.cells)?;
        match &values(&claim.measurement, runs, context)?[..] {
            [one] => Ok((claim, one.value)),
            several => Err(format!("{variant} has {} values: `over` can make one of them", several.len())),
        }
    };
    let found: Vec<(Claim, f64)> = match variants.iter().map(of).collect() {
        Ok(found) => found,
        Err(reason) => {
            verdict.measured = reason;
            return verdict;
        }
    };
    let value = found.iter().map(|(_, value)| value).sum::<f64>() / found.len() as f64;
    let mut verdict =
        hold(&found[0].0, vec![Sample { label: String::new(), value }], verdict, runs, context).verdict;
    verdict.measured = format!("mean of {} runs: {}", found.len(), verdict.measured);
    verdict
}

/// The claim for one variant of the grid, with the counterparts of the variant on the right side of
/// its bounds.
fn of_cell(claim: &Claim, variant: &str, cells: &Cells) -> Result<Claim, String> {
    let mut claim = claim.clone();
    claim.measurement.part = None;
    claim.measurement.variant = variant.into();
    for bound in &mut claim.bounds {
        if let Side::Other { measurement, .. } = bound.side_mut() {
            if let Some(part) = measurement.part.take() {
                measurement.variant = cells.counterpart(variant, &part)?.to_owned();
            } else if measurement.variant.is_empty() {
                measurement.variant = variant.into();
            }
        }
    }
    Ok(claim)
}

/// A verdict with its samples.
struct SampledVerdict {
    verdict: ClaimVerdict,
    samples: Vec<Sample>,
    /// The least slack over all bounds, and its sample; `None` if no bound could be checked.
    tightest: Option<(f64, Sample)>,
}

impl From<ClaimVerdict> for SampledVerdict {
    fn from(verdict: ClaimVerdict) -> SampledVerdict {
        SampledVerdict { verdict, samples: Vec::new(), tightest: None }
    }
}

/// The verdict before any measurement: unmet, or skipped if a program is missing.
fn unmeasured(claim: &Claim, context: &Context) -> ClaimVerdict {
    let needed = claim.needs.as_ref().filter(|n| context.missing.contains(n));
    ClaimVerdict {
        id: claim.id.clone(),
        says: claim.says.clone(),
        status: if needed.is_some() { Status::Skipped } else { Status::Unmet },
        expected: claim.bounds.iter().map(|b| expected(b, claim, None)).collect::<Vec<_>>().join(" and "),
        measured: needed.map_or(String::new(), |n| format!("needs {n}, which is not installed")),
        source: claim.source.clone().unwrap_or_else(|| context.source.clone()),
        ..ClaimVerdict::default()
    }
}

fn check_one(claim: &Claim, runs: &[RunResult], context: &Context) -> SampledVerdict {
    let mut verdict = unmeasured(claim, context);
    if verdict.status == Status::Skipped {
        return verdict.into();
    }
    match values(&claim.measurement, runs, context) {
        Ok(samples) => hold(claim, samples, verdict, runs, context),
        Err(reason) => {
            verdict.measured = reason;
            verdict.into()
        }
    }
}

/// Checks samples against the claim's bounds.
fn hold(
    claim: &Claim,
    samples: Vec<Sample>,
    mut verdict: ClaimVerdict,
    runs: &[RunResult],
    context: &Context,
) -> SampledVerdict {
    if let Some(bad) = samples.iter().find(|s| s.value.is_nan()) {
        verdict.measured = if bad.label.is_empty() {
            "no data: the value is not a number".into()
        } else {
            format!("no data for {}", bad.label)
        };
        return verdict.into();
    }

    let mut met = true;
    let mut printed = Vec::new();
    let mut sides: Vec<(&Bound, Right)> = Vec::new();
    // The sample with the least slack over all bounds is shown.
    let mut tightest: Option<(f64, &Sample)> = None;
    for bound in &claim.bounds {
        let side = match right_side(bound, claim, runs, context) {
            Ok(side) => side,
            Err(reason) => {
                verdict.measured = format!("nothing to compare with: {reason}");
                return verdict.into();
            }
        };
        printed.push(expected(bound, claim, side.only()));
        for sample in &samples {
            let Some(side) = side.of(&sample.label) else {
                verdict.measured = format!("nothing to compare {} with", sample.label);
                return verdict.into();
            };
            let slack = bound.slack(sample.value, side);
            met &= bound.holds(slack);
            if tightest.is_none_or(|(least, _)| slack < least || slack.is_nan()) {
                tightest = Some((slack, sample));
            }
        }
        sides.push((bound, side));
    }
    verdict.reading = tightest.map(|(_, sample)| reading(sample, &sides));
    verdict.status = if met && !claim.bounds.is_empty() { Status::Met } else { Status::Unmet };
    verdict.expected = printed.join(" and ");
    verdict.measured = shown(&samples, tightest.map(|(_, s)| s), claim.measurement.metric.unit());
    let tightest = tightest.map(|(slack, sample)| (slack, sample.clone()));
    SampledVerdict { verdict, samples, tightest }
}

/// A sample, and the range that all bounds together allow.
fn reading(sample: &Sample, sides: &[(&Bound, Right)]) -> Reading {
    let mut reading = Reading { value: sample.value, of: None, least: None, most: None };
    for (bound, right) in sides {
        let Some(side) = right.of(&sample.label) else { continue };
        let (of, least, most) = bound.range(side);
        reading.of = reading.of.or(of);
        reading.least = reading.least.into_iter().chain(least).reduce(f64::max);
        reading.most = reading.most.into_iter().chain(most).reduce(f64::min);
    }
    reading
}

/// The value that a plot draws of a run: the mean of its measurement's values, NaN without any.
pub(crate) fn mean_value(m: &Measurement, run: &RunResult, folder: &Path) -> f64 {
    let context = Context { folder: folder.to_path_buf(), ..Context::default() };
    let m = Measurement { variant: run.variant.clone(), ..m.clone() };
    let samples = values(&m, std::slice::from_ref(run), &context).unwrap_or_default();
    samples.iter().map(|s| s.value).sum::<f64>() / samples.len() as f64
}

/// The values of a measurement, reduced as its `over` says.
fn values(m: &Measurement, runs: &[RunResult], context: &Context) -> Result<Vec<Sample>, String> {
    let run = match runs {
        [only] if m.variant.is_empty() => only,
        _ if m.variant.is_empty() => {
            return Err("there are several variants, and the claim does not name one".into());
        }
        _ => runs
            .iter()
            .find(|r| r.variant == m.variant)
            .ok_or_else(|| format!("variant `{}` has not run", m.variant))?,
    };
    let samples = measure(m, run, &context.folder)?;
    let all = || samples.iter().map(|s| s.value);
    // NaN is kept, which `f64::min` and `f64::max` would drop.
    let worst = |pick: fn(f64, f64) -> f64| all().reduce(|a, b| if b.is_nan() { b } else { pick(a, b) });
    let value = match m.over.unwrap_or(m.metric.usual_over()) {
        Over::Each => return Ok(samples),
        Over::First => samples.first().map(|s| s.value),
        Over::Mean => Some(all().sum::<f64>() / samples.len() as f64),
        Over::Sum => Some(all().sum()),
        Over::Min => worst(|a, b| if a.is_nan() { a } else { a.min(b) }),
        Over::Max => worst(|a, b| if a.is_nan() { a } else { a.max(b) }),
        Over::P5 => {
            let mut sorted: Vec<f64> = all().collect();
            // NaN first: a value that is missing keeps no bound.
            sorted.sort_by(|a, b| b.is_nan().cmp(&a.is_nan()).then(a.total_cmp(b)));
            sorted.get(sorted.len() / 20).copied()
        }
    };
    Ok(vec![Sample { label: String::new(), value: value.unwrap_or(f64::NAN) }])
}

/// The right side of a bound for several samples.
enum Right {
    /// One value for all samples.
    One(f64),
    /// For each sample, the value with its label.
    Namesakes(Vec<Sample>),
}

impl Right {
    /// The value for the sample with this label.
    fn of(&self, label: &str) -> Option<f64> {
        match self {
            Right::One(value) => Some(*value),
            Right::Namesakes(all) => all.iter().find(|s| s.label == label).map(|s| s.value),
        }
    }

    /// The value, if all samples have the same.
    fn only(&self) -> Option<f64> {
        match self {
            Right::One(value) => Some(*value),
            Right::Namesakes(_) => None,
        }
    }
}

/// The value of a bound's right side. Of several values the strictest counts. If none is strictest
/// (a flow must be *near* another run's flow), each sample is compared with the one of the same
/// name.
fn right_side(bound: &Bound, claim: &Claim, runs: &[RunResult], context: &Context) -> Result<Right, String> {
    match bound.side() {
        Side::Number(n) => Ok(Right::One(*n)),
        Side::ByVariant(numbers) => {
            let variant = &claim.measurement.variant;
            let number = numbers.get(variant).ok_or_else(|| format!("no number for variant `{variant}`"))?;
            Ok(Right::One(*number))
        }
        Side::Other { measurement, times, plus } => {
            let mut sides = values(measurement, runs, context)?;
            sides.iter_mut().for_each(|s| s.value = times * s.value + plus);
            if sides.iter().any(|s| s.value.is_nan()) {
                return Err("the other measurement has a value that is not a number".into());
            }
            let all: Vec<f64> = sides.iter().map(|s| s.value).collect();
            Ok(bound.strictest(&all).map_or(Right::Namesakes(sides), Right::One))
        }
    }
}

/// A bound as text, with the value of its right side if known.
fn expected(bound: &Bound, claim: &Claim, side: Option<f64>) -> String {
    let unit = claim.measurement.metric.unit();
    let text = match bound.side() {
        Side::Number(n) => quantity(*n, unit),
        Side::ByVariant(_) => side.map_or("each variant's own".into(), |n| quantity(n, unit)),
        Side::Other { measurement, times, plus } => {
            let mut text = if measurement.variant != claim.measurement.variant {
                measurement.variant.clone()
            } else {
                "its own".to_string()
            };
            if let Some(name) =
                measurement.name.as_ref().filter(|n| Some(*n) != claim.measurement.name.as_ref())
            {
                text = if text == "its own" { name.clone() } else { format!("{text}'s {name}") };
            }
            if measurement.metric != claim.measurement.metric {
                let whose = match text.as_str() {
                    "its own" => text.clone(),
                    _ => format!("{text}'s"),
                };
                text = format!("{whose} {}", measurement.metric.name());
            }
            if *times != 1.0 {
                text = format!("{} × {text}", number(*times));
            }
            if *plus != 0.0 {
                let sign = if *plus > 0.0 { '+' } else { '−' };
                text = format!("{text} {sign} {}", number(plus.abs()));
            }
            match side {
                Some(value) => format!("{} ({text})", quantity(value, unit)),
                None => text,
            }
        }
    };
    bound.print(&text, number)
}

/// The values as text: a single one, or the range of several with the tightest.
fn shown(samples: &[Sample], tightest: Option<&Sample>, unit: &str) -> String {
    match (samples, tightest) {
        ([one], _) => quantity(one.value, unit),
        (_, Some(tightest)) => {
            let least = samples.iter().map(|s| s.value).fold(f64::INFINITY, f64::min);
            let most = samples.iter().map(|s| s.value).fold(f64::NEG_INFINITY, f64::max);
            let range = format!("{}…{}", number(least), quantity(most, unit));
            format!("{range}; tightest {}: {}", tightest.label, number(tightest.value))
        }
        _ => String::new(),
    }
}
