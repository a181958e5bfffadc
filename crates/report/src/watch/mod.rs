//! Live views of runs: the latest rows of every flow and link, for a screen or a scraper.
//!
//! A [`Scene`] observes runs as a [`Watch`] and keeps the latest rows, which a reader may read at
//! any time. With the feature `watch` they can be drawn on a terminal ([`screen`]), with `metrics`
//! served to Prometheus ([`metrics`]).

#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(feature = "watch")]
pub mod screen;

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

use tollway_scenario::run::Watch;
use tollway_scenario::tables::{FlowRow, LinkRow};

/// The latest rows of all runs of a scenario.
#[derive(Debug, Default)]
pub struct Scene {
    runs: Mutex<Vec<RunScene>>,
}

/// The latest rows of a variant's run.
#[derive(Clone, Debug, Default)]
pub struct RunScene {
    /// The variant; empty without one.
    pub variant: String,
    /// The run's duration, in seconds.
    pub duration_s: f64,
    /// The end of the last interval, in seconds.
    pub time_s: f64,
    /// Flows with at least one row, in the order of the first.
    pub flows: Vec<FlowScene>,
    /// Link directions with at least one row, in the order of the first.
    pub links: Vec<LinkScene>,
    flow_places: HashMap<String, usize>,
    link_places: HashMap<String, usize>,
}

/// The latest row of a flow, with its totals since the start.
#[derive(Clone, Debug, Default)]
pub struct FlowScene {
    /// Its name.
    pub name: String,
    /// The end of the row's interval, in seconds. After the flow's end it stays behind the run's.
    pub time_s: f64,
    /// Wire bytes that arrived, in Mb/s. This and all further values are `None` if another process
    /// has them.
    pub rate_mbps: Option<f64>,
    /// Payload that arrived, in Mb/s.
    pub goodput_mbps: Option<f64>,
    /// Smoothed round-trip time, in ms.
    pub rtt_ms: Option<f64>,
    /// Congestion window, in packets.
    pub cwnd_packets: Option<f64>,
    /// Packets retransmitted since the start.
    pub retransmissions: Option<u64>,
    /// The sender's spending, in $/s.
    pub spending: Option<f64>,
    /// The price of the path, in $/MB.
    pub price: Option<f64>,
    /// The latest rates in Mb/s, oldest first.
    pub rates: VecDeque<f64>,
}

/// The latest row of a link direction, with its totals since the start.
#[derive(Clone, Debug, Default)]
pub struct LinkScene {
    /// Its name.
    pub name: String,
    /// Fraction of the capacity used, 0 to 1.
    pub utilisation: f64,
    /// Mean queue, in bytes.
    pub queue_bytes: f64,
    /// Largest queue, in bytes.
    pub queue_max_bytes: f64,
    /// Packets dropped since the start.
    pub drops: u64,
    /// Packets marked since the start.
    pub marks: u64,
    /// The link's price, in $/MB.
    pub price: Option<f64>,
    /// The latest mean queues in bytes, oldest first.
    pub queues: VecDeque<f64>,
}

impl Scene {
    /// A scene of runs that have not begun, each with its name and its duration in seconds.
    pub fn new<'a>(runs: impl IntoIterator<Item = (&'a str, f64)>) -> Scene {
        let run = |(variant, duration_s): (&str, f64)| RunScene {
            variant: variant.to_owned(),
            duration_s,
            ..RunScene::default()
        };
        Scene { runs: Mutex::new(runs.into_iter().map(run).collect()) }
    }

    /// The present content.
    pub fn runs(&self) -> MutexGuard<'_, Vec<RunScene>> {
        // Numbers are whole even after a thread panicked.
        self.runs.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn change(&self, variant: &str, change: impl FnOnce(&mut RunScene)) {
        if let Some(run) = self.runs().iter_mut().find(|run| run.variant == variant) {
            change(run);
        }
    }
}

impl RunScene {
    /// The flows with a row in the latest interval.
    pub fn current(&self) -> impl Iterator<Item = &FlowScene> {
        self.flows.iter().filter(|flow| flow.time_s >= self.time_s)
    }
}

impl Watch for Scene {
    fn flow(&self, variant: &str, row: &FlowRow<'_>) {
        self.change(variant, |run| {
            run.time_s = row.time_s;
            let flow = place(&mut run.flows, &mut run.flow_places, row.flow, |name| FlowScene {
                name,
                ..FlowScene::default()
            });
            flow.time_s = row.time_s;
            let seen = row.seen;
            flow.rate_mbps = seen.received(row.rate_mbps);
            flow.goodput_mbps = seen.received(row.goodput_mbps);
            flow.rtt_ms = seen.sent(row.rtt_ms).flatten();
            flow.cwnd_packets = seen.sent(row.cwnd_packets);
            flow.retransmissions = seen.sent(flow.retransmissions.unwrap_or(0) + row.retransmissions);
            flow.spending = seen.sent(row.spending).flatten();
            flow.price = seen.sent(row.price).flatten();
            if let Some(rate) = flow.rate_mbps {
                remember(&mut flow.rates, rate);
            }
        });
    }

