//! Laws of the caller in scenarios of files.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use tollway_law::link::{AnyLink, DropTail, Limit, LinkLaw, Passing, Placement, StepConfig, Verdict};
use tollway_law::param::Threshold;
use tollway_law::sender::{Acked, AnySender, CubicConfig, Descriptor, Flight, NewRenoConfig, Rcp, SenderLaw};
use tollway_law::toll::Content;
use tollway_law::{Aim, Rate, Time, Toll};
use tollway_scenario::file::Scenario;
use tollway_scenario::plan::{Failure, MakeSender, NoPlace, OwnLink, OwnSender, Sending};
use tollway_scenario::run::{DigestMode, Options, RunError, run};
use tollway_scenario::tables::Outputs;

use crate::{finish, parse};

const WIRE: &str = r#"
name = "wire"
duration = "4 s"
[node.a]
[node.b]
[link.wire]
from = "a"
to = "b"
rate = "10 Mbps"
delay = "20 ms"
limit = "30 packets"
[flow.one]
from = "a"
to = "b"
law = "newreno"
initial-window = 4
[flow.two]
from = "a"
to = "b"
law = "cubic"
count = 2
start = "500 ms"
[workload.web]
from = "a"
to = "b"
law = "cubic"
arrivals = { interval = "300 ms" }
sizes = "40 kB"
"#;

fn newreno(of: &Sending<'_>) -> AnySender {
    AnySender::custom(NewRenoConfig { initial_window: of.initial_window, ..Default::default() }.build())
}

fn cubic(of: &Sending<'_>) -> AnySender {
    AnySender::custom(CubicConfig { initial_window: of.initial_window, ..Default::default() }.build())
}

fn drop_tail(_: &Placement<'_>) -> AnyLink {
    AnyLink::custom(DropTail)
}

fn packets(scenario: &Scenario) -> u64 {
    finish(&scenario.variants()[0].plan, DigestMode::Packets).run.digest
}

#[test]
fn a_law_of_the_house_brought_by_the_caller_sends_the_same_packets() {
    let file = || parse(WIRE, &[]);
    let own = [
        ("flow.one", newreno as fn(&Sending<'_>) -> AnySender),
        ("flow.two", cubic),
        ("workload.web", cubic),
    ]
    .into_iter()
    .fold(file(), |file, (key, make)| {
        file.with_sender(key, &OwnSender::new("mine", make)).expect("it is there")
    });
    assert_ne!(own.variants()[0].plan, file().variants()[0].plan);
    assert_eq!(packets(&own), packets(&file()));
    let slower = |of: &Sending<'_>| newreno(&Sending { initial_window: 1.0, ..*of });
    let slower = file().with_sender("flow.one", &OwnSender::new("slower", slower)).expect("it is there");
    assert_ne!(packets(&slower), packets(&file()));
    let own = file().with_link("link.*", &OwnLink::new("mine", drop_tail)).expect("it is there");
    assert_eq!(packets(&own), packets(&file()));
}

#[test]
fn each_sender_is_told_what_it_is_made_for() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&told);
    let law = OwnSender::new("mine", move |of: &Sending<'_>| {
        let row =
            (of.flow.to_owned(), of.section.to_owned(), of.backward, of.segment, of.initial_window, of.seed);
        into.lock().expect("nobody panics").push(row);
        newreno(of)
    });
    let sets = ["flow.one.both-ways=true", "flow.one.packet-size=1000"];
    let scenario = parse(WIRE, &sets).with_sender("flow.*", &law).expect("there are flows");
    let scenario = scenario.with_sender("workload.web", &law).expect("it is there");
    let finished = finish(&scenario.variants()[0].plan, DigestMode::Results);
    let told = told.lock().expect("nobody panics");
    let names: Vec<_> =
        told.iter().take(5).map(|row| (row.0.as_str(), row.1.as_str(), row.2, row.3, row.4)).collect();
    let expected = [
        ("one", "one", false, 1000, 4.0),
        ("one", "one", true, 1000, 4.0),
        ("two.1", "two", false, 1500, 10.0),
        ("two.2", "two", false, 1500, 10.0),
        ("web.1", "web", false, 1500, 10.0),
    ];
    assert_eq!(names, expected);
    let mut seeds: Vec<u64> = told.iter().map(|row| row.5).collect();
    seeds.sort_unstable();
    seeds.dedup();
    assert_eq!(seeds.len(), told.len(), "each has a stream of chance of its own");
    // Tables use the caller's name of the law, and the flows' usual names.
    for batch in &finished.result.summary {
        for column in ["law", "flow"] {
            let words = batch.column_by_name(column).expect("a column");
            let words = words.as_dictionary_opt::<Int32Type>().map_or(words, |coded| coded.values());
            for word in words.as_string::<i32>().iter().flatten() {
                let known = |row: &(String, _, _, _, _, _)| row.0 == word.trim_end_matches(".reverse");
                assert!(if column == "law" { word == "mine" } else { told.iter().any(known) }, "{word}");
            }
        }
    }
}

