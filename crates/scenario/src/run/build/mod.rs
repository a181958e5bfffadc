//! Builds the network of a [`Plan`] on either engine.

pub(super) mod aggregates;
pub(super) mod machines;
pub(super) mod meters;
pub(super) mod overlay;
pub(super) mod sessions;
mod trees;

use std::collections::BTreeMap;
use std::sync::Arc;

use tollway_law::link::{AnyLink, LinkLaw as _};
use tollway_law::sender::{NewRenoConfig, SenderConfig, SenderLaw as _, Sending};
use tollway_law::toll::Content;
use tollway_law::{Rate, Time};
use tollway_proto::Change;
use tollway_proto::link::Link;
use tollway_proto::port::{AnyQueue, ClassQueuesConfig};
use tollway_proto::route::mix;
use tollway_proto::shaper::ClassId;
use tollway_proto::transport::{Config, Connection, Rto};
use tollway_sim::{End, FlowId, LinkId, LinkSpec, MachineId, Network, RouteEnd, SourceId};

use super::ends::Ends;
use super::engine::{Congestion, Engine, Joint, Kernels, Part, Place, Start};
use crate::plan::{self, Data, EqualCost, NodeId, Plan, TransportId};
use crate::tables::SystemTables;
use meters::Posts;

/// A network and the identifiers of the plan's parts in it. Links have their [`plan::LinkId`].
pub(super) struct Built<E: Engine> {
    pub(super) network: E,
    /// By [`plan::FlowId`].
    pub(super) flows: Vec<FlowId>,
    /// Routes there and back, by workload and path.
    pub(super) workload_routes: Vec<Vec<Routes<E::Route>>>,
    pub(super) sources: Vec<SourceId>,
    /// By index in the plan.
    pub(super) machines: Vec<MachineId>,
    /// The overlay's daemons.
    pub(super) sites: overlay::Sites,
    pub(super) switches: sessions::Switches,
    pub(super) meters: Posts,
    /// By index in the plan.
    pub(super) shapers: Vec<MachineId>,
    /// The highest rate of each link whose rate is to change.
    raised: BTreeMap<plan::LinkId, Rate>,
    configs: BTreeMap<(TransportId, u32, u32, bool), Arc<Config>>,
    /// Flows started.
    started: u64,
    /// True if other processes run some of the nodes.
    pub(super) is_part: bool,
}

/// A flow to be started.
pub(super) struct FlowEnds<'a, R> {
    /// Its section.
    pub(super) section: &'a str,
    /// The flow's name; for a flow of a workload, its number.
    pub(super) name: Result<&'a str, u64>,
    pub(super) transport: TransportId,
    /// True if the flow is part of a session.
    pub(super) session: bool,
    pub(super) route: (R, R),
    /// The nodes `from` and `to`.
    pub(super) hosts: [NodeId; 2],
    /// Numbers of routers there and back.
    pub(super) routers: (u8, u8),
    /// Rates of the interfaces of client and server.
    pub(super) line_rates: (Rate, Rate),
    pub(super) data: Data,
    pub(super) receive_buffer: u32,
    pub(super) send_buffer: u32,
    /// True if the receive buffer is to change.
    pub(super) buffer_changes: bool,
    pub(super) start: Time,
    pub(super) stop: Time,
    /// The shaper and class of its packets.
    pub(super) shaped: Option<plan::ShaperClass>,
}

/// The simulator's network, with the plan's links, media and shapers, and the shapers' identifiers.
pub(super) fn simulated(plan: &Plan) -> (Network<Connection>, Vec<MachineId>) {
    let mut network = Network::new(plan.seed);
    network.reserve(plan.links.len(), plan.flows.len());
    for (i, link) in plan.links.iter().enumerate() {
        let id = network.add_link(LinkSpec {
            rate: link.rate,
            delay: link.delay,
            overhead: link.overhead,
            law: link_law(plan, i),
            limit: link.law.limit,
            queue: queue(plan, i),
        });
        debug_assert_eq!(id, LinkId(i as u32));
        if let Some(trace) = &link.trace {
            network.set_trace(id, trace.clone());
        }
    }
    for medium in &plan.media {
        let members: Vec<LinkId> = medium.links.iter().map(|link| LinkId(link.0)).collect();
        network.add_medium(&members);
    }
    let shapers = plan.shapers.iter().map(|shaper| network.add_shaper(aggregates::shaper(shaper))).collect();
    (network, shapers)
}

/// Routes there, and routes back.
type Routes<R> = [Box<[R]>; 2];

