//! Looking on while a run goes.

use std::fmt;

use crate::tables::{FlowRow, LinkRow};

/// Somebody who looks on: told the rows of the interval tables as they are made, from the thread that runs.
///
/// Nothing that it does changes a run, but a run waits for it.
pub trait Watch: fmt::Debug + Send + Sync {
    /// What a flow did in an interval.
    fn flow(&self, variant: &str, row: &FlowRow<'_>);

    /// What a link direction did in an interval.
    fn link(&self, variant: &str, row: &LinkRow<'_>);
}
