//! The agent: at each tick it lists all connections, divides the rate, and sets the paces that have
//! changed.

use std::collections::HashMap;
use std::io;

use tollway_law::shares::{Demand, PacedConnection, Partition, Sample, Shares, Wants};
use tollway_law::{Rate, Time};
use tracing::{debug, trace};

use super::cgroup::Cgroups;
use super::status::{Connection, NOT_CONTAINED, State, Tenant};
use super::{ByNumber, Concern, Counts, Hold, Kernel, LEAST_BURST, Regime, Seen, Traffic, joined};

/// The agent that lists connections and sets their paces.
#[derive(Debug)]
pub struct Agent {
    kernel: Box<dyn Kernel>,
    regime: Regime,
    shares: Shares,
    /// By class: the index of its tenant, and of the class there.
    owners: Vec<(u32, u32)>,
    open: ByNumber<u64, Open>,
    cgroups: Cgroups,
    /// Number of ticks. A connection that was not seen at the last one has closed.
    round: u64,
    last: Time,
    seen: Vec<Seen>,
    paced: Vec<PacedConnection>,
    /// For each of `paced`: the index of its connection in `seen`.
    places: Vec<u32>,
    /// Indexes in `seen` of connections that are still paced but match no tenant any more.
    leaving: Vec<u32>,
    /// The kernel has installed `regime`.
    installed: bool,
    /// By tenant: packets outside the known connections.
    rests: Vec<Rest>,
    counts: Counts,
    /// Packets of a kind that is new to the policies, and of no tenant.
    unknown: Meter,
    others: Meter,
}

/// The rate of a number that only grows, over the last second.
#[derive(Clone, Copy, Debug, Default)]
struct Meter {
    from: Option<(Time, u64)>,
    rate: Rate,
}

impl Meter {
    fn read(&mut self, now: Time, bytes: u64) {
        let (since, before) = *self.from.get_or_insert((now, bytes));
        let span = now.saturating_sub(since);
        if span >= Time::from_secs(1) {
            self.rate = Rate::from_bytes_per_sec(bytes.saturating_sub(before) as f64 / span.as_secs_f64());
            self.from = Some((now, bytes));
        }
    }
}

/// A tenant's traffic outside the connections seen: short connections, and other sockets.
#[derive(Clone, Copy, Debug, Default)]
struct Rest {
    /// Counts of all the tenant's packets at the last tick; none before the first.
    before: Option<Traffic>,
    /// Bytes that the tenant's connections have sent since then.
    seen: u64,
    connections: u32,
    demand: Demand,
    limit: Rate,
    /// The tenant's share at the last tick, also under the policies before.
    share: Rate,
    passes: Meter,
    drops: Meter,
}

/// The state of a connection, kept from tick to tick.
#[derive(Clone, Copy, Debug)]
struct Open {
    round: u64,
    /// Number of ticks at which it was seen.
    age: u32,
    class: Option<u32>,
    demand: Demand,
    wants: Wants,
    partition: Partition,
    seen: Seen,
    share: Rate,
    /// Upper bound of its rate, on the wire.
    limit: Rate,
    /// The value of `limit` for which the pace was last set. Small differences set no new pace.
    told: Rate,
    /// The pace that the agent set last, in payload bytes per second.
    set: Option<u64>,
    /// The limit that the connection's own program had set.
    own: Option<u64>,
    /// The agent can't set its pace.
    denied: bool,
}

impl Open {
    /// Records a limit that the program has set since the last tick. Returns true if there was one.
    fn takes_own(&mut self, seen: &Seen) -> bool {
        let by_itself = seen.limit != self.set && seen.limit != self.seen.limit;
        if by_itself {
            self.own = seen.limit;
        }
        by_itself
    }
}

