//! XCP's router: spare bandwidth is handed out equally, excess is taken back in proportion to
//! rates.
//!
//! The algorithm is stated once, [`Xcp`], over a [`Number`]: `f64`, the XCP study's 32-bit
//! significand ([`Shift32`]), or 128-bit fixed point ([`Fixed128`]). The compiler builds a separate
//! router for each, so the generic form costs the `f64` router nothing. Sources: Katabi, Handley,
//! Rohrs, SIGCOMM 2002 (§ 3.5); draft-falk-xcp-spec-03 (§ 5); Zhang & Henderson, INFOCOM 2005 ("the
//! study"); and ns-2.35 for points that those leave open.

mod config;
mod fixed128;
mod number;
mod shift32;
#[cfg(test)]
mod tests;

pub use config::{Arithmetic, Beside, CapacityFrom, Form, XcpConfig};
pub use fixed128::Fixed128;
pub use number::{Accumulator, Number, sane_amount, sane_seconds};
pub use shift32::{Shift32, Sum64};

use super::{Control, LinkLaw, Passing, Verdict};
use crate::{Kind, Rate, Time, Toll};

/// The XCP router of one output port, with arithmetic in `N`.
///
/// **Statistics at arrival, feedback at departure.** The arrivals of an interval give its input
/// traffic and the mean round-trip time. Packets are weighted by X ([`Toll::offer`], the time
/// between their sender's packets). At the end of the interval they become the feedback for the
/// next one. An amount to hand out is shared in proportion to X, which is equal for every flow,
/// since flows with a small X send many packets. An amount to take back is shared in proportion to
/// bytes.
///
/// **Time.** There are two timers: the control interval (as long as the mean round-trip time) and
/// the queue interval. Each packet brings the time, and the router first handles every expiry up to
/// and including that instant, control before queue where both coincide. Expiries use the backlog
/// before the packet, which has not changed since the last one. Idle time is skipped in one step
/// with the same result.
///
/// **Fields of packets are not trusted to be numbers**: see [`sane_seconds`] and [`sane_amount`]. A
/// packet without a round-trip time counts by its bytes only, and gets 0 (draft § 4, ns-2.35).
#[derive(Clone, Debug)]
pub struct Xcp<N: Number> {
    /// The earlier expiry of the two timers, in nanoseconds: the only one that a packet must check.
    next: u64,
    /// Bytes that arrived in this control interval, framing estimate included; exact in every form.
    input_bytes: u64,
    /// Σ X and Σ X · RTT of this control interval: s, s².
    sum_x: N::Sum,
    sum_x_rtt: N::Sum,
    /// The amounts left to hand out and to take back in this interval: bytes/s.
    positive: N::Sum,
    negative: N::Sum,
    /// A packet's gain per second of its X (bytes/s²), and its loss per byte (1/s).
    per_x: N,
    per_byte: N,
    /// The least backlog a departure left behind in this queue interval, and the persistent queue:
    /// bytes.
    least_backlog: u64,
    queue: u64,
    /// The backlog after the last packet, if that was admitted; used between packets.
    backlog: u64,
    control_timer: Timer,
    queue_timer: Timer,
    /// Mean round-trip time, s; capacity and aggregate feedback, bytes/s.
    rtt: N,
    capacity: N,
    feedback: N,
    intervals: u64,
    constants: Constants<N>,
}

/// An expiry that a router handled; another router can [follow](Xcp::follow) it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tick {
    control: bool,
    /// Number of expiries in a row, where nothing changes after the first.
    times: u64,
    /// Nanoseconds to the next one.
    period: u64,
}

/// A router's answer to a departing packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant<N> {
    /// Its feedback in bytes/s; `None` if the packet requests less, which then stands.
    pub(super) feedback: Option<N>,
    /// The larger of its nominal positive and negative parts, before the limits of the pools:
    /// bytes/s.
    pub(super) larger_part: N,
}

/// Instants and spans in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Timer {
    next: u64,
    period: u64,
}

/// [`XcpConfig`] in the router's numbers.
#[derive(Clone, Copy, Debug)]
struct Constants<N> {
    alpha: N,
    beta: N,
    gamma: N,
    /// The bit pattern of a float, as in packets.
    max_rtt: u32,
    initial_rtt: N,
    shortest_rtt: N,
    half: N,
    min_interval: u64,
    allowed_queue: u64,
    overhead: u64,
    form: Form,
}

