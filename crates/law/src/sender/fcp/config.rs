//! The constants of FCP's sender.

use std::sync::Arc;

use super::super::config::not_in_program;
use super::super::{AnySender, Descriptor, FcpCheat, FcpCheatConfig, SenderConfig, Sending, Spending};
use super::MOST_RATE;
use crate::link::{Misfit, Pricing};
use crate::param::{Config, Entry, Kind, SPAN, Tabled};
use crate::price::at_most;
use crate::toll::Content;
use crate::{Aim, Budget, Bytes, Rate, Time, config};

config! {
    /// The constants of [`Fcp`](super::Fcp), and its factory.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct FcpConfig in "fcp", "The budget of FCP's sender (the FCP report, § 4.1)." {
        /// The flow's budget, $/s, if it has no host.
        budget: Budget = Budget::per_sec(1.0), Kind::Number { least: 0.0, most: 1e12 };
        /// Packets that its first packet announces for the next round trip: all of a flow that is
        /// shorter, and at most four (RFC 3390) of one over 1 MB or of unknown length.
        initial_packets: f64 = 10.0, Kind::Over { over: 0.0, most: 1e6 }, from "§ 4.1, \"Start-up behavior\"";
        /// Announces them whatever there is to send, as the report does.
        initial_always: bool = false, Kind::Truth;
        /// A flow with no more than this left requests only enough to send it within a round trip;
        /// with more, it requests its budget.
        short: Bytes = Bytes(50_000), Kind::Bytes { least: 0, most: 1 << 60 }, from "§ 6.1.1";
        /// The longest pause between packets at any price, unless four round trips are longer. The
        /// next packet learns of a price that has fallen. Meters assume the default.
        max_pause: Time = LONGEST_PAUSE, SPAN;
        /// The largest preload.
        max_preload: Option<f64> = None, Kind::Over { over: 0.0, most: 1e30 }, else "none", from "§ 4.2: 1 for stability";
        /// The rate that a host's strategy `stable` is to keep.
        wants: Option<Rate> = None, Kind::Rate, else "none";
        /// The rate that meets a deadline. It is requested at the least price, of links whose class
        /// for the flow has the pricing `deadline`; if refused, the flow spends its budget.
        deadline: Option<Rate> = None, Kind::Rate, else "none", from "§ 4.2, \"D³-style deadline support\"";
        /// Chooses by trial between its `class` and none, by the utility ln rate − queueing
        /// delay/`patience`: a queueing delay of `patience` is as bad as a rate e times smaller.
        patience: Option<Time> = None, SPAN, else "it is always in its `class`";
        fixed {
            /// The rate of the sender's interface, and the upper bound on its rate.
            ///
            /// Where hardly any flow pays, prices fall until a budget buys more than any link
            /// carries, and no window ends what acknowledgements no longer clock. At most 1 Tb/s.
            line_rate: Rate = Rate::from_bytes_per_sec(MOST_RATE);
            /// Starts and ends as the program in the kernel, whose SYN has no option: the first
            /// packets leave at once and without a price, and each announces itself for the next
            /// round trip. The end of the data is not known.
            program: bool = false;
            /// The trick; none by default.
            cheat: FcpCheatConfig = FcpCheatConfig::default();
        }
    }
}

impl SenderConfig for FcpConfig {
    fn word(&self) -> &str {
        Self::TABLE.word
    }

    fn descriptor(&self) -> Descriptor {
        let FcpConfig { budget, wants, deadline, patience, .. } = *self;
        Descriptor {
            aim: Some(Aim::Proportional),
            spends: Some(Spending { budget, wants, deadline, patience }),
            cheats: self.cheat.trick.map(|_| self.cheat.from),
            program: true,
            ..Descriptor::needing(Content::Price)
        }
    }

    /// It announces its first packets whatever there is to send, knows no price before they are
    /// acknowledged, and no end of its data.
    fn program(&self, given: &dyn Fn(&str) -> bool) -> Result<Option<Arc<dyn SenderConfig>>, Misfit> {
        let defaults = FcpConfig::default();
        let others = [
            ("initial_packets", self.initial_packets != defaults.initial_packets),
            ("initial_always", given("initial_always") && !self.initial_always),
            ("short", given("short") && self.short != Bytes(0)),
            ("max_pause", self.max_pause != defaults.max_pause),
            ("max_preload", self.max_preload != defaults.max_preload),
            ("deadline", self.deadline != defaults.deadline),
            ("patience", self.patience != defaults.patience),
            ("cheat", self.cheat.trick.is_some()),
        ];
        not_in_program(&others)?;
        Ok(Some(Arc::new(FcpConfig { initial_always: true, program: true, ..*self })))
    }

    fn check(&self, of: &Sending<'_>) -> Result<(), Misfit> {
        let misfit = |field, message: &str, label, help| {
            Err(Misfit { field, message: message.to_owned(), label, help })
        };
        if self.deadline.is_some() && !matches!(of.pricing, Pricing::Deadline { .. }) {
            let message = "`deadline` needs a class with the pricing `deadline`";
            let help = "give the flow a `class`, and that `pricing = \"deadline\"`";
            return misfit("deadline", message, "here", help);
        }
        if self.patience.is_some() && !matches!(of.pricing, Pricing::Priority { .. }) {
            let message = "`choose` needs a class with the pricing `priority`";
            let help = "give the flow a `class`, and that `pricing = \"priority\"`";
            return misfit("patience", message, "no such class", help);
        }
        self.cheat.check()
    }

    fn announces(&self, unsent: u64, segment: u32) -> f64 {
        let segment = f64::from(segment);
        let packets = at_most(self.initial_packets, self.deadline.map_or(f64::INFINITY, |_| ASKING));
        // A long flow gains little from more than four, which a short path would lose.
        let most = match unsent {
            _ if self.initial_always => f64::INFINITY,
            ..=SHORTER => unsent as f64,
            _ => LONG_FIRST * segment,
        };
        at_most(packets * segment, most)
    }

    fn make(&self, of: &Sending<'_>) -> AnySender {
        let law = FcpConfig { line_rate: of.line_rate, ..*self }.build();
        match self.cheat.trick {
            Some(_) => AnySender::custom(FcpCheat::new(law, self.cheat)),
            None => law.into(),
        }
    }
}

/// Packets per round trip that a flow with a deadline announces before it requests its rate. Its
/// first data packet makes that request, and room promised before would be refused to other flows.
const ASKING: f64 = 0.25;
/// The most bytes of a flow that is not long.
const SHORTER: u64 = 1_000_000;
/// Packets that the first packet of a long flow announces: the upper bound of RFC 3390.
const LONG_FIRST: f64 = 4.0;
/// The default of [`FcpConfig::max_pause`].
pub(crate) const LONGEST_PAUSE: Time = Time::from_millis(250);

impl FcpConfig {
    pub(in super::super) const ENTRY: Entry<dyn SenderConfig> = Entry {
        word: FcpConfig::TABLE.word,
        tables: &[FcpConfig::TABLE, FcpCheatConfig::TABLE],
        read: |tables| {
            let [law, cheat] = [FcpConfig::TABLE, FcpCheatConfig::TABLE].map(|one| tables.table(one.word));
            Arc::new(FcpConfig { cheat: FcpCheatConfig::read(cheat), ..FcpConfig::read(law) })
        },
    };
}
