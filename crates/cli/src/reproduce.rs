//! `tollway reproduce`.

use std::path::Path;
use std::process::ExitCode;
#[cfg(target_os = "linux")]
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollway_report::agreement::{self, Agreed};
use tollway_report::claim::{Judgements, Ledger, Report};
use tollway_report::live::{self, LiveClaim, RealEngine};
use tollway_report::neighbourhood::draw;
use tollway_report::papers;
use tollway_report::reproduce::{
    Found, ReproduceError, Reproduced, check_all, judge, list, missing_peers, read, reproduce as run_one,
    select,
};
use tollway_report::runner::Runner;
use tollway_report::{Experiment, Gallery};
use tollway_scenario::file::{Scenario, Variant};
use tollway_scenario::run::EngineKind;
#[cfg(target_os = "linux")]
use tollway_scenario::run::Routers;

use crate::args::{Engine, Hosts, Reproduce};
use crate::fail::Failure;
use crate::terminal::{self, Bars, Count, say};

pub(crate) fn reproduce(args: &Reproduce) -> Result<ExitCode, Failure> {
    if args.list {
        return print_list(&args.papers);
    }
    if args.hosts == Hosts::Namespaces && !args.engine.is_live() {
        return Err(crate::run::needs_live());
    }
    if args.engine.is_live() && (args.check.is_some() || args.record.is_some()) {
        let error = miette::miette!(
            help = "leave out `--engine`, or `--check` and `--record`",
            "judgements are recorded only for simulated runs, since live runs are never identical"
        );
        return Err(Failure::input(error));
    }
    let ledger = ledger(&args.papers)?;
    let known = args.check.as_deref().map(Judgements::read).transpose().map_err(Failure::input)?;
    let mut judged = match args.record.as_deref().filter(|path| !args.names.is_empty() && path.exists()) {
        Some(path) => Judgements::read(path).map_err(Failure::input)?,
        None => Judgements::default(),
    };
    #[cfg(target_os = "linux")]
    if args.engine.is_live() {
        // Must precede the first thread. Experiments with the kernel's TCP need it; without it
        // their claims are skipped.
        let acquired = tollway_scenario::run::Privilege::acquire();
        if args.hosts == Hosts::Namespaces {
            acquired
                .map_err(|error| Failure::with_code(miette::miette!("`--hosts namespaces`: {error}"), 1))?;
        }
    }
    let missing = missing_peers();
    let mut all = Report::default();
    let mut gallery = Gallery::default();
    let mut differences = Vec::new();
    let talk = !args.json && !args.quiet;
    let selected = select(&args.papers, &args.names)?;
    check_all(&selected)?;
    for found in selected {
        if talk && args.engine == Engine::Sim {
            say(format_args!("{}\n", found.name));
        }
        if args.engine.is_live() {
            let (scenario, experiment) = read(&found)?;
            match live(&found, &scenario, &experiment, args, talk)? {
                Some(report) => all.extend(report),
                None => return Ok(ExitCode::from(130)),
            }
            continue;
        }
        let Some(reproduced) = simulated(&found, args, &missing, talk)? else {
            return Ok(ExitCode::from(130));
        };
        let drawn = reproduced.draw(&args.out, &args.pictures.options())?;
        reproduced.hang(&mut gallery);
        if talk {
            say(reproduced.report.to_table(terminal::width()));
            for path in drawn {
                say(format_args!("wrote {}\n", path.display()));
            }
            say("\n");
        }
        if let Some(known) = &known {
            differences.extend(known.differences(&found.name, &reproduced.report));
        }
        judged.record(&found.name, &reproduced.report);
        all.extend(reproduced.report);
    }
    if args.engine.is_live() && all.claims.is_empty() {
        return Err(ReproduceError::NothingLive.into());
    }
    if args.json {
        say(format_args!("{}\n", all.to_json()));
    } else if args.quiet && all.unmet + all.fragile > 0 && known.is_none() {
        say(all.failing_to_table(terminal::width()));
    } else {
        say(format_args!("{}\n", all.totals()));
    }
    if gallery.len() > 1 {
        let page = gallery.write(&args.out, &ledger).map_err(ReproduceError::from)?;
        if talk {
            say(format_args!("wrote {}: all experiments on one page\n", page.display()));
        }
    }
    if let Some(path) = &args.record {
        std::fs::write(path, judged.to_text())
            .map_err(|error| Failure::run(miette::miette!("cannot write {}: {error}", path.display())))?;
        // A user has to add missing entries to the list, since they need reasons.
        ledger.differences(&judged).iter().for_each(terminal::tell);
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(known) = known {
        differences.extend(ledger.differences(&known).into_iter().chain(ledger.outdated(&all)));
        differences.iter().for_each(terminal::tell);
        return Ok(ExitCode::from(u8::from(!differences.is_empty())));
    }
    if args.engine == Engine::Kernel {
        return Ok(explained(&ledger, &all));
    }
    Ok(ExitCode::from(u8::from(all.unmet + all.fragile > 0)))
}

/// The exit status of claims over the kernel's TCP: those on the list may be unmet.
fn explained(ledger: &Ledger, all: &Report) -> ExitCode {
    let unexplained: Vec<_> = ledger.unexplained(all).collect();
    for claim in &unexplained {
        terminal::tell(format_args!("`{}` is unmet, but not on the list", claim.id));
    }
    ExitCode::from(u8::from(!unexplained.is_empty()))
}

fn print_list(papers: &Path) -> Result<ExitCode, Failure> {
    let all = list(papers)?;
    let wide = all.iter().map(|found| found.name.len()).max().unwrap_or(0);
    for found in all {
        let line = format!("{:wide$}  {}", found.name, found.title());
        say(format_args!("{}\n", line.trim_end()));
    }
    Ok(ExitCode::SUCCESS)
}

/// The list of fragile and unmet claims with their reasons, if there is one beside the experiments.
fn ledger(folder: &Path) -> Result<Ledger, Failure> {
    let path = folder.join("unmet.toml");
    match papers::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Ledger::default()),
        _ => Ledger::read(&path).map_err(|error| Failure::input(miette::miette!("{error}"))),
    }
}

