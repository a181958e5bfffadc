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
    // Acknowledgements take a twentieth of the opposite rate.
    let back = there.replace("flow.f = { from = \"a\", to = \"b\"", "flow.g = { from = \"b\", to = \"a\"");
    assert!(ideals(&format!("{there}{back}")).iter().all(|mbps| (mbps - 85.5).abs() < 1e-9));
    let delayed = back.replace(" }", ", delayed-ack = \"200 ms\" }");
    let both = ideals(&format!("{there}{delayed}"));
    assert!((both[0] - 87.75).abs() < 1e-9 && (both[1] - 85.5).abs() < 1e-9, "{both:?}");
}

#[test]
fn acknowledgements_take_what_the_rates_that_are_asked_for_need() {
    // A long flow over two links of 50 with another flow each: 25 by max–min, 50 / 3 by
    // proportional fairness.
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
    // The acknowledgements of g share the link with f's data; those of f are part of its data.
    let found = ideals(&text);
    assert!(found.iter().zip([87.75, 45.0, 45.0]).all(|(a, b)| (a - b).abs() < 1e-9), "{found:?}");
    // Framing leaves four fifths of each direction.
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
    // The cross-traffic sends from 4 s to 5 s. So 60 Mb/s are left until 4 s, 45 until 6 s, and 60
    // until 8 s. While g is there it has a third.
    let f = (60.0 * 2.0 + 30.0 * 2.0 + 40.0 * 2.0 + 30.0 * 2.0) / 8.0;
    let g = (15.0 * 2.0 + 20.0 * 2.0) / 4.0;
    let found = ideal_mbps(&plan);
    for (found, expected) in found.iter().zip([f, g]) {
        assert!(found[0].is_some_and(|mbps| (mbps - expected).abs() < 0.01), "{found:?}, not {expected}");
    }
    assert_eq!(found[2..], [[None; 2]; 2]);
    // Of equally long stretches the last, with the link's rate there.
    let steady = steady(&plan).unwrap();
    assert_eq!((steady.from, steady.until), (Time::from_secs(8), Time::from_secs(10)));
    let direction = FlowDirection { name: "f".into(), flow: 0, base_rtt: Time::from_millis(10) };
    assert_eq!(steady.directions, [direction]);
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
fn a_paused_flow_leaves_its_share_to_others() {
    let plan = plan(
        r#"
            flow.f = { from = "a", to = "b", law = "newreno" }
            flow.g = { from = "a", to = "b", law = "newreno" }
            change = [
                { at = "4 s", flow = "f", paused = true },
                { at = "8 s", flow = "f", paused = false },
            ]
            "#,
    );
    let found: Vec<f64> = ideal_mbps(&plan).iter().filter_map(|ways| ways[0]).collect();
    assert!((found[1] / found[0] - (5.0 * 6.0 + 10.0 * 4.0) / (5.0 * 6.0)).abs() < 1e-3, "{found:?}");
}

#[test]
fn merged_flows_have_one_share_and_spread_ones_no_ideal() {
    let text = include_str!("../../../../scenarios/switch.toml");
    let ideals = |sets: &[&str]| {
        let scenario = Scenario::parse("", text, sets).unwrap();
        let plan = scenario.variants()[0].plan.clone();
        (ideal_mbps(&plan), steady(&plan).map(|steady| steady.directions.len()))
    };
    let (found, directions) = ideals(&["measure.warmup=6 s"]);
    let mbps: Vec<f64> = found.iter().filter_map(|ways| ways[0]).collect();
    assert!(mbps.iter().zip([2.5, 2.5, 2.5, 2.5, 10.0]).all(|(a, b)| (a - b).abs() < 1e-6), "{mbps:?}");
    assert_eq!((mbps.len(), directions), (5, Ok(5)));
    let (found, directions) = ideals(&["flow.any.from=client", "flow.any.to=server"]);
    assert_eq!((found, directions), (vec![[None; 2]; 5], Err(Undefined::Session)));
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

/// After a flow stops, its queue still drains: these data are delivered, but count in no rate. A
/// run that was stopped has no ideal.
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

/// [`ideal_mbps`] computed phase by phase and flow by flow.
fn slow_ideal_mbps(plan: &Plan) -> Vec<[Option<f64>; 2]> {
    let state = State::new(plan);
    let ways: Vec<(usize, bool)> = state.ways.iter().map(|way| (way.of, way.back)).collect();
    let bits = bits_of_sessions(plan, state, &instants(plan)).unwrap();
    let mut ideals = vec![[None; 2]; plan.flows.len()];
    for ((of, back), bits) in ways.into_iter().zip(bits) {
        let seconds = end(plan, of).saturating_sub(begin(plan, of)).as_secs_f64();
        ideals[of][usize::from(back)] = (seconds > 0.0).then(|| bits / seconds * 1e-6);
    }
    ideals
}

fn agree(plan: &Plan) -> Result<(), String> {
    let (fast, slow) = (ideal_mbps(plan), slow_ideal_mbps(plan));
    for (i, (fast, slow)) in fast.iter().flatten().zip(slow.iter().flatten()).enumerate() {
        let near = match (fast, slow) {
            (Some(fast), Some(slow)) => (fast - slow).abs() <= 1e-9 * slow.max(1.0),
            (fast, slow) => fast == slow,
        };
        if !near {
            return Err(format!("way {i}: {fast:?}, not {slow:?}"));
        }
    }
    Ok(())
}

mod classes {
    use proptest::prelude::{Just, Strategy, any, prop, prop_assert_eq, prop_oneof, proptest};

    use super::{Scenario, agree};

    /// Flows over a row of three links, some with hosts of their own, with various starts and
    /// stops.
    fn flows() -> impl Strategy<Value = String> {
        let times = (0u32..9, 1u32..9, any::<bool>());
        let flow = (0usize..4, 0usize..4, 1u32..3, times, 0u32..8).prop_map(
            |(from, to, weight, (start, life, stops), more)| {
                let to = if from == to { (to + 1) % 4 } else { to };
                let stop = if stops { format!(", stop = \"{} s\"", start + life) } else { String::new() };
                let more = match more {
                    0 => ", receive-buffer = \"9 packets\"",
                    1 => ", both-ways = true",
                    2 => ", delayed-ack = \"40 ms\"",
                    3 => ", count = 3",
                    4 => ", packet-size = \"700 B\"",
                    _ => "",
                };
                let own = if more.is_empty() { "h" } else { "r" };
                format!("{{ from = \"{own}{from}\", to = \"r{to}\", law = \"newreno\", weight = {weight}, start = \"{start} s\"{stop}{more} }}\n")
            },
        );
        prop::collection::vec(flow, 1..14).prop_map(|flows| {
            flows.iter().enumerate().map(|(i, flow)| format!("flow.f{i} = {flow}")).collect()
        })
    }

    /// Changes and cross-traffic.
    fn others() -> impl Strategy<Value = String> {
        let change = prop_oneof![
            Just("link = \"one\", rate = \"20 Mbps\""),
            Just("link = \"two\", blackout = \"1500 ms\""),
            Just("link = \"three\", delay = \"30 ms\""),
            Just("link = \"host1\", rate = \"3 Mbps\""),
            Just("flow = \"f0*\", receive-buffer = \"5 packets\""),
        ];
        let change = (0u32..10, change).prop_map(|(at, what)| format!("{{ at = \"{at} s\", {what} }}"));
        let changes =
            prop::collection::vec(change, 0..4).prop_map(|all| format!("change = [{}]\n", all.join(", ")));
        let cbr = prop_oneof![
            Just(""),
            Just(
                "cbr.c = { from = \"h2\", to = \"r3\", rate = \"4 Mbps\", start = \"3 s\", stop = \"7 s\" }\n"
            ),
        ];
        (changes, cbr, 0u32..3)
            .prop_map(|(changes, cbr, warmup)| format!("{changes}{cbr}measure.warmup = \"{warmup} s\"\n"))
    }

    proptest! {
        #[test]
        fn by_class_and_flow_by_flow_are_the_same((flows, others) in (flows(), others())) {
            let mut text = String::from("name = \"t\"\nduration = \"10 s\"\n");
            text += "node = { r0 = {}, r1 = {}, r2 = {}, r3 = {}, h0 = {}, h1 = {}, h2 = {}, h3 = {} }\n";
            for (i, name) in ["one", "two", "three"].into_iter().enumerate() {
                text += &format!("link.{name} = {{ from = \"r{i}\", to = \"r{}\", rate = \"{} Mbps\", delay = \"5 ms\" }}\n", i + 1, 10 + 7 * i);
            }
            for i in 0..4 {
                text += &format!("link.host{i} = {{ from = \"h{i}\", to = \"r{i}\", rate = \"{} Mbps\", overhead = \"20 B\" }}\n", 4 + 9 * i);
            }
            let scenario = Scenario::parse::<&str>("", &(text + &others + &flows), &[]).unwrap();
            let plan = &scenario.variants()[0].plan;
            prop_assert_eq!(agree(plan), Ok(()));
        }
    }
}

/// Four thousand flows of two kinds are two flows in theory. With as many kinds, each is a flow.
#[test]
fn many_flows_with_starts_of_their_own_have_ideals() {
    let text = |hosts: u32, rate: &str| {
        format!(
            "name = \"t\"\nduration = \"10 s\"\nnode = {{ s = {{ count = {hosts} }}, t = {{ count = {hosts} }}, r = {{}}, d = {{}} }}\n\
             link.in = {{ from = \"s\", to = \"r\", rate = {rate}, delay = {{ first = \"1 ms\", last = \"9 ms\" }} }}\n\
             link.beside = {{ from = \"t\", to = \"r\", rate = {rate} }}\n\
             link.out = {{ from = \"r\", to = \"d\", rate = \"1 Gbps\", delay = \"5 ms\" }}\n\
             flow.f = {{ from = \"s\", to = \"d\", law = \"cubic\", start = {{ random = \"9 s\" }} }}\n\
             flow.g = {{ from = \"t\", to = \"d\", law = \"cubic\", weight = 2, start = {{ random = \"9 s\" }} }}\n"
        )
    };
    let plan = |text: &str| Scenario::parse::<&str>("", text, &[]).unwrap().variants()[0].plan.clone();
    let small = plan(&text(100, "\"100 Mbps\""));
    assert_eq!(agree(&small), Ok(()));
    let many = plan(&text(10_000, "\"100 Mbps\""));
    assert_eq!(too_many(&many), None);
    assert!(ideal_mbps(&many).iter().all(|ways| ways[0].is_some_and(|mbps| mbps > 0.0)));
    // Flows that share a host's link are separate flows. There are too many, and a note names the
    // number.
    let each =
        plan(&(text(10_000, "\"100 Mbps\"") + "flow.h = { from = \"s\", to = \"r\", law = \"cubic\" }\n"));
    assert!(too_many(&each).is_some_and(|note| note.contains("30000 flows")), "{:?}", too_many(&each));
    assert!(ideal_mbps(&each).iter().all(|ways| *ways == [None; 2]));
}
