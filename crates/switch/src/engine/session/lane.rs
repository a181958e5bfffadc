//! A session's connection to one member.

use std::io::{self, IoSlice};
use std::ops::Range;

use ppp::v2::{Addresses, Builder, Command, Protocol, Version};
use tollway_law::Time;
use tollway_proto::dispatch::{Answers, Queue, Tag};
use tollway_proto::framing::Framer;

use super::{End, MOVED, Session};
use crate::config::SCRATCH;
use crate::engine::Ready;
use crate::engine::core::{Core, Health, Planned};
use crate::engine::held::{Held, HeldQueue};
use crate::redis;
use crate::stream::{Got, Stream};

/// The connection.
pub(in crate::engine) struct Lane {
    pub(super) stream: Stream,
    /// True if it is connected.
    open: bool,
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// True if the kernel reported it writable, and that was not handled yet.
    noticed: bool,
    closed: bool,
    framer: Framer,
    pub(super) partial: Queue,
    /// Bytes to write before any frame.
    preface: Queue,
    /// The last progress: start, answer, acknowledgement, or an instant without outstanding frames.
    progress: Time,
    /// The frame whose answer is timed: `done` at its end, and the time of its write.
    timed: Option<(u64, Time)>,
    /// Bytes of frames that are done.
    done: u64,
    /// The largest window that the member has offered.
    window: u64,
    /// True if it is in the cluster's list of waiting sessions.
    pub(in crate::engine) waiting: bool,
    /// True if the client takes no answers: outstanding frames do not count against the member.
    suspended: bool,
}

impl Lane {
    /// True if frames can be written.
    pub(super) fn is_ready(&self) -> bool {
        self.open && self.writable && self.preface.is_empty() && !self.waiting && !self.suspended
    }

    /// Writes frames that begin within `room` bytes, as far as the kernel takes them.
    pub(super) fn write_frames(&mut self, bytes: &[u8], plan: &[Planned], room: u64) -> io::Result<usize> {
        // The usual case needs no array of slices.
        if let [one] = plan
            && room > 0
        {
            let written = self.stream.write(&[IoSlice::new(one.of(bytes))])?;
            self.writable = written == one.len as usize;
            return Ok(written);
        }
        let (mut at, mut written, mut begun) = (0, 0, 0);
        while at < plan.len() && begun < room {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let (mut used, mut asked) = (0, 0);
            while let Some(planned) = plan.get(at)
                && used < SLICES
                && begun < room
            {
                slices[used] = IoSlice::new(planned.of(bytes));
                used += 1;
                at += 1;
                asked += planned.len as usize;
                begun += u64::from(planned.len);
            }
            let len = self.stream.write(&slices[..used])?;
            written += len;
            if len < asked {
                self.writable = false;
                break;
            }
        }
        Ok(written)
    }
}

/// The reason a connection to a member ended.
enum Broken {
    Closed,
    Error(String),
    /// It sent data that are not an answer.
    Unrequested,
}

impl Session {
    /// Connects to a member, unless the session is connected to it.
    pub(super) fn open_lane(&mut self, core: &mut Core, member: usize) {
        if self.lanes.get(member).is_some_and(Option::is_some) {
            return;
        }
        if self.lanes.len() <= member {
            self.lanes.resize_with(member + 1, || None);
            self.held.resize_with(member + 1, HeldQueue::default);
        }
        let stream = match core.connect(self.id, member) {
            Ok(stream) => stream,
            Err(error) => {
                // Its frames wait at it until the next look, and are then given to others.
                core.is_down(member, error.to_string());
                self.go_on(core);
                return;
            }
        };
        let mut lane = Lane {
            stream,
            open: false,
            readable: false,
            writable: false,
            noticed: false,
            closed: false,
            framer: Framer::new(self.config.framing, self.config.limits.frame),
            partial: Queue::default(),
            preface: Queue::default(),
            progress: core.now,
            timed: None,
            done: 0,
            window: 0,
            waiting: false,
            suspended: false,
        };
        if self.config.upstream.proxy {
            let addresses: Addresses = (self.peer, self.local).into();
            let header = Builder::with_addresses(Version::Two | Command::Proxy, Protocol::Stream, addresses);
            lane.preface.push(&header.build().unwrap_or_default());
        }
        core.members[member].lanes += 1;
        self.lanes[member] = Some(Box::new(lane));
        let setup: Vec<Vec<u8>> = self.redis.iter().flat_map(|redis| redis.setup.values().cloned()).collect();
        // Frames that were given to this member already wait; those of set-up come first.
        let before = self.dispatch.fail(member);
        for frame in &setup {
            core.candidates[member].outstanding += frame.len() as u64;
            self.dispatch.submit(member, Tag::Own, frame, 0);
        }
        for orphan in before {
            if let Some(frame) = orphan.frame {
                self.dispatch.carry(member, orphan.seq, orphan.tag, &frame, 0);
            }
        }
    }

