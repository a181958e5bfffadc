//! Early loads of memory that the next events touch.

use super::*;
use crate::pages::{load_early, load_lines};

impl<M: Machine> Network<M> {
    /// In a large network, loads early what the next events touch.
    ///
    /// In steps from the farthest event to the nearest: its link, the packet, the packet's route,
    /// and where that leads.
    #[inline(always)]
    pub(super) fn foresee(&self) {
        if !self.scheduler.is_large() {
            return;
        }
        let [far, near, soon, next] = self.scheduler.ahead().map(|id| self.links.get(id as usize));
        let (Some(far), Some(near), Some(soon), Some(next)) = (far, near, soon, next) else { return };
        if std::ptr::eq(far, next) {
            // A link with an event in every few: of those the packets that follow come soon.
            next.behind(2).into_iter().for_each(|slot| self.slab.load_early(slot));
            next.behind(1).into_iter().for_each(|slot| self.load_route(slot));
            next.behind(0).into_iter().for_each(|slot| self.load_onward(slot));
            next.port.waiting(3).into_iter().for_each(|slot| self.slab.load_early(slot));
            return;
        }
        self.load_onward(next.first_slot());
        self.load_route(soon.first_slot());
        self.slab.load_early(near.first_slot());
        load_early(near.next_place());
        load_lines(far);
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
