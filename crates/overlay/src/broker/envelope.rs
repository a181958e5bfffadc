//! The encoding of messages between sites.

use bytes::Bytes;
use tollway_proto::overlay::Body;

use crate::nats::parse::Publish;

/// A message's bytes, as the daemon carries them.
#[derive(Clone, Debug)]
pub struct MessageBytes(pub Bytes);

impl Body for MessageBytes {
    fn size(&self) -> usize {
        self.0.len()
    }

    fn empty() -> Self {
        MessageBytes(Bytes::new())
    }
}

impl MessageBytes {
    /// The content with one message.
    pub(crate) fn of(tenant: &[u8], envelope: &Envelope<'_>) -> MessageBytes {
        let mut content = begin(tenant);
        envelope.append(&mut content);
        content.into()
    }
}

impl From<Vec<u8>> for MessageBytes {
    /// Keeps no spare capacity: contents wait for acknowledgements.
    fn from(content: Vec<u8>) -> MessageBytes {
        MessageBytes(content.into_boxed_slice().into())
    }
}

/// A content without messages. Envelopes are appended to it.
pub(crate) fn begin(tenant: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    text(&mut content, tenant);
    content
}

/// The content of a daemon's message: messages of a tenant's client, in order.
#[derive(Clone, Debug)]
pub(crate) struct Content<'a> {
    pub(crate) tenant: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Content<'a> {
    pub(crate) fn decode(mut bytes: &'a [u8]) -> Content<'a> {
        let tenant = take_text(&mut bytes).unwrap_or_default();
        Content { tenant, rest: bytes }
    }

    /// True if bytes are left; after the last envelope these are not valid.
    pub(crate) fn has_more(&self) -> bool {
        !self.rest.is_empty()
    }
}

impl<'a> Iterator for Content<'a> {
    type Item = Envelope<'a>;

    fn next(&mut self) -> Option<Envelope<'a>> {
        Envelope::take(&mut self.rest)
    }
}

/// A client's message with the fields that other sites need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Envelope<'a> {
    /// Queue groups, each with the site whose member receives the message.
    pub(crate) queues: Vec<(u32, &'a [u8])>,
    pub(crate) message: Publish<'a>,
}

impl<'a> Envelope<'a> {
    /// A message for plain subscriptions.
    pub(crate) fn plain(message: Publish<'a>) -> Envelope<'a> {
        Envelope { queues: Vec::new(), message }
    }

    /// Appends the encoded envelope to `out`.
    pub(crate) fn append(&self, out: &mut Vec<u8>) {
        let message = &self.message;
        text(out, message.subject);
        text(out, message.reply.unwrap_or_default());
        out.extend_from_slice(&message.header.map_or(u32::MAX, |header| header as u32).to_be_bytes());
        out.extend_from_slice(&(self.queues.len() as u16).to_be_bytes());
        for (site, name) in &self.queues {
            out.extend_from_slice(&site.to_be_bytes());
            text(out, name);
        }
        out.extend_from_slice(&(message.framed().len() as u32).to_be_bytes());
        out.extend_from_slice(message.framed());
    }

    /// Takes the first envelope of `bytes`. `None`, and nothing taken: `bytes` begin with none.
    pub(crate) fn take(bytes: &mut &'a [u8]) -> Option<Envelope<'a>> {
        let mut rest = *bytes;
        let subject = take_text(&mut rest)?;
        let reply = take_text(&mut rest).map(|reply| (!reply.is_empty()).then_some(reply))?;
        let header = match u32::from_be_bytes(*rest.split_off(..4)?.first_chunk()?) {
            u32::MAX => None,
            header => Some(header as usize),
        };
        let count = u16::from_be_bytes(*rest.split_off(..2)?.first_chunk()?);
        let mut queues = Vec::new();
        for _ in 0..count {
            let site = u32::from_be_bytes(*rest.split_off(..4)?.first_chunk()?);
            queues.push((site, take_text(&mut rest)?));
        }
        let len = u32::from_be_bytes(*rest.split_off(..4)?.first_chunk()?) as usize;
        let framed = rest.split_off(..len)?;
        let sound = framed.ends_with(b"\r\n") && header.is_none_or(|header| header <= len - 2);
        sound.then(|| {
            *bytes = rest;
            Envelope { queues, message: Publish::of(subject, reply, header, framed) }
        })
    }
}

fn text(out: &mut Vec<u8>, text: &[u8]) {
    // All texts come from protocol lines, which are shorter than 64 KiB.
    out.extend_from_slice(&(text.len() as u16).to_be_bytes());
    out.extend_from_slice(text);
}

fn take_text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = u16::from_be_bytes(*rest.split_off(..2)?.first_chunk()?);
    rest.split_off(..usize::from(len))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn envelopes_arrive_as_they_left(
            bodies in proptest::collection::vec(any::<Vec<u8>>(), 1..4),
            reply in proptest::option::of("[a-z]{1,9}"), headed: bool,
            queues in proptest::collection::vec((any::<u32>(), "[a-z]{1,9}"), 0..4), cut: usize,
        ) {
            let framed: Vec<Vec<u8>> = bodies.iter().map(|body| [body, &b"\r\n"[..]].concat()).collect();
            let reply = reply.as_deref().map(str::as_bytes);
            let envelopes = framed.iter().map(|framed| Envelope {
                queues: queues.iter().map(|(site, name)| (*site, name.as_bytes())).collect(),
                message: Publish::of(b"a.b", reply, headed.then_some(framed.len() / 3), framed),
            });
            let envelopes: Vec<Envelope<'_>> = envelopes.collect();
            let mut bytes = begin(b"plant");
            envelopes.iter().for_each(|envelope| envelope.append(&mut bytes));
            let mut content = Content::decode(&bytes);
            prop_assert_eq!(content.tenant, b"plant");
            prop_assert_eq!(content.by_ref().collect::<Vec<_>>(), &envelopes[..]);
            prop_assert!(!content.has_more());
            // Envelopes before a cut are taken. Nothing panics.
            prop_assert!(Content::decode(&bytes[..cut % bytes.len()]).count() < envelopes.len());
        }

        #[test]
        fn any_bytes_are_envelopes_or_none(bytes: Vec<u8>) {
            for envelope in Content::decode(&bytes) {
                let mut again = Vec::new();
                envelope.append(&mut again);
                prop_assert_eq!(Envelope::take(&mut &again[..]), Some(envelope));
            }
        }
    }
}
