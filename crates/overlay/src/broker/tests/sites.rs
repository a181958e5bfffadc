//! Clients of two sites.

use tollway_law::Rate;
use tollway_proto::overlay::{Config, DaemonId, Epoch, LinkConfig};

use super::*;

/// Two sites with a link between them.
struct Pair {
    sites: [Site; 2],
    ports: [tollway_proto::overlay::PortId; 2],
}

impl Pair {
    fn new(rules: impl Fn(&str) -> SiteRules) -> Pair {
        let mut sites = [Site::new(rules("a")), Site::new(rules("b"))];
        let mut ports = Vec::new();
        for (i, site) in sites.iter_mut().enumerate() {
            let config = Config { id: DaemonId(i as u32 + 1), epoch: Epoch(1), ..Config::default() };
            site.broker.join_sites(site.now, config, 7);
            let link = LinkConfig { peer: DaemonId(2 - i as u32), weight: 1, rate: Rate::from_mbps(20.0) };
            ports.push(site.broker.daemon().unwrap().open(site.now, link));
        }
        let mut pair = Pair { sites, ports: [ports[0], ports[1]] };
        pair.run(Time::from_secs(1));
        pair
    }

    /// Lets time pass. Each link carries up to 20 kB per step of 8 ms.
    fn run(&mut self, span: Time) {
        let end = self.sites[0].now + span;
        while self.sites[0].now < end {
            let now = self.sites[0].now + Time::from_millis(8);
            for i in 0..2 {
                let (one, other) = self.sites.split_at_mut(1);
                let (from, to) =
                    if i == 0 { (&mut one[0], &mut other[0]) } else { (&mut other[0], &mut one[0]) };
                from.now = now;
                from.broker.settle(now);
                let mut carried = 0;
                while carried < 20_000
                    && let Some(frame) = from.broker.daemon().unwrap().poll_message(now, self.ports[i])
                {
                    carried += frame.size();
                    to.broker.daemon().unwrap().handle_message(now, self.ports[1 - i], frame).unwrap();
                }
                to.broker.settle(now);
            }
        }
    }
}

#[test]
fn messages_reach_other_sites_and_queue_groups_one_member() {
    let mut pair = Pair::new(SiteRules::open);
    let far = pair.sites[1].client(hello());
    pair.sites[1].say(far, "SUB a.* 1\r\nSUB work q 2\r\n");
    let near = pair.sites[0].client(hello());
    pair.run(Time::from_millis(200));
    pair.sites[0].say(
        near,
        "SUB r 1\r\nPUB a.b r 2\r\nhi\r\nHPUB a.c 12 12\r\nNATS/1.0\r\n\r\n\r\nPUB work 1\r\nx\r\n",
    );
    pair.run(Time::from_millis(500));
    let heard = pair.sites[1].hears(far);
    assert_eq!(heard, "MSG a.b 1 r 2\r\nhi\r\nHMSG a.c 1 12 12\r\nNATS/1.0\r\n\r\n\r\nMSG work 2 1\r\nx\r\n");
    pair.sites[1].say(far, "PUB r 2\r\nyo\r\n");
    // A member at this site has precedence over members at other sites.
    pair.sites[0].say(near, "SUB work q 9\r\nPUB work 1\r\nx\r\n");
    pair.run(Time::from_millis(500));
    assert_eq!(pair.sites[0].hears(near), "MSG work 9 1\r\nx\r\nMSG r 1 2\r\nyo\r\n");
    assert_eq!(pair.sites[1].hears(far), "");
    pair.sites[1].say(far, "UNSUB 1\r\n");
    pair.run(Time::from_millis(200));
    pair.sites[0].say(near, "SUB inbox 7\r\nPUB a.b inbox 0\r\n\r\n");
    assert!(pair.sites[0].hears(near).contains("503"));
}