    fn link(&self, variant: &str, row: &LinkRow<'_>) {
        self.change(variant, |run| {
            run.time_s = row.time_s;
            let link = place(&mut run.links, &mut run.link_places, row.link, |name| LinkScene {
                name,
                ..LinkScene::default()
            });
            link.utilisation = row.utilisation;
            link.queue_bytes = row.queue_mean_bytes;
            link.queue_max_bytes = row.queue_max_bytes;
            link.drops += row.drops;
            link.marks += row.marks;
            link.price = row.price;
            remember(&mut link.queues, row.queue_mean_bytes);
        });
    }
}

/// The entry with this name, added if it does not exist yet.
fn place<'a, T>(
    all: &'a mut Vec<T>,
    places: &mut HashMap<String, usize>,
    name: &str,
    new: impl FnOnce(String) -> T,
) -> &'a mut T {
    let at = match places.get(name) {
        Some(&at) => at,
        None => {
            places.insert(name.to_owned(), all.len());
            all.push(new(name.to_owned()));
            all.len() - 1
        }
    };
    &mut all[at]
}

fn remember(history: &mut VecDeque<f64>, value: f64) {
    if history.len() == HISTORY {
        history.pop_front();
    }
    history.push_back(value);
}

/// Number of remembered intervals: the greatest width of a history, in columns.
const HISTORY: usize = 40;

#[cfg(test)]
pub(crate) mod tests {
    use tollway_scenario::tables::Ends;

    use super::*;

    /// Two flows, one of which has ended, and a link.
    pub(crate) fn scene() -> Scene {
        let scene = Scene::new([("fifo", 20.0), ("xcp", 20.0)]);
        for i in 1..=8 {
            let time_s = f64::from(i);
            let flow = |flow, rate_mbps| FlowRow {
                time_s,
                flow,
                rate_mbps,
                goodput_mbps: rate_mbps * 0.96,
                cwnd_packets: 41.5,
                rtt_ms: Some(50.25),
                retransmissions: 1,
                ..FlowRow::default()
            };
            scene.flow("xcp", &flow("f.1", time_s));
            if i < 5 {
                scene.flow("xcp", &flow("f.2", 2.0));
            }
            scene.link(
                "xcp",
                &LinkRow {
                    time_s,
                    link: "bottleneck",
                    utilisation: 0.875,
                    queue_mean_bytes: 1500.0 * time_s,
                    queue_max_bytes: 30_000.0,
                    drops: 2,
                    price: Some(0.5),
                    ..LinkRow::default()
                },
            );
        }
        scene
    }

    #[test]
    fn the_last_row_counts_and_counters_add_up() {
        let scene = scene();
        let runs = scene.runs();
        let run = &runs[1];
        assert_eq!((run.variant.as_str(), run.time_s), ("xcp", 8.0));
        assert_eq!(run.current().map(|flow| flow.name.as_str()).collect::<Vec<_>>(), ["f.1"]);
        assert_eq!((run.flows[0].rate_mbps, run.flows[0].retransmissions), (Some(8.0), Some(8)));
        assert_eq!((run.links[0].drops, run.links[0].queue_bytes), (16, 12_000.0));
        assert_eq!(runs[0].time_s, 0.0);
    }

    #[test]
    fn what_another_process_knows_is_left_out() {
        let scene = Scene::new([("", 20.0)]);
        let row = FlowRow { flow: "f", rtt_ms: Some(0.0), price: Some(0.0), ..FlowRow::default() };
        scene.flow("", &FlowRow { seen: Ends::Sender, ..row });
        let flow = scene.runs()[0].flows[0].clone();
        assert_eq!((flow.rate_mbps, flow.goodput_mbps, flow.rates.len()), (None, None, 0));
        assert_eq!((flow.cwnd_packets, flow.retransmissions), (Some(0.0), Some(0)));
        scene.flow("", &FlowRow { seen: Ends::Receiver, ..row });
        let flow = scene.runs()[0].flows[0].clone();
        assert_eq!((flow.rate_mbps, flow.goodput_mbps), (Some(0.0), Some(0.0)));
        assert_eq!((flow.cwnd_packets, flow.retransmissions), (None, None));
        assert_eq!((flow.rtt_ms, flow.price), (None, None));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut history = VecDeque::new();
        (0..1000).for_each(|i| remember(&mut history, f64::from(i)));
        assert_eq!((history.len(), history[0], history[HISTORY - 1]), (HISTORY, 960.0, 999.0));
    }
}
