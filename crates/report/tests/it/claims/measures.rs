//! The values of each metric in a run, and the right sides of bounds.

use super::*;

/// A flow `f.1` with a row per second from 1 s on, made by `row` from the second.
fn one_flow(seconds: u32, row: impl Fn(f64) -> FlowRow<'static>) -> [RunResult; 1] {
    let mut w = TableWriter::new(&Outputs::memory()).unwrap();
    for t in 1..=seconds {
        let time_s = f64::from(t);
        w.flow(&FlowRow { time_s, flow: "f.1", ..row(time_s) }).unwrap();
    }
    w.flow_summary(&FlowSummary { flow: "f.1", ..FlowSummary::default() }).unwrap();
    [w.finish("").unwrap()]
}

/// The measured value with `keys`, in print.
fn measured(keys: &str, runs: &[RunResult]) -> String {
    one(&format!("{keys}\nequals = 0"), runs).2
}

#[test]
fn each_metric_reads_a_column_of_its_own() {
    let mut w = TableWriter::new(&Outputs::memory()).unwrap();
    for (time_s, k) in [(1.0, 1.0), (2.0, 3.0)] {
        let flow = FlowRow {
            rate_mbps: 10.0 * k,
            goodput_mbps: 20.0 * k,
            cwnd_packets: 30.0 * k,
            ..FlowRow::default()
        };
        w.flow(&FlowRow { time_s, flow: "f.1", rtt_ms: Some(40.0 * k), retransmissions: 5, ..flow }).unwrap();
        let queue = LinkRow { queue_mean_bytes: 50.0 * k, queue_max_bytes: 60.0 * k, ..LinkRow::default() };
        let queue = LinkRow { queue_mean_packets: 70.0 * k, queue_max_packets: 80.0 * k, ..queue };
        w.link(&LinkRow { time_s, link: "b", utilisation: 0.1 * k, drops: 3, marks: 4, ..queue }).unwrap();
    }
    w.flow_summary(&FlowSummary { flow: "f.1", ..FlowSummary::default() }).unwrap();
    w.link_summary(&LinkSummary { link: "b", limit_bytes: Some(1000), ..LinkSummary::default() }).unwrap();
    let runs = [w.finish("").unwrap()];
    for (metric, found) in [
        ("rate", "20 Mb/s"),
        ("goodput", "40 Mb/s"),
        ("total-rate", "20 Mb/s"),
        ("total-goodput", "40 Mb/s"),
        ("cwnd", "60 packets"),
        ("cwnd-max", "90 packets"),
        ("rtt", "80 ms"),
        ("rtt-max", "120 ms"),
        ("retransmissions", "10"),
        ("utilisation", "0.2"),
        ("drops", "6"),
        ("marks", "8"),
        ("queue-mean-bytes", "100 B"),
        ("queue-max-bytes", "180 B"),
        ("queue-mean-packets", "140 packets"),
        ("queue-max-packets", "240 packets"),
        ("queue-mean-of-limit", "0.1"),
        ("queue-max-of-limit", "0.18"),
    ] {
        assert_eq!(
            measured(&format!("metric = \"{metric}\"\nlink = \"b\"\nfrom = \"0 s\""), &runs),
            found,
            "{metric}"
        );
    }
}

#[test]
fn a_queue_of_no_known_limit_has_no_part_of_it() {
    for limit_bytes in [None, Some(0)] {
        let mut w = TableWriter::new(&Outputs::memory()).unwrap();
        w.link(&LinkRow { time_s: 1.0, link: "b", queue_mean_bytes: 5.0, ..LinkRow::default() }).unwrap();
        w.link_summary(&LinkSummary { link: "b", limit_bytes, ..LinkSummary::default() }).unwrap();
        let runs = [w.finish("").unwrap()];
        for bound in ["at-least = 0", "at-most = 1"] {
            let (status, _, found) = one(
                &format!("metric = \"queue-mean-of-limit\"\nlink = \"b\"\nfrom = \"0 s\"\n{bound}"),
                &runs,
            );
            assert_eq!((status, found.as_str()), (Status::Unmet, "link `b` has no limit_bytes"));
        }
    }
}

