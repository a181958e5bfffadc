//! An XCP router that measures its capacity, for links whose rate is not known in advance: a radio
//! link or a shared medium.
//!
//! Neither the draft nor the study defines the source of an XCP router's capacity. A router can
//! measure the rate of departures while other packets wait behind them. While nothing waits it only
//! sees the offered load.

use super::{AnyLink, Control, Deviation, LinkLaw, Passing, Verdict};
use crate::{Bytes, Rate, Time, Toll};

/// A law with control intervals ([`Xcp`](super::Xcp) in any arithmetic) whose capacity is set from
/// measurements just before each interval ends.
#[derive(Clone, Debug)]
pub struct Measured {
    law: AnyLink,
    meter: CapacityMeter,
    overhead: u64,
    /// The end of the control interval of the law and of the meter.
    ends: Time,
}

impl Measured {
    /// Starts `law` with the capacity `start`; `overhead` is the framing of each packet.
    pub(super) fn new(law: AnyLink, start: Rate, overhead: Bytes) -> Measured {
        let ends = law.control().map_or(Time::NEVER, |control| control.ends);
        Measured { law, meter: CapacityMeter::new(start), overhead: overhead.0, ends }
    }

    /// The law inside.
    pub fn law(&self) -> &AnyLink {
        &self.law
    }

    /// The last capacity set.
    pub fn capacity(&self) -> Rate {
        Rate::from_bytes_per_sec(self.meter.estimate as f64)
    }

    /// If the law's interval has ended by `now`: sets the capacity as of just before that end.
    #[inline]
    fn tell(&mut self, now: Time) {
        if now >= self.ends {
            self.tell_slowly();
        }
    }

    #[cold]
    fn tell_slowly(&mut self) {
        let Some(control) = self.law.control() else { return };
        self.meter.end_interval(self.ends, control.ends.saturating_sub(control.begins));
        self.law.set_capacity(Time(self.ends.0.saturating_sub(1)), self.capacity());
    }

    /// Follows the law after a packet at `now`, since its next interval may have begun.
    #[inline]
    fn follow(&mut self, now: Time) {
        if now >= self.ends {
            self.ends = self.law.control().map_or(Time::NEVER, |control| control.ends);
        }
    }
}

impl LinkLaw for Measured {
    fn on_arrival(&mut self, now: Time, packet: Passing, toll: &Toll) -> Verdict {
        self.tell(now);
        let verdict = self.law.on_arrival(now, packet, toll);
        self.follow(now);
        verdict
    }

    fn on_departure(&mut self, now: Time, packet: Passing, toll: &mut Toll) -> Verdict {
        self.tell(now);
        let bytes = u64::from(packet.size) + self.overhead;
        self.meter.depart(now, bytes, packet.backlog_packets > 1);
        let verdict = self.law.on_departure(now, packet, toll);
        self.follow(now);
        verdict
    }

    /// Restarts the measurement at `capacity`.
    fn set_capacity(&mut self, now: Time, capacity: Rate) {
        self.tell(now);
        self.meter = CapacityMeter { since: now, ..CapacityMeter::new(capacity) };
        self.law.set_capacity(now, capacity);
        self.follow(now);
    }

    fn control(&self) -> Option<Control> {
        self.law.control()
    }

    fn control_intervals(&self) -> u64 {
        self.law.control_intervals()
    }

    fn deviation(&self) -> Option<Deviation> {
        self.law.deviation()
    }
}

/// Capacity from departures: bytes that left while others waited behind them, over the time they
/// took.
///
/// - The time of a packet counts if another one waits when it goes to the transmitter. The next
///   departure is then the end of its transmission. Time without a departure counts too, so a
///   stopped link is noticed.
/// - At the end of an interval the sample is averaged in. Its weight is the time it covers against
///   a quarter of an interval: four fifths with a constant backlog, zero without any.
/// - Without a backlog, a capacity estimate that is used by half or more may be too small, and
///   nothing would show it. It rises by up to a quarter per interval, for the part of the interval
///   without backlog.
/// - The estimate never falls below a hundredth of its initial value.
///
/// All arithmetic is in integers: bytes, nanoseconds, bytes per second.
#[derive(Clone, Debug)]
struct CapacityMeter {
    estimate: u64,
    least: u64,
    /// Start of the present interval.
    since: Time,
    /// Bytes that left in this interval, those of them that count, and the nanoseconds they took.
    sent: u64,
    bytes: u64,
    nanos: u64,
    /// The packet in the transmitter, if others wait: the instant from which its time is not
    /// counted yet, and its bytes.
    under_way: Option<(Time, u64)>,
}

impl CapacityMeter {
    fn new(start: Rate) -> CapacityMeter {
        // A petabyte a second, as the routers' own bound.
        let estimate = (start.bytes_per_sec().min((1u64 << 50) as f64) as u64).max(1);
        let least = (estimate / 100).max(1);
        CapacityMeter { estimate, least, since: Time::ZERO, sent: 0, bytes: 0, nanos: 0, under_way: None }
    }

    #[inline]
    fn depart(&mut self, now: Time, bytes: u64, others_wait: bool) {
        if let Some((since, bytes)) = self.under_way.take() {
            self.bytes += bytes;
            self.nanos += now.saturating_sub(since).0;
        }
        self.sent += bytes;
        if others_wait {
            self.under_way = Some((now, bytes));
        }
    }

