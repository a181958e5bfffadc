//! Packets of programs: no bytes may panic.

use tollway_net::sys::ip;
use tollway_net::tunnel::{Cipher, Tunnel};

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

/// What comes to either end of a tunnel: whatever enters comes out as it was, and of what comes from elsewhere nothing but what stands behind its header.
pub fn tunnel(data: &[u8]) {
    let (mut outer, mut inner) = (Vec::new(), Vec::new());
    if Tunnel::new(LABEL, Open).enter(data, &mut outer).is_ok() {
        Tunnel::new(LABEL, Open).leave(&outer, &mut inner).expect("nobody has marked it");
        assert_eq!(inner, data);
    }
    if Tunnel::new(LABEL, Open).leave(data, &mut inner).is_ok() {
        assert_eq!(inner.len(), data.len() - 52);
    }
}

/// Seals nothing, so that whatever is read inside can be anything.
struct Open;

impl Cipher for Open {
    fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(plain);
    }

    fn open(&mut self, sealed: &[u8], out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(sealed);
        true
    }
}

const LABEL: u32 = 5;
