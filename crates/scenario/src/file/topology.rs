//! The section `[topology]`: turns an imported or generated network into `[node.NAME]` and
//! `[link.NAME]`. The file, variants and `--set` can then change it like other nodes and links.

use std::collections::HashMap;

use tollway_law::{Rate, Time};

use super::error::{Mistakes, Sources};
use super::files::{Files, place};
use super::generate;
use super::keys;
use super::reader::Reader;
use super::tree::{self, Entry, Setter, Table, Value};
use crate::import::{Graph, graphml, unique, word};

/// Adds the network that `[topology]` names to the tree's nodes and links; keys of the tree
/// override it. `None` if the network cannot be made: other nodes and links can then not be
/// checked.
pub(crate) fn expand(
    tree: &mut Table,
    files: &mut Files,
    sources: &Sources,
    mistakes: &mut Mistakes,
) -> Option<()> {
    tree::spell(tree, &keys::TOP);
    let Some(entry) = tree.get("topology") else { return Some(()) };
    let at = entry.at;
    let topology = Reader::new(&keys::TOPOLOGY, tree.table("topology"), at);
    if !topology.is_there() {
        return Some(());
    }
    let kinds = ["file"].into_iter().chain(keys::GENERATORS.iter().map(|(key, _)| *key));
    let given: Vec<&str> = kinds.filter(|key| topology.has(key)).collect();
    let (nodes, links) = match given[..] {
        ["file"] => match topology.text("file") {
            Some(file) => imported(topology, &file, files, sources, mistakes)?,
            None => return Some(()),
        },
        [generator] => {
            let (nodes, links) = generate::network(generator, &topology, mistakes)?;
            (nodes, with_common(&topology, links, sources)?)
        }
        [] => {
            let before = mistakes.len();
            topology.check(mistakes);
            if mistakes.len() == before {
                mistakes
                    .add(at, "`[topology]` needs `file` or a generator", "no network")
                    .help("a generator is a table such as `[topology.fat-tree]`");
            }
            return None;
        }
        [first, second, ..] => {
            let message = format!("a topology is either `{first}` or `{second}`");
            mistakes
                .add(topology.key_at(second), message, format!("with `{first}`"))
                .help("leave out one of them");
            return None;
        }
    };

    // The file's own nodes and links override the network's.
    let own = |key: &str| tree.0.iter().position(|entry| entry.key == key);
    let mut over = Table::default();
    for key in ["node", "link"] {
        if let Some(i) = own(key) {
            over.0.push(tree.0[i].clone());
        }
    }
    tree.0.retain(|entry| entry.key != "node" && entry.key != "link");
    tree.0.push(Entry::new("node", at, Value::Table(nodes)));
    tree.0.push(Entry::new("link", at, Value::Table(links)));
    Setter { sources, mistakes }.overlay(tree, &keys::TOP, &over);
    Some(())
}

/// The nodes and links of the GraphML file `first`, or of its `fallback`.
fn imported(
    topology: Reader<'_>,
    first: &str,
    files: &mut Files,
    sources: &Sources,
    mistakes: &mut Mistakes,
) -> Option<(Table, Table)> {
    let (key, name) = match topology.text("fallback") {
        Some(other) if !files.has_file(first) && files.has_file(&other) => ("fallback", other),
        _ => ("file", first.to_owned()),
    };
    let (source, text) = files.text(&name, topology.at(key), mistakes)?;
    let graph = match graphml(&text) {
        Ok(graph) => graph,
        Err(error) => {
            mistakes.add(place(source, &error.span), error.message, "here").help(error.help);
            return None;
        }
    };
    let mut import = Import { graph: &graph, topology, source, file: &name, notes: Vec::new() };
    let names = import.names();
    let links = import.links(&names, sources, mistakes)?;
    let nodes = names.iter().zip(&graph.nodes).map(|(name, node)| {
        let at = place(source, &node.span);
        Entry::new(name, at, Value::Table(Table::default()))
    });
    import.notes.into_iter().for_each(|note| files.note(note));
    Some((Table(nodes.collect()), links))
}

