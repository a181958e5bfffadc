//! Runs a [`Plan`] on either engine: builds the network, applies the file's events, measures.

mod agenda;
mod budget;
mod build;
mod capture;
mod choices;
mod delays;
mod digest;
mod ends;
mod engine;
mod hosts;
mod kernel_laws;
mod live;
mod measure;
#[cfg(target_os = "linux")]
pub mod mesh;
#[cfg(target_os = "linux")]
mod routers;
mod watch;
mod workload;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollway_law::{Bytes, Time};
use tollway_sim::{Census, End, FlowId};

use crate::plan::Plan;
use build::{Built, aggregates, machines, overlay, sessions};
use engine::{Engine, FlowEvent, Totals};

pub use capture::{Capture, CaptureError, variant_path};
pub use engine::Program;
pub use kernel_laws::KernelLaws;
#[cfg(target_os = "linux")]
pub use live::{LiveInfo, Unsupported, WireInfo};
#[cfg(target_os = "linux")]
pub use routers::{Routed, Routers};
pub use tollway_net::secure::KeyFile;
#[cfg(target_os = "linux")]
pub use tollway_net::sys::{namespace::Privilege, signals::Signals};
pub use watch::Watch;
use workload::Whose;
pub use workload::{Drawn, arrivals};

use crate::tables::{Outputs, RunResult, SystemTables, TableError};

/// Settings of a run that are not part of the plan.
#[derive(Default)]
pub struct Options<'a> {
    /// The engine.
    pub engine: EngineKind,
    /// Location of the nodes of a live run.
    pub hosting: Hosting,
    /// The loader of laws for flows of the kernel's TCP in a live run.
    pub kernel_laws: Option<Arc<dyn KernelLaws>>,
    /// The loader that puts links with an explicit law at the interfaces of the nodes where they
    /// end, in a live run of the kernel's TCP; `None` emulates them.
    #[cfg(target_os = "linux")]
    pub routers: Option<Arc<dyn Routers>>,
    /// Destinations of the result tables.
    pub outputs: Outputs,
    /// Ideal rates of [`Plan::flows`], then of the overlay's senders, Mb/s; empty if not computed.
    pub ideal_mbps: Arc<[[Option<f64>; 2]]>,
    /// Coverage of the digest.
    pub digest: DigestMode,
    /// Memory limit in bytes, for the plan's estimate; `None` is 80 % of free memory.
    pub memory: Option<u64>,
    /// A capture of packets to a file; only in the simulator.
    pub capture: Option<Capture>,
    /// An observer of the interval tables.
    pub watch: Option<&'a dyn Watch>,
    /// Called at least a hundred times with the elapsed fraction of simulated time. If it returns
    /// false, the run ends with the results so far.
    pub progress: Option<&'a (dyn Fn(f64) -> bool + Sync)>,
}

/// The engine of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// The simulator: virtual time; equal seeds give equal bits.
    #[default]
    Sim,
    /// The live engine: real datagrams in real time, on loopback, or as [`Hosting`] states.
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

/// The location of the nodes of a live run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Hosting {
    /// Sockets on loopback in this process, one for each node.
    #[default]
    Loopback,
    /// Network namespaces in this process, one for each node, connected by veth pairs (Linux).
    Namespaces,
    /// Separate processes, one for each node.
    Processes(NodeProcess),
}

/// The single node that this process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeProcess {
    /// Index into [`Plan::nodes`].
    pub node: usize,
    /// Addresses of the plan's nodes, in their order.
    pub at: Vec<SocketAddr>,
    /// Time without news after which this process gives up an end of a flow.
    pub patience: Time,
    /// Keys for sealing datagrams between nodes; `None` leaves them unsealed.
    pub keys: Option<KeyFile>,
}

/// Coverage of a run's digest. Both kinds are equal on every machine and for any number of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DigestMode {
    /// The counters of every flow and link at the end, and every row of the interval tables.
    #[default]
    Results,
    /// Every packet-hop: its time, link and packet.
    Packets,
}

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The tables.
    pub result: RunResult,
    /// Figures of the run outside the tables.
    pub run: RunInfo,
}

