//! The scenario file: TOML in, one checked [`Plan`] for each variant out.
//!
//! The file is parsed to a tree of values with their places. Each variant and `--set` is laid over
//! the tree. The result is checked against one table of keys and resolved. All independent mistakes
//! are reported at once, each with its line, a caret and a suggestion.
//!
//! ```
//! use tollway_scenario::file::Scenario;
//!
//! let text = r#"
//!     name = "one link"
//!     duration = "10 s"
//!     [node.a]
//!     [node.b]
//!     [link.wire]
//!     from = "a"
//!     to = "b"
//!     rate = "10 Mbps"
//!     [flow.f]
//!     from = "a"
//!     to = "b"
//!     law = "cubic"
//! "#;
//! let scenario = Scenario::parse("wire.toml", text, &["link.wire.delay=5ms"])?;
//! assert_eq!(scenario.variants().len(), 1);
//! assert_eq!(scenario.variants()[0].plan.flows[0].path.base_rtt.as_millis_f64(), 10.0);
//! # Ok::<(), tollway_scenario::file::ScenarioError>(())
//! ```

mod error;
mod files;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
#[path = "tests/fuzzing.rs"]
pub mod fuzzing;
mod generate;
mod grid;
mod keys;
mod reader;
mod reference;
mod resolve;
mod route;
mod schema;
#[cfg(test)]
mod tests;
mod topology;
mod tree;
mod value;

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use tollway_law::Time;

pub use error::{Mistake, ScenarioError, suggestion};
pub use grid::Coordinate;
pub use reference::reference_pages;
pub use resolve::{matches, policy};
#[cfg(target_os = "linux")]
pub(crate) use route::Router;
pub use schema::schema;

use error::{At, Mistakes, SET, Sources};
use files::Files;
use grid::VariantSettings;
use reader::Reader;
use tree::{Setter, Table, Value};

use crate::plan::{Flow, NoPlace, OwnLink, OwnRoute, OwnSender, Plan, TransportId};

/// Reading of other files with the same checks and messages: tables of keys by
/// [`section!`](crate::section), and their reader.
pub mod reading {
    pub use super::error::{At, Found, Mistakes, closest, synonyms};
    pub use super::keys::{Default, Key, Kind, LINK_LAWS, RULES, Section};
    pub use super::reader::{Reader, read};
    pub use super::reference::page_markdown;
    pub use super::value::{percent, spelt};
}

/// A scenario file, checked and resolved.
#[derive(Clone, Debug)]
pub struct Scenario {
    file: String,
    text: Arc<str>,
    variants: Vec<Variant>,
    notes: Vec<String>,
}

/// One variant of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// Its name; empty if the file has no variants.
    pub name: String,
    /// Position of the variant in the file's grid, one coordinate an axis; empty outside a grid.
    pub cell: Vec<Coordinate>,
    /// The plan of the variant's run.
    pub plan: Plan,
}

impl Scenario {
    /// Reads the file at `path`; `sets` as in [`Scenario::parse`].
    ///
    /// # Errors
    /// [`ScenarioError::Unreadable`] if there is no such text file, and the errors of
    /// [`Scenario::parse`].
    pub fn load<S: AsRef<str>>(path: &Path, sets: &[S]) -> Result<Scenario, ScenarioError> {
        Scenario::parse(&path.display().to_string(), &Scenario::read(path)?, sets)
    }

    /// Returns the text of the file at `path`, for [`Scenario::parse`].
    ///
    /// # Errors
    /// [`ScenarioError::Unreadable`] if the file does not exist or is not UTF-8.
    pub fn read(path: &Path) -> Result<String, ScenarioError> {
        files::read_text(path).map_err(|error| ScenarioError::Unreadable { path: path.to_owned(), error })
    }

    /// Returns the text of an open file; messages call it `path`.
    ///
    /// # Errors
    /// Those of [`Scenario::read`].
    pub fn read_open(path: &Path, file: &File) -> Result<String, ScenarioError> {
        files::text_of(file).map_err(|error| ScenarioError::Unreadable { path: path.to_owned(), error })
    }

