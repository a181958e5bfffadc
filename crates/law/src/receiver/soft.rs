//! Soft flow control: a receiver states the rate at which its buffer drains (the Anypoint paper, §
//! IV-A).
//!
//! A credit promises buffer space to one sender; a soft rate promises nothing. The receiver runs an
//! XCP controller, as a router would. The controller's queue is the receive buffer. Its capacity is
//! λ_target, which an AIMD rule with five cases finds.
//!
//! [`Soft`] is that controller, stepped once per epoch. [`SoftWindow`] applies it remotely, to a
//! server that only answers: the queue is then inferred from the outstanding data.

use crate::Time;
use crate::link::XcpConfig;

/// The parameters of soft flow control.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SoftConfig {
    /// B, the receive buffer, bytes.
    pub buffer: f64,
    /// One segment, bytes: the unit of growth and the least window.
    pub segment: f64,
    /// `incrthresh`: the target grows while the queue is below this part of B.
    pub increase_below: f64,
    /// `decrthresh`: the target falls while the queue is above this part of B.
    pub decrease_above: f64,
    /// γ: the part of the target that a decrease takes.
    pub decrease: f64,
    /// α and β of XCP, as in [`XcpConfig`].
    pub gains: (f64, f64),
}

impl Default for SoftConfig {
    fn default() -> SoftConfig {
        let xcp = XcpConfig::default();
        SoftConfig {
            buffer: 204_800.0,
            segment: 1460.0,
            increase_below: 1.0 / 3.0,
            decrease_above: 0.5,
            decrease: 0.1,
            gains: (xcp.alpha, xcp.beta),
        }
    }
}

/// One epoch, as the receiver measured it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Epoch {
    /// d, its length, seconds; above zero. The average round trip.
    pub span: f64,
    /// Bytes that arrived: λ_in · d.
    pub arrived: f64,
    /// Bytes that the application read: λ_app · d.
    pub drained: f64,
    /// The mean queue, bytes.
    pub queue: f64,
    /// The longest queue, bytes.
    pub peak: f64,
    /// True if the receiver dropped a packet.
    pub dropped: bool,
}

/// The controller at the receive buffer.
///
/// The paper's rule leaves two gaps, closed here. Growth on strictly λ_app > λ_in stalls at
/// equality, so that ≥ is used. No case bounds the rate by the buffer, so that λ_target ≤ B/d.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Soft {
    config: SoftConfig,
    /// λ_target, bytes a second.
    target: f64,
}

impl Soft {
    /// Starts at the highest rate that the buffer allows over an epoch of `span` seconds.
    pub fn new(config: SoftConfig, span: f64) -> Soft {
        Soft { config, target: config.buffer / span }
    }

    /// Starts as an idle receiver does, at one segment an epoch of `span` seconds (case 1).
    pub fn idle(config: SoftConfig, span: f64) -> Soft {
        Soft { config, target: config.segment / span }
    }

    /// Sets the size of the buffer, bytes.
    pub fn set_buffer(&mut self, bytes: f64) {
        self.config.buffer = bytes;
    }

    /// λ_target, bytes a second.
    pub fn target(&self) -> f64 {
        self.target
    }

    /// Ends an epoch. Returns the feedback F·d, bytes: the change of the senders' windows for the
    /// next one.
    pub fn on_epoch(&mut self, epoch: &Epoch) -> f64 {
        let Soft { config, target } = self;
        let (least, most) = (config.segment / epoch.span, config.buffer / epoch.span);
        let queue = (epoch.queue + epoch.peak) / 2.0;
        let (arriving, draining) = (epoch.arrived / epoch.span, epoch.drained / epoch.span);
        if epoch.drained <= 0.0 {
            *target = least;
        } else if epoch.dropped {
            *target /= 2.0;
        } else if queue > config.decrease_above * config.buffer {
            *target *= 1.0 - config.decrease;
        } else if arriving >= 0.5 * *target
            && queue < config.increase_below * config.buffer
            && draining >= arriving
        {
            *target += 2.0 * least;
        }
        *target = target.clamp(least.min(most), most);
        let (alpha, beta) = config.gains;
        alpha * (*target - arriving) * epoch.span - beta * queue
    }
}

