//! What an ideal allocation gives the flows of a plan.

use tollway_law::Time;
use tollway_scenario::plan::{Data, Plan, What};
use tollway_theory::{Flow, Network, max_min};

/// The weighted max–min fair rate of each flow of the file, Mb/s, as a mean over its life after the warm-up: flows that
/// join and leave and links that change their rate make phases, each with an allocation of its own.
///
/// `None` for flows that end when their data do, and for all where the ideal isn't defined by the file alone: a
/// workload's flows come by chance, and a shared medium has no capacity of its own for each direction. A flow that a
/// buffer holds back is given what the buffer lets through in a round trip without queues.
pub fn ideal_mbps(plan: &Plan) -> Vec<Option<f64>> {
    let none = || vec![None; plan.flows.len()];
    if !plan.workloads.is_empty() || !plan.media.is_empty() || plan.flows.is_empty() {
        return none();
    }
    if plan.flows.iter().any(|flow| flow.data != Data::Endless) {
        return none();
    }
    let begin = |i: usize| plan.flows[i].start.max(plan.measure.warmup);
    let end = |i: usize| plan.flows[i].stop.min(plan.duration);
    let mut instants: Vec<Time> = (0..plan.flows.len()).flat_map(|i| [begin(i), end(i)]).collect();
    // What the file changes at the start or before the warm-up's end counts from the first phase on.
    instants.extend(plan.changes.iter().map(|change| change.at));
    instants.retain(|&at| at <= plan.duration);
    instants.sort_unstable();
    instants.dedup();
    if instants.len().saturating_mul(plan.flows.len()) > MOST_WORK {
        return none();
    }
    let mut capacities = capacities(plan);
    let mut rates_bps: Vec<f64> = plan.links.iter().map(|link| link.rate.bps()).collect();
    let mut bits = vec![0.0; plan.flows.len()];
    let mut buffers: Vec<u32> =
        plan.flows.iter().map(|flow| flow.receive_buffer.min(flow.send_buffer)).collect();
    let mut changes = plan.changes.iter().peekable();
    for phase in instants.windows(2) {
        while let Some(change) = changes.next_if(|change| change.at <= phase[0]) {
            match change.what {
                What::Rate(link, rate) => {
                    let link = link.0 as usize;
                    capacities[link] *= rate.bps() / rates_bps[link].max(1.0);
                    rates_bps[link] = rate.bps();
                }
                What::ReceiveBuffer(flow, packets) => {
                    buffers[flow.0 as usize] = packets.min(plan.flows[flow.0 as usize].send_buffer);
                }
                _ => {}
            }
        }
        let active: Vec<usize> =
            (0..plan.flows.len()).filter(|&i| begin(i) <= phase[0] && phase[1] <= end(i)).collect();
        let network = Network {
            capacities: capacities.clone(),
            flows: active.iter().map(|&i| flow(plan, i, buffers[i])).collect(),
        };
        let Ok(rates) = max_min(&network) else { return none() };
        let seconds = (phase[1] - phase[0]).as_secs_f64();
        for (&i, rate) in active.iter().zip(rates) {
            bits[i] += rate * seconds;
        }
    }
    let mean = |i: usize| {
        let seconds = end(i).saturating_sub(begin(i)).as_secs_f64();
        (seconds > 0.0).then(|| bits[i] / seconds * 1e-6)
    };
    (0..plan.flows.len()).map(mean).collect()
}

/// What packets of the flows that cross each link get of its bits a second, framing and cross-traffic taken off.
fn capacities(plan: &Plan) -> Vec<f64> {
    let mut capacities: Vec<f64> = plan.links.iter().map(|link| link.rate.bps()).collect();
    for cbr in &plan.cbrs {
        let on = cbr.on_off.map_or(1.0, |(on, off)| on.as_secs_f64() / (on + off).as_secs_f64());
        for link in &cbr.route {
            let framing = f64::from(plan.links[link.0 as usize].overhead) / f64::from(cbr.packet_size);
            capacities[link.0 as usize] -= cbr.rate.bps() * on * (1.0 + framing);
        }
    }
    let mut size = vec![0u16; plan.links.len()];
    for flow in &plan.flows {
        for link in &flow.path.route {
            let packet = plan.transports[flow.transport.0 as usize].packet_size;
            size[link.0 as usize] = size[link.0 as usize].max(packet);
        }
    }
    for ((capacity, link), &size) in capacities.iter_mut().zip(&plan.links).zip(&size) {
        let size = f64::from(size.max(1));
        *capacity = capacity.max(0.0) * size / (size + f64::from(link.overhead));
    }
    capacities
}

/// A flow as theory sees it: its links, its weight, and what buffers of `window` packets let through.
fn flow(plan: &Plan, i: usize, window: u32) -> Flow {
    let flow = &plan.flows[i];
    let transport = &plan.transports[flow.transport.0 as usize];
    let rtt = flow.path.base_rtt.as_secs_f64();
    let demand = if window == u32::MAX || rtt == 0.0 {
        f64::INFINITY
    } else {
        f64::from(window) * f64::from(transport.packet_size) * 8.0 / rtt
    };
    let links = flow.path.route.iter().map(|link| link.0 as usize).collect();
    Flow { links, weight: transport.weight, demand }
}

/// Phases times flows up to which the ideal is worth its time: about a second.
const MOST_WORK: usize = 20_000_000;
