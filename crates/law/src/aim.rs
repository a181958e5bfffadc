//! Allocations that laws aim at.

/// An allocation that a control law steers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// The equilibrium of XCP's feedback (Low, Andrew & Wydrowski, INFOCOM 2005).
    XcpEquilibrium,
    /// Weighted max–min fairness.
    MaxMin,
    /// Weighted proportional fairness. FCP's weights are what flows may spend.
    Proportional,
    /// Max–min fairness among sessions, then among the flows of each. It is the aim of a switch.
    SessionFair,
}

impl Aim {
    /// Every aim of a sender's law.
    pub const ALL: [Aim; 3] = [Aim::XcpEquilibrium, Aim::MaxMin, Aim::Proportional];

    /// Its name in results: `xcp-equilibrium`, `max-min`, `proportional`, `session-fair`.
    pub const fn name(self) -> &'static str {
        match self {
            Aim::XcpEquilibrium => "xcp-equilibrium",
            Aim::MaxMin => "max-min",
            Aim::Proportional => "proportional",
            Aim::SessionFair => "session-fair",
        }
    }

    /// Its name in a sentence.
    pub const fn title(self) -> &'static str {
        match self {
            Aim::XcpEquilibrium => "XCP's equilibrium",
            Aim::MaxMin => "max–min fairness",
            Aim::Proportional => "proportional fairness",
            Aim::SessionFair => "fairness among sessions",
        }
    }
}
