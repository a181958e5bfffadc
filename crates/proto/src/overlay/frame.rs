//! Messages between daemons.

use std::sync::Arc;

use smallvec::SmallVec;

use super::bits::Bits;
use super::{Body, DaemonId, Incarnation};

/// A message on a link between two daemons.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame<B> {
    /// First on every link, and again every T_max as a sign of life.
    Hello(Incarnation),
    /// Link states, the newest of each origin. Flooded.
    States(Vec<Arc<LinkState>>),
    /// A change of a daemon's group memberships. Flooded in order.
    Groups(Arc<GroupUpdate>),
    /// Acknowledgements and their confirmation, each on its way to one daemon.
    Receipts(Vec<Receipt>),
    /// Progress of survivors in a dead daemon's messages. Flooded.
    Holdings(Vec<Holding>),
    /// A message to a set of daemons.
    Data(DataFrame<B>),
}

/// The state of a daemon's links; of two, the later (epoch, number) holds.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkState {
    /// Whose links.
    pub origin: Incarnation,
    /// Counts the states of one incarnation.
    pub number: u64,
    /// The last state with all links. Its own number, if it is that; otherwise `links` are those
    /// that differ from this other state's.
    pub base: u64,
    /// Links to daemons that have answered, by peer, ascending.
    pub links: Vec<LinkCost>,
    /// Congested connections to receivers.
    pub hops: Vec<HopCost>,
}

/// One direction of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkCost {
    /// The daemon at the other end.
    pub peer: DaemonId,
    /// Length for the choice of trees, 1 and more.
    pub weight: u16,
    /// Dollars a lot.
    pub cost: f32,
    /// Bytes of a lot.
    pub lot: f32,
}

/// The connections to receivers behind a daemon that share a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HopCost {
    /// The product's name for them.
    pub key: u64,
    /// Dollars a lot.
    pub cost: f32,
    /// Bytes of a lot.
    pub lot: f32,
}

impl LinkState {
    /// True if it has all links.
    pub fn is_whole(&self) -> bool {
        self.base == self.number
    }

    /// True if all numbers are finite and in range: costs from 0 to `most`, lots from 1 byte on,
    /// peers ascending.
    pub fn is_sound(&self, most: f64) -> bool {
        let sound = |cost: f32, lot: f32| {
            (0.0..=most).contains(&f64::from(cost)) && (1.0..=1e12).contains(&f64::from(lot))
        };
        self.links.iter().all(|link| sound(link.cost, link.lot) && link.weight > 0)
            && self.links.windows(2).all(|pair| pair[0].peer < pair[1].peer)
            && self.links.iter().all(|link| link.peer != self.origin.daemon)
            && self.base <= self.number
            && self.hops.iter().all(|hop| sound(hop.cost, hop.lot))
    }
}

/// A change of the groups that a daemon belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupUpdate {
    /// Whose memberships.
    pub origin: Incarnation,
    /// Counts the changes; a change follows the one before it.
    pub number: u64,
    /// The changes are all memberships after change `number`, not one change.
    pub whole: bool,
    /// Groups, and whether the daemon is a member now.
    pub changes: Vec<(Arc<[u8]>, bool)>,
}

impl GroupUpdate {
    /// True if it lists all memberships, each once, ascending.
    pub(super) fn is_plain(&self) -> bool {
        self.whole
            && self.changes.iter().all(|&(_, joined)| joined)
            && self.changes.windows(2).all(|pair| pair[0].0 < pair[1].0)
    }

    /// Applies a change to a plain update; true if it makes a difference.
    pub(super) fn apply(&mut self, change: &(Arc<[u8]>, bool)) -> bool {
        match (self.changes.binary_search_by(|other| other.0.cmp(&change.0)), change.1) {
            (Err(at), true) => self.changes.insert(at, change.clone()),
            (Ok(at), false) => {
                self.changes.remove(at);
            }
            _ => return false,
        }
        true
    }
}

/// A report about the messages of one daemon to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Its meaning.
    pub kind: ReceiptKind,
    /// The daemon whose messages are counted.
    pub origin: Incarnation,
    /// The daemon that receives them.
    pub receiver: Incarnation,
    /// All messages to the receiver up to this number.
    pub seq: u64,
}

/// The meaning of a [`Receipt`]. Acknowledgements go to the origin, confirmations to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReceiptKind {
    /// They are delivered.
    Ack,
    /// They are delivered, and later ones have arrived while some between them lack.
    Gap,
    /// Every destination has delivered them: copies may go.
    Stable,
}

