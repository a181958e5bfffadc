//! A small comparison with real packets. The agreement of the engines is measured by `tollway
//! reproduce --engine live` on an idle machine. This test checks that they are compared, and that
//! every datagram is counted.

use std::path::Path;

use tollway_report::Experiment;
use tollway_report::agreement::{agree, scenario};
use tollway_report::claim::{Report, Status};
use tollway_report::runner::Runner;
use tollway_scenario::run::{EngineKind, Hosting};

const TEXT: &str = r#"
name = "test/live"
duration = "3 s"
[measure]
interval = "100 ms"
[node.s]
count = 2
[node.r]
[node.d]
[link.access]
from = "s"
to = "r"
rate = "50 Mbps"
[link.bottleneck]
from = "r"
to = "d"
rate = "5 Mbps"
delay = "250 ms"
limit = "2 BDP"
law = "xcp"
[flow.f]
from = "s"
to = "d"
law = "xcp"
[variant.xcp]
[variant.fifo]
"link.bottleneck.law" = "drop-tail"
"flow.f.law" = "newreno"
[[live]]
id = "test.live"
says = "real packets fare as simulated ones do"
variants = ["xcp"]
set = ["link.bottleneck.delay=10ms"]
rate-percent = 50
queue-percent = 100
queue-ms = 50
"#;

#[test]
fn both_engines_are_compared() {
    if let Err(error) = std::net::UdpSocket::bind("127.0.0.1:0") {
        eprintln!("SKIPPED: no UDP socket on loopback here: {error}");
        return;
    }
    let path = Path::new("papers/test/live.toml");
    let experiment = Experiment::parse(TEXT, path).unwrap();
    let comparison = &experiment.live[0];
    let scenario = scenario(TEXT, path, comparison).unwrap();
    assert_eq!(scenario.variants().len(), 1);
    assert_eq!(scenario.variants()[0].plan.flows[0].path.base_rtt.as_millis_f64(), 20.0);
    for hosting in [Hosting::Loopback, Hosting::Namespaces] {
        let namespaces = hosting == Hosting::Namespaces;
        let real = Runner { engine: EngineKind::Live, hosting, ..Runner::default() };
        let agreed = match agree(&scenario, &experiment, comparison, &real, None) {
            Err(error) if namespaces && error.to_string().contains("cannot make") => {
                eprintln!("SKIPPED: {error}");
                continue;
            }
            agreed => agreed.unwrap(),
        };
        compared(&agreed.report);
    }
}

fn compared(report: &Report) {
    let ids: Vec<&str> = report.claims.iter().map(|claim| claim.id.as_str()).collect();
    assert_eq!(ids, ["test.live.rates", "test.live.queues", "test.live.packets"]);
    assert!(report.claims[0].measured.contains("Mb/s"), "{report:?}");
    assert_ne!(report.claims[2].status, Status::Unmet, "{report:?}");
}
