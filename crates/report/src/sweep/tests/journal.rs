//! Fuzzing of the journal's parser.

use tollway_scenario::tables::Table;

use super::*;
use crate::sweep::table::batch;

/// Parses any bytes as the rest of a journal. The result is a table or an error, and a table
/// written again parses to the same.
pub(crate) fn read_anything(bytes: &[u8]) {
    let head = Head { tollway_sweep: "0".into(), scenario: String::new(), vary: Vec::new() };
    let _ = read(bytes, &head);
    let mut whole = serde_json::to_vec(&head).unwrap_or_default();
    whole.push(b'\n');
    whole.extend_from_slice(bytes);
    let Ok((_, done)) = read(&whole, &head) else { panic!("its own first line is refused") };
    for run in done.values() {
        let point = Point { values: Vec::new(), seed: run.seed, variant: run.variant.clone() };
        for table in [Table::Summary, Table::LinkSummary] {
            let _ = batch(table, &[], &[(&point, run)]);
        }
        let line = serde_json::to_string(run).unwrap_or_default();
        let again: Option<Done> = serde_json::from_str(&line).ok();
        assert_eq!(again.map(|again| serde_json::to_string(&again).unwrap_or_default()), Some(line));
    }
}
