//! GraphML of the Internet Topology Zoo: its data set, with latitudes and link speeds, and the
//! drawings behind it.

use std::collections::HashMap;
use std::ops::Range;

use roxmltree::{Document, ParsingOptions};
use tollway_law::Rate;

use super::ImportError;

/// A network in a GraphML file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// All nodes, in the file's order.
    pub nodes: Vec<Node>,
    /// All edges, in the file's order, with those from a node to itself.
    pub edges: Vec<Edge>,
}

/// A node.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The identifier that edges use.
    pub id: String,
    /// The label: the datum `label`, or else the text in a yEd drawing.
    pub label: Option<String>,
    /// The position: the data `Latitude` and `Longitude`.
    pub position: Option<Position>,
    /// The centre of its shape in a yEd drawing, in the drawing's units.
    pub drawn: Option<(f64, f64)>,
    /// Its place in the text.
    pub span: Range<usize>,
}

/// A point on the Earth's surface.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Position {
    /// Degrees north.
    pub latitude: f64,
    /// Degrees east.
    pub longitude: f64,
}

/// An edge.
#[derive(Clone, Debug, PartialEq)]
pub struct Edge {
    /// Index of the source node.
    pub from: usize,
    /// Index of the destination node.
    pub to: usize,
    /// The rate, if the file has one: `LinkSpeedRaw` in bit/s, or `LinkSpeed` with
    /// `LinkSpeedUnits`, or a label with a rate. A label may be `10 Gbps`, or a level of SONET or
    /// SDH (`OC-48`, `STM-16`).
    pub rate: Option<Rate>,
    /// Its place in the text.
    pub span: Range<usize>,
}

impl Position {
    /// The great-circle distance to `other` in kilometres, on a sphere with the Earth's mean
    /// radius.
    pub fn km_to(self, other: Position) -> f64 {
        let radians = |degrees: f64| degrees * (std::f64::consts::PI / 180.0);
        let (a, b) = (radians(self.latitude), radians(other.latitude));
        let half = |angle: f64| {
            let sine = libm::sin(angle / 2.0);
            sine * sine
        };
        // The haversine formula is accurate for small distances, too.
        let across = half(b - a)
            + libm::cos(a) * libm::cos(b) * half(radians(other.longitude) - radians(self.longitude));
        2.0 * EARTH_RADIUS_KM * libm::asin(across.clamp(0.0, 1.0).sqrt())
    }
}

/// Reads a GraphML file. All `<node>` and `<edge>` elements count, also in nested graphs.
///
/// # Errors
/// [`ImportError`] if the text is not XML, has no nodes, repeats an id, has an edge to an unknown
/// node, a hyperedge, or an invalid position or speed.
pub fn graphml(text: &str) -> Result<Graph, ImportError> {
    let options = ParsingOptions { allow_dtd: false, nodes_limit: MOST_NODES, ..Default::default() };
    let document = Document::parse_with_options(text, options).map_err(|error| {
        let at = offset(text, error.pos().row, error.pos().col);
        ImportError::new(at..at, format!("this is not XML: {error}"), "a topology is a GraphML file")
    })?;
    let root = document.root_element();
    if root.tag_name().name() != "graphml" {
        let message = format!("this is `<{}>`, not `<graphml>`", root.tag_name().name());
        return Err(ImportError::new(tag(&root), message, "a topology is a GraphML file"));
    }
    let keys = Keys::of(&root);
    let mut graph = Graph::default();
    let mut ids = HashMap::new();
    // An edge may precede its nodes.
    for node in root.descendants().filter(|n| is(n, "node")) {
        let id = attribute(&node, "id")?;
        if ids.insert(id, graph.nodes.len()).is_some() {
            let message = format!("there are two nodes with the id `{id}`");
            return Err(ImportError::new(tag(&node), message, "give each node a different id"));
        }
        graph.nodes.push(keys.node(&node, id)?);
    }
    for edge in root.descendants().filter(|n| is(n, "edge") || is(n, "hyperedge")) {
        if is(&edge, "hyperedge") {
            let help = "a link has two ends: insert a node with an edge to each of them";
            return Err(ImportError::new(tag(&edge), "this is a hyperedge, with more than two ends", help));
        }
        let end = |name| {
            let id = attribute(&edge, name)?;
            ids.get(id).copied().ok_or_else(|| {
                let message = format!("there is no node with the id `{id}`");
                ImportError::new(
                    tag(&edge),
                    message,
                    "an edge names its nodes by their ids, not their labels",
                )
            })
        };
        let (from, to) = (end("source")?, end("target")?);
        graph.edges.push(Edge { from, to, rate: keys.rate(&edge)?, span: tag(&edge) });
    }
    if graph.nodes.is_empty() {
        return Err(ImportError::new(tag(&root), "the file has no nodes", "a `<graph>` needs `<node>`s"));
    }
    Ok(graph)
}

