//! A client, a router and a server in namespaces, and `tollway router` at the router's interface.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{self, text};

/// Three namespaces in a row: `c`, `r` and `s`. The router's interface to the server is `sr`.
pub(super) struct Lab {
    name: String,
    folder: PathBuf,
    /// A process whose mount namespace has a BPF file system.
    mounts: Child,
}

/// A router that runs; dropped, it is killed.
pub(super) struct Router {
    pub(super) child: Child,
    socket: String,
}

impl Lab {
    /// Makes the namespaces; `None` if this user may not.
    pub(super) fn new(of: &str) -> Option<Lab> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("twr{}x{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        if !run(&["ip", "netns", "add", &format!("{name}c")]) {
            eprintln!("SKIPPED: no network namespaces for this user");
            return None;
        }
        let mounts = Command::new("unshare")
            .args(["-m", "sh", "-c", "mount -t bpf bpf /sys/fs/bpf && echo ready; exec sleep 1000"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare");
        let mut lab = Lab { name, folder: common::folder("router", of), mounts };
        let mut ready = [0; 6];
        std::io::Read::read_exact(lab.mounts.stdout.as_mut().unwrap(), &mut ready)
            .expect("a BPF file system");
        for side in ["r", "s"] {
            assert!(run(&["ip", "netns", "add", &lab.name_of(side)]));
        }
        for (side, end, peer, here, there) in [("c", "c0", "cr", 2, 1), ("s", "s0", "sr", 2, 1)] {
            let net = if side == "c" { 1 } else { 2 };
            let (near, far) = (lab.name_of(side), lab.name_of("r"));
            assert!(run(&[
                "ip", "link", "add", end, "netns", &near, "type", "veth", "peer", "name", peer, "netns", &far
            ]));
            for (room, interface, host) in [(side, end, here), ("r", peer, there)] {
                lab.ip(room, &format!("addr add 10.{net}.0.{host}/24 dev {interface}"));
                lab.ip(room, &format!("addr add fd0{net}::{host}/64 dev {interface} nodad"));
                lab.ip(room, &format!("link set {interface} up"));
                lab.ip(room, "link set lo up");
            }
            lab.ip(side, &format!("route add default via 10.{net}.0.1"));
            lab.ip(side, &format!("route add default via fd0{net}::1"));
        }
        for key in ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"] {
            assert!(lab.output("r", &["sysctl", "-qw", key]).status.success());
        }
        lab.await_ping("10.2.0.2");
        Some(lab)
    }

    fn name_of(&self, side: &str) -> String {
        format!("{}{side}", self.name)
    }

