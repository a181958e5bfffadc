//! A client's connection, and its frames on their way in.

mod commands;
mod lane;

use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::Arc;

use tollway_law::Time;
use tollway_proto::dispatch::{Answers, Dispatch, Queue, Tag};
use tollway_proto::framing::{Framer, Framing};
use tollway_proto::route::{Item, Policy, Route};

use self::commands::Redis;
use self::lane::Lane;
use super::Ready;
use super::core::{Core, Planned};
use super::held::{Held, HeldQueue};
use crate::config::{Config, SCRATCH};
use crate::redis::{self, RedisCommand};
use crate::stream::{Got, Stream};

/// The reason a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The client had no more to send, and all frames are done.
    Done,
    /// The client's bytes do not follow the framing, or a frame is too long.
    Malformed,
    /// A frame exceeded the time limit for its arrival.
    Dripped,
    /// The session was idle for too long.
    Idle,
    /// Frames were not answered, and could not be sent again.
    Unanswered,
    /// No member accepted a frame for too long.
    NoMember,
    /// The switch ends.
    Closing,
}

impl End {
    pub(super) fn word(self) -> &'static str {
        match self {
            End::Done => "done",
            End::Malformed => "malformed",
            End::Dripped => "dripped",
            End::Idle => "idle",
            End::Unanswered => "unanswered",
            End::NoMember => "no-member",
            End::Closing => "closing",
        }
    }
}

/// One client's connection.
pub(super) struct Session {
    pub(super) id: usize,
    /// The configuration in force when it began.
    pub(super) config: Arc<Config>,
    /// Its number, hashed.
    pub(super) scrambled: u64,
    pub(super) stream: Stream,
    pub(super) peer: SocketAddr,
    pub(super) local: SocketAddr,
    readable: bool,
    pub(super) writable: bool,
    closed: bool,
    /// True if the client sends no more.
    pub(super) ended: bool,
    /// True if the client no longer takes answers.
    pub(super) gone: bool,
    framer: Framer,
    partial: Queue,
    /// Start of the incomplete frame, or of the handshake.
    since: Option<Time>,
    pub(super) last: Time,
    pub(super) dispatch: Dispatch<Held>,
    pub(super) route: Box<dyn Route + Send>,
    pub(super) lanes: Vec<Option<Box<Lane>>>,
    pub(super) held: Vec<HeldQueue>,
    pub(super) held_bytes: usize,
    pub(super) local_held: HeldQueue,
    pub(super) parked: VecDeque<Parked>,
    parked_bytes: usize,
    parked_since: Time,
    pub(super) out: Queue,
    pub(super) client: u32,
    pub(super) redis: Option<Redis>,
    pub(super) polls_acks: bool,
    /// True if it is in the list of sessions with work.
    listed: bool,
    paused: bool,
    identified: bool,
}

/// A frame without an available member.
pub(super) struct Parked {
    seq: u64,
    tag: Tag,
    frame: Vec<u8>,
}

impl Session {
    pub(super) fn new(
        core: &Core,
        id: usize,
        number: u64,
        stream: Stream,
        (peer, local): (SocketAddr, SocketAddr),
        client: u32,
    ) -> Session {
        let config = Arc::clone(&core.config);
        let since = stream.is_handshaking().then_some(core.now);
        Session {
            id,
            scrambled: core.hash.of(&number.to_le_bytes()),
            identified: since.is_none(),
            stream,
            peer,
            local,
            readable: true,
            writable: true,
            closed: false,
            ended: false,
            gone: false,
            framer: Framer::new(config.framing, config.limits.frame),
            partial: Queue::default(),
            since,
            last: core.now,
            dispatch: Dispatch::new(config.rules),
            route: config.policy.module(number),
            lanes: Vec::new(),
            held: Vec::new(),
            held_bytes: 0,
            local_held: HeldQueue::default(),
            parked: VecDeque::new(),
            parked_bytes: 0,
            parked_since: core.now,
            out: Queue::default(),
            client,
            redis: (config.framing == Framing::Resp).then(Redis::default),
            polls_acks: false,
            listed: false,
            paused: false,
            config,
        }
    }

