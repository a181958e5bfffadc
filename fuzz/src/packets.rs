//! Packets of programs: no bytes may panic.

use tollway_net::exec::ip;

/// An IP packet as programs send it: what is read of it lies within it, and a mark changes nothing else.
pub fn ip(data: &[u8]) {
    let Ok(header) = ip::parse(data) else { return };
    assert!(header.header_len <= header.len && usize::from(header.len) <= data.len());
    if let Some((at, forward)) = ip::xcp_option(data, &header) {
        let mut rewritten = data.to_vec();
        ip::store_feedback(&mut rewritten, at, !forward.feedback, false);
        let (_, again) = ip::xcp_option(&rewritten, &header).expect("the option stays where it is");
        assert_eq!(
            (again.feedback, again.rtt_ms, again.cwnd),
            (!forward.feedback, forward.rtt_ms, forward.cwnd)
        );
    }
    let mut marked = data.to_vec();
    ip::mark(&mut marked);
    let again = ip::parse(&marked).expect("a mark leaves a packet a packet");
    assert_eq!((again.flow, again.len, again.header_len), (header.flow, header.len, header.header_len));
    assert!(marked.iter().zip(data).enumerate().all(|(i, (a, b))| a == b || matches!(i, 1 | 10 | 11)));
}
