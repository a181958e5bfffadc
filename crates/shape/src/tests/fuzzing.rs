//! Entry points of the private parsers for fuzz targets.
//!
//! Each accepts any bytes, and panics if a parser breaks its contract.

/// Fuzzes the parser of the kernel's list of connections. The first byte is the request's number.
pub fn connections(data: &[u8]) {
    use crate::diag::message::read;

    let Some((&sequence, bytes)) = data.split_first() else { return };
    let mut seen = Vec::new();
    let answer = read(bytes, sequence.into(), &mut seen);
    // A connection is at least a header, a message and 208 bytes of `tcp_info`.
    assert!(seen.len() * (16 + 72 + 4 + 208) <= bytes.len(), "{} of {} bytes", seen.len(), bytes.len());
    for seen in &seen {
        let _ = seen.headers(14);
    }
    // The result must not depend on how the data is cut into reads.
    let mut cut = Vec::new();
    if let Some(len) = bytes.first_chunk().map(|len| u32::from_ne_bytes(*len) as usize)
        && (16..=bytes.len()).contains(&len)
        && len.is_multiple_of(4)
    {
        let (first, rest) = bytes.split_at(len);
        let mut again = read(first, sequence.into(), &mut cut);
        if again == crate::diag::message::Answer::More {
            again = read(rest, sequence.into(), &mut cut);
        }
        assert_eq!((again, cut.len()), (answer, seen.len()));
    }
}

/// Fuzzes the parsers of etcd's answers and addresses.
#[cfg(feature = "etcd")]
pub fn etcd(data: &[u8]) {
    use crate::etcd::Address;

    let Ok(text) = std::str::from_utf8(data) else { return };
    crate::etcd::message::fuzzing::hear(text);
    if let Ok(address) = Address::parse(text) {
        assert!(!address.members.is_empty() && address.prefix.len() > 1);
        assert_eq!(Address::parse(&address.to_string()), Ok(address));
    }
}

/// Fuzzes the parser of an agent's answer to `tollway shape status`.
pub fn standing(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(shown) = crate::status::SHAPE.text_of(text, 80, 20) {
        assert!(shown.ends_with('\n'));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn answers_may_be_anything(data in prop::collection::vec(any::<u8>(), 0..600)) {
            connections(&data);
        }
    }

    #[cfg(feature = "etcd")]
    proptest! {
        #[test]
        fn a_store_may_say_anything(text in ".{0,80}") {
            etcd(text.as_bytes());
            etcd(format!("etcd://{text}").as_bytes());
        }
    }

    #[test]
    fn what_kernels_and_stores_say_is_read_or_refused() {
        replay("connections", connections);
        #[cfg(feature = "etcd")]
        replay("etcd", etcd);
    }

    #[test]
    fn standing() {
        replay("standing", super::standing);
    }

    /// Runs a target on each file of its corpus: whole, and cut at every thirteenth byte.
    fn replay(target: &str, run: fn(&[u8])) {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
        let files: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(files.len() >= 3);
        for file in files {
            let data = std::fs::read(file).unwrap();
            (0..data.len()).step_by(13).chain([data.len()]).for_each(|cut| run(&data[..cut]));
        }
    }
}
