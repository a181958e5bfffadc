//! The simplest machine that fills a link: a fixed window, an acknowledgement per packet, no
//! repair.

use tollway_law::Time;
use tollway_proto::{Flags, Machine, Packet, SackRanges};

pub(crate) struct FixedWindow {
    /// Segments kept in flight; 0 for the end that only acknowledges.
    pub(crate) window: u32,
    pub(crate) sent: u32,
    pub(crate) acked: u32,
    pub(crate) received: u32,
    /// Flags of data packets beside [`Flags::DATA`].
    pub(crate) flags: Flags,
    answer: bool,
    open: bool,
    size: u16,
}

impl FixedWindow {
    pub(crate) fn new(window: u32, size: u16) -> FixedWindow {
        FixedWindow {
            window,
            sent: 0,
            acked: 0,
            received: 0,
            flags: Flags::NONE,
            answer: false,
            open: false,
            size,
        }
    }
}

impl Machine for FixedWindow {
    fn open(&mut self, _: Time) {
        self.open = true;
    }

    fn stop(&mut self, _: Time) {
        self.open = false;
    }

    fn handle_packet(&mut self, _: Time, packet: &Packet, _: &SackRanges) {
        if packet.flags.has(Flags::DATA) {
            self.received += 1;
            self.answer = true;
        } else {
            self.acked = packet.ack;
        }
    }

    fn handle_timeout(&mut self, _: Time) {}

    fn poll_timeout(&self) -> Time {
        Time::NEVER
    }

    fn poll_transmit(&mut self, _: Time, out: &mut Packet, _: &mut SackRanges) -> bool {
        if std::mem::take(&mut self.answer) {
            out.flags = Flags::ACK;
            out.ack = self.received;
            out.size = 40;
            true
        } else if self.open && self.sent - self.acked < self.window {
            out.flags = Flags::DATA.with(self.flags);
            out.seq = self.sent;
            out.size = self.size;
            self.sent += 1;
            true
        } else {
            false
        }
    }
}
