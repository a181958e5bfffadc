//! The `tollway` command: reads arguments and prints tables. The crates below it do the work.
// These macros panic if a write fails; `terminal` has replacements that go on.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod args;
#[cfg(target_os = "linux")]
mod audience;
mod compare;
mod docs;
#[cfg(target_os = "linux")]
mod exec;
mod fail;
mod features;
#[cfg(target_os = "linux")]
mod host;
mod keys;
mod log;
mod mathematics;
#[cfg(target_os = "linux")]
mod overlay;
mod reproduce;
#[cfg(target_os = "linux")]
mod router;
mod run;
#[cfg(all(target_os = "linux", feature = "watch"))]
mod screen;
#[cfg(target_os = "linux")]
mod shape;
mod sweep;
#[cfg(target_os = "linux")]
mod switch;
mod terminal;
mod theory;
mod verify;
mod watch;

use std::process::ExitCode;

use args::{Args, Command};

fn main() -> ExitCode {
    let args = Args::read();
    terminal::set_up_errors();
    #[cfg(target_os = "linux")]
    tollway_scenario::run::Signals::outlast_file_limit();
    let done = log::set_up().and_then(|()| carry_out(&args.command));
    let status = done.unwrap_or_else(|failure| failure.report());
    match terminal::unsaid() {
        Some(error) => {
            terminal::tell(format_args!("error: cannot write to standard output: {error}"));
            if status == ExitCode::SUCCESS { ExitCode::FAILURE } else { status }
        }
        None => status,
    }
}

fn carry_out(command: &Command) -> Result<ExitCode, fail::Failure> {
    match command {
        Command::Run(run) => run::run(run),
        Command::Reproduce(reproduce) => reproduce::reproduce(reproduce),
        Command::Sweep(sweep) => sweep::sweep(sweep),
        Command::Compare(compare) => compare::compare(compare),
        Command::Theory(theory) => theory::theory(theory),
        Command::Verify(verify) => verify::verify(verify),
        #[cfg(target_os = "linux")]
        Command::Exec(exec) => exec::exec(&exec.over, &exec.program),
        #[cfg(target_os = "linux")]
        Command::Shell(shell) => exec::shell(&shell.over),
        #[cfg(target_os = "linux")]
        Command::Host(args) => host::host(args),
        #[cfg(target_os = "linux")]
        Command::Router(router) => router::router(router),
        #[cfg(target_os = "linux")]
        Command::Shape(shape) => shape::shape(shape),
        #[cfg(target_os = "linux")]
        Command::Overlay(overlay) => overlay::overlay(overlay),
        Command::Switch(switch) => switch::switch(switch),
        #[cfg(target_os = "linux")]
        Command::Clean => exec::clean(),
        Command::Keys(keys) => keys::keys(keys),
        Command::Schema => {
            terminal::say(format_args!("{:#}\n", tollway_scenario::file::schema()));
            Ok(ExitCode::SUCCESS)
        }
        Command::Docs { name } => docs::docs(name.as_deref()),
        Command::Completions { shell } => {
            terminal::say(String::from_utf8_lossy(&args::completions(*shell)));
            Ok(ExitCode::SUCCESS)
        }
        Command::Man { folder } => {
            let refused = |error| miette::miette!("cannot write to {}: {error}", folder.display());
            args::man_pages(folder).map_err(|error| fail::Failure::with_code(refused(error), 1))?;
            terminal::say(format_args!("wrote {}\n", folder.join("tollway*.1").display()));
            Ok(ExitCode::SUCCESS)
        }
    }
}
