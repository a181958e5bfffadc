//! Sites joined by reliable connections in virtual time.

use std::collections::BTreeMap;

use bytes::Bytes;
use tollway_law::{Rate, Time};
use tollway_proto::app::{App, Connections, MessagePort};
use tollway_proto::overlay::wire::SharedValues;
use tollway_proto::overlay::{
    ArrivalProcess, Config, DaemonId, Epoch, LinkConfig, SenderConfig, Site, SiteConfig, TenantConfig,
};
use tollway_proto::transport::Connection;

/// Sites in a chain. A message takes 10 ms; a held link delivers what it has when it is let go.
struct Chain {
    now: Time,
    sites: Vec<Site>,
    /// By instant and order: where to, and what.
    wire: BTreeMap<(Time, u64), (usize, MessagePort, Bytes)>,
    next: u64,
    /// Until when nothing arrives.
    held: Time,
    /// By site and port, when its connection has sent the last message.
    busy: BTreeMap<(usize, u32), Time>,
}

struct Lent;

impl Connections for Lent {
    fn connection(&mut self, _: MessagePort) -> Option<&mut Connection> {
        None
    }
}

const DELAY: Time = Time::from_millis(10);

fn rate() -> Rate {
    Rate::from_mbps(2.0)
}

fn sender(group: &str, demand: ArrivalProcess) -> SenderConfig {
    SenderConfig {
        number: 0,
        group: group.as_bytes().into(),
        ordered: false,
        tenant: 0,
        bytes: 1000,
        start: Time::from_secs(1),
        stop: Time::NEVER,
        demand,
        on_off: None,
    }
}

impl Chain {
    /// A chain of `length` sites: the first has the senders and all have those of ordered groups;
    /// all others are members of `all`.
    fn new(length: usize, senders: &[SenderConfig]) -> Chain {
        let site = |at: usize| {
            let peers = [at.checked_sub(1), Some(at + 1).filter(|&next| next < length)];
            let link = |peer: usize| LinkConfig { peer: DaemonId(peer as u32), weight: 1, rate: rate() };
            let own = senders.iter().filter(|sender| at == 0 || sender.ordered);
            let first = 100 * at as u32;
            let numbered =
                (first..).zip(own).map(|(number, sender)| SenderConfig { number, ..sender.clone() });
            Site::new(SiteConfig {
                daemon: Config { id: DaemonId(at as u32), epoch: Epoch(1), ..Config::default() },
                links: peers.into_iter().flatten().map(link).collect(),
                groups: if at == 0 { Vec::new() } else { vec![b"all"[..].into()] },
                ordered: vec![b"agreed"[..].into()],
                tenants: vec![TenantConfig::default()],
                senders: numbered.collect(),
                measure_from: Time::ZERO,
                seed: at as u64,
                pool: SharedValues::default(),
            })
        };
        Chain {
            now: Time::ZERO,
            sites: (0..length).map(site).collect(),
            wire: BTreeMap::new(),
            next: 0,
            held: Time::ZERO,
            busy: BTreeMap::new(),
        }
    }

    fn run(&mut self, until: Time) {
        loop {
            for at in 0..self.sites.len() {
                self.serve(at);
            }
            let timers = self.sites.iter().map(App::poll_timeout);
            let wire = self.wire.first_key_value().map(|((at, _), _)| (*at).max(self.held));
            let free = self.busy.values().copied().filter(|&free| free > self.now);
            let next = timers.chain(wire).chain(free).min().unwrap_or(Time::NEVER).max(self.now);
            if next > until {
                self.now = until;
                return;
            }
            self.now = next;
            for site in &mut self.sites {
                if site.poll_timeout() <= next {
                    site.handle_timeout(next, &mut Lent);
                }
            }
            while self.held <= next
                && let Some(entry) = self.wire.first_entry().filter(|entry| entry.key().0 <= next)
            {
                let (to, port, message) = entry.remove();
                self.sites[to].handle_message(next, port, message);
            }
        }
    }

    /// Puts a site's messages on the wire, at the links' rate.
    fn serve(&mut self, at: usize) {
        while self.sites[at].poll_port().is_some() {}
        for port in 0..2 {
            // The first site of the chain has its successor at port 0, the others at port 1.
            let forward = port == usize::from(at > 0);
            let to = if forward { at + 1 } else { at.wrapping_sub(1) };
            let back = MessagePort(u32::from(!forward && to > 0));
            if to >= self.sites.len()
                || self.busy.get(&(at, port as u32)).is_some_and(|&free| free > self.now)
            {
                continue;
            }
            let Some(message) = self.sites[at].poll_message(self.now, MessagePort(port as u32), 0) else {
                continue;
            };
            assert_eq!(self.sites[at].poll_message(self.now, MessagePort(port as u32), 1), None);
            let sent = self.now + rate().time_for(message.len() as u64);
            self.busy.insert((at, port as u32), sent);
            self.wire.insert((sent + DELAY, self.next), (to, back, message));
            self.next += 1;
        }
    }
}

