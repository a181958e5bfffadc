//! The file's events, by time.

use tollway_law::Time;
use tollway_sim::LinkId;

use super::build::Built;
use super::build::sessions;
use super::engine::{Engine, Part};
use super::hosts::Hosts;
use crate::plan::{Event, Plan, What};

/// The events of a plan that are still to come.
pub(super) struct Agenda(std::iter::Peekable<std::vec::IntoIter<Event>>);

impl Agenda {
    pub(super) fn new(plan: &Plan) -> Agenda {
        Agenda(plan.timeline().into_iter().peekable())
    }

    /// The time of the next event.
    pub(super) fn next(&mut self) -> Time {
        self.0.peek().map_or(Time::NEVER, |event| event.at)
    }

    /// Applies all events that are due.
    pub(super) fn apply<E: Engine>(&mut self, plan: &Plan, built: &mut Built<E>, hosts: &mut Hosts) {
        let now = built.network.now();
        while self.next() <= now
            && let Some(event) = self.0.next()
        {
            apply(event.what, plan, built, hosts);
        }
    }
}

fn apply<E: Engine>(what: What, plan: &Plan, built: &mut Built<E>, hosts: &mut Hosts) {
    match what {
        What::Link(link, change) => built.network.change(Part::Link(LinkId(link.0)), change),
        What::Flow(flow, change) => built.network.change(Part::Flow(built.flows[flow.0 as usize]), change),
        What::HostBudget(host, budget) => hosts.set_budget(built.network.now(), host, budget),
        What::HostStrategy(host, strategy) => hosts.set_strategy(built.network.now(), host, strategy),
        What::Shares(switch, shares) => sessions::set_shares(built, switch, &shares),
        What::Leave(switch, node) => sessions::leave(plan, built, switch, node),
        // The timeline has changes of links in place of these.
        What::Loss(..) | What::Blackout(..) => {}
    }
}
