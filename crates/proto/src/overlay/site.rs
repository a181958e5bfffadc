//! A daemon as an app: its links are connections, its clients are senders with a demand.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tollway_law::Time;

use super::agenda::Agenda;
use super::frame::{HEADER, PLACE};
use super::wire::{Decoder, Encoder, SharedValues};
use super::{
    ClientId, Config, Daemon, DaemonId, Event, Frame, Interval, LinkConfig, Measured, PortId, ProtocolError,
    Purchase, SetId, TenantConfig,
};
use crate::app::{App, Connections, MessagePort};
use crate::transport;

/// A daemon, the connections to its neighbours, and the senders and receivers beside it.
///
/// The app's port k is the connection of [`SiteConfig::links`] k. A connection is given a frame
/// only while it has nothing unsent, so that messages wait in the daemon, where their backlog has a
/// price.
///
/// A link on which nothing was heard for 4 T_max is closed and opened again; its connection stays.
/// A message of one zero byte tells the other end.
#[derive(Debug)]
pub struct Site {
    daemon: Daemon<Bytes>,
    me: DaemonId,
    links: Vec<Link>,
    by_port: BTreeMap<PortId, u32>,
    /// Links with a frame to send that the engine does not expect.
    ready: VecDeque<MessagePort>,
    senders: Vec<Sender>,
    by_client: HashMap<ClientId, usize>,
    /// Senders by the group that they send to.
    by_group: BTreeMap<Arc<[u8]>, Vec<usize>>,
    agenda: Agenda<Act>,
    /// The next look at what connections have received.
    listens: Time,
    random: Pcg64Mcg,
    /// By sender, the number of its next message.
    expected: HashMap<u32, u64>,
    received: u64,
    wrong: u64,
    views: u64,
    unordered: u64,
    agreed: u64,
}

/// How a site is set up.
#[derive(Clone, Debug)]
pub struct SiteConfig {
    /// Its daemon.
    pub daemon: Config,
    /// The links, by port of the app.
    pub links: Vec<LinkConfig>,
    /// Groups that receivers here belong to.
    pub groups: Vec<Arc<[u8]>>,
    /// Groups in whose order receivers or senders here take part.
    pub ordered: Vec<Arc<[u8]>>,
    /// Purses.
    pub tenants: Vec<TenantConfig>,
    /// Senders.
    pub senders: Vec<SenderConfig>,
    /// When the measurement of queues and prices begins.
    pub measure_from: Time,
    /// What chance is drawn from.
    pub seed: u64,
    /// Link states and memberships that sites of one process have in common.
    pub pool: SharedValues,
}

/// A sender to one group.
#[derive(Clone, Debug)]
pub struct SenderConfig {
    /// Its number in the overlay, which its messages carry.
    pub number: u32,
    /// The group.
    pub group: Arc<[u8]>,
    /// It sends to the group in order: the group is one of [`SiteConfig::ordered`].
    pub ordered: bool,
    /// Its purse, as an index into [`SiteConfig::tenants`].
    pub tenant: usize,
    /// Bytes of a message between daemons, their header included. The content has 12 at least.
    pub bytes: usize,
    /// When it begins.
    pub start: Time,
    /// When it ends; [`Time::NEVER`] if it does not.
    pub stop: Time,
    /// When it has a message to send.
    pub demand: ArrivalProcess,
    /// It has messages for the first span, none for the second, and so on.
    pub on_off: Option<(Time, Time)>,
}

/// The arrivals of messages at a sender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ArrivalProcess {
    /// Always.
    Endless,
    /// Every so often.
    Every(Time),
    /// By a Poisson process.
    Poisson {
        /// Mean messages a second.
        per_sec: f64,
    },
}

/// What a sender has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Messages that its daemon has accepted.
    pub messages: u64,
    /// Messages that it has and its daemon has not accepted; `None` without end.
    pub waiting: Option<u64>,
}

