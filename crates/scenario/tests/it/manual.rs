//! Checks of the manual and the examples: snippets parse, links have targets, columns exist,
//! examples run.

use std::path::{Path, PathBuf};

use tollway_law::Time;
use tollway_scenario::file::Scenario;
use tollway_scenario::run::{Options, run};
use tollway_scenario::tables::Table;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(repository().join(folder)).expect("the folder is there");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("it can be read").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == ending));
    paths.sort();
    paths
}

/// README, pages of the book, notes and decisions, with their texts.
fn pages() -> Vec<(PathBuf, String)> {
    let mut paths: Vec<PathBuf> = ["docs/src", "docs/src/notes", "docs/src/decisions"]
        .iter()
        .flat_map(|folder| files(folder, "md"))
        .collect();
    let names = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "ROADMAP.md"];
    paths.extend(names.map(|name| repository().join(name)));
    paths.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).expect("a page"))).collect()
}

/// The fenced blocks of a page: the info string and the text.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    // Every other part between fences is a block.
    let parts = page.split("```").skip(1).step_by(2);
    parts.filter_map(|part| part.split_once('\n')).map(|(info, text)| (info.trim(), text)).collect()
}

/// A block marked `toml,scenario` is a complete file. One marked `toml,on-base` is appended to the
/// page's last complete file.
#[test]
fn snippets_are_right() {
    let mut count = 0;
    for (path, page) in pages() {
        let mut base = "";
        for (info, text) in blocks(&page) {
            let whole = match info {
                "toml,scenario" => {
                    base = text;
                    text.to_owned()
                }
                "toml,on-base" => format!("{base}\n{text}"),
                _ => continue,
            };
            count += 1;
            let name = path.display().to_string();
            if let Err(error) = Scenario::parse::<&str>(&name, &whole, &[]) {
                panic!("{name}: {:?}\n{whole}", miette::Report::new(error));
            }
        }
    }
    assert!(count >= 15, "{count}");
}

/// The users' parts of the book, with the chapters on CI, sizing and baselines, have at most 26 700
/// words.
///
/// Words outside fenced blocks count, tables included, on the pages before *For contributors* in
/// SUMMARY.md. References (keys, columns, options, messages) do not count.
#[test]
fn the_users_book_is_short() {
    let folder = repository().join("docs/src");
    let summary = std::fs::read_to_string(folder.join("SUMMARY.md")).expect("a page");
    let (users, _) = summary.split_once("# For contributors").expect("a part for contributors");
    let counted =
        |name: &String| !["columns.md", "exec-reference.md", "troubleshooting.md"].contains(&name.as_str());
    let words = links(users).into_iter().filter(counted).filter_map(|name| {
        let page = std::fs::read_to_string(folder.join(&name)).expect("a page");
        let count: usize = page.split("```").step_by(2).map(|prose| prose.split_whitespace().count()).sum();
        (!page.contains("\n<!-- Written by ")).then_some((count, name))
    });
    let words: Vec<(usize, String)> = words.collect();
    let total: usize = words.iter().map(|(count, _)| count).sum();
    assert!(words.len() > 20 && total <= 26_700, "{total} words: {words:#?}");
}

#[test]
fn an_unreleased_version_has_a_page_in_the_changelog() {
    let page = std::fs::read_to_string(repository().join("CHANGELOG.md")).expect("a page");
    let (lines, words) = (page.lines().count(), page.split_whitespace().count());
    assert!(!page.contains("unreleased") || lines <= 70 && words <= 1000, "{lines} lines, {words} words");
}

#[test]
fn links_lead_somewhere() {
    let mut missing = Vec::new();
    for (path, page) in &pages() {
        let folder = path.parent().expect("a file is in a folder");
        for target in links(page) {
            let file = target.split('#').next().unwrap_or_default();
            if !file.is_empty() && !folder.join(file).exists() {
                missing.push(format!("{}: {target}", path.display()));
            }
        }
        for word in page.split(|c: char| c.is_whitespace() || "`()[],;".contains(c)) {
            let of_ours = ["scenarios/", "papers/", "crates/"].iter().any(|folder| word.starts_with(folder));
            if of_ours
                && word.ends_with(".toml")
                && !word.contains(char::is_uppercase)
                && !repository().join(word).exists()
            {
                missing.push(format!("{}: {word}", path.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Targets of `[text](target)` within the repository, outside fenced blocks.
fn links(page: &str) -> Vec<String> {
    let prose: String = page.split("```").step_by(2).collect();
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    targets.filter(|t| !t.contains("://")).map(str::to_owned).collect()
}

/// `columns.md` lists all columns of each table, in order, with the schema's descriptions.
#[test]
fn result_columns_are_those_of_the_manual() {
    let page = std::fs::read_to_string(repository().join("docs/src/columns.md")).expect("a page");
    for table in Table::ALL {
        let section = page.split("\n## ").find(|s| s.starts_with(&format!("`{}`\n", table.name())));
        let section = section.unwrap_or_else(|| panic!("no section on `{}`", table.name()));
        let rows = section.lines().filter_map(|line| line.strip_prefix("- `"));
        let found: Vec<(String, bool, String)> = rows
            .map(|row| {
                let (name, rest) = row.split_once('`').expect("a name");
                let (null, says) = rest.split_once(": ").expect("a meaning");
                (name.to_owned(), null == "?", says.to_owned())
            })
            .collect();
        let there: Vec<(String, bool, String)> =
            table.columns().iter().map(|c| (c.name.to_owned(), c.nullable, c.says.to_owned())).collect();
        assert_eq!(found, there, "`{}`", table.name());
    }
}

/// Every example runs, each variant for two seconds, and delivers packets.
#[test]
fn examples_run() {
    for path in files("scenarios", "toml").into_iter().chain(files("scenarios/fcp", "toml")) {
        let mut sets = vec!["duration=2 s", "measure.warmup=0 s"];
        if path.ends_with("cogent-100k.toml") {
            // This network is not in the repository.
            sets.extend(["topology.file=../abilene.graphml", "flow.f.count=1"]);
        }
        if path.ends_with("geant.toml") {
            sets.extend([
                "topology.file=abilene.graphml",
                "overlay.group.*.at=*",
                "overlay.sender.*.at=Denver",
                "overlay.sender.*.count=11",
            ]);
        }
        let scenario = match Scenario::load(&path, &sets) {
            Ok(scenario) => scenario,
            Err(error) => panic!("{:?}", miette::Report::new(error)),
        };
        for variant in scenario.variants() {
            let finished = run(&variant.plan, &Options::default());
            let finished = finished.unwrap_or_else(|e| panic!("{} {}: {e}", path.display(), variant.name));
            assert_eq!(finished.run.duration, Time::from_secs(2));
            assert!(finished.run.census.delivered > 100, "{} {}", path.display(), variant.name);
        }
    }
}
