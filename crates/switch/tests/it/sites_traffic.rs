//! Sessions between sites: a front, a switch and backs as they run, on loopback.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::common::mesh::{Faults, Mesh, Plan, await_hops, free, keys, linked, site};
use crate::common::{Server, dial, eventually, framed, member, read_framed, status};
use tollway_switch::agent::Agent;
use tollway_switch::sites::Sites;

/// Sends frames and reads their answers at the same time. Returns the answers.
pub(crate) fn echoed(stream: &TcpStream, bodies: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let (mut to, mut from) = (stream, std::io::BufReader::new(stream));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            bodies.iter().for_each(|body| to.write_all(&framed(body)).unwrap());
        });
        bodies.iter().map(|_| read_framed(&mut from).expect("an answer for each")).collect()
    })
}

pub(crate) fn bodies(client: u8, count: u32, len: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|number| [&[client][..], &number.to_be_bytes(), &vec![number as u8; len]].concat())
        .collect()
}

/// The number of one of [`bodies`].
fn number(body: &[u8]) -> u32 {
    u32::from_be_bytes(*body[1..].first_chunk().unwrap())
}

/// Each frame of a client once, and in order at each server of a session.
pub(crate) fn check_servers(servers: &[Server], client: u8, count: u32) {
    let mut all = Vec::new();
    for server in servers {
        for connection in server.seen.lock().unwrap().values() {
            let own: Vec<u32> =
                connection.iter().filter(|body| body[0] == client).map(|body| number(body)).collect();
            assert!(own.is_sorted(), "out of order: {own:?}");
            all.extend(own);
        }
    }
    all.sort_unstable();
    assert_eq!(all, (0..count).collect::<Vec<_>>(), "each frame once");
}

/// The client's connection is broken off. Returns the time that took.
pub(crate) fn broken(mut client: &TcpStream) -> Duration {
    let began = Instant::now();
    let mut rest = Vec::new();
    let error = client.read_to_end(&mut rest).expect_err("not a regular end");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    began.elapsed()
}

pub(crate) fn ends(agent: &Agent, word: &str) -> u64 {
    status(agent).ends.get(word).copied().unwrap_or(0)
}

#[test]
fn frames_of_one_client_are_spread_and_answered_in_order() {
    let servers = [Server::start(), Server::start()];
    let mesh = Mesh::start("spread", &servers, "u16", "in-order", &Faults::None);
    let client = dial(mesh.front.listen()[0]);
    // The second half longer than a packet, both ways.
    let mut sent = bodies(1, 540, 100);
    sent[500..].iter_mut().for_each(|body| body.resize(9000, 7));
    assert!(echoed(&client, &sent) == sent, "the answers, in the order of requests");
    check_servers(&servers, 1, 540);
    for server in &servers {
        assert_eq!((server.connections(), server.frames().len()), (1, 270));
    }
    // Half closed: all is answered, then both sides end.
    (&client).write_all(&framed(b"last")).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    (&client).read_to_end(&mut rest).unwrap();
    assert_eq!(rest, framed(b"last"));
    for agent in mesh.all() {
        eventually("the session is done", || ends(agent, "done") == 1);
    }
    let at_switch = status(&mesh.switch);
    let sites = at_switch.sites.as_ref().unwrap();
    assert_eq!((sites.forged_acks, sites.replayed, sites.lost, at_switch.sessions), (0, 0, 0, 0));
    // Parts of one packet each: seven for an answer of 9002 bytes.
    assert_eq!(member(&at_switch, "m0").answers + member(&at_switch, "m1").answers, 500 + 40 * 7 + 1);
    assert_eq!(status(&mesh.front).answers, 541);
}

#[test]
fn without_failures_every_frame_comes_once_whatever_the_way_does() {
    let servers = [Server::start(), Server::start(), Server::start()];
    let faults = Faults::alike(3, 20, 20, 30);
    let mesh = Mesh::start("faults", &servers, "u16", "any", &faults);
    let address = mesh.front.listen()[0];
    std::thread::scope(|scope| {
        for client in 0..3 {
            scope.spawn(move || {
                let (stream, sent) = (dial(address), bodies(client, 400, 700));
                let mut answers = echoed(&stream, &sent);
                answers.sort();
                assert!(answers == sent, "an answer for each");
            });
        }
    });
    (0..3).for_each(|client| check_servers(&servers, client, 400));
    let done: Vec<u64> = (0..3).map(|what| faults.of(0).done[what].load(Ordering::SeqCst)).collect();
    assert!(done.iter().all(|&count| count > 10), "the way had faults: {done:?}");
    let at_switch = status(&mesh.switch).sites.unwrap();
    assert_eq!((at_switch.failures, at_switch.forged_acks, at_switch.forged), (0, 0, 0));
    assert!(at_switch.replayed > 0);
}

