//! Tests with a real store: Debian's `etcd`, killed, restarted and compacted.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
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
    assert_eq!(parse("etcds://a/x").as_deref(), Ok("etcds://a:2379/x"));
    for (wrong, why) in [
        ("http://a/x", "is not an address of etcd"),
        ("etcd://a", "has no prefix"),
        ("etcd://a//", "has no prefix"),
        ("etcd://:1/x", "is not a host"),
        ("etcd://a:0/x", "is not a port"),
        ("etcd://me:secret@a/x", "is not a host"),
    ] {
        let said = parse(wrong).unwrap_err();
        assert!(said.contains(why) && said.contains("etcd://127.0.0.1:2379/tollway"), "{said}");
    }
}

#[test]
fn a_store_is_watched_through_outages_and_compaction() {
    let Some(mut etcd) = Etcd::start("plain", &[], Access::default()) else { return };
    etcd.put("/tollway/a", "1");
    etcd.put("/tollway-b", "none of ours");
    let store = etcd.store(Access::default());
    await_keys(&store, &[("/tollway/a", "1")]);

    // Silence for longer than a watch lasts is no outage.
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

    // The revision to watch from is compacted when the store is back.
    etcd.kill();
    await_that(&store, "it is away", |event| matches!(event, Event::Away(_)));
    etcd.again();
    let revision = etcd.put("/tollway/b", "4");
    etcd.call("kv/compaction", &format!(r#"{{"revision":"{revision}","physical":true}}"#));
    await_keys(&store, &[("/tollway/b", "4")]);
    let (sender, _events) = sync_channel(4);
    let watcher = etcd.watcher(sender);
    let old = watcher.ask(&store.address().members[0], "watch", &message::watch("/tollway", 2)).unwrap();
    let said = BufReader::new(old).lines().map_while(Result::ok).take(2).collect::<Vec<_>>();
    let forgotten =
        said.iter().any(|line| message::read_watch(line, &mut Keys::new()) == Some(Said::Forgotten));
    assert!(forgotten, "{said:?}");
}

#[test]
fn a_store_with_users_wants_the_right_one() {
    let Some(etcd) = Etcd::start("users", &[], Access::default()) else { return };
    etcd.put("/tollway/a", "1");
    for (what, body) in [
        ("auth/user/add", r#"{"name":"root","password":"of all"}"#),
        ("auth/role/add", r#"{"name":"root"}"#),
        ("auth/user/grant", r#"{"user":"root","role":"root"}"#),
        ("auth/user/add", r#"{"name":"shape","password":"secret"}"#),
        ("auth/role/add", r#"{"name":"reads"}"#),
        ("auth/user/grant", r#"{"user":"shape","role":"reads"}"#),
        // The prefix as a range: a role may read only the range it is granted.
        (
            "auth/role/grant",
            r#"{"name":"reads","perm":{"permType":"READ","key":"L3RvbGx3YXk=","range_end":"L3RvbGx3YXo="}}"#,
        ),
        ("auth/enable", "{}"),
    ] {
        etcd.call(what, body);
    }
    let user = |name: &str, password: &str| Access {
        user: Some((name.into(), password.into())),
        ..Access::default()
    };
    await_keys(&etcd.store(user("shape", "secret")), &[("/tollway/a", "1")]);
    for (access, why) in [
        (user("shape", "wrong"), "the user or the password is wrong"),
        (user("nobody", "secret"), "the user or the password is wrong"),
        (Access::default(), "it requires a user and a password"),
    ] {
        assert!(!format!("{access:?}").contains("wrong"), "passwords are not shown");
        let store = etcd.store(access);
        await_that(&store, why, |event| matches!(event, Event::Away(said) if said.contains(why)));
    }
    let elsewhere = Address { prefix: "/other".into(), ..etcd.address() };
    let store = Store::open(elsewhere, user("shape", "secret")).unwrap();
    let why = "the user may not read these keys";
    await_that(&store, why, |event| matches!(event, Event::Away(said) if said.contains(why)));
}

#[cfg(feature = "etcd-tls")]
#[test]
fn a_store_with_tls_is_known_by_its_authority_and_knows_us_by_ours() {
    let folder = std::env::temp_dir().join(format!("tollway-etcd-keys-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let _gone = Gone(folder.clone());
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    if !authority(&folder, "ca") || !authority(&folder, "other") {
        eprintln!("SKIPPED: no `openssl` here");
        return;
    }
    certify(&folder, "server", "/CN=server", "ca");
    certify(&folder, "client", "/CN=client", "ca");
    certify(&folder, "stranger", "/CN=stranger", "other");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let access = |ca: &str, own: Option<&str>| Access {
        authorities: Some(read(&format!("{ca}.pem"))),
        identity: own.map(|own| (read(&format!("{own}.pem")), read(&format!("{own}.key")))),
        ..Access::default()
    };
    let (certificate, key, ca) = (path("server.pem"), path("server.key"), path("ca.pem"));
    let words =
        ["--cert-file", &certificate, "--key-file", &key, "--trusted-ca-file", &ca, "--client-cert-auth"];
    let Some(etcd) = Etcd::start("tls", &words, access("ca", Some("client"))) else { return };
    etcd.put("/tollway/a", "1");
    let store = etcd.store(access("ca", Some("client")));
    await_keys(&store, &[("/tollway/a", "1")]);
    etcd.put("/tollway/a", "2");
    await_keys(&store, &[("/tollway/a", "2")]);
    for (access, why) in [
        (access("other", Some("client")), "not signed by a given authority"),
        (access("ca", None), "it may require a client certificate"),
        (access("ca", Some("stranger")), "or one from another authority"),
    ] {
        let store = etcd.store(access);
        await_that(&store, why, |event| match event {
            Event::Away(said) => said.contains(why),
            Event::Keys(..) => panic!("it let us in"),
        });
    }
    let plain = Store::open(Address { tls: false, ..etcd.address() }, Access::default()).unwrap();
    let why = "it uses TLS: write `etcds://`";
    await_that(&plain, why, |event| matches!(event, Event::Away(said) if said.contains(why)));
    for (what, body) in [
        ("auth/user/add", r#"{"name":"root","password":"of all"}"#),
        ("auth/role/add", r#"{"name":"root"}"#),
        ("auth/user/grant", r#"{"user":"root","role":"root"}"#),
        ("auth/enable", "{}"),
    ] {
        etcd.call(what, body);
    }
    let user = Some(("root".to_owned(), "of all".to_owned()));
    let store = etcd.store(Access { user: user.clone(), ..access("ca", Some("client")) });
    let why = "with a common name";
    await_that(&store, why, |event| matches!(event, Event::Away(said) if said.contains(why)));
    certify(&folder, "nameless", "/O=nameless", "ca");
    await_keys(&etcd.store(Access { user, ..access("ca", Some("nameless")) }), &[("/tollway/a", "2")]);
    for (access, why) in [
        (Access::default(), "the authority of the store's certificate is not given"),
        (Access { authorities: Some(b"nothing".to_vec()), ..Access::default() }, "contains no certificate"),
        (Access { identity: Some((read("ca.pem"), read("ca.pem"))), ..access("ca", None) }, "no private key"),
    ] {
        let error = Store::open(etcd.address(), access).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
    let Some(plain) = Etcd::start("no-tls", &[], Access::default()) else { return };
    let store = Store::open(Address { tls: true, ..plain.address() }, access("ca", None)).unwrap();
    let why = "it does not use TLS: write `etcd://`";
    await_that(&store, why, |event| matches!(event, Event::Away(said) if said.contains(why)));
}

/// Makes a self-signed authority. Returns false without openssl.
#[cfg(feature = "etcd-tls")]
fn authority(folder: &Path, name: &str) -> bool {
    let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650";
    openssl(folder, &format!("{words} -subj /CN={name} -keyout {name}.key -out {name}.pem"))
}

/// Makes a certificate for this machine and a subject, signed by an authority.
#[cfg(feature = "etcd-tls")]
fn certify(folder: &Path, name: &str, subject: &str, authority: &str) {
    std::fs::write(folder.join("names"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    let words = "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    assert!(openssl(folder, &format!("{words} -subj {subject} -keyout {name}.key -out {name}.csr")));
    let by = format!("-CA {authority}.pem -CAkey {authority}.key -CAcreateserial -days 3650 -extfile names");
    assert!(openssl(folder, &format!("x509 -req -in {name}.csr {by} -out {name}.pem")));
}

#[cfg(feature = "etcd-tls")]
fn openssl(folder: &Path, words: &str) -> bool {
    let mut command = Command::new("openssl");
    command.args(words.split(' ')).current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A folder that is removed at the end of the test.
#[cfg(feature = "etcd-tls")]
struct Gone(PathBuf);

#[cfg(feature = "etcd-tls")]
impl Drop for Gone {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An `etcd` server with its own folder.
struct Etcd {
    folder: PathBuf,
    port: u16,
    /// Additional arguments of the server.
    words: Vec<String>,
    /// The credentials of the test itself.
    access: Access,
    child: Child,
}

impl Etcd {
    /// Starts a server. Returns none, and prints `SKIPPED`, if `etcd` is not installed.
    fn start(name: &str, words: &[&str], access: Access) -> Option<Etcd> {
        if Command::new("etcd").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err()
        {
            eprintln!("SKIPPED: no `etcd` here (Debian: etcd-server)");
            return None;
        }
        let folder = std::env::temp_dir().join(format!("tollway-etcd-{name}-{}", std::process::id()));
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = run(&folder, port, &words);
        let etcd = Etcd { folder, port, words, access, child };
        etcd.await_it();
        Some(etcd)
    }

    fn again(&mut self) {
        self.child = run(&self.folder, self.port, &self.words);
        self.await_it();
    }

    fn address(&self) -> Address {
        let scheme = if self.words.is_empty() { "etcd" } else { "etcds" };
        Address::parse(&format!("{scheme}://127.0.0.1:{}/tollway", self.port)).unwrap()
    }

    fn store(&self, access: Access) -> Store {
        Store::open_with(self.address(), access, Duration::from_secs(1)).unwrap()
    }

    fn watcher(&self, sender: SyncSender<Event>) -> Watcher {
        let address = self.address();
        let agent = agent(PATIENCE, address.tls, &self.access).unwrap();
        Watcher { address, sender, agent, user: None, token: RefCell::default() }
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

    /// Sets a key, and returns the revision.
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

    fn try_call(&self, what: &str, body: &str) -> io::Result<String> {
        let mut text = String::new();
        let watcher = self.watcher(sync_channel(1).0);
        watcher.post(&watcher.address.members[0], what, body)?.read_to_string(&mut text)?;
        Ok(text)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn run(folder: &Path, port: u16, words: &[String]) -> Child {
    let scheme = if words.is_empty() { "http" } else { "https" };
    let client = format!("{scheme}://127.0.0.1:{port}");
    let mut command = Command::new("etcd");
    // There are no peers; any port will do.
    command.args([
        "--listen-peer-urls",
        "http://127.0.0.1:0",
        "--listen-client-urls",
        &client,
        "--advertise-client-urls",
        &client,
    ]);
    command.args(words).arg("--data-dir").arg(folder).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

fn await_keys(store: &Store, rows: &[(&str, &str)]) {
    let wanted: Keys =
        rows.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
    await_that(store, &format!("{rows:?}"), |event| matches!(event, Event::Keys(_, keys) if *keys == wanted));
}

/// Waits for an event, with patience for a busy machine.
fn await_that(store: &Store, what: &str, is_so: impl Fn(&Event) -> bool) {
    let begin = Instant::now();
    while !store.wait(Duration::from_secs(1)).is_some_and(|event| is_so(&event)) {
        assert!(begin.elapsed() < Duration::from_secs(60), "not yet: {what}");
    }
}
