//! The toll: the 24 bytes of a packet that links write and senders obey.

/// What a packet carries of the control law, in law units. An encoding (in `tollway-proto`) writes
/// it as bytes.
///
/// | field | XCP | FCP |
/// |---|---|---|
/// | `due` | throughput change asked for, then granted, per packet, bytes/s | price of the path so far, $/byte |
/// | `rtt` | sender's smoothed round-trip time, s; 0 unknown | the same |
/// | `offer` | X, s between this sender's packets; 0 unknown | preload |
/// | `stake` | packets it speaks for, itself included; 0 is one; and [routers](Toll::pass_router), in 256ths | balance, $/byte |
/// | `echo` | sum of `due` received since the last packet back, bytes/s | last `due` received, $/byte |
///
/// `due` is a double because what links write is summed; the sender's own words need no more than a
/// float.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Toll {
    /// What links write.
    pub due: f64,
    /// The sender's smoothed round-trip time in seconds, 0 while it is unknown.
    pub rtt: f32,
    /// What the sender says of its rate.
    pub offer: f32,
    /// What the sender says it pays.
    pub stake: f32,
    /// What the far end heard, on its way back; it means something only in a packet that says it
    /// carries an echo.
    pub echo: f32,
}

const _: () = assert!(size_of::<Toll>() == 24);

/// What links write into [`Toll::due`] and senders go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A change of throughput (XCP).
    Feedback,
    /// The path's price (FCP).
    Price,
    /// The rate that each flow is given (RCP).
    Rate,
}

/// XCP's count of routers: what the draft has no field for, and a sender needs to know whether all
/// on its way speak XCP. It lives in the fraction of `stake`, in steps of 1/256: one step asks for
/// the count, each router adds one.
impl Toll {
    /// XCP's sender: from here on routers are counted.
    #[inline]
    pub fn count_routers(&mut self) {
        self.stake = self.stake.trunc().max(1.0) + ROUTER;
    }

    /// XCP's router: one more, if they are counted; over 254 it stays there.
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

    /// How many XCP routers the packet met; `None` if they were not counted.
    #[inline]
    pub fn routers(&self) -> Option<u8> {
        // Whatever a packet says fits: the fraction is under one, and the cast saturates.
        let steps = (fraction(self.stake) / ROUTER) as u8;
        steps.checked_sub(1)
    }
}

/// The part of `value` after the point, zero for what is no number: `f32::fract` would be a call
/// for each packet.
#[inline]
fn fraction(value: f32) -> f32 {
    // Over 2^24 a float has none.
    if value.abs() < 16_777_216.0 { value - (value as i32) as f32 } else { 0.0 }
}

/// A router, in [`Toll::stake`]: the packets spoken for, 65 536 at most, and this together fit a
/// float's 24 bits.
const ROUTER: f32 = 1.0 / 256.0;

/// How a link's law has to take a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes and nothing more: plain traffic, and acknowledgements without data (XCP's minimal
    /// header).
    Plain,
    /// The toll's forward part is meant for the links on the way.
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
