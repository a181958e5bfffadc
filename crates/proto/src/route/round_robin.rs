use super::{Candidate, Item, Route};

/// Selects members in turn, without regard to the size of frames. Members that are not up are
/// skipped.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobin {
    next: usize,
}

impl From<u64> for RoundRobin {
    /// Starts at a member that depends on the session.
    fn from(session: u64) -> RoundRobin {
        RoundRobin { next: session as u32 as usize }
    }
}

impl Route for RoundRobin {
    fn pick(&mut self, _: &Item, members: &[Candidate]) -> Option<usize> {
        for _ in 0..members.len() {
            if self.next >= members.len() {
                self.next %= members.len();
            }
            let at = self.next;
            self.next += 1;
            if members[at].up {
                return Some(at);
            }
        }
        None
    }
}
