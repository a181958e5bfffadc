//! A session, as a program sees it.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tollway_law::Time;
use tollway_net::hop::Hops;
use tollway_proto::{Packet, SackRanges};

use crate::end::End;
use crate::label::{self, Added, Assembly, Kind, Label, Tags};
use crate::notifier::Notifier;

/// A session with a program, or with a cluster.
///
/// Its methods may be called from several threads. Dropping it finishes this side; what it has sent
/// still arrives while the [`Node`](crate::Node) lives and the other side finishes within 10 s.
#[derive(Debug)]
pub struct Session {
    line: Arc<Line>,
}

/// A frame from the other side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// At a client, the number of the request that it answers; at a server, that of the request.
    /// `None` if it belongs to no request.
    pub number: Option<u32>,
    /// True if more answers to the same request follow.
    pub more: bool,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The label of the request at a server, for the answer.
    label: Label,
}

/// An error of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// Nothing happened in time.
    #[error("nothing arrived in time")]
    TimedOut,
    /// The other side aborted the session, or no member is left.
    #[error("the other side aborted the session, or no member of the cluster is left")]
    Reset,
    /// The neighbour is silent, or has a new process.
    #[error("the neighbour is silent, or its process was replaced")]
    Gone,
    /// This side has finished.
    #[error("this side of the session is finished")]
    Finished,
    /// A frame is longer than [`Options::frame`](crate::Options::frame).
    #[error("a frame is longer than the limit of {0} bytes")]
    TooLong(usize),
    /// This side is a client, and has no requests to answer.
    #[error("only the side that accepted the session answers requests")]
    NoRequest,
}

/// A session, shared by the program and the node's thread.
#[derive(Debug)]
pub(crate) struct Line {
    state: Mutex<State>,
    /// Notified when frames arrive, room opens, or the session ends.
    changed: Condvar,
    notifier: Weak<Notifier>,
    /// The session's index at the node.
    pub(crate) key: usize,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) end: End,
    role: Role,
    messages: VecDeque<Message>,
    /// Bytes in `messages`.
    waiting: usize,
    buffer: usize,
    frame: usize,
    /// The reason the session is over.
    pub(crate) over: Option<SessionError>,
    /// True once the program has dropped it.
    pub(crate) dropped: bool,
    message: Vec<u8>,
}

/// The side of a session.
#[derive(Debug)]
pub(crate) enum Role {
    Client {
        tags: Tags,
        assembly: Assembly,
        next: u32,
        /// Numbers of requests without an answer, in order.
        open: VecDeque<u32>,
    },
    Server {
        /// The label of frames without a request.
        source: Label,
    },
}

impl Session {
    pub(crate) fn new(line: Arc<Line>) -> Session {
        Session { line }
    }

    /// Waits until the other side has opened the session.
    pub(crate) fn opened(&self, patience: Duration) -> Result<(), SessionError> {
        let (state, opened) = self.line.wait(patience, |state| state.end.connected || state.over.is_some());
        match state.over {
            Some(why) => Err(why),
            None if opened => Ok(()),
            None => Err(SessionError::TimedOut),
        }
    }

    /// Sends a frame: at a client a request, at a server a frame that answers none. Blocks while
    /// the session's buffer is full. Returns the frame's number at a client, at a server 0.
    ///
    /// # Errors
    /// [`SessionError::TooLong`], [`SessionError::Finished`], or the end of the session.
    pub fn send(&self, frame: &[u8]) -> Result<u32, SessionError> {
        self.send_to([0; 4], frame, true)
    }

    /// Sends a request that a switch with `by-key` routes by `key`.
    ///
    /// # Errors
    /// As for [`send`](Session::send).
    pub fn send_by_key(&self, key: &[u8], frame: &[u8]) -> Result<u32, SessionError> {
        self.send_to(label::key_hash(key), frame, true)
    }

    /// Sends a frame that needs no answer, routed by `key` if there is one.
    ///
    /// # Errors
    /// As for [`send`](Session::send).
    pub fn post(&self, key: Option<&[u8]>, frame: &[u8]) -> Result<(), SessionError> {
        self.send_to(key.map_or([0; 4], label::key_hash), frame, false).map(|_| ())
    }

    fn send_to(&self, key: label::KeyHash, frame: &[u8], answered: bool) -> Result<u32, SessionError> {
        let mut state = self.writable(frame.len())?;
        let State { end, role, .. } = &mut *state;
        let number = match role {
            Role::Client { tags, next, open, .. } => {
                let number = *next;
                *next = number.wrapping_add(1);
                if answered {
                    open.push_back(number);
                }
                end.write(&label::head(tags.label(number), key), frame);
                number
            }
            Role::Server { source } => {
                label::parts(*source, Kind::Free, frame).for_each(|(head, part)| end.write(&head, part));
                0
            }
        };
        drop(state);
        self.line.wake();
        Ok(number)
    }

