//! `tollway sweep`.

use std::process::ExitCode;
use std::sync::atomic::Ordering;

use tollway_report::sweep::{Plot, Sweep, Vary};

use crate::args;
use crate::fail::Failure;
use crate::terminal::{self, Count, say};

pub(crate) fn sweep(args: &args::Sweep) -> Result<ExitCode, Failure> {
    let mut sets = args.sets.clone();
    sets.extend(args.seed.map(|seed| format!("seed={seed}")));
    let sweep = Sweep {
        file: args.file.clone(),
        sets,
        vary: args.vary.iter().map(|text| Vary::parse(text)).collect::<Result<_, _>>()?,
        seeds: args.seeds,
        part: args.part,
        jobs: args.jobs,
        out: args.out.clone(),
        plots: args.plots.iter().map(|text| Plot::parse(text)).collect::<Result<_, _>>()?,
    };
    let interrupted = terminal::interrupt_flag();
    let bar = Count::new("runs", 0, !args.quiet);
    let swept = sweep.run(&|done, all| {
        bar.set_of(done, all);
        !interrupted.load(Ordering::Relaxed)
    })?;
    bar.clear();
    if !args.quiet {
        say(format_args!(
            "{} of {} runs, {} of them from earlier sweeps\n",
            swept.done, swept.all, swept.before
        ));
        if args.part.is_none() {
            say(format_args!("flows: {}\nlinks: {}\n", swept.flows.display(), swept.links.display()));
        }
        swept.figures.iter().for_each(|path| say(format_args!("plot: {}\n", path.display())));
        if swept.seeds_alike {
            terminal::tell(
                "note: the results are the same with every seed: this scenario has no random choices",
            );
        }
    }
    if interrupted.load(Ordering::Relaxed) {
        terminal::tell("interrupted: finished runs are kept; the same command continues");
        return Ok(ExitCode::from(130));
    }
    Ok(ExitCode::SUCCESS)
}
