//! `tollway reproduce`.

use std::io::Write;
use std::process::{Command, ExitCode, Stdio};

use tollway_report::claim::{Ledger, Report};
use tollway_report::reproduce::{list, reproduce as run_one, select};

use crate::args::Reproduce;
use crate::fail::Failure;
use crate::terminal;

pub(crate) fn reproduce(args: &Reproduce) -> Result<ExitCode, Failure> {
    if args.list {
        // A reader that has seen enough (`| head`) is no error.
        let mut out = std::io::stdout().lock();
        for found in list(&args.papers)? {
            if writeln!(out, "{}", found.name).is_err() {
                break;
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    let ledger = match &args.check_unmet {
        Some(path) => Some(Ledger::read(path).map_err(|e| Failure::input(miette::miette!("{e}")))?),
        None => None,
    };
    let missing = missing_peers();
    let mut all = Report::default();
    let talk = !args.json && !args.quiet;
    for found in select(&args.papers, &args.names)? {
        if talk {
            println!("{}", found.name);
        }
        let reproduced = run_one(&found, args.jobs, &missing, None)?;
        let drawn = reproduced.draw(&args.out)?;
        if talk {
            print!("{}", reproduced.report.to_table(terminal::width()));
            for path in drawn {
                println!("wrote {}", path.display());
            }
            println!();
        }
        all.extend(reproduced.report);
    }
    if args.json {
        println!("{}", all.to_json());
    } else {
        println!("{}", all.totals());
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
