//! Sessions over Anypoint switches: a middle at each switch, with a gate for each stretch that
//! begins or ends there.

use tollway_proto::route::{Candidate, Hash, Route, Weighted};
use tollway_proto::switch::{self, MemberStats};
use tollway_proto::transport;
use tollway_proto::{Gate, NodeMachine};
use tollway_sim::{MachineId, RouteEnd};

use super::Built;
use super::trees::Planted;
use crate::plan::switch::{Session, Station, Stretch, StretchEnd, Switch};
use crate::plan::{LinkId, NodeId, Plan, Spreading};
use crate::run::engine::Engine;
use crate::tables::SystemTables;

/// The switches of a plan, by index.
#[derive(Default)]
pub(in crate::run) struct Switches {
    machines: Vec<MachineId>,
    /// By session and station: the session's index at its switch, and the peer's gate there. The
    /// members' gates follow.
    places: Vec<Vec<(usize, Gate)>>,
}

/// Adds each switch, with its sessions.
pub(in crate::run) fn place<E: Engine>(plan: &Plan, built: &mut Built<E>) -> Switches {
    let mut machines: Vec<switch::Switch> = plan.switches.iter().map(|_| switch::Switch::new()).collect();
    let place = |session: &Session| {
        let add = |(at, station): (usize, &Station)| {
            let (switch, machine) = (&plan.switches[station.switch], &mut machines[station.switch]);
            let number = machine.len();
            let config = config(plan, session, switch);
            let route = module(plan, session, at, number);
            (number, machine.add_session(&config, route, candidates(plan, session, at)))
        };
        session.stations.iter().enumerate().map(add).collect()
    };
    let places = plan.sessions.iter().map(place).collect();
    let nodes = plan.switches.iter().map(|switch| switch.node);
    let add = |(node, machine)| built.network.add(node, NodeMachine::middle(machine));
    Switches { machines: nodes.zip(machines).map(add).collect(), places }
}

/// The routing module of a session at a station, which is the switch's session `number`.
fn module(plan: &Plan, session: &Session, station: usize, number: usize) -> Box<dyn Route + Send> {
    let switch = &plan.switches[session.stations[station].switch];
    match &switch.own {
        Some(own) => {
            let name = |node: NodeId| &*plan.nodes[node.0 as usize].name;
            let members: Vec<&str> = members(plan, session, station).map(name).collect();
            let seed = hash(plan).of(format!("{} {}", switch.name, session.name).as_bytes());
            own.module(&Spreading { switch: &switch.name, session: &session.name, members: &members, seed })
        }
        None if switch.shares.is_empty() => switch.policy.module(number as u64),
        None => Box::new(Weighted::new(&switch.shares)),
    }
}

/// The hash of names, by the run's seed.
fn hash(plan: &Plan) -> Hash {
    Hash::new(u128::from(plan.seed).to_le_bytes())
}

fn config(plan: &Plan, session: &Session, switch: &Switch) -> switch::Config {
    let ends = &plan.transports[plan.flows[session.first.0 as usize].transport.0 as usize];
    switch::Config {
        header: ends.header,
        ack_size: ends.ack_size,
        handshake: ends.handshake,
        initial_segment: 0,
        flow_control: switch.flow_control.unwrap_or(match ends.flow_control {
            transport::FlowControl::Soft => switch::FlowControl::Soft,
            transport::FlowControl::Credit => switch::FlowControl::Credit,
        }),
        content: ends.law.descriptor().reads,
        reading: switch.reading,
        ratio_window: switch.ratio_window,
        patience: switch.patience,
        ..switch::Config::default()
    }
}

/// The members of a session at a station, in a routing module's form.
fn candidates(plan: &Plan, session: &Session, station: usize) -> Vec<Candidate> {
    let hash = hash(plan);
    let names = members(plan, session, station).map(|node| plan.nodes[node.0 as usize].name.as_str());
    let one = |name: &str| Candidate {
        name: hash.of(name.as_bytes()),
        up: true,
        window: MOST_OUTSTANDING,
        ..Candidate::default()
    };
    names.map(one).collect()
}

