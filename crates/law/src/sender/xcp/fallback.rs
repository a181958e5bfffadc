//! The fallback of XCP's sender where the bottleneck does not speak XCP: a TCP's window as a bound.
//!
//! None of the XCP texts has this. The count of XCP routers on the path, which the sender needs, is
//! an idea of XCP-i (Lopez-Pacheco, Pham and Lefèvre, 2006).

use super::super::{Acked, Cubic, CubicConfig, Flight, NewReno, NewRenoConfig, SenderLaw};
use crate::{Time, words};

words! {
    /// The TCP that an XCP sender falls back on.
    pub enum Fallback {
        /// No fallback: XCP's feedback always applies, as in all texts.
        None = "none",
        /// [`NewReno`].
        NewReno = "newreno",
        /// [`Cubic`].
        Cubic = "cubic",
    }
}

/// A TCP beside XCP. The smaller window of the two applies while there is a **gap**: routers on the
/// path that do not speak XCP.
///
/// The TCP begins in slow start, so that with a gap the window at most doubles per round trip,
/// whatever the other routers grant. It treats a **loss** as congestion only together with
/// **delay**, a smoothed round trip well above the least: a radio link behind a silent router loses
/// packets without any queue. After a loss without delay, or a long time without delay, it returns
/// to slow start.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    which: Fallback,
    tcp: Option<Tcp>,
    /// The window at the last loss due to congestion.
    lost_at: f64,
    /// End of the present round trip.
    round_ends: Time,
    /// Round trips since there was delay.
    calm: u32,
}

#[derive(Clone, Debug)]
enum Tcp {
    NewReno(NewReno),
    Cubic(Cubic),
}

impl Guard {
    /// A guard with the TCP of the configuration; `None` without one.
    pub(super) fn new(which: Fallback) -> Option<Guard> {
        let guard = Guard { which, tcp: None, lost_at: 0.0, round_ends: Time::ZERO, calm: 0 };
        (which != Fallback::None).then_some(guard)
    }

    /// Upper bound on the window; `None` without a gap.
    #[inline]
    pub(super) fn window(&self) -> Option<f64> {
        self.tcp.as_ref().map(Tcp::window)
    }

    /// Upper bound on XCP's window, which may run ahead of the TCP's. So requests reach routers in
    /// time for the growth of the next round trip.
    #[inline]
    pub(super) fn ceiling(&self) -> Option<f64> {
        let ahead = |tcp: &Tcp| if tcp.window() < tcp.ssthresh() { 2.0 } else { 1.25 };
        self.tcp.as_ref().map(|tcp| ahead(tcp) * tcp.window() + 2.0)
    }

    /// Handles feedback, from a path with or without a gap; `window` is XCP's.
    pub(super) fn on_echo(&mut self, gap: bool, window: f64) {
        if !gap {
            self.tcp = None;
        } else if self.tcp.is_none() {
            self.tcp = Some(Tcp::new(self.which, window));
        }
    }

    /// Handles an acknowledgement; `window` is XCP's.
    pub(super) fn on_ack(&mut self, flight: &Flight, acked: &Acked, window: f64) {
        let Some(tcp) = &mut self.tcp else { return };
        // Growth must not come from a window that XCP does not allow.
        let limit = flight.limit.min(window as u32);
        tcp.law().on_ack(&Flight { limit, ..*flight }, acked);
        if flight.now < self.round_ends {
            return;
        }
        self.round_ends = flight.now.saturating_add(flight.srtt);
        self.calm = if delayed(flight) { 0 } else { self.calm.saturating_add(1) };
        if tcp.congested() && f64::from(self.calm) > self.lost_at.max(CALM_ROUNDS) {
            self.start_over();
        }
    }

    /// Handles a loss. Returns true if the TCP reacts to it. `timeout` is set if the timer found
    /// it, true for the first expiry.
    pub(super) fn on_loss(&mut self, flight: &Flight, timeout: Option<bool>) -> bool {
        let Some(tcp) = &mut self.tcp else { return false };
        // A timer goes off long after the last round trip was measured: that says nothing against
        // what was found before.
        if !(delayed(flight) || timeout.is_some() && tcp.congested()) {
            if tcp.congested() {
                self.start_over();
            }
            return false;
        }
        if timeout != Some(false) {
            self.lost_at = tcp.window();
        }
        self.calm = 0;
        match timeout {
            None => tcp.law().on_loss(flight),
            Some(first) => tcp.law().on_timeout(flight, first),
        }
        true
    }

