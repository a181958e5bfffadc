//! Redis' commands: their keys, the set-up commands, and those that cannot be spread.

use redis_protocol::resp2::decode::decode_range;
use redis_protocol::resp2::types::RangeFrame;

/// The treatment of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RedisCommand<'f> {
    /// Send it to the member with this key.
    Keyed(&'f [u8]),
    /// Send it to any member.
    Anywhere,
    /// It sets the connection up, and goes to every member; the last one of each kind is in force.
    Setup(Setup),
    /// It cannot be spread: the error for the client.
    Refused(String),
    /// The client ends the session.
    Quit,
}

/// Kinds of commands that set a connection up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Setup {
    Auth,
    Hello,
    Select,
    Name,
}

/// The places of a command's keys: words counted from 0, the command's name first.
#[derive(Clone, Copy)]
enum Keys {
    /// The word at this index.
    One(usize),
    /// From the first index on, with the second number as step.
    All(usize, usize),
    /// The first two words after the name.
    Two,
    /// A count at this index, and that many keys after it.
    Counted(usize),
}

/// Reads a command, which is a whole frame. `place` returns the member of a key; a command with
/// keys at several members is refused.
pub(crate) fn read<'f>(frame: &'f [u8], place: impl Fn(&[u8]) -> Option<usize>) -> RedisCommand<'f> {
    let Ok(Some((RangeFrame::Array(words), _))) = decode_range(frame) else {
        return RedisCommand::Refused("a command is an array of bulk strings".into());
    };
    let word = |at: usize| match words.get(at) {
        Some(RangeFrame::BulkString((start, end))) => frame.get(*start..*end),
        _ => None,
    };
    if (0..words.len()).any(|at| word(at).is_none()) {
        return RedisCommand::Refused("a command is an array of bulk strings".into());
    }
    let Some(name) = word(0) else { return RedisCommand::Refused("an empty command".into()) };
    let mut upper = [0u8; LONGEST];
    let Some(upper) = upper.get_mut(..name.len()) else {
        return RedisCommand::Refused("an unknown command".into());
    };
    upper.copy_from_slice(name);
    upper.make_ascii_uppercase();
    let sub = word(1).map(<[u8]>::to_ascii_uppercase).unwrap_or_default();
    match classify(upper, &sub) {
        Class::Keys(keys) => keyed(keys, words.len(), word, place),
        Class::Anywhere => RedisCommand::Anywhere,
        Class::Setup(setup) => RedisCommand::Setup(setup),
        Class::Quit => RedisCommand::Quit,
        Class::Refused(why) => {
            RedisCommand::Refused(format!("'{}' {why}", String::from_utf8_lossy(upper).escape_default()))
        }
    }
}

fn keyed<'f>(
    keys: Keys,
    words: usize,
    word: impl Fn(usize) -> Option<&'f [u8]>,
    place: impl Fn(&[u8]) -> Option<usize>,
) -> RedisCommand<'f> {
    let (first, step, end) = match keys {
        Keys::One(at) => (at, 1, (at + 1).min(words)),
        Keys::Two => (1, 1, words.min(3)),
        Keys::All(first, step) => (first, step, words),
        Keys::Counted(at) => {
            let count = word(at).and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<usize>().ok());
            (at + 1, 1, at.saturating_add(1).saturating_add(count.unwrap_or(0)).min(words))
        }
    };
    // A command without its key is one that any member refuses in its own words.
    let Some(key) = word(first).filter(|_| first < end) else { return RedisCommand::Anywhere };
    let home = place(key);
    let mut others = (first..end).step_by(step).filter_map(&word);
    if others.any(|other| place(other) != home) {
        return RedisCommand::Refused(
            "its keys are at several members, and tollway switch sends a command to only one".into(),
        );
    }
    RedisCommand::Keyed(key)
}

