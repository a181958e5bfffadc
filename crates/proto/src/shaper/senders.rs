//! The link between an engine and its [`Shaper`]s: the shaper of each sender, and the senders that
//! a shaper releases.

use tollway_law::Time;

use super::{Action, ClassId, MemberId, Shaper};
use crate::{Flags, Machine, Packet};

/// All shapers of an engine, and the senders behind each.
///
/// An engine numbers its machines (*endpoints*) and its sources of cross-traffic. Each of them that
/// a policy may apply to is a *shaped sender*. It sends by [`send`](ShapedSenders::send) and
/// [`emit`](ShapedSenders::emit), instead of directly. The engine receives packets and wake-ups
/// through [`Senders`].
#[derive(Debug, Default)]
pub struct ShapedSenders {
    hosts: Vec<ShaperSlot>,
    shaped: Vec<ShapedSender>,
    free: Vec<u32>,
}

/// The engine's side of the shaped senders: its machines and its sources of cross-traffic.
pub trait Senders {
    /// The type of endpoints.
    type Machine: Machine;

    /// The machine of an endpoint.
    fn machine(&mut self, endpoint: u32) -> &mut Self::Machine;

    /// Makes an endpoint build a packet, one without data if `control`, and sends it if `leaves`
    /// returns true; `leaves` may mark it. Returns true if there was a packet.
    fn send(&mut self, endpoint: u32, control: bool, leaves: impl FnOnce(&mut Packet) -> bool) -> bool;

    /// Ends an endpoint's turn: its timer may be earlier than before.
    fn rearm(&mut self, endpoint: u32);

    /// Size of each packet of a source, bytes on the wire.
    fn size(&self, source: u32) -> u16;

    /// Sends a packet of a source, marked as in profile or not.
    fn send_plain(&mut self, source: u32, in_profile: bool);

    /// Sets the next [`ShapedSenders::handle_timeout`] of a shaper to `at`, replacing an earlier
    /// setting.
    fn set_timer(&mut self, shaper: u32, at: Time);
}

/// A shaper, and the sender of each of its members.
#[derive(Debug)]
struct ShaperSlot {
    shaper: Shaper,
    subjects: Vec<Subject>,
    /// The time of its timer, as set in the engine.
    armed: Time,
}

#[derive(Clone, Copy, Debug)]
struct ShapedSender {
    host: u32,
    class: ClassId,
    /// The sender's member; `None` until it opens.
    member: Option<MemberId>,
    /// For a source: upper bound on waiting packets.
    room: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Endpoint(u32),
    Source(u32),
}

impl ShapedSenders {
    /// Adds a shaper. Returns its number.
    pub fn add_shaper(&mut self, shaper: Shaper) -> u32 {
        self.hosts.push(ShaperSlot { shaper, subjects: Vec::new(), armed: Time::NEVER });
        self.hosts.len() as u32 - 1
    }

    /// Adds a sender to a shaper, for connections of `class`; at most `room` packets of a source
    /// may wait. Returns its number, which is reused after [`dismiss`](ShapedSenders::dismiss).
    pub fn add_sender(&mut self, shaper: u32, class: ClassId, room: u32) -> u32 {
        let sender = ShapedSender { host: shaper, class, member: None, room };
        match self.free.pop() {
            Some(at) => {
                self.shaped[at as usize] = sender;
                at
            }
            None => {
                self.shaped.push(sender);
                self.shaped.len() as u32 - 1
            }
        }
    }

    /// The shaper with this number.
    pub fn shaper(&self, shaper: u32) -> &Shaper {
        &self.hosts[shaper as usize].shaper
    }

    /// Modifies a shaper, then sends packets that may leave.
    pub fn with_shaper<R>(
        &mut self,
        now: Time,
        shaper: u32,
        senders: &mut impl Senders,
        work: impl FnOnce(&mut Shaper) -> R,
    ) -> R {
        let answer = work(&mut self.hosts[shaper as usize].shaper);
        self.serve(now, shaper, senders);
        answer
    }

    /// Puts the endpoint of a sender under its policy, when it opens.
    pub fn admit(&mut self, now: Time, sender: u32, endpoint: u32) {
        self.enter(now, sender, Subject::Endpoint(endpoint));
    }

    /// Removes a sender whose endpoint is done or gone.
    pub fn dismiss(&mut self, now: Time, sender: u32, senders: &mut impl Senders) {
        let ShapedSender { host, member, .. } = self.shaped[sender as usize];
        self.free.push(sender);
        if let Some(member) = member {
            self.hosts[host as usize].shaper.exit(now, member);
            // Its tokens may be what others wait for.
            self.serve(now, host, senders);
        }
    }

    /// Sends packets that an endpoint may send. The call is also a trigger for all senders behind
    /// the same shaper.
    pub fn send(&mut self, now: Time, sender: u32, endpoint: u32, senders: &mut impl Senders) {
        let ShapedSender { host, member, .. } = self.shaped[sender as usize];
        match member {
            Some(member) => {
                self.ask(now, host, member, endpoint, senders);
                self.serve(now, host, senders);
            }
            None => while senders.send(endpoint, false, |_| true) {},
        }
    }

