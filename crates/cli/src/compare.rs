//! `tollway compare`.

use std::process::ExitCode;

use tollway_report::compare::Comparison;

use crate::args::Compare;
use crate::fail::Failure;
use crate::terminal::{self, say};

pub(crate) fn compare(args: &Compare) -> Result<ExitCode, Failure> {
    let comparison = Comparison::read(&args.a, &args.b)?;
    let drawn = match &args.out {
        Some(out) => comparison.draw(out, &args.pictures.options())?,
        None => Vec::new(),
    };
    if args.json {
        terminal::say_json(&comparison.to_json());
        return Ok(ExitCode::SUCCESS);
    }
    say(comparison.to_text(terminal::width()));
    for path in &drawn {
        say(format_args!("wrote {}\n", path.display()));
    }
    if args.out.is_none() {
        say("(--out DIR also draws both runs, as a page and a picture)\n");
    }
    Ok(ExitCode::SUCCESS)
}
