//! The sending half: data that may leave, the effect of acknowledgements, and timeouts.

mod delivery;
mod extra;
mod ns2;
mod pick;
mod rack;
mod repair;
mod scoreboard;
mod source;

use tollway_law::sender::{Acked, AnySender, Flight, NewReno, SenderLaw};
use tollway_law::{Time, Toll};

use crate::{Flags, Packet, SackRanges, Stamp};

use super::config::{Config, Detection, MAX_WINDOW};
use super::inline::Inline;
use super::rtt::Rtt;
use super::serial::before;
use super::stats::Counters;
use delivery::Sampler;
use extra::Extra;
pub(super) use scoreboard::{Scoreboard, Slot};
use source::Source;

/// The sender's phase of loss recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// No loss to repair.
    Open,
    /// Fast recovery.
    Recovery,
    /// After a timeout, up to its recovery point.
    Loss,
}

/// The sending half of a connection.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Sender {
    pub(super) extra: Extra,
    /// The stamp of the first retransmission after a timeout, to detect a premature timeout.
    pub(super) timeout_stamp: Option<Stamp>,
    pub(super) board: Scoreboard,
    /// The first segment beyond the receiver's window.
    edge: u32,
    /// The law's window in whole segments.
    pub(super) window: u32,
    /// Expiry of the retransmission timer, or of a window probe.
    pub(super) rto_at: Time,
    /// Expiry of RACK's reordering timer, or of the tail-loss probe.
    pub(super) rack_at: Time,
    pub(super) phase: Phase,
    pub(super) app_limited: bool,
    /// The packet that leaves next in spite of the windows.
    pub(super) force: Force,
    /// True if the law paces packets.
    pub(super) paced: bool,
    /// True if a packet is ready and only waits for `pace_at`.
    pub(super) paced_out: bool,
    /// True if duplicates at `recover` itself may stem from a timeout's needless retransmissions
    /// (RFC 6582 § 3.2).
    pub(super) careful: bool,
    /// Expiries of the timer since new data were acknowledged.
    pub(super) expiries: u8,
    /// True if nothing is in flight and nothing to send.
    pub(super) idle: bool,
    pub(super) source: Source,
    pub(super) rtt: Rtt,
    /// Recovery ends when the cumulative acknowledgement gets here.
    pub(super) recover: u32,
    paced_size: u16,
    /// True if it sends a stream clocked by acknowledgements alone, and the receiving half has
    /// nothing to report.
    pub(super) plain: bool,
    /// True if a partial acknowledgement of this recovery has restarted the timer.
    partial: bool,
    /// Earliest departure of the next packet, if the law paces.
    pub(super) pace_at: Time,
    pub(super) law: AnySender,
    /// Departure of the last paced packet; its size is `paced_size`.
    paced_from: Time,
}

/// The packet that leaves next in spite of the windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Force {
    /// Nothing must.
    Nothing,
    /// The first segment in flight again, apart from those that the repair goes on with.
    First,
    /// The first segment declared lost (RFC 6675 § 5, step 4.3).
    Lost,
    /// New data: a window probe or a tail probe.
    Fresh,
    /// The last segment again: a tail probe.
    Last,
}

/// The segment that leaves next.
#[derive(Clone, Copy, Debug)]
enum Pick {
    Nothing,
    Fresh,
    Again(u32),
    /// Another copy of the last retransmission.
    Copy(u32),
}

impl Sender {
    #[inline(always)]
    pub(super) fn new(config: &Config, law: AnySender) -> Sender {
        let first = config.initial_segment;
        let window = whole(law.window());
        let mut board = Scoreboard::new(first);
        board.sampler = law.samples_delivery().then(|| Box::new(Sampler::new()));
        board.tracks = matches!(config.detects(), Detection::Rack { .. });
        Sender {
            board,
            edge: first.wrapping_add(MAX_WINDOW),
            window,
            recover: first,
            phase: Phase::Open,
            app_limited: false,
            force: Force::Nothing,
            paced: false,
            paced_out: false,
            careful: false,
            partial: false,
            expiries: 0,
            idle: false,
            plain: false,
            rtt: Rtt::new(&config.rto),
            law,
            rto_at: Time::NEVER,
            rack_at: Time::NEVER,
            pace_at: Time::ZERO,
            paced_from: Time::ZERO,
            paced_size: 0,
            source: Source::new(),
            timeout_stamp: None,
            extra: Extra::new(config),
        }
    }

