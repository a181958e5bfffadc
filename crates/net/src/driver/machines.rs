//! The machines at flows' ends: received packets, timers, packets to send.

use tollway_law::Time;
use tollway_proto::encoding::acp;
use tollway_proto::shaper::UNSHAPED;
use tollway_proto::transport::State;
use tollway_proto::{Encoding, Flags, Machine, Packet, Stamp};
use tracing::debug;

use super::{Driver, Endpoint, Fate};
use crate::error::Error;
use crate::wire;

impl Driver {
    /// Handles a datagram at the end of its path.
    pub(super) fn deliver(&mut self, at: usize, now: Time, datagram: &[u8]) -> Result<(), Error> {
        let Ok(decoded) = acp::decode(datagram) else {
            self.counters.senseless += 1;
            return Ok(());
        };
        let mut packet = decoded.packet;
        #[cfg(target_os = "linux")]
        if self.ends[at].carried.is_some() {
            self.hand_over(at, datagram);
            return Ok(());
        }
        let end = &mut self.ends[at];
        if !end.live {
            self.counters.absorbed += 1;
            return Ok(());
        }
        packet.flow = end.hears;
        if self.apart && !self.is_sound(at, now, &packet)? {
            return Ok(());
        }
        let end = &mut self.ends[at];
        let wrong = match (end.hears_app, end.keyed) {
            (true, _) => None,
            (_, true) => wire::corrupt_keyed(&packet, end.header, datagram),
            _ => wire::corrupt(&packet, end.header, datagram),
        };
        if let Some(position) = wrong {
            if !self.apart {
                return Err(Error::Corrupt { flow: end.flow, segment: packet.seq, position, at: now });
            }
            // It may be forged. The sender retransmits the segment.
            self.counters.senseless += 1;
            return Ok(());
        }
        self.counters.delivered += 1;
        if packet.flags.has(Flags::TOLLED) {
            end.heard_rtt = packet.toll.rtt;
        }
        if let Some(machine) = &mut end.machine {
            let known = machine.stats().bytes_delivered;
            let before = (machine.expected(), machine.receive_window());
            machine.handle_packet(now, &packet, &decoded.sack);
            if let Some(hosted) = &mut end.hosted {
                let start = datagram.len().saturating_sub(wire::payload_len(&packet, end.header));
                hosted.note(&packet, before, machine, &datagram[start..]);
            }
            if end.heard.is_none() && machine.state() != State::Idle
                || machine.stats().bytes_delivered > known
            {
                end.heard = Some((end.heard.map_or(now, |heard| heard.0), now));
            }
        }
        self.pump(at, now)
    }

    /// Returns true if a packet from another process can belong to the flow.
    ///
    /// A packet that cannot is counted and changes nothing. If it opens another flow, its sender
    /// receives a refusal.
    fn is_sound(&mut self, at: usize, now: Time, packet: &Packet) -> Result<bool, Error> {
        let end = &mut self.ends[at];
        let Some(machine) = &end.machine else { return Ok(true) };
        let (same, refused) = (packet.ack == end.fingerprint, packet.flags.has(REFUSAL));
        if opens(packet) && !end.client && machine.state() == State::Idle {
            // The right opening may still arrive.
            end.fate = (!same).then_some(Fate::Mistaken);
            if !same {
                self.counters.delivered += 1;
                self.refuse(at, now, packet)?;
            }
            return Ok(same);
        }
        let sound = if refused {
            machine.state() == State::SynSent && packet.sent_echo.0 == end.fingerprint
        } else if opens(packet) {
            same
        } else {
            !packet.flags.has(Flags::DATA) || machine.fits(packet)
        };
        if !sound {
            debug!(target: "driver", %now, flow = packet.flow, seq = packet.seq, "packet refused");
            self.counters.senseless += 1;
        } else if refused {
            end.fate = Some(Fate::Mistaken);
        }
        Ok(sound)
    }

    /// Refuses an opening that means another flow by this number.
    fn refuse(&mut self, at: usize, now: Time, opening: &Packet) -> Result<(), Error> {
        let end = &self.ends[at];
        let Some(machine) = &end.machine else { return Ok(()) };
        let packet = Packet { size: machine.config().ack_size, ..refusal(now, end.label, opening) };
        self.leave(at, now, packet)
    }

    /// Handles a machine's timer.
    pub(super) fn wake(&mut self, at: usize, now: Time) -> Result<(), Error> {
        let end = &mut self.ends[at];
        if let Some(machine) = end.machine.as_mut().filter(|_| end.live) {
            let due = machine.poll_timeout().min(end.open_at).min(end.stop_at);
            if due <= now {
                self.timeouts.note(now.saturating_sub(due), 1);
                let opens = end.open_at <= now;
                if opens {
                    end.open_at = Time::NEVER;
                    machine.open(now);
                }
                if end.stop_at <= now {
                    end.stop_at = Time::NEVER;
                    Machine::stop(machine, now);
                }
                if machine.poll_timeout() <= now {
                    machine.handle_timeout(now);
                }
                if opens && end.shaped != UNSHAPED {
                    self.admit(at, now);
                }
            }
        }
        self.pump(at, now)
    }