#[test]
fn what_cannot_have_one_is_told() {
    let law = OwnSender::new("mine", newreno);
    let with = |sets: &[&str], key| parse(WIRE, sets).with_sender(key, &law).map(drop);
    let unknown = with(&[], "flow.three").expect_err("there is none");
    let text = "there is nothing called `flow.three` that could use your law; there are `flow.one`, `flow.two`, `workload.web`";
    assert_eq!(unknown.to_string(), text);
    for key in ["one", "flow", "flow.one.f", "link.wire", "workload.one", "*", "*.one", ""] {
        assert!(matches!(with(&[], key), Err(NoPlace::Unknown { .. })), "{key}");
    }
    assert_eq!(with(&[], "flow.*"), Ok(()));
    let kernel = with(&["flow.one.transport=kernel"], "flow.*").expect_err("it is the kernel's");
    assert!(kernel.to_string().starts_with("`flow.one` cannot use your law: the kernel's TCP"));
    let link = OwnLink::new("mine", drop_tail);
    let links = |key| parse(WIRE, &[]).with_link(key, &link).map(drop);
    assert_eq!((links("link.wire"), links("link.wire.reverse")), (Ok(()), Ok(())));
    let unknown = links("link.wir").expect_err("there is none");
    assert!(unknown.to_string().ends_with("there are `link.wire`, `link.wire.reverse`"), "{unknown}");
}

#[test]
fn a_section_may_be_of_one_variant_only() {
    let text = format!(
        "{WIRE}[variant.plain]\n[variant.more]\nflow.three = {{ from = \"a\", to = \"b\", law = \"cubic\" }}\n"
    );
    let law = OwnSender::new("mine", newreno);
    let scenario = parse(&text, &[]).with_sender("flow.three", &law).expect("one has it");
    let own = |i: usize| {
        let plan = &scenario.variants()[i].plan;
        plan.transports.iter().filter(|one| one.law.get::<OwnSender>().is_some()).count()
    };
    assert_eq!((own(0), own(1)), (0, 1));
}

#[test]
fn the_book_shows_what_the_documentation_runs() {
    let page = include_str!("../../../../docs/src/extending.md");
    let block = page.split("```rust,no_run\n").nth(1).and_then(|rest| rest.split("```").next());
    let block = block.expect("the book has a block");
    let here = include_str!("../../src/plan/own.rs");
    for line in block.lines().filter(|line| !line.is_empty()) {
        assert!(here.contains(&format!("/// {line}\n")), "{line}");
    }
}

/// RCP as a law of the caller.
struct MakeRcp;

impl MakeSender for MakeRcp {
    fn make(&self, _: &Sending<'_>) -> AnySender {
        AnySender::custom(Rcp::new())
    }
    fn descriptor(&self) -> Descriptor {
        Descriptor { aim: Some(Aim::MaxMin), ..Descriptor::needing(Content::Rate) }
    }
}

#[test]
fn a_law_that_needs_a_toll_has_its_echo_and_is_refused_without() {
    let law = OwnSender::new("mine", MakeRcp);
    let with = |sets: &[&str]| parse(WIRE, sets).with_sender("flow.one", &law);
    let told = with(&[]).unwrap_err();
    assert!(matches!(told, NoPlace::Refused { ref key, .. } if key == "flow.one"), "{told}");
    let house = parse(WIRE, &["link.wire.law=rcp", "flow.one.law=rcp"]);
    assert_eq!(packets(&with(&["link.wire.law=rcp"]).unwrap()), packets(&house));
}

/// Fails at its hundredth acknowledgement.
struct Tired(Arc<AtomicU32>);

