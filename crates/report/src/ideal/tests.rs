use tollway_scenario::file::Scenario;
use tollway_scenario::run::{Options, run};
use tollway_scenario::tables::Outputs;
use tollway_theory::max_min;

use super::*;
use crate::data;

fn ideals(flows: &str) -> Vec<f64> {
    ideals_with(flows, &[])
}

fn ideals_with(flows: &str, sets: &[&str]) -> Vec<f64> {
    let text = format!(
        "name = \"t\"\nduration = \"10 s\"\nnode = {{ a = {{}}, b = {{}} }}\n\
         link.w = {{ from = \"a\", to = \"b\", rate = \"90 Mbps\", delay = \"5 ms\" }}\n{flows}"
    );
    let scenario = Scenario::parse("", &text, sets).unwrap();
    let plan = &scenario.variants()[0].plan;
    let of_steady = max_min(&steady(plan).unwrap().network).unwrap();
    let ideals: Vec<f64> = ideal_mbps(plan).into_iter().flatten().flatten().collect();
    assert!(ideals.iter().zip(of_steady).all(|(a, b)| (a - b * 1e-6).abs() < 1e-9));
    ideals
}

#[test]
fn acknowledgements_have_room_on_links_with_data_the_other_way() {
    let there = "flow.f = { from = \"a\", to = \"b\", law = \"newreno\", packet-size = \"1000 B\", ack-size = \"50 B\" }\n";
    assert_eq!(ideals(there), [90.0]);
    // A twentieth of what goes the other way.
    let back = there.replace("flow.f = { from = \"a\", to = \"b\"", "flow.g = { from = \"b\", to = \"a\"");
    assert!(ideals(&format!("{there}{back}")).iter().all(|mbps| (mbps - 85.5).abs() < 1e-9));
    let delayed = back.replace(" }", ", delayed-ack = \"200 ms\" }");
    let both = ideals(&format!("{there}{delayed}"));
    assert!((both[0] - 87.75).abs() < 1e-9 && (both[1] - 85.5).abs() < 1e-9, "{both:?}");
}

#[test]
fn acknowledgements_take_what_the_rates_that_are_asked_for_need() {
    // A long flow over two links of 50 that each have another: 25 by max–min, 50 / 3 by proportional fairness.
    let link = |name: &str, from: &str, to: &str, mbps: u32| {
        format!(
            "link.{name} = {{ from = \"{from}\", to = \"{to}\", rate = \"{mbps} Mbps\", delay = \"5 ms\" }}\n"
        )
    };
    let flow = |name: &str, from: &str, to: &str| {
        format!(
            "flow.{name} = {{ from = \"{from}\", to = \"{to}\", law = \"newreno\", packet-size = \"1000 B\", ack-size = \"50 B\" }}\n"
        )
    };
    let text = [
        "name = \"t\"\nduration = \"10 s\"\nnode = { a = {}, b = {}, c = {}, d = {} }\n".to_owned(),
        link("one", "a", "b", 50),
        link("two", "b", "c", 50),
        link("three", "c", "d", 100),
        flow("long", "a", "d"),
        flow("first", "a", "b"),
        flow("second", "b", "c"),
        flow("back", "d", "c"),
    ];
    let scenario = Scenario::parse::<&str>("", &text.concat(), &[]).unwrap();
    let steady = steady(&scenario.variants()[0].plan).unwrap();
    let back = |rates: Vec<f64>| rates[3] * 1e-6;
    let fair = back(max_min(&steady.network).unwrap());
    assert!((fair - (100.0 - 0.05 * 25.0)).abs() < 1e-6, "{fair}");
    let (network, rates) =
        steady.allocate(|n| tollway_theory::proportional(n).map(|found| found.rates)).unwrap();
    assert!(network.loads(&rates).iter().zip(&network.capacities).all(|(load, c)| *load <= c * (1.0 + 1e-6)));
    let proportional = back(rates);
    assert!((proportional - (100.0 - 0.05 * 50.0 / 3.0)).abs() < 1e-3, "{proportional}");
}

#[test]
fn data_that_go_both_ways_share_the_way_back_with_others() {
    let flow = |name: &str, from: &str, to: &str, more: &str| {
        format!(
            "flow.{name} = {{ from = \"{from}\", to = \"{to}\", law = \"newreno\", packet-size = \"1000 B\", ack-size = \"50 B\"{more} }}\n"
        )
    };
    let text = [flow("f", "a", "b", ", both-ways = true"), flow("g", "b", "a", "")].concat();
    // What g sends is acknowledged beside f's data; f acknowledges with its own.
    let found = ideals(&text);
    assert!(found.iter().zip([87.75, 45.0, 45.0]).all(|(a, b)| (a - b).abs() < 1e-9), "{found:?}");
    // Framing leaves four fifths of either way.
    let found = ideals_with(&flow("f", "a", "b", ", both-ways = true"), &["link.w.overhead=250B"]);
    assert!(found.len() == 2 && found.iter().all(|mbps| (mbps - 72.0).abs() < 1e-9), "{found:?}");
}

