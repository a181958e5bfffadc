//! A link's end: its queue, what the queue costs, and what goes ahead of it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tollway_law::overlay::{Backlog, Cost, CostConfig, Drain};
use tollway_law::{Rate, Time};

use super::bits::Bits;
use super::frame::{DataFrame, GroupUpdate, Holding, Receipt, ReceiptKind};
use super::measure::Measure;
use super::state::Database;
use super::{Body, DaemonId, Frame, Incarnation, LinkConfig};

/// One connection to another daemon. Control goes ahead of data, the newest of each kind only.
#[derive(Clone, Debug)]
pub(super) struct Port<B> {
    pub(super) config: LinkConfig,
    /// The peer, once it has answered.
    pub(super) peer: Option<Incarnation>,
    pub(super) heard: Time,
    /// True if a frame was polled since the last sign of life was due.
    pub(super) spoke: bool,
    pub(super) silent: bool,
    /// True if the last poll found no frame.
    pub(super) idle: bool,
    pub(super) hello: bool,
    /// Origins whose last states the peer lacks, and whether it lacks that with all links.
    states: BTreeMap<DaemonId, bool>,
    groups: VecDeque<Arc<GroupUpdate>>,
    receipts: BTreeMap<(Incarnation, Incarnation, bool), Receipt>,
    receipts_due: bool,
    holdings: BTreeMap<(Incarnation, Incarnation), Holding>,
    data: VecDeque<DataFrame<B>>,
    /// The messages in `data` that are sent again, and the destinations of those copies.
    copies: BTreeMap<(Incarnation, u64), Bits>,
    pub(super) queued: u64,
    backlog: Backlog,
    drain: Drain,
    pub(super) cost: Cost,
    pub(super) price: f64,
    pub(super) announced: f64,
    pub(super) sent_data: u64,
    pub(super) sent_control: u64,
    /// Frames of all else than data.
    pub(super) control_frames: u64,
    pub(super) measure: Measure,
}

impl<B: Body> Port<B> {
    pub(super) fn new(now: Time, config: LinkConfig, cost: &CostConfig) -> Port<B> {
        Port {
            config,
            peer: None,
            heard: now,
            spoke: true,
            silent: false,
            idle: true,
            hello: true,
            states: BTreeMap::new(),
            groups: VecDeque::new(),
            receipts: BTreeMap::new(),
            receipts_due: false,
            holdings: BTreeMap::new(),
            data: VecDeque::new(),
            copies: BTreeMap::new(),
            queued: 0,
            backlog: Backlog::new(cost.window, now),
            drain: Drain::new(config.rate, now),
            cost: Cost::new(cost, config.rate),
            price: 0.0,
            announced: 0.0,
            sent_data: 0,
            sent_control: 0,
            control_frames: 0,
            measure: Measure::new(now),
        }
    }

    pub(super) fn messages(&self) -> usize {
        self.data.len()
    }

    /// Bytes and frames of all but data polled so far.
    pub(super) fn control_sent(&self) -> (u64, u64) {
        (self.sent_control, self.control_frames)
    }

    pub(super) fn rate(&self) -> Rate {
        self.drain.rate()
    }

    pub(super) fn push_state(&mut self, origin: DaemonId, whole: bool) {
        *self.states.entry(origin).or_default() |= whole;
    }

    /// Answers how many changes of groups wait.
    pub(super) fn push_groups(&mut self, update: Arc<GroupUpdate>) -> usize {
        self.groups.push_back(update);
        self.groups.len()
    }

    /// All memberships go, in the place of changes that wait.
    pub(super) fn set_groups(&mut self, whole: Vec<Arc<GroupUpdate>>) {
        self.groups = whole.into();
    }

    /// Of two reports the later replaces the earlier, but one that lacks something stays so until
    /// it is sent. Answers whether receipts are to go now; if not, they may wait for others.
    pub(super) fn push_receipt(&mut self, receipt: Receipt) -> bool {
        let stable = receipt.kind == ReceiptKind::Stable;
        let waiting = self.receipts.entry((receipt.origin, receipt.receiver, stable)).or_insert(receipt);
        waiting.seq = waiting.seq.max(receipt.seq);
        waiting.kind = waiting.kind.max(receipt.kind);
        self.receipts_due |= receipt.kind == ReceiptKind::Gap || self.receipts.len() >= RECEIPTS_AT_ONCE;
        self.receipts_due
    }