    /// Bytes that the session holds.
    pub(super) fn memory(&self) -> usize {
        let lanes: usize = self.lanes.iter().flatten().map(|lane| lane.partial.len()).sum();
        self.partial.len()
            + self.dispatch.bytes()
            + self.parked_bytes
            + self.out.len()
            + self.held_bytes
            + lanes
    }

    /// True if the queues are full, so that no more is read from the client.
    fn is_full(&self) -> bool {
        let most = self.config.limits.session_buffer;
        self.dispatch.bytes() + self.parked_bytes > most || self.out.len() > most || self.held_bytes > most
    }

    /// Handles a readiness event of the client's connection.
    pub(super) fn is_ready(&mut self, ready: Ready) {
        self.closed |= ready.closed;
        self.readable |= (ready.readable || ready.closed) && !self.ended;
        self.writable |= ready.writable;
    }

    /// Schedules the session's next turn.
    pub(super) fn go_on(&mut self, core: &mut Core) {
        if !std::mem::replace(&mut self.listed, true) {
            core.again.push(self.id);
        }
    }

    /// Does all work that is possible now.
    pub(super) fn turn(&mut self, core: &mut Core, scratch: &mut [u8]) -> Result<(), End> {
        self.listed = false;
        self.flush_out(core);
        self.pump(core, scratch)?;
        for member in 0..self.lanes.len() {
            self.write_lane(core, member)?;
        }
        self.pump_lanes(core, scratch)?;
        self.after(core)
    }

    /// Reads frames from the client while it has some and there is room.
    pub(super) fn pump(&mut self, core: &mut Core, scratch: &mut [u8]) -> Result<(), End> {
        for _ in 0..ROUNDS {
            self.paused = self.is_full();
            if !self.readable || self.ended || self.paused {
                return Ok(());
            }
            let kept = self.partial.len();
            let in_place = kept > MOVED;
            let from = if in_place { 0 } else { kept };
            scratch[..from].copy_from_slice(&self.partial.as_slice()[..from]);
            let got = match self.stream.read(&mut scratch[from..from + SCRATCH]) {
                Ok(got) => got,
                // Frames received before are still sent.
                Err(_) => {
                    self.gone = true;
                    Got::End
                }
            };
            match got {
                Got::Nothing => {
                    self.readable = false;
                    return Ok(());
                }
                Got::End => {
                    (self.readable, self.ended) = (false, true);
                    core.counters.torn += u64::from(!self.partial.is_empty());
                    self.partial = Queue::default();
                    self.since = None;
                    return Ok(());
                }
                Got::Bytes { len, drained } => {
                    self.readable = !drained || self.closed;
                    self.last = core.now;
                    self.identify(core);
                    let left = if in_place {
                        self.partial.push(&scratch[..len]);
                        let mut whole = std::mem::take(&mut self.partial);
                        let used = self.cut(core, whole.as_slice())?;
                        whole.consume(used);
                        self.partial = whole;
                        used > 0
                    } else {
                        let whole = &scratch[..from + len];
                        let used = self.cut(core, whole)?;
                        self.partial.consume(usize::MAX);
                        self.partial.push(&whole[used..]);
                        used > 0
                    };
                    self.since = match (self.partial.is_empty(), left, self.since) {
                        (true, _, _) => None,
                        (false, false, Some(since)) => Some(since),
                        _ => Some(core.now),
                    };
                }
            }
        }
        if self.readable {
            self.go_on(core);
        }
        Ok(())
    }

    /// Identifies a client by its certificate, once there is one.
    fn identify(&mut self, core: &mut Core) {
        if !self.identified && !self.stream.is_handshaking() {
            self.identified = true;
            let name = self.stream.certified_name();
            self.becomes(core, None, name.as_deref());
        }
    }