    /// Sends the packets of a machine, and sets its timer.
    pub(crate) fn pump(&mut self, at: usize, now: Time) -> Result<(), Error> {
        let end = &self.ends[at];
        if !end.live || end.machine.is_none() {
            return Ok(());
        }
        match end.shaped {
            _ if end.hosted.is_some() => self.serve(at, now)?,
            UNSHAPED => while self.send_one(at, now, false, |_| true)? {},
            _ => self.send_shaped(at, now)?,
        }
        self.settle(at, now)
    }

    /// Notes a machine's completion after it has sent its packets, and sets its timer.
    pub(super) fn settle(&mut self, at: usize, now: Time) -> Result<(), Error> {
        self.note_done(at, now)?;
        self.arm_end(at);
        Ok(())
    }

    /// Sends one packet of a machine, without data if `control`, unless `leaves` holds it back.
    ///
    /// Returns true if the machine had a packet.
    pub(super) fn send_one(
        &mut self,
        at: usize,
        now: Time,
        control: bool,
        leaves: impl FnOnce(&mut Packet) -> bool,
    ) -> Result<bool, Error> {
        let end = &mut self.ends[at];
        let Some(machine) = end.machine.as_mut() else { return Ok(false) };
        let mut packet = Packet::default();
        let sent = match control {
            true => machine.poll_control(now, &mut packet, &mut self.sack),
            false => machine.poll_transmit(now, &mut packet, &mut self.sack),
        };
        if !sent {
            return Ok(false);
        }
        if !leaves(&mut packet) {
            self.sack.clear();
            return Ok(true);
        }
        packet.flow = end.label;
        if end.encoding != Encoding::Acp {
            quantise(end, &mut packet);
        }
        if self.apart && opens(&packet) {
            packet.ack = end.fingerprint;
        }
        self.leave(at, now, packet)?;
        Ok(true)
    }

    /// Sends a packet of an end, with the ranges in `sack`.
    fn leave(&mut self, at: usize, now: Time, packet: Packet) -> Result<(), Error> {
        let end = &mut self.ends[at];
        let len = usize::from(packet.size).saturating_sub(acp::OVERHEAD);
        let handle = self.buffers.alloc(packet, len);
        let (header, bytes) = (end.header, self.buffers.bytes_mut(handle));
        let composed = match &mut end.hosted {
            None if end.keyed => wire::compose_keyed(&packet, &self.sack, header, bytes),
            None => wire::compose(&packet, &self.sack, header, bytes),
            Some(hosted) => wire::compose_with(&packet, &self.sack, header, bytes, |payload| {
                hosted.write(&packet, header, payload);
            }),
        };
        self.sack.clear();
        if composed.is_err() {
            self.buffers.free(handle);
            return Err(Error::NoRoom { size: packet.size, need: acp::OVERHEAD + acp::LEN });
        }
        self.counters.created += 1;
        let first = end.first;
        self.begin(first, now, handle);
        Ok(())
    }

    pub(super) fn note_done(&mut self, at: usize, now: Time) -> Result<(), Error> {
        let end = &mut self.ends[at];
        if end.done || !end.machine.as_ref().is_some_and(Machine::is_done) {
            return Ok(());
        }
        end.done = true;
        self.done.push((end.flow, end.client, now));
        self.dismiss(at, now)
    }
}

/// Returns true if a packet opens a connection.
///
/// Machines ignore its acknowledgement number. Between processes this field holds the flow's
/// fingerprint.
pub(super) fn opens(packet: &Packet) -> bool {
    packet.flags.among(Flags::SYN.with(Flags::ACK).with(Flags::RST)) == Flags::SYN
}

/// The answer to an opening with another fingerprint. Its size is not set.
pub(super) fn refusal(now: Time, label: u32, opening: &Packet) -> Packet {
    Packet {
        flow: label,
        ack: opening.seq.wrapping_add(1),
        sent: Stamp::at(now),
        sent_echo: Stamp(opening.ack),
        flags: REFUSAL,
        ..Packet::default()
    }
}

/// Flags of the answer to an opening with another fingerprint.
///
/// The answer echoes this fingerprint in place of a timestamp. Machines read it as a reset, and
/// never send it.
const REFUSAL: Flags = Flags(Flags::SYN.0 | Flags::RST.0 | Flags::ACK.0);

/// Quantises a packet's toll to the values that the sender's encoding can represent.
#[cold]
fn quantise(end: &Endpoint, packet: &mut Packet) {
    let size = u32::from(packet.size);
    if packet.flags.has(Flags::TOLLED) {
        end.encoding.quantise_sender(&mut packet.toll, size);
    }
    if packet.flags.has(Flags::ECHO) {
        packet.toll.echo = end.encoding.quantise_echo(packet.toll.echo, end.heard_rtt, end.segment);
    }
}
