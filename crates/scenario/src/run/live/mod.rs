//! The live engine: runs a [`Plan`] on real packets.

mod adapt;
mod info;
mod numbered;

use std::any::Any;
use std::collections::BTreeSet;

use tollway_law::Time;
use tollway_law::sender::AnySender;
use tollway_net as net;
use tollway_net::secure::Trouble;
use tollway_proto as proto;
use tollway_proto::link::Link;
use tollway_proto::transport::Connection;
use tollway_proto::{Change, NodeMachine, OneWay};
use tollway_sim::{Census, End, FlowId, LinkId, MachineId, RouteEnd, SinkStats, SourceId};

pub use adapt::Unsupported;
pub(super) use adapt::{adapt, no_capture};
pub use info::{LiveInfo, WireInfo};

use super::build::{aggregates, link_law, queue};
use super::ends::Ends;
#[cfg(target_os = "linux")]
use super::engine::Kernels;
use super::engine::{Engine, FlowEvent, Joint, Outside, Part, Place, Start, Totals};
use super::kernel_laws::Loaded;
#[cfg(target_os = "linux")]
use super::routers::Placed;
use super::{Hosting, NodeProcess, Options, RunError};
use crate::plan::{Cbr, EqualCost, NodeId, Plan, TransportId};

/// Builds the live network, with the plan's nodes, links and shapers, and the shapers' identifiers.
pub(super) fn network(plan: &Plan, options: &Options<'_>) -> Result<(Live, Vec<MachineId>), RunError> {
    let hosting = &options.hosting;
    let loaded = Loaded::new(plan, options.kernel_laws.as_ref())?;
    let names: Vec<String> = plan.nodes.iter().map(|node| node.name.to_string()).collect();
    let mut specs = link_specs(plan);
    #[cfg(target_os = "linux")]
    let taken = options.routers.as_ref().map(|_| Placed::take(&mut specs)).unwrap_or_default();
    let mut network = match hosting {
        Hosting::Loopback => net::Network::new(&names, &specs, plan.seed, threads(plan))?,
        #[cfg(target_os = "linux")]
        Hosting::Namespaces => {
            net::Network::in_namespaces(&names, &specs, plan.seed, threads(plan), largest(plan))?
        }
        #[cfg(not(target_os = "linux"))]
        Hosting::Namespaces => return Err(adapt::no_namespaces().into()),
        Hosting::Processes(NodeProcess { node, at, patience, keys }) => {
            let mut network = net::Network::part(&names, &specs, plan.seed, *node, at, *patience)?;
            if let Some(keys) = keys {
                network.seal(*node as u32, keys).map_err(net::Error::from)?;
            }
            network
        }
    };
    #[cfg(target_os = "linux")]
    {
        let of_kernel = |transport: TransportId| plan.transports[transport.0 as usize].kernel;
        let flows = plan.flows.iter().filter(|flow| of_kernel(flow.transport)).map(|flow| &flow.path);
        let workloads = plan.workloads.iter().filter(|workload| of_kernel(workload.transport));
        let paths = flows.chain(workloads.flat_map(|workload| &workload.paths));
        let nodes: BTreeSet<u32> = paths.flat_map(|path| [path.from.0, path.to.0]).collect();
        network.open_kernels(&nodes.into_iter().collect::<Vec<_>>())?;
    }
    #[cfg(target_os = "linux")]
    let routers = options.routers.as_ref().map(|routers| Placed::new(plan, &network, routers, taken));
    for medium in &plan.media {
        network.add_medium(&medium.links.iter().map(|link| link.0).collect::<Vec<_>>());
    }
    let shapers = plan.shapers.iter();
    let shapers = shapers
        .map(|shaper| MachineId(network.add_shaper(shaper.node.0, aggregates::shaper(shaper))))
        .collect();
    let part = match hosting {
        Hosting::Loopback | Hosting::Namespaces => None,
        Hosting::Processes(part) => Some(part.clone()),
    };
    // Within a process there is only one file.
    let fingerprints = part.iter().flat_map(|_| numbered::fingerprints(plan)).collect();
    // A machine that splits connections depends on their first numbers.
    let numbered = part.is_some() && plan.machines.is_empty() && plan.sessions.is_empty();
    let live = Live {
        #[cfg(target_os = "linux")]
        placed: routers.transpose()?,
        network,
        loaded,
        part,
        numbered,
        fingerprints,
        routes: Vec::new(),
        kernel_drops: None,
        failed: None,
    };
    Ok((live, shapers))
}

