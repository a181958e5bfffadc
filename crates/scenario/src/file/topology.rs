//! `[topology]`: an imported network becomes `[node.NAME]` and `[link.NAME]` like those that are written down, so that
//! whatever can be said of these can be said of it, in the file, by variants and by `--set`.

use std::collections::HashMap;

use tollway_law::{Rate, Time};

use super::error::{At, Mistakes, Sources};
use super::files::{Files, place};
use super::keys;
use super::reader::Reader;
use super::tree::{Entry, Node, Setter, Table, Value};
use crate::import::{Graph, graphml, unique, word};

/// Puts the network that `[topology]` names, if there is one, under the tree's own nodes and links. `None` if there is one, but not
/// to be had: what the rest of the scenario says of nodes and links can't be judged then.
pub(crate) fn expand(
    tree: &mut Table,
    files: &mut Files,
    sources: &Sources,
    mistakes: &mut Mistakes,
) -> Option<()> {
    let Some(entry) = tree.get("topology") else { return Some(()) };
    let topology = Reader::new(&keys::TOPOLOGY, tree.table("topology"), entry.at);
    let Some(first) = topology.text("file") else { return Some(()) };
    let (key, name) = match topology.text("fallback") {
        Some(other) if !files.has_file(&first) && files.has_file(&other) => ("fallback", other),
        _ => ("file", first),
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
        entry_of(name, at, Value::Table(Table::default()))
    });
    let nodes = Table(nodes.collect());
    import.notes.into_iter().for_each(|note| files.note(note));

    // What the file says itself goes on top.
    let at = tree.get("topology").map_or(At::default(), |entry| entry.at);
    let own = |key: &str| tree.0.iter().position(|entry| entry.key == key);
    let mut over = Table::default();
    for key in ["node", "link"] {
        if let Some(i) = own(key) {
            over.0.push(tree.0[i].clone());
        }
    }
    tree.0.retain(|entry| entry.key != "node" && entry.key != "link");
    tree.0.push(entry_of("node", at, Value::Table(nodes)));
    tree.0.push(entry_of("link", at, Value::Table(links)));
    Setter { sources, mistakes }.overlay(tree, &keys::TOP, &over);
    Some(())
}

/// An import under way.
struct Import<'a> {
    graph: &'a Graph,
    topology: Reader<'a>,
    source: u32,
    file: &'a str,
    notes: Vec<String>,
}

impl Import<'_> {
    /// What each node is called: its label, or its id if it has none, made a name and made unique.
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

    /// Every edge as `[link.FROM-TO]`.
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
            let message = format!("{} of {} edges say no rate", without.len(), edges.len());
            mistakes
                .add(place(self.source, &first.span), message, "the first of them")
                .help("give `[topology]` a `rate` for them, such as \"10 Gbps\"");
            return None;
        }
        if !without.is_empty() && !all_have {
            let rate = default_rate.unwrap_or(Rate::ZERO);
            self.say(format!("{} of {} edges say no rate and have {rate}", without.len(), edges.len()));
        }
        let delays = self.delays(&edges);
        let mut links = Table::default();
        for ((edge, name), delay) in edges.iter().zip(&link_names).zip(delays) {
            let at = place(self.source, &edge.span);
            let text = |key: &str, text: String| entry_of(key, at, Value::Text(text));
            let mut link = vec![
                text("from", names[edge.from].clone()),
                text("to", names[edge.to].clone()),
                text("delay", format!("{} ns", delay.0)),
                // An edge is a cable: nothing tells its two directions apart.
                entry_of("symmetric", at, Value::Truth(true)),
            ];
            if let Some(rate) = edge.rate.or(default_rate) {
                link.push(text("rate", format!("{} bps", rate.bps())));
            }
            links.0.push(entry_of(name, at, Value::Table(Table(link))));
        }
        if let Some(common) = self.topology.entry("link") {
            // Every link's, as a variant would set it.
            let path = Entry { key: "link.*".into(), at: common.at, node: common.node.clone() };
            let mut tree = Table(vec![entry_of("link", common.at, Value::Table(links))]);
            // What is wrong in it is reported where it stands.
            let mut unheard = Mistakes::default();
            Setter { sources, mistakes: &mut unheard }.overlay(&mut tree, &keys::TOP, &Table(vec![path]));
            let Value::Table(done) = tree.0.remove(0).node.value else { return None };
            links = done;
        }
        Some(links)
    }

    /// How long each edge is: by its ends' positions, or by the drawing, or else as `delay` says.
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
                note += &format!(" {by_drawing} links are as long as they are drawn,");
            }
            note += &format!(" {by_default} have the default delay of {default}");
            if by_default > 0
                && per_unit.is_none()
                && self.graph.nodes.iter().any(|node| node.drawn.is_some())
            {
                note += " (the file has a drawing: `delay-per-unit` would go by that)";
            }
            self.say(note);
        }
        delays
    }

    /// Pairs of nodes with more than one edge.
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
        self.tell("parallel edges, of which packets take the shorter or else the first", &parallel);
    }

    /// Notes how many there are of something, and the first few.
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

fn entry_of(key: &str, at: At, value: Value) -> Entry {
    Entry { key: key.to_owned(), at, node: Node { value, at } }
}

/// What is longer is drawn in other units than its reader thinks.
const MOST_DELAY: Time = Time(3_600_000_000_000);
