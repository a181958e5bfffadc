//! `TOLLWAY_LOG`: events of protocol machines and drivers, on standard error.

use std::env;
use std::io::stderr;

use miette::miette;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::layer;
use tracing_subscriber::prelude::*;

use crate::fail::Failure;

/// Writes the events that `TOLLWAY_LOG` selects to standard error, a line each.
///
/// # Errors
/// The variable holds no filter, or names a part that has no events.
pub(crate) fn set_up() -> Result<(), Failure> {
    let Some(text) = env::var_os("TOLLWAY_LOG").filter(|text| !text.is_empty()) else { return Ok(()) };
    let text = text.to_string_lossy();
    let wrong = |why: String| {
        let help = format!(
            "write parts and levels, such as `TOLLWAY_LOG=transport=debug,hop=trace`; parts are {}, levels error, warn, \
             info, debug and trace",
            PARTS.join(", ")
        );
        Failure::input(miette!(help = help, "TOLLWAY_LOG={text}: {why}"))
    };
    let targets: Targets = text.parse().map_err(|error| wrong(format!("{error}")))?;
    if let Some((part, _)) = targets.iter().find(|(part, _)| !PARTS.contains(part)) {
        return Err(wrong(format!("`{part}` is not a part with events")));
    }
    // A failed write of the log does not end the program.
    let lines = layer().without_time().log_internal_errors(false).with_writer(stderr);
    tracing_subscriber::registry().with(lines.with_filter(targets)).init();
    Ok(())
}

/// Targets of events in `tollway-proto` and `tollway-net`.
const PARTS: [&str; 6] = ["driver", "hop", "overlay", "shape", "switch", "transport"];
