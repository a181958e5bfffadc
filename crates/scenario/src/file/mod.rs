//! The scenario file: TOML in, one checked [`Plan`] a variant out.
//!
//! A file is parsed to a tree whose values know their places; variants and `--set` are laid over it; the result is
//! checked against one table of keys and resolved. Every mistake that can be told apart is reported in one go, with
//! its line, a caret and what was probably meant.
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
#[cfg(test)]
mod tests;
mod topology;
mod tree;
mod value;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use tollway_law::Time;

pub use error::{Mistake, ScenarioError, suggestion};
pub use grid::Coordinate;
pub use reference::{reference_markdown, schema};
pub use resolve::matches;
#[cfg(target_os = "linux")]
pub(crate) use route::Router;

use error::{At, Mistakes, SET, Sources};
use files::Files;
use grid::Over;
use reader::Reader;
use tree::{Setter, Table, Value};

use crate::plan::{Flow, NoPlace, OwnLink, OwnRoute, OwnSender, Plan};

/// Files of other kinds, read with the same checks and messages: tables of keys by [`section!`](crate::section), and
/// their reader.
pub mod reading {
    pub use super::error::{At, Found, Mistakes, closest, synonyms};
    pub use super::keys::{Default, Key, Kind, LINK_LAWS, Section};
    pub use super::reader::{Reader, read};
    pub use super::reference::sections_markdown;
    pub use super::value::{percent, spelt};
}

/// A scenario, checked and resolved.
#[derive(Clone, Debug)]
pub struct Scenario {
    file: String,
    text: Arc<str>,
    variants: Vec<Variant>,
    notes: Vec<String>,
}

/// One variant of a scenario: a run of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// Its name; empty if the file has no variants.
    pub name: String,
    /// Where it lies in the file's grid, axis by axis; empty for a variant that is not of a grid.
    pub cell: Vec<Coordinate>,
    /// What to run.
    pub plan: Plan,
}

impl Scenario {
    /// Reads the file at `path`, with `sets` as in [`Scenario::parse`].
    ///
    /// # Errors
    /// [`ScenarioError::Unreadable`] if there is no such text file, and whatever [`Scenario::parse`] finds.
    pub fn load<S: AsRef<str>>(path: &Path, sets: &[S]) -> Result<Scenario, ScenarioError> {
        Scenario::parse(&path.display().to_string(), &Scenario::read(path)?, sets)
    }

    /// The text of the file at `path`, for [`Scenario::parse`].
    ///
    /// # Errors
    /// [`ScenarioError::Unreadable`]: there is none, or it is no UTF-8.
    pub fn read(path: &Path) -> Result<String, ScenarioError> {
        files::read_text(path).map_err(|error| ScenarioError::Unreadable { path: path.to_owned(), error })
    }

    /// The same of a file that is open, which messages call `path`.
    ///
    /// # Errors
    /// Those of [`Scenario::read`].
    pub fn read_open(path: &Path, file: &File) -> Result<String, ScenarioError> {
        files::text_of(file).map_err(|error| ScenarioError::Unreadable { path: path.to_owned(), error })
    }

