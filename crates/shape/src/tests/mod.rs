//! Tests of the agent on a table of connections in place of the kernel.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use tollway_law::shares::{Contract, Tenant};
use tollway_law::{Rate, Time};

use super::*;

/// A table of connections, each of which sends at its pace if it has data. The next listing leaves
/// out as many of the first rows as the counter states.
#[derive(Clone, Debug, Default)]
struct Table(Rc<RefCell<Vec<Row>>>, Rc<Cell<usize>>);

#[derive(Clone, Debug)]
struct Row {
    seen: Seen,
    /// Payload rate of the program, in bytes per second.
    wants: f64,
    denied: bool,
    calls: usize,
    /// The time of the next burst, for connections that send in bursts.
    next: Time,
}

impl Kernel for Table {
    fn connections(&mut self, seen: &mut Vec<Seen>) -> io::Result<()> {
        seen.extend(self.0.borrow().iter().skip(self.1.take()).map(|row| row.seen));
        Ok(())
    }

    fn pace(&mut self, connection: &Seen, rate: Option<Rate>) -> io::Result<()> {
        let mut rows = self.0.borrow_mut();
        // Rows are added in the order of their cookies.
        let at = rows.binary_search_by_key(&connection.cookie, |row| row.seen.cookie);
        let row = &mut rows[at.map_err(|_| io::ErrorKind::NotFound)?];
        if row.denied {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        row.calls += 1;
        row.seen.limit = rate.map(|rate| rate.bytes_per_sec() as u64);
        Ok(())
    }

    fn describe(&self) -> String {
        "a table".into()
    }
}

impl Table {
    fn add(&self, port: u16, wants: f64) {
        let row = Row { seen: opened(port), wants, denied: false, calls: 0, next: Time::ZERO };
        self.0.borrow_mut().push(row);
    }

    /// Advances the time by `span`.
    fn send(&self, span: Time) {
        for row in self.0.borrow_mut().iter_mut() {
            row.seen.at += span;
            let limit = row.seen.limit.map_or(f64::INFINITY, |limit| limit as f64);
            let bytes = (row.wants.min(limit).min(1e9) * span.as_secs_f64()) as u64;
            row.seen.sent += bytes;
            row.seen.segments += (bytes / 1448) as u32;
            row.seen.unsent = if row.wants > limit { 100_000 } else { 0 };
            row.seen.pacing = row.seen.limit.unwrap_or(u64::MAX);
        }
    }

    /// Advances the time to `now` for senders as in the kernel. They send two segments at a time,
    /// all in step since they were paced at the same instant. A connection without a limit fills
    /// its window.
    fn burst(&self, now: Time, dry: bool) {
        for row in self.0.borrow_mut().iter_mut() {
            let seen = &mut row.seen;
            seen.unsent = if dry { 0 } else { 16_384 };
            match seen.limit {
                None => {
                    seen.sent += 14_480;
                    seen.segments += 10;
                    (seen.in_flight, seen.pacing) = (if dry { 0 } else { seen.cwnd }, 1 << 30);
                }
                Some(limit) => {
                    (seen.in_flight, seen.pacing) = (0, limit);
                    let mut next = row.next.max(seen.at);
                    while next <= now {
                        seen.sent += 2 * 1448;
                        seen.segments += 2;
                        next += Time::from_secs_f64(2.0 * 1448.0 / limit as f64);
                    }
                    row.next = next;
                }
            }
            seen.at = now;
        }
    }

    fn limits(&self) -> Vec<f64> {
        self.0.borrow().iter().map(|row| row.seen.limit.map_or(f64::INFINITY, |limit| limit as f64)).collect()
    }

    fn mbps(&self, port: u16) -> Option<f64> {
        let rows = self.0.borrow();
        let row = rows.iter().find(|row| row.seen.cookie == u64::from(port)).unwrap();
        row.seen.limit.map(|limit| limit as f64 * 8e-6)
    }

