//! The font that comes with the program, so that no system font is needed.

use ab_glyph::{Font, FontRef};

/// The font, and the measures of its letters.
pub(super) struct Face(FontRef<'static>);

impl Face {
    pub(super) fn new() -> Result<Face, String> {
        FontRef::try_from_slice(BYTES).map(Face).map_err(|_| "the built-in font cannot be read".into())
    }

    /// The width of `text` in letters `size` high.
    pub(super) fn width(&self, text: &str, size: f64) -> f64 {
        text.chars().map(|c| self.advance(c) * size).sum()
    }

    /// The width of a letter, in units of its size.
    pub(super) fn advance(&self, letter: char) -> f64 {
        f64::from(self.0.h_advance_unscaled(self.0.glyph_id(letter))) / self.units()
    }

    /// The number of a letter's glyph; zero if the font has none.
    pub(super) fn glyph(&self, letter: char) -> u16 {
        self.0.glyph_id(letter).0
    }

    /// How far letters reach above and (below zero) beneath their line, in units of their size.
    pub(super) fn reach(&self) -> (f64, f64) {
        let part = |units: f32| f64::from(units) / self.units();
        (part(self.0.ascent_unscaled()), part(self.0.descent_unscaled()))
    }

    fn units(&self) -> f64 {
        f64::from(self.0.units_per_em().unwrap_or(1000.0))
    }
}

/// The file.
pub(super) const BYTES: &[u8] = epaint_default_fonts::UBUNTU_LIGHT;
/// Its family, for readers that look for it on their system.
pub(super) const FAMILY: &str = "Ubuntu";
