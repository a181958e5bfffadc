//! Round-trip times of flows, and the queueing delay in them.
//!
//! A sample is taken every 100 ms; less often with very many flows. It is the round trip measured
//! by the latest acknowledgement, and costs nothing per packet.

use std::cmp::Reverse;
use std::collections::HashMap;

use tollway_law::{Rate, Time};
use tollway_proto::Change;

use crate::plan::{Flow, LinkId, Plan, What};
use crate::tables::{Delays, Percentiles};

/// Round-trip samples of all flows, in units of [`UNIT`], each flow's one after another.
#[derive(Debug, Default)]
pub(super) struct Samples {
    rtts: Vec<u32>,
    /// The queueing in each sample; empty if a flow's unloaded round trip never changes.
    queueing: Vec<u32>,
    /// Room of a flow.
    most: usize,
    settings: Settings,
}

impl Samples {
    /// Room for `most` samples of each of `flows` flows.
    pub(super) fn new(plan: &Plan, flows: usize, most: usize) -> Samples {
        let settings = Settings::new(plan);
        let changed = if settings.changed.is_empty() { 0 } else { flows };
        Samples { rtts: vec![0; flows * most], queueing: vec![0; changed * most], most, settings }
    }

    /// Adds a round trip of the flow `lane`, which has `count` samples. `unloaded` returns the
    /// round trip of the same packet over empty queues, and is called only if that ever changes.
    #[inline]
    pub(super) fn note(
        &mut self,
        lane: usize,
        count: &mut u32,
        rtt: Time,
        unloaded: impl FnOnce(&Settings) -> Time,
    ) {
        let place = lane * self.most + *count as usize;
        if let Some(sample) = self.rtts.get_mut(place) {
            *sample = units(rtt);
            *count += 1;
            if let Some(queueing) = self.queueing.get_mut(place) {
                *queueing = units(rtt.saturating_sub(unloaded(&self.settings)));
            }
        }
    }

    /// The mean and percentiles of the `count` samples of a flow, and of the queueing in them;
    /// `None` if there are no samples.
    pub(super) fn delays(&mut self, lane: usize, count: u32, plan: &Plan, way: Way<'_>) -> Option<Delays> {
        let span = lane * self.most..lane * self.most + count as usize;
        let rtt = spread(&mut self.rtts[span.clone()], Time::ZERO)?;
        let queueing = match self.queueing.get_mut(span.clone()) {
            Some(queueing) => spread(queueing, Time::ZERO)?,
            None => spread(&mut self.rtts[span], self.settings.unloaded(plan, way, Time::ZERO, Time::ZERO))?,
        };
        Some(Delays { rtt, queueing })
    }
}

/// The mean and percentiles of samples, less `unloaded`. Reorders the samples.
fn spread(samples: &mut [u32], unloaded: Time) -> Option<Percentiles> {
    let last = samples.len().checked_sub(1)?;
    let sum: u64 = samples.iter().map(|&sample| time(sample).saturating_sub(unloaded).0).sum();
    let mut sorted = 0;
    let [p50_ms, p95_ms, p99_ms] = [50, 95, 99].map(|p| {
        // Nearest rank: the least sample that is at least as large as a share `p` of all.
        let rank = (samples.len() * p).div_ceil(100).saturating_sub(1).min(last);
        if rank >= sorted {
            samples[sorted..].select_nth_unstable(rank - sorted);
            sorted = rank + 1;
        }
        (last > 0).then(|| time(samples[rank]).saturating_sub(unloaded).as_millis_f64())
    });
    Some(Percentiles { mean_ms: sum as f64 / samples.len() as f64 / 1e6, p50_ms, p95_ms, p99_ms })
}

fn time(units: u32) -> Time {
    Time(u64::from(units) * UNIT)
}

fn units(time: Time) -> u32 {
    u32::try_from(time.0 / UNIT).unwrap_or(u32::MAX)
}

