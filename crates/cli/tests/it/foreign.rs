//! The tests of NATS' own clients against sites, beside nats-server in the same run.
//!
//! The tests choose fixed ports, so each process runs in its own network namespace. Helpers in
//! `crates/overlay/tests/clients` start the servers.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::common::{beside, folder, succeeds};
use crate::overlay::tools;

/// Results of tests, by name: true for those that passed.
type Results = BTreeMap<String, bool>;

#[test]
fn nats_go_passes_its_core_tests() {
    if !can_compare() {
        return;
    }
    let Some(suite) = tools::nats_go() else { return };
    let _measures = beside();
    let listed = all(&Command::new(&suite).args(["-test.list", "."]).output().unwrap());
    let names: Vec<&str> = listed.lines().filter(|name| name.starts_with("Test")).collect();
    let passes = |server: Server, name: &str| {
        let mut command = server.command(&suite);
        command.args(["-test.run", &format!("^{name}$"), "-test.timeout", "60s", "-test.v"]);
        let output = command.current_dir(suite.with_file_name("test")).output().unwrap();
        show(server, &output);
        output.status.success() && !all(&output).contains("--- SKIP")
    };
    compare(
        "nats.go",
        &names,
        |server, names| names.iter().map(|name| (name.to_string(), passes(server, name))).collect(),
        include_str!("../../../overlay/tests/clients/nats.go.txt"),
    );
}

#[test]
fn nats_py_passes_its_own_tests() {
    if !can_compare() {
        return;
    }
    let Some((python, source)) = tools::nats_py() else { return };
    let _measures = beside();
    let folder = folder("foreign", "nats-py");
    let sites = ["--site", "a", "--site", "b", "--site", "c", "--tenant", "plant"];
    succeeds(&folder, &[&["overlay", "keys", "keys"][..], &sites].concat());
    let pytest = |server: Server, arguments: &[&str]| {
        let mut command = server.command(&python);
        command.args(["-m", "pytest", "-p", "no:cacheprovider", "-q", "-rA", "--tb=short"]).args(arguments);
        command.env("KEYS", folder.join("keys")).env("PYTHONPATH", source.join("src"));
        let output = command.current_dir(&source).output().unwrap();
        show(server, &output);
        all(&output)
    };
    let files = ["client", "client_async_await", "client_v2", "micro_service"];
    let files = files.map(|file| format!("tests/test_{file}.py"));
    let files = files.each_ref().map(String::as_str);
    let listed = pytest(Server::Nats, &[&["--collect-only"][..], &files].concat());
    let name = |line: &str| line.split(' ').next().unwrap().to_owned();
    let names: Vec<String> = listed.lines().filter(|line| line.contains("::")).map(name).collect();
    let result = |line: &str| {
        let (result, rest) = line.split_once(' ')?;
        let known = ["PASSED", "FAILED", "ERROR"].contains(&result) && rest.contains("::");
        known.then(|| (name(rest), result == "PASSED"))
    };
    compare(
        "nats-py",
        &names.iter().map(String::as_str).collect::<Vec<_>>(),
        |server, names| pytest(server, names).lines().filter_map(result).collect(),
        include_str!("../../../overlay/tests/clients/nats-py.txt"),
    );
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    Nats,
    Site,
}

impl Server {
    /// A command in its own network namespace. The servers that its helper starts end with it.
    fn command(self, program: &Path) -> Command {
        let mut command = Command::new("unshare");
        let inside = "ip link set lo up && exec \"$0\" \"$@\"";
        command.args(["-npf", "--kill-child", "sh", "-c", inside]).arg(program).stdin(Stdio::null());
        if self == Server::Site {
            command.env("TOLLWAY", env!("CARGO_BIN_EXE_tollway"));
        }
        command
    }
}

/// Runs the tests `names` at nats-server and at sites at the same time. None may pass only there,
/// unless a line of `list` has its name and the reason.
///
/// The tests have time limits, and the machine is busy: one that fails runs alone, twice.
fn compare(suite: &str, names: &[&str], run: impl Fn(Server, &[&str]) -> Results + Sync, list: &str) {
    assert!(names.len() > 50, "{names:?}");
    // Most of their time they wait.
    let shares: Vec<Vec<&str>> =
        (0..SHARES).map(|at| names.iter().skip(at).step_by(SHARES).copied().collect()).collect();
    let (run, shares) = (&run, &shares);
    let [nats, site] = std::thread::scope(|scope| {
        let started = [Server::Nats, Server::Site].map(|server| -> Vec<_> {
            shares.iter().map(|share| scope.spawn(move || run(server, share))).collect()
        });
        started.map(|parts| -> Results { parts.into_iter().flat_map(|part| part.join().unwrap()).collect() })
    });
    let passed = |results: &Results| results.values().filter(|passed| **passed).count();
    eprintln!("{suite}: {} tests pass at nats-server, {} at a site", passed(&nats), passed(&site));
    assert!(2 * passed(&nats) > names.len(), "{nats:#?}");
    let left_out: Vec<&str> = list
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(' ').map(|(name, _)| name))
        .collect();
    let failed: Vec<&str> = nats
        .iter()
        .filter(|(name, passed)| **passed && site.get(*name) != Some(&true))
        .map(|(name, _)| name.as_str())
        .filter(|name| !left_out.contains(name))
        .filter(|name| !(0..2).any(|_| run(Server::Site, &[name]).values().any(|passed| *passed)))
        .collect();
    assert!(failed.is_empty(), "these pass at nats-server only:\n{failed:#?}");
}

/// Says `SKIPPED` if there is no nats-server, or no network namespace.
fn can_compare() -> bool {
    let able = |program: &str, argument: &[&str]| {
        let able = Command::new(program).args(argument).output().is_ok_and(|done| done.status.success());
        if !able {
            eprintln!("SKIPPED: `{program} {}` fails", argument.join(" "));
        }
        able
    };
    able("nats-server", &["--version"]) && able("unshare", &["-npf", "ip", "link", "set", "lo", "up"])
}

/// Shows the output of tests where `TOLLWAY_FOREIGN` is set.
fn show(server: Server, output: &Output) {
    if std::env::var_os("TOLLWAY_FOREIGN").is_some() {
        eprintln!("{server:?}:\n{}", all(output));
    }
}

fn all(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// Processes that run parts of a suite at the same time.
const SHARES: usize = 3;
