//! Runs a [`Plan`] in either engine: builds the network, applies what happens on the way, measures.

mod agenda;
mod budget;
mod build;
mod capture;
mod choices;
mod delays;
mod digest;
mod engine;
mod hosts;
mod live;
mod measure;
#[cfg(target_os = "linux")]
pub mod mesh;
mod watch;
mod workload;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollway_law::{Bytes, Time};
use tollway_sim::{Census, End};

use crate::plan::Plan;
use build::{Built, aggregates, machines, overlay, sessions};
use engine::{Engine, FlowEvent, Totals};

pub use capture::{Capture, CaptureError, variant_path};
#[cfg(target_os = "linux")]
pub use live::{LiveInfo, Unsupported, WireInfo};
pub use tollway_net::secure::KeyFile;
#[cfg(target_os = "linux")]
pub use tollway_net::sys::{namespace::Privilege, signals::Signals};
pub use watch::Watch;
use workload::Whose;
pub use workload::{Drawn, arrivals};

use crate::tables::{Outputs, RunResult, SystemTables, TableError};

/// How to run, apart from what the plan says.
#[derive(Default)]
pub struct Options<'a> {
    /// What runs the packets.
    pub engine: EngineKind,
    /// Who runs the nodes of a live network.
    pub hosting: Hosting,
    /// Where the result tables go.
    pub outputs: Outputs,
    /// The ideal rates of [`Plan::flows`], then of the overlay's senders, Mb/s; empty if not computed.
    pub ideal_mbps: Arc<[[Option<f64>; 2]]>,
    /// What the digest covers.
    pub digest: DigestMode,
    /// Bytes of memory that the run may take, as estimated from its plan; `None` is 80 % of what is free.
    pub memory: Option<u64>,
    /// What crosses links, to a file; in the simulator.
    pub capture: Option<Capture>,
    /// Who looks on.
    pub watch: Option<&'a dyn Watch>,
    /// Called a hundred times or more with the share of the simulated time that is over; answering false ends the run
    /// there, with the results so far.
    pub progress: Option<&'a (dyn Fn(f64) -> bool + Sync)>,
}

/// What runs the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// The simulator: virtual time, the same bits for the same seed.
    #[default]
    Sim,
    /// Real datagrams between sockets on loopback, in real time.
    Live,
}

impl EngineKind {
    /// Its name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            EngineKind::Sim => "sim",
            EngineKind::Live => "live",
        }
    }
}

/// Who runs the nodes of a live network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Hosting {
    /// This process: each is a socket on loopback.
    #[default]
    Loopback,
    /// This process: each is a network namespace, with veth pairs between them (Linux).
    Namespaces,
    /// A process each.
    Processes(Part),
}

/// One node, which is this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its place among the plan's nodes.
    pub node: usize,
    /// Where the plan's nodes can be reached.
    pub at: Vec<SocketAddr>,
    /// An end of a flow here of which nothing new has come for so long is given up.
    pub patience: Time,
    /// Its keys, if datagrams between nodes are to be sealed.
    pub keys: Option<KeyFile>,
}

/// What a run's digest covers. Both are equal on every machine and for any number of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DigestMode {
    /// The counters of every flow and link at the end, and every row of the interval tables.
    #[default]
    Results,
    /// Every packet-hop: when, where, what.
    Packets,
}

/// What a run gives: tables, and what it took.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The tables; [`RunResult::meta`] says what ran and what it took.
    pub result: RunResult,
    /// Everything about the run that is no table.
    pub run: RunInfo,
}