impl Agent {
    /// Creates an agent that has not listed any connection yet.
    pub fn new(now: Time, kernel: Box<dyn Kernel>, regime: Regime) -> Agent {
        let (shares, owners) = shares(now, &regime);
        let rests = vec![Rest::default(); regime.tenants.len()];
        Agent {
            kernel,
            regime,
            shares,
            owners,
            open: ByNumber::default(),
            cgroups: Cgroups::find(),
            round: 0,
            last: now,
            seen: Vec::new(),
            paced: Vec::new(),
            places: Vec::new(),
            leaving: Vec::new(),
            installed: false,
            rests,
            counts: Counts::default(),
            unknown: Meter::default(),
            others: Meter::default(),
        }
    }

    /// The policies in force.
    pub fn regime(&self) -> &Regime {
        &self.regime
    }

    /// The time of the last tick; before the first, the time of creation.
    pub fn last(&self) -> Time {
        self.last
    }

    /// Puts another version of the policies in force at the next tick, for open connections too.
    /// Tenants of the same name keep their buckets, and what is known of their traffic.
    pub fn install(&mut self, now: Time, regime: Regime) {
        let (mut shares, owners) = shares(now, &regime);
        let before: HashMap<&str, usize> =
            self.regime.tenants.iter().zip(0..).map(|(old, at)| (old.name.as_str(), at)).collect();
        let same = |at: usize| before.get(regime.tenants[at].name.as_str()).copied();
        shares.inherit(&self.shares, same);
        self.rests = (0..regime.tenants.len())
            .map(|at| same(at).map_or_else(Rest::default, |old| self.rests[old]))
            .collect();
        debug!(target: "shape", %now, tenants = regime.tenants.len(), version = %regime.version, "policies in force");
        (self.shares, self.owners, self.regime) = (shares, owners, regime);
        self.installed = false;
        for open in self.open.values_mut() {
            open.class = self.regime.rules.class_of(&self.cgroups.identity(&open.seen));
        }
    }

    /// Lists connections, divides the rate and sets paces. `clock` reads the time. `tick` is the
    /// expected time until the next tick.
    ///
    /// # Errors
    /// The kernel can't list connections. A connection that can't be paced is no error;
    /// [`Agent::status`] shows it.
    pub fn tick(&mut self, clock: impl Fn() -> Time, tick: Time) -> io::Result<()> {
        self.seen.clear();
        if !self.installed {
            self.kernel.install(&self.regime)?;
            self.installed = true;
        }
        self.kernel.connections(&mut self.seen)?;
        let now = clock();
        let span = if self.round > 0 { now.saturating_sub(self.last) } else { Time::ZERO };
        self.last = now;
        self.round += 1;
        self.paced.clear();
        self.places.clear();
        self.leaving.clear();
        let mut there = 0;
        for (seen, place) in self.seen.iter().zip(0..) {
            let open = self.open.entry(seen.cookie).or_insert_with(|| Open {
                round: 0,
                age: 0,
                class: self.regime.rules.class_of(&self.cgroups.identity(seen)),
                demand: Demand::new(),
                wants: Wants::default(),
                partition: Partition::default(),
                seen: *seen,
                share: Rate::ZERO,
                limit: Rate::from_bytes_per_sec(f64::MAX),
                told: Rate::from_bytes_per_sec(f64::MAX),
                set: None,
                own: seen.limit,
                denied: false,
            });
            if open.takes_own(seen) {
                self.kernel.owns(seen);
            }
            // Bytes are divided by the time between the two reads of this connection: a long
            // listing may be interrupted.
            let (sent, span) = match open.round > 0 {
                true => {
                    (wire_bytes(&open.seen, seen, self.regime.overhead), seen.at.saturating_sub(open.seen.at))
                }
                false => (0, Time::ZERO),
            };
            let by_receiver = seen.by_receiver.saturating_sub(open.seen.by_receiver);
            if open.seen.stays != seen.stays {
                open.class = self.regime.rules.class_of(&self.cgroups.identity(seen));
            }
            there += usize::from(open.round != self.round);
            open.round = self.round;
            open.age += 1;
            open.seen = *seen;
            let Some(class) = open.class else {
                self.leaving.extend(open.set.map(|_| place));
                continue;
            };
            let rest = &mut self.rests[self.owners[class as usize].0 as usize];
            rest.seen += sent;
            rest.connections += 1;
            open.wants = open.demand.observe(&Sample {
                span,
                sent,
                by_receiver,
                backlog: seen.unsent > 0,
                window_open: seen.in_flight.saturating_add(LEAST_BURST) <= seen.cwnd.max(LEAST_BURST),
                own: seen.wire(seen.able(), self.regime.overhead),
                limit: open.told,
                rtt: seen.rtt,
                // TCP acknowledges a few segments together.
                echo: Time::from_nanos(seen.rtt.as_nanos() * 4 / u64::from(seen.in_flight.max(4))),
            });
            self.paced.push(PacedConnection {
                class,
                weight: 1.0,
                sent,
                burst: seen.burst(self.regime.overhead),
                wants: open.wants,
                partition: open.partition,
                share: Rate::ZERO,
                limit: Rate::ZERO,
            });
            self.places.push(place);
        }
        self.add_rests(span)?;
        self.shares.divide(now, tick, &mut self.paced);
        self.set()?;
        self.hold()?;
        if self.open.len() > there {
            let round = self.round;
            self.open.retain(|_, open| round - open.round <= LEFT_OUT);
        }
        self.kernel.settle()
    }

