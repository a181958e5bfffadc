//! The programs in the kernel: loading, attaching, heartbeats, and what outlasts the process.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder};
use tollway_agent::programs::{Aligned, LoadError, Loading, now};
use tollway_law::Rate;
use tollway_net::sys::clean::{is_over, mark};
use tollway_net::sys::tcx::{self, Hook};

/// A direction, by its number in the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Out of the interface.
    Up = 0,
    /// Into it.
    Down = 1,
}

impl Side {
    /// Both, by number.
    pub const ALL: [Side; 2] = [Side::Up, Side::Down];

    /// `up` or `down`.
    pub fn word(self) -> &'static str {
        ["up", "down"][self as usize]
    }
}

/// The settings of the programs.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The number of the interface.
    pub device: u32,
    /// The socket through which packets return there.
    pub cookie: u64,
    /// By direction, the interface that user space reads; zero if packets pass.
    pub to: [u32; 2],
    /// By direction, the limit without a heartbeat.
    pub limit: [Option<Rate>; 2],
    /// The mark of packets between the interface and user space.
    pub mark: u32,
    /// Conditions that tenants name.
    pub sights: [Sight; SIGHTS],
    /// Their number.
    pub count: u32,
}

/// A condition on a packet that its bytes do not show: `struct sight`. Zeros are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// The mark under `mask`.
    pub mark: u32,
    /// The bits of the mark that count.
    pub mask: u32,
    /// The interface of arrival.
    pub interface: u32,
}

impl Settings {
    /// `settings` of `bpf/router.bpf.c`.
    fn write(&self, to: &mut [u8]) {
        let mut put = |at: usize, bytes: &[u8]| to[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &self.cookie.to_ne_bytes());
        put(8, &LEASE.to_ne_bytes());
        put(16, &BURST.to_ne_bytes());
        for (at, side) in [24, 40].into_iter().zip(Side::ALL) {
            let limit = self.limit[side as usize].map_or(0, |rate| rate.ns_per_byte_fixed());
            put(at, &limit.to_ne_bytes());
            put(at + 8, &self.to[side as usize].to_ne_bytes());
        }
        put(56, &self.device.to_ne_bytes());
        put(60, &self.mark.to_ne_bytes());
        for (at, sight) in (64..).step_by(12).zip(self.sights) {
            for (at, word) in (at..).step_by(4).zip([sight.mark, sight.mask, sight.interface]) {
                put(at, &word.to_ne_bytes());
            }
        }
        put(64 + 12 * SIGHTS, &self.count.to_ne_bytes());
    }
}

/// Packets that passed without a heartbeat, and those that the limit dropped meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that passed.
    pub passed: u64,
    /// Packets dropped by the limit.
    pub refused: u64,
}

/// The programs in the kernel. When dropped, they leave the interface.
#[derive(Debug)]
pub struct Programs {
    object: Object,
    settings: Settings,
    links: Vec<OwnedFd>,
    pins: Vec<PathBuf>,
    /// No heartbeat is sent any more.
    silent: AtomicBool,
    loading: Loading,
}

impl Programs {
    /// Loads the programs, and puts those at user space's interfaces in place.
    ///
    /// # Errors
    /// The kernel lacks a feature, or this process a right.
    pub fn load(settings: Settings) -> Result<Programs, LoadError> {
        let loading = Loading::begin(NEEDS)?;
        let mut object = ObjectBuilder::default()
            .open_memory(&OBJECT.0[..])
            .map_err(loading.refused("read the programs"))?;
        for mut map in object.maps_mut() {
            let which = map.name().to_string_lossy().into_owned();
            if which.ends_with(".rodata")
                && let Some(value) = map.initial_value_mut()
            {
                settings.write(value);
            }
        }
        let object = object.load().map_err(loading.refused("load the programs"))?;
        let (links, pins, silent) = (Vec::new(), Vec::new(), AtomicBool::new(false));
        let mut programs = Programs { object, settings, links, pins, silent, loading };
        for side in Side::ALL.into_iter().filter(|&side| settings.to[side as usize] > 0) {
            programs.attach("gate", settings.to[side as usize], Hook::Egress)?;
        }
        if settings.to[Side::Down as usize] > 0 {
            programs.attach("back", settings.to[Side::Down as usize], Hook::Ingress)?;
        }
        Ok(programs)
    }

    /// Redirects the interface's packets from now on, while heartbeats come. With a limit, the
    /// programs outlast this process, under a name with `device`.
    ///
    /// # Errors
    /// The kernel refuses; there is no BPF file system.
    pub fn divert(&mut self, device: &str) -> Result<(), LoadError> {
        let settings = self.settings;
        for side in Side::ALL.into_iter().filter(|&side| settings.to[side as usize] > 0) {
            let hook = if side == Side::Up { Hook::Egress } else { Hook::Ingress };
            self.attach(side.word(), settings.device, hook)?;
            if settings.limit[side as usize].is_some() {
                let path = Path::new(PINS).join(name(&mark(), namespace(), side, device));
                let link = self.links.last().ok_or_else(|| self.loading.missing())?;
                tcx::pin(link.as_fd(), &path).map_err(|error| self.loading.error(PIN, error))?;
                self.pins.push(path);
            }
        }
        // The limit that a router before this one has left.
        for (path, _) in
            left().into_iter().filter(|(_, left)| (left.namespace, &*left.device) == (namespace(), device))
        {
            let _ = fs::remove_file(path);
        }
        Ok(())
    }