/// The plan's links in the form of the live engine.
pub(crate) fn link_specs(plan: &Plan) -> Vec<net::LinkSpec> {
    let spec = |(i, link): (usize, &crate::plan::Link)| net::LinkSpec {
        from: link.from.0,
        to: link.to.0,
        rate: link.rate,
        trace: link.trace.clone(),
        delay: link.delay,
        overhead: link.overhead,
        law: link_law(plan, i),
        limit: link.law.limit,
        queue: queue(plan, i),
    };
    plan.links.iter().enumerate().map(spec).collect()
}

/// Size of the largest packet, bytes, from IP's header on.
#[cfg(target_os = "linux")]
fn largest(plan: &Plan) -> u16 {
    let transports = plan.transports.iter().flat_map(|transport| [transport.packet_size, transport.ack_size]);
    transports.chain(plan.cbrs.iter().map(|cbr| cbr.packet_size)).max().unwrap_or(0)
}

/// The number of threads: one for each [`BUSY`] of the flows' possible rate, with one processor
/// left for other programs.
fn threads(plan: &Plan) -> usize {
    if !plan.media.is_empty() || plan.links.iter().any(|link| link.meter.is_some() || link.exchange.is_some())
    {
        return 1; // The state of a medium, and that of meters, belongs to one thread.
    }
    let slowest = |route: &[crate::plan::LinkId]| {
        route.iter().map(|link| plan.links[link.0 as usize].rate.mbps()).fold(f64::INFINITY, f64::min)
    };
    let flows = plan.flows.iter().map(|flow| slowest(&flow.path.route));
    let workloads = plan.workloads.iter().flat_map(|w| &w.paths).map(|path| slowest(&path.route));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // The flows' total is limited by the busiest links.
    let most = plan.links.iter().map(|link| link.rate.mbps()).fold(0.0, f64::max) * 2.0;
    let load = flows.chain(workloads).sum::<f64>().min(most);
    ((load / BUSY).ceil() as usize).clamp(1, cores.saturating_sub(1).max(1))
}

/// The live engine; it keeps the first error until it can be returned.
pub(super) struct Live {
    /// Links at interfaces. They go before the network.
    #[cfg(target_os = "linux")]
    placed: Option<Placed>,
    network: net::Network,
    /// The laws of flows of the kernel's TCP.
    loaded: Loaded,
    part: Option<NodeProcess>,
    /// True if flows begin with random segment numbers.
    numbered: bool,
    /// By flow; empty if this process runs all nodes.
    fingerprints: Vec<u32>,
    /// The links of each route, and its end.
    routes: Vec<(Vec<u32>, net::RouteEnd)>,
    kernel_drops: Option<u64>,
    failed: Option<net::Error>,
}

impl Live {
    /// The number of a new flow's first segment; `None` if all flows begin with the same.
    fn first_segment(&mut self) -> Option<u32> {
        if !self.numbered {
            return None;
        }
        let drawn = net::random().map_err(|error| self.failed.get_or_insert(net::Error::Random(error)));
        drawn.ok().map(u32::from_be_bytes)
    }

    pub(super) fn info(&self, plan: &Plan) -> LiveInfo {
        LiveInfo {
            node: self.part.as_ref().map(|part| plan.nodes[part.node].name.to_string()),
            broken: self.broken(plan),
            #[cfg(target_os = "linux")]
            kernel_packets: self.network.kernel_packets(),
            #[cfg(not(target_os = "linux"))]
            kernel_packets: (0, 0),
            wires: self.wires(plan),
            #[cfg(target_os = "linux")]
            routed: self.placed.as_ref().map(Placed::waits).unwrap_or_default(),
            #[cfg(not(target_os = "linux"))]
            routed: Vec::new(),
            fallen: self.loaded.fallen(),
            threads: self.network.threads(),
            real_time: self.network.real_time(),
            counters: self.network.counters(),
            kernel_drops: self.kernel_drops,
            punctuality: self.network.punctuality(),
        }
    }
}

impl Live {
    #[cfg(target_os = "linux")]
    fn wires(&self, plan: &Plan) -> Vec<WireInfo> {
        let wire = |wire: &net::WireCount| WireInfo {
            link: plan.links[wire.link as usize].name.to_string(),
            namespace: wire.namespace.clone(),
            interface: wire.interface.clone(),
            reported: wire.reported,
            sent: wire.sent,
            received: wire.received,
            dropped: wire.dropped,
        };
        self.network.wires().iter().map(wire).collect()
    }

