//! Shares of a rate: the pace of each of many connections, where pacing limits them instead of a
//! queue.
//!
//! The logical partitions of [`aggregate`](crate::aggregate) do the same with tokens, packet by
//! packet. Where the kernel owns the packets, only the rate of each connection can be set, once per
//! **tick**. A tick divides the link over tenants, a tenant's part over its classes, and that over
//! connections, each time weighted max–min ([`divide()`]). Unused parts go to the others;
//! [`Demand`] estimates the use.
//!
//! - A hungry connection has its part of the present rate, and no more: together they stay within
//!   the rate.
//! - A connection that uses less has its use reserved, and may still send as fast as a hungry one.
//!   The excess comes out of the bucket B of its tenant and of the link, which counts bytes sent.
//!   So no connection waits for a tick to begin, and any span t carries at most B + r·t and the
//!   data sent in one tick.
//! - A connection that is hungry but limited by its window has its part reserved in tokens
//!   ([`Partition`]), which the others repay in the following seconds. So hungry connections have
//!   equal parts in the long run, by weight, at any round trip.
//!
//! A bucket in debt lowers the rate to divide until the debt is paid. Data that connections send at
//! a time (two segments in the kernel) are no debt: of ten thousand slow connections, many are
//! always that far ahead of their paces.

mod demand;
mod divide;
mod partition;
mod pool;
#[cfg(test)]
mod tests;
mod tree;

pub use demand::{Demand, LimitedBy, Sample, Wants};
pub use divide::{Claim, divide};
pub use partition::Partition;

use crate::{Bytes, Rate, Time};
use pool::Pool;
use tree::{Branch, Class, Given, Open, raised};

/// The contract of a tenant or of the link: ⟨B, r, p⟩ of a policy (the aggregates paper, § 4), and
/// its weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contract {
    /// Its weight among its siblings, where they compete. Zero counts as a minimal weight.
    pub weight: f64,
    /// r, the average rate, bytes/s on the wire. `None` is the link's rate.
    pub rate: Option<Rate>,
    /// p, the peak rate while its bucket has tokens; `None` is the average rate.
    pub peak: Option<Rate>,
    /// B, bytes; `None` is 100 ms of the rate.
    pub depth: Option<Bytes>,
}

impl Default for Contract {
    fn default() -> Contract {
        Contract { weight: 1.0, rate: None, peak: None, depth: None }
    }
}

/// A connection at a tick: inputs, and the two results `share` and `limit`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacedConnection {
    /// Its class, in the numbering of [`Shares::new`].
    pub class: u32,
    /// Its weight in its class.
    pub weight: f64,
    /// Bytes sent since the last tick, on the wire.
    pub sent: u64,
    /// Bytes sent at a time, by which it may be ahead of its pace without debt, on the wire.
    pub burst: u32,
    /// Its demand.
    pub wants: Wants,
    /// Its reserve, which the caller keeps from tick to tick.
    pub partition: Partition,
    /// Result: its part of the rate.
    pub share: Rate,
    /// Result: its rate limit, on the wire. Above its share while others' tokens allow.
    pub limit: Rate,
}

impl PacedConnection {
    /// Its weight, raised or lowered to repay reserves.
    fn pull(&self) -> f64 {
        raised(self.weight, self.partition.raised())
    }
}

/// A tenant: its contract and the weights of its classes, at least one.
#[derive(Clone, Debug, PartialEq)]
pub struct Tenant {
    /// The contract.
    pub contract: Contract,
    /// The weights of its classes.
    pub classes: Vec<f64>,
}

/// The link, its tenants, and their buckets.
#[derive(Clone, Debug)]
pub struct Shares {
    link: Pool,
    tenants: Vec<Branch>,
    /// One entry per class.
    classes: Vec<Class>,
    settled: Time,
    scratch: Scratch,
}

