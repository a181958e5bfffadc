//! Errors of the command, and their exit statuses.

use std::fmt;
use std::process::ExitCode;

use miette::{Diagnostic, Report, ReportHandler};
#[cfg(target_os = "linux")]
use tollway_agent::serve::ServeError;
use tollway_report::compare::CompareError;
use tollway_report::plot::PlotError;
use tollway_report::reproduce::ReproduceError;
use tollway_report::runner::RunnerError;
use tollway_report::sweep::SweepError;
use tollway_report::verify::VerifyError;
use tollway_scenario::file::ScenarioError;
use tollway_scenario::run::RunError;

use crate::terminal;

/// An error report with an exit status.
#[derive(Debug)]
pub(crate) struct Failure {
    report: Report,
    code: u8,
}

impl Failure {
    /// A mistake in the input: exit status 2.
    pub(crate) fn input(report: impl Into<Report>) -> Failure {
        Failure { report: report.into(), code: 2 }
    }

    /// A failed run: exit status 1.
    pub(crate) fn run(report: impl Into<Report>) -> Failure {
        Failure { report: report.into(), code: 1 }
    }

    /// An error with another exit status.
    #[cfg(target_os = "linux")]
    pub(crate) fn with_code(report: impl Into<Report>, code: u8) -> Failure {
        Failure { report: report.into(), code }
    }

    /// Prints the error, and returns the exit status.
    pub(crate) fn report(self) -> ExitCode {
        terminal::tell(self.text());
        ExitCode::from(self.code)
    }

    /// The error as printed.
    pub(crate) fn text(&self) -> String {
        // Several mistakes follow each other, without the word "Error" that miette would print
        // before each.
        match self.report.related() {
            Some(mistakes) => {
                let lines = mistakes.map(|mistake| format!("{}\n", Shown(mistake)));
                lines.chain([self.report.to_string()]).collect()
            }
            None => format!("{:?}", self.report),
        }
    }
}

/// A diagnostic in the terminal's form.
struct Shown<'a>(&'a dyn Diagnostic);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        terminal::error_handler().debug(self.0, f)
    }
}

impl From<ScenarioError> for Failure {
    fn from(error: ScenarioError) -> Failure {
        Failure::input(error)
    }
}

#[cfg(target_os = "linux")]
impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Failure {
        Failure::input(miette::miette!(help = error.help, "{error}"))
    }
}

impl From<RunnerError> for Failure {
    fn from(error: RunnerError) -> Failure {
        let report = miette::miette!("{error}");
        if error.is_input() { Failure::input(report) } else { Failure::run(report) }
    }
}

impl From<ReproduceError> for Failure {
    fn from(error: ReproduceError) -> Failure {
        if error.is_input() { Failure::input(error) } else { Failure::run(error) }
    }
}

impl From<VerifyError> for Failure {
    fn from(error: VerifyError) -> Failure {
        match error {
            VerifyError::Law { .. } | VerifyError::Seeds(_) => Failure::input(error),
            _ => Failure::run(error),
        }
    }
}

impl From<SweepError> for Failure {
    fn from(error: SweepError) -> Failure {
        match error {
            SweepError::Scenario(error) => Failure::input(error),
            SweepError::Run { error: RunError::TooLong { .. } | RunError::Memory { .. }, .. } => {
                Failure::input(error)
            }
            SweepError::Run { .. }
            | SweepError::Table(_)
            | SweepError::Journal { .. }
            | SweepError::Picture(PlotError::Write { .. } | PlotError::Draw(_))
            | SweepError::Threads(_) => Failure::run(error),
            _ => Failure::input(error),
        }
    }
}

impl From<CompareError> for Failure {
    fn from(error: CompareError) -> Failure {
        if error.is_input() { Failure::input(error) } else { Failure::run(error) }
    }
}

/// The remedy if an address can't be used by a server.
#[cfg(feature = "metrics")]
pub(crate) const ADDRESS: &str = "give an address of this machine and a free port, 1024 or above unless you are root; port 0 takes any \
    free port";