/// The nodes of a session's members at a station.
fn members(plan: &Plan, session: &Session, station: usize) -> impl Iterator<Item = NodeId> {
    let members = session.stations[station].members.iter();
    members.map(move |&member| session.node(plan, member, session.across(station, member)))
}

/// Lays the routes of every session.
pub(in crate::run) fn plant<E: Engine>(plan: &Plan, built: &mut Built<E>, planted: &mut Planted<E::Route>) {
    for (s, session) in plan.sessions.iter().enumerate() {
        let first = session.first.0 as usize;
        let mut ways = vec![(None, None); session.stretches.len()];
        for (stretch, way) in session.stretches.iter().zip(&mut ways) {
            let back: Vec<LinkId> =
                stretch.links.iter().rev().filter_map(|link| plan.links[link.0 as usize].twin).collect();
            let [to, from] = [(stretch.to, RouteEnd::Server), (stretch.from, RouteEnd::Client)]
                .map(|(place, end)| route_end(built, s, session, stretch, place, end));
            *way = (Some(built.route(&stretch.links, to)), Some(built.route(&back, from)));
        }
        for (at, station) in session.stations.iter().enumerate() {
            let (machine, gate) = (built.switches.machines[station.switch], built.switches.places[s][at].1);
            for (&stretch, gate) in std::iter::once(&station.peer).chain(&station.members).zip(gate.0..) {
                let down = session.stretches[stretch].from == StretchEnd::Station(at);
                let way = if down { ways[stretch].0 } else { ways[stretch].1 };
                let flow = match session.across(at, stretch) {
                    StretchEnd::End(flow) => flow.0 as usize,
                    StretchEnd::Station(_) => first,
                };
                if let Some(way) = way {
                    planted.outlets.push((machine, Gate(gate), way, flow, first));
                }
            }
        }
        for i in session.flows() {
            let [sender, receiver] = [plan.sender_of(i), plan.receiver_of(i)];
            let ends = |end: usize, of: fn(&Stretch) -> StretchEnd| {
                session.stretches.iter().position(
                    |stretch| matches!(of(stretch), StretchEnd::End(flow) if flow.0 as usize == end),
                )
            };
            let there = ends(sender, |stretch| stretch.from).and_then(|at| ways[at].0);
            let back = ends(receiver, |stretch| stretch.to).and_then(|at| ways[at].1);
            if let (Some(there), Some(back)) = (there, back) {
                planted.routes.insert(i, (there, back));
            }
        }
    }
}

/// A stretch's end in the form of a route's end.
fn route_end<E: Engine>(
    built: &Built<E>,
    s: usize,
    session: &Session,
    stretch: &Stretch,
    place: StretchEnd,
    end: RouteEnd,
) -> RouteEnd {
    let StretchEnd::Station(at) = place else { return end };
    let Station { switch, peer, members } = &session.stations[at];
    let side = std::iter::once(peer).chain(members).position(|&one| session.stretches[one] == *stretch);
    let gate = built.switches.places[s][at].1;
    RouteEnd::Middle(built.switches.machines[*switch], Gate(gate.0 + side.unwrap_or_default() as u32))
}

impl Switches {
    /// Applies `work` to a switch at the present instant, if this process runs it.
    fn with<E: Engine>(built: &mut Built<E>, switch: usize, work: impl FnOnce(&mut switch::Switch)) {
        let machine = built.switches.machines[switch];
        if built.network.machine(machine).is_none() {
            return;
        }
        built.network.with_machine(machine, |machine| {
            if let Some(machine) = machine.downcast_mut() {
                work(machine);
            }
        });
    }
}

/// Sets the shares of all sessions of a switch.
pub(in crate::run) fn set_shares<E: Engine>(built: &mut Built<E>, switch: usize, shares: &[u32]) {
    Switches::with(built, switch, |machine| {
        (0..machine.len()).for_each(|session| machine.set_route(session, Box::new(Weighted::new(shares))));
    });
}

