//! The overlay: hops as flows between daemons; groups; senders.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use compact_str::format_compact;
use tollway_law::Time;
use tollway_law::overlay::{AnnounceConfig, CostConfig, PeriodConfig, PurseConfig};
use tollway_law::param::Config;
use tollway_proto::overlay::ArrivalProcess;

use super::flows::{RouteRequest, Target, path};
use super::{Group as Nodes, Pairs, Resolver};
use crate::file::error::At;
use crate::file::keys;
use crate::file::reader::Reader;
use crate::file::value::When;
use crate::plan::overlay::{Group, Hop, Overlay, Sender};
use crate::plan::{Arrivals, Data, Flow, FlowId, LinkId, NodeId, Route};

impl<'a> Resolver<'a> {
    /// Resolves the overlay's hops, as flows without routes, and its constants.
    pub(super) fn hops(&mut self) {
        let keys = self.top.table("overlay", &keys::OVERLAY);
        if !keys.is_there() {
            return;
        }
        let mut overlay = constants(&keys);
        if overlay.purse.period.least > overlay.purse.period.most {
            let period = keys.table("period", &keys::OVERLAY_PERIOD);
            self.mistakes.add(period.at("least"), "`least` is over `most`", "too long");
        }
        if overlay.announce.least > overlay.announce.most {
            let update = keys.table("update", &keys::OVERLAY_UPDATE);
            self.mistakes.add(update.at("least"), "`least` is over `most`", "too long");
        }
        let mut ends = BTreeSet::new();
        for (name, hop) in keys.named("hop", &keys::OVERLAY_HOP) {
            let Some((pairs, links)) = self.hop_ends(name, &hop) else { continue };
            let transport = self.transport(&hop);
            self.plan.transports[transport.0 as usize].both_ways = true;
            let first = self.plan.flows.len();
            let section: Arc<str> = format!("hop.{name}").into();
            for k in 0..pairs.count() {
                let (from, to) = pairs.of(k);
                let [a, b] = [from, to].map(|node| &self.plan.nodes[node.0 as usize].name);
                if !ends.insert((from.min(to), from.max(to))) {
                    let message = format!("there are two hops between `{a}` and `{b}`");
                    self.mistakes.add(hop.place(), message, "the second").help("leave out one of them");
                    return;
                }
                overlay.hops.push(Hop {
                    flow: FlowId(self.plan.flows.len() as u32),
                    length: hop.count("length").unwrap_or(1) as u16,
                });
                self.plan.flows.push(Flow {
                    name: format_compact!("hop.{a}-{b}"),
                    section: section.clone(),
                    path: path((from, to)),
                    transport,
                    start: Time::ZERO,
                    after: None,
                    stop: Time::NEVER,
                    data: Data::Messages,
                    receive_buffer: u32::MAX,
                    send_buffer: u32::MAX,
                    shaped: None,
                });
            }
            let target = Target::Flows { first, each: 1 };
            self.hop_links.extend(links.into_iter().enumerate().map(|(k, link)| (first + k, link)));
            self.requests.push(RouteRequest { keys: hop, pairs, target, first_only: true });
        }
        if ends.is_empty() && self.mistakes.is_empty() {
            self.mistakes
                .add(keys.place(), "an overlay needs hops", "no hop")
                .help("add `[overlay.hop.all]` with `link = \"*\"` and a `law`");
        }
        let nodes: BTreeSet<NodeId> = ends.iter().flat_map(|&(a, b)| [a, b]).collect();
        overlay.daemons = nodes.into_iter().collect();
        self.plan.overlay = Some(overlay);
    }

    /// The pairs of a hop section, and the links of hops that are given as links.
    fn hop_ends(&mut self, name: &str, keys: &Reader<'a>) -> Option<(Pairs, Vec<LinkId>)> {
        if keys.has("link") {
            if let Some(end) = ["from", "to"].into_iter().find(|end| keys.has(end)) {
                let message = format!("a hop has either `link` or `{end}`");
                self.mistakes.add(keys.key_at(end), message, "with `link`").help("leave out one of them");
                return None;
            }
            let mut links = self.links_named(keys, "forward")?;
            // Of parallel links, keep the first.
            let mut joined = BTreeSet::new();
            links.retain(|link| {
                let link = &self.plan.links[link.0 as usize];
                joined.insert((link.from.min(link.to), link.from.max(link.to)))
            });
            let one_way = links.iter().find(|link| self.plan.links[link.0 as usize].twin.is_none()).copied();
            if let Some(link) = one_way {
                let name = &self.plan.links[link.0 as usize].name;
                let message = format!("a hop has both directions, and `{name}` has no reverse direction");
                self.mistakes.add(keys.at("link"), message, "one-way").help("it has `duplex = false`");
                return None;
            }
            let ends = links.iter().map(|link| {
                let link = &self.plan.links[link.0 as usize];
                (link.from, link.to)
            });
            return Some((Pairs::Drawn(ends.collect()), links));
        }
        if let Some(end) = ["from", "to"].into_iter().find(|end| keys.lacks(end)) {
            self.mistakes
                .add(keys.place(), format!("`[overlay.hop.{name}]` needs `{end}`"), format!("no `{end}`"))
                .help("or `link`, such as `link = \"*\"`");
            return None;
        }
        self.pairs(keys).map(|pairs| (pairs, Vec::new()))
    }

