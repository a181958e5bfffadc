//! The configuration of a part: a file or options, checked.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tollway_law::sender::{AnySender, SenderConfig, Sending};
use tollway_law::{Budget, Bytes, Rate};
use tollway_net::secure::KeyFile;
use tollway_proto::framing::{Framing, Key};
use tollway_proto::route::{Modules, Policy, Route};
use tollway_proto::switch::FlowControl;
use tollway_scenario::file::reading::{Mistakes, Reader, Section, page_markdown, read};
use tollway_scenario::file::{Scenario, ScenarioError};
use tollway_session::{SEGMENT, untolled};

use crate::config::file::{
    MEMBERS, NOWHERE, framing, limits, listen, on_failure, policy, resolved, secret, version, weight,
};
use crate::config::keys::{LIMITS, NEIGHBOUR, PART, PEER};
use crate::config::{Limits, OnFailure};

/// The configuration of a part, checked and resolved.
#[derive(Clone, Debug)]
pub struct Sites {
    /// Its version: that of the file, or a digest of the text.
    pub version: String,
    /// The address of its UDP socket.
    pub bind: SocketAddr,
    /// Its own key, and those of its neighbours.
    pub keys: KeyFile,
    key_file: PathBuf,
    /// The keys of the file that take effect at a start only.
    fixed: toml::Table,
    /// The sender law of its connections.
    pub law: Arc<dyn SenderConfig>,
    /// The part.
    pub part: Part,
    /// Of a switch: modules of the user's own, in the place of its policy.
    pub modules: Option<Modules>,
    /// The neighbours on the clients' side; of a front, its peer.
    pub peers: Vec<Neighbour>,
    /// Bounds.
    pub limits: Limits,
}

/// The relation of servers' frames to requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// One answer per frame, in order of arrival.
    Any,
    /// One answer per frame, in the order of the frames.
    InOrder,
    /// No answers.
    None,
    /// Any number of frames at any time.
    Stream,
}

/// The three parts.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// It has TCP clients.
    Front {
        /// Their addresses to connect to.
        listen: Vec<SocketAddr>,
        /// The framing of their bytes.
        framing: Framing,
        /// The servers' answering scheme.
        answers: Answers,
        /// The position of a frame's key; `None` without one.
        key: Option<Key>,
    },
    /// It spreads sessions.
    Middle {
        /// The member that a frame goes to.
        policy: Policy,
        /// The treatment of frames whose member is down.
        on_failure: OnFailure,
        /// The secret of the hash of keys, zeros without one.
        secret: [u8; 16],
        /// The division of a peer's window over the members.
        flow_control: FlowControl,
        /// The cluster.
        members: Vec<Neighbour>,
    },
    /// It has a TCP server.
    Back {
        /// Its address.
        server: SocketAddr,
        /// The framing of its bytes.
        framing: Framing,
        /// Its answering scheme.
        answers: Answers,
    },
}

/// A neighbour by ACP.
#[derive(Clone, Debug, PartialEq)]
pub struct Neighbour {
    /// Its name in the key file.
    pub name: String,
    /// The address of its UDP socket.
    pub address: SocketAddr,
    /// The rate of packets to it.
    pub rate: Option<Rate>,
    /// True of a member that gets no new frames.
    pub drain: bool,
    /// A member's share of keys, sessions and turns.
    pub weight: u32,
}