#[test]
fn each_member_receives_each_message_once_and_in_order() {
    let demands = [
        ArrivalProcess::Endless,
        ArrivalProcess::Poisson { per_sec: 5.0 },
        ArrivalProcess::Every(Time::from_millis(250)),
    ];
    let mut chain = Chain::new(4, &demands.map(|demand| sender("all", demand)));
    chain.run(Time::from_secs(31));
    let sent: Vec<u64> = (0..3).map(|at| chain.sites[0].sent(at).messages).collect();
    assert!(sent[0] > 5000, "{sent:?}");
    assert!((90..200).contains(&sent[1]), "{sent:?}");
    assert!((118..=120).contains(&sent[2]), "{sent:?}");
    assert_eq!(chain.sites[0].sent(0).waiting, None);
    for site in &chain.sites[1..] {
        let (received, wrong) = site.received();
        assert_eq!(wrong, 0);
        assert!(received + 200 > sent.iter().sum(), "{received} of {sent:?}");
    }
    let measured = chain.sites[0].measured(chain.now, 0).unwrap();
    assert!(measured.longest > 0 && measured.price > 0.0 && measured.queue <= measured.longest as f64);
}

#[test]
fn members_of_an_ordered_group_receive_in_one_order() {
    let often = ArrivalProcess::Poisson { per_sec: 20.0 };
    let stop = Time::from_secs(20);
    let mut chain = Chain::new(4, &[SenderConfig { ordered: true, stop, ..sender("agreed", often) }]);
    chain.run(Time::from_secs(30));
    let sent: u64 = chain.sites.iter().map(|site| site.sent(0).messages).sum();
    assert!((1200..1800).contains(&sent), "{sent}");
    for site in &chain.sites {
        let (views, unordered, digest) = site.ordered();
        assert_eq!((site.received(), unordered), ((sent, 0), 0));
        assert!(views >= 1 && digest == chain.sites[0].ordered().2, "{views} views");
    }
}

#[test]
fn a_sender_sends_while_it_has_messages_and_not_after_its_end() {
    let mut often = sender("all", ArrivalProcess::Every(Time::from_millis(100)));
    often.on_off = Some((Time::from_secs(2), Time::from_secs(3)));
    let mut short = sender("all", ArrivalProcess::Endless);
    short.stop = Time::from_secs(3);
    let mut chain = Chain::new(2, &[often, short]);
    chain.run(Time::from_secs(3));
    let (on, stopped) = (chain.sites[0].sent(0).messages, chain.sites[0].sent(1).messages);
    assert!((15..=20).contains(&on) && stopped > 300, "{on}, {stopped}");
    chain.run(Time::from_secs(5));
    assert_eq!((chain.sites[0].sent(0).messages, chain.sites[0].sent(0).waiting), (20, Some(0)));
    chain.run(Time::from_secs(11));
    assert!((39..=41).contains(&chain.sites[0].sent(0).messages));
    assert_eq!(chain.sites[0].sent(1).messages, stopped);
}

#[test]
fn a_group_without_members_elsewhere_gets_nothing() {
    let mut chain = Chain::new(2, &[sender("none", ArrivalProcess::Endless)]);
    chain.run(Time::from_secs(5));
    assert_eq!((chain.sites[0].sent(0).messages, chain.sites[1].received()), (0, (0, 0)));
}

#[test]
fn silent_links_are_opened_again_when_they_are_heard() {
    let mut chain = Chain::new(3, &[sender("all", ArrivalProcess::Endless)]);
    chain.run(Time::from_secs(5));
    let before = chain.sites[2].received().0;
    chain.held = Time::from_secs(30);
    chain.run(Time::from_secs(29));
    assert!(chain.sites.iter().all(|site| site.daemon().reachable().count() == 0), "links are closed");
    chain.run(Time::from_secs(60));
    for site in &chain.sites[1..] {
        let (received, wrong) = site.received();
        assert!(received > before + 3000 && wrong == 0, "{received} after {before}, {wrong} wrong");
    }
    assert!(chain.sites.iter().all(|site| site.daemon().reachable().count() == 2));
}

#[test]
fn what_is_no_frame_ends_its_link_only() {
    let mut chain = Chain::new(3, &[sender("all", ArrivalProcess::Endless)]);
    chain.run(Time::from_secs(3));
    let now = chain.now;
    chain.sites[1].handle_message(now, MessagePort(1), Bytes::from_static(b"no frame at all"));
    assert_eq!(chain.sites[1].port(1), None);
    let before = [1, 2].map(|at: usize| chain.sites[at].received().0);
    chain.run(Time::from_secs(10));
    assert!(chain.sites[1].received().0 > before[0] + 500, "the other link goes on");
    assert!(chain.sites[2].received().0 < before[1] + 100);
}
