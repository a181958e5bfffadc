//! A scenario's nodes as separate processes, some of which are killed. The others continue once
//! they are back, or end with a clear error. Data arrives whole, and nothing is left behind.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

mod attacks;
mod keys;
mod sessions;
mod ways;

/// 10 Mb/s over a router: 5 MB take four seconds.
const THREE: &str = r#"
    name = "three"
    duration = "40 s"
    [measure]
    interval = "1 s"
    [node.a]
    [node.r]
    [node.b]
    [link.access]
    from = "a"
    to = "r"
    rate = "50 Mbps"
    law = "xcp"
    [link.bottleneck]
    from = "r"
    to = "b"
    rate = "10 Mbps"
    delay = "10 ms"
    limit = "2 BDP"
    law = "xcp"
    [flow.f]
    from = "a"
    to = "b"
    law = "xcp"
    size = "5 MB"
"#;
const BYTES: u64 = 5_000_000;

/// The three nodes. Processes left at the end are killed.
struct Nodes {
    file: PathBuf,
    /// Addresses by node.
    at: Vec<String>,
    /// Time without news after which an end gives up. Long enough for a busy machine if no node is
    /// gone.
    patience: &'static str,
}

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// Ends the process as `kill -9` does.
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Waits for the process to end by itself.
    fn output(mut self) -> Output {
        let until = Instant::now() + Duration::from_secs(60);
        while self.0.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
        let read = |from: Option<&mut dyn std::io::Read>| {
            let mut bytes = Vec::new();
            from.unwrap().read_to_end(&mut bytes).unwrap();
            bytes
        };
        Output {
            status: self.0.wait().unwrap(),
            stdout: read(self.0.stdout.as_mut().map(|out| out as _)),
            stderr: read(self.0.stderr.as_mut().map(|out| out as _)),
        }
    }
}

impl Nodes {
    /// Three free ports; `None`, with `SKIPPED`, if there are none.
    fn new(name: &str) -> Option<Nodes> {
        Nodes::of(name, THREE)
    }

    /// The same for another scenario of these nodes.
    fn of(name: &str, text: &str) -> Option<Nodes> {
        Nodes::named(name, text, &["a", "r", "b"])
    }

    /// The same for a scenario of other nodes.
    fn named(name: &str, text: &str, names: &[&str]) -> Option<Nodes> {
        let sockets: Vec<_> = names.iter().map(|_| UdpSocket::bind("127.0.0.1:0")).collect();
        let Ok(at) = sockets
            .iter()
            .map(|socket| Ok(socket.as_ref().map_err(|_| ())?.local_addr().unwrap()))
            .collect::<Result<Vec<_>, ()>>()
        else {
            eprintln!("SKIPPED: no UDP socket on loopback here");
            return None;
        };
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("processes-{name}.toml"));
        std::fs::write(&file, text).unwrap();
        let at = names.iter().zip(at).map(|(name, at)| format!("{name}={at}")).collect();
        Some(Nodes { file, at, patience: "15s" })
    }

    /// The same with ends that give up soon.
    fn impatient(self) -> Nodes {
        Nodes { patience: "2s", ..self }
    }

    /// Starts a node's process, and waits until it has its socket.
    fn start(&self, node: &str) -> Process {
        self.start_with(node, &[])
    }

    fn start_with(&self, node: &str, more: &[&str]) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollway"));
        command.arg("run").arg(&self.file).args([
            "--engine",
            "live",
            "--json",
            "--node",
            node,
            "--patience",
            self.patience,
        ]);
        for at in &self.at {
            command.args(["--at", at]);
        }
        command.args(more);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).env("NO_COLOR", "1").spawn();
        let process = Process(child.expect("the command starts"));
        let prefix = format!("{node}=");
        let at = self.at.iter().find_map(|at| at.strip_prefix(&prefix)).unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while !is_taken(at) {
            assert!(Instant::now() < until, "it does not start");
            pause(10);
        }
        process
    }

    /// Runs all three until the flows have ended. Returns the JSON of `a` and `b`.
    fn carry(self) -> [Value; 2] {
        let (b, r) = (self.start("b"), self.start("r"));
        let a = self.start("a");
        let [a, b] = [a.output(), b.output()];
        drop(r);
        assert!(a.status.success() && b.status.success(), "{}{}", text(&a.stderr), text(&b.stderr));
        [a, b].map(|output| serde_json::from_slice(&output.stdout).expect("JSON"))
    }

    fn interrupt(process: &Process) {
        let done = Command::new("kill").args(["-TERM", &process.0.id().to_string()]).status();
        assert!(done.is_ok_and(|status| status.success()));
    }
}

