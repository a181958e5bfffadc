//! A [`Plan`] on real packets: what of it the live engine can do, and that engine behind the seam.

mod adapt;
mod numbered;

use std::collections::BTreeSet;

use tollway_law::Time;
use tollway_law::link::AnyLink;
use tollway_net as net;
use tollway_net::secure::Trouble;
use tollway_proto as proto;
use tollway_proto::port::{ControlInterval, Waits};
use tollway_proto::shaper::{ClassId, Shaper};
use tollway_proto::transport::Connection;
use tollway_proto::{Change, Gate, NodeMachine};
use tollway_sim::{
    Census, End, FlowId, LinkId, LinkStats, MachineId, RouteEnd, ShaperId, SinkStats, SourceId,
};

pub use adapt::Unsupported;
pub(super) use adapt::{adapt, no_capture};

use super::build::{link_law, queue};
#[cfg(target_os = "linux")]
use super::engine::Kernels;
use super::engine::{Engine, Outside, Start, forward};
use super::{Hosting, Part, RunError};
use crate::plan::{Cbr, NodeId, Plan, TransportId};

/// What a live run has to say of itself.
#[derive(Clone, Debug)]
pub struct LiveInfo {
    /// Threads that ran the nodes.
    pub threads: usize,
    /// Whether the system gave them real-time priority.
    pub real_time: bool,
    /// Where every datagram went.
    pub counters: net::Counters,
    /// Datagrams that the kernel had no room for, if it tells.
    pub kernel_drops: Option<u64>,
    /// How late the emulation was.
    pub punctuality: net::Punctuality,
    /// Packets that came out of nodes' own kernels, and that went in, each by the counters of their interfaces.
    pub kernel_packets: (u64, u64),
    /// Where nodes are namespaces: what the kernel counted of each link.
    pub wires: Vec<WireInfo>,
    /// The only node of this process, if there are others.
    pub node: Option<String>,
    /// What came to no good end, in words: flows of the only node of this process, packets too long for the way they had to go.
    pub broken: Vec<String>,
}

/// What the kernel counted of a link between two namespaces, which is what is reported of it: otherwise the run has ended with an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireInfo {
    /// The link's name.
    pub link: String,
    /// The namespace where it begins, as `ip netns` knows it; `None` where it could have no name.
    pub namespace: Option<String>,
    /// The interface there.
    pub interface: String,
    /// Packets that left the link's transmitter and were not lost on its wire.
    pub reported: u64,
    /// Packets that the kernel counts as sent there.
    pub sent: u64,
    /// Packets that it counts as received at the far end.
    pub received: u64,
    /// Packets that it had no room for.
    pub dropped: u64,
}

impl LiveInfo {
    /// Whether the machine kept up: one departure in a hundred, at most, was more than a millisecond late, and the kernel took every
    /// datagram that was not too long for its interface and dropped none.
    pub fn kept_up(&self) -> bool {
        let late = self.punctuality.departures.share_over(LATE);
        let unsent = self.counters.unsent - self.counters.too_long;
        late <= TOO_MANY && self.kernel_drops.unwrap_or(0) == 0 && unsent == 0
    }
}

