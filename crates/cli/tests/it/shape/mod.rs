//! `tollway shape` as a user sees it, on loopback connections of this test only.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tollway_law::Rate;
use tollway_shape::{Kernel, Reach, SockDiag};

mod faults;
pub(crate) mod traffic;

use crate::common::{self, tollway};
use traffic::{Traffic, is_gone, is_stopped, limits, policies, signal, status, wait};

fn folder(name: &str) -> PathBuf {
    common::folder("shape", name)
}

/// An agent that ends with the test.
struct Agent {
    process: Child,
    policy: PathBuf,
    socket: PathBuf,
}

impl Agent {
    fn start(folder: &Path, policies: &str) -> Agent {
        Agent::start_after(":", folder, policies)
    }

    /// Starts an agent from a shell that runs `first` before.
    fn start_after(first: &str, folder: &Path, policies: &str) -> Agent {
        Agent::start_telling(first, folder, policies, Stdio::null())
    }

    fn start_telling(first: &str, folder: &Path, policies: &str, log: Stdio) -> Agent {
        Agent::start_with(first, folder, policies, &[], Stdio::inherit(), log)
    }

    fn start_with(
        first: &str,
        folder: &Path,
        policies: &str,
        more: &[&str],
        out: Stdio,
        log: Stdio,
    ) -> Agent {
        let (policy, socket) = (folder.join("policies.toml"), folder.join("run/shape.sock"));
        fs::write(&policy, policies).unwrap();
        let (policy_path, path) = (policy.to_str().unwrap(), socket.to_str().unwrap());
        let words = ["shape", "--backend", "inet-diag", "--policy", policy_path, "--socket", path];
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{first}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_tollway")]);
        let process = command.args(words).args(more).stdout(out).stderr(log).spawn().unwrap();
        Agent { process, policy, socket }
    }

    /// Replaces the policy file atomically.
    fn write(&self, policies: &str) {
        let new = self.policy.with_extension("new");
        fs::write(&new, policies).unwrap();
        fs::rename(new, &self.policy).unwrap();
    }

    fn status(&self) -> Option<Value> {
        status(&self.socket)
    }

    fn signal(&self, name: &str) {
        signal(self.process.id(), name);
    }

