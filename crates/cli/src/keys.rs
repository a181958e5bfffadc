//! `tollway keys`, and `tollway switch keygen`.

use std::path::{Component, Path};
use std::process::ExitCode;

use tollway_scenario::run::KeyFile;

use crate::args::Keys;
use crate::fail::Failure;
use crate::terminal::say;

pub(crate) fn keys(args: &Keys) -> Result<ExitCode, Failure> {
    make(&args.names, &args.out)
}

/// Writes a key file for each name. None of the files may exist.
pub(crate) fn make(names: &[String], out: &Path) -> Result<ExitCode, Failure> {
    for (i, name) in names.iter().enumerate() {
        let parts: Vec<Component<'_>> = Path::new(name).components().collect();
        if !matches!(parts[..], [Component::Normal(_)]) || name.trim() != name || name.contains(['\n', '\r'])
        {
            return Err(Failure::input(miette::miette!("`{name}` cannot be part of a file name")));
        }
        if names[..i].contains(name) {
            return Err(Failure::input(miette::miette!("`{name}` is given twice")));
        }
    }
    let files = KeyFile::mesh(names)
        .map_err(|error| Failure::run(miette::miette!("cannot get random bytes from the system: {error}")))?;
    let path = |file: &KeyFile| out.join(format!("{}.key", file.name));
    if let Some(there) = files.iter().map(path).find(|path| path.exists()) {
        return Err(Failure::input(miette::miette!(
            help = "move it away, or name another folder with `--out`",
            "`{}` already exists, and keys are never overwritten",
            there.display()
        )));
    }
    for file in &files {
        let path = path(file);
        file.save(&path)
            .map_err(|error| Failure::run(miette::miette!("cannot write `{}`: {error}", path.display())))?;
        say(format_args!("{}\n", path.display()));
    }
    Ok(ExitCode::SUCCESS)
}
