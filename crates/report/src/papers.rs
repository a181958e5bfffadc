//! The experiments built into the crate, and folders of other experiments.

use std::io;
use std::path::Path;

/// The path of the built-in experiments' folder. No real folder is likely to have this name.
pub const BUILT_IN: &str = "(built in)";

/// The built-in files, by their path under `papers`.
static FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/papers.rs"));

/// True if `path` lies under [`BUILT_IN`].
pub(crate) fn is_built_in(path: &Path) -> bool {
    path.starts_with(BUILT_IN)
}

/// The text of a file, built in or not.
///
/// # Errors
/// The file does not exist, or is not UTF-8.
pub fn read(path: &Path) -> io::Result<String> {
    let Ok(inner) = path.strip_prefix(BUILT_IN) else { return std::fs::read_to_string(path) };
    let file = FILES.iter().find(|(name, _)| Path::new(name) == inner);
    file.map(|(_, text)| (*text).to_owned()).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// The built-in experiments: `PAPER` and `FIGURE` of each file `PAPER/FIGURE.toml`, sorted.
pub(crate) fn experiments() -> impl Iterator<Item = (&'static str, &'static str)> {
    FILES.iter().filter_map(|(name, _)| name.strip_suffix(".toml")?.split_once('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_in_is_what_lies_in_the_repository() {
        let papers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../papers");
        assert!(experiments().count() > 60);
        for (name, text) in FILES {
            assert_eq!(std::fs::read_to_string(papers.join(name)).unwrap(), *text, "{name}");
            assert_eq!(read(&Path::new(BUILT_IN).join(name)).unwrap(), *text);
        }
        assert_eq!(read(&Path::new(BUILT_IN).join("x.toml")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