    /// Moves the session to another client, if that has room for it.
    pub(super) fn becomes(&mut self, core: &mut Core, user: Option<&str>, certified: Option<&str>) {
        if user.is_none() && certified.is_none() {
            return;
        }
        let identity = core.identify(self.peer.ip().to_canonical(), user, certified);
        let Some(new) = core.enter(identity) else { return };
        let old = self.client;
        for at in 0..self.lanes.len() {
            core.cluster.transfer(at, old, new, self.charged(at));
            let lane = self.lanes[at].as_mut();
            if lane.is_some_and(|lane| std::mem::take(&mut lane.waiting)) {
                core.cluster.forget(at, old, self.id as u64);
            }
        }
        self.client = new;
        core.leave(old);
        self.go_on(core);
    }

    /// Splits `bytes` into frames and dispatches each. Returns the number of bytes consumed.
    fn cut(&mut self, core: &mut Core, bytes: &[u8]) -> Result<usize, End> {
        let (mut at, mut frames) = (0, 0);
        let failed = loop {
            match self.framer.next(&bytes[at..]) {
                Ok(Some(len)) => {
                    self.take(core, bytes, at, len)?;
                    at += len;
                    frames += 1;
                }
                Ok(None) => break false,
                Err(_) => break true,
            }
        };
        self.send_planned(core, bytes)?;
        core.counters.frames += frames;
        core.counters.bytes += at as u64;
        if let Some(client) = core.client(self.client) {
            client.frames += frames;
            client.bytes += at as u64;
        }
        if failed { Err(End::Malformed) } else { Ok(at) }
    }

    /// Selects the destination of the frame at `at`.
    #[inline]
    fn take(&mut self, core: &mut Core, bytes: &[u8], at: usize, len: usize) -> Result<(), End> {
        let frame = &bytes[at..at + len];
        if self.redis.is_some() {
            return self.take_command(core, bytes, at, len);
        }
        let key = match self.config.policy {
            Policy::ByKey => core.hash.of(self.config.key.of(frame)),
            _ => 0,
        };
        self.plan(core, Item { session: self.scrambled, key, size: len as u32 }, frame, at);
        Ok(())
    }

    #[inline]
    pub(super) fn plan(&mut self, core: &mut Core, item: Item, frame: &[u8], at: usize) {
        let seq = self.dispatch.number(Tag::Client);
        let Some(member) = self.route.pick(&item, &core.candidates) else {
            self.park(core, seq, Tag::Client, frame.to_vec());
            return;
        };
        core.candidates[member].outstanding += frame.len() as u64;
        let plan = &mut core.plans[member];
        if plan.is_empty() {
            core.planned.push(member);
        }
        plan.push(Planned { seq, at: at as u32, len: frame.len() as u32 });
    }

    /// Puts an answer of the switch in the place of a member's.
    pub(super) fn answer_for(&mut self, seq: u64, answer: &[u8]) {
        let held = self.local_held.push(Held::LOCAL, answer);
        self.held_bytes += answer.len();
        self.dispatch.place(seq, held);
        self.deliver();
    }

    /// Moves answers that are due to the output queue.
    pub(super) fn deliver(&mut self) {
        while let Some(held) = self.dispatch.deliver() {
            self.deliver_one(held);
        }
    }

    pub(super) fn deliver_one(&mut self, held: Held) {
        let from = match held.lane {
            Held::LOCAL => Some(&mut self.local_held),
            lane => self.held.get_mut(lane as usize),
        };
        if let Some(from) = from {
            from.take(held, &mut self.out);
            self.held_bytes -= held.len as usize;
        }
    }

    /// Keeps a frame until a member is up.
    pub(super) fn park(&mut self, core: &Core, seq: u64, tag: Tag, frame: Vec<u8>) {
        if self.parked.is_empty() {
            self.parked_since = core.now;
        }
        self.parked_bytes += frame.len();
        self.parked.push_back(Parked { seq, tag, frame });
    }

    /// Sends frames that waited for a member.
    pub(super) fn unpark(&mut self, core: &mut Core) -> Result<(), End> {
        for parked in std::mem::take(&mut self.parked) {
            self.parked_bytes -= parked.frame.len();
            self.reroute(core, parked.seq, parked.tag, &parked.frame)?;
        }
        Ok(())
    }

