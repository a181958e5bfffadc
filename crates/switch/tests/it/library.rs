//! Programs on the library, over two switches: an echo service, a scatter-gather service, and
//! streams; a member is killed. Streams of servers behind backs.

use std::collections::{BTreeSet, HashMap};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tollway_net::secure::KeyFile;
use tollway_session::{Message, Node, Options, Session, SessionError};
use tollway_switch::agent::Agent;

use crate::common::mesh::{Faults, Plan, await_hops, free, keys, site};
use crate::common::{dial, eventually, framed, read_framed, status};

const PATIENCE: Duration = Duration::from_secs(30);

/// A client `a`, a switch `b` over the server `m0` and the switch `c`, which is over the servers
/// `m1` and `m2`.
struct Service {
    _switches: Vec<Agent>,
    _client: Node,
    session: Session,
    killed: Vec<Arc<AtomicBool>>,
    /// Requests that each server has read, in order.
    seen: Seen,
}

type Seen = Arc<Mutex<Vec<Vec<Vec<u8>>>>>;
/// The answer of a server to a request.
type Serve = fn(usize, &Session, &Message) -> Result<(), SessionError>;

fn folder_of(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("tollway-library-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let names = ["a", "b", "c", "m0", "m1", "m2"].map(str::to_owned);
    for file in KeyFile::mesh(&names).unwrap() {
        file.save(&folder.join(format!("{}.key", file.name))).unwrap();
    }
    folder
}

fn node(folder: &Path, name: &str, at: SocketAddr, neighbour: (&str, SocketAddr)) -> Node {
    let keys = KeyFile::load(&folder.join(format!("{name}.key"))).unwrap();
    let node = Node::open(&Options::new(at, keys).listening()).unwrap();
    node.add(neighbour.0, neighbour.1).unwrap();
    node
}

/// Runs a server until it is killed. If it `greets`, it sends a hundred frames at once.
fn run(k: usize, node: &Node, killed: &AtomicBool, seen: &Seen, greets: bool, serve: Serve) {
    while !killed.load(Ordering::SeqCst) {
        let Ok(session) = node.accept(Duration::from_millis(20)) else { continue };
        let seen = Arc::clone(seen);
        std::thread::spawn(move || {
            for at in 0..if greets { 100 } else { 0 } {
                session.send(&[k as u8, at]).unwrap();
            }
            while let Ok(Some(request)) = session.receive(PATIENCE) {
                seen.lock().unwrap()[k].push(request.bytes.clone());
                if serve(k, &session, &request).is_err() {
                    return;
                }
            }
            session.finish();
            let _ = session.flush(PATIENCE);
        });
    }
}

impl Service {
    fn start(name: &str, policy: &str, greets: bool, serve: Serve) -> Service {
        let (folder, at) = (folder_of(name), free(6));
        let [a, b, c, m0, m1, m2] = [0, 1, 2, 3, 4, 5].map(|k| at[k]);
        let switch = |key: &str, bind, peer: (&str, _), members: &[(&str, SocketAddr)]| {
            let mut text = format!(
                "bind = \"{bind}\"\nkeys = \"{key}.key\"\npolicy = \"{policy}\"\n[peer.{}]\naddress = \"{}\"\n",
                peer.0, peer.1
            );
            for (name, address) in members {
                text += &format!("[member.{name}]\naddress = \"{address}\"\n");
            }
            site(&folder, &text)
        };
        let seen = Arc::new(Mutex::new(vec![Vec::new(); 3]));
        let servers = [("m0", m0, ("b", b)), ("m1", m1, ("c", c)), ("m2", m2, ("c", c))];
        let killed = servers.into_iter().enumerate().map(|(k, (name, at, neighbour))| {
            let (node, killed) = (node(&folder, name, at, neighbour), Arc::<AtomicBool>::default());
            let (seen, over) = (Arc::clone(&seen), Arc::clone(&killed));
            std::thread::spawn(move || run(k, &node, &over, &seen, greets, serve));
            killed
        });
        let killed = killed.collect();
        let switches = vec![
            switch("b", b, ("a", a), &[("m0", m0), ("c", c)]),
            switch("c", c, ("b", b), &[("m1", m1), ("m2", m2)]),
        ];
        let client = node(&folder, "a", a, ("b", b));
        await_hops(&switches);
        let session = client.connect("b", PATIENCE).unwrap();
        Service { _switches: switches, _client: client, session, killed, seen }
    }

    /// Ends a server, and waits until its node is gone.
    fn kill(&self, k: usize) {
        self.killed[k].store(true, Ordering::SeqCst);
        while Arc::strong_count(&self.killed[k]) > 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Sends requests by key, and collects the answers to each. Repeats those whose server was
    /// killed. The `victim` is killed when half of the requests are sent.
    fn ask(&self, requests: &[(Vec<u8>, Vec<u8>)], victim: Option<usize>) -> Vec<Vec<Vec<u8>>> {
        let mut answers = vec![Vec::new(); requests.len()];
        let mut numbers = HashMap::new();
        let send = |at: usize| (self.session.send_by_key(&requests[at].0, &requests[at].1).unwrap(), at);
        let (mut next, mut done, until) = (0, 0, Instant::now() + PATIENCE);
        while done < requests.len() {
            assert!(Instant::now() < until, "{done} of {} are answered", requests.len());
            if next < requests.len() && next < done + 200 {
                numbers.extend([send(next)]);
                next += 1;
                if next == requests.len() / 2 {
                    victim.into_iter().for_each(|k| self.kill(k));
                }
                continue;
            }
            match self.session.receive(Duration::from_millis(500)) {
                Ok(answer) => {
                    let answer = answer.expect("the session goes on");
                    // Late ones were asked again.
                    let number = answer.number.expect("no other frames");
                    let Some(&at) = numbers.get(&number) else { continue };
                    answers[at].push(answer.bytes);
                    done += usize::from(!answer.more);
                }
                Err(SessionError::TimedOut) => {
                    let lost = self.session.unanswered();
                    assert!(victim.is_some(), "{} requests have no answer", lost.len());
                    let again: Vec<usize> = lost.iter().filter_map(|number| numbers.remove(number)).collect();
                    for at in again {
                        answers[at].clear();
                        numbers.extend([send(at)]);
                    }
                }
                Err(error) => panic!("{error}"),
            }
        }
        answers
    }
}

fn numbered(count: u32) -> Vec<(Vec<u8>, Vec<u8>)> {
    let request = |at: u32| [&at.to_be_bytes()[..], &vec![at as u8; 3000]].concat();
    (0..count).map(|at| (at.to_be_bytes().to_vec(), request(at))).collect()
}

#[test]
fn an_echo_service_over_two_switches_survives_a_killed_member() {
    let echo: Serve = |_, session, request| session.reply(request, &request.bytes);
    let service = Service::start("echo", "round-robin", false, echo);
    let requests = numbered(600);
    for (at, answers) in service.ask(&requests, None).iter().enumerate() {
        assert!(*answers == [requests[at].1.clone()], "{at}");
    }
    let seen = service.seen.lock().unwrap().clone();
    assert_eq!([0, 1, 2].map(|k| seen[k].len()), [300, 150, 150]);
    assert!(seen.iter().all(|one| one.is_sorted()), "in order at each");
    for (at, answers) in service.ask(&requests, Some(1)).iter().enumerate() {
        assert!(*answers == [requests[at].1.clone()], "{at} after a failure");
    }
    let seen = service.seen.lock().unwrap();
    assert!(seen[1].len() < 300 && seen[2].len() > 300, "{:?}", [0, 1, 2].map(|k| seen[k].len()));
}

#[test]
fn a_scatter_gather_service_over_two_switches_survives_a_killed_member() {
    // Each shard's rows, one frame each.
    let rows: Serve = |_, session, request| {
        for row in 0..3u8 {
            session.reply_part(request, &[&[row], &request.bytes[..4]].concat())?;
        }
        session.reply(request, &[&[3], &request.bytes[..4]].concat())
    };
    let service = Service::start("gather", "by-key", false, rows);
    let shards: Vec<_> = (0..40u32)
        .flat_map(|query| {
            (0..8u8).map(move |shard| (vec![shard; 4], [&query.to_be_bytes()[..], &[shard]].concat()))
        })
        .collect();
    for victim in [None, Some(2)] {
        let gathered = service.ask(&shards, victim);
        for ((_, request), answers) in shards.iter().zip(&gathered) {
            let expected: Vec<Vec<u8>> = (0..4u8).map(|row| [&[row], &request[..4]].concat()).collect();
            assert_eq!(*answers, expected);
        }
        if victim.is_none() {
            // Each shard is at one member, and every member has some.
            let seen = service.seen.lock().unwrap();
            let shards_of = |k: usize| seen[k].iter().map(|request| request[4]).collect::<BTreeSet<u8>>();
            let of = [0, 1, 2].map(shards_of);
            assert_eq!(of.iter().map(BTreeSet::len).sum::<usize>(), 8, "{of:?}");
        }
    }
}

#[test]
fn servers_send_frames_to_the_session_at_any_time() {
    let push: Serve = |k, session, request| {
        (0..3).try_for_each(|_| session.send(&[&[k as u8, 200], &request.bytes[..]].concat()).map(drop))
    };
    let service = Service::start("push", "round-robin", true, push);
    let mut of = vec![Vec::new(); 3];
    let mut receive = |count: usize| {
        for _ in 0..count {
            let frame = service.session.receive(PATIENCE).unwrap().unwrap();
            assert_eq!(frame.number, None);
            of[usize::from(frame.bytes[0])].push(frame.bytes[1]);
        }
    };
    receive(300);
    (0..20u8).for_each(|at| service.session.post(None, &[at; 4000]).unwrap());
    receive(60);
    for one in of {
        assert!(
            one[..100].iter().copied().eq(0..100) && one[100..].iter().all(|&mark| mark == 200),
            "{one:?}"
        );
    }
    service.session.finish();
    assert_eq!(service.session.receive(PATIENCE), Ok(None));
}

/// A TCP server that sends fifty frames at once, three for each frame that it reads, and ten at the
/// end; each with its number and of several packets.
fn pushing(name: u8) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let (mut from, mut to, mut next) = (&stream, &stream, 0u32);
                let mut push = |count: u32| {
                    for number in next..next + count {
                        let body = [&[name][..], &number.to_be_bytes(), &vec![name; 3000]].concat();
                        let _ = to.write_all(&framed(&body));
                    }
                    next += count;
                };
                push(50);
                while read_framed(&mut from).is_some() {
                    push(3);
                }
                push(10);
            });
        }
    });
    at
}

