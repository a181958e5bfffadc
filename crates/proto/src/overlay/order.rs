//! Agreed order in a group: views of its membership, with one sequencer in each.
//!
//! The least reachable member is the sequencer. Whenever the reachable members change, it states a
//! **view**: their list, under a number greater than all before. Members give their messages to the
//! view's sequencer, which numbers them and passes them on to all.
//!
//! A message has its place, (view, number), from one sequencer and once. A member enters views by
//! ascending number, and delivers messages of its own view only. So any two members deliver the
//! messages that both deliver in one order, whatever links and daemons fail.
//!
//! Before a member enters the view of another sequencer it waits for the former's last message, or
//! for the end of the recovery of what the former has sent. So members that go from one view to the
//! next together, with the network whole between them, have delivered the same messages in the
//! former. A message whose place is unknown when its view ends comes back to its sender
//! ([`Daemon::poll_unordered`]): another sequencer might place it a second time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tollway_law::Time;

use super::frame::{MembershipView, Note, NoteKind, ViewId};
use super::receive::{Inbound, Stage};
use super::timer::{SETTLE, Timer};
use super::{Body, ClientId, Daemon, DaemonId, DeliveredMessage, Event, Incarnation, OrderPlace, SetId};

/// The ordered groups that this daemon is a member of.
#[derive(Debug)]
pub(super) struct Orders<B> {
    groups: BTreeMap<Arc<[u8]>, Order<B>>,
    unordered: VecDeque<(Arc<[u8]>, B)>,
    /// Members may have changed.
    pub(super) changed: bool,
    /// The greatest number of a view heard of. It outlives a group, so that no number is used
    /// twice.
    top: u64,
}

/// One group, as a member has it.
#[derive(Debug)]
struct Order<B> {
    joins: u32,
    /// The client that the sequencer's messages are of.
    relay: ClientId,
    /// The view entered, and the number of the last message delivered in it.
    view: Option<(Arc<MembershipView>, u64)>,
    /// The view's last message, once its sequencer has stated it.
    last: Option<u64>,
    next: Option<Next<B>>,
    /// The view that this daemon is the sequencer of.
    issued: Option<Issued>,
    /// Another member knows a view with a number as great as the issued one's.
    stale: bool,
    /// When to ask the sequencer for a view, as this member's is not of the reachable members.
    ask_at: Option<Time>,
    /// Own messages without a place yet, by their numbers.
    own: VecDeque<(u64, ClientId, B)>,
    sent: u64,
}

/// A view to enter, and the messages in it so far.
#[derive(Debug)]
struct Next<B> {
    view: Arc<MembershipView>,
    since: Time,
    held: Vec<Placed<B>>,
}

#[derive(Debug)]
struct Issued {
    view: Arc<MembershipView>,
    /// The other members.
    set: SetId,
    count: u64,
}

/// A message with its place.
#[derive(Clone, Debug)]
struct Placed<B> {
    view: ViewId,
    number: u64,
    from: Incarnation,
    /// Its number among the sender's own.
    sent: u64,
    body: B,
}

impl<B> Orders<B> {
    pub(super) fn new() -> Orders<B> {
        Orders { groups: BTreeMap::new(), unordered: VecDeque::new(), changed: false, top: 0 }
    }
}

impl<B> Order<B> {
    /// The newest view known to this member.
    fn newest(&self) -> Option<&MembershipView> {
        let entered = self.view.as_ref().map(|(view, _)| &**view);
        self.next.as_ref().map(|next| &*next.view).or(entered)
    }
}

impl<B: Body> Daemon<B> {
    /// Joins a group whose members deliver all messages in one order; false, and nothing done, if
    /// its name is longer than [`MAX_GROUP`](super::MAX_GROUP). Joins are counted. All members of
    /// such a group have to join it so.
    pub fn join_ordered(&mut self, now: Time, group: &[u8]) -> bool {
        if !self.join(group) {
            return false;
        }
        if let Some(order) = self.orders.groups.get_mut(group) {
            order.joins += 1;
            return true;
        }
        let relay = ClientId(self.next_client);
        self.next_client += 1;
        let order = Order {
            joins: 1,
            relay,
            view: None,
            last: None,
            next: None,
            issued: None,
            stale: false,
            ask_at: None,
            own: VecDeque::new(),
            sent: 0,
        };
        self.orders.groups.insert(group.into(), order);
        self.orders.changed = true;
        self.finish(now);
        true
    }

