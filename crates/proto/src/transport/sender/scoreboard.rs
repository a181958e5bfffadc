//! The state of each segment in flight, and the counts of these states.

use crate::{Flags, SackRanges, Stamp};

use super::delivery::Sampler;
use crate::transport::ring::Ring;
use crate::transport::serial::{before, later};

/// One segment in flight, with all that a retransmission needs.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::transport) struct Slot {
    /// Its last transmission.
    pub(in crate::transport) sent: Stamp,
    /// Bytes of payload.
    pub(in crate::transport) payload: u16,
    flags: u8,
}

const _: () = assert!(size_of::<Slot>() == 8);

impl Slot {
    /// Reported as received by the other side.
    const SACKED: u8 = 1;
    /// Declared lost.
    const LOST: u8 = 2;
    /// Retransmitted, and not acknowledged since.
    const RESENT: u8 = 4;
    /// Sent more than once.
    const REPEATED: u8 = 8;
    /// First segment of a frame.
    pub(in crate::transport) const FIRST: u8 = 16;
    /// Last segment of a frame.
    pub(in crate::transport) const LAST: u8 = 32;
    /// The SYN.
    pub(in crate::transport) const SYN: u8 = 64;
    /// The FIN.
    pub(in crate::transport) const FIN: u8 = 128;

    pub(in crate::transport) fn new(sent: Stamp, payload: u16, flags: u8) -> Slot {
        Slot { sent, payload, flags }
    }

    #[inline]
    pub(in crate::transport) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Its frame flags.
    #[inline]
    pub(in crate::transport) fn frame_flags(self) -> Flags {
        let mut flags = Flags::NONE;
        if self.has(Slot::FIRST) {
            flags.set(Flags::FIRST);
        }
        if self.has(Slot::LAST) {
            flags.set(Flags::LAST);
        }
        flags
    }

    /// True if it was sent more than once, so that an acknowledgement is ambiguous.
    pub(in crate::transport) fn repeated(self) -> bool {
        self.has(Slot::REPEATED)
    }
}

/// The segments `[una, next)` in flight.
///
/// `sacked`, `lost` and the others are counts of flags, updated as flags change: the pipe of RFC
/// 6675 costs three additions. Without SACK, `sacked` is the number of duplicate acknowledgements,
/// so the same formula gives the inflated window of RFC 6582.
///
/// Fields for repairs come first, so that the others are next to the sender's own.
#[derive(Clone, Debug)]
#[repr(C)]
pub(in crate::transport) struct Scoreboard {
    /// Records received and lost segments, for laws that request delivery measurement.
    pub(in crate::transport) sampler: Option<Box<Sampler>>,
    /// The ranges of the last report, all marked already; a flow without losses has none.
    seen: Option<Box<SackRanges>>,
    /// The latest sent of the segments known to be received, with its number (RFC 8985 § 5.2).
    pub(in crate::transport) newest: Option<(Stamp, u32)>,
    /// No segment before it is pending.
    hint: u32,
    /// Every segment before it is either received or declared lost.
    edge: u32,
    /// Segments received at or after `edge`.
    above: u32,
    /// One after the last segment received out of order.
    high: u32,
    /// Every segment before it was retransmitted in this recovery, or need not be (RFC 6675's
    /// HighRxt).
    rescued: u32,
    /// True if a segment sent only once was reported after one sent later.
    pub(in crate::transport) reordered: bool,
    /// True if `newest` is maintained.
    pub(in crate::transport) tracks: bool,
    /// True if the slots keep their memory without data to send, since the next connection in this
    /// place needs it for its SYN.
    keeps: bool,
    slots: Ring<Slot>,
    /// First segment not acknowledged.
    pub(in crate::transport) una: u32,
    /// Next segment to be sent for the first time.
    pub(in crate::transport) next: u32,
    /// Segments received out of order (or duplicate acknowledgements).
    pub(in crate::transport) sacked: u32,
    /// Segments declared lost and not received since.
    pub(in crate::transport) lost: u32,
    /// Segments retransmitted and not received since.
    pub(in crate::transport) resent: u32,
    /// Segments declared lost and not retransmitted since.
    pub(in crate::transport) pending: u32,
}

