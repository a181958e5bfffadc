//! Resolution of a checked tree into a [`Plan`]: names become indices, groups members, defaults
//! values.

mod after;
mod aggregates;
mod classes;
mod events;
mod flows;
mod hosts;
mod idle;
mod links;
mod machines;
mod matrix;
mod overlay;
mod routes;
mod switches;
mod transports;
mod trees;

pub use aggregates::policy;

use std::collections::HashMap;
use std::rc::Rc;

use compact_str::{CompactString, format_compact};
use tollway_law::Time;

use super::error::{At, Mistakes};
use super::files::Files;
use super::keys;
use super::reader::Reader;
use super::value::When;
use crate::import::word;
use crate::plan::{LinkId, Measure, Node, NodeId, Plan, TransportId};

/// Resolves the scenario under `top`; `files` reads files that it names. `None`, with at least one
/// mistake, if the scenario cannot be resolved.
pub(crate) fn resolve(
    top: Reader<'_>,
    variant: Option<&str>,
    files: &mut Files,
    mistakes: &mut Mistakes,
) -> Option<Plan> {
    let measure = top.table("measure", &keys::MEASURE);
    let name = top.text("name").unwrap_or_default();
    let plan = Plan {
        title: top.text("title").unwrap_or_else(|| name.clone()),
        name,
        source: top.text("source"),
        description: top.text("description"),
        variant: variant.map(str::to_owned),
        duration: top.span("duration"),
        seed: top.count("seed").unwrap_or_default(),
        measure: Measure { interval: measure.time("interval"), warmup: measure.span("warmup") },
        ..Plan::default()
    };
    if plan.duration > Time::ZERO && plan.measure.warmup >= plan.duration {
        let message = format!("the warm-up ends after the run, which takes {}", plan.duration);
        mistakes.add(measure.at("warmup"), message, "too long");
    }
    let mut r = Resolver {
        top,
        files,
        mistakes,
        plan,
        groups: HashMap::new(),
        ports: Vec::new(),
        requests: Vec::new(),
        hop_links: Vec::new(),
        crossing: None,
        trees: Vec::new(),
        sessions: Vec::new(),
    };
    r.nodes();
    r.classes();
    r.links();
    r.switches();
    r.flows();
    r.after();
    r.hops();
    r.workloads();
    r.cbrs();
    r.hosts();
    // Routes over an incomplete network would only add misleading mistakes.
    if !r.mistakes.is_empty() {
        return None;
    }
    r.routing();
    r.routes();
    r.hop_routes();
    r.trees();
    r.sessions();
    r.overlay();
    r.machines();
    if !r.mistakes.is_empty() {
        return None;
    }
    r.buffers();
    r.aggregates();
    r.owned();
    r.limits();
    r.changes();
    r.losses();
    r.rows();
    r.late();
    r.idle();
    // These lists last as long as the run.
    r.plan.nodes.shrink_to_fit();
    r.plan.links.shrink_to_fit();
    r.plan.flows.shrink_to_fit();
    r.mistakes.is_empty().then_some(r.plan)
}

/// A resolution in progress.
struct Resolver<'a> {
    top: Reader<'a>,
    files: &'a mut Files,
    mistakes: &'a mut Mistakes,
    plan: Plan,
    groups: HashMap<&'a str, Group>,
    /// Ports whose limits depend on routes.
    ports: Vec<links::Ports<'a>>,
    /// Sections whose paths need routes.
    requests: Vec<flows::RouteRequest<'a>>,
    /// Flows that are hops over one link.
    hop_links: Vec<(usize, LinkId)>,
    /// The places in the file of the plan's trees.
    trees: Vec<At>,
    /// The switch pattern of each of the plan's sessions, and its place.
    sessions: Vec<(String, At)>,
    /// Sum and number of the base RTTs of the flows whose data cross each link; computed on first
    /// use.
    crossing: Option<Vec<(u128, u64)>>,
}

/// A node, or a group of consecutive nodes.
#[derive(Clone, Copy, Debug)]
struct Group {
    first: u32,
    count: u32,
    /// True if the members' names have numbers.
    numbered: bool,
}

impl Group {
    fn member(self, k: u32) -> NodeId {
        NodeId(self.first + if self.count > 1 { k } else { 0 })
    }
}

/// Pairs of nodes.
#[derive(Clone, Debug)]
enum Pairs {
    /// The pairs of `from` and `to`.
    Groups { from: Group, to: Group },
    /// The pairs of `between`.
    Drawn(Rc<[(NodeId, NodeId)]>),
}

impl Pairs {
    fn count(&self) -> u32 {
        match self {
            Pairs::Groups { from, to } => from.count.max(to.count),
            Pairs::Drawn(pairs) => pairs.len() as u32,
        }
    }

    fn of(&self, k: u32) -> (NodeId, NodeId) {
        match self {
            Pairs::Groups { from, to } => (from.member(k), to.member(k)),
            Pairs::Drawn(pairs) => pairs[k as usize],
        }
    }

