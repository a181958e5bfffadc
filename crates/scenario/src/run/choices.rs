//! Flows that choose their class of traffic while a run is on.

use std::collections::BTreeMap;

use tollway_law::choice::{Chooser, Patience};
use tollway_law::sender::{AnySender, SenderLaw as _, Spender};
use tollway_law::{Rate, Time};
use tollway_proto::FlowChange;
use tollway_sim::{End, FlowId};

use super::build::Built;
use super::engine::Engine;
use crate::plan::{Plan, TransportId};
use crate::tables::SystemTables;

/// Every flow that has a patience, and so a choice.
#[derive(Default)]
pub(super) struct Choices {
    flows: BTreeMap<FlowId, Choice>,
    /// What became of flows of the file that have stopped, by name.
    past: Vec<(String, u8, Inside)>,
}

struct Choice {
    chooser: Chooser<Patience>,
    /// Which class it may be in.
    class: u8,
    /// Its name, if it is one of the file's.
    name: Option<String>,
    inside: Inside,
}

/// How long a flow has been in its class.
#[derive(Clone, Copy)]
struct Inside {
    start: Time,
    /// Since when it is where it is.
    since: Time,
    sum: Time,
}

impl Choices {
    /// When a flow is to be looked at.
    pub(super) fn next(&self) -> Time {
        self.flows.values().map(|choice| choice.chooser.poll_timeout()).min().unwrap_or(Time::NEVER)
    }

    /// A flow is about to start.
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

    /// A flow has sent all it had, or was stopped.
    pub(super) fn left(&mut self, now: Time, flow: FlowId) {
        if let Some(mut choice) = self.flows.remove(&flow) {
            choice.inside.turn(now, choice.chooser.in_class());
            self.past.extend(choice.name.map(|name| (name, choice.class, choice.inside)));
        }
    }

    /// Shows those who are due what they get.
    pub(super) fn tick<E: Engine>(&mut self, built: &mut Built<E>) {
        let now = built.network.now();
        for (&flow, choice) in self.flows.iter_mut().filter(|(_, c)| c.chooser.poll_timeout() <= now) {
            let connection = built.network.connection(flow, End::Client);
            let rtt = connection.srtt();
            let delay = rtt.saturating_sub(connection.min_rtt());
            let before = choice.chooser.in_class();
            if choice.chooser.look(now, rate(connection.law()), delay, rtt) {
                choice.inside.turn(now, before);
                built.network.change_flow(flow, FlowChange::Class(if before { 0 } else { choice.class }));
            }
        }
    }

    /// The part of its time that each flow of the file was in its class.
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
    /// Until `now` it was in its class, or was not.
    fn turn(&mut self, now: Time, was_inside: bool) {
        if was_inside {
            self.sum += now.saturating_sub(self.since);
        }
        self.since = now;
    }
}

/// What a flow sends by the price of its path, zero while that is unknown.
fn rate(law: &AnySender) -> Rate {
    let by_price = |law: &dyn Spender| Some(Rate::from_bytes_per_sec(law.spending() / law.price()?.get()));
    law.spender().and_then(by_price).unwrap_or(Rate::ZERO)
}
