//! Runs beside those of another program: in how many cases each measure lies in its range.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use tollway_scenario::plan::Plan;
use tollway_scenario::tables::RunResult;

use crate::data;
use crate::grid::{Cells, GridPart};
use crate::papers;
use crate::sizes::quantile;

/// Cases of the grid, of each of which another program had a range for each measure.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ranges {
    /// The name in the table `ranges`.
    pub name: String,
    /// The part of the grid to compare.
    #[serde(default, rename = "where")]
    pub part: GridPart,
    /// The axis of the cases. The variants of a case are its runs, whose median is compared.
    pub cases: String,
    /// The link whose queue is measured.
    pub link: String,
    /// A CSV file beside the experiment's with the columns `case`, `measure`, `least` and `most`.
    pub reference: String,
}

/// The least and the largest value of another program, by case and measure.
type Known = BTreeMap<(String, String), (f64, f64)>;

impl Ranges {
    /// The number of cases inside the range, for each measure.
    ///
    /// # Errors
    /// The reference cannot be read, names a case or measure that is not there, or lacks one.
    pub(crate) fn inside<'a>(
        &self,
        cells: &Cells,
        runs: impl Iterator<Item = (&'a Plan, &'a RunResult)>,
        folder: &Path,
    ) -> Result<BTreeMap<&'static str, f64>, String> {
        let path = folder.join(&self.reference);
        let text = papers::read(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        self.count(cells, runs, &text).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// As `inside`, with the reference's text.
    fn count<'a>(
        &self,
        cells: &Cells,
        runs: impl Iterator<Item = (&'a Plan, &'a RunResult)>,
        reference: &str,
    ) -> Result<BTreeMap<&'static str, f64>, String> {
        let mut known = parse(reference)?;
        let chosen: Vec<&str> = cells.within(&self.part).collect();
        let mut measured: BTreeMap<(String, &'static str), Vec<f64>> = BTreeMap::new();
        for (plan, run) in runs.filter(|(_, run)| chosen.contains(&run.variant.as_str())) {
            let cell = cells.cell(&run.variant).unwrap_or_default();
            let case = cell.iter().find(|at| at.axis == self.cases);
            let case = &case.ok_or_else(|| format!("the grid has no axis `{}`", self.cases))?.point;
            for (measure, value) in measures(&self.link, plan, run)? {
                measured.entry((case.clone(), measure)).or_default().push(value);
            }
        }
        let mut inside = BTreeMap::new();
        for ((case, measure), mut values) in measured {
            let missing = || format!("there is no {measure} of case {case}");
            let (least, most) = known.remove(&(case.clone(), measure.to_owned())).ok_or_else(missing)?;
            values.sort_by(f64::total_cmp);
            let median = quantile(&values, 0.5);
            *inside.entry(measure).or_insert(0.0) += f64::from(u8::from(least <= median && median <= most));
        }
        if let Some(((case, measure), _)) = known.pop_first() {
            return Err(format!("{measure} of case {case}: the runs have none"));
        }
        Ok(inside)
    }
}

