//! `tollway shape`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};

const SHAPE_EXAMPLES: &str = "\
Examples:
  tollway shape check policies.toml
  tollway shape --policy policies.toml --dry-run
  tollway shape --policy policies.toml
  tollway shape status";

const SHAPE_MORE: &str = "\
Examples:
  tollway shape check policies.toml
      Says that the file is right, or what is wrong with it and where.
  tollway shape --policy policies.toml --dry-run
      Looks for a second, prints whose each connection is and what it would have. Sets nothing.
  tollway shape --policy policies.toml
      Paces this machine's TCP connections until Ctrl-C or SIGTERM, then makes them free again.
      The file is watched: what is right is in force within 50 ms and a tick, what is wrong is said
      and changes nothing.
  tollway shape --policy policies.toml --json | jq '.tenants[].sends_mbps'
      An object a second, each on a line.
  tollway shape --policy etcd://10.0.0.1:2379/tollway
      Policies of a store that all hosts read, each what is meant for it.
  tollway shape --policy policies.toml --backend bpf --everywhere
      By programs in the kernel, containers' connections too.
  tollway shape status
      How the agent of this user that runs now stands.
  tollway shape clear
      After the worst: makes every connection free that has a limit.

As root (or with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH; eBPF: CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN
and CAP_SYS_ADMIN) it paces every program's connections; all other rights are given up at the start.
Without, those of your own processes. Which keys policies have: docs/src/policy-reference.md. More:
docs/src/shape.md.

Exit status: 0 all went well; 1 the kernel refused; 2 the policies or an option are wrong.";

/// Share this machine's uplink among tenants: real TCP connections, paced.
///
/// Each tenant has one rate, each of its connections a fair part of it whatever its round trip, and what one does not use
/// the others have. Programs are not changed, and nothing is queued.
#[derive(Debug, clap::Args)]
#[command(after_help = SHAPE_EXAMPLES, after_long_help = SHAPE_MORE, args_conflicts_with_subcommands = true)]
pub(crate) struct Shape {
    #[command(subcommand)]
    pub(crate) command: Option<ShapeCommand>,
    /// The policies: a TOML file, or a store as `etcd://HOST:PORT/PREFIX`, or `etcds://…` by TLS; either is watched.
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) policy: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) store: StoreAccess,
    /// How to see and pace connections. eBPF limits every packet of a tenant, and inet_diag paces programs that cooperate.
    #[arg(long, value_enum, default_value_t = Backend::Auto)]
    pub(crate) backend: Backend,
    /// Connections of every network namespace, such as containers', and not only of this one; with eBPF.
    #[arg(long)]
    pub(crate) everywhere: bool,
    /// Look this often instead of as the policies say: `15ms`.
    #[arg(long, value_name = "TIME")]
    pub(crate) tick: Option<String>,
    /// Look for a second, say what would be set, and set nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print a JSON object a second, each on a line.
    #[arg(long)]
    pub(crate) json: bool,
    /// Show tenants and connections in the terminal.
    #[arg(long, conflicts_with_all = ["json", "dry_run"])]
    pub(crate) watch: bool,
    /// Serve the same to Prometheus, at http://ADDR/metrics.
    #[arg(long, value_name = "ADDR", value_parser = super::address)]
    pub(crate) metrics: Option<SocketAddr>,
    /// Where the agent can be asked how it stands, instead of in the user's runtime folder.
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Be the process without rights that the agent starts.
    #[arg(long, hide = true)]
    pub(crate) worker: bool,
}

/// What it takes to be let into a store of policies.
#[derive(Debug, clap::Args)]
pub(crate) struct StoreAccess {
    /// A user of the store's; with `--store-password`.
    #[arg(long, value_name = "NAME", requires = "store_password")]
    pub(crate) store_user: Option<String>,
    /// A file with nothing but the user's password.
    #[arg(long, value_name = "FILE", requires = "store_user")]
    pub(crate) store_password: Option<PathBuf>,
    /// The certificate of the authority that signed the store's, PEM; for `etcds://`.
    #[arg(long, value_name = "FILE")]
    pub(crate) store_ca: Option<PathBuf>,
    /// Our own certificate, PEM, for a store that asks for one; with `--store-key`.
    #[arg(long, value_name = "FILE", requires = "store_key")]
    pub(crate) store_cert: Option<PathBuf>,
    /// The key of our own certificate, PEM.
    #[arg(long, value_name = "FILE", requires = "store_cert")]
    pub(crate) store_key: Option<PathBuf>,
}

impl StoreAccess {
    /// True if any option of a store is given.
    pub(crate) fn is_given(&self) -> bool {
        self.store_user.is_some() || self.store_ca.is_some() || self.store_cert.is_some()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// Ask for connections, and borrow their sockets.
    InetDiag,
    /// Programs in the kernel; Linux 6.12 or later.
    Bpf,
    /// eBPF, or inet_diag where that can't be had.
    Auto,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ShapeCommand {
    /// Say how the agent that runs stands: tenants, connections, what each has and what holds it back.
    Status {
        /// Print the agent's JSON object.
        #[arg(long)]
        json: bool,
        /// Where the agent is asked, if not in the user's runtime folder.
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
    },
    /// Check policies, and say what is wrong with them.
    Check {
        /// The policies.
        file: PathBuf,
    },
    /// Make every connection free that has a pace set, whoever set it.
    Clear,
    /// Wait for the agent's end, then free what it has paced.
    #[command(hide = true)]
    Guard {
        /// What programs in the kernel have paced.
        #[arg(long)]
        bpf: bool,
        /// In every network namespace.
        #[arg(long)]
        everywhere: bool,
        /// The file of what is paced.
        #[arg(long, default_value = "")]
        record: PathBuf,
    },
}
