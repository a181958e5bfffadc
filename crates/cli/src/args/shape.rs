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
      Checks the file, and reports each mistake with its place.
  tollway shape --policy policies.toml --dry-run
      Observes for a second, and prints each connection's tenant and pace. Sets nothing.
  tollway shape --policy policies.toml
      Paces this machine's TCP connections until Ctrl-C or SIGTERM, then removes the paces. Changes
      of the file take effect within 50 ms and a tick; a mistake is reported and changes nothing.
  tollway shape --policy policies.toml --json | jq '.tenants[].sends_mbps'
      One object per second, each on a line.
  tollway shape --policy etcd://10.0.0.1:2379/tollway
      Policies from a store that all hosts read; each host uses its own part.
  tollway shape --policy policies.toml --backend bpf --everywhere
      With programs in the kernel, which also pace containers' connections.
  tollway shape status
      The state of this user's running agent.
  tollway shape clear
      The last resort: removes the pace of every connection.

As root (or with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH; eBPF: CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN
and CAP_SYS_ADMIN) it paces every program's connections, and drops all other privileges at the
start. Otherwise it paces only your own processes. Keys of policies:
`tollway docs policy-reference`. More: `tollway docs shape`.

Exit status: 0 success; 1 the kernel refused; 2 the policies or an option are wrong.";

/// Share this machine's uplink among tenants by pacing real TCP connections.
///
/// Each tenant has one rate, divided fairly over its connections whatever their round trips. Others
/// use what one tenant leaves unused. Programs are not changed, and no packet is queued.
#[derive(Debug, clap::Args)]
#[command(after_help = SHAPE_EXAMPLES, after_long_help = SHAPE_MORE, args_conflicts_with_subcommands = true)]
pub(crate) struct Shape {
    #[command(subcommand)]
    pub(crate) command: Option<ShapeCommand>,
    /// Policies: a TOML file, or a store as `etcd://HOST:PORT/PREFIX`, or `etcds://…` with TLS.
    /// Changes take effect while the agent runs.
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) policy: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) store: StoreAccess,
    /// Method to find and pace connections. eBPF limits every packet of a tenant; inet_diag paces
    /// programs that cooperate.
    #[arg(long, value_enum, default_value_t = Backend::Auto)]
    pub(crate) backend: Backend,
    /// Pace connections of every network namespace, such as those of containers; needs eBPF.
    #[arg(long)]
    pub(crate) everywhere: bool,
    /// Interval between two looks at the connections, instead of the policies': `15ms`.
    #[arg(long, value_name = "TIME")]
    pub(crate) tick: Option<String>,
    /// Observe for a second, print what would be set, and set nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print one JSON object per second, each on a line.
    #[arg(long)]
    pub(crate) json: bool,
    /// Show tenants and connections in the terminal.
    #[arg(long, conflicts_with_all = ["json", "dry_run"])]
    pub(crate) watch: bool,
    /// Serve the same data to Prometheus, at http://ADDR/metrics.
    #[arg(long, value_name = "ADDR", value_parser = super::address)]
    pub(crate) metrics: Option<SocketAddr>,
    /// Form of the event log on standard error: lines of text, or JSON objects.
    #[arg(long, value_enum, default_value_t = super::Log::Text, value_name = "FORM")]
    pub(crate) log: super::Log,
    /// Path of the control socket. Default: in the user's runtime folder.
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Run as the process without privileges that the agent starts.
    #[arg(long, hide = true)]
    pub(crate) worker: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct StoreAccess {
    /// User name for the store; with `--store-password`.
    #[arg(long, value_name = "NAME", requires = "store_password")]
    pub(crate) store_user: Option<String>,
    /// File that contains only the user's password.
    #[arg(long, value_name = "FILE", requires = "store_user")]
    pub(crate) store_password: Option<PathBuf>,
    /// Certificate of the authority that signed the store's, PEM; for `etcds://`.
    #[arg(long, value_name = "FILE")]
    pub(crate) store_ca: Option<PathBuf>,
    /// Client certificate, PEM, for a store that requires one; with `--store-key`.
    #[arg(long, value_name = "FILE", requires = "store_key")]
    pub(crate) store_cert: Option<PathBuf>,
    /// Key of the client certificate, PEM.
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
    /// The kernel's list of connections, and pacing by their duplicated sockets.
    InetDiag,
    /// Programs in the kernel; Linux 6.12 or later.
    Bpf,
    /// eBPF if the system supports it, otherwise inet_diag.
    Auto,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ShapeCommand {
    /// Print the state of the running agent: tenants, connections, their rates and limits.
    Status(super::StatusOptions),
    /// Check policies, and report mistakes.
    Check {
        /// The file of policies.
        file: PathBuf,
    },
    /// Remove the pace of every connection, whichever program has set it.
    Clear,
    /// Wait for the agent's end, then free what it has paced.
    #[command(hide = true)]
    Guard {
        /// Free connections paced by programs in the kernel.
        #[arg(long)]
        bpf: bool,
        /// In every network namespace.
        #[arg(long)]
        everywhere: bool,
        /// The record of paced connections.
        #[arg(long, default_value = "")]
        record: PathBuf,
    },
}
