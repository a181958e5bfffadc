//! Ideal allocations of the flows in a plan.

pub(crate) mod overlay;
mod phases;

use std::borrow::Borrow;

use tollway_law::Time;
use tollway_law::budget::Background;
use tollway_law::link::Pricing;
use tollway_law::sender::Spending;
use tollway_proto::Change;
use tollway_proto::cbr::Cbr;
use tollway_proto::transport::Reader;
use tollway_scenario::plan::switch::Session;
use tollway_scenario::plan::{self, Data, Event, Plan, Strategy, What};
use tollway_theory::{Division, Flow, MaxMin, Network, Owner, session_fair};

/// The weighted max–min fair rate of each flow in each direction, in Mb/s, as a mean over its life
/// after the warm-up. Starts and ends of flows and changes of links make phases, each with its own
/// allocation. Where switches merge sessions, the rates are fair among sessions, then among the
/// flows of each.
///
/// `None` for flows that end when their data do. `None` for all if the file alone does not define
/// the ideal: a workload's flows are random, and a shared medium has no separate capacity per
/// direction. A flow limited by a buffer gets the buffer's content per round trip without queues.
///
/// The second rate is for flows with data both ways. After the flows come an overlay's senders,
/// with their proportionally fair rates.
pub fn ideal_mbps(plan: &Plan) -> Vec<[Option<f64>; 2]> {
    if let Some(overlay) = &plan.overlay {
        return overlay::ideal_mbps(plan, overlay);
    }
    let none = || vec![[None; 2]; plan.flows.len()];
    if plan.flows.is_empty() || undefined(plan).is_some() || too_many(plan).is_some() {
        return none();
    }
    let (state, instants) = (State::new(plan), instants(plan));
    let ways: Vec<(usize, bool)> = state.ways.iter().map(|way| (way.of, way.back)).collect();
    let bits = match plan.sessions.is_empty() {
        true => phases::bits(plan, state, &instants).ok(),
        false => bits_of_sessions(plan, state, &instants),
    };
    let Some(bits) = bits else { return none() };
    let mut ideals = none();
    for ((of, back), bits) in ways.into_iter().zip(bits) {
        let seconds = end(plan, of).saturating_sub(begin(plan, of)).as_secs_f64();
        ideals[of][usize::from(back)] = (seconds > 0.0).then(|| bits / seconds * 1e-6);
    }
    ideals
}

/// The reason why [`ideal_mbps`] leaves out an allocation that takes too long; `None` otherwise.
pub(crate) fn too_many(plan: &Plan) -> Option<String> {
    if plan.flows.is_empty() || plan.overlay.is_some() || undefined(plan).is_some() {
        return None;
    }
    let instants = instants(plan).len();
    // There are at most as many classes as directions of flows.
    if instants.saturating_mul(2 * plan.flows.len()) <= MOST_WORK {
        return None;
    }
    let state = State::new(plan);
    let of = match plan.sessions.is_empty() {
        true => phases::Classes::new(plan, &state, &state.capacities(plan, Time::ZERO, plan.duration)).len(),
        false => state.ways.len(),
    };
    let flows = plan.flows.len();
    (instants.saturating_mul(of) > MOST_WORK).then(|| {
        format!(
            "no ideal shares: {flows} flows, {of} with different shares, start and stop at {instants} \
            instants, which takes too long to compute"
        )
    })
}

/// [`phases::bits`] for plans with sessions, flow by flow.
fn bits_of_sessions(plan: &Plan, mut state: State<'_>, instants: &[Time]) -> Option<Vec<f64>> {
    let mut filling = MaxMin::default();
    let mut bits = vec![0.0; state.ways.len()];
    for phase in instants.windows(2) {
        state.advance(plan, phase[0]);
        let active: Vec<usize> = state.active(plan, phase[0], phase[1]).collect();
        let of: Vec<usize> = active.iter().map(|&w| state.ways[w].of).collect();
        let flows: Vec<Flow> = active.iter().map(|&w| state.ways[w].flow.clone()).collect();
        let mut capacities = state.capacities(plan, phase[0], phase[1]);
        make_room_for_acks(plan, &of, &flows, &mut capacities, &mut filling);
        let rates = match sessions(plan, &of) {
            Some(of) => session_fair(&Network { capacities, flows }, &of).ok()?.rates,
            None => filling.rates(&capacities, &flows).ok()?.to_vec(),
        };
        let seconds = (phase[1] - phase[0]).as_secs_f64();
        for (&w, rate) in active.iter().zip(rates) {
            bits[w] += rate * seconds;
        }
    }
    Some(bits)
}

