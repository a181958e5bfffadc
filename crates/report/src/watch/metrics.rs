//! A [`Scene`] for Prometheus: `GET /metrics` over HTTP, in the OpenMetrics text format.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use super::{FlowScene, LinkScene, RunScene, Scene};
use crate::http::{Request, Response, Server};

/// An error in starting the server.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve metrics at {address}: {message}")]
pub struct ServeError {
    address: SocketAddr,
    message: String,
}

/// A server of a scene's metrics, with its own thread, until it is dropped.
#[derive(Debug)]
pub struct Metrics {
    server: Server,
}

impl Metrics {
    /// Starts a server of `scene` at `address`; port 0 means any free port.
    ///
    /// # Errors
    /// The address is in use, or not of this machine.
    pub fn serve(scene: Arc<Scene>, address: SocketAddr) -> Result<Metrics, ServeError> {
        Metrics::of(Box::new(Gathered(scene)), address)
    }

    /// Starts a server of the metrics of `collector`.
    ///
    /// # Errors
    /// The address is in use, or not of this machine.
    pub fn of(collector: Box<dyn Collector>, address: SocketAddr) -> Result<Metrics, ServeError> {
        let mut registry = Registry::default();
        registry.register_collector(collector);
        let answer = move |request: &Request| match request.path.as_str() {
            "/metrics" => answer(&registry),
            _ => Response::words(404, "see /metrics\n"),
        };
        let server = Server::serve(address, "metrics", answer)
            .map_err(|error| ServeError { address, message: error.to_string() })?;
        Ok(Metrics { server })
    }

    /// The address and port in use.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }
}

fn answer(registry: &Registry) -> Response {
    let mut body = String::new();
    if text::encode(&mut body, registry).is_err() {
        return Response::words(500, "cannot write the metrics\n");
    }
    Response::new(200, "application/openmetrics-text; version=1.0.0; charset=utf-8", body)
}

/// A collector that reads the scene at each request.
#[derive(Debug)]
struct Gathered(Arc<Scene>);

