//! The command line.

#[cfg(target_os = "linux")]
mod agent;
mod engine;
mod examples;
#[cfg(target_os = "linux")]
mod exec;
#[cfg(target_os = "linux")]
mod host;
#[cfg(target_os = "linux")]
mod overlay;
#[cfg(target_os = "linux")]
mod router;
#[cfg(target_os = "linux")]
mod shape;
mod sweep;
#[cfg(target_os = "linux")]
mod switch;

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use tollway_law::Bytes;
use tollway_report::plot::{self, PictureOptions};

#[cfg(target_os = "linux")]
pub(crate) use agent::{AgentOptions, Log, StatusOptions};
pub(crate) use engine::{Engine, Hosts};
use examples::{
    COMPARE_EXAMPLES, EXAMPLES, KEYS_EXAMPLES, REPRODUCE_EXAMPLES, REPRODUCE_MORE, RUN_EXAMPLES, RUN_MORE,
    THEORY_EXAMPLES, VERIFY_EXAMPLES, VERIFY_MORE,
};
#[cfg(target_os = "linux")]
pub(crate) use exec::{Exec, Over, Shell};
#[cfg(target_os = "linux")]
pub(crate) use host::{Host, HostCommand, KernelLaw};
#[cfg(target_os = "linux")]
pub(crate) use overlay::{Overlay, OverlayCommand};
#[cfg(target_os = "linux")]
pub(crate) use router::{Router, RouterCommand};
#[cfg(target_os = "linux")]
pub(crate) use shape::{Backend, Shape, ShapeCommand, StoreAccess};
pub(crate) use sweep::Sweep;
#[cfg(target_os = "linux")]
pub(crate) use switch::{Switch, SwitchCommand};

/// Run networks with explicit rate control, in which links tell senders their rates.
///
/// A scenario is a TOML file with nodes, links, flows, changes during the run, and variants to
/// compare. Examples are in `scenarios/`; `tollway docs first-ten-minutes` writes one step by
/// step.
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

/// The completions of the command line for `shell`.
pub(crate) fn completions(shell: clap_complete::Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "tollway", &mut text);
    text
}

/// Writes the man pages of all commands to `folder`.
pub(crate) fn man_pages(folder: &std::path::Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(Args::command().name("tollway"), folder)
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
            template += &format!("  {name}{:<11}{name:#}  {about}\n", found.get_name());
        }
    }
    template += &format!("\n{heading}Options:{heading:#}\n{{options}}{{after-help}}");
    command.help_template(template)
}

/// The subcommands by purpose.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Simulate", &["run", "sweep", "compare", "theory", "verify", "reproduce", "schema"]),
    ("Measure programs over emulated networks", &["exec", "shell", "clean"]),
    ("Operate", &["router", "host", "shape", "switch", "overlay", "keys"]),
    ("Read, set up a shell", &["docs", "completions", "man"]),
];

/// The error, with the command to type if it can be derived.
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
                "the host is missing: `127.0.0.1:{port}` is this machine only, `0.0.0.0:{port}` all its networks"
            ));
        }
        // The last part of an IPv6 address is no port.
        Some((host, port)) if !host.contains(':') => (host, port),
        _ => return Err(format!("a host or a port is missing; {right}")),
    };
    let port: u16 = port.parse().map_err(|_| format!("`{port}` is not a port; {right}"))?;
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
    Host(Host),
    #[cfg(target_os = "linux")]
    Router(Router),
    #[cfg(target_os = "linux")]
    Shape(Shape),
    #[cfg(target_os = "linux")]
    Overlay(Overlay),
    Switch(Switch),
    Keys(Keys),
    /// End programs, and remove namespaces and limits, that killed runs have left behind.
    #[cfg(target_os = "linux")]
    Clean,
    /// Print the JSON Schema of scenario files, for editors that complete and check.
    Schema,
    /// Print a chapter of the book, or the line of a key.
    ///
    /// `tollway docs` lists the chapters; `tollway docs link.law` prints one key.
    Docs {
        /// The chapter, or the key as `SECTION.KEY`.
        name: Option<String>,
    },
    /// Print completions for a shell.
    ///
    /// `tollway completions bash > ~/.local/share/bash-completion/completions/tollway`
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write a man page for each command to a folder.
    ///
    /// `tollway man ~/.local/share/man/man1`
    Man {
        /// The folder.
        folder: PathBuf,
    },
}

