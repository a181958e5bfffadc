//! Third-party clients: installed, or built here from their registries.
//!
//! `None`, with a message, where that is impossible.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn target(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).output().is_ok_and(|done| done.status.success())
}

fn or_skip(tool: Option<PathBuf>, why: &str) -> Option<PathBuf> {
    if tool.is_none() {
        eprintln!("SKIPPED: {why}");
    }
    tool
}

/// A Python with nats-py.
pub(crate) fn python() -> Option<PathBuf> {
    let venv = target("nats-py");
    let python = venv.join("bin/python");
    let ready = || succeeds(Command::new(&python).args(["-c", "import nats"]));
    let make = || {
        succeeds(Command::new("python3").args(["-m", "venv"]).arg(&venv))
            && succeeds(Command::new(&python).args(["-m", "pip", "install", "-q", "nats-py==2.16.0"]))
    };
    let found = (ready() || make()).then_some(python);
    or_skip(found, "nats-py can't be installed (python3 with venv, and a registry of Python packages)")
}

/// The command of the Go client: the installed one, or one built by `go`.
pub(crate) fn nats() -> Option<PathBuf> {
    let built = target("go/bin/nats");
    let build = || {
        let mut go = Command::new("go");
        go.args(["install", "github.com/nats-io/natscli/nats@v0.1.6"]);
        succeeds(go.env("GOPATH", target("go")).env("GOFLAGS", "-buildvcs=false -modcacherw"))
    };
    let found = if succeeds(Command::new("nats").arg("--version")) {
        Some("nats".into())
    } else {
        (succeeds(Command::new(&built).arg("--version")) || build()).then_some(built)
    };
    or_skip(found, "the `nats` command is not installed and can't be built (go, and its proxy)")
}

/// The core tests of nats.go as a program, beside the folder `test` to run them in.
///
/// They are its last ones that start servers in their own process. `clients/nats-server` stands in
/// for the module of nats-server.
pub(crate) fn nats_go() -> Option<PathBuf> {
    let (folder, suite) = (target("nats.go"), target("nats.go/suite"));
    let server = Path::new(env!("CARGO_MANIFEST_DIR")).join("../overlay/tests/clients/nats-server");
    let script = r#"
        set -e
        at=$(go mod download -json github.com/nats-io/nats.go@v1.50.0 | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
        rm -rf "$0" && cp -r "$at" "$0" && chmod -R u+w "$0" && cd "$0"
        ls test/*_test.go | grep -Ev "/($2)_test.go$" | xargs rm
        cp "$1/check_test.go" test
        go mod edit -replace="github.com/nats-io/nats-server/v2=$1" go_test.mod
        go test -c -modfile=go_test.mod -mod=mod -o suite ./test"#;
    let files = "auth|basic|cluster|conn|context|drain|headers|helper|nats|nats_iter|netchan|reconnect|sub";
    let mut build = Command::new("sh");
    build.args(["-c", script]).arg(folder).arg(server).arg(files);
    build.env("GOFLAGS", "-buildvcs=false");
    let built = build.stdin(Stdio::null()).output();
    let why = match built {
        Ok(done) if done.status.success() => return Some(suite),
        Ok(done) => String::from_utf8_lossy(&done.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    or_skip(None, &format!("the tests of nats.go can't be built (go, and its proxy): {why}"))
}

/// A Python with pytest, and the folder of nats-py's source package: the last one with tests.
pub(crate) fn nats_py() -> Option<(PathBuf, PathBuf)> {
    let venv = target("nats-py-tests");
    let (python, source) = (venv.join("bin/python"), venv.join("nats_py-2.14.0"));
    let make = || {
        let pip = |words: &[&str]| {
            succeeds(Command::new(&python).args(["-m", "pip"]).args(words).current_dir(&venv))
        };
        succeeds(Command::new("python3").args(["-m", "venv"]).arg(&venv))
            && pip(&["install", "-q", "pytest==8.4.2"])
            && pip(&["download", "-q", "--no-deps", "--no-binary", "nats-py", "nats-py==2.14.0"])
            && succeeds(Command::new("tar").args(["xzf", "nats_py-2.14.0.tar.gz"]).current_dir(&venv))
    };
    let found = (source.join("tests").is_dir() || make()).then_some((python, source.clone()));
    if found.is_none() {
        eprintln!("SKIPPED: the tests of nats-py can't be had (python3 with venv, and its registry)");
    }
    let helper = Path::new(env!("CARGO_MANIFEST_DIR")).join("../overlay/tests/clients/nats-py/utils.py");
    std::fs::copy(helper, source.join("tests/utils.py")).ok()?;
    found
}

/// The program of `clients/async-nats`. Only its dependencies may be missing; with them it must
/// build.
pub(crate) fn async_nats() -> Option<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/async-nats/Cargo.toml");
    let cargo = |word: &str| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args([word, "-q", "--locked", "--manifest-path"]).arg(&manifest).stdin(Stdio::null());
        cargo
    };
    let fetched = succeeds(cargo("fetch").arg("--offline")) || succeeds(&mut cargo("fetch"));
    let found = fetched.then(|| {
        let mut build = cargo("build");
        build.args(["--offline", "--target-dir"]).arg(target("async-nats"));
        let done = build.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        target("async-nats").join("debug/async-nats-client")
    });
    or_skip(found, "async-nats can't be had (a registry of Rust packages)")
}
