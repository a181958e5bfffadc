//! For each metric, a run in which a claim holds, and the same run with a fault in which it does
//! not.

use std::path::Path;

use tollway_report::Experiment;
use tollway_report::claim::{self, Metric, Status};
use tollway_scenario::tables::{
    ControlRow, FlowRow, FlowSummary, LinkRow, LinkSummary, Outputs, RunResult, TableWriter,
};

/// The keys of a claim for each metric, beside the metric itself.
fn keys(metric: Metric) -> &'static str {
    use Metric::*;
    match metric {
        Utilisation | Drops | Marks | QueueMeanBytes | QueueMaxBytes | QueueMeanPackets | QueueMaxPackets
        | QueueMeanOfLimit | QueueMaxOfLimit | QueueMeanMs | LinkPrice => "link = \"b\"",
        ShareOfFair => "link = \"b\"\nflow = \"f\"",
        PacketFeedback => "link = \"b\"\nover = \"mean\"",
        SteadyPart => "flow = \"f\"\nspan = \"2 s\"\nfraction = 0.05",
        PriceSwing => "flow = \"f\"\nspan = \"2 s\"",
        CwndPeriod | PacingPeriod => "flow = \"f\"\nfraction = 1.5\nfrom = \"0 s\"\nover = \"mean\"",
        TimeToReach => "link = \"b\"\nfraction = 0.5",
        SeriesDeviation => "flow = \"f\"\nspan = \"4 s\"\nreference = \"rates.csv\"",
        Table => "name = \"t.x\"",
        Jain | TotalRate | TotalGoodput | TotalRateVariation | Retransmissions | Timeouts | Finished => "",
        Rate | Goodput | ShareOfIdeal | RateVariation | Cwnd | CwndMax | CwndEnd | CwndSlope | Rtt
        | RttMax | Fct | Spending => "flow = \"f\"",
    }
}

/// A run of 40 s with the flows `f` and `g` on the link `b`, with a fault in the quantity that the
/// metric `broken` measures.
fn run(broken: Option<Metric>) -> RunResult {
    use Metric::*;
    let is = |metrics: &[Metric]| broken.is_some_and(|broken| metrics.contains(&broken));
    let off = |metrics: &[Metric], value: f64| if is(metrics) { value * 1.2 } else { value };
    let mut w = TableWriter::new(&Outputs::memory()).unwrap();
    for t in 1..=40_u32 {
        let time_s = f64::from(t);
        let even = t % 2 == 0;
        let peak = |every: u32| if t % every == 0 { 2.0 } else { 1.0 };
        for (flow, rate) in [("f", 5.0), ("g", 4.0)] {
            let mut rate_mbps = off(&[Rate, TotalRate, ShareOfFair, ShareOfIdeal, SeriesDeviation], rate);
            if is(&[RateVariation, TotalRateVariation]) && even
                || is(&[SteadyPart]) && t % 8 < 4
                || is(&[Jain]) && flow == "g"
            {
                rate_mbps *= 0.5;
            }
            let mut cwnd = peak(if is(&[CwndPeriod]) { 5 } else { 4 }) * 10.0;
            if is(&[CwndSlope]) {
                cwnd += time_s;
            }
            let row = FlowRow {
                time_s,
                flow,
                rate_mbps,
                goodput_mbps: off(&[Goodput, TotalGoodput], rate),
                cwnd_packets: off(&[Cwnd, CwndMax, CwndEnd], cwnd),
                rtt_ms: Some(off(&[Rtt, RttMax], 100.0)),
                pacing_mbps: Some(peak(if is(&[PacingPeriod]) { 5 } else { 4 })),
                retransmissions: u64::from(is(&[Retransmissions]) && t == 20),
                spending: Some(off(&[Spending], 1.0)),
                price: Some(if is(&[PriceSwing]) && t > 30 { 2.0 } else { 1.0 }),
                ..FlowRow::default()
            };
            w.flow(&row).unwrap();
        }
        let reached = t > if is(&[TimeToReach]) { 6 } else { 3 };
        let link = LinkRow {
            time_s,
            link: "b",
            utilisation: off(&[Utilisation], if reached { 0.8 } else { 0.1 }),
            queue_mean_bytes: off(&[QueueMeanBytes, QueueMeanOfLimit, QueueMeanMs], 1000.0),
            queue_max_bytes: off(&[QueueMaxBytes, QueueMaxOfLimit], 2000.0),
            queue_mean_packets: off(&[QueueMeanPackets], 1.0),
            queue_max_packets: off(&[QueueMaxPackets], 2.0),
            drops: u64::from(is(&[Drops]) && t == 20),
            marks: u64::from(is(&[Marks]) && t == 20),
            price: Some(off(&[LinkPrice], 0.1)),
        };
        w.link(&link).unwrap();
        let feedback_packets = off(&[PacketFeedback], 0.3);
        let control =
            ControlRow { time_s, link: "b", interval_ms: 1000.0, feedback_packets, ..ControlRow::default() };
        w.control(&control).unwrap();
    }
    for flow in ["f", "g"] {
        let finished = !(is(&[Finished]) && flow == "g");
        let summary = FlowSummary {
            flow,
            finish_s: finished.then_some(40.0),
            fct_s: finished.then_some(off(&[Fct], 40.0)),
            size_bytes: Some(1000),
            timeouts: u64::from(is(&[Timeouts])),
            ideal_mbps: Some(5.0),
            ..FlowSummary::default()
        };
        w.flow_summary(&summary).unwrap();
    }
    let b = LinkSummary { link: "b", capacity_mbps: 10.0, limit_bytes: Some(4000), ..LinkSummary::default() };
    w.link_summary(&b).unwrap();
    let mut run = w.finish("").unwrap();
    run.systems.set("t", &[], "x", off(&[Table], 7.0));
    run
}

#[test]
fn a_fault_in_what_is_measured_makes_a_claim_fail_whatever_the_metric() {
    let folder = std::env::temp_dir().join(format!("tollway-mutations-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let rows: String = (1..=40).map(|t| format!("{t},5.0\n")).collect();
    std::fs::write(folder.join("rates.csv"), format!("time_s,f_mbps\n{rows}")).unwrap();
    let judged = |metric: Metric, bound: &str, run: RunResult| {
        let text =
            format!("[[claim]]\nid = \"a\"\nmetric = \"{}\"\n{}\n{bound}\n", metric.name(), keys(metric));
        let experiment = Experiment::parse(&text, &folder.join("x.toml")).unwrap();
        let report = claim::check(&experiment.claims, &[run], &experiment.context(Vec::new()));
        report.claims[0].clone()
    };
    for &metric in Metric::ALL {
        let name = metric.name();
        let found = judged(metric, "equals = -1", run(None));
        let value = found.reading.unwrap_or_else(|| panic!("{name}: {}", found.measured)).value;
        // Near the value of the sound run: 1 %, or a thousandth if it is 0.
        let bound = format!("within = {{ of = {value:?}, absolute = {:?} }}", (value.abs() * 0.01).max(1e-3));
        assert_eq!(judged(metric, &bound, run(None)).status, Status::Met, "{name}");
        let broken = judged(metric, &bound, run(Some(metric)));
        assert_eq!(broken.status, Status::Unmet, "{name}: {bound}, measured {}", broken.measured);
        assert!(broken.reading.is_some(), "{name} fails for want of data: {}", broken.measured);
    }
    std::fs::remove_dir_all(Path::new(&folder)).unwrap();
}
