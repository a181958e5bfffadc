//! Redis' commands: their keys, and the members each concerns.
//!
//! The table of [`commands.txt`](table) holds what Redis states of its commands. This module adds
//! what a client's connection to several members makes of them.

pub(crate) mod gather;
pub(crate) mod sites;
mod table;
#[cfg(test)]
mod tests;

use redis_protocol::resp2::decode::decode_range;
use redis_protocol::resp2::types::RangeFrame;

pub(crate) use gather::{Gather, Part};
use table::Command;

/// The treatment of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action<'f> {
    /// An empty command, which has no answer.
    Nothing,
    /// Send it to the member of this key's hash.
    Keyed {
        hash: u64,
        blocks: bool,
    },
    /// Send it to any member.
    Anywhere,
    /// Its keys, from the first word on with this step, are at several members.
    Split {
        step: usize,
        gather: Gather,
    },
    /// It concerns all members.
    All {
        gather: Gather,
        blocks: bool,
    },
    /// A `SCAN` at this member, from this cursor of it on.
    Scan {
        at: usize,
        cursor: u64,
    },
    /// It sets the connection up, and goes to every member; the last one of each kind is in force.
    Setup(Setup),
    Multi,
    Exec,
    Discard,
    Unwatch,
    /// `WATCH` of keys at the member of this hash.
    Watch(u64),
    /// A subscription to channels at the member of this hash.
    Subscribe(u64),
    Unsubscribe,
    /// The client ends the session.
    Quit,
    /// It cannot be carried: the error for the client.
    Refused {
        why: &'static str,
        name: &'f [u8],
        ends: bool,
    },
}

/// Kinds of commands that set a connection up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Setup {
    Auth,
    Hello,
    Select,
    Name,
}

/// The members of keys.
pub(crate) trait Homes {
    /// The hash of a key, which decides on its member.
    fn hash(&self, key: &[u8]) -> u64;
    /// The member of a hash; `None` if any member will do, since all are replicas.
    fn home(&self, hash: u64) -> Option<usize>;
    /// True if all keys are at one member.
    fn is_one(&self) -> bool;
}

/// The words of a command; `None` if the frame is not an array of bulk strings.
pub(crate) fn words(frame: &[u8]) -> Option<Vec<&[u8]>> {
    if frame.starts_with(b"*-") {
        return Some(Vec::new());
    }
    match decode_range(frame) {
        Ok(Some((RangeFrame::Array(words), _))) => words
            .iter()
            .map(|word| match word {
                RangeFrame::BulkString((start, end)) => frame.get(*start..*end),
                _ => None,
            })
            .collect(),
        _ => None,
    }
}

/// The words of an inline command, a line with words in quotes as `redis-cli` takes them; `None` if
/// a quote has no end.
pub(crate) fn inline_words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut words, mut rest) = (Vec::new(), line.trim_ascii());
    while !rest.is_empty() {
        let (word, after) = match rest.first() {
            Some(&quote @ (b'"' | b'\'')) => quoted(rest.get(1..)?, quote)?,
            _ => {
                let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
                (rest[..end].to_vec(), &rest[end..])
            }
        };
        if after.first().is_some_and(|byte| !byte.is_ascii_whitespace()) {
            return None;
        }
        words.push(word);
        rest = after.trim_ascii_start();
    }
    Some(words)
}

/// A word up to its closing quote, and what follows it.
fn quoted(text: &[u8], quote: u8) -> Option<(Vec<u8>, &[u8])> {
    let (mut word, mut at) = (Vec::new(), 0);
    loop {
        let byte = *text.get(at)?;
        at += 1;
        match byte {
            _ if byte == quote => return Some((word, &text[at..])),
            b'\\' if quote == b'"' => {
                let hex = text.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
                let hex = hex.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                match (*text.get(at)?, hex) {
                    (b'x', Some(byte)) => {
                        word.push(byte);
                        at += 2;
                    }
                    (b'n', _) => word.push(b'\n'),
                    (b'r', _) => word.push(b'\r'),
                    (b't', _) => word.push(b'\t'),
                    (b'b', _) => word.push(8),
                    (b'a', _) => word.push(7),
                    (other, _) => word.push(other),
                }
                at += 1;
            }
            b'\\' if text.get(at) == Some(&quote) => {
                word.push(quote);
                at += 1;
            }
            byte => word.push(byte),
        }
    }
}