/// The session of each of `flows`; a flow without a session is one alone. `None` without sessions.
pub(crate) fn sessions(plan: &Plan, flows: &[usize]) -> Option<Vec<usize>> {
    let number = |flow: usize| {
        let session = plan.sessions.iter().find(|session| session.flows().contains(&flow));
        session.map_or(flow, |session| session.flows().start)
    };
    (!plan.sessions.is_empty()).then(|| flows.iter().map(|&flow| number(flow)).collect())
}

/// The reason why a file defines no allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undefined {
    /// The scenario has workloads.
    #[error("its workloads' flows arrive at random")]
    Chance,
    /// The scenario has shared media.
    #[error("a half-duplex medium has no fixed capacity for each direction")]
    Medium,
    /// A flow has several receivers.
    #[error("a flow with several receivers uses several paths at once")]
    Multicast,
    /// A switch spreads a connection's frames.
    #[error("a session uses several paths, as its switch schedules")]
    Session,
    /// Classes of traffic have different prices.
    #[error("its classes of traffic have different prices")]
    Classes,
    /// Flows share links with an overlay's hops.
    #[error("its flows share links with the overlay's hops")]
    Beside,
    /// Senders of an overlay pause.
    #[error("its senders send with pauses")]
    Pauses,
    /// A flow ends when its data do.
    #[error("flows end with their data")]
    Sized,
    /// A flow's packets take several routes.
    #[error("packets of a flow take several routes")]
    Spread,
    /// A flow starts after another ends.
    #[error("flows start after others end")]
    After,
    /// There is no flow after the warm-up.
    #[error("no flow is active after the warm-up")]
    NoFlow,
    /// Whenever there are flows, a blackout stops one of them.
    #[error("some flow's path always has a blackout")]
    Dark,
}

fn undefined(plan: &Plan) -> Option<Undefined> {
    if !plan.workloads.is_empty() {
        Some(Undefined::Chance)
    } else if !plan.media.is_empty() {
        Some(Undefined::Medium)
    } else if !plan.trees.is_empty() {
        Some(Undefined::Multicast)
    } else if plan.sessions.iter().any(Session::spreads) {
        Some(Undefined::Session)
    } else if plan.classes.iter().any(|class| !matches!(class.pricing, Pricing::Standard | Pricing::Stable)) {
        Some(Undefined::Classes)
    } else if plan.flows.iter().any(|flow| !flow.data.is_endless()) {
        Some(Undefined::Sized)
    } else if plan.flows.iter().any(|flow| flow.path.spread.is_some()) {
        Some(Undefined::Spread)
    } else if plan.flows.iter().any(|flow| flow.after.is_some()) {
        Some(Undefined::After)
    } else {
        None
    }
}

/// A stretch of a run in which no flow begins or ends and nothing changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Steady {
    /// Its start.
    pub from: Time,
    /// Its end.
    pub until: Time,
    /// The active flows, one entry per direction with data.
    pub directions: Vec<FlowDirection>,
    /// The plan's links in order, and these flows over them, in bits per second.
    pub network: Network,
    /// The owners of budgets for these flows, in $/s. Flows of other laws than FCP's have none.
    pub owners: Vec<Owner>,
    /// The capacity of each link for all packets.
    whole: Vec<f64>,
    /// The demand of these flows' acknowledgements.
    acks: Acks,
}

impl Steady {
    /// The rates that `rates_of` gives the flows, and the network with the capacities left by the
    /// acknowledgements of these rates. ([`network`](Steady::network) has those left at max–min
    /// fair rates.)
    pub(crate) fn allocate<E>(
        &self,
        mut rates_of: impl FnMut(&Network) -> Result<Vec<f64>, E>,
    ) -> Result<(Network, Vec<f64>), E> {
        let mut network = self.network.clone();
        let mut rates = rates_of(&network)?;
        for _ in 0..ACK_ROUNDS {
            let mut capacities = self.whole.clone();
            self.acks.make_room(&rates, &mut capacities);
            let off = |(a, b): (&f64, &f64)| (a - b).abs() > ACKS_OFF * b;
            if !network.capacities.iter().zip(&capacities).any(off) {
                break;
            }
            network.capacities = capacities;
            rates = rates_of(&network)?;
        }
        Ok((network, rates))
    }
}

