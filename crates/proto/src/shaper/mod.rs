//! Rate control of many connections at their host (the aggregates paper, § 2 to § 4, § 6).
//!
//! A **policy** is a [profile](Profile) and what is done to traffic that doesn't keep it; the
//! connections under it are an **aggregate** that shares one token bucket. Shaping happens at the
//! transport's output, not in a queue: a connection is asked what it would send, and sends it when
//! its turn comes. So its segments are stamped and its windows used when they really leave.
//!
//! An engine calls, for each connection under a policy that shapes,
//!
//! - [`want`](Shaper::want) when it has a packet to send, [`withdraw`](Shaper::withdraw) when it no
//!   longer has,
//! - then [`next`](Shaper::next) until nobody's turn has come, each time [`grant`](Shaper::grant)
//!   and sending one packet.
//!
//! [`Gates`] do so for a whole engine, which only tells them who has something to send.
//!
//! Whatever makes the engine do so is a trigger (§ 6.3): an acknowledgement on the connection or
//! another one, a write of the application, a new connection. Where there is none in time, there is
//! one coarse timer for all policies ([`poll_timeout`](Shaper::poll_timeout)). Connections under a
//! policy that marks or drops only ask [`police`](Shaper::police).

mod audit;
mod gates;
mod line;

use tollway_law::Time;
use tollway_law::aggregate::{Aggregate, Scheme, Seat};
use tollway_law::bucket::{Profile, Refusal};

use audit::Audit;
pub use gates::{Gates, OPEN, Senders};

/// What a policy does to the traffic of its connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PolicyConfig {
    /// What they keep to, together.
    pub profile: Profile,
    /// How they share it.
    pub scheme: Scheme,
    /// Whose turn it is.
    pub order: Order,
    /// What is done to a packet that doesn't conform.
    pub action: Action,
    /// How their windows grow.
    pub increase: Increase,
}

/// Who of those that wait goes first (§ 4.2.2). Each turn is one packet, but for
/// [`Order::Sequential`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Who came under the policy first, as long as it has something to send.
    Sequential,
    /// Who has waited longest.
    Fcfs,
    /// Whose last packet is longest ago.
    Lru,
}

/// What is done to a packet that doesn't conform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It waits.
    Shape,
    /// It goes unmarked; those that conform are marked.
    Mark,
    /// It is dropped.
    Drop,
}

/// How the windows of connections under a policy grow, a round trip (§ 5).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Increase {
    /// As their law has it.
    Standard,
    /// By g = rtt²/rtt_av²: all grow as fast, together as fast as so many connections of the mean
    /// round trip.
    AggregateFair,
    /// By `k` segments if the round trip is `long` or more, else by 1.
    ByK {
        /// Segments a round trip.
        k: f64,
        /// From this round trip on.
        long: Time,
    },
}

/// What makes a packet leave that nothing else lets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// One timer of this period for all; it runs while somebody waits.
    Coarse(Time),
    /// Each connection that waits has a timer of its own, set to when its packet conforms.
    PerFlow,
}

/// A policy of a shaper, in the order they were installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyId(pub u32);

/// A connection, or another source of packets, of a shaper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberId(pub u32);

/// A kind of connection: what no policy's filter tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassId(pub u32);

/// What a policy has done.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PolicyStats {
    /// Packets and bytes that conformed.
    pub packets: u64,
    /// The same in bytes on the wire.
    pub bytes: u64,
    /// Bytes that went without conforming.
    pub excess_bytes: u64,
    /// Packets dropped: for not conforming, or because too many waited.
    pub dropped: u64,
    /// Packets that were larger than any that conforms; each of them was dropped.
    pub too_large: u64,
    /// Most connections at once.
    pub members: u64,
    /// The worst burst: the most that conformed in any span t beyond r·t, bytes; B at most.
    pub burst: f64,
    /// The highest rate at which two packets followed each other, bytes/s; p at most. 0 if there is
    /// no peak to keep.
    pub peak: f64,
}

/// The host's side of its connections.
#[derive(Debug)]
pub struct Shaper {
    timer: Timer,
    policies: Vec<Policy>,
    /// By class, the policy it is under.
    classes: Vec<Option<PolicyId>>,
    members: Vec<ShapedFlow>,
    free: Vec<u32>,
    /// Members that wait although no policy shapes them any more.
    loose: Vec<u32>,
    /// When the coarse timer expires.
    tick_at: Time,
    timer_events: u64,
    /// Turns given so far, and times that somebody began to wait.
    tickets: u64,
}

#[derive(Debug)]
struct Policy {
    config: PolicyConfig,
    aggregate: Aggregate,
    /// Its members, in the order they came.
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
    /// Size of the packet that waits; 0 if none does.
    wants: u16,
    /// When it began to wait, and when it had its last turn, in tickets.
    since: u64,
    served: u64,
    /// Least and smoothed round trip.
    rtt: (Time, Time),
    /// Its own timer.
    timer_at: Time,
    /// Packets of a source that can't be asked for one later.
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

    /// A policy more; its bucket is full. No class is under it yet.
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

    /// From now on connections of `class` are under `policy`, those that are open as well (§ 6.1).
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

    /// A connection opens.
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

    /// A connection is gone.
    pub fn exit(&mut self, now: Time, member: MemberId) {
        self.withdraw(member);
        self.unseat(now, member.0);
        self.members[member.0 as usize].present = false;
        self.free.push(member.0);
    }

    /// What is done to packets of a connection that don't conform; `None` if no policy is for it.
    pub fn action(&self, member: MemberId) -> Option<Action> {
        let (policy, _) = self.members[member.0 as usize].place?;
        Some(self.policies[policy.0 as usize].config.action)
    }

    /// The connection's least and smoothed round trips.
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

    /// Segments by which the connection's window is to grow a round trip; `None` leaves that to its
    /// law.
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

    /// A packet of `size` bytes is about to leave under a policy that marks or drops; answers
    /// whether it conforms.
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

    /// When [`handle_timeout`](Shaper::handle_timeout) is due; to be asked after
    /// [`next`](Shaper::next) has answered `None`.
    pub fn poll_timeout(&self) -> Time {
        match self.timer {
            Timer::Coarse(_) => self.tick_at,
            Timer::PerFlow => self.members.iter().map(|member| member.timer_at).min().unwrap_or(Time::NEVER),
        }
    }

    /// The time that [`poll_timeout`](Shaper::poll_timeout) answered has come;
    /// [`next`](Shaper::next) says what follows.
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

    /// Timers that expired so far.
    pub fn timer_events(&self) -> u64 {
        self.timer_events
    }

    /// What a policy has done so far.
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
    /// A packet that conforms leaves.
    fn conformed(&mut self, now: Time, size: u16) {
        self.stats.packets += 1;
        self.stats.bytes += u64::from(size);
        self.audit.on_packet(now, size);
    }
}

#[cfg(test)]
mod tests;
