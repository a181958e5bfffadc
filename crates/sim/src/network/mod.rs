//! The network and its event loop.

mod events;
mod gates;
mod hosts;
mod machines;

use std::collections::HashMap;

use tollway_law::Time;
use tollway_proto::cbr::PLAIN;
use tollway_proto::link::{Link, LinkSpec, LinkStats, NO_MEDIUM, Outcome};
use tollway_proto::route::mix;
use tollway_proto::shaper::{Gates, OPEN};
use tollway_proto::trace::Trace;
use tollway_proto::{Answer, Change, Encoding, Faults, Flags, Gate, Machine, Medium, Packet, SackRanges};

use machines::{Hosted, Opening, Resident};

use crate::names::{End, FlowId, LinkId, MachineId, RouteId, SourceId};
use crate::pages::in_large_pages;
use crate::scheduler::Scheduler;
use crate::slab::Slab;
use crate::source::{SinkStats, Source, SourceSpec};
use crate::tap::{Fate, Origin, Sighting, Tap};

/// A simulated network: links, flows between machines of kind `M`, cross-traffic.
///
/// Built by `add_…`, run by [`run_until`](Network::run_until), changed and read between runs.
#[derive(Debug)]
pub struct Network<M> {
    now: Time,
    scheduler: Scheduler,
    slab: Slab,
    links: Vec<Link>,
    mediums: Vec<Medium>,
    sources: Vec<Source>,
    gates: Gates,
    /// How many shapers there are: the gates are out while they work.
    shapers: usize,
    endpoints: Vec<Endpoint<M>>,
    /// All routes one after the other: links, then an end or a gate of a middle.
    routes: Vec<u32>,
    /// Routes that packets are divided among.
    spreads: Vec<Spread>,
    /// Packets that were given one of several routes.
    spread_packets: u64,
    /// By endpoint that sends flowlets, when the latest packet left and its route; empty if none does.
    flowlets: Vec<(Time, u32)>,
    /// By link, where every route goes from it, [`VARIES`] if they part there: what a packet's next step is can mostly be
    /// told before the packet has come from memory, and without its route.
    onward: Vec<u32>,
    machines: Vec<Resident>,
    /// Gates that routes end at or lead through.
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
    /// There is a `trace` or a `tap`.
    watched: bool,
    done: Vec<(FlowId, End, Time)>,
    /// By endpoint, the flows that wait for it to be done.
    followers: HashMap<u32, Vec<FlowId>>,
    /// By flow that waits, how many ends of others are not done yet, and how long it waits from then on.
    waiting: HashMap<u32, (u32, Time)>,
    /// Flows that waited and when they begin.
    begun: Vec<(FlowId, Time)>,
}

/// What is at the end of a route.
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

/// What a flow is made of. The client opens; either side may send.
#[derive(Debug)]
pub struct FlowSpec<M> {
    /// The machine that opens.
    pub client: M,
    /// The machine that answers.
    pub server: M,
    /// From client to server.
    pub forward: RouteId,
    /// From server to client.
    pub back: RouteId,
    /// When the client opens.
    pub start: Time,
    /// When both are told to stop; [`Time::NEVER`] if they aren't.
    pub stop: Time,
    /// How packets would be written as bytes: what that loses of a toll is lost here too.
    pub encoding: Encoding,
    /// A full segment of both machines on the wire, in bytes: some encodings count in it.
    pub segment: u32,
}

/// Where every packet ever made has gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Packets made.
    pub created: u64,
    /// Packets that reached a machine or a sink.
    pub delivered: u64,
    /// Packets that ended at a middle, or at a flow that is gone.
    pub absorbed: u64,
    /// Packets lost in queues and on wires.
    pub dropped: u64,
    /// Packets waiting in queues.
    pub queued: u64,
    /// Packets in transmitters and on wires.
    pub in_flight: u64,
}

impl Census {
    /// Whether no packet has appeared or vanished.
    pub fn is_conserved(&self) -> bool {
        self.created == self.delivered + self.absorbed + self.dropped + self.queued + self.in_flight
    }
}

/// Routes among which an end of a flow divides its packets, as positions in [`Network::routes`], ascending.
#[derive(Debug)]
struct Spread {
    routes: Box<[u32]>,
    /// The pause after which another is drawn; none for every packet.
    gap: Option<Time>,
}

/// What the loop looks at first stands first: beside the machine's own, one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
struct Endpoint<M> {
    live: bool,
    done: bool,
    /// The flow is retired once neither end has this any more.
    awaited: bool,
    route: u32,
    /// The route's first link, or from [`GATES`] on an index of [`Network::spreads`].
    first: u32,
    /// Packets made by this machine less those that ended at it: the pair's sum is what is on its way.
    balance: i64,
    open_at: Time,
    stop_at: Time,
    /// Its pending event, as the scheduler has it.
    armed: Time,
    /// The round-trip time stated by the last tolled packet that came: a lossy encoding's echo is in its terms.
    heard_rtt: f32,
    /// Where it asks before it sends; [`OPEN`] if nowhere.
    gate: u32,
    machine: M,
}