impl Shares {
    /// Full buckets, before the first tick. Classes are numbered consecutively, tenant by tenant.
    pub fn new(now: Time, link: Contract, tenants: &[Tenant]) -> Shares {
        let mut classes = Vec::new();
        let mut branches = Vec::new();
        for (tenant, at) in tenants.iter().zip(0..) {
            let first = classes.len();
            classes.extend(tenant.classes.iter().map(|&weight| Class {
                tenant: at,
                weight,
                ..Class::default()
            }));
            branches.push(Branch {
                pool: Pool::new(&tenant.contract),
                weight: tenant.contract.weight,
                classes: (first, classes.len()),
                given: Given::default(),
                raise: 0.0,
            });
        }
        Shares {
            link: Pool::new(&link),
            tenants: branches,
            classes,
            settled: now,
            scratch: Scratch::default(),
        }
    }

    /// Sets the share and limit of each of `connections` until the next tick, `tick` from now.
    /// `connections` must hold all connections, in any order.
    pub fn divide(&mut self, now: Time, tick: Time, connections: &mut [PacedConnection]) {
        self.settle(now, connections);
        // A loan ends at the next tick, and shows in the traffic of the one after.
        let horizon = (tick * 2).max(Time::from_millis(1)).as_secs_f64();
        let even = connections.iter().all(|paced| paced.partition.is_even() && !paced.wants.waits);
        if !even {
            self.dues(horizon, connections);
        }
        self.over_all(horizon, connections, Wants::is_hungry);
        for paced in connections.iter_mut().filter(|paced| paced.wants.hungry) {
            let share = paced.share.bytes_per_sec();
            if even {
                paced.partition.is_due(share);
            }
            paced.partition.is_given(share);
        }
        self.lend(horizon, connections);
    }

    /// Computes the parts that all connections would have without window limits, and the raises of
    /// weights that repay reserves: those of connections, and by the same amount those of their
    /// classes and tenants.
    fn dues(&mut self, horizon: f64, connections: &mut [PacedConnection]) {
        self.over_all(horizon, connections, Wants::persists);
        for paced in connections.iter_mut().filter(|paced| paced.wants.persists()) {
            let share = paced.share.bytes_per_sec();
            paced.partition.is_due(share);
            let back = paced.partition.give_back() * share;
            if paced.wants.hungry {
                self.classes[paced.class as usize].back += back;
            }
        }
        for branch in &mut self.tenants {
            let classes = &mut self.classes[branch.range()];
            branch.raise = ratio(classes.iter().map(|class| class.back).sum(), branch.given.gets);
            classes.iter_mut().for_each(|class| class.raise = ratio(class.back, class.given.gets));
        }
    }

    /// Divides the rate down the tree, with the present raises, over all connections; those for
    /// which `hungry` is true count without bound.
    fn over_all(&mut self, horizon: f64, connections: &mut [PacedConnection], hungry: fn(&Wants) -> bool) {
        self.demands(connections, hungry);
        self.over_tenants(horizon);
        for at in 0..self.tenants.len() {
            self.over_classes(at);
        }
        self.over_connections(connections, hungry);
    }

    /// The tenant's part of the link.
    pub fn share_of(&self, tenant: usize) -> Rate {
        Rate::from_bytes_per_sec(self.tenants.get(tenant).map_or(0.0, |branch| branch.given.gets))
    }

    /// The rate limit of all of a tenant together until the next tick: its share, or the share it
    /// would have with a higher demand.
    pub fn most_of(&self, tenant: usize) -> Rate {
        Rate::from_bytes_per_sec(self.tenants.get(tenant).map_or(0.0, |branch| branch.given.most()))
    }

    /// Fill level of a tenant's bucket: 1 is full, below 0 in debt. 1 for a tenant without a rate.
    pub fn level_of(&self, tenant: usize) -> f64 {
        self.tenants.get(tenant).map_or(1.0, |branch| branch.pool.part())
    }

    /// The same for the link's bucket.
    pub fn level(&self) -> f64 {
        self.link.part()
    }

    /// Takes over the buckets of the policy `before`; `from` maps a tenant to its number there. A
    /// new policy creates no tokens.
    pub fn inherit(&mut self, before: &Shares, from: impl Fn(usize) -> Option<usize>) {
        self.settled = before.settled;
        self.link.level = before.link.level.min(self.link.depth);
        for (at, branch) in self.tenants.iter_mut().enumerate() {
            if let Some(old) = from(at).and_then(|old| before.tenants.get(old)) {
                branch.pool.level = old.pool.level.min(branch.pool.depth);
            }
        }
    }

