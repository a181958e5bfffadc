//! No input causes a panic.

use proptest::prelude::*;

use tollway_law::{Bytes, Rate, Time};

use super::{BASE, parse, plan, show};
use crate::plan::Data;

/// Parses a scenario, and formats its mistakes if there are any.
fn try_it(text: &str, sets: &[&str]) {
    if let Err(e) = parse(text, sets) {
        assert!(!e.mistakes().is_empty());
        show(&e);
    }
}

const RICH: &str = include_str!("../../../../../papers/xcp/validation.toml");

/// A text that replaces a part of a file.
fn scrap() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ -~\n]{0,6}",
        Just("\"\"".to_owned()),
        Just("-1".to_owned()),
        Just("1e400".to_owned()),
        Just("9223372036854775807".to_owned()),
        Just("{ first = \"1 s\" }".to_owned()),
        Just("[[change]]\nat = \"1 s\"\n".to_owned()),
        Just("\"18e18 ns\"".to_owned()),
        Just("\"1 BDP\"".to_owned()),
        Just("é\u{10ffff}".to_owned()),
        Just("s.2".to_owned()),
        Just("[variant.x]\n".to_owned()),
        Just("[grid.x]\nset = \"seed\"\nto = [1, 2]\n".to_owned()),
        Just("[grid.x.y]\n".to_owned()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_text(text in "(?s).{0,200}") {
        try_it(&text, &[]);
    }

    #[test]
    fn a_spoiled_file(place in 0.0f64..1.0, cut in 0usize..12, scrap in scrap(), rich in any::<bool>()) {
        let file = if rich { RICH } else { BASE };
        let chars: Vec<char> = file.chars().collect();
        let start = (place * chars.len() as f64) as usize;
        let end = (start + cut).min(chars.len());
        let text: String =
            chars[..start].iter().copied().chain(scrap.chars()).chain(chars[end..].iter().copied()).collect();
        // A count of a million is valid, but slow.
        prop_assume!(!text.contains("count = 4") || !text.contains("count = 49") );
        try_it(&text, &[]);
    }

    #[test]
    fn a_spoiled_value(line in 0usize..200, scrap in scrap()) {
        let count = RICH.lines().count();
        let text: String = RICH
            .lines()
            .enumerate()
            .map(|(i, l)| match l.split_once('=') {
                Some((key, _)) if i == line % count => format!("{key}={scrap}\n"),
                _ => format!("{l}\n"),
            })
            .collect();
        try_it(&text, &[]);
    }

    #[test]
    fn what_is_printed_is_read_back(ns in 0u64..1 << 50, bps in 1.0f64..1e12, bytes in 1u64..1 << 50) {
        let (time, rate, bytes) = (Time(ns), Rate::from_bps(bps), Bytes(bytes));
        let sets = [
            format!("flow.f.start={time}"),
            format!("link.bottleneck.rate={rate}"),
            format!("flow.f.size={bytes}"),
        ];
        let p = plan(BASE, &sets.each_ref().map(|s| s.as_str()));
        // Doubles in between cost a few parts in 2^53.
        prop_assert!(p.flows[0].start.0.abs_diff(ns) <= ns >> 50);
        prop_assert!((p.links[8].rate.bps() / bps - 1.0).abs() < 1e-14);
        let Data::Bytes(size) = p.flows[0].data else { panic!() };
        prop_assert!(size.abs_diff(bytes.get()) <= bytes.get() >> 50);
    }

    #[test]
    fn any_set(path in "[a-z.*0-9-]{0,24}", value in scrap(), known in 0usize..6) {
        let start = ["link.bottleneck", "flow.f", "node.s", "measure", "variant", "flow.f.start"][known];
        try_it(BASE, &[&format!("{start}.{path}={value}")]);
        try_it(RICH, &[&format!("{path}={value}"), &format!("{start}={value}")]);
    }
}

#[test]
fn depth_is_no_danger() {
    try_it(&"a.".repeat(100_000), &[]);
    try_it(&format!("[{}a]", "a.".repeat(100_000)), &[]);
    try_it(&"[".repeat(100_000), &[]);
    try_it(&format!("x = {}", "{a=".repeat(100_000)), &[]);
    try_it(BASE, &[&format!("{}=1", "a.".repeat(100_000)), &format!("seed={}", "[".repeat(100_000))]);
}
