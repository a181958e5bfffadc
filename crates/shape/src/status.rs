//! The state of an agent as text and as JSON.

use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use tollway_agent::status::{
    Product, Table, Unit, alert, count, flag, gauge, info, json_only, label, rows, word,
};
use tollway_law::Rate;

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

tollway_agent::status! {
    /// The state of an agent, in the units of its JSON.
    pub struct State {
        /// Time since the start, seconds.
        time_s: f64 = gauge("s up").metric("uptime").unit(Unit::Seconds, 1.0);
        /// Version of the policies in force.
        version: String = info();
        /// Their source.
        source: String = info();
        /// The reason why newer policies are not in force.
        trouble: Option<String> = alert("The new version is not in force");
        /// The back-end.
        kernel: String = info();
        /// The failure at the last tick, if any.
        warning: Option<String> = alert("WARNING");
        /// The limit of a back-end that counts no packets.
        note: Option<String> = alert("NOTE");
        /// True if the back-end limits the packets of tenants that do not cooperate.
        contained: bool = flag("", "", "");
        /// Time between ticks.
        tick_ms: f64 = gauge("ms between ticks").metric("tick").unit(Unit::Seconds, 1e-3);
        /// Processor time used.
        cpu_s: f64 = count("s of processor time").scaled(1.0, 2).metric("cpu").unit(Unit::Seconds, 1.0);
        /// Rate of the link, if it has one.
        link_mbps: Option<f64> = gauge("").metric("link").unit(Unit::BytesPerSecond, MBPS);
        /// Tokens, as a fraction of the depth of the link's bucket, if it has a rate.
        link_bucket: Option<f64> = gauge("").unit(Unit::Ratio, 1.0);
        /// The tenants.
        tenants: Vec<Tenant> = rows(&TENANTS);
        /// The connections.
        connections: Vec<Connection> = rows(&CONNECTIONS);
        /// Connections of no tenant.
        others: usize = gauge("connections of no tenant (not paced)");
        /// Packets of no tenant, on the wire, where the back-end counts packets.
        others_mbps: Option<f64> = gauge("Mb/s of no tenant").scaled(1.0, 2).metric("others").unit(Unit::BytesPerSecond, MBPS);
        /// Packets of a kind that is new to the policies, likewise.
        unknown_mbps: Option<f64> =
            gauge("Mb/s of a kind new to the policies").scaled(1.0, 2).metric("unknown").unit(Unit::BytesPerSecond, MBPS);
        /// Connections of processes that the agent may not access.
        denied: usize = gauge("connections beyond the agent's rights (not paced)").rare();
    }
}

tollway_agent::status! {
    /// A tenant.
    pub struct Tenant {
        /// Its name.
        tenant: String = label("tenant");
        /// Open connections.
        connections: usize = gauge("connections");
        /// Sending rate on the wire.
        sends_mbps: f64 = gauge("sends Mb/s").scaled(1.0, 2).metric("sends").unit(Unit::BytesPerSecond, MBPS);
        /// The tenant's share of the link.
        share_mbps: f64 = gauge("has Mb/s").scaled(1.0, 2).metric("share").unit(Unit::BytesPerSecond, MBPS);
        /// Its own rate, if it has one.
        rate_mbps: Option<f64> = gauge("rate Mb/s").scaled(1.0, 2).rare().metric("rate").unit(Unit::BytesPerSecond, MBPS);
        /// Tokens, as a fraction of the bucket's depth, if it has a rate.
        bucket: Option<f64> = gauge("bucket %").scaled(100.0, 0).unit(Unit::Ratio, 1.0);
        /// Its packets outside the listed connections, where the back-end counts packets.
        elsewhere_mbps: Option<f64> =
            gauge("elsewhere Mb/s").scaled(1.0, 2).rare().metric("elsewhere").unit(Unit::BytesPerSecond, MBPS);
        /// Its packets dropped in the last second, likewise.
        dropped_mbps: Option<f64> =
            gauge("dropped Mb/s").scaled(1.0, 2).rare().metric("dropped").unit(Unit::BytesPerSecond, MBPS);
        /// Bytes dropped so far.
        dropped_bytes: Option<u64> = json_only();
        /// Drops hold the tenant to its rate, not paces.
        held_by_drops: Option<bool> = flag("held by", "drops", "").rare();
    }
}

tollway_agent::status! {
    /// A connection.
    pub struct Connection {
        /// The kernel's number for it.
        cookie: u64 = json_only();
        /// Its tenant.
        tenant: String = word("tenant");
        /// Its class.
        class: String = word("class");
        /// Local address.
        local: String = word("from");
        /// Remote address.
        remote: String = word("to");
        /// The user that owns it.
        uid: u32 = json_only();
        /// Its control group.
        cgroup: Option<String> = json_only();
        /// Round-trip time.
        rtt_ms: f64 = gauge("RTT ms").scaled(1.0, 1);
        /// Sending rate on the wire.
        sends_mbps: f64 = gauge("sends Mb/s").scaled(1.0, 2);
        /// Its share.
        share_mbps: f64 = json_only();
        /// Upper bound of its rate.
        limit_mbps: f64 = gauge("may Mb/s").scaled(1.0, 2);
        /// Connections by what limits them.
        limited_by: &'static str =
            word("held by").metric("held").tallied("by", &["idle", "application", "receiver", "window", "share"]);
        /// Payload sent.
        sent_bytes: u64 = json_only();
        /// Segments sent again.
        resent_segments: u32 = gauge("resent");
        /// It has a pace.
        paced: bool = json_only();
        /// The agent may not access its process.
        denied: bool = flag("denied", "denied", "").rare();
    }
}

