//! The kernel's send queue of a TCP connection.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Bytes written that the other end has not acknowledged (tcp(7), `SIOCOUTQ`).
///
/// # Errors
/// `socket` is no TCP connection.
#[expect(unsafe_code, reason = "no safe wrapper of SIOCOUTQ among our dependencies")]
pub fn unacknowledged(socket: impl AsFd) -> io::Result<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes a number to `bytes`, and keeps nothing.
    let done = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(bytes.unsigned_abs()) }
}

/// The window that the other end offered last, in bytes (tcp(7), `tcpi_snd_wnd`).
///
/// `None` before Linux 5.4.
///
/// # Errors
/// `socket` is no TCP connection.
pub fn offered_window(socket: impl AsFd) -> io::Result<Option<u32>> {
    let mut info = [0u8; SND_WND + 4];
    let len = crate::sys::sockopt::get(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
    let field = info[..len].get(SND_WND..).and_then(|bytes| bytes.try_into().ok());
    Ok(field.map(u32::from_ne_bytes))
}

/// Offset of `tcpi_snd_wnd` in the kernel's `struct tcp_info`, beyond the C library's fields.
const SND_WND: usize = 228;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn what_nobody_reads_stays_in_the_queue_and_the_window_closes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        assert_eq!(unacknowledged(&sender).unwrap(), 0);
        let open = offered_window(&sender).unwrap().unwrap();
        assert!(open > 10_000, "{open}");
        sender.set_nonblocking(true).unwrap();
        let mut written = 0;
        while let Ok(len) = sender.write(&[0; 65_536]) {
            written += len;
        }
        let queued = unacknowledged(&sender).unwrap() as usize;
        assert!(queued > 0 && queued <= written, "{queued} of {written}");
        receiver.set_nonblocking(true).unwrap();
        let mut read = 0;
        while read < written {
            read += receiver.read(&mut [0; 65_536]).unwrap_or(0);
        }
        for _ in 0..1000 {
            if unacknowledged(&sender).unwrap() == 0 {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("all was read, and is not acknowledged");
    }
}