impl Scoreboard {
    #[inline]
    pub(in crate::transport) fn new(first: u32) -> Scoreboard {
        Scoreboard {
            una: first,
            next: first,
            sacked: 0,
            lost: 0,
            resent: 0,
            pending: 0,
            slots: Ring::new(),
            hint: first,
            edge: first,
            above: 0,
            high: first,
            rescued: first,
            seen: None,
            reordered: false,
            tracks: false,
            keeps: false,
            newest: None,
            sampler: None,
        }
    }

    /// Forgets all segments; the next one is `first`. With `reuse`, the slots keep their memory.
    pub(in crate::transport) fn restart(&mut self, first: u32, reuse: bool) {
        let (slots, keeps) = (std::mem::replace(&mut self.slots, Ring::new()), self.keeps);
        *self = Scoreboard::new(first);
        if reuse || keeps {
            (self.slots, self.keeps) = (slots, keeps);
        }
    }

    /// Takes the memory of the slots, of which few stay.
    pub(in crate::transport) fn take_slots(&mut self) -> Ring<Slot> {
        self.slots.fit(self.una, 0);
        std::mem::replace(&mut self.slots, Ring::new())
    }

    /// Uses the memory of other slots. There must be no segment in flight.
    pub(in crate::transport) fn give_slots(&mut self, slots: Ring<Slot>) {
        (self.slots, self.keeps) = (slots, true);
    }

    /// Segments sent and not acknowledged cumulatively.
    #[inline]
    pub(in crate::transport) fn outstanding(&self) -> u32 {
        self.next.wrapping_sub(self.una)
    }

    /// Segments in the network (RFC 6675's pipe).
    #[inline]
    pub(in crate::transport) fn pipe(&self) -> u32 {
        (self.outstanding() + self.resent).saturating_sub(self.sacked + self.lost)
    }

    /// True if only the cumulative acknowledgement is known.
    #[inline]
    pub(in crate::transport) fn clean(&self) -> bool {
        self.sacked | self.lost | self.resent == 0
    }

    /// Adds a segment in flight. Returns its number.
    #[inline]
    pub(in crate::transport) fn push(&mut self, slot: Slot) -> u32 {
        let seq = self.next;
        self.slots.reserve(self.una, self.outstanding() + 1);
        *self.slots.at(seq) = slot;
        self.next = seq.wrapping_add(1);
        seq
    }

    #[inline]
    pub(in crate::transport) fn slot(&self, seq: u32) -> Slot {
        self.slots.get(seq)
    }

    /// Advances the cumulative acknowledgement by `count` segments, on a [clean](Scoreboard::clean)
    /// board.
    #[inline]
    pub(in crate::transport) fn ack_clean(&mut self, count: u32) {
        self.una = self.una.wrapping_add(count);
    }

    /// Resets old state at the first loss after a time without: it belongs to another window,
    /// perhaps so old that serial numbers have wrapped.
    pub(in crate::transport) fn refresh(&mut self) {
        self.edge = self.una;
        self.above = 0;
        self.hint = self.una;
        self.high = self.una;
        self.rescued = self.una;
        self.newest = None;
        if let Some(seen) = &mut self.seen {
            seen.clear();
        }
    }

    /// Advances the cumulative acknowledgement by `count` segments. Returns the number of newly
    /// acknowledged ones. `sack` is true if ranges are reported, so that `sacked` counts flags.
    #[inline(always)]
    pub(in crate::transport) fn ack(&mut self, count: u32, sack: bool) -> u32 {
        if count == 0 && sack {
            return 0;
        }
        let mut news = 0;
        for i in 0..count {
            let seq = self.una.wrapping_add(i);
            let slot = self.slots.get(seq);
            if slot.has(Slot::SACKED) {
                self.sacked -= 1;
                self.above -= u32::from(!before(seq, self.edge));
                continue;
            }
            news += 1;
            self.forget(slot);
            self.reordered |= before(seq, self.high) && !slot.repeated();
            self.learn(seq, slot);
        }
        self.una = self.una.wrapping_add(count);
        self.edge = later(self.edge, self.una);
        self.hint = later(self.hint, self.una);
        self.high = later(self.high, self.una);
        self.rescued = later(self.rescued, self.una);
        if !sack {
            // Of what is acknowledged, one segment was the hole; the others had each caused a
            // duplicate.
            self.sacked = self.sacked.saturating_sub(count.saturating_sub(1)).min(self.outstanding());
        }
        news
    }

