//! The network and its event loop.

mod events;
mod foresee;
mod hosts;
mod machines;
mod sends;
mod shaped;
mod sights;

use std::collections::BTreeMap;

use tollway_law::Time;
use tollway_proto::cbr::PLAIN;
use tollway_proto::link::{Link, LinkSpec, LinkStats, NO_MEDIUM, PacketFate};
use tollway_proto::route::mix;
use tollway_proto::shaper::{ShapedSenders, UNSHAPED};
use tollway_proto::trace::Trace;
use tollway_proto::{Answer, Change, Encoding, Faults, Flags, Gate, Machine, Medium, Packet, SackRanges};

use machines::{Hosted, Opening, Resident};

use crate::names::{End, FlowId, LinkId, MachineId, RouteId, SourceId};
use crate::pages::in_large_pages;
use crate::scheduler::{Scheduler, TimeBound};
use crate::slab::Slab;
use crate::source::{SinkStats, Source, SourceSpec};
use crate::tap::{Fate, Origin, Sighting, Tap};

/// A simulated network: links, flows between machines of kind `M`, cross-traffic.
///
/// `add_…` builds it, [`run_until`](Network::run_until) runs it; it can be changed and read between
/// runs.
#[derive(Debug)]
pub struct Network<M> {
    now: Time,
    /// The events that may become the present without being pending.
    bound: TimeBound,
    scheduler: Scheduler,
    slab: Slab,
    links: Vec<Link>,
    mediums: Vec<Medium>,
    sources: Vec<Source>,
    shaped: ShapedSenders,
    /// The number of shapers, since `shaped` is moved out while they work.
    shapers: usize,
    endpoints: Vec<Endpoint<M>>,
    /// All routes in one array: links, then an end or a gate of a middle.
    routes: Vec<u32>,
    /// Sets of routes that share an end's packets.
    spreads: Vec<Spread>,
    /// Packets that were given one of several routes.
    spread_packets: u64,
    /// For each endpoint that sends flowlets, the instant and route of its latest packet; empty
    /// without any.
    flowlets: Vec<(Time, u32)>,
    /// For each link, the entry that follows it in every route, or [`VARIES`] if routes differ
    /// there. It mostly gives a packet's next step before the packet is loaded from memory, and
    /// without its route.
    onward: Vec<u32>,
    machines: Vec<Resident>,
    /// Gates at the end of routes, or on them.
    openings: Vec<Opening>,
    /// Gates at the far ends of links, as entries of routes.
    passes: Vec<(LinkId, u32)>,
    /// Ends that apps own.
    hosted: Vec<Hosted>,
    sack_scratch: SackRanges,
    sealed: bool,
    seed: u64,
    events: u64,
    hops: u64,
    absorbed: u64,
    delivered: u64,
    trace: Option<u64>,
    tap: Option<Box<Tap>>,
    /// True if there is a `trace` or a `tap`.
    watched: bool,
    done: Vec<(FlowId, End, Time)>,
    /// For each endpoint, the flows that start after it is done.
    followers: BTreeMap<u32, Vec<FlowId>>,
    /// For each waiting flow, the number of ends of others not done yet, and the delay after them.
    waiting: BTreeMap<u32, (u32, Time)>,
    /// Flows that waited, with their starts.
    begun: Vec<(FlowId, Time)>,
}

/// The end of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteEnd {
    /// The second machine of the packet's flow.
    Server,
    /// The first machine of the packet's flow.
    Client,
    /// The sink of the packet's source of cross-traffic.
    Sink,
    /// A gate of a middle.
    Middle(MachineId, Gate),
}

/// The parts of a flow. The client opens; either side may send.
#[derive(Debug)]
pub struct FlowSpec<M> {
    /// The machine that opens.
    pub client: M,
    /// The machine that answers.
    pub server: M,
    /// The route from client to server.
    pub forward: RouteId,
    /// The route from server to client.
    pub back: RouteId,
    /// The instant at which the client opens.
    pub start: Time,
    /// The instant at which both stop; [`Time::NEVER`] without one.
    pub stop: Time,
    /// The form of packets in bytes. Tolls lose the precision that it lacks.
    pub encoding: Encoding,
    /// A full segment of both machines on the wire, in bytes: the unit of some encodings.
    pub segment: u32,
}

/// The fates of all packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Packets created.
    pub created: u64,
    /// Packets that reached a machine or a sink.
    pub delivered: u64,
    /// Packets that ended at a middle, or at a flow that has ended.
    pub absorbed: u64,
    /// Packets lost in queues and on wires.
    pub dropped: u64,
    /// Packets waiting in queues.
    pub queued: u64,
    /// Packets in transmitters and on wires.
    pub in_flight: u64,
}

