//! The kernel's record of a TCP connection (tcp(7), `TCP_INFO`).

use std::io;
use std::mem::offset_of;
use std::os::fd::AsFd;

use tollway_law::Time;

use super::sockopt;

/// The kernel's state of a connection's sending half.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpInfo {
    /// Segments retransmitted.
    pub retransmissions: u64,
    /// The congestion window, in packets.
    pub cwnd: u32,
    /// The smoothed round-trip time.
    pub srtt: Time,
    /// Packets sent and not yet acknowledged.
    pub in_flight: u32,
    /// The time since a segment came, also behind a lost one.
    pub quiet: Time,
}

/// Reads the record of a connection.
pub fn tcp_info(socket: impl AsFd) -> io::Result<TcpInfo> {
    let mut info = [0; size_of::<libc::tcp_info>()];
    sockopt::get(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
    let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| info[at + i]));
    Ok(TcpInfo {
        retransmissions: u64::from(word(offset_of!(libc::tcp_info, tcpi_total_retrans))),
        cwnd: word(offset_of!(libc::tcp_info, tcpi_snd_cwnd)),
        srtt: Time::from_micros(u64::from(word(offset_of!(libc::tcp_info, tcpi_rtt)))),
        in_flight: word(offset_of!(libc::tcp_info, tcpi_unacked)),
        // Every segment acknowledges; of data this counts what is in order only.
        quiet: Time::from_millis(u64::from(word(offset_of!(libc::tcp_info, tcpi_last_ack_recv)))),
    })
}
