//! The keys of the configuration file.

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use serde::Deserialize;
use tollway_law::{Bytes, Time};
use tollway_net::sys::prefix::Prefix;
use tollway_proto::dispatch::{Answers, FrameRules};
use tollway_proto::framing::{Framer, Framing, Key};
use tollway_proto::route::{Hash, Policy};
use toml::Spanned;

use super::error::SourceText;
use super::{ClientSpec, Config, ConfigError, HealthCheck, Limits, MemberSpec, tls};

/// The file as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Raw {
    version: Option<String>,
    listen: Spanned<OneOrMany>,
    frames: Spanned<String>,
    policy: Option<Spanned<String>>,
    key: Option<Spanned<String>>,
    answers: Option<Spanned<String>>,
    retry: Option<Spanned<String>>,
    on_failure: Option<Spanned<String>>,
    secret: Option<Spanned<String>>,
    #[serde(default)]
    member: BTreeMap<String, RawMember>,
    #[serde(default)]
    client: BTreeMap<String, RawClient>,
    #[serde(default)]
    limits: RawLimits,
    health: Option<RawHealth>,
    tls: Option<tls::RawServer>,
    #[serde(default)]
    upstream: tls::RawUpstream,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    pub(crate) fn all(&self) -> &[String] {
        match self {
            OneOrMany::One(one) => std::slice::from_ref(one),
            OneOrMany::Many(many) => many,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawMember {
    address: Spanned<String>,
    #[serde(default)]
    drain: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawClient {
    from: Option<Spanned<OneOrMany>>,
    user: Option<String>,
    tls_name: Option<String>,
    weight: Option<Spanned<f64>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawHealth {
    every: Option<Time>,
    send: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct RawLimits {
    frame: Option<Spanned<Bytes>>,
    sessions: Option<usize>,
    sessions_per_client: Option<usize>,
    pub(crate) session_buffer: Option<Spanned<Bytes>>,
    memory: Option<Bytes>,
    member_buffer: Option<Spanned<Bytes>>,
    frame_time: Option<Time>,
    answer_time: Option<Time>,
    connect_time: Option<Time>,
    idle_time: Option<Time>,
    grace: Option<Time>,
}

pub(super) fn parse(name: &str, text: &str, folder: Option<PathBuf>) -> Result<Config, ConfigError> {
    let place = SourceText { name, text };
    let raw: Raw = toml::from_str(text)
        .map_err(|error| place.mistake(error.span().unwrap_or(0..0), error.message().to_owned(), None))?;
    let wrong = |span, message: String, help| place.mistake(span, message, Some(help));

    let mut listen = Vec::new();
    for address in raw.listen.get_ref().all() {
        listen.push(listen_address(address).ok_or_else(|| {
            let help =
                "write `listen = \"127.0.0.1:5000\"`, or `\":5000\"` for every address of this machine";
            wrong(raw.listen.span(), format!("`{address}` is not an address to listen at"), help)
        })?);
    }
    let framing: Framing = raw.frames.get_ref().parse().map_err(|error| {
        wrong(raw.frames.span(), error, "see the chapter on framing: `frames = \"lines\"`")
    })?;
    let policy = match &raw.policy {
        None if framing == Framing::Resp => Policy::ByKey,
        None => Policy::LeastLoaded,
        Some(word) => word
            .get_ref()
            .parse()
            .map_err(|error| wrong(word.span(), error, "write `policy = \"round-robin\"`"))?,
    };
    let key = match &raw.key {
        None => Key::Frame,
        Some(word) if framing == Framing::Resp => {
            return Err(wrong(
                word.span(),
                "a Redis command has its own key".into(),
                "leave out `key` with `frames = \"resp\"`",
            ));
        }
        Some(word) => {
            word.get_ref().parse().map_err(|error| wrong(word.span(), error, "write `key = \"4..20\"`"))?
        }
    };
    if policy == Policy::ByKey && framing != Framing::Resp && raw.key.is_none() {
        let span = raw.policy.as_ref().map_or(0..0, Spanned::span);
        return Err(wrong(
            span,
            "`by-key` needs the position of a frame's key".into(),
            "add `key = \"4..20\"` or `key = \"field=3\"`",
        ));
    }
    let word = |given: &Option<Spanned<String>>| given.as_ref().map(|word| word.get_ref().clone());
    let span = |given: &Option<Spanned<String>>| given.as_ref().map_or(0..0, Spanned::span);
    let answers = super::answers(framing, word(&raw.answers).as_deref())
        .map_err(|error| wrong(span(&raw.answers), error, "write `answers = \"any\"`"))?;
    if framing == Framing::Resp && answers != Answers::InOrder {
        let help = "leave out `answers` with `frames = \"resp\"`";
        return Err(wrong(span(&raw.answers), "Redis answers in the order of the commands".into(), help));
    }
    let retry = super::retry(word(&raw.retry).as_deref())
        .map_err(|error| wrong(span(&raw.retry), error, "write `retry = \"never\"`"))?;

    let on_failure = super::on_failure(framing, policy, word(&raw.on_failure).as_deref())
        .map_err(|error| wrong(span(&raw.on_failure), error, "write `on-failure = \"move\"`"))?;

    let members = members(&raw, &place)?;
    let clients = clients(&raw, &place)?;
    let limits = limits(&raw.limits, framing == Framing::Resp, &place)?;
    let folder = folder.unwrap_or_default();
    let secret = raw.secret.as_ref().map(|path| secret(&folder, path, &place)).transpose()?;
    let (secret, secret_is_new) = secret.unwrap_or_default();
    let version =
        raw.version.unwrap_or_else(|| format!("{:08x}", Hash::new([0; 16]).of(text.as_bytes()) >> 32));
    Ok(Config {
        version,
        listen,
        framing,
        key,
        policy,
        rules: FrameRules { answers, retry },
        on_failure,
        secret,
        secret_is_new,
        members,
        clients,
        limits,
        health: health(&raw.health, framing, answers, &place)?,
        tls: raw.tls.map(|raw| raw.load(&folder, &place)).transpose()?,
        upstream: raw.upstream.load(&folder, &place)?,
    })
}

pub(crate) fn listen_address(text: &str) -> Option<SocketAddr> {
    if let Some(port) = text.strip_prefix(':') {
        return Some(SocketAddr::from(([0, 0, 0, 0], port.parse().ok()?)));
    }
    text.to_socket_addrs().ok()?.next()
}

/// The checks of members; by default a `PING` every 2 s to those of Redis.
fn health(
    raw: &Option<RawHealth>,
    framing: Framing,
    answers: Answers,
    place: &SourceText<'_>,
) -> Result<Option<HealthCheck>, ConfigError> {
    let ping = (framing == Framing::Resp).then(|| b"*1\r\n$4\r\nPING\r\n".to_vec());
    let default = ping.clone().map(|ping| HealthCheck { every: CHECK, send: Some(ping) });
    let Some(raw) = raw else { return Ok(default) };
    let every = raw.every.unwrap_or(CHECK);
    let Some(send) = &raw.send else { return Ok(Some(HealthCheck { every, send: ping })) };
    let frame = send.get_ref().as_bytes().to_vec();
    let whole = Framer::new(framing, frame.len()).next(&frame);
    let help = match (answers, whole) {
        (Answers::None, _) => "leave it out: members do not answer frames with `answers = \"none\"`",
        (_, Ok(Some(len))) if len == frame.len() => {
            return Ok(Some(HealthCheck { every, send: Some(frame) }));
        }
        _ => "write one whole frame, with its prefix or delimiter: `send = \"*1\\r\\n$4\\r\\nPING\\r\\n\"`",
    };
    Err(place.mistake(send.span(), "members cannot answer this check".into(), Some(help)))
}

fn members(raw: &Raw, place: &SourceText<'_>) -> Result<Vec<MemberSpec>, ConfigError> {
    let wrong = |span, message: String, help| place.mistake(span, message, Some(help));
    let mut members = Vec::new();
    for (name, member) in &raw.member {
        let text = member.address.get_ref();
        let address = text.to_socket_addrs().ok().and_then(|mut all| all.next()).ok_or_else(|| {
            let help = "write `address = \"10.0.0.1:5000\"`, or a name that resolves now";
            wrong(member.address.span(), format!("`{text}` is not an address of a member"), help)
        })?;
        members.push(MemberSpec { name: name.clone(), address, drain: member.drain });
    }
    if members.is_empty() {
        return Err(wrong(
            0..0,
            "the configuration has no members".into(),
            "add `[member.a]` with `address = \"10.0.0.1:5000\"`",
        ));
    }
    if members.len() > MEMBERS {
        return Err(wrong(
            0..0,
            format!("{} members exceed the limit of {MEMBERS}", members.len()),
            "spread them over two switches",
        ));
    }
    Ok(members)
}

/// Reads the secret of the keyed hash. Returns true beside it if it is new.
fn secret(
    folder: &Path,
    path: &Spanned<String>,
    place: &SourceText<'_>,
) -> Result<([u8; 16], bool), ConfigError> {
    let file = folder.join(path.get_ref());
    let wrong = |why: String| {
        let help = "make one: `head -c 16 /dev/urandom > secret`; other users should not be able to read it";
        place.mistake(path.span(), format!("`{}` is not a secret: {why}", file.display()), Some(help))
    };
    let bytes = std::fs::read(&file).map_err(|error| wrong(error.to_string()))?;
    let secret = <[u8; 16]>::try_from(bytes.as_slice())
        .map_err(|_| wrong(format!("it has {} bytes instead of 16", bytes.len())))?;
    let age = std::fs::metadata(&file).and_then(|meta| meta.modified()).map(|written| written.elapsed());
    Ok((secret, matches!(age, Ok(Ok(age)) if age < NEW)))
}

fn clients(raw: &Raw, place: &SourceText<'_>) -> Result<Vec<ClientSpec>, ConfigError> {
    let mut clients = Vec::new();
    for (name, client) in &raw.client {
        let mut from = Vec::new();
        if let Some(given) = &client.from {
            for text in given.get_ref().all() {
                from.extend(Prefix::parse(text).ok_or_else(|| {
                    let help = "write `from = \"10.1.0.0/16\"`";
                    place.mistake(
                        given.span(),
                        format!("`{text}` is not an address or a network"),
                        Some(help),
                    )
                })?);
            }
        }
        let weight = client.weight.as_ref().map_or(1.0, |weight| *weight.get_ref());
        if !(weight.is_finite() && weight > 0.0) {
            let span = client.weight.as_ref().map_or(0..0, Spanned::span);
            return Err(place.mistake(
                span,
                "a weight must be a number above 0".into(),
                Some("write `weight = 2.0`"),
            ));
        }
        let (user, tls_name) = (client.user.clone(), client.tls_name.clone());
        clients.push(ClientSpec { name: name.clone(), from, user, tls_name, weight });
    }
    Ok(clients)
}

/// The limits of a configuration. `large` is true if a frame may exceed a member's buffer; it is then
/// alone in the buffer.
pub(crate) fn limits(raw: &RawLimits, large: bool, place: &SourceText<'_>) -> Result<Limits, ConfigError> {
    let known = Limits::default();
    let known = Limits { frame: if large { LARGE } else { known.frame }, ..known };
    let bytes = |given: &Option<Spanned<Bytes>>, default: u64, least: u64| match given {
        None => Ok(default),
        Some(given) if (least..=MOST).contains(&given.get_ref().get()) => Ok(given.get_ref().get()),
        Some(given) => {
            let help = format!("give {} to {}", Bytes(least), Bytes(MOST));
            Err(place.mistake(given.span(), format!("{} is out of range", given.get_ref()), Some(&help)))
        }
    };
    let frame = bytes(&raw.frame, known.frame as u64, 16)?;
    Ok(Limits {
        frame: frame as usize,
        sessions: raw.sessions.unwrap_or(known.sessions),
        sessions_per_client: raw.sessions_per_client.unwrap_or(known.sessions_per_client),
        session_buffer: bytes(&raw.session_buffer, known.session_buffer as u64, 1)? as usize,
        memory: raw.memory.map_or(known.memory, Bytes::get),
        member_buffer: match large {
            true => bytes(&raw.member_buffer, known.member_buffer, 16)?,
            false => bytes(&raw.member_buffer, known.member_buffer.max(frame), frame)?,
        },
        frame_time: raw.frame_time.unwrap_or(known.frame_time),
        answer_time: raw.answer_time.unwrap_or(known.answer_time),
        connect_time: raw.connect_time.unwrap_or(known.connect_time),
        idle_time: raw.idle_time.unwrap_or(known.idle_time),
        grace: raw.grace.unwrap_or(known.grace),
    })
}

/// A file that is watched: read again once it has changed and then stayed the same for 25 ms.
#[derive(Debug)]
pub struct Watched {
    path: PathBuf,
    read: Option<Mark>,
    now: (Option<Mark>, Instant),
}

/// The properties of a file that show a change: time, length and inode.
type Mark = (SystemTime, u64, u64);

impl Watched {
    /// Reads `path` for the first time.
    ///
    /// # Errors
    /// The file cannot be read, or has mistakes.
    pub fn open(path: &Path) -> Result<(Watched, Config), ConfigError> {
        let mark = mark(path);
        let config = Config::load(path)?;
        Ok((Watched { path: path.to_owned(), read: mark, now: (mark, Instant::now()) }, config))
    }

    /// A new configuration, or the reason the new one cannot be used. Does not block.
    pub fn poll(&mut self) -> Option<Result<Config, ConfigError>> {
        let (new, now) = (mark(&self.path), Instant::now());
        if new != self.now.0 {
            self.now = (new, now);
        }
        if new == self.read || now < self.now.1 + SETTLED {
            return None;
        }
        self.read = new;
        Some(Config::load(&self.path))
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn mark(path: &Path) -> Option<Mark> {
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.modified().ok()?, meta.len(), meta.ino()))
}

/// Age below which a secret is called new.
const NEW: Duration = Duration::from_secs(3600);
/// The interval between checks of a member.
const CHECK: Time = Time::from_secs(2);
/// Time for which a file must be unchanged, since editors write in several steps.
const SETTLED: Duration = Duration::from_millis(25);
/// The longest frame of Redis by default, bytes: a value of 512 MiB, and its command.
const LARGE: usize = 513 << 20;
/// Upper bounds on members and on sizes in bytes.
const MEMBERS: usize = 250;
const MOST: u64 = 1 << 31;