impl<N: Number> Xcp<N> {
    /// A router for a link of `capacity`, at the start of a run.
    pub fn new(config: &XcpConfig, capacity: Rate) -> Xcp<N> {
        let amount = |value: f64| N::from_amount(sane_amount(value));
        // A timer of zero would never be caught up with.
        let nanos = |span: Time| span.0.clamp(1_000, LONGEST_NANOS);
        let initial = nanos(config.initial_interval);
        let initial_rtt = N::from_nanos(initial);
        let none = N::Sum::holding(N::ZERO);
        Xcp {
            next: config.first_control.min(config.first_queue).0,
            input_bytes: 0,
            sum_x: none,
            sum_x_rtt: none,
            positive: none,
            negative: none,
            per_x: N::ZERO,
            per_byte: N::ZERO,
            least_backlog: 0,
            queue: 0,
            backlog: 0,
            control_timer: Timer { next: config.first_control.0, period: initial },
            queue_timer: Timer { next: config.first_queue.0, period: initial },
            rtt: initial_rtt,
            capacity: Self::sane_capacity(capacity),
            feedback: N::ZERO,
            intervals: 0,
            constants: Constants {
                alpha: amount(config.alpha),
                beta: amount(config.beta),
                gamma: amount(config.gamma),
                max_rtt: sane_seconds(nanos(config.max_interval) as f32 * 1e-9),
                initial_rtt,
                shortest_rtt: N::from_nanos(1_000),
                half: amount(0.5),
                min_interval: nanos(config.min_interval),
                allowed_queue: nanos(config.allowed_queue),
                overhead: config.overhead.unwrap_or_default().0.min(1 << 20),
                form: config.form,
            },
        }
    }

    /// The aggregate feedback F of the last control interval, bytes/s: α · spare bandwidth − β ·
    /// queue / RTT.
    pub fn feedback(&self) -> f64 {
        f64::from_bits(self.feedback.to_amount())
    }

    /// The mean round-trip time of the last control interval's packets, s; the initial one if there
    /// were none.
    pub fn avg_rtt(&self) -> f64 {
        f64::from_bits(self.rtt.to_amount())
    }

    /// The persistent queue, bytes: the part that did not drain during the last queue interval.
    pub fn persistent_queue(&self) -> u64 {
        self.queue
    }

    /// Number of control intervals that have ended.
    pub fn intervals(&self) -> u64 {
        self.intervals
    }

    /// Start and end of the present control interval.
    pub fn interval(&self) -> (Time, Time) {
        let Timer { next, period } = self.control_timer;
        (Time(next.saturating_sub(period)), Time(next))
    }

    /// The amounts left to hand out and to take back in this control interval, bytes/s.
    pub fn pools(&self) -> (f64, f64) {
        (f64::from_bits(self.positive.value().to_amount()), f64::from_bits(self.negative.value().to_amount()))
    }

    /// The backlog after the last packet, bytes, if it was admitted.
    pub(super) fn backlog(&self) -> u64 {
        self.backlog
    }

    /// Handles expiries up to `now`; `backlog` bytes have been queued since the last packet.
    #[inline]
    fn catch_up(&mut self, now: Time, backlog: u64) {
        if now.0 >= self.next {
            self.catch_up_slowly(now, backlog);
        }
    }

    #[cold]
    fn catch_up_slowly(&mut self, now: Time, backlog: u64) {
        while self.expire(now, backlog).is_some() {}
    }

    /// Handles the earliest expiry that is due at `now`, if any.
    pub(super) fn expire(&mut self, now: Time, backlog: u64) -> Option<Tick> {
        if self.next > now.0 || self.next == u64::MAX {
            return None;
        }
        let tick = if self.control_timer.next <= self.queue_timer.next {
            let quiet = self.is_quiet();
            let period = self.end_control_interval();
            // A quiet interval leaves what it leaves whatever was before, so those that follow
            // change nothing.
            let times = if quiet { 1 + (now.0 - self.next) / period } else { 1 };
            Tick { control: true, times, period }
        } else {
            let before = (self.queue, self.least_backlog, self.queue_timer.period);
            let period = self.end_queue_interval(backlog);
            // The same here, until the next control interval may change the mean round-trip time.
            let until = self.control_timer.next.min(now.0.saturating_add(1));
            let settled = before == (backlog, backlog, period);
            let times = if settled { (until - self.next).div_ceil(period).max(1) } else { 1 };
            Tick { control: false, times, period }
        };
        self.rearm(tick);
        Some(tick)
    }

