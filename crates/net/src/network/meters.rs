//! Meters and borders of a network.

use tollway_law::link::Exchange;
use tollway_law::meter::{BudgetAccusation, BudgetMeter, Duty, FlowMeter, MeterConfig};
use tollway_proto::Watch;

use super::Network;

impl Network {
    /// Puts a meter at the far end of `link`, for what comes over it; acknowledgements come `back`. Meters come before the flows, in a
    /// network of one thread.
    pub fn add_meter(&mut self, link: u32, back: u32, config: MeterConfig, duty: Duty) {
        let post = self.drivers[0].meters.add_post(config, duty);
        self.watch(link, back, post);
    }

    /// Makes the far end of `link` a border between domains, for data that come over it and acknowledgements that come `back`.
    pub fn add_border(&mut self, link: u32, back: u32, exchange: Exchange) {
        let post = self.drivers[0].meters.add_border(exchange);
        self.watch(link, back, post);
    }

    fn watch(&mut self, link: u32, back: u32, post: u32) {
        assert!(self.drivers.len() == 1, "what a meter knows is one thread's");
        for (link, watch) in [(link, Watch::Entry(post)), (back, Watch::Exit(post))] {
            let at = self.links[link as usize].at;
            self.drivers[0].links[at as usize].watch = Some(watch);
        }
    }

    fn post(&self, link: u32) -> Option<u32> {
        let place = self.links[link as usize];
        match self.drivers[place.driver].links[place.at as usize].watch {
            Some(Watch::Entry(post)) => Some(post),
            _ => None,
        }
    }

    /// What a meter knows of a flow; `None` if its data never passed one.
    pub fn meter(&self, flow: u32) -> Option<&FlowMeter> {
        self.drivers[0].meters.of(flow)
    }

    /// Flows that meters have seen, and how many of them they accuse.
    pub fn metered(&self) -> (u64, u64) {
        self.drivers[0].meters.counts()
    }

    /// The account of the host whose packets come over `link`, if one is kept there.
    pub fn account(&self, link: u32) -> Option<&BudgetMeter> {
        self.drivers[0].meters.account(self.post(link)?)
    }

    /// The border at the far end of `link`, if there is one.
    pub fn border(&self, link: u32) -> Option<&Exchange> {
        self.drivers[0].meters.border(self.post(link)?)
    }

    /// What a flow is accused of where it leaves the network.
    pub fn balance(&self, flow: u32) -> Option<BudgetAccusation> {
        self.drivers[0].meters.balance(flow)
    }
}
