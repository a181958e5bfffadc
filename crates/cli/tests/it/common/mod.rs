//! Functions shared by tests of the command.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An empty folder for one test; `of` is the test file.
pub(crate) fn folder(of: &str, name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(of).join(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("a folder for the test");
    dir
}

/// The command with these arguments, without colours.
pub(crate) fn tollway(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollway"));
    command.args(arguments).env("NO_COLOR", "1");
    command
}

/// Runs the command in `dir` and returns its output.
pub(crate) fn run_in(dir: &Path, arguments: &[&str]) -> Output {
    tollway(arguments).current_dir(dir).output().expect("the command starts")
}

/// Runs the command in `dir`, which must succeed, and returns its standard output.
pub(crate) fn succeeds(dir: &Path, arguments: &[&str]) -> String {
    let output = run_in(dir, arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is UTF-8")
}

/// A lock for tests that measure rates and times, or that remove what other runs left on this
/// machine. They run one at a time.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A free port of 127.0.0.1. The system may return a released port again, this function does not.
pub(crate) fn free_port() -> u16 {
    static RETURNED: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it has an address").port();
        if RETURNED.lock().expect("no thread panics here").insert(port) {
            return port;
        }
    }
}

/// The process started by `parent` with this argument that is still running.
pub(crate) fn child_of(parent: u32, argument: &str) -> Option<u32> {
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        // PID (NAME) STATE PARENT …; a zombie is in state Z.
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let mut words = stat.rsplit_once(") ")?.1.split(' ');
        let runs = words.next() != Some("Z") && words.next() == Some(&parent.to_string());
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let has = runs && line.split(|&byte| byte == 0).any(|word| word == argument.as_bytes());
        has.then(|| entry.file_name().to_str()?.parse().ok())?
    })
}
