//! Shares of a rate: how fast each of many connections may send, when what holds them is pacing and
//! not a queue.
//!
//! The logical partitions of [`aggregate`](crate::aggregate) say it with tokens, packet by packet.
//! Where packets are the kernel's, all that can be set is each connection's rate, now and then: on
//! a **tick**. A tick divides the link over tenants, a tenant's part over its classes, and that
//! over connections, each time weighted max–min ([`divide()`]): what one does not use goes to the
//! others ([`Demand`] says who uses what).
//!
//! - Who wants all it can get has its part of what is there, no more: together they are never let
//!   above the rate.
//! - Who wants less has that much kept for it, and may still go as fast as if it wanted all. What
//!   it then takes beyond what is kept comes out of the bucket B of its tenant and of the link,
//!   which is counted from what was sent: so nobody waits for a tick to begin, and no span t
//!   carries more than B + r·t but for what is sent in one tick.
//! - Who would want all, but its window holds it for a moment, has its part kept in tokens
//!   ([`Partition`]), and gets it from the others in the seconds after: in the long run those who
//!   want all have equal parts, by weight, whatever their round trips.
//!
//! A bucket in debt pays it back: the rate divided is less until it has. What connections send at a
//! time (the kernel two segments) is no debt: of ten thousand slow ones, many are always ahead of
//! their paces by as much.

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

/// What a tenant, or the link, keeps to: ⟨B, r, p⟩ of a policy (the aggregates paper, § 4), and its
/// weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contract {
    /// What it counts for among its like, where they compete. Zero counts as next to nothing.
    pub weight: f64,
    /// r, the average rate, bytes a second on the wire. `None` is whatever the link has.
    pub rate: Option<Rate>,
    /// p, at which it may go while its bucket has tokens; `None` is the average rate.
    pub peak: Option<Rate>,
    /// B, bytes; `None` is 100 ms of the rate.
    pub depth: Option<Bytes>,
}

impl Default for Contract {
    fn default() -> Contract {
        Contract { weight: 1.0, rate: None, peak: None, depth: None }
    }
}

/// A connection at a tick.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Member {
    /// Its class, as [`Shares::new`] counts them.
    pub class: u32,
    /// What it counts for in its class.
    pub weight: f64,
    /// What it has sent since the last tick, bytes on the wire.
    pub sent: u64,
    /// What it sends at a time, and so may be ahead of its pace, bytes on the wire: that much is no
    /// debt.
    pub burst: u32,
    /// What it is to have.
    pub wants: Wants,
    /// What is kept for it, from tick to tick.
    pub partition: Partition,
    /// Answered: what of the rate is its own.
    pub share: Rate,
    /// Answered: the rate it may have, on the wire. More than its share while others' tokens allow.
    pub limit: Rate,
}

impl Member {
    /// Its weight with what is given back.
    fn pull(&self) -> f64 {
        raised(self.weight, self.partition.raised())
    }
}

/// A tenant: its contract and the weights of its classes, of which there is one at least.
#[derive(Clone, Debug, PartialEq)]
pub struct Tenant {
    /// What it keeps to.
    pub contract: Contract,
    /// Its classes' weights.
    pub classes: Vec<f64>,
}

/// The link, its tenants, and their buckets.
#[derive(Clone, Debug)]
pub struct Shares {
    link: Pool,
    tenants: Vec<Branch>,
    /// By class.
    classes: Vec<Class>,
    settled: Time,
    scratch: Scratch,
}

impl Shares {
    /// Full buckets, before the first tick. Classes are counted through, tenant by tenant.
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

