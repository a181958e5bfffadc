//! A session whose ends and switch are separate processes.

use super::*;

const NODES: [&str; 4] = ["a", "r", "m.1", "m.2"];

/// A scenario of two members behind a switch, with the direction of the frames.
fn session(from: &str, to: &str, frames: u32) -> String {
    format!(
        r#"
        name = "session"
        duration = "40 s"
        [node.a]
        [node.r]
        [node.m]
        count = 2
        [link.access]
        from = "a"
        to = "r"
        rate = "5 Mbps"
        delay = "2 ms"
        law = "xcp"
        symmetric = true
        [link.member]
        from = "r"
        to = "m"
        rate = "5 Mbps"
        delay = "2 ms"
        law = "xcp"
        symmetric = true
        [switch.front]
        node = "r"
        [flow.f]
        from = "{from}"
        to = "{to}"
        session = "front"
        law = "xcp"
        frames = {{ size = "1 kB", count = {frames} }}
        "#
    )
}

/// Runs the session. Returns the output of each node, with the switch last: it is stopped once the
/// others have ended.
fn carry(nodes: &Nodes, switch: &[&str]) -> Vec<Output> {
    let r = nodes.start_with("r", switch);
    let ends: Vec<Process> = ["m.1", "m.2", "a"].into_iter().map(|node| nodes.start(node)).collect();
    let mut outputs: Vec<Output> = ends.into_iter().map(Process::output).collect();
    Nodes::interrupt(&r);
    outputs.push(r.output());
    outputs
}

fn told(output: &Output) -> Value {
    assert!(output.status.code().is_some(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("JSON: {}", text(&output.stderr)))
}

/// A column of the switch's table, by member.
fn members(switch: &Output, column: &str) -> Vec<f64> {
    let rows = told(switch)["runs"][0]["tables"]["members"].as_array().cloned().unwrap_or_default();
    rows.iter().map(|row| row[column].as_f64().unwrap()).collect()
}

#[test]
fn a_session_is_split_and_merged_by_a_process_of_its_own() {
    let Some(nodes) = Nodes::named("split", &session("a", "m", 400), &NODES) else { return };
    let outputs = carry(&nodes, &[]);
    assert_eq!(members(&outputs[3], "received_packets"), [200.0; 2]);
    for output in &outputs[..2] {
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(told(output)["flows"][0]["delivered_bytes"], 200_000);
    }
    assert!(outputs[2].status.success(), "{}", text(&outputs[2].stderr));

    let Some(nodes) = Nodes::named("merge", &session("m", "a", 200), &NODES) else { return };
    let outputs = carry(&nodes, &[]);
    assert_eq!(members(&outputs[3], "sent_packets"), [200.0; 2]);
    // The peer sees one connection; only the switch knows the members' parts.
    let peer = told(&outputs[2]);
    assert!(outputs[2].status.success() && peer["flows"][1]["delivered_bytes"].is_null(), "{peer}");
}

#[test]
fn a_switch_that_reads_another_file_lets_nothing_in() {
    let Some(nodes) = Nodes::named("split-other", &session("a", "m", 400), &NODES) else { return };
    let r = nodes.start_with("r", &["--set", "switch.front.policy=sticky"]);
    let members = ["m.1", "m.2"].map(|node| nodes.start(node));
    let a = nodes.start("a").output();
    let said = text(&a.stderr);
    assert!(said.contains("or that of a switch on the path, has another scenario"), "{said}");
    assert_eq!(a.status.code(), Some(1), "{said}");
    drop((r, members));
}
