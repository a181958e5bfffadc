//! Figures as PNG files.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Figure, PALETTE, Row};

/// Why a figure could not be drawn.
#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    /// The file cannot be written.
    #[error("cannot write {}: {message}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system or the encoder said.
        message: String,
    },
    /// The drawing library failed.
    #[error("cannot draw the figure: {0}")]
    Draw(String),
}

/// Draws `figure` to `path`, at twice the resolution of a plain screen: rows of panels, the variants side by side; with one
/// variant, two rows beside each other.
///
/// # Errors
/// The file cannot be written, or the drawing library fails.
pub fn write_png(figure: &Figure, path: &Path) -> Result<(), PlotError> {
    let layout = Layout::new(figure);
    let (width, height) = (layout.width * OVERSAMPLED, layout.height * OVERSAMPLED);
    let mut pixels = vec![255_u8; (width * height * 3) as usize];
    {
        let area = BitMapBackend::with_buffer(&mut pixels, (width as u32, height as u32)).into_drawing_area();
        Canvas { area: &area, font: font()? }.figure(figure, &layout).map_err(PlotError::Draw)?;
        area.present().map_err(|e| PlotError::Draw(e.to_string()))?;
    }
    let pixels = halved(&pixels, width as usize);
    let failed = |message: String| PlotError::Write { path: path.to_path_buf(), message };
    let file = File::create(path).map_err(|e| failed(e.to_string()))?;
    let mut encoder = png::Encoder::new(BufWriter::new(file), width as u32 / 2, height as u32 / 2);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(|e| failed(e.to_string()))?;
    writer.write_image_data(&pixels).map_err(|e| failed(e.to_string()))?;
    writer.finish().map_err(|e| failed(e.to_string()))
}

/// Means of two by two pixels: thick lines are drawn without smoothing, and get it here.
fn halved(pixels: &[u8], width: usize) -> Vec<u8> {
    let stride = width * 3;
    let mut out = Vec::with_capacity(pixels.len() / 4);
    for rows in pixels.chunks_exact(2 * stride) {
        let (upper, lower) = rows.split_at(stride);
        for (a, b) in upper.chunks_exact(6).zip(lower.chunks_exact(6)) {
            for c in 0..3 {
                let four = [a[c], a[c + 3], b[c], b[c + 3]];
                out.push(if four == [a[c]; 4] { a[c] } else { mixed(four) });
            }
        }
    }
    out
}

/// The mean of four shades to the nearest multiple of eight, or white: an edge of few shades packs better, and no eye sees it.
fn mixed(four: [u8; 4]) -> u8 {
    let mean = four.map(u16::from).iter().sum::<u16>() / 4;
    ((mean + 4) / 8 * 8).min(255) as u8
}

/// Registers the font once; it comes with the program, so that no system font is needed.
fn font() -> Result<&'static str, PlotError> {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    let good = REGISTERED.get_or_init(|| {
        plotters::style::register_font(FONT, FontStyle::Normal, epaint_default_fonts::UBUNTU_LIGHT).is_ok()
    });
    if *good { Ok(FONT) } else { Err(PlotError::Draw("the built-in font cannot be read".into())) }
}

/// Where things stand, in pixels of a plain screen.
struct Layout {
    width: i32,
    height: i32,
    /// How many rows of the figure stand beside each other.
    abreast: usize,
}

impl Layout {
    fn new(figure: &Figure) -> Layout {
        let columns = figure.rows.iter().map(|r| r.panels.len()).max().unwrap_or(1);
        let abreast = if columns <= 1 && figure.rows.len() > 1 { 2 } else { 1 };
        let lines = figure.rows.len().div_ceil(abreast).max(1) as i32;
        let width = (2 * MARGIN + columns.max(abreast) as i32 * 380).clamp(1000, 2200);
        Layout { width, height: HEADER + lines * BLOCK + FOOTER, abreast }
    }
}

type Area<'a> = DrawingArea<BitMapBackend<'a>, plotters::coord::Shift>;

struct Canvas<'a, 'b> {
    area: &'a Area<'b>,
    font: &'static str,
}

