//! The agent's worker: a process without rights that reads policies, speaks to stores and serves
//! readers.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use serde_json::Value;
use tollway_law::Time;
use tollway_net::sys::control::Answers;
use tollway_scenario::file::ScenarioError;

use crate::Signals;
use crate::channel::{Reply, WorkerEnd};
use crate::handover::{Pending, pending};
use crate::policies::{News, Policies, Source};

/// The readers of an agent's state, and of lines about it.
pub trait Audience {
    /// Shows the state that `state` returns, if that is due. Returns whether the agent is to go on.
    fn show(&mut self, state: impl FnOnce() -> Option<Value>) -> bool;

    /// Shows a line; never waits.
    fn tell(&mut self, line: String);
}

/// Policies, and where they come from.
pub type Opened = (Box<dyn Source>, Policies);

/// Returns true if the agent at the other end of a channel has ended.
pub fn has_ended(channel: &UnixStream) -> bool {
    pending(channel) == Pending::End
}

/// A worker at work.
pub struct Worker {
    channel: WorkerEnd,
    answers: Answers,
    source: Box<dyn Source>,
    /// The interval between looks, in place of the policies' own.
    tick: Option<Time>,
    /// The display of mistakes.
    text: fn(ScenarioError) -> String,
    /// The version of the policies that were sent last.
    version: String,
    trouble: Option<String>,
    /// The warning that came as the agent began.
    warning: Option<String>,
    /// The agent's state is on its way.
    requested: bool,
}

impl Worker {
    /// Hands the agent its first policies. `text` is how mistakes in newer ones are shown.
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

    /// Waits until the agent works; false if it ends before that, or a signal comes.
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

    /// Works until the agent ends, a reader means the end, or a signal comes.
    pub fn run(mut self, signals: &Signals, mut audience: impl Audience) {
        if let Some(warning) = self.warning.take() {
            audience.tell(format!("warning: {warning}"));
        }
        while self.turn(&mut audience) && !signals.sleep(PAUSE) {}
    }

    /// Does what is due; returns whether to go on.
    fn turn(&mut self, audience: &mut impl Audience) -> bool {
        let mut shown = None;
        loop {
            match self.channel.poll() {
                Ok(None) => break,
                Ok(Some(Reply::Warning(None))) => {}
                Ok(Some(Reply::Warning(Some(warning)))) => audience.tell(format!("warning: {warning}")),
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

    /// Keeps the agent's policies what their source says.
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
                        audience.tell(format!("policies {} are in force instead of {old}", self.version));
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
        audience.tell(format!("{text}\npolicies {} stay in force", self.version));
        self.trouble = Some(first);
        true
    }
}

/// Between two turns.
const PAUSE: Duration = Duration::from_millis(10);
