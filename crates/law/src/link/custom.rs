//! A link law from outside this crate, in a box.

use std::any::Any;
use std::fmt;

use super::{Control, Deviation, LinkLaw, Passing, Verdict};
use crate::{Price, Rate, Time, Toll};

/// A boxed [`LinkLaw`], made by [`AnyLink::custom`](super::AnyLink::custom).
#[derive(Clone)]
pub struct CustomLink(Box<dyn Boxed>);

impl CustomLink {
    pub(super) fn new(law: impl LinkLaw + Clone + Send + 'static) -> CustomLink {
        CustomLink(Box::new(law))
    }

    pub(super) fn get<L: 'static>(&self) -> Option<&L> {
        (&*self.0 as &dyn Any).downcast_ref()
    }
}

impl fmt::Debug for CustomLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomLink").finish_non_exhaustive()
    }
}

impl LinkLaw for CustomLink {
    fn on_arrival(&mut self, now: Time, packet: Passing, toll: &Toll) -> Verdict {
        self.0.on_arrival(now, packet, toll)
    }

    fn on_departure(&mut self, now: Time, packet: Passing, toll: &mut Toll) -> Verdict {
        self.0.on_departure(now, packet, toll)
    }

    fn on_passage(&mut self, now: Time, packet: Passing, toll: &mut Toll) -> Verdict {
        self.0.on_passage(now, packet, toll)
    }

    fn set_capacity(&mut self, now: Time, capacity: Rate) {
        self.0.set_capacity(now, capacity);
    }

    fn set_round_trip(&mut self, rtt: Time) {
        self.0.set_round_trip(rtt);
    }

    fn set_error(&mut self, part: f64) {
        self.0.set_error(part);
    }

    fn control(&self) -> Option<Control> {
        self.0.control()
    }

    fn control_intervals(&self) -> u64 {
        self.0.control_intervals()
    }

    fn stated_price(&self) -> Option<Price> {
        self.0.stated_price()
    }

    fn deviation(&self) -> Option<Deviation> {
        self.0.deviation()
    }

    fn is_silent(&self) -> bool {
        self.0.is_silent()
    }

    fn is_gentle(&self) -> bool {
        self.0.is_gentle()
    }
}

/// A law that can be cloned without knowledge of its type.
trait Boxed: LinkLaw + Any + Send {
    fn copy(&self) -> Box<dyn Boxed>;
}

impl<L: LinkLaw + Clone + Send + 'static> Boxed for L {
    fn copy(&self) -> Box<dyn Boxed> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn Boxed> {
    fn clone(&self) -> Box<dyn Boxed> {
        (**self).copy()
    }
}

#[cfg(test)]
mod tests {
    use super::super::AnyLink;
    use super::*;
    use crate::Kind;

    /// Notes what it is asked.
    #[derive(Clone, Default)]
    struct Recorder(Vec<&'static str>);

    impl LinkLaw for Recorder {
        fn on_arrival(&mut self, _: Time, _: Passing, _: &Toll) -> Verdict {
            self.0.push("arrival");
            Verdict::Drop
        }
        fn on_departure(&mut self, _: Time, _: Passing, toll: &mut Toll) -> Verdict {
            self.0.push("departure");
            toll.due = 5.0;
            Verdict::Signal
        }
        fn on_passage(&mut self, _: Time, _: Passing, _: &mut Toll) -> Verdict {
            self.0.push("passage");
            Verdict::Pass
        }
        fn set_capacity(&mut self, _: Time, _: Rate) {
            self.0.push("capacity");
        }
        fn is_silent(&self) -> bool {
            self.0.len() == 1
        }
        fn is_gentle(&self) -> bool {
            self.0.len() == 2
        }
    }

    #[test]
    fn a_law_in_a_box_is_asked_everything_and_copied() {
        let mut law = AnyLink::custom(Recorder::default());
        let (now, packet, mut toll) = (Time::ZERO, Passing::of(Kind::Tolled, 1000, 0, 0), Toll::default());
        assert_eq!(law.on_arrival(now, packet, &toll), Verdict::Drop);
        assert!(law.is_silent() && !law.is_gentle());
        assert_eq!((law.on_departure(now, packet, &mut toll), toll.due), (Verdict::Signal, 5.0));
        assert!(law.is_gentle() && !law.is_silent());
        assert_eq!(law.on_passage(now, packet, &mut toll), Verdict::Pass);
        let copy = law.clone();
        law.set_capacity(now, Rate::ZERO);
        let asked = |law: &AnyLink| law.as_custom::<Recorder>().map(|law| law.0.len());
        assert_eq!((asked(&law), asked(&copy)), (Some(4), Some(3)));
        assert!(law.as_custom::<u8>().is_none() && law.control().is_none() && law.control_intervals() == 0);
    }
}
