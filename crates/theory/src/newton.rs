//! Weighted proportional fairness by Newton's method on the prices of links, for large networks.

use crate::proportional::{classes, kkt_residual};
use crate::{Flow, Network, NetworkError, Proportional};

/// The rates of [`proportional()`](crate::proportional()) by Newton's method, to a residual of
/// 1e-10.
///
/// The method follows the central path of the dual (Boyd & Vandenberghe, *Convex Optimization*,
/// Cambridge 2004, § 11.3): for ever smaller μ it finds the prices p that minimise
///
/// Σ c·p − Σ w·log q − μ Σ log p,
///
/// where q is the sum of prices over a flow's route. At that point every flow takes w ∕ q, and a
/// link of price p leaves μ ∕ p of its capacity c unused. A flow with a demand d takes the x
/// between 0 and d where w ∕ x = q + μ ∕ (d − x).
///
/// A step solves one equation per link, in time that grows with the cube of the number of links and
/// hardly with the number of flows. 500 links and 100 000 flows take a second or two; the price
/// iteration takes minutes.
///
/// The relative error of a rate is at most √(2e-10 · Σ w ∕ w). That bound is reached where a flow
/// demands exactly its share, or where a link without a price is exactly full. Elsewhere the error
/// is as small as the residual.
///
/// `None` if a flow can have no rate (its demand or a link's capacity is 0), or if rounding stops
/// the method.
///
/// # Errors
/// As [`Network::check`].
pub fn proportional_by_newton(network: &Network) -> Result<Option<Proportional>, NetworkError> {
    network.check()?;
    let (classes, class_of) = classes(network);
    let Some(mut dual) = Dual::new(network, &classes) else { return Ok(None) };
    let Some(rounds) = dual.descend() else { return Ok(None) };
    let mut prices = vec![0.0; network.capacities.len()];
    for (&link, price) in dual.links.iter().zip(&dual.prices) {
        prices[link] = *price;
    }
    let mut rates = vec![0.0; network.flows.len()];
    for ((rate, flow), &class) in rates.iter_mut().zip(&network.flows).zip(&class_of) {
        *rate = dual.rates[class] * flow.weight / classes[class].weight;
    }
    let residual = kkt_residual(network, &network.loads(&rates), &prices);
    Ok(Some(Proportional { rates, prices, residual, rounds }))
}

/// The dual problem, and the state of its solution.
struct Dual<'a> {
    flows: &'a [Flow],
    /// The links that flows cross, by their index in the network. The other fields use positions in
    /// this list.
    links: Vec<usize>,
    capacities: Vec<f64>,
    /// Each flow's route.
    routes: Vec<Vec<usize>>,
    prices: Vec<f64>,
    /// The rates at the present prices.
    rates: Vec<f64>,
    mu: f64,
}

