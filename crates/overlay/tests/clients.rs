//! Clients that others have written. What is not installed, and can't be, is skipped, and said.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

mod common;

use common::{Client, Running, folder};

const SITE: &str = "site = \"a\"\nlisten = \"127.0.0.1:0\"\n";

fn target(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn succeeds(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).output().is_ok_and(|done| done.status.success())
}

/// A Python with nats-py, which is installed for it if need be.
fn python() -> Option<PathBuf> {
    let venv = target("nats-py");
    let python = venv.join("bin/python");
    let ready = || succeeds(Command::new(&python).args(["-c", "import nats"]));
    let make = || {
        succeeds(Command::new("python3").args(["-m", "venv"]).arg(&venv))
            && succeeds(Command::new(&python).args(["-m", "pip", "install", "-q", "nats-py==2.16.0"]))
    };
    (ready() || make()).then_some(python)
}

/// The command of the Go client: the one that is installed, or built by `go`.
fn nats() -> Option<PathBuf> {
    let built = target("go/bin/nats");
    if succeeds(Command::new("nats").arg("--version")) {
        return Some("nats".into());
    }
    let build = || {
        let mut go = Command::new("go");
        go.args(["install", "github.com/nats-io/natscli/nats@v0.1.6"]);
        succeeds(go.env("GOPATH", target("go")).env("GOFLAGS", "-buildvcs=false -modcacherw"))
    };
    (succeeds(Command::new(&built).arg("--version")) || build()).then_some(built)
}

#[test]
fn nats_py_works_as_with_nats() {
    let Some(python) = python() else {
        eprintln!(
            "SKIPPED: nats-py can't be installed (python3 with venv, and a registry of Python packages)"
        );
        return;
    };
    let site = Running::start(&folder("py"), SITE);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients.py");
    let done = Command::new(python).arg(script).arg(site.address.to_string()).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(
        done.status.success() && said.ends_with("fine\n"),
        "{said}\n{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

#[test]
fn a_go_client_that_is_stopped_is_disconnected_and_its_publisher_goes_on() {
    let Some(nats) = nats() else {
        eprintln!("SKIPPED: the `nats` command is not installed and can't be built (go, and its proxy)");
        return;
    };
    let site =
        Running::start(&folder("stopped"), &format!("{SITE}patience = \"2 s\"\nbuffer = \"256 KiB\"\n"));
    let run = |words: &[&str]| {
        let mut command = Command::new(&nats);
        command.args(["--server", &format!("nats://{}", site.address)]).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut listens = run(&["sub", "plant.pump.7"]);
    site.until("it listens", |status| status.tenants.first().is_some_and(|tenant| tenant.subscriptions == 1));
    let signal = |name: &str, pid: u32| succeeds(Command::new("kill").args([name, &pid.to_string()]));
    assert!(signal("-STOP", listens.id()));
    let mut sends = run(&["pub", "plant.pump.7", "--count", "20000", &"7".repeat(1000)]);
    site.until("the publisher waits", |status| status.slow.first().is_some_and(|slow| slow.holds == 1));
    site.until("the receiver is disconnected", |status| status.cut == 1);
    assert!(sends.wait().unwrap().success(), "all is published");
    site.until("all is read", |status| status.published == 20_000);
    listens.kill().unwrap();
    listens.wait().unwrap();
}

#[test]
fn the_go_client_works_as_with_nats() {
    let Some(nats) = nats() else {
        eprintln!("SKIPPED: the `nats` command is not installed and can't be built (go, and its proxy)");
        return;
    };
    let site = Running::start(&folder("go"), SITE);
    let at = format!("nats://{}", site.address);
    let run = |words: &[&str]| {
        let mut command = Command::new(&nats);
        command.args(["--server", &at, "--timeout", "60s"]).args(words).stdin(Stdio::null());
        command
    };
    let subscriptions = || site.status().tenants[0].subscriptions;
    let listen =
        run(&["sub", "go.>", "--count", "3"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    site.until("it listens", |status| status.tenants.first().is_some_and(|tenant| tenant.subscriptions >= 1));
    assert!(succeeds(&mut run(&["pub", "go.a", "one", "--header", "kind:test"])));
    assert!(succeeds(&mut run(&["pub", "go.b.c", "two", "--count", "2"])));
    let heard = String::from_utf8(listen.wait_with_output().unwrap().stdout).unwrap();
    for part in ["go.a", "kind: test", "one", "go.b.c", "two"] {
        assert!(heard.contains(part), "no {part} in {heard}");
    }
    // A service, by its answer; the same client asks.
    common::until("the listener has left", || subscriptions() == 0);
    let mut reply =
        run(&["reply", "go.service", "42"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    common::until("it serves", || subscriptions() > 0);
    let asked = run(&["request", "go.service", "what"]).output().unwrap();
    assert!(String::from_utf8_lossy(&asked.stdout).contains("42"), "{asked:?}");
    reply.kill().unwrap();
    reply.wait().unwrap();
    // It measures, too: every message comes.
    let measured = run(&["bench", "go.bench", "--pub", "2", "--sub", "2", "--msgs", "2000", "--no-progress"])
        .output()
        .unwrap();
    assert!(measured.status.success(), "{measured:?}");
    let streams = run(&["stream", "ls"]).output().unwrap();
    let said = [streams.stdout, streams.stderr].concat();
    assert!(!streams.status.success(), "{}", String::from_utf8_lossy(&said));
    let mut after = Client::connect(site.address);
    after.flush();
}
