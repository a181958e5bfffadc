//! Policies for aggregates: the flows under each policy, and the policy that applies to each flow.

use tollway_law::aggregate::{Depths, Scheme};
use tollway_law::bucket::Profile;
use tollway_law::sender::Descriptor;
use tollway_law::{Bytes, Rate, Time};
use tollway_proto::shaper::{Action, Increase, Order, PolicyConfig};

use super::{Resolver, matches};
use crate::file::keys;
use crate::file::reader::Reader;
use crate::plan::{Aggregate, NodeId, Plan, Shaper, ShaperClass, TransportId};

/// Properties of a connection that policies depend on.
struct Subject {
    name: String,
    section: String,
    from: NodeId,
    to: NodeId,
    packet: u16,
    rtt: Time,
    /// `None` for cross-traffic.
    law: Option<Descriptor>,
}

/// A mistake in a policy: key, message, label and remedy.
type Wrong = (&'static str, String, &'static str, &'static str);

impl Resolver<'_> {
    /// Resolves the policies, the hosts with policies and the flows under them.
    pub(super) fn aggregates(&mut self) {
        let sections: Vec<_> = self.top.named("aggregate", &keys::AGGREGATE).collect();
        if sections.is_empty() {
            return;
        }
        let subjects = subjects(&self.plan);
        // By policy and subject: the closeness of the policy's filter to the subject.
        let mut closeness: Vec<Vec<u32>> = Vec::new();
        for (name, keys) in &sections {
            let scores: Vec<u32> =
                subjects.iter().map(|subject| score(keys, &self.plan, subject).unwrap_or(0)).collect();
            let mine: Vec<&Subject> =
                subjects.iter().zip(&scores).filter(|(_, score)| **score > 0).map(|(s, _)| s).collect();
            let aggregate = aggregate(name, keys, &mine);
            if let Some((key, message, label, help)) = check(&aggregate, keys, &mine) {
                let at = if keys.has(key) { keys.at(key) } else { keys.place() };
                self.mistakes.add(at, message, label).help(help);
            }
            self.plan.aggregates.push(aggregate);
            closeness.push(scores);
        }
        for (i, subject) in subjects.iter().enumerate() {
            if let Some((a, b)) = tie(&self.plan.aggregates, &closeness, i) {
                let names = [a, b].map(|at| self.plan.aggregates[at].name.clone());
                let message =
                    format!("policies `{}` and `{}` both match `{}`", names[0], names[1], subject.name);
                self.mistakes.add(sections[b].1.place(), message, "as specific as the other").help(
                    "the most specific one applies: give more of `from`, `to` and `flows` in one of them",
                );
                return;
            }
        }
        let timers: Vec<(Time, bool)> =
            sections.iter().map(|(_, keys)| (keys.span("timer"), keys.truth("flow-timers"))).collect();
        self.shape(&subjects, &closeness, &timers);
    }

    /// Assigns each subject under a policy to its host's shaper, in a class shared by all subjects
    /// under the same policies.
    fn shape(&mut self, subjects: &[Subject], closeness: &[Vec<u32>], timers: &[(Time, bool)]) {
        let shapers = &mut self.plan.shapers;
        let mut shaped = subjects.iter().enumerate().map(|(i, subject)| {
            let mut policies: Vec<usize> = (0..closeness.len()).filter(|&p| closeness[p][i] > 0).collect();
            policies.sort_by_key(|&p| std::cmp::Reverse(closeness[p][i]));
            if policies.is_empty() {
                return None;
            }
            let host = shapers.iter().position(|shaper| shaper.node == subject.from).unwrap_or_else(|| {
                let timer = Time::NEVER;
                shapers.push(Shaper { node: subject.from, timer, flow_timers: false, classes: Vec::new() });
                shapers.len() - 1
            });
            let shaper = &mut shapers[host];
            for &policy in &policies {
                shaper.timer = shaper.timer.min(timers[policy].0);
                shaper.flow_timers |= timers[policy].1;
            }
            let class = shaper.classes.iter().position(|other| *other == policies).unwrap_or_else(|| {
                shaper.classes.push(policies);
                shaper.classes.len() - 1
            });
            Some(ShaperClass { shaper: host, class: class as u32 })
        });
        let mut next = || shaped.next().flatten();
        self.plan.flows.iter_mut().for_each(|flow| flow.shaped = next());
        for workload in &mut self.plan.workloads {
            workload.shaped = workload.paths.iter().map(|_| next()).collect();
        }
        self.plan.cbrs.iter_mut().for_each(|cbr| cbr.shaped = next());
    }
}

