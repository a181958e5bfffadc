//! Random commands of several clients, while servers are stopped, killed and started again, and
//! the paths to them are cut: each reply is one that a single Redis would have given, and each
//! acknowledged write is kept.
//!
//! `TOLLWAY_SOAK_SECONDS` sets the time, `TOLLWAY_SOAK_SEED` the seed, which a failure prints.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::resp::{RedisServer, Reply, RespClient, have};
use crate::common::*;
use tollway_proto::route::mix;

/// A generator of numbers.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0) % end
    }
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Absent,
    Text(Vec<u8>),
    List(Vec<Vec<u8>>),
}

/// A command's effect on one key.
#[derive(Clone, Debug)]
enum Op {
    Get,
    Set(String),
    Append(String),
    Incr,
    Del,
    Push(String),
    Pop,
}

impl Op {
    /// The value after the command, and the reply.
    fn apply(&self, value: &Value) -> (Value, Reply) {
        let number = |value: usize| Reply::Line(format!(":{value}"));
        let wrong = |value: &Value| {
            let text = "-WRONGTYPE Operation against a key holding the wrong kind of value";
            (value.clone(), Reply::Line(text.into()))
        };
        match (self, value) {
            (Op::Get, Value::Absent) => (Value::Absent, Reply::Bulk(None)),
            (Op::Get, Value::Text(text)) => (value.clone(), Reply::Bulk(Some(text.clone()))),
            (Op::Set(text), _) => (Value::Text(text.clone().into()), Reply::Line("+OK".into())),
            (Op::Del, Value::Absent) => (Value::Absent, number(0)),
            (Op::Del, _) => (Value::Absent, number(1)),
            (Op::Append(more), Value::Absent) => (Value::Text(more.clone().into()), number(more.len())),
            (Op::Append(more), Value::Text(text)) => {
                let text = [text.as_slice(), more.as_bytes()].concat();
                (Value::Text(text.clone()), number(text.len()))
            }
            (Op::Incr, Value::Absent) => (Value::Text(b"1".to_vec()), number(1)),
            (Op::Incr, Value::Text(text)) => match std::str::from_utf8(text).unwrap().parse::<u32>() {
                Ok(was) if was.to_string().as_bytes() == text => {
                    (Value::Text((was + 1).to_string().into()), number(was as usize + 1))
                }
                _ => (value.clone(), Reply::Line("-ERR value is not an integer or out of range".into())),
            },
            (Op::Push(one), Value::Absent) => (Value::List(vec![one.clone().into()]), number(1)),
            (Op::Push(one), Value::List(all)) => {
                let all: Vec<_> = all.iter().cloned().chain([one.clone().into()]).collect();
                (Value::List(all.clone()), number(all.len()))
            }
            (Op::Pop, Value::Absent) => (Value::Absent, Reply::Bulk(None)),
            (Op::Pop, Value::List(all)) => {
                let rest = all[1..].to_vec();
                let rest = if rest.is_empty() { Value::Absent } else { Value::List(rest) };
                (rest, Reply::Bulk(Some(all[0].clone())))
            }
            _ => wrong(value),
        }
    }

    fn words(&self, key: &str) -> Vec<String> {
        let words = match self {
            Op::Get => vec!["GET", key],
            Op::Set(text) => vec!["SET", key, text],
            Op::Append(text) => vec!["APPEND", key, text],
            Op::Incr => vec!["INCR", key],
            Op::Del => vec!["DEL", key],
            Op::Push(text) => vec!["RPUSH", key, text],
            Op::Pop => vec!["LPOP", key],
        };
        words.into_iter().map(str::to_owned).collect()
    }
}

/// A command under way.
enum Sent {
    One(String, Op),
    /// `MSET` of these keys to one value.
    SetAll(Vec<String>, String),
    GetAll(Vec<String>),
    DelAll(Vec<String>),
    /// A transaction that sets both keys to one value.
    Both([String; 2], String),
}

