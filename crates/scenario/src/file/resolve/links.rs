//! Links, media and queue limits.

use std::collections::HashMap;
use std::sync::Arc;

use compact_str::{CompactString, format_compact};
use tollway_law::link::{self, ExchangeRate};
use tollway_law::meter::Duty;
use tollway_law::param::{Tables, Values};
use tollway_law::{Budget, Rate, Time};
use tollway_proto::faults::{Bursts, Impairments};
use tollway_proto::port::{Limit, QUEUES, QueueEntry};
use tollway_sim::Trace;

use super::{Resolver, member};
use crate::file::error::At;
use crate::file::keys;
use crate::file::reader::Reader;
use crate::file::value::{LimitSpec, When};
use crate::import;
use crate::plan::{Class, Direction, Link, LinkId, LinkLaw, LinkSection, Medium, MediumId, Meter};

/// The ports of one section in one direction: every `step`-th link from `first` on.
#[derive(Clone)]
pub(super) struct Ports<'a> {
    first: u32,
    step: u32,
    count: u32,
    limit: LimitSpec,
    limit_at: At,
    /// Constants of the law, which are checked together with the limit.
    laws: Laws<'a>,
    /// True for an imported or generated network: many of its links carry no data.
    imported: bool,
}

/// Settings that may differ between a link's two directions.
struct Side<'a> {
    /// The readers of the direction's law and limit.
    law_keys: Reader<'a>,
    limit_keys: Reader<'a>,
    rate: Rate,
    trace: Option<Trace>,
    delay: When,
    overhead: u32,
    capacity: Rate,
    loss: f64,
    impairments: Option<Box<Impairments>>,
    meter: Option<Meter>,
    exchange: Option<ExchangeRate>,
    laws: Laws<'a>,
}

/// The tables with the constants of laws.
#[derive(Clone)]
pub(super) struct Laws<'a>(Vec<(&'static str, Reader<'a>)>);

impl<'a> Laws<'a> {
    /// The tables of `tables` in a section.
    pub(super) fn of(keys: &Reader<'a>, tables: &'static [keys::LawTable]) -> Laws<'a> {
        let mut laws = Laws(Vec::with_capacity(tables.len()));
        for law in tables {
            let reader = match law.word.rsplit_once('.') {
                Some((outer, inner)) => laws.reader(outer).unwrap_or(keys).table(inner, law.section),
                None if law.word.is_empty() => *keys,
                None => keys.table(law.word, law.section),
            };
            laws.0.push((law.word, reader));
        }
        laws
    }

    /// The place of a field's key in the law's table, or in an inner table if the field names one.
    pub(super) fn key_at(&self, word: &str, field: &str) -> Option<At> {
        let path = format!("{word}.{field}");
        let (table, field) = path.rsplit_once('.')?;
        self.reader(table).map(|reader| reader.key_at(&field.replace('_', "-")))
    }

    /// True if the law's table has a field's key.
    pub(super) fn has(&self, word: &str, field: &str) -> bool {
        self.reader(word).is_some_and(|reader| reader.has(&field.replace('_', "-")))
    }

    /// These tables; those of `others` where a table is absent.
    fn or(mut self, others: &Laws<'a>) -> Laws<'a> {
        for (own, (_, other)) in self.0.iter_mut().zip(&others.0) {
            if !own.1.is_there() {
                own.1 = *other;
            }
        }
        self
    }

    fn reader(&self, word: &str) -> Option<&Reader<'a>> {
        self.0.iter().find(|table| table.0 == word).map(|table| &table.1)
    }
}

impl Tables for Laws<'_> {
    fn table(&self, word: &str) -> &dyn Values {
        match self.reader(word) {
            Some(reader) => reader,
            None => &(),
        }
    }
}

