//! Group memberships: this daemon's, and those that the others have flooded.

use std::collections::{BTreeMap, btree_map::Entry};
use std::sync::Arc;

use super::frame::GroupUpdate;
use super::{DaemonId, Incarnation};

/// Groups by daemon.
#[derive(Clone, Debug)]
pub(super) struct Groups {
    me: Incarnation,
    number: u64,
    /// Joins less leaves.
    own: BTreeMap<Arc<[u8]>, u32>,
    others: BTreeMap<DaemonId, Other>,
}

#[derive(Clone, Debug)]
struct Other {
    origin: Incarnation,
    number: u64,
    /// Ascending. (A set would take ten times the memory where there are thousands of daemons.)
    groups: Box<[Arc<[u8]>]>,
}

/// A daemon has joined or left a group.
pub(super) type Change = (DaemonId, Arc<[u8]>, bool);

impl Groups {
    pub(super) fn new(me: Incarnation) -> Groups {
        Groups { me, number: 0, own: BTreeMap::new(), others: BTreeMap::new() }
    }

    /// Counts a join; the first of a group is to be flooded.
    pub(super) fn join(&mut self, group: &[u8]) -> Option<GroupUpdate> {
        if let Some(count) = self.own.get_mut(group) {
            *count += 1;
            return None;
        }
        let group: Arc<[u8]> = group.into();
        self.own.insert(group.clone(), 1);
        Some(self.change(group, true))
    }

    /// Takes a join back; the last of a group is to be flooded.
    pub(super) fn leave(&mut self, group: &[u8]) -> Option<GroupUpdate> {
        let count = self.own.get_mut(group)?;
        *count -= 1;
        if *count > 0 {
            return None;
        }
        let (group, _) = self.own.remove_entry(group)?;
        Some(self.change(group, false))
    }

    fn change(&mut self, group: Arc<[u8]>, joined: bool) -> GroupUpdate {
        self.number += 1;
        GroupUpdate { origin: self.me, number: self.number, whole: false, changes: vec![(group, joined)] }
    }

    /// Takes what another daemon floods, if it follows what is known; the changes are those that
    /// differ.
    pub(super) fn accept(&mut self, update: &GroupUpdate) -> Option<Vec<Change>> {
        let daemon = update.origin.daemon;
        if daemon == self.me.daemon {
            return None;
        }
        let other = match self.others.entry(daemon) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) if update.whole || update.number == 1 => {
                entry.insert(Other { origin: update.origin, number: 0, groups: Box::default() })
            }
            Entry::Vacant(_) => return None,
        };
        let restarted = update.origin.epoch > other.origin.epoch;
        let known = if restarted { 0 } else { other.number };
        let follows = update.whole && (restarted || update.number > known);
        if update.origin.epoch < other.origin.epoch || !(follows || update.number == known + 1) {
            return None;
        }
        let mut after = if update.whole || restarted { Vec::new() } else { other.groups.to_vec() };
        for (group, joined) in &update.changes {
            match (after.binary_search(group), joined) {
                (Err(at), true) => after.insert(at, group.clone()),
                (Ok(at), false) => {
                    after.remove(at);
                }
                _ => {}
            }
        }
        let lacks = |groups: &[Arc<[u8]>], group| groups.binary_search(group).is_err();
        let left = other.groups.iter().filter(|group| lacks(&after, group));
        let joined = after.iter().filter(|group| lacks(&other.groups, group));
        let left = left.map(|group| (daemon, group.clone(), false));
        let changes = left.chain(joined.map(|group| (daemon, group.clone(), true))).collect();
        *other = Other { origin: update.origin, number: update.number, groups: after.into() };
        Some(changes)
    }

    /// Forgets a daemon; what it belonged to it has left.
    pub(super) fn forget(&mut self, daemon: DaemonId) -> Vec<Change> {
        let groups = self.others.remove(&daemon).map(|other| other.groups).unwrap_or_default();
        groups.into_iter().map(|group| (daemon, group, false)).collect()
    }

    /// All memberships, for a neighbour that knows none.
    pub(super) fn whole(&self) -> Vec<Arc<GroupUpdate>> {
        let whole = |origin, number, groups: &mut dyn Iterator<Item = &Arc<[u8]>>| {
            let changes = groups.map(|group| (group.clone(), true)).collect();
            Arc::new(GroupUpdate { origin, number, whole: true, changes })
        };
        let own = (self.number > 0).then(|| whole(self.me, self.number, &mut self.own.keys()));
        let others = self.others.values().map(|o| whole(o.origin, o.number, &mut o.groups.iter()));
        own.into_iter().chain(others).collect()
    }

    /// Other daemons that belong to a group, ascending.
    pub(super) fn members<'a>(&'a self, group: &'a [u8]) -> impl Iterator<Item = DaemonId> + 'a {
        self.others
            .iter()
            .filter(|(_, other)| other.groups.binary_search_by(|own| (**own).cmp(group)).is_ok())
            .map(|(&daemon, _)| daemon)
    }
}
