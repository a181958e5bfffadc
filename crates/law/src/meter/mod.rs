//! Meters: checks on untrusted senders at the point where their packets enter the network.
//!
//! XCP trusts its senders. A sender that ignores negative feedback keeps its window. One that
//! overstates the time between its packets gets more than its share (the XCP study, § "Security
//! considerations"; draft-falk-xcp-spec-03 § 7). A [`FlowMeter`] at the entry of a flow sees its
//! data and its acknowledgements, and measures without trust in the sender:
//!
//! - **the round trip**, from a data packet to the return of its timestamp;
//! - **the allotment**, the flow's initial window plus all feedback returned so far;
//! - **the use of the allotment**, in packets and bytes per round trip.
//!
//! Each statement and action of a sender is checked separately ([`Offence`]). Evidence against a
//! flow is counted in round trips, with allowance for a window sent at once, for estimates that
//! lag, and for lost acknowledgements. The aim: an honest sender that is limited, delayed, lossy or
//! cut off for a while is never accused, and a cheating one is within about ten round trips.
//!
//! An accused flow is **held**: its tolls are rewritten with the measured values, and packets above
//! its allotment are dropped. Neither harms a flow that then behaves, so a hold never ends.
//!
//! No allocation; a packet costs a few operations.

mod budget;
mod probes;
#[cfg(test)]
mod tests;

use crate::{Budget, Time, Toll};
pub use budget::{BalanceMeter, BudgetAccusation, BudgetMeter};
use probes::{Answer, Probes};

/// The tolerances of a meter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeterConfig {
    /// Relative tolerance between stated and measured values. Default 0.2.
    pub tolerance: f64,
    /// Excess round trips that may add up before an accusation; one round trip counts for at most
    /// 0.6. Default 2.
    pub burst: f64,
    /// Time for which a round trip outside the measured range must be stated without a break, in
    /// round trips. Default 4.
    pub patience: f64,
    /// True to hold accused flows, false to report them only. Default true.
    pub enforce: bool,
}

impl Default for MeterConfig {
    fn default() -> MeterConfig {
        MeterConfig { tolerance: 0.2, burst: 2.0, patience: 4.0, enforce: true }
    }
}

/// The offence that a flow or host is accused of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Offence {
    /// The flow sends more packets per round trip than its stated window.
    WindowUnderstated,
    /// The flow states a longer round trip than the measured one.
    RttOverstated,
    /// The flow states a shorter round trip than the measured one.
    RttUnderstated,
    /// The flow sends more than all its feedback allows: it ignores negative feedback.
    Overdrawn,
    /// The host spends more than its budget.
    Overspent,
    /// The host announces spending that does not follow.
    Overpromised,
    /// The host takes back spending and continues to spend it.
    TakenBack,
    /// The flow states a payment below the price of its path.
    Underpaid,
}

impl Offence {
    /// Its word in results: `window-understated`.
    pub const fn name(self) -> &'static str {
        match self {
            Offence::WindowUnderstated => "window-understated",
            Offence::RttOverstated => "rtt-overstated",
            Offence::RttUnderstated => "rtt-understated",
            Offence::Overdrawn => "overdrawn",
            Offence::Overspent => "overspent",
            Offence::Overpromised => "overpromised",
            Offence::TakenBack => "taken-back",
            Offence::Underpaid => "underpaid",
        }
    }
}

/// The duty of a meter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Duty {
    /// Windows and round trips of XCP's senders: one [`FlowMeter`] per flow.
    Windows,
    /// Spending and announcements of a host with this budget: one [`BudgetMeter`] for all traffic
    /// that enters there.
    Budget(Budget),
    /// Payments of FCP's flows where they leave the network: one [`BalanceMeter`] per flow.
    Balance,
}

/// An offence, the time it was found, and the evidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Accusation {
    /// Time of the accusation.
    pub at: Time,
    /// The offence.
    pub offence: Offence,
    /// The stated or allotted value: a window in packets, or a round trip in s.
    pub stated: f64,
    /// The measured value: packets per round trip, or a round trip in s.
    pub measured: f64,
}

/// A data packet as the meter sees it.
#[derive(Clone, Copy, Debug)]
pub struct DataPacket {
    /// Bytes on the wire.
    pub size: u32,
    /// Its sequence number in the flow (serial arithmetic).
    pub seq: u32,
    /// Its timestamp, which acknowledgements return; any clock.
    pub stamp: u32,
    /// The latest time its sender can have sent it, without a queue before the meter.
    pub sent: Time,
    /// Upper bound on its queueing time before the meter: the time for which the wire has been busy
    /// without a break.
    pub waited: Time,
}

