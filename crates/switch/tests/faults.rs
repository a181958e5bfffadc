//! Members killed, hung and returning, slow clients and slow members, for a while and from a seed: what was promised of every frame holds.

mod common;

use std::collections::HashMap;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::*;

/// A generator of SplitMix64: the same faults for the same seed.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % most
    }
}

/// How long the soak is, and from which seed: `TOLLWAY_SOAK_SECONDS`, `TOLLWAY_SOAK_SEED`.
fn soak() -> (Duration, u64) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    (
        Duration::from_secs(number("TOLLWAY_SOAK_SECONDS").unwrap_or(10)),
        number("TOLLWAY_SOAK_SEED").unwrap_or(1),
    )
}

/// What a client saw of its frames.
#[derive(Default)]
struct Seen {
    sent: u64,
    answered: HashMap<u64, u64>,
    broken: bool,
}

/// Sends numbered frames, a window at a time, until it is over; reads slowly now and then.
fn client(at: std::net::SocketAddr, number: u64, seed: u64, over: &AtomicBool) -> Vec<Seen> {
    let mut seeded = Seeded(seed ^ number.wrapping_mul(77));
    let mut sessions = Vec::new();
    let mut next = number << 40;
    while !over.load(Ordering::SeqCst) {
        let mut seen = Seen::default();
        let Ok(mut stream) = TcpStream::connect(at) else {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        };
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let frames = 1 + seeded.below(400);
        for _ in 0..frames {
            let window = 1 + seeded.below(20);
            let mut batch = Vec::new();
            for _ in 0..window {
                let mut body = next.to_be_bytes().to_vec();
                body.resize(8 + seeded.below(3000) as usize, number as u8);
                batch.extend(framed(&body));
                next += 1;
            }
            seen.sent += window;
            if stream.write_all(&batch).is_err() {
                seen.broken = true;
                break;
            }
            if seeded.below(20) == 0 {
                std::thread::sleep(Duration::from_millis(seeded.below(60)));
            }
            for _ in 0..window {
                let Some(body) = read_framed(&mut stream) else {
                    seen.broken = true;
                    break;
                };
                *seen.answered.entry(u64::from_be_bytes(body[..8].try_into().unwrap())).or_default() += 1;
            }
            if seen.broken || over.load(Ordering::SeqCst) {
                break;
            }
        }
        if !seen.broken {
            // Half a frame, now and then.
            if seeded.below(4) == 0 {
                let _ = stream.write_all(&framed(&[0; 100])[..50]);
            }
            let _ = stream.shutdown(Shutdown::Write);
            assert_eq!(read_framed(&mut stream), None, "no answer that was not asked");
        }
        sessions.push(seen);
    }
    sessions
}

fn run(retry: &str) {
    let (length, seed) = soak();
    eprintln!("faults, {retry}: {length:?} from TOLLWAY_SOAK_SEED={seed}");
    let mut servers: Vec<Option<Server>> = (0..4).map(|_| Some(Server::start())).collect();
    let addresses: Vec<_> = servers.iter().flatten().map(|server| server.address).collect();
    let members: Vec<_> = ["a", "b", "c", "d"].into_iter().zip(addresses.iter().copied()).collect();
    let more = format!(
        "policy = \"least-loaded\"\nretry = \"{retry}\"\n[limits]\nframe = \"16 KiB\"\nsession-buffer = \"64 KiB\"\nmember-buffer = \"256 KiB\"\nanswer-time = \"500 ms\"\nconnect-time = \"500 ms\""
    );
    let agent = switch("u16", &more, &members);
    let at = agent.listen()[0];
    let over = Arc::new(AtomicBool::new(false));
    let most = Arc::new(AtomicU64::new(0));
    let clients: Vec<_> = (0..6)
        .map(|number| {
            let over = Arc::clone(&over);
            std::thread::spawn(move || client(at, number, seed, &over))
        })
        .collect();
    let mut seeded = Seeded(seed);
    let mut carried: HashMap<u64, u64> = HashMap::new();
    let mut collect = |server: &Server| {
        // A killed server's threads may still be at it.
        std::thread::sleep(Duration::from_millis(20));
        for frames in server.seen.lock().unwrap().values() {
            for body in frames {
                *carried.entry(u64::from_be_bytes(body[..8].try_into().unwrap())).or_default() += 1;
            }
        }
    };
    let until = Instant::now() + length;
    while Instant::now() < until {
        let at = seeded.below(4) as usize;
        match (seeded.below(5), &servers[at]) {
            (0 | 1, Some(server)) if servers.iter().flatten().count() > 2 => {
                server.kill();
                collect(server);
                servers[at] = None;
            }
            (2, Some(server)) => {
                let manners = Arc::clone(&server.manners);
                manners.hangs.store(true, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(seeded.below(900)));
                manners.hangs.store(false, Ordering::SeqCst);
            }
            (3, Some(server)) => server.manners.work.store(seeded.below(300), Ordering::SeqCst),
            (_, None) => servers[at] = Server::at(addresses[at]).ok(),
            _ => {}
        }
        std::thread::sleep(Duration::from_millis(seeded.below(150)));
        most.fetch_max(status(&agent).memory, Ordering::SeqCst);
    }
    for (server, &address) in servers.iter_mut().zip(&addresses) {
        if server.is_none() {
            *server = Server::at(address).ok();
        }
        server.iter().for_each(|server| server.manners.hangs.store(false, Ordering::SeqCst));
    }
    over.store(true, Ordering::SeqCst);
    let sessions: Vec<Seen> = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
    servers.iter().flatten().for_each(|server| {
        server.kill();
        collect(server);
    });

    let (mut sent, mut answered, mut broken) = (0, 0, 0);
    for seen in &sessions {
        sent += seen.sent;
        answered += seen.answered.len() as u64;
        broken += u64::from(seen.broken);
        for (number, times) in &seen.answered {
            assert_eq!(*times, 1, "an answer comes once");
            assert!(carried.contains_key(number), "what was answered was carried out");
        }
        assert!(
            seen.broken || seen.answered.len() as u64 == seen.sent,
            "a session that ended well had all answers"
        );
    }
    if retry == "never" {
        assert!(carried.values().all(|&times| times == 1), "never twice");
    } else {
        assert_eq!(broken, 0, "another member has always answered");
    }
    // Six sessions, and what they may hold.
    let bound = 7 * (3 * (64 << 10) + 3 * (256 << 10) + 5 * (16 << 10));
    assert!(most.load(Ordering::SeqCst) <= bound, "{most:?} bytes at most");
    assert!(answered > 100, "{answered}");
    eprintln!("{sent} frames of {} sessions, {answered} answered, {broken} sessions told", sessions.len());
    agent.end().unwrap();
}

