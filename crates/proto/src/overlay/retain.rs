//! An origin's messages until all destinations have acknowledged them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use tollway_law::Time;

use super::bits::Bits;
use super::frame::{DataFrame, Destinations, MessageNumbers, Note};
use super::{Body, ClientId, DaemonId, Incarnation, Undelivered};

/// Messages accepted here, and what each destination has of them.
#[derive(Clone, Debug)]
pub(super) struct Outbound<B> {
    me: Incarnation,
    /// The number of the first message kept; all before it are stable.
    base: u64,
    kept: VecDeque<Option<Kept<B>>>,
    bytes: u64,
    chains: BTreeMap<Incarnation, Chain>,
    /// Messages given up or recalled, without those of ordered groups.
    pub(super) undelivered: VecDeque<Undelivered<B>>,
}

#[derive(Clone, Debug)]
struct Kept<B> {
    data: DataFrame<B>,
    /// Destinations that have not acknowledged it.
    waiting: Bits,
}

/// The messages to one destination.
#[derive(Clone, Debug, Default)]
pub(super) struct Chain {
    /// The last message sent, and the last acknowledged.
    last: u64,
    acked: u64,
    outstanding: VecDeque<(u64, ClientId)>,
    /// The client of the last message, and the last outstanding one of each client.
    last_by: Option<ClientId>,
    by_client: BTreeMap<ClientId, u64>,
    /// Fruitless probes since the last acknowledgement that brought something new.
    pub(super) probes: u32,
    /// The message of the last probe, until an acknowledgement brings something new.
    probed: Option<u64>,
    resent_at: Option<Time>,
    /// The message whose acknowledgement is timed, and when it was sent; none that was sent again.
    timed: Option<(u64, Time)>,
    /// The time from a message to its acknowledgement: the last, or what is left of a longer one.
    delay: Time,
    /// Outstanding messages that the destination receives without their content.
    recalled: BTreeSet<u64>,
}

/// Consequences of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Acked {
    /// The rest of the destination's messages is to be sent again.
    pub(super) resend: bool,
    /// It follows a probe, and does not tell whether the rest is lost.
    pub(super) unclear: bool,
    /// The destination lacks something still.
    pub(super) outstanding: bool,
    /// Bytes kept have become fewer.
    pub(super) freed: bool,
    /// The destination asks what is stable: it tells nothing new, and all that it told of is.
    pub(super) stable: bool,
}

impl Chain {
    /// The time after which an acknowledgement is late: twice the time that one took, or `least`.
    /// Messages may wait in a connection and in queues below it for many seconds.
    pub(super) fn late(&self, least: Time) -> Time {
        least.max(self.delay * 2)
    }

    /// Ends the timing of a message that `seq` acknowledges.
    fn measure(&mut self, now: Time, seq: u64) {
        if let Some((_, sent)) = self.timed.take_if(|(timed, _)| *timed <= seq) {
            let left = Time(self.delay.0 - self.delay.0 / 8);
            self.delay = now.saturating_sub(sent).max(left);
        }
    }
}

impl<B: Body> Outbound<B> {
    pub(super) fn new(me: Incarnation) -> Outbound<B> {
        Outbound {
            me,
            base: 1,
            kept: VecDeque::new(),
            bytes: 0,
            chains: BTreeMap::new(),
            undelivered: VecDeque::new(),
        }
    }