/// An acknowledgement on its way back to the sender.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    /// The returned timestamp.
    pub stamp: Option<u32>,
    /// The returned feedback, bytes/s.
    pub echo: Option<f32>,
}

/// A meter's decision on a data packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// The packet passes unchanged.
    Untouched,
    /// The packet passes with a corrected toll.
    Rewritten,
    /// The packet exceeds its flow's allotment and is dropped.
    Dropped,
}

/// A meter for one flow.
#[derive(Clone, Debug)]
pub struct FlowMeter {
    config: MeterConfig,
    probes: Probes,
    /// The least and the greatest recent round trip, and the mean, s; 0 before the first sample.
    ///
    /// The extremes return to newer samples at half the pace of a sender's smoothed estimate, so
    /// that an honest estimate lies between them.
    least: f64,
    longest: f64,
    mean: f64,
    /// The last stated round trip, s.
    stated: f64,
    /// The allotment, packets per round trip.
    window: f64,
    opening: Opening,
    /// The part of an initial window that was not sent before the first answer: after a request, say.
    unopened: f64,
    /// A full packet of the flow, bytes: the feedback that one packet of window is worth.
    segment: f64,
    /// The highest sequence number seen.
    highest: Option<u32>,
    /// Round trips claimed, and allotments used, in excess of the round trips elapsed: sums over
    /// rounds.
    claimed: f64,
    used: f64,
    /// For a held flow: the allotment spent ahead of the time elapsed, in round trips.
    spent: f64,
    settled: Time,
    doubt: Option<Doubt>,
    round: Round,
    accusation: Option<Accusation>,
    dropped: u64,
}

/// The state of the initial window: data before the first answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opening {
    /// No data yet.
    Closed,
    /// Open since the packet with this timestamp.
    Since(u32),
    /// Data were acknowledged.
    Over,
}

/// The traffic of one round trip.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    begins: Time,
    ends: Time,
    packets: f64,
    last_packets: f64,
    /// Round trips claimed: Σ 1/window over its packets, by the stated window.
    claimed: f64,
    /// The same by the allotment, the largest of this round and the previous one, since the sender
    /// reacts to feedback later than it passes here.
    used: f64,
    peak: f64,
    last_peak: f64,
}

/// A stated round trip outside the measured range.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    offence: Offence,
    since: Time,
    /// Acknowledgements since then, from which its sender should have corrected it.
    answers: u32,
}

impl FlowMeter {
    /// A meter for a new flow whose full packets have `segment` bytes on the wire, as it announced.
    pub fn new(config: MeterConfig, segment: u32) -> FlowMeter {
        FlowMeter {
            config,
            probes: Probes::default(),
            least: 0.0,
            longest: 0.0,
            mean: 0.0,
            stated: 0.0,
            window: 0.0,
            opening: Opening::Closed,
            unopened: INITIAL_WINDOW_MOST,
            segment: f64::from(segment.max(1)),
            highest: None,
            claimed: 0.0,
            used: 0.0,
            spent: 0.0,
            settled: Time::ZERO,
            doubt: None,
            round: Round::default(),
            accusation: None,
            dropped: 0,
        }
    }

    /// The first offence found, if any.
    pub fn accusation(&self) -> Option<Accusation> {
        self.accusation
    }

    /// The allotment, packets per round trip.
    pub fn allotment(&self) -> f64 {
        self.window
    }

    /// The mean round trip measured, s; 0 before the first sample.
    pub fn rtt(&self) -> f64 {
        self.mean
    }

    /// Packets dropped since the flow was held.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Handles a packet without data whose round trip its sender measures: a SYN.
    pub fn on_opening(&mut self, data: &DataPacket) {
        self.probes.offer(data, 0.0);
    }

