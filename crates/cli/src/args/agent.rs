//! Options of the commands with an agent.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::ValueEnum;
use tollway_agent::events::{Events, Form};

/// An agent's readers, log and control socket.
#[derive(Debug, clap::Args)]
pub(crate) struct AgentOptions {
    /// Print one JSON object per second, each on a line.
    #[arg(long)]
    pub(crate) json: bool,
    /// Show the same data in the terminal.
    #[arg(long, conflicts_with = "json")]
    pub(crate) watch: bool,
    /// Serve the same data to Prometheus, at http://ADDR/metrics.
    #[arg(long, value_name = "ADDR", value_parser = super::address)]
    pub(crate) metrics: Option<SocketAddr>,
    /// Show the same data in the browser, on this machine only.
    #[arg(long, value_name = "ADDR", value_parser = super::address)]
    pub(crate) view: Option<SocketAddr>,
    /// Form of the event log on standard error: lines of text, or JSON objects.
    #[arg(long, value_enum, default_value_t = Log::Text, value_name = "FORM")]
    pub(crate) log: Log,
    /// Path of the control socket. Default: in the user's runtime folder.
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

/// A look at a running agent.
#[derive(Debug, clap::Args)]
pub(crate) struct StatusOptions {
    /// Print its JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// Path of the control socket. Default: in the user's runtime folder.
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

/// The form of an agent's event log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Log {
    /// A line of time, level and message.
    Text,
    /// An object of `time`, `level`, `event` and `message`.
    Json,
}

impl Log {
    /// Opens the log on standard error.
    pub(crate) fn open(self) -> std::io::Result<Events> {
        Events::open(match self {
            Log::Text => Form::Text,
            Log::Json => Form::Json,
        })
    }
}