    /// Reads `text`, which messages call `file`; files that it names are looked for beside `file`. Each of `sets` is
    /// `path=value`, as given by `--set`, and goes over every variant.
    ///
    /// # Errors
    /// [`ScenarioError::Mistakes`], with all that could be told apart.
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
            // What is set of the topology first: it decides what else there is to be set.
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
        for (one, other) in twins(&mut variants) {
            files.note(format!("variants `{one}` and `{other}` are the same run"));
        }
        let (texts, mut notes) = files.finish(count);
        sources.0.extend(texts);
        if !mistakes.is_empty() {
            return Err(mistakes.into_error(&sources, count));
        }
        notes.extend(mistakes.take_notes(&sources));
        Ok(Scenario { file: file.to_owned(), text: Arc::from(text), variants, notes })
    }

    /// Every variant, in the file's order; a file without any has one, unnamed. Never empty.
    pub fn variants(&self) -> &[Variant] {
        &self.variants
    }

    /// The variant of a name.
    pub fn variant(&self, name: &str) -> Option<&Variant> {
        self.variants.iter().find(|v| v.name == name)
    }

    /// What was made of the files that this one names, as far as a reader should know: renamed nodes, rates and delays
    /// that were made up.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The same with only the variants of these names, if there is any.
    pub fn only<S: AsRef<str>>(mut self, names: &[S]) -> Scenario {
        let named = |variant: &Variant| names.iter().any(|name| name.as_ref() == variant.name);
        if self.variants.iter().any(named) {
            self.variants.retain(named);
        }
        self
    }

    /// The same with the senders of a section by a law of the caller's, in every variant that has the section ([`Plan::set_sender`]).
    ///
    /// # Errors
    /// No variant has it, or one can't have another law there.
    pub fn with_sender(self, key: &str, law: &OwnSender) -> Result<Scenario, NoPlace> {
        self.with(|plan| plan.set_sender(key, law))
    }

    /// The same with links under a law of the caller's, in every variant that has them ([`Plan::set_link`]).
    ///
    /// # Errors
    /// No variant has them.
    pub fn with_link(self, key: &str, law: &OwnLink) -> Result<Scenario, NoPlace> {
        self.with(|plan| plan.set_link(key, law))
    }

    /// The same with switches under a routing module of the caller's, in every variant that has them
    /// ([`Plan::set_route`]).
    ///
    /// # Errors
    /// No variant has them.
    pub fn with_route(self, key: &str, route: &OwnRoute) -> Result<Scenario, NoPlace> {
        self.with(|plan| plan.set_route(key, route))
    }

    /// The same with flows that start later, each by the time that `later` answers for it; one that
    /// would not start before its stop keeps its start. Receivers of a tree start together, as the
    /// first of them.
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
        // A section may be of some variants only.
        let is_missing = |why: &NoPlace| matches!(why, NoPlace::Unknown { .. });
        match wrong.iter().position(|why| done.is_empty() || !is_missing(why)) {
            Some(i) => Err(wrong.swap_remove(i)),
            None => Ok(self),
        }
    }

    /// What the file is called in messages.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The file's text, into which the spans of [`Scenario::raw`] point.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The tables of one of the arrays that an experiment adds, `claim`, `plot` or `reference`, as they stand in the
    /// file, with their places; empty if there are none.
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
        // The file has been parsed before and its arrays are arrays, so that nothing can fail here.
        let Ok(raw) = toml::from_str::<Raw>(&self.text) else { return Vec::new() };
        match array {
            "claim" => raw.claim,
            "plot" => raw.plot,
            "reference" => raw.reference,
            _ => Vec::new(),
        }
    }
}

/// Variants of the same plan, each with the first that has it. A grid may have thousands, whose points differ.
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

/// A `--set`, taken apart.
struct Set<'a> {
    path: &'a str,
    at: At,
    value: tree::Node,
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
                .help("name the key itself: `--set` goes over every variant");
            continue;
        }
        let value = tree::parse_value(value, i as u32, path.len() + 1);
        sets.push(Set { path, at: path_at, value });
    }
    sets
}

/// Takes `[variant.NAME]` out of the tree.
fn take_variants(base: &mut Table, mistakes: &mut Mistakes) -> Vec<Over> {
    let Some(i) = base.0.iter().position(|e| e.key == "variant") else { return Vec::new() };
    if !matches!(base.0[i].node.value, Value::Table(_)) {
        return Vec::new(); // Left in place, for the check to find.
    }
    let Value::Table(named) = base.0.remove(i).node.value else { return Vec::new() };
    let mut variants = Vec::new();
    for entry in named.0 {
        reader::name(&entry.key, entry.at, mistakes);
        match entry.node.value {
            Value::Table(sets) => variants.push(Over { name: entry.key, sets, cell: Vec::new() }),
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
