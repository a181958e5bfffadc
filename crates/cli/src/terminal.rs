//! The user's terminal: width, progress, Ctrl-C.

use std::io::{Error, ErrorKind, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use indicatif::{HumanDuration, MultiProgress, ProgressBar, ProgressState, ProgressStyle};
use tollway_scenario::file::Variant;

/// Sets the form of errors: with the lines concerned, and without colours if there is no terminal.
pub(crate) fn set_up_errors() {
    // An error means that a hook is set already.
    let _ = miette::set_hook(Box::new(|_| Box::new(error_handler())));
}

/// The handler that shows an error with the lines concerned.
pub(crate) fn error_handler() -> miette::MietteHandler {
    miette::MietteHandlerOpts::new().width(width()).context_lines(1).build()
}

/// Prints to standard output.
///
/// If the reader has closed its end (`| head`), that is no error. The first other error is kept
/// ([`unsaid`]), and the program continues.
pub(crate) fn say(text: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    keep(write!(out, "{text}").and_then(|()| out.flush()));
}

/// Prints a line to standard error. Errors are ignored: a closed reader or a full disk ends
/// nothing.
pub(crate) fn tell(line: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Prints a value as JSON, like [`say`].
pub(crate) fn say_json(value: &impl serde::Serialize) {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let written = serde_json::to_writer_pretty(&mut out, value).map_err(std::io::Error::from);
    keep(written.and_then(|()| writeln!(out)).and_then(|()| out.flush()));
}

/// The first error of standard output, if any.
pub(crate) fn unsaid() -> Option<&'static Error> {
    UNSAID.get()
}

fn keep(written: Result<(), Error>) {
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
    {
        // Only the first error is kept.
        let _ = UNSAID.set(error);
    }
}

static UNSAID: OnceLock<Error> = OnceLock::new();

/// Columns of the terminal, from 60 to 140; 100 without a terminal.
pub(crate) fn width() -> usize {
    terminal_size::terminal_size().map_or(100, |(width, _)| usize::from(width.0).clamp(60, 140))
}

/// Progress bars on a terminal, one per variant.
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

    /// Sets the progress of variant `i` to `share`, from 0 to 1.
    pub(crate) fn set(&self, i: usize, share: f64) {
        if let Some(bar) = self.bars.get(i) {
            bar.set_position((share * 1000.0) as u64);
        }
    }

    /// Removes the bars from the screen.
    pub(crate) fn clear(&self) {
        self.bars.iter().for_each(ProgressBar::finish_and_clear);
        // Fails only if the terminal has gone.
        let _ = self.all.clear();
    }
}

/// The form of a bar: name, progress and time left.
fn style(done: &str) -> ProgressStyle {
    let left = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
        // Fails only if the terminal has gone.
        let _ = out.write_str(&left(state.pos(), state.eta()));
    };
    ProgressStyle::with_template(&format!("{{msg:24!}} {{bar:40}} {done}  {{left}}"))
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .with_key("left", left)
}

/// The time left as text; empty before there is progress.
fn left(done: u64, time: Duration) -> String {
    if done == 0 { String::new() } else { format!("{:#} left", HumanDuration(time)) }
}

/// One progress bar for a number of items, on a terminal.
pub(crate) struct Count(Option<ProgressBar>);

impl Count {
    pub(crate) fn new(title: &str, all: u64, wanted: bool) -> Count {
        if !wanted || !std::io::stderr().is_terminal() {
            return Count(None);
        }
        let style = style("{pos} of {len}");
        Count(Some(ProgressBar::new(all).with_style(style).with_message(title.to_owned())))
    }

    /// Sets the number of items done, and of all. Items done before the first call do not count for
    /// the time left.
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

    /// Sets the number of items done.
    pub(crate) fn set(&self, done: u64) {
        if let Some(bar) = &self.0 {
            bar.set_position(done);
        }
    }

    /// Removes the bar from the screen.
    pub(crate) fn clear(&self) {
        self.0.iter().for_each(ProgressBar::finish_and_clear);
    }
}

/// The flag that Ctrl-C and signals to end set. A second signal ends the program at once. Under
/// nohup(1) a hang-up sets nothing.
pub(crate) fn interrupt_flag() -> Arc<AtomicBool> {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    Arc::clone(FLAG.get_or_init(|| {
        let flag = Arc::new(AtomicBool::new(false));
        let set = Arc::clone(&flag);
        // Without a handler Ctrl-C ends the program at once.
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

/// Waits up to `patience` for keys or another event of the terminal.
///
/// Must be called before crossterm reads: once the terminal has gone, crossterm reads its end in a
/// loop.
///
/// # Errors
/// The terminal has gone.
#[cfg(feature = "watch")]
pub(crate) fn await_keys(patience: std::time::Duration) -> std::io::Result<()> {
    use std::os::fd::AsFd;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    // The descriptor from which crossterm reads.
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

/// The peak memory of this process in bytes, where the system reports it.
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
