//! `tollway host`.

use std::ffi::OsString;
use std::path::PathBuf;

const HOST_EXAMPLES: &str = "\
Examples:
  tollway host --law xcp -- curl -o /dev/null http://server/file
  tollway host --law fcp --budget 2 --cgroup /sys/fs/cgroup/system.slice
  tollway host --config host.toml --watch
  tollway host status
  tollway host check host.toml";

const HOST_MORE: &str = "\
Examples:
  tollway host --law xcp -- curl -o /dev/null http://server/file
      Runs one program whose TCP connections speak XCP.
  tollway host --law xcp --cgroup /sys/fs/cgroup/system.slice
      Every connection that a service opens or accepts from now on, until Ctrl-C.
  tollway host --law fcp --budget 2 --cgroup /sys/fs/cgroup/system.slice
      The same under FCP: however many connections, they buy twice the share of a host with 1.
  tollway host status --json
      The law, tenants and connections of the running `tollway host`: rate, window, round trip, and
      the cause of each fallback.

Both ends of a connection need it, and routers on the path that speak the law: `tollway exec` has
such links. A connection without falls back to the machine's ordinary congestion control within
half a second, and so do all of them when this command ends or is killed. It needs root, and Linux
6.4 or later with BTF and cgroup2. More: `tollway docs host`.

Exit status: the program's; 0 after Ctrl-C; 1 if the kernel refuses; 2 if an option is wrong; 126 or
127 if the program cannot be started.";

/// A law for the kernel's own TCP.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum KernelLaw {
    /// The XCP study's sender and options.
    Xcp,
    /// FCP's sender: a budget is divided over all connections.
    Fcp,
}

/// Let the kernel's own TCP speak XCP or FCP, in unmodified programs.
///
/// Programs in the kernel write and read the law's TCP option, and set window and pace from the
/// feedback of routers. No program and no default of the machine is changed.
#[derive(Debug, clap::Args)]
#[command(after_help = HOST_EXAMPLES, after_long_help = HOST_MORE, args_conflicts_with_subcommands = true)]
pub(crate) struct Host {
    #[command(subcommand)]
    pub(crate) command: Option<HostCommand>,
    /// Law of the connections.
    #[arg(long, value_enum, required_unless_present = "config")]
    pub(crate) law: Option<KernelLaw>,
    /// Configuration: law, and tenants with budgets by control group or user.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["law", "cgroup", "budget", "experiment", "initial_window", "ordinary"])]
    pub(crate) config: Option<PathBuf>,
    /// Control group whose connections are meant, with those below it: a folder of the cgroup2 file
    /// system. May be given several times.
    #[arg(long, value_name = "PATH", required_unless_present_any = ["program", "config"])]
    pub(crate) cgroup: Vec<PathBuf>,
    /// FCP: the budget of all connections together, $/s. Only ratios between hosts matter.
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    pub(crate) budget: f64,
    /// XCP: use TCP option 253, with the number of an experiment (RFC 6994), instead of the study's 14 and
    /// 15.
    #[arg(long)]
    pub(crate) experiment: bool,
    /// Window of a new connection, packets.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) initial_window: u32,
    /// Congestion control to fall back on. Default: the machine's.
    #[arg(long, value_name = "NAME", value_parser = known)]
    pub(crate) ordinary: Option<String>,
    /// Print only errors.
    #[arg(long, short)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) agent: super::AgentOptions,
    /// A program to run in a new control group, and its arguments.
    #[arg(last = true, value_name = "PROGRAM", conflicts_with_all = ["cgroup", "json", "watch", "metrics", "view", "socket"])]
    pub(crate) program: Vec<OsString>,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum HostCommand {
    /// Print the state of the running `tollway host`: law, tenants, connections.
    Status(super::StatusOptions),
    /// Check a configuration file.
    Check {
        /// The file.
        file: PathBuf,
    },
}

/// A congestion control that this kernel has.
fn known(name: &str) -> Result<String, String> {
    let path = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let names = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    match names.split_whitespace().any(|known| known == name) {
        true => Ok(name.to_owned()),
        false => Err(format!("this kernel has {}", names.trim().replace(' ', ", "))),
    }
}
