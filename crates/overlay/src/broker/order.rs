//! Subjects with one order of messages for all subscribers: `$TOLL.order.SUBJECT`.
//!
//! Each is an ordered group of the sites that subscribe or publish to it. `$TOLL.view.SUBJECT`
//! receives the sites of each view. `$TOLL.lost.SUBJECT` receives the messages that lost their
//! place.

use std::sync::Arc;

use bytes::Bytes;
use tollway_law::Time;
use tollway_proto::overlay::{DaemonId, OrderPlace};

use super::Broker;
use super::envelope::{Content, Envelope, MessageBytes};
use super::kind::{LOST, ORDER, VIEW};
use super::route::Route;
use super::session::{Block, ClientSession};
use super::sites::{group, parts};
use crate::nats::parse::Publish;

impl Broker {
    /// Publishes a message to a subject with an order. Returns false if the client is blocked.
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
            // A single site has one order and no views.
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
        let content = MessageBytes::of(name.as_bytes(), &Envelope::plain(*message));
        if let (Some(sites), Some(buyer)) = (&mut self.sites, self.sessions[key].buyer) {
            sites.batch.send(now, &mut sites.daemon);
            sites.daemon.submit(now, buyer, &group, content);
        }
        true
    }

    /// Delivers an ordered message to its subscribers here, with the header `Toll-Order`.
    pub(super) fn arrived_in_order(&mut self, bytes: &Bytes, place: &OrderPlace) {
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

    /// Delivers a message without a place to the subscribers of `$TOLL.lost.SUBJECT` here.
    pub(super) fn came_back(&mut self, bytes: &Bytes) {
        let Some((tenant, message)) = self.opened(bytes) else { return };
        let Some(rest) = message.subject.strip_prefix(ORDER) else { return };
        self.unordered += 1;
        let subject = [LOST, rest].concat();
        let message = Publish::of(&subject, message.reply, message.header, message.framed());
        self.deliver_exactly(tenant, &message, &mut None);
    }

    /// Delivers a new view of an ordered subject, and unblocks publishers that wait for a view.
    pub(super) fn viewed(&mut self, group: &Arc<[u8]>, view: u64, members: &[DaemonId]) {
        let Some((tenant, subject, _)) = parts(group) else { return };
        let Some(rest) = subject.strip_prefix(ORDER) else { return };
        let tenant = std::str::from_utf8(tenant).ok().and_then(|name| self.by_name.get(name)).copied();
        let Some(tenant) = tenant else { return };
        let (subject, framed) = ([VIEW, rest].concat(), in_json(view, members));
        self.deliver_exactly(tenant, &Publish::of(&subject, None, None, framed.as_bytes()), &mut None);
        // Publishers that wait for another subject's view block again.
        for (key, session) in &mut self.sessions {
            if session.blocked == Some(Block::View) {
                session.blocked = None;
                self.runnable.push(key);
            }
        }
    }

    /// Delivers the current view of a subject to a new subscription.
    pub(super) fn show_view(&mut self, tenant: usize, sub: usize, pattern: &[u8]) {
        let (Some(rest), Some(sites)) = (pattern.strip_prefix(VIEW), &self.sites) else { return };
        let group = group(self.tenants[tenant].rules.name.as_bytes(), &[ORDER, rest].concat(), None);
        let Some((view, members)) = sites.daemon.view(&group) else { return };
        let framed = in_json(view, &members);
        self.deliver(sub, None, &Publish::of(pattern, None, None, framed.as_bytes()), &mut None);
    }

    /// Leaves the orders of an ended session.
    pub(super) fn leave_orders(&mut self, session: &ClientSession) {
        let (Some(sites), Some(tenant)) = (&mut self.sites, session.tenant) else { return };
        let subjects = &session.orders;
        self.tenants[tenant].subscriptions -= subjects.len();
        let name = self.tenants[tenant].rules.name.as_bytes();
        for subject in subjects {
            sites.daemon.leave_ordered(sites.now, &group(name, subject, None));
        }
    }

    /// The tenant and the first message of a content.
    fn opened<'a>(&self, bytes: &'a Bytes) -> Option<(usize, Publish<'a>)> {
        let mut content = Content::decode(bytes);
        Some((self.tenant_of(content.tenant)?, content.next()?.message))
    }

    /// Delivers only to subscriptions whose pattern equals the subject.
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
