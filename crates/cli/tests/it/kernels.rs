//! The kernel's TCP and Tollway's transports on the same emulated links. No test asserts a speed.

use std::process::Output;

use crate::common::{folder, measured, run_in};
use serde_json::Value;

const SHARED: &str = r#"
    name = "shared"
    duration = "4 s"
    [measure]
    interval = "200 ms"
    [node.s]
    count = 3
    [node.r]
    [node.d]
    [link.access]
    from = "s"
    to = "r"
    rate = "100 Mbps"
    [link.bottleneck]
    from = "r"
    to = "d"
    rate = "10 Mbps"
    delay = "5 ms"
    limit = "2 BDP"
    [flow.short]
    from = "s.1"
    to = "d"
    law = "newreno"
    transport = "kernel"
    size = "500 kB"
    [flow.long]
    from = "s.2"
    to = "d"
    law = "cubic"
    transport = "kernel"
    [flow.ours]
    from = "s.3"
    to = "d"
    law = "cubic"
"#;

fn run(name: &str, text: &str, arguments: &[&str]) -> Output {
    let dir = folder("kernels", name);
    std::fs::write(dir.join("s.toml"), text).unwrap();
    run_in(&dir, &[&["run", "s.toml"], arguments].concat())
}

/// Runs a scenario live and returns its JSON; `None`, with `SKIPPED`, if there are no namespaces.
fn live(name: &str, text: &str) -> Option<Value> {
    let output = run(name, text, &["--engine", "live", "--json"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    if told.contains("network namespaces") || told.contains("needs a program") {
        eprintln!("SKIPPED: {told}");
        return None;
    }
    assert!(output.status.success(), "{told}");
    Some(serde_json::from_slice(&output.stdout).expect("JSON"))
}

fn flow<'a>(told: &'a Value, name: &str) -> &'a Value {
    let flows = told["flows"].as_array().unwrap();
    flows.iter().find(|flow| flow["flow"] == name).unwrap()
}

#[test]
fn kernels_share_links_with_ours_and_every_packet_is_accounted_for() {
    let Some(told) = live("shared", SHARED) else { return };
    // The flow arrived whole, with its end.
    assert_eq!(flow(&told, "short")["delivered_bytes"], 500_000);
    assert!(flow(&told, "short")["fct_s"].as_f64().unwrap() > 0.4);
    for name in ["long", "ours"] {
        assert!(flow(&told, name)["delivered_bytes"].as_u64().unwrap() > 100_000, "{told}");
    }
    // The run itself compares the interfaces' counters with its own.
    let live = &told["runs"][0]["live"];
    let kernels =
        [&live["kernel_packets_sent"], &live["kernel_packets_received"]].map(|n| n.as_u64().unwrap());
    let data = (500_000 + flow(&told, "long")["delivered_bytes"].as_u64().unwrap()) / 1448;
    assert!(kernels.iter().all(|&packets| packets > data), "{kernels:?} for {data} of data");
}

/// In both engines a flow lasts until its last acknowledgement. With the last data comes the FIN,
/// whose acknowledgement the kernel may delay.
#[test]
fn a_flow_takes_as_long_as_in_the_simulator() {
    let text = r#"
        name = "short"
        duration = "2 s"
        [node.s]
        [node.d]
        [link.wire]
        from = "s"
        to = "d"
        rate = "20 Mbps"
        delay = "50 ms"
        [flow.f]
        from = "s"
        to = "d"
        law = "cubic"
        size = "16 kB"
        transport = "kernel"
    "#;
    let simulated = run("short", text, &["--json"]);
    let simulated: Value = serde_json::from_slice(&simulated.stdout).unwrap();
    let lasts = |told: &Value| flow(told, "f")["fct_s"].as_f64().unwrap();
    measured(|| {
        let Some(told) = live("short", text) else { return };
        let (live, simulated) = (lasts(&told), lasts(&simulated));
        assert!((live - simulated).abs() < 0.02, "{live} for {simulated}");
    });
}

#[test]
fn a_timeout_that_the_kernel_finds_spurious_leaves_xcp_its_window() {
    // Half of the packets in flight arrive; their acknowledgements are lost.
    let text = r#"
        name = "spurious"
        duration = "6 s"
        [measure]
        interval = "200 ms"
        warmup = "4 s"
        [node.s]
        [node.d]
        [link.l]
        from = "s"
        to = "d"
        rate = "10 Mbps"
        delay = "100 ms"
        limit = "2 BDP"
        law = "xcp"
        [flow.f]
        from = "s"
        to = "d"
        law = "xcp"
        encoding = "tcp-option"
        transport = "kernel"
        [[change]]
        at = "2 s"
        link = "l"
        blackout = "1 s"
    "#;
    measured(|| {
        let Some(told) = live("spurious", text) else { return };
        // 7.0 Mb/s; 0.1 with a window of one packet, and those that are lost counted as in flight.
        let rate = flow(&told, "f")["rate_mbps"].as_f64().unwrap();
        assert!(rate > 3.0, "{rate}");
    });
}

