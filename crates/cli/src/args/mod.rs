//! The command line.

#[cfg(target_os = "linux")]
mod exec;
#[cfg(target_os = "linux")]
mod overlay;
#[cfg(target_os = "linux")]
mod shape;
#[cfg(target_os = "linux")]
mod switch;

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue};
use clap::{Parser, Subcommand, ValueEnum};
use tollway_law::Bytes;
use tollway_scenario::run::{EngineKind, Hosting};

#[cfg(target_os = "linux")]
pub(crate) use exec::{Exec, Over, Shell};
#[cfg(target_os = "linux")]
pub(crate) use overlay::{Overlay, OverlayCommand};
#[cfg(target_os = "linux")]
pub(crate) use shape::{Backend, Shape, ShapeCommand, StoreAccess};
#[cfg(target_os = "linux")]
pub(crate) use switch::{Switch, SwitchCommand};

/// Run networks whose links tell senders what they can carry: simulated, or with real packets.
///
/// A scenario is a TOML file: nodes, links, flows, what happens on the way, what to compare. `scenarios/` has examples, and
/// docs/src/first-ten-minutes.md writes one step by step.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Args {
    /// Reads the command line; ends the process where it is wrong, or asks for help.
    pub(crate) fn read() -> Args {
        Args::try_parse().unwrap_or_else(|error| told(error).exit())
    }
}

/// The error, with what to type where that is known.
fn told(mut error: clap::Error) -> clap::Error {
    #[cfg(target_os = "linux")]
    if error.exit_code() != 0
        && let Some(slip) = exec::slip(std::env::args_os())
    {
        return clap::Error::raw(clap::error::ErrorKind::MissingRequiredArgument, slip);
    }
    if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand)
        && word.ends_with(".toml")
    {
        let tip = format!("to run a scenario, write `tollway run {word}`");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// An address with its port: of a host by number or by name. Of a name's addresses one of IPv4 is taken, if it has some.
///
/// # Errors
/// It is none, and what to write.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let right = "write it like `127.0.0.1:9100`, `localhost:9100` or `[::1]:9100`; port 0 is any free one";
    let (host, port) = match text.rsplit_once(':') {
        Some(("", port)) => {
            return Err(format!(
                "no host is named: `127.0.0.1:{port}` is this machine only, `0.0.0.0:{port}` every network it is in"
            ));
        }
        // The end of an address of IPv6 is no port.
        Some((host, port)) if !host.contains(':') => (host, port),
        _ => return Err(format!("it has no port, or no host; {right}")),
    };
    let port: u16 = port.parse().map_err(|_| format!("`{port}` is no port; {right}"))?;
    let found: Vec<_> =
        (host, port).to_socket_addrs().map_err(|error| format!("`{host}`: {error}; {right}"))?.collect();
    let first = found.iter().find(|address| address.is_ipv4()).or(found.first());
    first.copied().ok_or_else(|| format!("`{host}` has no address; {right}"))
}

/// Scenario files have no greater whole numbers.
pub(crate) const MOST_SEED: u64 = i64::MAX as u64;

const EXAMPLES: &str = "\
Examples:
  tollway run scenarios/quickstart.toml                      # tables in the terminal
  tollway run scenarios/quickstart.toml --out out/quickstart # and a page, a picture, CSV, Arrow
  tollway reproduce xcp                                      # a paper's claims, held against ours

`tollway run --help` says more of each option.
Exit status: 0 all went well; 1 a run failed or a claim is unmet; 2 the input is wrong; 130 Ctrl-C.";

const RUN_EXAMPLES: &str = "\
Examples:
  tollway run mine.toml
  tollway run mine.toml --out out/mine                       # then open out/mine/NAME.html
  tollway run mine.toml --set link.bottleneck.rate=20Mbps --set 'flow.*.law=cubic'
  tollway run mine.toml --engine live                        # real packets, in real time
  tollway run mine.toml --seed 7 --json | jq '.flows[].rate_mbps'";

const KEYS_EXAMPLES: &str = "\
Example:
  tollway keys a r b                                         # a.key, r.key, b.key
  tollway run three.toml --engine live --node a --at … --key a.key

What is sealed, and what that costs: docs/src/security.md.
Exit status: 0 all went well; 1 a file cannot be written; 2 a name is wrong, or its file exists.";

