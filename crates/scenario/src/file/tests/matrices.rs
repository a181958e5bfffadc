//! Traffic matrices, flows with `after`, and routes of equal cost.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use proptest::prelude::*;
use tollway_law::Time;

use super::{parse, plan, show};
use crate::plan::*;

/// A fat-tree of 16 hosts and flows over it.
fn tree(flows: &str, more: &str) -> String {
    format!(
        "name = \"m\"\nduration = \"1 s\"\n[topology.fat-tree]\nk = 4\nrate = \"1 Gbps\"\n\
         [flow.f]\nlaw = \"cubic\"\n{flows}\n{more}"
    )
}

fn matrix(keys: &str, seed: u64) -> Vec<(u32, u32)> {
    let p = plan(&tree(&format!("between = \"host\"\n{keys}"), ""), &[&format!("seed={seed}")]);
    let pairs: Vec<_> = p.flows.iter().map(|flow| (flow.path.from.0, flow.path.to.0)).collect();
    assert!(pairs.iter().all(|(from, to)| from != to && *from < 16 && *to < 16), "{pairs:?}");
    pairs
}

/// The number of occurrences of each node.
fn count(nodes: impl Iterator<Item = u32>) -> BTreeMap<u32, usize> {
    nodes.fold(BTreeMap::new(), |mut counts, node| {
        *counts.entry(node).or_insert(0) += 1;
        counts
    })
}

#[test]
fn a_permutation_has_each_host_once_at_either_end() {
    for seed in 0..20 {
        let pairs = matrix("matrix = \"permutation\"", seed);
        for ends in [count(pairs.iter().map(|pair| pair.0)), count(pairs.iter().map(|pair| pair.1))] {
            assert!(ends.len() == 16 && ends.values().all(|count| *count == 1), "{ends:?}");
        }
        assert_eq!(pairs, matrix("matrix = \"permutation\"", seed));
    }
    assert_ne!(matrix("matrix = \"permutation\"", 1), matrix("matrix = \"permutation\"", 2));
}

#[test]
fn an_incast_has_so_many_senders_a_receiver() {
    for seed in 0..20 {
        let pairs = matrix("matrix = \"incast\"\nreceivers = 3\nsenders = 5", seed);
        let to = count(pairs.iter().map(|pair| pair.1));
        assert!(to.len() == 3 && to.values().all(|count| *count == 5), "{to:?}");
        assert_eq!(pairs.iter().collect::<BTreeSet<_>>().len(), 15);
    }
    let all = matrix("matrix = \"incast\"", 7);
    assert_eq!((all.len(), count(all.iter().map(|pair| pair.1)).len()), (15, 1));
    assert_eq!(matrix("matrix = \"all-to-all\"", 1).len(), 16 * 15);
}

#[test]
fn hot_spots_draw_their_share() {
    let mut hot = 0;
    for seed in 0..100 {
        let pairs = matrix("matrix = \"hot-spots\"\nreceivers = 2\nshare = 0.75", seed);
        assert_eq!(count(pairs.iter().map(|pair| pair.0)).len(), 16);
        // Flows of the two most frequent receivers.
        let mut to: Vec<usize> = count(pairs.iter().map(|pair| pair.1)).into_values().collect();
        to.sort_unstable();
        hot += to.iter().rev().take(2).sum::<usize>();
    }
    // Three quarters of 1600, plus the bias of choosing the two largest.
    assert!((1150..1350).contains(&hot), "{hot}");
    let none = matrix("matrix = \"hot-spots\"\nshare = 0.0", 1);
    assert!(count(none.iter().map(|pair| pair.1)).len() > 5, "{none:?}");
}

