//! Networks with several equal routes, and flows with `after`.

use std::path::Path;

use tollway_scenario::plan::Plan;
use tollway_scenario::run::{Capture, DigestMode, EngineKind, Finished, Options, RunError, run};
use tollway_scenario::tables::Outputs;

use super::scenes::{names, numbers};
use super::{finish, parse};

/// Two leaves under four spines; two hosts at one leaf send to two at the other.
fn fabric(flows: &str, sets: &[&str]) -> Plan {
    let text = format!(
        "name = \"fabric\"\nduration = \"400 ms\"\nmeasure.interval = \"10 ms\"\n\
         [topology.leaf-spine]\nleaves = 2\nspines = 4\nhosts = 4\nrate = \"100 Mbps\"\ndelay = \"50 us\"\n\
         [topology.link]\nlimit = \"60 packets\"\n{flows}"
    );
    parse(&text, sets).variants()[0].plan.clone()
}

const PAIRS: &str = "[flow.a]\nfrom = \"host.1\"\nto = \"host.5\"\nlaw = \"cubic\"\nloss-detection = \"rack\"\n\
                     [flow.b]\nfrom = \"host.2\"\nto = \"host.6\"\nlaw = \"cubic\"\nloss-detection = \"rack\"\n";

/// The utilisation of the link from each spine to the second leaf.
fn by_spine(finished: &Finished) -> [f64; 4] {
    let summary = &finished.result.link_summary;
    let (links, used) = (names(summary, "link"), numbers(summary, "utilisation"));
    [1, 2, 3, 4].map(|spine| {
        let name = format!("leaf-2-spine-{spine}.reverse");
        used[links.iter().position(|link| *link == name).expect("it has a row")].expect("a number")
    })
}

#[test]
fn packets_are_divided_among_spines() {
    let of = |sets: &[&str]| by_spine(&finish(&fabric(PAIRS, sets), DigestMode::Results));
    // By default both flows together get only the rate of the one link that all routes share.
    let first = of(&[]);
    assert!(first[0] > 0.9 && first[1..] == [0.0; 3], "{first:?}");
    // With a route for each packet, every spine carries a quarter of the two hosts' 200 Mb/s.
    let spray = of(&["routing.equal-cost=spray"]);
    assert!(spray.iter().all(|used| (0.4..0.55).contains(used)), "{spray:?}");
    // A flowlet gap that never occurs leaves each flow on one route; a frequent gap divides it.
    let whole = of(&["routing.equal-cost=flowlet", "routing.flowlet-gap=1 s"]);
    assert!(whole.iter().filter(|used| **used > 0.0).count() <= 2, "{whole:?}");
    let parts = of(&["routing.equal-cost=flowlet", "routing.flowlet-gap=20 us"]);
    assert!(parts.iter().all(|used| *used > 0.1), "{parts:?}");
    // Sixteen flows of one pair, by hash.
    let ecmp = of(&["routing.equal-cost=ecmp", "flow.a.count=16"]);
    assert!(ecmp.iter().all(|used| *used > 0.02), "{ecmp:?}");
}

#[test]
fn divided_packets_are_the_same_for_a_seed() {
    for set in ["routing.equal-cost=ecmp", "routing.equal-cost=spray", "routing.equal-cost=flowlet"] {
        let web = "[workload.w]\nbetween = \"host\"\nlaw = \"cubic\"\narrivals = { poisson = 400 }\nsizes = \"20 kB\"\n";
        let of = |more: &[&str]| {
            let sets: Vec<&str> = [&[set], more].concat();
            finish(&fabric(&format!("{PAIRS}{web}"), &sets), DigestMode::Packets).run
        };
        let (one, other) = (of(&[]), of(&["seed=2"]));
        assert!(one.finished > 100, "{}", one.finished);
        assert_eq!(one.digest, of(&[]).digest, "{set}");
        assert_ne!(one.digest, other.digest, "{set}");
    }
}

/// A capture records each packet on its route, and does not change the run.
#[test]
fn divided_packets_are_captured() {
    let plan = fabric(PAIRS, &["routing.equal-cost=spray", "duration=50 ms"]);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("captures/spray.pcapng");
    let options = Options {
        outputs: Outputs::memory(),
        digest: DigestMode::Packets,
        capture: Some(Capture::new(path.clone())),
        ..Options::default()
    };
    let captured = run(&plan, &options).expect("it runs");
    assert_eq!(captured.run.digest, finish(&plan, DigestMode::Packets).run.digest);
    assert!(std::fs::metadata(&path).expect("the capture").len() > 100_000);
}

