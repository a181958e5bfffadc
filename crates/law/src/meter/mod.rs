//! Meters: what a network can check of senders that it does not trust, where their packets enter.
//!
//! XCP believes its senders. One that takes back nothing keeps what it has; one that says its
//! packets are further apart than they are gets more than its share (the XCP study, § "Security
//! considerations"; draft-falk-xcp-spec-03 § 7). A [`FlowMeter`] stands where a flow enters, sees
//! its data go in and its acknowledgements come out, and needs nobody's word for these:
//!
//! - **the round trip**, from a data packet's passing to the return of its timestamp;
//! - **the allotment**, the window that all feedback returned so far makes of the window that the
//!   flow began with;
//! - **what is used of it**, packets and bytes a round trip.
//!
//! With these it checks what a sender says and does, each thing for itself ([`Offence`]). What it
//! holds against a flow it counts in round trips, with room for a window sent at once, for
//! estimates that lag, for lost acknowledgements: an honest sender that is limited, delayed, lossy
//! or cut off for a while is not to be accused, a liar is within some ten round trips. A flow once
//! accused is **held**: its tolls are rewritten with what was measured, and what exceeds its
//! allotment is dropped. Neither costs an honest flow anything, so that there is no parole.
//!
//! Nothing is allocated; a packet costs a few operations.

mod budget;
mod probes;
#[cfg(test)]
mod tests;

use crate::{Budget, Time, Toll};
pub use budget::{BalanceMeter, BudgetAccusation, BudgetMeter};
use probes::{Answer, Probes};

/// How a meter judges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeterConfig {
    /// How far what is said may be from what is measured, as a part of it. Default 0.2.
    pub tolerance: f64,
    /// How many round trips too many may add up before a flow is accused; no round trip counts for
    /// more than 0.6. Default 2.
    pub burst: f64,
    /// How long a round trip outside what was measured must be stated without a break, round trips.
    /// Default 4.
    pub patience: f64,
    /// Whether accused flows are held, or only reported. Default: they are held.
    pub enforce: bool,
}

impl Default for MeterConfig {
    fn default() -> MeterConfig {
        MeterConfig { tolerance: 0.2, burst: 2.0, patience: 4.0, enforce: true }
    }
}

/// What a flow is accused of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Offence {
    /// It sends more packets a round trip than the window that it states.
    WindowUnderstated,
    /// It states a longer round trip than it has.
    RttOverstated,
    /// It states a shorter one.
    RttUnderstated,
    /// It sends more than all its feedback allows: it does not take back what it is told to.
    Overdrawn,
    /// A host spends more than its budget.
    Overspent,
    /// It announces what it does not spend.
    Overpromised,
    /// It takes back what it goes on spending.
    TakenBack,
    /// A flow states that it pays less than it is asked.
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

/// What a meter looks after.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Duty {
    /// What XCP's senders say and do: a [`FlowMeter`] each.
    Windows,
    /// What a host spends and announces, that may spend so much: a [`BudgetMeter`] for all that
    /// enters there.
    Budget(Budget),
    /// What FCP's flows pay, where they leave the network: a [`BalanceMeter`] each.
    Balance,
}

/// An offence, when it was found, and on what evidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Accusation {
    /// When.
    pub at: Time,
    /// What.
    pub offence: Offence,
    /// What was stated or allotted: a window in packets, or a round trip in s.
    pub stated: f64,
    /// What was measured: packets in a round trip, or its length in s.
    pub measured: f64,
}

/// A data packet as the meter sees it.
#[derive(Clone, Copy, Debug)]
pub struct Data {
    /// Bytes on the wire.
    pub size: u32,
    /// Its number among the flow's (serial arithmetic).
    pub seq: u32,
    /// Its timestamp, which comes back; any clock.
    pub stamp: u32,
    /// The latest that its sender can have sent it, were there no queue before the meter.
    pub sent: Time,
    /// How long it can have queued before the meter at most: as long as the wire has been busy
    /// without a break.
    pub waited: Time,
}

/// An acknowledgement on its way back to the sender.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    /// The timestamp that it returns.
    pub stamp: Option<u32>,
    /// The feedback that it returns, bytes/s.
    pub echo: Option<f32>,
}

/// What becomes of a data packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// It passes as it is.
    Untouched,
    /// It passes with a toll that was put right.
    Rewritten,
    /// It is over its flow's allotment, and dropped.
    Dropped,
}

