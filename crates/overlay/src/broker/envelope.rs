//! The encoding of a message between sites.

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

/// A client's message with the fields that other sites need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Envelope<'a> {
    pub(crate) tenant: &'a [u8],
    /// Queue groups, each with the site whose member receives the message.
    pub(crate) queues: Vec<(u32, &'a [u8])>,
    pub(crate) message: Publish<'a>,
}

impl<'a> Envelope<'a> {
    /// Encodes the envelope as one buffer that ends with the message's framed body.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let message = &self.message;
        let names: usize = self.queues.iter().map(|(_, name)| name.len() + 6).sum();
        let reply = message.reply.map_or(0, <[u8]>::len);
        let len = self.tenant.len() + message.subject.len() + reply + names + message.framed().len() + 16;
        let mut out = Vec::with_capacity(len);
        text(&mut out, self.tenant);
        text(&mut out, message.subject);
        text(&mut out, message.reply.unwrap_or_default());
        out.extend_from_slice(&message.header.map_or(u32::MAX, |header| header as u32).to_be_bytes());
        out.extend_from_slice(&(self.queues.len() as u16).to_be_bytes());
        for (site, name) in &self.queues {
            out.extend_from_slice(&site.to_be_bytes());
            text(&mut out, name);
        }
        out.extend_from_slice(message.framed());
        out
    }

    /// Decodes an envelope; `None` if `bytes` are not one.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Envelope<'a>> {
        let mut rest = bytes;
        let tenant = take_text(&mut rest)?;
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
        let sound = rest.ends_with(b"\r\n") && header.is_none_or(|header| header <= rest.len() - 2);
        sound.then(|| Envelope { tenant, queues, message: Publish::of(subject, reply, header, rest) })
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
        fn an_envelope_arrives_as_it_left(
            body: Vec<u8>, reply in proptest::option::of("[a-z]{1,9}"), headed: bool,
            queues in proptest::collection::vec((any::<u32>(), "[a-z]{1,9}"), 0..4), cut: usize,
        ) {
            let framed = [&body[..], b"\r\n"].concat();
            let reply = reply.as_deref().map(str::as_bytes);
            let envelope = Envelope {
                tenant: b"plant",
                queues: queues.iter().map(|(site, name)| (*site, name.as_bytes())).collect(),
                message: Publish::of(b"a.b", reply, headed.then_some(body.len() / 2), &framed),
            };
            let bytes = envelope.encode();
            prop_assert_eq!(Envelope::decode(&bytes), Some(envelope));
            // A cut envelope is refused or decodes to another one. Nothing panics.
            let _ = Envelope::decode(&bytes[..cut % bytes.len()]);
        }

        #[test]
        fn any_bytes_are_an_envelope_or_none(bytes: Vec<u8>) {
            if let Some(envelope) = Envelope::decode(&bytes) {
                let again = envelope.encode();
                prop_assert_eq!(Envelope::decode(&again), Some(envelope));
            }
        }
    }
}
