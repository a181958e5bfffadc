//! `tollway overlay` as a user sees it: the files and commands of docs/src/overlay.md.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

#[path = "../../../overlay/tests/it/common/tools.rs"]
pub(crate) mod tools;

use crate::common::{self, free_port, tollway};

fn folder(name: &str) -> PathBuf {
    common::folder("overlay", name)
}

/// A running site in a folder. Dropping it ends the process and waits for its end.
struct Site {
    process: Child,
    folder: PathBuf,
    name: String,
}

impl Site {
    fn start(folder: &Path, name: &str) -> Site {
        let log = folder.join(format!("{name}.log"));
        let process = tollway(&[])
            .current_dir(folder)
            .args(["overlay", "--config", &format!("{name}.toml"), "--socket", &format!("run/{name}.sock")])
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut site = Site { process, folder: folder.to_owned(), name: name.to_owned() };
        until(name, || {
            let ended = site.process.try_wait().unwrap();
            assert!(ended.is_none(), "{name}: {ended:?}: {}", fs::read_to_string(&log).unwrap());
            site.status().is_some()
        });
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

/// The text of docs/src/overlay.md with free ports.
struct Book {
    text: String,
    folder: PathBuf,
    /// Ports for clients at each site.
    ports: [u16; 3],
}

impl Book {
    /// Writes the page's files to a folder for one test.
    fn open(name: &str) -> Book {
        let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/overlay.md");
        let mut text = fs::read_to_string(book).unwrap();
        let ports = ["4222", "4223", "4224", "7222", "7223", "7224"].map(|known| {
            let port = free_port();
            text = text.replace(&format!("127.0.0.1:{known}"), &format!("127.0.0.1:{port}"));
            text = text.replace(&format!("localhost:{known}"), &format!("localhost:{port}"));
            port
        });
        let folder = folder(name);
        let mut files = Vec::new();
        for part in text.split("```toml,file=").skip(1) {
            let (name, rest) = part.split_once('\n').unwrap();
            fs::write(folder.join(name), rest.split_once("```").unwrap().0).unwrap();
            files.push(name.to_owned());
        }
        assert_eq!(files, ["north.toml", "south.toml", "west.toml"]);
        Book { text, folder, ports: [ports[0], ports[1], ports[2]] }
    }

    /// Runs the command of the page that begins with `start`.
    fn command(&self, start: &str) -> Output {
        let line = self.text.lines().find(|line| line.starts_with(start));
        let words = line.unwrap_or_else(|| panic!("no {start}")).split_whitespace().skip(1);
        tollway(&[]).current_dir(&self.folder).args(words).output().unwrap()
    }

    /// Starts the three sites, and waits until each reaches both others.
    fn sites(&self) -> [Site; 3] {
        let sites = ["north", "south", "west"].map(|name| Site::start(&self.folder, name));
        until("all are linked", || sites.iter().all(|site| site.status().unwrap()["reachable"] == 2));
        sites
    }

    /// The page's blocks of `nats` commands, one per line.
    fn of_nats(&self) -> Vec<Vec<&str>> {
        let blocks = self.text.split("```text\n").skip(1).map(|part| part.split_once("```").unwrap().0);
        let blocks = blocks.filter(|block| block.starts_with("nats "));
        blocks.map(|block| block.lines().collect()).collect()
    }
}

#[test]
fn a_hang_up_has_the_file_read_again() {
    let folder = folder("hang-up");
    fs::write(folder.join("a.toml"), "site = \"a\"\nlisten = \"127.0.0.1:0\"\n").unwrap();
    let site = Site::start(&folder, "a");
    let pid = site.process.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    until("the file is read", || fs::read_to_string(folder.join("a.log")).unwrap().contains("is in force"));
    assert!(site.status().is_some());
}

#[test]
fn the_books_three_sites_run_as_it_says() {
    let book = Book::open("book");
    let made = book.command("tollway overlay keys");
    assert!(made.status.success(), "{made:?}");
    assert_eq!(String::from_utf8(made.stdout).unwrap().lines().count(), 7);
    let again = book.command("tollway overlay keys");
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&again.stderr).contains("already exists"));
    let checked = book.command("tollway overlay check");
    assert_eq!(
        String::from_utf8(checked.stdout).unwrap(),
        "site north is valid: tenants default; links to south\n"
    );
    let _sites = book.sites();
    let (mut west, _) = client(book.ports[2], "SUB plant.> 1\r\n");
    until("the message comes", || {
        client(book.ports[0], "PUB plant.pump.7 16\r\npressure 3.1 bar\r\n");
        west.set_nonblocking(true).unwrap();
        let mut buffer = [0; 4096];
        if let Ok(len) = west.read(&mut buffer) {
            return String::from_utf8_lossy(&buffer[..len])
                .contains("MSG plant.pump.7 1 16\r\npressure 3.1 bar\r\n");
        }
        false
    });
    let text = tollway(&[])
        .current_dir(&book.folder)
        .args(["overlay", "status", "--socket", "run/north.sock"])
        .output()
        .unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    let readme = include_str!("../../../../README.md");
    let shown = readme.split("```").find(|block| block.contains("tollway overlay status")).unwrap();
    common::assert_alike(shown.trim_start_matches("text\n"), &text);
    for part in ["Site north", "link to", "south", "up", "default"] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
    // A second site with the same name is refused.
    let second = tollway(&[])
        .current_dir(&book.folder)
        .args(["overlay", "--config", "north.toml", "--socket", "run/north.sock"])
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&second.stderr).contains("is already running"));
}

