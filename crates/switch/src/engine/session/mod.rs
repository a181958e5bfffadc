//! A client's connection, and its frames on their way in.

mod answers;
mod commands;
mod failure;
mod lane;
mod place;
mod read;
mod redis_state;

use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::Arc;

use tollway_law::Time;
use tollway_proto::dispatch::{Answers, Dispatch, Queue, Tag};
use tollway_proto::framing::{Framer, Framing};
use tollway_proto::route::Route;

use self::commands::NONE_UP;
use self::lane::Lane;
use self::redis_state::{Barrier, Redis};
use super::Ready;
use super::core::Core;
use super::held::{Held, HeldQueue};
use crate::config::{Config, MOVED};
use crate::redis;
use crate::stream::Stream;

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
    /// All sessions together hold too much.
    Memory,
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
            End::Memory => "memory",
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
    /// True if complete commands wait in `partial`.
    held_back: bool,
    /// Length of `partial` when `since` was set.
    stretch: usize,
    /// True if what the client sends after the last answer is dropped.
    pub(super) lingers: bool,
    /// The reason of a regular end.
    ends_as: End,
    /// The time at which no more was written to the client.
    shuts: Option<Time>,
    /// Bytes held, as counted in the total.
    counted: usize,
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
            route: config.module(number),
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
            held_back: false,
            stretch: 0,
            lingers: false,
            ends_as: End::Done,
            shuts: None,
            counted: 0,
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
        self.readable |= (ready.readable || ready.closed) && (!self.ended || self.lingers);
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

    /// Ends the session once all answers are written. Bytes that the client sends are dropped.
    pub(super) fn close_after_answers(&mut self) {
        (self.ended, self.lingers) = (true, true);
        self.partial = Queue::default();
        self.since = None;
    }

    /// True if no further command is handled until all before are answered.
    fn is_held(&self) -> bool {
        self.redis.as_ref().is_some_and(|redis| redis.barrier.is_some())
    }

    /// Closes all connections. A client with unanswered frames gets a reset instead of a regular
    /// end.
    pub(super) fn dismiss(&mut self, core: &mut Core, regularly: bool) {
        core.memory -= std::mem::take(&mut self.counted);
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
        let held = self.memory();
        core.memory = core.memory + held - std::mem::replace(&mut self.counted, held);
        if core.memory as u64 > self.config.limits.memory {
            self.shed(core)?;
        }
        let idle = self.dispatch.open() == 0 && self.parked.is_empty();
        if let Some(redis) = &mut self.redis
            && let Some(barrier) = redis.barrier
        {
            redis.barrier = Some(barrier).filter(|_| !idle);
            if idle {
                self.go_on(core);
            }
        }
        if self.ended && idle && self.out.is_empty() {
            if !self.lingers || self.gone || self.closed {
                return Err(self.ends_as);
            }
            if self.shuts.is_none() {
                self.shuts = Some(core.now);
                self.stream.finish();
                self.go_on(core);
            }
            return Ok(());
        }
        let answers = self.out.len() <= self.config.limits.session_buffer;
        let more = answers && (0..self.lanes.len()).any(|at| self.may_read(at));
        if more || (self.paused && self.readable && !self.is_full() && !self.is_held()) {
            self.go_on(core);
        }
        Ok(())
    }

    /// Gives up frames that are long and incomplete, since all sessions together hold too much.
    fn shed(&mut self, core: &mut Core) -> Result<(), End> {
        let why = format!("all sessions hold more than limits.memory, {} bytes", self.config.limits.memory);
        for member in 0..self.lanes.len() {
            let lane = self.lanes[member].as_ref();
            if lane.is_some_and(|lane| lane.partial.len() > MOVED) {
                self.lane_failed(core, member, why.clone())?;
            }
        }
        match (self.partial.len() > MOVED, &self.redis) {
            (false, _) => Ok(()),
            (true, None) => Err(End::Memory),
            (true, Some(_)) => {
                self.refuse(core, &why, true);
                Ok(())
            }
        }
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
        let barrier = self.redis.as_ref().and_then(|redis| redis.barrier);
        if self.closed && matches!(barrier, Some(Barrier::Blocking(_))) {
            // Redis, too, ends a blocking command whose client has closed.
            return Err(End::Done);
        }
        if self.shuts.is_some_and(|since| past(since, LINGER)) {
            return Err(self.ends_as);
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
                self.answer_for(parked.seq, &redis::error(NONE_UP));
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

/// Time for which a client may go on sending after the last answer.
const LINGER: Time = Time::from_secs(2);
/// Reads in a row from one connection.
const ROUNDS: usize = 4;
