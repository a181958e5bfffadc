//! The tenants of a network element: the policies of traffic that passes it.
//!
//! A host asks its transport for the next packet when one is due. Packets of other hosts come by
//! themselves, so each member of a policy has a queue here: a [`Port`] under the link's law.

use tollway_law::link::{AnyLink, LinkLaw};
use tollway_law::{Kind, Time};

use super::{Action, ClassId, MemberId, PolicyConfig, PolicyId, PolicyStats, Shaper, Timer};
use crate::link::Store;
use crate::port::Offered;
use crate::{Flags, Port};

/// A tenant: its policy, and the queue that each of its members gets.
#[derive(Clone, Debug)]
pub struct TenantConfig {
    /// The policy.
    pub policy: PolicyConfig,
    /// An empty queue with its law.
    pub queue: Port<AnyLink, u32>,
    /// Packets of all members that may wait together.
    pub room: u32,
    /// True to lend unused tokens to the other tenants with this property, and to borrow theirs.
    pub borrows: bool,
}

/// The counters of a tenant, and its queues now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TenantStats {
    /// Those of its policy.
    pub policy: PolicyStats,
    /// Packets that its queues dropped.
    pub dropped: u64,
    /// Packets that its queues' law marked.
    pub marked: u64,
    /// Packets that wait, and their bytes.
    pub queued: (u64, u64),
    /// Members now.
    pub members: u64,
    /// Sum of waiting times, and the number of packets.
    pub waited: (Time, u64),
}

/// The fate of an offered packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TenantFate {
    /// It goes on at once; true if it conforms.
    Passes(bool),
    /// It waits for tokens.
    Waits,
    /// It is lost; the caller must free the packet.
    Lost,
}

/// Tenants that share a network element.
///
/// A member is a connection, or a host with all its connections: all packets with the same key. It
/// leaves after three seconds without a packet. With 512 members, new ones share the places of
/// others.
#[derive(Debug)]
pub struct Tenants {
    shaper: Shaper,
    tenants: Vec<Tenant>,
    /// The policies that lend and borrow.
    pool: Vec<PolicyId>,
    /// By number in the shaper.
    members: Vec<Member>,
    sweep_at: Time,
    wake_at: Time,
}

#[derive(Debug)]
struct Tenant {
    config: TenantConfig,
    id: PolicyId,
    /// By slot, the member there.
    slots: Vec<Option<MemberId>>,
    present: u32,
    stats: TenantStats,
}

#[derive(Debug)]
struct Member {
    tenant: usize,
    slot: usize,
    key: u32,
    queue: Port<AnyLink, u32>,
    /// The packet that left the queue and waits for tokens.
    head: Option<u32>,
    last: Time,
    /// The departure of a packet that opens a connection, until the next packet.
    opened: Option<Time>,
    /// Least and smoothed round trip; zero while unknown.
    rtt: (Time, Time),
}

impl Tenants {
    /// Tenants with full buckets and without members.
    pub fn new(now: Time, configs: &[TenantConfig]) -> Tenants {
        let mut shaper = Shaper::new(Timer::PerFlow);
        let tenant = |(config, class): (&TenantConfig, u32)| {
            let id = shaper.install(now, config.policy);
            shaper.classify(now, ClassId(class), Some(id));
            let slots = vec![None; SLOTS];
            Tenant { config: config.clone(), id, slots, present: 0, stats: TenantStats::default() }
        };
        let tenants: Vec<Tenant> = configs.iter().zip(0..).map(tenant).collect();
        let pool = tenants.iter().filter(|tenant| tenant.config.borrows).map(|tenant| tenant.id).collect();
        Tenants { shaper, tenants, pool, members: Vec::new(), sweep_at: now, wake_at: Time::NEVER }
    }

