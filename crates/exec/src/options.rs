//! The options of `tollway exec`: a network in words or a file, a program, servers, ports.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use miette::Diagnostic;
use serde::{Deserialize, Serialize};
use tollway_law::Time;
use tollway_scenario::file::{Scenario, ScenarioError, Variant};
use tollway_scenario::plan::Plan;
use tollway_scenario::run::mesh::mesh;

use crate::mahimahi::chain;
use crate::profiles::Profile;
use crate::program::{Listen, Publish, Spec, Tls};
use crate::words::two_nodes;

/// The options of `tollway exec`, before parsing.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// A scenario file with the network.
    pub file: Option<PathBuf>,
    /// The text of [`Options::file`], which is then not read.
    pub text: Option<String>,
    /// Words for the link towards the program, and for the link back unless [`Options::link_up`] is
    /// given.
    pub link: Option<String>,
    /// Words for the link from the program.
    pub link_up: Option<String>,
    /// A chain of Mahimahi's shells.
    pub mahimahi: Option<String>,
    /// The name of a measured network.
    pub profile: Option<String>,
    /// The program's node; the first by default.
    pub node: Option<String>,
    /// The variant of the file; the first by default.
    pub variant: Option<String>,
    /// Changes of the scenario's keys, `KEY=VALUE`.
    pub sets: Vec<String>,
    /// The seed of random choices.
    pub seed: Option<u64>,
    /// More names of nodes, `NODE=NAME`.
    pub names: Vec<String>,
    /// Servers, `[NODE=]COMMAND`.
    pub serve: Vec<String>,
    /// Ports of this machine, `[NODE:]PORT[:PORT HERE][/udp]`, `none` or `all`.
    pub publish: Vec<String>,
    /// Ports of this machine that lead into the network, `[ADDRESS:]PORT=NODE:PORT[@NODE]`.
    pub listen: Vec<String>,
    /// Ports of the program's own loopback interface that lead over the network,
    /// `PORT[=NODE:PORT[@NODE]]`.
    pub localhost: Vec<String>,
    /// Ports with TLS in front of servers, `[NODE:]PORT:PORT THERE`.
    pub tls: Vec<String>,
    /// The node that leads to the outside; the other node if empty.
    pub outside: Option<String>,
    /// Kernel network settings, `KEY=VALUE`.
    pub sysctls: Vec<String>,
    /// The longest run time of the program.
    pub timeout: Option<String>,
    /// Sends the program's standard output to this process's standard error.
    pub aside: bool,
    /// The file for a capture of the program's packets.
    pub capture: Option<PathBuf>,
    /// Links may be changed during the run.
    pub view: bool,
}

/// The reason why there is nothing to run.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// An option is wrong.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The file has mistakes, or the scenario made from words.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
}

/// A mistake in an option, with the remedy.
#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("{message}")]
pub struct OptionError {
    message: String,
    #[help]
    help: Option<String>,
}

fn wrong(help: Option<&str>, message: impl Into<String>) -> RequestError {
    OptionError { message: message.into(), help: help.map(str::to_owned) }.into()
}

impl Options {
    /// The scenario, from a file or from words.
    ///
    /// # Errors
    /// The file or the words have mistakes.
    pub fn network(&self) -> Result<Scenario, RequestError> {
        let mut sets = self.sets.clone();
        sets.extend(self.seed.map(|seed| format!("seed={seed}")));
        if let Some(file) = &self.file {
            let read = || Scenario::read(file);
            let text = self.text.clone().map_or_else(read, Ok)?;
            return Ok(Scenario::parse(&file.display().to_string(), &text, &sets)?);
        }
        if let Some(profile) = self.measured() {
            let text = two_nodes(profile.down, Some(profile.up), 1);
            let text = text.map_err(|error| wrong(None, error.to_string()))?;
            return Ok(Scenario::parse("--profile", &text, &sets)?);
        }
        let (link, up) = (self.link.as_deref().unwrap_or_default(), self.link_up.as_deref());
        let (words, text) = match &self.mahimahi {
            Some(shells) => (vec![("--mahimahi", shells.as_str())], chain(shells, 1)),
            None => {
                let words = [("--link", link)].into_iter().chain(up.map(|up| ("--link-up", up)));
                (words.collect(), two_nodes(link, up, 1))
            }
        };
        let text = text.map_err(|error| wrong(Some(error.help), error.to_string()))?;
        let (option, _) = words[0];
        Ok(Scenario::parse(option, &text, &sets).map_err(|error| error.in_words(option, &words))?)
    }

