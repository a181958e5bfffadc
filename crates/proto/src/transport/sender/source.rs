//! Data to be sent: frames and streams, split into segments as they leave.

use std::collections::VecDeque;

use super::scoreboard::Slot;

/// The data not sent yet, as lengths; the engine stores the payload.
#[derive(Clone, Debug)]
pub(in crate::transport) struct Source {
    /// Remaining bytes of the present item, if `active`.
    left: u64,
    active: bool,
    framed: bool,
    /// True if no segment of the frame has been cut yet.
    first: bool,
    /// True if a SYN waits.
    syn: bool,
    /// True if data may leave.
    open: bool,
    /// True if the application has finished.
    pub(in crate::transport) finished: bool,
    fin_sent: bool,
    /// True if the next item waits until the application resumes.
    paused: bool,
    /// Later writes; most flows write once, and have none.
    waiting: Option<Box<Backlog>>,
}

/// Items in the order written.
#[derive(Clone, Debug, Default)]
struct Backlog {
    items: VecDeque<Item>,
}

#[derive(Clone, Copy, Debug)]
enum Item {
    /// `count` frames of `bytes` each; [`u64::MAX`] frames never end.
    Frames {
        bytes: u64,
        count: u64,
    },
    Stream(u64),
}

impl Item {
    /// Payload, bytes.
    fn bytes(self) -> u64 {
        match self {
            Item::Frames { bytes, count } => bytes.saturating_mul(count),
            Item::Stream(bytes) => bytes,
        }
    }

    /// The bytes on the wire, in segments of at most `payload` bytes and a `header` each.
    fn wire(self, payload: u16, header: u16) -> u64 {
        let wire = |bytes: u64| {
            bytes.saturating_add(bytes.div_ceil(u64::from(payload)).saturating_mul(u64::from(header)))
        };
        match self {
            Item::Frames { bytes, count } => wire(bytes).saturating_mul(count),
            Item::Stream(bytes) => wire(bytes),
        }
    }
}

/// One segment cut off the source.
#[derive(Clone, Copy, Debug)]
pub(in crate::transport) struct Cut {
    /// Bytes of payload.
    pub(in crate::transport) payload: u16,
    /// Its [`Slot`] flags.
    pub(in crate::transport) flags: u8,
}

impl Source {
    pub(in crate::transport) fn new() -> Source {
        Source {
            left: 0,
            active: false,
            framed: false,
            first: false,
            syn: false,
            open: false,
            finished: false,
            fin_sent: false,
            paused: false,
            waiting: None,
        }
    }

    /// Appends `count` frames of `bytes` each; [`u64::MAX`] frames never end.
    pub(in crate::transport) fn write_frames(&mut self, bytes: u64, count: u64) {
        if count > 0 {
            self.push(Item::Frames { bytes, count });
        }
    }

    /// Appends to a stream; it continues the last one if no frame came between.
    pub(in crate::transport) fn write_stream(&mut self, bytes: u64) {
        if bytes == 0 || self.finished {
            return;
        }
        match self.waiting.as_mut().and_then(|backlog| backlog.items.back_mut()) {
            Some(Item::Stream(left)) => *left = left.saturating_add(bytes),
            None if self.active && !self.framed => self.left = self.left.saturating_add(bytes),
            _ => self.push(Item::Stream(bytes)),
        }
    }

    fn push(&mut self, item: Item) {
        if self.finished {
            return;
        }
        if self.active || self.paused {
            self.waiting.get_or_insert_default().items.push_back(item);
        } else {
            self.take_up(item);
        }
    }

    /// Starts the next item.
    fn advance(&mut self) {
        self.active = false;
        if self.paused {
            return;
        }
        if let Some(item) = self.waiting.as_mut().and_then(|backlog| backlog.items.pop_front()) {
            self.take_up(item);
        }
    }

    fn take_up(&mut self, item: Item) {
        self.active = true;
        self.first = true;
        (self.framed, self.left) = match item {
            Item::Frames { bytes, count } => {
                if count > 1 {
                    let count = if count == u64::MAX { count } else { count - 1 };
                    self.waiting.get_or_insert_default().items.push_front(Item::Frames { bytes, count });
                }
                (true, bytes)
            }
            Item::Stream(bytes) => (false, bytes),
        };
    }

