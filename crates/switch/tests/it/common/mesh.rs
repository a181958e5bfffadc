//! A front, a switch and backs on loopback, and relays between them that lose, repeat and reorder
//! datagrams.

use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tollway_net::secure::KeyFile;
use tollway_switch::agent::{Agent, Events};
use tollway_switch::sites::Sites;

use super::Server;

/// The parts, by their agents. Dropping them ends the threads when the process does.
pub(crate) struct Mesh {
    pub(crate) front: Agent,
    pub(crate) switch: Agent,
    pub(crate) backs: Vec<Agent>,
    pub(crate) folder: PathBuf,
    pub(crate) plan: Plan,
    /// Of each hop, if there are any.
    pub(crate) relays: Vec<Relay>,
}

/// The addresses of the parts, as they bind them and as their neighbours have them.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Front, switch, backs.
    pub(crate) bound: Vec<SocketAddr>,
    /// The front as the switch has it, and the other way round.
    pub(crate) front_seen: SocketAddr,
    pub(crate) switch_seen: Vec<SocketAddr>,
    pub(crate) backs_seen: Vec<SocketAddr>,
}

impl Mesh {
    pub(crate) fn start(
        name: &str,
        servers: &[Server],
        frames: &str,
        answers: &str,
        faults: &Faults,
    ) -> Mesh {
        Mesh::with(name, servers, frames, answers, faults, "policy = \"round-robin\"\n", "")
    }

    /// A mesh with more lines in the configuration of the switch, and limits in those of all.
    pub(crate) fn with(
        name: &str,
        servers: &[Server],
        frames: &str,
        answers: &str,
        faults: &Faults,
        more: &str,
        limits: &str,
    ) -> Mesh {
        let folder = keys(name, servers.len());
        let (plan, relays) = Plan::new(servers.len(), faults);
        let front = plan.front(frames, answers, limits);
        let front = site(&folder, &front);
        let switch = site(&folder, &plan.switch(more, limits));
        let backs = servers.iter().enumerate();
        let backs = backs.map(|(k, server)| site(&folder, &plan.back(k, server, frames, answers, limits)));
        let mesh = Mesh { front, switch, backs: backs.collect(), folder, plan, relays };
        await_hops(mesh.all());
        mesh
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Agent> {
        [&self.front, &self.switch].into_iter().chain(&self.backs)
    }
}

impl Plan {
    pub(crate) fn new(backs: usize, faults: &Faults) -> (Plan, Vec<Relay>) {
        let bound = free(2 + backs);
        let mut relays = Vec::new();
        let mut hop = |left: usize, right: usize, seed: u64| {
            let Faults::Each(chances) = faults else { return (bound[left], bound[right]) };
            let chances = Arc::clone(&chances[seed as usize - 1]);
            let relay = Relay::start(bound[left], bound[right], chances, seed);
            let seen = (relay.left, relay.right);
            relays.push(relay);
            seen
        };
        let (front_seen, switch_seen) = hop(0, 1, 1);
        let mut plan =
            Plan { bound: bound.clone(), front_seen, switch_seen: vec![switch_seen], backs_seen: Vec::new() };
        for k in 0..backs {
            let (switch, back) = hop(1, 2 + k, 2 + k as u64);
            plan.switch_seen.push(switch);
            plan.backs_seen.push(back);
        }
        (plan, relays)
    }

    pub(crate) fn front(&self, frames: &str, answers: &str, limits: &str) -> String {
        format!(
            "listen = \"127.0.0.1:0\"\nframes = \"{frames}\"\nanswers = \"{answers}\"\nbind = \"{}\"\nkeys = \"a.key\"\n\
             [peer.b]\naddress = \"{}\"\n[limits]\n{limits}\n",
            self.bound[0], self.switch_seen[0]
        )
    }

    pub(crate) fn switch(&self, more: &str, limits: &str) -> String {
        let mut text = format!(
            "bind = \"{}\"\nkeys = \"b.key\"\n{more}[peer.a]\naddress = \"{}\"\n",
            self.bound[1], self.front_seen
        );
        for (k, address) in self.backs_seen.iter().enumerate() {
            text += &format!("[member.m{k}]\naddress = \"{address}\"\n");
        }
        text + &format!("[limits]\n{limits}\n")
    }

