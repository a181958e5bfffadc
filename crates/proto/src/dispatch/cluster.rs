//! State shared by all sessions: members' windows, and clients' parts of them.

use std::collections::VecDeque;

use tollway_law::Time;
use tollway_law::receiver::soft::{SoftConfig, SoftWindow};
use tollway_law::shares::{Claim, divide};

/// The static properties of a member.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemberConfig {
    /// B, the upper bound on outstanding bytes.
    pub buffer: u64,
    /// The largest frame, bytes: the least window.
    pub segment: u64,
}

/// Members by number, and the bytes that each client has outstanding at each.
///
/// While a member's window has room, it is first come, first served. Once a session waits, the
/// window is divided among the clients that use or want a part of it, weighted max–min
/// ([`divide`]), until none waits. A client's part covers all its sessions: a hundred sessions have
/// no more than one.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    members: Vec<MemberWindow>,
    clients: Vec<Client>,
    free: Vec<u32>,
    claims: Vec<Claim>,
    order: Vec<u32>,
}

#[derive(Clone, Debug)]
struct MemberWindow {
    window: SoftWindow,
    /// Clients with waiting sessions, in round-robin order.
    ring: VecDeque<u32>,
    divided: Option<Time>,
}

#[derive(Clone, Debug, Default)]
struct Client {
    weight: f64,
    at: Vec<ClientAtMember>,
}

/// A client at a member.
#[derive(Clone, Debug, Default)]
struct ClientAtMember {
    outstanding: u64,
    waiting: u64,
    gets: f64,
    sessions: VecDeque<(u64, u64)>,
}

impl Cluster {
    /// A cluster without members.
    pub fn new() -> Cluster {
        Cluster::default()
    }

    /// Adds a member. Returns its number.
    pub fn add_member(&mut self, now: Time, config: MemberConfig) -> usize {
        let soft = SoftConfig {
            buffer: config.buffer as f64,
            segment: config.segment as f64,
            ..SoftConfig::default()
        };
        let window = SoftWindow::new(soft, now);
        self.members.push(MemberWindow { window, ring: VecDeque::new(), divided: None });
        self.clients.iter_mut().for_each(|client| client.at.push(ClientAtMember::default()));
        self.members.len() - 1
    }

    /// Adds a client. Returns its number.
    pub fn add_client(&mut self, weight: f64) -> u32 {
        let client = Client { weight, at: vec![ClientAtMember::default(); self.members.len()] };
        match self.free.pop() {
            Some(at) => {
                self.clients[at as usize] = client;
                at
            }
            None => {
                self.clients.push(client);
                self.clients.len() as u32 - 1
            }
        }
    }

    /// Removes a client that has nothing outstanding and no session.
    pub fn remove_client(&mut self, client: u32) {
        self.clients[client as usize].at.clear();
        self.members.iter_mut().for_each(|member| member.ring.retain(|&at| at != client));
        self.free.push(client);
    }

    /// Sets the weight of a client.
    pub fn set_weight(&mut self, client: u32, weight: f64) {
        self.clients[client as usize].weight = weight;
    }

    /// The member's window by its drain rate.
    pub fn window(&self, member: usize) -> &SoftWindow {
        &self.members[member].window
    }

    /// Bytes that `client` has outstanding at `member`.
    pub fn outstanding(&self, member: usize, client: u32) -> u64 {
        self.clients[client as usize].at[member].outstanding
    }

    /// Sessions that wait for room at `member`.
    pub fn waiting(&self, member: usize) -> usize {
        let ring = &self.members[member].ring;
        ring.iter().map(|&client| self.clients[client as usize].at[member].sessions.len()).sum()
    }

    /// Bytes that `client` may send to `member` now. While this is above zero, a frame of any size
    /// may be sent.
    pub fn room(&mut self, now: Time, member: usize, client: u32) -> u64 {
        let window = &self.members[member].window;
        let room = window.window().saturating_sub(window.outstanding());
        if self.members[member].ring.is_empty() {
            return room;
        }
        self.divide(now, member);
        let part = &self.clients[client as usize].at[member];
        // Others may have more than their parts still: they give way as they are answered, and it
        // need not wait for that.
        (part.gets - part.outstanding as f64).max(0.0).ceil() as u64
    }

