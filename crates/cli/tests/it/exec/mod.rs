//! Programs over emulated networks: `tollway exec` as a user sees it, with clients and servers on
//! the kernel's TCP and UDP.
//!
//! The program is this test's executable, in the role that its environment names. The server is a
//! thread here, on the host's loopback interface. Figures of real time are checked only if the run
//! itself reports that the machine kept up; otherwise the test prints `NOT CHECKED`.

use std::collections::HashMap;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

mod action;
mod explicit;
mod faults;
mod ipv6;
mod kernel;
mod listen;
mod localhost;
mod outside;
mod programs;
mod serve;
mod servers;
mod shaped;
mod tls;
#[cfg(feature = "view")]
mod view;

use crate::common::{self, tollway};
use servers::{serve, serve_names};

fn folder(name: &str) -> PathBuf {
    common::folder("exec", name)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A wrapped message as one line.
fn unwrapped(said: &str) -> String {
    said.replace("│", " ").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// True if this machine allows namespaces; else prints `SKIPPED`.
fn namespaces() -> bool {
    let output =
        tollway(&["exec", "--link", "1Gbps", "-q", "--", "true"]).output().expect("the command starts");
    if !output.status.success() {
        eprintln!("SKIPPED: no network namespaces here: {}", text(&output.stderr));
    }
    output.status.success()
}

/// The program in a network. It is no test: without a role in the environment it does nothing.
#[test]
fn role() {
    let Ok(role) = std::env::var("EXEC_ROLE") else { return };
    let words: Vec<&str> = role.split_whitespace().collect();
    let number = |i: usize| words[i].parse::<u64>().unwrap();
    let said = match words[0] {
        "download" => programs::download(words[1], number(2)),
        "share" => programs::share(number(1) as u16, number(2) as usize, number(3)),
        "ping-pong" => programs::ping_pong(number(1) as u16, number(2) as u16),
        "ports" => programs::ports(number(1) as u16, number(2)),
        "outside" => outside::host(),
        "shaped" => shaped::send(Path::new(words[1]), number(2)),
        "knock" => programs::knock(),
        "listen" => programs::listen(number(1) as u16, Path::new(words[2])),
        "v6" => ipv6::talk(number(1) as u16, number(2) as u16),
        "persist" => faults::persist(number(1) as u16),
        "abroad" => outside::abroad(number(1) as u16, number(2) as u16),
        _ => panic!("{role}"),
    };
    fs::write(std::env::var("EXEC_SAYS").unwrap(), said).unwrap();
}

/// The output of a role, and the report of `tollway`.
struct Ran {
    said: HashMap<String, f64>,
    report: Value,
}

impl Ran {
    /// The report's link with this name.
    fn link(&self, name: &str) -> &Value {
        let links = self.report["links"].as_array().unwrap();
        links.iter().find(|link| link["link"] == name).unwrap_or_else(|| panic!("{:#}", self.report))
    }

    /// The 99th percentile of lateness, in µs.
    fn late_us(&self) -> f64 {
        self.report["lateness_us"]["p99"].as_f64().unwrap()
    }

    /// True if the emulator was on time, so that figures of real time are reliable.
    fn punctual(&self, what: &str) -> bool {
        let late = self.late_us();
        let punctual = self.report["kept_up"] == true && late < 250.0;
        if !punctual {
            eprintln!(
                "NOT CHECKED: {what}: this machine was too busy, the emulator {late:.0} µs late (99 %)"
            );
        }
        punctual
    }

    /// Asserts that every packet is accounted for.
    fn conserved(&self) {
        for flow in self.report["flows"].as_array().unwrap() {
            let count = |key: &str| flow[key].as_u64().unwrap();
            let where_to = count("delivered_packets") + count("lost_packets") + count("in_flight");
            assert_eq!(count("packets"), where_to, "{flow:#}");
        }
        let total = |of: &str, key: &str| -> u64 {
            self.report[of].as_array().unwrap().iter().map(|entry| entry[key].as_u64().unwrap()).sum()
        };
        let drops = |link: &Value| -> u64 {
            link["drops"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum()
        };
        let by_links: u64 = self.report["links"].as_array().unwrap().iter().map(drops).sum();
        let refused = self.report["refused_by_kernel"].as_u64().unwrap();
        assert_eq!(total("flows", "lost_packets"), by_links + refused, "every loss has a cause");
    }
}

/// Runs this executable in `role` over a network.
fn exec(name: &str, network: &[&str], role: &str) -> Ran {
    let me = std::env::current_exe().unwrap();
    let program = [me.to_str().unwrap(), "--exact", "exec::role", "--nocapture"];
    exec_program(name, network, role, &program)
}

/// Runs a program over a network. Its results go to the file named by `EXEC_SAYS`, as lines of
/// `key=value`.
fn exec_program(name: &str, network: &[&str], role: &str, program: &[&str]) -> Ran {
    let says = folder(name).join("said");
    let arguments = [&["exec", "--json"], network, &["--"], program].concat();
    let output = tollway(&arguments).env("EXEC_ROLE", role).env("EXEC_SAYS", &says).output().unwrap();
    assert!(output.status.success(), "{}\n{}", text(&output.stderr), text(&output.stdout));
    let said = fs::read_to_string(says).unwrap();
    let number =
        |line: &str| line.split_once('=').map(|(key, value)| (key.to_owned(), value.parse().unwrap()));
    let ran = Ran {
        said: said.lines().filter_map(number).collect(),
        report: serde_json::from_slice(&output.stdout).expect("--json is JSON and nothing else"),
    };
    ran.conserved();
    ran
}

/// Writes a trace with `per_three_ms` opportunities in every three milliseconds; 50 are 200 Mb/s.
fn trace(dir: &Path, per_three_ms: usize) -> PathBuf {
    let line = |i: usize| format!("{}\n", 1 + i * 3 / per_three_ms);
    let path = dir.join("steady.trace");
    fs::write(&path, (0..per_three_ms).map(line).collect::<String>()).unwrap();
    path
}

#[test]
fn the_exit_status_is_the_program_s() {
    if !namespaces() {
        return;
    }
    let status = |arguments: &[&str]| -> Option<i32> {
        tollway(&[&["exec", "--link", "10Mbps 1ms", "-q"], arguments].concat())
            .output()
            .unwrap()
            .status
            .code()
    };
    assert_eq!(status(&["--", "sh", "-c", "exit 7"]), Some(7));
    assert_eq!(status(&["--", "sh", "-c", "kill -TERM $$"]), Some(128 + 15));
    assert_eq!(status(&["--timeout", "0.2", "--", "sleep", "60"]), Some(124));
    assert_eq!(status(&["--set", "link.down.law=nonsense", "--", "true"]), Some(2));
    let output = tollway(&["exec", "--link", "10Mbsp", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("`10Mbsp`"), "{}", text(&output.stderr));
}

#[test]
fn the_exit_status_is_known_where_nobody_waits_for_children() {
    if !namespaces() {
        return;
    }
    let ignored = Command::new("env").args(["--ignore-signal=CHLD", "true"]).status();
    if !ignored.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: this env(1) ignores no signals");
        return;
    }
    let exec = ["exec", "--link", "10Mbps 1ms", "-q", "--", "sh", "-c", "exit 7"];
    let mut command = Command::new("env");
    command.arg("--ignore-signal=CHLD").arg(env!("CARGO_BIN_EXE_tollway")).args(exec);
    assert_eq!(command.status().unwrap().code(), Some(7));
}

#[test]
fn a_run_within_a_run_has_names_and_no_disk_is_needed() {
    if !namespaces() {
        return;
    }
    let me = env!("CARGO_BIN_EXE_tollway");
    let inner = [me, "exec", "--link", "10Mbps 1ms", "-q", "--", "getent", "ahosts", "server"];
    let mut command = tollway(&[&["exec", "--link", "10Mbps 1ms", "-q", "--"], &inner[..]].concat());
    let output = command.env("TMPDIR", "/nowhere").output().unwrap();
    assert!(text(&output.stdout).starts_with("10.77.0.2 "), "{}", text(&output.stderr));
}

#[test]
fn without_the_device_of_interfaces_what_is_missing_is_named() {
    if !namespaces() {
        return;
    }
    let script = "mount -t tmpfs none /dev/net || exit 77; exec \"$@\"";
    let exec = [env!("CARGO_BIN_EXE_tollway"), "exec", "--link", "10Mbps 1ms", "--", "true"];
    let output = Command::new("unshare").args(["-rm", "sh", "-c", script, "sh"]).args(exec).output();
    match output {
        Ok(output) if !matches!(output.status.code(), Some(1 | 77)) => {
            assert_eq!(output.status.code(), Some(125));
            assert!(text(&output.stderr).contains("/dev/net/tun"), "{}", text(&output.stderr));
        }
        _ => eprintln!("SKIPPED: no mounts of one's own here"),
    }
}

#[test]
fn a_signal_that_comes_before_the_program_ends_the_run() {
    if !namespaces() {
        return;
    }
    let ready = folder("early").join("ready");
    // The wait for a server that never listens is five seconds.
    let server = format!("touch {}; sleep 600", ready.display());
    let begin = std::time::Instant::now();
    let exec = ["exec", "--link", "10Mbps", "--serve", &server, "--", "echo", "started"];
    let mut command = tollway(&exec);
    let child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn();
    let child = child.unwrap();
    while !ready.exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(128 + 15), ""));
    assert!(text(&output.stderr).contains("before the program was started"), "{}", text(&output.stderr));
    assert!(begin.elapsed() < Duration::from_secs(5) || programs::overloaded());
}

#[test]
fn the_terminal_s_interrupt_reaches_a_program_that_has_a_session_of_its_own() {
    if !namespaces() {
        return;
    }
    let ready = folder("terminal").join("ready");
    let program = format!("setsid sh -c 'touch {}; sleep 20'", ready.display());
    let exec = format!("{} exec -q --link 10Mbps -- {program}", env!("CARGO_BIN_EXE_tollway"));
    let mut command = Command::new("script");
    command.args(["-qec", &exec, "/dev/null"]).stdin(std::process::Stdio::piped());
    let Ok(mut child) = command.stdout(std::process::Stdio::null()).spawn() else {
        eprintln!("SKIPPED: `script` is not installed");
        return;
    };
    while !ready.exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut keys = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut keys, b"\x03").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(128 + 2));
}