    pub(super) fn on_recovered(&mut self, flight: &Flight) {
        if let Some(tcp) = &mut self.tcp {
            tcp.law().on_recovered(flight);
        }
    }

    /// Returns to slow start: there was no congestion, or it is over.
    fn start_over(&mut self) {
        self.tcp = self.window().map(|window| Tcp::new(self.which, window));
    }
}

impl Tcp {
    fn new(which: Fallback, initial_window: f64) -> Tcp {
        match which {
            Fallback::None | Fallback::NewReno => {
                Tcp::NewReno(NewRenoConfig { initial_window, ..Default::default() }.build())
            }
            Fallback::Cubic => Tcp::Cubic(CubicConfig { initial_window, ..Default::default() }.build()),
        }
    }

    fn law(&mut self) -> &mut dyn SenderLaw {
        match self {
            Tcp::NewReno(law) => law,
            Tcp::Cubic(law) => law,
        }
    }

    fn window(&self) -> f64 {
        match self {
            Tcp::NewReno(law) => law.window(),
            Tcp::Cubic(law) => law.window(),
        }
    }

    fn ssthresh(&self) -> f64 {
        match self {
            Tcp::NewReno(law) => law.ssthresh(),
            Tcp::Cubic(law) => law.ssthresh(),
        }
    }
}

impl Tcp {
    /// True if a loss has shown where congestion begins.
    fn congested(&self) -> bool {
        self.ssthresh() < f64::INFINITY
    }
}

/// True if there is queueing delay: an eighth of the least round trip, and more than the 2 ms that
/// XCP's routers ignore.
fn delayed(flight: &Flight) -> bool {
    let margin = Time(flight.min_rtt.0 / 8).max(Time::from_millis(2));
    flight.srtt > flight.min_rtt.saturating_add(margin)
}

/// Round trips without delay after which congestion counts as over. After that of a loss at a
/// larger window, TCP is back at its window in half as many.
const CALM_ROUNDS: f64 = 64.0;

#[cfg(test)]
mod tests {
    use super::super::super::testing::{acked, flight};
    use super::super::{LossResponse, Xcp, XcpConfig};
    use super::*;
    use crate::Toll;

    const NOW: Time = Time::from_secs(1);

    /// A flight of 100 ms at the least and `queued` ms more.
    fn waiting(queued: u64, window: u32) -> Flight {
        Flight { srtt: Time::from_millis(100 + queued), ..flight(NOW, window) }
    }

    fn told(gap: bool, change: f32) -> Acked {
        Acked { echo: Some(change), gap, ..acked(1) }
    }

    fn law(window: f64) -> Xcp {
        let (fallback, on_loss) = (Fallback::NewReno, LossResponse::Keep);
        XcpConfig { initial_window: window, fallback, on_loss, ..Default::default() }.build()
    }

    #[test]
    fn gap_loss_and_delay_together_are_congestion() {
        for (gap, queued, halves) in
            [(true, 40, true), (true, 10, false), (false, 40, false), (false, 10, false)]
        {
            let mut law = law(40.0);
            law.on_ack(&waiting(queued, 0), &told(gap, 0.0));
            let before = law.window();
            law.on_loss(&waiting(queued, 40));
            assert_eq!(law.window(), if halves { 20.0 } else { before }, "{gap} {queued}");
        }
    }

    #[test]
    fn with_a_gap_the_window_at_most_doubles_in_a_round_trip() {
        for (gap, least, most) in [(true, 8.0, 8.0), (false, 4000.0, 5000.0)] {
            let mut law = law(4.0);
            for _ in 0..4 {
                law.on_ack(&waiting(0, 4), &told(gap, 15_000_000.0));
            }
            assert!((least..=most).contains(&law.window()), "{gap} {}", law.window());
            let mut toll = Toll::default();
            law.write_toll(&waiting(0, 8), &mut toll);
            assert_eq!(toll.due > 0.0, !gap, "more was granted than it asked for");
        }
    }

