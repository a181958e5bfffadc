//! Inlined laws: on the fast paths a call of the law would cost as much as its work.

use tollway_law::sender::{AnySender, Fcp, NewReno, SenderLaw, Xcp};

/// A law that is inlined on the fast paths.
pub(super) trait Inline: SenderLaw {
    /// The law, if it is this one.
    fn of(law: &mut AnySender) -> Option<&mut Self>;
}

impl Inline for NewReno {
    #[inline(always)]
    fn of(law: &mut AnySender) -> Option<&mut NewReno> {
        if let AnySender::NewReno(law) = law { Some(law) } else { None }
    }
}

impl Inline for Xcp {
    #[inline(always)]
    fn of(law: &mut AnySender) -> Option<&mut Xcp> {
        if let AnySender::Xcp(law) = law { Some(law) } else { None }
    }
}

impl Inline for Fcp {
    #[inline(always)]
    fn of(law: &mut AnySender) -> Option<&mut Fcp> {
        if let AnySender::Fcp(law) = law { Some(law) } else { None }
    }
}
