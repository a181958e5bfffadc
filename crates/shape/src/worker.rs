//! The agent's worker: a process without rights that reads policies, speaks to stores and serves
//! readers.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use serde_json::Value;
use tollway_agent::control::Answers;
use tollway_agent::events::Level;
use tollway_law::Time;
use tollway_scenario::file::ScenarioError;

use crate::Signals;
use crate::channel::{Reply, WorkerEnd};
use crate::handover::{Pending, pending};
use crate::policies::{News, Policies, Source};

/// The readers of an agent's state and messages.
pub trait Audience {
    /// Shows the result of `state`, if that is due. Returns false if the agent is to end.
    fn show(&mut self, state: impl FnOnce() -> Option<Value>) -> bool;

    /// Logs an event; never blocks.
    fn log(&mut self, level: Level, kind: &'static str, message: String);
}

/// A source and its first policies.
pub type Opened = (Box<dyn Source>, Policies);

/// Returns true if the agent at the other end of a channel has ended.
pub fn has_ended(channel: &UnixStream) -> bool {
    pending(channel) == Pending::End
}

/// A running worker.
pub struct Worker {
    channel: WorkerEnd,
    answers: Answers,
    source: Box<dyn Source>,
    /// The interval between ticks, in place of the policies' own.
    tick: Option<Time>,
    /// The function that formats mistakes.
    text: fn(ScenarioError) -> String,
    /// The version of the policies sent last.
    version: String,
    trouble: Option<String>,
    /// The warning in the agent's first reply.
    warning: Option<String>,
    /// The agent's state is requested.
    requested: bool,
}

impl Worker {
    /// Sends the agent its first policies. `text` formats mistakes in later ones.
    ///
    /// # Errors
    /// No thread can be started, or the agent has ended.
    pub fn start(
        channel: UnixStream,
        listener: UnixListener,
        (source, policies): Opened,
        tick: Option<Time>,
        text: fn(ScenarioError) -> String,
    ) -> io::Result<Worker> {
        let mut channel = WorkerEnd::start(channel)?;
        channel.send(&policies)?;
        let (version, answers) = (policies.regime().version.clone(), Answers::new(listener));
        let (trouble, warning, requested) = (None, None, false);
        Ok(Worker { channel, answers, source, tick, text, version, trouble, warning, requested })
    }

    /// Waits until the agent works. Returns false if it ends before, or a signal comes.
    pub fn await_agent(&mut self, signals: &Signals) -> bool {
        loop {
            match self.channel.poll() {
                Ok(Some(Reply::Warning(warning))) => {
                    self.warning = warning;
                    return true;
                }
                Ok(_) => {}
                Err(_) => return false,
            }
            if signals.sleep(PAUSE) {
                return false;
            }
        }
    }

    /// Runs until the agent ends, a reader ends it, or a signal comes.
    pub fn run(mut self, signals: &Signals, mut audience: impl Audience) {
        if let Some(warning) = self.warning.take() {
            audience.log(Level::Warn, "pacing", format!("warning: {warning}"));
        }
        while self.turn(&mut audience) && !signals.sleep(PAUSE) {}
    }

    /// Handles messages, new policies and readers. Returns false to end.
    fn turn(&mut self, audience: &mut impl Audience) -> bool {
        let mut shown = None;
        loop {
            match self.channel.poll() {
                Ok(None) => break,
                Ok(Some(Reply::Warning(None))) => {}
                Ok(Some(Reply::Warning(Some(warning)))) => {
                    audience.log(Level::Warn, "pacing", format!("warning: {warning}"));
                }
                Ok(Some(Reply::State(mut state))) => {
                    state["source"] = self.source.describe().into();
                    state["trouble"] = self.trouble.clone().into();
                    self.answers.answer(|| state.to_string());
                    (shown, self.requested) = (Some(state), false);
                }
                Err(_) => return false,
            }
        }
        let mut wanted = self.answers.accept();
        let goes_on = audience.show(|| {
            wanted |= shown.is_none();
            shown
        });
        if wanted && !self.requested {
            self.answers.request();
            self.requested = true;
            if self.channel.request_state().is_err() {
                return false;
            }
        }
        goes_on && self.keep(audience)
    }

    /// Sends the agent new policies from the source. Returns false to end.
    fn keep(&mut self, audience: &mut impl Audience) -> bool {
        let (text, first) = match self.source.poll() {
            News::None => return true,
            News::Policies(mut policies) => {
                if let Some(tick) = self.tick {
                    policies.set_tick(tick);
                }
                match self.channel.send(&policies) {
                    Ok(()) => {
                        let new = policies.regime().version.clone();
                        let old = std::mem::replace(&mut self.version, new);
                        self.trouble = None;
                        let message = format!("policies {} are in force instead of {old}", self.version);
                        audience.log(Level::Info, "reload", message);
                        return true;
                    }
                    Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                        (error.to_string(), error.to_string())
                    }
                    Err(_) => return false,
                }
            }
            News::Away(why) => (why.clone(), why),
            News::Wrong(error) => {
                let first = error.mistakes().first();
                let first = first.map_or_else(|| error.to_string(), |one| one.message.clone());
                ((self.text)(*error), first)
            }
        };
        audience.log(
            Level::Warn,
            "reload",
            format!("{}\npolicies {} stay in force", brief(text), self.version),
        );
        self.trouble = Some(brief(first));
        true
    }
}

/// A message without the rest of a very long line: the writer of a store chooses the length of what a
/// message quotes.
fn brief(mut text: String) -> String {
    if text.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(end);
        text += " … (the rest is left out)";
    }
    text
}

/// Upper bound of a message about policies, in bytes.
const LONGEST: usize = 8 << 10;
/// The pause between two turns.
const PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_quotes_no_more_than_a_screenful() {
        assert_eq!(brief("é".into()), "é");
        let long = brief(format!("x{}", "é".repeat(700_000)));
        assert!(
            long.len() < LONGEST + 64 && long.starts_with("xé") && long.ends_with("left out)"),
            "{}",
            long.len()
        );
    }
}
