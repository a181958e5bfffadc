//! Messages of netlink: the request for TCP sockets (sock_diag(7)), and its answer.

use std::net::{IpAddr, SocketAddr};

use tollway_law::Time;

use super::super::Seen;

/// The state of an answer after a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// More messages follow.
    More,
    /// The answer is complete.
    Done,
    /// The kernel refuses with this error number.
    Failed(i32),
}

/// A header and `struct inet_diag_req`: all TCP sockets that may still send data, with `tcp_info`.
///
/// This is the older of two kinds of request. It lists both address families at once, and the walk
/// over the kernel's table is the main cost of a listing.
pub(crate) fn request(sequence: u32) -> [u8; REQUEST] {
    let mut message = [0u8; REQUEST];
    message[0..4].copy_from_slice(&(REQUEST as u32).to_ne_bytes());
    message[4..6].copy_from_slice(&TCPDIAG_GETSOCK.to_ne_bytes());
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
    message[6..8].copy_from_slice(&flags.to_ne_bytes());
    message[8..12].copy_from_slice(&sequence.to_ne_bytes());
    message[HEADER] = libc::AF_INET as u8;
    message[HEADER + 3] = 1 << (ATTRIBUTE_INFO - 1);
    message[HEADER + 52..HEADER + 56].copy_from_slice(&STATES.to_ne_bytes());
    message
}

/// Adds the sockets of one read to `seen`.
pub(crate) fn read(mut bytes: &[u8], sequence: u32, seen: &mut Vec<Seen>) -> Answer {
    while let Some(len) = word(bytes, 0).map(|len| len as usize).filter(|&len| len >= HEADER) {
        let Some(message) = bytes.get(..len) else { break };
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        // The rest of an earlier answer that was not read to its end.
        if word(message, 8) != Some(sequence) {
            continue;
        }
        match half(message, 4).map(i32::from) {
            Some(libc::NLMSG_DONE) => return Answer::Done,
            Some(libc::NLMSG_ERROR) => {
                return Answer::Failed(
                    word(message, HEADER).map_or(libc::EPROTO, |error| (error as i32).wrapping_neg()),
                );
            }
            Some(kind) if kind == i32::from(TCPDIAG_GETSOCK) => {
                seen.extend(socket(message.get(HEADER..).unwrap_or_default()));
            }
            _ => {}
        }
    }
    Answer::More
}

