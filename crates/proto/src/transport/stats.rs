//! Events and counters of a connection.

use tollway_law::Time;

/// An event for the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Both ends know of each other; data may flow.
    Connected,
    /// A whole frame has arrived, and all data before it.
    FrameDelivered {
        /// Its number, from 0.
        index: u64,
        /// Its payload, bytes.
        bytes: u64,
    },
    /// The other side has finished, and all its data have arrived.
    PeerFinished,
    /// All data of this side are acknowledged, after [`finish`](super::Connection::finish) or
    /// [`stop`](super::Connection::stop).
    Finished,
    /// Both sides have finished and know it. The connection still answers a repeated FIN until it
    /// is dropped.
    Closed,
    /// The other side has aborted the connection, or never knew it.
    Reset,
}

/// A receive buffer that an application empties at its own pace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffer {
    /// Payload in order that the application has not read, bytes.
    pub unread: u64,
    /// The maximum of `unread`.
    pub most_unread: u64,
    /// Segments dropped for lack of room.
    pub dropped: u64,
    /// The time of the last drop; [`Time::ZERO`] without drops.
    pub last_drop: Time,
}

/// The counters of a connection, which are never reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Segments sent, retransmissions, SYN and FIN included.
    pub segments_sent: u64,
    /// The same in bytes on the wire.
    pub bytes_sent: u64,
    /// Packets sent that only acknowledge.
    pub acks_sent: u64,
    /// Segments received, also duplicates and those outside the window.
    pub segments_received: u64,
    /// The same in bytes on the wire.
    pub bytes_received: u64,
    /// Segments received [marked](crate::Packet::mark_in_profile) as in their sender's profile.
    pub in_profile_received: u64,
    /// Segments delivered to the application in order.
    pub segments_delivered: u64,
    /// Payload delivered to the application in order, bytes.
    pub bytes_delivered: u64,
    /// Segments received that also carried feedback for the other direction.
    pub echoing_segments: u64,
    /// Segments retransmitted.
    pub retransmissions: u64,
    /// Segments received again, or outside the window.
    pub duplicates: u64,
    /// Whole frames delivered to the application.
    pub frames_delivered: u64,
    /// Expiries of the retransmission timer.
    pub timeouts: u64,
    /// Timeouts that an acknowledgement of the original showed to be premature (RFC 3522).
    pub spurious_timeouts: u64,
    /// Number of entries into fast recovery.
    pub fast_recoveries: u64,
    /// Retransmissions that were tail-loss probes.
    pub tail_probes: u64,
    /// Retransmissions detected as lost before a timeout.
    pub lost_retransmissions: u64,
}

/// The counters of a connection: those of an undisturbed flow in one cache line, the others in a
/// box of their own.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Counters {
    pub(super) segments_sent: u64,
    pub(super) bytes_sent: u64,
    pub(super) acks_sent: u64,
    pub(super) segments_received: u64,
    pub(super) bytes_received: u64,
    pub(super) segments_delivered: u64,
    pub(super) bytes_delivered: u64,
    rare: Option<Box<Rare>>,
}

const _: () = assert!(size_of::<Counters>() == 64);

/// The counters of rare events.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rare {
    pub(super) in_profile_received: u64,
    pub(super) echoing_segments: u64,
    pub(super) retransmissions: u64,
    pub(super) duplicates: u64,
    pub(super) frames_delivered: u64,
    pub(super) timeouts: u32,
    pub(super) spurious_timeouts: u32,
    pub(super) fast_recoveries: u32,
    pub(super) tail_probes: u32,
    pub(super) lost_retransmissions: u32,
}

impl Counters {
    /// The rare ones, to be added to.
    #[inline]
    pub(super) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// All of them.
    #[inline]
    pub(super) fn all(&self) -> Stats {
        let rare = self.rare.as_deref().copied().unwrap_or_default();
        Stats {
            segments_sent: self.segments_sent,
            bytes_sent: self.bytes_sent,
            acks_sent: self.acks_sent,
            segments_received: self.segments_received,
            bytes_received: self.bytes_received,
            in_profile_received: rare.in_profile_received,
            segments_delivered: self.segments_delivered,
            bytes_delivered: self.bytes_delivered,
            echoing_segments: rare.echoing_segments,
            retransmissions: rare.retransmissions,
            duplicates: rare.duplicates,
            frames_delivered: rare.frames_delivered,
            timeouts: u64::from(rare.timeouts),
            spurious_timeouts: u64::from(rare.spurious_timeouts),
            fast_recoveries: u64::from(rare.fast_recoveries),
            tail_probes: u64::from(rare.tail_probes),
            lost_retransmissions: u64::from(rare.lost_retransmissions),
        }
    }
}