#[test]
fn a_marking_link_marks_the_kernels_packets() {
    let text = SHARED
        .replace("limit = \"2 BDP\"", "limit = \"100 packets\"\n    law = \"step\"\n    [link.bottleneck.step]\n    threshold = \"5 packets\"")
        .replace("law = \"cubic\"\n    transport", "law = \"dctcp\"\n    transport");
    for hosts in ["loopback", "namespaces"] {
        let output = run(&format!("marks-{hosts}"), &text, &["--engine", "live", "--json", "--hosts", hosts]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        if told.contains("network namespaces") || told.contains("does not allow the congestion control") {
            eprintln!("SKIPPED with {hosts}: {told}");
            continue;
        }
        assert!(output.status.success(), "{told}");
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        let marked = |link: &Value| link["marks"].as_u64() > Some(10);
        assert!(told["links"].as_array().unwrap().iter().any(marked), "{hosts}: {told}");
        // With marks as the signal, a sender needs no loss.
        assert!(flow(&told, "long")["delivered_bytes"].as_u64() > Some(100_000), "{hosts}: {told}");
    }
}

#[test]
fn a_buffer_at_either_end_holds_the_kernels_tcp_until_it_grows() {
    let text = SHARED
        .replace("delay = \"5 ms\"", "delay = \"50 ms\"")
        .replace("size = \"500 kB\"", "send-buffer = \"10 packets\"")
        .replace(
            "to = \"d\"\n    law = \"cubic\"\n    transport",
            "to = \"d\"\n    law = \"cubic\"\n    receive-buffer = \"10 packets\"\n    transport",
        )
        // Tollway's flow must not compete here.
        .replace(
            "from = \"s.3\"\n    to = \"d\"\n    law = \"cubic\"\n",
            "from = \"s.3\"\n    to = \"d\"\n    law = \"cubic\"\n    size = \"10 kB\"\n",
        )
        + "    [[change]]\n    at = \"2 s\"\n    flow = \"long\"\n    receive-buffer = \"200 packets\"\n";
    let Some(told) = live("buffers", &text) else { return };
    let delivered = |name: &str| flow(&told, name)["delivered_bytes"].as_u64().unwrap();
    // Ten segments per round trip of 100 ms for four seconds is the upper bound, with some for the
    // first round trips.
    let held = 42 * 10 * 1448;
    assert!((50_000..held).contains(&delivered("short")), "{told}");
    // Two hundred packets fill 10 Mb/s. A window scale chosen for ten could not state that window.
    if delivered("long") < held {
        let punctual =
            told["runs"][0]["lateness"]["departures"]["p99_us"].as_f64().is_some_and(|p99| p99 < 1000.0);
        assert!(!punctual, "{told}");
        eprintln!("NOT CHECKED: the machine can't keep up with 10 Mb/s");
    }
}

#[test]
fn what_the_kernel_has_no_part_in_is_named() {
    let refused = |change: (&str, &str), arguments: &[&str]| {
        let output = run("refused", &SHARED.replace(change.0, change.1), arguments);
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let rcp = refused(("law = \"newreno\"", "law = \"rcp\""), &[]);
    assert!(rcp.contains("the kernel's TCP has no law `rcp`"), "{rcp}");
    let small = refused(
        ("size = \"500 kB\"", "size = \"500 kB\"\n    packet-size = \"100 B\""),
        &["--engine", "live"],
    );
    assert!(small.contains("flow.short.packet-size") || small.contains("network namespaces"), "{small}");
    let held = refused(
        ("size = \"500 kB\"", "size = \"500 kB\"\n    [aggregate.a]\n    rate = \"1 Mbps\""),
        &["--engine", "live"],
    );
    assert!(held.contains("aggregate.a") || held.contains("network namespaces"), "{held}");
}

#[test]
fn workloads_frames_both_ways_and_a_receive_buffer_over_the_kernels_tcp() {
    let text = SHARED
        .replace("size = \"500 kB\"", "frames = { count = 50, size = \"4 kB\" }\n    both-ways = true")
        .replace(
            "law = \"cubic\"\n    transport = \"kernel\"",
            "law = \"cubic\"\n    transport = \"kernel\"\n    receive-buffer = \"14480 B\"",
        )
        .replace("delay = \"5 ms\"", "delay = \"50 ms\"")
        .replace(
            "from = \"s.3\"\n    to = \"d\"\n    law = \"cubic\"\n",
            "from = \"s.3\"\n    to = \"d\"\n    law = \"cubic\"\n    size = \"50 kB\"\n",
        )
        + r#"
    [workload.w]
    from = "s.3"
    to = "d"
    law = "cubic"
    transport = "kernel"
    arrivals = { interval = "300 ms" }
    sizes = "20 kB"
    stop = "2 s"
"#;
    let Some(told) = live("more", &text) else { return };
    for name in ["short", "short.reverse"] {
        assert_eq!(flow(&told, name)["delivered_bytes"], 200_000, "{told}");
        assert!(flow(&told, name)["fct_s"].as_f64().is_some(), "{told}");
    }
    let of_workload = told["flows"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|flow| flow["flow"].as_str().unwrap().starts_with("w."));
    let whole =
        of_workload.filter(|flow| flow["delivered_bytes"] == 20_000 && flow["fct_s"].as_f64() > Some(0.1));
    assert_eq!(whole.count(), 7, "{told}");
    // Ten segments per round trip of 100 ms, whatever the load: 1.16 Mb/s of payload.
    let windowed = flow(&told, "long")["goodput_mbps"].as_f64().unwrap();
    assert!((0.2..1.2).contains(&windowed), "{windowed}");
}

/// One file on three engines: two hosts with budgets of 1 and 3 under FCP, and XCP beside CUBIC.
const EXPLICIT: &str = r#"
    name = "explicit"
    duration = "6 s"
    [measure]
    interval = "200 ms"
    warmup = "3 s"
    [node.s]
    count = 2
    [node.r]
    [node.d]
    [link.access]
    from = "s"
    to = "r"
    rate = "100 Mbps"
    [link.bottleneck]
    from = "r"
    to = "d"
    rate = "10 Mbps"
    delay = "10 ms"
    limit = "200 packets"
    law = "LAW"
    [flow.one]
    from = "s.1"
    to = "d"
    law = "LAW"
    [flow.other]
    from = "s.2"
    to = "d"
    law = "LAW"
    count = 2
"#;

#[test]
fn one_file_runs_simulated_on_our_transport_and_on_the_kernel_s_tcp() {
    let hosts = "[host.a]\nflows = \"one\"\nbudget = 3\n[host.b]\nflows = \"other\"\nbudget = 1\n";
    for (law, hosts, expected) in [("xcp", "", 1.0 / 3.0), ("fcp", hosts, 3.0 / 4.0)] {
        let text = EXPLICIT.replace("LAW", law) + hosts;
        let part = |told: &Value| {
            let rate = |name: &str| flow(told, name)["rate_mbps"].as_f64().unwrap();
            let one = rate("one");
            (one / (one + rate("other.1") + rate("other.2")), one + rate("other.1") + rate("other.2"))
        };
        let simulated = run(&format!("{law}-sim"), &text, &["--json"]);
        let (of_sim, _) = part(&serde_json::from_slice(&simulated.stdout).unwrap());
        assert!((of_sim - expected).abs() < 0.02, "{law} simulated: {of_sim}");
        let all: &[&[&str]] = &[
            &["--engine", "live"],
            &["--engine", "kernel"],
            &["--engine", "kernel", "--hosts", "namespaces"],
        ];
        for arguments in all {
            let name = format!("{law}-{}", arguments.concat());
            let output = run(&name, &text, &[arguments, &["--json"][..]].concat());
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            if said.contains("network namespaces") || said.contains("needs a program") {
                eprintln!("SKIPPED: {said}");
                continue;
            }
            assert!(output.status.success(), "{name}: {said}");
            let told: Value = serde_json::from_slice(&output.stdout).unwrap();
            let (share, sum) = part(&told);
            eprintln!("{name}: {share:.3} of {sum:.2} Mb/s; the simulator has {of_sim:.3}");
            assert!(!said.contains("fell back"), "{name}: {said}");
            if told["runs"][0]["live"]["kept_up"] == true {
                assert!((share - of_sim).abs() < 0.1 && sum > 8.0, "{name}: {share} of {sum}, {of_sim}");
            } else {
                eprintln!("NOT CHECKED: this machine was too busy");
            }
        }
    }
}
