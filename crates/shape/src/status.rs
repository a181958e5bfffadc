//! The state of an agent as text and as JSON.

use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use tollway_law::Rate;
use tollway_report::text::{Align, TextTable};

use crate::{ConnectionStatus, Status, TenantStatus, Turn};

/// The state of an agent at a tick.
#[derive(Clone, Debug)]
pub struct Standing {
    /// The policies and the connections.
    pub status: Status,
    /// The tick.
    pub turn: Turn,
    /// Name of the policies' source.
    pub source: String,
    /// The reason why newer policies are not in force, if there are any.
    pub trouble: Option<String>,
}

impl Standing {
    /// The tables as text, in at most `width` columns where names allow, with at most `most`
    /// connections.
    pub fn to_text(&self, width: usize, most: usize) -> String {
        text(&self.to_json(), width, most).unwrap_or_default()
    }

    /// The object that `--json` prints.
    pub fn to_json(&self) -> Value {
        let status = &self.status;
        json!({
            "time_s": self.turn.now.nearest_secs(),
            "version": status.version,
            "source": self.source,
            "trouble": self.trouble,
            "kernel": status.kernel,
            "warning": status.warning,
            "tick_ms": self.turn.tick.as_millis_f64(),
            "cpu_s": self.turn.cpu.as_secs_f64(),
            "link_mbps": status.rate.map(Rate::mbps),
            "link_bucket": status.level,
            "tenants": status.tenants.iter().map(tenant_json).collect::<Vec<_>>(),
            "connections": status.connections.iter().map(connection_json).collect::<Vec<_>>(),
            "others": status.others,
            "contained": status.contains,
            "others_mbps": status.contains.then(|| status.elsewhere.mbps()),
            "unknown_mbps": status.contains.then(|| status.unknown.mbps()),
        })
    }
}

/// The tables for the JSON that another process has written; `None` if it is something else.
pub fn told(json: &str, width: usize, most: usize) -> Option<String> {
    text(&serde_json::from_str(json).ok()?, width, most)
}

/// The tables for such an object.
pub(crate) fn text(standing: &Value, width: usize, most: usize) -> Option<String> {
    let word = |key: &str| standing[key].as_str();
    let mut text = format!(
        "Policies {} from {}; a tick every {:.0} ms with {}.\n",
        word("version")?,
        word("source")?,
        standing["tick_ms"].as_f64()?,
        word("kernel")?,
    );
    if let Some(trouble) = word("trouble") {
        text += &format!("The new version is not in force: {trouble}\n");
    }
    if let Some(warning) = word("warning") {
        text += &format!("WARNING: {warning}\n");
    }
    if standing["contained"] == false {
        text += &format!("NOTE: {NOT_CONTAINED}\n");
    }
    text += "\n";
    let right = Align::Right;
    let mut table = TextTable::new(&[
        ("tenant", Align::Left),
        ("connections", right),
        ("sends Mb/s", right),
        ("has Mb/s", right),
        ("bucket %", right),
        ("elsewhere Mb/s", right),
        ("dropped Mb/s", right),
    ]);
    let bucket = |rate: &Value, level: &Value| match (rate.as_f64(), level.as_f64()) {
        (Some(_), Some(level)) => format!("{:.0}", level * 100.0),
        _ => "–".into(),
    };
    let tenants = standing["tenants"].as_array()?;
    for tenant in tenants {
        table.row([
            cell(&tenant["tenant"]),
            cell(&tenant["connections"]),
            number(&tenant["sends_mbps"], 2),
            number(&tenant["share_mbps"], 2),
            bucket(&tenant["rate_mbps"], &tenant["bucket"]),
            number(&tenant["elsewhere_mbps"], 2),
            number(&tenant["dropped_mbps"], 2),
        ]);
    }
    let rate = &standing["link_mbps"];
    if rate.is_number() {
        let sum = |key: &str| tenants.iter().filter_map(|tenant| tenant[key].as_f64()).sum::<f64>();
        table.row([
            "the link".into(),
            format!("{:.0}", sum("connections")),
            format!("{:.2}", sum("sends_mbps")),
            number(rate, 2),
            bucket(rate, &standing["link_bucket"]),
            String::new(),
            String::new(),
        ]);
    }
    text += &table.print(width);
    for tenant in tenants.iter().filter(|tenant| tenant["held_by_drops"] == true) {
        text += &format!(
            "Drops hold tenant `{}` to its rate: {} Mb/s of its packets are dropped.\n",
            cell(&tenant["tenant"]),
            number(&tenant["dropped_mbps"], 2)
        );
    }
    let connections = standing["connections"].as_array()?;
    if !connections.is_empty() {
        text += "\n";
        text += &connections_table(connections, most).print(width);
    }
    let left = connections.len().saturating_sub(most);
    if left > 0 {
        text += &format!("… and {left} more (`--json` has them all)\n");
    }
    text += &format!("\n{} connections match no tenant, and are not paced.\n", standing["others"]);
    if let (Some(others), Some(unknown)) =
        (standing["others_mbps"].as_f64(), standing["unknown_mbps"].as_f64())
    {
        text += &format!(
            "All packets of no tenant: {others:.2} Mb/s; of a kind that is new to the policies: {unknown:.2} Mb/s.\n"
        );
    }
    let denied = connections.iter().filter(|connection| connection["denied"] == true).count();
    if denied > 0 {
        text += &format!("{denied} belong to processes that the agent may not access, and are not paced.\n");
    }
    Some(text)
}

