//! Prices and purses as a whole: what the study measures at length, held in short runs.

use tollway_law::overlay::Benefit;
use tollway_law::{Rate, Time};
use tollway_proto::overlay::{Config, DaemonId, Event, Purchase, TenantConfig};

use super::net::Net;
use super::row;

/// Mb/s of each sender between two instants, headers counted.
fn rates(net: &mut Net, from: u64, to: u64) -> Vec<f64> {
    net.run(Time::from_secs(from));
    let before: Vec<u32> = net.senders.iter().map(|sender| sender.sent).collect();
    net.run(Time::from_secs(to));
    let sent = net.senders.iter().zip(before).map(|(sender, before)| f64::from(sender.sent - before));
    sent.map(|sent| sent * 8e-3 / (to - from) as f64).collect()
}

#[test]
fn a_link_is_full_and_its_queue_is_short_at_every_rate() {
    for mbps in [0.5, 2.0, 20.0] {
        let mut net = Net::new(2, Config::default(), 5);
        let link = net.link(0, 1, Rate::from_mbps(mbps), Time::from_millis(10));
        net.run(Time::from_secs(2));
        for _ in 0..10 {
            net.sender(net.now, 0, &[1], 950, u32::MAX, TenantConfig::default());
        }
        let sum: f64 = rates(&mut net, 12, 32).iter().sum();
        assert!(sum > 0.94 * mbps, "{sum} of {mbps}");
        // 1.6 soft limits, 0.64 s.
        let most = 1.6 * 0.4 * mbps * 1e6 / 8000.0;
        let seen = net.links[link].longest as f64;
        assert!(seen <= most.max(100.0), "{seen} messages, at most {most}");
    }
}

#[test]
fn a_rate_that_was_guessed_wrong_is_found() {
    for guess in [0.02, 10.0] {
        let mut net = Net::new(2, Config::default(), 5);
        net.guess = guess;
        net.link(0, 1, Rate::from_mbps(20.0), Time::from_millis(10));
        net.run(Time::from_secs(2));
        for _ in 0..10 {
            net.sender(net.now, 0, &[1], 950, u32::MAX, TenantConfig::default());
        }
        let sum: f64 = rates(&mut net, 20, 30).iter().sum();
        let seen = net.daemons[0].as_ref().unwrap().snapshot().ports[0].rate.mbps();
        assert!(sum > 18.5 && (18.0..22.0).contains(&seen), "{guess}: {sum} and {seen}");
    }
}

#[test]
fn a_message_that_uses_more_congested_links_yields() {
    let mut net = row(4, Config::default(), 2);
    for (from, to) in [(0, 3), (0, 1), (1, 2), (2, 3)] {
        net.sender(net.now, from, &[to], 950, u32::MAX, TenantConfig::default());
    }
    let rates = rates(&mut net, 20, 80);
    assert!(rates[0] < 0.3 && rates[1..].iter().all(|&rate| rate > 1.6), "{rates:?}");
}

#[test]
fn a_tenant_has_one_salary_however_many_clients() {
    let mut net = row(2, Config::default(), 4);
    net.sender(net.now, 0, &[1], 950, u32::MAX, TenantConfig::default());
    let many = net.now;
    let first = net.sender(many, 0, &[1], 950, u32::MAX, TenantConfig::default());
    // Clients of one tenant: the harness gives each sender its own, so these are added by hand.
    let sender = net.senders[first as usize];
    let daemon = net.daemons[0].as_mut().unwrap();
    let tenant = daemon.snapshot().tenants[1].tenant;
    for _ in 0..499 {
        let client = daemon.add_client(many, tenant);
        net.senders.push(super::net::Sender { client, ..sender });
    }
    for sender in 2..501 {
        net.offer(sender);
    }
    let rates = rates(&mut net, 12, 62);
    let (one, many) = (rates[0], rates[1..].iter().sum::<f64>());
    assert!(many < 1.5 * one && one < 1.5 * many, "{one} and {many}");
}

#[test]
fn weights_and_benefits_move_rates() {
    let mut net = row(3, Config::default(), 6);
    let weighted = TenantConfig { weight: 3.0, ..TenantConfig::default() };
    net.sender(net.now, 0, &[1], 950, u32::MAX, TenantConfig::default());
    net.sender(net.now, 0, &[1], 950, u32::MAX, weighted);
    let rates_of = rates(&mut net, 12, 72);
    assert!(rates_of[1] > 1.3 * rates_of[0], "{rates_of:?}");
    let mut net = row(3, Config::default(), 6);
    let concave = TenantConfig { benefit: Benefit::Concave, ..TenantConfig::default() };
    for (from, to) in [(0, 2), (0, 1), (1, 2)] {
        net.sender(net.now, from, &[to], 950, u32::MAX, concave);
    }
    let rates_of = rates(&mut net, 12, 72);
    assert!(rates_of[0] > 0.1, "{rates_of:?}");
}

