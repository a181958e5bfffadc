//! What tests of the command have in common.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder of a test's own, empty, which nobody else may write to; `of` is the file of tests.
pub(crate) fn folder(of: &str, name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(of).join(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("a folder for the test");
    dir
}

/// The command with these arguments, without colours.
pub(crate) fn tollway(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollway"));
    command.args(arguments).env("NO_COLOR", "1");
    command
}