enum Class {
    Keys(Keys),
    Anywhere,
    Setup(Setup),
    Quit,
    Refused(&'static str),
}

fn classify(name: &[u8], sub: &[u8]) -> Class {
    const ALL: &str = "concerns all members: send it to each of them";
    const STATE: &str = "binds a connection to one server, which tollway switch does not support";
    const BLOCKS: &str = "blocks, and would delay answers of other members";
    match name {
        b"AUTH" => Class::Setup(Setup::Auth),
        b"HELLO" => Class::Setup(Setup::Hello),
        b"SELECT" => Class::Setup(Setup::Select),
        b"CLIENT" => match sub {
            b"SETNAME" => Class::Setup(Setup::Name),
            b"SETINFO" | b"GETNAME" | b"ID" | b"INFO" | b"HELP" => Class::Anywhere,
            _ => Class::Refused(STATE),
        },
        b"QUIT" => Class::Quit,
        b"PING" | b"ECHO" | b"TIME" | b"INFO" | b"LOLWUT" | b"COMMAND" | b"ACL" | b"LASTSAVE" | b"ROLE" => {
            Class::Anywhere
        }
        b"CONFIG" if sub == b"GET" => Class::Anywhere,
        b"CONFIG" | b"FLUSHALL" | b"FLUSHDB" | b"DBSIZE" | b"KEYS" | b"SCAN" | b"RANDOMKEY" | b"SAVE"
        | b"BGSAVE" | b"BGREWRITEAOF" | b"SHUTDOWN" | b"DEBUG" | b"SWAPDB" | b"SLOWLOG" | b"LATENCY"
        | b"SCRIPT" | b"FUNCTION" | b"MODULE" | b"CLUSTER" | b"REPLICAOF" | b"SLAVEOF" | b"FAILOVER"
        | b"PUBLISH" | b"SPUBLISH" | b"PUBSUB" | b"MIGRATE" | b"WAIT" | b"WAITAOF" => Class::Refused(ALL),
        b"MULTI" | b"EXEC" | b"DISCARD" | b"WATCH" | b"UNWATCH" | b"SUBSCRIBE" | b"UNSUBSCRIBE"
        | b"PSUBSCRIBE" | b"PUNSUBSCRIBE" | b"SSUBSCRIBE" | b"SUNSUBSCRIBE" | b"MONITOR" | b"SYNC"
        | b"PSYNC" | b"REPLCONF" | b"RESET" | b"READONLY" | b"READWRITE" | b"ASKING" => Class::Refused(STATE),
        b"BLPOP" | b"BRPOP" | b"BRPOPLPUSH" | b"BLMOVE" | b"BLMPOP" | b"BZPOPMIN" | b"BZPOPMAX"
        | b"BZMPOP" => Class::Refused(BLOCKS),
        b"XREAD" | b"XREADGROUP" => {
            Class::Refused("may block, and has its keys at the end: tollway switch does not support it")
        }
        b"MGET" | b"DEL" | b"UNLINK" | b"EXISTS" | b"TOUCH" | b"SINTER" | b"SUNION" | b"SDIFF"
        | b"SINTERSTORE" | b"SUNIONSTORE" | b"SDIFFSTORE" | b"PFCOUNT" | b"PFMERGE" => {
            Class::Keys(Keys::All(1, 1))
        }
        b"MSET" | b"MSETNX" => Class::Keys(Keys::All(1, 2)),
        b"RENAME" | b"RENAMENX" | b"COPY" | b"SMOVE" | b"RPOPLPUSH" | b"LMOVE" | b"LCS"
        | b"GEOSEARCHSTORE" | b"ZRANGESTORE" => Class::Keys(Keys::Two),
        b"BITOP" => Class::Keys(Keys::All(2, 1)),
        b"EVAL" | b"EVALSHA" | b"EVAL_RO" | b"EVALSHA_RO" | b"FCALL" | b"FCALL_RO" => {
            Class::Keys(Keys::Counted(2))
        }
        b"ZUNION" | b"ZINTER" | b"ZDIFF" | b"SINTERCARD" | b"ZINTERCARD" | b"LMPOP" | b"ZMPOP" => {
            Class::Keys(Keys::Counted(1))
        }
        b"ZUNIONSTORE" | b"ZINTERSTORE" | b"ZDIFFSTORE" => {
            Class::Refused("has keys in two places: tollway switch does not support it")
        }
        b"OBJECT" | b"MEMORY" | b"XINFO" | b"XGROUP" => Class::Keys(Keys::One(2)),
        // All others, unknown commands included, have one key right after the name.
        _ => Class::Keys(Keys::One(1)),
    }
}

/// An error in RESP, in one line.
pub(crate) fn error(message: &str) -> Vec<u8> {
    let line: String = message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("-ERR {line}\r\n").into_bytes()
}

/// The user of a set-up command: `AUTH user password`, `HELLO 3 AUTH user password`.
pub(crate) fn user(frame: &[u8]) -> Option<String> {
    let Ok(Some((RangeFrame::Array(words), _))) = decode_range(frame) else { return None };
    let words: Vec<&[u8]> = words
        .iter()
        .filter_map(|word| match word {
            RangeFrame::BulkString((start, end)) => frame.get(*start..*end),
            _ => None,
        })
        .collect();
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

/// The longest name of a command.
const LONGEST: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn command(words: &str) -> Vec<u8> {
        let words: Vec<&str> = words.split(' ').collect();
        let mut frame = format!("*{}\r\n", words.len());
        for word in words {
            frame += &format!("${}\r\n{word}\r\n", word.len());
        }
        frame.into_bytes()
    }

    /// Keys live where their last letter says.
    fn place(key: &[u8]) -> Option<usize> {
        key.last().map(|&byte| usize::from(byte))
    }

    #[test]
    fn commands_go_where_their_key_is() {
        for (text, key) in [
            ("GET one", "one"),
            ("set one 2", "one"),
            ("MGET a-x b-x c-x", "a-x"),
            ("MSET a-x 1 b-x 2", "a-x"),
            ("RENAME a-x b-x", "a-x"),
            ("LMOVE a-x b-x LEFT RIGHT", "a-x"),
            ("EVAL script 2 a-x b-x other", "a-x"),
            ("OBJECT ENCODING one", "one"),
            ("ZUNION 2 a-x b-x WEIGHTS 1 2", "a-x"),
            ("JSON.GET one", "one"),
        ] {
            assert_eq!(read(&command(text), place), RedisCommand::Keyed(key.as_bytes()), "{text}");
        }
        for text in ["PING", "INFO server", "COMMAND DOCS", "CONFIG GET save", "GET", "EVAL script 0"] {
            assert_eq!(read(&command(text), place), RedisCommand::Anywhere, "{text}");
        }
        for (text, setup) in [
            ("AUTH me secret", Setup::Auth),
            ("hello 3", Setup::Hello),
            ("SELECT 4", Setup::Select),
            ("CLIENT SETNAME x", Setup::Name),
        ] {
            assert_eq!(read(&command(text), place), RedisCommand::Setup(setup), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_spread_is_refused_in_words() {
        for (text, why) in [
            ("MGET a b", "several members"),
            ("MSET a 1 b 2", "several members"),
            ("RENAME a b", "several members"),
            ("EVAL script 2 a b", "several members"),
            ("MULTI", "binds a connection"),
            ("SUBSCRIBE news", "binds a connection"),
            ("CLIENT TRACKING ON", "binds a connection"),
            ("BLPOP a 0", "blocks"),
            ("KEYS *", "all members"),
            ("FLUSHALL", "all members"),
            ("CONFIG SET save x", "all members"),
        ] {
            match read(&command(text), place) {
                RedisCommand::Refused(said) => assert!(said.contains(why), "{text}: {said}"),
                other => panic!("{text}: {other:?}"),
            }
        }
        assert!(matches!(read(b"+OK\r\n", place), RedisCommand::Refused(_)));
        assert!(matches!(read(b"*1\r\n:1\r\n", place), RedisCommand::Refused(_)));
        assert_eq!(error("a\r\nb"), b"-ERR a  b\r\n");
    }

    #[test]
    fn the_user_of_a_set_up_is_known() {
        assert_eq!(user(&command("AUTH me secret")).as_deref(), Some("me"));
        assert_eq!(user(&command("HELLO 3 AUTH me secret")).as_deref(), Some("me"));
        assert_eq!(user(&command("AUTH secret")), None);
        assert_eq!(user(&command("HELLO 3")), None);
    }
}