    fn attach(&mut self, name: &str, interface: u32, hook: Hook) -> Result<(), LoadError> {
        let loading = self.loading;
        let program = self.object.progs().find(|program| program.name() == name);
        let program = program.ok_or_else(|| loading.missing())?;
        let link = tcx::attach(program.as_fd(), interface, hook);
        self.links.push(link.map_err(|error| loading.error("attach to the interface", error))?);
        Ok(())
    }

    /// Sends a direction's heartbeat.
    pub fn beat(&self, side: Side) {
        if !self.silent.load(Ordering::Relaxed) {
            self.set_heartbeat(side, now());
        }
    }

    /// Lets packets pass from now on; those of user space still return.
    pub fn fall_silent(&self) {
        self.silent.store(true, Ordering::Relaxed);
        Side::ALL.into_iter().for_each(|side| self.set_heartbeat(side, 0));
    }

    fn set_heartbeat(&self, side: Side, at: u64) {
        if let Some(map) = self.object.maps().find(|map| map.name() == "heartbeats") {
            // The map is an array: an update cannot fail.
            let _ = map.update(&(side as u32).to_ne_bytes(), &at.to_ne_bytes(), MapFlags::ANY);
        }
    }

    /// The counts of a direction since the start.
    ///
    /// # Errors
    /// A system call fails.
    pub fn counts(&self, side: Side) -> io::Result<Counts> {
        let map = self.object.maps().find(|map| map.name() == "counts");
        let map = map.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let of_cores =
            map.lookup_percpu(&(side as u32).to_ne_bytes(), MapFlags::ANY).map_err(io::Error::other)?;
        let mut counts = Counts::default();
        for bytes in of_cores.unwrap_or_default() {
            let word = |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk().copied());
            counts.passed += word(0).map_or(0, u64::from_ne_bytes);
            counts.refused += word(8).map_or(0, u64::from_ne_bytes);
        }
        Ok(counts)
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        self.fall_silent();
        for pin in &self.pins {
            let _ = fs::remove_file(pin);
        }
    }
}

/// A limit in the kernel whose router has ended.
struct Left {
    namespace: u64,
    side: String,
    device: String,
}

/// Removes the limits that killed routers have left. Returns a sentence on each.
pub fn clean() -> Vec<String> {
    let removed = |(path, left): (PathBuf, Left)| {
        fs::remove_file(path).ok()?;
        Some(format!("removed the limit of a router at {}, {}", left.device, left.side))
    };
    left().into_iter().filter_map(removed).collect()
}

/// The limits in the kernel whose routers have ended.
fn left() -> Vec<(PathBuf, Left)> {
    let entries = fs::read_dir(PINS).into_iter().flatten().flatten();
    let one = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let mut parts = name.strip_prefix(PREFIX)?.splitn(5, '_');
        let mark = format!("{}.{}", parts.next()?, parts.next()?);
        let (namespace, side) = (parts.next()?.parse().ok()?, parts.next()?.to_owned());
        let device = parts.next()?.replace(':', ".");
        is_over(&mark).then(|| (entry.path(), Left { namespace, side, device }))
    };
    entries.filter_map(one).collect()
}

/// The name of a limit in the kernel; such names have no dots.
fn name(mark: &str, namespace: u64, side: Side, device: &str) -> String {
    format!("{PREFIX}{}_{namespace}_{}_{}", mark.replace('.', "_"), side.word(), device.replace('.', ":"))
}

/// The number of this thread's network namespace.
fn namespace() -> u64 {
    fs::metadata("/proc/thread-self/ns/net").map_or(0, |meta| meta.ino())
}

/// Most conditions that tenants name.
pub const SIGHTS: usize = 12;
/// Time without a heartbeat after which packets pass: five heartbeats, in ns.
const LEASE: u64 = 500_000_000;
/// The longest burst of the limit, in ns of its rate.
const BURST: u64 = 50_000_000;
const NEEDS: &str = "Linux 6.6 or later with CONFIG_BPF_JIT and CONFIG_NET_XGRESS";
/// The BPF file system, and the names of limits there.
const PINS: &str = "/sys/fs/bpf";
const PREFIX: &str = "tollway-router_";
const PIN: &str =
    "keep the limit at /sys/fs/bpf, for which `mount -t bpf bpf /sys/fs/bpf` mounts the file system";

static OBJECT: Aligned<[u8; include_bytes!("../bpf/router.bpf.o").len()]> =
    Aligned(*include_bytes!("../bpf/router.bpf.o"));
