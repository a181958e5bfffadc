//! The terminal view of a switch.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::Stylize;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use crate::status::Status;

/// Draws the status; `scroll` lines are above the screen's edge.
pub fn draw(frame: &mut Frame<'_>, status: &Status, scroll: u16) {
    let [above, foot] = Layout::vertical([Constraint::Min(1), Constraint::Length(1)]).areas(frame.area());
    let text = status.to_text(usize::from(frame.area().width.max(20)), MOST);
    frame.render_widget(Paragraph::new(text).scroll((scroll, 0)), above);
    frame.render_widget(Line::from(" q stop the switch   ↑ ↓ scroll ").dim(), foot);
}

/// Upper bound on clients shown.
const MOST: usize = 500;

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    #[test]
    fn any_size_can_be_drawn() {
        for (width, height) in [(1, 1), (40, 8), (200, 40)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| draw(frame, &crate::status::tests::status(), 0)).unwrap();
            let screen = terminal.backend().to_string();
            assert!(width < 200 || screen.contains("perhaps lost"), "{screen}");
        }
    }
}
