//! What the file says happens on the way, in order of time.

use std::collections::BTreeMap;

use tollway_law::link::AnyLink;
use tollway_law::{Budget, Time};

use super::build::Built;
use super::engine::Engine;
use super::hosts::Hosts;
use crate::plan::{LinkId, Plan, What};

/// The instants of a plan at which something changes.
pub(super) struct Agenda {
    /// By time, and in the file's order where times are equal.
    entries: Vec<(Time, Entry)>,
    at: usize,
    /// Until when links are dark: blackouts may overlap.
    dark: BTreeMap<LinkId, Time>,
}

#[derive(Clone, Copy)]
enum Entry {
    Change(usize),
    BlackoutEnds(LinkId),
    LossBegins(usize),
    LossEnds(usize),
}

impl Agenda {
    pub(super) fn new(plan: &Plan) -> Agenda {
        let mut entries = Vec::new();
        for (i, change) in plan.changes.iter().enumerate() {
            entries.push((change.at, Entry::Change(i)));
            if let What::Blackout(link, until) = change.what {
                entries.push((until, Entry::BlackoutEnds(link)));
            }
        }
        for (i, loss) in plan.losses.iter().enumerate() {
            entries.push((loss.from, Entry::LossBegins(i)));
            entries.push((loss.until, Entry::LossEnds(i)));
        }
        entries.sort_by_key(|entry| entry.0);
        Agenda { entries, at: 0, dark: BTreeMap::new() }
    }

    /// When something changes next.
    pub(super) fn next(&self) -> Time {
        self.entries.get(self.at).map_or(Time::NEVER, |entry| entry.0)
    }

    /// Applies everything that is due.
    pub(super) fn apply<E: Engine>(&mut self, plan: &Plan, built: &mut Built<E>, hosts: &mut Hosts) {
        while self.next() <= built.network.now() {
            let (_, entry) = self.entries[self.at];
            self.at += 1;
            match entry {
                Entry::BlackoutEnds(link) if built.network.now() < self.dark[&link] => {}
                Entry::BlackoutEnds(link) => built.network.set_blackout(built.links[link.0 as usize], false),
                Entry::LossBegins(i) => built.set_loss(plan.losses[i].link, Some(i), Some(&plan.losses[i])),
                Entry::LossEnds(i) => built.set_loss(plan.losses[i].link, Some(i), None),
                Entry::Change(i) => {
                    let what = plan.changes[i].what;
                    if let What::Blackout(link, until) = what {
                        let dark = self.dark.entry(link).or_default();
                        *dark = until.max(*dark);
                    }
                    apply(what, built, hosts);
                }
            }
        }
    }
}

fn apply<E: Engine>(what: What, built: &mut Built<E>, hosts: &mut Hosts) {
    let link = |built: &Built<E>, link: LinkId| built.links[link.0 as usize];
    match what {
        What::Rate(on, rate) => built.network.set_rate(link(built, on), rate),
        What::Delay(on, delay) => built.network.set_delay(link(built, on), delay),
        What::Capacity(on, capacity) => built.network.set_capacity(link(built, on), capacity),
        What::Limit(on, limit) => built.network.set_limit(link(built, on), limit),
        What::Blackout(on, _) => built.network.set_blackout(link(built, on), true),
        What::Loss(on, probability) => built.set_base_loss(on, probability),
        What::PriceError(on, error) => built.network.with_law(link(built, on), |law| {
            if let AnyLink::Fcp(router) = law {
                router.set_price_error(error);
            }
        }),
        What::FlowBudget(flow, budget) => {
            let flow = built.flows[flow.0 as usize];
            built.set_budget(flow, Budget::per_sec(budget));
        }
        What::HostBudget(host, budget) => hosts.set_budget(built.network.now(), host, budget),
        What::HostStrategy(host, strategy) => hosts.set_strategy(built.network.now(), host, strategy),
        What::ReceiveBuffer(flow, packets) => {
            let flow = built.flows[flow.0 as usize];
            built.network.set_receive_buffer(flow, packets);
        }
    }
}
