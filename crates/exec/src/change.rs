//! Changes of links during a run, in the keys of the page's interface.

use serde::{Deserialize, Serialize};
use tollway_law::{Rate, Time};
use tollway_proto::Change;
use tollway_proto::faults::Loss;
use tollway_scenario::plan::{Link, Plan};

/// A change of a link during a run. A value of `None` changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkChange {
    /// The link's name.
    pub link: String,
    /// Its rate, in Mb/s, from 0.001 to 10⁶. It ends a recording.
    pub rate_mbps: Option<f64>,
    /// Its one-way delay, in ms, at most 60 000. Packets on the wire keep theirs.
    pub delay_ms: Option<f64>,
    /// The probability that a packet is lost, 0 to 1. It replaces all other random loss.
    pub loss: Option<f64>,
}

/// A link as a change sees it.
pub(crate) struct LinkFace {
    pub(crate) name: String,
    /// The link's law has the rate as a parameter, and receives a new one.
    pub(crate) told: bool,
}

impl LinkFace {
    /// The links of `plan`, by number.
    pub(crate) fn all(plan: &Plan) -> Vec<LinkFace> {
        let face = |link: &Link| LinkFace { name: link.name.to_string(), told: link.capacity == link.rate };
        plan.links.iter().map(face).collect()
    }
}

/// Parses a request for changes of one of `links`.
pub(crate) fn changes(links: &[LinkFace], text: &str) -> Result<(u32, Vec<Change>), String> {
    let wish: LinkChange = serde_json::from_str(text).map_err(|error| {
        format!(
            "{error}; write it like {{\"link\": \"down\", \"rate_mbps\": 5, \"delay_ms\": 40, \"loss\": 0.01}}"
        )
    })?;
    let link = links.iter().position(|link| link.name == wish.link).ok_or_else(|| {
        let known: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
        format!("there is no link `{}`; there are {}", wish.link, known.join(", "))
    })?;
    let mut changes = Vec::new();
    if let Some(mbps) = within("rate_mbps", wish.rate_mbps, LEAST_MBPS, MOST_MBPS)? {
        let rate = Rate::from_mbps(mbps);
        changes.push(Change::Rate(rate));
        changes.extend(links[link].told.then_some(Change::Capacity(rate)));
    }
    if let Some(ms) = within("delay_ms", wish.delay_ms, 0.0, MOST_MS)? {
        changes.push(Change::Delay(Time::from_secs_f64(ms * 1e-3)));
    }
    if let Some(probability) = within("loss", wish.loss, 0.0, 1.0)? {
        changes.push(Change::Losses(Loss::on_wire(probability).into_iter().collect()));
    }
    Ok((link as u32, changes))
}

/// Checks that a value, if given, is in its range.
pub(crate) fn within(key: &str, value: Option<f64>, least: f64, most: f64) -> Result<Option<f64>, String> {
    match value {
        Some(value) if !(least..=most).contains(&value) => {
            Err(format!("`{key}` is {value}; it must be from {least} to {most}"))
        }
        value => Ok(value),
    }
}

/// Lowest rate of a link, in Mb/s.
pub(crate) const LEAST_MBPS: f64 = 0.001;
/// Highest rate of a link, in Mb/s: no limit.
pub(crate) const MOST_MBPS: f64 = 1e6;
/// Longest delay, in ms.
pub(crate) const MOST_MS: f64 = 60_000.0;
