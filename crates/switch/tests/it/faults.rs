//! Members killed, hung, half-open, slow and returning, slow clients, half frames, for a while and
//! from a seed: what was promised of every frame holds.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tollway_switch::agent::{Agent, Events};
use tollway_switch::status::MemberStatus;

use crate::common::*;

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

/// Length and seed of the soak: `TOLLWAY_SOAK_SECONDS`, `TOLLWAY_SOAK_SEED`.
fn soak() -> (Duration, u64) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    (
        Duration::from_secs(number("TOLLWAY_SOAK_SECONDS").unwrap_or(10)),
        number("TOLLWAY_SOAK_SEED").unwrap_or(1),
    )
}

/// Clients of a soak.
const CLIENTS: u64 = 6;

/// A client's view of its frames.
#[derive(Default)]
struct Seen {
    sent: u64,
    answered: HashMap<u64, u64>,
    broken: bool,
}

/// A frame with its number, of up to 3 kB.
fn numbered(number: u64, seeded: &mut Seeded) -> Vec<u8> {
    let mut body = number.to_be_bytes().to_vec();
    body.resize(8 + seeded.below(3000) as usize, number as u8);
    framed(&body)
}

fn number(body: &[u8]) -> u64 {
    u64::from_be_bytes(body[..8].try_into().unwrap())
}

/// Sends numbered frames, a window at a time, until it is over; reads slowly now and then. The last
/// of the clients is slow: it has ten windows under way and waits before each answer.
fn client(at: SocketAddr, client: u64, seed: u64, over: &AtomicBool) -> Vec<Seen> {
    let mut seeded = Seeded(seed ^ client.wrapping_mul(77));
    let slow = client == CLIENTS - 1;
    let mut sessions = Vec::new();
    let mut next = client << 40;
    while !over.load(Ordering::SeqCst) {
        let mut seen = Seen::default();
        let Ok(stream) = TcpStream::connect(at) else {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        };
        if slow {
            socket2::SockRef::from(&stream).set_recv_buffer_size(8 << 10).unwrap();
        }
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let (mut to, mut from) = (&stream, &stream);
        let frames = 1 + seeded.below(400);
        for _ in 0..frames {
            let window = if slow { 200 } else { 1 + seeded.below(20) };
            let batch: Vec<u8> = (next..next + window).flat_map(|at| numbered(at, &mut seeded)).collect();
            next += window;
            seen.sent += window;
            let pause = seeded.below(20) == 0;
            std::thread::scope(|scope| {
                let write = scope.spawn(move || to.write_all(&batch).is_ok());
                if pause {
                    std::thread::sleep(Duration::from_millis(seeded.below(60)));
                }
                for _ in 0..window {
                    if slow {
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    let Some(body) = read_framed(&mut from) else {
                        seen.broken = true;
                        break;
                    };
                    *seen.answered.entry(number(&body)).or_default() += 1;
                }
                seen.broken |= !write.join().unwrap();
            });
            if seen.broken || over.load(Ordering::SeqCst) {
                break;
            }
        }
        if !seen.broken {
            // Half a frame, now and then.
            if seeded.below(4) == 0 {
                let _ = to.write_all(&framed(&[0; 100])[..50]);
            }
            let _ = stream.shutdown(Shutdown::Write);
            assert_eq!(read_framed(&mut from), None, "no answer that was not asked");
        }
        sessions.push(seen);
    }
    sessions
}

/// Sends numbered one-way frames until it is over. Returns their count.
fn one_way_client(at: SocketAddr, client: u64, seed: u64, over: &AtomicBool) -> u64 {
    let mut seeded = Seeded(seed ^ client.wrapping_mul(77));
    let mut next = client << 40;
    while !over.load(Ordering::SeqCst) {
        let Ok(mut stream) = TcpStream::connect(at) else { continue };
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        for _ in 0..1 + seeded.below(100) {
            let window = 1 + seeded.below(20);
            let batch: Vec<u8> = (next..next + window).flat_map(|at| numbered(at, &mut seeded)).collect();
            stream.write_all(&batch).expect("a one-way session is not broken off");
            next += window;
            std::thread::sleep(Duration::from_millis(seeded.below(10)));
            if over.load(Ordering::SeqCst) {
                break;
            }
        }
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "its end is regular, once all frames are done");
    }
    next - (client << 40)
}

/// Four servers, and what they have carried out.
struct Cluster {
    servers: Vec<Option<Server>>,
    addresses: Vec<SocketAddr>,
    one_way: bool,
    carried: HashMap<u64, u64>,
}

