//! Sites that end or fail: queue groups, requests, and what is counted as lost.

use tollway_law::Rate;
use tollway_proto::overlay::{Config, DaemonId, Epoch, LinkConfig, PortId};

use super::*;

/// Sites in a chain: 0 – 1 – 2.
struct Chain {
    sites: Vec<Option<Site>>,
    /// Ports of link `i`, between the sites `i` and `i + 1`; `None` while it is cut.
    links: Vec<Option<[PortId; 2]>>,
    now: Time,
}

impl Chain {
    fn new(count: usize) -> Chain {
        let mut chain = Chain {
            sites: (0..count).map(|_| None).collect(),
            links: vec![None; count - 1],
            now: Time::ZERO,
        };
        (0..count).for_each(|at| chain.start(at, 1));
        (0..count - 1).for_each(|at| chain.link(at));
        chain.run(Time::from_secs(1));
        chain
    }

    fn start(&mut self, at: usize, epoch: u64) {
        // Receivers here are read at the end only.
        let rules = SiteRules { patience: Time::from_secs(600), ..SiteRules::open(&format!("s{at}")) };
        let mut site = Site::new(rules);
        let config = Config {
            id: DaemonId(at as u32),
            epoch: Epoch(epoch),
            patience: Time::from_secs(5),
            ack: Some(Time::from_millis(100)),
            ..Config::default()
        };
        site.broker.join_sites(self.now, config, 7 + at as u64);
        self.sites[at] = Some(site);
    }

    fn link(&mut self, at: usize) {
        let now = self.now;
        let mut open = |at: usize, peer: usize| {
            let link = LinkConfig { peer: DaemonId(peer as u32), weight: 1, rate: Rate::from_mbps(20.0) };
            self.sites[at].as_mut().unwrap().broker.daemon().unwrap().open(now, link)
        };
        self.links[at] = Some([open(at, at + 1), open(at + 1, at)]);
    }

    /// Cuts a link. Both ends learn of it at once.
    fn cut(&mut self, at: usize) {
        let Some(ports) = self.links[at].take() else { return };
        for (end, port) in [at, at + 1].into_iter().zip(ports) {
            if let Some(site) = &mut self.sites[end] {
                site.broker.daemon().unwrap().close(self.now, port);
            }
        }
    }

    /// Kills the last site.
    fn kill_last(&mut self) {
        let last = self.sites.len() - 1;
        self.sites[last] = None;
        self.cut(last - 1);
    }

    fn site(&mut self, at: usize) -> &mut Site {
        self.sites[at].as_mut().unwrap()
    }

    fn lost(&mut self, at: usize) -> Losses {
        self.site(at).broker.status().lost
    }

    /// Lets time pass. Each link carries up to 20 kB per step of 8 ms.
    fn run(&mut self, span: Time) {
        let end = self.now + span;
        while self.now < end {
            self.now += Time::from_millis(8);
            let now = self.now;
            for site in self.sites.iter_mut().flatten() {
                site.now = now;
                site.broker.settle(now);
            }
            for at in 0..self.links.len() {
                let Some(ports) = self.links[at] else { continue };
                for (from, to) in [(0, 1), (1, 0)] {
                    let mut carried = 0;
                    while carried < 20_000 {
                        let daemon = self.sites[at + from].as_mut().unwrap().broker.daemon().unwrap();
                        let Some(frame) = daemon.poll_message(now, ports[from]) else { break };
                        carried += frame.size();
                        let daemon = self.sites[at + to].as_mut().unwrap().broker.daemon().unwrap();
                        daemon.handle_message(now, ports[to], frame).unwrap();
                    }
                }
            }
            for site in self.sites.iter_mut().flatten() {
                site.broker.settle(now);
                if now.0.is_multiple_of(broker_tick().0) {
                    site.broker.tick(now);
                }
            }
        }
    }

