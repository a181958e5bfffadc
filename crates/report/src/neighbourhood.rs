//! Neighbours of an experiment: copies with another seed, other starts, round trips, or values of
//! settings that its source leaves open.
//!
//! ```toml
//! [neighbourhood]
//! seeds = 6                      # further seeds, from the file's own on
//! starts = 4                     # draws of start instants: each up to one round trip later
//! round-trips = [0.9, 1.1]       # factors on the delay of every link
//!
//! # Plausible values of settings that the source leaves open, by key as in `--set`.
//! [neighbourhood.settings]
//! "link.bottleneck.limit" = ["1 BDP", "4 BDP"]
//!
//! # Several keys at once, under a name.
//! [neighbourhood.points.small-packets]
//! "flow.*.packet-size" = "576 B"
//! "link.bottleneck.limit" = "64 kB"
//! ```
//!
//! Each value makes one neighbour, which differs from the base only in it. Delays on a grid's axis
//! stay, since the rows vary them. An experiment that covers many runs itself gives the reason for
//! having no neighbours: `once = "200 random networks"`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use serde::Deserialize;
use tollway_law::Time;
use tollway_scenario::file::{Scenario, ScenarioError};
use toml::{Table, Value};

use crate::seeds::{NoSeeds, seeds};

/// The `[neighbourhood]` table of a file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Neighbourhood {
    /// Further seeds.
    #[serde(default)]
    pub seeds: u64,
    /// Draws of start instants.
    #[serde(default)]
    pub starts: u64,
    /// Factors on every link's delay, above 0.
    #[serde(default)]
    pub round_trips: Vec<f64>,
    /// Lists of values, by key.
    #[serde(default)]
    pub settings: Table,
    /// Keys with their values, by the neighbour's name.
    #[serde(default)]
    pub points: BTreeMap<String, Table>,
    /// The reason why there are no neighbours.
    pub once: Option<String>,
}

/// One difference from an experiment's base.
#[derive(Clone, Debug, PartialEq)]
pub enum Neighbour {
    /// A further seed.
    Seed(u64),
    /// The start instants of this draw.
    Starts(u64),
    /// All links' delays times this factor.
    RoundTrips(f64),
    /// A key with another value.
    Setting(String, Value),
    /// Several keys with other values, under a name.
    Point(String, Table),
}

/// The name in the list of judgements: `seed 3`, `starts 2`, `round trips × 0.9`, `link.b.limit = 1
/// BDP`.
impl fmt::Display for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Neighbour::Seed(seed) => write!(f, "seed {seed}"),
            Neighbour::Starts(draw) => write!(f, "starts {draw}"),
            Neighbour::RoundTrips(factor) => write!(f, "round trips × {factor}"),
            Neighbour::Setting(key, Value::String(value)) => write!(f, "{key} = {value}"),
            Neighbour::Setting(key, value) => write!(f, "{key} = {value}"),
            Neighbour::Point(name, _) => f.write_str(name),
        }
    }
}

impl Neighbourhood {
    /// The first mistake, as text; `None` without mistakes.
    pub(crate) fn mistake(&self) -> Option<String> {
        if self.round_trips.iter().any(|factor| !(factor.is_finite() && *factor > 0.0)) {
            return Some("a factor on round trips must be a number over 0".into());
        }
        if let Some((key, _)) = self.settings.iter().find(|(_, values)| !values.is_array()) {
            return Some(format!("`{key}` needs a list of values"));
        }
        let any = self.seeds > 0
            || self.starts > 0
            || !(self.round_trips.is_empty() && self.settings.is_empty() && self.points.is_empty());
        match (&self.once, any) {
            (Some(_), true) => Some("an experiment with `once` has no neighbours".into()),
            (None, false) => {
                Some("a neighbourhood needs neighbours, or the reason for none in `once`".into())
            }
            _ => None,
        }
    }

    /// All neighbours of a base whose scenario has this `seed`.
    ///
    /// # Errors
    /// A seed exceeds the largest one of a file.
    pub fn neighbours(&self, seed: u64) -> Result<Vec<Neighbour>, NoSeeds> {
        let later = seeds(seed, self.seeds.saturating_add(1))?.skip(1).map(Neighbour::Seed);
        let starts = (1..=self.starts).map(Neighbour::Starts);
        let round_trips = self.round_trips.iter().copied().map(Neighbour::RoundTrips);
        let settings = self.settings.iter().flat_map(|(key, values)| {
            let values = values.as_array().into_iter().flatten();
            values.map(|value| Neighbour::Setting(key.clone(), value.clone()))
        });
        let points = self.points.iter().map(|(name, sets)| Neighbour::Point(name.clone(), sets.clone()));
        Ok(later.chain(starts).chain(round_trips).chain(settings).chain(points).collect())
    }
}