#[test]
fn one_way_frames_all_arrive_before_their_session_ends() {
    let servers = [Server::start(), Server::start()];
    servers.iter().for_each(|server| server.manners.one_way.store(true, Ordering::SeqCst));
    let mesh = Mesh::start("one-way", &servers, "u16", "none", &Faults::None);
    let mut client = dial(mesh.front.listen()[0]);
    for body in bodies(1, 2000, 600) {
        client.write_all(&framed(&body)).unwrap();
    }
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap(), 0, "a regular end");
    eventually("all have come", || servers.iter().map(|server| server.frames().len()).sum::<usize>() == 2000);
    check_servers(&servers, 1, 2000);
}

#[test]
fn sticky_sessions_stay_at_one_member_each_and_not_all_at_the_same() {
    let servers = [Server::start(), Server::start()];
    let mesh = Mesh::with("sticky", &servers, "u16", "any", &Faults::None, "policy = \"sticky\"\n", "");
    for client in 0..16 {
        assert_eq!(echoed(&dial(mesh.front.listen()[0]), &bodies(client, 10, 100)).len(), 10);
    }
    for server in &servers {
        let seen = server.seen.lock().unwrap();
        assert!(!seen.is_empty() && seen.values().all(|connection| connection.len() == 10));
    }
}

#[test]
fn frames_at_the_limit_fit_and_a_longer_one_ends_its_session() {
    let servers = [Server::start(), Server::start()];
    let limits = "frame = \"32 KiB\"\nsession-buffer = \"64 KiB\"\n";
    let mesh = Mesh::with("limit", &servers, "u16", "in-order", &Faults::None, "", limits);
    let client = dial(mesh.front.listen()[0]);
    let sent = bodies(1, 30, (32 << 10) - 2 - 5);
    assert!(echoed(&client, &sent) == sent, "the answers, in the order of requests");
    (&client).write_all(&framed(&vec![7; (32 << 10) - 1])).unwrap();
    broken(&client);
    assert_eq!(ends(&mesh.front, "malformed"), 1);
}

#[test]
fn a_slow_server_holds_its_client_back_and_memory_stays_bounded() {
    let servers = [Server::start()];
    servers[0].manners.hangs.store(true, Ordering::SeqCst);
    let limits = "frame = \"16 KiB\"\nsession-buffer = \"64 KiB\"\nanswer-time = \"60 s\"\n";
    let mesh = Mesh::with("slow", &servers, "u16", "none", &Faults::None, "", limits);
    let client = dial(mesh.front.listen()[0]);
    client.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    let (mut to, mut written) = (&client, 0);
    // Kernels hold some megabytes on loopback.
    while written < 100 << 20 && to.write_all(&framed(&[7; 8190])).is_ok() {
        written += 8192;
    }
    assert!(written < 100 << 20, "nothing held the client back");
    for agent in mesh.all() {
        let memory = status(agent).memory;
        assert!(memory < 1 << 20, "{memory} bytes in {:?}", status(agent).sites.unwrap().part);
    }
    servers[0].manners.hangs.store(false, Ordering::SeqCst);
    eventually("it goes on", || servers[0].frames().len() > written / 8192 - 40);
}

#[test]
fn answers_that_wait_for_a_slow_server_hold_their_client_back() {
    let servers = [Server::start(), Server::start()];
    let limits = "frame = \"16 KiB\"\nsession-buffer = \"64 KiB\"\n";
    let mesh = Mesh::with("ahead", &servers, "u16", "in-order", &Faults::None, "", limits);
    let client = dial(mesh.front.listen()[0]);
    servers[0].manners.hangs.store(true, Ordering::SeqCst);
    let sent = bodies(1, 600, 8000);
    std::thread::scope(|scope| {
        let answers = scope.spawn(|| echoed(&client, &sent));
        eventually("answers wait", || status(&mesh.front).memory > 16 << 10);
        // The client writes 4.8 MB, half of it for the other server; little of that is read.
        std::thread::sleep(Duration::from_millis(300));
        assert!(servers[1].frames().len() < 100, "{} frames read", servers[1].frames().len());
        servers[0].manners.hangs.store(false, Ordering::SeqCst);
        assert!(answers.join().unwrap() == sent, "the answers, in the order of requests");
    });
    check_servers(&servers, 1, 600);
}

