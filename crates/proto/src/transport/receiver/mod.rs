//! The receiving half: arrived segments, deliveries to the application, and returned packets.

mod reading;

use std::collections::VecDeque;
use std::mem::offset_of;

use tollway_law::Time;
use tollway_law::receiver::Feedback;

use crate::{Flags, Packet, SackRanges, Stamp};

use super::config::{Config, MAX_WINDOW, WindowGrowth};
use super::early::{Early, EarlySlot};
use super::serial::{before, later};
use super::stats::{Counters, Event};
use reading::Reading;

/// The receiving half of a connection. Its first cache line has the fields that every packet needs.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Receiver {
    /// The next segment expected.
    pub(super) next: u32,
    /// One after the last segment that was ever advertised; it never decreases.
    pub(super) edge: u32,
    /// Room from `next` on, in segments.
    pub(super) room: u32,
    /// The buffer, segments.
    pub(super) capacity: u32,
    /// The stamp that the next returned packet echoes, if `stamped`.
    stamp: Stamp,
    pub(super) stamped: bool,
    /// True if a packet must return at once.
    pub(super) ack_now: bool,
    /// Segments received since the last returned packet.
    pub(super) held: u8,
    /// True if a mark arrived since the last returned packet.
    pub(super) marked: bool,
    /// True if the last packet was marked.
    pub(super) was_marked: bool,
    /// True once the other side's first number is known.
    pub(super) synced: bool,
    /// True once all data of the other side have arrived.
    pub(super) finished: bool,
    pub(super) in_frame: bool,
    /// True if there is an `earlier`.
    pub(super) parted: bool,
    /// True if there are `frames`.
    pub(super) framed: bool,
    /// True if there is a `reading`.
    pub(super) reads: bool,
    pub(super) feedback: Feedback,
    /// The time of the next delayed acknowledgement or read of the application.
    pub(super) ack_at: Time,
    pub(super) early: Option<Box<Early>>,
    /// Frames delivered and not reported yet.
    frames: Option<Box<Frames>>,
    /// The buffer, if the application does not read at once.
    pub(super) reading: Option<Box<Reading>>,
    /// An acknowledgement that must leave before any other.
    earlier: Option<Earlier>,
    /// Feedback of less than a whole segment so far.
    fraction: f32,
}

const _: () = assert!(offset_of!(Receiver, frames) == 64);

/// The acknowledgement that was delayed when marking changed.
#[derive(Clone, Copy, Debug)]
struct Earlier {
    next: u32,
    stamp: Stamp,
    marked: bool,
}

/// Frames delivered and not yet polled, oldest first, as runs of frames of one size.
#[derive(Debug, Default)]
struct Frames {
    waiting: VecDeque<Run>,
    /// Number of frames reported.
    told: u64,
    /// Payload of the present frame delivered so far.
    bytes: u64,
}

/// `count` frames of `bytes` each.
#[derive(Clone, Copy, Debug)]
struct Run {
    bytes: u64,
    count: u64,
}

impl Frames {
    /// Ends the present frame, which is complete.
    fn push(&mut self) {
        match self.waiting.back_mut() {
            Some(run) if run.bytes == self.bytes => run.count += 1,
            _ => self.waiting.push_back(Run { bytes: self.bytes, count: 1 }),
        }
    }

    fn pop(&mut self) -> Option<Event> {
        let run = self.waiting.front_mut()?;
        let event = Event::FrameDelivered { index: self.told, bytes: run.bytes };
        self.told += 1;
        run.count -= 1;
        if run.count == 0 {
            self.waiting.pop_front();
        }
        Some(event)
    }
}

impl Receiver {
    #[inline(always)]
    pub(super) fn new(config: &Config) -> Receiver {
        let first = config.initial_segment;
        let room = config.first_window();
        let reading = Reading::new(config);
        Receiver {
            next: first,
            edge: first.wrapping_add(room),
            room,
            capacity: config.receive_segments(),
            fraction: 0.0,
            stamp: Stamp(0),
            stamped: false,
            ack_now: false,
            held: 0,
            marked: false,
            was_marked: false,
            earlier: None,
            synced: false,
            finished: false,
            in_frame: false,
            parted: false,
            framed: false,
            reads: reading.is_some(),
            reading,
            feedback: Feedback::new(config.echo),
            ack_at: Time::NEVER,
            frames: None,
            early: None,
        }
    }

    /// Sets the number of the other side's first segment.
    pub(super) fn sync(&mut self, next: u32) {
        self.next = next;
        self.edge = next.wrapping_add(self.room);
        self.synced = true;
    }

    /// Sets the buffer to `segments`; a larger one is advertised at once.
    pub(super) fn set_capacity(&mut self, segments: u32, config: &Config) {
        if self.reads {
            return self.set_buffer(segments, config);
        }
        let whole = self.room == self.capacity;
        self.capacity = segments;
        self.room = if whole { segments } else { self.room.min(segments) };
        self.ack_now |= self.synced && whole;
    }

