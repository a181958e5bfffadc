//! Common programs over common networks: curl, iperf3, WebSocket and DNS, with a drop-tail queue,
//! FQ-CoDel and a trace.

use std::io::{BufReader, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::time::Instant;

use super::servers::{ACCEPT, NONCE, read_head};
use super::*;
use crate::common::{alone, beside};

/// The book's recipes, unchanged: each succeeds, and the first one's report has the figures of the
/// page.
#[test]
fn the_book_s_recipes_run() {
    if !namespaces() || !["curl", "iperf3", "jq", "python3", "bash"].into_iter().all(installed) {
        return;
    }
    let _beside = beside();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let dir = folder("recipes");
    for name in ["README.md", "scenarios"] {
        std::os::unix::fs::symlink(fs::canonicalize(root.join(name)).unwrap(), dir.join(name)).unwrap();
    }
    let book = fs::read_to_string(root.join("docs/src/exec.md")).unwrap();
    let (_, recipes) = book.split_once("## Three recipes").unwrap();
    let (recipes, _) = recipes.split_once("\n## ").unwrap();
    let command = Path::new(env!("CARGO_BIN_EXE_tollway")).parent().unwrap();
    let path = std::env::join_paths(
        [command.to_owned()].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    let path = path.unwrap();
    let blocks: Vec<&str> =
        recipes.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap()).collect();
    assert_eq!(blocks.len(), 3);
    // In parallel: most of their time is waiting.
    let run = |block: &str| {
        let mut command = Command::new("bash");
        command
            .args(["-e", "-o", "pipefail", "-c", block])
            .env("PATH", &path)
            .current_dir(&dir)
            .output()
            .unwrap()
    };
    let outputs = std::thread::scope(|scope| {
        let threads: Vec<_> = blocks.iter().map(|block| scope.spawn(|| run(block))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    for (block, output) in blocks.iter().zip(&outputs) {
        assert!(output.status.success(), "{block}\n{}\n{}", text(&output.stdout), text(&output.stderr));
        assert!(!output.stdout.is_empty(), "{block}");
    }
    // With ECN packets are marked.
    let marks = text(&outputs[2].stdout);
    assert_eq!(marks.matches("\"marks\":").count(), 2, "{marks}");
    let marked = marks.matches("\"marks\": 0,").count() == 1;
    if !marked && overloaded() {
        eprintln!("NOT CHECKED: this machine was too busy for the recipes to show what they show: {marks}");
    } else {
        assert!(marked, "{marks}");
    }
}

/// Runs until `wrong` finds no mistake, at most three times: other work on the machine only lowers
/// rates. If the emulator was late or the machine overloaded, nothing is asserted, and the test
/// prints `NOT CHECKED`.
fn again(what: &str, mut run: impl FnMut() -> Ran, wrong: impl Fn(&Ran) -> Option<String>) {
    for left in [2, 1, 0] {
        let ran = run();
        let Some(wrong) = wrong(&ran) else { return };
        if !ran.punctual(what) {
            return;
        }
        if left == 0 && overloaded() {
            eprintln!("NOT CHECKED: {what}: this machine was too busy for the programs themselves: {wrong}");
            return;
        }
        assert!(left > 0, "{what}: {wrong}");
        eprintln!("AGAIN: {what}: {wrong}");
    }
}

/// True if at least twice as many threads are runnable as there are processors.
pub(super) fn overloaded() -> bool {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = load.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0);
    load > 2.0 * std::thread::available_parallelism().map_or(1, usize::from) as f64
}

/// Sends one datagram to the node at the other end.
pub(super) fn knock() -> String {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.send_to(b"anybody there?", "10.77.0.2:9").unwrap();
    // The link's record ends with the program.
    std::thread::sleep(Duration::from_millis(100));
    String::new()
}

/// Listens on a port until the file `go` exists, then fails.
pub(super) fn listen(port: u16, go: &Path) -> String {
    let _listener = std::net::TcpListener::bind(("0.0.0.0", port)).unwrap();
    while !go.exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    fs::write(go.with_extension("done"), "").unwrap();
    std::process::exit(3);
}

/// A message if `measured` differs from `expected` by more than the fraction `share`.
fn off(what: &str, measured: f64, expected: f64, share: f64) -> Option<String> {
    let is_off = (measured / expected - 1.0).abs() > share || measured.is_nan();
    is_off.then(|| format!("{what}: {measured} instead of {expected}"))
}

/// True if a program is installed; else prints `NOT INSTALLED`.
pub(super) fn installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("NOT INSTALLED: {program}; a client of this test's own takes its place");
    }
    found
}

/// Requests `bytes` bytes over HTTP.
fn ask(server: &str, bytes: u64) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(server).unwrap();
    write!(stream, "GET /{bytes} HTTP/1.1\r\nHost: server\r\n\r\n").unwrap();
    let mut reader = BufReader::new(stream);
    let head = read_head(&mut reader).unwrap();
    assert_eq!(head[0], "HTTP/1.1 200 OK");
    reader
}

