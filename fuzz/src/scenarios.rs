//! Scenario files: whatever is written is read or refused with a message, and what is small enough
//! to be run, runs.

use std::io::Cursor;
use std::path::Path;
use std::time::{Duration, Instant};

use arrow_array::{Array, Float64Array};
use tollway_law::Time;
use tollway_law::toll::Content;
use tollway_proto::Change;
use tollway_scenario::file::{Scenario, fuzzing};
use tollway_scenario::plan::{Arrivals, Flow, Plan, TransportId, What, Workload};
use tollway_scenario::run::{DigestMode, Finished, Options, RunError, run};
use tollway_scenario::tables::{Outputs, Table};

/// A scenario file as bytes; what follows a line `%%` is a `--set`, one a line.
pub fn scenario(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // A file of sizes would be read from the disk of whoever runs this.
    if text.contains("count") && huge_count(text) {
        return;
    }
    let (file, sets) = text.split_once("\n%%\n").unwrap_or((text, ""));
    let sets: Vec<&str> = sets.lines().collect();
    match Scenario::parse("fuzz.toml", file, &sets) {
        Ok(scenario) => scenario.variants().iter().for_each(|variant| run_if_small(&variant.plan)),
        Err(error) => {
            assert!(!error.mistakes().is_empty());
            for mistake in error.mistakes() {
                let end = mistake.span.offset() + mistake.span.len();
                assert!(end <= text.len().max(1) + 1, "a place outside of the text");
            }
        }
    }
}

/// A result table as it lies on a disk: read, or refused.
pub fn table(data: &[u8]) {
    for table in Table::ALL {
        if let Ok(batches) = table.read_from(Cursor::new(data), Path::new("fuzz.arrow")) {
            let columns = table.columns().len();
            assert!(batches.iter().all(|batch| batch.num_columns() >= columns));
        }
    }
}

/// A hundred thousand nodes are right, and slow.
fn huge_count(text: &str) -> bool {
    let digits = |c: char| c.is_ascii_digit() || c == '_';
    text.split(|c: char| !digits(c)).any(|run| run.len() > 4)
}

/// A file drawn from the table of keys, without its mistakes: it runs to its end, no packet appears
/// or vanishes, no number is wild, and a second run is the same.
pub fn drawn(data: &[u8]) {
    let Some(scenario) = accepted(fuzzing::draw(data)) else { return };
    scenario.variants().iter().for_each(|variant| run_if_small(&variant.plan));
}

/// The file without what is wrong in it.
pub fn accepted(mut text: String) -> Option<Scenario> {
    for _ in 0..40 {
        let error = match Scenario::parse("drawn.toml", &text, NO_SETS) {
            Ok(scenario) => return Some(scenario),
            Err(error) => error,
        };
        let first = error.mistakes().iter().map(|mistake| mistake.span.offset()).min()?;
        text = fuzzing::without(&text, first)?;
    }
    None
}

const NO_SETS: &[&str] = &[];

/// Runs as much of it as makes some ten thousand packets, or as a second is enough for.
fn run_if_small(plan: &Plan) {
    let Some(plan) = shortened(plan) else { return };
    let Some(once) = finish(&plan, Options { outputs: Outputs::memory(), ..Options::default() }) else {
        return;
    };
    assert_finite(&once);
    let Some(again) = finish(&plan, Options { digest: DigestMode::Packets, ..Options::default() }) else {
        return;
    };
    let counts = |finished: &Finished| (finished.run.events, finished.run.packet_hops, finished.run.census);
    assert_eq!(counts(&once), counts(&again), "a second run is the same");
}

/// `None` if it takes too long, or more memory than there is.
fn finish(plan: &Plan, options: Options<'_>) -> Option<Finished> {
    let begun = Instant::now();
    let progress = |_| begun.elapsed() < Duration::from_secs(1);
    match run(plan, &Options { progress: Some(&progress), ..options }) {
        Ok(finished) => (!finished.run.stopped).then_some(finished),
        Err(RunError::TooLong { .. } | RunError::Memory { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

/// The same for so long as links, sources and arrivals are good for some ten thousand packets.
fn shortened(plan: &Plan) -> Option<Plan> {
    let mut plan = plan.clone();
    let fastest = |i: usize| {
        let later = plan.events.iter().map(|event| match event.what {
            What::Link(link, Change::Rate(rate)) if link.0 as usize == i => rate.bytes_per_sec(),
            _ => 0.0,
        });
        later.fold(plan.links[i].rate.bytes_per_sec(), f64::max)
    };
    let bytes: f64 = (0..plan.links.len()).map(fastest).sum();
    let cross: f64 = plan.cbrs.iter().map(|cbr| cbr.rate.bytes_per_sec() / f64::from(cbr.packet_size)).sum();
    let arrivals: f64 = plan.workloads.iter().map(per_sec).sum();
    let most = (30e6 / bytes).min(100e3 / cross).min(1e3 / arrivals);
    // XCP's window has no end where nobody answers.
    let law = |transport: TransportId| &plan.transports[transport.0 as usize].law;
    let long_flow = |flow: &Flow| match flow.data.bytes() {
        None => (1_000..u32::MAX).contains(&flow.receive_buffer.min(flow.send_buffer)),
        Some(bytes) => bytes > 1_000_000,
    };
    let xcp = |transport: TransportId| law(transport).descriptor().reads == Some(Content::Feedback);
    let endless =
        plan.workloads.iter().any(|workload| xcp(workload.transport) && workload.sizes.mean() > 1e6)
            || plan.flows.iter().any(|flow| xcp(flow.transport) && long_flow(flow));
    plan.duration = plan.duration.min(Time::from_secs_f64(most).max(Time(1)));
    plan.measure.warmup = plan.measure.warmup.min(Time(plan.duration.0 / 2));
    let shortest = Time(plan.duration.0 / 50 + 1);
    plan.measure.interval = plan.measure.interval.map(|interval| interval.max(shortest));
    // What is sent again or looked at each nanosecond is right, and slow.
    let often = Time(plan.duration.0 / 1000 + 1);
    plan.shapers.iter_mut().for_each(|shaper| shaper.timer = shaper.timer.max(often));
    for transport in &mut plan.transports {
        let rto = &mut transport.rto;
        (rto.initial, rto.min) = (rto.initial.max(often), rto.min.max(often));
        rto.max = rto.max.max(rto.min);
    }
    let windows = plan.transports.iter().any(|transport| transport.initial_window > 1_000);
    let many = plan.links.len() > 64 || plan.flows.len() > 64;
    (!windows && !many && !endless).then_some(plan)
}

/// No number in a table is wild.
fn assert_finite(finished: &Finished) {
    let result = &finished.result;
    for batch in [&result.flows, &result.links, &result.summary, &result.link_summary].into_iter().flatten() {
        for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
            let numbers = column.as_any().downcast_ref::<Float64Array>().into_iter().flatten().flatten();
            for x in numbers {
                let most = if field.name() == "utilisation" { 1.0 + 1e-9 } else { f64::MAX };
                assert!((0.0..=most).contains(&x), "{} is {x}", field.name());
            }
        }
    }
}

fn per_sec(workload: &Workload) -> f64 {
    match workload.arrivals {
        Arrivals::Poisson { per_sec } => per_sec,
        Arrivals::Every(gap) => 1.0 / gap.as_secs_f64(),
    }
}
