//! Rules for the source code. Within a crate no two modules import each other, directly or
//! indirectly; a module and its children do not count. A module with children is `x/mod.rs`. Files,
//! also those of tests, and functions are short. Each crate has one integration binary. Only the
//! command depends on products.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A module's path in its crate.
type Module = Vec<String>;

#[test]
fn modules_do_not_import_in_circles() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Vec::new();
    for of in fs::read_dir(crates).unwrap() {
        let source = of.unwrap().path().join("src");
        let modules = modules(&source);
        let graph = imports(&modules);
        let name = source.parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
        let circles = circles(&graph)
            .into_iter()
            .map(|circle| circle.iter().map(|module| format!("{name}::{module}")).collect());
        found.extend(circles.map(|circle: Vec<String>| circle.join(", ")));
    }
    assert!(found.is_empty(), "modules import in circles:\n{}", found.join("\n"));
}

#[test]
fn modules_with_children_lie_in_their_folder() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut beside = Vec::new();
    for of in fs::read_dir(crates).unwrap() {
        let all = modules(&of.unwrap().path().join("src"));
        let folder =
            |file: &&PathBuf| file.file_name() != Some("mod.rs".as_ref()) && file.with_extension("").is_dir();
        beside.extend(all.values().filter(folder).map(|file| file.strip_prefix(crates).unwrap().to_owned()));
    }
    assert!(beside.is_empty(), "not `x/mod.rs`: {beside:?}");
}

#[test]
fn files_have_at_most_600_lines_and_functions_100() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let mut long = Vec::new();
    let mut open: Vec<PathBuf> = ["crates", "fuzz", "python"].map(|folder| root.join(folder)).into();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            if !path.ends_with("target") {
                open.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            }
            continue;
        }
        if path.extension().is_none_or(|ending| ending != "rs") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let name = path.strip_prefix(&root).unwrap().display();
        if lines.len() > 600 {
            long.push(format!("{name}: {} lines", lines.len()));
        }
        for (at, line) in lines.iter().enumerate().filter(|(_, line)| is_function(line)) {
            let end = line[..line.len() - line.trim_start().len()].to_owned() + "}";
            let length = lines[at..].iter().position(|line| *line == end).map_or(1, |last| last + 1);
            if length > 100 {
                long.push(format!("{name}:{}: a function of {length} lines", at + 1));
            }
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn each_crate_links_its_integration_tests_once() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut more = Vec::new();
    for of in fs::read_dir(crates).unwrap() {
        for entry in fs::read_dir(of.unwrap().path().join("tests")).into_iter().flatten() {
            let path = entry.unwrap().path();
            let is_file = path.extension().is_some_and(|ending| ending == "rs");
            if is_file || (path.join("main.rs").exists() && !path.ends_with("it")) {
                more.push(path);
            }
        }
    }
    assert!(more.is_empty(), "not modules of tests/it/main.rs: {more:?}");
}

#[test]
fn only_the_command_knows_products() {
    const PRODUCTS: [&str; 6] = ["exec", "host", "overlay", "router", "shape", "switch"];
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut known = Vec::new();
    for of in fs::read_dir(crates).unwrap() {
        let name = of.unwrap().file_name().into_string().unwrap();
        let manifest = fs::read_to_string(crates.join(&name).join("Cargo.toml")).unwrap();
        let knows = |product: &&&str| {
            manifest.lines().any(|line| line.starts_with(&format!("tollway-{product}"))) && name != "cli"
        };
        known.extend(PRODUCTS.iter().filter(knows).map(|product| format!("{name} knows {product}")));
    }
    assert!(known.is_empty(), "{}", known.join("\n"));
}

/// True if a function with a body of several lines begins at this line.
fn is_function(line: &str) -> bool {
    let code = line.trim_start();
    let head = code.split_once("fn ").map(|(head, _)| head);
    let words = ["async", "const", "extern", "unsafe", "\"C\""];
    let is_head = |word: &str| words.contains(&word) || word.starts_with("pub");
    head.is_some_and(|head| head.split(' ').all(|word| word.is_empty() || is_head(word)))
        && !code.ends_with([';', '}'])
}

