//! Mistakes in a scenario file, with their place and, if possible, a remedy.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode, SourceSpan};

/// The reason why a scenario or a file of policies is refused.
#[derive(Debug)]
pub enum ScenarioError {
    /// The file could not be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: std::io::Error,
    },
    /// The file or a `--set` has mistakes: at least one, in the order of the text.
    Mistakes {
        /// Kind of file: `scenario` or `policies`.
        of: &'static str,
        /// The mistakes.
        all: Vec<Mistake>,
    },
}

impl ScenarioError {
    /// The mistakes; each is a diagnostic.
    pub fn mistakes(&self) -> &[Mistake] {
        match self {
            ScenarioError::Unreadable { .. } => &[],
            ScenarioError::Mistakes { all, .. } => all,
        }
    }

    /// Sets the kind of file that messages name.
    pub(super) fn of(mut self, what: &'static str) -> ScenarioError {
        if let ScenarioError::Mistakes { of, .. } = &mut self {
            *of = what;
        }
        self
    }

    /// Attributes mistakes in `sets`, which `option` produced, to `option` instead of `--set`.
    pub fn set_by(mut self, option: &str, sets: &[String]) -> ScenarioError {
        if let ScenarioError::Mistakes { all, .. } = &mut self {
            for mistake in all {
                let text = Arc::clone(mistake.text.inner());
                if mistake.text.name() == SET && sets.iter().any(|set| **set == *text) {
                    mistake.text = NamedSource::new(option, text);
                }
            }
        }
        self
    }

    /// Attributes mistakes in the file `name` to the command-line options that produced it.
    ///
    /// `words` pairs each option with its text. Mistakes are shown in that text. A mistake that two
    /// links share because of one option is shown once.
    pub fn in_words(self, name: &str, words: &[(&str, &str)]) -> ScenarioError {
        let ScenarioError::Mistakes { of, all } = self else { return self };
        let mut shown: Vec<Mistake> = Vec::new();
        for mut mistake in all {
            if mistake.text.name() == name {
                let (option, given, span) = word_of(&mistake, words);
                mistake.text = NamedSource::new(option, Arc::from(given));
                mistake.span = span;
                if mistake.help.as_deref() == Some(BESIDE) {
                    mistake.help =
                        Some("a file's name is relative to the folder that `tollway` is started in".into());
                }
            }
            let same = |other: &Mistake| {
                (other.text.name(), other.span, &other.label)
                    == (mistake.text.name(), mistake.span, &mistake.label)
            };
            if !shown.iter().any(same) {
                shown.push(mistake);
            }
        }
        ScenarioError::Mistakes { of, all: shown }
    }

    /// Masks the values of `keys` in the texts that mistakes quote: they are secrets.
    pub fn masked(mut self, keys: &[&str]) -> ScenarioError {
        if let ScenarioError::Mistakes { all, .. } = &mut self {
            for mistake in all {
                let text = masked(mistake.text.inner(), keys);
                mistake.text = NamedSource::new(mistake.text.name(), text.into());
            }
        }
        self
    }

    /// The mistake, if there is only one; the error's message is then that mistake's.
    fn only(&self) -> Option<&Mistake> {
        match self.mistakes() {
            [one] => Some(one),
            _ => None,
        }
    }
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScenarioError::Unreadable { path, error } => {
                write!(f, "`{}` cannot be read: {error}", path.display())
            }
            ScenarioError::Mistakes { of, all } => match self.only() {
                Some(one) => write!(f, "{one}"),
                None => write!(f, "{} mistakes in the {of}", all.len()),
            },
        }
    }
}

impl std::error::Error for ScenarioError {}

impl Diagnostic for ScenarioError {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.only()?.help()
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.only()?.source_code()
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        self.only()?.labels()
    }

    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn Diagnostic> + 'a>> {
        match self.mistakes() {
            [] | [_] => None,
            all => Some(Box::new(all.iter().map(|m| m as &dyn Diagnostic))),
        }
    }
}

impl Mistake {
    /// The file and the line: `site.toml:3`.
    pub fn place(&self) -> String {
        let before = self.text.inner().get(..self.span.offset()).unwrap_or_default();
        format!("{}:{}", self.text.name(), 1 + before.matches('\n').count())
    }

    /// The place, the message and the remedy on one line.
    pub fn to_line(&self) -> String {
        let help = self.help.as_ref().map_or_else(String::new, |help| format!(" ({help})"));
        format!("{}: {}{help}", self.place(), self.message).replace('\n', " ")
    }
}