    /// Handles a readiness event of the connection to a member.
    pub(in crate::engine) fn lane_is_ready(&mut self, member: usize, ready: Ready) {
        let Some(lane) = self.lanes.get_mut(member).and_then(Option::as_mut) else { return };
        lane.closed |= ready.closed;
        lane.readable |= ready.readable || ready.closed;
        lane.noticed |= ready.writable;
    }

    /// Completes a connection, and writes the bytes that wait for its member.
    pub(super) fn write_lane(&mut self, core: &mut Core, member: usize) -> Result<(), End> {
        let Some(lane) = self.lanes[member].as_mut() else { return Ok(()) };
        if std::mem::take(&mut lane.noticed) {
            if !lane.open {
                match lane.stream.socket().take_error() {
                    Ok(None) if lane.stream.socket().peer_addr().is_ok() => lane.open = true,
                    Ok(Some(error)) | Err(error) => return self.lane_failed(core, member, error.to_string()),
                    Ok(None) => return Ok(()),
                }
                let _ = lane.stream.socket().set_nodelay(true);
                lane.progress = core.now;
            }
            lane.writable = true;
        } else {
            // One-way frames are done as soon as the kernel says so, which makes room.
            let one_way = self.config.rules.answers == Answers::None;
            let left = if one_way { self.dispatch.at(member) } else { self.dispatch.waiting(member) };
            if left == 0 {
                return Ok(());
            }
        }
        self.flush_lane(core, member)
    }

    /// Writes the bytes that wait for a member, as far as its window and the kernel allow.
    pub(in crate::engine) fn flush_lane(&mut self, core: &mut Core, member: usize) -> Result<(), End> {
        loop {
            let (now, client, id) = (core.now, self.client, self.id as u64);
            let Some(lane) = self.lanes.get_mut(member).and_then(Option::as_mut) else { return Ok(()) };
            if !lane.open || !lane.writable || lane.waiting || lane.suspended {
                return Ok(());
            }
            let from_preface = !lane.preface.is_empty();
            let room = core.cluster.room(now, member, client);
            let bytes =
                if from_preface { lane.preface.as_slice() } else { self.dispatch.sendable(member, room) };
            if bytes.is_empty() {
                let waiting = self.dispatch.waiting(member) as u64;
                if waiting > 0 {
                    lane.waiting = true;
                    core.cluster.wait(member, client, id, waiting);
                } else {
                    match lane.stream.flush() {
                        Ok(all) => lane.writable = all,
                        Err(error) => return self.lane_failed(core, member, error.to_string()),
                    }
                }
                break;
            }
            match lane.stream.write(&[IoSlice::new(bytes)]) {
                Ok(len) => {
                    lane.writable = len == bytes.len();
                    if from_preface {
                        lane.preface.consume(len);
                    } else {
                        self.dispatch.wrote(member, len);
                        self.sent(core, member, len as u64);
                    }
                }
                Err(error) => return self.lane_failed(core, member, error.to_string()),
            }
        }
        if self.config.rules.answers == Answers::None {
            self.settle(core, member);
        }
        Ok(())
    }

    /// Records bytes written to a member.
    pub(super) fn sent(&mut self, core: &mut Core, member: usize, bytes: u64) {
        if bytes == 0 {
            return;
        }
        core.cluster.on_sent(core.now, member, self.client, bytes);
        core.members[member].counts.bytes += bytes;
        if let Some(lane) = self.lanes.get_mut(member).and_then(Option::as_mut) {
            let outstanding = self.dispatch.outstanding(member);
            if outstanding <= bytes {
                lane.progress = core.now;
            }
            if lane.timed.is_none() {
                lane.timed = Some((lane.done + outstanding, core.now));
            }
        }
    }

