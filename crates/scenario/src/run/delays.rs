//! Round-trip times of flows, and the queueing delay in them.
//!
//! A sample is taken every 100 ms; less often with very many flows. It is the round trip measured
//! by the latest acknowledgement, and costs nothing per packet.

use tollway_law::{Rate, Time};

use crate::plan::{Flow, LinkId, Plan};
use crate::tables::{Delays, Percentiles};

/// Round-trip samples of all flows, in units of [`UNIT`], each flow's one after another.
#[derive(Debug, Default)]
pub(super) struct Samples {
    rtts: Vec<u32>,
    /// Room of a flow.
    most: usize,
}

impl Samples {
    /// Room for `most` samples of each of `flows` flows.
    pub(super) fn new(flows: usize, most: usize) -> Samples {
        Samples { rtts: vec![0; flows * most], most }
    }

    /// Adds a round trip of `flow`, which has `count` samples.
    #[inline]
    pub(super) fn note(&mut self, flow: usize, count: &mut u32, rtt: Time) {
        if let Some(place) = self.rtts.get_mut(flow * self.most + *count as usize) {
            *place = u32::try_from(rtt.0 / UNIT).unwrap_or(u32::MAX);
            *count += 1;
        }
    }

    /// The mean and percentiles of the `count` samples of `flow`, and of their excess over
    /// `unloaded`; `None` if there are no samples.
    pub(super) fn delays(&mut self, flow: usize, count: u32, unloaded: Time) -> Option<Delays> {
        let samples = &mut self.rtts[flow * self.most..][..count as usize];
        let last = samples.len().checked_sub(1)?;
        let mut sorted = 0;
        let percentiles = [50, 95, 99].map(|p| {
            // Nearest rank: the least sample that is at least as large as a share `p` of all.
            let rank = (samples.len() * p).div_ceil(100).saturating_sub(1).min(last);
            if rank >= sorted {
                samples[sorted..].select_nth_unstable(rank - sorted);
                sorted = rank + 1;
            }
            time(samples[rank])
        });
        let spread = |unloaded: Time| {
            let sum: u64 = samples.iter().map(|&rtt| time(rtt).saturating_sub(unloaded).0).sum();
            let [p50_ms, p95_ms, p99_ms] =
                percentiles.map(|rtt| rtt.saturating_sub(unloaded).as_millis_f64());
            Percentiles { mean_ms: sum as f64 / f64::from(count) / 1e6, p50_ms, p95_ms, p99_ms }
        };
        Some(Delays { rtt: spread(Time::ZERO), queueing: spread(unloaded) })
    }
}

fn time(units: u32) -> Time {
    Time(u64::from(units) * UNIT)
}

/// The round trip of a full packet and its acknowledgement over empty queues, with the links'
/// initial settings.
pub(super) fn unloaded_rtt(plan: &Plan, flow: &Flow, forward: bool) -> Time {
    let transport = &plan.transports[flow.transport.0 as usize];
    let (data, back) = match forward {
        true => (&flow.path.route, &flow.path.back),
        false => (&flow.path.back, &flow.path.route),
    };
    // A replayed trace has no rate: the wait for a transmission opportunity counts as queueing.
    let over = |links: &[LinkId], bytes: u16| {
        let links = links.iter().map(|link| &plan.links[link.0 as usize]).filter(|link| link.trace.is_none());
        links.fold(Time::ZERO, |sum, link| {
            sum + sent_in(link.rate, u64::from(bytes) + u64::from(link.overhead))
        })
    };
    flow.path.base_rtt + over(data, transport.packet_size) + over(back, transport.ack_size)
}

fn sent_in(rate: Rate, bytes: u64) -> Time {
    if rate > Rate::ZERO { rate.time_for(bytes) } else { Time::ZERO }
}

/// The time between two samples of each of `meters` meters.
///
/// It is 100 ms, or the least multiple for which a run has at most 100 samples a flow,
/// [`FEW_SAMPLES`] in all if that is more, and [`MOST_SAMPLES`] if it is less. A sample reads both
/// ends of a flow, and with many flows these are not in a cache.
pub(super) fn sampled_every(meters: usize, duration: Time) -> Time {
    let samples = (meters as u64).saturating_mul(duration.0 / SAMPLED_EVERY.0);
    let most = (meters as u64).saturating_mul(100).clamp(FEW_SAMPLES, MOST_SAMPLES);
    Time(SAMPLED_EVERY.0.saturating_mul(samples.div_ceil(most).max(1)))
}

/// The usual time between two samples.
const SAMPLED_EVERY: Time = Time::from_millis(100);
/// Number of samples in a run that are always allowed.
const FEW_SAMPLES: u64 = 200_000;
/// Largest number of samples in a run, 4 bytes each.
const MOST_SAMPLES: u64 = 1_000_000;

/// Unit of a sample in nanoseconds; the same as that of timestamps.
const UNIT: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_flows_are_sampled_less_often() {
        let every = |meters, secs| sampled_every(meters, Time::from_secs(secs));
        let usual = Time::from_millis(100);
        assert_eq!([every(0, 60), every(333, 60), every(100_000, 1)], [usual; 3]);
        assert_eq!(every(334, 60), Time::from_millis(200));
        assert_eq!([every(1000, 60), every(10_000, 60)], [300, 600].map(Time::from_millis));
        assert_eq!(every(100_000, 100), Time::from_secs(10));
    }

    #[test]
    fn percentiles_are_samples_and_queueing_is_what_exceeds_the_unloaded_round_trip() {
        let (mut samples, mut count) = (Samples::new(2, 101), 0);
        assert_eq!(samples.delays(1, count, Time::ZERO), None);
        // 50 ms, then 51 to 150 ms.
        (50..=150).rev().for_each(|ms| samples.note(1, &mut count, Time::from_millis(ms)));
        let delays = samples.delays(1, count, Time::from_millis(60)).unwrap();
        let expected = Percentiles { mean_ms: 100.0, p50_ms: 100.0, p95_ms: 145.0, p99_ms: 149.0 };
        assert_eq!(delays.rtt, expected);
        assert_eq!((delays.queueing.p50_ms, delays.queueing.p99_ms), (40.0, 89.0));
        // Ten samples are below it.
        assert!((delays.queueing.mean_ms - (40.0 + 55.0 / 101.0)).abs() < 1e-9, "{delays:?}");
    }
}
