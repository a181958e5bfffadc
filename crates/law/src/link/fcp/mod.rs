//! FCP's link law: each packet sets a new price (the FCP report, CMU-CS-12-125, § 4.1).
//!
//! | equation | here |
//! |---|---|
//! | 2: p = I / max(C − α·q/d, C/2) | `Fcp::room` |
//! | 4, the sum of payments | `Window`, over d = twice the mean round-trip time |
//! | 4, the preload term | `Promises`: paid·size·preload/rtt each, for [`PreloadSpan`] |
//! | 4, at least half the payments of lasting flows and their announcements | `sum_up`: ours |
//! | p(t − rtt), at most the balance (§ 5) | `History` |
//! | at least the price at which all announcements fit | [`FcpConfig::bound`]: ours |
//! | a target queue | [`FcpConfig::target`]: ours, off by default |
//! | part of a Newton step | [`FcpConfig::newton`]: ours, off by default |
//!
//! Packets that pay nothing, mainly acknowledgements, use a part of C, too. As printed, C admits
//! that much excess until a standing queue takes it back; [`FcpConfig::unpaid`] can measure it
//! instead.
//!
//! Equation 4 adds `paid·size·preload·d/rtt` to a sum that is divided by d. So a preload counts for
//! paid·size·preload/rtt while it lasts, which is the announced change of budget; this is the form
//! kept here.
//!
//! A link may set another price for a class of traffic: [`Pricing`].

mod bound;
mod classes;
mod exchange;
mod history;
mod newton;
mod promises;
mod span;
#[cfg(test)]
mod tests;
mod window;

use super::{AnyLink, Descriptor, LinkConfig, LinkLaw, Misfit, Passing, Placement, Verdict};
use crate::param::{self, TIME, Tabled};
use crate::price::{at_least, at_most};
use crate::toll::Content;
use crate::{Aim, Kind, Price, Rate, Time, Toll, config, words};
use bound::{Announced, Spending};
use classes::Classes;
pub use classes::Pricing;
pub(crate) use exchange::turn;
pub use exchange::{Exchange, ExchangeRate};
use history::History;
use newton::Newton;
use promises::Promises;
use span::Span;
use window::{Summed, Sums, Window};

config! {
    /// The parameters of [`Fcp`], and its factory.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct FcpConfig in "fcp", "The constants of FCP's router (the FCP report, § 4.1, § 5)." {
        /// α: weight of the queue in the price.
        alpha: f64 = 2.0, param::Kind::Number { least: 0.0, most: 100.0 }, from "§ 5";
        /// Length of the averaging window in mean round-trip times.
        window: f64 = 2.0, param::Kind::Over { over: 0.0, most: 100.0 }, from "§ 5, d";
        /// Time for which a preload counts. `packet`: as long as its packet is in the window
        /// (equation 4 as printed). `flow`: from d before the change takes effect; from then on for
        /// the part of it that is not in the window yet (rtt − d to rtt + d, by the flow's own
        /// round trip).
        preload_span: PreloadSpan = PreloadSpan::Flow, param::Kind::Word(PreloadSpan::WORDS);
        /// Room for packets that pay nothing, mainly acknowledgements. `queues`: a standing queue
        /// takes it from flows that pay (equation 2 as printed). `counts`: their rate, measured
        /// over d.
        unpaid: Unpaid = Unpaid::Queues, param::Kind::Word(Unpaid::WORDS);
        /// The queue without effect on the price, at most a tenth of a mean round trip: α·queue
        /// counts above it, so that the link is not idle while its price is a little too high. Zero
        /// is equation 2 as printed.
        target: Time = Time::ZERO, TIME;
        /// Fraction of a Newton step that is added to the price, from the estimated response of
        /// arrivals. It damps oscillations on links whose traffic pays most elsewhere, and finds a
        /// price where there was none. Zero is equation 2 as printed; 0.5 suits meshes, with an
        /// `alpha` of 0.5 and a `window` of 1. Not with groups (`[class.NAME]`), which have
        /// separate prices.
        newton: f64 = 0.0, param::Kind::Number { least: 0.0, most: 2.0 };
        /// Keeps the price high enough for present and announced spending to fit 1.15 of the link,
        /// whatever the flows pay elsewhere. Starts over idle links beside priced ones then cause
        /// no flood. False is equation 2 as printed (§ 4.1). Links with a class of the pricing
        /// `stable` or `deadline` always use equation 2.
        bound: bool = true, param::Kind::Truth;
        fixed {
            /// The mean round-trip time until packets state one.
            initial_rtt: Time = Time::from_millis(100);
        }
    }
}