/// The limit of a back-end that counts no packets.
pub const NOT_CONTAINED: &str = "hostile tenants are not held: inet_diag limits no UDP, no short connection and no MPTCP; \
    `--backend bpf` does";

fn connections_table(connections: &[Value], most: usize) -> TextTable {
    let right = Align::Right;
    let mut table = TextTable::new(&[
        ("tenant", Align::Left),
        ("class", Align::Left),
        ("from", Align::Left),
        ("to", Align::Left),
        ("RTT ms", right),
        ("sends Mb/s", right),
        ("may Mb/s", right),
        ("held by", Align::Left),
        ("resent", right),
    ]);
    for connection in connections.iter().take(most) {
        table.row([
            cell(&connection["tenant"]),
            cell(&connection["class"]),
            cell(&connection["local"]),
            cell(&connection["remote"]),
            number(&connection["rtt_ms"], 1),
            number(&connection["sends_mbps"], 2),
            number(&connection["limit_mbps"], 2),
            cell(&connection["limited_by"]),
            cell(&connection["resent_segments"]),
        ]);
    }
    table
}

fn cell(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn number(value: &Value, digits: usize) -> String {
    value.as_f64().map_or_else(String::new, |value| format!("{value:.digits$}"))
}

impl Serialize for Standing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_json().serialize(serializer)
    }
}

fn tenant_json(tenant: &TenantStatus) -> Value {
    json!({
        "tenant": tenant.name,
        "connections": tenant.connections,
        "sends_mbps": tenant.uses.mbps(),
        "share_mbps": tenant.share.mbps(),
        "rate_mbps": tenant.rate.map(Rate::mbps),
        "bucket": tenant.level,
        "elsewhere_mbps": tenant.packets.map(|packets| packets.elsewhere.mbps()),
        "dropped_mbps": tenant.packets.map(|packets| packets.drops.mbps()),
        "dropped_bytes": tenant.packets.map(|packets| packets.dropped),
        "held_by_drops": tenant.packets.map(|packets| packets.held),
    })
}