    /// Removes a received segment from the counts of lost and retransmitted ones.
    fn forget(&mut self, slot: Slot) {
        self.resent -= u32::from(slot.has(Slot::RESENT));
        if slot.has(Slot::LOST) {
            self.lost -= 1;
            self.pending -= u32::from(!slot.has(Slot::RESENT));
        }
    }

    /// RFC 8985 § 6.2, step 2: records a received segment.
    #[inline]
    fn learn(&mut self, seq: u32, slot: Slot) {
        if self.tracks && self.newest.is_none_or(|newest| sent_after((slot.sent, seq), newest)) {
            self.newest = Some((slot.sent, seq));
        }
        if let Some(sampler) = &mut self.sampler {
            sampler.acked.push(seq);
        }
    }

    /// Handles the receiver's ranges. Returns the number of newly reported segments. Ranges outside
    /// `[una, next)` are ignored.
    #[inline]
    pub(in crate::transport) fn sack(&mut self, ranges: &SackRanges) -> u32 {
        let outstanding = self.outstanding();
        if outstanding <= FEW { self.sack_few(ranges) } else { self.sack_runs(ranges) }
    }

    /// [`Scoreboard::sack`] for few segments: checking each is faster than remembering the reported
    /// ones.
    #[inline]
    fn sack_few(&mut self, ranges: &SackRanges) -> u32 {
        let outstanding = self.outstanding();
        let (mut news, mut high) = (0, self.high);
        for &(start, end) in ranges.as_slice() {
            let (from, to) = (start.wrapping_sub(self.una), end.wrapping_sub(self.una));
            if from == 0 || from >= to || to > outstanding {
                continue;
            }
            for i in from..to {
                news += self.receive(self.una.wrapping_add(i));
            }
            high = later(high, end);
        }
        self.high = high;
        news
    }

    /// [`Scoreboard::sack`] for many segments: those of the last report are skipped as runs.
    #[inline(never)]
    fn sack_runs(&mut self, ranges: &SackRanges) -> u32 {
        let mut news = 0;
        let outstanding = self.outstanding();
        let mut taken = SackRanges::EMPTY;
        let mut high = self.high;
        for &(start, end) in ranges.as_slice() {
            let from = start.wrapping_sub(self.una);
            let to = end.wrapping_sub(self.una);
            // The segment at `una` can't have been received, or the acknowledgement would cover it.
            if from == 0 || from >= to || to > outstanding {
                continue;
            }
            taken.push(start, end);
            let mut seq = start;
            while before(seq, end) {
                if let Some(known) = skip(self.seen.as_deref(), seq) {
                    seq = known;
                    continue;
                }
                news += self.receive(seq);
                seq = seq.wrapping_add(1);
            }
            high = later(high, end);
        }
        match &mut self.seen {
            Some(seen) => **seen = taken,
            none => *none = Some(Box::new(taken)),
        }
        self.high = high;
        news
    }

    #[inline]
    fn receive(&mut self, seq: u32) -> u32 {
        let slot = self.slots.get(seq);
        if slot.has(Slot::SACKED) {
            return 0;
        }
        self.forget(slot);
        self.reordered |= before(seq, self.high) && !slot.repeated();
        self.sacked += 1;
        self.above += u32::from(!before(seq, self.edge));
        self.learn(seq, slot);
        let at = self.slots.at(seq);
        at.flags = (at.flags | Slot::SACKED) & !(Slot::LOST | Slot::RESENT);
        1
    }

    /// RFC 6675's IsLost: declares lost every segment with three or more received after it. Each is
    /// checked once.
    #[inline]
    pub(in crate::transport) fn judge(&mut self) {
        while self.above >= DUP_THRESH {
            let slot = self.slots.at(self.edge);
            if slot.has(Slot::SACKED) {
                self.above -= 1;
            } else if slot.has(Slot::RESENT) {
                // Sent again by rule 3 before it was judged: that one counts on.
                self.lost += u32::from(!slot.has(Slot::LOST));
                slot.flags |= Slot::LOST;
            } else {
                self.lose(self.edge);
            }
            self.edge = self.edge.wrapping_add(1);
        }
    }