impl Census {
    /// True if no packet has appeared or vanished.
    pub fn is_conserved(&self) -> bool {
        self.created == self.delivered + self.absorbed + self.dropped + self.queued + self.in_flight
    }
}

/// The routes of an end of a flow that has several, as ascending positions in [`Network::routes`].
#[derive(Debug)]
struct Spread {
    routes: Box<[u32]>,
    /// The pause after which a new route is drawn; `None` draws for every packet.
    gap: Option<Time>,
}

/// The fields that the loop reads first come first: with the machine's own first ones they fill one
/// cache line.
#[derive(Debug)]
#[repr(C, align(64))]
struct Endpoint<M> {
    live: bool,
    done: bool,
    /// The flow is retired when neither end is awaited any more.
    awaited: bool,
    route: u32,
    /// The route's first link; from [`GATES`] on, an index into [`Network::spreads`].
    first: u32,
    /// Packets created by this machine less those that ended at it. The sum over both ends is the
    /// number on their way.
    balance: i64,
    open_at: Time,
    stop_at: Time,
    /// The time of its pending event in the scheduler.
    armed: Time,
    /// The round-trip time, in seconds, stated by the last tolled packet received. Lossy encodings
    /// scale the echo by it.
    heard_rtt: f32,
    /// Its number among shaped senders or ends of apps; [`UNSHAPED`] without one.
    shaped: u32,
    machine: M,
}

impl<M: Machine> Network<M> {
    /// Creates an empty network. `seed` determines all its randomness.
    pub fn new(seed: u64) -> Network<M> {
        Network {
            now: Time::ZERO,
            bound: TimeBound::default(),
            scheduler: Scheduler::new(0, 2),
            slab: Slab::default(),
            links: Vec::new(),
            mediums: Vec::new(),
            sources: Vec::new(),
            shaped: ShapedSenders::default(),
            shapers: 0,
            endpoints: Vec::new(),
            routes: Vec::new(),
            spreads: Vec::new(),
            spread_packets: 0,
            flowlets: Vec::new(),
            onward: Vec::new(),
            machines: Vec::new(),
            openings: Vec::new(),
            passes: Vec::new(),
            hosted: Vec::new(),
            sack_scratch: SackRanges::EMPTY,
            sealed: false,
            seed,
            events: 0,
            hops: 0,
            absorbed: 0,
            delivered: 0,
            trace: None,
            tap: None,
            watched: false,
            done: Vec::new(),
            followers: BTreeMap::new(),
            waiting: BTreeMap::new(),
            begun: Vec::new(),
        }
    }

    /// Reserves room for `links` more links and `flows` more flows. Growth step by step would hold
    /// them twice for a while.
    pub fn reserve(&mut self, links: usize, flows: usize) {
        self.links.reserve_exact(links);
        self.endpoints.reserve_exact(2 * flows);
        in_large_pages(&self.links);
        in_large_pages(&self.endpoints);
    }

    /// Adds a link direction. Links, media and sources must be added before the first
    /// [`run_until`](Network::run_until).
    pub fn add_link(&mut self, spec: LinkSpec) -> LinkId {
        assert!(!self.sealed, "links are added before the first run");
        self.links.push(Link::new(spec));
        LinkId(self.links.len() as u32 - 1)
    }

    /// Puts `links` on one half-duplex medium.
    pub fn add_medium(&mut self, links: &[LinkId]) {
        assert!(!self.sealed, "media are added before the first run");
        for link in links {
            self.links[link.0 as usize].share(self.mediums.len() as u32);
        }
        let links = links.iter().map(|link| link.0).collect();
        self.mediums.push(Medium::new(links));
    }

    /// Makes a link deliver at the times of `trace` instead of at its rate. The link must not be on
    /// a medium. A later [`Change::Rate`] ends the replay.
    pub fn set_trace(&mut self, link: LinkId, trace: Trace) {
        assert!(!self.sealed, "traces are set before the first run");
        self.links[link.0 as usize].set_trace(trace);
    }

