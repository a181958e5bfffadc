use super::{Candidate, Item, Route};

/// Selects members in turn, without regard to the size of frames. Members that are not up are
/// skipped. A member of weight `w` has `w` turns, in as many rounds.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobin {
    next: usize,
    round: u32,
}

impl From<u64> for RoundRobin {
    /// Starts at a member that depends on the session.
    fn from(session: u64) -> RoundRobin {
        RoundRobin { next: session as u32 as usize, round: 0 }
    }
}

impl Route for RoundRobin {
    fn pick(&mut self, _: &Item, members: &[Candidate]) -> Option<usize> {
        let rounds = members.iter().filter(|member| member.up).map(|member| member.weight).max()?;
        loop {
            if self.next >= members.len() {
                self.next %= members.len();
                self.round = (self.round + 1) % rounds;
            }
            let at = self.next;
            self.next += 1;
            if members[at].up && members[at].weight > self.round {
                return Some(at);
            }
        }
    }
}
