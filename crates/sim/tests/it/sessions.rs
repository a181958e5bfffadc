//! Sessions over a switch, on links with XCP and FCP: one session has one share of a link, whatever
//! the number of its members (the Anypoint paper, Figures 4, 7 and 10).

use std::sync::Arc;

use tollway_law::link::{AnyLink, FcpConfig, XcpConfig};
use tollway_law::receiver::Echo;
use tollway_law::sender::{AnySender, FcpConfig as FcpSender, XcpConfig as XcpSender};
use tollway_law::toll::Content;
use tollway_law::{Rate, Time};
use tollway_proto::port::Limit;
use tollway_proto::route::{Candidate, Item, Policy, Route};
use tollway_proto::switch::{self, Switch};
use tollway_proto::transport::{Config, Connection};
use tollway_proto::{Gate, NodeMachine};
use tollway_sim::{FlowId, FlowSpec, LinkId, LinkSpec, MachineId, Network, RouteEnd};

/// A duplex link: the two directions.
type Duplex = (LinkId, LinkId);

/// A net of links with one law, and connections of the same.
struct Net {
    network: Network<Connection>,
    content: Content,
    config: Arc<Config>,
}

/// The connections of a session. Member k is an end of the k-th flow, the peer one of the first.
struct Session {
    flows: Vec<FlowId>,
    inbound: bool,
    machine: MachineId,
}

impl Net {
    fn new(content: Content) -> Net {
        let echo = if content == Content::Price { Echo::Latest } else { Echo::Sum };
        // Frames of 1 KB in one packet each.
        let config = Config { segment: 1064, echo, ..Config::default() };
        Net { network: Network::new(1), content, config: Arc::new(config) }
    }

    fn link(&mut self, mbps: f64, delay: Time) -> Duplex {
        let rate = Rate::from_mbps(mbps);
        let mut one = || {
            let law = match self.content {
                Content::Price => AnyLink::Fcp(Box::new(FcpConfig::default().build(rate))),
                _ => XcpConfig::default().build(rate),
            };
            let limit = Limit { packets: 2000, bytes: u64::MAX };
            self.network.add_link(LinkSpec {
                rate,
                delay,
                overhead: 0,
                law,
                limit,
                queue: Default::default(),
            })
        };
        (one(), one())
    }

    fn law(&self) -> AnySender {
        match self.content {
            Content::Price => FcpSender::default().build().into(),
            _ => XcpSender::default().build().into(),
        }
    }

    fn flow(&mut self, forward: &[LinkId], back: &[LinkId], ends: [RouteEnd; 2], start: Time) -> FlowId {
        let forward = self.network.add_route(forward, ends[0]);
        let back = self.network.add_route(back, ends[1]);
        let mut client = Connection::client(&self.config, self.law(), 0);
        client.write_frames(1024, u64::MAX);
        self.network.add_flow(FlowSpec {
            client,
            server: Connection::server(&self.config, self.law(), 0),
            forward,
            back,
            start,
            stop: Time::NEVER,
            encoding: Default::default(),
            segment: 1064,
        })
    }

    fn cross(&mut self, path: &[Duplex], start: Time) -> FlowId {
        let (there, back) = ways(path);
        self.flow(&there, &back, [RouteEnd::Server, RouteEnd::Client], start)
    }

    fn switch(&mut self, members: usize) -> MachineId {
        let config = switch::Config { content: Some(self.content), ..switch::Config::default() };
        let names = 0..members as u64;
        let members = names.map(|name| Candidate { name, up: true, window: 1 << 30, ..Candidate::default() });
        let mut switch = Switch::new();
        switch.add_session(&config, Policy::RoundRobin.module(0), members.collect());
        self.network.add(NodeMachine::middle(switch))
    }

