//! Every key of the scenario file has an effect: another value gives another run.

mod cases;

use std::collections::BTreeSet;

use tollway_scenario::file::{Scenario, schema};
use tollway_scenario::run::{DigestMode, Finished, Options, run};
use tollway_scenario::tables::Outputs;

use cases::{CASES, NO_EFFECT};

/// Two senders with different round trips, two routers, losses, cross-traffic and a workload: every
/// key affects some packet.
const BASE: &str = r#"
name = "effects"
duration = "6 s"
seed = 3

[measure]
interval = "100 ms"
warmup = "1 s"

[node.s]
count = 2
[node.q]
[node.r]
[node.d]

[medium.air]
rate = "9 Mbps"

[link.access]
from = "s"
to = "q"
rate = "50 Mbps"
delay = { first = "2 ms", last = "20 ms" }

[link.mid]
from = "q"
to = "r"
rate = "8 Mbps"
delay = "10 ms"
limit = "30 packets"

[link.mid.reverse]
delay = "12 ms"

[link.last]
from = "r"
to = "d"
medium = "air"
delay = "3 ms"

[flow.f]
from = "s"
to = "d"
law = "newreno"

[workload.w]
from = "s"
to = "d"
law = "newreno"
arrivals = { poisson = 2 }
sizes = "30 kB"

[cbr.c]
from = "q"
to = "d"
rate = "1 Mbps"
packet-size = "700 B"

[[change]]
at = "3 s"
link = "mid"
rate = "5 Mbps"

[[loss]]
link = "mid"
probability = 0.005
"#;

/// The digests of a run: of every packet-hop, and of all results.
fn digests(text: &str, sets: &[&str]) -> (u64, u64) {
    let scenario = match Scenario::parse("effects.toml", text, sets) {
        Ok(scenario) => scenario,
        Err(error) => panic!("{sets:?}: {:?}", error.mistakes()),
    };
    let once = |digest| {
        let options = Options { outputs: Outputs::memory(), digest, ..Options::default() };
        let Finished { run, .. } = run(&scenario.variants()[0].plan, &options).expect("it runs");
        run.digest
    };
    (once(DigestMode::Packets), once(DigestMode::Results))
}

#[test]
fn every_key_makes_a_difference() {
    let mut wrong = Vec::new();
    for case in CASES {
        let text = format!("{BASE}{}", case.more);
        let sets: Vec<&str> = case.given.iter().chain([&case.set]).copied().collect();
        let (before, after) = (digests(&text, case.given), digests(&text, &sets));
        if before == after {
            wrong.push(case.key);
        }
    }
    assert!(wrong.is_empty(), "these keys change nothing: {wrong:?}");
}

#[test]
fn every_key_is_tried() {
    let tried: BTreeSet<&str> = CASES.iter().map(|case| case.key).chain(NO_EFFECT.iter().copied()).collect();
    let mut missing = Vec::new();
    walk(&schema(), "", &mut |path| {
        // Sections that several tables share are tested in one of them.
        let shared = [
            "topology.link.",
            "workload.rto.",
            "workload.receive-window.",
            "workload.reader.",
            "change.reader.",
            "workload.xcp.",
            "link.reverse.bursts",
            "link.reverse.jitter",
            "link.reverse.reorder",
            "link.reverse.duplicate",
            "link.reverse.corrupt",
            "link.reverse.xcp.",
            "link.reverse.red.",
            "link.reverse.codel",
            "link.reverse.fq-codel",
            "link.reverse.pie",
            "link.reverse.dualpi2",
            "link.reverse.sfq",
            "link.reverse.step",
            "link.reverse.fcp",
            "link.reverse.rcp",
            "link.reverse.avq",
            "workload.fcp.",
            "workload.scalable",
            "overlay.sender.start.",
            "overlay.sender.stop.",
        ];
        // A hop has the keys of a flow's transport.
        let shared_by_hop = path
            .strip_prefix("overlay.hop.")
            .is_some_and(|key| !["link", "from", "to", "length"].contains(&key));
        if !tried.contains(path) && !shared_by_hop && !shared.iter().any(|prefix| path.starts_with(prefix)) {
            missing.push(path.to_owned());
        }
    });
    assert!(missing.is_empty(), "no case tries {missing:?}");
}

