//! Errors of configurations.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode};

/// The reason a configuration cannot be used.
#[derive(Debug)]
pub enum ConfigError {
    /// The file cannot be read.
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// A mistake in the text.
    Mistake(Box<Mistake>),
}

/// A mistake and its place.
#[derive(Debug)]
pub struct Mistake {
    text: NamedSource<Arc<str>>,
    span: std::ops::Range<usize>,
    message: String,
    help: Option<String>,
}

/// Builds mistakes in one text.
pub(crate) struct SourceText<'t> {
    pub(crate) name: &'t str,
    pub(crate) text: &'t str,
}

impl SourceText<'_> {
    pub(crate) fn mistake(
        &self,
        span: std::ops::Range<usize>,
        message: String,
        help: Option<&str>,
    ) -> ConfigError {
        ConfigError::Mistake(Box::new(Mistake {
            text: NamedSource::new(self.name, Arc::from(self.text)),
            span,
            message,
            help: help.map(str::to_owned),
        }))
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Unreadable { path, error } => write!(f, "cannot read `{}`: {error}", path.display()),
            ConfigError::Mistake(mistake) => f.write_str(&mistake.message),
        }
    }
}

impl std::error::Error for ConfigError {}

impl Diagnostic for ConfigError {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        match self {
            ConfigError::Unreadable { .. } => Some(Box::new("give a file that this user may read")),
            ConfigError::Mistake(mistake) => mistake.help.as_ref().map(|help| Box::new(help) as _),
        }
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        match self {
            ConfigError::Unreadable { .. } => None,
            ConfigError::Mistake(mistake) => Some(&mistake.text),
        }
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        match self {
            ConfigError::Mistake(mistake) => {
                let label = LabeledSpan::new_with_span(Some("here".into()), mistake.span.clone());
                Some(Box::new(std::iter::once(label)))
            }
            ConfigError::Unreadable { .. } => None,
        }
    }
}