/// A receiver's connection that does not drain stops the senders to its group, here and at other
/// daemons, and no others.
#[test]
fn a_slow_receiver_stops_those_who_send_to_it() {
    let mut net = row(2, Config::default(), 8);
    let key = 77;
    let sets: Vec<_> =
        net.daemons.iter_mut().map(|d| d.as_mut().unwrap().set(&[DaemonId(0), DaemonId(1)])).collect();
    let clients: Vec<_> = (0..2)
        .map(|node| {
            let daemon = net.daemons[node].as_mut().unwrap();
            let tenant = daemon.add_tenant(net.now, TenantConfig::default());
            [daemon.add_client(net.now, tenant), daemon.add_client(net.now, tenant)]
        })
        .collect();
    // Behind daemon 1 a megabyte waits and nothing drains.
    for step in 0..500 {
        let now = Time::from_secs(2) + Time::from_millis(2 * step);
        net.run(now);
        net.daemons[1].as_mut().unwrap().last_hop(now, key, 1_000_000, 0);
        net.pump(1);
    }
    for (node, own) in clients.iter().enumerate() {
        let daemon = net.daemons[node].as_mut().unwrap();
        assert_eq!(daemon.buy(net.now, own[0], sets[node], &[key], 100), Purchase::Waiting, "{node}");
        assert_eq!(daemon.buy(net.now, own[1], sets[node], &[key + 1], 100), Purchase::Bought, "{node}");
    }
    // It drains at last.
    net.events.clear();
    net.keep_bought = true;
    net.daemons[1].as_mut().unwrap().last_hop(net.now, key, 0, 1_000_000);
    net.pump(1);
    net.run(net.now + Time::from_secs(1));
    for (node, own) in clients.iter().enumerate() {
        assert!(net.events.contains(&(node, Event::Bought(own[0]))), "{node}: {:?}", net.events);
    }
}

#[test]
fn what_passes_no_link_is_free() {
    let mut net = row(2, Config::default(), 9);
    let daemon = net.daemons[0].as_mut().unwrap();
    let tenant = daemon.add_tenant(net.now, TenantConfig::default());
    let client = daemon.add_client(net.now, tenant);
    let set = daemon.set(&[DaemonId(0)]);
    for _ in 0..100_000 {
        assert_eq!(daemon.buy(net.now, client, set, &[1, 2], 1000), Purchase::Bought);
    }
    assert_eq!(daemon.snapshot().tenants[0].spent, 0.0);
}

#[test]
fn memberships_reach_everybody_and_end() {
    let mut net = row(4, Config::default(), 10);
    for group in [&b"plant"[..], b"office"] {
        assert!(net.daemons[3].as_mut().unwrap().join(group));
    }
    net.pump(3);
    net.run(Time::from_secs(3));
    let members = |net: &Net, node: usize, group: &[u8]| {
        net.daemons[node].as_ref().unwrap().members(group).collect::<Vec<_>>()
    };
    assert!((0..3).all(|node| members(&net, node, b"plant") == [DaemonId(3)]));
    net.daemons[3].as_mut().unwrap().leave(b"plant");
    net.pump(3);
    // A link that fails meanwhile: what was missed comes with its return.
    net.cut(0);
    net.run(Time::from_secs(4));
    net.raise(0);
    net.run(Time::from_secs(5));
    assert!((0..3).all(|node| members(&net, node, b"plant").is_empty()));
    assert!((0..3).all(|node| members(&net, node, b"office") == [DaemonId(3)]));
    // A daemon that has started again belongs to nothing.
    net.kill(3);
    net.run(Time::from_secs(6));
    net.start(3, 2);
    net.raise(4);
    net.daemons[3].as_mut().unwrap().join(b"new");
    net.pump(3);
    net.run(Time::from_secs(8));
    assert!((0..3).all(|node| members(&net, node, b"office").is_empty()));
    assert!((0..3).all(|node| members(&net, node, b"new") == [DaemonId(3)]));
}

/// A hub with twenty links, of which one is congested, names that one only, and all know its price.
#[test]
fn a_state_names_the_links_whose_prices_changed() {
    let mut net = Net::new(21, Config::default(), 11);
    for leaf in 1..21 {
        let mbps = if leaf == 2 { 1.0 } else { 10.0 };
        net.link(0, leaf, Rate::from_mbps(mbps), Time::from_millis(5));
    }
    net.run(Time::from_secs(2));
    let hub = |net: &Net| net.daemons[0].as_ref().unwrap().snapshot();
    let before = hub(&net);
    for sender in 0..5 {
        net.sender(net.now, 1, &[2, 3 + sender], 1000, u32::MAX, TenantConfig::default());
    }
    net.run(Time::from_secs(12));
    let after = hub(&net);
    let states = after.announcements - before.announcements;
    let bytes = after.announced - before.announced;
    assert!(states > 20 && bytes / states < 64, "{bytes} bytes of {states} states");
    // When the senders are gone the end of congestion is known everywhere, with every link.
    net.kill(1);
    net.run(Time::from_secs(20));
    for node in 2..21 {
        let daemon = net.daemons[node].as_ref().unwrap();
        let known: Vec<_> = daemon.links().filter(|link| link.0 == DaemonId(0)).collect();
        assert_eq!(known.len(), 19, "{node}");
        assert!(known.iter().all(|link| link.1.cost == 0.0), "{node}: {known:?}");
        let slow = known.iter().find(|link| link.1.peer == DaemonId(2)).unwrap();
        assert!((slow.1.lot - known[5].1.lot).abs() > 100.0, "the rates differ: {slow:?}");
    }
}