const RUN_MORE: &str = "\
Examples:
  tollway run mine.toml
      Prints a row a flow and a row a link, variants side by side.
  tollway run mine.toml --out out/mine
      Also writes out/mine/NAME.html to look at, NAME.png, and in a folder a variant the tables
      flows, links (a row an interval), control (a row a control interval of XCP's links) and
      summary, link_summary (a row a run) as CSV and Arrow.
  tollway run mine.toml --set link.bottleneck.rate=20Mbps --set 'flow.*.law=cubic'
      Sets keys otherwise than the file does; `*` stands for every name. Quote it for the shell.
  tollway run mine.toml --engine live
      The same on real datagrams between sockets on loopback: it takes as long as it says, and
      prints how late it was (docs/src/live.md).
  tollway run mine.toml --engine live --hosts namespaces
      The same with a network namespace for each node and veth pairs between them, where the
      kernel's own TCP runs on the same links; its counters account for every packet.
  tollway run mine.toml --engine live --watch --metrics 127.0.0.1:9100
      Shows what happens while it happens: in the terminal, and for Prometheus.
  tollway run mine.toml --seed 7 --json | jq '.flows[].rate_mbps'
      One JSON object on standard output and nothing else.
  tollway run mine.toml --pcap out/mine.pcapng --pcap-link 'bottleneck*'
      Writes what crosses these links for Wireshark (docs/src/captures.md).

What keys a scenario has: docs/src/scenario-reference.md. What columns the tables have:
docs/src/columns.md. Ctrl-C ends a run early and prints the results up to there.

Exit status: 0 all went well; 1 the run failed; 2 the file or an option is wrong; 130 Ctrl-C.";

const REPRODUCE_EXAMPLES: &str = "\
Examples:
  tollway reproduce --list
  tollway reproduce xcp/validation                           # one experiment
  tollway reproduce xcp --json                               # all of a paper's, for a program
  tollway reproduce --engine live xcp                        # real packets beside simulated ones";

const REPRODUCE_MORE: &str = "\
Examples:
  tollway reproduce --list
      Names the experiments, each with its title.
  tollway reproduce
      Runs everything, and puts all figures with their claims on one page: out/papers/index.html.
  tollway reproduce xcp/validation
      Runs one and its neighbours, prints a row a claim (expected, measured, and met, FRAGILE or
      UNMET with how often it holds) and draws its figure.
  tollway reproduce xcp --json
      Runs all of a paper's: {\"claims\": [{\"id\", \"status\", \"expected\", \"measured\", \"source\",
      \"reading\", \"neighbourhood\", \"neighbours\": [{\"at\", \"status\", \"measured\", \"value\"}]}],
      \"met\": n, \"fragile\": n, \"unmet\": n, \"skipped\": n}. A claim is skipped when it compares with
      a program that is not installed.
  tollway reproduce --quick fcp/mixed
      Judges the base only: no claim is then known to hold beside it.
  tollway reproduce --papers mine
      Experiments of your own: scenario files with claims and plots, mine/PAPER/FIGURE.toml.

A claim is met if it holds at the experiment's base and in nine of ten of its neighbours: other
seeds, starts, round trips, and values of what the paper leaves open (docs/src/trust.md).

Exit status: 0 every claim is met (with --check: all stands as it was judged); 1 otherwise, or a run
failed; 2 the input is wrong.";

const SWEEP_EXAMPLES: &str = "\
Examples:
  tollway sweep mine.toml --vary link.bottleneck.rate=10Mbps,20Mbps,50Mbps --seeds 10
  tollway sweep mine.toml --vary flow.f.count=1,2,4,8 --vary 'link.*.law=red,xcp' --out laws.arrow";

const SWEEP_MORE: &str = "\
Examples:
  tollway sweep mine.toml --vary link.bottleneck.rate=10Mbps,20Mbps,50Mbps --seeds 10
      30 runs (times the file's variants): sweep.csv has a row a run and flow, sweep.links.csv a row
      a run and link. sweep.csv.journal says what is done; remove it to start anew.
  tollway sweep mine.toml --vary flow.f.count=1,2,4,8 --vary 'link.*.law=red,xcp' --out laws.arrow
      Every count with every law, as Arrow IPC.
  tollway sweep mine.toml --vary link.bottleneck.rate=10Mbps,20Mbps,50Mbps --seeds 20
      The first again with more seeds: runs the other 30 only.

What the columns are, and how to read them: docs/src/sweeps.md.

Exit status: 0 all went well; 1 a run failed; 2 the input is wrong, or the scenario has changed
since the sweep began; 130 Ctrl-C.";

const COMPARE_EXAMPLES: &str = "\
Examples:
  tollway run mine.toml --out out/a
  tollway run mine.toml --set link.bottleneck.limit=2BDP --out out/b
  tollway compare out/a out/b --out out/a-b
  tollway compare out/quickstart/xcp out/quickstart/fifo --json

Exit status: 0 they were compared, whatever they are; 2 there is nothing to compare.";

const THEORY_EXAMPLES: &str = "\
Examples:
  tollway theory scenarios/parking-lot.toml
  tollway theory mine.toml --set flow.long.count=3 --json

What the allocations are, and which law aims at which: docs/src/theory.md.
Exit status: 0 all went well; 2 the file is wrong, or defines no allocation.";

const VERIFY_EXAMPLES: &str = "\
Examples:
  tollway verify --random 200
  tollway verify --random 1 --seed 17 --keep out/verify     # then tollway run out/verify/17.toml";

const VERIFY_MORE: &str = "\
Examples:
  tollway verify --random 200
      Networks 1 to 200: says how many keep to theory, the worst deviation, and what fails.
  tollway verify --random 1 --seed 17 --keep out/verify
      One network, also written as out/verify/17.toml, to be run and changed like any other file.
  tollway verify --random 50 --json | jq .worst
  tollway verify --starts --law fcp --random 50
      Networks in which flows start and stop: packets lost and the longest queue of each.

Which allocation a law aims at, the tolerances and what is left out: docs/src/theory.md.

Exit status: 0 all within bounds; 1 some are not, or a run failed; 2 the input is wrong;
130 Ctrl-C.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Run),
    Reproduce(Reproduce),
    Sweep(Sweep),
    Compare(Compare),
    Theory(Theory),
    Verify(Verify),
    #[cfg(target_os = "linux")]
    Exec(Exec),
    #[cfg(target_os = "linux")]
    Shell(Shell),
    #[cfg(target_os = "linux")]
    Shape(Shape),
    #[cfg(target_os = "linux")]
    Overlay(Overlay),
    Switch(Switch),
    Keys(Keys),
    /// End and remove what runs that were killed have left behind: programs of `tollway exec`, names of namespaces.
    #[cfg(target_os = "linux")]
    Clean,
    /// Print the JSON Schema of scenario files, for editors that complete and check.
    Schema,
}