    /// Receipts that wait for others go now.
    pub(super) fn release_receipts(&mut self) {
        self.receipts_due = true;
    }

    pub(super) fn push_holding(&mut self, holding: Holding) {
        self.holdings.insert((holding.origin, holding.holder), holding);
    }

    /// Queues a message, unless a copy for the same destinations waits already: while links flap,
    /// the same copies are due again and again.
    pub(super) fn push_data(&mut self, now: Time, data: DataFrame<B>) {
        if data.resent {
            let waiting = self.copies.get(&(data.origin, data.seq));
            if waiting.is_some_and(|waiting| waiting.and(&data.to) == data.to) {
                return;
            }
            self.copies.insert((data.origin, data.seq), data.to.clone());
        }
        self.queued += data.size() as u64;
        self.data.push_back(data);
        self.backlog.set(now, self.queued);
        self.measure.set_queue(now, self.data.len());
    }

    /// The next frame, control first.
    pub(super) fn poll(&mut self, now: Time, me: Incarnation, database: &Database) -> Option<Frame<B>> {
        let frame = self.control(me, database);
        self.idle = false;
        if let Some(frame) = frame {
            self.spoke = true;
            let size = frame.size() as u64;
            self.sent_control += size;
            self.control_frames += 1;
            self.drain.take(size, self.queued);
            return Some(frame);
        }
        let Some(data) = self.data.pop_front().filter(|_| self.peer.is_some()) else {
            self.idle = true;
            return None;
        };
        if data.resent {
            self.copies.remove(&(data.origin, data.seq));
        }
        self.spoke = true;
        let size = data.size() as u64;
        self.queued -= size;
        self.sent_data += size;
        self.backlog.set(now, self.queued);
        self.measure.set_queue(now, self.data.len());
        self.drain.take(size, self.queued);
        Some(Frame::Data(data))
    }

    fn control(&mut self, me: Incarnation, database: &Database) -> Option<Frame<B>> {
        if std::mem::take(&mut self.hello) {
            return Some(Frame::Hello(me));
        }
        self.peer?;
        while !self.states.is_empty() {
            let mut bundle = Vec::new();
            while bundle.len() < STATES_AT_ONCE
                && let Some((origin, whole)) = self.states.pop_first()
            {
                let Some(known) = database.get(origin) else { continue };
                bundle.extend((whole && !known.last.is_whole()).then(|| known.whole.clone()));
                bundle.push(known.last.clone());
            }
            if !bundle.is_empty() {
                return Some(Frame::States(bundle));
            }
        }
        if let Some(update) = self.groups.pop_front() {
            return Some(Frame::Groups(update));
        }
        if std::mem::take(&mut self.receipts_due) && !self.receipts.is_empty() {
            self.receipts_due = self.receipts.len() > RECEIPTS_AT_ONCE;
            return Some(Frame::Receipts(pop_values(&mut self.receipts)));
        }
        (!self.holdings.is_empty()).then(|| Frame::Holdings(pop_values(&mut self.holdings)))
    }

    /// Begins to measure after an idle time.
    pub(super) fn restart(&mut self, now: Time) {
        self.backlog.sample(now);
        self.drain.sample(now, self.queued);
    }

    /// Ends an update interval: the price follows the backlog and the rate.
    pub(super) fn sample(&mut self, now: Time) {
        self.cost.set_rate(self.drain.sample(now, self.queued));
        self.price = self.cost.price(self.backlog.sample(now));
        self.measure.set_price(now, self.price);
    }

    /// True if the next sample would change nothing.
    pub(super) fn calm(&self) -> bool {
        self.queued == 0 && self.price == 0.0 && self.announced == 0.0
    }
}

/// The first entries of a map, as many as one frame takes.
fn pop_values<K: Ord, V>(map: &mut BTreeMap<K, V>) -> Vec<V> {
    std::iter::from_fn(|| map.pop_first()).take(RECEIPTS_AT_ONCE).map(|(_, value)| value).collect()
}

/// A kilobyte or so in a frame, so that control delays no data for long.
const STATES_AT_ONCE: usize = 16;
const RECEIPTS_AT_ONCE: usize = 32;
