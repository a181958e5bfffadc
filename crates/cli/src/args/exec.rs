//! `tollway exec` and `tollway shell`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use tollway_exec::{PROFILES, two_nodes};

const EXEC_USAGE: &str = "\
tollway exec [OPTIONS] --link <WORDS> -- <PROGRAM>...
       tollway exec [OPTIONS] <FILE> -- <PROGRAM>...
       tollway exec [OPTIONS] --link <WORDS> --listen <PORT>=<NODE>:<PORT>";

const EXEC_EXAMPLES: &str = "\
Examples:
  tollway exec --link '20Mbps 40ms' --serve 'python3 -m http.server' -- curl http://server:8000/
  tollway exec --link 'trace=cell.down 30ms codel' --link-up 5Mbps -- ./my-client
  tollway exec --link '10Mbps 20ms' --serve 'iperf3 -s' -- iperf3 -c server
  tollway exec --profile lte --set link.down.jitter=5ms -- curl http://server/
  tollway exec office.toml --node branch --serve hq='iperf3 -s' -- iperf3 -c hq";

const EXEC_MORE: &str = "\
Examples:
  tollway exec --link '20Mbps 40ms' --serve 'python3 -m http.server' -- curl http://server:8000/
      Runs a web server at `server`, the other end, from before the program's start until after its
      end. Without `--serve`, programs that listen for TCP here are reachable there.
  tollway exec --link 'trace=cell.down 30ms codel' --link-up 5Mbps -- ./my-client
      Towards the program at the rates of a recording, from it at a constant rate. The delay is
      30 ms each way.
  tollway exec --link '10Mbps 20ms limit=1BDP loss=0.1%' --serve 'iperf3 -s' -- iperf3 -c server
      A queue of one bandwidth-delay product, and random loss on the wire.
  tollway exec --link 1Gbps --publish 80:8080 --json -- wget -qO- http://server/
      Publishes only this machine's port 8080, as port 80 of `server`. The program's output goes to
      standard error; standard output has one JSON object.
  tollway exec --link '2Mbps 300ms' --outside -- curl https://example.com/
      The Internet behind a slow link; needs `passt` or `slirp4netns`.
  tollway exec --link '20Mbps 40ms xcp' --tcp xcp --serve 'iperf3 -s' -- iperf3 -c server
      The kernel's TCP speaks XCP with the link, in unmodified programs.
  tollway exec --link '2Mbps 150ms' --serve ./my-server --listen 9000=server:8000
      A browser on this machine reaches the server's port 8000 over the link, at 127.0.0.1:9000.
      With `0.0.0.0:9000=server:8000`, so does a phone on the same network. Without `--serve`, that
      is port 8000 of this machine.
  tollway exec --link '2Mbps 150ms' --localhost 8000 -- ./my-client
      The program's http://localhost:8000 is port 8000 of `server`, over the link.
  tollway exec --profile lte --serve ./my-server --tls 443:8000 -- curl https://server/
      Port 443 of `server` speaks TLS for port 8000 there. curl, Python and Node trust it without
      further options.
  tollway exec --mahimahi 'mm-delay 40 mm-link up.trace down.trace' -- ./my-client
      The same network as Mahimahi's shells.
  tollway exec --link '20Mbps 20ms' --view -- ./my-client
      Prints the address of a page with live charts and sliders that change the links during the
      run.
  tollway exec office.toml --node branch --serve hq='iperf3 -s' -- iperf3 -c hq
      A scenario's network: every node has a name and an address; the scenario's flows do not run.

No privilege is needed if the kernel allows user namespaces. Without --outside, no packet leaves
this machine. More: `tollway docs exec`.

Exit status: the program's; 128 plus the signal's number if a signal ended it; 124 after --timeout;
125 if the network cannot be set up, 126 or 127 if the program cannot be started; 2 if the command
line is wrong.";

/// The end of the long help: the words of a link, and examples.
fn more() -> String {
    let (mut laws, mut used) = ("Laws:".to_owned(), 5);
    for law in tollway_exec::laws() {
        let end = if used + law.len() > 94 { "\n " } else { " " };
        laws += &format!("{end}{law},");
        used = if end == " " { used + law.len() + 2 } else { law.len() + 2 };
    }
    let laws = laws.trim_end_matches(',');
    format!("{LINK_WORDS}\n{laws}.\n\n{EXEC_MORE}")
}

