//! Connections listed and paced by eBPF programs in the kernel.
//!
//! The kernel calls a *hook* on a control group for each connection: as it opens, once per round
//! trip, and as it closes. The hook writes the connection's record to a map that the agent reads,
//! and sets the pacing rate to the connection's share, from another map. A *walk* over a
//! namespace's connections does the same at every tick, and at the start for connections already
//! open.
//!
//! # The lease
//! The hook outlives the agent. Shares hold until an instant that the agent puts off at every tick.
//! When the agent is killed, that instant passes. At its next call for a connection the hook then
//! restores the limit that the program had set. A connection that sends is free within the lease
//! and one round trip, an idle one a round trip after it sends next. [`clear`], or the next
//! [`Bpf::start`], detaches the hook. The programs are C with CO-RE (`crates/shape/bpf`).

mod classes;
mod leases;
mod namespaces;
mod programs;
mod record;
mod sys;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use libbpf_rs::{Link, Object};
use rustix::time::ClockId;
use tollway_agent::programs::{LoadError, now};
use tollway_law::{Rate, Time};

use super::cgroup::{self, Cgroups};
use super::{Concern, Counts, Hold, Identity, Kernel, Regime, Seen, Traffic};
use classes::{Classes, FIRST, Judge, NOBODY, UNKNOWN};
use leases::clear_group;
#[cfg(test)]
pub(super) use leases::put_off;
pub use leases::{Leases, clear};
use namespaces::{groups_in, in_each};
use programs::Programs;
use record::Raw;
use sys::{Map, Place};

/// The scope and the limits of the eBPF back-end.
#[derive(Clone, Debug)]
pub struct Config {
    /// Folder of the control group whose connections are paced; none for all.
    pub group: Option<PathBuf>,
    /// All network namespaces are covered, such as those of containers; not only the agent's own.
    pub everywhere: bool,
    /// Every connection is free again this long after the last [`Kernel::settle`].
    pub lease: Time,
    /// Upper bound of connections. Connections beyond it are neither listed nor paced. An open
    /// connection takes some 250 bytes.
    pub connections: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config { group: None, everywhere: false, lease: Time::from_secs(1), connections: 1 << 18 }
    }
}

/// The reason why the programs can't be used, in one sentence.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// They can't be loaded.
    #[error("no eBPF: {0}")]
    Programs(#[from] LoadError),
    /// Any other refusal.
    #[error("no eBPF: cannot {action}: {source}")]
    Refused {
        /// The action attempted.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// The loaded programs and their maps.
#[derive(Debug)]
pub struct Bpf {
    tables: Tables,
    group: File,
    programs: Programs,
    lease: Time,
    /// Cookie of the network namespace covered; zero for all.
    namespace: u64,
    jiffy: Time,
    connections: u32,
    place: PathBuf,
    /// By cookie: the pace requested, and the limit of the connection's program at the last
    /// listing.
    asked: HashMap<u64, Asked>,
    /// Number of records at the last listing.
    met: u32,
    keys: Vec<u64>,
    records: Vec<Raw>,
    /// Shares that have changed since the last [`Kernel::settle`].
    cookies: Vec<u64>,
    shares: Vec<u64>,
    classes: Classes,
    cgroups: Cgroups,
    regime: Option<Regime>,
    /// By tenant: its bucket.
    buckets: Vec<u32>,
    /// By class: the bucket of its tenant.
    verdicts: Vec<u32>,
    /// The bucket that was given to a tenant last.
    latest: u32,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    rate: u64,
    own: u64,
    met: bool,
}

/// Measured run times of the programs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Calls of the hook, and their total time.
    pub hook: (u64, Duration),
    /// Connections visited by walks, and the total time.
    pub walk: (u64, Duration),
}

/// The counts of what [`clear`] has removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleared {
    /// Hooks that were still attached.
    pub hooks: usize,
    /// Connections that were still paced.
    pub connections: usize,
}

