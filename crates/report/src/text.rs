//! Tables of text for a terminal or a file.

/// The alignment of a column's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// At the left edge.
    Left,
    /// At the right edge.
    Right,
}

/// Rows under a header with a rule below it.
#[derive(Clone, Debug)]
pub struct TextTable {
    header: Vec<(String, Align)>,
    /// Titles above the header, each with its first column and its number of columns.
    groups: Vec<(usize, usize, String)>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// A table without rows.
    pub fn new<S: AsRef<str>>(header: &[(S, Align)]) -> TextTable {
        TextTable {
            header: header.iter().map(|(s, a)| (s.as_ref().to_string(), *a)).collect(),
            groups: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row<I: IntoIterator<Item: Into<String>>>(&mut self, cells: I) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Puts `titles` above the columns from `first` on, each over `span` columns. Empty ones are
    /// left out.
    pub(crate) fn groups<'a>(&mut self, first: usize, span: usize, titles: impl Iterator<Item = &'a str>) {
        let groups = titles.enumerate().map(|(i, t)| (first + i * span, span, t.to_string()));
        self.groups = groups.filter(|g| !g.2.is_empty()).collect();
    }

    /// The width without wrapping, in characters.
    pub fn natural_width(&self) -> usize {
        self.natural_widths().iter().sum::<usize>() + GAP * self.header.len().saturating_sub(1)
    }

    fn natural_widths(&self) -> Vec<usize> {
        let width = |i: usize| {
            let cells = self.rows.iter().filter_map(|r| r.get(i)).map(|c| c.chars().count());
            cells.chain([self.header[i].0.chars().count()]).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = (0..self.header.len()).map(width).collect();
        for (first, span, title) in &self.groups {
            let own = widths[*first..first + span].iter().sum::<usize>() + GAP * (span - 1);
            widths[*first] += title.chars().count().saturating_sub(own);
        }
        widths
    }

    /// The table in at most `width` columns. If it does not fit, the widest left-aligned columns
    /// are wrapped.
    pub fn print(&self, width: usize) -> String {
        let mut widths = self.natural_widths();
        let fixed = GAP * self.header.len().saturating_sub(1);
        while widths.iter().sum::<usize>() + fixed > width {
            let widest = (0..widths.len())
                .filter(|&i| self.header[i].1 == Align::Left && widths[i] > NARROWEST)
                .max_by_key(|&i| widths[i]);
            let Some(i) = widest else { break };
            widths[i] -= 1;
        }
        let mut text = String::new();
        self.write_groups(&mut text, &widths);
        let header: Vec<String> = self.header.iter().map(|h| h.0.clone()).collect();
        self.write_row(&mut text, &header, &widths);
        text.push_str(&"─".repeat(widths.iter().sum::<usize>() + fixed));
        text.push('\n');
        for row in &self.rows {
            self.write_row(&mut text, row, &widths);
        }
        text
    }

    /// Writes the titles above groups of columns, each in a rule over its columns.
    fn write_groups(&self, text: &mut String, widths: &[usize]) {
        if self.groups.is_empty() {
            return;
        }
        let start = |column: usize| widths[..column].iter().map(|w| w + GAP).sum::<usize>();
        let mut line = String::new();
        for (first, span, title) in &self.groups {
            let from = start(*first);
            let wide = start(first + span) - GAP - from;
            let used = line.chars().count();
            line.push_str(&" ".repeat(from.saturating_sub(used)));
            let rest = wide.saturating_sub(title.chars().count());
            // `── xcp ──`: the rule covers the columns of the title.
            let (left, right) = (rest / 2, rest - rest / 2);
            let rule = |n: usize| "╌".repeat(n.saturating_sub(1));
            let pad = |n: usize| if n > 0 { " " } else { "" };
            line.push_str(&format!("{}{}{title}{}{}", rule(left), pad(left), pad(right), rule(right)));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }

    /// The table in HTML.
    pub(crate) fn to_html(&self) -> String {
        let mut html = String::from("<table>\n<thead>\n");
        if let Some((first, ..)) = self.groups.first() {
            html.push_str(&format!("<tr class=\"groups\"><th colspan=\"{first}\"></th>"));
            for (_, span, title) in &self.groups {
                html.push_str(&format!("<th colspan=\"{span}\" scope=\"colgroup\">{}</th>", escape(title)));
            }
            html.push_str("</tr>\n");
        }
        let class = |i: usize| match self.header.get(i) {
            Some((_, Align::Right)) if self.groups.iter().any(|g| g.0 == i) => " class=\"num first\"",
            Some((_, Align::Right)) => " class=\"num\"",
            _ => "",
        };
        html.push_str("<tr>");
        for (i, (title, _)) in self.header.iter().enumerate() {
            html.push_str(&format!("<th{} scope=\"col\">{}</th>", class(i), escape(title)));
        }
        html.push_str("</tr>\n</thead>\n<tbody>\n");
        for row in &self.rows {
            html.push_str("<tr>");
            for (i, cell) in row.iter().enumerate() {
                let status = match cell.as_str() {
                    "met" | "UNMET" | "skipped" => format!(" data-status=\"{}\"", cell.to_lowercase()),
                    _ => String::new(),
                };
                html.push_str(&format!("<td{}{status}>{}</td>", class(i), escape(cell)));
            }
            html.push_str("</tr>\n");
        }
        html.push_str("</tbody>\n</table>\n");
        html
    }

    fn write_row(&self, text: &mut String, row: &[String], widths: &[usize]) {
        let cells: Vec<Vec<String>> = widths
            .iter()
            .enumerate()
            .map(|(i, &width)| wrap(row.get(i).map_or("", String::as_str), width))
            .collect();
        for line in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
            let mut out = String::new();
            for (i, cell) in cells.iter().enumerate() {
                let part = cell.get(line).map_or("", String::as_str);
                let pad = " ".repeat(widths[i].saturating_sub(part.chars().count()));
                match self.header[i].1 {
                    Align::Left => out.extend([part, &pad]),
                    Align::Right => out.extend([&pad, part]),
                }
                out.push_str(&" ".repeat(GAP));
            }
            text.push_str(out.trim_end());
            text.push('\n');
        }
    }
}

/// `text` with HTML's special characters escaped.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// `text` in lines of at most `width` characters, broken at spaces where possible.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let mut rest: Vec<char> = word.chars().collect();
        if used > 0 && used + 1 + rest.len() > width {
            lines.push(String::new());
            used = 0;
        }
        if used > 0 {
            lines.last_mut().into_iter().for_each(|l| l.push(' '));
        }
        while rest.len() > width {
            // Breaks a dotted name after a dot, if there is one.
            let cut = rest[..width].iter().rposition(|c| *c == '.').map_or(width, |i| i + 1);
            let head: String = rest.drain(..cut.max(1)).collect();
            lines.last_mut().into_iter().for_each(|l| l.push_str(&head));
            lines.push(String::new());
        }
        let tail: String = rest.iter().collect();
        lines.last_mut().into_iter().for_each(|l| l.push_str(&tail));
        used = lines.last().map_or(0, |l| l.chars().count());
    }
    lines
}

