//! A machine's status: its law, tenants and connections.

use serde::Serialize;
use tollway_agent::status::{
    Product, Table, Unit, alert, by, count, gauge, info, json_only, label, rows, word,
};

use crate::connection::{Cause, Connection, Echoes};
use crate::programs::Counts;

tollway_agent::status! {
    /// The status of `tollway host`.
    pub struct Status {
        /// The law of the connections.
        law: String = info();
        /// The congestion control's name in the kernel.
        congestion: String = info();
        /// The origin of the configuration.
        source: String = info();
        /// The congestion control of connections that have fallen back.
        ordinary: String = info();
        /// Time since the start, in seconds.
        up_s: f64 = gauge("s up").metric("uptime").unit(Unit::Seconds, 1.0);
        /// Connections opened since the start.
        opened: u64 = count("connections opened");
        /// Connections that the law controls now.
        active: usize = gauge("under the law");
        /// Connections that have fallen back since the start, by cause.
        fallen: Fallen = by("fell back", "cause").rare();
        /// Echoes beyond what an honest router grants.
        forged: u64 = count("echoes exceeded what routers grant").rare();
        /// The first fault.
        trouble: Option<String> = alert("Trouble");
        /// Tenants, in the configuration's order.
        tenants: Vec<TenantStatus> = rows(&TENANTS);
        /// Open connections, the fastest first.
        connections: Vec<ConnectionStatus> = rows(&CONNECTIONS);
    }
}

tollway_agent::status! {
    /// A tenant.
    pub struct TenantStatus {
        /// Its name.
        tenant: String = label("tenant");
        /// Its budget under FCP, in $/s.
        budget: Option<f64> = gauge("budget").scaled(1.0, 2).rare();
        /// Division of the budget under FCP.
        strategy: Option<String> = word("strategy").rare();
        /// Its connections that the law controls.
        active: usize = gauge("connections");
        /// Its open connections that have fallen back.
        fallen: usize = gauge("fallen").metric("fallen_open");
        /// Bytes acknowledged in the last second, in Mb/s.
        rate_mbps: f64 = gauge("Mb/s").scaled(1.0, 2).metric("rate").unit(Unit::BytesPerSecond, 125_000.0);
    }
}

tollway_agent::status! {
    /// A connection.
    pub struct ConnectionStatus {
        /// Its two addresses.
        connection: String = label("connection");
        /// Its tenant, or null.
        tenant: Option<String> = word("tenant").rare();
        /// Bytes acknowledged in the last second, in Mb/s.
        rate_mbps: f64 = gauge("Mb/s").scaled(1.0, 2);
        /// The pacing rate, in Mb/s; null if it is not paced.
        paced_mbps: Option<f64> = json_only();
        /// The congestion window, in packets.
        window: f64 = gauge("window").scaled(1.0, 1);
        /// The price of its path under FCP, in $/GB.
        price: Option<f64> = gauge("$/GB").scaled(1.0, 2).rare();
        /// The smoothed round trip, in ms.
        rtt_ms: f64 = gauge("RTT ms").scaled(1.0, 1);
        /// The least round trip, in ms.
        min_rtt_ms: f64 = json_only();
        /// The option in the peer's answers: `feedback`, `not rewritten` or `none`.
        option: &'static str = word("option");
        /// The cause of its fallback: `peer`, `path`, `queue`, `agent` or `program`; null under the
        /// law.
        fallen: Option<&'static str> = word("fallen").rare().tallied("cause", Cause::WORDS).metric("fallen_open");
        /// The cause in words.
        why: Option<String> = json_only();
        /// Echoes beyond what an honest router grants.
        forged: u32 = gauge("forged").rare();
        /// The user of the socket.
        user: u32 = json_only();
    }
}

/// Connections that have fallen back, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Fallen {
    /// Acknowledgements carry no option.
    pub peer: u64,
    /// No router on the path rewrites the option.
    pub path: u64,
    /// A bottleneck does not speak the law.
    pub queue: u64,
    /// There was no heartbeat.
    pub agent: u64,
    /// The program selected another congestion control.
    pub program: u64,
}

impl From<&Counts> for Fallen {
    fn from(counts: &Counts) -> Fallen {
        let [peer, path, queue, agent, program] = counts.fallen;
        Fallen { peer, path, queue, agent, program }
    }
}

impl ConnectionStatus {
    /// The status of `connection`, which has had `rate` bytes/s acknowledged in the last second.
    pub(crate) fn new(connection: &Connection, tenant: Option<String>, rate: f64) -> ConnectionStatus {
        // Without a price nothing is paced.
        let paced = Some(connection.rate).filter(|&rate| rate < UNPACED);
        ConnectionStatus {
            connection: connection.to_string(),
            tenant,
            rate_mbps: rate * 8e-6,
            paced_mbps: paced.map(|rate| rate as f64 * 8e-6),
            window: connection.window,
            price: connection.price.map(|price| price.get() * 1e9),
            rtt_ms: connection.rtt.as_secs_f64() * 1e3,
            min_rtt_ms: connection.min_rtt.as_secs_f64() * 1e3,
            option: match connection.echoes {
                Echoes::None => "none",
                Echoes::Unrewritten => "not rewritten",
                Echoes::Feedback => "feedback",
            },
            fallen: connection.fallen.map(Cause::word),
            why: connection.fallen.map(|cause| cause.to_string()),
            forged: connection.forged,
            user: connection.user,
        }
    }
}

/// Pacing rates from here on, in bytes/s, are none.
const UNPACED: u64 = 1 << 40;
const TENANTS: Table = Table::new("tenant", TenantStatus::FIELDS);
const CONNECTIONS: Table = Table::long(ConnectionStatus::FIELDS);

/// The text, metrics and page of the status.
pub const HOST: Product = Product::new(
    "host",
    "`{law}` as `{congestion}`, from {source}; `{ordinary}` after a fallback.",
    Status::FIELDS,
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_text_of_its_json_in_80_columns() {
        let connection = ConnectionStatus {
            connection: "10.77.0.100:55555 > 10.77.0.200:65535".into(),
            tenant: Some("web".into()),
            rate_mbps: 12.5,
            window: 1234.5,
            price: Some(0.25),
            rtt_ms: 100.4,
            option: "feedback",
            ..ConnectionStatus::default()
        };
        let fallen = ConnectionStatus {
            option: "not rewritten",
            fallen: Some("path"),
            price: None,
            ..connection.clone()
        };
        let tenant = TenantStatus { tenant: "web".into(), active: 1, fallen: 1, ..TenantStatus::default() };
        let status = Status {
            law: "fcp".into(),
            source: "host.toml".into(),
            opened: 12,
            fallen: Fallen { path: 3, ..Fallen::default() },
            tenants: vec![tenant],
            connections: vec![connection, fallen],
            ..Status::default()
        };
        let text = HOST.text_of(&serde_json::to_string(&status).unwrap(), 80, 40).unwrap();
        for part in ["from host.toml; ", "12 connections opened", "fell back (3 path)", "1234.5", "path"] {
            assert!(text.contains(part), "no {part} in\n{text}");
        }
        let long = text.lines().filter(|line| line.chars().count() > 80).collect::<Vec<_>>();
        assert!(long.is_empty(), "{long:?} in\n{text}");
        assert!(!text.contains("forged"), "no connection has any:\n{text}");
    }
}