fn connection_json(connection: &ConnectionStatus) -> Value {
    json!({
        "cookie": connection.cookie,
        "tenant": connection.tenant,
        "class": connection.class,
        "local": connection.local.to_string(),
        "remote": connection.remote.to_string(),
        "uid": connection.uid,
        "cgroup": connection.cgroup,
        "rtt_ms": connection.rtt.as_millis_f64(),
        "sends_mbps": connection.uses.mbps(),
        "share_mbps": connection.share.mbps(),
        "limit_mbps": connection.limit.mbps(),
        "limited_by": connection.limited_by.word(),
        "sent_bytes": connection.sent,
        "resent_segments": connection.resent,
        "paced": connection.paced,
        "denied": connection.denied,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use tollway_law::Time;
    use tollway_law::shares::LimitedBy;

    use super::*;
    use crate::Packets;

    /// An agent with one tenant and two connections, one of which can't be paced.
    pub(crate) fn standing() -> Standing {
        let connection = |port: u16, denied: bool| ConnectionStatus {
            cookie: u64::from(port),
            tenant: "web".into(),
            class: "bulk".into(),
            local: "10.0.0.1:443".parse().unwrap(),
            remote: (std::net::Ipv4Addr::new(192, 0, 2, 1), port).into(),
            uid: 33,
            cgroup: Some("/system.slice/nginx.service".into()),
            uses: Rate::from_mbps(24.9),
            share: Rate::from_mbps(25.0),
            limit: Rate::from_mbps(25.0),
            rtt: Time::from_millis(50),
            limited_by: LimitedBy::Share,
            hungry: true,
            sent: 123_456,
            resent: 7,
            paced: !denied,
            denied,
        };
        Standing {
            status: Status {
                version: "7".into(),
                kernel: "a table".into(),
                warning: Some("it is full".into()),
                tick: Time::from_millis(15),
                rate: Some(Rate::from_mbps(100.0)),
                level: -0.5,
                tenants: vec![
                    TenantStatus {
                        name: "web".into(),
                        connections: 2,
                        uses: Rate::from_mbps(49.8),
                        share: Rate::from_mbps(50.0),
                        rate: Some(Rate::from_mbps(60.0)),
                        level: 0.25,
                        packets: Some(Packets {
                            elsewhere: Rate::from_mbps(7.25),
                            drops: Rate::from_mbps(31.5),
                            dropped: 4_000_000,
                            held: true,
                        }),
                    },
                    TenantStatus {
                        name: "rest".into(),
                        connections: 0,
                        uses: Rate::ZERO,
                        share: Rate::ZERO,
                        rate: None,
                        level: 1.0,
                        packets: None,
                    },
                ],
                connections: vec![connection(4711, false), connection(4712, true)],
                others: 3,
                contains: true,
                unknown: Rate::from_mbps(0.5),
                elsewhere: Rate::from_mbps(196.0),
            },
            turn: Turn { now: Time::from_secs(9), tick: Time::from_millis(15), cpu: Time::from_millis(90) },
            source: "policies.toml".into(),
            trouble: Some("`rate`: `Mbqs` is not a unit".into()),
        }
    }

    #[test]
    fn what_an_agent_tells_reads_the_same_here_and_there() {
        let standing = standing();
        let text = standing.to_text(140, 1);
        for part in [
            "Policies 7",
            "The new version is not in force: `rate`",
            "WARNING: it is full",
            "web",
            "49.80",
            "50.00",
            "25",
            "–",
            "the link",
            "100.00",
            "-50",
            "192.0.2.1:4711",
            "share",
            "1 more",
            "3 connections",
            "1 belong",
            "Drops hold tenant `web` to its rate: 31.50 Mb/s",
            "7.25",
            "All packets of no tenant: 196.00 Mb/s; of a kind that is new to the policies: 0.50 Mb/s",
        ] {
            assert!(text.contains(part), "no {part} in\n{text}");
        }
        assert!(!text.contains("4712"));
        assert!(!text.contains("hostile"));
        let mut open = standing.clone();
        open.status.contains = false;
        let open = open.to_text(140, 1);
        assert!(open.contains(NOT_CONTAINED) && !open.contains("196"), "{open}");
        let json = serde_json::to_string(&standing).unwrap();
        assert_eq!(told(&json, 140, 1), Some(text));
        for other in ["", "{}", "[]", "{\"version\": 7}"] {
            assert_eq!(told(other, 140, 1), None);
        }
    }
}
