//! `tollway switch`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Subcommand;

const SWITCH_EXAMPLES: &str = "\
Examples:
  tollway switch --listen 127.0.0.1:6400 --frames resp --to 127.0.0.1:6379,127.0.0.1:6380
  tollway switch --config switch.toml
  tollway switch status
  tollway switch keygen a b m1 m2
  tollway switch --listen :5000 --frames lines --bind 10.0.0.1:7100 --peer b=10.1.0.1:7200 \\
      --keys a.key";

const SWITCH_MORE: &str = "\
Examples:
  tollway switch --listen 127.0.0.1:6400 --frames resp --to 127.0.0.1:6379,127.0.0.1:6380
      Commands of each Redis connection go to the server that has their key.
  tollway switch --listen :601 --frames octet-counting --to 10.0.0.1:601,10.0.0.2:601
      A syslog sender's one connection is spread over two collectors.
  tollway switch --listen :50 --frames u16 --policy by-key --key 4..20 --to 10.0.0.1:50,10.0.0.2:50
      Messages with a length of two bytes before them, by the bytes 4 to 19 of each.
  tollway switch check switch.toml
      Says that the file is right and what memory its limits take, or what is wrong and where.
  tollway switch --config switch.toml --watch
      Runs until `q`, Ctrl-C or SIGTERM. The file is watched: a right one is in force within 0.2 s,
      a wrong one is reported and changes nothing.
  tollway switch drain a
      Member `a` gets no new frames; what it has is answered, then its connections are closed.

Between sites, one connection is spread without being ended on the way:
  tollway switch keygen a b m1 m2
      A key file for each of four machines.
  tollway switch --listen :5000 --frames lines --bind 10.0.0.1:7100 --peer b=10.1.0.1:7200 \\
      --keys a.key
      At site A: TCP clients, each with a session to the switch of site B.
  tollway switch --bind 10.1.0.1:7200 --peer a=10.0.0.1:7100 \\
      --member m1=10.1.0.2:7300,m2=10.1.0.3:7300 --keys b.key
      At site B: spreads the frames of each session over two members.
  tollway switch --bind 10.1.0.2:7300 --peer b=10.1.0.1:7200 --to 127.0.0.1:6000 --frames lines \\
      --keys m1.key
      Beside each server: ends the session, and speaks TCP to the server.

All keys of the file, framing, limits and what is counted: docs/src/switch.md;
between sites: docs/src/sites.md.

Exit status: 0 all went well; 1 the system refused; 2 the configuration or an option is wrong.";

/// Spread the messages of one connection over many servers, and merge the answers.
///
/// Servers and clients are not changed. Each message goes to a member of the cluster, by key, in turn, or to the least loaded;
/// none is lost silently.
#[derive(Debug, clap::Args)]
#[command(after_help = SWITCH_EXAMPLES, after_long_help = SWITCH_MORE, args_conflicts_with_subcommands = true)]
pub(crate) struct Switch {
    #[command(subcommand)]
    pub(crate) command: Option<SwitchCommand>,
    /// The configuration, a TOML file; it is watched.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "frames", "policy", "key", "answers", "retry", "to", "bind", "peer", "member", "keys", "law"])]
    pub(crate) config: Option<PathBuf>,
    /// Where clients connect: `127.0.0.1:5000`, or `:5000` for every address of this machine.
    #[arg(long, value_name = "ADDR", value_delimiter = ',', required_unless_present_any = ["config", "bind"])]
    pub(crate) listen: Vec<String>,
    /// How connections are cut: u16, u32, u16le, u32le (with `,inclusive`, `,offset=N`, `,uncounted=N`), lines, nul, octet-counting, resp.
    #[arg(long, value_name = "KIND", required_unless_present_any = ["config", "bind"])]
    pub(crate) frames: Option<String>,
    /// The member that a message goes to: round-robin, by-key, least-loaded, sticky.
    #[arg(long, value_name = "POLICY")]
    pub(crate) policy: Option<String>,
    /// Where a message's key is: `4..20` for bytes, `field=3` for a word.
    #[arg(long, value_name = "WHERE")]
    pub(crate) key: Option<String>,
    /// How members answer: any, in-order, none.
    #[arg(long, value_name = "ORDER")]
    pub(crate) answers: Option<String>,
    /// Whether a message that a failed member left unanswered is sent to another: never, idempotent.
    #[arg(long, value_name = "WHEN")]
    pub(crate) retry: Option<String>,
    /// The members; beside --bind, the server.
    #[arg(long, value_name = "MEMBER,…", value_delimiter = ',', required_unless_present_any = ["config", "bind"])]
    pub(crate) to: Vec<String>,
    /// Between sites: this part's UDP address, as its neighbours have it.
    #[arg(long, value_name = "ADDR", requires = "peer", requires = "keys", conflicts_with_all = ["key", "retry", "secret"])]
    pub(crate) bind: Option<String>,
    /// Between sites: the neighbours on the clients' side, or the switch of the other site.
    #[arg(long, value_name = "NAME=ADDR,…", value_delimiter = ',', requires = "bind")]
    pub(crate) peer: Vec<String>,
    /// Between sites: the members, each a part with --to beside its server.
    #[arg(long, value_name = "NAME=ADDR,…", value_delimiter = ',', requires = "bind")]
    pub(crate) member: Vec<String>,
    /// Between sites: the key file of this part, made by `keygen`.
    #[arg(long, value_name = "FILE", requires = "bind")]
    pub(crate) keys: Option<String>,
    /// Between sites: the law of what this part sends: newreno, cubic, dctcp, bbr, scalable; in a file also xcp and fcp.
    #[arg(long, value_name = "LAW", requires = "bind")]
    pub(crate) law: Option<String>,
    /// A file of 16 bytes, the secret of the keyed hash; switches with the same send a key to the same member. Default: drawn anew.
    #[arg(long, value_name = "FILE")]
    pub(crate) secret: Option<PathBuf>,
    /// Print a JSON object a second, each on a line.
    #[arg(long)]
    pub(crate) json: bool,
    /// Show members and clients in the terminal.
    #[arg(long, conflicts_with = "json")]
    pub(crate) watch: bool,
    /// Serve the same to Prometheus, at http://ADDR/metrics.
    #[arg(long, value_name = "ADDR", value_parser = super::address)]
    pub(crate) metrics: Option<SocketAddr>,
    /// Show the same in the browser, on this machine only.
    #[arg(long, value_name = "ADDR", value_parser = super::address)]
    pub(crate) view: Option<SocketAddr>,
    /// Where the switch can be asked how it stands, instead of in the user's runtime folder.
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SwitchCommand {
    /// Say how the switch that runs stands: members, clients, what was counted.
    Status {
        /// Print its JSON object.
        #[arg(long)]
        json: bool,
        /// Where it is asked, if not in the user's runtime folder.
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
    },
    /// Make the keys of parts between sites: a file NAME.key for each, with the public keys of the others.
    Keygen {
        /// The parts' names.
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// Write the files to this folder.
        #[arg(long, value_name = "DIR", default_value = ".")]
        out: PathBuf,
    },
    /// Check a configuration, and say what is wrong with it.
    Check {
        /// The configuration.
        file: PathBuf,
    },
    /// Have a member get no new messages.
    Drain {
        /// Its name.
        member: String,
        /// Have it get some again.
        #[arg(long)]
        undo: bool,
        /// Where the switch is asked, if not in the user's runtime folder.
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
    },
}
