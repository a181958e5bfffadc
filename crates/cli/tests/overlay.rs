//! `tollway overlay` as a person meets it: what docs/src/overlay.md has typed.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

mod common;

use common::tollway;

fn folder(name: &str) -> PathBuf {
    common::folder("overlay", name)
}

/// A port that nobody has.
fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A site that runs in a folder; ended, and its end awaited, when dropped.
struct Site {
    process: Child,
    folder: PathBuf,
    name: String,
}

impl Site {
    fn start(folder: &Path, name: &str) -> Site {
        let process = tollway(&[])
            .current_dir(folder)
            .args(["overlay", "--config", &format!("{name}.toml"), "--socket", &format!("run/{name}.sock")])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let site = Site { process, folder: folder.to_owned(), name: name.to_owned() };
        until(name, || site.status().is_some());
        site
    }

    fn status(&self) -> Option<Value> {
        let socket = format!("run/{}.sock", self.name);
        let mut ask = tollway(&[]);
        ask.current_dir(&self.folder).args(["overlay", "status", "--json", "--socket", &socket]);
        serde_json::from_slice(&ask.output().unwrap().stdout).ok()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let pid = self.process.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.process.wait();
    }
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    for _ in 0..3000 {
        if is() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("in vain: {what}");
}

fn hear(stream: &mut TcpStream, heard: &mut String, text: &str) {
    let mut buffer = [0; 4096];
    while !heard.contains(text) {
        let len = stream.read(&mut buffer).unwrap();
        assert!(len > 0, "no {text:?} in {heard:?}");
        heard.push_str(&String::from_utf8_lossy(&buffer[..len]));
    }
}

fn client(port: u16, text: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut heard = String::new();
    stream.write_all(format!("CONNECT {{}}\r\n{text}PING\r\n").as_bytes()).unwrap();
    hear(&mut stream, &mut heard, "PONG\r\n");
    (stream, heard)
}

#[test]
fn the_books_three_sites_run_as_it_says() {
    let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/overlay.md");
    let book = fs::read_to_string(book).unwrap();
    let folder = folder("book");
    // Its ports may be somebody's here.
    let ports: Vec<(String, u16)> =
        ["4222", "4223", "4224", "7222", "7223", "7224"].map(|known| (known.to_owned(), port())).into();
    let mut files = Vec::new();
    for part in book.split("```toml,file=").skip(1) {
        let (name, rest) = part.split_once('\n').unwrap();
        let mut text = rest.split_once("```").unwrap().0.to_owned();
        for (known, port) in &ports {
            text = text.replace(&format!(":{known}\""), &format!(":{port}\""));
        }
        fs::write(folder.join(name), text).unwrap();
        files.push(name.to_owned());
    }
    assert_eq!(files, ["north.toml", "south.toml", "west.toml"]);
    let command = |start: &str| {
        let line = book.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("no {start}"));
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        tollway(&[]).current_dir(&folder).args(words).output().unwrap()
    };
    let made = command("tollway overlay keys");
    assert!(made.status.success(), "{made:?}");
    assert_eq!(String::from_utf8(made.stdout).unwrap().lines().count(), 7);
    let again = command("tollway overlay keys");
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&again.stderr).contains("is there already"));
    let checked = command("tollway overlay check");
    assert_eq!(
        String::from_utf8(checked.stdout).unwrap(),
        "site north is right: tenants default; links to south\n"
    );
    let sites: Vec<Site> = ["north", "south", "west"].map(|name| Site::start(&folder, name)).into();
    until("all are linked", || sites.iter().all(|site| site.status().unwrap()["reachable"] == 2));
    let (mut west, mut heard) = client(ports[2].1, "SUB plant.> 1\r\n");
    until("the message comes", || {
        client(ports[0].1, "PUB plant.pump.7 16\r\npressure 3.1 bar\r\n");
        west.set_nonblocking(true).unwrap();
        let mut buffer = [0; 4096];
        if let Ok(len) = west.read(&mut buffer) {
            return String::from_utf8_lossy(&buffer[..len])
                .contains("MSG plant.pump.7 1 16\r\npressure 3.1 bar\r\n");
        }
        false
    });
    heard.clear();
    let text = tollway(&[])
        .current_dir(&folder)
        .args(["overlay", "status", "--socket", "run/north.sock"])
        .output()
        .unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    for part in ["Site north", "link to", "south", "up", "default"] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
    // A second one of the same name gives way.
    let second = tollway(&[])
        .current_dir(&folder)
        .args(["overlay", "--config", "north.toml", "--socket", "run/north.sock"])
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&second.stderr).contains("runs already"));
}

#[test]
fn a_file_is_watched_and_the_last_good_one_stays() {
    let folder = folder("watched");
    let path = folder.join("a.toml");
    let base = format!("site = \"a\"\nlisten = \"127.0.0.1:{}\"\n", port());
    let write = |text: &str| fs::write(&path, format!("{base}{text}")).unwrap();
    write("[tenant.x]\n");
    let site = Site::start(&folder, "a");
    write("[tenant.x]\n[tenant.y]\npassword = \"p\"\n");
    until("y is there", || site.status().unwrap()["tenants"].as_array().unwrap().len() == 2);
    write("[tenant.x]\nsalry = 3\n");
    until("it is wrong", || {
        site.status().unwrap()["trouble"].as_str().is_some_and(|why| why.contains("salry"))
    });
    assert_eq!(site.status().unwrap()["tenants"].as_array().unwrap().len(), 2);
    write("tls = \"on\"\n[keys]\nauthority = \"a\"\ncertificate = \"b\"\nkey = \"c\"\n");
    until("it holds from a start on", || {
        site.status().unwrap()["trouble"].as_str().is_some_and(|why| why.contains("start"))
    });
    write("[tenant.x]\n");
    until("it is right again", || site.status().unwrap()["trouble"].is_null());
    let wrong = tollway(&[]).args(["overlay", "check"]).arg(folder.join("none.toml")).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
}
