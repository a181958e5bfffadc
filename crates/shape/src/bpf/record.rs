//! The record of a connection that the programs write.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tollway_law::Time;

use super::sys::Plain;
use crate::Seen;

/// A connection's record, as stored in the map: `struct record` of `bpf/sockets.h`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Raw {
    /// The time of writing, in the kernel's jiffies.
    pub(crate) jiffies: u64,
    /// The pacing limit that the application set, in bytes per second; all bits set is unlimited.
    pub(crate) own: u64,
    /// The limit that the hook or the walk has set last.
    pub(crate) applied: u64,
    pub(crate) cgroup: u64,
    pub(crate) pacing: u64,
    pub(crate) sent: u64,
    /// The user that owns it, and the device that its packets leave by; zero if unknown yet.
    pub(crate) uid: u32,
    pub(crate) device: u32,
    /// In eighths of a microsecond.
    pub(crate) srtt: u32,
    pub(crate) mss: u32,
    pub(crate) cwnd: u32,
    pub(crate) in_flight: u32,
    pub(crate) segments: u32,
    pub(crate) resent: u32,
    pub(crate) written: u32,
    pub(crate) next: u32,
    pub(crate) chrono_start: u32,
    pub(crate) by_receiver: u32,
    /// Addresses, and the remote port, in network byte order.
    pub(crate) local4: [u8; 4],
    pub(crate) remote4: [u8; 4],
    pub(crate) local6: [u8; 16],
    pub(crate) remote6: [u8; 16],
    pub(crate) local_port: u16,
    pub(crate) remote_port: u16,
    pub(crate) family: u16,
    pub(crate) state: u16,
    pub(crate) chrono: u16,
    pub(crate) tcp_header: u16,
    pub(crate) ip_options: u16,
    /// 1 for a subflow of MPTCP.
    pub(crate) mptcp: u16,
}

const _: () = assert!(size_of::<Raw>() == 152, "there is padding");

impl Raw {
    /// Converts the record to a connection seen at `at`. `jiffy` is the length of a jiffy, `limit`
    /// the connection's pacing limit.
    pub(crate) fn read(&self, cookie: u64, at: Time, jiffy: Time, limit: u64) -> Seen {
        let v6 = i32::from(self.family) == libc::AF_INET6;
        let address = |four: [u8; 4], six: [u8; 16]| match v6 {
            // An IPv6 socket may carry an IPv4 address.
            true => IpAddr::V6(Ipv6Addr::from(six)).to_canonical(),
            false => IpAddr::V4(Ipv4Addr::from(four)),
        };
        let (local, remote) = (address(self.local4, self.local6), address(self.remote4, self.remote6));
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

impl Plain for Raw {}

/// Value of `enum tcp_chrono`: the receiver's window holds the connection up.
const BY_RECEIVER: u16 = 2;
/// Bytes of TCP's header without options; and of MPTCP's options in a segment with data.
const TCP_HEADER: u16 = 20;
const MPTCP_OPTIONS: u32 = 28;
/// Number of the loopback device in every network namespace.
const LOOPBACK: u32 = 1;
/// States in which a connection sends, of `net/tcp_states.h`: established, closed by either end or
/// both.
const OPEN: [i32; 5] = [1, 4, 8, 9, 11];
