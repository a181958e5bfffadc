//! Events during a run: changes and random loss.

use tollway_law::toll::Content;
use tollway_law::{Budget, Rate, Time};
use tollway_proto::Change;
use tollway_proto::faults::{self, LossPlace, Only};

use super::flows::buffer;
use super::{Resolver, matches};
use crate::file::keys;
use crate::file::reader::Reader;
use crate::plan::{Direction, Event, FlowId, LinkId, Loss, NodeId, PortChange, What};

/// Keys of a change to a link, and the default direction of each.
const OF_LINKS: [(&str, &str); 7] = [
    ("rate", "both"),
    ("delay", "both"),
    ("blackout", "both"),
    ("loss", "forward"),
    ("capacity", "forward"),
    ("limit", "forward"),
    ("price-error", "forward"),
];

/// Keys of a change to flows, besides that of budgets.
const OF_FLOWS: [&str; 3] = ["receive-buffer", "reader", "paused"];

impl<'a> Resolver<'a> {
    /// Resolves all changes, by time.
    pub(super) fn changes(&mut self) {
        let mut changes: Vec<Reader<'a>> = self.top.list("change", &keys::CHANGE).collect();
        // A limit in BDP uses the rate at the time of the change.
        changes.sort_by_key(|change| change.span("at"));
        for change in changes {
            let of_link = OF_LINKS.iter().find(|(key, _)| change.has(key));
            let of_flow = OF_FLOWS.iter().any(|key| change.has(key));
            let is_for = |wanted: &str| format!("`{wanted}` is missing, so this changes nothing");
            if change.has("switch") {
                self.change_switches(&change);
                continue;
            }
            if let Some(key) = ["shares", "member"].into_iter().find(|key| change.has(key)) {
                let message = format!("`{key}` is a change of a switch, and `switch` is missing");
                self.mistakes.add(change.key_at(key), message, "without `switch`");
            }
            if change.has("port") {
                self.change_port(&change);
                continue;
            }
            if let Some(key) = ["connections", "close-delay"].into_iter().find(|key| change.has(key)) {
                let message = format!("`{key}` is a change of a port, and `port` is missing");
                self.mistakes
                    .add(change.key_at(key), message, "without `port`")
                    .help("add `port = \"NODE:PORT\"`");
            }
            if change.has("host") {
                self.change_host(&change);
                continue;
            }
            if change.has("strategy") {
                let message = "`strategy` is a change of a host, and `host` is missing";
                self.mistakes.add(change.key_at("strategy"), message, "without `host`");
            }
            match (change.has("link"), change.has("flow")) {
                (true, false) => {
                    if let Some(key) = OF_FLOWS.into_iter().chain(["budget"]).find(|key| change.has(key)) {
                        self.mistakes.add(change.key_at(key), format!("a link has no `{key}`"), "no effect");
                    } else if of_link.is_none() {
                        let all = OF_LINKS.map(|(key, _)| format!("`{key}`")).join(", ");
                        self.mistakes
                            .add(change.key_at("link"), "this changes nothing", "no change")
                            .help(format!("add one of {all}"));
                    }
                    self.change_links(&change);
                }
                (false, true) => {
                    if let Some((key, _)) = of_link {
                        let message = format!("a flow has no `{key}`");
                        self.mistakes.add(change.key_at(key), message, "no effect");
                    } else if change.has("budget") {
                        self.change_budgets(&change);
                        if !of_flow {
                            continue;
                        }
                    } else if !of_flow {
                        self.mistakes
                            .add(change.key_at("flow"), is_for("receive-buffer"), "no change")
                            .help("add `receive-buffer`, `reader`, `paused` or `budget`");
                    }
                    self.change_flows(&change);
                }
                (true, true) => {
                    let message = "a change applies to links or to flows, not to both";
                    self.mistakes
                        .add(change.key_at("flow"), message, "with `link`")
                        .help("write two changes");
                }
                (false, false) => {
                    let key = if of_flow { "flow" } else { "link" };
                    self.mistakes.add(change.place(), is_for(key), format!("no `{key}`"));
                }
            }
        }
    }

