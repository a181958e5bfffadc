//! The layout of a figure, and its drawing on any surface.

use super::font::Face;
use super::{Axis, Curve, Figure, PALETTE, Row};
use crate::claim::number;

/// A drawing surface. Lengths are in pixels of a standard screen, from the upper left corner.
pub(super) trait Surface {
    /// An open line with round joints.
    fn line(&mut self, points: &[(f64, f64)], colour: Colour, width: f64) -> Result<(), String>;
    /// A filled, translucent polygon.
    fn area(&mut self, corners: &[(f64, f64)], colour: Colour) -> Result<(), String>;
    /// A filled circle.
    fn dot(&mut self, middle: (f64, f64), radius: f64, colour: Colour) -> Result<(), String>;
    /// A line of text at `at`, vertically centred.
    fn text(
        &mut self,
        text: &str,
        at: (f64, f64),
        size: f64,
        colour: Colour,
        side: Side,
    ) -> Result<(), String>;
}

/// Red, green and blue.
pub(super) type Colour = (u8, u8, u8);

/// The end of a text that lies at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Middle,
    Right,
}

/// Sizes in pixels of a standard screen.
pub(super) struct Layout {
    pub(super) width: i32,
    pub(super) height: i32,
    /// Rows of the figure side by side.
    abreast: usize,
    /// Heights of the title, and of a row with its title and axis.
    header: i32,
    block: i32,
}

impl Layout {
    pub(super) fn new(figure: &Figure) -> Layout {
        let columns = figure.rows.iter().map(|r| r.panels.len()).max().unwrap_or(1);
        let abreast = if columns <= 1 && figure.rows.len() > 1 { 2 } else { 1 };
        let lines = figure.rows.len().div_ceil(abreast).max(1) as i32;
        let header = match (figure.title.is_empty(), figure.subtitle.is_empty()) {
            (true, true) => 12,
            (false, true) if figure.size.is_some() => 46,
            _ => HEADER,
        };
        let (width, height) = match figure.size {
            Some((width, height)) => (width as i32, height as i32),
            None => {
                let width = (2 * MARGIN + columns.max(abreast) as i32 * 380).clamp(1000, 2200);
                (width, header + lines * BLOCK + FOOTER)
            }
        };
        Layout { width, height, abreast, header, block: (height - header - FOOTER) / lines }
    }
}

/// The least width and height of a picture of the figure.
pub(super) fn least(figure: &Figure) -> (u32, u32) {
    let columns = figure.rows.iter().map(|row| row.panels.len()).max().unwrap_or(1);
    let layout = Layout::new(figure);
    let lines = figure.rows.len().div_ceil(layout.abreast) as i32;
    let width = 2 * MARGIN + columns.max(layout.abreast) as i32 * LEAST_BLOCK.0;
    (width as u32, (layout.header + lines * LEAST_BLOCK.1 + FOOTER) as u32)
}

/// Draws `figure` on `surface`, which must be white: rows of panels, with the variants side by
/// side. With one variant, two rows are side by side.
pub(super) fn draw(surface: &mut impl Surface, figure: &Figure, layout: &Layout) -> Result<(), String> {
    Canvas { surface, face: Face::new()? }.figure(figure, layout)
}

struct Canvas<'a, S> {
    surface: &'a mut S,
    face: Face,
}