/// Calls `note` with the path of every key of the schema, without names.
fn walk(schema: &serde_json::Value, path: &str, note: &mut impl FnMut(&str)) {
    for (key, inner) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        note(&path);
        for inner in [inner, &inner["items"], &inner["additionalProperties"]] {
            // Claims, plots and references belong to the report.
            if inner.is_object() {
                walk(inner, &path, note);
            }
        }
    }
}

#[test]
fn shadows_report_and_change_nothing() {
    let given = ["link.mid.law=xcp", "flow.f.law=xcp"];
    let with = ["link.mid.law=xcp", "flow.f.law=xcp", "link.mid.xcp.shadow=fixed128"];
    assert_eq!(digests(BASE, &given), digests(BASE, &with));
    let scenario = Scenario::parse("effects.toml", BASE, &with).unwrap();
    let options = Options { outputs: Outputs::memory(), ..Options::default() };
    let tables = run(&scenario.variants()[0].plan, &options).unwrap().result.systems;
    assert!(tables.get("shadows.mid.packets") > Some(1000.0), "{tables:?}");
    assert!(tables.get("shadows.mid.divergence").is_some_and(f64::is_finite));
}

/// Settings of the measurement change tables, but no packet.
#[test]
fn measuring_changes_no_packet() {
    let whole = |sets: &[&str]| {
        let scenario = Scenario::parse("effects.toml", BASE, sets).unwrap();
        let options =
            Options { outputs: Outputs::memory(), digest: DigestMode::Packets, ..Options::default() };
        run(&scenario.variants()[0].plan, &options).unwrap()
    };
    let rows = |table: &[arrow_array::RecordBatch]| table.iter().map(|batch| batch.num_rows()).sum::<usize>();
    let base = whole(&[]);
    for set in ["measure.interval=none", "measure.interval=7ms", "measure.warmup=2s", "measure.warmup=2050ms"]
    {
        let other = whole(&[set]);
        assert_eq!(base.run.digest, other.run.digest, "{set}");
        let same = match set.starts_with("measure.interval") {
            true => rows(&base.result.flows) == rows(&other.result.flows),
            false => base.result.summary == other.result.summary,
        };
        assert!(!same, "{set}");
        // The summary does not depend on the interval rows.
        if set.starts_with("measure.interval") {
            assert_eq!(base.result.summary, other.result.summary, "{set}");
            assert_eq!(base.result.link_summary, other.result.link_summary, "{set}");
        } else {
            assert_eq!(base.result.flows, other.result.flows, "{set}");
            assert_eq!(base.result.links, other.result.links, "{set}");
        }
    }
}

