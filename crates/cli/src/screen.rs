//! The state of an agent on the terminal.

use std::io::stderr;
use std::time::Duration;

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::{Frame, Terminal};

use crate::fail::Failure;
use crate::features;
use crate::lossy_output::LossyOutput;
use crate::terminal;

/// A function that draws a state on a frame, scrolled by a number of lines.
pub(crate) type Draw<T> = fn(&mut Frame<'_>, &T, u16);

/// The terminal in raw mode, restored when dropped.
pub(crate) struct Screen<T> {
    output: LossyOutput<(T, u16)>,
    scroll: u16,
}

impl<T: Send + 'static> Screen<T> {
    pub(crate) fn open(draw: Draw<T>) -> Result<Screen<T>, Failure> {
        enable_raw_mode().map_err(features::no_screen)?;
        let opened = execute!(stderr(), EnterAlternateScreen)
            .and_then(|()| Terminal::new(CrosstermBackend::new(stderr())))
            .and_then(|mut terminal| {
                LossyOutput::open(move |(shown, scroll): (T, u16)| {
                    // If the terminal has gone, pacing continues.
                    let _ = terminal.draw(|frame| draw(frame, &shown, scroll));
                    true
                })
            });
        if opened.is_err() {
            let _ = disable_raw_mode();
        }
        Ok(Screen { output: opened.map_err(features::no_screen)?, scroll: 0 })
    }

    pub(crate) fn draw(&self, shown: T) {
        self.output.show((shown, self.scroll));
    }

    /// Handles the keys pressed. Returns true if the user wants to end.
    pub(crate) fn wants_to_end(&mut self) -> bool {
        let pressed = || terminal::await_keys(Duration::ZERO).and_then(|()| event::poll(Duration::ZERO));
        while pressed().unwrap_or(false) {
            let Ok(Event::Key(key)) = event::read() else { continue };
            match key.code {
                KeyCode::Char('q') | KeyCode::Esc => return true,
                KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
                KeyCode::Down => self.scroll = self.scroll.saturating_add(1),
                KeyCode::Up => self.scroll = self.scroll.saturating_sub(1),
                _ => {}
            }
        }
        false
    }
}

impl<T> Drop for Screen<T> {
    fn drop(&mut self) {
        // A terminal that hangs would not accept this either.
        if self.output.end() {
            let _ = execute!(stderr(), LeaveAlternateScreen);
        }
        let _ = disable_raw_mode();
    }
}
