//! The configuration of a switch: the file's content after checks. Mistakes are reported with their
//! place.

pub(crate) mod file;
pub(crate) mod keys;
#[cfg(test)]
mod tests;
mod tls;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};
use tollway_law::Time;
use tollway_net::sys::prefix::Prefix;
use tollway_proto::dispatch::FrameRules;
use tollway_proto::framing::{Framing, Key};
use tollway_proto::route::{Modules, Policy, Route};
use tollway_scenario::file::reading::page_markdown;
use tollway_scenario::file::{Scenario, ScenarioError};

/// The configuration of a switch, checked and resolved.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its version: that of the file, or a digest of the text.
    pub version: String,
    /// The addresses that clients connect to.
    pub listen: Vec<SocketAddr>,
    /// The framing of both directions.
    pub framing: Framing,
    /// The place of a frame's key. For RESP it is the key of the command.
    pub key: Key,
    /// The routing module, which selects the member of a frame.
    pub policy: Policy,
    /// Modules of the user's own, in the place of `policy`.
    pub modules: Option<Modules>,
    /// The answering scheme and the retry rule.
    pub rules: FrameRules,
    /// The treatment of frames whose member is down.
    pub on_failure: OnFailure,
    /// The secret of the keyed hash, zeros without one.
    pub secret: [u8; 16],
    /// True if the secret's file was written within the last hour: keys that another secret placed
    /// are at other members.
    pub secret_is_new: bool,
    /// The cluster, in the order of the file.
    pub members: Vec<MemberSpec>,
    /// Named clients; others are identified by their addresses.
    pub clients: Vec<ClientSpec>,
    /// Bounds of memory, number and time.
    pub limits: Limits,
    /// Checks of members that are up; those that are down are always checked.
    pub health: Option<HealthCheck>,
    /// TLS towards clients.
    pub tls: Option<Arc<ServerConfig>>,
    /// The connections to members.
    pub upstream: Upstream,
}

/// The treatment of frames whose member is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// They fail, so that a key stays at its member.
    Error,
    /// They go to another member.
    Move,
}

/// A member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberSpec {
    /// Its name. Keys stay with the name when the address changes.
    pub name: String,
    /// The address it listens at.
    pub address: SocketAddr,
    /// The name and port that the address is of; none if the file has the address.
    pub host: Option<String>,
    /// True if it gets no new frames.
    pub drain: bool,
    /// Its share of keys, sessions and turns.
    pub weight: u32,
}

/// A named client.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientSpec {
    /// Its name.
    pub name: String,
    /// Its addresses; empty if it is identified otherwise.
    pub from: Vec<Prefix>,
    /// The user that it authenticates as (RESP).
    pub user: Option<String>,
    /// A DNS name in its certificate.
    pub tls_name: Option<String>,
    /// Its weight where members' windows are contended.
    pub weight: f64,
}

/// Bounds of memory, number and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest frame, bytes.
    pub frame: usize,
    /// Simultaneous sessions.
    pub sessions: usize,
    /// Simultaneous sessions of one client.
    pub sessions_per_client: usize,
    /// Bytes that may wait per session and direction.
    pub session_buffer: usize,
    /// Bytes of all sessions, above which incomplete frames of more than 64 KiB are given up.
    pub memory: u64,
    /// B of the soft law: bytes that may be outstanding at a member.
    pub member_buffer: u64,
    /// Time limit from a frame's first byte to its last.
    pub frame_time: Time,
    /// Time limit for a member's answer, or for the acknowledgement of one-way frames.
    pub answer_time: Time,
    /// Time limit for opening a connection to a member.
    pub connect_time: Time,
    /// Time limit for a session without traffic and with nothing under way.
    pub idle_time: Time,
    /// Time for which sessions may continue after the command to end.
    pub grace: Time,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            frame: 1 << 20,
            sessions: 10_000,
            sessions_per_client: 10_000,
            session_buffer: 256 << 10,
            memory: 2 << 30,
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
    /// Upper bound on the memory of a session's bytes: waiting bytes, one more read, and an
    /// incomplete frame, in each direction.
    pub fn session_memory(&self, members: usize) -> u64 {
        let read = self.frame.max(SCRATCH);
        (3 * self.session_buffer + 3 * read + (1 + members) * self.frame) as u64
    }

    /// Upper bound on the memory of all sessions' bytes.
    pub fn total_memory(&self, members: usize) -> u64 {
        let small = Limits { frame: self.frame.min(MOVED), ..*self };
        let sessions = self.sessions as u64;
        let all = sessions.saturating_mul(self.session_memory(members));
        all.min(sessions.saturating_mul(small.session_memory(members)).saturating_add(self.memory))
    }
}

