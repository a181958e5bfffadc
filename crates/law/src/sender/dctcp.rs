//! DCTCP (RFC 8257; Alizadeh et al., SIGCOMM 2010): a reduction in proportion to marks.

use super::config::fixed;
use super::{
    Acked, AnySender, Descriptor, Ecn, Flight, MIN_SSTHRESH, NewReno, NewRenoConfig, SenderConfig, SenderLaw,
    Sending,
};
use crate::param::Entry;

/// NewReno's window, but a mark reduces it by α/2 instead of a half. α is the fraction of marked
/// segments, averaged over windows of data.
///
/// It relies on an exact echo: each acknowledgement says whether the segments it covers were marked
/// (§ 3.2).
#[derive(Clone, Debug)]
pub struct Dctcp {
    reno: NewReno,
    /// α, 0 to 1.
    alpha: f64,
    gain: f64,
    /// Segments acknowledged cumulatively since the start.
    acked: u64,
    /// The value of `acked` at which the observation window ends.
    window_end: u64,
    /// The value of `acked` up to which segments were sent before the last reduction.
    reduced_end: u64,
    /// Segments acknowledged in this observation window, and those of them that were marked.
    seen: u64,
    marked: u64,
}

/// The parameters of [`Dctcp`], and its factory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DctcpConfig {
    /// Window at the start, segments. Default 10 (RFC 6928).
    pub initial_window: f64,
    /// g, the weight of a window's share of marks in α. Default 1/16 (§ 4.2).
    pub gain: f64,
    /// α before anything is known. Default 1, as cautious as NewReno (§ 4.2).
    pub initial_alpha: f64,
}

impl Default for DctcpConfig {
    fn default() -> DctcpConfig {
        DctcpConfig { initial_window: 10.0, gain: 1.0 / 16.0, initial_alpha: 1.0 }
    }
}

impl DctcpConfig {
    pub(super) const ENTRY: Entry<dyn SenderConfig> = fixed::<DctcpConfig>("dctcp");
}

impl SenderConfig for DctcpConfig {
    fn word(&self) -> &str {
        Self::ENTRY.word
    }

    fn descriptor(&self) -> Descriptor {
        Descriptor { ecn: Ecn::Needs, l4s: true, kernel: Some("dctcp"), ..Descriptor::default() }
    }

    fn make(&self, of: &Sending<'_>) -> AnySender {
        DctcpConfig { initial_window: of.initial_window, ..*self }.build().into()
    }
}

impl DctcpConfig {
    /// Builds the law; `gain` and `initial_alpha` are clamped to 0 … 1.
    pub fn build(&self) -> Dctcp {
        let share = |x: f64| if x > 0.0 { x.min(1.0) } else { 0.0 };
        Dctcp {
            reno: NewRenoConfig { initial_window: self.initial_window, ..Default::default() }.build(),
            alpha: share(self.initial_alpha),
            gain: share(self.gain),
            acked: 0,
            window_end: 0,
            reduced_end: 0,
            seen: 0,
            marked: 0,
        }
    }
}

impl Dctcp {
    /// α, the averaged fraction of marked segments.
    pub fn alpha(&self) -> f64 {
        self.alpha
    }

    /// The slow-start threshold, segments.
    pub fn ssthresh(&self) -> f64 {
        self.reno.ssthresh()
    }

    /// § 3.3, steps 1 to 8: counts, and averages once per window of data.
    #[inline]
    fn observe(&mut self, flight: &Flight, acked: &Acked) {
        self.acked += u64::from(acked.cumulative);
        self.seen += u64::from(acked.segments);
        if acked.marked {
            self.marked += u64::from(acked.segments);
        }
        if self.acked < self.window_end || self.seen == 0 {
            return;
        }
        let share = self.marked as f64 / self.seen as f64;
        self.alpha += self.gain * (share - self.alpha);
        self.window_end = self.acked + u64::from(flight.outstanding).max(1);
        self.seen = 0;
        self.marked = 0;
    }
}

impl SenderLaw for Dctcp {
    #[inline]
    fn window(&self) -> f64 {
        self.reno.window()
    }

    #[inline]
    fn on_ack(&mut self, flight: &Flight, acked: &Acked) {
        self.observe(flight, acked);
        if acked.marked && !self.reno.in_recovery() && self.acked > self.reduced_end {
            // § 3.3, step 9. Of the window and not of what is in flight: α/2 of it is often less
            // than a segment.
            let window = (self.reno.window() * (1.0 - self.alpha / 2.0)).max(MIN_SSTHRESH);
            self.reno.settle(window);
            self.reduced_end = self.acked + u64::from(flight.outstanding).max(1);
            return;
        }
        self.reno.on_ack(flight, &Acked { marked: false, ..*acked });
    }

    /// § 3.4: the same reaction to a loss as NewReno.
    fn on_loss(&mut self, flight: &Flight) {
        self.reno.on_loss(flight);
    }

