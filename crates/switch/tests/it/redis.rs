//! Redis' commands through the switch, beside one server that has all keys.

use std::time::Duration;

use crate::common::resp::{RedisServer, Reply, RespClient, have};
use crate::common::*;
use tollway_switch::agent::Agent;

/// Three servers behind a switch, and one server for comparison.
struct Bench {
    servers: Vec<RedisServer>,
    agent: Agent,
}

impl Bench {
    fn start(name: &str, more: &str) -> Option<Bench> {
        have(&["redis-server"]).then(|| {
            let servers: Vec<_> = (0..3).map(|at| RedisServer::start(&format!("{name}-{at}"))).collect();
            let agent = Bench::switch(&servers, more);
            Bench { servers, agent }
        })
    }

    fn switch(servers: &[RedisServer], more: &str) -> Agent {
        let names = ["a", "b", "c"];
        let members: Vec<_> = names.into_iter().zip(servers.iter().map(|server| server.address)).collect();
        switch("resp", more, &members)
    }

    fn client(&self) -> RespClient {
        RespClient::to(self.agent.listen()[0])
    }

    /// The server that holds `key`.
    fn home(&self, key: &str) -> usize {
        self.client().call(&["SET", key, "here"]);
        let holds =
            |server: &RedisServer| RespClient::to(server.address).call(&["GET", key]) == Reply::bulk("here");
        let homes: Vec<usize> = (0..3).filter(|&at| holds(&self.servers[at])).collect();
        assert_eq!(homes.len(), 1, "one server holds {key}");
        homes[0]
    }

    /// Keys at two servers.
    fn apart(&self) -> (String, String) {
        let first = self.home("k0");
        let other = (1..).map(|at| format!("k{at}")).find(|key| self.home(key) != first);
        ("k0".to_owned(), other.unwrap())
    }
}

fn number(value: i64) -> Reply {
    Reply::Line(format!(":{value}"))
}

fn ok() -> Reply {
    Reply::Line("+OK".into())
}

#[test]
fn transactions_at_one_member_are_carried() {
    let Some(bench) = Bench::start("tx", "") else { return };
    let mut client = bench.client();
    let replies = client.pipeline(&[
        "MULTI",
        "PING",
        "SET {t}a 1",
        "INCR {t}a",
        "GET {t}b",
        "EXEC",
        "GET {t}a",
        "MULTI",
        "SET {t}a 9",
        "DISCARD",
        "GET {t}a",
        "EXEC",
    ]);
    let queued = || Reply::Line("+QUEUED".into());
    assert_eq!(replies[..5], [ok(), queued(), queued(), queued(), queued()]);
    assert_eq!(
        replies[5],
        Reply::Array(Some(vec![Reply::Line("+PONG".into()), ok(), number(2), Reply::Bulk(None)]))
    );
    assert_eq!(replies[6..11], [Reply::bulk("2"), ok(), queued(), ok(), Reply::bulk("2")]);
    assert_eq!(replies[11].error(), Some("ERR EXEC without MULTI"));
    // A change of a watched key by another client ends the transaction without effect.
    let mut other = bench.client();
    for (changes, expected) in [(true, Reply::Array(None)), (false, Reply::Array(Some(vec![ok()])))] {
        assert_eq!(client.call(&["WATCH", "{t}a"]), ok());
        if changes {
            other.call(&["SET", "{t}a", "theirs"]);
        }
        let replies = client.pipeline(&["GET elsewhere", "MULTI", "SET {t}a ours", "EXEC"]);
        assert_eq!(replies[3], expected);
    }
    assert_eq!(client.call(&["GET", "{t}a"]), Reply::bulk("ours"));
    // A mistake in a transaction is remembered, as Redis does.
    let replies = client.pipeline(&["MULTI", "GET", "SET {t}a no", "EXEC", "GET {t}a"]);
    assert!(replies[3].error().unwrap().starts_with("EXECABORT"), "{replies:?}");
    assert_eq!(replies[4], Reply::bulk("ours"));
}