    /// Sets the end of the receiver's window, as both ends know it before any packet.
    pub(super) fn set_window(&mut self, window: u32) {
        self.edge = self.board.una.wrapping_add(window);
    }

    #[inline]
    pub(super) fn flight(&self, now: Time, config: &Config) -> Flight {
        Flight {
            now,
            srtt: self.rtt.srtt(),
            min_rtt: self.rtt.min,
            segment: u32::from(config.segment),
            in_flight: self.board.pipe(),
            outstanding: self.board.outstanding(),
            limit: self.limit(config),
            app_limited: self.app_limited,
            size: u32::from(config.segment),
            unsent: u64::MAX,
        }
    }

    /// Segments that the receiver and the send buffer allow in flight.
    #[inline]
    pub(super) fn limit(&self, config: &Config) -> u32 {
        self.edge.wrapping_sub(self.board.una).min(config.send_buffer)
    }

    /// True if the receiver and the send buffer have room for another segment.
    pub(super) fn has_room(&self, config: &Config) -> bool {
        self.board.outstanding() < self.limit(config)
    }

    /// The time of the next [`Sender::on_timer`].
    #[inline]
    pub(super) fn alarm(&self) -> Time {
        self.rto_at.min(self.rack_at)
    }

    /// The time of the next [`Sender::on_timer`] or transmission.
    #[inline]
    pub(super) fn timeout(&self) -> Time {
        let pace = if self.paced_out { self.pace_at } else { Time::NEVER };
        self.alarm().min(pace)
    }

    /// Builds the next data packet, SYN or FIN, if one may leave. Does not change the
    /// acknowledgement's fields.
    #[inline]
    pub(super) fn transmit(
        &mut self,
        now: Time,
        out: &mut Packet,
        config: &Config,
        stats: &mut Counters,
    ) -> bool {
        let pick = self.pick(now, config);
        let sampled = self.board.sampler.is_some() && !matches!(pick, Pick::Nothing);
        if sampled {
            self.before_sending(now, config);
        }
        let (seq, slot, again) = match pick {
            Pick::Nothing => return false,
            Pick::Fresh => {
                // The stream may end with it.
                self.plain = false;
                let cut = self.source.cut(config.payload());
                let slot = Slot::new(Stamp::at(now), cut.payload, cut.flags);
                (self.board.push(slot), slot, false)
            }
            Pick::Again(seq) => {
                self.restart_at_repair(now, seq, config);
                let slot = self.resend(now, seq, stats);
                if self.phase == Phase::Recovery {
                    self.consider_copies(seq, config);
                }
                (seq, slot, true)
            }
            Pick::Copy(seq) => {
                self.copy_left();
                (seq, self.resend(now, seq, stats), true)
            }
        };
        if self.rto_at == Time::NEVER {
            self.rto_at = now.saturating_add(self.rtt.rto(&config.rto));
        }
        if sampled {
            self.after_sending(now, seq);
        }
        self.write(now, seq, slot, again, out, config);
        stats.segments_sent += 1;
        stats.bytes_sent += u64::from(out.size);
        if self.paced {
            self.note_departure(now, out.size);
        }
        if self.extra.is_rack() {
            self.schedule_probe(now, config);
        }
        true
    }

    /// Records the departure of a paced packet of `size` bytes.
    #[inline]
    pub(super) fn note_departure(&mut self, now: Time, size: u16) {
        // A timer that came a little late must not slow the flow down.
        let late = now.saturating_sub(self.pace_at);
        self.paced_from = if late <= PACING_SLACK { self.pace_at.min(now) } else { now };
        self.paced_size = size;
    }

    /// Restarts the retransmission timer when `seq`, the first hole, is retransmitted (RFC 6675 § 6
    /// allows it; Linux and ns-2 do it). A retransmission that was lost too delays the cumulative
    /// acknowledgement by two round trips or more: where losses are detected by time, the timer
    /// counts from the last attempt.
    #[inline]
    pub(super) fn restart_at_repair(&mut self, now: Time, seq: u32, config: &Config) {
        let restarts = self.extra.is_rack() || (config.rto.at_repair && !self.partial);
        if self.phase == Phase::Recovery && seq == self.board.una && restarts {
            self.rto_at = now.saturating_add(self.rtt.rto(&config.rto));
        }
    }

