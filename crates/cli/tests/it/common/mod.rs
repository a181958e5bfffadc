//! Functions shared by tests of the command.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

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

/// Asserts that each line of output that a page shows was printed, with other numbers perhaps.
/// `$ ` and four spaces begin commands.
pub(crate) fn assert_alike(shown: &str, printed: &str) {
    let form = |line: &str| {
        let words = line.split_whitespace().map(|word| {
            match word.trim_start_matches('-').starts_with(|c: char| c.is_ascii_digit()) {
                true => "#",
                false => word,
            }
        });
        words.collect::<Vec<_>>().join(" ").replace('─', "")
    };
    let outputs = shown.lines().filter(|line| !line.starts_with("$ ") && !line.starts_with("    "));
    for line in outputs {
        assert!(printed.lines().any(|found| form(found) == form(line)), "{line}\nis not in\n{printed}");
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is UTF-8")
}

/// A lock for tests that measure rates and times, or that remove what other runs left on this
/// machine. They run one at a time.
pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

/// A lock for tests that measure, but take so little of the machine that several may run at once.
pub(crate) fn beside() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

static MACHINE: RwLock<()> = RwLock::new(());

/// Runs what measures rates and times again if it fails, up to three times. A busy machine makes
/// programs late; one run within the bounds shows what the product does.
pub(crate) fn measured(run: impl Fn()) {
    for _ in 1..3 {
        if panic::catch_unwind(AssertUnwindSafe(&run)).is_ok() {
            return;
        }
        eprintln!("AGAIN: the measurement failed");
    }
    run();
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

/// Starts an agent by `command` as a service manager does, and ends it by a signal. Asserts that it
/// reports readiness, signs of life and its end, logs JSON, and raises its limit of open files.
#[cfg(target_os = "linux")]
pub(crate) fn serves_as_a_service(folder: &Path, agent: &Command) {
    let socket = std::os::unix::net::UnixDatagram::bind(folder.join("notify")).unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    let heard = || {
        let mut text = [0; 64];
        let len = socket.recv(&mut text).expect("the agent reports in time");
        String::from_utf8_lossy(&text[..len]).into_owned()
    };
    let log = folder.join("service.log");
    // A login shell's limit of open files is low.
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -Sn 256; exec \"$0\" \"$@\""]).arg(agent.get_program());
    command.args(agent.get_args()).args(["--log", "json"]).stdout(std::process::Stdio::null());
    command.env("NOTIFY_SOCKET", folder.join("notify")).env("WATCHDOG_USEC", "300000");
    let mut agent = command.stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
    assert_eq!(heard(), "READY=1\nWATCHDOG=1", "{}", fs::read_to_string(&log).unwrap());
    assert_eq!(heard(), "WATCHDOG=1");
    let limits = fs::read_to_string(format!("/proc/{}/limits", agent.id())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let mut files = files.split_whitespace().skip(3);
    assert_eq!(files.next(), files.next(), "{limits}");
    assert!(Command::new("kill").args(["-TERM", &agent.id().to_string()]).status().unwrap().success());
    while heard() != "STOPPING=1" {}
    assert!(agent.wait().unwrap().success());
    let log = fs::read_to_string(&log).unwrap();
    let events: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{log}"))).collect();
    for kind in ["start", "stop"] {
        assert!(events.iter().any(|event| event["event"] == kind && event["level"] == "info"), "{log}");
    }
}
