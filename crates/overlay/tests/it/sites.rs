//! Three sites on one machine, linked by TLS.

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollway_overlay::agent::{self, Events, Form, Options, Signals};
use tollway_overlay::config::Site;
use tollway_overlay::keys;
use tollway_overlay::server::Server;
use tollway_overlay::tls::Ends;

use crate::common::{Client, Running, folder, over_tls, read_until, tls, until};

/// Addresses that are free now.
fn addresses(count: usize) -> Vec<SocketAddr> {
    let held: Vec<TcpListener> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    held.iter().map(|listener| listener.local_addr().unwrap()).collect()
}

/// The file of a site whose links listen at `at`.
fn file(name: &str, at: SocketAddr, links: &[(&str, Option<SocketAddr>)], more: &str) -> String {
    let mut text = format!(
        "site = \"{name}\"\nlisten = \"127.0.0.1:0\"\npatience = \"5 s\"\n[keys]\nauthority = \"ca.pem\"\n\
         certificate = \"{name}.pem\"\nkey = \"{name}.key\"\n[links]\nlisten = \"{at}\"\n{more}"
    );
    for (peer, address) in links {
        text += &format!("[link.{peer}]\nrate = \"100 Mbps\"\n");
        if let Some(address) = address {
            // By name: one of its addresses is that of the listener.
            text += &format!("address = \"localhost:{}\"\n", address.port());
        }
    }
    text
}

fn start(
    folder: &Path,
    name: &str,
    at: SocketAddr,
    links: &[(&str, Option<SocketAddr>)],
    more: &str,
) -> Running {
    Running::start(folder, &file(name, at, links, more))
}

/// Runs the agent of the file `name` until the test ends. Returns its log.
fn run_agent(folder: &Path, name: &str) -> Arc<Mutex<Vec<String>>> {
    let (file, socket) = (folder.join(name), Some(folder.join(name).with_extension("sock")));
    let said = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&said);
    std::thread::spawn(move || {
        let events = Events::to(Form::Text, move |line| told.lock().unwrap().push(line)).unwrap();
        let options = Options { socket, ..Options::default() };
        agent::run(&file, &options, &Signals::hold(), &events).unwrap();
    });
    said
}