/// Mistakes in words are shown in the words and once, not in the scenario made from them.
#[test]
fn mistakes_in_words_are_shown_in_the_words() {
    for (network, mistakes) in [
        (&["--link", "trace=none 5ms"][..], &["[--link:1:1]\n 1 │ trace=none 5ms\n   · ─────┬────\n"][..]),
        (&["--link", "5ms trace none"], &["[--link:1:5]"]),
        (&["--link", "20Mbps fq_codel.queus=5"], &["[--link:1:8]"]),
        (&["--link", "limit=abc", "--link-up", "5ms limit=def"], &["[--link:1:1]", "[--link-up:1:5]"]),
        (&["--link", "limit=abc", "--link-up", "limit=abc"], &["[--link:1:1]", "[--link-up:1:1]"]),
        (&["--link", "limit=abc", "--link-up", "1Mbps"], &["[--link:1:1]"]),
        (&["--link", "5Mbps", "--set", "link.up.limit=abc"], &["[--set:1:15]"]),
        (&["--mahimahi", "mm-delay 5 mm-link none other"], &["[--mahimahi:1:25]", "[--mahimahi:1:20]"]),
    ] {
        let output = tollway(&[&["exec"], network, &["--", "true"]].concat()).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(
            (output.status.code(), said.matches("╭─[--").count()),
            (Some(2), mistakes.len()),
            "{said}"
        );
        assert!(mistakes.iter().all(|place| said.contains(place)), "{network:?}: {said}");
        assert!(!said.contains("folder of the scenario"), "{said}");
    }
}