    #[inline]
    pub(super) fn resend(&mut self, now: Time, seq: u32, stats: &mut Counters) -> Slot {
        let stamp = Stamp::at(now);
        let slot = self.board.resend(seq, stamp);
        stats.rare().retransmissions += 1;
        if self.phase == Phase::Loss && self.timeout_stamp.is_none() && self.expiries > 0 {
            self.timeout_stamp = Some(stamp);
        }
        if let Some(rack) = self.extra.rack_mut() {
            rack.on_resent(seq, stamp);
        }
        slot
    }

    #[inline]
    fn write(&mut self, now: Time, seq: u32, slot: Slot, again: bool, out: &mut Packet, config: &Config) {
        let mut flags = Flags::DATA;
        out.toll = Toll::default();
        if slot.has(Slot::SYN | Slot::FIN) {
            flags = if slot.has(Slot::SYN) { Flags::SYN } else { Flags::FIN };
            out.size = config.ack_size;
            if slot.has(Slot::SYN) && self.law.tolls_first() && self.source.has_data() {
                flags.set(Flags::TOLLED);
                self.write_toll(now, out, config);
            }
        } else {
            out.size = config.header.saturating_add(slot.payload);
            if slot.has(Slot::FIRST) {
                flags.set(Flags::FIRST);
            }
            if slot.has(Slot::LAST) {
                flags.set(Flags::LAST);
            }
            if self.toll(now, out, config) {
                flags.set(Flags::TOLLED);
            }
            // RFC 3168 § 6.1.5: a retransmission may be dropped, so that its loss is not hidden.
            if config.ecn && !again {
                flags.set(if config.l4s { Flags::ECT1 } else { Flags::ECT });
            }
        }
        if again {
            flags.set(Flags::RETRANSMIT);
        }
        out.seq = seq;
        out.flags = flags;
    }

    /// Writes the toll of the data packet about to leave, unless it has none or another packet
    /// speaks for it. Returns true if it was written.
    #[inline(always)]
    pub(super) fn toll(&mut self, now: Time, out: &mut Packet, config: &Config) -> bool {
        self.law.tolled() && self.write_unless_spared(now, out, config)
    }

    #[inline(never)]
    fn write_unless_spared(&mut self, now: Time, out: &mut Packet, config: &Config) -> bool {
        let spared = self.law.spares_toll();
        if !spared {
            self.write_toll(now, out, config);
        }
        !spared
    }

    /// [`toll`](Sender::toll) with the law `L` inlined.
    #[inline(always)]
    pub(super) fn toll_by<L: Inline>(&mut self, now: Time, out: &mut Packet, config: &Config) -> bool {
        let Some(law) = L::of(&mut self.law) else { return self.toll(now, out, config) };
        if !law.tolled() || law.spares_toll() {
            return false;
        }
        let flight = self.flight_before(now, out, config);
        if let Some(law) = L::of(&mut self.law) {
            law.write_toll(&flight, &mut out.toll);
        }
        true
    }

    #[inline]
    fn write_toll(&mut self, now: Time, out: &mut Packet, config: &Config) {
        let flight = self.flight_before(now, out, config);
        self.law.write_toll(&flight, &mut out.toll);
    }

    /// The state before `out` leaves.
    #[inline(always)]
    fn flight_before(&self, now: Time, out: &Packet, config: &Config) -> Flight {
        // Lost segments that wait for retransmission are to be sent like new ones.
        let mut unsent = u64::MAX;
        if self.source.finished {
            let again = u64::from(self.board.pending) * u64::from(config.segment);
            unsent = self.source.unsent(config.payload(), config.header).saturating_add(again);
        }
        Flight { size: u32::from(out.size), unsent, ..self.flight(now, config) }
    }

    /// True if `ack` can be a valid acknowledgement: of the present flight, or an older one
    /// delayed.
    #[inline]
    pub(super) fn plausible(&self, ack: u32) -> bool {
        ack.wrapping_sub(self.board.una) <= self.board.outstanding() || before(ack, self.board.una)
    }

