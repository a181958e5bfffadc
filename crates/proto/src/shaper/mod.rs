//! Rate control of many connections at their host (the aggregates paper, § 2 to § 4, § 6).
//!
//! A **policy** is a [profile](Profile) and an action on traffic that does not conform. The
//! connections under it are an **aggregate** that shares one token bucket. Shaping acts on the
//! transport's output, not on a queue: a connection is polled for its next packet, and sends it
//! when it is due. So segments are stamped, and windows used, at the actual departure.
//!
//! For each connection under a policy that shapes, an engine calls
//!
//! - [`want`](Shaper::want) when it has a packet to send, [`withdraw`](Shaper::withdraw) when it no
//!   longer has one,
//! - then [`next`](Shaper::next) until no connection is due, each time with
//!   [`grant`](Shaper::grant) and one packet.
//!
//! [`ShapedSenders`] makes these calls for a whole engine, which only reports senders with data.
//! [`Tenants`] makes them for a network element, whose members are the packets that pass.
//!
//! Every event that leads to these calls is a trigger (§ 6.3): an acknowledgement on any
//! connection, a write of the application, a new connection. If there is none in time, one coarse
//! timer serves all policies ([`poll_timeout`](Shaper::poll_timeout)). Connections under a policy
//! that marks or drops only call [`police`](Shaper::police).

mod audit;
mod line;
mod senders;
mod tenants;

use tollway_law::Time;
use tollway_law::aggregate::{Aggregate, Scheme, Seat};
use tollway_law::bucket::{Profile, Refusal};

use audit::Audit;
pub use senders::{Senders, ShapedSenders, UNSHAPED};
pub use tenants::{TenantConfig, TenantFate, TenantStats, Tenants};

/// The configuration of a policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PolicyConfig {
    /// The profile of its connections together.
    pub profile: Profile,
    /// The rule that shares it.
    pub scheme: Scheme,
    /// The order of service.
    pub order: Order,
    /// The action on a packet that does not conform.
    pub action: Action,
    /// The growth of its connections' windows.
    pub increase: Increase,
}

/// The order of service among waiting connections (§ 4.2.2). Each turn is one packet, except for
/// [`Order::Sequential`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// In order of admission to the policy; a connection is served until it has no more to send.
    Sequential,
    /// The longest wait first.
    Fcfs,
    /// The connection whose last packet is longest ago first.
    Lru,
}

/// The action on a packet that does not conform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The packet waits.
    Shape,
    /// The packet leaves unmarked; conforming packets are marked.
    Mark,
    /// The packet is dropped.
    Drop,
}

/// Window growth per round trip of connections under a policy (§ 5).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Increase {
    /// The growth of their law.
    Standard,
    /// By g = rtt²/rtt_av²: equal growth for all, in total that of the same number of connections
    /// with the mean round trip.
    AggregateFair,
    /// By `k` segments if the round trip is `long` or more, else by 1.
    ByK {
        /// Segments per round trip.
        k: f64,
        /// The shortest round trip that counts as long.
        long: Time,
    },
}

/// The timer for packets that no other event releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// One timer with this period for all; it runs while any connection waits.
    Coarse(Time),
    /// A separate timer for each waiting connection, set to the instant at which its packet
    /// conforms.
    PerFlow,
}

/// A policy of a shaper, numbered in order of installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyId(pub u32);

/// A connection, or another source of packets, of a shaper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberId(pub u32);

/// A class of connections that no policy's filter distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassId(pub u32);

/// The counters of a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PolicyStats {
    /// Packets that conformed.
    pub packets: u64,
    /// Bytes on the wire that conformed.
    pub bytes: u64,
    /// Bytes that left without conforming.
    pub excess_bytes: u64,
    /// Packets dropped, for not conforming or for a full queue.
    pub dropped: u64,
    /// Packets larger than any that can conform; each was dropped.
    pub too_large: u64,
    /// Greatest number of simultaneous connections.
    pub members: u64,
    /// The worst burst: the maximum of conforming bytes in any span t beyond r·t; at most B.
    pub burst: f64,
    /// The highest rate between two consecutive packets, bytes/s; at most p. 0 without a peak rate.
    pub peak: f64,
}

/// The shaper of one host.
#[derive(Debug)]
pub struct Shaper {
    timer: Timer,
    policies: Vec<Policy>,
    /// The policy of each class.
    classes: Vec<Option<PolicyId>>,
    members: Vec<ShapedFlow>,
    free: Vec<u32>,
    /// Members that wait although their policy no longer shapes them.
    loose: Vec<u32>,
    /// Expiry of the coarse timer.
    tick_at: Time,
    timer_events: u64,
    /// Number of turns, and of waits begun, so far.
    tickets: u64,
}