#[test]
fn at_its_bound_a_value_keeps_the_relations_that_are_not_strict() {
    let runs = [two_flows()];
    for (bound, status) in [
        ("at-least = 1", Status::Met),
        ("at-most = 1", Status::Met),
        ("equals = 1", Status::Met),
        ("within = { of = 2, percent = 50 }", Status::Met),
        ("more-than = 1", Status::Unmet),
        ("less-than = 1", Status::Unmet),
    ] {
        assert_eq!(one(&format!("metric = \"drops\"\nlink = \"b\"\n{bound}"), &runs).0, status, "{bound}");
    }
    // Of two bounds both must be met, and both are printed.
    let (status, expected, _) = one("metric = \"drops\"\nlink = \"b\"\nat-least = 0\nat-most = 0.5", &runs);
    assert_eq!((status, expected.as_str()), (Status::Unmet, "≥ 0 and ≤ 0.5"));
}

#[test]
fn a_window_is_cut_into_whole_pieces_from_its_start() {
    let runs = [two_flows()];
    let cut = |from: u32, until: u32, span: &str| {
        let keys = format!("from = \"{from} s\"\nuntil = \"{until} s\"\nspan = \"{span}\"");
        measured(&format!("metric = \"utilisation\"\nlink = \"b\"\n{keys}"), &runs)
    };
    assert_eq!(cut(6, 14, "4 s"), "0.45…0.8; tightest b 6–10 s: 0.8");
    assert_eq!(cut(6, 13, "4 s"), "0.8", "the second piece is not whole");
    assert_eq!(cut(10, 12, "5 s"), "0.9", "the only one need not be");
    assert_eq!(cut(6, 14, "0 s"), "0.625", "nothing is cut");
}

#[test]
fn phases_outside_of_the_window_are_left_out() {
    let runs = [two_flows()];
    let phases = |keys: &str| {
        measured(&format!("metric = \"utilisation\"\nlink = \"b\"\nphases = true\n{keys}"), &runs)
    };
    assert_eq!(phases(""), "0.8…0.9; tightest b 15–20 s: 0.9");
    // The windows are 5–10, 15–20 and 25–30 s.
    assert_eq!(phases("until = \"10 s\""), "0.8");
    assert_eq!(phases("from = \"5 s\"\nuntil = \"10 s\""), "0.8");
    assert_eq!(phases("from = \"6 s\"\nuntil = \"20 s\""), "0.9");
    assert_eq!(phases("from = \"26 s\""), "the run has no phase to measure in");
}

#[test]
fn a_period_is_from_one_crossing_of_the_median_to_the_next() {
    // Two seconds at 20 each from 8, 13 and 16 s on, in a run otherwise at 4.
    let window = |t: f64| if [8.0, 9.0, 13.0, 14.0, 16.0, 17.0].contains(&t) { 20.0 } else { 4.0 };
    let up = one_flow(25, |t| FlowRow {
        cwnd_packets: window(t),
        pacing_mbps: Some(1.0 / window(t)),
        ..FlowRow::default()
    });
    let period = |metric: &str, fraction: &str, more: &str| {
        measured(&format!("metric = \"{metric}\"\nfraction = {fraction}\nfrom = \"0 s\"\n{more}"), &up)
    };
    assert_eq!(period("cwnd-period", "2", ""), "3…5 s; tightest f.1 8.00 s: 5");
    assert_eq!(period("cwnd-period", "2", "over = \"first\""), "5 s");
    // With a fraction below 1, falls count.
    assert_eq!(period("pacing-period", "0.5", "over = \"mean\""), "4 s");
    assert_eq!(period("cwnd-period", "5", ""), "cwnd_packets does not cross 5 of its median twice");
    assert_eq!(period("cwnd-period", "2", "until = \"15 s\""), "5 s");
    assert_eq!(
        period("cwnd-period", "2", "until = \"12 s\""),
        "cwnd_packets does not cross 2 of its median twice"
    );
}

