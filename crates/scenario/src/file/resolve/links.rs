//! Links and media, and the limits of their queues.

use std::collections::HashMap;
use std::sync::Arc;

use tollway_law::link::ExchangeRate;
use tollway_law::meter::Duty;
use tollway_law::{Budget, Rate, Time};
use tollway_proto::port::{FlowQueuesConfig, Limit};
use tollway_sim::Trace;

use super::Resolver;
use crate::file::error::At;
use crate::file::keys;
use crate::file::reader::Reader;
use crate::file::value::{LimitSpec, When};
use crate::import;
use crate::plan::{
    Amount, Arithmetic, Class, ClassLaw, Codel, Direction, DualPi2, FcpRouter, Link, LinkId, LinkLaw, Medium,
    MediumId, Meter, Pie, Pricing, RcpRouter, Red, Xcp, XcpForm,
};

/// The ports of one section and direction: every second link from `first` on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports<'a> {
    first: u32,
    step: u32,
    count: u32,
    limit: LimitSpec,
    limit_at: At,
    /// Constants of the law, if it has thresholds: they may be parts of the limit.
    thresholds: Option<Reader<'a>>,
    /// They come from an imported file, of whose links many are never crossed.
    imported: bool,
}

/// What differs between a link's two directions.
struct Side<'a> {
    /// Where its law stands, and its limit.
    law_keys: Reader<'a>,
    limit_keys: Reader<'a>,
    rate: Rate,
    trace: Option<Trace>,
    delay: When,
    overhead: u32,
    capacity: Rate,
    loss: f64,
    meter: Option<Meter>,
    exchange: Option<ExchangeRate>,
    laws: Laws<'a>,
}

/// The tables with the constants of laws.
#[derive(Clone, Copy)]
struct Laws<'a> {
    xcp: Reader<'a>,
    red: Reader<'a>,
    codel: Reader<'a>,
    fq_codel: Reader<'a>,
    pie: Reader<'a>,
    dualpi2: Reader<'a>,
    step: Reader<'a>,
    fcp: Reader<'a>,
    rcp: Reader<'a>,
}

