//! Every long-running command ends soon and in order after SIGTERM, and keeps the results so far.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{self, tollway};

/// A run of a day: 10 Mb/s until it is ended.
const LONG: &str = "name = \"long\"\nduration = \"100000 s\"\n[node.a]\n[node.b]\n[link.wire]\nfrom = \"a\"\nto = \"b\"\n\
                    rate = \"10 Mbps\"\ndelay = \"10 ms\"\nlimit = \"20 packets\"\n[flow.f]\nfrom = \"a\"\nto = \"b\"\nlaw = \"newreno\"\n";
/// A source of 10¹⁴ bits per second and a link that carries them: a hundredth of the run takes
/// hours.
const FAST: &str = "name = \"fast\"\nduration = \"1 s\"\n[node.a]\n[node.b]\n[link.wire]\nfrom = \"a\"\nto = \"b\"\n\
                    rate = \"100 Tbps\"\ndelay = \"0 s\"\nlimit = \"20 packets\"\n[cbr.f]\nfrom = \"a\"\nto = \"b\"\nrate = \"100 Tbps\"\n";

/// Checks the folder after the command has ended.
type Check = fn(&Path);

/// A command, its exit status (`None`: ended by the signal itself, since there is nothing to lose),
/// and a check of its results.
struct Case {
    name: &'static str,
    words: Vec<String>,
    code: Option<i32>,
    check: Check,
}

fn case(name: &'static str, words: &[&str], code: Option<i32>, check: Check) -> Case {
    Case { name, words: words.iter().map(|&word| word.to_owned()).collect(), code, check }
}

fn nothing(_: &Path) {}

/// The table is complete, with a row for each flow.
fn summary(folder: &Path) {
    let text = fs::read_to_string(folder.join("out/summary.csv")).expect("a summary");
    assert!(text.lines().count() >= 2 && text.ends_with('\n'), "{text:?}");
}

/// A table of the finished runs, and a journal with which the same command does the rest.
fn table(folder: &Path) {
    let text = fs::read_to_string(folder.join("sweep.csv")).expect("a table");
    assert!(text.ends_with('\n') || text.is_empty(), "{text:?}");
    assert!(folder.join("sweep.csv.journal").exists());
}

fn no_socket(folder: &Path) {
    assert!(!folder.join("run/a.sock").exists(), "it has taken its socket away");
}