/// Run a scenario file and print results for each flow and link.
///
/// A file's variants run in parallel. Simulated results depend only on the file and the seed, not
/// on the machine or the number of jobs.
#[derive(Debug, clap::Args)]
#[command(after_help = RUN_EXAMPLES, after_long_help = RUN_MORE)]
pub(crate) struct Run {
    /// The scenario file.
    pub(crate) file: PathBuf,
    /// Override a key of the file in every variant. May be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) sets: Vec<String>,
    /// Seed of all random choices, instead of the file's.
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
    /// Write the links' packets to a pcapng file for Wireshark; one file for each variant.
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// Capture only this link (`*` matches any characters). May be given several times.
    #[arg(long, value_name = "LINK", requires = "pcap")]
    pub(crate) pcap_link: Vec<String>,
    /// Show rates, queues and prices in the terminal during the run.
    #[arg(long)]
    pub(crate) watch: bool,
    /// Serve rates, queues and prices to Prometheus during the run, at http://ADDR/metrics.
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub(crate) metrics: Option<SocketAddr>,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print no progress, no hints and no tables; JSON only with --json.
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// The engine: the simulator, or real datagrams in real time.
    #[arg(long, value_enum, default_value_t = Engine::Sim, value_name = "ENGINE")]
    pub(crate) engine: Engine,
    /// With --engine live, the form of a node: a socket on loopback, or a network namespace, with
    /// veth pairs as links.
    #[arg(long, value_enum, default_value_t = Hosts::Loopback, value_name = "HOSTS", conflicts_with = "node")]
    pub(crate) hosts: Hosts,
    /// With --engine live, run only this node. Each node is a separate process, on this machine or
    /// another.
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<String>,
    /// Address of a node's process. May be given several times.
    #[arg(long, value_name = "NODE=HOST:PORT", requires = "node")]
    pub(crate) at: Vec<String>,
    /// First port of the nodes without --at: they use ports of 127.0.0.1 from this one on, in the
    /// file's order.
    #[arg(long, value_name = "FIRST", requires = "node")]
    pub(crate) ports: Option<u16>,
    /// Give up a flow of this node after this time without progress.
    #[arg(long, value_name = "TIME", default_value = "10s", requires = "node")]
    pub(crate) patience: String,
    /// Encrypt datagrams between nodes with this node's key file, made by `tollway keys`.
    #[arg(long, value_name = "FILE", requires = "node")]
    pub(crate) key: Option<PathBuf>,
    /// Number of variants that run in parallel; 0 means one for each processor. With --engine live,
    /// one runs at a time.
    #[arg(long, short, default_value_t = 0, value_name = "N")]
    pub(crate) jobs: usize,
    /// Refuse a run that needs more memory than this, such as 4GB. Default: 80 % of the free
    /// memory.
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<Bytes>,
    /// Scope of the digest: the results, or every packet-hop.
    #[arg(long, value_enum, default_value_t = Digest::Results, value_name = "OF")]
    pub(crate) digest: Digest,
}

