//! Changes of connections during a run, in the keys of the page's interface.

use serde::Deserialize;
use tollway_law::Time;
use tollway_scenario::plan::{Connections, NodeId, PortChange};

use crate::Ports;
use crate::change::{MOST_MS, within};

/// A change of the connections to a port of a node. A value of `None` changes nothing.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PortWish {
    port: String,
    connections: Option<String>,
    close_delay_ms: Option<f64>,
}

/// The name of a port in requests.
pub(super) fn port_name(nodes: &[String], (node, port): (u32, u16)) -> String {
    format!("{}:{port}", nodes[node as usize])
}

/// Parses a request for a change of one of `ports`.
pub(super) fn port_change(ports: &Ports, nodes: &[String], text: &str) -> Result<PortChange, String> {
    let wish: PortWish = serde_json::from_str(text).map_err(|error| {
        format!(
            "{error}; write it like {{\"port\": \"server:8000\", \"connections\": \"reset\", \
            \"close_delay_ms\": 500}}"
        )
    })?;
    let list = ports.list();
    let found = list.iter().find(|(key, _)| port_name(nodes, *key) == wish.port);
    let ((node, port), _) = *found.ok_or_else(|| {
        let known: Vec<String> = list.iter().map(|(key, _)| port_name(nodes, *key)).collect();
        format!("there is no port `{}`; there are {}", wish.port, known.join(", "))
    })?;
    let connections = wish.connections.map(|text| {
        let all = [Connections::Carry, Connections::Reset, Connections::Stall];
        let found = all.into_iter().find(|connections| connections.word() == text);
        found.ok_or_else(|| format!("`connections` is `{text}`; it must be carry, reset or stall"))
    });
    let delay = within("close_delay_ms", wish.close_delay_ms, 0.0, MOST_MS)?;
    let close_delay = delay.map(|ms| Time::from_secs_f64(ms * 1e-3));
    Ok(PortChange {
        at: Time::ZERO,
        node: NodeId(node),
        port,
        connections: connections.transpose()?,
        close_delay,
    })
}