impl<'a> Laws<'a> {
    fn of(keys: &Reader<'a>) -> Laws<'a> {
        Laws {
            xcp: keys.table("xcp", &keys::XCP),
            red: keys.table("red", &keys::RED),
            codel: keys.table("codel", &keys::CODEL),
            fq_codel: keys.table("fq-codel", &keys::FQ_CODEL),
            pie: keys.table("pie", &keys::PIE),
            dualpi2: keys.table("dualpi2", &keys::DUALPI2),
            step: keys.table("step", &keys::STEP),
            fcp: keys.table("fcp", &keys::FCP),
            rcp: keys.table("rcp", &keys::RCP),
        }
    }

    /// These where they are given, others' where not.
    fn or(self, others: Laws<'a>) -> Laws<'a> {
        let or = |own: Reader<'a>, other: Reader<'a>| if own.is_there() { own } else { other };
        Laws {
            xcp: or(self.xcp, others.xcp),
            red: or(self.red, others.red),
            codel: or(self.codel, others.codel),
            fq_codel: or(self.fq_codel, others.fq_codel),
            pie: or(self.pie, others.pie),
            dualpi2: or(self.dualpi2, others.dualpi2),
            step: or(self.step, others.step),
            fcp: or(self.fcp, others.fcp),
            rcp: or(self.rcp, others.rcp),
        }
    }
}

impl<'a> Resolver<'a> {
    /// Every link, with limits yet to come.
    pub(super) fn links(&mut self) {
        let media: HashMap<&str, (MediumId, Option<Rate>)> = self
            .top
            .named("medium", &keys::MEDIUM)
            .enumerate()
            .map(|(i, (name, m))| (name, (MediumId(i as u32), m.rate("rate"))))
            .collect();
        for (name, _) in self.top.named("medium", &keys::MEDIUM) {
            self.plan.media.push(Medium { name: name.to_owned(), links: Vec::new() });
        }
        for (name, link) in self.top.named("link", &keys::LINK) {
            self.link(name, link, &media);
        }
    }

    fn link(&mut self, name: &str, keys: Reader<'a>, media: &HashMap<&str, (MediumId, Option<Rate>)>) {
        let medium = keys.text("medium").and_then(|wanted| {
            let found = media.get(wanted.as_str()).copied();
            if found.is_none() {
                self.mistakes
                    .add(keys.at("medium"), format!("there is no medium `{wanted}`"), "unknown medium")
                    .suggest(&wanted, media.keys().copied());
            }
            found
        });
        let trace = self.trace(&keys, medium.is_some());
        let rate = match &trace {
            Some(trace) => Some(trace.mean_rate()),
            None => keys.rate("rate").or(medium.and_then(|m| m.1)),
        };
        if rate.is_none() && keys.lacks("rate") && keys.lacks("trace") {
            self.mistakes.add(keys.place(), format!("`[link.{name}]` needs `rate`"), "no `rate`").help(
                "`rate` is a rate, such as \"10 Mbps\"; a medium's rate or a `trace` can stand in for it",
            );
        }
        let reverse = keys.table("reverse", &keys::REVERSE);
        let duplex = keys.truth("duplex");
        if !duplex && reverse.is_there() {
            self.mistakes
                .add(reverse.place(), format!("link `{name}` has no way back"), "of no use")
                .help("leave out this table or `duplex = false`");
        }
        for xcp in [keys.table("xcp", &keys::XCP), reverse.table("xcp", &keys::XCP)] {
            if xcp.word("shadow") != "none" && xcp.word("arithmetic") != "float" {
                self.mistakes
                    .add(xcp.at("shadow"), "a shadow runs beside floats only", "not beside these")
                    .help("leave out `arithmetic`");
            }
        }
        let Some(pairs) = self.pairs(&keys) else { return };
        let back_trace = match self.trace(&reverse, medium.is_some()) {
            None if !reverse.has("rate") => trace.clone(),
            own => own,
        };
        let Some(rate) = rate else { return };
        // Memory for what a slip of a digit asks for is not to be had.
        const MOST: usize = 8_000_000;
        if self.plan.links.len() + 2 * pairs.count() as usize > MOST {
            self.mistakes.add(
                keys.place(),
                format!("more than {MOST} directions of links in all"),
                "too many",
            );
            return;
        }
        let delay = keys.when("delay").unwrap_or(When::At(Time::ZERO));
        let overhead = keys.bytes("overhead").unwrap_or_default() as u32;
        let there = Side {
            law_keys: keys,
            limit_keys: keys,
            rate,
            trace,
            delay,
            overhead,
            capacity: keys.rate("capacity").unwrap_or(rate),
            loss: keys.number("loss"),
            meter: self.meter(&keys),
            exchange: self.exchange(&keys),
            laws: Laws::of(&keys),
        };
        let back_rate = match &back_trace {
            Some(trace) => trace.mean_rate(),
            None => reverse.rate("rate").unwrap_or(rate),
        };
        let symmetric = keys.truth("symmetric");
        let side_of = |key| if symmetric && !reverse.has(key) { keys } else { reverse };
        let back = Side {
            law_keys: side_of("law"),
            limit_keys: side_of("limit"),
            rate: back_rate,
            trace: back_trace,
            delay: reverse.when("delay").unwrap_or(delay),
            overhead: reverse.bytes("overhead").map_or(overhead, |n| n as u32),
            capacity: side_of("capacity").rate("capacity").unwrap_or(back_rate),
            loss: side_of("loss").number("loss"),
            meter: None,
            exchange: None,
            laws: Laws::of(&reverse).or(there.laws),
        };
        for law in [&there.laws.fcp, &back.laws.fcp] {
            self.newton_without_groups(law);
        }
        let first = self.plan.links.len() as u32;
        let step = if duplex { 2 } else { 1 };
        let section: Arc<str> = Arc::from(name);
        let there_law = Arc::new(there.law(&self.plan.classes));
        let back_law = Arc::new(back.law(&self.plan.classes));
        for k in 0..pairs.count() {
            let (from, to) = pairs.of(k);
            let name_k = if pairs.numbered() { format!("{name}.{}", k + 1) } else { name.to_owned() };
            let id = self.plan.links.len() as u32;
            let mut make = |side: &Side<'_>, law: &Arc<LinkLaw>, direction, full: String| {
                let (from, to, twin) = match direction {
                    Direction::Forward => (from, to, duplex.then_some(LinkId(id + 1))),
                    Direction::Reverse => (to, from, Some(LinkId(id))),
                };
                self.plan.links.push(Link {
                    name: full,
                    section: section.clone(),
                    from,
                    to,
                    direction,
                    twin,
                    rate: side.rate,
                    trace: side.trace.clone(),
                    delay: side.delay.of(u64::from(k), u64::from(pairs.count()), 0, ""),
                    overhead: side.overhead,
                    limit: Limit::NONE,
                    capacity: side.capacity,
                    law: law.clone(),
                    medium: medium.map(|m| m.0),
                    loss: side.loss,
                    meter: side.meter.map(Box::new),
                    exchange: side.exchange.map(Box::new),
                });
            };
            make(&there, &there_law, Direction::Forward, name_k.clone());
            if duplex {
                make(&back, &back_law, Direction::Reverse, format!("{name_k}.reverse"));
            }
        }
        if let Some((medium, _)) = medium {
            let all = first..self.plan.links.len() as u32;
            self.plan.media[medium.0 as usize].links.extend(all.map(LinkId));
        }
        let imported = self.files.has(keys.place());
        let mut ports = |side: &Side<'a>, law: &LinkLaw, first| {
            let thresholds = match law {
                LinkLaw::Red(_) => Some(side.laws.red),
                LinkLaw::Step(_) => Some(side.laws.step),
                _ => None,
            };
            let (limit, limit_at) = (side.limit_keys.limit("limit"), side.limit_keys.at("limit"));
            let count = pairs.count();
            self.ports.push(Ports { first, step, count, limit, limit_at, thresholds, imported });
        };
        ports(&there, &there_law, first);
        if duplex {
            ports(&back, &back_law, first + 1);
        }
    }

