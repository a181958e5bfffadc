//! Messages to and from etcd: JSON, with keys and values in base 64, and numbers as text.

#[cfg(any(test, fuzzing))]
#[path = "tests/message.rs"]
pub(crate) mod fuzzing;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::Keys;

/// A request for all keys that begin with `prefix`.
pub(super) fn range(prefix: &str) -> String {
    json!({ "key": encode(prefix), "range_end": encode_end(prefix) }).to_string()
}

/// A request to watch these keys from a revision on.
pub(super) fn watch(prefix: &str, revision: u64) -> String {
    let range = json!({ "key": encode(prefix), "range_end": encode_end(prefix), "start_revision": revision.to_string() });
    json!({ "create_request": range }).to_string()
}

/// A request for a token, with a user's name and password.
pub(super) fn authenticate(name: &str, password: &str) -> String {
    json!({ "name": name, "password": password }).to_string()
}

/// The token in an answer to [`authenticate`].
pub(super) fn read_token(text: &str) -> Option<String> {
    let answer: Value = serde_json::from_str(text).ok()?;
    answer["token"].as_str().map(str::to_owned)
}

/// The reason of a refusal, from JSON or a line of text.
pub(super) fn read_refusal(text: &str) -> Option<String> {
    let answer: Value = serde_json::from_str(text).unwrap_or_default();
    let said = answer["message"].as_str().or(answer["error"].as_str()).or(text.lines().next())?;
    Some(printable(said)).filter(|said| !said.is_empty())
}

/// A store's text without control characters, cut to [`LONGEST_REASON`].
fn printable(said: &str) -> String {
    said.chars().take(LONGEST_REASON).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The revision of an answer, and its keys.
pub(super) fn read_range(text: &str) -> Option<(u64, Keys)> {
    let answer: Value = serde_json::from_str(text).ok()?;
    let revision = number(&answer["header"]["revision"])?;
    let empty = Vec::new();
    let rows = answer["kvs"].as_array().unwrap_or(&empty);
    Some((revision, rows.iter().map(|row| (text_of(&row["key"]), bytes_of(&row["value"]))).collect()))
}

/// The meaning of a line of a watch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// Keys have changed, as of this revision; 0 if none has.
    Changed(u64),
    /// The revision is no longer available (compaction).
    Forgotten,
    /// The watch has ended, with the reason.
    Ended(String),
}

/// Parses a line of a watch, and applies its changes to `keys`.
pub(super) fn read_watch(line: &str, keys: &mut Keys) -> Option<Said> {
    let line: Value = serde_json::from_str(line).ok()?;
    if let Some(error) = line.get("error") {
        let message = error["message"].as_str().or(error.as_str()).unwrap_or("no reason given");
        return Some(Said::Ended(printable(message)));
    }
    let result = &line["result"];
    if number(&result["compact_revision"]).is_some_and(|revision| revision > 0) {
        return Some(Said::Forgotten);
    }
    if result["canceled"] == true {
        let reason = result["cancel_reason"].as_str().unwrap_or("the watch was cancelled");
        return Some(Said::Ended(printable(reason)));
    }
    let empty = Vec::new();
    let events = result["events"].as_array().unwrap_or(&empty);
    for event in events {
        let key = text_of(&event["kv"]["key"]);
        match event["type"].as_str() {
            Some("DELETE") => drop(keys.remove(&key)),
            _ => drop(keys.insert(key, bytes_of(&event["kv"]["value"]))),
        }
    }
    let revision = number(&result["header"]["revision"])?;
    Some(Said::Changed(if events.is_empty() { 0 } else { revision }))
}

/// Numbers of 64 bits are text in etcd's JSON; zeros are left out.
fn number(value: &Value) -> Option<u64> {
    value.as_str().map_or_else(|| value.as_u64(), |text| text.parse().ok())
}

fn bytes_of(value: &Value) -> Vec<u8> {
    value.as_str().and_then(|text| STANDARD.decode(text).ok()).unwrap_or_default()
}

/// The text of a key. A key may be any bytes, also among those requested.
fn text_of(value: &Value) -> String {
    String::from_utf8_lossy(&bytes_of(value)).into_owned()
}

fn encode(text: &str) -> String {
    STANDARD.encode(text)
}

/// The first key after all keys with this prefix: its last byte is one higher. No byte of UTF-8
/// overflows.
fn encode_end(prefix: &str) -> String {
    let mut end = prefix.as_bytes().to_vec();
    match end.last_mut() {
        Some(last) => *last += 1,
        // All keys of the store.
        None => end.push(0),
    }
    STANDARD.encode(end)
}

