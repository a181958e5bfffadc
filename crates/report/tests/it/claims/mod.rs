//! Claims on synthetic runs: each metric and bound, met and unmet.

use std::path::Path;

use tollway_report::claim::{self, Report, Status};
use tollway_report::grid::Cells;
use tollway_report::html::Page;
use tollway_report::plot::Figure;
use tollway_report::{Experiment, Overview};
use tollway_scenario::file::Scenario;
use tollway_scenario::tables::{
    ControlRow, Ends, FlowRow, FlowSummary, LinkRow, LinkSummary, Outputs, RunResult, TableWriter,
};

mod measures;

use crate::synthetic;

/// Checks one claim with the keys `keys`.
fn verdicts(keys: &str, runs: &[RunResult]) -> Report {
    let text = format!("source = \"a paper\"\n[[claim]]\nid = \"a\"\n{keys}\n");
    let experiment = Experiment::parse(&text, Path::new("tests/x.toml")).unwrap();
    claim::check(&experiment.claims, runs, &experiment.context(vec!["ns2".into()]))
}

fn one(keys: &str, runs: &[RunResult]) -> (Status, String, String) {
    let report = verdicts(keys, runs);
    let c = &report.claims[0];
    (c.status, c.expected.clone(), c.measured.clone())
}

/// Two flows on a link of 10 Mb/s: `f.1` from 0 to 20 s, `f.2` from 10 s on, with 8, then 6 + 3,
/// then 9 Mb/s. Intervals last a second, the window grows by 5 packets per second, and from 12 s to
/// 14 s no data flow.
fn two_flows() -> RunResult {
    let mut w = TableWriter::new(&Outputs::memory()).unwrap();
    for t in 1..=30_u32 {
        let time_s = f64::from(t);
        let still = (13..=14).contains(&t);
        let rates = match t {
            _ if still => [Some(0.0), Some(0.0)],
            1..=10 => [Some(8.0), None],
            11..=20 => [Some(6.0), Some(3.0)],
            _ => [None, Some(9.0)],
        };
        for (flow, rate) in ["f.1", "f.2"].into_iter().zip(rates) {
            let Some(rate_mbps) = rate else { continue };
            let row = FlowRow { time_s, flow, rate_mbps, cwnd_packets: 5.0 * time_s, ..FlowRow::default() };
            w.flow(&FlowRow { retransmissions: u64::from(t == 13), ..row }).unwrap();
        }
        let utilisation = rates.iter().flatten().sum::<f64>() / 10.0;
        let link = LinkRow { time_s, link: "b", utilisation, queue_mean_bytes: 1000.0, ..LinkRow::default() };
        w.link(&LinkRow { drops: u64::from(t == 5), queue_max_bytes: time_s, ..link }).unwrap();
    }
    let f1 = FlowSummary {
        flow: "f.1",
        finish_s: Some(20.0),
        fct_s: Some(20.0),
        size_bytes: Some(1000),
        timeouts: 2,
        ..FlowSummary::default()
    };
    w.flow_summary(&f1).unwrap();
    w.flow_summary(&FlowSummary {
        flow: "f.2",
        start_s: 10.0,
        ideal_mbps: Some(10.0),
        ..FlowSummary::default()
    })
    .unwrap();
    let b = LinkSummary { link: "b", capacity_mbps: 10.0, limit_bytes: Some(4000), ..LinkSummary::default() };
    w.link_summary(&b).unwrap();
    w.finish("").unwrap()
}