#[test]
fn three_sites_fan_out_and_survive_the_end_of_one() {
    let folder = folder("three");
    keys::make(&folder, &["a".into(), "b".into(), "c".into()], &[], &[]).unwrap();
    let at = addresses(3);
    // A chain: a – b – c. Both a and b connect to each other, and one connection stays.
    let a = start(&folder, "a", at[0], &[("b", Some(at[1]))], "");
    let b = start(&folder, "b", at[1], &[("a", Some(at[0])), ("c", None)], "");
    let c = start(&folder, "c", at[2], &[("b", Some(at[1]))], "");
    a.until("a reaches both", |status| status.reachable >= 2);
    let (mut on_b, mut on_c, mut on_a) =
        (Client::connect(b.address), Client::connect(c.address), Client::connect(a.address));
    on_b.say("SUB plant.> 1\r\n");
    on_c.say("SUB plant.* 2\r\nSUB service 3\r\n");
    on_a.say("SUB inbox 9\r\n");
    for client in [&mut on_a, &mut on_b, &mut on_c] {
        client.flush();
    }
    // Subscriptions are flooded.
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(a.status().tenants[0].subscriptions, 1, "others' are not this site's");
    for i in 0..2000 {
        on_a.say(&format!("PUB plant.x 1000\r\n{i:01000}\r\n"));
    }
    for i in 0..2000 {
        on_b.hear(&format!("MSG plant.x 1 1000\r\n{i:01000}\r\n"));
        on_c.hear(&format!("MSG plant.x 2 1000\r\n{i:01000}\r\n"));
    }
    on_a.say("PUB service inbox 2\r\nhi\r\n");
    on_c.hear("MSG service 3 inbox 2\r\nhi\r\n");
    on_c.say("PUB inbox 2\r\nyo\r\n");
    on_a.hear("MSG inbox 9 2\r\nyo\r\n");
    // The middle site ends and returns with a new epoch. The others reconnect.
    drop(b);
    a.until("the link is down", |status| !status.links[0].up);
    let b = start(&folder, "b", at[1], &[("a", Some(at[0])), ("c", None)], "");
    a.until("a reaches both again", |status| status.reachable >= 2);
    std::thread::sleep(Duration::from_millis(500));
    on_a.say("PUB plant.y 1\r\nz\r\n");
    on_c.hear("MSG plant.y 2 1\r\nz\r\n");
    b.until("b has forwarded it", |status| status.links.iter().all(|link| link.up));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_site_whose_clock_was_set_back_starts_again_and_is_heard() {
    let folder = folder("clock");
    keys::make(&folder, &["a".into(), "b".into()], &[], &[]).unwrap();
    let at = addresses(3);
    let a = start(&folder, "a", at[0], &[("b", None)], "");
    let file = folder.join("b.toml");
    let text = format!(
        "site = \"b\"\nlisten = \"{}\"\n[keys]\nauthority = \"ca.pem\"\ncertificate = \"b.pem\"\nkey = \"b.key\"\n\
         [links]\nlisten = \"{}\"\n[link.a]\nrate = \"100 Mbps\"\naddress = \"{}\"\n",
        at[1], at[2], at[0]
    );
    std::fs::write(&file, text).unwrap();
    // A start of `b` an hour later, by the clock.
    let site = Site::load(&file).unwrap();
    let ends = Ends::load(&site).unwrap();
    let later = std::time::UNIX_EPOCH.elapsed().unwrap() + Duration::from_secs(3600);
    let mut b = Server::open(&site, ends, later.as_millis() as u64, 1).unwrap();
    b.run(|server, _| server.status().reachable == 1).unwrap();
    a.until("a knows that start", |status| status.reachable == 1);
    drop(b);
    a.until("it is over", |status| !status.links[0].up);
    // The clock is right again.
    let said = run_agent(&folder, "b.toml");
    until("it has started again", || {
        said.lock().unwrap().iter().filter(|line| line.contains("site b listens")).count() == 2
    });
    let mut on_a = Client::connect(a.address);
    on_a.say("SUB news 1\r\n");
    on_a.flush();
    on_a.stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    until("a hears b", || {
        let mut on_b = Client::connect(at[1]);
        on_b.say("PUB news 5\r\nhello\r\n");
        on_b.flush();
        on_a.read();
        String::from_utf8_lossy(&on_a.heard).contains("MSG news 1 5\r\nhello\r\n")
    });
    assert!(said.lock().unwrap().iter().any(|line| line.contains("the clock was probably set back")));
}

#[test]
fn only_a_site_with_links_needs_its_name_in_its_certificate() {
    let folder = folder("named");
    keys::make(&folder, &["other".into()], &[], &[]).unwrap();
    let text = "site = \"a\"\nlisten = \"127.0.0.1:0\"\ntls = \"on\"\n[keys]\nauthority = \"ca.pem\"\n\
        certificate = \"other.pem\"\nkey = \"other.key\"\n";
    let site = |more: &str| Site::parse(&folder.join("a.toml"), &format!("{text}{more}")).unwrap();
    assert!(Ends::load(&site("")).unwrap().is_some());
    let wrong = Ends::load(&site("[links]\nlisten = \"127.0.0.1:0\"\n")).unwrap_err();
    assert!(wrong.to_string().contains("is not for `a.site.tollway`"), "{wrong}");
}

#[test]
fn changed_certificates_are_for_new_connections_and_end_no_other() {
    let (folder, older, newer) = (folder("reloaded"), folder("older"), folder("newer"));
    for keys in [&older, &newer] {
        keys::make(keys, &["a".into(), "b".into(), "c".into()], &[], &[]).unwrap();
    }
    let install = |keys: &Path| {
        for file in ["ca.pem", "a.pem", "a.key", "b.pem", "b.key"] {
            std::fs::copy(keys.join(file), folder.join(file)).unwrap();
        }
    };
    install(&older);
    let at = addresses(5);
    let logs = [("a", vec![("b", None), ("c", Some(at[4]))]), ("b", vec![("a", Some(at[2]))])];
    let logs = logs.iter().zip([at[0], at[1]]).zip([at[2], at[3]]);
    let logs = logs.map(|(((name, links), clients), at)| {
        let listen = format!("listen = \"{clients}\"\ntls = \"on\"");
        let text = file(name, at, links, "").replace("listen = \"127.0.0.1:0\"", &listen);
        std::fs::write(folder.join(format!("{name}.toml")), text).unwrap();
        run_agent(&folder, &format!("{name}.toml"))
    });
    let logs: Vec<_> = logs.collect();
    let says = |part: &str| {
        let has = |log: &&Arc<Mutex<Vec<String>>>| log.lock().unwrap().iter().any(|line| line.contains(part));
        logs.iter().filter(has).count()
    };
    until("both are linked", || says("is connected") == 2);
    let [mut receiver, mut sender] = [at[0], at[1]].map(|at| tls(at, &older, &older, None));
    receiver.write_all(b"CONNECT {}\r\nSUB news 1\r\nPING\r\n").unwrap();
    assert_eq!(read_until(&mut receiver, "PONG\r\n"), "PONG\r\n");
    // Subscriptions are flooded.
    std::thread::sleep(Duration::from_millis(500));
    sender.write_all(b"CONNECT {}\r\n").unwrap();
    let mut expected = String::new();
    let mut publish = || {
        let body = format!("{:06}", expected.len());
        sender.write_all(format!("PUB news 6\r\n{body}\r\n").as_bytes()).unwrap();
        expected += &format!("MSG news 1 6\r\n{body}\r\n");
    };
    publish();
    install(&newer);
    until("both use the changed certificates", || {
        publish();
        says("use the changed certificates") == 2
    });
    // New connections of clients, and of a new site.
    let answer = |keys: &Path| over_tls(at[0], keys, keys, None, "CONNECT {}\r\n");
    until("the newer authority is in force", || answer(&newer).contains("PONG"));
    assert_eq!(answer(&older), "");
    let c = start(&newer, "c", at[4], &[("a", None)], "");
    c.until("the new site is linked", |status| status.links.iter().any(|link| link.up));
    publish();
    let last = expected[expected.len() - 8..].to_owned();
    assert_eq!(read_until(&mut receiver, &last), expected);
    for cut in ["site a is not connected", "site b is not connected"] {
        assert_eq!(says(cut), 0, "{logs:?}");
    }
}

#[test]
fn queue_groups_leave_out_a_site_that_has_ended() {
    let folder = folder("ended");
    keys::make(&folder, &["a".into(), "b".into(), "c".into()], &[], &[]).unwrap();
    let at = addresses(3);
    let a = start(&folder, "a", at[0], &[("b", Some(at[1]))], "");
    let b = start(&folder, "b", at[1], &[("a", None), ("c", None)], "");
    let c = start(&folder, "c", at[2], &[("b", Some(at[1]))], "");
    a.until("a reaches both", |status| status.reachable == 2);
    let (mut on_a, mut on_b, mut on_c) =
        (Client::connect(a.address), Client::connect(b.address), Client::connect(c.address));
    for member in [&mut on_b, &mut on_c] {
        member.say("SUB work q 1\r\nSUB service q 2\r\n");
        member.flush();
    }
    on_a.say("SUB inbox 9\r\n");
    until("both members have jobs", || {
        on_a.say(&"PUB work 3\r\nold\r\n".repeat(20));
        on_a.flush();
        b.status().delivered > 0 && c.status().delivered > 0
    });
    // As if killed: nothing is withdrawn.
    drop(c);
    a.until("a has noticed", |status| status.reachable == 1);
    on_a.say(&"PUB work 3\r\nnew\r\n".repeat(1000));
    on_a.say("PUB work 3\r\nend\r\n");
    let heard = on_b.hear("end\r\n");
    assert_eq!(heard.matches("\r\nnew\r\n").count(), 1000);
    drop(b);
    a.until("a is alone", |status| status.reachable == 0);
    on_a.say("PUB service inbox 0\r\n\r\n");
    on_a.hear("HMSG inbox 9 16 16\r\nNATS/1.0 503");
    assert_eq!(a.status().lost.expired, 0);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn sites_without_the_right_certificate_are_refused() {
    let (folder, other) = (folder("strangers"), folder("others"));
    keys::make(&folder, &["a".into(), "b".into(), "c".into()], &[], &[]).unwrap();
    keys::make(&other, &["b".into()], &[], &[]).unwrap();
    let at = addresses(3);
    let a = start(&folder, "a", at[0], &[("b", None)], "");
    // One of another authority, and one of this authority whose site has no link.
    let stranger = start(&other, "b", at[1], &[("a", Some(at[0]))], "");
    let unknown = start(&folder, "c", at[2], &[("a", Some(at[0]))], "");
    // A connection that sends nothing.
    let silent = TcpStream::connect(at[0]).unwrap();
    until("both are refused", || {
        let notes = a.notes.lock().unwrap();
        notes.iter().any(|note| note.contains("does not match any"))
            && notes.iter().filter(|note| note.contains("refused")).count() >= 2
    });
    assert!(!a.status().links[0].up && !stranger.status().links[0].up && !unknown.status().links[0].up);
    drop(silent);
    // The right site is still accepted.
    let right = start(
        &folder,
        "b",
        at[1].ip().to_string().parse::<std::net::IpAddr>().map(|ip| SocketAddr::new(ip, 0)).unwrap(),
        &[("a", Some(at[0]))],
        "",
    );
    a.until("the right one is linked", |status| status.links[0].up);
    drop(right);
    for folder in [folder, other] {
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn a_site_that_ends_accepts_no_client() {
    let site = Site::parse("site.toml".as_ref(), "site = \"a\"\nlisten = \"127.0.0.1:0\"\n").unwrap();
    let mut server = Server::open(&site, None, 1, 1).unwrap();
    TcpStream::connect(server.address()).unwrap();
    server.retire();
    let refused = TcpStream::connect(server.address()).map_err(|error| error.kind());
    assert_eq!(refused.unwrap_err(), ErrorKind::ConnectionRefused);
}
