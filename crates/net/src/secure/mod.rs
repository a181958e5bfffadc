//! Datagrams sealed between two peers that have each other's public keys.
//!
//! Peers agree on keys by Noise's pattern IK (`Noise_IK_25519_AESGCM_SHA256`), with static keys
//! that both have pinned. Then each datagram is sealed whole, header and toll included, with keys
//! of this hop. A node that rewrites the toll opens the datagram and seals it anew for the next
//! hop. Only a session's number and a counter are in clear. The counter is the nonce.
//!
//! ```text
//! hello    0xC0 | cookie (24) | ephemeral key (32), static key (48), session and time (25)
//! retry    0xC1 | first 4 bytes of the ephemeral key | cookie (24)
//! welcome  0xC2 | first 4 bytes of the ephemeral key | ephemeral key (32), session (17)
//! sealed   0xC3 | session (1) | counter (6) | ciphertext | tag (16)
//! ```
//!
//! A hello opens a handshake. A retry answers a hello without a valid cookie.
//!
//! | threat | answer |
//! |---|---|
//! | hellos with forged source addresses | a [cookie]: no state, no key arithmetic, few bytes |
//! | other addresses | no answer |
//! | a repeated hello | the same welcome; none if its sealed time is not later than that of the last one welcomed |
//! | a repeated datagram | a window of 1024 counters |
//! | a key disclosed later | ephemeral keys, renewed after two minutes or 2^23 datagrams |
//!
//! The machine is sans-I/O: time is an argument, and it has no socket. Its keys are random numbers
//! of the system.

mod keys;
mod session;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::SystemTime;

use snow::{Builder, HandshakeState};
use tollway_law::Time;

use crate::cookie::{self, Jar};
pub use keys::{Key, KeyFile, KeyFileError};
pub use session::{BEHIND, FRONT};
use session::{SecureSession, Unopened};

/// One party and its sessions with its peers.
pub struct Secure {
    secret: Key,
    jar: Jar,
    /// Sorted by address.
    peers: Vec<Peer>,
    /// Datagrams of handshakes to send.
    replies: VecDeque<(SocketAddr, Vec<u8>)>,
    stats: SecureStats,
}

/// Counters of refused datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SecureStats {
    /// Sealed datagrams received before, or older than the window.
    pub replayed: u64,
    /// Sealed datagrams that the peer did not seal, or whose keys have expired.
    pub forged: u64,
    /// Unsealed datagrams from peers.
    pub plain: u64,
    /// Handshakes of other parties, with other keys, or replayed.
    pub handshakes: u64,
    /// Datagrams from addresses of no peer.
    pub strangers: u64,
    /// Packets dropped because there were no keys yet and the queue was full.
    pub unsealed: u64,
}

/// The content of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A packet at [`FRONT`], and its length in bytes.
    Packet(usize),
    /// Part of a handshake.
    Handshake,
    /// Refused: a peer would not send this now.
    Refused,
}

/// The probable reason why there are no keys with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// No datagram has arrived from its address.
    Silent,
    /// It answers, but one of the two has another key than the other has pinned.
    Mistaken,
    /// It sends unsealed datagrams.
    Plain,
}

struct Peer {
    addr: SocketAddr,
    public: Key,
    /// The last sessions, oldest first.
    sessions: Vec<SecureSession>,
    /// Number of the next session.
    next: u8,
    attempt: Option<Attempt>,
    welcomed: Option<Welcomed>,
    /// Packets with room for a seal that wait for keys.
    waiting: Vec<Vec<u8>>,
    trouble: Trouble,
}

/// A handshake that this party has begun.
struct Attempt {
    handshake: HandshakeState,
    /// The hello, with the cookie once received.
    hello: Vec<u8>,
    session: u8,
    due: Time,
    pause: Time,
    /// True if a retry was answered since the last timeout.
    answered: bool,
}

/// The last hello that received a welcome.
struct Welcomed {
    /// The sender's time in it.
    stamp: [u8; STAMP],
    hello: Vec<u8>,
    welcome: Vec<u8>,
}

