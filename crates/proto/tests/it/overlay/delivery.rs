//! Delivery by survivors when links and daemons fail (`ovl.delivery`).

use std::collections::{BTreeMap, BTreeSet};

use tollway_law::{Rate, Time};
use tollway_proto::overlay::{Config, TenantConfig};

use super::net::Net;
use super::{Random, row};

/// The network, and the test's record of it.
struct Trial {
    net: Net,
    random: Random,
    seed: u64,
    /// For each sender its node's start and its destinations with theirs.
    senders: Vec<Record>,
    /// Starts of each node so far.
    starts: Vec<u64>,
}

struct Record {
    origin: (usize, u64),
    to: Vec<(usize, u64)>,
}

impl Trial {
    /// A ring with chords.
    fn new(nodes: usize, seed: u64) -> Trial {
        let mut net = Net::new(nodes, Config::default(), seed);
        for node in 0..nodes {
            net.link(node, (node + 1) % nodes, Rate::from_mbps(2.0), Time::from_millis(5 + node as u64));
        }
        for node in 0..nodes / 2 {
            net.link(node, node + nodes / 2, Rate::from_mbps(1.0), Time::from_millis(20));
        }
        net.run(Time::from_secs(2));
        Trial { net, random: Random(seed), seed, senders: Vec::new(), starts: vec![1; nodes] }
    }

    /// Some messages from a living daemon to some others.
    fn burst(&mut self) {
        let nodes = self.starts.len();
        let origin = self.random.below(nodes);
        let to: Vec<usize> = (0..nodes).filter(|&node| node != origin && self.random.below(2) == 0).collect();
        if to.is_empty() || !self.net.alive(origin) {
            return;
        }
        let most = 5 + self.random.below(40) as u32;
        self.net.sender(self.net.now, origin, &to, 300, most, TenantConfig::default());
        let start = |node: usize| (node, self.starts[node]);
        self.senders.push(Record { origin: start(origin), to: to.iter().map(|&node| start(node)).collect() });
    }

    fn run_for(&mut self, span: Time) {
        self.net.run(self.net.now + span);
    }

    fn restart(&mut self, node: usize) {
        self.starts[node] += 1;
        self.net.log[node].clear();
        self.net.start(node, self.starts[node]);
        for link in (0..self.net.links.len()).step_by(2) {
            self.net.raise(link);
        }
    }

    fn raise_all(&mut self) {
        for link in (0..self.net.links.len()).step_by(2) {
            self.net.raise(link);
        }
    }

    /// The numbers that a node has delivered of each sender, in order.
    fn delivered(&self, node: usize) -> BTreeMap<u32, Vec<u32>> {
        let mut by_sender: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for delivery in &self.net.log[node] {
            by_sender.entry(delivery.body.sender).or_default().push(delivery.body.number);
        }
        by_sender
    }

    fn lives(&self, (node, start): (usize, u64)) -> bool {
        self.net.alive(node) && self.starts[node] == start
    }

    /// Once and in order, everywhere.
    fn check_order(&self) {
        for node in 0..self.starts.len() {
            for (sender, numbers) in self.delivered(node) {
                let ascending = numbers.windows(2).all(|pair| pair[0] < pair[1]);
                assert!(ascending, "seed {}: node {node}, sender {sender}: {numbers:?}", self.seed);
            }
        }
    }

    /// Messages accepted by survivors have reached all survivors; the dead's messages have reached
    /// all survivors alike.
    fn check_complete(&self) {
        let logs: Vec<_> = (0..self.starts.len()).map(|node| self.delivered(node)).collect();
        for (sender, record) in self.senders.iter().enumerate() {
            let survivors: Vec<usize> =
                record.to.iter().filter(|&&to| self.lives(to)).map(|to| to.0).collect();
            let of = |node: usize| logs[node].get(&(sender as u32)).cloned().unwrap_or_default();
            if self.lives(record.origin) {
                let sent: Vec<u32> = (0..self.net.senders[sender].sent).collect();
                for &node in &survivors {
                    assert_eq!(of(node), sent, "seed {}: node {node}, sender {sender}", self.seed);
                }
            } else {
                let distinct: BTreeSet<Vec<u32>> = survivors.iter().map(|&node| of(node)).collect();
                let lens: Vec<_> = survivors.iter().map(|&node| (node, of(node).len())).collect();
                assert!(
                    distinct.len() <= 1,
                    "seed {}: sender {sender} of {:?}: {lens:?}",
                    self.seed,
                    record.origin
                );
                let prefix = |numbers: &Vec<u32>| numbers.iter().copied().eq(0..numbers.len() as u32);
                assert!(distinct.iter().all(prefix), "seed {}: sender {sender}: {distinct:?}", self.seed);
            }
        }
    }
}