/// A client, its keys, and the values that each may have.
struct Client {
    name: u64,
    address: SocketAddr,
    connection: RespClient,
    draw: Draw,
    may: BTreeMap<String, Vec<Value>>,
    counted: u64,
    transactions: bool,
}

impl Client {
    fn new(name: u64, seed: u64, address: SocketAddr, transactions: bool) -> Client {
        let (draw, connection) = (Draw(mix(seed ^ name)), RespClient::to(address));
        Client { name, address, connection, draw, may: BTreeMap::new(), counted: 0, transactions }
    }

    fn values(&mut self, key: &str) -> &mut Vec<Value> {
        self.may.entry(key.to_owned()).or_insert_with(|| vec![Value::Absent])
    }

    /// A command was executed, with this reply.
    fn done(&mut self, key: &str, op: &Op, reply: &Reply) {
        let may = self.values(key);
        let mut after: Vec<Value> = Vec::new();
        for (value, expected) in may.iter().map(|value| op.apply(value)) {
            if expected == *reply && !after.contains(&value) {
                after.push(value);
            }
        }
        assert!(!after.is_empty(), "{key} {op:?} got {reply:?}, of {may:?}");
        *may = after;
    }

    /// A command may have been executed.
    fn perhaps(&mut self, key: &str, op: &Op) {
        let may = self.values(key);
        for value in may.clone() {
            let after = op.apply(&value).0;
            if !may.contains(&after) {
                may.push(after);
            }
        }
    }

    fn key(&mut self, kind: &str) -> String {
        format!("{kind}{}:{}", self.name, self.draw.below(12))
    }

    fn some_keys(&mut self) -> Vec<String> {
        let mut keys: Vec<String> = (0..2 + self.draw.below(3)).map(|_| self.key("s")).collect();
        keys.sort();
        keys.dedup();
        keys
    }

    fn draw(&mut self) -> (Sent, Vec<Vec<String>>) {
        self.counted += 1;
        let text = format!("v{}", self.counted);
        let name = self.name;
        let words = |all: &[&str]| all.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        match self.draw.below(20) {
            0 => {
                let keys = self.some_keys();
                let all = keys.iter().flat_map(|key| [key.clone(), text.clone()]);
                (
                    Sent::SetAll(keys.clone(), text.clone()),
                    vec![words(&["MSET"]).into_iter().chain(all).collect()],
                )
            }
            1 => {
                let keys = self.some_keys();
                let words = words(&["MGET"]).into_iter().chain(keys.clone()).collect();
                (Sent::GetAll(keys), vec![words])
            }
            2 => {
                let keys = self.some_keys();
                let words = words(&["UNLINK"]).into_iter().chain(keys.clone()).collect();
                (Sent::DelAll(keys), vec![words])
            }
            3 if self.transactions => {
                let tag = self.draw.below(6);
                let keys = ["a", "b"].map(|key| format!("{{t{name}:{tag}}}{key}"));
                let set = |key: &String| words(&["SET", key, &text]);
                let all = vec![words(&["MULTI"]), set(&keys[0]), set(&keys[1]), words(&["EXEC"])];
                (Sent::Both(keys, text), all)
            }
            drawn @ 4..7 => {
                let key = self.key("l");
                let op = if drawn == 4 { Op::Pop } else { Op::Push(text) };
                let words = op.words(&key);
                (Sent::One(key, op), vec![words])
            }
            drawn => {
                let key = self.key("s");
                let op = match drawn {
                    7 => Op::Del,
                    8..10 => Op::Append(text),
                    10..12 => Op::Incr,
                    12..15 => Op::Set(text),
                    15 => Op::Set("7".into()),
                    _ => Op::Get,
                };
                let words = op.words(&key);
                (Sent::One(key, op), vec![words])
            }
        }
    }

