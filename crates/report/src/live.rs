//! `[[live]]` tables of experiment files.

use serde::Deserialize;

/// A part of an experiment that runs on real packets too, and how near the engines must come.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct LiveClaim {
    /// The claims' name.
    pub id: String,
    /// What they say, for people.
    #[serde(default)]
    pub says: String,
    /// The variants that run; all if none is named.
    #[serde(default)]
    pub variants: Vec<String>,
    /// Keys set otherwise than the file does, as `key=value`.
    #[serde(default)]
    pub set: Vec<String>,
    /// The flows whose rates are compared, by name with `*`: all of a pattern together. Each flow by itself if none is named.
    #[serde(default)]
    pub flows: Vec<String>,
    /// How far a mean rate may be from the simulator's, percent.
    #[serde(default = "five")]
    pub rate_percent: f64,
    /// How far a link's mean queueing delay may be from the simulator's, percent,
    #[serde(default = "ten")]
    pub queue_percent: f64,
    /// or this, in milliseconds, if it is more.
    #[serde(default = "half")]
    pub queue_ms: f64,
    /// The other side is the kernel's own TCP over emulated links ([`kernel`](crate::kernel)), instead of our machines on sockets.
    pub kernel: Option<Bounds>,
}

/// How near the simulator's TCP must come to the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Bounds {
    /// All flows' goodput together, percent.
    #[serde(default = "ten")]
    pub goodput_percent: f64,
    /// The mean time between a window's reductions, percent.
    #[serde(default = "twenty")]
    pub period_percent: f64,
    /// Jain's index, where there are several flows.
    #[serde(default = "one_twentieth")]
    pub jain: f64,
    /// How many variants run beside each other, each in namespaces of its own.
    #[serde(default = "one")]
    pub at_once: usize,
}

fn five() -> f64 {
    5.0
}

fn ten() -> f64 {
    10.0
}

fn half() -> f64 {
    0.5
}

fn twenty() -> f64 {
    20.0
}

fn one_twentieth() -> f64 {
    0.05
}

fn one() -> usize {
    1
}
