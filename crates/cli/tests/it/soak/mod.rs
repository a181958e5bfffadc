//! Agents of `tollway shape` with policies from files and from etcd, and runs of `tollway exec`,
//! under faults that a seed draws.
//!
//! `make soak` goes on for longer (`TOLLWAY_SOAK_SECONDS`). A failure prints its seed, with which
//! `TOLLWAY_SOAK_SEED` does the same again.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tollway_shape::Reach;

mod etcd;
mod round;

use crate::common::{self, alone, tollway};
use crate::shape::traffic;

/// The random generator SplitMix64.
struct Mixer(u64);

impl Mixer {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs rounds by seed for `seconds`, and at least `least` of them.
fn soak(what: &str, seconds: u64, least: u64, each: impl Fn(u64) + std::panic::RefUnwindSafe) {
    if let Some(seed) = number("TOLLWAY_SOAK_SEED") {
        return each(seed);
    }
    let until = Instant::now() + Duration::from_secs(number("TOLLWAY_SOAK_SECONDS").unwrap_or(seconds));
    let mut seed = 1;
    while Instant::now() < until || seed <= least {
        let done = std::panic::catch_unwind(|| each(seed));
        assert!(done.is_ok(), "to see it again: TOLLWAY_SOAK_SEED={seed}");
        seed += 1;
    }
    eprintln!("{what}: {} rounds", seed - 1);
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// As root this runs in another network namespace, where programs in the kernel do not limit other
/// packets.
#[test]
fn an_agent_keeps_to_its_promises_whatever_befalls_it() {
    if std::env::var_os(INSIDE).is_none() && is_root() {
        let me = std::env::current_exe().unwrap();
        let script = "ip link set lo up && exec \"$0\" --exact soak::an_agent_keeps_to_its_promises_whatever_befalls_it --nocapture";
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", script]).arg(me).env(INSIDE, "1");
        match command.status() {
            Ok(status) if status.code() != Some(1) => return assert!(status.success(), "{status}"),
            _ => eprintln!("SKIPPED: no network namespace to be had; inet_diag alone is tried"),
        }
    }
    if Reach::find() == Reach::Children {
        eprintln!("SKIPPED: this system's Yama module lets nobody but root reach the test's sockets");
        return;
    }
    let inside = std::env::var_os(INSIDE).is_some();
    if !inside {
        eprintln!("SKIPPED: `--backend bpf` needs root");
    }
    soak("shape", 6, 2, |seed| round::Round::new(seed, inside).all());
}

const INSIDE: &str = "TOLLWAY_SOAK_INSIDE";

/// Programs over a link that end by themselves, are killed, or are left behind by a killed run.
#[test]
fn a_run_of_exec_leaves_its_programs_status_and_no_process() {
    let ready = tollway(&["exec", "--link", "10Mbps 1ms", "--quiet", "--", "true"]).output().unwrap();
    if ready.status.code() == Some(125) {
        eprintln!("SKIPPED: no namespaces here: {}", String::from_utf8_lossy(&ready.stderr));
        return;
    }
    soak("exec", 3, 4, exec_round);
}

fn exec_round(seed: u64) {
    let mut mixer = Mixer(seed);
    let link = format!("{}Mbps {}ms", 1 + mixer.below(100), mixer.below(20));
    // A time for `sleep` that identifies the program.
    let mark = format!("{}.{seed}", 100_000 + std::process::id());
    let code = mixer.below(100);
    let (program, expected) = match mixer.below(5) {
        0 => (format!("exit {code}"), Some(code as i32)),
        1 => ("kill -KILL $$".to_owned(), Some(137)),
        2 => (format!("sleep {mark} & exit {code}"), Some(code as i32)),
        3 => (format!("exec sleep {mark}"), Some(143)),
        _ => (format!("sleep {mark}"), None),
    };
    let words = ["exec", "--link", &link, "--quiet", "--", "sh", "-c", &program];
    let mut run =
        tollway(&words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    if !program.contains("exit") && !program.contains("kill") {
        traffic::wait("the program", || (!running(&mark).is_empty()).then_some(()));
        traffic::signal(run.id(), if expected.is_some() { "TERM" } else { "KILL" });
    }
    let status = traffic::wait("the end", || run.try_wait().unwrap());
    assert_eq!(status.code(), expected, "{program} over {link}: {status}");
    if expected.is_none() {
        let _alone = alone();
        assert!(tollway(&["clean"]).output().unwrap().status.success());
    }
    traffic::wait("an end of what it has started", || running(&mark).is_empty().then_some(()));
}

/// Processes with a word in their command line, other than this one.
fn running(mark: &str) -> Vec<u32> {
    let has = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        *pid != std::process::id() && String::from_utf8_lossy(&line).contains(&format!("sleep\0{mark}"))
    };
    let pids =
        fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(has).collect()
}

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Number of open descriptors of a process.
fn descriptors(pid: u32) -> usize {
    fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd")).map_or(0, Iterator::count)
}
