//! A connection's bytes, with TLS or without.

use std::cell::RefCell;
use std::io::{self, ErrorKind, IoSlice, Read, Write};

use mio::net::TcpStream;
use rustls::Connection;
use rustls::pki_types::CertificateDer;

/// A non-blocking connection.
#[derive(Debug)]
pub(super) struct Channel {
    stream: TcpStream,
    tls: Option<Box<Connection>>,
    /// Received bytes that TLS has not taken yet.
    ahead: Vec<u8>,
}

impl Channel {
    /// Makes a connection over `stream`.
    pub(super) fn new(stream: TcpStream, tls: Option<Connection>) -> Channel {
        let tls = tls.map(|mut tls| {
            tls.set_buffer_limit(Some(TLS_BUFFER));
            Box::new(tls)
        });
        Channel { stream, tls, ahead: Vec::new() }
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
        let mut got = 0;
        loop {
            // Each call returns at most one record.
            while got < buffer.len() {
                match tls.reader().read(&mut buffer[got..]) {
                    Ok(0) => return Ok(got),
                    Ok(len) => got += len,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(_) if got > 0 => return Ok(got),
                    Err(error) => return Err(error),
                }
            }
            if got == buffer.len() || (got > 0 && self.ahead.is_empty()) {
                return Ok(got);
            }
            if self.ahead.is_empty() {
                SCRATCH.with_borrow_mut(|scratch| {
                    scratch.resize(SCRATCH_LEN, 0);
                    let len = self.stream.read(scratch)?;
                    self.ahead.extend_from_slice(&scratch[..len]);
                    io::Result::Ok(())
                })?;
                if self.ahead.is_empty() {
                    return Ok(0);
                }
            }
            let mut rest = &self.ahead[..];
            let state = loop {
                let taken = tls.read_tls(&mut rest)?;
                let state = tls.process_new_packets();
                let full = state.as_ref().is_ok_and(|state| state.plaintext_bytes_to_read() > 0);
                if taken == 0 || rest.is_empty() || state.is_err() || full {
                    break state.map(drop);
                }
            };
            let used = self.ahead.len() - rest.len();
            self.ahead.drain(..used);
            // An idle connection holds no buffer.
            if self.ahead.is_empty() {
                self.ahead = Vec::new();
            }
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

thread_local! {
    /// Input of a socket with TLS. TLS itself would read 4 KiB with each system call.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Bytes read from a socket with TLS at a time.
const SCRATCH_LEN: usize = 1 << 16;
/// Limit of bytes that TLS buffers.
const TLS_BUFFER: usize = 1 << 16;