    /// Takes an ordered join back. With the last one, own messages without a place are lost to the
    /// group ([`poll_unordered`](Daemon::poll_unordered)).
    pub fn leave_ordered(&mut self, now: Time, group: &[u8]) {
        self.leave(group);
        let Some(order) = self.orders.groups.get_mut(group) else { return };
        order.joins -= 1;
        if order.joins > 0 {
            return;
        }
        self.abdicate(now, group);
        if let Some((group, order)) = self.orders.groups.remove_entry(group) {
            self.orders.unordered.extend(order.own.into_iter().map(|(_, _, body)| (group.clone(), body)));
        }
    }

    /// Leaves all groups before this daemon ends: others send it nothing new.
    pub fn leave_all(&mut self, now: Time) {
        let ordered: Vec<Arc<[u8]>> = self.orders.groups.keys().cloned().collect();
        for group in ordered {
            if let Some(order) = self.orders.groups.get_mut(&group) {
                order.joins = 1;
            }
            self.leave_ordered(now, &group);
        }
        let update = Arc::new(self.groups.leave_all());
        self.flood_groups(None, &update);
    }

    /// The set to buy messages to an ordered group for: the way to the sequencer, and its tree to
    /// the members. `None` while the group has no view, or is about to enter another:
    /// [`Event::View`] follows.
    pub fn ordered_set(&mut self, group: &[u8]) -> Option<SetId> {
        let order = self.orders.groups.get(group).filter(|order| order.next.is_none())?;
        let (view, _) = order.view.as_ref()?;
        let members: Vec<DaemonId> = view.members.iter().map(|member| member.daemon).collect();
        Some(self.set_via(view.id.sequencer.daemon, &members))
    }

    /// The view of an ordered group that this daemon is in: its number and its daemons.
    pub fn view(&self, group: &[u8]) -> Option<(u64, Vec<DaemonId>)> {
        let (view, _) = self.orders.groups.get(group)?.view.as_ref()?;
        Some((view.id.counter, view.members.iter().map(|member| member.daemon).collect()))
    }

    /// Sends a client's message to an ordered group, whose member this daemon is. False, and
    /// nothing done, while [`ordered_set`](Daemon::ordered_set) has none.
    pub fn submit(&mut self, now: Time, by: ClientId, group: &[u8], body: B) -> bool {
        let Some((group, order)) = self.order(group) else { return false };
        if order.view.is_none() || order.next.is_some() {
            return false;
        }
        order.sent += 1;
        let sent = order.sent;
        order.own.push_back((sent, by, body.clone()));
        self.give(now, &group, sent, by, body);
        true
    }

    /// The next own message that has no place because its view ended before: its group and its
    /// content. Whether other members have delivered it is not known.
    pub fn poll_unordered(&mut self) -> Option<(Arc<[u8]>, B)> {
        self.orders.unordered.pop_front()
    }

    fn order(&mut self, group: &[u8]) -> Option<(Arc<[u8]>, &mut Order<B>)> {
        let (name, _) = self.orders.groups.get_key_value(group)?;
        let name = name.clone();
        Some((name, self.orders.groups.get_mut(group)?))
    }

    /// Gives an own message to the sequencer of the view.
    fn give(&mut self, now: Time, group: &Arc<[u8]>, sent: u64, by: ClientId, body: B) {
        let Some((view, _)) = self.orders.groups.get(group).and_then(|order| order.view.as_ref()) else {
            return;
        };
        let view = view.id;
        if view.sequencer == self.me {
            self.place(now, group, view, self.me, sent, body);
        } else {
            let set = self.set(&[view.sequencer.daemon]);
            self.send_note(now, by, set, group, NoteKind::Submit { view, sent }, body);
        }
    }

    fn send_note(&mut self, now: Time, by: ClientId, set: SetId, group: &Arc<[u8]>, kind: NoteKind, body: B) {
        self.send_noted(now, by, set, Some(Arc::new(Note { group: group.clone(), kind })), body);
    }

    /// A message with a note has come from a daemon.
    pub(super) fn noted(&mut self, now: Time, origin: Incarnation, note: &Note, body: B) {
        let Some((group, order)) = self.order(&note.group) else { return };
        match &note.kind {
            &NoteKind::Submit { view, sent } => self.place(now, &group, view, origin, sent, body),
            &NoteKind::Ordered { view, number, from, sent } if view.sequencer == origin => {
                self.placed(&group, Placed { view, number, from, sent, body });
            }
            NoteKind::View(view) if view.id.sequencer == origin => self.viewed(now, &group, view),
            &NoteKind::End { view, count } if view.sequencer == origin => {
                if order.view.as_ref().is_some_and(|(entered, _)| entered.id == view) {
                    order.last = Some(count);
                }
                self.enter(now, &group);
            }
            NoteKind::Behind { counter } => {
                order.stale = true;
                self.orders.top = self.orders.top.max(*counter);
                self.orders.changed = true;
            }
            _ => {}
        }
    }

