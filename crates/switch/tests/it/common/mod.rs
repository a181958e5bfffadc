//! Switches and servers for tests, all on loopback.

pub(crate) mod mesh;

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tollway_switch::agent::Agent;
use tollway_switch::config::Config;
use tollway_switch::status::{MemberStatus, Status};

/// Starts a switch before `members` (name, address), with more lines of configuration before the
/// members'.
pub(crate) fn switch(frames: &str, more: &str, members: &[(&str, SocketAddr)]) -> Agent {
    let mut text = format!("listen = \"127.0.0.1:0\"\nframes = \"{frames}\"\n{more}\n");
    for (name, address) in members {
        text += &format!("[member.{name}]\naddress = \"{address}\"\n");
    }
    let config = Config::parse("test", &text, None).unwrap_or_else(|error| panic!("{error}\n{text}"));
    Agent::start(config, "test".into(), [7; 16]).unwrap()
}

/// Connects to a switch; nothing is waited for longer than a minute.
pub(crate) fn connect(agent: &Agent) -> TcpStream {
    dial(agent.listen()[0])
}

pub(crate) fn dial(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

pub(crate) fn status(agent: &Agent) -> Status {
    agent.teller().status().expect("the event loop answers")
}

pub(crate) fn member<'s>(status: &'s Status, name: &str) -> &'s MemberStatus {
    status.members.iter().find(|member| member.name == name).expect("a member of this name")
}

/// Waits until something holds; fails after a minute.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < until, "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A frame with a length of two bytes before it.
pub(crate) fn framed(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u16).to_be_bytes(), body].concat()
}

/// Reads a frame with a length of two bytes; `None` at the end.
pub(crate) fn read_framed(stream: &mut impl Read) -> Option<Vec<u8>> {
    let mut len = [0; 2];
    stream.read_exact(&mut len).ok()?;
    let mut body = vec![0; usize::from(u16::from_be_bytes(len))];
    stream.read_exact(&mut body).ok()?;
    Some(body)
}

/// How a server behaves; may be changed while it runs.
#[derive(Default)]
pub(crate) struct Manners {
    /// Reads nothing and answers nothing.
    pub(crate) hangs: AtomicBool,
    /// Microseconds for each frame.
    pub(crate) work: AtomicU64,
    /// True to send one answer more than requests.
    pub(crate) chatters: AtomicBool,
    /// Answers nothing at all.
    pub(crate) one_way: AtomicBool,
}

/// A server of frames of two bytes' length that answers each with itself, and remembers them.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) manners: Arc<Manners>,
    /// Frames, for each connection in the order in which they came.
    pub(crate) seen: Arc<Mutex<HashMap<u64, Vec<Vec<u8>>>>>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
    over: Arc<AtomicBool>,
}

impl Server {
    pub(crate) fn start() -> Server {
        Server::at("127.0.0.1:0".parse().unwrap()).unwrap()
    }

    /// Listens at an address that it may have had before.
    pub(crate) fn at(address: SocketAddr) -> std::io::Result<Server> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let server = Server {
            address: listener.local_addr()?,
            manners: Arc::default(),
            seen: Arc::default(),
            streams: Arc::default(),
            over: Arc::default(),
        };
        let (manners, seen) = (Arc::clone(&server.manners), Arc::clone(&server.seen));
        let (streams, over) = (Arc::clone(&server.streams), Arc::clone(&server.over));
        std::thread::spawn(move || {
            let mut number = 0;
            while !over.load(Ordering::SeqCst) {
                match listener.accept() {
                    Ok((stream, _)) => {
                        stream.set_nonblocking(false).unwrap();
                        stream.set_nodelay(true).unwrap();
                        let mut all = streams.lock().unwrap();
                        if over.load(Ordering::SeqCst) {
                            return;
                        }
                        all.push(stream.try_clone().unwrap());
                        number += 1;
                        let (manners, seen, over) =
                            (Arc::clone(&manners), Arc::clone(&seen), Arc::clone(&over));
                        std::thread::spawn(move || serve(stream, number, &manners, &seen, &over));
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    Err(_) => std::thread::sleep(Duration::from_millis(1)),
                }
            }
        });
        Ok(server)
    }

    /// Ends it as a killed process ends: all connections are reset.
    pub(crate) fn kill(&self) {
        self.over.store(true, Ordering::SeqCst);
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    /// All frames that it has read.
    pub(crate) fn frames(&self) -> Vec<Vec<u8>> {
        self.seen.lock().unwrap().values().flatten().cloned().collect()
    }

    pub(crate) fn connections(&self) -> usize {
        self.seen.lock().unwrap().len()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn serve(
    stream: TcpStream,
    number: u64,
    manners: &Manners,
    seen: &Mutex<HashMap<u64, Vec<Vec<u8>>>>,
    over: &AtomicBool,
) {
    let (mut from, mut to) = (std::io::BufReader::new(&stream), &stream);
    loop {
        while manners.hangs.load(Ordering::SeqCst) && !over.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let Some(body) = read_framed(&mut from) else { return };
        if over.load(Ordering::SeqCst) {
            return;
        }
        let work = manners.work.load(Ordering::SeqCst);
        if work > 0 {
            std::thread::sleep(Duration::from_micros(work));
        }
        seen.lock().unwrap().entry(number).or_default().push(body.clone());
        let answer = framed(&body);
        let times = match (manners.one_way.load(Ordering::SeqCst), manners.chatters.load(Ordering::SeqCst)) {
            (true, _) => 0,
            (_, true) => 2,
            _ => 1,
        };
        for _ in 0..times {
            if to.write_all(&answer).is_err() {
                return;
            }
        }
    }
}
