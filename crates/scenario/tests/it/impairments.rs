//! Impairments of wires other than independent loss, from scenario files.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt64Type};
use tollway_scenario::file::Scenario;
use tollway_scenario::run::{DigestMode, Finished};

use crate::{finish, parse};

/// Runs a flow over a wire of 30 ms in each direction; `keys` apply to the forward direction.
fn run(keys: &str, law: &str) -> Finished {
    let text = format!(
        "name = \"wire\"\nduration = \"20 s\"\nmeasure.interval = \"none\"\nnode.a = {{}}\nnode.b = {{}}\n\
         [link.wire]\nfrom = \"a\"\nto = \"b\"\nrate = \"10 Mbps\"\ndelay = \"30 ms\"\nlimit = \"2 BDP\"\n{keys}\n\
         [flow.f]\nfrom = \"a\"\nto = \"b\"\nlaw = \"{law}\"\n\
         [cbr.c]\nfrom = \"a\"\nto = \"b\"\nrate = \"1 Mbps\"\n"
    );
    finish(&parse(&text, &[]).variants()[0].plan, DigestMode::Packets)
}

fn number(finished: &Finished, column: &str, row: usize) -> f64 {
    let batch = &finished.result.summary[0];
    let column = batch.column_by_name(column).unwrap();
    match column.as_primitive_opt::<Float64Type>() {
        Some(numbers) => numbers.value(row),
        None => column.as_primitive::<UInt64Type>().value(row) as f64,
    }
}

#[test]
fn jitter_is_felt_in_round_trips_and_loses_nothing() {
    let plain = run("", "cubic");
    let kept = run("jitter = \"20 ms\"", "cubic");
    let added = number(&kept, "rtt_p50_ms", 0) - number(&plain, "rtt_p50_ms", 0);
    assert!(number(&kept, "lost_packets", 1) <= number(&plain, "lost_packets", 1) + 100.0);
    assert!(added > -40.0, "{added}");
    // Reordering misleads a sender that counts duplicate acknowledgements.
    let rate = |finished: &Finished| number(finished, "rate_mbps", 0);
    let free = run("jitter = \"20 ms\"\njitter-order = \"free\"", "cubic");
    assert!(rate(&free) < 0.7 * rate(&kept), "{} {}", rate(&free), rate(&kept));
}

#[test]
fn duplicates_damage_and_bursts_are_counted_and_conserved() {
    // The run fails if packets appear or vanish other than by these impairments.
    let doubled = run("duplicate = \"5%\"", "newreno");
    assert_eq!(number(&doubled, "lost_packets", 1), 0.0);
    assert!(number(&doubled, "goodput_mbps", 0) > 6.0);
    let damaged = run("corrupt = \"1%\"", "newreno");
    let (sent, lost) = (20.0 * 1e6 / 12e3, number(&damaged, "lost_packets", 1));
    assert!((0.003 * sent..0.02 * sent).contains(&lost), "{lost} of {sent}");
    assert!(damaged.result.systems.get("losses.wire.packets").is_some_and(|packets| packets > lost));
    // A loss of a twentieth on average, in bursts of ten packets.
    let bursts = "bursts = { to-bad = \"0.5%\", to-good = \"10%\" }";
    let burst = run(bursts, "newreno");
    let share = number(&burst, "lost_packets", 1) / sent;
    assert!((0.015..0.1).contains(&share), "{share}");
    // The same number of single losses reduces the rate more: the flow halves its window for each.
    let single = run("loss = 0.0476", "newreno");
    assert!(number(&burst, "rate_mbps", 0) > 1.3 * number(&single, "rate_mbps", 0));
}

#[test]
fn the_same_seed_is_the_same_run_and_the_way_back_has_its_own() {
    let keys = "jitter = \"5 ms\"\njitter-order = \"free\"\nreorder = 0.01\nreorder-delay = \"3 ms\"\nduplicate = 0.01\n\
                corrupt = 0.001\nbursts = { to-bad = 0.001, to-good = 0.3, in-bad = 0.5, in-good = 0.0001 }";
    let [one, two] = [keys, keys].map(|keys| run(keys, "cubic"));
    assert_eq!(one.run.digest, two.run.digest);
    let back = "reverse = { corrupt = 0.2, limit = \"50 packets\" }";
    let both = "symmetric = true\ncorrupt = 0.2\nreverse = { limit = \"50 packets\" }";
    let [back, both] = [back, both].map(|keys| run(keys, "cubic"));
    let lost = |finished: &Finished, link: &str| {
        finished.result.systems.get(&format!("losses.{link}.packets")).unwrap_or(0.0)
    };
    assert!(lost(&back, "wire") == 0.0 && lost(&back, "wire.reverse") > 50.0);
    assert!(lost(&both, "wire") > 50.0 && lost(&both, "wire.reverse") > 10.0);
}

#[test]
fn a_shared_medium_and_a_recording_are_shaken_too() {
    let dir = std::env::temp_dir().join(format!("tollway-shaken-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("t.trace"), "1\n2\n3\n4\n").unwrap();
    let shaken = "delay = \"5 ms\"\njitter = \"4 ms\"\njitter-order = \"free\"\nduplicate = 0.05\n";
    for (air, keys) in
        [("[medium.air]\nrate = \"10 Mbps\"\n", "medium = \"air\""), ("", "trace = \"t.trace\"")]
    {
        let text = format!(
            "name = \"wire\"\nduration = \"5 s\"\nmeasure.interval = \"none\"\nnode.a = {{}}\nnode.b = {{}}\n\
             {air}[link.wire]\nfrom = \"a\"\nto = \"b\"\nlimit = \"50 packets\"\n{keys}\n{shaken}\
             [flow.f]\nfrom = \"a\"\nto = \"b\"\nlaw = \"cubic\"\n"
        );
        std::fs::write(dir.join("s.toml"), text).unwrap();
        let scenario = Scenario::load::<&str>(&dir.join("s.toml"), &[]).unwrap();
        let finished = finish(&scenario.variants()[0].plan, DigestMode::Packets);
        assert!(number(&finished, "goodput_mbps", 0) > 2.0, "{keys}");
    }
    std::fs::remove_dir_all(dir).unwrap();
}
