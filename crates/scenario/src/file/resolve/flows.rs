//! Flows, workloads and cross-traffic: their ends, their routes and their buffers.

use std::sync::Arc;

use tollway_law::Time;
use tollway_law::sender::Unanswered;

use super::{Pairs, Resolver, member};
use crate::file::keys;
use crate::file::reader::Reader;
use crate::file::route;
use crate::file::value::{LimitSpec, SizesSpec, When};
use crate::import;
use crate::plan::{
    Cbr, Data, Flow, Link, LinkId, NodeId, Path, Plan, Route, Sizes, Transport, TransportId, Workload,
};

/// A section whose paths need routes.
#[derive(Clone, Debug)]
pub(super) struct RouteRequest<'a> {
    pub(super) keys: Reader<'a>,
    pub(super) pairs: Pairs,
    pub(super) target: Target,
    /// True if all traffic takes the first of several equal-cost routes.
    pub(super) first_only: bool,
}

/// The owners of routes, as indices into the plan's lists.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// `each` flows for each pair, from `first` on.
    Flows {
        first: usize,
        each: usize,
    },
    Workload(usize),
    Cbrs {
        first: usize,
    },
}

impl<'a> Resolver<'a> {
    /// Resolves flows, except their routes.
    pub(super) fn flows(&mut self) {
        const MOST: u64 = 4_000_000;
        for (name, keys) in self.top.named("flow", &keys::FLOW) {
            let transport = self.transport(&keys);
            let data = self.data(&keys);
            let Some(pairs) = self.ends("flow", name, &keys) else { continue };
            let count = keys.count("count");
            let each = count.unwrap_or(1);
            let n = u64::from(pairs.count()) * each;
            if n + self.plan.flows.len() as u64 > MOST {
                self.mistakes.add(keys.at("count"), format!("more than {MOST} flows in all"), "too many");
                return;
            }
            let first = self.plan.flows.len();
            let numbered = pairs.numbered() || count.is_some();
            let section: Arc<str> = Arc::from(name);
            let (start, stop) = (keys.when("start").unwrap_or(When::At(Time::ZERO)), keys.when("stop"));
            for i in 0..n {
                let Some((start, stop)) = self.life(&keys, name, start, stop, i, n) else { break };
                self.plan.flows.push(Flow {
                    name: member(name, numbered, i),
                    section: section.clone(),
                    path: path(pairs.of((i / each) as u32)),
                    transport,
                    start,
                    after: None,
                    stop,
                    data,
                    receive_buffer: u32::MAX,
                    send_buffer: u32::MAX,
                    shaped: None,
                });
            }
            if keys.truth("multicast") {
                self.tree(&keys, transport, first, n);
            }
            if keys.has("session") {
                self.session(&keys, transport, first, n);
            }
            let target = Target::Flows { first, each: each as usize };
            let first_only = keys.truth("multicast") || keys.has("session");
            self.requests.push(RouteRequest { keys, pairs, target, first_only });
        }
    }

    /// Resolves workloads, except their routes.
    pub(super) fn workloads(&mut self) {
        for (name, keys) in self.top.named("workload", &keys::WORKLOAD) {
            let transport = self.transport(&keys);
            let sizes = self.sizes(&keys);
            let (start, stop) = (keys.span("start"), keys.time("stop").unwrap_or(Time::NEVER));
            if stop <= start {
                let message = format!("workload `{name}` stops at {stop}, before it starts at {start}");
                self.mistakes.add(keys.at("stop"), message, "too early");
            }
            let pairs = self.ends("workload", name, &keys);
            let (Some(pairs), Some(sizes), Some(arrivals)) = (pairs, sizes, keys.arrivals("arrivals")) else {
                continue;
            };
            let max_flows = keys.count("max-flows").unwrap_or(u64::MAX);
            let span = stop.min(self.plan.duration).saturating_sub(start);
            let expected = arrivals.expected(span);
            if expected.min(max_flows as f64) > MOST_ARRIVALS {
                let message = format!(
                    "workload `{name}` would create about {expected:.0} flows; the limit is {MOST_ARRIVALS}"
                );
                self.mistakes
                    .add(keys.at("arrivals"), message, "too many")
                    .help("reduce `arrivals`, or give `max-flows`");
            }
            let target = Target::Workload(self.plan.workloads.len());
            self.plan.workloads.push(Workload {
                name: name.to_owned(),
                paths: (0..pairs.count()).map(|k| path(pairs.of(k))).collect(),
                transport,
                arrivals,
                sizes,
                start,
                stop,
                max_flows,
                receive_buffers: Vec::new(),
                send_buffers: Vec::new(),
                shaped: Vec::new(),
            });
            self.requests.push(RouteRequest { keys, pairs, target, first_only: false });
        }
    }

