//! Packets of programs and tunnels: no bytes may cause a panic.

use tollway_net::sys::ip;
use tollway_net::tunnel::{Cipher, Tunnel};

/// An IP packet of a program. Checks that parsed lengths lie within the packet, and that an ECN
/// mark changes only the mark and the checksum.
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

/// A packet at either end of a tunnel. Checks that a packet leaves the tunnel as it entered, and
/// that of foreign datagrams only the part after the header leaves.
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

/// A cipher that does not encrypt, so that arbitrary bytes reach the code behind it.
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