    /// Answers a request, for the last time.
    ///
    /// # Errors
    /// As for [`send`](Session::send); [`SessionError::NoRequest`].
    pub fn reply(&self, request: &Message, frame: &[u8]) -> Result<(), SessionError> {
        self.answer(request, Kind::Answer, frame)
    }

    /// Answers a request; more answers follow.
    ///
    /// # Errors
    /// As for [`reply`](Session::reply).
    pub fn reply_part(&self, request: &Message, frame: &[u8]) -> Result<(), SessionError> {
        self.answer(request, Kind::Piece, frame)
    }

    fn answer(&self, request: &Message, kind: Kind, frame: &[u8]) -> Result<(), SessionError> {
        let mut state = self.writable(frame.len())?;
        let State { end, role: Role::Server { .. }, .. } = &mut *state else {
            return Err(SessionError::NoRequest);
        };
        label::parts(request.label, kind, frame).for_each(|(head, part)| end.write(&head, part));
        drop(state);
        self.line.wake();
        Ok(())
    }

    /// The next frame, waiting for at most `patience`; `None` once the other side has finished and
    /// all its frames were received.
    ///
    /// # Errors
    /// [`SessionError::TimedOut`], or the end of the session.
    pub fn receive(&self, patience: Duration) -> Result<Option<Message>, SessionError> {
        let (mut state, _) = self.line.wait(patience, |state| {
            !state.messages.is_empty() || state.over.is_some() || state.is_read_out()
        });
        if let Some(message) = state.messages.pop_front() {
            state.waiting -= message.bytes.len();
            state.take_frames();
            drop(state);
            self.line.wake();
            return Ok(Some(message));
        }
        match state.over {
            _ if state.is_read_out() => Ok(None),
            Some(why) => Err(why),
            None => Err(SessionError::TimedOut),
        }
    }

    /// Numbers of the client's requests that have no answer yet, in order.
    pub fn unanswered(&self) -> Vec<u32> {
        match &self.line.lock().role {
            Role::Client { open, .. } => open.iter().copied().collect(),
            Role::Server { .. } => Vec::new(),
        }
    }

    /// Ends the session at once. The other side's next call returns [`SessionError::Reset`].
    pub fn abort(&self) {
        self.line.end(SessionError::Reset);
        self.line.wake();
    }

    /// Sends no more frames; the other side's still arrive.
    pub fn finish(&self) {
        self.line.lock().end.finish();
        self.line.wake();
    }

    /// Waits until all frames sent are acknowledged, for at most `patience`.
    ///
    /// # Errors
    /// [`SessionError::TimedOut`], or the end of the session.
    pub fn flush(&self, patience: Duration) -> Result<(), SessionError> {
        let sent = |state: &State| state.end.unacknowledged() == 0;
        let (state, _) = self.line.wait(patience, |state| sent(state) || state.over.is_some());
        match state.over {
            _ if sent(&state) => Ok(()),
            Some(why) => Err(why),
            None => Err(SessionError::TimedOut),
        }
    }

    /// Waits until the session's buffer has room for a frame.
    fn writable(&self, len: usize) -> Result<MutexGuard<'_, State>, SessionError> {
        let room = |state: &State| state.end.unacknowledged() <= state.buffer;
        let ready = |state: &State| room(state) || state.over.is_some() || state.end.is_finishing();
        let (state, _) = self.line.wait(FOREVER, ready);
        match state.over {
            Some(why) => Err(why),
            None if state.end.is_finishing() => Err(SessionError::Finished),
            None if len > state.frame => Err(SessionError::TooLong(state.frame)),
            None => Ok(state),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.line.lock().dropped = true;
        self.line.wake();
    }
}