/// Spaces between columns.
const GAP: usize = 2;
/// Least width of a wrapped column, in characters.
const NARROWEST: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fits_and_lines_up() {
        let mut t = TextTable::new(&[("claim", Align::Left), ("measured", Align::Left), ("n", Align::Right)]);
        t.row(["xcp.validation.utilisation-over-fifo", "a long story about what was measured", "1"]);
        t.groups(1, 2, ["fifo"].into_iter());
        t.row(["b", "", "12345"]);
        let text = t.print(50);
        assert!(text.lines().all(|l| l.chars().count() <= 50), "{text}");
        assert!(text.lines().all(|l| !l.ends_with(' ')));
        assert!(text.contains("12345\n") && text.contains(" fifo "));
        assert_eq!(text.lines().next_back(), Some(format!("b{:>49}", "12345").as_str()));
    }

    #[test]
    fn a_title_is_whole_over_narrow_columns() {
        let mut t = TextTable::new(&[("queue", Align::Left), ("n", Align::Right), ("n", Align::Right)]);
        t.groups(1, 1, ["slow-client", "fast"].into_iter());
        t.row(["a", "1", "2"]);
        let text = t.print(80);
        assert!(text.contains("slow-client  fast\n"), "{text}");
        assert!(text.lines().all(|l| l.chars().count() <= t.natural_width()), "{text}");
    }
}