    /// The trace that a link or its way back replays, if any.
    fn trace(&mut self, keys: &Reader<'a>, shared: bool) -> Option<Trace> {
        let name = keys.text("trace")?;
        // What an imported edge says of its rate gives way to what is written down.
        let other = keys.has("rate") && !self.files.has(keys.at("rate"));
        if other || shared {
            let other = if shared { "a shared medium" } else { "a `rate`" };
            self.mistakes
                .add(keys.key_at("trace"), format!("a link has either a trace or {other}"), "one too many")
                .help("leave out one of them");
        }
        let trace = self.files.import(&name, keys.at("trace"), self.mistakes, import::trace)?;
        let second = Time::from_secs(1);
        self.files.note(format!(
            "{name}: {:.2} Mbps on average over {}, {:.2} Mbps in its busiest second",
            trace.mean_rate().mbps(),
            trace.period(),
            trace.peak_rate(second).mbps()
        ));
        Some(trace)
    }

    /// The meter at a link's end.
    fn meter(&mut self, link: &Reader<'a>) -> Option<Meter> {
        let keys = link.table("meter", &keys::METER);
        if !keys.is_there() {
            return None;
        }
        if !link.truth("duplex") {
            self.mistakes
                .add(
                    keys.place(),
                    "a meter watches acknowledgements too, and this link has no way back",
                    "here",
                )
                .help("leave out `duplex = false`, or put the meter on another link");
        }
        let duty = match keys.number_if("budget") {
            Some(budget) => Duty::Budget(Budget::per_sec(budget)),
            None if keys.truth("balance") => Duty::Balance,
            None => Duty::Windows,
        };
        if keys.has("budget") && keys.truth("balance") {
            let message =
                "a meter looks after a `budget`, where packets enter, or the `balance`, where they leave";
            self.mistakes
                .add(keys.key_at("balance"), message, "beside `budget`")
                .help("leave out one of them");
        }
        if link.has("medium") {
            self.mistakes
                .add(
                    keys.place(),
                    "on a shared medium a meter can't tell how long packets wait for it",
                    "here",
                )
                .help("put the meter on a link with a transmitter of its own");
        }
        if link.has("trace") {
            self.mistakes
                .add(keys.place(), "a meter reckons with the link's rate, and a trace has none", "here")
                .help("put the meter on a link with a rate");
        }
        Some(Meter {
            tolerance: keys.number("tolerance"),
            burst: keys.number("burst"),
            patience: keys.number("patience"),
            enforce: keys.truth("enforce"),
            duty,
        })
    }