#[test]
fn steadiness_is_the_part_of_moving_means_near_the_aim() {
    let runs = [two_flows()];
    let steady = |from: u32, keys: &str| {
        measured(
            &format!("metric = \"steady-part\"\nflow = \"f.2\"\nspan = \"2 s\"\nfrom = \"{from} s\"\n{keys}"),
            &runs,
        )
    };
    assert_eq!(steady(20, "fraction = 0.1\ncapacity = \"9 Mbps\""), "1");
    // From 18 s on the means are 3, 6 and nine times 9 Mb/s; the overall mean is 8.
    assert_eq!(steady(18, "fraction = 0.1\ncapacity = \"9 Mbps\""), "0.8182");
    assert_eq!(steady(18, "fraction = 0.2"), "0.8182");
    assert_eq!(steady(18, "fraction = 0.26"), "0.9091");
    assert_eq!(steady(18, "fraction = 0.1\ncapacity = \"3 Mbps\""), "0.09091");
    let bare = "metric = \"steady-part\"\nflow = \"f.2\"\nfrom = \"20 s\"";
    assert_eq!(
        measured(&format!("{bare}\nfraction = 0.1\nspan = \"0 s\""), &runs),
        "the claim has no `span` for `steady-part`"
    );
    assert_eq!(measured(&format!("{bare}\nspan = \"1 s\""), &runs), "the claim has no `fraction`");
}

#[test]
fn a_price_swings_up_or_down_within_a_span() {
    let swing = |prices: [f64; 6], span: u32| {
        let runs = one_flow(6, |t| FlowRow { price: Some(prices[t as usize - 1]), ..FlowRow::default() });
        measured(&format!("metric = \"price-swing\"\nfrom = \"0 s\"\nspan = \"{span} s\""), &runs)
    };
    let up = [1.0, 2.0, 4.0, 8.0, 8.0, 8.0];
    assert_eq!([swing(up, 1), swing(up, 2), swing(up, 3)], ["2", "4", "8"]);
    let mut down = up;
    down.reverse();
    assert_eq!([swing(down, 1), swing(down, 2), swing(down, 3)], ["2", "4", "8"]);
}

#[test]
fn what_is_reached_is_a_moving_mean_where_a_span_is_given() {
    let runs = [two_flows()];
    let reach = |keys: &str| measured(&format!("metric = \"time-to-reach\"\n{keys}"), &runs);
    // Utilisation falls to zero from 12 to 14 s, so the mean over four seconds recovers only at 18
    // s.
    let link = "link = \"b\"\nfraction = 0.85\nfrom = \"11 s\"";
    assert_eq!(reach(link), "1 s");
    assert_eq!(reach(&format!("{link}\nspan = \"4 s\"")), "7 s");
    assert_eq!(reach(&format!("{link}\nspan = \"4 s\"\nuntil = \"17 s\"")), "never reaches 0.85 after 11 s");
    // The sum of flows, over a capacity.
    assert_eq!(reach("flows = \"f.2\"\ncapacity = \"10 Mbps\"\nfraction = 0.9"), "21 s");
    assert_eq!(reach("flows = \"f\"\ncapacity = \"10 Mbps\"\nfraction = 0.9"), "11 s");
}

#[test]
fn times_to_finish_are_of_flows_that_start_in_the_window_and_are_small_enough() {
    let mut w = TableWriter::new(&Outputs::memory()).unwrap();
    w.flow(&FlowRow { time_s: 30.0, flow: "f.1", ..FlowRow::default() }).unwrap();
    for (flow, start_s, size, fct_s) in [
        ("f.1", 1.0, 10, Some(2.0)),
        ("f.2", 5.0, 20, Some(4.0)),
        ("f.3", 9.0, 30, Some(8.0)),
        ("f.4", 9.0, 10, None),
    ] {
        let of = FlowSummary { flow, start_s, size_bytes: Some(size), fct_s, ..FlowSummary::default() };
        w.flow_summary(&of).unwrap();
    }
    let runs = [w.finish("").unwrap()];
    let fct = |keys: &str| measured(&format!("metric = \"fct\"\nover = \"sum\"\n{keys}"), &runs);
    assert_eq!(fct(""), "14 s");
    assert_eq!(fct("from = \"5 s\""), "12 s");
    assert_eq!(fct("until = \"5 s\""), "6 s");
    assert_eq!(fct("from = \"2 s\"\nuntil = \"8 s\""), "4 s");
    assert_eq!(fct("max-size = \"20 B\""), "6 s");
    assert_eq!(measured("metric = \"finished\"", &runs), "3");
}