    #[cfg(not(target_os = "linux"))]
    fn wires(&self, _plan: &Plan) -> Vec<WireInfo> {
        Vec::new()
    }

    /// Failures at this node: packets too long for the next node, and flows.
    fn broken(&self, plan: &Plan) -> Vec<String> {
        let tell = |(link, longest, most): (u32, usize, usize)| {
            let link = &plan.links[link as usize];
            let [from, to] = [link.from, link.to].map(|node| &plan.nodes[node.0 as usize].name);
            format!(
                "link `{}`: packets from node `{from}` to node `{to}` have up to {longest} B, and the path's \
                MTU is {most} B: longer ones are lost; give flows a smaller `packet-size`, or the path a \
                larger MTU",
                link.name
            )
        };
        let mut broken: Vec<String> = self.network.too_narrow().into_iter().map(tell).collect();
        if let Some(part) = &self.part {
            broken.extend(self.given_up(plan, part));
            broken.extend(self.without_keys(plan, part));
        }
        broken
    }

    /// The neighbours with which this node could not agree on keys.
    fn without_keys(&self, plan: &Plan, part: &NodeProcess) -> Vec<String> {
        let here = &plan.nodes[part.node].name;
        let tell = |(node, trouble): (u32, Trouble)| {
            let name = &plan.nodes[node as usize].name;
            Some(match trouble {
                // The node's flows report its absence.
                Trouble::Silent => return None,
                Trouble::Mistaken => format!(
                    "node `{name}` answers, but its key does not match that of node `{here}`: give all nodes \
                    files of the same call of `tollway keys`"
                ),
                Trouble::Plain => format!(
                    "node `{name}` sends without keys, and node `{here}` accepts only encrypted datagrams: \
                    start both with `--key`"
                ),
            })
        };
        self.network.unkeyed(part.node as u32).into_iter().filter_map(tell).collect()
    }

    /// The failed flows at this node.
    fn given_up(&self, plan: &Plan, part: &NodeProcess) -> Vec<String> {
        let flows: Vec<_> = numbered::flows(plan).collect();
        let tell = |(flow, client, fate): (u32, bool, net::Fate)| {
            let numbered::Flow { name, path, .. } = flows.get(flow as usize)?;
            let other = &plan.nodes[if client { path.to.0 } else { path.from.0 } as usize].name;
            let switched = plan.session_of(flow as usize).map_or("", |_| ", or that of a switch on the path");
            match fate {
                net::Fate::Over => None,
                net::Fate::Reset => Some(format!("flow `{name}`: node `{other}` has given it up")),
                net::Fate::Mistaken => Some(format!(
                    "flow `{name}`: the process at the other end, node `{other}`{switched}, has another \
                    scenario: its flow at this position differs in name, ends, packets, data or law; give \
                    every process the same file, `--set` and `--seed`"
                )),
                net::Fate::Silent => Some(format!(
                    "flow `{name}`: no progress for {}: node `{other}` has ended, has given up the flow, or \
                    cannot be reached",
                    part.patience
                )),
            }
        };
        self.network.fates().into_iter().filter_map(tell).collect()
    }

    /// The fate of all packets at this node: received ones count as created, sent ones as
    /// delivered.
    fn census_here(&self) -> Census {
        let counters = self.network.counters();
        Census {
            created: counters.created + counters.received + self.network.copies(),
            delivered: counters.delivered + counters.sent,
            absorbed: counters.absorbed + counters.senseless,
            dropped: self.network.drops() + counters.unsent + counters.unkeyed + counters.metered,
            queued: self.network.queued(),
            in_flight: self.network.in_flight(),
        }
    }
}

impl Engine for Live {
    type Route = usize;

    fn now(&self) -> Time {
        self.network.now()
    }

    fn machine(&self, machine: MachineId) -> Option<&dyn Any> {
        self.network.machine(machine.0)
    }

    fn has(&self, place: Place) -> bool {
        match place {
            Place::Node(node) => self.part.as_ref().is_none_or(|part| part.node == node.0 as usize),
            Place::Link(link) => self.network.has_link(link.0),
            Place::End(flow, end) => self.network.has_end(flow.0, end == End::Client),
        }
    }

    fn connection(&self, flow: FlowId, end: End) -> &Connection {
        match end {
            End::Client => self.network.client(flow.0),
            End::Server => self.network.server(flow.0),
        }
    }