    fn calls(&self) -> usize {
        self.0.borrow().iter().map(|row| row.calls).sum()
    }
}

/// A connection that has sent nothing yet.
pub(super) fn opened(port: u16) -> Seen {
    let end = |text: &str| text.parse::<SocketAddr>().unwrap();
    let mut remote = end("192.0.2.1:0");
    remote.set_port(port);
    Seen {
        cookie: u64::from(port),
        at: Time::ZERO,
        local: end("10.0.0.1:80"),
        remote,
        uid: 33,
        cgroup: None,
        inode: 1,
        rtt: Time::from_millis(50),
        least_rtt: Time::from_millis(50),
        sent: 0,
        segments: 0,
        resent: 0,
        by_receiver: Time::ZERO,
        unsent: 0,
        in_flight: 0,
        cwnd: 1000,
        mss: 1448,
        options: 12,
        stays: false,
        pacing: u64::MAX,
        limit: None,
    }
}

/// Rules by port: below 100 the first tenant, below 1000 the last one, above none.
#[derive(Debug)]
struct ByPort(u32);

impl Rules for ByPort {
    fn class_of(&self, who: &Identity<'_>) -> Option<u32> {
        match who.remote.port() {
            ..100 => Some(0),
            100..1000 => Some(self.0),
            _ => None,
        }
    }
}

fn regime(version: &str, mbps: f64, weights: &[f64]) -> Regime {
    let party = |(at, &weight): (usize, &f64)| Party {
        name: format!("t{at}"),
        tenant: Tenant { contract: Contract { weight, ..Contract::default() }, classes: vec![1.0] },
        classes: vec![String::new()],
    };
    Regime {
        version: version.into(),
        tick: TICK,
        overhead: 0,
        link: Contract { rate: Some(Rate::from_mbps(mbps)), ..Contract::default() },
        tenants: weights.iter().enumerate().map(party).collect(),
        rules: Arc::new(ByPort(weights.len() as u32 - 1)),
    }
}

struct World {
    table: Table,
    agent: Agent,
    now: Time,
}

impl World {
    fn new(regime: Regime) -> World {
        let table = Table::default();
        World { agent: Agent::new(Time::ZERO, Box::new(table.clone()), regime), table, now: Time::ZERO }
    }