    /// Says what each of `members` may have until the next tick, `tick` from now; `members` are all
    /// there are, in any order.
    pub fn divide(&mut self, now: Time, tick: Time, members: &mut [Member]) {
        self.settle(now, members);
        // What is lent is taken back at the next tick, and shows in what is sent at the one after.
        let horizon = (tick * 2).max(Time::from_millis(1)).as_secs_f64();
        let even = members.iter().all(|member| member.partition.is_even() && !member.wants.waits);
        if !even {
            self.dues(horizon, members);
        }
        self.over_all(horizon, members, Wants::is_hungry);
        for member in members.iter_mut().filter(|member| member.wants.hungry) {
            let share = member.share.bytes_per_sec();
            if even {
                member.partition.is_due(share);
            }
            member.partition.is_given(share);
        }
        self.lend(horizon, members);
    }

    /// What would be everybody's, did nobody's window come between; and by how much weights are
    /// raised so that all have it in the long run: connections', and as much their classes' and
    /// tenants'.
    fn dues(&mut self, horizon: f64, members: &mut [Member]) {
        self.over_all(horizon, members, Wants::persists);
        for member in members.iter_mut().filter(|member| member.wants.persists()) {
            let share = member.share.bytes_per_sec();
            member.partition.is_due(share);
            let back = member.partition.give_back() * share;
            if member.wants.hungry {
                self.classes[member.class as usize].back += back;
            }
        }
        for branch in &mut self.tenants {
            let classes = &mut self.classes[branch.range()];
            branch.raise = ratio(classes.iter().map(|class| class.back).sum(), branch.given.gets);
            classes.iter_mut().for_each(|class| class.raise = ratio(class.back, class.given.gets));
        }
    }

    /// Down the tree, with weights as they are raised now, to all connections of which `hungry`
    /// says so as much as there is.
    fn over_all(&mut self, horizon: f64, members: &mut [Member], hungry: fn(&Wants) -> bool) {
        self.demands(members, hungry);
        self.over_tenants(horizon);
        for at in 0..self.tenants.len() {
            self.over_classes(at);
        }
        self.over_members(members, hungry);
    }

    /// What a tenant has of the link.
    pub fn share_of(&self, tenant: usize) -> Rate {
        Rate::from_bytes_per_sec(self.tenants.get(tenant).map_or(0.0, |branch| branch.given.gets))
    }

    /// The rate that all of a tenant together may have until the next tick: its share, or what that
    /// would be if it wanted more.
    pub fn most_of(&self, tenant: usize) -> Rate {
        Rate::from_bytes_per_sec(self.tenants.get(tenant).map_or(0.0, |branch| branch.given.most()))
    }

    /// Tokens in a tenant's bucket, as part of its depth: 1 is full, below 0 in debt. 1 for a
    /// tenant without a rate.
    pub fn level_of(&self, tenant: usize) -> f64 {
        self.tenants.get(tenant).map_or(1.0, |branch| branch.pool.part())
    }

    /// The same of the link's.
    pub fn level(&self) -> f64 {
        self.link.part()
    }

    /// Takes buckets over from what was in force before: `from` says which tenant was this one. A
    /// new policy brings no tokens.
    pub fn inherit(&mut self, before: &Shares, from: impl Fn(usize) -> Option<usize>) {
        self.settled = before.settled;
        self.link.level = before.link.level.min(self.link.depth);
        for (at, branch) in self.tenants.iter_mut().enumerate() {
            if let Some(old) = from(at).and_then(|old| before.tenants.get(old)) {
                branch.pool.level = old.pool.level.min(branch.pool.depth);
            }
        }
    }