words! {
    /// The time for which a preload counts in equation 4: two readings.
    pub enum PreloadSpan {
        /// As long as the packet that carried it is in the window: d. Equation 4 as printed.
        Packet = "packet",
        /// From d before the change takes effect, rtt − d, by the flow's own round-trip time. From
        /// rtt on less and less, to nothing at rtt + d: as its traffic fills the window.
        ///
        /// Otherwise promises of flows with a long round trip expire before they take effect, and
        /// flows with a short one reserve room earlier than needed. The sum is too high while both
        /// the promise and its traffic count, and too low once only a part of the traffic does.
        Flow = "flow",
    }
}

words! {
    /// The way to make room for packets that pay nothing.
    pub enum Unpaid {
        /// A standing queue takes it from flows that pay. Equation 2 as printed.
        Queues = "queues",
        /// Their rate is measured over the window.
        Counts = "counts",
    }
}

impl LinkConfig for FcpConfig {
    fn word(&self) -> &str {
        Self::TABLE.word
    }

    fn descriptor(&self) -> Descriptor {
        Descriptor {
            gives: Some(Content::Price),
            aim: Some(Aim::Proportional),
            queue_weight: self.alpha / self.window,
            priority: true,
            ..Descriptor::default()
        }
    }

    /// A Newton step applies to the link's own price, which groups do not pay.
    fn check(&self, at: &Placement<'_>) -> Result<(), Misfit> {
        let grouped = at.classes.iter().any(|class| matches!(class, Pricing::Group { .. }));
        if !grouped || self.newton <= 0.0 {
            return Ok(());
        }
        Err(Misfit {
            field: "newton",
            message: "classes with the pricing `group` do not support `newton`".into(),
            label: "with groups",
            help: "leave out `newton`, or give the classes another pricing",
        })
    }

    fn place(&self, at: &Placement<'_>) -> AnyLink {
        let law = self.build(at.capacity);
        AnyLink::Fcp(Box::new(if at.classes.is_empty() { law } else { law.with_classes(at.classes) }))
    }
}

impl FcpConfig {
    /// Builds the law for a link of `capacity`.
    pub fn build(&self, capacity: Rate) -> Fcp {
        let rtt = self.initial_rtt.as_secs_f64().clamp(MIN_RTT, MAX_RTT);
        let mut law = Fcp {
            config: *self,
            capacity: capacity.bytes_per_sec(),
            avg_rtt: rtt,
            span: Span::of(rtt * self.window),
            target: 0.0,
            engine: PriceEngine::new(),
            unpaid: None,
            newton: (self.newton > 0.0).then(|| Box::new(Newton::new(self.newton))),
            error: 1.0,
            classes: None,
        };
        law.set_avg_rtt(0, rtt);
        law
    }
}

/// FCP's router for one egress link.
#[derive(Clone, Debug)]
pub struct Fcp {
    config: FcpConfig,
    /// Link capacity, bytes/s.
    capacity: f64,
    /// Mean round-trip time of the window's bytes, s.
    avg_rtt: f64,
    /// The window's length: d, or less after d has grown.
    span: Span,
    engine: PriceEngine,
    /// Bytes of packets that pay nothing, once there are some.
    unpaid: Option<Box<Window<f64>>>,
    /// The response of arrivals to another price, if a Newton step is configured.
    newton: Option<Box<Newton>>,
    /// The queue without effect on the price, s.
    target: f64,
    /// A factor on the price, 1 except in experiments.
    error: f64,
    /// Traffic at other prices; `engine` then holds the traffic at the link's own price.
    classes: Option<Box<Classes>>,
}

/// The payments that reach a link, and the price computed from them. A link with classes has one
/// engine per class.
#[derive(Clone, Debug)]
struct PriceEngine {
    window: Window<Sums>,
    promises: Promises,
    /// Payments less the amounts taken back, over one mean round trip, `round`; kept while there
    /// are promises.
    staying: Window<f64>,
    /// True while `staying` is kept.
    keeps: bool,
    /// Announced increases that have not taken effect, each for one round trip of its flow.
    coming: Promises,
    announced: Announced,
    /// The window's sums as of the last price.
    sums: Sums,
    round: Span,
    history: History,
    price: Price,
    /// I(t), $/s.
    income: f64,
}

impl PriceEngine {
    fn set_avg_rtt(&mut self, span: Span, avg_rtt: f64) {
        self.round = Span::of(avg_rtt);
        self.promises.set_span(span.ns);
        self.coming.set_span(span.ns);
        self.announced.set_span(span.ns);
        self.history.set_rtt(self.round.ns);
    }