type Element<'a, 'input> = roxmltree::Node<'a, 'input>;

/// The names of the file's `<key>`s: by id, in lower case.
struct Keys<'a>(HashMap<&'a str, String>);

impl<'a> Keys<'a> {
    fn of(root: &Element<'a, '_>) -> Keys<'a> {
        let keys = root.children().filter(|n| is(n, "key"));
        let named = keys.filter_map(|k| Some((k.attribute("id")?, k.attribute("attr.name")?.to_lowercase())));
        Keys(named.collect())
    }

    /// The data of a node or an edge by name, with their places; without empty ones.
    fn data<'n>(&self, element: &Element<'n, '_>) -> HashMap<&str, (&'n str, Range<usize>)> {
        let data = element.children().filter(|n| is(n, "data"));
        data.filter_map(|datum| {
            let name = self.0.get(datum.attribute("key")?)?;
            let text = datum.text()?.trim();
            (!text.is_empty()).then_some((name.as_str(), (text, datum.range())))
        })
        .collect()
    }

    fn node(&self, element: &Element<'_, '_>, id: &str) -> Result<Node, ImportError> {
        let data = self.data(element);
        let label = data.get("label").map(|(text, _)| (*text).to_owned());
        let (latitude, longitude) = (number(&data, "latitude", 90.0)?, number(&data, "longitude", 180.0)?);
        let position = latitude.zip(longitude).map(|(latitude, longitude)| Position { latitude, longitude });
        let drawn = drawing(element, "Geometry").and_then(|shape| {
            let number = |name| shape.attribute(name)?.parse::<f64>().ok().filter(|x| x.is_finite());
            let half = |name| number(name).unwrap_or(0.0) / 2.0;
            Some((number("x")? + half("width"), number("y")? + half("height")))
        });
        Ok(Node {
            id: id.to_owned(),
            label: label.or_else(|| written(element, "NodeLabel")),
            position,
            drawn,
            span: tag(element),
        })
    }

    fn rate(&self, element: &Element<'_, '_>) -> Result<Option<Rate>, ImportError> {
        let data = self.data(element);
        let most = 1e18;
        if let Some(bps) = number(&data, "linkspeedraw", most)?.filter(|&bps| bps > 0.0) {
            return Ok(Some(Rate::from_bps(bps)));
        }
        if let Some((units, _)) = data.get("linkspeedunits") {
            let scale = match units.trim_start().chars().next() {
                Some('k' | 'K') => 1e3,
                Some('m' | 'M') => 1e6,
                Some('g' | 'G') => 1e9,
                Some('t' | 'T') => 1e12,
                _ => 1.0,
            };
            if let Some(speed) = number(&data, "linkspeed", most / scale)?.filter(|&speed| speed > 0.0) {
                return Ok(Some(Rate::from_bps(speed * scale)));
            }
        }
        let labels = ["linklabel", "label"].iter().filter_map(|name| Some(data.get(name)?.0.to_owned()));
        Ok(labels.chain(written(element, "EdgeLabel")).find_map(|label| rate_of(&label)))
    }
}

