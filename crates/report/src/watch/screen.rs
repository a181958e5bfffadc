//! A [`Scene`](super::Scene) on a terminal.

use std::collections::VecDeque;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Gauge, Row, Table, Tabs};

use super::{FlowScene, LinkScene, RunScene};

/// The visible part of a scene.
#[derive(Clone, Copy, Debug, Default)]
pub struct Viewport {
    /// Index of the run.
    pub run: usize,
    /// Number of flows above the screen's edge.
    pub scroll: usize,
}

/// Draws a run: its progress, its links and its flows. `title` is the scenario's, and `engine` the
/// engine's name.
pub fn draw(frame: &mut Frame<'_>, runs: &[RunScene], view: Viewport, title: &str, engine: &str) {
    let Some(run) = runs.get(view.run.min(runs.len().saturating_sub(1))) else { return };
    // Links get the lines they need, but flows keep at least half.
    let height = frame.area().height;
    let most = height.saturating_sub(4) / 2;
    let links = (run.links.len() as u16 + 3).min(most.max(4));
    let [head, bar, above, below, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(links),
        Constraint::Min(3),
        // On a small screen, flows have priority.
        Constraint::Length(u16::from(height > 10)),
    ])
    .areas(frame.area());

    let names = runs.iter().map(|run| match run.variant.as_str() {
        "" => title.to_owned(),
        name => name.to_owned(),
    });
    frame.render_widget(Tabs::new(names).select(view.run).highlight_style(Style::new().reversed()), head);
    let share = (run.time_s / run.duration_s.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
    let label = format!("{engine}: {:.1} s of {:.0} s", run.time_s, run.duration_s);
    frame.render_widget(Gauge::default().ratio(share).label(label).gauge_style(Color::Blue), bar);
    draw_links(frame, above, run);
    draw_flows(frame, below, run, view.scroll);
    frame.render_widget(Line::from(" q stop the run   Tab next variant   ↑ ↓ scroll the flows ").dim(), foot);
}

fn draw_links(frame: &mut Frame<'_>, area: Rect, run: &RunScene) {
    let priced = run.links.iter().any(|link| link.price.is_some());
    let mut head = vec!["link", "used", "queue kB", "peak kB", "drops", "marks"];
    head.extend(priced.then_some("$/MB"));
    head.push("queue");
    let rows = run.links.iter().map(|link| link_row(link, priced));
    let mut widths = vec![18, 9, 9, 9, 9];
    widths.extend(priced.then_some(10));
    frame.render_widget(table(rows, columns(area, &widths, 2), &head, "links"), area);
}

fn link_row(link: &LinkScene, priced: bool) -> Row<'static> {
    let mut cells = vec![
        Cell::from(link.name.clone()),
        Cell::from(meter(link.utilisation)),
        number(link.queue_bytes * 1e-3, 1),
        number(link.queue_max_bytes * 1e-3, 1),
        Cell::from(Span::styled(format!("{:>8}", link.drops), warning(link.drops > 0))),
        Cell::from(format!("{:>8}", link.marks)),
    ];
    cells.extend(
        priced.then(|| link.price.map_or(Cell::default(), |price| Cell::from(format!("{price:>9.3e}")))),
    );
    cells.push(Cell::from(history(&link.queues)).style(Color::Yellow));
    Row::new(cells)
}

fn draw_flows(frame: &mut Frame<'_>, area: Rect, run: &RunScene, scroll: usize) {
    let priced = run.current().any(|flow| flow.price.is_some());
    let mut head = vec!["flow", "Mb/s", "RTT ms", "cwnd", "resent"];
    head.extend(priced.then_some("$/MB"));
    head.push("rate");
    let rows = run.current().skip(scroll).map(|flow| flow_row(flow, priced));
    let mut widths = vec![9; 4];
    widths.extend(priced.then_some(10));
    let title = format!(
        "flows: {} active, {} finished",
        run.current().count(),
        run.flows.len() - run.current().count()
    );
    frame.render_widget(table(rows, columns(area, &widths, 3), &head, &title), area);
}

fn flow_row(flow: &FlowScene, priced: bool) -> Row<'static> {
    let mut cells = vec![
        Cell::from(flow.name.clone()),
        known(flow.rate_mbps, 2),
        known(flow.rtt_ms, 1),
        known(flow.cwnd_packets, 1),
        flow.retransmissions.map_or(Cell::default(), |resent| Cell::from(format!("{resent:>8}"))),
    ];
    cells.extend(
        priced.then(|| flow.price.map_or(Cell::default(), |price| Cell::from(format!("{price:>9.3e}")))),
    );
    cells.push(Cell::from(history(&flow.rates)).style(Color::Green));
    Row::new(cells)
}

