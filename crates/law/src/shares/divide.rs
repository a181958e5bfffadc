//! Weighted max–min with demands.

use super::LEAST_WEIGHT;

/// A claim on a part of a capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Claim {
    /// Its weight.
    pub weight: f64,
    /// The largest useful part, in the capacity's unit; infinity for any.
    pub wants: f64,
    /// The part granted, set by [`divide`].
    pub gets: f64,
}

impl Claim {
    /// A claim before its division.
    pub fn new(weight: f64, wants: f64) -> Claim {
        Claim { weight, wants, gets: 0.0 }
    }
}

/// Divides `capacity` in a weighted max–min fair way: a claim below its want gets at least as much
/// by weight as any other claim.
///
/// s = min(λ·w, wants), Σ s = min(capacity, Σ wants). Costs O(n log n) in the claims with finite
/// wants; `order` is scratch memory.
///
/// ```
/// use tollway_law::shares::{Claim, divide};
///
/// let any = f64::INFINITY;
/// let mut claims = [Claim::new(1.0, 5.0), Claim::new(1.0, any), Claim::new(3.0, any)];
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
