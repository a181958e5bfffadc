//! Traffic matrices: the pairs of nodes of the key `between`.

use std::collections::HashSet;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::{Pairs, Resolver, mix};
use crate::file::reader::Reader;
use crate::plan::NodeId;

impl<'a> Resolver<'a> {
    /// The pairs that section `name` makes of its `between` by its `matrix`.
    pub(super) fn pairs_between(&mut self, reader: &Reader<'a>, name: &str) -> Option<Pairs> {
        let nodes = self.nodes_chosen(reader, "between")?;
        if nodes.len() < 2 {
            self.mistakes
                .add(reader.at("between"), "this matches one node, and flows need two", "too few")
                .help("name more nodes, or use a pattern such as \"*\"");
            return None;
        }
        let matrix = reader.word("matrix");
        let of_others = KEYS.iter().find(|(key, of)| reader.has(key) && !of.contains(&matrix));
        if let Some((key, of)) = of_others {
            let message = format!("`{key}` needs the matrix `{}`, and this is `{matrix}`", of.join("` or `"));
            self.mistakes.add(reader.key_at(key), message, "no effect");
            return None;
        }
        let n = nodes.len() as u64;
        let receivers = reader.count("receivers").unwrap_or(1);
        let senders = reader.count("senders").unwrap_or(n - 1);
        for (key, count) in [("receivers", receivers), ("senders", senders)] {
            if count >= n {
                let message = format!("with {count} of {n} nodes, none is left for the other ends");
                self.mistakes.add(reader.at(key), message, "too many").help(format!("{} at most", n - 1));
                return None;
            }
        }
        let seed = name.bytes().fold(mix(self.plan.seed), |h, b| mix(h ^ u64::from(b)));
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let pairs = match matrix {
            "permutation" => permutation(&nodes, &mut rng),
            "incast" => incast(&nodes, receivers as usize, senders as usize, &mut rng),
            "hot-spots" => hot_spots(&nodes, receivers as usize, reader.number("share"), &mut rng),
            _ => any(&nodes, reader.count("pairs").unwrap_or(MOST_PAIRS), &mut rng),
        };
        if pairs.len() > MOST_DRAWN {
            let message = format!("these are {} pairs; the limit is {MOST_DRAWN}", pairs.len());
            self.mistakes.add(reader.at("between"), message, "too many");
            return None;
        }
        Some(Pairs::Drawn(pairs.into()))
    }
}

/// All ordered pairs, or `wanted` random ones.
fn any(nodes: &[NodeId], wanted: u64, rng: &mut Pcg64Mcg) -> Vec<(NodeId, NodeId)> {
    let n = nodes.len() as u64;
    let all = n * (n - 1);
    let wanted = wanted.min(all);
    // Pair by number: a node, and one of the others.
    let pair = |i: u64| {
        let (from, to) = (i / (n - 1), i % (n - 1));
        (nodes[from as usize], nodes[(to + u64::from(to >= from)) as usize])
    };
    if wanted == all {
        return (0..all).map(pair).collect();
    }
    // Floyd's algorithm for sampling without replacement.
    let mut drawn = HashSet::with_capacity(wanted as usize);
    let draw = |last: u64| {
        let i = rng.random_range(0..=last);
        pair(if drawn.insert(i) {
            i
        } else {
            drawn.insert(last);
            last
        })
    };
    (all - wanted..all).map(draw).collect()
}

/// A random cycle through all nodes (Sattolo's algorithm): each node sends to one other and
/// receives from one other.
fn permutation(nodes: &[NodeId], rng: &mut Pcg64Mcg) -> Vec<(NodeId, NodeId)> {
    let mut to: Vec<NodeId> = nodes.to_vec();
    for i in (1..to.len()).rev() {
        to.swap(i, rng.random_range(0..i));
    }
    nodes.iter().copied().zip(to).collect()
}

/// Pairs of `senders` random nodes with each of `receivers` random nodes, by receiver.
fn incast(nodes: &[NodeId], receivers: usize, senders: usize, rng: &mut Pcg64Mcg) -> Vec<(NodeId, NodeId)> {
    let mut pairs = Vec::with_capacity(receivers.saturating_mul(senders).min(MOST_DRAWN + 1));
    for to in drawn(nodes, receivers, rng) {
        let others: Vec<NodeId> = nodes.iter().copied().filter(|&node| node != to).collect();
        pairs.extend(drawn(&others, senders, rng).into_iter().map(|from| (from, to)));
        if pairs.len() > MOST_DRAWN {
            break;
        }
    }
    pairs
}

/// A pair from each node: to one of `hot` random nodes with probability `share`, else to one of the
/// rest.
fn hot_spots(nodes: &[NodeId], hot: usize, share: f64, rng: &mut Pcg64Mcg) -> Vec<(NodeId, NodeId)> {
    let hot: HashSet<NodeId> = drawn(nodes, hot, rng).into_iter().collect();
    let (spots, rest): (Vec<NodeId>, Vec<NodeId>) = nodes.iter().partition(|node| hot.contains(node));
    let pair = |&from: &NodeId| {
        let to_spot = rng.random::<f64>() < share;
        let others = |of: &[NodeId]| of.iter().copied().filter(|&node| node != from).collect::<Vec<_>>();
        let (chosen, other) = if to_spot { (&spots, &rest) } else { (&rest, &spots) };
        // A node that is the only one of its kind sends to the other kind.
        let alone = chosen[..] == [from];
        let to = if alone { others(other) } else { others(chosen) };
        (from, to[rng.random_range(0..to.len())])
    };
    nodes.iter().map(pair).collect()
}

/// `count` random nodes of `nodes`, in random order.
fn drawn(nodes: &[NodeId], count: usize, rng: &mut Pcg64Mcg) -> Vec<NodeId> {
    let mut nodes = nodes.to_vec();
    for i in 0..count {
        let j = rng.random_range(i..nodes.len());
        nodes.swap(i, j);
    }
    nodes.truncate(count);
    nodes
}

/// Keys that only some matrices have.
const KEYS: [(&str, &[&str]); 4] = [
    ("pairs", &["all-to-all"]),
    ("receivers", &["incast", "hot-spots"]),
    ("senders", &["incast"]),
    ("share", &["hot-spots"]),
];
/// Default number of random pairs: enough that another draw hardly changes a result, few enough for
/// a fast route search.
const MOST_PAIRS: u64 = 10_000;
/// Largest number of pairs of a matrix.
const MOST_DRAWN: usize = 1_000_000;
