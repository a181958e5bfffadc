//! Entry points of the private parsers for fuzz targets.
//!
//! Each accepts any bytes, and panics if a parser breaks its contract.

/// Fuzzes the parser of a browser's request to `--view`, after the head.
#[cfg(feature = "view")]
pub fn wish(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        crate::account::view::fuzzing::hear(text.split_once("\r\n\r\n").map_or(text, |(_, body)| body));
    }
}

#[cfg(all(test, feature = "view"))]
mod tests {
    use std::path::Path;

    #[test]
    fn any_request_is_a_wish_or_none() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/http");
        for file in std::fs::read_dir(corpus).unwrap() {
            let data = std::fs::read(file.unwrap().path()).unwrap();
            (0..data.len()).step_by(13).chain([data.len()]).for_each(|cut| super::wish(&data[..cut]));
        }
    }
}
