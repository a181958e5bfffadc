//! Delays and losses of packets that have no answer, measured where they arrive.

use tollway_law::Time;

use crate::{Lateness, Stamp};

/// One-way delays of a source's packets, their jitter, and the lengths of losses.
///
/// The source numbers its packets from zero, and stamps them when they leave.
#[derive(Clone, Debug)]
pub struct OneWay {
    delays: Lateness,
    /// Delay of the latest arrival; `None` before the first.
    last: Option<Time>,
    /// 16 times the interarrival jitter, ns (RFC 3550, appendix A.8).
    jitter16: u64,
    /// Sum of these after each arrival, and their number.
    jitters: (u128, u64),
    late: u64,
    bound: Time,
    losses: Losses,
}

impl Default for OneWay {
    fn default() -> OneWay {
        OneWay {
            delays: Lateness::default(),
            last: None,
            jitter16: 0,
            jitters: (0, 0),
            late: 0,
            bound: Time::NEVER,
            losses: Losses::default(),
        }
    }
}

impl OneWay {
    /// Sets the delay beyond which a packet counts as late.
    pub fn set_bound(&mut self, bound: Time) {
        self.bound = bound;
    }

    /// Counts the arrival of packet `number`, which left at `sent`.
    pub fn arrive(&mut self, now: Time, sent: Stamp, number: u32) {
        let delay = sent.waited(now);
        self.delays.note(delay, 1);
        self.late += u64::from(delay > self.bound);
        if let Some(last) = self.last.replace(delay) {
            let settled = (self.jitter16 + 8) >> 4;
            self.jitter16 = self.jitter16 + delay.0.abs_diff(last.0) - settled;
            self.jitters = (self.jitters.0 + u128::from(self.jitter16), self.jitters.1 + 1);
        }
        self.losses.arrive(number);
    }

    /// Forgets all packets that have arrived so far.
    pub fn restart(&mut self) {
        let losses = Losses { next: self.losses.next, ..Losses::default() };
        let OneWay { last, jitter16, bound, .. } = *self;
        *self = OneWay { last, jitter16, bound, losses, ..OneWay::default() };
    }

    /// Delays from the source to the sink.
    pub fn delays(&self) -> &Lateness {
        &self.delays
    }

    /// Mean of the interarrival jitter; `None` before the second arrival.
    pub fn jitter(&self) -> Option<Time> {
        let (sum, count) = self.jitters;
        (count > 0).then(|| Time((sum / 16 / u128::from(count)) as u64))
    }

    /// Packets with a delay beyond the bound.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// The number of runs of successive lost packets, and the packets in the longest, of `lost`
    /// packets. Those that no gap shows were the last ones sent.
    pub fn loss_runs(&self, lost: u64) -> (u64, u64) {
        let mut losses = self.losses;
        // Packets after the last arrival are unknown here.
        (0..LATEST).for_each(|_| losses.advance());
        let unseen = lost.saturating_sub(losses.lost);
        (losses.runs + u64::from(unseen > 0), losses.longest.max(unseen))
    }
}

/// The runs of successive lost packets. A packet counts as lost if it has not arrived before
/// [`LATEST`] later ones.
#[derive(Clone, Copy, Debug)]
struct Losses {
    /// The number after the greatest that has arrived.
    next: u32,
    /// Bit `i` is set if packet `next` − 1 − `i` has arrived.
    latest: u64,
    /// Length of the present run.
    run: u64,
    runs: u64,
    longest: u64,
    lost: u64,
}

impl Default for Losses {
    fn default() -> Losses {
        Losses { next: 0, latest: u64::MAX, run: 0, runs: 0, longest: 0, lost: 0 }
    }
}

impl Losses {
    fn arrive(&mut self, number: u32) {
        let ahead = number.wrapping_sub(self.next);
        if ahead >= 1 << 31 {
            let back = ahead.wrapping_neg() - 1;
            self.latest |= 1u64.checked_shl(back).unwrap_or(0);
            return;
        }
        (0..=ahead).for_each(|_| {
            self.advance();
            self.latest &= !1;
        });
        self.latest |= 1;
        self.next = number.wrapping_add(1);
    }

    /// Settles the oldest packet, and makes room for one that counts as arrived.
    fn advance(&mut self) {
        let arrived = self.latest >> (LATEST - 1) == 1;
        self.latest = self.latest << 1 | 1;
        if arrived {
            self.run = 0;
            return;
        }
        self.runs += u64::from(self.run == 0);
        self.run += 1;
        self.lost += 1;
        self.longest = self.longest.max(self.run);
    }
}

/// Packets by which one may be overtaken without counting as lost.
const LATEST: u32 = u64::BITS;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_is_that_of_rfc_3550() {
        let mut one_way = OneWay::default();
        one_way.set_bound(Time::from_millis(25));
        let delays = [20, 30, 20, 20].map(Time::from_millis);
        for (delay, number) in delays.into_iter().zip(0u32..) {
            let sent = Time::from_millis(100 * u64::from(number));
            one_way.arrive(sent + delay, Stamp::at(sent), number);
        }
        // 10/16 = 0.625, then + (10 − 0.625)/16 = 1.2109, then less a sixteenth: 1.1353 ms.
        let jitter = one_way.jitter().unwrap().as_millis_f64();
        assert!((jitter - (0.625 + 1.2109 + 1.1353) / 3.0).abs() < 1e-3, "{jitter}");
        assert_eq!((one_way.late(), one_way.delays().count()), (1, 4));
        assert!((one_way.delays().mean().as_millis_f64() - 22.5).abs() < 1e-3);
    }

    #[test]
    fn losses_are_runs_and_overtaking_is_none() {
        let arrive = |numbers: &[u32]| {
            let mut one_way = OneWay::default();
            numbers.iter().for_each(|&n| one_way.arrive(Time::from_secs(1), Stamp(0), n));
            one_way
        };
        assert_eq!(arrive(&[0, 1, 2, 3]).loss_runs(0), (0, 0));
        assert_eq!(arrive(&[0, 3, 4, 6]).loss_runs(3), (2, 2));
        // The first two, and four at the end.
        assert_eq!(arrive(&[2, 3]).loss_runs(6), (2, 4));
        assert_eq!(arrive(&[]).loss_runs(5), (1, 5));
        let numbers: Vec<u32> = (0..500).filter(|n| !(100..=300).contains(n)).collect();
        assert_eq!(arrive(&numbers).loss_runs(201), (1, 201));
        // 5 arrives after 60 later ones.
        let overtaken: Vec<u32> = (0..5).chain(6..66).chain([5]).chain(66..200).collect();
        assert_eq!(arrive(&overtaken).loss_runs(0), (0, 0));
    }

    #[test]
    fn a_restart_forgets_what_has_arrived() {
        let mut one_way = OneWay::default();
        for n in [0, 5, 6] {
            one_way.arrive(Time::from_secs(1), Stamp(0), n);
        }
        one_way.restart();
        for n in [7, 9] {
            one_way.arrive(Time::from_secs(2), Stamp::at(Time::from_secs(1)), n);
        }
        assert_eq!((one_way.delays().count(), one_way.loss_runs(1)), (2, (1, 1)));
        assert_eq!(one_way.delays().max(), Time::from_secs(1));
    }
}
