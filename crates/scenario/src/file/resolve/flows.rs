//! Flows, workloads and cross-traffic: their ends, their routes and their buffers.

use std::sync::Arc;

use tollway_law::Time;
use tollway_law::link::Pricing;
use tollway_law::sender::{self, Descriptor, Ecn, Sending, Unanswered};
use tollway_law::toll::Content;
use tollway_proto::Stamp;
use tollway_proto::encoding::Feedback;
use tollway_proto::encoding::draft20::Version;
use tollway_proto::transport::{self as proto, FlowControl};

use super::links::Laws;
use super::{Pairs, Resolver};
use crate::file::keys;
use crate::file::reader::Reader;
use crate::file::route::{self, Router};
use crate::file::value::{LimitSpec, SizesSpec, When};
use crate::import;
use crate::plan::{
    Cbr, Data, Detection, Encoding, Flow, Link, LinkId, NodeId, Path, Plan, Rto, SenderLaw, Sizes, Transport,
    TransportId, WindowGrowth, Workload, laws_that,
};

/// A section whose paths wait for routes.
#[derive(Clone, Debug)]
pub(super) struct Request<'a> {
    pub(super) keys: Reader<'a>,
    pub(super) pairs: Pairs,
    pub(super) target: Target,
}

/// Whose routes they are: indices into the plan's lists.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// So many flows for each pair, from this one on.
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
    /// Flows known beforehand, without their routes.
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
                    name: if numbered { format!("{name}.{}", i + 1) } else { name.to_owned() },
                    section: section.clone(),
                    path: path(pairs.of((i / each) as u32)),
                    transport,
                    start,
                    stop,
                    data,
                    receive_buffer: u32::MAX,
                    send_buffer: u32::MAX,
                    gate: None,
                });
            }
            if keys.truth("multicast") {
                self.tree(&keys, transport, first, n);
            }
            if keys.has("session") {
                self.session(&keys, transport, first, n);
            }
            let target = Target::Flows { first, each: each as usize };
            self.requests.push(Request { keys, pairs, target });
        }
    }

    /// Flows that come by chance, without their routes.
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
                    "workload `{name}` would bring some {expected:.0} flows; there can be {MOST_ARRIVALS}"
                );
                self.mistakes
                    .add(keys.at("arrivals"), message, "too many")
                    .help("let fewer come, or give `max-flows`");
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
                gates: Vec::new(),
            });
            self.requests.push(Request { keys, pairs, target });
        }
    }

    /// The pairs of a flow or workload, as `kind` says: `from` and `to`, or `between`.
    fn ends(&mut self, kind: &str, name: &str, keys: &Reader<'a>) -> Option<Pairs> {
        let ends = ["from", "to"].into_iter().find(|key| keys.has(key));
        match (keys.has("between"), ends) {
            (true, None) => self.pairs_between(keys, name),
            (true, Some(end)) => {
                let message = format!("a {kind} has either `{end}` or `between`");
                self.mistakes
                    .add(keys.key_at(end), message, "beside `between`")
                    .help("leave out one of them");
                None
            }
            (false, _) => {
                if keys.has("pairs") {
                    let message = "`pairs` are drawn from what is `between`";
                    self.mistakes.add(keys.key_at("pairs"), message, "of no use");
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

    /// Cross-traffic, without its routes.
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
                    name: if pairs.numbered() { format!("{name}.{}", k + 1) } else { name.to_owned() },
                    section: section.clone(),
                    from,
                    to,
                    route: Vec::new(),
                    rate,
                    packet_size: keys.bytes("packet-size").unwrap_or_default() as u16,
                    start,
                    stop,
                    on_off,
                    gate: None,
                });
            }
            self.requests.push(Request { keys, pairs, target: Target::Cbrs { first } });
        }
    }

    /// How long something lasts and pauses, by turns; `None` if it lasts.
    pub(super) fn on_off(&mut self, keys: &Reader<'a>) -> Option<(Time, Time)> {
        match (keys.time("on"), keys.time("off")) {
            (Some(on), Some(off)) => Some((on, off)),
            (None, None) => None,
            (on, _) => {
                let (have, lack) = if on.is_some() { ("on", "off") } else { ("off", "on") };
                let message = format!("`{have}` needs `{lack}` beside it");
                self.mistakes.add(keys.key_at(have), message, format!("without `{lack}`"));
                None
            }
        }
    }

    /// When number `i` of `n` starts and stops.
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
        // Another seed, or a random stop would be the random start again.
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
            self.mistakes.add(keys.key_at("frames"), message, "beside `size`").help("leave out one of them");
        }
        match (size, frames.bytes("size")) {
            (Some(size), _) => Data::Bytes(size),
            (None, Some(size)) => Data::Frames { count: frames.count("count"), size },
            _ => Data::Endless,
        }
    }

    pub(super) fn transport(&mut self, k: &Reader<'a>) -> TransportId {
        let id = TransportId(self.plan.transports.len() as u32);
        let size = |key| k.bytes(key).unwrap_or_default() as u16;
        let kernel = k.word("transport") == "kernel";
        // IP's header, TCP's, and the option with timestamps that Linux has in every packet.
        let of_kernel = |key, usual| if kernel && k.lacks(key) { usual } else { size(key) };
        let (packet_size, header) = (size("packet-size"), of_kernel("header", 52));
        if header >= packet_size {
            let at = k.at(if k.has("header") { "header" } else { "packet-size" });
            let message = format!("a header of {header} B leaves no room for data in {packet_size} B");
            self.mistakes.add(at, message, "no room").help("`header` is part of `packet-size`");
        }
        let tables = Laws::of(k, keys::sender_laws());
        let law = self.sender(k, &tables);
        let about = law.descriptor();
        let encoding = match k.word("encoding") {
            "tcp-option" => Encoding::TcpOption {
                feedback: if k.word("feedback") == "integer" { Feedback::Integer } else { Feedback::Split },
            },
            "draft-2" => Encoding::Draft20 { version: Version::V2 },
            "draft-3" => Encoding::Draft20 { version: Version::V3 },
            _ => Encoding::Acp,
        };
        if matches!(about.reads, Some(Content::Price | Content::Rate)) && encoding.xcp_only() {
            let message = format!("the law `{}` needs a header that XCP's has no room for", k.word("law"));
            self.mistakes
                .add(k.at("encoding"), message, "XCP's header")
                .help("leave out `encoding`, or choose \"acp\"");
        }
        if k.has("feedback") && !matches!(encoding, Encoding::TcpOption { .. }) {
            self.mistakes
                .add(k.key_at("feedback"), "`feedback` is of the encoding `tcp-option` only", "of no use")
                .help("add `encoding = \"tcp-option\"`");
        }
        let (sack, both_ways) = (k.truth("sack"), k.truth("both-ways"));
        if !sack && k.has("sack-blocks") {
            let message = "`sack-blocks` means nothing without SACK";
            self.mistakes.add(k.key_at("sack-blocks"), message, "of no use");
        }
        let loss_detection = match (k.word("loss-detection"), sack) {
            ("newreno", _) | ("", false) => Detection::NewReno,
            ("", true) if about.rack || kernel => RACK,
            ("rfc6675" | "", _) => Detection::Rfc6675,
            _ => RACK,
        };
        if !sack && loss_detection != Detection::NewReno {
            self.mistakes
                .add(k.at("loss-detection"), "this way of finding losses needs SACK", "without SACK")
                .help("leave out `sack = false`, or choose \"newreno\"");
        }
        let repair_copies = k.count("repair-copies").unwrap_or(0) as u8;
        if repair_copies > 0 && loss_detection != RACK {
            self.mistakes
                .add(
                    k.key_at("repair-copies"),
                    "repairs are sent more than once with `rack` only",
                    "of no use",
                )
                .help("add `loss-detection = \"rack\"`");
        }
        // What 40 bytes of options leave beside timestamps (12) and XCP's forward (8) and return (4) options.
        let room = match (about.reads, encoding, both_ways) {
            (Some(Content::Feedback), Encoding::TcpOption { .. }, true) => 1,
            (Some(Content::Feedback), Encoding::TcpOption { .. }, false) => 2,
            _ => 3,
        };
        let rto = k.table("rto", &keys::RTO);
        let rto_at = rto.at(if rto.has("max") { "max" } else { "min" });
        let fixed = rto.time("fixed");
        let rto = Rto {
            initial: rto.span("initial"),
            min: rto.span("min"),
            max: rto.span("max"),
            granularity: rto.span("granularity"),
            backoff: rto.truth("backoff"),
        };
        if rto.min > rto.max {
            let message = format!("the timer's `min`, {}, is over its `max`, {}", rto.min, rto.max);
            self.mistakes.add(rto_at, message, "here");
        }
        let always = |time| Rto { initial: time, min: time, max: time, backoff: false, ..rto };
        let rto = fixed.map_or(rto, always);
        let window = k.table("receive-window", &keys::RECEIVE_WINDOW);
        let packets = |key| window.count(key).unwrap_or(1) as u32;
        let window_growth = match window.word("growth") {
            "per-packet" => WindowGrowth::PerPacket { initial: packets("initial"), step: packets("step") },
            "feedback" => WindowGrowth::Feedback { initial: packets("initial") },
            _ => WindowGrowth::Whole,
        };
        let (reader, flow_control) = self.receiving(k, &about, &window);
        let (ecn, l4s) = self.marks(k, &about);
        let class = self.class(k);
        let pricing = self.plan.pricing(class);
        let deadline = about.spends.and_then(|spends| spends.deadline);
        if matches!(pricing, Pricing::Deadline { .. }) && deadline.is_none() {
            let message = "at the least price a flow would send without end";
            self.mistakes
                .add(k.key_at("class"), message, "here")
                .help("say what rate it needs: `fcp = { deadline = \"10 Mbps\" }`");
        }
        let initial_window =
            k.count("initial-window").map_or(about.initial_window.unwrap_or(10), |n| n as u32);
        let sending = Sending {
            segment: packet_size,
            whole_toll: !encoding.xcp_only(),
            pricing,
            ..Sending::of(f64::from(initial_window))
        };
        if let Err(misfit) = law.check(&sending) {
            let at = tables.key_at(law.word(), misfit.field).unwrap_or(k.place());
            let found = self.mistakes.add(at, misfit.message, misfit.label);
            if !misfit.help.is_empty() {
                found.help(misfit.help);
            }
        }
        if kernel && about.kernel.is_none() {
            let message = format!("the kernel's TCP has no law `{}`", k.word("law"));
            let laws = laws_that(|law| law.kernel.is_some());
            self.mistakes
                .add(k.at("transport"), message, "the kernel's")
                .help(format!("choose {laws}, or leave `transport` out"));
        }
        self.plan.transports.push(Transport {
            kernel,
            law,
            packet_size,
            header,
            ack_size: of_kernel("ack-size", 52),
            initial_window,
            sack_blocks: if sack { k.count("sack-blocks").unwrap_or(room) as u8 } else { 0 },
            loss_detection,
            repair_copies,
            delayed_ack: k.time("delayed-ack"),
            handshake: k.truth("handshake"),
            encoding,
            both_ways,
            ecn,
            l4s,
            window_growth,
            reader,
            flow_control,
            rto,
            class,
            weight: k.number("weight"),
        });
        id
    }

    /// The pace of the receiver's application, and the receiver's flow control.
    fn receiving(
        &mut self,
        k: &Reader<'a>,
        about: &Descriptor,
        window: &Reader<'a>,
    ) -> (proto::Reader, FlowControl) {
        let reader = self.reader(k);
        let soft = k.word("flow-control") == "soft";
        if soft && about.reads != Some(Content::Feedback) {
            let message = format!(
                "soft flow control speaks by XCP's feedback, which `{}` does not hear",
                k.word("law")
            );
            self.mistakes
                .add(k.at("flow-control"), message, "not heard")
                .help("use it with `law = \"xcp\"`, or leave it out");
        }
        if soft && k.lacks("receive-buffer") {
            self.mistakes
                .add(k.at("flow-control"), "soft flow control finds the rate of a buffer", "without a buffer")
                .help("add `receive-buffer`, such as \"200 KiB\"");
        }
        let key = if soft { "flow-control" } else { "reader" };
        if (soft || k.has("reader")) && window.has("growth") && window.word("growth") != "whole" {
            let message =
                format!("a window that grows does not go with `{key}`: the room left is what counts");
            self.mistakes.add(window.at("growth"), message, "here").help("leave out one of them");
        }
        if (soft || k.has("reader")) && k.word("transport") == "kernel" {
            let message = format!("`{key}` is of Tollway's receivers, and this one is the kernel's");
            self.mistakes.add(k.key_at(key), message, "of no use").help("leave out `transport = \"kernel\"`");
        }
        (reader, if soft { FlowControl::Soft } else { FlowControl::Credit })
    }

    /// How an application reads, by the table `reader` of a section.
    pub(super) fn reader(&mut self, keys: &Reader<'a>) -> proto::Reader {
        let keys = keys.table("reader", &keys::READER);
        let every = keys.span("every");
        match (keys.time("then"), keys.time("period")) {
            (None, None) if every == Time::ZERO => proto::Reader::AtOnce,
            (None, None) => proto::Reader::Every(every),
            (Some(second), Some(period)) => proto::Reader::Wave { first: every, second, period },
            (then, _) => {
                let (have, lack) = if then.is_some() { ("then", "period") } else { ("period", "then") };
                let message = format!("`{have}` needs `{lack}` beside it");
                self.mistakes.add(keys.key_at(have), message, format!("without `{lack}`"));
                proto::Reader::AtOnce
            }
        }
    }

    /// The sender's law with its constants.
    fn sender(&mut self, k: &Reader<'a>, tables: &Laws<'a>) -> SenderLaw {
        let word = k.word("law");
        // What is no law has been reported.
        let entry = sender::LAWS.iter().find(|law| law.word == word).unwrap_or(&sender::LAWS[0]);
        for other in sender::LAWS.iter().filter(|other| other.word != entry.word) {
            let beside = other.tables.iter().filter(|table| table.word.is_empty());
            for param in beside.flat_map(|table| (table.params)()) {
                let key = param.field.replace('_', "-");
                if k.has(&key) {
                    let message = format!("`{key}` is of the law `{}`, not of `{word}`", other.word);
                    self.mistakes.add(k.key_at(&key), message, "of no use");
                }
            }
        }
        SenderLaw((entry.read)(tables))
    }

    /// Whether packets may be marked, and say that their sender is scalable.
    fn marks(&mut self, k: &Reader<'a>, about: &Descriptor) -> (bool, bool) {
        let (law, needs) = (k.word("law"), about.ecn == Ecn::Needs);
        let ecn = if k.has("ecn") { k.truth("ecn") } else { needs };
        if needs && !ecn {
            let message = format!("the law `{law}` lives on marks, and without ECN there are none");
            self.mistakes.add(k.key_at("ecn"), message, "here").help("leave out `ecn = false`");
        }
        if ecn && about.ecn == Ecn::Refuses {
            let message = format!("the law `{law}` does not answer marks, so it may not have them");
            self.mistakes.add(k.key_at("ecn"), message, "here").help("leave out `ecn = true`");
        }
        let l4s = k.truth("l4s");
        if l4s && !(about.l4s && ecn) {
            let laws = laws_that(|law| law.l4s);
            self.mistakes
                .add(
                    k.key_at("l4s"),
                    "L4S is for senders that answer each mark with a little less (RFC 9331 § 4.3)",
                    "here",
                )
                .help(format!("use it with `law = \"{laws}\"`, or leave it out"));
        }
        (ecn, l4s)
    }

    fn sizes(&mut self, keys: &Reader<'a>) -> Option<Sizes> {
        let (file, at) = match keys.sizes("sizes")? {
            SizesSpec::Is(sizes) => return Some(sizes),
            SizesSpec::File(file, at) => (file, at),
        };
        self.files.import(&file, at, self.mistakes, import::sizes).map(Sizes::Empirical)
    }

    /// Finds every route.
    pub(super) fn routes(&mut self) {
        let mut wanted = Vec::new();
        for request in &self.requests {
            for k in 0..request.pairs.count() {
                let (from, to) = request.pairs.of(k);
                wanted.extend([(from, to), (to, from)]);
            }
        }
        let mut routes = Router::new(self.plan.nodes.len(), &self.plan.links).routes(&wanted);
        let mut next = 0;
        for request in std::mem::take(&mut self.requests) {
            for k in 0..request.pairs.count() as usize {
                let (route, back) =
                    (std::mem::take(&mut routes[next]), std::mem::take(&mut routes[next + 1]));
                let pair = wanted[next];
                let one_way = matches!(request.target, Target::Cbrs { .. });
                if route.is_empty() || (back.is_empty() && !one_way) {
                    self.unreachable(&request.keys, if route.is_empty() { pair } else { (pair.1, pair.0) });
                    next += 2 * (request.pairs.count() as usize - k);
                    break;
                }
                next += 2;
                if self.unheard(&request, &route, pair)
                    || !one_way && self.too_far(&request, &route, &back, pair)
                {
                    next += 2 * (request.pairs.count() as usize - k - 1);
                    break;
                }
                request.target.give(&mut self.plan, k, route, back);
            }
            // Kept for the buffers, which depend on the routes.
            self.requests.push(request);
        }
    }

    /// Whether a flow of a law that lives on what links say would have none to say it.
    fn unheard(&mut self, request: &Request<'a>, route: &[LinkId], (from, to): (NodeId, NodeId)) -> bool {
        let class = match request.target {
            Target::Flows { first, .. } => self.plan.flows[first].transport,
            Target::Workload(w) => self.plan.workloads[w].transport,
            Target::Cbrs { .. } => return false,
        };
        let transport = &self.plan.transports[class.0 as usize];
        let about = transport.law.descriptor();
        let answers = about.reads.is_some_and(|content| self.plan.says(route, transport.class, content));
        if about.unanswered != Unanswered::Mute || answers {
            return false;
        }
        let law = transport.law.word();
        let name = |n: NodeId| &self.plan.nodes[n.0 as usize].name;
        let (from, to) = (name(from), name(to));
        let message = format!("no link from `{from}` to `{to}` has the law `{law}`, which these flows go by");
        self.mistakes
            .add(request.keys.at("law"), message, "nobody tells them")
            .help(format!("give the links that can be the bottleneck `law = \"{law}\"`"));
        true
    }

    /// Whether a round trip takes longer than a flow can time it.
    fn too_far(
        &mut self,
        request: &Request<'a>,
        route: &[LinkId],
        back: &[LinkId],
        (from, to): (NodeId, NodeId),
    ) -> bool {
        let rtt = round_trip(&self.plan.links, route, back);
        if rtt < Stamp::REACH {
            return false;
        }
        let name = |n: NodeId| &self.plan.nodes[n.0 as usize].name;
        let message = format!(
            "from `{}` to `{}` and back takes {rtt}, more than a sender can time: at most {}",
            name(from),
            name(to),
            Stamp::REACH
        );
        self.mistakes
            .add(request.keys.at("to"), message, "too far away")
            .help("shorten the `delay` of the links on the way");
        true
    }

    fn unreachable(&mut self, keys: &Reader<'a>, (from, to): (NodeId, NodeId)) {
        let name = |n: NodeId| &self.plan.nodes[n.0 as usize].name;
        let message = format!("there is no way from `{}` to `{}`", name(from), name(to));
        let links = self.plan.links.iter();
        let lonely = [from, to]
            .into_iter()
            .find(|&n| !links.clone().any(|l| l.from == n || l.to == n))
            .map(|n| format!("no link begins or ends at `{}`", name(n)));
        let found = self.mistakes.add(keys.at("to"), message, "unreachable");
        found
            .help(lonely.unwrap_or_else(|| "a `[link.NAME]` is missing, or one has `duplex = false`".into()));
    }

    /// The buffers of all flows, now that their routes are known.
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
                        (&flow.name, &flow.path, flow.transport, bytes)
                    }
                    Target::Workload(w) => {
                        let workload = &self.plan.workloads[w];
                        (&workload.name, &workload.paths[i], workload.transport, workload.sizes.mean())
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
                    let message =
                        format!("`{name}` asks for all there is, and no link on its way {way} answers");
                    let label = match bytes.is_infinite() && least == u32::MAX {
                        true => "its window would grow without end",
                        false => "its window would grow to more than a million packets",
                    };
                    self.mistakes.add(request.keys.at("law"), message, label).help(
                        "give a link there the law `xcp` (for the way back: in `[link.NAME.reverse]`), or the flow a \
                         `receive-buffer`",
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

/// The way on which nothing would ever hold back flows of so many bytes: an XCP sender takes what it asked for if no router takes
/// anything off it, until its buffers are full or its data at an end.
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
    if silent(&path.route) {
        Some("there")
    } else {
        (transport.both_ways && silent(&path.back)).then_some("back")
    }
}

impl Target {
    /// Hands pair `k` its routes.
    fn give(self, plan: &mut Plan, k: usize, route: Vec<LinkId>, back: Vec<LinkId>) {
        let rtt = round_trip(&plan.links, &route, &back);
        match self {
            Target::Flows { first, each } => {
                for flow in plan.flows.iter_mut().skip(first + k * each).take(each) {
                    flow.path.route.clone_from(&route);
                    flow.path.back.clone_from(&back);
                    flow.path.base_rtt = rtt;
                }
            }
            Target::Workload(w) => {
                let path = &mut plan.workloads[w].paths[k];
                (path.route, path.back, path.base_rtt) = (route, back, rtt);
            }
            Target::Cbrs { first } => plan.cbrs[first + k].route = route,
        }
    }
}

pub(super) fn round_trip(links: &[Link], route: &[LinkId], back: &[LinkId]) -> Time {
    route::delay(links, route).saturating_add(route::delay(links, back))
}

/// A buffer in full packets: bytes of it hold payload, as TCP's buffers do; its BDP is that of the path, on the wire.
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
    // A quotient that is whole but for its last bit is whole; `as` saturates.
    (packets + 1e-9) as u32
}

pub(super) fn path((from, to): (NodeId, NodeId)) -> Path {
    Path { from, to, route: Vec::new(), back: Vec::new(), base_rtt: Time::ZERO }
}

/// A probe goes after the last segment of a burst.
const RACK: Detection = Detection::Rack { tail_probe: true };
/// What an initial window has at most, packets: a larger one on links that don't answer is a queue of as many.
const MOST_WINDOW: f64 = 1e6;
/// Flows that come of a workload at most, as far as can be foreseen: each takes memory until the end.
const MOST_ARRIVALS: f64 = 1e8;
