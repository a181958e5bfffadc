//! Programs over emulated networks: `tollway exec` as a person meets it, with clients and servers of the kernel's own TCP and UDP.
//!
//! The program is this test's own executable, in the role that its environment names; the server is a thread here, on the
//! host's loopback interface. Figures that depend on how punctual the machine is are only checked when the run itself says that
//! it was; a test says loudly what it left out.
#![cfg(target_os = "linux")]

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

#[cfg(feature = "view")]
#[path = "exec/view.rs"]
mod view;

/// A folder of a test's own, empty.
fn folder(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("exec").join(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("a folder for the test");
    dir
}

fn tollway(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollway"));
    command.args(arguments).env("NO_COLOR", "1");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether this machine lets us have namespaces; says so loudly if it does not.
fn namespaces() -> bool {
    let output =
        tollway(&["exec", "--link", "1Gbps", "-q", "--", "true"]).output().expect("the command starts");
    if !output.status.success() {
        eprintln!("SKIPPED: no network namespaces here: {}", text(&output.stderr));
    }
    output.status.success()
}

/// Serves on loopback: a line with a number is answered with so many bytes, anything else is sent back. Answers the port.
fn serve() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(stream));
        }
    });
    port
}

fn answer(mut stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    let _ = stream.set_nodelay(true);
    while reader.read_line(&mut line).is_ok_and(|len| len > 0) {
        match line.trim().parse::<u64>() {
            Ok(mut left) => {
                let chunk = vec![b'x'; 1 << 16];
                while left > 0 {
                    let len = left.min(chunk.len() as u64) as usize;
                    if stream.write_all(&chunk[..len]).is_err() {
                        return;
                    }
                    left -= len as u64;
                }
            }
            Err(_) => {
                let _ = stream.write_all(line.as_bytes());
            }
        }
        line.clear();
    }
}

/// Sends datagrams back. Answers the port.
fn serve_datagrams() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..len], from);
        }
    });
    port
}

/// What a program in a network does: not a test, but what this executable is when a test starts it inside.
#[test]
fn role() {
    let Ok(role) = std::env::var("EXEC_ROLE") else { return };
    let words: Vec<&str> = role.split_whitespace().collect();
    let number = |i: usize| words[i].parse::<u64>().unwrap();
    let said = match words[0] {
        "download" => download(number(1) as u16, number(2)),
        "share" => share(number(1) as u16, number(2) as usize, number(3)),
        "ping-pong" => ping_pong(number(1) as u16, number(2) as u16),
        _ => panic!("{role}"),
    };
    fs::write(std::env::var("EXEC_SAYS").unwrap(), said).unwrap();
}

fn ask(host: &str, port: u16, bytes: u64) -> TcpStream {
    let mut stream = TcpStream::connect((host, port)).unwrap();
    stream.write_all(format!("{bytes}\n").as_bytes()).unwrap();
    stream
}

/// The rate of the last three quarters of a download, Mb/s.
fn download(port: u16, bytes: u64) -> String {
    let mut stream = ask("server", port, bytes);
    let mut buffer = vec![0; 1 << 16];
    let (mut got, mut quarter) = (0u64, None);
    while got < bytes {
        let len = stream.read(&mut buffer).unwrap();
        assert!(len > 0, "the connection ended early");
        got += len as u64;
        if got >= bytes / 4 {
            quarter.get_or_insert((got, Instant::now()));
        }
    }
    let (before, since) = quarter.unwrap();
    format!("mbps={}", (got - before) as f64 * 8e-6 / since.elapsed().as_secs_f64())
}

