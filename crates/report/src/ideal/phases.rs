//! Max–min fair rates over the phases of a run, computed by classes of flows.
//!
//! Flows over the same shared links with the same weight, demand and acknowledgements have the same
//! rate. So a phase costs as much as it has classes, and the start or end of a flow costs only that
//! flow.

use std::collections::{BTreeSet, HashMap};

use tollway_law::Time;
use tollway_proto::Change;
use tollway_scenario::plan::{Plan, What};
use tollway_theory::{Flow, MaxMin, NetworkError};

use super::{State, begin, dark_instants, end};

/// The plan's directions of data by class, during a run.
pub(super) struct Classes {
    all: Vec<Class>,
    /// The class of each direction of the plan's flows.
    of: Vec<usize>,
    /// The links of the reduced network: those of the plan that more than one flow can need.
    links: Vec<usize>,
}

/// Directions of data with equal rates.
struct Class {
    /// One of them, over the reduced network.
    one: Flow,
    /// The rate of the acknowledgements as a fraction of the data's, and their links in the reduced
    /// network.
    acks: (f64, Vec<usize>),
    /// Number of its flows present now.
    members: usize,
    /// Bits of one flow of the class, if present from the beginning.
    bits: f64,
}

/// The key of a class: links; weight, demand and acknowledgements' fraction as bits; links of the
/// acknowledgements.
type Key = (Vec<usize>, [u64; 3], Vec<usize>);

impl Classes {
    /// The classes of all directions in `state`. `capacities` are those of the plan's links.
    pub(super) fn new(plan: &Plan, state: &State<'_>, capacities: &[f64]) -> Classes {
        let shared = shared(plan, state);
        let mut links = Vec::new();
        let mut place = vec![usize::MAX; plan.links.len()];
        for l in (0..plan.links.len()).filter(|&l| shared[l] == Shared::Yes) {
            place[l] = links.len();
            links.push(l);
        }
        let mut known: HashMap<Key, usize> = HashMap::new();
        let mut all = Vec::new();
        let of = state.ways.iter().map(|way| {
            let transport = &plan.transports[plan.flows[way.of].transport.0 as usize];
            let (shared_links, own): (Vec<usize>, Vec<usize>) =
                way.flow.links.iter().partition(|&&l| shared[l] == Shared::Yes);
            // A link of one flow only is a bound on its rate.
            let demand = own.iter().fold(way.flow.demand, |least, &l| least.min(capacities[l]));
            let links: Vec<usize> = shared_links.iter().map(|&l| place[l]).collect();
            let mut acks = (0.0, Vec::new());
            if !transport.both_ways {
                let back = plan.flows[way.of].path.back.iter().map(|link| place[link.0 as usize]);
                acks.1 = back.filter(|&l| l != usize::MAX).collect();
                if !acks.1.is_empty() {
                    let each = if transport.delayed_ack.is_some() { 0.5 } else { 1.0 };
                    acks.0 = each * f64::from(transport.ack_size) / f64::from(transport.packet_size);
                }
            }
            let numbers = [way.flow.weight, demand, acks.0].map(f64::to_bits);
            *known.entry((links.clone(), numbers, acks.1.clone())).or_insert_with(|| {
                let one = Flow { links, weight: way.flow.weight, demand };
                all.push(Class { one, acks, members: 0, bits: 0.0 });
                all.len() - 1
            })
        });
        let of = of.collect();
        Classes { all, of, links }
    }

    /// The number of classes.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Adds a phase of `seconds`, in which `capacities` are those of the plan's links.
    fn pass(&mut self, capacities: &[f64], filling: &mut MaxMin, seconds: f64) -> Result<(), NetworkError> {
        let there: Vec<usize> = (0..self.all.len()).filter(|&c| self.all[c].members > 0).collect();
        let flows: Vec<Flow> = there
            .iter()
            .map(|&c| {
                let Class { one, members, .. } = &self.all[c];
                let (weight, demand) = (one.weight * *members as f64, one.demand * *members as f64);
                Flow { links: one.links.clone(), weight, demand }
            })
            .collect();
        let mut free: Vec<f64> = self.links.iter().map(|&l| capacities[l]).collect();
        let mut carries = vec![false; free.len()];
        flows.iter().flat_map(|flow| &flow.links).for_each(|&l| carries[l] = true);
        let acks = |c: usize| self.all[c].acks.1.iter().copied().filter(|&l| carries[l]);
        if there.iter().any(|&c| acks(c).next().is_some()) {
            let rates = filling.rates(&free, &flows)?.to_vec();
            for (&c, rate) in there.iter().zip(rates) {
                for l in acks(c) {
                    free[l] = (free[l] - rate * self.all[c].acks.0).max(0.0);
                }
            }
        }
        let rates = filling.rates(&free, &flows)?;
        for (&c, rate) in there.iter().zip(rates) {
            let class = &mut self.all[c];
            class.bits += rate / class.members as f64 * seconds;
        }
        Ok(())
    }
}

