//! Networks whose datagrams are sealed from node to node.

use super::Network;
use crate::secure::{KeyFile, Secure, SecureError, Trouble};

impl Network {
    /// Seals what a node sends to its neighbours, and takes nothing from them that is not: `keys` are its own and their public ones.
    ///
    /// # Errors
    /// A neighbour has no key; the system gives no randomness.
    pub fn seal(&mut self, node: u32, keys: &KeyFile) -> Result<(), SecureError> {
        let neighbours = self.neighbours(node);
        let peers: Vec<_> = neighbours.iter().map(|&peer| (self.name(peer), self.addr(peer))).collect();
        let secure = Secure::new(keys, &peers)?;
        let place = self.nodes[node as usize];
        self.drivers[place.driver].set_seals(place.at, secure);
        Ok(())
    }

    /// Neighbours with which a sealed node has no keys, and why.
    pub fn unkeyed(&self, node: u32) -> Vec<(u32, Trouble)> {
        let place = self.nodes[node as usize];
        let Some(secure) = self.drivers[place.driver].secure(place.at) else { return Vec::new() };
        let trouble = |peer| Some((peer, secure.trouble(self.addr(peer))?));
        self.neighbours(node).into_iter().filter_map(trouble).collect()
    }

    /// The nodes to which links lead from a node, or from which they come.
    fn neighbours(&self, node: u32) -> Vec<u32> {
        let other = |&(from, to): &(u32, u32)| match (from == node, to == node) {
            (true, _) => Some(to),
            (_, true) => Some(from),
            _ => None,
        };
        let mut neighbours: Vec<u32> = self.specs.iter().filter_map(other).collect();
        neighbours.sort_unstable();
        neighbours.dedup();
        neighbours
    }

    fn name(&self, node: u32) -> &str {
        let place = self.nodes[node as usize];
        self.drivers[place.driver].names().nth(place.at as usize).unwrap_or_default()
    }
}