    /// A session between a peer, `path` away from the switch, and members behind a link each.
    fn session(&mut self, inbound: bool, path: &[Duplex], members: &[Duplex]) -> Session {
        let machine = self.switch(members.len());
        let at = |gate: usize| RouteEnd::Middle(machine, Gate(gate as u32));
        let (to_switch, to_peer) = ways(path);
        let ends =
            if inbound { [RouteEnd::Client, RouteEnd::Server] } else { [RouteEnd::Server, RouteEnd::Client] };
        let mut flows = Vec::new();
        for (k, &(down, up)) in members.iter().enumerate() {
            let first = k == 0;
            // Ends that represent no separate host never open.
            let start = if inbound && !first { Time::NEVER } else { Time::ZERO };
            let (forward, back) = if inbound {
                (if first { to_switch.clone() } else { vec![up] }, vec![up])
            } else {
                (vec![up], if first { to_switch.clone() } else { vec![up] })
            };
            let (from, to) = if inbound { (0, k + 1) } else { (k + 1, if first { 0 } else { k + 1 }) };
            let flow = self.flow(&forward, &back, [at(from), at(to)], start);
            let route = self.network.add_route(&[down], ends[1]);
            self.network.set_outlet(machine, Gate(k as u32 + 1), route, flow);
            flows.push(flow);
        }
        let route = self.network.add_route(&to_peer, ends[0]);
        self.network.set_outlet(machine, Gate(0), route, flows[0]);
        Session { flows, inbound, machine }
    }

    fn counts(&self, flows: &[FlowId]) -> Vec<u64> {
        flows.iter().map(|&flow| self.delivered(flow)).collect()
    }

    /// Bytes of frames delivered.
    fn delivered(&self, flow: FlowId) -> u64 {
        self.network.server(flow).stats().bytes_delivered
    }

    fn of_session(&self, session: &Session) -> u64 {
        let sinks = if session.inbound { &session.flows[..] } else { &session.flows[..1] };
        sinks.iter().map(|&flow| self.delivered(flow)).sum()
    }

    /// The rate on the wire, in Mb/s over `span`, of the bytes that `count` returns.
    fn rate(&mut self, span: Time, count: impl Fn(&Net) -> u64) -> f64 {
        let before = count(self);
        let end = self.network.now() + span;
        self.network.run_until(end);
        (count(self) - before) as f64 * 8.0 / 1e6 / span.as_secs_f64() * 1064.0 / 1024.0
    }
}

fn ways(path: &[Duplex]) -> (Vec<LinkId>, Vec<LinkId>) {
    (path.iter().map(|link| link.0).collect(), path.iter().rev().map(|link| link.1).collect())
}

/// Figure 7: four members, and cross flows that begin one after the other. Returns, for each phase,
/// the session's rate and the mean rate of the cross flows; and the packets dropped in all.
fn session_fair(content: Content, inbound: bool, phase: Time) -> (Vec<(f64, f64)>, u64) {
    let mut net = Net::new(content);
    let delay = Time::from_millis(5);
    let (access, transit, last) = (net.link(200.0, delay), net.link(20.0, delay), net.link(200.0, delay));
    let members = [(); 4].map(|()| net.link(50.0, delay));
    let sides = [(); 4].map(|()| [net.link(200.0, delay), net.link(200.0, delay)]);
    let session = net.session(inbound, &[access, transit, last], &members);
    let cross: Vec<FlowId> = (1..)
        .zip(sides)
        .map(|(k, [before, behind])| {
            let start = Time(phase.0 * k);
            let back = |link: Duplex| (link.1, link.0);
            let path = if inbound { [before, transit, behind] } else { [behind, back(transit), before] };
            net.cross(&path, start)
        })
        .collect();
    let settle = Time(phase.0 / 2);
    let rates = (0..=4)
        .map(|active| {
            let end = net.network.now() + settle;
            net.network.run_until(end);
            let others = net.counts(&cross);
            let own = net.rate(settle, |net| net.of_session(&session));
            let moved: u64 = net.counts(&cross).iter().zip(others).map(|(now, then)| now - then).sum();
            let each = moved as f64 * 8.0 / 1e6 / settle.as_secs_f64() * 1064.0 / 1024.0;
            (own, each / f64::from(active).max(1.0))
        })
        .collect();
    let stats = *net.network.machine(session.machine).downcast_ref::<Switch>().unwrap().session(0).stats();
    assert_eq!((stats.forged, stats.refused, stats.failures), (0, 0, 0));
    (rates, net.network.census().dropped)
}

#[test]
fn a_session_has_one_share_under_xcp() {
    for inbound in [false, true] {
        let (rates, dropped) = session_fair(Content::Feedback, inbound, Time::from_secs(10));
        assert_eq!(dropped, 0);
        for (k, (own, _)) in rates.iter().enumerate() {
            let share = 20.0 / (1.0 + k as f64);
            assert!((own / share - 1.0).abs() < 0.05, "inbound {inbound}, {k} others: {rates:?}");
        }
    }
}