/// An explicit default gives the same run.
#[test]
fn defaults_are_what_they_say() {
    let xcp: &[&str] = &["link.mid.law=xcp", "flow.f.law=xcp"];
    let fcp: &[&str] = &["link.mid.law=fcp", "flow.f.law=fcp"];
    let red: &[&str] = &["link.mid.law=red"];
    let cases: &[(&[&str], &str)] = &[
        (&[], "measure.interval=100ms"),
        (&[], "link.last.delay=3 ms"),
        (&[], "link.mid.overhead=0 B"),
        (&[], "link.last.limit=1000 packets"),
        (&[], "link.mid.reverse.limit=unlimited"),
        (&[], "link.mid.reverse.law=drop-tail"),
        (&[], "link.mid.reverse.rate=8Mbps"),
        (&[], "link.mid.loss=0"),
        (&[], "link.mid.duplex=true"),
        (xcp, "link.mid.capacity=8Mbps"),
        (
            xcp,
            "link.mid.xcp={ alpha = 0.4, beta = 0.226, gamma = 0.1, max-interval = \"1 s\", min-interval = \"1 ms\", form = \"throughput\", arithmetic = \"float\", overhead = 0, shadow = \"none\" }",
        ),
        (
            red,
            "link.mid.red={ min-threshold = 0.25, max-threshold = 0.75, max-probability = 0.1, weight = 0.002, gentle = false, spacing = \"uniform\", least-queue = 0 }",
        ),
        (
            &[],
            "flow.f={ start = \"0 s\", receive-buffer = \"unlimited\", send-buffer = \"unlimited\", packet-size = 1500, header = 40, ack-size = 40, initial-window = 10, sack = true, sack-blocks = 3, loss-detection = \"rfc6675\", delayed-ack = \"none\", handshake = true, encoding = \"acp\", both-ways = false, ecn = false, weight = 1 }",
        ),
        (&["flow.f.sack=false"], "flow.f.loss-detection=newreno"),
        (
            &[
                "link.mid.law=xcp",
                "flow.f.law=xcp",
                "flow.f.xcp.cheat={ trick = \"understate-window\" }",
                "link.access.meter={}",
            ],
            "link.access.meter={ tolerance = 0.2, burst = 2, patience = 4, enforce = true }",
        ),
        (
            &["link.mid.law=xcp", "flow.f.law=xcp", "flow.f.xcp.cheat={ trick = \"overstate-rtt\" }"],
            "flow.f.xcp.cheat={ trick = \"overstate-rtt\", factor = 2, from = \"0 s\" }",
        ),
        (xcp, "flow.f.initial-window=2"),
        (
            &["link.mid.law=xcp", "flow.f.law=xcp", "flow.f.encoding=tcp-option"],
            "flow.f={ sack-blocks = 2, feedback = \"split\" }",
        ),
        (
            &[],
            "flow.f.rto={ initial = \"1 s\", min = \"200 ms\", max = \"60 s\", granularity = \"200 ms\", backoff = true, at-repair = false, impatient = false }",
        ),
        (&[], "flow.f.receive-window={ growth = \"whole\", initial = 10 }"),
        (&["flow.f.receive-window.growth=per-packet"], "flow.f.receive-window={ initial = 10, step = 2 }"),
        (
            xcp,
            "flow.f.xcp={ on-loss = \"halve\", advertise-limit = true, pacing = true, request = \"all\", whole-window = true, gain-segment = 1500 }",
        ),
        (
            fcp,
            "link.mid.fcp={ alpha = 2, window = 2, preload-span = \"flow\", unpaid = \"queues\", target = \"0 s\", newton = 0, bound = true }",
        ),
        (fcp, "flow.f.fcp={ budget = 1, initial-packets = 10 }"),
        (
            &["link.mid.law=rcp", "flow.f.law=rcp"],
            "link.mid.rcp={ alpha = 0.4, beta = 0.4, gamma = 1, max-interval = \"10 ms\" }",
        ),
        (&[], "workload.w.start=0 s"),
        (&[], "change.0.direction=both"),
        (&[], "loss.0={ direction = \"forward\", place = \"after\", from = \"0 s\", only = \"all\" }"),
    ];
    for (given, set) in cases {
        let sets: Vec<&str> = given.iter().chain([set]).copied().collect();
        // Keys of a list's member are set one by one.
        let sets: Vec<String> = match set.strip_prefix("loss.0={ ") {
            None => sets.iter().map(|s| (*s).to_owned()).collect(),
            Some(keys) => keys
                .trim_end_matches(" }")
                .split(", ")
                .map(|pair| format!("loss.0.{}", pair.replace(" = ", "=")))
                .collect(),
        };
        let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
        assert_eq!(digests(BASE, given), digests(BASE, &sets), "{set}");
    }
}
