//! `tollway router`.

use std::path::PathBuf;

use clap::Subcommand;

const ROUTER_EXAMPLES: &str = "\
Examples:
  tollway router --dev eth0 --up 95Mbps --law fq_codel
  tollway router --dev eth0 --up 38Mbps --down 95Mbps --law fq_codel --overhead 38B
  tollway router --config router.toml
  tollway router status";

const ROUTER_MORE: &str = "\
Examples:
  tollway router --dev eth0 --up 95Mbps --law fq_codel
      The uplink of a gateway whose line sends 100 Mb/s: the queue is here, and short.
  tollway router --dev wg0 --down 480Mbps --law \"fq_codel codel.target=10ms\"
      What arrives from a tunnel, with a constant of the law.
  tollway router --dev eth1 --up 1Gbps --law xcp
      A link that speaks XCP to the hosts of `tollway host`.
  tollway router --dev eth0 --up 95Mbps --dry-run
      Checks options and rights, and prints what it would do.
  tollway router --config router.toml --watch
      Runs until `q`, Ctrl-C or SIGTERM. Changes of the file take effect within 0.2 s; packets on
      the links stay. A mistake is reported and changes nothing.

Laws: fq_codel, dualpi2, pie, codel, red, droptail, xcp, fcp, rcp, and every other law of a
scenario's links, with constants as in `tollway exec --link`. Give a rate a little below the line's,
otherwise the queue is in the modem. IPv4 and IPv6 cross the link, also with VLAN tags; other frames
pass.

It needs root, or CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW and CAP_PERFMON, and Linux 6.6 or later. If it
is killed or stopped, packets pass within half a second; after its end nothing is left behind.
With `--on-failure limit` the kernel holds them to the rates instead, until the next router at the
interface or `tollway clean`. All keys of the file: `tollway docs router-reference`; how it
works: `tollway docs router`.

Exit status: 0 success; 1 the system refuses; 2 the configuration or an option is wrong.";

/// Run any link law at a real interface.
///
/// Packets that leave the interface, and those that arrive there, cross a link of the given rate
/// and law: the queue of the line is then here, under that law. NAT and connection tracking see
/// each packet once.
#[derive(Debug, clap::Args)]
#[command(after_help = ROUTER_EXAMPLES, after_long_help = ROUTER_MORE, args_conflicts_with_subcommands = true)]
pub(crate) struct Router {
    #[command(subcommand)]
    pub(crate) command: Option<RouterCommand>,
    /// Configuration, a TOML file; changes take effect while the router runs.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dev", "up", "down", "law", "overhead", "on_failure"])]
    pub(crate) config: Option<PathBuf>,
    /// The interface.
    #[arg(long, value_name = "NAME", required_unless_present = "config")]
    pub(crate) dev: Option<String>,
    /// Rate at which packets leave it, such as 95Mbps.
    #[arg(long, value_name = "RATE", required_unless_present_any = ["config", "down"])]
    pub(crate) up: Option<String>,
    /// Rate at which packets that arrive there go on.
    #[arg(long, value_name = "RATE")]
    pub(crate) down: Option<String>,
    /// Law of both directions, with its constants. Default: fq_codel.
    #[arg(long, value_name = "WORDS")]
    pub(crate) law: Option<String>,
    /// Bytes that the line adds to each IP packet, such as 38B for Ethernet.
    #[arg(long, value_name = "SIZE")]
    pub(crate) overhead: Option<String>,
    /// Packets while the router does not answer: pass, or limit to the rates.
    #[arg(long, value_name = "WHAT")]
    pub(crate) on_failure: Option<String>,
    /// Check everything, print what would be done, and end.
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) agent: super::AgentOptions,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RouterCommand {
    /// Print the state of the running router: rates, queues, drops.
    Status(super::StatusOptions),
    /// Check a configuration, and report mistakes.
    Check {
        /// The configuration file.
        file: PathBuf,
    },
}
