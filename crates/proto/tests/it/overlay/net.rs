//! Daemons joined by links of fixed rate and delay, in virtual time.

#![allow(dead_code, unreachable_pub, reason = "tests and the parameter study use different parts")]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use tollway_law::{Rate, Time};
use tollway_proto::overlay::{
    Body, ClientId, Config, Daemon, DaemonId, DeliveredMessage, Epoch, Event, Frame, LinkConfig, PortId,
    Purchase, SetId, TenantConfig,
};

/// A message without bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    pub sender: u32,
    pub number: u32,
    pub size: u32,
}

impl Body for Message {
    fn size(&self) -> usize {
        self.size as usize
    }

    fn empty() -> Self {
        Message { sender: u32::MAX, number: 0, size: 0 }
    }
}

/// One direction of a link between two daemons.
#[derive(Clone, Debug)]
pub struct Link {
    pub from: usize,
    pub to: usize,
    pub rate: Rate,
    pub delay: Time,
    pub up: bool,
    /// Counts connections: what was on its way over an older one is lost.
    generation: u32,
    port: Option<PortId>,
    busy: bool,
    /// The longest queue since the last look, in messages.
    pub longest: usize,
    pub control: u64,
    pub data: u64,
}

/// A sender that always has another message.
#[derive(Clone, Copy, Debug)]
pub struct Sender {
    pub node: usize,
    pub client: ClientId,
    pub set: SetId,
    pub size: u32,
    pub sent: u32,
    pub most: u32,
}

#[derive(Debug)]
enum Step {
    Timeout(usize),
    Free { link: usize, generation: u32 },
    Arrive { link: usize, generation: u32, frame: Box<Frame<Message>> },
    Start(u32),
}

/// The network.
pub struct Net {
    pub now: Time,
    pub daemons: Vec<Option<Daemon<Message>>>,
    pub links: Vec<Link>,
    pub senders: Vec<Sender>,
    /// Deliveries in order, by node.
    pub log: Vec<Vec<DeliveredMessage<Message>>>,
    pub keep_log: bool,
    pub delivered: u64,
    /// Keeps purchases of clients that are no sender's as events.
    pub keep_bought: bool,
    /// The rate that daemons take a new link for, as a multiple of its own.
    pub guess: f64,
    pub events: Vec<(usize, Event)>,
    ports: BTreeMap<(usize, PortId), usize>,
    /// The timer each daemon is scheduled for.
    timers: Vec<Time>,
    agenda: BinaryHeap<Reverse<(Time, u64)>>,
    steps: BTreeMap<u64, Step>,
    next: u64,
    config: Config,
    seed: u64,
}

impl Net {
    pub fn new(nodes: usize, config: Config, seed: u64) -> Net {
        let mut net = Net {
            now: Time::ZERO,
            daemons: Vec::new(),
            links: Vec::new(),
            senders: Vec::new(),
            log: vec![Vec::new(); nodes],
            keep_log: true,
            delivered: 0,
            keep_bought: false,
            guess: 1.0,
            events: Vec::new(),
            ports: BTreeMap::new(),
            timers: vec![Time::NEVER; nodes],
            agenda: BinaryHeap::new(),
            steps: BTreeMap::new(),
            next: 0,
            config,
            seed,
        };
        for node in 0..nodes {
            net.daemons.push(None);
            net.start(node, 1);
        }
        net
    }

    /// Starts a daemon, which has no link yet.
    pub fn start(&mut self, node: usize, epoch: u64) {
        let config = Config { id: DaemonId(node as u32), epoch: Epoch(epoch), ..self.config };
        let seed = self.seed.wrapping_mul(0x9E37_79B9).wrapping_add(node as u64 * 1000 + epoch);
        self.daemons[node] = Some(Daemon::new(self.now, config, seed));
        self.pump(node);
    }

