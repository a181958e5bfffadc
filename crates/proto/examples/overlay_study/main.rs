//! The parameter study of the cost-benefit overlay: the daemon over links of fixed rate, in the
//! paper's scenarios, under each setting of what the paper leaves open.
//!
//! ```text
//! cargo run --release -p tollway-proto --example overlay_study -- \
//!     [--seeds 1,2,3] [--settings a,b] [--scenarios c,d] [FILE]
//! ```
//!
//! Prints a table in Markdown: for each scenario and setting the worst seed of every goal, and how
//! many goals are met.

#[path = "../../tests/it/overlay/net.rs"]
mod net;

use std::collections::BTreeMap;

use serde::Deserialize;
use tollway_law::overlay::{AnnounceConfig, Benefit, CostConfig, PurseConfig};
use tollway_law::{Rate, Time};
use tollway_proto::overlay::{Config, TenantConfig};

use net::Net;

type Error = Box<dyn std::error::Error>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Study {
    scenario: BTreeMap<String, Scenario>,
    setting: BTreeMap<String, toml::Table>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    duration: Time,
    warmup: Time,
    links: Vec<(String, String, f64, f64)>,
    senders: Vec<Senders>,
    #[serde(default)]
    changes: Vec<Change>,
    watch: Vec<(String, String)>,
    /// The part of a message that is the user's.
    #[serde(default = "whole")]
    payload: f64,
    #[serde(default)]
    set: toml::Table,
    goal: Vec<Goal>,
}

