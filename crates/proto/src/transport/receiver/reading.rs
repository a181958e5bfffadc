//! A receive buffer that the application reads at its own pace, with its flow control.
//!
//! Credit promises room: the window is the part of the buffer without unread data. Soft flow
//! control (the Anypoint paper, § IV-A) promises none: an XCP controller at the buffer, [`Soft`],
//! bounds the returned feedback, and segments without room are dropped. A connection with neither
//! has no [`Reading`], and stays on the fast paths of `predict` and `respond`.

use std::collections::VecDeque;

use tollway_law::Time;
use tollway_law::receiver::soft::{Epoch, Soft, SoftConfig};

use crate::{Flags, Packet};

use super::Receiver;
use crate::transport::config::{Config, FlowControl, MAX_WINDOW, Reader};
use crate::transport::early::EarlySlot;
use crate::transport::serial::later;
use crate::transport::stats::{Buffer, Counters};

/// The buffer, and the application behind it.
#[derive(Debug)]
pub(in crate::transport) struct Reading {
    pub(in crate::transport) reader: Reader,
    /// Segments in order that the application has not read, oldest first.
    unread: VecDeque<EarlySlot>,
    /// Their payload, bytes.
    unread_bytes: u64,
    /// Payload of segments received out of order, bytes.
    pub(in crate::transport) early_bytes: u64,
    /// Arrival of the oldest unread segment, if the application was waiting for one.
    since: Time,
    /// The time at which the application is ready for its next read.
    free_at: Time,
    /// The time of a delayed acknowledgement.
    delayed: Time,
    soft: Option<SoftControl>,
    /// Counters, without `unread`.
    counts: Buffer,
}

impl Reading {
    /// The buffer of a receiver with this configuration; `None` if data never wait in it.
    pub(in crate::transport) fn new(config: &Config) -> Option<Box<Reading>> {
        let soft = config.flow_control == FlowControl::Soft;
        (soft || config.reader != Reader::AtOnce).then(|| Reading::with(config, config.reader))
    }

    /// One that `reader` empties.
    pub(in crate::transport) fn with(config: &Config, reader: Reader) -> Box<Reading> {
        let soft = (config.flow_control == FlowControl::Soft).then(|| SoftControl::new(config));
        Box::new(Reading {
            reader,
            unread: VecDeque::new(),
            unread_bytes: 0,
            early_bytes: 0,
            since: Time::ZERO,
            free_at: Time::ZERO,
            delayed: Time::NEVER,
            soft,
            counts: Buffer::default(),
        })
    }

    /// The buffer's counters.
    pub(in crate::transport) fn buffer(&self) -> Buffer {
        Buffer { unread: self.unread_bytes, ..self.counts }
    }

    /// The window of a buffer of `capacity`, segments.
    fn room(&self, capacity: u32) -> u32 {
        match self.soft {
            None => capacity.saturating_sub(u32::try_from(self.unread.len()).unwrap_or(u32::MAX)),
            Some(_) => Config::overcommitted(capacity),
        }
    }

    /// True if a soft receiver has no room for `payload` bytes. Segments out of order leave the
    /// room of the last one to the next segment in order, for which they wait.
    fn overflows(&self, payload: u64, in_order: bool, capacity: u32, config: &Config) -> bool {
        let full = u64::from(config.payload());
        let reserved = if in_order { 0 } else { full };
        self.soft.is_some() && self.held() + payload + reserved > u64::from(capacity) * full
    }

    /// Bytes in the buffer.
    pub(in crate::transport) fn held(&self) -> u64 {
        self.unread_bytes + self.early_bytes
    }

    /// Keeps the next segment in order until it is read.
    pub(in crate::transport) fn keep(&mut self, slot: EarlySlot) {
        self.unread.push_back(slot);
        self.unread_bytes += u64::from(slot.payload);
    }

    /// The next timer.
    fn alarm(&self) -> Time {
        let read = if self.unread.is_empty() { Time::NEVER } else { self.free_at.max(self.since) };
        read.min(self.delayed)
    }
}