/// Decides on the treatment of a command.
pub(crate) fn classify<'f>(words: &[&'f [u8]], homes: &impl Homes) -> Action<'f> {
    let Some(&name) = words.first() else { return Action::Nothing };
    let refused = |why, ends| Action::Refused { why, name, ends };
    let mut upper = [0; LONGEST];
    let Some(mut command) = capitals(&mut upper, &[name]).and_then(Command::named) else {
        return refused(UNKNOWN, false);
    };
    if command.has_subcommands()
        && let Some(&sub) = words.get(1)
    {
        let Some(found) = capitals(&mut upper, &[name, sub]).and_then(Command::named) else {
            return refused(UNKNOWN, false);
        };
        command = found;
    }
    match command.name {
        "AUTH" => Action::Setup(Setup::Auth),
        "HELLO" => Action::Setup(Setup::Hello),
        "SELECT" => Action::Setup(Setup::Select),
        "CLIENT|SETNAME" => Action::Setup(Setup::Name),
        "QUIT" => Action::Quit,
        // The member refuses it in its own words, and remembers that in a transaction.
        "MULTI" | "EXEC" | "DISCARD" | "UNWATCH" if words.len() > 1 => Action::Anywhere,
        "MULTI" => Action::Multi,
        "EXEC" => Action::Exec,
        "DISCARD" => Action::Discard,
        "UNWATCH" => Action::Unwatch,
        "UNSUBSCRIBE" | "SUNSUBSCRIBE" | "PUNSUBSCRIBE" => Action::Unsubscribe,
        "SUBSCRIBE" | "SSUBSCRIBE" => subscription(words, homes, Some),
        "PSUBSCRIBE" => subscription(words, homes, |pattern| literal_tag(pattern, b"*?[\\")),
        "PUBLISH" => match words.get(1) {
            Some(channel) => Action::Keyed { hash: homes.hash(channel), blocks: false },
            None => Action::Anywhere,
        },
        "SCAN" => match words.get(1).and_then(|digits| gather::cursor(digits)) {
            Some((at, cursor)) => Action::Scan { at, cursor },
            None => Action::Anywhere,
        },
        "CLIENT|REPLY" | "MONITOR" | "SYNC" | "PSYNC" | "REPLCONF" | "RESET" => refused(STATE, true),
        "READONLY"
        | "READWRITE"
        | "ASKING"
        | "CLIENT|TRACKING"
        | "CLIENT|CACHING"
        | "CLIENT|GETREDIR"
        | "CLIENT|TRACKINGINFO"
        | "CLIENT|NO-EVICT" => refused(STATE, false),
        "SORT" | "SORT_RO" if !sort_stays(words, homes) => refused(SORT, false),
        "PING" | "ECHO" | "TIME" | "INFO" | "LOLWUT" | "COMMAND" | "ROLE" | "LASTSAVE" | "CONFIG|GET"
        | "CLIENT|GETNAME" | "CLIENT|ID" | "CLIENT|INFO" | "ACL|WHOAMI" | "ACL|CAT" | "ACL|LIST"
        | "ACL|USERS" | "ACL|GETUSER" | "ACL|DRYRUN" | "ACL|GENPASS" | "FUNCTION|LIST" | "FUNCTION|DUMP" => {
            Action::Anywhere
        }
        name if name.starts_with("COMMAND|") || name.ends_with("|HELP") => Action::Anywhere,
        "ACL|SETUSER" | "ACL|DELUSER" | "ACL|LOAD" | "ACL|SAVE" | "CONFIG|RESETSTAT" | "CONFIG|REWRITE"
        | "SAVE" | "BGSAVE" | "BGREWRITEAOF" | "SWAPDB" => {
            Action::All { gather: Gather::AllSucceeded, blocks: false }
        }
        "KEYS" => Action::All { gather: Gather::Append, blocks: false },
        name if command.is_incomplete() && !name.starts_with("SORT") => refused(ALL, false),
        _ if command.is_keyed() => keyed(command, words, homes),
        // A command with subcommands and without one, which any member refuses in its own words.
        _ if command.has_subcommands() => Action::Anywhere,
        name if command.request.starts_with("all_") => match gathering(command.response) {
            Some(gather) => Action::All { gather, blocks: name == "WAIT" },
            None => refused(ALL, false),
        },
        _ => refused(ALL, false),
    }
}

