//! Metrics of a switch for Prometheus.

use std::fmt;
use std::net::SocketAddr;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use tollway_report::watch::metrics::{Metrics, ServeError};

use crate::agent::Teller;
use crate::status::{MemberStatus, Status};

/// Serves metrics from a separate thread until the result is dropped. Members have labels; clients
/// have none, since there may be thousands.
///
/// # Errors
/// The address is in use or not local.
pub fn serve(teller: Teller, address: SocketAddr) -> Result<Metrics, ServeError> {
    Metrics::of(Box::new(Gathered(teller)), address)
}

#[derive(Debug)]
struct Gathered(Teller);

impl Collector for Gathered {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        self.0.status().map_or(Ok(()), |status| write(&status, encoder))
    }
}

fn write(status: &Status, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    for (name, help, unit, read) in MEMBER_GAUGES {
        let mut metric = encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
        for member in &status.members {
            let labels = [("member", member.name.as_str())];
            ConstGauge::new(read(member)).encode(metric.encode_family(&labels)?)?;
        }
    }
    for (name, help, unit, read) in MEMBER_COUNTERS {
        let mut metric = encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Counter)?;
        for member in &status.members {
            let labels = [("member", member.name.as_str())];
            ConstCounter::new(read(member)).encode(metric.encode_family(&labels)?)?;
        }
    }
    for (name, help, unit, read) in GAUGES {
        let metric = encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
        ConstGauge::new(read(status)).encode(metric)?;
    }
    for (name, help, unit, read) in COUNTERS {
        let metric = encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Counter)?;
        ConstCounter::new(read(status)).encode(metric)?;
    }
    let help = "Sessions that ended, by reason";
    let mut metric =
        encoder.encode_descriptor("tollway_switch_ended_sessions", help, None, MetricType::Counter)?;
    for (reason, count) in &status.ends {
        ConstCounter::new(*count).encode(metric.encode_family(&[("reason", *reason)])?)?;
    }
    let cpu = "Processor time of the event loop";
    let metric =
        encoder.encode_descriptor("tollway_switch_cpu", cpu, Some(&Unit::Seconds), MetricType::Counter)?;
    ConstCounter::new(status.cpu_s).encode(metric)
}

/// Name, help text, unit and source of a metric.
type Metric<T, N> = (&'static str, &'static str, Option<Unit>, fn(&T) -> N);

const MEMBER_GAUGES: [Metric<MemberStatus, f64>; 6] = [
    ("tollway_switch_member_up", "1 while the member takes new frames", None, |member| {
        f64::from(u8::from(member.state == "up"))
    }),
    ("tollway_switch_member_connections", "Connections to the member", None, |member| {
        member.connections as f64
    }),
    ("tollway_switch_member_outstanding", "Outstanding frames of the member", Some(Unit::Bytes), |member| {
        member.outstanding as f64
    }),
    (
        "tollway_switch_member_window",
        "Window of the member, from its drain rate",
        Some(Unit::Bytes),
        |member| member.window as f64,
    ),
    ("tollway_switch_member_waiting", "Sessions waiting for its window", None, |member| {
        member.waiting as f64
    }),
    (
        "tollway_switch_member_response",
        "Mean response time; 0 while unknown",
        Some(Unit::Seconds),
        |member| member.response_ms.unwrap_or(0.0) / 1e3,
    ),
];

const MEMBER_COUNTERS: [Metric<MemberStatus, u64>; 7] = [
    ("tollway_switch_member_sent", "Frames' bytes written to the member", Some(Unit::Bytes), |member| {
        member.bytes
    }),
    ("tollway_switch_member_answers", "Answers from the member", None, |member| member.answers),
    ("tollway_switch_member_failures", "Failed or hung connections", None, |member| member.failures),
    ("tollway_switch_member_retried", "Frames sent to other members instead", None, |member| member.retried),
    ("tollway_switch_member_unanswered", "Unanswered frames reported to their clients", None, |member| {
        member.unanswered
    }),
    (
        "tollway_switch_member_perhaps_lost",
        "Upper bound of one-way frames lost in its failures",
        None,
        |member| member.perhaps_lost,
    ),
    ("tollway_switch_member_unrequested", "Answers without a frame", None, |member| member.unrequested),
];

const GAUGES: [Metric<Status, f64>; 3] = [
    ("tollway_switch_sessions", "Open sessions", None, |status| status.sessions as f64),
    ("tollway_switch_memory", "Memory of sessions", Some(Unit::Bytes), |status| status.memory as f64),
    ("tollway_switch_trouble", "1 while a newer configuration is not in force", None, |status| {
        f64::from(u8::from(status.trouble.is_some()))
    }),
];

const COUNTERS: [Metric<Status, u64>; 8] = [
    ("tollway_switch_connections", "Accepted connections", None, |status| status.accepted),
    ("tollway_switch_refused", "Connections refused: too many", None, |status| status.refused),
    ("tollway_switch_frames", "Frames from clients", None, |status| status.frames),
    ("tollway_switch_received", "Their bytes", Some(Unit::Bytes), |status| status.bytes),
    ("tollway_switch_answers", "Answers from members", None, |status| status.answers),
    ("tollway_switch_answered_here", "Frames answered by the switch", None, |status| status.answered_here),
    ("tollway_switch_torn", "Incomplete frames", None, |status| status.torn),
    ("tollway_switch_abandoned", "Unfinished frames of broken sessions", None, |status| status.abandoned),
];

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    #[derive(Debug)]
    struct Fixed(Status);

    impl Collector for Fixed {
        fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
            write(&self.0, encoder)
        }
    }

    #[test]
    fn a_scraper_reads_members_in_base_units() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Fixed(crate::status::tests::status())));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            r#"tollway_switch_member_up{member="a"} 1"#,
            r#"tollway_switch_member_sent_bytes_total{member="a"} 4500000"#,
            r#"tollway_switch_member_response_seconds{member="a"} 0.00025"#,
            r#"tollway_switch_member_perhaps_lost_total{member="a"} 17"#,
            r#"tollway_switch_ended_sessions_total{reason="done"} 4"#,
            "tollway_switch_sessions 2",
            "tollway_switch_trouble 1",
            "tollway_switch_frames_total 1000",
        ] {
            assert!(text.contains(line), "no {line} in\n{text}");
        }
    }
}