/// Every module below `source` with its file, without tests.
fn modules(source: &Path) -> BTreeMap<Module, PathBuf> {
    let (mut all, mut open) = (BTreeMap::new(), vec![source.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let inside = path.strip_prefix(source).unwrap().with_extension("");
            let mut module: Module = inside.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
            if module.iter().any(|part| ["tests", "testing", "cases", "fuzzing"].contains(&part.as_str())) {
                continue;
            }
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                module.pop_if(|last| last == "mod" || ["lib", "main"].contains(&last.as_str()));
                all.insert(module, path);
            }
        }
    }
    all
}

/// The modules that each module names outside its tests.
fn imports(modules: &BTreeMap<Module, PathBuf>) -> BTreeMap<&Module, BTreeSet<&Module>> {
    let mut graph = BTreeMap::new();
    for (module, file) in modules {
        let text = fs::read_to_string(file).unwrap();
        let code: String = text
            .split("#[cfg(test)]\nmod ")
            .next()
            .unwrap()
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .fold(String::new(), |code, line| code + line + "\n");
        let mut named = Vec::new();
        for (start, _) in code.match_indices("use ") {
            let tree = code[start + 4..].split(';').next().unwrap();
            paths(&tree.split_whitespace().collect::<String>(), "", &mut named);
        }
        for root in ["crate::", "super::", "self::"] {
            for (start, _) in code.match_indices(root) {
                let path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
                named.push(code[start..].chars().take_while(|&c| path(c)).collect());
            }
        }
        let targets = named.iter().filter_map(|path| target(modules, module, path));
        // Ancestors and descendants do not count.
        let others = targets.filter(|other| !other.starts_with(module) && !module.starts_with(other));
        graph.insert(module, others.collect());
    }
    graph
}

/// The paths in a `use` tree without white space.
fn paths(tree: &str, prefix: &str, all: &mut Vec<String>) {
    let Some((head, inner)) = tree.split_once('{') else {
        all.push(format!("{prefix}{tree}"));
        return;
    };
    let prefix = format!("{prefix}{head}");
    let (mut depth, mut begin) = (0, 0);
    let inner = inner.rsplit_once('}').map_or(inner, |(inner, _)| inner);
    for (at, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                paths(&inner[begin..at], &prefix, all);
                begin = at + 1;
            }
            _ => {}
        }
    }
}

/// The module of the crate to which a path in `from` leads, if any.
fn target<'a>(modules: &'a BTreeMap<Module, PathBuf>, from: &Module, path: &str) -> Option<&'a Module> {
    let mut parts = path.split("::").peekable();
    let mut at = from.clone();
    match *parts.peek()? {
        "crate" => {
            at.clear();
            parts.next();
        }
        "self" => drop(parts.next()),
        "super" => {
            while parts.next_if_eq(&"super").is_some() {
                at.pop();
            }
        }
        first => {
            at.push(first.to_owned());
            modules.get(&at)?;
            at.pop();
        }
    }
    at.extend(parts.map(str::to_owned));
    while !modules.contains_key(&at) {
        at.pop()?;
    }
    modules.get_key_value(&at).map(|(module, _)| module)
}

/// Groups of modules that all reach each other.
fn circles(graph: &BTreeMap<&Module, BTreeSet<&Module>>) -> Vec<Vec<String>> {
    let mut reached = BTreeMap::new();
    for &from in graph.keys() {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(module) = open.pop() {
            open.extend(graph[module].iter().filter(|next| seen.insert(**next)));
        }
        reached.insert(from, seen);
    }
    let circle = |module: &Module| -> Vec<String> {
        let mutual = reached[module].iter().filter(|other| reached[**other].contains(module));
        mutual.map(|other| other.join("::")).collect()
    };
    let all: BTreeSet<Vec<String>> = graph.keys().map(|module| circle(module)).collect();
    all.into_iter().filter(|circle| circle.len() > 1).collect()
}
