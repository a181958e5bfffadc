//! Redis' own description of its commands: which there are, and where their keys are.

use std::sync::LazyLock;

/// A command as Redis describes it.
#[derive(Debug)]
pub(super) struct Command {
    /// Its name in capitals; of a subcommand `CONFIG|SET`.
    pub(super) name: &'static str,
    /// True if it may block its connection.
    pub(super) blocks: bool,
    /// The members that a request concerns: `all_nodes`, `all_shards`, `multi_shard`, `special`,
    /// `-`.
    pub(super) request: &'static str,
    /// The combination of several members' answers, such as `agg_sum`; `-` if Redis states none.
    pub(super) response: &'static str,
    places: Vec<KeySpec>,
}

/// The places of some of a command's keys.
#[derive(Clone, Copy, Debug)]
enum KeySpec {
    /// Redis does not say where.
    Unknown,
    Known(Begin, Find),
}

/// The word from which keys are found.
#[derive(Clone, Copy, Debug)]
enum Begin {
    Index(usize),
    /// The word after this keyword, which is searched from an index on.
    Keyword(&'static str, usize),
}

#[derive(Clone, Copy, Debug)]
enum Find {
    /// Up to an offset from the first key, or (negative) from the last word; the step; and the part
    /// of the remaining words that are keys, as a divisor.
    Range(isize, usize, usize),
    /// A count at an offset, then that many keys from another offset on, and their step.
    Count(usize, usize, usize),
}

impl Command {
    /// The command with this name, in capitals.
    pub(super) fn named(name: &[u8]) -> Option<&'static Command> {
        let at = TABLE.binary_search_by(|command| command.name.as_bytes().cmp(name)).ok()?;
        TABLE.get(at)
    }

    /// True if the next word selects a subcommand.
    pub(super) fn has_subcommands(&self) -> bool {
        CONTAINERS.binary_search(&self.name).is_ok()
    }

    /// True if Redis says where all its keys are, and there is at least one such place.
    pub(super) fn is_keyed(&self) -> bool {
        !self.places.is_empty()
    }

    /// True if some of its keys are at places that Redis does not state.
    pub(super) fn is_incomplete(&self) -> bool {
        self.places.iter().any(|place| matches!(place, KeySpec::Unknown))
    }

    /// The distance between two keys, if all keys from the first word on are alike.
    pub(super) fn step(&self) -> Option<usize> {
        match self.places.as_slice() {
            [KeySpec::Known(Begin::Index(1), Find::Range(-1, step, 0))] => Some(*step),
            _ => None,
        }
    }

    /// Calls `each` with the index of each key among `words`.
    pub(super) fn keys(&self, words: &[&[u8]], mut each: impl FnMut(usize)) {
        for place in &self.places {
            let KeySpec::Known(begin, find) = place else { continue };
            let first = match *begin {
                Begin::Index(at) => at,
                Begin::Keyword(word, from) => {
                    let found =
                        words.iter().skip(from).position(|one| one.eq_ignore_ascii_case(word.as_bytes()));
                    let Some(found) = found else { continue };
                    from + found + 1
                }
            };
            let (first, end, step) = match *find {
                Find::Range(last, step, _) if last >= 0 => (first, first + last.unsigned_abs() + 1, step),
                Find::Range(last, step, 0) => {
                    (first, (words.len() + 1).saturating_sub(last.unsigned_abs()), step)
                }
                Find::Range(_, step, part) => (first, first + words.len().saturating_sub(first) / part, step),
                Find::Count(at, offset, step) => {
                    let count = words.get(first + at).and_then(|digits| number(digits)).unwrap_or(0);
                    let first = first + offset;
                    (first, first.saturating_add(count.saturating_mul(step)), step)
                }
            };
            (first..end.min(words.len())).step_by(step.max(1)).for_each(&mut each);
        }
    }
}

/// A decimal number.
pub(super) fn number(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

static TABLE: LazyLock<Vec<Command>> = LazyLock::new(|| {
    let lines = include_str!("commands.txt").lines().filter(|line| !line.starts_with('#'));
    let mut table: Vec<Command> = lines.filter_map(command).collect();
    table.sort_unstable_by_key(|command| command.name);
    table
});

static CONTAINERS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let mut names: Vec<&str> =
        TABLE.iter().filter_map(|command| Some(command.name.split_once('|')?.0)).collect();
    names.dedup();
    names
});

fn command(line: &'static str) -> Option<Command> {
    let mut words = line.split(' ');
    let (name, flags, request, response) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let places = words.map(|place| key_spec(place).unwrap_or(KeySpec::Unknown)).collect();
    Some(Command { name, blocks: flags.contains('b'), request, response, places })
}

fn key_spec(text: &'static str) -> Option<KeySpec> {
    let (begin, find) = text.split_once(':')?;
    let begin = match begin.split_at_checked(1)? {
        ("i", at) => Begin::Index(at.parse().ok()?),
        (_, rest) => {
            let (word, from) = rest.split_once('@')?;
            Begin::Keyword(word, from.parse().ok()?)
        }
    };
    let (kind, numbers) = find.split_at_checked(1)?;
    let mut numbers = numbers.split(',').map(|digits| digits.parse::<isize>().ok());
    let (one, two, three) = (numbers.next()??, numbers.next()??, numbers.next()??);
    let find = match kind {
        "r" => Find::Range(one, two.unsigned_abs(), three.unsigned_abs()),
        _ => Find::Count(one.unsigned_abs(), two.unsigned_abs(), three.unsigned_abs()),
    };
    Some(KeySpec::Known(begin, find))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_read() {
        let lines = include_str!("commands.txt").lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(TABLE.len(), lines);
        assert!(TABLE.is_sorted_by(|a, b| a.name < b.name));
        assert!(lines > 300, "{lines}");
        let unknown: Vec<&str> = TABLE.iter().filter(|one| one.is_incomplete()).map(|one| one.name).collect();
        assert_eq!(unknown, ["MIGRATE", "SORT", "SORT_RO"]);
    }

    #[test]
    fn keys_are_found_where_redis_says() {
        for (text, expected) in [
            ("GET a", "a"),
            ("MSET a 1 b 2", "a b"),
            ("BLPOP a b 0", "a b"),
            ("BITOP AND d a b", "d a b"),
            ("ZUNIONSTORE d 2 a b WEIGHTS 1 2", "d a b"),
            ("XREAD COUNT 2 STREAMS a b 0 0", "a b"),
            ("XREADGROUP GROUP g c STREAMS a >", "a"),
            ("GEORADIUS a 1 2 3 km COUNT 3 STORE b", "a b"),
            ("EVAL s 2 a b c", "a b"),
            ("EVAL s 9 a b", "a b"),
            ("EVAL s 0 a", ""),
            ("OBJECT|ENCODING x a", "a"),
            ("LMPOP 1 a LEFT", "a"),
        ] {
            let words: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
            let mut found = Vec::new();
            Command::named(words[0])
                .unwrap()
                .keys(&words, |at| found.push(std::str::from_utf8(words[at]).unwrap()));
            assert_eq!(found.join(" "), expected, "{text}");
        }
    }
}