    /// The pairs of a section of the given `kind`: from `from` and `to`, or from `between`.
    fn ends(&mut self, kind: &str, name: &str, keys: &Reader<'a>) -> Option<Pairs> {
        let ends = ["from", "to"].into_iter().find(|key| keys.has(key));
        match (keys.has("between"), ends) {
            (true, None) => self.pairs_between(keys, name),
            (true, Some(end)) => {
                let message = format!("a {kind} has either `{end}` or `between`");
                self.mistakes.add(keys.key_at(end), message, "with `between`").help("leave out one of them");
                None
            }
            (false, _) => {
                let of_between = ["pairs", "matrix", "receivers", "senders", "share"];
                if let Some(key) = of_between.into_iter().find(|key| keys.has(key)) {
                    let message = format!("`{key}` needs `between`");
                    self.mistakes.add(keys.key_at(key), message, "no effect");
                }
                for key in ["from", "to"].into_iter().filter(|key| keys.lacks(key)) {
                    if keys.lacks("between") {
                        let message = format!("`[{kind}.{name}]` needs `{key}`");
                        self.mistakes
                            .add(keys.place(), message, format!("no `{key}`"))
                            .help("or `between`, such as `between = \"*\"`");
                    }
                }
                self.pairs(keys)
            }
        }
    }

    /// Resolves cross-traffic, except its routes.
    pub(super) fn cbrs(&mut self) {
        for (name, keys) in self.top.named("cbr", &keys::CBR) {
            let on_off = self.on_off(&keys);
            let (Some(pairs), Some(rate)) = (self.pairs(&keys), keys.rate("rate")) else { continue };
            let first = self.plan.cbrs.len();
            let section: Arc<str> = Arc::from(name);
            let (start, stop) = (keys.when("start").unwrap_or(When::At(Time::ZERO)), keys.when("stop"));
            let n = u64::from(pairs.count());
            for k in 0..pairs.count() {
                let Some((start, stop)) = self.life(&keys, name, start, stop, u64::from(k), n) else { break };
                let (from, to) = pairs.of(k);
                self.plan.cbrs.push(Cbr {
                    name: member(name, pairs.numbered(), k),
                    section: section.clone(),
                    from,
                    to,
                    route: Vec::new(),
                    rate,
                    packet_size: keys.bytes("packet-size").unwrap_or_default() as u16,
                    start,
                    stop,
                    on_off,
                    late: keys.time("late"),
                    shaped: None,
                });
            }
            let target = Target::Cbrs { first };
            self.requests.push(RouteRequest { keys, pairs, target, first_only: false });
        }
    }

    /// Lengths of the on and off periods; `None` for no off periods.
    pub(super) fn on_off(&mut self, keys: &Reader<'a>) -> Option<(Time, Time)> {
        match (keys.time("on"), keys.time("off")) {
            (Some(on), Some(off)) => Some((on, off)),
            (None, None) => None,
            (on, _) => {
                let (have, lack) = if on.is_some() { ("on", "off") } else { ("off", "on") };
                let message = format!("`{have}` needs `{lack}`");
                self.mistakes.add(keys.key_at(have), message, format!("without `{lack}`"));
                None
            }
        }
    }

    /// Start and stop of item `i` of `n`.
    pub(super) fn life(
        &mut self,
        keys: &Reader<'a>,
        name: &str,
        start: When,
        stop: Option<When>,
        i: u64,
        n: u64,
    ) -> Option<(Time, Time)> {
        let start = start.of(i, n, self.plan.seed, name);
        // Another seed, so that a random stop is independent of a random start.
        let stop = stop.map_or(Time::NEVER, |s| s.of(i, n, !self.plan.seed, name));
        if stop > start {
            return Some((start, stop));
        }
        let which = if n > 1 { format!("{name}.{}", i + 1) } else { name.to_owned() };
        let message = format!("`{which}` stops at {stop}, but starts only at {start}");
        self.mistakes.add(keys.at("stop"), message, "too early");
        None
    }

    fn data(&mut self, keys: &Reader<'a>) -> Data {
        let size = keys.bytes("size");
        let frames = keys.table("frames", &keys::FRAMES);
        if size.is_some() && frames.is_there() {
            let message = "a flow sends either `size` bytes or `frames`";
            self.mistakes.add(keys.key_at("frames"), message, "with `size`").help("leave out one of them");
        }
        match (size, frames.bytes("size")) {
            (Some(size), _) => Data::Bytes(size),
            (None, Some(size)) => Data::Frames { count: frames.count("count"), size },
            _ => Data::Endless,
        }
    }

    fn sizes(&mut self, keys: &Reader<'a>) -> Option<Sizes> {
        let (file, at) = match keys.sizes("sizes")? {
            SizesSpec::Is(sizes) => return Some(sizes),
            SizesSpec::File(file, at) => (file, at),
        };
        self.files.import(&file, at, self.mistakes, import::sizes).map(Sizes::Empirical)
    }

