//! The tests of foreign clients through the switch, beside one Redis server in the same run.
//!
//! `TOLLWAY_REDIS_PY` names the folder of redis-py's source package (`pip download --no-binary :all: redis`, unpacked),
//! and `TOLLWAY_PYTHON` a Python with redis-py and pytest, `python3` by default.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::process::Command;

use crate::common::resp::{RedisServer, have};
use crate::common::*;

/// The results of redis-py's tests at `address`: true for those that pass.
fn redis_py(folder: &std::ffi::OsStr, python: &str, address: SocketAddr) -> BTreeMap<String, bool> {
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
    let servers: Vec<_> = (0..3).map(|at| RedisServer::start(&format!("py-{at}"))).collect();
    let members: Vec<_> =
        ["a", "b", "c"].into_iter().zip(servers.iter().map(|server| server.address)).collect();
    let agent = switch("resp", "", &members);
    let alone = RedisServer::start("py-alone");
    let direct = redis_py(&folder, &python, alone.address);
    let through = redis_py(&folder, &python, agent.listen()[0]);
    // Each line of the list is the end of a test's name, and a reason.
    let list = include_str!("../redis-py.txt").lines().filter(|line| !line.starts_with('#'));
    let left_out: BTreeSet<&str> =
        list.filter_map(|line| line.split_once(' ')).map(|(name, _)| name).collect();
    let failed: Vec<&String> = direct
        .iter()
        .filter(|(name, passed)| **passed && through.get(*name) != Some(&true))
        .map(|(name, _)| name)
        .filter(|name| !left_out.contains(name.rsplit("::").next().unwrap().split('[').next().unwrap()))
        .collect();
    let passed = |results: &BTreeMap<String, bool>| results.values().filter(|passed| **passed).count();
    eprintln!(
        "redis-py: {} tests pass at one server, {} through the switch",
        passed(&direct),
        passed(&through)
    );
    assert!(failed.is_empty(), "these pass at one server only:\n{failed:#?}");
    agent.end().unwrap();
}