impl Secure {
    /// Makes the party of `file`, with these peers by name and address.
    ///
    /// # Errors
    /// [`SecureError::NoKey`] names a peer without a key; [`SecureError::Random`].
    pub fn new(file: &KeyFile, peers: &[(&str, SocketAddr)]) -> Result<Secure, SecureError> {
        let mut known = Vec::new();
        for &(name, addr) in peers {
            let public =
                *file.others.get(name).ok_or_else(|| SecureError::NoKey { name: name.to_owned() })?;
            known.push(Peer::new(addr, public));
        }
        known.sort_by_key(|peer| peer.addr);
        known.dedup_by_key(|peer| peer.addr);
        let jar = Jar::new(crate::random().map_err(SecureError::Random)?, COOKIE_LIFETIME);
        let (replies, stats) = (VecDeque::new(), SecureStats::default());
        Ok(Secure { secret: file.secret, jar, peers: known, replies, stats })
    }

    /// Adds a peer by name and address, with its key in `file`, and begins a handshake with it.
    ///
    /// # Errors
    /// [`SecureError::NoKey`].
    pub fn add(
        &mut self,
        now: Time,
        file: &KeyFile,
        name: &str,
        addr: SocketAddr,
    ) -> Result<(), SecureError> {
        let no_key = || SecureError::NoKey { name: name.to_owned() };
        let public = *file.others.get(name).ok_or_else(no_key)?;
        let at = self.peers.partition_point(|peer| peer.addr < addr);
        self.peers.insert(at, Peer::new(addr, public));
        self.begin(at, now);
        Ok(())
    }

    /// Removes the peer at an address. Later datagrams from there are refused.
    pub fn remove(&mut self, addr: SocketAddr) {
        self.peers.retain(|peer| peer.addr != addr);
    }

    /// Begins a handshake with every peer.
    pub fn open_all(&mut self, now: Time) {
        for at in 0..self.peers.len() {
            self.begin(at, now);
        }
    }

    /// Reads a datagram, and opens it in place if it is sealed.
    pub fn handle_datagram(&mut self, now: Time, from: SocketAddr, datagram: &mut [u8]) -> Heard {
        let Ok(at) = self.peers.binary_search_by_key(&from, |peer| peer.addr) else {
            self.stats.strangers += 1;
            return Heard::Refused;
        };
        match datagram.first() {
            Some(&SEALED) => self.open(at, now, datagram),
            Some(&HELLO) => self.greet(at, now, datagram),
            Some(&RETRY) => self.try_again(at, datagram),
            Some(&WELCOME) => self.conclude(at, now, datagram),
            _ => {
                self.stats.plain += 1;
                self.peers[at].trouble = Trouble::Plain;
                Heard::Refused
            }
        }
    }

    /// Seals `packet` for the peer at `to` and appends it to `out`.
    ///
    /// Returns false if there are no keys yet. The packet then waits for them, or is dropped if
    /// [`WAITING`] others wait.
    pub fn seal(&mut self, now: Time, to: SocketAddr, packet: &[u8], out: &mut Vec<u8>) -> bool {
        let start = out.len();
        out.reserve(packet.len() + OVERHEAD);
        out.extend_from_slice(&[0; FRONT]);
        out.extend_from_slice(packet);
        out.extend_from_slice(&[0; BEHIND]);
        let sealed = self.seal_in_place(now, to, &mut out[start..]);
        if !sealed {
            out.truncate(start);
        }
        sealed
    }

    /// [Seals](Secure::seal) the packet in `datagram` between [`FRONT`] and [`BEHIND`] bytes of
    /// room.
    pub fn seal_in_place(&mut self, now: Time, to: SocketAddr, datagram: &mut [u8]) -> bool {
        let Ok(at) = self.peers.binary_search_by_key(&to, |peer| peer.addr) else { return false };
        let peer = &mut self.peers[at];
        let session = peer.sessions.iter_mut().rev().find(|session| session.confirmed);
        let usable = session.filter(|session| !session.is_over(now));
        let stale = usable.as_ref().is_none_or(|session| session.is_stale(now));
        let sealed = match usable {
            Some(session) => {
                session.seal(datagram);
                true
            }
            None if peer.waiting.len() < WAITING => {
                peer.waiting.push(datagram.to_vec());
                false
            }
            None => {
                self.stats.unsealed += 1;
                false
            }
        };
        if stale {
            self.begin(at, now);
        }
        sealed
    }