#[test]
fn a_session_has_one_share_under_fcp() {
    for inbound in [false, true] {
        let (rates, _) = session_fair(Content::Price, inbound, Time::from_secs(10));
        for (k, (own, _)) in rates.iter().enumerate().skip(1) {
            let share = 20.0 / (1.0 + k as f64);
            assert!((own / share - 1.0).abs() < 0.1, "inbound {inbound}, {k} others: {rates:?}");
        }
    }
}

/// Figure 10, with two switches. The cascade has the rate of one switch with the longest path, and
/// each member gets its part.
#[test]
fn a_cascade_is_like_one_switch() {
    let (short, long, phase) = (Time::from_millis(2), Time::from_millis(10), Time::from_secs(10));
    let mut net = Net::new(Content::Feedback);
    let path = [net.link(20.0, short)];
    let members = [(); 3].map(|()| net.link(50.0, long));
    let session = net.session(true, &path, &members);
    net.network.run_until(phase);
    let reduced = net.rate(phase, |net| net.of_session(&session));

    let mut net = Net::new(Content::Feedback);
    let (path, joint) = (net.link(20.0, short), net.link(50.0, short));
    let near = [(); 2].map(|()| net.link(50.0, short));
    let far = [(); 3].map(|()| net.link(50.0, Time(long.0 - short.0)));
    let (upper, lower) = (net.switch(3), net.switch(3));
    let at = |machine, gate| RouteEnd::Middle(machine, Gate(gate));
    let mut flows = Vec::new();
    let places = near.iter().zip(1..).map(|(&link, gate)| (upper, gate, link));
    for (machine, gate, (down, up)) in
        places.chain(far.iter().zip(1..).map(|(&link, gate)| (lower, gate, link)))
    {
        let start = if flows.is_empty() { Time::ZERO } else { Time::NEVER };
        let flow = net.flow(&[path.0], &[up], [at(upper, 0), at(machine, gate)], start);
        let route = net.network.add_route(&[down], RouteEnd::Server);
        net.network.set_outlet(machine, Gate(gate), route, flow);
        flows.push(flow);
    }
    let joints = [
        (upper, 0, path.1, RouteEnd::Client),
        (upper, 3, joint.0, at(lower, 0)),
        (lower, 0, joint.1, at(upper, 3)),
    ];
    for (machine, gate, link, end) in joints {
        let route = net.network.add_route(&[link], end);
        net.network.set_outlet(machine, Gate(gate), route, flows[0]);
    }
    net.network.run_until(phase);
    let before = net.counts(&flows);
    let rate = net.rate(phase, |net| net.counts(&flows).iter().sum());
    assert!((rate / reduced - 1.0).abs() < 0.05, "{rate} instead of {reduced}");
    let moved: Vec<u64> = net.counts(&flows).iter().zip(before).map(|(now, then)| now - then).collect();
    let all: u64 = moved.iter().sum();
    for (bytes, parts) in moved.iter().zip([3.0, 3.0, 9.0, 9.0, 9.0]) {
        assert!((*bytes as f64 * parts / all as f64 - 1.0).abs() < 0.02, "{moved:?}");
    }
    assert_eq!(net.network.census().dropped, 0);
}

/// A schedule that sends all frames to one member.
#[derive(Debug)]
struct Only(usize);

impl Route for Only {
    fn pick(&mut self, _: &Item, members: &[Candidate]) -> Option<usize> {
        members.get(self.0)?.up.then_some(self.0)
    }
}

#[test]
fn a_session_follows_a_change_of_its_schedule() {
    let mut net = Net::new(Content::Feedback);
    let delay = Time::from_millis(2);
    let path = [net.link(20.0, delay)];
    let members = [net.link(50.0, delay), net.link(10.0, delay)];
    let session = net.session(true, &path, &members);
    let spread = |net: &mut Net, route: Box<dyn Route + Send>| {
        net.network.with_machine(session.machine, |machine| {
            machine.downcast_mut::<Switch>().unwrap().set_route(0, route);
        });
    };
    net.network.run_until(Time::from_secs(3));
    for (only, expected) in [(Some(0), 20.0), (Some(1), 10.0), (Some(0), 20.0), (None, 20.0)] {
        spread(
            &mut net,
            match only {
                Some(only) => Box::new(Only(only)),
                None => Policy::RoundRobin.module(0),
            },
        );
        // Half a second suffices at 8 ms.
        let end = net.network.now() + Time::from_millis(500);
        net.network.run_until(end);
        let rate = net.rate(Time::from_secs(2), |net| net.of_session(&session));
        assert!((rate / expected - 1.0).abs() < 0.05, "{only:?}: {rate} instead of {expected}");
    }
}