    /// The process that frees connections when the agent can't.
    fn guardian(&self) -> Option<u32> {
        common::child_of(self.process.id(), "guard")
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn connections_are_paced_policies_change_and_all_is_free_in_the_end() {
    if Reach::find() == Reach::Children {
        eprintln!("SKIPPED: this system's Yama module lets nobody but root reach the test's sockets");
        return;
    }
    let folder = folder("paced");
    let traffic = Traffic::start(4);
    let mut agent = Agent::start(&folder, &traffic.policies("a", 80));
    // All send what they can: 20 Mb/s each on the wire, which is a little less of payload.
    let even = |mbps: f64| {
        let limits: Vec<f64> =
            traffic.limits().iter().map(|limit| limit.map_or(f64::INFINITY, |l| l as f64 * 8e-6)).collect();
        // A pace that is almost right does not change.
        let near = |limit: &f64| (0.93 * mbps..=1.01 * mbps).contains(limit);
        (limits.len() == 4 && limits.iter().all(near)).then_some(())
    };
    wait("20 Mb/s each", || even(20.0));
    // After one or two ticks the status shows the limiting cause.
    let held = |status: &Value| status["connections"][0]["limited_by"] == "share";
    let status = wait("a share that holds", || agent.status().filter(held));
    assert_eq!((&status["version"], &status["tenants"][0]["connections"]), (&"a".into(), &4.into()));

    agent.write(&traffic.policies("b", 40));
    // A status with a new version also has the shares of that version.
    let status = wait("another version", || agent.status().filter(|status| status["version"] == "b"));
    let share = status["tenants"][0]["share_mbps"].as_f64().unwrap();
    assert!((35.0..=40.01).contains(&share), "{status}");
    wait("10 Mb/s each", || even(10.0));
    agent.write(&traffic.policies("c", 160).replace("Mbps", "Mbqs"));
    let status = wait("trouble", || agent.status().filter(|status| !status["trouble"].is_null()));
    assert_eq!(status["version"], "b");
    assert!(status["trouble"].as_str().unwrap().contains("Mbqs"), "{status:#}");
    let limits = traffic.limits();
    assert!(
        limits.iter().all(|limit| limit.is_some_and(|l| l as f64 * 8e-6 < 12.0)),
        "what was right stays in force: {limits:?}"
    );
    wait("10 Mb/s each still", || even(10.0));

    // A second agent would undo the work of the first.
    let (policy, socket) = (agent.policy.clone(), agent.socket.clone());
    fs::write(folder.join("again.toml"), traffic.policies("d", 10)).unwrap();
    let again = folder.join("again.toml");
    let words = ["shape", "--policy", again.to_str().unwrap(), "--socket", socket.to_str().unwrap()];
    let second = tollway(&words).output().unwrap();
    assert_eq!(second.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&second.stderr).contains("an agent is already running"));

    agent.signal("TERM");
    assert!(agent.process.wait().unwrap().success());
    assert_eq!(traffic.limits(), [None; 4], "it ends once all are free");
    assert!(!socket.exists());

    // Killed without warning.
    let agent = Agent::start(&folder, &traffic.policies("e", 80));
    assert_eq!(agent.policy, policy);
    wait("20 Mb/s each again", || even(20.0));
    // Its guardian was killed before, and a successor knows the connections paced since.
    let first = wait("a guardian", || agent.guardian());
    signal(first, "KILL");
    wait("another guardian", || agent.guardian().filter(|&guardian| guardian != first));
    // The agent answers between ticks, so after an answer the tick with the report to the guardian
    // is over.
    wait("an answer", || agent.status());
    agent.signal("KILL");
    wait("freedom", || (traffic.limits() == [None; 4]).then_some(()));
}

#[test]
fn a_guardian_that_was_stopped_has_a_successor_and_still_frees_all() {
    if Reach::find() == Reach::Children {
        eprintln!("SKIPPED: this system's Yama module lets nobody but root reach the test's sockets");
        return;
    }
    let folder = folder("stopped");
    let traffic = Traffic::start(2);
    let paced = || traffic.limits().iter().all(Option::is_some).then_some(());
    let free = || traffic.limits().iter().all(Option::is_none).then_some(());
    let mut agent = Agent::start_telling(":", &folder, &traffic.policies("a", 80), Stdio::piped());
    wait("paces", paced);
    // Another warning is in force.
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = datagrams.local_addr().unwrap();
    let many = || (0..300).map(|_| datagrams.send_to(&[0], to).unwrap()).sum::<usize>();
    let warned = |status: &Value| many() > 0 && status["warning"].to_string().contains("UDP datagrams");
    wait("a warning", || agent.status().filter(warned));
    let first = wait("a guardian", || agent.guardian());
    signal(first, "STOP");
    let second = wait("another guardian", || {
        many();
        agent.guardian().filter(|&guardian| guardian != first)
    });
    wait("the first one's end", || is_gone(first).then_some(()));
    let mut log = BufReader::new(agent.process.stderr.take().unwrap()).lines();
    assert!(
        log.any(|line| line.unwrap().contains(&format!("the guardian (process {first}) does not respond")))
    );
    assert_eq!(paced(), Some(()), "nobody was set free by that");
    // The agent is killed before it notices: the kernel sends the guardian SIGHUP and wakes it.
    signal(second, "STOP");
    wait("its stop", || is_stopped(second).then_some(()));
    agent.signal("KILL");
    wait("freedom", free);
    wait("its end", || is_gone(second).then_some(()));

    // The same holds if the agent ends in order.
    let mut agent = Agent::start(&folder, &traffic.policies("b", 80));
    wait("paces again", paced);
    let guardian = wait("a guardian", || agent.guardian());
    signal(guardian, "STOP");
    wait("its stop", || is_stopped(guardian).then_some(()));
    agent.signal("TERM");
    assert!(agent.process.wait().unwrap().success());
    assert_eq!(free(), Some(()));
    wait("its end", || is_gone(guardian).then_some(()));
}

#[test]
fn more_programs_than_descriptors_are_paced_and_free_again() {
    if Reach::find() == Reach::Children {
        eprintln!("SKIPPED: this system's Yama module lets nobody but root reach the test's sockets");
        return;
    }
    let folder = folder("owners");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    /// A process that ends with the test.
    struct Owner(Child);
    impl Drop for Owner {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
    // Each process has a connection, and does not use it.
    let owners: Vec<_> = (0..100)
        .map(|_| {
            let connection = OwnedFd::from(TcpStream::connect(("127.0.0.1", port)).unwrap());
            let owner = Command::new("sleep").arg("600").stdin(connection).spawn().unwrap();
            (listener.accept().unwrap(), Owner(owner))
        })
        .collect();
    // The guardian has the same limit of descriptors.
    let agent = Agent::start_after("ulimit -n 64", &folder, &policies(port, "a", 80));
    wait("a limit for all", || {
        let limits = limits(port);
        (limits.len() == owners.len() && limits.iter().all(Option::is_some)).then_some(())
    });
    assert!(agent.status().is_some(), "there is a descriptor left to answer with");
    agent.write(&policies(port, "b", 80));
    wait("other policies", || agent.status().filter(|status| status["version"] == "b"));
    agent.signal("KILL");
    wait("freedom", || limits(port).iter().all(Option::is_none).then_some(()));
}

#[test]
fn a_pace_that_a_program_sets_while_it_is_paced_is_there_again_in_the_end() {
    if Reach::find() == Reach::Children {
        eprintln!("SKIPPED: this system's Yama module lets nobody but root reach the test's sockets");
        return;
    }
    let folder = folder("own");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let _client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    // Some 10 MB/s, which is none of the paces below.
    let share = || limits(port)[0].filter(|limit| (8_000_000..11_000_000).contains(limit));
    let set = |pace: u64| {
        let (mut kernel, mut seen) = (SockDiag::new().unwrap(), Vec::new());
        kernel.connections(&mut seen).unwrap();
        let ours = seen.iter().find(|seen| seen.remote.port() == port).unwrap();
        kernel.pace(ours, Some(Rate::from_bytes_per_sec(pace as f64))).unwrap();
    };
    for (signal, own) in [("TERM", 20_000_000), ("KILL", 30_000_000)] {
        let agent = Agent::start(&folder, &policies(port, "a", 80));
        wait("a share", share);
        set(own);
        wait("a share in its stead", share);
        // The guardian learns of it in the same tick.
        wait("an answer", || agent.status());
        let guardian = agent.guardian().unwrap();
        agent.signal(signal);
        wait("the guardian's end", || is_gone(guardian).then_some(()));
        assert_eq!(limits(port), [Some(own)], "{signal}");
    }

    // A limit that the program sets after its policy is gone stays too.
    let agent = Agent::start(&folder, &policies(port, "a", 80));
    wait("a share", share);
    agent.write(&policies(1, "b", 80));
    wait("freedom", || (limits(port) == [Some(30_000_000)]).then_some(()));
    wait("an answer", || agent.status());
    set(9_000_000);
    let guardian = agent.guardian().unwrap();
    agent.signal("KILL");
    wait("the guardian's end", || is_gone(guardian).then_some(()));
    assert_eq!(limits(port), [Some(9_000_000)]);
}

#[test]
fn who_is_to_outlive_a_hang_up_does() {
    let folder = folder("hang-up");
    let mut agent = Agent::start_after("trap '' HUP", &folder, &policies(1, "a", 80));
    wait("an answer", || agent.status());
    agent.signal("HUP");
    // A signal is handled between ticks, as are answers.
    for _ in 0..3 {
        assert!(agent.status().is_some(), "it goes on");
    }
    agent.signal("TERM");
    assert!(agent.process.wait().unwrap().success());
}

/// If the window is closed, the agent ends as by any SIGHUP, unless SIGHUP is ignored.
#[test]
#[cfg(feature = "watch")]
fn a_terminal_that_goes_away_is_a_hang_up_and_nothing_else() {
    for (name, first, outlives) in [("gone", ":", false), ("gone-on", "trap '' HUP", true)] {
        let folder = folder(name);
        let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        let (policy, socket, pid) = (file("policies.toml"), folder.join("run/shape.sock"), file("pid"));
        fs::write(&policy, policies(1, "a", 80)).unwrap();
        let program = env!("CARGO_BIN_EXE_tollway");
        let run = format!(
            "{first}; echo $$ > {pid}; exec {program} shape --backend inet-diag --watch --policy {policy} --socket {}",
            socket.display()
        );
        let mut script = Command::new("sh");
        script.args(["-c", "exec script -qec \"$0\" /dev/null", &run]).env("TERM", "xterm");
        let mut script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut out = script.stdout.take().unwrap();
        let (mut said, mut bytes) = (Vec::new(), [0; 1000]);
        // Each picture hides the cursor. After the third, the agent has also polled for keys.
        while String::from_utf8_lossy(&said).matches("\x1b[?25l").count() < 3 {
            let len = out.read(&mut bytes).unwrap();
            if len == 0 {
                eprintln!("SKIPPED: no `script` here: {}", String::from_utf8_lossy(&said));
                script.wait().unwrap();
                return;
            }
            said.extend(&bytes[..len]);
        }
        script.kill().unwrap();
        script.wait().unwrap();
        let pid = fs::read_to_string(pid).unwrap().trim().parse().unwrap();
        if outlives {
            let time = || Some(status(&socket)?["time_s"].as_f64().unwrap());
            let first = wait("an answer", time);
            wait("some ticks more", || time().filter(|&time| time > first + 1.0));
            signal(pid, "TERM");
        }
        wait("the end", || is_gone(pid).then_some(()));
        assert!(!socket.exists());
    }
}

#[test]
fn a_log_that_cannot_be_written_stops_no_pacing() {
    let folder = folder("full");
    let policies = |version: &str| {
        format!("version = \"{version}\"\n[link]\nrate = \"1 Mbps\"\n[aggregate.none]\nto = \"192.0.2.1\"\n")
    };
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut agent = Agent::start_telling(":", &folder, &policies("a"), full.into());
    wait("an answer", || agent.status());
    agent.write(&policies("b"));
    wait("the new policies", || {
        assert_eq!(agent.process.try_wait().unwrap(), None, "it goes on");
        agent.status().filter(|status| status["version"] == "b")
    });
    agent.signal("TERM");
    assert!(agent.process.wait().unwrap().success());
}

#[test]
fn a_full_disk_that_json_is_written_to_stops_no_pacing() {
    let folder = folder("full-json");
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let policies = policies(1, "a", 80);
    let mut agent = Agent::start_with(":", &folder, &policies, &["--json"], full.into(), Stdio::piped());
    let mut log = BufReader::new(agent.process.stderr.take().unwrap()).lines();
    assert!(log.any(|line| line.unwrap().contains("cannot write to standard output")));
    // It would have ended with the next line at the latest.
    let time = |agent: &Agent| agent.status().expect("it goes on")["time_s"].as_f64().unwrap();
    let first = time(&agent);
    wait("some seconds more", || (time(&agent) > first + 3.0).then_some(()));
    agent.signal("TERM");
    assert!(agent.process.wait().unwrap().success());
}

#[test]
fn a_reader_that_takes_nothing_stops_no_pacing() {
    let folder = folder("stalled");
    let policies = |version: &str| {
        format!("version = \"{version}\"\n[link]\nrate = \"1 Mbps\"\n[aggregate.none]\nto = \"192.0.2.1\"\n")
    };
    let (mut full, _reader) = UnixStream::pair().unwrap();
    full.set_nonblocking(true).unwrap();
    while full.write(&[b' '; 1 << 12]).is_ok() {}
    full.set_nonblocking(false).unwrap();
    let (out, log) = (OwnedFd::from(full).into(), Stdio::null());
    let mut agent = Agent::start_with(":", &folder, &policies("a"), &["--json"], out, log);
    wait("an answer", || agent.status());
    std::thread::sleep(Duration::from_millis(1500));
    agent.write(&policies("b"));
    wait("the new policies", || agent.status().filter(|status| status["version"] == "b"));
    agent.signal("TERM");
    assert!(wait("the end", || agent.process.try_wait().unwrap()).success());
}

/// Otherwise the new agent would take the old paces for limits of programs, for the life of the
/// connections.
#[test]
fn an_agent_begins_once_all_is_free_that_one_before_had_paced() {
    if Reach::find() == Reach::Children {
        eprintln!("SKIPPED: this system's Yama module lets nobody but root reach the test's sockets");
        return;
    }
    let folder = folder("successor");
    let traffic = Traffic::start(1);
    let mut first = Agent::start(&folder, &traffic.policies("a", 8));
    wait("a pace", || traffic.limits()[0]);
    // The guardian holds the claim, however the agent ends.
    let guardian = first.guardian().unwrap();
    let held = fs::read_link(format!("/proc/{guardian}/fd/1")).unwrap();
    assert_eq!(held, folder.join("run/shape.sock.lock"));
    first.signal("KILL");
    first.process.wait().unwrap();
    wait("the guardian's end", || is_gone(guardian).then_some(()));
    // Another process holds it instead, for as long as a test can wait.
    let mut holder = Command::new("flock").arg(&held).args(["sleep", "1"]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let mut second = Agent::start(&folder, &traffic.policies("b", 80));
    std::thread::sleep(Duration::from_millis(500));
    assert!(second.status().is_none());
    holder.wait().unwrap();
    wait("an answer", || second.status());
    wait("another pace", || traffic.limits()[0].filter(|&limit| limit > 8_000_000));
    second.signal("TERM");
    assert!(second.process.wait().unwrap().success());
    assert_eq!(traffic.limits(), [None]);
}

#[test]
fn a_store_that_is_away_is_said_at_once_and_need_not_be_waited_for() {
    if !cfg!(feature = "etcd") {
        eprintln!("SKIPPED: built without the feature `etcd`");
        return;
    }
    let socket = folder("away").join("run/shape.sock");
    let words = ["shape", "--policy", "etcd://127.0.0.1:1/t", "--socket", socket.to_str().unwrap()];
    let mut agent = tollway(&words).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = [0; 512];
    let len = agent.stderr.take().unwrap().read(&mut said).unwrap();
    let said = String::from_utf8_lossy(&said[..len]);
    assert!(
        said.contains("`etcd://127.0.0.1:1/t` cannot be read") && said.contains("trying for 10 s"),
        "{said}"
    );
    assert_eq!(agent.try_wait().unwrap(), None, "it goes on");
    signal(agent.id(), "TERM");
    assert!(agent.wait().unwrap().success());
}

#[test]
fn policies_are_checked_and_nobody_answering_is_said() {
    let folder = folder("checked");
    let file = folder.join("policies.toml");
    fs::write(&file, "[link]\nrate = \"10 Mbps\"\n[aggregate.web]\nfrom-port = 80\n").unwrap();
    let output = tollway(&["shape", "check", file.to_str().unwrap()]).output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("web"));
    fs::write(&file, "[link]\nrate = \"10 Mbps\"\n[aggregate.web]\nfrom-prt = 80\n").unwrap();
    let output = tollway(&["shape", "check", file.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("policies.toml:4") && said.contains("did you mean `from-port`?"), "{said}");
    for (policy, more, why) in [
        ("etcds://127.0.0.1:1/tollway", None, "--store-ca"),
        ("etcd://127.0.0.1:1/tollway", Some("--store-ca"), "without TLS"),
        (file.to_str().unwrap(), Some("--store-ca"), "is a file"),
        ("https://127.0.0.1:1/tollway", None, "`--policy etcds://127.0.0.1:1/tollway`"),
    ] {
        fs::write(&file, "[link]\nrate = \"10 Mbps\"\n[aggregate.web]\nfrom-port = 80\n").unwrap();
        let mut words = vec!["shape", "--dry-run", "--policy", policy];
        words.extend(more.iter().flat_map(|&option| [option, file.to_str().unwrap()]));
        let output = tollway(&words).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{policy}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(why), "{said}");
    }
    fs::write(&file, "[link]\nrate = \"10 Mbps\"\n").unwrap();
    let output = tollway(&["shape", "check", file.to_str().unwrap()]).output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("nothing is paced"));
    let foreign = "[aggregate.lan]\nrate = \"10 Mbps\"\nfrom = \"198.51.100.0/24\"\n\
        [aggregate.here]\nrate = \"10 Mbps\"\nfrom = \"127.0.0.0/8\"\n";
    fs::write(&file, foreign).unwrap();
    let output = tollway(&["shape", "check", file.to_str().unwrap()]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("policy `lan` is of addresses"), "{said}");
    assert!(said.contains("tollway router --config") && !said.contains("`here`"), "{said}");
    let nowhere = folder.join("nowhere.sock");
    let output = tollway(&["shape", "status", "--socket", nowhere.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no agent answers"));
}

#[test]
fn a_dry_run_says_whose_connections_are_and_sets_nothing() {
    let folder = folder("dry");
    let traffic = Traffic::start(2);
    let file = folder.join("policies.toml");
    fs::write(&file, traffic.policies("x", 80)).unwrap();
    let output =
        tollway(&["shape", "--policy", file.to_str().unwrap(), "--dry-run", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["tenants"][0]["connections"], 2);
    assert_eq!(traffic.limits(), [None; 2]);
}