impl<'a> Dual<'a> {
    fn new(network: &Network, flows: &'a [Flow]) -> Option<Dual<'a>> {
        let mut weights = vec![0.0; network.capacities.len()];
        for flow in flows {
            flow.links.iter().for_each(|&l| weights[l] += flow.weight);
            let stuck = flow.demand <= 0.0 || flow.links.iter().any(|&l| network.capacities[l] <= 0.0);
            if stuck {
                return None;
            }
        }
        let links: Vec<usize> = (0..weights.len()).filter(|&l| weights[l] > 0.0).collect();
        let mut place = vec![0; weights.len()];
        links.iter().enumerate().for_each(|(i, &l)| place[l] = i);
        let capacities: Vec<f64> = links.iter().map(|&l| network.capacities[l]).collect();
        Some(Dual {
            flows,
            // The price of each link if it were the only one of its flows.
            prices: links.iter().map(|&l| weights[l] / network.capacities[l]).collect(),
            routes: flows.iter().map(|flow| flow.links.iter().map(|&l| place[l]).collect()).collect(),
            rates: vec![0.0; flows.len()],
            mu: 0.0,
            capacities,
            links,
        })
    }

    /// Follows the path to its end, and returns the number of steps.
    fn descend(&mut self) -> Option<u32> {
        let weights: f64 = self.flows.iter().map(|flow| flow.weight).sum();
        let bounds = self.links.len() + self.flows.iter().filter(|flow| flow.demand.is_finite()).count();
        let unit = weights / bounds.max(1) as f64;
        self.mu = unit;
        let mut steps = 0;
        loop {
            for turn in 0.. {
                let (slope, curve) = self.derivatives();
                let step = solve(curve, &slope)?;
                let decrement: f64 = slope.iter().zip(&step).map(|(g, s)| g * s).sum();
                steps += 1;
                self.walk(&step, decrement)?;
                if decrement <= NEAR * self.mu {
                    break;
                }
                if turn == MOST_TURNS {
                    return None;
                }
            }
            if self.mu <= END * unit {
                self.value();
                return Some(steps);
            }
            self.mu = (self.mu * SHRINK).max(END * unit);
        }
    }

    /// Goes against `step` as far as the value falls.
    fn walk(&mut self, step: &[f64], decrement: f64) -> Option<()> {
        let before = self.value();
        let from = self.prices.clone();
        // No price falls to nothing.
        let steepest = step.iter().zip(&from).map(|(s, p)| s / p).fold(0.0_f64, f64::max);
        let mut length = (0.95 / steepest).min(1.0);
        for _ in 0..MOST_HALVINGS {
            let moved = self.prices.iter_mut().zip(&from).zip(step);
            moved.for_each(|((price, from), step)| *price = from - length * step);
            let gain = before - self.value();
            // Near the end of a path a gain is less than what the sum is rounded by.
            if gain >= 0.1 * length * decrement - 1e-12 * before.abs() {
                return Some(());
            }
            length /= 2.0;
        }
        None
    }

    /// The function to minimise. Sets `rates` to those of the present prices.
    fn value(&mut self) -> f64 {
        let mut value: f64 = self.capacities.iter().zip(&self.prices).map(|(c, p)| c * p).sum();
        value -= self.mu * self.prices.iter().map(|&p| libm::log(p)).sum::<f64>();
        for ((flow, route), rate) in self.flows.iter().zip(&self.routes).zip(&mut self.rates) {
            let price: f64 = route.iter().map(|&l| self.prices[l]).sum();
            *rate = taken(flow, price, self.mu);
            value += flow.weight * libm::log(*rate) - price * *rate;
            if flow.demand.is_finite() {
                value += self.mu * libm::log(flow.demand - *rate);
            }
        }
        value
    }

    /// The gradient, and the lower half of the Hessian, row by row.
    fn derivatives(&self) -> (Vec<f64>, Vec<f64>) {
        let n = self.prices.len();
        let mut slope: Vec<f64> =
            self.capacities.iter().zip(&self.prices).map(|(c, p)| c - self.mu / p).collect();
        let mut curve = vec![0.0; n * n];
        for (l, p) in self.prices.iter().enumerate() {
            curve[l * n + l] = self.mu / (p * p);
        }
        for (flow, route) in self.flows.iter().zip(&self.routes) {
            let price: f64 = route.iter().map(|&l| self.prices[l]).sum();
            let rate = taken(flow, price, self.mu);
            let left = flow.demand - rate;
            let bend = 1.0 / (flow.weight / (rate * rate) + self.mu / (left * left));
            for &a in route {
                slope[a] -= rate;
                route.iter().filter(|&&b| b <= a).for_each(|&b| curve[a * n + b] += bend);
            }
        }
        (slope, curve)
    }
}

/// The rate of a flow whose route costs `price`: all that its weight buys, or nearly its demand.
fn taken(flow: &Flow, price: f64, mu: f64) -> f64 {
    if flow.demand.is_infinite() {
        return flow.weight / price;
    }
    // The lesser root of q·x² − (q·d + w + μ)·x + w·d.
    let middle = price * flow.demand + flow.weight + mu;
    let root = (middle * middle - 4.0 * price * flow.weight * flow.demand).sqrt();
    2.0 * flow.weight * flow.demand / (middle + root)
}

/// Solves a symmetric, positive definite system, given the lower half of its matrix, by Cholesky's
/// method. `None` if rounding has made the matrix indefinite.
fn solve(mut matrix: Vec<f64>, right: &[f64]) -> Option<Vec<f64>> {
    let n = right.len();
    let mut x = right.to_vec();
    for i in 0..n {
        let (above, row) = matrix.split_at_mut(i * n);
        for j in 0..i {
            let other = &above[j * n..j * n + j + 1];
            row[j] = (row[j] - dot(&row[..j], &other[..j])) / other[j];
        }
        let square = row[i] - dot(&row[..i], &row[..i]);
        if square.is_nan() || square <= 0.0 {
            return None;
        }
        row[i] = square.sqrt();
        x[i] = (x[i] - dot(&row[..i], &x[..i])) / row[i];
    }
    for i in (0..n).rev() {
        let (before, rest) = x.split_at_mut(i);
        rest[0] /= matrix[i * n + i];
        before.iter_mut().zip(&matrix[i * n..i * n + i]).for_each(|(x, m)| *x -= m * rest[0]);
    }
    Some(x)
}

/// The dot product, in eight partial sums that a processor computes at once.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let ((a8, a1), (b8, b1)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    for (a, b) in a8.iter().zip(b8) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    sums.iter().sum::<f64>() + a1.iter().zip(b1).map(|(a, b)| a * b).sum::<f64>()
}