    /// Counts tokens up to `now`.
    fn settle(&mut self, now: Time, connections: &mut [PacedConnection]) {
        let span = now.saturating_sub(self.settled).as_secs_f64();
        self.settled = self.settled.max(now);
        self.classes.iter_mut().for_each(|class| *class = class.cleared());
        for paced in connections {
            paced.partition.settle(span, paced.sent, paced.wants);
            let class = &mut self.classes[paced.class as usize];
            class.sent += paced.sent;
            if paced.sent > 0 || paced.wants.hungry {
                class.ahead += u64::from(paced.burst);
            }
        }
        let (mut all, mut ahead) = (0, 0);
        for branch in &mut self.tenants {
            branch.raise = 0.0;
            let classes = &self.classes[branch.classes.0..branch.classes.1];
            let sent = classes.iter().map(|class| class.sent).sum();
            let own = classes.iter().map(|class| class.ahead).sum();
            branch.pool.advance(span, sent, own);
            all += sent;
            ahead += own;
        }
        self.link.advance(span, all, ahead);
    }

    /// Sums the demands of classes and tenants.
    fn demands(&mut self, connections: &[PacedConnection], hungry: fn(&Wants) -> bool) {
        for class in &mut self.classes {
            (class.given, class.weights, class.connections) = (Given::default(), 0.0, 0);
        }
        for paced in connections {
            let class = &mut self.classes[paced.class as usize];
            class.given.keep += paced.wants.keep.bytes_per_sec();
            class.given.hungry |= hungry(&paced.wants);
            class.weights += paced.weight.max(LEAST_WEIGHT);
            class.connections += 1;
        }
        for branch in &mut self.tenants {
            branch.given = Given::default();
            for class in &self.classes[branch.classes.0..branch.classes.1] {
                branch.given.keep += class.given.keep;
                branch.given.hungry |= class.given.hungry;
            }
        }
    }

    fn over_tenants(&mut self, horizon: f64) {
        let ceilings = |branch: &Branch| branch.pool.ceiling(horizon);
        let capacity = match self.link.rate {
            Some(_) => self.link.ceiling(horizon),
            // Nothing but their contracts holds tenants.
            None => self.tenants.iter().map(ceilings).sum(),
        };
        let claims = &mut self.scratch.claims;
        claims.clear();
        claims.extend(
            self.tenants.iter().map(|branch| {
                Claim::new(branch.pull(), branch.given.wants().min(branch.pool.ceiling(horizon)))
            }),
        );
        divide(capacity, claims, &mut self.scratch.order);
        for (branch, claim) in self.tenants.iter_mut().zip(claims.iter()) {
            branch.given.gets = claim.gets;
        }
        let open: Open = self.tenants.iter().map(|branch| branch.given.open(branch.pull())).sum();
        let weights: f64 = self.tenants.iter().map(|branch| branch.weight.max(LEAST_WEIGHT)).sum();
        for branch in &mut self.tenants {
            let ceiling = branch.pool.ceiling(horizon);
            branch.given.could = open.could(capacity, branch.pull(), branch.given).min(ceiling);
            branch.given.even = (capacity * branch.weight.max(LEAST_WEIGHT) / weights).min(ceiling);
        }
    }

    fn over_classes(&mut self, tenant: usize) {
        let branch = &self.tenants[tenant];
        let (capacity, even, range) = (branch.given.most(), branch.given.even, branch.range());
        let classes = &mut self.classes[range];
        let claims = &mut self.scratch.claims;
        claims.clear();
        claims.extend(classes.iter().map(|class| Claim::new(class.pull(), class.given.wants())));
        divide(capacity, claims, &mut self.scratch.order);
        for (class, claim) in classes.iter_mut().zip(claims.iter()) {
            class.given.gets = claim.gets;
        }
        let open: Open = classes.iter().map(|class| class.given.open(class.pull())).sum();
        let weights: f64 = classes.iter().map(|class| class.weight.max(LEAST_WEIGHT)).sum();
        for class in classes {
            class.given.could = open.could(capacity, class.pull(), class.given);
            class.given.even = even * class.weight.max(LEAST_WEIGHT) / weights;
        }
    }