impl<S: Surface> Canvas<'_, S> {
    fn figure(&mut self, figure: &Figure, layout: &Layout) -> Result<(), String> {
        let whole = layout.width - 2 * MARGIN;
        let (title, subtitle) =
            (self.fitted(&figure.title, 21, whole), self.fitted(&figure.subtitle, 13, whole));
        self.text(&title, (MARGIN, 22), 21, INK, Side::Left)?;
        self.text(&subtitle, (MARGIN, 46), 13, MUTED, Side::Left)?;
        let inner = layout.width - 2 * MARGIN + BLOCK_GAP;
        let block = inner / layout.abreast as i32;
        // One label width for all axes aligns panels one below the other.
        let ticks = figure.rows.iter().flat_map(|r| &r.y.ticks);
        let labels = ticks.map(|t| self.text_width(&t.1, 11)).max().unwrap_or(0) + 8;
        for (i, row) in figure.rows.iter().enumerate() {
            let x = MARGIN + (i % layout.abreast) as i32 * block;
            let y = layout.header + (i / layout.abreast) as i32 * layout.block;
            self.row(row, (x, y), (block - BLOCK_GAP, layout.block), labels)?;
        }
        Ok(())
    }

    /// Draws a row's title, legend and panels from (x, y) on, with `labels` of the width for the
    /// labels of the axis.
    fn row(
        &mut self,
        row: &Row,
        (x, y): (i32, i32),
        (width, height): (i32, i32),
        labels: i32,
    ) -> Result<(), String> {
        let count = row.panels.len().max(1) as i32;
        let share = (width - labels - (count - 1) * PANEL_GAP) / count;
        let names = self.names_width(row).filter(|names| share - names >= LEAST_PANEL);
        let title = self.fitted(&row.title, 15, width);
        self.text(&title, (x, y + 8), 15, INK, Side::Left)?;
        let title_end = x + self.text_width(&title, 15) + 24;
        // A legend that does not fit beside the title gets a separate line. Full names at the
        // curves' ends replace it.
        let whole = names.is_some_and(|names| names < MOST_NAME);
        let beside = whole || title_end + self.legend_width(row) <= x + width;
        let (legend_y, legend_left, extra) = if beside { (y + 8, title_end, 0) } else { (y + 30, x, 20) };
        if !whole {
            self.legend(row, x + width, legend_y, legend_left)?;
        }
        let several = row.panels.iter().any(|p| !p.label.is_empty());
        let top = y + extra + if several { 44 } else { 26 };
        let bottom = y + height - 44;
        for (i, p) in row.panels.iter().enumerate() {
            let left = x + labels + i as i32 * (share + PANEL_GAP);
            let frame = Frame { left, right: left + share - names.unwrap_or(0), top, bottom };
            if several {
                let label = self.fitted(&p.label, 13, share);
                self.text(&label, ((frame.left + frame.right) / 2, top - 11), 13, MUTED, Side::Middle)?;
            }
            self.warmup(p.warmup, row, &frame)?;
            self.grid(row, &frame, i == 0)?;
            for at in &p.marks {
                let x = frame.x(row.x.place(*at));
                for y in (frame.top..frame.bottom).step_by(2 * MARK).map(f64::from) {
                    self.surface.line(&[(x, y), (x, y + MARK as f64)], AXIS, 1.0)?;
                }
            }
            for curve in p.curves.iter().rev() {
                self.band(curve, row, &frame)?;
            }
            // The first curve is the most important one, so it is drawn last, over the others.
            let (faint, clear): (Vec<&Curve>, Vec<&Curve>) = p.curves.iter().rev().partition(|c| c.faint);
            for curve in faint.into_iter().chain(clear) {
                self.curve(curve, row, &frame)?;
            }
            for curve in &p.curves {
                self.clip(curve, row, &frame)?;
            }
            if names.is_some() {
                self.names(&p.curves, row, &frame)?;
            }
        }
        Ok(())
    }

    fn grid(&mut self, row: &Row, f: &Frame, with_labels: bool) -> Result<(), String> {
        let (left, right, bottom) = (f64::from(f.left), f64::from(f.right), f64::from(f.bottom));
        for (value, label) in &row.y.ticks {
            let y = f.y(row.y.place(*value));
            self.surface.line(&[(left, y), (right, y)], if *value == 0.0 { AXIS } else { GRID }, HAIR)?;
            if with_labels {
                self.text(label, (f.left - 6, y as i32), 11, MUTED, Side::Right)?;
            }
        }
        let mut free_from = f.left - 40;
        for (value, label) in &row.x.ticks {
            let x = f.x(row.x.place(*value));
            self.surface.line(&[(x, f64::from(f.top)), (x, bottom)], GRID, HAIR)?;
            self.surface.line(&[(x, bottom), (x, bottom + 4.0)], AXIS, HAIR)?;
            // In a narrow panel, labels that would overlap are left out.
            let half = self.text_width(label, 11) / 2;
            if x as i32 - half >= free_from {
                self.text(label, (x as i32, f.bottom + 12), 11, MUTED, Side::Middle)?;
                free_from = x as i32 + half + 8;
            }
        }
        self.surface.line(&[(left, bottom), (right, bottom)], AXIS, HAIR)?;
        self.text(&row.x_title, ((f.left + f.right) / 2, f.bottom + 27), 11, MUTED, Side::Middle)
    }

    /// Shades the warm-up, which summaries exclude.
    fn warmup(&mut self, until: f64, row: &Row, f: &Frame) -> Result<(), String> {
        if until <= row.x.from {
            return Ok(());
        }
        let (left, right) = (f64::from(f.left), f.x(row.x.place(until).min(1.0)));
        let (top, bottom) = (f64::from(f.top), f64::from(f.bottom));
        self.surface.area(&[(left, top), (right, top), (right, bottom), (left, bottom)], AXIS)?;
        if self.text_width("warm-up", 10) < right as i32 - f.left {
            self.text("warm-up", (f.left + 3, f.bottom - 8), 10, MUTED, Side::Left)?;
        }
        Ok(())
    }

    /// Marks a curve that leaves the frame at its top: two strokes through it, and its peak.
    fn clip(&mut self, curve: &Curve, row: &Row, f: &Frame) -> Result<(), String> {
        let above = |p: &&(f64, f64)| p.1 > row.y.until * (1.0 + 1e-9);
        let peak = curve.points.iter().filter(above).max_by(|a, b| a.1.total_cmp(&b.1));
        let Some(&(at, peak)) = peak.filter(|_| !curve.faint) else { return Ok(()) };
        let (x, top) = (f.x(row.x.place(at)), f64::from(f.top));
        for y in [top + 4.0, top + 9.0] {
            self.surface.line(&[(x - 6.0, y + 3.0), (x + 6.0, y - 3.0)], PAPER, 3.5)?;
            self.surface.line(&[(x - 6.0, y + 5.0), (x + 6.0, y - 1.0)], MUTED, 1.0)?;
        }
        self.text(&number(peak), (x as i32 + 9, f.top + 7), 11, colour(curve.colour), Side::Left)
    }

    /// Draws the band around a curve.
    fn band(&mut self, curve: &Curve, row: &Row, f: &Frame) -> Result<(), String> {
        if curve.band.len() < 2 {
            return Ok(());
        }
        let edge = |of: fn(&(f64, f64, f64)) -> f64| {
            let points =
                Curve { points: curve.band.iter().map(|b| (b.0, of(b))).collect(), ..Curve::default() };
            let points = points.decimated(f.columns(), row.x.from, row.x.until);
            points.into_iter().filter(|p| p.1.is_finite()).map(|p| f.at(row, p)).collect::<Vec<_>>()
        };
        let mut corners = edge(|b| b.2);
        corners.extend(edge(|b| b.1).into_iter().rev());
        self.surface.area(&corners, colour(curve.colour))
    }

    fn curve(&mut self, curve: &Curve, row: &Row, f: &Frame) -> Result<(), String> {
        let points = curve.decimated(f.columns(), row.x.from, row.x.until);
        let (ink, width) = match curve.faint {
            true => (pale(colour(curve.colour)), FAINT_WIDTH),
            false => (colour(curve.colour), CURVE_WIDTH),
        };
        for piece in points.split(|p| !p.1.is_finite()) {
            let line: Vec<(f64, f64)> = piece.iter().map(|p| f.at(row, *p)).collect();
            for dash in dashes(&line, style(curve)) {
                self.surface.line(&dash, ink, width)?;
            }
            // A single point makes no line.
            for dot in line.iter().filter(|_| curve.dotted || line.len() == 1) {
                self.surface.dot(*dot, DOT, ink)?;
            }
        }
        Ok(())
    }

    /// Draws the curves' names where the curves end, moved apart if they would overlap.
    fn names(&mut self, curves: &[Curve], row: &Row, f: &Frame) -> Result<(), String> {
        let end = |curve: &Curve| {
            let last = curve.points.iter().rev().find(|p| p.1.is_finite() && p.0 <= row.x.until + 1e-9)?;
            Some((f.at(row, *last), curve.colour, curve.name.clone()))
        };
        let ends = curves.iter().filter(|c| !c.faint).filter_map(end);
        let near = f64::from(f.right) - EARLY * f64::from(f.right - f.left);
        let (mut ends, early): (Vec<_>, Vec<_>) = ends.partition(|(at, ..)| at.0 >= near);
        ends.sort_by(|a, b| a.0.1.total_cmp(&b.0.1));
        for i in 1..ends.len() {
            ends[i].0.1 = ends[i].0.1.max(ends[i - 1].0.1 + NAME_LINE);
        }
        let mut most = f64::from(f.bottom) + 4.0;
        for end in ends.iter_mut().rev() {
            end.0.1 = end.0.1.min(most);
            most = end.0.1 - NAME_LINE;
        }
        ends.iter_mut().for_each(|end| end.0.0 = f64::from(f.right));
        // Under a curve that ends earlier, or over it at the bottom.
        let low = f64::from(f.bottom) - 2.0 * NAME_LINE;
        let beside = |((x, y), index, name): ((f64, f64), usize, String)| {
            ((x - f64::from(NAME_GAP), if y > low { y - NAME_LINE } else { y + NAME_LINE }), index, name)
        };
        ends.extend(early.into_iter().map(beside));
        for ((x, y), index, name) in ends {
            let name = self.fitted(&name, 11, MOST_NAME - NAME_GAP);
            let at = (libm::round(x) as i32 + NAME_GAP, libm::round(y) as i32);
            self.text(&name, at, 11, colour(index), Side::Left)?;
        }
        Ok(())
    }

    /// The width for names at the curves' ends; `None` for one curve, or too many.
    fn names_width(&self, row: &Row) -> Option<i32> {
        let few = (2..=PALETTE.len()).contains(&row.legend.len());
        let widest = row.legend.iter().map(|(name, _)| self.text_width(name, 11)).max().filter(|_| few)?;
        Some((widest + NAME_GAP).min(MOST_NAME))
    }

    /// Draws names with strokes in their colours, ending at `right`. Names that do not fit right of
    /// `left` are counted.
    fn legend(&mut self, row: &Row, right: i32, y: i32, left: i32) -> Result<(), String> {
        if !has_legend(row) {
            return Ok(());
        }
        // One name must fit, with the number of hidden ones.
        let reserved = if row.legend.len() > 1 { 60 } else { 0 };
        let room = right - left - LEGEND_STROKE - LEGEND_GAP - reserved;
        let legend: Vec<(String, usize)> =
            row.legend.iter().map(|(name, index)| (self.fitted(name, 12, room), *index)).collect();
        let widths: Vec<i32> = legend.iter().map(|(name, _)| self.entry_width(name)).collect();
        let mut shown = legend.len();
        let total = |n: usize| widths[..n].iter().sum::<i32>();
        while shown > 1 && right - total(shown) - if shown < legend.len() { 60 } else { 0 } < left {
            shown -= 1;
        }
        let hidden = legend.len() - shown;
        let mut x = right - total(shown) + LEGEND_GAP - if hidden > 0 { 60 } else { 0 };
        let dotted = row.panels.iter().flat_map(|panel| &panel.curves).any(|curve| curve.dotted);
        for ((name, index), width) in legend[..shown].iter().zip(&widths) {
            let stroke = [(f64::from(x), f64::from(y)), (f64::from(x + LEGEND_STROKE - 6), f64::from(y))];
            for dash in dashes(&stroke, if dotted { STYLES[*index % STYLES.len()] } else { &[] }) {
                self.surface.line(&dash, colour(*index), 2.0)?;
            }
            self.text(name, (x + LEGEND_STROKE, y), 12, INK, Side::Left)?;
            x += width;
        }
        if hidden > 0 {
            self.text(&format!("+ {hidden} more"), (right, y), 12, MUTED, Side::Right)?;
        }
        Ok(())
    }

    /// The width of the whole legend.
    fn legend_width(&self, row: &Row) -> i32 {
        let entries = row.legend.iter().filter(|_| has_legend(row));
        entries.map(|(name, _)| self.entry_width(name)).sum()
    }

    fn entry_width(&self, name: &str) -> i32 {
        self.text_width(name, 12) + LEGEND_STROKE + LEGEND_GAP
    }

    fn text(
        &mut self,
        text: &str,
        at: (i32, i32),
        size: i32,
        colour: Colour,
        side: Side,
    ) -> Result<(), String> {
        let at = (f64::from(at.0), f64::from(at.1));
        if text.is_empty() { Ok(()) } else { self.surface.text(text, at, f64::from(size), colour, side) }
    }

    /// `text`, or the longest beginning of it that fits into `room`.
    fn fitted(&self, text: &str, size: i32, room: i32) -> String {
        if self.text_width(text, size) <= room {
            return text.to_owned();
        }
        let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        let cut = |n: usize| format!("{}…", text[..ends[n]].trim_end());
        let fits =
            (0..ends.len()).collect::<Vec<_>>().partition_point(|n| self.text_width(&cut(*n), size) <= room);
        cut(fits.saturating_sub(1))
    }

    fn text_width(&self, text: &str, size: i32) -> i32 {
        libm::ceil(self.face.width(text, f64::from(size))) as i32
    }
}

