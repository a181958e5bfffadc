//! The tests of foreign clients through the switch, beside one Redis server in the same run.
//!
//! redis-py comes from pip, go-redis from Go's proxy, and Redis' own suite from Debian's source
//! package.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::resp::{RedisServer, have};
use crate::common::*;

/// Results of tests, by name: true for those that passed.
type Results = BTreeMap<String, bool>;

/// Runs a shell script that prepares `folder`. `None`, with a message, if it fails.
fn prepared(folder: &str, script: &str, needs: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    let mut build = Command::new("sh");
    let built = build.args(["-ec", script]).arg(&folder).env("GOFLAGS", "-buildvcs=false").output();
    match built {
        Ok(done) if done.status.success() => Some(folder),
        why => {
            eprintln!("SKIPPED: {} can't be prepared ({needs}): {why:?}", folder.display());
            None
        }
    }
}

#[test]
fn redis_py_passes_its_own_tests() {
    if !have(&["redis-server"]) {
        return;
    }
    let script = r#"
        test -d "$0/tests" && "$0/bin/python" -c 'import pytest_cov, numpy' && exit
        python3 -m venv "$0" && cd "$0" && pip="bin/python -m pip -q --disable-pip-version-check"
        $pip download --no-deps --no-binary redis redis==8.1.0 && tar xzf redis-*.tar.gz --strip-components 1
        $pip install pytest==8.4.2 pytest-asyncio==1.2.0 pytest-timeout==2.4.0 pytest-cov==7.0.0 numpy"#;
    let Some(folder) = prepared("redis-py", script, "python3 with venv, and its registry") else { return };
    let run = |address: SocketAddr| -> Results {
        let mut pytest = Command::new("nice");
        pytest.args(["bin/python", "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rA", "--tb=line", "-m"]);
        pytest.args(["not redismod and not ssl and not onlycluster", "--redis-url"]);
        pytest
            .arg(format!("redis://{address}/0"))
            .args(REDIS_PY_FILES.map(|file| format!("tests/{file}.py")));
        let output = pytest.current_dir(&folder).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut results = BTreeMap::new();
        for line in text.lines() {
            let mut words = line.split(' ');
            if let (Some(result @ ("PASSED" | "FAILED" | "ERROR")), Some(name)) = (words.next(), words.next())
                && let Some((_, name)) = name.rsplit_once("::")
            {
                let name = name.split('[').next().unwrap_or(name);
                *results.entry(name.to_owned()).or_insert(true) &= result == "PASSED";
            }
        }
        assert!(!results.is_empty(), "{text}");
        results
    };
    compare("redis-py", run, include_str!("../redis-py.txt"));
}

/// Redis' own tests, against a server that was there before.
#[test]
fn redis_passes_its_own_tests() {
    if !have(&["redis-server", "tclsh"]) {
        return;
    }
    let script = r#"
        test -x "$0/runtest" && exit
        rm -rf "$0" && mkdir -p "$0/parts" "$0/lists/partial" "$0/cache" && cd "$0"
        for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
            test ! -f "$file" || sed 's/^Types:.*/Types: deb-src/; s/^deb /deb-src /' "$file" >"parts/${file##*/}"
        done
        apt="apt-get -q -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts=$0/parts"
        apt="$apt -o Dir::State::Lists=$0/lists -o Dir::Cache=$0/cache"
        $apt update || true
        $apt source --download-only redis && tar xzf redis_*.orig.tar.gz --strip-components 1
        # Blocked clients are at one of several servers, whose INFO does not count the others'.
        printf '%s\n' 'proc wait_for_blocked_client args {after 100}' \
            'proc wait_for_blocked_clients_count args {after 100}' >>tests/support/util.tcl"#;
    let Some(folder) = prepared("redis-suite", script, "apt-get, and its source packages") else { return };
    let run = |address: SocketAddr| -> Results {
        let work = folder.join(address.port().to_string());
        std::fs::create_dir_all(&work).unwrap();
        assert!(
            Command::new("cp").arg("-r").arg(folder.join("tests")).arg(&work).status().unwrap().success()
        );
        let port = address.port();
        let mut suite = Command::new("nice");
        suite.args([
            "tclsh",
            "tests/test_helper.tcl",
            "--host",
            &address.ip().to_string(),
            "--port",
            &port.to_string(),
        ]);
        suite.args(["--durable", "--clients", "1", "--timeout", "60", "--baseport", &(port / 2).to_string()]);
        // Without several databases, and without what looks into one server.
        suite.args(["--singledb", "--cluster-mode", "--ignore-encoding", "--ignore-digest", "--no-latency"]);
        suite.args(["--tags", "-needs:debug -needs:config-maxmemory -needs:repl -slow"]);
        suite.args(REDIS_UNITS.iter().flat_map(|unit| ["--single", unit]));
        suite.args(["--skiptest", REDIS_SKIPPED]);
        let output = suite.current_dir(&work).output().unwrap();
        std::fs::write(work.join("output"), &output.stdout).unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut results = BTreeMap::new();
        for (name, passed) in text.lines().filter_map(redis_result) {
            *results.entry(name).or_insert(true) &= passed;
        }
        assert!(text.contains("The End"), "{text}");
        results
    };
    compare("redis", run, include_str!("../redis-suite.txt"));
}

