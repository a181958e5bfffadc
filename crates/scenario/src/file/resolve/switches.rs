//! Anypoint switches, and the flows of sessions over them.

use std::sync::Arc;

use tollway_law::Time;
use tollway_law::session::Reading;
use tollway_law::toll::Content;
use tollway_proto::route::Policy;
use tollway_proto::switch::FlowControl;
use tollway_proto::transport as proto;

use super::flows::round_trip;
use super::{Resolver, matches};
use crate::file::error::At;
use crate::file::keys;
use crate::file::reader::Reader;
use crate::plan::switch::{Session, Station, Stretch, StretchEnd, Switch};
use crate::plan::{Data, Event, FlowId, NodeId, Plan, TransportId, What};

impl<'a> Resolver<'a> {
    /// Resolves all switches.
    pub(super) fn switches(&mut self) {
        for (name, keys) in self.top.named("switch", &keys::SWITCH) {
            let Some(group) = self.group(&keys, "node") else { continue };
            let Some(shares) = self.shares(&keys) else { continue };
            if keys.has("shares") && keys.has("policy") {
                let message = "a switch has either `shares` or a `policy`";
                self.mistakes
                    .add(keys.key_at("shares"), message, "with `policy`")
                    .help("leave out one of them");
            }
            let policy = match keys.word("policy") {
                "by-key" => Policy::ByKey,
                "least-loaded" => Policy::LeastLoaded,
                "sticky" => Policy::Sticky,
                _ => Policy::RoundRobin,
            };
            for k in 0..group.count {
                let node = group.member(k);
                if self.plan.switches.iter().any(|other| other.node == node) {
                    let message = format!("`{}` already has a switch", self.plan.nodes[node.0 as usize].name);
                    self.mistakes
                        .add(keys.at("node"), message, "the second")
                        .help("use one switch for all sessions");
                    break;
                }
                self.plan.switches.push(Switch {
                    name: if group.numbered { format!("{name}.{}", k + 1) } else { name.to_owned() },
                    section: name.into(),
                    node,
                    policy,
                    shares: shares.clone(),
                    own: None,
                    flow_control: keys.has("flow-control").then(|| match keys.word("flow-control") {
                        "strict" => FlowControl::Strict,
                        "soft" => FlowControl::Soft,
                        _ => FlowControl::Credit,
                    }),
                    reading: match keys.word("transforms") {
                        "literal" => Reading::Literal,
                        _ => Reading::Totals,
                    },
                    ratio_window: keys.count("ratio-window").unwrap_or(1) as usize,
                    patience: keys.span("patience"),
                });
            }
        }
    }

    /// The numbers of the key `shares`; empty if it is absent.
    fn shares(&mut self, keys: &Reader<'a>) -> Option<Vec<u32>> {
        let before = self.mistakes.len();
        let mut shares = Vec::new();
        for (text, at) in keys.patterns("shares") {
            match text.parse() {
                Ok(share) => shares.push(share),
                Err(_) => {
                    let message = format!("`{text}` is not a share: write a whole number under 2^32");
                    self.mistakes.add(at, message, "not a share").help("such as `shares = [2, 1, 1]`");
                }
            }
        }
        if !shares.is_empty() && shares.iter().all(|&share| share == 0) {
            self.mistakes
                .add(keys.at("shares"), "all shares are zero", "all zero")
                .help("give at least one member a share");
        }
        (self.mistakes.len() == before).then_some(shares)
    }

