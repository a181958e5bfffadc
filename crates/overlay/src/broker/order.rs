//! Subjects whose messages all subscribers have in one order: `$TOLL.order.SUBJECT`.
//!
//! Each is an ordered group of the sites that subscribe or publish to it. `$TOLL.view.SUBJECT` has
//! the sites of each view, `$TOLL.lost.SUBJECT` the messages that lost their place.

use std::sync::Arc;

use bytes::Bytes;
use tollway_law::Time;
use tollway_proto::overlay::{DaemonId, Place};

use super::Broker;
use super::envelope::Envelope;
use super::kind::{LOST, ORDER, VIEW};
use super::route::Route;
use super::session::{Block, Session};
use super::sites::{Content, group, parts};
use crate::nats::parse::Publish;

impl Broker {
    /// Publishes a message to a subject with an order; answers whether that is done. If not, the
    /// client is blocked.
    pub(super) fn publish_ordered(
        &mut self,
        now: Time,
        key: usize,
        tenant: usize,
        route: &Route,
        message: &Publish<'_>,
    ) -> bool {
        let name = self.tenants[tenant].rules.name.clone();
        let group = group(name.as_bytes(), message.subject, None);
        let Some(sites) = &mut self.sites else {
            // One site has one order without views.
            self.deliver_exactly(tenant, message, &mut None);
            return true;
        };
        sites.now = now;
        let session = &mut self.sessions[key];
        if !session.orders.contains(message.subject) {
            if self.tenants[tenant].is_full() || !sites.daemon.join_ordered(now, &group) {
                self.fail(key, "maximum subscriptions exceeded");
                return true;
            }
            session.orders.insert(message.subject.into());
            self.tenants[tenant].subscriptions += 1;
        }
        let Some(set) = sites.daemon.ordered_set(&group) else {
            session.blocked = Some(Block::View);
            return false;
        };
        if !self.pay_for(now, key, tenant, set, route, message) {
            return false;
        }
        let envelope = Envelope { tenant: name.as_bytes(), queues: Vec::new(), message: *message };
        let content = Content(envelope.encode().into());
        if let (Some(sites), Some(buyer)) = (&mut self.sites, self.sessions[key].buyer) {
            sites.daemon.submit(now, buyer, &group, content);
        }
        true
    }

    /// A message has its place: its subscribers here receive it with the header `Toll-Order`.
    pub(super) fn arrived_in_order(&mut self, bytes: &Bytes, place: &Place) {
        let Some((tenant, message)) = self.opened(bytes) else { return };
        let line = format!("Toll-Order: {}.{}\r\n", place.view, place.number);
        let (head, body) = match message.header {
            // The last line of headers is empty.
            Some(header) if header >= 2 => message.framed().split_at(header - 2),
            _ => (&b"NATS/1.0\r\n"[..], message.framed()),
        };
        let body = if message.header.is_some() { &body[2..] } else { body };
        let framed = [head, line.as_bytes(), b"\r\n", body].concat();
        let header = framed.len() - body.len();
        let message = Publish::of(message.subject, message.reply, Some(header), &framed);
        self.deliver_exactly(tenant, &message, &mut None);
    }

    /// A message to an ordered subject has no place: subscribers to `$TOLL.lost.SUBJECT` here
    /// receive it.
    pub(super) fn came_back(&mut self, bytes: &Bytes) {
        let Some((tenant, message)) = self.opened(bytes) else { return };
        let Some(rest) = message.subject.strip_prefix(ORDER) else { return };
        self.unordered += 1;
        let subject = [LOST, rest].concat();
        let message = Publish::of(&subject, message.reply, message.header, message.framed());
        self.deliver_exactly(tenant, &message, &mut None);
    }

    /// An ordered subject has another view.
    pub(super) fn viewed(&mut self, group: &Arc<[u8]>, view: u64, members: &[DaemonId]) {
        let Some((tenant, subject, _)) = parts(group) else { return };
        let Some(rest) = subject.strip_prefix(ORDER) else { return };
        let tenant = std::str::from_utf8(tenant).ok().and_then(|name| self.by_name.get(name)).copied();
        let Some(tenant) = tenant else { return };
        let (subject, framed) = ([VIEW, rest].concat(), in_json(view, members));
        self.deliver_exactly(tenant, &Publish::of(&subject, None, None, framed.as_bytes()), &mut None);
        // Those that waited for another subject's view wait again.
        for (key, session) in &mut self.sessions {
            if session.blocked == Some(Block::View) {
                session.blocked = None;
                self.runnable.push(key);
            }
        }
    }

    /// A new subscription to the views of a subject receives the present one.
    pub(super) fn show_view(&mut self, tenant: usize, sub: usize, pattern: &[u8]) {
        let (Some(rest), Some(sites)) = (pattern.strip_prefix(VIEW), &self.sites) else { return };
        let group = group(self.tenants[tenant].rules.name.as_bytes(), &[ORDER, rest].concat(), None);
        let Some((view, members)) = sites.daemon.view(&group) else { return };
        let framed = in_json(view, &members);
        self.deliver(sub, None, &Publish::of(pattern, None, None, framed.as_bytes()), &mut None);
    }

    /// A session ends: its site need not take part for it any more.
    pub(super) fn leave_orders(&mut self, session: &Session) {
        let (Some(sites), Some(tenant)) = (&mut self.sites, session.tenant) else { return };
        let subjects = &session.orders;
        self.tenants[tenant].subscriptions -= subjects.len();
        let name = self.tenants[tenant].rules.name.as_bytes();
        for subject in subjects {
            sites.daemon.leave_ordered(sites.now, &group(name, subject, None));
        }
    }

    /// The tenant and the message of an envelope.
    fn opened<'a>(&self, bytes: &'a Bytes) -> Option<(usize, Publish<'a>)> {
        let envelope = Envelope::decode(bytes)?;
        let tenant = *self.by_name.get(std::str::from_utf8(envelope.tenant).ok()?)?;
        Some((tenant, envelope.message))
    }

    /// Delivers to subscriptions of just this subject.
    fn deliver_exactly(&mut self, tenant: usize, message: &Publish<'_>, shared: &mut Option<Bytes>) {
        let route = self.tenants[tenant].routes.of(message.subject);
        for &sub in &route.plain {
            if self.subs.get(sub).is_some_and(|sub| *sub.pattern == *message.subject) {
                self.deliver(sub, None, message, shared);
            }
        }
    }
}

fn in_json(view: u64, members: &[DaemonId]) -> String {
    let sites: Vec<u32> = members.iter().map(|member| member.0).collect();
    format!("{{\"view\":{view},\"sites\":{sites:?}}}\r\n")
}
