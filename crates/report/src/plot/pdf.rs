//! Figures as PDF files.

use std::collections::BTreeMap;

use miniz_oxide::deflate::compress_to_vec_zlib;
use pdf_writer::types::{CidFontType, FontFlags, LineCapStyle, LineJoinStyle, SystemInfo, UnicodeCmap};
use pdf_writer::{Content, Filter, Finish, Name, Pdf, Rect, Ref, Str, TextStr};
use subsetter::{GlyphRemapper, subset};

use super::Figure;
use super::canvas::{Colour, Layout, Side, Surface, draw};
use super::font::{self, Face};
use super::svg::{BAND, BASELINE};

/// The figure as a page of its size, with the glyphs of the built-in font that it uses.
pub(super) fn to_pdf(figure: &Figure) -> Result<Vec<u8>, String> {
    let layout = Layout::new(figure);
    let (width, height) = (layout.width as f32 * POINT, layout.height as f32 * POINT);
    let mut page = Page {
        content: Content::new(),
        face: Face::new()?,
        glyphs: GlyphRemapper::new(),
        letters: BTreeMap::new(),
    };
    // Coordinates in pixels, from the upper left corner.
    page.content.transform([POINT, 0.0, 0.0, -POINT, 0.0, height]);
    page.content.set_line_join(LineJoinStyle::RoundJoin).set_line_cap(LineCapStyle::ButtCap);
    draw(&mut page, figure, &layout)?;

    let mut pdf = Pdf::new();
    let [catalog, pages, sheet, body, shade, info] = [1, 2, 3, 4, 5, 6].map(Ref::new);
    pdf.catalog(catalog).pages(pages);
    pdf.pages(pages).kids([sheet]).count(1);
    pdf.document_info(info).title(TextStr(&figure.title)).creator(TextStr("Tollway"));
    pdf.ext_graphics(shade).non_stroking_alpha(BAND as f32);
    let mut written = pdf.page(sheet);
    written.parent(pages).contents(body).media_box(Rect::new(0.0, 0.0, width, height));
    let mut resources = written.resources();
    resources.fonts().pair(FONT, Ref::new(FIRST_OF_FONT));
    resources.ext_g_states().pair(SHADE, shade);
    resources.finish();
    written.finish();
    page.write_font(&mut pdf)?;
    let content = compress_to_vec_zlib(page.content.finish().as_slice(), PACKED);
    pdf.stream(body, &content).filter(Filter::FlateDecode);
    Ok(pdf.finish())
}

struct Page {
    content: Content,
    face: Face,
    /// The glyphs used, with their numbers in the file.
    glyphs: GlyphRemapper,
    /// The letter of each glyph, by its number in the file.
    letters: BTreeMap<u16, char>,
}

impl Page {
    /// Writes the glyphs used, their widths, and their letters, which make the text searchable.
    fn write_font(&self, pdf: &mut Pdf) -> Result<(), String> {
        let [whole, glyphs, about, file, names] = [0, 1, 2, 3, 4].map(|i| Ref::new(FIRST_OF_FONT + i));
        let system = SystemInfo { registry: Str(b"Adobe"), ordering: Str(b"Identity"), supplement: 0 };
        pdf.type0_font(whole)
            .base_font(NAME)
            .encoding_predefined(Name(b"Identity-H"))
            .descendant_font(glyphs)
            .to_unicode(names);
        let mut cid = pdf.cid_font(glyphs);
        cid.subtype(CidFontType::Type2).base_font(NAME).system_info(system).font_descriptor(about);
        cid.cid_to_gid_map_predefined(Name(b"Identity"));
        let mut widths = cid.widths();
        for (glyph, letter) in &self.letters {
            widths.consecutive(*glyph, [self.face.advance(*letter) as f32 * 1000.0]);
        }
        widths.finish();
        cid.finish();
        let (above, beneath) = self.face.reach();
        let (above, beneath) = (above as f32 * 1000.0, beneath as f32 * 1000.0);
        pdf.font_descriptor(about)
            .name(NAME)
            .flags(FontFlags::SYMBOLIC)
            .bbox(Rect::new(0.0, beneath, 1000.0, above))
            .italic_angle(0.0)
            .ascent(above)
            .descent(beneath)
            .cap_height(above)
            .stem_v(60.0)
            .font_file2(file);
        let letters =
            subset(font::BYTES, 0, &self.glyphs).map_err(|error| format!("the built-in font: {error}"))?;
        let packed = compress_to_vec_zlib(&letters, PACKED);
        pdf.stream(file, &packed).filter(Filter::FlateDecode).pair(Name(b"Length1"), letters.len() as i32);
        let mut cmap = UnicodeCmap::<u16>::new(Name(b"Letters"), system);
        self.letters.iter().for_each(|(glyph, letter)| cmap.pair(*glyph, *letter));
        pdf.cmap(names, cmap.finish().as_slice());
        Ok(())
    }