    /// Adds the traffic of tenants outside their connections, as one more entry per tenant.
    fn add_rests(&mut self, span: Time) -> io::Result<()> {
        self.kernel.traffic(&mut self.counts)?;
        self.unknown.read(self.last, self.counts.unknown.passed + self.counts.unknown.dropped);
        self.others.read(self.last, self.counts.others.passed);
        let mut scale = vec![1.0; self.rests.len()];
        let packets = self.counts.tenants.iter().zip(&mut self.rests);
        for ((&all, rest), tenant) in packets.zip(0..) {
            let seen = std::mem::take(&mut rest.seen);
            rest.passes.read(self.last, all.passed);
            rest.drops.read(self.last, all.dropped);
            let Some(before) = rest.before.replace(all) else { continue };
            let (sent, dropped) = (all.passed - before.passed, all.dropped - before.dropped);
            // TCP also counts segments that the limit dropped as sent.
            if dropped > 0 && seen > sent {
                scale[tenant] = sent as f64 / seen as f64;
            }
            let sent = sent.saturating_sub(seen);
            let wants = rest.demand.observe(&Sample {
                span,
                sent,
                backlog: dropped > 0,
                window_open: true,
                own: Rate::from_bytes_per_sec(f64::MAX),
                limit: rest.limit,
                ..Sample::default()
            });
            // Acknowledgements are not counted: the limit's `ROOM` covers them.
            let share = rest.share.bytes_per_sec();
            if dropped > 0 || rest.demand.uses().bytes_per_sec() > share * ROOM {
                let class = self.owners.iter().position(|&(of, _)| of as usize == tenant).unwrap_or(0);
                self.paced.push(PacedConnection {
                    class: class as u32,
                    weight: 1.0,
                    sent,
                    burst: 0,
                    wants,
                    partition: Partition::default(),
                    share: Rate::ZERO,
                    limit: Rate::ZERO,
                });
            }
        }
        for paced in &mut self.paced[..self.places.len()] {
            let part = scale[self.owners[paced.class as usize].0 as usize];
            paced.sent = (paced.sent as f64 * part) as u64;
        }
        Ok(())
    }

