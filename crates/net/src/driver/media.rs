//! Half-duplex media: links that share one transmitter, in virtual time like all links.

use tollway_law::Time;
use tollway_proto::Medium;

use super::{Driver, MEDIUM};
use crate::emulator;

impl Driver {
    /// Makes `links` share one medium.
    pub(crate) fn add_medium(&mut self, links: Vec<u32>) {
        for &link in &links {
            let hop = &mut self.links[link as usize];
            hop.medium = Some(self.media.len() as u32);
            hop.link.share(self.media.len() as u32);
        }
        self.media.push(Medium::new(links));
    }

    /// Enqueues a packet at a link that shares `medium`.
    pub(super) fn offer_shared(&mut self, medium: u32, link: usize, now: Time, handle: u32) {
        self.run_medium(medium as usize, now);
        emulator::offer(&mut self.links[link].link, now, handle, &mut self.buffers);
        if self.media[medium as usize].free_at() <= now {
            self.take_turn(medium as usize, now);
        }
    }

    /// Sends the packets that the stations of a medium could send by `now`, each at its own
    /// instant.
    pub(super) fn run_medium(&mut self, medium: usize, now: Time) {
        while self.media[medium].free_at() <= now && self.take_turn(medium, self.media[medium].free_at()) {}
    }

    /// Gives the next station its turn at `start`. Returns true if a station had a packet.
    fn take_turn(&mut self, medium: usize, start: Time) -> bool {
        let (links, buffers) = (&mut self.links, &mut self.buffers);
        let sends = self.media[medium].take_turn(|station| {
            let link = &mut links[station as usize].link;
            link.transmit(start, buffers).then_some(link.free_at())
        });
        let Some(station) = sends else { return false };
        self.arm_link(station as usize);
        self.set_timer(self.media[medium].free_at(), medium, MEDIUM);
        true
    }

    /// Advances the medium of a link, if any, to `now`. A change of the link follows.
    pub(crate) fn catch_up_medium(&mut self, link: usize, now: Time) {
        if let Some(medium) = self.links[link].medium {
            self.run_medium(medium as usize, now);
        }
    }

    /// Updates the medium after a change of the time that a link's current transmission takes.
    pub(crate) fn resume_medium(&mut self, link: usize, now: Time) {
        let Some(medium) = self.links[link].medium else { return };
        let free_at = self.links[link].link.free_at();
        if free_at > now {
            self.media[medium as usize].set_free_at(free_at);
            self.set_timer(free_at, medium as usize, MEDIUM);
        }
    }
}
