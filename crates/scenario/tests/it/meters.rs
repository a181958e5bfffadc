//! Meters detect every kind of cheat and accuse no honest sender. The honest senders run in a
//! thousand random networks with all impairments.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tollway_scenario::run::{DigestMode, Finished};

use crate::{finish, parse};

/// Number of random networks.
const RUNS: u64 = 1000;

/// True with probability `p`.
fn chance(rng: &mut Pcg64Mcg, p: f64) -> bool {
    rng.random::<f64>() < p
}

/// A random number between two bounds, uniform in its logarithm.
fn spread(rng: &mut Pcg64Mcg, low: f64, high: f64) -> f64 {
    low * libm::pow(high / low, rng.random::<f64>())
}

fn one_of<'a>(rng: &mut Pcg64Mcg, of: &[&'a str]) -> &'a str {
    of[rng.random_range(0..of.len())]
}

/// A scenario with one to five hosts, each behind a metered link, over a bottleneck to one
/// receiver.
fn honest(seed: u64) -> String {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    write_honest(&mut rng, seed).expect("text grows")
}

/// Properties of the network that the flows of an honest scenario depend on.
#[derive(Clone, Copy)]
struct Bottleneck {
    mbps: f64,
    base_ms: f64,
    seconds: f64,
    duplex: bool,
}

/// Writes a host behind a meter, and its flow.
fn write_host(t: &mut String, rng: &mut Pcg64Mcg, i: usize, of: Bottleneck) -> std::fmt::Result {
    let Bottleneck { mbps, base_ms, seconds, duplex } = of;
    let access =
        if chance(rng, 0.15) { mbps * rng.random_range(0.5..1.5) } else { mbps * spread(rng, 2.0, 50.0) };
    let limit = one_of(rng, &["unlimited", "100 packets", "1 BDP"]);
    writeln!(t, "[node.s{i}]\n[link.a{i}]\nfrom = \"s{i}\"\nto = \"r\"\nrate = \"{access} Mbps\"")?;
    writeln!(
        t,
        "delay = \"{} ms\"\nlimit = \"{limit}\"\nmeter = {{ enforce = {} }}",
        spread(rng, 0.1, 60.0),
        chance(rng, 0.5)
    )?;
    let late = if chance(rng, 0.5) { 0.0 } else { rng.random_range(0.0..seconds * 0.7) };
    writeln!(t, "[flow.f{i}]\nfrom = \"s{i}\"\nto = \"d\"\nlaw = \"xcp\"\nstart = \"{late} s\"")?;
    writeln!(t, "count = {}", if chance(rng, 0.8) { 1 } else { 3 })?;
    writeln!(t, "encoding = \"{}\"", one_of(rng, &["acp", "tcp-option", "draft-2", "draft-3"]))?;
    match rng.random_range(0..4) {
        0 => writeln!(t, "size = {}", spread(rng, 2e3, 3e6) as u64)?,
        1 => writeln!(
            t,
            "frames = {{ count = {}, size = {} }}",
            rng.random_range(1..300),
            spread(rng, 50.0, 2e4) as u64
        )?,
        _ => {}
    }
    if chance(rng, 0.15) {
        writeln!(t, "stop = \"{} s\"", late + rng.random_range(0.1..seconds))?;
    }
    if chance(rng, 0.3) {
        writeln!(t, "receive-buffer = \"{} packets\"", spread(rng, 2.0, 100.0) as u32)?;
    }
    if chance(rng, 0.1) {
        writeln!(t, "send-buffer = \"{} packets\"", spread(rng, 2.0, 100.0) as u32)?;
    }
    if chance(rng, 0.4) {
        writeln!(t, "delayed-ack = \"{} ms\"", spread(rng, 10.0, 200.0))?;
    }
    if chance(rng, 0.3) {
        writeln!(t, "initial-window = {}", rng.random_range(1..=10))?;
    }
    writeln!(
        t,
        "{}",
        one_of(
            rng,
            &["sack = false", "sack = true", "loss-detection = \"rack\"", "loss-detection = \"newreno\""]
        )
    )?;
    writeln!(t, "handshake = {}\nboth-ways = {}", chance(rng, 0.8), duplex && chance(rng, 0.7))?;
    if chance(rng, 0.2) {
        writeln!(t, "packet-size = {}", rng.random_range(300..9000))?;
    }
    if chance(rng, 0.2) {
        writeln!(t, "rto = {{ fixed = \"{} ms\" }}", 700.0 + 4.0 * base_ms)?;
    }
    if chance(rng, 0.2) {
        writeln!(t, "receive-window = {{ growth = \"{}\" }}", one_of(rng, &["per-packet", "feedback"]))?;
    }
    writeln!(t, "[flow.f{i}.xcp]\non-loss = \"{}\"", one_of(rng, &["keep", "halve"]))?;
    writeln!(t, "advertise-limit = {}\npacing = {}", chance(rng, 0.7), chance(rng, 0.3))?;
    writeln!(t, "whole-window = {}", chance(rng, 0.2))?;
    if chance(rng, 0.2) {
        writeln!(t, "aging = 0.5")?;
    }
    if chance(rng, 0.2) {
        writeln!(t, "request = \"{} Mbps\"", mbps * spread(rng, 0.05, 1.5))?;
    }
    Ok(())
}

