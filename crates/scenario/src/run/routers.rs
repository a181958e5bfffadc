//! Links that programs put at nodes' own interfaces, in live runs with the kernel's TCP.

use std::fmt;
use std::sync::Arc;

use tollway_law::link::{AnyLink, DropTail, Limit};
use tollway_law::{Rate, Time};
use tollway_net::edge::sees_packets;
use tollway_net::sys::tun;
use tollway_net::{self as net, LinkSpec};

use super::RunError;
use crate::plan::Plan;

/// A loader of links.
pub trait Routers: fmt::Debug + Send + Sync {
    /// Puts a link in front of all that arrives at the interface `device`, in the network namespace
    /// of the calling thread, until the result is dropped.
    ///
    /// # Errors
    /// The kernel lacks a feature, or this process a right.
    fn put(&self, device: &str, link: LinkSpec) -> Result<Box<dyn Routed>, String>;
}

/// A link that was put at an interface.
pub trait Routed: fmt::Debug + Send {
    /// Sum of the waiting times of packets so far, and their number.
    fn waited(&self) -> (Time, u64);
}

/// The links of a run at nodes' interfaces.
#[derive(Debug)]
pub(super) struct Placed {
    links: Vec<Link>,
    /// The end of the warm-up, until it has passed.
    warmup: Option<Time>,
}

#[derive(Debug)]
struct Link {
    name: String,
    at: Box<dyn Routed>,
    /// Its waits in the warm-up.
    before: (Time, u64),
}

impl Placed {
    /// Takes links with an explicit law out of `specs`, where they then only delay. Returns those
    /// to put.
    pub(super) fn take(specs: &mut [LinkSpec]) -> Vec<(usize, LinkSpec)> {
        let explicit = specs.iter_mut().enumerate().filter(|(_, spec)| sees_packets(&spec.law));
        let take = |(i, spec): (usize, &mut LinkSpec)| {
            let pipe = LinkSpec {
                rate: Rate::from_mbps(FAST),
                law: AnyLink::DropTail(DropTail),
                limit: Limit::NONE,
                trace: None,
                ..spec.clone()
            };
            (i, LinkSpec { delay: Time::ZERO, ..std::mem::replace(spec, pipe) })
        };
        explicit.map(take).collect()
    }

    /// Puts links at the interfaces of the nodes where they end.
    pub(super) fn new(
        plan: &Plan,
        network: &net::Network,
        routers: &Arc<dyn Routers>,
        links: Vec<(usize, LinkSpec)>,
    ) -> Result<Placed, RunError> {
        let put = |(i, spec): (usize, LinkSpec)| {
            let name = plan.links[i].name.to_string();
            let failed = |message: String| RunError::Router { link: name.clone(), message };
            let kernel = network.kernel(spec.to);
            let kernel = kernel.ok_or_else(|| failed("no flow of the kernel's TCP ends behind it".into()))?;
            let at = kernel.within(|| Ok(routers.put(tun::NAME, spec)));
            let at = at.map_err(|error| failed(error.to_string()))?.map_err(failed)?;
            Ok(Link { name, at, before: (Time::ZERO, 0) })
        };
        let links = links.into_iter().map(put).collect::<Result<_, RunError>>()?;
        Ok(Placed { links, warmup: Some(plan.measure.warmup) })
    }

    /// Records the waits of the warm-up once it has passed.
    pub(super) fn pass(&mut self, now: Time) {
        if self.warmup.take_if(|end| now >= *end).is_some() {
            for link in &mut self.links {
                link.before = link.at.waited();
            }
        }
    }

    /// The name of each link, and the mean wait of its packets after the warm-up in ms.
    pub(super) fn waits(&self) -> Vec<(String, f64)> {
        let wait = |link: &Link| {
            let ((sum, count), (sum_before, count_before)) = (link.at.waited(), link.before);
            let sum = sum.saturating_sub(sum_before).as_millis_f64();
            (link.name.clone(), sum / (count - count_before) as f64)
        };
        self.links.iter().map(wait).collect()
    }
}

/// The rate, in Mb/s, of a link on the way to the one at the interface.
const FAST: f64 = 10_000.0;