    /// Polls the kernel for acknowledgements of the member's kernel.
    pub(in crate::engine) fn settle(&mut self, core: &mut Core, member: usize) {
        let Some(lane) = self.lanes.get_mut(member).and_then(Option::as_mut) else { return };
        let written = self.dispatch.written(member);
        let left = lane.stream.unacknowledged();
        let done = self.dispatch.acknowledged(member, written.saturating_sub(left));
        self.drained(core, member, done);
        self.poll_acknowledgements(core, self.dispatch.outstanding(member));
    }

    /// Schedules another poll, if some frames are not acknowledged.
    pub(super) fn poll_acknowledgements(&mut self, core: &mut Core, outstanding: u64) {
        if outstanding > 0 && !self.polls_acks {
            self.polls_acks = true;
            core.unacknowledged.push(self.id);
        }
    }

    /// Records bytes of frames that a member has finished.
    pub(super) fn drained(&mut self, core: &mut Core, member: usize, bytes: u64) {
        let mut response = None;
        if bytes > 0
            && let Some(lane) = self.lanes.get_mut(member).and_then(Option::as_mut)
        {
            lane.progress = core.now;
            lane.done += bytes;
            if let Some((at, since)) = lane.timed
                && lane.done >= at
            {
                response = Some(core.now.saturating_sub(since));
                lane.timed = None;
            }
        }
        core.on_drained(member, self.client, bytes, response);
    }

    /// True if answers of this member wait to be read, and may be.
    pub(super) fn may_read(&self, member: usize) -> bool {
        let most = self.config.limits.session_buffer;
        let readable = self.lanes.get(member).and_then(Option::as_ref).is_some_and(|lane| lane.readable);
        let room =
            self.out.len() <= most && (self.held_bytes <= most || self.dispatch.head() == Some(member));
        readable && (room || self.config.rules.answers == Answers::None)
    }

    /// Reads answers of all members, and writes contiguous ones to the client.
    pub(super) fn pump_lanes(&mut self, core: &mut Core, scratch: &mut [u8]) -> Result<(), End> {
        let mut run = 0..0;
        for member in 0..self.lanes.len() {
            self.pump_lane(core, member, scratch, &mut run)?;
        }
        self.write_run(core, &scratch[run]);
        Ok(())
    }

    /// Reads answers of a member while there are some and there is room. The answers in `run` are
    /// the next for the client; further ones are appended to them.
    fn pump_lane(
        &mut self,
        core: &mut Core,
        member: usize,
        scratch: &mut [u8],
        run: &mut Range<usize>,
    ) -> Result<(), End> {
        for _ in 0..ROUNDS {
            if !self.may_read(member) {
                self.suspend(core, member, true);
                return Ok(());
            }
            self.suspend(core, member, false);
            let Some(lane) = self.lanes.get_mut(member).and_then(Option::as_mut) else { return Ok(()) };
            let kept = lane.partial.len();
            if kept > MOVED || scratch.len() - run.end < SCRATCH / 2 + kept {
                self.write_run(core, &scratch[std::mem::take(run)]);
            }
            let Some(lane) = self.lanes.get_mut(member).and_then(Option::as_mut) else { return Ok(()) };
            let moved = if kept > MOVED { 0 } else { kept };
            let start = run.end;
            let from = start + moved;
            scratch[start..from].copy_from_slice(&lane.partial.as_slice()[..moved]);
            let most = scratch.len().min(from + SCRATCH);
            let broken = match lane.stream.read(&mut scratch[from..most]) {
                Ok(Got::Bytes { len, drained }) => {
                    lane.readable = !drained || lane.closed;
                    if self.config.rules.answers == Answers::None {
                        core.members[member].counts.unrequested += 1;
                        continue;
                    }
                    if kept > MOVED {
                        lane.partial.push(&scratch[..len]);
                        let mut whole = std::mem::take(&mut lane.partial);
                        let merged = self.merge(core, member, whole.as_slice(), run);
                        self.write_run(core, &whole.as_slice()[std::mem::take(run)]);
                        merged.map(|used| {
                            whole.consume(used);
                            if let Some(lane) = self.lanes.get_mut(member).and_then(Option::as_mut) {
                                lane.partial = whole;
                            }
                        })
                    } else {
                        lane.partial.consume(usize::MAX);
                        let read = &scratch[..from + len];
                        let merged = self.merge(core, member, read, run);
                        merged.map(|used| {
                            if let Some(lane) = self.lanes.get_mut(member).and_then(Option::as_mut) {
                                lane.partial.push(&read[used..]);
                            }
                        })
                    }
                }
                Ok(Got::Nothing) => {
                    lane.readable = false;
                    return Ok(());
                }
                Ok(Got::End) => Err(Broken::Closed),
                Err(error) => Err(Broken::Error(error.to_string())),
            };
            if let Err(broken) = broken {
                // Errors in place of its answers come after the answers before them.
                self.write_run(core, &scratch[std::mem::take(run)]);
                return self.lane_ended(core, member, broken);
            }
        }
        self.go_on(core);
        Ok(())
    }

