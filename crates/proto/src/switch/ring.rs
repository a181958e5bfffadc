//! The rings: a session's packets by connection number (CSN), and a member's by local number (LSN).

use std::collections::VecDeque;

use tollway_law::Time;

use crate::Stamp;
use crate::transport::Rto;
use crate::transport::ring::Ring;
use crate::transport::rtt::Rtt;
use crate::transport::serial::before;

/// The state of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// The packet has not arrived at the switch.
    #[default]
    Missing,
    /// The packet was forwarded.
    Sent,
    /// The packet was forwarded, and its receiver reports later ones.
    Lost,
    /// The receiver has the packet, and lacks an earlier one.
    Received,
    /// The receiver has the packet and all before it.
    Delivered,
}

impl State {
    /// Returns true if the receiver has it.
    pub(super) fn is_there(self) -> bool {
        matches!(self, State::Received | State::Delivered)
    }
}

/// A packet of the session.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slot {
    /// The toll's `due`, on the members' side of the switch.
    pub(super) due: f64,
    /// Its number on the member's side.
    pub(super) lsn: u32,
    /// Its last transmission, by its sender's clock.
    pub(super) sent: Stamp,
    /// Its member, the destination or the source, or [`NONE`].
    pub(super) member: u16,
    pub(super) size: u16,
    pub(super) state: State,
    /// True if its frame continues in the next packet.
    pub(super) open: bool,
    /// True if later packets have lower numbers at its member, since it was first assigned to a
    /// failed one.
    pub(super) late: bool,
}

/// The number that stands for no member.
pub(super) const NONE: u16 = u16::MAX;

/// The session's numbers in one direction: [`una`](Space::una) … [`next`](Space::next), bounded by
/// a capacity.
#[derive(Debug)]
pub(super) struct Space {
    slots: Ring<Slot>,
    /// The first number that is not finished.
    pub(super) una: u32,
    pub(super) next: u32,
    capacity: u32,
    /// Numbers in the state [`State::Missing`], in order.
    pub(super) missing: VecDeque<u32>,
}

impl Space {
    pub(super) fn new(first: u32, capacity: u32) -> Space {
        Space { slots: Ring::new(), una: first, next: first, capacity, missing: VecDeque::new() }
    }

    /// Starts at `first`; no number may be outstanding.
    pub(super) fn begin(&mut self, first: u32) {
        (self.una, self.next) = (first, first);
    }

    /// Count of numbers in use.
    pub(super) fn len(&self) -> u32 {
        self.next.wrapping_sub(self.una)
    }

    /// Count of numbers that can still be assigned.
    pub(super) fn room(&self) -> u32 {
        self.capacity - self.len()
    }

    /// Returns true if `csn` is in use.
    pub(super) fn holds(&self, csn: u32) -> bool {
        csn.wrapping_sub(self.una) < self.len()
    }

    /// Returns true if `csn` is in use or can be assigned.
    pub(super) fn reaches(&self, csn: u32) -> bool {
        csn.wrapping_sub(self.una) < self.capacity
    }

    /// Returns true if `csn` is in use, and its receiver lacks it.
    pub(super) fn lacks(&self, csn: u32) -> bool {
        self.holds(csn) && !self.get(csn).state.is_there()
    }

    /// The slot of a number in use.
    #[inline]
    pub(super) fn get(&self, csn: u32) -> Slot {
        self.slots.get(csn)
    }

    /// The slot of a number in use, mutable.
    #[inline]
    pub(super) fn at(&mut self, csn: u32) -> &mut Slot {
        self.slots.at(csn)
    }

    /// Assigns the next number; there must be [room](Space::room).
    pub(super) fn push(&mut self, slot: Slot) -> u32 {
        let csn = self.next;
        self.slots.reserve(self.una, self.len() + 1);
        *self.slots.at(csn) = slot;
        self.next = csn.wrapping_add(1);
        if slot.state == State::Missing {
            self.missing.push_back(csn);
        }
        csn
    }

