//! Errors of figures.

use std::path::PathBuf;

use super::Picture;

/// An error in drawing a figure.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum PlotError {
    /// The file's extension names no format.
    #[error("the extension of {} is not a picture's", path.display())]
    #[diagnostic(help("there are {}", Picture::ALL.map(|p| format!("`.{}`", p.ending())).join(", ")))]
    Ending {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be written.
    #[error("cannot write {}: {message}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's message.
        message: String,
    },
    /// The figure has no such row.
    #[error("there is no row {row} in the figure `{figure}`")]
    #[diagnostic(help("its rows have the numbers 1 to {rows}, from left to right and from top to bottom"))]
    Row {
        /// The row's number.
        row: usize,
        /// The figure's title.
        figure: String,
        /// The number of rows.
        rows: usize,
    },
    /// The rows do not fit.
    #[error("a picture of {}x{} is too small for its rows", size.0, size.1)]
    #[diagnostic(help("they need at least {width}x{height}; `--picture-rows` chooses fewer"))]
    Small {
        /// The wanted width and height.
        size: (u32, u32),
        /// The least width.
        width: u32,
        /// The least height.
        height: u32,
    },
    /// The drawing library failed.
    #[error("cannot draw the figure: {0}")]
    Draw(String),
}