    /// Routes each hop that is given as a link over that link.
    pub(super) fn hop_routes(&mut self) {
        for (flow, link) in std::mem::take(&mut self.hop_links) {
            let links = &self.plan.links;
            let link_there = &links[link.0 as usize];
            let Some(twin) = link_there.twin else { continue };
            let path = &mut self.plan.flows[flow].path;
            path.base_rtt = link_there.delay.saturating_add(links[twin.0 as usize].delay);
            (path.route, path.back) = (Route::from_iter([link]), Route::from_iter([twin]));
        }
    }

    /// Resolves the overlay's groups and senders.
    pub(super) fn overlay(&mut self) {
        let Some(mut overlay) = self.plan.overlay.take() else { return };
        let keys = self.top.table("overlay", &keys::OVERLAY);
        let mut families = BTreeMap::new();
        for (name, group) in keys.named("group", &keys::OVERLAY_GROUP) {
            let Some(members) = self.nodes_chosen(&group, "at") else { continue };
            if let Some(node) = members.iter().find(|node| overlay.daemons.binary_search(node).is_err()) {
                self.no_daemon(*node, group.at("at"));
                continue;
            }
            let (first, ordered) = (overlay.groups.len(), group.truth("ordered"));
            match group.count("width") {
                None => overlay.groups.push(Group { name: name.to_owned(), members, ordered }),
                Some(width) if width as usize > members.len() => {
                    let message = format!("a group of {width} among {} nodes", members.len());
                    self.mistakes.add(group.at("width"), message, "too wide");
                }
                Some(width) => {
                    for k in 0..members.len() {
                        let around = members.iter().cycle().skip(k).take(width as usize);
                        let mut own: Vec<NodeId> = around.copied().collect();
                        own.sort_unstable();
                        overlay.groups.push(Group {
                            name: format!("{name}.{}", k + 1),
                            members: own,
                            ordered,
                        });
                    }
                }
            }
            families.insert(name, (first, overlay.groups.len() - first, group.has("width")));
        }
        let reach = reach(&overlay, &self.plan.flows);
        for (name, sender) in keys.named("sender", &keys::OVERLAY_SENDER) {
            self.senders(name, &sender, &mut overlay, &families, &reach);
        }
        self.plan.overlay = Some(overlay);
    }

    fn senders(
        &mut self,
        name: &str,
        keys: &Reader<'a>,
        overlay: &mut Overlay,
        families: &BTreeMap<&'a str, (usize, usize, bool)>,
        reach: &BTreeMap<NodeId, usize>,
    ) {
        const MOST: u64 = 1_000_000;
        let (Some(nodes), Some(group)) = (self.group(keys, "at"), keys.text("group")) else { return };
        let Some(&(first, groups, many)) = families.get(&*group) else {
            self.mistakes
                .add(keys.at("group"), format!("there is no group `{group}`"), "unknown group")
                .suggest(&group, families.keys().copied());
            return;
        };
        let Nodes { first: node, count: members, numbered } = nodes;
        let each = keys.count("count");
        let n = u64::from(members) * each.unwrap_or(1);
        if n + overlay.senders.len() as u64 > MOST {
            self.mistakes.add(keys.at("count"), format!("more than {MOST} senders in all"), "too many");
            return;
        }
        if many && groups as u64 != n {
            let message = format!("{n} senders and {groups} groups cannot be paired");
            self.mistakes.add(keys.at("group"), message, format!("{groups} groups"));
            return;
        }
        if self.plan.flows.iter().any(|flow| &*flow.section == name) {
            let message = format!("`{name}` is already the name of a flow");
            self.mistakes.add(keys.place(), message, "the same name").help("rename one of them");
            return;
        }
        let on_off = self.on_off(keys);
        let Some(demand) = self.demand(keys) else { return };
        let (start, stop) = (keys.when("start").unwrap_or(When::At(Time::ZERO)), keys.when("stop"));
        let section: Arc<str> = name.into();
        for k in 0..n {
            let at = NodeId(node + (k / each.unwrap_or(1)) as u32);
            let group = first + if many { k as usize } else { 0 };
            let to = &overlay.groups[group];
            if overlay.daemons.binary_search(&at).is_err() {
                self.no_daemon(at, keys.at("at"));
                return;
            }
            if to.members == [at] {
                let message = format!("group `{}` has receivers only at the sender's node", to.name);
                self.mistakes.add(keys.at("group"), message, "no hop needed").help("name another node");
                return;
            }
            if let Some(lost) = to.members.iter().find(|member| reach[member] != reach[&at]) {
                let [from, to] = [at, *lost].map(|node| &self.plan.nodes[node.0 as usize].name);
                let message = format!("no hops lead from `{from}` to `{to}`");
                self.mistakes
                    .add(keys.at("group"), message, "unreachable")
                    .help("add an `[overlay.hop.NAME]`");
                return;
            }
            let place = if to.ordered { PLACE + to.name.len() } else { 0 };
            let headers = LARGEST_HEADERS + to.members.len() + place;
            if overlay.message as usize <= headers {
                let least = headers + 1;
                let message = format!("a message to {} daemons needs at least {least} B", to.members.len());
                self.mistakes.add(keys.at("group"), message, "no room").help("make `overlay.message` larger");
                return;
            }
            let Some((start, stop)) = self.life(keys, name, start, stop, k, n) else { return };
            overlay.senders.push(Sender {
                name: if numbered || each.is_some() { format!("{name}.{}", k + 1) } else { name.to_owned() },
                section: section.clone(),
                at,
                group,
                start,
                stop,
                demand,
                on_off,
                tenant: keys.text("tenant"),
                salary: if keys.has("salary") { keys.number("salary") } else { 1.0 },
                benefit: keys
                    .one_of("benefit")
                    .or_else(|| self.top.table("overlay", &keys::OVERLAY).one_of("benefit"))
                    .unwrap_or_default(),
            });
        }
    }

