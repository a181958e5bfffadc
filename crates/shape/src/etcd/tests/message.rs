//! Fuzzing of a store's answers.

use serde_json::json;

use super::*;

/// Parses any text as each kind of answer. An answer made from the result must parse to the same
/// result.
pub(crate) fn hear(text: &str) {
    let mut held = Keys::new();
    let _ = (read_watch(text, &mut held), read_token(text));
    assert!(read_refusal(text).is_none_or(|why| !why.is_empty() && why.chars().count() <= LONGEST_REASON));
    if let Some((revision, keys)) = read_range(text) {
        let row = |(key, value): (&String, &Vec<u8>)| json!({ "key": encode(key), "value": STANDARD.encode(value) });
        let rows: Vec<Value> = keys.iter().map(row).collect();
        let again = json!({ "header": { "revision": revision.to_string() }, "kvs": rows }).to_string();
        assert_eq!(read_range(&again), Some((revision, keys)));
    }
}
