//! Tests of the translation for a host, and of a real store: Debian's `etcd`, with mistakes in it,
//! killed and restarted.

use std::process::{Child, Command, Stdio};

use proptest::prelude::*;

use super::*;

fn keys(rows: &[(&str, &str)]) -> Keys {
    rows.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect()
}

const STORE: &[(&str, &str)] = &[
    ("/t", "tick = \"20 ms\""),
    ("/t/@web-*/aggregate/site", "weight = 2"),
    ("/t/@web-1/aggregate/site", "weight = 3"),
    ("/t/@db-*/aggregate/db", "to-port = 2"),
    ("/t/aggregate/site", "weight = 1"),
    ("/t/aggregate/ab", "to-port = 1"),
    ("/t/link", "rate = \"100 Mbps\"\n"),
];

#[test]
fn a_host_has_what_is_for_it_and_what_is_for_all() {
    let tables = |host| translate("/t", host, &keys(STORE)).unwrap();
    let all = "tick = \"20 ms\"\n[aggregate.ab] # /t/aggregate/ab\nto-port = 1\n\
        [aggregate.site] # /t/aggregate/site\nweight = 1\n[link] # /t/link\nrate = \"100 Mbps\"\n";
    assert_eq!(tables("mail"), all);
    let web =
        |key, weight| all.replace("/t/aggregate/site\nweight = 1", &format!("{key}\nweight = {weight}"));
    assert_eq!(tables("web-2"), web("/t/@web-*/aggregate/site", 2));
    assert_eq!(tables("web-1"), web("/t/@web-1/aggregate/site", 3));
    assert!(tables("db-7").contains("[aggregate.db] # /t/@db-*/aggregate/db\nto-port = 2\n"));
    let policies = Policies::parse("store", &tables("db-7")).unwrap();
    assert_eq!(policies.regime().tenants.len(), 3);
}

#[test]
fn what_is_ambiguous_or_no_text_is_refused() {
    let both = keys(&[("/t/@a*/link", ""), ("/t/@*a/link", "")]);
    let said = translate("/t", "a", &both).unwrap_err();
    assert_eq!(said, "`/t/@*a/link` and `/t/@a*/link` match this host, `a`, equally: narrow one of them");
    let bytes = Keys::from([("/t/link".to_owned(), vec![0xff])]);
    assert_eq!(translate("/t", "a", &bytes).unwrap_err(), "the value of `/t/link` is not text");
}

#[test]
fn names_are_quoted_where_toml_wants_it() {
    assert_eq!(
        [quoted("a-b_1"), quoted("a b"), quoted("\"\\\n")],
        ["a-b_1", "\"a b\"", "\"\\\"\\\\\\u000A\""]
    );
}

#[test]
fn a_version_is_the_stores_unless_the_policies_name_one() {
    for named in ["# mine\n version = \"x\"\n[link]\n", "\"version\" = \"x\"\n"] {
        assert!(names_version(named), "{named}");
    }
    for other in ["versions = 1\n[link]\nversion = \"x\"\n", "text = \"\"\"\nversion = 1\n\"\"\"\n"] {
        assert!(!names_version(other), "{other}");
    }
}

proptest! {
    #[test]
    fn any_keys_become_a_file_or_an_error(parts in prop::collection::vec("[@*?a-z\"\\\\ .\n/]{0,6}", 0..6), host in "[a-z]{1,3}") {
        let keys: Keys = parts.iter().map(|part| (format!("/t/{part}"), b"weight = 1".to_vec())).collect();
        if let Ok(text) = translate("/t", &host, &keys) {
            // Names are quoted, so that the text has no mistake of syntax, but possibly a table
            // inside a value.
            if let Err(error) = toml::from_str::<toml::Table>(&text) {
                let said = error.to_string();
                prop_assert!(said.contains("duplicate") || said.contains("extend") || said.contains("non-table"), "{said}\n{text}");
            }
        }
    }
}

