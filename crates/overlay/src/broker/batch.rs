//! Messages of a client that go to other sites as one.

use tollway_law::Time;
use tollway_proto::overlay::{ClientId, Daemon, SetId};

use super::envelope::{Envelope, MessageBytes, begin};
use crate::nats::parse::Publish;

/// Consecutive messages of a client to the same sites. Numbers, acknowledgements and frames cost as
/// much for all of them as for one.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// The client and its destinations; `None` without a message.
    to: Option<(ClientId, SetId)>,
    content: Vec<u8>,
}

impl Batch {
    /// Adds a message, which is paid for, and first sends those that it does not continue.
    pub(super) fn add(
        &mut self,
        now: Time,
        daemon: &mut Daemon<MessageBytes>,
        to: (ClientId, SetId),
        tenant: &[u8],
        message: Publish<'_>,
    ) {
        if self.to != Some(to) || self.content.len() + message.framed().len() > BATCH {
            self.send(now, daemon);
        }
        if self.to.replace(to).is_none() {
            self.content = begin(tenant);
        }
        Envelope::plain(message).append(&mut self.content);
        if self.content.len() >= BATCH {
            self.send(now, daemon);
        }
    }

    /// Sends the messages, if there are any. A client's other messages go after them, and none wait
    /// when its input has been executed.
    pub(super) fn send(&mut self, now: Time, daemon: &mut Daemon<MessageBytes>) {
        if let Some((by, set)) = self.to.take() {
            daemon.send(now, by, set, std::mem::take(&mut self.content).into());
        }
    }
}

/// Limit of a batch of several messages, in bytes: little beside what a link's kernel buffers.
const BATCH: usize = 8192;
