//! A grid of variants: the product of lists of settings.
//!
//! Each axis is a table `[grid.AXIS]`. It lists values of one key (`set`, `to`), or it has a table
//! of settings for each point. Every combination of points is a variant; the first axis changes
//! slowest.

use super::error::{At, Mistakes};
use super::reader;
use super::tree::{Entry, Node, Table, Value};

/// Position of a variant on one axis of the file's grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Coordinate {
    /// The axis: `loss` of `[grid.loss]`.
    pub axis: String,
    /// The point's name, or the value in the form used in the variant's name.
    pub point: String,
    /// The number that the value begins with: 500 of `"500 B"`; `None` if it begins with none.
    pub value: Option<f64>,
}

/// A variant before it is laid over the file: its name, settings and position in the grid.
pub(super) struct VariantSettings {
    pub(super) name: String,
    pub(super) sets: Table,
    pub(super) cell: Vec<Coordinate>,
}

/// A point of an axis.
struct Point {
    name: String,
    value: Option<f64>,
    sets: Table,
}

/// Takes `[grid.AXIS]` out of the tree and returns the product of its axes. `taken` are existing
/// variants.
pub(super) fn take(
    base: &mut Table,
    taken: &[VariantSettings],
    mistakes: &mut Mistakes,
) -> Vec<VariantSettings> {
    let Some(i) = base.0.iter().position(|e| e.key == "grid") else { return Vec::new() };
    if !matches!(base.0[i].node.value, Value::Table(_)) {
        return Vec::new(); // Left in the tree; the check reports it.
    }
    let entry = base.0.remove(i);
    let Value::Table(axes) = entry.node.value else { return Vec::new() };
    let mut axes_read: Vec<(String, Vec<Point>)> = Vec::new();
    for axis in axes.0 {
        reader::name(&axis.key, axis.at, mistakes);
        let Value::Table(table) = axis.node.value else {
            let message = format!("`[grid.{}]` is a table; this is {}", axis.key, axis.node.value.what());
            mistakes.add(axis.at, message, "not a table").help(HELP);
            continue;
        };
        let points = points(&axis.key, axis.at, table, mistakes);
        axes_read.push((axis.key, points));
    }
    let cells = axes_read.iter().map(|(_, points)| points.len()).fold(1, usize::saturating_mul);
    if cells > MOST_CELLS {
        mistakes
            .add(entry.at, format!("the grid has more than {MOST_CELLS} variants"), "too many")
            .help("leave out points, or split the file");
        return Vec::new();
    }
    if axes_read.is_empty() {
        return Vec::new();
    }
    let mut overs: Vec<VariantSettings> = (0..cells).map(|cell| over(&axes_read, cell)).collect();
    let names: Vec<&str> = taken.iter().chain(&overs).map(|o| o.name.as_str()).collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        mistakes
            .add(entry.at, format!("two variants are called `{}`", twice[0]), "of this grid")
            .help("a variant's name is those of its points, joined by `-`: rename a point");
        overs.clear();
    }
    overs
}

/// The variant with index `cell` in the grid; the last axis changes fastest.
fn over(axes: &[(String, Vec<Point>)], cell: usize) -> VariantSettings {
    let mut over = VariantSettings { name: String::new(), sets: Table::default(), cell: Vec::new() };
    let mut below: usize = axes.iter().map(|(_, points)| points.len()).product();
    let mut rest = cell;
    for (axis, points) in axes {
        below /= points.len();
        let point = &points[rest / below];
        rest %= below;
        if !over.name.is_empty() {
            over.name.push('-');
        }
        over.name.push_str(&point.name);
        over.sets.0.extend(point.sets.0.iter().cloned());
        over.cell.push(Coordinate { axis: axis.clone(), point: point.name.clone(), value: point.value });
    }
    over
}

