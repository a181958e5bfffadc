//! Classification of sockets and packets by tenant inside the kernel.
//!
//! The rules stay in user space. The kernel distinguishes only what the rules distinguish. It
//! replaces each address, port, user and control group by a small index, and looks the indexes up
//! as one key, a *cell*. All identities of a cell are equal to the rules.
//!
//! A new cell has no verdict. At its next tick the agent applies the rules to the identity that
//! made the cell, and stores the verdict. Until then the packets of the cell share a small rate.

use std::collections::HashMap;
use std::io;
use std::mem::offset_of;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::asm::Reg::{R0, R1, R2, R3, R4, R10};
use super::asm::With::{Imm, Reg as Other};
use super::asm::{Assembler, When};
use super::sys::{Kind, Map, Plain};
use crate::{Distinctions, Identity, Regime};

/// Descriptors of the maps of classification.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Maps {
    scope: i32,
    networks: i32,
    ports: i32,
    users: i32,
    groups: i32,
    strange: i32,
    cells: i32,
}

/// The maps of classification, in user space.
#[derive(Debug)]
pub(crate) struct Classes {
    /// One value. First, bytes of a packet on the link in addition to IP's. Second, the version of
    /// the indexes, and in the high half whether groups count.
    scope: Map<u32, [u64; 2]>,
    networks: Map<Prefix, u32>,
    /// By port: the index as local port in the low half, and as remote port in the high half.
    ports: Map<u32, u32>,
    users: Map<u32, u32>,
    groups: Map<u64, u32>,
    /// Control groups seen that have no index yet.
    strange: Map<u64, u32>,
    cells: Map<[u32; 8], Cell>,
    version: u32,
    /// Index by the results of the rules for a group's path.
    profiles: HashMap<Vec<Option<u32>>, u32>,
    /// A path for each index, from 1 on.
    paths: Vec<String>,
    by_group: bool,
}

/// An identity that made a cell, and the cell's verdict.
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
    gap: u32,
}

/// A key of the map of networks: the prefix length of the rest, the end (local or remote), and the
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
    fn local(&self) -> SocketAddr {
        SocketAddr::new(Ipv6Addr::from(self.local).to_canonical(), self.local_port)
    }

    fn remote(&self) -> SocketAddr {
        SocketAddr::new(Ipv6Addr::from(self.remote).to_canonical(), self.remote_port)
    }
}

impl Classes {
    pub(crate) fn new() -> io::Result<Classes> {
        let classes = Classes {
            scope: Map::new(Kind::Array, "tollway_scope", 1)?,
            networks: Map::new(Kind::Prefixes, "tollway_nets", MOST)?,
            ports: Map::new(Kind::Array, "tollway_ports", 1 << 16)?,
            users: Map::new(Kind::Hash, "tollway_users", MOST)?,
            groups: Map::new(Kind::Recent, "tollway_groups", MOST)?,
            strange: Map::new(Kind::Recent, "tollway_strange", 1 << 10)?,
            cells: Map::new(Kind::Recent, "tollway_cells", MOST)?,
            version: 0,
            profiles: HashMap::new(),
            paths: Vec::new(),
            by_group: false,
        };
        Ok(classes)
    }

    pub(crate) fn raw(&self) -> Maps {
        Maps {
            scope: self.scope.raw(),
            networks: self.networks.raw(),
            ports: self.ports.raw(),
            users: self.users.raw(),
            groups: self.groups.raw(),
            strange: self.strange.raw(),
            cells: self.cells.raw(),
        }
    }

    /// Replaces the indexes by those of new rules. No lookup finds a cell of the old rules any
    /// more.
    pub(crate) fn install(&mut self, regime: &Regime, groups: &[(u64, String)]) -> io::Result<()> {
        let distinct = regime.rules.distinctions();
        self.by_group = regime.rules.by_group();
        for key in keys(&self.networks)? {
            self.networks.remove(key)?;
        }
        for key in keys(&self.users)? {
            self.users.remove(key)?;
        }
        for key in keys(&self.groups)? {
            self.groups.remove(key)?;
        }
        let loopback = [(IpAddr::from([127, 0, 0, 0]), 8), (Ipv6Addr::LOCALHOST.into(), 128)];
        let both = [(IpAddr::from([0, 0, 0, 0]), 0), (Ipv6Addr::UNSPECIFIED.into(), 0)];
        let sides = [(LOCAL, &distinct.local, &[][..]), (REMOTE, &distinct.remote, &loopback[..])];
        for (side, networks, more) in sides {
            for (&(address, len), index) in networks.iter().chain(more).chain(&both).zip(1..) {
                self.networks.set(prefix(side, address, len), index)?;
            }
        }
        for (&user, index) in distinct.users.iter().zip(1..) {
            self.users.set(user, index)?;
        }
        self.install_ports(&distinct)?;
        self.profiles.clear();
        self.paths.clear();
        self.name_groups(regime, groups)?;
        self.version = self.version.wrapping_add(1);
        let flags = u64::from(self.version) | u64::from(self.by_group) << 32;
        self.scope.set(0, [regime.overhead.into(), flags])?;
        for key in keys(&self.cells)?.into_iter().filter(|key| key[0] != self.version) {
            self.cells.remove(key)?;
        }
        Ok(())
    }