/// The rate that a label states.
fn rate_of(label: &str) -> Option<Rate> {
    let label = label.trim();
    if let Ok(rate) = label.parse::<Rate>() {
        return (rate > Rate::ZERO && rate.bps() <= 1e18).then_some(rate);
    }
    // OC-n is n × 51.84 Mb/s, STM-n is n × 155.52 Mb/s (ITU-T G.707). A final `c` (concatenated)
    // does not matter.
    let upper = label.to_ascii_uppercase();
    let (unit_mbps, rest) = match (upper.strip_prefix("OC"), upper.strip_prefix("STM")) {
        (Some(rest), _) => (51.84, rest),
        (_, Some(rest)) => (155.52, rest),
        _ => return None,
    };
    let digits = rest.trim_start_matches(['-', ' ']).trim_end_matches('C');
    let n = digits.parse::<u16>().ok().filter(|&n| n > 0)?;
    Some(Rate::from_mbps(unit_mbps * f64::from(n)))
}

/// The number of a datum, with an absolute value of at most `most`.
fn number(
    data: &HashMap<&str, (&str, Range<usize>)>,
    name: &str,
    most: f64,
) -> Result<Option<f64>, ImportError> {
    let Some((text, span)) = data.get(name) else { return Ok(None) };
    match text.parse::<f64>() {
        Ok(x) if x.abs() <= most => Ok(Some(x)),
        _ => {
            let message = format!("`{text}` is not a valid {name}");
            let help = format!("write a number up to {most}, or leave it out");
            Err(ImportError::new(span.clone(), message, help))
        }
    }
}

/// The first element `name` in a yEd drawing of a node or an edge, without nested elements.
fn drawing<'a, 'input>(element: &Element<'a, 'input>, name: &str) -> Option<Element<'a, 'input>> {
    let data = element.children().filter(|n| is(n, "data"));
    data.flat_map(|datum| datum.descendants()).find(|n| is(n, name))
}

/// The text on a node or an edge in a yEd drawing.
fn written(element: &Element<'_, '_>, name: &str) -> Option<String> {
    let text = drawing(element, name)?.text()?;
    let words: Vec<&str> = text.split_whitespace().collect();
    (!words.is_empty()).then(|| words.join(" "))
}

fn is(node: &Element<'_, '_>, name: &str) -> bool {
    node.is_element() && node.tag_name().name() == name
}

fn attribute<'a>(node: &Element<'a, '_>, name: &str) -> Result<&'a str, ImportError> {
    node.attribute(name).ok_or_else(|| {
        let message = format!("this `<{}>` has no `{name}`", node.tag_name().name());
        ImportError::new(tag(node), message, "every node has an `id`, every edge a `source` and a `target`")
    })
}

/// The place of an element's opening tag, at most to the end of its first line.
fn tag(node: &Element<'_, '_>) -> Range<usize> {
    let range = node.range();
    let text = node.document().input_text().get(range.clone()).unwrap_or("");
    let end = text.find(['>', '\n']).map_or(text.len(), |i| i + usize::from(text[i..].starts_with('>')));
    range.start..range.start + end
}

/// The byte offset of a row and a column, both counted from 1, the column in characters.
fn offset(text: &str, row: u32, column: u32) -> usize {
    let mut lines = text.split_inclusive('\n').scan(0, |next, line| {
        let start = *next;
        *next += line.len();
        Some((start, line))
    });
    let Some((start, line)) = lines.nth(row.saturating_sub(1) as usize) else { return text.len() };
    let within = line.char_indices().nth(column.saturating_sub(1) as usize).map_or(line.len(), |(i, _)| i);
    start + within
}

/// The Earth's mean radius (IUGG).
const EARTH_RADIUS_KM: f64 = 6371.0088;

/// Largest number of elements, texts and comments; the largest file of the Zoo has some 40 000.
const MOST_NODES: u32 = 4_000_000;
