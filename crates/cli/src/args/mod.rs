//! The command line.

mod examples;
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
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use tollway_law::Bytes;
use tollway_report::plot;
use tollway_scenario::run::{EngineKind, Hosting};

use examples::{
    COMPARE_EXAMPLES, EXAMPLES, KEYS_EXAMPLES, REPRODUCE_EXAMPLES, REPRODUCE_MORE, RUN_EXAMPLES, RUN_MORE,
    SWEEP_EXAMPLES, SWEEP_MORE, THEORY_EXAMPLES, VERIFY_EXAMPLES, VERIFY_MORE,
};
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
    /// Parses the command line. Ends the process if it is wrong or asks for help.
    pub(crate) fn read() -> Args {
        let matches = grouped(Args::command()).try_get_matches();
        let read =
            matches.and_then(|m| Args::from_arg_matches(&m).map_err(|e| e.format(&mut Args::command())));
        read.unwrap_or_else(|error| told(error).exit())
    }
}

/// Sets a help text that lists the subcommands by purpose.
fn grouped(command: clap::Command) -> clap::Command {
    let heading = command.get_styles().get_header().to_owned();
    let name = command.get_styles().get_literal().to_owned();
    let mut template = String::from("{about-with-newline}\n{usage-heading} {usage}\n");
    for (title, names) in GROUPS {
        template += &format!("\n{heading}{title}:{heading:#}\n");
        for found in names.iter().filter_map(|name| command.find_subcommand(name)) {
            let about = found.get_about().map(ToString::to_string).unwrap_or_default();
            template += &format!("  {name}{:<9}{name:#}  {about}\n", found.get_name());
        }
    }
    template += &format!("\n{heading}Options:{heading:#}\n{{options}}{{after-help}}");
    command.help_template(template)
}

/// The subcommands by purpose.
const GROUPS: [(&str, &[&str]); 3] = [
    ("Simulate", &["run", "sweep", "compare", "theory", "verify", "reproduce", "schema"]),
    ("Measure programs over emulated networks", &["exec", "shell", "clean"]),
    ("Operate", &["shape", "switch", "overlay", "keys"]),
];

/// The error, with the command to type where it is known.
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

/// Parses an address with a port. The host is a number or a name; IPv4 is preferred among a name's
/// addresses.
///
/// # Errors
/// A message on the mistake, with the right form.
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
        // The last part of an IPv6 address is no port.
        Some((host, port)) if !host.contains(':') => (host, port),
        _ => return Err(format!("it has no port, or no host; {right}")),
    };
    let port: u16 = port.parse().map_err(|_| format!("`{port}` is no port; {right}"))?;
    let found: Vec<_> =
        (host, port).to_socket_addrs().map_err(|error| format!("`{host}`: {error}; {right}"))?.collect();
    let first = found.iter().find(|address| address.is_ipv4()).or(found.first());
    first.copied().ok_or_else(|| format!("`{host}` has no address; {right}"))
}

/// The largest integer of a scenario file.
pub(crate) const MOST_SEED: u64 = i64::MAX as u64;

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
    /// End and remove what runs that were killed have left behind.
    ///
    /// That is programs of `tollway exec`, and names of namespaces.
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
    #[command(flatten)]
    pub(crate) pictures: Pictures,
    /// Write what crosses links as a pcapng file for Wireshark; with several variants, one for each.
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// Capture this link only (`*` stands for any characters). May be given several times.
    #[arg(long, value_name = "LINK", requires = "pcap")]
    pub(crate) pcap_link: Vec<String>,
    /// Show rates, queues and prices in the terminal while it runs.
    #[arg(long)]
    pub(crate) watch: bool,
    /// Serve the same to Prometheus while it runs, at http://ADDR/metrics.
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
    /// Parquet.
    Parquet,
}

/// The formats of pictures, where some are drawn.
#[derive(Debug, clap::Args)]
pub(crate) struct Pictures {
    /// The formats of pictures, beside the page.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "png", value_name = "FORMAT")]
    picture: Vec<Picture>,
}

impl Pictures {
    pub(crate) fn formats(&self) -> Vec<plot::Picture> {
        let format = |picture: &Picture| match picture {
            Picture::Png => plot::Picture::Png,
            Picture::Svg => plot::Picture::Svg,
            Picture::Pdf => plot::Picture::Pdf,
        };
        self.picture.iter().map(format).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Picture {
    /// Pixels, for screens.
    Png,
    /// Lines, for browsers and drawing programs.
    Svg,
    /// Lines, for papers.
    Pdf,
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
    #[command(flatten)]
    pub(crate) pictures: Pictures,
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
    /// Draw a column over a varied key, as `x=KEY,y=COLUMN`; `by=` names what has a curve each,
    /// `of=` the flows or links that count, `log=` the logarithmic axes, `file=` the picture (PNG,
    /// SVG or PDF by its ending). May be given several times.
    #[arg(long = "plot", value_name = "x=KEY,y=COLUMN")]
    pub(crate) plots: Vec<String>,
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
    #[command(flatten)]
    pub(crate) pictures: Pictures,
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

/// Run random networks under a law, and hold each against what the law aims at.
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
    use super::*;

    #[test]
    fn every_command_is_in_one_group_and_fits_its_line() {
        let command = Args::command();
        for found in command.get_subcommands() {
            let groups = GROUPS.iter().filter(|(_, names)| names.contains(&found.get_name()));
            assert_eq!(groups.count(), 1, "{}", found.get_name());
            let about = found.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(about.chars().count() <= 87 && !about.is_empty(), "{}: {about}", found.get_name());
        }
    }

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
