//! The code that commands with an agent share: its readers, and its answer to `status`.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use miette::miette;
use serde_json::Value;
#[cfg(feature = "watch")]
use tollway_agent::events::Events;
use tollway_agent::output::LossyOutput;
use tollway_agent::status::Product;

use crate::fail::Failure;
#[cfg(feature = "watch")]
use crate::screen::Screen;
use crate::terminal;

/// Readers of an agent's state: standard output, the terminal, Prometheus.
pub(crate) struct Audience {
    json: Option<LossyOutput<String>>,
    latest: Option<Arc<Mutex<Option<Value>>>>,
    next: Instant,
    #[cfg(feature = "watch")]
    screen: Option<Screen>,
}

impl Audience {
    /// Opens standard output for JSON, if `json` is true.
    pub(crate) fn open(json: bool) -> Result<Audience, Failure> {
        let cannot = |error| Failure::run(miette!("cannot write to standard output: {error}"));
        Ok(Audience {
            json: json.then(open_json).transpose().map_err(cannot)?,
            latest: None,
            next: Instant::now(),
            #[cfg(feature = "watch")]
            screen: None,
        })
    }

    /// Opens the terminal, and shows the state of `product` there, above the line `foot`. The log
    /// falls silent.
    #[cfg(feature = "watch")]
    pub(crate) fn watch(
        &mut self,
        product: &'static Product,
        foot: &'static str,
        events: &Events,
    ) -> Result<(), Failure> {
        self.screen = Some(Screen::open(product, foot)?);
        events.mute();
        Ok(())
    }

    /// Keeps the latest state from now on, and returns a function that reads it.
    pub(crate) fn latest(&mut self) -> impl Fn() -> Option<Value> + Clone + Send + Sync + use<> {
        let latest = Arc::clone(self.latest.get_or_insert_default());
        move || latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// True if the terminal shows the state.
    pub(crate) fn has_terminal(&self) -> bool {
        #[cfg(feature = "watch")]
        return self.screen.is_some();
        #[cfg(not(feature = "watch"))]
        false
    }

    /// Shows the state if it is due. Returns false if the agent is to end.
    pub(crate) fn show(&mut self, state: impl FnOnce() -> Option<Value>) -> bool {
        #[cfg(feature = "watch")]
        if self.screen.as_mut().is_some_and(Screen::wants_to_end) {
            return false;
        }
        let now = Instant::now();
        let unread = self.json.is_none() && self.latest.is_none() && !self.has_terminal();
        if now < self.next || unread {
            return true;
        }
        let Some(state) = state() else { return true };
        self.next = now + Duration::from_millis(if self.has_terminal() { 200 } else { 1000 });
        #[cfg(feature = "watch")]
        if let Some(screen) = &self.screen {
            screen.draw(state.clone());
        }
        let line = || state.to_string();
        if self.json.as_ref().is_some_and(|json| !json.show(line())) {
            return false;
        }
        if let Some(latest) = &self.latest {
            *latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
        }
        true
    }
}

/// Opens standard output for lines, until its reader closes it. A full disk does not end the agent.
fn open_json() -> io::Result<LossyOutput<String>> {
    let mut out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let mut torn = false;
    LossyOutput::open(move |line: String| {
        // After a line that was written in part, the next begins a new line.
        let start = if torn { "\n" } else { "" };
        let done = out.write_all(format!("{start}{line}\n").as_bytes());
        if let Err(error) = &done {
            if error.kind() == io::ErrorKind::BrokenPipe {
                return false;
            }
            if !torn {
                terminal::tell(format_args!(
                    "note: cannot write to standard output: {error}; pacing continues"
                ));
            }
        }
        torn = done.is_err();
        true
    })
}

/// Prints the answer of the agent called `name`: as JSON, or as text.
pub(crate) fn say_status(
    answer: &str,
    json: bool,
    name: &str,
    product: &Product,
) -> Result<ExitCode, Failure> {
    let nonsense =
        || Failure::run(miette!("cannot read the {name}'s answer: it may be another version of tollway"));
    match json {
        true => match serde_json::from_str::<serde_json::Value>(answer) {
            Ok(_) => terminal::say(printable(answer) + "\n"),
            Err(_) => return Err(nonsense()),
        },
        false => {
            let text = product.text_of(answer, terminal::width(), 40).ok_or_else(nonsense)?;
            terminal::say(printable(&text));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The agent's text without escapes for the terminal: names in it may be a store's.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

/// The error of a control socket that the agent called `name` cannot open.
pub(crate) fn not_opened(name: &str, path: &Path, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::AddrInUse => Failure::input(miette!(
            help = "stop it, or give this one another `--socket`",
            "a {name} is already running: it answers at `{}`",
            path.display()
        )),
        _ => Failure::run(miette!(
            help = "give a path in a folder of your own with `--socket`",
            "cannot open `{}`: {error}",
            path.display()
        )),
    }
}