/// The subjects: flows, paths of workloads and cross-traffic, in this order.
fn subjects(plan: &Plan) -> Vec<Subject> {
    let ends = |name: &str, section: &str, path: &crate::plan::Path, transport: TransportId| {
        let transport = &plan.transports[transport.0 as usize];
        Subject {
            name: name.to_owned(),
            section: section.to_owned(),
            from: path.from,
            to: path.to,
            packet: transport.packet_size,
            rtt: path.base_rtt,
            law: Some(transport.law.descriptor()),
        }
    };
    let flows = plan.flows.iter().map(|flow| ends(&flow.name, &flow.section, &flow.path, flow.transport));
    let workloads = plan
        .workloads
        .iter()
        .flat_map(|w| w.paths.iter().map(|path| ends(&w.name, &w.name, path, w.transport)));
    let cbrs = plan.cbrs.iter().map(|cbr| Subject {
        name: cbr.name.to_string(),
        section: cbr.section.to_string(),
        from: cbr.from,
        to: cbr.to,
        packet: cbr.packet_size,
        rtt: Time::ZERO,
        law: None,
    });
    flows.chain(workloads).chain(cbrs).collect()
}

/// The closeness of a policy's filter to a subject; `None` if it does not match.
///
/// The score is 1, plus 2 for each full name, plus 1 for each pattern or group that excludes
/// something.
fn score(keys: &Reader<'_>, plan: &Plan, subject: &Subject) -> Option<u32> {
    let node = |id: NodeId| plan.nodes[id.0 as usize].name.as_str();
    let mut score = 1;
    for (key, name) in [("from", node(subject.from)), ("to", node(subject.to))] {
        if keys.has(key) {
            let group = name.split('.').next().unwrap_or(name);
            let patterns = keys.patterns(key);
            score += patterns.iter().filter_map(|(pattern, _)| one(pattern, name, group)).max()?;
        }
    }
    if let Some(pattern) = keys.text("flows") {
        score += one(&pattern, &subject.name, &subject.section)?;
    }
    Some(score)
}

fn one(pattern: &str, name: &str, group: &str) -> Option<u32> {
    match pattern {
        _ if pattern == name => Some(2),
        "*" => Some(0),
        _ if matches(pattern, name) || matches(pattern, group) => Some(1),
        _ => None,
    }
}

/// Two policies that are equally close to a subject and in force at the same time.
fn tie(aggregates: &[Aggregate], closeness: &[Vec<u32>], subject: usize) -> Option<(usize, usize)> {
    for (b, scores) in closeness.iter().enumerate() {
        for (a, others) in closeness.iter().enumerate().take(b) {
            let together =
                aggregates[a].install < aggregates[b].remove && aggregates[b].install < aggregates[a].remove;
            if scores[subject] > 0 && scores[subject] == others[subject] && together {
                return Some((a, b));
            }
        }
    }
    None
}