    /// Offers a packet of the tenant's member with this key. `rtt` is a round trip of the member that
    /// has just been measured. [`poll`](Tenants::poll) must follow.
    pub fn offer(
        &mut self,
        now: Time,
        tenant: usize,
        key: u32,
        handle: u32,
        rtt: Option<Time>,
        store: &mut impl Store,
    ) -> TenantFate {
        let id = self.member(now, tenant, key);
        let (member, tenant) = (&mut self.members[id.0 as usize], &mut self.tenants[tenant]);
        member.last = now;
        let packet = store.packet(handle);
        let size = packet.size;
        let handshake = member.handshake(now, packet.flags.has(Flags::SYN));
        if let Some(rtt) = rtt.or(handshake).map(|rtt| member.learn(rtt)) {
            self.shaper.set_rtt(id, rtt);
        }
        let segments = store.segments(handle);
        if tenant.config.policy.action != Action::Shape {
            self.shaper.lend(now, &self.pool);
            let conforms = self.shaper.police(now, id, size);
            let marks = tenant.config.policy.action == Action::Mark;
            let packet = store.packet(handle);
            if marks && conforms && packet.kind() == Kind::Plain {
                packet.mark_in_profile();
            }
            return if conforms || marks { TenantFate::Passes(conforms) } else { TenantFate::Lost };
        }
        if u32::from(size) > tenant.config.policy.profile.largest() {
            tenant.stats.policy.too_large += segments;
            return TenantFate::Lost;
        }
        // A full room is divided equally, so that no member takes another's part.
        let (waiting, own) = (tenant.stats.queued.0, u64::from(member.queue.packets()));
        let room = u64::from(tenant.config.room);
        if waiting >= room && own >= room / u64::from(tenant.present).max(1) {
            tenant.stats.dropped += segments;
            return TenantFate::Lost;
        }
        let stats = &mut tenant.stats;
        let offered = member.queue.enqueue(now, handle, store, |store, lost| stats.lose(lost, store));
        match offered {
            Offered::Full | Offered::Dropped => {
                stats.dropped += segments;
                return TenantFate::Lost;
            }
            Offered::Queued => {}
            Offered::Marked => stats.marked += segments,
        }
        stats.queued.0 += 1;
        stats.queued.1 += u64::from(size);
        if member.head.is_none() {
            member.advance(now, stats, store);
            if let Some(head) = member.head {
                self.shaper.want(now, id, store.packet(head).size);
            }
        }
        TenantFate::Waits
    }

    /// The next packet whose tokens have arrived by `now`, and its tenant. `None` if all that wait
    /// must wait on.
    pub fn poll(&mut self, now: Time, store: &mut impl Store) -> Option<(usize, u32)> {
        if self.wake_at <= now {
            self.shaper.handle_timeout(now);
        }
        self.shaper.lend(now, &self.pool);
        while let Some(id) = self.shaper.next(now) {
            let member = &mut self.members[id.0 as usize];
            let tenant = member.tenant;
            let stats = &mut self.tenants[tenant].stats;
            let Some(head) = member.head else {
                self.shaper.withdraw(id);
                continue;
            };
            let packet = store.packet(head);
            let size = packet.size;
            let waited = packet.entered.waited(now);
            if !self.shaper.grant(now, id, size) {
                break;
            }
            stats.leave(size);
            stats.waited.0 += waited;
            stats.waited.1 += 1;
            member.advance(now, stats, store);
            match member.head {
                Some(next) => self.shaper.want(now, id, store.packet(next).size),
                None => self.shaper.withdraw(id),
            }
            return Some((tenant, head));
        }
        if self.sweep_at <= now {
            self.sweep(now);
        }
        let waits = self.tenants.iter().any(|tenant| tenant.stats.queued.0 > 0);
        // Tokens that run over from others come earlier than its own part of them.
        self.wake_at =
            if waits { self.shaper.poll_timeout().min(now + TICK).max(now + Time(1)) } else { Time::NEVER };
        None
    }

    /// The time of the next [`poll`](Tenants::poll). Valid after one that returned `None`.
    pub fn poll_timeout(&self) -> Time {
        self.wake_at
    }

