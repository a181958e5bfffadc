//! The newest link state of every daemon (§ IV-B.1: "multicasting a cost update message to all the
//! other daemons").

use std::collections::BTreeMap;
use std::sync::Arc;

use super::frame::{LinkCost, LinkState};
use super::{DaemonId, Incarnation};

/// Link states by origin.
#[derive(Clone, Debug, Default)]
pub(super) struct Database {
    states: BTreeMap<DaemonId, Arc<LinkState>>,
    /// Congested connections to receivers: cost and lot.
    hops: BTreeMap<(DaemonId, u64), (f64, f64)>,
    /// Grows when links come or go.
    topology: u64,
    /// Grows when a cost changes.
    costs: u64,
}

/// What a link state changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// It is not newer than the known one.
    Old,
    /// Costs at most.
    Costs,
    /// The links, or their daemon's start.
    Topology,
}

impl Database {
    pub(super) fn get(&self, daemon: DaemonId) -> Option<&Arc<LinkState>> {
        self.states.get(&daemon)
    }

    pub(super) fn daemons(&self) -> impl Iterator<Item = DaemonId> + '_ {
        self.states.keys().copied()
    }

    /// The start of a daemon that is known last.
    pub(super) fn incarnation(&self, daemon: DaemonId) -> Option<Incarnation> {
        self.states.get(&daemon).map(|state| state.origin)
    }

    pub(super) fn topology(&self) -> u64 {
        self.topology
    }

    pub(super) fn costs(&self) -> u64 {
        self.costs
    }

    /// Replaces the origin's state by a newer one.
    pub(super) fn accept(&mut self, state: Arc<LinkState>) -> News {
        let daemon = state.origin.daemon;
        let known = self.states.get(&daemon);
        let age = |state: &LinkState| (state.origin.epoch, state.number);
        if known.is_some_and(|known| age(known) >= age(&state)) {
            return News::Old;
        }
        let same = known.is_some_and(|known| known.origin == state.origin && same_links(known, &state));
        self.put(state);
        if same { News::Costs } else { News::Topology }
    }

    /// Replaces the origin's state, whatever its number.
    pub(super) fn put(&mut self, state: Arc<LinkState>) {
        let daemon = state.origin.daemon;
        let known = self.states.insert(daemon, state.clone());
        if !known.as_ref().is_some_and(|known| known.origin == state.origin && same_links(known, &state)) {
            self.topology += 1;
        }
        self.costs += 1;
        if known.is_some_and(|known| !known.hops.is_empty()) {
            self.hops.retain(|&(of, _), _| of != daemon);
        }
        for hop in &state.hops {
            self.hops.insert((daemon, hop.key), (f64::from(hop.cost), f64::from(hop.lot)));
        }
    }

    pub(super) fn forget(&mut self, daemon: DaemonId) {
        if self.states.remove(&daemon).is_some() {
            self.hops.retain(|&(of, _), _| of != daemon);
            self.topology += 1;
        }
    }

    /// One direction of a link that both ends state.
    pub(super) fn link(&self, from: DaemonId, to: DaemonId) -> Option<&LinkCost> {
        self.half(to, from)?;
        self.half(from, to)
    }

    fn half(&self, from: DaemonId, to: DaemonId) -> Option<&LinkCost> {
        let links = &self.states.get(&from)?.links;
        links.binary_search_by_key(&to, |link| link.peer).ok().map(|at| &links[at])
    }

    /// Cost and lot of congested connections to receivers.
    pub(super) fn hop(&self, daemon: DaemonId, key: u64) -> Option<(f64, f64)> {
        self.hops.get(&(daemon, key)).copied()
    }

    pub(super) fn has_hops(&self) -> bool {
        !self.hops.is_empty()
    }
}

fn same_links(a: &LinkState, b: &LinkState) -> bool {
    a.links.len() == b.links.len()
        && a.links.iter().zip(&b.links).all(|(a, b)| a.peer == b.peer && a.weight == b.weight)
}