impl Cluster {
    fn start(one_way: bool) -> Cluster {
        let servers: Vec<_> = (0..4).map(|_| Server::start()).collect();
        let addresses = servers.iter().map(|server| server.address).collect();
        servers.iter().for_each(|server| server.manners.one_way.store(one_way, Ordering::SeqCst));
        Cluster {
            servers: servers.into_iter().map(Some).collect(),
            addresses,
            one_way,
            carried: HashMap::new(),
        }
    }

    fn switch(&self, more: &str) -> Agent {
        let members: Vec<_> = ["a", "b", "c", "d"].into_iter().zip(self.addresses.iter().copied()).collect();
        let limits = "[limits]\nframe = \"16 KiB\"\nsession-buffer = \"64 KiB\"\nmember-buffer = \"256 KiB\"\n\
                      answer-time = \"500 ms\"\nconnect-time = \"500 ms\"";
        switch("u16", &format!("{more}\n{limits}"), &members)
    }

    fn kill(&mut self, at: usize) {
        let Some(server) = self.servers[at].take() else { return };
        server.kill();
        // A killed server's threads may still be at it.
        std::thread::sleep(Duration::from_millis(20));
        for body in server.frames() {
            *self.carried.entry(number(&body)).or_default() += 1;
        }
    }

    fn revive(&mut self, at: usize) {
        if self.servers[at].is_none()
            && let Ok(server) = Server::at(self.addresses[at])
        {
            server.manners.one_way.store(self.one_way, Ordering::SeqCst);
            self.servers[at] = Some(server);
        }
    }

    /// One fault: a member is killed, hangs, reads and answers nothing, is slow, or returns.
    fn disturb(&mut self, seeded: &mut Seeded) {
        let at = seeded.below(4) as usize;
        let alive = self.servers.iter().flatten().count();
        let kind = seeded.below(7);
        let Some(server) = &self.servers[at] else { return self.revive(at) };
        let manners = Arc::clone(&server.manners);
        match kind {
            0 | 1 if alive > 2 => self.kill(at),
            2 => {
                manners.hangs.store(true, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(seeded.below(900)));
                manners.hangs.store(false, Ordering::SeqCst);
            }
            // Half-open: no answer comes on its connections any more.
            3 if alive > 2 => {
                manners.one_way.store(true, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(seeded.below(900)));
                self.kill(at);
            }
            4 => manners.work.store(seeded.below(300), Ordering::SeqCst),
            // Slower than its window drains in `answer-time`.
            5 => manners.work.store(20_000, Ordering::SeqCst),
            _ => manners.work.store(0, Ordering::SeqCst),
        }
    }

    fn heal(&mut self) {
        for at in 0..4 {
            self.revive(at);
            if let Some(server) = &self.servers[at] {
                server.manners.hangs.store(false, Ordering::SeqCst);
                server.manners.work.store(0, Ordering::SeqCst);
            }
        }
    }

    fn end(&mut self) {
        (0..4).for_each(|at| self.kill(at));
    }
}

/// Disturbs the cluster while `work` runs for each client. Returns their results and the most
/// memory that sessions held.
fn soak_with<T: Send + 'static>(
    cluster: &mut Cluster,
    agent: &Agent,
    work: impl Fn(SocketAddr, u64, u64, &AtomicBool) -> T + Copy + Send + 'static,
) -> (Vec<T>, u64) {
    let (length, seed) = soak();
    let over = Arc::new(AtomicBool::new(false));
    let at = agent.listen()[0];
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let over = Arc::clone(&over);
            std::thread::spawn(move || work(at, client, seed, &over))
        })
        .collect();
    let (mut seeded, mut most) = (Seeded(seed), 0);
    let until = Instant::now() + length;
    while Instant::now() < until {
        cluster.disturb(&mut seeded);
        std::thread::sleep(Duration::from_millis(seeded.below(150)));
        most = most.max(status(agent).memory);
    }
    cluster.heal();
    over.store(true, Ordering::SeqCst);
    (clients.into_iter().map(|client| client.join().unwrap()).collect(), most)
}

/// Upper bound of memory for all sessions and one that ends: `session-buffer` and a read in each
/// direction, and frames that are not whole.
const BOUND: u64 = (CLIENTS + 1) * (3 * (64 << 10) + 3 * (256 << 10) + 5 * (16 << 10));

