//! The `[[live]]` tables of experiment files.

use serde::Deserialize;

/// A part of an experiment that also runs on real packets, with its tolerances.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct LiveClaim {
    /// The claims' common id.
    pub id: String,
    /// The claims' statement, as text.
    #[serde(default)]
    pub says: String,
    /// The engine beside the simulator.
    #[serde(default)]
    pub engine: RealEngine,
    /// With the engine `kernel`: claims of the file to judge there, as patterns with `*`.
    #[serde(default)]
    pub claims: Vec<String>,
    /// With the engine `kernel`: the scenario of a third run, of the kernel's CUBIC, whose values
    /// stand beside.
    pub cubic: Option<Cubic>,
    /// With the engine `kernel`: links with an explicit law are those of `tollway router`, at the
    /// interfaces of the nodes where they end.
    #[serde(default)]
    pub router: bool,
    /// The variants to run; all if empty.
    #[serde(default)]
    pub variants: Vec<String>,
    /// Keys with other values than in the file, as `key=value`.
    #[serde(default)]
    pub set: Vec<String>,
    /// The flows whose rates are compared, as patterns with `*`, each with the sum of its flows. If
    /// empty, each flow is compared alone.
    #[serde(default)]
    pub flows: Vec<String>,
    /// Tolerance of a mean rate, in percent of the simulator's.
    #[serde(default = "five")]
    pub rate_percent: f64,
    /// Tolerance of a link's mean queueing delay, in percent of the simulator's.
    #[serde(default = "ten")]
    pub queue_percent: f64,
    /// Tolerance of a link's mean queueing delay, in milliseconds. The larger of the two applies.
    #[serde(default = "half")]
    pub queue_ms: f64,
    /// Compares with the kernel's own TCP over emulated links
    /// ([`kernel_agreement`](crate::kernel_agreement)), instead of Tollway's machines on sockets.
    pub kernel: Option<Tolerances>,
}

/// The difference between a comparison's scenario and that of CUBIC.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Cubic {
    /// Keys with other values, as `key=value`.
    pub set: Vec<String>,
    /// Tables of the file that it does not have: `host`.
    #[serde(default)]
    pub without: Vec<String>,
}

/// An engine with real packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RealEngine {
    /// Tollway's machines on sockets.
    #[default]
    Live,
    /// Every flow over the kernel's TCP, by the programs of `tollway host`.
    Kernel,
}

/// The tolerances between the simulator's TCP and the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Tolerances {
    /// Tolerance of the sum of all flows' goodputs, in percent.
    #[serde(default = "ten")]
    pub goodput_percent: f64,
    /// Tolerance of the mean time between a window's reductions, in percent.
    #[serde(default = "twenty")]
    pub period_percent: f64,
    /// Tolerance of Jain's index, for several flows.
    #[serde(default = "one_twentieth")]
    pub jain: f64,
    /// Number of variants that run at once, each in separate namespaces.
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
