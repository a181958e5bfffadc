//! Measurement of values in result tables.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use tollway_scenario::tables::RunResult;

use super::{Measurement, Metric, Phases};
use crate::data::{self, FlowInfo, Series, Window};

/// A value with its label: a flow or link, and the window if there are several.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) label: String,
    pub(super) value: f64,
}

/// All values of `m` in `run`, before reduction.
///
/// # Errors
/// The reason why there is no value, as text.
pub(super) fn measure(m: &Measurement, run: &RunResult, folder: &Path) -> Result<Vec<Sample>, String> {
    let bench = Bench::new(m, run)?;
    let samples = match m.metric {
        Metric::Table => number(m, run)?,
        Metric::Timeouts | Metric::Fct | Metric::Finished => bench.lives()?,
        Metric::TimeToReach => vec![bench.time_to_reach()?],
        Metric::SeriesDeviation => super::super::reference::deviation(m, &bench.flows, run, folder)?
            .into_iter()
            .map(|(label, value)| Sample { label, value })
            .collect(),
        _ => {
            let windows = bench.windows()?;
            let several = windows.len() > 1;
            let mut samples = Vec::new();
            for window in windows {
                for mut sample in bench.in_window(window)? {
                    if several {
                        let (from, until) =
                            (super::verdict::number(window.from), super::verdict::number(window.until));
                        sample.label = format!("{} {from}–{until} s", sample.label).trim_start().to_string();
                    }
                    samples.push(sample);
                }
            }
            samples
        }
    };
    if samples.is_empty() {
        return Err("nothing was measured".into());
    }
    Ok(samples)
}

/// A measurement with its selected flows.
struct Bench<'a> {
    m: &'a Measurement,
    run: &'a RunResult,
    duration: f64,
    /// The rows of the selected flows in the summary.
    flows: Vec<FlowInfo>,
}

