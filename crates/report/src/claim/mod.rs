//! Claims: the required results of an experiment, as data.
//!
//! A claim measures a quantity in a run and compares it with a bound:
//!
//! ```toml
//! [[claim]]
//! id = "xcp.validation.utilisation"
//! says = "XCP uses the link"
//! variant = "xcp"
//! metric = "utilisation"
//! link = "bottleneck"
//! from = "20 s"
//! at-least = 0.97
//! ```
//!
//! **The measurement** is a [`Measurement`]: a [`Metric`], its link or flows, its variant and its
//! time. Without `from` and `until`, counts and peaks cover the whole run, and all other metrics
//! its second half. With `phases = true`, they cover the last half of each stretch between two
//! starts or ends of flows. A measurement has one value per flow, phase and span; [`Over`] reduces
//! them.
//!
//! **The bound** is one or more of `at-least`, `at-most`, `more-than`, `less-than`, `equals` and
//! `within = { of = …, percent = … }` (or `absolute = …`). Its right side is a number, or *the same
//! measurement with some keys set otherwise*: `more-than = { variant = "fifo" }`. `times` and
//! `plus` scale and shift it: `at-least = { variant = "newreno", plus = -0.01 }`.
//!
//! If the right side is a measurement with several values, the strictest counts. For `equals` and
//! `within` no value is the strictest, and each flow is compared with the one of the same name.
//!
//! A `variant` with a `*` makes one claim for each matching variant. The text that the star stands
//! for is added to its `id`, and replaces a `*` in a bound's variant.
//!
//! A `where` makes one claim for a part of the experiment's grid. Every variant there must meet the
//! bound, and the one with the least slack is shown. With `mean-of-variants = true`, their mean
//! must meet it. A `where` on a bound's right side names the counterpart of each variant:
//! `more-than = { where = { sender = "tcp" } }`.
//!
//! A claim is unmet if its measurement has no value (no such flow, an empty window, not a number),
//! and its verdict has the reason.

mod bound;
mod check;
mod judged;
mod ledger;
mod measure;
mod metric;
mod verdict;

pub use bound::{Bound, Distance, Side};
pub use check::{Context, check};
pub use judged::{JudgedError, Judgements};
pub use ledger::{Ledger, LedgerEntry, LedgerError};
pub use metric::{Measurement, Metric, Over, Phases, metrics_markdown};
pub use verdict::{AtNeighbour, ClaimVerdict, Reading, Report, Status};

pub(crate) use check::mean_value;
pub(crate) use verdict::number;

/// A claim, parsed and validated.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The id, as in `claims.md`, with a further word if one row there makes several claims.
    pub id: String,
    /// The statement, as text.
    pub says: String,
    /// The source; `None` for that of the experiment.
    pub source: Option<String>,
    /// A peer program without which the claim is skipped: `ns2`.
    pub needs: Option<String>,
    /// The measurement.
    pub measurement: Measurement,
    /// The bounds, all of which must hold.
    pub bounds: Vec<Bound>,
}

impl Claim {
    /// True if the claim is about the header encodings themselves, of which a run uses only a part.
    pub(crate) fn measures_codecs(&self) -> bool {
        self.measurement.name.as_deref().is_some_and(|name| name.starts_with("codec."))
    }
}