    /// Counts tokens until `now`.
    fn settle(&mut self, now: Time, members: &mut [Member]) {
        let span = now.saturating_sub(self.settled).as_secs_f64();
        self.settled = self.settled.max(now);
        self.classes.iter_mut().for_each(|class| *class = class.cleared());
        for member in members {
            member.partition.settle(span, member.sent, member.wants);
            let class = &mut self.classes[member.class as usize];
            class.sent += member.sent;
            if member.sent > 0 || member.wants.hungry {
                class.ahead += u64::from(member.burst);
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

    /// What each class and tenant wants.
    fn demands(&mut self, members: &[Member], hungry: fn(&Wants) -> bool) {
        for class in &mut self.classes {
            (class.given, class.weights, class.members) = (Given::default(), 0.0, 0);
        }
        for member in members {
            let class = &mut self.classes[member.class as usize];
            class.given.keep += member.wants.keep.bytes_per_sec();
            class.given.hungry |= hungry(&member.wants);
            class.weights += member.weight.max(LEAST_WEIGHT);
            class.members += 1;
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

    /// Of every class at once: members come in any order.
    fn over_members(&mut self, members: &mut [Member], hungry: fn(&Wants) -> bool) {
        let Scratch { claims, order, places, .. } = &mut self.scratch;
        let mut next = 0;
        for class in &mut self.classes {
            class.first = next;
            next += class.members;
            class.members = 0;
        }
        claims.clear();
        claims.resize(members.len(), Claim::default());
        places.clear();
        for member in members.iter() {
            let class = &mut self.classes[member.class as usize];
            let place = class.first + class.members;
            class.members += 1;
            claims[place] = Claim::new(member.pull(), member.wants.wants(hungry));
            places.push(place as u32);
        }
        for class in &mut self.classes {
            let own = &mut claims[class.first..class.first + class.members];
            divide(class.given.most(), own, order);
            class.open = Open::default();
        }
        for (member, &place) in members.iter_mut().zip(places.iter()) {
            let gets = claims[place as usize].gets;
            member.share = Rate::from_bytes_per_sec(gets);
            let given = Given { gets, hungry: hungry(&member.wants), ..Given::default() };
            let class = &mut self.classes[member.class as usize];
            class.open = class.open + given.open(member.pull());
        }
    }

    /// Limits: to those that hunger their share, to the others what they could have, as far as
    /// there are tokens.
    fn lend(&mut self, horizon: f64, members: &mut [Member]) {
        let beyond = |member: &Member, class: &Class| {
            let gets = member.share.bytes_per_sec();
            let given = Given { gets, hungry: member.wants.hungry, ..Given::default() };
            let could = class.open.could(class.given.most(), member.pull(), given);
            // Nobody is let down to less than it has if all wake at once.
            let floor = class.given.even * member.weight.max(LEAST_WEIGHT) / class.weights;
            (gets.max(floor), (could - gets.max(floor)).max(0.0))
        };
        let lent = &mut self.scratch.lent;
        lent.clear();
        lent.resize(self.tenants.len(), 0.0);
        for member in members.iter().filter(|member| !member.wants.hungry) {
            let class = &self.classes[member.class as usize];
            lent[class.tenant as usize] += beyond(member, class).1;
        }
        for (branch, lent) in self.tenants.iter().zip(lent.iter_mut()) {
            *lent = part(branch.pool.spare(horizon), *lent);
        }
        let all: f64 = members
            .iter()
            .filter(|member| !member.wants.hungry)
            .map(|member| {
                let class = &self.classes[member.class as usize];
                beyond(member, class).1 * lent[class.tenant as usize]
            })
            .sum();
        let link = part(self.link.spare(horizon), all);
        for member in members {
            let class = &self.classes[member.class as usize];
            member.limit = match member.wants.hungry {
                true => member.share,
                false => {
                    let (floor, more) = beyond(member, class);
                    Rate::from_bytes_per_sec(floor + more * lent[class.tenant as usize] * link)
                }
            };
        }
    }
}

/// `of` as part of `whole`, where there is any.
fn ratio(of: f64, whole: f64) -> f64 {
    if whole > 0.0 { of / whole } else { 0.0 }
}

/// The part of `wanted` that `there_is` makes up.
fn part(there_is: f64, wanted: f64) -> f64 {
    if wanted > there_is { there_is / wanted } else { 1.0 }
}

/// What is allocated once and used at every tick.
#[derive(Clone, Debug, Default)]
struct Scratch {
    claims: Vec<Claim>,
    order: Vec<u32>,
    places: Vec<u32>,
    lent: Vec<f64>,
}

/// A weight has to be more than nothing.
pub(crate) const LEAST_WEIGHT: f64 = 1e-9;