    fn run(&mut self, span: Time) {
        let until = self.now + span;
        while self.now < until {
            self.now += TICK;
            self.table.send(TICK);
            let now = self.now;
            self.agent.tick(|| now, TICK).unwrap();
        }
    }
}

/// Rules that assign every connection to the first class.
#[derive(Debug)]
struct Everybody;
impl Rules for Everybody {
    fn class_of(&self, _: &Identity<'_>) -> Option<u32> {
        Some(0)
    }
}

const TICK: Time = Time::from_millis(15);
const ALL: f64 = 1e12;

#[test]
fn payload_is_paced_so_that_the_wire_has_the_rate() {
    let mut world = World::new(regime("1", 100.0, &[1.0]));
    (1..=4).for_each(|port| world.table.add(port, ALL));
    world.run(Time::from_secs(2));
    for port in 1..=4 {
        let payload = world.table.mbps(port).unwrap();
        assert!((payload - 25.0 * 1448.0 / 1500.0).abs() < 0.15, "{payload}");
    }
    let status = world.agent.status();
    assert_eq!((status.connections.len(), status.tenants[0].connections), (4, 4));
    assert!(status.connections.iter().all(|c| c.limited_by == "share" && c.paced));
    assert!((status.tenants[0].sends_mbps - 100.0).abs() < 1.0, "{:?}", status.tenants);
    // In a steady state the agent sets nothing.
    let calls = world.table.calls();
    world.run(Time::from_secs(1));
    assert_eq!(world.table.calls(), calls);
}

/// A pace stays while it is near the right one. No connection counts as slow because of that.
#[test]
fn who_keeps_an_old_pace_and_wants_more_gets_all_of_its_part() {
    let mut world = World::new(regime("1", 88.5, &[1.0]));
    [1, 2].into_iter().for_each(|port| world.table.add(port, ALL));
    world.run(Time::from_secs(2));
    world.table.0.borrow_mut()[0].wants = 10e6 / 8.0;
    world.run(Time::from_secs(2));
    let old = world.table.mbps(1);
    world.agent.install(world.now, regime("2", 100.0, &[1.0]));
    world.run(Time::from_secs(1));
    assert_eq!(world.table.mbps(1), old, "it may have 50 now, and 44.2 are near enough");
    world.table.0.borrow_mut()[0].wants = ALL;
    world.run(Time::from_secs(1));
    for port in [1, 2] {
        let wire = world.table.mbps(port).unwrap() * 1500.0 / 1448.0;
        assert!((wire - 50.0).abs() < 0.3, "{wire}");
    }
}

/// A window closes as in BBR's measurement of the minimum round trip. The others get the unused
/// rate from the next tick on, and it is made up for later.
#[test]
fn a_window_that_closes_is_seen_at_once_and_made_up_for() {
    let mut world = World::new(regime("1", 100.0, &[1.0]));
    (1..=4).for_each(|port| world.table.add(port, ALL));
    world.run(Time::from_secs(3));
    let close = |world: &World, closed: bool| {
        let seen = &mut world.table.0.borrow_mut()[3].seen;
        (seen.cwnd, seen.in_flight) = if closed { (4, 4) } else { (1000, 0) };
    };
    let wire = |world: &World, port: u16| world.table.mbps(port).unwrap() * 1500.0 / 1448.0;
    close(&world, true);
    world.table.0.borrow_mut()[3].wants = 0.0;
    for _ in 0..40 {
        world.now += TICK;
        world.table.send(TICK);
        world.table.0.borrow_mut()[3].seen.unsent = 100_000;
        let now = world.now;
        world.agent.tick(|| now, TICK).unwrap();
        // It can send four segments in 50 ms.
        assert!((wire(&world, 1) - 33.0).abs() < 0.5, "{}", wire(&world, 1));
    }
    close(&world, false);
    world.table.0.borrow_mut()[3].wants = ALL;
    world.run(TICK * 3);
    assert!(wire(&world, 4) > 28.0, "{}", wire(&world, 4));
    world.run(Time::from_secs(10));
    assert!((wire(&world, 4) - 25.0).abs() < 0.3, "{}", wire(&world, 4));
}

/// The rate taken away by a bucket in debt comes back little by little, to the last part.
#[test]
fn a_few_paces_are_exact_in_the_end() {
    let mut world = World::new(regime("1", 100.0, &[1.0]));
    (1..=4).for_each(|port| world.table.add(port, ALL));
    world.run(Time::from_secs(2));
    for mbps in [99.8, 99.7, 100.1] {
        world.agent.install(world.now, regime("2", mbps, &[1.0]));
        world.run(Time::from_secs(10));
        for port in 1..=4 {
            let wire = world.table.mbps(port).unwrap() * 1500.0 / 1448.0;
            assert!((wire * 4.0 / mbps - 1.0).abs() < 1.0 / 4000.0, "{wire} of {mbps}");
        }
    }
}

#[test]
fn policies_change_while_connections_are_open() {
    let mut world = World::new(regime("1", 100.0, &[1.0]));
    [1, 2, 101, 2000].into_iter().for_each(|port| world.table.add(port, ALL));
    world.run(Time::from_secs(2));
    assert_eq!(world.table.mbps(2000), None);
    assert!((world.table.mbps(101).unwrap() - 32.2).abs() < 0.3);
    world.agent.install(world.now, regime("2", 40.0, &[1.0, 3.0]));
    world.run(TICK * 2);
    // Within two ticks. The bytes beyond the new rate are being paid back.
    let payload = world.table.mbps(101).unwrap();
    assert!((28.0..29.0).contains(&payload), "{payload}");
    assert_eq!(world.agent.status().version, "2");
    // A connection without a tenant is free within a tick.
    let mut nobodys = regime("3", 40.0, &[1.0]);
    #[derive(Debug)]
    struct Nobody;
    impl Rules for Nobody {
        fn class_of(&self, _: &Identity<'_>) -> Option<u32> {
            None
        }
    }
    nobodys.rules = Arc::new(Nobody);
    world.agent.install(world.now, nobodys);
    world.run(TICK);
    assert!([1, 2, 101, 2000].iter().all(|&port| world.table.mbps(port).is_none()));
}

#[test]
fn what_a_program_had_set_is_never_exceeded_and_comes_back() {
    let mut world = World::new(regime("1", 100.0, &[1.0]));
    [1, 2].into_iter().for_each(|port| world.table.add(port, ALL));
    world.table.0.borrow_mut()[0].seen.limit = Some(1_000_000);
    world.run(Time::from_secs(2));
    assert_eq!(world.table.mbps(1), Some(8.0));
    assert!(world.table.mbps(2).unwrap() > 80.0, "what it leaves is lent: {:?}", world.table.mbps(2));
    // The status shows a connection that can't be paced.
    world.table.add(3, ALL);
    world.table.0.borrow_mut()[2].denied = true;
    world.run(Time::from_secs(1));
    let status = world.agent.status();
    assert!(status.connections[2].denied && !status.connections[2].paced);
    // A program may set a limit between the last tick and the end.
    world.table.0.borrow_mut()[1].seen.limit = Some(7_000_000);
    assert_eq!(world.agent.release().unwrap(), 2);
    assert_eq!(world.table.0.borrow()[1].seen.limit, Some(7_000_000));
    assert_eq!(world.table.mbps(1), Some(8.0));
}

/// The kernel lists its table piece by piece. The neighbour of a connection that closes meanwhile
/// is left out now and then.
#[test]
fn one_that_a_look_has_left_out_is_known_again() {
    let mut world = World::new(regime("1", 100.0, &[1.0]));
    (1..=4).for_each(|port| world.table.add(port, ALL));
    world.run(Time::from_secs(1));
    world.table.1.set(1);
    world.run(TICK);
    let others = world.agent.status();
    assert_eq!((others.connections.len(), others.tenants[0].connections), (3, 3));
    world.run(TICK * 2);
    world.table.0.borrow_mut().truncate(1);
    world.run(Time::from_secs(2));
    assert!(world.table.mbps(1).unwrap() > 90.0, "it has all that there is: {:?}", world.table.mbps(1));
    world.table.1.set(1);
    assert_eq!((world.agent.release().unwrap(), world.table.mbps(1)), (1, None));
}

/// Ten thousand connections send all they can when the agent starts. Each gets its share at once,
/// and keeps it.
#[test]
fn ten_thousand_have_equal_parts_in_two_ticks_and_keep_them() {
    for dry in [false, true] {
        let mut regime = regime("1", 1000.0, &[1.0]);
        regime.rules = Arc::new(Everybody);
        let mut world = World::new(regime);
        (1..=10_000).for_each(|port| world.table.add(port, ALL));
        // Listing ten thousand connections takes longer than a tick.
        let mut tick = TICK;
        let mut step = |world: &mut World, dry| {
            world.now += tick;
            tick = (tick * 2).min(Time::from_millis(200));
            world.table.burst(world.now, dry);
            let now = world.now;
            world.agent.tick(|| now, tick).unwrap();
        };
        let even = |world: &World| {
            let limits = world.table.limits();
            let (sum, squares) = limits.iter().fold((0.0, 0.0), |(s, q), &l| (s + l, q + l * l));
            (sum * 8e-6 * 1500.0 / 1448.0, sum * sum / (limits.len() as f64 * squares))
        };
        step(&mut world, dry);
        let (mbps, jain) = even(&world);
        assert!(jain > 0.9999, "{jain}");
        // Connections that were idle may also use the bucket's tokens.
        assert!(dry || (990.0..=1000.1).contains(&mbps), "{mbps}");
        (0..3).for_each(|_| step(&mut world, false));
        let (mbps, jain) = even(&world);
        assert!(jain > 0.9999 && (900.0..=1000.1).contains(&mbps), "{mbps}, {jain}");
        // The bytes sent before they were paced are paid back.
        (0..40).for_each(|_| step(&mut world, false));
        let sent = |world: &World| -> u64 {
            world.table.0.borrow().iter().map(|row| row.seen.sent + u64::from(row.seen.segments) * 52).sum()
        };
        let (before, since) = (sent(&world), world.now);
        for _ in 0..100 {
            step(&mut world, false);
            let (mbps, jain) = even(&world);
            assert!(jain > 0.9999 && (970.0..=1000.1).contains(&mbps), "bursts are no debt: {mbps}, {jain}");
        }
        let mbps = (sent(&world) - before) as f64 * 8e-6 / (world.now - since).as_secs_f64();
        assert!((985.0..=1015.0).contains(&mbps), "{mbps}");
    }
}

#[test]
fn the_nearer_the_other_end_the_more_is_sent_at_a_time() {
    let table = Table::default();
    table.add(1, ALL);
    let mut seen = table.0.borrow()[0].seen;
    let mut burst = |pacing, least_rtt| {
        (seen.pacing, seen.least_rtt) = (pacing, least_rtt);
        seen.burst(0) / 1500
    };
    assert_eq!(burst(12_000, Time::from_millis(50)), 2);
    assert_eq!(burst(12_000, Time::NEVER), 2);
    assert_eq!(burst(12_000_000, Time::from_millis(50)), 8);
    assert_eq!(burst(12_000, Time::from_micros(20)), 45);
    assert_eq!(burst(12_000, Time::from_micros(1100)), 11);
    assert_eq!(burst(u64::MAX, Time::from_millis(50)), 45);
}