    /// Limits each tenant's packets to the sum for its connections and its other traffic.
    fn hold(&mut self) -> io::Result<()> {
        for paced in &self.paced[self.places.len()..] {
            self.rests[self.owners[paced.class as usize].0 as usize].limit = paced.limit;
        }
        let shares = &self.shares;
        let holds: Vec<Hold> = (0..self.rests.len())
            .map(|tenant| {
                let rest = &mut self.rests[tenant];
                rest.share = shares.share_of(tenant);
                let contract = &self.regime.tenants[tenant].tenant.contract;
                // Beyond its average rate a tenant has the depth, at a peak too.
                let most = shares.most_of(tenant).bytes_per_sec();
                let rate = contract.rate.map_or(most, |rate| rate.bytes_per_sec().min(most));
                let depth = contract.depth.map_or_else(|| default_depth(rate), |depth| depth.0 as f64);
                let opening = rate * (1.0 - ROOM) / f64::from(std::mem::take(&mut rest.connections) + 1);
                Hold {
                    rate: Rate::from_bytes_per_sec((rate * (1.0 + ROOM)).max(LEAST as f64)),
                    // The depth does not depend on the tick, which grows with the number of open
                    // connections.
                    depth: Time::from_secs_f64((depth / rate.max(1.0)).min(DEEPEST)),
                    opening: Rate::from_bytes_per_sec(opening),
                }
            })
            .collect();
        let all: f64 = match self.regime.link.rate {
            Some(rate) => rate.bytes_per_sec(),
            None => holds.iter().map(|hold| hold.rate.bytes_per_sec()).sum(),
        };
        self.kernel.hold(Rate::from_bytes_per_sec(all / STRANGERS), &holds)
    }

    /// Sets the paces that differ from those in force.
    fn set(&mut self) -> io::Result<()> {
        let mut exact = EXACT;
        for (paced, &place) in self.paced.iter().zip(&self.places) {
            let seen = &self.seen[place as usize];
            let Some(open) = self.open.get_mut(&seen.cookie) else { continue };
            open.share = paced.share;
            open.limit = paced.limit;
            open.partition = paced.partition;
            let payload = seen.payload(paced.limit, self.regime.overhead).bytes_per_sec() as u64;
            let payload = payload.max(LEAST).min(open.own.unwrap_or(u64::MAX));
            let part = match paced.wants.hungry {
                true if exact > 0 => NEAREST,
                true => NEAR,
                false => NEAR_ENOUGH,
            };
            let off = open.set.map_or(u64::MAX, |set| set.abs_diff(payload));
            let near = off <= payload / part;
            exact -= usize::from(!near && off <= payload / NEAR);
            if near && seen.limit == open.set {
                continue;
            }
            // No process has the socket open, or none whose descriptors the agent can read.
            if seen.inode == 0 {
                open.denied = open.age > CLOSING;
                continue;
            }
            let rate = Rate::from_bytes_per_sec(payload as f64);
            trace!(target: "shape", remote = %seen.remote, %rate, "pace");
            match self.kernel.pace(seen, Some(rate)) {
                Ok(()) => (open.told, open.set, open.denied) = (paced.limit, Some(payload), false),
                // A closing connection may have no owner any more.
                Err(_) => open.denied = open.age > CLOSING,
            }
        }
        for &place in &self.leaving {
            let seen = &self.seen[place as usize];
            let Some(open) = self.open.get_mut(&seen.cookie) else { continue };
            let own = open.own.map(|own| Rate::from_bytes_per_sec(own as f64));
            if self.kernel.pace(seen, own).is_ok() {
                open.set = None;
            }
        }
        Ok(())
    }

    /// Restores every connection to the limit of its program. Returns the number of connections
    /// that were paced.
    ///
    /// # Errors
    /// The kernel can't list connections.
    pub fn release(&mut self) -> io::Result<usize> {
        let (mut freed, mut quiet) = (0, 0);
        while quiet <= LEFT_OUT {
            match self.release_seen()? {
                0 => quiet += 1,
                more => (freed, quiet) = (freed + more, 0),
            }
        }
        self.kernel.settle()?;
        Ok(freed)
    }

    /// Restores the connections of one listing, and returns their number.
    fn release_seen(&mut self) -> io::Result<usize> {
        self.seen.clear();
        self.kernel.connections(&mut self.seen)?;
        let mut freed = 0;
        for seen in &self.seen {
            if let Some(open) = self.open.get_mut(&seen.cookie).filter(|open| open.set.is_some()) {
                if open.takes_own(seen) {
                    self.kernel.owns(seen);
                }
                let own = open.own.map(|own| Rate::from_bytes_per_sec(own as f64));
                if self.kernel.pace(seen, own).is_ok() {
                    open.set = None;
                    freed += 1;
                }
            }
        }
        Ok(freed)
    }