#[test]
fn every_metric_measures_what_it_says() {
    let runs = [two_flows()];
    for (keys, measured) in [
        ("metric = \"utilisation\"\nlink = \"b\"\nfrom = \"0 s\"\nuntil = \"10 s\"", "0.8"),
        ("metric = \"utilisation\"\nlink = \"b\"", "0.9"),
        ("metric = \"utilisation\"\nlink = \"b\"\nfrom = \"9.5 s\"\nuntil = \"10.5 s\"", "0.85"),
        ("metric = \"drops\"\nlink = \"b\"", "1"),
        ("metric = \"drops\"\nlink = \"b\"\nfrom = \"5 s\"", "0"),
        ("metric = \"queue-mean-bytes\"\nlink = \"b\"", "1000 B"),
        ("metric = \"queue-mean-of-limit\"\nlink = \"b\"", "0.25"),
        ("metric = \"queue-max-bytes\"\nlink = \"*\"", "30 B"),
        ("metric = \"queue-mean-ms\"\nlink = \"b\"", "0.8 ms"),
        ("metric = \"rate\"\nflow = \"f.2\"", "7 Mb/s"),
        ("metric = \"rate\"\nflows = \"f\"\nfrom = \"15 s\"\nuntil = \"20 s\"\nover = \"max\"", "6 Mb/s"),
        ("metric = \"total-rate\"\nfrom = \"5 s\"\nuntil = \"15 s\"", "6.7 Mb/s"),
        ("metric = \"jain\"\nfrom = \"15 s\"\nuntil = \"20 s\"", "0.9"),
        ("metric = \"share-of-fair\"\nlink = \"b\"\nflow = \"f.1\"\nfrom = \"0 s\"\nuntil = \"10 s\"", "0.8"),
        ("metric = \"share-of-ideal\"\nflow = \"f.2\"", "0.7"),
        ("metric = \"rate-variation\"\nflow = \"f.1\"\nfrom = \"12 s\"\nuntil = \"16 s\"", "1"),
        ("metric = \"cwnd-slope\"\nflow = \"f.2\"", "5 packets/s"),
        ("metric = \"cwnd-max\"\nflow = \"f.1\"", "100 packets"),
        ("metric = \"cwnd-end\"\nflow = \"f.2\"\nuntil = \"25 s\"", "125 packets"),
        ("metric = \"retransmissions\"", "2"),
        ("metric = \"timeouts\"\nflow = \"f.1\"", "2"),
        ("metric = \"fct\"", "20 s"),
        ("metric = \"fct\"\nmax-size = \"1 kB\"", "20 s"),
        ("metric = \"finished\"", "1"),
        ("metric = \"finished\"\nuntil = \"19 s\"", "0"),
        ("metric = \"time-to-reach\"\nlink = \"b\"\nfrom = \"12 s\"\nfraction = 0.85", "3 s"),
        ("metric = \"time-to-reach\"\nflows = \"f.2\"", "11 s"),
    ] {
        let (_, _, found) = one(&format!("{keys}\nequals = 0"), &runs);
        assert_eq!(found, measured, "{keys}");
    }
}

#[test]
fn phases_and_spans_give_a_value_each() {
    let runs = [two_flows()];
    let share = "metric = \"share-of-fair\"\nlink = \"b\"\nphases = true";
    // The last halves of 0–10, 10–20 and 20–30 s: 0.8; 1.2 and 0.6; 0.9.
    let (status, _, measured) = one(&format!("{share}\nwithin = {{ of = 1, percent = 3 }}"), &runs);
    assert_eq!((status, measured.as_str()), (Status::Unmet, "0.6…1.2; tightest f.2 15–20 s: 0.6"));
    let (status, ..) = one(&format!("{share}\nwithin = {{ of = 1, percent = 41 }}"), &runs);
    assert_eq!(status, Status::Met);
    let phases = share.replace("true", "[\"0 s\", \"10 s\"]");
    assert_eq!(one(&format!("{phases}\nequals = 0.8"), &runs).2, "0.8");
    // From 11 s on, with two of nine seconds without data.
    let settled = share.replace("true", "[\"10 s\", \"20 s\"]\nsettle = \"1 s\"\nflow = \"f.1\"");
    assert_eq!(one(&format!("{settled}\nequals = 1"), &runs).2, "0.4667");
    let spans = "metric = \"utilisation\"\nlink = \"b\"\nfrom = \"10 s\"\nuntil = \"20 s\"\nspan = \"5 s\"\nover = \"min\"";
    assert_eq!(one(&format!("{spans}\nat-least = 1"), &runs).2, "0.54");
}

