//! The faults of a link, and the machine that watches its wire.

use tollway_proto::{Faults, Gate};

use crate::network::MachineId;

/// The faults of a link, and the machine that watches its wire.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub(crate) watch: Option<(MachineId, Gate)>,
    pub(crate) faults: Faults,
}
