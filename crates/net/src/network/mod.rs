//! A network of nodes that exchange real datagrams over loopback.

mod account;
#[cfg(any(test, fuzzing))]
#[path = "tests/fuzzing.rs"]
pub(crate) mod fuzzing;
#[cfg(target_os = "linux")]
mod hosts;
#[cfg(target_os = "linux")]
mod kernel_flows;
mod media;
mod part;
mod residents;
mod sealed;
mod shapers;

use std::net::SocketAddr;
#[cfg(target_os = "linux")]
use std::time::Instant;

use tollway_law::Time;
use tollway_proto::Lateness;
use tollway_proto::link::Link;
use tollway_proto::shaper::UNSHAPED;
use tollway_proto::transport::Connection;
use tollway_proto::{Cbr, Change, Encoding, Faults, Gate, OneWay};

use crate::clock::Clock;
use crate::driver::{Counters, Driver, Endpoint, Next};
use crate::emulator::LinkSpec;
use crate::error::Error;
#[cfg(target_os = "linux")]
use crate::kernel_tcp::Programs;
use crate::label::CROSS;
use crate::punctual::Punctual;
use crate::socket::Socket;
use crate::waits::Waited;
#[cfg(target_os = "linux")]
pub use hosts::WireCount;
use part::{Part, Watched};
pub use residents::RouteEnd;

/// A network in real time: nodes with UDP sockets on 127.0.0.1, emulated links, and flows.
///
/// [`new`](Network::new) and [`add_flow`](Network::add_flow) build it, and
/// [`run_until`](Network::run_until) runs it. It can be changed and read between runs. Links and
/// flows are known by their index, in the order given.
#[derive(Debug)]
pub struct Network {
    drivers: Vec<Driver>,
    /// By node: its driver, and its index there.
    nodes: Vec<Place>,
    /// By link: its driver, and its index there.
    links: Vec<Place>,
    specs: Vec<(u32, u32)>,
    /// By flow: client and server.
    flows: Vec<[Place; 2]>,
    /// Seed of the random draws.
    seed: u64,
    /// By source of cross-traffic: the source and its sink.
    sources: Vec<[Place; 2]>,
    shapers: Vec<Place>,
    machines: Vec<Place>,
    /// Links with a middle at the far end, and its gate there.
    passes: Vec<(u32, u32, Gate)>,
    /// Number of outlets of middles so far.
    stretches: u32,
    /// State for a network whose other nodes are other processes.
    part: Option<Part>,
    /// Kernel flows, and their programs.
    #[cfg(target_os = "linux")]
    programs: Vec<(u32, Programs)>,
    /// State for nodes that are namespaces.
    #[cfg(target_os = "linux")]
    hosts: Option<hosts::Hosts>,
    /// True if nodes have their own kernels.
    kernels: bool,
    /// The instant at which the run's clock showed zero.
    #[cfg(target_os = "linux")]
    began: Option<Instant>,
    /// Packets that the machine's processors had dropped before that.
    backlog_drops: Option<u64>,
    now: Time,
    started: bool,
    /// Punctuality of the thread that runs the first driver, from its first run to the run's end.
    /// The thread must not be delayed between two runs either.
    on_time: Option<Punctual>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    driver: usize,
    at: u32,
}

/// Parameters of a flow. The client opens; either side may send.
#[derive(Debug)]
pub struct FlowSpec {
    /// The machine that opens.
    pub client: Connection,
    /// The machine that answers.
    pub server: Connection,
    /// The links from client to server, at least one.
    pub forward: Vec<u32>,
    /// The links back, at least one.
    pub back: Vec<u32>,
    /// Time at which the client opens.
    pub start: Time,
    /// Time at which both sides stop; [`Time::NEVER`] for no stop.
    pub stop: Time,
    /// The encoding that quantises the toll. The toll is in ACP's header in any case.
    pub encoding: Encoding,
    /// Hash of the parameters on which both ends must agree. Two processes with different values
    /// refuse the connection.
    pub fingerprint: u32,
}

