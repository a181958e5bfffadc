//! Routing modules: the member of a cluster that a frame goes to.
//!
//! A module is a page of code that sees a frame as an [`Item`] and members as [`Candidate`]s. It serves one session; what the
//! sessions of a cluster share is in the candidates. One of your own is a [`Route`].

mod by_key;
mod least_loaded;
mod round_robin;
mod sticky;
#[cfg(test)]
mod tests;
mod weighted;

pub use by_key::ByKey;
pub use least_loaded::LeastLoaded;
pub use round_robin::RoundRobin;
pub use sticky::Sticky;
pub use weighted::Weighted;

use std::fmt;
use std::str::FromStr;

/// What a routing module sees of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// The session's number, scrambled by the same key as [`key`](Item::key).
    pub session: u64,
    /// A keyed hash of the frame's key ([`struct@Hash`]): its sender cannot choose it.
    pub key: u64,
    /// Bytes.
    pub size: u32,
}

/// What a routing module sees of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    /// A keyed hash of the member's name: the same wherever it stands in the list.
    pub name: u64,
    /// It takes new frames: it is neither down nor draining.
    pub up: bool,
    /// Bytes that all sessions have outstanding at it.
    pub outstanding: u64,
    /// Bytes that may be.
    pub window: u64,
}

/// A routing module.
///
/// ```
/// use tollway_proto::route::{Candidate, Item, Route};
///
/// /// Small frames to the first member, all others to the second.
/// struct BySize;
///
/// impl Route for BySize {
///     fn pick(&mut self, item: &Item, members: &[Candidate]) -> Option<usize> {
///         let at = usize::from(item.size > 4096);
///         members.get(at)?.up.then_some(at)
///     }
/// }
///
/// let up = Candidate { up: true, ..Candidate::default() };
/// assert_eq!(BySize.pick(&Item { size: 9000, ..Item::default() }, &[up, up]), Some(1));
/// ```
pub trait Route {
    /// Returns the place of the member that takes the frame; `None` if no member that may is up.
    fn pick(&mut self, item: &Item, members: &[Candidate]) -> Option<usize>;
}

/// The modules that have a word in configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// [`RoundRobin`].
    RoundRobin,
    /// [`ByKey`].
    ByKey,
    /// [`LeastLoaded`].
    LeastLoaded,
    /// [`Sticky`].
    Sticky,
}

impl Policy {
    /// All of them.
    pub const ALL: [Policy; 4] = [Policy::RoundRobin, Policy::ByKey, Policy::LeastLoaded, Policy::Sticky];

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Policy::RoundRobin => "round-robin",
            Policy::ByKey => "by-key",
            Policy::LeastLoaded => "least-loaded",
            Policy::Sticky => "sticky",
        }
    }

    /// A module for the session with this number. Sessions that begin one after the other begin at different members.
    pub fn module(self, session: u64) -> Box<dyn Route + Send> {
        match self {
            Policy::RoundRobin => Box::new(RoundRobin::from(session)),
            Policy::ByKey => Box::new(ByKey),
            Policy::LeastLoaded => Box::new(LeastLoaded::from(session)),
            Policy::Sticky => Box::new(Sticky),
        }
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Policy, String> {
        Policy::ALL.into_iter().find(|policy| policy.word() == text).ok_or_else(|| {
            format!("`{text}` is no policy: `round-robin`, `by-key`, `least-loaded` and `sticky` are")
        })
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Keyed hashes of keys and names, so that no client can choose keys that meet at one member.
#[derive(Clone, Copy, Debug)]
pub struct Hash(siphasher::sip::SipHasher13);

impl Hash {
    /// Hashes under `key`, which is secret and the same in all processes that must agree.
    pub fn new(key: [u8; 16]) -> Hash {
        Hash(siphasher::sip::SipHasher13::new_with_key(&key))
    }

    /// The hash of `bytes`.
    #[inline]
    pub fn of(&self, bytes: &[u8]) -> u64 {
        self.0.hash(bytes)
    }
}

/// The member with the highest score of those that are up; of two alike the first. Each member's score depends on the key and that
/// member only: one that leaves moves its own keys and no others (rendezvous hashing, Thaler and Ravishankar 1998).
fn rendezvous(key: u64, members: &[Candidate]) -> Option<usize> {
    let mut best = None;
    for (at, member) in members.iter().enumerate().filter(|(_, member)| member.up) {
        let score = mix(key ^ member.name);
        if best.is_none_or(|(_, most)| score > most) {
            best = Some((at, score));
        }
    }
    best.map(|(at, _)| at)
}

/// SplitMix64's finalizer: each bit of the input moves half of the output's.
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