    fn path(&mut self, points: &[(f64, f64)]) {
        for (i, (x, y)) in points.iter().map(|p| (p.0 as f32, p.1 as f32)).enumerate() {
            if i == 0 {
                self.content.move_to(x, y)
            } else {
                self.content.line_to(x, y)
            };
        }
    }

    fn fill(&mut self, (r, g, b): Colour) {
        let [r, g, b] = [r, g, b].map(part);
        self.content.set_fill_rgb(r, g, b);
    }
}

impl Surface for Page {
    fn line(&mut self, points: &[(f64, f64)], (r, g, b): Colour, width: f64) -> Result<(), String> {
        let [r, g, b] = [r, g, b].map(part);
        self.content.set_stroke_rgb(r, g, b).set_line_width(width as f32);
        self.path(points);
        self.content.stroke();
        Ok(())
    }

    fn area(&mut self, corners: &[(f64, f64)], colour: Colour) -> Result<(), String> {
        self.content.save_state();
        self.content.set_parameters(SHADE);
        self.fill(colour);
        self.path(corners);
        self.content.fill_nonzero();
        self.content.restore_state();
        Ok(())
    }

    fn dot(&mut self, (x, y): (f64, f64), radius: f64, colour: Colour) -> Result<(), String> {
        self.fill(colour);
        let (x, y, r) = (x as f32, y as f32, radius as f32);
        // Four Bézier curves, each a quarter of the circle with a relative error of 1/4000.
        let c = 0.5523 * r;
        self.content.move_to(x + r, y);
        self.content.cubic_to(x + r, y + c, x + c, y + r, x, y + r);
        self.content.cubic_to(x - c, y + r, x - r, y + c, x - r, y);
        self.content.cubic_to(x - r, y - c, x - c, y - r, x, y - r);
        self.content.cubic_to(x + c, y - r, x + r, y - c, x + r, y);
        self.content.fill_nonzero();
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
        let before = match side {
            Side::Left => 0.0,
            Side::Middle => 0.5,
            Side::Right => 1.0,
        };
        let x = x - before * self.face.width(text, size);
        let mut glyphs = Vec::new();
        for letter in text.chars() {
            let glyph = self.glyphs.remap(self.face.glyph(letter));
            self.letters.entry(glyph).or_insert(letter);
            glyphs.extend(glyph.to_be_bytes());
        }
        self.fill(colour);
        self.content.begin_text().set_font(FONT, size as f32);
        self.content.set_text_matrix([1.0, 0.0, 0.0, -1.0, x as f32, (y + BASELINE * size) as f32]);
        self.content.show(Str(&glyphs)).end_text();
        Ok(())
    }
}

fn part(colour: u8) -> f32 {
    f32::from(colour) / 255.0
}

/// A pixel of a standard screen (96 per inch), in points of 1/72 inch.
const POINT: f32 = 0.75;
const FONT: Name<'static> = Name(b"F");
const SHADE: Name<'static> = Name(b"S");
/// The font's name, with the prefix of six letters for a subset.
const NAME: Name<'static> = Name(b"TOLLWY+Ubuntu-Light");
/// The number of the first of the font's five objects.
const FIRST_OF_FONT: i32 = 7;
/// Compression level of streams.
const PACKED: u8 = 6;
