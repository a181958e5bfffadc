//! The simulator's TCP beside the kernel's. The same flows over the same links are simulated, and
//! run as connections of this machine's kernel, between network namespaces over emulated links.
//!
//! A `[[live]]` table with a table `[live.kernel]` makes up to three claims per variant.
//! `ID.VARIANT.goodput` is for all flows together, `.period` for the mean time between reductions
//! of a flow's window, and `.jain` for Jain's index of several flows. Both sides leave out the
//! measure's `warmup`.

use std::sync::Mutex;

use tollway_law::Time;
use tollway_scenario::file::{Scenario, Variant};
use tollway_scenario::run::mesh::{self, KernelOutcome, KernelSample};

use crate::agreement::Agreement;
use crate::claim::{ClaimVerdict, Report, Status};
use crate::data;
use crate::experiment::Experiment;
use crate::live::{LiveClaim, Tolerances};
use crate::reproduce::ReproduceError;
use crate::runner::{Progress, Ran, Runner};

/// Runs `scenario` in the simulator and with the kernel's TCP, and compares the results. The claims
/// are skipped if the system allows no namespaces.
///
/// # Errors
/// A run fails on either side.
pub fn agree(
    scenario: &Scenario,
    experiment: &Experiment,
    comparison: &LiveClaim,
    bounds: &Tolerances,
    progress: Option<Progress<'_>>,
) -> Result<Report, ReproduceError> {
    // One after the other: runs in real time need the whole machine.
    let simulated = Runner::default().run(scenario, None)?;
    let outcomes = run(scenario, comparison, bounds, progress)?;
    let mut verdicts = Vec::new();
    for ((variant, sim), outcome) in scenario.variants().iter().zip(&simulated).zip(&outcomes) {
        let id = match variant.name.as_str() {
            "" => comparison.id.clone(),
            name => format!("{}.{name}", comparison.id),
        };
        let mut verdict =
            |what: &str, expected: String, judged: &dyn Fn(&Fared, &Fared) -> (bool, String)| {
                let outcome = match outcome {
                    Ok(outcome) => {
                        let late = outcome.record.lateness.percentile(0.99).as_millis_f64();
                        let (met, measured) =
                            judged(&Fared::of_simulator(variant, sim), &Fared::of_kernel(variant, outcome));
                        Agreement::of(met, format!("{measured} (99 % of packets at most {late:.2} ms late)"))
                    }
                    Err(why) => Agreement { status: Status::Skipped, measured: why.clone() },
                };
                verdicts.push(ClaimVerdict {
                    id: format!("{id}.{what}"),
                    says: comparison.says.clone(),
                    status: outcome.status,
                    expected,
                    measured: outcome.measured,
                    source: experiment.source.clone(),
                    neighbourhood: Some(0),
                    ..ClaimVerdict::default()
                });
            };
        let near = |kernel: f64, sim: f64, percent: f64| (kernel - sim).abs() <= sim * percent / 100.0;
        verdict(
            "goodput",
            format!("total goodput within {} % of the simulator's", bounds.goodput_percent),
            &|sim, kernel| {
                let (sim, kernel) = (sim.goodput(), kernel.goodput());
                (near(kernel, sim, bounds.goodput_percent), format!("{kernel:.3} versus {sim:.3} Mb/s"))
            },
        );
        verdict(
            "period",
            format!(
                "time between a window's reductions within {} % of the simulator's",
                bounds.period_percent
            ),
            &|sim, kernel| {
                let met = near(kernel.period(), sim.period(), bounds.period_percent);
                let times = |fared: &Fared| fared.reductions.iter().map(Vec::len).sum::<usize>();
                let (kernel_s, sim_s) = (kernel.period(), sim.period());
                (
                    met,
                    format!(
                        "{kernel_s:.2} ({} reductions) versus {sim_s:.2} s ({})",
                        times(kernel),
                        times(sim)
                    ),
                )
            },
        );
        if variant.plan.flows.len() > 1 {
            verdict(
                "jain",
                format!("Jain's index within {} of the simulator's", bounds.jain),
                &|sim, kernel| {
                    let (sim, kernel) =
                        (tollway_theory::jain(&sim.rates), tollway_theory::jain(&kernel.rates));
                    ((kernel - sim).abs() <= bounds.jain, format!("{kernel:.3} versus {sim:.3}"))
                },
            );
        }
    }
    Ok(Report::new(verdicts))
}

