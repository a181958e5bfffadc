//! Messages of a client that go to other sites as one.

use tollway_law::Time;
use tollway_proto::overlay::{ClientId, SetId};

use super::envelope::{Envelope, begin};
use super::sites::Sites;
use crate::nats::parse::Publish;

/// Consecutive messages of a client to the same sites. Numbers, acknowledgements and frames cost as
/// much for all of them as for one.
#[derive(Debug)]
pub(super) struct Batch {
    to: (ClientId, SetId),
    content: Vec<u8>,
}

impl Sites {
    /// Adds a message, which is paid for, to the batch of a client and its destinations.
    pub(super) fn add_to_batch(
        &mut self,
        now: Time,
        to: (ClientId, SetId),
        tenant: &[u8],
        message: Publish<'_>,
    ) {
        let fits = |batch: &Batch| batch.to == to && batch.content.len() + message.framed().len() <= BATCH;
        if !self.batch.as_ref().is_some_and(fits) {
            self.send_batch(now);
        }
        let batch = self.batch.get_or_insert_with(|| Batch { to, content: begin(tenant) });
        Envelope::plain(message).append(&mut batch.content);
        if batch.content.len() >= BATCH {
            self.send_batch(now);
        }
    }

    /// Sends the batch, if there is one. A client's other messages go after it, and no batch
    /// outlasts its client's input.
    pub(super) fn send_batch(&mut self, now: Time) {
        if let Some(Batch { to: (by, set), content }) = self.batch.take() {
            self.daemon.send(now, by, set, content.into());
        }
    }
}

/// Limit of a batch of several messages, in bytes: little beside what a link's kernel buffers.
const BATCH: usize = 8192;
