//! The configuration of a part: a file or options, checked.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use tollway_law::sender::{
    AnySender, CheatConfig, FcpConfig, LAWS, SenderConfig, Sending, XcpConfig, XcpSender,
};
use tollway_law::{Budget, Bytes, Rate};
use tollway_net::secure::KeyFile;
use tollway_proto::dispatch::Answers;
use tollway_proto::framing::Framing;
use tollway_proto::route::{Hash, Policy};
use toml::Spanned;

use super::SEGMENT;
use crate::config::error::SourceText;
use crate::config::file::{OneOrMany, RawLimits, limits, listen_address};
use crate::config::{ConfigError, Limits, answers};

/// The configuration of a part, checked and resolved.
#[derive(Clone, Debug)]
pub struct Sites {
    /// Its version: that of the file, or a digest of the text.
    pub version: String,
    /// The address of its UDP socket.
    pub bind: SocketAddr,
    /// Its own key, and those of its neighbours.
    pub keys: KeyFile,
    /// The sender law of its connections.
    pub law: Arc<dyn SenderConfig>,
    /// The part.
    pub part: Part,
    /// The neighbours on the clients' side; of a front, its peer.
    pub peers: Vec<Neighbour>,
    /// Bounds.
    pub limits: Limits,
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
    },
    /// It spreads sessions.
    Middle {
        /// The member that a frame goes to.
        policy: Policy,
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
}

/// Options, in the place of a file.
#[derive(Clone, Debug, Default)]
pub struct CommandLine {
    /// `--listen`.
    pub listen: Vec<String>,
    /// `--frames`, `--policy`, `--answers`, `--bind`, `--keys`, `--law`: keys of the file and their
    /// values.
    pub given: Vec<(&'static str, String)>,
    /// `--peer`: names and addresses.
    pub peers: Vec<String>,
    /// `--member`, the same.
    pub members: Vec<String>,
    /// `--to`.
    pub to: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Raw {
    version: Option<String>,
    bind: Spanned<String>,
    keys: Option<Spanned<PathBuf>>,
    listen: Option<Spanned<OneOrMany>>,
    frames: Option<Spanned<String>>,
    answers: Option<Spanned<String>>,
    policy: Option<Spanned<String>>,
    law: Option<Spanned<String>>,
    budget: Option<Spanned<f64>>,
    to: Option<Spanned<String>>,
    #[serde(default)]
    peer: BTreeMap<String, RawNeighbour>,
    #[serde(default)]
    member: BTreeMap<String, RawNeighbour>,
    #[serde(default)]
    limits: RawLimits,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawNeighbour {
    address: Spanned<String>,
    rate: Option<Spanned<Rate>>,
}

impl Sites {
    /// Reads the file at `path` if it configures a part between sites, that is, if it has the key
    /// `bind`.
    ///
    /// # Errors
    /// The file cannot be read, or has mistakes.
    pub fn load(path: &Path) -> Result<Option<Sites>, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::Unreadable { path: path.to_owned(), error })?;
        let is_meant = text.parse::<toml::Table>().is_ok_and(|table| table.contains_key("bind"));
        let folder = path.parent().unwrap_or(Path::new(""));
        is_meant.then(|| Sites::parse(&path.display().to_string(), &text, folder)).transpose()
    }

    /// Reads a configuration. Errors call it `name`; the key file is looked for in `folder`.
    ///
    /// # Errors
    /// The first mistake, with its place.
    pub fn parse(name: &str, text: &str, folder: &Path) -> Result<Sites, ConfigError> {
        let place = SourceText { name, text };
        let raw: Raw = toml::from_str(text)
            .map_err(|error| place.mistake(error.span().unwrap_or(0..0), error.message().to_owned(), None))?;
        let checker = Checker { place, raw: &raw };
        let part = checker.part()?;
        let peers = checker.neighbours(&raw.peer, "peer")?;
        let members = if let Part::Middle { members, .. } = &part { &members[..] } else { &[] };
        Ok(Sites {
            version: raw
                .version
                .clone()
                .unwrap_or_else(|| format!("{:08x}", Hash::new([0; 16]).of(text.as_bytes()) >> 32)),
            bind: checker.address(&raw.bind, "bind = \"10.0.0.1:7100\"")?,
            keys: checker.keys(folder, peers.iter().chain(members))?,
            law: checker.law(peers.iter().chain(members))?,
            limits: checker.limits()?,
            peers,
            part,
        })
    }

    /// Reads a configuration from options.
    ///
    /// # Errors
    /// As for a file with the same content.
    pub fn from_words(words: &CommandLine) -> Result<Sites, ConfigError> {
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
            Part::Middle { policy, members } => {
                write!(f, "sessions from {peers} by {policy} to {}", names(members))
            }
            Part::Back { framing, server, .. } => write!(f, "{framing} from {peers} to {server}"),
        }
    }
}

/// Looks for mistakes.
struct Checker<'t> {
    place: SourceText<'t>,
    raw: &'t Raw,
}

