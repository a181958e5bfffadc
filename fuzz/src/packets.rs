//! Packets of programs: no bytes may panic.

use tollway_net::exec::ip;

/// An IP packet as programs send it: what is read of it lies within it, and a mark changes nothing else.
pub fn ip(data: &[u8]) {
    let Ok(header) = ip::parse(data) else { return };
    assert!(header.header_len <= header.len && usize::from(header.len) <= data.len());
    let mut marked = data.to_vec();
    ip::mark(&mut marked);
    let again = ip::parse(&marked).expect("a mark leaves a packet a packet");
    assert_eq!((again.flow, again.len, again.header_len), (header.flow, header.len, header.header_len));
    assert!(marked.iter().zip(data).enumerate().all(|(i, (a, b))| a == b || matches!(i, 1 | 10 | 11)));
}
