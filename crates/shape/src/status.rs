//! The state of an agent as text and as JSON.

use serde_json::{Value, json};
use tollway_agent::status::{
    Product, Table, Unit, alert, count, flag, gauge, info, json_only, label, rows, word,
};
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
/// The limit of a back-end that counts no packets, as a note.
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

impl State {
    /// The tables as text, in at most `width` columns where names allow, with at most `most`
    /// connections.
    pub fn to_text(&self, width: usize, most: usize) -> String {
        SHAPE.text(&self.to_json(), width, most).unwrap_or_default()
    }

    /// The object that `--json` prints.
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An agent with one tenant and two connections, one of which can't be paced.
    fn state() -> State {
        let connection = |port: u16, denied: bool| Connection {
            tenant: "web".into(),
            class: "bulk".into(),
            local: "10.0.0.1:443".into(),
            remote: format!("192.0.2.1:{port}"),
            sends_mbps: 24.9,
            limit_mbps: 25.0,
            rtt_ms: 50.0,
            limited_by: "share",
            resent_segments: 7,
            paced: !denied,
            denied,
            ..Connection::default()
        };
        let web = Tenant {
            tenant: "web".into(),
            connections: 2,
            sends_mbps: 49.8,
            share_mbps: 50.0,
            rate_mbps: Some(60.0),
            bucket: Some(0.25),
            elsewhere_mbps: Some(7.25),
            dropped_mbps: Some(31.5),
            dropped_bytes: Some(4_000_000),
            held_by_drops: Some(true),
        };
        State {
            version: "7".into(),
            source: "policies.toml".into(),
            trouble: Some("`rate`: `Mbqs` is not a unit".into()),
            kernel: "a table".into(),
            warning: Some("it is full".into()),
            contained: true,
            link_mbps: Some(100.0),
            link_bucket: Some(-0.5),
            tenants: vec![web, Tenant { tenant: "rest".into(), ..Tenant::default() }],
            connections: vec![connection(4711, false), connection(4712, true)],
            others: 3,
            others_mbps: Some(196.0),
            unknown_mbps: Some(0.5),
            denied: 1,
            ..State::default()
        }
    }

    #[test]
    fn the_text_is_the_same_from_the_json_of_another_process() {
        let state = state();
        let text = state.to_text(140, 1);
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
        let open = State { note: Some(NOT_CONTAINED.into()), others_mbps: None, ..state.clone() };
        let open = open.to_text(140, 1);
        assert!(open.contains(NOT_CONTAINED) && !open.contains("196"), "{open}");
        let json = serde_json::to_string(&state).unwrap();
        assert_eq!(SHAPE.text_of(&json, 140, 1), Some(text));
        for other in ["", "{}", "[]", "{\"version\": 7}"] {
            assert_eq!(SHAPE.text_of(other, 140, 1), None);
        }
    }
}
