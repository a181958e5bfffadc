//! The configuration file, read and checked.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use tollway_law::Bytes;
use tollway_net::sys::prefix::Prefix;
use tollway_proto::dispatch::{Answers, FrameRules, Retry};
use tollway_proto::framing::{Framer, Framing, Key};
use tollway_proto::route::{Hash, Policy};
use tollway_scenario::file::ScenarioError;
use tollway_scenario::file::reading::{Mistakes, Reader, read};

use super::keys::{CLIENT, HEALTH, LIMITS, MEMBER, SWITCH};
use super::{ClientSpec, Config, HealthCheck, Limits, MemberSpec, OnFailure, tls};

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
    let stays = on_failure(top, policy, mistakes);
    let (secret, secret_is_new) = secret(top, folder, mistakes).unwrap_or_default();
    Config {
        version: version(top, text),
        listen: listen(top, mistakes),
        framing: framing.unwrap_or(Framing::Resp),
        key: key.unwrap_or(Key::Frame),
        policy,
        modules: None,
        rules: FrameRules {
            answers,
            retry: if top.word("retry") == "idempotent" { Retry::Idempotent } else { Retry::Never },
        },
        on_failure: stays.unwrap_or(match policy {
            Policy::ByKey if resp => OnFailure::Error,
            _ => OnFailure::Move,
        }),
        secret,
        secret_is_new,
        members: members(top, policy, mistakes),
        clients: clients(top, mistakes),
        limits: limits(&top.table("limits", &LIMITS), resp, mistakes),
        health: health(top, framing, answers, mistakes),
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

/// The treatment of frames whose member is down, if it is given.
pub(crate) fn on_failure(top: &Reader<'_>, policy: Policy, mistakes: &mut Mistakes) -> Option<OnFailure> {
    match top.word("on-failure") {
        "error" if policy != Policy::ByKey => {
            let message = format!("with `{}`, no frame belongs to one member", policy.word());
            mistakes.add(top.at("on-failure"), message, "here").help("write `on-failure = \"move\"`");
            None
        }
        "error" => Some(OnFailure::Error),
        "move" => Some(OnFailure::Move),
        _ => None,
    }
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

fn members(top: &Reader<'_>, policy: Policy, mistakes: &mut Mistakes) -> Vec<MemberSpec> {
    let members: Vec<MemberSpec> = top
        .named("member", &MEMBER)
        .map(|(name, keys)| {
            let address =
                |text: &str| resolved(text).ok_or_else(|| format!("`{text}` is not an address of a member"));
            let help = "write `address = \"10.0.0.1:5000\"`, or a name that resolves now";
            let address = keys.parsed("address", address, help, mistakes).unwrap_or(NOWHERE);
            MemberSpec {
                name: name.to_owned(),
                address,
                host: keys.text("address").filter(|text| text.parse::<SocketAddr>().is_err()),
                drain: keys.truth("drain"),
                weight: weight(&keys, policy, mistakes),
            }
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

/// The weight of a member.
pub(crate) fn weight(keys: &Reader<'_>, policy: Policy, mistakes: &mut Mistakes) -> u32 {
    if keys.has("weight") && policy == Policy::LeastLoaded {
        mistakes
            .add(keys.at("weight"), MEASURES, "here")
            .help("leave out `weight`, or choose another `policy`");
    }
    keys.count("weight").unwrap_or(1) as u32
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

/// Reads the secret of the keyed hash. Returns true beside it if it is new.
pub(crate) fn secret(top: &Reader<'_>, folder: &Path, mistakes: &mut Mistakes) -> Option<([u8; 16], bool)> {
    let file = folder.join(top.text("secret")?);
    let read = std::fs::read(&file).map_err(|error| error.to_string()).and_then(|bytes| {
        <[u8; 16]>::try_from(bytes.as_slice())
            .map_err(|_| format!("it has {} bytes instead of 16", bytes.len()))
    });
    match read {
        Ok(secret) => {
            let meta = std::fs::metadata(&file);
            let age = meta.and_then(|meta| meta.modified()).map(|written| written.elapsed());
            Some((secret, matches!(age, Ok(Ok(age)) if age < NEW)))
        }
        Err(why) => {
            let message = format!("`{}` is not a secret: {why}", file.display());
            mistakes.add(top.at("secret"), message, "this file").help(
                "make one: `head -c 16 /dev/urandom > secret`; other users should not be able to read it",
            );
            None
        }
    }
}

/// The checks of members; by default a `PING` to those of Redis.
fn health(
    top: &Reader<'_>,
    framing: Option<Framing>,
    answers: Answers,
    mistakes: &mut Mistakes,
) -> Option<HealthCheck> {
    let framing = framing?;
    if framing != Framing::Resp && !top.has("health") {
        return None;
    }
    let keys = top.table("health", &HEALTH);
    let ping = (framing == Framing::Resp).then(|| b"*1\r\n$4\r\nPING\r\n".to_vec());
    let send = keys.text("send").map(String::into_bytes);
    if let Some(frame) = &send {
        let whole =
            matches!(Framer::new(framing, frame.len()).next(frame), Ok(Some(len)) if len == frame.len());
        let help = match answers {
            Answers::None => "leave it out: members do not answer frames with `answers = \"none\"`",
            _ => {
                "write one whole frame, with its prefix or delimiter: `send = \"*1\\r\\n$4\\r\\nPING\\r\\n\"`"
            }
        };
        if answers == Answers::None || !whole {
            mistakes.add(keys.at("send"), "members cannot answer this check", "here").help(help);
        }
    }
    Some(HealthCheck { every: keys.span("every"), send: send.or(ping) })
}

/// The limits of a configuration. `large` is true if a frame may exceed a member's buffer; it is then
/// alone in the buffer.
pub(crate) fn limits(keys: &Reader<'_>, large: bool, mistakes: &mut Mistakes) -> Limits {
    let known = Limits::default();
    let count = |key| keys.count(key).unwrap_or_default() as usize;
    let frame = keys.bytes("frame").unwrap_or(if large { LARGE } else { known.frame as u64 });
    let room = if large { known.member_buffer } else { known.member_buffer.max(frame) };
    let member_buffer = keys.bytes("member-buffer").unwrap_or(room);
    if member_buffer < frame && !large {
        let message = format!("`member-buffer` has no room for a frame of {}", Bytes(frame));
        mistakes.add(keys.at("member-buffer"), message, "out of range").help("give at least `frame`");
    }
    Limits {
        frame: frame as usize,
        sessions: count("sessions"),
        sessions_per_client: count("sessions-per-client"),
        session_buffer: keys.bytes("session-buffer").map_or(known.session_buffer, |bytes| bytes as usize),
        memory: keys.bytes("memory").unwrap_or_default(),
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

/// The reason why members have no weight with `least-loaded`.
pub(crate) const MEASURES: &str = "`least-loaded` measures what members can take";
/// Age below which a secret is called new.
const NEW: Duration = Duration::from_secs(3600);
/// The longest frame of Redis by default, bytes: a value of 512 MiB, and its command.
const LARGE: u64 = 513 << 20;
/// The address after a mistake.
pub(crate) const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
/// Upper bound on members.
pub(crate) const MEMBERS: usize = 250;
