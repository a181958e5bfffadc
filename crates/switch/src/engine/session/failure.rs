//! Members that fail.

use tollway_proto::dispatch::{Answers, Orphan, Tag};

use super::{End, Session};
use crate::engine::core::{Core, Health};
use crate::redis;

/// The reason a connection to a member ended.
pub(super) enum Broken {
    Closed,
    Error(String),
    /// It sent data that are not an answer.
    Unrequested,
}

impl Session {
    pub(super) fn lane_ended(&mut self, core: &mut Core, member: usize, broken: Broken) -> Result<(), End> {
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
                core.members[member].last_failure = Some(why.clone());
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
        let orphans = self.dispatch.fail(member);
        let unanswered = orphans.iter().any(|orphan| orphan.frame.is_none());
        for orphan in orphans {
            match &orphan.frame {
                Some(frame) => {
                    core.members[member].counts.retried += 1;
                    self.reroute(core, orphan.seq, orphan.tag, frame)?;
                }
                None => self.lost(core, member, &orphan, &why),
            }
        }
        if self.redis.as_ref().is_some_and(|redis| redis.is_tied_to(member)) {
            self.close_after_answers();
        }
        if unanswered && self.redis.is_none() && !self.gone { Err(End::Unanswered) } else { Ok(()) }
    }

    /// Records that a frame is neither answered nor sent again; a Redis client gets an error.
    pub(super) fn lost(&mut self, core: &mut Core, member: usize, orphan: &Orphan, why: &str) {
        core.members[member].counts.unanswered += 1;
        if self.redis.is_none() {
            return;
        }
        let name = &core.members[member].spec.name;
        let text = format!("no answer from member {name}: {why}; the command may have been executed");
        let error = redis::error(&text);
        match orphan.tag {
            Tag::Part => self.part_answered(member, orphan.seq, &error),
            Tag::Client | Tag::Setup | Tag::Bound => {
                self.forget_setup(orphan.seq);
                self.answer_for(orphan.seq, &error);
            }
            Tag::Passed | Tag::Own => {}
        }
        if orphan.tag == Tag::Bound {
            self.close_after_answers();
        }
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
        let tied = self.redis.as_ref().is_some_and(|redis| redis.is_tied_to(member));
        if self.dispatch.at(member) == 0 {
            lane.progress = now;
            if !tied && !core.candidates[member].up && core.members[member].health == Health::Up {
                // It is drained: what it had is done.
                if let Some(mut lane) = self.lanes[member].take() {
                    lane.stream.finish();
                    core.members[member].lanes -= 1;
                    let _ = self.dispatch.fail(member);
                }
            }
            return Ok(());
        }
        let blocks = self.redis.as_ref().is_some_and(|redis| redis.blocks(member));
        if blocks && core.members[member].health == Health::Up {
            lane.progress = now;
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

/// Assumed window of a receiver, bytes, while the kernel reports none.
const LEAST_WINDOW: u64 = 64 << 10;
