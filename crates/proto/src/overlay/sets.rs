//! Destination sets: their trees, and what a lot costs on them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::frame::Destinations;
use super::tree::Routes;
use super::{Body, Daemon, DaemonId, Incarnation, SetId};

/// Sets by handle and by content.
#[derive(Debug, Default)]
pub(super) struct Sets {
    next: u32,
    sets: BTreeMap<SetId, Set>,
    by_content: BTreeMap<(Option<DaemonId>, Arc<[DaemonId]>), SetId>,
}

/// A destination set with its tree as last computed.
#[derive(Debug)]
pub(super) struct Set {
    daemons: Arc<[DaemonId]>,
    /// The daemon that passes messages on to all of them along its own tree.
    via: Option<DaemonId>,
    /// The versions of routes and prices that the rest is of.
    routed: u64,
    priced: (u64, u64),
    destinations: Arc<Destinations>,
    links: Vec<(DaemonId, DaemonId)>,
    quote: Option<Quote>,
}

/// The price of a tree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Quote {
    /// Dollars a lot.
    pub(super) price: f64,
    /// Bytes of a lot: that of the narrowest link.
    pub(super) lot: f64,
}

impl Quote {
    /// Adds a link: its cost for a lot of the narrowest of all.
    fn add(quote: Option<Quote>, cost: f64, lot: f64) -> Option<Quote> {
        let Some(Quote { price, lot: narrowest }) = quote else { return Some(Quote { price: cost, lot }) };
        let least = narrowest.min(lot);
        Some(Quote { price: price * (least / narrowest) + cost * (least / lot), lot: least })
    }
}

impl<B: Body> Daemon<B> {
    /// A handle of a set of destinations; this daemon does not count. The same daemons have the
    /// same handle.
    pub fn set(&mut self, daemons: &[DaemonId]) -> SetId {
        let mut daemons: Vec<DaemonId> = daemons.iter().copied().filter(|&id| id != self.me.daemon).collect();
        daemons.sort_unstable();
        daemons.dedup();
        self.numbered(None, daemons.into())
    }

    /// A handle of some daemons, ascending, that another one passes messages on to: a message is
    /// for that one only, and is paid for all the way.
    pub(super) fn set_via(&mut self, via: DaemonId, daemons: &[DaemonId]) -> SetId {
        match via == self.me.daemon {
            true => self.set(daemons),
            false => self.numbered(Some(via), daemons.into()),
        }
    }

    fn numbered(&mut self, via: Option<DaemonId>, daemons: Arc<[DaemonId]>) -> SetId {
        let content = (via, daemons.clone());
        if let Some(&id) = self.sets.by_content.get(&content) {
            return id;
        }
        let id = SetId(self.sets.next);
        self.sets.next += 1;
        self.sets.by_content.insert(content, id);
        let set = Set {
            daemons,
            via,
            routed: u64::MAX,
            priced: (u64::MAX, 0),
            destinations: Arc::new(Destinations::new(Vec::new())),
            links: Vec::new(),
            quote: None,
        };
        self.sets.sets.insert(id, set);
        id
    }

    /// Drops a set. Messages to it have no destination from then on.
    pub fn release(&mut self, set: SetId) {
        if let Some(set) = self.sets.sets.remove(&set) {
            self.sets.by_content.remove(&(set.via, set.daemons));
        }
    }

    /// The destinations of a set that are reachable, or were until less than
    /// [`Config::patience`](super::Config::patience) ago.
    pub(super) fn destinations(&mut self, id: SetId) -> Option<Arc<Destinations>> {
        let routed = self.reach;
        let set = self.sets.sets.get_mut(&id)?;
        if set.routed != routed {
            set.routed = routed;
            set.priced = (u64::MAX, 0);
            let alive = |&daemon: &DaemonId| -> Option<Incarnation> {
                let kept =
                    self.up.contains(&daemon) || self.lost.get(&daemon).is_some_and(|lost| !lost.expired);
                self.database.incarnation(daemon).filter(|_| kept)
            };
            let to = set.via.as_ref().map_or(&*set.daemons, std::slice::from_ref);
            let destinations = Destinations::new(to.iter().filter_map(alive).collect());
            if destinations != *set.destinations {
                set.destinations = Arc::new(destinations);
            }
            set.links = self.routes.tree(to.iter().copied());
            if let Some(via) = set.via {
                let onward = Routes::compute(via, &self.database);
                set.links.extend(onward.tree(set.daemons.iter().copied()));
            }
        }
        Some(set.destinations.clone())
    }

    /// What a lot costs on the way to a set and over congested connections to receivers; nothing if
    /// no link is passed and none of those is congested.
    pub(super) fn quote(&mut self, id: SetId, hops: &[u64]) -> Option<Quote> {
        self.destinations(id)?;
        let version = (self.prices, self.database.costs());
        let me = self.me.daemon;
        let set = self.sets.sets.get_mut(&id)?;
        if set.priced != version {
            set.priced = version;
            let mut quote = None;
            for &(from, to) in &set.links {
                let (cost, lot) = if from == me {
                    // Its own links' prices a daemon need not wait for.
                    let Some(port) = self.by_peer.get(&to).and_then(|port| self.ports.get(port)) else {
                        continue;
                    };
                    (port.price, port.cost.lot())
                } else {
                    let Some(link) = self.database.link(from, to) else { continue };
                    (f64::from(link.cost), f64::from(link.lot))
                };
                quote = Quote::add(quote, cost, lot);
            }
            set.quote = quote;
        }
        let mut quote = set.quote;
        let fee = if quote.is_some() { self.config.purse.fee } else { 0.0 };
        if !hops.is_empty() && (self.database.has_hops() || !self.hops.is_empty()) {
            let daemons = set.daemons.clone();
            for key in hops {
                let own =
                    self.hops.get(key).filter(|hop| hop.price > 0.0).map(|hop| (hop.price, hop.cost.lot()));
                let others = daemons.iter().filter_map(|&daemon| self.database.hop(daemon, *key));
                for (cost, lot) in own.into_iter().chain(others) {
                    quote = Quote::add(quote, cost, lot);
                }
            }
        }
        // What passes no link is known at once to be too much, and needs no fee between two
        // updates.
        quote.map(|quote| Quote { price: quote.price + fee, ..quote })
    }

    /// How many daemons a set has.
    pub(super) fn width(&self, id: SetId) -> usize {
        self.sets.sets.get(&id).map_or(0, |set| set.destinations.as_slice().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_of_links_add_up_by_the_byte() {
        let wide = Quote::add(None, 5.0, 5000.0);
        let both = Quote::add(wide, 3.0, 1000.0).unwrap();
        assert_eq!((both.price, both.lot), (4.0, 1000.0));
        let other = Quote::add(Quote::add(None, 3.0, 1000.0), 5.0, 5000.0).unwrap();
        assert_eq!(both, other);
    }
}
