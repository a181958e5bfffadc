//! `tollway switch` between sites: the commands of its chapter, and killed processes.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{self, run_in, succeeds, text, tollway};

fn chapter() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/sites.md");
    fs::read_to_string(path).unwrap()
}

fn block<'c>(chapter: &'c str, begin: &str) -> &'c str {
    let (_, after) = chapter.split_once(begin).expect("the chapter has it");
    after.split_once("```").expect("it ends").0
}

fn free_udp<const N: usize>() -> [u16; N] {
    let all: Vec<_> = (0..N).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    std::array::from_fn(|at| all[at].local_addr().unwrap().port())
}

fn free_tcp<const N: usize>() -> [u16; N] {
    let all: Vec<_> = (0..N).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    std::array::from_fn(|at| all[at].local_addr().unwrap().port())
}

#[test]
fn the_chapters_ten_minutes_are_as_it_says() {
    let folder = common::folder("sites", "chapter");
    let chapter = chapter();
    let mut script = String::from("set -e\n");
    for line in block(&chapter, "```sh\n").lines() {
        if !line.starts_with("cargo install") {
            script += line;
            script += "\n";
        }
    }
    let (udp, tcp) = (free_udp::<4>(), free_tcp::<3>());
    let ports = [("7100", udp[0]), ("7200", udp[1]), ("7301", udp[2]), ("7302", udp[3])];
    let ports = ports.into_iter().chain([("6001", tcp[0]), ("6002", tcp[1]), ("5000", tcp[2])]);
    for (shown, port) in ports {
        script = script.replace(shown, &port.to_string());
    }
    // A busy machine needs longer than the chapter's.
    script = script.replace("sleep 2", "sleep 5");
    script += "kill $(jobs -p)\nwait\n";
    let bin = Path::new(env!("CARGO_BIN_EXE_tollway")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let output =
        Command::new("bash").args(["-c", &script]).env("PATH", path).current_dir(&folder).output().unwrap();
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(said.lines().any(|line| line == "1000"), "{said}\n{errors}\n{script}");
    for member in ["m1", "m2"] {
        let row = said.lines().find(|line| line.starts_with(member)).expect("a row of the member");
        assert!(row.split_whitespace().any(|word| word == "500"), "{said}");
    }
}

#[test]
fn the_chapters_configuration_is_right_and_mistakes_are_said_in_place() {
    let folder = common::folder("sites", "check");
    succeeds(&folder, &["switch", "keygen", "a", "b", "m1", "m2"]);
    let chapter = chapter();
    let config = block(&chapter, "```toml\n# b.toml").to_owned();
    let file = folder.join("b.toml");
    let check = |config: &str| {
        fs::write(&file, config).unwrap();
        run_in(&folder, &["switch", "check", "b.toml"])
    };
    let output = check(&config);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("sessions from a by least-loaded to m1, m2"));
    for (wrong, right, message) in [
        ("member.m2", "member.m3", "no key of `m3`"),
        ("\"b.key\"", "\"c.key\"", "cannot read the key file"),
        ("policy = \"least-loaded\"", "to = \"127.0.0.1:1\"", "the role of this part"),
        ("policy =", "frames = \"lines\"\npolicy =", "does not read frames"),
        ("policy =", "law = \"xcp\"\npolicy =", "the rate of the link to `a`"),
        ("policy =", "law = \"fcp\"\npolicy =", "the rate of the link to `a`"),
        ("policy =", "law = \"reno\"\npolicy =", "`reno` is not a law"),
        ("10.1.0.3:7300", "nowhere", "`nowhere` is not an address"),
        ("\"1 MiB\"", "\"1 B\"", "out of range"),
        ("\"2 MiB\"", "\"1 MiB\"", "two frames"),
    ] {
        let output = check(&config.replacen(wrong, right, 1));
        assert_eq!(output.status.code(), Some(2), "{right}");
        assert!(text(&output.stderr).contains(message), "no `{message}` in {}", text(&output.stderr));
    }
    let output = run_in(&folder, &["switch", "keygen", "a"]);
    assert!(text(&output.stderr).contains("never overwritten"), "{}", text(&output.stderr));
    for words in [
        &["switch", "--bind", "127.0.0.1:0", "--keys", "a.key", "--to", "127.0.0.1:1", "--frames", "lines"][..],
        &[
            "switch",
            "--bind",
            "127.0.0.1:0",
            "--peer",
            "b=127.0.0.1:1",
            "--listen",
            ":0",
            "--frames",
            "lines",
        ],
        &["switch", "--bind", "127.0.0.1:0", "--peer", "b=127.0.0.1:1", "--keys", "a.key", "--listen", ":0"],
        &["switch", "--peer", "b=127.0.0.1:1", "--listen", ":0", "--frames", "lines", "--to", "127.0.0.1:1"],
    ] {
        assert_eq!(run_in(&folder, words).status.code(), Some(2), "{words:?}");
    }
}