#[test]
fn a_server_that_goes_has_its_frames_go_elsewhere_and_one_that_comes_back_is_used() {
    let mut servers = vec![Server::start(), Server::start()];
    let mesh = Mesh::start("server-gone", &servers, "u16", "any", &Faults::None);
    let client = dial(mesh.front.listen()[0]);
    assert_eq!(echoed(&client, &bodies(1, 50, 100)).len(), 50);
    let address = servers[1].address;
    servers[1].kill();
    eventually("the switch has heard", || status(&mesh.switch).sites.unwrap().failures == 1);
    assert_eq!(echoed(&client, &bodies(1, 50, 100)).len(), 50);
    assert_eq!(servers[0].frames().len(), 75);
    assert_eq!(ends(&mesh.backs[1], "server-ended"), 1);
    eventually("it is tried and takes no connection", || ends(&mesh.backs[1], "no-server") > 0);
    eventually("the address is free", || match Server::at(address) {
        Ok(server) => {
            servers[1] = server;
            true
        }
        Err(_) => false,
    });
    eventually("it is used again", || member(&status(&mesh.switch), "m1").connections == 1);
    assert_eq!(echoed(&client, &bodies(1, 50, 100)).len(), 50);
    assert_eq!(servers[1].frames().len(), 25);
    // None is left.
    servers.iter().for_each(Server::kill);
    broken(&client);
    eventually("they take no connections", || {
        servers.iter().all(|server| TcpStream::connect(server.address).is_err())
    });
    assert_eq!(ends(&mesh.front, "reset"), 1);
    let late = dial(mesh.front.listen()[0]);
    assert!(broken(&late) < Duration::from_secs(3), "all members refuse");
    assert_eq!(ends(&mesh.front, "no-member"), 1);
}

#[test]
fn a_member_that_is_not_heard_is_left_and_its_frames_go_to_others() {
    let servers = [Server::start(), Server::start()];
    let faults = Faults::alike(2, 0, 0, 0);
    let mesh = Mesh::start("cut", &servers, "u16", "any", &faults);
    let client = dial(mesh.front.listen()[0]);
    assert_eq!(echoed(&client, &bodies(1, 20, 100)).len(), 20);
    faults.of(2).loss.store(1000, Ordering::SeqCst);
    let began = Instant::now();
    assert_eq!(echoed(&client, &bodies(1, 20, 100)).len(), 20);
    assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
    let at_switch = status(&mesh.switch);
    assert_eq!(member(&at_switch, "m1").state, "down");
    assert!(at_switch.sites.unwrap().rerouted > 0);
    // Sessions that begin now do not wait for it.
    let (late, began) = (dial(mesh.front.listen()[0]), Instant::now());
    assert_eq!(echoed(&late, &bodies(2, 20, 100)).len(), 20);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    faults.of(2).loss.store(0, Ordering::SeqCst);
    eventually("both sessions have it again", || member(&status(&mesh.switch), "m1").connections == 2);
}

#[test]
fn clients_are_told_when_the_way_to_the_switch_is_cut() {
    let servers = [Server::start()];
    let faults = Faults::alike(1, 0, 0, 0);
    let mesh = Mesh::with("lost", &servers, "u16", "any", &faults, "", "answer-time = \"4 s\"\n");
    let client = dial(mesh.front.listen()[0]);
    assert_eq!(echoed(&client, &bodies(1, 20, 100)).len(), 20);
    faults.of(0).loss.store(1000, Ordering::SeqCst);
    (&client).write_all(&framed(b"lost")).unwrap();
    assert!(broken(&client) < Duration::from_secs(8));
    assert_eq!(ends(&mesh.front, "no-peer"), 1);
    eventually("the switch gives it up too", || status(&mesh.switch).sessions == 0);
    eventually("and the back", || status(&mesh.backs[0]).sessions == 0);
    broken(&dial(mesh.front.listen()[0]));
    assert_eq!(status(&mesh.front).refused, 1);
    faults.of(0).loss.store(0, Ordering::SeqCst);
    await_hops(mesh.all());
    assert_eq!(echoed(&dial(mesh.front.listen()[0]), &bodies(1, 20, 100)).len(), 20);
}

