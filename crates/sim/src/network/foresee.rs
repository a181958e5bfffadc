//! Early loads of memory that the next events touch.

use super::*;
use crate::pages::{load_early, load_lines};

impl<M: Machine> Network<M> {
    /// With `many` pending events, loads early what the events after the present one touch.
    #[inline(always)]
    pub(super) fn foresee(&self, many: bool) {
        if many {
            self.foresee_after();
        }
    }

    /// In steps from the farthest event to the nearest: its link, the packet, the packet's route,
    /// and where that leads.
    #[inline(never)]
    fn foresee_after(&self) {
        let [far, near, soon, next] = self.scheduler.ahead();
        if let Some(link) = self.links.get(far as usize) {
            load_lines(link);
            load_early(self.onward.as_ptr().wrapping_add(far as usize));
            load_early(self.scheduler.place(far));
        }
        if let Some(link) = self.links.get(near as usize) {
            self.slab.load_early(link.first_slot());
            load_early(link.next_place());
        }
        if let Some(link) = self.links.get(soon as usize) {
            self.load_route(link.first_slot());
        }
        if let Some(link) = self.links.get(next as usize) {
            self.load_onward(link.first_slot());
        }
    }

    /// Loads early what the next packets on the wire of link `id` touch, if routes differ after it:
    /// the packet that arrives third, the route of the second, and the link that the first takes,
    /// with the server of its flow.
    #[inline(always)]
    pub(super) fn foresee_wire(&self, id: u32) {
        let link = &self.links[id as usize];
        if self.links.len() < FEW_LINKS || !link.is_trailing() {
            return;
        }
        link.behind(1).into_iter().for_each(|slot| self.slab.load_early(slot));
        link.behind(0).into_iter().for_each(|slot| self.load_route(slot));
        let packet = self.slab.get(link.first_slot());
        if let Some(&entry) = self.routes.get(packet.cursor as usize + 1) {
            load_early(self.links.as_ptr().wrapping_add(entry as usize));
            load_early(self.endpoints.as_ptr().wrapping_add(packet.flow as usize * 2 + 1));
        }
    }

    /// Loads early the link whose event is probably the next.
    #[inline(always)]
    pub(super) fn foresee_next(&self) {
        if self.links.len() < FEW_LINKS {
            return;
        }
        let link = self.scheduler.likely() as usize;
        load_early(self.links.as_ptr().wrapping_add(link));
        load_early(self.onward.as_ptr().wrapping_add(link));
    }

    /// Loads early the next step of the packet in `slot`.
    #[inline(always)]
    fn load_route(&self, slot: u32) {
        let packet = self.slab.get(slot);
        load_early(self.routes.as_ptr().wrapping_add(packet.cursor as usize + 1));
    }

    /// Loads early the link or the end that the packet in `slot` goes to.
    #[inline(always)]
    fn load_onward(&self, slot: u32) {
        let packet = self.slab.get(slot);
        let Some(&entry) = self.routes.get(packet.cursor as usize + 1) else { return };
        let end = packet.flow as usize * 2 + usize::from(entry == END_SERVER);
        if let Some(link) = self.links.get(entry as usize) {
            load_lines(link);
        } else if let Some(endpoint) = self.endpoints.get(end) {
            load_lines(endpoint);
        }
    }
}

/// Fewer links than these are in the fastest cache anyway.
const FEW_LINKS: usize = 256;