#[test]
fn a_log_that_cannot_be_written_leaves_the_exit_status() {
    if !namespaces() {
        return;
    }
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut command = tollway(&["exec", "--link", "10Mbps 1ms", "--", "sh", "-c", "exit 3"]);
    assert_eq!(command.stderr(full).status().unwrap().code(), Some(3));
}

#[test]
fn what_cannot_be_written_takes_no_report_with_it() {
    if !namespaces() {
        return;
    }
    let out = folder("unwritten").join("out");
    // The folder was there when the program started.
    let spoil = format!("rm -r {0} && touch {0}", out.display());
    let run = |option: [&str; 2], program: &str| {
        let program = ["--", "sh", "-c", program];
        tollway(&[&["exec", "--json", "--link", "10Mbps 1ms"], &option[..], &program].concat())
            .output()
            .unwrap()
    };
    for (option, program) in
        [(["--pcap", "/dev/full"], "true"), (["--out", out.to_str().unwrap()], spoil.as_str())]
    {
        let output = run(option, program);
        let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
        assert_eq!(
            (report["exit_status"].as_u64(), output.status.code()),
            (Some(0), Some(125)),
            "{option:?}"
        );
        assert!(text(&output.stderr).contains("cannot write"), "{}", text(&output.stderr));
    }
    // If a folder can't be made, the program is not started.
    let output = run(["--out", "/dev/null/folder"], "echo started >&2");
    assert_eq!(output.status.code(), Some(125));
    assert!(output.stdout.is_empty() && !text(&output.stderr).contains("started"));
}

