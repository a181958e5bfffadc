//! The ideal rates of flows: the max–min fair shares, interval by interval.

use std::collections::BTreeMap;

use tollway_law::{Rate, Time};
use tollway_scenario::plan::{Link, Plan};
use tollway_scenario::run::mesh::route;
use tollway_theory::{Network, max_min};

use crate::{FlowRecord, Mesh, Outcome, Spec};

/// A flow's bytes and its ideal bytes, over its intervals without the first and the last, which it
/// may use only in part.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct FlowShare {
    /// Total length of these intervals.
    pub(super) span: Time,
    /// Bytes delivered in them.
    got: f64,
    /// Bytes of the max–min fair share in them.
    ideal: f64,
}

impl FlowShare {
    /// The bytes delivered as a part of the ideal.
    pub(super) fn part(&self) -> f64 {
        self.got / self.ideal.max(f64::MIN_POSITIVE)
    }

    pub(super) fn ideal_mbps(&self) -> f64 {
        self.ideal * 8e-6 / self.span.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// The shares of flows that carry bulk data. Other flows take their bytes first.
///
/// In each interval the active flows divide the links' capacity by max–min fairness, as if each
/// always had data to send. A flow below its share may have had less to send: the share is a
/// measure, and no defect is implied.
pub(super) fn shares(plan: &Plan, spec: &Spec, outcome: &Outcome) -> Vec<Option<FlowShare>> {
    let flows = &outcome.record.flows;
    let routes: Vec<Vec<usize>> = flows.iter().map(|flow| route(&spec.mesh, flow.from, flow.to)).collect();
    let mut shares: Vec<Option<FlowShare>> =
        flows.iter().map(|flow| earnest(flow).then(FlowShare::default)).collect();
    // Bytes of each flow by interval.
    let mut intervals: BTreeMap<u32, Vec<(usize, u64)>> = BTreeMap::new();
    for (i, flow) in flows.iter().enumerate() {
        for &(interval, bytes) in &flow.rates {
            intervals.entry(interval).or_default().push((i, bytes));
        }
    }
    for (&interval, active) in &intervals {
        let from = Mesh::INTERVAL * u64::from(interval);
        let mut network = Network::new();
        for (link, record) in plan.links.iter().zip(&outcome.record.links) {
            network.link(capacity(link, &record.rates, from, from + Mesh::INTERVAL));
        }
        let mut ours = Vec::new();
        for &(i, bytes) in active {
            if shares[i].is_some() {
                network.flow(routes[i].clone());
                ours.push((i, bytes));
            } else {
                for &link in &routes[i] {
                    let left = network.capacities[link] - bytes as f64;
                    network.capacities[link] = left.max(0.0);
                }
            }
        }
        let Ok(ideal) = max_min(&network) else { continue };
        for (&(i, bytes), ideal) in ours.iter().zip(ideal) {
            let flow = &flows[i];
            let edge =
                [flow.rates.first(), flow.rates.last()].into_iter().flatten().any(|end| end.0 == interval);
            if let Some(share) = shares[i].as_mut().filter(|_| !edge) {
                share.span += Mesh::INTERVAL;
                share.got += bytes as f64;
                share.ideal += ideal;
            }
        }
    }
    shares.iter_mut().for_each(|share| *share = share.filter(|share| share.span > Time::ZERO));
    shares
}

/// Bytes that a link could carry from `from` to `until`; its rate changes at each of `changes`.
fn capacity(link: &Link, changes: &[(Time, Rate)], from: Time, until: Time) -> f64 {
    let first = changes.first().map_or(until, |change| change.0.clamp(from, until));
    let mut bytes = match &link.trace {
        Some(trace) => trace.bytes_between(from, first) as f64,
        None => link.rate.bytes_in(first.saturating_sub(from)),
    };
    for (i, &(at, rate)) in changes.iter().enumerate() {
        let next = changes.get(i + 1).map_or(until, |next| next.0);
        bytes += rate.bytes_in(next.clamp(from, until).saturating_sub(at.clamp(from, until)));
    }
    bytes
}

/// True if a flow carries more than acknowledgements and a few messages.
fn earnest(flow: &FlowRecord) -> bool {
    flow.delivered_bytes >= 15_000 && 2 * flow.payload_bytes >= flow.delivered_bytes
}

#[cfg(test)]
mod tests {
    use crate::two_nodes;
    use tollway_scenario::file::Scenario;

    use super::*;

    #[test]
    fn a_link_can_carry_what_its_rates_let_it() {
        let text = two_nodes("10Mbps", None, 1).unwrap();
        let plan = Scenario::parse::<&str>("--link", &text, &[]).unwrap().variants()[0].plan.clone();
        let ms = Time::from_millis;
        let changes = [(ms(50), Rate::from_mbps(2.0)), (ms(90), Rate::from_mbps(4.0))];
        let carried = |changes, from, until| capacity(&plan.links[0], changes, ms(from), ms(until)).round();
        assert_eq!(carried(&[], 0, 100), 125_000.0);
        // 50 ms at 10 Mb/s, 40 ms at 2 and 10 ms at 4.
        assert_eq!(carried(&changes, 0, 100), 77_500.0);
        assert_eq!(carried(&changes, 60, 80), 5_000.0);
        assert_eq!(carried(&changes, 200, 300), 50_000.0);
    }
}