    fn add_route(&mut self, ways: &[Vec<LinkId>], end: RouteEnd, _cost: EqualCost) -> usize {
        let end = match end {
            RouteEnd::Client => net::RouteEnd::Client,
            RouteEnd::Middle(middle, gate) => net::RouteEnd::Middle(middle.0, gate),
            // The packet itself states that it is for a sink.
            RouteEnd::Server | RouteEnd::Sink => net::RouteEnd::Server,
        };
        self.routes.push((ways[0].iter().map(|link| link.0).collect(), end));
        self.routes.len() - 1
    }

    fn add(&mut self, node: NodeId, machine: NodeMachine) -> MachineId {
        MachineId(self.network.add(node.0, machine))
    }

    fn join(&mut self, joint: Joint<'_, usize>) {
        let network = &mut self.network;
        match joint {
            Joint::PassBy(link, machine, gate) => network.pass_by(link.0, machine.0, gate),
            Joint::Watch(link, machine, gate) => network.watch(link.0, machine.0, gate),
            Joint::Outlet { machine, gate, route, flow, of } => {
                let (links, end) = &self.routes[route];
                if let Err(error) = network.set_outlet(machine.0, gate, (links, *end), flow.0, of.0) {
                    self.failed.get_or_insert(error);
                }
            }
            Joint::App(app, flow, end) => drop(network.attach(flow.0, end == End::Client, app.0)),
            Joint::Shape(flow, shaper, class) => network.shape_flow(flow.0, shaper.0, class),
            Joint::ShapeSource(source, shaper, class, room) => {
                network.shape_source(source.0, shaper.0, class, room);
            }
            // `adapt` refuses such plans.
            Joint::After { .. } => {}
        }
    }

    fn with_machine(&mut self, machine: MachineId, work: impl FnOnce(&mut dyn Any)) {
        if let Err(error) = self.network.with_machine(machine.0, work) {
            self.failed.get_or_insert(error);
        }
    }

    fn add_source(&mut self, cbr: &Cbr, route: usize) -> Option<SourceId> {
        let source = proto::Cbr::new(cbr.rate, cbr.packet_size, cbr.start, cbr.stop, cbr.on_off);
        match self.network.add_source(source, cbr.packet_size, &self.routes[route].0) {
            Ok(source) => {
                self.network.set_source_hosts(source, [cbr.from.0, cbr.to.0]);
                Some(SourceId(source))
            }
            Err(error) => {
                self.failed.get_or_insert(error);
                None
            }
        }
    }

    /// Never reuses a slot: a label on the wire means one flow for the whole run.
    fn start_flow(
        &mut self,
        start: Start<usize>,
        ends: Ends<'_, impl Fn(bool) -> AnySender>,
        _vacant: Option<FlowId>,
    ) -> FlowId {
        let [client, server] = ends.connect(self.first_segment());
        let next = self.network.flows() as u32;
        let packet = start.segment.min(1500) as u16;
        let [(forward, there), (back, home)] = [start.forward, start.back].map(|route| &self.routes[route]);
        let route_ends = [*there, *home];
        let spec = net::FlowSpec {
            client,
            server,
            forward: forward.clone(),
            back: back.clone(),
            start: start.start,
            stop: start.stop,
            encoding: start.encoding,
            fingerprint: self.fingerprints.get(next as usize).copied().unwrap_or(0),
        };
        let added = match start.kernel {
            #[cfg(target_os = "linux")]
            Some(Kernels { law, bytes, both_ways, receive_buffer, changes }) => {
                let congestion = self.loaded.name(law);
                let kernel =
                    net::KernelSpec { congestion, bytes, both_ways, receive_buffer, changes, packet };
                self.network.add_kernel_flow(&kernel, spec)
            }
            _ => self.network.add_flow_between(spec, route_ends),
        };
        match added {
            Ok(flow) => {
                self.network.set_class(flow, start.class);
                self.network.set_hosts(flow, start.hosts);
                if start.session {
                    self.network.set_keyed(flow);
                }
                if let Some(both) = start.retire {
                    self.network.retire_when_done(flow, both);
                }
                FlowId(flow)
            }
            Err(error) => {
                self.failed.get_or_insert(error);
                FlowId(next)
            }
        }
    }

    fn horizon(&mut self) -> Time {
        Time::NEVER
    }

    fn run_until(&mut self, end: Time) -> Result<bool, RunError> {
        if let Some(error) = self.failed.take() {
            return Err(error.into());
        }
        self.network.run_until(end)?;
        #[cfg(target_os = "linux")]
        if let Some(placed) = &mut self.placed {
            placed.pass(end);
        }
        Ok(self.network.is_over())
    }