    /// Handles a data packet, with its toll if links read one. The toll of a held flow is
    /// corrected.
    pub fn on_data(&mut self, now: Time, data: &DataPacket, toll: Option<&mut Toll>) -> Passage {
        // A packet counts as one, whatever its size: so do senders count. What is larger than
        // announced counts for more.
        let packets = (f64::from(data.size) / self.segment).max(1.0);
        if self.opening != Opening::Over {
            self.window = (self.window + packets).min(INITIAL_WINDOW_MOST);
            self.unopened = INITIAL_WINDOW_MOST - self.window;
            if self.opening == Opening::Closed {
                self.opening = Opening::Since(data.stamp);
            }
        }
        self.probes.offer(data, self.round.packets.max(self.round.last_packets));
        if self.mean == 0.0 {
            // There is no measure yet to hold anything against.
            return Passage::Untouched;
        }
        if now >= self.round.ends {
            self.end_round(now);
        }
        if self.accusation.is_some() && self.config.enforce {
            return self.hold(now, packets, toll);
        }
        self.round.packets += packets;
        self.round.used += packets / (self.round.peak.max(self.round.last_peak) + DOUBT_PACKETS);
        let fresh = self.highest.is_none_or(|highest| (data.seq.wrapping_sub(highest) as i32) > 0);
        if fresh {
            self.highest = Some(data.seq);
        }
        if let Some(toll) = toll {
            self.check_words(now, toll, fresh);
        }
        Passage::Untouched
    }

    /// Handles a data packet of a held flow.
    fn hold(&mut self, now: Time, packets: f64, toll: Option<&mut Toll>) -> Passage {
        let gone = now.saturating_sub(self.settled).as_secs_f64() / self.mean;
        self.settled = now;
        let cost = packets / (self.window + 1.0);
        let spent = (self.spent - gone).max(0.0);
        // A burst of a window, as every window-clocked sender makes it.
        if spent + cost > 1.0 {
            self.spent = spent;
            self.dropped += 1;
            return Passage::Dropped;
        }
        self.spent = spent + cost;
        self.round.packets += packets;
        toll.map_or(Passage::Untouched, |toll| self.rewrite(toll))
    }

    /// Handles an acknowledgement on its way to the sender.
    pub fn on_ack(&mut self, now: Time, ack: &Ack) {
        match ack.stamp.and_then(|stamp| self.probes.answer(now, stamp)) {
            Some(Answer::Probe { rtt, waited }) => {
                self.sample(now, rtt, waited);
                if let Some(doubt) = &mut self.doubt {
                    doubt.answers += 1;
                }
            }
            Some(Answer::Between { least, most }) if self.mean > 0.0 => {
                self.longest = self.longest.max(least.as_secs_f64());
                self.least = self.least.min(most.as_secs_f64());
            }
            Some(Answer::Between { .. }) | None => {}
        }
        if let (Opening::Since(first), Some(stamp)) = (self.opening, ack.stamp)
            && stamp.wrapping_sub(first) as i32 >= 0
        {
            self.opening = Opening::Over;
        }
        let Some(echo) = ack.echo.filter(|echo| echo.is_finite()) else { return };
        // As the sender reckons: with the round trip that it states, unless that is out of the
        // question.
        let rtt = if self.accusation.is_some() {
            self.mean
        } else {
            self.stated.clamp(self.least * UNDER, self.longest * OVER)
        };
        self.window = (self.window + f64::from(echo) * rtt / self.segment).clamp(1.0, WINDOW_MOST);
        self.round.peak = self.round.peak.max(self.window);
    }

    /// Records a measured round trip, to which the sender may add up to `waited`.
    fn sample(&mut self, now: Time, rtt: Time, waited: Time) {
        let least = rtt.as_secs_f64();
        let longest = least + waited.as_secs_f64();
        if self.mean == 0.0 {
            (self.least, self.longest, self.mean) = (least, longest, longest);
            self.round =
                Round { begins: now, ends: now + Time::from_secs_f64(self.mean), ..Round::default() };
            self.round.peak = self.window;
            return;
        }
        self.least = least.min(self.least + (least - self.least) * EXTREMES_GAIN);
        self.longest = longest.max(self.longest + (longest - self.longest) * EXTREMES_GAIN);
        self.mean += (longest - self.mean) * MEAN_GAIN;
    }