    /// Messages on what failed at the last tick, with the remedies.
    pub fn warnings(&self) -> Vec<(Concern, String)> {
        let blind = self.regime.rules.by_group() && !self.cgroups.are_mounted();
        let mut all = self.kernel.warnings();
        all.extend(blind.then(|| (Concern::Groups, NO_GROUPS.to_owned())));
        all.extend(self.unpaced().map(|text| (Concern::Unpaced, text)));
        all
    }

    /// A message on the connections that can't be paced.
    fn unpaced(&self) -> Option<String> {
        let mut of =
            self.open.values().filter(|open| open.round == self.round && open.denied && open.set.is_none());
        let first = of.next()?.seen;
        let count = 1 + of.count();
        Some(format!(
            "{count} connections are not limited, such as {} to {} of user {}: their sockets are in no \
            descriptor table that the agent can read (MPTCP has such); `--backend bpf` limits them",
            first.local, first.remote, first.uid
        ))
    }

    /// Tells the kernel back-end between ticks that the agent is alive.
    pub fn beat(&mut self) {
        self.kernel.beat();
    }

    /// The state of the agent, its tenants and connections, without times and the source of policies.
    pub fn status(&self) -> State {
        let mut tenants: Vec<Tenant> = self
            .regime
            .tenants
            .iter()
            .enumerate()
            .map(|(at, party)| {
                let rest = self.counts.tenants.get(at).map(|counts| (counts, &self.rests[at]));
                let held =
                    |rest: &Rest| rest.drops.rate.bytes_per_sec() > rest.passes.rate.bytes_per_sec() * HELD;
                Tenant {
                    tenant: party.name.clone(),
                    share_mbps: self.shares.share_of(at).mbps(),
                    rate_mbps: party.tenant.contract.rate.map(Rate::mbps),
                    bucket: party.tenant.contract.rate.map(|_| self.shares.level_of(at)),
                    elsewhere_mbps: rest.map(|(_, rest)| rest.demand.uses().mbps()),
                    dropped_mbps: rest.map(|(_, rest)| rest.drops.rate.mbps()),
                    dropped_bytes: rest.map(|(counts, _)| counts.dropped),
                    held_by_drops: rest.map(|(_, rest)| held(rest)),
                    ..Tenant::default()
                }
            })
            .collect();
        let now = self.open.values().filter(|open| open.round == self.round);
        let (known, others): (Vec<_>, Vec<_>) = now.partition(|open| open.class.is_some());
        let mut known: Vec<_> = known
            .into_iter()
            .filter_map(|open: &Open| {
                let (tenant, class) = self.owners[open.class? as usize];
                let party = &self.regime.tenants[tenant as usize];
                let of = &mut tenants[tenant as usize];
                of.connections += 1;
                of.sends_mbps += open.demand.uses().mbps();
                Some((&party.name, &party.classes[class as usize], open))
            })
            .collect();
        known.sort_unstable_by_key(|(tenant, _, open)| (*tenant, open.seen.remote, open.seen.local));
        let connection = |(tenant, class, open): (&String, &String, &Open)| Connection {
            cookie: open.seen.cookie,
            tenant: tenant.clone(),
            class: class.clone(),
            local: open.seen.local.to_string(),
            remote: open.seen.remote.to_string(),
            uid: open.seen.uid,
            cgroup: open.seen.cgroup.and_then(|id| self.cgroups.path(id)).map(str::to_owned),
            rtt_ms: open.seen.rtt.as_millis_f64(),
            sends_mbps: open.demand.uses().mbps(),
            share_mbps: open.share.mbps(),
            limit_mbps: open.limit.mbps(),
            limited_by: open.demand.limited_by().word(),
            sent_bytes: open.seen.sent,
            resent_segments: open.seen.resent,
            paced: open.set.is_some(),
            denied: open.denied,
        };
        let contained = self.kernel.contains();
        State {
            version: self.regime.version.clone(),
            kernel: self.kernel.describe(),
            warning: joined(self.warnings()),
            note: (!contained).then(|| NOT_CONTAINED.to_owned()),
            contained,
            link_mbps: self.regime.link.rate.map(Rate::mbps),
            link_bucket: self.regime.link.rate.map(|_| self.shares.level()),
            tenants,
            denied: known.iter().filter(|(_, _, open)| open.denied).count(),
            connections: known.into_iter().map(connection).collect(),
            others: others.len(),
            others_mbps: contained.then(|| self.others.rate.mbps()),
            unknown_mbps: contained.then(|| self.unknown.rate.mbps()),
            ..State::default()
        }
    }
}