/// Figures of a run.
#[derive(Clone, Debug)]
pub struct RunInfo {
    /// Simulated time; less than the plan's duration if the run was stopped.
    pub duration: Time,
    /// True if the run was stopped early.
    pub stopped: bool,
    /// Number of processed events.
    pub events: u64,
    /// Transmissions over a link, acknowledgements included.
    pub packet_hops: u64,
    /// The fate of all packets.
    pub census: Census,
    /// The digest of [`Options::digest`].
    pub digest: u64,
    /// Number of flows, including flows of workloads.
    pub flows: u64,
    /// Number of workload flows that finished, and their mean completion time in seconds.
    pub finished: u64,
    /// Wall-clock seconds to build the network; a session adds its other work before the first
    /// event.
    pub setup_s: f64,
    /// Wall-clock seconds of the run.
    pub run_wall_s: f64,
    /// CPU seconds of the run's thread; in a live run, of the whole process.
    pub run_cpu_s: f64,
    /// Figures of a live run; `None` in the simulator.
    pub live: Option<LiveInfo>,
}

/// The reason for a run without result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A table file could not be created.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The capture failed.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The duration exceeds the engine's horizon: one 64-bit word holds the time and the number of
    /// an entity.
    #[error(
        "a run of {duration} is too long for a network of this size: at most {horizon}; shorten `duration`"
    )]
    TooLong {
        /// The plan's duration.
        duration: Time,
        /// The longest possible duration.
        horizon: Time,
    },
    /// The estimate exceeds the memory limit.
    #[error("the run needs about {needed} of memory, more than the {allowed} allowed: {share} {of}")]
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
    /// The live engine cannot run the plan.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// A law cannot be loaded into the kernel's TCP.
    #[error("`{section}.transport`: the law `{law}` needs a program for the kernel's TCP: {message}")]
    KernelLaw {
        /// The flow's section in the file.
        section: String,
        /// The law.
        law: String,
        /// The reason.
        message: String,
    },
    /// A link cannot be put at an interface.
    #[error("link `{link}`: no router can be put where it ends: {message}")]
    Router {
        /// The link's name.
        link: String,
        /// The reason.
        message: String,
    },
    /// The live engine failed.
    #[error(transparent)]
    Live(#[from] tollway_net::Error),
    /// A law of the caller failed.
    #[error("the law `{law}` failed: {failure}")]
    Law {
        /// The law's name.
        law: String,
        /// The law's error.
        #[source]
        failure: crate::plan::Failure,
    },
    /// Packets appeared or vanished: a bug in the simulator, not in the scenario.
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
/// [`RunError`]: for example if a file cannot be created, the run is too long, or the live engine
/// cannot run the plan. A failed write to a file does not end the run: [`RunResult::unwritten`]
/// lists it.
pub fn run(plan: &Plan, options: &Options<'_>) -> Result<Finished, RunError> {
    let begun = Instant::now();
    budget::check(plan, options.memory)?;
    match options.engine {
        EngineKind::Sim => {
            let (mut network, shapers) = build::simulated(plan);
            if options.digest == DigestMode::Packets {
                network.trace_packets();
            }
            let mut built = Built::new(plan, network, shapers);
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
            let (network, shapers) = live::network(plan, options)?;
            let mut built = Built::new(plan, network, shapers);
            let mut finished = drive(plan, options, &mut built, begun, process_cpu, &mut |_| {})?;
            finished.run.live = Some(built.network.info(plan));
            Ok(finished)
        }
    }
}

/// Runs a built network. `cpu` returns the CPU seconds so far; `drain` takes the captured packets.
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
        events: Vec::new(),
    };
    let setup_s = begun.elapsed().as_secs_f64();

    let (wall, cpu_before) = (Instant::now(), cpu());
    let mut agenda = agenda::Agenda::new(plan);
    let mut tick = Time(plan.duration.0 / 100 + 1);
    if options.engine == EngineKind::Live {
        // A hundredth of a long run would delay the reaction to Ctrl-C.
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
            // Captured packets wait in memory until they are written.
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
        // Changes at an instant follow the measurement that ends there.
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

/// The parts of a run beside the engine.
struct Parts {
    meter: measure::Meter,
    workloads: workload::Generator,
    hosts: hosts::Hosts,
    policies: aggregates::Policies,
    /// Memory for events of flows, empty between two reads.
    events: Vec<(FlowId, FlowEvent, Time)>,
}

impl Parts {
    /// The earliest instant at which a part is due.
    fn next(&self) -> Time {
        self.meter.next().min(self.workloads.next()).min(self.hosts.next()).min(self.policies.next())
    }

    /// Starts the flows of workloads that are due.
    fn arrive<E: Engine>(&mut self, plan: &Plan, network: &mut Built<E>) {
        self.workloads.arrive(plan, network, |built, flow, workload| {
            self.hosts.workload_joined(plan, built, workload, flow);
        });
    }

    /// Handles flows that have begun or finished.
    fn collect<E: Engine>(&mut self, plan: &Plan, network: &mut Built<E>) -> Result<(), RunError> {
        let mut events = std::mem::take(&mut self.events);
        network.network.drain_events(&mut events);
        for (flow, event, at) in events.drain(..) {
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
                    self.meter.workload_flow_done(network, flow, &running, at)?;
                    self.hosts.left(network, flow);
                    if let Some(shaped) = running.shaped {
                        self.policies.left(network, flow, shaped);
                    }
                }
            }
        }
        self.events = events;
        Ok(())
    }

    /// Returns the results of a finished run; the times are seconds of setup, of the run, and of
    /// CPU.
    fn conclude<E: Engine>(
        self,
        plan: &Plan,
        network: &mut Built<E>,
        stopped: bool,
        [setup_s, run_wall_s, run_cpu_s]: [f64; 3],
    ) -> Result<Finished, RunError> {
        let Parts { mut meter, workloads, hosts, mut policies, .. } = self;
        let Totals { census, events, packet_hops } = network.network.settle()?;
        let mut tables = SystemTables::default();
        network.report_flows(plan, &mut tables);
        workloads.report(plan, &mut tables);
        hosts.report(plan, network, &mut tables);
        machines::report(plan, network, &mut tables);
        sessions::report(plan, network, &mut tables);
        overlay::report(plan, network, &mut tables);
        policies.report(plan, network, &workloads, &mut tables);
        meter.finish_flows(plan, network, &workloads)?;
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

/// Checks the duration against the engine's horizon, which shrinks as the number of concurrent
/// flows grows. Later events would never occur.
fn within_horizon<E: Engine>(plan: &Plan, network: &mut Built<E>) -> Result<(), RunError> {
    let horizon = network.network.horizon();
    if plan.duration > horizon {
        return Err(RunError::TooLong { duration: plan.duration, horizon });
    }
    Ok(())
}

/// Divides simulated time into slices of nearly constant real time, so that a caller can end a run
/// between them.
struct Slices {
    /// Adapts towards [`SLICE`] of real time.
    length: Time,
}

impl Slices {
    /// Runs until `end`; returns false if `goes_on` ended the run before.
    fn run_until<E: Engine>(
        &mut self,
        network: &mut E,
        end: Time,
        goes_on: &dyn Fn(Time) -> bool,
    ) -> Result<bool, RunError> {
        loop {
            let next = network.now().saturating_add(self.length);
            if next >= end {
                network.run_until(end)?;
                return Ok(true);
            }
            let begun = Instant::now();
            network.run_until(next)?;
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

/// Real time between two calls of `goes_on`.
const SLICE: Duration = Duration::from_millis(200);
/// Simulated time between two checks of the caller's laws.
const OWN_LAWS_TICK: Time = Time::from_millis(100);
/// Simulated time between two writes of a capture.
const CAPTURE_TICK: Time = Time::from_millis(100);

/// CPU seconds of this thread; wall-clock seconds if the system does not report them.
fn thread_cpu() -> f64 {
    cpu_time::ThreadTime::now().as_duration().as_secs_f64()
}

/// CPU seconds of all threads of this process.
fn process_cpu() -> f64 {
    cpu_time::ProcessTime::now().as_duration().as_secs_f64()
}
