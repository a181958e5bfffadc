//! The newest link state of every daemon (§ IV-B.1: "multicasting a cost update message to all the
//! other daemons").

use std::collections::BTreeMap;
use std::sync::Arc;

use super::frame::{LinkCost, LinkState};
use super::{DaemonId, Incarnation};

/// Link states by origin.
#[derive(Clone, Debug, Default)]
pub(super) struct Database {
    states: BTreeMap<DaemonId, Known>,
    /// Congested connections to receivers: cost and lot.
    hops: BTreeMap<(DaemonId, u64), (f64, f64)>,
    /// Grows when links come or go.
    topology: u64,
    /// Grows when a cost changes.
    costs: u64,
}

/// The newest states of a daemon: that with all links, and the last, which changes it or is the
/// same.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) whole: Arc<LinkState>,
    pub(super) last: Arc<LinkState>,
}

impl Known {
    /// All links as they are now.
    pub(super) fn links(&self) -> impl Iterator<Item = &LinkCost> {
        self.whole.links.iter().map(|link| self.changed(link.peer).unwrap_or(link))
    }

    fn changed(&self, to: DaemonId) -> Option<&LinkCost> {
        find(&self.last.links, to)
    }
}

fn find(links: &[LinkCost], to: DaemonId) -> Option<&LinkCost> {
    links.binary_search_by_key(&to, |link| link.peer).ok().map(|at| &links[at])
}

/// What a link state changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// It is not newer than the known one, or changes one that is not known.
    Old,
    /// Costs at most.
    Costs,
    /// The links, or their daemon's start.
    Topology,
}

impl Database {
    pub(super) fn get(&self, daemon: DaemonId) -> Option<&Known> {
        self.states.get(&daemon)
    }

    pub(super) fn daemons(&self) -> impl Iterator<Item = DaemonId> + '_ {
        self.states.keys().copied()
    }

    /// The start of a daemon that is known last.
    pub(super) fn incarnation(&self, daemon: DaemonId) -> Option<Incarnation> {
        self.states.get(&daemon).map(|known| known.last.origin)
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
        if known.is_some_and(|known| age(&known.last) >= age(&state)) {
            return News::Old;
        }
        let whole = known.map(|known| &known.whole).filter(|whole| whole.origin == state.origin);
        let same = match whole {
            Some(whole) if state.is_whole() => same_links(whole, &state),
            Some(whole) => {
                let linked = |link: &LinkCost| find(&whole.links, link.peer).is_some();
                if whole.number != state.base || !state.links.iter().all(linked) {
                    return News::Old;
                }
                true
            }
            None if state.is_whole() => false,
            None => return News::Old,
        };
        self.put(state);
        if same { News::Costs } else { News::Topology }
    }

    /// Replaces the origin's state, whatever its number; what changes another state, that is known.
    pub(super) fn put(&mut self, state: Arc<LinkState>) {
        let daemon = state.origin.daemon;
        let before = self.states.get(&daemon).cloned();
        let whole = before.as_ref().map(|known| &known.whole);
        let same = match whole {
            Some(_) if !state.is_whole() => true,
            Some(whole) => whole.origin == state.origin && same_links(whole, &state),
            None => false,
        };
        self.topology += u64::from(!same);
        let whole = whole.filter(|_| !state.is_whole()).unwrap_or(&state).clone();
        self.states.insert(daemon, Known { whole, last: state.clone() });
        self.costs += 1;
        if before.is_some_and(|known| !known.last.hops.is_empty()) {
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
        let known = self.states.get(&from)?;
        known.changed(to).or_else(|| find(&known.whole.links, to))
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
