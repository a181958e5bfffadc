//! Kept subscriptions, `$TOLL.keep.NAME.PATTERN`: their messages outlast the client's connection.
//!
//! A client receives a kept message at least once. After some messages the broker sends `PING`, and
//! keeps these messages until the client's `PONG`: a client answers in order, so that it has
//! received them. Messages without `PONG` go to the name's next client.

use super::Broker;
use super::envelope::Envelope;
use super::route::Interest;
use super::session::Subscription;
use super::spool::Owner;
use super::spooled::{Place, Spooled};
use crate::nats::parse::Publish;
use crate::nats::subject::is_literal;
use crate::nats::write::message_line;
use crate::rules::Slow;

/// A kept subscription.
#[derive(Debug)]
pub(super) struct Kept {
    tenant: usize,
    name: Box<[u8]>,
    pattern: Box<[u8]>,
    /// The key of its subscription.
    sub: usize,
    /// Envelopes of messages.
    pub(super) spooled: Spooled,
    /// The client, by its session, and its identifier of the subscription.
    client: Option<(usize, Box<[u8]>)>,
    /// Number of the first chunks that the client has not confirmed.
    pub(super) sent: usize,
}

/// Name and pattern of a kept subscription. `None` without the prefix; an empty name is not valid.
pub(super) fn kept_pattern(asked: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = asked.strip_prefix(b"$TOLL.keep.")?;
    let end = rest.iter().position(|&byte| byte == b'.')?;
    Some((&rest[..end], &rest[end + 1..]))
}

impl Broker {
    /// Attaches a client to the kept subscription `name`, and creates a missing one. Returns
    /// the reason if that is impossible.
    pub(super) fn keep(
        &mut self,
        key: usize,
        tenant: usize,
        (name, pattern): (&[u8], &[u8]),
        sid: &[u8],
    ) -> Result<(), String> {
        if self.rules.spool == 0 {
            return Err("this site has no `[spool]`".into());
        }
        if !is_literal(name) {
            return Err("the name is not valid".into());
        }
        let known = self.kept.iter().find(|(_, kept)| kept.tenant == tenant && *kept.name == *name);
        let at = match known.map(|(at, kept)| (at, &kept.pattern)) {
            Some((_, other)) if **other != *pattern => {
                let other = String::from_utf8_lossy(other);
                return Err(format!("the name keeps \"{other}\" until a client unsubscribes it"));
            }
            Some((at, _)) => at,
            None => {
                if self.tenants[tenant].is_full() || !self.join_group(tenant, pattern, None) {
                    return Err("maximum subscriptions exceeded".into());
                }
                self.tenants[tenant].subscriptions += 1;
                let (sub, at) = (self.subs.vacant_key(), self.kept.vacant_key());
                let interest = Interest::Local { sub, queue: None };
                self.tenants[tenant].routes.insert(pattern, interest.clone());
                self.subs.insert(Subscription {
                    session: usize::MAX,
                    kept: Some(at),
                    sid: Box::default(),
                    pattern: pattern.into(),
                    interest,
                    slow: Slow::Spool,
                    delivered: 0,
                    max: None,
                });
                let (name, pattern) = (name.into(), pattern.into());
                let spooled = Spooled::default();
                self.kept.insert(Kept { tenant, name, pattern, sub, spooled, client: None, sent: 0 })
            }
        };
        // The newer client is probably the same one, whose former connection failed.
        self.detach(at);
        self.kept[at].client = Some((key, sid.into()));
        self.sessions[key].kept.insert(sid.into(), at);
        self.pump_kept(at);
        Ok(())
    }

    /// Detaches a kept subscription from its client. Unconfirmed messages go to the next client.
    fn detach(&mut self, at: usize) {
        let kept = &mut self.kept[at];
        kept.sent = 0;
        if let Some((session, sid)) = kept.client.take()
            && let Some(session) = self.sessions.get_mut(session)
        {
            session.kept.remove(&sid);
            session.pinged.iter_mut().filter(|one| **one == Some(at)).for_each(|one| *one = None);
        }
    }

    /// Detaches all kept subscriptions of a client.
    pub(super) fn detach_all(&mut self, key: usize) {
        let all: Vec<usize> = self.sessions[key].kept.values().copied().collect();
        all.into_iter().for_each(|at| self.detach(at));
    }

