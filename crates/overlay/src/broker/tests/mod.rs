//! Clients of one site, and of two, driven by hand.

mod failures;
mod kept;
mod sites;

use super::*;
use crate::rules::{Proof, Slow};

struct Site {
    broker: Broker,
    now: Time,
}

impl Site {
    fn new(rules: SiteRules) -> Site {
        Site { broker: Broker::new(rules, 1), now: Time::ZERO }
    }

    fn client(&mut self, hello: &str) -> usize {
        let key = self.broker.open(self.now, "[::7]:5000".into(), "127.0.0.1", 4222);
        self.say(key, hello);
        let info = self.hears(key);
        assert!(info.starts_with("INFO {") && info.contains("\"client_ip\":\"::7\""), "{info}");
        key
    }

    fn say(&mut self, key: usize, text: &str) -> Received {
        self.broker.receive(self.now, key, text.as_bytes())
    }

    /// Takes all output that waits for a client.
    fn hears(&mut self, key: usize) -> String {
        String::from_utf8(self.takes(key, usize::MAX)).unwrap()
    }

    fn takes(&mut self, key: usize, most: usize) -> Vec<u8> {
        let mut taken = Vec::new();
        while self.broker.has_outgoing(key) && taken.len() < most {
            let mut slices = [IoSlice::new(&[]); 8];
            let count = self.broker.outgoing(key, &mut slices);
            let before = taken.len();
            slices[..count].iter().for_each(|slice| taken.extend_from_slice(slice));
            taken.truncate(most.max(before));
            let len = taken.len() - before;
            self.broker.sent(self.now, key, len);
        }
        taken
    }
}

fn open() -> Site {
    Site::new(SiteRules::open("a"))
}

fn hello() -> &'static str {
    "CONNECT {\"headers\":true,\"no_responders\":true}\r\n"
}

#[test]
fn messages_reach_their_subscriptions() {
    let mut site = open();
    let (one, other) = (site.client(hello()), site.client(hello()));
    site.say(one, "SUB a.* 1\r\nSUB a.> 2\r\nSUB b 3\r\n");
    site.say(other, "PUB a.b 2\r\nhi\r\nPUB a.b.c r 0\r\n\r\nHPUB b 12 14\r\nNATS/1.0\r\n\r\nyo\r\nPUB none 1\r\nx\r\nPING\r\n");
    let mut heard = site.hears(one);
    assert!(heard.contains("MSG a.b 1 2\r\nhi\r\n"), "{heard}");
    assert!(heard.contains("MSG a.b 2 2\r\nhi\r\n"), "{heard}");
    assert!(heard.contains("MSG a.b.c 2 r 0\r\n\r\n"), "{heard}");
    assert!(heard.ends_with("HMSG b 3 12 14\r\nNATS/1.0\r\n\r\nyo\r\n"), "{heard}");
    assert_eq!(site.hears(other), "PONG\r\n");
    // A client without header support gets no headers.
    let plain = site.client("CONNECT {}\r\n");
    site.say(plain, "SUB b x\r\n");
    site.say(other, "HPUB b 12 14\r\nNATS/1.0\r\n\r\nyo\r\n");
    assert_eq!(site.hears(plain), "MSG b x 2\r\nyo\r\n");
    site.hears(one);
    // A subscription ends at once, or after a number of messages.
    site.say(one, "UNSUB 1\r\nUNSUB 2 4\r\n");
    site.say(other, "PUB a.b 1\r\n1\r\nPUB a.b 1\r\n2\r\nPUB a.b 1\r\n3\r\n");
    heard = site.hears(one);
    assert_eq!(heard, "MSG a.b 2 1\r\n1\r\nMSG a.b 2 1\r\n2\r\n");
    assert_eq!(site.broker.totals().published, 8);
    site.broker.remove(one);
    site.broker.remove(other);
    site.say(plain, "PUB b 1\r\nx\r\n");
    assert_eq!(site.hears(plain), "MSG b x 1\r\nx\r\n");
}

#[test]
fn one_of_a_queue_group_has_a_message() {
    let mut site = open();
    let keys: Vec<usize> = (0..3).map(|_| site.client(hello())).collect();
    for &key in &keys {
        site.say(key, "SUB work q 1\r\n");
    }
    site.say(keys[0], "SUB work 2\r\n");
    let sender = site.client(hello());
    for _ in 0..300 {
        site.say(sender, "PUB work 1\r\nx\r\n");
    }
    let counts: Vec<usize> = keys.iter().map(|&key| site.hears(key).matches("MSG work 1 ").count()).collect();
    assert_eq!(counts.iter().sum::<usize>(), 300);
    assert!(counts.iter().all(|&count| count > 60), "{counts:?}");
}