/// The impairments of a wire, with each key from the reader that `of` returns; `None` if there are
/// none.
fn impairments<'a>(of: impl Fn(&'static str) -> Reader<'a>) -> Option<Box<Impairments>> {
    let bursts = of("bursts").table("bursts", &keys::BURSTS);
    let impairments = Impairments {
        jitter: of("jitter").span("jitter"),
        distribution: of("jitter-distribution").one_of("jitter-distribution").unwrap_or_default(),
        correlation: of("jitter-correlation").number("jitter-correlation"),
        overtakes: of("jitter-order").word("jitter-order") == "free",
        reorder: of("reorder").number("reorder"),
        reorder_delay: of("reorder-delay").span("reorder-delay"),
        duplicate: of("duplicate").number("duplicate"),
        corrupt: of("corrupt").number("corrupt"),
        bursts: bursts.is_there().then(|| Bursts {
            to_bad: bursts.number("to-bad"),
            to_good: bursts.number("to-good"),
            in_bad: bursts.number("in-bad"),
            in_good: bursts.number("in-good"),
        }),
    };
    impairments.does_anything().then(|| Box::new(impairments))
}

impl<'a> Resolver<'a> {
    /// Resolves all links, except their limits.
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

    /// Returns true if a place lies in an imported file or is a generator's key.
    fn is_made(&self, at: At) -> bool {
        let topology = self.top.table("topology", &keys::TOPOLOGY);
        let generated = |(key, _): &(&str, _)| topology.has(key) && topology.key_at(key) == at;
        self.files.has(at) || keys::GENERATORS.iter().any(generated)
    }

