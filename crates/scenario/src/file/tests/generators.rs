//! Generated networks.

use std::collections::BTreeMap;

use tollway_law::link::XcpConfig;
use tollway_law::{Rate, Time};

use super::{parse, plan, show};
use crate::file::route::Router;
use crate::plan::*;

fn of(generator: &str) -> String {
    format!("name = \"g\"\nduration = \"1 s\"\n[topology.{generator}\nrate = \"1 Gbps\"\n")
}

/// The names of the links in forward direction.
fn links(plan: &Plan) -> Vec<&str> {
    let there = plan.links.iter().filter(|link| link.direction == Direction::Forward);
    there.map(|link| link.name.as_str()).collect()
}

/// The number of links of each node in a group; panics if they differ.
fn degree(plan: &Plan, group: &str) -> usize {
    let mut degrees = BTreeMap::new();
    for link in plan.links.iter().filter(|link| link.direction == Direction::Forward) {
        for node in [link.from, link.to] {
            *degrees.entry(node).or_insert(0) += 1;
        }
    }
    let in_group = |node: &&Node| node.name.split('.').next() == Some(group);
    let members = plan.nodes.iter().filter(in_group).count();
    let of_group = degrees.iter().filter(|(node, _)| in_group(&&plan.nodes[node.0 as usize]));
    let of_group: Vec<usize> = of_group.map(|(_, &degree)| degree).collect();
    assert_eq!(of_group.len(), members, "{group}");
    assert!(of_group.iter().all(|degree| *degree == of_group[0]), "{group}: {of_group:?}");
    of_group[0]
}

/// The number of links on the longest of all shortest routes between nodes of a group.
fn diameter(plan: &Plan, group: &str) -> usize {
    let ids = (0..plan.nodes.len() as u32).map(NodeId);
    let nodes: Vec<NodeId> = ids.filter(|node| plan.nodes[node.0 as usize].name.starts_with(group)).collect();
    let pairs: Vec<_> =
        nodes.iter().flat_map(|&a| nodes.iter().map(move |&b| (a, b))).filter(|(a, b)| a != b).collect();
    let routes = Router::new(plan.nodes.len(), &plan.links).routes(&pairs);
    assert!(routes.iter().all(|route| !route.is_empty()), "not connected");
    routes.iter().map(Vec::len).max().unwrap()
}

#[test]
fn fat_trees_have_k_ports_a_switch() {
    for k in [2, 4, 6, 8] {
        let p = plan(&of(&format!("fat-tree]\nk = {k}")), &["topology.fat-tree.delay=2us"]);
        assert_eq!(p.nodes.len(), k * k * k / 4 + k * k + k * k / 4);
        assert_eq!(p.links.len(), 2 * 3 * k * k * k / 4);
        assert_eq!(degree(&p, "host"), 1);
        for group in ["edge", "agg", "core"] {
            assert_eq!(degree(&p, group), k, "{group}");
        }
        assert_eq!(diameter(&p, "host"), 6);
        assert!(p.links.iter().all(|l| l.rate == Rate::from_mbps(1000.0) && l.delay == Time(2000)));
    }
    let p = plan(&of("fat-tree]\nk = 4"), &[]);
    let names = links(&p);
    assert_eq!(names[..3], ["host-1-edge-1", "host-2-edge-1", "host-3-edge-2"]);
    assert_eq!(names[16..20], ["edge-1-agg-1", "edge-1-agg-2", "edge-2-agg-1", "edge-2-agg-2"]);
    assert_eq!(names[32..36], ["agg-1-core-1", "agg-1-core-2", "agg-2-core-3", "agg-2-core-4"]);
}

#[test]
fn leaves_are_linked_to_every_spine() {
    let text = of("leaf-spine]\nleaves = 3\nspines = 2\nhosts = 4\nuplink-rate = \"10 Gbps\"");
    let p = plan(&text, &[]);
    assert_eq!((degree(&p, "host"), degree(&p, "leaf"), degree(&p, "spine")), (1, 6, 3));
    assert_eq!(diameter(&p, "host"), 4);
    let fast = p.links.iter().filter(|link| link.rate == Rate::from_mbps(10_000.0)).count();
    assert_eq!((fast, links(&p).last()), (2 * 6, Some(&"leaf-3-spine-2")));
}

#[test]
fn rings_and_grids_have_the_distances_of_theirs() {
    let ring = plan(&of("ring]\nrouters = 7"), &[]);
    assert_eq!((degree(&ring, "router"), diameter(&ring, "router"), ring.links.len()), (2, 3, 14));
    assert_eq!(links(&ring)[6], "router-7-router-1");
    let grid = plan(&of("grid]\nrows = 3\ncolumns = 5"), &[]);
    assert_eq!((diameter(&grid, "router"), grid.links.len()), (2 + 4, 2 * (3 * 4 + 2 * 5)));
    assert_eq!(links(&grid)[..3], ["router-1-router-2", "router-1-router-6", "router-2-router-3"]);
}