    fn on_recovered(&mut self, flight: &Flight) {
        self.reno.on_recovered(flight);
    }

    fn on_timeout(&mut self, flight: &Flight, first: bool) {
        self.reno.on_timeout(flight, first);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{acked, flight};
    use super::*;
    use crate::Time;

    const NOW: Time = Time::from_secs(1);

    /// `n` windows of data, each of which acknowledges `of` segments, the first `marks` of them
    /// marked.
    fn windows(law: &mut Dctcp, n: u32, of: u32, marks: u32) {
        for _ in 0..n {
            for k in 0..of {
                law.on_ack(&flight(NOW, of), &Acked { marked: k < marks, ..acked(1) });
            }
        }
    }

    #[test]
    fn a_mark_takes_half_of_alpha() {
        let mut law = DctcpConfig { initial_window: 40.0, initial_alpha: 0.25, gain: 0.0 }.build();
        law.on_ack(&flight(NOW, 40), &Acked { marked: true, ..acked(1) });
        assert_eq!((law.window(), law.ssthresh()), (35.0, 35.0));
    }

    #[test]
    fn marks_count_once_a_window_of_data() {
        let mut law = DctcpConfig { initial_window: 40.0, initial_alpha: 1.0, gain: 0.0 }.build();
        windows(&mut law, 1, 39, 39);
        // Halved once, then 38 acknowledgements of growth by 1/window.
        assert!((21.7..22.0).contains(&law.window()), "{}", law.window());
        law.on_ack(&flight(NOW, 39), &Acked { marked: true, ..acked(1) });
        law.on_ack(&flight(NOW, 39), &Acked { marked: true, ..acked(1) });
        assert!((10.8..11.1).contains(&law.window()), "{}", law.window());
    }

    #[test]
    fn marks_of_segments_in_flight_at_a_reduction_do_not_reduce_again() {
        let mut law = DctcpConfig { initial_window: 40.0, initial_alpha: 1.0, gain: 0.0 }.build();
        // The first marked segment is acknowledged, with forty behind it, all of them marked.
        for _ in 0..41 {
            law.on_ack(&flight(NOW, 40), &Acked { marked: true, ..acked(1) });
        }
        assert!((21.0..22.0).contains(&law.window()), "{}", law.window());
        law.on_ack(&flight(NOW, 40), &Acked { marked: true, ..acked(1) });
        assert!((10.5..11.0).contains(&law.window()), "{}", law.window());
    }

    #[test]
    fn alpha_becomes_the_share_of_marks() {
        let mut law = DctcpConfig { initial_window: 20.0, ..Default::default() }.build();
        windows(&mut law, 400, 20, 5);
        assert!((law.alpha() - 0.25).abs() < 0.02, "{}", law.alpha());
        windows(&mut law, 400, 20, 0);
        assert!(law.alpha() < 1e-6);
    }

    #[test]
    fn a_single_window_moves_alpha_by_the_gain() {
        let mut law = DctcpConfig { initial_alpha: 0.0, ..Default::default() }.build();
        // The first acknowledgement ends the window of nothing; the next ten are one window, four
        // of them marked.
        law.on_ack(&flight(NOW, 10), &acked(1));
        windows(&mut law, 1, 10, 4);
        assert!((law.alpha() - 0.4 / 16.0).abs() < 1e-12, "{}", law.alpha());
    }

    #[test]
    fn a_loss_halves_whatever_alpha_is() {
        let mut law = DctcpConfig { initial_window: 40.0, initial_alpha: 0.0, gain: 0.0 }.build();
        law.on_loss(&flight(NOW, 40));
        assert_eq!(law.window(), 20.0);
        law.on_ack(&flight(NOW, 20), &Acked { marked: true, ..acked(1) });
        assert_eq!(law.window(), 20.0, "at rest until recovered");
        law.on_recovered(&flight(NOW, 20));
        law.on_timeout(&flight(NOW, 20), true);
        assert_eq!(law.window(), 1.0);
    }

    proptest! {
        #[test]
        fn alpha_is_a_share_and_the_window_at_least_one(
            acks in prop::collection::vec((0u32..5, any::<bool>(), 0u32..60, 0u8..30), 0..500),
            gain in any::<f64>(), alpha in any::<f64>(),
        ) {
            let mut law = DctcpConfig { initial_window: 10.0, gain, initial_alpha: alpha }.build();
            for (n, marked, outstanding, event) in acks {
                let flight = flight(NOW, outstanding);
                match event {
                    0 => law.on_loss(&flight),
                    1 => law.on_recovered(&flight),
                    2 => law.on_timeout(&flight, true),
                    _ => law.on_ack(&flight, &Acked { marked, ..acked(n) }),
                }
                prop_assert!((0.0..=1.0).contains(&law.alpha()));
                prop_assert!(law.window() >= 1.0);
            }
        }
    }
}
