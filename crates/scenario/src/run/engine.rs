//! The interface between a plan and the engine that runs it.
//!
//! It is used when flows start, at ends of intervals and at the file's changes, never for a single
//! packet.

use std::any::Any;

use tollway_law::sender::AnySender;
use tollway_law::{Price, Time};
use tollway_proto::link::Link;
use tollway_proto::shaper::ClassId;
use tollway_proto::transport::Connection;
use tollway_proto::{Change, Encoding, Gate, NodeMachine, OneWay};
use tollway_sim::{
    Census, End, FlowId, FlowSpec, LinkId, MachineId, Network, RouteEnd, RouteId, SinkStats, SourceId,
    SourceSpec,
};

use super::RunError;
use super::ends::Ends;
use crate::plan::{Cbr, EqualCost, NodeId, Transport};

/// A running network: links, flows, time. The runner builds, changes and observes it.
pub(super) trait Engine {
    /// Names a route.
    type Route: Copy;

    /// Adds a route over the first of `ways`, or one that divides its packets among all of them.
    fn add_route(&mut self, ways: &[Vec<LinkId>], end: RouteEnd, cost: EqualCost) -> Self::Route;
    /// Adds a machine at a node.
    fn add(&mut self, node: NodeId, machine: NodeMachine) -> MachineId;
    /// Joins parts that have been added.
    fn join(&mut self, joint: Joint<'_, Self::Route>);
    /// Adds a source of cross-traffic; `None` if the engine supports no sources.
    fn add_source(&mut self, cbr: &Cbr, route: Self::Route) -> Option<SourceId>;
    /// Adds a flow. It may reuse the slot of `vacant`, a flow that has ended, once none of that
    /// flow's packets is in flight.
    fn start_flow(
        &mut self,
        start: Start<Self::Route>,
        ends: Ends<'_, impl Fn(bool) -> AnySender>,
        vacant: Option<FlowId>,
    ) -> FlowId;

    /// Changes a link or a flow at the present instant.
    fn change(&mut self, part: Part, change: Change);
    /// Applies `work` to a machine or a shaper at the present instant.
    fn with_machine(&mut self, machine: MachineId, work: impl FnOnce(&mut dyn Any));

    fn now(&self) -> Time;
    /// The furthest instant a run can reach.
    fn horizon(&mut self) -> Time;
    /// Runs all events before `end`; returns true if no work is left here.
    fn run_until(&mut self, end: Time) -> Result<bool, RunError>;
    /// Ends the run, and accounts for every packet.
    fn settle(&mut self) -> Result<Totals, RunError>;
    /// Frees the memory of a settled run's flows, which are not observed from then on.
    fn release_flows(&mut self) {}

    /// Returns true if this process runs a place.
    fn has(&self, _place: Place) -> bool {
        true
    }
    /// An end of a flow.
    fn connection(&self, flow: FlowId, end: End) -> &Connection;
    /// Counters of a flow's data, from the client or to it, if its ends are not machines of
    /// Tollway.
    fn outside(&self, _flow: FlowId, _forward: bool) -> Option<Outside> {
        None
    }
    /// The part of a span in which a flow ran, from the client or to it. It differs from the span
    /// if only the receiver is here: the receiver waits for the flow's start, and for late packets.
    fn heard(&self, _flow: FlowId, _forward: bool, span: (Time, Time)) -> (Time, Time) {
        span
    }
    /// Appends the events of flows since the last call: beginnings first.
    fn drain_events(&mut self, into: &mut Vec<(FlowId, FlowEvent, Time)>);
    /// Reads a link, updated to the present, or changes its measurement.
    fn with_link<R>(&mut self, link: LinkId, work: impl FnOnce(&mut Link, Time) -> R) -> R;
    /// A machine or a shaper, if this process runs its node.
    fn machine(&self, machine: MachineId) -> Option<&dyn Any>;
    fn read_source(&self, source: SourceId) -> SinkStats;
    /// Delays and losses of a source, if this process runs both of its ends.
    fn one_way(&mut self, source: SourceId) -> Option<&mut OneWay>;
}

/// How parts of a network are joined.
pub(super) enum Joint<'a, R> {
    /// A middle receives packets from a link to its node, by the gate, on routes added later.
    PassBy(LinkId, MachineId, Gate),
    /// A middle watches the wire of a link, by the gate.
    Watch(LinkId, MachineId, Gate),
    /// Packets that a middle sends by the gate take a route, as packets of `flow`. Their data come
    /// from the sender of `of`.
    Outlet { machine: MachineId, gate: Gate, route: R, flow: FlowId, of: FlowId },
    /// An app owns an end of a flow at its node.
    App(MachineId, FlowId, End),
    /// A shaper releases the data of a flow's client.
    Shape(FlowId, MachineId, ClassId),
    /// A shaper releases the packets of a source of cross-traffic. The number bounds the source's
    /// waiting packets.
    ShapeSource(SourceId, MachineId, ClassId, u32),
    /// A flow begins `delay` after the last of `others` has ended: its client, or each of its
    /// ends if its entry has `true`. Only an engine that can delay flows runs such a plan.
    After { flow: FlowId, others: &'a [(FlowId, bool)], delay: Time },
}

/// The part of a network that changes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    Link(LinkId),
    Flow(FlowId),
}

