//! Early loads of memory that the next events touch.

use super::*;
use crate::pages::{load_early, load_lines};

impl<M: Machine> Network<M> {
    /// With `many` pending events, loads early what the events after the one of `id` touch.
    #[inline(always)]
    pub(super) fn foresee(&self, many: bool, id: u32) {
        if many {
            self.foresee_after(id);
        }
    }

    /// In steps from the farthest event to the nearest: its link, the packet, the packet's route,
    /// and where that leads.
    #[inline(never)]
    fn foresee_after(&self, id: u32) {
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
        if let Some(link) = self.links.get(id as usize)
            && let Some(third) = link.behind(2)
        {
            // A link with several packets on the wire: they come soon, too.
            self.slab.load_early(third);
            link.behind(1).into_iter().for_each(|slot| self.load_route(slot));
            link.behind(0).into_iter().for_each(|slot| self.load_onward(slot));
            link.port.waiting(3).into_iter().for_each(|slot| self.slab.load_early(slot));
        }
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
