//! Redis, rsyslog and logger from Debian, through the switch. Programs that are not installed are
//! reported and skipped.

use std::collections::{BTreeMap, HashSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::*;

/// True if all of these programs are installed; reports those that are not.
fn have(programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.push("/usr/sbin".into());
    programs.iter().all(|program| {
        let there = folders.iter().any(|folder| folder.join(program).exists());
        if !there {
            eprintln!("SKIPPED: there is no `{program}` (see .ci/run for the packages)");
        }
        there
    })
}

fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A program that ends with the test.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Running {
        Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn redis(name: &str, more: &[&str]) -> (Running, SocketAddr) {
    let port = free_port();
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]);
    command.args(more).current_dir(folder(name));
    let running = Running::start(&mut command);
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    eventually("redis-server listens", || TcpStream::connect(address).is_ok());
    (running, address)
}

fn cli(port: u16, words: &[&str]) -> String {
    let output = Command::new("redis-cli").args(["-p", &port.to_string()]).args(words).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Commands in one go, as redis-cli reads them from a pipe.
fn piped(port: u16, lines: &str) -> Vec<String> {
    let mut child = Command::new("redis-cli")
        .args(["-p", &port.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn redis_cli_and_redis_benchmark_use_three_servers_as_one() {
    if !have(&["redis-server", "redis-cli", "redis-benchmark"]) {
        return;
    }
    let servers: Vec<_> = ["one", "two", "three"].map(|name| redis(name, &[])).into();
    let members: Vec<_> =
        ["one", "two", "three"].into_iter().zip(servers.iter().map(|(_, address)| *address)).collect();
    let agent = switch("resp", "", &members);
    let port = agent.listen()[0].port();

    let sets: String = (0..900).map(|key| format!("SET key:{key} {}\n", key * 7)).collect();
    assert!(piped(port, &sets).iter().all(|line| line == "OK"));
    let gets: String = (0..900).map(|key| format!("GET key:{key}\n")).collect();
    let expected: Vec<String> = (0..900).map(|key| (key * 7).to_string()).collect();
    assert_eq!(piped(port, &gets), expected, "in order, nothing lost");
    let held: Vec<usize> =
        members.iter().map(|(_, address)| cli(address.port(), &["DBSIZE"]).trim().parse().unwrap()).collect();
    assert_eq!(held.iter().sum::<usize>(), 900);
    assert!(held.iter().all(|&count| count > 200), "{held:?}");

    // One connection that pipelines deeply, byte for byte.
    let mut client = connect(&agent);
    let mut commands = Vec::new();
    for key in 0..900 {
        let key = format!("key:{key}");
        commands.extend(format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()).into_bytes());
    }
    let mut writer = client.try_clone().unwrap();
    let write = std::thread::spawn(move || writer.write_all(&commands).unwrap());
    let answers: String = expected.iter().map(|value| format!("${}\r\n{value}\r\n", value.len())).collect();
    let mut got = vec![0; answers.len()];
    client.read_exact(&mut got).unwrap();
    write.join().unwrap();
    assert_eq!(String::from_utf8(got).unwrap(), answers);

    // A command that cannot be spread gets an error, and the connection continues.
    let said = piped(
        port,
        "MGET key:1 key:2 key:3 key:4 key:5\nMULTI\nSUBSCRIBE news\nBLPOP key:1 0\nGET key:2\nPING\n",
    );
    let said: Vec<&str> = said.iter().map(String::as_str).filter(|line| !line.is_empty()).collect();
    assert!(said[0].contains("several members"), "{said:?}");
    assert!(said[1].contains("binds a connection"), "{said:?}");
    assert!(said[2].contains("binds a connection"), "{said:?}");
    assert!(said[3].contains("blocks"), "{said:?}");
    assert_eq!(&said[4..], ["14", "PONG"]);

    let mut benchmark = Command::new("redis-benchmark");
    benchmark.args([
        "-p",
        &port.to_string(),
        "-t",
        "set,get",
        "-n",
        "20000",
        "-r",
        "5000",
        "-P",
        "16",
        "-c",
        "20",
        "--csv",
    ]);
    let output = benchmark.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("\"SET\"") && said.contains("\"GET\""), "{said}");
    eventually("all is answered", || {
        let now = status(&agent);
        now.frames == now.answers + now.answered_here
    });
    let now = status(&agent);
    assert_eq!(now.abandoned, 0);
    assert!(now.members.iter().all(|member| member.answers > 5000 && member.unanswered == 0), "{now:?}");
    agent.end().unwrap();
}

#[test]
fn what_sets_a_redis_connection_up_holds_at_every_server() {
    if !have(&["redis-server", "redis-cli"]) {
        return;
    }
    let servers: Vec<_> = ["four", "five"].map(|name| redis(name, &["--requirepass", "secret"])).into();
    let members: Vec<_> =
        ["four", "five"].into_iter().zip(servers.iter().map(|(_, address)| *address)).collect();
    let agent = switch("resp", "", &members);
    let port = agent.listen()[0].port();
    assert!(cli(port, &["GET", "x"]).contains("NOAUTH"));
    let mut lines = "AUTH wrong\nAUTH default secret\nSELECT 3\n".to_owned();
    lines += &(0..50).map(|key| format!("SET k{key} {key}\n")).collect::<String>();
    // A refused one changes nothing.
    lines += "SELECT 999\nAUTH default wrong\n";
    lines += &(0..50).map(|key| format!("GET k{key}\n")).collect::<String>();
    let said = piped(port, &lines);
    let said: Vec<&str> = said.iter().map(String::as_str).filter(|line| !line.is_empty()).collect();
    assert!(said[0].contains("WRONGPASS"), "{said:?}");
    assert_eq!(said[1..53], ["OK"; 52]);
    let values: Vec<String> = (0..50).map(|key| key.to_string()).collect();
    assert_eq!(said[55..], values, "{said:?}");
    for (_, address) in &members {
        let count = cli(address.port(), &["-a", "secret", "-n", "3", "DBSIZE"]);
        let count: usize = count.lines().find_map(|line| line.trim().parse().ok()).unwrap();
        assert!(count > 10, "{count} keys in database 3");
    }
    // RESP 3, and a client known by its user.
    let mut client = connect(&agent);
    client
        .write_all(b"*5\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$4\r\nAUTH\r\n$7\r\ndefault\r\n$6\r\nsecret\r\n")
        .unwrap();
    let mut head = [0; 1];
    client.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"%");
    assert!(status(&agent).clients.iter().any(|client| client.name == "user:default"));
    agent.end().unwrap();
}

#[test]
fn a_redis_server_that_is_killed_is_said_and_the_others_go_on() {
    if !have(&["redis-server"]) {
        return;
    }
    let mut servers: Vec<_> = ["six", "seven"].map(|name| redis(name, &[])).into();
    let members: Vec<_> =
        ["six", "seven"].into_iter().zip(servers.iter().map(|(_, address)| *address)).collect();
    let agent = switch("resp", "[limits]\nanswer-time = \"1 s\"", &members);
    let mut client = connect(&agent);
    let mut ask = |key: &str| {
        client.write_all(format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()).as_bytes()).unwrap();
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap()
    };
    for key in 0..50 {
        assert_eq!(ask(&format!("k{key}")), "$-1\r\n");
    }
    drop(servers.remove(0));
    // All keys are answered: by the other server, or by an error in place.
    let answers: Vec<String> = (0..50).map(|key| ask(&format!("k{key}"))).collect();
    assert!(
        answers.iter().all(|answer| answer == "$-1\r\n" || answer.starts_with("-ERR the server failed")),
        "{answers:?}"
    );
    assert!(answers[1..].iter().any(|answer| answer == "$-1\r\n"));
    agent.end().unwrap();
}