    /// Gives a message its place, if this daemon is the sequencer of the view that it was sent in.
    fn place(&mut self, now: Time, group: &Arc<[u8]>, view: ViewId, from: Incarnation, sent: u64, body: B) {
        let Some(order) = self.orders.groups.get_mut(group) else { return };
        let Some(issued) = order.issued.as_mut().filter(|issued| issued.view.id == view) else { return };
        issued.count += 1;
        let (number, set, relay) = (issued.count, issued.set, order.relay);
        let kind = NoteKind::Ordered { view, number, from, sent };
        self.send_note(now, relay, set, group, kind, body.clone());
        self.placed(group, Placed { view, number, from, sent, body });
    }

    /// A message with a place has come.
    fn placed(&mut self, group: &Arc<[u8]>, message: Placed<B>) {
        let Some(order) = self.orders.groups.get_mut(group) else { return };
        if let Some(next) = order.next.as_mut().filter(|next| next.view.id == message.view) {
            next.held.push(message);
            return;
        }
        let Some((_, last)) = order.view.as_mut().filter(|(view, _)| view.id == message.view) else { return };
        *last = message.number;
        if message.from == self.me {
            while order.own.front().is_some_and(|own| own.0 <= message.sent) {
                order.own.pop_front();
            }
        }
        let place = OrderPlace { group: group.clone(), view: message.view.counter, number: message.number };
        let (origin, body) = (message.from.daemon, message.body);
        self.deliveries.push_back(DeliveredMessage { origin, body, place: Some(place) });
    }

    /// A view has been stated.
    fn viewed(&mut self, now: Time, group: &Arc<[u8]>, view: &Arc<MembershipView>) {
        self.orders.top = self.orders.top.max(view.id.counter);
        let Some(order) = self.orders.groups.get_mut(group) else { return };
        if !view.members.contains(&self.me) {
            return;
        }
        if order.newest().is_some_and(|newest| newest.id.counter >= view.id.counter) {
            if view.id.sequencer != self.me {
                self.ask(now, group, view.id.sequencer.daemon);
            }
            return;
        }
        if view.id.sequencer != self.me {
            self.abdicate(now, group);
        }
        let Some(order) = self.orders.groups.get_mut(group) else { return };
        order.next = Some(Next { view: view.clone(), since: now, held: Vec::new() });
        self.enter(now, group);
    }

    /// Asks a sequencer for a view after those known here.
    fn ask(&mut self, now: Time, group: &Arc<[u8]>, sequencer: DaemonId) {
        let Some(by) = self.orders.groups.get(group).map(|order| order.relay) else { return };
        let set = self.set(&[sequencer]);
        let kind = NoteKind::Behind { counter: self.orders.top };
        self.send_note(now, by, set, group, kind, B::empty());
    }

    /// Ends the view of which this daemon is the sequencer: it gives no more places.
    fn abdicate(&mut self, now: Time, group: &[u8]) {
        let Some((group, order)) = self.order(group) else { return };
        let Some(Issued { view, set, count }) = order.issued.take() else { return };
        if order.view.as_ref().is_some_and(|(entered, _)| entered.id == view.id) {
            order.last = Some(count);
        }
        let relay = order.relay;
        self.send_note(now, relay, set, &group, NoteKind::End { view: view.id, count }, B::empty());
    }