    /// Resolves the buffers of all flows; their routes must be known.
    pub(super) fn buffers(&mut self) {
        for request in std::mem::take(&mut self.requests) {
            let each = match request.target {
                Target::Flows { each, .. } => each,
                Target::Workload(_) => 1,
                Target::Cbrs { .. } => continue,
            };
            let (receive, send) = (request.keys.limit("receive-buffer"), request.keys.limit("send-buffer"));
            for i in 0..request.pairs.count() as usize * each {
                let (name, path, transport, bytes) = match request.target {
                    Target::Flows { first, .. } => {
                        let flow = &self.plan.flows[first + i];
                        let bytes = flow.data.bytes().map_or(f64::INFINITY, |bytes| bytes as f64);
                        (flow.name.as_str(), &flow.path, flow.transport, bytes)
                    }
                    Target::Workload(w) => {
                        let workload = &self.plan.workloads[w];
                        (
                            workload.name.as_str(),
                            &workload.paths[i],
                            workload.transport,
                            workload.sizes.mean(),
                        )
                    }
                    Target::Cbrs { .. } => break,
                };
                let [receive, send] = [receive, send].map(|limit| buffer(&self.plan, path, transport, limit));
                let least = receive.min(send);
                if least == 0 {
                    let key = if receive == 0 { "receive-buffer" } else { "send-buffer" };
                    let message = format!("`{key}` holds less than one packet");
                    self.mistakes.add(request.keys.at(key), message, "too small");
                    break;
                }
                if let Some(way) = boundless(&self.plan, path, transport, bytes, least) {
                    let message = format!(
                        "`{name}` requests unlimited feedback, and no link on its path {way} has a law \
                            that answers"
                    );
                    let label = match bytes.is_infinite() && least == u32::MAX {
                        true => "its window would grow without end",
                        false => "its window would grow to more than a million packets",
                    };
                    self.mistakes.add(request.keys.at("law"), message, label).help(
                        "give a link there the law `xcp` (for the reverse direction: in \
                        `[link.NAME.reverse]`), or the flow a `receive-buffer`",
                    );
                    break;
                }
                match request.target {
                    Target::Flows { first, .. } => {
                        let flow = &mut self.plan.flows[first + i];
                        (flow.receive_buffer, flow.send_buffer) = (receive, send);
                    }
                    Target::Workload(w) => {
                        self.plan.workloads[w].receive_buffers.push(receive);
                        self.plan.workloads[w].send_buffers.push(send);
                    }
                    Target::Cbrs { .. } => break,
                }
            }
        }
    }
}

/// The direction in which no limit holds back a flow of `bytes` bytes, if there is one.
///
/// An XCP sender receives the rate that it requests if no router reduces it. Only full buffers or
/// the end of its data stop it then.
fn boundless(
    plan: &Plan,
    path: &Path,
    transport: TransportId,
    bytes: f64,
    buffer: u32,
) -> Option<&'static str> {
    let transport = &plan.transports[transport.0 as usize];
    let about = transport.law.descriptor();
    let content = about.reads.filter(|_| about.unanswered == Unanswered::Boundless)?;
    let payload = f64::from(transport.packet_size.saturating_sub(transport.header).max(1));
    if (bytes / payload).min(f64::from(buffer)) <= MOST_WINDOW {
        return None;
    }
    let silent = |route: &[LinkId]| !plan.says(route, transport.class, content);
    if silent(path.links()) {
        Some("there")
    } else {
        (transport.both_ways && silent(path.back_links())).then_some("back")
    }
}

pub(super) fn round_trip(links: &[Link], route: &[LinkId], back: &[LinkId]) -> Time {
    route::delay(links, route).saturating_add(route::delay(links, back))
}

/// A buffer in full packets. Bytes count payload, as in TCP's buffers; a BDP is that of the path,
/// on the wire.
pub(super) fn buffer(plan: &Plan, path: &Path, transport: TransportId, spec: LimitSpec) -> u32 {
    let Transport { packet_size, header, .. } = plan.transports[transport.0 as usize];
    let packets = match spec {
        LimitSpec::Unlimited => return u32::MAX,
        LimitSpec::Packets(n) => n,
        LimitSpec::Bytes(n) => n / f64::from(packet_size.saturating_sub(header).max(1)),
        LimitSpec::Times(n) => {
            let rates = path.route.iter().map(|l| plan.links[l.0 as usize].rate.bytes_per_sec());
            let least = rates.fold(f64::INFINITY, f64::min);
            n * least * path.base_rtt.as_secs_f64() / f64::from(packet_size)
        }
    };
    // The small addend rounds a quotient just below a whole number up to it. `as` saturates.
    (packets + 1e-9) as u32
}

pub(super) fn path((from, to): (NodeId, NodeId)) -> Path {
    Path { from, to, route: Route::new(), back: Route::new(), base_rtt: Time::ZERO, spread: None }
}

/// Largest initial window, packets. On links without feedback, a window fills a queue of the same
/// size.
const MOST_WINDOW: f64 = 1e6;
/// Largest expected number of flows of a workload; each takes memory until the end.
const MOST_ARRIVALS: f64 = 1e8;
