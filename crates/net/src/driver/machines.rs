//! The machines at flows' ends: what they hear, when they wake, what they send.

use tollway_law::Time;
use tollway_proto::encoding::acp;
use tollway_proto::shaper::OPEN;
use tollway_proto::{Encoding, Flags, Machine, Packet};

use super::{Driver, Endpoint};
use crate::error::Error;
use crate::wire;

impl Driver {
    /// A datagram has reached the end of its way.
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
        if let Some(position) = wire::corrupt(&packet, end.header, datagram) {
            return Err(Error::Corrupt { flow: end.flow, segment: packet.seq, position, at: now });
        }
        self.counters.delivered += 1;
        if packet.flags.has(Flags::TOLLED) {
            end.heard_rtt = packet.toll.rtt;
        }
        if let Some(machine) = &mut end.machine {
            machine.handle_packet(now, &packet, &decoded.sack);
        }
        self.pump(at, now)
    }

    /// A machine's timer.
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
                if opens && end.gate != OPEN {
                    self.admit(at, now);
                }
            }
        }
        self.pump(at, now)
    }

    /// Sends what a machine has to send, and notes its timer.
    pub(crate) fn pump(&mut self, at: usize, now: Time) -> Result<(), Error> {
        let end = &self.ends[at];
        if !end.live || end.machine.is_none() {
            return Ok(());
        }
        match end.gate {
            OPEN => while self.send_one(at, now, false, |_| true)? {},
            _ => self.send_gated(at, now)?,
        }
        self.note_done(at, now)?;
        self.arm_end(at);
        Ok(())
    }

    /// Sends one packet of a machine, one without data if `control`, if there is one and it `leaves`; answers whether there was.
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
        let len = usize::from(packet.size).saturating_sub(acp::OVERHEAD);
        let handle = self.buffers.alloc(packet, len);
        let composed = wire::compose(&packet, &self.sack, end.header, self.buffers.bytes_mut(handle));
        self.sack.clear();
        if composed.is_err() {
            self.buffers.free(handle);
            return Err(Error::NoRoom { size: packet.size, need: acp::OVERHEAD + acp::LEN });
        }
        self.counters.created += 1;
        let first = end.first;
        self.begin(first, now, handle);
        Ok(true)
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

/// What is lost of a packet's toll when its sender writes it as bytes.
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