impl<'a> Bench<'a> {
    fn new(m: &'a Measurement, run: &'a RunResult) -> Result<Bench<'a>, String> {
        let pattern = m.flows.as_deref().unwrap_or("*");
        let flows: Vec<FlowInfo> = data::summary(&run.summary, "flow")
            .into_iter()
            .filter(|f| data::matches(pattern, &f.name))
            .collect();
        if m.flows.is_some() && flows.is_empty() {
            return Err(format!("no flow is called `{pattern}`"));
        }
        Ok(Bench { m, run, duration: data::duration(run), flows })
    }

    /// The windows to measure in.
    fn windows(&self) -> Result<Vec<Window>, String> {
        let end = self.m.until.map_or(self.duration, |t| t.nearest_secs().min(self.duration));
        let phases = match &self.m.phases {
            Phases::At(times) => {
                let times: Vec<f64> = times.iter().map(|t| t.nearest_secs()).collect();
                if let Some(late) = times.iter().find(|&&t| t > end + 1e-9) {
                    return Err(format!("a phase ends at {late} s, after the run's or `until`'s {end} s"));
                }
                times.windows(2).map(|w| Window { from: w[0], until: w[1] }).collect()
            }
            Phases::Automatic(true) => self.automatic_phases(),
            _ => {
                let half = if self.m.metric.is_of_whole_run() { 0.0 } else { end / 2.0 };
                let from = self.m.from.map_or(half, |t| t.nearest_secs());
                return self.cut(Window { from, until: end });
            }
        };
        let last_halves = phases
            .iter()
            .map(|p: &Window| {
                let settle = self.m.settle.map_or(p.length() / 2.0, |settle| settle.nearest_secs());
                Window { from: p.from + settle, until: p.until }
            })
            .filter(|w| w.length() > 0.0)
            .filter(|w| w.until <= end + 1e-9 && self.m.from.is_none_or(|t| t.nearest_secs() <= w.from));
        let windows: Vec<Window> =
            last_halves.map(|w| self.cut(w)).collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
        if windows.is_empty() { Err("the run has no phase to measure in".into()) } else { Ok(windows) }
    }

    /// The stretches between successive starts and ends of the selected flows, if at least one flow
    /// is active. A stretch shorter than 1 % of the run is a late end of a flow, and no phase.
    fn automatic_phases(&self) -> Vec<Window> {
        let mut times: Vec<f64> = self.flows.iter().flat_map(|f| [f.start(), f.end()]).collect();
        times.push(self.duration);
        times.retain(|t| *t <= self.duration);
        times.sort_by(f64::total_cmp);
        times
            .windows(2)
            .map(|w| Window { from: w[0], until: w[1] })
            .filter(|w| w.length() > self.duration * 0.01)
            .filter(|w| self.flows.iter().any(|f| self.lives_through(f, *w)))
            .collect()
    }

    fn cut(&self, window: Window) -> Result<Vec<Window>, String> {
        if window.length() <= 0.0 {
            return Err(format!(
                "the run ends at {} s, before the window",
                super::verdict::number(self.duration)
            ));
        }
        let slides = matches!(self.m.metric, Metric::SteadyPart | Metric::PriceSwing);
        let Some(span) = self.m.span.map(|s| s.nearest_secs()).filter(|s| *s > 0.0 && !slides) else {
            return Ok(vec![window]);
        };
        // An incomplete last piece is left out, unless it is the only one.
        let pieces = ((window.length() / span + 1e-9) as usize).max(1);
        Ok((0..pieces)
            .map(|i| {
                let from = window.from + i as f64 * span;
                Window { from, until: (from + span).min(window.until) }
            })
            .collect())
    }

    fn in_window(&self, window: Window) -> Result<Vec<Sample>, String> {
        use Metric::*;
        match self.m.metric {
            Utilisation => self.of_links("utilisation", |s| s.mean(window)),
            QueueMeanBytes => self.of_links("queue_mean_bytes", |s| s.mean(window)),
            QueueMeanPackets => self.of_links("queue_mean_packets", |s| s.mean(window)),
            QueueMaxBytes => self.of_links("queue_max_bytes", |s| max(s, window)),
            QueueMaxPackets => self.of_links("queue_max_packets", |s| max(s, window)),
            Drops => self.of_links("drops", |s| count(s, window)),
            Marks => self.of_links("marks", |s| count(s, window)),
            QueueMeanOfLimit => self.of_links_over("queue_mean_bytes", "limit_bytes", |s| s.mean(window)),
            QueueMaxOfLimit => self.of_links_over("queue_max_bytes", "limit_bytes", |s| max(s, window)),
            QueueMeanMs => self.of_links("queue_mean_ms", |s| s.mean(window)),
            Rate => self.of_flows("rate_mbps", window, |s| s.mean(window)),
            Goodput => self.of_flows("goodput_mbps", window, |s| s.mean(window)),
            Cwnd => self.of_flows("cwnd_packets", window, |s| s.mean(window)),
            CwndMax => self.of_flows("cwnd_packets", window, |s| max(s, window)),
            CwndEnd => {
                let last = |s: &Series| s.within(window).last().map_or(f64::NAN, |(_, v)| v);
                self.of_flows("cwnd_packets", window, last)
            }
            CwndPeriod => self.periods("cwnd_packets", window),
            PacingPeriod => self.periods("pacing_mbps", window),
            CwndSlope => {
                self.of_flows("cwnd_packets", window, |s| data::slope(&s.within(window).collect::<Vec<_>>()))
            }
            Rtt => self.of_flows("rtt_ms", window, |s| s.mean(window)),
            RttMax => self.of_flows("rtt_ms", window, |s| max(s, window)),
            Retransmissions => self.of_flows("retransmissions", window, |s| count(s, window)),
            SteadyPart => {
                let (span, fraction) = (self.span()?, self.m.fraction.ok_or("the claim has no `fraction`")?);
                let capacity = self.m.capacity.map(|capacity| capacity.mbps());
                self.of_flows("rate_mbps", window, |s| steady(s, window, span, fraction, capacity))
            }
            PriceSwing => {
                let span = self.span()?;
                self.of_flows("price", window, |s| swing(s, window, span))
            }
            RateVariation => self.of_flows("rate_mbps", window, |s| variation(s, window)),
            TotalRateVariation => {
                let value = variation(&total(self.flow_series("rate_mbps")), window);
                Ok(vec![Sample { label: String::new(), value }])
            }
            TotalRate | TotalGoodput => {
                let column = if self.m.metric == TotalRate { "rate_mbps" } else { "goodput_mbps" };
                // A flow that is active for a part of the window adds the data it moved in that
                // part.
                let moved = |s: &Series| -> f64 {
                    let part = |(a, b, v): (f64, f64, f64)| {
                        let overlap = (b.min(window.until) - a.max(window.from)).max(0.0);
                        if overlap > 0.0 { overlap * v } else { 0.0 }
                    };
                    s.intervals().map(part).sum()
                };
                let series = self.flow_series(column);
                if series.is_empty() {
                    return Err("no selected flow has measured rates".into());
                }
                let total: f64 = series.iter().map(moved).sum();
                Ok(vec![Sample { label: String::new(), value: total / window.length() }])
            }
            Jain => {
                let rates = self.of_flows("rate_mbps", window, |s| s.mean(window))?;
                let rates: Vec<f64> = rates.iter().map(|s| s.value).collect();
                Ok(vec![Sample { label: String::new(), value: tollway_theory::jain(&rates) }])
            }
            ShareOfFair => {
                let capacity = self.capacity()?;
                let mut rates = self.of_flows("rate_mbps", window, |s| s.mean(window))?;
                let fair = capacity / rates.len() as f64;
                rates.iter_mut().for_each(|s| s.value /= fair);
                Ok(rates)
            }
            ShareOfIdeal => {
                let mut rates = self.of_flows("rate_mbps", window, |s| s.mean(window))?;
                for sample in &mut rates {
                    let ideal =
                        self.flows.iter().find(|f| f.name == sample.label).map(|f| f.get("ideal_mbps"));
                    sample.value /= ideal.unwrap_or(f64::NAN);
                }
                Ok(rates)
            }
            PacketFeedback => self.of_control("feedback_packets", window),
            LinkPrice => self.of_links("price", |s| s.mean(window)),
            Spending => self.of_flows("spending", window, |s| s.mean(window)),
            Timeouts | Fct | Finished | TimeToReach | SeriesDeviation | Table => Ok(Vec::new()),
        }
    }

    /// The length of the moving window, in seconds.
    fn span(&self) -> Result<f64, String> {
        let span = self.m.span.map(|span| span.nearest_secs()).filter(|span| *span > 0.0);
        span.ok_or_else(|| format!("the claim has no `span` for `{}`", self.m.metric.name()))
    }

    fn of_links(&self, column: &str, value: impl Fn(&Series) -> f64) -> Result<Vec<Sample>, String> {
        let pattern = self.m.link.as_deref().ok_or("the claim does not name a link")?;
        let links: Vec<Sample> = data::series(&self.run.links, column)
            .iter()
            .filter(|s| data::matches(pattern, &s.name))
            .map(|s| Sample { label: s.name.clone(), value: value(s) })
            .collect();
        if links.is_empty() { Err(format!("no link is called `{pattern}`")) } else { Ok(links) }
    }

    /// [`Bench::of_links`], divided by a column of the link's summary.
    fn of_links_over(
        &self,
        column: &str,
        by: &str,
        value: impl Fn(&Series) -> f64,
    ) -> Result<Vec<Sample>, String> {
        let links = data::summary(&self.run.link_summary, "link");
        let mut samples = self.of_links(column, value)?;
        for sample in &mut samples {
            let divisor = links.iter().find(|l| l.name == sample.label).map_or(f64::NAN, |l| l.get(by));
            if divisor.is_nan() || divisor <= 0.0 {
                return Err(format!("link `{}` has no {by}", sample.label));
            }
            sample.value /= divisor;
        }
        Ok(samples)
    }

    /// The times between crossings of a fraction of the median, for each flow.
    fn periods(&self, column: &str, window: Window) -> Result<Vec<Sample>, String> {
        let fraction = self.m.fraction.ok_or("the claim has no `fraction` of the median to cross")?;
        let mut samples = Vec::new();
        for series in self.flow_series(column) {
            let points: Vec<(f64, f64)> = series.within(window).filter(|(_, v)| !v.is_nan()).collect();
            let mut sorted: Vec<f64> = points.iter().map(|p| p.1).collect();
            sorted.sort_by(f64::total_cmp);
            let Some(median) = sorted.get(sorted.len() / 2) else { continue };
            let beyond = |v: f64| if fraction < 1.0 { v < fraction * median } else { v > fraction * median };
            let crossed = points.windows(2).filter(|p| !beyond(p[0].1) && beyond(p[1].1));
            let times: Vec<f64> = crossed.map(|p| p[1].0).collect();
            samples.extend(
                times
                    .windows(2)
                    .map(|t| Sample { label: format!("{} {:.2} s", series.name, t[0]), value: t[1] - t[0] }),
            );
        }
        if samples.is_empty() {
            return Err(format!("{column} does not cross {fraction} of its median twice"));
        }
        Ok(samples)
    }

    /// One value for each control interval that begins in the window.
    fn of_control(&self, column: &str, window: Window) -> Result<Vec<Sample>, String> {
        let pattern = self.m.link.as_deref().ok_or("the claim does not name a link")?;
        let lengths = data::series(&self.run.control, "interval_ms");
        let mut samples = Vec::new();
        for (s, length) in data::series(&self.run.control, column).iter().zip(&lengths) {
            if !data::matches(pattern, &s.name) {
                continue;
            }
            for ((end, value), length) in s.times.iter().zip(&s.values).zip(&length.values) {
                let begin = end - length * 1e-3;
                if begin >= window.from - 1e-9 && begin < window.until {
                    let label = format!("{} {begin:.2} s", s.name);
                    samples.push(Sample { label, value: *value });
                }
            }
        }
        if samples.is_empty() {
            return Err(format!(
                "no link `{pattern}` has a law with control intervals, or no interval began"
            ));
        }
        Ok(samples)
    }

    fn flow_series(&self, column: &str) -> Vec<Series> {
        let selected: HashSet<&str> = self.flows.iter().map(|f| f.name.as_str()).collect();
        let mut all = data::series(&self.run.flows, column);
        all.retain(|s| selected.contains(s.name.as_str()));
        all
    }

    /// One value for each selected flow that is active in the whole window; for counts and peaks,
    /// for every selected flow.
    fn of_flows(
        &self,
        column: &str,
        window: Window,
        value: impl Fn(&Series) -> f64,
    ) -> Result<Vec<Sample>, String> {
        let whole_run = self.m.metric.is_of_whole_run();
        let all = self.flow_series(column);
        let by_name: HashMap<&str, &Series> = all.iter().map(|s| (s.name.as_str(), s)).collect();
        let samples: Vec<Sample> = self
            .flows
            .iter()
            .filter(|f| whole_run || self.lives_through(f, window))
            .map(|f| {
                let value = by_name.get(f.name.as_str()).map_or(f64::NAN, |s| value(s));
                Sample { label: f.name.clone(), value }
            })
            .collect();
        if samples.is_empty() {
            let (from, until) = (super::verdict::number(window.from), super::verdict::number(window.until));
            return Err(format!("no selected flow is active from {from} s to {until} s"));
        }
        Ok(samples)
    }

    fn lives_through(&self, flow: &FlowInfo, window: Window) -> bool {
        let slack = 1e-3 * self.duration.max(1.0);
        flow.start() <= window.from + slack && flow.end() >= window.until - slack
    }

    /// The values that come from the summary alone.
    fn lives(&self) -> Result<Vec<Sample>, String> {
        let all = self.flows.iter();
        let sample = |f: &FlowInfo, value: f64| Sample { label: f.name.clone(), value };
        match self.m.metric {
            Metric::Timeouts => Ok(all.map(|f| sample(f, f.whole("timeouts"))).collect()),
            Metric::Finished => {
                if self.flows.is_empty() {
                    return Err("the run has no flow".into());
                }
                let in_time =
                    |f: &FlowInfo| self.m.until.is_none_or(|t| f.get("finish_s") <= t.nearest_secs());
                let finished = all.filter(|f| !f.get("fct_s").is_nan() && in_time(f)).count();
                Ok(vec![Sample { label: String::new(), value: finished as f64 }])
            }
            _ => {
                let from = self.m.from.map_or(0.0, |t| t.nearest_secs());
                let until = self.m.until.map_or(f64::INFINITY, |t| t.nearest_secs());
                let finished: Vec<Sample> = all
                    .filter(|f| !f.get("fct_s").is_nan() && f.start() >= from && f.start() <= until)
                    .filter(|f| self.m.max_size.is_none_or(|most| f.get("size_bytes") <= most.get() as f64))
                    .map(|f| sample(f, f.get("fct_s")))
                    .collect();
                if finished.is_empty() { Err("no selected flow finished".into()) } else { Ok(finished) }
            }
        }
    }

    fn capacity(&self) -> Result<f64, String> {
        if let Some(capacity) = self.m.capacity {
            return Ok(capacity.mbps());
        }
        let pattern = self.m.link.as_deref().ok_or("the claim has neither `link` nor `capacity`")?;
        let links = data::summary(&self.run.link_summary, "link");
        let link = links.iter().find(|l| data::matches(pattern, &l.name));
        let capacity = link.ok_or_else(|| format!("no link is called `{pattern}`"))?.get("capacity_mbps");
        if capacity > 0.0 { Ok(capacity) } else { Err(format!("link `{pattern}` has no single capacity")) }
    }

    fn time_to_reach(&self) -> Result<Sample, String> {
        let from = self.m.from.map_or(0.0, |t| t.nearest_secs());
        let until = self.m.until.map_or(f64::INFINITY, |t| t.nearest_secs());
        let fraction = self.m.fraction.unwrap_or(0.0);
        let series = match &self.m.link {
            Some(pattern) if self.m.flows.is_none() => data::series(&self.run.links, "utilisation")
                .into_iter()
                .find(|s| data::matches(pattern, &s.name))
                .ok_or_else(|| format!("no link is called `{pattern}`"))?,
            _ => {
                let capacity = if fraction > 0.0 { self.capacity()? } else { 1.0 };
                let mut total = total(self.flow_series("rate_mbps"));
                total.values.iter_mut().for_each(|v| *v /= capacity);
                total
            }
        };
        let span = self.m.span.map_or(0.0, |s| s.nearest_secs());
        for (time, value) in series.within(Window { from, until }) {
            let value = if span > 0.0 {
                if time - span < from - 1e-9 {
                    continue;
                }
                series.mean(Window { from: time - span, until: time })
            } else {
                value
            };
            if value > 0.0 && value >= fraction {
                return Ok(Sample { label: String::new(), value: time - from });
            }
        }
        let (fraction, from) = (super::verdict::number(fraction), super::verdict::number(from));
        Err(format!("never reaches {fraction} after {from} s"))
    }
}