#[test]
fn requests_that_reach_nobody_are_answered() {
    let mut site = open();
    let asker = site.client(hello());
    site.say(asker, "SUB inbox.* 1\r\nPUB service inbox.7 0\r\n\r\n");
    assert_eq!(site.hears(asker), "HMSG inbox.7 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n");
    site.say(asker, "PUB $JS.API.STREAM.NAMES inbox.8 0\r\n\r\n");
    let heard = site.hears(asker);
    assert!(heard.starts_with("MSG inbox.8 1 ") && heard.contains("JetStream not enabled"), "{heard}");
    for (text, error) in [
        ("PUB $JS.API.INFO 0\r\n\r\n", "there is no JetStream here"),
        ("PUB $TOLL.drop.a 0\r\n\r\n", "Permissions Violation for Publish to \"$TOLL.drop.a\""),
        ("PUB a..b 0\r\n\r\n", "Invalid Publish Subject"),
        ("PUB a.* 0\r\n\r\n", "Invalid Publish Subject"),
        ("SUB a..b 9\r\n", "Invalid Subject"),
    ] {
        site.say(asker, text);
        let heard = site.hears(asker);
        assert!(heard.starts_with("-ERR '") && heard.contains(&error.replace('\'', " ")), "{text}: {heard}");
    }
    site.say(asker, "CONNECT {\"verbose\":true}\r\nSUB x 5\r\nPING\r\n");
    assert_eq!(site.hears(asker), "+OK\r\n+OK\r\nPONG\r\n");
}

#[test]
fn nonsense_closes_a_connection_and_nobody_elses() {
    for (text, why) in [
        ("GET / HTTP/1.1\r\n", "Unknown Protocol Operation"),
        ("PUB a 99999999\r\n", "Maximum Payload Violation"),
        ("CONNECT nonsense\r\n", "Parser Error"),
    ] {
        let mut site = open();
        let (other, bad) = (site.client(hello()), site.client(""));
        site.say(other, "SUB a 1\r\n");
        assert_eq!(site.say(bad, text).then, Then::Close, "{text}");
        assert_eq!(site.hears(bad), format!("-ERR '{why}'\r\n"));
        assert_eq!(site.broker.take_doomed(), Some(bad));
        assert_eq!(site.broker.why(bad), Some(why));
        site.broker.remove(bad);
        site.say(other, "PUB a 1\r\nx\r\n");
        assert_eq!(site.hears(other), "MSG a 1 1\r\nx\r\n");
    }
}

fn tenant(name: &str, proof: Proof) -> TenantRules {
    TenantRules { name: name.into(), proof, ..SiteRules::open("a").tenants[0].clone() }
}

fn secret(password: &str) -> Proof {
    Proof::Secret { password: Some(password.into()), token: Some(format!("token-{password}")) }
}

#[test]
fn tenants_hear_themselves_only_and_show_who_they_are() {
    let tenants = vec![tenant("x", secret("px")), tenant("y", secret("py")), tenant("z", Proof::Certificate)];
    let mut site = Site::new(SiteRules { tenants, ..SiteRules::open("a") });
    let x = site.client("CONNECT {\"user\":\"x\",\"pass\":\"px\"}\r\nSUB > 1\r\n");
    let y = site.client("CONNECT {\"auth_token\":\"token-py\"}\r\nSUB > 1\r\n");
    site.say(x, "PUB a 1\r\nx\r\n");
    assert_eq!((site.hears(x).as_str(), site.hears(y).as_str()), ("MSG a 1 1\r\nx\r\n", ""));
    for hello in [
        "PUB a 0\r\n\r\n",
        "CONNECT {}\r\n",
        "CONNECT {\"user\":\"x\",\"pass\":\"py\"}\r\n",
        "CONNECT {\"user\":\"x\",\"auth_token\":\"token-py\"}\r\n",
        "CONNECT {\"pass\":\"px\"}\r\n",
        "CONNECT {\"user\":\"z\"}\r\n",
    ] {
        let stranger = site.broker.open(site.now, "test".into(), "h", 1);
        assert_eq!(site.say(stranger, hello).then, Then::Close, "{hello}");
        assert!(site.hears(stranger).ends_with("-ERR 'Authorization Violation'\r\n"), "{hello}");
    }
    // A certificate admits only its tenant's clients.
    let z = site.broker.open(site.now, "test".into(), "h", 1);
    site.broker.certify(z, "z".into());
    assert_ne!(site.say(z, "CONNECT {}\r\nSUB a 1\r\n").then, Then::Close);
    let thief = site.broker.open(site.now, "test".into(), "h", 1);
    site.broker.certify(thief, "z".into());
    assert_eq!(site.say(thief, "CONNECT {\"user\":\"x\"}\r\n").then, Then::Close);
    // A changed password disconnects clients with the old one.
    let tenants = vec![tenant("x", secret("new")), tenant("y", secret("py"))];
    site.broker.set_rules(site.now, SiteRules { tenants, ..SiteRules::open("a") });
    assert!(site.broker.why(x).is_some() && site.broker.why(z).is_some() && site.broker.why(y).is_none());
}

