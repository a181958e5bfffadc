//! The state that all sessions of an engine share.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use tollway_agent::events::Events;
use tollway_law::Time;
use tollway_net::Clock;
use tollway_proto::dispatch::{Cluster, MemberConfig};
use tollway_proto::route::{ByKey, Candidate, Hash, Item, Route, mix};

use super::probe::Probe;
use super::token;
use crate::config::file::MEMBERS;
use crate::config::{ClientSpec, Config, MemberSpec, OnFailure};
use crate::redis::{self, Homes};
use crate::stream::Stream;

/// Members, clients and counters.
pub(super) struct Core {
    pub(super) config: Arc<Config>,
    pub(super) registry: Registry,
    pub(super) clock: Clock,
    /// The time of the event that is being handled.
    pub(super) now: Time,
    pub(super) hash: Hash,
    pub(super) cluster: Cluster,
    pub(super) members: Vec<MemberState>,
    /// The members as routing modules see them, in the same order.
    pub(super) candidates: Vec<Candidate>,
    pub(super) clients: Vec<Option<Client>>,
    pub(super) by_name: HashMap<String, u32>,
    pub(super) counters: Counters,
    pub(super) events: Events,
    /// The sessions that limits and descriptors allow.
    pub(super) most_sessions: usize,
    /// Bytes that all sessions hold.
    pub(super) memory: usize,
    /// Sessions with immediate work.
    pub(super) again: Vec<usize>,
    /// Sessions that wait for a kernel's acknowledgements.
    pub(super) unacknowledged: Vec<usize>,
    /// Members whose windows may have new room.
    pub(super) drained: Vec<usize>,
    /// For each member, its frames among the bytes just read.
    pub(super) plans: Vec<Vec<Planned>>,
    pub(super) planned: Vec<usize>,
}

/// A frame among the bytes just read, and its number in its session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    pub(super) seq: u64,
    pub(super) at: u32,
    pub(super) len: u32,
}

impl Planned {
    pub(super) fn of<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        &bytes[self.at as usize..(self.at + self.len) as usize]
    }
}

/// The engine's state of a member.
pub(super) struct MemberState {
    pub(super) spec: MemberSpec,
    /// True if it is in the present configuration.
    pub(super) listed: bool,
    /// True if an operator drains it.
    pub(super) drained: bool,
    pub(super) health: Health,
    /// Failures in a row.
    pub(super) failures: u32,
    pub(super) probe: Option<Probe>,
    /// Start of the last check.
    pub(super) checked: Time,
    pub(super) lanes: usize,
    pub(super) counts: MemberCounts,
    pub(super) last_failure: Option<String>,
}

impl MemberState {
    fn new(spec: MemberSpec, now: Time) -> MemberState {
        MemberState {
            spec,
            listed: true,
            drained: false,
            health: Health::Up,
            failures: 0,
            probe: None,
            checked: now,
            lanes: 0,
            counts: MemberCounts::default(),
            last_failure: None,
        }
    }
}

/// The availability of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Up,
    /// Down since this time.
    Down(Time),
}

/// The counters of a member.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MemberCounts {
    pub(super) bytes: u64,
    pub(super) answers: u64,
    pub(super) retried: u64,
    pub(super) unanswered: u64,
    pub(super) perhaps_lost: u64,
    pub(super) unrequested: u64,
    pub(super) failures: u64,
}

/// A client with at least one session.
pub(super) struct Client {
    pub(super) name: String,
    pub(super) weight: f64,
    pub(super) sessions: usize,
    pub(super) frames: u64,
    pub(super) bytes: u64,
}

/// The counters of the whole switch.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    pub(super) accepted: u64,
    pub(super) refused: u64,
    pub(super) frames: u64,
    pub(super) bytes: u64,
    pub(super) answers: u64,
    pub(super) answer_bytes: u64,
    /// Frames that the switch answered itself.
    pub(super) answered_here: u64,
    /// Frames received only in part.
    pub(super) torn: u64,
    /// Frames accepted and not sent to a member before their session ended.
    pub(super) abandoned: u64,
    /// Sessions that ended, by reason.
    pub(super) ends: BTreeMap<&'static str, u64>,
}

impl Core {
    pub(super) fn new(config: Arc<Config>, registry: Registry, events: Events) -> Core {
        let mut core = Core {
            registry,
            clock: Clock::starting_at(Time::ZERO),
            now: Time::ZERO,
            hash: Hash::new(config.secret),
            cluster: Cluster::new(),
            members: Vec::new(),
            candidates: Vec::new(),
            clients: Vec::new(),
            by_name: HashMap::new(),
            counters: Counters::default(),
            events,
            most_sessions: 0,
            memory: 0,
            again: Vec::new(),
            unacknowledged: Vec::new(),
            drained: Vec::new(),
            plans: Vec::new(),
            planned: Vec::new(),
            config: Arc::clone(&config),
        };
        core.install(config);
        core
    }