/// The live network, with the plan's nodes and links.
pub(super) fn network(plan: &Plan, hosting: &Hosting) -> Result<(Live, Vec<LinkId>), RunError> {
    let names: Vec<String> = plan.nodes.iter().map(|node| node.name.clone()).collect();
    let specs = link_specs(plan);
    let mut network = match hosting {
        Hosting::Loopback => net::Network::new(&names, &specs, plan.seed, threads(plan))?,
        #[cfg(target_os = "linux")]
        Hosting::Namespaces => {
            net::Network::in_namespaces(&names, &specs, plan.seed, threads(plan), largest(plan))?
        }
        #[cfg(not(target_os = "linux"))]
        Hosting::Namespaces => return Err(adapt::no_namespaces().into()),
        Hosting::Processes(Part { node, at, patience, keys }) => {
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
    for medium in &plan.media {
        network.add_medium(&medium.links.iter().map(|link| link.0).collect::<Vec<_>>());
    }
    let part = match hosting {
        Hosting::Loopback | Hosting::Namespaces => None,
        Hosting::Processes(part) => Some(part.clone()),
    };
    // Within a process there is but one file.
    let fingerprints = part.iter().flat_map(|_| numbered::fingerprints(plan)).collect();
    // A machine that splits connections knows their first numbers.
    let numbered = part.is_some() && plan.machines.is_empty() && plan.sessions.is_empty();
    let live =
        Live { network, part, numbered, fingerprints, routes: Vec::new(), kernel_drops: None, failed: None };
    Ok((live, (0..plan.links.len() as u32).map(LinkId).collect()))
}

/// The plan's links as the live engine wants them.
pub(crate) fn link_specs(plan: &Plan) -> Vec<net::LinkSpec> {
    let spec = |(i, link): (usize, &crate::plan::Link)| net::LinkSpec {
        from: link.from.0,
        to: link.to.0,
        rate: link.rate,
        trace: link.trace.clone(),
        delay: link.delay,
        overhead: link.overhead,
        law: link_law(plan, i),
        limit: link.limit,
        queue: queue(plan, i),
    };
    plan.links.iter().enumerate().map(spec).collect()
}

/// Bytes of the largest packet that anybody sends, from IP's header on.
#[cfg(target_os = "linux")]
fn largest(plan: &Plan) -> u16 {
    let transports = plan.transports.iter().flat_map(|transport| [transport.packet_size, transport.ack_size]);
    transports.chain(plan.cbrs.iter().map(|cbr| cbr.packet_size)).max().unwrap_or(0)
}

/// One thread for each [`BUSY`] that the flows could send together, but one processor is left to everybody else.
fn threads(plan: &Plan) -> usize {
    if !plan.media.is_empty() || plan.links.iter().any(|link| link.meter.is_some() || link.exchange.is_some())
    {
        return 1; // Who sends on a medium, and what meters know of flows and hosts, is one thread's.
    }
    let slowest = |route: &[crate::plan::LinkId]| {
        route.iter().map(|link| plan.links[link.0 as usize].rate.mbps()).fold(f64::INFINITY, f64::min)
    };
    let flows = plan.flows.iter().map(|flow| slowest(&flow.path.route));
    let workloads = plan.workloads.iter().flat_map(|w| &w.paths).map(|path| slowest(&path.route));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // All flows together get no more through than the busiest links let them.
    let most = plan.links.iter().map(|link| link.rate.mbps()).fold(0.0, f64::max) * 2.0;
    let load = flows.chain(workloads).sum::<f64>().min(most);
    ((load / BUSY).ceil() as usize).clamp(1, cores.saturating_sub(1).max(1))
}

/// The live engine, which keeps what went wrong until somebody can be told.
pub(super) struct Live {
    network: net::Network,
    part: Option<Part>,
    /// Flows begin with random segment numbers.
    numbered: bool,
    /// By flow; none where all nodes are this process's.
    fingerprints: Vec<u32>,
    /// Links, and what is at their end.
    routes: Vec<(Vec<u32>, net::RouteEnd)>,
    kernel_drops: Option<u64>,
    failed: Option<net::Error>,
}

impl Live {
    pub(super) fn info(&self, plan: &Plan) -> LiveInfo {
        LiveInfo {
            node: self.part.as_ref().map(|part| plan.nodes[part.node].name.clone()),
            broken: self.broken(plan),
            #[cfg(target_os = "linux")]
            kernel_packets: self.network.kernel_packets(),
            #[cfg(not(target_os = "linux"))]
            kernel_packets: (0, 0),
            wires: self.wires(plan),
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
            link: plan.links[wire.link as usize].name.clone(),
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

    /// What came to no good end here: packets that the way to the next node does not take, and flows.
    fn broken(&self, plan: &Plan) -> Vec<String> {
        let tell = |(link, longest, most): (u32, usize, usize)| {
            let link = &plan.links[link as usize];
            let [from, to] = [link.from, link.to].map(|node| &plan.nodes[node.0 as usize].name);
            format!(
                "link `{}`: packets of up to {longest} B left node `{from}` for node `{to}`, and the way there takes {most} B: longer \
                 ones are lost; give flows a smaller `packet-size`, or the way a larger MTU",
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

    /// The neighbours of this node with which it could agree on no keys.
    fn without_keys(&self, plan: &Plan, part: &Part) -> Vec<String> {
        let here = &plan.nodes[part.node].name;
        let tell = |(node, trouble): (u32, Trouble)| {
            let name = &plan.nodes[node as usize].name;
            Some(match trouble {
                // The node's flows report its absence.
                Trouble::Silent => return None,
                Trouble::Mistaken => format!(
                    "node `{name}` is there, and its keys and those of node `{here}` do not fit each other: give all nodes the files that \
                     one `tollway keys` made"
                ),
                Trouble::Plain => format!(
                    "node `{name}` sends without keys, and node `{here}` takes nothing that is not sealed: start both with `--key`"
                ),
            })
        };
        self.network.unkeyed(part.node as u32).into_iter().filter_map(tell).collect()
    }

    /// What of the flows at this node came to no good end.
    fn given_up(&self, plan: &Plan, part: &Part) -> Vec<String> {
        let flows: Vec<_> = numbered::flows(plan).collect();
        let tell = |(flow, client, fate): (u32, bool, net::Fate)| {
            let numbered::Flow { name, path, .. } = flows.get(flow as usize)?;
            let other = &plan.nodes[if client { path.to.0 } else { path.from.0 } as usize].name;
            let switched = plan.session_of(flow as usize).map_or("", |_| ", or that of a switch on the way");
            match fate {
                net::Fate::Over => None,
                net::Fate::Reset => Some(format!("flow `{name}`: node `{other}` has given it up")),
                net::Fate::Mistaken => Some(format!(
                    "flow `{name}`: the process at the other end, node `{other}`{switched}, reads another file: its flow in this place has another \
                     name, other ends or packets, something else to send, or another law; give every process the same file, and the same \
                     `--set` and `--seed`"
                )),
                net::Fate::Silent => Some(format!(
                    "flow `{name}`: nothing new has come of it for {}: node `{other}` is gone, or knows of it no more, or \
                     nothing reaches it",
                    part.patience
                )),
            }
        };
        self.network.fates().into_iter().filter_map(tell).collect()
    }

    /// Where every packet went that was at this node: what came is made here, what left is delivered.
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

    forward! { self => self.network;
        ref {
            has_link(link.0: LinkId) -> bool;
            is_over() -> bool;
            machine(machine.0: MachineId) -> Option<&NodeMachine>;
            now() -> Time;
            client(flow.0: FlowId) -> &Connection;
            server(flow.0: FlowId) -> &Connection;
            shaper(shaper.0: ShaperId) -> Option<&Shaper>;
        }
        mut {
            pass_by(link.0: LinkId, machine.0: MachineId, gate: Gate);
            watch(link.0: LinkId, machine.0: MachineId, gate: Gate);
            set_class(flow.0: FlowId, class: u8);
            queue_waits(link.0: LinkId) -> Vec<Waits>;
            retire_when_done(flow.0: FlowId, both: bool);
            read_link(link.0: LinkId) -> LinkStats;
            law(link.0: LinkId) -> &AnyLink;
            gate_flow(flow.0: FlowId, shaper.0: ShaperId, class: ClassId);
            gate_source(source.0: SourceId, shaper.0: ShaperId, class: ClassId, room: u32);
            log_control(link.0: LinkId);
            take_control(link.0: LinkId) -> Vec<ControlInterval>;
            change(link.0: LinkId, change: Change);
        }
    }

    fn has_end(&self, flow: FlowId, end: End) -> bool {
        self.network.has_end(flow.0, end == End::Client)
    }

    fn has_node(&self, node: NodeId) -> bool {
        self.part.as_ref().is_none_or(|part| part.node == node.0 as usize)
    }

    fn foresees(&self) -> bool {
        self.part.is_some()
    }

    fn first_segment(&mut self) -> Option<u32> {
        if !self.numbered {
            return None;
        }
        let drawn = net::random().map_err(|error| self.failed.get_or_insert(net::Error::Random(error)));
        drawn.ok().map(u32::from_be_bytes)
    }

    fn add_route(&mut self, links: &[LinkId], end: RouteEnd) -> usize {
        let end = match end {
            RouteEnd::Client => net::RouteEnd::Client,
            RouteEnd::Middle(middle, gate) => net::RouteEnd::Middle(middle.0, gate),
            // What ends at a sink says so itself.
            RouteEnd::Server | RouteEnd::Sink => net::RouteEnd::Server,
        };
        self.routes.push((links.iter().map(|link| link.0).collect(), end));
        self.routes.len() - 1
    }

    fn add(&mut self, node: NodeId, machine: NodeMachine) -> MachineId {
        MachineId(self.network.add(node.0, machine))
    }

    fn attach(&mut self, flow: FlowId, end: End, app: MachineId) {
        self.network.attach(flow.0, end == End::Client, app.0);
    }

    fn with_machine(&mut self, machine: MachineId, work: impl FnOnce(&mut NodeMachine)) {
        if let Err(error) = self.network.with_machine(machine.0, work) {
            self.failed.get_or_insert(error);
        }
    }

    fn set_outlet(&mut self, machine: MachineId, gate: Gate, route: usize, flow: FlowId, of: FlowId) {
        let (links, end) = &self.routes[route];
        if let Err(error) = self.network.set_outlet(machine.0, gate, (links, *end), flow.0, of.0) {
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

    /// Places are not used again: a label on the wire means one flow for the whole run.
    fn start_flow(&mut self, start: Start<usize>, _vacant: Option<FlowId>) -> FlowId {
        let next = self.network.flows() as u32;
        let packet = start.segment.min(1500) as u16;
        let [(forward, there), (back, home)] = [start.forward, start.back].map(|route| &self.routes[route]);
        let ends = [*there, *home];
        let spec = net::FlowSpec {
            client: start.client,
            server: start.server,
            forward: forward.clone(),
            back: back.clone(),
            start: start.start,
            stop: start.stop,
            encoding: start.encoding,
            fingerprint: self.fingerprints.get(next as usize).copied().unwrap_or(0),
        };
        let added = match start.kernel {
            #[cfg(target_os = "linux")]
            Some(Kernels { congestion, bytes, both_ways, receive_buffer, changes }) => {
                let kernel =
                    net::KernelSpec { congestion, bytes, both_ways, receive_buffer, changes, packet };
                self.network.add_kernel_flow(&kernel, spec)
            }
            _ => self.network.add_flow_between(spec, ends),
        };
        match added {
            Ok(flow) => {
                self.network.set_class(flow, start.class);
                self.network.set_hosts(flow, start.hosts);
                if start.session {
                    self.network.set_keyed(flow);
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

    fn run_until(&mut self, end: Time) -> Result<(), RunError> {
        match self.failed.take() {
            Some(error) => Err(error.into()),
            None => Ok(self.network.run_until(end)?),
        }
    }

    fn settle(&mut self) -> Result<Census, RunError> {
        self.kernel_drops = self.network.settle()?;
        let counters = self.network.counters();
        // What the kernel lost is what it neither handed over nor still holds.
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
            true => Ok(census),
            false => Err(RunError::NotConserved { census }),
        }
    }

    fn with_flow(&mut self, flow: FlowId, work: impl FnOnce(&mut Connection, &mut Connection)) {
        if let Err(error) = self.network.with_flow(flow.0, work) {
            self.failed.get_or_insert(error);
        }
    }

    fn set_receive_buffer(&mut self, flow: FlowId, packets: u32) {
        #[cfg(target_os = "linux")]
        {
            let config = self.network.client(flow.0).config();
            let payload = u32::from(config.segment.saturating_sub(config.header));
            // What may be unacknowledged the sender's buffer limits, too; more than can be is no limit.
            let most = packets.min(config.send_buffer);
            let window = Some(most).filter(|&most| most < 1 << 20).map(|most| most.saturating_mul(payload));
            match self.network.set_kernel_buffer(flow.0, window) {
                Ok(false) => {}
                Ok(true) => return,
                Err(error) => {
                    self.failed.get_or_insert(error);
                    return;
                }
            }
        }
        self.with_flow(flow, |client, server| {
            client.set_receive_buffer(packets);
            server.set_receive_buffer(packets);
        });
    }

    #[cfg(target_os = "linux")]
    fn outside(&self, flow: FlowId, forward: bool) -> Option<Outside> {
        let net::KernelStats { received, delivered, sent, retransmissions, cwnd, srtt, in_flight, .. } =
            self.network.kernel_stats(flow.0, !forward)?;
        Some(Outside { received, delivered, sent, retransmissions, cwnd, srtt, in_flight })
    }

    fn heard(&self, flow: FlowId, forward: bool, (from, until): (Time, Time)) -> (Time, Time) {
        let heard = self.network.heard(flow.0, !forward);
        heard.map_or((from, until), |(first, last)| (first, last.unwrap_or(until)))
    }

    fn has_vanished(&self, _flow: FlowId) -> bool {
        false
    }

    fn drain_done(&mut self) -> Vec<(FlowId, End, Time)> {
        let done = self.network.drain_done().into_iter();
        done.map(|(flow, client, at)| (FlowId(flow), if client { End::Client } else { End::Server }, at))
            .collect()
    }

    /// Every queue is measured.
    fn measure_link(&mut self, _link: LinkId, _on: bool) {}

    fn read_source(&self, source: SourceId) -> SinkStats {
        let (sent_packets, arrived_packets, [arrived_bytes, in_profile_bytes]) =
            self.network.read_source(source.0);
        SinkStats { sent_packets, arrived_packets, arrived_bytes, in_profile_bytes, in_flight_packets: 0 }
    }

    fn add_shaper(&mut self, node: NodeId, shaper: Shaper) -> ShaperId {
        ShaperId(self.network.add_shaper(node.0, shaper))
    }

    fn with_shaper(&mut self, shaper: ShaperId, work: impl FnOnce(&mut Shaper)) {
        if let Err(error) = self.network.with_shaper(shaper.0, work) {
            self.failed.get_or_insert(error);
        }
    }

    fn events(&self) -> u64 {
        self.network.counters().turns
    }

    fn packet_hops(&self) -> u64 {
        self.network.counters().received
    }
}

/// Traffic that is worth a thread of its own, Mb/s.
const BUSY: f64 = 400.0;
/// A departure later than this counts as late, and this share of late ones is too many.
const LATE: Time = Time::from_millis(1);
const TOO_MANY: f64 = 0.01;