fn write_honest(rng: &mut Pcg64Mcg, seed: u64) -> Result<String, std::fmt::Error> {
    let hosts = rng.random_range(1..=5);
    let mbps = spread(rng, 1.0, 20.0);
    let base_ms = spread(rng, 2.0, 200.0);
    let seconds = (base_ms * 0.1).clamp(6.0, 20.0) * rng.random_range(0.5..1.5);
    let mut t = format!(
        "name = \"honest\"\nduration = \"{seconds} s\"\nseed = {seed}\n[measure]\ninterval = \"none\"\n[node.r]\n[node.q]\n[node.d]\n"
    );
    writeln!(
        t,
        "[link.bottleneck]\nfrom = \"r\"\nto = \"q\"\nrate = \"{mbps} Mbps\"\ndelay = \"{base_ms} ms\""
    )?;
    writeln!(
        t,
        "law = \"xcp\"\nlimit = \"{}\"",
        one_of(rng, &["2 BDP", "1 BDP", "30 packets", "unlimited"])
    )?;
    if chance(rng, 0.2) {
        writeln!(t, "capacity = \"{} Mbps\"", mbps * rng.random_range(0.6..1.6))?;
    }
    writeln!(t, "xcp = {{ form = \"{}\" }}", one_of(rng, &["throughput", "throughput", "window"]))?;
    let duplex = chance(rng, 0.3);
    if duplex {
        writeln!(t, "[link.bottleneck.reverse]\nlaw = \"xcp\"\nlimit = \"200 packets\"")?;
    } else if chance(rng, 0.2) {
        writeln!(t, "[link.bottleneck.reverse]\nrate = \"{} Mbps\"", mbps * spread(rng, 0.03, 1.0))?;
    }
    // Sometimes a narrower drop-tail link follows.
    let last = if chance(rng, 0.1) { mbps * rng.random_range(0.7..1.0) } else { mbps * 10.0 };
    writeln!(t, "[link.last]\nfrom = \"q\"\nto = \"d\"\nrate = \"{last} Mbps\"\ndelay = \"1 ms\"")?;
    if duplex {
        writeln!(t, "[link.last.reverse]\nlaw = \"xcp\"")?;
    }
    let bottleneck = Bottleneck { mbps, base_ms, seconds, duplex };
    for i in 0..hosts {
        write_host(&mut t, rng, i, bottleneck)?;
    }
    for _ in 0..rng.random_range(0..3) {
        let i = rng.random_range(0..hosts);
        let link = one_of(rng, &["bottleneck", "last", "access"]).replace("access", &format!("a{i}"));
        let direction = one_of(rng, &["forward", "reverse", "both"]);
        let (only, place) = (one_of(rng, &["all", "data", "ack"]), one_of(rng, &["before", "after"]));
        writeln!(
            t,
            "[[loss]]\nlink = \"{link}\"\ndirection = \"{direction}\"\nprobability = {}\nonly = \"{only}\"\nplace = \"{place}\"",
            spread(rng, 0.001, 0.05)
        )?;
    }
    for _ in 0..rng.random_range(0..3) {
        let i = rng.random_range(0..hosts);
        let link = one_of(rng, &["bottleneck", "bottleneck", "access"]).replace("access", &format!("a{i}"));
        writeln!(t, "[[change]]\nat = \"{} s\"", rng.random_range(0.1..seconds))?;
        match rng.random_range(0..5) {
            0 => writeln!(t, "link = \"{link}\"\nblackout = \"{} s\"", spread(rng, 0.05, 3.0))?,
            1 => writeln!(t, "link = \"bottleneck\"\ndelay = \"{} ms\"", base_ms * spread(rng, 0.3, 3.0))?,
            2 => writeln!(t, "link = \"bottleneck\"\nrate = \"{} Mbps\"", mbps * spread(rng, 0.4, 2.5))?,
            3 => writeln!(
                t,
                "link = \"bottleneck\"\ndirection = \"reverse\"\nblackout = \"{} s\"",
                spread(rng, 0.05, 3.0)
            )?,
            _ => writeln!(
                t,
                "flow = \"f{i}*\"\nreceive-buffer = \"{} packets\"",
                spread(rng, 2.0, 200.0) as u32
            )?,
        }
    }
    if chance(rng, 0.3) {
        writeln!(
            t,
            "[cbr.c]\nfrom = \"s0\"\nto = \"d\"\nrate = \"{} Mbps\"\non = \"300 ms\"\noff = \"700 ms\"",
            mbps * rng.random_range(0.1..0.7)
        )?;
    }
    if chance(rng, 0.2) {
        writeln!(
            t,
            "[workload.w]\nfrom = \"s0\"\nto = \"d\"\nlaw = \"{}\"",
            one_of(rng, &["xcp", "newreno"])
        )?;
        writeln!(
            t,
            "arrivals = {{ poisson = 5 }}\nsizes = {{ pareto = {{ mean = \"30 kB\", shape = 1.3 }} }}"
        )?;
    }
    Ok(t)
}