/// A download, with results as curl prints them: bytes per second, and bytes.
pub(super) fn download(server: &str, bytes: u64) -> String {
    let begin = Instant::now();
    let copied = std::io::copy(&mut ask(server, bytes).take(bytes), &mut std::io::sink()).unwrap();
    format!("speed={}\nbytes={copied}", copied as f64 / begin.elapsed().as_secs_f64())
}

/// Rates in Mb/s of several parallel downloads, without the first third of the time.
pub(super) fn share(port: u16, flows: usize, seconds: u64) -> String {
    let end = Instant::now() + Duration::from_secs(seconds);
    let begin = Instant::now() + Duration::from_secs(seconds) / 3;
    let count = move |i: usize| {
        let mut reader = ask(&format!("s.{}:{port}", i + 1), 1 << 40);
        reader.get_ref().set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let (mut buffer, mut got) = (vec![0; 1 << 16], 0);
        while Instant::now() < end {
            let len = reader.read(&mut buffer).unwrap_or(0);
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

/// Round trips of a WebSocket ping and of a DNS query, in ms. Takes the third shortest of 31, since
/// waits for the processor are not the network's.
pub(super) fn ping_pong(tcp: u16, udp: u16) -> String {
    let mut stream = TcpStream::connect(("server", tcp)).unwrap();
    stream.set_nodelay(true).unwrap();
    write!(
        stream,
        "GET /chat HTTP/1.1\r\nHost: server\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {NONCE}\r\n\r\n"
    )
    .unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let head = read_head(&mut reader).unwrap();
    assert!(head[0].contains(" 101 ") && head.iter().any(|line| line.ends_with(ACCEPT)), "{head:?}");

    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect(("server", udp)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let shortest = |trip: &mut dyn FnMut(u8)| {
        let mut times: Vec<f64> = (0..31)
            .map(|i| {
                let sent = Instant::now();
                trip(i);
                sent.elapsed().as_secs_f64() * 1e3
            })
            .collect();
        times.sort_by(f64::total_cmp);
        times[2]
    };
    let web_socket = shortest(&mut |i| {
        let (mask, payload) = ([i, 7, i, 9], [b'p', b'i', b'n', b'g', i]);
        let masked: Vec<u8> =
            payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
        stream.write_all(&[&[0x89, 0x80 + 5], &mask[..], &masked].concat()).unwrap();
        let mut pong = [0; 7];
        reader.read_exact(&mut pong).unwrap();
        assert_eq!(pong, [0x8a, 5, b'p', b'i', b'n', b'g', i]);
    });
    let dns = shortest(&mut |i| {
        socket.send(&question(i)).unwrap();
        let mut answer = [0; 512];
        let len = socket.recv(&mut answer).unwrap();
        assert_eq!((&answer[..4], &answer[len - 4..len]), (&[0, i, 0x81, 0x80][..], &[127, 0, 0, 1][..]));
    });
    format!("websocket={web_socket}\ndns={dns}")
}

/// A query for the address of `host.example`, with recursion desired.
pub(super) fn question(id: u8) -> Vec<u8> {
    let head = [0, id, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    [&head, &b"\x04host\x07example\x00\x00\x01\x00\x01"[..]].concat()
}

/// Sends `questions` queries, each from a new port.
pub(super) fn ports(udp: u16, questions: u64) -> String {
    let answered = (0..questions).take_while(|&i| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket.send_to(&question(i as u8), ("server", udp)).unwrap();
        socket.recv(&mut [0; 512]).is_ok()
    });
    format!("answered={}", answered.count())
}

#[test]
fn curl_gets_the_rate_that_the_link_has() {
    if !namespaces() {
        return;
    }
    let _alone = alone();
    let port = serve(Ipv4Addr::LOCALHOST);
    let trace = trace(&folder("trace-file"), 50);
    let published = port.to_string();
    let curl = format!(
        "curl -sS -o /dev/null -w 'speed=%{{speed_download}}\\nbytes=%{{size_download}}\\n' http://server:{port}/100000000 > $EXEC_SAYS"
    );
    for (name, link) in [
        ("fifo", "200Mbps 2ms".to_owned()),
        ("fq", "200Mbps 2ms fq_codel".to_owned()),
        ("trace", format!("trace={} 2ms", trace.display())),
    ] {
        let network = ["--link", &link, "--link-up", "200Mbps", "--publish", &published];
        let best = |ran: &Ran| ran.link("down")["best_second_mbps"].as_f64().unwrap();
        let run = || {
            let ran = match installed("curl") {
                true => exec_program(name, &network, "", &["sh", "-c", &curl]),
                false => exec(name, &network, &format!("download server:{port} 100000000")),
            };
            assert_eq!(ran.said["bytes"], 1e8);
            assert!(ran.link("down")["sent_bytes"].as_u64().unwrap() > 100_000_000);
            assert!(best(&ran) < 200.0 * 1.002, "{name}: {} Mb/s on a link of 200", best(&ran));
            ran
        };
        // The goodput of TCP: 1448 bytes of payload per packet of 1500. Drops by FQ-CoDel cost a
        // short round trip more.
        let (goodput, share) = (200.0 * 1448.0 / 1500.0, if name == "fq" { 0.06 } else { 0.02 });
        again(&format!("the rate of a download by {name}"), run, |ran| {
            let speed = ran.said["speed"] * 8e-6;
            off("link", best(ran), 200.0, 0.02).or_else(|| off("curl", speed, goodput, share))
        });
    }
}

#[test]
fn round_trips_take_what_the_link_takes() {
    if !namespaces() {
        return;
    }
    let _beside = beside();
    let (tcp, udp) = (serve(Ipv4Addr::LOCALHOST), serve_names(Ipv4Addr::LOCALHOST, 0));
    let trace = trace(&folder("ping-trace-file"), 50);
    for (name, link) in [
        ("ping-fifo", "100Mbps 10ms".to_owned()),
        ("ping-fq", "100Mbps 10ms fq_codel".to_owned()),
        ("ping-trace", format!("trace={} 10ms", trace.display())),
    ] {
        let ports = (tcp.to_string(), format!("{udp}/udp"));
        let network = ["--link", &link, "--link-up", "100Mbps", "--publish", &ports.0, "--publish", &ports.1];
        let run = || {
            let ran = exec(name, &network, &format!("ping-pong {tcp} {udp}"));
            let took: Vec<f64> = ran.said.values().copied().collect();
            assert!(took.iter().all(|&took| took >= 20.0), "{name}: round trips in {took:?} ms");
            let seen = ran.report["flows"].as_array().unwrap();
            assert!(seen.iter().any(|flow| flow["protocol"] == "udp"), "{seen:?}");
            ran
        };
        // On a trace, a packet waits for the next whole millisecond.
        let most = if name == "ping-trace" { 21.5 } else { 20.5 };
        again(&format!("round trips by {name}"), run, |ran| {
            // A round trip contains the emulator's lateness twice.
            let slow = ran.said.iter().find(|(_, took)| **took > most + 2e-3 * ran.late_us());
            slow.map(|(protocol, took)| format!("a round trip over {protocol} in {took} ms"))
        });
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

/// Four parallel downloads by iperf3, each from its own server. Results are the rates after three
/// seconds of nine.
fn iperf3(name: &str, file: &str) -> Ran {
    let dir = folder(&format!("{name}-iperf3"));
    let servers: Vec<String> = (1..=4).map(|i| format!("s.{i}=iperf3 -s -1")).collect();
    let mut network = vec![file, "--node", "c"];
    network.extend(servers.iter().flat_map(|server| ["--serve", server.as_str()]));
    let script = format!(
        "cd {}; touch $EXEC_SAYS; for i in 1 2 3 4; do iperf3 -c s.$i -R -O 3 -t 6 -J > $i & done; wait",
        dir.display()
    );
    let mut ran = exec_program(name, &network, "", &["sh", "-c", &script]);
    for i in 1..=4 {
        let said = fs::read_to_string(dir.join(i.to_string())).unwrap();
        let said: Value = serde_json::from_str(&said).unwrap();
        let rate = said["end"]["sum_received"]["bits_per_second"].as_f64();
        ran.said.insert(format!("flow{i}"), rate.unwrap_or_else(|| panic!("{said:#}")) * 1e-6);
    }
    ran
}

#[test]
fn four_iperf3_share_a_link() {
    if !namespaces() {
        return;
    }
    let _alone = alone();
    let port = serve(Ipv4Addr::LOCALHOST);
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
        let best = |ran: &Ran| ran.link("bottleneck")["best_second_mbps"].as_f64().unwrap();
        let run = || {
            let ran = match installed("iperf3") {
                true => iperf3(name, file.to_str().unwrap()),
                false => exec(name, &network, &format!("share {port} 4 9")),
            };
            assert!(best(&ran) < 20.0 * 1.005, "{name}: {}", best(&ran));
            ran
        };
        again(&format!("the shares of four flows by {name}"), run, |ran| {
            let rates: Vec<f64> = ran.said.values().copied().collect();
            let (sum, squares) =
                (rates.iter().sum::<f64>(), rates.iter().map(|rate| rate * rate).sum::<f64>());
            let jain = sum * sum / (4.0 * squares);
            let unfair = (name == "four-fq" && jain < 0.98).then(|| format!("shares of {rates:?}"));
            off("link", best(ran), 20.0, 0.02).or(unfair)
        });
    }
}