#[test]
fn the_least_and_the_greatest_of_several_hide_no_gap() {
    let three = |rtts: [Option<f64>; 3]| {
        let mut w = TableWriter::new(&Outputs::memory()).unwrap();
        for (flow, rtt_ms) in ["f.1", "f.2", "f.3"].into_iter().zip(rtts) {
            w.flow(&FlowRow { time_s: 1.0, flow, rtt_ms, ..FlowRow::default() }).unwrap();
            w.flow_summary(&FlowSummary { flow, ..FlowSummary::default() }).unwrap();
        }
        [w.finish("").unwrap()]
    };
    let over = |over: &str, rtts: [Option<f64>; 3]| {
        measured(&format!("metric = \"rtt\"\nfrom = \"0 s\"\nover = \"{over}\""), &three(rtts))
    };
    assert_eq!(over("min", [Some(5.0), Some(3.0), Some(4.0)]), "3 ms");
    assert_eq!(over("max", [Some(3.0), Some(5.0), Some(4.0)]), "5 ms");
    assert_eq!(over("mean", [Some(3.0), Some(5.0), Some(4.0)]), "4 ms");
    for gap in 0..3 {
        let rtts = [0, 1, 2].map(|i| (i != gap).then_some(4.0));
        for of in ["min", "max", "mean", "sum"] {
            assert_eq!(over(of, rtts), "no data: the value is not a number", "{of}, {gap}");
        }
    }
}

#[test]
fn a_bound_says_what_it_is_made_of() {
    let mut run = two_flows();
    run.systems.set("t", &[], "x", 6.0);
    run.systems.set("t", &[], "y", 2.0);
    let expected =
        |bound: &str| one(&format!("metric = \"table\"\nname = \"t.x\"\n{bound}"), &[run.clone()]).1;
    assert_eq!(expected("at-least = { name = \"t.y\" }"), "≥ 2 (t.y)");
    assert_eq!(expected("at-least = { name = \"t.y\", times = 3, plus = 0.5 }"), "≥ 6.5 (3 × t.y + 0.5)");
    assert_eq!(expected("at-most = { name = \"t.y\", plus = -0.5 }"), "≤ 1.5 (t.y − 0.5)");
    let drops = "metric = \"drops\"\nlink = \"b\"";
    assert_eq!(
        one(&format!("{drops}\nat-most = {{ metric = \"marks\" }}"), &[run.clone()]).1,
        "≤ 0 (its own marks)"
    );
    // Values of another run.
    let other = RunResult { variant: "other".into(), ..run.clone() };
    let this = RunResult { variant: "this".into(), ..run };
    let of_other = |keys: &str, bound: &str| {
        one(&format!("{keys}\nvariant = \"this\"\n{bound}"), &[this.clone(), other.clone()]).1
    };
    let x = "metric = \"table\"\nname = \"t.x\"";
    assert_eq!(of_other(x, "at-least = { variant = \"other\", name = \"t.y\" }"), "≥ 2 (other's t.y)");
    assert_eq!(
        of_other(drops, "at-most = { variant = \"other\", metric = \"marks\" }"),
        "≤ 0 (other's marks)"
    );
}

