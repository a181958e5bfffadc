//! The meters and borders of a plan: a single middle that observes all links with a meter or
//! border.

use std::collections::BTreeMap;

use tollway_law::Time;
use tollway_law::link::Exchange;
use tollway_law::meter::MeterConfig;
use tollway_proto::{Meters, NodeMachine};
use tollway_sim::{LinkId, MachineId};

use super::Built;
use crate::plan::{self, Plan};
use crate::run::engine::{Engine, Joint, Place};
use crate::tables::SystemTables;

/// The meters and borders that this process runs.
#[derive(Default)]
pub(in crate::run) struct Posts {
    machine: Option<MachineId>,
    /// By index of the link in the plan.
    posts: BTreeMap<usize, u32>,
}

/// Adds the meters of the nodes that this process runs. Must precede the flows.
pub(in crate::run) fn place<E: Engine>(plan: &Plan, built: &mut Built<E>) -> Posts {
    let mut meters = Meters::default();
    let (mut at, mut watched, mut posts) = (None, Vec::new(), BTreeMap::new());
    for (i, link) in plan.links.iter().enumerate() {
        let Some(twin) = link.twin.filter(|_| built.network.has(Place::Node(link.to))) else { continue };
        let metered = link.meter.as_deref().map(|&meter| meters.add_post(config(meter), meter.duty));
        let bordered = link.exchange.as_deref().map(|rate| meters.add_border(Exchange::new(*rate)));
        for post in metered.into_iter().chain(bordered) {
            at.get_or_insert(link.to);
            watched.push((LinkId(i as u32), Meters::entry(post)));
            watched.push((LinkId(twin.0), Meters::exit(post)));
            posts.insert(i, post);
        }
    }
    let machine = at.map(|node| built.network.add(node, NodeMachine::middle(meters)));
    for (link, gate) in watched {
        machine.into_iter().for_each(|machine| built.network.join(Joint::Watch(link, machine, gate)));
    }
    Posts { machine, posts }
}

fn config(meter: plan::Meter) -> MeterConfig {
    let plan::Meter { tolerance, burst, patience, enforce, .. } = meter;
    MeterConfig { tolerance, burst, patience, enforce }
}

/// Reports the meters' findings, by host's link or by flow, and the balances of borders.
pub(in crate::run) fn report<E: Engine>(plan: &Plan, built: &Built<E>, tables: &mut SystemTables) {
    let Posts { machine, posts } = &built.meters;
    let meters = machine.and_then(|id| built.network.machine(id)?.downcast_ref::<Meters>());
    let flows = || plan.flows.iter().zip(&built.flows);
    if plan.links.iter().any(|link| link.meter.is_some()) {
        let (seen, accused) = meters.map_or((0, 0), Meters::counts);
        tables.set("meters", &[], "flows", seen as f64);
        tables.set("meters", &[], "accused", accused as f64);
    }
    let Some(meters) = meters else { return };
    for (flow, id) in flows() {
        let Some(meter) = meters.of(id.0) else { continue };
        let Some(accusation) = meter.accusation() else { continue };
        accuse(tables, &flow.name, accusation.offence.name(), accusation.at);
        tables.set("held", &[("of", &flow.name)], "dropped_packets", meter.dropped() as f64);
    }
    for (&link, &post) in posts {
        let name = &plan.links[link].name;
        if let Some(account) = meters.account(post)
            && let Some(found) = account.accusation()
        {
            accuse(tables, name, found.offence.name(), found.at);
            tables.set("held", &[("of", name)], "dropped_packets", account.dropped() as f64);
        }
        if let Some(border) = meters.border(post) {
            tables.set("borders", &[("link", name)], "exchange_rate", border.factor());
        }
    }
    for (flow, id) in flows() {
        if let Some(found) = meters.balance(id.0) {
            accuse(tables, &flow.name, found.offence.name(), found.at);
        }
    }
}

/// Reports the offence and time of an accusation of a flow, or of the host behind a link.
fn accuse(tables: &mut SystemTables, of: &str, offence: &str, at: Time) {
    tables.set("accusations", &[("of", of), ("offence", offence)], "at_s", at.nearest_secs());
}