/// One direction of data of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowDirection {
    /// The name in tables.
    pub name: String,
    /// Index into [`Plan::flows`].
    pub flow: usize,
    /// The round trip without queues.
    pub base_rtt: Time,
}

/// The longest stretch after the warm-up in which no flow begins or ends and nothing changes; of
/// equal ones the last.
///
/// # Errors
/// The plan defines no allocation.
pub fn steady(plan: &Plan) -> Result<Steady, Undefined> {
    if let Some(why) = undefined(plan) {
        return Err(why);
    }
    let instants = instants(plan);
    let mut state = State::new(plan);
    let mut stretches = instants
        .windows(2)
        .filter(|phase| state.active(plan, phase[0], phase[1]).next().is_some())
        .peekable();
    stretches.peek().ok_or(Undefined::NoFlow)?;
    let light = stretches.filter(|phase| {
        let dark = dark(plan, phase[0]);
        let stopped = |w: usize| state.ways[w].flow.links.iter().any(|l| dark.contains(l));
        dark.is_empty() || !state.active(plan, phase[0], phase[1]).any(stopped)
    });
    let longest = light.max_by_key(|phase| phase[1] - phase[0]).ok_or(Undefined::Dark)?;
    state.advance(plan, longest[0]);
    // Rates are compared in the second half.
    let half = Time((longest[0].0 + longest[1].0) / 2);
    let capacities = state.capacities(plan, half, longest[1]);
    let mut network = Network { capacities, flows: Vec::new() };
    let mut directions = Vec::new();
    for way in state.active(plan, longest[0], longest[1]).map(|w| &state.ways[w]) {
        let name = &plan.flows[way.of].name;
        let name = if way.back { format!("{name}.reverse") } else { name.to_string() };
        directions.push(FlowDirection { name, flow: way.of, base_rtt: state.rtt(plan, way.of) });
        network.flows.push(way.flow.clone());
    }
    let owners = state.owners(plan, &directions);
    let flows: Vec<usize> = directions.iter().map(|direction| direction.flow).collect();
    let whole = network.capacities.clone();
    let Network { capacities, flows: over } = &mut network;
    let acks = make_room_for_acks(plan, &flows, over, capacities, &mut MaxMin::default());
    Ok(Steady { from: longest[0], until: longest[1], directions, network, owners, whole, acks })
}

/// Reduces the capacities of links with data by the acknowledgements of the opposite data, at
/// max–min fair rates. `over[f]` is the theoretical flow of `flows[f]`. Returns the
/// acknowledgements, for other rates.
fn make_room_for_acks(
    plan: &Plan,
    flows: &[usize],
    over: &[impl Borrow<Flow>],
    capacities: &mut [f64],
    filling: &mut MaxMin,
) -> Acks {
    let acks = Acks::of(plan, flows, over, capacities.len());
    if !acks.flows.is_empty()
        && let Ok(rates) = filling.rates(capacities, over)
    {
        acks.make_room(rates, capacities);
    }
    acks
}

/// The acknowledgements that share links with data.
#[derive(Clone, Debug, PartialEq)]
struct Acks {
    /// For each flow: its index, the acknowledgements' rate as a fraction of the data's, and the
    /// links.
    flows: Vec<(usize, f64, Vec<usize>)>,
}

impl Acks {
    /// The acknowledgements of flows with one-way data; others acknowledge with their data.
    fn of(plan: &Plan, flows: &[usize], over: &[impl Borrow<Flow>], links: usize) -> Acks {
        let mut carries = vec![false; links];
        over.iter().flat_map(|flow| &flow.borrow().links).for_each(|&l| carries[l] = true);
        let flows = flows.iter().enumerate().filter_map(|(f, &i)| {
            let transport = &plan.transports[plan.flows[i].transport.0 as usize];
            let back = plan.flows[i].path.back.iter().map(|link| link.0 as usize);
            let shared: Vec<usize> = back.filter(|&l| carries[l]).collect();
            let acks = if transport.delayed_ack.is_some() { 0.5 } else { 1.0 };
            let part = acks * f64::from(transport.ack_size) / f64::from(transport.packet_size);
            (!transport.both_ways && !shared.is_empty()).then_some((f, part, shared))
        });
        Acks { flows: flows.collect() }
    }