    /// Sends some commands at once, and checks their replies. Returns the number of commands.
    fn batch(&mut self) -> u64 {
        let unsure: Vec<String> =
            self.may.iter().filter(|(_, may)| may.len() > 30).map(|(key, _)| key.clone()).collect();
        unsure.iter().for_each(|key| self.read(key));
        let count = if self.draw.below(3) == 0 { 1 + self.draw.below(20) } else { 1 };
        let mut sent = Vec::new();
        let mut bytes = Vec::new();
        for _ in 0..count {
            let (what, commands) = self.draw();
            commands.iter().for_each(|words| bytes.extend(RespClient::frame(words)));
            sent.push((what, commands.len()));
        }
        let _ = std::io::Write::write_all(&mut self.connection.stream, &bytes);
        let mut ended = false;
        for (what, replies) in sent {
            let replies: Vec<Reply> = (0..replies).map(|_| self.connection.reply()).collect();
            ended |= replies.contains(&Reply::End);
            self.check(&what, &replies);
        }
        if ended {
            self.connection = RespClient::to(self.address);
        }
        count
    }

    fn check(&mut self, what: &Sent, replies: &[Reply]) {
        let last = replies.last().unwrap();
        let error = last.error().unwrap_or_default();
        // twemproxy says only that it failed.
        let failed = !error.is_empty() && !self.transactions && !error.contains("not an integer");
        let unknown = *last == Reply::End || error.contains("may have been executed") || failed;
        let each: Vec<(String, Op)> = match what {
            Sent::One(key, op) => vec![(key.clone(), op.clone())],
            Sent::SetAll(keys, text) => keys.iter().map(|key| (key.clone(), Op::Set(text.clone()))).collect(),
            Sent::GetAll(keys) => keys.iter().map(|key| (key.clone(), Op::Get)).collect(),
            Sent::DelAll(keys) => keys.iter().map(|key| (key.clone(), Op::Del)).collect(),
            Sent::Both(keys, text) => keys.iter().map(|key| (key.clone(), Op::Set(text.clone()))).collect(),
        };
        // With several keys, another server may have executed its part.
        let refused = error.starts_with("LOADING") && each.len() == 1;
        if replies.len() == 1 && (error.contains("was not executed") || refused) {
            return;
        }
        match (what, last) {
            // A part may have failed at a server that is loading.
            _ if unknown || (each.len() > 1 && !error.is_empty()) => {
                each.iter().for_each(|(key, op)| self.perhaps(key, op));
            }
            (Sent::One(key, op), reply) => self.done(key, op, reply),
            (Sent::GetAll(keys), Reply::Array(Some(values))) => {
                assert_eq!(values.len(), keys.len());
                keys.iter().zip(values).for_each(|(key, value)| self.done(key, &Op::Get, value));
            }
            (Sent::DelAll(keys), Reply::Line(line)) => {
                let count: usize = line[1..].parse().unwrap();
                assert!(line.starts_with(':') && count <= keys.len(), "{line}");
                for key in keys {
                    *self.values(key) = vec![Value::Absent];
                }
            }
            (Sent::SetAll(..), reply) => {
                each.iter().for_each(|(key, op)| self.done(key, op, reply));
            }
            (Sent::Both(..), Reply::Array(Some(replies))) => {
                each.iter().zip(replies).for_each(|((key, op), reply)| self.done(key, op, reply));
            }
            (_, other) => panic!("{replies:?}: {other:?}"),
        }
    }

    /// Waits until a key is served, and checks its value.
    fn read(&mut self, key: &str) {
        let list = key.starts_with('l');
        let words = if list { vec!["LRANGE", key, "0", "-1"] } else { vec!["GET", key] };
        let mut reply = Reply::End;
        eventually("the key is served", || {
            reply = self.connection.call(&words);
            if reply == Reply::End {
                self.connection = RespClient::to(self.address);
            }
            reply != Reply::End && reply.error().is_none()
        });
        let value = match &reply {
            Reply::Bulk(None) => Value::Absent,
            Reply::Bulk(Some(text)) => Value::Text(text.clone()),
            Reply::Array(Some(all)) if all.is_empty() => Value::Absent,
            Reply::Array(Some(all)) => {
                let text =
                    |one: &Reply| if let Reply::Bulk(Some(text)) = one { text.clone() } else { panic!() };
                Value::List(all.iter().map(text).collect())
            }
            other => panic!("{key}: {other:?}"),
        };
        let may = self.values(key);
        assert!(may.contains(&value), "{key} is {value:?}, of {may:?}");
        *may = vec![value];
    }

