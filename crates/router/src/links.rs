//! Links of a scenario's live run at nodes' interfaces.

use tollway_agent::events::Events;
use tollway_law::Time;
use tollway_net::LinkSpec;
use tollway_scenario::run::{Routed, Routers};

use crate::agent::Agent;
use crate::config::{Config, Direction, OnFailure};
use crate::programs::Side;

/// Runs a router in this process for each link.
#[derive(Clone, Copy, Debug, Default)]
pub struct Links;

impl Routers for Links {
    fn put(&self, device: &str, link: LinkSpec) -> Result<Box<dyn Routed>, String> {
        let config = Config {
            version: String::new(),
            device: device.to_owned(),
            law: String::new(),
            up: None,
            down: Some(Direction::of(link)),
            on_failure: OnFailure::Pass,
            meter: None,
            conditions: Vec::new(),
        };
        let agent = Agent::start(config, "a scenario".into(), Events::default());
        Ok(Box::new(Placed(agent.map_err(|error| error.to_string())?)))
    }
}

/// A router that ends with the run.
#[derive(Debug)]
struct Placed(Agent);

impl Routed for Placed {
    fn waited(&self) -> (Time, u64) {
        self.0.moment(Side::Down).map_or((Time::ZERO, 0), |moment| moment.lane.waited)
    }
}