#[test]
fn a_signal_reaches_the_program() {
    if !namespaces() {
        return;
    }
    let ready = folder("signal").join("ready");
    // Not INT: children of a background shell ignore it.
    let script = format!("trap 'exit 9' TERM; touch {}; while :; do sleep 0.05; done", ready.display());
    let child = tollway(&["exec", "--link", "10Mbps", "-q", "--", "sh", "-c", &script]).spawn().unwrap();
    while !ready.exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(9));
}

#[test]
fn names_resolve_inside_and_nothing_leads_outside() {
    if !namespaces() {
        return;
    }
    let script = "cat /etc/hosts; ! getent hosts example.com; cat /proc/net/route | wc -l";
    let output = tollway(&["exec", "--link", "10Mbps", "-q", "--", "sh", "-c", script]).output().unwrap();
    let said = text(&output.stdout);
    assert!(said.contains("10.77.0.2 server") && said.contains("10.77.0.2 host"), "{said}");
    // The heading of the table, and the network's own socket.
    assert_eq!(said.lines().last().map(str::trim), Some("2"), "{said}");
}

#[test]
fn an_ordinary_user_needs_no_privilege() {
    if !namespaces() {
        return;
    }
    let id = |what: &str| text(&Command::new("id").arg(what).output().unwrap().stdout).trim().to_owned();
    let mut command = tollway(&["exec", "--link", "10Mbps 1ms", "--json", "--", "id", "-u"]);
    if id("-u") == "0" {
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("SKIPPED: nobody else can run this test's command: {error}");
            return;
        }
    };
    let said = text(&output.stderr);
    if said.contains("does not allow you to create network namespaces") || said.contains("chmod 666") {
        eprintln!("SKIPPED: {said}");
        return;
    }
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["rootless"], true);
    // The user inside is the user outside.
    let expected = if id("-u") == "0" { NOBODY.to_string() } else { id("-u") };
    assert_eq!(said.trim(), expected);
}

/// A blackout that ends before a slow server is up still affects the program: time zero is its
/// start.
#[test]
fn time_counts_from_the_program_s_start() {
    if !namespaces() {
        return;
    }
    let file = folder("dark").join("dark.toml");
    let network = "name = \"dark\"\nduration = \"9 s\"\n[node.a]\n[node.b]\n\
        [link.wire]\nfrom = \"a\"\nto = \"b\"\nrate = \"10 Mbps\"\n\
        [flow.f]\nfrom = \"a\"\nto = \"b\"\nlaw = \"cubic\"\n\
        [[change]]\nat = \"0 s\"\nlink = \"wire\"\nblackout = \"2 s\"\n";
    fs::write(&file, network).unwrap();
    let ran = exec("clock", &[file.to_str().unwrap(), "--serve", "b=sleep 2.5"], "knock");
    if programs::overloaded() {
        eprintln!("NOT CHECKED: the program's first packet: this machine was too busy");
        return;
    }
    let flow = &ran.report["flows"][0];
    assert_eq!((flow["packets"].as_u64(), flow["lost_packets"].as_u64()), (Some(1), Some(1)), "{flow:#}");
    assert!(ran.report["duration_s"].as_f64().unwrap() < 2.5, "{:#}", ran.report);
}

#[test]
fn what_servers_and_the_program_leave_running_ends_with_the_run() {
    if !namespaces() {
        return;
    }
    let dir = folder("left");
    let left = |name: &str| format!("sleep 600 & echo $! > {}", dir.join(name).display());
    // The server's shell ends at once; the program runs in its own session.
    let server = left("server");
    let program = left("program").replace("sleep", "setsid sleep");
    let mut command =
        tollway(&["exec", "--link", "10Mbps 1ms", "-q", "--serve", &server, "--", "sh", "-c", &program]);
    assert!(command.status().unwrap().success());
    for name in ["server", "program"] {
        let pid = fs::read_to_string(dir.join(name)).unwrap();
        let stat = fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat"));
        // Its parent may not have reaped it yet.
        assert!(stat.is_err() || stat.is_ok_and(|stat| stat.contains(") Z ")), "{name}");
    }
}

