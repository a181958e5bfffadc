//! The leases of running agents, and the removal of what a killed one has left.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use tollway_agent::programs::now;

use super::namespaces::in_each;
use super::programs::walk_of;
use super::record::Raw;
use super::sys::{self, Map, Place};
use super::{
    CHUNK, Cleared, Config, EGRESS, HOOK, JOIN, LEASE, SEEN, SHARES, Unavailable, map_of, open_group,
    refused, scope,
};

/// The leases of a running agent, held by its guardian.
#[derive(Debug)]
pub struct Leases(Vec<Map<u32, [u64; 2]>>);

impl Leases {
    /// Finds the leases on the control group for the same namespace.
    ///
    /// # Errors
    /// A system call fails.
    pub fn find(config: &Config) -> Result<Leases, Unavailable> {
        let group = open_group(config)?;
        let namespace = scope(config).map_err(refused("name the network namespace"))?;
        let mut leases = Vec::new();
        for hook in sys::attached(group.1.as_fd(), Place::SocketOps).map_err(refused("find the hook"))? {
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

    /// Puts off the end of each lease that its agent does not renew, so that connections and
    /// tenants keep their limits. A lease that was ended stays ended.
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

/// The new end of a lease that its agent does not renew; `None` if the agent renews it, or has
/// ended it. Times are in ns.
pub(crate) fn put_off(until: u64, now: u64, lease: u64) -> Option<u64> {
    (until != 0 && until < now + lease / 2).then_some(now + lease)
}

/// Removes the hooks of a killed process from the control group, and frees its connections. A
/// running process loses its hooks too, if both cover the same namespace or one covers all.
///
/// # Errors
/// A system call fails.
pub fn clear(config: &Config) -> Result<Cleared, Unavailable> {
    let group = open_group(config)?;
    let namespace = scope(config).map_err(refused("name the network namespace"))?;
    clear_group(&group.1, namespace, true).map_err(refused("clear"))
}

/// Removes the hooks on a group whose lease is over; with `alive`, also those in use on the same
/// namespace.
pub(super) fn clear_group(group: &File, namespace: u64, alive: bool) -> io::Result<Cleared> {
    let mut cleared = Cleared::default();
    for hook in sys::attached(group.as_fd(), Place::SocketOps)? {
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
                "another `tollway shape` paces this control group: stop it, or run `tollway shape clear`";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        let (seen, shares) = (map_of::<u64, Raw>(&hook, SEEN)?, map_of::<u64, u64>(&hook, SHARES)?);
        lease.set(0, [0, of])?;
        let (mut keys, mut records) = (vec![0; CHUNK], vec![Raw::default(); CHUNK]);
        seen.for_each(&mut keys, &mut records, |_, record: &Raw| {
            cleared.connections += usize::from(record.applied != record.own);
        })?;
        let (_programs, apply) = walk_of(&lease, &seen, &shares).map_err(io::Error::other)?;
        in_each(|| sys::iterate(&apply))?;
        sys::detach(hook.as_fd(), group.as_fd(), Place::SocketOps)?;
        cleared.hooks += 1;
    }
    // The other programs have the same lease as the hook.
    for (place, name) in [(Place::Egress, EGRESS), (Place::SetOption, JOIN)] {
        for program in sys::attached(group.as_fd(), place)? {
            if sys::program_name(program.as_fd())? == name {
                let lease: Map<u32, [u64; 2]> = map_of(&program, LEASE)?;
                if lease.get(0)?.is_none_or(|[until, _]| until <= now()) {
                    sys::detach(program.as_fd(), group.as_fd(), place)?;
                }
            }
        }
    }
    Ok(cleared)
}