fn cases(free: [u16; 2]) -> Vec<Case> {
    let listen = |port: u16| format!("127.0.0.1:{port}");
    let socket = ["--socket", "run/a.sock"];
    let run = |more: &[&'static str]| [&["run", "long.toml", "--out", "out"], more].concat();
    let mut all = vec![
        case("run", &run(&[]), Some(130), summary),
        case("run-fast", &["run", "fast.toml", "--out", "out"], Some(130), summary),
        case("run-pcap", &run(&["--pcap", "a.pcap"]), Some(130), summary),
        case("run-live", &run(&["--engine", "live"]), Some(130), summary),
        case("sweep", &["sweep", "long.toml", "--seeds", "4", "--out", "sweep.csv"], Some(130), table),
        // The second of two experiments, the first of which ends soon.
        case("reproduce", &["reproduce", "--papers", "papers", "--out", "out"], Some(130), nothing),
        case("verify", &["verify", "--random", "1000000"], Some(130), nothing),
        case(
            "verify-starts",
            &["verify", "--starts", "--law", "fcp", "--random", "1000000"],
            Some(130),
            nothing,
        ),
        case(
            "shape",
            &[&["shape", "--policy", "p.toml", "--backend", "inet-diag"], &socket[..]].concat(),
            Some(0),
            no_socket,
        ),
        case(
            "shape-away",
            &[&["shape", "--policy", "etcd://127.0.0.1:1/t"], &socket[..]].concat(),
            Some(0),
            no_socket,
        ),
        case(
            "shape-json",
            &[&["shape", "--json", "--policy", "p.toml", "--backend", "inet-diag"], &socket[..]].concat(),
            Some(0),
            no_socket,
        ),
        case(
            "switch",
            &[
                &["switch", "--listen", "127.0.0.1:0", "--frames", "lines", "--to", &listen(free[0])],
                &socket[..],
            ]
            .concat(),
            Some(0),
            no_socket,
        ),
        case("overlay", &[&["overlay", "--config", "site.toml"], &socket[..]].concat(), Some(0), no_socket),
        case("exec", &["exec", "--link", "10Mbps 10ms", "--", "sleep", "1000"], Some(143), nothing),
        case(
            "exec-deaf",
            &["exec", "--link", "10Mbps 10ms", "--timeout", "100 s", "--", "sh", "-c", "sleep 1000"],
            Some(143),
            nothing,
        ),
    ];
    if !cfg!(feature = "etcd") {
        all.retain(|case| case.name != "shape-away");
    }
    all
}

fn start(case: &Case, port: u16) -> (std::path::PathBuf, Child) {
    let folder = common::folder("signals", case.name);
    fs::write(folder.join("long.toml"), LONG).unwrap();
    fs::write(folder.join("fast.toml"), FAST).unwrap();
    fs::create_dir_all(folder.join("papers/toy")).unwrap();
    for (name, duration) in [("one", "1 s"), ("two", "100000 s")] {
        let text = LONG.replace("\"long\"", &format!("\"toy/{name}\"")).replace("100000 s", duration);
        let claim = format!(
            "title = \"t\"\nsource = \"a test\"\n{text}[[claim]]\nid = \"toy.{name}\"\nmetric = \"utilisation\"\nlink = \"wire\"\nat-least = 0.1\n"
        );
        fs::write(folder.join(format!("papers/toy/{name}.toml")), claim).unwrap();
    }
    fs::write(folder.join("p.toml"), "[link]\nrate = \"1 Mbps\"\n[aggregate.a]\nto = \"192.0.2.1\"\n")
        .unwrap();
    fs::write(folder.join("site.toml"), format!("site = \"a\"\nlisten = \"127.0.0.1:{port}\"\n[tenant.x]\n"))
        .unwrap();
    let words: Vec<&str> = case.words.iter().map(String::as_str).collect();
    let mut command = tollway(&words);
    let log = fs::File::create(folder.join("log")).unwrap();
    command.current_dir(&folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    (folder, command.spawn().unwrap())
}

#[test]
fn every_command_that_may_run_for_long_ends_soon_after_sigterm() {
    let free = [(), ()].map(|()| common::free_port());
    let mut wrong = Vec::new();
    for case in cases(free) {
        let (folder, mut child) = start(&case, free[1]);
        let log = || fs::read_to_string(folder.join("log")).unwrap_or_default();
        // Until it is well under way, or has failed with a message.
        std::thread::sleep(UNDER_WAY);
        if let Some(status) = child.try_wait().unwrap() {
            if case.name.starts_with("exec") && status.code() == Some(125) {
                eprintln!("SKIPPED: `tollway exec` cannot make namespaces here: {}", log());
                continue;
            }
            panic!("{}: it has ended by itself: {status}: {}", case.name, log());
        }
        let pid = child.id().to_string();
        let begin = Instant::now();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let status = loop {
            match child.try_wait().unwrap() {
                None if begin.elapsed() < DEAF => std::thread::sleep(Duration::from_millis(10)),
                status => break status,
            }
        };
        eprintln!("{}: {:?} after {:.2} s", case.name, status, begin.elapsed().as_secs_f64());
        match status {
            Some(status) if status.code() == case.code => (case.check)(&folder),
            Some(status) => {
                wrong.push(format!("{}: {status} instead of {:?}: {}", case.name, case.code, log()))
            }
            None => {
                child.kill().unwrap();
                child.wait().unwrap();
                wrong.push(format!("{}: it does not end", case.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

const UNDER_WAY: Duration = Duration::from_millis(1500);
/// The promise is one second, on a machine that is not busy.
const DEAF: Duration = Duration::from_secs(6);