/// The visible pieces of `points` in a broken line. Dashes and gaps are horizontal lengths, so a
/// steep curve keeps its style.
pub(super) fn dashes(points: &[(f64, f64)], style: &[f64]) -> Vec<Vec<(f64, f64)>> {
    if style.is_empty() || points.len() < 2 {
        return if points.len() > 1 { vec![points.to_vec()] } else { Vec::new() };
    }
    let (mut part, mut left, mut on) = (0, style[0], true);
    let mut pieces = vec![vec![points[0]]];
    for pair in points.windows(2) {
        let (mut from, to) = (pair[0], pair[1]);
        while to.0 - from.0 > left {
            let at = (from.0 + left, from.1 + (to.1 - from.1) * left / (to.0 - from.0));
            match pieces.last_mut().filter(|_| on) {
                Some(piece) => piece.push(at),
                None => pieces.push(vec![at]),
            }
            part = (part + 1) % style.len();
            (from, left, on) = (at, style[part], !on);
        }
        left -= to.0 - from.0;
        if let Some(piece) = pieces.last_mut().filter(|_| on) {
            piece.push(to);
        }
    }
    pieces.retain(|piece| piece.len() > 1);
    pieces
}

/// The dashes and gaps of a curve, as horizontal lengths; empty for a solid line.
///
/// Only lines between marked points are broken: a gap in a line over time would look like missing
/// data.
pub(crate) fn style(curve: &Curve) -> &'static [f64] {
    if curve.dotted { STYLES[curve.colour % STYLES.len()] } else { &[] }
}