    /// Kills a daemon; its links go down.
    pub fn kill(&mut self, node: usize) {
        self.daemons[node] = None;
        // Another start's clients have the same numbers.
        for sender in self.senders.iter_mut().filter(|sender| sender.node == node) {
            sender.node = usize::MAX;
        }
        for link in 0..self.links.len() {
            if self.links[link].from == node {
                self.cut(link & !1);
            }
        }
    }

    /// Adds a link, both directions; its number is that of the first.
    pub fn link(&mut self, a: usize, b: usize, rate: Rate, delay: Time) -> usize {
        let number = self.links.len();
        for (from, to) in [(a, b), (b, a)] {
            self.links.push(Link {
                from,
                to,
                rate,
                delay,
                up: false,
                generation: 0,
                port: None,
                busy: false,
                longest: 0,
                control: 0,
                data: 0,
            });
        }
        self.raise(number);
        number
    }

    /// Opens a link's connection, if both daemons live.
    pub fn raise(&mut self, link: usize) {
        let (a, b) = (self.links[link].from, self.links[link].to);
        if self.links[link].up || self.daemons[a].is_none() || self.daemons[b].is_none() {
            return;
        }
        for half in [link, link ^ 1] {
            let Link { from, to, rate, .. } = self.links[half];
            let rate = Rate::from_bytes_per_sec(rate.bytes_per_sec() * self.guess);
            let config = LinkConfig { peer: DaemonId(to as u32), weight: 1, rate };
            if let Some(daemon) = &mut self.daemons[from] {
                let port = daemon.open(self.now, config);
                self.ports.insert((from, port), half);
                let entry = &mut self.links[half];
                (entry.port, entry.up, entry.busy) = (Some(port), true, false);
                entry.generation += 1;
            }
        }
        self.pump(a);
        self.pump(b);
    }

    /// Ends a link's connection: what is on its way is lost.
    pub fn cut(&mut self, link: usize) {
        for half in [link, link ^ 1] {
            let from = self.links[half].from;
            self.links[half].up = false;
            self.links[half].generation += 1;
            if let (Some(port), Some(daemon)) = (self.links[half].port.take(), &mut self.daemons[from]) {
                daemon.close(self.now, port);
                self.ports.remove(&(from, port));
            }
        }
        self.pump(self.links[link].from);
        self.pump(self.links[link].to);
    }

    /// Adds a sender, with a new tenant, that starts at an instant.
    pub fn sender(
        &mut self,
        at: Time,
        node: usize,
        to: &[usize],
        size: u32,
        most: u32,
        tenant: TenantConfig,
    ) -> u32 {
        let ids: Vec<DaemonId> = to.iter().map(|&node| DaemonId(node as u32)).collect();
        let daemon = self.daemons[node].as_mut().expect("the daemon lives");
        let tenant = daemon.add_tenant(at, tenant);
        let client = daemon.add_client(at, tenant);
        let set = daemon.set(&ids);
        self.senders.push(Sender { node, client, set, size, sent: 0, most });
        let id = self.senders.len() as u32 - 1;
        self.schedule(at, Step::Start(id));
        id
    }

    /// Runs to an instant.
    pub fn run(&mut self, until: Time) {
        while let Some(&Reverse((at, order))) = self.agenda.peek() {
            if at > until {
                break;
            }
            self.agenda.pop();
            self.now = at;
            let Some(step) = self.steps.remove(&order) else { continue };
            self.step(step);
        }
        self.now = until;
    }

    /// True if a daemon runs.
    pub fn alive(&self, node: usize) -> bool {
        self.daemons[node].is_some()
    }

    /// Hands a frame to a daemon as if its peer on the link had sent it.
    pub fn inject(
        &mut self,
        link: usize,
        frame: Frame<Message>,
    ) -> Result<(), tollway_proto::overlay::ProtocolError> {
        let to = self.links[link].to;
        let port = self.links[link ^ 1].port.expect("the link is up");
        let daemon = self.daemons[to].as_mut().expect("the daemon lives");
        let result = daemon.handle_message(self.now, port, frame);
        self.pump(to);
        result
    }

