//! Flows of workloads, each from the random generator of its workload.

use std::collections::VecDeque;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tollway_law::Time;
use tollway_sim::{End, FlowId};

use super::build::{Built, FlowEnds, routers};
use super::engine::Engine;
use crate::plan::{Arrivals, Data, Plan, ShaperClass, Sizes, Workload};
use crate::tables::SystemTables;

/// Starts the flows of all workloads, and retires finished ones.
pub(super) struct Generator {
    queues: Vec<Queue>,
    /// Running flows of workloads, by their identifier in the engine.
    running: Vec<Option<Running>>,
    /// Flows that exist before their start, by start time, with their workload.
    foreseen: VecDeque<(Time, FlowId, usize)>,
    /// Identifiers of finished flows that may still have packets in flight.
    leaving: VecDeque<FlowId>,
    arrived: u64,
    finished: u64,
    fct_sum: f64,
}

/// The flows of a workload. The next one is drawn, and the time of the one after it, so that no run
/// waits for the logarithm of a gap.
struct Queue {
    rng: Pcg64Mcg,
    next: Time,
    size: u64,
    path: usize,
    /// The time of the flow after the next.
    then: Time,
    /// Flows taken.
    count: u64,
}

/// A flow of a workload, as drawn. It does not depend on the course of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// Index of the flow in its workload, from 0.
    pub number: u64,
    /// Time of its arrival.
    pub at: Time,
    /// Payload to send, bytes.
    pub size: u64,
    /// Index into [`Workload::paths`].
    pub path: usize,
}

/// Returns the flows of workload `i` of `plan`, by time of arrival, until the end of the run.
pub fn arrivals(plan: &Plan, i: usize) -> impl Iterator<Item = Drawn> + '_ {
    let workload = &plan.workloads[i];
    let mut queue = Queue::new(plan, i);
    std::iter::from_fn(move || (queue.next < plan.duration).then(|| queue.draw(workload)))
}

/// A running flow of a workload.
pub(super) struct Running {
    pub(super) workload: usize,
    pub(super) number: u64,
    pub(super) start: Time,
    pub(super) size: u64,
    /// The shaper and class of its packets.
    pub(super) shaped: Option<ShaperClass>,
    /// True if both ends send data.
    both: bool,
    /// Number of unfinished ends.
    ends_left: u8,
}

/// The owner of a flow of which an end is done.
pub(super) enum Whose {
    File,
    /// A workload; with the flow once both ends are done.
    Workload(Option<Running>),
}

impl Generator {
    pub(super) fn new(plan: &Plan) -> Generator {
        Generator {
            queues: (0..plan.workloads.len()).map(|i| Queue::new(plan, i)).collect(),
            running: Vec::new(),
            foreseen: VecDeque::new(),
            leaving: VecDeque::new(),
            arrived: 0,
            finished: 0,
            fct_sum: 0.0,
        }
    }

    /// Time of the next arrival.
    pub(super) fn next(&self) -> Time {
        let foreseen = self.foreseen.front().map_or(Time::NEVER, |flow| flow.0);
        self.queues.iter().map(|queue| queue.next).min().unwrap_or(Time::NEVER).min(foreseen)
    }

    /// Number of arrivals so far.
    pub(super) fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Number of finished flows so far.
    pub(super) fn finished(&self) -> u64 {
        self.finished
    }

    /// Unfinished flows, in order.
    pub(super) fn running(&self) -> impl Iterator<Item = (FlowId, &Running)> {
        let flow = |(i, running): (usize, _)| Some((FlowId(i as u32), Option::as_ref(running)?));
        self.running.iter().enumerate().filter_map(flow)
    }