/// What ran and what it took.
#[derive(Clone, Debug)]
pub struct RunInfo {
    /// Simulated time; less than the plan's if the run was ended.
    pub duration: Time,
    /// Whether it was ended before its time.
    pub stopped: bool,
    /// Events taken.
    pub events: u64,
    /// Transmissions over a link, acknowledgements included.
    pub packet_hops: u64,
    /// Where every packet went.
    pub census: Census,
    /// The digest asked for.
    pub digest: u64,
    /// Flows that ran, those of workloads included.
    pub flows: u64,
    /// Flows of workloads that finished, and their mean completion time in seconds.
    pub finished: u64,
    /// Wall-clock seconds to build the network; a session adds what else it does before the first event.
    pub setup_s: f64,
    /// Wall-clock seconds of the run.
    pub run_wall_s: f64,
    /// CPU seconds that the run's thread took; live, all of the process's.
    pub run_cpu_s: f64,
    /// What a live run has to say of itself; `None` in the simulator.
    pub live: Option<LiveInfo>,
}

/// Why a run gave no result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A table could not be begun.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The capture could not be made.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// Time is counted in 64 bits together with the number of entities.
    #[error(
        "a run of {duration} is too long for a network of this size: at most {horizon}; shorten `duration`"
    )]
    TooLong {
        /// What was asked for.
        duration: Time,
        /// What is possible.
        horizon: Time,
    },
    /// The run would take more memory than it may.
    #[error("the run would take some {needed} of memory, more than the {allowed} that it may: {share} {of}")]
    Memory {
        /// The estimate.
        needed: Bytes,
        /// The limit.
        allowed: Bytes,
        /// The largest part of the estimate.
        share: Bytes,
        /// Its purpose and remedy.
        of: String,
    },
    /// The plan has something that the live engine cannot do.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The live engine met something it cannot go on with.
    #[error(transparent)]
    Live(#[from] tollway_net::Error),
    /// A law of the caller's has given up.
    #[error("the law `{law}` failed: {failure}")]
    Law {
        /// What it is called.
        law: String,
        /// What it said.
        #[source]
        failure: crate::plan::Failure,
    },
    /// Packets appeared or vanished: a bug of the simulator, not of the scenario.
    #[error(
        "packets were not conserved: {census:?}; this is a bug in Tollway, please report it with the scenario"
    )]
    NotConserved {
        /// The count.
        census: Census,
    },
}

/// Runs `plan` to its end.
///
/// # Errors
/// [`RunError`]: a file cannot be created, the run is too long, or the live engine cannot do it. A file that takes no more on the way ends
/// no run: [`RunResult::unwritten`] has it.
pub fn run(plan: &Plan, options: &Options<'_>) -> Result<Finished, RunError> {
    let begun = Instant::now();
    budget::check(plan, options.memory)?;
    match options.engine {
        EngineKind::Sim => {
            let (mut network, ids) = build::simulated(plan);
            if options.digest == DigestMode::Packets {
                network.trace_packets();
            }
            let mut built = Built::new(plan, network, ids);
            let mut capture = match &options.capture {
                Some(wanted) => Some(capture::Writer::new(wanted, plan, &mut built)?),
                None => None,
            };
            let mut drain = |built: &mut Built<_>| {
                if let Some(capture) = &mut capture {
                    capture.drain(plan, built);
                }
            };
            let mut finished = drive(plan, options, &mut built, begun, thread_cpu, &mut drain)?;
            finished.result.unwritten.extend(capture.and_then(capture::Writer::finish));
            finished.run.digest = built.network.trace_digest().unwrap_or(finished.run.digest);
            Ok(finished)
        }
        EngineKind::Live => {
            let plan = &live::adapt(plan, &options.hosting)?;
            if options.capture.is_some() {
                return Err(live::no_capture().into());
            }
            let (network, ids) = live::network(plan, &options.hosting)?;
            let mut built = Built::new(plan, network, ids);
            let mut finished = drive(plan, options, &mut built, begun, process_cpu, &mut |_| {})?;
            finished.run.live = Some(built.network.info(plan));
            Ok(finished)
        }
    }
}

