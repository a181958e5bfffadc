//! How what comes would answer another price: the step of Newton's method of which
//! [`FcpConfig::newton`] adds a part.
//!
//! A flow with w $/s on a path of price P sends w/P. Were one link of the path to ask δ more, it
//! would send w/(P + δ), which is δ/P of its rate less, to the first order. Packets state P (their
//! stake), so that Σ size/P over the window is how many bytes fewer would come for each $/byte
//! more, and
//!
//! ```text
//! (Σ size − C·d) / Σ (size/P)
//! ```
//!
//! by how much the link is too cheap. It is Newton's method on the dual problem with the diagonal
//! of its Hessian alone (Athuraliya & Low, *Optimization flow control with Newton-like algorithm*,
//! Telecommunication Systems 15, 2000): links don't know of each other, and where flows cross
//! several full ones each would correct all of what is too much. Hence a part of it.
//!
//! [`FcpConfig::newton`]: super::FcpConfig::newton

use super::window::Window;
use super::{Fcp, REFUSAL};

/// What packets state of their paths' prices, over the window.
#[derive(Clone, Debug)]
pub(super) struct Newton {
    /// The part of a step that is taken.
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
    /// A packet of `size` bytes comes from a flow that pays `stake` $/byte for its path.
    #[inline]
    pub(super) fn note_stake(&mut self, now: u64, size: f64, stake: f32) {
        if let Some(newton) = &mut self.newton {
            let stake = f64::from(stake);
            // Who pays nothing anywhere would be said to go as soon as anything is asked.
            if stake > REFUSAL / 2.0 && stake.is_finite() {
                newton.ease.add(now, self.span.ns, size / stake);
            }
        }
    }

    /// `price`, and the part of what it is off by, as the last of the window's packets comes, of
    /// `size` bytes: that one is left out, since a stretch of time that ends with a packet holds
    /// one more than any other. The price is at most halved: what came did so a round trip or two
    /// ago.
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
