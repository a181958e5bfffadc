//! Keys of an etcd store, watched without blocking the caller.
//!
//! A thread reads all keys under a prefix at one revision, and then watches from the next revision
//! on, through etcd's JSON gateway. If the store is unreachable or has compacted the revision, the
//! thread starts again. The latest state is never missed, but steps between may be. The thread only
//! reads.

mod access;
pub(crate) mod message;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

pub use access::Access;
use access::{agent, explain};
use message::Said;

/// Values by key.
pub type Keys = BTreeMap<String, Vec<u8>>;

/// A message of the watching thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The revision and the keys at that revision. They may equal the keys before.
    Keys(u64, Keys),
    /// The store can't be reached, with the reason. The thread tries again.
    Away(String),
}

/// A store under watch.
#[derive(Debug)]
pub struct Store {
    address: Address,
    events: Receiver<Event>,
}

/// The address of a store: `etcd://HOST:PORT,HOST:PORT/PREFIX`, or `etcds://…` with TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Members of the cluster, each with its port.
    pub members: Vec<String>,
    /// The prefix of the keys.
    pub prefix: String,
    /// The members are reached by TLS.
    pub tls: bool,
}

impl Address {
    /// Parses an address. A member's port is 2379 by default.
    ///
    /// # Errors
    /// A message on the mistake in it.
    pub fn parse(text: &str) -> Result<Address, String> {
        let right = "write it like `etcd://127.0.0.1:2379/tollway`";
        let plain = text.strip_prefix("etcd://");
        let (rest, tls) = match text.strip_prefix("etcds://") {
            Some(rest) => (rest, true),
            None => (plain.ok_or_else(|| format!("`{text}` is not an address of etcd: {right}"))?, false),
        };
        let (members, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if prefix.trim_matches('/').is_empty() {
            return Err(format!("`{text}` has no prefix: {right}"));
        }
        let member = |member: &str| {
            let named = !member.is_empty()
                && !member.starts_with(':')
                && !member.contains(|c: char| c.is_whitespace() || "@/?#".contains(c));
            // An IPv6 address is in brackets.
            let port = member.rsplit_once(':').filter(|(_, port)| !port.ends_with(']'));
            match port {
                _ if !named => Err(format!("`{member}` in `{text}` is not a host: {right}")),
                None => Ok(format!("{member}:2379")),
                Some((_, port)) if port.parse::<u16>().is_ok_and(|port| port > 0) => Ok(member.to_owned()),
                Some((_, port)) => Err(format!("`{port}` in `{text}` is not a port: {right}")),
            }
        };
        let members = members.split(',').map(member).collect::<Result<_, _>>()?;
        Ok(Address { members, prefix: format!("/{}", prefix.trim_matches('/')), tls })
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.tls { "etcds" } else { "etcd" };
        write!(f, "{scheme}://{}{}", self.members.join(","), self.prefix)
    }
}

impl Store {
    /// Starts to watch a store, whether it can be reached or not.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`]: a certificate or a key is not valid.
    /// [`io::ErrorKind::Unsupported`]: TLS is needed, and this build has none. Other kinds: no
    /// thread can be started.
    pub fn open(address: Address, access: Access) -> io::Result<Store> {
        Store::open_with(address, access, PATIENCE)
    }

    fn open_with(address: Address, access: Access, patience: Duration) -> io::Result<Store> {
        // The thread waits while events are not received, so that it holds only what it has read.
        let (sender, events) = sync_channel(4);
        let agent = agent(patience, address.tls, &access)?;
        let watcher =
            Watcher { address: address.clone(), sender, agent, user: access.user, token: RefCell::default() };
        std::thread::Builder::new().name("tollway-etcd".into()).spawn(move || watcher.run())?;
        Ok(Store { address, events })
    }

    /// Returns the next event received, if any; never waits.
    pub fn poll(&self) -> Option<Event> {
        self.events.try_recv().ok()
    }

    /// Waits for the next event for at most `most`.
    pub fn wait(&self, most: Duration) -> Option<Event> {
        self.events.recv_timeout(most).ok()
    }

    /// The store's address.
    pub fn address(&self) -> &Address {
        &self.address
    }
}

/// The state of the watching thread.
struct Watcher {
    address: Address,
    sender: SyncSender<Event>,
    agent: ureq::Agent,
    user: Option<(String, String)>,
    /// The user's token, until it expires.
    token: RefCell<Option<String>>,
}

/// The reason for the end of a round.
enum RoundEnd {
    /// Start again at once.
    Again,
    /// The store did not answer, or not correctly; with the reason.
    Away(String),
    /// The receiver of events is gone.
    Done,
}

impl Watcher {
    fn run(self) {
        let (mut pause, mut next) = (SHORTEST, 0);
        loop {
            let member = &self.address.members[next % self.address.members.len()];
            let mut heard = false;
            match self.round(member, &mut heard) {
                RoundEnd::Again => pause = SHORTEST,
                RoundEnd::Done => return,
                RoundEnd::Away(why) => {
                    let why = explain(&why, self.address.tls, member);
                    if self.sender.send(Event::Away(format!("{member}: {why}"))).is_err() {
                        return;
                    }
                    next += 1;
                    // A store that has just answered may be back soon.
                    pause = if heard { SHORTEST } else { (pause * 2).min(LONGEST) };
                    std::thread::sleep(pause);
                }
            }
        }
    }

