//! Connections seen and paced by programs in the kernel.
//!
//! A *hook* on a control group is called for each connection as it opens, once a round trip, and as it closes. It writes the connection's
//! record to a map that we read, and sets its pacing rate to the share that stands in another map. A *walk* over a namespace's
//! connections does the same: for those that were open before us, and at every tick.
//!
//! # The lease
//! The hook is attached so that it outlives us, and shares hold until an instant that we put off at every tick. When we are killed that
//! instant passes, and the hook leaves each connection that calls it as its program had it: whoever sends is free again within the lease and one
//! round trip, whoever is idle a round trip after it sends next. [`clear`], or the next [`Bpf::start`], takes the hook away.
//!
//! # Why no library
//! Those that load programs read them from an object file: either every build needs a compiler for them, or the repository has a
//! file that nobody can review. Ours are two hundred instructions, written in `programs.rs` with a reason each. Where this kernel has
//! its fields they ask it (`btf.rs`).

mod asm;
pub(crate) mod btf;
mod classes;
mod limit;
mod namespaces;
mod programs;
mod record;
mod sys;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use rustix::time::ClockId;
use tollway_law::{Rate, Time};

use super::cgroup::Cgroups;
use super::{Hold, Kernel, Regime, Seen, Traffic};
use classes::Classes;
use namespaces::{groups, groups_in, in_each};
use programs::{Layout, Maps, Walk};
use record::Raw;
use sys::{Kind, Map, Purpose};

/// What to act on, and for how long without being asked again.
#[derive(Clone, Debug)]
pub struct Config {
    /// The folder of the control group whose connections are meant; none is all.
    pub group: Option<PathBuf>,
    /// Connections of every network namespace are meant, such as containers', and not only of the one that we are in.
    pub everywhere: bool,
    /// So long after the last [`Kernel::settle`] every connection is free again.
    pub lease: Time,
    /// Connections at most; more are neither seen nor paced. Those that there are take some 250 bytes each.
    pub connections: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config { group: None, everywhere: false, lease: Time::from_secs(1), connections: 1 << 18 }
    }
}

/// Why the programs can't be had, in one sentence.
#[derive(Debug, thiserror::Error)]
#[error("no eBPF: cannot {action}: {source}")]
pub struct Unavailable {
    action: &'static str,
    source: io::Error,
}

/// The programs, at work.
#[derive(Debug)]
pub struct Bpf {
    tables: Tables,
    group: File,
    hook: OwnedFd,
    egress: OwnedFd,
    apply: OwnedFd,
    link: OwnedFd,
    lease: Time,
    /// The cookie of the network namespace that is meant; zero is all.
    namespace: u64,
    jiffy: Time,
    connections: u32,
    place: PathBuf,
    /// What each connection is to be paced to, and what its program had it when that was last looked at.
    asked: HashMap<u64, Asked>,
    /// Records there were at the last look.
    met: u32,
    keys: Vec<u64>,
    records: Vec<Raw>,
    /// Shares that have changed since they were last put in force.
    cookies: Vec<u64>,
    shares: Vec<u64>,
    classes: Classes,
    cgroups: Cgroups,
    regime: Option<Regime>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    rate: u64,
    own: u64,
    met: bool,
}

/// What a run of a program costs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// How often the hook was called, and for how long in all.
    pub hook: (u64, Duration),
    /// For how many connections the walk was called, and for how long in all.
    pub walk: (u64, Duration),
}

/// What [`clear`] has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleared {
    /// Hooks that were still attached.
    pub hooks: usize,
    /// Connections that were still paced.
    pub connections: usize,
}

