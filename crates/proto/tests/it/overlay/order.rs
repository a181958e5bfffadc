//! Agreed order: whatever links and daemons fail, any two members deliver common messages in one
//! order.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tollway_law::{Rate, Time};
use tollway_proto::overlay::{ClientId, Config, DaemonId, Event, TenantConfig};

use super::net::{Message, Net};
use super::{Random, row};

const GROUP: &[u8] = b"ledger";

/// A message's number, and its place: the view, and the number there.
type Placed = (u32, u64, u64);

/// Members of one group, what they have sent, and what each has delivered.
struct Trial {
    net: Net,
    random: Random,
    seed: u64,
    /// By node: its start, and a client.
    members: Vec<(u64, ClientId)>,
    sent: u32,
    /// By node and start: messages sent, delivered and given back, in order.
    own: BTreeMap<(usize, u64), Vec<u32>>,
    delivered: BTreeMap<(usize, u64), Vec<Placed>>,
    back: BTreeMap<(usize, u64), Vec<u32>>,
    /// By node, the members of its last view.
    views: BTreeMap<usize, Vec<u32>>,
}

impl Trial {
    fn over(mut net: Net, seed: u64) -> Trial {
        let nodes = net.daemons.len();
        let members = (0..nodes).map(|node| (1, join(&mut net, node))).collect();
        Trial {
            net,
            random: Random(seed),
            seed,
            members,
            sent: 0,
            own: BTreeMap::new(),
            delivered: BTreeMap::new(),
            back: BTreeMap::new(),
            views: BTreeMap::new(),
        }
    }

    /// A ring with chords.
    fn ring(nodes: usize, seed: u64) -> Trial {
        let config = Config { patience: Time::from_secs(3), ..Config::default() };
        let mut net = Net::new(nodes, config, seed);
        for node in 0..nodes {
            net.link(node, (node + 1) % nodes, Rate::from_mbps(2.0), Time::from_millis(5 + node as u64));
        }
        for node in 0..nodes / 2 {
            net.link(node, node + nodes / 2, Rate::from_mbps(1.0), Time::from_millis(20));
        }
        let mut trial = Trial::over(net, seed);
        trial.run_for(Time::from_secs(2));
        trial
    }

    /// Sends a message from a node; false while its group has no view there.
    fn send(&mut self, node: usize) -> bool {
        let Some(daemon) = self.net.daemons[node].as_mut() else { return false };
        let message = Message { sender: node as u32, number: self.sent, size: 300 };
        let (start, client) = self.members[node];
        if !daemon.submit(self.net.now, client, GROUP, message) {
            return false;
        }
        self.own.entry((node, start)).or_default().push(self.sent);
        self.sent += 1;
        self.net.pump(node);
        true
    }

    fn burst(&mut self) {
        let node = self.random.below(self.members.len());
        (0..1 + self.random.below(6)).for_each(|_| _ = self.send(node));
    }

    fn run_for(&mut self, span: Time) {
        self.net.run(self.net.now + span);
        self.collect();
    }

    /// Takes what members have delivered and got back, and their views.
    fn collect(&mut self) {
        for node in 0..self.members.len() {
            let at = (node, self.members[node].0);
            let log = std::mem::take(&mut self.net.log[node]);
            self.delivered.entry(at).or_default().extend(log.into_iter().map(|delivery| {
                let place = delivery.place.expect("all messages have a place");
                assert_eq!(&*place.group, GROUP);
                (delivery.body.number, place.view, place.number)
            }));
            let Some(daemon) = self.net.daemons[node].as_mut() else { continue };
            while let Some((_, message)) = daemon.poll_unordered() {
                self.back.entry(at).or_default().push(message.number);
            }
        }
        for (node, event) in std::mem::take(&mut self.net.events) {
            if let Event::View { members, .. } = event {
                self.views.insert(node, members.iter().map(|id: &DaemonId| id.0).collect());
            }
        }
    }

    fn raise_all(&mut self) {
        (0..self.net.links.len()).step_by(2).for_each(|link| self.net.raise(link));
    }

    fn kill(&mut self, node: usize) {
        self.collect();
        self.net.kill(node);
    }

