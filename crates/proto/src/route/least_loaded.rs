use super::{Candidate, Item, Route};

/// Selects the member with the least fraction of its window outstanding; ties go to the next in
/// turn.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeastLoaded {
    next: usize,
}

impl From<u64> for LeastLoaded {
    /// Starts at a member that depends on the session.
    fn from(session: u64) -> LeastLoaded {
        LeastLoaded { next: session as u32 as usize }
    }
}

impl Route for LeastLoaded {
    fn pick(&mut self, _: &Item, members: &[Candidate]) -> Option<usize> {
        let count = members.len();
        let first = self.next % count.max(1);
        let mut best: Option<usize> = None;
        for at in (first..count).chain(0..first).filter(|&at| members[at].up) {
            // a/b < c/d as a·d < c·b: exact, and a window of zero is full.
            let less = |than: usize| {
                let (one, other) = (&members[at], &members[than]);
                u128::from(one.outstanding) * u128::from(other.window)
                    < u128::from(other.outstanding) * u128::from(one.window)
            };
            if best.is_none_or(less) {
                best = Some(at);
            }
        }
        self.next = best.map_or(self.next, |at| at + 1);
        best
    }
}