    /// Starts every flow that is due.
    ///
    /// If other processes run some of the nodes, this adds all flows at once, each with its start
    /// time, so that each process gives a flow the same number. `joined` receives each flow that
    /// starts now, with its workload.
    pub(super) fn arrive<E: Engine>(
        &mut self,
        plan: &Plan,
        built: &mut Built<E>,
        mut joined: impl FnMut(&mut Built<E>, FlowId, usize),
    ) {
        let (now, foresees) = (built.network.now(), built.is_part);
        for (i, (queue, workload)) in self.queues.iter_mut().zip(&plan.workloads).enumerate() {
            while queue.next <= now || (foresees && queue.next < plan.duration) {
                let Drawn { number, at, size, path } = queue.draw(workload);
                let (start, shaped) = (at.max(now), workload.shaped.get(path).copied().flatten());
                let ends = FlowEnds {
                    section: &workload.name,
                    name: Err(number),
                    transport: workload.transport,
                    session: false,
                    route: built.workload_route(plan, i, path, number),
                    hosts: [workload.paths[path].from, workload.paths[path].to],
                    routers: routers(plan, &workload.paths[path]),
                    line_rates: built.line_rates(plan, &workload.paths[path]),
                    data: Data::Bytes(size),
                    receive_buffer: workload.receive_buffers[path],
                    send_buffer: workload.send_buffers[path],
                    buffer_changes: false,
                    start,
                    stop: Time::NEVER,
                    shaped,
                };
                let vacant = self.leaving.front().copied();
                let flow = built.start_flow(plan, ends, vacant);
                if vacant == Some(flow) {
                    self.leaving.pop_front();
                }
                let both = plan.transports[workload.transport.0 as usize].both_ways;
                let running =
                    Running { workload: i, number, start, size, shaped, both, ends_left: 1 + u8::from(both) };
                let place = flow.0 as usize;
                self.running.resize_with(self.running.len().max(place + 1), || None);
                self.running[place] = Some(running);
                if foresees {
                    self.foreseen.push_back((start, flow, i));
                } else {
                    joined(built, flow, i);
                    self.arrived += 1;
                }
            }
        }
        if foresees {
            self.foreseen.make_contiguous().sort_by_key(|flow| flow.0);
        }
        while let Some(&(_, flow, i)) = self.foreseen.front().filter(|flow| flow.0 <= now) {
            self.foreseen.pop_front();
            joined(built, flow, i);
            self.arrived += 1;
        }
    }

    /// Handles the end of one direction of a flow.
    pub(super) fn done(&mut self, flow: FlowId, end: End, at: Time) -> Whose {
        let Some(slot) = self.running.get_mut(flow.0 as usize) else { return Whose::File };
        let Some(running) = slot else { return Whose::File };
        // With data both ways, a flow is done when both ends are done.
        running.ends_left = running.ends_left.saturating_sub(u8::from(running.both || end == End::Client));
        if running.ends_left > 0 {
            return Whose::Workload(None);
        }
        self.finished += 1;
        self.fct_sum += at.saturating_sub(running.start).as_secs_f64();
        self.leaving.push_back(flow);
        Whose::Workload(slot.take())
    }

    /// Reports the totals of all workloads.
    pub(super) fn report(&self, plan: &Plan, tables: &mut SystemTables) {
        if !plan.workloads.is_empty() {
            tables.set("workloads", &[], "arrived", self.arrived as f64);
            tables.set("workloads", &[], "finished", self.finished as f64);
            tables.set("workloads", &[], "mean_fct_s", self.fct_sum / self.finished as f64);
        }
    }
}

impl Queue {
    /// Returns the queue of workload `i`, with an independent random generator.
    fn new(plan: &Plan, i: usize) -> Queue {
        let workload = &plan.workloads[i];
        let seed = plan.seed ^ (i as u64 + 1).wrapping_mul(0xd1b5_4a32_d192_ed03);
        let (rng, next) = (Pcg64Mcg::seed_from_u64(seed), workload.start);
        let mut queue = Queue { rng, next, size: 0, path: 0, then: next, count: 0 };
        // A Poisson process has no arrival at its start.
        if let Arrivals::Poisson { .. } = workload.arrivals {
            queue.next = queue.after(next, 0, workload);
        }
        queue.prepare(workload);
        queue
    }

