//! Links: ports, laws with their constants, classes of traffic, media.

use std::ops::Deref;

use tollway_law::link::{Descriptor, DropTail, LinkConfig, Misfit, Placement, Pricing};
use tollway_law::toll::Content;
use tollway_proto::faults::Impairments;
use tollway_proto::port::{ClassQueuesConfig, QueueConfig};

use super::*;

/// One direction of a link: a port and the wire behind it.
///
/// A plan may have a million links. They share the settings of their section, which [`Deref`] makes
/// available: `link.rate`.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// `bottleneck`, or `access.3` for the link of a group's third member; with `.reverse` in
    /// reverse direction.
    pub name: CompactString,
    /// The node of its port.
    pub from: NodeId,
    /// The node at its far end.
    pub to: NodeId,
    /// The other direction, if the link is duplex.
    pub twin: Option<LinkId>,
    /// Propagation delay, one way.
    pub delay: Time,
    /// The link's law and limit. Links of one section share them, unless their limits differ.
    pub law: Arc<LinkLaw>,
    /// Settings shared with the other links of its section and direction.
    pub shared: Arc<LinkSection>,
}

const _: () = assert!(size_of::<Link>() == 64);

impl Deref for Link {
    type Target = LinkSection;

    fn deref(&self) -> &LinkSection {
        &self.shared
    }
}

/// The settings that the links of one section share in one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSection {
    /// The section of the file.
    pub section: Arc<str>,
    /// The direction of these links.
    pub direction: Direction,
    /// Transmission rate; the mean rate if the link replays a trace.
    pub rate: Rate,
    /// The transmission opportunities of a replayed trace, which replace the rate.
    pub trace: Option<Trace>,
    /// Framing overhead on this wire, bytes a packet.
    pub overhead: u32,
    /// The capacity that the link's law assumes.
    pub capacity: Rate,
    /// The half-duplex medium of the link.
    pub medium: Option<MediumId>,
    /// Probability of loss on the wire.
    pub loss: f64,
    /// Impairments of the wire other than loss.
    pub impairments: Option<Box<Impairments>>,
    /// The meter at the far end; only on a link with a reverse direction.
    pub meter: Option<Box<Meter>>,
    /// The border at the far end, with its exchange rate; only on a link with a reverse direction
    /// and without a meter.
    pub exchange: Option<Box<ExchangeRate>>,
}

/// A meter for flows that enter or leave at a link ([`tollway_law::meter`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Meter {
    /// Largest accepted difference between statement and measurement, as a fraction of the
    /// measurement.
    pub tolerance: f64,
    /// Round trips of excess before the meter reports a flow.
    pub burst: f64,
    /// Round trips with a false stated round trip, without interruption, before the meter reports a
    /// flow.
    pub patience: f64,
    /// True if the meter limits reported flows to their allotment; false if it only reports them.
    pub enforce: bool,
    /// The traffic that the meter checks.
    pub duty: Duty,
}

/// A direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From `from` to `to`.
    Forward,
    /// From `to` to `from`.
    Reverse,
}

/// A link's law and its port's queueing discipline, with their constants, and the port's limit.
#[derive(Clone, Debug)]
pub struct LinkLaw {
    /// The law.
    pub law: Arc<dyn LinkConfig>,
    /// The discipline; `None` is first in, first out.
    pub queue: Option<Arc<dyn QueueConfig>>,
    /// Upper bound of the queue.
    pub limit: Limit,
}

impl PartialEq for LinkLaw {
    fn eq(&self, other: &LinkLaw) -> bool {
        *self.law == *other.law && self.queue == other.queue && self.limit == other.limit
    }
}

impl LinkLaw {
    /// Returns a law over one queue without a limit; over two if the law needs a queue for priority
    /// classes and there are such.
    pub fn new(law: Arc<dyn LinkConfig>, classes: &[Class]) -> LinkLaw {
        let first = classes.iter().map(|class| matches!(class.pricing, Pricing::Priority { .. }));
        let queue = ClassQueuesConfig::priority(first).filter(|_| law.descriptor().priority);
        let queue = queue.map(|queue| -> Arc<dyn QueueConfig> { Arc::new(queue) });
        LinkLaw { law, queue, limit: Limit::NONE }
    }

