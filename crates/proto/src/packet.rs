//! The packet inside the machines: one cache line of fields in the units of laws.

use tollway_law::{Kind, Toll};

use crate::Stamp;

/// A packet of the transport, or of plain cross-traffic: 64 bytes, moved by index and built in
/// place.
///
/// Long fields (SACK ranges, payload) are stored by the engine under an index. The last fields
/// belong to the engine while the packet is in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C, align(64))]
pub struct Packet {
    /// The toll, which links write and the far end echoes.
    pub toll: Toll,
    /// Sequence number of the segment carried (serial arithmetic, RFC 1982), or of the next one if
    /// none is.
    pub seq: u32,
    /// The next segment expected from the other side, if [`Flags::ACK`].
    pub ack: u32,
    /// Time of transmission, by the sender's clock.
    pub sent: Stamp,
    /// The `sent` of the packet that caused this acknowledgement, if [`Flags::STAMP_ECHO`].
    pub sent_echo: Stamp,
    /// Receive window: segments from `ack` on that fit the receiver's buffer.
    pub window: u32,
    /// The flow this packet belongs to.
    pub flow: u32,
    /// Bytes on the wire, with headers and without the link's framing.
    pub size: u16,
    /// The packet's type and content.
    pub flags: Flags,
    /// The engine's: index of the SACK ranges, if [`Flags::SACK`].
    pub sack: u32,
    /// The engine's: position on the route.
    pub cursor: u32,
    /// The port's: time of entry into the present queue.
    pub entered: Stamp,
}

const _: () = assert!(size_of::<Packet>() == 64);

impl Packet {
    /// The treatment of this packet by a link's law.
    #[inline]
    pub fn kind(&self) -> Kind {
        if self.flags.has(Flags::TOLLED) { Kind::Tolled } else { Kind::Plain }
    }

    /// Marks a packet without a toll as in its sender's profile, as a codepoint of IP would (RFC
    /// 2474). The mark is in the toll field `offer`, which such a packet does not use.
    pub fn mark_in_profile(&mut self) {
        debug_assert_eq!(self.kind(), Kind::Plain, "a toll has no room for the mark");
        self.toll.offer = 1.0;
    }

    /// True if it is [marked](Packet::mark_in_profile) as in profile.
    #[inline]
    pub fn in_profile(&self) -> bool {
        self.kind() == Kind::Plain && self.toll.offer != 0.0
    }
}

/// The type and content of a packet, as a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u16);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// The packet carries a segment of data.
    pub const DATA: Flags = Flags(1 << 0);
    /// `ack` and `window` are valid.
    pub const ACK: Flags = Flags(1 << 1);
    /// The packet opens a connection; takes one segment number.
    pub const SYN: Flags = Flags(1 << 2);
    /// The sender has no more data; takes one segment number.
    pub const FIN: Flags = Flags(1 << 3);
    /// The connection is aborted.
    pub const RST: Flags = Flags(1 << 4);
    /// `sack` refers to SACK ranges.
    pub const SACK: Flags = Flags(1 << 5);
    /// The toll's forward part is for links.
    pub const TOLLED: Flags = Flags(1 << 6);
    /// The toll's `echo` field is valid.
    pub const ECHO: Flags = Flags(1 << 7);
    /// `sent_echo` is valid.
    pub const STAMP_ECHO: Flags = Flags(1 << 8);
    /// May be marked instead of dropped: ECT(0). With [`Flags::ECT1`] and [`Flags::CE`] it forms
    /// IP's ECN field (RFC 3168 § 5).
    pub const ECT: Flags = Flags(1 << 9);
    /// May be marked, by a sender that reacts to marks as L4S requires: ECT(1) (RFC 9331 § 4).
    pub const ECT1: Flags = Flags(1 << 10);
    /// Congestion experienced: marked on the way. The original codepoint is lost.
    pub const CE: Flags = Flags(Flags::ECT.0 | Flags::ECT1.0);
    /// The receiver saw a mark (ECN-Echo).
    pub const ECE: Flags = Flags(1 << 11);
    /// First segment of its frame.
    pub const FIRST: Flags = Flags(1 << 12);
    /// Last segment of its frame.
    pub const LAST: Flags = Flags(1 << 13);
    /// A retransmission: carries no new data.
    pub const RETRANSMIT: Flags = Flags(1 << 14);
    /// With [`Flags::ECHO`]: a router on the path of the echoed toll did not speak its law.
    pub const GAP: Flags = Flags(1 << 15);

    /// True if all of `other` are set.
    #[inline]
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// True if the packet may be marked instead of dropped, or is marked already.
    #[inline]
    pub const fn ecn_capable(self) -> bool {
        self.0 & Flags::CE.0 != 0
    }

    /// True if the packet belongs in the queue for L4S: ECT(1) or CE (RFC 9331 § 5.1).
    #[inline]
    pub const fn l4s(self) -> bool {
        self.0 & Flags::ECT1.0 != 0
    }

    /// These flags with `other` set as well.
    #[inline]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// The flags set in both.
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
    /// Upper bound on ranges: the number that fits TCP's 40 bytes of options alone.
    pub const MAX: usize = 4;

    /// No range.
    pub const EMPTY: SackRanges = SackRanges { ranges: [(0, 0); 4], len: 0 };

    /// Adds `[start, end)`. Returns true if there was room.
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

    /// True if there are no ranges.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Removes all ranges.
    pub fn clear(&mut self) {
        *self = SackRanges::EMPTY;
    }
}
