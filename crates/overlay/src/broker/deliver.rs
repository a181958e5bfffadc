//! Delivery of messages from a publisher to their receivers.

use std::rc::Rc;

use bytes::Bytes;
use rand::RngExt;
use tollway_law::Time;

use super::out::ChunkPool;
use super::route::{Route, Treatment};
use super::session::ClientSession;
use super::sites::{LAG, MessageDestinations};
use super::{Broker, mark};
use crate::nats::parse::Publish;
use crate::nats::write::{error_line, message_line};
use crate::rules::Slow;

impl Broker {
    /// Publishes a message. Returns false if the client is blocked.
    pub(super) fn publish(&mut self, now: Time, key: usize, tenant: usize, message: Publish<'_>) -> bool {
        let route = self.route(key, tenant, message.subject);
        match route.verdict {
            Treatment::Fine | Treatment::Ordered => {}
            verdict => {
                self.refuse(key, verdict, &message);
                return true;
            }
        }
        if self.tenants[tenant].congested > 0
            && let Some(slow) = self.slowest(&route)
        {
            self.wait_for(key, slow);
            return false;
        }
        if route.verdict == Treatment::Ordered {
            let done = self.publish_ordered(now, key, tenant, &route, &message);
            if done {
                self.count_published(key, tenant);
            }
            return done;
        }
        let bound = self.bound(&route);
        if message.reply.is_some()
            && self.sessions[key].no_responders
            && !bound.as_ref().is_some_and(MessageDestinations::is_reachable)
            && !self.is_heard(key, &route)
        {
            self.count_published(key, tenant);
            self.say_no_responders(key, message);
            return true;
        }
        let mut shared = None;
        if let Some(bound) = bound
            && !self.send_to_sites(now, key, tenant, &route, (&bound, &message))
        {
            return false;
        }
        for &sub in &route.plain {
            self.deliver(sub, Some(key), &message, &mut shared);
        }
        for queue in route.queues.iter().filter(|queue| !queue.members.is_empty()) {
            let sub = self.draw(&queue.members);
            self.deliver(sub, Some(key), &message, &mut shared);
        }
        self.count_published(key, tenant);
        true
    }

    /// True if a subscription at this site receives a client's messages.
    fn is_heard(&self, key: usize, route: &Route) -> bool {
        let mut subs = route.plain.iter().chain(route.queues.iter().flat_map(|queue| &queue.members));
        subs.any(|&sub| self.sessions[key].echo || self.subs[sub].session != key)
    }

    fn count_published(&mut self, key: usize, tenant: usize) {
        let session = &mut self.sessions[key];
        session.published += 1;
        session.turn = self.totals.published;
        self.tenants[tenant].published += 1;
        self.totals.published += 1;
    }

    fn route(&mut self, key: usize, tenant: usize, subject: &[u8]) -> Rc<Route> {
        let session = &mut self.sessions[key];
        if let Some((last, route)) = &session.last
            && **last == *subject
            && !route.stale.get()
        {
            return Rc::clone(route);
        }
        let route = self.tenants[tenant].routes.of(subject);
        session.last = Some((subject.into(), Rc::clone(&route)));
        route
    }

    /// The session for which a publisher must wait, if any.
    fn slowest(&self, route: &Route) -> Option<usize> {
        let waits = |&sub: &usize| {
            let sub = &self.subs[sub];
            let holds = match sub.slow {
                _ if sub.kept.is_some() => false,
                Slow::Price => true,
                Slow::Spool => self.spool_is_full(),
                Slow::Drop => false,
            };
            (holds && self.sessions[sub.session].congested).then_some(sub.session)
        };
        let plain = route.plain.iter().find_map(waits);
        plain.or_else(|| {
            let mut queues = route.queues.iter();
            // Another member of a queue group can receive the message.
            queues.find_map(|queue| {
                // Members at other sites are paid for.
                let all = queue.members.iter().all(|sub| waits(sub).is_some());
                if all { queue.members.first().and_then(waits) } else { None }
            })
        })
    }

    /// Draws a member of a queue group at random, preferably one that is not congested.
    pub(super) fn draw(&mut self, members: &[usize]) -> usize {
        let first = self.random.random_range(0..members.len());
        let in_turn = || members[first..].iter().chain(&members[..first]).copied();
        let ready = in_turn().find(|&sub| !self.sessions[self.subs[sub].session].congested);
        ready.unwrap_or(members[first])
    }

