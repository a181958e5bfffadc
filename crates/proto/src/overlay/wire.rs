//! Frames as bytes, for connections that carry bytes in order.
//!
//! ```text
//! length of what follows (4)  kind (1)  header  content (data only)
//! ```
//!
//! Numbers are big-endian. A destination set is defined by the first message to it on a connection,
//! and has a number from then on: an [`Encoder`] and a [`Decoder`] belong to one connection.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::bits::Bits;
use super::frame::{
    DataFrame, Destinations, GroupUpdate, Holding, HopCost, LinkCost, LinkState, MembershipView,
    MessageNumbers, Note, NoteKind, PREFIX, Receipt, ReceiptKind, ViewId,
};
use super::groups::{MAX_MEMBERSHIPS, MEMBERSHIP};
use super::{Body, DaemonId, Epoch, Frame, Incarnation, MAX_GROUP};

/// Bytes that no frame is to exceed, the four of its length not counted. 64 MiB.
pub const MAX_FRAME: usize = 64 << 20;

/// Bytes that are no frame. The connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The length is over [`MAX_FRAME`].
    #[error("a frame of {0} bytes exceeds the limit of {MAX_FRAME}")]
    TooLong(usize),
    /// The kind is none of those known.
    #[error("unknown frame kind {0}: the other end may be another version")]
    Kind(u8),
    /// The frame ends before its header does.
    #[error("a frame ends within its header")]
    Short,
    /// The frame goes on behind its last field.
    #[error("a frame has {0} bytes too many")]
    Long(usize),
    /// A field has a value that is not allowed.
    #[error("a frame's {0} is not allowed")]
    Field(&'static str),
}

/// Turns frames into bytes.
#[derive(Debug, Default)]
pub struct Encoder {
    numbers: HashMap<usize, u16>,
    sets: Vec<Arc<Destinations>>,
    next: u16,
}

impl Encoder {
    /// The encoder of a new connection.
    pub fn new() -> Encoder {
        Encoder::default()
    }

    /// Appends a frame. The content of data is left to the caller, who appends exactly
    /// [`Body::size`] bytes.
    pub fn encode<B: Body>(&mut self, frame: &Frame<B>, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend([0; 4]);
        match frame {
            Frame::Hello(me) => {
                out.push(HELLO);
                put_incarnation(out, *me);
            }
            Frame::States(states) => {
                let whole = states.iter().all(|state| state.is_whole());
                out.push(if whole { STATES } else { CHANGES });
                put_count(out, states.len());
                states.iter().for_each(|state| put_state(out, state, whole));
            }
            Frame::Groups(update) => {
                out.push(GROUPS);
                put_incarnation(out, update.origin);
                out.extend_from_slice(&update.number.to_be_bytes());
                out.push(u8::from(update.whole));
                out.extend_from_slice(&(update.changes.len() as u32).to_be_bytes());
                for (group, joined) in &update.changes {
                    put_count(out, group.len());
                    out.push(u8::from(*joined));
                    out.extend_from_slice(group);
                }
            }
            Frame::Receipts(receipts) => {
                out.push(RECEIPTS);
                put_count(out, receipts.len());
                for receipt in receipts {
                    out.push(receipt.kind as u8);
                    receipt.numbers().into_iter().for_each(|number| put_varint(out, number));
                }
            }
            Frame::Holdings(holdings) => {
                out.push(HOLDINGS);
                put_count(out, holdings.len());
                for holding in holdings {
                    put_incarnation(out, holding.holder);
                    put_incarnation(out, holding.origin);
                    out.extend_from_slice(&holding.seq.to_be_bytes());
                }
            }
            Frame::Data(data) => self.put_data(out, data),
        }
        let body = frame.body().map_or(0, Body::size);
        let length = (out.len() - start - 4 + body) as u32;
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }

