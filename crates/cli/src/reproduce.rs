//! `tollway reproduce`.

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use tollway_report::agreement;
use tollway_report::claim::{Ledger, Report};
use tollway_report::reproduce::{
    Found, ReproduceError, Reproduced, check_all, list, missing_peers, over_seeds, read,
    reproduce as run_one, select,
};
use tollway_report::{Experiment, Gallery};
use tollway_scenario::file::{Scenario, Variant};
use tollway_scenario::run::Hosting;

use crate::args::{Engine, Hosts, Reproduce};
use crate::fail::Failure;
use crate::terminal::{self, Bars, say};

pub(crate) fn reproduce(args: &Reproduce) -> Result<ExitCode, Failure> {
    if args.list {
        for found in list(&args.papers)? {
            say(format_args!("{}\n", found.name));
        }
        return Ok(ExitCode::SUCCESS);
    }
    if args.hosts == Hosts::Namespaces && args.engine != Engine::Live {
        return Err(crate::run::needs_live());
    }
    if args.seeds > 1 && args.engine == Engine::Live {
        let error = miette::miette!(
            help = "leave out `--seeds`, or `--engine live`",
            "`--seeds` is for the simulator: real packets have chance of their own"
        );
        return Err(Failure::input(error));
    }
    let read_ledger = |path: &Path| Ledger::read(path).map_err(|e| Failure::input(miette::miette!("{e}")));
    let ledger = args.check_unmet.as_deref().map(read_ledger).transpose()?;
    #[cfg(target_os = "linux")]
    if args.engine == Engine::Live {
        // Before any thread is started, and for those experiments that want the kernel's TCP; without it their claims are skipped.
        let acquired = tollway_scenario::exec::Privilege::acquire();
        if args.hosts == Hosts::Namespaces {
            acquired
                .map_err(|error| Failure::with_code(miette::miette!("`--hosts namespaces`: {error}"), 1))?;
        }
    }
    let missing = missing_peers();
    let mut all = Report::default();
    let mut gallery = Gallery::default();
    let talk = !args.json && !args.quiet;
    let selected = select(&args.papers, &args.names)?;
    check_all(&selected)?;
    for found in selected {
        if talk && args.engine == Engine::Sim {
            say(format_args!("{}\n", found.name));
        }
        if args.engine == Engine::Live {
            let (scenario, experiment) = read(&found)?;
            match live(&found, &scenario, &experiment, &args.hosts.into(), talk)? {
                Some(report) => all.extend(report),
                None => return Ok(ExitCode::from(130)),
            }
            continue;
        }
        let Some(reproduced) = simulated(&found, args, &missing, talk)? else {
            return Ok(ExitCode::from(130));
        };
        let drawn = reproduced.draw(&args.out)?;
        reproduced.hang(&mut gallery);
        if talk {
            say(reproduced.report.to_table(terminal::width()));
            for path in drawn {
                say(format_args!("wrote {}\n", path.display()));
            }
            say("\n");
        }
        all.extend(reproduced.report);
    }
    if args.engine == Engine::Live && all.claims.is_empty() {
        return Err(ReproduceError::NothingLive.into());
    }
    if args.json {
        say(format_args!("{}\n", all.to_json()));
    } else if args.quiet && all.unmet > 0 {
        say(all.unmet_to_table(terminal::width()));
    } else {
        say(format_args!("{}\n", all.totals()));
    }
    if gallery.len() > 1 {
        let known = args.papers.join("unmet.toml");
        let reasons = match &ledger {
            Some(ledger) => ledger.clone(),
            None if known.exists() => read_ledger(&known)?,
            None => Ledger::default(),
        };
        let page = gallery.write(&args.out, &reasons).map_err(ReproduceError::from)?;
        if talk {
            say(format_args!("wrote {}: all of it on one page\n", page.display()));
        }
    }
    if let Some(ledger) = ledger {
        let differences = ledger.compare(&all, args.names.is_empty() && args.engine == Engine::Sim);
        differences.iter().for_each(terminal::tell);
        return Ok(ExitCode::from(u8::from(!differences.is_empty())));
    }
    Ok(ExitCode::from(u8::from(all.unmet > 0)))
}

/// An experiment with each of the seeds asked for, judged together; `None` if Ctrl-C ended them. Its runs are those of the first.
fn simulated(
    found: &Found,
    args: &Reproduce,
    missing: &[String],
    talk: bool,
) -> Result<Option<Reproduced>, Failure> {
    let interrupted = terminal::interrupt_flag();
    over_seeds(found, args.seeds, |later, scenario, experiment| {
        let seed = scenario.variants()[0].plan.seed;
        let what = if later == 0 { found.name.clone() } else { format!("{}, seed {seed}", found.name) };
        let bars = Bars::new(&what, scenario.variants(), talk);
        let tell = |i: usize, share: f64| {
            bars.set(i, share);
            !interrupted.load(Ordering::Relaxed)
        };
        let reproduced = run_one(&scenario, experiment, args.jobs, missing, Some(&tell))?;
        bars.clear();
        if interrupted.load(Ordering::Relaxed) {
            terminal::tell("interrupted: half a run shows nothing, so nothing is judged");
            return Ok(None);
        }
        Ok(Some(reproduced))
    })
}

/// An experiment's live parts, held against the simulator; `None` if Ctrl-C ended them.
fn live(
    found: &Found,
    scenario: &Scenario,
    experiment: &Experiment,
    hosting: &Hosting,
    talk: bool,
) -> Result<Option<Report>, Failure> {
    let interrupted = terminal::interrupt_flag();
    let mut all = Report::default();
    for comparison in &experiment.live {
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
            None => agreement::agree(&scenario, experiment, comparison, hosting, Some(&tell))?,
            Some(bounds) => with_kernel(&scenario, experiment, comparison, bounds, &tell)?,
        };
        bars.clear();
        if interrupted.load(Ordering::Relaxed) {
            terminal::tell("interrupted: half a run shows nothing, so nothing is judged");
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

/// The kernel's TCP beside the simulator's, where this system lets us have namespaces.
#[cfg(target_os = "linux")]
fn with_kernel(
    scenario: &Scenario,
    experiment: &Experiment,
    comparison: &agreement::Comparison,
    bounds: &agreement::Bounds,
    progress: &(dyn Fn(usize, f64) -> bool + Sync),
) -> Result<Report, ReproduceError> {
    tollway_report::kernel::agree(scenario, experiment, comparison, bounds, Some(progress))
}

#[cfg(not(target_os = "linux"))]
fn with_kernel(
    _: &Scenario,
    _: &Experiment,
    comparison: &agreement::Comparison,
    _: &agreement::Bounds,
    _: &(dyn Fn(usize, f64) -> bool + Sync),
) -> Result<Report, ReproduceError> {
    Err(ReproduceError::Kernel { claim: comparison.id.clone(), message: "it needs Linux".into() })
}