    /// Takes the next flow, and draws the one after it.
    fn draw(&mut self, workload: &Workload) -> Drawn {
        let drawn = Drawn { number: self.count, at: self.next, size: self.size, path: self.path };
        self.count += 1;
        self.next = self.then;
        self.prepare(workload);
        drawn
    }

    /// Draws the next flow, and the time of the one after it.
    fn prepare(&mut self, workload: &Workload) {
        self.size = draw_size(&workload.sizes, &mut self.rng);
        self.path = match workload.paths.len() {
            1 => 0,
            paths => self.rng.random_range(0..paths),
        };
        self.then = self.after(self.next, self.count + 1, workload);
    }

    /// The time of flow `number`, if the one before it comes at `at`.
    fn after(&mut self, at: Time, number: u64, workload: &Workload) -> Time {
        let gap = match workload.arrivals {
            Arrivals::Every(gap) => gap,
            Arrivals::Poisson { per_sec } => Time::from_secs_f64(exponential(&mut self.rng) / per_sec),
        };
        let at = at.saturating_add(gap);
        if at >= workload.stop || number >= workload.max_flows { Time::NEVER } else { at }
    }
}

/// A random flow size in bytes, at least 1. Inversion makes one size of one draw.
fn draw_size(sizes: &Sizes, rng: &mut Pcg64Mcg) -> u64 {
    let size = match sizes {
        Sizes::Fixed(size) => return (*size).max(1),
        Sizes::Exponential { mean } => mean * exponential(rng),
        Sizes::Pareto { mean, shape } => {
            // The mean of a Pareto variable with least value m is m·shape/(shape − 1).
            let least = mean * (shape - 1.0) / shape;
            least * libm::pow(1.0 - rng.random::<f64>(), -1.0 / shape)
        }
        Sizes::Empirical(points) => {
            let p = rng.random::<f64>();
            let above = points.partition_point(|point| point.cumulative < p).min(points.len() - 1);
            let (low, high) = match above {
                0 => (points[0], points[0]),
                i => (points[i - 1], points[i]),
            };
            let span = high.cumulative - low.cumulative;
            let along = if span > 0.0 { ((p - low.cumulative) / span).clamp(0.0, 1.0) } else { 1.0 };
            low.size + along * (high.size - low.size)
        }
    };
    (size as u64).max(1)
}

/// A random value of the exponential distribution with mean 1.
fn exponential(rng: &mut Pcg64Mcg) -> f64 {
    -libm::log(1.0 - rng.random::<f64>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::CdfPoint;

    fn mean_of(sizes: Sizes) -> f64 {
        let mut rng = Pcg64Mcg::seed_from_u64(5);
        (0..200_000).map(|_| draw_size(&sizes, &mut rng) as f64).sum::<f64>() / 200_000.0
    }

    #[test]
    fn sizes_have_the_mean_that_was_asked_for() {
        assert_eq!(mean_of(Sizes::Fixed(700)), 700.0);
        assert!((mean_of(Sizes::Exponential { mean: 30_000.0 }) / 30_000.0 - 1.0).abs() < 0.01);
        assert!((mean_of(Sizes::Pareto { mean: 30_000.0, shape: 3.0 }) / 30_000.0 - 1.0).abs() < 0.01);
        let point = |size, cumulative| CdfPoint { size, cumulative };
        // Uniform over 0…1000 with probability 0.5, over 1000…3000 with 0.5: 250 + 1000.
        let empirical = Sizes::Empirical(vec![point(0.0, 0.0), point(1000.0, 0.5), point(3000.0, 1.0)]);
        assert!((mean_of(empirical) / 1250.0 - 1.0).abs() < 0.01);
    }
}