fn keyed<'f>(command: &Command, words: &[&'f [u8]], homes: &impl Homes) -> Action<'f> {
    let name = words.first().copied().unwrap_or_default();
    let mut first: Option<(u64, Option<usize>)> = None;
    let mut apart = false;
    command.keys(words, |at| {
        let hash = homes.hash(words[at]);
        match first {
            None => first = Some((hash, None)),
            Some((one, _)) if one == hash => {}
            Some((one, home)) => {
                let home = home.or_else(|| homes.home(one));
                first = Some((one, home));
                apart |= homes.home(hash) != home;
            }
        }
    });
    match (first, command.step(), command.name) {
        // Any member refuses a command without its key in its own words; a script may do more.
        (None, ..) if command.name.starts_with("EVAL") || command.name.starts_with("FCALL") => {
            match words.get(2).and_then(|digits| table::number(digits)) {
                Some(0) => Action::Refused { why: KEYLESS, name, ends: false },
                _ => Action::Anywhere,
            }
        }
        (None, ..) => Action::Anywhere,
        (Some((hash, _)), _, "WATCH") if !apart => Action::Watch(hash),
        (Some(_), _, "WATCH") => Action::Refused { why: APART, name, ends: true },
        (Some((hash, _)), ..) if !apart => Action::Keyed { hash, blocks: command.blocks },
        // `MSETNX` sets all keys or none, which one member alone can do.
        (_, Some(step), of)
            if command.request == "multi_shard"
                && of != "MSETNX"
                && (words.len() - 1).is_multiple_of(step) =>
        {
            let gather = if of == "MGET" { Some(Gather::Values) } else { gathering(command.response) };
            gather.map_or(Action::Refused { why: APART, name, ends: false }, |gather| Action::Split {
                step,
                gather,
            })
        }
        _ => Action::Refused { why: APART, name, ends: false },
    }
}

fn gathering(response: &str) -> Option<Gather> {
    match response {
        "all_succeeded" => Some(Gather::AllSucceeded),
        "one_succeeded" => Some(Gather::OneSucceeded),
        "agg_sum" => Some(Gather::Sum),
        "agg_min" => Some(Gather::Least),
        "agg_logical_and" => Some(Gather::LeastOfEach),
        _ => None,
    }
}

/// A subscription; `fixed` returns the part of a channel or pattern that decides on its member.
fn subscription<'f>(
    words: &[&'f [u8]],
    homes: &impl Homes,
    fixed: impl Fn(&'f [u8]) -> Option<&'f [u8]>,
) -> Action<'f> {
    let Some((name, channels)) = words.split_first() else { return Action::Nothing };
    let hashes = channels.iter().map(|channel| fixed(channel).map(|fixed| homes.hash(fixed)));
    let (mut first, mut apart) = (None, false);
    for hash in hashes {
        match (first, hash) {
            (_, None) if homes.is_one() => first = Some(0),
            (_, None) => apart = true,
            (None, Some(hash)) => first = Some(hash),
            (Some(one), Some(hash)) => apart |= homes.home(one) != homes.home(hash),
        }
    }
    match (first, apart) {
        _ if channels.is_empty() => Action::Anywhere,
        (Some(hash), false) => Action::Subscribe(hash),
        _ => Action::Refused { why: CHANNELS, name, ends: true },
    }
}

