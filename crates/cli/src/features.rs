//! Features that a build may lack, and terminals that can't show a screen.

#[cfg(feature = "watch")]
use std::io::IsTerminal;

use crate::fail::Failure;

/// Refuses an option whose feature this build lacks, and a screen without a terminal.
pub(crate) fn if_not_built(watch: bool, metrics: bool, view: bool) -> Result<(), Failure> {
    for (feature, wanted, has) in [
        ("watch", watch, cfg!(feature = "watch")),
        ("metrics", metrics, cfg!(feature = "metrics")),
        ("view", view, cfg!(feature = "view")),
    ] {
        if wanted && !has {
            return Err(Failure::input(not_built(feature)));
        }
    }
    #[cfg(feature = "watch")]
    if watch {
        can_be_drawn_on()?;
    }
    Ok(())
}

/// Fails if standard error is not a terminal that can show a screen.
#[cfg(feature = "watch")]
pub(crate) fn can_be_drawn_on() -> Result<(), Failure> {
    let kind = std::env::var("TERM").unwrap_or_default();
    let why = match kind.as_str() {
        _ if !std::io::stderr().is_terminal() => "standard error is not a terminal".to_owned(),
        "" if cfg!(unix) => "the variable `TERM` is not set".to_owned(),
        "dumb" => "`TERM` is `dumb`".to_owned(),
        _ => return Ok(()),
    };
    Err(no_screen(why))
}

/// The error if a screen can't be shown.
#[cfg(feature = "watch")]
pub(crate) fn no_screen(why: impl std::fmt::Display) -> Failure {
    let help = "leave out `--watch`";
    Failure::input(miette::miette!(help = help, "cannot draw on the terminal: {why}"))
}

/// The error for an option whose feature this build lacks.
fn not_built(feature: &str) -> miette::Report {
    miette::miette!(
        help = format!("build it with `--features {feature}`, or leave out the option"),
        "this build of tollway does not support `--{feature}`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_built_names_its_feature() {
        let help = not_built("watch").help().unwrap().to_string();
        assert_eq!(help, "build it with `--features watch`, or leave out the option");
    }
}