#[test]
fn what_is_wrong_or_away_leaves_in_force_what_was_good() {
    let Some(mut etcd) = Etcd::start() else { return };
    let address = format!("etcd://127.0.0.1:{}/tollway", etcd.port);
    let open = |most| {
        let most = Duration::from_secs(most);
        let opened = EtcdSource::open_as(&address, Access::default(), "web-1", most, |_| {}, || false);
        opened.map(|opened| opened.expect("nobody ended it"))
    };
    let error = open(5).unwrap_err();
    assert!(error.to_string().contains("`/tollway` has no policies for this host, `web-1`"), "{error}");

    etcd.put("/tollway/link", "rate = \"100 Mbps\"");
    etcd.put("/tollway/aggregate/web", "from-port = 443");
    let (mut source, first) = open(60).unwrap();
    assert!(first.regime().version.starts_with("revision "), "{}", first.regime().version);
    assert_eq!(first.regime().link.rate, Some("100 Mbps".parse().unwrap()));

    etcd.put("/tollway/aggregate/web", "from-port = \"many\"");
    let News::Wrong(error) = await_news(&mut source) else { panic!("that is not a port") };
    assert!(error.to_string().contains("`many` is not a port"), "{error}");
    etcd.put("/tollway/@web-*/aggregate/web", "from-port = 8443");
    let News::Policies(third) = await_news(&mut source) else {
        panic!("another value is meant for this host")
    };
    assert_eq!(third.regime().tenants.len(), 1);
    // A store between two keys, or emptied by a user: no connection is freed. The policies in force
    // stay.
    for key in ["/tollway/@web-*/aggregate/web", "/tollway/aggregate/web"] {
        etcd.delete(key);
    }
    let News::Wrong(_) = await_news(&mut source) else { panic!("the other value counts again") };
    let News::Away(why) = await_news(&mut source) else { panic!("only the link is left") };
    assert!(why.contains("has no `[aggregate.NAME]` any more"), "{why}");
    etcd.delete("/tollway/link");
    let News::Wrong(error) = await_news(&mut source) else { panic!("nothing is left") };
    assert!(error.to_string().contains("has no policies"), "{error}");
    etcd.put("/tollway/other/x", "");
    etcd.delete("/tollway/other/x");
    etcd.put("/tollway", "version = \"whole\"\nlink.rate = \"100 Mbps\"\naggregate.web.from-port = 8443");
    let mut last = await_news(&mut source);
    while let News::Wrong(_) = last {
        last = await_news(&mut source);
    }
    let News::Policies(whole) = last else { panic!("it is there again") };
    assert_eq!(whole.regime().version, "whole");
    etcd.delete("/tollway");
    assert!(matches!(await_news(&mut source), News::Wrong(_)));
    etcd.put("/tollway", "version = \"whole\"\nlink.rate = \"100 Mbps\"\naggregate.web.from-port = 8443");
    let News::Policies(_) = await_news(&mut source) else {
        panic!("the same again is in force, and said so")
    };
    // A change for other hosts, or without effect, is no news.
    etcd.put("/tollway/@db-*/aggregate/db", "nonsense");
    etcd.put("/tollway", "version = \"whole\"\nlink.rate = \"100 Mbps\"\naggregate.web.from-port = 8443");

    etcd.kill();
    let News::Away(why) = await_news(&mut source) else { panic!("it is gone") };
    assert!(why.starts_with(&format!("`{address}` cannot be read: ")), "{why}");
    etcd.again();
    etcd.put("/tollway", "link.rate = \"50 Mbps\"\naggregate.web.from-port = 8443");
    loop {
        let News::Policies(last) = await_news(&mut source) else { panic!("it is back") };
        if last.regime().link.rate == Some("50 Mbps".parse().unwrap()) {
            break;
        }
    }
}

#[test]
fn a_store_that_is_not_there_is_said_to_be_away() {
    let mut heard = Vec::new();
    let mut open = |address, most, ends: &dyn Fn() -> bool| {
        let say = |why: &str| heard.push(why.to_owned());
        EtcdSource::open_as(address, Access::default(), "a", Duration::from_millis(most), say, ends)
    };
    let error = open("etcd://127.0.0.1:1/tollway", 900, &|| false).unwrap_err();
    let said = error.to_string();
    assert!(said.contains("127.0.0.1:1") && said.contains("refused"), "{said}");
    let begin = Instant::now();
    assert!(open("etcd://127.0.0.1:1/tollway", 60_000, &|| true).unwrap().is_none());
    assert!(begin.elapsed() < Duration::from_secs(30), "who wants it no more need not wait");
    let error = open("etcd://127.0.0.1", 0, &|| false).unwrap_err();
    assert!(heard.len() == 1 && heard[0].contains("refused"), "{heard:?}");
    assert!(error.to_string().contains("has no prefix"), "{error}");
}

fn await_news(source: &mut EtcdSource) -> News {
    loop {
        match source.poll() {
            News::None => std::thread::sleep(Duration::from_millis(5)),
            news => return news,
        }
    }
}

/// An `etcd` server with its own folder.
struct Etcd {
    folder: std::path::PathBuf,
    port: u16,
    child: Child,
}

impl Etcd {
    /// Starts a server. Returns none, and prints `SKIPPED`, if `etcd` is not installed.
    fn start() -> Option<Etcd> {
        for program in ["etcd", "etcdctl"] {
            if Command::new(program)
                .arg("--help")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_err()
            {
                eprintln!("SKIPPED: no `{program}` here (Debian: etcd-server, etcd-client)");
                return None;
            }
        }
        let folder = std::env::temp_dir().join(format!("tollway-policies-{}", std::process::id()));
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = serve(&folder, port);
        let etcd = Etcd { folder, port, child };
        // Wait until it answers.
        while !etcd.control(&["endpoint", "health"]) {
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(etcd)
    }

    fn put(&self, key: &str, value: &str) {
        while !self.control(&["put", "--", key, value]) {
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn delete(&self, key: &str) {
        assert!(self.control(&["del", "--", key]));
    }

    fn control(&self, words: &[&str]) -> bool {
        let mut command = Command::new("etcdctl");
        command
            .env("ETCDCTL_API", "3")
            .arg("--endpoints")
            .arg(format!("http://127.0.0.1:{}", self.port))
            .args(words);
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn again(&mut self) {
        self.child = serve(&self.folder, self.port);
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn serve(folder: &std::path::Path, port: u16) -> Child {
    let client = format!("http://127.0.0.1:{port}");
    let mut command = Command::new("etcd");
    command.args(["--listen-peer-urls", "http://127.0.0.1:0", "--listen-client-urls", &client]);
    command.args(["--advertise-client-urls", &client]).arg("--data-dir").arg(folder);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}
