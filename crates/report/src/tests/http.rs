//! Fuzzing of the parser of HTTP requests.

use super::{BODY, HEAD, Parsed, parse};

/// Parses any bytes as a request. It is accepted or rejected within bounds, and further bytes do
/// not change the result.
pub(crate) fn read_anything(bytes: &[u8]) {
    let whole = parse(bytes);
    if let Parsed::Whole(request) = &whole {
        assert!(request.body.len() <= BODY && request.path.len() + request.query.len() <= HEAD);
        assert!(!request.path.contains(|c: char| c.is_control() || c == ' ' || c == '?'));
        assert!(!request.method.is_empty());
    }
    let waits = |parsed: &Parsed| matches!(parsed, Parsed::Head | Parsed::Body { .. });
    assert!(!waits(&whole) || bytes.len() <= HEAD + BODY, "{} bytes, and more are wanted", bytes.len());
    for cut in [bytes.len() / 2, bytes.len().saturating_sub(1)] {
        let part = parse(&bytes[..cut]);
        assert!(waits(&part) || part == whole, "{part:?}, and then {whole:?}");
    }
}