/// Options, in the place of a file.
#[derive(Clone, Debug, Default)]
pub struct CommandLine {
    /// `--listen`.
    pub listen: Vec<String>,
    /// `--frames`, `--policy`, `--key`, `--on-failure`, `--secret`, `--answers`, `--bind`,
    /// `--keys`, `--law`: keys of the file and their values.
    pub given: Vec<(&'static str, String)>,
    /// `--peer`: names and addresses.
    pub peers: Vec<String>,
    /// `--member`, the same.
    pub members: Vec<String>,
    /// `--to`.
    pub to: Vec<String>,
}

/// The chapter of the manual that lists every key of a part between sites.
pub fn sites_reference_markdown() -> String {
    let by = "`sites_reference_markdown()` in `crates/switch`";
    let title = "Configuration of `tollway switch` between sites";
    let limits = [("switch-reference.md", &LIMITS)];
    page_markdown(title, by, EXAMPLE, &[&PART, &PEER, &NEIGHBOUR], &limits)
}

/// The example of the manual's page.
const EXAMPLE: &str = r#"bind = "192.0.2.1:7200"
policy = "round-robin"
keys = "b.key"

[peer.a]
address = "198.51.100.1:7100"

[member.m1]
address = "10.0.0.1:7301"
[member.m2]
address = "10.0.0.2:7301"
"#;

impl Sites {
    /// Reads the file at `path` if it configures a part between sites, that is, if it has the key
    /// `bind`.
    ///
    /// # Errors
    /// The file cannot be read, or has mistakes.
    pub fn load(path: &Path) -> Result<Option<Sites>, ScenarioError> {
        let text = Scenario::read(path)?;
        let is_meant = text.parse::<toml::Table>().is_ok_and(|table| table.contains_key("bind"));
        let folder = path.parent().unwrap_or(Path::new(""));
        is_meant.then(|| Sites::parse(&path.display().to_string(), &text, folder)).transpose()
    }

    /// Reads a configuration. Errors call it `name`; the key file is looked for in `folder`.
    ///
    /// # Errors
    /// All independent mistakes, with their places.
    pub fn parse(name: &str, text: &str, folder: &Path) -> Result<Sites, ScenarioError> {
        let resolve = |top: &Reader<'_>, mistakes: &mut Mistakes| resolve(top, text, folder, mistakes);
        let sites = read(name, text, &PART, ("the configuration of a part", "configuration"), resolve)?;
        Ok(sites.expect("a part that lacks something has a mistake"))
    }

    /// Reads a configuration from options.
    ///
    /// # Errors
    /// As for a file with the same content.
    pub fn from_words(words: &CommandLine) -> Result<Sites, ScenarioError> {
        let quote = |word: &String| toml::Value::from(word.as_str()).to_string();
        let mut text = String::new();
        if !words.listen.is_empty() {
            let list: Vec<_> = words.listen.iter().map(quote).collect();
            text += &format!("listen = [{}]\n", list.join(", "));
        }
        for (key, word) in &words.given {
            text += &format!("{key} = {}\n", quote(word));
        }
        if !words.to.is_empty() {
            text += &format!("to = {}\n", quote(&words.to.join(",")));
        }
        for (section, all) in [("peer", &words.peers), ("member", &words.members)] {
            for word in all {
                let (name, address) = word.split_once('=').unwrap_or((word, word));
                text +=
                    &format!("[{section}.{}]\naddress = {}\n", quote(&name.into()), quote(&address.into()));
            }
        }
        Sites::parse("the command line", &text, Path::new(""))
    }

    /// The members of a switch.
    pub fn members(&self) -> &[Neighbour] {
        if let Part::Middle { members, .. } = &self.part { members } else { &[] }
    }

    /// Routes by modules of the user's own, which see the part of each frame in its first packet.
    pub fn with_modules(self, modules: Modules) -> Sites {
        Sites { modules: Some(modules), ..self }
    }

    /// The routing module of the session with a number.
    pub(super) fn module(&self, policy: Policy, session: u64) -> Box<dyn Route + Send> {
        match &self.modules {
            Some(modules) => modules.module(session),
            None => policy.module(session),
        }
    }

    /// Reads the key file again, for the key of a new member.
    pub(crate) fn reload_keys(&mut self, name: &str) -> Result<(), String> {
        let keys = KeyFile::load(&self.key_file).map_err(|error| error.to_string())?;
        if !keys.others().any(|known| known == name) {
            let path = self.key_file.display();
            return Err(format!("the key file `{path}` has no key of `{name}`: add its line `public`"));
        }
        self.keys = keys;
        Ok(())
    }

