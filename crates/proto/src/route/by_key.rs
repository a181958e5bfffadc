use super::{Candidate, Item, Route, rendezvous};

/// Frames of one key to one member, by rendezvous hashing: a member that leaves moves only its
/// keys, and one that comes takes an equal part of all others'.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByKey;

impl Route for ByKey {
    fn pick(&mut self, item: &Item, members: &[Candidate]) -> Option<usize> {
        rendezvous(item.key, members)
    }
}
