//! Links and media, and the limits of their queues.

use std::collections::HashMap;
use std::sync::Arc;

use tollway_law::{Rate, Time};
use tollway_proto::port::{FlowQueuesConfig, Limit};

use super::Resolver;
use crate::file::error::At;
use crate::file::keys;
use crate::file::reader::Reader;
use crate::file::value::{LimitSpec, When};
use crate::plan::{
    Amount, Arithmetic, Codel, Direction, FcpRouter, Link, LinkId, LinkLaw, Medium, MediumId, Pie, RcpRouter,
    Red, Xcp, XcpForm,
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
}

/// What differs between a link's two directions.
struct Side<'a> {
    keys: Reader<'a>,
    rate: Rate,
    delay: When,
    overhead: u32,
    capacity: Rate,
    loss: f64,
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
        let rate = keys.rate("rate").or(medium.and_then(|m| m.1));
        if rate.is_none() && keys.lacks("rate") {
            self.mistakes
                .add(keys.place(), format!("`[link.{name}]` needs `rate`"), "no `rate`")
                .help("`rate` is a rate, such as \"10 Mbps\"; only a medium's rate can stand in for it");
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
        let Some(rate) = rate else { return };
        // Memory for what a slip of a digit asks for is not to be had.
        const MOST: usize = 8_000_000;
        if self.plan.links.len() + 2 * pairs.count as usize > MOST {
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
            keys,
            rate,
            delay,
            overhead,
            capacity: keys.rate("capacity").unwrap_or(rate),
            loss: keys.number("loss"),
            laws: Laws::of(&keys),
        };
        let back_rate = reverse.rate("rate").unwrap_or(rate);
        let back = Side {
            keys: reverse,
            rate: back_rate,
            delay: reverse.when("delay").unwrap_or(delay),
            overhead: reverse.bytes("overhead").map_or(overhead, |n| n as u32),
            capacity: reverse.rate("capacity").unwrap_or(back_rate),
            loss: reverse.number("loss"),
            laws: Laws::of(&reverse).or(there.laws),
        };
        let first = self.plan.links.len() as u32;
        let step = if duplex { 2 } else { 1 };
        let section: Arc<str> = Arc::from(name);
        let (there_law, back_law) = (there.law(), back.law());
        for k in 0..pairs.count {
            let (from, to) = pairs.of(k);
            let name_k = if pairs.numbered() { format!("{name}.{}", k + 1) } else { name.to_owned() };
            let id = self.plan.links.len() as u32;
            let mut make = |side: &Side<'_>, law: &LinkLaw, direction, full: String| {
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
                    delay: side.delay.of(u64::from(k), u64::from(pairs.count), 0, ""),
                    overhead: side.overhead,
                    limit: Limit::NONE,
                    capacity: side.capacity,
                    law: law.clone(),
                    medium: medium.map(|m| m.0),
                    loss: side.loss,
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
        let mut ports = |side: &Side<'a>, law: &LinkLaw, first| {
            let thresholds = match law {
                LinkLaw::Red(_) => Some(side.laws.red),
                LinkLaw::Step(_) => Some(side.laws.step),
                _ => None,
            };
            let (limit, limit_at) = (side.keys.limit("limit"), side.keys.at("limit"));
            self.ports.push(Ports { first, step, count: pairs.count, limit, limit_at, thresholds });
        };
        ports(&there, &there_law, first);
        if duplex {
            ports(&back, &back_law, first + 1);
        }
    }

    /// The limits of all queues, now that it is known what crosses them, and what hangs on them.
    pub(super) fn limits(&mut self) {
        for ports in std::mem::take(&mut self.ports) {
            for k in 0..ports.count {
                let id = LinkId(ports.first + k * ports.step);
                let rate = self.plan.links[id.0 as usize].rate;
                let Some(limit) = self.limit(id, ports.limit, rate, ports.limit_at) else { break };
                self.plan.links[id.0 as usize].limit = limit;
                let Some(keys) = ports.thresholds else { continue };
                match self.plan.links[id.0 as usize].law {
                    LinkLaw::Red(mut law) => {
                        let Some((min, max)) = self.thresholds(&keys, limit) else { break };
                        (law.min_threshold, law.max_threshold) = (min, max);
                        self.plan.links[id.0 as usize].law = LinkLaw::Red(law);
                    }
                    LinkLaw::Step(_) => {
                        let Some(k) = self.threshold(&keys, "threshold", limit) else { break };
                        self.plan.links[id.0 as usize].law = LinkLaw::Step(k);
                    }
                    _ => {}
                }
            }
        }
    }

    /// A limit in packets and bytes, for a queue before a transmitter of `rate`.
    pub(super) fn limit(&mut self, link: LinkId, spec: LimitSpec, rate: Rate, at: At) -> Option<Limit> {
        match spec {
            LimitSpec::Unlimited => Some(Limit::NONE),
            LimitSpec::Packets(n) => Some(Limit { packets: n.round() as u32, bytes: u64::MAX }),
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
                // Not even a bare acknowledgement would fit.
                if bytes < 40 {
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

impl Side<'_> {
    /// The law with its constants; thresholds are worked out later.
    fn law(&self) -> LinkLaw {
        match self.keys.word("law") {
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
            "step" => LinkLaw::Step(Amount::Packets(0.0)),
            "fcp" => LinkLaw::Fcp(FcpRouter {
                alpha: self.laws.fcp.number("alpha"),
                window: self.laws.fcp.number("window"),
                preload_by_flow: self.laws.fcp.word("preload-span") == "flow",
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