    fn publish(&mut self, from: usize, count: usize) {
        for i in 0..count {
            let text = format!("PUB work 4\r\n{i:04}\r\n");
            while self.site(0).say(from, &text).used == 0 {
                // The link's price has the publisher wait.
                while self.site(0).broker.take_runnable() != Some(from) {
                    self.run(Time::from_millis(8));
                }
            }
            if i % 50 == 49 {
                self.run(Time::from_millis(8));
            }
        }
    }
}

/// A multiple of the step.
fn broker_tick() -> Time {
    Time::from_millis(104)
}

fn jobs(heard: &str) -> usize {
    heard.matches("MSG work ").count()
}

/// A chain with a publisher at the first site, and a member of a queue group at each other one.
fn group_of_two() -> (Chain, usize, [usize; 2]) {
    let mut chain = Chain::new(3);
    let members = [1, 2].map(|at| {
        let key = chain.site(at).client(hello());
        chain.site(at).say(key, "SUB work q 1\r\nSUB service q 2\r\n");
        key
    });
    let from = chain.site(0).client(hello());
    chain.site(0).say(from, "SUB inbox.* 1\r\n");
    chain.run(Time::from_millis(500));
    (chain, from, members)
}

#[test]
fn queue_groups_choose_among_reachable_sites() {
    let (mut chain, from, members) = group_of_two();
    chain.publish(from, 1000);
    chain.run(Time::from_secs(1));
    let heard = [jobs(&chain.site(1).hears(members[0])), jobs(&chain.site(2).hears(members[1]))];
    assert!(heard[0] + heard[1] == 1000 && heard[0].min(heard[1]) > 400, "{heard:?}");
    chain.kill_last();
    chain.run(Time::from_millis(200));
    for span in [1, 10, 20] {
        chain.publish(from, 1000);
        chain.run(Time::from_secs(span));
        assert_eq!(jobs(&chain.site(1).hears(members[0])), 1000);
    }
    assert_eq!(chain.lost(0), Losses::default());
}

#[test]
fn messages_in_flight_to_a_site_that_fails_are_drawn_again() {
    let (mut chain, from, members) = group_of_two();
    // Half of these are drawn for the last site, and none has left.
    for i in 0..100 {
        chain.site(0).say(from, &format!("PUB work 4\r\n{i:04}\r\n"));
    }
    chain.kill_last();
    chain.run(Time::from_secs(1));
    assert_eq!(jobs(&chain.site(1).hears(members[0])), 100);
    assert_eq!(chain.lost(0).total(), 0);
}

#[test]
fn a_site_that_returns_within_patience_gets_what_nobody_else_could() {
    let (mut chain, from, members) = group_of_two();
    let member = members[0];
    chain.site(1).say(member, "UNSUB 1\r\n");
    chain.run(Time::from_millis(200));
    chain.cut(1);
    chain.run(Time::from_millis(200));
    chain.publish(from, 50);
    chain.run(Time::from_secs(2));
    chain.link(1);
    chain.run(Time::from_secs(5));
    assert_eq!(jobs(&chain.site(2).hears(members[1])), 50);
    assert_eq!(chain.lost(0).total(), 0);
    // A message drawn again is not delivered here a second time.
    chain.site(1).say(member, "SUB work q 1\r\n");
    chain.run(Time::from_millis(200));
    for i in 0..100 {
        chain.site(0).say(from, &format!("PUB work 4\r\n{i:04}\r\n"));
    }
    chain.cut(1);
    chain.run(Time::from_secs(2));
    chain.link(1);
    chain.run(Time::from_secs(5));
    assert_eq!(jobs(&chain.site(1).hears(member)) + jobs(&chain.site(2).hears(members[1])), 100);
}

#[test]
fn requests_without_a_reachable_member_are_answered_at_once() {
    let (mut chain, from, members) = group_of_two();
    chain.site(1).broker.remove(members[0]);
    chain.run(Time::from_millis(200));
    // One request is in flight when the site fails.
    chain.site(0).say(from, "PUB service inbox.1 0\r\n\r\n");
    chain.kill_last();
    chain.run(Time::from_millis(200));
    chain.site(0).say(from, "PUB service inbox.2 0\r\n\r\n");
    assert!(chain.site(0).hears(from).starts_with("HMSG inbox.2 1 16 16\r\nNATS/1.0 503"));
    chain.run(Time::from_millis(700));
    assert!(chain.site(0).hears(from).starts_with("HMSG inbox.1 1 16 16\r\nNATS/1.0 503"));
    assert_eq!(chain.lost(0).no_destination, 1);
}