impl<M: Machine> Network<M> {
    /// An empty network; `seed` is what all its randomness comes from.
    pub fn new(seed: u64) -> Network<M> {
        Network {
            now: Time::ZERO,
            scheduler: Scheduler::new(0, 2),
            slab: Slab::default(),
            links: Vec::new(),
            mediums: Vec::new(),
            sources: Vec::new(),
            gates: Gates::default(),
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
            followers: HashMap::new(),
            waiting: HashMap::new(),
            begun: Vec::new(),
        }
    }

    /// Makes room for so many more links and flows at once, where a caller knows: growing step by step would for a while
    /// hold them twice.
    pub fn reserve(&mut self, links: usize, flows: usize) {
        self.links.reserve_exact(links);
        self.endpoints.reserve_exact(2 * flows);
        in_large_pages(&self.links);
        in_large_pages(&self.endpoints);
    }

    /// Adds a link direction. Links, media and sources come before the first [`run_until`](Network::run_until).
    pub fn add_link(&mut self, spec: LinkSpec) -> LinkId {
        assert!(!self.sealed, "links are added before the first run");
        self.links.push(Link::new(spec));
        LinkId(self.links.len() as u32 - 1)
    }

    /// Lets `links` share one half-duplex medium.
    pub fn add_medium(&mut self, links: &[LinkId]) {
        assert!(!self.sealed, "media are added before the first run");
        for link in links {
            self.links[link.0 as usize].share(self.mediums.len() as u32);
        }
        let links = links.iter().map(|link| link.0).collect();
        self.mediums.push(Medium::new(links));
    }

    /// Lets a link deliver when `trace` says, instead of at its rate. It has no part in a medium, and a later
    /// [`Change::Rate`] ends it.
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

    /// Names `routes` together: an end of a flow that is given this sends each packet on one of them, drawn by the seed; or draws anew
    /// only for a packet that follows the one before by more than `gap`. All routes of an end are added in a row.
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

    /// Adds a flow, also in the middle of a run (its start then lies no earlier than [`now`](Network::now)).
    pub fn add_flow(&mut self, spec: FlowSpec<M>) -> FlowId {
        let flow = FlowId(self.endpoints.len() as u32 / 2);
        self.slab.set_encoding(flow.0, spec.encoding, spec.segment);
        self.announce(flow, spec.segment);
        let (client, server) = self.endpoints_of(spec);
        self.endpoints.push(client);
        self.endpoints.push(server);
        self.schedule_start(flow);
        flow
    }

    /// Puts a new flow in the place of one that has [`vanished`](Network::has_vanished), so that memory doesn't grow
    /// with the number of flows a workload has ever made.
    pub fn replace_flow(&mut self, flow: FlowId, spec: FlowSpec<M>) {
        debug_assert!(self.has_vanished(flow));
        self.slab.set_encoding(flow.0, spec.encoding, spec.segment);
        self.slab.forget_lost(flow.0);
        self.announce(flow, spec.segment);
        let (client, server) = self.endpoints_of(spec);
        let at = flow.0 as usize * 2;
        self.endpoints[at] = client;
        self.endpoints[at + 1] = server;
        self.schedule_start(flow);
    }

    /// From now on packets of a flow are of `class`, on their way already or not: what that means is the affair of ports
    /// and their laws. 0 is what belongs to none.
    pub fn set_class(&mut self, flow: FlowId, class: u8) {
        self.slab.set_class(flow.0, class);
    }

    /// Has a flow that has not begun begin `delay` after the last of `others` is done: its client, or each of its ends if
    /// `true` stands beside it.
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