    /// RFC 8985 § 6.2, step 5, for segments sent once, in order of their numbers. `lost` decides by
    /// the time of transmission; returns the first segment that is not lost.
    pub(in crate::transport) fn judge_while(
        &mut self,
        lost: impl Fn((Stamp, u32)) -> bool,
    ) -> Option<(Stamp, u32)> {
        while before(self.edge, self.next) {
            let slot = self.slots.get(self.edge);
            if slot.has(Slot::SACKED) {
                self.above -= 1;
            } else if !slot.has(Slot::LOST) && !slot.repeated() {
                if !lost((slot.sent, self.edge)) {
                    return Some((slot.sent, self.edge));
                }
                self.lose(self.edge);
            }
            self.edge = self.edge.wrapping_add(1);
        }
        None
    }

    /// Declares `seq`, in flight and not received, lost; also a retransmission of it.
    pub(in crate::transport) fn lose(&mut self, seq: u32) {
        let slot = self.slots.at(seq);
        let was = *slot;
        if was.has(Slot::LOST) && !was.has(Slot::RESENT) {
            return;
        }
        slot.flags = (slot.flags | Slot::LOST) & !Slot::RESENT;
        self.lost += u32::from(!was.has(Slot::LOST));
        self.resent -= u32::from(was.has(Slot::RESENT));
        self.pending += 1;
        if let Some(sampler) = &mut self.sampler {
            sampler.losses.push(seq);
        }
        if before(seq, self.hint) {
            self.hint = seq;
        }
    }

    /// True if `seq`'s last transmission was a retransmission at `sent`, and it is not acknowledged
    /// since.
    pub(in crate::transport) fn awaits(&self, seq: u32, sent: Stamp) -> bool {
        self.is_resent(seq) && self.slots.get(seq).sent == sent
    }

    /// True if `seq` was retransmitted and is not acknowledged since.
    pub(in crate::transport) fn is_resent(&self, seq: u32) -> bool {
        seq.wrapping_sub(self.una) < self.outstanding() && self.slots.get(seq).has(Slot::RESENT)
    }

    /// Handles an expired timer: only segments reported as received are not lost (RFC 6675 § 5.1).
    /// A receiver that reports the first segment in flight has reneged on earlier reports; these
    /// are dropped. The repair begins at the first segment in flight, or after the last one resent
    /// if it `goes_on`.
    pub(in crate::transport) fn on_timeout(&mut self, sack: bool, goes_on: bool) {
        // A flow with timeouts seldom needs the room of its slow start again.
        self.slots.fit(self.una, self.outstanding());
        let renege = !sack || self.slots.get(self.una).has(Slot::SACKED);
        if renege {
            self.sacked = 0;
            self.seen = None;
        }
        for i in 0..self.outstanding() {
            let slot = self.slots.at(self.una.wrapping_add(i));
            if renege {
                slot.flags &= !Slot::SACKED;
            }
            if !slot.has(Slot::SACKED) {
                let known = slot.has(Slot::LOST) && !slot.has(Slot::RESENT);
                slot.flags = (slot.flags | Slot::LOST) & !Slot::RESENT;
                if let Some(sampler) = &mut self.sampler
                    && !known
                {
                    sampler.losses.push(self.una.wrapping_add(i));
                }
            }
        }
        self.lost = self.outstanding() - self.sacked;
        self.pending = self.lost;
        self.resent = 0;
        let follows = self.hint.wrapping_add(1);
        self.hint = if goes_on && before(follows, self.next) { follows } else { self.una };
        self.edge = self.next;
        self.above = 0;
        self.rescued = self.next;
        // Earlier receptions are no measure for later transmissions, and the stamp becomes too old
        // to compare.
        self.newest = None;
    }

    /// Lets the repair begin at the first segment in flight: it went on after a later one.
    pub(in crate::transport) fn repair_anew(&mut self) {
        self.hint = self.una;
    }