    /// A command in the namespace of `side`.
    pub(super) fn command(&self, side: &str, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/var/run/netns/{}", self.name_of(side)));
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.mounts.id()));
        command.args(["--wd=/", "--"]).args(words).env("NO_COLOR", "1").stdin(Stdio::null());
        command
    }

    pub(super) fn output(&self, side: &str, words: &[&str]) -> Output {
        self.command(side, words).output().expect("nsenter")
    }

    /// The standard output of a command that succeeds.
    pub(super) fn says(&self, side: &str, words: &[&str]) -> String {
        let output = self.output(side, words);
        assert!(output.status.success(), "{words:?}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }

    /// Runs `ip` with the words of `what`.
    pub(super) fn ip(&self, side: &str, what: &str) {
        let words: Vec<&str> = ["ip"].into_iter().chain(what.split(' ')).collect();
        self.says(side, &words);
    }

    /// A file of the test with this content.
    pub(super) fn file(&self, name: &str, content: &str) -> String {
        let path = self.folder.join(name);
        std::fs::write(&path, content).expect("a file");
        path.display().to_string()
    }

    /// Runs `tollway router` with these options.
    pub(super) fn try_router(&self, options: &[&str]) -> Output {
        let socket = self.folder.join("try.sock").display().to_string();
        let words = [&[env!("CARGO_BIN_EXE_tollway"), "router"], options, &["--socket", &socket]].concat();
        self.output("r", &words)
    }

    /// Starts a router, and waits until packets cross its links.
    pub(super) fn router(&self, options: &[&str]) -> Router {
        let socket = self.folder.join("router.sock").display().to_string();
        let words = [&[env!("CARGO_BIN_EXE_tollway"), "router"], options, &["--socket", &socket]].concat();
        let child = self.command("r", &words).spawn().expect("nsenter");
        let router = Router { child, socket };
        await_it("a router", || router.ask(self).is_some());
        router
    }

    /// True if an echo request of `size` bytes from the client is answered within a second. With
    /// `whole` it must not be fragmented.
    pub(super) fn ping(&self, to: &str, size: u32, whole: bool) -> bool {
        self.pings(to, 1, "0", size, whole) == 1
    }

    /// Echo requests that are answered, of `count`.
    pub(super) fn pings(&self, to: &str, count: u32, interval: &str, size: u32, whole: bool) -> u32 {
        let (count, size) = (count.to_string(), size.to_string());
        let how = if whole { "whole" } else { "" };
        let said = self.says("c", &["python3", PING, to, &count, interval, &size, how]);
        said.trim().parse().expect("a number")
    }

    pub(super) fn await_ping(&self, to: &str) {
        await_it("an answer", || self.ping(to, 56, false));
    }

    /// Starts `iperf3 -s` at the server for one test.
    pub(super) fn server(&self, port: &str) -> Child {
        let server = self.command("s", &["iperf3", "-s", "-1", "-p", port]).stdout(Stdio::null()).spawn();
        await_it("a server", || self.says("s", &["ss", "-Htln", &format!("sport = :{port}")]).contains(port));
        server.expect("iperf3")
    }

    /// Runs `iperf3` from the client. Returns bit/s received.
    pub(super) fn iperf3(&self, port: &str, options: &[&str]) -> f64 {
        let mut server = self.server(port);
        let words = [&["iperf3", "-c", "10.2.0.2", "-p", port, "-J"], options].concat();
        let said = self.says("c", &words);
        let _ = server.wait();
        let result: Value = serde_json::from_str(&said).expect("JSON");
        let end = &result["end"];
        let received = end["sum_received"]["bits_per_second"].as_f64();
        received.or(end["sum"]["bits_per_second"].as_f64()).expect("a rate")
    }

    /// Names of the interfaces in the router's namespace that belong to a router.
    pub(super) fn interfaces(&self) -> String {
        let all = self.says("r", &["ip", "-br", "link"]);
        all.lines().filter(|line| line.starts_with("tollway")).collect()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for side in ["c", "r", "s"] {
            run(&["ip", "netns", "del", &self.name_of(side)]);
        }
        let _ = self.mounts.kill();
        let _ = self.mounts.wait();
    }
}

impl Router {
    /// The status as JSON; `None` if no router answers.
    pub(super) fn ask(&self, lab: &Lab) -> Option<Value> {
        let words = [env!("CARGO_BIN_EXE_tollway"), "router", "status", "--json", "--socket", &self.socket];
        let output = lab.output("r", &words);
        output.status.success().then(|| serde_json::from_slice(&output.stdout).expect("JSON"))
    }

    pub(super) fn status(&self, lab: &Lab) -> Value {
        self.ask(lab).expect("a status")
    }

    /// The status as text.
    pub(super) fn text(&self, lab: &Lab) -> String {
        lab.says("r", &[env!("CARGO_BIN_EXE_tollway"), "router", "status", "--socket", &self.socket])
    }

    /// Sends a signal by name.
    pub(super) fn signal(&self, name: &str) {
        assert!(run(&["kill", &format!("-{name}"), &self.child.id().to_string()]));
    }

    /// Ends it, and waits for its end.
    pub(super) fn end(mut self) {
        self.signal("TERM");
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(words: &[&str]) -> bool {
    Command::new(words[0])
        .args(&words[1..])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

const PING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/router/ping.py");

/// Waits up to 20 s for a condition.
pub(super) fn await_it(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < until, "no {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
