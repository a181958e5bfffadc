//! A table for each of the small scenarios in `tests/scenes`, so that a change of behaviour shows
//! as a difference of text. Values that can be computed by hand are asserted below each.

use std::fmt::Write;
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use tollway_scenario::run::{DigestMode, Finished};
use tollway_scenario::tables::RunResult;

use crate::{finish, parse};

/// The text of a scenario in `tests/scenes`.
pub(crate) fn scene(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/scenes/{name}.toml"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The results of one variant.
pub(crate) struct Outcome {
    variant: String,
    rates: Vec<f64>,
    goodput: f64,
    fcts: Vec<f64>,
    unfinished: usize,
    resent: u64,
    timeouts: u64,
    pub(crate) used: f64,
    queue: f64,
    pub(crate) peak: f64,
    pub(crate) drops: u64,
    marks: u64,
    lost: u64,
}

pub(super) fn numbers(batches: &[RecordBatch], column: &str) -> Vec<Option<f64>> {
    let mut all = Vec::new();
    for batch in batches {
        let array = batch.column_by_name(column).unwrap_or_else(|| panic!("there is no column {column}"));
        let at = |i: usize| match array.is_null(i) {
            true => None,
            false => Some(match array.as_primitive_opt::<Float64Type>() {
                Some(floats) => floats.value(i),
                None => array.as_primitive::<UInt64Type>().value(i) as f64,
            }),
        };
        all.extend((0..batch.num_rows()).map(at));
    }
    all
}

pub(super) fn names(batches: &[RecordBatch], column: &str) -> Vec<String> {
    let mut all = Vec::new();
    for batch in batches {
        let array = batch.column_by_name(column).unwrap_or_else(|| panic!("there is no column {column}"));
        let words = array.as_string::<i32>();
        all.extend(words.iter().map(|word| word.unwrap_or_default().to_owned()));
    }
    all
}

impl Outcome {
    /// Summarises a run; its bottleneck is the link `b`.
    pub(crate) fn of(variant: &str, finished: &Finished) -> Outcome {
        let RunResult { summary, link_summary, systems, .. } = &finished.result;
        // Constant-rate sources do not respond to congestion.
        let laws = names(summary, "law");
        let of_flows = |column| {
            let all = numbers(summary, column).into_iter().zip(&laws);
            all.filter(|(_, law)| *law != "constant-rate")
                .filter_map(|(value, _)| value)
                .collect::<Vec<f64>>()
        };
        let rates = of_flows("rate_mbps");
        // Over the whole run.
        let sum = |batches, column: &str| {
            let before = numbers(batches, &format!("{column}_before"));
            numbers(batches, column).into_iter().chain(before).flatten().sum::<f64>()
        };
        let b = names(link_summary, "link").iter().position(|name| name == "b").expect("there is a link b");
        let of_b = |column| numbers(link_summary, column)[b].unwrap_or(f64::NAN);
        let lost = systems.numbers().filter(|(path, _)| path.starts_with("losses."));
        let sized = numbers(summary, "size_bytes").iter().flatten().count();
        let fcts: Vec<f64> = numbers(summary, "fct_s").into_iter().flatten().collect();
        Outcome {
            variant: variant.to_owned(),
            goodput: of_flows("goodput_mbps").iter().sum(),
            unfinished: sized - fcts.len(),
            fcts,
            resent: sum(summary, "retransmissions") as u64,
            timeouts: sum(summary, "timeouts") as u64,
            used: of_b("utilisation"),
            queue: of_b("queue_mean_packets"),
            peak: of_b("queue_max_packets"),
            drops: sum(link_summary, "drops") as u64,
            marks: sum(link_summary, "marks") as u64,
            lost: lost.map(|(_, count)| count as u64).sum(),
            rates,
        }
    }

    fn total(&self) -> f64 {
        self.rates.iter().sum()
    }

    /// Jain's index of the rates.
    fn fairness(&self) -> f64 {
        let squares: f64 = self.rates.iter().map(|r| r * r).sum();
        if squares > 0.0 { self.total() * self.total() / (self.rates.len() as f64 * squares) } else { 0.0 }
    }

    fn mean_fct(&self) -> f64 {
        self.fcts.iter().sum::<f64>() / self.fcts.len() as f64
    }
}

/// Runs every variant of a scene.
fn outcomes(name: &str) -> Vec<Outcome> {
    let scenario = parse(&scene(name), &[]);
    let variants = scenario.variants().iter();
    variants.map(|v| Outcome::of(&v.name, &finish(&v.plan, DigestMode::Results))).collect()
}

/// The outcome of variant `name`.
fn get<'a>(all: &'a [Outcome], name: &str) -> &'a Outcome {
    all.iter().find(|outcome| outcome.variant == name).unwrap_or_else(|| panic!("no variant {name}"))
}