#[test]
fn no_data_is_never_met() {
    let runs = [two_flows()];
    for (keys, reason) in [
        ("metric = \"rate\"\nflow = \"g\"\nat-most = 1", "no flow is called `g`"),
        ("metric = \"utilisation\"\nat-most = 1", "the claim does not name a link"),
        ("metric = \"utilisation\"\nlink = \"c\"\nat-most = 1", "no link is called `c`"),
        (
            "metric = \"utilisation\"\nlink = \"b\"\nfrom = \"60 s\"\nat-most = 1",
            "the run ends at 30 s, before the window",
        ),
        (
            "metric = \"utilisation\"\nlink = \"b\"\nphases = [\"0 s\", \"10 s\", \"40 s\"]\nat-most = 1",
            "a phase ends at 40 s, after the run's or `until`'s 30 s",
        ),
        ("metric = \"rtt\"\nflow = \"f.2\"\nat-most = 1", "no data for f.2"),
        (
            "metric = \"rtt\"\nflow = \"f.2\"\nover = \"max\"\nat-most = 1",
            "no data: the value is not a number",
        ),
        ("metric = \"rate\"\nflow = \"f.1\"\nat-most = 99", "no selected flow is active from 15 s to 30 s"),
        ("metric = \"share-of-ideal\"\nflow = \"f.1\"\nuntil = \"10 s\"\nat-most = 9", "no data for f.1"),
        ("metric = \"table\"\nname = \"t.x\"\nat-most = 1", "the run has no number called `t.x`"),
        ("metric = \"fct\"\nflow = \"f.2\"\nat-most = 1", "no selected flow finished"),
        ("metric = \"fct\"\nmax-size = \"999 B\"\nat-most = 99", "no selected flow finished"),
        (
            "metric = \"time-to-reach\"\nlink = \"b\"\nfraction = 0.95\nat-most = 99",
            "never reaches 0.95 after 0 s",
        ),
        ("metric = \"rate\"\nvariant = \"z\"\nat-most = 99", "variant `z` has not run"),
        (
            "metric = \"drops\"\nlink = \"b\"\nat-least = { link = \"c\" }",
            "nothing to compare with: no link is called `c`",
        ),
    ] {
        let (status, _, measured) = one(keys, &runs);
        assert_eq!((status, measured.as_str()), (Status::Unmet, reason), "{keys}");
    }
    // A bound of NaN is never met either.
    for bound in ["at-most", "at-least", "equals", "less-than", "more-than"] {
        assert_eq!(one(&format!("metric = \"drops\"\nlink = \"b\"\n{bound} = nan"), &runs).0, Status::Unmet);
    }
    let mut nan = two_flows();
    nan.systems.set("t", &[], "x", f64::NAN);
    for bound in
        ["at-most = 1", "at-least = 1", "equals = 1", "less-than = 1", "within = { of = 1, percent = 5 }"]
    {
        assert_eq!(
            one(&format!("metric = \"table\"\nname = \"t.x\"\n{bound}"), &[nan.clone()]).0,
            Status::Unmet
        );
    }
}