#[test]
fn losses_are_counted_with_the_publishers_tenant() {
    let (mut chain, from, members) = group_of_two();
    let plain = chain.site(2).client(hello());
    chain.site(2).say(plain, "SUB news 1\r\n");
    chain.site(1).broker.remove(members[0]);
    chain.run(Time::from_millis(200));
    chain.kill_last();
    chain.run(Time::from_millis(200));
    let text = "PUB news 0\r\n\r\nPUB news 0\r\n\r\nPUB work 1\r\nx\r\n";
    for _ in 0..20 {
        chain.site(0).say(from, text);
    }
    chain.run(Time::from_secs(10));
    let lost = |chain: &mut Chain| {
        let status = chain.site(0).broker.status();
        assert_eq!(status.tenants[0].lost, status.lost);
        (status.lost.expired, status.lost.no_destination)
    };
    assert_eq!(lost(&mut chain), (40, 20));
    // Messages after the end of patience are lost at once.
    chain.site(0).say(from, text);
    assert_eq!(lost(&mut chain), (42, 21));
}

#[test]
fn subscriptions_of_a_site_that_ends_are_withdrawn_at_once() {
    let (mut chain, from, members) = group_of_two();
    chain.publish(from, 20);
    let now = chain.now;
    chain.site(2).broker.retire(now);
    assert!(chain.site(2).hears(members[1]).contains("\"ldm\":true"));
    chain.run(Time::from_millis(100));
    // It still delivers what is in flight, and gets nothing new.
    let before = chain.site(2).broker.totals().delivered;
    chain.publish(from, 100);
    chain.run(Time::from_millis(500));
    assert_eq!(chain.site(2).broker.totals().delivered, before);
    chain.kill_last();
    chain.run(Time::from_secs(10));
    assert_eq!(jobs(&chain.site(1).hears(members[0])) as u64 + before, 120);
    let knows = |at: usize, chain: &mut Chain| chain.site(at).broker.status().lost.total();
    assert_eq!((knows(0, &mut chain), knows(1, &mut chain)), (0, 0));
}

#[test]
fn a_restart_ends_the_subscriptions_of_the_former_start() {
    let (mut chain, from, members) = group_of_two();
    chain.kill_last();
    chain.run(Time::from_millis(200));
    // The new start has no subscription.
    chain.start(2, 2);
    chain.link(1);
    chain.run(Time::from_secs(1));
    chain.publish(from, 100);
    chain.run(Time::from_secs(1));
    assert_eq!(jobs(&chain.site(1).hears(members[0])), 100);
    chain.site(1).broker.remove(members[0]);
    chain.run(Time::from_millis(200));
    chain.site(0).say(from, "PUB service inbox.2 0\r\n\r\n");
    assert!(chain.site(0).hears(from).contains("503"));
}

#[test]
fn clients_learn_the_addresses_of_reachable_sites() {
    let mut chain = Chain::new(3);
    let client = chain.site(0).client(hello());
    for at in 0..3 {
        chain.site(at).broker.advertise(&format!("10.0.0.{at}:4222"));
    }
    chain.run(Time::from_millis(500));
    let last = |heard: String| heard.lines().rfind(|line| line.starts_with("INFO")).unwrap().to_owned();
    let info = last(chain.site(0).hears(client));
    assert!(
        info.contains("\"connect_urls\":[\"10.0.0.0:4222\",\"10.0.0.1:4222\",\"10.0.0.2:4222\"]"),
        "{info}"
    );
    chain.kill_last();
    chain.run(Time::from_millis(500));
    let info = last(chain.site(0).hears(client));
    assert!(info.contains("\"connect_urls\":[\"10.0.0.0:4222\",\"10.0.0.1:4222\"]"), "{info}");
}