    /// The network of [`Options::profile`].
    pub fn measured(&self) -> Option<&'static Profile> {
        if self.file.is_some() { None } else { self.profile.as_deref().and_then(Profile::named) }
    }

    /// The selected variant of `scenario`.
    ///
    /// # Errors
    /// It has no such variant.
    pub fn variant<'a>(&self, scenario: &'a Scenario) -> Result<&'a Variant, RequestError> {
        let Some(name) = &self.variant else { return Ok(&scenario.variants()[0]) };
        scenario.variant(name).ok_or_else(|| {
            let known: Vec<&str> = scenario.variants().iter().map(|v| v.name.as_str()).collect();
            wrong(Some(&format!("it has {}", known.join(", "))), format!("the file has no variant `{name}`"))
        })
    }

    /// Builds the run of the program, with its servers and ports, over `plan`. Without a program,
    /// the run lasts until a signal.
    ///
    /// # Errors
    /// An option names something that the network does not have, or has no value.
    pub fn spec(&self, plan: &Plan, program: &[OsString]) -> Result<Spec, RequestError> {
        let mut mesh = mesh(plan).map_err(|error| wrong(None, error.to_string()))?;
        let find = |name: &str| find(&mesh.nodes, name);
        let node = self.node.as_deref().map_or(Ok(0), find)?;
        let in_words = self.file.is_none();
        // In a network from words, the far end is the last node; in a file of two nodes, the other
        // one.
        let other = match mesh.nodes.len() as u32 {
            nodes if in_words => Some(nodes - 1),
            2 => Some(u32::from(node == 0)),
            _ => None,
        };
        let mut aliases = Vec::new();
        if in_words {
            aliases.extend([("client".to_owned(), 0), ("host".to_owned(), mesh.nodes.len() as u32 - 1)]);
        }
        for text in &self.names {
            let help = "write it like `--name server=api.example.com`";
            let plain = |name: &str| {
                !name.is_empty()
                    && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
            };
            let (node, name) = text.split_once('=').filter(|(_, name)| plain(name)).ok_or_else(|| {
                wrong(Some(help), format!("`--name {text}` does not have the form NODE=NAME"))
            })?;
            aliases.push((name.to_owned(), find(node)?));
        }
        let mut servers = Vec::new();
        for text in &self.serve {
            let named = text.split_once('=').and_then(|(name, command)| Some((find(name).ok()?, command)));
            servers.push(match (named, other) {
                (Some((node, command)), _) => (node, command.to_owned()),
                (None, Some(other)) => (other, text.clone()),
                (None, None) => {
                    let help = "write it like `--serve NODE='iperf3 -s'`";
                    return Err(wrong(
                        Some(help),
                        format!("`--serve {text}` does not begin with a node of the file"),
                    ));
                }
            });
        }
        let mut published = Vec::new();
        let mut publish_all = self.publish.is_empty() && self.serve.is_empty();
        for text in &self.publish {
            match text.as_str() {
                "none" => {}
                "all" => publish_all = true,
                text => published.push(publish(text, other, &find)?),
            }
        }
        let outside = match self.outside.as_deref() {
            None => None,
            Some("") => Some(other.ok_or_else(|| {
                let help = "write it like `--outside=NODE`";
                wrong(Some(help), "`--outside` needs the node of the file that connects to the outside")
            })?),
            Some(name) => Some(find(name)?),
        };
        if outside == Some(node) {
            return Err(wrong(
                Some("name another node, with links between the program and the outside"),
                "`--outside` names the program's node",
            ));
        }
        let sysctls = self.sysctls.iter().map(|text| sysctl(text)).collect::<Result<_, _>>()?;
        let ends = Ends { program: node, other, nodes: &mesh.nodes };
        let doors = self.listen.iter().map(|text| ends.listen(text));
        let doors = doors.chain(self.localhost.iter().map(|text| ends.localhost(text)));
        let listen = doors.collect::<Result<_, _>>()?;
        let tls = self.tls.iter().map(|text| ends.tls(text)).collect::<Result<_, _>>()?;
        let timeout = self.timeout.as_deref().map(span).transpose()?;
        mesh.outside = outside;
        Ok(Spec {
            mesh,
            // The view may drop single packets, or lower a link's rate.
            train: if self.view { 0 } else { longest_train(plan) },
            aliases,
            sysctls,
            program: program.to_vec(),
            node,
            other,
            servers,
            published,
            publish_all,
            listen,
            tls,
            port_changes: plan.port_changes.clone(),
            timeout,
            stdout_aside: self.aside,
            capture: self.capture.clone(),
        })
    }
}

