//! Owners of budgets during a run: membership of flows, division of budgets, and audit of spending.

use std::collections::{BTreeMap, VecDeque};

use tollway_law::budget::Share;
use tollway_law::sender::{SenderLaw as _, Spender};
use tollway_law::{Budget, Bytes, Rate, Time};
use tollway_proto::Change;
use tollway_proto::host::{BudgetHost, Seen};
use tollway_sim::{End, FlowId};

use super::build::Built;
use super::choices::Choices;
use super::engine::{Engine, Outside, Part, Place};
use crate::plan::{Plan, Strategy, TransportId};
use crate::tables::SystemTables;

/// All hosts of a plan. A flow of the law `fcp` without a host has an owner that divides nothing.
pub(super) struct Hosts {
    /// True if flows of some transport spend. Otherwise nothing here is ever due.
    spends: bool,
    /// Hosts of the file, then owners of single flows.
    hosts: Vec<Owner>,
    /// Number of hosts of the file.
    named: usize,
    /// Starts and stops of the file's flows, by time; a start has the flow's owner.
    events: Vec<(Time, usize, Option<usize>)>,
    at: usize,
    /// The host of each running flow.
    members: BTreeMap<FlowId, usize>,
    choices: Choices,
    next_audit: Time,
}

struct Owner {
    /// `None` for the owner of a single flow.
    machine: Option<Box<BudgetHost>>,
    flows: Vec<FlowId>,
    /// Dollars spent by flows that have ended.
    past: f64,
    /// Dollars spent until the last step of a second began.
    before: f64,
    /// The budget in force, $/s, and the time until which it is, if it was lowered.
    allowed: f64,
    until: Time,
    /// Dollars spent and allowed in the last steps, of a second.
    steps: VecDeque<[f64; 2]>,
    /// The largest ratio of spending to allowance in any second; at most 1 by equation 1.
    worst: f64,
}

impl Hosts {
    pub(super) fn new(plan: &Plan) -> Hosts {
        let mut hosts: Vec<Owner> = plan
            .hosts
            .iter()
            .map(|host| {
                let machine = BudgetHost::new(Budget::per_sec(host.budget), host.strategy.build());
                Owner::new(Some(Box::new(machine)), host.budget)
            })
            .collect();
        let mut owner_of = vec![None; plan.flows.len()];
        for (h, host) in plan.hosts.iter().enumerate() {
            host.flows.iter().for_each(|flow| owner_of[flow.0 as usize] = Some(h));
        }
        let mut events = Vec::new();
        for (i, flow) in plan.flows.iter().enumerate() {
            let about = plan.transports[flow.transport.0 as usize].law.descriptor();
            let Some(spends) = about.spends else { continue };
            if plan.sender_of(i) != i {
                continue;
            }
            let owner = owner_of[i].unwrap_or_else(|| {
                hosts.push(Owner::new(None, spends.budget.get()));
                hosts.len() - 1
            });
            let start = if flow.after.is_some() { Time::NEVER } else { flow.start };
            events.push((start, i, Some(owner)));
            if flow.stop < plan.duration {
                events.push((flow.stop, i, None));
            }
        }
        events.sort_by_key(|event| event.0);
        let next_audit = if hosts.is_empty() { Time::NEVER } else { STEP };
        Hosts {
            spends: plan.transports.iter().any(|transport| transport.law.descriptor().spends.is_some()),
            hosts,
            named: plan.hosts.len(),
            events,
            at: 0,
            members: BTreeMap::new(),
            choices: Choices::default(),
            next_audit,
        }
    }

    /// The time of the next action.
    pub(super) fn next(&self) -> Time {
        if !self.spends {
            return Time::NEVER;
        }
        let event = self.events.get(self.at).map_or(Time::NEVER, |event| event.0);
        let machines = self.hosts[..self.named].iter().filter_map(|owner| owner.machine.as_deref());
        machines
            .map(BudgetHost::poll_timeout)
            .min()
            .unwrap_or(Time::NEVER)
            .min(event)
            .min(self.next_audit)
            .min(self.choices.next())
    }