struct Frame {
    left: i32,
    right: i32,
    top: i32,
    bottom: i32,
}

impl Frame {
    /// The position of a point, or of the nearest point on the frame's edge.
    fn at(&self, row: &Row, (x, y): (f64, f64)) -> (f64, f64) {
        let part = |axis: &Axis, value| axis.place(value).clamp(0.0, 1.0);
        (self.x(part(&row.x, x)), self.y(part(&row.y, y)))
    }

    fn x(&self, part: f64) -> f64 {
        f64::from(self.left) + part * f64::from(self.right - self.left)
    }

    fn y(&self, part: f64) -> f64 {
        f64::from(self.bottom) - part * f64::from(self.bottom - self.top)
    }

    /// Pixel columns at twice a standard screen's resolution.
    fn columns(&self) -> usize {
        ((self.right - self.left).max(1) * 2) as usize
    }
}

/// True for several names, or for a median over faint curves.
fn has_legend(row: &Row) -> bool {
    row.legend.len() > 1 || row.panels.iter().flat_map(|panel| &panel.curves).any(|curve| curve.faint)
}

fn colour(index: usize) -> Colour {
    PALETTE[index % PALETTE.len()]
}

/// The colour mixed with three parts of white.
fn pale((r, g, b): Colour) -> Colour {
    let mixed = |part: u8| 255 - (255 - part) / 4;
    (mixed(r), mixed(g), mixed(b))
}

