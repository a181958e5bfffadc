//! Policies in an etcd store for many hosts, and their translation for this host.
//!
//! A key names a table of the policy file, and its value is the text of that table. Under the
//! prefix `/tollway` the key `/tollway/aggregate/web` is the table `[aggregate.web]`. The key
//! `/tollway` holds the keys before the first table, or a whole file. Both apply to every host.
//!
//! Keys under `/tollway/@PATTERN/` apply to hosts whose name matches, where `*` and `?` stand for
//! other characters. They replace keys for all hosts. Of several matching patterns the most
//! specific applies. So policies are written once, and each host's agent translates them into its
//! own (the aggregates paper, § 6.1).

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::time::{Duration, Instant};

use tollway_scenario::file::{ScenarioError, matches};

use super::source::Pacing;
use super::{News, Policies, Source};
use crate::etcd::{Access, Address, Event, Keys, Store};

/// A store under watch, as a source of policies.
#[derive(Debug)]
pub struct EtcdSource {
    store: Store,
    host: String,
    /// The text read last, or the reason why it could not be used. Another revision may have the
    /// same.
    last: Option<Result<String, String>>,
    away: bool,
    pacing: Pacing,
}

impl EtcdSource {
    /// Watches the store at `etcd://HOST:PORT/PREFIX`, or `etcds://…` for TLS, and reads the
    /// policies for this host.
    ///
    /// If that takes a while, `say` receives the reason once, and `ends` is polled. Once `ends`
    /// returns true, the result is `None`.
    ///
    /// # Errors
    /// The store can't be reached within ten seconds, or refuses access; or the policies have
    /// mistakes.
    pub fn open(
        address: &str,
        access: Access,
        say: impl FnMut(&str),
        ends: impl FnMut() -> bool,
    ) -> Result<Option<(EtcdSource, Policies)>, ScenarioError> {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        EtcdSource::open_as(address, access, host.trim(), Duration::from_secs(10), say, ends)
    }

    fn open_as(
        address: &str,
        access: Access,
        host: &str,
        most: Duration,
        mut say: impl FnMut(&str),
        mut ends: impl FnMut() -> bool,
    ) -> Result<Option<(EtcdSource, Policies)>, ScenarioError> {
        let failed = |error| ScenarioError::Unreadable { path: address.into(), error };
        let unreadable = |kind, why: String| failed(io::Error::new(kind, why));
        let at = Address::parse(address).map_err(|why| unreadable(io::ErrorKind::InvalidInput, why))?;
        let store = Store::open(at, access).map_err(failed)?;
        let mut source =
            EtcdSource { store, host: host.to_owned(), last: None, away: false, pacing: Pacing::default() };
        let (begin, mut why, mut said) = (Instant::now(), "it does not answer".to_owned(), false);
        while begin.elapsed() < most {
            match source.store.wait(LOOK) {
                None => {}
                Some(Event::Away(reason)) => why = reason,
                Some(event) => match source.read(event) {
                    News::Policies(policies) => return Ok(Some((source, *policies))),
                    News::Wrong(error) => return Err(*error),
                    News::Away(_) | News::None => {}
                },
            }
            if ends() {
                return Ok(None);
            }
            if !said && begin.elapsed() >= LOOK {
                said = true;
                say(&format!("`{address}` cannot be read: {why}; trying for {} s", most.as_secs()));
            }
        }
        Err(unreadable(io::ErrorKind::TimedOut, format!("{why} (tried for {} s)", most.as_secs())))
    }

    fn read(&mut self, event: Event) -> News {
        let (revision, keys) = match event {
            Event::Keys(revision, keys) => (revision, keys),
            // The first message is enough.
            Event::Away(_) if self.away => return News::None,
            Event::Away(why) => {
                self.away = true;
                return News::Away(format!("`{}` cannot be read: {why}", self.describe()));
            }
        };
        let back = std::mem::take(&mut self.away);
        let name = format!("{}, revision {revision}", self.describe());
        let read = translate(&self.store.address().prefix, &self.host, &keys);
        if self.last.as_ref() == Some(&read) && !back {
            return News::None;
        }
        self.last = Some(read.clone());
        let text = match read {
            Ok(text) => text,
            Err(why) => {
                return News::Wrong(Box::new(ScenarioError::Unreadable {
                    path: name.into(),
                    error: io::Error::other(why),
                }));
            }
        };
        let version =
            if names_version(&text) { String::new() } else { format!("version = \"revision {revision}\"\n") };
        match Policies::parse(&name, &(version + &text)) {
            Ok(policies) => self.pacing.news(&name, policies),
            Err(error) => News::Wrong(Box::new(error)),
        }
    }
}

impl Source for EtcdSource {
    fn poll(&mut self) -> News {
        self.store.poll().map_or(News::None, |event| self.read(event))
    }

    fn describe(&self) -> String {
        self.store.address().to_string()
    }
}

/// Translates a store's keys to the policy file for a host.
fn translate(prefix: &str, host: &str, keys: &Keys) -> Result<String, String> {
    let mut tables: BTreeMap<Vec<&str>, (usize, &str, &str)> = BTreeMap::new();
    for (key, value) in keys {
        let mut path: Vec<&str> =
            key.strip_prefix(prefix).unwrap_or(key).split('/').filter(|part| !part.is_empty()).collect();
        let mut close = 0;
        if let Some(pattern) = path.first().and_then(|part| part.strip_prefix('@')) {
            if !matches(pattern, host) {
                continue;
            }
            // A whole name is more specific than any pattern.
            let exact = usize::from(!pattern.contains(['*', '?']));
            close = 1 + pattern.chars().filter(|c| !"*?".contains(*c)).count() + exact;
            path.remove(0);
        }
        let text = std::str::from_utf8(value)
            .map_err(|_| format!("the value of `{}` is not text", key.escape_debug()))?;
        match tables.entry(path) {
            Entry::Vacant(entry) => drop(entry.insert((close, key, text))),
            Entry::Occupied(mut entry) if entry.get().0 < close => drop(entry.insert((close, key, text))),
            Entry::Occupied(entry) if entry.get().0 > close => {}
            Entry::Occupied(entry) => {
                return Err(format!(
                    "`{}` and `{}` match this host, `{host}`, equally: narrow one of them",
                    entry.get().1.escape_debug(),
                    key.escape_debug()
                ));
            }
        }
    }
    if tables.is_empty() {
        return Err(format!("`{prefix}` has no policies for this host, `{host}`"));
    }
    let mut file = String::new();
    for (path, (_, key, text)) in tables {
        if !path.is_empty() {
            let name: Vec<String> = path.iter().map(|part| quoted(part)).collect();
            file += &format!("[{}] # {}\n", name.join("."), key.escape_debug());
        }
        file += text.trim_end();
        file += "\n";
    }
    Ok(file)
}

/// A part of a table's name, quoted for TOML if needed.
fn quoted(part: &str) -> String {
    if part.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)) {
        return part.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in part.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted += &format!("\\u{:04X}", c as u32),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

/// True if the text has a `version` key. A text that is no TOML is refused later in any case.
fn names_version(text: &str) -> bool {
    toml::from_str::<toml::Table>(text).is_ok_and(|tables| tables.contains_key("version"))
}

/// Interval between calls of `ends` while a store can't be reached.
const LOOK: Duration = Duration::from_millis(200);
