//! What a connection wants, by what it did.

use crate::{Rate, Time};

/// What a connection did since it was looked at last, and how it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// How long that is; zero at the first look.
    pub span: Time,
    /// Bytes on the wire sent in it.
    pub sent: u64,
    /// For how much of it the receiver's window held the connection.
    pub by_receiver: Time,
    /// Whether there are data it has not sent yet.
    pub backlog: bool,
    /// Whether its congestion window has room for more.
    pub window_open: bool,
    /// What it would do at most by its own reckoning, on the wire: what its window, or its law,
    /// paces it to.
    pub own: Rate,
    /// The rate that it was let have.
    pub limit: Rate,
    /// Its smoothed round trip, zero while unknown.
    pub rtt: Time,
    /// After so long a limit that was raised shows in `own`: with the next acknowledgement.
    pub echo: Time,
}

/// What holds a connection back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LimitedBy {
    /// It has nothing to send.
    #[default]
    Nothing,
    /// The program writes less than it could.
    Application,
    /// The receiver reads less.
    Receiver,
    /// Its congestion window: the path, or that it has only begun.
    Window,
    /// The rate we let it have.
    Share,
}

impl LimitedBy {
    /// A word for it.
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

/// What is to be kept for a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Wants {
    /// As much as it uses, on the wire.
    pub keep: Rate,
    /// It wants all it can get.
    pub hungry: bool,
    /// It did, and its window has come between: what it can't use for a while is kept for it.
    pub waits: bool,
}

impl Wants {
    /// Bytes a second, infinite where `hungry` says so.
    pub(super) fn wants(&self, hungry: fn(&Wants) -> bool) -> f64 {
        if hungry(self) { f64::INFINITY } else { self.keep.bytes_per_sec() }
    }

    pub(super) fn is_hungry(&self) -> bool {
        self.hungry
    }

    /// It hungers, or would if its window let it.
    pub(super) fn persists(&self) -> bool {
        self.hungry || self.waits
    }
}

/// The estimate of what a connection wants: it hungers while its share is all that holds it.
///
/// What it uses is averaged over 100 ms, so that of what it leaves all but a hundredth is lent
/// within half a second and a round trip. One that has run dry within the last second, or waited
/// for its receiver, is not taken at its word: it has to want all it can get for a round trip, or
/// 100 ms, before the others lose that. Its own limit is the same all the while. One that its
/// window holds uses no more than that lets through, or its law paces it to: that is known at once.
/// If it hungered before, it *waits*. One that is met with data waiting is believed to use what its
/// window lets it, until the next look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Demand {
    /// Bytes a second.
    uses: f64,
    by: LimitedBy,
    /// Follows the limit down at once and up as it can show: what it can be measured by.
    yardstick: f64,
    /// Time that its share, and nothing else, has held it.
    pressed: Time,
    /// Time since something else did.
    calm: Time,
    /// It hungers until its share has not held it for so long.
    patience: Time,
    /// Time that it has hungered, but for waits.
    hungered: Time,
    /// How long its present wait is.
    waited: Time,
    seen: bool,
}

impl Demand {
    /// What is known before anything is.
    pub fn new() -> Demand {
        Demand::default()
    }

    /// What holds it back.
    pub fn limited_by(&self) -> LimitedBy {
        self.by
    }

    /// What it uses, on the wire.
    pub fn uses(&self) -> Rate {
        Rate::from_bytes_per_sec(self.uses)
    }

    /// Takes in what it did, and answers what to keep for it.
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

/// Who would send so much of its limit by itself, or more, is held by that: paces are set to within
/// a part in 250.
const NEARLY: f64 = 0.97;
/// Over what use is averaged.
const AVERAGE: Time = Time::from_millis(100);
/// A look or two at which its share does not seem to hold it say nothing yet, or one where looks
/// are seldom: BBR goes a quarter slower now and then.
const HOLD: Time = Time::from_millis(60);
/// For no longer has anybody to insist.
const LONGEST: Time = Time::from_millis(500);
/// Who has not run dry for so long is believed at once; whose share has held it for so long is kept
/// its part when its window does.
const TRUST: Time = Time::from_secs(1);
/// For so long; by then it is its path that holds it.
const LONGEST_WAIT: Time = Time::from_secs(3);
