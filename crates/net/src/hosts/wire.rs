//! A raw socket on one interface: it receives every frame and sends any frame.
//!
//! It is an AF_PACKET socket with a `virtio_net_hdr` in front of each frame (packet(7)). So a
//! checksum that the kernel has not filled in stays so from interface to interface.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use socket2::{Domain, SockAddr, Socket, Type};

use crate::sys::interface;
use crate::sys::sockopt::{self, set_number};
use crate::sys::tun;

/// A socket on one interface of the namespace in which it was opened.
#[derive(Debug)]
pub struct Wire {
    socket: Socket,
    /// Destinations of IPv4 and IPv6 packets, on an interface without Ethernet's header.
    bare: Option<[libc::sockaddr_ll; 2]>,
}

/// Buffers for frames that are received at once.
#[derive(Debug)]
pub(crate) struct Mail {
    bytes: Vec<u8>,
    /// Bytes per frame.
    room: usize,
    lens: [usize; BATCH],
}

impl Mail {
    /// Makes buffers for frames of up to `room` bytes, headers included.
    pub(crate) fn new(room: usize) -> Mail {
        Mail { bytes: vec![0; room * BATCH], room, lens: [0; BATCH] }
    }

    /// Frame `i` of those received last.
    pub(crate) fn frame(&self, i: usize) -> &[u8] {
        &self.bytes[i * self.room..][..self.lens[i]]
    }
}

impl Wire {
    /// Opens the interface `name` of the calling thread's namespace.
    pub(crate) fn open(name: &str) -> io::Result<Wire> {
        let index = interface::index(name)?;
        let wire = Wire::unbound()?;
        set_number(&wire.socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        wire.socket.bind(&address_of(link_address(index, libc::ETH_P_ALL))?)?;
        Ok(wire)
    }

    /// Opens the interface `name` to send only.
    ///
    /// # Errors
    /// There is no such interface, or this process lacks the right.
    pub fn sender(name: &str) -> io::Result<Wire> {
        let index = interface::index(name)?;
        let mut wire = Wire::unbound()?;
        wire.socket.bind(&address_of(link_address(index, 0))?)?;
        if !interface::is_ethernet(name)? {
            wire.bare =
                Some([libc::ETH_P_IP, libc::ETH_P_IPV6].map(|protocol| link_address(index, protocol)));
        }
        Ok(wire)
    }

    /// The kernel's number of the socket.
    ///
    /// # Errors
    /// The kernel gives none.
    pub fn cookie(&self) -> io::Result<u64> {
        let mut cookie = [0; 8];
        sockopt::get(&self.socket, libc::SOL_SOCKET, libc::SO_COOKIE, &mut cookie)?;
        Ok(u64::from_ne_bytes(cookie))
    }

    /// A socket that receives nothing until it is bound to an interface.
    fn unbound() -> io::Result<Wire> {
        let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
        socket.set_nonblocking(true)?;
        set_number(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        for (forced, option) in
            [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
        {
            // Root may exceed the system's limit. Other users get at most that limit.
            let _ = set_number(&socket, libc::SOL_SOCKET, forced, BUFFER)
                .or_else(|_| set_number(&socket, libc::SOL_SOCKET, option, BUFFER));
        }
        Ok(Wire { socket, bare: None })
    }

    /// Receives the frames that wait. Returns their number.
    #[expect(
        unsafe_code,
        reason = "no safe wrapper of recvmmsg(2) among our dependencies; a call a frame costs twice as much"
    )]
    pub(crate) fn receive(&self, mail: &mut Mail) -> io::Result<usize> {
        let mut parts = mail.bytes.chunks_exact_mut(mail.room);
        let mut places: [libc::iovec; BATCH] = std::array::from_fn(|_| {
            let part = parts.next().unwrap_or_default();
            libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() }
        });
        let mut headers = headers(&mut places);
        // SAFETY: each of the headers points to one `iovec`, and that to bytes of `mail` to which
        // no other points; all of them outlive the call, and the kernel keeps nothing. There is no
        // name and no control message.
        let count = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                headers.as_mut_ptr(),
                BATCH as libc::c_uint,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        let count = match usize::try_from(count) {
            Ok(count) => count,
            Err(_) => match io::Error::last_os_error() {
                error if is_nothing(&error) => 0,
                error => return Err(error),
            },
        };
        for (len, header) in mail.lens.iter_mut().zip(&headers[..count]) {
            *len = header.msg_len as usize;
        }
        Ok(count)
    }