const LINK_WORDS: &str = "\
Words of --link: a rate (`20Mbps`) or `trace=FILE`, a one-way delay (`40ms`), a law, and
`key=value` with any key of `[link.NAME]` in `tollway docs links-reference` (`loss=1%`,
`jitter=5ms`, `limit=100packets`, `codel.target=10ms`).";

/// The options that describe a network in words.
const WORDS: [&str; 3] = ["link", "mahimahi", "profile"];

/// The network of `tollway exec` and `tollway shell`.
#[derive(Debug, clap::Args)]
pub(crate) struct Over {
    /// Scenario file with the network, if no link is given in words.
    #[arg(conflicts_with_all = WORDS, required_unless_present_any = WORDS)]
    pub(crate) file: Option<PathBuf>,
    /// Link from `server` to the program, and back: rate or trace=FILE, one-way delay, law,
    /// key=value.
    #[arg(long, value_name = "WORDS", conflicts_with = "mahimahi")]
    pub(crate) link: Option<String>,
    /// Link from the program to `server`, if it differs.
    #[arg(long, value_name = "WORDS", requires = "link")]
    pub(crate) link_up: Option<String>,
    /// Chain of Mahimahi shells instead: mm-delay, mm-link, mm-loss.
    #[arg(long, value_name = "SHELLS", conflicts_with = "profile")]
    pub(crate) mahimahi: Option<String>,
    /// Measured network instead. `--set link.down.rate=…` and the like change it.
    #[arg(long, value_name = "NAME", conflicts_with = "link", value_parser = PROFILES.map(|profile| profile.name))]
    pub(crate) profile: Option<String>,
    /// Node at which the program runs. Default: the file's first.
    #[arg(long, value_name = "NODE", requires = "file")]
    pub(crate) node: Option<String>,
    /// Variant of the file. Default: its first.
    #[arg(long, value_name = "NAME", requires = "file")]
    pub(crate) variant: Option<String>,
    /// Override a key of the file, or of the links (`link.down.…`, `link.up.…`). May be given
    /// several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) sets: Vec<String>,
    /// Seed of all random choices.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=super::MOST_SEED))]
    pub(crate) seed: Option<u64>,
    /// Another name of a node, for certificates, cookies and virtual hosts:
    /// `server=api.example.com`. May be given several times.
    #[arg(long = "name", value_name = "NODE=NAME")]
    pub(crate) names: Vec<String>,
    /// Run this shell command at a node during the program. Default: `server`. May be given several
    /// times.
    #[arg(long, value_name = "[NODE=]COMMAND")]
    pub(crate) serve: Vec<String>,
    /// Forward a node's port to a port of this machine, or `none`, or `all` TCP ports in use.
    /// Default: `all`, unless --serve is given. May be given several times.
    #[arg(long, value_name = "[NODE:]PORT[:PORT HERE][/udp]")]
    pub(crate) publish: Vec<String>,
    /// Accept TCP connections at a port of this machine, and carry each over the network to a
    /// node's port, from the program's node or this one. Default address: 127.0.0.1. May be given
    /// several times. Without a program, the run lasts until Ctrl-C or --timeout.
    #[arg(long, value_name = "[ADDR:]PORT=NODE:PORT[@NODE]")]
    pub(crate) listen: Vec<String>,
    /// Carry TCP connections to a port of the program's own localhost over the network: to the same
    /// port of `server`, or to another node's port. May be given several times.
    #[arg(long, value_name = "PORT[=NODE:PORT[@NODE]]")]
    pub(crate) localhost: Vec<String>,
    /// Terminate TLS at a node's port, with a certificate for the node's names, and forward to its
    /// other port. Default node: `server`. The program trusts the certificate through the usual
    /// variables. May be given several times.
    #[arg(long, value_name = "[NODE:]PORT:PORT")]
    pub(crate) tls: Vec<String>,
    /// Connect the network to the outside, behind `server` or this NODE, with name resolution.
    /// Needs `passt` (with its `pasta`) or `slirp4netns`.
    #[arg(long, value_name = "NODE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub(crate) outside: Option<String>,
    /// Run every connection of the program and the servers under this law, in the kernel's own TCP.
    /// Needs root, and links with the same law.
    #[arg(long, value_enum, value_name = "LAW")]
    pub(crate) tcp: Option<super::KernelLaw>,
    /// Set a network parameter of the kernel at every node: `net.ipv4.tcp_congestion_control=bbr`.
    /// May be given several times.
    #[arg(long = "sysctl", value_name = "KEY=VALUE")]
    pub(crate) sysctls: Vec<String>,
    /// Stop the program after this time: `30s`, `5 min`, or a number of seconds.
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<String>,
    /// Print one JSON object on standard output; the program's output goes to standard error.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a page, a picture and tables of rates and queues over time to this folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) pictures: super::Pictures,
    /// Write the program's packets as a pcap file for Wireshark.
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// Serve a page with live charts of rates, queues and round trips, and sliders for rate, delay
    /// and loss of each link. Default address: a free port of this machine.
    #[arg(long, value_name = "ADDR", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:0", value_parser = super::address)]
    pub(crate) view: Option<SocketAddr>,
    /// Print only warnings, no report.
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// Run a program over an emulated network, and report what happened to its packets.
///
/// The program can be any; its packets are the kernel's. Links and laws are those of a scenario.
#[derive(Debug, clap::Args)]
#[command(after_help = EXEC_EXAMPLES, after_long_help = more(), override_usage = EXEC_USAGE)]
pub(crate) struct Exec {
    #[command(flatten)]
    pub(crate) over: Over,
    /// The program and its arguments. May be left out with --listen.
    #[arg(last = true, required_unless_present = "listen", value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

/// Open a shell at a node of an emulated network.
///
/// The same as `tollway exec` with your shell as the program.
#[derive(Debug, clap::Args)]
pub(crate) struct Shell {
    #[command(flatten)]
    pub(crate) over: Over,
}

/// A message on a command line of `tollway exec` without a network, or without `--` and `--listen`,
/// with the remedy; `None` if it has both, or an unknown option.
pub(super) fn slip(arguments: impl Iterator<Item = OsString>) -> Option<String> {
    let words: Vec<String> = arguments.skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let ("exec", rest) = words.split_first().map(|(command, rest)| (&**command, rest))? else {
        return None;
    };
    let known = Exec::augment_args(clap::Command::new("exec"));
    let (mut at, mut network, mut listens, mut options) = (0, false, false, Vec::new());
    while let Some(word) = rest.get(at).filter(|word| *word != "--") {
        if !word.starts_with('-') {
            if network || !word.ends_with(".toml") {
                break;
            }
            network = true;
            options.push(quoted(word));
            at += 1;
            continue;
        }
        let name = word.split('=').next()?;
        let option = known.get_arguments().find(|option| {
            let long = option.get_long().is_some_and(|long| name.strip_prefix("--") == Some(long));
            long || option.get_short().is_some_and(|short| *name == format!("-{short}"))
        })?;
        let apart = option.get_action().takes_values() && !option.is_require_equals_set() && name == word;
        network |= matches!(name, "--link" | "--mahimahi" | "--profile");
        listens |= name == "--listen";
        // The parser takes a word with an initial `-` as an option, not as this option's value.
        let value = rest.get(at + 1).filter(|value| apart && value.starts_with('-'));
        if let Some(value) = value.filter(|_| matches!(name, "--link" | "--link-up")) {
            return Some(match value.starts_with("--") {
                true => format!("no words stand after `{name}`\n\n  write: {name} '20Mbps 40ms'{MORE}"),
                false => {
                    let up = (name == "--link-up").then_some(&**value);
                    let error = two_nodes(up.map_or(value, |_| ""), up, 1).err()?;
                    format!("{error}\n\n  {}{MORE}", error.help)
                }
            });
        }
        let end = (at + 1 + usize::from(apart)).min(rest.len());
        options.extend(rest[at..end].iter().map(|word| quoted(word)));
        at = end;
    }
    let program = rest.get(at..)?;
    let (wrong, program) = match program {
        [dashes, program @ ..] if dashes == "--" && !network => ("no network is given", program),
        [dashes, ..] if dashes == "--" => return None,
        [] if listens && network => return None,
        [] if listens => ("no network is given", program),
        [] => ("no program is given", program),
        _ if !network => ("no network is given, and no `--` stands before the program", program),
        _ => ("no `--` stands before the program", program),
    };
    if !network {
        options.push("--link '20Mbps 40ms'".into());
    }
    let program: Vec<String> = program.iter().map(|word| quoted(word)).collect();
    let program = match program.is_empty() {
        true if listens => String::new(),
        true => " -- PROGRAM".into(),
        false => format!(" -- {}", program.join(" ")),
    };
    let else_file = if network { "" } else { ", or with a scenario file in place of `--link …`" };
    Some(format!("{wrong}\n\n  write: tollway exec {}{program}{else_file}{MORE}", options.join(" ")))
}

/// The end of a message, in clap's form.
const MORE: &str = "\n\nFor more information, try '--help'.\n";

/// A word, quoted for a shell if needed.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}