#[test]
fn a_transaction_over_members_ends_the_session_and_changes_nothing() {
    let Some(bench) = Bench::start("apart", "") else { return };
    let (one, two) = bench.apart();
    // As go-redis sends it: the transaction at once, and the next commands before its answers.
    for commands in [
        vec![
            "MULTI".to_owned(),
            format!("SET {one} tx"),
            format!("GET {two}"),
            "EXEC".to_owned(),
            format!("SET {two} after"),
        ],
        vec![
            "MULTI".to_owned(),
            format!("SET {one} tx"),
            "FLUSHALL".to_owned(),
            "EXEC".to_owned(),
            format!("SET {two} after"),
        ],
        vec![
            "MULTI".to_owned(),
            format!("SET {one} tx"),
            "SELECT 3".to_owned(),
            "EXEC".to_owned(),
            format!("SET {two} after"),
        ],
        vec![format!("WATCH {one}"), format!("WATCH {two}"), format!("SET {two} after")],
        vec![format!("WATCH {one} {two}"), format!("SET {two} after")],
        vec!["MONITOR".to_owned(), format!("SET {two} after")],
        vec!["CLIENT REPLY OFF".to_owned(), format!("SET {two} after")],
    ] {
        let mut client = bench.client();
        let words: Vec<&str> = commands.iter().map(String::as_str).collect();
        let replies = client.pipeline(&words);
        let replies: Vec<Reply> = replies.into_iter().filter(|reply| *reply != Reply::End).collect();
        let (last, before) = replies.split_last().unwrap();
        assert!(last.error().is_some(), "{commands:?}: {replies:?}");
        assert!(before.iter().all(|reply| reply.error().is_none()), "{replies:?}");
        assert_eq!(client.reply(), Reply::End, "{commands:?}");
        let mut next = bench.client();
        assert_eq!(next.call(&["GET", &one]), Reply::bulk("here"), "{commands:?}");
        assert_eq!(next.call(&["GET", &two]), Reply::bulk("here"), "{commands:?}");
    }
}

#[test]
fn a_member_that_fails_in_a_transaction_ends_the_session() {
    let Some(mut bench) = Bench::start("lost", "") else { return };
    let home = bench.home("{t}a");
    let mut client = bench.client();
    assert_eq!(client.pipeline(&["MULTI", "SET {t}a tx"])[1], Reply::Line("+QUEUED".into()));
    bench.servers[home].kill();
    bench.servers[home].again();
    assert_eq!(client.rest(), []);
    let mut next = bench.client();
    eventually("the member serves again", || next.call(&["GET", "{t}a"]) == Reply::bulk("here"));
}

#[test]
fn subscriptions_at_one_member_are_carried() {
    let Some(bench) = Bench::start("sub", "[limits]\nanswer-time = \"300 ms\"") else { return };
    let (mut one, mut two) = (bench.client(), bench.client());
    let told = |client: &mut RespClient, kind: &str, channel: &str| {
        let reply = client.reply();
        assert_eq!(reply.array()[..2], [Reply::bulk(kind), Reply::bulk(channel)], "{reply:?}");
    };
    one.send(&["GET", "x"]);
    one.send(&["SUBSCRIBE", "{n}.a", "{n}.b"]);
    assert_eq!(one.reply(), Reply::Bulk(None));
    told(&mut one, "subscribe", "{n}.a");
    told(&mut one, "subscribe", "{n}.b");
    one.send(&["PSUBSCRIBE", "{n}.x*"]);
    told(&mut one, "psubscribe", "{n}.x*");
    // A subscriber that gets nothing for longer than an answer may take stays.
    assert!(one.is_silent(Duration::from_millis(700)));
    for (channel, kind) in [("{n}.a", "message"), ("{n}.b", "message"), ("{n}.xy", "pmessage")] {
        assert_eq!(two.call(&["PUBLISH", channel, "hello"]), number(1));
        assert_eq!(one.reply().array()[0], Reply::bulk(kind));
    }
    assert_eq!(two.call(&["PUBLISH", "{other}", "hello"]), number(0));
    one.send(&["UNSUBSCRIBE"]);
    for _ in 0..2 {
        assert_eq!(one.reply().array()[0], Reply::bulk("unsubscribe"));
    }
    let (a, b) = bench.apart();
    for commands in [vec!["SUBSCRIBE", &a, &b], vec!["PSUBSCRIBE", "*"]] {
        let mut client = bench.client();
        assert!(client.call(&commands).error().unwrap().contains("hash tag"));
        assert_eq!(client.reply(), Reply::End);
    }
}