    /// Ends an interval of length `span` at `end`.
    fn end_interval(&mut self, end: Time, span: Time) {
        if let Some((since, _)) = &mut self.under_way {
            self.nanos += end.saturating_sub(*since).0;
            *since = end.max(*since);
        }
        let span = u128::from(span.0.max(1));
        let length = u128::from(end.saturating_sub(self.since).0.max(1));
        let (busy, second) = (u128::from(self.nanos), 1_000_000_000);
        let mut estimate = u128::from(self.estimate);
        let used = u128::from(self.sent) * second * 2 >= estimate * length;
        if busy > 0 {
            // Σ of weights · rates over Σ of weights, the sample's being `bytes · second / busy`.
            let memory = (span / 4).max(1);
            estimate = (estimate * memory + u128::from(self.bytes) * second) / (memory + busy);
        }
        if used {
            estimate += estimate * length.saturating_sub(busy).min(span) / (span * 4);
        }
        self.estimate = u64::try_from(estimate).unwrap_or(1 << 50).clamp(self.least, 1 << 50);
        self.since = end;
        (self.sent, self.bytes, self.nanos) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use crate::link::xcp::{CapacityFrom, XcpConfig};

    const PACKET: u64 = 1500;

    fn passing(backlog_packets: u32) -> Passing {
        Passing::of(Kind::Tolled, PACKET as u32, backlog_packets, u64::from(backlog_packets) * PACKET)
    }

    fn router(start: Rate) -> Measured {
        let config = XcpConfig { capacity: CapacityFrom::Measured, ..Default::default() };
        match config.build(start) {
            AnyLink::Measured(router) => *router,
            other => panic!("{other:?}"),
        }
    }

    /// A queue of `backlog` packets, one leaving every `gap`, for `span`: what is believed then.
    fn drain(router: &mut Measured, from: Time, span: Time, gap: Time, backlog: u32) -> f64 {
        let mut now = from;
        let mut toll = Toll { rtt: 0.05, offer: 0.005, ..Toll::default() };
        while now < from + span {
            router.on_arrival(now, passing(backlog.saturating_sub(1)), &toll);
            router.on_departure(now, passing(backlog), &mut toll);
            now += gap;
        }
        router.capacity().mbps()
    }

    #[test]
    fn a_backlog_shows_the_rate_whatever_was_believed() {
        for start in [1.0, 10.0, 300.0] {
            let mut router = router(Rate::from_mbps(start));
            // 1500 bytes a millisecond.
            let found = drain(&mut router, Time::ZERO, Time::from_secs(2), Time::from_millis(1), 5);
            assert!((found / 12.0 - 1.0).abs() < 0.01, "{start}: {found}");
        }
    }

    #[test]
    fn it_follows_a_rate_that_changes() {
        let mut router = router(Rate::from_mbps(12.0));
        drain(&mut router, Time::ZERO, Time::from_secs(1), Time::from_millis(1), 5);
        let found = drain(&mut router, Time::from_secs(1), Time::from_secs(1), Time::from_millis(4), 5);
        assert!((found / 3.0 - 1.0).abs() < 0.05, "{found}");
    }

    /// A link that has stopped with packets waiting has no departures to go by; arrivals bring the
    /// time.
    #[test]
    fn a_link_that_stops_is_noticed() {
        let mut router = router(Rate::from_mbps(12.0));
        drain(&mut router, Time::ZERO, Time::from_secs(1), Time::from_millis(1), 5);
        let toll = Toll { rtt: 0.05, offer: 0.005, ..Toll::default() };
        for ms in 1_000..1_500 {
            router.on_arrival(Time::from_millis(ms), passing(5), &toll);
        }
        let found = router.capacity().mbps();
        assert!((0.119..1.0).contains(&found), "{found}");
    }

    /// A capacity in use without a queue is raised step by step; an unused one is not.
    #[test]
    fn without_a_queue_it_rises_only_as_it_is_used() {
        let mut used = router(Rate::from_mbps(10.0));
        let found = drain(&mut used, Time::ZERO, Time::from_secs(5), Time::from_millis(1), 1);
        // Until 12 Mb/s are less than half of it.
        assert!((24.0..30.1).contains(&found), "{found}");
        let mut idle = router(Rate::from_mbps(100.0));
        let found = drain(&mut idle, Time::ZERO, Time::from_secs(5), Time::from_millis(1), 1);
        assert_eq!(found, 100.0);
    }

    #[test]
    fn what_the_law_reckons_with_is_what_is_measured() {
        let mut measured = router(Rate::from_mbps(1.0));
        drain(&mut measured, Time::ZERO, Time::from_secs(2), Time::from_millis(1), 2);
        let before = measured.law().control().expect("a router").feedback;
        // α · (C − y) − β · queue / d with C = y = 1.5 MB/s, a queue of one packet or two and d =
        // 50 ms.
        assert!((-20_000.0..=0.0).contains(&before), "{before}");
    }

    #[test]
    fn framing_is_part_of_what_left() {
        let overhead = Some(Bytes(300));
        let config = XcpConfig { capacity: CapacityFrom::Measured, overhead, ..Default::default() };
        let AnyLink::Measured(mut router) = config.build(Rate::from_mbps(1.0)) else { panic!("no meter") };
        // 1800 bytes on the wire a millisecond.
        let found = drain(&mut router, Time::ZERO, Time::from_secs(2), Time::from_millis(1), 5);
        assert!((found / 14.4 - 1.0).abs() < 0.01, "{found}");
    }
}