    fn demand(&mut self, keys: &Reader<'a>) -> Option<ArrivalProcess> {
        let demand = match keys.arrivals("arrivals") {
            None => return Some(ArrivalProcess::Endless),
            Some(Arrivals::Every(gap)) => ArrivalProcess::Every(gap),
            Some(Arrivals::Poisson { per_sec }) => ArrivalProcess::Poisson { per_sec },
        };
        let per_sec = match demand {
            ArrivalProcess::Every(gap) => 1.0 / gap.as_secs_f64(),
            ArrivalProcess::Poisson { per_sec } => per_sec,
            ArrivalProcess::Endless => 0.0,
        };
        if per_sec > MOST_PER_SEC {
            let message = format!("a sender can have at most {MOST_PER_SEC} messages per second");
            self.mistakes.add(keys.at("arrivals"), message, "too many");
            return None;
        }
        Some(demand)
    }

    fn no_daemon(&mut self, node: NodeId, at: At) {
        let name = &self.plan.nodes[node.0 as usize].name;
        let message = format!("there is no daemon at `{name}`: no hop ends there");
        self.mistakes.add(at, message, "no daemon").help("add an `[overlay.hop.NAME]` to it");
    }
}

/// The constants of the section, without hops, groups and senders.
fn constants(keys: &Reader<'_>) -> Overlay {
    let period = PeriodConfig::read(&keys.table("period", &keys::OVERLAY_PERIOD));
    Overlay {
        cost: CostConfig::read(keys),
        purse: PurseConfig { period, ..PurseConfig::read(keys) },
        announce: AnnounceConfig::read(&keys.table("update", &keys::OVERLAY_UPDATE)),
        patience: keys.span("patience"),
        message: keys.bytes("message").unwrap_or_default() as u32,
        daemons: Vec::new(),
        hops: Vec::new(),
        groups: Vec::new(),
        senders: Vec::new(),
    }
}

/// A number for each daemon, equal for daemons connected by hops.
fn reach(overlay: &Overlay, flows: &[Flow]) -> BTreeMap<NodeId, usize> {
    let mut neighbours: BTreeMap<NodeId, Vec<NodeId>> = BTreeMap::new();
    for hop in &overlay.hops {
        let path = &flows[hop.flow.0 as usize].path;
        neighbours.entry(path.from).or_default().push(path.to);
        neighbours.entry(path.to).or_default().push(path.from);
    }
    let mut reach = BTreeMap::new();
    for (number, &daemon) in overlay.daemons.iter().enumerate() {
        let mut left = vec![daemon];
        while let Some(daemon) = left.pop() {
            if let std::collections::btree_map::Entry::Vacant(entry) = reach.entry(daemon) {
                entry.insert(number);
                left.extend(neighbours.get(&daemon).into_iter().flatten());
            }
        }
    }
    reach
}

/// Largest headers of a message, bytes, without destinations: of a live packet, of the daemon and
/// of a sender.
const LARGEST_HEADERS: usize = 200;

/// Bytes for a position in a group's order, without the group's name and the senders' nodes.
const PLACE: usize = 100;

/// Largest number of messages that a sender has in a second.
const MOST_PER_SEC: f64 = 1e6;