#[derive(Debug)]
struct Link {
    config: LinkConfig,
    /// The daemon's port; `None` once the connection is of no use.
    port: Option<PortId>,
    /// The peer has greeted since the port was opened.
    greeted: bool,
    /// The peer has to be told that the port was opened again.
    reopened: bool,
    /// Segments that its connection had received when it was last looked at.
    received: u64,
    encoder: Encoder,
    decoder: Decoder,
}

#[derive(Debug)]
struct Sender {
    config: SenderConfig,
    client: ClientId,
    /// The group's members elsewhere; `None` if there are none.
    set: Option<SetId>,
    members: Vec<DaemonId>,
    /// Between its start and its stop.
    runs: bool,
    /// It has new messages: it runs, and does not pause.
    active: bool,
    /// Its purchase waits.
    buying: bool,
    pending: u64,
    sent: u64,
}

/// What is due at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    /// The measurement begins.
    Measure,
    Start(usize),
    Stop(usize),
    Arrive(usize),
    On(usize),
    Off(usize),
}

impl Site {
    /// A site whose connections are about to open.
    pub fn new(config: SiteConfig) -> Site {
        let now = Time::ZERO;
        let mut random = Pcg64Mcg::seed_from_u64(config.seed);
        let mut daemon = Daemon::new(now, config.daemon, random.random());
        let mut by_port = BTreeMap::new();
        let link = |(at, link): (usize, LinkConfig)| {
            let port = daemon.open(now, link);
            by_port.insert(port, at as u32);
            let (encoder, decoder) = (Encoder::new(), Decoder::sharing(config.pool.clone()));
            Link {
                config: link,
                port: Some(port),
                greeted: false,
                reopened: false,
                received: 0,
                encoder,
                decoder,
            }
        };
        let links = config.links.iter().copied().enumerate().map(link).collect();
        for group in &config.groups {
            daemon.join(group);
        }
        for group in &config.ordered {
            daemon.join_ordered(now, group);
        }
        let tenants: Vec<_> = config.tenants.iter().map(|&tenant| daemon.add_tenant(now, tenant)).collect();
        let mut agenda = Agenda::new();
        agenda.set(Act::Measure, config.measure_from);
        let (mut senders, mut by_group) = (Vec::new(), BTreeMap::<_, Vec<usize>>::new());
        let mut by_client = HashMap::new();
        for (at, config) in config.senders.into_iter().enumerate() {
            let client = daemon.add_client(now, tenants[config.tenant]);
            agenda.set(Act::Start(at), config.start);
            by_group.entry(config.group.clone()).or_default().push(at);
            by_client.insert(client, at);
            senders.push(Sender {
                config,
                client,
                set: None,
                members: Vec::new(),
                runs: false,
                active: false,
                buying: false,
                pending: 0,
                sent: 0,
            });
        }
        let mut site = Site {
            me: daemon.incarnation().daemon,
            daemon,
            links,
            by_port,
            ready: VecDeque::new(),
            senders,
            by_client,
            by_group,
            agenda,
            listens: now,
            random,
            expected: HashMap::new(),
            received: 0,
            wrong: 0,
            views: 0,
            unordered: 0,
            agreed: 0,
        };
        site.pump(now);
        site
    }

    /// The daemon.
    pub fn daemon(&self) -> &Daemon<Bytes> {
        &self.daemon
    }

    /// The port of link `at` at the daemon, if its connection is of use.
    pub fn port(&self, at: usize) -> Option<PortId> {
        self.links[at].port
    }

    /// The measurement of link `at`.
    pub fn measured(&self, now: Time, at: usize) -> Option<Measured> {
        self.daemon.measured(now, self.links[at].port?)
    }

    /// Ends an interval of the measurement of link `at`.
    pub fn end_interval(&mut self, now: Time, at: usize) -> Option<Interval> {
        self.daemon.end_interval(now, self.links[at].port?)
    }