/// One mistake.
#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("{message}")]
pub struct Mistake {
    /// The message.
    pub message: String,
    /// The remedy.
    #[help]
    pub help: Option<String>,
    /// The text with the mistake: the file, or one `--set`.
    #[source_code]
    text: NamedSource<Arc<str>>,
    /// The place in that text.
    #[label("{label}")]
    pub span: SourceSpan,
    label: String,
}

/// The option, its text, and the place in it of the key or value with the mistake; the whole text
/// if no word matches.
fn word_of<'w>(mistake: &Mistake, words: &[(&'w str, &'w str)]) -> (&'w str, &'w str, SourceSpan) {
    let (text, at) = (mistake.text.inner(), mistake.span.offset());
    let before = text.get(..at).unwrap_or_default();
    let line = text.get(before.rfind('\n').map_or(0, |end| end + 1)..).and_then(|rest| rest.lines().next());
    let (key, value) = line.and_then(|line| line.split_once(" = ")).unwrap_or_default();
    let value = value.trim_matches('"');
    let find = |given: &str| {
        let begins = |i: usize| given[..i].chars().next_back().is_none_or(char::is_whitespace);
        let mut starts =
            given.char_indices().filter(|&(i, c)| !c.is_whitespace() && begins(i)).map(|(i, _)| i);
        let word = |start: usize| given[start..].split_whitespace().next().unwrap_or_default();
        let is_meant = |start: &usize| {
            let said = word(*start).split_once('=').map_or(word(*start), |(key, _)| key);
            said.replace('_', "-") == key || word(*start) == value
        };
        starts.find(is_meant).map(|start| (start, word(start).len()))
    };
    let mut order = words.to_vec();
    // The options of the reverse direction override those of the other direction.
    if before.contains("\n[link.up]") {
        order.reverse();
    }
    let found = order.iter().find_map(|(option, given)| Some((*option, *given, find(given)?.into())));
    found.unwrap_or_else(|| {
        let (option, given) = words.first().copied().unwrap_or_default();
        (option, given, (0, given.len()).into())
    })
}

/// The name of a text given by `--set`.
pub(crate) const SET: &str = "--set";

/// A place in one of a scenario's texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    /// Index into [`Sources`].
    pub(crate) source: u32,
    /// First byte.
    pub(crate) start: u32,
    /// One past the last byte.
    pub(crate) end: u32,
}

impl At {
    /// The part of this place from byte `from` on, `len` bytes long.
    pub(crate) fn part(self, from: usize, len: usize) -> At {
        let start = (self.start + from as u32).min(self.end);
        At { source: self.source, start, end: (start + len as u32).min(self.end) }
    }
}

/// The texts of a scenario: the file first, then each `--set`.
#[derive(Clone, Debug)]
pub(crate) struct Sources(pub(crate) Vec<(String, Arc<str>)>);

impl Sources {
    /// The text at a place.
    pub(crate) fn text(&self, at: At) -> &str {
        let text = self.0.get(at.source as usize).map_or("", |s| &s.1);
        text.get(at.start as usize..at.end as usize).unwrap_or("")
    }
}

/// The mistakes found so far.
#[derive(Clone, Debug, Default)]
pub struct Mistakes {
    found: Vec<Found>,
    /// Remarks on valid values that are probably not meant, with their places.
    notes: Vec<(At, String)>,
}

/// A mistake without its source text.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    at: At,
    message: String,
    label: String,
    help: Option<String>,
    /// The variants with the mistake.
    variants: Vec<String>,
}

impl Mistakes {
    /// Adds a mistake.
    pub fn add(&mut self, at: At, message: impl Into<String>, label: impl Into<String>) -> &mut Found {
        let (message, label) = (visible(message.into()), visible(label.into()));
        let found = Found { at, message, label, help: None, variants: Vec::new() };
        self.found.push(found);
        self.found.last_mut().expect("just pushed")
    }

    /// Adds a remark on a valid value that is probably not meant.
    pub(crate) fn note(&mut self, at: At, note: String) {
        self.notes.push((at, note));
    }

    /// Returns the remarks, each with its line.
    pub(crate) fn take_notes(&mut self, sources: &Sources) -> Vec<String> {
        let told = |(at, note): (At, String)| match sources.0.get(at.source as usize) {
            // The text comes from the command line.
            Some((name, _)) if name.starts_with("--") => format!("{name}: {note}"),
            Some((name, text)) => {
                let before = text.get(..at.start as usize).unwrap_or_default();
                format!("{name}:{}: {note}", 1 + before.matches('\n').count())
            }
            None => note,
        };
        let mut notes: Vec<String> = std::mem::take(&mut self.notes).into_iter().map(told).collect();
        notes.dedup();
        notes
    }