    fn new() -> PriceEngine {
        PriceEngine {
            window: Window::new(),
            promises: Promises::new(1 << 30),
            staying: Window::new(),
            keeps: false,
            coming: Promises::new(1 << 30),
            announced: Announced::new(1 << 30),
            sums: Sums::default(),
            round: Span::of(1.0),
            history: History::new(1 << 30, Price::MIN.get()),
            price: Price::MIN,
            income: 0.0,
        }
    }

    /// The price per byte that the sender paid here: this link's price a round trip ago, but at
    /// most the balance that the packet states (§ 5). A first packet, which knows no price yet,
    /// pays the present one.
    #[inline(always)]
    fn paid(&self, now: u64, toll: &Toll, rtt: f64) -> f64 {
        if rtt == 0.0 {
            return self.price.get();
        }
        let balance = Price::per_byte(f64::from(toll.stake)).get();
        // A round-trip time that fits a signed number, which is sooner made of a float.
        let then = now.saturating_sub((rtt * 1e9) as i64 as u64);
        match self.history.at(then) {
            // If other links cost more than this one, the balance is no useful bound, and the
            // greater of the two prices would be too high on average.
            Some(past) if balance > ALONE * past.most() => past.likely(),
            Some(past) => at_most(past.most(), balance),
            None => balance,
        }
    }

    /// Equation 4 over a window of length `span`; at least half the payments of the flows that
    /// stay, with their announcements for the next round trip.
    ///
    /// A short flow's promise leaves the sum a round trip before the amount that it takes back
    /// does. Suppose many short flows arrived at a high price, and new ones arrive at a low one.
    /// Then the sum falls below zero whatever the other flows pay, and a long flow would send
    /// without bound. The bound is half, because payments fluctuate more over one round trip: while
    /// flows do as announced, it has no effect.
    #[inline(always)]
    fn sum_up(&mut self, now: u64, span: Span) -> f64 {
        self.sums = self.window.sums(now, span.ns);
        let paid = self.sums.paid * span.per_second;
        // Sums of what comes and leaves are rounded, maybe to a little less than nothing.
        self.income = if self.is_calm(now) { at_least(paid, 0.0) } else { self.promised(now, paid) };
        self.income
    }

    /// [`sum_up`](PriceEngine::sum_up) while there are promises; `paid` is the rate of payments,
    /// $/s.
    fn promised(&mut self, now: u64, paid: f64) -> f64 {
        let staying = at_least(self.staying.sums(now, self.round.ns), 0.0) * self.round.per_second;
        let least = staying / 2.0 + at_least(self.coming.total(now), 0.0);
        at_least(paid + self.promises.total(now), least)
    }

    /// Records a packet that pays `paid` in total and announces `preload`. The remainder counts as
    /// paid by flows that stay: equation 4 over one round trip instead of two, where no packet
    /// counts below zero. The packet is in the longer window already.
    ///
    /// Without announcements the sum is not used, and equation 4 stands as printed. Nor could the
    /// bound take effect with a window of one to two mean round trips, which always holds at least
    /// as much as one.
    #[inline]
    fn stay(&mut self, now: u64, preload: f32, paid: f64) {
        if preload == 0.0 && self.is_calm(now) {
            self.keeps = false;
            return;
        }
        let back = if preload < 0.0 { at_least(f64::from(preload), -1.0) } else { 0.0 };
        if self.keeps {
            self.staying.add(now, self.round.ns, paid * (1.0 + back));
        } else {
            self.keeps = true;
            self.staying.refill(&self.window, |sums| sums.paid);
            self.staying.add(now, self.round.ns, paid * back);
        }
    }

    /// True if nothing is announced.
    #[inline]
    fn is_calm(&mut self, now: u64) -> bool {
        self.promises.is_idle(now) && self.coming.is_idle(now)
    }

    /// Records the change of budget that a packet announces.
    #[inline]
    fn expect(&mut self, now: u64, promise: Promise) {
        let Promise { from, fades, until, change, .. } = promise;
        self.promises.add_fading(now, from, fades, until, change);
        if promise.change > 0.0 {
            self.coming.add(now, now, promise.kept, promise.change);
        }
        self.announce(now, &promise);
    }

    /// Sets the price from `now` on, $/byte.
    #[inline]
    fn say(&mut self, now: u64, price: f64) {
        self.price = Price::per_byte(price);
        self.history.note(now, self.price.get());
    }
}

