//! `tollway shape` and `tollway router` over links with round trips. A program at their head sends
//! all it can to four hosts, by the kernel's TCP with its default congestion control, under an
//! agent or through a router.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::process::Stdio;
use std::time::Instant;

use tollway_shape::Reach;

use super::*;

const PORT: u16 = 9000;

#[test]
fn four_round_trips_have_equal_parts_of_the_rate() {
    let _measures = common::beside();
    common::measured(|| {
        let Some(ran) = shaped("shaped-four", SHAPE, FOUR, [0; 4], 5) else { return };
        if !ran.punctual("equal parts") {
            return;
        }
        let (rates, sum, jain) = figures(&ran);
        assert!(jain > 0.99, "{rates:?}");
        assert!((0.95 * 16.0..=1.02 * 16.0).contains(&sum), "{rates:?}");
    });
}

#[test]
fn four_round_trips_through_a_router_have_equal_parts_of_the_rate() {
    let _measures = common::beside();
    common::measured(|| {
        // The window of 600 ms takes its time: after a loss CUBIC needs some 10 s to be where it was.
        let policy = format!("{ROUTER}[aggregate.all]\nto-port = 9000\nrate = \"100 Mbps\"\n");
        let Some(ran) = shaped("routed-four", &policy, FOUR, [0; 4], 60) else { return };
        let (rates, sum, jain) = figures(&ran);
        eprintln!("{rates:?}, sum {sum:.2} Mb/s, index {jain:.4}");
        if !ran.punctual("equal parts behind a router") {
            return;
        }
        assert!(jain >= 0.99, "{rates:?}");
        assert!((97.0..=102.0).contains(&sum), "{rates:?}");
    });
}

/// The policy and the link's law are one text in both files. The simulated senders are modelled on
/// the kernel's.
#[test]
fn policing_at_a_router_agrees_with_the_simulation_of_the_same_policy() {
    let _measures = common::beside();
    common::measured(|| {
        let depth = "depth = \"600 kB\"\ndepths = \"equal\"\n";
        // By marks: packets above the rate fill the link's rest, whose queue drops more of them.
        let red = [
            ("red.min-threshold", "50packets"),
            ("red.max-threshold", "150packets"),
            ("red.in-profile", "1.5"),
            ("limit", "500packets"),
        ];
        for (action, uplink, law, constants) in
            [("drop", 200, "fq-codel", &[][..]), ("mark", 20, "red", &red)]
        {
            let policy = format!("rate = \"16 Mbps\"\naction = \"{action}\"\n{depth}");
            let words: String = constants.iter().map(|(key, value)| format!(" {key}={value}")).collect();
            let router = format!(
                "device = \"tollway\"\nup = \"{uplink} Mbps\"\nlaw = \"{law}{words}\"\n\
             [aggregate.all]\nto-port = 9000\n{policy}"
            );
            let Some(ran) = shaped("routed-policed", &router, FOUR, [0; 4], 10) else { return };
            let mut text =
                star(FOUR).replace("1 s", "40 s").replace("from = \"server\"", "from = \"router\"");
            text += &format!(
                "[node.router]\n[link.up]\nfrom = \"server\"\nto = \"router\"\nrate = \"{uplink} Mbps\"\nlaw = \"{law}\"\n"
            );
            for (key, value) in constants {
                let value = value.parse::<f64>().map_or(format!("\"{value}\""), |_| (*value).to_owned());
                text += &format!("{key} = {value}\n");
            }
            text += &format!("[aggregate.all]\nfrom = \"server\"\n{policy}");
            for host in 0..4 {
                text += &format!(
                    "[flow.f{host}]\nfrom = \"server\"\nto = \"h{host}\"\nlaw = \"cubic\"\ntransport = \"kernel\"\n\
                 cubic = {{ hystart = \"linux\" }}\n"
                );
            }
            let file = folder("routed-policed-simulated").join("star.toml");
            fs::write(&file, text).unwrap();
            let output = tollway(&["run", file.to_str().unwrap(), "--json", "--quiet"]).output().unwrap();
            assert!(output.status.success(), "{}", super::text(&output.stderr));
            let simulated: Value = serde_json::from_slice(&output.stdout).unwrap();
            let flows = simulated["flows"].as_array().unwrap().iter();
            let sum: f64 = flows.map(|flow| flow["rate_mbps"].as_f64().unwrap()).sum();
            let (rates, live, _) = figures(&ran);
            eprintln!("{action}: {rates:?}, sum {live:.2} beside {sum:.2} Mb/s simulated");
            if !ran.punctual("policing") {
                return;
            }
            assert!((live / sum - 1.0).abs() < 0.1, "{action}: {rates:?} beside {sum} Mb/s simulated");
        }
    });
}

