//! Lists the files under `papers` that the crate embeds, as `(name, text)`.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

fn main() -> io::Result<()> {
    let papers = Path::new(env!("CARGO_MANIFEST_DIR")).join("papers").canonicalize()?;
    println!("cargo::rerun-if-changed={}", papers.display());
    let mut paths = Vec::new();
    collect(&papers, &mut paths)?;
    paths.sort();
    let mut list = String::from("&[\n");
    for path in paths {
        // Names contain slashes on every system.
        let parts = path.strip_prefix(&papers).unwrap_or(&path).components();
        let name: Vec<String> = parts.map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
        let _ = writeln!(list, "({:?}, include_str!({path:?})),", name.join("/"));
    }
    list.push(']');
    std::fs::write(PathBuf::from(std::env::var("OUT_DIR").unwrap_or_default()).join("papers.rs"), list)
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, paths)?;
        } else if path.extension().is_some_and(|e| matches!(e.to_str(), Some("toml" | "csv" | "tsv"))) {
            paths.push(path);
        }
    }
    Ok(())
}
