//! What building, measuring and changing a run need of an engine: the one seam between a plan and what runs it.
//!
//! It is crossed when flows start, at ends of intervals and at the file's changes, never for a packet.

use tollway_law::Time;
use tollway_law::link::AnyLink;
use tollway_proto::port::{ControlInterval, Waits};
use tollway_proto::shaper::{ClassId, Shaper};
use tollway_proto::transport::Connection;
use tollway_proto::{Change, Encoding, Gate, NodeMachine};
use tollway_sim::{
    Census, End, FlowId, FlowSpec, LinkId, LinkStats, MachineId, Network, RouteEnd, RouteId, ShaperId,
    SinkStats, SourceId, SourceSpec,
};

use super::RunError;
use crate::plan::{Cbr, NodeId};

/// A network that runs: links, flows, time.
pub(super) trait Engine {
    /// Names a route.
    type Route: Copy;

    fn add_route(&mut self, links: &[LinkId], end: RouteEnd) -> Self::Route;
    /// Names `routes` together, among which an end of a flow divides its packets: each takes one of its own, or a new one only
    /// after a pause of `gap`. A plan of such routes runs on an engine that divides.
    fn spread(&mut self, routes: &[Self::Route], _gap: Option<Time>) -> Self::Route {
        routes[0]
    }
    /// Whether this end of a flow is run here.
    fn has_end(&self, _flow: FlowId, _end: End) -> bool {
        true
    }
    /// Whether either end of a flow is run here.
    fn has_flow(&self, flow: FlowId) -> bool {
        self.has_end(flow, End::Client) || self.has_end(flow, End::Server)
    }
    /// Whether a link's port is run here.
    fn has_link(&self, _link: LinkId) -> bool {
        true
    }
    /// Whether a node is run here.
    fn has_node(&self, _node: NodeId) -> bool {
        true
    }
    /// Whether every flow that will ever come is to be there from the beginning: who else runs nodes has to mean the same by its number.
    fn foresees(&self) -> bool {
        false
    }
    /// The number of a new flow's first segment, if each flow has another.
    fn first_segment(&mut self) -> Option<u32> {
        None
    }
    /// Whether nothing is left to be done here before the run's time is over.
    fn is_over(&self) -> bool {
        false
    }
    /// Adds a machine at a node.
    fn add(&mut self, node: NodeId, machine: NodeMachine) -> MachineId;
    /// Has a middle see what comes off a link to its node, by `gate`, on every route added from now on.
    fn pass_by(&mut self, link: LinkId, machine: MachineId, gate: Gate);
    /// Has a middle watch the wire of a link, by `gate`.
    fn watch(&mut self, link: LinkId, machine: MachineId, gate: Gate);
    /// Where packets go that a middle sends by `gate`, as packets of `flow`, which the sender of `of` has sent.
    fn set_outlet(&mut self, machine: MachineId, gate: Gate, route: Self::Route, flow: FlowId, of: FlowId);
    /// Gives an end of a flow to an app at its node.
    fn attach(&mut self, flow: FlowId, end: End, app: MachineId);
    /// A machine, if its node is run here.
    fn machine(&self, machine: MachineId) -> Option<&NodeMachine>;
    /// Works on a machine at the present instant, if its node is run here.
    fn with_machine(&mut self, machine: MachineId, work: impl FnOnce(&mut NodeMachine));
    /// Adds a source of cross-traffic; `None` if the engine has none.
    fn add_source(&mut self, cbr: &Cbr, route: Self::Route) -> Option<SourceId>;
    /// Adds a flow, in the place of `vacant` if there is one.
    fn start_flow(&mut self, start: Start<Self::Route>, vacant: Option<FlowId>) -> FlowId;

    /// Has a flow begin `delay` after the last of `others` has ended: its client, or each of its ends if `true` stands beside
    /// it. A plan of such flows runs on an engine that has them wait.
    fn start_after(&mut self, _flow: FlowId, _others: &[(FlowId, bool)], _delay: Time) {}
    /// The flows that have waited, since the last call, and when they begin.
    fn drain_begun(&mut self) -> Vec<(FlowId, Time)> {
        Vec::new()
    }
    /// From now on a flow's packets are of `class`.
    fn set_class(&mut self, _flow: FlowId, _class: u8) {}

    fn now(&self) -> Time;
    /// The furthest instant a run can reach.
    fn horizon(&mut self) -> Time;
    /// Everything before `end` happens; then it is `end`.
    fn run_until(&mut self, end: Time) -> Result<(), RunError>;
    /// The run is over: where every packet went, none having appeared or vanished.
    fn settle(&mut self) -> Result<Census, RunError>;
    /// Gives back what the flows of a settled run have taken; what is asked from then on is of links.
    fn release_flows(&mut self) {}