#[test]
fn consecutive_messages_to_the_same_sites_are_one_on_a_link() {
    let mut pair = Pair::new(SiteRules::open);
    let far = pair.sites[1].client(hello());
    pair.sites[1].say(far, "SUB a.* 1\r\nSUB work q 2\r\n");
    let near = pair.sites[0].client(hello());
    pair.run(Time::from_millis(200));
    let plain = |i: usize| (format!("PUB a.{i} 1\r\nx\r\n"), format!("MSG a.{i} 1 1\r\nx\r\n"));
    let (first, last) = ((0..40).map(plain), (40..50).map(plain));
    let work = ("PUB work 1\r\nx\r\n".to_owned(), "MSG work 2 1\r\nx\r\n".to_owned());
    let (sent, heard): (String, String) = first.chain([work]).chain(last).unzip();
    pair.sites[0].say(near, &sent);
    // The message to a queue group can be recalled alone.
    assert_eq!(pair.sites[0].broker.daemon().unwrap().backlog(pair.ports[0]).1, 3);
    pair.run(Time::from_millis(200));
    assert_eq!(pair.sites[1].hears(far), heard);
    assert_eq!(pair.sites[1].broker.status().received, 51);
    // A batch has a limit.
    pair.sites[0].say(near, &format!("PUB a.b 1000\r\n{}\r\n", "x".repeat(1000)).repeat(20));
    let (bytes, messages) = pair.sites[0].broker.daemon().unwrap().backlog(pair.ports[0]);
    assert!(bytes > 20_000 && messages == 3, "{bytes} {messages}");
}

/// The message bodies in a client's input.
fn bodies(heard: &str) -> Vec<&str> {
    heard.lines().filter(|line| line.starts_with(['x', 'y', '{'])).collect()
}

#[test]
fn all_sites_have_an_ordered_subjects_messages_in_one_order() {
    let mut pair = Pair::new(SiteRules::open);
    let near = pair.sites[0].client(hello());
    pair.sites[0].say(near, "SUB $TOLL.order.book 1\r\nSUB $TOLL.view.book 2\r\n");
    pair.run(Time::from_secs(1));
    let far = pair.sites[1].client(hello());
    pair.sites[1].say(far, "SUB $TOLL.order.book 1\r\n");
    pair.run(Time::from_secs(1));
    // Only messages to exactly this subject arrive, and `>` does not match it.
    pair.sites[1].say(far, "SUB > 9\r\nPUB book 1\r\nz\r\n");
    let views = pair.sites[0].hears(near);
    assert_eq!(bodies(&views), ["{\"view\":1,\"sites\":[1]}", "{\"view\":2,\"sites\":[1, 2]}"]);
    pair.sites[0].say(near, "SUB $TOLL.view.book 3\r\n");
    assert_eq!(bodies(&pair.sites[0].hears(near)), ["{\"view\":2,\"sites\":[1, 2]}"]);
    for i in 0..50 {
        pair.sites[0].say(near, &format!("PUB $TOLL.order.book 3\r\nx{i:02}\r\n"));
        pair.sites[1].say(far, &format!("PUB $TOLL.order.book 3\r\ny{i:02}\r\n"));
        pair.run(Time::from_millis(8));
    }
    pair.run(Time::from_secs(2));
    let (a, b) = (pair.sites[0].hears(near), pair.sites[1].hears(far));
    assert_eq!(bodies(&a).len(), 100, "{a}");
    assert_eq!(bodies(&a), bodies(&b)[..]);
    let places: Vec<String> = (1..=100).map(|number| format!("Toll-Order: 2.{number}")).collect();
    let heard: Vec<&str> = b.lines().filter(|line| line.starts_with("Toll-Order")).collect();
    assert_eq!(heard, places);
    // Headers stay.
    pair.sites[1].say(far, "HPUB $TOLL.order.book 18 19\r\nNATS/1.0\r\nk: v\r\n\r\nx\r\n");
    pair.run(Time::from_secs(1));
    let heard = pair.sites[0].hears(near);
    assert!(heard.contains("NATS/1.0\r\nk: v\r\nToll-Order: 2.101\r\n\r\nx\r\n"), "{heard}");
}