#[test]
fn dumbbells_and_parking_lots_have_their_hosts() {
    let text = of("dumbbell]\npairs = 3")
        + "[flow.f]\nfrom = \"source\"\nto = \"sink\"\nlaw = \"cubic\"\n\
           [link.source-left]\ndelay = { first = \"1 ms\", last = \"3 ms\" }\n";
    let p = plan(&text, &["topology.dumbbell.delay=10ms"]);
    assert_eq!(p.flows.len(), 3);
    let rtts: Vec<u64> = p.flows.iter().map(|flow| flow.path.base_rtt.0 / 1_000_000).collect();
    assert_eq!(rtts, [22, 24, 26]);
    assert_eq!(p.links[p.flows[0].path.route[0].0 as usize].rate, Rate::from_mbps(10_000.0));

    let text = of("parking-lot]\nhops = 3")
        + "[flow.long]\nfrom = \"source\"\nto = \"sink\"\nlaw = \"cubic\"\n\
           [flow.short]\nfrom = \"entry\"\nto = \"exit\"\nlaw = \"cubic\"\n";
    let p = plan(&text, &[]);
    let bottlenecks = |flow: &Flow| {
        let names = flow.path.route.iter().map(|link| p.links[link.0 as usize].name.to_string());
        names
            .filter(|name| name.starts_with("router") && !name.contains("exit") && !name.contains("sink"))
            .collect()
    };
    let long: Vec<String> = bottlenecks(&p.flows[0]);
    assert_eq!(long, ["router-1-router-2", "router-2-router-3", "router-3-router-4"]);
    for hop in 0..3 {
        assert_eq!(bottlenecks(&p.flows[1 + hop]), long[hop..=hop]);
    }
}

#[test]
fn generated_links_can_be_set_like_others() {
    let text = of("leaf-spine]\nleaves = 2\nspines = 2\nhosts = 2")
        + "[topology.link]\nlaw = \"xcp\"\nlimit = \"1 BDP\"\n[link.leaf-1-spine-1]\nrate = \"7 Mbps\"\n\
           [node.client]\n[link.access]\nfrom = \"client\"\nto = \"spine.1\"\nrate = \"1 Gbps\"\n\
           [flow.f]\nfrom = \"client\"\nto = \"host.1\"\nlaw = \"xcp\"\n\
           [variant.wide]\n\"topology.leaf-spine.leaves\" = 5\n\"link.leaf-*.delay\" = \"1 ms\"\n";
    let s = parse(&text, &[]).unwrap();
    let p = &s.variants()[0].plan;
    let link = |name: &str| p.links.iter().find(|link| link.name == name).unwrap();
    assert_eq!(link("leaf-1-spine-1").rate, Rate::from_mbps(7.0));
    assert!(link("leaf-1-spine-1.reverse").law.get::<XcpConfig>().is_some());
    assert!(link("access").law.is_none());
    assert_eq!((p.nodes.len(), link("leaf-5-spine-2").delay), (5 * 3 + 2 + 1, Time::from_millis(1)));
    // No flow's data cross it, and it has no BDP.
    assert_eq!(link("leaf-2-spine-1").law.limit.packets, 1000);
    // A trace replaces the generated rate.
    let traced = plan(&text, &["link.leaf-2-spine-1.trace=tests/data/some.trace"]);
    assert!(traced.links.iter().any(|link| link.name == "leaf-2-spine-1" && link.trace.is_some()));
}

#[test]
fn what_makes_no_network_is_reported_in_place() {
    let odd = of("fat-tree]\nk = 5");
    let two = of("ring]\nrouters = 5") + "[topology]\nfile = \"a.graphml\"\n";
    let import = of("grid]\nrows = 2\ncolumns = 2") + "[topology]\ndelay = \"2 ms\"\n";
    let huge = of("leaf-spine]\nleaves = 1000\nspines = 1000\nhosts = 1");
    let none = "name = \"g\"\nduration = \"1 s\"\n[topology]\n";
    let slip = of("fat-tre]\nk = 4");
    let missing = "name = \"g\"\nduration = \"1 s\"\n[topology.dumbbell]\npears = 3\n";
    let all = [&odd, &two, &import, &huge, none, &slip, missing];
    let shown: Vec<String> = all.iter().map(|text| show(&parse(text, &[]).unwrap_err())).collect();
    insta::assert_snapshot!(shown.join("\n"));
}
