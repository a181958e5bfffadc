//! A store of our own: Debian's `etcd`, killed, brought back, compacted.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::*;

#[test]
fn addresses_are_read() {
    let parse = |text| Address::parse(text).map(|address| address.to_string());
    assert_eq!(parse("etcd://a:1,b,[::1]:9/x/y/").as_deref(), Ok("etcd://a:1,b:2379,[::1]:9/x/y"));
    assert_eq!(parse("etcd://[::1]/x").as_deref(), Ok("etcd://[::1]:2379/x"));
    for (wrong, why) in [
        ("http://a/x", "is no address of etcd"),
        ("etcd://a", "has no prefix"),
        ("etcd://a//", "has no prefix"),
        ("etcd://:1/x", "is no host"),
        ("etcd://a:0/x", "is no port"),
        ("etcd://me:secret@a/x", "is no host"),
    ] {
        let said = parse(wrong).unwrap_err();
        assert!(said.contains(why) && said.contains("etcd://127.0.0.1:2379/tollway"), "{said}");
    }
}

#[test]
fn a_store_is_watched_through_outages_and_compaction() {
    let Some(mut etcd) = Etcd::start() else { return };
    etcd.put("/tollway/a", "1");
    etcd.put("/tollway-b", "none of ours");
    let address = Address::parse(&format!("etcd://127.0.0.1:{}/tollway", etcd.port)).unwrap();
    let store = Store::open_with(address, Duration::from_secs(1)).unwrap();
    await_keys(&store, &[("/tollway/a", "1")]);

    // Nothing is said for longer than a watch lasts: that is no outage.
    let quiet = Instant::now();
    while quiet.elapsed() < Duration::from_secs(2) {
        let event = store.wait(Duration::from_millis(100));
        assert!(!matches!(event, Some(Event::Away(_))), "{event:?}");
    }

    etcd.put("/tollway/b", "2");
    await_keys(&store, &[("/tollway/a", "1"), ("/tollway/b", "2")]);
    etcd.call("kv/deleterange", &format!(r#"{{"key":"{}"}}"#, STANDARD.encode("/tollway/a")));
    await_keys(&store, &[("/tollway/b", "2")]);

    etcd.kill();
    await_that(&store, "it is away", |event| matches!(event, Event::Away(_)));
    etcd.again();
    etcd.put("/tollway/b", "3");
    await_keys(&store, &[("/tollway/b", "3")]);

    // What it was to be watched from is forgotten when it is back.
    etcd.kill();
    await_that(&store, "it is away", |event| matches!(event, Event::Away(_)));
    etcd.again();
    let revision = etcd.put("/tollway/b", "4");
    etcd.call("kv/compaction", &format!(r#"{{"revision":"{revision}","physical":true}}"#));
    await_keys(&store, &[("/tollway/b", "4")]);
    let (sender, _events) = sync_channel(4);
    let watcher = Watcher { address: store.address().clone(), sender, agent: agent(PATIENCE) };
    let old = watcher.ask(&store.address().members[0], "watch", &message::watch("/tollway", 2)).unwrap();
    let said = BufReader::new(old).lines().map_while(Result::ok).take(2).collect::<Vec<_>>();
    let forgotten =
        said.iter().any(|line| message::read_watch(line, &mut Keys::new()) == Some(Said::Forgotten));
    assert!(forgotten, "{said:?}");
}

/// A server with a folder of its own.
struct Etcd {
    folder: PathBuf,
    port: u16,
    child: Child,
}

impl Etcd {
    /// None, and loudly, where there is no such program.
    fn start() -> Option<Etcd> {
        if Command::new("etcd").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err()
        {
            eprintln!("SKIPPED: no `etcd` here (Debian: etcd-server)");
            return None;
        }
        let folder = std::env::temp_dir().join(format!("tollway-etcd-{}", std::process::id()));
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = run(&folder, port);
        let etcd = Etcd { folder, port, child };
        etcd.await_it();
        Some(etcd)
    }

    fn again(&mut self) {
        self.child = run(&self.folder, self.port);
        self.await_it();
    }

    fn await_it(&self) {
        let begin = Instant::now();
        while self.try_call("kv/range", r#"{"key":"AA=="}"#).is_err() {
            assert!(begin.elapsed() < Duration::from_secs(60), "etcd does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Answers the revision.
    fn put(&self, key: &str, value: &str) -> u64 {
        let answer = self.call(
            "kv/put",
            &format!(r#"{{"key":"{}","value":"{}"}}"#, STANDARD.encode(key), STANDARD.encode(value)),
        );
        message::read_range(&answer).unwrap().0
    }

    fn call(&self, what: &str, body: &str) -> String {
        self.try_call(what, body).unwrap()
    }

    fn try_call(&self, what: &str, body: &str) -> Result<String, ureq::Error> {
        agent(PATIENCE)
            .post(format!("http://127.0.0.1:{}/v3/{what}", self.port))
            .send(body)?
            .body_mut()
            .read_to_string()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn run(folder: &std::path::Path, port: u16) -> Child {
    let client = format!("http://127.0.0.1:{port}");
    let mut command = Command::new("etcd");
    // Of peers there are none; the port is any.
    command.args([
        "--listen-peer-urls",
        "http://127.0.0.1:0",
        "--listen-client-urls",
        &client,
        "--advertise-client-urls",
        &client,
    ]);
    command.arg("--data-dir").arg(folder).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

fn await_keys(store: &Store, rows: &[(&str, &str)]) {
    let wanted: Keys =
        rows.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
    await_that(store, &format!("{rows:?}"), |event| matches!(event, Event::Keys(_, keys) if *keys == wanted));
}

/// Waits, for as long as a busy machine may take.
fn await_that(store: &Store, what: &str, is_so: impl Fn(&Event) -> bool) {
    let begin = Instant::now();
    while !store.wait(Duration::from_secs(1)).is_some_and(|event| is_so(&event)) {
        assert!(begin.elapsed() < Duration::from_secs(60), "not yet: {what}");
    }
}