#[test]
fn a_publisher_without_subscription_takes_part_while_it_is_connected() {
    let mut pair = Pair::new(SiteRules::open);
    let far = pair.sites[1].client(hello());
    pair.sites[1].say(far, "SUB $TOLL.order.book 1\r\nSUB $TOLL.view.book 2\r\n");
    pair.run(Time::from_secs(1));
    let near = pair.sites[0].client(hello());
    // It waits for its site's first view.
    let text = "PUB $TOLL.order.book 2\r\nx1\r\n";
    assert_eq!(pair.sites[0].say(near, text).then, Then::Wait);
    pair.run(Time::from_secs(1));
    assert_eq!(pair.sites[0].broker.take_runnable(), Some(near));
    pair.sites[0].say(near, text);
    pair.run(Time::from_secs(1));
    let heard = pair.sites[1].hears(far);
    assert_eq!(
        bodies(&heard),
        ["{\"view\":1,\"sites\":[2]}", "{\"view\":2,\"sites\":[1, 2]}", "x1"],
        "{heard}"
    );
    pair.sites[0].broker.remove(near);
    pair.run(Time::from_secs(1));
    assert_eq!(bodies(&pair.sites[1].hears(far)), ["{\"view\":3,\"sites\":[2]}"]);
}

#[test]
fn a_lost_place_is_told_to_the_publishers_site() {
    let mut pair = Pair::new(|site| SiteRules { patience: Time::from_secs(1), ..SiteRules::open(site) });
    let far = pair.sites[1].client(hello());
    pair.sites[1].say(far, "SUB $TOLL.order.book 1\r\nSUB $TOLL.lost.book 2\r\n");
    let near = pair.sites[0].client(hello());
    pair.sites[0].say(near, "SUB $TOLL.order.book 1\r\n");
    pair.run(Time::from_secs(1));
    // The sequencer's site ends before it has the message.
    pair.sites[1].say(far, "PUB $TOLL.order.book 2\r\nx1\r\n");
    let site = &mut pair.sites[1];
    site.broker.daemon().unwrap().close(site.now, pair.ports[1]);
    for _ in 0..12_000 {
        site.now += Time::from_millis(8);
        let now = site.now;
        site.broker.settle(now);
    }
    let heard = site.hears(far);
    assert!(heard.contains("MSG $TOLL.lost.book 2 2\r\nx1\r\n"), "{heard}");
    assert!(site.say(far, "PUB $TOLL.order.book 2\r\nx2\r\n").then != Then::Wait);
    site.broker.settle(site.now);
    let heard = site.hears(far);
    assert!(heard.contains(".1\r\n\r\nx2\r\n"), "{heard}");
}

#[test]
fn ordered_subjects_have_no_wildcards_and_no_queue_groups() {
    let mut site = open();
    let client = site.client(hello());
    for text in ["SUB $TOLL.order.> 1\r\n", "SUB $TOLL.order.a q 1\r\n", "SUB $TOLL.view.* 1\r\n"] {
        site.say(client, text);
        assert!(site.hears(client).contains("Invalid Subject"), "{text}");
    }
    site.say(client, "PUB $TOLL.view.a 0\r\n\r\n");
    assert!(site.hears(client).contains("Permissions Violation"));
    // A single site has one order and no views.
    site.say(client, "SUB $TOLL.order.a 1\r\nPUB $TOLL.order.a 1\r\nx\r\n");
    assert_eq!(site.hears(client), "MSG $TOLL.order.a 1 1\r\nx\r\n");
}

/// Messages sent to a slow group and to another one, each offered at 4 Mb/s over 16 s.
#[derive(Debug)]
struct Outcome {
    slow: usize,
    other: usize,
    heard: Vec<usize>,
    waiting: usize,
    cut: bool,
}

