//! Classification of sockets and packets by tenant inside the kernel.
//!
//! The rules stay in user space. The kernel distinguishes only what the rules distinguish. It
//! replaces each address, port, user and control group by a small index, and looks the indexes up
//! as one key, a *cell*. All identities of a cell are equal to the rules.
//!
//! A new cell has no verdict. At its next tick the agent applies the rules to the identity that
//! made the cell, and stores the verdict. Until then the packets of the cell share a small rate.
//!
//! # New rules
//! Every key contains the version of the rules, so that two versions are in the maps at a time. The
//! agent stores the indexes of new rules and their verdicts on all cells, and then changes the
//! version in one step. A cell that only the new rules distinguish keeps the verdict of the version
//! before, until it has its own.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use libbpf_rs::Object;

use super::sys::{Map, Plain};
use crate::{Identity, Regime};

/// The maps of classification, in user space.
#[derive(Debug)]
pub(crate) struct Classes {
    /// One value. First, bytes of a packet on the link in addition to IP's. Second, the version of
    /// the rules, and in the high half [`BY_GROUP`] and [`LOCAL_COUNTS`].
    scope: Map<u32, [u64; 2]>,
    networks: Map<Prefix, u32>,
    /// By port, and 2¹⁶ for an odd version: the index as local port in the low half, and as remote
    /// port in the high half.
    ports: Map<u32, u32>,
    /// By user and version.
    users: Map<[u32; 2], u32>,
    /// By group and version.
    groups: Map<[u64; 2], u32>,
    /// Control groups seen that have no index yet.
    strange: Map<u64, u32>,
    cells: Map<[u32; 8], Cell>,
    version: u32,
    /// Index by the results of the rules for a group's path.
    profiles: HashMap<Vec<Option<u32>>, u32>,
    /// A path for each index, from 1 on.
    paths: Vec<String>,
    by_group: bool,
    /// For even and odd versions: the ranges of ports whose indexes are stored.
    ranges: [Ranges; 2],
}

/// Ranges of local and of remote ports.
type Ranges = (Vec<(u16, u16)>, Vec<(u16, u16)>);

/// The rules of new policies, and the paths of control groups.
pub(crate) struct Judge<'a> {
    pub(crate) regime: &'a Regime,
    /// The verdict on an identity.
    pub(crate) verdict: &'a dyn Fn(&Identity<'_>) -> u32,
}

/// An identity that made a cell, and the cell's verdict: `struct cell` of `bpf/classes.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Cell {
    cgroup: u64,
    local: [u8; 16],
    remote: [u8; 16],
    uid: u32,
    verdict: u32,
    local_port: u16,
    remote_port: u16,
    /// 1 if its packets leave by the loopback device.
    stays: u32,
}

/// A key of the map of networks, `struct prefix` of `bpf/classes.h`: the prefix length of the rest, the end (local or remote), and the
/// address.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Prefix {
    len: u32,
    side: u32,
    address: [u8; 16],
}

impl Plain for Cell {}
impl Plain for Prefix {}

impl Cell {
    fn identity<'a>(&self, cgroup: Option<&'a str>) -> Identity<'a> {
        let end = |address: [u8; 16], port| SocketAddr::new(Ipv6Addr::from(address).to_canonical(), port);
        Identity {
            local: end(self.local, self.local_port),
            remote: end(self.remote, self.remote_port),
            uid: self.uid,
            cgroup,
            stays: self.stays != 0,
        }
    }
}

impl Classes {
    /// The maps of loaded programs.
    pub(crate) fn of(object: &Object) -> io::Result<Classes> {
        Ok(Classes {
            scope: Map::of(object, "tollway_scope")?,
            networks: Map::of(object, "tollway_nets")?,
            ports: Map::of(object, "tollway_ports")?,
            users: Map::of(object, "tollway_users")?,
            groups: Map::of(object, "tollway_groups")?,
            strange: Map::of(object, "tollway_strange")?,
            cells: Map::of(object, "tollway_cells")?,
            version: 0,
            profiles: HashMap::new(),
            paths: Vec::new(),
            by_group: false,
            ranges: Default::default(),
        })
    }

