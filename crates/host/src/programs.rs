//! The programs in the kernel: loading, attaching, heartbeat.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder, ProgramInput};
use tollway_agent::programs::{self, Aligned, Loading, now};
use tollway_law::{Budget, words};

use crate::connection::{Cause, Connection};

words! {
    /// A law for the kernel's TCP.
    pub enum Law {
        /// The XCP study's sender.
        Xcp = "xcp",
        /// FCP's sender. It spends what [`Programs::set_budget`] allows.
        Fcp = "fcp",
    }
}

/// The TCP option that carries feedback.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OptionKind {
    /// Kinds 14 and 15, the study's. They belong to a historic RFC.
    #[default]
    Study,
    /// Kind 253 with the number of an experiment, 0x5843 (RFC 6994): for networks of others.
    Experiment,
}

/// The settings of the programs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The law.
    pub law: Law,
    /// The option.
    pub option: OptionKind,
    /// Window of a new connection, packets.
    pub initial_window: u32,
    /// The kernel's name of the congestion control to fall back on.
    pub ordinary: String,
    /// Time without a heartbeat after which connections fall back.
    pub lease: Duration,
    /// True to leave sockets alone that have not selected [`Programs::name`] themselves.
    pub chosen: bool,
    /// True to leave connections alone that [`Programs::admit`] does not name.
    pub tenants: bool,
}

impl Settings {
    /// The defaults for a law: the study's options, ten packets, the machine's default congestion
    /// control, 2 s.
    pub fn new(law: Law) -> Settings {
        let default = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
        let ordinary = default.map_or("reno".into(), |name| name.trim().to_owned());
        let lease = Duration::from_secs(2);
        Settings {
            law,
            option: OptionKind::Study,
            initial_window: 10,
            ordinary,
            lease,
            chosen: false,
            tenants: false,
        }
    }

    /// `settings` of `bpf/host.h`.
    fn write(&self, name: &str, to: &mut [u8]) {
        let kind: u32 = if self.option == OptionKind::Study { 14 } else { 253 };
        let mut put = |at: usize, bytes: &[u8]| to[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, name.as_bytes());
        put(16, &self.ordinary.as_bytes()[..self.ordinary.len().min(NAME - 1)]);
        put(32, &kind.to_ne_bytes());
        put(36, &self.initial_window.max(1).to_ne_bytes());
        put(40, &(self.lease.as_nanos() as u64).to_ne_bytes());
        put(48, &u32::from(self.chosen).to_ne_bytes());
        put(52, &u32::from(self.tenants).to_ne_bytes());
    }
}

/// The reason why the programs are not in the kernel.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The kernel describes no types.
    #[error(
        "this kernel has no /sys/kernel/btf/vmlinux: it needs CONFIG_DEBUG_INFO_BTF, as the kernels of Debian, \
        Ubuntu, Fedora and others have"
    )]
    NoTypes,
    /// No right, or a refusal.
    #[error(transparent)]
    Programs(#[from] programs::LoadError),
    /// The control group can't be opened.
    #[error(
        "cannot open the control group {path}: {source}; give the path of a folder in the cgroup2 file system"
    )]
    Group {
        /// Its path.
        path: String,
        /// The error.
        source: io::Error,
    },
}

/// The programs in the kernel. When dropped, connections fall back at once.
#[derive(Debug)]
pub struct Programs {
    // Links are closed before their programs.
    links: Vec<Link>,
    object: Object,
    name: String,
    loading: Loading,
}

impl Programs {
    /// Loads the programs. Connections are selected once a group is [attached](Programs::attach).
    ///
    /// # Errors
    /// The kernel lacks a feature, or this process a right.
    pub fn load(settings: &Settings) -> Result<Programs, LoadError> {
        if !Path::new("/sys/kernel/btf/vmlinux").exists() {
            return Err(LoadError::NoTypes);
        }
        let loading = Loading::begin(NEEDS)?;
        let object = if settings.law == Law::Xcp { &XCP.0[..] } else { &FCP.0[..] };
        let mut object =
            ObjectBuilder::default().open_memory(object).map_err(loading.refused("read the programs"))?;
        // Names of congestion controls are the machine's: each loader has its own.
        let name = format!("tollway_{:06x}", now() & 0xff_ffff);
        for mut map in object.maps_mut() {
            let which = map.name().to_string_lossy().into_owned();
            let Some(value) = map.initial_value_mut() else { continue };
            if which.ends_with(".rodata") {
                settings.write(&name, value);
            } else if which == LAW
                && let Some(at) = value.windows(PLACE.len()).position(|bytes| bytes == PLACE)
            {
                value[at..at + name.len()].copy_from_slice(name.as_bytes());
            }
        }
        let mut object = object.load().map_err(loading.refused("load the programs"))?;
        let law = object.maps_mut().find(|map| map.name() == LAW).map(|mut map| map.attach_struct_ops());
        let law = law
            .ok_or_else(|| loading.missing())?
            .map_err(loading.refused("register the congestion control"))?;
        let programs = Programs { links: vec![law], object, name, loading };
        programs.beat();
        Ok(programs)
    }

    /// The name of the congestion control in the kernel.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Selects the law for connections that processes in the control group at `path` open from now
    /// on, and in the groups below it.
    ///
    /// # Errors
    /// There is no such group, or the kernel refuses.
    pub fn attach(&mut self, path: &Path) -> Result<(), LoadError> {
        let failed = |source| LoadError::Group { path: path.display().to_string(), source };
        let group = File::open(path).map_err(failed)?;
        let program = self.object.progs_mut().find(|program| program.name() == "options");
        let link = program.ok_or_else(|| self.loading.missing())?.attach_cgroup(group.as_raw_fd());
        self.links.push(link.map_err(self.loading.refused("attach to the control group"))?);
        Ok(())
    }