#[test]
fn who_names_no_variant_of_several_or_one_that_there_is_not_is_told() {
    let runs = ["a", "b"].map(|variant| RunResult { variant: variant.into(), ..two_flows() });
    let drops = "metric = \"drops\"\nlink = \"b\"";
    assert_eq!(measured(drops, &runs), "there are several variants, and the claim does not name one");
    assert_eq!(measured(&format!("{drops}\nvariant = \"c*\""), &runs), "variant `c*` has not run");
    assert_eq!(measured(&format!("{drops}\nvariant = \"b\""), &runs), "1");
}

#[test]
fn a_flow_without_a_namesake_is_held_against_nothing() {
    let rates = |variant: &str, flows: &[&'static str]| {
        let mut w = TableWriter::new(&Outputs::memory()).unwrap();
        for &flow in flows {
            w.flow(&FlowRow { time_s: 1.0, flow, rate_mbps: 2.0, ..FlowRow::default() }).unwrap();
            w.flow_summary(&FlowSummary { flow, ..FlowSummary::default() }).unwrap();
        }
        w.finish(variant).unwrap()
    };
    let runs = [rates("a", &["f.1", "f.2", "f.3"]), rates("b", &["f.1", "f.3"])];
    let claim = "metric = \"rate\"\nvariant = \"a\"\nfrom = \"0 s\"\nwithin = { of = { variant = \"b\" }, percent = 1 }";
    let (status, _, found) = one(claim, &runs);
    assert_eq!((status, found.as_str()), (Status::Unmet, "nothing to compare f.2 with"));
}

#[test]
fn a_cell_of_the_grid_can_be_held_against_itself() {
    let (mut e, runs) = grid([0.9, 0.8, 0.9, 0.6]);
    let text = "[grid.sender.xcp]\n[grid.sender.tcp]\n[grid.loss]\nset = \"link.b.loss\"\nto = [0.001, 0.1]\n\
        [[claim]]\nid = \"a\"\nmetric = \"utilisation\"\nlink = \"b\"\nwhere = { sender = \"tcp\" }\n\
        at-least = { times = 0.5 }\n\
        [[claim]]\nid = \"b\"\nmetric = \"utilisation\"\nlink = \"b\"\nwhere = {}\n\
        at-least = { where = { loss = 0.01 } }\n";
    e.claims = Experiment::parse(text, Path::new("papers/x/g.toml")).unwrap().claims;
    let report = claim::check(&e.claims, &runs, &e.context(Vec::new()));
    let own = &report.claims[0];
    assert_eq!(
        (own.status, own.measured.as_str()),
        (Status::Met, "2 runs: 0.6…0.9; tightest tcp-0.1 b: 0.6")
    );
    assert_eq!(own.expected, "≥ 0.3 (0.5 × its own)");
    assert_eq!(report.claims[1].measured, "the grid has no counterpart of `xcp-0.001` with 0.01");
}

#[test]
fn control_intervals_of_other_links_or_after_the_window_do_not_count() {
    let mut w = TableWriter::new(&Outputs::memory()).unwrap();
    w.link(&LinkRow { time_s: 9.0, link: "b", ..LinkRow::default() }).unwrap();
    for time_s in [1.0, 2.0, 3.0, 4.0] {
        for (link, scale) in [("b", 1.0), ("c", 100.0)] {
            let row = ControlRow {
                link,
                interval_ms: 1000.0,
                feedback_packets: scale * time_s,
                ..ControlRow::default()
            };
            w.control(&ControlRow { time_s, ..row }).unwrap();
        }
    }
    let runs = [w.finish("").unwrap()];
    // The intervals of `b` that begin at 1 and at 2 s.
    let sum = "metric = \"packet-feedback\"\nlink = \"b\"\nfrom = \"1 s\"\nuntil = \"3 s\"\nover = \"sum\"";
    assert_eq!(measured(sum, &runs), "5 packets");
}

/// A run with a number named `x`.
fn with_x(variant: &str, x: f64) -> RunResult {
    let mut run = RunResult { variant: variant.into(), ..two_flows() };
    run.systems.set("t", &[], "x", x);
    run
}

