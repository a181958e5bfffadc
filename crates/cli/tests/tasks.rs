//! The commands of docs/src/ten-tasks.md and docs/src/datacentre.md, run as they stand there. Simulations print what the page shows.

mod common;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::text;

/// The kinds of tasks, each with a command that succeeds where the programs that it needs are installed.
const NEEDS: &[(&str, &str)] = &[
    ("task", "true"),
    ("pandas", "python3 -c 'import pandas, pyarrow, matplotlib'"),
    ("exec", "tollway exec --link 1Gbps -q -- true && curl --version && iperf3 --version && jq --version"),
    (
        "user",
        "setpriv --reuid=nobody --regid=nogroup --clear-groups tollway exec --link 1Gbps -q -- true && iperf3 --version",
    ),
    ("browser", "tollway exec --link 1Gbps -q -- true && chromium --version"),
    (
        "root",
        "test $(id -u) = 0 && tollway exec --link 1Gbps -q -- true && iperf3 --version && runuser --version",
    ),
];

#[test]
fn simulated_tasks_print_what_the_page_shows() {
    assert_eq!(run_tasks("ten-tasks", "simulated", &["task", "pandas"], true), 6);
}

#[test]
fn networks_of_a_datacentre_print_what_the_page_shows() {
    assert_eq!(run_tasks("datacentre", "datacentre", &["task"], true), 2);
}

#[cfg(target_os = "linux")]
#[test]
fn tasks_with_programs_run() {
    assert_eq!(run_tasks("ten-tasks", "programs", &["exec", "user", "browser", "root"], false), 7);
}

/// Runs the blocks of these kinds on a page, in order and in one folder, and returns their number. With
/// `compare` the commands must print each line of output that the page shows.
fn run_tasks(page: &str, name: &str, kinds: &[&str], compare: bool) -> usize {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = fs::canonicalize(root).expect("the repository");
    let page = fs::read_to_string(root.join(format!("docs/src/{page}.md"))).expect("the page");
    let dir = common::folder("tasks", name);
    for name in ["README.md", "scenarios", "docs"] {
        std::os::unix::fs::symlink(root.join(name), dir.join(name)).expect("a link");
    }
    let blocks: Vec<(&str, &str)> =
        page.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n')).collect();
    let mut count = 0;
    for (at, (info, body)) in blocks.iter().enumerate() {
        if let Some(file) = info.strip_prefix("toml,file=") {
            fs::write(dir.join(file), body).expect("written");
        }
        let Some(kind) = info.strip_prefix("sh,").filter(|kind| kinds.contains(kind)) else { continue };
        count += 1;
        let (_, needs) = NEEDS.iter().find(|(name, _)| *name == kind).expect("a known kind");
        if !shell(&dir, needs).status.success() {
            eprintln!("SKIPPED: a task that needs `{needs}`:\n{body}");
            continue;
        }
        let output = shell(&dir, body);
        assert!(output.status.success(), "{body}\n{}\n{}", text(&output.stdout), text(&output.stderr));
        let printed = text(&output.stdout);
        assert!(!printed.is_empty(), "{body}");
        if let Some((_, shown)) = blocks.get(at + 1).filter(|(info, _)| compare && *info == "text") {
            for line in shown.lines().map(str::trim_end).filter(|line| !line.is_empty() && *line != "…") {
                assert!(
                    printed.lines().any(|found| found.trim_end() == line),
                    "{line}\nis not in\n{printed}"
                );
            }
        }
    }
    count
}

/// Runs commands in `dir`; `tollway` is the command under test.
fn shell(dir: &Path, commands: &str) -> Output {
    let command = Path::new(env!("CARGO_BIN_EXE_tollway")).parent().expect("a folder").to_owned();
    let path: Vec<PathBuf> =
        [command].into_iter().chain(env::split_paths(&env::var_os("PATH").unwrap_or_default())).collect();
    let mut shell = Command::new("bash");
    shell.args(["-e", "-o", "pipefail", "-c", commands]).current_dir(dir).env("NO_COLOR", "1");
    shell.env("PATH", env::join_paths(path).expect("a path")).output().expect("bash starts")
}