/// The tree of shares for a regime; and by class, its tenant's index and its own index there.
fn shares(now: Time, regime: &Regime) -> (Shares, Vec<(u32, u32)>) {
    let tenants: Vec<_> = regime.tenants.iter().map(|party| party.tenant.clone()).collect();
    let owners = tenants.iter().zip(0..).flat_map(|(tenant, at)| {
        (0..tenant.classes.len() as u32).map(move |class| (at, class)).collect::<Vec<_>>()
    });
    (Shares::new(now, regime.link, &tenants), owners.collect())
}

/// Depth in bytes of the bucket of a tenant without a configured one, at `rate` in bytes per second.
///
/// All of it may leave at once, into the queue that the other tenants share. Their connections have
/// small windows while a pace limits them, so that each longer queue costs them rate.
pub(super) fn default_depth(rate: f64) -> f64 {
    (rate * SHALLOW).max(FIRST_WINDOW).min(rate * DEEP)
}

/// Bytes on the wire between two listings.
fn wire_bytes(before: &Seen, now: &Seen, overhead: u32) -> u64 {
    let segments = u64::from(now.segments.wrapping_sub(before.segments));
    now.sent.saturating_sub(before.sent) + segments * u64::from(now.headers(overhead))
}

const NO_GROUPS: &str = "control groups, version 2, are not mounted here, so `cgroup` and `container` match no connection; run \
    `mount -t cgroup2 none /sys/fs/cgroup`, and restart the agent";
/// Listings in a row that may leave out an open connection. The kernel lists its table piece by
/// piece, and skips the neighbour of a connection that closes meanwhile. If the agent took the
/// connection for a new one, it would take its own pace for the program's.
pub(super) const LEFT_OUT: u64 = 2;
/// Ticks after which a connection that can't be paced is neither opening nor closing.
const CLOSING: u32 = 20;
/// Fraction by which the limit of a tenant's packets exceeds its rate, because headers are
/// estimated.
const ROOM: f64 = 0.02;
/// Packets of an unknown tenant get 1/`STRANGERS` of the rate.
const STRANGERS: f64 = 32.0;
/// Depth of a tenant's bucket in seconds of its rate: in general, and at least where the first window
/// of a connection is more than that.
const SHALLOW: f64 = 0.05;
const DEEP: f64 = 0.1;
/// Bytes on the wire of ten full segments, a connection's first window (RFC 6928).
const FIRST_WINDOW: f64 = 15_140.0;
/// Longest time, in seconds, that a tenant's packets may be ahead of its rate, whatever its bucket.
const DEEPEST: f64 = 60.0;
/// Drops above this part of what passes hold a tenant to its rate.
const HELD: f64 = 0.05;
/// Lowest pace of a connection, in bytes per second.
const LEAST: u64 = 1000;
/// A pace changes only if it differs by more than 1/`NEAR`.
const NEAR: u64 = 250;
/// Up to `EXACT` connections per tick that need more change at 1/`NEAREST` already, so that less of
/// the rate stays unused.
const EXACT: usize = 32;
const NEAREST: u64 = 5000;
/// A connection that does not use its pace changes at 1/`NEAR_ENOUGH`: a change costs four system
/// calls.
const NEAR_ENOUGH: u64 = 8;