#[test]
fn variants_are_held_against_each_other() {
    let runs =
        [synthetic::Kind::Xcp, synthetic::Kind::Fifo, synthetic::Kind::Red].map(|k| synthetic::run(k, 4));
    let smoother = "metric = \"rate-variation\"\nvariant = \"xcp\"\nflows = \"f\"\nfrom = \"32 s\"\nuntil = \"39 s\"\nover = \"mean\"";
    let (status, expected, _) = one(&format!("{smoother}\nless-than = {{ variant = \"fifo\" }}"), &runs);
    assert!(
        status == Status::Met && expected.starts_with("< 0.") && expected.ends_with("(fifo)"),
        "{expected}"
    );
    let (status, ..) = one(&format!("{smoother}\nmore-than = {{ variant = \"fifo\" }}"), &runs);
    assert_eq!(status, Status::Unmet);
    // Of several values the strictest counts. A shift and a factor apply.
    let rate = "metric = \"rate\"\nvariant = \"xcp\"\nflow = \"f.1\"\nfrom = \"32 s\"\nuntil = \"39 s\"";
    let (status, ..) =
        one(&format!("{rate}\nat-least = {{ variant = \"red\", flows = \"f\", plus = 0.5 }}"), &runs);
    assert_eq!(status, Status::Unmet);
    let (status, ..) =
        one(&format!("{rate}\nat-least = {{ variant = \"red\", flows = \"f\", times = 0.5 }}"), &runs);
    assert_eq!(status, Status::Met);
    // A star makes one claim per variant, and stands for the same text on the right side.
    let drops = "metric = \"drops\"\nlink = \"bottleneck\"\nvariant = \"*\"\nequals = { variant = \"*\" }";
    let report = verdicts(drops, &runs);
    assert_eq!(report.claims.iter().map(|c| c.id.as_str()).collect::<Vec<_>>(), ["a.xcp", "a.fifo", "a.red"]);
    assert_eq!(report.met, 3);
}

/// Four runs of a grid, sender × loss, each with its variant's name and a link with the utilisation
/// in `used`.
fn grid(used: [f64; 4]) -> (Experiment, Vec<RunResult>) {
    let scenario = "name = \"g\"\nduration = \"2 s\"\n[node.a]\n[node.b]\n[link.b]\nfrom = \"a\"\nto = \"b\"\n\
        rate = \"1 Mbps\"\n[flow.f]\nfrom = \"a\"\nto = \"b\"\nlaw = \"cubic\"\n\
        [grid.sender.xcp]\n[grid.sender.tcp]\n[grid.loss]\nset = \"link.b.loss\"\nto = [0.001, 0.1]\n";
    let claims = "[[claim]]\nid = \"a.each\"\nmetric = \"utilisation\"\nlink = \"b\"\nwhere = {}\nat-least = 0.5\n\
        [[claim]]\nid = \"a.above\"\nmetric = \"utilisation\"\nlink = \"b\"\nwhere = { sender = \"xcp\" }\n\
        at-least = { where = { sender = \"tcp\" }, plus = -0.01 }\n\
        [[claim]]\nid = \"a.high\"\nmetric = \"utilisation\"\nlink = \"b\"\nwhere = { loss = { at-least = 0.01 } }\n\
        within = { of = { by-variant = { xcp-0.1 = 0.8, \"tcp-0.1\" = 0.6 } }, percent = 5 }\n\
        [[claim]]\nid = \"a.none\"\nmetric = \"utilisation\"\nlink = \"b\"\nwhere = { sender = \"udp\" }\nequals = 1\n\
        [[plot]]\ntitle = \"Use\"\nmetric = \"utilisation\"\nlink = \"b\"\nx = \"loss\"\nseries = \"sender\"\nlog-x = true\n"
        .replace("xcp-0.1 =", "\"xcp-0.1\" =");
    let text = format!("{scenario}{claims}");
    let scenario = Scenario::parse::<&str>("g.toml", &text, &[]).unwrap();
    let mut experiment = Experiment::parse(&text, Path::new("papers/x/g.toml")).unwrap();
    experiment.cells = Cells::of(&scenario);
    let runs = scenario.variants().iter().zip(used).map(|(variant, utilisation)| {
        let mut w = TableWriter::new(&Outputs::memory()).unwrap();
        for time_s in [1.0, 2.0] {
            w.link(&LinkRow { time_s, link: "b", utilisation, ..LinkRow::default() }).unwrap();
        }
        w.finish(&variant.name).unwrap()
    });
    let runs = runs.collect();
    (experiment, runs)
}

