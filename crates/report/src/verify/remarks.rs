//! Remarks on a network outside of its bounds: known reasons that its run shows.

use tollway_law::toll::Content;
use tollway_scenario::plan::Plan;
use tollway_scenario::tables::RunResult;

use super::mean_of;
use crate::data::Window;
use crate::deviation::Deviation;
use crate::ideal::Steady;

/// Remarks on a run of `plan` with this `deviation`. `rates` are the theoretical rates of its
/// flows, in bits per second.
pub(super) fn remarks(
    plan: &Plan,
    result: &RunResult,
    steady: &Steady,
    rates: &[f64],
    deviation: &Deviation,
) -> Vec<String> {
    let window = Window { from: deviation.from_s, until: deviation.until_s };
    let mut remarks = moving_prices(plan, result, steady, window);
    remarks.extend(taken_by_queues(plan, result, steady, rates, window));
    remarks.extend(few_packets(plan, steady, rates, deviation));
    remarks
}

/// Links with moving prices. From the first half of the window to the second they change by more
/// than [`MOVING`], and the cost of a byte of some flow changes by more than [`FELT`].
fn moving_prices(plan: &Plan, result: &RunResult, steady: &Steady, window: Window) -> Vec<String> {
    let middle = 0.5 * (window.from + window.until);
    let halves = [Window { until: middle, ..window }, Window { from: middle, ..window }];
    let prices: Vec<[f64; 2]> = plan
        .links
        .iter()
        .map(|link| match link.law.descriptor().gives {
            Some(Content::Price) => halves.map(|half| mean_of(result, &link.name, "price", half)),
            _ => [0.0; 2],
        })
        .collect();
    let costs = |links: &[usize]| links.iter().map(|&l| prices[l][1]).sum::<f64>();
    let counts = |l: usize, change: f64| {
        let mut flows = steady.network.flows.iter().filter(|flow| flow.links.contains(&l));
        change.abs() > MOVING * prices[l][1] && flows.any(|flow| change.abs() > FELT * costs(&flow.links))
    };
    let links = plan.links.iter().zip(&prices).enumerate();
    links
        .filter(|(l, (_, [first, second]))| counts(*l, second - first))
        .map(|(_, (link, [first, second]))| {
            let way = if second > first { "rises" } else { "falls" };
            format!("the price of link {} still {way}, from {first:.4} to {second:.4} $/MB", link.name)
        })
        .collect()
}

/// Links whose law gives up more than [`TAKEN`] of the capacity to empty a queue that every waiting
/// packet renews.
fn taken_by_queues(
    plan: &Plan,
    result: &RunResult,
    steady: &Steady,
    rates: &[f64],
    window: Window,
) -> Vec<String> {
    let taken = |l: usize| {
        // The target rate falls by this times queue ∕ round trip.
        let weight = plan.links[l].law.descriptor().queue_weight;
        if weight == 0.0 {
            return None;
        }
        let crossing = steady.network.flows.iter().zip(&steady.directions).zip(rates);
        let (load, in_flight) = crossing.filter(|((flow, _), _)| flow.links.contains(&l)).fold(
            (0.0, 0.0),
            |(load, in_flight), ((_, direction), rate)| {
                (load + rate, in_flight + rate * direction.base_rtt.as_secs_f64())
            },
        );
        let queue = 8.0 * mean_of(result, &plan.links[l].name, "queue_mean_bytes", window);
        // The mean round trip is in_flight ∕ load.
        let part = weight * queue * load / (in_flight * steady.network.capacities[l]);
        (TAKEN..STANDS).contains(&part).then_some(part)
    };
    let remark = |(l, part): (usize, f64)| {
        let packets = mean_of(result, &plan.links[l].name, "queue_mean_packets", window);
        let percent = 100.0 * part;
        format!(
            "link {} withholds {percent:.1} % to drain a mean queue of {packets:.1} packets",
            plan.links[l].name
        )
    };
    (0..plan.links.len()).filter_map(|l| Some((l, taken(l)?))).map(remark).collect()
}

/// A remark if the worst flow crosses XCP links with a window of few packets, which makes its rate
/// coarse.
fn few_packets(plan: &Plan, steady: &Steady, rates: &[f64], deviation: &Deviation) -> Option<String> {
    let worst = deviation.worst();
    let f = steady.directions.iter().position(|direction| direction.name == worst.flow)?;
    let flow = &plan.flows[steady.directions[f].flow];
    let on_xcp =
        flow_links(steady, f).any(|l| plan.links[l].law.descriptor().gives == Some(Content::Feedback));
    let transport = &plan.transports[flow.transport.0 as usize];
    let packets =
        rates[f] * steady.directions[f].base_rtt.as_secs_f64() / (8.0 * f64::from(transport.packet_size));
    (on_xcp && packets < FEW)
        .then(|| format!("flow {} should have a window of {packets:.1} packets", worst.flow))
}

fn flow_links(steady: &Steady, flow: usize) -> impl Iterator<Item = usize> {
    steady.network.flows[flow].links.iter().copied()
}

/// Relative change of a price between the halves of a window that counts as steady. Queues of a
/// packet or two cause up to 2 %.
const MOVING: f64 = 0.05;
/// Relative change of a path's price from which it is mentioned.
const FELT: f64 = 0.005;
/// Fraction of a link taken by its queue from which it is mentioned.
const TAKEN: f64 = 0.01;
/// Fraction from which the queue has other causes.
const STANDS: f64 = 0.1;
/// Packets below which a window is small.
const FEW: f64 = 10.0;
