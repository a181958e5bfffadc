use std::io::{Read, Write};
use std::net::TcpStream;

use tollway_scenario::file::Scenario;
use tollway_scenario::run::mesh::mesh;

use super::*;
use crate::{self as exec, Listen, Listeners};

/// A view of a link of 10 Mb/s each way, and the emulator's end of it.
fn serve(address: impl Into<SocketAddr>) -> Result<(View, exec::Panel), ViewError> {
    let text = exec::two_nodes("10Mbps 5ms", None, 1).unwrap();
    let plan = Scenario::parse::<&str>("--link", &text, &[]).unwrap().variants()[0].plan.clone();
    let spec = Spec {
        mesh: mesh(&plan).unwrap(),
        train: 0,
        aliases: Vec::new(),
        sysctls: Vec::new(),
        program: vec!["true".into()],
        node: 0,
        other: Some(1),
        servers: Vec::new(),
        published: Vec::new(),
        publish_all: false,
        listen: vec![Listen { at: ([127, 0, 0, 1], 0).into(), inside: false, from: 0, node: 1, port: 8000 }],
        tls: Vec::new(),
        port_changes: Vec::new(),
        timeout: None,
        stdout_aside: false,
        capture: None,
    };
    let (panel, remote) = exec::panel().unwrap();
    let listeners = Listeners::open(&spec).unwrap();
    Ok((View::serve(&plan, &spec, remote, listeners.ports(), address.into())?, panel))
}

fn view() -> (View, exec::Panel) {
    serve(([127, 0, 0, 1], 0)).unwrap()
}

/// The address of a view, and the path of its page.
fn split(view: &View) -> (String, String) {
    let (address, path) = view.url().strip_prefix("http://").unwrap().split_once('/').unwrap();
    (address.to_owned(), format!("/{path}"))
}

fn ask(address: &str, method: &str, path: &str, host: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let len = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect(answer)
}

#[test]
fn who_knows_the_address_sees_the_page_and_nobody_else() {
    let (view, _panel) = view();
    let (address, page) = split(&view);
    let get = |path: &str, host: &str| ask(&address, "GET", path, host, "");
    let seen = get(&page, &address);
    assert!(
        status(&seen) == 200 && seen.contains("default-src 'none'") && seen.contains("<canvas"),
        "{seen}"
    );
    let data = get(&format!("{page}data?after=0"), "localhost:9");
    assert!(
        status(&data) == 200 && data.contains(r#""name":"down","from":"server","to":"program""#),
        "{data}"
    );
    assert_eq!(status(&get(&format!("{page}data?after=yesterday"), &address)), 400);
    // Another host name that resolves to this address; no token; a wrong token.
    assert_eq!(status(&get(&page, "elsewhere.example:80")), 403);
    assert_eq!(status(&get(&page, "127.0.0.1.elsewhere.example")), 403);
    for path in ["/", "/data", "//", &page.replace(|digit: char| digit.is_ascii_digit(), "f")] {
        assert_eq!(status(&get(path, &address)), 404, "{path}");
    }
    drop(view);
    // The server's threads take a moment to end.
    let gone = (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        TcpStream::connect(&address).is_err()
    });
    assert!(gone, "it is gone when dropped");
}

#[test]
fn what_no_link_can_be_is_refused_in_words() {
    let (view, _panel) = view();
    let (address, page) = split(&view);
    let post = |body: &str| ask(&address, "POST", &format!("{page}link"), &address, body);
    assert_eq!(status(&post(r#"{"link": "down", "rate_mbps": 5, "delay_ms": 0, "loss": 1}"#)), 200);
    for (body, said) in [
        (r#"{"link": "sideways", "rate_mbps": 5}"#, "there are down, up"),
        (r#"{"link": "down", "rate_mbps": 0}"#, "`rate_mbps` is 0; it must be from 0.001 to"),
        (r#"{"link": "down", "delay_ms": -1}"#, "`delay_ms` is -1"),
        (r#"{"link": "down", "loss": 1.5}"#, "`loss` is 1.5; it must be from 0 to 1"),
        (r#"{"link": "down", "colour": 1}"#, "unknown field `colour`"),
        (r#"{"rate_mbps": 5}"#, "missing field `link`"),
        ("rate=5", "write it like"),
    ] {
        let answer = post(body);
        assert!(status(&answer) == 400 && answer.contains(said), "{body}: {answer}");
    }
    let post = |body: &str| ask(&address, "POST", &format!("{page}port"), &address, body);
    assert_eq!(status(&post(r#"{"port": "server:8000", "connections": "stall", "close_delay_ms": 5}"#)), 200);
    let data = ask(&address, "GET", &format!("{page}data"), &address, "");
    let port = r#"{"name":"server:8000","connections":"stall","close_delay_ms":5.0}"#;
    assert!(data.contains(port), "{data}");
    for (body, said) in [
        (
            r#"{"port": "server:80", "connections": "reset"}"#,
            "there is no port `server:80`; there are server:8000",
        ),
        (
            r#"{"port": "server:8000", "connections": "melt"}"#,
            "`connections` is `melt`; it must be carry, reset or",
        ),
        (r#"{"port": "server:8000", "close_delay_ms": -1}"#, "`close_delay_ms` is -1"),
        ("reset", "write it like"),
    ] {
        let answer = post(body);
        assert!(status(&answer) == 400 && answer.contains(said), "{body}: {answer}");
    }
    assert_eq!(status(&post(&format!(r#"{{"link": "{}"}}"#, "x".repeat(9000)))), 413);
    assert_eq!(status(&ask(&address, "POST", "/link", &address, r#"{"link": "down", "loss": 1}"#)), 404);
}

#[test]
fn only_this_machine_is_served() {
    let error = serve(([0, 0, 0, 0], 0)).unwrap_err();
    assert!(error.to_string().contains("0.0.0.0:0 is not a loopback address"), "{error}");
}