    /// Handles the acknowledgement of the SYN: a round-trip sample and a window, without growth of
    /// the law's window.
    pub(super) fn on_syn_acked(&mut self, now: Time, packet: &Packet, config: &Config) {
        let first = packet.ack;
        let sampled = self.board.sampler.is_some();
        // An end that only acknowledges needs no more slots.
        self.board.restart(first, self.source.has_data());
        self.board.sampler = sampled.then(|| Box::new(Sampler::new()));
        self.board.tracks = self.extra.is_rack();
        self.phase = Phase::Open;
        self.recover = first;
        self.careful = false;
        self.expiries = 0;
        self.timeout_stamp = None;
        self.edge = first.wrapping_add(packet.window.min(MAX_WINDOW));
        self.sample(now, packet, config);
        self.rtt.progress();
        self.rto_at = Time::NEVER;
        self.rack_at = Time::NEVER;
        self.source.open();
        if packet.flags.has(Flags::ECHO) {
            // The SYN was tolled: what links say to it is the law's first news.
            let acked = Acked {
                segments: 0,
                cumulative: 0,
                rtt: None,
                echo: Some(packet.toll.echo),
                gap: packet.flags.has(Flags::GAP),
                recovering: false,
                marked: false,
            };
            let flight = self.flight(now, config);
            self.law.on_ack(&flight, &acked);
            self.window = whole(self.law.window());
        }
    }

    #[inline]
    pub(super) fn sample(&mut self, now: Time, packet: &Packet, config: &Config) -> Option<Time> {
        let rtt = round_trip(now, packet)?;
        self.rtt.sample(rtt, &config.rto);
        Some(rtt)
    }

    /// Handles an acknowledgement, alone or on a data packet. The caller has checked that it is
    /// [plausible](Sender::plausible).
    #[inline]
    pub(super) fn on_ack(
        &mut self,
        now: Time,
        packet: &Packet,
        sack: &SackRanges,
        config: &Config,
        stats: &mut Counters,
    ) {
        // Most data that comes back tells nothing of ours: a flow one way acknowledges with nothing
        // in flight.
        const TELLS: u16 = Flags::STAMP_ECHO.0 | Flags::ECHO.0 | Flags::ECE.0 | Flags::SACK.0;
        let advance = packet.ack.wrapping_sub(self.board.una);
        if advance == 0 && packet.flags.0 & TELLS == 0 && !self.is_duplicate(packet) {
            self.open_window(packet);
            return;
        }
        let echo = packet.flags.has(Flags::ECHO).then_some(packet.toll.echo);
        let (marked, gap) = (packet.flags.has(Flags::ECE), packet.flags.has(Flags::GAP));
        if advance > self.board.outstanding() {
            // Overtaken by a later one. What links said through it still holds.
            let acked = Acked {
                segments: 0,
                cumulative: 0,
                rtt: None,
                echo,
                gap,
                recovering: self.phase != Phase::Open,
                marked,
            };
            if echo.is_some() || marked {
                let flight = self.flight(now, config);
                self.law.on_ack(&flight, &acked);
                self.window = whole(self.law.window());
            }
            return;
        }
        self.open_window(packet);
        if self.extra.is_ns2() {
            return self.on_ack_ns2(now, packet, sack, advance, config, stats);
        }
        let rtt = self.sample(now, packet, config);
        let mut clean = 0;
        let quiet = self.phase == Phase::Open && self.board.clean() && !packet.flags.has(Flags::SACK);
        let segments = if quiet && (advance > 0 || config.heeds_ranges() || !self.is_duplicate(packet)) {
            self.board.ack_clean(advance);
            clean = advance;
            if self.extra.is_rack() {
                self.probe_answered(now, packet, config);
            }
            advance
        } else {
            self.repair(now, packet, sack, advance, config, stats)
        };
        if advance > 0 {
            self.rtt.progress();
            self.expiries = 0;
            self.restart_timer(now, config);
        }
        let recovering = self.phase != Phase::Open;
        if self.board.sampler.is_some() {
            self.sample_delivery(now, clean, rtt, config);
        }
        let acked = || Acked { segments, cumulative: advance, rtt, echo, gap, recovering, marked };
        self.tell::<NewReno>(now, config, acked);
        if recovering {
            self.leave_recovery(now, packet.flow, config, stats);
            self.window = whole(self.law.window());
        }
        if self.extra.is_rack() && advance > 0 {
            self.schedule_probe(now, config);
        }
    }