/// The points of one axis, in the file's order.
fn points(axis: &str, at: At, table: Table, mistakes: &mut Mistakes) -> Vec<Point> {
    let listed = table.0.iter().any(|e| matches!(e.key.as_str(), "set" | "to"));
    let points = if listed { values(axis, at, &table, mistakes) } else { named(table, mistakes) };
    if points.is_empty() && mistakes.is_empty() {
        mistakes.add(at, format!("`[grid.{axis}]` has no points"), "an empty axis").help(HELP);
    }
    points
}

/// Points given as tables: `[grid.sender.sack]`.
fn named(table: Table, mistakes: &mut Mistakes) -> Vec<Point> {
    let mut points = Vec::new();
    for entry in table.0 {
        reader::name(&entry.key, entry.at, mistakes);
        match entry.node.value {
            Value::Table(sets) => {
                points.push(Point { value: leading_number(&entry.key), name: entry.key, sets });
            }
            other => {
                let message = format!(
                    "`{}` is a point of the grid, which is a table; this is {}",
                    entry.key,
                    other.what()
                );
                mistakes.add(entry.at, message, "not a table").help(HELP);
            }
        }
    }
    points
}

/// Points given as values: `set = "loss.0.probability"`, `to = [0.01, 0.1]`.
fn values(axis: &str, at: At, table: &Table, mistakes: &mut Mistakes) -> Vec<Point> {
    if let Some(other) = table.0.iter().find(|e| !matches!(e.key.as_str(), "set" | "to")) {
        mistakes
            .add(other.at, format!("there is no key `{}` in `[grid.{axis}]`", other.key), "unknown key")
            .help(HELP);
    }
    let Some(paths) = table.get("set").and_then(|e| texts(&e.node)) else {
        let place = table.get("set").map_or(at, |e| e.node.at);
        mistakes
            .add(place, format!("`[grid.{axis}]` needs the path of a key, or several, in `set`"), "here")
            .help(HELP);
        return Vec::new();
    };
    let Some(Value::List(list)) = table.get("to").map(|e| &e.node.value) else {
        let place = table.get("to").map_or(at, |e| e.node.at);
        mistakes.add(place, format!("`[grid.{axis}]` needs a list of values in `to`"), "here").help(HELP);
        return Vec::new();
    };
    let mut points = Vec::new();
    for node in list {
        let Some((name, value)) = called(&node.value) else {
            let message = format!("{} cannot name a variant", node.value.what());
            mistakes.add(node.at, message, "here").help("write a text, a number, or true or false");
            continue;
        };
        let set = |(path, at): &(String, At)| Entry { key: path.clone(), at: *at, node: node.clone() };
        points.push(Point { name, value, sets: Table(paths.iter().map(set).collect()) });
    }
    points
}

/// A string, or a list of strings.
fn texts(node: &Node) -> Option<Vec<(String, At)>> {
    match &node.value {
        Value::Text(text) => Some(vec![(text.clone(), node.at)]),
        Value::List(items) if !items.is_empty() => items
            .iter()
            .map(|item| match &item.value {
                Value::Text(text) => Some((text.clone(), item.at)),
                _ => None,
            })
            .collect(),
        _ => None,
    }
}

/// A value's form in a variant's name, and the number that it begins with.
fn called(value: &Value) -> Option<(String, Option<f64>)> {
    Some(match value {
        Value::Text(text) => {
            let name: String =
                text.chars().filter(|c| c.is_ascii_alphanumeric() || "-_.".contains(*c)).collect();
            if name.trim_matches('.').is_empty() {
                return None;
            }
            (name, leading_number(text))
        }
        Value::Whole(n) => (n.to_string(), Some(*n as f64)),
        Value::Real(x) if x.is_finite() => (x.to_string(), Some(*x)),
        Value::Truth(truth) => (truth.to_string(), None),
        _ => return None,
    })
}

/// 500 of `500 B`.
fn leading_number(text: &str) -> Option<f64> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    text[..end].parse().ok()
}

const HELP: &str = "write `set = \"link.a.rate\"` with `to = [\"1 Mbps\", \"2 Mbps\"]`, or a table of settings for each \
                    point, `[grid.AXIS.POINT]`";

/// Largest number of cells; each is read, checked and run.
const MOST_CELLS: usize = 1000;