impl Neighbour {
    /// The neighbour of `scenario`, whose file is at `path`.
    ///
    /// # Errors
    /// A setting's key or value does not exist.
    pub fn of(&self, scenario: &Scenario, path: &Path) -> Result<Scenario, ScenarioError> {
        let parse = |text: &str, sets: &[String]| Scenario::parse(&path.display().to_string(), text, sets);
        Ok(match self {
            Neighbour::Seed(seed) => parse(scenario.text(), &[format!("seed={seed}")])?,
            Neighbour::Setting(key, value) => parse(scenario.text(), &[format!("{key}={value}")])?,
            Neighbour::Point(_, sets) => {
                let sets: Vec<String> = sets.iter().map(|(key, value)| format!("{key}={value}")).collect();
                parse(scenario.text(), &sets)?
            }
            Neighbour::RoundTrips(factor) => parse(&with_delays(scenario.text(), *factor), &[])?,
            Neighbour::Starts(draw) => scenario.clone().with_starts(|flow| {
                let part = drawn(&flow.name, *draw).random::<f64>();
                Time::from_secs_f64(flow.path.base_rtt.as_secs_f64() * part)
            }),
        })
    }
}

/// Draws `count` of `neighbours` at random, seeded by the experiment's name; their order stays.
pub fn draw(name: &str, mut neighbours: Vec<Neighbour>, count: usize) -> Vec<Neighbour> {
    let mut rng = drawn(name, DRAW);
    while neighbours.len() > count {
        neighbours.remove((rng.next_u64() % neighbours.len() as u64) as usize);
    }
    neighbours
}

/// A scenario's text with every link's delay times `factor`, except delays on a grid's axis.
fn with_delays(text: &str, factor: f64) -> String {
    // The text was parsed before, so parsing cannot fail here.
    let mut file: Table = toml::from_str(text).unwrap_or_default();
    file.retain(|key, _| !matches!(key, "claim" | "plot" | "live" | "random" | "neighbourhood"));
    file.iter_mut().for_each(|(key, value)| scale(key, value, factor));
    toml::to_string(&file).unwrap_or_default()
}

/// Scales the delays in `value`, the entry `key` of a table.
fn scale(key: &str, value: &mut Value, factor: f64) {
    let is_delay = key.rsplit('.').next().is_some_and(|last| last.trim() == "delay");
    match value {
        Value::Table(table) => {
            for (inner, value) in table {
                // A group's delay `{ first, last }`.
                scale(if is_delay { key } else { inner }, value, factor);
            }
        }
        Value::Array(entries) => entries.iter_mut().for_each(|entry| {
            if entry.is_table() {
                scale(key, entry, factor);
            }
        }),
        Value::String(text) if is_delay => {
            if let Ok(time) = text.parse::<Time>() {
                *text = format!("{} ns", libm::round(time.0 as f64 * factor));
            }
        }
        _ => {}
    }
}

/// A random generator seeded by a name and a number.
fn drawn(name: &str, number: u64) -> Pcg64Mcg {
    // FNV-1a, over the number's bytes too.
    let bytes = name.bytes().chain(number.to_le_bytes());
    let seed = bytes.fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    Pcg64Mcg::seed_from_u64(seed)
}