    /// The border at a link's end.
    fn exchange(&mut self, link: &Reader<'a>) -> Option<ExchangeRate> {
        let keys = link.table("exchange", &keys::EXCHANGE);
        if !keys.is_there() {
            return None;
        }
        if !link.truth("duplex") {
            self.mistakes
                .add(
                    keys.place(),
                    "a border turns the prices that go back too, and this link has no way back",
                    "here",
                )
                .help("leave out `duplex = false`, or put the border on another link");
        }
        if link.has("meter") {
            self.mistakes
                .add(keys.place(), "a link's end is a border or has a meter", "beside `meter`")
                .help("put the meter on the host's own link");
        }
        match (keys.number_if("rate"), keys.number_if("weight")) {
            (Some(rate), None) => Some(ExchangeRate::Fixed(rate)),
            (None, Some(weight)) => Some(ExchangeRate::Weight(weight)),
            (rate, _) => {
                let message = match rate {
                    Some(_) => "a border has a `rate` or a `weight`, not both",
                    None => "a border needs a `rate` or a `weight`",
                };
                self.mistakes.add(keys.place(), message, "here").help("`exchange.weight = 1`, say");
                None
            }
        }
    }

    /// The limits of all queues, now that it is known what crosses them, and what hangs on them.
    pub(super) fn limits(&mut self) {
        for ports in std::mem::take(&mut self.ports) {
            for k in 0..ports.count {
                let id = LinkId(ports.first + k * ports.step);
                let rate = self.plan.links[id.0 as usize].rate;
                // Nothing waits where nothing passes: that a link is not crossed is no mistake of who imported it.
                let spec = match ports.limit {
                    LimitSpec::Times(_) if ports.imported && self.crossing(id).1 == 0 => UNCROSSED,
                    spec => spec,
                };
                let Some(limit) = self.limit(id, spec, rate, ports.limit_at) else { break };
                self.plan.links[id.0 as usize].limit = limit;
                let Some(keys) = ports.thresholds else { continue };
                let law = match *self.plan.links[id.0 as usize].law {
                    LinkLaw::Red(law) => {
                        let Some((min_threshold, max_threshold)) = self.thresholds(&keys, limit) else {
                            break;
                        };
                        LinkLaw::Red(Red { min_threshold, max_threshold, ..law })
                    }
                    LinkLaw::Step(_) => {
                        let Some(k) = self.threshold(&keys, "threshold", limit) else { break };
                        LinkLaw::Step(k)
                    }
                    _ => continue,
                };
                self.plan.links[id.0 as usize].law = Arc::new(law);
            }
        }
    }