impl<E: Engine> Built<E> {
    /// Adds the plan's flows and sources to a network that has its links and shapers.
    pub(super) fn new(plan: &Plan, network: E, shapers: Vec<MachineId>) -> Built<E> {
        let is_elsewhere = |node| !network.has(Place::Node(NodeId(node)));
        let mut built = Built {
            is_part: (0..plan.nodes.len() as u32).any(is_elsewhere),
            network,
            flows: Vec::with_capacity(plan.flows.len()),
            workload_routes: Vec::new(),
            sources: Vec::new(),
            machines: Vec::new(),
            sites: overlay::Sites::default(),
            switches: sessions::Switches::default(),
            meters: Posts::default(),
            shapers,
            raised: raised(plan),
            configs: BTreeMap::new(),
            started: 0,
        };
        for (i, losses) in plan.own_losses().enumerate().filter(|(_, losses)| !losses.is_empty()) {
            built.network.change(Part::Link(LinkId(i as u32)), Change::Losses(losses));
        }
        for (i, link) in plan.links.iter().enumerate() {
            if let Some(impairments) = &link.impairments {
                built.network.change(Part::Link(LinkId(i as u32)), Change::Wire(**impairments));
            }
        }
        built.meters = meters::place(plan, &mut built);
        built.machines = machines::place(plan, &mut built);
        built.sites = overlay::place(plan, &mut built);
        built.switches = sessions::place(plan, &mut built);
        for cbr in &plan.cbrs {
            let route = built.route(&cbr.route, RouteEnd::Sink);
            let source = built.network.add_source(cbr, route);
            built.sources.extend(source);
            if let (Some(source), Some((shaper, class))) = (source, built.shaper_of(cbr.shaped)) {
                // The source has one queue for all its policies: the shortest.
                let policies =
                    plan.shapers[cbr.shaped.map_or(0, |at| at.shaper)].classes[class.0 as usize].iter();
                let room = policies.map(|&policy| plan.aggregates[policy].queue).min().unwrap_or(0);
                built.network.join(Joint::ShapeSource(source, shaper, class, room));
            }
        }
        for workload in &plan.workloads {
            let routes = workload.paths.iter().map(|path| match plan.equal_cost {
                EqualCost::Flow => built.all_routes(path),
                _ => <[_; 2]>::from(built.routes(plan, path)).map(|route| Box::from([route])),
            });
            let routes = routes.collect();
            built.workload_routes.push(routes);
        }
        let mut planted = trees::plant(plan, &mut built);
        sessions::plant(plan, &mut built, &mut planted);
        for (i, flow) in plan.flows.iter().enumerate() {
            // A receiver other than the first of its tree or session has no active sender.
            let silent = plan.sender_of(i) != i;
            let is_buffer = |event: &plan::Event| matches!(event.what, plan::What::Flow(of, Change::ReceiveBuffer(_)) if of.0 as usize == i);
            let ends = FlowEnds {
                section: &flow.section,
                name: Ok(&flow.name),
                transport: flow.transport,
                session: plan.session_of(i).is_some(),
                route: planted.routes.remove(&i).unwrap_or_else(|| built.routes(plan, &flow.path)),
                hosts: [flow.path.from, flow.path.to],
                routers: routers(plan, &flow.path),
                line_rates: built.line_rates(plan, &flow.path),
                data: flow.data,
                receive_buffer: flow.receive_buffer,
                send_buffer: flow.send_buffer,
                buffer_changes: plan.events.iter().any(is_buffer),
                start: if silent { Time::NEVER } else { flow.start },
                stop: if silent { Time::NEVER } else { flow.stop },
                shaped: flow.shaped,
            };
            let id = built.start_flow(plan, ends, None);
            built.flows.push(id);
        }
        for (i, flow) in plan.flows.iter().enumerate() {
            let Some(after) = &flow.after else { continue };
            let others = after.iter().map(|other| {
                let transport = plan.flows[other.0 as usize].transport;
                (built.flows[other.0 as usize], plan.transports[transport.0 as usize].both_ways)
            });
            let others: Vec<_> = others.collect();
            let joint = Joint::After { flow: built.flows[i], others: &others, delay: flow.start };
            built.network.join(joint);
        }
        planted.connect(&mut built);
        machines::attach(plan, &mut built);
        overlay::attach(plan, &mut built);
        built
    }

    /// The routes there and back of a flow; each may divide its packets among several.
    fn routes(&mut self, plan: &Plan, path: &plan::Path) -> (E::Route, E::Route) {
        let cost = if path.spread.is_some() { plan.equal_cost } else { EqualCost::First };
        let there = self.add_route(path.routes(), RouteEnd::Server, cost);
        (there, self.add_route(path.backs(), RouteEnd::Client, cost))
    }