fn whole() -> f64 {
    1.0
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Senders {
    name: String,
    at: String,
    to: Vec<String>,
    count: u32,
    over: f64,
    #[serde(default)]
    start: Time,
    #[serde(default)]
    benefit: Benefit,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    at: Time,
    link: (String, String),
    mbps: f64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Goal {
    Rate {
        rate: String,
        mbps: f64,
        percent: f64,
    },
    Least {
        rate: String,
        #[serde(rename = "at-least")]
        at_least: f64,
    },
    Pair {
        pair: (String, String),
        mbps: f64,
        percent: f64,
    },
    Sum {
        sum: f64,
        least: f64,
    },
    Spread {
        spread: String,
        percent: f64,
    },
    Equal {
        equal: (String, String),
        from: Time,
        to: Time,
        percent: f64,
    },
    Order {
        order: (String, String),
    },
    QueueOver {
        #[serde(rename = "queue-over")]
        queue_over: String,
    },
    Queue {
        queue: usize,
    },
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Setting {
    cost: CostConfig,
    purse: PurseConfig,
    announce: AnnounceConfig,
}

/// A run's figures: bytes of each sender by second, and the longest queue by second of each link
/// watched.
struct Run {
    sent: Vec<Vec<u64>>,
    groups: BTreeMap<String, Vec<usize>>,
    queues: Vec<Vec<usize>>,
    /// The largest part of a link's rate that is control.
    control: f64,
    warmup: usize,
    seconds: usize,
}

fn main() -> Result<(), Error> {
    let mut seeds = vec![1];
    let (mut settings, mut scenarios) = (Vec::new(), Vec::new());
    let mut text = include_str!("study.toml").to_owned();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut list = || args.next().unwrap_or_default().split(',').map(str::to_owned).collect::<Vec<_>>();
        match arg.as_str() {
            "--seeds" => seeds = list().iter().map(|seed| seed.parse()).collect::<Result<_, _>>()?,
            "--settings" => settings = list(),
            "--scenarios" => scenarios = list(),
            file => text = std::fs::read_to_string(file)?,
        }
    }
    let study: Study = toml::from_str(&text)?;
    let chosen = |name: &String, list: &[String]| list.is_empty() || list.contains(name);
    println!("| setting | scenario | worst of seeds {seeds:?} | longest queue | control | met |");
    println!("|---|---|---|---|---|---|");
    for (name, setting) in study.setting.iter().filter(|(name, _)| chosen(name, &settings)) {
        let (mut met, mut all) = (0, 0);
        let mut queues: BTreeMap<(&str, u64), usize> = BTreeMap::new();
        for (title, scenario) in study.scenario.iter().filter(|(title, _)| chosen(title, &scenarios)) {
            let mut worst: Vec<(bool, f64, String)> = Vec::new();
            let (mut longest, mut control) = (0, 0.0_f64);
            for &seed in &seeds {
                let run = scenario.run(&merged(setting, &scenario.set)?, seed)?;
                queues.insert((title, seed), run.queue());
                longest = longest.max(run.queue());
                control = control.max(run.control);
                for (index, goal) in scenario.goal.iter().enumerate() {
                    let other = |name: &str| queues.get(&(name, seed)).copied();
                    let seen = run.judge(goal, scenario.payload, other);
                    match worst.get_mut(index) {
                        Some(known) if known.1 >= seen.1 => {}
                        Some(known) => *known = seen,
                        None => worst.push(seen),
                    }
                }
            }
            all += worst.len();
            met += worst.iter().filter(|goal| goal.0).count();
            let texts: Vec<&str> = worst.iter().map(|goal| goal.2.as_str()).collect();
            let ok = worst.iter().filter(|goal| goal.0).count();
            println!(
                "| {name} | {title} | {} | {longest} | {:.2} % | {ok}/{} |",
                texts.join("; "),
                100.0 * control,
                worst.len()
            );
        }
        println!("| **{name}** | all | | | | **{met}/{all}** |");
    }
    Ok(())
}

/// A setting with a scenario's own changes.
fn merged(setting: &toml::Table, own: &toml::Table) -> Result<Setting, Error> {
    let mut table = setting.clone();
    for (section, keys) in own {
        let into = table.entry(section).or_insert_with(|| toml::Table::new().into());
        if let (Some(into), Some(keys)) = (into.as_table_mut(), keys.as_table()) {
            into.extend(keys.clone());
        }
    }
    Ok(table.try_into()?)
}

impl Scenario {
    fn run(&self, setting: &Setting, seed: u64) -> Result<Run, Error> {
        let mut names: Vec<&String> = self.links.iter().flat_map(|link| [&link.0, &link.1]).collect();
        names.sort();
        names.dedup();
        let node = |name: &String| names.binary_search(&name).map_err(|_| format!("there is no node {name}"));
        let config = Config {
            cost: setting.cost,
            purse: setting.purse,
            announce: setting.announce,
            ..Config::default()
        };
        let mut net = Net::new(names.len(), config, seed);
        net.keep_log = false;
        let mut links = BTreeMap::new();
        for (from, to, mbps, ms) in &self.links {
            let delay = Time::from_secs_f64(ms / 1e3);
            let link = net.link(node(from)?, node(to)?, Rate::from_mbps(*mbps), delay);
            links.insert((from, to), link);
            links.insert((to, from), link ^ 1);
        }
        let find = |ends: &(String, String)| {
            links.get(&(&ends.0, &ends.1)).copied().ok_or_else(|| format!("there is no link {ends:?}"))
        };
        // Daemons find each other first.
        net.run(SETTLED);
        let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        let mut random = seed;
        for senders in &self.senders {
            let to = senders.to.iter().map(node).collect::<Result<Vec<_>, _>>()?;
            let spread = 10.0 * f64::from(senders.count) / (senders.over * 125.0);
            // On a link a message has 1000 bytes.
            let size = 1000 - 45 - to.len() as u32;
            for _ in 0..senders.count {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let unit = (random >> 11) as f64 / (1u64 << 53) as f64;
                let at = SETTLED + senders.start + Time::from_secs_f64(spread * unit);
                let tenant = TenantConfig { benefit: senders.benefit, ..TenantConfig::default() };
                let id = net.sender(at, node(&senders.at)?, &to, size, u32::MAX, tenant);
                groups.entry(senders.name.clone()).or_default().push(id as usize);
            }
        }
        let watched = self.watch.iter().map(find).collect::<Result<Vec<_>, _>>()?;
        let seconds = (self.duration.as_secs_f64()) as usize;
        let mut run = Run {
            sent: vec![Vec::new(); net.senders.len()],
            queues: vec![Vec::new(); watched.len()],
            groups,
            control: 0.0,
            warmup: self.warmup.as_secs_f64() as usize,
            seconds,
        };
        for second in 0..seconds as u64 {
            for change in self.changes.iter().filter(|change| change.at == Time::from_secs(second)) {
                net.links[find(&change.link)?].rate = Rate::from_mbps(change.mbps);
            }
            net.run(SETTLED + Time::from_secs(second + 1));
            for (sent, sender) in run.sent.iter_mut().zip(&net.senders) {
                sent.push(u64::from(sender.sent) * 1000);
            }
            for (queue, &link) in run.queues.iter_mut().zip(&watched) {
                queue.push(std::mem::take(&mut net.links[link].longest));
            }
        }
        let part = |link: &net::Link| link.control as f64 / link.rate.bytes_in(net.now);
        run.control = net.links.iter().map(part).fold(0.0, f64::max);
        Ok(run)
    }
}

/// The time for daemons to find each other before senders start.
const SETTLED: Time = Time::from_secs(2);

impl Run {
    /// Mb/s of senders between two seconds.
    fn rate(&self, senders: &[usize], from: usize, to: usize) -> f64 {
        let at = |sender: usize, second: usize| if second == 0 { 0 } else { self.sent[sender][second - 1] };
        let bytes: u64 = senders.iter().map(|&sender| at(sender, to) - at(sender, from)).sum();
        bytes as f64 * 8e-6 / (to - from) as f64
    }

    fn mean(&self, name: &str) -> f64 {
        self.rate(&self.groups[name], self.warmup, self.seconds)
    }

    fn queue(&self) -> usize {
        self.queues.iter().flat_map(|queue| &queue[self.warmup..]).copied().max().unwrap_or(0)
    }

    /// The verdict on a goal: met or not, distance in parts of the tolerance, and the figure.
    fn judge(&self, goal: &Goal, payload: f64, other: impl Fn(&str) -> Option<usize>) -> (bool, f64, String) {
        let near = |rate: f64, mbps: f64, percent: f64, name: &str| {
            let off = 100.0 * (rate / mbps - 1.0);
            (off.abs() <= percent, off.abs() / percent, format!("{name} {rate:.3} ({off:+.1} %)"))
        };
        match goal {
            Goal::Rate { rate, mbps, percent } => near(payload * self.mean(rate), *mbps, *percent, rate),
            Goal::Pair { pair, mbps, percent } => {
                near(payload * (self.mean(&pair.0) + self.mean(&pair.1)), *mbps, *percent, "pair")
            }
            Goal::Least { rate, at_least } => {
                let mean = self.mean(rate);
                (mean >= *at_least, at_least / mean, format!("{rate} {mean:.3}"))
            }
            Goal::Sum { sum, least } => {
                let total: f64 = self.groups.keys().map(|name| self.mean(name)).sum();
                (total >= *least, least / total, format!("sum {total:.3} (paper {sum})"))
            }
            Goal::Spread { spread, percent } => {
                let senders = &self.groups[spread];
                let mean = self.mean(spread) / senders.len() as f64;
                let off =
                    |&sender: &usize| (self.rate(&[sender], self.warmup, self.seconds) / mean - 1.0).abs();
                let off = 100.0 * senders.iter().map(off).fold(0.0, f64::max);
                (off <= *percent, off / percent, format!("{spread} each ±{off:.1} %"))
            }
            Goal::Equal { equal, from, to, percent } => {
                let (from, to) = (from.as_secs_f64() as usize, to.as_secs_f64() as usize);
                let [a, b] = [&equal.0, &equal.1].map(|name| self.rate(&self.groups[name], from, to));
                let off = 100.0 * (a / ((a + b) / 2.0) - 1.0).abs();
                (off <= *percent, off / percent, format!("{} {a:.2}, {} {b:.2}", equal.0, equal.1))
            }
            Goal::Order { order } => {
                let [a, b] = [&order.0, &order.1].map(|name| self.mean(name));
                (a < b, a / b, format!("{} {a:.3}, {} {b:.3}", order.0, order.1))
            }
            Goal::QueueOver { queue_over } => {
                let (mine, theirs) = (self.queue(), other(queue_over).unwrap_or(usize::MAX));
                (mine > theirs, theirs as f64 / mine as f64, format!("queue {mine}, {queue_over} {theirs}"))
            }
            Goal::Queue { queue } => {
                let longest = self.queue();
                (longest <= *queue, longest as f64 / *queue as f64, format!("queue {longest}"))
            }
        }
    }
}