/// A front or back in its own process.
struct Part {
    child: Child,
    socket: PathBuf,
    folder: PathBuf,
    name: String,
    words: String,
}

impl Part {
    fn start(folder: &Path, name: &str, words: &str) -> Part {
        let socket = folder.join(format!("{name}.sock"));
        let mut command = tollway(&["switch", "--socket", socket.to_str().unwrap()]);
        let command = command.args(["--keys", folder.join(format!("{name}.key")).to_str().unwrap()]);
        let mut child =
            command.args(words.split(' ')).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        // Hops may be up before.
        let mut line = String::new();
        while !line.contains("is in force") {
            line.clear();
            assert_ne!(said.read_line(&mut line).unwrap(), 0, "it has ended");
        }
        let (folder, name, words) = (folder.to_path_buf(), name.to_owned(), words.to_owned());
        Part { child, socket, folder, name, words }
    }

    /// Kills the process. Starts a process with the same words.
    fn replace(self) -> Part {
        let (folder, name, words) = (self.folder.clone(), self.name.clone(), self.words.clone());
        drop(self);
        Part::start(&folder, &name, &words)
    }

    fn is_up(&self) -> bool {
        let status = self.status();
        let all = status["sites"]["neighbours"].as_array().unwrap().clone();
        all.iter().all(|neighbour| neighbour["state"] == "up")
    }