fn plan(more: &str) -> Plan {
    let text = format!(
        "name = \"t\"\nduration = \"10 s\"\nnode = {{ a = {{}}, b = {{}} }}\n\
         link.w = {{ from = \"a\", to = \"b\", rate = \"90 Mbps\", delay = \"5 ms\" }}\n{more}"
    );
    let scenario = Scenario::parse::<&str>("", &text, &[]).unwrap();
    scenario.variants()[0].plan.clone()
}

#[test]
fn what_comes_goes_and_changes_makes_phases_with_ideals_of_their_own() {
    let plan = plan(
        r#"
            measure.warmup = "2 s"
            flow.f = { from = "a", to = "b", law = "newreno", weight = 2 }
            flow.g = { from = "a", to = "b", law = "newreno", start = "4 s", stop = "8 s" }
            flow.before = { from = "a", to = "b", law = "newreno", stop = "1 s" }
            flow.after = { from = "a", to = "b", law = "newreno", start = "12 s" }
            cbr.c = { from = "a", to = "b", rate = "30 Mbps", on = "1 s", off = "2 s", start = "1 s", stop = "6 s" }
            change = [
                { at = "1 s", link = "w", rate = "60 Mbps" },
                { at = "8 s", link = "w", rate = "30 Mbps" },
            ]
            "#,
    );
    // The cross-traffic sends from 4 s to 5 s: 60 Mb/s are left until 4 s, 45 until 6 s, and 60 until 8 s; while g is there it has a third.
    let f = (60.0 * 2.0 + 30.0 * 2.0 + 40.0 * 2.0 + 30.0 * 2.0) / 8.0;
    let g = (15.0 * 2.0 + 20.0 * 2.0) / 4.0;
    let found = ideal_mbps(&plan);
    for (found, expected) in found.iter().zip([f, g]) {
        assert!(found[0].is_some_and(|mbps| (mbps - expected).abs() < 0.01), "{found:?}, not {expected}");
    }
    assert_eq!(found[2..], [[None; 2]; 2]);
    // Of stretches as long the last, with the rate that the link has there.
    let steady = steady(&plan).unwrap();
    assert_eq!((steady.from, steady.until), (Time::from_secs(8), Time::from_secs(10)));
    let lane = FlowDirection { name: "f".into(), flow: 0, base_rtt: Time::from_millis(10) };
    assert_eq!(steady.lanes, [lane]);
    assert_eq!(steady.network.capacities[0], 30e6);
}

#[test]
fn a_buffer_lets_through_what_it_holds_in_a_round_trip_of_that_moment() {
    let plan = plan(
        r#"
            flow.f = { from = "a", to = "b", law = "newreno", receive-buffer = "10 packets" }
            change = [
                { at = "4 s", link = "w", delay = "20 ms" },
                { at = "8 s", flow = "f", receive-buffer = "20 packets" },
            ]
            "#,
    );
    // 15 kB in 10 ms, then in 40 ms, then 30 kB.
    let mbps = ideal_mbps(&plan)[0][0].unwrap();
    assert!((mbps - (12.0 * 4.0 + 3.0 * 4.0 + 6.0 * 2.0) / 10.0).abs() < 1e-9, "{mbps}");
    assert_eq!(steady(&plan).unwrap().network.flows[0].demand, 3e6);
}

#[test]
fn merged_flows_have_one_share_and_spread_ones_no_ideal() {
    let text = include_str!("../../../../scenarios/switch.toml");
    let ideals = |sets: &[&str]| {
        let scenario = Scenario::parse("", text, sets).unwrap();
        let plan = scenario.variants()[0].plan.clone();
        (ideal_mbps(&plan), steady(&plan).map(|steady| steady.lanes.len()))
    };
    let (found, lanes) = ideals(&["measure.warmup=6 s"]);
    let mbps: Vec<f64> = found.iter().filter_map(|ways| ways[0]).collect();
    assert!(mbps.iter().zip([2.5, 2.5, 2.5, 2.5, 10.0]).all(|(a, b)| (a - b).abs() < 1e-6), "{mbps:?}");
    assert_eq!((mbps.len(), lanes), (5, Ok(5)));
    let (found, lanes) = ideals(&["flow.any.from=client", "flow.any.to=server"]);
    assert_eq!((found, lanes), (vec![[None; 2]; 5], Err(Undefined::Session)));
}