/// Parses `[NODE:]PORT[:PORT HERE][/udp]`.
fn publish(
    text: &str,
    other: Option<u32>,
    find: &dyn Fn(&str) -> Result<u32, RequestError>,
) -> Result<Publish, RequestError> {
    let wrong_port = || {
        let help = "write it like `--publish 80`, `--publish 80:8080`, `--publish hq:53:5353/udp`";
        wrong(Some(help), format!("`--publish {text}` has no valid port"))
    };
    let (ports, udp) = match text.rsplit_once('/') {
        Some((ports, "udp")) => (ports, true),
        Some((ports, "tcp")) => (ports, false),
        Some(_) => return Err(wrong_port()),
        None => (text, false),
    };
    let mut parts: Vec<&str> = ports.split(':').collect();
    let node = match parts[0].parse::<u16>() {
        Err(_) if parts.len() > 1 => find(parts.remove(0))?,
        _ => other.ok_or_else(|| {
            let help = format!("write it like `--publish NODE:{text}`");
            wrong(Some(&help), format!("`--publish {text}` does not begin with a node of the file"))
        })?,
    };
    let number = |text: &str| number(text).ok_or_else(wrong_port);
    let (port, host) = match parts[..] {
        [port] => (number(port)?, number(port)?),
        [port, host] => (number(port)?, number(host)?),
        _ => return Err(wrong_port()),
    };
    Ok(Publish { node, port, host, udp })
}

/// The nodes that `--listen` and `--localhost` refer to.
struct Ends<'a> {
    program: u32,
    other: Option<u32>,
    nodes: &'a [String],
}

impl Ends<'_> {
    /// Parses `[ADDRESS:]PORT=NODE:PORT[@NODE]`.
    fn listen(&self, text: &str) -> Result<Listen, RequestError> {
        let option = format!("--listen {text}");
        let shape = |what: String| {
            let help = "write it like `--listen 127.0.0.1:9000=server:8000`, or `--listen 9000=server:8000`";
            fault(&option, help, &what)
        };
        let (here, there) = text.split_once('=').ok_or_else(|| shape("it has no `=`".into()))?;
        let at = match here.parse::<u16>() {
            Ok(port) => SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            Err(_) => {
                here.parse().map_err(|_| shape(format!("`{here}` is no address with a port, and no port")))?
            }
        };
        let (from, node, port) = self.route(&option, there, &shape)?;
        Ok(Listen { at, inside: false, from, node, port })
    }

    /// Parses `PORT[=NODE:PORT[@NODE]]`.
    fn localhost(&self, text: &str) -> Result<Listen, RequestError> {
        let option = format!("--localhost {text}");
        let shape = |what: String| {
            fault(&option, "write it like `--localhost 8000`, or `--localhost 8000=server:80`", &what)
        };
        let (here, there) = match text.split_once('=') {
            Some((here, there)) => (here, there.to_owned()),
            None => {
                let other = self.other.ok_or_else(|| {
                    let help = format!("write it like `--localhost {text}=NODE:{text}`");
                    fault(&option, &help, "it does not name a node of the file")
                })?;
                (text, format!("{}:{text}", self.nodes[other as usize]))
            }
        };
        let local = number(here).ok_or_else(|| shape(format!("`{here}` is no port")))?;
        let (from, node, port) = self.route(&option, &there, &shape)?;
        Ok(Listen { at: (Ipv4Addr::LOCALHOST, local).into(), inside: true, from, node, port })
    }

    /// Parses `[NODE:]PORT:PORT`.
    fn tls(&self, text: &str) -> Result<Tls, RequestError> {
        let fault = |what: &str| {
            fault(&format!("--tls {text}"), "write it like `--tls 443:8000`, or `--tls NODE:443:8000`", what)
        };
        let parts: Vec<&str> = text.split(':').collect();
        let (node, port, to) = match parts[..] {
            [port, to] => {
                (self.other.ok_or_else(|| fault("it does not begin with a node of the file"))?, port, to)
            }
            [node, port, to] => (find(self.nodes, node)?, port, to),
            _ => return Err(fault("it is not two ports")),
        };
        let number = |text: &str| number(text).ok_or_else(|| fault(&format!("`{text}` is no port")));
        Ok(Tls { node, port: number(port)?, to: number(to)? })
    }

    /// Parses `NODE:PORT[@NODE]`: the node at which connections begin, and the node and port to
    /// which they lead.
    ///
    /// They begin at the program's node unless a node is given, or at the other one if they lead to
    /// the program's.
    fn route(
        &self,
        option: &str,
        text: &str,
        shape: &dyn Fn(String) -> RequestError,
    ) -> Result<(u32, u32, u16), RequestError> {
        let (there, from) = text.split_once('@').map_or((text, None), |(there, from)| (there, Some(from)));
        let (name, port) =
            there.rsplit_once(':').ok_or_else(|| shape(format!("`{there}` is not NODE:PORT")))?;
        let port = number(port).ok_or_else(|| shape(format!("`{port}` is no port")))?;
        let node_of = |name: &str| {
            find(self.nodes, name).map_err(|error| match error {
                RequestError::Option(error) => {
                    fault(option, error.help.as_deref().unwrap_or_default(), &error.message)
                }
                error => error,
            })
        };
        let node = node_of(name)?;
        let from = match from {
            Some(from) => Some(node_of(from)?),
            None if node == self.program => self.other,
            None => Some(self.program),
        };
        let before = option.strip_suffix(text).unwrap_or_default();
        let add = format!("add the node where connections begin, like `{before}{there}@NODE`");
        let from = from.filter(|&from| from != node);
        let from = from.ok_or_else(|| fault(option, &add, "connections would cross no link"))?;
        Ok((from, node, port))
    }
}

