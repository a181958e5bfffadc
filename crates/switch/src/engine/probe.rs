//! A check of a member: a connection and, where one is configured, a frame and its answer.

use std::io::IoSlice;

use ppp::v2::{Addresses, Builder, Command, Protocol, Version};
use tollway_law::Time;
use tollway_proto::dispatch::Queue;
use tollway_proto::framing::Framer;

use crate::config::Config;
use crate::stream::{Got, Stream};

/// A check under way.
pub(super) struct Probe {
    pub(super) stream: Stream,
    pub(super) since: Time,
    /// Bytes to write; `None` if a connection suffices.
    frame: Option<Queue>,
    framer: Framer,
    got: Queue,
}

/// The present result of a check.
pub(super) enum Checked {
    Waits,
    Passed,
    Failed(String),
}

impl Probe {
    /// Begins a check over a connection that is being made.
    pub(super) fn new(config: &Config, stream: Stream, since: Time) -> Probe {
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
        Probe { stream, since, frame, framer, got: Queue::default() }
    }

    pub(super) fn is_connected(&mut self) -> bool {
        self.stream.socket().peer_addr().is_ok()
    }

    pub(super) fn poll(&mut self) -> Checked {
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
