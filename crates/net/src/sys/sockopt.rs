//! Socket options that no dependency wraps, as the bytes that the kernel reads and writes.
#![expect(unsafe_code, reason = "no safe wrapper of these options among our dependencies")]

use std::ffi::c_int;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd};

/// Reads an option into `value`. Returns how many bytes the kernel has written.
///
/// # Errors
/// The socket has no such option.
pub fn get(socket: impl AsFd, level: c_int, name: c_int, value: &mut [u8]) -> io::Result<usize> {
    let socket = socket.as_fd().as_raw_fd();
    let mut len = value.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `value`, which has this length, and the
    // length to `len`.
    let done = unsafe { libc::getsockopt(socket, level, name, value.as_mut_ptr().cast(), &raw mut len) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(len as usize) }
}

/// Refuses a Unix socket whose peer runs as a user other than root or this one.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] for another user; or the socket is not connected.
pub fn require_own_peer(socket: impl AsFd) -> io::Result<()> {
    // `struct ucred`: process, user, group.
    let mut peer = [0; 12];
    get(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, &mut peer)?;
    let user = u32::from_ne_bytes([peer[4], peer[5], peer[6], peer[7]]);
    if user == 0 || user == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let text = format!("the socket belongs to user {user}, which is neither root nor this user");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// Sets an option.
///
/// # Errors
/// The socket has no such option, or refuses the value.
pub fn set(socket: impl AsFd, level: c_int, name: c_int, value: &[u8]) -> io::Result<()> {
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel reads `value`, whose length is passed, and keeps nothing.
    let done = unsafe {
        libc::setsockopt(socket, level, name, value.as_ptr().cast(), value.len() as libc::socklen_t)
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets an integer option.
///
/// # Errors
/// As for [`set`].
pub fn set_number(socket: impl AsFd, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    set(socket, level, name, &value.to_ne_bytes())
}

/// True if the next byte of a stream is urgent (tcp(7), `SIOCATMARK`).
///
/// # Errors
/// The socket is not connected.
pub fn at_urgent(stream: &TcpStream) -> io::Result<bool> {
    let mut at: c_int = 0;
    // SAFETY: the kernel writes a number to `at`, and keeps nothing.
    let done = unsafe { libc::ioctl(stream.as_raw_fd(), SIOCATMARK, &raw mut at) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(at != 0) }
}

/// From `linux/sockios.h`, for most architectures.
const SIOCATMARK: libc::Ioctl = 0x8905;