    /// All routes of a path, there and back.
    fn all_routes(&mut self, path: &plan::Path) -> Routes<E::Route> {
        let there = path.routes().map(|route| self.route(route, RouteEnd::Server)).collect();
        [there, path.backs().map(|route| self.route(route, RouteEnd::Client)).collect()]
    }

    /// The routes there and back of a workload's flow; a hash of its number chooses among several.
    pub(super) fn workload_route(
        &self,
        plan: &Plan,
        workload: usize,
        path: usize,
        number: u64,
    ) -> (E::Route, E::Route) {
        let [there, back] = &self.workload_routes[workload][path];
        if let ([there], [back]) = (&**there, &**back) {
            return (*there, *back);
        }
        let hash = mix(plan.seed ^ mix(workload as u64 + 1) ^ mix(!number));
        let pick = |routes: &[E::Route], hash: u64| routes[(hash % routes.len() as u64) as usize];
        (pick(there, hash), pick(back, mix(hash)))
    }

    /// Rates of the first link from either end of a path, at their highest; unlimited for a
    /// replayed trace.
    pub(super) fn line_rates(&self, plan: &Plan, path: &plan::Path) -> (Rate, Rate) {
        let line_rate = |route: &[plan::LinkId]| {
            let first = *route.first()?;
            let link = &plan.links[first.0 as usize];
            let raised = self.raised.get(&first).copied();
            link.trace.is_none().then_some(raised.filter(|&rate| rate > link.rate).unwrap_or(link.rate))
        };
        let most = Sending::of(1.0).line_rate;
        (line_rate(&path.route).unwrap_or(most), line_rate(&path.back).unwrap_or(most))
    }

    pub(super) fn route(&mut self, links: &[plan::LinkId], end: RouteEnd) -> E::Route {
        self.add_route(std::iter::once(links), end, EqualCost::First)
    }