    /// Adds a route over `links`, in order.
    pub fn add_route(&mut self, links: &[LinkId], end: RouteEnd) -> RouteId {
        let route = RouteId(self.routes.len() as u32);
        self.onward.resize(self.links.len(), UNUSED);
        for link in links {
            self.routes.push(link.0);
            self.routes.extend(self.passes.iter().filter(|pass| pass.0 == *link).map(|pass| pass.1));
        }
        let end = match end {
            RouteEnd::Client => END_CLIENT,
            RouteEnd::Server => END_SERVER,
            RouteEnd::Sink => END_SINK,
            RouteEnd::Middle(machine, gate) => self.opening(machine, gate),
        };
        self.routes.push(end);
        for step in self.routes[route.0 as usize..].windows(2).filter(|step| step[0] < GATES) {
            let onward = &mut self.onward[step[0] as usize];
            *onward = if [UNUSED, step[1]].contains(onward) { step[1] } else { VARIES };
        }
        route
    }

    /// Combines `routes` into one identifier, for an end of a flow with several routes. The seed
    /// draws a route for each packet. With `gap`, it draws a new one only for a packet that follows
    /// the previous one by more than `gap`. All routes of an end must be added consecutively.
    pub fn spread(&mut self, routes: &[RouteId], gap: Option<Time>) -> RouteId {
        self.spreads.push(Spread { routes: routes.iter().map(|route| route.0).collect(), gap });
        RouteId(GATES + self.spreads.len() as u32 - 1)
    }

    /// Adds a source of cross-traffic.
    pub fn add_source(&mut self, spec: SourceSpec) -> SourceId {
        assert!(!self.sealed, "sources are added before the first run");
        self.sources.push(Source::new(spec));
        SourceId(self.sources.len() as u32 - 1)
    }

    /// Adds a flow, before or during a run. During a run, its start must not precede
    /// [`now`](Network::now).
    pub fn add_flow(&mut self, spec: FlowSpec<M>) -> FlowId {
        let flow = FlowId(self.endpoints.len() as u32 / 2);
        self.slab.set_encoding(flow.0, spec.encoding, spec.segment);
        self.announce(flow, spec.segment);
        let [there, back] = [spec.forward, spec.back].map(|route| self.beginning(route));
        self.endpoints.push(Endpoint::new(spec.client, there, [spec.start, spec.stop]));
        self.endpoints.push(Endpoint::new(spec.server, back, [Time::NEVER, spec.stop]));
        self.schedule_start(flow);
        flow
    }

    /// Replaces a flow that has [`vanished`](Network::has_vanished) by a new one, whose client and
    /// server `renew` makes of the old ones. So memory doesn't grow with the number of flows a
    /// workload has ever created.
    pub fn replace_flow(&mut self, flow: FlowId, spec: FlowSpec<()>, renew: impl FnOnce(&mut M, &mut M)) {
        debug_assert!(self.has_vanished(flow));
        self.slab.set_encoding(flow.0, spec.encoding, spec.segment);
        self.slab.forget_lost(flow.0);
        self.announce(flow, spec.segment);
        let [there, back] = [spec.forward, spec.back].map(|route| self.beginning(route));
        let at = flow.0 as usize * 2;
        let (left, right) = self.endpoints.split_at_mut(at + 1);
        let (client, server) = (&mut left[at], &mut right[0]);
        client.restart(there, [spec.start, spec.stop]);
        server.restart(back, [Time::NEVER, spec.stop]);
        renew(&mut client.machine, &mut server.machine);
        self.note_timer(at);
        self.note_timer(at + 1);
    }

    /// Sets the class of a flow's packets from now on, including those on their way. Ports and
    /// their laws define its meaning; 0 means no class.
    pub fn set_class(&mut self, flow: FlowId, class: u8) {
        self.slab.set_class(flow.0, class);
    }

    /// Delays a flow that has not begun until `delay` after the last of `others` is done. Of each
    /// other flow the client must be done, or with `true` both ends.
    pub fn start_after(&mut self, flow: FlowId, others: &[(FlowId, bool)], delay: Time) {
        let mut left = 0;
        for &(other, both) in others {
            for end in 0..=u32::from(both) {
                self.followers.entry(other.0 * 2 + end).or_default().push(flow);
                left += 1;
            }
        }
        self.waiting.insert(flow.0, (left, delay));
        let at = flow.0 as usize * 2;
        self.endpoints[at].open_at = Time::NEVER;
        if self.sealed {
            let deadline = self.endpoints[at].deadline();
            self.arm(at, deadline);
        }
    }

