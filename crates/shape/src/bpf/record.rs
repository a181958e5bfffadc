//! The record of a connection that the programs write, and the kernel fields it comes from.

use std::io;
use std::mem::offset_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tollway_law::Time;

use super::btf::{Btf, Field};
use super::sys::Plain;
use crate::Seen;

/// One row per field: its name, its type here, and the path from a `struct tcp_sock`. Wide fields
/// come first, so that there is no padding.
macro_rules! record {
    ($($name:ident: $type:ty = $path:literal,)*) => {
        /// A connection's record, as stored in the map.
        #[derive(Clone, Copy, Debug, Default)]
        #[repr(C)]
        pub(crate) struct Raw {
            /// The time of writing, in the kernel's jiffies.
            pub(crate) jiffies: u64,
            /// The pacing limit that the application set, in bytes per second; all bits set is unlimited.
            pub(crate) own: u64,
            /// The limit that the hook or the walk has set last.
            pub(crate) applied: u64,
            /// The user that owns it, and the device that its packets leave by; zero if unknown yet.
            pub(crate) uid: u32,
            pub(crate) device: u32,
            $(pub(crate) $name: $type,)*
            /// 1 for a subflow of MPTCP.
            pub(crate) mptcp: u16,
        }

        const FIELDS: &[(&str, usize, usize)] =
            &[$(($path, offset_of!(Raw, $name), size_of::<$type>()),)*];

        const _: () = assert!(size_of::<Raw>() == 34 $(+ size_of::<$type>())*, "there is padding");
    };
}

record! {
    cgroup: u64 = "inet_conn.icsk_inet.sk.sk_cgrp_data.cgroup->kn->id",
    pacing: u64 = "inet_conn.icsk_inet.sk.sk_pacing_rate",
    sent: u64 = "bytes_sent",
    srtt: u32 = "srtt_us",
    mss: u32 = "mss_cache",
    cwnd: u32 = "snd_cwnd",
    in_flight: u32 = "packets_out",
    segments: u32 = "data_segs_out",
    resent: u32 = "total_retrans",
    written: u32 = "write_seq",
    next: u32 = "snd_nxt",
    chrono_start: u32 = "chrono_start",
    by_receiver: u32 = "chrono_stat[1]",
    local4: u32 = "inet_conn.icsk_inet.sk.__sk_common.skc_rcv_saddr",
    remote4: u32 = "inet_conn.icsk_inet.sk.__sk_common.skc_daddr",
    local6a: u32 = "inet_conn.icsk_inet.sk.__sk_common.skc_v6_rcv_saddr.in6_u.u6_addr32[0]",
    local6b: u32 = "inet_conn.icsk_inet.sk.__sk_common.skc_v6_rcv_saddr.in6_u.u6_addr32[1]",
    local6c: u32 = "inet_conn.icsk_inet.sk.__sk_common.skc_v6_rcv_saddr.in6_u.u6_addr32[2]",
    local6d: u32 = "inet_conn.icsk_inet.sk.__sk_common.skc_v6_rcv_saddr.in6_u.u6_addr32[3]",
    remote6a: u32 = "inet_conn.icsk_inet.sk.__sk_common.skc_v6_daddr.in6_u.u6_addr32[0]",
    remote6b: u32 = "inet_conn.icsk_inet.sk.__sk_common.skc_v6_daddr.in6_u.u6_addr32[1]",
    remote6c: u32 = "inet_conn.icsk_inet.sk.__sk_common.skc_v6_daddr.in6_u.u6_addr32[2]",
    remote6d: u32 = "inet_conn.icsk_inet.sk.__sk_common.skc_v6_daddr.in6_u.u6_addr32[3]",
    local_port: u16 = "inet_conn.icsk_inet.sk.__sk_common.skc_num",
    remote_port: u16 = "inet_conn.icsk_inet.sk.__sk_common.skc_dport",
    family: u16 = "inet_conn.icsk_inet.sk.__sk_common.skc_family",
    state: u16 = "inet_conn.icsk_inet.sk.__sk_common.skc_state",
    chrono: u16 = "chrono_type",
    tcp_header: u16 = "tcp_header_len",
    ip_options: u16 = "inet_conn.icsk_ext_hdr_len",
}