    fn link(&mut self, name: &str, keys: Reader<'a>, media: &HashMap<&str, (MediumId, Option<Rate>)>) {
        let medium = keys.text("medium").and_then(|wanted| {
            let found = media.get(wanted.as_str()).copied();
            if found.is_none() {
                self.unknown("medium", &wanted, keys.at("medium"));
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
                .add(reverse.place(), format!("link `{name}` has no reverse direction"), "no effect")
                .help("leave out this table or `duplex = false`");
        }
        let Some(pairs) = self.pairs(&keys) else { return };
        let back_trace = match self.trace(&reverse, medium.is_some()) {
            None if !reverse.has("rate") => trace.clone(),
            own => own,
        };
        let Some(rate) = rate else { return };
        // More would exhaust memory, and is probably a mistyped number.
        const MOST: usize = 1_000_000;
        if self.plan.links.len() + 2 * pairs.count() as usize > MOST {
            self.mistakes.add(
                keys.place(),
                format!("more than {MOST} directions of links in all"),
                "too many",
            );
            return;
        }
        let (there, back) = self.sides(keys, reverse, rate, (trace, back_trace));
        let first = self.plan.links.len() as u32;
        let step = if duplex { 2 } else { 1 };
        let section: Arc<str> = Arc::from(name);
        let shared = |side: &Side<'_>, direction| {
            let shared = side.shared(section.clone(), direction, medium.map(|m| m.0));
            (Arc::new(side.law(&self.plan.classes)), Arc::new(shared))
        };
        let there_shared = shared(&there, Direction::Forward);
        let back_shared = shared(&back, Direction::Reverse);
        for k in 0..pairs.count() {
            let (from, to) = pairs.of(k);
            let name_k = member(name, pairs.numbered(), k);
            let id = self.plan.links.len() as u32;
            let mut make =
                |side: &Side<'_>, (law, shared): &(Arc<LinkLaw>, Arc<LinkSection>), full: CompactString| {
                    let (from, to, twin) = match shared.direction {
                        Direction::Forward => (from, to, duplex.then_some(LinkId(id + 1))),
                        Direction::Reverse => (to, from, Some(LinkId(id))),
                    };
                    self.plan.links.push(Link {
                        name: full,
                        from,
                        to,
                        twin,
                        delay: side.delay.of(u64::from(k), u64::from(pairs.count()), 0, ""),
                        law: law.clone(),
                        shared: shared.clone(),
                    });
                };
            make(&there, &there_shared, name_k.clone());
            if duplex {
                make(&back, &back_shared, format_compact!("{name_k}.reverse"));
            }
        }
        if let Some((medium, _)) = medium {
            let all = first..self.plan.links.len() as u32;
            self.plan.media[medium.0 as usize].links.extend(all.map(LinkId));
        }
        let imported = self.is_made(keys.place());
        let mut ports = |side: Side<'a>, first| {
            let (limit, limit_at) = (side.limit_keys.limit("limit"), side.limit_keys.at("limit"));
            let (count, laws) = (pairs.count(), side.laws);
            self.ports.push(Ports { first, step, count, limit, limit_at, laws, imported });
        };
        ports(there, first);
        if duplex {
            ports(back, first + 1);
        }
    }

    /// Both directions of a link; `traces` are the traces of the two.
    fn sides(
        &mut self,
        keys: Reader<'a>,
        reverse: Reader<'a>,
        rate: Rate,
        (trace, back_trace): (Option<Trace>, Option<Trace>),
    ) -> (Side<'a>, Side<'a>) {
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
            impairments: impairments(|_| keys),
            meter: self.meter(&keys),
            exchange: self.exchange(&keys),
            laws: Laws::of(&keys, keys::link_laws()),
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
            impairments: impairments(side_of),
            meter: None,
            exchange: None,
            laws: Laws::of(&reverse, keys::link_laws()).or(&there.laws),
        };
        (there, back)
    }

    /// The trace that a link direction replays, if any.
    fn trace(&mut self, keys: &Reader<'a>, shared: bool) -> Option<Trace> {
        let name = keys.text("trace")?;
        // A trace overrides the rate of an imported edge or a generator.
        let other = keys.has("rate") && !self.is_made(keys.at("rate"));
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

    /// The meter at the link's far end.
    fn meter(&mut self, link: &Reader<'a>) -> Option<Meter> {
        let keys = link.table("meter", &keys::METER);
        if !keys.is_there() {
            return None;
        }
        if !link.truth("duplex") {
            self.mistakes
                .add(
                    keys.place(),
                    "a meter needs the acknowledgements, and this link has no reverse direction",
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
                "a meter checks either a `budget`, where packets enter, or the `balance`, where they leave";
            self.mistakes.add(keys.key_at("balance"), message, "with `budget`").help("leave out one of them");
        }
        if link.has("medium") {
            self.mistakes
                .add(keys.place(), "a meter cannot measure waiting times on a shared medium", "here")
                .help("put the meter on a link without a `medium`");
        }
        if link.has("trace") {
            self.mistakes
                .add(keys.place(), "a meter needs the link's rate, and a trace has no constant rate", "here")
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

    /// The border at the link's far end.
    fn exchange(&mut self, link: &Reader<'a>) -> Option<ExchangeRate> {
        let keys = link.table("exchange", &keys::EXCHANGE);
        if !keys.is_there() {
            return None;
        }
        if !link.truth("duplex") {
            self.mistakes
                .add(
                    keys.place(),
                    "a border also converts the returned prices, and this link has no reverse direction",
                    "here",
                )
                .help("leave out `duplex = false`, or put the border on another link");
        }
        if link.has("meter") {
            self.mistakes
                .add(keys.place(), "a link's end can have a meter or a border, not both", "with `meter`")
                .help("put the meter on the host's access link");
        }
        match (keys.number_if("rate"), keys.number_if("weight")) {
            (Some(rate), None) => Some(ExchangeRate::Fixed(rate)),
            (None, Some(weight)) => Some(ExchangeRate::Weight(weight)),
            (rate, _) => {
                let message = match rate {
                    Some(_) => "a border has a `rate` or a `weight`, not both",
                    None => "a border needs a `rate` or a `weight`",
                };
                self.mistakes.add(keys.place(), message, "here").help("such as `exchange.weight = 1`");
                None
            }
        }
    }

    /// Resolves the limits of all queues and the settings that depend on them; the flows across
    /// each link must be known.
    pub(super) fn limits(&mut self) {
        let classes = self.plan.pricings();
        for ports in std::mem::take(&mut self.ports) {
            let mut last = None;
            for k in 0..ports.count {
                let id = LinkId(ports.first + k * ports.step);
                let rate = self.plan.links[id.0 as usize].rate;
                // A link that no data cross needs no queue. In an imported network such a link is
                // no mistake.
                let spec = match ports.limit {
                    LimitSpec::Times(_) if ports.imported && self.crossing(id).1 == 0 => UNCROSSED,
                    spec => spec,
                };
                let Some(limit) = self.limit(id, spec, rate, ports.limit_at) else { break };
                let link = &mut self.plan.links[id.0 as usize];
                link.law = link.law.limited(limit, &mut last);
                let link = &self.plan.links[id.0 as usize];
                let misfit = link.law.check(&self.plan.placement(link, &classes, 0));
                let Err((word, misfit)) = misfit else { continue };
                let Some(keys) = ports.laws.reader(word) else { continue };
                let at = keys.at(&misfit.field.replace('_', "-"));
                let found = self.mistakes.add(at, misfit.message, misfit.label);
                if !misfit.help.is_empty() {
                    found.help(misfit.help);
                }
                break;
            }
        }
    }

    /// A limit in packets and bytes, for a queue of a transmitter with rate `rate`.
    pub(super) fn limit(&mut self, link: LinkId, spec: LimitSpec, rate: Rate, at: At) -> Option<Limit> {
        match spec {
            LimitSpec::Unlimited => Some(Limit::NONE),
            LimitSpec::Packets(n) => Some(Limit { packets: n.round() as u32, bytes: u64::MAX }),
            LimitSpec::Bytes(n) if n.round() < LEAST_LIMIT => {
                self.mistakes
                    .add(at, "a queue with a limit below 40 B can hold no packet", "too small")
                    .help("an acknowledgement alone has 40 B; give the limit in packets (\"100 packets\")");
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
                    let message =
                        format!("the BDP of `{name}` is {} B: its queue could hold no packet", bytes);
                    self.mistakes.add(at, message, "too small").help(
                        "give the limit in packets (\"100 packets\"), or the links on the path a delay",
                    );
                    return None;
                }
                Some(Limit { packets: u32::MAX, bytes })
            }
        }
    }
}

impl Side<'_> {
    /// The settings that all links of the section share in this direction.
    fn shared(&self, section: Arc<str>, direction: Direction, medium: Option<MediumId>) -> LinkSection {
        LinkSection {
            section,
            direction,
            rate: self.rate,
            trace: self.trace.clone(),
            overhead: self.overhead,
            capacity: self.capacity,
            medium,
            loss: self.loss,
            impairments: self.impairments.clone(),
            meter: self.meter.map(Box::new),
            exchange: self.exchange.map(Box::new),
        }
    }

    /// The law of this direction, with its constants.
    fn law(&self, classes: &[Class]) -> LinkLaw {
        let (word, tables) = (self.law_keys.word("law"), Given { laws: &self.laws, classes });
        match QUEUES.iter().find(|entry| entry.queue.word == word) {
            Some(QueueEntry { law, queue }) => {
                let (law, queue) = ((law.read)(&tables), Some((queue.read)(&tables)));
                LinkLaw { law, queue, limit: Limit::NONE }
            }
            None => LinkLaw::new(link::read(word, &tables), classes),
        }
    }
}

/// The tables and classes that a link's law reads.
struct Given<'a> {
    laws: &'a Laws<'a>,
    classes: &'a [Class],
}

impl Tables for Given<'_> {
    fn table(&self, word: &str) -> &dyn Values {
        self.laws.table(word)
    }

    fn classes(&self) -> Vec<(&'static str, f64)> {
        self.classes.iter().map(|class| (class.law, class.weight)).collect()
    }
}

/// Limit of an imported link that no flow's data cross.
const UNCROSSED: LimitSpec = LimitSpec::Packets(1000.0);
/// Least limit, bytes: the size of a bare acknowledgement.
const LEAST_LIMIT: f64 = 40.0;