/// The use of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shared {
    /// No data cross the link.
    Idle,
    /// The data of one flow in one direction, and nothing else, at constant capacity.
    No,
    Yes,
}

/// The use of each of the plan's links.
fn shared(plan: &Plan, state: &State<'_>) -> Vec<Shared> {
    let mut shared = vec![Shared::Idle; plan.links.len()];
    for &l in state.ways.iter().flat_map(|way| &way.flow.links) {
        shared[l] = if shared[l] == Shared::Idle { Shared::No } else { Shared::Yes };
    }
    let changing = plan.events.iter().filter_map(|event| match event.what {
        What::Link(link, Change::Rate(_)) | What::Blackout(link, _) => Some(link),
        _ => None,
    });
    let acks = plan.flows.iter().filter(|flow| !plan.transports[flow.transport.0 as usize].both_ways);
    let others = plan.cbrs.iter().flat_map(|cbr| cbr.route.iter().copied());
    let others = others.chain(changing).chain(acks.flat_map(|flow| flow.path.back.iter().copied()));
    for link in others {
        let link = &mut shared[link.0 as usize];
        if *link == Shared::No {
            *link = Shared::Yes;
        }
    }
    shared
}

/// The bits of each direction of the plan's flows during its life, between the first and the last
/// of `instants`.
pub(super) fn bits(plan: &Plan, mut state: State<'_>, instants: &[Time]) -> Result<Vec<f64>, NetworkError> {
    let ways = state.ways.len();
    let life: Vec<(Time, Time)> =
        state.ways.iter().map(|way| (begin(plan, way.of), end(plan, way.of))).collect();
    let lives = |w: &usize| life[*w].0 < life[*w].1;
    let by = |key: &dyn Fn(usize) -> Time| {
        let mut order: Vec<usize> = (0..ways).filter(lives).collect();
        order.sort_by_key(|&w| key(w));
        order.into_iter().peekable()
    };
    let (mut coming, mut going) = (by(&|w| life[w].0), by(&|w| life[w].1));
    let moved: BTreeSet<Time> = dark_instants(plan)
        .chain(plan.events.iter().map(|event| event.at.max(plan.measure.warmup)))
        .collect();
    let mut filling = MaxMin::default();
    let (mut bits, mut since) = (vec![0.0; ways], vec![0.0; ways]);
    let mut present = vec![false; ways];
    let mut known: Option<(Classes, Vec<f64>)> = None;
    for phase in instants.windows(2) {
        let demands_changed = state.advance(plan, phase[0]);
        // The rate of cross-traffic differs in every phase.
        if known.is_none() || moved.contains(&phase[0]) || !plan.cbrs.is_empty() {
            let capacities = state.capacities(plan, phase[0], phase[1]);
            known = Some(match known.take() {
                Some((classes, _)) if !demands_changed => (classes, capacities),
                old => {
                    // Flows that are present continue in their new classes.
                    let mut classes = Classes::new(plan, &state, &capacities);
                    for w in (0..ways).filter(|&w| present[w]) {
                        if let Some((old, _)) = &old {
                            bits[w] += old.all[old.of[w]].bits - since[w];
                        }
                        since[w] = 0.0;
                        classes.all[classes.of[w]].members += 1;
                    }
                    (classes, capacities)
                }
            });
        }
        let Some((classes, capacities)) = &mut known else { break };
        while let Some(w) = going.next_if(|&w| life[w].1 <= phase[0]) {
            let class = &mut classes.all[classes.of[w]];
            class.members -= 1;
            bits[w] += class.bits - since[w];
            present[w] = false;
        }
        while let Some(w) = coming.next_if(|&w| life[w].0 <= phase[0]) {
            let class = &mut classes.all[classes.of[w]];
            class.members += 1;
            since[w] = class.bits;
            present[w] = true;
        }
        classes.pass(capacities, &mut filling, (phase[1] - phase[0]).as_secs_f64())?;
    }
    if let Some((classes, _)) = &known {
        for w in (0..ways).filter(|&w| present[w]) {
            bits[w] += classes.all[classes.of[w]].bits - since[w];
        }
    }
    Ok(bits)
}