    fn settle(&mut self) -> Result<Totals, RunError> {
        self.kernel_drops = self.network.settle()?;
        let counters = self.network.counters();
        // Lost in the kernel: datagrams that it neither delivered nor still holds.
        let lost = counters.sent.saturating_sub(counters.received + counters.waiting);
        let census = if self.part.is_some() {
            self.census_here()
        } else {
            Census {
                created: counters.created + self.network.copies(),
                delivered: counters.delivered,
                absorbed: counters.absorbed + counters.senseless,
                dropped: self.network.drops() + counters.unsent + lost,
                queued: self.network.queued(),
                in_flight: self.network.in_flight() + counters.waiting,
            }
        };
        match census.is_conserved() && self.network.held() == census.queued + self.network.in_flight() {
            true => Ok(Totals { census, events: counters.turns, packet_hops: counters.received }),
            false => Err(RunError::NotConserved { census }),
        }
    }

    fn change(&mut self, part: Part, change: Change) {
        let (now, network) = (self.network.now(), &mut self.network);
        let flow = match part {
            Part::Link(link) => return network.change(link.0, change),
            Part::Flow(flow) => flow,
        };
        if let Change::Class(class) = change {
            network.set_class(flow.0, class);
        }
        let changed = match change {
            Change::ReceiveBuffer(packets) => set_kernel_buffer(network, flow, packets),
            #[cfg(target_os = "linux")]
            Change::Budget(budget) => Ok(network.kernel_address(flow.0, false).is_some_and(|local| {
                self.loaded.set_budget(local, budget);
                true
            })),
            _ => Ok(false),
        };
        let done = changed.and_then(|changed| match changed {
            true => Ok(()),
            false => network.with_flow(flow.0, |client, server| change.apply(now, [client, server])),
        });
        if let Err(error) = done {
            self.failed.get_or_insert(error);
        }
    }

    #[cfg(target_os = "linux")]
    fn outside(&self, flow: FlowId, forward: bool) -> Option<Outside> {
        let net::KernelStats { received, delivered, sent, retransmissions, cwnd, srtt, in_flight, .. } =
            self.network.kernel_stats(flow.0, !forward)?;
        let price = self.network.kernel_address(flow.0, !forward).and_then(|local| self.loaded.price(local));
        Some(Outside { received, delivered, sent, retransmissions, cwnd, srtt, in_flight, price })
    }

    fn heard(&self, flow: FlowId, forward: bool, (from, until): (Time, Time)) -> (Time, Time) {
        let heard = self.network.heard(flow.0, !forward);
        heard.map_or((from, until), |(first, last)| (first, last.unwrap_or(until)))
    }

    fn drain_events(&mut self, into: &mut Vec<(FlowId, FlowEvent, Time)>) {
        let end = |client: bool| if client { End::Client } else { End::Server };
        let done = self.network.drain_done().into_iter();
        into.extend(done.map(|(flow, client, at)| (FlowId(flow), FlowEvent::Done(end(client)), at)));
    }

    fn with_link<R>(&mut self, link: LinkId, work: impl FnOnce(&mut Link, Time) -> R) -> R {
        self.network.with_link(link.0, work)
    }

    fn read_source(&self, source: SourceId) -> SinkStats {
        let (sent_packets, arrived_packets, [arrived_bytes, in_profile_bytes]) =
            self.network.read_source(source.0);
        SinkStats { sent_packets, arrived_packets, arrived_bytes, in_profile_bytes, in_flight_packets: 0 }
    }

    fn one_way(&mut self, source: SourceId) -> Option<&mut OneWay> {
        self.network.one_way(source.0)
    }
}

/// Limits the window that the kernel offers on a flow to `packets`; returns false if the ends are
/// machines.
#[cfg(target_os = "linux")]
fn set_kernel_buffer(network: &mut net::Network, flow: FlowId, packets: u32) -> Result<bool, net::Error> {
    let config = network.client(flow.0).config();
    let payload = u32::from(config.segment.saturating_sub(config.header));
    // The sender's buffer limits unacknowledged data, too. A limit beyond TCP's window is none.
    let most = packets.min(config.send_buffer);
    let window = Some(most).filter(|&most| most < 1 << 20).map(|most| most.saturating_mul(payload));
    network.set_kernel_buffer(flow.0, window)
}

#[cfg(not(target_os = "linux"))]
fn set_kernel_buffer(_network: &mut net::Network, _flow: FlowId, _packets: u32) -> Result<bool, net::Error> {
    Ok(false)
}

/// Traffic for one thread, Mb/s.
const BUSY: f64 = 400.0;