impl Bpf {
    /// Loads the programs, attaches the hook and adopts the connections already open. First clears
    /// what a killed `tollway shape` has left behind.
    ///
    /// # Errors
    /// The kernel lacks a feature, the process lacks rights, or another `tollway shape` is running.
    pub fn start(config: &Config) -> Result<Bpf, Unavailable> {
        let group = open_group(config)?;
        let namespace = scope(config).map_err(refused("name the network namespace"))?;
        let take_over = || clear_group(&group.1, namespace, false);
        let taken = match take_over() {
            // If an agent was killed with its guardian, its lease still runs out here. A running
            // agent renews its lease meanwhile.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                std::thread::sleep(Duration::from_nanos(Config::default().lease.as_nanos()));
                take_over()
            }
            taken => taken,
        };
        taken.map_err(refused("take over from another `tollway shape`"))?;
        let programs = Programs::load(config.connections)?;
        let tables = Tables::of(&programs.object).map_err(refused("find the maps"))?;
        let classes = Classes::of(&programs.object).map_err(refused("find the maps"))?;
        // The coarse clock advances once per jiffy.
        let jiffy = rustix::time::clock_getres(ClockId::MonotonicCoarse);
        let bpf = Bpf {
            tables,
            group: group.1,
            programs,
            lease: config.lease,
            namespace,
            jiffy: Time::from_nanos(jiffy.tv_nsec as u64),
            connections: config.connections,
            place: group.0,
            asked: HashMap::new(),
            met: 0,
            keys: vec![0; CHUNK],
            records: vec![Raw::default(); CHUNK],
            cookies: Vec::new(),
            shares: Vec::new(),
            classes,
            cgroups: Cgroups::find(),
            regime: None,
            buckets: Vec::new(),
            verdicts: Vec::new(),
            latest: FIRST - 1,
        };
        bpf.renew().map_err(refused("renew the lease"))?;
        // New connections call the hook from here on; the walk finds those already open.
        for (program, place) in bpf.places() {
            let attached = sys::attach(program.as_fd(), bpf.group.as_fd(), place);
            attached.map_err(refused("attach the programs to the control group"))?;
        }
        bpf.programs.adopt(|link| bpf.walk(link))?;
        bpf.keep_only(config).map_err(refused("find open connections"))?;
        Ok(bpf)
    }

    /// The programs that are attached to the control group.
    fn places(&self) -> [(&OwnedFd, Place); 3] {
        let Programs { hook, egress, join, .. } = &self.programs;
        [(hook, Place::SocketOps), (egress, Place::Egress), (join, Place::SetOption)]
    }

    /// The run times of the programs since the first [`Bpf::measure`].
    ///
    /// # Errors
    /// A system call fails.
    pub fn cost(&self) -> io::Result<Cost> {
        Ok(Cost {
            hook: sys::runs(self.programs.hook.as_fd())?,
            walk: sys::runs(self.programs.walk.as_fd())?,
        })
    }

    /// Turns on the kernel's measurement of run times, at a small cost, until the result is
    /// dropped.
    ///
    /// # Errors
    /// A system call fails.
    pub fn measure(&self) -> io::Result<OwnedFd> {
        sys::measure()
    }

    /// Restores every connection to its program's limit, and detaches the hook. Dropping the value
    /// does the same.
    ///
    /// # Errors
    /// A system call fails. The connections are then free when the lease ends.
    pub fn release(&mut self) -> io::Result<()> {
        self.tables.lease.set(0, [0, self.namespace])?;
        self.walk(&self.programs.apply)?;
        for (program, place) in self.places() {
            match sys::detach(program.as_fd(), self.group.as_fd(), place) {
                // It is already detached.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Stores verdicts on cells and control groups that the programs saw for the first time.
    fn judge(&mut self) -> io::Result<()> {
        let Some(regime) = &self.regime else { return Ok(()) };
        let strange = self.classes.strange_groups()?;
        let known: Vec<_> = strange
            .into_iter()
            .filter_map(|id| self.cgroups.resolve(id).map(|path| (id, path.to_owned())))
            .collect();
        self.classes.name_groups(regime, &known)?;
        self.classes.judge(&Judge { regime, verdict: &|who| verdict(regime, &self.verdicts, who) })
    }

    /// Gives each tenant of new policies a bucket: a tenant of the same name keeps its own, others
    /// get one that no tenant had before, with the tenant's rate as limit.
    fn give_buckets(&mut self, regime: &Regime) -> io::Result<()> {
        let before: HashMap<&str, u32> = match &self.regime {
            Some(old) => old
                .tenants
                .iter()
                .map(|party| party.name.as_str())
                .zip(self.buckets.iter().copied())
                .collect(),
            None => HashMap::new(),
        };
        let mut taken: HashSet<u32> = self.buckets.iter().copied().collect();
        let mut buckets = Vec::with_capacity(regime.tenants.len());
        for party in &regime.tenants {
            if let Some(&bucket) = before.get(party.name.as_str()) {
                buckets.push(bucket);
                continue;
            }
            let all =
                (FIRST..BUCKETS).cycle().skip((self.latest + 1 - FIRST) as usize).take(BUCKETS as usize);
            let Some(bucket) = all.into_iter().find(|bucket| taken.insert(*bucket)) else {
                return Err(io::Error::other("too many tenants"));
            };
            let rate = party.tenant.contract.rate.or(regime.link.rate).unwrap_or(Rate::ZERO);
            self.tables.counts.set(bucket, [0; 3])?;
            self.tables.limits.set(bucket, limit(rate, STRANGERS_DEPTH, rate))?;
            self.latest = bucket;
            buckets.push(bucket);
        }
        let classes = regime.tenants.iter().zip(&buckets);
        self.verdicts =
            classes.flat_map(|(party, &bucket)| party.classes.iter().map(move |_| bucket)).collect();
        self.buckets = buckets;
        Ok(())
    }

    fn renew(&self) -> io::Result<()> {
        self.tables.lease.set(0, [now().saturating_add(self.lease.as_nanos()), self.namespace])
    }

    /// Runs an iterator over the namespaces covered.
    fn walk(&self, link: &Link) -> io::Result<()> {
        if self.namespace == 0 { in_each(|| sys::iterate(link)) } else { sys::iterate(link) }
    }

    /// Removes the records of connections outside the control group, which the walk has also
    /// visited.
    fn keep_only(&self, config: &Config) -> io::Result<()> {
        let Some(group) = &config.group else { return Ok(()) };
        let groups = groups_in(group);
        let (mut keys, mut records, mut others) = (vec![0; CHUNK], vec![Raw::default(); CHUNK], Vec::new());
        self.tables.seen.for_each(&mut keys, &mut records, |cookie, record: &Raw| {
            others.extend((!groups.contains(&record.cgroup)).then_some(cookie));
        })?;
        others.into_iter().try_for_each(|cookie| self.tables.seen.remove(cookie))
    }
}

impl Kernel for Bpf {
    fn connections(&mut self, seen: &mut Vec<Seen>) -> io::Result<()> {
        // The walk updates the records and applies the last shares, also where no acknowledgement
        // has come.
        sys::iterate(&self.programs.apply)?;
        let (at, jiffy, asked) = (Time::from_nanos(now()), self.jiffy, &mut self.asked);
        let mut met = 0;
        let each = |cookie, record: &Raw| {
            met += 1;
            if !record.is_open() {
                return;
            }
            // A share that waits for the next round trip counts as set: the agent looks for limits
            // that programs set.
            let limit = match asked.get_mut(&cookie) {
                Some(asked) => {
                    asked.met = true;
                    let own = std::mem::replace(&mut asked.own, record.own);
                    if own == record.own { asked.rate } else { record.own }
                }
                None => record.own,
            };
            seen.push(record.read(cookie, at, jiffy, limit));
        };
        self.tables.seen.for_each(&mut self.keys, &mut self.records, each)?;
        self.met = met;
        // Removes the share of a connection that has closed.
        let mut gone = self.asked.extract_if(|_, asked| !std::mem::take(&mut asked.met));
        gone.try_for_each(|(cookie, _)| self.tables.shares.remove(cookie))?;
        self.judge()
    }

    fn install(&mut self, regime: &Regime) -> io::Result<()> {
        if regime.tenants.len() > MOST_TENANTS {
            return Err(io::Error::other(format!("more than {MOST_TENANTS} tenants")));
        }
        self.give_buckets(regime)?;
        let groups = self.cgroups.all();
        let (cgroups, verdicts) = (&mut self.cgroups, &self.verdicts);
        let judge = Judge { regime, verdict: &|who| verdict(regime, verdicts, who) };
        self.classes.install(&judge, &groups, |id| cgroups.resolve(id).map(str::to_owned))?;
        self.regime = Some(regime.clone());
        Ok(())
    }

    fn traffic(&mut self, counts: &mut Counts) -> io::Result<()> {
        let (mut keys, mut values) = (vec![0u32; CHUNK], vec![[0u64; 3]; CHUNK]);
        let mut all = vec![Traffic::default(); BUCKETS as usize];
        self.tables.counts.for_each(&mut keys, &mut values, |bucket, &[_, passed, dropped]| {
            if let Some(of) = all.get_mut(bucket as usize) {
                *of = Traffic { passed, dropped };
            }
        })?;
        counts.tenants = self.buckets.iter().map(|&bucket| all[bucket as usize]).collect();
        (counts.unknown, counts.others) = (all[UNKNOWN as usize], all[NOBODY as usize]);
        Ok(())
    }

    fn hold(&mut self, strangers: Rate, holds: &[Hold]) -> io::Result<()> {
        let values: Vec<_> = std::iter::once(limit(strangers, STRANGERS_DEPTH, strangers))
            .chain(holds.iter().map(|hold| limit(hold.rate, hold.depth, hold.opening)))
            .collect();
        let keys: Vec<u32> = std::iter::once(UNKNOWN).chain(self.buckets.iter().copied()).collect();
        self.tables.limits.set_all(&keys, &values)
    }

    /// The kernel takes the rate in four bytes here; higher rates become 34.3 Gb/s.
    fn pace(&mut self, connection: &Seen, rate: Option<Rate>) -> io::Result<()> {
        let rate = rate.map_or(u64::MAX, |rate| (rate.bytes_per_sec() as u64).clamp(1, MOST));
        let own = self
            .asked
            .get(&connection.cookie)
            .map_or(connection.limit.unwrap_or(u64::MAX), |asked| asked.own);
        self.asked.insert(connection.cookie, Asked { rate, own, met: true });
        self.cookies.push(connection.cookie);
        self.shares.push(rate);
        Ok(())
    }

    /// The new shares apply after a round trip, or at the next tick.
    fn settle(&mut self) -> io::Result<()> {
        self.renew()?;
        self.tables.shares.set_all(&self.cookies, &self.shares)?;
        self.cookies.clear();
        self.shares.clear();
        Ok(())
    }

    fn contains(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        let (connections, lease) = (self.connections, self.lease);
        let place = match self.place.to_string_lossy() {
            own if own.starts_with("/proc/") => "control groups that it has mounted itself".into(),
            place => place,
        };
        format!("eBPF on {place}: {connections} connections at most, 34.3 Gb/s each; a lease of {lease}")
    }

    fn warnings(&self) -> Vec<(Concern, String)> {
        if self.met < self.connections {
            return Vec::new();
        }
        let text = format!(
            "the programs' table of {} connections is full: further connections are neither listed nor paced; \
            `--backend inet-diag` has no such limit",
            self.connections
        );
        vec![(Concern::Full, text)]
    }
}

impl Drop for Bpf {
    fn drop(&mut self) {
        // If it fails, connections are free when the lease ends.
        let _ = self.release();
    }
}

/// Checks that programs can be loaded here; attaches none.
///
/// # Errors
/// As for [`Bpf::start`].
pub fn usable(config: &Config) -> Result<(), Unavailable> {
    open_group(config)?;
    Ok(Programs::load(1).map(drop)?)
}

/// The maps shared with the programs.
#[derive(Debug)]
struct Tables {
    /// One value: the end of the lease by the monotonic clock, and the cookie of the namespace
    /// covered, zero for all.
    lease: Map<u32, [u64; 2]>,
    /// Records by cookie.
    seen: Map<u64, Raw>,
    /// Shares by cookie, in bytes per second.
    shares: Map<u64, u64>,
    /// By bucket: its limit, and the counts of its bytes.
    limits: Map<u32, [u64; 3]>,
    counts: Map<u32, [u64; 3]>,
}

impl Tables {
    fn of(object: &Object) -> io::Result<Tables> {
        Ok(Tables {
            lease: Map::of(object, LEASE)?,
            seen: Map::of(object, SEEN)?,
            shares: Map::of(object, SHARES)?,
            limits: Map::of(object, "tollway_limits")?,
            counts: Map::of(object, "tollway_counts")?,
        })
    }
}

/// The map with this name that a loaded program uses.
fn map_of<K: sys::Plain, V: sys::Plain>(program: &OwnedFd, name: &str) -> io::Result<Map<K, V>> {
    sys::map_of(program.as_fd(), name)?.and_then(Map::from_handle).ok_or_else(|| {
        io::Error::other(
            "another version of `tollway` has left a hook: run `tollway shape clear` of that version",
        )
    })
}

fn open_group(config: &Config) -> Result<(PathBuf, File), Unavailable> {
    let path = config.group.clone().map_or_else(cgroup::root, Ok);
    let opened = path.and_then(|path| Ok((File::open(&path)?, path))).map(|(file, path)| (path, file));
    opened.map_err(refused("open the control group"))
}

/// Cookie of the network namespace covered; zero for all.
fn scope(config: &Config) -> io::Result<u64> {
    if config.everywhere { Ok(0) } else { namespaces::cookie() }
}

/// The bucket of an identity: its tenant's, or that of no tenant. `verdicts` has the bucket of each
/// class.
fn verdict(regime: &Regime, verdicts: &[u32], who: &Identity<'_>) -> u32 {
    regime.rules.class_of(who).map_or(NOBODY, |class| verdicts[class as usize])
}

/// A bucket's limit, for the program.
fn limit(rate: Rate, depth: Time, opening: Rate) -> [u64; 3] {
    let cost = 65536e9 / rate.bytes_per_sec().max(1.0);
    // Rates above a terabyte per second are unlimited.
    let cost = if cost < 65.0 { 0 } else { cost as u64 };
    [cost, depth.as_nanos(), (opening.bytes_per_sec() as u64).clamp(1, MOST)]
}

fn refused(action: &'static str) -> impl FnOnce(io::Error) -> Unavailable {
    move |source| Unavailable::Refused { action, source }
}

const HOOK: &str = "tollway_hook";
const EGRESS: &str = "tollway_egress";
const JOIN: &str = "tollway_join";
const WALK: &str = "tollway_walk";
const LEASE: &str = "tollway_lease";
const SEEN: &str = "tollway_seen";
const SHARES: &str = "tollway_shares";
/// Records read in one system call.
const CHUNK: usize = 2048;
/// Buckets, as in `bpf/limit.h`, and the upper bound of tenants: new policies have other tenants than those before, and
/// two buckets belong to no tenant.
const BUCKETS: u32 = 1 << 13;
const MOST_TENANTS: usize = (1 << 12) - 1;
const STRANGERS_DEPTH: Time = Time::from_millis(100);
/// The highest rate in four bytes; all bits set is unlimited.
const MOST: u64 = u32::MAX as u64 - 1;

#[cfg(test)]
mod tests;