/// Lateness of the emulation.
#[derive(Clone, Debug, Default)]
pub struct Punctuality {
    /// Lateness of datagrams handed to the kernel after their virtual arrival at the next node.
    pub departures: Lateness,
    /// Lateness of transports' timers after their deadline.
    pub timeouts: Lateness,
    /// Waits of datagrams between their arrival in the kernel and their reading.
    pub waits: Lateness,
    /// Pauses of the run's only thread beyond its work and its sleep. The whole network pauses with
    /// it, so the run's clock leaves them out. With several threads there are none: such a pause
    /// counts as lateness.
    pub standstills: Lateness,
    /// The longest pause of a thread while others ran, here or in another process. The clock counts
    /// it.
    pub longest_pause: Time,
    /// Waits for a processor of the programs at the ends of kernel flows.
    pub programs: Waited,
}

/// Counters and processor time of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// Names of the nodes that it runs.
    pub nodes: Vec<String>,
    /// Processor time that it used.
    pub cpu: Time,
    /// Its counters.
    pub counters: Counters,
}

impl Network {
    /// Opens a socket for each node, and adds `links` between the nodes.
    ///
    /// The names are for messages, and `seed` is that of random losses. The nodes are spread over
    /// `threads` threads, at least one.
    ///
    /// # Errors
    /// The system refuses a socket.
    pub fn new(names: &[String], links: &[LinkSpec], seed: u64, threads: usize) -> Result<Network, Error> {
        let (nodes, members) = Network::spread(names.len(), links, threads);
        let mut drivers = Vec::new();
        for members in &members {
            let open = |&node: &usize| {
                Socket::on_loopback().map_err(|source| Error::Socket {
                    node: names[node].clone(),
                    action: "open a UDP socket on loopback",
                    source,
                })
            };
            let sockets = members.iter().map(open).collect::<Result<Vec<_>, _>>()?;
            drivers.push(Driver::new(sockets, members.iter().map(|&node| names[node].clone()).collect()));
        }
        let addrs: Vec<SocketAddr> = nodes.iter().map(|node| drivers[node.driver].addr(node.at)).collect();
        Ok(Network::lay(drivers, nodes, &addrs, links, seed))
    }

