//! Group memberships: this daemon's, and those that the others have flooded.

use std::collections::BTreeMap;
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
    /// The others' memberships as last known, whole. Daemons of one process share those that came so.
    others: BTreeMap<DaemonId, Arc<GroupUpdate>>,
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
    pub(super) fn accept(&mut self, update: &Arc<GroupUpdate>) -> Option<Vec<Change>> {
        let daemon = update.origin.daemon;
        if daemon == self.me.daemon {
            return None;
        }
        let known = self.others.get(&daemon);
        let before = known.map_or(&[][..], |known| &known.changes);
        let epoch = known.map_or(update.origin.epoch, |known| known.origin.epoch);
        let restarted = update.origin.epoch > epoch;
        let number = known.filter(|_| !restarted).map_or(0, |known| known.number);
        let follows = match update.whole {
            true => known.is_none() || restarted || update.number > number,
            false => update.number == number + 1,
        };
        if update.origin.epoch < epoch || !follows {
            return None;
        }
        let kept = if restarted { &[][..] } else { before };
        let after = if update.is_plain() { update.clone() } else { Arc::new(update.applied_to(kept)) };
        let has = |groups: &[(Arc<[u8]>, bool)], group: &Arc<[u8]>| {
            groups.binary_search_by(|other| other.0.cmp(group)).is_ok()
        };
        let left = before.iter().filter(|(group, _)| !has(&after.changes, group));
        let joined = after.changes.iter().filter(|(group, _)| !has(before, group));
        let left = left.map(|(group, _)| (daemon, group.clone(), false));
        let changes = left.chain(joined.map(|(group, _)| (daemon, group.clone(), true))).collect();
        self.others.insert(daemon, after);
        Some(changes)
    }

    /// Forgets a daemon; what it belonged to it has left.
    pub(super) fn forget(&mut self, daemon: DaemonId) -> Vec<Change> {
        let known = self.others.remove(&daemon);
        let groups = known.iter().flat_map(|known| &known.changes);
        groups.map(|(group, _)| (daemon, group.clone(), false)).collect()
    }

    /// All memberships, for a neighbour that knows none.
    pub(super) fn whole(&self) -> Vec<Arc<GroupUpdate>> {
        let own = || GroupUpdate {
            origin: self.me,
            number: self.number,
            whole: true,
            changes: self.own.keys().map(|group| (group.clone(), true)).collect(),
        };
        let own = (self.number > 0).then(|| Arc::new(own()));
        own.into_iter().chain(self.others.values().cloned()).collect()
    }

    /// Other daemons that belong to a group, ascending.
    pub(super) fn members<'a>(&'a self, group: &'a [u8]) -> impl Iterator<Item = DaemonId> + 'a {
        self.starts(group).map(|member| member.daemon)
    }

    /// The starts of other daemons that have joined a group, ascending.
    pub(super) fn starts<'a>(&'a self, group: &'a [u8]) -> impl Iterator<Item = Incarnation> + 'a {
        let others = self.others.values();
        others
            .filter(|other| other.changes.binary_search_by(|own| (*own.0).cmp(group)).is_ok())
            .map(|other| other.origin)
    }
}
