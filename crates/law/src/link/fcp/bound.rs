//! The price at which present and announced spending fits the link
//! ([`FcpConfig::bound`](super::FcpConfig::bound)).
//!
//! Equation 2 treats what flows pay at this link as all that they spend. Where flows pay most at
//! other links, the equation only multiplies the price by load ∕ capacity. A price at the minimum
//! then needs ten decades before a flow notices it.
//!
//! Packets state the price P of their whole path, and this link's part of it is p(t − rtt). So the
//! rest, Q, is known here. Flows that spend W in all then send W/(Q + p), and
//!
//! ```text
//! p ≥ W/C − Q,   Q = (W − I)/Y
//! ```
//!
//! makes that at most C. I is what they pay here, and Y their rate; both include announcements from
//! the moment of the announcement. At Y = C the bound is equation 2, p ≥ I/C. No more than that is
//! required up to [`SLACK`] of C. The mean Q is weighted by bytes, so with flows of different Q the
//! price errs to the high side, as w/(P + Δ) is concave in 1/P.

use super::promises::Promises;
use super::window::Summed;
use super::{PriceEngine, Promise, Span};
use crate::price::{at_least, at_most};

/// A change of the flows' spending.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Spending {
    /// On whole paths, $/s.
    pub(super) whole: f64,
    /// At this link, $/s.
    pub(super) here: f64,
    /// The rate at the prices stated, bytes/s.
    pub(super) rate: f64,
}

impl Summed for Spending {
    #[inline]
    fn add(&mut self, other: Spending) {
        self.whole += other.whole;
        self.here += other.here;
        self.rate += other.rate;
    }

    #[inline]
    fn take(&mut self, other: Spending) {
        self.add(other.times(-1.0));
    }

    #[inline]
    fn times(self, share: f64) -> Spending {
        Spending { whole: self.whole * share, here: self.here * share, rate: self.rate * share }
    }
}

/// Announced changes that are not in the window yet.
pub(super) type Announced = Promises<Spending>;

impl PriceEngine {
    /// Counts the announcement of `promise` from `now` (ns) on.
    ///
    /// All packets of a flow's first round trip state the price that its first packet found, up to
    /// two round trips ago. The link's own part of it may have fallen since. So the maximum of that
    /// part counts, and no part of it is attributed to another link.
    pub(super) fn announce(&mut self, now: u64, promise: &Promise) {
        let mut change = promise.spending;
        if change.whole > 0.0 {
            let rtt = promise.kept - now;
            for age in [rtt + rtt / 2, 2 * rtt] {
                if let Some(past) = self.history.at(now.saturating_sub(age)) {
                    change.here = at_least(change.here, past.most() * change.rate);
                }
            }
            change.here = at_most(change.here, change.whole);
        }
        self.announced.add_fading(now, now, promise.fades, promise.until, change);
    }

    /// The larger of `price` and the price at which present and announced spending fits `room`
    /// bytes/s.
    #[inline]
    pub(super) fn bounded(&mut self, now: u64, span: Span, room: f64, price: f64) -> f64 {
        if self.sums.bytes * span.per_second <= room && self.announced.is_idle(now) {
            return price;
        }
        at_least(price, self.least(now, span, room))
    }

    /// The price bound.
    #[inline(never)]
    fn least(&mut self, now: u64, span: Span, room: f64) -> f64 {
        let Spending { whole, here, rate } = self.announced.total(now);
        let whole = at_least(self.sums.spent * span.per_second + whole, 0.0);
        let here = at_least(self.sums.paid * span.per_second + here, 0.0);
        let rate = self.sums.bytes * span.per_second + rate;
        let most = SLACK * room;
        let elsewhere = at_least(whole - here, 0.0) / at_least(rate, most);
        at_least(here / room, whole / most - elsewhere)
    }
}

/// The load at which the bound applies, as a fraction of the room. The rate in a window fluctuates
/// by as much. Where flows pay most at other links, a load of 1.05 requires a price several times
/// as high, and each full link of their path would raise its own.
const SLACK: f64 = 1.15;