    /// A limit in packets and bytes, for a queue before a transmitter of `rate`.
    pub(super) fn limit(&mut self, link: LinkId, spec: LimitSpec, rate: Rate, at: At) -> Option<Limit> {
        match spec {
            LimitSpec::Unlimited => Some(Limit::NONE),
            LimitSpec::Packets(n) => Some(Limit { packets: n.round() as u32, bytes: u64::MAX }),
            LimitSpec::Bytes(n) if n.round() < LEAST_LIMIT => {
                self.mistakes.add(at, "a queue that holds less than 40 B holds nothing", "too small").help(
                    "not even a bare acknowledgement fits; give the limit in packets (\"100 packets\")",
                );
                None
            }
            LimitSpec::Bytes(n) => Some(Limit { packets: u32::MAX, bytes: n.round() as u64 }),
            LimitSpec::Times(n) => {
                let (sum, flows) = self.crossing(link);
                let name = &self.plan.links[link.0 as usize].name;
                if flows == 0 {
                    let message = format!("no flow's data cross `{name}`, so it has no BDP");
                    self.mistakes
                        .add(at, message, "unknown")
                        .help("give the limit in packets (\"100 packets\") or bytes (\"64 KiB\")");
                    return None;
                }
                let rtt = sum as f64 / flows as f64 * 1e-9;
                let bytes = (n * rate.bytes_per_sec() * rtt).round() as u64;
                if (bytes as f64) < LEAST_LIMIT {
                    let message = format!("the BDP of `{name}` is {} B: its queue would hold nothing", bytes);
                    self.mistakes
                        .add(at, message, "too small")
                        .help("give the limit in packets (\"100 packets\"), or the links on the way a delay");
                    return None;
                }
                Some(Limit { packets: u32::MAX, bytes })
            }
        }
    }

    /// A threshold under a limit.
    fn threshold(&mut self, keys: &Reader<'a>, key: &str, limit: Limit) -> Option<Amount> {
        match keys.limit(key) {
            LimitSpec::Packets(n) => Some(Amount::Packets(n)),
            LimitSpec::Bytes(n) => Some(Amount::Bytes(n)),
            LimitSpec::Times(part) if limit.packets != u32::MAX => {
                Some(Amount::Packets(part * f64::from(limit.packets)))
            }
            LimitSpec::Times(part) if limit.bytes != u64::MAX => {
                Some(Amount::Bytes(part * limit.bytes as f64))
            }
            LimitSpec::Times(_) | LimitSpec::Unlimited => {
                self.mistakes
                    .add(
                        keys.at(key),
                        format!("`{key}` is a part of the limit, and there is none"),
                        "part of nothing",
                    )
                    .help("give the link a `limit`, or the threshold in packets or bytes");
                None
            }
        }
    }

    /// RED's thresholds under a limit.
    fn thresholds(&mut self, red: &Reader<'a>, limit: Limit) -> Option<(Amount, Amount)> {
        let min = self.threshold(red, "min-threshold", limit)?;
        let max = self.threshold(red, "max-threshold", limit)?;
        let message = match (min, max) {
            (Amount::Packets(a), Amount::Packets(b)) | (Amount::Bytes(a), Amount::Bytes(b)) => {
                if a < b {
                    return Some((min, max));
                }
                "`min-threshold` must be under `max-threshold`"
            }
            _ => "`min-threshold` and `max-threshold` must be both in packets or both in bytes",
        };
        self.mistakes.add(red.at("min-threshold"), message, "here");
        None
    }
}

impl<'a> Resolver<'a> {
    /// A Newton step is of the link's own price, which groups are not asked.
    fn newton_without_groups(&mut self, fcp: &Reader<'a>) {
        let grouped = self.plan.classes.iter().any(|class| matches!(class.pricing, Pricing::Group { .. }));
        if grouped && fcp.number("newton") > 0.0 {
            let message = "groups are asked for prices of their own, to which no Newton step is added";
            self.mistakes
                .add(fcp.at("newton"), message, "beside groups")
                .help("leave `newton` out, or give the classes another pricing");
        }
    }
}