/// The time of each accusation, by host or flow and offence.
fn accused(run: &Finished) -> BTreeMap<String, f64> {
    let offence = |path: String| Some(path.strip_prefix("accusations.")?.strip_suffix(".at_s")?.to_owned());
    run.result.systems.numbers().filter_map(|(path, at)| Some((offence(path)?, at))).collect()
}

#[test]
fn nobody_honest_is_accused() {
    let (next, flows) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut wrong: Vec<String> = std::thread::scope(|scope| {
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let work = || {
            let mut wrong = Vec::new();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= RUNS {
                    return wrong;
                }
                let scenario = parse(&honest(seed), &[]);
                let run = finish(&scenario.variants()[0].plan, DigestMode::Results);
                flows.fetch_add(run.result.systems.get("meters.flows").unwrap() as u64, Ordering::Relaxed);
                if run.result.systems.get("meters.accused") > Some(0.0) {
                    wrong.push(format!("{seed:>4}: {:?} of {:?}", run.result.systems, accused(&run)));
                }
            }
        };
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect()
    });
    wrong.sort();
    assert!(wrong.is_empty(), "{} of {RUNS}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(flows.into_inner() > 2 * RUNS);
}

/// The accusations in a run with three honest flows, and a cheat from 10 s on.
fn with_cheat(trick: &str) -> Vec<(String, f64)> {
    let text = format!(
        r#"
name = "cheat"
duration = "20 s"
[measure]
interval = "none"
[node.s]
count = 4
[node.r]
[node.d]
[link.access]
from = "s"
to = "r"
rate = "100 Mbps"
delay = {{ first = "1 ms", last = "30 ms" }}
meter = {{}}
[link.bottleneck]
from = "r"
to = "d"
rate = "10 Mbps"
delay = "25 ms"
law = "xcp"
[flow.honest]
from = "s.1"
to = "d"
law = "xcp"
count = 3
start = "10 s"
[flow.cheat]
from = "s.4"
to = "d"
law = "xcp"
xcp = {{ cheat = {trick} }}
"#
    );
    let run = finish(&parse(&text, &[]).variants()[0].plan, DigestMode::Results);
    accused(&run).into_iter().collect()
}

#[test]
fn every_cheat_is_found_for_what_it_does() {
    for (trick, offence) in [
        ("{ trick = \"ignore-negative\", from = \"10 s\" }", "overdrawn"),
        ("{ trick = \"understate-window\", from = \"10 s\" }", "window-understated"),
        ("{ trick = \"overstate-rtt\", from = \"10 s\" }", "rtt-overstated"),
        ("{ trick = \"understate-rtt\", from = \"10 s\" }", "rtt-understated"),
        ("{ trick = \"understate-window\", factor = 1.5, from = \"10 s\" }", "window-understated"),
    ] {
        let found = with_cheat(trick);
        let [(who, at)] = &found[..] else { panic!("{trick}: {found:?}") };
        assert_eq!(who, &format!("cheat.{offence}"));
        // Twenty round trips of 110 ms.
        assert!((10.0..12.2).contains(at), "{trick}: {at}");
    }
}