    /// Checks that another configuration can be put in force.
    pub(super) fn accepts(&self, config: &Config) -> io::Result<()> {
        if config.secret != self.config.secret {
            return Err(io::Error::other("another `secret` would move keys: it takes effect at a restart"));
        }
        let stays = |member: &&MemberState| {
            member.lanes > 0 && config.members.iter().all(|spec| spec.name != member.spec.name)
        };
        let all = config.members.len() + self.members.iter().filter(stays).count();
        if all > MEMBERS {
            let why =
                format!("with those that finish their work, {all} members exceed the limit of {MEMBERS}");
            return Err(io::Error::other(why));
        }
        Ok(())
    }

    /// Puts another configuration in force. Members keep their numbers, by name.
    pub(super) fn install(&mut self, config: Arc<Config>) {
        self.members.iter_mut().for_each(|member| member.listed = false);
        for spec in &config.members {
            if let Some(member) = self.members.iter_mut().find(|member| member.spec.name == spec.name) {
                if member.spec.address != spec.address {
                    (member.health, member.failures, member.probe) = (Health::Up, 0, None);
                }
                (member.spec, member.listed) = (spec.clone(), true);
            }
        }
        for spec in &config.members {
            if self.members.iter().all(|member| member.spec.name != spec.name) {
                self.add(spec.clone(), &config);
            }
        }
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let descriptors = usize::try_from(descriptors.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let members = config.members.len();
        let enough = descriptors.saturating_sub(SPARE + config.listen.len() + members) / (1 + members);
        self.most_sessions = config.limits.sessions.min(enough.max(1));
        self.config = config;
        for at in 0..self.clients.len() {
            let Some(client) = &self.clients[at] else { continue };
            let weight = self.config.clients.iter().find(|spec| spec.name == client.name);
            let weight = weight.map_or(1.0, |spec| spec.weight);
            self.cluster.set_weight(at as u32, weight);
            if let Some(client) = &mut self.clients[at] {
                client.weight = weight;
            }
        }
        (0..self.members.len()).for_each(|at| self.refresh(at));
    }

    /// Adds a member, in the place of one that has left if there is one.
    fn add(&mut self, spec: MemberSpec, config: &Config) {
        let name = self.hash.of(spec.name.as_bytes());
        let state = MemberState::new(spec, self.now);
        if let Some(at) = self.members.iter().position(|member| !member.listed && member.lanes == 0) {
            (self.members[at], self.candidates[at].name) = (state, name);
            return;
        }
        let limits = &config.limits;
        let member =
            MemberConfig { buffer: limits.member_buffer, segment: (limits.frame as u64).min(SEGMENT) };
        self.cluster.add_member(self.now, member);
        self.candidates.push(Candidate { name, window: limits.member_buffer, ..Candidate::default() });
        self.plans.push(Vec::new());
        self.members.push(state);
    }

    /// Updates a candidate from its member. If keys stay, a member that is down keeps its own.
    pub(super) fn refresh(&mut self, at: usize) {
        let member = &self.members[at];
        let takes = member.listed && !member.drained && !member.spec.drain;
        self.candidates[at].weight = member.spec.weight;
        self.candidates[at].up = takes && (self.keys_stay() || member.health == Health::Up);
    }

    /// True if frames of a member that is down fail, instead of going to another.
    pub(super) fn keys_stay(&self) -> bool {
        self.config.on_failure == OnFailure::Error
    }

    /// True if frames may be sent to a member.
    #[inline]
    pub(super) fn is_reachable(&self, at: usize) -> bool {
        self.members[at].health == Health::Up
    }

    /// The error of a command for a member that is down.
    pub(super) fn unreachable(&self, at: usize) -> String {
        let member = &self.members[at];
        let why = member.last_failure.as_deref().unwrap_or("its last connection failed");
        format!("member {} is down: {why}; the command was not executed", member.spec.name)
    }

    /// The members of the present configuration.
    pub(super) fn listed(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.members.len()).filter(|&at| self.members[at].listed)
    }

    /// True if the cluster has one member.
    pub(super) fn is_single(&self) -> bool {
        self.listed().count() == 1
    }

    /// A member that is up, the same for all commands of a session.
    pub(super) fn any_member(&self, session: u64) -> Option<usize> {
        let up = (0..self.members.len()).filter(|&at| self.candidates[at].up && self.is_reachable(at));
        up.max_by_key(|&at| mix(session ^ self.candidates[at].name))
    }