    /// Reads every key, once all servers are up.
    fn audit(&mut self) {
        for key in self.may.keys().cloned().collect::<Vec<_>>() {
            self.read(&key);
        }
        for tag in 0..6 {
            let [a, b] = ["a", "b"].map(|key| format!("{{t{}:{tag}}}{key}", self.name));
            let both = self.connection.call(&["MGET", &a, &b]);
            assert_eq!(both.array()[0], both.array()[1], "{a}: a transaction was executed in part");
        }
    }
}

/// A path to a server that can be cut. Then it holds all bytes and ends of connections.
struct Path {
    address: SocketAddr,
    cut: Arc<Mutex<Cut>>,
}

struct Cut {
    is: bool,
    /// How often held bytes were lost, with their connections.
    lost: u64,
    ended: Instant,
}

impl Path {
    fn to(server: SocketAddr) -> Path {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let cut = Arc::new(Mutex::new(Cut { is: false, lost: 0, ended: Instant::now() }));
        let state = cut.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let cut = state.clone();
                std::thread::spawn(move || {
                    // Nobody can connect through a cut path, and held bytes come before others.
                    let asked = Instant::now();
                    let lost = waited(&cut, Duration::from_millis(100));
                    if cut.lock().unwrap().ended > asked {
                        return;
                    }
                    let Ok(far) = TcpStream::connect(server) else { return };
                    let (back, cut_back) = ((far.try_clone(), near.try_clone()), cut.clone());
                    let (Ok(from), Ok(to)) = back else { return };
                    std::thread::spawn(move || pass(&from, &to, &cut_back, lost));
                    pass(&near, &far, &cut, lost);
                });
            }
        });
        Path { address, cut }
    }

    fn cut(&self) {
        self.cut.lock().unwrap().is = true;
    }

    fn mend(&self, lost: bool) {
        let mut cut = self.cut.lock().unwrap();
        (cut.is, cut.ended) = (false, Instant::now());
        cut.lost += u64::from(lost);
    }
}

/// Waits until the path was whole for `span`, and returns the number of losses.
fn waited(cut: &Mutex<Cut>, span: Duration) -> u64 {
    loop {
        let now = cut.lock().unwrap();
        if !now.is && now.ended.elapsed() >= span {
            return now.lost;
        }
        drop(now);
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn pass(mut from: &TcpStream, mut to: &TcpStream, cut: &Mutex<Cut>, lost: u64) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let len = from.read(&mut buffer).unwrap_or(0);
        if waited(cut, Duration::ZERO) != lost || len == 0 || to.write_all(&buffer[..len]).is_err() {
            break;
        }
    }
    [from, to].map(|side| side.shutdown(Shutdown::Both)).into_iter().for_each(drop);
}

/// A server, and the path to it.
struct Member {
    server: RedisServer,
    path: Path,
}

#[derive(Clone, Copy, PartialEq)]
enum Trouble {
    None,
    Stopped,
    Killed,
    Cut,
}

impl Member {
    fn suffer(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::None => {}
            Trouble::Stopped => self.server.signal("-STOP"),
            Trouble::Killed => self.server.kill(),
            Trouble::Cut => self.path.cut(),
        }
    }

    fn recover(&mut self, trouble: Trouble, lost: bool) {
        match trouble {
            Trouble::None => {}
            Trouble::Stopped => self.server.signal("-CONT"),
            Trouble::Killed => self.server.again(),
            Trouble::Cut => self.path.mend(lost),
        }
    }
}

