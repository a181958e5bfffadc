//! Replays the checked-in fuzz corpus (`fuzz/corpus`) through the functions that the fuzz targets run.

use std::path::Path;

use proptest::prelude::*;
use tollway_report::fuzzing;

#[test]
#[cfg(any(feature = "metrics", feature = "view"))]
fn http() {
    replay("http", fuzzing::http);
}

#[test]
#[cfg(target_os = "linux")]
fn standing() {
    replay("standing", fuzzing::standing);
}

#[test]
fn journal() {
    replay("journal", fuzzing::journal);
}

#[test]
fn reference() {
    replay("reference", fuzzing::reference);
}

#[test]
fn experiment() {
    replay("experiment", fuzzing::experiment);
}

proptest! {
    #[test]
    fn any_bytes(data in prop::collection::vec(any::<u8>(), 0..300)) {
        fuzzing::journal(&data);
    }

    #[test]
    fn any_rates(rows in prop::collection::vec("[0-9.e-]{1,4},(inf|nan|[0-9.e-]{0,4})", 0..6)) {
        fuzzing::reference(format!("time_s,f_mbps\n{}\n", rows.join("\n")).as_bytes());
    }

    /// A claim with any of the metrics and bounds, and no run.
    #[test]
    fn any_claim(
        metric in prop::sample::select(tollway_report::claim::Metric::ALL),
        bound in prop::sample::select(&["at-least", "at-most", "more-than", "less-than", "equals"][..]),
        value in "-?[0-9]|inf|nan|\\{ plus = 1 \\}",
        keys in "(link = \"\\*\"\n)?(flow = \"\\*\"\n)?(span = \"1 s\"\n)?(fraction = 0.5\n)?(capacity = \"1 Mbps\"\n)?(phases = true\n)?(name = \"\\*\"\n)?",
    ) {
        let metric = metric.name();
        let text = format!("[[claim]]\nid = \"a\"\nmetric = \"{metric}\"\n{bound} = {value}\n{keys}");
        fuzzing::experiment(text.as_bytes());
    }
}

/// Whole, and cut at every thirteenth byte.
fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 3);
    for file in files {
        let data = std::fs::read(file).unwrap();
        (0..data.len()).step_by(13).chain([data.len()]).for_each(|cut| run(&data[..cut]));
    }
}