    /// What the sender in place `at` has done.
    pub fn sent(&self, at: usize) -> Sent {
        let sender = &self.senders[at];
        let endless = sender.config.demand == ArrivalProcess::Endless;
        Sent { messages: sender.sent, waiting: (!endless).then_some(sender.pending) }
    }

    /// Messages received here, and those of them that came twice or out of order.
    pub fn received(&self) -> (u64, u64) {
        (self.received, self.wrong)
    }

    /// Views of ordered groups entered, messages to such groups that came back without a place, and
    /// a digest of the messages with a place received here in their order.
    pub fn ordered(&self) -> (u64, u64, u64) {
        (self.views, self.unordered, self.agreed)
    }

    /// Tells the daemon on which links something has come. Behind a lost packet that is nothing it
    /// can read, for as long as the queues on the way are deep.
    fn listen(&mut self, now: Time, connections: &mut dyn Connections) {
        self.listens = now.saturating_add(Time(self.daemon.silence().0 / LISTENS));
        for (at, link) in self.links.iter_mut().enumerate() {
            let Some(connection) = connections.connection(MessagePort(at as u32)) else { continue };
            let received = connection.stats().segments_received;
            if std::mem::replace(&mut link.received, received) != received
                && let Some(port) = link.port
            {
                self.daemon.hear(now, port);
            }
        }
    }

    /// Closes the daemon's port and opens it again, on the same connection.
    fn reopen(&mut self, now: Time, at: usize, tell: bool) {
        let link = &mut self.links[at];
        let Some(port) = link.port.take() else { return };
        self.by_port.remove(&port);
        self.daemon.close(now, port);
        let port = self.daemon.open(now, link.config);
        (link.port, link.greeted, link.reopened) = (Some(port), false, tell);
        self.by_port.insert(port, at as u32);
    }

    /// The connection is of no use any more.
    fn give_up(&mut self, now: Time, at: usize) {
        if let Some(port) = self.links[at].port.take() {
            self.by_port.remove(&port);
            self.daemon.close(now, port);
        }
    }

    fn take(&mut self, now: Time, at: usize, message: &Bytes) {
        if message[..] == REOPENED {
            if self.links[at].greeted {
                self.reopen(now, at, false);
            }
            return;
        }
        let link = &mut self.links[at];
        let Some(port) = link.port else { return };
        let Ok(Some((frame, _))) = link.decoder.decode(message) else {
            self.give_up(now, at);
            return;
        };
        let greeting = matches!(frame, Frame::Hello(_));
        match self.daemon.handle_message(now, port, frame.map_body(|range| message.slice(range))) {
            Ok(()) => self.links[at].greeted |= greeting,
            // It was on its way when this end was opened again.
            Err(ProtocolError::NoHello) => {}
            Err(_) => self.give_up(now, at),
        }
    }

    /// Takes what the daemon has for others.
    fn pump(&mut self, now: Time) {
        loop {
            while let Some(delivery) = self.daemon.poll_delivery() {
                self.deliver(&delivery.body, delivery.place.is_some());
            }
            while self.daemon.poll_unordered().is_some() {
                self.unordered += 1;
            }
            // They are counted as expired.
            while self.daemon.poll_undelivered().is_some() {}
            let Some(event) = self.daemon.poll_event() else { return };
            match event {
                Event::Sendable(port) => {
                    self.ready.extend(self.by_port.get(&port).map(|&at| MessagePort(at)));
                }
                Event::Bought(client) => {
                    if let Some(&at) = self.by_client.get(&client) {
                        self.senders[at].buying = false;
                        if self.send(now, at) {
                            self.offer(now, at);
                        }
                    }
                }
                Event::Membership { group, .. } => self.regroup(now, &group, None),
                Event::View { group, members, .. } => {
                    self.views += 1;
                    self.regroup(now, &group, Some(&members));
                }
                Event::Reachable { up: true, .. } => {
                    (0..self.senders.len()).for_each(|at| self.offer(now, at));
                }
                Event::Silent(port) => {
                    if let Some(&at) = self.by_port.get(&port) {
                        self.reopen(now, at as usize, true);
                    }
                }
                Event::Reachable { .. } | Event::Duplicate(_) => {}
            }
        }
    }