    /// Reads all keys, then watches for changes until an error ends the round.
    fn round(&self, member: &str, heard: &mut bool) -> RoundEnd {
        let prefix = &self.address.prefix;
        let read = self.ask(member, "kv/range", &message::range(prefix)).and_then(|answer| {
            let mut text = String::new();
            answer.take(MOST).read_to_string(&mut text)?;
            message::read_range(&text).ok_or_else(|| io::Error::other("an invalid answer"))
        });
        let (revision, mut keys) = match read {
            Ok(read) => read,
            Err(error) => return RoundEnd::Away(error.to_string()),
        };
        *heard = true;
        if self.tell(revision, &keys).is_err() {
            return RoundEnd::Done;
        }
        let watched = self.ask(member, "watch", &message::watch(prefix, revision + 1));
        let mut lines = match watched {
            Ok(answer) => BufReader::new(answer),
            Err(error) => return RoundEnd::Away(error.to_string()),
        };
        let mut line = String::new();
        loop {
            line.clear();
            match (&mut lines).take(MOST).read_line(&mut line) {
                Ok(0) => return RoundEnd::Away("it has ended the watch".into()),
                Ok(_) => {}
                // A timeout starts a new request, which finds out whether the store is still there.
                Err(error) if is_timeout(&error) => return RoundEnd::Again,
                Err(error) => return RoundEnd::Away(error.to_string()),
            }
            let told = match message::read_watch(&line, &mut keys) {
                Some(Said::Changed(0)) => Ok(()),
                Some(Said::Changed(revision)) => self.tell(revision, &keys),
                Some(Said::Forgotten) => return RoundEnd::Again,
                Some(Said::Ended(why)) => return RoundEnd::Away(why),
                None => return RoundEnd::Away("an invalid message".into()),
            };
            if told.is_err() {
                return RoundEnd::Done;
            }
        }
    }

    fn tell(&self, revision: u64, keys: &Keys) -> Result<(), ()> {
        let prefix = &self.address.prefix;
        // `/a` is a prefix of `/ab` too.
        let below =
            |key: &str| key.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let ours = keys.iter().filter(|(key, _)| below(key)).map(|(key, value)| (key.clone(), value.clone()));
        self.sender.send(Event::Keys(revision, ours.collect())).map_err(drop)
    }

    fn ask(&self, member: &str, what: &str, body: &str) -> io::Result<impl Read + use<>> {
        let known = self.token.borrow().is_some();
        self.sign_in(member)?;
        match self.post(member, what, body) {
            // A token expires after some minutes.
            Err(error) if known && error.kind() == io::ErrorKind::PermissionDenied => {
                self.token.take();
                self.sign_in(member)?;
                self.post(member, what, body)
            }
            other => other,
        }
    }

    fn sign_in(&self, member: &str) -> io::Result<()> {
        let Some((name, password)) = self.user.as_ref().filter(|_| self.token.borrow().is_none()) else {
            return Ok(());
        };
        let mut text = String::new();
        let answer = self.post(member, "auth/authenticate", &message::authenticate(name, password))?;
        answer.take(MOST).read_to_string(&mut text)?;
        let token = message::read_token(&text);
        *self.token.borrow_mut() = Some(token.ok_or_else(|| io::Error::other("an invalid answer"))?);
        Ok(())
    }

    /// # Errors
    /// [`io::ErrorKind::PermissionDenied`]: the store refuses.
    fn post(&self, member: &str, what: &str, body: &str) -> io::Result<impl Read + use<>> {
        let scheme = if self.address.tls { "https" } else { "http" };
        let mut request = self.agent.post(format!("{scheme}://{member}/v3/{what}"));
        if let Some(token) = &*self.token.borrow() {
            request = request.header("Authorization", token);
        }
        let answer = request.send(body).map_err(ureq::Error::into_io)?;
        let status = answer.status();
        let mut reader = answer.into_body().into_reader();
        if status.is_success() {
            return Ok(reader);
        }
        let mut text = String::new();
        (&mut reader).take(MOST).read_to_string(&mut text)?;
        let why = message::read_refusal(&text).unwrap_or_else(|| status.to_string());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("it refused the request: {why}")))
    }
}

fn is_timeout(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<ureq::Error>());
    error.kind() == io::ErrorKind::TimedOut || matches!(inner, Some(ureq::Error::Timeout(_)))
}

const PATIENCE: Duration = Duration::from_secs(30);
/// Shortest and longest pause between tries.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);
/// Upper bound of an answer, in bytes. Etcd itself takes no request over 1.5 MB, and policies are
/// far smaller.
const MOST: u64 = 16 << 20;