    /// Stops reading answers of a member, or resumes it.
    fn suspend(&mut self, core: &mut Core, member: usize, suspended: bool) {
        let outstanding = self.dispatch.outstanding(member);
        let Some(lane) = self.lanes.get_mut(member).and_then(Option::as_mut) else { return };
        // It does not hang: nothing is read.
        lane.progress = core.now;
        if suspended == lane.suspended || !lane.readable {
            return;
        }
        lane.suspended = suspended;
        if suspended {
            core.cluster.on_lost(core.now, member, self.client, outstanding);
            core.drained.push(member);
        } else {
            core.cluster.on_sent(core.now, member, self.client, outstanding);
            // Frames that wait for it are written at the next turn; no other event need come.
            self.go_on(core);
        }
    }

    /// Outstanding bytes that count against a member's window.
    pub(super) fn charged(&self, member: usize) -> u64 {
        let lane = self.lanes.get(member).and_then(Option::as_ref);
        if lane.is_some_and(|lane| lane.suspended) { 0 } else { self.dispatch.outstanding(member) }
    }

    /// Handles the answers in `bytes` after `run`. Extends `run` by those that follow it without a
    /// gap and are due to the client. Returns the start of the first incomplete answer.
    fn merge(
        &mut self,
        core: &mut Core,
        member: usize,
        bytes: &[u8],
        run: &mut Range<usize>,
    ) -> Result<usize, Broken> {
        let in_order = self.config.rules.answers == Answers::InOrder;
        let start = run.end;
        let (mut at, mut done, mut answers) = (start, 0, 0);
        let broken = loop {
            let Some(lane) = self.lanes.get_mut(member).and_then(Option::as_mut) else { break None };
            let len = match lane.framer.next(&bytes[at..]) {
                Ok(Some(len)) => len,
                Ok(None) => break None,
                Err(error) => break Some(Broken::Error(error.to_string())),
            };
            let Ok(answer) = self.dispatch.answer(member) else {
                break Some(Broken::Unrequested);
            };
            let this = at..at + len;
            at = this.end;
            done += u64::from(answer.len);
            if answer.tag == Tag::Own {
                continue;
            }
            answers += 1;
            if answer.tag == Tag::Setup {
                // The drained bytes are still the old client's.
                self.drained(core, member, std::mem::take(&mut done));
                self.is_set_up(core, answer.seq, &bytes[this.clone()]);
            }
            if !in_order || self.dispatch.is_next(answer.seq) {
                if run.end != this.start {
                    self.out.push(&bytes[std::mem::replace(run, this.start..this.start)]);
                }
                run.end = this.end;
                if in_order {
                    self.dispatch.place(answer.seq, Held::DIRECT);
                    self.dispatch.deliver();
                    while let Some(held) = self.dispatch.deliver() {
                        self.out.push(&bytes[std::mem::replace(run, at..at)]);
                        self.deliver_one(held);
                    }
                }
            } else {
                let held = self.held[member].push(member as u32, &bytes[this.clone()]);
                self.held_bytes += len;
                self.dispatch.place(answer.seq, held);
            }
        };
        self.drained(core, member, done);
        core.counters.answers += answers;
        core.counters.answer_bytes += (at - start) as u64;
        core.members[member].counts.answers += answers;
        core.members[member].failures = 0;
        broken.map_or(Ok(at), Err)
    }

    /// Writes answers to the client, directly if none waits before them.
    fn write_run(&mut self, core: &mut Core, run: &[u8]) {
        let mut rest = run;
        if self.out.is_empty() && self.writable && !self.gone && !run.is_empty() {
            match self.stream.write(&[IoSlice::new(run)]) {
                Ok(len) => {
                    self.writable = len == run.len();
                    rest = &run[len..];
                    self.last = core.now;
                }
                Err(_) => self.is_gone(),
            }
        }
        self.out.push(rest);
        self.flush_out(core);
    }