#[test]
fn a_distance_is_part_of_the_middles_size_or_stands_for_itself() {
    let held = |x: f64, bound: &str| {
        one(&format!("metric = \"table\"\nname = \"t.x\"\nwithin = {{ {bound} }}"), &[with_x("", x)]).0
    };
    assert_eq!(held(-1.0, "of = -2, percent = 50"), Status::Met);
    assert_eq!(held(-0.9, "of = -2, percent = 50"), Status::Unmet);
    assert_eq!(held(105.0, "of = 100, absolute = 5"), Status::Met);
    assert_eq!(held(94.0, "of = 100, absolute = 5"), Status::Unmet);
    assert_eq!(held(106.0, "of = 100, absolute = 5"), Status::Unmet);
    for keys in ["percent = -1", "absolute = -1", "percent = 1, absolute = 1", "percent = 1, part = 1"] {
        let text = format!("[[claim]]\nid = \"a\"\nmetric = \"jain\"\nwithin = {{ of = 1, {keys} }}");
        assert!(Experiment::parse(&text, Path::new("x.toml")).is_err(), "{keys}");
    }
}

#[test]
fn of_several_values_to_beat_the_hardest_counts() {
    let rates = |variant: &str, rates: [f64; 2]| {
        let mut w = TableWriter::new(&Outputs::memory()).unwrap();
        for (flow, rate_mbps) in ["f.1", "f.2"].into_iter().zip(rates) {
            w.flow(&FlowRow { time_s: 1.0, flow, rate_mbps, ..FlowRow::default() }).unwrap();
            w.flow_summary(&FlowSummary { flow, ..FlowSummary::default() }).unwrap();
        }
        w.finish(variant).unwrap()
    };
    let runs = [rates("a", [5.0, 5.0]), rates("low", [2.0, 5.0]), rates("high", [5.0, 8.0])];
    for (bound, variant, status) in [
        ("at-least", "low", Status::Met),
        ("at-least", "high", Status::Unmet),
        ("more-than", "low", Status::Unmet),
        ("at-most", "high", Status::Met),
        ("at-most", "low", Status::Unmet),
        ("less-than", "high", Status::Unmet),
    ] {
        let claim = format!(
            "metric = \"rate\"\nvariant = \"a\"\nfrom = \"0 s\"\n{bound} = {{ variant = \"{variant}\" }}"
        );
        assert_eq!(one(&claim, &runs).0, status, "{bound} {variant}");
    }
}

#[test]
fn a_variant_is_the_one_of_that_name_wherever_it_stands() {
    let runs = [with_x("xcp-fixed", 1.0), with_x("xcp", 2.0)];
    assert_eq!(measured("metric = \"table\"\nname = \"t.x\"\nvariant = \"xcp\"", &runs), "2");
}

#[test]
fn a_run_without_flows_meets_nothing() {
    let mut w = TableWriter::new(&Outputs::memory()).unwrap();
    w.link(&LinkRow { time_s: 2.0, link: "b", ..LinkRow::default() }).unwrap();
    w.link_summary(&LinkSummary { link: "b", ..LinkSummary::default() }).unwrap();
    let runs = [w.finish("").unwrap()];
    for (keys, why) in [
        ("metric = \"timeouts\"", "nothing was measured"),
        ("metric = \"finished\"", "the run has no flow"),
        ("metric = \"total-rate\"", "no selected flow has measured rates"),
        ("metric = \"share-of-fair\"\nlink = \"b\"", "link `b` has no single capacity"),
        ("metric = \"utilisation\"\nlink = \"b\"\nfrom = \"2 s\"", "the run ends at 2 s, before the window"),
    ] {
        let (status, _, found) = one(&format!("{keys}\nat-most = 9"), &runs);
        assert_eq!((status, found.as_str()), (Status::Unmet, why), "{keys}");
    }
}

