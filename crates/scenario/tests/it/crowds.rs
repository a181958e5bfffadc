//! Networks with too many links for a row of each.

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, RecordBatch};
use tollway_scenario::run::DigestMode;

use super::{finish, parse};

const SCENE: &str = r#"
name = "crowd"
duration = "4 s"
measure.warmup = "1 s"
[node.a]
count = 2
[node.r]
[node.b]
[node.z]
count = 32
[link.access]
from = "a"
to = "r"
rate = "2 Mbps"
delay = "10 ms"
limit = "20 packets"
[link.out]
from = "r"
to = "b"
rate = "2.5 Mbps"
delay = "1 ms"
limit = "20 packets"
[link.idle]
from = "z"
to = "r"
rate = "1 Mbps"
[flow.f]
from = "a"
to = "b"
law = "cubic"
"#;

/// A link's cell in `column`; `None` if it is null.
fn cell(batches: &[RecordBatch], link: &str, column: &str) -> Option<f64> {
    let batch = &batches[0];
    let names = batch.column_by_name("link").expect("links").as_string::<i32>();
    let row = names.iter().position(|name| name == Some(link)).expect("its row");
    let cells = batch.column_by_name(column).expect("a column").as_primitive::<Float64Type>();
    cells.is_valid(row).then(|| cells.value(row))
}

/// Queues of links without rows are null, not zero: every link with one flow queues packets here.
#[test]
fn a_queue_that_nobody_watches_has_no_length() {
    let of = |sets: &[&str]| finish(&parse(SCENE, sets).variants()[0].plan, DigestMode::Results).result;
    let (crowd, few) = (of(&[]), of(&["node.z.count=2"]));
    let queues = ["queue_mean_bytes", "queue_max_bytes", "queue_mean_packets", "queue_max_packets"];
    for column in queues {
        let few = cell(&few.link_summary, "access.1", column);
        assert!(few > Some(1.0), "{column}: {few:?}");
        assert_eq!(cell(&crowd.link_summary, "access.1", column), None, "{column}");
    }
    for column in queues.into_iter().chain(["utilisation", "capacity_mbps"]) {
        let [crowd, few] = [&crowd, &few].map(|result| cell(&result.link_summary, "out", column));
        assert_eq!(crowd, few, "{column}");
    }
    let [crowd, few] = [&crowd, &few].map(|result| cell(&result.link_summary, "access.1", "utilisation"));
    assert_eq!(crowd, few);
}