    /// The flows that have begun or will after the end of [others](Network::start_after), since the last call, and when.
    pub fn drain_begun(&mut self) -> std::vec::Drain<'_, (FlowId, Time)> {
        self.begun.drain(..)
    }

    /// Ends a flow: its machines hear no more, packets on their way to them are absorbed.
    pub fn retire_flow(&mut self, flow: FlowId) {
        for at in flow.0 as usize * 2..flow.0 as usize * 2 + 2 {
            self.endpoints[at].live = false;
            if self.sealed {
                self.arm(at, Time::NEVER);
            }
            if self.endpoints[at].gate != OPEN {
                self.dismiss(at);
            }
        }
    }

    /// Has a flow [retired](Network::retire_flow) at the very instant its client, or each of its ends if `both`, is
    /// [done](Machine::is_done): what comes then does not depend on when a caller next looks.
    pub fn retire_when_done(&mut self, flow: FlowId, both: bool) {
        let at = flow.0 as usize * 2;
        self.endpoints[at].awaited = true;
        self.endpoints[at + 1].awaited = both;
    }

    /// Whether a retired flow has no packet left in the network.
    pub fn has_vanished(&self, flow: FlowId) -> bool {
        let pair = &self.endpoints[flow.0 as usize * 2..flow.0 as usize * 2 + 2];
        !pair[0].live && pair[0].balance + pair[1].balance == self.slab.lost(flow.0)
    }

    fn endpoints_of(&self, spec: FlowSpec<M>) -> (Endpoint<M>, Endpoint<M>) {
        let beginning = |route: RouteId| match route.0.checked_sub(GATES) {
            None => (route.0, self.routes[route.0 as usize]),
            Some(spread) => (self.spreads[spread as usize].routes[0], route.0),
        };
        let end = |machine, (route, first), open_at| Endpoint {
            live: true,
            done: false,
            awaited: false,
            route,
            first,
            balance: 0,
            open_at,
            stop_at: spec.stop,
            armed: Time::NEVER,
            heard_rtt: 0.0,
            gate: OPEN,
            machine,
        };
        (
            end(spec.client, beginning(spec.forward), spec.start),
            end(spec.server, beginning(spec.back), Time::NEVER),
        )
    }

    fn schedule_start(&mut self, flow: FlowId) {
        if self.sealed {
            let at = flow.0 as usize * 2;
            let last = self.endpoint_entity(at + 1) as usize;
            self.scheduler.grow(last + 1);
            for at in [at, at + 1] {
                let deadline = self.endpoints[at].deadline();
                self.arm(at, deadline);
            }
        }
    }

    /// The ends of flows that are [done](Machine::is_done) since the last call, and when they were.
    pub fn drain_done(&mut self) -> std::vec::Drain<'_, (FlowId, End, Time)> {
        self.done.drain(..)
    }

    /// The present.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Events taken so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Transmissions over a link that have reached the far end so far, acknowledgements included.
    pub fn packet_hops(&self) -> u64 {
        self.hops
    }

    /// Starts a digest over every packet-hop (when, where, what); read it with [`trace_digest`](Network::trace_digest).
    pub fn trace_packets(&mut self) {
        self.trace = Some(0xcbf2_9ce4_8422_2325);
        self.watched = true;
    }

    /// Notes from now on every packet on a link, to be read with [`drain_sightings`](Network::drain_sightings).
    pub fn tap(&mut self, link: LinkId) {
        let tap = self.tap.get_or_insert_default();
        tap.watched.resize(self.links.len(), false);
        tap.watched[link.0 as usize] = true;
        self.watched = true;
    }

    /// The packets seen on [tapped](Network::tap) links since the last call, in the order of events. What a law
    /// drops at the head of its queue is not among them.
    pub fn drain_sightings(&mut self) -> impl Iterator<Item = Sighting> + '_ {
        self.tap.iter_mut().flat_map(|tap| tap.seen.drain(..))
    }

    /// The digest over every packet-hop so far, if it was asked for.
    pub fn trace_digest(&self) -> Option<u64> {
        self.trace
    }

    /// Reads a link direction, caught up to the present, or sets what is measured of it.
    pub fn with_link<R>(&mut self, link: LinkId, work: impl FnOnce(&mut Link, Time) -> R) -> R {
        let link = &mut self.links[link.0 as usize];
        link.catch_up(self.now, &mut self.slab);
        work(link, self.now)
    }

    /// The figures of a link direction; those of its queue start anew.
    pub fn read_link(&mut self, link: LinkId) -> LinkStats {
        self.with_link(link, Link::read)
    }

    /// The figures of a source of cross-traffic.
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

    /// The machine that answered.
    #[inline]
    pub fn server(&self, flow: FlowId) -> &M {
        &self.endpoints[flow.0 as usize * 2 + 1].machine
    }

    /// Works on the flow's machines at the present instant, then sends what they have to send.
    pub fn with_flow<R>(&mut self, flow: FlowId, work: impl FnOnce(&mut M, &mut M) -> R) -> R {
        self.seal();
        let at = flow.0 as usize * 2;
        let (left, right) = self.endpoints.split_at_mut(at + 1);
        let answer = work(&mut left[at].machine, &mut right[0].machine);
        self.pump(at);
        self.pump(at + 1);
        answer
    }

    /// Changes a link direction at the present instant; faults also before the first run.
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

    /// The furthest instant a run can reach with as many entities as there are now.
    pub fn horizon(&mut self) -> Time {
        self.seal();
        self.scheduler.horizon()
    }

    /// Where every packet has gone.
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

    /// Gives back the memory of the flows' machines, once a run is over: what can be asked from then on is of links, meters
    /// and cross-traffic. (Packets stay: links put them on the wire when they are asked.)
    pub fn release_flows(&mut self) {
        self.endpoints = Vec::new();
    }

    /// Packets alive now, by the slab's count: the same as queued and in flight together.
    pub fn packets_alive(&self) -> u64 {
        self.slab.alive()
    }
}

impl<M: Machine> Endpoint<M> {
    #[inline]
    fn deadline(&self) -> Time {
        if !self.live {
            return Time::NEVER;
        }
        self.machine.poll_timeout().min(self.open_at).min(self.stop_at)
    }
}

/// Where routes part, and where none has come yet: no entries of routes.
const VARIES: u32 = u32::MAX;
const UNUSED: u32 = END - 1;

/// Route entries below are links, from here on gates of middles …
const GATES: u32 = 1 << 31;
/// … and from here on ends.
const END: u32 = u32::MAX - 3;
const END_SINK: u32 = END;
const END_CLIENT: u32 = END + 1;
const END_SERVER: u32 = END + 2;