impl Receiver {
    /// [`Receiver::on_segment`] into a buffer.
    #[inline(never)]
    pub(in crate::transport) fn on_segment_to_buffer(
        &mut self,
        now: Time,
        packet: &Packet,
        config: &Config,
        stats: &mut Counters,
    ) {
        let news = self.note_mark(packet);
        let payload = packet.size.saturating_sub(config.header);
        let Some(mut reading) = self.reading.take() else { return };
        if packet.flags.has(Flags::TOLLED) {
            let mut toll = packet.toll;
            if let Some(soft) = &mut reading.soft {
                soft.on_arrival(now, f64::from(payload));
                toll.due = soft.bound(now, toll.rtt, toll.due);
            }
            self.feedback.on_data(&toll);
        } else if packet.in_profile() {
            stats.rare().in_profile_received += u64::from(packet.size);
        }
        let in_order = packet.seq == self.next;
        let dropped =
            self.awaits(packet.seq) && reading.overflows(u64::from(payload), in_order, self.capacity, config);
        let waited = reading.unread.is_empty();
        if dropped {
            reading.counts.dropped += 1;
            reading.counts.last_drop = now;
            if let Some(soft) = &mut reading.soft {
                soft.dropped = true;
            }
        }
        self.reading = Some(reading);
        if dropped {
            // It is answered as a segment outside the window is.
            self.note(packet);
        } else if in_order && self.early.is_none() && !self.finished && self.window() > 0 {
            self.next = self.next.wrapping_add(1);
            self.keep(EarlySlot { payload, flags: packet.flags });
            self.ack_at = self.reading.as_ref().map_or(Time::NEVER, |reading| reading.delayed);
            self.acknowledge(now, packet, news, config);
            if let Some(reading) = &mut self.reading {
                reading.delayed = self.ack_at;
            }
        } else {
            self.on_gap(packet, config, stats);
        }
        if let Some(reading) = &mut self.reading {
            let held = reading.held();
            reading.counts.most_unread = reading.counts.most_unread.max(reading.unread_bytes);
            if let Some(soft) = &mut reading.soft {
                soft.set_queue(now, held);
            }
            if waited {
                reading.since = now;
            }
        }
        self.read(now, stats);
    }

    /// Keeps the next segment in order until it is read.
    fn keep(&mut self, slot: EarlySlot) {
        if let Some(reading) = &mut self.reading {
            reading.keep(slot);
        }
    }

    /// Reads the data that the application is ready for, which opens the window.
    fn read(&mut self, now: Time, stats: &mut Counters) {
        let Some(mut reading) = self.reading.take() else { return };
        loop {
            let at = reading.free_at.max(reading.since);
            if at > now {
                break;
            }
            let Some(slot) = reading.unread.pop_front() else { break };
            reading.unread_bytes -= u64::from(slot.payload);
            let held = reading.held();
            if let Some(soft) = &mut reading.soft {
                soft.set_queue(at, held);
                soft.drained += f64::from(slot.payload);
            }
            self.deliver(slot, stats);
            if self.finished {
                reading.unread.clear();
                reading.unread_bytes = 0;
            } else if !self.in_frame {
                reading.free_at = at.saturating_add(reading.reader.interval(at));
            }
        }
        self.room = reading.room(self.capacity);
        // 4.4BSD's rule against silly windows; RFC 9293 § 3.8.6.2.2 asks for one segment.
        let opened = self.next.wrapping_add(self.room).wrapping_sub(self.edge) as i32;
        self.ack_now |= self.synced && opened >= UPDATE.min(self.capacity / 2).max(1) as i32;
        self.ack_at = reading.alarm();
        self.reading = Some(reading);
    }

    /// Handles a due delayed acknowledgement, or the application's next read.
    #[cold]
    pub(in crate::transport) fn on_reading_timer(&mut self, now: Time, stats: &mut Counters) {
        if let Some(reading) = &mut self.reading
            && reading.delayed <= now
        {
            reading.delayed = Time::NEVER;
            self.ack_now = true;
        }
        self.read(now, stats);
    }

    /// Records that an acknowledgement leaves, so no other is due.
    #[cold]
    pub(in crate::transport) fn note_acknowledged(&mut self) {
        if let Some(reading) = &mut self.reading {
            reading.delayed = Time::NEVER;
            self.ack_at = reading.alarm();
        }
    }

    /// Changes the application's pace of reading.
    pub(in crate::transport) fn set_reader(&mut self, reader: Reader, config: &Config) {
        if self.reading.is_none() && reader != Reader::AtOnce {
            let mut reading = Reading::with(config, reader);
            reading.delayed = self.ack_at;
            self.reads = true;
            self.reading = Some(reading);
        }
        if let Some(reading) = &mut self.reading {
            reading.reader = reader;
        }
    }

