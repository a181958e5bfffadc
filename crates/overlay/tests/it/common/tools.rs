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