    /// Makes the next returned packet an answer to this one.
    pub(super) fn note(&mut self, packet: &Packet) {
        if packet.flags.has(Flags::SYN.with(Flags::TOLLED)) {
            self.feedback.on_data(&packet.toll);
        }
        self.stamp = packet.sent;
        self.stamped = true;
        self.ack_now = true;
    }

    /// Handles a segment or a FIN.
    #[inline]
    pub(super) fn on_segment(&mut self, now: Time, packet: &Packet, config: &Config, stats: &mut Counters) {
        stats.segments_received += 1;
        stats.bytes_received += u64::from(packet.size);
        if packet.flags.has(Flags::ECHO) {
            stats.rare().echoing_segments += 1;
        }
        if self.reads {
            return self.on_segment_to_buffer(now, packet, config, stats);
        }
        if packet.flags.has(Flags::TOLLED) {
            self.feedback.on_data(&packet.toll);
        } else if packet.in_profile() {
            stats.rare().in_profile_received += u64::from(packet.size);
        }
        let news = self.note_mark(packet);
        self.widen(packet, config);
        if packet.seq == self.next && self.early.is_none() && !self.finished {
            self.next = self.next.wrapping_add(1);
            let slot = EarlySlot { payload: packet.size.saturating_sub(config.header), flags: packet.flags };
            self.deliver(slot, stats);
            self.acknowledge(now, packet, news, config);
        } else {
            self.on_gap(packet, config, stats);
        }
    }

    /// Handles a change of marking: it is acknowledged at once, after a separate acknowledgement of
    /// the segments before it, so that the echo is exact (RFC 8257 § 3.2). Returns true if there is
    /// a change.
    #[inline(always)]
    pub(super) fn note_mark(&mut self, packet: &Packet) -> bool {
        let marked = packet.flags.has(Flags::CE);
        let news = marked != self.was_marked;
        if news && self.held > 0 {
            self.part();
        }
        self.marked |= marked;
        self.was_marked = marked;
        news
    }

    /// Schedules a separate acknowledgement of the segments not acknowledged yet.
    #[cold]
    fn part(&mut self) {
        self.earlier = Some(Earlier { next: self.next, stamp: self.stamp, marked: self.marked });
        self.parted = true;
        self.stamped = false;
        self.marked = false;
        self.held = 0;
        self.ack_now = true;
    }

    /// RFC 5681 § 4.2: acknowledges the second segment at once, and the first after a delay.
    #[inline]
    pub(super) fn acknowledge(&mut self, now: Time, packet: &Packet, at_once: bool, config: &Config) {
        // RFC 7323 § 4.3: the echo is of the first segment a delayed acknowledgement answers.
        if !self.stamped {
            self.stamp = packet.sent;
            self.stamped = true;
        }
        self.held = self.held.saturating_add(1);
        match config.delayed_ack {
            Some(delay) if self.held < 2 && !at_once && !packet.flags.has(Flags::FIN) => {
                self.ack_at = now.saturating_add(delay);
            }
            _ => self.ack_now = true,
        }
    }

    /// Grows the window as configured.
    #[inline]
    fn widen(&mut self, packet: &Packet, config: &Config) {
        if self.room >= self.capacity {
            return;
        }
        let more = match config.window_growth {
            WindowGrowth::Whole => u32::MAX,
            WindowGrowth::PerPacket { step, .. } => step,
            WindowGrowth::Feedback { .. } => self.whole_feedback(packet, config),
        };
        self.room = self.room.saturating_add(more).min(self.capacity);
    }

    /// The XCP study's rule: the whole part, in segments, of the feedback received; the rest is
    /// kept.
    fn whole_feedback(&mut self, packet: &Packet, config: &Config) -> u32 {
        if !packet.flags.has(Flags::TOLLED) {
            return 0;
        }
        let segments = packet.toll.due * f64::from(packet.toll.rtt) / f64::from(config.segment.max(1));
        let sum = self.fraction + segments as f32;
        if !sum.is_finite() {
            return 0;
        }
        // The cast saturates, and takes negative sums to zero: the window doesn't shrink.
        let whole = sum as u32;
        self.fraction = (sum - whole as f32).max(-1.0);
        whole
    }

    /// Delivers the next segment in order to the application.
    #[inline]
    pub(super) fn deliver(&mut self, slot: EarlySlot, stats: &mut Counters) {
        if slot.flags.has(Flags::FIN) {
            self.finished = true;
            return;
        }
        stats.segments_delivered += 1;
        stats.bytes_delivered += u64::from(slot.payload);
        if slot.flags.has(Flags::FIRST) {
            self.in_frame = true;
            self.frames.get_or_insert_default().bytes = 0;
        }
        if self.in_frame
            && let Some(frames) = &mut self.frames
        {
            frames.bytes += u64::from(slot.payload);
            if slot.flags.has(Flags::LAST) {
                self.in_frame = false;
                self.framed = true;
                frames.push();
                stats.rare().frames_delivered += 1;
            }
        }
    }