/// What each of several downloads at a time gets after a third of the time, Mb/s.
fn share(port: u16, flows: usize, seconds: u64) -> String {
    let end = Instant::now() + Duration::from_secs(seconds);
    let begin = Instant::now() + Duration::from_secs(seconds) / 3;
    let count = move |i: usize| {
        let mut stream = ask(&format!("s.{}", i + 1), port, 1 << 40);
        stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let (mut buffer, mut got) = (vec![0; 1 << 16], 0);
        while Instant::now() < end {
            let len = stream.read(&mut buffer).unwrap_or(0);
            if Instant::now() >= begin {
                got += len;
            }
        }
        got as f64 * 8e-6 / (end - begin).as_secs_f64()
    };
    let threads: Vec<_> = (0..flows).map(|i| std::thread::spawn(move || count(i))).collect();
    let rates =
        threads.into_iter().enumerate().map(|(i, thread)| format!("flow{i}={}", thread.join().unwrap()));
    rates.collect::<Vec<_>>().join("\n")
}

/// Median round trips of a line over TCP and of a datagram, ms.
fn ping_pong(tcp: u16, udp: u16) -> String {
    let mut stream = TcpStream::connect(("server", tcp)).unwrap();
    stream.set_nodelay(true).unwrap();
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect(("server", udp)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let median = |trip: &mut dyn FnMut()| {
        let mut times: Vec<f64> = (0..31)
            .map(|_| {
                let sent = Instant::now();
                trip();
                sent.elapsed().as_secs_f64() * 1e3
            })
            .collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let mut buffer = [0; 64];
    let line = median(&mut || {
        stream.write_all(b"ping\n").unwrap();
        stream.read_exact(&mut buffer[..5]).unwrap();
    });
    let datagram = median(&mut || {
        socket.send(b"a question like a resolver's").unwrap();
        socket.recv(&mut buffer).unwrap();
    });
    format!("tcp={line}\nudp={datagram}")
}

/// What a role said, and what `tollway` said of it.
struct Ran {
    said: HashMap<String, f64>,
    report: Value,
}

impl Ran {
    /// The link that came out of the file under this name.
    fn link(&self, name: &str) -> &Value {
        let links = self.report["links"].as_array().unwrap();
        links.iter().find(|link| link["link"] == name).unwrap_or_else(|| panic!("{:#}", self.report))
    }

    /// Whether figures of real time mean anything: the emulator was on time.
    fn punctual(&self, what: &str) -> bool {
        let late = self.report["lateness_us"]["p99"].as_f64().unwrap();
        let punctual = self.report["kept_up"] == true && late < 250.0;
        if !punctual {
            eprintln!(
                "NOT CHECKED: {what}: this machine was too busy, the emulator {late:.0} µs late (99 %)"
            );
        }
        punctual
    }

    /// Every packet is accounted for.
    fn conserved(&self) {
        for flow in self.report["flows"].as_array().unwrap() {
            let count = |key: &str| flow[key].as_u64().unwrap();
            let where_to = count("delivered_packets") + count("lost_packets") + count("in_flight");
            assert_eq!(count("packets"), where_to, "{flow:#}");
        }
        let total = |of: &str, key: &str| -> u64 {
            self.report[of].as_array().unwrap().iter().map(|entry| entry[key].as_u64().unwrap()).sum()
        };
        let drops = |link: &Value| -> u64 {
            link["drops"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum()
        };
        let by_links: u64 = self.report["links"].as_array().unwrap().iter().map(drops).sum();
        let refused = self.report["refused_by_kernel"].as_u64().unwrap();
        assert_eq!(total("flows", "lost_packets"), by_links + refused, "every loss has a cause");
    }
}

/// Runs this executable in `role` over a network.
fn exec(name: &str, network: &[&str], role: &str) -> Ran {
    let says = folder(name).join("said");
    let me = std::env::current_exe().unwrap();
    let program = [me.to_str().unwrap(), "--exact", "role", "--nocapture"];
    let arguments = [&["exec", "--json"], network, &["--"], &program].concat();
    let output = tollway(&arguments).env("EXEC_ROLE", role).env("EXEC_SAYS", &says).output().unwrap();
    assert!(output.status.success(), "{}\n{}", text(&output.stderr), text(&output.stdout));
    let said = fs::read_to_string(says).unwrap();
    let number =
        |line: &str| line.split_once('=').map(|(key, value)| (key.to_owned(), value.parse().unwrap()));
    let ran = Ran {
        said: said.lines().filter_map(number).collect(),
        report: serde_json::from_slice(&output.stdout).expect("--json is JSON and nothing else"),
    };
    ran.conserved();
    ran
}

fn within(measured: f64, expected: f64, share: f64, what: &str) {
    assert!((measured / expected - 1.0).abs() <= share, "{what}: {measured} instead of {expected}");
}

/// A recording of 50 opportunities in every three milliseconds: 200 Mb/s.
fn trace(dir: &Path, per_three_ms: usize) -> PathBuf {
    let line = |i: usize| format!("{}\n", 1 + i * 3 / per_three_ms);
    let path = dir.join("steady.trace");
    fs::write(&path, (0..per_three_ms).map(line).collect::<String>()).unwrap();
    path
}

#[test]
fn the_exit_status_is_the_program_s() {
    if !namespaces() {
        return;
    }
    let status = |arguments: &[&str]| -> Option<i32> {
        tollway(&[&["exec", "--link", "10Mbps 1ms", "-q"], arguments].concat())
            .output()
            .unwrap()
            .status
            .code()
    };
    assert_eq!(status(&["--", "sh", "-c", "exit 7"]), Some(7));
    assert_eq!(status(&["--", "sh", "-c", "kill -TERM $$"]), Some(128 + 15));
    assert_eq!(status(&["--timeout", "0.2", "--", "sleep", "60"]), Some(124));
    assert_eq!(status(&["--set", "link.down.law=nonsense", "--", "true"]), Some(2));
    let output = tollway(&["exec", "--link", "10Mbsp", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("`10Mbsp`"), "{}", text(&output.stderr));
}

#[test]
fn a_signal_reaches_the_program() {
    if !namespaces() {
        return;
    }
    let ready = folder("signal").join("ready");
    let script = format!("trap 'exit 9' INT; touch {}; while :; do sleep 0.05; done", ready.display());
    let child = tollway(&["exec", "--link", "10Mbps", "-q", "--", "sh", "-c", &script]).spawn().unwrap();
    while !ready.exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(9));
}

#[test]
fn names_resolve_inside_and_nothing_leads_outside() {
    if !namespaces() {
        return;
    }
    let script = "cat /etc/hosts; ! getent hosts example.com; cat /proc/net/route | wc -l";
    let output = tollway(&["exec", "--link", "10Mbps", "-q", "--", "sh", "-c", script]).output().unwrap();
    let said = text(&output.stdout);
    assert!(said.contains("10.77.0.2 server") && said.contains("10.77.0.2 host"), "{said}");
    // The heading, and the network's own.
    assert_eq!(said.lines().last().map(str::trim), Some("2"), "{said}");
}

#[test]
fn downloads_get_the_rate_that_the_link_has() {
    if !namespaces() {
        return;
    }
    let port = serve();
    let trace = trace(&folder("trace-file"), 50);
    let published = port.to_string();
    for (name, link) in [
        ("fifo", "200Mbps 2ms".to_owned()),
        ("fq", "200Mbps 2ms fq_codel".to_owned()),
        ("trace", format!("trace={} 2ms", trace.display())),
    ] {
        let network = ["--link", &link, "--link-up", "200Mbps", "--publish", &published];
        let ran = exec(name, &network, &format!("download {port} 100000000"));
        let down = ran.link("down");
        assert!(down["sent_bytes"].as_u64().unwrap() > 100_000_000);
        let best = down["best_second_mbps"].as_f64().unwrap();
        assert!(best < 200.0 * 1.002, "{name}: {best} Mb/s on a link of 200");
        if ran.punctual(&format!("the rate of a download by {name}")) {
            within(best, 200.0, 0.02, name);
            // What TCP makes of it: 1448 bytes of payload in each packet of 1500.
            within(ran.said["mbps"], 200.0 * 1448.0 / 1500.0, if name == "fq" { 0.06 } else { 0.02 }, name);
        }
    }
}

#[test]
fn round_trips_take_what_the_link_takes() {
    if !namespaces() {
        return;
    }
    let (tcp, udp) = (serve(), serve_datagrams());
    let trace = trace(&folder("ping-trace-file"), 50);
    for (name, link) in [
        ("ping-fifo", "100Mbps 10ms".to_owned()),
        ("ping-fq", "100Mbps 10ms fq_codel".to_owned()),
        ("ping-trace", format!("trace={} 10ms", trace.display())),
    ] {
        let ports = (tcp.to_string(), format!("{udp}/udp"));
        let network = ["--link", &link, "--link-up", "100Mbps", "--publish", &ports.0, "--publish", &ports.1];
        let ran = exec(name, &network, &format!("ping-pong {tcp} {udp}"));
        // By a recording a packet waits for the next whole millisecond.
        let most = if name == "ping-trace" { 21.5 } else { 20.5 };
        for protocol in ["tcp", "udp"] {
            let took = ran.said[protocol];
            assert!(took >= 20.0, "{name}: a round trip over {protocol} in {took} ms");
            if ran.punctual(&format!("round trips over {protocol} by {name}")) {
                assert!(took <= most, "{name}: a round trip over {protocol} in {took} ms");
            }
        }
        let seen = ran.report["flows"].as_array().unwrap();
        assert!(seen.iter().any(|flow| flow["protocol"] == "udp"), "{seen:?}");
    }
}

/// Four servers with round-trip times of 20 to 200 ms behind one bottleneck of 20 Mb/s.
fn four(bottleneck: &str) -> String {
    format!(
        r#"
        name = "four"
        duration = "1 s"
        [node.c]
        [node.r]
        [node.s]
        count = 4
        [link.bottleneck]
        from = "r"
        to = "c"
        delay = "5 ms"
        {bottleneck}
        [link.access]
        from = "s"
        to = "r"
        rate = "1 Gbps"
        delay = {{ first = "5 ms", last = "95 ms" }}
        [flow.f]
        from = "s"
        to = "c"
        law = "cubic"
        "#
    )
}

#[test]
fn four_flows_share_a_link() {
    if !namespaces() {
        return;
    }
    let port = serve();
    let ports: Vec<String> = (1..=4).map(|i| format!("s.{i}:{port}")).collect();
    for (name, bottleneck) in [
        ("four-fifo", "rate = \"20 Mbps\"\nlimit = \"1 BDP\""),
        ("four-fq", "rate = \"20 Mbps\"\nlaw = \"fq-codel\""),
        ("four-trace", "trace = \"steady.trace\"\nlimit = \"1 BDP\""),
    ] {
        let dir = folder(&format!("{name}-file"));
        trace(&dir, 5);
        let file = dir.join("four.toml");
        fs::write(&file, four(bottleneck)).unwrap();
        let mut network = vec![file.to_str().unwrap(), "--node", "c"];
        network.extend(ports.iter().flat_map(|port| ["--publish", port.as_str()]));
        let ran = exec(name, &network, &format!("share {port} 4 9"));
        let best = ran.link("bottleneck")["best_second_mbps"].as_f64().unwrap();
        assert!(best < 20.0 * 1.005, "{name}: {best}");
        if ran.punctual(&format!("the shares of four flows by {name}")) {
            within(best, 20.0, 0.02, name);
            let rates: Vec<f64> = ran.said.values().copied().collect();
            let (sum, squares) =
                (rates.iter().sum::<f64>(), rates.iter().map(|rate| rate * rate).sum::<f64>());
            let jain = sum * sum / (4.0 * squares);
            if name == "four-fq" {
                assert!(jain >= 0.98, "{rates:?}");
            }
        }
    }
}

#[test]
fn an_ordinary_user_needs_no_privilege() {
    if !namespaces() {
        return;
    }
    let id = |what: &str| text(&Command::new("id").arg(what).output().unwrap().stdout).trim().to_owned();
    let mut command = tollway(&["exec", "--link", "10Mbps 1ms", "--json", "--", "id", "-u"]);
    if id("-u") == "0" {
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("SKIPPED: nobody else can run this test's command: {error}");
            return;
        }
    };
    let said = text(&output.stderr);
    if said.contains("does not let you make network namespaces") {
        eprintln!("SKIPPED: {said}");
        return;
    }
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["rootless"], true);
    // Who it was outside it is inside.
    let expected = if id("-u") == "0" { NOBODY.to_string() } else { id("-u") };
    assert_eq!(said.trim(), expected);
}

#[test]
fn servers_run_at_their_nodes_and_end_with_the_run() {
    if !namespaces() {
        return;
    }
    let dir = folder("serve");
    let pid = dir.join("pid");
    let server = format!("echo $$ > {}; sleep 600", pid.display());
    let output =
        tollway(&["exec", "--link", "10Mbps 1ms", "-q", "--serve", &server, "--", "true"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let pid = fs::read_to_string(pid).unwrap();
    assert!(!Path::new("/proc").join(pid.trim()).exists(), "the server is gone");
}

#[test]
fn mahimahi_s_shells_and_captures() {
    if !namespaces() {
        return;
    }
    let (tcp, udp) = (serve(), serve_datagrams());
    let dir = folder("mahimahi");
    let trace = trace(&dir, 50);
    let shells = format!("mm-delay 10 mm-link {0} {0}", trace.display());
    let pcap = dir.join("program.pcap");
    let ports = (tcp.to_string(), format!("{udp}/udp"));
    let network = [
        "--mahimahi",
        &shells,
        "--publish",
        &ports.0,
        "--publish",
        &ports.1,
        "--pcap",
        pcap.to_str().unwrap(),
        "--out",
        dir.to_str().unwrap(),
    ];
    let ran = exec("mahimahi-role", &network, &format!("ping-pong {tcp} {udp}"));
    assert!(ran.said["tcp"] >= 20.0 && ran.said["udp"] >= 20.0, "{:?}", ran.said);
    // As many packets as flows saw at the program, sent and received.
    let mut capture = &fs::read(pcap).unwrap()[24..];
    let mut packets = 0;
    while let Some(header) = capture.first_chunk::<16>() {
        let len = u32::from_ne_bytes(header[8..12].try_into().unwrap()) as usize;
        assert_eq!(capture[16] >> 4, 4, "an IPv4 packet");
        capture = &capture[16 + len..];
        packets += 1;
    }
    let flows = ran.report["flows"].as_array().unwrap();
    let seen = |flow: &Value| {
        flow[if flow["source"] == "10.77.0.1" { "packets" } else { "delivered_packets" }].as_u64()
    };
    assert_eq!(packets, flows.iter().map(|flow| seen(flow).unwrap()).sum::<u64>());
    for name in ["exec.html", "exec.png", "links.csv", "flows.csv"] {
        assert!(fs::metadata(dir.join(name)).unwrap().len() > 100, "{name}");
    }
}

#[test]
fn what_a_killed_run_leaves_is_cleaned_away() {
    if !namespaces() {
        return;
    }
    let pid = folder("clean").join("pid");
    // A grandchild that outlives its parent.
    let script = format!("sh -c 'echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600' & wait", pid.display());
    let mut child = tollway(&["exec", "--link", "10Mbps", "-q", "--", "sh", "-c", &script]).spawn().unwrap();
    while !pid.exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let left = Path::new("/proc").join(fs::read_to_string(&pid).unwrap().trim());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(left.exists());
    let output = tollway(&["clean"]).output().unwrap();
    assert!(output.status.success() && text(&output.stdout).contains("sleep"), "{}", text(&output.stdout));
    let gone = || fs::read_to_string(left.join("stat")).map_or(true, |stat| stat.contains(") Z "));
    while !gone() {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The user who has nothing.
const NOBODY: u32 = 65534;
