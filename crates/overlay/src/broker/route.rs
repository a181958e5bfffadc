//! Routes: the receivers of a subject.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

use foldhash::fast::RandomState;
use tollway_proto::overlay::SetId;

use super::kind::ORDER;
use crate::nats::subject::{is_literal, matches};
use crate::nats::trie::Trie;

/// A subscription in the trie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// A client's subscription.
    Local {
        /// Its key.
        sub: usize,
        /// Its queue group.
        queue: Option<Rc<[u8]>>,
    },
    /// Subscriptions at another site.
    Remote {
        /// The site's number.
        site: u32,
        /// Their queue group.
        queue: Option<Rc<[u8]>>,
        /// The key of their price while they are slow.
        key: u64,
    },
}

impl Interest {
    /// The queue group.
    pub(crate) fn queue(&self) -> Option<&[u8]> {
        let (Interest::Local { queue, .. } | Interest::Remote { queue, .. }) = self;
        queue.as_deref()
    }
}

/// The treatment of a subject's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Treatment {
    /// Its messages follow the route.
    Fine,
    /// The subject is not valid.
    Invalid,
    /// All subscribers receive its messages in one order.
    Ordered,
    /// The subject is reserved for the broker.
    Reserved,
    /// The subject belongs to JetStream, which is not supported.
    JetStream,
}

/// The receivers of a subject.
#[derive(Debug)]
pub(crate) struct Route {
    /// True if subscriptions have changed since.
    pub(crate) stale: Cell<bool>,
    pub(crate) verdict: Treatment,
    /// Keys of subscriptions that receive every message.
    pub(crate) plain: Vec<usize>,
    /// Queue groups: each message goes to one member of a group.
    pub(crate) queues: Vec<QueueRoute>,
    /// Sites with subscriptions, ascending.
    pub(crate) sites: Vec<u32>,
    /// Keys of the prices that receivers at other sites may have; empty without such receivers.
    pub(crate) hops: Vec<u64>,
    /// The destinations of `sites` as last computed.
    pub(crate) remote: Cell<Option<RemoteRoute>>,
}

/// The destinations of a route's messages at other sites, without those of queue groups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteRoute {
    /// The version of reachability that this is of.
    pub(crate) version: u64,
    /// Sites for which messages are kept.
    pub(crate) set: Option<SetId>,
    /// True if one of them is reachable.
    pub(crate) reachable: bool,
    /// Number of sites for which messages are not kept.
    pub(crate) expired: u64,
}

/// The members of a queue group.
#[derive(Debug)]
pub(crate) struct QueueRoute {
    pub(crate) name: Rc<[u8]>,
    /// Keys of subscriptions.
    pub(crate) members: Vec<usize>,
    /// Sites with members.
    pub(crate) sites: Vec<u32>,
}

/// A tenant's subscriptions, with a cache of recent routes.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    trie: Trie<Interest>,
    cache: HashMap<Box<[u8]>, Rc<Route>, RandomState>,
}

impl Routes {
    pub(crate) fn insert(&mut self, pattern: &[u8], interest: Interest) {
        self.forget(pattern);
        self.trie.insert(pattern, interest);
    }

    pub(crate) fn remove(&mut self, pattern: &[u8], interest: &Interest) -> bool {
        self.forget(pattern);
        self.trie.remove(pattern, interest)
    }

    /// The route of `subject`.
    pub(crate) fn of(&mut self, subject: &[u8]) -> Rc<Route> {
        if let Some(route) = self.cache.get(subject) {
            return Rc::clone(route);
        }
        let route = Rc::new(Route::find(&self.trie, subject));
        if self.cache.len() >= CACHED {
            // A cache does not help with this many subjects. Routes in use are found again.
            self.cache.drain().for_each(|(_, route)| route.stale.set(true));
        }
        self.cache.insert(subject.into(), Rc::clone(&route));
        route
    }

