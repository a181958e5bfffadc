//! Import of the files that a scenario names.

use tollway_law::link::XcpConfig;
use tollway_law::{Rate, Time};
use tollway_proto::port::Limit;

use super::{BASE, parse, plan, show};
use crate::plan::*;

/// The towns: Alpha, Büta Town, a second Alpha, Delta without a position, and one without anything.
const TOWNS: &str = r#"
name = "towns"
duration = "1 s"
[topology]
file = "tests/data/towns.graphml"
rate = "2 Mbps"
"#;

const WEB: &str = r#"
[workload.web]
between = "*"
law = "newreno"
arrivals = { poisson = 5 }
sizes = "20 kB"
"#;

fn names(plan: &Plan) -> Vec<&str> {
    plan.nodes.iter().map(|node| node.name.as_str()).collect()
}

fn link<'p>(plan: &'p Plan, name: &str) -> &'p Link {
    plan.links.iter().find(|link| link.name == name).unwrap_or_else(|| panic!("no link {name}"))
}

#[test]
fn nodes_and_edges_become_nodes_and_links() {
    let p = plan(TOWNS, &[]);
    assert_eq!(names(&p), ["Alpha", "Bueta-Town", "Alpha-2", "Delta", "4"]);
    let links: Vec<&str> =
        p.links.iter().map(|link| link.name.as_str()).filter(|n| !n.ends_with("reverse")).collect();
    assert_eq!(
        links,
        ["Alpha-Bueta-Town", "Bueta-Town-Alpha", "Bueta-Town-Alpha-2", "Alpha-2-Delta", "Delta-4"]
    );
    // The rate in the file, then the default.
    assert_eq!(link(&p, "Alpha-Bueta-Town").rate, Rate::from_mbps(4.0));
    assert_eq!(link(&p, "Bueta-Town-Alpha.reverse").rate, Rate::from_mbps(2.0));
    // A degree of latitude, 111.195 km at 5 us; without positions the default.
    let delay = link(&p, "Alpha-Bueta-Town").delay;
    assert!(delay.0.abs_diff(555_975) < 100, "{delay}");
    assert_eq!(link(&p, "Delta-4").delay, Time::from_millis(1));
}

#[test]
fn what_was_made_up_is_told() {
    let s = parse(TOWNS, &[]).unwrap();
    insta::assert_snapshot!(s.notes().join("\n"));
    assert!(parse(BASE, &[]).unwrap().notes().is_empty());
}

#[test]
fn a_drawing_is_measured_if_that_is_asked_for() {
    // From (30, 40) to (61, 81), in units of 10 us. Edges outside the drawing keep the default.
    let p = plan(TOWNS, &["topology.delay-per-unit=10us", "topology.delay=3ms", "topology.delay-per-km=1us"]);
    assert_eq!(link(&p, "Alpha-2-Delta").delay.0 / 1000, 514);
    assert_eq!(link(&p, "Delta-4").delay, Time::from_millis(3));
    assert!(link(&p, "Alpha-Bueta-Town").delay.0.abs_diff(111_195) < 20);
}

/// Settings in ascending precedence: of all links, of the file, of a variant, of the command line.
#[test]
fn imported_links_can_be_set_like_others() {
    let text = format!(
        "{TOWNS}[topology.link]\nlaw = \"xcp\"\nrate = \"9 Mbps\"\n[topology.link.xcp]\nalpha = 0.3\n\
         [link.Delta-4]\nrate = \"7 Mbps\"\n[link.Delta-4.reverse]\nlaw = \"drop-tail\"\n[node.host]\n\
         [link.access]\nfrom = \"host\"\nto = \"Büta Town\"\nrate = \"1 Mbps\"\n\
         [variant.v]\n\"link.Alpha-2-Delta.limit\" = \"7 packets\"\n"
    );
    let s = parse(&text, &["link.Bueta-Town-Alpha.delay=1s"]).unwrap();
    let p = &s.variant("v").unwrap().plan;
    let xcp: &XcpConfig = link(p, "Alpha-Bueta-Town").law.get().unwrap();
    assert_eq!((xcp.alpha, link(p, "Alpha-Bueta-Town").rate), (0.3, Rate::from_mbps(9.0)));
    // Both directions are equal, unless `reverse` differs.
    assert!(link(p, "Alpha-Bueta-Town.reverse").law.get::<XcpConfig>().is_some());
    assert_eq!(link(p, "Delta-4").rate, Rate::from_mbps(7.0));
    assert!(link(p, "Delta-4").law.get::<XcpConfig>().is_some());
    assert!(link(p, "Delta-4.reverse").law.is_none());
    assert_eq!(link(p, "Alpha-2-Delta.reverse").law.limit, Limit { packets: 7, bytes: u64::MAX });
    assert_eq!(link(p, "Bueta-Town-Alpha").delay, Time::from_secs(1));
    // By its label.
    assert_eq!(p.nodes[link(p, "access").to.0 as usize].name, "Bueta-Town");
}

