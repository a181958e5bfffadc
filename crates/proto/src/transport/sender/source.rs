//! What waits to be sent: frames and streams, cut into segments as they leave.

use std::collections::VecDeque;

use super::scoreboard::Slot;

/// The data not yet sent. Payload is the engine's; here are only lengths.
#[derive(Clone, Debug)]
pub(in crate::transport) struct Source {
    /// Bytes left of what is being cut now, if `active`.
    left: u64,
    active: bool,
    framed: bool,
    /// Nothing of the frame has been cut yet.
    first: bool,
    /// A SYN waits.
    syn: bool,
    /// Data may leave.
    open: bool,
    /// The application has finished.
    pub(in crate::transport) finished: bool,
    fin_sent: bool,
    /// What was written after it; most flows write once, and own none.
    waiting: Option<Box<Backlog>>,
}

/// Items in the order written.
#[derive(Clone, Debug, Default)]
struct Backlog {
    items: VecDeque<Item>,
}

#[derive(Clone, Copy, Debug)]
enum Item {
    /// `count` frames of `bytes` each; [`u64::MAX`] of them do not end.
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

    /// The same on the wire, in segments of at most `payload` bytes and a `header` each.
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
    /// [`Slot`] flags that say what it is.
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
            waiting: None,
        }
    }

    /// `count` frames of `bytes` each; [`u64::MAX`] of them do not end.
    pub(in crate::transport) fn write_frames(&mut self, bytes: u64, count: u64) {
        if count > 0 {
            self.push(Item::Frames { bytes, count });
        }
    }

    /// A stream goes on where the last left off, if no frame came between.
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
        if self.active {
            self.waiting.get_or_insert_default().items.push_back(item);
        } else {
            self.take_up(item);
        }
    }

    /// Takes up the next item.
    fn advance(&mut self) {
        self.active = false;
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

    /// Forgets what has not been cut.
    pub(in crate::transport) fn clear(&mut self) {
        self.waiting = None;
        self.active = false;
    }

    pub(in crate::transport) fn queue_syn(&mut self) {
        self.syn = true;
    }

    /// The connection is established.
    pub(in crate::transport) fn open(&mut self) {
        self.open = true;
    }

    /// Whether data waits.
    #[inline]
    pub(in crate::transport) fn has_data(&self) -> bool {
        self.active
    }

    /// What is left to be cut, bytes on the wire in segments of at most `payload` bytes and a
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

    /// What `of` makes of all that has not been cut.
    #[inline]
    fn sum(&self, of: impl Fn(Item) -> u64) -> u64 {
        let present = if self.active { of(Item::Stream(self.left)) } else { 0 };
        match &self.waiting {
            None => present,
            Some(backlog) => backlog.items.iter().fold(present, |sum, item| sum.saturating_add(of(*item))),
        }
    }

    /// Whether the FIN has been cut.
    pub(in crate::transport) fn fin_sent(&self) -> bool {
        self.fin_sent
    }

    /// Whether anything could leave.
    #[inline]
    pub(in crate::transport) fn ready(&self) -> bool {
        (self.open && (self.active || self.fin_due())) || self.syn
    }

    /// Whether the next to leave is no data, so that the receive window does not matter.
    #[inline]
    pub(in crate::transport) fn control(&self) -> bool {
        !self.active || self.syn
    }

    fn fin_due(&self) -> bool {
        self.finished && !self.fin_sent && !self.active
    }

    /// The next segment, of at most `payload` bytes. Asked only when [`Source::ready`].
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

    /// Whether the next segment is one of `payload` bytes in the middle of a stream. Asked only
    /// when [`Source::ready`], of what has not been [cleared](Source::clear) since.
    #[inline]
    pub(in crate::transport) fn streams(&self, payload: u16) -> bool {
        !self.framed && self.left > u64::from(payload)
    }

    /// [`Source::cut`] of what [streams](Source::streams).
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
