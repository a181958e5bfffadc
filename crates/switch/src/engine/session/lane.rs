//! A session's connection to one member.

use std::io::{self, IoSlice};

use ppp::v2::{Addresses, Builder, Command, Protocol, Version};
use tollway_law::Time;
use tollway_proto::dispatch::{Answers, Queue, Tag};
use tollway_proto::framing::Framer;

use super::{End, Session};
use crate::engine::Ready;
use crate::engine::core::{Core, Planned};
use crate::engine::held::HeldQueue;
use crate::stream::Stream;

/// The connection.
pub(in crate::engine) struct Lane {
    pub(super) stream: Stream,
    /// True if it is connected.
    pub(super) open: bool,
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// True if the kernel reported it writable, and that was not handled yet.
    pub(super) noticed: bool,
    pub(super) closed: bool,
    pub(super) framer: Framer,
    pub(super) partial: Queue,
    /// Bytes to write before any frame.
    pub(super) preface: Queue,
    /// The last progress: start, answer, acknowledgement, or an instant without outstanding frames.
    pub(super) progress: Time,
    /// The frame whose answer is timed: `done` at its end, and the time of its write.
    pub(super) timed: Option<(u64, Time)>,
    /// Bytes of frames that are done.
    pub(super) done: u64,
    /// The largest window that the member has offered.
    pub(super) window: u64,
    /// True if it is in the cluster's list of waiting sessions.
    pub(in crate::engine) waiting: bool,
    /// True if the client takes no answers: outstanding frames do not count against the member.
    pub(super) suspended: bool,
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
            match orphan.frame {
                Some(frame) => self.dispatch.carry(member, orphan.seq, orphan.tag, &frame, 0),
                None => self.lost(core, member, &orphan, "cannot connect to it"),
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

    /// Outstanding bytes that count against a member's window.
    pub(super) fn charged(&self, member: usize) -> u64 {
        let lane = self.lanes.get(member).and_then(Option::as_ref);
        if lane.is_some_and(|lane| lane.suspended) { 0 } else { self.dispatch.outstanding(member) }
    }
}

/// Frames written at once.
const SLICES: usize = 128;