    fn add_route<'a>(
        &mut self,
        ways: impl Iterator<Item = &'a [plan::LinkId]>,
        end: RouteEnd,
        cost: EqualCost,
    ) -> E::Route {
        let of = |links: &[plan::LinkId]| links.iter().map(|link| LinkId(link.0)).collect();
        let ways: Vec<Vec<LinkId>> = ways.map(of).collect();
        self.network.add_route(&ways, end, cost)
    }

    /// Adds a flow, which may reuse the slot of `vacant`.
    pub(super) fn start_flow(
        &mut self,
        plan: &Plan,
        ends: FlowEnds<'_, E::Route>,
        vacant: Option<FlowId>,
    ) -> FlowId {
        let transport = &plan.transports[ends.transport.0 as usize];
        let key = (ends.transport, ends.receive_buffer, ends.send_buffer, ends.session);
        let config = || Arc::new(transport_config(transport, &ends));
        // Each sender has an independent random stream.
        self.started += 1;
        let seed = plan.seed ^ self.started.wrapping_mul(0xd1b5_4a32_d192_ed03);
        let name = || match ends.name {
            Ok(name) => name.to_owned(),
            Err(number) => format!("{}.{}", ends.section, number + 1),
        };
        // A caller makes laws only for senders with data. An end that only acknowledges needs no
        // law.
        let own = transport.law.get::<plan::OwnSender>().is_some();
        let asked = |backward: bool| {
            let sends = !backward || transport.both_ways;
            if own {
                sends && ends.start < Time::NEVER
            } else {
                sends || ends.data == Data::Messages || ends.session
            }
        };
        let law = |seed: u64, backward: bool| {
            let flow = if own { name() } else { String::new() };
            let sending = Sending {
                flow: &flow,
                section: ends.section,
                backward,
                segment: transport.packet_size,
                line_rate: if backward { ends.line_rates.1 } else { ends.line_rates.0 },
                whole_toll: !transport.encoding.xcp_only(),
                pricing: plan.pricing(transport.class),
                seed,
                ..Sending::of(f64::from(transport.initial_window))
            };
            if asked(backward) {
                transport.law.make(&sending)
            } else {
                NewRenoConfig::default().make(&sending)
            }
        };
        let made = Ends {
            config: self.configs.entry(key).or_insert_with(config),
            law: |backward| law(if backward { !seed } else { seed }, backward),
            routers: ends.routers,
            data: ends.data,
            both_ways: transport.both_ways,
        };
        let (forward, back) = ends.route;
        let start = Start {
            forward,
            back,
            start: ends.start,
            stop: ends.stop,
            encoding: transport.encoding,
            segment: u32::from(transport.packet_size),
            class: transport.first_class(),
            hosts: ends.hosts.map(|node| node.0),
            session: ends.session,
            // Retired, since flows of workloads would exhaust the memory.
            retire: ends.name.is_err().then_some(transport.both_ways),
            kernel: transport.kernel.then(|| kernels(transport, &ends)),
        };
        let flow = self.network.start_flow(start, made, vacant);
        if let Some((shaper, class)) = self.shaper_of(ends.shaped) {
            self.network.join(Joint::Shape(flow, shaper, class));
        }
        flow
    }

    fn shaper_of(&self, shaped: Option<plan::ShaperClass>) -> Option<(MachineId, ClassId)> {
        shaped.map(|shaped| (self.shapers[shaped.shaper], ClassId(shaped.class)))
    }

    /// Reports the contents of packets of flows with data both ways, and deadlines.
    pub(super) fn report_flows(&self, plan: &Plan, tables: &mut SystemTables) {
        for (flow, &id) in plan.flows.iter().zip(&self.flows) {
            let transport = &plan.transports[flow.transport.0 as usize];
            if !transport.both_ways {
                continue;
            }
            // With data both ways, the contents of packets vary.
            let keys = [("flow", &*flow.section)];
            tables.set("duplex", &keys, "sack_blocks", f64::from(transport.sack_blocks));
            for stats in [
                self.network.connection(id, End::Client).stats(),
                self.network.connection(id, End::Server).stats(),
            ] {
                let numbers = [
                    ("segments_received", stats.segments_received),
                    ("echoing_segments", stats.echoing_segments),
                    ("pure_acks", stats.acks_sent),
                ];
                for (name, count) in numbers {
                    tables.add("duplex", &keys, name, count as f64);
                }
            }
        }
        for (flow, &id) in plan.flows.iter().zip(&self.flows) {
            for (buffer, way) in
                [self.network.connection(id, End::Server), self.network.connection(id, End::Client)]
                    .into_iter()
                    .zip(["", ".reverse"])
            {
                let both_ways = plan.transports[flow.transport.0 as usize].both_ways;
                let Some(buffer) = buffer.buffer().filter(|_| way.is_empty() || both_ways) else { continue };
                let name = format!("{}{way}", flow.name);
                let numbers = [
                    ("unread_bytes", buffer.unread as f64),
                    ("most_unread_bytes", buffer.most_unread as f64),
                    ("dropped_packets", buffer.dropped as f64),
                    ("last_drop_s", buffer.last_drop.nearest_secs()),
                ];
                for (column, number) in numbers {
                    tables.set("receivers", &[("flow", &name)], column, number);
                }
            }
        }
        let deadlines = plan.flows.iter().zip(&self.flows).filter_map(|(flow, &id)| {
            let spends = plan.transports[flow.transport.0 as usize].law.descriptor().spends?;
            self.network.connection(id, End::Client).law().spender().filter(|_| spends.deadline.is_some())
        });
        let refused: Vec<bool> = deadlines.map(|law| law.refused().is_some()).collect();
        if !refused.is_empty() {
            let count = refused.into_iter().filter(|refused| *refused).count();
            tables.set("deadlines", &[], "refused", count as f64);
        }
    }

    /// Reports the figures of links, trees, meters and cross-traffic.
    pub(super) fn report_links(&mut self, plan: &Plan, tables: &mut SystemTables) {
        for (link, id) in plan.links.iter().zip((0..).map(LinkId)) {
            let name = &link.name;
            let (stats, deviation, waits) = self.network.with_link(id, |link, now| {
                (link.read(now), link.port.law.deviation(), link.port.waits().to_vec())
            });
            if let Some(deviation) = deviation {
                tables.set("shadows", &[("link", name)], "divergence", deviation.worst);
                tables.set("shadows", &[("link", name)], "packets", deviation.packets as f64);
            }
            let queues = link.law.queue.as_ref().and_then(|queue| queue.get::<ClassQueuesConfig>());
            let queue_of = queues.map_or(&[][..], |queues| &queues.queue_of);
            let names = std::iter::once("none").chain(plan.classes.iter().map(|class| class.name.as_str()));
            for (class, &queue) in names.zip(queue_of) {
                // Classes with one queue have the same figures.
                if let Some(waits) = waits.get(usize::from(queue)).filter(|waits| waits.packets > 0) {
                    let mean_ms = waits.nanos as f64 * 1e-6 / waits.packets as f64;
                    tables.set("queues", &[("link", name), ("class", class)], "delay_ms", mean_ms);
                }
            }
            let drops = stats.drops;
            let lost = drops.before + drops.after + drops.corrupt;
            if lost > 0 {
                tables.set("losses", &[("link", name)], "packets", lost as f64);
            }
        }
        for tree in &plan.trees {
            let flow = &plan.flows[tree.first.0 as usize];
            let Some(down) = flow.path.route.first() else { continue };
            let Some(up) = plan.links[down.0 as usize].twin else { continue };
            let [down, up] =
                [*down, up].map(|link| self.network.with_link(LinkId(link.0), Link::read).sent_packets);
            let answers = up as f64 / down.max(1) as f64;
            tables.set("trees", &[("flow", &flow.section)], "answers_per_packet", answers);
        }
        meters::report(plan, self, tables);
        for (cbr, &id) in plan.cbrs.iter().zip(&self.sources) {
            let stats = self.network.read_source(id);
            tables.set("sources", &[("source", &cbr.name)], "sent_packets", stats.sent_packets as f64);
            tables.set("sources", &[("source", &cbr.name)], "arrived_packets", stats.arrived_packets as f64);
        }
    }
}