    /// Makes one session of a section's flows, `n` from `first` on.
    pub(super) fn session(&mut self, keys: &Reader<'a>, transport: TransportId, first: usize, n: u64) {
        let Some(pattern) = keys.text("session") else { return };
        let flow = &self.plan.transports[transport.0 as usize];
        let payload = u64::from(flow.packet_size.saturating_sub(flow.header));
        let frame = match self.plan.flows.get(first).map(|flow| flow.data) {
            Some(Data::Frames { size, .. }) => Some(size),
            _ => None,
        };
        let wrong = if keys.truth("multicast") {
            Some(("each frame of a session goes to one receiver", "leave out `multicast`"))
        } else if keys.has("count") {
            Some((
                "a session can have only one flow between two nodes",
                "leave out `count`, or write two sections",
            ))
        } else if flow.both_ways {
            Some(("the members of a session either send or receive", "leave out `both-ways`"))
        } else if flow.kernel {
            Some(("a switch supports only ACP", "leave out `transport = \"kernel\"`"))
        } else if flow.sack_blocks == 0 {
            Some((
                "a switch needs SACK for the frames that members have received",
                "leave out `sack = false`",
            ))
        } else if flow.law.descriptor().reads == Some(Content::Rate) {
            Some((
                "a switch does not support the tolls of this law",
                "use `xcp`, `fcp` or a law without tolls",
            ))
        } else if frame.is_none() {
            Some(("a session needs `frames`", "add `frames = { size = \"1 kB\" }`"))
        } else if frame > Some(payload) {
            Some((
                "a frame of a session must fit into one packet",
                "make the frame smaller, or `packet-size` larger",
            ))
        } else {
            None
        };
        if let Some((message, help)) = wrong {
            self.mistakes.add(keys.at("session"), message, "here").help(help);
            return;
        }
        self.plan.sessions.push(Session {
            name: Arc::clone(&self.plan.flows[first].section),
            first: FlowId(first as u32),
            count: n as u32,
            stretches: Vec::new(),
            stations: Vec::new(),
        });
        self.sessions.push((pattern, keys.at("session")));
    }

    /// Splits the paths of each session at its switches.
    pub(super) fn sessions(&mut self) {
        for (s, (pattern, at)) in std::mem::take(&mut self.sessions).into_iter().enumerate() {
            let switches = &self.plan.switches;
            let found =
                |switch: &Switch| matches(&pattern, &switch.name) || matches(&pattern, &switch.section);
            let own: Vec<usize> = (0..switches.len()).filter(|&i| found(&switches[i])).collect();
            if own.is_empty() {
                self.unknown_switch(&pattern, at);
                continue;
            }
            match taken_apart(&self.plan, &self.plan.sessions[s], &own) {
                Ok((stretches, stations)) => {
                    let session = &mut self.plan.sessions[s];
                    (session.stretches, session.stations) = (stretches, stations);
                }
                Err((message, help)) => {
                    self.mistakes.add(at, message, "this session").help(help);
                    continue;
                }
            }
            let Plan { sessions, flows, links, .. } = &mut self.plan;
            for flow in &mut flows[sessions[s].flows()] {
                let twins = flow.path.route.iter().rev().filter_map(|link| links[link.0 as usize].twin);
                flow.path.back = twins.collect();
                flow.path.base_rtt = round_trip(links, &flow.path.route, &flow.path.back);
            }
            self.check_shares(s, at);
            self.check_flow_control(s, at);
        }
    }

    /// Checks that a switch with soft flow control has ends with the same.
    fn check_flow_control(&mut self, session: usize, at: At) {
        let Plan { sessions, switches, flows, transports, .. } = &self.plan;
        let session = &sessions[session];
        let transport = &transports[flows[session.first.0 as usize].transport.0 as usize];
        let mut stations = session.stations.iter().map(|station| &switches[station.switch]);
        if transport.flow_control != proto::FlowControl::Soft
            && let Some(switch) = stations.find(|switch| switch.flow_control == Some(FlowControl::Soft))
        {
            let message = format!(
                "`{}` lets each member use the peer's whole window, and the ends of this session have credit",
                switch.name
            );
            let help = "write `flow-control = \"soft\"` in the flow, or leave it out in the switch";
            self.mistakes.add(at, message, "this session").help(help);
        }
    }