impl Receipt {
    /// Its numbers in the order of the encoding.
    pub(super) fn numbers(&self) -> [u64; 5] {
        let of = |incarnation: Incarnation| (u64::from(incarnation.daemon.0), incarnation.epoch.0);
        let ((origin, start), (receiver, other)) = (of(self.origin), of(self.receiver));
        [origin, start, receiver, other, self.seq]
    }

    /// The daemon that the receipt is for.
    pub fn to(&self) -> DaemonId {
        match self.kind {
            ReceiptKind::Ack | ReceiptKind::Gap => self.origin.daemon,
            ReceiptKind::Stable => self.receiver.daemon,
        }
    }
}

/// The progress of a survivor in a dead daemon's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The survivor.
    pub holder: Incarnation,
    /// The dead daemon.
    pub origin: Incarnation,
    /// The last message delivered.
    pub seq: u64,
}

/// The destinations of messages, by daemon, ascending.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Destinations(Vec<Incarnation>);

impl Destinations {
    /// Sorts the destinations; of one daemon the latest epoch stays.
    pub fn new(mut daemons: Vec<Incarnation>) -> Destinations {
        daemons.sort_by(|a, b| a.daemon.cmp(&b.daemon).then(b.epoch.cmp(&a.epoch)));
        daemons.dedup_by_key(|incarnation| incarnation.daemon);
        Destinations(daemons)
    }

    /// The destinations.
    pub fn as_slice(&self) -> &[Incarnation] {
        &self.0
    }

    /// The index of a daemon.
    pub fn index_of(&self, daemon: DaemonId) -> Option<usize> {
        self.0.binary_search_by_key(&daemon, |incarnation| incarnation.daemon).ok()
    }
}

/// The number of a view of an ordered group; no two views have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewId {
    /// Grows from view to view.
    pub counter: u64,
    /// The member that numbers the view's messages.
    pub sequencer: Incarnation,
}

/// The members that deliver the messages of a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MembershipView {
    /// Its number.
    pub id: ViewId,
    /// The members, ascending.
    pub members: Vec<Incarnation>,
    /// The view of the same sequencer that ends with this one, and the number of its last message.
    pub after: Option<(ViewId, u64)>,
}

/// A message's part in the agreed order of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The group.
    pub group: Arc<[u8]>,
    /// Its meaning.
    pub kind: NoteKind,
}

/// The meaning of a [`Note`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoteKind {
    /// To the sequencer: the message is to be given a place.
    Submit {
        /// The view that it is sent in.
        view: ViewId,
        /// Counts the sender's messages to the group.
        sent: u64,
    },
    /// From the sequencer to all members: the message and its place.
    Ordered {
        /// The view.
        view: ViewId,
        /// Counts the view's messages from 1.
        number: u64,
        /// The sender.
        from: Incarnation,
        /// The message's number among the sender's.
        sent: u64,
    },
    /// From its sequencer to its members. There is no content.
    View(Arc<MembershipView>),
    /// From the sequencer of a view to its members: there are no more places. There is no content.
    End {
        /// The view.
        view: ViewId,
        /// The number of its last message.
        count: u64,
    },
    /// To a sequencer: the receiver of its view knows a later one. There is no content.
    Behind {
        /// That one's counter.
        counter: u64,
    },
}

impl Note {
    /// Bytes on a link.
    pub(super) fn size(&self) -> usize {
        let kind = match &self.kind {
            NoteKind::Submit { .. } | NoteKind::End { .. } => VIEW_ID + 8,
            NoteKind::Ordered { .. } => VIEW_ID + INCARNATION + 16,
            NoteKind::View(view) => {
                VIEW_ID + 5 + view.after.map_or(0, |_| VIEW_ID + 8) + INCARNATION * view.members.len()
            }
            NoteKind::Behind { .. } => 8,
        };
        NOTE + self.group.len() + kind
    }
}

/// Numbers of messages, one for each destination. Few need no allocation.
pub type MessageNumbers = SmallVec<[u64; 4]>;