/// Returns `links` with the settings of `[topology.link]`, applied as a variant would be.
fn with_common(topology: &Reader<'_>, links: Table, sources: &Sources) -> Option<Table> {
    let Some(common) = topology.entry("link") else { return Some(links) };
    let path = Entry { key: "link.*".into(), at: common.at, node: common.node.clone() };
    let mut tree = Table(vec![Entry::new("link", common.at, Value::Table(links))]);
    // Mistakes in `[topology.link]` are reported at its own place.
    let mut unheard = Mistakes::default();
    Setter { sources, mistakes: &mut unheard }.overlay(&mut tree, &keys::TOP, &Table(vec![path]));
    match tree.0.remove(0).node.value {
        Value::Table(links) => Some(links),
        _ => None,
    }
}

/// An import in progress.
struct Import<'a> {
    graph: &'a Graph,
    topology: Reader<'a>,
    source: u32,
    file: &'a str,
    notes: Vec<String>,
}

impl Import<'_> {
    /// A unique name for each node, from its label or else its id.
    fn names(&mut self) -> Vec<String> {
        let nodes = &self.graph.nodes;
        let mut nameless = Vec::new();
        let words: Vec<String> = nodes
            .iter()
            .map(|node| match node.label.as_deref().map(word).filter(|w| !w.is_empty()) {
                Some(word) => word,
                None => {
                    let id = word(&node.id);
                    let name = if id.is_empty() { "node".to_owned() } else { id };
                    nameless.push(name.clone());
                    name
                }
            })
            .collect();
        let names = unique(words.clone());
        let twice: Vec<String> =
            words.iter().zip(&names).filter(|(w, n)| w != n).map(|(_, n)| n.clone()).collect();
        let respelt: Vec<String> = nodes
            .iter()
            .zip(words.iter().zip(&names))
            .filter_map(|(node, (word, name))| {
                let label = node.label.as_deref()?;
                (word == name && label != name && !word.is_empty()).then(|| format!("{label} = {name}"))
            })
            .collect();
        self.tell("labels used twice, numbered", &twice);
        self.tell("labels respelt as names", &respelt);
        self.tell("nodes without a label, called by their ids", &nameless);
        names
    }

    /// A `[link.FROM-TO]` for every edge.
    fn links(&mut self, names: &[String], sources: &Sources, mistakes: &mut Mistakes) -> Option<Table> {
        let graph = self.graph;
        let (loops, edges): (Vec<_>, Vec<_>) = graph.edges.iter().partition(|edge| edge.from == edge.to);
        let loops: Vec<String> = loops.iter().map(|edge| names[edge.from].clone()).collect();
        self.tell("edges from a node to itself, left out", &loops);
        let words = edges.iter().map(|edge| format!("{}-{}", names[edge.from], names[edge.to]));
        let link_names = unique(words.collect());
        self.tell_parallel(&edges, &link_names);

        let default_rate = self.topology.rate("rate");
        let common = self.topology.table("link", &keys::TOPOLOGY_LINK);
        let all_have = common.has("rate") || common.has("trace");
        let without: Vec<_> = edges.iter().filter(|edge| edge.rate.is_none()).collect();
        if let (Some(first), None, false) = (without.first(), default_rate, all_have) {
            let message = format!("{} of {} edges have no rate", without.len(), edges.len());
            mistakes
                .add(place(self.source, &first.span), message, "the first of them")
                .help("give `[topology]` a `rate` for them, such as \"10 Gbps\"");
            return None;
        }
        if !without.is_empty() && !all_have {
            let rate = default_rate.unwrap_or(Rate::ZERO);
            self.say(format!("{} of {} edges have no rate, and use {rate}", without.len(), edges.len()));
        }
        let delays = self.delays(&edges);
        let mut links = Table::default();
        for ((edge, name), delay) in edges.iter().zip(&link_names).zip(delays) {
            let at = place(self.source, &edge.span);
            let text = |key: &str, text: String| Entry::new(key, at, Value::Text(text));
            let mut link = vec![
                text("from", names[edge.from].clone()),
                text("to", names[edge.to].clone()),
                text("delay", format!("{} ns", delay.0)),
                // An edge is a cable: its two directions are equal.
                Entry::new("symmetric", at, Value::Truth(true)),
            ];
            if let Some(rate) = edge.rate.or(default_rate) {
                link.push(text("rate", format!("{} bps", rate.bps())));
            }
            links.0.push(Entry::new(name, at, Value::Table(Table(link))));
        }
        with_common(&self.topology, links, sources)
    }

    /// Delay of each edge: from its ends' positions, else from the drawing, else from the key
    /// `delay`.
    fn delays(&mut self, edges: &[&crate::import::Edge]) -> Vec<Time> {
        let per_km = self.topology.span("delay-per-km");
        let per_unit = self.topology.time("delay-per-unit");
        let default = self.topology.span("delay");
        let (mut by_drawing, mut by_default) = (0, 0);
        let scaled = |unit: Time, n: f64| Time((unit.0 as f64 * n + 0.5).min(MOST_DELAY.0 as f64) as u64);
        let of = |edge: &&crate::import::Edge| {
            let (a, b) = (&self.graph.nodes[edge.from], &self.graph.nodes[edge.to]);
            if let (Some(a), Some(b)) = (a.position, b.position) {
                return scaled(per_km, a.km_to(b));
            }
            if let (Some(per_unit), Some((ax, ay)), Some((bx, by))) = (per_unit, a.drawn, b.drawn) {
                by_drawing += 1;
                return scaled(per_unit, ((ax - bx) * (ax - bx) + (ay - by) * (ay - by)).sqrt());
            }
            by_default += 1;
            default
        };
        let delays = edges.iter().map(of).collect();
        let placed = self.graph.nodes.iter().filter(|node| node.position.is_some()).count();
        if placed < self.graph.nodes.len() {
            let nodes = self.graph.nodes.len();
            let mut note = format!("{} of {nodes} nodes have no position;", nodes - placed);
            if by_drawing > 0 {
                note += &format!(" {by_drawing} links have their length in the drawing,");
            }
            note += &format!(" {by_default} have the default delay of {default}");
            if by_default > 0
                && per_unit.is_none()
                && self.graph.nodes.iter().any(|node| node.drawn.is_some())
            {
                note += " (the file has a drawing: `delay-per-unit` uses its distances)";
            }
            self.say(note);
        }
        delays
    }

    /// Adds a note on pairs of nodes with several edges.
    fn tell_parallel(&mut self, edges: &[&crate::import::Edge], names: &[String]) {
        let mut seen: HashMap<(usize, usize), &str> = HashMap::new();
        let mut parallel = Vec::new();
        for (edge, name) in edges.iter().zip(names) {
            let pair = (edge.from.min(edge.to), edge.from.max(edge.to));
            match seen.get(&pair) {
                Some(first) => parallel.push(format!("{name} beside {first}")),
                None => {
                    seen.insert(pair, name);
                }
            }
        }
        self.tell("parallel edges; packets use the shortest, or the first of equal ones", &parallel);
    }

    /// Adds a note with the number of items and the first few.
    fn tell(&mut self, what: &str, which: &[String]) {
        const SHOWN: usize = 6;
        if which.is_empty() {
            return;
        }
        let more = which.len().saturating_sub(SHOWN);
        let mut list = which[..which.len() - more].join(", ");
        if more > 0 {
            list += &format!(" and {more} more");
        }
        self.say(format!("{what} ({}): {list}", which.len()));
    }

    fn say(&mut self, note: String) {
        self.notes.push(format!("{}: {note}", self.file));
    }
}

/// Largest delay of an edge. A longer one results from a wrong unit of the drawing.
const MOST_DELAY: Time = Time(3_600_000_000_000);