    pub(crate) fn back(
        &self,
        k: usize,
        server: &Server,
        frames: &str,
        answers: &str,
        limits: &str,
    ) -> String {
        self.back_of(k, server.address, frames, answers, limits)
    }

    /// A back before a server at an address.
    pub(crate) fn back_of(
        &self,
        k: usize,
        server: SocketAddr,
        frames: &str,
        answers: &str,
        limits: &str,
    ) -> String {
        format!(
            "to = \"{}\"\nframes = \"{frames}\"\nanswers = \"{answers}\"\nbind = \"{}\"\nkeys = \"m{k}.key\"\n\
             [peer.b]\naddress = \"{}\"\n[limits]\n{limits}\n",
            server,
            self.bound[2 + k],
            self.switch_seen[1 + k]
        )
    }
}

impl Faults {
    /// The same chances on every hop to `backs` backs, each to be changed by itself.
    pub(crate) fn alike(backs: usize, loss: u64, repeat: u64, reorder: u64) -> Faults {
        Faults::Each((0..=backs).map(|_| Chances::new(loss, repeat, reorder)).collect())
    }

    /// The chances of a hop.
    pub(crate) fn of(&self, hop: usize) -> &Chances {
        let Faults::Each(chances) = self else { panic!("there are no relays") };
        &chances[hop]
    }
}

/// A configuration with a law, and maybe more keys, whose links have a rate.
pub(crate) fn linked(law: &str, text: &str, rate: &str) -> String {
    format!("law = {law}\n{}", text.replace("\naddress =", &format!("\nrate = \"{rate}\"\naddress =")))
}

/// Waits until all neighbours of parts are heard.
pub(crate) fn await_hops<'a>(parts: impl IntoIterator<Item = &'a Agent>) {
    for agent in parts {
        super::eventually("all neighbours are up", || {
            let sites = super::status(agent).sites.unwrap();
            sites.neighbours.iter().all(|neighbour| neighbour.state == "up")
        });
    }
}

/// Starts a part whose keys are in `folder`.
pub(crate) fn site(folder: &std::path::Path, text: &str) -> Agent {
    let config = Sites::parse("test", text, folder).unwrap_or_else(|error| panic!("{error}\n{text}"));
    Agent::start(config, "test".into(), Events::default()).unwrap()
}

/// The key files of a front `a`, a switch `b` and backs `m0`…, in a folder.
pub(crate) fn keys(name: &str, backs: usize) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("tollway-sites-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let mut names = vec!["a".to_owned(), "b".to_owned()];
    names.extend((0..backs).map(|k| format!("m{k}")));
    for file in KeyFile::mesh(&names).unwrap() {
        file.save(&folder.join(format!("{}.key", file.name))).unwrap();
    }
    folder
}

/// Free UDP ports of loopback.
pub(crate) fn free(count: usize) -> Vec<SocketAddr> {
    let all: Vec<_> = (0..count).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    all.iter().map(|socket| socket.local_addr().unwrap()).collect()
}

/// The faults of relays.
#[derive(Clone, Debug)]
pub(crate) enum Faults {
    /// There are no relays.
    None,
    /// Of each hop: from the front to the switch, then to each back.
    Each(Vec<Arc<Chances>>),
}

/// Chances of 1000, which may be changed while relays run.
#[derive(Debug, Default)]
pub(crate) struct Chances {
    pub(crate) loss: AtomicU64,
    pub(crate) repeat: AtomicU64,
    pub(crate) reorder: AtomicU64,
    /// Everything that passes comes again, this many datagrams later; 0 for never.
    pub(crate) replay: AtomicU64,
    /// One way, milliseconds.
    pub(crate) delay: AtomicU64,
    /// Datagrams dropped, repeated and reordered.
    pub(crate) done: [AtomicU64; 3],
}

impl Chances {
    pub(crate) fn new(loss: u64, repeat: u64, reorder: u64) -> Arc<Chances> {
        let chances = Chances::default();
        chances.loss.store(loss, Ordering::SeqCst);
        chances.repeat.store(repeat, Ordering::SeqCst);
        chances.reorder.store(reorder, Ordering::SeqCst);
        Arc::new(chances)
    }
}

