//! `tollway switch`.

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
      Sends each Redis command to the server that holds its key.
  tollway switch --listen :601 --frames octet-counting --to 10.0.0.1:601,10.0.0.2:601
      Spreads one syslog connection over two collectors.
  tollway switch --listen :50 --frames u16 --policy by-key --key 4..20 --to 10.0.0.1:50,10.0.0.2:50
      Messages with a two-byte length in front; bytes 4 to 19 of each are its key.
  tollway switch check switch.toml
      Checks the file, prints the memory that its limits need, or each mistake with its place.
  tollway switch --config switch.toml --watch
      Runs until `q`, Ctrl-C or SIGTERM. Changes of the file take effect within 0.2 s; a mistake is
      reported and changes nothing.
  tollway switch drain a
      Sends member `a` no new frames, waits for its answers, then closes its connections.
  tollway switch add c=10.0.0.3:601 --weight 2
      Adds a member while sessions run; `remove c` takes it out, `weight c 1` changes its share.

Between sites, one connection is spread without being terminated in between:
  tollway switch keygen a b m1 m2
      Makes a key file for each of four machines.
  tollway switch --listen :5000 --frames lines --bind 10.0.0.1:7100 --peer b=10.1.0.1:7200 \\
      --keys a.key
      At site A: TCP clients, each with a session to the switch of site B.
  tollway switch --bind 10.1.0.1:7200 --peer a=10.0.0.1:7100 \\
      --member m1=10.1.0.2:7300,m2=10.1.0.3:7300 --keys b.key
      At site B: spreads the frames of each session over two members.
  tollway switch --bind 10.1.0.2:7300 --peer b=10.1.0.1:7200 --to 127.0.0.1:6000 --frames lines \\
      --keys m1.key
      Beside each server: ends the session, and speaks TCP to the server.

Framing, policies and counters: `tollway docs switch`; all keys:
`tollway docs switch-reference`; between sites: `tollway docs sites`.

Exit status: 0 success; 1 a system error; 2 the configuration or an option is wrong.";

/// Spread the messages of one connection over many servers, and merge the answers.
///
/// Servers and clients are not changed. Each message goes to one member of the cluster: by key, in
/// turn, or to the least loaded.
#[derive(Debug, clap::Args)]
#[command(after_help = SWITCH_EXAMPLES, after_long_help = SWITCH_MORE, args_conflicts_with_subcommands = true)]
pub(crate) struct Switch {
    #[command(subcommand)]
    pub(crate) command: Option<SwitchCommand>,
    /// Configuration, a TOML file; changes take effect while the switch runs.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "frames", "policy", "key", "answers", "retry", "on_failure", "secret", "to", "bind", "peer", "member", "keys", "law"])]
    pub(crate) config: Option<PathBuf>,
    /// Address for clients: `127.0.0.1:5000`, or `:5000` for every address of this machine.
    #[arg(long, value_name = "ADDR", value_delimiter = ',', required_unless_present_any = ["config", "bind"])]
    pub(crate) listen: Vec<String>,
    /// Framing of messages: u16, u32, u16le, u32le (with `,inclusive`, `,offset=N`,
    /// `,uncounted=N`), lines, nul, octet-counting, resp.
    #[arg(long, value_name = "KIND", required_unless_present_any = ["config", "bind"])]
    pub(crate) frames: Option<String>,
    /// Choice of the member for a message: round-robin, by-key, least-loaded, sticky.
    #[arg(long, value_name = "POLICY")]
    pub(crate) policy: Option<String>,
    /// Position of a message's key: `4..20` for bytes, `field=3` for a word.
    #[arg(long, value_name = "WHERE")]
    pub(crate) key: Option<String>,
    /// Answers of members: any, in-order, none.
    #[arg(long, value_name = "ORDER")]
    pub(crate) answers: Option<String>,
    /// Messages that a failed member left unanswered and that are sent to another: never,
    /// idempotent.
    #[arg(long, value_name = "WHEN")]
    pub(crate) retry: Option<String>,
    /// Messages whose member is down, with by-key: error, so that each key stays at its member, or
    /// move. Default of resp: error.
    #[arg(long, value_name = "WHAT")]
    pub(crate) on_failure: Option<String>,
    /// Addresses of the members; with --bind, of the server.
    #[arg(long, value_name = "MEMBER,…", value_delimiter = ',', required_unless_present_any = ["config", "bind"])]
    pub(crate) to: Vec<String>,
    /// Between sites: UDP address of this part, at which its neighbours reach it.
    #[arg(long, value_name = "ADDR", requires = "peer", requires = "keys", conflicts_with = "retry")]
    pub(crate) bind: Option<String>,
    /// Between sites: neighbours on the clients' side, or the switch of the other site.
    #[arg(long, value_name = "NAME=ADDR,…", value_delimiter = ',', requires = "bind")]
    pub(crate) peer: Vec<String>,
    /// Between sites: members, each a part with --to next to its server.
    #[arg(long, value_name = "NAME=ADDR,…", value_delimiter = ',', requires = "bind")]
    pub(crate) member: Vec<String>,
    /// Between sites: key file of this part, made by `keygen`.
    #[arg(long, value_name = "FILE", requires = "bind")]
    pub(crate) keys: Option<String>,
    /// Between sites: law of this part's sender: newreno, cubic, dctcp, bbr, scalable; in a file
    /// also xcp and fcp.
    #[arg(long, value_name = "LAW", requires = "bind")]
    pub(crate) law: Option<String>,
    /// File of 16 bytes, the secret of the keyed hash. Switches with the same secret send a key to
    /// the same member. Default: a public hash.
    #[arg(long, value_name = "FILE")]
    pub(crate) secret: Option<String>,
    #[command(flatten)]
    pub(crate) agent: super::AgentOptions,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SwitchCommand {
    /// Print the state of the running switch: members, clients, counters.
    Status(super::StatusOptions),
    /// Make key files of parts between sites: NAME.key for each, with the public keys of the
    /// others.
    Keygen {
        /// Names of the parts.
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// Write the files to this folder.
        #[arg(long, value_name = "DIR", default_value = ".")]
        out: PathBuf,
    },
    /// Check a configuration, and report mistakes.
    Check {
        /// The configuration file.
        file: PathBuf,
    },
    /// Stop sending new messages to a member.
    Drain {
        /// Name of the member.
        member: String,
        /// Send messages to it again.
        #[arg(long)]
        undo: bool,
        /// Path of the control socket. Default: in the user's runtime folder.
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
    },
    /// Add a member while sessions run, until the file changes.
    Add {
        /// Its name and address; between sites, the name of its key.
        #[arg(value_name = "NAME=ADDR")]
        member: String,
        /// Its share of keys, sessions and turns.
        #[arg(long, default_value_t = 1)]
        weight: u32,
        /// Path of the control socket. Default: in the user's runtime folder.
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
    },
    /// Drain a member and take it out of the cluster, until the file changes.
    Remove {
        /// Name of the member.
        member: String,
        /// Path of the control socket. Default: in the user's runtime folder.
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
    },
    /// Change the weight of a member, until the file changes.
    Weight {
        /// Name of the member.
        member: String,
        /// Its share of keys, sessions and turns, 1 to 100.
        weight: u32,
        /// Path of the control socket. Default: in the user's runtime folder.
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
    },
}