    fn put_data<B>(&mut self, out: &mut Vec<u8>, data: &DataFrame<B>) {
        let key = Arc::as_ptr(&data.set).addr();
        let known = self.numbers.get(&key).copied();
        let number = known.unwrap_or_else(|| self.number(key, &data.set));
        let flags = u8::from(data.resent)
            | if known.is_none() { DEFINES } else { 0 }
            | if data.before.is_some() { BEFORE } else { 0 }
            | if data.note.is_some() { NOTE } else { 0 };
        out.push(DATA);
        put_incarnation(out, data.origin);
        out.extend_from_slice(&data.seq.to_be_bytes());
        out.extend_from_slice(&data.stable.to_be_bytes());
        out.extend_from_slice(&[data.life, flags]);
        out.extend_from_slice(&number.to_be_bytes());
        if known.is_none() {
            out.extend_from_slice(&(data.set.as_slice().len() as u32).to_be_bytes());
            data.set.as_slice().iter().for_each(|&destination| put_incarnation(out, destination));
        }
        for word in data.to.words() {
            out.extend_from_slice(&word.to_be_bytes());
        }
        for &number in data.previous.iter().chain(data.before.iter().flat_map(|before| before.iter())) {
            put_varint(out, if number == 0 { 0 } else { data.seq.saturating_sub(number) });
        }
        data.note.iter().for_each(|note| put_note(out, note));
    }

    /// A number for a set; the oldest set loses its own when all are taken.
    fn number(&mut self, key: usize, set: &Arc<Destinations>) -> u16 {
        let number = self.next;
        self.next = (number + 1) % SETS;
        match self.sets.get_mut(usize::from(number)) {
            Some(old) => {
                self.numbers.remove(&Arc::as_ptr(old).addr());
                *old = set.clone();
            }
            None => self.sets.push(set.clone()),
        }
        self.numbers.insert(key, number);
        number
    }
}

/// Turns bytes into frames.
#[derive(Debug, Default)]
pub struct Decoder {
    sets: Vec<Arc<Destinations>>,
    pool: SharedValues,
}

/// The values that decoders of one process share, so that many daemons there keep each once: of
/// each daemon the newest link state, the newest with all links, and the newest memberships.
#[derive(Clone, Debug, Default)]
pub struct SharedValues(Arc<Mutex<Pooled>>);

#[derive(Debug, Default)]
struct Pooled {
    /// By daemon, and whether the state has all links.
    states: HashMap<(DaemonId, bool), Arc<LinkState>>,
    groups: HashMap<DaemonId, Arc<GroupUpdate>>,
}

impl SharedValues {
    fn state(&self, state: LinkState) -> Arc<LinkState> {
        let key = (state.origin.daemon, state.is_whole());
        share(&mut self.lock().states, key, state, |state| (state.origin.epoch, state.number))
    }

