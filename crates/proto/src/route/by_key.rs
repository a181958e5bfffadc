use super::{Candidate, Item, Route, rendezvous};

/// Sends frames of one key to one member, by rendezvous hashing. A member that leaves moves only
/// its own keys; a new member takes an equal part of the keys of all others.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByKey;

impl Route for ByKey {
    fn pick(&mut self, item: &Item, members: &[Candidate]) -> Option<usize> {
        rendezvous(item.key, members)
    }
}