    /// The first key of the file that differs in `other`, and takes effect at a start only.
    pub(super) fn changed_for_good(&self, other: &Sites) -> Option<String> {
        let all = self.fixed.keys().chain(other.fixed.keys());
        all.into_iter().find(|key| self.fixed.get(*key) != other.fixed.get(*key)).cloned()
    }

    /// The sender of a session with a peer.
    pub(super) fn sender(&self, peer: usize) -> AnySender {
        let of = Sending::of(10.0);
        let line_rate = self.peers[peer].rate.unwrap_or(of.line_rate);
        self.law.make(&Sending { segment: SEGMENT, line_rate, ..of })
    }
}

/// The part, its peers and its members or server.
impl fmt::Display for Sites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |all: &[Neighbour]| {
            all.iter().map(|neighbour| neighbour.name.as_str()).collect::<Vec<_>>().join(", ")
        };
        let peers = names(&self.peers);
        match &self.part {
            Part::Front { framing, .. } => write!(f, "{framing} from TCP clients to {peers}"),
            Part::Middle { policy, members, .. } => {
                write!(f, "sessions from {peers} by {policy} to {}", names(members))
            }
            Part::Back { framing, server, .. } => write!(f, "{framing} from {peers} to {server}"),
        }
    }
}

/// The configuration of a file; `None` only after a mistake.
fn resolve(top: &Reader<'_>, text: &str, folder: &Path, mistakes: &mut Mistakes) -> Option<Sites> {
    let peers = neighbours(top, "peer", &PEER, mistakes);
    let members = neighbours(top, "member", &NEIGHBOUR, mistakes);
    let part = part(top, members, folder, mistakes);
    let limits = limits_between_sites(&top.table("limits", &LIMITS), mistakes);
    let bind = address(top, "bind", "bind = \"10.0.0.1:7100\"", mistakes);
    let members = if let Some(Part::Middle { members, .. }) = &part { &members[..] } else { &[] };
    let law = law(top, peers.iter().chain(members), mistakes);
    let key_file = folder.join(top.text("keys").unwrap_or_default());
    let keys = keys(top, &key_file, peers.iter().chain(members), mistakes);
    let mut fixed: toml::Table = text.parse().unwrap_or_default();
    CHANGES.iter().for_each(|key| drop(fixed.remove(*key)));
    Some(Sites {
        version: version(top, text),
        bind: bind?,
        keys: keys?,
        key_file,
        fixed,
        law: law?,
        part: part?,
        modules: None,
        peers,
        limits,
    })
}

