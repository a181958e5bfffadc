//! Configs of link laws and their placement at ports.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use super::{AnyLink, Pricing};
use crate::param::{Entry, Same, Tabled, Threshold};
use crate::toll::Content;
use crate::{Aim, Bytes, Rate, Time};

/// A link law's constants before it is placed on a link: a plan holds the config, and the config
/// builds the law of each port.
pub trait LinkConfig: Same + fmt::Debug + Send + Sync {
    /// Its word in scenario files and tables.
    fn word(&self) -> &str;

    /// The law's needs, its toll and its aim. Default: none.
    fn descriptor(&self) -> Descriptor {
        Descriptor::default()
    }

    /// Checks that the constants fit each other and the link.
    ///
    /// # Errors
    /// The field that does not fit, and the reason.
    fn check(&self, _at: &Placement<'_>) -> Result<(), Misfit> {
        Ok(())
    }

    /// Builds the law for a port.
    fn place(&self, at: &Placement<'_>) -> AnyLink;

    /// The law of a class of traffic, where classes have separate laws.
    fn of_class(&self, _class: u8) -> Option<&dyn LinkConfig> {
        None
    }

    /// An error of a law that this config built; it ends the run. Polled every 100 ms of the run's
    /// time.
    fn failure(&self) -> Option<Failure> {
        None
    }
}

/// The registry entry of a law whose constants have a table of their own.
pub const fn entry<C: Tabled + LinkConfig>() -> Entry<dyn LinkConfig> {
    Entry {
        word: C::TABLE.word,
        tables: C::TABLES,
        read: |tables| Arc::new(C::read(tables.table(C::TABLE.word))),
    }
}

/// An error inside a law.
pub type Failure = Box<dyn Error + Send + Sync>;

impl PartialEq for dyn LinkConfig {
    fn eq(&self, other: &dyn LinkConfig) -> bool {
        self.same(other)
    }
}

impl dyn LinkConfig {
    /// The config, if it is of this type.
    pub fn get<C: LinkConfig>(&self) -> Option<&C> {
        (self as &dyn Any).downcast_ref()
    }
}

/// The port that a law is placed at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Placement<'a> {
    /// The link's direction, as result tables call it.
    pub link: &'a str,
    /// The capacity configured for the law.
    pub capacity: Rate,
    /// The limit of the queue.
    pub limit: Limit,
    /// Framing that each packet takes on the wire in addition to its size.
    pub overhead: Bytes,
    /// Pricing of each class of traffic, first of traffic without a class. Empty where classes are
    /// not distinguished.
    pub classes: &'a [Pricing],
    /// Seed of the law's random numbers, different for each port and each seed of the run.
    pub seed: u64,
}

impl Placement<'_> {
    /// A port of a link of `capacity`, without limit, framing and classes.
    pub fn of(capacity: Rate) -> Placement<'static> {
        Placement { link: "", capacity, limit: Limit::NONE, overhead: Bytes(0), classes: &[], seed: 1 }
    }
}

/// The size of a port's queue; both bounds apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Packets, the one in transmission not counted.
    pub packets: u32,
    /// Bytes on the wire, the packet in transmission not counted.
    pub bytes: u64,
}

impl Limit {
    /// No practical limit.
    pub const NONE: Limit = Limit { packets: u32::MAX, bytes: u64::MAX };
}

/// The needs, toll and aim of a law. The default needs nothing, states no toll and has no aim.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Descriptor {
    /// The content it writes into tolls.
    pub gives: Option<Content>,
    /// The allocation that it steers to.
    pub aim: Option<Aim>,
    /// The fraction of the capacity that it gives out.
    pub share: f64,
    /// Weight of the queue: the target rate falls by this times queue ∕ round trip. 0 for laws that
    /// ignore the queue.
    pub queue_weight: f64,
    /// The constants of XCP's equilibrium.
    pub gains: Option<Gains>,
    /// True if it needs a queue with priority, for classes of the pricing [`Pricing::Priority`].
    pub priority: bool,
}

impl Default for Descriptor {
    fn default() -> Descriptor {
        Descriptor { gives: None, aim: None, share: 1.0, queue_weight: 0.0, gains: None, priority: false }
    }
}

/// The constants of XCP's equilibrium.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gains {
    /// α, the fraction of the spare capacity given out per interval.
    pub alpha: f64,
    /// γ, the fraction of the traffic shuffled per interval.
    pub gamma: f64,
    /// Shortest control interval.
    pub min_interval: Time,
    /// Longest round trip that counts.
    pub max_interval: Time,
}

/// The reason constants do not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The field at fault.
    pub field: &'static str,
    /// The fault.
    pub message: String,
    /// The same in a word or two, as a label at the place in the file.
    pub label: &'static str,
    /// The remedy; empty where the message contains it.
    pub help: &'static str,
}

/// The unit of an amount of queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThresholdUnit {
    /// Packets queued.
    Packets,
    /// Bytes queued.
    Bytes,
}

impl Threshold {
    /// The amount and its unit, where the queue holds `limit`; a fraction of no limit is infinite.
    pub fn under(self, limit: Limit) -> (f64, ThresholdUnit) {
        match self {
            Threshold::Packets(n) => (n, ThresholdUnit::Packets),
            Threshold::Bytes(n) => (n, ThresholdUnit::Bytes),
            Threshold::Part(part) if limit.packets != u32::MAX => {
                (part * f64::from(limit.packets), ThresholdUnit::Packets)
            }
            Threshold::Part(part) if limit.bytes != u64::MAX => {
                (part * limit.bytes as f64, ThresholdUnit::Bytes)
            }
            Threshold::Part(_) => (f64::INFINITY, ThresholdUnit::Bytes),
        }
    }

    /// Checks that this is not a fraction of an unlimited queue.
    ///
    /// # Errors
    /// It is; the misfit names `field`.
    pub(super) fn check(self, field: &'static str, limit: Limit) -> Result<(), Misfit> {
        if !matches!(self, Threshold::Part(_)) || limit != Limit::NONE {
            return Ok(());
        }
        Err(Misfit {
            field,
            message: format!(
                "`{}` is a fraction of the limit, and the link has no limit",
                field.replace('_', "-")
            ),
            label: "a fraction of no limit",
            help: "give the link a `limit`, or the threshold in packets or bytes",
        })
    }
}
