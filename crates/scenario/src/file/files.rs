//! Files that a scenario names: found beside it, read once, and kept as sources that mistakes can point into.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{At, BESIDE, Mistakes};
use crate::import::ImportError;

/// Everything read so far.
#[derive(Debug)]
pub(crate) struct Files {
    folder: PathBuf,
    /// Number of the first file's text among the sources.
    first: u32,
    read: Vec<(PathBuf, Result<Arc<str>, String>)>,
    /// What was made of them that a reader should know.
    notes: Vec<String>,
    /// What is without effect in variants, and in how many of them.
    idle: Vec<(String, usize)>,
}

impl Files {
    /// Of a scenario in `folder` that is made of `sources` texts itself.
    pub(crate) fn new(folder: &Path, sources: usize) -> Files {
        Files {
            folder: folder.to_owned(),
            first: sources as u32,
            read: Vec::new(),
            notes: Vec::new(),
            idle: Vec::new(),
        }
    }

    /// Whether there is a file `name`.
    pub(crate) fn has_file(&self, name: &str) -> bool {
        self.folder.join(name).is_file()
    }

    /// The text of the file `name`, which `at` names, and its number among the sources; or a mistake.
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

    /// What `read` makes of the file `name`, which `at` names; or a mistake, in that file.
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

    /// Whether a place lies in a file that was read, not in the scenario itself.
    pub(crate) fn has(&self, at: At) -> bool {
        at.source >= self.first
    }

    /// Notes something that a reader should know, once.
    pub(crate) fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Notes what has no effect in a variant: once in each.
    pub(crate) fn note_idle(&mut self, note: String) {
        match self.idle.iter_mut().find(|(known, _)| *known == note) {
            Some((_, variants)) => *variants += 1,
            None => self.idle.push((note, 1)),
        }
    }

    /// The texts, with their names, and the notes: of what has no effect only if it has none in any of so many variants.
    pub(crate) fn finish(mut self, variants: usize) -> (Vec<(String, Arc<str>)>, Vec<String>) {
        let idle = self.idle.into_iter().filter(|(_, idle_in)| *idle_in == variants);
        self.notes.extend(idle.map(|(note, _)| note));
        let texts = self.read.into_iter();
        let texts = texts.map(|(path, text)| (path.display().to_string(), text.unwrap_or_default()));
        (texts.collect(), self.notes)
    }
}

/// The text of a regular file, without a byte order mark. The error names what else it is, and the
/// remedy.
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

/// The same of a file that is open.
pub(crate) fn text_of(file: &File) -> io::Result<String> {
    refuse_special(&file.metadata()?)?;
    let wrong = |what: String| no_text(format!("{what}; save it as UTF-8"));
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(no_text("it is larger than 1 GB".to_owned()));
    }
    // Marked, or beginning with a letter of ASCII's, whose other byte is zero.
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

/// Places are 32 bits, and no such file is larger.
const MOST_BYTES: u64 = 1_000_000_000;