/// True if a socket is bound to this address. The test does not bind it to find out, since the
/// process could then find it in use.
fn is_taken(at: &str) -> bool {
    let at: std::net::SocketAddr = at.parse().unwrap();
    let Ok(table) = std::fs::read_to_string("/proc/net/udp") else { return UdpSocket::bind(at).is_err() };
    let port = format!(":{:04X}", at.port());
    table.lines().any(|row| row.split_whitespace().nth(1).is_some_and(|local| local.ends_with(&port)))
}

fn delivered(output: &Output) -> u64 {
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    told["flows"][0]["delivered_bytes"].as_u64().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Asserts that a process gave the flow up because of the node `on`.
fn gave_up(output: &Output, on: &str) {
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(
        told.contains(&format!("flow `f`: no progress for 2 s: node `{on}`"))
            || told.contains(&format!("flow `f`: node `{on}` has given it up")),
        "{told}"
    );
}

/// Runs `work` once, with the time of the kill in ms. Under `make soak` it repeats with other
/// times.
fn rounds(work: impl Fn(u64)) {
    let seconds = std::env::var("TOLLWAY_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    let until = Instant::now() + Duration::from_secs(seconds.unwrap_or(0));
    for round in 0.. {
        // Multiples of a prime: over the rounds, the kill comes at every moment of the transfer.
        work(500 + round * 397 % 1000);
        if Instant::now() >= until {
            break;
        }
    }
}

fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// Tests that `make soak` repeats for longer.
mod soak {
    use super::*;

    #[test]
    fn a_transfer_goes_on_when_a_killed_router_is_back() {
        rounds(kill_the_router);
    }

    #[test]
    fn whoever_is_left_of_a_flow_ends_with_a_clear_error() {
        rounds(kill_the_ends);
    }
}

fn kill_the_router(after: u64) {
    let Some(nodes) = Nodes::new("router") else { return };
    let (b, mut r) = (nodes.start("b"), nodes.start("r"));
    let a = nodes.start("a");
    pause(after);
    r.kill();
    pause(300);
    let r = nodes.start("r");
    let (a, b) = (a.output(), b.output());
    assert!(a.status.success() && b.status.success(), "{}{}", text(&a.stderr), text(&b.stderr));
    assert_eq!(delivered(&b), BYTES);
    // A router ends only on a signal, and then prints its counts.
    Nodes::interrupt(&r);
    let r = r.output();
    assert_eq!(r.status.code(), Some(130));
    let told: Value = serde_json::from_slice(&r.stdout).unwrap();
    let live = &told["runs"][0]["live"];
    assert_eq!((live["node"].as_str(), live["datagrams_senseless"].as_u64()), (Some("r"), Some(0)));
}

fn kill_the_ends(after: u64) {
    let Some(nodes) = Nodes::new("ends").map(Nodes::impatient) else { return };
    let _r = nodes.start("r");
    // The receiver is killed, and comes back without state.
    let (mut b, a) = (nodes.start("b"), nodes.start("a"));
    pause(after);
    b.kill();
    let b = nodes.start("b");
    gave_up(&a.output(), "b");
    drop(b);
    // The sender is killed.
    let (b, mut a) = (nodes.start("b"), nodes.start("a"));
    pause(after);
    a.kill();
    let b = b.output();
    gave_up(&b, "a");
    assert!(delivered(&b) < BYTES);
    // The next flow is served as usual.
    let nodes = Nodes { patience: "15s", ..nodes };
    let (b, a) = (nodes.start("b"), nodes.start("a"));
    assert!(a.output().status.success());
    assert_eq!(delivered(&b.output()), BYTES);
}

/// A receiver waits for the opening of a flow, and after its end for late packets. Its rate
/// includes neither time.
#[test]
fn a_receiver_s_rate_is_over_the_time_that_its_flow_ran() {
    let text = THREE.replace("5 MB", "1 MB");
    let Some(nodes) = Nodes::of("rate", &text) else { return };
    let (b, r) = (nodes.start("b"), nodes.start("r"));
    pause(2000);
    let a = nodes.start("a").output();
    let b = b.output();
    drop(r);
    let told = |output: &Output| -> Value { serde_json::from_slice(&output.stdout).expect("JSON") };
    let (a, b) = (told(&a), told(&b));
    let (sent, came) = (&a["flows"][0], &b["flows"][0]);
    // The sender's time, to the last acknowledgement, is at most one round trip longer on any
    // machine.
    let mean = |bytes: &Value, seconds: &Value| bytes.as_f64().unwrap() * 8e-6 / seconds.as_f64().unwrap();
    let (least, rate) =
        (mean(&came["delivered_bytes"], &sent["fct_s"]), came["goodput_mbps"].as_f64().unwrap());
    assert!(rate >= 0.9 * least, "{rate} Mb/s of {least}: {came}");
    assert!(came["finish_s"].as_f64() > sent["finish_s"].as_f64(), "it began two seconds earlier: {came}");
}

/// Values that only the other process knows are empty in the tables of intervals, not zero.
#[test]
fn rows_of_intervals_have_what_their_process_knows() {
    let text = THREE.replace("5 MB", "500 kB").replace("\"1 s\"", "\"100 ms\"");
    let Some(nodes) = Nodes::of("rows", &text) else { return };
    let out = |node: &str| nodes.file.with_extension(node);
    let start = |node: &str| nodes.start_with(node, &["--out", out(node).to_str().unwrap()]);
    let (b, r) = (start("b"), nodes.start("r"));
    let a = start("a").output();
    let b = b.output();
    drop(r);
    assert!(a.status.success() && b.status.success(), "{}{}", self::text(&a.stderr), self::text(&b.stderr));
    // time_s, flow, rate_mbps, goodput_mbps, cwnd_packets, rtt_ms, pacing_mbps, in_flight_packets,
    // retransmissions, …
    for (node, known) in [("a", [false, false, true, true, true]), ("b", [true, true, false, false, false])] {
        let table = std::fs::read_to_string(out(node).join("flows.csv")).unwrap();
        assert!(table.lines().count() > 1, "{table}");
        for row in table.lines().skip(1) {
            let cells: Vec<&str> = row.split(',').collect();
            assert_eq!([2, 3, 4, 7, 8].map(|i: usize| !cells[i].is_empty()), known, "{node}: {row}");
        }
    }
}

/// After a stop of the process, the warning does not blame a slow machine.
#[test]
fn a_process_that_was_stopped_is_told_so() {
    let text = THREE
        .replace("5 MB", "500 MB")
        .replace("40 s", "4 s")
        .replace("limit = \"2 BDP\"\n    law = \"xcp\"", "limit = \"300 packets\"")
        .replace("law = \"xcp\"\n    size", "law = \"newreno\"\n    size");
    let Some(nodes) = Nodes::of("stopped", &text) else { return };
    let (b, r) = (nodes.start("b"), nodes.start("r"));
    let a = nodes.start("a");
    let signal = |name: &str| {
        let done = Command::new("kill").args([name, &r.0.id().to_string()]).status();
        assert!(done.is_ok_and(|status| status.success()));
    };
    pause(1500);
    signal("-STOP");
    pause(1500);
    signal("-CONT");
    let r = r.output();
    let (told, live): (String, Value) =
        (self::text(&r.stderr), serde_json::from_slice(&r.stdout).expect("JSON"));
    // On a busy machine, few packets may have waited during the stop.
    let kept_up = live["runs"][0]["live"]["kept_up"] == true;
    assert!(kept_up || told.contains("this process did not run for"), "{told}");
    assert!(!told.contains("this machine did not keep up"), "{told}");
    drop((a, b));
}

#[test]
fn each_process_has_its_part_of_workloads_hosts_and_policies() {
    let text =
        THREE.replace("law = \"xcp\"", "law = \"fcp\"").replace("5 MB", "500 kB").replace("40 s", "20 s")
            + r#"
    [workload.w]
    from = "a"
    to = "b"
    law = "fcp"
    arrivals = { interval = "300 ms" }
    sizes = "20 kB"
    stop = "1 s"
    [host.h]
    flows = "*"
    [flow.back]
    from = "b"
    to = "a"
    law = "newreno"
    size = "100 kB"
    [aggregate.held]
    from = "b"
    flows = "back"
    rate = "1 Mbps"
"#;
    let Some(nodes) = Nodes::of("parts", &text.replace("flows = \"*\"", "flows = \"?\"")) else { return };
    let [a, b] = nodes.carry();
    let flow = |told: &Value, name: &str| {
        told["flows"]
            .as_array()
            .unwrap()
            .iter()
            .find(|flow| flow["flow"] == name)
            .cloned()
            .unwrap_or_default()
    };
    for name in ["w.1", "w.2", "w.3", "w.4"] {
        // The sender has the time of its end, the receiver the bytes that arrived.
        assert!(flow(&a, name)["fct_s"].as_f64().is_some(), "{a}");
        assert_eq!(flow(&b, name)["delivered_bytes"], 20_000, "{b}");
    }
    assert_eq!(flow(&b, "f")["delivered_bytes"], 500_000);
    // Values that only the other end knows are empty, not zero.
    assert!(
        flow(&a, "f")["fct_s"].as_f64().is_some() && flow(&a, "f")["sent_bytes"].as_u64() > Some(500_000)
    );
    for (told, unknown) in [
        (&a, ["delivered_bytes", "goodput_mbps", "rate_mbps"]),
        (&b, ["sent_bytes", "retransmissions", "timeouts"]),
    ] {
        assert!(unknown.iter().all(|key| flow(told, "f").get(key).is_some_and(Value::is_null)), "{told}");
    }
    assert_eq!(flow(&a, "back")["delivered_bytes"], 100_000);
    // A budget is divided, and a profile enforced, at the sender's own node.
    let number = |told: &Value, table: &str, key: &str, of: &str, column: &str| {
        let rows = told["runs"][0]["tables"][table].as_array()?;
        rows.iter().find(|row| row[key] == of)?[column].as_f64()
    };
    let used = |told| number(told, "hosts", "host", "h", "budget_use_max");
    let conforming = |told| number(told, "policies", "policy", "held", "conforming_packets");
    assert!(used(&a).is_some_and(|used| used > 0.0 && used <= 1.05), "{a}");
    assert_eq!((used(&b), conforming(&a)), (None, None));
    assert!(conforming(&b).is_some_and(|packets| packets > 60.0), "{b}");
}

/// A sender has all data acknowledged before the receiver learns that this was all; the packet with
/// that information may be lost.
#[test]
fn last_words_of_short_flows_are_repeated_until_they_are_heard() {
    let text =
        THREE.replace("limit = \"2 BDP\"", "limit = \"2 BDP\"\n    loss = 0.2").replace("5 MB", "5 kB")
            + r#"
    [workload.w]
    from = "a"
    to = "b"
    law = "newreno"
    arrivals = { interval = "50 ms" }
    sizes = "2 kB"
    stop = "1 s"
"#;
    let Some(nodes) = Nodes::of("words", &text) else { return };
    let [_, told] = nodes.carry();
    let short = told["flows"].as_array().unwrap().iter().filter(|flow| flow["flow"] != "f");
    let delivered: Vec<_> = short.map(|flow| flow["delivered_bytes"].as_u64()).collect();
    assert_eq!(delivered, [Some(2000); 20], "{told}");
}

#[test]
fn a_meter_at_a_node_finds_who_cheats_at_another() {
    let text = THREE
        .replace(
            "law = \"xcp\"\n    size",
            "law = \"xcp\"\n    xcp.cheat = { trick = \"understate-window\", factor = 2 }\n    size",
        )
        .replace("rate = \"50 Mbps\"", "rate = \"50 Mbps\"\n    meter = {}")
        .replace("5 MB", "2 MB");
    for _ in 0..3 {
        let Some(nodes) = Nodes::of("metered", &text) else { return };
        let (b, r) = (nodes.start("b"), nodes.start("r"));
        let a = nodes.start("a");
        let (a, b) = (a.output(), b.output());
        assert!(
            a.status.success() && b.status.success(),
            "{}{}",
            self::text(&a.stderr),
            self::text(&b.stderr)
        );
        Nodes::interrupt(&r);
        // The meter saw every packet, also acknowledgements on their way back, and lost none.
        let told: Value = serde_json::from_slice(&r.output().stdout).expect("JSON");
        let meters = &told["runs"][0]["tables"]["meters"][0];
        let found = (&meters["flows"], &meters["accused"]) == (&1.0.into(), &1.0.into());
        // A node that stands still for a tenth of a second at a time sees too few packets.
        if found || told["runs"][0]["live"]["kept_up"] == true {
            assert!(found, "{told}");
            return;
        }
    }
    eprintln!("NOT CHECKED: this machine can't keep up with 10 Mb/s over three processes");
}

#[test]
fn each_process_has_the_machines_of_its_node() {
    let apps = r#"law = "newreno"
    both-ways = true
    [machine.count]
    node = "r"
    kind = "counter"
    [machine.caller]
    node = "a"
    kind = "caller"
    flows = "f"
    messages = 40
    size = "10 kB"
    [machine.echo]
    node = "b"
    kind = "echo"
    flows = "f"
    "#;
    let text = THREE.replace("law = \"xcp\"\n    size = \"5 MB\"", apps).replace("    law = \"xcp\"\n", "");
    let Some(nodes) = Nodes::of("machines", &text) else { return };
    let (b, r) = (nodes.start("b"), nodes.start("r"));
    let a = nodes.start("a");
    let (a, b) = (a.output(), b.output());
    assert!(a.status.success() && b.status.success(), "{}{}", self::text(&a.stderr), self::text(&b.stderr));
    Nodes::interrupt(&r);
    // Each process has a row for its own machine only.
    let counts = |output: &Output| {
        let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let rows = told["runs"][0]["tables"]["machines"].as_array().cloned().unwrap_or_default();
        assert_eq!(rows.len(), 1, "{told}");
        rows[0].clone()
    };
    let (a, r, b) = (counts(&a), counts(&r.output()), counts(&b));
    assert_eq!(
        (&a["machine"], a["answered"].as_f64(), a["wrong"].as_f64()),
        (&"caller".into(), Some(40.0), Some(0.0))
    );
    assert_eq!((&b["machine"], b["echoed"].as_f64()), (&"echo".into(), Some(40.0)));
    // A frame lost before the router reaches it only when it is retransmitted.
    let (frames, packets) = (r["frames"].as_f64().unwrap(), r["packets"].as_f64().unwrap());
    assert!((40.0..=80.0).contains(&frames) && packets > 2.0 * 40.0 * 7.0, "{r}");
    // The other end's file has another machine there.
    let (b, r) = (nodes.start("b"), nodes.start("r"));
    let a = nodes.start_with("a", &["--set", "machine.caller.messages=41"]);
    let a = a.output();
    assert!(self::text(&a.stderr).contains("has another scenario"), "{}", self::text(&a.stderr));
    drop((b, r));
}

#[test]
fn each_process_has_the_overlay_s_daemon_of_its_node() {
    let hops = r#"    [overlay.hop.all]
    link = "*"
    law = "newreno"
    [overlay.group.g]
    at = ["r", "b"]
    [overlay.sender.x]
    at = "a"
    group = "g"
    arrivals = { interval = "20 ms" }
    start = "1 s"
    stop = "3 s"
"#;
    let (network, _) = THREE.split_once("    [flow.f]").unwrap();
    let text = network.replace("    law = \"xcp\"\n", "").replace("40 s", "10 s") + hops;
    let Some(nodes) = Nodes::of("overlay", &text) else { return };
    let all = ["b", "r", "a"].map(|node| nodes.start(node));
    let [b, r, a] = all.map(|process| {
        let output = process.output();
        assert!(output.status.success(), "{}", self::text(&output.stderr));
        let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        told["runs"][0]["tables"].clone()
    });
    let rows = |told: &Value, table: &str| told[table].as_array().cloned().unwrap_or_default();
    // The senders' rows belong to that process, and every message reached both others once.
    let sent = rows(&a, "senders")[0]["messages"].as_f64().unwrap();
    assert!((90.0..=100.0).contains(&sent), "{a}");
    assert!(rows(&b, "senders").is_empty() && rows(&r, "senders").is_empty(), "{b} {r}");
    for (told, node, received, hops) in [(&a, "a", 0.0, 1), (&r, "r", sent, 2), (&b, "b", sent, 1)] {
        let daemons = rows(told, "daemons");
        assert_eq!((daemons.len(), rows(told, "hops").len()), (1, hops), "{told}");
        let counts = (daemons[0]["received"].as_f64(), daemons[0]["wrong"].as_f64());
        assert_eq!((&daemons[0]["daemon"], counts), (&node.into(), (Some(received), Some(0.0))), "{told}");
    }
}

#[test]
fn a_node_says_what_it_needs() {
    let Some(nodes) = Nodes::new("needs") else { return };
    let tell = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollway"));
        let output =
            command.arg("run").arg(&nodes.file).args(arguments).env("NO_COLOR", "1").output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        text(&output.stderr)
    };
    assert!(tell(&["--node", "a", "--ports", "7000"]).contains("--engine live"));
    assert!(tell(&["--engine", "live", "--node", "x", "--ports", "7000"]).contains("there are a, r, b"));
    assert!(
        tell(&["--engine", "live", "--node", "a", "--at", "a=127.0.0.1:7000"]).contains("--at r=HOST:PORT")
    );
    assert!(tell(&["--engine", "live", "--node", "a", "--at", "a"]).contains("--at r=192.0.2.1:7000"));
    assert!(
        tell(&["--engine", "live", "--node", "a", "--ports", "7000", "--patience", "x"])
            .contains("--patience 10s")
    );
    // The warning comes before anything is sent.
    let node = ["--engine", "live", "--node", "a", "--ports", "7000", "--patience", "x"];
    assert!(!tell(&node).contains("WARNING"));
    let said = tell(&[&node[..], &["--at", "b=192.0.2.1:7000"]].concat());
    assert!(said.contains("WARNING: node `b` is at 192.0.2.1:7000, outside this machine"), "{said}");
}
