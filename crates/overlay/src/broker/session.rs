//! The broker's state of a client's connection and its subscriptions.

use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;

use foldhash::fast::RandomState;
use tollway_law::Time;
use tollway_proto::overlay::ClientId;

use super::out::Outgoing;
use super::route::{Interest, Route};
use super::spooled::Spooled;
use crate::rules::Slow;

/// A client's connection.
#[derive(Debug)]
pub(crate) struct ClientSession {
    /// The number in the client's `INFO`.
    pub(crate) number: u64,
    /// The tenant's index, once the client is admitted.
    pub(crate) tenant: Option<usize>,
    /// The tenant that the client's certificate names.
    pub(crate) certified: Option<String>,
    pub(crate) verbose: bool,
    pub(crate) echo: bool,
    pub(crate) headers: bool,
    pub(crate) no_responders: bool,
    /// The client's name.
    pub(crate) name: String,
    pub(crate) address: String,
    /// Keys of subscriptions, by the client's subscription identifiers.
    pub(crate) subs: HashMap<Box<[u8]>, usize, RandomState>,
    /// Keys of its kept subscriptions, by the client's subscription identifiers.
    pub(crate) kept: HashMap<Box<[u8]>, usize, RandomState>,
    /// `PING`s without answer: the kept subscription whose messages each confirms.
    pub(crate) pinged: VecDeque<Option<usize>>,
    pub(super) out: Outgoing,
    /// Its spooled messages.
    pub(super) spooled: Spooled,
    /// True while the session is in the broker's `dirty` list.
    pub(crate) dirty: bool,
    /// True if its output exceeds the buffer: its senders wait, or its messages are spooled or
    /// dropped.
    pub(crate) congested: bool,
    /// True if its last operation got an answer.
    pub(crate) replied: bool,
    /// Sessions that wait until this one has sent its output.
    pub(crate) waiters: VecDeque<usize>,
    /// The reason why its input is not read.
    pub(crate) blocked: Option<Block>,
    /// The number of its last published message, among all of the site's messages.
    pub(crate) turn: u64,
    /// Its account with the daemon, once it has sent to other sites.
    pub(crate) buyer: Option<ClientId>,
    /// True if its pending purchase has been paid.
    pub(crate) paid: bool,
    /// Ordered subjects to which it has published.
    pub(crate) orders: HashSet<Box<[u8]>, RandomState>,
    /// True while the session is in the broker's `lagging` list.
    pub(crate) lagging: bool,
    /// Bytes that its connection has accepted.
    pub(crate) taken: u64,
    /// The last time its output made progress or was empty.
    pub(crate) taken_at: Time,
    /// The time of its last input.
    pub(crate) heard_at: Time,
    pub(crate) pings: u32,
    pub(crate) opened_at: Time,
    /// The reason for closing it.
    pub(crate) closing: Option<String>,
    /// The last subject to which it published, and its route.
    pub(crate) last: Option<(Box<[u8]>, Rc<Route>)>,
    pub(crate) published: u64,
    pub(crate) delivered: u64,
    pub(crate) dropped: u64,
}

/// The reason why a publisher's input is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    /// A receiver here, by its session's key.
    Receiver(usize),
    /// The price of links to other sites.
    Price,
    /// An ordered subject's next view.
    View,
    /// Its own output, which it does not read.
    Output,
}

impl ClientSession {
    pub(crate) fn new(now: Time, number: u64, address: String) -> ClientSession {
        ClientSession {
            number,
            tenant: None,
            certified: None,
            verbose: false,
            echo: true,
            headers: false,
            no_responders: false,
            name: String::new(),
            address,
            subs: HashMap::default(),
            kept: HashMap::default(),
            pinged: VecDeque::new(),
            out: Outgoing::default(),
            spooled: Spooled::default(),
            dirty: false,
            congested: false,
            replied: false,
            waiters: VecDeque::new(),
            blocked: None,
            turn: 0,
            buyer: None,
            paid: false,
            orders: HashSet::default(),
            lagging: false,
            taken: 0,
            taken_at: now,
            heard_at: now,
            pings: 0,
            opened_at: now,
            closing: None,
            last: None,
            published: 0,
            delivered: 0,
            dropped: 0,
        }
    }
}

/// A subscription.
#[derive(Debug)]
pub(crate) struct Subscription {
    /// Its session's key; none for a kept subscription.
    pub(crate) session: usize,
    /// The key of the kept subscription that it stands for.
    pub(crate) kept: Option<usize>,
    pub(crate) sid: Box<[u8]>,
    pub(crate) pattern: Box<[u8]>,
    pub(crate) interest: Interest,
    pub(crate) slow: Slow,
    /// Messages delivered, and the number after which the subscription ends.
    pub(crate) delivered: u64,
    pub(crate) max: Option<u64>,
}
