//! Meters and borders of a network.

use tollway_law::link::Exchange;
use tollway_law::meter::{BudgetAccusation, BudgetMeter, Duty, FlowMeter, MeterConfig};
use tollway_proto::Watch;

use super::{Network, Place};
use crate::driver::Entry;

impl Network {
    /// Puts a meter at the far end of `link`, for what comes over it; acknowledgements come `back`. Meters come before the flows, in a
    /// network of one thread, or of one node.
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
        if self.part.is_some() {
            return self.watch_here(link, back, post);
        }
        assert!(self.drivers.len() == 1, "what a meter knows is one thread's");
        for (link, watch) in [(link, Watch::Entry(post)), (back, Watch::Exit(post))] {
            let at = self.links[link as usize].at;
            self.drivers[0].links[at as usize].watch = Some(watch);
        }
    }

    /// The same where the node at a link's far end may be this process: what comes is seen as it comes in, and what goes back as it
    /// leaves.
    fn watch_here(&mut self, link: u32, back: u32, post: u32) {
        let (there, here) = (self.links[link as usize], self.links[back as usize]);
        let Some(part) = self.part.as_mut().filter(|_| here.driver == 0) else { return };
        let from = part.at[self.specs[link as usize].0 as usize];
        let pace = self.drivers[there.driver].links[there.at as usize].link.pace();
        part.entries.push((link, self.drivers[0].add_entry(0, from, Entry { post, pace })));
        self.drivers[0].links[here.at as usize].watch = Some(Watch::Exit(post));
    }

    /// Something about a link may have changed: its meter here, if there is one, knows.
    pub(super) fn tell_entry(&mut self, link: u32) {
        let Some(entry) = self.entry(link) else { return };
        let Place { driver, at } = self.links[link as usize];
        self.drivers[0].entries[entry as usize].pace = self.drivers[driver].links[at as usize].link.pace();
    }

    fn entry(&self, link: u32) -> Option<u32> {
        self.part.as_ref()?.entries.iter().find(|entry| entry.0 == link).map(|entry| entry.1)
    }

    fn post(&self, link: u32) -> Option<u32> {
        if let Some(entry) = self.entry(link) {
            return Some(self.drivers[0].entries[entry as usize].post);
        }
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
