//! A TCP connection: received bytes, split into frames, and bytes to send.

use std::io::IoSlice;

use tollway_law::Time;
use tollway_proto::dispatch::Queue;
use tollway_proto::framing::{FrameError, Framer, Framing};

use crate::stream::{Got, Stream};

/// A client's connection, or one to a server.
pub(super) struct Tcp {
    pub(super) stream: Stream,
    readable: bool,
    writable: bool,
    /// True if the other side sends no more.
    pub(super) ended: bool,
    /// True if the connection broke.
    pub(super) broken: bool,
    framer: Framer,
    /// Bytes that have arrived and were not taken.
    partial: Queue,
    /// True if `partial` may begin with a whole frame.
    pub(super) untaken: bool,
    /// Start of the incomplete frame.
    pub(super) since: Option<Time>,
    /// Bytes to write.
    pub(super) out: Queue,
}

/// The readiness of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    pub(super) readable: bool,
    pub(super) writable: bool,
}

impl Tcp {
    pub(super) fn new(stream: Stream, framing: Framing, most: usize) -> Tcp {
        Tcp {
            stream,
            readable: true,
            writable: true,
            ended: false,
            broken: false,
            framer: Framer::new(framing, most),
            partial: Queue::default(),
            untaken: false,
            since: None,
            out: Queue::default(),
        }
    }

    pub(super) fn on_ready(&mut self, ready: Ready) {
        self.readable |= ready.readable && !self.ended;
        self.writable |= ready.writable;
    }

    /// Returns true if there may be more frames, here or in the kernel.
    pub(super) fn may_read(&self) -> bool {
        self.untaken || self.readable && !self.ended && !self.broken
    }

    /// Returns true if a frame has arrived in part.
    pub(super) fn is_torn(&self) -> bool {
        !self.partial.is_empty()
    }

    /// Bytes held in either direction.
    pub(super) fn bytes(&self) -> usize {
        self.partial.len() + self.out.len()
    }

    /// Reads once, and passes on each whole frame while `take` returns true. If it did not the last
    /// time, continues with the frames that remain instead.
    pub(super) fn read(
        &mut self,
        now: Time,
        scratch: &mut [u8],
        mut take: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), FrameError> {
        if !self.untaken {
            self.receive(scratch);
        }
        let (mut at, whole) = (0, self.partial.as_slice());
        let mut taking = true;
        let mut failed = Ok(());
        while taking {
            match self.framer.next(&whole[at..]) {
                Ok(Some(len)) => {
                    taking = take(&whole[at..at + len]);
                    at += len;
                }
                Ok(None) => break,
                Err(error) => {
                    failed = Err(error);
                    break;
                }
            }
        }
        self.untaken = !taking && at < whole.len();
        self.partial.consume(at);
        self.since = match (self.untaken || self.partial.is_empty(), at, self.since) {
            (true, ..) => None,
            (false, 0, Some(since)) => Some(since),
            _ => Some(now),
        };
        failed
    }

    fn receive(&mut self, scratch: &mut [u8]) {
        match self.stream.read(scratch) {
            Ok(Got::Nothing) => self.readable = false,
            Ok(Got::End) => (self.readable, self.ended) = (false, true),
            Err(_) => (self.readable, self.broken) = (false, true),
            Ok(Got::Bytes { len, .. }) => self.partial.push(&scratch[..len]),
        }
    }

    /// Writes as many bytes as the kernel takes.
    pub(super) fn flush(&mut self) {
        while self.writable && !self.broken && !self.out.is_empty() {
            match self.stream.write(&[IoSlice::new(self.out.as_slice())]) {
                Ok(0) => self.writable = false,
                Ok(len) => self.out.consume(len),
                Err(_) => self.broken = true,
            }
        }
        if self.broken {
            self.out = Queue::default();
        }
    }
}