/// Checks of members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// The interval between checks of a member.
    pub every: Time,
    /// A frame that the member must answer; `None` if a connection suffices.
    pub send: Option<Vec<u8>>,
}

/// The connections to members.
#[derive(Clone, Debug, Default)]
pub struct Upstream {
    /// TLS, and the name that members' certificates must have; `None` for the host in each member's
    /// address.
    pub tls: Option<(Arc<ClientConfig>, Option<ServerName<'static>>)>,
    /// True if connections begin with a PROXY header, version 2, that names the client's address.
    pub proxy: bool,
}

/// Command-line options, used instead of a file.
#[derive(Clone, Debug, Default)]
pub struct CommandLine {
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
    /// `--on-failure`.
    pub on_failure: Option<String>,
    /// `--secret`.
    pub secret: Option<String>,
    /// `--to`.
    pub to: Vec<String>,
}

impl Config {
    /// Reads a configuration. Errors call it `name`; certificates are looked for in `folder`.
    ///
    /// # Errors
    /// All mistakes that can be found at once, each with its place.
    pub fn parse(name: &str, text: &str, folder: Option<PathBuf>) -> Result<Config, ScenarioError> {
        file::parse(name, text, &folder.unwrap_or_default())
    }

    /// Routes by modules of the user's own. With RESP, members then count as replicas.
    pub fn with_modules(self, modules: Modules) -> Config {
        let (policy, on_failure) = (Policy::RoundRobin, OnFailure::Move);
        Config { modules: Some(modules), policy, on_failure, ..self }
    }

    /// The routing module of the session with a number.
    pub(crate) fn module(&self, session: u64) -> Box<dyn Route + Send> {
        match &self.modules {
            Some(modules) => modules.module(session),
            None => self.policy.module(session),
        }
    }

    /// The name of the policy, for the status.
    pub(crate) fn routing(&self) -> &'static str {
        self.modules.as_ref().map_or(self.policy.word(), Modules::name)
    }

    /// True if routing depends on a hash of frames' keys.
    pub(crate) fn hashes_keys(&self) -> bool {
        self.policy == Policy::ByKey || self.modules.is_some()
    }

    /// Reads the file at `path`.
    ///
    /// # Errors
    /// The file cannot be read, or has mistakes.
    pub fn load(path: &std::path::Path) -> Result<Config, ScenarioError> {
        let text = Scenario::read(path)?;
        Config::parse(&path.display().to_string(), &text, path.parent().map(PathBuf::from))
    }

    /// Builds a configuration from options.
    ///
    /// # Errors
    /// As for a file with the same content.
    pub fn from_words(words: &CommandLine) -> Result<Config, ScenarioError> {
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
            ("on-failure", &words.on_failure),
            ("secret", &words.secret),
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

/// The chapter of the manual that lists every key of the configuration.
pub fn switch_reference_markdown() -> String {
    let sections = [
        &keys::SWITCH,
        &keys::MEMBER,
        &keys::CLIENT,
        &keys::LIMITS,
        &keys::HEALTH,
        &keys::TLS,
        &keys::UPSTREAM,
    ];
    let by = "`switch_reference_markdown()` in `crates/switch`";
    page_markdown("Configuration of `tollway switch`", by, EXAMPLE, &sections, &[])
}

/// The example of the manual's page.
const EXAMPLE: &str = r#"listen = ":601"
frames = "octet-counting"
policy = "round-robin"

[member.a]
address = "10.0.0.1:601"
[member.b]
address = "10.0.0.2:601"
weight = 2

[client.payments]
from = "10.1.0.0/16"
weight = 3

[limits]
frame = "64 KiB"
answer-time = "5 s"
"#;

/// Up to this length an incomplete frame is moved to the read buffer; a longer one stays.
pub(crate) const MOVED: usize = 64 << 10;
/// Bytes read from a connection at once.
pub(crate) const SCRATCH: usize = 256 << 10;