/// Columns for a name, for numbers of these widths, and for a history. The history's width relates
/// to the name's as `history` to two. On a narrow terminal the last columns are left out, but never
/// the name.
fn columns(area: Rect, widths: &[u16], history: u16) -> Vec<Constraint> {
    // The inner width; columns have gaps of one.
    let mut rest = area.width.saturating_sub(2);
    let mut columns = vec![Constraint::Fill(1)];
    for width in widths {
        if rest < NAME + 1 + width {
            return columns;
        }
        rest -= 1 + width;
        columns.push(Constraint::Length(*width));
    }
    if rest > NAME + 1 {
        columns[0] = Constraint::Length(NAME.max(2 * (rest - 1) / (2 + history)));
        columns.push(Constraint::Fill(1));
    }
    columns
}

fn table<'a>(
    rows: impl Iterator<Item = Row<'a>>,
    widths: Vec<Constraint>,
    head: &[&str],
    title: &str,
) -> Table<'a> {
    let last = head.len() - 1;
    let cells = head.iter().enumerate().map(|(i, name)| match i {
        0 => name.to_string(),
        i if i == last || *name == "used" => name.to_string(),
        _ => format!("{name:>8}"),
    });
    Table::new(rows, widths)
        .header(Row::new(cells.map(Cell::from).collect::<Vec<_>>()).style(Modifier::BOLD))
        .block(Block::bordered().title(format!(" {title} ")))
}

fn number(value: f64, digits: usize) -> Cell<'static> {
    Cell::from(format!("{value:>8.digits$}"))
}

/// A number, or an empty cell if it is unknown in this process.
fn known(value: Option<f64>, digits: usize) -> Cell<'static> {
    value.map_or(Cell::default(), |value| number(value, digits))
}

fn warning(on: bool) -> Style {
    if on { Style::new().fg(Color::Red) } else { Style::new() }
}

/// Ten characters of bar, in eighths, and the percentage.
fn meter(share: f64) -> Line<'static> {
    let eighths = (share.clamp(0.0, 1.0) * 80.0) as usize;
    let rest = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
    let bar = "█".repeat(eighths / 8) + rest;
    Line::from(vec![
        Span::styled(format!("{bar:<10}"), Color::Cyan),
        Span::raw(format!(" {:>5.1} %", share * 100.0)),
    ])
}

/// A bar for each value, with its height relative to the greatest.
fn history(values: &VecDeque<f64>) -> String {
    let most = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let step = |&value: &f64| {
        let eighths = (value / most * 8.0).clamp(0.0, 8.0) as usize;
        [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'][eighths]
    };
    values.iter().map(step).collect()
}

/// Least width of a name.
const NAME: u16 = 12;

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn screen(width: u16, height: u16) -> String {
        let scene = super::super::tests::scene();
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let view = Viewport { run: 1, scroll: 0 };
        terminal.draw(|frame| draw(frame, &scene.runs(), view, "mine", "simulating")).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_screen_shows_time_links_and_flows_under_way() {
        let screen = screen(110, 16);
        for part in
            ["fifo", "xcp", "8.0 s of 20 s", "bottleneck", "87.5 %", "f.1", "50.2", "1 active, 1 finished"]
        {
            assert!(screen.contains(part), "no {part} in\n{screen}");
        }
        // Queue in kB, drops since the start, and increasing rates.
        assert!(screen.contains("12.0") && screen.contains("16") && screen.contains("▁▂▃▄▅▆▇█"), "{screen}");
        assert!(!screen.contains("f.2"), "f.2 is over:\n{screen}");
    }

    #[test]
    fn a_narrow_screen_leaves_out_numbers_and_no_names() {
        for (width, height) in [(40, 10), (60, 20), (80, 24)] {
            let screen = screen(width, height);
            assert!(
                screen.contains("bottleneck") && screen.contains("f.1") && screen.contains("50.2"),
                "{screen}"
            );
        }
        assert!(screen(80, 24).contains("▁▂▃▄▅▆▇█"));
    }

    #[test]
    fn any_size_can_be_drawn() {
        for (width, height) in [(1, 1), (20, 3), (40, 8), (300, 100)] {
            screen(width, height);
        }
    }
}