/// The table: rates in Mb/s on the wire, the queue of link `b` in packets, drops and losses of all
/// links.
fn table(all: &[Outcome]) -> String {
    let mut text = format!(
        "{:<22} {:>7} {:>7} {:>7} {:>7} {:>5} {:>6} {:>6} {:>5} {:>6} {:>6} {:>6} {:>6} {:>4} {:>5} {:>8} {:>6}\n",
        "variant",
        "rate",
        "goodput",
        "least",
        "most",
        "jain",
        "used",
        "queue",
        "peak",
        "drops",
        "lost",
        "marks",
        "resent",
        "rtos",
        "done",
        "fct ms",
        "undone"
    );
    for o in all {
        let least = o.rates.iter().copied().fold(f64::INFINITY, f64::min);
        let most = o.rates.iter().copied().fold(0.0, f64::max);
        let fct = if o.fcts.is_empty() { "-".into() } else { format!("{:.2}", o.mean_fct() * 1e3) };
        writeln!(
            text,
            "{:<22} {:>7.3} {:>7.3} {least:>7.3} {most:>7.3} {:>5.3} {:>6.4} {:>6.1} {:>5} {:>6} {:>6} {:>6} {:>6} {:>4} {:>5} {fct:>8} {:>6}",
            o.variant, o.total(), o.goodput, o.fairness(), o.used, o.queue, o.peak, o.drops, o.lost, o.marks, o.resent,
            o.timeouts, o.fcts.len(), o.unfinished
        )
        .expect("text grows");
    }
    text
}

#[test]
fn times_are_written_as_people_write_them() {
    let sets = ["duration=60s", "measure.interval=100ms", "flow.f.start=0.3s", "link.*.rate=1Mbps"];
    let scenario = parse(&scene("changes"), &sets);
    let result = finish(&scenario.variants()[0].plan, DigestMode::Results).result;
    let mut times = numbers(&result.links, "time_s");
    times.dedup();
    let tenths: Vec<_> = (1..=600).map(|k| Some(f64::from(k) / 10.0)).collect();
    assert_eq!(times, tenths);
    assert!(numbers(&result.summary, "start_s").iter().all(|&start| start == Some(0.3)));
}

macro_rules! scenes {
    ($($function:ident = $name:literal, |$all:ident| $check:block)*) => {
        $(#[test]
        fn $function() {
            let all = outcomes($name);
            insta::assert_snapshot!($name, table(&all));
            let $all = &all;
            $check
        })*

        #[test]
        fn every_scene_is_run() {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenes");
            let mut there: Vec<String> = std::fs::read_dir(folder)
                .expect("the scenes are in the repository")
                .map(|entry| entry.expect("they can be listed").file_name().to_string_lossy().into_owned())
                .collect();
            there.sort();
            let mut run = vec![$(concat!($name, ".toml")),*];
            run.sort_unstable();
            assert_eq!(there, run);
        }
    };
}

