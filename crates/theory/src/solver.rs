//! Weighted proportional fairness by an interior-point solver, independent of the price iteration.

use clarabel::algebra::CscMatrix;
use clarabel::solver::SupportedConeT::{ExponentialConeT, NonnegativeConeT};
use clarabel::solver::{DefaultSettings, DefaultSolver, IPSolver, SolverStatus};

use crate::{Network, NetworkError};

/// The reason the solver found no allocation.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SolverError {
    /// The allocation is not defined.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A flow can have no rate, and the logarithm of 0 is undefined: it crosses a link of capacity
    /// 0, or its demand is 0.
    #[error("flow {flow} can only have rate zero, for which proportional fairness is undefined")]
    Zero {
        /// Index of the flow.
        flow: usize,
    },
    /// The solver stopped before the optimum.
    #[error("the solver stopped before the optimum: {status}")]
    Unsolved {
        /// The solver's own status.
        status: String,
    },
}

/// The rates that maximise Σ w·log x within the capacities and demands, by Clarabel (Goulart &
/// Chen, *Clarabel: an interior-point solver for conic programs*, 2024).
///
/// The program is: maximise Σ w·t with (t, 1, x) in the exponential cone. It is the best choice up
/// to some thousand flows; beyond, [`proportional()`](crate::proportional()) is.
///
/// # Errors
/// The network has no allocation, a flow can have no rate, or the solver does not converge.
pub fn proportional_by_solver(network: &Network) -> Result<Vec<f64>, SolverError> {
    network.check()?;
    let flows = &network.flows;
    let n = flows.len();
    if n == 0 {
        return Ok(Vec::new());
    }
    // Rates are scaled by what the tightest link or the demand alone would admit, so that all are
    // of the order of 1 or less.
    let most =
        |f: usize| flows[f].links.iter().map(|&l| network.capacities[l]).fold(flows[f].demand, f64::min);
    let scale: Vec<f64> = (0..n).map(most).collect();
    if let Some(flow) = (0..n).find(|&f| scale[f] <= 0.0) {
        return Err(SolverError::Zero { flow });
    }
    let weights: f64 = flows.iter().map(|f| f.weight).sum::<f64>() / n as f64;

    // Variables: x (n), then t (n). Rows: links, demands, then three a flow for its cone, in which
    // (t, 1, x) stands.
    let (mut entries, mut right) = limits(network, &scale);
    let (limit_entries, limit_right) = (entries.clone(), right.clone());
    let mut cones = vec![NonnegativeConeT(right.len())];
    for f in 0..n {
        entries.push((right.len(), n + f, -1.0));
        entries.push((right.len() + 2, f, -1.0));
        right.extend([0.0, 1.0, 0.0]);
        cones.push(ExponentialConeT());
    }
    let weight: Vec<f64> = flows.iter().map(|flow| flow.weight / weights).collect();
    let mut cost = vec![0.0; 2 * n];
    cost[n..].iter_mut().zip(&weight).for_each(|(c, w)| *c = -w);
    let none = CscMatrix::zeros((2 * n, 2 * n));
    let solution = solve(&none, &cost, &matrix(&entries, right.len(), 2 * n), &right, &cones, ROUGH)?;
    let mut x: Vec<f64> = solution[..n].to_vec();

    // The cone's own arithmetic ends some six digits in. Newton's method on the sum of logarithms
    // within the same limits, a quadratic program a step, doubles that each time. In units of where
    // it stands, log z ≈ 2z − z² ∕ 2 + a constant.
    let squares: Entries = (0..n).map(|f| (f, f, weight[f])).collect();
    let slope: Vec<f64> = weight.iter().map(|w| -2.0 * w).collect();
    let cones = [NonnegativeConeT(limit_right.len())];
    for _ in 0..POLISH {
        let scaled: Entries = limit_entries.iter().map(|&(row, f, times)| (row, f, times * x[f])).collect();
        let a = matrix(&scaled, limit_right.len(), n);
        let step = solve(&matrix(&squares, n, n), &slope, &a, &limit_right, &cones, FINE)?;
        x.iter_mut().zip(&step).for_each(|(x, z)| *x *= z.max(0.5));
    }
    Ok(x.iter().zip(&scale).map(|(x, scale)| x * scale).collect())
}