    /// Stores the indexes of new rules and their verdicts on all cells, then puts the new rules in
    /// force. `path` returns the path of a control group, if known.
    pub(crate) fn install(
        &mut self,
        judge: &Judge<'_>,
        groups: &[(u64, String)],
        mut path: impl FnMut(u64) -> Option<String>,
    ) -> io::Result<()> {
        let (old, new) = (self.version, self.version.wrapping_add(1));
        self.forget_all_but(old)?;
        let distinct = judge.regime.rules.distinctions();
        let both = [(IpAddr::from([0, 0, 0, 0]), 0), (Ipv6Addr::UNSPECIFIED.into(), 0)];
        for (side, networks) in [(LOCAL, &distinct.local), (REMOTE, &distinct.remote)] {
            // Each entry costs all packets time. IPv4's addresses are in an IPv6 network such as ::/0.
            let both = if networks.is_empty() { &[][..] } else { &both };
            for (&(address, len), index) in networks.iter().chain(both).zip(1..) {
                self.networks.set(prefix(new, side, address, len), index)?;
            }
        }
        for (&user, index) in distinct.users.iter().zip(1..) {
            self.users.set([user, new], index)?;
        }
        self.install_ports(new, (distinct.local_ports, distinct.remote_ports))?;
        let before = std::mem::take(&mut self.paths);
        self.profiles.clear();
        self.by_group = judge.regime.rules.by_group();
        self.version = new;
        self.name_groups(judge.regime, groups)?;
        for (key, cell) in self.cells()? {
            let path = path(cell.cgroup).or_else(|| before.get(representative(&key)).cloned());
            if let Some(path) = &path
                && self.groups.get([cell.cgroup, new.into()])?.is_none()
            {
                self.name_groups(judge.regime, &[(cell.cgroup, path.clone())])?;
            }
            let verdict = (judge.verdict)(&cell.identity(path.as_deref()));
            self.cells.set(self.key(&cell)?, Cell { verdict, ..cell })?;
        }
        let flags = if self.by_group { BY_GROUP } else { 0 }
            | if judge.regime.rules.local_counts() { LOCAL_COUNTS } else { 0 };
        self.scope.set(0, [judge.regime.overhead.into(), u64::from(new) | u64::from(flags) << 32])
    }

    /// Removes the entries of all versions but `version`.
    fn forget_all_but(&self, version: u32) -> io::Result<()> {
        for key in keys(&self.networks)?.into_iter().filter(|key| key.side >> 1 != version & SIDES) {
            self.networks.remove(key)?;
        }
        for key in keys(&self.users)?.into_iter().filter(|key| key[1] != version) {
            self.users.remove(key)?;
        }
        for key in keys(&self.groups)?.into_iter().filter(|key| key[1] != u64::from(version)) {
            self.groups.remove(key)?;
        }
        for key in keys(&self.cells)?.into_iter().filter(|key| key[0] != version) {
            self.cells.remove(key)?;
        }
        Ok(())
    }

    fn install_ports(&mut self, version: u32, ranges: Ranges) -> io::Result<()> {
        let half = version & 1;
        if self.ranges[half as usize] == ranges {
            return Ok(());
        }
        let starts = |ranges: &[(u16, u16)]| {
            let mut starts = vec![0u16; 1 << 16];
            for &(first, last) in ranges {
                starts[usize::from(first)] = 1;
                if let Some(next) = last.checked_add(1) {
                    starts[usize::from(next)] = 1;
                }
            }
            starts
        };
        let (local, remote) = (starts(&ranges.0), starts(&ranges.1));
        let (mut here, mut there) = (0u32, 0u32);
        let indexes: Vec<u32> = local
            .iter()
            .zip(&remote)
            .map(|(&local, &remote)| {
                here += u32::from(local);
                there += u32::from(remote);
                here | there << 16
            })
            .collect();
        let ports: Vec<u32> = (0..1 << 16).map(|port| port | half << 16).collect();
        self.ports.set_all(&ports, &indexes)?;
        self.ranges[half as usize] = ranges;
        Ok(())
    }

