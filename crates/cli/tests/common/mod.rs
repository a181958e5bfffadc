//! What tests of the command have in common.
#![allow(dead_code, reason = "each file of tests uses what it needs")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

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

/// What the command says when it is run in `dir`.
pub(crate) fn run_in(dir: &Path, arguments: &[&str]) -> Output {
    tollway(arguments).current_dir(dir).output().expect("the command starts")
}

/// Its standard output, when it is run in `dir` and all is well.
pub(crate) fn succeeds(dir: &Path, arguments: &[&str]) -> String {
    let output = run_in(dir, arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is UTF-8")
}