/// The links that a packet and its acknowledgement cross, with the sizes of both.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way<'a> {
    data: (&'a [LinkId], u16),
    back: (&'a [LinkId], u16),
}

impl<'a> Way<'a> {
    /// The way of full packets of `flow`.
    pub(super) fn of(plan: &Plan, flow: &'a Flow, forward: bool) -> Way<'a> {
        let transport = &plan.transports[flow.transport.0 as usize];
        let (data, back) = match forward {
            true => (&flow.path.route, &flow.path.back),
            false => (&flow.path.back, &flow.path.route),
        };
        Way { data: (data, transport.packet_size), back: (back, transport.ack_size) }
    }

    /// Each link with the size that crosses it.
    fn hops(self) -> impl DoubleEndedIterator<Item = (LinkId, u16)> + Clone {
        let with = |(links, size): (&'a [LinkId], u16)| links.iter().map(move |&link| (link, size));
        with(self.data).chain(with(self.back))
    }
}

/// The rate and the delay of a link from an instant on. A replayed trace has no rate: the wait for
/// a transmission opportunity counts as queueing.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Setting {
    from: Time,
    rate: Option<Rate>,
    delay: Time,
}

impl Setting {
    /// The time from the start of a transmission to its arrival at the far end.
    fn crossing(self, bytes: u64) -> Time {
        self.sending(bytes) + self.delay
    }

    fn sending(self, bytes: u64) -> Time {
        self.rate.filter(|&rate| rate > Rate::ZERO).map_or(Time::ZERO, |rate| rate.time_for(bytes))
    }
}

/// The settings of links in the course of a run, as far as its plan determines them.
#[derive(Debug, Default)]
pub(super) struct Settings {
    /// Settings of the links whose rate or delay changes, ascending.
    changed: HashMap<u32, Vec<Setting>>,
}

impl Settings {
    fn new(plan: &Plan) -> Settings {
        let mut changed: HashMap<u32, Vec<Setting>> = HashMap::new();
        for event in plan.timeline() {
            let What::Link(link, change) = &event.what else { continue };
            if !matches!(change, Change::Rate(_) | Change::Delay(_)) {
                continue;
            }
            let settings = changed.entry(link.0).or_insert_with(|| vec![first_setting(plan, *link)]);
            let Some(&last) = settings.last() else { continue };
            settings.push(match change {
                Change::Rate(rate) => Setting { from: event.at, rate: Some(*rate), ..last },
                Change::Delay(delay) => Setting { from: event.at, delay: *delay, ..last },
                _ => last,
            });
        }
        Settings { changed }
    }

    /// The settings of a link from the one in force at `at` on.
    fn since(&self, plan: &Plan, link: LinkId, at: Time) -> impl Iterator<Item = Setting> {
        let all = self.changed.get(&link.0).map_or(&[][..], Vec::as_slice);
        let rest = &all[all.partition_point(|setting| setting.from <= at).saturating_sub(1)..];
        rest.iter().copied().chain(all.is_empty().then(|| first_setting(plan, link)))
    }

    /// The round trip over empty queues of a packet sent at `sent`, whose acknowledgement came
    /// after `rtt`.
    ///
    /// All its waiting is taken to have been at the slowest link of its way, the first of several.
    /// Links before that were crossed with the settings after `sent`, links behind it with those before
    /// the arrival.
    pub(super) fn unloaded(&self, plan: &Plan, way: Way<'_>, sent: Time, rtt: Time) -> Time {
        let hops = || {
            way.hops().map(|(link, size)| {
                let overhead = plan.links[link.0 as usize].overhead;
                (link, u64::from(size) + u64::from(overhead))
            })
        };
        let now = |link, at| self.since(plan, link, at).next().unwrap_or_else(|| first_setting(plan, link));
        if !hops().any(|(link, _)| self.changed.contains_key(&link.0)) {
            return hops().fold(Time::ZERO, |sum, (link, bytes)| sum + now(link, sent).crossing(bytes));
        }
        let slowness = |&(_, (link, bytes)): &(usize, (LinkId, u64))| {
            let setting = now(link, sent);
            if setting.rate.is_none() { Time::NEVER } else { setting.sending(bytes) }
        };
        let Some((slowest, _)) = hops().enumerate().min_by_key(|hop| Reverse(slowness(hop))) else {
            return Time::ZERO;
        };
        let came = hops()
            .take(slowest)
            .fold(sent, |at, (link, bytes)| at.saturating_add(now(link, at).crossing(bytes)));
        let behind: Vec<(LinkId, u64)> = hops().skip(slowest).collect();
        let left = behind.into_iter().rev().fold(sent.saturating_add(rtt), |arrived, (link, bytes)| {
            let mut settings = self.since(plan, link, sent).peekable();
            loop {
                let Some(setting) = settings.next() else { return arrived };
                let begun = arrived.saturating_sub(setting.crossing(bytes));
                // The first one, since packets sent later do not overtake.
                if settings.peek().is_none_or(|next| begun < next.from) {
                    return begun;
                }
            }
        });
        rtt.saturating_sub(left.saturating_sub(came))
    }
}

fn first_setting(plan: &Plan, link: LinkId) -> Setting {
    let link = &plan.links[link.0 as usize];
    Setting { from: Time::ZERO, rate: link.trace.is_none().then_some(link.rate), delay: link.delay }
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
    fn percentiles_are_those_of_samples() {
        assert_eq!(spread(&mut [], Time::ZERO), None);
        // 50 ms, then 51 to 150 ms.
        let samples = || (50..=150).rev().map(|ms| units(Time::from_millis(ms))).collect::<Vec<_>>();
        let (p50_ms, p95_ms, p99_ms) = (Some(100.0), Some(145.0), Some(149.0));
        let expected = Percentiles { mean_ms: 100.0, p50_ms, p95_ms, p99_ms };
        assert_eq!(spread(&mut samples(), Time::ZERO), Some(expected));
        let one = spread(&mut [units(Time::from_millis(3))], Time::ZERO).unwrap();
        assert_eq!(one, Percentiles { mean_ms: one.mean_ms, ..Percentiles::default() });
        let excess = spread(&mut samples(), Time::from_millis(60)).unwrap();
        assert_eq!((excess.p50_ms, excess.p99_ms), (Some(40.0), Some(89.0)));
        // Ten samples are below it.
        assert!((excess.mean_ms - (40.0 + 55.0 / 101.0)).abs() < 1e-9, "{excess:?}");
    }

    #[test]
    fn the_unloaded_round_trip_is_that_of_the_packet_s_time() {
        let text = r#"
            name = "t"
            duration = "20 s"
            node = { a = {}, r = {}, b = {} }
            link.access = { from = "a", to = "r", rate = "1 Gbps", delay = "5 ms" }
            link.slow = { from = "r", to = "b", rate = "12 Mbps", delay = "10 ms" }
            flow.f = { from = "a", to = "b", law = "newreno", packet-size = "1500 B" }
            change = [{ at = "5 s", link = "slow", delay = "110 ms" }, { at = "10 s", link = "slow", rate = "1.2 Mbps" }]
        "#;
        let scenario = crate::file::Scenario::parse::<&str>("t", text, &[]).unwrap();
        let plan = &scenario.variants()[0].plan;
        let settings = Settings::new(plan);
        let way = Way::of(plan, &plan.flows[0], true);
        let ms = |ms: f64| Time::from_secs_f64(ms * 1e-3);
        let unloaded = |sent, rtt| settings.unloaded(plan, way, ms(sent), ms(rtt)).as_millis_f64();
        let near = |value: f64, expected: f64| assert!((value - expected).abs() < 0.1, "{value} {expected}");
        // 30 ms and 1 ms of transmission; 40 ms of the 71 are waiting.
        near(unloaded(1000.0, 71.0), 31.0);
        // It left the queue before the change; its acknowledgement came back after it.
        near(unloaded(4980.0, 136.0), 131.0);
        // Its acknowledgement left the slow link before the change.
        near(unloaded(4960.0, 50.0), 31.0);
        near(unloaded(6000.0, 240.0), 231.0);
        // Sent before the change, it left the slow link after it.
        near(unloaded(4990.0, 271.0), 231.0);
        // 230 ms, 10 ms of transmission, and 0.27 ms of the acknowledgement.
        near(unloaded(12_000.0, 300.0), 240.28);
    }
}