/// Finds a node by its name.
fn find(nodes: &[String], name: &str) -> Result<u32, RequestError> {
    let at = nodes.iter().position(|node| node == name).map(|at| at as u32);
    let known = nodes.join(", ");
    at.ok_or_else(|| wrong(Some(&format!("there are {known}")), format!("there is no node `{name}`")))
}

fn fault(option: &str, help: &str, what: &str) -> RequestError {
    wrong(Some(help), format!("`{option}`: {what}"))
}

/// Parses the number of a port.
fn number(text: &str) -> Option<u16> {
    text.parse().ok().filter(|&port| port > 0)
}

/// Parses `KEY=VALUE`, a kernel parameter.
fn sysctl(text: &str) -> Result<(String, String), RequestError> {
    let (key, value) = text.split_once('=').filter(|(key, _)| key.starts_with("net.")).ok_or_else(|| {
        let help = "write it like `--sysctl net.ipv4.tcp_ecn=1`; only keys under `net.` belong to a node";
        wrong(Some(help), format!("`--sysctl {text}` is not a network parameter"))
    })?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Parses a time, or a number of seconds.
fn span(text: &str) -> Result<Duration, RequestError> {
    let span = text.parse::<Time>().or_else(|error| match text.parse::<f64>() {
        Ok(seconds) if (0.0..1e9).contains(&seconds) => Ok(Time::from_secs_f64(seconds)),
        _ => Err(wrong(None, format!("`--timeout`: {error}"))),
    })?;
    Ok(Duration::from_nanos(span.0))
}

/// Upper bound, in bytes, of a train of segments that crosses the links of `plan` as one packet; 0
/// is none.
///
/// A train is allowed if no link has to handle single packets: each has a drop-tail queue with a
/// limit in bytes, no loss and no trace. A train takes at most 0.2 ms to serialise.
pub fn longest_train(plan: &Plan) -> u32 {
    let whole = plan.links.iter().all(|link| {
        let untouched = link.loss == 0.0 && link.impairments.is_none() && link.trace.is_none();
        untouched && link.law.is_none() && link.law.limit.packets == u32::MAX
    });
    let whole = whole && plan.losses.is_empty() && plan.events.is_empty();
    let slowest = plan.links.iter().map(|link| link.rate.bytes_per_sec()).fold(f64::INFINITY, f64::min);
    let bytes = (slowest * TRAIN.as_secs_f64()).min(f64::from(LONGEST)) as u32;
    if whole && bytes >= SHORTEST { bytes } else { 0 }
}

/// Longest serialisation time of a train.
const TRAIN: Time = Time::from_micros(200);
/// Upper bound of a train in bytes. With a header on the wire for each segment it is still below 64
/// KiB.
const LONGEST: u32 = 63_000;
/// Shorter trains are not worth it, in bytes.
const SHORTEST: u32 = 4_500;
