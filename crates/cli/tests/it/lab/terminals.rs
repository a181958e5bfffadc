//! Runs with a display on a terminal.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{folder, read};
use crate::common::text;

/// Starts `run` on a terminal whose input and output are pipes; `third` redirects descriptor 3.
fn on_a_terminal(dir: &Path, third: &str, run: &str) -> std::process::Child {
    use std::process::Stdio;

    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec script -qec \"$0\" /dev/null {third}"), run]);
    shell.env("TERM", "xterm").current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::piped());
    shell.spawn().expect("a shell starts")
}

/// A closed window ends the run, as Ctrl-C does, and leaves no process that reads the terminal.
#[test]
fn a_terminal_that_goes_away_ends_a_run_that_is_watched() {
    use std::io::Read;

    let dir = folder("gone");
    let run = format!("exec {} run s.toml --engine live --watch", env!("CARGO_BIN_EXE_tollway"));
    // The run also holds the pipe of `said`, as descriptor 3: the pipe ends when both have ended.
    let mut script = on_a_terminal(&dir, "3>&1", &run);
    let mut said = script.stdout.take().expect("a pipe");
    let mut seen = Vec::new();
    let mut bytes = [0; 1000];
    // Each picture hides the cursor. After the third, the run has also polled for keys.
    while String::from_utf8_lossy(&seen).matches("\x1b[?25l").count() < 3 {
        let n = said.read(&mut bytes).expect("readable");
        if n == 0 {
            eprintln!("SKIPPED: no `script` here: {}", String::from_utf8_lossy(&seen));
            script.wait().expect("it ended");
            return;
        }
        seen.extend(&bytes[..n]);
    }
    script.kill().expect("it was there");
    script.wait().expect("it ended");
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let _ = said.read_to_end(&mut Vec::new());
        ended.send(())
    });
    // A variant that is not ended takes four seconds.
    assert_eq!(end.recv_timeout(std::time::Duration::from_secs(100)), Ok(()), "it is there still");
}

/// A terminal that is not read does not delay the results.
#[test]
fn a_terminal_that_takes_nothing_does_not_hold_the_end_of_a_run_up() {
    use std::io::Read;
    use std::time::Instant;

    let dir = folder("hangs");
    let run = format!(
        "stty rows 100 cols 250; exec {} run s.toml --engine live --watch --json --set measure.interval=50ms --set flow.f.count=90 >&3",
        env!("CARGO_BIN_EXE_tollway")
    );
    let mut script = on_a_terminal(&dir, "3>results", &run);
    let mut said = script.stdout.take().expect("a pipe");
    let mut seen = Vec::new();
    let mut bytes = [0; 1000];
    while !String::from_utf8_lossy(&seen).contains("\x1b[?25l") {
        let n = said.read(&mut bytes).expect("readable");
        if n == 0 {
            eprintln!("SKIPPED: no `script` here: {}", String::from_utf8_lossy(&seen));
            script.wait().expect("it ended");
            return;
        }
        seen.extend(&bytes[..n]);
    }
    // From here on the terminal is not read.
    let stopped = Command::new("kill").args(["-STOP", &script.id().to_string()]).status();
    assert!(stopped.is_ok_and(|status| status.success()));
    let until = Instant::now() + std::time::Duration::from_secs(100);
    while serde_json::from_str::<Value>(&read(dir.join("results"))).is_err() {
        assert!(Instant::now() < until, "it waits for its terminal");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    script.kill().expect("it was there");
    script.wait().expect("it ended");
}

/// No escape sequences go to a terminal that does not support them.
#[test]
fn a_dumb_terminal_is_not_drawn_on() {
    let dir = folder("dumb");
    for (term, word) in [("dumb", "dumb"), ("", "`TERM` is not set")] {
        for what in ["run s.toml", "shape --policy none.toml"] {
            let run = format!("{} {what} --watch; echo status $?", env!("CARGO_BIN_EXE_tollway"));
            let mut script = Command::new("script");
            script.args(["-qec", &run, "/dev/null"]).env("TERM", term).env("NO_COLOR", "1").current_dir(&dir);
            let Ok(output) = script.stdin(std::process::Stdio::null()).output() else {
                eprintln!("SKIPPED: no `script` here");
                return;
            };
            let said = text(&output.stdout);
            assert!(said.contains("status 2") && said.contains(word), "{said}");
            assert!(said.contains("leave out `--watch`") && !said.contains('\u{1b}'), "{said:?}");
        }
    }
}
