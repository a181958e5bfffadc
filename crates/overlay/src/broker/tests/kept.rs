//! Spools: their limits, and subscriptions that outlast their connection.

use super::*;

/// Executes the broker's commands with a map as the disk. Returns the bytes on it.
fn serve(site: &mut Site, disk: &mut HashMap<u64, bytes::Bytes>, full: bool) -> usize {
    while let Some(command) = site.broker.take_spool_command() {
        let answer = match command {
            SpoolCommand::Store(number, bytes) if full => {
                SpoolAnswer::Refused(number, bytes, "no space".into())
            }
            SpoolCommand::Store(number, bytes) => {
                disk.insert(number, bytes);
                SpoolAnswer::Stored(number)
            }
            SpoolCommand::Load(number) => SpoolAnswer::Loaded(number, disk.remove(&number).unwrap()),
            SpoolCommand::Forget(number) => {
                disk.remove(&number);
                continue;
            }
        };
        site.broker.spool_answered(site.now, answer);
    }
    disk.values().map(|bytes| bytes.len().next_multiple_of(4096)).sum()
}

/// Takes a client's output and answers each `PING`.
fn converse(site: &mut Site, key: usize) -> String {
    let mut heard = String::new();
    loop {
        let more = site.hears(key);
        if more.is_empty() {
            return heard;
        }
        for _ in 0..more.matches("PING\r\n").count() {
            site.say(key, "PONG\r\n");
        }
        heard += &more;
    }
}

#[test]
fn a_kept_subscription_outlasts_its_connection() {
    let mut site = slow_site(Slow::Price, 50 << 20);
    let mut disk = HashMap::new();
    let (first, sender) = (site.client(hello()), site.client(hello()));
    site.say(first, "SUB $TOLL.keep.books.a 1\r\n");
    publish(&mut site, sender, 0, 10);
    assert_eq!(numbers(&converse(&mut site, first)), (0..10).collect::<Vec<_>>());
    // Those without an answer to `PING` are not received for sure.
    publish(&mut site, sender, 10, 5);
    site.hears(first);
    site.broker.remove(first);
    assert_eq!(publish(&mut site, sender, 15, 3000), 3000);
    assert!(serve(&mut site, &mut disk, false) > 2 << 20);
    let second = site.client(hello());
    site.say(second, "SUB $TOLL.keep.books.a 7\r\n");
    let mut heard = Vec::new();
    for _ in 0..100 {
        heard.extend(numbers(&converse(&mut site, second)));
        serve(&mut site, &mut disk, false);
    }
    assert_eq!(heard, (10..3015).collect::<Vec<_>>());
    assert_eq!((site.broker.spooled(), disk.len()), (0, 0));
    assert_eq!(site.broker.status().lost.total(), 0);
    // Another pattern needs another name, and the subscription ends with `UNSUB`.
    site.say(second, "SUB $TOLL.keep.books.b 8\r\n");
    assert!(site.hears(second).contains("keeps \"a\""));
    site.say(second, "UNSUB 7\r\n");
    site.say(second, "SUB $TOLL.keep.books.b 8\r\n");
    assert_eq!(site.hears(second), "");
    assert_eq!(site.broker.status().tenants[0].subscriptions, 1);
}

#[test]
fn a_newer_client_takes_a_kept_subscription_over() {
    let mut site = slow_site(Slow::Price, 50 << 20);
    let (first, second, sender) = (site.client(hello()), site.client(hello()), site.client(hello()));
    site.say(first, "SUB $TOLL.keep.books.a 1\r\n");
    publish(&mut site, sender, 0, 3);
    site.hears(first);
    site.say(second, "SUB $TOLL.keep.books.a 1\r\n");
    // A late answer of the former client confirms nothing.
    site.say(first, "PONG\r\nPONG\r\nPONG\r\n");
    assert_eq!(numbers(&converse(&mut site, second)), [0, 1, 2]);
    publish(&mut site, sender, 3, 1);
    assert_eq!((converse(&mut site, first), numbers(&converse(&mut site, second))), (String::new(), vec![3]));
    site.say(first, "UNSUB 1\r\n");
    assert_eq!(site.broker.status().tenants[0].subscriptions, 1);
}