/// Runs what is built; `cpu` answers the CPU seconds spent so far, and `drain` takes what was captured.
fn drive<E: Engine>(
    plan: &Plan,
    options: &Options<'_>,
    network: &mut Built<E>,
    begun: Instant,
    cpu: fn() -> f64,
    drain: &mut dyn FnMut(&mut Built<E>),
) -> Result<Finished, RunError> {
    within_horizon(plan, network)?;
    let mut parts = Parts {
        meter: measure::Meter::new(plan, network, options)?,
        workloads: workload::Generator::new(plan),
        hosts: hosts::Hosts::new(plan),
        policies: aggregates::Policies::new(plan),
    };
    let setup_s = begun.elapsed().as_secs_f64();

    let (wall, cpu_before) = (Instant::now(), cpu());
    let mut agenda = agenda::Agenda::new(plan);
    let mut tick = Time(plan.duration.0 / 100 + 1);
    if options.engine == EngineKind::Live {
        // A hundredth of a long run is too long for whoever pressed Ctrl-C.
        tick = tick.min(Time::from_millis(200));
    }
    let mut next_tick = Time::ZERO;
    let mut slices = Slices { length: Time(1) };
    let own_laws = plan.has_own_laws();
    let (mut stopped, mut over) = (false, false);
    if network.is_part {
        parts.arrive(plan, network);
        within_horizon(plan, network)?;
    }
    loop {
        let mut next = agenda.next().min(parts.next()).min(plan.duration);
        if options.capture.is_some() {
            // What was seen waits in memory until it is written.
            next = next.min(network.network.now().saturating_add(CAPTURE_TICK));
        }
        if let Some(progress) = options.progress {
            next = next.min(next_tick);
            if next == next_tick {
                next_tick += tick;
                stopped = !progress(next.as_secs_f64() / plan.duration.as_secs_f64());
            }
        }
        if own_laws {
            next = next.min(network.network.now().saturating_add(OWN_LAWS_TICK));
        }
        match options.progress {
            Some(progress) if options.engine == EngineKind::Sim => {
                let goes_on = |now: Time| progress(now.as_secs_f64() / plan.duration.as_secs_f64());
                stopped |= !slices.run_until(&mut network.network, next, &goes_on)?;
            }
            _ => over = network.network.run_until(next)?,
        }
        if own_laws && let Some((law, failure)) = plan.failure() {
            return Err(RunError::Law { law, failure });
        }
        drain(network);
        parts.collect(plan, network)?;
        // What the file changes at an instant comes after the measurement that ends there.
        parts.meter.tick(plan, network, options.watch)?;
        if next == plan.duration || stopped || over {
            break;
        }
        agenda.apply(plan, network, &mut parts.hosts);
        parts.policies.apply(plan, network, &parts.workloads);
        parts.arrive(plan, network);
        within_horizon(plan, network)?;
        parts.hosts.tick(plan, network);
    }
    let times = [setup_s, wall.elapsed().as_secs_f64(), cpu() - cpu_before];
    parts.conclude(plan, network, stopped, times)
}

/// What goes on beside the engine while a run is on.
struct Parts {
    meter: measure::Meter,
    workloads: workload::Generator,
    hosts: hosts::Hosts,
    policies: aggregates::Policies,
}

impl Parts {
    /// The next instant at which one of them is due.
    fn next(&self) -> Time {
        self.meter.next().min(self.workloads.next()).min(self.hosts.next()).min(self.policies.next())
    }

    /// Starts the flows of workloads that are due.
    fn arrive<E: Engine>(&mut self, plan: &Plan, network: &mut Built<E>) {
        self.workloads.arrive(plan, network, |built, flow, workload| {
            self.hosts.workload_joined(plan, built, workload, flow);
        });
    }

    /// Takes note of flows that are done.
    fn collect<E: Engine>(&mut self, plan: &Plan, network: &mut Built<E>) -> Result<(), RunError> {
        for (flow, event, at) in network.network.drain_events() {
            let FlowEvent::Done(end) = event else {
                self.meter.flow_begun(flow, at);
                self.hosts.begun(plan, network, flow, at);
                continue;
            };
            match self.workloads.done(flow, end, at) {
                Whose::File => {
                    self.meter.flow_done(flow, end, at);
                    if end == End::Client {
                        self.hosts.left(network, flow);
                    }
                }
                Whose::Workload(None) => {}
                Whose::Workload(Some(running)) => {
                    self.meter.workload_flow_done(network, flow, &running, Some(at))?;
                    self.hosts.left(network, flow);
                    self.policies.left(network, flow, running.gate);
                }
            }
        }
        Ok(())
    }