    /// Repeats the expiry of another router that sees the same packets, with its periods. So two
    /// arithmetics divide one trace into the same intervals to the nanosecond.
    pub(super) fn follow(&mut self, tick: Tick, backlog: u64) {
        if tick.control {
            self.end_control_interval();
        } else {
            self.end_queue_interval(backlog);
        }
        self.rearm(tick);
    }

    fn rearm(&mut self, tick: Tick) {
        if tick.control {
            self.intervals += tick.times;
        }
        let timer = if tick.control { &mut self.control_timer } else { &mut self.queue_timer };
        timer.next = timer.next.saturating_add(tick.period.saturating_mul(tick.times));
        timer.period = tick.period;
        self.next = self.control_timer.next.min(self.queue_timer.next);
    }

    /// True if no packet arrived in this control interval.
    fn is_quiet(&self) -> bool {
        self.input_bytes == 0 && self.sum_x.value() == N::ZERO
    }

    /// Ends the control interval: its statistics become the feedback of the next one. Returns the
    /// length of the next one, ns.
    fn end_control_interval(&mut self) -> u64 {
        let Constants { alpha, beta, gamma, initial_rtt, shortest_rtt, .. } = self.constants;
        let (zero, sum_x) = (N::ZERO, self.sum_x.value());
        self.rtt = if sum_x > zero {
            // The floor is only against packets that lie: a queue over a picosecond is no finite
            // feedback.
            (self.sum_x_rtt.value() / sum_x).most(shortest_rtt)
        } else {
            initial_rtt
        };
        let (mut feedback, mut shuffled) = (zero, zero);
        (self.per_x, self.per_byte) = (zero, zero);
        let bytes = N::from_count(self.input_bytes);
        if self.input_bytes > 0 {
            let y = match self.constants.form {
                Form::Throughput => bytes / N::from_nanos(self.control_timer.period),
                Form::Window => bytes / self.rtt,
            };
            let drain = beta * N::from_count(self.queue) / self.rtt;
            feedback = alpha * (self.capacity - y) - drain;
            let magnitude = feedback.most(zero - feedback);
            shuffled = (gamma * y - magnitude).most(zero);
        }
        let positive = shuffled + feedback.most(zero);
        let negative = shuffled + (zero - feedback).most(zero);
        if self.input_bytes > 0 {
            // No X at all: nothing that came can be given anything; ns-2 divides by one second.
            let shares = if sum_x > zero { sum_x } else { N::from_count(1) };
            self.per_x = positive / shares;
            self.per_byte = negative / bytes;
        }
        // The unused pools of the old interval are discarded.
        self.positive = N::Sum::holding(positive);
        self.negative = N::Sum::holding(negative);
        self.feedback = feedback;
        self.input_bytes = 0;
        self.sum_x = N::Sum::holding(zero);
        self.sum_x_rtt = N::Sum::holding(zero);
        self.rtt.to_nanos().max(self.constants.min_interval)
    }

    /// Ends the queue interval: the least backlog in it is the persistent queue. Returns the length
    /// of the next one, ns.
    ///
    /// It has a separate timer. Measured over the control interval, the queue would feed back on
    /// the control loop.
    fn end_queue_interval(&mut self, backlog: u64) -> u64 {
        self.queue = self.least_backlog;
        self.least_backlog = backlog;
        let allowed = self.constants.allowed_queue;
        if self.capacity > N::ZERO {
            let to_drain = N::from_count(backlog) / self.capacity;
            ((self.rtt - to_drain) * self.constants.half).to_nanos().max(allowed)
        } else {
            allowed
        }
    }

    /// Counts a packet, after all expiries are handled.
    #[inline]
    pub(super) fn arrive(&mut self, packet: Passing, toll: &Toll) {
        self.backlog = packet.backlog_bytes + u64::from(packet.size);
        self.input_bytes += u64::from(packet.size) + self.constants.overhead;
        if packet.kind == Kind::Tolled {
            let rtt = sane_seconds(toll.rtt);
            if rtt != 0 {
                let x = N::from_seconds(sane_seconds(toll.offer));
                self.sum_x.put(x);
                self.sum_x_rtt.put(x * N::from_seconds(rtt.min(self.constants.max_rtt)));
            }
        }
    }