/// The seed of [`draw`].
const DRAW: u64 = 20_261_123;

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
name = "toy/one"
duration = "2 s"
seed = 5
[node.a]
count = 2
[node.b]
[link.wire]
from = "a"
to = "b"
rate = "10 Mbps"
delay = { first = "5 ms", last = "7 ms" }
limit = "1 BDP"
[flow.f]
from = "a"
to = "b"
law = "newreno"
start = "100 ms"
stop = "1 s"
[variant.near]
link.wire.delay = "1 ms"
[variant.far]
"link.wire.delay" = "30 ms"
[grid.loss]
set = "link.wire.loss"
to = [0.0001, 0.01]
"#;

    fn scenario() -> Scenario {
        Scenario::parse("toy/one.toml", FILE, &[] as &[&str]).unwrap()
    }

    fn neighbour(neighbour: &Neighbour) -> Scenario {
        neighbour.of(&scenario(), Path::new("toy/one.toml")).unwrap()
    }

    fn parse(text: &str) -> Neighbourhood {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn each_value_is_a_neighbour() {
        let all = parse(
            "seeds = 2\nstarts = 1\nround-trips = [0.9, 1.1]\n[settings]\n\"link.wire.limit\" = [\"2 BDP\"]\n\"flow.*.sack\" = [true]\n[points.late]\n\"flow.f.start\" = \"1 s\"\n",
        );
        let names: Vec<String> = all.neighbours(5).unwrap().iter().map(Neighbour::to_string).collect();
        assert_eq!(
            names,
            [
                "seed 6",
                "seed 7",
                "starts 1",
                "round trips × 0.9",
                "round trips × 1.1",
                "link.wire.limit = 2 BDP",
                "flow.*.sack = true",
                "late"
            ]
        );
        assert!(all.mistake().is_none() && all.neighbours(i64::MAX as u64).is_err());
    }

    #[test]
    fn what_makes_no_neighbourhood_is_told() {
        for (text, wrong) in [
            ("", "the reason for none"),
            ("seeds = 1\nonce = \"x\"", "has no neighbours"),
            ("round-trips = [0.0]", "over 0"),
            ("[settings]\n\"duration\" = \"3 s\"", "list of values"),
        ] {
            assert!(parse(text).mistake().is_some_and(|said| said.contains(wrong)), "{text}");
        }
        assert!(parse("once = \"1000 honest runs\"").mistake().is_none());
    }

    #[test]
    fn delays_and_what_follows_from_them_are_scaled_in_every_variant() {
        let (base, nearer) = (scenario(), neighbour(&Neighbour::RoundTrips(0.9)));
        let names =
            |scenario: &Scenario| scenario.variants().iter().map(|v| v.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&base), names(&nearer));
        for (a, b) in base.variants().iter().zip(nearer.variants()) {
            for (flow, nearer) in a.plan.flows.iter().zip(&b.plan.flows) {
                let ratio = nearer.path.base_rtt.as_secs_f64() / flow.path.base_rtt.as_secs_f64();
                assert!((ratio - 0.9).abs() < 1e-6, "{ratio} in {}", a.name);
                assert_eq!(flow.start, nearer.start);
            }
            let limit = |plan: &tollway_scenario::plan::Plan| format!("{:?}", plan.links[0].law.limit);
            assert_ne!(limit(&a.plan), limit(&b.plan), "a BDP is the neighbour's");
        }
    }

    #[test]
    fn starts_move_by_up_to_a_round_trip_alike_in_all_variants() {
        let base = scenario();
        let (one, two) = (neighbour(&Neighbour::Starts(1)), neighbour(&Neighbour::Starts(2)));
        let moved = |scenario: &Scenario, v: usize| -> Vec<f64> {
            let flows = scenario.variants()[v].plan.flows.iter().zip(&base.variants()[v].plan.flows);
            flows.map(|(b, a)| (b.start.0 - a.start.0) as f64 / a.path.base_rtt.0 as f64).collect()
        };
        let parts = moved(&one, 0);
        assert!(parts.iter().all(|part| (0.0..1.0).contains(part)) && parts[0] != parts[1], "{parts:?}");
        assert_ne!(parts, moved(&two, 0));
        for (a, b) in parts.iter().zip(moved(&one, 1)) {
            assert!((a - b).abs() < 1e-4, "{a} and {b}");
        }
    }

    #[test]
    fn a_draw_is_the_same_each_time_and_another_for_another_experiment() {
        let all = || parse("seeds = 40").neighbours(1).unwrap();
        assert_eq!(draw("a/b", all(), 1), draw("a/b", all(), 1));
        assert_eq!(draw("a/b", all(), 3).len(), 3);
        assert_eq!(draw("a/b", all(), 99), all());
        let drawn: std::collections::BTreeSet<String> =
            ["a/b", "a/c", "x/y"].iter().map(|name| draw(name, all(), 1)[0].to_string()).collect();
        assert!(drawn.len() > 1, "{drawn:?}");
    }
}
