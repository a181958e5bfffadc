//! FCP's link law: each packet sets a new price (the FCP report, CMU-CS-12-125, § 4.1).
//!
//! | equation | here |
//! |---|---|
//! | 2: p = I / max(C − α·q/d, C/2) | `PriceEngine::set_price` |
//! | 4, the sum of what packets pay | `Window`, over d = twice the mean round-trip time |
//! | 4, the preload term | `Promises`: paid·size·preload/rtt each, for as long as [`PreloadSpan`] says |
//! | p(t − rtt), no more than the balance (§ 5) | `History` |
//!
//! Equation 4 adds `paid·size·preload·d/rtt` to a sum that is divided by d: while it lasts, a preload counts for
//! paid·size·preload/rtt, the change of budget it announces, and that is how it is kept here.

mod exchange;
mod history;
mod promises;
#[cfg(test)]
mod tests;
mod window;

use super::{LinkLaw, Passing, Verdict};
use crate::{Kind, Price, Rate, Time, Toll};
pub use exchange::{Exchange, ExchangeRate};
use history::History;
use promises::Promises;
use window::{Sums, Window};

/// The parameters of [`Fcp`], and its factory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FcpConfig {
    /// α, the weight of the queue. Default 2 (§ 5).
    pub alpha: f64,
    /// The averaging window d in mean round-trip times. Default 2 (§ 5).
    pub window: f64,
    /// How long a preload counts. Default [`PreloadSpan::Packet`], as printed.
    pub preload: PreloadSpan,
    /// The mean round-trip time until packets tell one. Default 100 ms.
    pub initial_rtt: Time,
}

/// How long a preload counts in equation 4: two readings, which are one where d is twice the flow's round-trip time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreloadSpan {
    /// As long as the packet that carried it is in the window: d. Equation 4 as printed.
    Packet,
    /// Until half of what it announced is in the window: rtt + d/2, by the flow's own round-trip time. Promises of
    /// flows with a round trip far above the mean otherwise expire before they are kept.
    Flow,
}

impl Default for FcpConfig {
    fn default() -> FcpConfig {
        FcpConfig {
            alpha: 2.0,
            window: 2.0,
            preload: PreloadSpan::Packet,
            initial_rtt: Time::from_millis(100),
        }
    }
}

impl FcpConfig {
    /// A law for a link of `capacity`.
    pub fn build(&self, capacity: Rate) -> Fcp {
        let rtt = self.initial_rtt.as_secs_f64().clamp(MIN_RTT, MAX_RTT);
        let mut law = Fcp {
            config: *self,
            capacity: capacity.bytes_per_sec(),
            avg_rtt: rtt,
            span: 0.0,
            span_ns: 0,
            engine: PriceEngine::new(),
            error: 1.0,
        };
        law.set_avg_rtt(rtt);
        law
    }
}

/// FCP's router for one egress link.
#[derive(Clone, Debug)]
pub struct Fcp {
    config: FcpConfig,
    /// Bytes/s.
    capacity: f64,
    /// Mean round-trip time of the window's bytes, s.
    avg_rtt: f64,
    /// The window's length d in seconds, and in nanoseconds.
    span: f64,
    span_ns: u64,
    engine: PriceEngine,
    /// What the price is multiplied by, 1 but for experiments.
    error: f64,
}

/// The budget that comes to a link, and the price that makes of it. A link with classes of traffic has one for each.
#[derive(Clone, Debug)]
struct PriceEngine {
    window: Window,
    promises: Promises,
    history: History,
    price: Price,
    /// I(t), $/s.
    income: f64,
}

impl PriceEngine {
    fn new() -> PriceEngine {
        PriceEngine {
            window: Window::new(),
            promises: Promises::new(1 << 30),
            history: History::new(1 << 30, Price::MIN.get()),
            price: Price::MIN,
            income: 0.0,
        }
    }

    /// What the sender of a packet paid here for a byte: the price of a round trip ago, but no more than it says (§ 5). A
    /// first packet, which knows no price yet, pays the present one.
    #[inline]
    fn paid(&self, now: u64, toll: &Toll, rtt: f64) -> f64 {
        if rtt == 0.0 {
            return self.price.get();
        }
        let balance = Price::per_byte(f64::from(toll.stake)).get();
        let then = now.saturating_sub((rtt * 1e9) as u64);
        self.history.at(then).map_or(balance, |price| price.min(balance))
    }

