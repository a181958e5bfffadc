//! Links: ports, laws and their constants, classes of traffic, media.

use std::ops::Deref;

use tollway_law::link::{Descriptor, DropTail, LinkConfig, Misfit, Placement, Pricing};
use tollway_law::toll::Content;
use tollway_proto::faults::Impairments;
use tollway_proto::port::{ClassQueuesConfig, QueueConfig};

use super::*;

/// One direction of a link: a port and the wire behind it.
///
/// A plan may have a million. The settings of its section are therefore shared, and read through the link: `link.rate`.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// `bottleneck`, `access.3` for a link of a group's third member, with `.reverse` for the way back.
    pub name: String,
    /// Where its port is.
    pub from: NodeId,
    /// Where its packets arrive.
    pub to: NodeId,
    /// The other direction, if the link is duplex.
    pub twin: Option<LinkId>,
    /// Propagation delay, one way.
    pub delay: Time,
    /// The upper bound of the queue.
    pub limit: Limit,
    /// The link's law; links of one section share it, unless its thresholds are parts of their limits.
    pub law: Arc<LinkLaw>,
    /// The settings of its section in this direction.
    pub shared: Arc<LinkSection>,
}

const _: () = assert!(size_of::<Link>() == 80);

impl Deref for Link {
    type Target = LinkSection;

    fn deref(&self) -> &LinkSection {
        &self.shared
    }
}

/// The settings that the links of one section share in one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSection {
    /// The section of the file they come from.
    pub section: Arc<str>,
    /// Their direction: as in the file, or reverse.
    pub direction: Direction,
    /// How fast packets are put on the wire; the mean if it replays a trace.
    pub rate: Rate,
    /// When it may send, instead of at a rate.
    pub trace: Option<Trace>,
    /// Framing bytes that every packet takes on this wire in addition to its own.
    pub overhead: u32,
    /// The capacity that the link's law believes in.
    pub capacity: Rate,
    /// The half-duplex medium that it shares.
    pub medium: Option<MediumId>,
    /// Probability that a packet is lost on the wire.
    pub loss: f64,
    /// Impairments of the wire beside loss.
    pub impairments: Option<Box<Impairments>>,
    /// The meter at the far end; only of a link that has a way back.
    pub meter: Option<Box<Meter>>,
    /// The border at the far end; only of a link that has a way back and no meter.
    pub exchange: Option<Box<ExchangeRate>>,
}

/// A meter for flows that enter, or leave, there ([`tollway_law::meter`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Meter {
    /// How far what is stated may be from what is measured, as a part of it.
    pub tolerance: f64,
    /// Round trips of excess before a flow is accused.
    pub burst: f64,
    /// Round trips for which a wrong round trip must be stated without a break.
    pub patience: f64,
    /// Accused flows are held to their allotment, not only reported.
    pub enforce: bool,
    /// What it looks after.
    pub duty: Duty,
}

/// Which way along a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From `from` to `to`.
    Forward,
    /// The way back.
    Reverse,
}

/// A link's law and the discipline of its port, with their constants.
#[derive(Clone, Debug)]
pub struct LinkLaw {
    /// The law.
    pub law: Arc<dyn LinkConfig>,
    /// The discipline; first in, first out if `None`.
    pub queue: Option<Arc<dyn QueueConfig>>,
}

impl PartialEq for LinkLaw {
    fn eq(&self, other: &LinkLaw) -> bool {
        *self.law == *other.law && self.queue == other.queue
    }
}

impl LinkLaw {
    /// A law over one queue, or over two if it needs one for classes with priority and there are such.
    pub fn new(law: Arc<dyn LinkConfig>, classes: &[Class]) -> LinkLaw {
        let first = classes.iter().map(|class| matches!(class.pricing, Pricing::Priority { .. }));
        let queue = ClassQueuesConfig::priority(first).filter(|_| law.descriptor().priority);
        LinkLaw { law, queue: queue.map(|queue| -> Arc<dyn QueueConfig> { Arc::new(queue) }) }
    }

    /// Drop-tail.
    pub fn none() -> LinkLaw {
        LinkLaw::new(Arc::new(DropTail), &[])
    }

    /// Whether what does not fit is dropped, and nothing else happens.
    pub fn is_none(&self) -> bool {
        *self == LinkLaw::none()
    }

    /// The law's config, if it is of this type.
    pub fn get<C: LinkConfig>(&self) -> Option<&C> {
        self.law.get()
    }

    /// What it needs, gives and aims at.
    pub fn descriptor(&self) -> Descriptor {
        self.law.descriptor()
    }

    /// The same for traffic of `class`.
    pub fn of_class(&self, class: u8) -> Descriptor {
        self.law.of_class(class).map_or_else(|| self.descriptor(), LinkConfig::descriptor)
    }

    /// Whether its constants fit each other and the link.
    ///
    /// # Errors
    /// The word of the law whose constants don't, and why.
    pub(crate) fn check(&self, at: &Placement<'_>) -> Result<(), (&str, Misfit)> {
        let classes = (0..u8::MAX).map_while(|class| self.law.of_class(class));
        let mut laws = std::iter::once(&*self.law).chain(classes);
        laws.try_for_each(|law| law.check(at).map_err(|misfit| (law.word(), misfit)))
    }
}

impl Plan {
    /// Whether a link of `route` writes `content` into tolls of `class`.
    pub(crate) fn says(&self, route: &[LinkId], class: u8, content: Content) -> bool {
        let gives = |link: &LinkId| self.links[link.0 as usize].law.of_class(class).gives;
        route.iter().any(|link| gives(link) == Some(content))
    }

    /// What is asked of each class of traffic, first of what is of none; empty if there are no classes.
    pub(crate) fn pricings(&self) -> Vec<Pricing> {
        let classes = self.classes.iter().map(|class| class.pricing);
        if self.classes.is_empty() {
            Vec::new()
        } else {
            std::iter::once(Pricing::Standard).chain(classes).collect()
        }
    }

    /// What is asked of a class of traffic; 0 is none.
    pub(crate) fn pricing(&self, class: u8) -> Pricing {
        let class = self.classes.get(usize::from(class).wrapping_sub(1));
        class.map_or(Pricing::Standard, |class| class.pricing)
    }

    /// The port of a link, for its law; `classes` are [`Plan::pricings`].
    pub(crate) fn placement<'a>(&self, link: &'a Link, classes: &'a [Pricing], seed: u64) -> Placement<'a> {
        Placement {
            link: &link.name,
            capacity: link.capacity,
            limit: link.limit,
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
    /// What links of the law `fcp` ask it for.
    pub pricing: Pricing,
    /// The word of the law that its queue is under on links of the law `by-class`.
    pub law: &'static str,
    /// The weight of that queue.
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
