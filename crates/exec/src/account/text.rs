//! The report as text for a terminal.

use std::fmt::Write;

use tollway_net::sys::namespace::SocketDrops;
use tollway_report::text::{Align, TextTable, wrap};

use super::share::FlowShare;
use super::{Account, LinkAccount, WORTH_COMPARING, delay_mean, door, flow_rate, lost};
use crate::FlowRecord;

impl Account<'_> {
    /// The report as text, in at most `width` columns where names allow.
    pub fn to_text(&self, width: usize) -> String {
        let record = &self.outcome.record;
        let mut text = String::new();
        let _ = writeln!(
            text,
            "`{}` {} after {:.2} s on a network of {} nodes.\n",
            self.command(),
            self.outcome.ended,
            record.elapsed.as_secs_f64(),
            self.spec.mesh.nodes.len(),
        );
        if record.flows.is_empty() {
            text += "Nothing was sent over it.";
            let server = self.spec.servers.first().filter(|server| server.0 != self.spec.node);
            if let Some((node, _)) = server
                && !self.spec.program.is_empty()
                && self.outcome.refused.is_empty()
            {
                let _ = write!(
                    text,
                    " The program reaches the server at `{}`; `localhost` is its own node.",
                    self.spec.mesh.nodes[*node as usize]
                );
            }
            text.push('\n');
        } else {
            text += &self.links_text(width);
            text.push('\n');
            text += &self.flows_text(width);
            text.push('\n');
        }
        text += &self.refused_text();
        if let Some(jain) = self.jain() {
            let _ = writeln!(text, "Jain's index of the flows' parts of their ideal shares: {jain:.3}");
        }
        for (to, seen) in self.spec.listen.iter().zip(&self.outcome.listened) {
            let [from, node] = [to.from, to.node].map(|node| &self.spec.mesh.nodes[node as usize]);
            let _ = writeln!(
                text,
                "Connections at {}, from `{from}` to port {} of `{node}`: {}.",
                door(to, seen),
                to.port,
                seen.connections,
            );
        }
        let late = |p| record.lateness.percentile(p).as_secs_f64() * 1e6;
        if record.lateness.count() > 0 {
            let _ = writeln!(
                text,
                "The emulator forwarded packets late by {:.0} µs (median), {:.0} µs (99 %), {:.0} µs (99.9 %), \
                {:.0} µs at most{}.",
                late(0.5),
                late(0.99),
                late(0.999),
                record.lateness.max().as_secs_f64() * 1e6,
                if record.real_time { ", with real-time priority" } else { "" },
            );
        }
        for (count, what) in [
            (record.strays.not_ip, "were dropped: they were not IP"),
            (record.strays.malformed, "were malformed"),
            (record.strays.no_such_address, "were addressed to no node"),
            (record.strays.no_route, "were addressed to an unreachable node"),
            (record.refused, "were refused by the kernel"),
            (
                *self.outcome.captured.as_ref().unwrap_or(&0),
                "are missing in the capture: the disk was too slow",
            ),
        ] {
            if count > 0 {
                let _ = writeln!(text, "{count} packets {what}.");
            }
        }
        for (name, drops) in self.spec.mesh.nodes.iter().zip(&self.outcome.kernel_drops) {
            if drops.sent + drops.received > 0 {
                let _ = writeln!(
                    text,
                    "The kernel's buffers overflowed: it dropped {} packets from programs at `{name}` and {} to \
                    them.",
                    drops.sent, drops.received
                );
            }
            let SocketDrops { datagrams, connections } = drops.sockets;
            if datagrams > 0 {
                let _ = writeln!(
                    text,
                    "Programs at `{name}` read too slowly: {datagrams} datagrams found the receive buffer of their \
                    socket full (RcvbufErrors), after they had crossed the network."
                );
            }
            if connections > 0 {
                let _ = writeln!(
                    text,
                    "A server at `{name}` accepted too slowly: {connections} connections found its listen queue \
                    full (ListenOverflows)."
                );
            }
        }
        text
    }

    /// The connections that the program's own node refused, and the way to the other one.
    fn refused_text(&self) -> String {
        let Some(first) = self.outcome.refused.first() else { return String::new() };
        let ports: Vec<String> = self.outcome.refused.iter().map(u16::to_string).collect();
        let remedy = match self.spec.other.map(|node| &self.spec.mesh.nodes[node as usize]) {
            Some(other) => format!("the other end is `{other}`, and `--localhost {first}` leads there"),
            None => format!("`--localhost {first}=NODE:{first}` leads to another node"),
        };
        format!(
            "The program's own node, its `localhost`, refused connections at port {}: {remedy}.\n",
            ports.join(", "),
        )
    }

    /// Rates and waits of links, and what was dropped: beside each other if they fit.
    fn links_text(&self, width: usize) -> String {
        type Cell = fn(&LinkAccount<'_>) -> String;
        let links: Vec<LinkAccount<'_>> = self.links().collect();
        let carried: [(&str, Cell); 6] = [
            ("Mb/s", |link| format!("{:.2}", link.rate())),
            ("of", |link| number(link.nominal.mbps())),
            ("best s", |link| format!("{:.2}", link.best_second())),
            ("queued ms", |link| format!("{:.2}", link.record.waits.mean().as_millis_f64())),
            ("99 %", |link| format!("{:.2}", link.record.waits.percentile(0.99).as_millis_f64())),
            ("most", |link| format!("{:.2}", link.record.waits.max().as_millis_f64())),
        ];
        let counted: [(&str, Cell); 5] = [
            ("packets", |link| link.record.total.sent_packets.to_string()),
            ("full", |link| link.record.total.drops.full.to_string()),
            ("law", |link| link.record.total.drops.law.to_string()),
            ("lost", |link| {
                let drops = link.record.total.drops;
                (drops.before + drops.after + drops.corrupt).to_string()
            }),
            ("marked", |link| link.record.total.marks.to_string()),
        ];
        let counted: Vec<(&str, Cell)> =
            counted.into_iter().filter(|(_, cell)| links.iter().any(|link| cell(link) != "0")).collect();
        let table = |columns: &[(&str, Cell)]| {
            let mut head = vec![("link", Align::Left)];
            head.extend(columns.iter().map(|(head, _)| (*head, Align::Right)));
            let mut table = TextTable::new(&head);
            for link in &links {
                let name = format!("{} ({} to {})", link.name, link.from, link.to);
                table.row([name].into_iter().chain(columns.iter().map(|(_, cell)| cell(link))));
            }
            table
        };
        let both = table(&[&carried[..], &counted[..]].concat());
        let mut text = if both.natural_width() <= width {
            both.print(width)
        } else {
            format!("{}\n{}", table(&carried).print(width), table(&counted).print(width))
        };
        let has = |name: &str| counted.iter().any(|(head, _)| *head == name);
        let mut notes =
            vec!["best s: rate of the best second", "queued: waits of packets, mean, 99 % and most"];
        notes.extend(has("full").then_some("full: dropped at a full queue"));
        notes.extend(has("law").then_some("law: dropped by the queue's law"));
        notes.extend(has("lost").then_some("lost: on the wire"));
        wrap(&notes.join("; "), width).iter().for_each(|line| text += &format!("{line}\n"));
        text
    }

    fn flows_text(&self, width: usize) -> String {
        type Cell = fn((&FlowRecord, Option<&FlowShare>)) -> String;
        let columns: [(&str, Cell); 8] = [
            ("Mb/s", |(flow, _)| format!("{:.2}", flow_rate(flow))),
            ("of ideal", |(_, share)| {
                // The ideal over less than a second is not reliable.
                let share = share.filter(|share| share.span >= WORTH_COMPARING);
                share.map_or_else(|| DASH.into(), |share| format!("{:.0} %", share.part() * 100.0))
            }),
            ("packets", |(flow, _)| flow.packets.to_string()),
            ("lost", |(flow, _)| lost(flow).to_string()),
            ("marked", |(flow, _)| flow.marks.to_string()),
            ("least ms", |(flow, _)| delay(flow, flow.delay_min.as_millis_f64())),
            ("mean", |(flow, _)| delay(flow, delay_mean(flow).unwrap_or(f64::NAN))),
            ("most", |(flow, _)| delay(flow, flow.delay_max.as_millis_f64())),
        ];
        let flows = self.flows();
        let shown = &flows[..flows.len().min(SHOWN)];
        let idle = ["0", DASH];
        let columns: Vec<(&str, Cell)> = columns
            .into_iter()
            .filter(|(head, cell)| *head == "Mb/s" || shown.iter().any(|&flow| !idle.contains(&&*cell(flow))))
            .collect();
        let mut head = vec![("flow", Align::Left)];
        head.extend(columns.iter().map(|(head, _)| (*head, Align::Right)));
        let mut table = TextTable::new(&head);
        for &flow in shown {
            table.row(
                [self.name(&flow.0.tuple)].into_iter().chain(columns.iter().map(|(_, cell)| cell(flow))),
            );
        }
        let mut text = table.print(width);
        if flows.len() > SHOWN {
            let _ = writeln!(text, "and {} more flows (--json and --out have them all)", flows.len() - SHOWN);
        }
        text += "least, mean, most: one-way delay\n";
        text
    }
}

/// A delay in ms of a flow's packets, if any arrived.
fn delay(flow: &FlowRecord, millis: f64) -> String {
    if flow.delivered > 0 { format!("{millis:.2}") } else { DASH.into() }
}

/// A configured rate with at most three decimal places.
fn number(mbps: f64) -> String {
    if mbps >= 1e6 { "∞".into() } else { format!("{}", (mbps * 1e3).round() / 1e3) }
}

/// The text for a missing value.
const DASH: &str = "–";
/// Upper bound of flows in the list.
const SHOWN: usize = 12;