    /// Returns true if there is no mistake.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Number of mistakes.
    pub(crate) fn len(&self) -> usize {
        self.found.len()
    }

    /// Adds the mistakes of a variant; a mistake of several variants is kept once.
    pub(crate) fn merge(&mut self, variant: Option<&str>, others: Mistakes) {
        for note in others.notes {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
        // Each new mistake is compared with all others: limit their number.
        for mut new in others.found.into_iter().take(1000) {
            let same = self.found.iter_mut().find(|f| f.at == new.at && f.message == new.message);
            let variants = match same {
                Some(old) => &mut old.variants,
                None => {
                    new.variants.clear();
                    self.found.push(new);
                    &mut self.found.last_mut().expect("just pushed").variants
                }
            };
            if let Some(v) = variant
                && !variants.iter().any(|have| have == v)
            {
                variants.push(v.to_owned());
            }
        }
    }

    /// Returns the error. A mistake of only some of `variants` variants names them.
    pub(crate) fn into_error(mut self, sources: &Sources, variants: usize) -> ScenarioError {
        // A damaged file can have thousands of mistakes; the first screenful is enough.
        const MOST: usize = 20;
        self.found.sort_by_key(|f| f.at);
        let more = self.found.len().saturating_sub(MOST);
        let mut all: Vec<Mistake> =
            self.found.into_iter().take(MOST).map(|f| f.finish(sources, variants)).collect();
        if more > 0
            && let Some(last) = all.last_mut()
        {
            let note = format!("and {more} more mistakes, not shown");
            last.help = Some(match last.help.take() {
                Some(help) => format!("{help}\n{note}"),
                None => note,
            });
        }
        ScenarioError::Mistakes { of: "scenario", all }
    }
}

impl Found {
    /// Sets the remedy.
    pub fn help(&mut self, help: impl Into<String>) {
        self.help = Some(help.into());
    }

    /// Sets the remedy to the probable name ([`suggestion`]).
    pub(crate) fn suggest<'a>(&mut self, wrong: &str, there_is: impl Iterator<Item = &'a str> + Clone) {
        self.help = suggestion(wrong, there_is).or(self.help.take());
    }

    fn finish(self, sources: &Sources, variants: usize) -> Mistake {
        let (name, text) = match sources.0.get(self.at.source as usize) {
            Some((name, text)) => (name.as_str(), text.clone()),
            None => ("scenario", Arc::from("")),
        };
        let mut message = self.message;
        if !self.variants.is_empty() && self.variants.len() < variants {
            let list = self.variants.iter().map(|v| format!("`{v}`")).collect::<Vec<_>>().join(", ");
            let s = if self.variants.len() > 1 { "s" } else { "" };
            message += &format!(" (in variant{s} {list})");
        }
        // Miette cannot draw a caret outside the text.
        let end = (self.at.end as usize).min(text.len());
        let start = (self.at.start as usize).min(end);
        Mistake {
            message,
            help: self.help,
            text: NamedSource::new(name, printable(text)),
            span: (start, end - start).into(),
            label: self.label,
        }
    }
}

/// The names that `wrong` probably stands for; else all names if they are few, or the three
/// nearest. `None` if there are no names.
pub fn suggestion<'a>(wrong: &str, there_is: impl Iterator<Item = &'a str> + Clone) -> Option<String> {
    let meant = synonyms(wrong, there_is.clone());
    let meant = if meant.is_empty() { closest(wrong, there_is.clone()).into_iter().collect() } else { meant };
    if !meant.is_empty() {
        return Some(format!("did you mean {}?", listed(&meant, "or")));
    }
    let mut names: Vec<&str> = there_is.take(MOST_COMPARED).collect();
    let count = names.len();
    if count > FEW {
        let alike = |name: &str| strsim::jaro_winkler(&wrong.to_lowercase(), &name.to_lowercase());
        names.sort_by(|a, b| alike(b).total_cmp(&alike(a)));
        names.truncate(3);
        return Some(format!("of {count} there are, the nearest are {}", listed(&names, "and")));
    }
    (count > 0).then(|| format!("there is {}", listed(&names, "and")))
}

