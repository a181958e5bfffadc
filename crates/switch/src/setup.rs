//! What a process runs: a switch, or a part between sites; its file, and changes of its members.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tollway_agent::file::Watch;
use tollway_proto::route::Policy;
use tollway_scenario::file::ScenarioError;

use crate::config::file::{MEASURES, MEMBERS, resolved};
use crate::config::keys::MOST_WEIGHT;
use crate::config::{Config, MemberSpec};
use crate::sites::{Neighbour, Part, Sites};

/// A configuration of either kind.
#[derive(Clone, Debug)]
pub enum Setup {
    /// A switch between TCP clients and TCP servers.
    Switch(Arc<Config>),
    /// A part between sites.
    Site(Arc<Sites>),
}

/// A change of the members, in the place of a change of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// A new member: its name, address and weight.
    Add(String, String, u32),
    /// A member leaves: it is drained.
    Remove(String),
    /// A member has another weight.
    Weight(String, u32),
}

impl Setup {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// The file cannot be read, or has mistakes.
    pub fn load(path: &Path) -> Result<Setup, ScenarioError> {
        match Sites::load(path)? {
            Some(site) => Ok(site.into()),
            None => Ok(Config::load(path)?.into()),
        }
    }

    /// The name of its version.
    pub fn version(&self) -> &str {
        match self {
            Setup::Switch(config) => &config.version,
            Setup::Site(site) => &site.version,
        }
    }

    /// The configuration after a change of its members.
    ///
    /// # Errors
    /// The reason the change cannot be made.
    pub fn edited(&self, edit: &Edit) -> Result<Setup, String> {
        match self {
            Setup::Switch(config) => {
                let mut config = Config::clone(config);
                let policy = config.policy;
                apply(&mut config.members, edit, policy)?;
                config.version = edited(&config.version);
                Ok(config.into())
            }
            Setup::Site(site) => {
                let mut site = Sites::clone(site);
                let Part::Middle { policy, members, .. } = &mut site.part else {
                    return Err("this part has no members: ask the switch between its sites".to_owned());
                };
                apply(members, edit, *policy)?;
                site.version = edited(&site.version);
                if let Edit::Add(name, ..) = edit {
                    site.reload_keys(name)?;
                }
                Ok(site.into())
            }
        }
    }
}

impl From<Config> for Setup {
    fn from(config: Config) -> Setup {
        Setup::Switch(Arc::new(config))
    }
}

impl From<Sites> for Setup {
    fn from(site: Sites) -> Setup {
        Setup::Site(Arc::new(site))
    }
}

impl Edit {
    /// Reads a command of the control socket; `None` if it is another command.
    pub fn parse(command: &str) -> Option<Edit> {
        let (word, rest) = command.split_once(' ')?;
        let weighted = |text: &str| {
            let (weight, name) = text.split_once(' ')?;
            Some((name.to_owned(), weight.parse().ok()?))
        };
        match word {
            "add" => {
                let (address, rest) = rest.split_once(' ')?;
                weighted(rest).map(|(name, weight)| Edit::Add(name, address.to_owned(), weight))
            }
            "remove" => Some(Edit::Remove(rest.to_owned())),
            "weight" => weighted(rest).map(|(name, weight)| Edit::Weight(name, weight)),
            _ => None,
        }
    }

    /// The command, as [`parse`](Edit::parse) reads it.
    pub fn command(&self) -> String {
        match self {
            Edit::Add(name, address, weight) => format!("add {address} {weight} {name}"),
            Edit::Remove(name) => format!("remove {name}"),
            Edit::Weight(name, weight) => format!("weight {weight} {name}"),
        }
    }
}

/// A member of either kind of configuration.
trait Listed: Sized {
    /// A member at an address that resolves now; `None` if it does not.
    fn new(name: &str, address: &str) -> Option<Self>;
    fn name(&self) -> &str;
    fn weight(&mut self) -> &mut u32;
}