/// Takes in octet-counted messages, over all connections that come.
struct Collector {
    address: SocketAddr,
    messages: Arc<Mutex<Vec<String>>>,
    over: Arc<std::sync::atomic::AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Collector {
    fn at(address: SocketAddr, messages: Arc<Mutex<Vec<String>>>) -> Collector {
        let mut listener = TcpListener::bind(address);
        eventually("the port is free", || {
            if listener.is_err() {
                listener = TcpListener::bind(address);
            }
            listener.is_ok()
        });
        let listener = listener.unwrap();
        listener.set_nonblocking(true).unwrap();
        let over = Arc::<std::sync::atomic::AtomicBool>::default();
        let streams = Arc::<Mutex<Vec<TcpStream>>>::default();
        let collector = Collector { address: listener.local_addr().unwrap(), messages, over, streams };
        let (messages, over) = (Arc::clone(&collector.messages), Arc::clone(&collector.over));
        let streams = Arc::clone(&collector.streams);
        std::thread::spawn(move || {
            while !over.load(std::sync::atomic::Ordering::SeqCst) {
                let Ok((stream, _)) = listener.accept() else {
                    std::thread::sleep(Duration::from_millis(2));
                    continue;
                };
                stream.set_nonblocking(false).unwrap();
                streams.lock().unwrap().push(stream.try_clone().unwrap());
                let messages = Arc::clone(&messages);
                std::thread::spawn(move || collect(stream, &messages));
            }
        });
        collector
    }

    fn start() -> Collector {
        Collector::at("127.0.0.1:0".parse().unwrap(), Arc::default())
    }

    fn kill(&self) {
        self.over.store(true, std::sync::atomic::Ordering::SeqCst);
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn collect(stream: TcpStream, messages: &Mutex<Vec<String>>) {
    let mut from = std::io::BufReader::new(stream);
    loop {
        let mut len = 0usize;
        loop {
            let mut byte = [0];
            if from.read_exact(&mut byte).is_err() {
                return;
            }
            match byte[0] {
                b' ' => break,
                digit => len = len * 10 + usize::from(digit - b'0'),
            }
        }
        let mut message = vec![0; len];
        if from.read_exact(&mut message).is_err() {
            return;
        }
        messages.lock().unwrap().push(String::from_utf8_lossy(&message).into_owned());
    }
}

/// The number that a test's message ends with.
fn numbers(messages: &Mutex<Vec<String>>) -> Vec<u32> {
    let messages = messages.lock().unwrap();
    let last = |message: &String| message.split_whitespace().last().and_then(|word| word.parse().ok());
    messages.iter().filter(|message| message.contains("spread-me")).filter_map(last).collect()
}

#[test]
fn logger_reaches_three_collectors() {
    if !have(&["logger"]) {
        return;
    }
    let collectors: Vec<Collector> = (0..3).map(|_| Collector::start()).collect();
    let members: Vec<_> =
        ["a", "b", "c"].into_iter().zip(collectors.iter().map(|collector| collector.address)).collect();
    let agent = switch("octet-counting", "policy = \"round-robin\"", &members);
    let port = agent.listen()[0].port().to_string();
    let mut logger = Command::new("logger")
        .args(["--server", "127.0.0.1", "--tcp", "--port", &port, "--octet-count", "--rfc5424"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let lines: String = (0..300).map(|number| format!("spread-me {number}\n")).collect();
    logger.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    assert!(logger.wait().unwrap().success());
    let all =
        || -> Vec<u32> { collectors.iter().flat_map(|collector| numbers(&collector.messages)).collect() };
    eventually("all messages have come", || all().len() >= 300);
    let mut all = all();
    all.sort_unstable();
    assert_eq!(all, (0..300).collect::<Vec<_>>());
    assert!(collectors.iter().all(|collector| numbers(&collector.messages).len() == 100));
    agent.end().unwrap();
}

#[test]
fn rsyslog_reaches_three_collectors_of_which_one_is_killed_and_comes_back() {
    if !have(&["rsyslogd", "logger"]) {
        return;
    }
    let mut collectors: Vec<Collector> = (0..3).map(|_| Collector::start()).collect();
    let members: Vec<_> =
        ["a", "b", "c"].into_iter().zip(collectors.iter().map(|collector| collector.address)).collect();
    let more = "policy = \"round-robin\"\n[limits]\nanswer-time = \"2 s\"\nconnect-time = \"500 ms\"";
    let agent = switch("octet-counting", more, &members);
    let port = agent.listen()[0].port();
    let folder = folder("rsyslog");
    let (config, log) = (folder.join("rsyslog.conf"), folder.join("log.sock"));
    std::fs::write(
        &config,
        format!(
            "global(workDirectory=\"{}\")\nmodule(load=\"imuxsock\" SysSock.Use=\"off\")\n\
             input(type=\"imuxsock\" Socket=\"{}\" RateLimit.Interval=\"0\" CreatePath=\"on\")\n\
             action(type=\"omfwd\" Target=\"127.0.0.1\" Port=\"{port}\" Protocol=\"tcp\" TCP_Framing=\"octet-counted\" \
             queue.type=\"LinkedList\" action.resumeRetryCount=\"-1\" action.resumeInterval=\"1\")\n",
            folder.display(),
            log.display()
        ),
    )
    .unwrap();
    let program =
        if std::path::Path::new("/usr/sbin/rsyslogd").exists() { "/usr/sbin/rsyslogd" } else { "rsyslogd" };
    let pid = folder.join("pid");
    let mut command = Command::new(program);
    command.args(["-n", "-f", config.to_str().unwrap(), "-i", pid.to_str().unwrap()]);
    let _rsyslog = Running::start(&mut command);
    eventually("rsyslog listens", || log.exists());
    let send = |from: u32, to: u32| {
        let mut logger = Command::new("logger")
            .args(["--socket", log.to_str().unwrap()])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let lines: String = (from..to).map(|number| format!("spread-me {number}\n")).collect();
        logger.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        assert!(logger.wait().unwrap().success());
    };
    let messages: Vec<_> = collectors.iter().map(|collector| Arc::clone(&collector.messages)).collect();
    let distinct =
        || messages.iter().flat_map(|messages| numbers(messages)).collect::<HashSet<u32>>().len() as u64;
    send(0, 1000);
    eventually("the first thousand has come", || distinct() == 1000);
    let address = collectors[1].address;
    let sender = std::thread::scope(|scope| {
        let sending = scope.spawn(|| send(1000, 3000));
        std::thread::sleep(Duration::from_millis(5));
        collectors[1].kill();
        sending.join()
    });
    sender.unwrap();
    // All but what the killed one had acknowledged, which is counted.
    let accounted = || distinct() + member(&status(&agent), "b").perhaps_lost >= 3000;
    eventually("every message is accounted for", accounted);
    let before = numbers(&messages[1]).len();
    collectors[1] = Collector::at(address, Arc::clone(&messages[1]));
    eventually("the killed one is up again", || member(&status(&agent), "b").state == "up");
    let lost = 3000 - distinct();
    send(3000, 4000);
    eventually("the last thousand has come", || distinct() == 4000 - lost);
    assert!(numbers(&messages[1]).len() > before + 200, "the one that came back has its part");
    let now = status(&agent);
    assert!(
        lost <= member(&now, "b").perhaps_lost,
        "{lost} lost, at most {} said",
        member(&now, "b").perhaps_lost
    );
    let times =
        messages.iter().flat_map(|messages| numbers(messages)).fold(BTreeMap::new(), |mut times, number| {
            *times.entry(number).or_insert(0u32) += 1;
            times
        });
    let twice = times.values().filter(|&&times| times > 1).count() as u64;
    let retried: u64 = now.members.iter().map(|member| member.retried).sum();
    assert!(twice <= retried, "{twice} came twice, {retried} were sent again");
    agent.end().unwrap();
}

/// An authorization host as there are many: ISO 8583 messages behind a length of two bytes and a
/// header (TPDU) of five, answered by the same trace number and in any order.
fn iso_host(listener: &TcpListener, name: u8) {
    for stream in listener.incoming().flatten() {
        std::thread::spawn(move || {
            let (mut from, mut to) = (std::io::BufReader::new(&stream), &stream);
            let mut held: Option<Vec<u8>> = None;
            while let Some(mut message) = read_framed(&mut from) {
                assert_eq!(&message[..5], b"\x60\x00\x01\x00\x02");
                assert_eq!(&message[5..9], b"0200");
                message[5..9].copy_from_slice(b"0210");
                message.push(name);
                // Every third waits for the next.
                let later = message[30] % 3 == 0 && held.is_none();
                if later {
                    held = Some(message);
                    continue;
                }
                for answer in [Some(message), held.take()].into_iter().flatten() {
                    if to.write_all(&framed(&answer)).is_err() {
                        return;
                    }
                }
            }
        });
    }
}

#[test]
fn iso_8583_messages_are_spread_by_card_and_answered_each() {
    let hosts: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let members: Vec<_> =
        ["a", "b", "c"].into_iter().zip(hosts.iter().map(|host| host.local_addr().unwrap())).collect();
    for (host, name) in hosts.into_iter().zip(b'a'..) {
        std::thread::spawn(move || iso_host(&host, name));
    }
    // The card's number follows length, header, type, bitmap and its own length.
    let agent = switch("u16", "policy = \"by-key\"\nkey = \"21..37\"", &members);
    let mut client = connect(&agent);
    let mut writer = client.try_clone().unwrap();
    let write = std::thread::spawn(move || {
        for trace in 0..3000u32 {
            let mut message = b"\x60\x00\x01\x00\x020200\x72\x00\x00\x00\x00\x00\x00\x00".to_vec();
            message.extend(b"16");
            message.extend(format!("4{:015}", trace % 97).as_bytes());
            message.extend(format!("{trace:06}").as_bytes());
            writer.write_all(&framed(&message)).unwrap();
        }
    });
    let (mut traces, mut homes) = (HashSet::new(), BTreeMap::new());
    let mut unanswered = 3000;
    client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    while unanswered > 0
        && let Some(answer) = read_framed(&mut client)
    {
        assert_eq!(&answer[5..9], b"0210");
        let (card, trace) = (answer[19..35].to_vec(), answer[35..41].to_vec());
        assert!(traces.insert(trace), "answered once");
        let home = homes.entry(card).or_insert(*answer.last().unwrap());
        assert_eq!(home, answer.last().unwrap(), "one card, one host");
        unanswered -= 1;
    }
    write.join().unwrap();
    // A host may keep one message for a next that never comes.
    assert!(unanswered <= 3, "{unanswered} are not answered");
    assert_eq!(homes.values().collect::<HashSet<_>>().len(), 3);
    agent.end().unwrap();
}
