//! Connections to a node's own loopback interface that found no server.

use std::collections::BTreeSet;
use std::io::{self, Read};

use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use tollway_net::sys::namespace::Namespace;

/// The refusals of TCP connections over IPv4 at a node's loopback interface.
pub(super) struct Refusals(Socket);

impl Refusals {
    /// Records refusals from now on.
    pub(super) fn watch(namespace: &Namespace) -> io::Result<Refusals> {
        namespace.within(|| {
            let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::TCP))?;
            let filter = REFUSAL.map(|(code, yes, no, k)| SockFilter::new(code as u16, yes, no, k));
            socket.attach_filter(&filter)?;
            socket.bind_device(Some(b"lo"))?;
            socket.set_nonblocking(true)?;
            Ok(Refusals(socket))
        })
    }

    /// The ports that refused connections, in ascending order.
    pub(super) fn ports(&self) -> Vec<u16> {
        let (mut ports, mut packet) = (BTreeSet::new(), [0; 128]);
        while let Ok(1..) = (&self.0).read(&mut packet) {
            let tcp = usize::from(packet[0] & 15) * 4;
            ports.insert(u16::from_be_bytes([packet[tcp], packet[tcp + 1]]));
        }
        ports.into_iter().collect()
    }
}

/// Accepts resets with sequence number 0, which answer a SYN (RFC 9293 § 3.10.7.1).
const REFUSAL: [(u32, u8, u8, u32); 7] = [
    // X: length of the IP header.
    (libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, 0, 0, 0),
    (libc::BPF_LD | libc::BPF_B | libc::BPF_IND, 0, 0, 13),
    (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, 0, 3, 4),
    (libc::BPF_LD | libc::BPF_W | libc::BPF_IND, 0, 0, 4),
    (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, 0),
    (libc::BPF_RET | libc::BPF_K, 0, 0, 128),
    (libc::BPF_RET | libc::BPF_K, 0, 0, 0),
];
