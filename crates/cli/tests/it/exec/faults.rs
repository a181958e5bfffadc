//! Faults of relayed connections: resets, stalls, delayed ends.

use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use super::*;

/// A request for one byte, and the answer.
fn talk(stream: &TcpStream) -> io::Result<()> {
    let mut writer = stream;
    write!(writer, "GET /1 HTTP/1.1\r\nHost: server\r\n\r\n")?;
    let mut reader = BufReader::new(stream);
    if servers::read_head(&mut reader)?.is_empty() {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    reader.read_exact(&mut [0])
}

/// Talks to `server` until that succeeds. Returns the number of resets, and the time until then.
pub(super) fn persist(port: u16) -> String {
    let (begin, mut resets) = (Instant::now(), 0);
    loop {
        match TcpStream::connect(("server", port)).and_then(|stream| talk(&stream)) {
            Ok(()) => return format!("resets={resets}\nseconds={}", begin.elapsed().as_secs_f64()),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
        }
        resets += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A file of two nodes and these changes of connections to port `port` of `server`.
fn file(name: &str, port: u16, changes: &[&str]) -> PathBuf {
    let mut text = String::from(
        "name = \"faults\"\nduration = \"1 s\"\n[node.program]\n[node.server]\n\
         [link.wire]\nfrom = \"server\"\nto = \"program\"\nrate = \"10 Mbps\"\ndelay = \"1 ms\"\n",
    );
    for change in changes {
        text += &format!("[[change]]\nport = \"server:{port}\"\n{change}\n");
    }
    let path = folder(name).join("faults.toml");
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_file_resets_connections_for_a_time() {
    if !namespaces() {
        return;
    }
    let port = serve(Ipv4Addr::LOCALHOST);
    let changes = ["at = \"0 s\"\nconnections = \"reset\"", "at = \"3 s\"\nconnections = \"carry\""];
    let file = file("faults", port, &changes);
    let network = [file.to_str().unwrap(), "--publish", &format!("server:{port}")];
    let ran = exec("faults-role", &network, &format!("persist {port}"));
    assert!(ran.said["resets"] >= 1.0 && ran.said["seconds"] < 10.0, "{:?}", ran.said);
    assert!(ran.report["duration_s"].as_f64() >= Some(3.0), "{:#}", ran.report);
}

#[test]
fn a_change_of_a_port_needs_a_relay_and_concerns_exec_only() {
    let file = file("faults-none", 8000, &["at = \"0 s\"\nconnections = \"stall\""]);
    let file = file.to_str().unwrap();
    let output = tollway(&["run", file]).output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success() && said.contains("they are of `tollway exec`"), "{said}");
    if !namespaces() {
        return;
    }
    let output = tollway(&["exec", file, "--publish", "none", "--", "echo", "started"]).output().unwrap();
    let said = unwrapped(&text(&output.stderr));
    assert_eq!((output.status.code(), output.stdout.len()), (Some(125), 0), "{said}");
    assert!(said.contains("none are relayed there; add `--publish server:8000`"), "{said}");
}

#[cfg(feature = "view")]
#[test]
fn a_request_stalls_resets_and_delays_connections() {
    use super::listen::Listening;

    if !namespaces() {
        return;
    }
    let port = serve(Ipv4Addr::LOCALHOST).to_string();
    let to = format!("0=server:{port}");
    let network = ["--link", "10Mbps 1ms", "--publish", &port, "--listen", &to, "--view"];
    let mut run = Listening::start(&network);
    let url = run.stderr.find_map(|line| Some(line.unwrap().strip_prefix("view at ")?.to_owned())).unwrap();
    let change = |more: &str| {
        let (status, said) =
            view::ask(&url, "POST", "port", &format!("{{\"port\": \"server:{port}\", {more}}}"));
        assert!(status.contains(" 200"), "{status} {said}");
    };
    let stream = run.connect();
    talk(&stream).unwrap();

    change("\"connections\": \"stall\"");
    stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    assert_eq!(talk(&stream).unwrap_err().kind(), ErrorKind::WouldBlock, "no byte is carried");
    let second = run.connect();
    second.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    assert_eq!(talk(&second).unwrap_err().kind(), ErrorKind::WouldBlock);
    change("\"connections\": \"carry\"");
    for stream in [&stream, &second] {
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut reader = BufReader::new(stream);
        assert_eq!(servers::read_head(&mut reader).unwrap()[0], "HTTP/1.1 200 OK", "the request waited");
        reader.read_exact(&mut [0]).unwrap();
    }

    change("\"connections\": \"reset\"");
    let reset = |mut stream: &TcpStream| stream.read(&mut [0]).unwrap_err().kind();
    assert_eq!(reset(&second), ErrorKind::ConnectionReset);
    assert_eq!(reset(&run.connect()), ErrorKind::ConnectionReset);

    change("\"connections\": \"carry\", \"close_delay_ms\": 1000");
    let mut stream = run.connect();
    talk(&stream).unwrap();
    let begin = Instant::now();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    // The client's end and the server's, each at one of the two relays.
    let took = begin.elapsed().as_secs_f64();
    assert!((2.0..3.8).contains(&took), "{took}");
    run.end();
}