impl Side<'_> {
    /// The law with its constants; thresholds are worked out later.
    fn law(&self, classes: &[Class]) -> LinkLaw {
        match self.law_keys.word("law") {
            "by-class" => {
                let none = ClassLaw { law: LinkLaw::DropTail, weight: 1.0 };
                let of = |class: &Class| ClassLaw { law: self.law_called(class.law), weight: class.weight };
                LinkLaw::ByClass(std::iter::once(none).chain(classes.iter().map(of)).collect())
            }
            word => self.law_called(word),
        }
    }

    fn law_called(&self, word: &str) -> LinkLaw {
        match word {
            "xcp" => {
                let k = &self.laws.xcp;
                LinkLaw::Xcp(Xcp {
                    alpha: k.number("alpha"),
                    beta: k.number("beta"),
                    gamma: k.number("gamma"),
                    max_interval: k.span("max-interval"),
                    min_interval: k.span("min-interval"),
                    form: match k.word("form") {
                        "window" => XcpForm::Window,
                        _ => XcpForm::Throughput,
                    },
                    arithmetic: arithmetic(k.word("arithmetic")).unwrap_or(Arithmetic::Float),
                    overhead: k.bytes("overhead").map_or(self.overhead, |n| n as u32),
                    measured: k.word("capacity") == "measured",
                    shadow: arithmetic(k.word("shadow")),
                })
            }
            "red" => {
                let k = &self.laws.red;
                LinkLaw::Red(Red {
                    min_threshold: Amount::Packets(0.0),
                    max_threshold: Amount::Packets(0.0),
                    max_probability: k.number("max-probability"),
                    weight: k.number("weight"),
                    gentle: k.truth("gentle"),
                    in_profile: k.number("in-profile"),
                })
            }
            "codel" => LinkLaw::Codel(self.codel()),
            "fq-codel" => {
                let k = &self.laws.fq_codel;
                let queues = FlowQueuesConfig {
                    queues: k.count("queues").unwrap_or(1024) as u32,
                    quantum: k.bytes("quantum").unwrap_or(1514) as u32,
                    ..Default::default()
                };
                LinkLaw::FqCodel(self.codel(), queues)
            }
            "pie" => {
                let k = &self.laws.pie;
                LinkLaw::Pie(Pie {
                    target: k.span("target"),
                    update: k.span("update"),
                    burst: k.span("burst"),
                    alpha: k.number("alpha"),
                    beta: k.number("beta"),
                    mark_limit: k.number("mark-limit"),
                })
            }
            "dualpi2" => {
                let k = &self.laws.dualpi2;
                LinkLaw::DualPi2(DualPi2 {
                    target: k.span("target"),
                    update: k.span("update"),
                    alpha: k.number("alpha"),
                    beta: k.number("beta"),
                    coupling: k.number("coupling"),
                    step: k.span("step"),
                    classic_share: k.number("classic-share"),
                })
            }
            "step" => LinkLaw::Step(Amount::Packets(0.0)),
            "fcp" => LinkLaw::Fcp(FcpRouter {
                alpha: self.laws.fcp.number("alpha"),
                window: self.laws.fcp.number("window"),
                preload_by_flow: self.laws.fcp.word("preload-span") == "flow",
                counts_unpaid: self.laws.fcp.word("unpaid") == "counts",
                target: self.laws.fcp.span("target"),
                newton: self.laws.fcp.number("newton"),
            }),
            "rcp" => LinkLaw::Rcp(RcpRouter {
                alpha: self.laws.rcp.number("alpha"),
                beta: self.laws.rcp.number("beta"),
                gamma: self.laws.rcp.number("gamma"),
                max_interval: self.laws.rcp.span("max-interval"),
            }),
            _ => LinkLaw::DropTail,
        }
    }

    fn codel(&self) -> Codel {
        let k = &self.laws.codel;
        Codel { target: k.span("target"), interval: k.span("interval") }
    }
}

fn arithmetic(word: &str) -> Option<Arithmetic> {
    match word {
        "float" => Some(Arithmetic::Float),
        "fixed32" => Some(Arithmetic::Fixed32),
        "fixed128" => Some(Arithmetic::Fixed128),
        _ => None,
    }
}

/// The limit of an imported link that no flow's data cross.
const UNCROSSED: LimitSpec = LimitSpec::Packets(1000.0);
/// Bytes of a bare acknowledgement: a queue that has no room for one holds nothing.
const LEAST_LIMIT: f64 = 40.0;