    /// Performs all actions that are due.
    pub(super) fn tick<E: Engine>(&mut self, plan: &Plan, built: &mut Built<E>) {
        if !self.spends {
            return;
        }
        let now = built.network.now();
        while let Some(&(at, flow, owner)) = self.events.get(self.at).filter(|event| event.0 <= now) {
            self.at += 1;
            debug_assert!(at <= now);
            let place = built.flows[flow];
            match owner {
                Some(owner) => {
                    let flow = &plan.flows[flow];
                    self.choices.join(plan, now, place, flow.transport, Some(&flow.name));
                    self.join(plan, built, now, owner, (place, flow.transport));
                }
                None => self.left(built, place),
            }
        }
        for owner in &mut self.hosts[..self.named] {
            let Some(machine) = &mut owner.machine else { continue };
            if machine.poll_timeout() > now {
                continue;
            }
            let mut given = Vec::new();
            machine.handle_timeout(
                now,
                |flow| see(&built.network, flow),
                |flow, budget| given.push((flow, budget)),
            );
            for (flow, budget) in given {
                built.network.change(Part::Flow(FlowId(flow as u32)), Change::Budget(budget));
            }
        }
        self.choices.tick(built);
        if now >= self.next_audit {
            self.next_audit += STEP;
            for owner in &mut self.hosts {
                owner.audit(now, &built.network);
            }
        }
    }

    /// Sets the start of a flow of the file that waited for others.
    pub(super) fn begun<E: Engine>(&mut self, plan: &Plan, built: &mut Built<E>, place: FlowId, at: Time) {
        let left = &mut self.events[self.at..];
        let Some(i) = left.iter().position(|event| event.2.is_some() && built.flows[event.1] == place) else {
            return;
        };
        left[i].0 = at;
        if at > built.network.now() {
            left.sort_by_key(|event| event.0);
        } else if let (_, flow, Some(owner)) = self.events.remove(self.at + i) {
            // The flow may have ended since; its end is handled next.
            let flow = &plan.flows[flow];
            self.choices.join(plan, at, place, flow.transport, Some(&flow.name));
            self.join(plan, built, at, owner, (place, flow.transport));
        }
    }

    /// Adds a flow of a workload that is about to start.
    pub(super) fn workload_joined<E: Engine>(
        &mut self,
        plan: &Plan,
        built: &mut Built<E>,
        workload: usize,
        flow: FlowId,
    ) {
        if !self.spends {
            return;
        }
        let (now, transport) = (built.network.now(), plan.workloads[workload].transport);
        self.choices.join(plan, now, flow, transport, None);
        match plan.hosts.iter().position(|host| host.workloads.contains(&workload)) {
            Some(host) => self.join(plan, built, now, host, (flow, transport)),
            None => give_own(plan, built, flow, transport),
        }
    }

    fn join<E: Engine>(
        &mut self,
        plan: &Plan,
        built: &mut Built<E>,
        now: Time,
        host: usize,
        (flow, transport): (FlowId, TransportId),
    ) {
        if self.hosts[host].machine.is_none() {
            give_own(plan, built, flow, transport);
        }
        let transport = &plan.transports[transport.0 as usize];
        let spends = transport.law.descriptor().spends;
        let wants = spends.and_then(|spends| spends.wants).unwrap_or(Rate::ZERO);
        let connection = built.network.connection(flow, End::Client);
        let unsent = if connection.is_closing() { connection.unsent() } else { u64::MAX };
        let first = Bytes(transport.law.announces(unsent, transport.packet_size.into()) as u64);
        let owner = &mut self.hosts[host];
        owner.flows.push(flow);
        self.members.insert(flow, host);
        if let Some(machine) = &mut owner.machine {
            machine.join(
                now,
                Share { weight: transport.weight, wants, ..Share::new(u64::from(flow.0)) },
                first,
            );
        }
    }

    /// Removes a flow that has sent all its data or was stopped.
    pub(super) fn left<E: Engine>(&mut self, built: &Built<E>, flow: FlowId) {
        if !self.spends {
            return;
        }
        self.choices.left(built.network.now(), flow);
        let Some(host) = self.members.remove(&flow) else { return };
        let owner = &mut self.hosts[host];
        owner.past += spent(&built.network, flow);
        owner.flows.retain(|&other| other != flow);
        if let Some(machine) = &mut owner.machine {
            machine.leave(built.network.now(), u64::from(flow.0));
        }
    }