impl Canvas<'_, '_> {
    fn figure(&self, figure: &Figure, layout: &Layout) -> Result<(), String> {
        self.area.fill(&WHITE).map_err(|e| e.to_string())?;
        let whole = layout.width - 2 * MARGIN;
        self.text(&self.fitted(&figure.title, 21, whole), (MARGIN, 22), 21, INK, HPos::Left)?;
        self.text(&self.fitted(&figure.subtitle, 13, whole), (MARGIN, 46), 13, MUTED, HPos::Left)?;
        let inner = layout.width - 2 * MARGIN + BLOCK_GAP;
        let block = inner / layout.abreast as i32;
        // One width for the labels of all scales: panels beneath each other line up.
        let ticks = figure.rows.iter().flat_map(|r| &r.y.ticks);
        let labels = ticks.map(|t| self.text_width(&t.1, 11)).max().unwrap_or(0) + 8;
        for (i, row) in figure.rows.iter().enumerate() {
            let x = MARGIN + (i % layout.abreast) as i32 * block;
            let y = HEADER + (i / layout.abreast) as i32 * BLOCK;
            self.row(row, (x, y), block - BLOCK_GAP, labels)?;
        }
        Ok(())
    }

    /// A row's title, legend and panels, from (x, y) on, `width` wide, `labels` of it for those of the scale.
    fn row(&self, row: &Row, (x, y): (i32, i32), width: i32, labels: i32) -> Result<(), String> {
        let title = self.fitted(&row.title, 15, width);
        self.text(&title, (x, y + 8), 15, INK, HPos::Left)?;
        let title_end = x + self.text_width(&title, 15) + 24;
        // A legend that does not fit beside the title gets a line of its own.
        let beside = title_end + self.legend_width(row) <= x + width;
        let (legend_y, legend_left, extra) = if beside { (y + 8, title_end, 0) } else { (y + 30, x, 20) };
        self.legend(row, x + width, legend_y, legend_left)?;
        let several = row.panels.iter().any(|p| !p.label.is_empty());
        let top = y + extra + if several { 44 } else { 26 };
        let bottom = y + BLOCK - 44;
        let count = row.panels.len().max(1) as i32;
        let panel = (width - labels - (count - 1) * PANEL_GAP) / count;
        for (i, p) in row.panels.iter().enumerate() {
            let left = x + labels + i as i32 * (panel + PANEL_GAP);
            let frame = Frame { left, right: left + panel, top, bottom };
            if several {
                let label = self.fitted(&p.label, 13, panel);
                self.text(&label, ((frame.left + frame.right) / 2, top - 11), 13, MUTED, HPos::Center)?;
            }
            self.grid(row, &frame, i == 0)?;
            // The first curve last: it is what the eye looks for, and it shall not be covered.
            for curve in p.curves.iter().rev() {
                self.curve(curve, row, &frame)?;
            }
        }
        Ok(())
    }

    fn grid(&self, row: &Row, f: &Frame, with_labels: bool) -> Result<(), String> {
        for (value, label) in &row.y.ticks {
            let y = f.y(row.y.place(*value));
            self.line(
                &[(f.left as f64, y), (f.right as f64, y)],
                if *value == 0.0 { AXIS } else { GRID },
                1,
            )?;
            if with_labels {
                self.text(label, (f.left - 6, y as i32), 11, MUTED, HPos::Right)?;
            }
        }
        let mut free_from = f.left - 40;
        for (value, label) in &row.x.ticks {
            let x = f.x(row.x.place(*value));
            self.line(&[(x, f.top as f64), (x, f.bottom as f64)], GRID, 1)?;
            self.line(&[(x, f.bottom as f64), (x, f.bottom as f64 + 4.0)], AXIS, 1)?;
            // In a narrow panel every other label has to do.
            let half = self.text_width(label, 11) / 2;
            if x as i32 - half >= free_from {
                self.text(label, (x as i32, f.bottom + 12), 11, MUTED, HPos::Center)?;
                free_from = x as i32 + half + 8;
            }
        }
        self.line(&[(f.left as f64, f.bottom as f64), (f.right as f64, f.bottom as f64)], AXIS, 1)?;
        self.text(&row.x_title, ((f.left + f.right) / 2, f.bottom + 27), 11, MUTED, HPos::Center)
    }

