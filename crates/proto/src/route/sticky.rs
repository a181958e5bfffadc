use super::{Candidate, Item, Route, rendezvous};

/// Sends all frames of a session to one member, and to another once that is not up. Sessions are
/// assigned by rendezvous hashing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sticky;

impl Route for Sticky {
    fn pick(&mut self, item: &Item, members: &[Candidate]) -> Option<usize> {
        rendezvous(item.session, members)
    }
}
