//! Files of other programs: whatever they hold is read or refused, with a place in them.

use tollway_scenario::import::{self, ImportError};

/// GraphML.
pub fn graphml(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match import::graphml(text) {
        Err(error) => placed(text, &error),
        Ok(graph) => {
            assert!(!graph.nodes.is_empty());
            for edge in &graph.edges {
                assert!(edge.from.max(edge.to) < graph.nodes.len());
                assert!(edge.rate.is_none_or(|rate| rate.bps() > 0.0 && rate.bps().is_finite()));
                let (from, to) = (&graph.nodes[edge.from], &graph.nodes[edge.to]);
                if let (Some(from), Some(to)) = (from.position, to.position) {
                    assert!((0.0..20_100.0).contains(&from.km_to(to)), "{from:?} {to:?}");
                }
            }
            let words =
                graph.nodes.iter().map(|node| import::word(node.label.as_deref().unwrap_or(&node.id)));
            let names = import::unique(words.collect());
            let all: std::collections::HashSet<&String> = names.iter().collect();
            assert_eq!(all.len(), names.len());
        }
    }
}

/// A link's trace.
pub fn trace(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match import::trace(text) {
        Err(error) => placed(text, &error),
        Ok(trace) => {
            let period = trace.period();
            let whole = trace.bytes_between(tollway_law::Time::ZERO, period);
            // Those at 0 come before anything can.
            assert!(whole > 0 && trace.mean_rate().bytes_per_sec() > 0.0);
            let peak = trace.peak_rate(period);
            assert!((peak.bytes_per_sec() / trace.mean_rate().bytes_per_sec() - 1.0).abs() < 1e-9);
        }
    }
}

/// A distribution of sizes.
pub fn sizes(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match import::sizes(text) {
        Err(error) => placed(text, &error),
        Ok(points) => {
            assert!(points.windows(2).all(|w| w[0].size <= w[1].size && w[0].cumulative <= w[1].cumulative));
            assert_eq!(points.last().map(|point| point.cumulative), Some(1.0));
            let mean = tollway_scenario::plan::Sizes::Empirical(points).mean();
            assert!(mean.is_finite() && mean >= 0.0);
        }
    }
}

fn placed(text: &str, error: &ImportError) {
    assert!(text.get(error.span.clone()).is_some(), "{error:?}");
    assert!(!error.message.is_empty() && !error.help.is_empty());
}