    /// Reads `text`; messages call it `file`.
    ///
    /// Files that the text names are relative to the folder of `file`. Each of `sets` is
    /// `path=value`, as in `--set`, and applies to all variants.
    ///
    /// # Errors
    /// [`ScenarioError::Mistakes`], with all independent mistakes.
    pub fn parse<S: AsRef<str>>(file: &str, text: &str, sets: &[S]) -> Result<Scenario, ScenarioError> {
        let mut sources = Sources(vec![(file.to_owned(), Arc::from(text))]);
        sources.0.extend(sets.iter().map(|s| (SET.to_owned(), Arc::from(s.as_ref()))));
        let mut mistakes = Mistakes::default();
        let mut base = tree::parse(text, &mut mistakes);
        if !mistakes.is_empty() {
            return Err(mistakes.into_error(&sources, 0));
        }
        let sets = parse_sets(&sources, &mut mistakes);
        let mut overs = take_variants(&mut base, &mut mistakes);
        overs.extend(grid::take(&mut base, &overs, &mut mistakes));
        let overridden: Vec<String> = sets.iter().filter_map(|set| overriding(set, &overs)).collect();
        let folder = Path::new(file).parent().unwrap_or(Path::new(""));
        let mut files = Files::new(folder, sources.0.len());
        let mut variants = Vec::new();
        let count = overs.len().max(1);
        for i in 0..count {
            let over = overs.get(i);
            let name = over.map(|over| over.name.as_str());
            let mut found = Mistakes::default();
            let mut tree = base.clone();
            let mut whole = true;
            // Settings of the topology come first: they decide which other keys exist.
            for topology in [true, false] {
                let mut setter = Setter { sources: &sources, mistakes: &mut found };
                let its_turn =
                    |path: &str| (path.split('.').next().map(str::trim) == Some("topology")) == topology;
                for entry in over.iter().flat_map(|over| &over.sets.0).filter(|e| its_turn(&e.key)) {
                    setter.set(&mut tree, &keys::TOP, &entry.key, entry.at, &entry.node);
                }
                for set in sets.iter().filter(|set| its_turn(set.path)) {
                    setter.set(&mut tree, &keys::TOP, set.path, set.at, &set.value);
                }
                if topology {
                    whole = topology::expand(&mut tree, &mut files, &sources, &mut found).is_some();
                }
            }
            if !whole {
                mistakes.merge(name, found);
                continue;
            }
            let top = At::default();
            tree::spell(&mut tree, &keys::TOP);
            reader::check(&tree, top, &keys::TOP, &keys::TOP.title(), &mut found);
            let reader = Reader::new(&keys::TOP, Some(&tree), top);
            if let Some(plan) = resolve::resolve(reader, name, &mut files, &mut found) {
                let cell = over.map_or_else(Vec::new, |over| over.cell.clone());
                variants.push(Variant { name: name.unwrap_or_default().to_owned(), cell, plan });
            }
            mistakes.merge(name, found);
        }
        overridden.into_iter().for_each(|note| files.note(note));
        for (one, other) in twins(&mut variants) {
            files.note(format!("variants `{one}` and `{other}` define the same run"));
        }
        let (texts, mut notes) = files.finish(count);
        sources.0.extend(texts);
        if !mistakes.is_empty() {
            return Err(mistakes.into_error(&sources, count));
        }
        notes.extend(mistakes.take_notes(&sources));
        Ok(Scenario { file: file.to_owned(), text: Arc::from(text), variants, notes })
    }

    /// All variants, in the file's order; a single unnamed one if the file has none. Never empty.
    pub fn variants(&self) -> &[Variant] {
        &self.variants
    }

    /// The `--set`s that give every flow and workload the kernel's TCP.
    pub fn kernel_sets(&self) -> Vec<String> {
        let mut sets = BTreeSet::new();
        for Variant { plan, .. } in &self.variants {
            let kernel = |of: TransportId| plan.transports[of.0 as usize].kernel;
            let flows = plan.flows.iter().filter(|flow| !kernel(flow.transport));
            sets.extend(flows.map(|flow| format!("flow.{}.transport=kernel", flow.section)));
            let workloads = plan.workloads.iter().filter(|workload| !kernel(workload.transport));
            sets.extend(workloads.map(|workload| format!("workload.{}.transport=kernel", workload.name)));
        }
        sets.into_iter().collect()
    }