    fn install_ports(&self, distinct: &Distinctions) -> io::Result<()> {
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
        let (local, remote) = (starts(&distinct.local_ports), starts(&distinct.remote_ports));
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
        let ports: Vec<u32> = (0..1 << 16).collect();
        self.ports.set_all(&ports, &indexes)
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
            self.groups.set(*id, index)?;
        }
        Ok(())
    }

    /// Removes and returns the control groups seen that have no index.
    pub(crate) fn strange_groups(&self) -> io::Result<Vec<u64>> {
        let ids = keys(&self.strange)?;
        ids.iter().try_for_each(|&id| self.strange.remove(id))?;
        Ok(ids)
    }

    /// Stores a verdict in each cell without one: the identity's tenant, or no tenant.
    pub(crate) fn judge(&self, tenant_of: impl Fn(&Identity<'_>) -> Option<u32>) -> io::Result<()> {
        let (mut at, mut cells) = (vec![[0; 8]; CHUNK], vec![Cell::default(); CHUNK]);
        let mut open = Vec::new();
        self.cells.for_each(&mut at, &mut cells, |key, cell| {
            open.extend((cell.verdict == UNKNOWN).then_some((key, *cell)));
        })?;
        for (key, cell) in open {
            // The identity's group may be a descendant of the one that was looked up.
            let cgroup = self.paths.get((key[usize::from(GROUP as u16) / 4] as usize).wrapping_sub(1));
            let who = Identity {
                local: cell.local(),
                remote: cell.remote(),
                uid: cell.uid,
                cgroup: cgroup.map(String::as_str),
            };
            let verdict = tenant_of(&who).map_or(NOBODY, |tenant| tenant + FIRST);
            self.cells.set(key, Cell { verdict, ..cell })?;
        }
        Ok(())
    }
}

fn prefix(side: u32, address: IpAddr, len: u32) -> Prefix {
    let (address, len) = match address {
        IpAddr::V4(address) => (address.to_ipv6_mapped(), len + 96),
        IpAddr::V6(address) => (address, len),
    };
    Prefix { len: SIDE_BITS + len, side, address: address.octets() }
}

/// All keys of a map.
fn keys<K: Plain, V: Plain>(map: &Map<K, V>) -> io::Result<Vec<K>> {
    let (mut at, mut values) = (vec![K::default(); CHUNK], vec![V::default(); CHUNK]);
    let mut keys = Vec::new();
    map.for_each(&mut at, &mut values, |key, _| keys.push(key))?;
    Ok(keys)
}

/// `R1 =` the verdict on the identity in the frame at [`CELL`]. The key already holds its group's
/// index.
///
/// Changes `R0` to `R5`.
pub(crate) fn classify(asm: &mut Assembler, maps: &Maps) {
    asm.value_of(R1, maps.scope);
    asm.load(4, R1, R1, if cfg!(target_endian = "little") { 8 } else { 12 });
    asm.store(4, R10, -KEY, R1);
    for (side, from, at) in [(LOCAL, offset_of!(Cell, local), 4), (REMOTE, offset_of!(Cell, remote), 8)] {
        asm.store_value(4, R10, -PREFIX, (SIDE_BITS + 128) as i32);
        asm.store_value(4, R10, -PREFIX + 4, side as i32);
        for half in [0, 8] {
            asm.load(8, R1, R10, -CELL + from as i16 + half);
            asm.store(8, R10, -PREFIX + 8 + half, R1);
        }
        asm.frame(R2, PREFIX);
        index(asm, maps.networks, at);
    }
    for (from, at) in [(offset_of!(Cell, local_port), 12), (offset_of!(Cell, remote_port), 16)] {
        asm.load(2, R1, R10, -CELL + from as i16);
        asm.store(4, R10, -SMALL, R1);
        asm.frame(R2, SMALL);
        index(asm, maps.ports, at);
        asm.load(4, R1, R10, -KEY + at);
        match at {
            12 => asm.op(super::asm::Op::And, R1, 0xffff),
            _ => asm.op(super::asm::Op::ShiftRight, R1, 16),
        }
        asm.store(4, R10, -KEY + at, R1);
    }
    asm.load(4, R1, R10, -CELL + offset_of!(Cell, uid) as i16);
    asm.store(4, R10, -SMALL, R1);
    asm.frame(R2, SMALL);
    index(asm, maps.users, 20);
    // The key's last word is 1 if both ends have the same address.
    let (differs, same) = (asm.label(), asm.label());
    for half in [0, 8] {
        asm.load(8, R1, R10, -CELL + offset_of!(Cell, local) as i16 + half);
        asm.load(8, R2, R10, -CELL + offset_of!(Cell, remote) as i16 + half);
        asm.jump(When::NotEqual, R1, Other(R2), differs);
    }
    asm.store_value(4, R10, -KEY + 28, 1);
    asm.go(same);
    asm.here(differs);
    asm.store_value(4, R10, -KEY + 28, 0);
    asm.here(same);

    let (found, out) = (asm.label(), asm.label());
    asm.map(R1, maps.cells);
    asm.frame(R2, KEY);
    asm.call(MAP_LOOKUP);
    asm.jump(When::NotEqual, R0, Imm(0), found);
    asm.map(R1, maps.cells);
    asm.frame(R2, KEY);
    asm.frame(R3, CELL);
    asm.set(R4, NO_EXIST);
    asm.call(MAP_UPDATE);
    asm.set(R1, UNKNOWN as i32);
    asm.go(out);
    asm.here(found);
    asm.load(4, R1, R0, offset_of!(Cell, verdict) as i16);
    asm.here(out);
}

