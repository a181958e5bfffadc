//! The arguments of `tollway sweep`.

use std::path::PathBuf;

use tollway_report::sweep::Part;

use super::MOST_SEED;
use super::examples::{SWEEP_EXAMPLES, SWEEP_MORE};

/// Run a scenario with many values and seeds, into one table that later runs extend.
///
/// The table has a row per run and flow: the varied keys, the seed, and the columns of `summary`. A
/// second table has a row per run and link. After Ctrl-C, the same command continues the sweep.
#[derive(Debug, clap::Args)]
#[command(after_help = SWEEP_EXAMPLES, after_long_help = SWEEP_MORE)]
pub(crate) struct Sweep {
    /// The scenario file.
    pub(crate) file: PathBuf,
    /// Run with each of these values. Given several times, run every combination.
    #[arg(long, value_name = "KEY=A,B,C")]
    pub(crate) vary: Vec<String>,
    /// Number of seeds for each point, from the scenario's on.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seeds: u64,
    /// The first seed, instead of the scenario's.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=MOST_SEED))]
    pub(crate) seed: Option<u64>,
    /// Override a key of the file in every run. May be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) sets: Vec<String>,
    /// Table of flows, CSV or Arrow by its file extension. The table of links is written beside it.
    #[arg(long, value_name = "FILE", default_value = "sweep.csv")]
    pub(crate) out: PathBuf,
    /// Draw a column over a varied key, as `x=KEY,y=COLUMN`. `by=` sets the curves, `of=` selects
    /// flows or links, `log=` the logarithmic axes, `file=` the picture (PNG, SVG or PDF by its
    /// extension). May be given several times.
    #[arg(long = "plot", value_name = "x=KEY,y=COLUMN")]
    pub(crate) plots: Vec<String>,
    /// Do every N-th run only, from the K-th on, for one of N machines. The same command without
    /// this option then writes the tables.
    #[arg(long, value_name = "K/N", conflicts_with = "plots")]
    pub(crate) part: Option<Part>,
    /// Number of runs in parallel; 0 means one for each processor.
    #[arg(long, short, default_value_t = 0, value_name = "N")]
    pub(crate) jobs: usize,
    /// Print nothing.
    #[arg(long, short)]
    pub(crate) quiet: bool,
}
