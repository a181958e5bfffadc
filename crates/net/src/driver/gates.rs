//! Gates: a connection asks its host's shaper before it sends.

use tollway_law::Time;
use tollway_proto::Packet;
use tollway_proto::shaper::{ClassId, Gates, OPEN, Senders, Shaper};
use tollway_proto::transport::Connection;

use super::{Driver, SHAPER};
use crate::error::Error;

/// The senders behind the gates, for one call at an instant.
struct Behind<'a> {
    driver: &'a mut Driver,
    now: Time,
    failed: Option<Error>,
}

impl Driver {
    pub(crate) fn add_shaper(&mut self, shaper: Shaper) -> u32 {
        self.shapers.push(Time::NEVER);
        self.gates.add_shaper(shaper)
    }

    /// Puts an end that is not open yet behind a gate of a shaper.
    pub(crate) fn gate_end(&mut self, at: u32, shaper: u32, class: ClassId) {
        self.ends[at as usize].gate = self.gates.add_gate(shaper, class, 0);
    }

    /// Puts a source of cross-traffic behind a gate where at most `room` packets wait.
    pub(crate) fn gate_source(&mut self, at: u32, shaper: u32, class: ClassId, room: u32) {
        self.sources[at as usize].gate = self.gates.add_gate(shaper, class, room);
    }

    pub(crate) fn with_shaper(
        &mut self,
        now: Time,
        shaper: u32,
        work: impl FnOnce(&mut Shaper),
    ) -> Result<(), Error> {
        self.at_gates(now, |gates, behind| gates.with_shaper(now, shaper, behind, work))
    }

    /// Opens the gate of an end.
    pub(super) fn admit(&mut self, at: usize, now: Time) {
        self.gates.admit(now, self.ends[at].gate, at as u32);
    }

    /// Removes the gate of an end that is done or gone. It takes no more tokens.
    pub(crate) fn dismiss(&mut self, at: usize, now: Time) -> Result<(), Error> {
        match std::mem::replace(&mut self.ends[at].gate, OPEN) {
            OPEN => Ok(()),
            gate => self.at_gates(now, |gates, behind| gates.dismiss(now, gate, behind)),
        }
    }

    pub(super) fn send_gated(&mut self, at: usize, now: Time) -> Result<(), Error> {
        let gate = self.ends[at].gate;
        self.at_gates(now, |gates, behind| gates.send(now, gate, at as u32, behind))
    }

    pub(super) fn emit_gated(&mut self, source: usize, now: Time) -> Result<(), Error> {
        let gate = self.sources[source].gate;
        self.at_gates(now, |gates, behind| gates.emit(now, gate, source as u32, behind))
    }

    /// Handles a shaper's timer that was due at `at`.
    pub(super) fn tick_shaper(&mut self, shaper: usize, at: Time, now: Time) -> Result<(), Error> {
        if self.shapers[shaper] != at {
            return Ok(());
        }
        self.shapers[shaper] = Time::NEVER;
        self.timeouts.note(now.saturating_sub(at), 1);
        self.at_gates(now, |gates, behind| gates.handle_timeout(now, shaper as u32, behind))
    }

    fn at_gates(&mut self, now: Time, work: impl FnOnce(&mut Gates, &mut Behind<'_>)) -> Result<(), Error> {
        let mut gates = std::mem::take(&mut self.gates);
        let mut behind = Behind { driver: self, now, failed: None };
        work(&mut gates, &mut behind);
        let failed = behind.failed;
        self.gates = gates;
        failed.map_or(Ok(()), Err)
    }
}

impl Behind<'_> {
    /// Keeps the first error, which ends the run, and then reports nothing sent.
    fn done(&mut self, done: Result<bool, Error>) -> bool {
        done.unwrap_or_else(|error| {
            self.failed.get_or_insert(error);
            false
        })
    }
}

impl Senders for Behind<'_> {
    type Machine = Connection;

    fn machine(&mut self, endpoint: u32) -> &mut Connection {
        let machine = self.driver.ends[endpoint as usize].machine.as_mut();
        machine.expect("a machine is out only while `with_flow` works on it")
    }

    fn send(&mut self, endpoint: u32, control: bool, leaves: impl FnOnce(&mut Packet) -> bool) -> bool {
        let sent = self.driver.send_one(endpoint as usize, self.now, control, leaves);
        self.done(sent)
    }

    fn rearm(&mut self, endpoint: u32) {
        self.driver.arm_end(endpoint as usize);
    }

    fn size(&self, source: u32) -> u16 {
        self.driver.sources[source as usize].size
    }

    fn send_plain(&mut self, source: u32, in_profile: bool) {
        let sent = self.driver.launch_plain(source as usize, self.now, in_profile);
        self.done(sent.map(|()| true));
    }

    fn set_timer(&mut self, shaper: u32, at: Time) {
        self.driver.shapers[shaper as usize] = at;
        if at != Time::NEVER {
            self.driver.set_timer(at, shaper as usize, SHAPER);
        }
    }
}
