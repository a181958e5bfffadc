//! The fast paths of a link: one for links with queueing and transmission only, and one for links
//! whose law also reads and writes tolls. The tests of the simulator (`ways`) compare them with the
//! general path.

use tollway_law::Time;

use super::{Link, Store};
use crate::Stamp;

impl Link {
    /// True if a packet that arrives at `now` leaves at once, and no other event is due.
    #[inline]
    pub fn is_free(&self, now: Time) -> bool {
        self.plain && self.free_at <= now && !self.waiting
    }

    /// Offers a packet of `size` bytes to a [plain](Link::is_plain) link or, with `LAW`, to a
    /// [gentle](Link::is_gentle) one. Returns true if there is room.
    ///
    /// The result equals that of [`offer`](Link::offer), without the checks that cannot apply.
    #[inline(always)]
    pub fn offer_simply<const LAW: bool>(
        &mut self,
        now: Time,
        slot: u32,
        size: u16,
        store: &mut impl Store,
    ) -> bool {
        debug_assert!(if LAW { self.gentle } else { self.plain });
        if self.free_at <= now {
            while self.waiting {
                self.transmit_simply::<LAW>(store);
                if self.free_at > now {
                    return self.wait_simply::<LAW>(now, slot, size, store);
                }
            }
            if LAW && let Some(mut port) = self.port.simply() {
                port.tell_and_ask(now, slot, store);
            }
            self.depart(now, slot, size, store);
            return true;
        }
        self.wait_simply::<LAW>(now, slot, size, store)
    }

    #[inline(always)]
    fn wait_simply<const LAW: bool>(
        &mut self,
        now: Time,
        slot: u32,
        size: u16,
        store: &mut impl Store,
    ) -> bool {
        let Some(mut port) = self.port.simply() else { return false };
        if self.measured {
            self.rare.get_or_insert_default().integrate(now, port.backlog());
        }
        if LAW {
            port.tell(now, slot, store);
        }
        if self.measured {
            store.packet(slot).entered = Stamp::at(now);
        }
        let room = port.push(slot, size);
        if !room {
            self.rare().drops.full += 1;
            return false;
        }
        self.waiting = true;
        if self.measured {
            self.rare.get_or_insert_default().note_length(port.backlog());
        }
        true
    }

    /// [`transmit`](Link::transmit) at the instant the transmitter is free, on a
    /// [plain](Link::is_plain) link or, with `LAW`, on a [gentle](Link::is_gentle) one.
    #[inline(never)]
    pub(super) fn transmit_simply<const LAW: bool>(&mut self, store: &mut impl Store) {
        let Some(mut port) = self.port.simply() else { return };
        let backlog = port.backlog();
        if LAW {
            port.ask(self.free_at, store);
        }
        let taken = port.pop(store);
        self.waiting = false;
        if let Some((slot, size, more)) = taken {
            self.waiting = more;
            if self.measured {
                let waited = store.packet(slot).entered.waited(self.free_at);
                let rare = self.rare.get_or_insert_default();
                rare.integrate(self.free_at, backlog);
                rare.waits.note(waited, store.segments(slot));
            }
            self.depart(self.free_at, slot, size, store);
        }
    }
}
