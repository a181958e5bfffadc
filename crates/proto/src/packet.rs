//! The packet inside the machines: one cache line, in law units, never a byte string.

use tollway_law::{Kind, Toll};

use crate::Stamp;

/// A packet of the transport, or of plain cross-traffic: 64 bytes, moved by index and built in
/// place.
///
/// Long fields (selective acknowledgements, payload) hang on an index kept by the engine. The
/// fields at the end are the engine's own while the packet is on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C, align(64))]
pub struct Packet {
    /// What links write and the far end echoes.
    pub toll: Toll,
    /// Number of the segment carried (serial arithmetic, RFC 1982); of the next one if none is.
    pub seq: u32,
    /// The next segment expected from the other side, if [`Flags::ACK`].
    pub ack: u32,
    /// When this packet was sent, by its sender's clock.
    pub sent: Stamp,
    /// The `sent` of the packet that caused this acknowledgement, if [`Flags::STAMP_ECHO`].
    pub sent_echo: Stamp,
    /// Receive window: segments from `ack` on that the receiver has room for.
    pub window: u32,
    /// The flow this packet belongs to.
    pub flow: u32,
    /// Bytes on the wire, headers included, the link's framing not.
    pub size: u16,
    /// What the packet is.
    pub flags: Flags,
    /// The engine's: where the SACK ranges are, if [`Flags::SACK`].
    pub sack: u32,
    /// The engine's: position on the route.
    pub cursor: u32,
    /// The port's: when the packet entered the queue it is in.
    pub entered: Stamp,
}

const _: () = assert!(size_of::<Packet>() == 64);

impl Packet {
    /// How a link's law has to take this packet.
    #[inline]
    pub fn kind(&self) -> Kind {
        if self.flags.has(Flags::TOLLED) { Kind::Tolled } else { Kind::Plain }
    }

    /// Marks a packet without a toll as in its sender's profile, as a codepoint of IP would (RFC
    /// 2474). The mark stands where other senders say of their rate, which this one doesn't.
    pub fn mark_in_profile(&mut self) {
        debug_assert_eq!(self.kind(), Kind::Plain, "a toll has no room for the mark");
        self.toll.offer = 1.0;
    }

    /// Whether it is [marked](Packet::mark_in_profile) as in profile.
    #[inline]
    pub fn in_profile(&self) -> bool {
        self.kind() == Kind::Plain && self.toll.offer != 0.0
    }
}

/// What a packet is and carries: a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u16);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// Carries a segment of data.
    pub const DATA: Flags = Flags(1 << 0);
    /// `ack` and `window` are valid.
    pub const ACK: Flags = Flags(1 << 1);
    /// Opens a connection; uses up one segment number.
    pub const SYN: Flags = Flags(1 << 2);
    /// The sender has no more data; uses up one segment number.
    pub const FIN: Flags = Flags(1 << 3);
    /// The connection is gone.
    pub const RST: Flags = Flags(1 << 4);
    /// SACK ranges hang on `sack`.
    pub const SACK: Flags = Flags(1 << 5);
    /// The toll's forward part is meant for links.
    pub const TOLLED: Flags = Flags(1 << 6);
    /// The toll's `echo` is valid.
    pub const ECHO: Flags = Flags(1 << 7);
    /// `sent_echo` is valid.
    pub const STAMP_ECHO: Flags = Flags(1 << 8);
    /// May be marked instead of dropped: ECT(0). With [`Flags::ECT1`] and [`Flags::CE`] the two
    /// bits of IP's ECN field (RFC 3168 § 5).
    pub const ECT: Flags = Flags(1 << 9);
    /// May be marked, and its sender answers marks as L4S wants: ECT(1) (RFC 9331 § 4).
    pub const ECT1: Flags = Flags(1 << 10);
    /// Congestion experienced: marked on the way. Which of the two it was before can't be told any
    /// more.
    pub const CE: Flags = Flags(Flags::ECT.0 | Flags::ECT1.0);
    /// The receiver saw a mark (ECN-Echo).
    pub const ECE: Flags = Flags(1 << 11);
    /// First segment of its frame.
    pub const FIRST: Flags = Flags(1 << 12);
    /// Last segment of its frame.
    pub const LAST: Flags = Flags(1 << 13);
    /// Sent before: carries no fresh data.
    pub const RETRANSMIT: Flags = Flags(1 << 14);
    /// Beside [`Flags::ECHO`]: a router on the way of the toll echoed did not speak its law.
    pub const GAP: Flags = Flags(1 << 15);

    /// Whether all of `other` are set.
    #[inline]
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether it may be marked instead of dropped, or is marked already.
    #[inline]
    pub const fn ecn_capable(self) -> bool {
        self.0 & Flags::CE.0 != 0
    }

    /// Whether it belongs in the queue for L4S: ECT(1) or CE (RFC 9331 § 5.1).
    #[inline]
    pub const fn l4s(self) -> bool {
        self.0 & Flags::ECT1.0 != 0
    }

    /// With `other` set as well.
    #[inline]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Those of them that are also in `other`.
    #[inline]
    pub const fn among(self, other: Flags) -> Flags {
        Flags(self.0 & other.0)
    }

    /// Sets `other`.
    #[inline]
    pub fn set(&mut self, other: Flags) {
        self.0 |= other.0;
    }
}

/// Selectively acknowledged ranges, the most recent first (RFC 2018): at most four of segments
/// `[start, end)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackRanges {
    ranges: [(u32, u32); 4],
    len: u8,
}

impl SackRanges {
    /// As many as can be held: what TCP's 40 bytes of options have room for without anything else.
    pub const MAX: usize = 4;

    /// No range.
    pub const EMPTY: SackRanges = SackRanges { ranges: [(0, 0); 4], len: 0 };

    /// Adds `[start, end)`; answers whether there was room.
    pub fn push(&mut self, start: u32, end: u32) -> bool {
        let room = (self.len as usize) < SackRanges::MAX;
        if room {
            self.ranges[self.len as usize] = (start, end);
            self.len += 1;
        }
        room
    }

    /// The ranges held.
    pub fn as_slice(&self) -> &[(u32, u32)] {
        &self.ranges[..self.len as usize]
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        *self = SackRanges::EMPTY;
    }
}
