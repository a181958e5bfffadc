//! Scenario files, and policies: whatever is written is read or refused with a message, and what is small enough to be run, runs.

use tollway_scenario::file::Scenario;
use tollway_scenario::plan::Plan;
use tollway_scenario::run::{Options, RunError, run};

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

/// A file of policies as bytes: what is right says of any connection whose it is.
#[cfg(target_os = "linux")]
pub fn policies(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match tollway_scenario::shape::Policies::parse("fuzz.toml", text) {
        Ok(policies) => {
            let regime = policies.into_regime();
            let classes = regime.tenants.iter().map(|tenant| tenant.classes.len() as u32).sum::<u32>();
            for (remote, cgroup) in
                [("192.0.2.1:443", Some("/a.slice/docker-1.scope")), ("[2001:db8::1]:1", None)]
            {
                let who = tollway_scenario::shape::Identity {
                    local: "10.0.0.1:80".parse().expect("an address"),
                    remote: remote.parse().expect("an address"),
                    uid: 33,
                    cgroup,
                };
                assert!(regime.rules.class_of(&who).is_none_or(|class| class < classes));
            }
        }
        Err(error) => {
            let end = |mistake: &tollway_scenario::file::Mistake| mistake.span.offset() + mistake.span.len();
            assert!(error.mistakes().iter().all(|mistake| end(mistake) <= text.len().max(1) + 1));
        }
    }
}

/// A hundred thousand nodes are right, and slow.
fn huge_count(text: &str) -> bool {
    let digits = |c: char| c.is_ascii_digit() || c == '_';
    text.split(|c: char| !digits(c)).any(|run| run.len() > 4)
}

/// Runs a tenth of a second of it, unless that takes long.
fn run_if_small(plan: &Plan) {
    let mut plan = plan.clone();
    let most = tollway_law::Time::from_millis(100);
    plan.duration = plan.duration.min(most);
    plan.measure.warmup = plan.measure.warmup.min(tollway_law::Time(plan.duration.0 / 2));
    plan.measure.interval = None;
    let fastest = plan.links.iter().map(|link| link.rate.mbps()).fold(0.0, f64::max);
    let cross: f64 = plan.cbrs.iter().map(|cbr| cbr.rate.mbps() / f64::from(cbr.packet_size)).sum();
    let arrivals: f64 = plan.workloads.iter().map(per_sec).sum();
    let frames = plan.flows.iter().any(
        |flow| matches!(flow.data, tollway_scenario::plan::Data::Frames { count, .. } if count > 10_000),
    );
    if plan.links.len() > 64
        || plan.flows.len() > 64
        || fastest > 200.0
        || cross > 1.0
        || arrivals > 10_000.0
        || frames
    {
        return;
    }
    let windows = plan.transports.iter().any(|t| t.initial_window > 10_000);
    if windows {
        return;
    }
    match run(&plan, &Options::default()) {
        Ok(_) | Err(RunError::TooLong { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

fn per_sec(workload: &tollway_scenario::plan::Workload) -> f64 {
    match workload.arrivals {
        tollway_scenario::plan::Arrivals::Poisson { per_sec } => per_sec,
        tollway_scenario::plan::Arrivals::Every(gap) => 1.0 / gap.as_secs_f64(),
    }
}
