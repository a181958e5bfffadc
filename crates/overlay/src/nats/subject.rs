//! Subjects and patterns: tokens with dots between them.

/// Limit of a subject, in bytes.
pub const MOST_BYTES: usize = 480;
/// Limit of a subject's tokens, which bounds the depth of a [`Trie`](super::trie::Trie).
pub const MOST_TOKENS: usize = 64;

/// Returns true if `subject` is valid and has no wildcards.
pub fn is_literal(subject: &[u8]) -> bool {
    is_bounded(subject) && tokens(subject).all(|token| is_token(token) && token != b"*" && token != b">")
}

/// Returns true for a valid pattern: `*` matches one token, `>` at the end matches one or more.
pub fn is_pattern(pattern: &[u8]) -> bool {
    let body = pattern.strip_suffix(b">").filter(|rest| rest.is_empty() || rest.ends_with(b"."));
    let body = body.map_or(pattern, |rest| rest.strip_suffix(b".").unwrap_or(rest));
    let alone = body.is_empty() && pattern == b">";
    is_bounded(pattern) && (alone || tokens(body).all(|token| is_token(token) && token != b">"))
}

/// Returns true if `pattern` matches `subject`.
pub fn matches(pattern: &[u8], subject: &[u8]) -> bool {
    let mut subject = tokens(subject);
    for token in tokens(pattern) {
        match (token, subject.next()) {
            (_, None) => return false,
            (b">", _) => return true,
            (b"*", _) => {}
            (token, Some(other)) if token == other => {}
            _ => return false,
        }
    }
    subject.next().is_none()
}

/// The tokens of a subject or pattern.
pub fn tokens(subject: &[u8]) -> impl Iterator<Item = &[u8]> {
    subject.split(|&byte| byte == b'.')
}

fn is_bounded(subject: &[u8]) -> bool {
    let bounded = subject.len() <= MOST_BYTES && memchr::memchr_iter(b'.', subject).count() < MOST_TOKENS;
    bounded && std::str::from_utf8(subject).is_ok()
}

fn is_token(token: &[u8]) -> bool {
    !token.is_empty() && token.iter().all(|&byte| byte > b' ' && byte != 0x7f)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_stand_for_tokens() {
        for (pattern, subject, fits) in [
            ("a.b", "a.b", true),
            ("a.*", "a.b", true),
            ("a.*", "a.b.c", false),
            ("a.*", "a", false),
            ("a.>", "a.b.c", true),
            ("a.>", "a", false),
            (">", "a", true),
            ("*.b.*", "a.b.c", true),
            ("*.b.*", "a.c.c", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), subject.as_bytes()), fits, "{pattern} {subject}");
        }
    }

    #[test]
    fn subjects_have_bounds() {
        for (text, literal, pattern) in [
            ("a.b", true, true),
            ("a*b.c>", true, true),
            ("é.b", true, true),
            ("a.*", false, true),
            ("a.>", false, true),
            (">", false, true),
            ("*", false, true),
            ("a.>.b", false, false),
            ("a..b", false, false),
            (".a", false, false),
            ("a.", false, false),
            ("", false, false),
            (".", false, false),
            (".>", false, false),
            ("a\tb", false, false),
        ] {
            assert_eq!(is_literal(text.as_bytes()), literal, "{text}");
            assert_eq!(is_pattern(text.as_bytes()), pattern, "{text}");
        }
        assert!(is_literal("a.".repeat(63).as_bytes().strip_suffix(b".").unwrap()));
        assert!(!is_pattern(&b"a.".repeat(64)[..]));
        assert!(!is_literal(&[b'a'; MOST_BYTES + 1]));
    }
}
