//! Files that a scenario names: read once, and kept as sources for places of mistakes.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{At, BESIDE, Mistakes};
use crate::import::ImportError;

/// The files read so far.
#[derive(Debug)]
pub(crate) struct Files {
    folder: PathBuf,
    /// Index of the first file's text among the sources.
    first: u32,
    read: Vec<(PathBuf, Result<Arc<str>, String>)>,
    /// Remarks for the user on the imported files.
    notes: Vec<String>,
    /// Keys without effect, and the number of variants in which they have none.
    idle: Vec<(String, usize)>,
}

impl Files {
    /// Returns an empty set of files for a scenario in `folder` with `sources` texts.
    pub(crate) fn new(folder: &Path, sources: usize) -> Files {
        Files {
            folder: folder.to_owned(),
            first: sources as u32,
            read: Vec::new(),
            notes: Vec::new(),
            idle: Vec::new(),
        }
    }

    /// Returns true if the file `name` exists.
    pub(crate) fn has_file(&self, name: &str) -> bool {
        self.folder.join(name).is_file()
    }

    /// Returns the text of the file `name`, which `at` names, and its index among the sources; or
    /// adds a mistake.
    pub(crate) fn text(&mut self, name: &str, at: At, mistakes: &mut Mistakes) -> Option<(u32, Arc<str>)> {
        let path = self.folder.join(name);
        let known = self.read.iter().position(|(known, _)| *known == path);
        let i = known.unwrap_or_else(|| {
            let text = match read_text(&path) {
                Ok(text) => Ok(Arc::from(text)),
                Err(error) => Err(error.to_string()),
            };
            self.read.push((path, text));
            self.read.len() - 1
        });
        let (path, text) = &self.read[i];
        match text {
            Ok(text) => Some((self.first + i as u32, text.clone())),
            Err(why) => {
                let message = format!("`{}` cannot be read: {why}", path.display());
                mistakes.add(at, message, "this file").help(BESIDE);
                None
            }
        }
    }

    /// Returns the result of `read` for the file `name`, which `at` names; or adds a mistake at its
    /// place in that file.
    pub(crate) fn import<T>(
        &mut self,
        name: &str,
        at: At,
        mistakes: &mut Mistakes,
        read: impl FnOnce(&str) -> Result<T, ImportError>,
    ) -> Option<T> {
        let (source, text) = self.text(name, at, mistakes)?;
        match read(&text) {
            Ok(read) => Some(read),
            Err(error) => {
                mistakes.add(place(source, &error.span), error.message, "here").help(error.help);
                None
            }
        }
    }

    /// Returns true if a place lies in one of these files.
    pub(crate) fn has(&self, at: At) -> bool {
        at.source >= self.first
    }

    /// Adds a remark for the user, once.
    pub(crate) fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Counts a variant in which a key has no effect.
    pub(crate) fn note_idle(&mut self, note: String) {
        match self.idle.iter_mut().find(|(known, _)| *known == note) {
            Some((_, variants)) => *variants += 1,
            None => self.idle.push((note, 1)),
        }
    }

    /// Returns the texts with their names, and the remarks. A key without effect is among them only
    /// if it has none in all `variants` variants.
    pub(crate) fn finish(mut self, variants: usize) -> (Vec<(String, Arc<str>)>, Vec<String>) {
        let idle = self.idle.into_iter().filter(|(_, idle_in)| *idle_in == variants);
        self.notes.extend(idle.map(|(note, _)| note));
        let texts = self.read.into_iter();
        let texts = texts.map(|(path, text)| (path.display().to_string(), text.unwrap_or_default()));
        (texts.collect(), self.notes)
    }
}

/// Returns the text of a regular file, without a byte order mark. The error names another file
/// type, and the remedy.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    // Opening a FIFO waits for its writer.
    refuse_special(&std::fs::metadata(path)?)?;
    text_of(&File::open(path)?)
}

fn no_text(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Refuses a file that may have no end.
fn refuse_special(about: &Metadata) -> io::Result<()> {
    if !about.is_file() && !about.is_dir() {
        return Err(no_text("it is a device, FIFO or socket; name a regular file".to_owned()));
    }
    Ok(())
}

/// Returns the text of an open file.
pub(crate) fn text_of(file: &File) -> io::Result<String> {
    refuse_special(&file.metadata()?)?;
    let wrong = |what: String| no_text(format!("{what}; save it as UTF-8"));
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(no_text("it is larger than 1 GB".to_owned()));
    }
    // UTF-16: a byte order mark, or an ASCII letter first, whose other byte is zero.
    if let [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, 1..0x80, ..] | [1..0x80, 0, ..] = bytes[..] {
        return Err(wrong("it is UTF-16".to_owned()));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let (valid, bytes) = (error.utf8_error().valid_up_to(), error.as_bytes());
        let line = 1 + bytes[..valid].iter().filter(|&&byte| byte == b'\n').count();
        wrong(format!("line {line} is not UTF-8 (byte {:02X})", bytes[valid]))
    })?;
    Ok(match text.strip_prefix('\u{feff}') {
        Some(marked) => marked.to_owned(),
        None => text,
    })
}

/// A place in a source.
pub(crate) fn place(source: u32, span: &Range<usize>) -> At {
    At { source, start: span.start as u32, end: span.end as u32 }
}

/// Largest size of a file; places have 32 bits.
const MOST_BYTES: u64 = 1_000_000_000;
