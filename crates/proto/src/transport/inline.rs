//! Laws in line: where packets come and go one like another, a call to the law costs as much as
//! what it says.

use tollway_law::sender::{AnySender, Fcp, NewReno, SenderLaw, Xcp};

/// A law that can be in line where packets come and go one like another.
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
