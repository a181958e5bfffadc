//! What goes wrong on a link, and the meter at its far end.

use tollway_proto::{Faults, Watch};

/// The faults of a link, and the meter at its far end.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub(crate) watch: Option<Watch>,
    pub(crate) faults: Faults,
}