    /// Ends a kept subscription, and removes its messages.
    pub(super) fn end_kept(&mut self, at: usize) {
        self.detach(at);
        let gone = self.kept.remove(at);
        self.spool.forget(gone.spooled);
        let sub = self.subs.remove(gone.sub);
        self.tenants[gone.tenant].routes.remove(&gone.pattern, &sub.interest);
        self.tenants[gone.tenant].subscriptions -= 1;
        self.leave_group(gone.tenant, &gone.pattern, None);
    }

    /// Takes a message for a kept subscription. Without room it is lost.
    pub(super) fn keep_message(&mut self, at: usize, message: &Publish<'_>) {
        let full = self.spool_is_full();
        let kept = &mut self.kept[at];
        let tenant = &mut self.tenants[kept.tenant];
        if full {
            tenant.losses.spool += 1;
            return;
        }
        tenant.delivered += 1;
        self.totals.delivered += 1;
        let before = kept.spooled.tail.len();
        Envelope::plain(*message).append(&mut kept.spooled.tail);
        let added = kept.spooled.tail.len() - before;
        self.spool.added(&mut kept.spooled, added, Owner::Kept(at), self.rules.spool);
        self.pump_kept(at);
    }

    /// Sends messages to the client of a kept subscription, up to [`WINDOW`] unconfirmed chunks.
    pub(super) fn pump_kept(&mut self, at: usize) {
        loop {
            let kept = &mut self.kept[at];
            let Some((key, sid)) = &kept.client else { return };
            let session = &mut self.sessions[*key];
            let full = session.out.len() >= self.rules.buffer;
            if kept.sent >= WINDOW || full || session.closing.is_some() {
                return;
            }
            if kept.sent == kept.spooled.chunks.len() {
                if kept.spooled.tail.is_empty() {
                    return;
                }
                kept.spooled.close_tail();
            }
            let chunk = &kept.spooled.chunks[kept.sent];
            let Place::Here(bytes) = &chunk.place else {
                return self.spool.load(&mut kept.spooled, kept.sent);
            };
            let mut rest = &bytes[..];
            while let Some(Envelope { message, .. }) = Envelope::take(&mut rest) {
                session.delivered += 1;
                let (header, framed) = match message.header {
                    Some(header) if !session.headers => (None, &message.framed()[header..]),
                    header => (header, message.framed()),
                };
                let size = framed.len()
                    + message.subject.len()
                    + sid.len()
                    + 64
                    + message.reply.map_or(0, <[u8]>::len);
                session.out.push_message(&mut self.pool, size, |out| {
                    message_line(out, message.subject, sid, message.reply, header, framed.len() - 2);
                    out.extend_from_slice(framed);
                });
            }
            kept.sent += 1;
            session.pinged.push_back(Some(at));
            let key = *key;
            self.tell(key, "PING\r\n");
            self.sessions[key].replied = false;
        }
    }

    /// Handles a client's `PONG`: it has received all before the `PING`.
    pub(super) fn ponged(&mut self, key: usize) {
        let Some(Some(at)) = self.sessions[key].pinged.pop_front() else { return };
        let kept = &mut self.kept[at];
        kept.sent -= 1;
        if let Some(chunk) = kept.spooled.chunks.pop_front() {
            kept.spooled.bytes -= chunk.len;
            self.spool.bytes -= chunk.len;
        }
        self.pump_kept(at);
    }

    /// Handles a chunk that the disk has returned, or lost.
    pub(super) fn kept_loaded(&mut self, at: usize, lost: bool) {
        let kept = &mut self.kept[at];
        kept.spooled.loading = false;
        if lost {
            let empty = |place: &Place| matches!(place, Place::Here(bytes) if bytes.is_empty());
            if let Some(first) = kept.spooled.chunks.iter().position(|chunk| empty(&chunk.place))
                && let Some(chunk) = kept.spooled.chunks.remove(first)
            {
                kept.spooled.bytes -= chunk.len;
                self.spool.bytes -= chunk.len;
                self.tenants[kept.tenant].losses.spool += chunk.messages;
            }
        }
        self.pump_kept(at);
    }

    /// Sends what waits for kept subscriptions of a client with room in its output.
    pub(super) fn pump_all(&mut self, key: usize) {
        let all: Vec<usize> = self.sessions[key].kept.values().copied().collect();
        all.into_iter().for_each(|at| self.pump_kept(at));
    }
}

/// Chunks that a client need not have confirmed.
const WINDOW: usize = 8;