#[test]
fn what_a_receiver_leaves_the_others_share() {
    let _measures = common::beside();
    common::measured(|| {
        // The last receiver reads 1 Mb/s.
        let Some(ran) = shaped("shaped-receiver", SHAPE, [25; 4], [0, 0, 0, 125_000], 5) else { return };
        if !ran.punctual("what a receiver leaves") {
            return;
        }
        let rates = rates(&ran);
        assert!((0.8..=1.3).contains(&rates[3]), "{rates:?}");
        let fair = (16.0 - rates[3]) / 3.0;
        assert!(rates[..3].iter().all(|rate| (rate / fair - 1.0).abs() < 0.05), "{rates:?}");
    });
}

/// The rates, their sum and Jain's index of them.
fn figures(ran: &Ran) -> (Vec<f64>, f64, f64) {
    let rates = rates(ran);
    let sum: f64 = rates.iter().sum();
    let jain = sum * sum / (4.0 * rates.iter().map(|rate| rate * rate).sum::<f64>());
    (rates, sum, jain)
}

/// Rates received from each host, on the wire, in Mb/s.
fn rates(ran: &Ran) -> Vec<f64> {
    (0..4).map(|host| ran.said[&format!("mbps.{host}")]).collect()
}

/// Sends to four hosts that are `delays` milliseconds away, under `policies`, and measures after
/// `warm` seconds. Each reads `reads` bytes per second, or all if 0. Returns none if the machine
/// can't run the test.
fn shaped(name: &str, policies: &str, delays: [u32; 4], reads: [u32; 4], warm: u64) -> Option<Ran> {
    if !namespaces() {
        return None;
    }
    if Reach::find() == Reach::Children {
        eprintln!("SKIPPED: this system's Yama module lets nobody but root reach the test's sockets");
        return None;
    }
    let dir = folder(name);
    let file = dir.join("star.toml");
    fs::write(&file, star(delays)).unwrap();
    fs::write(dir.join(POLICIES), policies).unwrap();
    let me = std::env::current_exe().unwrap();
    let servers = reads.iter().enumerate().map(|(host, reads)| {
        let counts = dir.join(format!("h{host}"));
        format!(
            "h{host}=env EXEC_READS={reads} EXEC_COUNTS={} {} --exact exec::shaped::reads --nocapture",
            counts.display(),
            me.display()
        )
    });
    let servers: Vec<String> = servers.collect();
    let mut network = vec![file.to_str().unwrap(), "--node", "server"];
    // A slow reader fills its buffer first; the others have room for the rate.
    let slow = reads.iter().any(|&reads| reads > 0);
    let buffers = if slow { "4096 131072 1048576" } else { "4096 131072 33554432" };
    let (receive, send) = (format!("net.ipv4.tcp_rmem={buffers}"), format!("net.ipv4.tcp_wmem={buffers}"));
    network.extend(["--sysctl", &*receive, "--sysctl", &*send]);
    servers.iter().for_each(|server| network.extend(["--serve", server]));
    Some(exec(&format!("{name}-role"), &network, &format!("shaped {} {warm}", dir.display())))
}

/// A server and four hosts behind links of these delays.
fn star(delays: [u32; 4]) -> String {
    let mut text = "name = \"star\"\nduration = \"1 s\"\n[node.server]\n".to_owned();
    for (host, delay) in delays.iter().enumerate() {
        text += &format!(
            "[node.h{host}]\n[link.h{host}]\nfrom = \"server\"\nto = \"h{host}\"\nrate = \"400 Mbps\"\n\
             delay = \"{delay} ms\"\nlimit = \"8 MiB\"\n"
        );
    }
    text
}