    /// Offers a packet of a source.
    pub fn emit(&mut self, now: Time, sender: u32, source: u32, senders: &mut impl Senders) {
        let size = senders.size(source);
        if self.shaped[sender as usize].member.is_none() {
            self.enter(now, sender, Subject::Source(source));
        }
        let ShapedSender { host, member, room, .. } = self.shaped[sender as usize];
        let Some(member) = member else { return };
        let shaper = &mut self.hosts[host as usize].shaper;
        match shaper.action(member) {
            Some(Action::Shape) => {
                shaper.enqueue(now, member, size, room);
            }
            Some(action) => {
                let conforms = shaper.police(now, member, size);
                if conforms || action == Action::Mark {
                    senders.send_plain(source, conforms && action == Action::Mark);
                }
            }
            None => senders.send_plain(source, false),
        }
        self.serve(now, host, senders);
    }

    /// Handles an expired timer of a shaper.
    pub fn handle_timeout(&mut self, now: Time, shaper: u32, senders: &mut impl Senders) {
        self.hosts[shaper as usize].shaper.handle_timeout(now);
        self.serve(now, shaper, senders);
    }

    fn enter(&mut self, now: Time, sender: u32, subject: Subject) {
        let sender = &mut self.shaped[sender as usize];
        let host = &mut self.hosts[sender.host as usize];
        let member = host.shaper.enter(now, sender.class);
        sender.member = Some(member);
        host.subjects.resize(host.subjects.len().max(member.0 as usize + 1), subject);
        host.subjects[member.0 as usize] = subject;
    }

    /// Asks an endpoint for its next packet, and sends packets that need no turn.
    fn ask(&mut self, now: Time, host: u32, member: MemberId, endpoint: u32, senders: &mut impl Senders) {
        let shaper = &mut self.hosts[host as usize].shaper;
        let machine = senders.machine(endpoint);
        shaper.set_rtt(member, machine.round_trips());
        if let Some(segments) = shaper.increase(member) {
            machine.set_increase(segments);
        }
        match shaper.action(member) {
            Some(Action::Shape) => {}
            Some(action) => {
                shaper.withdraw(member);
                let mut police = |packet: &mut Packet| {
                    if !packet.flags.has(Flags::DATA) {
                        return true;
                    }
                    let conforms = shaper.police(now, member, packet.size);
                    if conforms && action == Action::Mark {
                        packet.mark_in_profile();
                    }
                    conforms || action == Action::Mark
                };
                while senders.send(endpoint, false, &mut police) {}
                return;
            }
            None => {
                shaper.withdraw(member);
                while senders.send(endpoint, false, |_| true) {}
                return;
            }
        }
        loop {
            match senders.machine(endpoint).poll_size(now) {
                Some(size) => {
                    shaper.want(now, member, size);
                    while senders.send(endpoint, true, |_| true) {}
                    return;
                }
                None => {
                    shaper.withdraw(member);
                    if !senders.send(endpoint, false, |_| true) {
                        return;
                    }
                }
            }
        }
    }

    /// Serves all senders behind a shaper that are due.
    fn serve(&mut self, now: Time, host: u32, senders: &mut impl Senders) {
        while let Some(member) = self.hosts[host as usize].shaper.next(now) {
            match self.hosts[host as usize].subjects[member.0 as usize] {
                Subject::Endpoint(at) => self.release(now, host, member, at, senders),
                Subject::Source(at) => self.release_source(now, host, member, at, senders),
            }
        }
        let ShaperSlot { shaper, armed, .. } = &mut self.hosts[host as usize];
        let next = shaper.poll_timeout();
        if next != *armed {
            *armed = next;
            senders.set_timer(host, next);
        }
    }

    /// Serves an endpoint that is due.
    fn release(&mut self, now: Time, host: u32, member: MemberId, endpoint: u32, senders: &mut impl Senders) {
        let size = senders.machine(endpoint).poll_size(now);
        let shaper = &mut self.hosts[host as usize].shaper;
        match size {
            Some(size) if shaper.action(member) == Some(Action::Shape) => {
                if !shaper.grant(now, member, size) {
                    return;
                }
                senders.send(endpoint, false, |_| true);
            }
            _ => shaper.withdraw(member),
        }
        self.ask(now, host, member, endpoint, senders);
        senders.rearm(endpoint);
    }

    /// Serves a source with waiting packets that is due.
    fn release_source(
        &mut self,
        now: Time,
        host: u32,
        member: MemberId,
        source: u32,
        senders: &mut impl Senders,
    ) {
        let size = senders.size(source);
        let shaper = &mut self.hosts[host as usize].shaper;
        let marked = match shaper.action(member) {
            Some(Action::Shape) | None => {
                if !shaper.grant(now, member, size) {
                    return;
                }
                false
            }
            // It had waited under another policy.
            Some(_) => shaper.police(now, member, size),
        };
        match shaper.dequeue(member) {
            true => shaper.want(now, member, size),
            false => shaper.withdraw(member),
        }
        senders.send_plain(source, marked);
    }
}

/// The number of an endpoint or a source without a shaper.
pub const UNSHAPED: u32 = u32::MAX;