/// Make key files that encrypt the datagrams between nodes.
///
/// Each file has a secret key and the public keys of all other nodes. Copy it to its node's machine
/// and to no other.
#[derive(Debug, clap::Args)]
#[command(after_help = KEYS_EXAMPLES)]
pub(crate) struct Keys {
    /// Names of the nodes; each has a file NODE.key.
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

#[derive(Debug, clap::Args)]
pub(crate) struct Pictures {
    /// File formats of pictures, which are written beside the page.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "png", value_name = "FORMAT")]
    picture: Vec<Picture>,
    /// Size of pictures, in pixels of a standard screen [default: by the content].
    #[arg(long, value_name = "WIDTHxHEIGHT", value_parser = size)]
    picture_size: Option<(u32, u32)>,
    /// Rows of pictures, by number on the page [default: six panels].
    #[arg(long, value_delimiter = ',', value_name = "NUMBER")]
    picture_rows: Vec<usize>,
    /// Title of pictures; empty for none [default: the file's].
    #[arg(long, value_name = "TITLE")]
    picture_title: Option<String>,
}

/// `640x360`.
fn size(text: &str) -> Result<(u32, u32), String> {
    let number = |text: &str| text.parse().ok().filter(|n| (1..=10_000).contains(n));
    let size = text.split_once('x').and_then(|(width, height)| Some((number(width)?, number(height)?)));
    size.ok_or_else(|| "write two numbers up to 10000, such as `640x360`".to_owned())
}

impl Pictures {
    pub(crate) fn options(&self) -> PictureOptions {
        let format = |picture: &Picture| match picture {
            Picture::Png => plot::Picture::Png,
            Picture::Svg => plot::Picture::Svg,
            Picture::Pdf => plot::Picture::Pdf,
        };
        PictureOptions {
            formats: self.picture.iter().map(format).collect(),
            size: self.picture_size,
            rows: self.picture_rows.clone(),
            title: self.picture_title.clone(),
        }
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
pub(crate) enum Digest {
    /// Counters and rows of the results.
    Results,
    /// Every packet-hop: time, place and packet.
    Packets,
}

/// Run the papers' experiments and check the papers' claims on the results.
///
/// A name is an experiment (`xcp/validation`) or a paper (`xcp`). Without a name, everything runs.
#[derive(Debug, clap::Args)]
#[command(after_help = REPRODUCE_EXAMPLES, after_long_help = REPRODUCE_MORE)]
pub(crate) struct Reproduce {
    /// Experiments (`xcp/validation`) or papers (`xcp`). Default: all.
    pub(crate) names: Vec<String>,
    /// List the experiments.
    #[arg(long)]
    pub(crate) list: bool,
    /// Print the claims as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Folder for the figures.
    #[arg(long, value_name = "DIR", default_value = "out/papers")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) pictures: Pictures,
    /// Folder of experiments instead of the built-in ones.
    #[arg(long, value_name = "DIR", default_value = tollway_report::papers::BUILT_IN, hide_default_value = true)]
    pub(crate) papers: PathBuf,
    /// Judge only each experiment's base.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Judge N neighbours of each experiment, a fixed random choice, instead of all.
    #[arg(long, value_name = "N", conflicts_with = "quick")]
    pub(crate) neighbours: Option<usize>,
    /// Compare with recorded judgements, and these with the list of fragile and unmet claims. Exit
    /// 1 if anything differs.
    #[arg(long, value_name = "FILE")]
    pub(crate) check: Option<PathBuf>,
    /// Write the judgements to this file. With names, replace only those experiments' judgements.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["quick", "neighbours", "check"])]
    pub(crate) record: Option<PathBuf>,
    /// With `live`: run the experiments' live parts in both engines and compare the results, in
    /// real time.
    #[arg(long, value_enum, default_value_t = Engine::Sim, value_name = "ENGINE")]
    pub(crate) engine: Engine,
    /// With --engine live, the form of a node: a socket on loopback, or a network namespace, with
    /// veth pairs as links.
    #[arg(long, value_enum, default_value_t = Hosts::Loopback, value_name = "HOSTS")]
    pub(crate) hosts: Hosts,
    /// Print only totals and the claims that are fragile or unmet.
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Number of variants or neighbours that run in parallel; 0 means one for each processor.
    #[arg(long, short, default_value_t = 0, value_name = "N")]
    pub(crate) jobs: usize,
}

/// Compare the results of two runs, flow by flow and link by link.
///
/// The results are two folders written by `tollway run --out`, or folders of two variants.
#[derive(Debug, clap::Args)]
#[command(after_help = COMPARE_EXAMPLES)]
pub(crate) struct Compare {
    /// The first folder.
    pub(crate) a: PathBuf,
    /// The second folder. Differences are its values minus the first's.
    pub(crate) b: PathBuf,
    /// Draw both runs in one picture and a page, in this folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) pictures: Pictures,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print the ideal rates of a scenario's flows under each kind of fairness.
///
/// The kinds are max–min, proportional, XCP's own equilibrium, and fairness among sessions (each
/// section of flows is a session). If a run has changes, the longest stretch without one is used.
#[derive(Debug, clap::Args)]
#[command(after_help = THEORY_EXAMPLES)]
pub(crate) struct Theory {
    /// The scenario file.
    pub(crate) file: PathBuf,
    /// Override a key of the file in every variant. May be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) sets: Vec<String>,
    /// Print one JSON object, with the flows of each variant.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Run random networks under a law, and compare each with the law's ideal allocation.
///
/// Each network is a line or a tree of 1 to 5 links with 2 to 10 flows, drawn from a separate seed.
#[derive(Debug, clap::Args)]
#[command(after_help = VERIFY_EXAMPLES, after_long_help = VERIFY_MORE)]
pub(crate) struct Verify {
    /// Number of networks.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) random: u64,
    /// Seed of the first network; each further network has the next number.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=MOST_SEED))]
    pub(crate) seed: u64,
    /// The law of senders and links.
    #[arg(long, value_name = "NAME", default_value = "xcp")]
    pub(crate) law: String,
    /// Judge losses and queues while flows start and stop, on networks of 1 to 7 links with fast
    /// access links.
    #[arg(long)]
    pub(crate) starts: bool,
    /// Also write each network as a scenario file to this folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
    /// Print one JSON object with a case for each network.
    #[arg(long)]
    pub(crate) json: bool,
    /// Number of networks that run in parallel; 0 means one for each processor.
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
            assert!(about.chars().count() <= 85 && !about.is_empty(), "{}: {about}", found.get_name());
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
            ("9000", "a port is missing"),
            ("localhost", "a port is missing"),
            ("::1", "a port is missing"),
            ("localhost:http", "`http` is not a port"),
            ("localhost:70000", "`70000` is not a port"),
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