/// The task of the kernel's TCP for a flow.
fn kernels<R>(transport: &plan::Transport, ends: &FlowEnds<'_, R>) -> Kernels {
    let buffer = Some(ends.receive_buffer.min(ends.send_buffer)).filter(|&packets| packets < u32::MAX);
    let payload = u32::from(transport.packet_size.saturating_sub(transport.header));
    Kernels {
        law: Congestion::of(transport),
        bytes: ends.data.bytes(),
        both_ways: transport.both_ways,
        receive_buffer: buffer.map(|packets| packets.saturating_mul(payload)),
        changes: ends.buffer_changes,
    }
}

/// The numbers of routers there and back, as derived from IP's time-to-live. The first queue is the
/// host's own; it counts only if its law gives feedback.
pub(super) fn routers(plan: &Plan, path: &plan::Path) -> (u8, u8) {
    let count = |route: &[plan::LinkId]| {
        let gives = |link: &plan::LinkId| plan.links[link.0 as usize].law.descriptor().gives;
        let silent = |link: &&plan::LinkId| gives(link) != Some(Content::Feedback);
        let own = usize::from(route.first().is_some_and(|link| silent(&link)));
        u8::try_from(route.len() - own).unwrap_or(u8::MAX)
    };
    (count(&path.route), count(&path.back))
}

/// The highest later rate of each link whose rate changes.
fn raised(plan: &Plan) -> BTreeMap<plan::LinkId, Rate> {
    let mut raised = BTreeMap::new();
    for event in &plan.events {
        if let plan::What::Link(link, Change::Rate(rate)) = event.what {
            let most = raised.entry(link).or_insert(rate);
            if rate > *most {
                *most = rate;
            }
        }
    }
    raised
}

/// The seed of each port's independent random stream.
fn port_seed(plan: &Plan, index: usize) -> u64 {
    plan.seed ^ (index as u64 + 1).wrapping_mul(0xa076_1d64_78bd_642f)
}

pub(super) fn queue(plan: &Plan, index: usize) -> AnyQueue<AnyLink, u32> {
    let link = &plan.links[index];
    let at = plan.placement(link, &[], port_seed(plan, index));
    link.law.queue.as_ref().map_or_else(AnyQueue::default, |queue| queue.place(&at))
}

pub(super) fn link_law(plan: &Plan, index: usize) -> AnyLink {
    let (link, classes) = (&plan.links[index], plan.pricings());
    link.law.law.place(&plan.placement(link, &classes, port_seed(plan, index)))
}

fn transport_config<R>(transport: &plan::Transport, ends: &FlowEnds<'_, R>) -> Config {
    let payload = u64::from(transport.packet_size.saturating_sub(transport.header).max(1));
    Config {
        segment: transport.packet_size,
        header: transport.header,
        ack_size: transport.ack_size,
        handshake: transport.handshake,
        initial_segment: 0,
        send_buffer: ends.send_buffer.clamp(1, 1 << 30),
        receive_buffer: u64::from(ends.receive_buffer.clamp(1, 1 << 30)) * payload,
        window_growth: transport.window_growth,
        reader: transport.reader,
        flow_control: transport.flow_control,
        sack: transport.sack_blocks > 0,
        sack_ranges: transport.sack_blocks.max(1),
        detection: transport.loss_detection,
        repair_copies: transport.repair_copies,
        limited_transmit: true,
        delayed_ack: transport.delayed_ack,
        rto: Rto { widens: ends.session, ..transport.rto },
        ecn: transport.ecn,
        l4s: transport.l4s,
        echo: transport.law.descriptor().echo,
    }
}
