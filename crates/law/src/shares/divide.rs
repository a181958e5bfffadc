//! Weighted max–min with demands.

use super::LEAST_WEIGHT;

/// What somebody wants of a capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Claim {
    /// What it counts for.
    pub weight: f64,
    /// What it wants at most, in the capacity's unit; infinity is all there is.
    pub wants: f64,
    /// Answered by [`divide`].
    pub gets: f64,
}

impl Claim {
    /// A claim not answered yet.
    pub fn new(weight: f64, wants: f64) -> Claim {
        Claim { weight, wants, gets: 0.0 }
    }
}

/// Divides `capacity` so that who gets less than it wants gets, by its weight, no less than anybody
/// else: s = min(λ·w, wants), Σ s = min(capacity, Σ wants). O(n log n) in those whose wants are
/// finite; `order` is room to work in.
///
/// ```
/// use tollway_law::shares::{Claim, divide};
///
/// let mut claims = [Claim::new(1.0, 5.0), Claim::new(1.0, f64::INFINITY), Claim::new(3.0, f64::INFINITY)];
/// divide(85.0, &mut claims, &mut Vec::new());
/// assert_eq!(claims.map(|claim| claim.gets), [5.0, 20.0, 60.0]);
/// ```
pub fn divide(capacity: f64, claims: &mut [Claim], order: &mut Vec<u32>) {
    let weight = |claim: &Claim| claim.weight.clamp(LEAST_WEIGHT, f64::MAX);
    let mut left = capacity.max(0.0);
    order.clear();
    order.extend((0..claims.len() as u32).filter(|&at| claims[at as usize].wants.is_finite()));
    // By the level at which each is satisfied.
    let level = |at: &u32| claims[*at as usize].wants.max(0.0) / weight(&claims[*at as usize]);
    order.sort_unstable_by(|a, b| level(a).total_cmp(&level(b)).then(a.cmp(b)));
    // Weights from each on, added up from the end: of a sum from which large ones are taken away,
    // small ones would not be left.
    let mut weights: f64 = claims.iter().filter(|claim| !claim.wants.is_finite()).map(weight).sum();
    let endless = weights;
    for &at in order.iter().rev() {
        let claim = &mut claims[at as usize];
        weights += weight(claim);
        claim.gets = weights;
    }
    let mut satisfied = 0;
    for &at in order.iter() {
        let claim = &mut claims[at as usize];
        let wants = claim.wants.max(0.0);
        weights = claim.gets;
        if wants * weights > left * weight(claim) {
            break;
        }
        claim.gets = wants;
        left -= wants;
        satisfied += 1;
        weights = endless;
    }
    for &at in &order[satisfied..] {
        let claim = &mut claims[at as usize];
        claim.gets = (left * weight(claim) / weights).min(claim.wants);
    }
    for claim in claims.iter_mut().filter(|claim| !claim.wants.is_finite()) {
        claim.gets = left * weight(claim) / weights;
    }
}
