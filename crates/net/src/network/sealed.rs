//! Networks whose datagrams are sealed from node to node.

use super::Network;
use crate::secure::{KeyFile, Secure, SecureError, Trouble};

impl Network {
    /// Seals a node's datagrams to its neighbours, and refuses unsealed ones from them.
    ///
    /// `keys` has the node's own keys and its neighbours' public keys.
    ///
    /// # Errors
    /// A neighbour has no key, or the system gives no randomness.
    pub fn seal(&mut self, node: u32, keys: &KeyFile) -> Result<(), SecureError> {
        let neighbours = self.neighbours(node);
        let peers: Vec<_> = neighbours.iter().map(|&peer| (self.name(peer), self.addr(peer))).collect();
        let secure = Secure::new(keys, &peers)?;
        let place = self.nodes[node as usize];
        self.drivers[place.driver].set_seals(place.at, secure);
        Ok(())
    }

    /// Neighbours with which a sealed node has no keys, and the reasons.
    pub fn unkeyed(&self, node: u32) -> Vec<(u32, Trouble)> {
        let place = self.nodes[node as usize];
        let Some(secure) = self.drivers[place.driver].secure(place.at) else { return Vec::new() };
        let trouble = |peer| Some((peer, secure.trouble(self.addr(peer))?));
        self.neighbours(node).into_iter().filter_map(trouble).collect()
    }

    /// The nodes that have a link to or from a node.
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
