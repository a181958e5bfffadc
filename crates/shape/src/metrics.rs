//! The agent's state for Prometheus.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use serde_json::Value;
use tollway_report::watch::metrics::{Metrics, ServeError};

/// The last known [`Standing`](crate::status::Standing) as JSON.
pub type Latest = Arc<Mutex<Option<Value>>>;

/// Serves `latest` from a new thread until the result is dropped. There are metrics per tenant, but
/// none per connection: connections come and go by the thousand.
///
/// # Errors
/// The address is in use, or not one of this machine.
pub fn serve(latest: Latest, address: SocketAddr) -> Result<Metrics, ServeError> {
    Metrics::of(Box::new(Gathered(latest)), address)
}

#[derive(Debug)]
struct Gathered(Latest);

impl Collector for Gathered {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(standing) = latest.as_ref() else { return Ok(()) };
        for (name, help, unit, read) in TENANT {
            let unit = unit.map(|unit| Unit::Other(unit.into()));
            let mut metric = encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
            for tenant in rows(standing, "tenants") {
                let labels = [("tenant", tenant["tenant"].as_str().unwrap_or_default())];
                ConstGauge::new(read(tenant)).encode(metric.encode_family(&labels)?)?;
            }
        }
        let mut held = encoder.encode_descriptor(
            "tollway_shape_held",
            "Connections by what limits them",
            None,
            MetricType::Gauge,
        )?;
        for word in ["idle", "application", "receiver", "window", "share"] {
            let those = rows(standing, "connections").filter(|one| one["limited_by"] == word).count();
            ConstGauge::new(those as i64).encode(held.encode_family(&[("by", word)])?)?;
        }
        let denied = rows(standing, "connections").filter(|one| one["denied"] == true).count() as i64;
        if standing["link_mbps"].is_number() {
            let (help, ratio) =
                ("Tokens, as a fraction of the depth of the link's bucket", Unit::Other("ratio".into()));
            let metric = encoder.encode_descriptor(
                "tollway_shape_link_bucket",
                help,
                Some(&ratio),
                MetricType::Gauge,
            )?;
            ConstGauge::new(number(standing, "link_bucket")).encode(metric)?;
        }
        for (name, help, key) in [
            ("tollway_shape_others", "Packets of no tenant, on the wire", "others_mbps"),
            (
                "tollway_shape_unknown",
                "Packets of a kind that is new to the policies, on the wire",
                "unknown_mbps",
            ),
        ] {
            if standing[key].is_number() {
                let unit = Unit::Other("bytes_per_second".into());
                let metric = encoder.encode_descriptor(name, help, Some(&unit), MetricType::Gauge)?;
                ConstGauge::new(rate(standing, key)).encode(metric)?;
            }
        }
        for (name, help, value) in [
            (
                "tollway_shape_contained",
                "1 if the back-end holds hostile tenants to their rates; 0 with inet_diag",
                i64::from(standing["contained"] == true),
            ),
            ("tollway_shape_denied", "Connections that the agent may not access", denied),
            (
                "tollway_shape_trouble",
                "1 while newer policies are not in force",
                i64::from(!standing["trouble"].is_null()),
            ),
        ] {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(metric)?;
        }
        let tick = encoder.encode_descriptor(
            "tollway_shape_tick",
            "Time between ticks",
            Some(&Unit::Seconds),
            MetricType::Gauge,
        )?;
        ConstGauge::new(number(standing, "tick_ms") / 1000.0).encode(tick)?;
        let cpu = encoder.encode_descriptor(
            "tollway_shape_cpu",
            "Processor time used",
            Some(&Unit::Seconds),
            MetricType::Counter,
        )?;
        ConstCounter::new(number(standing, "cpu_s")).encode(cpu)
    }
}

fn rows<'a>(standing: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    standing[key].as_array().into_iter().flatten()
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_default()
}

/// The value of a key in Mb/s, converted to bytes per second.
fn rate(tenant: &Value, key: &str) -> f64 {
    number(tenant, key) * 125_000.0
}

/// Name, help, unit, and the function that reads the value.
type Gauge = (&'static str, &'static str, Option<&'static str>, fn(&Value) -> f64);

const TENANT: [Gauge; 6] = [
    ("tollway_shape_connections", "Open connections", None, |tenant| number(tenant, "connections")),
    ("tollway_shape_sends", "Sending rate on the wire", Some("bytes_per_second"), |tenant| {
        rate(tenant, "sends_mbps")
    }),
    ("tollway_shape_share", "The tenant's share of the link", Some("bytes_per_second"), |tenant| {
        rate(tenant, "share_mbps")
    }),
    (
        "tollway_shape_elsewhere",
        "Rate of packets outside the listed connections, on the wire",
        Some("bytes_per_second"),
        |tenant| rate(tenant, "elsewhere_mbps"),
    ),
    ("tollway_shape_dropped", "Rate of dropped packets, on the wire", Some("bytes_per_second"), |tenant| {
        rate(tenant, "dropped_mbps")
    }),
    ("tollway_shape_bucket", "Tokens, as a fraction of the bucket's depth", Some("ratio"), |tenant| {
        number(tenant, "bucket")
    }),
];

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn a_scraper_reads_tenants_in_base_units() {
        let standing = crate::status::tests::standing().to_json();
        let latest: Latest = Arc::new(Mutex::new(Some(standing)));
        let metrics = serve(latest, ([127, 0, 0, 1], 0).into()).unwrap();
        let mut stream = std::net::TcpStream::connect(metrics.address()).unwrap();
        write!(stream, "GET /metrics?debug=1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        for line in [
            r#"tollway_shape_connections{tenant="web"} 2"#,
            r#"tollway_shape_share_bytes_per_second{tenant="web"} 6250000"#,
            r#"tollway_shape_bucket_ratio{tenant="web"} 0.25"#,
            "tollway_shape_link_bucket_ratio -0.5",
            r#"tollway_shape_held{by="share"} 2"#,
            r#"tollway_shape_elsewhere_bytes_per_second{tenant="web"} 906250"#,
            r#"tollway_shape_dropped_bytes_per_second{tenant="web"} 3937500"#,
            "tollway_shape_others_bytes_per_second 24500000",
            "tollway_shape_unknown_bytes_per_second 62500",
            "tollway_shape_contained 1",
            "tollway_shape_denied 1",
            "tollway_shape_trouble 1",
            "tollway_shape_tick_seconds 0.015",
            "tollway_shape_cpu_seconds_total 0.09",
        ] {
            assert!(answer.contains(line), "no {line} in\n{answer}");
        }
    }
}
