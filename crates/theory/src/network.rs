//! The input of every allocation: link capacities and routes.

/// Links and the flows over them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Network {
    /// Capacity of each link, in the unit of all rates.
    pub capacities: Vec<f64>,
    /// The flows, each with a route, a weight and a demand.
    pub flows: Vec<Flow>,
}

impl Network {
    /// A network without links and flows.
    pub fn new() -> Network {
        Network::default()
    }

    /// Adds a link and returns its index.
    pub fn link(&mut self, capacity: f64) -> usize {
        self.capacities.push(capacity);
        self.capacities.len() - 1
    }

    /// Adds a flow of weight 1 and unlimited demand over `links`, and returns its index.
    pub fn flow(&mut self, links: impl Into<Vec<usize>>) -> usize {
        self.flows.push(Flow { links: links.into(), ..Flow::default() });
        self.flows.len() - 1
    }

    /// The load of each link under `rates`, one per flow. Rates beyond the last flow are ignored.
    pub fn loads(&self, rates: &[f64]) -> Vec<f64> {
        let mut loads = vec![0.0; self.capacities.len()];
        for (flow, rate) in self.flows.iter().zip(rates) {
            for &link in &flow.links {
                loads[link] += rate;
            }
        }
        loads
    }

    /// Checks that the allocations are defined for this network.
    ///
    /// # Errors
    /// - A capacity is negative or not finite.
    /// - A weight is not positive and finite.
    /// - A demand is negative or NaN.
    /// - A route names a link that does not exist.
    /// - A flow has neither a link nor a finite demand.
    pub fn check(&self) -> Result<(), NetworkError> {
        (0..self.capacities.len()).try_for_each(|link| check_link(&self.capacities, link))?;
        self.flows.iter().enumerate().try_for_each(|(flow, f)| check_flow(&self.capacities, flow, f))
    }
}

/// [`Network::check`] of one link.
pub(crate) fn check_link(capacities: &[f64], link: usize) -> Result<(), NetworkError> {
    let capacity = capacities[link];
    if capacity >= 0.0 && capacity.is_finite() {
        return Ok(());
    }
    Err(NetworkError::Capacity { link, capacity })
}

/// [`Network::check`] of one flow.
pub(crate) fn check_flow(capacities: &[f64], flow: usize, f: &Flow) -> Result<(), NetworkError> {
    if let Some(&link) = f.links.iter().find(|&&l| l >= capacities.len()) {
        return Err(NetworkError::NoSuchLink { flow, link, links: capacities.len() });
    }
    if !(f.weight > 0.0 && f.weight.is_finite()) {
        return Err(NetworkError::Weight { flow, weight: f.weight });
    }
    if f.demand.is_nan() || f.demand < 0.0 {
        return Err(NetworkError::Demand { flow, demand: f.demand });
    }
    if f.links.is_empty() && f.demand.is_infinite() {
        return Err(NetworkError::Unbounded { flow });
    }
    Ok(())
}

/// A flow's route, weight and demand.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// The links it crosses, by index; a link named twice carries its traffic twice.
    pub links: Vec<usize>,
    /// Its weight, positive. Flows that share a bottleneck get rates in proportion to their
    /// weights.
    pub weight: f64,
    /// The largest rate it can use; infinite for a flow that always has data to send.
    pub demand: f64,
}

impl Default for Flow {
    fn default() -> Flow {
        Flow { links: Vec::new(), weight: 1.0, demand: f64::INFINITY }
    }
}

/// The reason a network has no ideal allocation.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NetworkError {
    /// A capacity is negative or not finite.
    #[error("link {link} has capacity {capacity}; it must be finite and not negative")]
    Capacity {
        /// Index of the link.
        link: usize,
        /// The capacity given.
        capacity: f64,
    },
    /// A route names a link that does not exist.
    #[error("flow {flow} crosses link {link}, but there are {links} links, counted from 0")]
    NoSuchLink {
        /// Index of the flow.
        flow: usize,
        /// The link that its route names.
        link: usize,
        /// Number of links in the network.
        links: usize,
    },
    /// A weight is not positive and finite.
    #[error("flow {flow} has weight {weight}; it must be positive and finite")]
    Weight {
        /// Index of the flow.
        flow: usize,
        /// The weight given.
        weight: f64,
    },
    /// A demand is negative or NaN.
    #[error("flow {flow} has demand {demand}; it must not be negative")]
    Demand {
        /// Index of the flow.
        flow: usize,
        /// The demand given.
        demand: f64,
    },
    /// A flow has no links and no finite demand.
    #[error("flow {flow} crosses no link and has no demand: nothing bounds its rate")]
    Unbounded {
        /// Index of the flow.
        flow: usize,
    },
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Up to six links and a dozen flows, some with demands.
    pub(crate) fn networks() -> impl Strategy<Value = Network> {
        prop::collection::vec(10.0..100.0, 1..=6_usize).prop_flat_map(|capacities| {
            let route =
                prop::sample::subsequence((0..capacities.len()).collect::<Vec<_>>(), 1..=capacities.len());
            let weight = prop::sample::select(vec![0.5, 1.0, 2.0]);
            let demand = prop_oneof![3 => Just(f64::INFINITY), 1 => 0.5..50.0];
            let flow =
                (route, weight, demand).prop_map(|(links, weight, demand)| Flow { links, weight, demand });
            prop::collection::vec(flow, 1..=12)
                .prop_map(move |flows| Network { capacities: capacities.clone(), flows })
        })
    }
}
