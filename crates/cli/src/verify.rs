//! `tollway verify`.

use std::process::ExitCode;
use std::sync::atomic::Ordering;

use tollway_report::verify::{Kind, Verify};

use crate::args;
use crate::fail::Failure;
use crate::terminal::{self, Count, say};

pub(crate) fn verify(args: &args::Verify) -> Result<ExitCode, Failure> {
    let kind = if args.starts { Kind::Starts } else { Kind::Steady };
    let verify = Verify { kind, ..Verify::law(&args.law, args.random, args.seed, args.jobs)? };
    if let Some(dir) = &args.keep {
        let fail =
            |e: std::io::Error| Failure::run(miette::miette!("cannot write to {}: {e}", dir.display()));
        std::fs::create_dir_all(dir).map_err(fail)?;
        for i in 0..args.random {
            let seed = args.seed + i;
            for (name, text) in verify.files(seed) {
                std::fs::write(dir.join(name), text).map_err(fail)?;
            }
        }
    }
    let interrupted = terminal::interrupt_flag();
    let bar = Count::new("networks", args.random, !args.json);
    let verified = verify.run(&|done| {
        bar.set(done);
        !interrupted.load(Ordering::Relaxed)
    })?;
    bar.clear();
    if args.json {
        terminal::say_json(&verified.to_json());
    } else {
        say(verified.to_text(terminal::width()));
    }
    if interrupted.load(Ordering::Relaxed) {
        terminal::tell("interrupted: these are the networks so far");
        return Ok(ExitCode::from(130));
    }
    Ok(ExitCode::from(u8::from(!verified.within())))
}