/// A ring of requests and answers, a barrier, and a flow that never starts.
const CHAIN: &str = "[flow.ask]\nfrom = \"host.1\"\nto = \"host.5\"\nlaw = \"cubic\"\nsize = \"200 kB\"\ncount = 3\n\
    start = { first = \"0 s\", last = \"20 ms\" }\n\
    [flow.answer]\nfrom = \"host.5\"\nto = \"host.1\"\nlaw = \"cubic\"\nsize = \"50 kB\"\ncount = 3\nafter = \"ask\"\nstart = \"3 ms\"\n\
    [flow.last]\nfrom = \"host.2\"\nto = \"host.6\"\nlaw = \"cubic\"\nsize = \"10 kB\"\nafter = \"answer\"\nboth-ways = true\n\
    [flow.priced]\nfrom = \"host.3\"\nto = \"host.7\"\nlaw = \"newreno\"\nsize = \"10 kB\"\nafter = \"last\"\n\
    [flow.long]\nfrom = \"host.4\"\nto = \"host.8\"\nlaw = \"cubic\"\nsize = \"1 GB\"\n\
    [flow.never]\nfrom = \"host.3\"\nto = \"host.7\"\nlaw = \"cubic\"\nafter = \"long\"\n";

#[test]
fn flows_start_as_others_end() {
    let finished = finish(&fabric(CHAIN, &["duration=2 s"]), DigestMode::Packets);
    let summary = &finished.result.summary;
    let flows = names(summary, "flow");
    let of = |flow: &str, column: &str| {
        let row = flows.iter().position(|name| name == flow).expect("it has a row");
        numbers(summary, column)[row]
    };
    let [start, finish_of] =
        ["start_s", "finish_s"].map(|column| move |flow: &str| of(flow, column).unwrap_or(f64::NAN));
    for k in 1..=3 {
        let (asked, answered) = (finish_of(&format!("ask.{k}")), start(&format!("answer.{k}")));
        assert!((answered - asked - 0.003).abs() < 1e-9, "{k}: {asked} {answered}");
        let took = finish_of(&format!("answer.{k}")) - answered;
        assert!((of(&format!("answer.{k}"), "fct_s").unwrap() - took).abs() < 1e-9);
    }
    let latest = (1..=3).map(|k| finish_of(&format!("answer.{k}"))).fold(0.0, f64::max);
    assert!((start("last") - latest).abs() < 1e-9, "{latest}");
    // Both ends have finished.
    let ends = finish_of("last").max(finish_of("last.reverse"));
    assert!((start("priced") - ends).abs() < 1e-9, "{ends}");
    assert!((start("never") - 2.0).abs() < 1e-9 && of("never", "delivered_bytes") == Some(0.0));
    // The start of flows does not depend on the measurement interval.
    let other = finish(&fabric(CHAIN, &["duration=2 s", "measure.interval=none"]), DigestMode::Packets);
    assert_eq!(other.run.digest, finished.run.digest);
}

#[test]
fn budgets_are_spent_by_flows_that_waited() {
    let text = CHAIN.replace("law = \"newreno\"", "law = \"fcp\"");
    let finished = finish(&fabric(&text, &["duration=2 s", "link.*.law=fcp"]), DigestMode::Results);
    let summary = &finished.result.summary;
    let row = names(summary, "flow").iter().position(|name| name == "priced").expect("it has a row");
    assert_eq!(numbers(summary, "delivered_bytes")[row], Some(10_000.0));
}

#[test]
fn the_live_engine_refuses_what_it_cannot_divide() {
    for (flows, set, key) in [
        (PAIRS, "routing.equal-cost=spray", "routing.equal-cost"),
        (CHAIN, "routing.equal-cost=ecmp", "flow.answer.after"),
    ] {
        let options = Options { engine: EngineKind::Live, ..Options::default() };
        let error = run(&fabric(flows, &[set]), &options).unwrap_err();
        let RunError::Unsupported(error) = error else { panic!("{error}") };
        assert_eq!(error.key, key);
    }
}