/// Length of the dashes at a change's time.
const MARK: usize = 4;
/// Line styles, which distinguish curves without colours: solid, dashes, dots, both.
const STYLES: [&[f64]; 4] = [&[], &[9.0, 4.0], &[2.5, 3.0], &[9.0, 3.0, 2.5, 3.0]];
const PAPER: Colour = (0xff, 0xff, 0xff);
const INK: Colour = (0x1c, 0x22, 0x2b);
const MUTED: Colour = (0x5b, 0x65, 0x73);
const GRID: Colour = (0xe4, 0xe7, 0xec);
const AXIS: Colour = (0x9a, 0xa3, 0xaf);
const MARGIN: i32 = 28;
const HEADER: i32 = 72;
const FOOTER: i32 = 4;
const BLOCK: i32 = 236;
/// Least width of a column of panels, and least height of a row.
const LEAST_BLOCK: (i32, i32) = (150, 110);
const BLOCK_GAP: i32 = 36;
const PANEL_GAP: i32 = 22;
/// Least width of a panel with names at the curves' ends.
const LEAST_PANEL: i32 = 220;
/// Names at the curves' ends: greatest width, the gap before the name, and the line height.
const MOST_NAME: i32 = 110;
const NAME_GAP: i32 = 6;
const NAME_LINE: f64 = 12.0;
/// A curve that ends before this last part of a panel has its name at its end.
const EARLY: f64 = 0.03;
/// The distance from a legend's stroke to its name, and the gap to the next stroke.
const LEGEND_STROKE: i32 = 28;
const LEGEND_GAP: i32 = 14;
const HAIR: f64 = 0.5;
const CURVE_WIDTH: f64 = 1.5;
const FAINT_WIDTH: f64 = 0.75;
/// The radius of a marked point.
const DOT: f64 = 2.75;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dashes_are_measured_across_the_panel() {
        let line: Vec<(f64, f64)> = (0..=40).map(|i| (f64::from(i), f64::from(i % 2) * 100.0)).collect();
        let pieces = dashes(&line, &[9.0, 4.0]);
        let ends: Vec<(f64, f64)> = pieces.iter().map(|p| (p[0].0, p[p.len() - 1].0)).collect();
        assert_eq!(ends, [(0.0, 9.0), (13.0, 22.0), (26.0, 35.0), (39.0, 40.0)]);
        // A segment longer than many dashes is divided too.
        assert_eq!(dashes(&[(0.0, 0.0), (40.0, 4.0)], &[9.0, 4.0])[1], [(13.0, 1.3), (22.0, 2.2)]);
        assert_eq!(dashes(&line, &[]), [line]);
    }

    #[test]
    fn the_first_eight_curves_differ_in_colour_and_style() {
        let pairs: std::collections::HashSet<_> = (0..8).map(|i| (i % 4, colour(i))).collect();
        let of = |colour: usize, dotted: bool| style(&Curve { colour, dotted, ..Curve::default() });
        assert_eq!((pairs.len(), of(0, true).len()), (8, 0));
        assert!((1..4).all(|i| !of(i, true).is_empty() && of(i, true) != of(i - 1, true)));
        assert!((0..8).all(|i| of(i, false).is_empty()));
    }
}