    /// Records `bytes` sent.
    pub fn on_sent(&mut self, now: Time, member: usize, client: u32, bytes: u64) {
        self.members[member].window.on_sent(now, bytes);
        self.clients[client as usize].at[member].outstanding += bytes;
    }

    /// Records `bytes` answered; `response` is the response time of one of them, if measured.
    pub fn on_drained(&mut self, now: Time, member: usize, client: u32, bytes: u64, response: Option<Time>) {
        let window = &mut self.members[member].window;
        window.on_drained(now, bytes, response);
        window.poll(now);
        self.less(member, client, bytes);
    }

    /// Records `bytes` that will not be answered.
    pub fn on_lost(&mut self, now: Time, member: usize, client: u32, bytes: u64) {
        self.members[member].window.on_lost(now, bytes);
        self.less(member, client, bytes);
    }

    fn less(&mut self, member: usize, client: u32, bytes: u64) {
        let part = &mut self.clients[client as usize].at[member];
        debug_assert!(part.outstanding >= bytes);
        part.outstanding = part.outstanding.saturating_sub(bytes);
    }

    /// Moves a session's outstanding bytes from one client to another.
    pub fn transfer(&mut self, member: usize, from: u32, to: u32, bytes: u64) {
        self.less(member, from, bytes);
        self.clients[to as usize].at[member].outstanding += bytes;
    }

    /// Makes `session` of `client` wait for room at `member`, with `bytes` to send. It must not be
    /// waiting there already.
    pub fn wait(&mut self, member: usize, client: u32, session: u64, bytes: u64) {
        let part = &mut self.clients[client as usize].at[member];
        part.sessions.push_back((session, bytes));
        part.waiting += bytes;
        if part.sessions.len() == 1 {
            self.members[member].ring.push_back(client);
            // A new client gets a part at once.
            self.members[member].divided = None;
        }
    }

    /// Removes a waiting session, such as one that ends.
    pub fn forget(&mut self, member: usize, client: u32, session: u64) {
        let part = &mut self.clients[client as usize].at[member];
        let before = part.sessions.len();
        part.sessions.retain(|&(other, _)| other != session);
        part.waiting = part.sessions.iter().map(|&(_, bytes)| bytes).sum();
        if before > 0 && part.sessions.is_empty() {
            self.members[member].ring.retain(|&at| at != client);
        }
    }

    /// Ends the member's epoch if it is over. Returns the next session that may send to it, which
    /// no longer waits.
    pub fn wake(&mut self, now: Time, member: usize) -> Option<u64> {
        self.members[member].window.poll(now);
        for _ in 0..self.members[member].ring.len() {
            let client = *self.members[member].ring.front()?;
            let room = self.room(now, member, client);
            let to = &mut self.members[member];
            to.ring.pop_front();
            if room == 0 {
                to.ring.push_back(client);
                continue;
            }
            let part = &mut self.clients[client as usize].at[member];
            let next = part.sessions.pop_front();
            if !part.sessions.is_empty() {
                self.members[member].ring.push_back(client);
            }
            if let Some((session, bytes)) = next {
                part.waiting -= bytes;
                return Some(session);
            }
        }
        None
    }

    /// Divides a contended window, at most once a millisecond.
    fn divide(&mut self, now: Time, member: usize) {
        let at = &mut self.members[member];
        if at.divided.is_some_and(|before| now < before + DIVIDE_EVERY) {
            return;
        }
        at.divided = Some(now);
        let parts = || self.clients.iter().filter(|client| !client.at.is_empty());
        self.claims.clear();
        self.claims.extend(parts().map(|client| {
            let part = &client.at[member];
            Claim::new(client.weight, (part.outstanding + part.waiting) as f64)
        }));
        divide(at.window.window() as f64, &mut self.claims, &mut self.order);
        let parts = self.clients.iter_mut().filter(|client| !client.at.is_empty());
        for (client, claim) in parts.zip(&self.claims) {
            client.at[member].gets = claim.gets;
        }
    }
}

/// Interval between divisions of a contended window.
const DIVIDE_EVERY: Time = Time::from_millis(1);