fn aggregate(name: &str, keys: &Reader<'_>, subjects: &[&Subject]) -> Aggregate {
    let rate = keys.rate("rate").unwrap_or_default();
    let packet = subjects.iter().map(|subject| u64::from(subject.packet)).max().unwrap_or_default();
    let rtts = subjects.iter().filter(|subject| subject.law.is_some()).map(|s| u128::from(s.rtt.0));
    let (sum, count) = rtts.fold((0, 0), |(sum, count), rtt| (sum + rtt, count + 1));
    let mean = Time((sum / u128::from(count.max(1u32))) as u64);
    let depth = keys.bytes("depth").unwrap_or((rate.bytes_in(mean).ceil() as u64).max(packet));
    let increase = match keys.word("window") {
        "aggregate-fair" => Increase::AggregateFair,
        "increase-by-k" => Increase::ByK { k: keys.number("k"), long: keys.span("long-rtt") },
        _ => Increase::Standard,
    };
    let policy = PolicyConfig { increase, ..policy(keys, rate, Bytes(depth)) };
    Aggregate {
        name: name.to_owned(),
        policy,
        queue: keys.count("queue").unwrap_or_default() as u32,
        install: keys.span("install"),
        remove: keys.time("remove").unwrap_or(Time::NEVER),
    }
}

/// The policy of a section with the keys of [`RULES`](crate::file::reading::RULES), with a standard
/// growth of windows.
pub fn policy(keys: &Reader<'_>, rate: Rate, depth: Bytes) -> PolicyConfig {
    let depths = if keys.word("depths") == "rtt" { Depths::ByRtt } else { Depths::Equal };
    PolicyConfig {
        profile: Profile {
            depth,
            rate,
            peak: keys.rate("peak"),
            largest: keys.bytes("largest").map(|bytes| bytes as u32),
        },
        scheme: match keys.word("scheme") {
            "partitioned" => Scheme::Partitioned(depths),
            "common" => Scheme::Common,
            _ => Scheme::Logical(depths),
        },
        order: match keys.word("order") {
            "sequential" => Order::Sequential,
            "lru" => Order::Lru,
            _ => Order::Fcfs,
        },
        action: match keys.word("action") {
            "mark" => Action::Mark,
            "drop" => Action::Drop,
            _ => Action::Shape,
        },
        increase: Increase::Standard,
    }
}

/// The first mistake in a policy.
fn check(aggregate: &Aggregate, keys: &Reader<'_>, subjects: &[&Subject]) -> Option<Wrong> {
    if subjects.is_empty() {
        let key = ["flows", "from", "to"].into_iter().find(|key| keys.has(key)).unwrap_or("rate");
        let message = format!("policy `{}` matches no flow", aggregate.name);
        return Some((key, message, "none", "`from`, `to` and `flows` have to match the same flow"));
    }
    if aggregate.remove <= aggregate.install {
        let message =
            format!("policy `{}` is removed before it is installed at {}", aggregate.name, aggregate.install);
        return Some(("remove", message, "too early", "`install` sets the time of installation"));
    }
    let policy = &aggregate.policy;
    for subject in subjects {
        let (name, size) = (&subject.name, u32::from(subject.packet));
        if policy.profile.largest.is_some_and(|largest| size > largest) {
            let message =
                format!("packets of `{name}` have {size} B, more than `largest`: none would ever be sent");
            return Some((
                "largest",
                message,
                "too small",
                "give it a smaller `packet-size`, or allow larger ones",
            ));
        }
        if u64::from(size) > policy.profile.depth.get() {
            let message = format!("packets of `{name}` have {size} B, more than the bucket holds");
            return Some(("depth", message, "too small", "give a `depth` of at least one packet"));
        }
        let tolled = subject.law.is_some_and(|law| law.reads.is_some());
        if policy.action == Action::Mark && tolled {
            let message = format!("packets of `{name}` carry a toll, so they cannot be marked");
            return Some((
                "action",
                message,
                "no effect",
                "write `action = \"shape\"`, or choose one of TCP's laws for the flow",
            ));
        }
        let grows = subject.law.is_none_or(|law| law.increase);
        if policy.increase != Increase::Standard && !grows {
            let message = format!("a policy's `window` does not apply to the law of `{name}`");
            return Some(("window", message, "no effect", "leave out `window`, or use the law `newreno`"));
        }
    }
    None
}