impl Raw {
    /// Converts the record to a connection seen at `at`. `jiffy` is the length of a jiffy, `limit`
    /// the connection's pacing limit.
    pub(crate) fn read(&self, cookie: u64, at: Time, jiffy: Time, limit: u64) -> Seen {
        let v6 = i32::from(self.family) == libc::AF_INET6;
        // Addresses are in network byte order.
        let address = |four: u32, six: [u32; 4]| {
            if !v6 {
                return IpAddr::V4(Ipv4Addr::from(four.to_ne_bytes()));
            }
            let mut bytes = [0; 16];
            for (into, word) in bytes.chunks_exact_mut(4).zip(six) {
                into.copy_from_slice(&word.to_ne_bytes());
            }
            // An IPv6 socket may carry an IPv4 address.
            IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
        };
        let local = address(self.local4, [self.local6a, self.local6b, self.local6c, self.local6d]);
        let remote = address(self.remote4, [self.remote6a, self.remote6b, self.remote6c, self.remote6d]);
        // The current period has not been added yet (tcp_get_info_chrono_stats).
        let lasts = if self.chrono == BY_RECEIVER {
            (self.jiffies as u32).wrapping_sub(self.chrono_start)
        } else {
            0
        };
        Seen {
            cookie,
            at,
            local: SocketAddr::new(local, self.local_port),
            remote: SocketAddr::new(remote, u16::from_be(self.remote_port)),
            uid: self.uid,
            cgroup: Some(self.cgroup),
            // This back-end needs no process that has the socket open.
            inode: 1,
            rtt: Time::from_nanos(u64::from(self.srtt) * 125), // in eighths of a microsecond
            // An upper bound of the minimum; it only tells how near the other end is.
            least_rtt: Time::from_nanos(u64::from(self.srtt) * 125),
            sent: self.sent,
            segments: self.segments,
            resent: self.resent,
            by_receiver: jiffy * u64::from(self.by_receiver.wrapping_add(lasts)),
            unsent: self.written.wrapping_sub(self.next),
            in_flight: self.in_flight,
            cwnd: self.cwnd,
            mss: self.mss,
            options: u32::from(self.tcp_header.saturating_sub(TCP_HEADER))
                + u32::from(self.ip_options)
                + if self.mptcp != 0 { MPTCP_OPTIONS } else { 0 },
            stays: self.device == LOOPBACK,
            pacing: self.pacing,
            limit: (limit != u64::MAX).then_some(limit),
        }
    }

    /// True if the connection may still send.
    pub(crate) fn is_open(&self) -> bool {
        OPEN.contains(&i32::from(self.state))
    }
}

/// Finds the record's fields in this kernel, each with its offset and width in the record.
///
/// # Errors
/// A field that this kernel lacks, by name.
pub(crate) fn fields(btf: &Btf) -> io::Result<Vec<(Field, usize, u32)>> {
    FIELDS.iter().map(|&(path, at, bytes)| Ok((btf.field(SOCKET, path)?, at, bytes as u32))).collect()
}

impl Plain for Raw {}

/// The structure at which all paths begin.
pub(crate) const SOCKET: &str = "tcp_sock";
/// Value of `enum tcp_chrono`: the receiver's window holds the connection up.
const BY_RECEIVER: u16 = 2;
/// Bytes of TCP's header without options; and of MPTCP's options in a segment with data.
const TCP_HEADER: u16 = 20;
const MPTCP_OPTIONS: u32 = 28;
/// Number of the loopback device in every network namespace.
pub(crate) const LOOPBACK: u32 = 1;
/// States in which a connection sends, of `net/tcp_states.h`: established, closed by either end or
/// both.
pub(crate) const OPEN: [i32; 5] = [1, 4, 8, 9, 11];