    /// Returns the flows that an end of [others](Network::start_after) has started since the last
    /// call, with their starts, which may lie ahead.
    pub fn drain_begun(&mut self) -> std::vec::Drain<'_, (FlowId, Time)> {
        self.begun.drain(..)
    }

    /// Ends a flow. Its machines receive nothing more, and packets on their way to them are
    /// absorbed.
    pub fn retire_flow(&mut self, flow: FlowId) {
        for at in flow.0 as usize * 2..flow.0 as usize * 2 + 2 {
            // A timer that is set expires without effect.
            self.endpoints[at].live = false;
            if self.endpoints[at].shaped != UNSHAPED {
                self.dismiss(at);
            }
        }
    }

    /// [Retires](Network::retire_flow) a flow at the instant at which its client, or each of its
    /// ends if `both`, is [done](Machine::is_done). So the result doesn't depend on when the caller
    /// next reads the network.
    pub fn retire_when_done(&mut self, flow: FlowId, both: bool) {
        let at = flow.0 as usize * 2;
        self.endpoints[at].awaited = true;
        self.endpoints[at + 1].awaited = both;
    }

    /// True if a retired flow has no packet left in the network.
    pub fn has_vanished(&self, flow: FlowId) -> bool {
        let pair = &self.endpoints[flow.0 as usize * 2..flow.0 as usize * 2 + 2];
        !pair[0].live && pair[0].balance + pair[1].balance == self.slab.lost(flow.0)
    }

    /// A route, and an endpoint's value of `first` for it.
    fn beginning(&self, route: RouteId) -> (u32, u32) {
        match route.0.checked_sub(GATES) {
            None => (route.0, self.routes[route.0 as usize]),
            Some(spread) => (self.spreads[spread as usize].routes[0], route.0),
        }
    }

    fn schedule_start(&mut self, flow: FlowId) {
        if self.sealed {
            let at = flow.0 as usize * 2;
            let last = self.endpoint_entity(at + 1) as usize;
            self.scheduler.grow(last + 1);
            self.note_timer(at);
            self.note_timer(at + 1);
        }
    }

    /// Returns the ends of flows that became [done](Machine::is_done) since the last call, with the
    /// instants.
    pub fn drain_done(&mut self) -> std::vec::Drain<'_, (FlowId, End, Time)> {
        self.done.drain(..)
    }

    /// The present instant.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The number of events handled so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The number of packets that reached the far end of a link so far, acknowledgements included.
    pub fn packet_hops(&self) -> u64 {
        self.hops
    }

    /// Starts a digest over every packet-hop (time, link, content).
    /// [`trace_digest`](Network::trace_digest) reads it.
    pub fn trace_packets(&mut self) {
        self.trace = Some(0xcbf2_9ce4_8422_2325);
        self.watched = true;
    }

    /// Records every packet on a link from now on. [`drain_sightings`](Network::drain_sightings)
    /// reads them.
    pub fn tap(&mut self, link: LinkId) {
        let tap = self.tap.get_or_insert_default();
        tap.watched.resize(self.links.len(), false);
        tap.watched[link.0 as usize] = true;
        self.watched = true;
    }

    /// Returns the packets seen on [tapped](Network::tap) links since the last call, in the order
    /// of events. They do not include packets that a law drops at the head of its queue.
    pub fn drain_sightings(&mut self) -> impl Iterator<Item = Sighting> + '_ {
        self.tap.iter_mut().flat_map(|tap| tap.seen.drain(..))
    }

    /// The digest over every packet-hop so far; `None` without
    /// [`trace_packets`](Network::trace_packets).
    pub fn trace_digest(&self) -> Option<u64> {
        self.trace
    }

    /// Calls `work` on a link direction, advanced to the present, to read it or to set its
    /// measurements.
    pub fn with_link<R>(&mut self, link: LinkId, work: impl FnOnce(&mut Link, Time) -> R) -> R {
        let link = &mut self.links[link.0 as usize];
        link.catch_up(self.now, &mut self.slab);
        work(link, self.now)
    }

    /// Reads the counters of a link direction, and restarts those of its queue.
    pub fn read_link(&mut self, link: LinkId) -> LinkStats {
        self.with_link(link, Link::read)
    }

    /// The counters of a source of cross-traffic.
    pub fn read_source(&self, source: SourceId) -> SinkStats {
        let Source { stats, launched, .. } = &self.sources[source.0 as usize];
        let left = *launched as i64 - self.slab.lost_plain(source.0);
        SinkStats { in_flight_packets: (left - stats.arrived_packets as i64).max(0) as u64, ..*stats }
    }

    /// The machine that opened the flow.
    #[inline]
    pub fn client(&self, flow: FlowId) -> &M {
        &self.endpoints[flow.0 as usize * 2].machine
    }

    /// The machine that answered the flow.
    #[inline]
    pub fn server(&self, flow: FlowId) -> &M {
        &self.endpoints[flow.0 as usize * 2 + 1].machine
    }

    /// Calls `work` on the flow's machines at the present instant, then sends their pending
    /// packets.
    pub fn with_flow<R>(&mut self, flow: FlowId, work: impl FnOnce(&mut M, &mut M) -> R) -> R {
        self.seal();
        let at = flow.0 as usize * 2;
        let (left, right) = self.endpoints.split_at_mut(at + 1);
        let answer = work(&mut left[at].machine, &mut right[0].machine);
        self.pump(at);
        self.pump(at + 1);
        answer
    }

    /// Changes a link direction at the present instant. Faults may be set before the first run.
    pub fn change(&mut self, link: LinkId, change: Change) {
        let seed = self.seed;
        let faults = || Faults::new(seed, link.0);
        if matches!(change, Change::Losses(_) | Change::Wire(_) | Change::Blackout(_)) {
            self.links[link.0 as usize].change(self.now, change, &mut self.slab, faults);
        } else {
            self.touch(link, |changed, now, slab| changed.change(now, change, slab, faults));
        }
    }

    fn touch(&mut self, link: LinkId, work: impl FnOnce(&mut Link, Time, &mut Slab)) {
        self.seal();
        let changed = &mut self.links[link.0 as usize];
        work(changed, self.now, &mut self.slab);
        let (at, medium, free_at) = (changed.next_arrival(), changed.medium(), changed.free_at());
        self.scheduler.set(link.0, at);
        if medium != NO_MEDIUM && free_at > self.now {
            self.mediums[medium as usize].set_free_at(free_at);
            self.scheduler.set(self.links.len() as u32 + medium, free_at);
        }
    }

    /// The latest instant that a run can reach with the present number of entities.
    pub fn horizon(&mut self) -> Time {
        self.seal();
        self.scheduler.horizon()
    }

    /// The fates of all packets so far.
    pub fn census(&self) -> Census {
        Census {
            created: self.slab.created(),
            delivered: self.delivered,
            absorbed: self.absorbed,
            dropped: self.links.iter().map(|link| link.drops().total()).sum(),
            queued: self.links.iter().map(|link| u64::from(link.port.packets())).sum(),
            in_flight: self.links.iter().map(|link| link.in_flight() as u64).sum(),
        }
    }

    /// Frees the memory of pending events after a run. Media and machines may still set theirs as
    /// they are read.
    pub fn release_events(&mut self) {
        let only_flows = self.endpoint_entity(0) as usize == self.links.len();
        self.scheduler.release(only_flows);
    }

    /// Frees the memory of the flows' machines after a run. Links, meters and cross-traffic can
    /// still be read. Packets stay, since links put them on the wire when they are read.
    pub fn release_flows(&mut self) {
        self.endpoints = Vec::new();
    }

    /// Packets alive, by the slab's count: equal to those queued and in flight together.
    pub fn packets_alive(&self) -> u64 {
        self.slab.alive()
    }
}