    fn change_links(&mut self, change: &Reader<'a>) {
        let at = change.span("at");
        for (key, direction) in OF_LINKS.into_iter().filter(|(key, _)| change.has(key)) {
            let said = change.word("direction");
            let direction = if said.is_empty() { direction } else { said };
            // Unknown links are the same mistake for every key: report them once.
            let Some(links) = self.links_named(change, direction) else { return };
            if let ("rate", Some(traced)) =
                (key, links.iter().find(|l| self.plan.links[l.0 as usize].trace.is_some()))
            {
                let name = &self.plan.links[traced.0 as usize].name;
                let message = format!("`{name}` replays a trace, so its rate cannot change");
                self.mistakes
                    .add(change.key_at("rate"), message, "no effect")
                    .help("name other links, or write the change into the trace");
                return;
            }
            for link in links {
                let what = match key {
                    "rate" => change.rate(key).map(|r| What::Link(link, Change::Rate(r))),
                    "delay" => change.time(key).map(|d| What::Link(link, Change::Delay(d))),
                    "loss" => Some(What::Loss(link, change.number(key))),
                    "blackout" => change.time(key).map(|d| What::Blackout(link, at.saturating_add(d))),
                    "capacity" => change.rate(key).map(|r| What::Link(link, Change::Capacity(r))),
                    "price-error" => match self.plan.links[link.0 as usize].law.descriptor().gives {
                        Some(Content::Price) => Some(What::Link(link, Change::LawError(change.number(key)))),
                        _ => {
                            let message = "only links of the law `fcp` have a price";
                            self.mistakes.add(change.at(key), message, "no such link");
                            None
                        }
                    },
                    _ => {
                        let rate = self.rate_by_now(link);
                        let limit = self.limit(link, change.limit(key), rate, change.at(key));
                        limit.map(|l| What::Link(link, Change::Limit(l)))
                    }
                };
                let Some(what) = what else { return };
                // A law with the true capacity also receives the new one.
                let of = &self.plan.links[link.0 as usize];
                let told = match what {
                    What::Link(_, Change::Rate(new))
                        if of.capacity == of.rate && !of.law.is_none() && !change.has("capacity") =>
                    {
                        Some(What::Link(link, Change::Capacity(new)))
                    }
                    _ => None,
                };
                self.plan
                    .events
                    .extend([Some(what), told].into_iter().flatten().map(|what| Event { at, what }));
            }
        }
    }

    /// The rate of a link after the changes so far.
    fn rate_by_now(&self, link: LinkId) -> Rate {
        let changed = self.plan.events.iter().rev().find_map(|change| match change.what {
            What::Link(of, Change::Rate(rate)) if of == link => Some(rate),
            _ => None,
        });
        changed.unwrap_or(self.plan.links[link.0 as usize].rate)
    }

    fn change_host(&mut self, change: &Reader<'a>) {
        let Some(name) = change.text("host") else { return };
        let at = change.span("at");
        for key in ["link", "flow"].into_iter().filter(|key| change.has(key)) {
            let message = "a change applies to links, to flows or to a host";
            self.mistakes.add(change.key_at(key), message, "with `host`").help("write two changes");
        }
        let Some(host) = self.plan.hosts.iter().position(|host| host.name == name) else {
            self.unknown("host", &name, change.at("host"));
            return;
        };
        if change.has("budget") {
            let what = What::HostBudget(host, change.number("budget"));
            self.plan.events.push(Event { at, what });
        }
        if let Some(strategy) = change.one_of("strategy") {
            let what = What::HostStrategy(host, strategy);
            self.plan.events.push(Event { at, what });
        }
        if !change.has("budget") && !change.has("strategy") {
            self.mistakes
                .add(change.key_at("host"), "this changes nothing", "no change")
                .help("add `budget` or `strategy`");
        }
    }

    fn change_port(&mut self, change: &Reader<'a>) {
        let Some(text) = change.text("port") else { return };
        if let Some(key) = ["link", "flow", "host"].into_iter().find(|key| change.has(key)) {
            let message = "a change applies to links, to flows, to a host or to a port";
            self.mistakes.add(change.key_at(key), message, "with `port`").help("write two changes");
        }
        let parts = text.rsplit_once(':').and_then(|(node, port)| Some((node, port.parse::<u16>().ok()?)));
        let Some((name, port)) = parts.filter(|(_, port)| *port > 0) else {
            let message = format!("`{text}` is no node with a port");
            self.mistakes.add(change.at("port"), message, "not NODE:PORT").help("write `server:8000`");
            return;
        };
        let Some(node) = self.plan.nodes.iter().position(|node| *node.name == *name) else {
            self.unknown("node", name, change.at("port"));
            return;
        };
        let connections = change.one_of("connections").filter(|_| change.has("connections"));
        let close_delay = change.time("close-delay");
        if connections.is_none() && close_delay.is_none() {
            self.mistakes
                .add(change.key_at("port"), "this changes nothing", "no change")
                .help("add `connections` or `close-delay`");
        }
        let (at, node) = (change.span("at"), NodeId(node as u32));
        self.plan.port_changes.push(PortChange { at, node, port, connections, close_delay });
    }

