//! Members' answers, merged for the client.

use std::io::IoSlice;
use std::ops::Range;

use tollway_proto::dispatch::{AnsweredFrame, Answers, Tag};
use tollway_proto::framing::FrameError;

use super::failure::Broken;
use super::{End, ROUNDS, Session};
use crate::config::{MOVED, SCRATCH};
use crate::engine::core::Core;
use crate::engine::held::Held;
use crate::stream::Got;

impl Session {
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
        let subscribed = self.redis.as_ref().and_then(|redis| redis.subscribed);
        let start = run.end;
        let (mut at, mut done, mut answers) = (start, 0, 0);
        let broken = loop {
            let Some(lane) = self.lanes.get_mut(member).and_then(Option::as_mut) else { break None };
            let len = match lane.framer.next(&bytes[at..]) {
                Ok(Some(len)) => len,
                Ok(None) => break None,
                Err(error) => break Some(Broken::Error(too_long(error))),
            };
            let passes = subscribed == Some(member);
            let answer = match self.dispatch.answer(member) {
                Ok(answer) => answer,
                Err(_) if passes => AnsweredFrame { seq: 0, tag: Tag::Passed, len: 0 },
                Err(_) => break Some(Broken::Unrequested),
            };
            let this = at..at + len;
            at = this.end;
            done += u64::from(answer.len);
            if answer.tag == Tag::Own {
                continue;
            }
            answers += 1;
            if answer.tag == Tag::Part {
                self.out.push(&bytes[std::mem::replace(run, at..at)]);
                self.part_answered(member, answer.seq, &bytes[this]);
                continue;
            }
            if answer.tag == Tag::Setup {
                // The drained bytes are still the old client's.
                self.drained(core, member, std::mem::take(&mut done));
                self.is_set_up(core, answer.seq, &bytes[this.clone()]);
            }
            if !in_order || passes || self.dispatch.is_next(answer.seq) {
                if run.end != this.start {
                    self.out.push(&bytes[std::mem::replace(run, this.start..this.start)]);
                }
                run.end = this.end;
                if in_order && !passes {
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
}

fn too_long(error: FrameError) -> String {
    match error {
        FrameError::TooLong { len, most } => {
            format!("its answer of at least {len} bytes exceeds limits.frame, {most} bytes")
        }
        error => error.to_string(),
    }
}
