//! Import of other programs' files: results, and places of mistakes.

use proptest::prelude::*;
use tollway_law::{Rate, Time};

use super::*;
use crate::plan::{CdfPoint, Sizes};

/// A graph with keys as in the Topology Zoo's data set.
pub(crate) fn zoo(inside: &str) -> String {
    format!(
        r#"<?xml version="1.0" encoding="utf-8"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key attr.name="Latitude" attr.type="double" for="node" id="d1" />
<key attr.name="Longitude" attr.type="double" for="node" id="d2" />
<key attr.name="label" attr.type="string" for="node" id="d3" />
<key attr.name="LinkSpeedRaw" attr.type="double" for="edge" id="d4" />
<key attr.name="LinkSpeed" attr.type="string" for="edge" id="d5" />
<key attr.name="LinkSpeedUnits" attr.type="string" for="edge" id="d6" />
<key attr.name="LinkLabel" attr.type="string" for="edge" id="d7" />
<graph edgedefault="undirected">{inside}</graph></graphml>"#
    )
}

const TWO: &str = r#"<node id="0"><data key="d1">50.0</data><data key="d2">5</data><data key="d3">A b</data></node>
<node id="1"/>"#;

fn edge(data: &str) -> Option<Rate> {
    let text = zoo(&format!("{TWO}<edge source=\"0\" target=\"1\">{data}</edge>"));
    graphml(&text).unwrap().edges[0].rate
}

#[test]
fn nodes_and_edges_are_read_in_order() {
    // An edge may come first.
    let text = zoo(&format!("<edge source='1' target='0'/>{TWO}"));
    let graph = graphml(&text).unwrap();
    assert_eq!(graph.nodes[0].label.as_deref(), Some("A b"));
    assert_eq!(graph.nodes[0].position, Some(Position { latitude: 50.0, longitude: 5.0 }));
    assert_eq!((graph.nodes[1].label.as_deref(), graph.nodes[1].position), (None, None));
    assert_eq!((graph.edges[0].from, graph.edges[0].to, graph.edges[0].rate), (1, 0, None));
    assert_eq!(&text[graph.edges[0].span.clone()], "<edge source='1' target='0'/>");
}