    /// Delivers a message to a subscription.
    pub(super) fn deliver(
        &mut self,
        key: usize,
        from: Option<usize>,
        message: &Publish<'_>,
        shared: &mut Option<Bytes>,
    ) {
        // The previous message may have ended the subscription.
        let Some(sub) = self.subs.get_mut(key) else { return };
        if let Some(kept) = sub.kept {
            return self.keep_message(kept, message);
        }
        let to = sub.session;
        let session = &mut self.sessions[to];
        if !session.echo && from == Some(to) {
            return;
        }
        sub.delivered += 1;
        if session.congested && sub.slow == Slow::Drop {
            session.dropped += 1;
            self.totals.dropped += 1;
            if let Some(tenant) = session.tenant {
                self.tenants[tenant].dropped += 1;
            }
        } else if sub.slow == Slow::Spool && (session.congested || !session.spooled.is_empty()) {
            session.delivered += 1;
            self.totals.delivered += 1;
            if let Some(tenant) = session.tenant {
                self.tenants[tenant].delivered += 1;
            }
            let sid = sub.sid.clone();
            self.spool(to, |session, chunk| {
                let (header, framed) = readable(session, message);
                message_line(chunk, message.subject, &sid, message.reply, header, framed.len() - 2);
                chunk.extend_from_slice(framed);
            });
        } else {
            session.delivered += 1;
            self.totals.delivered += 1;
            write(session, &mut self.pool, &sub.sid, message, shared);
            mark(&mut self.dirty, to, session);
            let tenant = session.tenant;
            let full = session.out.len() >= self.rules.buffer;
            if session.out.len() > LAG && !session.lagging {
                session.lagging = true;
                self.lagging.push(to);
            }
            let over = session.out.len() > MOST_WAITING.max(2 * self.rules.buffer);
            if let Some(tenant) = tenant {
                self.tenants[tenant].delivered += 1;
            }
            if over {
                // Other sites were not notified in time that the receiver is slow, or ignored it.
                self.cut(to);
                return;
            }
            if full {
                self.set_congested(to, true);
            }
        }
        let sub = &self.subs[key];
        if sub.max.is_some_and(|max| sub.delivered >= max) {
            self.drop_subscription(key);
        }
    }

    /// Answers a request without receivers with status 503.
    pub(super) fn say_no_responders(&mut self, key: usize, request: Publish<'_>) {
        let Some(reply) = request.reply else { return };
        let framed = b"NATS/1.0 503\r\n\r\n\r\n";
        self.answer(key, &Publish::of(reply, None, Some(framed.len() - 2), framed));
    }

    /// Sends a message of the broker to those of a client's subscriptions that match its subject.
    fn answer(&mut self, key: usize, message: &Publish<'_>) {
        let Some(tenant) = self.sessions[key].tenant else { return };
        self.sessions[key].replied = true;
        let route = self.tenants[tenant].routes.of(message.subject);
        let queued = route.queues.iter().flat_map(|queue| &queue.members);
        let mine: Vec<usize> =
            route.plain.iter().chain(queued).copied().filter(|&sub| self.subs[sub].session == key).collect();
        for sub in mine {
            self.deliver(sub, None, message, &mut None);
        }
    }

    /// Answers a message to an invalid or reserved subject with an error.
    fn refuse(&mut self, key: usize, verdict: Treatment, message: &Publish<'_>) {
        let subject = String::from_utf8_lossy(message.subject);
        let why = match verdict {
            Treatment::Invalid => format!("Invalid Publish Subject: \"{subject}\""),
            Treatment::JetStream => match message.reply {
                Some(reply) => {
                    let framed = format!("{NO_JETSTREAM}\r\n");
                    return self.answer(key, &Publish::of(reply, None, None, framed.as_bytes()));
                }
                None => {
                    format!("Permissions Violation for Publish to \"{subject}\": there is no JetStream here")
                }
            },
            _ => format!("Permissions Violation for Publish to \"{subject}\""),
        };
        self.tell(key, &error_line(&why));
    }
}

/// Length of the headers, and the framed body. A client without header support gets no headers.
fn readable<'a>(session: &ClientSession, message: &Publish<'a>) -> (Option<usize>, &'a [u8]) {
    match message.header {
        Some(header) if !session.headers => (None, &message.framed()[header..]),
        header => (header, message.framed()),
    }
}

/// Appends a message to a session's output. `shared` is the message's body, once a receiver needs
/// it.
fn write(
    session: &mut ClientSession,
    pool: &mut ChunkPool,
    sid: &[u8],
    message: &Publish<'_>,
    shared: &mut Option<Bytes>,
) {
    let (header, framed) = readable(session, message);
    let line = message.subject.len() + sid.len() + message.reply.map_or(0, <[u8]>::len) + LINE;
    let put_line = |chunk: &mut Vec<u8>| {
        message_line(chunk, message.subject, sid, message.reply, header, framed.len() - 2);
    };
    if framed.len() < SHARED {
        session.out.push_message(pool, line + framed.len(), |chunk| {
            put_line(chunk);
            chunk.extend_from_slice(framed);
        });
        return;
    }
    let body = shared.get_or_insert_with(|| Bytes::copy_from_slice(message.framed()));
    session.out.push_message(pool, line, put_line);
    session.out.push_shared(body.slice(body.len() - framed.len()..), 0);
}

/// Limit of bytes that wait for a receiver, at any price.
const MOST_WAITING: usize = 64 << 20;
/// Smallest body that is shared between receivers, in bytes. Smaller ones are copied.
const SHARED: usize = 8192;
/// Upper bound of a message line's bytes besides subject, sid and reply.
const LINE: usize = 64;
/// The answer to JetStream requests, in JetStream's format.
const NO_JETSTREAM: &str = "{\"type\":\"io.nats.jetstream.api.v1.error\",\"error\":{\"code\":503,\"err_code\":10076,\
                            \"description\":\"JetStream not enabled: tollway overlay has no streams\"}}";