const TENANTS: Table = Table::new("", Tenant::FIELDS).with_total(link);
const CONNECTIONS: Table = Table::long(Connection::FIELDS);
/// The limit of a back-end that counts no packets.
pub const NOT_CONTAINED: &str = "hostile tenants are not held: inet_diag limits no UDP, no short connection and no MPTCP; \
    `--backend bpf` does";
/// Bytes per second of one Mb/s.
const MBPS: f64 = 125_000.0;

/// The text and metrics of the state.
pub const SHAPE: Product = Product::new(
    "shape",
    "Policies {version} from {source}; a tick every {tick_ms} ms with {kernel}.",
    State::FIELDS,
);

/// The row of the link, if it has a rate.
fn link(state: &Value) -> Option<Value> {
    let rate = state["link_mbps"].as_f64()?;
    let tenants = state["tenants"].as_array()?;
    let sum = |key: &str| tenants.iter().filter_map(|tenant| tenant[key].as_f64()).sum::<f64>();
    Some(json!({
        "tenant": "the link",
        "connections": sum("connections"),
        "sends_mbps": sum("sends_mbps"),
        "share_mbps": rate,
        "bucket": state["link_bucket"],
    }))
}

impl Standing {
    /// The tables as text, in at most `width` columns where names allow, with at most `most`
    /// connections.
    pub fn to_text(&self, width: usize, most: usize) -> String {
        SHAPE.text(&self.to_json(), width, most).unwrap_or_default()
    }

    /// The object that `--json` prints.
    pub fn to_json(&self) -> Value {
        let (status, turn) = (&self.status, &self.turn);
        let state = State {
            time_s: turn.now.nearest_secs(),
            version: status.version.clone(),
            source: self.source.clone(),
            trouble: self.trouble.clone(),
            kernel: status.kernel.clone(),
            warning: status.warning.clone(),
            tick_ms: turn.tick.as_millis_f64(),
            cpu_s: turn.cpu.as_secs_f64(),
            link_mbps: status.rate.map(Rate::mbps),
            link_bucket: status.rate.map(|_| status.level),
            tenants: status.tenants.iter().map(Tenant::from).collect(),
            connections: status.connections.iter().map(Connection::from).collect(),
            others: status.others,
            note: (!status.contains).then(|| NOT_CONTAINED.to_owned()),
            contained: status.contains,
            others_mbps: status.contains.then(|| status.elsewhere.mbps()),
            unknown_mbps: status.contains.then(|| status.unknown.mbps()),
            denied: status.connections.iter().filter(|connection| connection.denied).count(),
        };
        serde_json::to_value(state).unwrap_or_default()
    }
}

impl Serialize for Standing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_json().serialize(serializer)
    }
}

impl From<&TenantStatus> for Tenant {
    fn from(tenant: &TenantStatus) -> Tenant {
        Tenant {
            tenant: tenant.name.clone(),
            connections: tenant.connections,
            sends_mbps: tenant.uses.mbps(),
            share_mbps: tenant.share.mbps(),
            rate_mbps: tenant.rate.map(Rate::mbps),
            bucket: tenant.rate.map(|_| tenant.level),
            elsewhere_mbps: tenant.packets.map(|packets| packets.elsewhere.mbps()),
            dropped_mbps: tenant.packets.map(|packets| packets.drops.mbps()),
            dropped_bytes: tenant.packets.map(|packets| packets.dropped),
            held_by_drops: tenant.packets.map(|packets| packets.held),
        }
    }
}

impl From<&ConnectionStatus> for Connection {
    fn from(connection: &ConnectionStatus) -> Connection {
        Connection {
            cookie: connection.cookie,
            tenant: connection.tenant.clone(),
            class: connection.class.clone(),
            local: connection.local.to_string(),
            remote: connection.remote.to_string(),
            uid: connection.uid,
            cgroup: connection.cgroup.clone(),
            rtt_ms: connection.rtt.as_millis_f64(),
            sends_mbps: connection.uses.mbps(),
            share_mbps: connection.share.mbps(),
            limit_mbps: connection.limit.mbps(),
            limited_by: connection.limited_by.word(),
            sent_bytes: connection.sent,
            resent_segments: connection.resent,
            paced: connection.paced,
            denied: connection.denied,
        }
    }
}

#[cfg(test)]
mod tests {
    use tollway_law::Time;
    use tollway_law::shares::LimitedBy;

    use super::*;
    use crate::Packets;

    /// An agent with one tenant and two connections, one of which can't be paced.
    fn standing() -> Standing {
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
    fn the_text_is_the_same_from_the_json_of_another_process() {
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
            "3 connections of no tenant",
            "1 connections beyond",
            "drops",
            "7.25",
            "31.50",
            "196.00 Mb/s of no tenant",
            "0.50 Mb/s of a kind new",
        ] {
            assert!(text.contains(part), "no {part} in\n{text}");
        }
        assert!(!text.contains("4712") && !text.contains("hostile"));
        let mut open = standing.clone();
        open.status.contains = false;
        let open = open.to_text(140, 1);
        assert!(open.contains(NOT_CONTAINED) && !open.contains("196"), "{open}");
        let json = serde_json::to_string(&standing).unwrap();
        assert_eq!(SHAPE.text_of(&json, 140, 1), Some(text));
        for other in ["", "{}", "[]", "{\"version\": 7}"] {
            assert_eq!(SHAPE.text_of(other, 140, 1), None);
        }
    }
}
