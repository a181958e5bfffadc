//! Group memberships: this daemon's, and those that the others have flooded.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::frame::GroupUpdate;
use super::{DaemonId, Incarnation, ProtocolError};

/// Groups by daemon.
#[derive(Clone, Debug)]
pub(super) struct Groups {
    me: Incarnation,
    number: u64,
    /// Joins less leaves.
    own: BTreeMap<Arc<[u8]>, u32>,
    /// Bytes of `own`.
    bytes: usize,
    others: BTreeMap<DaemonId, Known>,
}

/// Another daemon's memberships as last known, whole. Daemons of one process share those that came
/// so.
#[derive(Clone, Debug)]
struct Known {
    groups: Arc<GroupUpdate>,
    bytes: usize,
}

/// Bytes that a membership counts: of its name, and what keeping it takes beside that.
fn bytes_of(group: &[u8]) -> usize {
    group.len() + MEMBERSHIP
}

/// A daemon has joined or left a group.
pub(super) type Change = (DaemonId, Arc<[u8]>, bool);

impl Groups {
    pub(super) fn new(me: Incarnation) -> Groups {
        Groups { me, number: 0, own: BTreeMap::new(), bytes: 0, others: BTreeMap::new() }
    }

    /// True if this daemon may belong to a group.
    pub(super) fn has_room(&self, group: &[u8]) -> bool {
        self.own.contains_key(group) || self.bytes + bytes_of(group) <= MAX_MEMBERSHIPS
    }

    /// The number of memberships known.
    pub(super) fn len(&self) -> usize {
        self.own.len() + self.others.values().map(|known| known.groups.changes.len()).sum::<usize>()
    }

    /// Counts a join; the first of a group is to be flooded.
    pub(super) fn join(&mut self, group: &[u8]) -> Option<GroupUpdate> {
        if let Some(count) = self.own.get_mut(group) {
            *count += 1;
            return None;
        }
        let group: Arc<[u8]> = group.into();
        self.own.insert(group.clone(), 1);
        self.bytes += bytes_of(&group);
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
        self.bytes -= bytes_of(&group);
        Some(self.change(group, false))
    }

    /// Leaves all groups, with one update.
    pub(super) fn leave_all(&mut self) -> GroupUpdate {
        self.own.clear();
        self.bytes = 0;
        self.number += 1;
        GroupUpdate { origin: self.me, number: self.number, whole: true, changes: Vec::new() }
    }

    fn change(&mut self, group: Arc<[u8]>, joined: bool) -> GroupUpdate {
        self.number += 1;
        GroupUpdate { origin: self.me, number: self.number, whole: false, changes: vec![(group, joined)] }
    }

    /// Takes what another daemon floods, if it follows what is known; the changes are those that
    /// differ.
    ///
    /// # Errors
    /// It belongs to more than a daemon may: nothing has changed.
    pub(super) fn accept(&mut self, update: &Arc<GroupUpdate>) -> Result<Option<Vec<Change>>, ProtocolError> {
        let daemon = update.origin.daemon;
        if daemon == self.me.daemon {
            return Ok(None);
        }
        let known = self.others.get_mut(&daemon);
        let epoch = known.as_ref().map_or(update.origin.epoch, |known| known.groups.origin.epoch);
        let restarted = update.origin.epoch > epoch;
        let number = known.as_ref().filter(|_| !restarted).map_or(0, |known| known.groups.number);
        let follows = match update.whole {
            true => known.is_none() || restarted || update.number > number,
            false => update.number == number + 1,
        };
        if update.origin.epoch < epoch || !follows {
            return Ok(None);
        }
        let kept = known.as_ref().filter(|_| !update.whole && !restarted).map_or(0, |known| known.bytes);
        let joins = update.changes.iter().filter(|(_, joined)| *joined);
        if kept + joins.map(|(group, _)| bytes_of(group)).sum::<usize>() > MAX_MEMBERSHIPS {
            return Err(ProtocolError::Memberships(daemon));
        }
        if let (Some(known), false, false) = (known, update.whole, restarted) {
            return Ok(Some(known.amend(update)));
        }
        Ok(Some(self.replace(update)))
    }

    /// Puts memberships in the place of those known of a daemon.
    fn replace(&mut self, update: &Arc<GroupUpdate>) -> Vec<Change> {
        let daemon = update.origin.daemon;
        let mut after = update.clone();
        if !update.is_plain() {
            let mut plain = GroupUpdate { whole: true, changes: Vec::new(), ..**update };
            for change in &update.changes {
                plain.apply(change);
            }
            after = Arc::new(plain);
        }
        let bytes = after.changes.iter().map(|(group, _)| bytes_of(group)).sum();
        let known = Known { groups: after.clone(), bytes };
        let before = self.others.insert(daemon, known).map(|known| known.groups);
        let before = before.as_ref().map_or(&[][..], |before| &before.changes);
        let has = |groups: &[(Arc<[u8]>, bool)], group: &Arc<[u8]>| {
            groups.binary_search_by(|other| other.0.cmp(group)).is_ok()
        };
        let left = before.iter().filter(|(group, _)| !has(&after.changes, group));
        let joined = after.changes.iter().filter(|(group, _)| !has(before, group));
        let left = left.map(|(group, _)| (daemon, group.clone(), false));
        left.chain(joined.map(|(group, _)| (daemon, group.clone(), true))).collect()
    }

    /// Daemons whose memberships are of an earlier start than `current` answers.
    pub(super) fn outdated(&self, current: impl Fn(DaemonId) -> Option<Incarnation>) -> Vec<DaemonId> {
        let origins = self.others.values().map(|known| known.groups.origin);
        let outdated = origins.filter(|origin| current(origin.daemon).is_some_and(|known| known > *origin));
        outdated.map(|origin| origin.daemon).collect()
    }

    /// Forgets a daemon; what it belonged to it has left.
    pub(super) fn forget(&mut self, daemon: DaemonId) -> Vec<Change> {
        let known = self.others.remove(&daemon);
        let groups = known.iter().flat_map(|known| &known.groups.changes);
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
        own.into_iter().chain(self.others.values().map(|known| known.groups.clone())).collect()
    }

    /// Other daemons that belong to a group, ascending.
    pub(super) fn members<'a>(&'a self, group: &'a [u8]) -> impl Iterator<Item = DaemonId> + 'a {
        self.starts(group).map(|member| member.daemon)
    }

    /// The starts of other daemons that have joined a group, ascending.
    pub(super) fn starts<'a>(&'a self, group: &'a [u8]) -> impl Iterator<Item = Incarnation> + 'a {
        let others = self.others.values().map(|known| &known.groups);
        others
            .filter(|other| other.changes.binary_search_by(|own| (*own.0).cmp(group)).is_ok())
            .map(|other| other.origin)
    }
}

impl Known {
    /// Applies a change in place, unless another daemon of this process shares what is known.
    fn amend(&mut self, update: &GroupUpdate) -> Vec<Change> {
        let groups = Arc::make_mut(&mut self.groups);
        groups.number = update.number;
        let mut changes = Vec::new();
        for change in update.changes.iter().filter(|change| groups.apply(change)) {
            let (group, joined) = change;
            let bytes = bytes_of(group);
            self.bytes = if *joined { self.bytes + bytes } else { self.bytes - bytes };
            changes.push((update.origin.daemon, group.clone(), *joined));
        }
        changes
    }
}

/// Bytes of the groups that a daemon belongs to: of their names, and 64 for each. 16 MiB.
pub const MAX_MEMBERSHIPS: usize = 16 << 20;

/// Bytes that a membership counts beside its name.
pub(super) const MEMBERSHIP: usize = 64;