    /// The packets that wait, member by member.
    pub fn held(&self) -> impl Iterator<Item = u32> + '_ {
        self.members.iter().flat_map(|member| member.head.into_iter().chain(member.queue.queued()))
    }

    /// The counters of each tenant.
    pub fn stats(&self) -> impl Iterator<Item = TenantStats> + '_ {
        self.tenants.iter().map(|tenant| {
            let mut policy = self.shaper.stats(tenant.id);
            policy.too_large += tenant.stats.policy.too_large;
            TenantStats { policy, members: u64::from(tenant.present), ..tenant.stats }
        })
    }

    /// The member of a tenant with this key, which it may share.
    fn member(&mut self, now: Time, tenant: usize, key: u32) -> MemberId {
        let at = key as usize % SLOTS;
        let slots = &self.tenants[tenant].slots;
        let mut free = None;
        for slot in (at..at + WAYS).map(|slot| slot % SLOTS) {
            match slots[slot] {
                Some(id) if self.members[id.0 as usize].key == key => return id,
                None => free = free.or(Some(slot)),
                Some(_) => {}
            }
        }
        let Some(slot) = free else {
            // Every place has a member.
            return slots[at].unwrap_or(MemberId(0));
        };
        let id = self.shaper.enter(now, ClassId(tenant as u32));
        let entry = &mut self.tenants[tenant];
        entry.slots[slot] = Some(id);
        entry.present += 1;
        let queue = entry.config.queue.clone();
        let rtt = (Time::ZERO, Time::ZERO);
        let member = Member { tenant, slot, key, queue, head: None, last: now, opened: None, rtt };
        match self.members.get_mut(id.0 as usize) {
            Some(place) => *place = member,
            None => self.members.push(member),
        }
        id
    }

    /// Removes members without packets.
    fn sweep(&mut self, now: Time) {
        self.sweep_at = now + SWEEP;
        for (at, member) in self.members.iter_mut().enumerate() {
            let id = MemberId(at as u32);
            let place = &mut self.tenants[member.tenant].slots[member.slot];
            if *place == Some(id) && member.head.is_none() && now.saturating_sub(member.last) >= IDLE {
                *place = None;
                self.tenants[member.tenant].present -= 1;
                self.shaper.exit(now, id);
            }
        }
    }
}

impl Member {
    /// The round trip of a handshake that ends with this packet: the span from the packet that opened
    /// the connection to the next one in this direction.
    fn handshake(&mut self, now: Time, opens: bool) -> Option<Time> {
        if opens {
            self.opened = Some(now);
            return None;
        }
        Some(now.saturating_sub(self.opened.take()?))
    }

    /// The least and the smoothed round trip with one more. The law of the queue learns it.
    fn learn(&mut self, rtt: Time) -> (Time, Time) {
        let rtt = rtt.clamp(Time(1), LONGEST_RTT);
        let (least, smoothed) = self.rtt;
        self.rtt = match least {
            Time::ZERO => (rtt, rtt),
            _ => (least.min(rtt), Time(smoothed.0 - smoothed.0 / 8 + rtt.0 / 8)),
        };
        self.queue.law.set_round_trip(self.rtt.1);
        self.rtt
    }

    /// Takes the next packet out of the queue, if there is one.
    fn advance(&mut self, now: Time, stats: &mut TenantStats, store: &mut impl Store) {
        let taken = self.queue.dequeue(now, store, |store, lost| stats.lose(lost, store));
        self.head = taken.map(|(handle, marked)| {
            stats.marked += if marked { store.segments(handle) } else { 0 };
            handle
        });
    }
}

impl TenantStats {
    /// Counts and frees a packet that a queue dropped.
    fn lose<S: Store>(&mut self, handle: u32, store: &mut S) {
        self.dropped += store.segments(handle);
        self.leave(store.packet(handle).size);
        store.lose(handle);
    }

    fn leave(&mut self, size: u16) {
        self.queued.0 -= 1;
        self.queued.1 -= u64::from(size);
    }
}

/// Most members of a tenant, and the places where one of a given key may be.
const SLOTS: usize = 512;
const WAYS: usize = 8;
/// Time without a packet after which a member leaves, and the interval of looks at that.
const IDLE: Time = Time::from_secs(3);
const SWEEP: Time = Time::from_secs(1);
/// Longest round trip that is believed.
const LONGEST_RTT: Time = Time::from_secs(1);
/// Interval of looks at waiting packets.
const TICK: Time = Time::from_millis(1);
