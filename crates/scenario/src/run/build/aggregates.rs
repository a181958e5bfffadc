//! Policies during a run: their shapers, installation, removal and report.

use std::any::Any;
use std::collections::BTreeMap;

use tollway_law::Time;
use tollway_proto::shaper::{Action, ClassId, PolicyId, Shaper, Timer};
use tollway_sim::{End, FlowId, SourceId};

use super::Built;
use crate::plan::{self, Plan, ShaperClass};
use crate::run::engine::Engine;
use crate::run::workload::Generator;
use crate::tables::SystemTables;

/// Installation and removal of policies, and the policies in force.
pub(in crate::run) struct Policies {
    /// By time: a policy, and true for its installation.
    events: Vec<(Time, usize, bool)>,
    at: usize,
    /// By host: the installed policies.
    installed: Vec<BTreeMap<usize, Installed>>,
    /// By host and class: the policy in force.
    governing: Vec<Vec<Option<usize>>>,
    /// Bytes in profile at each receiver at the latest read, if a policy marks.
    read: BTreeMap<Receiver, u64>,
    marks: bool,
}

/// A receiver that counts bytes in profile.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Receiver {
    Server(FlowId),
    Sink(SourceId),
}

struct Installed {
    id: PolicyId,
    since: Time,
    until: Option<Time>,
    /// Bytes in profile that arrived while the policy was in force.
    arrived: u64,
}

impl Policies {
    pub(in crate::run) fn new(plan: &Plan) -> Policies {
        let mut events = Vec::new();
        for (i, aggregate) in plan.aggregates.iter().enumerate() {
            events.push((aggregate.install, i, true));
            events.push((aggregate.remove, i, false));
        }
        // At one instant, removal precedes installation.
        events.sort_by_key(|&(at, _, comes)| (at, comes));
        Policies {
            events,
            at: 0,
            installed: plan.shapers.iter().map(|_| BTreeMap::new()).collect(),
            governing: plan.shapers.iter().map(|shaper| vec![None; shaper.classes.len()]).collect(),
            read: BTreeMap::new(),
            marks: plan.aggregates.iter().any(|aggregate| aggregate.policy.action == Action::Mark),
        }
    }

    /// The time of the next installation or removal.
    pub(in crate::run) fn next(&self) -> Time {
        self.events.get(self.at).map_or(Time::NEVER, |event| event.0)
    }

    /// Performs all installations and removals that are due.
    pub(in crate::run) fn apply<E: Engine>(
        &mut self,
        plan: &Plan,
        built: &mut Built<E>,
        workloads: &Generator,
    ) {
        let now = built.network.now();
        if self.next() <= now {
            self.read_receivers(plan, built, workloads);
        }
        while let Some(&(_, policy, comes)) = self.events.get(self.at).filter(|event| event.0 <= now) {
            self.at += 1;
            let hosts = self.installed.iter_mut().zip(&mut self.governing);
            for ((shaper, (installed, governing)), &id) in plan.shapers.iter().zip(hosts).zip(&built.shapers)
            {
                if !shaper.classes.iter().any(|class| class.contains(&policy)) {
                    continue;
                }
                built.network.with_machine(id, |machine| {
                    let Some(machine) = machine.downcast_mut::<Shaper>() else { return };
                    if comes {
                        let id = machine.install(now, plan.aggregates[policy].policy);
                        installed.insert(policy, Installed { id, since: now, until: None, arrived: 0 });
                    } else if let Some(gone) = installed.get_mut(&policy) {
                        gone.until = Some(now);
                    }
                    for (class, policies) in shaper.classes.iter().enumerate() {
                        let mut there =
                            policies.iter().filter_map(|policy| Some((*policy, installed.get(policy)?)));
                        let best = there.find(|(_, entry)| entry.until.is_none());
                        governing[class] = best.map(|(policy, _)| policy);
                        machine.classify(now, ClassId(class as u32), best.map(|(_, entry)| entry.id));
                    }
                });
            }
        }
    }

