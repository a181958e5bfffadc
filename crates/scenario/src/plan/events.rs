//! Changes and random losses on the way.

use std::collections::BTreeMap;

use tollway_proto::faults;

use super::*;

/// Something that happens on the way.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// When.
    pub at: Time,
    /// What.
    pub what: What,
}

/// What happens.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// A link changes.
    Link(LinkId, Change),
    /// A link gets another probability of loss, beside the losses of [`Plan::losses`].
    Loss(LinkId, f64),
    /// Until the given instant every packet offered to the link is lost.
    Blackout(LinkId, Time),
    /// A flow changes.
    Flow(FlowId, FlowChange),
    /// A host, by its index, may spend so much, $/s.
    HostBudget(usize, f64),
    /// A host, by its index, divides its budget otherwise.
    HostStrategy(usize, Strategy),
    /// A switch, by its index, spreads frames over its members by other shares.
    Shares(usize, Arc<[u32]>),
    /// The member at a node leaves the sessions of a switch, by its index.
    Leave(usize, NodeId),
}

/// Random loss for a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// Where.
    pub link: LinkId,
    /// From this instant.
    pub from: Time,
    /// Until this one; [`Time::NEVER`] for good.
    pub until: Time,
    /// Which packets, and how likely.
    pub loss: faults::Loss,
}

impl Plan {
    /// The losses of every link at the start, without those of [`Plan::losses`].
    pub(crate) fn own_losses(&self) -> impl Iterator<Item = Vec<faults::Loss>> + '_ {
        self.links.iter().map(|link| faults::Loss::on_wire(link.loss).into_iter().collect())
    }

    /// Everything that happens, by time, and in the file's order where times are equal. Blackouts and losses are changes
    /// of links here, with an end of their own.
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

    /// Whether a blackout that ends at `until` is followed by another without a gap.
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
    /// A loss of the plan's list begins, or ends.
    Loss(usize, Option<faults::Loss>),
}

/// What each link loses: by its own loss under `None`, by those of the plan's list under their index.
type Losses = BTreeMap<LinkId, Vec<(Option<usize>, faults::Loss)>>;
