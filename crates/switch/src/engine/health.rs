//! Health checks of members.

use tollway_law::Time;

use super::core::{Core, Health};
use super::probe::{Checked, Probe};

impl Core {
    /// Checks members that are down, and all at the configured interval. Returns true if one is up
    /// that frames may wait for.
    pub(super) fn check_members(&mut self) -> bool {
        for at in 0..self.members.len() {
            if !self.members[at].listed {
                self.members[at].probe = None;
                continue;
            }
            let Some(mut probe) = self.members[at].probe.take() else {
                if self.next_check(at).is_some_and(|due| self.now >= due) {
                    self.members[at].checked = self.now;
                    let probe = self.dial(at).map(|stream| Probe::new(&self.config, stream, self.now));
                    match probe {
                        Ok(probe) => self.members[at].probe = Some(probe),
                        Err(error) => self.fails(at, error.to_string()),
                    }
                }
                continue;
            };
            let limits = self.config.limits;
            match probe.poll() {
                Checked::Waits if !probe.is_connected() && self.now > probe.since + limits.connect_time => {
                    self.fails(at, "it does not accept connections".into());
                }
                Checked::Waits if self.now > probe.since + limits.answer_time => {
                    self.fails(at, format!("it did not answer a check for {}", limits.answer_time));
                }
                Checked::Waits => self.members[at].probe = Some(probe),
                Checked::Passed => {
                    probe.stream.finish();
                    if let Health::Down(_) = self.members[at].health {
                        let name = &self.members[at].spec.name;
                        self.events.info("member-up", format_args!("member {name} is up"));
                    }
                    self.set_health(at, Health::Up);
                }
                Checked::Failed(why) => self.fails(at, why),
            }
        }
        (0..self.members.len()).any(|at| self.candidates[at].up && self.is_reachable(at))
    }

    /// The time of a member's next check, if there is one.
    fn next_check(&self, at: usize) -> Option<Time> {
        let member = &self.members[at];
        match member.health {
            Health::Down(since) => Some(since.max(member.checked) + self.pause(at)),
            Health::Up => self.config.health.as_ref().map(|health| member.checked + health.every),
        }
    }

    /// Records that a check of a member failed.
    fn fails(&mut self, at: usize, why: String) {
        if let Health::Down(_) = self.members[at].health {
            // One more failure in a row: the pause doubles.
            self.members[at].health = Health::Up;
        }
        self.is_down(at, why);
    }
}
