//! The tests of foreign clients through the switch, beside one Redis server in the same run.
//!
//! `TOLLWAY_REDIS_PY` names the folder of redis-py's source package (`pip download --no-binary :all:
//! redis`, unpacked), and `TOLLWAY_PYTHON` a Python with redis-py and pytest, `python3` by default.
//! go-redis comes from Go's proxy.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::resp::{RedisServer, have};
use crate::common::*;

/// Results of tests, by name: true for those that passed.
type Results = BTreeMap<String, bool>;

/// The results of redis-py's tests at `address`.
fn redis_py(folder: &std::ffi::OsStr, python: &str, address: SocketAddr) -> Results {
    let files = std::env::var("TOLLWAY_REDIS_PY_FILES")
        .unwrap_or("test_pipeline test_lock test_scripting test_encoding test_commands".into());
    let files = files.split(' ').map(|file| format!("tests/{file}.py"));
    let output = Command::new(python)
        .args(["-m", "pytest", "-p", "no:cacheprovider", "-q", "-rA", "--tb=line"])
        .args([
            "-m",
            "not redismod and not ssl and not onlycluster",
            "--redis-url",
            &format!("redis://{address}/0"),
        ])
        .args(files)
        .current_dir(folder)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut results = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        let (Some(result @ ("PASSED" | "FAILED" | "ERROR")), Some(name)) = (words.next(), words.next())
        else {
            continue;
        };
        if name.contains("::") {
            *results.entry(name.to_owned()).or_insert(true) &= result == "PASSED";
        }
    }
    assert!(results.values().filter(|passed| **passed).count() > 20, "{text}");
    results
}

#[test]
fn redis_py_passes_its_own_tests() {
    let Some(folder) = std::env::var_os("TOLLWAY_REDIS_PY") else {
        eprintln!("SKIPPED: TOLLWAY_REDIS_PY names no folder with redis-py's source package");
        return;
    };
    if !have(&["redis-server"]) {
        return;
    }
    let python = std::env::var("TOLLWAY_PYTHON").unwrap_or("python3".into());
    compare("redis-py", |address| redis_py(&folder, &python, address), include_str!("../redis-py.txt"));
}

/// The tests of go-redis as a program in its folder: the last version that needs no containers.
fn go_redis() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-redis");
    let script = r#"
        set -e
        at=$(go mod download -json github.com/redis/go-redis/v9@v9.7.0 | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
        rm -rf "$0" && cp -r "$at" "$0" && chmod -R u+w "$0" && cd "$0"
        sed -i 's/rediStackPort = "6379"/rediStackPort = os.Getenv("REDIS_AT")/' main_test.go
        go test -c -o suite ."#;
    let mut build = Command::new("sh");
    let built = build.args(["-c", script]).arg(&folder).env("GOFLAGS", "-buildvcs=false").output();
    match built {
        Ok(done) if done.status.success() => Some(folder),
        why => {
            eprintln!("SKIPPED: go-redis' tests can't be built (go, and its proxy): {why:?}");
            None
        }
    }
}

#[test]
fn go_redis_passes_its_own_tests() {
    if !have(&["redis-server"]) {
        return;
    }
    let Some(folder) = go_redis() else { return };
    let run = |address: SocketAddr| -> Results {
        let port = address.port().to_string();
        let report = folder.join(format!("{port}.json"));
        let mut suite = Command::new(folder.join("suite"));
        suite.args([
            "-test.run",
            "TestGinkgoSuite",
            "-ginkgo.seed",
            "1",
            "-ginkgo.focus-file",
            GO_REDIS_FILES,
        ]);
        suite.args(["-ginkgo.skip", GO_REDIS_SKIPPED, "-ginkgo.json-report"]).arg(&report);
        // This takes one server, whose port is given, for all.
        suite.env("RE_CLUSTER", "true").env("REDIS_AT", &port).current_dir(&folder);
        let output = suite.output().unwrap();
        let report = std::fs::read(&report).unwrap_or_else(|_| panic!("{output:?}"));
        let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
        let tests = report[0]["SpecReports"].as_array().unwrap().iter();
        let words = |test: &serde_json::Value| -> String {
            let outer = test["ContainerHierarchyTexts"].as_array().into_iter().flatten();
            let words = outer.chain([&test["LeafNodeText"]]).filter_map(|text| text.as_str());
            words.collect::<Vec<_>>().join(" ")
        };
        tests.map(|test| (words(test), test["State"] == "passed")).collect()
    };
    compare("go-redis", run, include_str!("../go-redis.txt"));
}

/// Runs a suite at one server and through a switch before three, at the same time. No test may pass
/// only there, unless a line of `list` has its name, and a reason after `: `.
fn compare(suite: &str, run: impl Fn(SocketAddr) -> Results + Sync, list: &str) {
    let servers: Vec<_> = (0..3).map(|at| RedisServer::start(&format!("{suite}-{at}"))).collect();
    let members: Vec<_> =
        ["a", "b", "c"].into_iter().zip(servers.iter().map(|server| server.address)).collect();
    let agent = switch("resp", "", &members);
    let alone = RedisServer::start(&format!("{suite}-alone"));
    let (direct, through) = std::thread::scope(|scope| {
        let direct = scope.spawn(|| run(alone.address));
        let through = run(agent.listen()[0]);
        (direct.join().unwrap(), through)
    });
    let left_out: Vec<&str> =
        list.lines().filter_map(|line| line.split_once(": ").map(|(name, _)| name)).collect();
    let failed: Vec<&String> = direct
        .iter()
        .filter(|(name, passed)| **passed && through.get(*name) != Some(&true))
        .map(|(name, _)| name)
        .filter(|name| !left_out.contains(&name.rsplit("::").next().unwrap().split('[').next().unwrap()))
        .collect();
    let passed = |results: &Results| results.values().filter(|passed| **passed).count();
    let [direct, through] = [&direct, &through].map(passed);
    eprintln!("{suite}: {direct} tests pass at one server, {through} through the switch");
    assert!(direct > 100);
    assert!(failed.is_empty(), "these pass at one server only:\n{failed:#?}");
    agent.end().unwrap();
}

/// The files of go-redis' tests that need one server.
const GO_REDIS_FILES: &str =
    "/(bitmap_commands|command|commands|iterator|pipeline|pool|pubsub|race|redis|tx)_test.go";
/// Tests that need a cluster, or a newer Redis; these leave work behind, or take half a minute.
const GO_REDIS_SKIPPED: &str = "cluster races|XRead LastEntry|Shows function stats";