    /// Returns true if items made from these pairs have numbers.
    fn numbered(&self) -> bool {
        match self {
            Pairs::Groups { from, to } => from.numbered || to.numbered,
            Pairs::Drawn(_) => true,
        }
    }
}

impl<'a> Resolver<'a> {
    fn nodes(&mut self) {
        // More would exhaust memory, and is probably a mistyped number.
        const MOST: u64 = 1_000_000;
        let mut total = 0;
        for (name, node) in self.top.named("node", &keys::NODE) {
            let count = node.count("count");
            let n = count.unwrap_or(1);
            total += n;
            if total > MOST {
                self.mistakes.add(node.at("count"), format!("more than {MOST} nodes in all"), "too many");
                return;
            }
            let first = self.plan.nodes.len() as u32;
            let numbered = count.is_some();
            self.groups.insert(name, Group { first, count: n as u32, numbered });
            self.plan.nodes.extend((0..n).map(|k| Node { name: member(name, numbered, k) }));
        }
        // A failed import or generator has been reported.
        if self.plan.nodes.is_empty() && !self.top.has("topology") {
            self.mistakes
                .add(self.top.place(), "the scenario has no nodes", "no `[node.NAME]`")
                .help("name hosts and routers, such as `[node.a]`");
        }
    }

    /// The node or group that a key names.
    fn group(&mut self, reader: &Reader<'a>, key: &str) -> Option<Group> {
        let text = reader.text(key)?;
        self.group_called(&text, reader.at(key))
    }

    fn group_called(&mut self, text: &str, at: At) -> Option<Group> {
        if let Some(group) = self.groups.get(text) {
            return Some(*group);
        }
        if let Some((name, number)) = text.split_once('.')
            && let Some(group) = self.groups.get(name)
        {
            return match number.parse::<u32>() {
                Ok(k) if group.numbered && (1..=group.count).contains(&k) => {
                    Some(Group { first: group.first + k - 1, count: 1, numbered: false })
                }
                _ => {
                    let help = match group.numbered {
                        true => format!("its members are `{name}.1` to `{name}.{}`", group.count),
                        false => format!("`{name}` is a single node"),
                    };
                    self.mistakes.add(at, format!("there is no node `{text}`"), "unknown node").help(help);
                    None
                }
            };
        }
        // An imported node, named by its label.
        if let Some(group) = self.groups.get(word(text).as_str())
            && self.top.has("topology")
        {
            return Some(*group);
        }
        self.unknown("node", text, at);
        None
    }

    /// Reports a name that no table `[kind.NAME]` gives.
    fn unknown(&mut self, kind: &'static str, name: &str, at: At) {
        let message = format!("there is no {kind} `{name}`");
        self.mistakes.add(at, message, format!("unknown {kind}")).suggest(name, self.top.names(kind));
    }

    /// The pairs of a section's `from` and `to`.
    fn pairs(&mut self, reader: &Reader<'a>) -> Option<Pairs> {
        let (from, to) = (self.group(reader, "from"), self.group(reader, "to"));
        let (from, to) = (from?, to?);
        if from.count != to.count && from.count > 1 && to.count > 1 {
            let message = format!("a group of {} and a group of {} cannot be paired", from.count, to.count);
            self.mistakes
                .add(reader.at("to"), message, format!("{} nodes", to.count))
                .help("two groups must have the same size, or one side must be a single node");
            return None;
        }
        let pairs = Pairs::Groups { from, to };
        let overlap = from.first < to.first + to.count && to.first < from.first + from.count;
        if overlap && (0..pairs.count()).any(|k| pairs.of(k).0 == pairs.of(k).1) {
            self.mistakes.add(reader.at("to"), "`from` and `to` are the same node", "the same");
            return None;
        }
        Some(pairs)
    }

    /// The nodes that match the patterns of a key, ascending.
    fn nodes_chosen(&mut self, reader: &Reader<'a>, key: &str) -> Option<Vec<NodeId>> {
        let mut chosen = vec![false; self.plan.nodes.len()];
        for (pattern, at) in reader.patterns(key) {
            let before = self.mistakes.len();
            let mut found = false;
            for (node, chosen) in self.plan.nodes.iter().zip(&mut chosen) {
                let group = node.name.split('.').next().unwrap_or(&node.name);
                if matches(&pattern, &node.name) || matches(&pattern, group) {
                    (*chosen, found) = (true, true);
                }
            }
            if !found && self.mistakes.len() == before {
                match self.group_called(&pattern, at) {
                    Some(group) => {
                        let members = group.first as usize..(group.first + group.count) as usize;
                        chosen[members].fill(true);
                    }
                    None => return None,
                }
            }
        }
        Some((0..chosen.len()).filter(|&i| chosen[i]).map(|i| NodeId(i as u32)).collect())
    }

