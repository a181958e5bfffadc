//! The configuration: what the file says, checked, with its mistakes in place.

pub(crate) mod error;
pub(crate) mod file;
#[cfg(test)]
mod tests;
mod tls;

pub use error::ConfigError;
pub use file::Watched;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};
use tollway_law::Time;
use tollway_net::sys::prefix::Prefix;
use tollway_proto::dispatch::{Answers, Retry, Rules};
use tollway_proto::framing::{Framing, Key};
use tollway_proto::route::Policy;

/// What a switch does, checked and resolved.
#[derive(Clone, Debug)]
pub struct Config {
    /// A name for it: what the file calls its version, or a digest of the text.
    pub version: String,
    /// Where clients connect.
    pub listen: Vec<SocketAddr>,
    /// How both directions are cut.
    pub framing: Framing,
    /// Where a frame's key is; RESP's is its command's.
    pub key: Key,
    /// Which member a frame goes to.
    pub policy: Policy,
    /// Answers and retries.
    pub rules: Rules,
    /// The cluster, in the order of the file.
    pub members: Vec<MemberSpec>,
    /// Named clients; others are known by their addresses.
    pub clients: Vec<ClientSpec>,
    /// Bounds.
    pub limits: Limits,
    /// TLS towards clients.
    pub tls: Option<Arc<ServerConfig>>,
    /// How members are connected to.
    pub upstream: Upstream,
}

/// A member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberSpec {
    /// Its name: what its keys stay with when its address changes.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// It gets no new frames.
    pub drain: bool,
}

/// A named client.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientSpec {
    /// Its name.
    pub name: String,
    /// Its addresses; none if it is known otherwise.
    pub from: Vec<Prefix>,
    /// The user that it authenticates as (RESP).
    pub user: Option<String>,
    /// A DNS name in its certificate.
    pub tls_name: Option<String>,
    /// What it counts for where members' windows are short.
    pub weight: f64,
}

/// Bounds of memory, number and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest frame, bytes.
    pub frame: usize,
    /// Sessions at a time.
    pub sessions: usize,
    /// Sessions of one client at a time.
    pub sessions_per_client: usize,
    /// Bytes that may wait in one session in each direction.
    pub session_buffer: usize,
    /// B of the soft law: bytes that may be outstanding at a member.
    pub member_buffer: u64,
    /// How long a frame may take from its first byte to its last.
    pub frame_time: Time,
    /// How long a member may leave frames unanswered, or unacknowledged.
    pub answer_time: Time,
    /// How long a connection to a member may take to open.
    pub connect_time: Time,
    /// How long a session may be silent with nothing under way.
    pub idle_time: Time,
    /// How long sessions may go on once the switch is asked to end.
    pub grace: Time,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            frame: 1 << 20,
            sessions: 10_000,
            sessions_per_client: 10_000,
            session_buffer: 256 << 10,
            member_buffer: 4 << 20,
            frame_time: Time::from_secs(10),
            answer_time: Time::from_secs(10),
            connect_time: Time::from_secs(2),
            idle_time: Time::from_secs(3600),
            grace: Time::from_secs(5),
        }
    }
}

impl Limits {
    /// The most memory that a session's bytes take: what waits in each direction, what one read may add to each, and a frame that is not
    /// whole in each direction.
    pub fn session_memory(&self, members: usize) -> u64 {
        let read = self.frame.max(SCRATCH);
        (3 * self.session_buffer + 3 * read + (1 + members) * self.frame) as u64
    }
}

/// How members are connected to.
#[derive(Clone, Debug, Default)]
pub struct Upstream {
    /// TLS, and the name that members' certificates must have; `None` for the host in each member's address.
    pub tls: Option<(Arc<ClientConfig>, Option<ServerName<'static>>)>,
    /// Connections begin with a PROXY header, version 2, that says who the client is.
    pub proxy: bool,
}

/// What the command line says instead of a file.
#[derive(Clone, Debug, Default)]
pub struct Words {
    /// `--listen`.
    pub listen: Vec<String>,
    /// `--frames`.
    pub frames: Option<String>,
    /// `--policy`.
    pub policy: Option<String>,
    /// `--key`.
    pub key: Option<String>,
    /// `--answers`.
    pub answers: Option<String>,
    /// `--retry`.
    pub retry: Option<String>,
    /// `--to`.
    pub to: Vec<String>,
}

impl Config {
    /// Reads a configuration; `name` is what errors call it, and certificates are looked for in `folder`.
    ///
    /// # Errors
    /// Its mistakes, all that can be found at once, each with its place.
    pub fn parse(name: &str, text: &str, folder: Option<PathBuf>) -> Result<Config, ConfigError> {
        file::parse(name, text, folder)
    }

    /// Reads the file at `path`.
    ///
    /// # Errors
    /// It cannot be read, or is wrong.
    pub fn load(path: &std::path::Path) -> Result<Config, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::Unreadable { path: path.to_owned(), error })?;
        Config::parse(&path.display().to_string(), &text, path.parent().map(PathBuf::from))
    }

    /// What options say.
    ///
    /// # Errors
    /// As of a file that says the same.
    pub fn from_words(words: &Words) -> Result<Config, ConfigError> {
        let quote = |word: &String| toml::Value::from(word.as_str()).to_string();
        let mut text = String::new();
        let list: Vec<_> = words.listen.iter().map(quote).collect();
        text += &format!("listen = [{}]\n", list.join(", "));
        for (key, word) in [
            ("frames", &words.frames),
            ("policy", &words.policy),
            ("key", &words.key),
            ("answers", &words.answers),
            ("retry", &words.retry),
        ] {
            if let Some(word) = word {
                text += &format!("{key} = {}\n", quote(word));
            }
        }
        for member in &words.to {
            text += &format!("[member.{0}]\naddress = {0}\n", quote(member));
        }
        Config::parse("the command line", &text, None)
    }
}

/// Bytes that are read from a connection at once.
pub(crate) const SCRATCH: usize = 256 << 10;

pub(crate) fn answers(framing: Framing, word: Option<&str>) -> Result<Answers, String> {
    match word {
        Some("any") => Ok(Answers::Any),
        Some("in-order") => Ok(Answers::InOrder),
        Some("none") => Ok(Answers::None),
        Some(other) => Err(format!("`{other}` is no order of answers: `any`, `in-order` and `none` are")),
        None => Ok(match framing {
            Framing::Resp => Answers::InOrder,
            Framing::Length(_) => Answers::Any,
            Framing::Delimited(_) | Framing::OctetCounting => Answers::None,
        }),
    }
}

fn retry(word: Option<&str>) -> Result<Retry, String> {
    match word {
        None | Some("never") => Ok(Retry::Never),
        Some("idempotent") => Ok(Retry::Idempotent),
        Some(other) => Err(format!("`{other}` is no retry: `never` and `idempotent` are")),
    }
}
