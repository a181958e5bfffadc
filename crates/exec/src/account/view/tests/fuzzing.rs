//! Fuzzing of a browser's requests.

use tollway_proto::Change;

use super::*;
use crate::change::{LEAST_MBPS, MOST_MBPS};

/// Parses any text as a request. All resulting changes must be possible for a link.
pub(crate) fn hear(text: &str) {
    let face = |name: &str| LinkFace { name: name.into(), told: true };
    let Ok((link, changes)) = changes(&[face("down"), face("up")], text) else { return };
    assert!(link < 2);
    for change in changes {
        let right = match &change {
            Change::Rate(rate) | Change::Capacity(rate) => (LEAST_MBPS..=MOST_MBPS).contains(&rate.mbps()),
            Change::Delay(delay) => *delay <= Time::from_secs(60),
            Change::Losses(losses) => {
                losses.iter().all(|loss| loss.probability > 0.0 && loss.probability <= 1.0)
            }
            _ => false,
        };
        assert!(right, "{change:?}");
    }
}