#[test]
fn what_makes_no_matrix_or_order_is_reported_in_place() {
    let of = |keys: &str| tree(&format!("between = \"host\"\n{keys}"), "");
    let one = |keys: &str| tree(&format!("from = \"host.1\"\nto = \"host.16\"\n{keys}"), "");
    let sized = |name: &str, after: &str| {
        format!(
            "[flow.{name}]\nfrom = \"host.1\"\nto = \"host.2\"\nlaw = \"cubic\"\nsize = \"1 kB\"\nafter = \"{after}\"\n"
        )
    };
    let all = [
        of("matrix = \"permutation\"\npairs = 3"),
        of("matrix = \"incast\"\nsenders = 16"),
        of("matrix = \"incast\"\nshare = 0.5"),
        one("matrix = \"incast\""),
        one(&sized("g", "f")),
        one(&sized("g", "h")),
        one(&(sized("g", "h") + &sized("h", "g"))),
        one("via = \"core.9\""),
        one("via = \"host\""),
        one("via = [\"core.1\", \"agg.1\"]"),
    ];
    let shown: Vec<String> = all.iter().map(|text| show(&parse(text, &[]).unwrap_err())).collect();
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn flows_wait_for_their_own_or_for_all() {
    let request = "from = \"host.1\"\nto = \"host.2\"\ncount = 3\nsize = \"1 kB\"";
    let p = plan(
        &tree(
            request,
            "[flow.answer]\nfrom = \"host.2\"\nto = \"host.1\"\nlaw = \"cubic\"\ncount = 3\nafter = \"f\"\nstart = \"2 ms\"\n\
             [flow.last]\nfrom = \"host.3\"\nto = \"host.1\"\nlaw = \"cubic\"\nafter = \"f\"\n\
             [flow.second]\nfrom = \"host.3\"\nto = \"host.1\"\nlaw = \"cubic\"\nafter = \"f.2\"\n",
        ),
        &[],
    );
    let after = |name: &str| {
        let flow = p.flows.iter().find(|flow| flow.name == name).unwrap();
        let after = flow.after.iter().flat_map(|all| all.iter());
        (after.map(|other| &*p.flows[other.0 as usize].name).collect::<Vec<_>>(), flow.start)
    };
    assert_eq!(after("answer.2"), (vec!["f.2"], Time::from_millis(2)));
    assert_eq!(after("last"), (vec!["f.1", "f.2", "f.3"], Time::ZERO));
    assert_eq!(after("second").0, ["f.2"]);
    assert_eq!(after("f.1").0, [""; 0]);
}

/// The nodes of a route.
fn nodes(plan: &Plan, route: &[LinkId]) -> Vec<String> {
    let name = |node: NodeId| plan.nodes[node.0 as usize].name.to_string();
    let from = route.iter().map(|link| name(plan.links[link.0 as usize].from));
    from.chain(route.last().map(|link| name(plan.links[link.0 as usize].to))).collect()
}

#[test]
fn named_nodes_are_on_the_way() {
    let flows = "from = \"host.1\"\nto = \"host.16\"\nvia = [\"agg.2\", \"core.4\"]";
    for set in ["routing.equal-cost=first", "routing.equal-cost=ecmp", "routing.equal-cost=spray"] {
        let p = plan(&tree(flows, ""), &[set]);
        let path = &p.flows[0].path;
        let there = ["host.1", "edge.1", "agg.2", "core.4", "agg.8", "edge.8", "host.16"];
        assert_eq!(nodes(&p, &path.route), there);
        let mut back = nodes(&p, &path.back);
        back.reverse();
        assert_eq!(back, there);
        assert_eq!(path.spread, None);
    }
    // A group with a member for each pair.
    let flows = "from = [\"host.1\"]\nto = \"core\"\nvia = \"agg\"";
    assert!(parse(&tree(flows, ""), &[]).is_err());
    let text = tree("from = \"a\"\nto = \"b\"\nvia = \"core\"", "[node.a]\ncount = 4\n[node.b]\ncount = 4\n")
        + "[link.a]\nfrom = \"a\"\nto = \"edge.1\"\nrate = \"1 Gbps\"\n[link.b]\nfrom = \"b\"\nto = \"edge.8\"\nrate = \"1 Gbps\"\n";
    let p = plan(&text, &[]);
    let cores: Vec<String> = p.flows.iter().map(|flow| nodes(&p, &flow.path.route)[3].clone()).collect();
    assert_eq!(cores, ["core.1", "core.2", "core.3", "core.4"]);
}

/// Routes of equal cost between hosts of two pods: one through each core.
#[test]
fn flows_are_divided_among_equal_routes() {
    let flows = "from = \"host.1\"\nto = \"host.16\"\ncount = 400";
    let p = plan(&tree(flows, ""), &["routing.equal-cost=ecmp"]);
    let core = |route: &[LinkId]| nodes(&p, route)[3].clone();
    let mut there: HashMap<String, usize> = HashMap::new();
    let mut same = 0;
    for flow in &p.flows {
        let path = &flow.path;
        assert_eq!((path.route.len(), path.back.len(), &path.spread), (6, 6, &None));
        *there.entry(core(&path.route)).or_insert(0) += 1;
        same += usize::from(core(&path.route) == core(&path.back));
    }
    // A hundred on each, and as many back through the same core, within four standard deviations.
    assert!(there.len() == 4 && there.values().all(|count| (65..135).contains(count)), "{there:?}");
    assert!((65..135).contains(&same), "{same}");
    // A flow's route depends only on its name, its number and the seed.
    let fewer = plan(&tree(&flows.replace("400", "9"), ""), &["routing.equal-cost=ecmp"]);
    assert!(fewer.flows.iter().zip(&p.flows).all(|(one, other)| one.path == other.path));
    let other = plan(&tree(flows, ""), &["routing.equal-cost=ecmp", "seed=2"]);
    assert!(other.flows.iter().zip(&p.flows).any(|(one, other)| one.path != other.path));
    // By default all flows take the first route.
    let first = plan(&tree(flows, ""), &[]);
    assert!(first.flows.iter().all(|flow| flow.path.route == first.flows[0].path.route));
}

#[test]
fn sprayed_packets_have_all_equal_routes() {
    let flows = "from = \"host.1\"\nto = \"host.16\"\n[workload.w]\nlaw = \"cubic\"\nbetween = [\"host.1\", \"host.3\"]\n\
                 sizes = \"1 kB\"\narrivals = { poisson = 9 }";
    let text = tree(flows, "[topology.link]\nlimit = \"1 BDP\"");
    let p = plan(&text, &["routing.equal-cost=spray", "topology.fat-tree.delay=1ms"]);
    let path = &p.flows[0].path;
    let cores: BTreeSet<String> = path.routes().map(|route| nodes(&p, route)[3].clone()).collect();
    assert_eq!((path.routes().len(), path.backs().len(), cores.len()), (4, 4, 4));
    assert_eq!(path.routes().next(), Some(&path.route[..]));
    // Within a pod there is one route for each aggregation switch.
    assert_eq!(p.workloads[0].paths[0].routes().len(), 2);
    // All possible links of a flow have a limit in BDP.
    assert!(path.links().iter().all(|link| p.links[link.0 as usize].law.limit.bytes < u64::MAX));
    // A flow of a workload takes one of them, chosen by a hash.
    let ecmp = plan(&text, &["routing.equal-cost=ecmp", "topology.fat-tree.delay=1ms"]);
    assert_eq!(ecmp.workloads[0].paths[0].routes().len(), 2);
}

proptest! {
    /// All equal routes have as many hops and as much delay as the first, and their number agrees
    /// with a direct count.
    #[test]
    fn equal_routes_are_as_short_as_the_first(
        rows in 1u32..6, columns in 1u32..6, seed in 0u64..99, doubled in any::<bool>(),
    ) {
        prop_assume!(rows * columns > 1);
        let last = rows * columns;
        let doubled = doubled && columns > 1;
        let mut text = format!(
            "name = \"m\"\nduration = \"1 s\"\nseed = {seed}\nrouting.equal-cost = \"spray\"\n\
             [topology.grid]\nrows = {rows}\ncolumns = {columns}\nrate = \"1 Gbps\"\n\
             [flow.f]\nfrom = \"router.1\"\nto = \"router.{last}\"\nlaw = \"cubic\"\n"
        );
        if doubled {
            text += "[link.beside]\nfrom = \"router.1\"\nto = \"router.2\"\nrate = \"1 Gbps\"\ndelay = \"1 ms\"\n";
        }
        let p = plan(&text, &[]);
        let path = &p.flows[0].path;
        // Routes through a grid: a binomial coefficient, plus those over the second link of the
        // first router.
        let choose = |n: u32, k: u32| (0..k).fold(1u64, |c, i| c * u64::from(n - i) / u64::from(i + 1));
        let mut ways = choose(rows + columns - 2, rows - 1);
        if doubled {
            ways += choose(rows + columns - 3, rows - 1);
        }
        prop_assert_eq!(path.routes().len() as u64, ways.min(64));
        let delay = |route: &[LinkId]| route.iter().map(|link| p.links[link.0 as usize].delay.0).sum::<u64>();
        for route in path.routes() {
            let nodes = nodes(&p, route);
            prop_assert_eq!(nodes.len() as u32, rows + columns - 1);
            prop_assert_eq!(delay(route), delay(&path.route));
            prop_assert_eq!(nodes[0].as_str(), "router.1");
            prop_assert_eq!(nodes[nodes.len() - 1].clone(), format!("router.{last}"));
        }
    }
}