    /// Sets the size of the buffer, in segments.
    pub(in crate::transport) fn set_buffer(&mut self, segments: u32, config: &Config) {
        self.capacity = segments;
        if let Some(reading) = &mut self.reading {
            self.room = reading.room(segments);
            if let Some(soft) = &mut reading.soft {
                soft.set_capacity(segments, config);
            }
        }
        self.edge = later(self.edge, self.next.wrapping_add(self.room));
        self.ack_now |= self.synced;
    }
}

/// The controller of soft flow control, with its measurements of an epoch.
#[derive(Debug)]
struct SoftControl {
    config: SoftConfig,
    /// The law, once a round trip is known.
    law: Option<Soft>,
    /// Bytes on the wire per byte of payload.
    expansion: f64,
    begun: Time,
    arrived: f64,
    drained: f64,
    /// Bytes in the buffer, the time of the last change, and the integral over the epoch,
    /// byte-seconds.
    queue: f64,
    changed: Time,
    area: f64,
    peak: f64,
    dropped: bool,
    tolls: f64,
    /// Upper bound on feedback for one packet of this epoch, and the rest for all of them, bytes/s.
    share: f64,
    left: f64,
}

impl SoftControl {
    fn new(config: &Config) -> SoftControl {
        let payload = f64::from(config.payload());
        let mut control = SoftControl {
            config: SoftConfig { segment: payload, ..SoftConfig::default() },
            law: None,
            expansion: f64::from(config.segment) / payload,
            begun: Time::ZERO,
            arrived: 0.0,
            drained: 0.0,
            queue: 0.0,
            changed: Time::ZERO,
            area: 0.0,
            peak: 0.0,
            dropped: false,
            tolls: 0.0,
            share: 0.0,
            left: 0.0,
        };
        control.set_capacity(config.receive_segments(), config);
        control
    }

    fn set_capacity(&mut self, segments: u32, config: &Config) {
        self.config.buffer = f64::from(segments) * f64::from(config.payload());
        if let Some(law) = &mut self.law {
            law.set_buffer(self.config.buffer);
        }
    }

    /// Sets the bytes in the buffer from now on.
    fn set_queue(&mut self, now: Time, bytes: u64) {
        self.integrate(now);
        self.queue = bytes as f64;
        self.peak = self.peak.max(self.queue);
    }

    fn integrate(&mut self, now: Time) {
        self.area += self.queue * now.saturating_sub(self.changed).as_secs_f64();
        self.changed = self.changed.max(now);
    }

    /// Records the arrival of a segment of `payload` bytes, dropped or not.
    fn on_arrival(&mut self, now: Time, payload: f64) {
        if self.begun == Time::ZERO {
            (self.begun, self.changed) = (now, now);
        }
        self.arrived += payload;
        self.tolls += 1.0;
    }

    /// The part of `due`, a packet's feedback in bytes/s, that returns. `rtt` is its sender's round
    /// trip in seconds. As at a router, packets share the controller's feedback of an epoch.
    fn bound(&mut self, now: Time, rtt: f32, due: f64) -> f64 {
        let span = now.saturating_sub(self.begun).as_secs_f64();
        if rtt > 0.0 && span >= f64::from(rtt) {
            self.end_epoch(now, span);
        }
        let share = if self.share > 0.0 { self.share.min(self.left) } else { self.share.max(self.left) };
        self.left -= share;
        // A `due` that is no number is ignored.
        due.min(share)
    }

    fn end_epoch(&mut self, now: Time, span: f64) {
        self.integrate(now);
        let law = self.law.get_or_insert_with(|| Soft::idle(self.config, span));
        let epoch = Epoch {
            span,
            arrived: self.arrived,
            drained: self.drained,
            queue: self.area / span,
            peak: self.peak,
            dropped: self.dropped,
        };
        let change = law.on_epoch(&epoch) / span * self.expansion;
        (self.share, self.left) = (change / self.tolls.max(1.0), change);
        (self.begun, self.changed) = (now, now);
        (self.arrived, self.drained, self.area, self.tolls) = (0.0, 0.0, 0.0, 0.0);
        (self.peak, self.dropped) = (self.queue, false);
    }
}

/// Segments by which the window opens before an update is sent.
const UPDATE: u32 = 2;

impl Config {
    /// The window of a soft receiver with a buffer of `capacity`, segments. It bounds memory, not
    /// the rate: λ_target ≤ B/d keeps the data in flight near one buffer.
    pub(in crate::transport) fn overcommitted(capacity: u32) -> u32 {
        capacity.saturating_mul(4).min(MAX_WINDOW)
    }
}
