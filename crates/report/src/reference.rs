//! Reference series: rates from another simulator, for comparison.

#[cfg(any(test, fuzzing))]
#[path = "tests/reference.rs"]
pub(crate) mod fuzzing;

use std::path::Path;

use tollway_scenario::tables::RunResult;

use crate::claim::Measurement;
use crate::data::{self, FlowInfo, Series, Window};
use crate::papers;

/// The largest relative deviation of each flow's rate from the reference file, over windows of
/// length `span` that slide by one interval of the reference. In a window the flow is active, and
/// no flow started less than `skip-after-start` before its end.
pub(crate) fn deviation(
    m: &Measurement,
    flows: &[FlowInfo],
    run: &RunResult,
    folder: &Path,
) -> Result<Vec<(String, f64)>, String> {
    let file = m.reference.as_deref().ok_or("the claim has no `reference` file")?;
    let span = m.span.map(|s| s.nearest_secs()).filter(|s| *s > 0.0).ok_or("the claim has no `span`")?;
    let skip = m.skip_after_start.map_or(0.0, |t| t.nearest_secs());
    let path = folder.join(file);
    let references = read(&path)?;
    let ours = data::series(&run.flows, "rate_mbps");
    let from = m.from.map_or(0.0, |t| t.nearest_secs());
    let until = m.until.map_or(f64::INFINITY, |t| t.nearest_secs()).min(data::duration(run));

    let mut worst = Vec::new();
    for flow in flows {
        let Some(theirs) = references.iter().find(|r| r.name == flow.name) else {
            return Err(format!("{} has no column `{}_mbps`", path.display(), flow.name));
        };
        let Some(ours) = ours.iter().find(|s| s.name == flow.name) else {
            return Err(format!("flow `{}` has no measured rates", flow.name));
        };
        let (ours, theirs) = (Running::new(ours), Running::new(theirs));
        let mut largest: Option<(f64, Window)> = None;
        for &end in &theirs.ends {
            let window = Window { from: end - span, until: end };
            let settled = flows.iter().all(|f| end <= f.start() || window.from >= f.start() + skip - 1e-9);
            let alive = window.from >= flow.start() - 1e-9 && end <= flow.end() + 1e-9;
            if !settled || !alive || window.from < from - 1e-9 || end > until + 1e-9 {
                continue;
            }
            let (a, b) = (ours.over(window), theirs.over(window));
            let deviation = if b > 0.0 {
                (a / b - 1.0).abs()
            } else if a > 0.0 {
                f64::INFINITY
            } else {
                0.0
            };
            if largest.is_none_or(|(worst, _)| deviation > worst || deviation.is_nan()) {
                largest = Some((deviation, window));
            }
        }
        let Some((deviation, window)) = largest else {
            return Err(format!("no window of `{}` is free of starts", flow.name));
        };
        worst.push((format!("{} {:.1}–{:.1} s", flow.name, window.from, window.until), deviation));
    }
    Ok(worst)
}

/// The series of a reference file.
pub(crate) fn read(path: &Path) -> Result<Vec<Series>, String> {
    let text = papers::read(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    parse(&text).map_err(|e| format!("{}: {e}", path.display()))
}

/// A series with its integral up to any instant.
struct Running {
    ends: Vec<f64>,
    /// The integral up to each of `ends`.
    integral: Vec<f64>,
}

impl Running {
    fn new(series: &Series) -> Running {
        let mut running = Running { ends: vec![0.0], integral: vec![0.0] };
        let mut sum = 0.0;
        for (start, end, value) in series.intervals() {
            if running.ends.last().is_some_and(|last| start > last + 1e-9) {
                running.ends.push(start);
                running.integral.push(sum);
            }
            sum += (end - start) * if value.is_nan() { 0.0 } else { value };
            running.ends.push(end);
            running.integral.push(sum);
        }
        running
    }

    fn at(&self, time: f64) -> f64 {
        let i = self.ends.partition_point(|e| *e < time);
        match (i.checked_sub(1).map(|i| (self.ends[i], self.integral[i])), self.ends.get(i)) {
            (None, _) => 0.0,
            (Some((_, last)), None) => last,
            (Some((t0, s0)), Some(t1)) => s0 + (self.integral[i] - s0) * (time - t0) / (t1 - t0),
        }
    }

    fn over(&self, window: Window) -> f64 {
        (self.at(window.until) - self.at(window.from)) / window.length()
    }
}

/// Parses the columns `<flow>_mbps` of a CSV text, over its column `time_s`. Lines starting with
/// `#` are comments.
fn parse(text: &str) -> Result<Vec<Series>, String> {
    let mut lines =
        text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let (_, header) = lines.next().ok_or("the file is empty")?;
    let columns: Vec<&str> = header.split(',').map(str::trim).collect();
    let time_column = columns.iter().position(|c| *c == "time_s").ok_or("there is no column `time_s`")?;
    let mut series: Vec<(usize, Series)> = columns
        .iter()
        .enumerate()
        .filter_map(|(i, c)| Some((i, c.strip_suffix("_mbps")?)))
        .map(|(i, flow)| (i, Series { name: flow.to_string(), ..Series::default() }))
        .collect();
    let mut before = None;
    for (number, line) in lines {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let cell = |i: usize| -> Result<f64, String> {
            let text = cells.get(i).copied().unwrap_or("");
            let value = text.parse().ok().filter(|value: &f64| value.is_finite());
            value.ok_or_else(|| format!("line {}: `{text}` is not a number", number + 1))
        };
        let time = cell(time_column)?;
        if time < 0.0 || before.replace(time).is_some_and(|before| time <= before) {
            return Err(format!("line {}: time {time} s is earlier than the line before", number + 1));
        }
        for (i, s) in &mut series {
            s.times.push(time);
            s.values.push(cell(*i)?);
        }
    }
    Ok(series
        .into_iter()
        .map(|(_, mut s)| {
            let mut steps: Vec<f64> = s.times.windows(2).map(|w| w[1] - w[0]).collect();
            steps.sort_by(f64::total_cmp);
            s.interval = steps.get(steps.len() / 2).copied().unwrap_or(0.0);
            s
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_refuses() {
        let series = parse("# by ns-2\ntime_s,f.1_mbps,queue\n0.1,2.5,7\n0.2,3.5,8\n").unwrap();
        assert_eq!((series.len(), series[0].name.as_str()), (1, "f.1"));
        assert!((series[0].interval - 0.1).abs() < 1e-12);
        assert_eq!(parse("time_s,f_mbps\n1,x\n").unwrap_err(), "line 2: `x` is not a number");
        assert!(parse("t,f_mbps\n").unwrap_err().contains("time_s"));
        // NaN and infinity are rejected, since they would count as zero or match any rate.
        assert_eq!(parse("time_s,f_mbps\n1,nan\n").unwrap_err(), "line 2: `nan` is not a number");
        assert_eq!(parse("time_s,f_mbps\ninf,1\n").unwrap_err(), "line 2: `inf` is not a number");
        assert_eq!(
            parse("time_s,f_mbps\n2,1\n2,1\n").unwrap_err(),
            "line 3: time 2 s is earlier than the line before"
        );
    }

    #[test]
    fn windows_need_not_lie_on_intervals() {
        let s = Series {
            times: vec![1.0, 2.0, 3.0],
            values: vec![1.0, 3.0, 5.0],
            interval: 1.0,
            ..Series::default()
        };
        let r = Running::new(&s);
        assert!((r.over(Window { from: 0.5, until: 2.5 }) - (0.5 + 3.0 + 2.5) / 2.0).abs() < 1e-5);
    }
}
