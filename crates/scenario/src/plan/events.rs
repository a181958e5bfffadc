//! Changes and random losses during a run.

use std::collections::BTreeMap;

use tollway_law::words;
use tollway_proto::faults;

use super::*;

/// A change at an instant of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The instant.
    pub at: Time,
    /// The change.
    pub what: What,
}

/// A kind of change.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// Changes a link.
    Link(LinkId, Change),
    /// Sets a link's own probability of loss; the losses of [`Plan::losses`] stay.
    Loss(LinkId, f64),
    /// Drops every packet offered to the link until the given instant.
    Blackout(LinkId, Time),
    /// Changes a flow.
    Flow(FlowId, Change),
    /// Sets the budget of a host, by its index, $/s.
    HostBudget(usize, f64),
    /// Sets the budget strategy of a host, by its index.
    HostStrategy(usize, Strategy),
    /// Sets the shares by which a switch, by its index, divides frames among its members.
    Shares(usize, Arc<[u32]>),
    /// Removes the member at a node from the sessions of a switch, by its index.
    Leave(usize, NodeId),
}

/// A change of the connections that `tollway exec` relays to a port of a node. A value of `None`
/// changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortChange {
    /// The instant.
    pub at: Time,
    /// The node.
    pub node: NodeId,
    /// The TCP port.
    pub port: u16,
    /// The treatment of connections.
    pub connections: Option<Connections>,
    /// The delay of the end of each direction.
    pub close_delay: Option<Time>,
}

words! {
    /// The treatment of relayed connections.
    #[derive(Default)]
    pub enum Connections {
        /// Carries their bytes.
        #[default]
        Carry = "carry",
        /// Resets them, and every new one.
        Reset = "reset",
        /// Keeps them open, and carries no byte.
        Stall = "stall",
    }
}

/// Random loss on a link during a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// The link.
    pub link: LinkId,
    /// Start of the loss.
    pub from: Time,
    /// End of the loss; [`Time::NEVER`] if it does not end.
    pub until: Time,
    /// The affected packets and their probability of loss.
    pub loss: faults::Loss,
}

impl Plan {
    /// The loss of each link at the start, without [`Plan::losses`].
    pub(crate) fn own_losses(&self) -> impl Iterator<Item = Vec<faults::Loss>> + '_ {
        self.links.iter().map(|link| faults::Loss::on_wire(link.loss).into_iter().collect())
    }

    /// All events of the run, by time; events at one instant keep the file's order.
    ///
    /// A blackout and a loss of [`Plan::losses`] become two changes of their link: one at the
    /// start, one at the end.
    pub(crate) fn timeline(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for event in &self.events {
            events.push((event.at, Entry::Event(&event.what)));
            if let What::Blackout(link, until) = event.what
                && !self.dark_beyond(link, until)
            {
                events.push((until, Entry::BlackoutEnds(link)));
            }
        }
        for (i, loss) in self.losses.iter().enumerate() {
            events.push((loss.from, Entry::Loss(i, Some(loss.loss))));
            events.push((loss.until, Entry::Loss(i, None)));
        }
        events.retain(|event| event.0 < Time::NEVER);
        events.sort_by_key(|event| event.0);
        let mut losses = Losses::default();
        events.into_iter().map(|(at, entry)| Event { at, what: self.resolved(entry, &mut losses) }).collect()
    }

    /// The times of all events within the run, each once, s.
    pub fn change_times(&self) -> Vec<f64> {
        let mut times: Vec<Time> = self.timeline().into_iter().map(|event| event.at).collect();
        times.retain(|&at| Time::ZERO < at && at < self.duration);
        times.dedup();
        times.into_iter().map(Time::nearest_secs).collect()
    }

    /// Returns true if another blackout covers the instant `until`, at which a blackout ends.
    fn dark_beyond(&self, link: LinkId, until: Time) -> bool {
        self.events.iter().any(|event| {
            matches!(event.what, What::Blackout(on, later) if on == link && event.at <= until && until < later)
        })
    }

    fn resolved(&self, entry: Entry<'_>, losses: &mut Losses) -> What {
        let mut lose = |link: LinkId, which, loss: Option<faults::Loss>| {
            let own = || faults::Loss::on_wire(self.links[link.0 as usize].loss).map(|loss| (None, loss));
            let all = losses.entry(link).or_insert_with(|| own().into_iter().collect());
            all.retain(|entry| entry.0 != which);
            all.extend(loss.map(|loss| (which, loss)));
            What::Link(link, Change::Losses(all.iter().map(|entry| entry.1).collect()))
        };
        match entry {
            Entry::BlackoutEnds(link) => What::Link(link, Change::Blackout(false)),
            Entry::Loss(i, loss) => lose(self.losses[i].link, Some(i), loss),
            Entry::Event(&What::Loss(link, probability)) => {
                lose(link, None, faults::Loss::on_wire(probability))
            }
            Entry::Event(&What::Blackout(link, _)) => What::Link(link, Change::Blackout(true)),
            Entry::Event(what) => what.clone(),
        }
    }
}

#[derive(Clone, Copy)]
enum Entry<'a> {
    Event(&'a What),
    BlackoutEnds(LinkId),
    /// Start or end of an entry of [`Plan::losses`].
    Loss(usize, Option<faults::Loss>),
}

/// Losses of each link: its own under `None`, entries of [`Plan::losses`] under their index.
type Losses = BTreeMap<LinkId, Vec<(Option<usize>, faults::Loss)>>;
