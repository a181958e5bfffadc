//! Flows, workloads and cross-traffic: their ends, their routes and their buffers.

use std::sync::Arc;

use tollway_law::Time;
use tollway_law::link::Pricing;
use tollway_law::sender::{CheatTimes, FcpTrick};
use tollway_law::toll::Content;
use tollway_proto::Stamp;
use tollway_proto::transport::{self as proto, FlowControl};

use super::{Pairs, Resolver};
use crate::file::keys;
use crate::file::reader::Reader;
use crate::file::route::{self, Router};
use crate::file::value::{LimitSpec, SizesSpec, When};
use crate::import;
use crate::plan::{
    Arrivals, Cbr, Cheat, Class, Data, Encoding, Fallback, FcpSender, Flow, Link, LinkId, LossDetection,
    NodeId, OnLoss, Path, Plan, Request as Ask, Rto, SenderLaw, Sizes, Transport, TransportId, Trick,
    WindowGrowth, Workload, XcpSender,
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
            let span = stop.min(self.plan.duration).saturating_sub(start).as_secs_f64();
            let expected = match arrivals {
                Arrivals::Poisson { per_sec } => span * per_sec,
                Arrivals::Every(gap) => span / gap.as_secs_f64(),
            };
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

    /// What an FCP sender does wrong on purpose.
    fn fcp_cheat(&mut self, fcp: &Reader<'a>) -> Option<(FcpTrick, CheatTimes)> {
        let keys = fcp.table("cheat", &keys::FCP_CHEAT);
        if !keys.is_there() {
            return None;
        }
        let factor = keys.number("factor");
        let trick = match keys.word("trick") {
            "understate-balance" => FcpTrick::UnderstateBalance(factor),
            "overspend" => FcpTrick::Overspend(factor),
            "over-preload" => FcpTrick::OverPreload(factor),
            "false-leave" => FcpTrick::FalseLeave(factor),
            "vanish" => FcpTrick::Vanish,
            _ => return None,
        };
        let on_off = self.on_off(&keys);
        Some((trick, CheatTimes { from: keys.span("from"), on_off }))
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
        let xcp = k.table("xcp", &keys::XCP_FLOW);
        let fcp = k.table("fcp", &keys::FCP_FLOW);
        let law = match k.word("law") {
            "rcp" => SenderLaw::Rcp,
            "fcp" => SenderLaw::Fcp(FcpSender {
                budget: fcp.number("budget"),
                initial_packets: fcp.number("initial-packets"),
                initial_always: fcp.truth("initial-always"),
                short: fcp.bytes("short").map_or(f64::INFINITY, |bytes| bytes as f64),
                max_preload: fcp.number_if("max-preload"),
                wants: fcp.rate("wants"),
                deadline: fcp.rate("deadline"),
                patience: fcp.time("patience"),
                cheat: self.fcp_cheat(&fcp),
            }),
            "cubic" => SenderLaw::Cubic,
            "dctcp" => SenderLaw::Dctcp,
            "bbr" => SenderLaw::Bbr,
            "xcp" => SenderLaw::Xcp(XcpSender {
                on_loss: if xcp.word("on-loss") == "keep" { OnLoss::Keep } else { OnLoss::Halve },
                advertise_limit: xcp.truth("advertise-limit"),
                pacing: xcp.truth("pacing"),
                request: xcp.rate("request").map_or(Ask::All, Ask::Rate),
                whole_window: xcp.truth("whole-window"),
                gain_segment: xcp.bytes("gain-segment").unwrap_or(u64::from(packet_size)) as u32,
                aging: xcp.number_if("aging"),
                every: xcp.count("every").unwrap_or(1) as u32,
                fallback: match xcp.word("fallback") {
                    "newreno" => Some(Fallback::NewReno),
                    "cubic" => Some(Fallback::Cubic),
                    _ => None,
                },
                cheat: cheat(&xcp),
            }),
            _ => SenderLaw::NewReno,
        };
        if k.has("growth-per-ack") && law != SenderLaw::NewReno {
            let message = format!("`growth-per-ack` is of the law `newreno`, not of `{}`", k.word("law"));
            self.mistakes.add(k.key_at("growth-per-ack"), message, "of no use");
        }
        let encoding = match k.word("encoding") {
            "tcp-option" => Encoding::TcpOption { integer: k.word("feedback") == "integer" },
            "draft-2" => Encoding::Draft2,
            "draft-3" => Encoding::Draft3,
            _ => Encoding::Acp,
        };
        if matches!(law, SenderLaw::Xcp(XcpSender { every: 2.., .. })) && encoding != Encoding::Acp {
            self.mistakes
                .add(
                    xcp.key_at("every"),
                    "the encoding has no word for how many packets a toll speaks for",
                    "not carried",
                )
                .help("leave `encoding` out: `acp` has one");
        }
        if matches!(law, SenderLaw::Xcp(XcpSender { fallback: Some(_), .. })) && encoding != Encoding::Acp {
            self.mistakes
                .add(
                    xcp.key_at("fallback"),
                    "the encoding has no word for how many routers a toll has met",
                    "not carried",
                )
                .help("leave `encoding` out: `acp` has one");
        }
        if matches!(law, SenderLaw::Fcp(_) | SenderLaw::Rcp) && encoding != Encoding::Acp {
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
            ("newreno", _) | ("", false) => LossDetection::NewReno,
            ("", true) if law == SenderLaw::Bbr || kernel => LossDetection::Rack,
            ("rfc6675" | "", _) => LossDetection::Rfc6675,
            _ => LossDetection::Rack,
        };
        if !sack && loss_detection != LossDetection::NewReno {
            self.mistakes
                .add(k.at("loss-detection"), "this way of finding losses needs SACK", "without SACK")
                .help("leave out `sack = false`, or choose \"newreno\"");
        }
        let repair_copies = k.count("repair-copies").unwrap_or(0) as u8;
        if repair_copies > 0 && loss_detection != LossDetection::Rack {
            self.mistakes
                .add(
                    k.key_at("repair-copies"),
                    "repairs are sent more than once with `rack` only",
                    "of no use",
                )
                .help("add `loss-detection = \"rack\"`");
        }
        // What 40 bytes of options leave beside timestamps (12) and XCP's forward (8) and return (4) options.
        let room = match (&law, encoding, both_ways) {
            (SenderLaw::Xcp(_), Encoding::TcpOption { .. }, true) => 1,
            (SenderLaw::Xcp(_), Encoding::TcpOption { .. }, false) => 2,
            _ => 3,
        };
        let rto = k.table("rto", &keys::RTO);
        let rto_at = rto.at(if rto.has("max") { "max" } else { "min" });
        let rto = Rto {
            initial: rto.span("initial"),
            min: rto.span("min"),
            max: rto.span("max"),
            granularity: rto.span("granularity"),
            backoff: rto.truth("backoff"),
            fixed: rto.time("fixed"),
        };
        if rto.min > rto.max {
            let message = format!("the timer's `min`, {}, is over its `max`, {}", rto.min, rto.max);
            self.mistakes.add(rto_at, message, "here");
        }
        let window = k.table("receive-window", &keys::RECEIVE_WINDOW);
        let packets = |key| window.count(key).unwrap_or(1) as u32;
        let window_growth = match window.word("growth") {
            "per-packet" => WindowGrowth::PerPacket { initial: packets("initial"), step: packets("step") },
            "feedback" => WindowGrowth::Feedback { initial: packets("initial") },
            _ => WindowGrowth::Whole,
        };
        let (reader, flow_control) = self.receiving(k, &law, &window);
        let dctcp = matches!(law, SenderLaw::Dctcp);
        let ecn = if k.has("ecn") { k.truth("ecn") } else { dctcp };
        if dctcp && !ecn {
            self.mistakes
                .add(
                    k.key_at("ecn"),
                    "the law `dctcp` lives on marks, and without ECN there are none",
                    "here",
                )
                .help("leave out `ecn = false`");
        }
        if ecn && law == SenderLaw::Bbr {
            self.mistakes
                .add(k.key_at("ecn"), "the law `bbr` does not answer marks, so it may not have them", "here")
                .help("leave out `ecn = true`");
        }
        let l4s = k.truth("l4s");
        if l4s && !(dctcp && ecn) {
            self.mistakes
                .add(
                    k.key_at("l4s"),
                    "L4S is for senders that answer each mark with a little less (RFC 9331 § 4.3)",
                    "here",
                )
                .help("use it with `law = \"dctcp\"`, or leave it out");
        }
        let class = self.class(k);
        let for_deadlines = self.plan.classes.get(usize::from(class).wrapping_sub(1));
        let for_deadlines =
            for_deadlines.is_some_and(|class| matches!(class.pricing, Pricing::Deadline { .. }));
        if fcp.has("deadline") != for_deadlines {
            let (at, message, help) = match for_deadlines {
                true => (
                    k.key_at("class"),
                    "at the least price a flow would send without end",
                    "say what rate it needs: `fcp = { deadline = \"10 Mbps\" }`",
                ),
                false => (
                    fcp.key_at("deadline"),
                    "a rate for a deadline is had by a class for deadlines only",
                    "give the flow a `class`, and that `pricing = \"deadline\"`",
                ),
            };
            self.mistakes.add(at, message, "here").help(help);
        }
        let priority = |class: &Class| matches!(class.pricing, Pricing::Priority { .. });
        if fcp.has("patience")
            && !self.plan.classes.get(usize::from(class).wrapping_sub(1)).is_some_and(priority)
        {
            self.mistakes
                .add(
                    fcp.key_at("patience"),
                    "a flow chooses between no class and one that goes first at a higher price",
                    "without such a class",
                )
                .help("give the flow a `class`, and that `pricing = \"priority\"`");
        }
        let initial_window = if matches!(law, SenderLaw::Xcp(_)) { 2 } else { 10 };
        if kernel && !matches!(law, SenderLaw::NewReno | SenderLaw::Cubic | SenderLaw::Dctcp | SenderLaw::Bbr)
        {
            let message = format!("the kernel's TCP has no law `{}`", k.word("law"));
            self.mistakes
                .add(k.at("transport"), message, "the kernel's")
                .help("choose newreno, cubic, dctcp or bbr, or leave `transport` out");
        }
        self.plan.transports.push(Transport {
            kernel,
            law,
            packet_size,
            header,
            ack_size: of_kernel("ack-size", 52),
            growth_per_ack: k.count("growth-per-ack").map_or(u32::MAX, |n| n as u32),
            initial_window: k.count("initial-window").map_or(initial_window, |n| n as u32),
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
        law: &SenderLaw,
        window: &Reader<'a>,
    ) -> (proto::Reader, FlowControl) {
        let reader = self.reader(k);
        let soft = k.word("flow-control") == "soft";
        if soft && !matches!(law, SenderLaw::Xcp(_)) {
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
        let class = self.plan.transports[class.0 as usize].class;
        let law = request.keys.word("law");
        let needs = match law {
            "fcp" => Content::Price,
            "rcp" => Content::Rate,
            _ => return false,
        };
        let gives = |link: &LinkId| self.plan.links[link.0 as usize].law.of_class(class).gives;
        if route.iter().any(|link| gives(link) == Some(needs)) {
            return false;
        }
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
                let (path, transport) = match request.target {
                    Target::Flows { first, .. } => {
                        let flow = &self.plan.flows[first + i];
                        (&flow.path, flow.transport)
                    }
                    Target::Workload(w) => {
                        (&self.plan.workloads[w].paths[i], self.plan.workloads[w].transport)
                    }
                    Target::Cbrs { .. } => break,
                };
                let (receive, send) =
                    (buffer(&self.plan, path, transport, receive), buffer(&self.plan, path, transport, send));
                if receive.min(send) == 0 {
                    let key = if receive == 0 { "receive-buffer" } else { "send-buffer" };
                    let message = format!("`{key}` holds less than one packet");
                    self.mistakes.add(request.keys.at(key), message, "too small");
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
                let (name, path, transport, bytes) = match request.target {
                    Target::Workload(w) => {
                        let workload = &self.plan.workloads[w];
                        (&workload.name, &workload.paths[i], workload.transport, workload.sizes.mean())
                    }
                    Target::Flows { first, .. } => {
                        let flow = &self.plan.flows[first + i];
                        let bytes = flow.data.bytes().map_or(f64::INFINITY, |bytes| bytes as f64);
                        (&flow.name, &flow.path, flow.transport, bytes)
                    }
                    Target::Cbrs { .. } => break,
                };
                let buffer = receive.min(send);
                if let Some(way) = boundless(&self.plan, path, transport, bytes, buffer) {
                    let message =
                        format!("`{name}` asks for all there is, and no link on its way {way} answers");
                    let label = match bytes.is_infinite() && buffer == u32::MAX {
                        true => "its window would grow without end",
                        false => "its window would grow to more than a million packets",
                    };
                    self.mistakes.add(request.keys.at("law"), message, label).help(
                        "give a link there the law `xcp` (for the way back: in `[link.NAME.reverse]`), or the flow a \
                         `receive-buffer`",
                    );
                    break;
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
    let asks_for_all = matches!(transport.law, SenderLaw::Xcp(XcpSender { request: Ask::All, .. }));
    let payload = f64::from(transport.packet_size.saturating_sub(transport.header).max(1));
    if !asks_for_all || (bytes / payload).min(f64::from(buffer)) <= MOST_WINDOW {
        return None;
    }
    let silent = |route: &[LinkId]| {
        let gives = |link: &LinkId| plan.links[link.0 as usize].law.of_class(transport.class).gives;
        !route.iter().any(|link| gives(link) == Some(Content::Feedback))
    };
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

fn round_trip(links: &[Link], route: &[LinkId], back: &[LinkId]) -> Time {
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

/// What an XCP sender does wrong on purpose.
fn cheat(xcp: &Reader<'_>) -> Option<Cheat> {
    let keys = xcp.table("cheat", &keys::CHEAT);
    let trick = match keys.word("trick") {
        "ignore-negative" => Trick::IgnoreNegative,
        "understate-window" => Trick::UnderstateWindow,
        "overstate-rtt" => Trick::OverstateRtt,
        "understate-rtt" => Trick::UnderstateRtt,
        _ => return None,
    };
    Some(Cheat { trick, factor: keys.number("factor"), from: keys.span("from") })
}

pub(super) fn path((from, to): (NodeId, NodeId)) -> Path {
    Path { from, to, route: Vec::new(), back: Vec::new(), base_rtt: Time::ZERO }
}

/// What an initial window has at most, packets: a larger one on links that don't answer is a queue of as many.
const MOST_WINDOW: f64 = 1e6;
/// Flows that come of a workload at most, as far as can be foreseen: each takes memory until the end.
const MOST_ARRIVALS: f64 = 1e8;
