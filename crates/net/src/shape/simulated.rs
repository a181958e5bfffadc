//! Agent, guardian and kernel in one thread and on one clock, with faults drawn from a seed.
//!
//! The kernel is a model of the programs in `bpf`: a lease, a pace for each connection, and a bucket for each tenant's packets. Its
//! tenants want all they can get, by connections that come and go and by traffic that no look shows.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use tollway_law::shares::{Contract, Tenant};
use tollway_law::{Rate, Time};

use super::*;

const RATE: f64 = 22.5e6 / 8.0;
const STEP: Time = Time::from_millis(1);
const LEASE: Time = Time::from_secs(1);

#[derive(Debug)]
struct Connection {
    seen: Seen,
    tenant: usize,
    /// Bytes a second.
    wants: f64,
    closes: Time,
}

#[derive(Debug, Default)]
struct Machine {
    now: Time,
    lease: Time,
    connections: Vec<Connection>,
    holds: Vec<Hold>,
    /// When all that a tenant has sent would have left at its rate.
    left: [Time; 2],
    traffic: [Traffic; 2],
    /// Bytes a second that no look shows.
    hidden: [f64; 2],
    /// Looks that are to be lost, and connections that the next one leaves out.
    lost: u32,
    skipped: usize,
    next: u64,
}

impl Machine {
    /// Lets each tenant send for a step; answers what each has sent.
    fn step(&mut self) -> [u64; 2] {
        self.now += STEP;
        let now = self.now;
        self.connections.retain(|connection| connection.closes > now);
        let holds = (now < self.lease).then(|| self.holds.clone()).unwrap_or_default();
        let mut sent = [0; 2];
        for tenant in 0..2 {
            let mut offers = vec![self.hidden[tenant]];
            let own = self.connections.iter_mut().filter(|connection| connection.tenant == tenant);
            for connection in own {
                let pace = match connection.seen.limit {
                    Some(limit) if now < self.lease => limit as f64 * 1500.0 / 1448.0,
                    _ => holds.get(tenant).map_or(f64::INFINITY, |hold| hold.opening.bytes_per_sec()),
                };
                let bytes = connection.wants.min(pace).min(1e9) * STEP.as_secs_f64();
                connection.seen.sent += bytes as u64 * 1448 / 1500;
                connection.seen.segments += (bytes / 1500.0) as u32;
                connection.seen.unsent = if connection.wants > pace { 100_000 } else { 0 };
                connection.seen.pacing = connection.seen.limit.unwrap_or(u64::MAX);
                connection.seen.at = now;
                offers.push(bytes / STEP.as_secs_f64());
            }
            for bytes in offers.into_iter().map(|offer| (offer * STEP.as_secs_f64()) as u64) {
                // In packets, as the program counts them.
                let mut left = bytes;
                while left > 0 {
                    let packet = left.min(1500);
                    left -= packet;
                    if let Some(hold) = holds.get(tenant) {
                        let begin = self.left[tenant].max(now);
                        if begin > now + hold.depth {
                            self.traffic[tenant].dropped += packet + left;
                            break;
                        }
                        self.left[tenant] =
                            begin + Time::from_secs_f64(packet as f64 / hold.rate.bytes_per_sec());
                    }
                    self.traffic[tenant].passed += packet;
                    sent[tenant] += packet;
                }
            }
        }
        sent
    }

    fn open(&mut self, tenant: usize, wants: f64, span: Time) {
        self.next += 1;
        let remote = format!("192.0.2.{}:{}", tenant + 1, 1 + self.next % 60_000).parse().unwrap();
        let seen = Seen {
            cookie: self.next,
            at: self.now,
            local: "10.0.0.1:80".parse().unwrap(),
            remote,
            uid: 0,
            cgroup: None,
            inode: 1,
            rtt: Time::from_millis(20),
            least_rtt: Time::from_millis(20),
            sent: 0,
            segments: 0,
            resent: 0,
            by_receiver: Time::ZERO,
            unsent: 0,
            in_flight: 0,
            cwnd: 1000,
            mss: 1448,
            timestamps: true,
            pacing: u64::MAX,
            limit: None,
        };
        self.connections.push(Connection { seen, tenant, wants, closes: self.now + span });
    }

    /// What the lease's end, the guardian or the next agent does.
    fn free(&mut self) {
        self.lease = Time::ZERO;
        self.connections.iter_mut().for_each(|connection| connection.seen.limit = None);
    }
}

#[derive(Clone, Debug, Default)]
struct Shared(Rc<RefCell<Machine>>);

impl Kernel for Shared {
    fn connections(&mut self, seen: &mut Vec<Seen>) -> io::Result<()> {
        let mut machine = self.0.borrow_mut();
        let skipped = std::mem::take(&mut machine.skipped);
        seen.extend(machine.connections.iter().skip(skipped).map(|connection| connection.seen));
        if machine.lost > 0 {
            machine.lost -= 1;
            seen.clear();
        }
        Ok(())
    }

    fn pace(&mut self, connection: &Seen, rate: Option<Rate>) -> io::Result<()> {
        let mut machine = self.0.borrow_mut();
        let found = machine.connections.iter_mut().find(|other| other.seen.cookie == connection.cookie);
        found.ok_or(io::ErrorKind::NotFound)?.seen.limit = rate.map(|rate| rate.bytes_per_sec() as u64);
        Ok(())
    }

    fn traffic(&mut self, traffic: &mut Vec<Traffic>) -> io::Result<()> {
        *traffic = self.0.borrow().traffic.to_vec();
        Ok(())
    }

