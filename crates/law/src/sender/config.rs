//! Configs and descriptors of sender laws, and the senders that laws are made for.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::AnySender;
use super::fcp::MOST_RATE;
use crate::link::{Failure, Misfit, Pricing};
use crate::param::{Entry, Same, Tabled};
use crate::receiver::Echo;
use crate::toll::Content;
use crate::{Aim, Budget, Rate, Time};

/// A law with its constants: a plan holds the config, and the config builds the law of each
/// connection.
pub trait SenderConfig: Same + fmt::Debug + Send + Sync {
    /// Its word in scenario files and tables.
    fn word(&self) -> &str;

    /// Its needs and its aim. Default: none.
    fn descriptor(&self) -> Descriptor {
        Descriptor::default()
    }

    /// Checks its constants against each other and a sender. The flow's name is not known yet.
    ///
    /// # Errors
    /// The first field that does not fit; `table.field` stands in a table inside the law's.
    fn check(&self, _of: &Sending<'_>) -> Result<(), Misfit> {
        Ok(())
    }

    /// Bytes that the first packet of a flow announces for the next round trip, with `unsent` bytes
    /// to send, in packets of `segment` bytes. Default: none.
    fn announces(&self, _unsent: u64, _segment: u32) -> f64 {
        0.0
    }

    /// The law as the program for the kernel's TCP has it, if there is one. It differs from this
    /// config in fields that a file does not set; `given` is true for those that it sets.
    ///
    /// # Errors
    /// The first field with another value than the program's.
    fn program(&self, _given: &dyn Fn(&str) -> bool) -> Result<Option<Arc<dyn SenderConfig>>, Misfit> {
        Ok(None)
    }

    /// Builds the law for a sender.
    fn make(&self, of: &Sending<'_>) -> AnySender;

    /// An error of a law that this config built; it ends the run. Polled every 100 ms of the run's
    /// time.
    fn failure(&self) -> Option<Failure> {
        None
    }
}

/// The registry's entry of a law with a table of constants under its word.
pub const fn entry<C: Tabled + SenderConfig>() -> Entry<dyn SenderConfig> {
    Entry {
        word: C::TABLE.word,
        tables: C::TABLES,
        read: |tables| Arc::new(C::read(tables.table(C::TABLE.word))),
    }
}

/// The registry's entry of a law without keys.
pub const fn fixed<C: Default + SenderConfig>(word: &'static str) -> Entry<dyn SenderConfig> {
    Entry { word, tables: &[], read: |_| Arc::new(C::default()) }
}

/// The misfit of the first field that differs from the program's, by name.
pub(super) fn not_in_program(fields: &[(&'static str, bool)]) -> Result<(), Misfit> {
    let Some(&(field, _)) = fields.iter().find(|(_, differs)| *differs) else { return Ok(()) };
    Err(Misfit {
        field,
        message: "the law's program for the kernel's TCP does not have this value".into(),
        label: "not in the kernel",
        help: "leave it out, or leave out `transport = \"kernel\"`",
    })
}

impl PartialEq for dyn SenderConfig {
    fn eq(&self, other: &dyn SenderConfig) -> bool {
        self.same(other)
    }
}

impl dyn SenderConfig {
    /// The config, if it is of this type.
    pub fn get<C: SenderConfig>(&self) -> Option<&C> {
        (self as &dyn Any).downcast_ref()
    }
}

/// The sender that a law is made for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sending<'a> {
    /// The flow, as result tables call it.
    pub flow: &'a str,
    /// The section of the file that defines it: `flow.NAME` or `workload.NAME` without the first
    /// word.
    pub section: &'a str,
    /// True for the flow's far end, which sends where data go both ways.
    pub backward: bool,
    /// Size of a full packet on the wire, headers included, bytes.
    pub segment: u16,
    /// Window at the start, segments.
    pub initial_window: f64,
    /// Rate of the sender's interface.
    pub line_rate: Rate,
    /// True if packets have room for every field of a toll. XCP's headers have none for
    /// [`stake`](crate::Toll::stake).
    pub whole_toll: bool,
    /// The pricing of its class of traffic.
    pub pricing: Pricing,
    /// Seed of the law's random numbers, different for each sender and each seed of the run.
    pub seed: u64,
}

impl Sending<'_> {
    /// A sender of packets of 1500 B without a class, on an interface of 1 Tb/s.
    pub fn of(initial_window: f64) -> Sending<'static> {
        Sending {
            flow: "",
            section: "",
            backward: false,
            segment: 1500,
            initial_window,
            line_rate: Rate::from_bytes_per_sec(MOST_RATE),
            whole_toll: true,
            pricing: Pricing::Standard,
            seed: 1,
        }
    }
}

/// The needs and the aim of a law. The default reacts to acknowledgements and losses, allows marks,
/// and has no aim.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Descriptor {
    /// Content of the tolls it reads; `None` for a law without tolls.
    pub reads: Option<Content>,
    /// Its behaviour where no link of its path writes that content.
    pub unanswered: Unanswered,
    /// The receiver's law.
    pub echo: Echo,
    /// The allocation that it steers to, where links have the same aim.
    pub aim: Option<Aim>,
    /// Window at the start where a file gives none, segments; `None` is 10 (RFC 6928).
    pub initial_window: Option<u32>,
    /// Explicit congestion notification.
    pub ecn: Ecn,
    /// It may set ECT(1): its answer to a mark is scalable (RFC 9331, § 4.3).
    pub l4s: bool,
    /// True if losses are detected by time by default (RFC 8985).
    pub rack: bool,
    /// Name of the law in Linux, if Linux has it.
    pub kernel: Option<&'static str>,
    /// A program of this project brings it to Linux ([`SenderConfig::program`]).
    pub program: bool,
    /// Linux's name of the law that such a program leaves connections to, if the sender names one.
    pub fallback: Option<&'static str>,
    /// Policies may set the growth of its window
    /// ([`NewReno::set_increase`](super::NewReno::set_increase)).
    pub increase: bool,
    /// Its spending, if a budget limits it.
    pub spends: Option<Spending>,
    /// Time at which it begins to cheat.
    pub cheats: Option<Time>,
}

impl Descriptor {
    /// A law that has no rate unless a link of its path writes `content`.
    pub fn needing(content: Content) -> Descriptor {
        let echo = if content == Content::Feedback { Echo::Sum } else { Echo::Latest };
        Descriptor { reads: Some(content), unanswered: Unanswered::Mute, echo, ..Descriptor::default() }
    }
}

/// Behaviour of a sender where no link of its path writes the toll that it reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unanswered {
    /// It sends without tolls.
    #[default]
    Harmless,
    /// It has no rate to send at.
    Mute,
    /// Its window grows without end.
    Boundless,
}

/// Explicit congestion notification (RFC 3168).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// Off unless a file enables it.
    #[default]
    Free,
    /// The law requires marks.
    Needs,
    /// The law does not react to marks.
    Refuses,
}

/// A sender's spending.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spending {
    /// Its budget without a host.
    pub budget: Budget,
    /// The rate that a host's strategy for stable rates is to keep.
    pub wants: Option<Rate>,
    /// The rate it requests at the least price to meet a deadline.
    pub deadline: Option<Rate>,
    /// Queueing delay as bad as a rate e times smaller: the flow is in its class only while that is
    /// better than no class.
    pub patience: Option<Time>,
}
