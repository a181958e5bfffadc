//! The person at the terminal: width, progress, Ctrl-C.

use std::io::{Error, ErrorKind, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use indicatif::{HumanDuration, MultiProgress, ProgressBar, ProgressState, ProgressStyle};
use tollway_scenario::file::Variant;

/// Errors are shown in place; plain where nobody looks at colours.
pub(crate) fn set_up_errors() {
    // It can only have been set already, which is as good.
    let _ = miette::set_hook(Box::new(|_| Box::new(error_handler())));
}

/// What draws an error with the lines that it is about.
pub(crate) fn error_handler() -> miette::MietteHandler {
    miette::MietteHandlerOpts::new().width(width()).context_lines(1).build()
}

/// Prints to standard output. A reader that has seen enough (`| head`) is no error; any other is kept for the end
/// ([`unsaid`]), and what remains to be done is done.
pub(crate) fn say(text: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    keep(write!(out, "{text}").and_then(|()| out.flush()));
}

/// Prints a line to standard error, like [`say`]: a log that nobody reads any more, or whose disk is full, ends nothing.
pub(crate) fn tell(line: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Prints a value as JSON, like [`say`].
pub(crate) fn say_json(value: &impl serde::Serialize) {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let written = serde_json::to_writer_pretty(&mut out, value).map_err(std::io::Error::from);
    keep(written.and_then(|()| writeln!(out)).and_then(|()| out.flush()));
}

/// The first error of standard output, if something was lost.
pub(crate) fn unsaid() -> Option<&'static Error> {
    UNSAID.get()
}

fn keep(written: Result<(), Error>) {
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
    {
        // The first one tells enough.
        let _ = UNSAID.set(error);
    }
}

static UNSAID: OnceLock<Error> = OnceLock::new();

/// Columns of the terminal, 100 if there is none.
pub(crate) fn width() -> usize {
    terminal_size::terminal_size().map_or(100, |(width, _)| usize::from(width.0).clamp(60, 140))
}

/// A bar for each variant, if somebody is there to see it.
pub(crate) struct Bars {
    bars: Vec<ProgressBar>,
    all: MultiProgress,
}

impl Bars {
    pub(crate) fn new(title: &str, variants: &[Variant], wanted: bool) -> Bars {
        let all = MultiProgress::new();
        if !wanted || !std::io::stderr().is_terminal() {
            return Bars { bars: Vec::new(), all };
        }
        let style = style("{percent:>3} %");
        let bars = variants
            .iter()
            .map(|variant| {
                let name = if variant.name.is_empty() { title } else { &variant.name };
                all.add(ProgressBar::new(1000).with_style(style.clone()).with_message(name.to_owned()))
            })
            .collect();
        Bars { bars, all }
    }

    /// Variant `i` has come `share` of its way.
    pub(crate) fn set(&self, i: usize, share: f64) {
        if let Some(bar) = self.bars.get(i) {
            bar.set_position((share * 1000.0) as u64);
        }
    }

    /// Takes the bars off the screen.
    pub(crate) fn clear(&self) {
        self.bars.iter().for_each(ProgressBar::finish_and_clear);
        // A terminal that has gone away has no bars left to clear.
        let _ = self.all.clear();
    }
}

/// A bar with its name, how much is done, and the time left.
fn style(done: &str) -> ProgressStyle {
    let left = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
        // It is not drawn where the terminal takes nothing.
        let _ = out.write_str(&left(state.pos(), state.eta()));
    };
    ProgressStyle::with_template(&format!("{{msg:24!}} {{bar:40}} {done}  {{left}}"))
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .with_key("left", left)
}

/// The time left, once something is done to estimate it from.
fn left(done: u64, time: Duration) -> String {
    if done == 0 { String::new() } else { format!("{:#} left", HumanDuration(time)) }
}

/// One bar over many things of a kind, if somebody is there to see it.
pub(crate) struct Count(Option<ProgressBar>);

impl Count {
    pub(crate) fn new(title: &str, all: u64, wanted: bool) -> Count {
        if !wanted || !std::io::stderr().is_terminal() {
            return Count(None);
        }
        let style = style("{pos} of {len}");
        Count(Some(ProgressBar::new(all).with_style(style).with_message(title.to_owned())))
    }

    /// So many are done, of so many. What was done before the first word of it says nothing of how long the rest takes.
    pub(crate) fn set_of(&self, done: u64, all: u64) {
        if let Some(bar) = &self.0 {
            if bar.length() != Some(all) {
                bar.set_length(all);
                bar.set_position(done);
                bar.reset_eta();
            }
            bar.set_position(done);
        }
    }

    /// So many are done.
    pub(crate) fn set(&self, done: u64) {
        if let Some(bar) = &self.0 {
            bar.set_position(done);
        }
    }

    /// Takes the bar off the screen.
    pub(crate) fn clear(&self) {
        self.0.iter().for_each(ProgressBar::finish_and_clear);
    }
}

/// The one flag that Ctrl-C and the signals to end set. The second of them ends the program at
/// once. Under nohup(1) a hang-up sets nothing.
pub(crate) fn interrupt_flag() -> Arc<AtomicBool> {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    Arc::clone(FLAG.get_or_init(|| {
        let flag = Arc::new(AtomicBool::new(false));
        let set = Arc::clone(&flag);
        // Without a handler Ctrl-C just ends the program.
        let handle = move || {
            ctrlc::set_handler(move || {
                if set.swap(true, Ordering::Relaxed) {
                    std::process::exit(130);
                }
            })
        };
        #[cfg(target_os = "linux")]
        let _ = tollway_scenario::run::Signals::keep_ignored(handle);
        #[cfg(not(target_os = "linux"))]
        let _ = handle();
        flag
    }))
}

/// Waits for keys for as long as this, or for something else to happen to the terminal.
///
/// To be asked before crossterm is: at the end of a terminal that has gone away that reads on and on.
///
/// # Errors
/// The terminal has gone away.
#[cfg(feature = "watch")]
pub(crate) fn await_keys(patience: std::time::Duration) -> std::io::Result<()> {
    use std::os::fd::AsFd;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    // Where crossterm reads them.
    let (stdin, tty) = (std::io::stdin(), std::path::Path::new("/dev/tty"));
    let tty = if stdin.is_terminal() { None } else { Some(std::fs::File::open(tty)?) };
    let keys = tty.as_ref().map_or_else(|| stdin.as_fd(), AsFd::as_fd);
    let mut keys = [PollFd::from_borrowed_fd(keys, PollFlags::IN)];
    let patience = Timespec::try_from(patience).map_err(Error::other)?;
    match poll(&mut keys, Some(&patience)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    match keys[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
        true => Err(ErrorKind::BrokenPipe.into()),
        false => Ok(()),
    }
}

/// The most memory this process has had, in bytes, where the system tells.
pub(crate) fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches("kB").trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_done_has_no_time_left() {
        assert_eq!(left(0, Duration::ZERO), "");
        assert_eq!(left(3, Duration::from_secs(20)), "20s left");
    }
}