/// A message made safe for a terminal: quoted control characters are escaped.
fn visible(text: String) -> String {
    let hidden = |c: char| c.is_control() && c != '\n';
    if !text.contains(hidden) {
        return text;
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match hidden(c) {
            true => shown.extend(c.escape_debug()),
            false => shown.push(c),
        }
    }
    shown
}

/// A source text made safe for a terminal, with all byte offsets unchanged.
fn printable(text: Arc<str>) -> Arc<str> {
    let hidden = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    if !text.contains(hidden) {
        return text;
    }
    let shown = |c: char| match c {
        _ if !hidden(c) => c,
        _ if c.len_utf8() == 1 => '?',
        _ => '\u{b7}',
    };
    text.chars().map(shown).collect::<String>().into()
}

/// `text` with the rest of each line after one of `keys` and `=` masked, at unchanged offsets.
fn masked(text: &str, keys: &[&str]) -> String {
    let mask = |line: &str| {
        let value = keys.iter().filter_map(|key| {
            let (at, _) = line.match_indices(key).find(|(at, _)| {
                let after = line[at + key.len()..].trim_start_matches(['"', '\'']).trim_start();
                after.starts_with('=')
            })?;
            Some(at + line[at..].find('=')? + 1)
        });
        let Some(from) = value.min() else { return line.to_owned() };
        let hidden = |c: char| if c.is_whitespace() { c.to_string() } else { "*".repeat(c.len_utf8()) };
        line[..from].chars().map(String::from).chain(line[from..].chars().map(hidden)).collect()
    };
    text.split_inclusive('\n').map(mask).collect()
}

/// The names that correspond to `wrong`, a word of other tools.
pub fn synonyms<'a>(wrong: &str, names: impl Iterator<Item = &'a str> + Clone) -> Vec<&'a str> {
    let folded = wrong.to_lowercase().replace('_', "-");
    let ours = SYNONYMS
        .iter()
        .find(|(theirs, _)| theirs.contains(&folded.as_str()))
        .map_or(&[][..], |entry| entry.1);
    ours.iter().filter_map(|our| names.clone().find(|name| name == our)).collect()
}

/// `a`, `b` and `c`.
fn listed(names: &[&str], last: &str) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((end, [])) => end.clone(),
        Some((end, rest)) => format!("{} {last} {end}", rest.join(", ")),
        None => String::new(),
    }
}

/// Words of other tools for keys, and the keys.
const SYNONYMS: [(&[&str], &[&str]); 11] = [
    (&["bandwidth", "bw", "speed", "bitrate", "throughput"], &["rate"]),
    (&["latency", "propagation", "rtt", "ping"], &["delay"]),
    (&["queue", "buffer", "queue-size", "queue-limit", "qlen", "buffer-size"], &["limit", "law"]),
    (&["qdisc", "aqm", "scheduler", "discipline"], &["law"]),
    (&["cc", "congestion-control", "algorithm", "protocol", "tcp", "variant", "transport"], &["law"]),
    (&["plr", "loss-rate", "packet-loss", "drop-rate", "error-rate"], &["loss", "probability"]),
    (&["source", "src", "sender"], &["from"]),
    (&["destination", "dst", "dest", "receiver"], &["to"]),
    (&["mtu", "mss", "segment", "packet"], &["packet-size"]),
    (&["begin", "start-time", "at"], &["start", "from"]),
    (&["end", "end-time", "stop-time", "finish"], &["stop", "until", "duration"]),
];
/// Largest number of names that a remedy lists completely.
const FEW: usize = 5;
/// Largest number of names compared: more would take too long.
const MOST_COMPARED: usize = 10_000;

/// The name nearest to `wrong`, if it is near enough to be a misspelling.
pub fn closest<'a>(wrong: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let folded = wrong.to_lowercase();
    // At most a third of the letters may differ.
    let allowed = (wrong.chars().count() / 3).max(1);
    // Of two equally near names, take the one with the more similar beginning.
    let alike = |n: &str| (strsim::jaro_winkler(wrong, n) * 1e6) as u32;
    names
        .take(MOST_COMPARED)
        .map(|n| (strsim::damerau_levenshtein(&folded, &n.to_lowercase()), n))
        .filter(|&(distance, n)| distance <= allowed && distance < n.chars().count())
        .min_by_key(|&(distance, n)| (distance, std::cmp::Reverse(alike(n))))
        .map(|(_, n)| n)
}

/// The rule by which a file's name is resolved.
pub(super) const BESIDE: &str = "a file's name is relative to the folder of the scenario that names it";