    /// The members of Redis' keys; `spread` is false if members are replicas of each other.
    pub(super) fn homes(&self, spread: bool) -> KeyHomes<'_> {
        KeyHomes { core: self, spread }
    }

    pub(super) fn set_health(&mut self, at: usize, health: Health) {
        self.members[at].health = health;
        self.refresh(at);
    }

    /// Records that a connection to a member failed, or that it hung.
    pub(super) fn is_down(&mut self, at: usize, why: String) {
        let now = self.now;
        let member = &mut self.members[at];
        member.counts.failures += 1;
        if member.health == Health::Up {
            if member.failures == 0 {
                let name = &member.spec.name;
                self.events.warn("member-down", format_args!("member {name} is down: {why}"));
            }
            member.failures += 1;
            self.set_health(at, Health::Down(now));
        }
        self.members[at].last_failure = Some(why);
    }

    /// The time for which a failed member is not used. It is the first while no member is up, and if
    /// no other takes the keys.
    pub(super) fn pause(&self, at: usize) -> Time {
        let up = !self.keys_stay() && self.candidates.iter().any(|candidate| candidate.up);
        let further = if up { self.members[at].failures.saturating_sub(1).min(6) } else { 0 };
        Time::from_millis(FIRST_PAUSE << further)
    }

    /// Records bytes that a member has finished.
    pub(super) fn on_drained(&mut self, at: usize, client: u32, bytes: u64, response: Option<Time>) {
        if bytes == 0 {
            return;
        }
        self.cluster.on_drained(self.now, at, client, bytes, response);
        self.candidates[at].outstanding = self.candidates[at].outstanding.saturating_sub(bytes);
        self.candidates[at].window = self.cluster.window(at).window();
        if !self.drained.contains(&at) {
            self.drained.push(at);
        }
    }

    /// The client at this address, with this user or certificate: its name and weight.
    pub(super) fn identify(
        &self,
        address: IpAddr,
        user: Option<&str>,
        certified: Option<&str>,
    ) -> (String, f64) {
        let matches = |spec: &ClientSpec| {
            let given = spec.user.is_some() || spec.tls_name.is_some() || !spec.from.is_empty();
            given
                && spec.user.as_deref().is_none_or(|name| Some(name) == user)
                && spec.tls_name.as_deref().is_none_or(|name| Some(name) == certified)
                && (spec.from.is_empty() || spec.from.iter().any(|network| network.score(address).is_some()))
        };
        if let Some(spec) = self.config.clients.iter().find(|spec| matches(spec)) {
            return (spec.name.clone(), spec.weight);
        }
        let name = match (certified, user) {
            (Some(name), _) => format!("tls:{name}"),
            (None, Some(name)) => format!("user:{name}"),
            (None, None) => address.to_canonical().to_string(),
        };
        (name, 1.0)
    }

    /// Adds a session to this client. Returns the client's number, or `None` if it has too many
    /// sessions.
    pub(super) fn enter(&mut self, (name, weight): (String, f64)) -> Option<u32> {
        let known = self.by_name.get(&name).copied();
        let at = known.unwrap_or_else(|| {
            let at = self.cluster.add_client(weight);
            if self.clients.len() <= at as usize {
                self.clients.resize_with(at as usize + 1, || None);
            }
            let client = Client { name: name.clone(), weight, sessions: 0, frames: 0, bytes: 0 };
            self.clients[at as usize] = Some(client);
            self.by_name.insert(name, at);
            at
        });
        let client = self.clients[at as usize].as_mut()?;
        if client.sessions >= self.config.limits.sessions_per_client {
            return None;
        }
        client.sessions += 1;
        Some(at)
    }

    /// Removes a session from this client.
    pub(super) fn leave(&mut self, at: u32) {
        let Some(client) = self.clients[at as usize].as_mut() else { return };
        client.sessions -= 1;
        if client.sessions == 0 {
            self.by_name.remove(&client.name);
            self.clients[at as usize] = None;
            self.cluster.remove_client(at);
        }
    }

    pub(super) fn client(&mut self, at: u32) -> Option<&mut Client> {
        self.clients.get_mut(at as usize)?.as_mut()
    }

    pub(super) fn member_address(&self, at: usize) -> SocketAddr {
        self.members[at].spec.address
    }

    /// Begins a session's connection to a member.
    pub(super) fn connect(&self, session: usize, member: usize) -> io::Result<Stream> {
        let mut stream = self.dial(member)?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.registry.register(stream.socket(), Token(token(session, member + 1)), interest)?;
        Ok(stream)
    }

    /// Begins a connection to a member.
    pub(super) fn dial(&self, member: usize) -> io::Result<Stream> {
        let address = self.member_address(member);
        let socket = TcpStream::connect(address)?;
        let Some((config, name)) = &self.config.upstream.tls else { return Ok(Stream::plain(socket)) };
        let name = name.clone().unwrap_or_else(|| address.ip().into());
        let connection = rustls::ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
        Ok(Stream::tls(socket, connection.into()))
    }
}

/// The members of Redis' keys.
pub(super) struct KeyHomes<'c> {
    core: &'c Core,
    spread: bool,
}

impl Homes for KeyHomes<'_> {
    fn hash(&self, key: &[u8]) -> u64 {
        self.core.hash.of(redis::tag(key))
    }

    fn home(&self, hash: u64) -> Option<usize> {
        let item = Item { key: hash, ..Item::default() };
        if self.spread { ByKey.pick(&item, &self.core.candidates) } else { None }
    }

    fn is_one(&self) -> bool {
        !self.spread || self.core.is_single()
    }
}

/// Descriptors for other purposes than sessions: the event queue, the control socket, views, files.
const SPARE: usize = 32;
/// First pause before a failed member is tried again, milliseconds. It doubles with each further
/// failure, up to 64 times.
const FIRST_PAUSE: u64 = 250;
/// The least window of a member, bytes, for frames that may be longer.
const SEGMENT: u64 = 16 << 10;