    fn deliver(&mut self, body: &Bytes, placed: bool) {
        self.received += 1;
        let (Some(&sender), Some(&number)) =
            (body.first_chunk(), body.get(4..).and_then(<[u8]>::first_chunk))
        else {
            self.wrong += 1;
            return;
        };
        let (sender, number) = (u32::from_be_bytes(sender), u64::from_be_bytes(number));
        let expected = self.expected.entry(sender).or_default();
        self.wrong += u64::from(number < *expected);
        *expected = number.saturating_add(1).max(*expected);
        if placed {
            let next = self.agreed.rotate_left(5) ^ u64::from(sender) << 40 ^ number;
            self.agreed = next.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
    }

    /// The members of a group have changed, or those of an ordered one's `view`.
    fn regroup(&mut self, now: Time, group: &Arc<[u8]>, view: Option<&[DaemonId]>) {
        let Some(senders) = self.by_group.get(group).cloned() else { return };
        let me = self.me;
        let of = |members: &mut dyn Iterator<Item = DaemonId>| members.filter(|&id| id != me).collect();
        let members: Vec<DaemonId> = match view {
            Some(view) => of(&mut view.iter().copied()),
            None => of(&mut self.daemon.members(group)),
        };
        let set = match view {
            _ if members.is_empty() => None,
            Some(_) => self.daemon.ordered_set(group),
            None => Some(self.daemon.set(&members)),
        };
        for at in senders {
            if self.senders[at].config.ordered != view.is_some() {
                continue;
            }
            let sender = &mut self.senders[at];
            (sender.set, sender.members) = (set, members.clone());
            let (client, buying) = (sender.client, sender.buying);
            match set.filter(|_| buying) {
                // The purchase that waits is for the members before: this one takes its place.
                Some(set) => {
                    self.daemon.buy(now, client, set, &[], self.content(at));
                }
                None => self.offer(now, at),
            }
        }
    }

    /// Buys and sends until a purchase waits or nothing is left.
    fn offer(&mut self, now: Time, at: usize) {
        loop {
            let sender = &self.senders[at];
            let endless = sender.config.demand == ArrivalProcess::Endless;
            let wants = sender.runs && if endless { sender.active } else { sender.pending > 0 };
            let reached = || sender.members.iter().any(|&member| self.daemon.reaches(member));
            let Some(set) = sender.set.filter(|_| wants && !sender.buying && reached()) else { return };
            let content = self.content(at);
            let sender = &mut self.senders[at];
            if self.daemon.buy(now, sender.client, set, &[], content) == Purchase::Waiting {
                sender.buying = true;
                return;
            }
            if !self.send(now, at) {
                return;
            }
        }
    }

    /// Bytes of a message without the daemon's header.
    fn content(&self, at: usize) -> usize {
        let sender = &self.senders[at];
        let place = if sender.config.ordered { PLACE + sender.config.group.len() } else { 0 };
        sender.config.bytes.saturating_sub(HEADER + sender.members.len() + place).max(STAMP)
    }

    /// Sends a message that is paid; false while an ordered group is between two views.
    fn send(&mut self, now: Time, at: usize) -> bool {
        let mut body = vec![0; self.content(at)];
        let sender = &mut self.senders[at];
        let (client, Some(set)) = (sender.client, sender.set) else { return false };
        body[..4].copy_from_slice(&sender.config.number.to_be_bytes());
        body[4..STAMP].copy_from_slice(&sender.sent.to_be_bytes());
        if !sender.config.ordered {
            self.daemon.send(now, client, set, body.into());
        } else if !self.daemon.submit(now, client, &sender.config.group, body.into()) {
            sender.set = None;
            return false;
        }
        sender.sent += 1;
        sender.pending = sender.pending.saturating_sub(1);
        true
    }

    fn act(&mut self, now: Time, act: Act) {
        match act {
            Act::Measure => self.daemon.measure(now),
            Act::Start(at) => {
                self.agenda.set(Act::Stop(at), self.senders[at].config.stop);
                self.senders[at].runs = true;
                self.switch(now, at, true);
                self.arrival(now, at);
            }
            Act::Stop(at) => {
                self.senders[at].runs = false;
                self.daemon.remove_client(self.senders[at].client);
                [Act::Arrive(at), Act::On(at), Act::Off(at)]
                    .into_iter()
                    .for_each(|act| self.agenda.clear(act));
            }
            Act::On(at) => self.switch(now, at, true),
            Act::Off(at) => self.switch(now, at, false),
            Act::Arrive(at) => {
                let sender = &mut self.senders[at];
                sender.pending += u64::from(sender.active);
                self.arrival(now, at);
                self.offer(now, at);
            }
        }
    }

    /// A sender's messages begin or pause.
    fn switch(&mut self, now: Time, at: usize, on: bool) {
        let sender = &mut self.senders[at];
        sender.active = on;
        if let Some((lasts, pauses)) = sender.config.on_off {
            let (act, span) = if on { (Act::Off(at), lasts) } else { (Act::On(at), pauses) };
            self.agenda.set(act, now.saturating_add(span));
        }
        self.offer(now, at);
    }

    fn arrival(&mut self, now: Time, at: usize) {
        let gap = match self.senders[at].config.demand {
            ArrivalProcess::Endless => return,
            ArrivalProcess::Every(gap) => gap,
            ArrivalProcess::Poisson { per_sec } => {
                let unit: f64 = self.random.random();
                Time::from_secs_f64(-libm::log(1.0 - unit) / per_sec)
            }
        };
        self.agenda.set(Act::Arrive(at), now.saturating_add(gap.max(Time(1))));
    }
}

impl App for Site {
    fn handle_message(&mut self, now: Time, port: MessagePort, message: Bytes) {
        self.take(now, port.0 as usize, &message);
        self.pump(now);
    }

