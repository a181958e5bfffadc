//! A connection's bytes, with TLS or without.

use std::io::{self, ErrorKind, IoSlice, Read, Write};

use mio::net::TcpStream;
use rustls::Connection;
use rustls::pki_types::CertificateDer;

/// A non-blocking connection.
#[derive(Debug)]
pub(super) struct Channel {
    stream: TcpStream,
    tls: Option<Box<Connection>>,
}

impl Channel {
    /// Makes a connection over `stream`.
    pub(super) fn new(stream: TcpStream, tls: Option<Connection>) -> Channel {
        let tls = tls.map(|mut tls| {
            tls.set_buffer_limit(Some(TLS_BUFFER));
            Box::new(tls)
        });
        Channel { stream, tls }
    }

    /// The socket, for registration.
    pub(super) fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Continues the connection with TLS.
    pub(super) fn upgrade(&mut self, tls: Connection) {
        let mut tls = Box::new(tls);
        tls.set_buffer_limit(Some(TLS_BUFFER));
        self.tls = Some(tls);
    }

    /// True until the handshake is complete.
    pub(super) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// The peer's certificate, after its verification.
    pub(super) fn certificate(&self) -> Option<&CertificateDer<'static>> {
        let tls = self.tls.as_ref().filter(|tls| !tls.is_handshaking())?;
        tls.peer_certificates()?.first()
    }

    /// Reads into `buffer`.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`]: no bytes wait. Any other error, and zero bytes: the connection
    /// has ended.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.stream.read(buffer) };
        loop {
            match tls.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                done => return done,
            }
            if tls.read_tls(&mut self.stream)? == 0 {
                return Ok(0);
            }
            let state = tls.process_new_packets();
            // The next messages of the handshake, or an alert with the error.
            let sent = flush(tls, &mut self.stream);
            state.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            sent?;
        }
    }

    /// Sends as much as possible of `slices`. Returns the number of bytes accepted.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`]: nothing can be sent now. Any other error: the connection has
    /// ended.
    pub(super) fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.stream.write_vectored(slices) };
        flush(tls, &mut self.stream)?;
        if tls.wants_write() || tls.is_handshaking() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let taken = tls.writer().write_vectored(slices)?;
        flush(tls, &mut self.stream)?;
        Ok(taken)
    }

    /// Sends the pending bytes of TLS. Returns true if all of them are sent.
    ///
    /// # Errors
    /// The connection has ended.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else { return Ok(true) };
        flush(tls, &mut self.stream)?;
        Ok(!tls.wants_write())
    }

    /// Closes the sending direction.
    pub(super) fn finish(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            let _ = flush(tls, &mut self.stream);
        }
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }
}

fn flush(tls: &mut Connection, stream: &mut TcpStream) -> io::Result<()> {
    while tls.wants_write() {
        match tls.write_tls(stream) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Limit of bytes that TLS buffers.
const TLS_BUFFER: usize = 1 << 16;