    /// Equation 2, with the bound of § 5 on the remaining capacity: `room` is that, bytes/s.
    #[inline]
    fn set_price(&mut self, now: u64, span: (u64, f64), room: f64, error: f64) {
        let paid = self.window.sums(now, span.0).paid;
        // Below zero for a moment, when flows take back more than was seen of them yet.
        self.income = (paid / span.1 + self.promises.total(now)).max(0.0);
        self.price = Price::per_byte(self.income / room * error);
        self.history.note(now, self.price.get());
    }
}

impl Fcp {
    /// The price it states now.
    pub fn price(&self) -> Price {
        self.engine.price
    }

    /// The budget that it reckons to come in, promises included, $/s: I(t).
    pub fn income(&self) -> f64 {
        self.engine.income
    }

    /// The mean round-trip time it reckons with, s.
    pub fn avg_rtt(&self) -> f64 {
        self.avg_rtt
    }

    /// From now on the price is wrong by `relative` (0.1 asks for a tenth too much): a test of stability (§ 6.1.2).
    pub fn set_price_error(&mut self, relative: f64) {
        self.error = (1.0 + relative).max(0.0);
    }

    fn set_avg_rtt(&mut self, rtt: f64) {
        self.avg_rtt = rtt.clamp(MIN_RTT, MAX_RTT);
        self.span = self.avg_rtt * self.config.window;
        self.span_ns = (self.span * 1e9) as u64;
        self.engine.promises.set_span(self.span_ns);
        self.engine.history.set_rtt((self.avg_rtt * 1e9) as u64);
    }

    #[inline]
    fn update(&mut self, now: Time, packet: Passing, toll: &Toll) {
        let now = now.as_nanos();
        let size = f64::from(packet.size);
        let stated = f64::from(toll.rtt);
        let rtt = if stated > 0.0 { stated.min(MAX_RTT) } else { 0.0 };
        let paid = self.engine.paid(now, toll, rtt) * size;
        let sums = match rtt > 0.0 {
            true => Sums { paid, bytes: size, rtt_bytes: size * rtt },
            false => Sums { paid, ..Sums::default() },
        };
        if self.engine.window.add(now, self.span_ns, sums) {
            let sums = self.engine.window.sums(now, self.span_ns);
            if sums.bytes > 0.0 {
                self.set_avg_rtt(sums.rtt_bytes / sums.bytes);
            }
        }
        if toll.offer != 0.0 {
            self.promise(now, toll.offer, paid, if rtt > 0.0 { rtt } else { self.avg_rtt });
        }
        let queue = self.config.alpha * packet.backlog_bytes as f64 / self.span;
        let room = (self.capacity - queue).max(self.capacity / 2.0);
        self.engine.set_price(now, (self.span_ns, self.span), room, self.error);
    }

    fn promise(&mut self, now: u64, preload: f32, paid: f64, rtt: f64) {
        // Nobody can take back more than is spent (§ 4.1), and words from outside may be no numbers.
        let change = paid * f64::from(preload).max(-1.0) / rtt;
        if change < MOST_CHANGE {
            let life = match self.config.preload {
                PreloadSpan::Packet => self.span,
                PreloadSpan::Flow => rtt + self.span / 2.0,
            };
            self.engine.promises.add(now + (life * 1e9) as u64, change);
        }
    }
}

impl LinkLaw for Fcp {
    #[inline]
    fn on_arrival(&mut self, now: Time, packet: Passing, toll: &Toll) -> Verdict {
        if packet.kind == Kind::Tolled {
            self.update(now, packet, toll);
        }
        Verdict::Pass
    }

    /// The price added is the one of the moment of departure: the freshest there is.
    #[inline]
    fn on_departure(&mut self, _: Time, packet: Passing, toll: &mut Toll) -> Verdict {
        if packet.kind == Kind::Tolled {
            toll.due = Price::per_byte(toll.due).plus(self.engine.price).get();
        }
        Verdict::Pass
    }

    fn set_capacity(&mut self, _: Time, capacity: Rate) {
        self.capacity = capacity.bytes_per_sec();
    }
}

/// Round-trip times from here on are believed, s.
const MIN_RTT: f64 = 1e-6;
/// No budget changes by more, $/s.
const MOST_CHANGE: f64 = 1e60;
/// And to here, s: a mean cannot be taken further by whatever a packet says.
const MAX_RTT: f64 = 10.0;
