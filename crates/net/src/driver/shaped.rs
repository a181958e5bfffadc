//! Shaped connections, which send only what their host's shaper releases.

use tollway_law::Time;
use tollway_proto::Packet;
use tollway_proto::shaper::{ClassId, Senders, ShapedSenders, Shaper, UNSHAPED};
use tollway_proto::transport::Connection;

use super::{Driver, SHAPER};
use crate::error::Error;

/// The driver's senders, for one call at an instant.
struct Behind<'a> {
    driver: &'a mut Driver,
    now: Time,
    failed: Option<Error>,
}

impl Driver {
    pub(crate) fn add_shaper(&mut self, shaper: Shaper) -> u32 {
        self.shapers.push(Time::NEVER);
        self.shaped.add_shaper(shaper)
    }

    /// Puts an end that is not open yet behind a shaper.
    pub(crate) fn shape_end(&mut self, at: u32, shaper: u32, class: ClassId) {
        self.ends[at as usize].shaped = self.shaped.add_sender(shaper, class, 0);
    }

    /// Puts a source of cross-traffic behind a shaper where at most `room` packets wait.
    pub(crate) fn shape_source(&mut self, at: u32, shaper: u32, class: ClassId, room: u32) {
        self.sources[at as usize].shaped = self.shaped.add_sender(shaper, class, room);
    }

    pub(crate) fn with_shaper(
        &mut self,
        now: Time,
        shaper: u32,
        work: impl FnOnce(&mut Shaper),
    ) -> Result<(), Error> {
        self.with_shaped(now, |shaped, behind| shaped.with_shaper(now, shaper, behind, work))
    }

    /// Puts a shaped end that opens under its policy.
    pub(super) fn admit(&mut self, at: usize, now: Time) {
        self.shaped.admit(now, self.ends[at].shaped, at as u32);
    }

    /// Removes a shaped end that is done or gone. It takes no more tokens.
    pub(crate) fn dismiss(&mut self, at: usize, now: Time) -> Result<(), Error> {
        match std::mem::replace(&mut self.ends[at].shaped, UNSHAPED) {
            UNSHAPED => Ok(()),
            sender => self.with_shaped(now, |shaped, behind| shaped.dismiss(now, sender, behind)),
        }
    }

    pub(super) fn send_shaped(&mut self, at: usize, now: Time) -> Result<(), Error> {
        let sender = self.ends[at].shaped;
        self.with_shaped(now, |shaped, behind| shaped.send(now, sender, at as u32, behind))
    }

    pub(super) fn emit_shaped(&mut self, source: usize, now: Time) -> Result<(), Error> {
        let sender = self.sources[source].shaped;
        self.with_shaped(now, |shaped, behind| shaped.emit(now, sender, source as u32, behind))
    }

    /// Handles a shaper's timer that was due at `at`.
    pub(super) fn tick_shaper(&mut self, shaper: usize, at: Time, now: Time) -> Result<(), Error> {
        if self.shapers[shaper] != at {
            return Ok(());
        }
        self.shapers[shaper] = Time::NEVER;
        self.timeouts.note(now.saturating_sub(at), 1);
        self.with_shaped(now, |shaped, behind| shaped.handle_timeout(now, shaper as u32, behind))
    }

    fn with_shaped(
        &mut self,
        now: Time,
        work: impl FnOnce(&mut ShapedSenders, &mut Behind<'_>),
    ) -> Result<(), Error> {
        let mut shaped = std::mem::take(&mut self.shaped);
        let mut behind = Behind { driver: self, now, failed: None };
        work(&mut shaped, &mut behind);
        let failed = behind.failed;
        self.shaped = shaped;
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
