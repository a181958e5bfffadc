//! The agent's state on a terminal.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::Stylize;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;
use serde_json::Value;

use crate::status::text;

/// Draws a [`Standing`](crate::status::Standing) from JSON; `scroll` lines are above the screen's
/// edge.
pub fn draw(frame: &mut Frame<'_>, standing: &Value, scroll: u16) {
    let [above, foot] = Layout::vertical([Constraint::Min(1), Constraint::Length(1)]).areas(frame.area());
    let text = text(standing, usize::from(frame.area().width.max(20)), MOST).unwrap_or_default();
    frame.render_widget(Paragraph::new(text).scroll((scroll, 0)), above);
    frame.render_widget(Line::from(" q remove all paces and quit   ↑ ↓ scroll ").dim(), foot);
}

/// Upper bound of connections in the list.
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
            let standing = crate::status::tests::standing().to_json();
            terminal.draw(|frame| draw(frame, &standing, 0)).unwrap();
            let screen = terminal.backend().to_string();
            assert!(width < 200 || screen.contains("192.0.2.1:4711"), "{screen}");
        }
    }
}