impl Listed for MemberSpec {
    fn new(name: &str, text: &str) -> Option<MemberSpec> {
        let address = resolved(text)?;
        let host = text.parse::<std::net::SocketAddr>().is_err().then(|| text.to_owned());
        Some(MemberSpec { name: name.to_owned(), address, host, drain: false, weight: 1 })
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn weight(&mut self) -> &mut u32 {
        &mut self.weight
    }
}

impl Listed for Neighbour {
    fn new(name: &str, address: &str) -> Option<Neighbour> {
        let address = resolved(address)?;
        Some(Neighbour { name: name.to_owned(), address, rate: None, drain: false, weight: 1 })
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn weight(&mut self) -> &mut u32 {
        &mut self.weight
    }
}

fn apply<M: Listed>(members: &mut Vec<M>, edit: &Edit, policy: Policy) -> Result<(), String> {
    let names: Vec<&str> = members.iter().map(Listed::name).collect();
    let find = |name: &str| {
        let at = names.iter().position(|&known| known == name);
        at.ok_or_else(|| format!("there is no member `{name}`; the members are {}", names.join(", ")))
    };
    match edit {
        Edit::Add(name, ..) if find(name).is_ok() => {
            return Err(format!("there is a member `{name}` already"));
        }
        Edit::Add(..) if members.len() >= MEMBERS => {
            return Err(format!("the limit is {MEMBERS} members: spread them over two switches"));
        }
        Edit::Add(_, _, weight) | Edit::Weight(_, weight) if !(1..=MOST_WEIGHT).contains(weight) => {
            return Err(format!("a weight is from 1 to {MOST_WEIGHT}, not {weight}"));
        }
        Edit::Add(_, _, weight) | Edit::Weight(_, weight)
            if *weight != 1 && policy == Policy::LeastLoaded =>
        {
            return Err(format!("{MEASURES}: they have no weights"));
        }
        Edit::Add(name, address, weight) => {
            let member = M::new(name, address);
            let mut member = member.ok_or_else(|| format!("`{address}` is not an address of a member"))?;
            *member.weight() = *weight;
            members.push(member);
        }
        Edit::Remove(name) => {
            let at = find(name)?;
            if members.len() == 1 {
                return Err(format!("`{name}` is the only member: add another one first"));
            }
            members.remove(at);
        }
        Edit::Weight(name, weight) => {
            let at = find(name)?;
            *members[at].weight() = *weight;
        }
    }
    Ok(())
}

/// The name of a version whose members were changed by commands.
fn edited(version: &str) -> String {
    if version.ends_with(EDITED) { version.to_owned() } else { format!("{version}{EDITED}") }
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
    pub fn open(path: &Path) -> Result<(Watched, Setup), ScenarioError> {
        let watch = Watch::of(path);
        let setup = Setup::load(path)?;
        Ok((Watched { path: path.to_owned(), watch }, setup))
    }

    /// A new configuration, or the reason the new one cannot be used. Does not block.
    pub fn poll(&mut self) -> Option<Result<Setup, ScenarioError>> {
        self.watch.has_changed(&self.path).then(|| Setup::load(&self.path))
    }

    /// Makes the next [`poll`](Watched::poll) read the file, and those that it names, in any case.
    pub fn again(&mut self) {
        self.watch.again();
    }
}

const EDITED: &str = ", members changed";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_change_the_members_or_name_the_reason() {
        let text = |policy: &str| {
            format!(
                "listen = \"127.0.0.1:0\"\nframes = \"lines\"\npolicy = \"{policy}\"\n[member.a]\naddress = \"127.0.0.1:1\"\n"
            )
        };
        let parse = |policy| Setup::from(Config::parse("test", &text(policy), None).unwrap());
        let edit = |setup: &Setup, command| setup.edited(&Edit::parse(command).unwrap());
        let setup = parse("round-robin");
        for (command, part) in [
            ("remove a", "only member"),
            ("remove b", "the members are a"),
            ("weight 0 a", "from 1 to 100, not 0"),
            ("weight 2 b", "no member `b`"),
            ("add 127.0.0.1:2 1 a", "already"),
            ("add nowhere 1 b", "`nowhere` is not an address"),
        ] {
            let error = edit(&setup, command).unwrap_err();
            assert!(error.contains(part), "{command}: {error}");
        }
        let error = edit(&parse("least-loaded"), "weight 2 a").unwrap_err();
        assert!(error.contains("no weights"), "{error}");
        let added = edit(&setup, "add 127.0.0.1:2 3 b").unwrap();
        let changed = edit(&edit(&added, "weight 7 a").unwrap(), "remove b").unwrap();
        let Setup::Switch(config) = &changed else { panic!("a switch") };
        assert_eq!((config.members.len(), config.members[0].weight), (1, 7));
        assert_eq!(changed.version(), format!("{}, members changed", setup.version()));
        for command in ["add 127.0.0.1:2 3 b c", "remove a", "weight 7 a"] {
            assert_eq!(Edit::parse(command).unwrap().command(), command);
        }
        for command in ["status", "drain a", "add a b", "weight x a"] {
            assert_eq!(Edit::parse(command), None, "{command}");
        }
    }
}
