//! The table of control intervals of an explicit law.

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use tollway_scenario::file::Scenario;
use tollway_scenario::run::{Options, run};
use tollway_scenario::tables::{Outputs, RunResult};

/// One flow on a link whose capacity grows by half at 40 s.
///
/// The round trip is the study's, half a second. A control interval then has some 420 packets, so
/// that a single packet hardly matters.
const STEP: &str = r#"
name = "step"
duration = "44 s"

[measure]
interval = "100 ms"

[node.a]
[node.b]

[link.wire]
from = "a"
to = "b"
rate = "10 Mbps"
delay = "250 ms"
limit = "unlimited"
law = "LAW"

[flow.f]
from = "a"
to = "b"
law = "xcp"

[[change]]
at = "40 s"
link = "wire"
direction = "forward"
rate = "15 Mbps"
capacity = "15 Mbps"
"#;

fn result(law: &str, sets: &[&str]) -> RunResult {
    let scenario = Scenario::parse("step.toml", &STEP.replace("LAW", law), sets).unwrap();
    let options = Options { outputs: Outputs::memory(), ..Options::default() };
    run(&scenario.variants()[0].plan, &options).unwrap().result
}

fn column(result: &RunResult, name: &str) -> Vec<f64> {
    let batches = result.control.iter();
    batches
        .flat_map(|batch| batch.column_by_name(name).unwrap().as_primitive::<Float64Type>().values().to_vec())
        .collect()
}

#[test]
fn intervals_follow_each_other_and_the_first_after_a_step_gives_alpha_times_it() {
    let result = result("xcp", &[]);
    let (ends, lengths) = (column(&result, "time_s"), column(&result, "interval_ms"));
    let feedback = column(&result, "feedback_packets");
    // 44 s of round trips a little longer than half a second, with queues at the start. Each
    // interval begins where the last one ended.
    assert!((80..=130).contains(&ends.len()), "{}", ends.len());
    let steady = ends.iter().position(|end| *end > 5.0).unwrap();
    for i in steady..ends.len() {
        assert!((ends[i] - lengths[i] * 1e-3 - ends[i - 1]).abs() < 1e-9, "a gap before {} s", ends[i]);
    }
    let first = (0..ends.len()).find(|&i| ends[i] - lengths[i] * 1e-3 >= 40.0).unwrap();
    assert!((feedback[first] / 0.2 - 1.0).abs() < 0.02, "{}", feedback[first]);
    assert!(feedback[first - 1].abs() < 0.01, "{}", feedback[first - 1]);
}

#[test]
fn a_law_without_control_intervals_has_no_rows() {
    assert!(column(&result("drop-tail", &["flow.f.law=newreno"]), "time_s").is_empty());
}
