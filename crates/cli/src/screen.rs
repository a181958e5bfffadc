//! The state of an agent on the terminal.

use std::io::stderr;
use std::time::Duration;

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::Stylize;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;
use ratatui::{Frame, Terminal};
use serde_json::Value;
use tollway_agent::output::LossyOutput;
use tollway_agent::status::Product;

use crate::fail::Failure;
use crate::features;
use crate::terminal;

/// The terminal in raw mode, restored when dropped.
pub(crate) struct Screen {
    output: LossyOutput<(Value, u16)>,
    scroll: u16,
}

impl Screen {
    /// Shows states of `product` above the line `foot`.
    pub(crate) fn open(product: &'static Product, foot: &'static str) -> Result<Screen, Failure> {
        enable_raw_mode().map_err(features::no_screen)?;
        let opened = execute!(stderr(), EnterAlternateScreen)
            .and_then(|()| Terminal::new(CrosstermBackend::new(stderr())))
            .and_then(|mut terminal| {
                LossyOutput::open(move |(shown, scroll): (Value, u16)| {
                    // If the terminal has gone, pacing continues.
                    let _ = terminal.draw(|frame| draw(frame, product, foot, &shown, scroll));
                    true
                })
            });
        if opened.is_err() {
            let _ = disable_raw_mode();
        }
        Ok(Screen { output: opened.map_err(features::no_screen)?, scroll: 0 })
    }

    pub(crate) fn draw(&self, shown: Value) {
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

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that hangs would not accept this either.
        if self.output.end() {
            let _ = execute!(stderr(), LeaveAlternateScreen);
        }
        let _ = disable_raw_mode();
    }
}

/// Draws a state; `scroll` lines are above the screen's edge.
fn draw(frame: &mut Frame<'_>, product: &Product, foot: &str, state: &Value, scroll: u16) {
    let [above, below] = Layout::vertical([Constraint::Min(1), Constraint::Length(1)]).areas(frame.area());
    let text = product.text(state, usize::from(frame.area().width.max(20)), MOST).unwrap_or_default();
    frame.render_widget(Paragraph::new(text).scroll((scroll, 0)), above);
    frame.render_widget(Line::from(foot).dim(), below);
}

/// Upper bound of rows in a long list.
const MOST: usize = 500;

#[cfg(test)]
mod tests {
    use ratatui::backend::TestBackend;
    use serde_json::json;
    use tollway_overlay::status::{OVERLAY, Status};

    use super::*;

    #[test]
    fn any_size_can_be_drawn() {
        let mut state = serde_json::to_value(Status::default()).unwrap();
        state["site"] = json!("north");
        for (width, height) in [(1, 1), (40, 8), (200, 40)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| draw(frame, &OVERLAY, "q ends", &state, 0)).unwrap();
            let screen = terminal.backend().to_string();
            assert!(width < 200 || (screen.contains("Site north") && screen.contains("q ends")), "{screen}");
        }
    }
}
