//! The demand of a connection, estimated from its traffic.

use crate::{Rate, Time};

/// The traffic of a connection since the last sample, and its state.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// The time covered; zero at the first sample.
    pub span: Time,
    /// Bytes sent in that time, on the wire.
    pub sent: u64,
    /// The part of that time in which the receiver's window limited the connection.
    pub by_receiver: Time,
    /// True if unsent data are waiting.
    pub backlog: bool,
    /// True if its congestion window has room.
    pub window_open: bool,
    /// The rate by its own control, on the wire: that of its window, or the pace of its law.
    pub own: Rate,
    /// The rate limit that was in force.
    pub limit: Rate,
    /// Its smoothed round trip, zero while unknown.
    pub rtt: Time,
    /// The time after which a raised limit shows in `own`: with the next acknowledgement.
    pub echo: Time,
}

/// The cause that limits a connection's rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LimitedBy {
    /// It has no data to send.
    #[default]
    Nothing,
    /// The program writes less than the connection could send.
    Application,
    /// The receiver reads slowly.
    Receiver,
    /// Its congestion window: the path, or slow start.
    Window,
    /// Its share: the rate limit set here.
    Share,
}

impl LimitedBy {
    /// The cause's word in status output.
    pub fn word(self) -> &'static str {
        match self {
            LimitedBy::Nothing => "idle",
            LimitedBy::Application => "application",
            LimitedBy::Receiver => "receiver",
            LimitedBy::Window => "window",
            LimitedBy::Share => "share",
        }
    }
}

/// The demand of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Wants {
    /// The rate to reserve: its use, on the wire.
    pub keep: Rate,
    /// True if it can use any rate.
    pub hungry: bool,
    /// True if it could, but its window limits it now: the unused part is reserved for it.
    pub waits: bool,
}

impl Wants {
    /// Demand in bytes/s, infinite where `hungry` is true.
    pub(super) fn wants(&self, hungry: fn(&Wants) -> bool) -> f64 {
        if hungry(self) { f64::INFINITY } else { self.keep.bytes_per_sec() }
    }

    pub(super) fn is_hungry(&self) -> bool {
        self.hungry
    }

    /// True if it can use any rate, now or once its window allows.
    pub(super) fn persists(&self) -> bool {
        self.hungry || self.waits
    }
}

/// An estimator of a connection's demand. A connection is *hungry* while its share is its only
/// limit.
///
/// Its use is averaged over 100 ms, so that 99 % of an unused share is lent within half a second
/// and a round trip.
///
/// A connection that ran out of data within the last second, or waited for its receiver, is not
/// hungry at once. Its share must limit it for a round trip, or 100 ms, before other connections
/// give up theirs. Its limit is the same throughout. A connection limited by its window uses only
/// what that allows, or its law's pace, which is known at once. If it was hungry before, it
/// *waits*. A connection with data waiting counts with the use that its window allows, until the
/// next sample.
#[derive(Clone, Copy, Debug, Default)]
pub struct Demand {
    /// Average use, bytes/s.
    uses: f64,
    by: LimitedBy,
    /// Follows the limit down at once and up as it can show in `own`: the measure of use.
    yardstick: f64,
    /// The time for which only its share has limited it.
    pressed: Time,
    /// The time since another cause limited it.
    calm: Time,
    /// It is hungry until its share has not limited it for this time.
    patience: Time,
    /// The time for which it has been hungry, without waits.
    hungered: Time,
    /// The length of its present wait.
    waited: Time,
    seen: bool,
}

impl Demand {
    /// An estimator without samples.
    pub fn new() -> Demand {
        Demand::default()
    }

    /// The cause that limits it.
    pub fn limited_by(&self) -> LimitedBy {
        self.by
    }

    /// Its average use, on the wire.
    pub fn uses(&self) -> Rate {
        Rate::from_bytes_per_sec(self.uses)
    }

    /// Adds a sample, and returns the demand.
    pub fn observe(&mut self, sample: &Sample) -> Wants {
        let span = sample.span.as_secs_f64();
        if span > 0.0 {
            let old = libm::exp(-span / AVERAGE.as_secs_f64());
            self.uses = self.uses * old + sample.sent as f64 / span * (1.0 - old);
        }
        // Silence for long is silence, not ever smaller numbers.
        if self.uses < 1.0 {
            self.uses = 0.0;
        }
        let limit = sample.limit.bytes_per_sec();
        let lag = (sample.echo + Time::from_millis(20)).as_secs_f64();
        self.yardstick = match self.seen {
            true if limit > self.yardstick => {
                self.yardstick + (limit - self.yardstick) * (1.0 - libm::exp(-span / lag))
            }
            _ => limit,
        };
        let first = !self.seen;
        self.seen = true;

        self.by = if sample.by_receiver.0 > sample.span.0 / 20 {
            LimitedBy::Receiver
        } else if !sample.backlog {
            if self.uses > 0.0 { LimitedBy::Application } else { LimitedBy::Nothing }
        } else if sample.window_open && sample.own.bytes_per_sec() >= NEARLY * self.yardstick {
            LimitedBy::Share
        } else {
            LimitedBy::Window
        };
        let dry = !matches!(self.by, LimitedBy::Share | LimitedBy::Window);
        self.calm = match dry {
            true => Time::ZERO,
            false if first => TRUST,
            false => self.calm.saturating_add(sample.span),
        };
        let long = sample.rtt.clamp(Time::from_millis(100), LONGEST);
        if self.by == LimitedBy::Share {
            self.pressed = self.pressed.saturating_add(sample.span);
            if self.calm >= TRUST || self.pressed >= long {
                self.patience = HOLD.max(sample.span * 2);
            }
        } else {
            self.pressed = Time::ZERO;
            // One that has all but stopped by itself will not take its part in a look or two.
            let stopped = sample.own.bytes_per_sec() < 0.5 * self.yardstick;
            self.patience =
                if dry || stopped { Time::ZERO } else { self.patience.saturating_sub(sample.span) };
        }
        let hungry = self.patience > Time::ZERO;
        let waits = !dry && !hungry && self.hungered >= TRUST && self.waited < LONGEST_WAIT;
        (self.hungered, self.waited) = match hungry {
            true => (self.hungered.saturating_add(sample.span), Time::ZERO),
            false if waits => (self.hungered, self.waited.saturating_add(sample.span)),
            false => (Time::ZERO, Time::ZERO),
        };
        let uses = self.uses * if self.by == LimitedBy::Window { 1.25 } else { 1.05 };
        let own = sample.own.bytes_per_sec();
        let keep = match self.by {
            // Of one that is new it is only known what its window lets it send.
            _ if first && sample.backlog => own,
            LimitedBy::Window => uses.min(own * 1.02),
            _ => uses,
        };
        let keep = Rate::from_bytes_per_sec(keep);
        Wants { keep, hungry, waits }
    }
}

/// A connection whose own rate is at least this fraction of its limit is limited by it: paces are
/// set to within a part in 250.
const NEARLY: f64 = 0.97;
/// Averaging time of the use.
const AVERAGE: Time = Time::from_millis(100);
/// The time for which samples without pressure from its share are ignored, or one sample where they
/// are rare: BBR goes a quarter slower now and then.
const HOLD: Time = Time::from_millis(60);
/// Upper bound on the time for which its share must limit it.
const LONGEST: Time = Time::from_millis(500);
/// A connection that has had data for this time is believed at once. One that was hungry for this
/// time has its part reserved while its window limits it.
const TRUST: Time = Time::from_secs(1);
/// The longest wait; after that its path limits it.
const LONGEST_WAIT: Time = Time::from_secs(3);