impl Checker<'_> {
    /// The part, by which of the four ways to and from it are given.
    fn part(&self) -> Result<Part, ConfigError> {
        let Raw { listen, to, member, peer, policy, .. } = self.raw;
        let wrong = |span, message: &str, help| Err(self.place.mistake(span, message.to_owned(), Some(help)));
        if peer.is_empty() {
            let help = "add `--peer NAME=HOST:PORT`, in a file `[peer.NAME]` with `address`";
            return wrong(self.raw.bind.span(), "no peer is given", help);
        }
        match (listen, to, member.is_empty()) {
            (Some(listen), None, true) => {
                if peer.len() > 1 {
                    let help = "give one peer: its switch spreads the sessions";
                    return wrong(self.raw.bind.span(), "sessions of a front go to one peer", help);
                }
                let mut at = Vec::new();
                for address in listen.get_ref().all() {
                    at.push(listen_address(address).ok_or_else(|| {
                        let message = format!("`{address}` is not an address to listen at");
                        self.place.mistake(
                            listen.span(),
                            message,
                            Some("write `listen = \"127.0.0.1:5000\"`"),
                        )
                    })?);
                }
                let (framing, answers) = self.framing()?;
                Ok(Part::Front { listen: at, framing, answers })
            }
            (None, Some(to), true) => {
                let (framing, answers) = self.framing()?;
                let server = self.address(to, "to = \"127.0.0.1:6001\"")?;
                Ok(Part::Back { server, framing, answers })
            }
            (None, None, false) => {
                if let Some(frames) = &self.raw.frames {
                    let help = "leave out `frames`: only the front and the backs need it";
                    return wrong(frames.span(), "a switch between ACP hops does not read frames", help);
                }
                let chosen = match policy {
                    None => Policy::LeastLoaded,
                    Some(word) => word.get_ref().parse().map_err(|error| {
                        self.place.mistake(word.span(), error, Some("write `policy = \"round-robin\"`"))
                    })?,
                };
                if let (Policy::ByKey, Some(word)) = (chosen, policy) {
                    let help = "choose `round-robin`, `least-loaded` or `sticky`";
                    return wrong(
                        word.span(),
                        "a switch between ACP hops does not read frames or keys",
                        help,
                    );
                }
                let members = self.neighbours(member, "member")?;
                Ok(Part::Middle { policy: chosen, members })
            }
            _ => wrong(
                self.raw.bind.span(),
                "the role of this part is not given",
                "in addition to `peer`, give `listen` (TCP clients), `member` (a cluster behind ACP) or `to` \
                (a TCP server)",
            ),
        }
    }

    /// The limits. A receiver holds a frame until it is whole, and its window closes by quarters of
    /// `session-buffer`: two frames have to fit.
    fn limits(&self) -> Result<Limits, ConfigError> {
        let mut limits = limits(&self.raw.limits, false, &self.place)?;
        let least = 2 * limits.frame;
        match &self.raw.limits.session_buffer {
            None => limits.session_buffer = SESSION_BUFFER.max(least),
            Some(given) if limits.session_buffer < least => {
                let message = format!("it has no room for two frames of {}", Bytes(limits.frame as u64));
                let help = "give it at least twice the value of `frame`, or a smaller `frame`";
                return Err(self.place.mistake(given.span(), message, Some(help)));
            }
            Some(_) => {}
        }
        Ok(limits)
    }

    fn framing(&self) -> Result<(Framing, Answers), ConfigError> {
        let Some(frames) = &self.raw.frames else {
            let message = "the framing of the TCP bytes is missing".to_owned();
            return Err(self.place.mistake(self.raw.bind.span(), message, Some("add `frames = \"lines\"`")));
        };
        let help = "see the chapter on framing: `frames = \"lines\"`";
        let framing: Framing =
            frames.get_ref().parse().map_err(|error| self.place.mistake(frames.span(), error, Some(help)))?;
        if framing == Framing::Resp {
            let help = "put a switch without `--bind` before the servers, or choose another framing";
            let message = "sites cannot keep related RESP commands together".to_owned();
            return Err(self.place.mistake(frames.span(), message, Some(help)));
        }
        let word = self.raw.answers.as_ref();
        let answers = answers(framing, word.map(|word| word.get_ref().as_str())).map_err(|error| {
            self.place.mistake(word.map_or(0..0, Spanned::span), error, Some("write `answers = \"any\"`"))
        })?;
        Ok((framing, answers))
    }

    fn address(&self, text: &Spanned<String>, help: &str) -> Result<SocketAddr, ConfigError> {
        let found = text.get_ref().to_socket_addrs().ok().and_then(|mut all| all.next());
        found.ok_or_else(|| {
            let message = format!("`{}` is not an address", text.get_ref());
            self.place.mistake(text.span(), message, Some(&format!("write `{help}`")))
        })
    }

    fn neighbours(
        &self,
        all: &BTreeMap<String, RawNeighbour>,
        section: &str,
    ) -> Result<Vec<Neighbour>, ConfigError> {
        if all.len() > MOST {
            let message = format!("`{section}` has {} entries; the limit is {MOST}", all.len());
            return Err(self.place.mistake(self.raw.bind.span(), message, None));
        }
        let resolve = |(name, raw): (&String, &RawNeighbour)| {
            let help = "address = \"10.0.0.1:7200\"`, on the command line `NAME=10.0.0.1:7200";
            let rate = raw.rate.as_ref().map(|rate| *rate.get_ref());
            if let (Some(rate), Some(at)) = (rate, &raw.rate)
                && rate.bytes_per_sec() < LEAST_RATE
            {
                let message = format!("{rate} is too slow for a link");
                return Err(self.place.mistake(at.span(), message, Some("write `rate = \"20 Mbps\"`")));
            }
            Ok(Neighbour { name: name.clone(), address: self.address(&raw.address, help)?, rate })
        };
        all.iter().map(resolve).collect()
    }

    /// The key file, which has a key of every neighbour.
    fn keys<'n>(
        &self,
        folder: &Path,
        mut neighbours: impl Iterator<Item = &'n Neighbour>,
    ) -> Result<KeyFile, ConfigError> {
        let Some(path) = &self.raw.keys else {
            let message = "datagrams between sites are encrypted, and no keys are given".to_owned();
            let help =
                "make keys with `tollway switch keygen NAME…`, and give this part's with `--keys FILE`";
            return Err(self.place.mistake(self.raw.bind.span(), message, Some(help)));
        };
        let file = KeyFile::load(&folder.join(path.get_ref()))
            .map_err(|error| self.place.mistake(path.span(), error.to_string(), None))?;
        match neighbours.find(|neighbour| !file.others().any(|name| name == neighbour.name)) {
            None => Ok(file),
            Some(neighbour) => {
                let known: Vec<&str> = file.others().collect();
                let message = format!("the key file has no key of `{}`", neighbour.name);
                let help =
                    format!("a neighbour is `NAME=HOST:PORT`; the file's names are {}", known.join(", "));
                Err(self.place.mistake(path.span(), message, Some(&help)))
            }
        }
    }

    /// The law. One that depends on links' tolls is refused.
    fn law<'n>(
        &self,
        mut neighbours: impl Iterator<Item = &'n Neighbour>,
    ) -> Result<Arc<dyn SenderConfig>, ConfigError> {
        let word = self.raw.law.as_ref().map_or("newreno", |law| law.get_ref().as_str());
        let span = self.raw.law.as_ref().map_or(0..0, Spanned::span);
        let budget = self.budget(word)?;
        let tolled: Arc<dyn SenderConfig> = match word {
            "xcp" => {
                let law = XcpConfig { whole_window: true, ..XcpConfig::default() };
                Arc::new(XcpSender { law, cheat: CheatConfig::default() })
            }
            "fcp" => Arc::new(FcpConfig { budget, ..FcpConfig::default() }),
            _ => return self.untolled(word, span),
        };
        match neighbours.find(|neighbour| neighbour.rate.is_none()) {
            None => Ok(tolled),
            Some(without) => {
                let message = format!("`{word}` needs the rate of the link to `{}`", without.name);
                let help = "give each `[peer.NAME]` and `[member.NAME]` a `rate`, such as \"20 Mbps\"";
                Err(self.place.mistake(span, message, Some(help)))
            }
        }
    }

    /// The law `word`, if it needs no links.
    fn untolled(&self, word: &str, span: Range<usize>) -> Result<Arc<dyn SenderConfig>, ConfigError> {
        let mut words = vec!["xcp", "fcp"];
        for entry in LAWS {
            let config = (entry.read)(&());
            if config.descriptor().reads.is_some() {
                continue;
            }
            if entry.word == word {
                return Ok(config);
            }
            words.push(entry.word);
        }
        let message = format!("`{word}` is not a law for sessions between sites");
        Err(self.place.mistake(span, message, Some(&format!("choose one of {}", words.join(", ")))))
    }

    /// The budget of each session, under the law `word`.
    fn budget(&self, word: &str) -> Result<Budget, ConfigError> {
        let Some(given) = &self.raw.budget else { return Ok(FcpConfig::default().budget) };
        let budget = *given.get_ref();
        if word != "fcp" {
            let message = format!("sessions under `{word}` have no budget");
            return Err(self.place.mistake(given.span(), message, Some("write `law = \"fcp\"`")));
        }
        if !(LEAST_BUDGET..=MOST_BUDGET).contains(&budget) {
            let message =
                format!("a budget of {budget} $/s is not between {LEAST_BUDGET:e} and {MOST_BUDGET:e}");
            return Err(self.place.mistake(given.span(), message, Some("write `budget = 1.0`")));
        }
        Ok(Budget::per_sec(budget))
    }
}

/// Default of bytes under way per session and direction.
const SESSION_BUFFER: usize = 2 << 20;
/// Upper bound on peers, and on members.
const MOST: usize = 250;
/// The slowest link, bytes per second.
const LEAST_RATE: f64 = 1000.0;
/// The least and the greatest budget, $/s. A session that may spend nothing would never end.
const LEAST_BUDGET: f64 = 1e-6;
const MOST_BUDGET: f64 = 1e12;