/// A place of a network: this process or another one runs it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    Node(NodeId),
    /// The port where a link begins.
    Link(LinkId),
    End(FlowId, End),
}

/// An event of a flow at a time that the plan does not determine.
#[derive(Clone, Copy, Debug)]
pub(super) enum FlowEvent {
    /// The flow has begun, or will, after the end of others.
    Begun,
    /// One end has had all its data acknowledged.
    Done(End),
}

/// The sums of a run.
pub(super) struct Totals {
    /// The fate of every packet; none has appeared or vanished.
    pub(super) census: Census,
    /// Steps of the engine's loop.
    pub(super) events: u64,
    /// Packets that have crossed a link.
    pub(super) packet_hops: u64,
}

/// A flow to be started.
pub(super) struct Start<R> {
    pub(super) forward: R,
    pub(super) back: R,
    pub(super) start: Time,
    pub(super) stop: Time,
    pub(super) encoding: Encoding,
    pub(super) segment: u32,
    /// The class of traffic of its packets, 0 for none.
    pub(super) class: u8,
    /// Source and destination node.
    pub(super) hosts: [u32; 2],
    /// Its data are frames of a session.
    pub(super) session: bool,
    /// Retired once its client is done; once both ends are done if `true`.
    pub(super) retire: Option<bool>,
    /// The task of the kernel's TCP, if a live run uses that.
    pub(super) kernel: Option<Kernels>,
}

/// The task of the kernel's TCP for a flow.
pub(super) struct Kernels {
    /// Its congestion control.
    pub(super) law: Congestion,
    /// Bytes to send; `None` is endless.
    pub(super) bytes: Option<u64>,
    pub(super) both_ways: bool,
    /// Largest unacknowledged data, bytes: the lesser of the two ends' buffers, enforced by the
    /// offered window.
    pub(super) receive_buffer: Option<u32>,
    /// True if that limit is to change.
    pub(super) changes: bool,
}

/// A congestion control of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Congestion {
    /// One that Linux has, by its name.
    Linux(&'static str),
    /// One of a program.
    Program(Program),
}

/// A law that a program brings to the kernel's TCP.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Program {
    /// Its word.
    pub law: String,
    /// The initial window, packets.
    pub initial_window: u32,
    /// Linux's name of the law after a fallback; without one the machine's default.
    pub fallback: Option<&'static str>,
}

impl Congestion {
    pub(super) fn of(transport: &Transport) -> Congestion {
        let about = transport.law.descriptor();
        match about.program {
            true => Congestion::Program(Program {
                law: transport.law.word().to_owned(),
                initial_window: transport.initial_window,
                fallback: about.fallback,
            }),
            false => Congestion::Linux(about.kernel.unwrap_or_default()),
        }
    }
}

/// Counters of a flow whose ends are not machines of Tollway.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outside {
    pub(super) received: u64,
    pub(super) delivered: u64,
    pub(super) sent: u64,
    pub(super) retransmissions: u64,
    pub(super) cwnd: f64,
    pub(super) srtt: Time,
    pub(super) in_flight: u32,
    /// The price of its path, once known.
    pub(super) price: Option<Price>,
}

/// The simulator.
impl Engine for Network<Connection> {
    type Route = RouteId;