/// Run a scenario file and print what each flow and link did.
///
/// A file's variants run beside each other. Simulated results are the same for a seed, on any machine and for any number of
/// jobs.
#[derive(Debug, clap::Args)]
#[command(after_help = RUN_EXAMPLES, after_long_help = RUN_MORE)]
pub(crate) struct Run {
    /// The scenario file.
    pub(crate) file: PathBuf,
    /// Set a key otherwise than the file does, in every variant. May be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) sets: Vec<String>,
    /// Draw every random choice from this seed instead of the file's.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=MOST_SEED))]
    pub(crate) seed: Option<u64>,
    /// Write result tables, a page and a picture to this folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// File formats of the result tables. Arrow IPC is always written.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["arrow", "csv"], requires = "out")]
    pub(crate) format: Vec<Format>,
    /// Write what crosses links as a pcapng file for Wireshark; with several variants, one for each.
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// Capture this link only (`*` stands for any characters). May be given several times.
    #[arg(long, value_name = "LINK", requires = "pcap")]
    pub(crate) pcap_link: Vec<String>,
    /// Show rates, queues and prices in the terminal while it runs; needs a build with the feature `watch`.
    #[arg(long)]
    pub(crate) watch: bool,
    /// Serve the same to Prometheus while it runs, at http://ADDR/metrics; needs a build with the feature `metrics`.
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub(crate) metrics: Option<SocketAddr>,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
    /// No progress and no hints, and no tables unless asked for as JSON.
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// What runs the packets: the simulator, or real datagrams on loopback, in real time.
    #[arg(long, value_enum, default_value_t = Engine::Sim, value_name = "ENGINE")]
    pub(crate) engine: Engine,
    /// What a node is, with --engine live: a socket on loopback, or a network namespace with veth pairs for links.
    #[arg(long, value_enum, default_value_t = Hosts::Loopback, value_name = "HOSTS", conflicts_with = "node")]
    pub(crate) hosts: Hosts,
    /// Be this node of the scenario and no other, with --engine live: each is a process of its own, here or elsewhere.
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<String>,
    /// Where a node's process is reached. May be given several times.
    #[arg(long, value_name = "NODE=HOST:PORT", requires = "node")]
    pub(crate) at: Vec<String>,
    /// Nodes without --at are at ports of 127.0.0.1 from this one on, in the file's order.
    #[arg(long, value_name = "FIRST", requires = "node")]
    pub(crate) ports: Option<u16>,
    /// Give up a flow of this node of which nothing new has come for so long.
    #[arg(long, value_name = "TIME", default_value = "10s", requires = "node")]
    pub(crate) patience: String,
    /// Seal datagrams between nodes with this node's key file, which `tollway keys` makes.
    #[arg(long, value_name = "FILE", requires = "node")]
    pub(crate) key: Option<PathBuf>,
    /// How many variants run at once; 0 means as many as there are processors. Live they run one after the other.
    #[arg(long, short, default_value_t = 0, value_name = "N")]
    pub(crate) jobs: usize,
    /// Refuse a run that would take more memory than this, such as 4GB; 80 % of what is free if it is not given.
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<Bytes>,
    /// What the digest covers: the results, or every packet-hop.
    #[arg(long, value_enum, default_value_t = Digest::Results, value_name = "OF")]
    pub(crate) digest: Digest,
}

