use super::{Candidate, Item, Route, rendezvous};

/// All frames of a session to one member, another once that is not up; sessions by rendezvous
/// hashing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sticky;

impl Route for Sticky {
    fn pick(&mut self, item: &Item, members: &[Candidate]) -> Option<usize> {
        rendezvous(item.session, members)
    }
}