/// The window of a sender whose receiver is an unmodified server, observed only by its answers.
///
/// The queue is the outstanding data beyond those in service, λ_app · d₀, with d₀ the least
/// response time (Little's law). An epoch is a mean response time, at least 1 ms. An epoch without
/// outstanding data does not end.
#[derive(Clone, Copy, Debug)]
pub struct SoftWindow {
    config: SoftConfig,
    law: Option<Soft>,
    window: f64,
    outstanding: f64,
    /// Mean response time, and the least of this and the last period, seconds.
    mean: f64,
    least: [f64; 2],
    period: Time,
    begun: Time,
    arrived: f64,
    drained: f64,
    /// Outstanding bytes times seconds since the epoch began, their maximum, and the last change.
    area: f64,
    peak: f64,
    changed: Time,
}

impl SoftWindow {
    /// Starts with the whole buffer.
    pub fn new(config: SoftConfig, now: Time) -> SoftWindow {
        SoftWindow {
            config,
            law: None,
            window: config.buffer,
            outstanding: 0.0,
            mean: 0.0,
            least: [f64::INFINITY; 2],
            period: now,
            begun: now,
            arrived: 0.0,
            drained: 0.0,
            area: 0.0,
            peak: 0.0,
            changed: now,
        }
    }

    /// Bytes that may be outstanding, one segment at least.
    pub fn window(&self) -> u64 {
        self.window as u64
    }

    /// Bytes that are outstanding.
    pub fn outstanding(&self) -> u64 {
        self.outstanding as u64
    }

    /// λ_target, bytes a second, once a response time is known.
    pub fn target(&self) -> Option<f64> {
        self.law.map(|law| law.target())
    }

    /// The mean response time; zero while unknown.
    pub fn response(&self) -> Time {
        Time::from_secs_f64(self.mean)
    }

    /// Records `bytes` sent to the server.
    pub fn on_sent(&mut self, now: Time, bytes: u64) {
        if self.outstanding <= 0.0 && self.arrived <= 0.0 {
            (self.begun, self.changed) = (now, now);
        }
        self.integrate(now);
        self.outstanding += bytes as f64;
        self.arrived += bytes as f64;
        self.peak = self.peak.max(self.outstanding);
    }

    /// Records that the server has answered `bytes`; `response` is the response time of one, if
    /// measured.
    pub fn on_drained(&mut self, now: Time, bytes: u64, response: Option<Time>) {
        self.integrate(now);
        self.outstanding = (self.outstanding - bytes as f64).max(0.0);
        self.drained += bytes as f64;
        if let Some(response) = response.map(|time| time.as_secs_f64().max(1e-6)) {
            self.mean = if self.mean > 0.0 { self.mean + (response - self.mean) / 8.0 } else { response };
            if now.saturating_sub(self.period) > FORGET {
                self.least = [f64::INFINITY, self.least[0]];
                self.period = now;
            }
            self.least[0] = self.least[0].min(response);
        }
    }

    /// Removes `bytes` that will not be answered, such as those of a broken connection.
    pub fn on_lost(&mut self, now: Time, bytes: u64) {
        self.integrate(now);
        self.outstanding = (self.outstanding - bytes as f64).max(0.0);
    }

    /// Ends the epoch if it is over. Returns whether the window changed.
    pub fn poll(&mut self, now: Time) -> bool {
        let span = now.saturating_sub(self.begun).as_secs_f64();
        if self.mean <= 0.0 || span < self.mean.max(SHORTEST) || self.arrived + self.outstanding <= 0.0 {
            return false;
        }
        self.integrate(now);
        // Data in service are not a queue.
        let in_hand = self.drained / span * self.least[0].min(self.least[1]);
        let epoch = Epoch {
            span,
            arrived: self.arrived,
            drained: self.drained,
            queue: (self.area / span - in_hand).max(0.0),
            peak: (self.peak - in_hand).max(0.0),
            dropped: false,
        };
        let law = self.law.get_or_insert_with(|| Soft::new(self.config, span));
        let before = self.window;
        self.window = (self.window + law.on_epoch(&epoch)).clamp(self.config.segment, self.config.buffer);
        (self.begun, self.changed) = (now, now);
        (self.arrived, self.drained, self.area) = (0.0, 0.0, 0.0);
        self.peak = self.outstanding;
        before != self.window
    }

    fn integrate(&mut self, now: Time) {
        self.area += self.outstanding * now.saturating_sub(self.changed).as_secs_f64();
        self.changed = self.changed.max(now);
    }
}