    /// Checks that each switch of a session has a share for each member, or none.
    fn check_shares(&mut self, session: usize, at: At) {
        for station in &self.plan.sessions[session].stations {
            let (switch, members) = (&self.plan.switches[station.switch], station.members.len());
            if !switch.shares.is_empty() && switch.shares.len() != members {
                let message = format!(
                    "`{}` has {} shares, and this session has {members} members",
                    switch.name,
                    switch.shares.len()
                );
                self.mistakes.add(at, message, "here").help("give one share for each member");
                return;
            }
        }
    }

    fn unknown_switch(&mut self, pattern: &str, at: At) {
        let names: Vec<&str> = self.top.named("switch", &keys::SWITCH).map(|(name, _)| name).collect();
        self.mistakes
            .add(at, format!("there is no switch `{pattern}`"), "unknown switch")
            .suggest(pattern, names.into_iter());
    }

    /// Resolves a change of switches.
    pub(super) fn change_switches(&mut self, change: &Reader<'a>) {
        let (Some(pattern), at) = (change.text("switch"), change.span("at")) else { return };
        if let Some(key) = ["link", "flow", "host"].into_iter().find(|key| change.has(key)) {
            let message = "a change applies to links, to flows, to a host or to switches";
            self.mistakes.add(change.key_at(key), message, "with `switch`").help("write two changes");
        }
        if !change.has("shares") && !change.has("member") {
            self.mistakes
                .add(change.key_at("switch"), "this changes nothing", "and then?")
                .help("add `shares` or `member`");
            return;
        }
        let Some(shares) = self.shares(change) else { return };
        let switches = &self.plan.switches;
        let found = |switch: &Switch| matches(&pattern, &switch.name) || matches(&pattern, &switch.section);
        let chosen: Vec<usize> = (0..switches.len()).filter(|&i| found(&switches[i])).collect();
        if chosen.is_empty() {
            self.unknown_switch(&pattern, change.at("switch"));
            return;
        }
        if change.has("shares") {
            let Plan { sessions, switches, .. } = &self.plan;
            let stations = sessions.iter().flat_map(|session| &session.stations);
            let wrong = stations.filter(|station| chosen.contains(&station.switch));
            if let Some(station) = { wrong }.find(|station| station.members.len() != shares.len()) {
                let (name, members) = (&switches[station.switch].name, station.members.len());
                let message = format!(
                    "there are {} shares, and `{name}` has sessions of {members} members",
                    shares.len()
                );
                self.mistakes
                    .add(change.at("shares"), message, "here")
                    .help("give one share for each member");
                return;
            }
            let shares: Arc<[u32]> = shares.into();
            let what = chosen.iter().map(|&switch| What::Shares(switch, Arc::clone(&shares)));
            self.plan.events.extend(what.map(|what| Event { at, what }));
        }
        if change.has("member") {
            self.change_members(change, at, &chosen);
        }
    }

    fn change_members(&mut self, change: &Reader<'a>, at: Time, switches: &[usize]) {
        let Some(group) = self.group(change, "member") else { return };
        let members: Vec<(usize, NodeId)> = self.plan.members(switches).collect();
        for k in 0..group.count {
            let node = group.member(k);
            let of: Vec<usize> =
                members.iter().filter(|member| member.1 == node).map(|member| member.0).collect();
            if of.is_empty() {
                let message = format!("`{}` is not a member there", self.plan.nodes[node.0 as usize].name);
                self.mistakes
                    .add(change.at("member"), message, "no member")
                    .help("name a node where one of its sessions ends");
                return;
            }
            let what = of.into_iter().map(|switch| What::Leave(switch, node));
            self.plan.events.extend(what.map(|what| Event { at, what }));
        }
    }
}