#[test]
fn where_a_file_says_too_little_there_is_no_ideal() {
    let endless = "flow.f = { from = \"a\", to = \"b\", law = \"newreno\" }\n";
    let by_class = "class.c = { pricing = \"group\" }\nlink.l = { from = \"a\", to = \"b\", rate = \"9 Mbps\", law = \"fcp\" }\n";
    for (more, why) in [
        (
            format!(
                "{endless}workload.w = {{ from = \"a\", to = \"b\", law = \"newreno\", arrivals = {{ poisson = 5 }}, sizes = \"20 kB\" }}"
            ),
            Undefined::Chance,
        ),
        (
            format!(
                "{endless}medium.air.rate = \"2 Mbps\"\nlink.wave = {{ from = \"a\", to = \"b\", medium = \"air\" }}"
            ),
            Undefined::Medium,
        ),
        (format!("{endless}{by_class}"), Undefined::Classes),
        (
            format!("{endless}flow.g = {{ from = \"a\", to = \"b\", law = \"newreno\", size = \"1 kB\" }}"),
            Undefined::Sized,
        ),
    ] {
        let plan = plan(&more);
        assert_eq!(steady(&plan), Err(why), "{more}");
        assert!(ideal_mbps(&plan).iter().all(|ideals| *ideals == [None; 2]), "{more}");
    }
    let late = plan(&endless.replace(" }", ", start = \"11 s\" }"));
    assert_eq!((steady(&late), ideal_mbps(&late)), (Err(Undefined::NoFlow), vec![[None; 2]]));
    assert_eq!(steady(&plan("")), Err(Undefined::NoFlow));
}

#[test]
fn a_blackout_is_no_steady_state() {
    let text = "name = \"t\"\nduration = \"10 s\"\nnode = { a = {}, b = {} }\n\
         link.w = { from = \"a\", to = \"b\", rate = \"90 Mbps\", delay = \"5 ms\" }\n\
         flow.f = { from = \"a\", to = \"b\", law = \"newreno\" }\n\
         change = [{ at = \"1 s\", link = \"w\", blackout = \"6 s\" }]\n";
    let scenario = Scenario::parse::<&str>("", text, &[]).unwrap();
    let plan = &scenario.variants()[0].plan;
    let steady = steady(plan).unwrap();
    assert_eq!((steady.from, steady.until), (Time::from_secs(7), Time::from_secs(10)));
    assert!((ideal_mbps(plan)[0][0].unwrap() - 36.0).abs() < 1e-9);
    let scenario = Scenario::parse("", text, &["change.0.at=0s", "change.0.blackout=10s"]).unwrap();
    assert_eq!(super::steady(&scenario.variants()[0].plan), Err(Undefined::Dark));
}

/// Of a flow that was stopped what then still drains is delivered, but part of no rate; and of a run that was stopped there is no ideal.
#[test]
fn no_flow_has_more_than_there_is() {
    let text = "name = \"t\"\nduration = \"30 s\"\nnode = { a = {}, b = {} }\n\
         link.w = { from = \"a\", to = \"b\", rate = \"1 Mbps\", delay = \"10 ms\", limit = \"unlimited\" }\n\
         flow.f = { from = \"a\", to = \"b\", law = \"newreno\", stop = \"10 s\" }\n";
    let scenario = Scenario::parse::<&str>("", text, &[]).unwrap();
    let plan = &scenario.variants()[0].plan;
    let flow = |goes_on: &(dyn Fn(f64) -> bool + Sync)| {
        let options = Options {
            outputs: Outputs::memory(),
            ideal_mbps: ideal_mbps(plan).into(),
            progress: Some(goes_on),
            ..Options::default()
        };
        let summary = data::summary(&run(plan, &options).unwrap().result.summary, "flow");
        ["rate_mbps", "share_of_ideal", "delivered_bytes"].map(|column| summary[0].get(column))
    };
    let [rate, share, delivered] = flow(&|_| true);
    assert!((0.9..1.001).contains(&rate) && (0.9..1.001).contains(&share), "{rate} {share}");
    assert!(delivered > 1.5e6, "{delivered}");
    let [rate, share, _] = flow(&|share| share < 0.2);
    assert!((0.9..1.001).contains(&rate) && share.is_nan(), "{rate} {share}");
}