impl Fcp {
    /// Adds prices by class of traffic: `classes[i]` is the rule of class i ([`Passing::class`]).
    /// Classes beyond them pay the link's own price.
    pub fn with_classes(mut self, classes: &[Pricing]) -> Fcp {
        let mut classes = Classes::new(classes);
        classes.set_avg_rtt(self.span, self.avg_rtt);
        self.classes = Some(Box::new(classes));
        self
    }

    /// The present price for traffic of `class`.
    pub fn class_price(&self, class: u8) -> Price {
        self.classes.as_ref().map_or(self.engine.price, |classes| classes.price(class, &self.engine))
    }

    /// The link's own present price.
    pub fn price(&self) -> Price {
        self.engine.price
    }

    /// The estimated payments I(t), promises included, $/s.
    pub fn income(&self) -> f64 {
        self.engine.income
    }

    /// The mean round-trip time in use, s.
    pub fn avg_rtt(&self) -> f64 {
        self.avg_rtt
    }

    fn set_avg_rtt(&mut self, now: u64, rtt: f64) {
        self.avg_rtt = rtt.clamp(MIN_RTT, MAX_RTT);
        self.span = self.span.turned(now, self.avg_rtt * self.config.window);
        self.target = self.config.target.as_secs_f64().min(MOST_TARGET * self.avg_rtt);
        self.engine.set_avg_rtt(self.span, self.avg_rtt);
        if let Some(classes) = &mut self.classes {
            classes.set_avg_rtt(self.span, self.avg_rtt);
        }
    }

    #[inline]
    fn update(&mut self, now: Time, arrival: Arrival, class: u8, toll: &Toll) {
        let now = now.as_nanos();
        if self.classes.is_some() {
            return self.update_classed(now, class, &arrival, toll);
        }
        let paid = self.engine.paid(now, toll, arrival.rtt) * arrival.size;
        self.count(now, &arrival, paid);
        self.note_stake(now, arrival.size, toll.stake);
        self.engine.stay(now, toll.offer, paid);
        if let Some(promise) = self.promise(now, &arrival, toll.offer, paid) {
            self.engine.expect(now, promise);
        }
        let room = self.room(now, &arrival, self.capacity);
        let income = self.engine.sum_up(now, self.span);
        let price = self.corrected(now, arrival.size, income / room);
        let price = match self.config.bound {
            true => self.engine.bounded(now, self.span, room, price),
            false => price,
        };
        self.engine.say(now, price * self.error);
    }

    /// [`update`](Fcp::update) where classes are distinguished.
    #[inline(never)]
    fn update_classed(&mut self, now: u64, class: u8, arrival: &Arrival, toll: &Toll) {
        if let Some(mut classes) = self.classes.take() {
            self.update_classes(&mut classes, now, class, arrival, toll);
            self.classes = Some(classes);
        }
    }

    /// The part of `capacity` left by packets that pay nothing and by the drain of the queue (§ 5),
    /// bytes/s.
    #[inline]
    fn room(&mut self, now: u64, arrival: &Arrival, capacity: f64) -> f64 {
        let unpaid = match &mut self.unpaid {
            Some(bytes) if self.config.unpaid == Unpaid::Counts => bytes.sums(now, self.span.ns),
            _ => 0.0,
        };
        let queue = arrival.backlog - capacity * self.target;
        let taken = (self.config.alpha * queue + unpaid) * self.span.per_second;
        at_least(capacity - taken, capacity / 2.0)
    }

    /// Counts a packet of `size` bytes that pays nothing, on a link where some flow pays.
    #[inline]
    fn count_unpaid(&mut self, now: u64, size: u32) {
        let somebody_pays = self.engine.price.get() > Price::MIN.get() || self.classes.is_some();
        if (self.config.unpaid == Unpaid::Counts || self.newton.is_some()) && somebody_pays {
            let bytes = self.unpaid.get_or_insert_with(|| Box::new(Window::new()));
            bytes.add(now, self.span.ns, f64::from(size));
        }
    }

    /// Adds a packet that pays `paid` in total to the window. Returns true if d may have changed.
    #[inline(always)]
    fn count(&mut self, now: u64, arrival: &Arrival, paid: f64) -> bool {
        let fresh = self.engine.window.add(now, self.span.ns, arrival.sums(paid));
        // The first announcements need d, too.
        let anew = fresh || self.span.set == 0;
        if anew {
            let sums = self.engine.window.sums(now, self.span.ns);
            if sums.bytes > 0.0 {
                self.set_avg_rtt(now, sums.rtt_bytes / sums.bytes);
            }
        }
        anew
    }