    /// Ends a round: sums up its claims and use, and moves the allotment towards its use.
    fn end_round(&mut self, now: Time) {
        let Round { begins, packets, last_packets, claimed, used, peak, .. } = self.round;
        if self.accusation.is_none() {
            // In doubt for the flow: by the shortest round trip, and a tolerance more. And no
            // single round proves anything: after a timeout an honest sender states a window of
            // one, and for a round trip or two sends what duplicates and late answers release;
            // feedback that passed here may not have reached it. A cheat goes on.
            let gone = now.saturating_sub(begins).as_secs_f64() / self.least * (1.0 + self.config.tolerance);
            self.claimed = (self.claimed + (claimed - gone).min(ROUND_MOST)).max(0.0);
            self.used = (self.used + (used - gone).min(ROUND_MOST)).max(0.0);
            if self.claimed > self.config.burst {
                self.accuse(now, Offence::WindowUnderstated, packets / claimed, packets);
            } else if self.used > self.config.burst {
                self.accuse(now, Offence::Overdrawn, self.window, packets);
            }
            let short = (packets - self.window).max(0.0);
            let opened = short.min(self.unopened);
            self.unopened -= opened;
            // Feedback lost between the meter and the sender must not add up for ever.
            self.window += opened + (short - opened).min(self.window * FORGIVEN);
        } else {
            // A sender that leaves its allotment unused keeps half of the rest (draft § 4.1.3.1).
            let unused = (self.window - packets.max(last_packets)).max(0.0);
            self.window = (self.window - unused / 2.0).max(1.0);
        }
        self.round = Round {
            begins: now,
            ends: now.saturating_add(Time::from_secs_f64(self.mean)),
            last_packets: packets,
            peak: self.window,
            last_peak: peak,
            ..Round::default()
        };
    }

    /// Checks the statements of a packet.
    fn check_words(&mut self, now: Time, toll: &Toll, fresh: bool) {
        let (rtt, spacing) = (f64::from(toll.rtt), f64::from(toll.offer));
        if !(rtt > 0.0 && rtt.is_finite() && spacing >= 0.0 && spacing.is_finite()) {
            return;
        }
        self.stated = rtt;
        // A packet stands for 1/window of a round trip, whatever the sender takes a round trip for.
        // Retransmissions don't: after a timeout they leave as fast as acknowledgements come,
        // whatever the window is.
        if fresh {
            self.round.claimed += 1.0 / (rtt / spacing + 1.0);
        }
        let allowed = 1.0 + self.config.tolerance;
        let (offence, measured) = if rtt > self.longest * allowed + RESOLUTION {
            (Offence::RttOverstated, self.longest)
        } else if rtt < self.least / allowed - RESOLUTION {
            (Offence::RttUnderstated, self.least)
        } else {
            self.doubt = None;
            return;
        };
        match self.doubt {
            Some(doubt) if doubt.offence == offence => {
                let patience = Time::from_secs_f64(self.config.patience * self.longest);
                if doubt.answers >= ANSWERS && now.saturating_sub(doubt.since) > patience {
                    self.accuse(now, offence, rtt, measured);
                }
            }
            _ => self.doubt = Some(Doubt { offence, since: now, answers: 0 }),
        }
    }

    #[cold]
    fn accuse(&mut self, at: Time, offence: Offence, stated: f64, measured: f64) {
        if self.accusation.is_none() {
            self.accusation = Some(Accusation { at, offence, stated, measured });
        }
    }

    /// Corrects the sender's statements: the round trip, and the packet spacing that uses the
    /// allotment.
    fn rewrite(&self, toll: &mut Toll) -> Passage {
        if toll.rtt == 0.0 {
            return Passage::Untouched;
        }
        toll.rtt = self.mean as f32;
        toll.offer = (self.mean / self.window.max(1.0)) as f32;
        Passage::Rewritten
    }
}

/// The largest initial window, packets (RFC 6928).
const INITIAL_WINDOW_MOST: f64 = 10.0;
/// Packets that a sender may occasionally send beyond its window: two by limited transmit (RFC
/// 3042), one by rounding.
const DOUBT_PACKETS: f64 = 3.0;
/// Upper bound on the excess that one round can add.
const ROUND_MOST: f64 = 0.6;
/// Acknowledgements after which a wrong round trip is the sender's fault: one or two may be lost on
/// their way.
const ANSWERS: u32 = 4;
/// Gain with which extremes of the round trip return to newer samples: half a sender's 1/8 (RFC
/// 6298).
const EXTREMES_GAIN: f64 = 1.0 / 16.0;
const MEAN_GAIN: f64 = 1.0 / 8.0;
/// Excess use per round trip that is forgiven, as a fraction of the allotment.
const FORGIVEN: f64 = 0.01;
/// Lower bound on a stated round trip, relative to the measured ones, when feedback is converted to
/// window.
const UNDER: f64 = 0.8;
const OVER: f64 = 1.25;
/// Rounding error of headers that count milliseconds, s.
const RESOLUTION: f64 = 1e-3;
/// A window beyond any network, packets.
const WINDOW_MOST: f64 = 1e12;
