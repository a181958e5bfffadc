//! Cross-traffic of constant rate: its departures and its packets.

use tollway_law::{Rate, Time};

use crate::Flags;

/// Flags of a cross-traffic packet, which has no answer; no machine sets this combination.
pub const PLAIN: Flags = Flags(Flags::SYN.0 | Flags::RST.0 | Flags::FIN.0);

/// Packets at a constant rate, always or in on-periods.
#[derive(Clone, Copy, Debug)]
pub struct Cbr {
    rate: Rate,
    size: u16,
    start: Time,
    stop: Time,
    on_off: Option<(Time, Time)>,
    /// Packets sent in the present on-period (or since the start), which begins at `period`.
    in_period: u64,
    period: Time,
}

impl Cbr {
    /// Packets of `size` bytes at `rate` from `start` until before `stop`; sending for the first
    /// span of `on_off`, silent for the second, and so on.
    pub fn new(rate: Rate, size: u16, start: Time, stop: Time, on_off: Option<(Time, Time)>) -> Cbr {
        Cbr { rate, size, start, stop, on_off, in_period: 0, period: start }
    }

    /// Departure of the first packet; [`Time::NEVER`] if there is none.
    pub fn first(&self) -> Time {
        if self.start < self.stop { self.start } else { Time::NEVER }
    }

    /// Packets that leave from `from` until before `until`, to within one.
    pub fn packets_in(&self, from: Time, until: Time) -> u64 {
        self.packets_before(until).saturating_sub(self.packets_before(from))
    }

    /// Packets that leave before `at`, to within one.
    fn packets_before(&self, at: Time) -> u64 {
        let elapsed = at.min(self.stop).saturating_sub(self.start).0;
        let interval = self.rate.time_for(u64::from(self.size)).0.max(1);
        let Some((on, off)) = self.on_off else { return elapsed.div_ceil(interval) };
        let each = on.0.div_ceil(interval).max(1);
        let turn = on.saturating_add(off).0.max(1);
        let period = turn.saturating_mul((each * interval).div_ceil(turn));
        let last = (elapsed % period).div_ceil(interval).min(each);
        elapsed / period * each + last
    }

    /// Advances by one packet, and returns the departure of the next. Counted from the period's
    /// start, so that rounding errors do not add up.
    pub fn advance(&mut self) -> Time {
        self.in_period += 1;
        let since = self.rate.time_for(self.in_period * u64::from(self.size));
        let mut at = self.period.saturating_add(since);
        if let Some((on, off)) = self.on_off
            && since >= on
        {
            // A packet that takes longer than a turn takes the next ones, too: one in each would be
            // more than the rate.
            let turn = on.saturating_add(off);
            let turns = since.0.div_ceil(turn.0.max(1));
            self.period = self.period.saturating_add(Time(turn.0.saturating_mul(turns)));
            self.in_period = 0;
            at = self.period;
        }
        if at < self.stop { at } else { Time::NEVER }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_a_span_are_counted_as_they_leave() {
        let ms = Time::from_millis;
        for on_off in [None, Some((ms(3), ms(5))), Some((Time(2_500_000), ms(1))), Some((Time(1), Time(2)))] {
            let mut cbr = Cbr::new(Rate::from_mbps(8.0), 1000, ms(10), ms(400), on_off);
            let counted = |from, until| cbr.packets_in(ms(from), ms(until));
            let counts = [(0, 10), (0, 13), (10, 400), (100, 200), (300, 900)]
                .map(|(from, until)| (from, until, counted(from, until)));
            let left: Vec<Time> = std::iter::successors(Some(cbr.first()), |_| Some(cbr.advance()))
                .take_while(|at| *at < Time::NEVER)
                .collect();
            for (from, until, count) in counts {
                let expected = left.iter().filter(|at| (ms(from)..ms(until)).contains(*at)).count();
                assert!(
                    count.abs_diff(expected as u64) <= 1,
                    "{on_off:?} {from} {until}: {count}, not {expected}"
                );
            }
        }
    }

    #[test]
    fn packets_leave_in_turns_and_before_the_end() {
        // A millisecond a packet, on for three of them, silent for five.
        let ms = Time::from_millis;
        let mut cbr = Cbr::new(Rate::from_mbps(8.0), 1000, ms(10), ms(20), Some((ms(3), ms(5))));
        let left: Vec<Time> =
            std::iter::successors(Some(cbr.first()), |_| Some(cbr.advance())).take(6).collect();
        assert_eq!(left, [ms(10), ms(11), ms(12), ms(18), ms(19), Time::NEVER]);
        assert_eq!(Cbr::new(Rate::from_mbps(8.0), 1000, ms(10), ms(10), None).first(), Time::NEVER);
        // Turns much shorter than a packet: no more than the rate all the same.
        let mut cbr = Cbr::new(Rate::from_mbps(8.0), 1000, ms(0), ms(9), Some((Time(1), Time(2))));
        assert_eq!([cbr.advance(), cbr.advance()], [Time(1_000_002), Time(2_000_004)]);
    }
}