    /// The results of a run that is over; the times are seconds to set up, to run, and of CPU.
    fn conclude<E: Engine>(
        self,
        plan: &Plan,
        network: &mut Built<E>,
        stopped: bool,
        [setup_s, run_wall_s, run_cpu_s]: [f64; 3],
    ) -> Result<Finished, RunError> {
        let Parts { mut meter, workloads, hosts, mut policies } = self;
        let Totals { census, events, packet_hops } = network.network.settle()?;
        meter.finish_flows(plan, network, &workloads)?;
        let mut tables = SystemTables::default();
        network.report_flows(plan, &mut tables);
        workloads.report(plan, &mut tables);
        hosts.report(plan, network, &mut tables);
        machines::report(plan, network, &mut tables);
        sessions::report(plan, network, &mut tables);
        overlay::report(plan, network, &mut tables);
        policies.report(plan, network, &workloads, &mut tables);
        // Where there are thousands of links, their rows take the place that the flows had.
        network.network.release_flows();
        let (mut result, digest) = meter.finish_links(plan, network)?;
        network.report_links(plan, &mut tables);
        result.systems = tables;
        let run = RunInfo {
            duration: network.network.now(),
            stopped,
            events,
            packet_hops,
            census,
            digest,
            flows: plan.flows.len() as u64 + workloads.arrived(),
            finished: workloads.finished(),
            setup_s,
            run_wall_s,
            run_cpu_s,
            live: None,
        };
        Ok(Finished { result, run })
    }
}

/// The more flows are there at once, the shorter is what an engine can tell apart: an event past it would never come.
fn within_horizon<E: Engine>(plan: &Plan, network: &mut Built<E>) -> Result<(), RunError> {
    let horizon = network.network.horizon();
    if plan.duration > horizon {
        return Err(RunError::TooLong { duration: plan.duration, horizon });
    }
    Ok(())
}

/// Cuts simulated time into slices of like real time, so that a caller can end a run between them.
struct Slices {
    /// Grows and shrinks towards [`SLICE`] of real time.
    length: Time,
}

impl Slices {
    /// Runs to `end`; false if `goes_on` ended the run before.
    fn run_until<E: Engine>(
        &mut self,
        network: &mut E,
        end: Time,
        goes_on: &dyn Fn(Time) -> bool,
    ) -> Result<bool, RunError> {
        loop {
            let begun = Instant::now();
            let next = network.now().saturating_add(self.length).min(end);
            network.run_until(next)?;
            if next == end {
                return Ok(true);
            }
            self.length = match begun.elapsed() {
                took if took < SLICE / 2 => Time(self.length.0.saturating_mul(2)),
                took if took > SLICE => Time((self.length.0 / 2).max(1)),
                _ => self.length,
            };
            if !goes_on(next) {
                return Ok(false);
            }
        }
    }
}

/// Real time between two questions whether a simulation goes on.
const SLICE: Duration = Duration::from_millis(200);
/// How often laws of the caller's are asked whether they go on.
const OWN_LAWS_TICK: Time = Time::from_millis(100);
/// How often what a capture saw is written.
const CAPTURE_TICK: Time = Time::from_millis(100);

/// CPU seconds of this thread, or wall-clock seconds where the system does not tell.
fn thread_cpu() -> f64 {
    cpu_time::ThreadTime::now().as_duration().as_secs_f64()
}

/// CPU seconds of all threads of this process.
fn process_cpu() -> f64 {
    cpu_time::ProcessTime::now().as_duration().as_secs_f64()
}