/// The shortest epoch, seconds: in a shorter one, a few answers would set the rate.
const SHORTEST: f64 = 1e-3;
/// The least response time is forgotten after one to two of these.
const FORGET: Time = Time::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(arrived: f64, drained: f64, queue: f64) -> Epoch {
        Epoch { span: 0.01, arrived, drained, queue, peak: queue, dropped: false }
    }

    #[test]
    fn each_of_the_five_cases_moves_the_target_as_the_paper_says() {
        let config = SoftConfig { buffer: 120_000.0, segment: 1000.0, ..SoftConfig::default() };
        let start = |target| Soft { config, target };
        for (before, epoch, after) in [
            (5e6, epoch(50_000.0, 0.0, 10.0), 1e5),
            (5e6, Epoch { dropped: true, ..epoch(50_000.0, 50_000.0, 0.0) }, 2.5e6),
            (5e6, epoch(50_000.0, 50_000.0, 70_000.0), 4.5e6),
            (5e6, epoch(20_000.0, 50_000.0, 0.0), 5e6),
            (5e6, epoch(50_000.0, 50_000.0, 0.0), 5.2e6),
            // Between the marks, or draining more slowly than data arrive: held.
            (5e6, epoch(50_000.0, 50_000.0, 50_000.0), 5e6),
            (5e6, epoch(50_000.0, 40_000.0, 0.0), 5e6),
            // Never above B/d.
            (1.2e7, epoch(120_000.0, 120_000.0, 0.0), 1.2e7),
        ] {
            let mut law = start(before);
            law.on_epoch(&epoch);
            assert!((law.target() - after).abs() < 1.0, "{epoch:?}: {} for {after}", law.target());
        }
    }

    /// Drives a server that serves `rate` bytes a second in order, `work` seconds each, by a sender
    /// that always has more.
    fn drive(window: &mut SoftWindow, from: Time, seconds: f64, rate: f64) -> (Time, f64) {
        let (frame, step) = (1000u64, Time::from_micros(20));
        let mut queue: std::collections::VecDeque<Time> =
            (0..window.outstanding() / frame).map(|_| from).collect();
        let (mut now, mut credit, mut served) = (from, 0.0, 0u64);
        let until = from + Time::from_secs_f64(seconds);
        while now < until {
            while window.outstanding() + frame <= window.window() {
                window.on_sent(now, frame);
                queue.push_back(now);
            }
            credit = (credit + rate * step.as_secs_f64()).min(frame as f64 * 64.0);
            now += step;
            // The path there and back.
            while credit >= frame as f64
                && queue.front().is_some_and(|&sent| now >= sent + Time::from_micros(500))
            {
                credit -= frame as f64;
                served += frame;
                let sent = queue.pop_front().unwrap_or(now);
                window.on_drained(now, frame, Some(now.saturating_sub(sent)));
            }
            window.poll(now);
        }
        (now, served as f64 / seconds)
    }

    #[test]
    fn the_window_follows_what_a_server_drains_and_its_queue_stays_under_half_a_buffer() {
        let config = SoftConfig { buffer: 1_000_000.0, ..SoftConfig::default() };
        let mut window = SoftWindow::new(config, Time::ZERO);
        let (now, rate) = drive(&mut window, Time::ZERO, 2.0, 50e6);
        assert!(rate > 0.95 * 50e6, "{rate}");
        let (now, rate) = drive(&mut window, now, 2.0, 5e6);
        assert!(rate > 0.95 * 5e6, "{rate}");
        let excess = window.outstanding() as f64;
        assert!(excess < 0.6 * config.buffer, "{excess} outstanding");
        // A server that has stopped is left at one segment or little more, and found again when it
        // goes on.
        let (now, _) = drive(&mut window, now, 3.0, 0.0);
        assert!(window.window() < 20_000, "{}", window.window());
        let (_, rate) = drive(&mut window, now, 4.0, 50e6);
        assert!(rate > 0.5 * 50e6, "{rate}");
    }

    #[test]
    fn an_idle_epoch_changes_nothing() {
        let mut window = SoftWindow::new(SoftConfig::default(), Time::ZERO);
        window.on_sent(Time::ZERO, 1000);
        window.on_drained(Time::from_millis(1), 1000, Some(Time::from_millis(1)));
        window.poll(Time::from_millis(2));
        let before = window.window();
        for ms in 3..1000 {
            assert!(!window.poll(Time::from_millis(ms)));
        }
        assert_eq!(window.window(), before);
    }
}