#[test]
fn blocking_commands_wait_and_lose_nothing() {
    let Some(bench) = Bench::start("block", "[limits]\nanswer-time = \"300 ms\"") else { return };
    let mut waits = bench.client();
    waits.send(&["BLPOP", "{q}a", "{q}b", "0"]);
    waits.send(&["GET", "later"]);
    assert!(waits.is_silent(Duration::from_millis(900)), "longer than an answer may take");
    let mut other = bench.client();
    other.call(&["SET", "later", "1"]);
    assert_eq!(other.call(&["RPUSH", "{q}b", "x", "y"]), number(2));
    assert_eq!(waits.reply(), Reply::Array(Some(vec![Reply::bulk("{q}b"), Reply::bulk("x")])));
    // The command after it is executed after it.
    assert_eq!(waits.reply(), Reply::bulk("1"));
    // A client that leaves takes no element with it.
    waits.send(&["BLPOP", "{q}a", "0"]);
    assert!(waits.is_silent(Duration::from_millis(100)));
    drop(waits);
    eventually("the session has ended", || status(&bench.agent).sessions == 1);
    let home = bench.home("{q}");
    let mut direct = RespClient::to(bench.servers[home].address);
    eventually("the member waits for it no more", || {
        let Reply::Bulk(Some(info)) = direct.call(&["INFO", "clients"]) else { panic!() };
        String::from_utf8(info).unwrap().contains("blocked_clients:0")
    });
    other.call(&["RPUSH", "{q}a", "kept"]);
    assert_eq!(other.call(&["LPOP", "{q}a"]), Reply::bulk("kept"));
}

#[test]
fn keys_of_a_member_that_is_down_fail_and_come_back_with_it() {
    let Some(bench) = Bench::start("stay", "[limits]\nanswer-time = \"500 ms\"") else { return };
    let mut client = bench.client();
    let keys: Vec<String> = (0..60).map(|key| format!("key{key}")).collect();
    for key in &keys {
        assert_eq!(client.call(&["SET", key, "v1"]), ok());
    }
    let stopped = bench.home("key0");
    client.call(&["SET", "key0", "v1"]);
    bench.servers[stopped].signal("-STOP");
    let mut acknowledged = Vec::new();
    for key in &keys {
        match client.call(&["SET", key, "v2"]) {
            reply if reply == ok() => acknowledged.push(key),
            reply => assert!(reply.error().is_some(), "{reply:?}"),
        }
        match client.call(&["GET", key]) {
            Reply::Bulk(value) => assert_eq!(value.unwrap(), b"v2", "{key} is at another member"),
            reply => assert!(reply.error().unwrap().contains("member "), "{reply:?}"),
        }
    }
    assert!(acknowledged.len() > 10 && acknowledged.len() < 60, "{}", acknowledged.len());
    bench.servers[stopped].signal("-CONT");
    eventually("the member is up again", || client.call(&["GET", "key0"]).error().is_none());
    for key in acknowledged {
        assert_eq!(client.call(&["GET", key]), Reply::bulk("v2"));
    }
    // By choice, keys move.
    let moving = Bench::switch(&bench.servers, "on-failure = \"move\"\n[limits]\nanswer-time = \"500 ms\"");
    bench.servers[stopped].signal("-STOP");
    let mut client = RespClient::to(moving.listen()[0]);
    eventually("all keys are served", || keys.iter().all(|key| client.call(&["GET", key]).error().is_none()));
    bench.servers[stopped].signal("-CONT");
}

#[test]
fn a_member_that_answers_nothing_is_found_without_a_command() {
    let Some(bench) = Bench::start("ping", "[health]\nevery = \"50 ms\"\n[limits]\nanswer-time = \"300 ms\"")
    else {
        return;
    };
    bench.servers[1].signal("-STOP");
    eventually("it is down", || member(&status(&bench.agent), "b").state == "down");
    bench.servers[1].signal("-CONT");
    eventually("it is up", || member(&status(&bench.agent), "b").state == "up");
    assert!(
        status(&bench.agent)
            .members
            .iter()
            .all(|member| member.failures == u64::from(member.name == "b") || member.name == "b")
    );
}

