//! `tollway switch` as a user sees it: the commands of its chapter, messages on mistakes, a watched
//! file.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{self, free_port, run_in, text, tollway};

fn folder(name: &str) -> std::path::PathBuf {
    common::folder("switch", name)
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < until, "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The chapter's block of commands that follows `heading`.
fn commands(heading: &str) -> String {
    let chapter = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/switch.md");
    let chapter = fs::read_to_string(chapter).unwrap();
    let (_, after) = chapter.split_once(heading).expect("the heading is in the chapter");
    let (_, after) = after.split_once("```sh\n").expect("commands follow it");
    after.split_once("```").expect("they end").0.to_owned()
}

/// Starts a server that writes each line back, and returns its port.
fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut to = &stream;
                for line in BufReader::new(&stream).lines().map_while(Result::ok) {
                    if to.write_all(format!("{port} {line}\n").as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

/// A running switch, and its standard error.
struct Running {
    child: Child,
    said: BufReader<std::process::ChildStderr>,
}

impl Running {
    fn start(words: &[&str]) -> Running {
        Running::start_in(Path::new("."), words)
    }

    fn start_in(folder: &Path, words: &[&str]) -> Running {
        let mut command = tollway(words);
        command.current_dir(folder).stderr(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        let said = BufReader::new(child.stderr.take().unwrap());
        Running { child, said }
    }

    fn await_line(&mut self, part: &str) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            assert!(self.said.read_line(&mut line).unwrap() > 0, "no `{part}` in {all}");
            if line.contains(part) {
                return line;
            }
            all += &line;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_chapters_ten_minutes_with_redis_are_as_it_says() {
    if !["redis-server", "redis-cli", "redis-benchmark"].iter().all(|program| {
        let there = Command::new(program).arg("--version").output().is_ok();
        if !there {
            eprintln!("SKIPPED: there is no `{program}` (see .ci/run for the packages)");
        }
        there
    }) {
        return;
    }
    let folder = folder("redis");
    let ports = [(); 4].map(|()| free_port());
    let socket = folder.join("switch.sock");
    let mut script = String::from("set -e\n");
    for line in commands("three Redis servers as one").lines() {
        if !line.starts_with("cargo install") && !line.starts_with("apt-get") {
            script += line;
            script += "\n";
        }
        // A background command must listen before the next command.
        if line.ends_with('&') {
            script +=
                "for i in $(seq 500); do redis-cli -p 7000 PING >/dev/null 2>&1 && break; sleep 0.02; done\n";
        }
    }
    for (at, port) in ports.iter().enumerate() {
        script = script.replace(&format!("700{at}"), &port.to_string());
    }
    let at = socket.display();
    script = script.replace("tollway switch --listen", &format!("tollway switch --socket {at} --listen"));
    script = script.replace("tollway switch status", &format!("tollway switch status --socket {at}"));
    script += "kill %1; wait %1\n";
    let tollway = Path::new(env!("CARGO_BIN_EXE_tollway")).parent().unwrap();
    let path = format!("{}:{}", tollway.display(), std::env::var("PATH").unwrap());
    let output =
        Command::new("bash").args(["-c", &script]).env("PATH", path).current_dir(&folder).output().unwrap();
    for port in &ports[1..] {
        let _ = Command::new("redis-cli").args(["-p", &port.to_string(), "SHUTDOWN", "NOSAVE"]).output();
    }
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}\n{errors}");
    for part in ["OK", "hello", "SET:", "GET:", "`resp` at", "by-key", "up"] {
        assert!(said.contains(part), "no `{part}` in {said}\n{errors}");
    }
}

#[test]
fn the_chapters_configuration_is_right_and_a_wrong_one_is_said_in_place() {
    let folder = folder("check");
    let chapter = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/switch.md");
    let chapter = fs::read_to_string(chapter).unwrap();
    let (_, after) = chapter.split_once("```toml\n# switch.toml").unwrap();
    let config = after.split_once("```").unwrap().0;
    fs::write(folder.join("switch.toml"), config).unwrap();
    let said = common::succeeds(&folder, &["switch", "check", "switch.toml"]);
    assert!(said.contains("octet-counting by round-robin to a, b, c"), "{said}");
    assert!(said.contains("a session needs"), "{said}");
    fs::write(folder.join("switch.toml"), config.replace("octet-counting", "octets")).unwrap();
    let output = run_in(&folder, &["switch", "check", "switch.toml"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("`octets` is not a framing") && said.contains("frames = \"octets\""), "{said}");
    for words in [
        &["switch", "--frames", "lines"][..],
        &["switch", "--listen", ":1", "--frames", "lines", "--to", "nowhere"],
        &["switch", "--config", "missing.toml"],
        &["switch", "--config", "switch.toml", "--frames", "lines"],
    ] {
        assert_eq!(run_in(&folder, words).status.code(), Some(2), "{words:?}");
    }
    let output = run_in(&folder, &["switch", "status", "--socket", "none.sock"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no switch answers"), "{}", text(&output.stderr));
}

#[test]
fn a_watched_file_is_followed_and_members_are_drained_by_name() {
    let folder = folder("watched");
    let (one, two, port) = (echo(), echo(), free_port());
    let file = folder.join("switch.toml");
    let config = |version: &str, frames: &str| {
        format!(
            "version = \"{version}\"\nlisten = \"127.0.0.1:{port}\"\nframes = \"{frames}\"\npolicy = \"round-robin\"\nanswers = \"in-order\"\n\
             [member.one]\naddress = \"127.0.0.1:{one}\"\n[member.two]\naddress = \"127.0.0.1:{two}\"\n"
        )
    };
    fs::write(&file, config("first", "lines")).unwrap();
    let socket = folder.join("switch.sock");
    let at = socket.to_str().unwrap();
    let mut switch = Running::start(&[
        "switch",
        "--config",
        file.to_str().unwrap(),
        "--socket",
        at,
        "--metrics",
        "127.0.0.1:0",
        "--view",
        "127.0.0.1:0",
    ]);
    let metrics = switch.await_line("metrics at");
    let view = switch.await_line("view at");
    switch.await_line("configuration first is in force");
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut answers = BufReader::new(client.try_clone().unwrap());
    let mut ask = |line: &str| {
        client.write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        answers.read_line(&mut answer).unwrap();
        let (port, echoed) = answer.trim().split_once(' ').unwrap();
        assert_eq!(echoed, line);
        port.parse::<u16>().unwrap()
    };
    let homes: Vec<u16> = (0..10).map(|number| ask(&format!("line {number}"))).collect();
    assert_eq!(homes.iter().filter(|&&home| home == one).count(), 5);
    // A mistake is reported, and nothing changes.
    fs::write(&file, config("second", "liness")).unwrap();
    switch.await_line("the last good configuration stays in force");
    let status = || -> Value {
        let output = run_in(&folder, &["switch", "status", "--json", "--socket", at]);
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    assert_eq!(status()["version"], "first");
    assert!(status()["trouble"].as_str().unwrap().contains("liness"));
    fs::write(&file, config("third", "lines")).unwrap();
    switch.await_line("configuration third is in force");
    assert_eq!(status()["trouble"], Value::Null);
    let said = common::succeeds(&folder, &["switch", "drain", "one", "--socket", at]);
    assert!(said.contains("`one` gets no new messages"));
    assert!((0..10).all(|number| ask(&format!("line {number}")) == two));
    let output = run_in(&folder, &["switch", "drain", "three", "--socket", at]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("its members are one, two"));
    common::succeeds(&folder, &["switch", "drain", "one", "--undo", "--socket", at]);
    assert!((0..10).any(|number| ask(&format!("line {number}")) == one));
    let said = common::succeeds(&folder, &["switch", "status", "--socket", at]);
    assert!(said.contains("round-robin") && said.contains("127.0.0.1"), "{said}");
    // Prometheus and the browser show the same.
    let get = |line: &str, path: &str| {
        let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap().trim();
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let scraped = get(&metrics, "/metrics");
    assert!(scraped.contains("tollway_switch_member_up{member=\"one\"} 1"), "{scraped}");
    assert!(get(&view, "/").contains("<title>tollway</title>"));
    assert!(get(&view, "/fields").contains("\"title\":\"tollway switch\""));
    assert!(get(&view, "/data").contains("\"version\":\"third\""));
    // A second switch at the same socket is refused; SIGTERM ends the first one in order.
    let output = run_in(
        &folder,
        &["switch", "--listen", "127.0.0.1:0", "--frames", "lines", "--to", "127.0.0.1:1", "--socket", at],
    );
    assert_eq!(output.status.code(), Some(2));
    drop((client, answers));
    let pid = switch.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let mut status = None;
    eventually("it has ended", || {
        status = switch.child.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(0));
    assert!(!socket.exists());
}

#[test]
fn a_switch_reports_to_its_service_manager_and_logs_json() {
    let folder = folder("service");
    let to = format!("127.0.0.1:{}", echo());
    let socket = folder.join("switch.sock");
    let words = ["switch", "--frames", "lines", "--listen", "127.0.0.1:0", "--to", &to, "--socket"];
    let mut command = tollway(&words);
    command.arg(&socket);
    common::serves_as_a_service(&folder, &command);
}

#[test]
fn every_mistake_of_a_configuration_is_shown_in_place() {
    let folder = folder("mistakes");
    let text =
        "listn = \":0\"\nframes = \"lines\"\npolcy = \"sticky\"\n[member.a]\nadress = \"127.0.0.1:1\"\n";
    fs::write(folder.join("switch.toml"), text).unwrap();
    let output = run_in(&folder, &["switch", "--config", "switch.toml"]);
    assert_eq!(output.status.code(), Some(2));
    let said = common::text(&output.stderr);
    for (line, key) in [(1, "listen"), (3, "policy"), (5, "address")] {
        assert!(said.contains(&format!("switch.toml:{line}:")), "no line {line} in {said}");
        assert!(said.contains(&format!("did you mean `{key}`?")), "no `{key}` in {said}");
    }
}

#[test]
fn clients_beyond_the_limit_of_descriptors_are_refused_at_once() {
    let (folder, port) = (folder("descriptors"), free_port());
    let at = folder.join("switch.sock");
    let listen = format!("127.0.0.1:{port}");
    let words = ["switch", "--listen", &listen, "--frames", "resp", "--to", "127.0.0.1:1", "--socket"];
    let mut child = Command::new("prlimit")
        .args(["--nofile=80:80", "--", env!("CARGO_BIN_EXE_tollway")])
        .args(words)
        .arg(&at)
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stderr.take().unwrap());
    let mut switch = Running { child, said };
    switch.await_line("is in force");
    let clients: Vec<TcpStream> = (0..80)
        .map(|_| {
            let mut client = TcpStream::connect(&listen).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            let _ = client.write_all(b"PING\r\n");
            client
        })
        .collect();
    let mut refused = 0;
    for mut client in &clients {
        let mut answer = vec![0; 200];
        let len = client.read(&mut answer).unwrap_or(0);
        let answer = text(&answer[..len]);
        refused += usize::from(answer.contains("max number of clients") || len == 0);
    }
    // Some are served, with an error since there is no server.
    assert!((40..80).contains(&refused), "{refused}");
}

/// A configuration of lines before the member at `address`, which listens at `port`.
fn lines(port: u16, address: &str) -> String {
    format!(
        "listen = \"127.0.0.1:{port}\"\nframes = \"lines\"\nanswers = \"in-order\"\n[member.a]\naddress = \"{address}\"\n"
    )
}

/// The answer to a line that a new client sends to a switch.
fn answer(port: u16) -> String {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    (&stream).write_all(b"hello\n").unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

#[test]
fn the_names_of_members_are_resolved_again() {
    let (folder, port, server) = (folder("names"), free_port(), echo());
    let hosts = folder.join("hosts");
    // The first address is that of a test network.
    fs::write(&hosts, "192.0.2.1 store.test\n").unwrap();
    fs::write(folder.join("switch.toml"), lines(port, &format!("store.test:{server}"))).unwrap();
    // Only this process has the file of names.
    let inside = "mount --bind hosts /etc/hosts && exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", inside]).arg(env!("CARGO_BIN_EXE_tollway")).current_dir(&folder);
    command.args(["switch", "--config", "switch.toml", "--socket", "run/switch.sock"]);
    let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let said = BufReader::new(child.stderr.take().unwrap());
    let mut switch = Running { child, said };
    let first = switch.await_line("");
    if !first.contains("is in force at") {
        eprintln!("SKIPPED: no mount namespace: {first}");
        return;
    }
    fs::write(&hosts, "127.0.0.1 store.test\n").unwrap();
    switch.await_line(&format!("member a is at 127.0.0.1:{server} now"));
    assert_eq!(answer(port), format!("{server} hello\n"));
}

#[test]
fn a_hang_up_has_the_files_read_again() {
    let (folder, port, server) = (folder("hang-up"), free_port(), echo());
    fs::write(folder.join("switch.toml"), lines(port, &format!("127.0.0.1:{server}"))).unwrap();
    let words = ["switch", "--config", "switch.toml", "--socket", "run/switch.sock"];
    let mut switch = Running::start_in(&folder, &words);
    switch.await_line("is in force at");
    let pid = switch.child.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    switch.await_line("is in force\n");
    assert_eq!(answer(port), format!("{server} hello\n"));
}

#[test]
fn clients_wait_at_the_managers_socket_during_a_restart() {
    let (folder, server) = (folder("passed"), echo());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    fs::write(folder.join("switch.toml"), lines(port, &format!("127.0.0.1:{server}"))).unwrap();
    // As systemd passes it: descriptor 3.
    let start = || {
        let inside = "exec 3<&0 0</dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", inside]).arg(env!("CARGO_BIN_EXE_tollway")).current_dir(&folder);
        command.args(["switch", "--config", "switch.toml", "--socket", "run/switch.sock"]);
        let socket = std::os::fd::OwnedFd::from(listener.try_clone().unwrap());
        command.stdin(socket).stderr(Stdio::null()).spawn().unwrap()
    };
    for _ in 0..2 {
        let waits = std::thread::spawn(move || answer(port));
        let mut switch = start();
        assert_eq!(waits.join().unwrap(), format!("{server} hello\n"));
        let pid = switch.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        assert!(switch.wait().unwrap().success());
    }
}

#[test]
fn a_new_secret_is_warned_of() {
    let (folder, port) = (folder("secret"), free_port());
    fs::write(folder.join("hash.secret"), [3; 16]).unwrap();
    let config = format!(
        "listen = \"127.0.0.1:{port}\"\nframes = \"resp\"\nsecret = \"hash.secret\"\n[member.a]\naddress = \"127.0.0.1:1\"\n"
    );
    fs::write(folder.join("switch.toml"), config).unwrap();
    let (file, at) = (folder.join("switch.toml"), folder.join("switch.sock"));
    let words = ["switch", "--config", file.to_str().unwrap(), "--socket", at.to_str().unwrap()];
    Running::start(&words).await_line("keys that another secret placed are at other members");
    fs::File::options()
        .write(true)
        .open(folder.join("hash.secret"))
        .unwrap()
        .set_modified(std::time::SystemTime::now() - Duration::from_secs(7200))
        .unwrap();
    let line = Running::start(&words).await_line("");
    assert!(line.contains("is in force"), "{line}");
    fs::write(folder.join("hash.secret"), "short").unwrap();
    let output = run_in(&folder, &["switch", "check", "switch.toml"]);
    assert!(text(&output.stderr).contains("5 bytes instead of 16"), "{}", text(&output.stderr));
}
