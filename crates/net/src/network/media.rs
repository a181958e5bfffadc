//! Half-duplex media of a network.

use super::Network;

impl Network {
    /// Lets `links` share one half-duplex medium. The network must have one thread, which schedules
    /// it.
    pub fn add_medium(&mut self, links: &[u32]) {
        assert!(self.drivers.len() == 1, "a medium is one thread's");
        let links = links.iter().map(|&link| self.links[link as usize].at).collect();
        self.drivers[0].add_medium(links);
    }
}