    fn client(&self, flow: FlowId) -> &Connection;
    fn server(&self, flow: FlowId) -> &Connection;
    /// How data of a flow fare, from the client or to it, if its ends are none of these machines.
    fn outside(&self, _flow: FlowId, _forward: bool) -> Option<Outside> {
        None
    }
    /// In which part of a span of time a flow ran, from the client or to it, where only the receiver is run here: it waits for
    /// the flow to be opened, and for what may come late after the last of it.
    fn heard(&self, _flow: FlowId, _forward: bool, span: (Time, Time)) -> (Time, Time) {
        span
    }
    /// Works on the flow's machines at the present instant.
    fn with_flow(&mut self, flow: FlowId, work: impl FnOnce(&mut Connection, &mut Connection));
    /// From now on a flow's receivers have buffers of so many packets.
    fn set_receive_buffer(&mut self, flow: FlowId, packets: u32) {
        self.with_flow(flow, |client, server| {
            client.set_receive_buffer(packets);
            server.set_receive_buffer(packets);
        });
    }
    fn retire_when_done(&mut self, flow: FlowId, both: bool);
    fn has_vanished(&self, flow: FlowId) -> bool;
    /// The ends of flows that are done since the last call, and when they were.
    fn drain_done(&mut self) -> Vec<(FlowId, End, Time)>;

    fn measure_link(&mut self, link: LinkId, on: bool);
    fn read_link(&mut self, link: LinkId) -> LinkStats;
    fn read_source(&self, source: SourceId) -> SinkStats;
    /// How long packets have waited in each queue of a link with queues by class.
    fn queue_waits(&mut self, _link: LinkId) -> Vec<Waits> {
        Vec::new()
    }
    fn law(&mut self, link: LinkId) -> &AnyLink;
    /// Adds the shaper of the host at a node.
    fn add_shaper(&mut self, node: NodeId, shaper: Shaper) -> ShaperId;
    /// Has a flow's client ask a shaper before it sends.
    fn gate_flow(&mut self, flow: FlowId, shaper: ShaperId, class: ClassId);
    /// Has cross-traffic ask a shaper, where `room` packets may wait.
    fn gate_source(&mut self, source: SourceId, shaper: ShaperId, class: ClassId, room: u32);
    /// Works on a shaper at the present instant.
    fn with_shaper(&mut self, shaper: ShaperId, work: impl FnOnce(&mut Shaper));
    /// A shaper, if its host is run here.
    fn shaper(&self, shaper: ShaperId) -> Option<&Shaper>;
    fn log_control(&mut self, link: LinkId);
    fn take_control(&mut self, link: LinkId) -> Vec<ControlInterval>;

    /// Changes a link at the present instant.
    fn change(&mut self, link: LinkId, change: Change);

    /// Steps of the engine's loop so far.
    fn events(&self) -> u64;
    /// Packets that have crossed a link so far.
    fn packet_hops(&self) -> u64;
}

/// A flow to be started.
pub(super) struct Start<R> {
    pub(super) client: Connection,
    pub(super) server: Connection,
    pub(super) forward: R,
    pub(super) back: R,
    pub(super) start: Time,
    pub(super) stop: Time,
    pub(super) encoding: Encoding,
    pub(super) segment: u32,
    /// The class of traffic of its packets, 0 for none.
    pub(super) class: u8,
    /// The nodes that it comes from and goes to.
    pub(super) hosts: [u32; 2],
    /// Its data are frames of a session.
    pub(super) session: bool,
    /// Live it is the kernel's TCP.
    pub(super) kernel: Option<Kernels>,
}

/// What the kernel's TCP is to do.
pub(super) struct Kernels {
    /// Its name for the congestion control.
    pub(super) congestion: String,
    /// What is sent; endless if `None`.
    pub(super) bytes: Option<u64>,
    pub(super) both_ways: bool,
    /// What may be on its way and unacknowledged, bytes: the lesser of the two ends' buffers, which the window offered holds it to.
    pub(super) receive_buffer: Option<u32>,
    /// That is to change.
    pub(super) changes: bool,
}

/// What is known of a flow whose ends are no machines of ours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outside {
    pub(super) received: u64,
    pub(super) delivered: u64,
    pub(super) sent: u64,
    pub(super) retransmissions: u64,
    pub(super) cwnd: f64,
    pub(super) srtt: Time,
    pub(super) in_flight: u32,
}

/// Methods of an engine that its network has: `self => network; ref { … } mut { … }`. `link.0` hands an id on as its number.
macro_rules! forward {
    (
        $self:ident => $to:expr;
        ref { $($get:ident($($a:ident $(. $n:tt)?: $t:ty),*) $(-> $out:ty)?;)* }
        mut { $($set:ident($($b:ident $(. $m:tt)?: $u:ty),*) $(-> $done:ty)?;)* }
    ) => {
        $(fn $get(&$self, $($a: $t),*) $(-> $out)? {
            $to.$get($($a $(. $n)?),*)
        })*
        $(fn $set(&mut $self, $($b: $u),*) $(-> $done)? {
            $to.$set($($b $(. $m)?),*)
        })*
    };
}
pub(super) use forward;

