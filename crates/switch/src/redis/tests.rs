use super::*;

fn action(text: &str) -> Action<'_> {
    let words: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
    classify(&words, &ByLastLetter)
}

/// Keys live where the last letter of their tag says.
struct ByLastLetter;

impl Homes for ByLastLetter {
    fn hash(&self, key: &[u8]) -> u64 {
        tag(key).last().map_or(0, |&byte| u64::from(byte))
    }

    fn home(&self, hash: u64) -> Option<usize> {
        Some(hash as usize)
    }

    fn is_one(&self) -> bool {
        false
    }
}

#[test]
fn commands_go_where_their_key_is() {
    let at = |letter: u8, blocks| Action::Keyed { hash: u64::from(letter), blocks };
    for (text, expected) in [
        ("GET one", at(b'e', false)),
        ("set one 2", at(b'e', false)),
        ("MGET a-x b-x c-x", at(b'x', false)),
        ("MSETNX a-x 1 b-x 2", at(b'x', false)),
        ("RENAME a-x b-x", at(b'x', false)),
        ("EVAL script 2 a-x b-x other", at(b'x', false)),
        ("OBJECT ENCODING one", at(b'e', false)),
        ("ZUNIONSTORE {x}y 2 a-x b-x WEIGHTS 1 2", at(b'x', false)),
        ("BLPOP a-x b-x 0", at(b'x', true)),
        ("XREAD BLOCK 0 STREAMS a-x b-x 0 0", at(b'x', true)),
        ("SORT l BY nosort GET # STORE {l}d", at(b'l', false)),
        ("SORT {t}l LIMIT 0 5 BY {t}w_*->x GET {t}*", at(b't', false)),
        ("PUBLISH news x", at(b's', false)),
        ("WATCH a-x b-x", Action::Watch(u64::from(b'x'))),
        ("SUBSCRIBE news", Action::Subscribe(u64::from(b's'))),
        ("PSUBSCRIBE {news}.*", Action::Subscribe(u64::from(b's'))),
    ] {
        assert_eq!(action(text), expected, "{text}");
    }
    for text in [
        "PING",
        "INFO server",
        "COMMAND DOCS",
        "CONFIG GET save",
        "GET",
        "EVAL script x",
        "CLIENT",
        "ACL CAT",
    ] {
        assert_eq!(action(text), Action::Anywhere, "{text}");
    }
    for (text, setup) in [
        ("AUTH me secret", Setup::Auth),
        ("hello 3", Setup::Hello),
        ("SELECT 4", Setup::Select),
        ("CLIENT SETNAME x", Setup::Name),
    ] {
        assert_eq!(action(text), Action::Setup(setup), "{text}");
    }
}

#[test]
fn commands_of_several_members_are_split_or_sent_to_all() {
    for (text, gather) in [
        ("MGET a b", Gather::Values),
        ("MSET a 1 b 2", Gather::AllSucceeded),
        ("DEL a b", Gather::Sum),
        ("UNLINK a b", Gather::Sum),
        ("EXISTS a b", Gather::Sum),
        ("TOUCH a b", Gather::Sum),
    ] {
        let step = if text.starts_with("MSET") { 2 } else { 1 };
        assert_eq!(action(text), Action::Split { step, gather }, "{text}");
    }
    for (text, gather) in [
        ("DBSIZE", Gather::Sum),
        ("KEYS *", Gather::Append),
        ("FLUSHALL ASYNC", Gather::AllSucceeded),
        ("SCRIPT LOAD x", Gather::AllSucceeded),
        ("SCRIPT EXISTS x", Gather::LeastOfEach),
        ("FUNCTION KILL", Gather::OneSucceeded),
        ("CONFIG SET save x", Gather::AllSucceeded),
        ("ACL SETUSER bob on", Gather::AllSucceeded),
    ] {
        assert_eq!(action(text), Action::All { gather, blocks: false }, "{text}");
    }
    assert_eq!(action("WAIT 1 0"), Action::All { gather: Gather::Least, blocks: true });
    assert_eq!(action("SCAN 259"), Action::Scan { at: 3, cursor: 1 });
}

#[test]
fn commands_that_cannot_be_carried_are_refused_with_a_remedy() {
    for (text, part, closes) in [
        ("MSETNX a 1 b 2", "hash tag", false),
        ("MSET a 1 b", "hash tag", false),
        ("RENAME a b", "hash tag", false),
        ("EVAL script 2 a b", "hash tag", false),
        ("EVAL script 0", "at least one", false),
        ("FCALL_RO f 0", "at least one", false),
        ("SORT l STORE d", "one hash tag", false),
        ("SORT l BY w_*", "one hash tag", false),
        ("SORT l GET {x}*", "one hash tag", false),
        ("GEORADIUS a 1 2 3 km STORE b", "hash tag", false),
        ("ZUNIONSTORE d 2 a b", "hash tag", false),
        ("WATCH a b", "hash tag", true),
        ("SUBSCRIBE a b", "hash tag", true),
        ("PSUBSCRIBE *", "hash tag", true),
        ("PSUBSCRIBE {a*}b", "hash tag", true),
        ("CLIENT REPLY OFF", "binds a connection", true),
        ("MONITOR", "binds a connection", true),
        ("CLIENT TRACKING ON", "binds a connection", false),
        ("CLIENT LIST", "all members", false),
        ("SLOWLOG GET", "all members", false),
        ("JSON.MGET a b $", "is not a command", false),
        ("CONFIG FROBNICATE", "is not a command", false),
        ("MIGRATE h 1 k 0 1", "all members", false),
    ] {
        match action(text) {
            Action::Refused { why, ends, .. } => {
                assert!(why.contains(part) && ends == closes, "{text}: {why}")
            }
            other => panic!("{text}: {other:?}"),
        }
    }
    assert_eq!(words(b"+OK\r\n"), None);
    assert_eq!(words(b"*1\r\n:1\r\n"), None);
    assert_eq!(words(b"*0\r\n"), Some(vec![]));
    assert_eq!(words(b"*-1\r\n"), Some(vec![]));
    assert_eq!(words(b"*-10\r\n"), Some(vec![]));
    assert_eq!(error("a\r\nb"), b"-ERR a  b\r\n");
}

#[test]
fn hash_tags_are_those_of_redis_cluster() {
    for (key, part) in
        [("{user}.name", "user"), ("x{a}{b}", "a"), ("{}a", "{}a"), ("{a", "{a"), ("a}b{c}", "c"), ("", "")]
    {
        assert_eq!(tag(key.as_bytes()), part.as_bytes(), "{key}");
    }
}

#[test]
fn the_user_of_a_set_up_is_known() {
    let frame = |text: &str| command(text.split(' ').map(str::as_bytes).collect::<Vec<_>>().into_iter());
    assert_eq!(user(&frame("AUTH me secret")).as_deref(), Some("me"));
    assert_eq!(user(&frame("HELLO 3 AUTH me secret")).as_deref(), Some("me"));
    assert_eq!(user(&frame("AUTH secret")), None);
    assert_eq!(user(&frame("HELLO 3")), None);
}