    /// Reduces `capacities` by the acknowledgements of flows with `rates`.
    fn make_room(&self, rates: &[f64], capacities: &mut [f64]) {
        for (f, part, links) in &self.flows {
            for &l in links {
                capacities[l] = (capacities[l] - rates[*f] * part).max(0.0);
            }
        }
    }
}

/// The capacity of each link for packets before any change, in bits per second, without framing and
/// the whole run's cross-traffic.
pub(crate) fn capacities(plan: &Plan) -> Vec<f64> {
    State::new(plan).capacities(plan, Time::ZERO, plan.duration)
}

fn begin(plan: &Plan, i: usize) -> Time {
    plan.flows[i].start.max(plan.measure.warmup)
}

fn end(plan: &Plan, i: usize) -> Time {
    plan.flows[i].stop.min(plan.duration)
}

/// The links that a blackout stops at `now`.
fn dark(plan: &Plan, now: Time) -> Vec<usize> {
    let stopped = plan.events.iter().filter_map(|event| match event.what {
        What::Blackout(link, until) if event.at <= now && now < until => Some(link.0 as usize),
        _ => None,
    });
    stopped.collect()
}

/// The instants of starts, ends and changes after the warm-up, up to the end.
fn instants(plan: &Plan) -> Vec<Time> {
    let mut instants: Vec<Time> =
        (0..plan.flows.len()).flat_map(|i| [begin(plan, i), end(plan, i)]).collect();
    // Changes before the end of the warm-up count from the first phase on.
    let warmup = plan.measure.warmup;
    instants.extend(plan.events.iter().map(|event| event.at.max(warmup)));
    instants.extend(dark_instants(plan));
    let senders = plan.overlay.iter().flat_map(|overlay| &overlay.senders);
    instants.extend(senders.flat_map(|sender| [sender.start.max(warmup), sender.stop.max(warmup)]));
    instants.extend(plan.cbrs.iter().flat_map(|cbr| [cbr.start.max(warmup), cbr.stop.max(warmup)]));
    instants.retain(|&at| at <= plan.duration);
    instants.sort_unstable();
    instants.dedup();
    instants
}

/// The instants at which blackouts end, after the warm-up.
fn dark_instants(plan: &Plan) -> impl Iterator<Item = Time> {
    plan.events.iter().filter_map(|event| match event.what {
        What::Blackout(_, until) => Some(until.max(plan.measure.warmup)),
        _ => None,
    })
}

/// One direction of a flow with data.
struct Way {
    /// Index into [`Plan::flows`].
    of: usize,
    back: bool,
    /// The theoretical flow: its links, its weight, and the demand that its buffers allow.
    flow: Flow,
}

/// The state of links and buffers after some of the file's changes.
struct State<'a> {
    rates_bps: Vec<f64>,
    delays: Vec<Time>,
    /// The smaller buffer of each flow, in packets.
    windows: Vec<u32>,
    /// The reading application of each flow.
    readers: Vec<Reader>,
    /// True for each flow whose senders are paused.
    paused: Vec<bool>,
    /// The directions of data, flow by flow.
    ways: Vec<Way>,
    /// The budget of each flow without a host, in $/s; 0 for other laws than FCP's.
    budgets: Vec<f64>,
    /// The budgets of hosts, in $/s, and their strategies.
    hosts: Vec<(f64, Strategy)>,
    events: &'a [Event],
    /// The fraction of each link's bits that is packets, without framing.
    packets_part: Vec<f64>,
}

