//! Redis' commands between sites, where a front knows no members.
//!
//! A command goes to the member of its key, or without a key to any. One that concerns several
//! members, or the state of a connection, is answered with an error.

use tollway_proto::route::Hash;

use super::{Action, Homes, classify, error, tag, words};

/// The treatment of a command at a front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Onward {
    /// It has no answer.
    Nothing,
    /// Send it to the member of this key's hash, or to any.
    Send(Option<u64>),
    /// Answer it here.
    Answer(Vec<u8>),
    /// Answer it here, and end the session.
    End(Vec<u8>),
}

/// Decides on the treatment of a command.
pub(crate) fn onward(frame: &[u8]) -> Onward {
    let Some(words) = words(frame) else {
        return Onward::End(error("Protocol error: a command is an array of bulk strings"));
    };
    let name = words.first().copied().unwrap_or_default();
    let refused = |name: &[u8], why| error(&format!("'{}' {why}", String::from_utf8_lossy(name)));
    match classify(&words, &Apart) {
        Action::Nothing => Onward::Nothing,
        Action::Keyed { hash, blocks: false } => Onward::Send(Some(hash)),
        Action::Anywhere => Onward::Send(None),
        Action::Quit => Onward::End(b"+OK\r\n".to_vec()),
        Action::Split { .. } => Onward::Answer(refused(name, SPLIT)),
        Action::Refused { why, name, ends: false } => Onward::Answer(refused(name, why)),
        Action::Refused { why, name, ends: true } => Onward::End(refused(name, why)),
        // What follows would depend on its effect.
        Action::Multi | Action::Watch(_) | Action::Subscribe(_) => Onward::End(refused(name, SITES)),
        _ => Onward::Answer(refused(name, SITES)),
    }
}

/// Each hash is a member of its own.
struct Apart;

impl Homes for Apart {
    fn hash(&self, key: &[u8]) -> u64 {
        Hash::new([0; 16]).of(tag(key))
    }

    fn home(&self, hash: u64) -> Option<usize> {
        Some(hash as usize)
    }

    fn is_one(&self) -> bool {
        false
    }
}

const SPLIT: &str = "has keys that may be at several members: between sites, give them one hash tag";
const SITES: &str = "concerns a connection or several members: it is not carried between sites";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::command;

    #[test]
    fn commands_with_one_tag_go_on_and_others_are_answered_here() {
        let onward = |line: &str| {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            onward(&command(words.into_iter()))
        };
        let hash = |key: &[u8]| Onward::Send(Some(Apart.hash(key)));
        assert_eq!(onward("GET user1"), hash(b"user1"));
        assert_eq!(onward("MGET {u}a {u}b"), hash(b"u"));
        assert_eq!(onward("EVAL return 1 {u}a"), hash(b"u"));
        assert_eq!(onward("PING"), Onward::Send(None));
        for (line, part) in [
            ("MGET a b", "hash tag"),
            ("RENAME a b", "hash tag"),
            ("SELECT 1", "between sites"),
            ("BLPOP a 0", "between sites"),
            ("KEYS *", "between sites"),
            ("FLUSHALL", "between sites"),
            ("WHAT a", "is not a command"),
        ] {
            let Onward::Answer(text) = onward(line) else { panic!("{line}: {:?}", onward(line)) };
            assert!(String::from_utf8(text).unwrap().contains(part), "{line}");
        }
        for line in ["QUIT", "MULTI", "WATCH a", "SUBSCRIBE a", "MONITOR"] {
            assert!(matches!(onward(line), Onward::End(_)), "{line}");
        }
        assert_eq!(super::onward(b"*0\r\n"), Onward::Nothing);
    }
}
