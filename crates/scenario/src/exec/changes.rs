//! What a file says happens to links on the way, in order of time, for an emulator that knows nothing but links.

use std::collections::BTreeMap;

use tollway_law::Time;
use tollway_net as net;
use tollway_net::exec::{Change, LinkChange};

use crate::plan::{self, LinkId, Loss, Only, Place, Plan, What};

/// Something that happens to a link.
#[derive(Clone, Copy)]
enum Event<'a> {
    Change(&'a What),
    BlackoutEnds(LinkId),
    LossBegins(usize, &'a Loss),
    LossEnds(usize, &'a Loss),
}

/// What is lost on each link: its own under `None`, those of the file's list under their number.
#[derive(Default)]
pub(super) struct Losses(BTreeMap<LinkId, Vec<(Option<usize>, net::Loss)>>);

impl Losses {
    /// What links lose by themselves.
    pub(super) fn of(plan: &Plan) -> Losses {
        let mut losses = Losses::default();
        for (i, link) in plan.links.iter().enumerate() {
            losses.put(LinkId(i as u32), None, own(link.loss));
        }
        losses
    }

    /// On one link, now.
    pub(super) fn on(&self, link: LinkId) -> Vec<net::Loss> {
        self.0.get(&link).map_or(Vec::new(), |losses| losses.iter().map(|entry| entry.1).collect())
    }

    fn put(&mut self, link: LinkId, which: Option<usize>, loss: Option<net::Loss>) {
        let losses = self.0.entry(link).or_default();
        losses.retain(|entry| entry.0 != which);
        losses.extend(loss.map(|loss| (which, loss)));
    }
}

/// Every change of a link, by time; what the file changes of its flows and hosts has nothing to change, since they do not run.
pub(super) fn changes(plan: &Plan) -> Vec<Change> {
    let mut events: Vec<(Time, Event<'_>)> = Vec::new();
    for change in &plan.changes {
        events.push((change.at, Event::Change(&change.what)));
        if let What::Blackout(link, until) = change.what
            && !dark_beyond(plan, link, until)
        {
            events.push((until, Event::BlackoutEnds(link)));
        }
    }
    for (i, loss) in plan.losses.iter().enumerate() {
        events.push((loss.from, Event::LossBegins(i, loss)));
        events.push((loss.until, Event::LossEnds(i, loss)));
    }
    events.sort_by_key(|event| event.0);
    let mut losses = Losses::of(plan);
    events
        .into_iter()
        .filter(|event| event.0 < Time::NEVER)
        .filter_map(|(at, event)| {
            let (link, what) = change(event, &mut losses)?;
            Some(Change { at, link: link.0, what })
        })
        .collect()
}

/// Whether a blackout that ends at `until` is followed by another without a gap.
fn dark_beyond(plan: &Plan, link: LinkId, until: Time) -> bool {
    plan.changes.iter().any(|change| {
        matches!(change.what, What::Blackout(on, later) if on == link && change.at <= until && until < later)
    })
}

fn change(event: Event<'_>, losses: &mut Losses) -> Option<(LinkId, LinkChange)> {
    let mut lose = |link, which, loss| {
        losses.put(link, which, loss);
        Some((link, LinkChange::Losses(losses.on(link))))
    };
    match event {
        Event::LossBegins(i, loss) => lose(loss.link, Some(i), Some(random(loss))),
        Event::LossEnds(i, loss) => lose(loss.link, Some(i), None),
        Event::BlackoutEnds(link) => Some((link, LinkChange::Blackout(false))),
        Event::Change(what) => match *what {
            What::Loss(link, probability) => lose(link, None, own(probability)),
            What::Rate(link, rate) => Some((link, LinkChange::Rate(rate))),
            What::Delay(link, delay) => Some((link, LinkChange::Delay(delay))),
            What::Capacity(link, capacity) => Some((link, LinkChange::Capacity(capacity))),
            What::Limit(link, limit) => Some((link, LinkChange::Limit(limit))),
            What::Blackout(link, _) => Some((link, LinkChange::Blackout(true))),
            What::PriceError(link, error) => Some((link, LinkChange::PriceError(error))),
            What::FlowBudget(..)
            | What::HostBudget(..)
            | What::HostStrategy(..)
            | What::ReceiveBuffer(..) => None,
        },
    }
}

/// A link's own loss, on its wire.
fn own(probability: f64) -> Option<net::Loss> {
    (probability > 0.0).then_some(net::Loss { before: false, only: net::Only::All, probability })
}

fn random(loss: &plan::Loss) -> net::Loss {
    net::Loss {
        before: loss.place == Place::Before,
        only: match loss.only {
            Only::All => net::Only::All,
            Only::Data => net::Only::Data,
            Only::Ack => net::Only::Acks,
        },
        probability: loss.probability,
    }
}
