//! The programs' load into the kernel. They are C: `crates/shape/bpf`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::{Link, Object, ObjectBuilder, OpenObject};
use tollway_agent::programs::{Aligned, LoadError, Loading};

use super::namespaces;
use super::record::Raw;
use super::sys::Map;

/// The loaded programs, and iterators over connections.
#[derive(Debug)]
pub(super) struct Programs {
    pub(super) object: Object,
    pub(super) hook: OwnedFd,
    pub(super) egress: OwnedFd,
    pub(super) join: OwnedFd,
    pub(super) walk: OwnedFd,
    /// Attends to connections that are known.
    pub(super) apply: Link,
    /// Adds connections that are open already, and enables their callbacks.
    adopt: Link,
    loading: Loading,
}

impl Programs {
    /// Loads the programs, with room for a number of connections.
    ///
    /// # Errors
    /// The kernel lacks a feature, or this process a right.
    pub(super) fn load(connections: u32) -> Result<Programs, LoadError> {
        let loading = Loading::begin(NEEDS)?;
        let mut object = open(loading)?;
        for mut map in object.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if [super::SEEN, super::SHARES].contains(&&*name) {
                map.set_max_entries(connections).map_err(loading.refused("size the maps"))?;
            }
            if name.ends_with(".rodata")
                && let Some(value) = map.initial_value_mut()
            {
                let users = namespaces::users();
                let users = users.map_err(|error| loading.error("name the user namespace", error))?;
                value[..4].copy_from_slice(&users.to_ne_bytes());
            }
        }
        let object = object.load().map_err(loading.refused("load the programs"))?;
        let program = |name| {
            let program = object.progs().find(|program| program.name() == name);
            let descriptor = program.and_then(|program| program.as_fd().try_clone_to_owned().ok());
            descriptor.ok_or_else(|| loading.missing())
        };
        let (hook, walk) = (program(super::HOOK)?, program(super::WALK)?);
        let (egress, join) = (program(super::EGRESS)?, program(super::JOIN)?);
        let [apply, adopt] = [iterator(&object, super::WALK, loading)?, iterator(&object, ADOPT, loading)?];
        Ok(Programs { object, hook, egress, join, walk, apply, adopt, loading })
    }

    /// Adds the connections that are open already.
    pub(super) fn adopt(&self, walk: impl FnOnce(&Link) -> std::io::Result<()>) -> Result<(), LoadError> {
        let failed = |error| self.loading.error("find open connections", error);
        walk(&self.adopt).map_err(failed)?;
        let globals: Map<u32, u32> = Map::of(&self.object, ".bss").map_err(failed)?;
        match globals.get(0).map_err(failed)? {
            Some(0) => Ok(()),
            _ => Err(failed(std::io::ErrorKind::Unsupported.into())),
        }
    }
}

/// Loads the walk over the connections of another process's programs, by their maps.
pub(super) fn walk_of(
    lease: &Map<u32, [u64; 2]>,
    seen: &Map<u64, Raw>,
    shares: &Map<u64, u64>,
) -> Result<(Object, Link), LoadError> {
    let loading = Loading::begin(NEEDS)?;
    let mut object = open(loading)?;
    for mut program in object.progs_mut() {
        let is_walk = program.name() == super::WALK;
        program.set_autoload(is_walk);
    }
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let theirs: Option<BorrowedFd<'_>> = match &*name {
            super::LEASE => Some(lease.as_fd()),
            super::SEEN => Some(seen.as_fd()),
            super::SHARES => Some(shares.as_fd()),
            _ => None,
        };
        let done = match theirs {
            Some(theirs) => map.reuse_fd(theirs),
            None => map.set_autocreate(name.contains('.')),
        };
        done.map_err(loading.refused("take over the maps"))?;
    }
    let object = object.load().map_err(loading.refused("load the walk"))?;
    let link = iterator(&object, super::WALK, loading)?;
    Ok((object, link))
}

fn open(loading: Loading) -> Result<OpenObject, LoadError> {
    ObjectBuilder::default().open_memory(&OBJECT.0[..]).map_err(loading.refused("read the programs"))
}

fn iterator(object: &Object, name: &str, loading: Loading) -> Result<Link, LoadError> {
    let program = object.progs_mut().find(|program| program.name() == name);
    program.ok_or_else(|| loading.missing())?.attach().map_err(loading.refused("make an iterator"))
}

const ADOPT: &str = "tollway_adopt";
const NEEDS: &str =
    "Linux 6.12 or later with BTF (CONFIG_DEBUG_INFO_BTF), CONFIG_BPF_JIT and CONFIG_CGROUP_BPF";

static OBJECT: Aligned<[u8; include_bytes!("../../bpf/shape.bpf.o").len()]> =
    Aligned(*include_bytes!("../../bpf/shape.bpf.o"));
