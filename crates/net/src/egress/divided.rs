//! Who of the writers may write how much, and when; time is given.

use std::collections::BTreeMap;

use tollway_law::shares::{Contract, Demand, LimitedBy, Member, Partition, Sample, Shares, Tenant};
use tollway_law::{Rate, Time};

/// The writers and what is divided among them. Nobody calls it but writers: who wants to write when a tick is over divides anew.
#[derive(Debug)]
pub(super) struct Divided {
    shares: Shares,
    classes: u32,
    writers: BTreeMap<u64, Writer>,
    next: u64,
    last: Time,
    /// Somebody has joined or left since.
    stale: bool,
    members: Vec<Member>,
}

#[derive(Debug)]
struct Writer {
    class: u32,
    weight: f64,
    demand: Demand,
    limit: Rate,
    /// Bytes that it may write, as of `filled`.
    tokens: f64,
    filled: Time,
    /// Since the last tick: bytes, whether it had to wait for its share, and for how long for what it writes to.
    sent: u64,
    waited: bool,
    /// Until when it waits for its share: ticks may be shorter than that.
    waits: Time,
    held: Time,
    /// It waits for what it writes to.
    held_since: Option<Time>,
    /// When it was counted last; none before the first time.
    counted: Option<Time>,
}

/// What a writer may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum May {
    /// Write so many bytes.
    Write(usize),
    /// Ask again then.
    Wait(Time),
}

impl Divided {
    pub(super) fn new(link: Contract, tenants: &[Tenant]) -> Divided {
        let classes = tenants.iter().map(|tenant| tenant.classes.len() as u32).sum();
        Divided {
            shares: Shares::new(Time::ZERO, link, tenants),
            classes,
            writers: BTreeMap::new(),
            next: 0,
            last: Time::ZERO,
            stale: false,
            members: Vec::new(),
        }
    }

    /// A new writer's number.
    pub(super) fn join(&mut self, class: u32, weight: f64) -> u64 {
        assert!(class < self.classes, "there are {} classes, and no class {class}", self.classes);
        // It would be everybody's.
        assert!(weight.is_finite(), "{weight} is no weight");
        let number = self.next;
        self.next += 1;
        let writer = Writer {
            class,
            weight,
            demand: Demand::new(),
            limit: Rate::ZERO,
            tokens: 0.0,
            filled: self.last,
            sent: 0,
            waited: false,
            waits: Time::ZERO,
            held: Time::ZERO,
            held_since: None,
            counted: None,
        };
        self.writers.insert(number, writer);
        number
    }

    pub(super) fn leave(&mut self, number: u64) {
        self.writers.remove(&number);
        self.stale = true;
    }

    /// Whether the writer may write, who wants to write `len` bytes.
    pub(super) fn ask(&mut self, number: u64, now: Time, len: usize) -> May {
        let writer = self.writer(number);
        if writer.counted.is_none() {
            // It wants its part from now on, not from the next tick on.
            writer.waited = true;
            writer.filled = now;
            self.stale = true;
        }
        if self.stale || now.saturating_sub(self.last) >= TICK {
            self.divide(now);
        }
        let tick_ends = self.last + TICK;
        let writer = self.writer(number);
        writer.fill(now);
        if let Some(since) = writer.held_since.take() {
            writer.held += now.saturating_sub(since);
        }
        let least = len.min(QUANTUM) as f64;
        if writer.tokens >= least {
            writer.waits = Time::ZERO;
            return May::Write(len.min(writer.tokens as usize));
        }
        writer.waited = true;
        let until = now + writer.limit.time_for((least - writer.tokens) as u64 + 1).min(TICK);
        // Its share may be another by then.
        writer.waits = until.min(tick_ends).max(now + Time::from_micros(1));
        May::Wait(writer.waits)
    }

    /// It has written.
    pub(super) fn wrote(&mut self, number: u64, now: Time, len: usize) {
        let writer = self.writer(number);
        writer.fill(now);
        writer.tokens -= len as f64;
        writer.sent += len as u64;
    }

    /// What it writes to takes nothing now.
    pub(super) fn held(&mut self, number: u64, now: Time) {
        self.writer(number).held_since.get_or_insert(now);
    }

    pub(super) fn limit(&self, number: u64) -> Rate {
        self.writers.get(&number).map_or(Rate::ZERO, |writer| writer.limit)
    }

    pub(super) fn limited_by(&self, number: u64) -> LimitedBy {
        self.writers.get(&number).map_or(LimitedBy::Nothing, |writer| writer.demand.limited_by())
    }

    /// A tick: what each did, and what each may do until the next.
    fn divide(&mut self, now: Time) {
        self.members.clear();
        for writer in self.writers.values_mut() {
            writer.fill(now);
            let member = writer.count(now);
            self.members.push(member);
        }
        self.shares.divide(now, TICK, &mut self.members);
        for (writer, member) in self.writers.values_mut().zip(&self.members) {
            writer.limit = member.limit;
        }
        self.last = now;
        self.stale = false;
    }

    fn writer(&mut self, number: u64) -> &mut Writer {
        self.writers.get_mut(&number).expect("a writer leaves when it is dropped, and asks before")
    }
}

impl Writer {
    /// Takes what has come since; no more than two ticks' worth is kept.
    fn fill(&mut self, now: Time) {
        let most = self.limit.bytes_in(TICK * 2).max(QUANTUM as f64);
        self.tokens = (self.tokens + self.limit.bytes_in(now.saturating_sub(self.filled))).min(most);
        self.filled = now;
    }

    /// What it did since it was counted last.
    fn count(&mut self, now: Time) -> Member {
        let span = self.counted.map_or(Time::ZERO, |counted| now.saturating_sub(counted));
        self.counted = Some(now);
        if let Some(since) = &mut self.held_since {
            self.held += now.saturating_sub(*since);
            *since = now;
        }
        let any = Rate::from_bytes_per_sec(f64::MAX);
        let wants = self.demand.observe(&Sample {
            span,
            sent: self.sent,
            by_receiver: self.held,
            backlog: self.waited || now < self.waits,
            window_open: true,
            own: any,
            limit: if span > Time::ZERO { self.limit } else { any },
            rtt: Time::ZERO,
            echo: Time::ZERO,
        });
        let sent = std::mem::take(&mut self.sent);
        (self.waited, self.held) = (false, Time::ZERO);
        Member {
            class: self.class,
            weight: self.weight,
            sent,
            burst: 0,
            wants,
            partition: Partition::default(),
            share: Rate::ZERO,
            limit: Rate::ZERO,
        }
    }
}

/// How often shares are looked at.
const TICK: Time = Time::from_millis(15);
/// A writer waits until it may write so much, or all that it has.
const QUANTUM: usize = 1400;