#[test]
fn nothing_is_carried_out_twice_and_what_is_not_answered_is_told() {
    run("never");
}

#[test]
fn what_may_be_sent_again_is_always_answered() {
    run("idempotent");
}

#[test]
fn a_switch_that_is_gone_is_seen_by_its_clients_and_another_takes_over() {
    let server = Server::start();
    let agent = switch("u16", "[limits]\ngrace = \"100 ms\"", &[("a", server.address)]);
    let mut client = connect(&agent);
    client.write_all(&framed(b"one")).unwrap();
    assert_eq!(read_framed(&mut client).unwrap(), b"one");
    server.manners.hangs.store(true, Ordering::SeqCst);
    client.write_all(&framed(b"two")).unwrap();
    client.write_all(&framed(b"three")).unwrap();
    eventually("both have come", || status(&agent).frames == 3);
    let at = agent.listen()[0];
    agent.end().unwrap();
    assert_eq!(read_framed(&mut client), None, "its session is told");
    server.manners.hangs.store(false, Ordering::SeqCst);
    let text = format!("listen = \"{at}\"\nframes = \"u16\"\n[member.a]\naddress = \"{}\"\n", server.address);
    let config = tollway_switch::config::Config::parse("test", &text, None).unwrap();
    let next = tollway_switch::agent::Agent::start(config, "test".into(), [7; 16]).unwrap();
    let mut client = connect(&next);
    client.write_all(&framed(b"four")).unwrap();
    assert_eq!(read_framed(&mut client).unwrap(), b"four");
    next.end().unwrap();
}

#[test]
fn a_half_open_member_is_noticed_and_its_frames_are_answered_by_another() {
    let (mute, good) = (Server::start(), Server::start());
    mute.manners.one_way.store(true, Ordering::SeqCst);
    let more = "policy = \"round-robin\"\nretry = \"idempotent\"\n[limits]\nanswer-time = \"300 ms\"";
    let agent = switch("u16", more, &[("mute", mute.address), ("good", good.address)]);
    let mut client = connect(&agent);
    for number in 0..50u8 {
        client.write_all(&framed(&[number])).unwrap();
    }
    let mut got: Vec<u8> = (0..50).map(|_| read_framed(&mut client).unwrap()[0]).collect();
    got.sort_unstable();
    assert_eq!(got, (0..50).collect::<Vec<_>>());
    let now = status(&agent);
    assert_eq!(member(&now, "mute").retried, 25);
    assert!(member(&now, "mute").last_failure.as_ref().unwrap().contains("without an answer"));
    agent.end().unwrap();
}

#[test]
fn with_no_member_at_all_a_session_is_told() {
    let gone = Server::start();
    gone.kill();
    std::thread::sleep(Duration::from_millis(50));
    let more = "[limits]\nanswer-time = \"300 ms\"\nconnect-time = \"200 ms\"";
    let agent = switch("u16", more, &[("a", gone.address)]);
    let mut client = connect(&agent);
    client.write_all(&framed(b"hello")).unwrap();
    assert_eq!(read_framed(&mut client), None);
    assert_eq!(status(&agent).ends["no-member"], 1);
    agent.end().unwrap();
}