    fn lane_ended(&mut self, core: &mut Core, member: usize, broken: Broken) -> Result<(), End> {
        let why = match broken {
            Broken::Closed => "it closed the connection".to_owned(),
            Broken::Error(error) => error,
            Broken::Unrequested => {
                core.members[member].counts.unrequested += 1;
                "it answered without a request".to_owned()
            }
        };
        self.lane_failed(core, member, why)
    }

    /// Ends the connection to a member, and sends its frames to others if the retry rule allows.
    pub(super) fn lane_failed(&mut self, core: &mut Core, member: usize, why: String) -> Result<(), End> {
        let charged = self.charged(member);
        let lane = self.lanes.get_mut(member).and_then(Option::take);
        let outstanding = self.dispatch.outstanding(member);
        if let Some(lane) = &lane {
            core.members[member].lanes -= 1;
            if !lane.open {
                core.is_down(member, format!("cannot connect to it: {why}"));
            } else if outstanding > 0 {
                core.members[member].last_failure = Some(why);
            }
            if lane.waiting {
                core.cluster.forget(member, self.client, self.id as u64);
            }
            if self.config.rules.answers == Answers::None && lane.open && !self.is_over() {
                // Linux offers half of a receive buffer, and may double it meanwhile.
                let window = lane.window.max(LEAST_WINDOW) * 2;
                core.members[member].counts.perhaps_lost += self.dispatch.perhaps_lost(member, window);
            }
        }
        core.cluster.on_lost(core.now, member, self.client, charged);
        let waiting = self.dispatch.waiting(member) as u64;
        let at = &mut core.candidates[member].outstanding;
        *at = at.saturating_sub(outstanding + waiting);
        if !core.drained.contains(&member) {
            core.drained.push(member);
        }
        let mut told = false;
        for orphan in self.dispatch.fail(member) {
            match orphan.frame {
                Some(frame) => {
                    core.members[member].counts.retried += 1;
                    self.reroute(core, orphan.seq, orphan.tag, &frame)?;
                }
                None => {
                    core.members[member].counts.unanswered += 1;
                    self.forget_setup(orphan.seq);
                    if self.redis.is_some() {
                        let what = "the server failed before it answered; the command may have been executed";
                        self.answer_for(orphan.seq, &redis::error(what));
                    } else {
                        told = true;
                    }
                }
            }
        }
        if told && !self.gone { Err(End::Unanswered) } else { Ok(()) }
    }

    fn is_over(&self) -> bool {
        self.ended && self.dispatch.open() == 0
    }

    /// Ends connections to members that hang, or are no longer needed.
    pub(super) fn sweep_lane(&mut self, core: &mut Core, member: usize) -> Result<(), End> {
        let (now, limits) = (core.now, self.config.limits);
        let Some(lane) = self.lanes[member].as_mut() else {
            // A connection that could not even be begun.
            return match self.dispatch.at(member) {
                0 => Ok(()),
                _ => self.lane_failed(core, member, "cannot connect to it".into()),
            };
        };
        let since = now.saturating_sub(lane.progress);
        if !lane.open {
            return match since > limits.connect_time {
                true => self.lane_failed(core, member, "it did not accept a connection in time".into()),
                false => Ok(()),
            };
        }
        if self.config.rules.answers == Answers::None
            && let window = lane.stream.offered_window()
        {
            lane.window = lane.window.max(window);
        }
        if self.dispatch.at(member) == 0 {
            lane.progress = now;
            if !core.candidates[member].up && core.members[member].health == Health::Up {
                // It is drained: what it had is done.
                if let Some(mut lane) = self.lanes[member].take() {
                    lane.stream.finish();
                    core.members[member].lanes -= 1;
                    let _ = self.dispatch.fail(member);
                }
            }
            return Ok(());
        }
        let paused = self.lanes[member].as_ref().is_some_and(|lane| lane.readable);
        if self.dispatch.outstanding(member) > 0 && since > limits.answer_time && !paused {
            let why = format!("it did not answer frames for {}", limits.answer_time);
            core.is_down(member, why.clone());
            return self.lane_failed(core, member, why);
        }
        Ok(())
    }
}

/// Frames written at once.
const SLICES: usize = 128;
/// Reads in a row from one connection.
const ROUNDS: usize = 4;
/// Assumed window of a receiver, bytes, while the kernel reports none.
const LEAST_WINDOW: u64 = 64 << 10;