    /// Sends unanswered hellos again.
    pub fn handle_timeout(&mut self, now: Time) {
        for peer in &mut self.peers {
            let Some(attempt) = peer.attempt.as_mut().filter(|attempt| attempt.due <= now) else { continue };
            attempt.pause = (attempt.pause + attempt.pause).min(LONGEST_PAUSE);
            attempt.due = now.saturating_add(attempt.pause);
            attempt.answered = false;
            self.replies.push_back((peer.addr, attempt.hello.clone()));
        }
    }

    /// The next time at which [`handle_timeout`](Secure::handle_timeout) is due.
    pub fn poll_timeout(&self) -> Time {
        let attempts = self.peers.iter().filter_map(|peer| peer.attempt.as_ref());
        attempts.map(|attempt| attempt.due).min().unwrap_or(Time::NEVER)
    }

    /// The next datagram to send: part of a handshake, or a packet that [waited](Secure::seal) for
    /// keys.
    pub fn poll_transmit(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        self.replies.pop_front()
    }

    /// Counters of refused datagrams.
    pub fn stats(&self) -> SecureStats {
        self.stats
    }

    /// The reason why there are no keys with the peer at an address; `None` if there are keys, or
    /// were.
    pub fn trouble(&self, addr: SocketAddr) -> Option<Trouble> {
        let peer = self.peers.iter().find(|peer| peer.addr == addr)?;
        peer.sessions.iter().all(|session| !session.confirmed).then_some(peer.trouble)
    }

    fn begin(&mut self, at: usize, now: Time) {
        let peer = &mut self.peers[at];
        if peer.attempt.is_some() {
            return;
        }
        let Some(attempt) = Attempt::new(&self.secret, &peer.public, peer.next, now) else { return };
        peer.next = peer.next.wrapping_add(1);
        self.replies.push_back((peer.addr, attempt.hello.clone()));
        peer.attempt = Some(attempt);
    }

    fn open(&mut self, at: usize, now: Time, datagram: &mut [u8]) -> Heard {
        let peer = &mut self.peers[at];
        let named = datagram.get(1).copied();
        let place = peer.sessions.iter().rposition(|session| Some(session.ours) == named);
        let session = place.map(|place| &mut peer.sessions[place]).filter(|session| !session.is_over(now));
        let opened = match session {
            None => Err(Unopened::Forged),
            Some(session) => session.open(now, datagram),
        };
        let len = match opened {
            Ok(len) => len,
            Err(why) => {
                match why {
                    Unopened::Replayed => self.stats.replayed += 1,
                    Unopened::Forged => self.stats.forged += 1,
                }
                return Heard::Refused;
            }
        };
        if let Some(place) = place.filter(|&place| !peer.sessions[place].confirmed) {
            // The peer sends by this session from now on.
            let mut session = peer.sessions.remove(place);
            session.confirmed = true;
            peer.sessions.push(session);
            peer.release(&mut self.replies);
        }
        if len > 0 { Heard::Packet(len) } else { Heard::Handshake }
    }

    /// Handles a hello. A hello without a valid cookie gets a cookie; a new one of the peer gets a
    /// welcome.
    fn greet(&mut self, at: usize, now: Time, datagram: &[u8]) -> Heard {
        let shown = datagram[1..].split_first_chunk::<{ cookie::LEN }>();
        let Some((cookie, message)) = shown.filter(|_| datagram.len() == HELLO_LEN) else {
            return self.refuse();
        };
        let peer = &mut self.peers[at];
        let [a, b, c, d, ..] = *message else { return self.refuse() };
        let token = [a, b, c, d];
        if !self.jar.knows(now, peer.addr, u32::from_be_bytes(token), cookie) {
            let cookie = self.jar.bake(now, peer.addr, u32::from_be_bytes(token));
            self.replies.push_back((peer.addr, [&[RETRY][..], &token, &cookie].concat()));
            return Heard::Handshake;
        }
        if let Some(welcomed) = &peer.welcomed
            && welcomed.hello == message
        {
            self.replies.push_back((peer.addr, welcomed.welcome.clone()));
            return Heard::Handshake;
        }
        let Some((session, stamp, welcome)) = peer.welcome(&self.secret, message, token, now) else {
            peer.trouble = Trouble::Mistaken;
            return self.refuse();
        };
        peer.add(session);
        self.replies.push_back((peer.addr, welcome.clone()));
        peer.welcomed = Some(Welcomed { stamp, hello: message.to_vec(), welcome });
        Heard::Handshake
    }