#[test]
fn what_only_another_process_knows_is_not_taken_for_nothing() {
    let mut w = TableWriter::new(&Outputs::memory()).unwrap();
    for (flow, seen) in [("f.1", Ends::Both), ("f.2", Ends::Sender)] {
        w.flow(&FlowRow { time_s: 1.0, flow, rate_mbps: 3.0, seen, ..FlowRow::default() }).unwrap();
        w.flow_summary(&FlowSummary { flow, seen, ..FlowSummary::default() }).unwrap();
    }
    // This flow has no rows.
    w.flow_summary(&FlowSummary { flow: "g", ..FlowSummary::default() }).unwrap();
    let runs = [w.finish("").unwrap()];
    let found = |keys: &str| {
        let (status, _, found) = one(&format!("{keys}\nfrom = \"0 s\"\nat-most = 9"), &runs);
        (status, found)
    };
    assert_eq!(found("metric = \"total-rate\"\nflow = \"f.1\""), (Status::Met, "3 Mb/s".into()));
    let unknown = (Status::Unmet, "no data: the value is not a number".to_owned());
    assert_eq!(found("metric = \"total-rate\""), unknown);
    assert_eq!(found("metric = \"total-goodput\"\nflow = \"f.2\""), unknown);
    assert_eq!(found("metric = \"rate\"\nflow = \"g\""), (Status::Unmet, "no data for g".into()));
    // A single value has no variation.
    assert_eq!(found("metric = \"rate-variation\"\nflow = \"f.1\"").0, Status::Unmet);
}

#[test]
fn a_stretch_that_nobody_lives_through_or_that_is_short_is_no_phase() {
    let mut w = TableWriter::new(&Outputs::memory()).unwrap();
    for t in 1..=30 {
        let (time_s, utilisation) = (f64::from(t), if t <= 20 { 0.5 } else { 0.9 - 0.02 * f64::from(t) });
        w.link(&LinkRow { time_s, link: "b", utilisation, ..LinkRow::default() }).unwrap();
    }
    for (flow, end) in [("f.1", 20.0), ("f.2", 20.1)] {
        w.flow_summary(&FlowSummary { flow, finish_s: Some(end), ..FlowSummary::default() }).unwrap();
    }
    let runs = [w.finish("").unwrap()];
    assert_eq!(measured("metric = \"utilisation\"\nlink = \"b\"\nphases = true", &runs), "0.5");
}

#[test]
fn each_flow_has_an_ideal_of_its_own_and_each_link_a_limit() {
    let mut w = TableWriter::new(&Outputs::memory()).unwrap();
    for (i, ideal_mbps) in [(1.0, 4.0), (3.0, 6.0)] {
        let (flow, link) = if i == 1.0 { ("f.1", "a") } else { ("f.2", "b") };
        w.flow(&FlowRow { time_s: 1.0, flow, rate_mbps: 2.0 * i, ..FlowRow::default() }).unwrap();
        w.link(&LinkRow { time_s: 1.0, link, queue_mean_bytes: 10.0, ..LinkRow::default() }).unwrap();
        w.flow_summary(&FlowSummary { flow, ideal_mbps: Some(ideal_mbps), ..FlowSummary::default() })
            .unwrap();
        w.link_summary(&LinkSummary { link, limit_bytes: Some(10 * i as u64), ..LinkSummary::default() })
            .unwrap();
    }
    let runs = [w.finish("").unwrap()];
    let all = "from = \"0 s\"\nover = \"sum\"\nlink = \"*\"";
    assert_eq!(measured(&format!("metric = \"share-of-ideal\"\n{all}"), &runs), "1.5");
    assert_eq!(measured(&format!("metric = \"queue-mean-of-limit\"\n{all}"), &runs), "1.333");
}

#[test]
fn with_a_fraction_under_one_falls_count_and_not_rises() {
    // Down at 4 to 6 s, at 9 s and at 15 s: five and six seconds between falls, three and six
    // between rises.
    let down = one_flow(17, |t| {
        let cwnd_packets = if [4.0, 5.0, 6.0, 9.0, 15.0].contains(&t) { 1.0 } else { 10.0 };
        FlowRow { cwnd_packets, ..FlowRow::default() }
    });
    let keys = "metric = \"cwnd-period\"\nfraction = 0.5\nfrom = \"0 s\"\nover = \"mean\"";
    assert_eq!(measured(keys, &down), "5.5 s");
}

