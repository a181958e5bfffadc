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

/// A socket on one interface of the namespace in which it was opened.
#[derive(Debug)]
pub(crate) struct Wire {
    socket: Socket,
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
        // The socket receives nothing until it is bound to its interface.
        let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
        socket.set_nonblocking(true)?;
        set_number(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        set_number(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        for (forced, option) in
            [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
        {
            // Root may exceed the system's limit. Other users get at most that limit.
            let _ = set_number(&socket, libc::SOL_SOCKET, forced, BUFFER)
                .or_else(|_| set_number(&socket, libc::SOL_SOCKET, option, BUFFER));
        }
        socket.bind(&address_of(interface::index(name)?)?)?;
        Ok(Wire { socket })
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

    /// Sends frames. Returns how many the kernel took, from the first on.
    #[expect(
        unsafe_code,
        reason = "no safe wrapper of sendmmsg(2) among our dependencies; a call a frame costs twice as much"
    )]
    pub(crate) fn send<'a>(&self, mut frames: impl Iterator<Item = &'a [u8]>) -> io::Result<usize> {
        let mut sent = 0;
        loop {
            let mut count = 0;
            let mut places = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BATCH];
            for (place, frame) in places.iter_mut().zip(frames.by_ref()) {
                *place = libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
                count += 1;
            }
            if count == 0 {
                return Ok(sent);
            }
            let mut headers = headers(&mut places);
            let mut from = 0;
            while from < count {
                // SAFETY: the first `count` of the headers point to one `iovec` each, and those to
                // frames that outlive the call; the kernel only reads them, and keeps nothing.
                // There is no name and no control message.
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
                        error if crate::socket::is_loss(&error) => return Ok(sent + from),
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

/// The address of all protocols on the interface with this number (packet(7)).
#[expect(unsafe_code, reason = "no safe way to a `sockaddr_ll` among our dependencies")]
fn address_of(index: u32) -> io::Result<SockAddr> {
    // SAFETY: a `sockaddr_ll` is written into room for any address, and its length is set.
    let ((), address) = unsafe {
        SockAddr::try_init(|storage, len| {
            let at: *mut libc::sockaddr_ll = storage.cast();
            (*at).sll_family = libc::AF_PACKET as libc::c_ushort;
            (*at).sll_protocol = (libc::ETH_P_ALL as u16).to_be();
            (*at).sll_ifindex = index as c_int;
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