/// A receiver: reads at the rate of its environment. It is no test.
#[test]
fn reads() {
    let Ok(rate) = std::env::var("EXEC_READS") else { return };
    let rate: usize = rate.parse().unwrap();
    let counts = std::env::var("EXEC_COUNTS").unwrap();
    std::thread::spawn(move || count(&counts));
    let (mut stream, _) = TcpListener::bind(("0.0.0.0", PORT)).unwrap().accept().unwrap();
    let mut buffer = vec![0; if rate > 0 { rate / 20 } else { 1 << 16 }];
    while stream.read(&mut buffer).is_ok_and(|len| len > 0) {
        if rate > 0 {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// The sender: sends to all hosts under an agent or through a router, and prints the rates.
pub(super) fn send(dir: &Path, warm: u64) -> String {
    let (policies, socket) = (dir.join(POLICIES), dir.join("run/shape.sock"));
    let routed = fs::read_to_string(&policies).unwrap().contains("device");
    let product = if routed { ["router", "--config"] } else { ["shape", "--policy"] };
    let files = [policies.to_str().unwrap(), "--socket", socket.to_str().unwrap()];
    let words = [&product[..], &files].concat();
    let mut agent = tollway(&words).stderr(Stdio::null()).spawn().unwrap();
    while !socket.exists() {
        assert!(agent.try_wait().unwrap().is_none(), "the agent ended");
        std::thread::sleep(Duration::from_millis(10));
    }
    for host in 0..4 {
        let address = (format!("h{host}"), PORT).to_socket_addrs().unwrap().next().unwrap();
        let mut stream = connect(address);
        std::thread::spawn(move || while stream.write_all(&[0; 1 << 14]).is_ok() {});
    }
    std::thread::sleep(Duration::from_secs(warm));
    let arrived = || [0, 1, 2, 3].map(|host| arrived(dir, host));
    let before = arrived();
    std::thread::sleep(SPAN);
    let after = arrived();
    agent.kill().unwrap();
    agent.wait().unwrap();
    let rate = |old: (f64, f64), new: (f64, f64)| (new.1 - old.1) * 8e-6 / (new.0 - old.0);
    (0..4).map(|host| format!("mbps.{host}={}\n", rate(before[host], after[host]))).collect()
}

/// Writes the time and the bytes that have arrived here into a file, every 10 ms.
fn count(file: &str) {
    let part = format!("{file}.part");
    loop {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        let table = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        let line = table.lines().find_map(|line| line.trim().strip_prefix("tollway:")).unwrap();
        let bytes = line.split_whitespace().next().unwrap();
        fs::write(&part, format!("{now} {bytes}")).unwrap();
        fs::rename(&part, file).unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The last time at which a host has counted, in s, and the bytes that had arrived there.
fn arrived(dir: &Path, host: usize) -> (f64, f64) {
    let text = fs::read_to_string(dir.join(format!("h{host}"))).unwrap();
    let (time, bytes) = text.trim().split_once(' ').unwrap();
    (time.parse().unwrap(), bytes.parse().unwrap())
}

/// Connects as soon as the other end listens.
fn connect(address: std::net::SocketAddr) -> TcpStream {
    let begin = Instant::now();
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => return stream,
            Err(error) => assert!(begin.elapsed() < Duration::from_secs(30), "{address}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The file of policies, and its content for each product; the router's lacks its tenants.
const POLICIES: &str = "policies.toml";
const SHAPE: &str = "[link]\nrate = \"16 Mbps\"\n[aggregate.all]\nto-port = 9000\n";
const ROUTER: &str = "device = \"tollway\"\nup = \"200 Mbps\"\n";
/// One-way delays in milliseconds.
const FOUR: [u32; 4] = [25, 150, 150, 300];
/// Time of the measurement.
const SPAN: Duration = Duration::from_secs(8);