fn number(m: &Measurement, run: &RunResult) -> Result<Vec<Sample>, String> {
    let name = m.name.as_deref().ok_or("the claim has no `name` of a number")?;
    let found: Vec<Sample> = run
        .systems
        .numbers()
        .filter(|(path, _)| data::glob(name, path).is_some())
        .map(|(label, value)| Sample { label, value })
        .collect();
    if found.is_empty() { Err(format!("the run has no number called `{name}`")) } else { Ok(found) }
}

/// The sum of several series over their common times. A time missing in one counts as 0 there.
fn total(all: Vec<Series>) -> Series {
    let interval = all.first().map_or(0.0, |s| s.interval);
    let mut points: Vec<(f64, f64)> =
        all.iter().flat_map(|s| s.times.iter().copied().zip(s.values.iter().copied())).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut sum = Series { interval, ..Series::default() };
    for (time, value) in points {
        let value = if value.is_nan() { 0.0 } else { value };
        match (sum.times.last(), sum.values.last_mut()) {
            (Some(last), Some(sum)) if time - last < 1e-9 => *sum += value,
            _ => {
                sum.times.push(time);
                sum.values.push(value);
            }
        }
    }
    sum
}

fn max(s: &Series, window: Window) -> f64 {
    s.within(window).map(|(_, v)| v).reduce(f64::max).unwrap_or(f64::NAN)
}