    fn curve(&self, curve: &super::Curve, row: &Row, f: &Frame) -> Result<(), String> {
        let columns = ((f.right - f.left) * 2) as usize;
        let points = curve.decimated(columns, row.x.from, row.x.until);
        for piece in points.split(|p| !p.1.is_finite()) {
            let line: Vec<(f64, f64)> = piece
                .iter()
                .map(|(t, v)| (f.x(row.x.place(*t).clamp(0.0, 1.0)), f.y(row.y.place(*v).clamp(0.0, 1.0))))
                .collect();
            if line.len() > 1 {
                self.curve_line(&line, colour(curve.colour))?;
            }
            // A point alone makes no line.
            for dot in line.iter().filter(|_| curve.dotted || line.len() == 1) {
                let dot = Circle::new(scaled(*dot), DOT, colour(curve.colour).filled());
                self.area.draw(&dot).map_err(|e| e.to_string())?;
            }
        }
        Ok(())
    }

    /// Names with strokes of their colours, ending at `right`; what does not fit right of `left` is counted.
    fn legend(&self, row: &Row, right: i32, y: i32, left: i32) -> Result<(), String> {
        if row.legend.len() < 2 {
            return Ok(());
        }
        let width = |name: &str| self.text_width(name, 12) + LEGEND_STROKE + LEGEND_GAP;
        // One must fit, and beside it how many are hidden.
        let room = right - left - LEGEND_STROKE - LEGEND_GAP - 60;
        let legend: Vec<(String, usize)> =
            row.legend.iter().map(|(name, index)| (self.fitted(name, 12, room), *index)).collect();
        let mut shown = legend.len();
        let total = |n: usize| legend[..n].iter().map(|(name, _)| width(name)).sum::<i32>();
        while shown > 1 && right - total(shown) - if shown < legend.len() { 60 } else { 0 } < left {
            shown -= 1;
        }
        let hidden = legend.len() - shown;
        let mut x = right - total(shown) + LEGEND_GAP - if hidden > 0 { 60 } else { 0 };
        for (name, index) in &legend[..shown] {
            self.line(&[(x as f64, y as f64), (x as f64 + 16.0, y as f64)], colour(*index), 3)?;
            self.text(name, (x + LEGEND_STROKE, y), 12, INK, HPos::Left)?;
            x += width(name);
        }
        if hidden > 0 {
            self.text(&format!("+ {hidden} more"), (right, y), 12, MUTED, HPos::Right)?;
        }
        Ok(())
    }

    /// How much room the whole legend takes; a row with one curve has none.
    fn legend_width(&self, row: &Row) -> i32 {
        let width = |name: &str| self.text_width(name, 12) + LEGEND_STROKE + LEGEND_GAP;
        if row.legend.len() < 2 { 0 } else { row.legend.iter().map(|(name, _)| width(name)).sum() }
    }

    /// A straight line `width` plain pixels wide.
    fn line(&self, points: &[(f64, f64)], colour: RGBColor, width: u32) -> Result<(), String> {
        let points: Vec<(i32, i32)> = points.iter().map(|p| scaled(*p)).collect();
        let style = colour.stroke_width(width * OVERSAMPLED as u32 / 2);
        self.area.draw(&PathElement::new(points, style)).map_err(|e| e.to_string())
    }

    /// A curve: segment by segment, with round joints, since mitred ones grow spikes where a line turns sharply.
    fn curve_line(&self, points: &[(f64, f64)], colour: RGBColor) -> Result<(), String> {
        let points: Vec<(i32, i32)> = points.iter().map(|p| scaled(*p)).collect();
        for pair in points.windows(2) {
            let segment = PathElement::new(pair.to_vec(), colour.stroke_width(CURVE_WIDTH));
            self.area.draw(&segment).map_err(|e| e.to_string())?;
        }
        for point in &points {
            let joint = Circle::new(*point, CURVE_WIDTH / 2 - 1, colour.filled());
            self.area.draw(&joint).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// `text` beside `at` (its middle in height), `size` plain pixels high.
    fn text(&self, text: &str, at: (i32, i32), size: i32, colour: RGBColor, h: HPos) -> Result<(), String> {
        let style = TextStyle::from((self.font, size * OVERSAMPLED).into_font())
            .color(&colour)
            .pos(Pos::new(h, VPos::Center));
        // The middle of a line of text lies above that of its letters, which have more below their tops than above.
        let at = scaled((f64::from(at.0), f64::from(at.1) + f64::from(size) * 0.14));
        self.area.draw(&Text::new(text.to_string(), at, style)).map_err(|e| e.to_string())
    }

    /// `text`, or as much of its beginning as is no wider than `room`.
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
        let style = TextStyle::from((self.font, size * OVERSAMPLED).into_font());
        // A text that cannot be measured gets a guess: half as wide as high, as Latin letters are.
        let guess = text.chars().count() as u32 * (size * OVERSAMPLED / 2) as u32;
        self.area.estimate_text_size(text, &style).map_or(guess, |s| s.0) as i32 / OVERSAMPLED
    }
}

struct Frame {
    left: i32,
    right: i32,
    top: i32,
    bottom: i32,
}

impl Frame {
    fn x(&self, part: f64) -> f64 {
        f64::from(self.left) + part * f64::from(self.right - self.left)
    }