#[test]
fn a_switch_that_is_replaced_breaks_its_sessions_and_serves_new_ones() {
    let servers = [Server::start()];
    let mesh = Mesh::with("replaced", &servers, "u16", "any", &Faults::None, "", "grace = \"100 ms\"\n");
    let Mesh { front, switch, backs, folder, plan, .. } = mesh;
    let client = dial(front.listen()[0]);
    assert_eq!(echoed(&client, &bodies(1, 20, 100)).len(), 20);
    switch.end().unwrap();
    broken(&client);
    let switch = site(&folder, &plan.switch("", ""));
    await_hops([&front, &switch, &backs[0]]);
    assert_eq!(echoed(&dial(front.listen()[0]), &bodies(1, 20, 100)).len(), 20);
}

#[test]
fn other_keys_open_nothing_and_status_says_so() {
    let servers = [Server::start(), Server::start()];
    let mesh = Mesh::start("keys", &servers[..1], "u16", "any", &Faults::None);
    // Another mesh's keys for a back at the address of the second member, and a front with them.
    let other = keys("keys-other", 2);
    let (plan, _relays) = Plan::new(2, &Faults::None);
    let switch = site(&keys("keys-own", 2), &plan.switch("policy = \"round-robin\"\n", ""));
    let strange = site(&other, &plan.back(1, &servers[1], "u16", "any", ""));
    let front = site(&other, &plan.front("u16", "any", ""));
    let state = |agent: &_, at: usize| status(agent).sites.unwrap().neighbours[at].state;
    eventually("the switch says it of the back", || state(&switch, 2) == "wrong key");
    eventually("and of the front", || state(&switch, 0) == "wrong key");
    eventually("and they of it", || state(&strange, 0) == "wrong key" && state(&front, 0) == "wrong key");
    broken(&dial(front.listen()[0]));
    assert_eq!((status(&front).refused, status(&switch).accepted), (1, 0));
    drop(mesh);
}

/// Two sessions over two members each, by XCP: the front's link is full, shared alike, and loses
/// nothing.
#[test]
fn sessions_share_a_link_by_xcp_and_its_queue_drops_nothing() {
    let servers = [Server::start(), Server::start()];
    servers.iter().for_each(|server| server.manners.one_way.store(true, Ordering::SeqCst));
    let faults = Faults::alike(2, 0, 0, 0);
    faults.of(0).delay.store(10, Ordering::SeqCst);
    let (plan, _relays) = Plan::new(2, &faults);
    let folder = keys("xcp", 2);
    let part = |text: &str, rate| site(&folder, &linked("\"xcp\"", text, rate));
    let front = part(&plan.front("u16", "none", ""), "8 Mbps");
    let switch = part(&plan.switch("policy = \"round-robin\"\n", ""), "40 Mbps");
    let backs = servers.iter().enumerate();
    let backs: Vec<_> =
        backs.map(|(k, server)| part(&plan.back(k, server, "u16", "none", ""), "40 Mbps")).collect();
    await_hops([&front, &switch].into_iter().chain(&backs));
    (0..2).for_each(|client| flood(front.listen()[0], client));
    let rates = rates(&servers);
    let total = rates[0] + rates[1];
    assert!((7.0..8.3).contains(&total), "{rates:?} of 8 Mb/s");
    assert!((0.8..1.25).contains(&(rates[0] / rates[1])), "{rates:?}");
    assert_eq!([dropped(&front), dropped(&switch)], [0, 0]);
}