    /// Changes budgets of flows without a host.
    fn change_budgets(&mut self, change: &Reader<'a>) {
        let Some(pattern) = change.text("flow") else { return };
        let (at, budget) = (change.span("at"), change.number("budget"));
        let mut found = false;
        for (i, flow) in self.plan.flows.iter().enumerate() {
            if !matches(&pattern, &flow.name) && !matches(&pattern, &flow.section) {
                continue;
            }
            found = true;
            let id = FlowId(i as u32);
            let about = self.plan.transports[flow.transport.0 as usize].law.descriptor();
            let spends = about.spends.is_some();
            if !spends || self.plan.hosts.iter().any(|host| host.flows.contains(&id)) {
                let message = match spends {
                    true => format!("`{}` uses the budget of its host", flow.name),
                    false => format!("`{}` has no budget: its law is not `fcp`", flow.name),
                };
                self.mistakes.add(change.at("budget"), message, "no separate budget");
                return;
            }
            self.plan
                .events
                .push(Event { at, what: What::Flow(id, Change::Budget(Budget::per_sec(budget))) });
        }
        if !found {
            self.unknown("flow", &pattern, change.at("flow"));
        }
    }

    fn change_flows(&mut self, change: &Reader<'a>) {
        let Some(pattern) = change.text("flow") else { return };
        let (at, spec) = (change.span("at"), change.limit("receive-buffer"));
        let buffers = change.has("receive-buffer");
        let reader = change.has("reader").then(|| Change::Reader(self.reader(change)));
        let paused = change.has("paused").then(|| Change::Paused(change.truth("paused")));
        let before = self.plan.events.len();
        for (i, flow) in self.plan.flows.iter().enumerate() {
            if matches(&pattern, &flow.name) || matches(&pattern, &flow.section) {
                let packets = buffer(&self.plan, &flow.path, flow.transport, spec);
                if packets == 0 {
                    let message = "`receive-buffer` holds less than one packet";
                    self.mistakes.add(change.at("receive-buffer"), message, "too small");
                    return;
                }
                let flow = FlowId(i as u32);
                let buffer = buffers.then_some(Change::ReceiveBuffer(packets));
                let changes = [buffer, reader.clone(), paused.clone()].into_iter().flatten();
                let event = |change| Event { at, what: What::Flow(flow, change) };
                self.plan.events.extend(changes.map(event));
            }
        }
        if self.plan.events.len() == before {
            self.unknown("flow", &pattern, change.at("flow"));
        }
    }

    /// Resolves random loss.
    pub(super) fn losses(&mut self) {
        for loss in self.top.list("loss", &keys::LOSS) {
            let (from, until) = (loss.span("from"), loss.time("until").unwrap_or(Time::NEVER));
            if until <= from {
                let message = format!("this ends at {until}, before its start at {from}");
                self.mistakes.add(loss.at("until"), message, "too early");
            }
            let Some(links) = self.links_named(&loss, loss.word("direction")) else { continue };
            let place = if loss.word("place") == "before" { LossPlace::Before } else { LossPlace::After };
            let only = match loss.word("only") {
                "data" => Only::Data,
                "ack" => Only::Ack,
                _ => Only::All,
            };
            let loss = faults::Loss { place, only, probability: loss.number("probability") };
            let all = links.into_iter().map(|link| Loss { link, from, until, loss });
            self.plan.losses.extend(all);
        }
    }

    /// The links in a direction that the key `link` of a section names, by link or by section.
    pub(super) fn links_named(&mut self, reader: &Reader<'a>, direction: &str) -> Option<Vec<LinkId>> {
        let pattern = reader.text("link")?;
        // `bottleneck.reverse` names the reverse direction, whatever `direction` says.
        let by_name = pattern.ends_with(".reverse");
        let (mut found, mut links) = (false, Vec::new());
        for (i, link) in self.plan.links.iter().enumerate() {
            if by_name {
                let bare = pattern.trim_end_matches(".reverse");
                if link.direction == Direction::Reverse
                    && (matches(&pattern, &link.name) || matches(bare, &link.section))
                {
                    found = true;
                    links.push(LinkId(i as u32));
                }
            } else if link.direction == Direction::Forward
                && (matches(&pattern, &link.name) || matches(&pattern, &link.section))
            {
                found = true;
                if direction != "reverse" {
                    links.push(LinkId(i as u32));
                }
                if direction != "forward" {
                    links.extend(link.twin);
                }
            }
        }
        if !links.is_empty() {
            return Some(links);
        }
        let at = reader.at("link");
        if found {
            self.mistakes
                .add(at, format!("`{pattern}` has no reverse direction"), "one-way")
                .help("it has `duplex = false`");
            return None;
        }
        self.unknown("link", &pattern, at);
        None
    }
}