#[test]
fn rates_are_found_where_the_zoo_has_them() {
    let mbps = |m| Some(Rate::from_mbps(m));
    assert_eq!(edge(r#"<data key="d4">2500000000.0</data><data key="d7">10 Gbps</data>"#), mbps(2500.0));
    assert_eq!(edge(r#"<data key="d5">45</data><data key="d6">M</data>"#), mbps(45.0));
    assert_eq!(edge(r#"<data key="d7"> 2.5 Gbps </data>"#), mbps(2500.0));
    assert_eq!(edge(r#"<data key="d7">OC-48c</data>"#), mbps(48.0 * 51.84));
    assert_eq!(edge(r#"<data key="d7">STM-4</data>"#), mbps(4.0 * 155.52));
    assert_eq!(edge(r#"<data key="d4">0</data>"#), None);
    for label in ["Lit Fibre", "OC-", "OC-0", "10", "1 + 1 Gbps", "-3 Mbps", "&lt; 5 Mbps"] {
        assert_eq!(edge(&format!("<data key=\"d7\">{label}</data>")), None, "{label}");
    }
}

/// The Zoo's drawings have no positions or labels as data; shapes hold the names.
#[test]
fn drawings_are_read_too() {
    let text = r#"<graphml xmlns="http://graphml.graphdrawing.org/xmlns" xmlns:y="http://www.yworks.com/xml/graphml">
<key for="node" id="d0" yfiles.type="nodegraphics"/><key for="edge" id="d1" yfiles.type="edgegraphics"/>
<graph edgedefault="directed"><node id="n0"><data key="d0"><y:ShapeNode><y:Geometry height="10" width="20" x="5" y="-1"/>
<y:NodeLabel>Kansas
City<y:LabelModel/></y:NodeLabel></y:ShapeNode></data></node><node id="n1"/>
<edge source="n0" target="n1"><data key="d1"><y:PolyLineEdge><y:EdgeLabel>155 Mbps</y:EdgeLabel></y:PolyLineEdge></data></edge>
</graph></graphml>"#;
    let graph = graphml(text).unwrap();
    assert_eq!(graph.nodes[0].label.as_deref(), Some("Kansas City"));
    assert_eq!(graph.nodes[0].drawn, Some((15.0, 4.0)));
    assert_eq!(graph.edges[0].rate, Some(Rate::from_mbps(155.0)));
}

#[test]
fn what_is_wrong_in_a_graph_is_named_with_its_place() {
    let cases = [
        ("<graphml><graph>", "not XML", ""),
        ("", "not XML", ""),
        ("<html/>", "not `<graphml>`", "<html/>"),
        ("<!DOCTYPE a [<!ENTITY b 'c'>]><graphml>&b;</graphml>", "not XML", ""),
        (&zoo(""), "no nodes", "<graphml xmlns=\"http://graphml.graphdrawing.org/xmlns\">"),
        (&zoo("<node/>"), "no `id`", "<node/>"),
        (&zoo("<node id='a'/><node id='a'/>"), "two nodes", "<node id='a'/>"),
        (&zoo("<node id='a'/><edge source='a' target='b'/>"), "id `b`", "<edge source='a' target='b'/>"),
        (&zoo("<node id='a'/><edge source='a'/>"), "no `target`", "<edge source='a'/>"),
        (&zoo("<node id='a'/><hyperedge/>"), "more than two ends", "<hyperedge/>"),
        (
            &zoo("<node id='a'><data key='d1'>91</data></node>"),
            "not a valid latitude",
            "<data key='d1'>91</data>",
        ),
        (
            &zoo("<node id='a'><data key='d2'>w</data></node>"),
            "not a valid longitude",
            "<data key='d2'>w</data>",
        ),
    ];
    for (text, message, place) in cases {
        let error = graphml(text).unwrap_err();
        assert!(error.message.contains(message), "{text}: {error:?}");
        assert_eq!(&text[error.span.clone()], place, "{text}: {error:?}");
        assert!(!error.help.is_empty());
    }
}

#[test]
fn distances_are_those_of_an_atlas() {
    let at = |latitude, longitude| Position { latitude, longitude };
    // A degree of latitude; half way round; two towns 3 935 km apart.
    assert!((at(0.0, 7.0).km_to(at(1.0, 7.0)) - 111.195).abs() < 0.01);
    assert!((at(0.0, -90.0).km_to(at(0.0, 90.0)) - 20_015.1).abs() < 0.1);
    assert!((at(34.05, -118.24).km_to(at(40.71, -74.01)) / 3_936.0 - 1.0).abs() < 0.002);
    assert_eq!(at(10.0, 20.0).km_to(at(10.0, 20.0)), 0.0);
}

#[test]
fn labels_become_names() {
    let cases = [
        ("Los Angeles", "Los-Angeles"),
        (" St. Louis, MO ", "St-Louis-MO"),
        ("Zürich", "Zuerich"),
        ("Łódź", "Lodz"),
        ("北京", ""),
        ("---", ""),
        ("a.b", "a-b"),
        ("x_1", "x_1"),
    ];
    for (label, name) in cases {
        assert_eq!(word(label), name, "{label}");
    }
    let names = |words: &[&str]| unique(words.iter().map(|w| (*w).to_owned()).collect());
    assert_eq!(names(&["a", "b", "a", "a-2", "a"]), ["a", "b", "a-3", "a-2", "a-4"]);
}

#[test]
fn traces_are_read_or_refused() {
    let read = trace("# made up\n0\n\n 2 \n2\r\n10").unwrap();
    assert_eq!((read.len(), read.period()), (4, Time::from_millis(10)));
    for (text, message, place) in [
        ("1\n2x\n", "`2x`", "2x"),
        ("1\n-2\n", "`-2`", "-2"),
        ("5\n4\n", "4 ms follows 5 ms", "4"),
        ("\n# nothing\n", "no transmission opportunities", ""),
        ("0\n0\n", "its length is zero", "0"),
        ("4294967296\n", "not a time in milliseconds", "4294967296"),
    ] {
        let error = trace(text).unwrap_err();
        assert!(error.message.contains(message), "{text:?}: {error:?}");
        assert_eq!(&text[error.span.clone()], place, "{text:?}: {error:?}");
    }
}

#[test]
fn sizes_are_read_or_refused() {
    let point = |size, cumulative| CdfPoint { size, cumulative };
    let percent = sizes("# sizes\n1000 15\n\n 2e6\t100\n").unwrap();
    assert_eq!(percent, [point(1000.0, 0.15), point(2e6, 1.0)]);
    assert_eq!(sizes("10, 0.5\n20, 1").unwrap(), [point(10.0, 0.5), point(20.0, 1.0)]);
    // ns-2's middle column.
    assert_eq!(sizes("10 1 0.5\n20 2 1").unwrap(), [point(10.0, 0.5), point(20.0, 1.0)]);
    for (bad, message, place) in [
        ("", "no sizes", ""),
        ("10 0.5", "it must be 1 or 100 %", "10 0.5"),
        ("10 0.5\nten 1", "`ten 1` is not two numbers", "ten 1"),
        ("20 0.5\n10 1", "follows `20 0.5`", "10 1"),
        ("20 0.5\n30 0.4\n40 1", "follows", "30 0.4"),
        ("0 1", "zero", "0 1"),
        ("10 nan\n", "out of range", "10 nan"),
        ("1e30 1\n", "out of range", "1e30 1"),
    ] {
        let error = sizes(bad).unwrap_err();
        assert!(error.message.contains(message), "{bad:?}: {error:?}");
        assert_eq!(&bad[error.span.clone()], place, "{bad:?}: {error:?}");
    }
}

#[test]
fn the_mean_of_a_distribution_is_that_of_its_lines() {
    // Half uniform up to 1000, half from there to 3000.
    let points = sizes("0 0\n1000 50\n3000 100").unwrap();
    assert_eq!(Sizes::Empirical(points).mean(), 1250.0);
    // A step at the first point.
    assert_eq!(Sizes::Empirical(sizes("100 0.5\n300 1").unwrap()).mean(), 150.0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_text_breaks_a_reader(text in "(?s)[0-9. \n#<>/a-f&;'\"=é]{0,120}") {
        for error in [graphml(&text).err(), trace(&text).err(), sizes(&text).err()].into_iter().flatten() {
            // The span lies within the text, on character boundaries.
            prop_assert!(text.get(error.span.clone()).is_some(), "{error:?}");
        }
    }

    #[test]
    fn no_spoiled_graph_breaks_the_reader(cut in 0usize..900, len in 0usize..30, scrap in "[<>/'\"&;=a-z0-9é]{0,8}") {
        let whole = zoo(&format!("{TWO}<edge source='0' target='1'><data key='d4'>1e9</data></edge>"));
        let chars: Vec<char> = whole.chars().collect();
        let (start, end) = (cut.min(chars.len()), (cut + len).min(chars.len()));
        let text: String = chars[..start].iter().copied().chain(scrap.chars()).chain(chars[end..].iter().copied()).collect();
        match graphml(&text) {
            Err(error) => prop_assert!(text.get(error.span.clone()).is_some(), "{error:?}"),
            Ok(graph) => prop_assert!(graph.edges.iter().all(|e| e.from.max(e.to) < graph.nodes.len())),
        }
    }

    /// A written trace reads back equal.
    #[test]
    fn a_trace_is_its_lines(gaps in prop::collection::vec(0u32..2000, 1..60)) {
        let mut at = 1;
        let millis: Vec<u32> = gaps.iter().map(|gap| { at += gap; at }).collect();
        let text: String = millis.iter().map(|ms| format!("{ms}\n")).collect();
        prop_assert_eq!(trace(&text).unwrap(), tollway_sim::Trace::new(&millis).unwrap());
    }

    #[test]
    fn sizes_are_their_lines(steps in prop::collection::vec((0u32..100_000, 0u32..1000), 1..30)) {
        let (mut size, mut weight) = (1, 0);
        let rows: Vec<(u32, u32)> = steps.iter().map(|s| { size += s.0; weight += s.1 + 1; (size, weight) }).collect();
        let text: String = rows.iter().map(|(s, w)| format!("{s} {}\n", f64::from(*w) / f64::from(weight))).collect();
        let read = sizes(&text).unwrap();
        prop_assert_eq!(read.len(), rows.len());
        prop_assert!(read.iter().zip(&rows).all(|(p, (s, w))| p.size == f64::from(*s) && p.cumulative == f64::from(*w) / f64::from(weight)));
    }

    #[test]
    fn names_are_unique_and_fit_a_path(labels in prop::collection::vec("[ab2 .é-]{0,4}", 0..20)) {
        let words: Vec<String> = labels.iter().map(|l| word(l)).collect();
        prop_assert!(words.iter().all(|w| w.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')));
        let names = unique(words);
        let all: std::collections::HashSet<&String> = names.iter().collect();
        prop_assert_eq!(all.len(), names.len());
    }
}