impl Plan {
    /// The members of sessions at the given switches, without repetition: the switch, and the
    /// member's node.
    fn members(&self, switches: &[usize]) -> impl Iterator<Item = (usize, NodeId)> {
        let mut members: Vec<(usize, NodeId)> = Vec::new();
        for session in &self.sessions {
            for (at, station) in
                session.stations.iter().enumerate().filter(|(_, one)| switches.contains(&one.switch))
            {
                for &member in &station.members {
                    members.push((station.switch, session.node(self, member, session.across(at, member))));
                }
            }
        }
        members.sort_unstable();
        members.dedup();
        members.into_iter()
    }
}

/// A message and its remedy.
type Wrong = (String, &'static str);

/// The paths of a session, split at the switches `own`.
fn taken_apart(plan: &Plan, session: &Session, own: &[usize]) -> Result<(Vec<Stretch>, Vec<Station>), Wrong> {
    let name = |node: NodeId| &plan.nodes[node.0 as usize].name;
    let (mut stretches, mut at) = (Vec::<Stretch>::new(), Vec::<usize>::new());
    for i in session.flows() {
        let path = &plan.flows[i].path;
        let mut from = StretchEnd::End(FlowId(plan.sender_of(i) as u32));
        let mut links = Vec::new();
        let mut add = |from, to, links| {
            let stretch = Stretch { from, to, links };
            if !stretches.contains(&stretch) {
                stretches.push(stretch);
            }
        };
        for id in &path.route {
            let link = &plan.links[id.0 as usize];
            if link.twin.is_none() {
                let message = format!(
                    "acknowledgements cannot return over `{}`, which has no reverse direction",
                    link.name
                );
                return Err((message, "leave out its `duplex = false`"));
            }
            links.push(*id);
            let switch = own
                .iter()
                .copied()
                .find(|&switch| plan.switches[switch].node == link.to && link.to != path.to);
            if let Some(switch) = switch {
                let station = at.iter().position(|&known| known == switch).unwrap_or(at.len());
                if station == at.len() {
                    at.push(switch);
                }
                let to = StretchEnd::Station(station);
                add(from, to, std::mem::take(&mut links));
                from = to;
            }
        }
        if matches!(from, StretchEnd::End(_)) {
            let message = format!(
                "the route from `{}` to `{}` passes no switch of the session",
                name(path.from),
                name(path.to)
            );
            return Err((message, "name a switch between its ends, or another session"));
        }
        add(from, StretchEnd::End(FlowId(plan.receiver_of(i) as u32)), links);
    }
    let parts = |end: fn(&Stretch) -> StretchEnd| {
        let mut ends =
            stretches.iter().map(end).filter(|place| matches!(place, StretchEnd::End(_))).collect::<Vec<_>>();
        let count = ends.len();
        ends.sort_unstable_by_key(|place| if let StretchEnd::End(flow) = place { flow.0 } else { 0 });
        ends.dedup();
        ends.len() < count
    };
    if parts(|stretch| stretch.from) || parts(|stretch| stretch.to) {
        let message = "routes of the session part or meet at a node without one of its switches".to_owned();
        return Err((message, "route all flows of a node through one switch"));
    }
    let station = |(s, &switch): (usize, &usize)| {
        let on = |end: fn(&Stretch) -> StretchEnd| -> Vec<usize> {
            (0..stretches.len()).filter(|&i| end(&stretches[i]) == StretchEnd::Station(s)).collect()
        };
        let (above, below) = (on(|stretch| stretch.to), on(|stretch| stretch.from));
        match (&above[..], &below[..]) {
            (&[peer], _) => Ok(Station { switch, peer, members: below }),
            (_, &[peer]) => Ok(Station { switch, peer, members: above }),
            _ => {
                let message = format!(
                    "at `{}` the session has several inputs and several outputs",
                    plan.switches[switch].name
                );
                Err((message, "put two switches back to back: the first merges, the second spreads"))
            }
        }
    };
    let stations: Result<Vec<Station>, Wrong> = at.iter().enumerate().map(station).collect();
    stations.map(|stations| (stretches, stations))
}