    /// Sends a frame with a number and without a member.
    pub(super) fn reroute(&mut self, core: &mut Core, seq: u64, tag: Tag, frame: &[u8]) -> Result<(), End> {
        let key = match (&self.redis, self.config.policy) {
            (Some(_), _) => match redis::read(frame, |_| None) {
                RedisCommand::Keyed(key) => core.hash.of(key),
                _ => self.scrambled,
            },
            (None, Policy::ByKey) => core.hash.of(self.config.key.of(frame)),
            _ => 0,
        };
        let item = Item { session: self.scrambled, key, size: frame.len() as u32 };
        match self.route.pick(&item, &core.candidates) {
            Some(member) => self.place_at(core, member, seq, tag, frame),
            None => {
                self.park(core, seq, tag, frame.to_vec());
                Ok(())
            }
        }
    }

    pub(super) fn place_at(
        &mut self,
        core: &mut Core,
        member: usize,
        seq: u64,
        tag: Tag,
        frame: &[u8],
    ) -> Result<(), End> {
        core.candidates[member].outstanding += frame.len() as u64;
        self.open_lane(core, member);
        self.dispatch.carry(member, seq, tag, frame, 0);
        self.flush_lane(core, member)
    }

    /// Sends the planned frames of `bytes`, member by member.
    pub(super) fn send_planned(&mut self, core: &mut Core, bytes: &[u8]) -> Result<(), End> {
        let mut planned = std::mem::take(&mut core.planned);
        for member in planned.drain(..) {
            let mut plan = std::mem::take(&mut core.plans[member]);
            let done = self.send(core, member, bytes, &plan);
            plan.clear();
            core.plans[member] = plan;
            done?;
        }
        core.planned = planned;
        Ok(())
    }

    /// Sends frames of `bytes` to a member: part at once, and the rest when it takes more.
    fn send(&mut self, core: &mut Core, member: usize, bytes: &[u8], plan: &[Planned]) -> Result<(), End> {
        self.open_lane(core, member);
        let clear = self.dispatch.is_clear(member);
        let (now, client) = (core.now, self.client);
        let mut left = 0;
        if let Some(lane) = self.lanes.get_mut(member).and_then(Option::as_mut)
            && clear
            && lane.is_ready()
        {
            let room = core.cluster.room(now, member, client);
            match lane.write_frames(bytes, plan, room) {
                Ok(written) => left = written,
                Err(error) => {
                    self.submit(member, bytes, plan, 0);
                    return self.lane_failed(core, member, error.to_string());
                }
            }
        }
        let before = self.dispatch.outstanding(member) + left as u64;
        let one_way = self.config.rules.answers == Answers::None;
        if one_way && let Some(lane) = self.lanes.get(member).and_then(Option::as_ref) {
            // Bytes that the member's kernel already has are not kept.
            let written = self.dispatch.written(member) + left as u64;
            self.dispatch.acknowledged(member, written.saturating_sub(lane.stream.unacknowledged()));
        }
        self.submit(member, bytes, plan, left);
        self.sent(core, member, left as u64);
        if one_way {
            let after = self.dispatch.outstanding(member);
            self.drained(core, member, before - after);
            self.poll_acknowledgements(core, after);
        }
        if self.dispatch.waiting(member) > 0 { self.flush_lane(core, member) } else { Ok(()) }
    }

    fn submit(&mut self, member: usize, bytes: &[u8], plan: &[Planned], mut written: usize) {
        let all: usize = plan.iter().map(|planned| planned.len as usize).sum();
        self.dispatch.expect(member, all - written);
        for planned in plan {
            let part = written.min(planned.len as usize);
            written -= part;
            self.dispatch.carry(member, planned.seq, Tag::Client, planned.of(bytes), part);
        }
    }

    /// Writes answers to the client.
    pub(super) fn flush_out(&mut self, core: &mut Core) {
        while self.writable && !self.gone && !self.out.is_empty() {
            match self.stream.write(&[IoSlice::new(self.out.as_slice())]) {
                Ok(len) => {
                    self.writable = len == self.out.len();
                    self.out.consume(len);
                    self.last = core.now;
                }
                Err(_) => self.is_gone(),
            }
        }
        if self.gone {
            self.out.consume(usize::MAX);
        } else if self.writable {
            match self.stream.flush() {
                Ok(all) => self.writable = all,
                Err(_) => self.is_gone(),
            }
        }
    }