impl Collector for Gathered {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let runs = self.0.runs();
        let mut times = encoder.encode_descriptor(
            "tollway_run_time",
            "Simulated or elapsed time of the run",
            Some(&Unit::Seconds),
            MetricType::Gauge,
        )?;
        for run in runs.iter() {
            let labels = [("variant", run.variant.as_str())];
            ConstGauge::new(run.time_s).encode(times.encode_family(&labels)?)?;
        }
        for (name, help, unit, read) in FLOW_GAUGES {
            let unit = unit.of();
            let mut metric = encoder.encode_descriptor(name, help, Some(&unit), MetricType::Gauge)?;
            for (run, flow) in flows(&runs) {
                let Some(value) = read(flow) else { continue };
                let labels = labels(run, "flow", &flow.name);
                ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
            }
        }
        let mut again = encoder.encode_descriptor(
            "tollway_flow_retransmissions",
            "Packets retransmitted",
            None,
            MetricType::Counter,
        )?;
        for (run, flow) in flows(&runs) {
            let Some(resent) = flow.retransmissions else { continue };
            let labels = labels(run, "flow", &flow.name);
            ConstCounter::new(resent).encode(again.encode_family(&labels)?)?;
        }
        for (name, help, unit, read) in LINK_GAUGES {
            let unit = unit.of();
            let mut metric = encoder.encode_descriptor(name, help, Some(&unit), MetricType::Gauge)?;
            for (run, link) in links(&runs) {
                let Some(value) = read(link) else { continue };
                let labels = labels(run, "link", &link.name);
                ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
            }
        }
        for (name, help, read) in LINK_COUNTERS {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (run, link) in links(&runs) {
                let labels = labels(run, "link", &link.name);
                ConstCounter::new(read(link)).encode(metric.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

fn flows(runs: &[RunScene]) -> impl Iterator<Item = (&RunScene, &FlowScene)> {
    // A flow that has ended has no rate, so that a scraper sees its end.
    runs.iter().flat_map(|run| run.current().map(move |flow| (run, flow)))
}

fn links(runs: &[RunScene]) -> impl Iterator<Item = (&RunScene, &LinkScene)> {
    runs.iter().flat_map(|run| run.links.iter().map(move |link| (run, link)))
}

fn labels<'a>(run: &'a RunScene, what: &'static str, name: &'a str) -> [(&'static str, &'a str); 2] {
    [("variant", run.variant.as_str()), (what, name)]
}

/// The base units of metrics, as Prometheus requires.
#[derive(Clone, Copy)]
enum In {
    Bytes,
    BytesPerSecond,
    DollarsPerByte,
    DollarsPerSecond,
    Packets,
    Ratio,
    Seconds,
}

impl In {
    fn of(self) -> Unit {
        match self {
            In::Bytes => Unit::Bytes,
            In::BytesPerSecond => Unit::Other("bytes_per_second".into()),
            In::DollarsPerByte => Unit::Other("dollars_per_byte".into()),
            In::DollarsPerSecond => Unit::Other("dollars_per_second".into()),
            In::Packets => Unit::Other("packets".into()),
            In::Ratio => Unit::Other("ratio".into()),
            In::Seconds => Unit::Seconds,
        }
    }
}

type Gauge<T> = (&'static str, &'static str, In, fn(&T) -> Option<f64>);

const MBPS: f64 = 1e6 / 8.0;

const FLOW_GAUGES: [Gauge<FlowScene>; 6] = [
    ("tollway_flow_rate", "Wire bytes that arrived", In::BytesPerSecond, |flow| {
        flow.rate_mbps.map(|rate| rate * MBPS)
    }),
    ("tollway_flow_goodput", "Payload delivered in order", In::BytesPerSecond, |flow| {
        flow.goodput_mbps.map(|rate| rate * MBPS)
    }),
    ("tollway_flow_rtt", "Smoothed round-trip time", In::Seconds, |flow| flow.rtt_ms.map(|ms| ms * 1e-3)),
    ("tollway_flow_cwnd", "Congestion window", In::Packets, |flow| flow.cwnd_packets),
    ("tollway_flow_spending", "Spending of the sender", In::DollarsPerSecond, |flow| flow.spending),
    ("tollway_flow_price", "Price of the flow's path", In::DollarsPerByte, |flow| {
        flow.price.map(|p| p * 1e-6)
    }),
];

const LINK_GAUGES: [Gauge<LinkScene>; 4] = [
    ("tollway_link_utilisation", "Used fraction of the capacity", In::Ratio, |link| Some(link.utilisation)),
    ("tollway_link_queue", "Bytes queued, mean of the interval", In::Bytes, |link| Some(link.queue_bytes)),
    ("tollway_link_queue_max", "Most bytes queued in the interval", In::Bytes, |link| {
        Some(link.queue_max_bytes)
    }),
    ("tollway_link_price", "Price of the link", In::DollarsPerByte, |link| link.price.map(|p| p * 1e-6)),
];

/// A counter's name, its help text, and the function that reads it.
type Count<T> = (&'static str, &'static str, fn(&T) -> u64);

const LINK_COUNTERS: [Count<LinkScene>; 2] = [
    ("tollway_link_drops", "Packets dropped at the queue", |link| link.drops),
    ("tollway_link_marks", "Packets marked", |link| link.marks),
];

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(100))).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn a_scraper_reads_base_units_and_sees_flows_end() {
        let scene = Arc::new(super::super::tests::scene());
        let metrics = Metrics::serve(scene, ([127, 0, 0, 1], 0).into()).unwrap();
        let answer = get(metrics.address(), "/metrics");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains("application/openmetrics-text"), "{answer}");
        for line in [
            r#"tollway_run_time_seconds{variant="xcp"} 8"#,
            r#"tollway_flow_rate_bytes_per_second{variant="xcp",flow="f.1"} 1000000"#,
            r#"tollway_flow_rtt_seconds{variant="xcp",flow="f.1"} 0.05025"#,
            r#"tollway_flow_retransmissions_total{variant="xcp",flow="f.1"} 8"#,
            r#"tollway_link_queue_bytes{variant="xcp",link="bottleneck"} 12000"#,
            r#"tollway_link_drops_total{variant="xcp",link="bottleneck"} 16"#,
            r#"tollway_link_price_dollars_per_byte{variant="xcp",link="bottleneck"} 5e-7"#,
        ] {
            assert!(answer.contains(line), "no {line} in\n{answer}");
        }
        assert!(!answer.contains("f.2"), "f.2 is over:\n{answer}");
        assert!(get(metrics.address(), "/").starts_with("HTTP/1.1 404"));
        // The server ends when dropped.
        let address = metrics.address();
        drop(metrics);
        // The accepting thread closes its socket a little later.
        let gone = (0..1000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            TcpStream::connect(address).is_err()
        });
        assert!(gone, "{address} still answers");
    }

    /// A collector with more output than the connection's buffers can hold.
    #[derive(Debug)]
    struct Vast;

    impl Collector for Vast {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
            let help = "x".repeat(1 << 26);
            ConstGauge::new(0).encode(encoder.encode_descriptor("vast", &help, None, MetricType::Gauge)?)
        }
    }

    #[test]
    fn who_takes_no_answer_holds_up_neither_others_nor_the_end() {
        let metrics = Metrics::of(Box::new(Vast), ([127, 0, 0, 1], 0).into()).unwrap();
        let mut deaf = TcpStream::connect(metrics.address()).unwrap();
        write!(deaf, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        // The response has begun.
        deaf.read_exact(&mut [0]).unwrap();
        assert!(get(metrics.address(), "/").starts_with("HTTP/1.1 404"));
        drop(metrics);
    }

    #[test]
    fn an_address_that_is_taken_is_said() {
        let scene = || Arc::new(Scene::default());
        let first = Metrics::serve(scene(), ([127, 0, 0, 1], 0).into()).unwrap();
        let error = Metrics::serve(scene(), first.address()).unwrap_err().to_string();
        assert!(error.contains(&first.address().to_string()), "{error}");
    }
}