#[test]
fn connections_and_subscriptions_have_limits() {
    let tenants = vec![TenantRules { connections: 2, subscriptions: 3, ..tenant("x", Proof::None) }];
    let mut site = Site::new(SiteRules { tenants: tenants.clone(), ..SiteRules::open("a") });
    let (one, two) = (site.client(hello()), site.client(hello()));
    let three = site.broker.open(site.now, "test".into(), "h", 1);
    assert_eq!(site.say(three, hello()).then, Then::Close);
    site.say(one, "SUB a 1\r\nSUB a 1\r\nSUB b 2\r\n");
    site.say(two, "SUB c 3\r\n");
    assert_eq!(site.hears(two), "");
    assert_eq!(site.say(two, "SUB d 4\r\n").then, Then::Close);
    assert!(site.hears(two).contains("maximum subscriptions exceeded"));
    // A lower limit closes the latest clients.
    site.broker.remove(two);
    let latest = site.client(hello());
    let fewer = vec![TenantRules { connections: 1, ..tenants[0].clone() }];
    site.broker.set_rules(site.now, SiteRules { tenants: fewer, ..SiteRules::open("a") });
    assert_eq!(site.hears(latest), "-ERR 'maximum account active connections exceeded'\r\n");
    assert_eq!(site.hears(one), "");
    assert_eq!(site.broker.why(one), None);
}

fn slow_site(slow: Slow, spool: u64) -> Site {
    let tenants = vec![TenantRules { slow, ..tenant("x", Proof::None) }];
    Site::new(SiteRules { tenants, buffer: 16 << 10, spool, ..SiteRules::open("a") })
}

/// Publishes `count` messages of a kilobyte with their numbers. Returns how many were accepted.
fn publish(site: &mut Site, key: usize, from: usize, count: usize) -> usize {
    for i in from..from + count {
        let text = format!("PUB a 1000\r\n{i:01000}\r\n");
        if site.say(key, &text).used == 0 {
            return i - from;
        }
    }
    count
}

fn numbers(heard: &str) -> Vec<usize> {
    heard.split("\r\n").filter(|line| line.len() == 1000).map(|line| line.parse().unwrap()).collect()
}

#[test]
fn senders_wait_for_a_slow_receiver_and_go_on_when_it_does() {
    let mut site = slow_site(Slow::Price, 0);
    let (slow, other, sender, free) =
        (site.client(hello()), site.client(hello()), site.client(hello()), site.client(hello()));
    site.say(slow, "SUB a 1\r\n");
    site.say(other, "SUB b 1\r\n");
    let sent = publish(&mut site, sender, 0, 100);
    assert!((16..=17).contains(&sent), "{sent}");
    // Other senders do not wait.
    assert_eq!(site.say(free, "PUB b 1\r\nx\r\n").then, Then::Read(1));
    assert_eq!(site.hears(other), "MSG b 1 1\r\nx\r\n");
    assert_eq!(site.broker.take_runnable(), None);
    let heard = site.hears(slow);
    assert_eq!(numbers(&heard), (0..sent).collect::<Vec<_>>());
    assert_eq!(site.broker.take_runnable(), Some(sender));
    assert!(publish(&mut site, sender, sent, 10) == 10);
    // A receiver without progress is disconnected with the reason, and its waiting senders resume.
    publish(&mut site, sender, 30, 100);
    for _ in 0..3 {
        site.now += Time::from_secs(4);
        site.broker.tick(site.now);
    }
    assert_eq!(site.broker.why(slow), Some("Slow Consumer"));
    assert!(site.hears(slow).ends_with("-ERR 'Slow Consumer'\r\n"));
    assert_eq!(site.broker.take_runnable(), Some(sender));
    assert_eq!(publish(&mut site, sender, 0, 100), 100);
    assert_eq!(site.broker.totals().cut, 1);
}

#[test]
fn waiting_senders_take_turns() {
    let mut site = slow_site(Slow::Price, 0);
    let slow = site.client(hello());
    site.say(slow, "SUB a 1\r\n");
    let senders: Vec<usize> = (0..4).map(|_| site.client(hello())).collect();
    let mut sent = [0; 4];
    for (i, &key) in senders.iter().enumerate() {
        sent[i] += publish(&mut site, key, 0, 100);
    }
    for _ in 0..40 {
        site.hears(slow);
        while let Some(key) = site.broker.take_runnable() {
            let i = senders.iter().position(|&one| one == key).unwrap();
            sent[i] += publish(&mut site, key, 0, 100);
        }
    }
    let least = *sent.iter().min().unwrap();
    assert!(least * 5 >= *sent.iter().max().unwrap() * 4 - 80, "{sent:?}");
}

