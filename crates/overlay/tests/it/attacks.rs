//! Attacks by clients on real sockets. They must end only their own connections.

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;

use tollway_law::Time;
use tollway_overlay::broker::{Broker, Then};
use tollway_overlay::keys;
use tollway_overlay::rules::{Proof, SiteRules, TenantRules};
use tollway_proto::overlay::{Config, DaemonId};

use crate::common::{Client, Running, folder, over_tls};

const SITE: &str = "site = \"a\"\nlisten = \"127.0.0.1:0\"\npayload = \"64 KiB\"\n\
                    [tenant.x]\nconnections = 20\nsubscriptions = 2000\n[tenant.y]\npassword = \"y\"\n";

/// Checks that another tenant's clients still receive each other's messages.
fn works(site: &Running) {
    let hello = "CONNECT {\"user\":\"y\",\"pass\":\"y\"}\r\nSUB ok 1\r\nPUB ok 2\r\nhi\r\n";
    let mut stream = TcpStream::connect(site.address).unwrap();
    stream.write_all(hello.as_bytes()).unwrap();
    Client { stream, heard: Vec::new() }.hear("MSG ok 1 2\r\nhi\r\n");
}

#[test]
fn nonsense_is_refused_with_its_reason() {
    let site = Running::start(&folder("nonsense"), SITE);
    let long = format!("SUB {} 1\r\n", "a".repeat(5000));
    let deep = format!("SUB {}a 1\r\nPING\r\n", "a.".repeat(100));
    for (text, why) in [
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", "Unknown Protocol Operation"),
        ("\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\u{0}\u{1}\u{fc}", "Unknown Protocol Operation"),
        ("PUB a 65537\r\n", "Maximum Payload Violation"),
        ("HPUB a 9 5\r\nhello\r\n", "Parser Error"),
        ("CONNECT {\"user\":\"y\",\"pass\":\"x\"}\r\n", "Authorization Violation"),
        (long.as_str(), "Maximum Control Line Exceeded"),
    ] {
        let mut stream = TcpStream::connect(site.address).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let heard = Client { stream, heard: Vec::new() }.end();
        assert!(heard.ends_with(&format!("-ERR '{why}'\r\n")), "{text}: {heard}");
    }
    let mut client = Client::connect(site.address);
    client.say(&deep);
    assert!(client.hear("PONG\r\n").contains("Invalid Subject"));
    works(&site);
}

#[test]
fn half_lines_and_half_messages_hold_up_nobody_else() {
    let site = Running::start(&folder("halves"), SITE);
    let mut held = Vec::new();
    for i in 0..15 {
        let mut client = Client::connect(site.address);
        client.say(if i % 2 == 0 { "SUB half" } else { "PUB a 65536\r\nonly so much" });
        held.push(client);
    }
    works(&site);
    // A half operation can still be completed.
    held[0].say(".a 1\r\nPUB half.a 1\r\nx\r\n");
    held[0].hear("MSG half.a 1 1\r\nx\r\n");
}

#[test]
fn half_lines_and_half_messages_take_little_memory() {
    // Memory is counted per process, so another process runs this test alone.
    if std::env::var_os(ALONE).is_none() {
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "attacks::half_lines_and_half_messages_take_little_memory"]).env(ALONE, "yes");
        let done = again.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
        return;
    }
    let site = Running::start(&folder("memory"), "site = \"a\"\nlisten = \"127.0.0.1:0\"\n[tenant.x]\n");
    let mut held: Vec<Client> = (0..20).map(|_| Client::connect(site.address)).collect();
    let before = resident();
    held.extend((0..200).map(|_| Client::connect(site.address)));
    for (i, client) in held.iter_mut().enumerate() {
        client.say(match i % 3 {
            0 => "SUB half",
            1 => "PUB a 1048576\r\nonly so much",
            _ => "HPUB a 20 1048576\r\nNATS/1.0\r\nk",
        });
    }
    // Every client's input has been read, and reading continues.
    std::thread::sleep(std::time::Duration::from_millis(200));
    for (i, client) in held.iter_mut().enumerate() {
        client.say(if i % 3 == 0 { ".a" } else { "more" });
    }
    std::thread::sleep(std::time::Duration::from_millis(200));
    let each = (resident() - before) / 200;
    assert!(each < 32 << 10, "{each} bytes for each");
    held[0].say(" 1\r\nPUB half.a 1\r\nx\r\n");
    held[0].hear("MSG half.a 1 1\r\nx\r\n");
}

/// Bytes of memory that this process uses.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

const ALONE: &str = "TOLLWAY_TEST_ALONE";