/// An experiment judged at its base and at the requested neighbours; `None` if Ctrl-C ended it. The
/// runs are those of the base.
fn simulated(
    found: &Found,
    args: &Reproduce,
    missing: &[String],
    talk: bool,
) -> Result<Option<Reproduced>, Failure> {
    let interrupted = terminal::interrupt_flag();
    let go_on = || !interrupted.load(Ordering::Relaxed);
    let (scenario, experiment) = read(found)?;
    let bars = Bars::new(&found.name, scenario.variants(), talk);
    let tell = |i: usize, share: f64| {
        bars.set(i, share);
        go_on()
    };
    let mut reproduced = run_one(&scenario, experiment, args.jobs, missing, Some(&tell))?;
    bars.clear();
    let seed = scenario.variants()[0].plan.seed;
    let neighbours = match (&reproduced.experiment.neighbourhood, args.quick) {
        (Some(neighbourhood), false) => {
            let all = neighbourhood.neighbours(seed).map_err(ReproduceError::from)?;
            draw(&found.name, all, args.neighbours.unwrap_or(usize::MAX))
        }
        _ => Vec::new(),
    };
    if go_on() && !neighbours.is_empty() {
        let count = Count::new("neighbours", neighbours.len() as u64, talk);
        let done = AtomicU64::new(0);
        let tell = |_, share: f64| {
            if share == 1.0 {
                count.set_of(done.fetch_add(1, Ordering::Relaxed) + 1, neighbours.len() as u64);
            }
            go_on()
        };
        reproduced = judge(found, reproduced, &neighbours, args.jobs, missing, &tell)?;
        count.clear();
    }
    if !go_on() {
        terminal::tell("interrupted: nothing is judged, since a run is not complete");
        return Ok(None);
    }
    Ok(Some(reproduced))
}

