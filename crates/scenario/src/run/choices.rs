//! Flows that choose their class of traffic during a run.

use std::collections::BTreeMap;

use tollway_law::choice::{Chooser, Patience};
use tollway_law::sender::{AnySender, SenderLaw as _, Spender};
use tollway_law::{Rate, Time};
use tollway_proto::Change;
use tollway_sim::{End, FlowId};

use super::build::Built;
use super::engine::{Engine, Part};
use crate::plan::{Plan, TransportId};
use crate::tables::SystemTables;

/// All flows with a patience: each chooses between its class and no class.
#[derive(Default)]
pub(super) struct Choices {
    flows: BTreeMap<FlowId, Choice>,
    /// Stopped flows of the file: name, class and time in the class.
    past: Vec<(String, u8, Inside)>,
}

struct Choice {
    chooser: Chooser<Patience>,
    /// The class that the flow may choose.
    class: u8,
    /// The flow's name; `None` for a flow of a workload.
    name: Option<String>,
    inside: Inside,
}

/// The time that a flow has spent in its class.
#[derive(Clone, Copy)]
struct Inside {
    start: Time,
    /// Instant of the latest change.
    since: Time,
    sum: Time,
}

impl Choices {
    /// The next instant at which a flow chooses.
    pub(super) fn next(&self) -> Time {
        self.flows.values().map(|choice| choice.chooser.poll_timeout()).min().unwrap_or(Time::NEVER)
    }

    /// Adds a flow that is about to start.
    pub(super) fn join(
        &mut self,
        plan: &Plan,
        now: Time,
        flow: FlowId,
        transport: TransportId,
        name: Option<&str>,
    ) {
        let transport = &plan.transports[transport.0 as usize];
        if let Some(patience) = transport.law.descriptor().spends.and_then(|spends| spends.patience) {
            let choice = Choice {
                chooser: Chooser::new(Patience(patience)),
                class: transport.class,
                name: name.map(str::to_owned),
                inside: Inside { start: now, since: now, sum: Time::ZERO },
            };
            self.flows.insert(flow, choice);
        }
    }

    /// Removes a flow that has sent all its data or was stopped.
    pub(super) fn left(&mut self, now: Time, flow: FlowId) {
        if let Some(mut choice) = self.flows.remove(&flow) {
            choice.inside.turn(now, choice.chooser.in_class());
            self.past.extend(choice.name.map(|name| (name, choice.class, choice.inside)));
        }
    }

    /// Lets flows that are due choose by their rate and delay.
    pub(super) fn tick<E: Engine>(&mut self, built: &mut Built<E>) {
        let now = built.network.now();
        for (&flow, choice) in self.flows.iter_mut().filter(|(_, c)| c.chooser.poll_timeout() <= now) {
            let connection = built.network.connection(flow, End::Client);
            let rtt = connection.srtt();
            let delay = rtt.saturating_sub(connection.min_rtt());
            let before = choice.chooser.in_class();
            if choice.chooser.look(now, rate(connection.law()), delay, rtt) {
                choice.inside.turn(now, before);
                let class = if before { 0 } else { choice.class };
                built.network.change(Part::Flow(flow), Change::Class(class));
            }
        }
    }

    /// Reports the fraction of its time that each flow of the file spent in its class.
    pub(super) fn report(&self, now: Time, plan: &Plan, tables: &mut SystemTables) {
        let running = self.flows.values().filter_map(|choice| {
            let mut inside = choice.inside;
            inside.turn(now, choice.chooser.in_class());
            choice.name.as_ref().map(|name| (name, choice.class, inside))
        });
        let past = self.past.iter().map(|(name, class, inside)| (name, *class, *inside));
        for (name, class, inside) in past.chain(running) {
            let class = &plan.classes[usize::from(class) - 1].name;
            let time = inside.since.saturating_sub(inside.start).as_secs_f64();
            if time > 0.0 {
                let part = inside.sum.as_secs_f64() / time;
                tables.set("choices", &[("flow", name), ("class", class)], "time_in_class", part);
            }
        }
    }
}

impl Inside {
    /// Accounts for the time until `now`, inside the class or not.
    fn turn(&mut self, now: Time, was_inside: bool) {
        if was_inside {
            self.sum += now.saturating_sub(self.since);
        }
        self.since = now;
    }
}

/// The rate at which a flow spends its budget at the present price; zero while the price is
/// unknown.
fn rate(law: &AnySender) -> Rate {
    let by_price = |law: &dyn Spender| Some(Rate::from_bytes_per_sec(law.spending() / law.price()?.get()));
    law.spender().and_then(by_price).unwrap_or(Rate::ZERO)
}