    /// Checks the number of rows: an interval with a wrong unit makes far too many.
    fn rows(&mut self) {
        let (rows, plan) = (self.plan.least_rows(), &self.plan);
        if rows <= MOST_ROWS {
            return;
        }
        let Some(interval) = plan.measure.interval else { return };
        let measure = self.top.table("measure", &keys::MEASURE);
        let message = format!("the interval tables would have {} million rows", rows / 1_000_000);
        let times = rows.div_ceil(MOST_ROWS);
        let longer = Time(interval.0.saturating_mul(10u64.saturating_pow(times.ilog10() + 1)));
        let help =
            format!("give `measure.interval` \"{longer}\" or more, or \"none\", or shorten `duration`");
        self.mistakes.add(measure.at("interval"), message, "too short").help(help);
    }

    /// Notes events after the run's end. Without a note, a user may take their absence from the
    /// results for a result.
    fn late(&mut self) {
        let Plan { flows, workloads, cbrs, aggregates, .. } = &self.plan;
        let (changes, losses) = (self.top.list("change", &keys::CHANGE), self.top.list("loss", &keys::LOSS));
        let law = |transport: TransportId| &self.plan.transports[transport.0 as usize].law;
        let cheats = flows.iter().map(|flow| (&*flow.name, flow.transport));
        let cheats = cheats.chain(workloads.iter().map(|workload| (&*workload.name, workload.transport)));
        let cheats = cheats.filter_map(|(name, of)| Some((name, law(of).descriptor().cheats?)));
        let late = [
            self.late_of("flow", flows.iter().map(|flow| (&*flow.name, flow.start))),
            self.late_of("workload", workloads.iter().map(|workload| (&*workload.name, workload.start))),
            self.late_of("cbr", cbrs.iter().map(|cbr| (&*cbr.name, cbr.start))),
            self.late_of("aggregate", aggregates.iter().map(|policy| (&*policy.name, policy.install))),
            self.late_of("change", changes.map(|change| ("", change.span("at")))),
            self.late_of("loss", losses.map(|loss| ("", loss.span("from")))),
            self.late_of("cheat of", cheats),
        ];
        let late: Vec<String> = late.into_iter().flatten().collect();
        if !late.is_empty() {
            let end = self.plan.duration;
            self.files.note(format!("the run ends at {end}, before there is: {}", late.join(", ")));
        }
    }

    /// The first of `all` after the run's end, and the number of the others.
    fn late_of<'n>(&self, what: &str, all: impl Iterator<Item = (&'n str, Time)>) -> Option<String> {
        let mut late = all.filter(|(_, at)| *at >= self.plan.duration);
        let (name, at) = late.next()?;
        let name = if name.is_empty() { String::new() } else { format!(" `{name}`") };
        let more = match late.count() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Some(format!("{what}{name} (at {at}){more}"))
    }

    /// The base RTTs of the flows whose data cross a link: sum in nanoseconds, and number.
    fn crossing(&mut self, link: LinkId) -> (u128, u64) {
        let Plan { flows, workloads, transports, links, .. } = &self.plan;
        let crossing = self.crossing.get_or_insert_with(|| {
            let mut sums = vec![(0u128, 0u64); links.len()];
            let of_flows = flows.iter().map(|f| (&f.path, f.transport));
            let of_workloads = workloads.iter().flat_map(|w| w.paths.iter().map(|p| (p, w.transport)));
            for (path, transport) in of_flows.chain(of_workloads) {
                let back = if transports[transport.0 as usize].both_ways { path.back_links() } else { &[] };
                for l in path.links().iter().chain(back) {
                    let sum = &mut sums[l.0 as usize];
                    *sum = (sum.0 + u128::from(path.base_rtt.0), sum.1 + 1);
                }
            }
            sums
        });
        crossing[link.0 as usize]
    }
}

/// The name of the `k`-th item of a section, counted from zero.
fn member(section: &str, numbered: bool, k: impl Into<u64>) -> CompactString {
    if numbered { format_compact!("{section}.{}", k.into() + 1) } else { section.into() }
}

impl When {
    /// The time of item `k` of `n`. A random time depends only on `seed`, `name` and `k`, so that
    /// other flows do not affect it.
    fn of(self, k: u64, n: u64, seed: u64, name: &str) -> Time {
        match self {
            When::At(time) => time,
            When::Spread { first, .. } if n <= 1 => first,
            When::Spread { first, last } => {
                let (first, last) = (first.0 as i128, last.0 as i128);
                Time((first + (last - first) * i128::from(k) / i128::from(n - 1)) as u64)
            }
            When::Random { span, after } => {
                let draw = name.bytes().fold(mix(seed), |h, b| mix(h ^ u64::from(b)));
                let draw = mix(draw ^ mix(k));
                after + Time(((u128::from(draw) * u128::from(span.0)) >> 64) as u64)
            }
        }
    }
}

/// SplitMix64's step: a bijection of 64-bit words without visible pattern.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Returns true if `text` matches `pattern`, in which `*` stands for any characters and `?` for
/// one.
pub fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // The positions to retry from, with one more character for the latest `*`.
    let mut star = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&c) if c == b'?' || c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match &mut star {
                Some((at, taken)) => {
                    *taken += 1;
                    (p, t) = (*at + 1, *taken);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

/// Largest number of rows in a run's interval tables: about a hundred gigabytes.
const MOST_ROWS: u64 = 1_000_000_000;
