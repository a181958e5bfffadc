//! The configuration file, read and checked.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use tollway_agent::file::Watch;
use tollway_law::Bytes;
use tollway_net::sys::prefix::Prefix;
use tollway_proto::dispatch::{Answers, FrameRules, Retry};
use tollway_proto::framing::{Framing, Key};
use tollway_proto::route::{Hash, Policy};
use tollway_scenario::file::ScenarioError;
use tollway_scenario::file::reading::{Mistakes, Reader, read};

use super::keys::{CLIENT, LIMITS, MEMBER, SWITCH};
use super::{ClientSpec, Config, Limits, MemberSpec, tls};

pub(super) fn parse(name: &str, text: &str, folder: &Path) -> Result<Config, ScenarioError> {
    let resolve = |top: &Reader<'_>, mistakes: &mut Mistakes| resolve(top, text, folder, mistakes);
    read(name, text, &SWITCH, ("a switch's configuration", "configuration"), resolve)
}

/// The configuration of a file. After a mistake its values have no meaning.
fn resolve(top: &Reader<'_>, text: &str, folder: &Path, mistakes: &mut Mistakes) -> Config {
    let framing = framing(top, mistakes);
    let resp = framing == Some(Framing::Resp);
    let policy = policy(top).unwrap_or(if resp { Policy::ByKey } else { Policy::LeastLoaded });
    if resp && top.has("key") {
        mistakes
            .add(top.at("key"), "a Redis command has its own key", "here")
            .help("leave out `key` with `frames = \"resp\"`");
    }
    let key = top.parsed("key", |word| word.parse(), "write `key = \"4..20\"`", mistakes);
    if policy == Policy::ByKey && framing.is_some() && !resp && top.lacks("key") {
        mistakes
            .add(top.at("policy"), "`by-key` needs the position of a frame's key", "no `key`")
            .help("add `key = \"4..20\"` or `key = \"field=3\"`");
    }
    let answers = answers(framing, top.word("answers"));
    if resp && answers != Answers::InOrder {
        mistakes
            .add(top.at("answers"), "Redis answers in the order of the commands", "here")
            .help("leave out `answers` with `frames = \"resp\"`");
    }
    Config {
        version: version(top, text),
        listen: listen(top, mistakes),
        framing: framing.unwrap_or(Framing::Resp),
        key: key.unwrap_or(Key::Frame),
        policy,
        rules: FrameRules {
            answers,
            retry: if top.word("retry") == "idempotent" { Retry::Idempotent } else { Retry::Never },
        },
        members: members(top, mistakes),
        clients: clients(top, mistakes),
        limits: limits(&top.table("limits", &LIMITS), mistakes),
        tls: tls::server(top, folder, mistakes),
        upstream: tls::upstream(top, folder, mistakes),
    }
}

/// The version's name: the file's, or a digest of its text.
pub(crate) fn version(top: &Reader<'_>, text: &str) -> String {
    let digest = || format!("{:08x}", Hash::new([0; 16]).of(text.as_bytes()) >> 32);
    top.text("version").unwrap_or_else(digest)
}

/// The framing; `None` if it is not given or wrong.
pub(crate) fn framing(top: &Reader<'_>, mistakes: &mut Mistakes) -> Option<Framing> {
    let help = "see the chapter on framing: `frames = \"lines\"`";
    top.parsed("frames", |word| word.parse(), help, mistakes)
}

/// The policy, if it is given.
pub(crate) fn policy(top: &Reader<'_>) -> Option<Policy> {
    top.word("policy").parse().ok()
}

/// The answering scheme of this word, or that of the framing.
pub(crate) fn answers(framing: Option<Framing>, word: &str) -> Answers {
    match (word, framing) {
        ("any", _) => Answers::Any,
        ("in-order", _) => Answers::InOrder,
        ("none", _) => Answers::None,
        (_, Some(Framing::Resp)) => Answers::InOrder,
        (_, Some(Framing::Length(_)) | None) => Answers::Any,
        (_, Some(Framing::Delimited(_) | Framing::OctetCounting)) => Answers::None,
    }
}