    /// The variant called `name`.
    pub fn variant(&self, name: &str) -> Option<&Variant> {
        self.variants.iter().find(|v| v.name == name)
    }

    /// Notes about imported files: renamed nodes, and assumed rates and delays.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Keeps only the variants with these names; keeps all if no name matches.
    pub fn only<S: AsRef<str>>(mut self, names: &[S]) -> Scenario {
        let named = |variant: &Variant| names.iter().any(|name| name.as_ref() == variant.name);
        if self.variants.iter().any(named) {
            self.variants.retain(named);
        }
        self
    }

    /// Gives the senders of a section a law of the caller, in all variants with the section
    /// ([`Plan::set_sender`]).
    ///
    /// # Errors
    /// No variant has the section, or in one of them the senders cannot have another law.
    pub fn with_sender(self, key: &str, law: &OwnSender) -> Result<Scenario, NoPlace> {
        self.with(|plan| plan.set_sender(key, law))
    }

    /// Gives links a law of the caller, in all variants with these links ([`Plan::set_link`]).
    ///
    /// # Errors
    /// No variant has such links.
    pub fn with_link(self, key: &str, law: &OwnLink) -> Result<Scenario, NoPlace> {
        self.with(|plan| plan.set_link(key, law))
    }

    /// Gives switches a routing module of the caller, in all variants with these switches
    /// ([`Plan::set_route`]).
    ///
    /// # Errors
    /// No variant has such switches.
    pub fn with_route(self, key: &str, route: &OwnRoute) -> Result<Scenario, NoPlace> {
        self.with(|plan| plan.set_route(key, route))
    }

    /// Delays the start of each flow by the time that `later` returns.
    ///
    /// A flow that would not start before its stop keeps its start. All receivers of a tree start
    /// with the tree's first flow.
    pub fn with_starts(mut self, later: impl Fn(&Flow) -> Time) -> Scenario {
        for Variant { plan, .. } in &mut self.variants {
            let by: Vec<Time> =
                (0..plan.flows.len()).map(|i| later(&plan.flows[plan.sender_of(i)])).collect();
            for (flow, by) in plan.flows.iter_mut().zip(by) {
                let start = flow.start.saturating_add(by);
                if start < flow.stop {
                    flow.start = start;
                }
            }
        }
        self
    }

    fn with(mut self, set: impl Fn(&mut Plan) -> Result<(), NoPlace>) -> Result<Scenario, NoPlace> {
        let all = self.variants.iter_mut().map(|variant| set(&mut variant.plan));
        let (done, wrong): (Vec<_>, Vec<_>) = all.partition(Result::is_ok);
        let mut wrong: Vec<NoPlace> = wrong.into_iter().filter_map(Result::err).collect();
        // Some variants may lack the section.
        let is_missing = |why: &NoPlace| matches!(why, NoPlace::Unknown { .. });
        match wrong.iter().position(|why| done.is_empty() || !is_missing(why)) {
            Some(i) => Err(wrong.swap_remove(i)),
            None => Ok(self),
        }
    }

    /// The file's name in messages.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The file's text; the spans of [`Scenario::raw`] are places in it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The tables of an array that only an experiment uses: `claim`, `plot` or `reference`. They
    /// come unresolved, with their places; empty if there are none.
    pub fn raw(&self, array: &str) -> Vec<toml::Spanned<toml::Value>> {
        #[derive(serde::Deserialize)]
        struct Raw {
            #[serde(default)]
            claim: Vec<toml::Spanned<toml::Value>>,
            #[serde(default)]
            plot: Vec<toml::Spanned<toml::Value>>,
            #[serde(default)]
            reference: Vec<toml::Spanned<toml::Value>>,
        }
        // Cannot fail: the file was parsed before, and its arrays are arrays.
        let Ok(raw) = toml::from_str::<Raw>(&self.text) else { return Vec::new() };
        match array {
            "claim" => raw.claim,
            "plot" => raw.plot,
            "reference" => raw.reference,
            _ => Vec::new(),
        }
    }
}

