//! `tollway host` as a service: status, metrics, and connections that outlast it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tollway_host::hierarchy;

use crate::common::{self, alone, free_port, run_in, serves_as_a_service, text, tollway};

/// A control group, and a folder of files.
struct Place {
    group: PathBuf,
    folder: PathBuf,
}

impl Place {
    fn new(name: &str) -> Option<Place> {
        let group = hierarchy().map(|root| root.join(format!("tollway-test-{name}-{}", std::process::id())));
        let made = group.and_then(|group| fs::create_dir_all(&group).map(|()| group));
        match made {
            Ok(group) => Some(Place { group, folder: common::folder("host", name) }),
            Err(error) => {
                eprintln!("SKIPPED: no control group can be made: {error}");
                None
            }
        }
    }

    fn socket(&self) -> String {
        self.folder.join("control.sock").display().to_string()
    }

    /// `tollway host` for this group.
    fn agent(&self, law: &str, more: &[&str]) -> Command {
        let mut command = tollway(&["host", "--law", law, "--cgroup"]);
        command.arg(&self.group).args(["--socket", &self.socket()]).args(more);
        command
    }

    /// Starts the agent, and waits until it answers; `None` if this machine can't load programs.
    fn start(&self, law: &str, more: &[&str]) -> Option<Running> {
        let log = self.folder.join("log");
        let mut child = Running(self.agent(law, more).stderr(File::create(&log).unwrap()).spawn().unwrap());
        while self.status().is_none() {
            if child.0.try_wait().unwrap().is_some() {
                let said = fs::read_to_string(&log).unwrap();
                let cannot = said.contains("no right to load") || said.contains("has no /sys/kernel/btf");
                assert!(cannot, "{said}");
                eprintln!("SKIPPED: {said}");
                return None;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(child)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap()
    }

    fn status(&self) -> Option<Value> {
        let output = tollway(&["host", "status", "--json", "--socket", &self.socket()]).output().unwrap();
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    /// Connections of the status that have data under way, and that `holds` is true for.
    fn count(&self, holds: impl Fn(&Value) -> bool) -> usize {
        let status = self.status().expect("the agent answers");
        status["connections"].as_array().unwrap().iter().filter(|one| holds(one)).count()
    }

    /// Starts eight connections in the group over a link, for `seconds`; `iperf3` reports to a file.
    fn load(&self, link: &str, seconds: u32) -> Child {
        let at = self.folder.display();
        let program =
            format!("until iperf3 -c server -R -P 8 -t {seconds} --json > {at}/report; do sleep 0.2; done");
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo $$ > \"$0/cgroup.procs\"; exec \"$@\""]).arg(&self.group);
        shell.arg(env!("CARGO_BIN_EXE_tollway"));
        shell.args(["exec", "-q", "--link", link, "--serve", "iperf3 -s", "--", "sh", "-c", &program]);
        shell.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }
}

/// An agent that ends with its test.
struct Running(Child);

impl Running {
    fn signal(&mut self, signal: &str) -> bool {
        Command::new("kill").args([signal, &self.0.id().to_string()]).status().unwrap();
        self.0.wait().unwrap().success()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.group);
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < until, "not within 30 s: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn installed(program: &str) -> bool {
    let is = Command::new(program).arg("--version").output().is_ok();
    if !is {
        eprintln!("SKIPPED: {program} is not installed");
    }
    is
}

#[test]
fn the_agent_reports_tenants_connections_and_fallbacks() {
    let _alone = alone();
    let Some(place) = Place::new("status") else { return };
    let port = free_port();
    let metrics = format!("127.0.0.1:{port}");
    let Some(mut agent) = place.start("fcp", &["--budget", "2", "--metrics", &metrics]) else { return };
    if !installed("iperf3") {
        return;
    }
    // A second agent would compete for the connections.
    let second = place.agent("xcp", &[]).output().unwrap();
    assert_eq!(second.status.code(), Some(2));
    assert!(text(&second.stderr).contains("is already running"), "{}", text(&second.stderr));

    let mut load = place.load("20Mbps 10ms fcp", 6);
    let paid = |one: &Value| one["option"] == "feedback" && one["price"].as_f64() > Some(0.0);
    eventually("connections with prices", || place.count(paid) >= 8);
    eventually("the tenant's rate", || {
        let status = place.status().unwrap();
        status["tenants"][0]["rate_mbps"].as_f64().unwrap() > 10.0
    });
    let status = run_in(Path::new("."), &["host", "status", "--socket", &place.socket()]);
    let shown = text(&status.stdout);
    for part in
        ["from the command line; ", "budget", "equal-budget", "RTT ms", "feedback", "10.77.0.2:5201 >"]
    {
        assert!(shown.contains(part), "no {part} in\n{shown}");
    }
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    let page = metrics_of(port);
    for line in ["tollway_host_tenant_active{tenant=\"all\"}", "tollway_host_fallen_total{cause=\"path\"} 0"]
    {
        assert!(page.contains(line), "no {line} in\n{page}");
    }
    assert!(load.wait().unwrap().success());

    // A link without the law.
    let mut load = place.load("20Mbps 10ms", 3);
    let path = |one: &Value| one["fallen"] == "path" && one["window"].as_f64() > Some(0.0);
    eventually("fallbacks with the ordinary law's window", || place.count(path) >= 8);
    assert!(load.wait().unwrap().success());
    eventually("fallbacks in the log", || place.log().contains("fell back: no router rewrites the option"));
    let fallen = place.status().unwrap()["fallen"]["path"].as_u64().unwrap();
    assert!(fallen >= 8, "{fallen}");
    assert!(agent.signal("-TERM"), "{}", place.log());
    assert!(!Path::new(&place.socket()).exists());
}

fn metrics_of(port: u16) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page
}