#[test]
fn a_variant_may_have_another_network() {
    let text = format!(
        "{TOWNS}[variant.towns]\n[variant.chain]\n\"topology.file\" = \"tests/data/chain.graphml\"\n"
    );
    let s = parse(&text, &["link.*.limit=9 packets"]).unwrap();
    assert_eq!(names(&s.variant("chain").unwrap().plan), ["Alpha", "Delta"]);
    assert_eq!(s.variant("towns").unwrap().plan.nodes.len(), 5);
    assert!(s.variants().iter().flat_map(|v| &v.plan.links).all(|l| l.law.limit.packets == 9));
}

/// A limit in BDP is no mistake for a link that no flow crosses.
#[test]
fn links_that_nothing_crosses_have_a_limit_all_the_same() {
    let text = format!(
        "{TOWNS}[topology.link]\nlimit = \"1 BDP\"\n[flow.f]\nfrom = \"Alpha\"\nto = \"Bueta-Town\"\nlaw = \"cubic\"\n"
    );
    let p = plan(&text, &["topology.delay-per-km=1ms"]);
    assert_eq!(link(&p, "Delta-4").law.limit.packets, 1000);
    assert!(link(&p, "Alpha-Bueta-Town").law.limit.bytes < u64::MAX);
}

#[test]
fn flows_go_between_any_nodes() {
    let p = plan(&format!("{TOWNS}{WEB}"), &[]);
    let paths = &p.workloads[0].paths;
    assert_eq!(paths.len(), 5 * 4);
    let pairs: std::collections::BTreeSet<_> = paths.iter().map(|path| (path.from, path.to)).collect();
    assert_eq!(pairs.len(), 20);
    assert!(paths.iter().all(|path| path.from != path.to && !path.route.is_empty()));
    // Of two parallel edges of equal length, the route takes the first.
    let named =
        |route: &[LinkId]| route.iter().map(|l| p.links[l.0 as usize].name.to_string()).collect::<Vec<_>>();
    assert_eq!(named(&paths[0].route), ["Alpha-Bueta-Town"]);
}

#[test]
fn pairs_are_drawn_by_the_seed() {
    let text = format!("{TOWNS}{WEB}pairs = 6\n");
    let pairs = |sets: &[&str]| {
        let p = plan(&text, sets);
        p.workloads[0].paths.iter().map(|path| (path.from.0, path.to.0)).collect::<Vec<_>>()
    };
    let first = pairs(&[]);
    let distinct: std::collections::BTreeSet<_> = first.iter().collect();
    assert_eq!((first.len(), distinct.len()), (6, 6));
    assert_eq!(first, pairs(&[]));
    assert_ne!(first, pairs(&["seed=9"]));
    // Over many seeds, each of the 20 pairs occurs about equally often.
    let mut counts = std::collections::BTreeMap::new();
    for seed in 1..=200 {
        for pair in pairs(&[&format!("seed={seed}")]) {
            *counts.entry(pair).or_insert(0) += 1;
        }
    }
    assert_eq!(counts.len(), 20);
    assert!(counts.values().all(|&n| (35..=85).contains(&n)), "{counts:?}");
}

