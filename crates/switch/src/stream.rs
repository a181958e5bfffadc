//! The bytes of a connection, in the clear or over TLS, without blocking.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};

use mio::net::TcpStream;

/// A connection that never blocks.
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<Tls>),
}

pub(crate) struct Tls {
    connection: rustls::Connection,
    socket: TcpStream,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Got {
    /// This number of bytes. `drained`: there were no more.
    Bytes { len: usize, drained: bool },
    /// Nothing at present.
    Nothing,
    /// The other end sends no more.
    End,
}

impl Stream {
    pub(crate) fn plain(socket: TcpStream) -> Stream {
        Stream::Plain(socket)
    }

    pub(crate) fn tls(socket: TcpStream, mut connection: rustls::Connection) -> Stream {
        connection.set_buffer_limit(Some(TLS_BUFFER));
        Stream::Tls(Box::new(Tls { connection, socket }))
    }

    pub(crate) fn socket(&mut self) -> &mut TcpStream {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(tls) => &mut tls.socket,
        }
    }

    /// A DNS name in the other end's certificate, once TLS has checked it.
    pub(crate) fn certified_name(&self) -> Option<String> {
        let Stream::Tls(tls) = self else { return None };
        let certificate = tls.connection.peer_certificates()?.first()?;
        let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
        certificate.valid_dns_names().next().map(str::to_owned)
    }

    /// True during the TLS handshake.
    pub(crate) fn is_handshaking(&self) -> bool {
        matches!(self, Stream::Tls(tls) if tls.connection.is_handshaking())
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Got> {
        match self {
            Stream::Plain(socket) => loop {
                return match socket.read(buffer) {
                    Ok(0) if !buffer.is_empty() => Ok(Got::End),
                    Ok(len) => Ok(Got::Bytes { len, drained: len < buffer.len() }),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Got::Nothing),
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(error) => Err(error),
                };
            },
            Stream::Tls(tls) => tls.read(buffer),
        }
    }

    /// Writes as much as possible; fewer bytes than given means that the connection is full.
    pub(crate) fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        loop {
            let done = match (&mut *self, slices) {
                // `send` takes a twentieth less processor time than `writev`.
                (Stream::Plain(socket), [one]) => socket.write(one),
                (Stream::Plain(socket), _) => socket.write_vectored(slices),
                (Stream::Tls(tls), _) => tls.write(slices),
            };
            return match done {
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                other => other,
            };
        }
    }

    /// Writes the bytes that TLS holds. Returns true if none are left.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        match self {
            Stream::Plain(_) => Ok(true),
            Stream::Tls(tls) => tls.flush(),
        }
    }

    /// Closes the direction for writing.
    pub(crate) fn finish(&mut self) {
        if let Stream::Tls(tls) = self {
            tls.connection.send_close_notify();
            let _ = tls.flush();
        }
        // The other end may be gone.
        let _ = self.socket().shutdown(Shutdown::Write);
    }

    /// Makes the connection end by a reset, so that the other end cannot take it for a regular end.
    pub(crate) fn break_off(&mut self) {
        let _ = socket2::SockRef::from(&*self.socket()).set_linger(Some(std::time::Duration::ZERO));
    }

    /// Bytes written that the other end's kernel has not acknowledged; over TLS at least that many.
    pub(crate) fn unacknowledged(&self) -> u64 {
        let held = match self {
            Stream::Plain(_) => 0,
            Stream::Tls(tls) if tls.connection.wants_write() => u64::MAX / 2,
            Stream::Tls(_) => 0,
        };
        held + tollway_net::outqueue::unacknowledged(self).map_or(0, u64::from)
    }

    pub(crate) fn offered_window(&self) -> u64 {
        tollway_net::outqueue::offered_window(self).ok().flatten().map_or(0, u64::from)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Plain(socket) => socket.as_fd(),
            Stream::Tls(tls) => tls.socket.as_fd(),
        }
    }
}

impl Tls {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Got> {
        loop {
            match self.connection.reader().read(buffer) {
                Ok(0) => return Ok(Got::End),
                Ok(len) => return Ok(Got::Bytes { len, drained: false }),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            match self.connection.read_tls(&mut self.socket) {
                // Without a goodbye: cut off.
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {
                    let told = self.connection.process_new_packets();
                    // An alert says what was wrong.
                    let flushed = self.flush();
                    told.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
                    flushed?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Got::Nothing),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let len = self.connection.writer().write_vectored(slices)?;
        self.flush()?;
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<bool> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// Bytes that TLS may buffer.
const TLS_BUFFER: usize = 256 << 10;
