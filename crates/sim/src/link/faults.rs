//! What goes wrong on a link, and the meter at its far end.

use tollway_proto::{Faults, Gate};

use crate::network::MachineId;

/// The faults of a link, and the meter at its far end.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub(crate) watch: Option<(MachineId, Gate)>,
    pub(crate) faults: Faults,
}