#[test]
fn messages_are_dropped_where_that_is_asked_for() {
    let mut site = slow_site(Slow::Price, 0);
    let (slow, sender) = (site.client(hello()), site.client(hello()));
    site.say(slow, "SUB $TOLL.drop.a 1\r\n");
    assert_eq!(publish(&mut site, sender, 0, 100), 100);
    let heard = site.hears(slow);
    let dropped = site.broker.totals().dropped as usize;
    assert!(dropped > 50 && numbers(&heard) == (0..100 - dropped).collect::<Vec<_>>());
    assert!(heard.starts_with("MSG a 1 1000\r\n"));
}

#[test]
fn messages_wait_on_disk_where_that_is_asked_for() {
    let mut site = slow_site(Slow::Spool, 3 << 20);
    let (slow, sender) = (site.client(hello()), site.client(hello()));
    site.say(slow, "SUB a 1\r\n");
    assert_eq!(publish(&mut site, sender, 0, 2000), 2000);
    let mut disk = HashMap::new();
    let mut refused = 0;
    let mut heard = Vec::new();
    let mut sent = 2000;
    // The disk is a map here, and refuses every fourth chunk.
    for _ in 0..2000 {
        while let Some(command) = site.broker.take_spool_command() {
            let answer = match command {
                SpoolCommand::Store(number, bytes) if number % 4 == 0 => {
                    refused += 1;
                    SpoolAnswer::Refused(number, bytes, "full".into())
                }
                SpoolCommand::Store(number, bytes) => {
                    disk.insert(number, bytes);
                    SpoolAnswer::Stored(number)
                }
                SpoolCommand::Load(number) => match disk.remove(&number) {
                    Some(bytes) => SpoolAnswer::Loaded(number, bytes),
                    None => SpoolAnswer::Lost(number, "none".into()),
                },
                SpoolCommand::Forget(_) => panic!("all of it is wanted"),
            };
            site.broker.spool_answered(site.now, answer);
        }
        heard.extend(site.takes(slow, 10_000));
        if sent < 4000 && site.broker.take_runnable().is_none() {
            sent += publish(&mut site, sender, sent, 7);
        }
    }
    let heard = numbers(&String::from_utf8(heard).unwrap());
    assert_eq!(heard, (0..heard.len()).collect::<Vec<_>>());
    assert!(heard.len() > 3000 && refused > 0, "{} {refused}", heard.len());
    while site.broker.has_outgoing(slow) || site.broker.spooled() > 0 {
        while let Some(command) = site.broker.take_spool_command() {
            if let SpoolCommand::Load(number) = command {
                site.broker.spool_answered(site.now, SpoolAnswer::Loaded(number, disk[&number].clone()));
            }
        }
        site.hears(slow);
        site.broker.tick(site.now);
    }
    assert_eq!(site.broker.spooled(), 0);
}

#[test]
fn a_full_spool_has_senders_wait() {
    let mut site = slow_site(Slow::Spool, 100_000);
    let (slow, sender) = (site.client(hello()), site.client(hello()));
    site.say(slow, "SUB a 1\r\n");
    let sent = publish(&mut site, sender, 0, 1000);
    assert!((90..130).contains(&sent), "{sent}");
    site.broker.remove(slow);
    assert_eq!(site.broker.take_runnable(), Some(sender));
    assert_eq!(site.broker.spooled(), 0);
}

#[test]
fn silent_clients_are_asked_and_closed() {
    let mut site = open();
    let (silent, alive) = (site.client(hello()), site.client(hello()));
    let stranger = SiteRules { tenants: vec![tenant("x", secret("p"))], ..SiteRules::open("a") };
    let mut other = Site::new(stranger);
    let waits = other.broker.open(other.now, "test".into(), "h", 1);
    for _ in 0..2000 {
        site.now += TICK;
        other.now += TICK;
        site.broker.tick(site.now);
        other.broker.tick(other.now);
        if site.hears(alive).contains("PING") {
            site.say(alive, "PONG\r\n");
        }
        site.hears(silent);
        other.takes(waits, usize::MAX);
    }
    assert_eq!(site.broker.why(silent), Some("Stale Connection"));
    assert_eq!(site.broker.why(alive), None);
    assert_eq!(other.broker.why(waits), Some("Authentication Timeout"));
}