    fn hold(&mut self, _: Rate, holds: &[Hold]) -> io::Result<()> {
        self.0.borrow_mut().holds = holds.to_vec();
        Ok(())
    }

    fn settle(&mut self) -> io::Result<()> {
        let mut machine = self.0.borrow_mut();
        machine.lease = machine.now + LEASE;
        Ok(())
    }

    fn describe(&self) -> String {
        "a model".into()
    }
}

#[derive(Debug)]
struct ByAddress;
impl Rules for ByAddress {
    fn class_of(&self, who: &Identity<'_>) -> Option<u32> {
        Some(u32::from(who.remote.ip() != "192.0.2.1".parse::<IpAddr>().unwrap()))
    }
}

fn regime(weight: f64) -> Regime {
    let party = |(name, weight): (&str, f64)| Party {
        name: name.into(),
        tenant: Tenant {
            contract: Contract { weight, rate: Some(Rate::from_bytes_per_sec(RATE)), ..Contract::default() },
            classes: vec![1.0],
        },
        classes: vec![String::new()],
    };
    Regime {
        version: format!("{weight}"),
        tick: Time::from_millis(15),
        overhead: 0,
        link: Contract { rate: Some(Rate::from_mbps(50.0)), ..Contract::default() },
        tenants: [("mean", weight), ("kind", 1.0)].map(party).into(),
        rules: Arc::new(ByAddress),
    }
}

/// SplitMix64.
struct Draws(u64);

impl Draws {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % most
    }
}

/// A minute with faults; panics with the seed where a promise is broken.
fn live(seed: u64) {
    let mut draws = Draws(seed);
    let shared = Shared::default();
    let fresh = |shared: &Shared| {
        shared.0.borrow_mut().free();
        let now = shared.0.borrow().now;
        Agent::new(now, Box::new(shared.clone()), regime(1.0))
    };
    let mut agent = Some(fresh(&shared));
    let mut guardian = true;
    let (mut due, mut hangs, mut restart) = (Time::ZERO, Time::ZERO, Time::ZERO);
    // Since when limits have been in force without a gap, and what each tenant has sent in each step since.
    let mut since = None;
    let mut sent: VecDeque<[u64; 2]> = VecDeque::new();
    shared.0.borrow_mut().open(1, 1e9, Time::NEVER);
    while shared.0.borrow().now < Time::from_secs(60) {
        let passed = shared.0.borrow_mut().step();
        let mut machine = shared.0.borrow_mut();
        let now = machine.now;
        // Tenants.
        if draws.below(20) == 0 && machine.connections.len() < 200 {
            let span = Time::from_millis(1 + draws.below(300));
            machine.open(0, 10f64.powi(draws.below(4) as i32 + 5), span);
        }
        if draws.below(2000) == 0 {
            machine.hidden[0] = [0.0, 1e6, 1e8][draws.below(3) as usize];
        }
        // Faults.
        match draws.below(20_000) {
            0 | 1 => hangs = now + Time::from_millis(draws.below(3000)),
            2 | 3 => machine.lost = 1 + draws.below(2) as u32,
            4 | 5 => machine.skipped = draws.below(3) as usize,
            6 => guardian = false,
            7 => {
                // The agent is killed.
                agent = None;
                restart = now + Time::from_millis(draws.below(3000));
                if guardian {
                    machine.free();
                }
            }
            8 => {
                (agent, guardian) = (None, false);
                restart = now + Time::from_millis(draws.below(3000));
            }
            // The machine sleeps, and its clock goes on.
            9 => machine.now += Time::from_secs(draws.below(100)),
            _ => {}
        }
        if now >= machine.lease {
            machine.free();
        }
        let alive = agent.is_some();
        if alive && guardian && machine.lease > Time::ZERO && machine.lease < now + Time(LEASE.0 / 2) {
            machine.lease = now + LEASE;
        }
        drop(machine);
        if !alive && now >= restart {
            (agent, guardian) = (Some(fresh(&shared)), true);
        }
        if let Some(agent) = &mut agent
            && now >= due
            && now >= hangs
        {
            due = now + agent.regime().tick;
            if draws.below(200) == 0 {
                agent.install(now, regime(1.0 + draws.below(3) as f64));
            }
            agent.tick(|| now, Time::from_millis(15)).unwrap();
            // An agent finds the guardian's end at a tick, and starts another.
            guardian = true;
        }
        // Promises.
        let machine = shared.0.borrow();
        let held = now < machine.lease;
        if !held {
            since = None;
            sent.clear();
            assert!(
                machine.connections.iter().all(|connection| connection.seen.limit.is_none()),
                "seed {seed}, {now}: a connection is paced, and no lease is in force"
            );
            continue;
        }
        let since = *since.get_or_insert(now);
        if now < since + Time::from_secs(1) {
            continue;
        }
        sent.push_back(passed);
        if sent.len() > 2000 {
            sent.pop_front();
            let [mean, kind] =
                [0, 1].map(|tenant| sent.iter().map(|sent| sent[tenant]).sum::<u64>() as f64 / 2.0);
            assert!(mean <= 1.1 * RATE, "seed {seed}, {now}: {:.2} of its rate", mean / RATE);
            assert!(kind <= 1.1 * RATE, "seed {seed}, {now}: {:.2} of its rate", kind / RATE);
            assert!(kind >= 0.9 * RATE, "seed {seed}, {now}: the other has {:.2} of its rate", kind / RATE);
        }
    }
}

#[test]
fn no_fault_lets_a_tenant_pass_its_rate_or_leaves_a_pace_behind() {
    (0..20).for_each(live);
}