impl<'a> State<'a> {
    pub(crate) fn new(plan: &'a Plan) -> State<'a> {
        let mut size = vec![0u16; plan.links.len()];
        let flows = plan.flows.iter().map(|flow| (flow.transport, &flow.path));
        let chance = plan.workloads.iter().flat_map(|w| w.paths.iter().map(|path| (w.transport, path)));
        for (transport, path) in flows.chain(chance) {
            let transport = &plan.transports[transport.0 as usize];
            let back = path.back.iter().filter(|_| transport.both_ways);
            for link in path.route.iter().chain(back) {
                size[link.0 as usize] = size[link.0 as usize].max(transport.packet_size);
            }
        }
        let part = plan.links.iter().zip(&size).map(|(link, &size)| {
            let size = f64::from(size.max(1));
            size / (size + f64::from(link.overhead))
        });
        State {
            rates_bps: plan.links.iter().map(|link| link.rate.bps()).collect(),
            delays: plan.links.iter().map(|link| link.delay).collect(),
            windows: plan.flows.iter().map(|flow| flow.receive_buffer.min(flow.send_buffer)).collect(),
            readers: plan
                .flows
                .iter()
                .map(|flow| plan.transports[flow.transport.0 as usize].reader)
                .collect(),
            paused: vec![false; plan.flows.len()],
            ways: (0..plan.flows.len()).flat_map(|i| ways(plan, i)).collect(),
            budgets: (0..plan.flows.len())
                .map(|i| spends(plan, i).map_or(0.0, |one| one.budget.get()))
                .collect(),
            hosts: plan.hosts.iter().map(|host| (host.budget, host.strategy)).collect(),
            events: &plan.events,
            packets_part: part.collect(),
        }
    }

    /// Applies the changes up to and at `now`. Returns true if demands changed.
    pub(crate) fn advance(&mut self, plan: &Plan, now: Time) -> bool {
        let mut demands_changed = false;
        while let Some((event, rest)) = self.events.split_first().filter(|(event, _)| event.at <= now) {
            self.events = rest;
            demands_changed |= matches!(
                event.what,
                What::Link(_, Change::Delay(_))
                    | What::Flow(_, Change::ReceiveBuffer(_) | Change::Reader(_) | Change::Paused(_))
            );
            match event.what {
                What::Link(link, Change::Rate(rate)) => self.rates_bps[link.0 as usize] = rate.bps(),
                What::Link(link, Change::Delay(delay)) => {
                    self.delays[link.0 as usize] = delay;
                    let crosses = |path: &plan::Path| path.route.iter().chain(&path.back).any(|l| *l == link);
                    self.demand_anew(plan, |of| crosses(&plan.flows[of].path));
                }
                What::Flow(flow, Change::Budget(budget)) => self.budgets[flow.0 as usize] = budget.get(),
                What::Flow(flow, Change::ReceiveBuffer(packets)) => {
                    let flow = flow.0 as usize;
                    self.windows[flow] = packets.min(plan.flows[flow].send_buffer);
                    self.demand_anew(plan, |of| of == flow);
                }
                What::Flow(flow, Change::Reader(reader)) => {
                    self.readers[flow.0 as usize] = reader;
                    self.demand_anew(plan, |of| of == flow.0 as usize);
                }
                What::Flow(flow, Change::Paused(paused)) => {
                    self.paused[flow.0 as usize] = paused;
                    self.demand_anew(plan, |of| of == flow.0 as usize);
                }
                What::HostBudget(host, budget) => self.hosts[host].0 = budget,
                What::HostStrategy(host, strategy) => self.hosts[host].1 = strategy,
                _ => {}
            }
        }
        demands_changed
    }

    /// Recomputes the demand of flows selected by `concerns`.
    fn demand_anew(&mut self, plan: &Plan, concerns: impl Fn(usize) -> bool) {
        for w in 0..self.ways.len() {
            let of = self.ways[w].of;
            if concerns(of) {
                let most = demand(plan, of, self.windows[of], self.readers[of], self.rtt(plan, of));
                self.ways[w].flow.demand = if self.paused[of] { 0.0 } else { most };
            }
        }
    }

    /// The round trip of a flow without queues.
    fn rtt(&self, plan: &Plan, of: usize) -> Time {
        let path = &plan.flows[of].path;
        let delays = path.route.iter().chain(&path.back).map(|link| self.delays[link.0 as usize]);
        delays.fold(Time::ZERO, Time::saturating_add)
    }

    /// The directions of flows that are active from `from` until `until`.
    fn active(&self, plan: &Plan, from: Time, until: Time) -> impl Iterator<Item = usize> {
        let ways = self.ways.iter().enumerate();
        let lives = move |of: usize| begin(plan, of) <= from && until <= end(plan, of);
        ways.filter(move |(_, way)| lives(way.of) && !self.paused[way.of]).map(|(w, _)| w)
    }

    /// The owners of budgets for `directions`. A host's budget covers only data that it sends; the
    /// opposite direction has a separate budget.
    fn owners(&self, plan: &Plan, directions: &[FlowDirection]) -> Vec<Owner> {
        let mut host_of = vec![None; plan.flows.len()];
        for (h, host) in plan.hosts.iter().enumerate() {
            host.flows.iter().for_each(|flow| host_of[flow.0 as usize] = Some(h));
        }
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); plan.hosts.len()];
        let mut owners = Vec::new();
        for (l, direction) in directions.iter().enumerate() {
            let Some(own) = spends(plan, direction.flow) else { continue };
            let forward = direction.name == plan.flows[direction.flow].name;
            match host_of[direction.flow].filter(|_| forward) {
                Some(host) => members[host].push(l),
                None => {
                    let budget = if forward { self.budgets[direction.flow] } else { own.budget.get() };
                    owners.push(Owner { budget, division: Division::ByWeight, flows: vec![l] });
                }
            }
        }
        let wants = |&l: &usize| {
            let wants = spends(plan, directions[l].flow).and_then(|one| one.wants);
            wants.map_or(0.0, |rate| rate.bps())
        };
        for ((budget, strategy), flows) in self.hosts.iter().zip(members) {
            let division = match strategy {
                Strategy::EqualBudget => Division::ByWeight,
                Strategy::Fixed => Division::Fixed,
                Strategy::Background => Division::Part(Background::default().part),
                Strategy::EqualThroughput => Division::EqualThroughput,
                Strategy::MaxThroughput => Division::MaxThroughput,
                Strategy::Stable => Division::Stable(flows.iter().map(wants).collect()),
            };
            owners.push(Owner { budget: *budget, division, flows });
        }
        owners
    }

    /// The capacity of each link for packets of the flows, in bits per second, without framing and
    /// the cross-traffic from `from` until `until`.
    pub(crate) fn capacities(&self, plan: &Plan, from: Time, until: Time) -> Vec<f64> {
        let mut capacities = self.rates_bps.clone();
        let seconds = until.saturating_sub(from).as_secs_f64().max(1e-9);
        for cbr in &plan.cbrs {
            let source = Cbr::new(cbr.rate, cbr.packet_size, cbr.start, cbr.stop, cbr.on_off);
            let packets = source.packets_in(from, until) as f64 / seconds;
            for link in &cbr.route {
                let bytes = u64::from(plan.links[link.0 as usize].overhead) + u64::from(cbr.packet_size);
                capacities[link.0 as usize] -= 8.0 * bytes as f64 * packets;
            }
        }
        dark(plan, from).into_iter().for_each(|l| capacities[l] = 0.0);
        capacities.iter_mut().zip(&self.packets_part).for_each(|(c, part)| *c = c.max(0.0) * part);
        capacities
    }
}