fn run(retry: &str) {
    eprintln!("faults, {retry}: {:?} (TOLLWAY_SOAK_SECONDS, TOLLWAY_SOAK_SEED)", soak());
    let mut cluster = Cluster::start(false);
    let agent = cluster.switch(&format!("policy = \"least-loaded\"\nretry = \"{retry}\""));
    let (sessions, most) = soak_with(&mut cluster, &agent, client);
    cluster.end();
    let sessions: Vec<Seen> = sessions.into_iter().flatten().collect();
    let (mut sent, mut answered, mut broken) = (0, 0, 0);
    for seen in &sessions {
        sent += seen.sent;
        answered += seen.answered.len() as u64;
        broken += u64::from(seen.broken);
        for (number, times) in &seen.answered {
            assert_eq!(*times, 1, "an answer comes once");
            assert!(cluster.carried.contains_key(number), "what was answered was carried out");
        }
        assert!(
            seen.broken || seen.answered.len() as u64 == seen.sent,
            "a session that ended well had all answers"
        );
    }
    if retry == "never" {
        assert!(cluster.carried.values().all(|&times| times == 1), "never twice");
    } else {
        assert_eq!(broken, 0, "another member has always answered: {:?}", status(&agent).ends);
    }
    assert!(most <= BOUND, "{most} bytes at most");
    assert!(answered > 100, "{answered}");
    eprintln!("{sent} frames of {} sessions, {answered} answered, {broken} sessions told", sessions.len());
    agent.end().unwrap();
}

/// Tests that `make soak` repeats for longer.
mod soak {
    use super::*;

    #[test]
    fn one_way_frames_come_or_are_counted() {
        eprintln!("faults, one way: {:?} (TOLLWAY_SOAK_SECONDS, TOLLWAY_SOAK_SEED)", soak());
        let mut cluster = Cluster::start(true);
        let agent = cluster.switch("policy = \"round-robin\"\nanswers = \"none\"");
        let (sent, most) = soak_with(&mut cluster, &agent, one_way_client);
        eventually("all sessions have ended", || status(&agent).sessions == 0);
        let sent: u64 = sent.into_iter().sum();
        let now = status(&agent);
        let sum = |of: fn(&MemberStatus) -> u64| now.members.iter().map(of).sum::<u64>();
        let (perhaps_lost, retried) = (sum(|one| one.perhaps_lost), sum(|one| one.retried));
        // Living servers read all bytes that their kernels have acknowledged.
        let mut before = usize::MAX;
        eventually("the servers have read all", || {
            std::thread::sleep(Duration::from_millis(200));
            let read = cluster.servers.iter().flatten().map(|server| server.frames().len()).sum();
            std::mem::replace(&mut before, read) == read
        });
        cluster.end();
        let came = cluster.carried.len() as u64;
        assert!(
            came + perhaps_lost >= sent,
            "{came} of {sent} came, {perhaps_lost} are said to be lost at most"
        );
        let twice = cluster.carried.values().filter(|&&times| times > 1).count() as u64;
        assert!(twice <= retried, "{twice} came twice, {retried} were sent again");
        assert_eq!((now.abandoned, now.frames), (0, sent));
        assert!(most <= BOUND, "{most} bytes at most");
        eprintln!("{sent} frames, {came} came, {perhaps_lost} perhaps lost, {twice} twice");
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
    // The server may have been past the point at which it hangs.
    let answered = std::iter::from_fn(|| read_framed(&mut client)).count();
    assert!(answered <= 1, "its session is told, and not as if all had been answered");
    server.manners.hangs.store(false, Ordering::SeqCst);
    let text = format!("listen = \"{at}\"\nframes = \"u16\"\n[member.a]\naddress = \"{}\"\n", server.address);
    let config = tollway_switch::config::Config::parse("test", &text, None).unwrap();
    let next = Agent::start(config, "test".into(), Events::default()).unwrap();
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
    assert!(member(&now, "mute").last_failure.as_ref().unwrap().contains("did not answer frames"));
    agent.end().unwrap();
}

#[test]
fn the_only_member_is_used_as_soon_as_it_is_back() {
    let server = Server::start();
    let agent = switch("u16", "[limits]\nanswer-time = \"2 s\"", &[("a", server.address)]);
    server.kill();
    std::thread::sleep(Duration::from_millis(50));
    let ask = || {
        let mut client = connect(&agent);
        client.write_all(&framed(b"hello")).unwrap();
        read_framed(&mut client)
    };
    assert_eq!(ask(), None);
    // A pause that has doubled four times is 4 s.
    eventually("it has failed five times", || status(&agent).members[0].failures >= 5);
    let _server = Server::at(server.address).unwrap();
    assert_eq!(ask().unwrap(), b"hello");
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
