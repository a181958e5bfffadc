//! The subjects that have a meaning of their own.

use crate::nats::subject::is_literal;

/// Subjects with an order.
pub(super) const ORDER: &[u8] = b"$TOLL.order.";
/// The views of such subjects, as JSON.
pub(super) const VIEW: &[u8] = b"$TOLL.view.";
/// Messages to such subjects that came back without a place.
pub(super) const LOST: &[u8] = b"$TOLL.lost.";

/// The treatment of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Any other.
    Plain,
    /// All sites have its messages in one order.
    Ordered,
    /// Its messages come from this site only.
    Local,
}

impl Kind {
    pub(super) fn of(pattern: &[u8]) -> Kind {
        match pattern {
            _ if pattern.starts_with(ORDER) => Kind::Ordered,
            _ if pattern.starts_with(VIEW) || pattern.starts_with(LOST) => Kind::Local,
            _ => Kind::Plain,
        }
    }

    /// True if there can be such a subscription.
    pub(super) fn allows(self, pattern: &[u8], queue: Option<&[u8]>) -> bool {
        self == Kind::Plain || (queue.is_none() && is_literal(pattern))
    }
}