    /// A packet's feedback, after all expiries are handled; `None` if it requests or gets none.
    #[inline]
    pub(super) fn depart(&mut self, packet: Passing, toll: &Toll) -> Option<Grant<N>> {
        self.least_backlog = self.least_backlog.min(packet.backlog_bytes);
        self.backlog = packet.backlog_bytes.saturating_sub(u64::from(packet.size));
        if packet.kind != Kind::Tolled || sane_seconds(toll.rtt) == 0 {
            return None;
        }
        let x = N::from_seconds(sane_seconds(toll.offer));
        let bytes = N::from_count(u64::from(packet.size) + self.constants.overhead);
        let asked = N::from_amount(sane_amount(toll.due));
        let (by_x, mut by_bytes) = (self.per_x * x, self.per_byte * bytes);
        // A toll may speak for packets that went without. X says so by itself; the bytes are taken
        // to be alike. The cast saturates.
        let spoken_for = toll.stake as u32;
        if spoken_for > 1 {
            by_bytes = by_bytes * N::from_count(u64::from(spoken_for.min(MOST_SPOKEN_FOR)));
        }
        // An empty pool needs no flag: what it gives is zero.
        let (give, take) = (self.positive.draw(by_x), self.negative.draw(by_bytes));
        let fair = give - take;
        let stands = asked < fair;
        if stands {
            // A link before this one, or the sender, allows less. The pools must balance all the
            // same: what the packet leaves of its gift is counted as taken back, as far as there is
            // anything to take back; beyond that, as not given. (Never as given back: a wild `due`
            // must not fill the pool.)
            let more = give - asked - take; // fair − asked, positive
            let drawn = self.negative.draw(more);
            if drawn < more {
                let given = (asked + take + drawn).most(N::ZERO);
                self.positive.put((give - given).most(N::ZERO));
            }
        }
        Some(Grant { feedback: if stands { None } else { Some(fair) }, larger_part: by_x.most(by_bytes) })
    }

    /// The capacity, limited so that its products stay in the range of every arithmetic.
    fn sane_capacity(capacity: Rate) -> N {
        N::from_amount(sane_amount(capacity.bytes_per_sec())).least(N::from_count(CAPACITY_MOST))
    }
}

impl<N> Grant<N> {
    /// Writes the feedback into the toll that it was computed for.
    #[inline]
    pub(super) fn write(grant: Option<Grant<N>>, kind: Kind, toll: &mut Toll)
    where
        N: Number,
    {
        match grant {
            Some(Grant { feedback: Some(feedback), .. }) => toll.due = f64::from_bits(feedback.to_amount()),
            Some(_) => toll.due = f64::from_bits(sane_amount(toll.due)),
            None if kind == Kind::Tolled => toll.due = 0.0,
            None => return,
        }
        toll.pass_router();
    }
}

impl<N: Number> LinkLaw for Xcp<N> {
    #[inline]
    fn on_arrival(&mut self, now: Time, packet: Passing, toll: &Toll) -> Verdict {
        self.catch_up(now, packet.backlog_bytes);
        self.arrive(packet, toll);
        Verdict::Pass
    }

    #[inline]
    fn on_departure(&mut self, now: Time, packet: Passing, toll: &mut Toll) -> Verdict {
        self.catch_up(now, packet.backlog_bytes);
        let grant = self.depart(packet, toll);
        Grant::write(grant, packet.kind, toll);
        Verdict::Pass
    }

    /// Intervals that ended before are handled with the old capacity. (They use the backlog after
    /// the last arrival as if it was admitted, which is at most one packet too many.)
    fn set_capacity(&mut self, now: Time, capacity: Rate) {
        self.catch_up(now, self.backlog);
        self.capacity = Self::sane_capacity(capacity);
    }

    fn control(&self) -> Option<Control> {
        let (begins, ends) = self.interval();
        Some(Control {
            feedback: self.feedback(),
            avg_rtt: self.avg_rtt(),
            persistent_queue: self.persistent_queue(),
            begins,
            ends,
        })
    }

    fn control_intervals(&self) -> u64 {
        self.intervals
    }

    #[inline]
    fn is_gentle(&self) -> bool {
        true
    }
}

/// Upper bound on the packets that one toll can speak for; products stay in the range of every
/// arithmetic.
const MOST_SPOKEN_FOR: u32 = 1 << 16;

/// A petabyte a second.
const CAPACITY_MOST: u64 = 1 << 50;

/// The longest period that a configuration can set: an hour.
const LONGEST_NANOS: u64 = 3600 * 1_000_000_000;