    fn restart(&mut self, node: usize) {
        let start = self.members[node].0 + 1;
        self.net.start(node, start);
        self.members[node] = (start, join(&mut self.net, node));
        self.raise_all();
    }

    /// Any two logs have their common messages in one order; each has a message once, and each
    /// sender's in the order in which they were sent.
    fn check_order(&self) {
        let seed = self.seed;
        for (a, log) in &self.delivered {
            let place: HashMap<u32, usize> = log.iter().enumerate().map(|(at, m)| (m.0, at)).collect();
            assert_eq!(place.len(), log.len(), "seed {seed}: a message twice at {a:?}");
            let ascending = log.windows(2).all(|pair| (pair[0].1, pair[0].2) < (pair[1].1, pair[1].2));
            assert!(ascending, "seed {seed}: places at {a:?}");
            for (b, other) in &self.delivered {
                let common: Vec<usize> = other.iter().filter_map(|m| place.get(&m.0).copied()).collect();
                assert!(common.windows(2).all(|pair| pair[0] < pair[1]), "seed {seed}: {a:?} and {b:?}");
            }
            for own in self.own.values() {
                let of: BTreeSet<u32> = own.iter().copied().collect();
                let numbers: Vec<u32> = log.iter().map(|m| m.0).filter(|n| of.contains(n)).collect();
                assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "seed {seed}: FIFO at {a:?}");
            }
        }
    }

    /// A living member has delivered each of its messages, or got it back; the latter only with
    /// failures.
    fn check_settled(&self, losses: bool) {
        for (&(node, start), own) in &self.own {
            if !self.net.alive(node) || self.members[node].0 != start {
                continue;
            }
            let delivered: BTreeSet<u32> = self.delivered[&(node, start)].iter().map(|m| m.0).collect();
            let back: BTreeSet<u32> = self.back.get(&(node, start)).into_iter().flatten().copied().collect();
            assert!(losses || back.is_empty(), "seed {}: {back:?} came back", self.seed);
            for number in own {
                let both = u8::from(delivered.contains(number)) + u8::from(back.contains(number));
                assert_eq!(both, 1, "seed {}: {number} of {node}", self.seed);
            }
        }
    }

    /// With the network whole again, all living members are in one view, and all deliver the same.
    fn check_together(&mut self) {
        let nodes = self.members.len();
        let living: Vec<usize> = (0..nodes).filter(|&node| self.net.alive(node)).collect();
        let all: Vec<u32> = living.iter().map(|&node| node as u32).collect();
        for &node in &living {
            assert_eq!(self.views.get(&node), Some(&all), "seed {}: view of {node}", self.seed);
        }
        let first = self.sent;
        for &node in living.iter().chain(&living) {
            assert!(self.send(node), "seed {}: {node} has no view", self.seed);
        }
        self.run_for(Time::from_secs(20));
        let last = |node: usize| -> Vec<u32> {
            let log = &self.delivered[&(node, self.members[node].0)];
            log.iter().map(|m| m.0).filter(|&number| number >= first).collect()
        };
        let expected = last(living[0]);
        assert_eq!(expected.len() as u32, self.sent - first, "seed {}", self.seed);
        assert!(living.iter().all(|&node| last(node) == expected), "seed {}", self.seed);
    }
}

/// Joins the group, and adds a client.
fn join(net: &mut Net, node: usize) -> ClientId {
    let now = net.now;
    let daemon = net.daemons[node].as_mut().expect("the daemon lives");
    assert!(daemon.join_ordered(now, GROUP));
    let tenant = daemon.add_tenant(now, TenantConfig::default());
    let client = daemon.add_client(now, tenant);
    net.pump(node);
    client
}

#[test]
fn all_members_deliver_in_the_sequencers_order() {
    let mut trial = Trial::over(row(4, Config::default(), 1), 1);
    trial.run_for(Time::from_secs(1));
    for round in 0..50 {
        for node in 0..4 {
            assert!(trial.send((node + round) % 4));
        }
        trial.run_for(Time::from_millis(7));
    }
    trial.run_for(Time::from_secs(10));
    trial.check_order();
    trial.check_settled(false);
    let logs: Vec<_> = trial.delivered.values().collect();
    assert!(logs.iter().all(|log| log.len() == 200 && *log == logs[0]));
    trial.check_together();
}

