//! Changes of a link during a run.

use tollway_law::link::LinkLaw;
use tollway_law::{Rate, Time};

use super::stats::Rated;
use super::{Link, Store};
use crate::trace::{Cursor, Trace};
use crate::{Change, Faults};

impl Link {
    /// Sets the rate from `now` on, also for the rest of the packet in transmission.
    fn set_rate(&mut self, now: Time, rate: Rate) {
        self.note_queue(now);
        self.note_drain();
        let (before, mut busy_ns) = (self.ns_per_byte, self.busy_ns());
        self.ns_per_byte = rate.ns_per_byte_fixed();
        if self.free_at > now && before > 0 {
            let left = self.free_at.0 - now.0;
            let scaled = (u128::from(left) * u128::from(self.ns_per_byte) / u128::from(before)) as u64;
            self.free_at = now + Time(scaled);
            busy_ns = busy_ns - left + scaled;
            if self.is_shaken() {
                self.postpone_last(Time(left), Time(scaled));
            } else if let Some(last) = self.recall() {
                self.launch(self.free_at + self.delay, last);
            }
        }
        self.rare().rated = Rated { busy_ns, sent_bytes: self.sent_bytes, carry: self.carry };
        self.settle();
    }

    /// Makes packets leave by `trace` instead of at a rate; call it before the first packet.
    pub fn set_trace(&mut self, trace: Trace) {
        self.ns_per_byte = 0;
        self.rare().trace = Some(Box::new(Cursor::new(trace)));
        self.settle();
    }

    /// Takes the last packet off the wire.
    fn recall(&mut self) -> Option<u32> {
        if let Some(last) = self.behind.pop_back() {
            self.trailing = !self.behind.is_empty();
            return Some(last.slot);
        }
        let only = !self.is_idle();
        self.first_at = Time::NEVER;
        only.then_some(self.first_slot)
    }

    /// Changes the link at `now`; new faults take their randomness from `faults`.
    pub fn change(
        &mut self,
        now: Time,
        change: Change,
        store: &mut impl Store,
        faults: impl FnOnce() -> Faults,
    ) {
        self.catch_up(now, store);
        match change {
            Change::Rate(rate) => self.set_rate(now, rate),
            Change::Delay(delay) => {
                self.shrunk |= delay < self.delay;
                self.delay = delay;
            }
            Change::Capacity(capacity) => self.port.set_capacity(now, capacity),
            Change::Limit(limit) => {
                self.port.set_limit(limit);
                self.settle();
            }
            Change::LawError(part) => self.port.law.set_error(part),
            Change::Losses(losses) => self.faults(faults).losses = losses,
            Change::Wire(impairments) => {
                self.faults(faults);
                self.impair(impairments);
            }
            Change::Blackout(on) => self.faults(faults).blackout = on,
            Change::Budget(_)
            | Change::Class(_)
            | Change::ReceiveBuffer(_)
            | Change::Reader(_)
            | Change::Paused(_) => {}
        }
    }
}