#[test]
fn nothing_at_all_is_reached_only_by_something() {
    let late = one_flow(5, |t| FlowRow { rate_mbps: if t < 3.0 { 0.0 } else { 2.0 }, ..FlowRow::default() });
    assert_eq!(measured("metric = \"time-to-reach\"\nflow = \"f.1\"", &late), "3 s");
}

/// A claim that compares the rates of `two_flows` with `theirs`, by second and flow, with further
/// `keys`.
fn against(theirs: impl Fn(u32, usize) -> f64, keys: &str) -> (Status, String) {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("tollway-against-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let row = |t| format!("{t},{},{}\n", theirs(t, 0), theirs(t, 1));
    let rows: String = (1..=30).map(row).collect();
    std::fs::write(dir.join("other.csv"), format!("time_s,f.1_mbps,f.2_mbps\n{rows}")).unwrap();
    let text = format!(
        "[[claim]]\nid = \"a\"\nmetric = \"series-deviation\"\nreference = \"other.csv\"\nspan = \"2 s\"\nat-most = 0.1\n{keys}"
    );
    let e = Experiment::parse(&text, &dir.join("x.toml")).unwrap();
    let verdict = claim::check(&e.claims, &[two_flows()], &e.context(Vec::new())).claims[0].clone();
    std::fs::remove_dir_all(&dir).unwrap();
    (verdict.status, verdict.measured)
}

#[test]
fn a_reference_holds_above_and_below_and_where_it_is_nothing() {
    let ours = |t: u32, flow: usize| match (t, flow) {
        (13..=14, _) => 0.0,
        (1..=10, 0) => 8.0,
        (11..=20, 0) => 6.0,
        (1..=10, _) => 0.0,
        (11..=20, _) => 3.0,
        (_, flow) => 9.0 * flow as f64,
    };
    let first = "flow = \"f.1\"";
    assert_eq!(against(ours, first).0, Status::Met);
    assert_eq!(against(|t, flow| 0.8 * ours(t, flow), first), (Status::Unmet, "0.25".into()));
    assert_eq!(against(|t, flow| 1.25 * ours(t, flow), first), (Status::Unmet, "0.2".into()));
    assert_eq!(against(|_, _| 0.0, first), (Status::Unmet, "inf".into()));
    // Times after a flow's end or outside of the window are not compared; times within are.
    let off =
        |of: std::ops::RangeInclusive<u32>| move |t, flow| if of.contains(&t) { 50.0 } else { ours(t, flow) };
    assert_eq!(against(off(21..=30), first).0, Status::Met);
    for (of, keys, status) in [
        (1..=10, "from = \"10 s\"", Status::Met),
        (1..=10, "from = \"9 s\"", Status::Unmet),
        (16..=20, "until = \"15 s\"", Status::Met),
        (16..=20, "until = \"16 s\"", Status::Unmet),
        (11..=14, "skip-after-start = \"4 s\"", Status::Met),
    ] {
        let keys = if keys.starts_with("skip") { keys.to_owned() } else { format!("{first}\n{keys}") };
        assert_eq!(against(off(of.clone()), &keys).0, status, "{of:?} {keys}");
    }
    // Before the other flow starts, all is settled.
    assert_eq!(against(off(5..=6), "skip-after-start = \"4 s\"").0, Status::Unmet);
}

#[test]
fn what_is_unmet_in_one_of_several_reports_is_unmet_in_all() {
    let runs = [two_flows()];
    let drops = "metric = \"drops\"\nlink = \"b\"";
    let mut all = verdicts(&format!("{drops}\nequals = 1"), &runs);
    all.extend(verdicts(&format!("{drops}\nequals = 2"), &runs));
    all.extend(verdicts(&format!("{drops}\nequals = 2\nneeds = \"ns2\""), &runs));
    assert_eq!((all.met, all.unmet, all.skipped, all.claims.len()), (1, 1, 1, 3));
}