/// The addresses for clients.
pub(crate) fn listen(top: &Reader<'_>, mistakes: &mut Mistakes) -> Vec<SocketAddr> {
    let address = |text: &str| {
        let address = match text.strip_prefix(':') {
            Some(port) => port.parse().ok().map(|port| SocketAddr::from(([0, 0, 0, 0], port))),
            None => resolved(text),
        };
        address.ok_or_else(|| format!("`{text}` is not an address to listen at"))
    };
    let help = "write `listen = \"127.0.0.1:5000\"`, or `\":5000\"` for every address of this machine";
    top.each("listen", address, help, mistakes)
}

fn members(top: &Reader<'_>, mistakes: &mut Mistakes) -> Vec<MemberSpec> {
    let members: Vec<MemberSpec> = top
        .named("member", &MEMBER)
        .map(|(name, keys)| {
            let address =
                |text: &str| resolved(text).ok_or_else(|| format!("`{text}` is not an address of a member"));
            let help = "write `address = \"10.0.0.1:5000\"`, or a name that resolves now";
            let address = keys.parsed("address", address, help, mistakes).unwrap_or(NOWHERE);
            MemberSpec { name: name.to_owned(), address, drain: keys.truth("drain") }
        })
        .collect();
    if members.is_empty() && top.lacks("member") {
        mistakes
            .add(top.place(), "the configuration has no members", "no `[member.NAME]`")
            .help("add `[member.a]` with `address = \"10.0.0.1:5000\"`");
    }
    if members.len() > MEMBERS {
        let message = format!("{} members exceed the limit of {MEMBERS}", members.len());
        mistakes.add(top.at("member"), message, "too many").help("spread them over two switches");
    }
    members
}

fn clients(top: &Reader<'_>, mistakes: &mut Mistakes) -> Vec<ClientSpec> {
    let network =
        |text: &str| Prefix::parse(text).ok_or_else(|| format!("`{text}` is not an address or a network"));
    top.named("client", &CLIENT)
        .map(|(name, keys)| ClientSpec {
            name: name.to_owned(),
            from: keys.each("from", network, "write `from = \"10.1.0.0/16\"`", mistakes).concat(),
            user: keys.text("user"),
            tls_name: keys.text("tls-name"),
            weight: keys.number("weight"),
        })
        .collect()
}

pub(crate) fn limits(keys: &Reader<'_>, mistakes: &mut Mistakes) -> Limits {
    let known = Limits::default();
    let bytes = |key| keys.bytes(key).unwrap_or_default();
    let count = |key| keys.count(key).unwrap_or_default() as usize;
    let frame = bytes("frame");
    let member_buffer = keys.bytes("member-buffer").unwrap_or(known.member_buffer.max(frame));
    if member_buffer < frame {
        let message = format!("`member-buffer` has no room for a frame of {}", Bytes(frame));
        mistakes.add(keys.at("member-buffer"), message, "out of range").help("give at least `frame`");
    }
    Limits {
        frame: frame as usize,
        sessions: count("sessions"),
        sessions_per_client: count("sessions-per-client"),
        session_buffer: keys.bytes("session-buffer").map_or(known.session_buffer, |bytes| bytes as usize),
        member_buffer,
        frame_time: keys.span("frame-time"),
        answer_time: keys.span("answer-time"),
        connect_time: keys.span("connect-time"),
        idle_time: keys.span("idle-time"),
        grace: keys.span("grace"),
    }
}

/// The first address that a text names now.
pub(crate) fn resolved(text: &str) -> Option<SocketAddr> {
    text.to_socket_addrs().ok()?.next()
}

/// A file that is watched.
#[derive(Debug)]
pub struct Watched {
    path: PathBuf,
    watch: Watch,
}

impl Watched {
    /// Reads `path` for the first time.
    ///
    /// # Errors
    /// The file cannot be read, or has mistakes.
    pub fn open(path: &Path) -> Result<(Watched, Config), ScenarioError> {
        let watch = Watch::of(path);
        let config = Config::load(path)?;
        Ok((Watched { path: path.to_owned(), watch }, config))
    }

    /// A new configuration, or the reason the new one cannot be used. Does not block.
    pub fn poll(&mut self) -> Option<Result<Config, ScenarioError>> {
        self.watch.has_changed(&self.path).then(|| Config::load(&self.path))
    }
}

/// The address after a mistake.
pub(crate) const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
/// Upper bound on members.
const MEMBERS: usize = 250;