impl SenderLaw for Tired {
    fn window(&self) -> f64 {
        4.0
    }
    fn on_ack(&mut self, _: &Flight, _: &Acked) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn on_loss(&mut self, _: &Flight) {}
    fn on_timeout(&mut self, _: &Flight, _: bool) {}
}

struct MakeTired(Arc<AtomicU32>);

impl MakeSender for MakeTired {
    fn make(&self, _: &Sending<'_>) -> AnySender {
        AnySender::custom(Tired(Arc::clone(&self.0)))
    }
    fn failure(&self) -> Option<Failure> {
        (self.0.load(Ordering::Relaxed) >= 100).then(|| "no more".into())
    }
}

#[test]
fn a_law_that_fails_ends_the_run() {
    let acks = Arc::new(AtomicU32::new(0));
    let law = OwnSender::new("tired", MakeTired(Arc::clone(&acks)));
    // No other event causes an earlier check.
    let sets = ["duration=1000 h", "measure.interval=none", "workload.web.start=999 h"];
    let scenario = parse(WIRE, &sets).with_sender("flow.one", &law).expect("it is there");
    let options = Options { outputs: Outputs::memory(), ..Options::default() };
    match run(&scenario.variants()[0].plan, &options) {
        Err(error @ RunError::Law { .. }) => {
            assert_eq!(error.to_string(), "the law `tired` failed: no more");
        }
        other => panic!("{other:?}"),
    }
    // A window of four packets and a round trip of at least 40 ms: at most a dozen in 100 ms.
    let acks = acks.load(Ordering::Relaxed);
    assert!((100..=112).contains(&acks), "{acks}");
}

/// Marks or drops arrivals at a queue above ten packets, and records its capacity.
#[derive(Clone)]
struct Ten(Arc<Mutex<Vec<(String, f64)>>>);

impl LinkLaw for Ten {
    fn on_arrival(&mut self, _: Time, packet: Passing, _: &Toll) -> Verdict {
        if packet.backlog_packets > 10 { Verdict::Signal } else { Verdict::Pass }
    }
    fn on_departure(&mut self, _: Time, _: Passing, _: &mut Toll) -> Verdict {
        Verdict::Pass
    }
    fn set_capacity(&mut self, now: Time, capacity: Rate) {
        self.0.lock().expect("nobody panics").push((now.to_string(), capacity.mbps()));
    }
}

#[test]
fn a_law_on_a_link_is_the_callers() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&seen);
    let ten = OwnLink::new("ten", move |of: &Placement<'_>| {
        into.lock().expect("nobody panics").push((of.link.to_owned(), of.capacity.mbps()));
        AnyLink::custom(Ten(Arc::clone(&into)))
    });
    let stepped = |_: &Placement<'_>| {
        AnyLink::Step(Box::new(StepConfig { threshold: Threshold::Packets(10.0) }.build(Limit::NONE)))
    };
    let file = || parse(WIRE, &["flow.*.ecn=true"]);
    let house = file().with_link("link.wire", &OwnLink::new("step", stepped)).expect("it is there");
    let own = file().with_link("link.wire", &ten).expect("it is there");
    let step = parse(WIRE, &["flow.*.ecn=true", "link.wire.law=step", "link.wire.step.threshold=10 packets"]);
    assert_eq!(packets(&house), packets(&step));
    assert_ne!(packets(&own), packets(&file()));
    assert_eq!(
        seen.lock().expect("nobody panics").drain(..).collect::<Vec<_>>(),
        [("wire".to_owned(), 10.0)]
    );
    // The law receives changes of rate like a law of Tollway; a change of `capacity` overrides
    // them.
    let change = |at: u32, what: &str| format!("[[change]]\nat = \"{at} s\"\nlink = \"wire\"\n{what}\n");
    let rate = |mbps: u32| format!("rate = \"{mbps} Mbps\"");
    let text = [WIRE, &change(1, &rate(5)), &change(2, &(rate(8) + "\ncapacity = \"7 Mbps\""))].concat();
    packets(&parse(&text, &[]).with_link("link.wire", &ten).expect("it is there"));
    let told = [("wire", 10.0), ("1 s", 5.0), ("2 s", 7.0)].map(|(what, mbps)| (what.to_owned(), mbps));
    assert_eq!(*seen.lock().expect("nobody panics"), told);
}