    /// The change of budget that a packet announces; the packet pays `paid` in total.
    #[inline]
    fn promise(&self, now: u64, arrival: &Arrival, preload: f32, paid: f64) -> Option<Promise> {
        if preload == 0.0 {
            return None;
        }
        let rtt = if arrival.rtt > 0.0 { arrival.rtt } else { self.avg_rtt };
        // A flow cannot take back more than it spends (§ 4.1), and the fields may be NaN.
        let part = f64::from(preload).max(-1.0) / rtt;
        let change = paid * part;
        let d = self.span.d;
        let (wait, whole, life) = match self.config.preload_span {
            PreloadSpan::Packet => (0.0, d, d),
            PreloadSpan::Flow => (rtt - d, rtt, rtt + d),
        };
        let after = |seconds: f64| now + (seconds * 1e9) as u64;
        (change < MOST_CHANGE).then(|| Promise {
            change,
            spending: arrival.spending(paid).times(part),
            from: after(wait),
            kept: after(rtt),
            fades: after(whole),
            until: after(life),
        })
    }
}

/// An announced change of budget, $/s, with the times from and until which the announcement counts,
/// that from which it counts less and less, and that of the change itself, ns.
struct Promise {
    change: f64,
    spending: Spending,
    from: u64,
    kept: u64,
    fades: u64,
    until: u64,
}

/// A packet's statements, and the queue that it finds.
#[derive(Clone, Copy)]
struct Arrival {
    /// Bytes.
    size: f64,
    /// Its flow's round-trip time, s; zero while unknown.
    rtt: f64,
    /// Bytes queued.
    backlog: f64,
    /// Its payment over the whole path, $.
    spent: f64,
}

impl Arrival {
    #[inline]
    fn of(packet: Passing, toll: &Toll) -> Arrival {
        let stated = f64::from(toll.rtt);
        Arrival {
            size: f64::from(packet.size),
            rtt: if stated > 0.0 { stated.min(MAX_RTT) } else { 0.0 },
            backlog: packet.backlog_bytes as f64,
            spent: f64::from(toll.stake) * f64::from(packet.size),
        }
    }

    /// The spending of the packet, which pays `paid` here. Divided by a time it is that of its
    /// flow.
    #[inline]
    fn spending(&self, paid: f64) -> Spending {
        Spending { whole: at_least(self.spent, paid), here: paid, rate: self.size }
    }

    #[inline]
    fn sums(&self, paid: f64) -> Sums {
        match self.rtt > 0.0 {
            true => Sums { paid, bytes: self.size, rtt_bytes: self.size * self.rtt, spent: self.spent },
            false => Sums { paid, ..Sums::default() },
        }
    }
}

impl LinkLaw for Fcp {
    #[inline]
    fn on_arrival(&mut self, now: Time, packet: Passing, toll: &Toll) -> Verdict {
        if packet.kind == Kind::Tolled {
            self.update(now, Arrival::of(packet, toll), packet.class, toll);
        } else {
            self.count_unpaid(now.as_nanos(), packet.size);
        }
        Verdict::Pass
    }

    /// Adds the price at the moment of departure, the freshest one.
    #[inline]
    fn on_departure(&mut self, now: Time, packet: Passing, toll: &mut Toll) -> Verdict {
        if packet.kind == Kind::Tolled {
            let price = match &self.classes {
                None => self.engine.price,
                Some(_) => self.class_says(now.as_nanos(), packet, toll),
            };
            toll.due = Price::per_byte(toll.due).plus(price).get();
        }
        Verdict::Pass
    }

    /// Sets a relative error of the price, for a test of stability (§ 6.1.2): 0.1 is 10 % too high.
    fn set_error(&mut self, part: f64) {
        self.error = (1.0 + part).max(0.0);
    }

    fn set_capacity(&mut self, _: Time, capacity: Rate) {
        self.capacity = capacity.bytes_per_sec();
    }

    fn stated_price(&self) -> Option<Price> {
        Some(self.price())
    }

    #[inline]
    fn is_gentle(&self) -> bool {
        true
    }
}

/// The shortest round-trip time that is believed, s.
const MIN_RTT: f64 = 1e-6;
/// A link's own price counts as that of the whole path if the path's is at most this multiple of
/// it.
const ALONE: f64 = 1.1;
/// The longest queue without effect on the price, in mean round-trip times.
const MOST_TARGET: f64 = 0.1;
/// The least price of a refused packet, $/byte.
const REFUSAL: f64 = 4.0 * Price::MIN.get();
/// Upper bound of a change of budget, $/s.
const MOST_CHANGE: f64 = 1e60;
/// The longest round-trip time that is believed, s: no packet can move the mean further.
const MAX_RTT: f64 = 10.0;