/// What a meter knows about one flow.
#[derive(Clone, Debug)]
pub struct FlowMeter {
    config: MeterConfig,
    probes: Probes,
    /// The least and the longest round trip of late, and their mean, s; 0 until there is a sample.
    /// Extremes go back to newer samples at half the pace of a sender's smoothed estimate, so that
    /// an honest one lies between them.
    least: f64,
    longest: f64,
    mean: f64,
    /// The round trip last stated, s.
    stated: f64,
    /// The allotment: packets a round trip.
    window: f64,
    opening: Opening,
    /// A full packet of the flow, bytes: what a packet of window is worth in feedback.
    segment: f64,
    /// The largest number that passed.
    highest: Option<u32>,
    /// Round trips claimed, and allotments used, beyond the round trips that went by: sums over
    /// rounds.
    claimed: f64,
    used: f64,
    /// Of a flow that is held: what it has spent of its allotment beyond the time gone by until
    /// then, round trips.
    spent: f64,
    settled: Time,
    doubt: Option<Doubt>,
    round: Round,
    accusation: Option<Accusation>,
    dropped: u64,
}

/// What passes before the first answer is the initial window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opening {
    /// No data yet.
    Closed,
    /// Since the packet with this timestamp.
    Since(u32),
    /// Data were answered.
    Over,
}

/// What passed in a round trip.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    begins: Time,
    ends: Time,
    packets: f64,
    last_packets: f64,
    /// Round trips claimed: Σ 1/window over its packets, as they state it.
    claimed: f64,
    /// The same by the allotment: by the largest in this round and the one before, since feedback
    /// that passes here is heard and answered later.
    used: f64,
    peak: f64,
    last_peak: f64,
}

/// A round trip that can't be right.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    offence: Offence,
    since: Time,
    /// Answers seen since, which its sender should have learnt from.
    answers: u32,
}

impl FlowMeter {
    /// A meter for a flow that begins, whose full packets have `segment` bytes on the wire, as it
    /// announced.
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

    /// What the flow is accused of, if it is: the first offence found.
    pub fn accusation(&self) -> Option<Accusation> {
        self.accusation
    }

    /// The allotment, packets a round trip.
    pub fn allotment(&self) -> f64 {
        self.window
    }

    /// The mean round trip measured, s; 0 before the first sample.
    pub fn rtt(&self) -> f64 {
        self.mean
    }

    /// Packets dropped since the flow is held.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// A packet passes that carries no data but whose round trip its sender measures: a SYN.
    pub fn on_opening(&mut self, data: &Data) {
        self.probes.offer(data, 0.0);
    }

    /// A data packet passes, with its toll if it has one for links to read; of a flow that is held
    /// the toll is put right.
    pub fn on_data(&mut self, now: Time, data: &Data, toll: Option<&mut Toll>) -> Passage {
        // A packet counts as one, whatever its size: so do senders count. What is larger than
        // announced counts for more.
        let packets = (f64::from(data.size) / self.segment).max(1.0);
        if self.opening != Opening::Over {
            self.window = (self.window + packets).min(INITIAL_WINDOW_MOST);
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

    /// A data packet of a flow that is held.
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

    /// An acknowledgement goes back to the sender.
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

    /// A round trip of `rtt` was measured, which may be longer by `waited` at its sender.
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

    /// Once a round trip: sums up what was claimed and used in it, and lets the allotment follow
    /// what is used of it.
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
            // Feedback lost between the meter and the sender must not add up for ever.
            let short = (packets - self.window).max(0.0);
            self.window += short.min(self.window * FORGIVEN);
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

    /// Checks what a packet states.
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

    /// Puts right what the sender states: the round trip, and the spacing of packets that use the
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

/// More than this no sender begins with, packets (RFC 6928).
const INITIAL_WINDOW_MOST: f64 = 10.0;
/// What a sender may send beyond its window now and then, packets: limited transmit (RFC 3042) has
/// two, rounding one.
const DOUBT_PACKETS: f64 = 3.0;
/// What one round can add to the round trips claimed too much.
const ROUND_MOST: f64 = 0.6;
/// So many answers a sender must have had before a wrong round trip is its own fault: one or two
/// may be lost on their way.
const ANSWERS: u32 = 4;
/// Pace at which extremes of the round trip go back to newer samples: half a sender's (RFC 6298 has
/// 1/8).
const EXTREMES_GAIN: f64 = 1.0 / 16.0;
const MEAN_GAIN: f64 = 1.0 / 8.0;
/// Part of the allotment that an unaccused flow may use more of in each round trip without being
/// told.
const FORGIVEN: f64 = 0.01;
/// What a stated round trip counts for at most against the measured ones when feedback becomes
/// window.
const UNDER: f64 = 0.8;
const OVER: f64 = 1.25;
/// Headers that count milliseconds are off by one, s.
const RESOLUTION: f64 = 1e-3;
/// Beyond any network, packets.
const WINDOW_MOST: f64 = 1e12;