/// A relay between two parts: each has it for the other.
pub(crate) struct Relay {
    /// The address by which the part on the right has the one on the left, and the reverse.
    pub(crate) left: SocketAddr,
    pub(crate) right: SocketAddr,
    over: Arc<AtomicBool>,
    /// The socket that sends to the right.
    by: UdpSocket,
    to: SocketAddr,
    /// Datagrams that passed from left to right.
    pub(crate) passed: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Relay {
    fn start(left: SocketAddr, right: SocketAddr, chances: Arc<Chances>, seed: u64) -> Relay {
        let open = || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            socket
        };
        let (at_left, at_right) = (open(), open());
        let (over, passed) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<Vec<u8>>>>::default());
        let relay = Relay {
            left: at_right.local_addr().unwrap(),
            right: at_left.local_addr().unwrap(),
            over: Arc::clone(&over),
            by: at_right.try_clone().unwrap(),
            to: right,
            passed: Arc::clone(&passed),
        };
        let ways = [
            (at_left.try_clone().unwrap(), at_right.try_clone().unwrap(), right, Some(passed)),
            (at_right, at_left, left, None),
        ];
        for (way, (from, by, to, log)) in ways.into_iter().enumerate() {
            let (chances, over) = (Arc::clone(&chances), Arc::clone(&over));
            let random = seed << 1 | way as u64;
            std::thread::spawn(move || pass_on(&from, &by, to, &chances, random, &over, log.as_deref()));
        }
        relay
    }
}

impl Relay {
    /// Sends a datagram to the part on the right, as if it came from the one on the left.
    pub(crate) fn inject(&self, datagram: &[u8]) {
        self.by.send_to(datagram, self.to).unwrap();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
    }
}

fn pass_on(
    from: &UdpSocket,
    by: &UdpSocket,
    to: SocketAddr,
    chances: &Chances,
    seed: u64,
    over: &AtomicBool,
    log: Option<&Mutex<Vec<Vec<u8>>>>,
) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut hits = |chance: &AtomicU64| {
        // Knuth's MMIX generator.
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % 1000 < chance.load(Ordering::Relaxed)
    };
    let (mut late, mut earlier) = (VecDeque::<(u32, Vec<u8>)>::new(), VecDeque::<Vec<u8>>::new());
    let mut flying = VecDeque::<(Instant, Vec<u8>)>::new();
    let mut buffer = vec![0; 65536];
    while !over.load(Ordering::Relaxed) {
        let delay = Duration::from_millis(chances.delay.load(Ordering::Relaxed));
        let mut send = |datagram: &[u8]| flying.push_back((Instant::now() + delay, datagram.to_vec()));
        let Ok((len, _)) = from.recv_from(&mut buffer) else {
            late.drain(..).for_each(|(_, datagram)| send(&datagram));
            depart(&mut flying, by, to);
            continue;
        };
        let datagram = &buffer[..len];
        let count = |at: usize| chances.done[at].fetch_add(1, Ordering::Relaxed);
        if hits(&chances.loss) {
            count(0);
        } else if hits(&chances.reorder) {
            count(2);
            late.push_back((3, datagram.to_vec()));
        } else {
            send(datagram);
            if hits(&chances.repeat) {
                count(1);
                send(datagram);
            }
        }
        if let Some(log) = log {
            log.lock().unwrap().push(datagram.to_vec());
        }
        let replay = chances.replay.load(Ordering::Relaxed) as usize;
        if replay > 0 {
            earlier.push_back(datagram.to_vec());
            if earlier.len() > replay {
                earlier.pop_front().into_iter().for_each(|datagram| send(&datagram));
            }
        }
        late.iter_mut().for_each(|(left, _)| *left -= 1);
        while late.front().is_some_and(|(left, _)| *left == 0) {
            late.pop_front().into_iter().for_each(|(_, datagram)| send(&datagram));
        }
        depart(&mut flying, by, to);
    }
}

/// Sends what has been on its way for long enough.
fn depart(flying: &mut VecDeque<(Instant, Vec<u8>)>, by: &UdpSocket, to: SocketAddr) {
    while flying.front().is_some_and(|(due, _)| *due <= Instant::now()) {
        flying.pop_front().into_iter().for_each(|(_, datagram)| drop(by.send_to(&datagram, to)));
    }
}