#[test]
fn keys_stay_when_the_switch_starts_again_and_tags_bring_them_together() {
    let Some(bench) = Bench::start("same", "") else { return };
    let keys: Vec<String> = (0..200).map(|key| format!("key{key}")).collect();
    let mut client = bench.client();
    keys.iter().for_each(|key| assert_eq!(client.call(&["SET", key, key]), ok()));
    let Bench { servers, agent } = bench;
    agent.end().unwrap();
    let agent = Bench::switch(&servers, "");
    let mut client = RespClient::to(agent.listen()[0]);
    keys.iter().for_each(|key| assert_eq!(client.call(&["GET", key]), Reply::bulk(key)));
    for key in 0..50 {
        assert_eq!(client.call(&["SET", &format!("x{key}{{tag}}"), "1"]), ok());
    }
    let counts: Vec<usize> = servers
        .iter()
        .map(|server| RespClient::to(server.address).call(&["KEYS", "*{tag}"]).array().len())
        .collect();
    assert_eq!((counts.iter().sum::<usize>(), counts.iter().max()), (50, Some(&50)));
}

#[test]
fn a_switch_with_a_secret_has_other_homes() {
    let Some(bench) = Bench::start("secret", "") else { return };
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("switch-secret");
    std::fs::write(&path, [7; 16]).unwrap();
    let keys: Vec<String> = (0..100).map(|key| format!("key{key}")).collect();
    let mut client = bench.client();
    keys.iter().for_each(|key| assert_eq!(client.call(&["SET", key, key]), ok()));
    let secret = Bench::switch(&bench.servers, &format!("secret = {path:?}"));
    let mut client = RespClient::to(secret.listen()[0]);
    let found = keys.iter().filter(|key| client.call(&["GET", key]) == Reply::bulk(key)).count();
    assert!((10..60).contains(&found), "about a third is where it was: {found}");
}

