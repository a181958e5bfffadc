//! Routing modules: each selects the member of a cluster for a frame.
//!
//! A module sees a frame as an [`Item`] and members as [`Candidate`]s. It serves one session; the
//! state that sessions of a cluster share is in the candidates. A new module implements [`Route`].

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
use std::sync::Arc;

/// A frame as a routing module sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Item<'f> {
    /// The session's number, hashed with the same key as [`key`](Item::key).
    pub session: u64,
    /// A keyed hash of the frame's key ([`struct@Hash`]): its sender cannot choose it.
    pub key: u64,
    /// Length of the frame, bytes; between sites, and in the simulator, that of its first packet.
    pub size: u32,
    /// The frame's bytes; between sites, those in its first packet. Empty in the simulator.
    pub frame: &'f [u8],
}

/// A member as a routing module sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// A keyed hash of the member's name, independent of its place in the list.
    pub name: u64,
    /// True if it accepts new frames: it is neither down nor draining.
    pub up: bool,
    /// Outstanding bytes of all sessions at it.
    pub outstanding: u64,
    /// Upper bound on outstanding bytes.
    pub window: u64,
    /// Its share of keys, sessions and turns, at least 1.
    pub weight: u32,
}

impl Default for Candidate {
    fn default() -> Candidate {
        Candidate { name: 0, up: false, outstanding: 0, window: 0, weight: 1 }
    }
}

/// A routing module.
///
/// ```
/// use tollway_proto::route::{Candidate, Item, Route};
///
/// /// Writes to the first member, all other frames to the second.
/// struct ByVerb;
///
/// impl Route for ByVerb {
///     fn pick(&mut self, item: &Item, members: &[Candidate]) -> Option<usize> {
///         let at = usize::from(!item.frame.starts_with(b"SET "));
///         members.get(at)?.up.then_some(at)
///     }
/// }
///
/// let up = Candidate { up: true, ..Candidate::default() };
/// assert_eq!(ByVerb.pick(&Item { frame: b"GET a", ..Item::default() }, &[up, up]), Some(1));
/// ```
pub trait Route {
    /// The index of the member for the frame; `None` if no eligible member is up.
    fn pick(&mut self, item: &Item, members: &[Candidate]) -> Option<usize>;
}

/// Routing modules of one kind, one for each session.
///
/// ```
/// use tollway_proto::route::{Modules, Weighted};
///
/// let modules = Modules::new("3:1", |_| Box::new(Weighted::new(&[3, 1])));
/// assert_eq!(modules.name(), "3:1");
/// ```
#[derive(Clone)]
pub struct Modules {
    name: &'static str,
    make: Arc<dyn Fn(u64) -> Box<dyn Route + Send> + Send + Sync>,
}

impl Modules {
    /// Modules that `make` makes for the session with a number. `name` is for the status.
    pub fn new(
        name: &'static str,
        make: impl Fn(u64) -> Box<dyn Route + Send> + Send + Sync + 'static,
    ) -> Modules {
        Modules { name, make: Arc::new(make) }
    }

    /// The name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The module for the session with this number.
    pub fn module(&self, session: u64) -> Box<dyn Route + Send> {
        (self.make)(session)
    }
}

impl fmt::Debug for Modules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Modules({})", self.name)
    }
}

/// The modules that configurations can name.
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
    /// All policies.
    pub const ALL: [Policy; 4] = [Policy::RoundRobin, Policy::ByKey, Policy::LeastLoaded, Policy::Sticky];

    /// Its word in configurations.
    pub fn word(self) -> &'static str {
        match self {
            Policy::RoundRobin => "round-robin",
            Policy::ByKey => "by-key",
            Policy::LeastLoaded => "least-loaded",
            Policy::Sticky => "sticky",
        }
    }

    /// A module for the session with this number. Consecutive sessions start at different members.
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
            format!("`{text}` is not a policy: use `round-robin`, `by-key`, `least-loaded` or `sticky`")
        })
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Keyed hashes of keys and names, so that no client can choose keys that collide at one member.
#[derive(Clone, Copy, Debug)]
pub struct Hash(siphasher::sip::SipHasher13);

impl Hash {
    /// Hashes under `key`, which is secret, and equal in all processes that must agree.
    pub fn new(key: [u8; 16]) -> Hash {
        Hash(siphasher::sip::SipHasher13::new_with_key(&key))
    }

    /// The hash of `bytes`.
    #[inline]
    pub fn of(&self, bytes: &[u8]) -> u64 {
        self.0.hash(bytes)
    }
}

/// The member with the highest score among those that are up; ties go to the first. A member of
/// weight `w` has the best of `w` scores.
///
/// Each member's score depends on the key and that member only, so a member that leaves moves only
/// its own keys (rendezvous hashing, Thaler and Ravishankar 1998).
fn rendezvous(key: u64, members: &[Candidate]) -> Option<usize> {
    let mut best = None;
    for (at, member) in members.iter().enumerate().filter(|(_, member)| member.up) {
        let score = (0..u64::from(member.weight)).map(|at| mix(key ^ member.name ^ mix(at))).max();
        if best.is_none_or(|(_, most)| score > most) {
            best = Some((at, score));
        }
    }
    best.map(|(at, _)| at)
}

/// SplitMix64's finalizer: each input bit changes half of the output bits on average.
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
