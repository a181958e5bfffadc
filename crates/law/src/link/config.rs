//! What has to be known of link laws beside their arithmetic, and how they are placed at ports.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use super::{AnyLink, Pricing};
use crate::param::{Entry, Same, Tabled, Threshold};
use crate::toll::Content;
use crate::{Aim, Bytes, Rate, Time};

/// A law with its constants, not yet on a link: what a plan holds, and the factory of what a port
/// holds.
pub trait LinkConfig: Same + fmt::Debug + Send + Sync {
    /// Its word in scenario files and tables.
    fn word(&self) -> &str;

    /// What it needs, gives and aims at. Default nothing.
    fn descriptor(&self) -> Descriptor {
        Descriptor::default()
    }

    /// Whether its constants fit each other and a link.
    ///
    /// # Errors
    /// What does not fit.
    fn check(&self, _at: &Placement<'_>) -> Result<(), Misfit> {
        Ok(())
    }

    /// The law, for a link.
    fn place(&self, at: &Placement<'_>) -> AnyLink;

    /// The law of a class of traffic, where classes have laws of their own.
    fn of_class(&self, _class: u8) -> Option<&dyn LinkConfig> {
        None
    }

    /// What has gone wrong in a law that it made, if anything has: the run ends with it. Asked
    /// every 100 ms of the run's time.
    fn failure(&self) -> Option<Failure> {
        None
    }
}

/// The registry's entry of a law that has its constants in a table of its own.
pub const fn entry<C: Tabled + LinkConfig>() -> Entry<dyn LinkConfig> {
    Entry {
        word: C::TABLE.word,
        tables: C::TABLES,
        read: |tables| Arc::new(C::read(tables.table(C::TABLE.word))),
    }
}

/// What went wrong in a law.
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
    /// The capacity that the law is to believe in.
    pub capacity: Rate,
    /// What the queue holds.
    pub limit: Limit,
    /// Framing that each packet takes on the wire beyond its own size.
    pub overhead: Bytes,
    /// What is asked of each class of traffic; first of what is of none. Empty where no class is
    /// told apart.
    pub classes: &'a [Pricing],
    /// For what it draws: another one for each port and each seed of the run.
    pub seed: u64,
}

impl Placement<'_> {
    /// A port before a link of `capacity`, without limit, framing and classes.
    pub fn of(capacity: Rate) -> Placement<'static> {
        Placement { link: "", capacity, limit: Limit::NONE, overhead: Bytes(0), classes: &[], seed: 1 }
    }
}

/// How much a port's queue holds: both bounds apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Packets, the one in transmission not counted.
    pub packets: u32,
    /// Bytes on the wire, the packet in transmission not counted.
    pub bytes: u64,
}

impl Limit {
    /// As good as none.
    pub const NONE: Limit = Limit { packets: u32::MAX, bytes: u64::MAX };
}

/// What a law needs, gives and aims at, beside its arithmetic. The default is a law that needs
/// nothing, says nothing and aims at nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Descriptor {
    /// What it writes into tolls.
    pub gives: Option<Content>,
    /// The allocation that it steers to.
    pub aim: Option<Aim>,
    /// The part of the capacity that it gives out.
    pub share: f64,
    /// By how many round trips' worth of the queue it aims lower; 0 for a law that does not.
    pub queue_weight: f64,
    /// The constants of XCP's equilibrium.
    pub gains: Option<Gains>,
    /// Needs a queue before the others for classes of the pricing [`Pricing::Priority`].
    pub priority: bool,
}

impl Default for Descriptor {
    fn default() -> Descriptor {
        Descriptor { gives: None, aim: None, share: 1.0, queue_weight: 0.0, gains: None, priority: false }
    }
}

/// The constants by which XCP's equilibrium is reckoned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gains {
    /// The share of the spare capacity given out in an interval.
    pub alpha: f64,
    /// The share of the traffic that is shuffled in an interval.
    pub gamma: f64,
    /// Shortest interval.
    pub min_interval: Time,
    /// Longest round trip that counts.
    pub max_interval: Time,
}

/// Why constants don't fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The field that does not.
    pub field: &'static str,
    /// What is wrong.
    pub message: String,
    /// The same at the place itself, in a word or two.
    pub label: &'static str,
    /// What to do instead; empty where the message says it.
    pub help: &'static str,
}

/// What an amount of queue counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThresholdUnit {
    /// Packets queued.
    Packets,
    /// Bytes queued.
    Bytes,
}

impl Threshold {
    /// The amount and its unit, where the queue holds `limit`; a part of no limit is infinite.
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

    /// # Errors
    /// It is a part of no limit; `field` has it.
    pub(super) fn check(self, field: &'static str, limit: Limit) -> Result<(), Misfit> {
        if !matches!(self, Threshold::Part(_)) || limit != Limit::NONE {
            return Ok(());
        }
        Err(Misfit {
            field,
            message: format!("`{}` is a part of the limit, and there is none", field.replace('_', "-")),
            label: "part of nothing",
            help: "give the link a `limit`, or the threshold in packets or bytes",
        })
    }
}