    /// Forgets ranges and retransmissions.
    pub(in crate::transport) fn forget_reports(&mut self) {
        if !self.clean() {
            for i in 0..self.outstanding() {
                self.slots.at(self.una.wrapping_add(i)).flags &= !(Slot::SACKED | Slot::RESENT);
            }
            (self.sacked, self.resent) = (0, 0);
        }
        self.refresh();
    }

    /// The first segment from `from` on that was not reported, below the highest one reported.
    pub(in crate::transport) fn hole(&self, from: u32) -> Option<u32> {
        let mut seq = from;
        while before(seq, self.high) {
            if !self.slots.get(seq).has(Slot::SACKED) {
                return Some(seq);
            }
            seq = seq.wrapping_add(1);
        }
        None
    }

    /// The first segment declared lost and not retransmitted since.
    pub(in crate::transport) fn first_pending(&mut self) -> Option<u32> {
        if self.pending == 0 {
            return None;
        }
        while before(self.hint, self.next) {
            let slot = self.slots.get(self.hint);
            if slot.has(Slot::LOST) && !slot.has(Slot::RESENT) {
                return Some(self.hint);
            }
            self.hint = self.hint.wrapping_add(1);
        }
        None
    }

    /// RFC 6675's NextSeg, rule 3: with nothing else to send, a segment below the highest received
    /// one, neither received nor retransmitted in this recovery.
    pub(in crate::transport) fn next_rescue(&mut self) -> Option<u32> {
        while before(self.rescued, self.high) {
            let slot = self.slots.get(self.rescued);
            if !slot.has(Slot::SACKED) && !slot.has(Slot::RESENT) {
                return Some(self.rescued);
            }
            self.rescued = self.rescued.wrapping_add(1);
        }
        None
    }

    /// Starts a recovery: rule 3 starts over.
    pub(in crate::transport) fn begin_recovery(&mut self) {
        self.rescued = self.una;
    }

    /// Records a retransmission of `seq`.
    pub(in crate::transport) fn resend(&mut self, seq: u32, sent: Stamp) -> Slot {
        let slot = self.slots.at(seq);
        slot.flags |= Slot::REPEATED;
        // Only ns-2's senders repeat a segment reported as received.
        if !slot.has(Slot::RESENT | Slot::SACKED) {
            self.resent += 1;
            self.pending -= u32::from(slot.has(Slot::LOST));
            slot.flags |= Slot::RESENT;
        }
        slot.sent = sent;
        *slot
    }

    /// The counts recomputed from the flags, for tests: received, lost, retransmitted, pending.
    #[cfg(test)]
    pub(in crate::transport) fn recount(&self) -> [u32; 4] {
        let mut counts = [0; 4];
        for i in 0..self.outstanding() {
            let slot = self.slots.get(self.una.wrapping_add(i));
            let (lost, resent) = (slot.has(Slot::LOST), slot.has(Slot::RESENT));
            for (count, is) in counts.iter_mut().zip([slot.has(Slot::SACKED), lost, resent, lost && !resent])
            {
                *count += u32::from(is);
            }
        }
        counts
    }
}

/// The end of the range of `seen` that holds `seq`.
#[inline]
fn skip(seen: Option<&SackRanges>, seq: u32) -> Option<u32> {
    seen?
        .as_slice()
        .iter()
        .find(|(start, end)| seq.wrapping_sub(*start) < end.wrapping_sub(*start))
        .map(|&(_, end)| end)
}

/// True if the transmission `a` left after `b`: by time, then by number (RFC 8985's
/// RACK_sent_after).
#[inline]
pub(in crate::transport) fn sent_after(a: (Stamp, u32), b: (Stamp, u32)) -> bool {
    a.0 != b.0 && before(b.0.0, a.0.0) || a.0 == b.0 && before(b.1, a.1)
}

/// Number of duplicate acknowledgements, or of later segments received, that indicates a loss (RFC
/// 5681).
pub(in crate::transport) const DUP_THRESH: u32 = 3;

/// Up to this number of segments in flight, each is checked separately.
const FEW: u32 = 16;