    fn status(&self) -> Value {
        let output =
            tollway(&["switch", "status", "--json", "--socket", self.socket.to_str().unwrap()]).output();
        serde_json::from_slice(&output.unwrap().stdout).expect("JSON")
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < until, "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A server that writes each line back.
fn echo() -> u16 {
    server(|line| format!("{line}\n"))
}

fn server(answer: impl Fn(&str) -> String + Clone + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || {
                let mut to = &stream;
                for line in BufReader::new(&stream).lines().map_while(Result::ok) {
                    if to.write_all(answer(&line).as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

/// A front, a switch and a back before each server, all up.
struct Chain {
    front: Part,
    switch: Part,
    backs: Vec<Part>,
    /// The port for clients.
    listen: u16,
}

impl Chain {
    fn start<const N: usize>(test: &str, servers: [u16; N]) -> Chain {
        let folder = common::folder("sites", test);
        let names: Vec<_> = (0..N).map(|at| format!("m{at}")).collect();
        let mut keys = vec!["switch", "keygen", "a", "b"];
        keys.extend(names.iter().map(String::as_str));
        succeeds(&folder, &keys);
        let ([a, b], at, [listen]) = (free_udp(), free_udp::<N>(), free_tcp());
        let members: Vec<_> =
            names.iter().zip(at).map(|(name, port)| format!("{name}=127.0.0.1:{port}")).collect();
        let front = format!(
            "--bind 127.0.0.1:{a} --peer b=127.0.0.1:{b} --listen 127.0.0.1:{listen} --frames lines --answers in-order"
        );
        let switch = format!(
            "--bind 127.0.0.1:{b} --peer a=127.0.0.1:{a} --member {} --policy round-robin",
            members.join(",")
        );
        let (front, switch) = (Part::start(&folder, "a", &front), Part::start(&folder, "b", &switch));
        let backs = names.iter().zip(at).zip(servers).map(|((name, port), server)| {
            let words = format!(
                "--bind 127.0.0.1:{port} --peer b=127.0.0.1:{b} --to 127.0.0.1:{server} --frames lines --answers any"
            );
            Part::start(&folder, name, &words)
        });
        let chain = Chain { backs: backs.collect(), front, switch, listen };
        chain.wait();
        chain
    }

    /// Waits until the parts reach each other.
    fn wait(&self) {
        eventually("all are up", || self.front.is_up() && self.switch.is_up());
    }

    fn client(&self) -> TcpStream {
        let client = TcpStream::connect(("127.0.0.1", self.listen)).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        client
    }
}

#[test]
fn a_member_that_lags_does_not_end_the_session() {
    const REQUESTS: usize = 6000;
    let (answered, listener) = (Arc::new(AtomicUsize::new(0)), TcpListener::bind("127.0.0.1:0").unwrap());
    let slow = listener.local_addr().unwrap().port();
    let count = answered.clone();
    let fast = server(move |line| {
        count.fetch_add(1, Relaxed);
        answer(line)
    });
    std::thread::spawn(move || {
        let stream = listener.accept().unwrap().0;
        // It begins once the other has nothing to do.
        let mut before = 0;
        while before == 0 || before != answered.load(Relaxed) {
            before = answered.load(Relaxed);
            std::thread::sleep(Duration::from_millis(200));
        }
        for line in BufReader::new(&stream).lines().map_while(Result::ok) {
            (&stream).write_all(answer(&line).as_bytes()).unwrap();
        }
    });
    let chain = Chain::start("lags", [fast, slow]);
    let client = chain.client();
    let requests: String = (0..REQUESTS).map(|number| format!("{number}\n")).collect();
    let mut writer = client.try_clone().unwrap();
    let sent = std::thread::spawn(move || writer.write_all(requests.as_bytes()));
    let mut answers = BufReader::new(client).lines();
    for number in 0..REQUESTS {
        let line = answers.next().unwrap().unwrap_or_else(|error| panic!("{number}: {error}"));
        assert!(line.starts_with(&format!("{number} ")), "{number}: {}", &line[..10]);
    }
    sent.join().unwrap().unwrap();
}

/// An answer of 8 kB to a request.
fn answer(line: &str) -> String {
    format!("{line} {:8000}\n", "")
}

#[test]
fn processes_that_are_killed_have_the_ends_that_the_chapter_says() {
    let mut chain = Chain::start("killed", [echo(), echo()]);
    let client = chain.client();
    let mut answers = BufReader::new(client.try_clone().unwrap());
    let mut ask = |number: u32| {
        (&client).write_all(format!("line {number}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        answers.read_line(&mut answer).unwrap();
        assert_eq!(answer, format!("line {number}\n"));
    };
    (0..20).for_each(&mut ask);
    // A back is killed. Another instance takes its address, and the session continues.
    let one = chain.backs.remove(0).replace();
    (20..40).for_each(&mut ask);
    eventually("the member is used again", || {
        one.status()["frames"].as_u64() > Some(0) || {
            ask(40);
            false
        }
    });
    // The switch is killed and replaced: the client's connection is reset, and new clients are
    // served.
    let began = Instant::now();
    chain.switch = chain.switch.replace();
    let mut rest = Vec::new();
    assert!(answers.read_to_end(&mut rest).is_err(), "a reset");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    assert_eq!(chain.front.status()["ends"]["peer-replaced"], 1);
    chain.wait();
    let client = chain.client();
    (&client).write_all(b"again\n").unwrap();
    let mut answer = String::new();
    BufReader::new(&client).read_line(&mut answer).unwrap();
    assert_eq!(answer, "again\n");
    let socket = &chain.switch.socket;
    let said =
        succeeds(socket.parent().unwrap(), &["switch", "status", "--socket", socket.to_str().unwrap()]);
    for part in ["ACP at 127.0.0.1", "neighbour", "up", "m1", "round-robin"] {
        assert!(said.contains(part), "no `{part}` in {said}");
    }
}
