//! The response of arrivals to another price: the step of Newton's method, a part of which
//! [`FcpConfig::newton`] adds.
//!
//! A flow that spends w $/s on a path of price P sends w/P. If one link adds δ to its price, the
//! flow sends w/(P + δ), that is δ/P less to the first order. Packets state P (their stake). So Σ
//! size/P over the window is the decrease in bytes per $/byte of price, and
//!
//! ```text
//! (Σ size − C·d) / Σ (size/P)
//! ```
//!
//! is the amount by which the price is too low. This is Newton's method on the dual problem with
//! the diagonal of the Hessian alone (Athuraliya & Low, *Optimization flow control with Newton-like
//! algorithm*, Telecommunication Systems 15, 2000). Links have no knowledge of each other, so where
//! flows cross several full links, each would correct the whole excess. Hence only a part of it.
//!
//! [`FcpConfig::newton`]: super::FcpConfig::newton

use super::window::Window;
use super::{Fcp, REFUSAL};

/// The path prices stated by packets, over the window.
#[derive(Clone, Debug)]
pub(super) struct Newton {
    /// The fraction of a step that is applied.
    part: f64,
    /// Σ size/P, bytes²/$.
    ease: Window<f64>,
}

impl Newton {
    pub(super) fn new(part: f64) -> Newton {
        Newton { part, ease: Window::new() }
    }
}

impl Fcp {
    /// Records a packet of `size` bytes of a flow that pays `stake` $/byte for its path.
    #[inline]
    pub(super) fn note_stake(&mut self, now: u64, size: f64, stake: f32) {
        if let Some(newton) = &mut self.newton {
            let stake = f64::from(stake);
            // A flow that pays nothing would seem to stop at any price above zero.
            if stake > REFUSAL / 2.0 && stake.is_finite() {
                newton.ease.add(now, self.span.ns, size / stake);
            }
        }
    }

    /// `price` with a fraction of its error corrected, as the last packet of the window, of `size`
    /// bytes, arrives.
    ///
    /// That packet is left out, since an interval that ends with a packet holds one more than any
    /// other. The price is at most halved: arrivals reflect the price of a round trip or two ago.
    #[inline]
    pub(super) fn corrected(&mut self, now: u64, size: f64, price: f64) -> f64 {
        let Some(newton) = &mut self.newton else { return price };
        let span = self.span;
        let ease = newton.ease.sums(now, span.ns);
        if ease > 0.0 {
            let unpaid = self.unpaid.as_mut().map_or(0.0, |bytes| bytes.sums(now, span.ns));
            let came = self.engine.window.sums(now, span.ns).bytes - size + unpaid;
            let off = (came - self.capacity * span.seconds) / ease;
            return (price + newton.part * off).max(price / 2.0);
        }
        price
    }
}