/// An experiment's live parts, compared with the simulator; `None` if Ctrl-C ended them.
fn live(
    found: &Found,
    scenario: &Scenario,
    experiment: &Experiment,
    args: &Reproduce,
    talk: bool,
) -> Result<Option<Report>, Failure> {
    let interrupted = terminal::interrupt_flag();
    let mut all = Report::default();
    let engine = if args.engine == Engine::Kernel { RealEngine::Kernel } else { RealEngine::Live };
    let laws = crate::run::kernel_laws();
    for comparison in experiment.live.iter().filter(|comparison| comparison.engine == engine) {
        let real = Runner {
            engine: EngineKind::Live,
            hosting: args.hosts.into(),
            kernel_laws: laws.clone(),
            #[cfg(target_os = "linux")]
            routers: comparison.router.then(|| Arc::new(tollway_router::Links) as Arc<dyn Routers>),
            ..Runner::default()
        };
        let scenario = agreement::scenario(scenario.text(), &found.path, comparison)?;
        if talk {
            let at_once = comparison.kernel.map_or(1, |bounds| bounds.at_once.max(1));
            let longest = |variants: &[Variant]| {
                variants.iter().map(|variant| variant.plan.duration.as_secs_f64()).fold(0.0, f64::max)
            };
            let seconds: f64 = scenario.variants().chunks(at_once).map(longest).sum();
            say(format_args!("{}: {seconds:.0} s of real time\n", comparison.id));
        }
        let bars = Bars::new(&found.name, scenario.variants(), talk);
        let tell = |i: usize, share: f64| {
            bars.set(i, share);
            !interrupted.load(Ordering::Relaxed)
        };
        let report = match &comparison.kernel {
            None => {
                let mut agreed = agreement::agree(&scenario, experiment, comparison, &real, Some(&tell))?;
                let cubic = agreement::cubic(scenario.text(), &found.path, comparison)?;
                let cubic = cubic.map(|scenario| real.run(&scenario, None)).transpose()?.unwrap_or_default();
                agreed.judge(experiment, comparison, &cubic);
                if engine == RealEngine::Kernel && !interrupted.load(Ordering::Relaxed) {
                    draw_kernel(args, experiment, &agreed, talk)?;
                }
                agreed.report
            }
            Some(bounds) => with_kernel(&scenario, experiment, comparison, bounds, &tell)?,
        };
        bars.clear();
        if interrupted.load(Ordering::Relaxed) {
            terminal::tell("interrupted: nothing is judged, since a run is not complete");
            return Ok(None);
        }
        if talk {
            say(report.to_table(terminal::width()));
            say("\n");
        }
        all.extend(report);
    }
    Ok(Some(all))
}

/// Draws the kernel's runs, as the experiment's page with the word `kernel`.
fn draw_kernel(
    args: &Reproduce,
    experiment: &Experiment,
    agreed: &Agreed,
    talk: bool,
) -> Result<(), ReproduceError> {
    let name = format!("{}-kernel", experiment.name);
    let experiment = Experiment { name, ..experiment.clone() };
    let reproduced = Reproduced { experiment, runs: agreed.live.clone(), report: agreed.report.clone() };
    for path in reproduced.draw(&args.out, &args.pictures.options())? {
        if talk {
            say(format_args!("wrote {}\n", path.display()));
        }
    }
    Ok(())
}

/// Compares the kernel's TCP with the simulator's, where this system allows namespaces.
#[cfg(target_os = "linux")]
fn with_kernel(
    scenario: &Scenario,
    experiment: &Experiment,
    comparison: &LiveClaim,
    bounds: &live::Tolerances,
    progress: &(dyn Fn(usize, f64) -> bool + Sync),
) -> Result<Report, ReproduceError> {
    tollway_report::kernel_agreement::agree(scenario, experiment, comparison, bounds, Some(progress))
}

#[cfg(not(target_os = "linux"))]
fn with_kernel(
    _: &Scenario,
    _: &Experiment,
    comparison: &LiveClaim,
    _: &live::Tolerances,
    _: &(dyn Fn(usize, f64) -> bool + Sync),
) -> Result<Report, ReproduceError> {
    Err(ReproduceError::Kernel { claim: comparison.id.clone(), message: "this needs Linux".into() })
}
