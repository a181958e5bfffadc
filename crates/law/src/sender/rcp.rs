//! RCP's sender (IWQoS 2005; after the authors' ns-2 code): it sends at the rate that the path
//! states.

use super::config::fixed;
use super::fcp::config::LONGEST_PAUSE;
use super::fcp::{Peak, longest_pause};
use super::{Acked, AnySender, Descriptor, Flight, SenderConfig, SenderLaw, Sending};
use crate::param::Entry;
use crate::toll::Content;
use crate::{Aim, Rate, Toll};

/// RCP's sender: sends at the routers' rate from the handshake on, evenly spaced.
///
/// Where packets are more than a round trip apart, the authors' code sends probes of 40 bytes to
/// learn new rates. Here a full packet leaves at least every four round trips or quarter of a
/// second.
#[derive(Clone, Debug, Default)]
pub struct Rcp {
    rate: Option<f64>,
    window: Peak,
}

/// The factory of [`Rcp`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RcpConfig;

impl RcpConfig {
    pub(super) const ENTRY: Entry<dyn SenderConfig> = fixed::<RcpConfig>("rcp");
}

impl SenderConfig for RcpConfig {
    fn word(&self) -> &str {
        Self::ENTRY.word
    }

    fn descriptor(&self) -> Descriptor {
        Descriptor { aim: Some(Aim::MaxMin), ..Descriptor::needing(Content::Rate) }
    }

    fn make(&self, _: &Sending<'_>) -> AnySender {
        Rcp::new().into()
    }
}

impl Rcp {
    /// A law without a rate yet.
    pub fn new() -> Rcp {
        Rcp::default()
    }

    #[inline]
    fn floored(&self, rate: f64, flight: &Flight) -> f64 {
        rate.max(f64::from(flight.segment) / longest_pause(flight.srtt.as_secs_f64(), LONGEST_PAUSE))
    }
}

impl SenderLaw for Rcp {
    /// Twice the volume in flight at the highest recent rate: a limit only if acknowledgements
    /// stop.
    #[inline]
    fn window(&self) -> f64 {
        if self.rate.is_some() { self.window.segments } else { 1.0 }
    }

    #[inline]
    fn pacing_rate(&self, flight: &Flight) -> Option<Rate> {
        self.rate.map(|rate| Rate::from_bytes_per_sec(self.floored(rate, flight)))
    }

    #[inline]
    fn tolled(&self) -> bool {
        true
    }

    #[inline]
    fn tolls_first(&self) -> bool {
        true
    }

    #[inline]
    fn write_toll(&mut self, flight: &Flight, toll: &mut Toll) {
        toll.due = f64::INFINITY;
        toll.rtt = flight.srtt.as_secs_f64() as f32;
        toll.offer = 0.0;
        toll.stake = 0.0;
    }

    #[inline]
    fn on_ack(&mut self, flight: &Flight, acked: &Acked) {
        // A path without a router that knows RCP leaves the question unanswered, infinite: one
        // packet a round trip, then.
        if let Some(echo) = acked.echo.filter(|echo| *echo >= 0.0 && echo.is_finite()) {
            self.rate = Some(f64::from(echo).min(MOST));
        }
        if let Some(rate) = self.rate {
            self.window.note(flight, self.floored(rate, flight));
        }
    }

    /// No effect: routers signal congestion.
    fn on_loss(&mut self, _: &Flight) {}

    /// Halves the rate, since feedback has stopped.
    fn on_timeout(&mut self, _: &Flight, _: bool) {
        self.rate = self.rate.map(|rate| rate / 2.0);
    }
}

/// 1 Tb/s in bytes/s, above any link.
const MOST: f64 = 1.25e11;

#[cfg(test)]
mod tests {
    use super::super::testing::{acked, flight};
    use super::*;
    use crate::Time;

    #[test]
    fn sends_at_the_rate_it_is_told_and_asks_for_all() {
        let mut law = Rcp::new();
        let now = flight(Time::from_secs(1), 0);
        assert!(law.pacing_rate(&now).is_none() && law.window() == 1.0);
        let mut toll = Toll::default();
        law.write_toll(&now, &mut toll);
        assert_eq!((toll.due, toll.rtt), (f64::INFINITY, 0.1));
        law.on_ack(&now, &Acked { echo: Some(1e6), ..acked(0) });
        assert_eq!(law.pacing_rate(&now).map(Rate::bytes_per_sec), Some(1e6));
        // Twice 1e6 B/s for 0.1 s.
        assert!((law.window() - 2e5 / 1500.0).abs() < 1e-9);
        law.on_ack(&now, &Acked { echo: Some(f32::NAN), ..acked(1) });
        law.on_timeout(&now, true);
        assert_eq!(law.pacing_rate(&now).map(Rate::bytes_per_sec), Some(5e5));
        law.on_ack(&now, &Acked { echo: Some(0.0), ..acked(1) });
        assert_eq!(law.pacing_rate(&now).map(Rate::bytes_per_sec), Some(1500.0 / 0.4));
    }
}