#[test]
fn one_claim_speaks_of_a_part_of_the_grid() {
    let (e, runs) = grid([0.9, 0.8, 0.9, 0.6]);
    let report = claim::check(&e.claims, &runs, &e.context(Vec::new()));
    let told: Vec<_> =
        report.claims.iter().map(|c| (c.status, c.expected.as_str(), c.measured.as_str())).collect();
    assert_eq!(
        told,
        [
            (Status::Met, "≥ 0.5", "4 runs: 0.6…0.9; tightest tcp-0.1 b: 0.6"),
            (Status::Met, "≥ 0.89 (tcp-0.001 − 0.01)", "2 runs: 0.8…0.9; tightest xcp-0.001 b: 0.9"),
            (Status::Met, "0.6 ± 5 %", "2 runs: 0.6…0.8; tightest tcp-0.1 b: 0.6"),
            (Status::Unmet, "= 1", "the grid has no variant with udp"),
        ]
    );
    // One run under its bound makes the claim unmet.
    let (e, runs) = grid([0.9, 0.4, 0.9, 0.6]);
    let report = claim::check(&e.claims, &runs, &e.context(Vec::new()));
    assert!(report.claims[..3].iter().all(|c| c.status == Status::Unmet), "{report:?}");
    assert!(report.claims[0].measured.ends_with("tightest xcp-0.1 b: 0.4"), "{report:?}");
    // A missing run is not skipped.
    let report = claim::check(&e.claims, &runs[..3], &e.context(Vec::new()));
    assert_eq!(report.claims[0].measured, "tcp-0.1: variant `tcp-0.1` has not run");
}

#[test]
fn a_claim_may_speak_of_the_mean_over_variants() {
    let (mut e, runs) = grid([0.9, 0.4, 0.9, 0.6]);
    e.claims.iter_mut().for_each(|claim| claim.measurement.mean_of_variants = true);
    let report = claim::check(&e.claims, &runs, &e.context(Vec::new()));
    let told: Vec<_> = report.claims.iter().map(|c| (c.status, c.measured.as_str())).collect();
    assert_eq!(told[0], (Status::Met, "mean of 4 runs: 0.7"));
    // Compared with the first variant's counterpart: 0.9 less 0.01.
    assert_eq!(told[1], (Status::Unmet, "mean of 2 runs: 0.65"));
    assert_eq!(told[3], (Status::Unmet, "the grid has no variant with udp"));
    let report = claim::check(&e.claims, &runs[..3], &e.context(Vec::new()));
    assert_eq!(report.claims[0].measured, "variant `tcp-0.1` has not run");
}

#[test]
fn a_metric_is_drawn_over_an_axis_of_the_grid() {
    let (e, runs) = grid([0.9, 0.8, 0.9, 0.6]);
    let figure = Figure::of_grid("t", "", &e.plots, &runs, &e.cells, &e.aims);
    let html = Page { figure: &figure, runs: &runs, claims: None }.to_html();
    let ours = &html[html.rfind("const plots").unwrap()..];
    for part in ["\"log\":true", "\"x\":[0.001,0.1],\"y\":[0.9,0.6]", "\"name\":\"xcp\"", "\"dotted\":true"] {
        assert!(ours.contains(part), "{part}: {}", &ours[..ours.len().min(3000)]);
    }
    // Without the grid there is nothing to draw.
    assert!(Figure::new("t", "", &e.plots, &runs).is_empty());
}

#[test]
fn slips_about_the_grid_are_named() {
    let wrong = |keys: &str| {
        let text = format!("[grid.loss]\nset = \"a\"\nto = [1]\n{keys}\n");
        let error = Experiment::parse(&text, Path::new("x.toml")).unwrap_err();
        format!("{error}; {}", miette::Diagnostic::help(&error).map_or(String::new(), |h| h.to_string()))
    };
    let claim = "[[claim]]\nid = \"a\"\nmetric = \"drops\"\nlink = \"b\"";
    assert!(wrong(&format!("{claim}\nequals = 1\nwhere = {{ los = 1 }}")).contains("did you mean `loss`?"));
    assert!(
        wrong(&format!("{claim}\nequals = {{ where = {{ x = 1 }} }}"))
            .contains("no axis `x`; there is `loss`")
    );
    assert!(
        wrong(&format!("{claim}\nequals = {{ by-variant = {{ a = \"1\" }} }}"))
            .contains("must have a number for each")
    );
    assert!(
        wrong(&format!("{claim}\nequals = {{ by-variant = {{ a = 1 }}, times = 2 }}"))
            .contains("and no other key")
    );
    let plot = "[[plot]]\ntitle = \"a\"";
    assert!(wrong(&format!("{plot}\nmetric = \"drops\"\nlink = \"b\"")).contains("name it in `x`"));
    assert!(wrong(&format!("{plot}\nmetric = \"drops\"\nx = \"los\"")).contains("did you mean `loss`?"));
    assert!(wrong(&format!("{plot}\nmetric = \"drops\"\nx = \"loss\"\ny = \"drops\"")).contains("not both"));
    assert!(wrong(plot).contains("needs a `y`"));
    assert!(
        wrong(&format!("{plot}\ny = \"drops\"\nlink = \"b\"\nx = \"loss\""))
            .contains("has time as its x axis")
    );
}