/// The directions of a flow at the start: forward, and back if it has data both ways.
fn ways(plan: &Plan, of: usize) -> impl Iterator<Item = Way> {
    let flow = &plan.flows[of];
    let transport = &plan.transports[flow.transport.0 as usize];
    let window = flow.receive_buffer.min(flow.send_buffer);
    let demand = demand(plan, of, window, transport.reader, flow.path.base_rtt);
    [(false, &flow.path.route), (true, &flow.path.back)]
        .into_iter()
        .filter(|(back, _)| !back || transport.both_ways)
        .map(move |(back, links)| {
            let links = links.iter().map(|link| link.0 as usize).collect();
            Way { of, back, flow: Flow { links, weight: transport.weight, demand } }
        })
}

/// Upper bound on a flow's rate by its window and its reader without queues, in bits per second.
fn demand(plan: &Plan, flow: usize, window: u32, reader: Reader, rtt: Time) -> f64 {
    let Plan { flows, transports, .. } = plan;
    let transport = &transports[flows[flow].transport.0 as usize];
    let (packet, header) = (f64::from(transport.packet_size), f64::from(transport.header));
    let item = match flows[flow].data {
        Data::Frames { size, .. } => size as f64 + (size as f64 / (packet - header)).ceil() * header,
        _ => packet,
    };
    let reads = reader.per_second() * item * 8.0;
    if window == u32::MAX || rtt == Time::ZERO {
        return reads;
    }
    reads.min(f64::from(window) * packet * 8.0 / rtt.as_secs_f64())
}

fn spends(plan: &Plan, flow: usize) -> Option<Spending> {
    plan.transports[plan.flows[flow].transport.0 as usize].law.descriptor().spends
}

/// Relative precision of the capacity left by acknowledgements.
const ACKS_OFF: f64 = 1e-4;
/// Upper bound on rounds. Acknowledgements are few bytes, so each round's error is a small fraction
/// of the previous one.
const ACK_ROUNDS: usize = 8;
/// Upper bound on phases times classes of flows, for a few seconds of computation.
const MOST_WORK: usize = 20_000_000;

#[cfg(test)]
mod tests;