#[test]
fn nodes_are_chosen_by_name_pattern_or_group() {
    let with = |between: &str| {
        let p = plan(&format!("{BASE}{WEB}").replace("\"*\"", between), &[]);
        let nodes: std::collections::BTreeSet<String> =
            p.workloads[0].paths.iter().map(|path| p.nodes[path.from.0 as usize].name.to_string()).collect();
        nodes.into_iter().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(with("\"s\""), "s.1 s.2 s.3 s.4");
    assert_eq!(with("[\"s.2\", \"d\"]"), "d s.2");
    assert_eq!(with("[\"s.?\", \"r\"]"), "r s.1 s.2 s.3 s.4");
}

#[test]
fn what_comes_when_all_is_over_is_told() {
    let text = format!(
        "{BASE}[[change]]\nat = \"19 s\"\nlink = \"bottleneck\"\nrate = \"1 Mbps\"\n\
         [[loss]]\nlink = \"bottleneck\"\nprobability = 0.1\nfrom = \"19 s\"\n"
    );
    let told = |sets: &[&str]| parse(&text, sets).unwrap().notes().join("\n");
    assert_eq!(told(&["duration=20 s"]), "");
    assert_eq!(
        told(&["duration=19 s", "flow.f.start={ first = \"18 s\", last = \"21 s\" }"]),
        "the run ends at 19 s, before there is: flow `f.2` (at 19 s) and 2 more, change (at 19 s), loss (at 19 s)"
    );
}

#[test]
fn what_has_no_effect_is_told() {
    let text = "name = \"t\"\nduration = \"5 s\"\nnode = { a = {}, b = {} }\n\
        link.l = { from = \"a\", to = \"b\", rate = \"10 Mbps\", delay = \"10 ms\", limit = \"1 BDP\" }\n\
        flow.f = { from = \"a\", to = \"b\", law = \"newreno\" }\n";
    let told = |text: &str, sets: &[&str]| parse(text, sets).unwrap().notes().join("\n");
    let fcp = ["flow.f.law=fcp", "link.l.law=fcp"];
    let xcp = ["flow.f.law=xcp", "link.l.law=xcp"];
    let border = "link.l.exchange.rate=2";
    assert_eq!(told(text, &[border]), "link `l`: `exchange` has no effect, since no sender has the law FCP");
    assert_eq!(told(text, &[fcp[0], fcp[1], border]), "");
    let budget = "link.l.meter.budget=1";
    assert_eq!(
        told(text, &[budget]),
        "link `l`: `meter.budget` has no effect, since no sender has the law FCP"
    );
    assert_eq!(told(text, &[fcp[0], fcp[1], budget]), "");
    assert_eq!(
        told(text, &["link.l.meter={}"]),
        "link `l`: `meter` has no effect, since no sender has the law XCP"
    );
    assert_eq!(told(text, &[xcp[0], xcp[1], "link.l.meter={}"]), "");

    let wants = [fcp[0], fcp[1], "flow.f.fcp.wants=1 Mbps"];
    assert_eq!(
        told(text, &wants),
        "`fcp.wants` has no effect without a host whose strategy is `stable`: flow `f`"
    );
    let host = format!("{text}[host.h]\nflows = \"f\"\n");
    assert_eq!(
        told(&host, &[&wants[..], &["flow.f.count=3"]].concat()),
        "`fcp.wants` has no effect without a host whose strategy is `stable`: flow `f.1` and 2 more"
    );
    assert_eq!(told(&host, &[&wants[..], &["host.h.strategy=stable"]].concat()), "");
    let later = format!("{host}[[change]]\nat = \"1 s\"\nhost = \"h\"\nstrategy = \"stable\"\n");
    assert_eq!(told(&later, &wants), "");

    assert_eq!(told(text, &["link.l.limit=1500 B"]), "");
    assert_eq!(
        told(text, &["link.l.limit=1 kB"]),
        "all packets of these flows are lost, since they are larger than a queue on their path: flow `f` (1500 B, and `l` holds 1000 B)"
    );
    assert_eq!(told(text, &["link.l.limit=1 kB", "flow.f.size=100 B"]), "");
    let error = parse(text, &["link.l.limit=1 B"]).expect_err("nothing gets through");
    assert!(error.mistakes()[0].message.contains("can hold no packet"), "{error}");

    let cheat = "flow.f.xcp.cheat={ trick = \"understate-window\", factor = 2, from = \"5 s\" }";
    assert_eq!(
        told(text, &[xcp[0], xcp[1], cheat]),
        "the run ends at 5 s, before there is: cheat of `f` (at 5 s)"
    );
    assert!(told(text, &["measure.interval=6 s"]).starts_with("the run ends at 5 s, within the first"));
    assert_eq!(told(text, &["measure.interval=5 s"]), "");
    // The default interval causes no note.
    assert_eq!(told(text, &["duration=1 ms"]), "");
}

#[test]
fn what_has_an_effect_in_one_variant_is_not_told() {
    let text = "name = \"t\"\nduration = \"5 s\"\nnode = { a = {}, b = {} }\n\
        link.l = { from = \"a\", to = \"b\", rate = \"10 Mbps\", delay = \"10 ms\", limit = \"1 BDP\", meter = {} }\n\
        flow.f = { from = \"a\", to = \"b\", law = \"newreno\" }\n\
        variant.tcp = {}\nvariant.xcp = { \"link.l.law\" = \"xcp\", \"flow.f.law\" = \"xcp\" }\n";
    let told = |text: &str, sets: &[&str]| parse(text, sets).unwrap().notes().join("\n");
    assert_eq!(told(text, &[]), "");
    assert_eq!(
        told(text, &["link.l.law=drop-tail", "flow.f.law=newreno"]),
        "`--set link.l.law` overrides what variant `xcp` sets; a variant's name may now be wrong\n\
         `--set flow.f.law` overrides what variant `xcp` sets; a variant's name may now be wrong\n\
         variants `tcp` and `xcp` define the same run\nlink `l`: `meter` has no effect, since no sender has the law XCP"
    );
    let twin = format!("{text}variant.reno = {{ \"flow.f.law\" = \"newreno\" }}\n");
    assert_eq!(told(&twin, &[]), "variants `tcp` and `reno` define the same run");
    let names = parse(&twin, &[]).unwrap();
    assert_eq!(names.variants()[2].plan.variant.as_deref(), Some("reno"));
}

#[test]
fn traces_have_a_mean() {
    let text = BASE.replace("rate = \"10 Mbps\"", "trace = \"tests/data/some.trace\"");
    let p = plan(&text, &[]);
    // Eight opportunities of 1500 bytes in 20 ms, both ways.
    for name in ["bottleneck", "bottleneck.reverse"] {
        assert_eq!(link(&p, name).rate, Rate::from_mbps(4.8));
        assert_eq!(link(&p, name).capacity, Rate::from_mbps(4.8));
        assert_eq!(link(&p, name).trace.as_ref().map(|t| t.len()), Some(8));
    }
    let p = plan(&text, &["link.bottleneck.reverse.rate=1Mbps"]);
    assert_eq!(link(&p, "bottleneck.reverse").trace, None);
    let notes = parse(&text, &[]).unwrap().notes().join("\n");
    assert_eq!(
        notes,
        "tests/data/some.trace: 4.80 Mbps on average over 20 ms, 4.80 Mbps in its busiest second"
    );
}

macro_rules! answers {
    ($($name:ident: $text:expr, $sets:expr;)*) => {$(
        #[test]
        fn $name() {
            let error = parse(&$text, &$sets).expect_err("it is wrong");
            insta::assert_snapshot!(show(&error));
        }
    )*};
}

answers! {
    no_such_topology: TOWNS.replace("towns.graphml", "none.graphml"), [];
    // Unknown nodes cause no mistake if the topology is missing.
    no_topology_but_flows: format!("{TOWNS}[flow.x]\nfrom = \"Nowhere\"\nto = \"Alpha\"\nlaw = \"newreno\"\n").replace("towns.graphml", "none.graphml"),
        ["topology.fallback=tests/data/none.either"];
    rates_missing: TOWNS.replace("rate = \"2 Mbps\"\n", ""), [];
    not_a_topology: TOWNS.replace("towns.graphml", "some.trace"), [];
    not_a_trace: BASE.replace("rate = \"10 Mbps\"", "trace = \"tests/data/towns.graphml\""), [];
    trace_beside_rate: BASE, ["link.bottleneck.trace=tests/data/some.trace"];
    change_of_a_trace: format!("{BASE}[[change]]\nat = \"1 s\"\nlink = \"bottleneck\"\nrate = \"1 Mbps\"\n").replace("rate = \"10 Mbps\"", "trace = \"tests/data/some.trace\""), [];
    not_sizes: format!("{BASE}{WEB}").replace("\"20 kB\"", "{ file = \"tests/data/other.trace\" }"), [];
    between_beside_from: format!("{BASE}{WEB}from = \"s\"\n"), [];
    between_one: format!("{BASE}{WEB}").replace("\"*\"", "\"d\""), [];
    between_nobody: format!("{BASE}{WEB}").replace("\"*\"", "[\"s\", \"dd\"]"), [];
    neither_from_nor_between: format!("{BASE}{WEB}").replace("between = \"*\"\n", ""), [];
    unknown_key_of_all_links: format!("{TOWNS}[topology.link]\nlimits = \"3 packets\"\n"), [];
    unknown_law_of_all_links: format!("{TOWNS}[topology.link]\nlaw = \"xpc\"\n"), [];
    unknown_imported_link: TOWNS, ["link.Alpha-Bueta.rate=1Mbps"];
}