    /// Enters the next view, if all of the former has been delivered or is lost.
    fn enter(&mut self, now: Time, group: &Arc<[u8]>) {
        let Some(order) = self.orders.groups.get(group) else { return };
        let Some(next) = &order.next else { return };
        let all = match &order.view {
            None => true,
            Some((view, last)) => {
                let same = view.id.sequencer == next.view.id.sequencer;
                let long = now >= next.since.saturating_add(self.config.patience * MOST_PATIENCES);
                if !same && order.last.is_none() && !long && !self.is_over(view.id.sequencer) {
                    self.agenda.by(Timer::Order, now.saturating_add(self.update * SETTLE));
                    return;
                }
                order.last == Some(*last) || (same && next.view.after == Some((view.id, *last)))
            }
        };
        let Some(order) = self.orders.groups.get_mut(group) else { return };
        let Some(Next { view, held, .. }) = order.next.take() else { return };
        let members = view.members.iter().map(|member| member.daemon).collect();
        let counter = view.id.counter;
        order.view = Some((view, 0));
        order.last = None;
        let own: Vec<_> = if all { order.own.iter().cloned().collect() } else { Vec::new() };
        if !all {
            let lost = order.own.drain(..).map(|(_, _, body)| (group.clone(), body));
            self.orders.unordered.extend(lost);
        }
        self.events.push_back(Event::View { group: group.clone(), view: counter, members });
        for message in held {
            self.placed(group, message);
        }
        // No member has delivered them: the former view's last message was not one of them.
        for (sent, by, body) in own {
            self.give(now, group, sent, by, body);
        }
    }

    /// True if nothing more comes of a daemon's messages: it is out of reach, and they are
    /// recovered.
    fn is_over(&self, origin: Incarnation) -> bool {
        let reached =
            self.up.contains(&origin.daemon) && self.database.incarnation(origin.daemon) == Some(origin);
        let ended = |inbound: &Inbound<B>| inbound.stage() == Stage::Ended;
        origin != self.me && !reached && self.inbounds.get(&origin).is_none_or(ended)
    }

    /// The members of ordered groups may have changed: views follow once links have settled.
    pub(super) fn reorder_soon(&mut self, now: Time) {
        if std::mem::take(&mut self.orders.changed) && !self.orders.groups.is_empty() {
            self.agenda.by(Timer::Order, now.saturating_add(self.update * SETTLE));
        }
    }

    /// States the views that this daemon is the sequencer of, and enters those that are due.
    pub(super) fn reorder(&mut self, now: Time) {
        for group in self.orders.groups.keys().cloned().collect::<Vec<_>>() {
            let members = self.reachable_members(&group);
            let Some(order) = self.orders.groups.get(&group) else { continue };
            let same = order.issued.as_ref().is_some_and(|issued| issued.view.members == members);
            if members.first() != Some(&self.me) {
                self.expect(now, &group, &members);
            } else if !same || order.stale {
                self.issue(now, &group, members);
            }
            self.enter(now, &group);
        }
    }

    /// Asks for the view of the reachable members, if it does not come: it, or a note about a later
    /// one, was lost with a link.
    fn expect(&mut self, now: Time, group: &Arc<[u8]>, members: &[Incarnation]) {
        let Some(order) = self.orders.groups.get_mut(group) else { return };
        let sequencer = members[0];
        if order.newest().is_some_and(|view| view.id.sequencer == sequencer && view.members == members) {
            order.ask_at = None;
            return;
        }
        let again = now.saturating_add(self.update * ASK);
        let due = order.ask_at.is_some_and(|at| now >= at);
        if due || order.ask_at.is_none() {
            order.ask_at = Some(again);
        }
        self.agenda.by(Timer::Order, again);
        if due {
            self.ask(now, group, sequencer.daemon);
        }
    }

    /// Members within reach, this daemon with them, ascending.
    fn reachable_members(&self, group: &[u8]) -> Vec<Incarnation> {
        let there = |member: &Incarnation| {
            self.up.contains(&member.daemon) && self.database.incarnation(member.daemon) == Some(*member)
        };
        let mut members: Vec<Incarnation> = self.groups.starts(group).filter(there).collect();
        members.push(self.me);
        members.sort_unstable();
        members
    }

    fn issue(&mut self, now: Time, group: &Arc<[u8]>, members: Vec<Incarnation>) {
        let daemons: Vec<DaemonId> = members.iter().map(|member| member.daemon).collect();
        let set = self.set(&daemons);
        let Some(order) = self.orders.groups.get_mut(group) else { return };
        self.orders.top += 1;
        order.stale = false;
        let after = order.issued.as_ref().map(|issued| (issued.view.id, issued.count));
        let id = ViewId { counter: self.orders.top, sequencer: self.me };
        let view = Arc::new(MembershipView { id, members, after });
        order.issued = Some(Issued { view: view.clone(), set, count: 0 });
        let relay = order.relay;
        self.send_note(now, relay, set, group, NoteKind::View(view.clone()), B::empty());
        self.viewed(now, group, &view);
    }
}

/// T_min's between two questions for a view.
const ASK: u64 = 20;

/// Patiences for which a member waits for the end of a view; the recovery of a dead daemon's
/// messages takes three and some T_max.
const MOST_PATIENCES: u64 = 4;