#[test]
fn without_faults_all_is_delivered_once_and_in_order() {
    let mut net = row(4, Config::default(), 1);
    net.sender(net.now, 0, &[1, 3], 900, 200, TenantConfig::default());
    net.sender(net.now, 2, &[0, 1, 3], 400, 200, TenantConfig::default());
    net.run(Time::from_secs(30));
    for (node, senders) in [(0, vec![1]), (1, vec![0, 1]), (2, vec![]), (3, vec![0, 1])] {
        for sender in 0..2 {
            let of = net.log[node].iter().filter(|d| d.body.sender == sender).map(|d| d.body.number);
            let expected = if senders.contains(&sender) { 200 } else { 0 };
            assert!(of.eq(0..expected), "node {node}, sender {sender}");
        }
    }
    for daemon in net.daemons.iter().flatten() {
        let snapshot = daemon.snapshot();
        assert_eq!((snapshot.retained, snapshot.held, snapshot.resent), (0, 0, 0));
    }
}

#[test]
fn a_second_connection_takes_over_from_the_first() {
    let mut net = row(2, Config::default(), 3);
    net.sender(net.now, 0, &[1], 900, 2000, TenantConfig::default());
    net.run(Time::from_secs(3));
    net.link(0, 1, Rate::from_mbps(2.0), Time::from_millis(10));
    net.run(Time::from_secs(4));
    net.cut(0);
    net.run(Time::from_secs(5));
    net.raise(0);
    net.run(Time::from_secs(6));
    net.cut(2);
    net.run(Time::from_secs(40));
    assert!(net.log[1].iter().map(|delivery| delivery.body.number).eq(0..2000));
}

/// Links are cut and flap; every pair is together again within patience.
#[test]
fn links_that_fail_lose_nothing() {
    for seed in 0..30 {
        let mut trial = Trial::new(6, seed);
        let links = trial.net.links.len() / 2;
        for _ in 0..40 {
            (0..3).for_each(|_| trial.burst());
            for _ in 0..trial.random.below(5) {
                let link = 2 * trial.random.below(links);
                trial.net.cut(link);
                if trial.random.below(3) == 0 {
                    trial.net.raise(link);
                }
            }
            let span = Time::from_millis(trial.random.below(700) as u64);
            trial.run_for(span);
            trial.raise_all();
            let span = Time::from_millis(trial.random.below(300) as u64);
            trial.run_for(span);
        }
        trial.run_for(Time::from_secs(120));
        trial.check_order();
        trial.check_complete();
        let retained: u64 =
            trial.net.daemons.iter().flatten().map(|d| d.snapshot().retained + d.snapshot().held).sum();
        assert_eq!(retained, 0, "seed {seed}");
    }
}

/// Daemons die and start again under another epoch; survivors stay connected.
#[test]
fn survivors_deliver_alike_what_the_dead_have_sent() {
    for seed in 100..130 {
        let mut trial = Trial::new(6, seed);
        for round in 0..6 {
            for _ in 0..10 {
                (0..2).for_each(|_| trial.burst());
                let span = Time::from_millis(20 + trial.random.below(200) as u64);
                trial.run_for(span);
            }
            let victim = trial.random.below(6);
            trial.net.kill(victim);
            // Restarted at once, late, or after all is over.
            if round % 2 == 0 {
                let span = Time::from_millis(trial.random.below(4000) as u64);
                trial.run_for(span);
            } else {
                trial.run_for(Time::from_secs(30));
            }
            trial.restart(victim);
            trial.run_for(Time::from_secs(1));
        }
        trial.run_for(Time::from_secs(120));
        trial.check_order();
        trial.check_complete();
    }
}

/// Messages held behind a gap do not come after later ones, where the origin's patience ended
/// meanwhile.
#[test]
fn what_was_held_when_patience_ended_does_not_come_late() {
    let mut net = Net::new(2, Config::default(), 11);
    let slow = net.link(0, 1, Rate::from_mbps(2.0), Time::from_millis(100));
    net.run(Time::from_secs(2));
    let sender = net.sender(net.now, 0, &[1], 900, u32::MAX, TenantConfig::default()) as usize;
    net.run(Time::from_secs(5));
    // The second link takes over, and overtakes what is on its way.
    let fast = net.link(0, 1, Rate::from_mbps(2.0), Time::from_millis(5));
    while net.daemons[1].as_ref().unwrap().snapshot().held == 0 {
        net.run(net.now + Time::from_millis(1));
        assert!(net.now < Time::from_secs(6), "nothing is held");
    }
    net.cut(slow);
    net.cut(fast);
    // Messages to a destination that has been given up cost nothing: none are sent meanwhile.
    net.senders[sender].most = net.senders[sender].sent;
    net.run(net.now + Time::from_secs(12));
    net.raise(fast);
    net.run(net.now + Time::from_secs(2));
    let before = net.log[1].len();
    net.senders[sender].most = u32::MAX;
    net.offer(sender);
    net.run(net.now + Time::from_secs(10));
    assert!(net.log[1].len() > before + 500);
    assert!(net.log[1].windows(2).all(|pair| pair[0].body.number < pair[1].body.number));
    assert_eq!(net.daemons[1].as_ref().unwrap().snapshot().held, 0);
}