/// A message on its way to some of its destinations.
#[derive(Clone, Debug, PartialEq)]
pub struct DataFrame<B> {
    /// The daemon that accepted it.
    pub origin: Incarnation,
    /// Counts the origin's messages from 1.
    pub seq: u64,
    /// All destinations have delivered the origin's messages up to this number.
    pub stable: u64,
    /// Links it may still pass.
    pub life: u8,
    /// Sent again: to be acknowledged at once.
    pub resent: bool,
    /// All its destinations.
    pub set: Arc<Destinations>,
    /// For each destination the number of the origin's message to it before this one, 0 for the
    /// first.
    pub previous: MessageNumbers,
    /// For each destination the number of the same client's message to it before this one, 0 if it
    /// has acknowledged all of those. `None`: the same as `previous`.
    pub before: Option<MessageNumbers>,
    /// The destinations that this copy is for.
    pub to: Bits,
    /// Its part in the order of a group.
    pub note: Option<Arc<Note>>,
    /// Its content.
    pub body: B,
}

impl<B> DataFrame<B> {
    /// The same message with another content.
    pub fn map<C>(self, change: impl FnOnce(B) -> C) -> DataFrame<C> {
        let DataFrame { origin, seq, stable, life, resent, set, previous, before, to, note, body } = self;
        DataFrame { origin, seq, stable, life, resent, set, previous, before, to, note, body: change(body) }
    }

    /// The number of the origin's message to a destination before this one, and that of the same
    /// client's.
    pub(super) fn follows(&self, to: DaemonId) -> Option<(u64, u64)> {
        let index = self.set.index_of(to)?;
        let before = self.before.as_ref().unwrap_or(&self.previous);
        Some((*self.previous.get(index)?, *before.get(index)?))
    }
}

impl<B> Frame<B> {
    /// The content, of data only.
    pub fn body(&self) -> Option<&B> {
        match self {
            Frame::Data(data) => Some(&data.body),
            _ => None,
        }
    }

    /// The same frame with another content.
    pub fn map_body<C>(self, change: impl FnOnce(B) -> C) -> Frame<C> {
        match self {
            Frame::Hello(hello) => Frame::Hello(hello),
            Frame::States(states) => Frame::States(states),
            Frame::Groups(update) => Frame::Groups(update),
            Frame::Receipts(receipts) => Frame::Receipts(receipts),
            Frame::Holdings(holdings) => Frame::Holdings(holdings),
            Frame::Data(data) => Frame::Data(data.map(change)),
        }
    }
}

impl<B: Body> Frame<B> {
    /// Bytes on a link: the encoding's, without what defines a destination set the first time.
    pub fn size(&self) -> usize {
        PREFIX
            + match self {
                Frame::Hello(_) => INCARNATION,
                Frame::States(states) => {
                    let base = if states.iter().all(|state| state.is_whole()) { 0 } else { 8 };
                    2 + states
                        .iter()
                        .map(|s| INCARNATION + 12 + base + 14 * s.links.len() + 16 * s.hops.len())
                        .sum::<usize>()
                }
                Frame::Groups(update) => {
                    INCARNATION + 13 + update.changes.iter().map(|(group, _)| 3 + group.len()).sum::<usize>()
                }
                Frame::Receipts(receipts) => {
                    let size =
                        |receipt: &Receipt| 1 + receipt.numbers().map(varint_len).iter().sum::<usize>();
                    2 + receipts.iter().map(size).sum::<usize>()
                }
                Frame::Holdings(holdings) => 2 + (2 * INCARNATION + 8) * holdings.len(),
                Frame::Data(data) => data.size() - PREFIX,
            }
    }
}

impl<B: Body> DataFrame<B> {
    /// Bytes on a link.
    pub(super) fn size(&self) -> usize {
        let reach =
            |&previous: &u64| varint_len(if previous == 0 { 0 } else { self.seq.saturating_sub(previous) });
        HEADER - 8
            + 8 * self.to.words().len()
            + self.previous.iter().chain(self.before.iter().flat_map(|b| b.iter())).map(reach).sum::<usize>()
            + self.note.as_ref().map_or(0, |note| note.size())
            + self.body.size()
    }
}

/// Bytes of a number in groups of seven bits.
pub(super) fn varint_len(n: u64) -> usize {
    (64 - (n | 1).leading_zeros() as usize).div_ceil(7)
}

/// Bytes of a frame's length and kind.
pub(super) const PREFIX: usize = 5;

/// Bytes of data beside its content and what each destination adds, which is a byte or so.
pub(super) const HEADER: usize = PREFIX + INCARNATION + 28;

/// Bytes of an incarnation.
pub(super) const INCARNATION: usize = 12;

const VIEW_ID: usize = INCARNATION + 8;

/// Bytes of a note's kind and the length of its group.
const NOTE: usize = 3;

/// Bytes that a message with a place has beside the group's name.
pub(super) const PLACE: usize = NOTE + VIEW_ID + INCARNATION + 16;
