//! Traffic for an agent to pace, and shared checks of its tests.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tollway_shape::{Kernel, SockDiag};

use crate::common::tollway;

/// Connections of this process to itself that send all they can.
pub(crate) struct Traffic {
    port: u16,
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Traffic {
    pub(crate) fn start(count: usize) -> Traffic {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for _ in 0..count {
            let mut sender = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let (mut receiver, _) = listener.accept().unwrap();
            let stop = Arc::clone(&stop);
            threads.push(std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) && sender.write_all(&[0; 16_384]).is_ok() {}
            }));
            threads.push(std::thread::spawn(move || {
                let mut buffer = vec![0; 1 << 16];
                while receiver.read(&mut buffer).is_ok_and(|len| len > 0) {}
            }));
        }
        Traffic { port, stop, threads }
    }

    /// The kernel's pacing limit of each sender, in bytes per second.
    pub(crate) fn limits(&self) -> Vec<Option<u64>> {
        limits(self.port)
    }

    pub(crate) fn policies(&self, version: &str, mbps: u32) -> String {
        policies(self.port, version, mbps)
    }
}

/// The limits of the connections to a port of this machine.
pub(crate) fn limits(port: u16) -> Vec<Option<u64>> {
    let mut seen = Vec::new();
    SockDiag::new().unwrap().connections(&mut seen).unwrap();
    seen.iter().filter(|seen| seen.remote.port() == port).map(|seen| seen.limit).collect()
}

pub(crate) fn policies(port: u16, version: &str, mbps: u32) -> String {
    format!(
        "version = \"{version}\"\n[link]\nrate = \"{mbps} Mbps\"\n[aggregate.test]\nto = \"127.0.0.1\"\nto-port = {port}\n"
    )
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

pub(crate) fn status(socket: &Path) -> Option<Value> {
    let output =
        tollway(&["shape", "status", "--json", "--socket", socket.to_str().unwrap()]).output().unwrap();
    output.status.success().then(|| serde_json::from_slice(&output.stdout).expect("JSON"))
}

pub(crate) fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap().success());
}

/// Waits until `is` returns a value, far longer than it should take.
pub(crate) fn wait<T>(what: &str, mut is: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(value) = is() {
            return value;
        }
        assert!(Instant::now() < until, "{what} never came");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// True if a process has ended.
pub(crate) fn is_gone(pid: u32) -> bool {
    state(pid).is_none_or(|state| state == 'Z')
}

/// True once a SIGSTOP has taken effect: before, the kernel does not wake the process as its parent
/// ends.
pub(crate) fn is_stopped(pid: u32) -> bool {
    state(pid) == Some('T')
}

/// The state of a process, by proc(5); `None` if it is gone.
fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}
