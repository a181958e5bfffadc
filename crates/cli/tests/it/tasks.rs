//! The commands of docs/src/tasks.md, docs/src/datacentre.md and the first pages, run
//! unchanged. Simulations print what the page shows.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{self, text};

/// The kinds of tasks, each with a command that succeeds if the needed programs are installed.
const NEEDS: &[(&str, &str)] = &[
    ("task", "true"),
    ("pandas", "python3 -c 'import pandas, pyarrow, matplotlib'"),
    ("exec", "tollway exec --link 1Gbps -q -- true && curl --version && iperf3 --version && jq --version"),
    (
        "pytest",
        "tollway exec --link 1Gbps -q -- true && curl --version && python3 -c 'import pytest, pytest_tollway'",
    ),
    ("browser", "tollway exec --link 1Gbps -q -- true && chromium --version"),
    (
        "root",
        "test $(id -u) = 0 && tollway exec --link 1Gbps -q -- true && iperf3 --version && runuser --version",
    ),
];

#[test]
fn simulated_tasks_print_what_the_page_shows() {
    assert_eq!(run_tasks("tasks", "simulated", &["task", "pandas"], true).len(), 5);
}

#[test]
fn networks_of_a_datacentre_print_what_the_page_shows() {
    assert_eq!(run_tasks("datacentre", "datacentre", &["task"], true).len(), 2);
}

#[cfg(target_os = "linux")]
#[test]
fn tasks_with_programs_run() {
    let printed = run_tasks("tasks", "programs", &["exec", "browser", "root", "pytest"], false);
    assert_eq!(printed.len(), 8);
    let readme = page(&sources("readme"), "README.md");
    let shown = |has: &str| blocks(&readme).into_iter().find(|(_, body)| body.contains(has)).unwrap().1;
    // The column is of pacing by eBPF.
    if let Some(tenants) = printed.iter().find(|printed| printed.contains("elsewhere Mb/s")) {
        common::assert_alike(shown("tollway shape status"), tenants);
    }
    if !printed[0].is_empty() {
        let example = shown("tollway exec");
        let command: Vec<&str> = example.lines().take(2).collect();
        let output = shell(&sources("readme"), command.join("\n").trim_start_matches("$ "));
        common::assert_alike(example, &text(&output.stderr));
    }
    let Some(call) = printed.iter().find(|printed| printed.contains("fq_codel")) else { return };
    let delay = |line: &str| {
        serde_json::from_str::<serde_json::Value>(line).unwrap()["delay_mean_ms"].as_f64().unwrap()
    };
    let [plain, fair] = call.lines().map(delay).collect::<Vec<_>>()[..] else { panic!("{call}") };
    assert!(plain > 2.0 * fair, "{call}");
}

#[test]
fn the_readme_s_redis_servers_hold_each_key_once() {
    let dir = sources("redis");
    if !shell(&dir, "redis-server --version && redis-cli --version").status.success() {
        eprintln!("SKIPPED: there is no Redis (see .ci/run for the packages)");
        return;
    }
    let readme = page(&dir, "README.md");
    let shown = blocks(&readme).into_iter().find(|(_, body)| body.contains("redis-server")).unwrap().1;
    let lines = shown.lines().filter(|line| line.starts_with("$ ") || line.starts_with("    "));
    let mut script: String = lines.map(|line| line.trim_start_matches("$ ").to_owned() + "\n").collect();
    let starts = "for i in $(seq 500); do redis-cli -p 7300 PING > log 2>&1 && break; sleep 0.02; done\n";
    script = script.replace("&\n", &format!("&\n{starts}")).replace("--frames", "--socket ./s --frames");
    script += "kill %1; wait %1\nfor port in 7301 7302 7303; do redis-cli -p $port SHUTDOWN NOSAVE; done\n";
    for port in ["7300", "7301", "7302", "7303"] {
        script = script.replace(port, &common::free_port().to_string());
    }
    let output = shell(&dir, &script);
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{printed}\n{}", text(&output.stderr));
    common::assert_alike(shown, &printed);
    let keys: Vec<u32> = printed.lines().filter_map(|line| line.parse().ok()).collect();
    let [first, second, third, all] = keys[..] else { panic!("{printed}") };
    assert_eq!((first + second + third, all), (30_000, 30_000), "{printed}");
}

