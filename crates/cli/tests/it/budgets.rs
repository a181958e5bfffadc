//! Scenarios beyond the means of a machine: each is refused quickly, with the reason.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::common::{self, folder, text};

const NODES: &str = "name = \"absurd\"\nduration = \"10 s\"\n[node.a]\n[node.b]\n";

/// The error of a scenario that runs with 500 MB of memory and 5 s of processor time.
fn refusal(name: &str, scenario: &str, more: &str) -> String {
    let dir = folder("budgets", name);
    fs::write(dir.join("s.toml"), scenario).expect("written");
    let line = format!("ulimit -d 500000; ulimit -t 5; exec \"$0\" run s.toml {more}");
    let mut command = Command::new("sh");
    command.args(["-c", &line, env!("CARGO_BIN_EXE_tollway")]).env("NO_COLOR", "1").current_dir(&dir);
    let output = command.output().expect("sh starts");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    said.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ")
}

fn link(rate: &str, more: &str) -> String {
    format!("[link.wire]\nfrom = \"a\"\nto = \"b\"\nrate = \"{rate}\"\ndelay = \"10 ms\"\n{more}\n")
}

const FLOW: &str = "[flow.f]\nfrom = \"a\"\nto = \"b\"\nlaw = \"cubic\"\n";

#[test]
fn packets_on_a_wire_without_bound_are_refused() {
    let absurd = refusal("absurd", &format!("{NODES}{}{FLOW}", link("1e18 bps", "")), "");
    assert!(absurd.contains("`rate` must be from 1 kbps to 100 Tbps"), "{absurd}");
    for (name, delay) in [("fast", "10 ms"), ("instant", "0 s")] {
        let scenario = format!("{NODES}{}{FLOW}", link("100 Tbps", "").replace("10 ms", delay));
        let said = refusal(name, &scenario, "");
        assert!(said.contains("for packets in the queue of `[link.wire]` or on it"), "{said}");
    }
}

#[test]
fn a_queue_without_limit_is_refused_where_it_would_not_fit() {
    let scenario = format!("{NODES}{}{FLOW}", link("100 Gbps", "limit = \"none\""));
    let said = refusal("unlimited", &scenario, "--memory 4GB");
    assert!(said.contains("more than the 4 GB") && said.contains("`limit`"), "{said}");
}

#[test]
fn queues_by_the_thousand_million_are_refused() {
    let group = NODES.replace("[node.a]\n", "[node.a]\ncount = 100000\n");
    let queues = "law = \"fq-codel\"\nlimit = \"100 packets\"\n[link.wire.fq-codel]\nqueues = 65536";
    let said = refusal("queues", &format!("{group}{}{FLOW}", link("10 Mbps", queues)), "");
    assert!(said.contains("for the queues of `[link.wire]`"), "{said}");
}

#[test]
fn flows_and_their_first_windows_are_counted() {
    let many = format!("{FLOW}count = 1000\ninitial-window = 1000000\n");
    let said = refusal("windows", &format!("{NODES}{}{many}", link("10 Mbps", "")), "--memory 1GB");
    assert!(said.contains("for flows and their windows"), "{said}");
}

#[test]
fn millions_of_nodes_are_refused() {
    let group = |name: &str| format!("[node.{name}]\ncount = 1000000\n");
    let access =
        |name: &str| link("10 Mbps", "").replace("wire", name).replace("\"a\"", &format!("\"{name}\""));
    let flow = "[flow.f]\nbetween = \"*\"\nlaw = \"cubic\"\n";
    let all = [NODES, &group("c"), &group("d"), &access("c"), &access("d"), flow].concat();
    let said = refusal("nodes", &all, "");
    assert!(said.contains("more than 1000000 nodes in all"), "{said}");
}

#[test]
fn devices_and_fifos_are_no_files() {
    let dir = folder("budgets", "fifo");
    let fifo = dir.join("pipe");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo starts").success());
    let traced = |file: &str| {
        let trace = format!("trace = {file:?}");
        format!("{NODES}{}{FLOW}", link("10 Mbps", &trace).replace("rate = \"10 Mbps\"\n", ""))
    };
    for (name, file) in [("zero", "/dev/zero"), ("pipe", fifo.to_str().expect("UTF-8"))] {
        let said = refusal(name, &traced(file), "");
        assert!(said.contains("it is a device, FIFO or socket; name a regular file"), "{said}");
    }
}

/// A simulated nanosecond holds eight packets here, so that a hundredth of the run takes hours.
#[test]
fn a_dense_run_ends_when_it_is_told_to() {
    let dir = folder("budgets", "dense");
    let cbr = "[cbr.c]\nfrom = \"a\"\nto = \"b\"\nrate = \"100 Tbps\"\n";
    let wire = link("100 Tbps", "limit = \"20 packets\"").replace("10 ms", "0 s");
    fs::write(dir.join("s.toml"), format!("{NODES}{wire}{cbr}")).expect("written");
    let mut child = common::tollway(&["run", "s.toml", "--out", "out", "--quiet"])
        .current_dir(&dir)
        .spawn()
        .expect("the command starts");
    let within = |done: &mut dyn FnMut() -> bool| {
        (0..1200).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            done()
        })
    };
    assert!(within(&mut || dir.join("out").exists()));
    let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill runs");
    let ended = within(&mut || child.try_wait().expect("it is a child").is_some());
    child.kill().expect("no error once it has ended");
    assert!(sent.success() && ended);
    assert_eq!(child.wait().expect("it has ended").code(), Some(130));
}