/// Stops, resumes, kills and starts servers, cuts and mends paths until `over`.
fn disturb(members: &mut [Member], seed: u64, over: &AtomicBool) {
    let mut draw = Draw(seed ^ 77);
    let mut troubles = vec![Trouble::None; members.len()];
    while !over.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(20 + draw.below(300)));
        let at = draw.below(members.len() as u64) as usize;
        let next = match (troubles[at], draw.below(3)) {
            (Trouble::None, 0) => Trouble::Stopped,
            (Trouble::None, 1) | (Trouble::Stopped, 0) => Trouble::Killed,
            (Trouble::None, _) => Trouble::Cut,
            _ => Trouble::None,
        };
        if next == Trouble::None {
            members[at].recover(troubles[at], draw.below(2) == 0);
        } else {
            members[at].suffer(next);
        }
        troubles[at] = next;
    }
    for (member, trouble) in members.iter_mut().zip(troubles) {
        member.recover(trouble, false);
    }
}

/// The number in an environment variable.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Runs random commands of three clients at `address`, while `members` are disturbed. Returns the
/// number of commands.
fn workload(members: &mut [Member], address: SocketAddr, transactions: bool) -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = number("TOLLWAY_SOAK_SEED").unwrap_or(now.as_nanos() as u64);
    eprintln!("to see it again: TOLLWAY_SOAK_SEED={seed}");
    let (over, total) = (AtomicBool::new(false), AtomicU64::new(0));
    let until = Instant::now() + Duration::from_secs(number("TOLLWAY_SOAK_SECONDS").unwrap_or(6));
    std::thread::scope(|scope| {
        let disturbs = scope.spawn(|| disturb(members, seed, &over));
        let clients: Vec<_> = (0..3)
            .map(|name| {
                let total = &total;
                scope.spawn(move || {
                    let mut client = Client::new(name, seed, address, transactions);
                    while Instant::now() < until {
                        total.fetch_add(client.batch(), Ordering::SeqCst);
                    }
                    client
                })
            })
            .collect();
        let clients: Vec<_> = clients.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        over.store(true, Ordering::SeqCst);
        disturbs.join().unwrap();
        for client in clients {
            client.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).audit();
        }
    });
    total.load(Ordering::SeqCst)
}

fn members(name: &str) -> Vec<Member> {
    let servers = (0..3).map(|at| RedisServer::start(&format!("{name}-{at}")));
    servers.map(|server| Member { path: Path::to(server.address), server }).collect()
}

#[test]
fn servers_that_stop_and_return_lose_no_acknowledged_write() {
    if !have(&["redis-server"]) {
        return;
    }
    let mut members = members("soak");
    let named: Vec<_> =
        ["a", "b", "c"].into_iter().zip(members.iter().map(|member| member.path.address)).collect();
    let agent = switch("resp", "[limits]\nanswer-time = \"200 ms\"", &named);
    let commands = workload(&mut members, agent.listen()[0], true);
    eprintln!("{commands} commands through the switch, {:?}", status(&agent).ends);
    assert!(commands > 500, "{commands}");
    agent.end().unwrap();
}

/// The same workload, without transactions, through twemproxy: a check of the test itself.
#[test]
fn twemproxy_passes_the_same_workload() {
    if !have(&["redis-server", "nutcracker"]) {
        return;
    }
    let mut members = members("twemproxy");
    let port = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (address, stats) = (port(), port().port().to_string());
    let mut config = format!(
        "pool:\n  listen: {address}\n  hash: fnv1a_64\n  hash_tag: \"{{}}\"\n  distribution: ketama\n  redis: true\n  \
         auto_eject_hosts: false\n  timeout: 200\n  server_retry_timeout: 200\n  servers:\n"
    );
    for (name, member) in ["a", "b", "c"].into_iter().zip(&members) {
        config += &format!("   - {}:1 {name}\n", member.path.address);
    }
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("nutcracker.yml");
    std::fs::write(&path, config).unwrap();
    let mut proxy = Command::new("nutcracker");
    proxy.arg("-c").arg(&path).args(["-s", &stats, "-o"]).arg(path.with_extension("log"));
    let mut proxy = proxy.spawn().unwrap();
    eventually("twemproxy listens", || TcpStream::connect(address).is_ok());
    let done =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| workload(&mut members, address, false)));
    let _ = proxy.kill();
    let _ = proxy.wait();
    eprintln!("{} commands through twemproxy", done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
}