#[derive(Debug)]
struct Policy {
    config: PolicyConfig,
    aggregate: Aggregate,
    /// Its members, in order of admission.
    members: Vec<u32>,
    waiting: u32,
    audit: Audit,
    stats: PolicyStats,
}

#[derive(Clone, Copy, Debug)]
struct ShapedFlow {
    class: ClassId,
    present: bool,
    place: Option<(PolicyId, Seat)>,
    /// Size of the waiting packet; 0 if none waits.
    wants: u16,
    /// The start of its wait, and its last turn, in tickets.
    since: u64,
    served: u64,
    /// Least and smoothed round trip.
    rtt: (Time, Time),
    /// Expiry of its own timer.
    timer_at: Time,
    /// Queued packets of a source that cannot be polled later.
    queued: u32,
}

impl Shaper {
    /// A shaper without policies.
    pub fn new(timer: Timer) -> Shaper {
        Shaper {
            timer,
            policies: Vec::new(),
            classes: Vec::new(),
            members: Vec::new(),
            free: Vec::new(),
            loose: Vec::new(),
            tick_at: Time::NEVER,
            timer_events: 0,
            tickets: 0,
        }
    }

    /// Adds a policy with a full bucket. No class is under it yet.
    pub fn install(&mut self, now: Time, config: PolicyConfig) -> PolicyId {
        self.policies.push(Policy {
            config,
            aggregate: Aggregate::new(now, config.profile, config.scheme),
            members: Vec::new(),
            waiting: 0,
            audit: Audit::new(now, &config.profile),
            stats: PolicyStats::default(),
        });
        PolicyId(self.policies.len() as u32 - 1)
    }

    /// Puts connections of `class` under `policy` from now on, including open ones (§ 6.1).
    pub fn classify(&mut self, now: Time, class: ClassId, policy: Option<PolicyId>) {
        let at = class.0 as usize;
        if self.classes.len() <= at {
            self.classes.resize(at + 1, None);
        }
        if self.classes[at] == policy {
            return;
        }
        self.classes[at] = policy;
        for member in 0..self.members.len() as u32 {
            if self.members[member as usize].present && self.members[member as usize].class == class {
                self.unseat(now, member);
                self.seat(now, member);
            }
        }
    }

    /// Adds a connection that opens.
    pub fn enter(&mut self, now: Time, class: ClassId) -> MemberId {
        let fresh = ShapedFlow {
            class,
            present: true,
            place: None,
            wants: 0,
            since: 0,
            served: 0,
            rtt: (Time::ZERO, Time::ZERO),
            timer_at: Time::NEVER,
            queued: 0,
        };
        let member = match self.free.pop() {
            Some(member) => {
                self.members[member as usize] = fresh;
                member
            }
            None => {
                self.members.push(fresh);
                self.members.len() as u32 - 1
            }
        };
        self.seat(now, member);
        MemberId(member)
    }

    /// Removes a connection.
    pub fn exit(&mut self, now: Time, member: MemberId) {
        self.withdraw(member);
        self.unseat(now, member.0);
        self.members[member.0 as usize].present = false;
        self.free.push(member.0);
    }

    /// The action on packets of a connection that do not conform; `None` without a policy.
    pub fn action(&self, member: MemberId) -> Option<Action> {
        let (policy, _) = self.members[member.0 as usize].place?;
        Some(self.policies[policy.0 as usize].config.action)
    }

    /// Sets the connection's least and smoothed round trips.
    pub fn set_rtt(&mut self, member: MemberId, rtt: (Time, Time)) {
        let member = &mut self.members[member.0 as usize];
        if member.rtt == rtt {
            return;
        }
        member.rtt = rtt;
        if let Some((policy, seat)) = member.place {
            self.policies[policy.0 as usize].aggregate.set_rtt(seat, rtt.0, rtt.1);
        }
    }

    /// Window growth of the connection, in segments per round trip; `None` leaves it to its law.
    pub fn increase(&self, member: MemberId) -> Option<f64> {
        let member = &self.members[member.0 as usize];
        let (policy, seat) = member.place?;
        let policy = &self.policies[policy.0 as usize];
        match policy.config.increase {
            Increase::Standard => None,
            Increase::AggregateFair => Some(policy.aggregate.growth(seat)),
            Increase::ByK { k, long } => Some(if member.rtt.1 >= long { k } else { 1.0 }),
        }
    }