/// Upper bound of a reason's length, in characters.
const LONGEST_REASON: usize = 200;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys(rows: &[(&str, &str)]) -> Keys {
        rows.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect()
    }

    #[test]
    fn a_range_is_all_keys_with_the_prefix() {
        let said: Value = serde_json::from_str(&range("/tollway")).unwrap();
        assert_eq!(
            (text_of(&said["key"]), text_of(&said["range_end"])),
            ("/tollway".into(), "/tollwaz".into())
        );
        let answer = r#"{"header":{"revision":"7"},"kvs":[{"key":"L2E=","value":"eA==","mod_revision":"5"},{"key":"L2I="}],"count":"2"}"#;
        assert_eq!(read_range(answer), Some((7, keys(&[("/a", "x"), ("/b", "")]))));
        // A key may be any bytes: one that is not UTF-8, such as 0xff, becomes a replacement
        // character.
        let bytes = r#"{"header":{"revision":"7"},"kvs":[{"key":"L2H/","value":"eA=="}]}"#;
        assert_eq!(read_range(bytes), Some((7, keys(&[("/a\u{fffd}", "x")]))));
        assert_eq!(read_range(r#"{"header":{"revision":"1"}}"#), Some((1, Keys::new())));
        assert_eq!(read_range("{}"), None);
    }

    #[test]
    fn a_watch_changes_what_it_says() {
        let mut held = keys(&[("/a", "x"), ("/b", "y")]);
        let created = r#"{"result":{"header":{"revision":"7"},"created":true}}"#;
        assert_eq!(read_watch(created, &mut held), Some(Said::Changed(0)));
        let line = r#"{"result":{"header":{"revision":"8"},"events":[{"kv":{"key":"L2E=","value":"eg=="}},{"type":"DELETE","kv":{"key":"L2I="}}]}}"#;
        assert_eq!(read_watch(line, &mut held), Some(Said::Changed(8)));
        assert_eq!(held, keys(&[("/a", "z")]));
        let bytes =
            r#"{"result":{"header":{"revision":"9"},"events":[{"type":"DELETE","kv":{"key":"L2H/"}}]}}"#;
        assert_eq!(read_watch(bytes, &mut held), Some(Said::Changed(9)));
        let forgotten =
            r#"{"result":{"header":{"revision":"9"},"created":true,"canceled":true,"compact_revision":"8"}}"#;
        assert_eq!(read_watch(forgotten, &mut held), Some(Said::Forgotten));
        let ended = r#"{"error":{"grpc_code":14,"message":"etcdserver: no leader"}}"#;
        assert_eq!(read_watch(ended, &mut held), Some(Said::Ended("etcdserver: no leader".into())));
        for escape in [
            r#"{"error":{"message":"\u001b]0;x\u0007no\u009b2J"}}"#,
            r#"{"result":{"canceled":true,"cancel_reason":"\u001b]0;x\u0007no\u009b2J"}}"#,
        ] {
            assert_eq!(read_watch(escape, &mut held), Some(Said::Ended(" ]0;x no 2J".into())));
        }
    }

    #[test]
    fn a_refusal_has_a_reason() {
        let of = |text| read_refusal(text);
        assert_eq!(of(r#"{"error":"no","message":"not you","code":7}"#).as_deref(), Some("not you"));
        assert_eq!(of(r#"{"error":"no"}"#).as_deref(), Some("no"));
        assert_eq!(of("not so\n").as_deref(), Some("not so"));
        assert_eq!(of(r#"{"error":"\u001b[2J"}"#).as_deref(), Some(" [2J"));
        assert_eq!(of(""), None);
    }

    proptest! {
        #[test]
        fn anything_can_be_heard(text in ".{0,200}", at in 0usize..120, with in any::<char>()) {
            let mut held = Keys::new();
            let _ = (read_range(&text), read_watch(&text, &mut held), read_token(&text), read_refusal(&text));
            let mut line: Vec<char> = r#"{"result":{"header":{"revision":"8"},"events":[{"type":"PUT","kv":{"key":"L2E=","value":"eg=="}}]}}"#.chars().collect();
            let at = at % line.len();
            line[at] = with;
            let line: String = line.into_iter().collect();
            let _ = (read_range(&line), read_watch(&line, &mut held));
        }
    }
}