/// Sessions of two fronts over the same two members, by FCP: a budget three times as high has three
/// times as much of both members' links, which lose nothing.
#[test]
fn budgets_divide_members_links_by_fcp_and_their_queues_drop_nothing() {
    let servers = [Server::start(), Server::start()];
    servers.iter().for_each(|server| server.manners.one_way.store(true, Ordering::SeqCst));
    let faults = Faults::alike(2, 0, 0, 0);
    (1..3).for_each(|hop| faults.of(hop).delay.store(10, Ordering::SeqCst));
    let (plan, _relays) = Plan::new(2, &faults);
    let folder = keys("fcp", 3);
    let part =
        |budget, text: &str, rate| site(&folder, &linked(&format!("\"fcp\"\nbudget = {budget}"), text, rate));
    let (bound, text) = (free(1)[0], plan.front("u16", "none", ""));
    let fronts = [
        part(1.0, &text, "40 Mbps"),
        part(
            3.0,
            &text
                .replace(&plan.bound[0].to_string(), &bound.to_string())
                .replace("a.key", "m2.key")
                .replace(&plan.switch_seen[0].to_string(), &plan.bound[1].to_string()),
            "40 Mbps",
        ),
    ];
    let text = plan.switch("policy = \"round-robin\"\n", "") + &format!("[peer.m2]\naddress = \"{bound}\"\n");
    let switch = part(1.0, &text, "4 Mbps");
    let backs = servers.iter().enumerate();
    let backs: Vec<_> =
        backs.map(|(k, server)| part(1.0, &plan.back(k, server, "u16", "none", ""), "4 Mbps")).collect();
    await_hops(fronts.iter().chain([&switch]).chain(&backs));
    fronts.iter().zip(0..).for_each(|(front, client)| flood(front.listen()[0], client));
    let rates = rates(&servers);
    let total = rates[0] + rates[1];
    assert!((7.0..8.3).contains(&total), "{rates:?} of 8 Mb/s");
    assert!((2.6..3.4).contains(&(rates[1] / rates[0])), "{rates:?}");
    assert_eq!([dropped(&fronts[0]), dropped(&fronts[1]), dropped(&switch)], [0, 0, 0]);
}

#[test]
fn a_law_or_budget_that_cannot_be_names_its_remedy() {
    let (plan, _relays) = Plan::new(1, &Faults::None);
    let folder = keys("laws", 1);
    let error = |more: &str, rate: bool| {
        let text = plan.front("u16", "any", "");
        let text = if rate { text.replace("\naddress =", "\nrate = \"8 Mbps\"\naddress =") } else { text };
        Sites::parse("test", &format!("{more}\n{text}"), &folder).map(drop).unwrap_err()
    };
    for (more, rate, parts) in [
        ("law = \"xcp\"", false, ["`xcp` needs the rate of the link to `b`", "a `rate`"]),
        ("law = \"fcp\"", false, ["`fcp` needs the rate of the link to `b`", "a `rate`"]),
        ("budget = 2.0", true, ["sessions under `newreno` have no budget", "law = \"fcp\""]),
        ("law = \"fcp\"\nbudget = 0.0", true, ["`budget` must be from 0.000001 to", ""]),
        ("law = \"fcp\"\nbudget = nan", true, ["`budget` must be from 0.000001 to", ""]),
        ("law = \"rcp\"", true, ["`rcp` is not a law for sessions between sites", "xcp, fcp"]),
    ] {
        let error = error(more, rate);
        let help = error.mistakes()[0].help.clone().unwrap_or_default();
        assert!(error.to_string().contains(parts[0]) && help.contains(parts[1]), "{error}; {help}");
    }
}

/// Sends frames of 1000 bytes, each the client's number, as fast as they are taken, until the
/// process ends.
fn flood(address: SocketAddr, client: u8) {
    std::thread::spawn(move || {
        let mut stream = dial(address);
        while stream.write_all(&framed(&[client; 1000])).is_ok() {}
    });
}

/// The rates of two clients on the wire over 4 s, after 3 s, in Mb/s.
fn rates(servers: &[Server]) -> [f64; 2] {
    let counts = || {
        let mut counts = [0.0; 2];
        for frame in servers.iter().flat_map(Server::frames) {
            counts[usize::from(frame[0])] += 1.0;
        }
        counts
    };
    std::thread::sleep(Duration::from_secs(3));
    let (began, before) = (Instant::now(), counts());
    std::thread::sleep(Duration::from_secs(4));
    let (span, after) = (began.elapsed().as_secs_f64(), counts());
    // A frame of 1002 bytes and its label in a packet, sealed.
    [0, 1].map(|client| (after[client] - before[client]) * (1002.0 + 12.0 + 136.0) * 8.0 / span / 1e6)
}

fn dropped(part: &Agent) -> u64 {
    status(part).sites.unwrap().dropped
}