    /// Returns drop-tail.
    pub fn none() -> LinkLaw {
        LinkLaw::new(Arc::new(DropTail), &[])
    }

    /// Returns true for plain drop-tail.
    pub fn is_none(&self) -> bool {
        let none = LinkLaw::none();
        *self.law == *none.law && self.queue == none.queue
    }

    /// Returns this law with `limit`: `last` if it has that limit, otherwise a new one, which
    /// becomes `last`.
    pub(crate) fn limited(&self, limit: Limit, last: &mut Option<Arc<LinkLaw>>) -> Arc<LinkLaw> {
        let law = last.take().filter(|last| last.limit == limit);
        let law = law.unwrap_or_else(|| Arc::new(LinkLaw { limit, ..self.clone() }));
        Arc::clone(last.insert(law))
    }

    /// The law's config, if it has this type.
    pub fn get<C: LinkConfig>(&self) -> Option<&C> {
        self.law.get()
    }

    /// The law's needs, outputs and aim.
    pub fn descriptor(&self) -> Descriptor {
        self.law.descriptor()
    }

    /// The descriptor of the law that applies to traffic of `class`.
    pub fn of_class(&self, class: u8) -> Descriptor {
        self.law.of_class(class).map_or_else(|| self.descriptor(), LinkConfig::descriptor)
    }

    /// Checks that the constants fit each other and the link.
    ///
    /// # Errors
    /// The word of the unfit law and the reason.
    pub(crate) fn check(&self, at: &Placement<'_>) -> Result<(), (&str, Misfit)> {
        let classes = (0..u8::MAX).map_while(|class| self.law.of_class(class));
        let mut laws = std::iter::once(&*self.law).chain(classes);
        laws.try_for_each(|law| law.check(at).map_err(|misfit| (law.word(), misfit)))
    }
}

impl Plan {
    /// Returns true if a link of `route` writes `content` into tolls of `class`.
    pub(crate) fn says(&self, route: &[LinkId], class: u8, content: Content) -> bool {
        let gives = |link: &LinkId| self.links[link.0 as usize].law.of_class(class).gives;
        route.iter().any(|link| gives(link) == Some(content))
    }

    /// The pricing of no class, then of each class; empty if there are no classes.
    pub(crate) fn pricings(&self) -> Vec<Pricing> {
        let classes = self.classes.iter().map(|class| class.pricing);
        if self.classes.is_empty() {
            Vec::new()
        } else {
            std::iter::once(Pricing::Standard).chain(classes).collect()
        }
    }

    /// The pricing of a class; 0 is no class.
    pub(crate) fn pricing(&self, class: u8) -> Pricing {
        let class = self.classes.get(usize::from(class).wrapping_sub(1));
        class.map_or(Pricing::Standard, |class| class.pricing)
    }

    /// The placement of a link's law; `classes` are [`Plan::pricings`].
    pub(crate) fn placement<'a>(&self, link: &'a Link, classes: &'a [Pricing], seed: u64) -> Placement<'a> {
        Placement {
            link: &link.name,
            capacity: link.capacity,
            limit: link.law.limit,
            overhead: Bytes(u64::from(link.overhead)),
            classes,
            seed,
        }
    }
}

/// A class of traffic.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Pricing of the class on links with the law `fcp`.
    pub pricing: Pricing,
    /// Word of the law of the class's queue on links with the law `by-class`.
    pub law: &'static str,
    /// Weight of that queue.
    pub weight: f64,
}

/// A half-duplex medium: one transmitter for all of its links, each at its own rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Medium {
    /// Its name.
    pub name: String,
    /// The links, both directions of each.
    pub links: Vec<LinkId>,
}