    /// Checks a packet of `size` bytes that is about to leave under a policy that marks or drops.
    /// Returns true if it conforms.
    pub fn police(&mut self, now: Time, member: MemberId, size: u16) -> bool {
        let Some((policy, seat)) = self.members[member.0 as usize].place else { return true };
        let policy = &mut self.policies[policy.0 as usize];
        let taken = policy.aggregate.take(now, seat, u32::from(size));
        policy.stats.too_large += u64::from(matches!(taken, Err(Refusal::TooLarge { .. })));
        match (taken, policy.config.action) {
            (Ok(()), _) => policy.conformed(now, size),
            (Err(_), Action::Mark) => policy.stats.excess_bytes += u64::from(size),
            (Err(_), _) => policy.stats.dropped += 1,
        }
        taken.is_ok()
    }

    /// Divides tokens for which the policies of `pool` have no room over the others of them, in
    /// proportion to their rates, until all are given or all are full. Together they keep to the
    /// sums of their rates and of their depths.
    pub fn lend(&mut self, now: Time, pool: &[PolicyId]) {
        let all = &mut self.policies;
        let ran_over = pool.iter().map(|id| all[id.0 as usize].aggregate.overflow(now));
        let mut spare = ran_over.fold(0, u64::saturating_add);
        let mut open: Vec<PolicyId> = pool.to_vec();
        while spare > 0 && !open.is_empty() {
            let rate = |policy: &Policy| u128::from(policy.config.profile.rate.bytes_per_sec() as u64).max(1);
            let sum: u128 = open.iter().map(|id| rate(&all[id.0 as usize])).sum();
            let (given, mut rest) = (spare, 0);
            open.retain(|id| {
                let policy = &mut all[id.0 as usize];
                let part = (u128::from(given) * rate(policy) / sum) as u64;
                let over = policy.aggregate.pour(part);
                rest += over;
                over == 0
            });
            spare = rest;
        }
    }

    /// The time of the next [`handle_timeout`](Shaper::handle_timeout). Call it after
    /// [`next`](Shaper::next) has returned `None`.
    pub fn poll_timeout(&self) -> Time {
        match self.timer {
            Timer::Coarse(_) => self.tick_at,
            Timer::PerFlow => self.members.iter().map(|member| member.timer_at).min().unwrap_or(Time::NEVER),
        }
    }

    /// Handles the time that [`poll_timeout`](Shaper::poll_timeout) returned; call
    /// [`next`](Shaper::next) after it.
    pub fn handle_timeout(&mut self, now: Time) {
        match self.timer {
            Timer::Coarse(_) => self.timer_events += u64::from(self.tick_at <= now),
            Timer::PerFlow => {
                for member in self.members.iter_mut().filter(|member| member.timer_at <= now) {
                    member.timer_at = Time::NEVER;
                    self.timer_events += 1;
                }
            }
        }
    }

    /// Number of timer expiries so far.
    pub fn timer_events(&self) -> u64 {
        self.timer_events
    }

    /// The counters of a policy.
    pub fn stats(&self, policy: PolicyId) -> PolicyStats {
        let policy = &self.policies[policy.0 as usize];
        PolicyStats { burst: policy.audit.burst(), peak: policy.audit.peak(), ..policy.stats }
    }

    /// The policy that a connection is under.
    pub fn policy(&self, member: MemberId) -> Option<PolicyId> {
        self.members[member.0 as usize].place.map(|(policy, _)| policy)
    }

    fn seat(&mut self, now: Time, id: u32) {
        let member = &mut self.members[id as usize];
        let policy = self.classes.get(member.class.0 as usize).copied().flatten();
        let Some(policy) = policy else {
            if member.wants > 0 {
                self.loose.push(id);
            }
            return;
        };
        let entry = &mut self.policies[policy.0 as usize];
        let seat = entry.aggregate.join(now);
        entry.aggregate.set_rtt(seat, member.rtt.0, member.rtt.1);
        entry.members.push(id);
        entry.stats.members = entry.stats.members.max(entry.aggregate.members());
        member.place = Some((policy, seat));
        if member.wants == 0 {
            return;
        }
        match entry.config.action {
            Action::Shape => entry.waiting += 1,
            Action::Mark | Action::Drop => self.loose.push(id),
        }
    }

    fn unseat(&mut self, now: Time, id: u32) {
        let member = &mut self.members[id as usize];
        let Some((policy, seat)) = member.place.take() else { return };
        let entry = &mut self.policies[policy.0 as usize];
        entry.aggregate.leave(now, seat);
        entry.members.retain(|&other| other != id);
        if member.wants > 0 && entry.config.action == Action::Shape {
            entry.waiting -= 1;
        }
    }
}

impl Policy {
    /// Records the departure of a conforming packet.
    fn conformed(&mut self, now: Time, size: u16) {
        self.stats.packets += 1;
        self.stats.bytes += u64::from(size);
        self.audit.on_packet(now, size);
    }
}

#[cfg(test)]
mod tests;