    fn refuse(&mut self) -> Heard {
        self.stats.handshakes += 1;
        Heard::Refused
    }

    /// Handles a retry: sends the hello again with the peer's cookie.
    fn try_again(&mut self, at: usize, datagram: &[u8]) -> Heard {
        let peer = &mut self.peers[at];
        let attempt = peer.attempt.as_mut().filter(|attempt| !attempt.answered);
        let Some((attempt, cookie)) = attempt.and_then(|attempt| {
            let cookie = datagram[1..].strip_prefix(attempt.token())?;
            (cookie.len() == cookie::LEN).then_some((attempt, cookie))
        }) else {
            return self.refuse();
        };
        attempt.answered = true;
        attempt.hello[1..TOKEN_AT].copy_from_slice(cookie);
        peer.trouble = Trouble::Mistaken;
        self.replies.push_back((peer.addr, attempt.hello.clone()));
        Heard::Handshake
    }

    /// Handles a welcome, which completes the handshake.
    fn conclude(&mut self, at: usize, now: Time, datagram: &[u8]) -> Heard {
        let peer = &mut self.peers[at];
        let Some(mut attempt) = peer.attempt.take() else { return self.refuse() };
        let message = datagram[1..].strip_prefix(attempt.token());
        let mut theirs = [0; 64];
        let read = message.map(|message| attempt.handshake.read_message(message, &mut theirs));
        if !matches!(read, Some(Ok(1))) {
            peer.attempt = Some(attempt);
            return self.refuse();
        }
        let numbers = [attempt.session, theirs[0]];
        let Some(mut session) = SecureSession::new(&mut attempt.handshake, numbers, now) else {
            return self.refuse();
        };
        let mut confirmation = vec![0; OVERHEAD];
        session.seal(&mut confirmation);
        peer.add(session);
        self.replies.push_back((peer.addr, confirmation));
        peer.release(&mut self.replies);
        Heard::Handshake
    }
}

impl std::fmt::Debug for Secure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secure").field("stats", &self.stats).finish_non_exhaustive()
    }
}

impl Peer {
    fn new(addr: SocketAddr, public: Key) -> Peer {
        let (sessions, waiting) = (Vec::new(), Vec::new());
        let (attempt, welcomed, trouble) = (None, None, Trouble::Silent);
        Peer { addr, public, sessions, next: 0, attempt, welcomed, waiting, trouble }
    }

    /// Reads a hello of this peer and writes the welcome; `None` if another party sent it, or if it
    /// was recorded before the last one welcomed.
    fn welcome(
        &mut self,
        secret: &Key,
        message: &[u8],
        token: [u8; TOKEN_LEN],
        now: Time,
    ) -> Option<(SecureSession, [u8; STAMP], Vec<u8>)> {
        let mut handshake = builder(secret)?.build_responder().ok()?;
        let mut theirs = [0; 64];
        let len = handshake.read_message(message, &mut theirs).ok()?;
        if len != 1 + STAMP || handshake.get_remote_static() != Some(&self.public) {
            return None;
        }
        let stamp = *theirs[1..].first_chunk()?;
        if self.welcomed.as_ref().is_some_and(|welcomed| stamp <= welcomed.stamp) {
            return None;
        }
        let ours = self.next;
        self.next = self.next.wrapping_add(1);
        let mut welcome = vec![0; 1 + TOKEN_LEN + 64];
        welcome[0] = WELCOME;
        welcome[1..=TOKEN_LEN].copy_from_slice(&token);
        let len = handshake.write_message(&[ours], &mut welcome[1 + TOKEN_LEN..]).ok()?;
        welcome.truncate(1 + TOKEN_LEN + len);
        Some((SecureSession::new(&mut handshake, [ours, theirs[0]], now)?, stamp, welcome))
    }