fn count(s: &Series, window: Window) -> f64 {
    s.within(window).map(|(_, v)| v).reduce(|a, b| a + b).unwrap_or(f64::NAN)
}

/// The fraction of the windows of length `span` in which the mean is within `fraction` of `aim`, by
/// default of the mean of all.
fn steady(s: &Series, window: Window, span: f64, fraction: f64, aim: Option<f64>) -> f64 {
    let aim = aim.unwrap_or_else(|| s.mean(window));
    let ends = s.within(window).map(|(time, _)| time).filter(|time| time - span >= window.from - 1e-9);
    let means: Vec<f64> = ends.map(|until| s.mean(Window { from: until - span, until })).collect();
    let near = means.iter().filter(|mean| (**mean - aim).abs() <= fraction * aim).count();
    if means.is_empty() { f64::NAN } else { near as f64 / means.len() as f64 }
}

/// The largest ratio of two values at most `span` apart, larger over smaller.
fn swing(s: &Series, window: Window, span: f64) -> f64 {
    let points: Vec<(f64, f64)> = s.within(window).collect();
    let mut worst = f64::NAN;
    for (i, &(time, value)) in points.iter().enumerate() {
        for &(_, before) in points[..i].iter().rev().take_while(|(then, _)| time - then <= span + 1e-9) {
            worst = worst.max((value / before).max(before / value));
        }
    }
    worst
}

/// The standard deviation over the mean.
fn variation(s: &Series, window: Window) -> f64 {
    let values: Vec<f64> = s.within(window).map(|(_, v)| v).collect();
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n;
    // A single value has no variation.
    if mean > 0.0 && values.len() > 1 { libm::sqrt(variance) / mean } else { f64::NAN }
}