    /// Drops the data not cut yet.
    pub(in crate::transport) fn clear(&mut self) {
        self.waiting = None;
        self.active = false;
        self.paused = false;
        self.left = 0;
    }

    /// Holds data back, from the next frame on, or releases them.
    pub(in crate::transport) fn set_paused(&mut self, paused: bool) {
        self.paused = paused;
        if !paused && !self.active {
            self.advance();
        } else if paused && self.active && (self.first || !self.framed) {
            let (bytes, count) = (self.left, 1);
            let item = if self.framed { Item::Frames { bytes, count } } else { Item::Stream(bytes) };
            self.waiting.get_or_insert_default().items.push_front(item);
            (self.active, self.left) = (false, 0);
        }
    }

    pub(in crate::transport) fn queue_syn(&mut self) {
        self.syn = true;
    }

    /// Releases data, once the connection is established.
    pub(in crate::transport) fn open(&mut self) {
        self.open = true;
    }

    /// True if data wait, or may: they are paused.
    #[inline]
    pub(in crate::transport) fn has_data(&self) -> bool {
        self.active || self.paused
    }

    /// Data left to be cut, in bytes on the wire, in segments of at most `payload` bytes and a
    /// `header` each; [`u64::MAX`] unless the application has finished.
    #[inline]
    pub(in crate::transport) fn unsent(&self, payload: u16, header: u16) -> u64 {
        if !self.finished {
            return u64::MAX;
        }
        self.sum(|item| item.wire(payload, header))
    }

    /// Bytes of payload not cut yet.
    pub(in crate::transport) fn queued(&self) -> u64 {
        self.sum(Item::bytes)
    }

    /// The sum of `of` over all data not cut yet.
    #[inline]
    fn sum(&self, of: impl Fn(Item) -> u64) -> u64 {
        let present = if self.active { of(Item::Stream(self.left)) } else { 0 };
        match &self.waiting {
            None => present,
            Some(backlog) => backlog.items.iter().fold(present, |sum, item| sum.saturating_add(of(*item))),
        }
    }

    /// True if the FIN has been cut.
    pub(in crate::transport) fn fin_sent(&self) -> bool {
        self.fin_sent
    }

    /// True if a segment could leave.
    #[inline]
    pub(in crate::transport) fn ready(&self) -> bool {
        (self.open && (self.active || self.fin_due())) || self.syn
    }

    /// True if the next segment carries no data, so that the receive window does not matter.
    #[inline]
    pub(in crate::transport) fn control(&self) -> bool {
        !self.active || self.syn
    }

    fn fin_due(&self) -> bool {
        self.finished && !self.fin_sent && !self.active && !self.paused
    }

    /// Cuts the next segment, of at most `payload` bytes. Requires [`Source::ready`].
    #[inline]
    pub(in crate::transport) fn cut(&mut self, payload: u16) -> Cut {
        if self.syn || !self.active {
            return self.cut_control();
        }
        let bytes = self.left.min(u64::from(payload));
        let mut flags = 0;
        if self.framed {
            if self.first {
                flags |= Slot::FIRST;
                self.first = false;
            }
            if bytes == self.left {
                flags |= Slot::LAST;
            }
        }
        // An unlimited stream is one of 2^64 - 1 bytes: no link will see its end.
        self.left -= bytes;
        if self.left == 0 {
            self.advance();
        }
        Cut { payload: bytes as u16, flags }
    }

    /// True if the next segment is one of `payload` bytes in the middle of a stream. Requires that
    /// data may leave.
    #[inline]
    pub(in crate::transport) fn streams(&self, payload: u16) -> bool {
        !self.framed && self.left > u64::from(payload)
    }

    /// [`Source::cut`] for a stream, where [`streams`](Source::streams) is true.
    #[inline]
    pub(in crate::transport) fn cut_full(&mut self, payload: u16) {
        self.left -= u64::from(payload);
    }

    /// Payload of the segment that [`Source::cut`] would cut next, if that is data.
    pub(in crate::transport) fn next_payload(&self, payload: u16) -> u16 {
        self.left.min(u64::from(payload)) as u16
    }

    #[cold]
    fn cut_control(&mut self) -> Cut {
        if std::mem::take(&mut self.syn) {
            return Cut { payload: 0, flags: Slot::SYN };
        }
        self.fin_sent = true;
        Cut { payload: 0, flags: Slot::FIN }
    }
}