    /// Adds a session. Removes the oldest session if there are too many.
    fn add(&mut self, session: SecureSession) {
        if self.sessions.len() >= SESSIONS {
            // The session in use stays, however many unconfirmed ones there are.
            let spare = self
                .sessions
                .iter()
                .rposition(|session| session.confirmed)
                .map_or(0, |last| usize::from(last == 0));
            self.sessions.remove(spare);
        }
        self.sessions.push(session);
    }

    /// Seals the packets that waited for keys.
    fn release(&mut self, replies: &mut VecDeque<(SocketAddr, Vec<u8>)>) {
        let Some(session) = self.sessions.iter_mut().rev().find(|session| session.confirmed) else { return };
        for mut datagram in self.waiting.drain(..) {
            session.seal(&mut datagram);
            replies.push_back((self.addr, datagram));
        }
    }
}

impl Attempt {
    /// Begins a handshake; `None` if the system gives no randomness.
    fn new(secret: &Key, public: &Key, session: u8, now: Time) -> Option<Attempt> {
        let builder = builder(secret)?.remote_public_key(public).ok()?;
        let mut handshake = builder.build_initiator().ok()?;
        let mut hello = vec![0; HELLO_LEN];
        hello[0] = HELLO;
        let payload = [&[session][..], &stamp()].concat();
        let len = handshake.write_message(&payload, &mut hello[TOKEN_AT..]).ok()?;
        debug_assert_eq!(len, HELLO_LEN - TOKEN_AT);
        let (pause, due) = (FIRST_PAUSE, now.saturating_add(FIRST_PAUSE));
        Some(Attempt { handshake, hello, session, due, pause, answered: false })
    }

    /// The bytes that identify answers to its hello.
    fn token(&self) -> &[u8] {
        &self.hello[TOKEN_AT..][..TOKEN_LEN]
    }
}

/// The wall clock in ns, in network order. It must be later after a restart, as the peer remembers
/// the last one.
fn stamp() -> [u8; STAMP] {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (now.as_nanos() as u64).to_be_bytes()
}

fn builder(secret: &Key) -> Option<Builder<'_>> {
    let builder = Builder::new(PATTERN.parse().ok()?);
    builder.local_private_key(secret).ok()?.prologue(PROLOGUE).ok()
}

/// Returns true if a datagram of [`Secure::poll_transmit`] holds a packet.
pub fn has_packet(datagram: &[u8]) -> bool {
    datagram.first() == Some(&SEALED) && datagram.len() > OVERHEAD
}

/// An error that prevents sealed datagrams.
#[derive(Debug, thiserror::Error)]
pub enum SecureError {
    /// The key file does not have the key of a peer.
    #[error(
        "the key file has no key of `{name}`: make the files of all nodes together, with `tollway keys NAME…`"
    )]
    NoKey {
        /// The peer's name.
        name: String,
    },
    /// The system gives no randomness.
    #[error("cannot get random bytes from the system: {0}")]
    Random(std::io::Error),
}

/// Bytes that a seal adds to a packet.
pub const OVERHEAD: usize = FRONT + BEHIND;
/// Limit of packets that wait for keys with a peer.
pub const WAITING: usize = 16;

const PATTERN: &str = "Noise_IK_25519_AESGCM_SHA256";
const PROLOGUE: &[u8] = b"tollway 2";
const HELLO: u8 = 0xc0;
const RETRY: u8 = 0xc1;
const WELCOME: u8 = 0xc2;
const SEALED: u8 = 0xc3;
/// Offset of the ephemeral key in a hello. Its first bytes identify the answers.
const TOKEN_AT: usize = 1 + cookie::LEN;
const TOKEN_LEN: usize = 4;
const HELLO_LEN: usize = TOKEN_AT + 32 + 48 + 17 + STAMP;
/// Bytes of the time in a hello.
const STAMP: usize = 8;
/// Time within which a hello must return its cookie.
const COOKIE_LIFETIME: Time = Time::from_secs(10);
/// Limit of sessions: two for each direction that a handshake may take.
const SESSIONS: usize = 4;
const FIRST_PAUSE: Time = Time::from_millis(250);
const LONGEST_PAUSE: Time = Time::from_secs(2);