    /// Divides over the connections of all classes at once, since connections come in any order.
    fn over_connections(&mut self, connections: &mut [PacedConnection], hungry: fn(&Wants) -> bool) {
        let Scratch { claims, order, places, .. } = &mut self.scratch;
        let mut next = 0;
        for class in &mut self.classes {
            class.first = next;
            next += class.connections;
            class.connections = 0;
        }
        claims.clear();
        claims.resize(connections.len(), Claim::default());
        places.clear();
        for paced in connections.iter() {
            let class = &mut self.classes[paced.class as usize];
            let place = class.first + class.connections;
            class.connections += 1;
            claims[place] = Claim::new(paced.pull(), paced.wants.wants(hungry));
            places.push(place as u32);
        }
        for class in &mut self.classes {
            let own = &mut claims[class.first..class.first + class.connections];
            divide(class.given.most(), own, order);
            class.open = Open::default();
        }
        for (paced, &place) in connections.iter_mut().zip(places.iter()) {
            let gets = claims[place as usize].gets;
            paced.share = Rate::from_bytes_per_sec(gets);
            let given = Given { gets, hungry: hungry(&paced.wants), ..Given::default() };
            let class = &mut self.classes[paced.class as usize];
            class.open = class.open + given.open(paced.pull());
        }
    }

    /// Sets limits: hungry connections get their share, the others the share they could have, as
    /// far as tokens allow.
    fn lend(&mut self, horizon: f64, connections: &mut [PacedConnection]) {
        let beyond = |paced: &PacedConnection, class: &Class| {
            let gets = paced.share.bytes_per_sec();
            let given = Given { gets, hungry: paced.wants.hungry, ..Given::default() };
            let could = class.open.could(class.given.most(), paced.pull(), given);
            // A connection never falls below its part of a division in which all are hungry.
            let floor = class.given.even * paced.weight.max(LEAST_WEIGHT) / class.weights;
            (gets.max(floor), (could - gets.max(floor)).max(0.0))
        };
        let lent = &mut self.scratch.lent;
        lent.clear();
        lent.resize(self.tenants.len(), 0.0);
        for paced in connections.iter().filter(|paced| !paced.wants.hungry) {
            let class = &self.classes[paced.class as usize];
            lent[class.tenant as usize] += beyond(paced, class).1;
        }
        for (branch, lent) in self.tenants.iter().zip(lent.iter_mut()) {
            *lent = part(branch.pool.spare(horizon), *lent);
        }
        let all: f64 = connections
            .iter()
            .filter(|paced| !paced.wants.hungry)
            .map(|paced| {
                let class = &self.classes[paced.class as usize];
                beyond(paced, class).1 * lent[class.tenant as usize]
            })
            .sum();
        let link = part(self.link.spare(horizon), all);
        for paced in connections {
            let class = &self.classes[paced.class as usize];
            paced.limit = match paced.wants.hungry {
                true => paced.share,
                false => {
                    let (floor, more) = beyond(paced, class);
                    Rate::from_bytes_per_sec(floor + more * lent[class.tenant as usize] * link)
                }
            };
        }
    }
}

/// `of` divided by `whole`; 0 if `whole` is 0.
fn ratio(of: f64, whole: f64) -> f64 {
    if whole > 0.0 { of / whole } else { 0.0 }
}

/// The fraction of `wanted` that `there_is` covers.
fn part(there_is: f64, wanted: f64) -> f64 {
    if wanted > there_is { there_is / wanted } else { 1.0 }
}

/// Memory that is allocated once and used at every tick.
#[derive(Clone, Debug, Default)]
struct Scratch {
    claims: Vec<Claim>,
    order: Vec<u32>,
    places: Vec<u32>,
    lent: Vec<f64>,
}

/// The least weight that counts.
pub(crate) const LEAST_WEIGHT: f64 = 1e-9;