    pub(super) fn set_budget(&mut self, now: Time, host: usize, budget: f64) {
        if let Some(machine) = &mut self.hosts[host].machine {
            machine.set_budget(now, Budget::per_sec(budget));
        }
    }

    pub(super) fn set_strategy(&mut self, now: Time, host: usize, strategy: Strategy) {
        if let Some(machine) = &mut self.hosts[host].machine {
            machine.set_strategy(now, strategy.build());
        }
    }

    /// Reports each owner's largest use of its budget in a second, and the time that flows spent in
    /// the class of their choice.
    pub(super) fn report<E: Engine>(&self, plan: &Plan, built: &Built<E>, tables: &mut SystemTables) {
        self.choices.report(built.network.now(), plan, tables);
        let (named, alone) = self.hosts.split_at(self.named);
        for (owner, host) in named.iter().zip(&plan.hosts) {
            if !plan.senders_of(host).all(|node| built.network.has(Place::Node(node))) {
                continue; // Another process divides it.
            }
            tables.set("hosts", &[("host", &host.name)], "budget_use_max", owner.worst);
        }
        let alone = alone.iter().map(|owner| owner.worst);
        if let Some(worst) = alone.reduce(f64::max) {
            tables.set("hosts", &[], "budget_use_max", worst);
        }
    }
}

impl Owner {
    fn new(machine: Option<Box<BudgetHost>>, budget: f64) -> Owner {
        Owner {
            machine,
            flows: Vec::new(),
            past: 0.0,
            before: 0.0,
            allowed: budget,
            until: Time::ZERO,
            steps: VecDeque::new(),
            worst: 0.0,
        }
    }

    /// Audits the second that ends `now` (equation 1). A lowered budget applies two round trips
    /// later: flows announce a change for one, and it takes effect over another.
    fn audit<E: Engine>(&mut self, now: Time, network: &E) {
        let connections = || self.flows.iter().map(|&flow| network.connection(flow, End::Client));
        let spent = self.past + self.flows.iter().map(|&flow| spent(network, flow)).sum::<f64>();
        let present = match &self.machine {
            Some(machine) => machine.budget().get(),
            None => connections().filter_map(|c| c.law().spender()).map(|law| law.budget().get()).sum(),
        };
        if present >= self.allowed {
            let slowest = connections().map(|connection| connection.srtt()).max().unwrap_or(Time::ZERO);
            (self.allowed, self.until) = (present, now + slowest * 2 + STEP);
        }
        self.steps.push_back([spent - self.before, self.allowed * STEP.as_secs_f64()]);
        if now >= self.until {
            self.allowed = present;
        }
        self.before = spent;
        if self.steps.len() as u64 * STEP.0 >= SECOND.0 {
            let [spent, allowed] =
                self.steps.iter().fold([0.0; 2], |sum, step| [sum[0] + step[0], sum[1] + step[1]]);
            if allowed > 0.0 {
                self.worst = self.worst.max(spent / allowed);
            }
            self.steps.pop_front();
        }
    }
}

fn spent<E: Engine>(network: &E, flow: FlowId) -> f64 {
    network.connection(flow, End::Client).law().spender().map_or(0.0, Spender::spent)
}

/// Gives a flow of the kernel's TCP the budget of its law, which machines get from their config.
fn give_own<E: Engine>(plan: &Plan, built: &mut Built<E>, flow: FlowId, transport: TransportId) {
    let spends = plan.transports[transport.0 as usize].law.descriptor().spends;
    if let Some(spends) = spends.filter(|_| built.network.outside(flow, true).is_some()) {
        built.network.change(Part::Flow(flow), Change::Budget(spends.budget));
    }
}

fn see<E: Engine>(network: &E, flow: u64) -> Seen {
    let flow = FlowId(flow as u32);
    if let Some(Outside { price, srtt, sent, .. }) = network.outside(flow, true) {
        return Seen { price, rtt: srtt, sent, ..Seen::default() };
    }
    let connection = network.connection(flow, End::Client);
    let law = connection.law().spender();
    Seen {
        price: law.and_then(Spender::price),
        rtt: connection.srtt(),
        sent: connection.stats().bytes_sent,
        ending: law.is_some_and(Spender::is_ending),
        wants: None,
    }
}

const SECOND: Time = Time::from_secs(1);
/// The step of audits: each looks at the second before it.
const STEP: Time = Time::from_millis(100);