/// The path ends where this fraction of all weights is unearned.
const END: f64 = 1e-10;
/// The factor by which μ shrinks from one stretch of the path to the next.
const SHRINK: f64 = 0.1;
/// The square of Newton's decrement, in units of μ, at which a stretch ends.
const NEAR: f64 = 0.1;
/// Upper bound on steps in a stretch; some tens are usual.
const MOST_TURNS: u32 = 200;
/// Upper bound on halvings of a step, down to a billionth of it.
const MOST_HALVINGS: u32 = 30;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::network::tests::networks;
    use crate::proportional_with;

    #[test]
    fn nothing_comes_of_a_flow_over_nothing() {
        let mut n = Network::new();
        let l = n.link(0.0);
        n.flow([l]);
        assert_eq!(proportional_by_newton(&n), Ok(None));
    }

    #[test]
    fn a_ring_of_many_links_and_weights_far_apart() {
        let mut n = Network::new();
        let links: Vec<usize> = (0..60).map(|i| n.link(1e9 * f64::from(1 + i % 7))).collect();
        for f in 0..2000_usize {
            let route: Vec<usize> = (0..1 + f % 9).map(|hop| links[(f * 7 + hop) % links.len()]).collect();
            n.flow(route);
            n.flows[f].weight = if f % 50 == 0 { 1e-4 } else { 1.0 };
        }
        let found = proportional_by_newton(&n).unwrap().unwrap();
        assert!(found.residual < 1e-9, "{}", found.residual);
        let iterated = proportional_with(&n, 1e-7, 1_000_000).unwrap();
        for (a, b) in found.rates.iter().zip(&iterated.rates) {
            assert!((a - b).abs() <= 1e-4 * b, "{a} {b}");
        }
    }

    /// The path ends with a square root if the demand equals the rate without one.
    #[test]
    fn a_demand_just_met_is_missed_by_no_more_than_the_root_of_what_goes_unearned() {
        let mut n = Network::new();
        let l = n.link(30.0);
        for _ in 0..3 {
            n.flow([l]);
        }
        n.flows[0].demand = 10.0;
        let found = proportional_by_newton(&n).unwrap().unwrap();
        let missing = 1.0 - found.rates[0] / 10.0;
        assert!(found.residual < 1e-9 && missing > 1e-7 && missing < (6.0 * END).sqrt(), "{found:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn agrees_with_the_price_iteration(n in networks()) {
            let found = proportional_by_newton(&n).unwrap().unwrap();
            prop_assert!(found.residual <= 1e-9, "{}", found.residual);
            let iterated = proportional_with(&n, 1e-13, 1_000_000).unwrap();
            let weights: f64 = n.flows.iter().map(|flow| flow.weight).sum();
            for ((a, b), flow) in found.rates.iter().zip(&iterated.rates).zip(&n.flows) {
                let near = (2.0 * END * weights / flow.weight).sqrt();
                prop_assert!((a - b).abs() <= near * b, "{a} {b} {:?} {}", iterated.residual, iterated.rounds);
            }
        }
    }
}
