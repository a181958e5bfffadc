//! `--listen`: connections from outside, which cross the emulated links.

use std::io::{BufRead, BufReader, ErrorKind, Lines, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStderr, Stdio};
use std::time::Instant;

use super::*;

/// A run with one port that leads into its network.
pub(super) struct Listening {
    child: Child,
    at: SocketAddr,
    pub(super) stderr: Lines<BufReader<ChildStderr>>,
}

impl Listening {
    pub(super) fn start(arguments: &[&str]) -> Listening {
        Listening::of(tollway(&[&["exec", "--json", "--timeout", "60"], arguments].concat()))
    }

    fn of(mut command: Command) -> Listening {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = stderr.next().unwrap().unwrap();
        let at = line.strip_prefix("listening at ").expect(&line).split(": ").next().unwrap();
        Listening { at: at.parse().unwrap(), child, stderr }
    }

    pub(super) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.at).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    /// Ends the run as Ctrl-C does. Returns the report, and the lines of standard error.
    pub(super) fn end(self) -> (Value, String) {
        Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap();
        let said = self.stderr.map_while(Result::ok).collect::<Vec<_>>().join("\n");
        let output = self.child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{said}");
        (serde_json::from_slice(&output.stdout).expect("a report"), said)
    }
}

#[test]
fn connections_from_outside_cross_the_links() {
    if !namespaces() {
        return;
    }
    let port = serve(Ipv4Addr::LOCALHOST).to_string();
    let to = format!("0=server:{port}");
    let network = ["exec", "--json", "--link", "50Mbps 20ms", "--publish", &port, "--serve", "sleep 1"];
    let root = text(&Command::new("id").arg("-u").output().unwrap().stdout).trim() == "0";
    for nobody in [false, true] {
        let with = |arguments: &[&str]| {
            let mut command = tollway(&[&network[..], arguments].concat());
            if nobody && root {
                command.uid(NOBODY).gid(NOBODY).current_dir("/");
            }
            command
        };
        if nobody && !with(&["--", "true"]).output().is_ok_and(|output| output.status.success()) {
            eprintln!("SKIPPED: nobody else can run this test's command");
            continue;
        }
        let run = Listening::of(with(&["--timeout", "60", "--listen", &to]));
        let begin = Instant::now();
        let mut stream = run.connect();
        write!(stream, "GET /100000 HTTP/1.1\r\nHost: server\r\n\r\n").unwrap();
        let mut bytes = vec![0; 100_000];
        stream.read_exact(&mut bytes).unwrap();
        // A handshake, then a request and its answer.
        assert!(begin.elapsed() >= Duration::from_millis(80));
        drop(stream);
        let (report, said) = run.end();
        assert_eq!(report["rootless"], nobody || !root, "{said}");
        assert_eq!(report["exit_status"], 0);
        let listened = &report["listened"][0];
        assert_eq!((&listened["from"], &listened["node"]), (&"program".into(), &"server".into()));
        assert_eq!((listened["connections"].as_u64(), listened["refused"].as_u64()), (Some(1), Some(0)));
        let flows = report["flows"].as_array().unwrap();
        let answer = flows.iter().find(|flow| flow["source_port"].as_u64() == port.parse().ok()).unwrap();
        assert!(answer["payload_bytes"].as_u64().unwrap() >= 100_000, "{answer:#}");
        assert!(answer["delay_min_ms"].as_f64().unwrap() >= 20.0, "{answer:#}");
    }
}

#[test]
fn a_connection_that_the_node_refuses_is_reset_and_counted() {
    if !namespaces() {
        return;
    }
    // The same number at both ends: the port must not be published to itself.
    let port = common::free_port();
    let to = format!("{port}=server:{port}");
    let run = Listening::start(&["--link", "10Mbps 1ms", "--listen", &to]);
    let error = run.connect().read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let (report, said) = run.end();
    assert_eq!(report["listened"][0]["refused"], 1);
    let published = report["published"].as_array().unwrap();
    assert!(published.iter().all(|published| published["host_port"] != port), "{published:?}");
    let warning = format!("`server` did not accept 1 of 1 connections from 127.0.0.1:{port} at port {port}");
    assert!(said.contains(&warning), "{said}");
}

/// An end in the middle of a transfer must not look like the transfer's own.
#[test]
fn the_run_s_end_resets_connections() {
    if !namespaces() {
        return;
    }
    let port = serve(Ipv4Addr::LOCALHOST).to_string();
    let to = format!("0=server:{port}");
    let network = ["--link", "10Mbps 1ms", "--publish", &port, "--listen", &to];
    let run = Listening::start(&network);
    let mut stream = run.connect();
    write!(stream, "GET /1000000000 HTTP/1.1\r\nHost: server\r\n\r\n").unwrap();
    stream.read_exact(&mut [0; 1000]).unwrap();
    run.end();
    let error = std::io::copy(&mut stream, &mut std::io::sink()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_program_is_reached_from_the_other_node() {
    if !namespaces() {
        return;
    }
    let me = std::env::current_exe().unwrap();
    let dir = folder("listen-program");
    let go = dir.join("go");
    let role = format!("EXEC_ROLE='listen 8000 {}' exec {} --exact exec::role", go.display(), me.display());
    let network = ["--link", "10Mbps 1ms", "--listen", "0=program:8000", "--", "sh", "-c", &role];
    let mut run = Listening::start(&network);
    // The program may not listen yet.
    let patience = Instant::now() + Duration::from_secs(30);
    loop {
        let mut stream = run.connect();
        stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let error = stream.read(&mut [0]).unwrap_err();
        if error.kind() == ErrorKind::WouldBlock {
            break;
        }
        assert!(Instant::now() < patience, "{error}");
        std::thread::sleep(Duration::from_millis(20));
    }
    fs::write(go, "").unwrap();
    let status = run.child.wait().unwrap();
    assert_eq!(status.code(), Some(3), "the program's");
    let report: Value = serde_json::from_reader(run.child.stdout.take().unwrap()).unwrap();
    assert_eq!(report["listened"][0]["from"], "server");
}

#[test]
fn an_address_that_cannot_be_had_is_named() {
    if !namespaces() {
        return;
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    for (at, remedy) in
        [(taken.to_string(), "give another port"), ("203.0.113.7:9000".into(), "give an address of this")]
    {
        let to = format!("{at}=server:80");
        let output = tollway(&["exec", "--link", "1Mbps", "--listen", &to]).output().unwrap();
        let said = unwrapped(&text(&output.stderr));
        assert_eq!(output.status.code(), Some(125), "{said}");
        assert!(said.contains(&format!("`--listen` cannot listen at {at}")), "{said}");
        assert!(said.contains(remedy), "{said}");
    }
    let timed = ["exec", "-q", "--link", "1Mbps", "--listen", "0=server:80", "--timeout", "0.2"];
    assert_eq!(tollway(&timed).status().unwrap().code(), Some(124));
}
