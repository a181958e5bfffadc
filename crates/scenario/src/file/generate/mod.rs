//! Generated networks: tables `[node.NAME]` and `[link.NAME]` in the form of a file.

mod datacentre;
mod lattice;
mod row;

use tollway_law::{Rate, Time};

use super::error::{At, Mistakes};
use super::keys::GENERATORS;
use super::reader::Reader;
use super::tree::{Entry, Table, Value};

/// Builds the network of the generator `key` of `[topology]`: tables of nodes and of links. `None`,
/// with a mistake, if its keys do not define one.
pub(crate) fn network(key: &str, topology: &Reader<'_>, mistakes: &mut Mistakes) -> Option<(Table, Table)> {
    let (_, section) = GENERATORS.iter().find(|(name, _)| *name == key)?;
    let keys = topology.table(key, section);
    let at = topology.key_at(key);
    let before = mistakes.len();
    topology.check(mistakes);
    if let Some(import) = ["fallback", "rate", "delay-per-km", "delay-per-unit", "delay"]
        .into_iter()
        .find(|key| topology.has(key))
    {
        let message = format!("`{import}` is for an imported network, and this one is generated");
        mistakes.add(topology.key_at(import), message, "no effect").help(format!(
            "put keys of the network into `[topology.{key}]`, and keys of its links into `[topology.link]`"
        ));
    }
    if mistakes.len() > before {
        return None;
    }
    let mut network = Network { at, ..Network::default() };
    match key {
        "fat-tree" => datacentre::fat_tree(&keys, &mut network, mistakes),
        "leaf-spine" => datacentre::leaf_spine(&keys, &mut network),
        "ring" => lattice::ring(&keys, &mut network),
        "grid" => lattice::grid(&keys, &mut network),
        "dumbbell" => row::dumbbell(&keys, &mut network),
        _ => row::parking_lot(&keys, &mut network),
    }
    if network.links.0.len() > MOST_LINKS {
        mistakes
            .add(at, format!("this makes more than {MOST_LINKS} links"), "too many")
            .help("choose smaller numbers");
    }
    (mistakes.len() == before).then_some((network.nodes, network.links))
}

/// A network under construction.
#[derive(Default)]
struct Network {
    /// The place of all generated entries: the generator's key.
    at: At,
    nodes: Table,
    links: Table,
}

impl Network {
    /// Adds a single node.
    fn node(&mut self, name: &str) {
        self.nodes.0.push(Entry::new(name, self.at, Value::Table(Table::default())));
    }

    /// Adds a group of `count` nodes.
    fn group(&mut self, name: &str, count: u64) {
        let count = Entry::new("count", self.at, Value::Whole(count as i64));
        self.nodes.0.push(Entry::new(name, self.at, Value::Table(Table(vec![count]))));
    }

    /// Adds a link between two nodes or groups, called `FROM-TO`.
    fn link(&mut self, from: &str, to: &str, rate: Rate, delay: Time) {
        if self.links.0.len() > MOST_LINKS {
            return;
        }
        let text = |key: &str, text: String| Entry::new(key, self.at, Value::Text(text));
        let link = Table(vec![
            text("from", from.to_owned()),
            text("to", to.to_owned()),
            text("rate", format!("{} bps", rate.bps())),
            text("delay", format!("{} ns", delay.0)),
            Entry::new("symmetric", self.at, Value::Truth(true)),
        ]);
        let name = format!("{from}-{to}").replace('.', "-");
        self.links.0.push(Entry::new(&name, self.at, Value::Table(link)));
    }
}

/// Member `i`, counted from 0, of the group `name`.
fn member(name: &str, i: u64) -> String {
    format!("{name}.{}", i + 1)
}

/// Largest number of links of a generated network; a resolved network has at most a million
/// directions.
const MOST_LINKS: usize = 500_000;
