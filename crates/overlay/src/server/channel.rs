//! A connection's bytes, with TLS or without.

use std::io::{self, ErrorKind, IoSlice, Read, Write};

use mio::net::TcpStream;
use rustls::Connection;
use rustls::pki_types::CertificateDer;

/// A connection that never waits.
#[derive(Debug)]
pub(super) struct Channel {
    stream: TcpStream,
    tls: Option<Box<Connection>>,
}

impl Channel {
    /// A connection over `stream`.
    pub(super) fn new(stream: TcpStream, tls: Option<Connection>) -> Channel {
        let tls = tls.map(|mut tls| {
            tls.set_buffer_limit(Some(TLS_BUFFER));
            Box::new(tls)
        });
        Channel { stream, tls }
    }

    /// The socket, to be registered.
    pub(super) fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Goes on with TLS, as a client and a server have agreed.
    pub(super) fn upgrade(&mut self, tls: Connection) {
        let mut tls = Box::new(tls);
        tls.set_buffer_limit(Some(TLS_BUFFER));
        self.tls = Some(tls);
    }

    /// True until the handshake is complete.
    pub(super) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// The other end's certificate, once it has been verified.
    pub(super) fn certificate(&self) -> Option<&CertificateDer<'static>> {
        let tls = self.tls.as_ref().filter(|tls| !tls.is_handshaking())?;
        tls.peer_certificates()?.first()
    }

    /// Reads into `buffer`.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`]: nothing has come. Anything else, and zero bytes: it is over.
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
            // The handshake's next words, or an alert that says what is wrong.
            let sent = flush(tls, &mut self.stream);
            state.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            sent?;
        }
    }

    /// Sends what it can of `slices`; answers how many bytes were taken.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`]: nothing can be sent now. Anything else: it is over.
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

    /// Sends what TLS has of its own; answers whether all of it is sent.
    ///
    /// # Errors
    /// The connection is over.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else { return Ok(true) };
        flush(tls, &mut self.stream)?;
        Ok(!tls.wants_write())
    }

    /// Says that nothing more will be sent.
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

/// Bytes that TLS may hold before they are encrypted and sent.
const TLS_BUFFER: usize = 1 << 16;