/// A survivor that was cut off gives what it has of a former start when another has done with it.
#[test]
fn a_survivor_that_comes_late_repeats_nothing() {
    let mut net = Net::new(3, Config::default(), 5);
    let link = |net: &mut Net, a, b| net.link(a, b, Rate::from_mbps(2.0), Time::from_millis(10));
    let [near, late] = [link(&mut net, 0, 2), link(&mut net, 1, 2)];
    let between = link(&mut net, 0, 1);
    net.run(Time::from_secs(2));
    net.sender(net.now, 2, &[0, 1], 300, 20, TenantConfig::default());
    while net.log[0].len().min(net.log[1].len()) < 20 {
        net.run(net.now + Time::from_millis(5));
    }
    net.cut(late);
    net.cut(between);
    net.kill(2);
    net.run(net.now + Time::from_millis(500));
    net.start(2, 2);
    net.raise(near);
    net.run(net.now + Time::from_secs(21));
    net.raise(late);
    net.raise(between);
    net.run(net.now + Time::from_secs(30));
    for log in &net.log[..2] {
        assert!(log.iter().map(|delivery| delivery.body.number).eq(0..20));
    }
}

/// Partitions shorter than patience lose nothing; longer ones lose only what was for the other
/// side, and nothing stays kept.
#[test]
fn partitions_merge() {
    for seed in 200..220 {
        for long in [false, true] {
            let mut trial = Trial::new(6, seed);
            let side: Vec<bool> = (0..6).map(|_| trial.random.below(2) == 0).collect();
            for _ in 0..4 {
                (0..6).for_each(|_| trial.burst());
                trial.run_for(Time::from_millis(300));
                for link in (0..trial.net.links.len()).step_by(2) {
                    if side[trial.net.links[link].from] != side[trial.net.links[link].to] {
                        trial.net.cut(link);
                    }
                }
                (0..6).for_each(|_| trial.burst());
                trial.run_for(Time::from_secs(if long { 40 } else { 4 }));
                trial.raise_all();
                trial.run_for(Time::from_secs(1));
            }
            let first = trial.senders.len();
            (0..10).for_each(|_| trial.burst());
            trial.run_for(Time::from_secs(120));
            trial.check_order();
            if long {
                // After a merge all is as before.
                trial.senders.drain(..0);
                let logs: Vec<_> = (0..6).map(|node| trial.delivered(node)).collect();
                for (sender, record) in trial.senders.iter().enumerate().skip(first) {
                    for &(node, _) in &record.to {
                        let sent = trial.net.senders[sender].sent as usize;
                        let got = logs[node].get(&(sender as u32)).map_or(0, Vec::len);
                        assert_eq!(got, sent, "seed {seed}: node {node}, sender {sender}");
                    }
                }
            } else {
                trial.check_complete();
            }
            let kept: u64 =
                trial.net.daemons.iter().flatten().map(|d| d.snapshot().retained + d.snapshot().held).sum();
            assert_eq!(kept, 0, "seed {seed}");
        }
    }
}

/// A sender to a daemon that is gone for good waits for it no longer than patience, whatever is
/// kept.
#[test]
fn nobody_waits_for_the_dead_longer_than_patience() {
    let config = Config { retain: tollway_law::Bytes(100_000), ..Config::default() };
    let mut net = row(3, config, 7);
    net.sender(net.now, 0, &[1, 2], 900, u32::MAX, TenantConfig::default());
    net.run(Time::from_secs(5));
    net.kill(2);
    net.run(Time::from_secs(10));
    let blocked = net.senders[0].sent;
    net.run(Time::from_secs(12));
    assert!(net.senders[0].sent - blocked < 30, "the cap holds while the daemon may come back");
    net.run(Time::from_secs(20));
    let after = net.senders[0].sent;
    assert!(after > blocked + 500, "{after} after {blocked}");
    assert!(net.daemons[0].as_ref().unwrap().snapshot().expired > 0);
}