/// The name of a test and true if it passed, of a line as `[ok]: NAME (5 ms)`, `[err]: NAME in FILE`
/// or `[exception]: …`, its words in colours.
fn redis_result(line: &str) -> Option<(String, bool)> {
    let (result, rest) = line.split_once("]: ")?;
    let passed = result.contains("mok\u{1b}");
    (passed || result.contains("merr\u{1b}") || result.contains("mexception\u{1b}")).then(|| {
        let end = if passed { rest.rfind(" (") } else { rest.rfind(" in tests/") };
        (rest[..end.unwrap_or(rest.len())].to_owned(), passed)
    })
}

#[test]
fn go_redis_passes_its_own_tests() {
    if !have(&["redis-server"]) {
        return;
    }
    // The last version that needs no containers.
    let script = r#"
        at=$(go mod download -json github.com/redis/go-redis/v9@v9.7.0 | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
        rm -rf "$0" && cp -r "$at" "$0" && chmod -R u+w "$0" && cd "$0"
        sed -i 's/rediStackPort = "6379"/rediStackPort = os.Getenv("REDIS_AT")/' main_test.go
        go test -c -o suite ."#;
    let Some(folder) = prepared("go-redis", script, "go, and its proxy") else { return };
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
        list.lines().filter_map(|line| line.rsplit_once(": ").map(|(name, _)| name)).collect();
    let mut failed: Vec<&String> = direct
        .iter()
        .filter(|(name, passed)| **passed && through.get(*name) != Some(&true))
        .map(|(name, _)| name)
        .filter(|name| !left_out.contains(&name.as_str()))
        .collect();
    // The tests have time limits, and the machine is busy: what fails runs again.
    if !failed.is_empty() {
        let again = run(agent.listen()[0]);
        failed.retain(|name| again.get(*name) != Some(&true));
    }
    let passed = |results: &Results| results.values().filter(|passed| **passed).count();
    let [direct, through] = [&direct, &through].map(passed);
    eprintln!("{suite}: {direct} tests pass at one server, {through} through the switch");
    assert!(direct > 100);
    assert!(failed.is_empty(), "these pass at one server only:\n{failed:#?}");
    agent.end().unwrap();
}

/// The files of redis-py's tests that need one server.
const REDIS_PY_FILES: [&str; 5] =
    ["test_pipeline", "test_lock", "test_scripting", "test_encoding", "test_commands"];
/// The units of Redis' tests that concern its commands, not one server's files, memory or replicas.
const REDIS_UNITS: [&str; 26] = [
    "unit/auth",
    "unit/protocol",
    "unit/keyspace",
    "unit/scan",
    "unit/type/string",
    "unit/type/incr",
    "unit/type/list",
    "unit/type/list-2",
    "unit/type/set",
    "unit/type/zset",
    "unit/type/hash",
    "unit/type/stream",
    "unit/type/stream-cgroups",
    "unit/sort",
    "unit/expire",
    "unit/other",
    "unit/multi",
    "unit/quit",
    "unit/pubsub",
    "unit/pubsubshard",
    "unit/scripting",
    "unit/functions",
    "unit/bitops",
    "unit/bitfield",
    "unit/geo",
    "unit/hyperloglog",
];
/// Redis' tests that take seconds, or that fail through the switch and leave a limit behind.
const REDIS_SKIPPED: &str = "/[Ff]uzz|issue #4906|stack leak";
/// The files of go-redis' tests that need one server.
const GO_REDIS_FILES: &str =
    "/(bitmap_commands|command|commands|iterator|pipeline|pool|pubsub|race|redis|tx)_test.go";
/// Tests that need a cluster, or a newer Redis; these leave work behind, or take half a minute.
const GO_REDIS_SKIPPED: &str = "cluster races|XRead LastEntry|Shows function stats";
