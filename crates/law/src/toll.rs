//! The toll: the 24 bytes of a packet that links write and senders obey.

/// The control fields of a packet, in the units of laws. An encoding (in `tollway-proto`) writes
/// them as bytes.
///
/// | field | XCP | FCP |
/// |---|---|---|
/// | `due` | requested, then granted rate change, bytes/s | price of the path so far, $/byte |
/// | `rtt` | sender's smoothed round-trip time, s; 0 unknown | the same |
/// | `offer` | X, s between this sender's packets; 0 unknown | preload |
/// | `stake` | packets it speaks for, 0 is one; [routers](Toll::pass_router) | balance, $/byte |
/// | `echo` | sum of `due` received since the last packet back, bytes/s | last `due` received |
///
/// `due` is a double, because links add to it; the sender's own fields need only a float.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Toll {
    /// The field that links write.
    pub due: f64,
    /// The sender's smoothed round-trip time in seconds; 0 while unknown.
    pub rtt: f32,
    /// The sender's statement on its rate.
    pub offer: f32,
    /// The sender's statement on its payment.
    pub stake: f32,
    /// The value that the far end received, on its way back; valid only in a packet flagged to
    /// carry an echo.
    pub echo: f32,
}

const _: () = assert!(size_of::<Toll>() == 24);

/// The content of [`Toll::due`], which links write and senders obey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A change of throughput (XCP).
    Feedback,
    /// The path's price (FCP).
    Price,
    /// The rate of each flow (RCP).
    Rate,
}

/// XCP's count of routers, which the draft has no field for. It tells a sender whether all routers
/// of its path speak XCP.
///
/// The count is in the fraction of `stake`, in steps of 1/256: one step enables it, each router
/// adds one.
impl Toll {
    /// Enables the count of routers, at XCP's sender.
    #[inline]
    pub fn count_routers(&mut self) {
        self.stake = self.stake.trunc().max(1.0) + ROUTER;
    }

    /// Adds one, at XCP's router, if the count is enabled; it saturates at 254.
    #[inline]
    pub fn pass_router(&mut self) {
        if self.stake == 0.0 {
            return;
        }
        let fraction = fraction(self.stake);
        if (ROUTER..1.0 - ROUTER).contains(&fraction) {
            self.stake += ROUTER;
        }
    }

    /// Number of XCP routers that the packet passed; `None` if they were not counted.
    #[inline]
    pub fn routers(&self) -> Option<u8> {
        // Whatever a packet says fits: the fraction is under one, and the cast saturates.
        let steps = (fraction(self.stake) / ROUTER) as u8;
        steps.checked_sub(1)
    }
}

/// The fractional part of `value`, zero for NaN; `f32::fract` would be a call per packet.
#[inline]
fn fraction(value: f32) -> f32 {
    // From 2^24 on a float has no fraction.
    if value.abs() < 16_777_216.0 { value - (value as i32) as f32 } else { 0.0 }
}

/// One router in [`Toll::stake`]: together with at most 65 536 spoken-for packets it fits a float's
/// 24 bits.
const ROUTER: f32 = 1.0 / 256.0;

/// The treatment of a packet by a link's law.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes without a toll: plain traffic, and acknowledgements without data (XCP's minimal
    /// header).
    Plain,
    /// The toll's forward part is for the links on the path.
    Tolled,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_fraction_is_that_of_the_standard_library(bits: u32) {
            let value = f32::from_bits(bits);
            let expected = if value.is_finite() { value.fract() } else { 0.0 };
            prop_assert_eq!(fraction(value), expected);
        }
    }

    #[test]
    fn routers_are_counted_beside_the_packets_spoken_for() {
        for packets in [0.0, 1.0, 4.0, 65_535.0] {
            let mut toll = Toll { stake: packets, ..Toll::default() };
            toll.pass_router();
            assert_eq!((toll.stake, toll.routers()), (packets, None));
            toll.count_routers();
            for routers in 0..300_u16 {
                assert_eq!(toll.routers(), Some(routers.min(254) as u8), "{packets}");
                assert_eq!(toll.stake as u32, packets.max(1.0) as u32);
                toll.pass_router();
            }
        }
        for wild in [-0.5, f32::MAX, 1e-30] {
            let mut toll = Toll { stake: wild, ..Toll::default() };
            assert_eq!(toll.routers(), None);
            toll.pass_router();
            assert_eq!(toll.routers(), None);
        }
    }
}