    /// Sends a heartbeat. Connections fall back after [`Settings::lease`] without one.
    pub fn beat(&self) {
        self.set_heartbeat(now());
    }

    /// The connections under the law, and those that have fallen back.
    ///
    /// # Errors
    /// A system call fails.
    pub fn connections(&self) -> io::Result<Vec<Connection>> {
        let map = self.map("connections")?;
        // With room for all, one batch has all.
        let values = map.lookup_batch(map.max_entries(), MapFlags::ANY, MapFlags::ANY).map_err(plain)?;
        Ok(values.filter_map(|(_, value)| value.first_chunk().map(Connection::read)).collect())
    }

    /// Sets the budget of FCP's connection `cookie`.
    ///
    /// # Errors
    /// The table is full, or the law has no budgets.
    pub fn set_budget(&self, cookie: u64, budget: Budget) -> io::Result<()> {
        let bits = budget.get().to_bits();
        // A double's 53 bits of mantissa become 32, the upper one set; its least values are zero.
        let (mantissa, exponent) = ((bits >> 21 | 1 << 31) as u32, (bits >> 52) as i32 - 1023 - 31);
        let mantissa = if bits >> 52 == 0 { 0 } else { mantissa };
        let mut value = [0; 8];
        value[..4].copy_from_slice(&mantissa.to_ne_bytes());
        value[4..].copy_from_slice(&exponent.to_ne_bytes());
        self.map("budgets")?.update(&cookie.to_ne_bytes(), &value, MapFlags::ANY).map_err(plain)
    }

    /// Removes the budget of a connection that has ended.
    ///
    /// # Errors
    /// The connection has no budget.
    pub fn remove_budget(&self, cookie: u64) -> io::Result<()> {
        self.map("budgets")?.delete(&cookie.to_ne_bytes()).map_err(plain)
    }

    /// Selects connections of a user in a control group, by its identifier, and in those below it;
    /// `None` is any. For [`Settings::tenants`].
    ///
    /// # Errors
    /// The table is full.
    pub fn admit(&self, cgroup: Option<u64>, user: Option<u32>) -> io::Result<()> {
        let map = self.map("tenants")?;
        let mut key = [0; 16];
        key[..8].copy_from_slice(&cgroup.unwrap_or(0).to_ne_bytes());
        key[8..12].copy_from_slice(&user.unwrap_or(u32::MAX).to_ne_bytes());
        map.update(&key, &[1], MapFlags::ANY).map_err(plain)
    }

    fn map(&self, name: &str) -> io::Result<libbpf_rs::Map<'_>> {
        let map = self.object.maps().find(|map| map.name() == name);
        map.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    /// The counts since the start.
    ///
    /// # Errors
    /// A system call fails.
    pub fn counts(&self) -> io::Result<Counts> {
        let map = self.map("counts")?;
        let mut values = [0; Cause::ALL.len() + 2];
        for (key, value) in (0u32..).zip(&mut values) {
            let bytes = map.lookup(&key.to_ne_bytes(), MapFlags::ANY).map_err(plain)?;
            let bytes = bytes.and_then(|bytes| bytes.first_chunk().copied());
            *value = u64::from_ne_bytes(bytes.unwrap_or_default());
        }
        let [opened, fallen @ .., forged] = values;
        Ok(Counts { opened, fallen, forged })
    }

    /// The law's arithmetic in the kernel on one `struct event` of its source, for tests.
    ///
    /// # Errors
    /// The kernel does not run the program.
    pub fn replay(&mut self, event: &mut [u8]) -> io::Result<()> {
        let program = self.object.progs_mut().find(|program| program.name() == "replay");
        let program = program.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let input = ProgramInput { context_in: Some(event), ..Default::default() };
        program.test_run(input).map(drop).map_err(plain)
    }

    fn set_heartbeat(&self, at: u64) {
        if let Ok(map) = self.map("heartbeat") {
            // The map is an array of one: an update cannot fail.
            let _ = map.update(&0u32.to_ne_bytes(), &at.to_ne_bytes(), MapFlags::ANY);
        }
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        self.set_heartbeat(0);
    }
}

/// Counts of connections and echoes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections opened under the law.
    pub opened: u64,
    /// Connections that have fallen back, by [`Cause::ALL`].
    pub fallen: [u64; Cause::ALL.len()],
    /// Echoes beyond what an honest router grants.
    pub forged: u64,
}

fn plain(error: libbpf_rs::Error) -> io::Error {
    io::Error::other(error)
}

/// The kernel that the programs need.
const NEEDS: &str = "Linux 6.4 or later with CONFIG_BPF_JIT and CONFIG_CGROUP_BPF";
/// The map with the congestion control, and the place of its name.
const LAW: &str = "law";
const PLACE: &[u8; 14] = b"tollway_000000";
/// Room for a name in the kernel.
const NAME: usize = 16;

static XCP: Aligned<[u8; include_bytes!("../bpf/xcp.bpf.o").len()]> =
    Aligned(*include_bytes!("../bpf/xcp.bpf.o"));
static FCP: Aligned<[u8; include_bytes!("../bpf/fcp.bpf.o").len()]> =
    Aligned(*include_bytes!("../bpf/fcp.bpf.o"));