    /// Records the arrival of `csn`, which was missing.
    pub(super) fn fill(&mut self, csn: u32, slot: Slot) {
        let una = self.una;
        let found = self.missing.binary_search_by_key(&csn.wrapping_sub(una), |c| c.wrapping_sub(una));
        if let Ok(at) = found {
            self.missing.remove(at);
        }
        *self.at(csn) = slot;
    }

    /// Numbers in use, in order.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> + use<> {
        let una = self.una;
        (0..self.len()).map(move |i| una.wrapping_add(i))
    }

    /// The missing numbers in `[from, to)`.
    pub(super) fn missing_within(&self, from: u32, to: u32) -> impl Iterator<Item = u32> {
        let start = self.missing.partition_point(|&csn| before(csn, from));
        self.missing.range(start..).copied().take_while(move |&csn| before(csn, to))
    }
}

/// A number of a member's space.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Line {
    pub(super) csn: u32,
    pub(super) kind: Kind,
}

/// The packet that a member gets under a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// Unknown: the packet is missing.
    #[default]
    Hole,
    /// The packet.
    Packet,
    /// A null segment, since the packet went to another member.
    Null,
    /// The end of the session's data.
    Fin,
}

/// A null segment that has not been acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Null {
    pub(super) number: u32,
    /// The time of its next transmission.
    pub(super) due: Time,
    pub(super) fin: bool,
}

/// The null segments of one direction, with their times.
#[derive(Clone, Debug, Default)]
pub(super) struct Nulls {
    waiting: Vec<Null>,
}

impl Nulls {
    pub(super) fn push(&mut self, number: u32, due: Time, fin: bool) {
        self.waiting.push(Null { number, due, fin });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Removes all numbers before `to`, which are acknowledged.
    pub(super) fn advance(&mut self, to: u32) {
        if !self.waiting.is_empty() {
            self.waiting.retain(|null| !before(null.number, to));
        }
    }

    /// Removes `number`, which was received.
    pub(super) fn remove(&mut self, number: u32) {
        self.waiting.retain(|null| null.number != number);
    }

    /// A null segment that is due now; its next time is after `rto`.
    pub(super) fn take_due(&mut self, now: Time, rto: Time) -> Option<Null> {
        let null = self.waiting.iter_mut().find(|null| null.due <= now)?;
        null.due = now.saturating_add(rto);
        Some(*null)
    }

    /// The time of the first one.
    pub(super) fn due(&self) -> Time {
        self.waiting.iter().map(|null| null.due).min().unwrap_or(Time::NEVER)
    }
}

/// The time from forwarding a packet to its acknowledgement, for one packet at a time (Karn).
#[derive(Clone, Debug)]
pub(super) struct Loop {
    timed: Option<(u32, Time)>,
    rtt: Rtt,
    rto: Rto,
}

impl Loop {
    pub(super) fn new() -> Loop {
        let rto = Rto::default();
        Loop { timed: None, rtt: Rtt::new(&rto), rto }
    }

    /// Records the transmission of `number`, for the first time or `again`.
    #[inline]
    pub(super) fn on_sent(&mut self, now: Time, number: u32, again: bool) {
        match self.timed {
            None if !again => self.timed = Some((number, now)),
            Some((timed, _)) if again && timed == number => self.timed = None,
            _ => {}
        }
    }

    /// Records that all before `to` is acknowledged.
    #[inline]
    pub(super) fn on_acked(&mut self, now: Time, to: u32) {
        if let Some((number, at)) = self.timed
            && before(number, to)
        {
            self.timed = None;
            self.rtt.sample(now.saturating_sub(at), &self.rto);
        }
    }

    /// The retransmission timeout.
    pub(super) fn timeout(&self) -> Time {
        self.rtt.rto(&self.rto)
    }
}
