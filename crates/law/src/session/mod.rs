//! Session laws: tolls where one connection splits over the members of a cluster, or merges from
//! them (the Anypoint paper, § III-C and § IV).
//!
//! | | data | acknowledgements |
//! |---|---|---|
//! | **split**: 1 sender, N receivers | [`Split::on_data`] | [`Split::on_echo`], [`Split::echo`] |
//! | **merge**: N senders, 1 receiver | [`Merge::on_data`] | [`Merge::on_echo`], [`Merge::echo`] |
//!
//! Both keep *totals*. A toll speaks for a packet, and a member's packets are a part of the
//! session's. So feedback of a member can be compared with the session's only as sums over a round
//! trip, not packet by packet. The paper's formulas, read literally, apply to single packets
//! ([`Reading::Literal`]).
//!
//! An echo is not trusted. Its bound is the tolls that its packets carried at the switch, which the
//! caller reports packet by packet ([`Split::on_acked`], [`Merge::on_acked`]).

mod fcp;
mod ratio;
#[cfg(test)]
mod tests;
mod xcp;

pub use fcp::{FcpMerge, FcpSplit};
pub use ratio::ReceiveRatio;
pub use xcp::{XcpMerge, XcpSplit};

use crate::toll::Content;
use crate::{Time, Toll};

/// How the paper's acknowledgement formulas are applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reading {
    /// To sums over packets, so that rates are conserved.
    #[default]
    Totals,
    /// To the feedback of single packets, for comparison: with N members a split's loop gain is N
    /// times too high, a merge's N times too low.
    Literal,
}

/// The transform of a session's tolls from one sender to several members.
#[derive(Clone, Debug)]
pub enum Split {
    /// Tolls pass unchanged, and no echo goes back.
    Plain,
    /// XCP's transform.
    Xcp(XcpSplit),
    /// FCP's transform.
    Fcp(FcpSplit),
}

impl Split {
    /// The transform for tolls with this content, over `members`. RCP's rates pass unchanged.
    pub fn new(content: Option<Content>, reading: Reading, members: usize) -> Split {
        match content {
            Some(Content::Feedback) => Split::Xcp(XcpSplit::new(reading, members)),
            Some(Content::Price) => Split::Fcp(FcpSplit::new(members)),
            Some(Content::Rate) | None => Split::Plain,
        }
    }

    /// A tolled packet of `size` bytes goes to `member`; `ratio` includes it.
    #[inline]
    pub fn on_data(&mut self, member: usize, size: u32, ratio: &ReceiveRatio, toll: &mut Toll) {
        match self {
            Split::Plain => {}
            Split::Xcp(law) => law.on_data(member, size, ratio, toll),
            Split::Fcp(law) => law.on_data(member, ratio, toll),
        }
    }

    /// `member` has received, for the first time, a packet that left the switch with `due`.
    #[inline]
    pub fn on_acked(&mut self, member: usize, due: f64) {
        match self {
            Split::Plain => {}
            Split::Xcp(law) => law.on_acked(member, due),
            Split::Fcp(law) => law.on_acked(member, due),
        }
    }

    /// `member` echoes a toll.
    #[inline]
    pub fn on_echo(&mut self, member: usize, echo: f32) {
        match self {
            Split::Plain => {}
            Split::Xcp(law) => law.on_echo(member, echo),
            Split::Fcp(law) => law.on_echo(member, echo),
        }
    }

    /// The echo of the next packet to the sender.
    #[inline]
    pub fn echo(&mut self, now: Time, ratio: &ReceiveRatio) -> f32 {
        match self {
            Split::Plain => 0.0,
            Split::Xcp(law) => law.echo(now, ratio),
            Split::Fcp(law) => law.echo(ratio),
        }
    }

    /// Adds a member.
    pub fn add(&mut self) {
        match self {
            Split::Plain => {}
            Split::Xcp(law) => law.add(),
            Split::Fcp(law) => law.add(),
        }
    }

    /// Forgets `member`, which has left or begins anew.
    pub fn forget(&mut self, member: usize) {
        match self {
            Split::Plain => {}
            Split::Xcp(law) => law.forget(member),
            Split::Fcp(law) => law.forget(member),
        }
    }
}

/// The transform of a session's tolls from several members to one receiver.
#[derive(Clone, Debug)]
pub enum Merge {
    /// Tolls pass unchanged, and no echo goes back.
    Plain,
    /// XCP's.
    Xcp(XcpMerge),
    /// FCP's.
    Fcp(FcpMerge),
}

impl Merge {
    /// The transform for tolls with this content, over `members`. RCP's rates pass unchanged.
    pub fn new(content: Option<Content>, reading: Reading, members: usize) -> Merge {
        match content {
            Some(Content::Feedback) => Merge::Xcp(XcpMerge::new(reading, members)),
            Some(Content::Price) => Merge::Fcp(FcpMerge::new(members)),
            Some(Content::Rate) | None => Merge::Plain,
        }
    }

    /// A tolled packet of `size` bytes comes from `member`.
    #[inline]
    pub fn on_data(&mut self, now: Time, member: usize, size: u32, toll: &mut Toll) {
        match self {
            Merge::Plain => {}
            Merge::Xcp(law) => law.on_data(now, member, size, toll),
            Merge::Fcp(law) => law.on_data(now, member, toll),
        }
    }

    /// The receiver has received, for the first time, a packet of `member` that came to the switch
    /// with
    /// `due`.
    #[inline]
    pub fn on_acked(&mut self, member: usize, due: f64) {
        match self {
            Merge::Plain => {}
            Merge::Xcp(law) => law.on_acked(member, due),
            Merge::Fcp(law) => law.on_acked(member, due),
        }
    }

    /// The receiver echoes a toll.
    #[inline]
    pub fn on_echo(&mut self, now: Time, echo: f32) {
        match self {
            Merge::Plain => {}
            Merge::Xcp(law) => law.on_echo(now, echo),
            Merge::Fcp(law) => law.on_echo(echo),
        }
    }

    /// The echo of the next packet to `member`; `None` if none has come since the last one.
    #[inline]
    pub fn echo(&mut self, now: Time, member: usize) -> Option<f32> {
        match self {
            Merge::Plain => None,
            Merge::Xcp(law) => law.echo(now, member),
            Merge::Fcp(law) => law.echo(now, member),
        }
    }

    /// Adds a member.
    pub fn add(&mut self) {
        match self {
            Merge::Plain => {}
            Merge::Xcp(law) => law.add(),
            Merge::Fcp(law) => law.add(),
        }
    }

    /// Forgets `member`, which has left or begins anew.
    pub fn forget(&mut self, member: usize) {
        match self {
            Merge::Plain => {}
            Merge::Xcp(law) => law.forget(member),
            Merge::Fcp(law) => law.forget(member),
        }
    }
}

/// Returns true if a member that sent at `heard` counts as sending: for two of its round trips, in
/// seconds.
fn sends(now: Time, heard: Time, rtt: f64) -> bool {
    now.saturating_sub(heard).as_secs_f64() <= 2.0 * rtt
}

/// A stated time in seconds; `None` unless it is a positive number of a day at most.
fn seconds(stated: f32) -> Option<f64> {
    let stated = f64::from(stated);
    (stated > 0.0 && stated <= 86_400.0).then_some(stated)
}
