//! `tollway reproduce`.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::Ordering;

use tollway_report::Gallery;
use tollway_report::claim::{Ledger, Report};
use tollway_report::reproduce::{ReproduceError, list, read, reproduce as run_one, select};

use crate::args::Reproduce;
use crate::fail::Failure;
use crate::terminal::{self, Bars, say};

pub(crate) fn reproduce(args: &Reproduce) -> Result<ExitCode, Failure> {
    if args.list {
        for found in list(&args.papers)? {
            say(format_args!("{}\n", found.name));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let read_ledger = |path: &Path| Ledger::read(path).map_err(|e| Failure::input(miette::miette!("{e}")));
    let ledger = args.check_unmet.as_deref().map(read_ledger).transpose()?;
    let missing = missing_peers();
    let interrupted = terminal::interrupt_flag();
    let mut all = Report::default();
    let mut gallery = Gallery::default();
    let talk = !args.json && !args.quiet;
    for found in select(&args.papers, &args.names)? {
        if talk {
            say(format_args!("{}\n", found.name));
        }
        let (scenario, experiment) = read(&found)?;
        let bars = Bars::new(&found.name, scenario.variants(), talk);
        let tell = |i: usize, share: f64| {
            bars.set(i, share);
            !interrupted.load(Ordering::Relaxed)
        };
        let reproduced = run_one(&scenario, experiment, args.jobs, &missing, Some(&tell))?;
        bars.clear();
        if interrupted.load(Ordering::Relaxed) {
            eprintln!("interrupted: half a run shows nothing, so nothing is judged");
            return Ok(ExitCode::from(130));
        }
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
    if args.json {
        say(format_args!("{}\n", all.to_json()));
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
        let differences = ledger.compare(&all, args.names.is_empty());
        differences.iter().for_each(|difference| eprintln!("{difference}"));
        return Ok(ExitCode::from(u8::from(!differences.is_empty())));
    }
    Ok(ExitCode::from(u8::from(all.unmet > 0)))
}

/// The peer programs that some claims compare with and that are not installed here.
fn missing_peers() -> Vec<String> {
    let runs = |program: &str, argument: &str| {
        let quiet = Command::new(program)
            .arg(argument)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        quiet.is_ok()
    };
    [("ns2", "ns", "-version")]
        .into_iter()
        .filter(|(_, program, argument)| !runs(program, argument))
        .map(|(name, ..)| name.to_owned())
        .collect()
}