/// A shell that receives lines; its output and that of its children goes to a file. Children end
/// with it.
struct Shell {
    process: Child,
    said: PathBuf,
}

impl Shell {
    fn start(book: &Book, nats: &Path, name: &str) -> Shell {
        let said = book.folder.join(name);
        let out = fs::File::create(&said).unwrap();
        // On the path, as for a user.
        let tollway = Path::new(env!("CARGO_BIN_EXE_tollway")).parent().unwrap();
        let path = [tollway, nats.parent().unwrap()].map(|folder| folder.display().to_string()).join(":");
        let process = Command::new("sh")
            .current_dir(&book.folder)
            .env("PATH", format!("{path}:{}", std::env::var("PATH").unwrap()))
            .env("HOME", &book.folder)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn()
            .unwrap();
        Shell { process, said }
    }

    fn enter(&mut self, line: &str) {
        writeln!(self.process.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        if let Ok(None) = self.process.try_wait() {
            let group = format!("-{}", self.process.id());
            let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
            let _ = self.process.wait();
        }
    }
}

#[test]
fn the_books_clients_do_as_it_says() {
    let Some(nats) = tools::nats() else { return };
    let book = Book::open("clients");
    assert!(book.command("tollway overlay keys").status.success());
    let [north, _south, west] = book.sites();
    let blocks = book.of_nats();
    let [fan_out, slow, order] = &blocks[..] else { panic!("{blocks:?}") };
    for (block, heard) in
        [(fan_out, &["plant.pump.7", "pressure 3.1 bar"]), (order, &["Toll-Order", "debit 7"])]
    {
        let [sub, publish] = block[..] else { panic!("{block:?}") };
        let mut subscriber = Shell::start(&book, &nats, "subscriber");
        subscriber.enter(sub);
        // Messages are forwarded only once all sites know the subscriber.
        until(sub, || {
            let mut publisher = Shell::start(&book, &nats, "publisher");
            publisher.enter(&format!("{publish}; exit"));
            assert!(publisher.process.wait().unwrap().success(), "{}", publisher.said());
            let said = subscriber.said();
            heard.iter().all(|part| said.contains(part))
        });
    }
    let [subscribe, stop, publish, status, end] = slow[..] else { panic!("{slow:?}") };
    let mut shell = Shell::start(&book, &nats, "slow");
    let known = |site: &Site, number: &str| site.status().unwrap()[number].as_u64().unwrap();
    let before = known(&west, "delivered");
    shell.enter(subscribe);
    until("west has a receiver that all know of", || {
        client(book.ports[0], "PUB plant.pump.7 1\r\n7\r\n");
        known(&west, "delivered") > before
    });
    shell.enter(stop);
    let before = known(&north, "published");
    shell.enter(publish);
    until("the publisher stands", || north.status().unwrap()["tenants"][0]["waiting"] == 1);
    until("the receiver is disconnected", || known(&west, "cut") == 1);
    until("all is published", || known(&north, "published") == before + 20_000);
    shell.enter(&format!("{status} --socket run/west.sock"));
    until("the status is shown", || shell.said().contains("1 clients disconnected"));
    shell.enter(end);
}

#[test]
fn a_file_is_watched_and_the_last_good_one_stays() {
    let folder = folder("watched");
    let path = folder.join("a.toml");
    let base = format!("site = \"a\"\nlisten = \"127.0.0.1:{}\"\n", free_port());
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

#[test]
fn a_site_reports_to_its_service_manager_and_logs_json() {
    let folder = folder("service");
    let file = folder.join("a.toml");
    fs::write(&file, "site = \"a\"\nlisten = \"127.0.0.1:0\"\n").unwrap();
    let mut command = tollway(&["overlay", "--config"]);
    command.arg(&file).arg("--socket").arg(folder.join("run/a.sock"));
    common::serves_as_a_service(&folder, &command);
}

#[test]
fn clients_and_sites_wait_at_the_managers_sockets_during_a_restart() {
    let book = Book::open("passed");
    assert!(book.command("tollway overlay keys").status.success());
    let (north, south) = (Site::start(&book.folder, "north"), book.folder.join("south.toml"));
    let listeners: Vec<TcpListener> = fs::read_to_string(&south)
        .unwrap()
        .lines()
        .filter_map(|line| line.strip_prefix("listen = \"")?.strip_suffix('"'))
        .map(|address| TcpListener::bind(address).unwrap())
        .collect();
    let [clients, links] = &listeners[..] else { panic!("{listeners:?}") };
    let port = book.ports[1];
    // As systemd passes them: from descriptor 3 on.
    let start = || {
        let inside = "exec 3<&0 4<&1 0</dev/null >/dev/null; LISTEN_PID=$$ LISTEN_FDS=2 exec \"$0\" \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", inside]).arg(env!("CARGO_BIN_EXE_tollway")).current_dir(&book.folder);
        command.args(["overlay", "--config", "south.toml", "--socket", "run/south.sock"]);
        let [clients, links] = [clients, links].map(|one| OwnedFd::from(one.try_clone().unwrap()));
        command.stdin(clients).stdout(links).stderr(Stdio::null()).spawn().unwrap()
    };
    let reaches = |count: u64| until("north", || north.status().unwrap()["reachable"] == count);
    for _ in 0..2 {
        let waits = std::thread::spawn(move || client(port, ""));
        let mut process = start();
        waits.join().unwrap();
        reaches(1);
        assert!(Command::new("kill").args(["-TERM", &process.id().to_string()]).status().unwrap().success());
        assert!(process.wait().unwrap().success());
        reaches(0);
    }
}

#[test]
fn every_mistake_of_a_sites_file_is_shown_in_place() {
    let folder = folder("mistakes");
    fs::write(
        folder.join("a.toml"),
        "site = \"a\"\nlistn = \"x\"\npatiense = \"2 s\"\n[tenant.x]\nsalry = 3\n",
    )
    .unwrap();
    let output = tollway(&["overlay", "--config", "a.toml"]).current_dir(&folder).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = common::text(&output.stderr);
    for (line, key) in [(2, "listen"), (3, "patience"), (5, "salary")] {
        assert!(said.contains(&format!("a.toml:{line}:")), "no line {line} in {said}");
        assert!(said.contains(&format!("did you mean `{key}`?")), "no `{key}` in {said}");
    }
}