#[test]
fn first_pages_show_what_the_command_prints() {
    let dir = sources("first");
    let tables = text(&shell(&dir, "tollway run scenarios/quickstart.toml").stdout);
    let first = page(&dir, "docs/src/first-ten-minutes.md");
    for (page, tables_shown) in [(&page(&dir, "README.md"), 1), (&first, 1)] {
        let shown =
            blocks(page).into_iter().filter(|(info, body)| *info == "text" && body.contains("bottleneck  "));
        let bodies: Vec<&str> = shown.map(|(_, body)| body).collect();
        assert_eq!(bodies.len(), tables_shown);
        for body in bodies {
            assert_printed(body, &tables);
        }
    }
    let all = blocks(&first);
    let block =
        |info: &str, has: &str| all.iter().find(|block| block.0 == info && block.1.contains(has)).unwrap().1;
    let mine = block("toml,scenario", "mine").replace("14 ms", "14 mss").replace("limit =", "limits =");
    fs::write(dir.join("mine.toml"), mine).expect("written");
    let refused = shell(&dir, "tollway run mine.toml");
    assert_eq!(refused.status.code(), Some(2));
    assert_printed(block("text", "2 mistakes"), &text(&refused.stderr));
}

/// A folder for one test, with the sources that commands on pages name.
fn sources(name: &str) -> PathBuf {
    let root = fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).expect("the repository");
    let dir = common::folder("tasks", name);
    for name in ["README.md", "scenarios", "docs"] {
        std::os::unix::fs::symlink(root.join(name), dir.join(name)).expect("a link");
    }
    dir
}

fn page(dir: &Path, path: &str) -> String {
    fs::read_to_string(dir.join(path)).expect("the page")
}

/// The code blocks of a page, each with its info string.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    page.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n')).collect()
}

/// Asserts that each line shown by a page was printed. `…` stands for omitted text, `$ ` for a
/// command.
fn assert_printed(shown: &str, printed: &str) {
    for line in shown.lines().map(str::trim_end) {
        if !line.is_empty() && line != "…" && !line.starts_with("$ ") {
            let found = printed.lines().any(|found| found.trim_end() == line);
            assert!(found, "{line}\nis not in\n{printed}");
        }
    }
}

/// Runs the blocks of these kinds on a page, in order and in one folder, and returns what each has
/// printed: nothing if it was skipped. With `compare` that must have each line that the page shows.
fn run_tasks(name: &str, folder: &str, kinds: &[&str], compare: bool) -> Vec<String> {
    let dir = sources(folder);
    let page = page(&dir, &format!("docs/src/{name}.md"));
    let blocks = blocks(&page);
    let mut outputs = Vec::new();
    for (at, (info, body)) in blocks.iter().enumerate() {
        if let Some((_, file)) = info.split_once(",file=") {
            fs::write(dir.join(file), body).expect("written");
        }
        let Some(kind) = info.strip_prefix("sh,").filter(|kind| kinds.contains(kind)) else { continue };
        let (_, needs) = NEEDS.iter().find(|(name, _)| *name == kind).expect("a known kind");
        if !shell(&dir, needs).status.success() {
            eprintln!("SKIPPED: a task that needs `{needs}`:\n{body}");
            outputs.push(String::new());
            continue;
        }
        let output = shell(&dir, body);
        assert!(output.status.success(), "{body}\n{}\n{}", text(&output.stdout), text(&output.stderr));
        let printed = text(&output.stdout);
        assert!(!printed.is_empty(), "{body}");
        if let Some((_, shown)) = blocks.get(at + 1).filter(|(info, _)| compare && *info == "text") {
            assert_printed(shown, &printed);
        }
        outputs.push(printed);
    }
    outputs
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