/// Entries of a matrix, as (row, column, value).
pub(crate) type Entries = Vec<(usize, usize, f64)>;

/// The upper bounds of rates in units of `scale`: one row per link, then one per demand.
pub(crate) fn limits(network: &Network, scale: &[f64]) -> (Entries, Vec<f64>) {
    let (mut entries, mut right) = (Entries::new(), vec![1.0; network.capacities.len()]);
    for (f, flow) in network.flows.iter().enumerate() {
        let mut crossed = flow.links.clone();
        crossed.sort_unstable();
        for times in crossed.chunk_by(|a, b| a == b) {
            entries.push((times[0], f, times.len() as f64 * scale[f] / network.capacities[times[0]]));
        }
        if flow.demand.is_finite() {
            entries.push((right.len(), f, 1.0));
            right.push(flow.demand / scale[f]);
        }
    }
    (entries, right)
}

pub(crate) fn matrix(entries: &Entries, rows: usize, columns: usize) -> CscMatrix<f64> {
    let (i, j): (Vec<usize>, Vec<usize>) = entries.iter().map(|e| (e.0, e.1)).unzip();
    CscMatrix::new_from_triplets(rows, columns, i, j, entries.iter().map(|e| e.2).collect())
}

/// Minimises ½xᵀPx + qᵀx where b − Ax lies in the cones, to the first of `tolerances` that the
/// solver can reach.
pub(crate) fn solve(
    p: &CscMatrix<f64>,
    q: &[f64],
    a: &CscMatrix<f64>,
    b: &[f64],
    cones: &[clarabel::solver::SupportedConeT<f64>],
    tolerances: &[f64],
) -> Result<Vec<f64>, SolverError> {
    let mut status = String::new();
    for &tolerance in tolerances {
        let settings = DefaultSettings {
            verbose: false,
            // It is scaled already, and scaled once more it sometimes does not come to an end.
            equilibrate_enable: false,
            tol_gap_abs: tolerance,
            tol_gap_rel: tolerance,
            tol_feas: tolerance,
            ..DefaultSettings::default()
        };
        let solver = DefaultSolver::new(p, q, a, b, cones, settings);
        let mut solver = solver.map_err(|e| SolverError::Unsolved { status: e.to_string() })?;
        solver.solve();
        if solver.solution.status == SolverStatus::Solved {
            return Ok(solver.solution.x);
        }
        status = format!("{:?}", solver.solution.status);
    }
    Err(SolverError::Unsolved { status })
}

/// Duality gap and infeasibility at which the solver stops on the cone. The next one is tried where
/// double precision does not reach the one before.
const ROUGH: &[f64] = &[1e-8, 1e-6, 1e-5];
/// The same for each quadratic program.
pub(crate) const FINE: &[f64] = &[1e-12, 1e-11, 1e-10, 1e-9];
/// Number of quadratic programs.
const POLISH: usize = 3;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::network::tests::networks;
    use crate::proportional_with;

    #[test]
    fn refuses_a_flow_over_nothing() {
        let mut n = Network::new();
        let l = n.link(0.0);
        n.flow([l]);
        assert_eq!(proportional_by_solver(&n), Err(SolverError::Zero { flow: 0 }));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// Two ways that share no line of arithmetic, to a millionth.
        #[test]
        fn agrees_with_the_price_iteration(n in networks()) {
            let solved = proportional_by_solver(&n).unwrap();
            let iterated = proportional_with(&n, 1e-13, 1_000_000).unwrap();
            for (a, b) in solved.iter().zip(&iterated.rates) {
                prop_assert!((a - b).abs() <= 1e-6 * b, "{a} {b} {:?} {}", iterated.residual, iterated.rounds);
            }
        }
    }
}
