//! Settings without effect. Without a note, a user may take their absence from the results for a
//! result.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use tollway_law::meter::Duty;
use tollway_law::toll::Content;
use tollway_proto::Change;

use super::Resolver;
use super::keys;
use crate::plan::{Data, Flow, Plan, Strategy, Transport, What};

impl Resolver<'_> {
    /// Notes settings without effect in this variant; the user sees a note only if it holds in all
    /// variants.
    pub(super) fn idle(&mut self) {
        let mut notes = self.without_senders();
        notes.extend(self.unwanted());
        notes.extend(self.too_large());
        notes.extend(self.silent());
        notes.extend(self.absurd());
        let (interval, end) = (self.plan.measure.interval, self.plan.duration);
        if let Some(interval) = interval.filter(|interval| *interval > end)
            && self.top.table("measure", &keys::MEASURE).has("interval")
        {
            notes.push(format!(
                "the run ends at {end}, within the first `measure.interval` of {interval}: interval tables \
                have one row for each flow and link"
            ));
        }
        if !self.plan.port_changes.is_empty() {
            notes.push("changes of a `port` have no effect here: they are of `tollway exec`".into());
        }
        notes.into_iter().for_each(|note| self.files.note_idle(note));
    }

    /// Meters and borders for laws that no sender has.
    fn without_senders(&self) -> Vec<String> {
        let any =
            |content| self.plan.transports.iter().any(|one| one.law.descriptor().reads == Some(content));
        let (xcp, fcp) = (any(Content::Feedback), any(Content::Price));
        let mut notes = Vec::new();
        for link in &self.plan.links {
            let of_meter = link.meter.as_deref().and_then(|meter| match meter.duty {
                Duty::Windows => (!xcp).then_some(("meter", "XCP")),
                Duty::Budget(_) => (!fcp).then_some(("meter.budget", "FCP")),
                Duty::Balance => (!fcp).then_some(("meter.balance", "FCP")),
            });
            let of_border = link.exchange.as_deref().filter(|_| !fcp).map(|_| ("exchange", "FCP"));
            for (key, law) in of_meter.into_iter().chain(of_border) {
                notes.push(format!(
                    "link `{}`: `{key}` has no effect, since no sender has the law {law}",
                    link.name
                ));
            }
        }
        notes
    }

    /// Desired rates of flows whose hosts ignore them.
    fn unwanted(&self) -> Option<String> {
        let Plan { flows, workloads, hosts, events, transports, .. } = &self.plan;
        let mut stable: BTreeSet<usize> =
            (0..hosts.len()).filter(|&host| hosts[host].strategy == Strategy::Stable).collect();
        stable.extend(events.iter().filter_map(|event| match event.what {
            What::HostStrategy(host, Strategy::Stable) => Some(host),
            _ => None,
        }));
        let wants = |transport: &Transport| {
            transport.law.descriptor().spends.is_some_and(|spends| spends.wants.is_some())
        };
        let of_flows: BTreeSet<u32> =
            stable.iter().flat_map(|&host| &hosts[host].flows).map(|flow| flow.0).collect();
        let of_workloads: BTreeSet<usize> =
            stable.iter().flat_map(|&host| &hosts[host].workloads).copied().collect();
        let idle_flows = (0..)
            .zip(flows)
            .filter(|(i, flow)| wants(&transports[flow.transport.0 as usize]) && !of_flows.contains(i));
        let idle_workloads = workloads.iter().enumerate().filter(|(i, workload)| {
            wants(&transports[workload.transport.0 as usize]) && !of_workloads.contains(i)
        });
        let names = idle_flows.map(|(_, flow)| format!("flow `{}`", flow.name));
        let names = names.chain(idle_workloads.map(|(_, workload)| format!("workload `{}`", workload.name)));
        few(names).map(|names| {
            format!("`fcp.wants` has no effect without a host whose strategy is `stable`: {names}")
        })
    }

    /// Packets that a queue on their path cannot hold even if it is empty.
    fn too_large(&self) -> Option<String> {
        let Plan { flows, transports, links, events, .. } = &self.plan;
        let changed: BTreeSet<u32> = events
            .iter()
            .filter_map(|event| match event.what {
                What::Link(link, Change::Limit(_)) => Some(link.0),
                _ => None,
            })
            .collect();
        let largest = |flow: &Flow| {
            let transport = &transports[flow.transport.0 as usize];
            let payload = match flow.data {
                Data::Endless | Data::Messages => u64::MAX,
                Data::Bytes(bytes) => bytes,
                Data::Frames { size, .. } => size,
            };
            payload.saturating_add(u64::from(transport.header)).min(u64::from(transport.packet_size))
        };
        let stuck = flows.iter().filter_map(|flow| {
            let size = largest(flow);
            let short = |link: &&crate::plan::LinkId| {
                links[link.0 as usize].law.limit.bytes < size && !changed.contains(&link.0)
            };
            let link = flow.path.route.iter().find(short)?;
            let link = &links[link.0 as usize];
            Some(format!(
                "flow `{}` ({size} B, and `{}` holds {} B)",
                flow.name, link.name, link.law.limit.bytes
            ))
        });
        few(stuck).map(|stuck| {
            format!(
                "all packets of these flows are lost, since they are larger than a queue on their path: \
                {stuck}"
            )
        })
    }
}

impl Resolver<'_> {
    /// A scenario in which nothing is sent.
    fn silent(&self) -> Option<String> {
        let Plan { flows, workloads, cbrs, overlay, .. } = &self.plan;
        let silent = flows.is_empty() && workloads.is_empty() && cbrs.is_empty() && overlay.is_none();
        silent.then(|| {
            "nothing is sent: the file has no `[flow.NAME]`, `[workload.NAME]` or `[cbr.NAME]`".to_owned()
        })
    }

    /// Links whose rates probably have a wrong unit.
    fn absurd(&self) -> Option<String> {
        let absurd = self.plan.links.iter().filter(|link| !PLAUSIBLE_BPS.contains(&link.rate.bps()));
        let names = absurd.map(|link| {
            let wait = link.rate.time_for(1500);
            format!("`{}` ({}, {wait} for a packet of 1500 B)", link.name, link.rate)
        });
        few(names).map(|names| format!("check the unit of these links' rates: {names}"))
    }
}

/// Plausible rates, bit/s: a packet of 1500 B takes more than a second on a slower link, and about a
/// nanosecond, the resolution of time, on a faster one.
const PLAUSIBLE_BPS: RangeInclusive<f64> = 12e3..=1e13;

/// The first name and the number of the others.
fn few(mut all: impl Iterator<Item = String>) -> Option<String> {
    let first = all.next()?;
    Some(match all.count() {
        0 => first,
        more => format!("{first} and {more} more"),
    })
}