    /// The key of a cell under the rules of the newest version, as `classify` of `bpf/classes.h`
    /// computes it.
    fn key(&self, cell: &Cell) -> io::Result<[u32; 8]> {
        let version = self.version;
        let network = |side, address| {
            self.networks.get(Prefix { len: SIDE_BITS + 128, side: side_of(version, side), address })
        };
        let port = |port: u16| {
            Ok::<_, io::Error>(self.ports.get(u32::from(port) | (version & 1) << 16)?.unwrap_or(0))
        };
        let group = if self.by_group { self.groups.get([cell.cgroup, version.into()])? } else { None };
        Ok([
            version,
            network(LOCAL, cell.local)?.unwrap_or(0),
            network(REMOTE, cell.remote)?.unwrap_or(0),
            port(cell.local_port)? & 0xffff,
            port(cell.remote_port)? >> 16,
            self.users.get([cell.uid, version])?.unwrap_or(0),
            group.unwrap_or(0),
            cell.stays,
        ])
    }

    /// Stores the indexes of control groups, by the results of the rules for their paths.
    pub(crate) fn name_groups(&mut self, regime: &Regime, groups: &[(u64, String)]) -> io::Result<()> {
        if !self.by_group {
            return Ok(());
        }
        for (id, path) in groups {
            let next = self.profiles.len() as u32 + 1;
            let index = *self.profiles.entry(regime.rules.profile(path)).or_insert(next);
            if index == next {
                self.paths.push(path.clone());
            }
            self.groups.set([*id, self.version.into()], index)?;
        }
        Ok(())
    }

    /// Removes and returns the control groups seen that have no index.
    pub(crate) fn strange_groups(&self) -> io::Result<Vec<u64>> {
        let ids = keys(&self.strange)?;
        ids.iter().try_for_each(|&id| self.strange.remove(id))?;
        Ok(ids)
    }

    /// Stores a verdict in each cell without one.
    pub(crate) fn judge(&self, judge: &Judge<'_>) -> io::Result<()> {
        let open =
            self.cells()?.into_iter().filter(|(key, cell)| key[0] == self.version && cell.verdict == UNKNOWN);
        for (key, cell) in open {
            // The identity's group may be a descendant of the one that was looked up.
            let path = self.paths.get(representative(&key)).map(String::as_str);
            let verdict = (judge.verdict)(&cell.identity(path));
            self.cells.set(key, Cell { verdict, ..cell })?;
        }
        Ok(())
    }

    fn cells(&self) -> io::Result<Vec<([u32; 8], Cell)>> {
        let (mut at, mut cells) = (vec![[0; 8]; CHUNK], vec![Cell::default(); CHUNK]);
        let mut all = Vec::new();
        self.cells.for_each(&mut at, &mut cells, |key, cell| all.push((key, *cell)))?;
        Ok(all)
    }
}

/// The place in the list of paths of a group that is equal to the cell's.
fn representative(key: &[u32; 8]) -> usize {
    (key[GROUP] as usize).wrapping_sub(1)
}

/// The end of a prefix in a version of the rules.
fn side_of(version: u32, side: u32) -> u32 {
    version << 1 | side
}

fn prefix(version: u32, side: u32, address: IpAddr, len: u32) -> Prefix {
    let (address, len) = match address {
        IpAddr::V4(address) => (address.to_ipv6_mapped(), len + 96),
        IpAddr::V6(address) => (address, len),
    };
    Prefix { len: SIDE_BITS + len, side: side_of(version, side), address: address.octets() }
}

/// All keys of a map.
fn keys<K: Plain, V: Plain>(map: &Map<K, V>) -> io::Result<Vec<K>> {
    let (mut at, mut values) = (vec![K::default(); CHUNK], vec![V::default(); CHUNK]);
    let mut keys = Vec::new();
    map.for_each(&mut at, &mut values, |key, _| keys.push(key))?;
    Ok(keys)
}

const _: () = assert!(size_of::<Cell>() == 56 && size_of::<Prefix>() == 24, "there is padding");

/// Verdicts, which are numbers of buckets: none yet, no tenant, and from `FIRST` on the tenants.
pub(crate) const UNKNOWN: u32 = 0;
pub(crate) const NOBODY: u32 = 1;
pub(crate) const FIRST: u32 = 2;
/// Flags of the rules: they compare control groups, and they match packets that stay here.
const BY_GROUP: u32 = 1;
const LOCAL_COUNTS: u32 = 2;
/// Bits of a version in a prefix.
const SIDES: u32 = u32::MAX >> 1;
const LOCAL: u32 = 0;
const REMOTE: u32 = 1;
const SIDE_BITS: u32 = 32;
/// Position of the control group in a cell's key.
const GROUP: usize = 6;
const CHUNK: usize = 1024;