#[test]
fn segments_of_fcp_leave_one_by_one_while_the_agent_runs() {
    let _alone = alone();
    let Some(place) = Place::new("trains") else { return };
    if place.start("fcp", &[]).is_none() {
        return;
    }
    // In a new network namespace, without another test's agent.
    let mut shell = Command::new("unshare");
    let least = "/proc/sys/net/ipv4/tcp_min_tso_segs";
    shell.args(["--net", "sh", "-c", "$0 host --law fcp -- cat $1; $0 host --law xcp -- cat $1; cat $1"]);
    let output = shell.args([env!("CARGO_BIN_EXE_tollway"), least]).output().unwrap();
    assert_eq!(text(&output.stdout), "1\n2\n2\n", "{}", text(&output.stderr));
}

#[test]
fn the_agent_reports_to_a_service_manager() {
    let _alone = alone();
    let Some(place) = Place::new("service") else { return };
    let Some(agent) = place.start("xcp", &[]) else { return };
    drop(agent);
    serves_as_a_service(&place.folder, &place.agent("xcp", &[]));
}

#[test]
fn the_chapter_s_commands_over_emulated_links_run() {
    let chapter = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/host.md");
    let chapter = fs::read_to_string(chapter).unwrap();
    let commands: Vec<&str> = chapter.lines().filter(|line| line.starts_with("tollway exec")).collect();
    assert!(commands.len() >= 3, "{commands:?}");
    if Place::new("chapter").is_none() || !installed("iperf3") {
        return;
    }
    let _alone = alone();
    let bin = Path::new(env!("CARGO_BIN_EXE_tollway")).parent().unwrap().display().to_string();
    let path = format!("{bin}:{}", std::env::var("PATH").unwrap());
    for command in commands {
        // A server needs a moment until it listens.
        let patient = command.replace("-- iperf3", "-- sh -c 'sleep 0.5; exec iperf3 \"$@\"' iperf3");
        let mut shell = Command::new("sh");
        let output =
            shell.args(["-c", &patient.replace("-t 8", "-t 2")]).env("PATH", &path).output().unwrap();
        let said = text(&output.stderr) + &text(&output.stdout);
        if said.contains("no right to load") || said.contains("has no /sys/kernel/btf") {
            eprintln!("SKIPPED: {said}");
            return;
        }
        assert!(output.status.success(), "{command}: {said}");
        assert_eq!(command.contains("--tcp"), said.contains("connections opened"), "{command}: {said}");
    }
}

/// Eight connections at full load: each goes on after its agent has ended or was killed, within 3 s
/// at the link's rate, and the next agent takes its place.
#[test]
fn connections_outlast_an_agent_that_ends_or_is_killed() {
    if !installed("iperf3") {
        return;
    }
    let _alone = alone();
    for (law, signal) in [("xcp", "-KILL"), ("fcp", "-KILL"), ("xcp", "-TERM")] {
        let Some(place) = Place::new(&format!("{law}{signal}")) else { return };
        let Some(mut agent) = place.start(law, &[]) else { return };
        let mut load = place.load(&format!("20Mbps 10ms {law} limit=200packets"), 10);
        eventually("connections under the law", || place.count(|one| one["option"] == "feedback") >= 8);
        let name = place.status().unwrap()["congestion"].as_str().unwrap().to_owned();
        std::thread::sleep(Duration::from_secs(2));
        let begun = Instant::now();
        agent.signal(signal);
        // The next agent neither inherits nor disturbs them.
        let next = place.start(law, &[]).expect("the place is free");
        assert!(load.wait().unwrap().success(), "{law} {signal}");
        let left = begun.elapsed().as_secs();
        let report: Value = serde_json::from_slice(&fs::read(place.folder.join("report")).unwrap()).unwrap();
        let intervals = report["intervals"].as_array().unwrap();
        // The intervals after 3 s from the signal.
        let after = &intervals[intervals.len().saturating_sub(left.saturating_sub(4) as usize)..];
        assert!(after.len() >= 2, "{} of {}", after.len(), intervals.len());
        let rate = |one: &Value| one["sum"]["bits_per_second"].as_f64().unwrap() * 1e-6;
        let mean = after.iter().map(rate).sum::<f64>() / after.len() as f64;
        assert!(mean > 0.9 * 20.0 * 1448.0 / 1500.0, "{law} {signal}: {mean} Mb/s of 20");
        for stream in 0..8 {
            let moved = |one: &Value| one["streams"][stream]["bytes"].as_f64().unwrap();
            assert!(after.iter().map(moved).sum::<f64>() > 0.0, "{law} {signal}: stream {stream} is stuck");
        }
        // New connections are under the next agent's law.
        let mut load = place.load(&format!("20Mbps 10ms {law} limit=200packets"), 2);
        eventually("connections under the next agent", || {
            place.count(|one| one["option"] == "feedback") >= 8
        });
        assert!(load.wait().unwrap().success());
        drop(next);
        let known = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
        assert!(!known.contains(&name), "{name} is left in {known}");
    }
}