    fn groups(&self, update: GroupUpdate) -> Arc<GroupUpdate> {
        match update.whole {
            true => share(&mut self.lock().groups, update.origin.daemon, update, |update| {
                (update.origin.epoch, update.number)
            }),
            false => Arc::new(update),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pooled> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The known value if it is the same; else the new one, which is known from then on if it is later.
fn share<K: Eq + Hash, V: PartialEq, A: PartialOrd>(
    known: &mut HashMap<K, Arc<V>>,
    key: K,
    value: V,
    age: impl Fn(&V) -> A,
) -> Arc<V> {
    match known.entry(key) {
        Entry::Occupied(entry) if **entry.get() == value => entry.get().clone(),
        Entry::Occupied(mut entry) => {
            let value = Arc::new(value);
            if age(entry.get()) < age(&value) {
                entry.insert(value.clone());
            }
            value
        }
        Entry::Vacant(entry) => entry.insert(Arc::new(value)).clone(),
    }
}

impl Decoder {
    /// The decoder of a new connection.
    pub fn new() -> Decoder {
        Decoder::default()
    }

    /// The decoder of a new connection that shares link states and memberships with others.
    pub fn sharing(pool: SharedValues) -> Decoder {
        Decoder { sets: Vec::new(), pool }
    }

    /// The first frame in `bytes`, and its length, if all of it is there. Data's content is a range
    /// of `bytes`.
    ///
    /// # Errors
    /// [`WireError`] if there can be no frame; the decoder is of no use from then on.
    #[allow(clippy::type_complexity)]
    pub fn decode(&mut self, bytes: &[u8]) -> Result<Option<(Frame<Range<usize>>, usize)>, WireError> {
        let Some(length) = bytes.first_chunk().map(|&length| u32::from_be_bytes(length) as usize) else {
            return Ok(None);
        };
        if length > MAX_FRAME {
            return Err(WireError::TooLong(length));
        }
        let Some(whole) = bytes.get(..4 + length) else { return Ok(None) };
        let kind = *whole.get(4).ok_or(WireError::Short)?;
        let mut reader = Reader { bytes: whole, at: PREFIX };
        let frame = match kind {
            HELLO => Frame::Hello(reader.incarnation()?),
            STATES | CHANGES => {
                let states = reader.many(|reader| reader.state(kind == STATES))?;
                Frame::States(states.into_iter().map(|state| self.pool.state(state)).collect())
            }
            GROUPS => Frame::Groups(self.pool.groups(reader.groups()?)),
            RECEIPTS => Frame::Receipts(reader.many(Reader::receipt)?),
            HOLDINGS => Frame::Holdings(reader.many(Reader::holding)?),
            DATA => Frame::Data(self.data(&mut reader)?),
            other => return Err(WireError::Kind(other)),
        };
        match whole.len() - reader.at {
            0 => Ok(Some((frame, whole.len()))),
            more => Err(WireError::Long(more)),
        }
    }

    fn data(&mut self, reader: &mut Reader<'_>) -> Result<DataFrame<Range<usize>>, WireError> {
        let origin = reader.incarnation()?;
        let (seq, stable) = (reader.u64()?, reader.u64()?);
        let [life, flags] = reader.array()?;
        let number = usize::from(reader.u16()?);
        if flags & DEFINES != 0 {
            let set = Arc::new(reader.set()?);
            let next = number == self.sets.len() && number < usize::from(SETS);
            match self.sets.get_mut(number) {
                Some(slot) => *slot = set,
                None if next => self.sets.push(set),
                None => return Err(WireError::Field("number of a destination set")),
            }
        }
        let set = self.sets.get(number).ok_or(WireError::Field("number of a destination set"))?.clone();
        let to = reader.bits(set.as_slice().len())?;
        let previous = reader.earlier(seq, set.as_slice().len())?;
        let before =
            if flags & BEFORE != 0 { Some(reader.earlier(seq, set.as_slice().len())?) } else { None };
        if seq == 0 || stable >= seq || flags & !(DEFINES | BEFORE | NOTE | 1) != 0 {
            return Err(WireError::Field("sequence number"));
        }
        let note = if flags & NOTE != 0 { Some(Arc::new(reader.note()?)) } else { None };
        let body = reader.at..reader.bytes.len();
        reader.at = body.end;
        let resent = flags & 1 != 0;
        Ok(DataFrame { origin, seq, stable, life, resent, set, previous, before, to, note, body })
    }
}

fn put_incarnation(out: &mut Vec<u8>, incarnation: Incarnation) {
    out.extend_from_slice(&incarnation.daemon.0.to_be_bytes());
    out.extend_from_slice(&incarnation.epoch.0.to_be_bytes());
}

fn put_view_id(out: &mut Vec<u8>, view: ViewId) {
    out.extend_from_slice(&view.counter.to_be_bytes());
    put_incarnation(out, view.sequencer);
}

fn put_note(out: &mut Vec<u8>, note: &Note) {
    let mut begin = |kind| {
        out.push(kind);
        put_count(out, note.group.len());
        out.extend_from_slice(&note.group);
    };
    match &note.kind {
        NoteKind::Submit { view, sent } => {
            begin(SUBMIT);
            put_view_id(out, *view);
            out.extend_from_slice(&sent.to_be_bytes());
        }
        NoteKind::Ordered { view, number, from, sent } => {
            begin(ORDERED);
            put_view_id(out, *view);
            out.extend_from_slice(&number.to_be_bytes());
            put_incarnation(out, *from);
            out.extend_from_slice(&sent.to_be_bytes());
        }
        NoteKind::View(view) => {
            begin(VIEW);
            put_view_id(out, view.id);
            out.push(u8::from(view.after.is_some()));
            if let Some((before, count)) = view.after {
                put_view_id(out, before);
                out.extend_from_slice(&count.to_be_bytes());
            }
            out.extend_from_slice(&(view.members.len() as u32).to_be_bytes());
            view.members.iter().for_each(|&member| put_incarnation(out, member));
        }
        NoteKind::End { view, count } => {
            begin(END);
            put_view_id(out, *view);
            out.extend_from_slice(&count.to_be_bytes());
        }
        NoteKind::Behind { counter } => {
            begin(BEHIND);
            out.extend_from_slice(&counter.to_be_bytes());
        }
    }
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&(count as u16).to_be_bytes());
}

fn put_state(out: &mut Vec<u8>, state: &LinkState, whole: bool) {
    put_incarnation(out, state.origin);
    out.extend_from_slice(&state.number.to_be_bytes());
    if !whole {
        out.extend_from_slice(&state.base.to_be_bytes());
    }
    put_count(out, state.links.len());
    put_count(out, state.hops.len());
    for link in &state.links {
        out.extend_from_slice(&link.peer.0.to_be_bytes());
        out.extend_from_slice(&link.weight.to_be_bytes());
        out.extend_from_slice(&link.cost.to_be_bytes());
        out.extend_from_slice(&link.lot.to_be_bytes());
    }
    for hop in &state.hops {
        out.extend_from_slice(&hop.key.to_be_bytes());
        out.extend_from_slice(&hop.cost.to_be_bytes());
        out.extend_from_slice(&hop.lot.to_be_bytes());
    }
}

fn put_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let found = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk).ok_or(WireError::Short)?;
        self.at += N;
        Ok(*found)
    }

    fn u8(&mut self) -> Result<u8, WireError> {
        self.array().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_be_bytes)
    }

    fn f32(&mut self) -> Result<f32, WireError> {
        self.array().map(f32::from_be_bytes)
    }

    /// Numbers of `count` messages before message `seq`, 0 for none.
    fn earlier(&mut self, seq: u64, count: usize) -> Result<MessageNumbers, WireError> {
        let one = |_| match self.varint()? {
            0 => Ok(0),
            back => seq.checked_sub(back).filter(|&n| n > 0).ok_or(WireError::Field("message before")),
        };
        (0..count).map(one).collect()
    }

    fn varint(&mut self) -> Result<u64, WireError> {
        let mut n = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let part = u64::from(byte & 0x7F);
            n |= part << shift;
            if byte < 0x80 {
                return if part << shift >> shift == part { Ok(n) } else { Err(WireError::Field("number")) };
            }
        }
        Err(WireError::Field("number"))
    }

    fn flag(&mut self) -> Result<bool, WireError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(WireError::Field("flag")),
        }
    }

    fn incarnation(&mut self) -> Result<Incarnation, WireError> {
        Ok(Incarnation { daemon: DaemonId(self.u32()?), epoch: Epoch(self.u64()?) })
    }

    fn many<T>(&mut self, read: impl Fn(&mut Self) -> Result<T, WireError>) -> Result<Vec<T>, WireError> {
        let count = usize::from(self.u16()?);
        (0..count).map(|_| read(self)).collect()
    }

    fn state(&mut self, whole: bool) -> Result<LinkState, WireError> {
        let (origin, number) = (self.incarnation()?, self.u64()?);
        let base = if whole { number } else { self.u64()? };
        let (links, hops) = (self.u16()?, self.u16()?);
        let link = |reader: &mut Self| -> Result<LinkCost, WireError> {
            let (peer, weight) = (DaemonId(reader.u32()?), reader.u16()?);
            Ok(LinkCost { peer, weight, cost: reader.f32()?, lot: reader.f32()? })
        };
        let links = (0..links).map(|_| link(self)).collect::<Result<_, _>>()?;
        let hop = |reader: &mut Self| -> Result<HopCost, WireError> {
            Ok(HopCost { key: reader.u64()?, cost: reader.f32()?, lot: reader.f32()? })
        };
        let hops = (0..hops).map(|_| hop(self)).collect::<Result<_, _>>()?;
        Ok(LinkState { origin, number, base, links, hops })
    }

    fn groups(&mut self) -> Result<GroupUpdate, WireError> {
        let (origin, number, whole) = (self.incarnation()?, self.u64()?, self.flag()?);
        let count = self.u32()? as usize;
        if count > MAX_MEMBERSHIPS / MEMBERSHIP {
            return Err(WireError::Field("number of groups"));
        }
        let mut changes = Vec::new();
        for _ in 0..count {
            let (length, joined) = (usize::from(self.u16()?), self.flag()?);
            if length > MAX_GROUP {
                return Err(WireError::Field("name of a group"));
            }
            let group = self.bytes.get(self.at..self.at + length).ok_or(WireError::Short)?;
            self.at += length;
            changes.push((group.into(), joined));
        }
        Ok(GroupUpdate { origin, number, whole, changes })
    }

    fn receipt(&mut self) -> Result<Receipt, WireError> {
        let kind = match self.u8()? {
            0 => ReceiptKind::Ack,
            1 => ReceiptKind::Gap,
            2 => ReceiptKind::Stable,
            _ => return Err(WireError::Field("kind of receipt")),
        };
        let (origin, receiver) = (self.short_incarnation()?, self.short_incarnation()?);
        Ok(Receipt { kind, origin, receiver, seq: self.varint()? })
    }

    /// An incarnation in two numbers as short as can be.
    fn short_incarnation(&mut self) -> Result<Incarnation, WireError> {
        let daemon = self.varint()?.try_into().map_err(|_| WireError::Field("number of a daemon"))?;
        Ok(Incarnation { daemon: DaemonId(daemon), epoch: Epoch(self.varint()?) })
    }

    fn holding(&mut self) -> Result<Holding, WireError> {
        Ok(Holding { holder: self.incarnation()?, origin: self.incarnation()?, seq: self.u64()? })
    }

    fn set(&mut self) -> Result<Destinations, WireError> {
        let count = self.u32()?;
        let mut daemons = Vec::new();
        for _ in 0..count {
            daemons.push(self.incarnation()?);
        }
        match daemons.is_empty() || !daemons.windows(2).all(|pair| pair[0].daemon < pair[1].daemon) {
            true => Err(WireError::Field("destination set")),
            false => Ok(Destinations::new(daemons)),
        }
    }

    fn view_id(&mut self) -> Result<ViewId, WireError> {
        Ok(ViewId { counter: self.u64()?, sequencer: self.incarnation()? })
    }

    fn note(&mut self) -> Result<Note, WireError> {
        let (kind, length) = (self.u8()?, usize::from(self.u16()?));
        let group = self.bytes.get(self.at..self.at + length).ok_or(WireError::Short)?;
        self.at += length;
        let kind = match kind {
            SUBMIT => NoteKind::Submit { view: self.view_id()?, sent: self.u64()? },
            ORDERED => NoteKind::Ordered {
                view: self.view_id()?,
                number: self.u64()?,
                from: self.incarnation()?,
                sent: self.u64()?,
            },
            VIEW => {
                let id = self.view_id()?;
                let after = if self.flag()? { Some((self.view_id()?, self.u64()?)) } else { None };
                NoteKind::View(Arc::new(MembershipView {
                    id,
                    members: self.set()?.as_slice().to_vec(),
                    after,
                }))
            }
            END => NoteKind::End { view: self.view_id()?, count: self.u64()? },
            BEHIND => NoteKind::Behind { counter: self.u64()? },
            _ => return Err(WireError::Field("note")),
        };
        Ok(Note { group: group.into(), kind })
    }

    fn bits(&mut self, len: usize) -> Result<Bits, WireError> {
        let words = (0..len.div_ceil(64).max(1)).map(|_| self.u64()).collect::<Result<Vec<_>, _>>()?;
        let bits = if len <= 64 { Bits::Few(words[0]) } else { Bits::Many(words) };
        if bits.iter().any(|index| index >= len) {
            return Err(WireError::Field("destination"));
        }
        Ok(bits)
    }
}

/// Another format of contents has another greeting, so that both ends refuse the other version.
const HELLO: u8 = 8;
const STATES: u8 = 2;
const GROUPS: u8 = 3;
const RECEIPTS: u8 = 4;
const HOLDINGS: u8 = 5;
const DATA: u8 = 6;
const CHANGES: u8 = 7;

/// Flag of data that defines its destination set.
const DEFINES: u8 = 2;
/// Flag of data that lists the messages before of the same client.
const BEFORE: u8 = 4;

/// Flag of data with a note about a group's order.
const NOTE: u8 = 8;

const SUBMIT: u8 = 0;
const ORDERED: u8 = 1;
const VIEW: u8 = 2;
const END: u8 = 3;
const BEHIND: u8 = 4;

/// Destination sets that a connection numbers.
const SETS: u16 = 1024;