    fn y(&self, part: f64) -> f64 {
        f64::from(self.bottom) - part * f64::from(self.bottom - self.top)
    }
}

fn scaled((x, y): (f64, f64)) -> (i32, i32) {
    let scale = f64::from(OVERSAMPLED);
    ((x * scale).round() as i32, (y * scale).round() as i32)
}

fn colour(index: usize) -> RGBColor {
    let (r, g, b) = PALETTE[index % PALETTE.len()];
    RGBColor(r, g, b)
}

/// Drawn at four times a plain screen's resolution and halved: twice remains.
const OVERSAMPLED: i32 = 4;
const FONT: &str = "tollway";
const INK: RGBColor = RGBColor(0x1c, 0x22, 0x2b);
const MUTED: RGBColor = RGBColor(0x5b, 0x65, 0x73);
const GRID: RGBColor = RGBColor(0xe4, 0xe7, 0xec);
const AXIS: RGBColor = RGBColor(0x9a, 0xa3, 0xaf);
const MARGIN: i32 = 28;
const HEADER: i32 = 72;
const FOOTER: i32 = 4;
const BLOCK: i32 = 236;
const BLOCK_GAP: i32 = 36;
const PANEL_GAP: i32 = 22;
/// From a legend's stroke to its name, and from there to the next stroke.
const LEGEND_STROKE: i32 = 22;
const LEGEND_GAP: i32 = 14;
/// In drawn pixels: one and a half of a plain screen's.
const CURVE_WIDTH: u32 = 6;
/// The radius of a marked point, likewise.
const DOT: i32 = 11;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::Row;

    /// How many pixels of `part` (of the width) are not white.
    fn inked(figure: &Figure, name: &str, part: std::ops::Range<f64>) -> usize {
        let path = std::env::temp_dir().join(format!("tollway-png-{name}-{}.png", std::process::id()));
        write_png(figure, &path).expect("a picture");
        let file = std::io::BufReader::new(File::open(&path).expect("a picture"));
        let mut reader = png::Decoder::new(file).read_info().expect("a picture");
        let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
        let width = reader.next_frame(&mut pixels).expect("pixels").width as usize;
        let _ = std::fs::remove_file(path);
        let within = |i: usize| part.contains(&((i % width) as f64 / width as f64));
        pixels.chunks_exact(3).enumerate().filter(|(i, pixel)| within(*i) && pixel != &[255; 3]).count()
    }

    fn figure(title: &str, points: Vec<(f64, f64)>) -> Figure {
        let lines = vec![("one".to_owned(), points), ("f".repeat(300), vec![(0.0, 1.0), (1.0, 1.0)])];
        let row = Row::of_lines("Rate", lines, 1.0);
        Figure { title: title.into(), subtitle: String::new(), rows: vec![row] }
    }

    #[test]
    fn a_point_alone_is_seen_and_no_text_leaves_its_place() {
        let title = "a title ".repeat(60);
        let (nothing, point) = (figure(&title, vec![]), figure(&title, vec![(0.5, 0.5)]));
        let [before, after] = [&nothing, &point].map(|figure| inked(figure, "alone", 0.0..1.0));
        assert!(after > before, "{before} {after}");
        // The margins, but for the middle of the scale's labels.
        for margin in [0.0..0.02, 0.985..1.0] {
            assert_eq!(inked(&point, "margin", margin), 0);
        }
    }
}