/// Pairs of variants with equal plans: the first such variant and the other. Variants of a grid are
/// not compared: there may be thousands.
fn twins(variants: &mut [Variant]) -> Vec<(String, String)> {
    let mut named: Vec<&mut Variant> =
        variants.iter_mut().filter(|variant| variant.cell.is_empty()).collect();
    let names: Vec<Option<String>> = named.iter_mut().map(|variant| variant.plan.variant.take()).collect();
    let same = |i: usize| (0..i).find(|&j| named[i].plan == named[j].plan).map(|j| (j, i));
    let twins: Vec<(usize, usize)> = (0..named.len()).filter_map(same).collect();
    for (variant, name) in named.iter_mut().zip(names) {
        variant.plan.variant = name;
    }
    twins.into_iter().map(|(i, j)| (named[i].name.clone(), named[j].name.clone())).collect()
}

/// One `--set`, parsed.
struct Set<'a> {
    path: &'a str,
    at: At,
    value: tree::Node,
}

/// The note on variants whose own setting `set` replaces.
fn overriding(set: &Set<'_>, overs: &[VariantSettings]) -> Option<String> {
    let plain = |path: &str| -> String {
        let parts = path.split('.').map(|part| part.trim().trim_matches(['"', '\'']).replace('_', "-"));
        parts.collect::<Vec<_>>().join(".")
    };
    let path = plain(set.path);
    let is_set = |key: &str| {
        let key = plain(key);
        key == path || key.strip_prefix(path.as_str()).is_some_and(|rest| rest.starts_with('.'))
    };
    let own = overs.iter().filter(|over| over.sets.0.iter().any(|entry| is_set(&entry.key)));
    let names: Vec<String> = own.map(|over| format!("`{}`", over.name)).collect();
    let whose = match names.len() {
        0 => return None,
        n if n == overs.len() && n > 1 => "every variant sets".to_owned(),
        1 => format!("variant {} sets", names[0]),
        _ => format!("variants {} set", names.join(", ")),
    };
    Some(format!("`--set {path}` overrides what {whose}; a variant's name may now be wrong"))
}

fn parse_sets<'a>(sources: &'a Sources, mistakes: &mut Mistakes) -> Vec<Set<'a>> {
    let mut sets = Vec::new();
    for (i, (_, text)) in sources.0.iter().enumerate().skip(1) {
        let whole = At { source: i as u32, start: 0, end: text.len() as u32 };
        let Some((path, value)) = text.split_once('=') else {
            mistakes
                .add(whole, format!("`{text}` sets nothing"), "no `=`")
                .help("write it like `--set link.bottleneck.rate=20Mbps`");
            continue;
        };
        let path_at = At { end: path.len() as u32, ..whole };
        let first = path.split('.').next().unwrap_or_default().trim();
        if matches!(first, "variant" | "grid") {
            mistakes
                .add(path_at, format!("a {first} cannot be set"), "here")
                .help("set the key itself: `--set` applies to every variant");
            continue;
        }
        let value = tree::parse_value(value, i as u32, path.len() + 1);
        sets.push(Set { path, at: path_at, value });
    }
    sets
}

/// Takes `[variant.NAME]` out of the tree.
fn take_variants(base: &mut Table, mistakes: &mut Mistakes) -> Vec<VariantSettings> {
    let Some(i) = base.0.iter().position(|e| e.key == "variant") else { return Vec::new() };
    if !matches!(base.0[i].node.value, Value::Table(_)) {
        return Vec::new(); // Left in the tree; the check reports it.
    }
    let Value::Table(named) = base.0.remove(i).node.value else { return Vec::new() };
    let mut variants = Vec::new();
    for entry in named.0 {
        reader::name(&entry.key, entry.at, mistakes);
        match entry.node.value {
            Value::Table(sets) => variants.push(VariantSettings { name: entry.key, sets, cell: Vec::new() }),
            other => {
                let message = format!("`[variant.{}]` is a table; this is {}", entry.key, other.what());
                mistakes
                    .add(entry.at, message, "not a table")
                    .help("the variant's name is missing: write `[variant.NAME]`");
            }
        }
    }
    variants
}