/// Stores in the cell's key the index of the key that `R2` points to, or 0 without an index.
fn index(asm: &mut Assembler, map: i32, at: i16) {
    let none = asm.label();
    asm.store_value(4, R10, -KEY + at, 0);
    asm.map(R1, map);
    asm.call(MAP_LOOKUP);
    asm.jump(When::Equal, R0, Imm(0), none);
    asm.load(4, R1, R0, 0);
    asm.store(4, R10, -KEY + at, R1);
    asm.here(none);
}

/// Stores the index of the identity's control group in the key. Jumps to `known` if the group has
/// one, or if groups don't count. Otherwise records the group as seen.
pub(crate) fn group(asm: &mut Assembler, maps: &Maps, known: super::asm::Label) {
    asm.store_value(4, R10, -KEY + GROUP, 0);
    asm.value_of(R1, maps.scope);
    asm.load(4, R1, R1, if cfg!(target_endian = "little") { 12 } else { 8 });
    asm.jump(When::Equal, R1, Imm(0), known);
    asm.frame(R2, CELL);
    const { assert!(offset_of!(Cell, cgroup) == 0) };
    index(asm, maps.groups, GROUP);
    asm.load(4, R1, R10, -KEY + GROUP);
    asm.jump(When::NotEqual, R1, Imm(0), known);
    asm.store_value(4, R10, -SMALL, 0);
    asm.map(R1, maps.strange);
    asm.frame(R2, CELL);
    asm.frame(R3, SMALL);
    asm.set(R4, 0);
    asm.call(MAP_UPDATE);
}

impl Maps {
    pub(crate) fn groups(&self) -> i32 {
        self.groups
    }

    pub(crate) fn scope(&self) -> i32 {
        self.scope
    }
}

/// Offsets in the frame, in bytes below its top. The hook uses the part above.
pub(crate) const CELL: i16 = 320;
pub(crate) const KEY: i16 = 352;
pub(crate) const GROUP: i16 = 24;
const PREFIX: i16 = 376;
pub(crate) const SMALL: i16 = 384;
/// Offset of the part of the frame that is free for other code.
pub(crate) const BELOW: i16 = 384;

/// Offsets in [`Cell`] for code that fills one in.
pub(crate) const AT_LOCAL: i16 = -CELL + offset_of!(Cell, local) as i16;
pub(crate) const AT_REMOTE: i16 = -CELL + offset_of!(Cell, remote) as i16;
pub(crate) const AT_UID: i16 = -CELL + offset_of!(Cell, uid) as i16;
pub(crate) const AT_PORTS: i16 = -CELL + offset_of!(Cell, local_port) as i16;
pub(crate) const CELL_BYTES: i16 = size_of::<Cell>() as i16;
const _: () = assert!(size_of::<Cell>() == 56 && size_of::<Prefix>() == 24, "there is padding");

/// Verdicts: none yet, no tenant, and from `FIRST` on the tenants.
pub(crate) const UNKNOWN: u32 = 0;
pub(crate) const NOBODY: u32 = 1;
pub(crate) const FIRST: u32 = 2;
const LOCAL: u32 = 0;
const REMOTE: u32 = 1;
const SIDE_BITS: u32 = 32;
/// Upper bound of networks, users, groups and cells.
const MOST: u32 = 1 << 16;
const CHUNK: usize = 1024;
const MAP_LOOKUP: i32 = 1;
const MAP_UPDATE: i32 = 2;
const NO_EXIST: i32 = 1;
