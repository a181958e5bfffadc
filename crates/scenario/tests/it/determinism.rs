//! Equal runs have equal digests: for any law, both kinds of digest, in parallel or alone,
//! repeatedly. A snapshot holds the values, so that a machine or compiler with different results is
//! noticed.

use std::fmt::Write;

use tollway_scenario::file::Scenario;
use tollway_scenario::run::DigestMode;

use crate::scenes::scene;
use crate::{finish, parse};

/// The digests of all variants, computed in parallel threads or one after the other.
fn digests(scenario: &Scenario, mode: DigestMode, beside: bool) -> Vec<u64> {
    let digest = |plan| finish(plan, mode).run.digest;
    if beside {
        return std::thread::scope(|scope| {
            let spawn = |variant| scope.spawn(move || digest(variant));
            let threads: Vec<_> = scenario.variants().iter().map(|v| spawn(&v.plan)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no run panics")).collect()
        });
    }
    scenario.variants().iter().map(|v| digest(&v.plan)).collect()
}

#[test]
fn digests_are_the_same_everywhere() {
    let mut text = String::new();
    for name in ["laws", "red", "loss", "workload", "both-ways", "medium", "changes"] {
        let scenario = parse(&scene(name), &["duration=12s"]);
        let results = digests(&scenario, DigestMode::Results, true);
        let packets = digests(&scenario, DigestMode::Packets, true);
        assert_eq!(results, digests(&scenario, DigestMode::Results, false), "{name}");
        assert_eq!(packets, digests(&scenario, DigestMode::Packets, false), "{name}");
        for ((variant, results), packets) in scenario.variants().iter().zip(results).zip(packets) {
            writeln!(text, "{name:<10} {:<22} {results:016x} {packets:016x}", variant.name)
                .expect("text grows");
        }
    }
    insta::assert_snapshot!("digests", text);
}

#[test]
fn a_seed_moves_what_is_random_and_nothing_else() {
    for (name, variant, random) in [
        ("laws", "newreno-tail", false),
        ("laws", "xcp-xcp", false),
        ("laws", "newreno-red", true),
        ("loss", "after", true),
        ("workload", "pareto", true),
        ("workload", "regular", true),
    ] {
        let of = |seed: &str| {
            let scenario = parse(&scene(name), &["duration=12s", seed]);
            let plan = &scenario.variant(variant).expect("it is there").plan;
            finish(plan, DigestMode::Packets).run.digest
        };
        assert_eq!(of("seed=1") != of("seed=2"), random, "{name} {variant}");
    }
}

/// Neither a watcher nor progress calls change a run.
#[test]
fn watching_changes_nothing() {
    use tollway_scenario::run::{Options, run};
    for name in ["workload", "medium", "changes", "both-ways"] {
        for variant in parse(&scene(name), &["duration=12s"]).variants() {
            let look = |_: f64| true;
            for digest in [DigestMode::Results, DigestMode::Packets] {
                let options = Options { progress: Some(&look), digest, ..Options::default() };
                let watched = run(&variant.plan, &options).expect("it runs").run.digest;
                assert_eq!(watched, finish(&variant.plan, digest).run.digest, "{name} {}", variant.name);
            }
        }
    }
}