/// The outcome of the kernel's connections for each variant, or the reason for its absence.
fn run(
    scenario: &Scenario,
    comparison: &LiveClaim,
    bounds: &Tolerances,
    progress: Option<Progress<'_>>,
) -> Result<Vec<Result<KernelOutcome, String>>, ReproduceError> {
    let failed = |message: String| ReproduceError::Kernel { claim: comparison.id.clone(), message };
    let variants: Vec<(usize, &Variant)> = scenario.variants().iter().enumerate().collect();
    let mut outcomes = Vec::new();
    for chunk in variants.chunks(bounds.at_once.max(1)) {
        let failure = Mutex::new(None);
        let run_one = |&(i, variant): &(usize, &Variant)| -> Result<KernelOutcome, String> {
            let plan = &variant.plan;
            let fail = |message: String| {
                if let Ok(mut failure) = failure.lock() {
                    failure.get_or_insert(message);
                }
                String::new()
            };
            let mesh = mesh::mesh(plan).map_err(|error| fail(error.to_string()))?;
            let flows = mesh::kernel_flows(plan).map_err(|error| fail(error.to_string()))?;
            let go_on = |at: Time| {
                progress.is_none_or(|progress| progress(i, at.as_secs_f64() / plan.duration.as_secs_f64()))
            };
            mesh::run_kernel(&mesh, &flows, plan.duration, plan.measure.interval.unwrap_or(LOOK), &go_on)
                .map_err(|error| error.to_string())
        };
        let ran: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = chunk.iter().map(|entry| scope.spawn(|| run_one(entry))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| Err("it broke off".into())))
                .collect()
        });
        if let Ok(Some(message)) = failure.into_inner() {
            return Err(failed(message));
        }
        outcomes.extend(ran);
    }
    Ok(outcomes)
}

/// The results of flows on one side, after the warm-up.
#[derive(Clone, Debug, Default, PartialEq)]
struct Fared {
    /// The goodput of each flow, in Mb/s.
    rates: Vec<f64>,
    /// The instants of reductions of each flow's window, in seconds.
    reductions: Vec<Vec<f64>>,
}

impl Fared {
    fn of_simulator(variant: &Variant, ran: &Ran) -> Fared {
        let from = variant.plan.measure.warmup.nearest_secs();
        let rates =
            data::summary(&ran.result.summary, "flow").iter().map(|flow| flow.get("goodput_mbps")).collect();
        let windows = data::series(&ran.result.flows, "cwnd_packets");
        let points = |series: &data::Series| -> Vec<(f64, f64)> {
            let pairs = series.times.iter().copied().zip(series.values.iter().copied());
            pairs.filter(|(at, window)| *at >= from && !window.is_nan()).collect()
        };
        Fared { rates, reductions: windows.iter().map(|series| reductions(&points(series))).collect() }
    }

    fn of_kernel(variant: &Variant, outcome: &KernelOutcome) -> Fared {
        let from = variant.plan.measure.warmup;
        let after = |samples: &[KernelSample]| -> Vec<KernelSample> {
            samples.iter().filter(|sample| sample.at >= from).copied().collect()
        };
        let rate = |samples: Vec<KernelSample>| match (samples.first(), samples.last()) {
            (Some(first), Some(last)) if last.at > first.at => {
                (last.read - first.read) as f64 * 8e-6 / (last.at - first.at).as_secs_f64()
            }
            _ => 0.0,
        };
        let windows = |samples: Vec<KernelSample>| -> Vec<(f64, f64)> {
            samples.iter().map(|sample| (sample.at.nearest_secs(), f64::from(sample.window))).collect()
        };
        Fared {
            rates: outcome.flows.iter().map(|samples| rate(after(samples))).collect(),
            reductions: outcome.flows.iter().map(|samples| reductions(&windows(after(samples)))).collect(),
        }
    }

    fn goodput(&self) -> f64 {
        self.rates.iter().sum()
    }

    /// The mean time between successive reductions over all flows, in seconds; NaN if there are too
    /// few.
    fn period(&self) -> f64 {
        let span =
            |times: &Vec<f64>| times.last().zip(times.first()).map_or(0.0, |(last, first)| last - first);
        let spans: f64 = self.reductions.iter().map(span).sum();
        let steps: usize = self.reductions.iter().map(|times| times.len().saturating_sub(1)).sum();
        spans / steps as f64
    }
}

/// The instants of a window's reductions: falls by a fifth from its maximum, in any number of
/// steps, before it grows again.
fn reductions(windows: &[(f64, f64)]) -> Vec<f64> {
    let mut times = Vec::new();
    let (mut highest, mut lowest) = (0.0f64, f64::INFINITY);
    let mut falling = false;
    for &(at, window) in windows {
        if falling {
            lowest = lowest.min(window);
            if window > lowest * GREW {
                (falling, highest) = (false, window);
            }
        } else {
            highest = highest.max(window);
            if window < highest * FELL {
                times.push(at);
                (falling, lowest) = (true, window);
            }
        }
    }
    times
}

/// The default sampling interval of connections.
const LOOK: Time = Time::from_millis(50);
/// CUBIC's window falls to 0.7, Reno's to 0.5.
const FELL: f64 = 0.8;
/// More than the growth of one acknowledgement, and less than the growth of either law between two
/// reductions.
const GREW: f64 = 1.03;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sawtooth_s_teeth_are_counted() {
        // Ten to twenty in a second, then down in two steps.
        let tooth = |i: usize| match i % 12 {
            10 => 15.0,
            11 => 10.0,
            step => 10.0 + (step + 1) as f64,
        };
        let windows: Vec<(f64, f64)> = (0..60).map(|i| (i as f64 / 10.0, tooth(i))).collect();
        let fared = Fared { rates: vec![1.0], reductions: vec![reductions(&windows)] };
        assert_eq!(fared.reductions[0].len(), 5);
        assert!((fared.period() - 1.2).abs() < 1e-9, "{fared:?}");
        assert!(Fared::default().period().is_nan());
        assert!(reductions(&[(0.0, 10.0), (1.0, 9.0), (2.0, 10.0)]).is_empty());
    }
}