/// Make key files with which nodes seal what they send each other.
///
/// Each file has a secret key and the public keys of all other names. It goes to its node's machine and nowhere else.
#[derive(Debug, clap::Args)]
#[command(after_help = KEYS_EXAMPLES)]
pub(crate) struct Keys {
    /// The nodes. Each gets a file NODE.key.
    #[arg(required = true, value_name = "NODE")]
    pub(crate) names: Vec<String>,
    /// Write the files to this folder.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) out: PathBuf,
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
pub(crate) enum Engine {
    /// Virtual time, the same bits for the same seed.
    Sim,
    /// Real datagrams between sockets on loopback, in real time.
    Live,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Hosts {
    /// Every node is a UDP socket on loopback; no privilege is needed.
    Loopback,
    /// Every node is a network namespace: root's, or an ordinary user's where the kernel lets users have them. Linux only.
    Namespaces,
}

impl From<Hosts> for Hosting {
    fn from(hosts: Hosts) -> Hosting {
        match hosts {
            Hosts::Loopback => Hosting::Loopback,
            Hosts::Namespaces => Hosting::Namespaces,
        }
    }
}

impl From<Engine> for EngineKind {
    fn from(engine: Engine) -> EngineKind {
        match engine {
            Engine::Sim => EngineKind::Sim,
            Engine::Live => EngineKind::Live,
        }
    }
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
#[command(after_help = REPRODUCE_EXAMPLES, after_long_help = REPRODUCE_MORE)]
pub(crate) struct Reproduce {
    /// Experiments (`xcp/validation`) or papers (`xcp`); everything if none is named.
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
    /// A folder of experiments instead of those built in.
    #[arg(long, value_name = "DIR", default_value = tollway_report::papers::BUILT_IN, hide_default_value = true)]
    pub(crate) papers: PathBuf,
    /// Judge each experiment's base only.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Judge so many neighbours of each experiment, drawn once and for all, instead of all.
    #[arg(long, value_name = "N", conflicts_with = "quick")]
    pub(crate) neighbours: Option<usize>,
    /// Compare with judgements of before, and these with the list of fragile and unmet claims; exit
    /// 1 if anything differs.
    #[arg(long, value_name = "FILE")]
    pub(crate) check: Option<PathBuf>,
    /// Write the judgements to this file; with names, in the place of those of these experiments.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["quick", "neighbours", "check"])]
    pub(crate) record: Option<PathBuf>,
    /// Real packets instead: run the experiments' live parts in both engines and hold them against each other. It takes
    /// as long as the experiments say.
    #[arg(long, value_enum, default_value_t = Engine::Sim, value_name = "ENGINE")]
    pub(crate) engine: Engine,
    /// What a node is, with --engine live: a socket on loopback, or a network namespace with veth pairs for links.
    #[arg(long, value_enum, default_value_t = Hosts::Loopback, value_name = "HOSTS")]
    pub(crate) hosts: Hosts,
    /// Print only totals and what is fragile or unmet.
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// How many variants or neighbours run at once; 0 means as many as there are processors.
    #[arg(long, short, default_value_t = 0, value_name = "N")]
    pub(crate) jobs: usize,
}

/// Run a scenario with keys and seeds varied, into one table that can be added to.
///
/// A row a run and flow: what was varied, the seed, and the columns of `summary`; links likewise, in a table beside it. Ctrl-C
/// loses nothing: the same command goes on where it was.
#[derive(Debug, clap::Args)]
#[command(after_help = SWEEP_EXAMPLES, after_long_help = SWEEP_MORE)]
pub(crate) struct Sweep {
    /// The scenario file.
    pub(crate) file: PathBuf,
    /// Run with each of these values. Of several, every value with every other's.
    #[arg(long, value_name = "KEY=A,B,C")]
    pub(crate) vary: Vec<String>,
    /// How many seeds each point runs with, from the scenario's on.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seeds: u64,
    /// The first seed, instead of the scenario's.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=MOST_SEED))]
    pub(crate) seed: Option<u64>,
    /// Set a key otherwise than the file does, in every run. May be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) sets: Vec<String>,
    /// The table of flows, CSV or Arrow by its ending; that of links lies beside it.
    #[arg(long, value_name = "FILE", default_value = "sweep.csv")]
    pub(crate) out: PathBuf,
    /// How many runs at once; 0 means as many as there are processors.
    #[arg(long, short, default_value_t = 0, value_name = "N")]
    pub(crate) jobs: usize,
    /// Print nothing.
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// Compare the results of two runs, flow by flow and link by link.
///
/// Takes two folders that `tollway run --out` has written, or two variants' folders in them.
#[derive(Debug, clap::Args)]
#[command(after_help = COMPARE_EXAMPLES)]
pub(crate) struct Compare {
    /// The first folder.
    pub(crate) a: PathBuf,
    /// The second folder; differences are what it has more.
    pub(crate) b: PathBuf,
    /// Draw the two over each other, as a page and a picture, to this folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print what each kind of fairness gives the flows of a scenario, without running it.
///
/// Max–min, proportional, XCP's own equilibrium, and fairness among sessions, each section of flows being one. Of a run that
/// changes on its way, the longest stretch without change is taken.
#[derive(Debug, clap::Args)]
#[command(after_help = THEORY_EXAMPLES)]
pub(crate) struct Theory {
    /// The scenario file.
    pub(crate) file: PathBuf,
    /// Set a key otherwise than the file does, in every variant. May be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) sets: Vec<String>,
    /// Print one JSON object, with the flows of each variant.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Run random networks under a law and hold each against the allocation that the law aims at.
///
/// Every network is a line or a tree of 1 to 5 links with 2 to 10 flows, drawn from a seed of its own.
#[derive(Debug, clap::Args)]
#[command(after_help = VERIFY_EXAMPLES, after_long_help = VERIFY_MORE)]
pub(crate) struct Verify {
    /// How many networks.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) random: u64,
    /// Seed of the first network; the next has the next number, and so on.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=MOST_SEED))]
    pub(crate) seed: u64,
    /// The law of senders and links.
    #[arg(long, value_name = "NAME", default_value = "xcp")]
    pub(crate) law: String,
    /// Judge losses and queues while flows start and stop, on networks of 1 to 7 links behind fast access links.
    #[arg(long)]
    pub(crate) starts: bool,
    /// Also write each network as a scenario file to this folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
    /// Print one JSON object, with a case a network.
    #[arg(long)]
    pub(crate) json: bool,
    /// How many networks run at once; 0 means as many as there are processors.
    #[arg(long, short, default_value_t = 0, value_name = "N")]
    pub(crate) jobs: usize,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_port_or_says_what_to_write() {
        let read = |text| super::address(text).map(|address| address.to_string());
        for (text, address) in [
            ("127.0.0.1:9000", "127.0.0.1:9000"),
            ("[::1]:0", "[::1]:0"),
            ("localhost:9000", "127.0.0.1:9000"),
        ] {
            assert_eq!(read(text).unwrap(), address);
        }
        for (text, why) in [
            (":9000", "`127.0.0.1:9000` is this machine only"),
            ("9000", "no port"),
            ("localhost", "no port"),
            ("::1", "no port"),
            ("localhost:http", "`http` is no port"),
            ("localhost:70000", "`70000` is no port"),
            ("no host:9000", "`no host`: "),
        ] {
            let said = read(text).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
    }

    #[test]
    fn no_line_of_an_example_is_broken_by_the_width_of_help() {
        for command in Args::command().get_subcommands() {
            let texts = [command.get_after_help(), command.get_after_long_help()];
            let texts: Vec<String> = texts.into_iter().flatten().map(ToString::to_string).collect();
            let long = texts.iter().flat_map(|text| text.lines()).find(|line| line.chars().count() > 100);
            assert_eq!(long, None, "{}", command.get_name());
        }
    }

    #[test]
    fn a_file_without_a_command_is_told_of_run() {
        let said = |word| told(Args::try_parse_from(["tollway", word]).unwrap_err()).to_string();
        assert!(said("mine.toml").contains("`tollway run mine.toml`"), "{}", said("mine.toml"));
        assert!(said("rum").contains("'run'"), "{}", said("rum"));
    }
}
