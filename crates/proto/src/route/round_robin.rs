use super::{Candidate, Item, Route};

/// Members in turn, whatever the frames' sizes. A member that is not up is passed over.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobin {
    next: usize,
}

impl From<u64> for RoundRobin {
    /// Begins at a place that depends on the session.
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