/// Parses a `struct inet_diag_msg` with its attributes.
fn socket(bytes: &[u8]) -> Option<Seen> {
    let family = i32::from(*bytes.first()?);
    let end = |port: usize, address: usize| {
        let port = u16::from_be_bytes(*bytes.get(port..)?.first_chunk()?);
        let ip = match family {
            libc::AF_INET => IpAddr::from(*bytes.get(address..)?.first_chunk::<4>()?),
            _ => IpAddr::from(*bytes.get(address..)?.first_chunk::<16>()?).to_canonical(),
        };
        Some(SocketAddr::new(ip, port))
    };
    let (local, remote) = (end(4, 8)?, end(6, 24)?);
    let cookie = u64::from(word(bytes, 44)?) | u64::from(word(bytes, 48)?) << 32;
    let (uid, inode) = (word(bytes, 64)?, word(bytes, 68)?);
    let (mut info, mut cgroup) = (None, None);
    let mut attributes = bytes.get(MESSAGE..)?;
    while let (Some(len), Some(kind)) = (half(attributes, 0).map(usize::from), half(attributes, 2)) {
        let Some(value) = attributes.get(4..len.max(4)) else { break };
        match kind {
            ATTRIBUTE_INFO => info = Some(value),
            ATTRIBUTE_CGROUP => cgroup = long(value, 0),
            _ => {}
        }
        attributes = attributes.get(len.max(4).next_multiple_of(4)..).unwrap_or_default();
    }
    // `struct tcp_info`, up to `tcpi_bytes_sent`: Linux 4.19.
    let info = info?;
    let (in_flight, sacked, lost, again) =
        (word(info, 24)?, word(info, 28)?, word(info, 32)?, word(info, 36)?);
    Some(Seen {
        cookie,
        at: Time::ZERO,
        local,
        remote,
        uid,
        cgroup,
        inode,
        options: if info.get(5)? & 1 != 0 { 12 } else { 0 },
        // The answer does not state the device.
        stays: remote.ip().is_loopback() || remote.ip() == local.ip(),
        mss: word(info, 16)?,
        in_flight: in_flight.saturating_sub(sacked).saturating_sub(lost).saturating_add(again),
        rtt: Time::from_micros(word(info, 68)?.into()),
        least_rtt: match word(info, 148)? {
            u32::MAX => Time::NEVER,
            least => Time::from_micros(least.into()),
        },
        cwnd: word(info, 80)?,
        resent: word(info, 100)?,
        pacing: long(info, 104)?,
        limit: long(info, 112).filter(|&limit| limit != u64::MAX),
        unsent: word(info, 144)?,
        segments: word(info, 156)?,
        by_receiver: Time(long(info, 176)?.saturating_mul(1000)),
        sent: long(info, 200)?,
    })
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Bytes of `struct nlmsghdr`; with `struct inet_diag_req` after it; and of `struct inet_diag_msg`.
const HEADER: usize = 16;
const REQUEST: usize = HEADER + 60;
const MESSAGE: usize = 72;
/// Numbers of `linux/inet_diag.h`.
const TCPDIAG_GETSOCK: u16 = 18;
const ATTRIBUTE_INFO: u16 = 2;
const ATTRIBUTE_CGROUP: u16 = 21;
/// States in which data may still be sent: `TCP_ESTABLISHED`, `TCP_FIN_WAIT1`, `TCP_CLOSE_WAIT`,
/// `TCP_LAST_ACK`, `TCP_CLOSING`.
const STATES: u32 = 1 << 1 | 1 << 4 | 1 << 8 | 1 << 9 | 1 << 11;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One socket's message, in the kernel's form.
    fn message(kind: u16, sequence: u32) -> Vec<u8> {
        let mut body = vec![0u8; MESSAGE];
        body[0] = libc::AF_INET as u8;
        body[4..6].copy_from_slice(&80u16.to_be_bytes());
        body[6..8].copy_from_slice(&4711u16.to_be_bytes());
        body[8..12].copy_from_slice(&[10, 0, 0, 1]);
        body[24..28].copy_from_slice(&[10, 0, 0, 2]);
        body[44..52].copy_from_slice(&(7u64 << 32 | 9).to_ne_bytes());
        body[64..68].copy_from_slice(&33u32.to_ne_bytes());
        body[68..72].copy_from_slice(&77u32.to_ne_bytes());
        let mut info = vec![0u8; 232];
        info[5] = 1;
        info[16..20].copy_from_slice(&1448u32.to_ne_bytes());
        info[68..72].copy_from_slice(&50_000u32.to_ne_bytes());
        info[112..120].copy_from_slice(&u64::MAX.to_ne_bytes());
        info[200..208].copy_from_slice(&123_456_789_012u64.to_ne_bytes());
        for (kind, value) in [(ATTRIBUTE_INFO, &info[..]), (ATTRIBUTE_CGROUP, &5u64.to_ne_bytes())] {
            body.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
            body.extend_from_slice(&kind.to_ne_bytes());
            body.extend_from_slice(value);
        }
        let mut whole = vec![0u8; HEADER];
        whole[0..4].copy_from_slice(&((HEADER + body.len()) as u32).to_ne_bytes());
        whole[4..6].copy_from_slice(&kind.to_ne_bytes());
        whole[8..12].copy_from_slice(&sequence.to_ne_bytes());
        whole.extend(body);
        whole
    }

    #[test]
    fn sockets_are_read_until_the_end() {
        let mut bytes = message(TCPDIAG_GETSOCK, 3);
        bytes.extend(message(TCPDIAG_GETSOCK, 2));
        let mut seen = Vec::new();
        assert_eq!(read(&bytes, 3, &mut seen), Answer::More);
        let [seen] = seen[..] else { panic!("{seen:?}") };
        assert_eq!(seen.local.to_string(), "10.0.0.1:80");
        assert_eq!(seen.remote.to_string(), "10.0.0.2:4711");
        assert_eq!((seen.cookie, seen.uid, seen.inode, seen.cgroup), (7 << 32 | 9, 33, 77, Some(5)));
        assert_eq!((seen.mss, seen.limit, seen.rtt), (1448, None, Time::from_millis(50)));
        assert_eq!((seen.sent, seen.headers(14)), (123_456_789_012, 66));
        assert_eq!(read(&message(libc::NLMSG_DONE as u16, 3), 3, &mut Vec::new()), Answer::Done);
        let mut failed = message(libc::NLMSG_ERROR as u16, 3);
        failed[HEADER..HEADER + 4].copy_from_slice(&(-2i32).to_ne_bytes());
        assert_eq!(read(&failed, 3, &mut Vec::new()), Answer::Failed(2));
    }

    proptest! {
        /// No input makes the parser read beyond its end.
        #[test]
        fn any_bytes_can_be_read(mut bytes in prop::collection::vec(any::<u8>(), 0..600), cut in 0usize..400) {
            read(&bytes, 1, &mut Vec::new());
            let mut whole = message(TCPDIAG_GETSOCK, 1);
            whole.truncate(cut);
            whole.append(&mut bytes);
            read(&whole, 1, &mut Vec::new());
        }
    }
}