#[test]
fn commands_give_what_one_server_gives() {
    let Some(bench) = Bench::start("same-as", "") else { return };
    let alone = RedisServer::start("alone");
    let (mut many, mut one) = (bench.client(), RespClient::to(alone.address));
    let keys = (0..20).map(|key| format!("k{key}")).collect::<Vec<_>>().join(" ");
    let pairs = (0..20).map(|key| format!("k{key} {key}")).collect::<Vec<_>>().join(" ");
    for command in [
        format!("MSET {pairs}"),
        format!("MGET {keys} none k3"),
        format!("EXISTS {keys} none k3"),
        format!("TOUCH {keys} none"),
        "DBSIZE".to_owned(),
        format!("DEL {keys} k3 none"),
        format!("UNLINK {keys}"),
        format!("MSET {pairs}"),
        "RPUSH {t}l 3 1 2".to_owned(),
        "SORT {t}l STORE {t}d".to_owned(),
        "LRANGE {t}d 0 -1".to_owned(),
        "MSET {t}w1 3 {t}w2 2 {t}w3 1".to_owned(),
        "SORT {t}l BY {t}w* GET # GET {t}w*".to_owned(),
        "EVAL return{KEYS[1],ARGV[1]} 1 k x".to_owned(),
        "SCRIPT LOAD return'1'".to_owned(),
        "SCRIPT EXISTS 1b936e3fe509bcbc9cd0664897bbe8fd0cac101b 5".to_owned(),
        "XADD s 1-1 a b".to_owned(),
        "XREAD COUNT 1 STREAMS s 0".to_owned(),
        "CONFIG SET maxmemory 0".to_owned(),
        "GET".to_owned(),
        "SET a b c d".to_owned(),
        "MSET a 1 b".to_owned(),
        "EXEC".to_owned(),
        "UNWATCH".to_owned(),
        "FLUSHALL".to_owned(),
        "DBSIZE".to_owned(),
    ] {
        let words: Vec<&str> = command.split(' ').collect();
        let (expected, got) = (one.call(&words), many.call(&words));
        match (expected.error(), got.error()) {
            (Some(_), Some(_)) if command.starts_with("MSET a 1 b") => {}
            _ => assert_eq!(got, expected, "{command}"),
        }
    }
    // Keys of all members, in one list and by a cursor.
    many.call(&format!("MSET {pairs}").split(' ').collect::<Vec<_>>());
    let sorted = |replies: &[Reply]| {
        let mut keys: Vec<Reply> = replies.to_vec();
        keys.sort_by_key(|key| format!("{key:?}"));
        keys
    };
    let all = sorted(many.call(&["KEYS", "*"]).array());
    assert_eq!(all.len(), 20);
    let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
    loop {
        let reply = many.call(&["SCAN", &cursor, "COUNT", "3"]);
        let [Reply::Bulk(Some(next)), keys] = reply.array() else { panic!("{reply:?}") };
        found.extend_from_slice(keys.array());
        cursor = String::from_utf8(next.clone()).unwrap();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(sorted(&found), all);
    // Commands to all members reach all.
    assert_eq!(many.call(&["ACL", "SETUSER", "bob", "on", ">x", "~*", "+@all"]), ok());
    for server in &bench.servers {
        let users = RespClient::to(server.address).call(&["ACL", "USERS"]);
        assert!(users.array().contains(&Reply::bulk("bob")), "{users:?}");
    }
    // Inexact commands are refused, and the session goes on.
    for refused in
        ["EVAL x 0", "SORT l STORE dst2", "SORT l BY w_*", "JSON.MGET a b $", "MSETNX k1 1 k2 2 k3 3 k4 4"]
    {
        let reply = many.call(&refused.split(' ').collect::<Vec<_>>());
        assert!(reply.error().is_some(), "{refused}: {reply:?}");
    }
    assert!(many.call(&["PING"]).is("PONG"));
}

#[test]
fn a_command_of_several_members_fails_whole_while_one_is_down() {
    let Some(mut bench) = Bench::start("partly", "") else { return };
    let (one, two) = bench.apart();
    let home = bench.home(&one);
    bench.servers[home].kill();
    let mut client = bench.client();
    eventually("it is down", || {
        client.call(&["GET", &one]);
        !status(&bench.agent).members.iter().all(|member| member.state == "up")
    });
    for words in [["MSET", &one, "1", &two, "1"].as_slice(), &["DEL", &one, &two], &["FLUSHALL"], &["DBSIZE"]]
    {
        let reply = client.call(words);
        assert!(reply.error().unwrap().contains("was not executed"), "{reply:?}");
    }
    assert_eq!(client.call(&["GET", &two]), Reply::bulk("here"));
}

#[test]
fn large_values_pass_and_larger_ones_name_the_limit() {
    let Some(bench) = Bench::start("large", "") else { return };
    let mut client = bench.client();
    let value: Vec<u8> = (0..3_000_000u32).map(|at| (at / 11) as u8).collect();
    assert_eq!(client.call(&[&b"SET"[..], b"big", &value]), ok());
    assert_eq!(client.call(&["GET", "big"]), Reply::Bulk(Some(value.clone())));
    let small = Bench::switch(&bench.servers, "[limits]\nframe = \"1 MiB\"");
    let mut client = RespClient::to(small.listen()[0]);
    let reply = client.call(&["GET", "big"]);
    assert!(reply.error().unwrap().contains("exceeds limits.frame, 1048576 bytes"), "{reply:?}");
    assert!(client.call(&["PING"]).is("PONG"));
    let reply = client.call(&[&b"SET"[..], b"big2", &value]);
    assert!(reply.error().unwrap().contains("exceeds limits.frame, 1048576 bytes"), "{reply:?}");
    assert_eq!(client.reply(), Reply::End);
    assert!(status(&small).members.iter().all(|member| member.state == "up"));
}

#[test]
fn protocol_errors_and_inline_commands_are_answered_as_redis_does() {
    let Some(bench) = Bench::start("inline", "") else { return };
    let addresses = [bench.servers[0].address, bench.agent.listen()[0]];
    for bytes in [
        &b"PING\r\n"[..],
        b"SET x \"a \\\"b\\x41\"\r\nGET x\r\n",
        b"\r\n\r\nPING\n",
        b"*0\r\n*-1\r\n*1\r\n$4\r\nPING\r\n",
        b"*1\r\n$4\r\nQUIT\r\n*1\r\n$4\r\nPING\r\n",
        b"GET \"x\r\n",
        b"*1\r\n:1\r\n",
        b"*x\r\n",
        b"*1\r\n$x\r\n",
    ] {
        let [direct, switched] = addresses.map(|address| {
            let mut client = RespClient::to(address);
            std::io::Write::write_all(&mut client.stream, bytes).unwrap();
            client.stream.shutdown(std::net::Shutdown::Write).unwrap();
            client.rest()
        });
        let cut = |replies: &[Reply]| -> Vec<String> {
            let text = replies.iter().map(|reply| format!("{reply:?}"));
            text.map(|text| text.split("Protocol error").next().unwrap().to_owned()).collect()
        };
        assert_eq!(
            cut(&switched),
            cut(&direct),
            "{:?}: {switched:?} {direct:?}",
            String::from_utf8_lossy(bytes)
        );
    }
}
