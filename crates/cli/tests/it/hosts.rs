//! Nodes as network namespaces: the reports, and the removal of namespaces. No test asserts a
//! speed.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::{alone, folder, tollway};
use serde_json::Value;

/// The kernel's TCP and Tollway's share a router's link.
const SHARED: &str = r#"
    name = "shared"
    duration = "6 s"
    [measure]
    interval = "200 ms"
    warmup = "2 s"
    [node.s]
    count = 2
    [node.r]
    [node.d]
    [link.access]
    from = "s"
    to = "r"
    rate = "100 Mbps"
    delay = "1 ms"
    [link.bottleneck]
    from = "r"
    to = "d"
    rate = "8 Mbps"
    delay = "9 ms"
    limit = "40 packets"
    law = "by-class"
    [class.tcp]
    law = "drop-tail"
    [class.xcp]
    law = "fcp"
    weight = 2
    [flow.kernels]
    from = "s.1"
    to = "d"
    law = "cubic"
    transport = "kernel"
    class = "tcp"
    [flow.ours]
    from = "s.2"
    to = "d"
    law = "fcp"
    class = "xcp"
"#;

fn file(name: &str) -> PathBuf {
    let path = folder("hosts", name).join("shared.toml");
    std::fs::write(&path, SHARED).unwrap();
    path
}

/// Runs a scenario and returns its JSON; `None`, with `SKIPPED`, if there are no namespaces.
fn run(file: &Path, arguments: &[&str]) -> Option<Value> {
    let output =
        tollway(&["run"]).arg(file).args(arguments).arg("--json").output().expect("the command starts");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    if told.contains("network namespaces") {
        eprintln!("SKIPPED: {told}");
        return None;
    }
    assert!(output.status.success(), "{told}");
    Some(serde_json::from_slice(&output.stdout).expect("JSON"))
}

const NAMESPACES: [&str; 4] = ["--engine", "live", "--hosts", "namespaces"];

/// Names of network namespaces made by the process with this number.
fn names(pid: u32) -> Vec<String> {
    let prefix = format!("tollway-{pid}.");
    let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    entries
        .filter_map(|e| e.file_name().into_string().ok())
        .filter(|name| name.starts_with(&prefix))
        .collect()
}

#[test]
fn kernels_and_ours_share_links_as_simulated_and_the_kernel_counts_what_is_reported() {
    let file = file("both");
    let Some(live) = run(&file, &NAMESPACES) else { return };
    let simulated = run(&file, &[]).unwrap();
    let number = |told: &Value, table: &str, key: &str, name: &str, what: &str| {
        let rows = told[table].as_array().unwrap();
        rows.iter().find(|row| row[key] == name).unwrap()[what].as_f64().unwrap()
    };
    let kept_up = live["runs"][0]["live"]["kept_up"] == true;
    // The kernel's CUBIC has another slow start: its share is bounded by the weight of its queue.
    let rate = |told: &Value, flow: &str| number(told, "flows", "flow", flow, "rate_mbps");
    if kept_up {
        let (sim, live) = (rate(&simulated, "ours"), rate(&live, "ours"));
        assert!((live / sim - 1.0).abs() < 0.05, "{live} Mb/s for {sim}");
    } else {
        eprintln!("SKIPPED: this machine is too busy for rates to be held against the simulator's");
    }
    assert!(rate(&live, "kernels") > 1.0, "{live}");
    let wires = live["runs"][0]["live"]["wires"].as_array().unwrap();
    assert_eq!(wires.len(), 6);
    for wire in wires {
        let count = |what: &str| wire[what].as_u64().unwrap();
        assert_eq!(count("reported"), count("kernel_sent") + count("kernel_drops"), "{wire}");
        assert!(count("kernel_received") > 0, "{wire}");
    }
    // All bytes delivered crossed the bottleneck.
    let delivered: f64 =
        ["kernels", "ours"].iter().map(|name| number(&live, "flows", "flow", name, "delivered_bytes")).sum();
    let bottleneck = wires.iter().find(|wire| wire["link"] == "bottleneck").unwrap();
    assert!(bottleneck["kernel_received"].as_f64().unwrap() * 1500.0 > delivered, "{bottleneck}");
}

#[test]
fn what_kill_9_leaves_clean_takes_away_and_ctrl_c_leaves_nothing() {
    let _alone = alone();
    let file = file("killed");
    for kill in [true, false] {
        let mut command = tollway(&["run"]);
        command.arg(&file).args(NAMESPACES).arg("--quiet").stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the command starts");
        let until = Instant::now() + Duration::from_secs(20);
        // Four nodes. The namespaces of an ordinary user have no names, so that none can be left.
        while names(child.id()).len() < 4 {
            if child.try_wait().unwrap().is_some() || Instant::now() > until {
                let _ = child.kill();
                let output = child.wait_with_output().unwrap();
                return eprintln!("SKIPPED: no names here: {}", String::from_utf8_lossy(&output.stderr));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        if kill {
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(names(child.id()).len(), 4);
            let output = tollway(&["clean"]).output().unwrap();
            let told = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(told.contains(&format!("removed network namespace tollway-{}.", child.id())), "{told}");
        } else {
            let killed = std::process::Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
            assert!(killed.unwrap().success());
            assert_eq!(child.wait().unwrap().code(), Some(130));
        }
        assert_eq!(names(child.id()), Vec::<String>::new());
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let file = file("refused");
    for (arguments, says) in [
        (&["--hosts", "namespaces"][..], "needs the live engine"),
        (&["--engine", "live", "--hosts", "namespaces", "--node", "r"], "cannot be used with"),
    ] {
        let output = tollway(&["run"]).arg(&file).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(told.contains(says), "{told}");
    }
}
