//! Observation of a run.

use std::fmt;

use crate::tables::{FlowRow, LinkRow};

/// An observer of a run. It receives the rows of the interval tables as they are made, on the run's
/// thread.
///
/// It cannot change a run, but the run waits for each call.
pub trait Watch: fmt::Debug + Send + Sync {
    /// Receives a flow's row of an interval.
    fn flow(&self, variant: &str, row: &FlowRow<'_>);

    /// Receives a link direction's row of an interval.
    fn link(&self, variant: &str, row: &LinkRow<'_>);
}
