//! The event log of an agent: a line for each member that goes down, reload, refusal, shutdown.
//!
//! Every kind of event may fill [`BURST`] lines at once and one line per second after that. The
//! next line of the kind that is written states how many were left out.

use std::collections::HashMap;
use std::fmt::{self, Display};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde_json::json;

use crate::output::LossyOutput;

/// The importance of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Normal operation.
    Info,
    /// A fault that the agent can work around.
    Warn,
    /// A fault that the agent cannot work around.
    Error,
}

/// The form of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// `2026-11-28T18:00:00.000Z warn member a is down`.
    #[default]
    Text,
    /// One object per line: `time`, `level`, `event`, `message`.
    Json,
}

/// An event log with a thread that writes it, so that a slow reader does not delay the agent. Clones
/// share the log. The default log writes nothing.
#[derive(Clone, Default)]
pub struct Events {
    form: Form,
    to: Option<Arc<Mutex<Outlet>>>,
}

struct Outlet {
    lines: LossyOutput<String>,
    /// The log writes no more.
    muted: bool,
    kinds: HashMap<&'static str, Allowance>,
}

/// The lines that a kind of event may still fill.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    lines: f64,
    at: Instant,
    left_out: u64,
}

impl Events {
    /// Opens a log on standard error.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn open(form: Form) -> io::Result<Events> {
        // A failed write of the log does not end the agent.
        Events::to(form, |line| drop(writeln!(io::stderr(), "{line}")))
    }

    /// Opens a log that hands each line to `write`.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn to(form: Form, mut write: impl FnMut(String) + Send + 'static) -> io::Result<Events> {
        let show = move |line: String| {
            write(line);
            true
        };
        let to = Outlet { lines: LossyOutput::with_room(ROOM, show)?, muted: false, kinds: HashMap::new() };
        Ok(Events { form, to: Some(Arc::new(Mutex::new(to))) })
    }

    /// Logs an event of normal operation; `kind` is a constant word for programs, as `member-up`.
    pub fn info(&self, kind: &'static str, message: impl Display) {
        self.log(Level::Info, kind, message);
    }

    /// Logs a fault that the agent can work around.
    pub fn warn(&self, kind: &'static str, message: impl Display) {
        self.log(Level::Warn, kind, message);
    }

    /// Logs a fault that the agent cannot work around.
    pub fn error(&self, kind: &'static str, message: impl Display) {
        self.log(Level::Error, kind, message);
    }

    /// Writes no more, since a screen has the terminal.
    pub fn mute(&self) {
        if let Some(to) = &self.to {
            to.lock().unwrap_or_else(PoisonError::into_inner).muted = true;
        }
    }

    /// Logs an event. Never blocks.
    pub fn log(&self, level: Level, kind: &'static str, message: impl Display) {
        let Some(to) = &self.to else { return };
        let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
        let Outlet { lines, muted: false, kinds } = &mut *to else { return };
        let now = Instant::now();
        let allowance = kinds.entry(kind).or_insert(Allowance { lines: BURST, at: now, left_out: 0 });
        if !allowance.take(now) {
            return;
        }
        let mut message = message.to_string();
        if allowance.left_out > 0 {
            message += &format!(" ({} like it were left out)", allowance.left_out);
        }
        let line = line(self.form, SystemTime::now(), level, kind, &message);
        // Lines beyond the queue count as left out.
        match lines.offer(line) {
            Ok(()) => allowance.left_out = 0,
            Err(_) => allowance.left_out += 1,
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("form", &self.form).finish_non_exhaustive()
    }
}

impl Allowance {
    /// Takes a line; counts one that is left out.
    fn take(&mut self, now: Instant) -> bool {
        let rest = now.saturating_duration_since(self.at).div_duration_f64(EVERY);
        (self.lines, self.at) = ((self.lines + rest).min(BURST), now);
        let allowed = self.lines >= 1.0;
        if allowed {
            self.lines -= 1.0
        } else {
            self.left_out += 1
        }
        allowed
    }
}

fn line(form: Form, time: SystemTime, level: Level, kind: &str, message: &str) -> String {
    let time = humantime::format_rfc3339_millis(time);
    let level = match level {
        Level::Info => "info",
        Level::Warn => "warn",
        Level::Error => "error",
    };
    match form {
        Form::Text => format!("{time} {level} {}", printable(message)),
        Form::Json => {
            json!({ "time": time.to_string(), "level": level, "event": kind, "message": message }).to_string()
        }
    }
}

/// The text without control characters: names in it may come from clients.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

/// Lines that a kind of event may fill at once, and the time after which it may fill one more.
pub const BURST: f64 = 20.0;
const EVERY: Duration = Duration::from_secs(1);
/// Lines that may wait for a slow reader.
const ROOM: usize = 256;

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_line_has_time_level_and_message() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_764_352_800_250);
        let text = line(Form::Text, time, Level::Warn, "member-down", "a\u{1b}[2J is down");
        assert_eq!(text, "2025-11-28T18:00:00.250Z warn a\u{fffd}[2J is down");
        let json = line(Form::Json, time, Level::Info, "reload", "version \"7\"\nis in force");
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let told = ["time", "level", "event", "message"].map(|key| json[key].as_str().unwrap());
        assert_eq!(told, ["2025-11-28T18:00:00.250Z", "info", "reload", "version \"7\"\nis in force"]);
    }

    #[test]
    fn a_flood_of_one_kind_leaves_room_for_others_and_is_counted() {
        let (send, lines) = channel();
        let log = Events::to(Form::Text, move |line| drop(send.send(line))).unwrap();
        (0..100).for_each(|n| log.warn("refused", format_args!("client {n}")));
        log.info("member-up", "b is up");
        // A minute later the flood has an allowance again.
        for allowance in log.to.as_ref().unwrap().lock().unwrap().kinds.values_mut() {
            allowance.lines = BURST;
        }
        log.warn("refused", "client 100");
        log.mute();
        log.error("failed", "on the screen");
        drop(log);
        let lines: Vec<String> = lines.iter().collect();
        assert_eq!(lines.len(), BURST as usize + 2, "{lines:?}");
        assert!(lines[BURST as usize].ends_with("b is up"), "{lines:?}");
        assert!(lines[BURST as usize + 1].ends_with("client 100 (80 like it were left out)"), "{lines:?}");
    }
}