impl Bpf {
    /// Loads the programs, attaches the hook, and gets to know the connections that are open. What another process of ours has left
    /// behind is cleared away before.
    ///
    /// # Errors
    /// The kernel, the privileges or a process of ours that is still at work stand against it.
    pub fn start(config: &Config) -> Result<Bpf, Unavailable> {
        let layout = Layout::of_kernel().map_err(refused("read the kernel's types"))?;
        let group = open_group(config)?;
        let namespace = scope(config).map_err(refused("name the network namespace"))?;
        let take_over = || clear_group(&layout, &group.1, namespace, false);
        let taken = match take_over() {
            // One that was killed with its guardian holds on until its lease ends; one that is at
            // work has renewed it by then.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                std::thread::sleep(Duration::from_nanos(Config::default().lease.as_nanos()));
                take_over()
            }
            taken => taken,
        };
        taken.map_err(refused("take over from another `tollway shape`"))?;
        let tables = Tables::new(config.connections).map_err(refused("make maps"))?;
        let classes = Classes::new().map_err(refused("make maps"))?;
        let maps = tables.raw();
        let load = |purpose, name, code: io::Result<Vec<asm::Instruction>>| {
            code.and_then(|code| sys::load(purpose, name, &code))
        };
        let hook = load(
            Purpose::SocketOps,
            HOOK,
            programs::hook(&layout, Maps { openings: Some((tables.limits.raw(), classes.raw())), ..maps }),
        )
        .map_err(refused("load the hook"))?;
        let packets = limit::Maps {
            lease: maps.lease,
            limits: tables.limits.raw(),
            counts: tables.counts.raw(),
            classes: classes.raw(),
        };
        let egress = load(Purpose::Egress, EGRESS, limit::egress(packets))
            .map_err(refused("load the limit of packets"))?;
        let iterator = Purpose::Iterator(layout.iterator);
        let [adopt, apply] =
            [Walk::Adopt, Walk::Apply].map(|walk| load(iterator, WALK, programs::walk(&layout, maps, walk)));
        let (adopt, apply) =
            (adopt.map_err(refused("load the walk"))?, apply.map_err(refused("load the walk"))?);
        let link = sys::link(apply.as_fd()).map_err(refused("make an iterator"))?;
        // The coarse clock moves once a jiffy.
        let jiffy = rustix::time::clock_getres(ClockId::MonotonicCoarse);
        let bpf = Bpf {
            tables,
            group: group.1,
            hook,
            egress,
            apply,
            link,
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
        };
        bpf.renew().map_err(refused("renew the lease"))?;
        // Whoever opens from here on calls the hook; whoever is open already is met by the walk.
        sys::attach(bpf.hook.as_fd(), bpf.group.as_fd(), sys::SOCKET_OPS)
            .and_then(|()| sys::attach(bpf.egress.as_fd(), bpf.group.as_fd(), sys::EGRESS))
            .map_err(refused("attach the programs to the control group"))?;
        let adopted = sys::link(adopt.as_fd()).and_then(|link| bpf.walk(&link));
        adopted.and_then(|()| bpf.keep_only(config)).map_err(refused("find open connections"))?;
        Ok(bpf)
    }

    /// What the programs have taken since the first [`Bpf::measure`].
    ///
    /// # Errors
    /// The system's.
    pub fn cost(&self) -> io::Result<Cost> {
        Ok(Cost { hook: sys::runs(self.hook.as_fd())?, walk: sys::runs(self.apply.as_fd())? })
    }

    /// While what this answers is held, the kernel measures what programs take (which costs a little itself).
    ///
    /// # Errors
    /// The system's.
    pub fn measure(&self) -> io::Result<OwnedFd> {
        sys::measure()
    }

    /// Leaves every connection as its program had it, and takes the hook away. It is done when the value is dropped, too.
    ///
    /// # Errors
    /// The system's: the lease will do it then.
    pub fn release(&mut self) -> io::Result<()> {
        self.tables.lease.set(0, [0, self.namespace])?;
        self.walk(&self.link)?;
        for (program, place) in [(&self.hook, sys::SOCKET_OPS), (&self.egress, sys::EGRESS)] {
            match sys::detach(program.as_fd(), self.group.as_fd(), place) {
                // It has been done before.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Gives verdicts on what the programs have met for the first time.
    fn judge(&mut self) -> io::Result<()> {
        let Some(regime) = &self.regime else { return Ok(()) };
        let strange = self.classes.strange_groups()?;
        let known: Vec<_> = strange
            .into_iter()
            .filter_map(|id| self.cgroups.resolve(id).map(|path| (id, path.to_owned())))
            .collect();
        self.classes.name_groups(regime, &known)?;
        let tenants: Vec<u32> = regime
            .tenants
            .iter()
            .zip(0..)
            .flat_map(|(party, at)| party.classes.iter().map(move |_| at))
            .collect();
        self.classes.judge(|who| regime.rules.class_of(who).map(|class| tenants[class as usize]))
    }

    fn renew(&self) -> io::Result<()> {
        self.tables.lease.set(0, [now().saturating_add(self.lease.as_nanos()), self.namespace])
    }

    /// Runs an iterator on whatever is meant.
    fn walk(&self, link: &OwnedFd) -> io::Result<()> {
        if self.namespace == 0 { in_each(|| sys::iterate(link.as_fd())) } else { sys::iterate(link.as_fd()) }
    }

    /// Forgets the connections outside the control group, which the walk has met too.
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
        // What is seen is of now, and what was settled last time is in force, though nobody may have had an acknowledgement.
        sys::iterate(self.link.as_fd())?;
        let (at, jiffy, asked) = (Time::from_nanos(now()), self.jiffy, &mut self.asked);
        let mut met = 0;
        let each = |cookie, record: &Raw| {
            met += 1;
            if !record.is_open() {
                return;
            }
            // A share that waits for the next round trip counts as set: the agent is to hear of what programs set, not of that.
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
        // A share that was said of a connection while it closed is nobody's any more.
        let mut gone = self.asked.extract_if(|_, asked| !std::mem::take(&mut asked.met));
        gone.try_for_each(|(cookie, _)| self.tables.shares.remove(cookie))?;
        self.judge()
    }

    fn install(&mut self, regime: &Regime) -> io::Result<()> {
        if regime.tenants.len() as u32 >= BUCKETS {
            return Err(io::Error::other(format!("more than {} tenants", BUCKETS - 1)));
        }
        self.classes.install(regime, &self.cgroups.all())?;
        self.regime = Some(regime.clone());
        Ok(())
    }

    fn traffic(&mut self, traffic: &mut Vec<Traffic>) -> io::Result<()> {
        let count = self.regime.as_ref().map_or(0, |regime| regime.tenants.len());
        traffic.resize(count, Traffic::default());
        let (mut keys, mut values) = ([0u32; 64], [[0u64; 3]; 64]);
        // The first is that of packets without a verdict.
        self.tables.counts.for_each(&mut keys, &mut values, |bucket, &[_, passed, dropped]| {
            if let Some(of) = (bucket as usize).checked_sub(1).and_then(|at| traffic.get_mut(at)) {
                *of = Traffic { passed, dropped };
            }
        })
    }

    fn hold(&mut self, strangers: Rate, holds: &[Hold]) -> io::Result<()> {
        let value = |rate: Rate, depth: Time, opening: Rate| {
            let cost = 65536e9 / rate.bytes_per_sec().max(1.0);
            // Over a terabyte a second nothing is held.
            let cost = if cost < 65.0 { 0 } else { cost as u64 };
            [cost, depth.as_nanos(), (opening.bytes_per_sec() as u64).clamp(1, MOST)]
        };
        let values: Vec<_> = std::iter::once(value(strangers, STRANGERS_DEPTH, strangers))
            .chain(holds.iter().map(|hold| value(hold.rate, hold.depth, hold.opening)))
            .collect();
        let keys: Vec<u32> = (0..values.len() as u32).collect();
        self.tables.limits.set_all(&keys, &values)
    }

    /// The kernel takes the rate in four bytes here: over 34.3 Gb/s it is that.
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

    /// In force it is after a round trip, or at the next tick.
    fn settle(&mut self) -> io::Result<()> {
        self.renew()?;
        self.tables.shares.set_all(&self.cookies, &self.shares)?;
        self.cookies.clear();
        self.shares.clear();
        Ok(())
    }

    fn describe(&self) -> String {
        let (place, connections, lease) = (self.place.display(), self.connections, self.lease);
        format!("eBPF on {place}: {connections} connections at most, 34.3 Gb/s each; a lease of {lease}")
    }

    fn warning(&self) -> Option<String> {
        (self.met >= self.connections).then(|| {
            format!(
                "there are {} connections or more, which is all that the programs can keep: others are neither seen nor paced; `--backend \
                 inet-diag` has no such bound",
                self.connections
            )
        })
    }
}

impl Drop for Bpf {
    fn drop(&mut self) {
        // What can't be released now the lease releases.
        let _ = self.release();
    }
}

/// The leases of an agent that is at work, for its guardian.
#[derive(Debug)]
pub struct Leases(Vec<Map<u32, [u64; 2]>>);

impl Leases {
    /// Those on the control group for the same namespace.
    ///
    /// # Errors
    /// The system's.
    pub fn find(config: &Config) -> Result<Leases, Unavailable> {
        let group = open_group(config)?;
        let namespace = scope(config).map_err(refused("name the network namespace"))?;
        let mut leases = Vec::new();
        for hook in sys::attached(group.1.as_fd(), sys::SOCKET_OPS).map_err(refused("find the hook"))? {
            let lease = sys::program_name(hook.as_fd())
                .and_then(|name| if name == HOOK { map_of(&hook, LEASE).map(Some) } else { Ok(None) });
            let Ok(Some(lease)) = lease else { continue };
            let lease: Map<u32, [u64; 2]> = lease;
            if lease.get(0).is_ok_and(|value| value.is_some_and(|[_, of]| of == namespace)) {
                leases.push(lease);
            }
        }
        Ok(Leases(leases))
    }

    /// Puts the end of each off that its agent has not: what each connection and tenant may have stays as it is. One that was ended
    /// is left alone.
    pub fn renew(&self) {
        let lease = Config::default().lease.as_nanos();
        for map in &self.0 {
            if let Ok(Some([until, of])) = map.get(0)
                && let Some(until) = put_off(until, now(), lease)
            {
                let _ = map.set(0, [until, of]);
            }
        }
    }
}

/// The new end of a lease that its agent does not renew; `None` if it does, or the lease was ended.
pub(super) fn put_off(until: u64, now: u64, lease: u64) -> Option<u64> {
    (until != 0 && until < now + lease / 2).then_some(now + lease)
}

/// Takes away what a process that was killed has left on the control group, all its connections free again. One that is still at work loses its own, if it means the same namespace or one of both means all.
///
/// # Errors
/// The system's.
pub fn clear(config: &Config) -> Result<Cleared, Unavailable> {
    let layout = Layout::of_kernel().map_err(refused("read the kernel's types"))?;
    let group = open_group(config)?;
    let namespace = scope(config).map_err(refused("name the network namespace"))?;
    clear_group(&layout, &group.1, namespace, true).map_err(refused("clear"))
}

/// Clears the hooks on a group whose lease is over, and those that are at work on the same connections if `alive`.
fn clear_group(layout: &Layout, group: &File, namespace: u64, alive: bool) -> io::Result<Cleared> {
    let mut cleared = Cleared::default();
    for hook in sys::attached(group.as_fd(), sys::SOCKET_OPS)? {
        if sys::program_name(hook.as_fd())? != HOOK {
            continue;
        }
        let lease: Map<u32, [u64; 2]> = map_of(&hook, LEASE)?;
        let [until, of] = lease.get(0)?.unwrap_or_default();
        let same = of == namespace || of == 0 || namespace == 0;
        if until > now() && !same {
            continue;
        }
        if until > now() && !alive {
            let what =
                "another `tollway shape` is at work on this control group: end it, or `tollway shape clear`";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        let (seen, shares) = (map_of::<u64, Raw>(&hook, SEEN)?, map_of::<u64, u64>(&hook, SHARES)?);
        lease.set(0, [0, of])?;
        let (mut keys, mut records) = (vec![0; CHUNK], vec![Raw::default(); CHUNK]);
        seen.for_each(&mut keys, &mut records, |_, record: &Raw| {
            cleared.connections += usize::from(record.applied != record.own);
        })?;
        let maps = Maps { lease: lease.raw(), seen: seen.raw(), shares: shares.raw(), openings: None };
        let code = programs::walk(layout, maps, Walk::Apply)?;
        let apply = sys::load(Purpose::Iterator(layout.iterator), WALK, &code)?;
        let link = sys::link(apply.as_fd())?;
        in_each(|| sys::iterate(link.as_fd()))?;
        sys::detach(hook.as_fd(), group.as_fd(), sys::SOCKET_OPS)?;
        cleared.hooks += 1;
    }
    // Its lease is that of the hook.
    for egress in sys::attached(group.as_fd(), sys::EGRESS)? {
        if sys::program_name(egress.as_fd())? == EGRESS {
            let lease: Map<u32, [u64; 2]> = map_of(&egress, LEASE)?;
            if lease.get(0)?.is_none_or(|[until, _]| until <= now()) {
                sys::detach(egress.as_fd(), group.as_fd(), sys::EGRESS)?;
            }
        }
    }
    Ok(cleared)
}

/// The maps that the programs and we speak through.
#[derive(Debug)]
struct Tables {
    lease: Map<u32, [u64; 2]>,
    seen: Map<u64, Raw>,
    shares: Map<u64, u64>,
    /// By bucket, what each may send and has sent.
    limits: Map<u32, [u64; 3]>,
    counts: Map<u32, [u64; 3]>,
}

impl Tables {
    fn new(connections: u32) -> io::Result<Tables> {
        Ok(Tables {
            lease: Map::new(Kind::Array, LEASE, 1)?,
            seen: Map::new(Kind::Hash, SEEN, connections)?,
            shares: Map::new(Kind::Hash, SHARES, connections)?,
            limits: Map::new(Kind::Array, "tollway_limits", BUCKETS)?,
            counts: Map::new(Kind::Array, "tollway_counts", BUCKETS)?,
        })
    }

    fn raw(&self) -> Maps {
        Maps { lease: self.lease.raw(), seen: self.seen.raw(), shares: self.shares.raw(), openings: None }
    }
}

/// Of a program that is there already, the map of that name.
fn map_of<K: sys::Plain, V: sys::Plain>(program: &OwnedFd, name: &str) -> io::Result<Map<K, V>> {
    for map in sys::maps_of(program.as_fd())? {
        if sys::map_name(map.as_fd())? == name
            && let Some(map) = Map::from_descriptor(map)
        {
            return Ok(map);
        }
    }
    Err(io::Error::other("another version of `tollway` has left a hook: have that clear it"))
}

fn open_group(config: &Config) -> Result<(PathBuf, File), Unavailable> {
    let path = config.group.clone().map_or_else(groups, Ok);
    let opened = path.and_then(|path| Ok((File::open(&path)?, path))).map(|(file, path)| (path, file));
    opened.map_err(refused("open the control group"))
}

/// The cookie of the network namespace that is meant; zero is all.
fn scope(config: &Config) -> io::Result<u64> {
    if config.everywhere { Ok(0) } else { namespaces::cookie() }
}

/// The monotonic clock, which is also what programs read.
fn now() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn refused(action: &'static str) -> impl FnOnce(io::Error) -> Unavailable {
    move |source| Unavailable { action, source }
}

const HOOK: &str = "tollway_hook";
const EGRESS: &str = "tollway_egress";
const WALK: &str = "tollway_walk";
const LEASE: &str = "tollway_lease";
const SEEN: &str = "tollway_seen";
const SHARES: &str = "tollway_shares";
/// Records read in one system call.
const CHUNK: usize = 2048;
/// Tenants, and one bucket for packets whose tenant is not known yet.
const BUCKETS: u32 = 1 << 12;
const STRANGERS_DEPTH: Time = Time::from_millis(100);
/// The highest rate in four bytes; all bits set is unlimited.
const MOST: u64 = u32::MAX as u64 - 1;

#[cfg(test)]
mod tests;
