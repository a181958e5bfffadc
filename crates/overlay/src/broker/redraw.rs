//! Messages that a site will not receive: drawn again, or counted as lost.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use tollway_law::Time;
use tollway_proto::overlay::{ClientId, Daemon, DaemonId, Undelivered};

use super::Broker;
use super::envelope::{Content, Envelope, MessageBytes};
use super::route::QueueRoute;
use crate::nats::parse::Publish;

/// A site drawn for a queue group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Drawn {
    pub(super) site: DaemonId,
    /// False if no site with members is reachable: messages to this one are kept until it returns.
    pub(super) reachable: bool,
}

/// Draws a site of a queue group, preferably a reachable one. `None`: messages to none of them are
/// kept.
pub(super) fn draw_site(
    daemon: &Daemon<MessageBytes>,
    random: &mut Pcg64Mcg,
    queue: &QueueRoute,
) -> Option<Drawn> {
    let mut among = |may: &dyn Fn(DaemonId) -> bool| {
        let sites = || queue.sites.iter().copied().map(DaemonId).filter(|&site| may(site));
        let count = sites().count();
        (count > 0).then(|| sites().nth(random.random_range(0..count)))?
    };
    let drawn = |reachable| move |site| Drawn { site, reachable };
    let near = among(&|site| daemon.reaches(site)).map(drawn(true));
    near.or_else(|| among(&|site| daemon.keeps(site)).map(drawn(false)))
}

impl Broker {
    /// Draws the queue groups' messages to sites that have been unreachable for a while again.
    pub(super) fn recall(&mut self, now: Time) {
        let Broker { sites: Some(sites), tenants, by_name, .. } = self else { return };
        let due = |(since, _): &(Time, DaemonId)| now.saturating_sub(*since) >= RECALL;
        let gone: Vec<DaemonId> = sites.gone.extract_if(.., |one| due(one)).map(|(_, site)| site).collect();
        if gone.is_empty() {
            return;
        }
        let up: Vec<u32> = sites.daemon.reachable().map(|site| site.0).collect();
        for to in gone {
            // Other messages wait until the site returns, or patience ends. A request does not.
            let moves = |body: &MessageBytes| {
                let mut content = Content::decode(&body.0);
                // A message to queue groups is the only one of its content.
                let Some(envelope) = content.next() else { return false };
                let tenant = std::str::from_utf8(content.tenant).ok().and_then(|name| by_name.get(name));
                let Some(&tenant) = tenant else { return false };
                let route = tenants[tenant].routes.of(envelope.message.subject);
                envelope.queues.iter().filter(|(site, _)| *site == to.0).any(|(_, name)| {
                    let queue = route.queues.iter().find(|queue| *queue.name == **name);
                    let elsewhere = |queue: &QueueRoute| {
                        !queue.members.is_empty() || queue.sites.iter().any(|site| up.contains(site))
                    };
                    envelope.message.reply.is_some() || queue.is_some_and(elsewhere)
                })
            };
            sites.daemon.recall(to, moves);
        }
    }

    /// Handles messages that a site will not receive.
    pub(super) fn undelivered(&mut self, now: Time, lost: &Undelivered<MessageBytes>) {
        let content = Content::decode(&lost.body.0);
        let Some(tenant) = self.tenant_of(content.tenant) else { return };
        for envelope in content {
            // A message from a failed site: its sender's earlier messages are lost.
            if envelope.queues.is_empty() || lost.by.is_none() {
                self.tenants[tenant].losses.expired += 1;
                continue;
            }
            for (_, name) in envelope.queues.iter().filter(|(site, _)| *site == lost.to.0) {
                self.redraw(now, tenant, name, &envelope.message, lost.by);
            }
        }
    }

    /// Sends a message to another member of a queue group. Without one, a request gets status 503.
    pub(super) fn redraw(
        &mut self,
        now: Time,
        tenant: usize,
        name: &[u8],
        message: &Publish<'_>,
        by: Option<ClientId>,
    ) {
        let route = self.tenants[tenant].routes.of(message.subject);
        let queue = route.queues.iter().find(|queue| *queue.name == *name);
        if let Some(queue) = queue.filter(|queue| !queue.members.is_empty()) {
            let sub = self.draw(&queue.members);
            self.deliver(sub, None, message, &mut None);
            return;
        }
        let Some(sites) = &mut self.sites else { return };
        let drawn = queue.and_then(|queue| draw_site(&sites.daemon, &mut self.random, queue));
        let Some(drawn) = drawn.filter(|drawn| drawn.reachable || message.reply.is_none()) else {
            self.tenants[tenant].losses.no_destination += 1;
            if let Some(&key) = by.and_then(|by| sites.buyers.get(&by))
                && self.sessions[key].no_responders
            {
                self.say_no_responders(key, *message);
            }
            return;
        };
        let envelope = Envelope { queues: vec![(drawn.site.0, name)], message: *message };
        let content = MessageBytes::of(self.tenants[tenant].rules.name.as_bytes(), &envelope);
        let set = sites.daemon.set(&[drawn.site]);
        // The message was paid for already.
        sites.daemon.send(now, sites.own[tenant], set, content);
    }
}

/// Time for which a site is unreachable before its queue groups' messages are drawn again: a link
/// that fails may return within it.
const RECALL: Time = Time::from_millis(400);