/// The part, by which of the ways to and from it are given.
fn part(top: &Reader<'_>, members: Vec<Neighbour>, folder: &Path, mistakes: &mut Mistakes) -> Option<Part> {
    if top.lacks("peer") {
        mistakes
            .add(top.at("bind"), "no peer is given", "no `[peer.NAME]`")
            .help("add `--peer NAME=HOST:PORT`, in a file `[peer.NAME]` with `address`");
    }
    match (top.has("listen"), top.has("to"), top.has("member")) {
        (true, false, false) => {
            if top.named("peer", &PEER).count() > 1 {
                mistakes
                    .add(top.at("bind"), "sessions of a front go to one peer", "a front")
                    .help("give one peer: its switch spreads the sessions");
            }
            let (framing, answers) = framing_between_sites(top, mistakes)?;
            if framing == Framing::Resp && top.has("key") {
                mistakes
                    .add(top.at("key"), "a Redis command has its own key", "here")
                    .help("leave out `key` with `frames = \"resp\"`");
            }
            let key = top.parsed("key", |word| word.parse(), "write `key = \"4..20\"`", mistakes);
            Some(Part::Front { listen: listen(top, mistakes), framing, answers, key })
        }
        (false, true, false) => {
            let server = address(top, "to", "to = \"127.0.0.1:6001\"", mistakes);
            let (framing, answers) = framing_between_sites(top, mistakes)?;
            Some(Part::Back { server: server?, framing, answers })
        }
        (false, false, true) => {
            if top.has("frames") {
                mistakes
                    .add(top.at("frames"), "a switch between ACP hops does not read frames", "here")
                    .help("leave out `frames`: only the front and the backs need it");
            }
            if top.has("key") {
                mistakes
                    .add(top.at("key"), "a switch between ACP hops does not read keys", "here")
                    .help("give `key` to the front, which sends a hash of it");
            }
            let policy = policy(top).unwrap_or(Policy::LeastLoaded);
            for (_, keys) in top.named("member", &NEIGHBOUR) {
                weight(&keys, policy, mistakes);
            }
            let on_failure = on_failure(top, policy, mistakes).unwrap_or(OnFailure::Move);
            let (secret, _) = secret(top, folder, mistakes).unwrap_or_default();
            let flow_control = match top.word("flow-control") {
                "strict" => FlowControl::Strict,
                _ => FlowControl::Credit,
            };
            Some(Part::Middle { policy, on_failure, secret, flow_control, members })
        }
        _ => {
            mistakes.add(top.at("bind"), "the role of this part is not given", "which part").help(
                "in addition to `peer`, give `listen` (TCP clients), `member` (a cluster behind ACP) or `to` (a TCP \
                server)",
            );
            None
        }
    }
}

/// The limits. A receiver holds a frame until it is whole, and its window closes by quarters of
/// `session-buffer`: two frames have to fit.
fn limits_between_sites(keys: &Reader<'_>, mistakes: &mut Mistakes) -> Limits {
    let mut limits = limits(keys, false, mistakes);
    let least = 2 * limits.frame;
    if !keys.has("session-buffer") {
        limits.session_buffer = SESSION_BUFFER.max(least);
    } else if limits.session_buffer < least {
        let message = format!("it has no room for two frames of {}", Bytes(limits.frame as u64));
        mistakes
            .add(keys.at("session-buffer"), message, "too small")
            .help("give it at least twice the value of `frame`, or a smaller `frame`");
    }
    limits
}

/// The framing and the answering scheme of a TCP side.
fn framing_between_sites(top: &Reader<'_>, mistakes: &mut Mistakes) -> Option<(Framing, Answers)> {
    if top.lacks("frames") {
        mistakes
            .add(top.at("bind"), "the framing of the TCP bytes is missing", "no `frames`")
            .help("add `frames = \"lines\"`");
    }
    let framing = framing(top, mistakes)?;
    let answers = match (top.word("answers"), framing) {
        ("any", _) => Answers::Any,
        ("in-order", _) => Answers::InOrder,
        ("stream", _) => Answers::Stream,
        ("", Framing::Length(_)) => Answers::Any,
        ("", Framing::Resp) => Answers::InOrder,
        _ => Answers::None,
    };
    if framing == Framing::Resp && answers != Answers::InOrder {
        mistakes
            .add(top.at("answers"), "Redis answers in the order of the commands", "here")
            .help("leave out `answers` with `frames = \"resp\"`");
    }
    Some((framing, answers))
}

fn address(keys: &Reader<'_>, key: &str, help: &str, mistakes: &mut Mistakes) -> Option<SocketAddr> {
    let address = |text: &str| resolved(text).ok_or_else(|| format!("`{text}` is not an address"));
    keys.parsed(key, address, &format!("write `{help}`"), mistakes)
}