#[test]
fn servers_behind_backs_stream_to_clients_of_a_front() {
    let folder = keys("streams", 2);
    let (plan, _relays) = Plan::new(2, &Faults::None);
    let part = |text: String| site(&folder, &text);
    let front = part(plan.front("u16", "stream", ""));
    let switch = part(plan.switch("policy = \"round-robin\"\n", ""));
    let servers = [pushing(0), pushing(1)];
    let back = |k: usize| {
        let text = plan.back_of(k, servers[k], "u16", "stream", "");
        part(text)
    };
    let backs = [back(0), back(1)];
    await_hops([&front, &switch].into_iter().chain(&backs));
    let client = dial(front.listen()[0]);
    let (mut from, mut to) = (std::io::BufReader::new(&client), &client);
    let mut next = [0u32; 2];
    let mut receive = |count: usize| {
        for _ in 0..count {
            let body = read_framed(&mut from).expect("a frame");
            let (name, number) =
                (usize::from(body[0]), u32::from_be_bytes(*body[1..].first_chunk().unwrap()));
            assert_eq!((number, body.len()), (next[name], 3005), "of server {name}");
            next[name] += 1;
        }
    };
    receive(100);
    (0..40u8).for_each(|at| to.write_all(&framed(&[at; 100])).unwrap());
    receive(120);
    client.shutdown(Shutdown::Write).unwrap();
    receive(20);
    assert_eq!(next, [120; 2]);
    let mut rest = Vec::new();
    assert_eq!(from.read_to_end(&mut rest).unwrap(), 0, "a regular end");
    eventually("it is over", || status(&front).ends.get("done") == Some(&1));
}
