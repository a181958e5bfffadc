//! Subjects with a special meaning.

use crate::nats::subject::is_literal;

/// Prefix of subjects with an order.
pub(super) const ORDER: &[u8] = b"$TOLL.order.";
/// Prefix of subjects for the views of ordered subjects, as JSON.
pub(super) const VIEW: &[u8] = b"$TOLL.view.";
/// Prefix of subjects for messages that came back without a place in their order.
pub(super) const LOST: &[u8] = b"$TOLL.lost.";

/// The treatment of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Any other pattern.
    Plain,
    /// All sites deliver its messages in one order.
    Ordered,
    /// Its messages come only from this site.
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

    /// True if a subscription to this pattern is valid.
    pub(super) fn allows(self, pattern: &[u8], queue: Option<&[u8]>) -> bool {
        self == Kind::Plain || (queue.is_none() && is_literal(pattern))
    }
}