    /// Sends frames. Returns how many the kernel took, from the first on: it refused the next one, or
    /// had no room for it.
    #[expect(
        unsafe_code,
        reason = "no safe wrapper of sendmmsg(2) among our dependencies; a call a frame costs twice as much"
    )]
    pub(crate) fn send<'a>(&self, mut frames: impl Iterator<Item = &'a [u8]>) -> io::Result<usize> {
        let mut sent = 0;
        loop {
            let mut count = 0;
            let mut is_v6 = [false; BATCH];
            let mut places = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BATCH];
            for (place, frame) in places.iter_mut().zip(frames.by_ref()) {
                *place = libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
                is_v6[count] = frame.get(tun::VNET_LEN).is_some_and(|first| first >> 4 == 6);
                count += 1;
            }
            if count == 0 {
                return Ok(sent);
            }
            let mut headers = headers(&mut places);
            if let Some(bare) = &self.bare {
                for (header, is_v6) in headers.iter_mut().zip(is_v6) {
                    let to: *const libc::sockaddr_ll = &raw const bare[usize::from(is_v6)];
                    header.msg_hdr.msg_name = to.cast_mut().cast();
                    header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
                }
            }
            let mut from = 0;
            while from < count {
                // SAFETY: the first `count` of the headers point to one `iovec` each, and those to
                // frames that outlive the call; the kernel only reads them, and keeps nothing. A
                // name is one of `self.bare`. There is no control message.
                let taken = unsafe {
                    libc::sendmmsg(
                        self.socket.as_raw_fd(),
                        headers[from..].as_mut_ptr(),
                        (count - from) as libc::c_uint,
                        libc::MSG_DONTWAIT,
                    )
                };
                match usize::try_from(taken) {
                    Ok(taken) => from += taken,
                    Err(_) => match io::Error::last_os_error() {
                        error if error.kind() == io::ErrorKind::Interrupted => {}
                        // No room: the rest is lost, as packets may be.
                        error if sent + from > 0 || crate::socket::is_loss(&error) => return Ok(sent + from),
                        error => return Err(error),
                    },
                }
            }
            sent += count;
        }
    }

    /// Number of frames for which this socket had no room since the last call.
    pub(crate) fn missed(&self) -> io::Result<u64> {
        // `struct tpacket_stats`: packets, and how many of these were dropped.
        let mut stats = [0; size_of::<libc::tpacket_stats>()];
        sockopt::get(&self.socket, libc::SOL_PACKET, libc::PACKET_STATISTICS, &mut stats)?;
        let [.., a, b, c, d] = stats;
        Ok(u64::from(u32::from_ne_bytes([a, b, c, d])))
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A header for each buffer, without name and control message.
fn headers(places: &mut [libc::iovec; BATCH]) -> [libc::mmsghdr; BATCH] {
    places.each_mut().map(|place| {
        #[expect(unsafe_code, reason = "the structure has private padding on some systems")]
        // SAFETY: its fields are numbers and pointers, for which zero is a valid value.
        let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        header.msg_hdr.msg_iov = place;
        header.msg_hdr.msg_iovlen = 1;
        header
    })
}

/// Returns true if an error of receiving only means that no frame waits.
fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// The address of a protocol on the interface with this number (packet(7)).
fn link_address(index: u32, protocol: c_int) -> libc::sockaddr_ll {
    libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as libc::c_ushort,
        sll_protocol: (protocol as u16).to_be(),
        sll_ifindex: index as c_int,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    }
}

#[expect(unsafe_code, reason = "no safe way to a `sockaddr_ll` among our dependencies")]
fn address_of(link: libc::sockaddr_ll) -> io::Result<SockAddr> {
    // SAFETY: a `sockaddr_ll` is written into room for any address, and its length is set.
    let ((), address) = unsafe {
        SockAddr::try_init(|storage, len| {
            *storage.cast() = link;
            *len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            Ok(())
        })
    }?;
    Ok(address)
}

/// Limit of frames per system call.
pub(crate) const BATCH: usize = 64;
/// Size of a socket's buffers, in bytes. A burst waits there while the thread does other work.
const BUFFER: c_int = 16 << 20;
