//! Claims: what an experiment must show, as data.
//!
//! A claim measures something in a run and holds it against a bound:
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
//! **What is measured** is a [`Measurement`]: a [`Metric`], of which link or flows, in which variant, over which time.
//! Without `from` and `until`, counts and peaks are over the whole run, everything else over its second half; with
//! `phases = true`, over the last half of each stretch between two starts or ends of flows. A measurement has as many values
//! as there are flows, phases and spans; [`Over`] says what becomes of them.
//!
//! **The bound** is one or more of `at-least`, `at-most`, `more-than`, `less-than`, `equals` and
//! `within = { of = …, percent = … }` (or `absolute = …`). Its right side is a number, or *the same measurement with some keys
//! set otherwise*: `more-than = { variant = "fifo" }`, scaled and shifted by `times` and `plus`:
//! `at-least = { variant = "newreno", plus = -0.01 }`.
//!
//! Where the right side is a measurement with several values, the strictest counts; `equals` and `within`, which know no
//! strictest, hold each flow against the one of the same name.
//!
//! A `variant` with a `*` makes one claim of each variant that matches, its `id` extended by what the star stands for, and a `*`
//! in a bound's variant stands for the same.
//!
//! A `where` makes one claim of a whole part of the experiment's grid: every variant there must keep the bound, and the one with the
//! least to spare is shown; with `mean-of-variants = true` their mean must. A `where` on a bound's right side names the variant beside it: `more-than = { where = { sender = "tcp" } }`.
//!
//! A claim whose measurement has no value (no such flow, nothing in the window, not a number) is unmet and says why.

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
pub use verdict::{AtNeighbour, Reading, Report, Status, Verdict};

pub(crate) use check::mean_value;
pub(crate) use verdict::number;

/// A claim, read and checked for sense.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Its name, as in `claims.md`, with a further word where a row of it makes several claims.
    pub id: String,
    /// What it says, for people.
    pub says: String,
    /// Where it comes from, if not from where the whole experiment does.
    pub source: Option<String>,
    /// A peer program without which the claim is skipped: `ns2`.
    pub needs: Option<String>,
    /// What to measure.
    pub measurement: Measurement,
    /// The bounds, all of which must hold.
    pub bounds: Vec<Bound>,
}

impl Claim {
    /// Whether it is about the header encodings themselves, which no run exercises whole.
    pub(crate) fn measures_codecs(&self) -> bool {
        self.measurement.name.as_deref().is_some_and(|name| name.starts_with("codec."))
    }
}