scenes! {
    laws = "laws", |all| {
        for law in ["newreno", "cubic"] {
            // For packets without a toll, an XCP link is a FIFO.
            let (tail, xcp) = (get(all, &format!("{law}-tail")), get(all, &format!("{law}-xcp")));
            assert_eq!((tail.drops, tail.resent), (xcp.drops, xcp.resent));
            assert!(get(all, &format!("{law}-red")).queue < 0.6 * tail.queue);
        }
        for form in ["xcp-xcp", "xcp-window", "xcp-fixed32", "xcp-fixed128"] {
            let xcp = get(all, form);
            assert!(xcp.used > 0.98 && xcp.drops == 0 && xcp.queue < 2.0 && xcp.fairness() > 0.999, "{form}");
        }
    }
    red = "red", |all| {
        let ecn = get(all, "ecn");
        assert!(ecn.marks > 0 && ecn.resent < get(all, "default").resent);
        // A threshold of 15 packets with a BDP of 42 leaves the link idle at times.
        assert!(get(all, "low").used > 0.8);
    }
    sack = "sack", |_all| {}
    loss = "loss", |all| {
        assert_eq!(get(all, "none").lost, 0);
        // A loss before the transmitter uses no capacity; a loss on the wire does: 1 / 0.95.
        let (before, after) = (get(all, "before"), get(all, "after"));
        assert!((before.used - before.total() / 10.0).abs() < 0.002);
        assert!((after.used * 9.5 / after.total() - 1.0).abs() < 0.01);
        // Acknowledgements are cumulative: their loss costs next to nothing.
        assert!(get(all, "acks").used > 0.98 && get(all, "acks").lost > 1000);
        assert!(get(all, "halving").used < after.used);
    }
    delayed_ack = "delayed-ack", |all| {
        assert!(get(all, "every").used > 0.985 && get(all, "delayed").used > 0.985);
    }
    rtts = "rtts", |all| {
        assert!(get(all, "xcp").fairness() > 0.99);
        assert!(get(all, "newreno").fairness() < 0.6);
    }
    medium = "medium", |all| {
        // For each 1500 bytes of data 40 bytes of acknowledgement, or 20 with delayed
        // acknowledgements.
        assert!((get(all, "half-duplex").used / (1500.0 / 1540.0) - 1.0).abs() < 0.005);
        assert!((get(all, "half-duplex-delayed").used / (1500.0 / 1520.0) - 1.0).abs() < 0.005);
    }
    cross = "cross", |all| {
        let steady = get(all, "steady");
        assert!((steady.total() - 6.0).abs() < 0.05);
        // Cross-traffic, four tenths of all, does not return its share of the shuffled feedback.
        // The router compensates for that at 0.6 · (shuffled + F) = shuffled, so F = 0.4 γ y = 50
        // kB/s. It keeps a queue of F d / β: with d = 62 ms, 13.7 kB, which are 16.5 packets of 833
        // bytes on average.
        assert!((steady.queue / 16.5 - 1.0).abs() < 0.1, "{}", steady.queue);
    }
    workload = "workload", |all| {
        assert_eq!(get(all, "regular").fcts.len() + get(all, "regular").unfinished, 600);
        assert_eq!(get(all, "hundred").fcts.len(), 100);
        // Two round trips, and one transmission on each link.
        assert!((get(all, "xcp-one-packet").mean_fct() - 0.101).abs() < 0.001);
        // A flow of 30 kB takes 30 840 bytes with headers.
        let fixed = get(all, "fixed");
        let offered = (fixed.fcts.len() + fixed.unfinished) as f64 * 30_840.0 * 8.0 / 30.0 / 10e6;
        assert!((fixed.used / offered - 1.0).abs() < 0.03);
    }
    changes = "changes", |all| {
        // XCP's queue stays empty at any rate, since the law receives changes of rate.
        assert!(get(all, "slower").queue < 2.0);
        assert!((get(all, "faster").total() / 15.0 - 1.0).abs() < 0.15, "{}", get(all, "faster").total());
        // Ten seconds of fifteen at half the capacity.
        assert!((get(all, "misstated").total() / (10.0 * 2.0 / 3.0) - 1.0).abs() < 0.02);
        assert!(get(all, "no-backoff").total() > 1.3 * get(all, "backoff").total());
    }
    parking_lot = "parking-lot", |all| {
        let xcp = get(all, "xcp");
        let ideal = [8.0 / 3.0, 11.0 / 3.0, 11.0 / 3.0, 8.0 / 3.0, 8.0 / 3.0];
        for (rate, ideal) in xcp.rates.iter().zip(ideal) {
            assert!((rate / ideal - 1.0).abs() < 0.1, "{:?}", xcp.rates);
        }
    }
    both_ways = "both-ways", |_all| {}
    encodings = "encodings", |all| {
        for name in ["acp", "tcp-option", "draft-2", "draft-3", "tcp-option-delayed", "draft-3-delayed"] {
            assert!(get(all, name).used > 0.98, "{name}");
        }
        // With the study's format of whole packets, feedback of less than a packet is lost.
        assert!(get(all, "whole-packets").used < 0.9);
    }
    buffers = "buffers", |all| {
        // Ten packets of 1500 bytes in a round trip of 51.3 ms, twice.
        for name in ["receive", "receive-bytes", "receive-half-bdp", "send", "receive-untold"] {
            assert!((get(all, name).total() / (2.0 * 120e-3 / 51.3e-3) - 1.0).abs() < 0.02, "{name}");
        }
        // Each asks by its round trip of the moment: 4.3 packets of 1 Mb/s in an empty one of 51 ms, five
        // in one that a queue made a sixth longer.
        assert!(get(all, "request").total() < 2.2);
    }
    sizes = "sizes", |all| {
        // Two round trips of 50 ms and transmission; one round trip without a handshake.
        assert!((get(all, "one-byte").mean_fct() - 0.1002).abs() < 0.0005);
        assert!((get(all, "no-handshake").mean_fct() - 0.052).abs() < 0.001);
        // A stopped flow did not complete.
        assert_eq!((get(all, "stopped").fcts.len(), get(all, "stopped").unfinished), (0, 2));
        assert_eq!(get(all, "ten").fcts.len(), 10);
        assert_eq!(get(all, "both-ways").fcts.len(), 4);
    }
    frames = "frames", |all| {
        assert!(all.iter().all(|o| o.fcts.len() == 2));
    }
}
