//! Figures as PNG files.

use std::sync::OnceLock;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::canvas::{Colour, Layout, Side, Surface, draw};
use super::svg::BAND;
use super::{Figure, font};

/// The figure as PNG, at twice the resolution of a standard screen.
pub(super) fn to_png(figure: &Figure) -> Result<Vec<u8>, String> {
    let layout = Layout::new(figure);
    let (width, height) = (layout.width * OVERSAMPLED, layout.height * OVERSAMPLED);
    let mut pixels = vec![255_u8; (width * height * 3) as usize];
    {
        let area = BitMapBackend::with_buffer(&mut pixels, (width as u32, height as u32)).into_drawing_area();
        draw(&mut Bitmap { area: &area, font: font()? }, figure, &layout)?;
        area.present().map_err(|e| e.to_string())?;
    }
    let pixels = halved(&pixels, width as usize);
    let mut png = Vec::new();
    let mut encoder = png::Encoder::new(&mut png, width as u32 / 2, height as u32 / 2);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(|e| e.to_string())?;
    writer.write_image_data(&pixels).map_err(|e| e.to_string())?;
    writer.finish().map_err(|e| e.to_string())?;
    Ok(png)
}

/// The means of two by two pixels, which smooth thick lines.
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

/// The mean of four shades, rounded to a multiple of eight or white. Fewer shades compress better,
/// without visible difference.
fn mixed(four: [u8; 4]) -> u8 {
    let mean = four.map(u16::from).iter().sum::<u16>() / 4;
    ((mean + 4) / 8 * 8).min(255) as u8
}

/// Registers the built-in font once.
fn font() -> Result<&'static str, String> {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    let good = REGISTERED
        .get_or_init(|| plotters::style::register_font(font::FAMILY, FontStyle::Normal, font::BYTES).is_ok());
    if *good { Ok(font::FAMILY) } else { Err("the built-in font cannot be read".into()) }
}

struct Bitmap<'a, 'b> {
    area: &'a DrawingArea<BitMapBackend<'b>, plotters::coord::Shift>,
    font: &'static str,
}

impl Surface for Bitmap<'_, '_> {
    /// Draws separate segments with round joints, since mitred joints make spikes at sharp turns.
    fn line(&mut self, points: &[(f64, f64)], colour: Colour, width: f64) -> Result<(), String> {
        let (points, ink) = (scaled(points), rgb(colour));
        let width = libm::round(width * f64::from(OVERSAMPLED)) as u32;
        for pair in points.windows(2) {
            let segment = PathElement::new(pair.to_vec(), ink.stroke_width(width));
            self.area.draw(&segment).map_err(|e| e.to_string())?;
        }
        let inner = points.len().saturating_sub(1);
        for point in points.get(1..inner).unwrap_or_default().iter().filter(|_| width > 3) {
            let joint = Circle::new(*point, width / 2 - 1, ink.filled());
            self.area.draw(&joint).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    fn area(&mut self, corners: &[(f64, f64)], colour: Colour) -> Result<(), String> {
        let shade = rgb(colour).mix(BAND).filled();
        self.area.draw(&Polygon::new(scaled(corners), shade)).map_err(|e| e.to_string())
    }

    fn dot(&mut self, middle: (f64, f64), radius: f64, colour: Colour) -> Result<(), String> {
        let radius = libm::round(radius * f64::from(OVERSAMPLED)) as i32;
        let dot = Circle::new(scaled(&[middle])[0], radius, rgb(colour).filled());
        self.area.draw(&dot).map_err(|e| e.to_string())
    }

    fn text(
        &mut self,
        text: &str,
        (x, y): (f64, f64),
        size: f64,
        colour: Colour,
        side: Side,
    ) -> Result<(), String> {
        let side = match side {
            Side::Left => HPos::Left,
            Side::Middle => HPos::Center,
            Side::Right => HPos::Right,
        };
        let ink = rgb(colour);
        let style = TextStyle::from((self.font, size * f64::from(OVERSAMPLED)).into_font())
            .color(&ink)
            .pos(Pos::new(side, VPos::Center));
        // Vertical centring refers to the line, whose middle lies above that of its letters.
        let at = scaled(&[(x, y + 0.14 * size)])[0];
        self.area.draw(&Text::new(text.to_string(), at, style)).map_err(|e| e.to_string())
    }
}

fn scaled(points: &[(f64, f64)]) -> Vec<(i32, i32)> {
    let scale = f64::from(OVERSAMPLED);
    points.iter().map(|(x, y)| (libm::round(x * scale) as i32, libm::round(y * scale) as i32)).collect()
}

fn rgb((r, g, b): Colour) -> RGBColor {
    RGBColor(r, g, b)
}

/// Resolution of the drawing, relative to a standard screen. Halving leaves twice.
const OVERSAMPLED: i32 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::Row;

    /// Number of pixels in `part` (of the width) that are not white.
    fn inked(figure: &Figure, part: std::ops::Range<f64>) -> usize {
        let png = to_png(figure).expect("a picture");
        let mut reader = png::Decoder::new(std::io::Cursor::new(png)).read_info().expect("a picture");
        let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
        let width = reader.next_frame(&mut pixels).expect("pixels").width as usize;
        let within = |i: usize| part.contains(&((i % width) as f64 / width as f64));
        pixels.chunks_exact(3).enumerate().filter(|(i, pixel)| within(*i) && pixel != &[255; 3]).count()
    }

    fn figure(title: &str, points: Vec<(f64, f64)>) -> Figure {
        let lines = vec![("one".to_owned(), points), ("f".repeat(300), vec![(0.0, 1.0), (1.0, 1.0)])];
        let row = Row::of_lines("Rate", lines, 1.0);
        Figure { title: title.into(), rows: vec![row], ..Figure::default() }
    }

    #[test]
    fn a_point_alone_is_seen_and_no_text_leaves_its_place() {
        let title = "a title ".repeat(60);
        let (nothing, point) = (figure(&title, vec![]), figure(&title, vec![(0.5, 0.5)]));
        let [before, after] = [&nothing, &point].map(|figure| inked(figure, 0.0..1.0));
        assert!(after > before, "{before} {after}");
        // The margins, except the middle of the axis labels.
        for margin in [0.0..0.02, 0.985..1.0] {
            assert_eq!(inked(&point, margin), 0);
        }
    }
}