    /// Reads a finished flow of a workload, since another flow may reuse its identifier.
    pub(in crate::run) fn left<E: Engine>(&mut self, built: &Built<E>, flow: FlowId, shaped: ShaperClass) {
        self.read_server(built, flow, Some(shaped));
        self.read.remove(&Receiver::Server(flow));
    }

    /// Credits bytes in profile to the policies that were in force.
    fn read_receivers<E: Engine>(&mut self, plan: &Plan, built: &Built<E>, workloads: &Generator) {
        for (flow, &id) in plan.flows.iter().zip(&built.flows) {
            self.read_server(built, id, flow.shaped);
        }
        for (id, running) in workloads.running() {
            self.read_server(built, id, running.shaped);
        }
        for (cbr, &id) in plan.cbrs.iter().zip(&built.sources) {
            if let Some(shaped) = cbr.shaped.filter(|_| self.marks) {
                self.credit(shaped, Receiver::Sink(id), built.network.read_source(id).in_profile_bytes);
            }
        }
    }

    fn read_server<E: Engine>(&mut self, built: &Built<E>, flow: FlowId, shaped: Option<ShaperClass>) {
        if let Some(shaped) = shaped.filter(|_| self.marks) {
            let total = built.network.connection(flow, End::Server).stats().in_profile_received;
            self.credit(shaped, Receiver::Server(flow), total);
        }
    }

    fn credit(&mut self, shaped: ShaperClass, receiver: Receiver, total: u64) {
        let before = self.read.insert(receiver, total).unwrap_or(0);
        let policy = self.governing[shaped.shaper][shaped.class as usize];
        if let Some(entry) = policy.and_then(|policy| self.installed[shaped.shaper].get_mut(&policy)) {
            entry.arrived += total.saturating_sub(before);
        }
    }

    /// Reports the policies' figures.
    pub(in crate::run) fn report<E: Engine>(
        &mut self,
        plan: &Plan,
        built: &Built<E>,
        workloads: &Generator,
        tables: &mut SystemTables,
    ) {
        let now = built.network.now();
        self.read_receivers(plan, built, workloads);
        for ((shaper, installed), &id) in plan.shapers.iter().zip(&self.installed).zip(&built.shapers) {
            let Some(machine) = built.network.machine(id).and_then(<dyn Any>::downcast_ref::<Shaper>) else {
                continue;
            };
            let host = &plan.nodes[shaper.node.0 as usize].name;
            tables.set("shapers", &[("host", host)], "timers", machine.timer_events() as f64);
            for (&policy, entry) in installed {
                let name = &plan.aggregates[policy].name;
                let hosts = plan.shapers.iter().filter(|s| s.classes.iter().any(|c| c.contains(&policy)));
                let name = if hosts.count() > 1 { format!("{name}@{host}") } else { name.clone() };
                let stats = machine.stats(entry.id);
                let seconds = entry.until.unwrap_or(now).saturating_sub(entry.since).as_secs_f64();
                let mbps = |bytes: u64| if seconds > 0.0 { bytes as f64 * 8e-6 / seconds } else { 0.0 };
                let mut tell = |column, value| tables.set("policies", &[("policy", &name)], column, value);
                tell("conforming_mbps", mbps(stats.bytes));
                tell("excess_mbps", mbps(stats.excess_bytes));
                // In a run of several processes, receivers may be in others.
                if !built.is_part && plan.aggregates[policy].policy.action == Action::Mark {
                    tell("conforming_delivered_mbps", mbps(entry.arrived));
                }
                tell("conforming_packets", stats.packets as f64);
                tell("drops", stats.dropped as f64);
                tell("burst_bytes", stats.burst);
                tell("depth_bytes", plan.aggregates[policy].policy.profile.depth.get() as f64);
                tell("peak_mbps", stats.peak * 8e-6);
                tell("most_members", stats.members as f64);
            }
        }
    }
}

/// Returns a host's shaper, without policies.
pub(in crate::run) fn shaper(shaper: &plan::Shaper) -> Shaper {
    Shaper::new(if shaper.flow_timers { Timer::PerFlow } else { Timer::Coarse(shaper.timer) })
}