    fn forget(&mut self, pattern: &[u8]) {
        if is_literal(pattern) {
            if let Some(route) = self.cache.remove(pattern) {
                route.stale.set(true);
            }
            return;
        }
        self.cache.retain(|subject, route| {
            let stays = !matches(pattern, subject);
            route.stale.set(!stays);
            stays
        });
    }
}

impl Route {
    fn find(trie: &Trie<Interest>, subject: &[u8]) -> Route {
        let verdict = match subject {
            _ if !is_literal(subject) => Treatment::Invalid,
            _ if subject.starts_with(ORDER) => Treatment::Ordered,
            _ if subject.starts_with(b"$TOLL.") => Treatment::Reserved,
            _ if subject.starts_with(b"$JS.") => Treatment::JetStream,
            _ => Treatment::Fine,
        };
        let mut route = Route {
            stale: Cell::new(false),
            verdict,
            plain: Vec::new(),
            queues: Vec::new(),
            sites: Vec::new(),
            hops: Vec::new(),
            remote: Cell::new(None),
        };
        // Reserved subjects are only for this site's messages.
        if matches!(verdict, Treatment::Invalid | Treatment::JetStream) {
            return route;
        }
        trie.find(subject, &mut |interest| match interest {
            Interest::Local { sub, queue: None } => route.plain.push(*sub),
            Interest::Local { sub, queue: Some(queue) } => {
                queue_of(&mut route.queues, queue).members.push(*sub)
            }
            Interest::Remote { site, queue, key } => {
                match queue {
                    None => route.sites.push(*site),
                    Some(queue) => queue_of(&mut route.queues, queue).sites.push(*site),
                }
                route.hops.push(*key);
            }
        });
        route.hops.sort_unstable();
        route.hops.dedup();
        for sites in route.queues.iter_mut().map(|queue| &mut queue.sites).chain([&mut route.sites]) {
            sites.sort_unstable();
            sites.dedup();
        }
        route
    }
}

fn queue_of<'a>(queues: &'a mut Vec<QueueRoute>, name: &Rc<[u8]>) -> &'a mut QueueRoute {
    let at = queues.iter().position(|queue| queue.name == *name).unwrap_or_else(|| {
        queues.push(QueueRoute { name: Rc::clone(name), members: Vec::new(), sites: Vec::new() });
        queues.len() - 1
    });
    &mut queues[at]
}

/// Limit of cached routes per tenant.
const CACHED: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_lasts_until_its_subscriptions_change() {
        let mut routes = Routes::default();
        let local = |sub| Interest::Local { sub, queue: None };
        routes.insert(b"a.*", local(1));
        routes.insert(b"b", local(2));
        let (a, b) = (routes.of(b"a.x"), routes.of(b"b"));
        assert_eq!((&a.plain[..], &b.plain[..]), (&[1][..], &[2][..]));
        assert!(Rc::ptr_eq(&a, &routes.of(b"a.x")));
        routes.insert(b"a.>", local(3));
        routes.insert(b"a.x", local(3));
        assert!(a.stale.get() && !b.stale.get());
        assert_eq!(routes.of(b"a.x").plain, [3, 1, 3]);
        let queue: Rc<[u8]> = b"q"[..].into();
        routes.insert(b"b", Interest::Local { sub: 4, queue: Some(Rc::clone(&queue)) });
        assert!(b.stale.get());
        assert_eq!(routes.of(b"b").queues[0].members, [4]);
        assert!(routes.remove(b"b", &Interest::Local { sub: 4, queue: Some(queue) }));
        assert!(routes.of(b"b").queues.is_empty());
        for site in [7, 5, 7] {
            routes.insert(b"c", Interest::Remote { site, queue: None, key: 9 });
        }
        assert_eq!((&routes.of(b"c").sites[..], &routes.of(b"c").hops[..]), (&[5, 7][..], &[9][..]));
        assert_eq!(routes.of(b"$JS.API.INFO").verdict, Treatment::JetStream);
        assert_eq!(routes.of(b"a..b").verdict, Treatment::Invalid);
        for i in 0..3 * CACHED {
            routes.of(format!("a.{i}").as_bytes());
            assert!(routes.cache.len() <= CACHED);
        }
    }
}