    fn handle_event(&mut self, now: Time, port: MessagePort, event: transport::Event) {
        if matches!(event, transport::Event::Reset | transport::Event::PeerFinished) {
            self.give_up(now, port.0 as usize);
            self.pump(now);
        }
    }

    fn poll_message(&mut self, now: Time, port: MessagePort, unsent: u64) -> Option<Bytes> {
        if unsent > 0 {
            return None;
        }
        let link = self.links.get_mut(port.0 as usize)?;
        if std::mem::take(&mut link.reopened) {
            return Some(Bytes::from_static(&REOPENED));
        }
        let frame = self.daemon.poll_message(now, link.port?)?;
        let mut message = Vec::with_capacity(frame.size() + SLACK);
        link.encoder.encode(&frame, &mut message);
        message.extend_from_slice(frame.body().map_or(&[], |body| body));
        Some(message.into())
    }

    fn poll_port(&mut self) -> Option<MessagePort> {
        self.ready.pop_front()
    }

    fn handle_timeout(&mut self, now: Time, connections: &mut dyn Connections) {
        if now >= self.listens {
            self.listen(now, connections);
        }
        while let Some(act) = self.agenda.pop(now) {
            self.act(now, act);
        }
        if self.daemon.poll_timeout() <= now {
            self.daemon.handle_timeout(now);
        }
        self.pump(now);
    }

    fn poll_timeout(&self) -> Time {
        self.agenda.next().min(self.daemon.poll_timeout())
    }
}

/// The message that tells a peer that the sending end of a link was closed and opened again.
const REOPENED: [u8; 1] = [0];

/// Bytes of the numbers of a sender and of a message at the begin of each content.
const STAMP: usize = 12;

/// Looks at connections in the time after which a link is silent.
const LISTENS: u64 = 16;

/// Room for what defines a destination set.
const SLACK: usize = 64;
