//! `tollway overlay`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Subcommand;

const OVERLAY_EXAMPLES: &str = "\
Examples:
  tollway overlay keys keys --site a --site b
  tollway overlay check site-a.toml
  tollway overlay --config site-a.toml
  tollway overlay status --config site-a.toml";

const OVERLAY_MORE: &str = "\
Examples:
  tollway overlay keys keys --site a --site b --tenant plant
      Writes an authority's certificate, and a certificate and key for each site and tenant, to the
      folder keys: for a trial.
  tollway overlay check site-a.toml
      Checks the file and the keys it names, and reports each mistake with its place.
  tollway overlay --config site-a.toml
      Runs the site until Ctrl-C or SIGTERM. Changes of the file take effect at once; a mistake is
      reported and changes nothing.
  tollway overlay --config site-a.toml --view 127.0.0.1:8222 --metrics 127.0.0.1:9222
      Also serves a page for the browser, and metrics for Prometheus.
  tollway overlay status --config site-a.toml
      The state of the running site: links, prices, tenants, slow receivers.

Clients are ordinary NATS clients: `nats --server localhost:4222 sub 'plant.>'`. Keys of a site's
file: `tollway docs overlay-reference`. More: `tollway docs overlay`.

Exit status: 0 success; 1 a system error; 2 the file or an option is wrong.";

/// Fan messages out between sites to unmodified NATS clients, unharmed by slow ones.
///
/// Each link between sites has a price that grows with its queue, and each tenant has a salary to
/// pay it. Links stay full, queues stay short, and senders to a congested link wait.
#[derive(Debug, clap::Args)]
#[command(after_help = OVERLAY_EXAMPLES, after_long_help = OVERLAY_MORE, args_conflicts_with_subcommands = true)]
pub(crate) struct Overlay {
    #[command(subcommand)]
    pub(crate) command: Option<OverlayCommand>,
    /// The site's file; changes take effect while the site runs.
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) config: Option<PathBuf>,
    /// Show sites, links, prices and tenants in the browser, at http://ADDR/.
    #[arg(long, value_name = "ADDR", value_parser = super::address)]
    pub(crate) view: Option<SocketAddr>,
    /// Serve the same data to Prometheus, at http://ADDR/metrics.
    #[arg(long, value_name = "ADDR", value_parser = super::address)]
    pub(crate) metrics: Option<SocketAddr>,
    /// Form of the event log on standard error: lines of text, or JSON objects.
    #[arg(long, value_enum, default_value_t = super::Log::Text, value_name = "FORM")]
    pub(crate) log: super::Log,
    /// Path of the control socket. Default: in the user's runtime folder.
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum OverlayCommand {
    /// Print the state of a running site: links, prices, tenants, slow receivers.
    Status {
        /// Print the site's JSON object.
        #[arg(long)]
        json: bool,
        /// The site's file.
        #[arg(long, value_name = "FILE", required_unless_present = "socket")]
        config: Option<PathBuf>,
        /// Path of the control socket. Default: in the user's runtime folder.
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
    },
    /// Check a site's file and keys.
    Check {
        /// The site's file.
        file: PathBuf,
    },
    /// Make keys for a trial: an authority, and certificates for sites and tenants.
    Keys {
        /// Folder for the files.
        folder: PathBuf,
        /// Name of a site. May be given several times.
        #[arg(long = "site", value_name = "NAME", required = true)]
        sites: Vec<String>,
        /// Name of a tenant with a certificate. May be given several times.
        #[arg(long = "tenant", value_name = "NAME")]
        tenants: Vec<String>,
        /// Name or address at which clients reach the sites, in addition to localhost. May be given
        /// several times.
        #[arg(long = "host", value_name = "NAME")]
        hosts: Vec<String>,
    },
}