    /// Restarts the retransmission timer at an acknowledgement of new data (RFC 6298 § 5.3, RFC
    /// 6582 § 4).
    #[inline]
    fn restart_timer(&mut self, now: Time, config: &Config) {
        let partial = self.phase == Phase::Recovery && before(self.board.una, self.recover);
        let keeps = partial && self.partial && config.rto.impatient && config.detects() == Detection::NewReno;
        self.partial = partial;
        if !keeps {
            let idle = self.board.outstanding() == 0;
            self.rto_at = if idle { Time::NEVER } else { now.saturating_add(self.rtt.rto(&config.rto)) };
        }
    }

    /// Reports an acknowledgement to the law. The law `L` is inlined, and only the values it reads
    /// are computed.
    #[inline(always)]
    pub(super) fn tell<L: Inline>(&mut self, now: Time, config: &Config, acked: impl FnOnce() -> Acked) {
        let flight = self.flight(now, config);
        let Some(law) = L::of(&mut self.law) else { return self.tell_other(now, &acked(), config) };
        law.on_ack(&flight, &acked());
        self.window = whole(law.window());
    }

    /// [`tell`](Sender::tell) for another law.
    #[inline(never)]
    fn tell_other(&mut self, now: Time, acked: &Acked, config: &Config) {
        let flight = self.flight(now, config);
        self.law.on_ack(&flight, acked);
        self.window = whole(self.law.window());
    }

    /// Extends the receiver's window. It shrinks only while nothing is in flight, so that late
    /// acknowledgements take no room back; a switch so reclaims credit of a member that is idle.
    #[inline]
    pub(super) fn open_window(&mut self, packet: &Packet) {
        let edge = packet.ack.wrapping_add(packet.window.min(MAX_WINDOW));
        if before(self.edge, edge) || self.board.outstanding() == 0 {
            self.edge = edge;
        }
    }

    /// RFC 5681 § 2, without the condition on the window, since a receiver's may grow with each
    /// packet.
    pub(super) fn is_duplicate(&self, packet: &Packet) -> bool {
        const BUSY: u16 = Flags::DATA.0 | Flags::SYN.0 | Flags::FIN.0;
        // A window update answers no segment, and so echoes no stamp.
        let answers = packet.flags.0 & (BUSY | Flags::STAMP_ECHO.0) == Flags::STAMP_ECHO.0;
        packet.ack == self.board.una && self.board.outstanding() > 0 && answers
    }

    /// Forces a tail-loss probe in spite of the windows.
    pub(super) fn force_probe(&mut self, fresh: bool) {
        self.force = if fresh { Force::Fresh } else { Force::Last };
    }

    /// Stops all transmissions and timers.
    pub(super) fn shut(&mut self) {
        self.source.clear();
        let first = self.board.next;
        self.board = Scoreboard::new(first);
        self.force = Force::Nothing;
        self.paced_out = false;
        self.phase = Phase::Open;
        self.rto_at = Time::NEVER;
        self.rack_at = Time::NEVER;
    }
}

/// The round trip that a packet's echoed stamp shows.
#[inline]
fn round_trip(now: Time, packet: &Packet) -> Option<Time> {
    let rtt = packet.sent_echo.elapsed(now);
    // A stamp from the future looks like one from long ago.
    (packet.flags.has(Flags::STAMP_ECHO) && rtt <= Stamp::REACH).then_some(rtt)
}

/// The law's window in whole segments, at least one; pacing handles rates below one segment per
/// round trip.
#[inline]
pub(super) fn whole(window: f64) -> u32 {
    // The cast saturates; a window that is no number becomes the least.
    (window as u32).clamp(1, MAX_WINDOW)
}

/// A relative change of the rate below this keeps the departure of the next packet.
const SAME_TURN: f64 = 1.0 / 32.0;
/// Lateness up to which a paced packet counts as on time.
const PACING_SLACK: Time = Time::from_millis(1);