/// Runs two subscriptions at the far site: `a` reads `reads` bytes per step of 8 ms, `b` reads at
/// once.
///
/// In the end all waiting messages are read.
fn contend(pattern: &str, reads: usize) -> Outcome {
    let rules = |site: &str| SiteRules {
        buffer: 64 << 10,
        spool: 1 << 30,
        patience: Time::from_secs(5),
        ..SiteRules::open(site)
    };
    let mut pair = Pair::new(rules);
    let (slow, fast) = (pair.sites[1].client(hello()), pair.sites[1].client(hello()));
    pair.sites[1].say(slow, &format!("SUB {pattern} 1\r\n"));
    pair.sites[1].say(fast, "SUB b 1\r\n");
    let senders = [pair.sites[0].client(hello()), pair.sites[0].client(hello())];
    pair.run(Time::from_millis(200));
    let mut disk = HashMap::new();
    let (mut sent, mut waits, mut heard) = ([0; 2], [false; 2], Vec::new());
    let mut waiting = 0;
    for step in 0..4000 {
        while let Some(key) = pair.sites[0].broker.take_runnable() {
            waits[senders.iter().position(|&one| one == key).unwrap()] = false;
        }
        for (i, subject) in ["a", "b"].into_iter().enumerate().filter(|_| step < 2000) {
            for _ in 0..4 {
                if waits[i] {
                    break;
                }
                let text = format!("PUB {subject} 1000\r\n{:01000}\r\n", sent[i]);
                let received = pair.sites[0].say(senders[i], &text);
                waits[i] = received.then == Then::Wait;
                sent[i] += usize::from(received.used > 0);
            }
        }
        pair.run(Time::from_millis(8));
        let far = &mut pair.sites[1];
        while let Some(command) = far.broker.take_spool_command() {
            let answer = match command {
                SpoolCommand::Store(number, bytes) => {
                    disk.insert(number, bytes);
                    SpoolAnswer::Stored(number)
                }
                SpoolCommand::Load(number) => SpoolAnswer::Loaded(number, disk.remove(&number).unwrap()),
                SpoolCommand::Forget(_) => continue,
            };
            far.broker.spool_answered(far.now, answer);
        }
        waiting = waiting.max(far.broker.sessions[slow].out.len());
        heard.extend(far.takes(slow, if step < 2000 || reads == 0 { reads } else { usize::MAX }));
        far.hears(fast);
        far.broker.tick(far.now);
    }
    let cut = pair.sites[1].broker.why(slow).is_some();
    let heard = numbers(&String::from_utf8(heard).unwrap());
    assert_eq!(heard, (0..heard.len()).collect::<Vec<_>>());
    Outcome { slow: sent[0], other: sent[1], heard, waiting, cut }
}

#[test]
fn slow_receivers_at_other_sites_harm_their_own_senders_only() {
    let base = contend("a", usize::MAX);
    assert!(base.slow > 7000 && base.other > 7000 && !base.cut, "{} {}", base.slow, base.other);
    assert_eq!(base.heard.len(), base.slow);
    // 100 kB/s: its senders are slowed to this rate, and nothing is lost.
    let price = contend("a", 800);
    assert!(price.other * 100 >= base.other * 98, "{} of {}", price.other, base.other);
    assert!(
        (1000..4000).contains(&price.slow) && price.waiting < 4 << 20,
        "{} {}",
        price.slow,
        price.waiting
    );
    assert!(price.heard.len() == price.slow && !price.cut, "{} of {}", price.heard.len(), price.slow);
    // The same with a disk: its senders are not slowed.
    let spool = contend("$TOLL.spool.a", 800);
    assert!(spool.other * 100 >= base.other * 98, "{} of {}", spool.other, base.other);
    assert!(spool.slow * 100 >= base.slow * 90, "{} of {}", spool.slow, base.slow);
    assert!(spool.heard.len() == spool.slow && !spool.cut, "{} of {}", spool.heard.len(), spool.slow);
    // A receiver that stops is disconnected, and its senders resume.
    let dead = contend("a", 0);
    assert!(dead.cut && dead.slow * 2 > base.slow, "{} of {}", dead.slow, base.slow);
    assert!(dead.other * 100 >= base.other * 98, "{} of {}", dead.other, base.other);
}