    fn add_route(&mut self, ways: &[Vec<LinkId>], end: RouteEnd, cost: EqualCost) -> RouteId {
        let gap = match cost {
            EqualCost::First => return Network::add_route(self, &ways[0], end),
            EqualCost::Flowlet(gap) => Some(gap),
            EqualCost::Flow | EqualCost::Packet => None,
        };
        let routes: Vec<RouteId> = ways.iter().map(|links| Network::add_route(self, links, end)).collect();
        self.spread(&routes, gap)
    }

    fn add(&mut self, _node: NodeId, machine: NodeMachine) -> MachineId {
        Network::add(self, machine)
    }

    fn join(&mut self, joint: Joint<'_, RouteId>) {
        match joint {
            Joint::PassBy(link, machine, gate) => self.pass_by(link, machine, gate),
            Joint::Watch(link, machine, gate) => self.watch(link, machine, gate),
            Joint::Outlet { machine, gate, route, flow, .. } => self.set_outlet(machine, gate, route, flow),
            Joint::App(app, flow, end) => drop(self.attach(flow, end, app)),
            Joint::Shape(flow, shaper, class) => self.shape_flow(flow, shaper, class),
            Joint::ShapeSource(source, shaper, class, room) => self.shape_source(source, shaper, class, room),
            Joint::After { flow, others, delay } => self.start_after(flow, others, delay),
        }
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

    fn start_flow(
        &mut self,
        start: Start<RouteId>,
        ends: Ends<'_, impl Fn(bool) -> AnySender>,
        vacant: Option<FlowId>,
    ) -> FlowId {
        let Start { forward, back, start, stop, encoding, segment, class, hosts, retire, .. } = start;
        let flow = match vacant.filter(|&flow| self.has_vanished(flow)) {
            None => {
                let [client, server] = ends.connect(None);
                self.add_flow(FlowSpec { client, server, forward, back, start, stop, encoding, segment })
            }
            Some(flow) => {
                let (client, server) = ((), ());
                let spec = FlowSpec { client, server, forward, back, start, stop, encoding, segment };
                self.replace_flow(flow, spec, |client, server| ends.renew(client, server));
                flow
            }
        };
        self.set_class(flow, class);
        Network::set_hosts(self, flow, hosts);
        if let Some(both) = retire {
            self.retire_when_done(flow, both);
        }
        flow
    }

    fn change(&mut self, part: Part, change: Change) {
        match part {
            Part::Link(link) => Network::change(self, link, change),
            Part::Flow(flow) => {
                if let Change::Class(class) = change {
                    self.set_class(flow, class);
                }
                let now = Network::now(self);
                self.with_flow(flow, |client, server| change.apply(now, [client, server]));
            }
        }
    }

    fn with_machine(&mut self, machine: MachineId, work: impl FnOnce(&mut dyn Any)) {
        Network::with_machine(self, machine, work);
    }

    fn now(&self) -> Time {
        Network::now(self)
    }

    fn horizon(&mut self) -> Time {
        Network::horizon(self)
    }

    fn run_until(&mut self, end: Time) -> Result<bool, RunError> {
        Network::run_until(self, end);
        Ok(false)
    }

    fn settle(&mut self) -> Result<Totals, RunError> {
        let census = self.census();
        self.release_events();
        match census.is_conserved() && self.packets_alive() == census.queued + census.in_flight {
            true => Ok(Totals { census, events: self.events(), packet_hops: self.packet_hops() }),
            false => Err(RunError::NotConserved { census }),
        }
    }

    fn release_flows(&mut self) {
        Network::release_flows(self);
    }

    fn connection(&self, flow: FlowId, end: End) -> &Connection {
        match end {
            End::Client => self.client(flow),
            End::Server => self.server(flow),
        }
    }

    fn drain_events(&mut self, into: &mut Vec<(FlowId, FlowEvent, Time)>) {
        for (flow, at) in self.drain_begun() {
            into.push((flow, FlowEvent::Begun, at));
        }
        for (flow, end, at) in self.drain_done() {
            into.push((flow, FlowEvent::Done(end), at));
        }
    }

    fn with_link<R>(&mut self, link: LinkId, work: impl FnOnce(&mut Link, Time) -> R) -> R {
        Network::with_link(self, link, work)
    }

    fn machine(&self, machine: MachineId) -> Option<&dyn Any> {
        Some(Network::machine(self, machine))
    }

    fn read_source(&self, source: SourceId) -> SinkStats {
        Network::read_source(self, source)
    }

    fn one_way(&mut self, source: SourceId) -> Option<&mut OneWay> {
        Some(Network::one_way(self, source))
    }
}