#[test]
fn mahimahi_s_shells_and_captures() {
    if !namespaces() {
        return;
    }
    let (tcp, udp) = (serve(Ipv4Addr::LOCALHOST), serve_names(Ipv4Addr::LOCALHOST, 0));
    let dir = folder("mahimahi");
    let trace = trace(&dir, 50);
    let shells = format!("mm-delay 10 mm-link {0} {0}", trace.display());
    let pcap = dir.join("program.pcap");
    let ports = (tcp.to_string(), format!("{udp}/udp"));
    let network = [
        "--mahimahi",
        &shells,
        "--publish",
        &ports.0,
        "--publish",
        &ports.1,
        "--pcap",
        pcap.to_str().unwrap(),
        "--out",
        dir.to_str().unwrap(),
    ];
    // Files of an earlier run, and one that is not a run's.
    for name in ["summary.csv", "links.arrow", "links.csv", "mine.csv"] {
        fs::write(dir.join(name), "old").unwrap();
    }
    fs::write(dir.join(".tollway-tables"), "links.arrow\nlinks.csv\nsummary.csv\n").unwrap();
    let ran = exec("mahimahi-role", &network, &format!("ping-pong {tcp} {udp}"));
    assert!(ran.said["websocket"] >= 20.0 && ran.said["dns"] >= 20.0, "{:?}", ran.said);
    // The capture has as many packets as flows sent and received at the program.
    let mut capture = &fs::read(pcap).unwrap()[24..];
    let mut packets = 0;
    while let Some(header) = capture.first_chunk::<16>() {
        let len = u32::from_ne_bytes(header[8..12].try_into().unwrap()) as usize;
        assert_eq!(capture[16] >> 4, 4, "an IPv4 packet");
        capture = &capture[16 + len..];
        packets += 1;
    }
    let flows = ran.report["flows"].as_array().unwrap();
    let seen = |flow: &Value| {
        flow[if flow["source"] == "10.77.0.1" { "packets" } else { "delivered_packets" }].as_u64()
    };
    assert_eq!(packets, flows.iter().map(|flow| seen(flow).unwrap()).sum::<u64>());
    for name in ["exec.html", "exec.png", "links.csv", "flows.csv"] {
        assert!(fs::metadata(dir.join(name)).unwrap().len() > 100, "{name}");
    }
    assert_eq!(fs::read_to_string(dir.join(".tollway-tables")).unwrap(), "flows.csv\nlinks.csv\n");
    let left = ["summary.csv", "links.arrow", "mine.csv"].map(|name| dir.join(name).exists());
    assert_eq!(left, [false, false, true]);
    // While another run writes to the folder, nothing runs.
    let second =
        tollway(&["exec", "--link", "1Gbps", "--out", dir.to_str().unwrap(), "--", "echo", "it ran"]);
    let mut locked = Command::new("flock");
    locked.arg(dir.join(".tollway-tables")).arg(second.get_program()).args(second.get_args());
    let refused = locked.output().unwrap();
    assert!(text(&refused.stderr).contains("another tollway is writing to"), "{refused:?}");
    assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(125), String::new()));
}

#[test]
fn a_question_from_each_of_many_ports_is_answered() {
    if !namespaces() {
        return;
    }
    let (udp, says) = (serve_names(Ipv4Addr::LOCALHOST, 0), folder("ports").join("said"));
    let me = std::env::current_exe().unwrap();
    // With few descriptors: a relay that kept one per port would soon use them up.
    let script = "ulimit -n 128; exec \"$@\"";
    let exec = ["exec", "-q", "--link", "1Gbps", "--publish", &format!("{udp}/udp"), "--"];
    let status = Command::new("sh")
        .args(["-c", script, "sh", env!("CARGO_BIN_EXE_tollway")])
        .args(exec)
        .arg(me)
        .args(["--exact", "exec::role", "--nocapture"])
        .env("EXEC_ROLE", format!("ports {udp} 300"))
        .env("EXEC_SAYS", &says)
        .status();
    assert!(status.unwrap().success());
    assert_eq!(fs::read_to_string(says).unwrap(), "answered=300");
}

#[test]
fn what_a_killed_run_leaves_is_cleaned_away() {
    if !namespaces() {
        return;
    }
    let pid = folder("clean").join("pid");
    // A grandchild that outlives its parent.
    let script = format!("sh -c 'echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600' & wait", pid.display());
    let mut child = tollway(&["exec", "--link", "10Mbps", "-q", "--", "sh", "-c", &script]).spawn().unwrap();
    while !pid.exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let left = Path::new("/proc").join(fs::read_to_string(&pid).unwrap().trim());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(left.exists());
    let output = tollway(&["clean"]).output().unwrap();
    assert!(output.status.success() && text(&output.stdout).contains("sleep"), "{}", text(&output.stdout));
    let gone = || fs::read_to_string(left.join("stat")).map_or(true, |stat| stat.contains(") Z "));
    while !gone() {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The number of the user `nobody`.
const NOBODY: u32 = 65534;