fn neighbours(
    top: &Reader<'_>,
    key: &'static str,
    section: &'static Section,
    mistakes: &mut Mistakes,
) -> Vec<Neighbour> {
    let resolve = |(name, keys): (&str, Reader<'_>)| {
        let help = "address = \"10.0.0.1:7200\"`, on the command line `NAME=10.0.0.1:7200";
        let address = address(&keys, "address", help, mistakes).unwrap_or(NOWHERE);
        let is_member = key == "member";
        Neighbour {
            name: name.to_owned(),
            address,
            rate: keys.rate("rate"),
            drain: is_member && keys.truth("drain"),
            weight: if is_member { keys.count("weight").unwrap_or(1) as u32 } else { 1 },
        }
    };
    let all: Vec<Neighbour> = top.named(key, section).map(resolve).collect();
    if all.len() > MEMBERS {
        let message = format!("`{key}` has {} entries; the limit is {MEMBERS}", all.len());
        mistakes.add(top.at(key), message, "too many");
    }
    all
}

/// The key file, which has a key of every neighbour.
fn keys<'n>(
    top: &Reader<'_>,
    path: &Path,
    mut neighbours: impl Iterator<Item = &'n Neighbour>,
    mistakes: &mut Mistakes,
) -> Option<KeyFile> {
    if top.lacks("keys") {
        let message = "datagrams between sites are encrypted, and no keys are given";
        mistakes
            .add(top.at("bind"), message, "no `keys`")
            .help("make keys with `tollway switch keygen NAME…`, and give this part's with `--keys FILE`");
    }
    top.text("keys")?;
    let file = match KeyFile::load(path) {
        Ok(file) => file,
        Err(error) => {
            mistakes.add(top.at("keys"), error.to_string(), "this file");
            return None;
        }
    };
    if let Some(neighbour) = neighbours.find(|neighbour| !file.others().any(|name| name == neighbour.name)) {
        let known: Vec<&str> = file.others().collect();
        let help = format!("a neighbour is `NAME=HOST:PORT`; the file's names are {}", known.join(", "));
        let message = format!("the key file has no key of `{}`", neighbour.name);
        mistakes.add(top.at("keys"), message, "this file").help(help);
    }
    Some(file)
}

/// The law. One that depends on links' tolls needs their rates.
fn law<'n>(
    top: &Reader<'_>,
    mut neighbours: impl Iterator<Item = &'n Neighbour>,
    mistakes: &mut Mistakes,
) -> Option<Arc<dyn SenderConfig>> {
    let word = top.text("law")?;
    if word != "fcp" && top.has("budget") {
        let message = format!("sessions under `{word}` have no budget");
        mistakes.add(top.at("budget"), message, "here").help("write `law = \"fcp\"`");
    }
    let budget = top.has("budget").then(|| Budget::per_sec(top.number("budget")));
    let Some(law) = tollway_session::law(&word, budget) else {
        let words: Vec<&str> = untolled().map(|(word, _)| word).collect();
        mistakes
            .add(top.at("law"), format!("`{word}` is not a law for sessions between sites"), "this law")
            .help(format!("choose one of xcp, fcp, {}", words.join(", ")));
        return None;
    };
    if law.descriptor().reads.is_some()
        && let Some(without) = neighbours.find(|neighbour| neighbour.rate.is_none())
    {
        let message = format!("`{word}` needs the rate of the link to `{}`", without.name);
        mistakes
            .add(top.at("law"), message, "no `rate`")
            .help("give each `[peer.NAME]` and `[member.NAME]` a `rate`, such as \"20 Mbps\"");
    }
    Some(law)
}

/// Default of bytes under way per session and direction.
const SESSION_BUFFER: usize = 2 << 20;
/// Keys of the file whose changes take effect at once.
const CHANGES: [&str; 6] = ["version", "policy", "on-failure", "flow-control", "member", "limits"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_lists_every_key() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/sites-reference.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, sites_reference_markdown()).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            committed == sites_reference_markdown(),
            "run `UPDATE_DOCS=1 cargo test -p tollway-switch manual`"
        );
        let error = Sites::parse("x", EXAMPLE, Path::new("")).unwrap_err();
        assert_eq!(error.mistakes().len(), 1, "only the key file is missing: {error:?}");
    }
}
