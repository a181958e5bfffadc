//! Prometheus metrics of a site.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tollway_report::watch::metrics::{Metrics, ServeError};

use crate::status::{LinkStatus, Status, TenantStatus};

/// The latest status.
pub type Latest = Arc<Mutex<Status>>;

/// Serves `latest` from a separate thread until the returned value is dropped.
///
/// Links and tenants have labels. Clients, which come and go, have none.
///
/// # Errors
/// The address is taken, or is not an address of this machine.
pub fn serve(latest: Latest, address: SocketAddr) -> Result<Metrics, ServeError> {
    Metrics::of(Box::new(Gathered(latest)), address)
}

#[derive(Debug)]
struct Gathered(Latest);

impl Collector for Gathered {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let status = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, help, read) in SITE_COUNTERS {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(read(&status)).encode(metric)?;
        }
        for (name, help, read) in SITE_GAUGES {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(read(&status)).encode(metric)?;
        }
        let help = "Messages lost, by cause";
        let mut metric =
            encoder.encode_descriptor("tollway_overlay_lost", help, None, MetricType::Counter)?;
        for (cause, _, count) in status.lost.causes() {
            ConstCounter::new(count).encode(metric.encode_family(&[("cause", cause)])?)?;
        }
        let name = "tollway_overlay_tenant_lost";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for tenant in &status.tenants {
            for (cause, _, count) in tenant.lost.causes() {
                let labels = [("tenant", tenant.tenant.as_str()), ("cause", cause)];
                ConstCounter::new(count).encode(metric.encode_family(&labels)?)?;
            }
        }
        for (name, help, read) in LINK {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for link in &status.links {
                ConstGauge::new(read(link)).encode(metric.encode_family(&[("site", link.site.as_str())])?)?;
            }
        }
        for (name, help, read) in TENANT {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for tenant in &status.tenants {
                let labels = [("tenant", tenant.tenant.as_str())];
                ConstGauge::new(read(tenant)).encode(metric.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

/// Name, help, and the field to read.
type Row<S, V> = (&'static str, &'static str, fn(&S) -> V);

const SITE_COUNTERS: [Row<Status, f64>; 8] = [
    ("tollway_overlay_published", "Messages that clients have published", |status| status.published as f64),
    ("tollway_overlay_delivered", "Messages delivered to clients", |status| status.delivered as f64),
    ("tollway_overlay_received", "Messages received from other sites", |status| status.received as f64),
    ("tollway_overlay_dropped", "Messages dropped at the request of subscriptions", |status| {
        status.dropped as f64
    }),
    ("tollway_overlay_cut", "Clients disconnected for lack of progress", |status| status.cut as f64),
    ("tollway_overlay_unordered", "Messages returned without a place in an order", |status| {
        status.unordered as f64
    }),
    ("tollway_overlay_stray", "Messages from other sites for unknown tenants", |status| status.stray as f64),
    ("tollway_overlay_cpu_seconds", "Processor time used", |status| status.cpu_s),
];

const SITE_GAUGES: [Row<Status, f64>; 5] = [
    ("tollway_overlay_clients", "Connected clients", |status| status.clients as f64),
    ("tollway_overlay_reachable", "Reachable other sites", |status| status.reachable as f64),
    ("tollway_overlay_retained_bytes", "Bytes kept until all sites have received them", |status| {
        status.retained as f64
    }),
    ("tollway_overlay_spooled_bytes", "Bytes on disk for slow subscriptions", |status| status.spooled as f64),
    ("tollway_overlay_trouble", "1 while a newer configuration is not in force", |status| {
        f64::from(u8::from(status.trouble.is_some()))
    }),
];

const LINK: [Row<LinkStatus, f64>; 5] = [
    ("tollway_overlay_link_up", "1 while the link is connected", |link| f64::from(u8::from(link.up))),
    ("tollway_overlay_link_queue_bytes", "Bytes waiting for the link", |link| link.queued as f64),
    ("tollway_overlay_link_price", "Price in dollars per lot", |link| link.price),
    ("tollway_overlay_link_rate_mbps", "Measured rate of the link", |link| link.rate_mbps),
    ("tollway_overlay_link_data_bytes", "Bytes of messages sent", |link| link.data as f64),
];

const TENANT: [Row<TenantStatus, f64>; 6] = [
    ("tollway_overlay_tenant_connections", "Connected clients", |tenant| tenant.connections as f64),
    ("tollway_overlay_tenant_published", "Messages published", |tenant| tenant.published as f64),
    ("tollway_overlay_tenant_delivered", "Messages delivered", |tenant| tenant.delivered as f64),
    ("tollway_overlay_tenant_dropped", "Messages dropped", |tenant| tenant.dropped as f64),
    ("tollway_overlay_tenant_waiting", "Clients waiting for links", |tenant| tenant.waiting as f64),
    ("tollway_overlay_tenant_balance", "Savings, dollars", |tenant| tenant.balance),
];

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn a_scraper_reads_links_and_tenants() {
        let latest = Arc::new(Mutex::new(crate::status::tests::status()));
        let metrics = serve(latest, ([127, 0, 0, 1], 0).into()).unwrap();
        let mut stream = std::net::TcpStream::connect(metrics.address()).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        for line in [
            "tollway_overlay_published_total 7",
            r#"tollway_overlay_link_up{site="b"} 1"#,
            r#"tollway_overlay_link_up{site="c"} 0"#,
            r#"tollway_overlay_link_price{site="b"} 2.5"#,
            r#"tollway_overlay_tenant_connections{tenant="plant"} 3"#,
            "tollway_overlay_trouble 1",
            r#"tollway_overlay_lost_total{cause="no_destination"} 4"#,
            r#"tollway_overlay_tenant_lost_total{tenant="plant",cause="spool"} 3"#,
        ] {
            assert!(answer.contains(line), "no {line} in\n{answer}");
        }
    }
}