/// The compared numbers. The use of the link and its mean queue, in packets, are from the end of
/// the warm-up on. Loss is the part of the flows' packets that the link dropped.
fn measures(link: &str, plan: &Plan, run: &RunResult) -> Result<[(&'static str, f64); 5], String> {
    let links = data::summary(&run.link_summary, "link");
    let row =
        links.iter().find(|row| row.name == link).ok_or_else(|| format!("no link is called `{link}`"))?;
    let flows = data::summary(&run.summary, "flow");
    let (mut packets, mut timeouts, mut points) = (0.0, 0.0, Vec::new());
    for flow in &plan.flows {
        let of_flow = |row: &&data::FlowInfo| row.name == flow.name;
        let row = flows.iter().find(of_flow).ok_or_else(|| format!("flow `{}` has no row", flow.name))?;
        packets += row.get("sent_bytes") / f64::from(plan.transports[flow.transport.0 as usize].packet_size);
        timeouts += row.whole("timeouts");
        points.push((flow.path.base_rtt.as_secs_f64(), row.get("rate_mbps").max(1e-6)));
    }
    Ok([
        ("utilisation", row.get("utilisation")),
        ("loss", row.whole("drops") / packets),
        ("queue", row.get("queue_mean_packets")),
        ("exponent", exponent(&points)),
        ("timeouts", timeouts),
    ])
}

/// a in rate ∝ RTT^a, by least squares in the logarithm.
fn exponent(points: &[(f64, f64)]) -> f64 {
    let logarithms: Vec<(f64, f64)> = points.iter().map(|&(x, y)| (libm::log(x), libm::log(y))).collect();
    data::slope(&logarithms)
}

fn parse(text: &str) -> Result<Known, String> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#'));
    if lines.next().is_none_or(|(_, head)| head != "case,measure,least,most") {
        return Err("the first line is not `case,measure,least,most`".into());
    }
    let mut known = Known::new();
    for (i, line) in lines {
        let wrong = || format!("line {}: `{line}` is not a case, a measure and its range", i + 1);
        let [case, measure, least, most] = line.split(',').collect::<Vec<_>>()[..] else {
            return Err(wrong());
        };
        let (Ok(least), Ok(most)) = (least.parse::<f64>(), most.parse::<f64>()) else { return Err(wrong()) };
        // False for NaN, too.
        let ordered = least <= most;
        if !ordered || known.insert((case.into(), measure.into()), (least, most)).is_some() {
            return Err(wrong());
        }
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use tollway_scenario::file::Scenario;

    use super::*;
    use crate::runner::Runner;

    const TEXT: &str = r#"
name = "t"
duration = "3 s"
node = { s = { count = 2 }, m = {}, d = { count = 2 } }
link.in = { from = "s", to = "m", rate = "1 Gbps", delay = { first = "5 ms", last = "20 ms" }, limit = "unlimited" }
link.b = { from = "m", to = "d.1", rate = "2 Mbps", delay = "5 ms", limit = "5 packets" }
link.out = { from = "d.1", to = "d.2", rate = "1 Gbps", delay = "0 ms", limit = "unlimited" }
flow.f = { from = "s", to = "d", law = "newreno", start = { random = "100 ms" } }
[grid.rate.slow]
[grid.rate.fast]
"link.b.rate" = "3 Mbps"
[grid.case.small]
[grid.case.large]
"link.b.limit" = "9 packets"
[grid.start]
set = "seed"
to = [1, 2, 3]
"#;

    fn count(reference: &str) -> Result<BTreeMap<&'static str, f64>, String> {
        let scenario = Scenario::parse("t.toml", TEXT, &[] as &[&str]).unwrap();
        let ran = Runner::default().run(&scenario, None).unwrap();
        let plans = scenario.variants().iter().map(|variant| &variant.plan);
        let ranges: Ranges = toml::from_str(
            "name = 'slow'\nwhere = { rate = 'slow' }\ncases = 'case'\nlink = 'b'\nreference = 'x.csv'",
        )
        .unwrap();
        ranges.count(&Cells::of(&scenario), plans.zip(ran.iter().map(|ran| &ran.result)), reference)
    }

    const REFERENCE: &str = "# from elsewhere\ncase,measure,least,most\n\
        small,utilisation,0.3,1\nsmall,loss,0.001,0.3\nsmall,queue,0.1,5\nsmall,exponent,-4,0\nsmall,timeouts,0,99\n\
        large,utilisation,0,0.01\nlarge,loss,0.001,0.3\nlarge,queue,9.5,99\nlarge,exponent,-4,0\nlarge,timeouts,0,99\n";

    #[test]
    fn cases_whose_median_is_in_the_range_are_counted() {
        let wanted =
            [("exponent", 2.0), ("loss", 2.0), ("queue", 1.0), ("timeouts", 2.0), ("utilisation", 1.0)];
        assert_eq!(count(REFERENCE), Ok(BTreeMap::from(wanted)));
    }

    #[test]
    fn a_reference_of_other_cases_is_refused() {
        let missing = REFERENCE.replace("large,loss,0.001,0.3\n", "");
        assert_eq!(count(&missing).unwrap_err(), "there is no loss of case large");
        let more = format!("{REFERENCE}huge,loss,0,1\n");
        assert_eq!(count(&more).unwrap_err(), "loss of case huge: the runs have none");
    }

    #[test]
    fn a_damaged_reference_is_refused_in_place() {
        let told =
            |line: &str| parse(&format!("# x\ncase,measure,least,most\na,loss,0,1\n{line}\n")).unwrap_err();
        for line in ["b,loss,1,0", "b,loss,nan,1", "b,loss,0", "b,loss,0,1,2", "a,loss,0,1", ""] {
            assert!(told(line).starts_with(&format!("line 4: `{line}`")), "{}", told(line));
        }
        assert!(parse("case,least,most\n").unwrap_err().contains("first line"));
    }

    #[test]
    fn the_exponent_is_the_slope_of_logarithms() {
        assert!((exponent(&[(0.1, 4.0), (0.2, 1.0), (0.4, 0.25)]) + 2.0).abs() < 1e-12);
    }
}