impl<M: Machine> Endpoint<M> {
    #[inline(always)]
    fn new(machine: M, (route, first): (u32, u32), [open_at, stop_at]: [Time; 2]) -> Endpoint<M> {
        Endpoint {
            live: true,
            done: false,
            awaited: false,
            route,
            first,
            balance: 0,
            open_at,
            stop_at,
            armed: Time::NEVER,
            heard_rtt: 0.0,
            shaped: UNSHAPED,
            machine,
        }
    }

    /// Sets all but the machine and the timer as in [`new`](Endpoint::new).
    fn restart(&mut self, at: (u32, u32), times: [Time; 2]) {
        let Endpoint { route, first, open_at, stop_at, .. } = self;
        (*route, *first) = at;
        [*open_at, *stop_at] = times;
        (self.live, self.done, self.awaited) = (true, false, false);
        (self.balance, self.heard_rtt, self.shaped) = (0, 0.0, UNSHAPED);
    }

    #[inline]
    fn deadline(&self) -> Time {
        if !self.live {
            return Time::NEVER;
        }
        self.machine.poll_timeout().min(self.open_at).min(self.stop_at)
    }
}

/// Routes differ after this link, or none crosses it yet. Neither value is an entry of a route.
const VARIES: u32 = u32::MAX;
const UNUSED: u32 = END - 1;

/// Route entries below are links; from here on they are gates of middles …
const GATES: u32 = 1 << 31;
/// … and from here on they are ends.
const END: u32 = u32::MAX - 3;
const END_SINK: u32 = END;
const END_CLIENT: u32 = END + 1;
const END_SERVER: u32 = END + 2;