#[test]
fn a_spool_takes_no_more_of_the_disk_than_its_size_and_counts_what_is_lost() {
    let mut site = slow_site(Slow::Price, 2 << 20);
    let mut disk = HashMap::new();
    let (gone, sender) = (site.client(hello()), site.client(hello()));
    site.say(gone, "SUB $TOLL.keep.books.a 1\r\n");
    site.broker.remove(gone);
    let mut most = 0;
    for batch in 0..10 {
        publish(&mut site, sender, batch * 500, 500);
        most = most.max(serve(&mut site, &mut disk, false));
    }
    assert!((1 << 20..=2 << 20).contains(&most), "{most}");
    let lost = site.broker.status().tenants[0].lost.spool as usize;
    let client = site.client(hello());
    site.say(client, "SUB $TOLL.keep.books.a 1\r\n");
    let mut heard = Vec::new();
    for _ in 0..100 {
        heard.extend(numbers(&converse(&mut site, client)));
        serve(&mut site, &mut disk, false);
    }
    assert_eq!(heard, (0..5000 - lost).collect::<Vec<_>>());
    assert!(lost > 2000, "{lost}");
}

#[test]
fn a_disk_that_has_room_again_is_used_again() {
    let mut site = slow_site(Slow::Spool, 50 << 20);
    let mut disk = HashMap::new();
    let (slow, sender) = (site.client(hello()), site.client(hello()));
    site.say(slow, "SUB a 1\r\n");
    let mut sent = publish(&mut site, sender, 0, 1000);
    serve(&mut site, &mut disk, true);
    assert_eq!(site.broker.spool_trouble(), Some("no space"));
    // Its senders wait, and the receiver loses nothing.
    sent += publish(&mut site, sender, sent, 1000);
    assert!(sent < 1100, "{sent}");
    for _ in 0..3 {
        site.now += Time::from_secs(1);
        site.broker.tick(site.now);
        serve(&mut site, &mut disk, true);
        assert!(site.broker.spool_trouble().is_some());
    }
    site.now += Time::from_secs(1);
    site.broker.tick(site.now);
    serve(&mut site, &mut disk, false);
    assert_eq!(site.broker.spool_trouble(), None);
    sent += publish(&mut site, sender, sent, 2000);
    assert!(sent > 2500, "{sent}");
    let mut heard = Vec::new();
    for _ in 0..1000 {
        heard.extend(numbers(&site.hears(slow)));
        serve(&mut site, &mut disk, false);
    }
    assert_eq!(heard, (0..sent).collect::<Vec<_>>());
}

#[test]
fn messages_of_a_receiver_that_is_cut_are_counted() {
    let mut site = slow_site(Slow::Spool, 50 << 20);
    let (slow, sender) = (site.client(hello()), site.client(hello()));
    site.say(slow, "SUB a 1\r\n");
    publish(&mut site, sender, 0, 1000);
    site.broker.tick(site.now);
    site.now += Time::from_secs(60);
    site.broker.tick(site.now);
    let heard = numbers(&site.hears(slow)).len() as u64;
    let lost = site.broker.status().lost;
    assert!(lost.spool > 800 && lost.spool + lost.cut >= 1000 - heard, "{heard} {lost:?}");
    assert!(lost.spool + lost.cut <= 1000, "{lost:?}");
}

#[test]
fn answers_that_a_client_does_not_read_are_bounded() {
    let mut site = open();
    let buffer = site.broker.rules().buffer;
    let pings = "PING\r\n".repeat(2000);
    for asks in [pings.as_str(), &"PUB a.* 0\r\n\r\n".repeat(1000), &"PUB none r 0\r\n\r\n".repeat(1000)] {
        let client = site.client(hello());
        site.say(client, "SUB r 1\r\n");
        let mut waits = false;
        for _ in 0..2000 {
            waits = site.say(client, asks).then == Then::Wait;
            if waits {
                break;
            }
        }
        let len = site.broker.sessions[client].out.len();
        assert!(waits && len < buffer + 1000, "{len} of {buffer}");
        site.hears(client);
        assert_eq!(site.broker.take_runnable(), Some(client));
        site.say(client, "PING\r\n");
        assert_eq!(site.hears(client), "PONG\r\n");
    }
}

#[test]
fn one_publisher_does_not_keep_the_site_from_other_clients() {
    let mut site = open();
    let (receiver, sender) = (site.client(hello()), site.client(hello()));
    for i in 0..4000 {
        site.say(receiver, &format!("SUB $TOLL.drop.> {i}\r\n"));
    }
    let burst = "PUB a 0\r\n\r\n".repeat(200);
    let received = site.say(sender, &burst);
    assert_eq!(received.then, Then::Again);
    assert_eq!(received.used, 3 * "PUB a 0\r\n\r\n".len());
}