#[test]
fn a_missing_peer_skips_and_json_is_as_promised() {
    let keys = "metric = \"drops\"\nlink = \"b\"\nneeds = \"ns2\"\nequals = 0";
    let report = verdicts(keys, &[two_flows()]);
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    let claim = serde_json::json!({"id": "a", "status": "skipped", "expected": "= 0",
        "measured": "needs ns2, which is not installed", "source": "a paper", "reading": null, "neighbourhood": null});
    assert_eq!(
        json,
        serde_json::json!({"claims": [claim], "met": 0, "fragile": 0, "unmet": 0, "skipped": 1})
    );
}

#[test]
fn a_reference_series_is_compared_window_by_window() {
    let dir = std::env::temp_dir().join(format!("tollway-reference-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let mut csv = String::from("time_s,f.1_mbps,f.2_mbps\n");
    for t in 1..=60_u32 {
        // Half a second per row; f.1 with 5 % less than ours, f.2 far off in the four seconds after
        // its start.
        let (time, second) = (f64::from(t) / 2.0, t.div_ceil(2));
        let f1 = match second {
            13..=14 => 0.0,
            1..=10 => 7.6,
            11..=20 => 5.7,
            _ => 0.0,
        };
        let f2 = match second {
            13..=14 | 1..=10 => 0.0,
            11..=12 => 0.1,
            15..=20 => 3.0,
            _ => 9.0,
        };
        csv.push_str(&format!("{time},{f1},{f2}\n"));
    }
    std::fs::write(dir.join("ns2.csv"), csv).unwrap();
    let check = |skip: &str| {
        let text = format!(
            "[[claim]]\nid = \"a\"\nmetric = \"series-deviation\"\nreference = \"ns2.csv\"\nspan = \"2 s\"\n\
             skip-after-start = \"{skip}\"\nat-most = 0.1\n"
        );
        let e = Experiment::parse(&text, &dir.join("x.toml")).unwrap();
        claim::check(&e.claims, &[two_flows()], &e.context(Vec::new())).claims[0].clone()
    };
    let good = check("5 s");
    assert_eq!(good.status, Status::Met, "{good:?}");
    assert!(good.measured.contains("0.05263"), "{good:?}");
    assert_eq!(check("0 s").status, Status::Unmet);
    let _ = std::fs::remove_dir_all(&dir);
}

#[test]
fn the_overview_fits_and_groups() {
    let runs =
        [synthetic::Kind::Xcp, synthetic::Kind::Fifo, synthetic::Kind::Red].map(|k| synthetic::run(k, 4));
    let text = Overview::new(&runs).to_text(100);
    assert!(text.lines().all(|l| l.chars().count() <= 100), "{text}");
    assert!(text.contains("f.4") && text.contains("fifo") && !text.contains("reverse"), "{text}");
    let text = Overview::new(&[synthetic::run(synthetic::Kind::Xcp, 40)]).to_text(100);
    assert!(text.contains("f median") && !text.contains("f.4"), "{text}");
}

#[test]
fn the_overview_has_the_tables_of_systems() {
    let mut runs = [synthetic::Kind::Xcp, synthetic::Kind::Fifo].map(|k| synthetic::run(k, 2));
    for hop in 0..20 {
        runs[1].systems.set("hops", &[("hop", &format!("h{hop:02}"))], "price", 0.25);
    }
    runs[0].systems.set("hops", &[("hop", "h00")], "messages", 7.0);
    runs[0].systems.set("deadlines", &[], "refused", 3.0);
    let text = Overview::new(&runs).to_text(100);
    let row: Vec<&str> =
        text.lines().find(|line| line.starts_with("h00")).unwrap_or_default().split_whitespace().collect();
    // Messages and price of each run.
    assert_eq!(row, ["h00", "7", "–", "–", "0.2500"], "{text}");
    assert!(text.lines().any(|line| line.split_whitespace().eq(["all", "3", "–"])), "{text}");
    assert!(text.contains("h11") && !text.contains("h12") && text.contains("8 more rows"), "{text}");
}

#[test]
fn near_another_run_means_each_flow_near_its_namesake() {
    let rates = |variant: &str, first: f64, second: f64| {
        let mut w = TableWriter::new(&Outputs::memory()).unwrap();
        for time_s in [1.0, 2.0] {
            for (flow, rate_mbps) in [("f.1", first), ("f.2", second)] {
                w.flow(&FlowRow { time_s, flow, rate_mbps, ..FlowRow::default() }).unwrap();
            }
        }
        for flow in ["f.1", "f.2"] {
            w.flow_summary(&FlowSummary { flow, law: "xcp", ..FlowSummary::default() }).unwrap();
        }
        w.finish(variant).unwrap()
    };
    let claim = "metric = \"rate\"\nvariant = \"a\"\nwithin = { of = { variant = \"b\" }, percent = 1 }";
    let (status, expected, _) = one(claim, &[rates("a", 2.0, 8.0), rates("b", 2.01, 8.05)]);
    assert_eq!((status, expected.as_str()), (Status::Met, "b ± 1 %"));
    // The same two rates, exchanged.
    let (status, ..) = one(claim, &[rates("a", 2.0, 8.0), rates("b", 8.0, 2.0)]);
    assert_eq!(status, Status::Unmet);
}

#[test]
fn the_first_control_interval_of_a_window_can_be_asked_for() {
    let mut w = TableWriter::new(&Outputs::memory()).unwrap();
    w.link(&LinkRow { time_s: 4.0, link: "b", ..LinkRow::default() }).unwrap();
    for (i, feedback_packets) in [0.1, 0.2, 0.3, 0.4].into_iter().enumerate() {
        let time_s = 0.7 + i as f64;
        let row =
            ControlRow { time_s, link: "b", interval_ms: 1000.0, feedback_packets, ..ControlRow::default() };
        w.control(&row).unwrap();
    }
    let runs = [w.finish("").unwrap()];
    // The intervals begin at -0.3, 0.7, 1.7 and 2.7 s.
    let first = "metric = \"packet-feedback\"\nlink = \"b\"\nfrom = \"1 s\"\nover = \"first\"\nequals = 0.3";
    let (status, _, measured) = one(first, &runs);
    assert_eq!((status, measured.as_str()), (Status::Met, "0.3 packets"));
    let (status, _, measured) = one(&first.replace("1 s", "3 s"), &runs);
    assert_eq!(status, Status::Unmet);
    assert!(measured.contains("no interval began"), "{measured}");
}

#[test]
fn the_manual_has_every_metric() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/experiments.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("the chapter marks where the table begins");
    let (table, after) = rest.split_once(END).expect("and where it ends");
    let now = format!("\n\n{}\n", tollway_report::claim::metrics_markdown());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{now}{END}{after}")).unwrap();
        return;
    }
    assert!(
        table == now,
        "{} is out of date: run `UPDATE_DOCS=1 cargo test -p tollway-report manual`",
        path.display()
    );
}

const BEGIN: &str = "<!-- metrics: written by `metrics_markdown()` in `crates/report`; do not edit -->";
const END: &str = "<!-- end of metrics -->";
