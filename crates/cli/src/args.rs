//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

/// Simulate networks whose links tell senders what they can carry.
///
/// A scenario is a TOML file: nodes, links, flows, what happens on the way, what to compare.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  tollway run scenarios/quickstart.toml --out out/quickstart
  tollway run scenarios/quickstart.toml --set link.bottleneck.rate=20Mbps --json
  tollway reproduce xcp/validation

Exit status: 0 all went well, 1 a claim is unmet or a run failed, 2 the input is wrong, 130 interrupted.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Run),
    Reproduce(Reproduce),
    /// Print the JSON Schema of scenario files, for editors that complete and check.
    Schema,
}

/// Run a scenario file and print what each flow and link did.
///
/// Variants of a file run beside each other. Results are the same for a seed, on any machine and for any number of jobs.
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// The scenario file.
    pub(crate) file: PathBuf,
    /// Set a key otherwise than the file does, in every variant: `link.bottleneck.rate=20Mbps`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) sets: Vec<String>,
    /// Draw every random choice from this seed instead of the file's.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Write result tables, a page and a picture to this folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// File formats of the result tables. Arrow IPC is always written.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["arrow", "csv"], requires = "out")]
    pub(crate) format: Vec<Format>,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
    /// No progress and no hints, and no tables unless asked for as JSON.
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// How many variants run at once; 0 means as many as there are processors.
    #[arg(long, short, default_value_t = 0, value_name = "N")]
    pub(crate) jobs: usize,
    /// What the digest covers: the results, or every packet-hop.
    #[arg(long, value_enum, default_value_t = Digest::Results)]
    pub(crate) digest: Digest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Arrow IPC files (Feather version 2).
    Arrow,
    /// Comma-separated values.
    Csv,
    /// Parquet; needs a build with the feature `parquet`.
    Parquet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Digest {
    /// Counters and rows of the results.
    Results,
    /// Every packet-hop: when, where, what.
    Packets,
}

/// Run the papers' experiments and hold the results against what the papers claim.
///
/// Names are an experiment (`xcp/validation`) or a paper (`xcp`); without a name, everything.
#[derive(Debug, clap::Args)]
pub(crate) struct Reproduce {
    /// Experiments or papers.
    pub(crate) names: Vec<String>,
    /// List the experiments there are.
    #[arg(long)]
    pub(crate) list: bool,
    /// Print the claims as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Where figures are written.
    #[arg(long, value_name = "DIR", default_value = "out/papers")]
    pub(crate) out: PathBuf,
    /// The experiments' folder.
    #[arg(long, value_name = "DIR", default_value = "papers")]
    pub(crate) papers: PathBuf,
    /// Compare the unmet claims with those listed in this file; exit 1 if the two differ in either direction.
    #[arg(long, value_name = "FILE")]
    pub(crate) check_unmet: Option<PathBuf>,
    /// Print only totals and what is unmet.
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// How many variants run at once; 0 means as many as there are processors.
    #[arg(long, short, default_value_t = 0, value_name = "N")]
    pub(crate) jobs: usize,
}
