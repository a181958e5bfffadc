//! Selections of variants in an experiment's grid, for claims and plots.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use tollway_scenario::file::{Coordinate, Scenario};

/// The position of each variant in an experiment's grid.
#[derive(Clone, Debug, Default)]
pub struct Cells(Vec<(String, Vec<Coordinate>)>);

impl Cells {
    /// The positions of a scenario's variants. Those outside of its grid are left out.
    pub fn of(scenario: &Scenario) -> Cells {
        let cells = scenario.variants().iter().filter(|v| !v.cell.is_empty());
        Cells(cells.map(|v| (v.name.clone(), v.cell.clone())).collect())
    }

    /// The positions of those variants that `keeps`.
    pub(crate) fn only(&self, keeps: impl Fn(&str) -> bool) -> Cells {
        Cells(self.0.iter().filter(|(name, _)| keeps(name)).cloned().collect())
    }

    /// The position of a variant; `None` outside of the grid.
    pub(crate) fn cell(&self, variant: &str) -> Option<&[Coordinate]> {
        self.0.iter().find(|(name, _)| name == variant).map(|(_, cell)| cell.as_slice())
    }

    /// The variants within `part`, in the grid's order.
    pub fn within<'a>(&'a self, part: &'a GridPart) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(|(_, cell)| part.holds(cell)).map(|(name, _)| name.as_str())
    }

    /// The variant in `part` at the same point as `variant` on all axes that `part` does not name.
    ///
    /// # Errors
    /// None or several such variants exist.
    pub(crate) fn counterpart(&self, variant: &str, part: &GridPart) -> Result<&str, String> {
        let here = self.cell(variant).ok_or_else(|| format!("`{variant}` is not in the grid"))?;
        let same = |cell: &[Coordinate]| {
            cell.iter().zip(here).all(|(a, b)| part.0.contains_key(&a.axis) || a.point == b.point)
        };
        let mut found = self.0.iter().filter(|(_, cell)| same(cell) && part.holds(cell));
        match (found.next(), found.next()) {
            (Some((name, _)), None) => Ok(name),
            (None, _) => Err(format!("the grid has no counterpart of `{variant}` with {part}")),
            _ => Err(format!("the grid has several counterparts of `{variant}` with {part}")),
        }
    }
}

/// A part of a grid, `{ sender = "sack", loss = { at-least = 0.001 } }`: the selected points on
/// some axes, and all points on the others.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct GridPart(BTreeMap<String, Want>);

/// The selected points on one axis.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum Want {
    /// The point with this value.
    Value(f64),
    /// The point with this name.
    Name(String),
    /// The point `true` or `false`.
    Truth(bool),
    /// A point that one of these selects.
    AnyOf(Vec<Want>),
    /// The values in this closed range.
    Range(Range),
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Range {
    at_least: Option<f64>,
    at_most: Option<f64>,
}

impl GridPart {
    /// The axes with a selection.
    pub(crate) fn axes(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    fn holds(&self, cell: &[Coordinate]) -> bool {
        self.0.iter().all(|(axis, want)| cell.iter().any(|c| c.axis == *axis && want.is(c)))
    }
}

impl Want {
    fn is(&self, at: &Coordinate) -> bool {
        match self {
            Want::Value(value) => at.value == Some(*value),
            Want::Name(name) => at.point == *name,
            Want::Truth(truth) => at.point == truth.to_string(),
            Want::AnyOf(wants) => wants.iter().any(|want| want.is(at)),
            Want::Range(range) => at.value.is_some_and(|value| {
                range.at_least.is_none_or(|least| value >= least)
                    && range.at_most.is_none_or(|most| value <= most)
            }),
        }
    }
}

/// The selected points as text: `sack`, `0.001 to 0.025`.
impl fmt::Display for GridPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, want) in self.0.values().enumerate() {
            write!(f, "{}{want}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl fmt::Display for Want {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Want::Value(value) => write!(f, "{value}"),
            Want::Name(name) => f.write_str(name),
            Want::Truth(truth) => write!(f, "{truth}"),
            Want::AnyOf(wants) => {
                let all: Vec<String> = wants.iter().map(Want::to_string).collect();
                f.write_str(&all.join(" or "))
            }
            Want::Range(Range { at_least, at_most }) => match (at_least, at_most) {
                (Some(least), Some(most)) => write!(f, "{least} to {most}"),
                (Some(least), None) => write!(f, "from {least} on"),
                (None, Some(most)) => write!(f, "up to {most}"),
                (None, None) => f.write_str("any"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells() -> Cells {
        let mut cells = Vec::new();
        for sender in ["xcp", "tcp"] {
            for loss in [0.001, 0.01, 0.1] {
                let at = |axis: &str, point: String, value| Coordinate { axis: axis.into(), point, value };
                let cell = vec![at("sender", sender.into(), None), at("loss", loss.to_string(), Some(loss))];
                cells.push((format!("{sender}-{loss}"), cell));
            }
        }
        Cells(cells)
    }

    fn part(text: &str) -> GridPart {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_part_is_named_by_points_lists_and_ranges() {
        let cells = cells();
        let within = |text: &str| cells.within(&part(text)).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(within("").len(), 6);
        assert_eq!(within("sender = 'xcp'\nloss = [0.1, '0.001']"), ["xcp-0.001", "xcp-0.1"]);
        assert_eq!(within("loss = { at-least = 0.01, at-most = 0.01 }"), ["xcp-0.01", "tcp-0.01"]);
        assert_eq!(within("loss = { at-most = 0.001 }\nsender = 'tcp'"), ["tcp-0.001"]);
        assert!(within("size = 3").is_empty() && within("sender = 1").is_empty());
        assert!(toml::from_str::<GridPart>("loss = { at-leats = 1 }").is_err());
    }

    #[test]
    fn a_counterpart_differs_on_the_axes_named() {
        let cells = cells();
        assert_eq!(cells.counterpart("xcp-0.01", &part("sender = 'tcp'")), Ok("tcp-0.01"));
        assert_eq!(cells.counterpart("xcp-0.01", &part("")), Ok("xcp-0.01"));
        assert!(
            cells.counterpart("xcp-0.01", &part("sender = 'udp'")).unwrap_err().contains("no counterpart")
        );
        let several = cells.counterpart("xcp-0.01", &part("loss = { at-least = 0.01 }"));
        assert!(several.unwrap_err().contains("several counterparts"));
    }
}