    /// Records that the client no longer takes answers. Its frames are still sent.
    pub(super) fn is_gone(&mut self) {
        (self.gone, self.ended, self.readable) = (true, true, false);
        self.partial = Queue::default();
        self.since = None;
        self.out.consume(usize::MAX);
    }

    /// Stops reading from the client: frames received so far are still sent.
    pub(super) fn is_ending(&mut self) {
        (self.ended, self.readable) = (true, false);
    }

    /// Closes all connections. A client with unanswered frames gets a reset instead of a regular
    /// end.
    pub(super) fn dismiss(&mut self, core: &mut Core, regularly: bool) {
        for member in 0..self.lanes.len() {
            let (outstanding, waiting) =
                (self.dispatch.outstanding(member), self.dispatch.waiting(member) as u64);
            core.cluster.on_lost(core.now, member, self.client, self.charged(member));
            let at = &mut core.candidates[member].outstanding;
            *at = at.saturating_sub(outstanding + waiting);
            core.drained.push(member);
            if let Some(lane) = &mut self.lanes[member] {
                lane.stream.finish();
                core.members[member].lanes -= 1;
                if lane.waiting {
                    core.cluster.forget(member, self.client, self.id as u64);
                }
            }
        }
        if regularly { self.stream.finish() } else { self.stream.break_off() }
    }

    /// Finishes an event: ends the session if it is done, and schedules it if work is left.
    pub(super) fn after(&mut self, core: &mut Core) -> Result<(), End> {
        self.flush_out(core);
        if self.ended && self.dispatch.open() == 0 && self.parked.is_empty() && self.out.is_empty() {
            return Err(End::Done);
        }
        let answers = self.out.len() <= self.config.limits.session_buffer;
        let more = answers && (0..self.lanes.len()).any(|at| self.may_read(at));
        if more || (self.paused && self.readable && !self.is_full()) {
            self.go_on(core);
        }
        Ok(())
    }

    /// Frees the memory of empty queues.
    fn release(&mut self) {
        let lanes = self.lanes.iter_mut().flatten().map(|lane| &mut lane.partial);
        [&mut self.partial, &mut self.out].into_iter().chain(lanes).for_each(Queue::release);
        self.held.iter_mut().for_each(HeldQueue::release);
        self.local_held.release();
        self.dispatch.release();
    }

    /// Checks time limits.
    pub(super) fn sweep(&mut self, core: &mut Core) -> Result<(), End> {
        self.release();
        let (now, limits) = (core.now, self.config.limits);
        let past = |since: Time, most: Time| now.saturating_sub(since) > most;
        if self.paused {
            // It is not the client that keeps its frame from coming.
            self.since = self.since.map(|_| now);
        } else if self.since.is_some_and(|since| past(since, limits.frame_time)) {
            return Err(End::Dripped);
        }
        if self.dispatch.open() == 0 && past(self.last, limits.idle_time) {
            return Err(End::Idle);
        }
        if !self.parked.is_empty() && past(self.parked_since, limits.answer_time) && !self.waits_for_ever() {
            if self.redis.is_none() {
                return Err(End::NoMember);
            }
            for parked in std::mem::take(&mut self.parked) {
                self.parked_bytes -= parked.frame.len();
                self.dispatch.give_up();
                self.forget_setup(parked.seq);
                self.answer_for(parked.seq, &redis::error("no server accepts commands now"));
            }
        }
        for member in 0..self.lanes.len() {
            self.sweep_lane(core, member)?;
        }
        self.after(core)
    }

    /// True if one-way frames may wait for a member without limit, since an end would lose them.
    fn waits_for_ever(&self) -> bool {
        self.config.rules.answers == Answers::None
    }
}

/// Up to this length an incomplete frame is moved to the read buffer; a longer one stays.
pub(super) const MOVED: usize = 64 << 10;
/// Reads in a row from one connection.
const ROUNDS: usize = 4;
