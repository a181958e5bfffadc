//! Health checks of members: a connection and, where one is configured, a frame and its answer.

use std::io::IoSlice;

use ppp::v2::{Addresses, Builder, Command, Protocol, Version};
use tollway_law::Time;
use tollway_proto::dispatch::Queue;
use tollway_proto::framing::Framer;

use super::core::{Core, Health};
use crate::stream::{Got, Stream};

/// A check under way.
pub(super) struct Probe {
    stream: Stream,
    since: Time,
    /// Bytes to write; `None` if a connection suffices.
    frame: Option<Queue>,
    framer: Framer,
    got: Queue,
}

/// The present result of a check.
enum Checked {
    Waits,
    Passed,
    Failed(String),
}

impl Core {
    /// Checks members that are down, and all at the configured interval. Returns true if one is up
    /// that frames may wait for.
    pub(super) fn check_members(&mut self) -> bool {
        for at in 0..self.members.len() {
            if !self.members[at].listed {
                self.members[at].probe = None;
                continue;
            }
            let Some(mut probe) = self.members[at].probe.take() else {
                if self.next_check(at).is_some_and(|due| self.now >= due) {
                    self.members[at].checked = self.now;
                    match self.probe(at) {
                        Ok(probe) => self.members[at].probe = Some(probe),
                        Err(error) => self.fails(at, error.to_string()),
                    }
                }
                continue;
            };
            let limits = self.config.limits;
            match probe.poll() {
                Checked::Waits if !probe.is_connected() && self.now > probe.since + limits.connect_time => {
                    self.fails(at, "it does not accept connections".into());
                }
                Checked::Waits if self.now > probe.since + limits.answer_time => {
                    self.fails(at, format!("it did not answer a check for {}", limits.answer_time));
                }
                Checked::Waits => self.members[at].probe = Some(probe),
                Checked::Passed => {
                    probe.stream.finish();
                    if let Health::Down(_) = self.members[at].health {
                        let name = &self.members[at].spec.name;
                        self.events.info("member-up", format_args!("member {name} is up"));
                    }
                    self.set_health(at, Health::Up);
                }
                Checked::Failed(why) => self.fails(at, why),
            }
        }
        (0..self.members.len()).any(|at| self.candidates[at].up && self.is_reachable(at))
    }

    /// The time of a member's next check, if there is one.
    fn next_check(&self, at: usize) -> Option<Time> {
        let member = &self.members[at];
        match member.health {
            Health::Down(since) => Some(since.max(member.checked) + self.pause(at)),
            Health::Up => self.config.health.as_ref().map(|health| member.checked + health.every),
        }
    }

    /// Records that a check of a member failed.
    fn fails(&mut self, at: usize, why: String) {
        if let Health::Down(_) = self.members[at].health {
            // One more failure in a row: the pause doubles.
            self.members[at].health = Health::Up;
        }
        self.is_down(at, why);
    }

    fn probe(&self, at: usize) -> std::io::Result<Probe> {
        let config = &self.config;
        let frame = config.health.as_ref().and_then(|health| health.send.as_ref()).map(|frame| {
            let mut bytes = Queue::default();
            if config.upstream.proxy {
                let addresses = Addresses::Unspecified;
                let local =
                    Builder::with_addresses(Version::Two | Command::Local, Protocol::Unspecified, addresses);
                bytes.push(&local.build().unwrap_or_default());
            }
            bytes.push(frame);
            bytes
        });
        let framer = Framer::new(config.framing, config.limits.frame);
        Ok(Probe { stream: self.dial(at)?, since: self.now, frame, framer, got: Queue::default() })
    }
}

impl Probe {
    fn is_connected(&mut self) -> bool {
        self.stream.socket().peer_addr().is_ok()
    }

    fn poll(&mut self) -> Checked {
        match self.stream.socket().take_error() {
            Ok(None) if self.is_connected() => {}
            Ok(None) => return Checked::Waits,
            Ok(Some(error)) | Err(error) => return Checked::Failed(format!("cannot connect to it: {error}")),
        }
        let Some(frame) = &mut self.frame else { return Checked::Passed };
        if !frame.is_empty() {
            match self.stream.write(&[IoSlice::new(frame.as_slice())]) {
                Ok(len) => frame.consume(len),
                Err(error) => return Checked::Failed(error.to_string()),
            }
        }
        let mut bytes = [0; 4096];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(Got::Bytes { len, .. }) => self.got.push(&bytes[..len]),
                Ok(Got::Nothing) => return Checked::Waits,
                Ok(Got::End) => return Checked::Failed("it closed the connection of a check".into()),
                Err(error) => return Checked::Failed(error.to_string()),
            }
            let answer = self.got.as_slice();
            match self.framer.next(answer) {
                Ok(Some(_)) if answer.starts_with(b"-LOADING") => {
                    return Checked::Failed("it is loading its data".into());
                }
                Ok(Some(_)) => return Checked::Passed,
                Ok(None) => {}
                Err(error) => return Checked::Failed(error.to_string()),
            }
        }
    }
}