    /// Bytes of content kept.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn stable(&self) -> u64 {
        self.base - 1
    }

    /// Numbers and keeps a client's message to some destinations.
    pub(super) fn send(
        &mut self,
        now: Time,
        by: ClientId,
        set: &Arc<Destinations>,
        note: Option<Arc<Note>>,
        body: B,
    ) -> DataFrame<B> {
        let seq = self.base + self.kept.len() as u64;
        let mut previous = MessageNumbers::with_capacity(set.as_slice().len());
        let mut before: Option<MessageNumbers> = None;
        for &destination in set.as_slice() {
            let chain = self.chains.entry(destination).or_default();
            chain.outstanding.push_back((seq, by));
            chain.timed.get_or_insert((seq, now));
            let last = std::mem::replace(&mut chain.last, seq);
            let own = chain.by_client.insert(by, seq).unwrap_or(0);
            let same = chain.last_by.replace(by) == Some(by);
            let own = if same { last } else { own };
            match &mut before {
                Some(before) => before.push(own),
                None if own == last => {}
                None => before = Some(previous.iter().copied().chain([own]).collect()),
            }
            previous.push(last);
        }
        let all = Bits::all(set.as_slice().len());
        self.bytes += body.size() as u64;
        let data = DataFrame {
            origin: self.me,
            seq,
            stable: self.stable(),
            life: LIFE,
            resent: false,
            set: set.clone(),
            previous,
            before,
            to: all.clone(),
            note,
            body,
        };
        self.kept.push_back(Some(Kept { data: data.clone(), waiting: all }));
        data
    }

    /// A destination has all messages up to `seq`; with `gap` it lacks some between that and what
    /// came later. Resends are at least `pause` apart, and an acknowledgement's time.
    ///
    /// All messages after a probe's are lost only if its copy is the last one that came.
    pub(super) fn ack(
        &mut self,
        now: Time,
        from: Incarnation,
        seq: u64,
        gap: bool,
        pause: Time,
    ) -> Option<Acked> {
        let chain = self.chains.get_mut(&from)?;
        let progress = seq > chain.acked;
        chain.measure(now, seq);
        chain.acked = chain.acked.max(seq.min(chain.last));
        let before = self.bytes;
        while let Some(&(first, by)) = chain.outstanding.front().filter(|&&(first, _)| first <= seq) {
            chain.outstanding.pop_front();
            chain.recalled.remove(&first);
            if chain.by_client.get(&by) == Some(&first) {
                chain.by_client.remove(&by);
            }
            release(&mut self.kept, self.base, &mut self.bytes, first, from.daemon);
        }
        let outstanding = !chain.outstanding.is_empty();
        let rested = chain.resent_at.is_none_or(|at| now >= at.saturating_add(chain.late(pause)));
        let resend = outstanding && rested && (gap || (chain.probed == Some(seq) && progress));
        let unclear = progress && chain.probed.is_some() && !resend;
        if progress {
            (chain.probes, chain.probed) = (0, None);
        }
        if resend {
            (chain.resent_at, chain.timed) = (Some(now), None);
        }
        self.trim();
        let stable = !progress && seq <= self.stable();
        Some(Acked { resend, unclear, outstanding, freed: self.bytes < before, stable })
    }

    /// The oldest message that a destination has not acknowledged, to be sent again.
    pub(super) fn probe(&mut self, to: Incarnation) -> Option<DataFrame<B>> {
        let chain = self.chains.get_mut(&to)?;
        let (first, _) = *chain.outstanding.front()?;
        (chain.probed, chain.timed) = (Some(first), None);
        chain.probes += 1;
        self.copy(first, to)
    }

    /// All messages that a destination has not acknowledged.
    pub(super) fn unacknowledged(&self, to: Incarnation) -> Vec<DataFrame<B>> {
        let Some(chain) = self.chains.get(&to) else { return Vec::new() };
        chain.outstanding.iter().filter_map(|&(seq, _)| self.copy(seq, to)).collect()
    }

    fn copy(&self, seq: u64, to: Incarnation) -> Option<DataFrame<B>> {
        let kept = self.kept.get(usize::try_from(seq - self.base).ok()?)?.as_ref()?;
        let mut one = Bits::none(kept.data.set.as_slice().len());
        one.insert(kept.data.set.index_of(to.daemon)?);
        let recalled = self.chains.get(&to).is_some_and(|chain| chain.recalled.contains(&seq));
        let body = if recalled { B::empty() } else { kept.data.body.clone() };
        Some(DataFrame { to: one, resent: true, stable: self.stable(), body, ..kept.data.clone() })
    }

    /// Takes back the unacknowledged messages to a daemon that `which` selects. The daemon receives
    /// them without their content if it comes back.
    pub(super) fn recall(&mut self, to: DaemonId, mut which: impl FnMut(&B) -> bool) {
        for (_, chain) in self.chains.iter_mut().filter(|(at, _)| at.daemon == to) {
            for &(seq, by) in &chain.outstanding {
                let slot = usize::try_from(seq - self.base).ok().and_then(|at| self.kept.get_mut(at));
                let Some(Some(kept)) = slot else { continue };
                if kept.data.note.is_some() || chain.recalled.contains(&seq) || !which(&kept.data.body) {
                    continue;
                }
                chain.recalled.insert(seq);
                let body = kept.data.body.clone();
                self.undelivered.push_back(Undelivered { to, by: Some(by), body });
            }
        }
    }

    /// Gives up on a destination; the number of messages that it lacks.
    pub(super) fn drop_chain(&mut self, to: Incarnation) -> usize {
        let Some(chain) = self.chains.remove(&to) else { return 0 };
        for &(seq, by) in chain.outstanding.iter().filter(|(seq, _)| !chain.recalled.contains(seq)) {
            let slot = usize::try_from(seq - self.base).ok().and_then(|at| self.kept.get(at));
            if let Some(Some(kept)) = slot
                && kept.data.note.is_none()
            {
                let body = kept.data.body.clone();
                self.undelivered.push_back(Undelivered { to: to.daemon, by: Some(by), body });
            }
        }
        for &(seq, _) in &chain.outstanding {
            release(&mut self.kept, self.base, &mut self.bytes, seq, to.daemon);
        }
        self.trim();
        chain.outstanding.len() - chain.recalled.len()
    }

    /// Destinations that have not acknowledged everything.
    pub(super) fn behind(&self) -> impl Iterator<Item = Incarnation> + '_ {
        self.chains.iter().filter(|(_, chain)| !chain.outstanding.is_empty()).map(|(&to, _)| to)
    }

    /// All destinations that messages went to.
    pub(super) fn destinations(&self) -> impl Iterator<Item = Incarnation> + '_ {
        self.chains.keys().copied()
    }

    pub(super) fn chain(&self, to: Incarnation) -> Option<&Chain> {
        self.chains.get(&to)
    }

    /// All destinations that messages went to, by daemon.
    pub(super) fn chains_of(&self, daemon: DaemonId) -> Vec<Incarnation> {
        self.chains.keys().filter(|to| to.daemon == daemon).copied().collect()
    }

    fn trim(&mut self) {
        while let Some(None) = self.kept.front() {
            self.kept.pop_front();
            self.base += 1;
        }
    }
}

/// One destination needs one message no longer.
fn release<B: Body>(
    kept: &mut VecDeque<Option<Kept<B>>>,
    base: u64,
    bytes: &mut u64,
    seq: u64,
    daemon: DaemonId,
) {
    let Some(slot) = usize::try_from(seq - base).ok().and_then(|at| kept.get_mut(at)) else { return };
    let Some(message) = slot else { return };
    if let Some(index) = message.data.set.index_of(daemon) {
        message.waiting.remove(index);
    }
    if message.waiting.is_empty() {
        *bytes -= message.data.body.size() as u64;
        *slot = None;
    }
}

/// Links that a message may pass: "some tens of hops" (§ V).
pub(super) const LIFE: u8 = 64;