/// The simulator.
impl Engine for Network<Connection> {
    type Route = RouteId;

    forward! { self => self;
        ref {
            now() -> Time;
            client(flow: FlowId) -> &Connection;
            server(flow: FlowId) -> &Connection;
            has_vanished(flow: FlowId) -> bool;
            read_source(source: SourceId) -> SinkStats;
            events() -> u64;
            packet_hops() -> u64;
        }
        mut {
            add_route(links: &[LinkId], end: RouteEnd) -> RouteId;
            spread(routes: &[RouteId], gap: Option<Time>) -> RouteId;
            queue_waits(link: LinkId) -> Vec<Waits>;
            pass_by(link: LinkId, machine: MachineId, gate: Gate);
            watch(link: LinkId, machine: MachineId, gate: Gate);
            with_machine(machine: MachineId, work: impl FnOnce(&mut NodeMachine));
            start_after(flow: FlowId, others: &[(FlowId, bool)], delay: Time);
            set_class(flow: FlowId, class: u8);
            horizon() -> Time;
            release_flows();
            retire_when_done(flow: FlowId, both: bool);
            measure_link(link: LinkId, on: bool);
            read_link(link: LinkId) -> LinkStats;
            law(link: LinkId) -> &AnyLink;
            gate_flow(flow: FlowId, shaper: ShaperId, class: ClassId);
            gate_source(source: SourceId, shaper: ShaperId, class: ClassId, room: u32);
            with_shaper(shaper: ShaperId, work: impl FnOnce(&mut Shaper));
            log_control(link: LinkId);
            take_control(link: LinkId) -> Vec<ControlInterval>;
            change(link: LinkId, change: Change);
        }
    }

    fn add(&mut self, _node: NodeId, machine: NodeMachine) -> MachineId {
        Network::add(self, machine)
    }

    fn set_outlet(&mut self, machine: MachineId, gate: Gate, route: RouteId, flow: FlowId, _of: FlowId) {
        Network::set_outlet(self, machine, gate, route, flow);
    }

    fn attach(&mut self, flow: FlowId, end: End, app: MachineId) {
        Network::attach(self, flow, end, app);
    }

    fn machine(&self, machine: MachineId) -> Option<&NodeMachine> {
        Some(Network::machine(self, machine))
    }

    fn add_source(&mut self, cbr: &Cbr, route: RouteId) -> Option<SourceId> {
        let source = Network::add_source(
            self,
            SourceSpec {
                route,
                rate: cbr.rate,
                size: cbr.packet_size,
                start: cbr.start,
                stop: cbr.stop,
                on_off: cbr.on_off,
            },
        );
        Network::set_source_hosts(self, source, [cbr.from.0, cbr.to.0]);
        Some(source)
    }

    fn start_flow(&mut self, start: Start<RouteId>, vacant: Option<FlowId>) -> FlowId {
        let Start { client, server, forward, back, start, stop, encoding, segment, class, hosts, .. } = start;
        let spec = FlowSpec { client, server, forward, back, start, stop, encoding, segment };
        let flow = match vacant {
            None => self.add_flow(spec),
            Some(flow) => {
                self.replace_flow(flow, spec);
                flow
            }
        };
        Network::set_class(self, flow, class);
        Network::set_hosts(self, flow, hosts);
        flow
    }

    fn run_until(&mut self, end: Time) -> Result<(), RunError> {
        Network::run_until(self, end);
        Ok(())
    }

    fn settle(&mut self) -> Result<Census, RunError> {
        let census = self.census();
        match census.is_conserved() && self.packets_alive() == census.queued + census.in_flight {
            true => Ok(census),
            false => Err(RunError::NotConserved { census }),
        }
    }

    fn with_flow(&mut self, flow: FlowId, work: impl FnOnce(&mut Connection, &mut Connection)) {
        Network::with_flow(self, flow, work);
    }

    fn drain_done(&mut self) -> Vec<(FlowId, End, Time)> {
        Network::drain_done(self).collect()
    }

    fn drain_begun(&mut self) -> Vec<(FlowId, Time)> {
        Network::drain_begun(self).collect()
    }

    fn add_shaper(&mut self, _node: NodeId, shaper: Shaper) -> ShaperId {
        Network::add_shaper(self, shaper)
    }

    fn shaper(&self, shaper: ShaperId) -> Option<&Shaper> {
        Some(Network::shaper(self, shaper))
    }
}
