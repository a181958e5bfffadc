//! The built-in font, which makes system fonts unnecessary.

use ab_glyph::{Font, FontRef};

/// The font, with the measures of its letters.
pub(super) struct Face(FontRef<'static>);

impl Face {
    pub(super) fn new() -> Result<Face, String> {
        FontRef::try_from_slice(BYTES).map(Face).map_err(|_| "the built-in font cannot be read".into())
    }

    /// The width of `text` at the font size `size`.
    pub(super) fn width(&self, text: &str, size: f64) -> f64 {
        text.chars().map(|c| self.advance(c) * size).sum()
    }

    /// The width of a letter, as a fraction of the font size.
    pub(super) fn advance(&self, letter: char) -> f64 {
        f64::from(self.0.h_advance_unscaled(self.0.glyph_id(letter))) / self.units()
    }

    /// The index of a letter's glyph; 0 if the font lacks it.
    pub(super) fn glyph(&self, letter: char) -> u16 {
        self.0.glyph_id(letter).0
    }

    /// The ascent and the (negative) descent, as fractions of the font size.
    pub(super) fn reach(&self) -> (f64, f64) {
        let part = |units: f32| f64::from(units) / self.units();
        (part(self.0.ascent_unscaled()), part(self.0.descent_unscaled()))
    }

    fn units(&self) -> f64 {
        f64::from(self.0.units_per_em().unwrap_or(1000.0))
    }
}

/// The font file.
pub(super) const BYTES: &[u8] = epaint_default_fonts::UBUNTU_LIGHT;
/// The font family, for readers that search their system for it.
pub(super) const FAMILY: &str = "Ubuntu";
