//! Runs a [`Plan`] in the simulator: builds the network, applies what happens on the way, measures.

mod agenda;
mod build;
mod capture;
mod digest;
mod hosts;
mod measure;
mod workload;

pub use capture::{Capture, CaptureError, variant_path};

use std::time::Instant;

use tollway_law::Time;
use tollway_sim::Census;

use crate::plan::Plan;
use crate::tables::{Outputs, RunResult, TableError};

/// How to run, apart from what the plan says.
#[derive(Default)]
pub struct Options<'a> {
    /// Where the result tables go.
    pub outputs: Outputs,
    /// What an ideal allocation gives each of [`Plan::flows`], Mb/s; empty if nobody worked it out.
    pub ideal_mbps: Vec<Option<f64>>,
    /// What the digest covers.
    pub digest: DigestMode,
    /// What crosses links, to a file.
    pub capture: Option<Capture>,
    /// Called a hundred times or more with the share of the simulated time that is over; answering false ends the run
    /// there, with the results so far.
    pub progress: Option<&'a (dyn Fn(f64) -> bool + Sync)>,
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
    /// Wall-clock seconds to build the network.
    pub setup_s: f64,
    /// Wall-clock seconds of the run.
    pub run_wall_s: f64,
    /// CPU seconds that the run's thread took.
    pub run_cpu_s: f64,
}

/// Why a run gave no result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A table could not be written.
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
/// [`RunError`]: a file cannot be written, or the run is too long.
pub fn run(plan: &Plan, options: &Options<'_>) -> Result<Finished, RunError> {
    let begun = Instant::now();
    let mut network = build::Built::new(plan);
    let horizon = network.network.horizon();
    if plan.duration > horizon {
        return Err(RunError::TooLong { duration: plan.duration, horizon });
    }
    if options.digest == DigestMode::Packets {
        network.network.trace_packets();
    }
    let mut capture = options
        .capture
        .as_ref()
        .map(|wanted| capture::Writer::new(wanted, plan, &mut network))
        .transpose()?;
    let mut meter = measure::Meter::new(plan, &mut network, options)?;
    let mut workloads = workload::Generator::new(plan);
    let mut hosts = hosts::Hosts::new(plan);
    let setup_s = begun.elapsed().as_secs_f64();

    let (wall, cpu) = (Instant::now(), cpu_time());
    let mut agenda = agenda::Agenda::new(plan);
    let (tick, mut next_tick) = (Time(plan.duration.0 / 100 + 1), Time::ZERO);
    let mut stopped = false;
    loop {
        let timers = agenda.next().min(meter.next()).min(workloads.next()).min(hosts.next());
        let mut next = timers.min(plan.duration);
        if capture.is_some() {
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
        network.network.run_until(next);
        if let Some(capture) = &mut capture {
            capture.drain(plan, &mut network)?;
        }
        workloads.collect(&mut network, &mut meter, &mut hosts)?;
        // What the file changes at an instant comes after the measurement that ends there.
        meter.tick(plan, &mut network)?;
        if next == plan.duration || stopped {
            break;
        }
        agenda.apply(plan, &mut network, &mut hosts);
        workloads.arrive(plan, &mut network, &mut hosts);
        hosts.tick(plan, &mut network);
    }
    if let Some(capture) = capture {
        capture.finish()?;
    }
    let (run_wall_s, run_cpu_s) = (wall.elapsed().as_secs_f64(), cpu_time() - cpu);

    let census = network.network.census();
    if !census.is_conserved() || network.network.packets_alive() != census.queued + census.in_flight {
        return Err(RunError::NotConserved { census });
    }
    let (mut result, results_digest) = meter.finish(plan, &mut network, &workloads)?;
    network.extras(plan, &mut result.extra);
    workloads.extras(plan, &mut result.extra);
    hosts.extras(plan, &mut result.extra);
    let run = RunInfo {
        duration: network.network.now(),
        stopped,
        events: network.network.events(),
        packet_hops: network.network.packet_hops(),
        census,
        digest: network.network.trace_digest().unwrap_or(results_digest),
        flows: plan.flows.len() as u64 + workloads.arrived(),
        finished: workloads.finished(),
        setup_s,
        run_wall_s,
        run_cpu_s,
    };
    Ok(Finished { result, run })
}

/// How often what a capture saw is written.
const CAPTURE_TICK: Time = Time::from_millis(100);

/// CPU seconds of this thread, or wall-clock seconds where the system does not tell.
fn cpu_time() -> f64 {
    cpu_time::ThreadTime::now().as_duration().as_secs_f64()
}