#[test]
fn members_that_come_and_go_make_views_and_lose_nothing() {
    let mut net = row(4, Config::default(), 2);
    let first = join(&mut net, 1);
    net.run(net.now + Time::from_secs(1));
    let daemon = |net: &mut Net, node: usize, number: u32| {
        let daemon = net.daemons[node].as_mut().unwrap();
        assert!(daemon.submit(net.now, first, GROUP, Message { sender: 1, number, size: 300 }));
        net.pump(node);
    };
    (0..5).for_each(|number| daemon(&mut net, 1, number));
    // The sequencer changes while messages are under way: node 0 is less than node 1.
    join(&mut net, 0);
    join(&mut net, 3);
    for number in 5..200 {
        let now = net.now;
        let ready = net.daemons[1].as_mut().unwrap().ordered_set(GROUP).is_some();
        if ready {
            daemon(&mut net, 1, number);
        }
        net.run(now + Time::from_millis(10));
    }
    net.daemons[0].as_mut().unwrap().leave_ordered(net.now, GROUP);
    net.pump(0);
    net.run(net.now + Time::from_secs(5));
    let views: Vec<(usize, Vec<u32>)> = net
        .events
        .iter()
        .filter_map(|(node, event)| match event {
            Event::View { members, .. } => Some((*node, members.iter().map(|id| id.0).collect())),
            _ => None,
        })
        .collect();
    assert_eq!(
        views.iter().filter(|(node, _)| *node == 1).map(|(_, members)| members.clone()).collect::<Vec<_>>(),
        [vec![1], vec![0, 1, 3], vec![1, 3]]
    );
    assert!(net.daemons[1].as_mut().unwrap().poll_unordered().is_none());
    let numbers = |node: usize| net.log[node].iter().map(|d| d.body.number).collect::<Vec<_>>();
    let (one, three) = (numbers(1), numbers(3));
    assert!(one.len() > 150 && one.windows(2).all(|pair| pair[0] < pair[1]), "{}", one.len());
    assert!(one.ends_with(&three) && three.len() > 100, "{} {}", one.len(), three.len());
}

/// Links are cut until parts of the network are alone for longer than patience, and meet again.
#[test]
fn parts_and_merges_keep_one_order() {
    for seed in 0..24 {
        let mut trial = Trial::ring(6, seed);
        let links = trial.net.links.len() / 2;
        for _ in 0..12 {
            for _ in 0..trial.random.below(8) {
                trial.net.cut(2 * trial.random.below(links));
            }
            for _ in 0..trial.random.below(12) {
                (0..3).for_each(|_| trial.burst());
                let span = Time::from_millis(trial.random.below(1500) as u64);
                trial.run_for(span);
            }
            trial.raise_all();
            for _ in 0..trial.random.below(6) {
                (0..3).for_each(|_| trial.burst());
                let span = Time::from_millis(trial.random.below(600) as u64);
                trial.run_for(span);
            }
        }
        trial.run_for(Time::from_secs(90));
        trial.check_order();
        trial.check_settled(true);
        trial.check_together();
        trial.check_order();
    }
}

/// Daemons, sequencers among them, die and start again, while links fail.
#[test]
fn the_death_of_sequencers_keeps_one_order() {
    for seed in 100..124 {
        let mut trial = Trial::ring(6, seed);
        let links = trial.net.links.len() / 2;
        for _ in 0..8 {
            let node = trial.random.below(3);
            (0..6).for_each(|_| trial.burst());
            let span = Time::from_millis(trial.random.below(300) as u64);
            trial.run_for(span);
            if trial.net.alive(node) {
                trial.kill(node);
            }
            if trial.random.below(3) == 0 {
                trial.net.cut(2 * trial.random.below(links));
            }
            for _ in 0..trial.random.below(15) {
                (0..3).for_each(|_| trial.burst());
                let span = Time::from_millis(trial.random.below(1500) as u64);
                trial.run_for(span);
            }
            trial.raise_all();
            if !trial.net.alive(node) && trial.random.below(3) > 0 {
                trial.restart(node);
            }
        }
        trial.run_for(Time::from_secs(90));
        trial.check_order();
        trial.check_settled(true);
        trial.check_together();
        trial.check_order();
    }
}
