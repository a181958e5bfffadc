//! `tollway shape` over links with round trips. A program at their head sends all it can to four
//! hosts, by the kernel's TCP with its default congestion control, under an agent.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::process::Stdio;
use std::time::Instant;

use tollway_shape::{Kernel, Reach, SockDiag};

use super::*;

const PORT: u16 = 9000;

#[test]
fn four_round_trips_have_equal_parts_of_the_rate() {
    let Some(ran) = shaped("shaped-four", [25, 150, 150, 300], [0; 4], 16.0) else { return };
    if !ran.punctual("equal parts") {
        return;
    }
    let rates = rates(&ran);
    let sum: f64 = rates.iter().sum();
    let jain = sum * sum / (4.0 * rates.iter().map(|rate| rate * rate).sum::<f64>());
    assert!(jain > 0.99, "{rates:?}");
    assert!((0.95 * 16.0..=1.02 * 16.0).contains(&sum), "{rates:?}");
}

#[test]
fn what_a_receiver_leaves_the_others_share() {
    // The last receiver reads 1 Mb/s.
    let Some(ran) = shaped("shaped-receiver", [25; 4], [0, 0, 0, 125_000], 16.0) else { return };
    if !ran.punctual("what a receiver leaves") {
        return;
    }
    let rates = rates(&ran);
    assert!((0.8..=1.3).contains(&rates[3]), "{rates:?}");
    let fair = (16.0 - rates[3]) / 3.0;
    assert!(rates[..3].iter().all(|rate| (rate / fair - 1.0).abs() < 0.05), "{rates:?}");
}

/// Rates received from each host, on the wire, in Mb/s.
fn rates(ran: &Ran) -> Vec<f64> {
    (0..4).map(|host| ran.said[&format!("mbps.{host}")]).collect()
}

/// Sends to four hosts that are `delays` milliseconds away. Each reads `reads` bytes per second, or
/// all if 0. Returns none if the machine can't run the test.
fn shaped(name: &str, delays: [u32; 4], reads: [u32; 4], mbps: f64) -> Option<Ran> {
    if !namespaces() {
        return None;
    }
    if Reach::find() == Reach::Children {
        eprintln!("SKIPPED: this system's Yama module lets nobody but root reach the test's sockets");
        return None;
    }
    let dir = folder(name);
    let star = dir.join("star.toml");
    let mut text = "name = \"star\"\nduration = \"1 s\"\n[node.server]\n".to_owned();
    for (host, delay) in delays.iter().enumerate() {
        text += &format!(
            "[node.h{host}]\n[link.h{host}]\nfrom = \"server\"\nto = \"h{host}\"\nrate = \"80 Mbps\"\ndelay = \"{delay} ms\"\nlimit = \"8 MiB\"\n"
        );
    }
    fs::write(&star, text).unwrap();
    let me = std::env::current_exe().unwrap();
    let servers = reads.iter().enumerate().map(|(host, reads)| {
        format!("h{host}=env EXEC_READS={reads} {} --exact exec::shaped::reads --nocapture", me.display())
    });
    let servers: Vec<String> = servers.collect();
    let mut network = vec![star.to_str().unwrap(), "--node", "server"];
    // A small receive buffer, since a slow reader fills its buffer first.
    network.extend(["--sysctl", "net.ipv4.tcp_rmem=4096 131072 1048576"]);
    servers.iter().for_each(|server| network.extend(["--serve", server]));
    Some(exec(&format!("{name}-role"), &network, &format!("shaped {} {mbps}", dir.display())))
}

/// A receiver: reads at the rate of its environment. It is no test.
#[test]
fn reads() {
    let Ok(rate) = std::env::var("EXEC_READS") else { return };
    let rate: usize = rate.parse().unwrap();
    let (mut stream, _) = TcpListener::bind(("0.0.0.0", PORT)).unwrap().accept().unwrap();
    let mut buffer = vec![0; if rate > 0 { rate / 20 } else { 1 << 16 }];
    while stream.read(&mut buffer).is_ok_and(|len| len > 0) {
        if rate > 0 {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// The sender: sends to all hosts under an agent, and prints the rates.
pub(super) fn send(dir: &Path, mbps: f64) -> String {
    let (policies, socket) = (dir.join("policies.toml"), dir.join("run/shape.sock"));
    fs::write(&policies, format!("[link]\nrate = \"{mbps} Mbps\"\n[aggregate.all]\nto-port = {PORT}\n"))
        .unwrap();
    let words = ["shape", "--policy", policies.to_str().unwrap(), "--socket", socket.to_str().unwrap()];
    let mut agent = tollway(&words).stderr(Stdio::null()).spawn().unwrap();
    while !socket.exists() {
        assert!(agent.try_wait().unwrap().is_none(), "the agent ended");
        std::thread::sleep(Duration::from_millis(10));
    }
    let remotes: Vec<_> = (0..4)
        .map(|host| {
            let address = (format!("h{host}"), PORT).to_socket_addrs().unwrap().next().unwrap();
            let mut stream = connect(address);
            std::thread::spawn(move || while stream.write_all(&[0; 1 << 14]).is_ok() {});
            address
        })
        .collect();
    let mut kernel = SockDiag::new().unwrap();
    let (mut before, mut after) = (Vec::new(), Vec::new());
    std::thread::sleep(WARM);
    kernel.connections(&mut before).unwrap();
    std::thread::sleep(SPAN);
    kernel.connections(&mut after).unwrap();
    agent.kill().unwrap();
    agent.wait().unwrap();
    let said = remotes.iter().enumerate().map(|(host, &remote)| {
        let [old, new] = [&before, &after].map(|all| all.iter().find(|seen| seen.remote == remote).unwrap());
        let headers = u64::from(new.segments - old.segments) * u64::from(new.headers(0));
        let bytes = new.sent - old.sent + headers;
        format!("mbps.{host}={}\n", bytes as f64 * 8e-6 / (new.at - old.at).as_secs_f64())
    });
    said.collect()
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

/// Time until windows of the longest round trip are open; and time of the measurement.
const WARM: Duration = Duration::from_secs(5);
const SPAN: Duration = Duration::from_secs(4);
