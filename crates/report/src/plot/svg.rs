//! Figures as SVG files.

use std::fmt::Write;

use super::canvas::{Colour, Layout, Side, Surface, draw};
use super::font::{FAMILY, Face};
use super::{Figure, font};
use crate::text::escape;

/// The figure as SVG. Text remains text, in the built-in font if the reader has it, and with its
/// width in any other font.
pub(super) fn to_svg(figure: &Figure) -> Result<String, String> {
    let layout = Layout::new(figure);
    let (width, height) = (layout.width, layout.height);
    let mut svg = Svg { text: String::new(), face: Face::new()? };
    draw(&mut svg, figure, &layout)?;
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"{FAMILY}, 'Helvetica Neue', Arial, sans-serif\" font-weight=\"300\">\n\
         <title>{}</title>\n<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n{}</svg>\n",
        escape(&figure.title),
        svg.text
    ))
}

struct Svg {
    text: String,
    face: font::Face,
}

impl Svg {
    fn points(&mut self, points: &[(f64, f64)]) {
        for (x, y) in points {
            let _ = write!(self.text, "{x:.1},{y:.1} ");
        }
    }
}

impl Surface for Svg {
    fn line(&mut self, points: &[(f64, f64)], colour: Colour, width: f64) -> Result<(), String> {
        let _ = write!(
            self.text,
            "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\" stroke-linejoin=\"round\" points=\"",
            hex(colour)
        );
        self.points(points);
        self.text += "\"/>\n";
        Ok(())
    }

    fn area(&mut self, corners: &[(f64, f64)], colour: Colour) -> Result<(), String> {
        let _ = write!(self.text, "<polygon fill=\"{}\" fill-opacity=\"{BAND}\" points=\"", hex(colour));
        self.points(corners);
        self.text += "\"/>\n";
        Ok(())
    }

    fn dot(&mut self, (x, y): (f64, f64), radius: f64, colour: Colour) -> Result<(), String> {
        let _ = writeln!(
            self.text,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{}\"/>",
            hex(colour)
        );
        Ok(())
    }

    fn text(
        &mut self,
        text: &str,
        (x, y): (f64, f64),
        size: f64,
        colour: Colour,
        side: Side,
    ) -> Result<(), String> {
        let anchor = match side {
            Side::Left => "",
            Side::Middle => " text-anchor=\"middle\"",
            Side::Right => " text-anchor=\"end\"",
        };
        let _ = writeln!(
            self.text,
            "<text x=\"{x:.1}\" y=\"{:.1}\" font-size=\"{size}\" fill=\"{}\"{anchor} textLength=\"{:.1}\">{}</text>",
            y + BASELINE * size,
            hex(colour),
            self.face.width(text, size),
            escape(text)
        );
        Ok(())
    }
}

fn hex((r, g, b): Colour) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// The opacity of a band.
pub(super) const BAND: f64 = 0.2;
/// The distance from the middle of a line of text down to its baseline, as a fraction of the font
/// size.
pub(super) const BASELINE: f64 = 0.35;