/// Removes the member at a node from the sessions of a switch.
pub(in crate::run) fn leave<E: Engine>(plan: &Plan, built: &mut Built<E>, switch: usize, node: NodeId) {
    let mut chosen = Vec::new();
    for (session, places) in plan.sessions.iter().zip(&built.switches.places) {
        for (at, _) in session.stations.iter().enumerate().filter(|(_, one)| one.switch == switch) {
            let member = members(plan, session, at).position(|member| member == node);
            chosen.extend(member.map(|member| (places[at].0, member)));
        }
    }
    let now = built.network.now();
    Switches::with(built, switch, |machine| {
        chosen.into_iter().for_each(|(session, member)| machine.set_member(now, session, member, false));
    });
}

/// A member whose frames the switch counts, since others share its receiver.
#[derive(Clone, Copy, Debug)]
pub(in crate::run) struct ReceiverShare {
    session: usize,
    station: usize,
    member: usize,
    /// Bytes of a packet without payload.
    header: u64,
}

impl ReceiverShare {
    /// The member of a flow's sender.
    pub(in crate::run) fn of(plan: &Plan, flow: usize) -> Option<ReceiverShare> {
        let session = plan.sessions.iter().position(|session| session.flows().contains(&flow))?;
        let (station, member) = plan.sessions[session].share(plan, flow)?;
        let header = plan.transports[plan.flows[flow].transport.0 as usize].header.into();
        Some(ReceiverShare { session, station, member, header })
    }

    /// Returns true if this process runs its switch.
    pub(in crate::run) fn is_counted<E: Engine>(&self, plan: &Plan, built: &Built<E>) -> bool {
        stats(plan, built, (self.session, self.station)).is_some()
    }

    /// Bytes from this member that the peer has, on the wire and of payload.
    pub(in crate::run) fn bytes<E: Engine>(&self, plan: &Plan, built: &Built<E>) -> (u64, u64) {
        let Some(stats) = stats(plan, built, (self.session, self.station)) else { return (0, 0) };
        let member = stats.members().nth(self.member);
        let of = |member: MemberStats| {
            (member.sent_bytes, member.sent_bytes.saturating_sub(member.sent_packets * self.header))
        };
        member.map_or((0, 0), of)
    }
}

/// A session at a station, if this process runs its switch.
fn stats<'a, E: Engine>(
    plan: &Plan,
    built: &'a Built<E>,
    (session, station): (usize, usize),
) -> Option<&'a switch::Session> {
    let switch = plan.sessions[session].stations[station].switch;
    let machine = built.network.machine(built.switches.machines[switch])?.downcast_ref::<switch::Switch>()?;
    Some(machine.session(built.switches.places[session][station].0))
}

/// Tables of switches and their members.
pub(in crate::run) fn report<E: Engine>(plan: &Plan, built: &Built<E>, tables: &mut SystemTables) {
    for (s, session) in plan.sessions.iter().enumerate() {
        for (at, station) in session.stations.iter().enumerate() {
            let Some(found) = stats(plan, built, (s, at)) else { continue };
            let switch = &plan.switches[station.switch].name;
            let keys = [("switch", &**switch), ("session", &session.name)];
            let stats = found.stats();
            let up = found.members().filter(|member| member.health == switch::Health::Up).count();
            let numbers = [
                ("members_up", up as u64),
                ("duplicate_packets", stats.duplicates),
                ("refused_packets", stats.refused),
                ("forged_acks", stats.forged),
                ("null_segments", stats.nulls),
                ("rerouted_packets", stats.rerouted),
                ("lost_packets", stats.lost),
                ("failures", stats.failures),
            ];
            for (column, number) in numbers {
                tables.set("switches", &keys, column, number as f64);
            }
            for (node, member) in members(plan, session, at).zip(found.members()) {
                let name = &*plan.nodes[node.0 as usize].name;
                let keys = [("switch", &**switch), ("session", &session.name), ("member", name)];
                let numbers = [
                    ("received_packets", member.packets as f64),
                    ("received_bytes", member.bytes as f64),
                    ("receive_ratio", member.ratio),
                    ("sent_packets", member.sent_packets as f64),
                    ("sent_bytes", member.sent_bytes as f64),
                ];
                for (column, number) in numbers {
                    tables.set("members", &keys, column, number);
                }
            }
        }
    }
}

/// The window of a member that no other session uses; the transport limits it.
const MOST_OUTSTANDING: u64 = 1 << 30;