    /// Handles a segment after a gap, or a duplicate: always answered at once (RFC 5681 § 4.2).
    #[inline(never)]
    pub(super) fn on_gap(&mut self, packet: &Packet, config: &Config, stats: &mut Counters) {
        self.note(packet);
        let seq = packet.seq;
        if self.finished || seq.wrapping_sub(self.next) >= self.window() {
            stats.rare().duplicates += 1;
            return;
        }
        let slot =
            EarlySlot { payload: packet.size.saturating_sub(config.header), flags: packet.flags.among(KEPT) };
        let early = self.early.get_or_insert_with(|| Box::new(Early::new()));
        if !early.insert(seq, slot, self.next) {
            stats.rare().duplicates += 1;
            return;
        }
        if let Some(reading) = &mut self.reading {
            reading.early_bytes += u64::from(slot.payload);
        }
        if seq == self.next {
            self.deliver_early(stats);
        }
    }

    /// Delivers early segments that are now in order.
    #[inline]
    fn deliver_early(&mut self, stats: &mut Counters) {
        let Some(mut early) = self.early.take() else { return };
        if let Some(end) = early.take_first(self.next) {
            while before(self.next, end) && !self.finished {
                let slot = early.get(self.next);
                self.next = self.next.wrapping_add(1);
                match &mut self.reading {
                    None => self.deliver(slot, stats),
                    Some(reading) => {
                        reading.early_bytes -= u64::from(slot.payload);
                        reading.keep(slot);
                    }
                }
            }
        }
        if !early.is_empty() && !self.finished {
            self.early = Some(early);
        }
    }

    /// True if `seq` is within the window and has not arrived yet.
    pub(super) fn awaits(&self, seq: u32) -> bool {
        let within = !self.finished && seq.wrapping_sub(self.next) < self.window();
        within && !self.early.as_ref().is_some_and(|early| early.holds(seq))
    }

    /// Room from `next` on, in segments.
    pub(super) fn window(&self) -> u32 {
        later(self.edge, self.next.wrapping_add(self.room)).wrapping_sub(self.next)
    }

    /// True if an event is pending, or all data have been delivered.
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        self.finished || self.framed
    }

    /// The next frame that was delivered and not reported.
    pub(super) fn next_frame(&mut self) -> Option<Event> {
        self.frames.as_mut().and_then(|frames| frames.pop())
    }

    /// Handles a due acknowledgement or read.
    pub(super) fn on_timer(&mut self, now: Time, stats: &mut Counters) {
        if self.ack_at <= now {
            if self.reads {
                return self.on_reading_timer(now, stats);
            }
            self.ack_at = Time::NEVER;
            self.ack_now = true;
        }
    }

    /// Writes all returned fields, on data or alone. `packet.flags` and the forward part of the
    /// toll are set by the caller before.
    #[inline(always)]
    pub(super) fn write(&mut self, packet: &mut Packet, sack: &mut SackRanges, config: &Config) {
        sack.clear();
        packet.ack = self.next;
        packet.window = 0;
        if !self.synced {
            return;
        }
        self.edge = later(self.edge, self.next.wrapping_add(self.room));
        if self.parted {
            self.write_earlier(packet);
            return;
        }
        packet.window = self.edge.wrapping_sub(self.next).min(MAX_WINDOW);
        // The flags are put together in a register and stored once.
        let mut flags = packet.flags.with(Flags::ACK);
        if self.stamped {
            flags.set(Flags::STAMP_ECHO);
            packet.sent_echo = self.stamp;
        }
        if let Some(echo) = self.feedback.take() {
            flags.set(Flags::ECHO);
            packet.toll.echo = echo;
            if self.feedback.gap() {
                flags.set(Flags::GAP);
            }
        }
        if self.marked {
            flags.set(Flags::ECE);
        }
        if let Some(early) = self.early.as_ref().filter(|_| config.sack) {
            early.report(sack, usize::from(config.sack_ranges));
            if !sack.is_empty() {
                flags.set(Flags::SACK);
            }
        }
        packet.flags = flags;
        self.stamped = false;
        self.marked = false;
        self.ack_now = false;
        self.held = 0;
        self.ack_at = Time::NEVER;
        if self.reads {
            self.note_acknowledged();
        }
    }
}

impl Receiver {
    /// Writes the acknowledgement held back; the newer one follows.
    #[cold]
    fn write_earlier(&mut self, packet: &mut Packet) {
        self.parted = false;
        let Some(earlier) = self.earlier.take() else { return };
        packet.ack = earlier.next;
        packet.window = self.edge.wrapping_sub(earlier.next).min(MAX_WINDOW);
        packet.sent_echo = earlier.stamp;
        packet.flags.set(Flags::ACK.with(Flags::STAMP_ECHO));
        if earlier.marked {
            packet.flags.set(Flags::ECE);
        }
    }
}

/// The flags of an early segment that matter at its delivery.
const KEPT: Flags = Flags::FIRST.with(Flags::LAST).with(Flags::FIN);
