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
      Says that the file is right, or what is wrong with it and where. Reads the keys, too.
  tollway overlay --config site-a.toml
      Runs the site until Ctrl-C or SIGTERM. The file is watched: what is right is in force at once,
      what is wrong is said and changes nothing.
  tollway overlay --config site-a.toml --view 127.0.0.1:8222 --metrics 127.0.0.1:9222
      The same with a page in the browser, and for Prometheus.
  tollway overlay status --config site-a.toml
      How the site of this file that runs now stands: links, prices, tenants, slow receivers.

Clients are NATS' own: `nats --server localhost:4222 sub 'plant.>'`. Which keys a site's file has:
docs/src/overlay-operations.md. More: docs/src/overlay.md.

Exit status: 0 all went well; 1 the system refused; 2 the file or an option is wrong.";

/// Fan messages out between sites to unmodified NATS clients, unharmed by slow ones.
///
/// Each link between sites has a price that grows with its queue, and each tenant a salary to
/// pay it with. Links stay full, queues stay short, and senders to a congested link wait.
#[derive(Debug, clap::Args)]
#[command(after_help = OVERLAY_EXAMPLES, after_long_help = OVERLAY_MORE, args_conflicts_with_subcommands = true)]
pub(crate) struct Overlay {
    #[command(subcommand)]
    pub(crate) command: Option<OverlayCommand>,
    /// The site's file; it is watched.
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) config: Option<PathBuf>,
    /// Show sites, links, prices and tenants in the browser, at http://ADDR/.
    #[arg(long, value_name = "ADDR", value_parser = super::address)]
    pub(crate) view: Option<SocketAddr>,
    /// Serve the same to Prometheus, at http://ADDR/metrics.
    #[arg(long, value_name = "ADDR", value_parser = super::address)]
    pub(crate) metrics: Option<SocketAddr>,
    /// The control socket, instead of one in the user's runtime folder.
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
        /// The control socket, if not in the user's runtime folder.
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
        /// The folder that they are written to.
        folder: PathBuf,
        /// A site. May be given several times.
        #[arg(long = "site", value_name = "NAME", required = true)]
        sites: Vec<String>,
        /// A tenant that shows a certificate. May be given several times.
        #[arg(long = "tenant", value_name = "NAME")]
        tenants: Vec<String>,
        /// A name or address under which clients find the sites, beside localhost. May be given
        /// several times.
        #[arg(long = "host", value_name = "NAME")]
        hosts: Vec<String>,
    },
}
