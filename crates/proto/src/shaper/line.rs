//! The waiting members of a shaper, and the order in which they are served.

use tollway_law::Time;
use tollway_law::bucket::Refusal;

use super::{Action, MemberId, Order, Shaper, Timer};

impl Shaper {
    /// Registers that a connection has a packet of `size` bytes to send.
    pub fn want(&mut self, now: Time, member: MemberId, size: u16) {
        let id = member.0;
        let member = &mut self.members[id as usize];
        let waited = member.wants > 0;
        member.wants = size.max(1);
        if waited {
            return;
        }
        self.tickets += 1;
        member.since = self.tickets;
        match member.place {
            Some((policy, seat)) if self.policies[policy.0 as usize].config.action == Action::Shape => {
                let policy = &mut self.policies[policy.0 as usize];
                policy.waiting += 1;
                if let Err(Refusal::TooLarge { .. }) = policy.aggregate.conforms(now, seat, u32::from(size)) {
                    policy.stats.too_large += 1;
                }
            }
            _ => self.loose.push(id),
        }
    }

    /// Withdraws a connection that has nothing to send, or may not send.
    pub fn withdraw(&mut self, member: MemberId) {
        let id = member.0;
        let member = &mut self.members[id as usize];
        if member.wants == 0 {
            return;
        }
        member.wants = 0;
        member.timer_at = Time::NEVER;
        match member.place {
            Some((policy, _)) if self.policies[policy.0 as usize].config.action == Action::Shape => {
                self.policies[policy.0 as usize].waiting -= 1;
            }
            _ => self.loose.retain(|&other| other != id),
        }
    }

    /// Queues a packet of a source that cannot be polled later. Returns true if it waits, with at
    /// most `most` waiting.
    pub fn enqueue(&mut self, now: Time, member: MemberId, size: u16, most: u32) -> bool {
        let entry = &mut self.members[member.0 as usize];
        let too_large = entry.place.is_some_and(|(policy, _)| {
            u32::from(size) > self.policies[policy.0 as usize].config.profile.largest()
        });
        if entry.queued >= most || too_large {
            if let Some((policy, _)) = entry.place {
                let stats = &mut self.policies[policy.0 as usize].stats;
                stats.dropped += 1;
                stats.too_large += u64::from(too_large);
            }
            return false;
        }
        entry.queued += 1;
        self.want(now, member, size);
        true
    }

    /// Removes a packet [queued](Shaper::enqueue) that has left. Returns true if another waits.
    pub fn dequeue(&mut self, member: MemberId) -> bool {
        let entry = &mut self.members[member.0 as usize];
        entry.queued = entry.queued.saturating_sub(1);
        entry.queued > 0
    }

    /// The member that is due to send one packet: poll its present packet, and
    /// [grant](Shaper::grant) that. `None` if all must wait.
    pub fn next(&mut self, now: Time) -> Option<MemberId> {
        if let Some(&id) = self.loose.first() {
            return Some(MemberId(id));
        }
        for policy in 0..self.policies.len() {
            if self.policies[policy].waiting > 0
                && let Some(id) = self.first_of(now, policy)
            {
                return Some(MemberId(id));
            }
        }
        self.set_timer(now);
        None
    }

    /// Grants a packet of `size` bytes to a connection that is due. Returns true if it may leave.
    pub fn grant(&mut self, now: Time, member: MemberId, size: u16) -> bool {
        let entry = &mut self.members[member.0 as usize];
        let Some((policy, seat)) = entry.place else {
            self.withdraw(member);
            return true;
        };
        let policy = &mut self.policies[policy.0 as usize];
        entry.wants = size.max(1);
        if policy.aggregate.take(now, seat, u32::from(size)).is_err() {
            return false;
        }
        policy.conformed(now, size);
        self.tickets += 1;
        entry.since = self.tickets;
        entry.served = self.tickets;
        entry.timer_at = Time::NEVER;
        true
    }

    /// The first in a policy's queue whose packet conforms. With partitions, logical or not, the
    /// first whose own tokens suffice.
    fn first_of(&mut self, now: Time, policy: usize) -> Option<u32> {
        let policy = &mut self.policies[policy];
        let order = policy.config.order;
        let common = policy.aggregate.is_common();
        let mut first: Option<(u64, u32)> = None;
        for (place, &id) in policy.members.iter().enumerate() {
            let member = &self.members[id as usize];
            if member.wants == 0 {
                continue;
            }
            let key = match order {
                Order::Sequential => place as u64,
                Order::Fcfs => member.since,
                Order::Lru => member.served,
            };
            if first.is_some_and(|(least, _)| least <= key) {
                continue;
            }
            let Some((_, seat)) = member.place else { continue };
            if common || policy.aggregate.conforms(now, seat, u32::from(member.wants)).is_ok() {
                first = Some((key, id));
            }
        }
        let (_, id) = first?;
        let member = &self.members[id as usize];
        let (_, seat) = member.place?;
        policy.aggregate.conforms(now, seat, u32::from(member.wants)).ok().map(|()| id)
    }

    /// Sets the timer for the next attempt, after no packet can leave now.
    fn set_timer(&mut self, now: Time) {
        let period = match self.timer {
            Timer::Coarse(period) => period,
            Timer::PerFlow => return self.set_timers(now),
        };
        let waits = self.policies.iter().any(|policy| policy.waiting > 0);
        // The host's clock ticks for all members alike, independent of the start of their waits.
        let ticks = now.0 / period.0.max(1) + 1;
        self.tick_at = if waits { Time(ticks.saturating_mul(period.0)) } else { Time::NEVER };
    }

    fn set_timers(&mut self, now: Time) {
        for policy in self.policies.iter_mut().filter(|policy| policy.waiting > 0) {
            for &id in &policy.members {
                let member = &mut self.members[id as usize];
                let Some((_, seat)) = member.place else { continue };
                if member.wants == 0 || member.timer_at != Time::NEVER {
                    continue;
                }
                if let Err(Refusal::Until(then)) =
                    policy.aggregate.conforms(now, seat, u32::from(member.wants))
                {
                    member.timer_at = then;
                }
            }
        }
    }
}