#[test]
fn bombs_of_subscriptions_subjects_and_headers_are_bounded() {
    let site = Running::start(&folder("bombs"), SITE);
    let mut bomb = Client::connect(site.address);
    let wild: String = (0..1500)
        .map(|i| {
            let tokens: Vec<&str> = (0..12).map(|bit| if i >> bit & 1 == 0 { "*" } else { "a" }).collect();
            format!("SUB {}.> {i}\r\n", tokens.join("."))
        })
        .collect();
    bomb.say(&wild);
    bomb.flush();
    works(&site);
    let mut other = Client::connect(site.address);
    let subjects: String = (0..20_000).map(|i| format!("PUB s.{i} 0\r\n\r\n")).collect();
    other.say(&subjects);
    other.flush();
    let header = format!("NATS/1.0\r\n{}\r\n", "k: v\r\n".repeat(10_000));
    other.say(&format!("SUB h 1\r\nHPUB h {0} {0}\r\n{header}\r\n", header.len()));
    other.hear(&format!("HMSG h 1 {0} {0}\r\n", header.len()));
    works(&site);
    // A subscription beyond the limit ends the connection, which frees its subscriptions.
    let more: String = (0..600).map(|i| format!("SUB more.{i} m{i}\r\n")).collect();
    bomb.say(&more);
    assert!(bomb.end().ends_with("-ERR 'maximum subscriptions exceeded'\r\n"));
    site.until("room is given back", |status| status.tenants[0].subscriptions == 1);
    works(&site);
}

/// This bound holds whatever the sum of all tenants' limits is.
#[test]
fn subscriptions_beyond_what_a_site_announces_are_refused() {
    let now = Time::ZERO;
    let open = SiteRules::open("a");
    let tenant = |name: &str| TenantRules {
        name: name.into(),
        proof: Proof::Secret { password: Some(name.into()), token: None },
        ..open.tenants[0].clone()
    };
    let rules = SiteRules { tenants: vec![tenant("x"), tenant("y")], ..open.clone() };
    let mut broker = Broker::new(rules, 1);
    broker.join_sites(now, Config { id: DaemonId(1), ..Config::default() }, 1);
    let connect = |broker: &mut Broker, tenant: &str| {
        let key = broker.open(now, "client".into(), "h", 1);
        let hello = format!("CONNECT {{\"user\":\"{tenant}\",\"pass\":\"{tenant}\"}}\r\nSUB mine 1\r\n");
        broker.receive(now, key, hello.as_bytes());
        key
    };
    let (bomb, other) = (connect(&mut broker, "x"), connect(&mut broker, "y"));
    let rest = "s".repeat(450);
    let subscribe = |i: usize| format!("SUB {i}.{rest} {i}\r\n");
    let refused = (2..).find(|&i| broker.receive(now, bomb, subscribe(i).as_bytes()).then == Then::Close);
    let refused = refused.unwrap();
    assert!((30_000..33_000).contains(&refused), "at {refused}");
    assert_eq!(broker.why(bomb), Some("maximum subscriptions exceeded"));
    // The end of the connection frees its subscriptions.
    let again = broker.receive(now, other, subscribe(2).as_bytes());
    assert!(again.then != Then::Close && broker.status().tenants[1].subscriptions == 2);
}

#[test]
fn a_tenant_has_so_many_connections_and_others_have_theirs() {
    let site = Running::start(&folder("connections"), SITE);
    let mut held: Vec<Client> = (0..20).map(|_| Client::connect(site.address)).collect();
    let mut refused = TcpStream::connect(site.address).unwrap();
    refused.write_all(b"CONNECT {}\r\n").unwrap();
    let heard = Client { stream: refused, heard: Vec::new() }.end();
    assert!(heard.ends_with("-ERR 'maximum account active connections exceeded'\r\n"), "{heard}");
    works(&site);
    held.pop();
    site.until("a connection is free", |status| status.tenants[0].connections == 19);
    Client::connect(site.address);
}

#[test]
fn a_certificate_lets_its_own_tenant_in_and_nobody_else() {
    let (folder, foreign) = (folder("tenants"), folder("foreign"));
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    keys::make(&folder, &names(&["a"]), &names(&["x", "y"]), &[]).unwrap();
    keys::make(&foreign, &names(&["a"]), &names(&["x"]), &[]).unwrap();
    let text = "site = \"a\"\nlisten = \"127.0.0.1:0\"\ntls = \"on\"\n[keys]\nauthority = \"ca.pem\"\n\
                certificate = \"a.pem\"\nkey = \"a.key\"\n[tenant.x]\ncertificate = true\n\
                [tenant.y]\ncertificate = true\n[tenant.z]\npassword = \"z\"\n";
    let site = Running::start(&folder, text);
    let (hello, by_password) = ("CONNECT {}\r\n", "CONNECT {\"user\":\"z\",\"pass\":\"z\"}\r\n");
    for (shown, hello) in [(Some("tenant-x"), hello), (None, by_password)] {
        assert!(over_tls(site.address, &folder, &folder, shown, hello).contains("PONG"), "{shown:?}");
    }
    let refused = "-ERR 'Authorization Violation'\r\n";
    for (shown, hello) in [
        (None, hello),
        (None, "CONNECT {\"user\":\"x\"}\r\n"),
        (Some("tenant-y"), "CONNECT {\"user\":\"x\"}\r\n"),
        // A site's certificate is not valid for a tenant.
        (Some("a"), "CONNECT {\"user\":\"x\"}\r\n"),
    ] {
        let heard = over_tls(site.address, &folder, &folder, shown, hello);
        assert!(heard.ends_with(refused), "{shown:?} {hello}: {heard}");
    }
    // A certificate of another authority: no connection.
    assert_eq!(over_tls(site.address, &folder, &foreign, Some("tenant-x"), hello), "");
    site.until("all have left", |status| status.clients == 0);
}