    /// Spreads nodes over threads. Returns the place of each node, and the nodes of each thread.
    fn spread(names: usize, links: &[LinkSpec], threads: usize) -> (Vec<Place>, Vec<Vec<usize>>) {
        let threads = threads.clamp(1, names.max(1));
        // The busiest nodes come first. Each goes to the thread with the fewest links so far.
        let mut load = vec![0usize; names];
        links.iter().for_each(|link| load[link.from as usize] += 1);
        let mut order: Vec<usize> = (0..names).collect();
        order.sort_by_key(|&node| std::cmp::Reverse(load[node]));
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); threads];
        let mut loads = vec![0; threads];
        let mut nodes = vec![Place { driver: 0, at: 0 }; names];
        for node in order {
            let driver = (0..threads).min_by_key(|&driver| loads[driver]).unwrap_or(0);
            loads[driver] += load[node].max(1);
            nodes[node] = Place { driver, at: members[driver].len() as u32 };
            members[driver].push(node);
        }
        (nodes, members)
    }

    /// Adds links between nodes with these places and addresses.
    fn lay(
        mut drivers: Vec<Driver>,
        nodes: Vec<Place>,
        addrs: &[SocketAddr],
        links: &[LinkSpec],
        seed: u64,
    ) -> Network {
        let mut places = Vec::new();
        for spec in links {
            let (from, to) = (nodes[spec.from as usize], nodes[spec.to as usize]);
            let (source, sink) = (addrs[spec.from as usize], addrs[spec.to as usize]);
            let link = spec.build();
            let at = drivers[from.driver].add_link(link, from.at, sink);
            places.push(Place { driver: from.driver, at });
            drivers[to.driver].add_peer(to.at, source);
        }
        Network {
            drivers,
            nodes,
            links: places,
            specs: links.iter().map(|spec| (spec.from, spec.to)).collect(),
            flows: Vec::new(),
            sources: Vec::new(),
            seed,
            shapers: Vec::new(),
            machines: Vec::new(),
            passes: Vec::new(),
            stretches: 0,
            part: None,
            #[cfg(target_os = "linux")]
            programs: Vec::new(),
            #[cfg(target_os = "linux")]
            hosts: None,
            kernels: false,
            #[cfg(target_os = "linux")]
            began: None,
            backlog_drops: None,
            now: Time::ZERO,
            started: false,
            on_time: None,
        }
    }

    /// Adds a flow, also during a run. Returns its number.
    ///
    /// # Errors
    /// [`Error::Loop`] if a route passes a node twice.
    pub fn add_flow(&mut self, spec: FlowSpec) -> Result<u32, Error> {
        self.add_flow_between(spec, [RouteEnd::Server, RouteEnd::Client])
    }

    /// Adds a flow whose routes forward and back lead to `route_ends`.
    ///
    /// # Errors
    /// As [`add_flow`](Network::add_flow).
    pub fn add_flow_between(&mut self, spec: FlowSpec, route_ends: [RouteEnd; 2]) -> Result<u32, Error> {
        let flow = self.flows.len() as u32;
        let (segment, header) = (spec.client.config().segment, spec.client.config().header);
        let ends =
            [(spec.client, &spec.forward, spec.start, true), (spec.server, &spec.back, Time::NEVER, false)];
        let mut places = [Place { driver: 0, at: 0 }; 2];
        for (i, (machine, route, open_at, client)) in ends.into_iter().enumerate() {
            let first = self.links[route[0] as usize];
            let live = self.is_here(first);
            // A client that never opens is not watched. A server is watched once a route leads to
            // it.
            let waits = client && spec.start != Time::NEVER;
            if let Some(part) = self.part.as_mut().filter(|_| live && waits) {
                part.ends.push(Watched::new(flow, client));
            }
            let driver = &mut self.drivers[first.driver];
            let at = driver.add_end(Endpoint {
                machine: Some(machine),
                flow,
                client,
                label: flow << 1 | i as u32,
                hears: flow << 1 | (1 - i) as u32,
                first: first.at,
                open_at,
                stop_at: spec.stop,
                encoding: spec.encoding,
                segment: u32::from(segment),
                header,
                heard_rtt: 0.0,
                heard: None,
                live,
                shaped: UNSHAPED,
                hosted: None,
                hears_app: false,
                keyed: false,
                #[cfg(target_os = "linux")]
                carried: None,
                done: false,
                fate: None,
                fingerprint: spec.fingerprint,
                awaited: false,
                armed: Time::NEVER,
            });
            places[i] = Place { driver: first.driver, at };
        }
        self.flows.push(places);
        for (i, route) in [&spec.forward, &spec.back].into_iter().enumerate() {
            let label = flow << 1 | i as u32;
            let next = self.at_end(flow, route_ends[i]);
            self.lead(label, route, next)?;
            for driver in &mut self.drivers {
                driver.buffers.set_encoding(label, spec.encoding);
            }
        }
        for driver in &mut self.drivers {
            let middles = driver.residents.iter_mut().filter_map(|resident| resident.machine.as_middle());
            middles.for_each(|middle| middle.on_flow(flow, u32::from(segment)));
        }
        Ok(flow)
    }

    /// Declares the data of a flow to be frames of a session. The flow must not be open yet.
    ///
    /// A switch renumbers such data, and their payload begins with their key.
    pub fn set_keyed(&mut self, flow: u32) {
        for which in 0..2 {
            self.end_mut(flow, which).keyed = true;
        }
    }

    /// Sets the next step of packets with this label at every node of a route.
    fn lead(&mut self, label: u32, route: &[u32], end: Next) -> Result<(), Error> {
        for pair in route.windows(2) {
            let next = Next::Link(self.links[pair[1] as usize].at);
            let next = self.after(pair[0], next);
            let node = self.nodes[self.specs[pair[1] as usize].0 as usize];
            self.drivers[node.driver].set_label(node.at, label, next)?;
        }
        #[cfg(target_os = "linux")]
        self.lead_in_namespaces(label, route)?;
        let node = self.end_of(route);
        let end = self.after(route[route.len() - 1], end);
        self.drivers[node.driver].set_label(node.at, label, end)
    }

    /// The node at the end of a route.
    fn end_of(&self, route: &[u32]) -> Place {
        self.nodes[self.specs[route[route.len() - 1] as usize].1 as usize]
    }

    /// Adds cross-traffic of `size` bytes per packet over the links of `route`. Returns its number.
    ///
    /// The route must have at least one link.
    ///
    /// # Errors
    /// [`Error::Loop`] if the route passes a node twice.
    pub fn add_source(&mut self, cbr: Cbr, size: u16, route: &[u32]) -> Result<u32, Error> {
        let source = self.sources.len() as u32;
        let (first, last) = (self.links[route[0] as usize], self.end_of(route));
        let sink = self.drivers[last.driver].add_sink();
        let label = CROSS | source;
        self.lead(label, route, Next::Sink(sink))?;
        let at = self.drivers[first.driver].add_source(cbr, size, label, first.at);
        let places = [Place { driver: first.driver, at }, Place { driver: last.driver, at: sink }];
        self.sources.push(places);
        Ok(source)
    }

    /// Packets sent by a source, packets that arrived, and bytes that arrived: all, and those in
    /// profile.
    pub fn read_source(&self, source: u32) -> (u64, u64, [u64; 2]) {
        let [from, to] = self.sources[source as usize];
        let sink = &self.drivers[to.driver].sinks[to.at as usize];
        (
            self.drivers[from.driver].sources[from.at as usize].sent,
            sink.packets,
            [sink.bytes, sink.in_profile],
        )
    }

    /// Delays and losses of a source, measured at its sink; `None` if another process runs one of
    /// its ends, since clocks of processes differ.
    pub fn one_way(&mut self, source: u32) -> Option<&mut OneWay> {
        let [_, to] = self.sources[source as usize];
        self.part.is_none().then(|| &mut self.drivers[to.driver].sinks[to.at as usize].one_way)
    }

    /// Sets the class of a flow's packets, including those in flight.
    pub fn set_class(&mut self, flow: u32, class: u8) {
        self.drivers.iter_mut().for_each(|driver| driver.buffers.set_class(flow, class));
    }

    /// Sets the hosts that send and receive a flow's packets.
    pub fn set_hosts(&mut self, flow: u32, hosts: [u32; 2]) {
        for label in [flow << 1, flow << 1 | 1] {
            self.drivers.iter_mut().for_each(|driver| driver.buffers.set_hosts(label, hosts));
        }
    }

    /// Sets the hosts that send and receive a source's packets.
    pub fn set_source_hosts(&mut self, source: u32, hosts: [u32; 2]) {
        self.drivers.iter_mut().for_each(|driver| driver.buffers.set_hosts(CROSS | source, hosts));
    }

    /// Retires a flow when its client is done, or both ends if `both`. Its machines then get no
    /// packets.
    pub fn retire_when_done(&mut self, flow: u32, both: bool) {
        self.end_mut(flow, 0).awaited = true;
        self.end_mut(flow, 1).awaited = both;
    }

    /// Runs in real time until the run's clock shows `end`. The clock starts with the first call.
    ///
    /// # Errors
    /// The system refuses an operation on a socket, or a node of this process sent a corrupt
    /// payload.
    pub fn run_until(&mut self, end: Time) -> Result<(), Error> {
        if !self.started {
            self.started = true;
            let clock = Clock::starting_at(self.now);
            // Other processes, and the kernel, continue while this thread stands still.
            let alone = self.drivers.len() == 1 && self.part.is_none() && !self.kernels;
            self.backlog_drops = crate::socket::backlog_drops();
            #[cfg(target_os = "linux")]
            {
                let began = Instant::now();
                self.began = Some(began);
                let begun = self.programs.iter_mut().try_for_each(|(_, programs)| programs.begin(began));
                begun.map_err(|source| Error::Namespace { action: "start a thread", source })?;
            }
            self.drivers.iter_mut().for_each(|driver| {
                driver.clock = clock;
                driver.alone = alone;
            });
        }
        let on_time = self.on_time.get_or_insert_with(Punctual::thread).is_real_time();
        let threads = self.threads();
        let Some((first, others)) = self.drivers[..threads].split_first_mut() else { return Ok(()) };
        let done = std::thread::scope(|scope| {
            let run = |driver: &mut Driver| {
                let on_time = Punctual::thread();
                driver.sleeper.real_time = on_time.is_real_time();
                driver.run_until(end)
            };
            let threads: Vec<_> = others.iter_mut().map(|driver| scope.spawn(move || run(driver))).collect();
            first.sleeper.real_time = on_time;
            let mut done = first.run_until(end);
            for thread in threads {
                let other = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                done = done.and(other);
            }
            done
        });
        self.now = end;
        #[cfg(target_os = "linux")]
        let done = done.and(self.look_at_programs());
        let done = done.and(self.retire_done());
        self.look_at_ends().and(done)
    }

    /// Retires the flows that are done.
    ///
    /// If another process has the other end, nothing is retired before the run's end: its last
    /// packets may get lost, and the machines repeat theirs.
    fn retire_done(&mut self) -> Result<(), Error> {
        if self.part.is_some() {
            return Ok(());
        }
        for driver in 0..self.drivers.len() {
            for i in 0..self.drivers[driver].done.len() {
                let (flow, client, _) = self.drivers[driver].done[i];
                let which = usize::from(!client);
                if std::mem::take(&mut self.end_mut(flow, which).awaited)
                    && !self.end_mut(flow, 1 - which).awaited
                {
                    for Place { driver, at } in self.flows[flow as usize] {
                        let driver = &mut self.drivers[driver];
                        driver.ends[at as usize].live = false;
                        driver.dismiss(at as usize, self.now)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The current time: the end of the last [`run_until`](Network::run_until).
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns true if the system gave the threads real-time priority.
    pub fn real_time(&self) -> bool {
        self.drivers[..self.threads()].iter().all(|driver| driver.sleeper.real_time)
    }

    /// The address of a node's socket.
    pub fn addr(&self, node: u32) -> SocketAddr {
        if let Some(part) = &self.part {
            return part.at[node as usize];
        }
        let place = self.nodes[node as usize];
        self.drivers[place.driver].addr(place.at)
    }

    /// Number of flows added.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Number of threads that run the nodes.
    pub fn threads(&self) -> usize {
        if self.part.is_some() { 1 } else { self.drivers.len() }
    }

    /// The client's machine of a flow.
    pub fn client(&self, flow: u32) -> &Connection {
        self.connection(flow, 0)
    }

    /// The server's machine of a flow.
    pub fn server(&self, flow: u32) -> &Connection {
        self.connection(flow, 1)
    }

    fn connection(&self, flow: u32, which: usize) -> &Connection {
        let place = self.flows[flow as usize][which];
        let machine = &self.drivers[place.driver].ends[place.at as usize].machine;
        machine.as_ref().expect("a machine is out only while `with_flow` works on it")
    }

    fn end_mut(&mut self, flow: u32, which: usize) -> &mut Endpoint {
        let place = self.flows[flow as usize][which];
        &mut self.drivers[place.driver].ends[place.at as usize]
    }

    /// Calls `work` with the flow's machines at the current time. Their packets leave with the next
    /// run.
    ///
    /// # Errors
    /// As [`run_until`](Network::run_until).
    pub fn with_flow<R>(
        &mut self,
        flow: u32,
        work: impl FnOnce(&mut Connection, &mut Connection) -> R,
    ) -> Result<R, Error> {
        let (client, server) = (self.end_mut(flow, 0).machine.take(), self.end_mut(flow, 1).machine.take());
        let (mut client, mut server) = client.zip(server).expect("nobody else works on the flow");
        let answer = work(&mut client, &mut server);
        self.end_mut(flow, 0).machine = Some(client);
        self.end_mut(flow, 1).machine = Some(server);
        let now = self.now;
        for place in self.flows[flow as usize] {
            self.drivers[place.driver].pump(place.at as usize, now)?;
        }
        Ok(answer)
    }

    /// The ends of flows that completed since the last call: flow, true for the client, time.
    pub fn drain_done(&mut self) -> Vec<(u32, bool, Time)> {
        self.drivers.iter_mut().flat_map(|driver| driver.done.drain(..)).collect()
    }

    /// Calls `work` with a link direction that is advanced to the current time.
    pub fn with_link<R>(&mut self, link: u32, work: impl FnOnce(&mut Link, Time) -> R) -> R {
        self.touch(link, |link, now, buffers| {
            link.catch_up(now, buffers);
            work(link, now)
        })
    }

    /// Changes a link direction at the current time.
    pub fn change(&mut self, link: u32, change: Change) {
        let seed = self.seed;
        self.touch(link, |changed, now, buffers| {
            changed.change(now, change, buffers, || Faults::new(seed, link))
        });
    }

    fn touch<R>(
        &mut self,
        link: u32,
        work: impl FnOnce(&mut Link, Time, &mut crate::buffers::Buffers) -> R,
    ) -> R {
        let place = self.links[link as usize];
        let (driver, at) = (&mut self.drivers[place.driver], place.at as usize);
        driver.catch_up_medium(at, self.now);
        let answer = work(&mut driver.links[at].link, self.now, &mut driver.buffers);
        driver.resume_medium(at, self.now);
        driver.arm_link(at);
        self.tell_entry(link);
        answer
    }
}

/// Limit of checks, 10 ms apart, for datagrams that are still in the kernel at a run's end.
const LOOKS: u32 = 100;
/// Limit of datagrams in a train (`UDP_MAX_SEGMENTS`).
const TRAIN: u64 = 128;