impl Line {
    /// The shared state of a session that the thread knows by `key`.
    pub(crate) fn new(notifier: &Arc<Notifier>, key: usize, end: End, role: Role, limits: Limits) -> Line {
        let Limits { buffer, frame } = limits;
        let state = State {
            end,
            role,
            messages: VecDeque::new(),
            waiting: 0,
            buffer,
            frame,
            over: None,
            dropped: false,
            message: Vec::new(),
        };
        Line { state: Mutex::new(state), changed: Condvar::new(), notifier: Arc::downgrade(notifier), key }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the node's thread continue the session.
    fn wake(&self) {
        if let Some(notifier) = self.notifier.upgrade() {
            notifier.continue_session(self.key);
        }
    }

    /// Waits until something holds, for at most `patience`. Returns whether it does.
    pub(crate) fn wait(
        &self,
        patience: Duration,
        holds: impl Fn(&State) -> bool,
    ) -> (MutexGuard<'_, State>, bool) {
        let until = Instant::now().checked_add(patience);
        let mut state = self.lock();
        while !holds(&state) {
            let left = until.map_or(FOREVER, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return (state, false);
            }
            let woken = self.changed.wait_timeout(state, left.min(FOREVER));
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        (state, true)
    }

    /// Ends the session for a reason, unless it is over already.
    pub(crate) fn end(&self, why: SessionError) {
        self.lock().over.get_or_insert(why);
        self.changed.notify_all();
    }

    /// Handles a packet of the neighbour.
    pub(crate) fn on_packet(&self, now: Time, packet: &Packet, sack: &SackRanges, payload: &[u8]) {
        let mut state = self.lock();
        let most = 2 * state.buffer;
        state.end.on_packet(now, packet, sack, payload, most);
    }

    /// Moves frames and packets in both directions. Returns the time of the next call, and whether
    /// the session can be forgotten.
    pub(crate) fn work(&self, now: Time, hops: &mut Hops) -> (Time, bool) {
        let mut state = self.lock();
        let done = state.work(now, hops);
        drop(state);
        self.changed.notify_all();
        done
    }
}

impl State {
    /// True if the other side has finished, and all its frames were received.
    fn is_read_out(&self) -> bool {
        self.messages.is_empty() && self.end.peer_finished && self.end.is_read()
    }

    /// Takes frames of the other side, as far as there is room.
    fn take_frames(&mut self) {
        let mut message = std::mem::take(&mut self.message);
        while self.waiting <= self.buffer && self.end.take_frame(&mut message) {
            match self.role.read(&message) {
                Ok(Some(_)) if self.dropped => {}
                Ok(Some(read)) => {
                    self.waiting += read.bytes.len();
                    self.messages.push_back(read);
                }
                Ok(None) => {}
                Err(()) => self.over = self.over.or(Some(SessionError::TooLong(self.frame))),
            }
        }
        self.message = message;
    }

    fn work(&mut self, now: Time, hops: &mut Hops) -> (Time, bool) {
        if self.dropped {
            self.messages.clear();
            self.waiting = 0;
            self.end.finish();
        }
        self.take_frames();
        if self.end.reset {
            self.over = self.over.or(Some(SessionError::Reset));
        } else if self.end.closed {
            self.over = self.over.or(Some(SessionError::Finished));
        }
        let broken = self.over.is_some_and(|why| why != SessionError::Finished);
        if broken && !self.end.reset && !self.end.closed {
            self.end.abort(now, hops);
            return (Time::NEVER, true);
        }
        self.end.offer(self.waiting, self.buffer);
        (self.end.drive(now, hops), self.over.is_some())
    }
}

/// Bounds of a session, bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes under way in each direction.
    pub(crate) buffer: usize,
    /// The longest frame.
    pub(crate) frame: usize,
}

impl Role {
    pub(crate) fn client(tags: Tags, limits: Limits) -> Role {
        let assembly = Assembly::new(limits.frame, 8 * limits.buffer.max(limits.frame));
        Role::Client { tags, assembly, next: 0, open: VecDeque::new() }
    }

    /// Reads a frame of the other side; `None` if it is not to be passed on, an error if it is too
    /// long.
    fn read(&mut self, message: &[u8]) -> Result<Option<Message>, ()> {
        match self {
            Role::Client { tags, assembly, open, .. } => {
                let waits = |number| open.iter().any(|&open| open == number);
                let known = |label| tags.number(label).is_some_and(waits);
                let whole = match assembly.add(message, known) {
                    Added::Whole(whole) => whole,
                    Added::Part | Added::Torn => return Ok(None),
                    Added::TooLong => return Err(()),
                };
                let number = match whole.kind {
                    Kind::Free => None,
                    Kind::Answer | Kind::Piece => tags.number(whole.label),
                };
                if whole.kind == Kind::Answer {
                    open.retain(|&waiting| Some(waiting) != number);
                }
                let more = whole.kind == Kind::Piece;
                Ok(Some(Message { number, more, bytes: whole.bytes, label: whole.label }))
            }
            Role::Server { .. } => {
                let Some((label, frame)) = label::request(message) else { return Ok(None) };
                let number = Some((u64::from_be_bytes(label) >> 32) as u32);
                Ok(Some(Message { number, more: false, bytes: frame.to_vec(), label }))
            }
        }
    }
}

/// Longer than any wait.
const FOREVER: Duration = Duration::from_secs(1 << 32);
