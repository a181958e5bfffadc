//! Several laws on one link, one per class of traffic, each with a separate queue.

use std::sync::Arc;

use super::{AnyLink, DropTail, LinkConfig, LinkLaw, Passing, Placement, Verdict, read};
use crate::param::Entry;
use crate::{Rate, Time, Toll};

/// The laws of a link by class, and their weights; first that of traffic without a class.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedConfig {
    laws: Vec<(Arc<dyn LinkConfig>, f64)>,
}

impl SharedConfig {
    /// The registry entry of this law. Traffic without a class is under drop-tail, with weight 1.
    pub const ENTRY: Entry<dyn LinkConfig> = Entry {
        word: "by-class",
        tables: &[],
        read: |tables| {
            let none: (Arc<dyn LinkConfig>, f64) = (Arc::new(DropTail), 1.0);
            let classes = tables.classes().into_iter().map(|(law, weight)| (read(law, tables), weight));
            Arc::new(SharedConfig { laws: std::iter::once(none).chain(classes).collect() })
        },
    };
}

impl LinkConfig for SharedConfig {
    fn word(&self) -> &str {
        Self::ENTRY.word
    }

    fn place(&self, at: &Placement<'_>) -> AnyLink {
        let laws = self.laws.iter().map(|(law, weight)| (law.place(at), *weight)).collect();
        AnyLink::Shared(Box::new(Shared::new(laws, at.capacity)))
    }

    fn of_class(&self, class: u8) -> Option<&dyn LinkConfig> {
        self.laws.get(usize::from(class)).map(|(law, _)| &**law)
    }
}

/// Laws by class of traffic, for a port whose queues share the link by weight.
///
/// A law's capacity is the larger of two: its weight's share of the link among the classes that
/// sent in the last 100 ms, and the rest that the other classes' departures left in that time. So a
/// class uses what the others leave, and returns it when they come back.
#[derive(Clone, Debug)]
pub struct Shared {
    classes: Vec<ClassLaw>,
    /// Link capacity, bytes/s.
    capacity: f64,
    /// The end of the present part of the window.
    turns: Time,
}

#[derive(Clone, Debug)]
struct ClassLaw {
    law: AnyLink,
    weight: f64,
    /// The capacity set in the law.
    capacity: Rate,
    /// Bytes that left, per part of the window, and in total; the present part is not included.
    parts: [u64; PARTS],
    at: usize,
    sent: u64,
    now: u64,
}

impl Shared {
    /// Laws and their weights, above zero, on a link of `capacity`. Law i serves class i; classes
    /// beyond the last law use the first.
    pub fn new(laws: Vec<(AnyLink, f64)>, capacity: Rate) -> Shared {
        let class = |(law, weight): (AnyLink, f64)| ClassLaw {
            law,
            weight,
            capacity,
            parts: [0; PARTS],
            at: 0,
            sent: 0,
            now: 0,
        };
        Shared {
            classes: laws.into_iter().map(class).collect(),
            capacity: capacity.bytes_per_sec(),
            turns: Time(PART_NS),
        }
    }

    /// The law of a class.
    pub fn law(&self, class: u8) -> Option<&AnyLink> {
        self.classes.get(usize::from(class)).or(self.classes.first()).map(|class| &class.law)
    }

    /// The law of each class.
    pub fn laws(&self) -> impl Iterator<Item = &AnyLink> {
        self.classes.iter().map(|class| &class.law)
    }

    /// The capacity set in the law of a class.
    pub fn capacity(&self, class: u8) -> Option<Rate> {
        self.classes.get(usize::from(class)).map(|class| class.capacity)
    }

    fn class(&mut self, class: u8) -> Option<&mut ClassLaw> {
        let at = if usize::from(class) < self.classes.len() { usize::from(class) } else { 0 };
        self.classes.get_mut(at)
    }

    #[inline]
    fn turn(&mut self, now: Time) {
        if now >= self.turns {
            self.turn_slowly(now);
        }
    }

    /// Ends one or more parts of the window.
    #[cold]
    fn turn_slowly(&mut self, now: Time) {
        let parts = (now.0 - self.turns.0) / PART_NS + 1;
        self.turns = Time(self.turns.0 + parts * PART_NS);
        for class in &mut self.classes {
            for _ in 0..parts.min(PARTS as u64) {
                let old = std::mem::replace(&mut class.parts[class.at], std::mem::take(&mut class.now));
                class.sent += class.parts[class.at];
                class.sent -= old;
                class.at = (class.at + 1) % PARTS;
            }
        }
        self.tell(now);
    }

    fn tell(&mut self, now: Time) {
        let window = PART_NS as f64 * PARTS as f64 * 1e-9;
        let all: u64 = self.classes.iter().map(|class| class.sent).sum();
        let busy: f64 = self.classes.iter().filter(|class| class.sent > 0).map(|class| class.weight).sum();
        for class in &mut self.classes {
            let beside = if class.sent > 0 { busy } else { busy + class.weight };
            let others = (all - class.sent) as f64 / window;
            let capacity = (class.weight / beside * self.capacity).max(self.capacity - others);
            class.capacity = Rate::from_bytes_per_sec(capacity);
            class.law.set_capacity(now, class.capacity);
        }
    }
}

impl LinkLaw for Shared {
    fn on_arrival(&mut self, now: Time, packet: Passing, toll: &Toll) -> Verdict {
        self.turn(now);
        self.class(packet.class).map_or(Verdict::Pass, |class| class.law.on_arrival(now, packet, toll))
    }

    fn on_departure(&mut self, now: Time, packet: Passing, toll: &mut Toll) -> Verdict {
        self.turn(now);
        let Some(class) = self.class(packet.class) else { return Verdict::Pass };
        class.now += u64::from(packet.size);
        class.law.on_departure(now, packet, toll)
    }

    fn set_capacity(&mut self, now: Time, capacity: Rate) {
        self.turn(now);
        self.capacity = capacity.bytes_per_sec();
        self.tell(now);
    }
}

/// The window in which departures are counted is 16 parts of 6.25 ms.
const PARTS: usize = 16;
const PART_NS: u64 = 6_250_000;

#[cfg(test)]
mod tests {
    use super::super::DropTail;
    use super::*;
    use crate::Kind;

    #[test]
    fn a_law_has_its_share_and_what_others_leave() {
        let rate = Rate::from_bytes_per_sec(1e6);
        let law = || AnyLink::DropTail(DropTail);
        let mut shared = Shared::new(vec![(law(), 1.0), (law(), 3.0)], rate);
        let mut capacity = |from: u64, bytes: u32| {
            for k in 0..400 {
                let packet = Passing { class: 1, ..Passing::of(Kind::Plain, bytes, 1, u64::from(bytes)) };
                shared.on_departure(Time(from + k * 1_000_000), packet, &mut Toll::default());
            }
            shared.capacity(0).map_or(0.0, Rate::bytes_per_sec) / 1e6
        };
        // The other sends a tenth of what the link carries, all of it, and nothing.
        assert!((capacity(0, 100) - 0.9).abs() < 0.01);
        assert!((capacity(400_000_000, 1000) - 0.25).abs() < 0.01);
        assert!((capacity(800_000_000, 0) - 1.0).abs() < 0.01);
    }
}