/// True if all keys of a `SORT` are at one member: the list, the destination, and the keys that its
/// patterns name, which must have a hash tag before their first `*`.
fn sort_stays(words: &[&[u8]], homes: &impl Homes) -> bool {
    let Some(home) = words.get(1).map(|key| homes.home(homes.hash(key))) else { return true };
    let stays = |key: &[u8]| homes.home(homes.hash(key)) == home;
    let mut at = 2;
    while let (Some(word), Some(value)) = (words.get(at), words.get(at + 1)) {
        let looks_up = value.contains(&b'*');
        let fine = if word.eq_ignore_ascii_case(b"STORE") {
            stays(value)
        } else if looks_up && (word.eq_ignore_ascii_case(b"BY") || word.eq_ignore_ascii_case(b"GET")) {
            home.is_none() || literal_tag(value, b"*").is_some_and(stays)
        } else if word.eq_ignore_ascii_case(b"LIMIT") {
            at += 3;
            continue;
        } else {
            at += 1;
            continue;
        };
        if !fine {
            return false;
        }
        at += 2;
    }
    true
}

/// The start of a pattern up to its first `wild` byte, if it has a whole hash tag: all keys that
/// match have this tag.
fn literal_tag<'p>(pattern: &'p [u8], wild: &[u8]) -> Option<&'p [u8]> {
    let end = pattern.iter().position(|byte| wild.contains(byte)).unwrap_or(pattern.len());
    let literal = &pattern[..end];
    (end == pattern.len() || tag(literal).len() < literal.len()).then_some(literal)
}

/// The part of a key that is hashed: what the first pair of braces encloses, as in Redis Cluster,
/// or all of it.
pub(crate) fn tag(key: &[u8]) -> &[u8] {
    let Some(open) = memchr::memchr(b'{', key) else { return key };
    match memchr::memchr(b'}', &key[open + 1..]) {
        None | Some(0) => key,
        Some(len) => &key[open + 1..open + 1 + len],
    }
}

/// `words` in capitals, with `|` between them.
fn capitals<'b>(into: &'b mut [u8; LONGEST], words: &[&[u8]]) -> Option<&'b [u8]> {
    let mut len = 0;
    for (at, word) in words.iter().enumerate() {
        if at > 0 {
            *into.get_mut(len)? = b'|';
            len += 1;
        }
        into.get_mut(len..len + word.len())?.copy_from_slice(word);
        len += word.len();
    }
    let name = &mut into[..len];
    name.make_ascii_uppercase();
    Some(name)
}

/// A command of these words, as an array of bulk strings.
pub(crate) fn command<'w>(words: impl ExactSizeIterator<Item = &'w [u8]>) -> Vec<u8> {
    let mut frame = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        frame.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        frame.extend_from_slice(word);
        frame.extend_from_slice(b"\r\n");
    }
    frame
}

/// An error in RESP, in one line.
pub(crate) fn error(message: &str) -> Vec<u8> {
    let line: String = message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("-ERR {line}\r\n").into_bytes()
}

/// The user of a set-up command: `AUTH user password`, `HELLO 3 AUTH user password`.
pub(crate) fn user(frame: &[u8]) -> Option<String> {
    let words = words(frame)?;
    let name = match words.as_slice() {
        [auth, user, _] if auth.eq_ignore_ascii_case(b"AUTH") => user,
        [hello, _, rest @ ..] if hello.eq_ignore_ascii_case(b"HELLO") => {
            let at = rest.iter().position(|word| word.eq_ignore_ascii_case(b"AUTH"))?;
            rest.get(at + 1)?
        }
        _ => return None,
    };
    std::str::from_utf8(name).ok().map(str::to_owned)
}

const UNKNOWN: &str = "is not a command that tollway switch knows";
const APART: &str =
    "has keys at several members: give them one hash tag, as in {user1}.name and {user1}.mail";
const CHANNELS: &str = "names channels at several members: give them one hash tag, as in {news}.sport and {news}.*, or use a connection each";
const SORT: &str =
    "names keys at several members: give the list, STORE, BY and GET one hash tag, as in {t}.list and {t}.*";
const KEYLESS: &str = "has no key that decides on its member: name at least one";
const ALL: &str = "concerns all members: send it to each of them";
const STATE: &str = "binds a connection to one server, which tollway switch does not support";
/// The longest name of a command.
const LONGEST: usize = 32;
