//! The report as text for a terminal.

use std::fmt::Write;

use tollway_report::text::{Align, TextTable};

use super::{Account, WORTH_COMPARING, delay_mean, flow_rate, lost};

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
            text += "Nothing was sent over it.\n";
        } else {
            text += &self.links_text(width);
            text.push('\n');
            text += &self.flows_text(width);
            text.push('\n');
        }
        if let Some(jain) = self.jain() {
            let _ = writeln!(text, "Jain's index of the flows' parts of their ideal shares: {jain:.3}");
        }
        let late = |p| record.lateness.percentile(p).as_secs_f64() * 1e6;
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
        for (count, what) in [
            (record.strays.not_ipv4, "were dropped: they were not IPv4"),
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
        for (name, (sent, received)) in self.spec.mesh.nodes.iter().zip(&self.outcome.kernel_drops) {
            if sent + received > 0 {
                let _ = writeln!(
                    text,
                    "The kernel's buffers overflowed: it dropped {sent} packets from programs at `{name}` \
                    and {received} to them."
                );
            }
        }
        text
    }

    fn links_text(&self, width: usize) -> String {
        let right = Align::Right;
        let mut table = TextTable::new(&[
            ("link", Align::Left),
            ("Mb/s", right),
            ("of", right),
            ("in its best second", right),
            ("packets", right),
            ("queued ms: mean", right),
            ("99 %", right),
            ("most", right),
            ("dropped: full", right),
            ("law", right),
            ("lost", right),
            ("marked", right),
        ]);
        for link in self.links() {
            let (total, waits) = (&link.record.total, &link.record.waits);
            table.row([
                format!("{} ({} to {})", link.name, link.from, link.to),
                format!("{:.2}", link.rate()),
                number(link.nominal.mbps()),
                format!("{:.2}", link.best_second()),
                total.sent_packets.to_string(),
                format!("{:.2}", waits.mean().as_millis_f64()),
                format!("{:.2}", waits.percentile(0.99).as_millis_f64()),
                format!("{:.2}", waits.max().as_millis_f64()),
                total.drops.full.to_string(),
                total.drops.law.to_string(),
                (total.drops.before + total.drops.after + total.drops.corrupt).to_string(),
                total.marks.to_string(),
            ]);
        }
        table.print(width)
    }

    fn flows_text(&self, width: usize) -> String {
        let right = Align::Right;
        let mut table = TextTable::new(&[
            ("flow", Align::Left),
            ("Mb/s", right),
            ("of ideal", right),
            ("packets", right),
            ("lost", right),
            ("marked", right),
            ("one-way ms: least", right),
            ("mean", right),
            ("most", right),
        ]);
        let flows = self.flows();
        for (flow, share) in flows.iter().take(SHOWN) {
            // The ideal over less than a second is not reliable.
            let share = share.filter(|share| share.span >= WORTH_COMPARING);
            let delivered = flow.delivered > 0;
            let millis = |value: Option<f64>| value.map_or_else(|| "–".into(), |value| format!("{value:.2}"));
            table.row([
                self.name(&flow.tuple),
                format!("{:.2}", flow_rate(flow)),
                share.map_or_else(|| "–".into(), |share| format!("{:.0} %", share.part() * 100.0)),
                flow.packets.to_string(),
                lost(flow).to_string(),
                flow.marks.to_string(),
                millis(delivered.then(|| flow.delay_min.as_millis_f64())),
                millis(delay_mean(flow)),
                millis(delivered.then(|| flow.delay_max.as_millis_f64())),
            ]);
        }
        let mut text = table.print(width);
        if flows.len() > SHOWN {
            let _ = writeln!(text, "and {} more flows (--json and --out have them all)", flows.len() - SHOWN);
        }
        text
    }
}

/// A configured rate with at most three decimal places.
fn number(mbps: f64) -> String {
    if mbps >= 1e6 { "∞".into() } else { format!("{}", (mbps * 1e3).round() / 1e3) }
}

/// Upper bound of flows in the list.
const SHOWN: usize = 12;
