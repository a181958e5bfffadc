//! Tests with third-party clients. A client that is not installed, and can't be, is skipped with a
//! message.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::tools::{async_nats, nats, python, succeeds};
use crate::common::{Client, Running, folder, until};

const SITE: &str = "site = \"a\"\nlisten = \"127.0.0.1:0\"\n";

/// Runs a client library's program against a site. It prints `fine` at the end.
fn is_fine(program: &mut Command, name: &str) {
    let site = Running::start(&folder(name), SITE);
    let done = program.arg(site.address.to_string()).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    let fine = done.status.success() && said.ends_with("fine\n");
    assert!(fine, "{said}\n{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn nats_py_works_as_with_nats() {
    let Some(python) = python() else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients.py");
    is_fine(Command::new(python).arg(script), "py");
}

#[test]
fn async_nats_works_as_with_nats() {
    let Some(program) = async_nats() else { return };
    is_fine(&mut Command::new(program), "rs");
}

#[test]
fn a_go_client_that_is_stopped_is_disconnected_and_its_publisher_goes_on() {
    let Some(nats) = nats() else { return };
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
    let Some(nats) = nats() else { return };
    let at_folder = folder("go");
    let site = Running::start(&at_folder, SITE);
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
    // A queue group: each message goes to one member.
    until("the listener has left", || subscriptions() == 0);
    let out = ["one", "two", "three"].map(|name| at_folder.join(name));
    let mut members = out.each_ref().map(|out| {
        let mut member = run(&["sub", "go.work", "--queue", "workers"]);
        member.stdout(File::create(out).unwrap()).stderr(Stdio::null()).spawn().unwrap()
    });
    until("all members listen", || subscriptions() == 3);
    assert!(succeeds(&mut run(&["pub", "go.work", "work", "--count", "300"])));
    let got = |out: &PathBuf| fs::read_to_string(out).unwrap().matches("Received on \"go.work\"").count();
    until("each message has come", || out.iter().map(got).sum::<usize>() >= 300);
    members.iter_mut().for_each(|member| {
        member.kill().unwrap();
        member.wait().unwrap();
    });
    let counts = out.each_ref().map(got);
    assert!(counts.iter().sum::<usize>() == 300 && !counts.contains(&0), "{counts:?}");
    // A service: a request by the same client gets its answer.
    until("the members have left", || subscriptions() == 0);
    let mut reply =
        run(&["reply", "go.service", "42"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("it serves", || subscriptions() > 0);
    let asked = run(&["request", "go.service", "what"]).output().unwrap();
    assert!(String::from_utf8_lossy(&asked.stdout).contains("42"), "{asked:?}");
    reply.kill().unwrap();
    reply.wait().unwrap();
    // A benchmark: every message arrives.
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