    fn schedule(&mut self, at: Time, step: Step) {
        self.agenda.push(Reverse((at, self.next)));
        self.steps.insert(self.next, step);
        self.next += 1;
    }

    fn step(&mut self, step: Step) {
        match step {
            // One that an earlier timer has taken the place of is over.
            Step::Timeout(node) if self.timers[node] != self.now => {}
            Step::Timeout(node) => {
                self.timers[node] = Time::NEVER;
                if let Some(daemon) = &mut self.daemons[node] {
                    daemon.handle_timeout(self.now);
                }
                self.pump(node);
            }
            Step::Free { link, generation } => {
                if self.links[link].generation == generation {
                    self.links[link].busy = false;
                    self.transmit(link);
                }
            }
            Step::Arrive { link, generation, frame } => {
                if self.links[link].generation != generation {
                    return;
                }
                self.inject(link, *frame).expect("daemons keep the protocol");
            }
            Step::Start(sender) => self.offer(sender as usize),
        }
    }

    /// Buys and sends until a purchase waits.
    pub fn offer(&mut self, sender: usize) {
        let Sender { node, client, set, size, sent, most } = self.senders[sender];
        let Some(Some(daemon)) = self.daemons.get_mut(node) else { return };
        if sent < most && daemon.buy(self.now, client, set, &[], size as usize) == Purchase::Bought {
            self.bought(sender);
        }
        self.pump(node);
    }

    fn bought(&mut self, sender: usize) {
        loop {
            let Sender { node, client, set, size, sent, most } = self.senders[sender];
            let Some(daemon) = &mut self.daemons[node] else { return };
            daemon.send(self.now, client, set, Message { sender: sender as u32, number: sent, size });
            self.senders[sender].sent += 1;
            if sent + 1 >= most || daemon.buy(self.now, client, set, &[], size as usize) == Purchase::Waiting
            {
                return;
            }
        }
    }

    /// Takes what a daemon has to say, and sets its timer.
    pub fn pump(&mut self, node: usize) {
        loop {
            let Some(daemon) = &mut self.daemons[node] else { return };
            while let Some(delivery) = daemon.poll_delivery() {
                self.delivered += 1;
                if self.keep_log {
                    self.log[node].push(delivery);
                }
            }
            let Some(event) = daemon.poll_event() else { break };
            match event {
                Event::Sendable(port) => {
                    if let Some(&link) = self.ports.get(&(node, port)) {
                        self.transmit(link);
                    }
                }
                Event::Bought(client) => {
                    let found = self.senders.iter().position(|s| s.node == node && s.client == client);
                    if let Some(sender) = found {
                        self.bought(sender);
                    } else if self.keep_bought {
                        self.events.push((node, event));
                    }
                }
                other => self.events.push((node, other)),
            }
        }
        let Some(daemon) = &self.daemons[node] else { return };
        let at = daemon.poll_timeout();
        if at < self.timers[node] {
            self.timers[node] = at.max(self.now);
            self.schedule(at.max(self.now), Step::Timeout(node));
        }
    }

    fn transmit(&mut self, link: usize) {
        let Link { from, rate, delay, port: Some(port), busy: false, generation, .. } = self.links[link]
        else {
            return;
        };
        let Some(daemon) = &mut self.daemons[from] else { return };
        let longest = daemon.backlog(port).1;
        let Some(frame) = daemon.poll_message(self.now, port) else { return };
        let size = frame.size() as u64;
        let entry = &mut self.links[link];
        entry.longest = entry.longest.max(longest);
        match frame {
            Frame::Data(_) => entry.data += size,
            _ => entry.control += size,
        }
        entry.busy = true;
        let free = self.now + rate.time_for(size);
        self.schedule(free, Step::Free { link, generation });
        self.schedule(free + delay, Step::Arrive { link, generation, frame: Box::new(frame) });
    }
}