    #[test]
    fn the_lesser_window_counts_and_is_what_packets_state() {
        let mut law = fallen();
        let mut toll = Toll::default();
        law.write_toll(&waiting(0, 20), &mut toll);
        assert_eq!(toll.offer, 0.1 / 20.0);
        // XCP's own window is cut to what TCP may use soon, and asks for no more.
        assert_eq!((law.window, toll.due), (27.0, 0.0));
        // Negative feedback counts at once, and may be requested back.
        law.on_ack(&waiting(0, 20), &told(true, -15_000.0 * 17.0));
        assert_eq!(law.window(), 10.0);
        law.write_toll(&waiting(0, 20), &mut toll);
        assert!((toll.due * 10.0 - 17.0 * 15_000.0).abs() < 1e-6, "{}", toll.due);
        // A window that XCP does not allow TCP to use does not grow.
        for _ in 0..100 {
            law.on_ack(&waiting(0, 10), &told(true, 0.0));
        }
        law.on_ack(&waiting(0, 10), &told(true, 15_000.0 * 17.0));
        assert!((20.0..20.1).contains(&law.window()), "{}", law.window());
    }

    #[test]
    fn it_ends_with_the_gap_with_a_loss_without_delay_or_after_a_long_calm() {
        // A hundred acknowledgements in a round trip double a window of 20 and more in slow start,
        // and add one in avoidance.
        let round = |law: &mut Xcp, gap, n: u64| {
            for i in 0..100 {
                let now = NOW + Time::from_millis(100 * n + i);
                law.on_ack(&Flight { now, ..waiting(0, 20) }, &told(gap, 15_000.0));
            }
            law.window()
        };
        let mut law = fallen();
        assert!(round(&mut law, true, 0) < 26.0);
        assert!(round(&mut law, false, 1) > 100.0);
        let mut law = fallen();
        law.on_loss(&waiting(0, 20));
        assert!(round(&mut law, true, 0) > 100.0);
        let mut law = fallen();
        law.window = 1e6;
        let slow = (0..100).take_while(|&n| round(&mut law, true, n) < 150.0).count();
        assert!((64..70).contains(&slow), "{slow}");
        assert!(round(&mut law, true, 1 + slow as u64) > 200.0);
    }

    #[test]
    fn a_timer_that_goes_off_later_is_still_tcp_s() {
        let mut law = fallen();
        law.on_timeout(&waiting(0, 20), true);
        law.on_timeout(&waiting(0, 1), false);
        assert_eq!(law.window(), 1.0);
        for window in [2.0, 3.0, 4.0] {
            law.on_ack(&waiting(0, 1), &told(true, 0.0));
            assert_eq!(law.window(), window);
        }
        // Without congestion it is XCP's, which begins anew.
        let mut law = self::law(40.0);
        law.on_ack(&waiting(0, 40), &told(true, 0.0));
        law.on_timeout(&waiting(0, 40), true);
        law.on_ack(&waiting(0, 1), &told(true, 15_000.0));
        assert_eq!(law.window(), 2.0);
    }

    #[test]
    fn routers_are_counted_only_if_wanted() {
        for (fallback, routers) in [(Fallback::None, None), (Fallback::Cubic, Some(0))] {
            let config = XcpConfig { fallback, ..Default::default() };
            for srtt in [Time::ZERO, Time::from_millis(100)] {
                let mut toll = Toll::default();
                config.build().write_toll(&Flight { srtt, ..flight(NOW, 4) }, &mut toll);
                assert_eq!(toll.routers(), routers);
            }
        }
    }

    /// Congested at a window of 40.
    fn fallen() -> Xcp {
        let mut law = law(40.0);
        law.on_ack(&waiting(40, 0), &told(true, 0.0));
        law.on_loss(&waiting(40, 40));
        law.on_recovered(&waiting(40, 20));
        assert_eq!(law.window(), 20.0);
        law
    }
}
