//! When a daemon announces its links' costs (§ V).

use serde::{Deserialize, Serialize};

use crate::Time;

/// The constants of announcements.
///
/// Out-of-range values are pulled into range: `least` to 1 ms … 1 h, `most` to `least` … 1 h,
/// `change` to 0 … 1000.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct AnnounceConfig {
    /// T_min, the shortest time between two announcements. 50 ms (§ V); 2 ms suits a LAN. All spans
    /// of the laws scale with it.
    pub least: Time,
    /// T_max, the longest time between two. 2.5 s (§ V).
    pub most: Time,
    /// The change of a cost that is announced after T_min, as a part of the price 1 + C last
    /// announced. 0: any change. The paper leaves it open; the parameter study chose 0.3.
    pub change: f64,
}

impl Default for AnnounceConfig {
    fn default() -> AnnounceConfig {
        AnnounceConfig { least: Time::from_millis(50), most: Time::from_millis(2500), change: 0.3 }
    }
}

impl AnnounceConfig {
    /// The constants, pulled into range.
    pub fn clamped(self) -> AnnounceConfig {
        let hour = Time::from_secs(3600);
        let least = self.least.clamp(Time::from_millis(1), hour);
        let change = if self.change > 0.0 { self.change.min(1000.0) } else { 0.0 };
        AnnounceConfig { least, most: self.most.clamp(least, hour), change }
    }
}

/// The schedule of one daemon's announcements.
#[derive(Clone, Copy, Debug)]
pub struct Announcer {
    config: AnnounceConfig,
    last: Option<Time>,
}

impl Announcer {
    /// A daemon that has announced nothing.
    pub fn new(config: AnnounceConfig) -> Announcer {
        Announcer { config: config.clamped(), last: None }
    }

    /// Compares a link's cost with the announced one: true if the difference is significant.
    pub fn significant(&self, announced: f64, cost: f64) -> bool {
        // The end of congestion always is: it leaves a daemon quiet.
        (cost - announced).abs() > self.config.change * (1.0 + announced)
            || ((cost == 0.0) != (announced == 0.0))
    }

    /// Decides on an announcement at `now`: `significant` if a cost or a link has changed, `costly`
    /// if any cost is above zero.
    ///
    /// Costs that are zero and unchanged are not repeated: 1602 quiet daemons would fill 16 % of a
    /// 2 Mb/s link.
    pub fn due(&self, now: Time, significant: bool, costly: bool) -> bool {
        let Some(last) = self.last else { return true };
        let waited = now.saturating_sub(last);
        (significant && waited >= self.config.least) || (costly && waited >= self.config.most)
    }

    /// An announcement is made at `now`.
    pub fn announced(&mut self, now: Time) {
        self.last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_wait_for_the_shortest_interval_and_quiet_daemons_stay_quiet() {
        let mut announcer = Announcer::new(AnnounceConfig::default());
        assert!(announcer.due(Time::ZERO, false, false));
        announcer.announced(Time::ZERO);
        assert!(!announcer.due(Time::from_millis(49), true, true));
        assert!(announcer.due(Time::from_millis(50), true, true));
        assert!(!announcer.due(Time::from_millis(2499), false, true));
        assert!(announcer.due(Time::from_millis(2500), false, true));
        assert!(!announcer.due(Time::from_secs(100), false, false));
    }

    #[test]
    fn a_threshold_is_a_part_of_the_price() {
        let with = |change| Announcer::new(AnnounceConfig { change, ..AnnounceConfig::default() });
        let announcer = with(0.1);
        assert!(!announcer.significant(1.0, 1.19) && announcer.significant(1.0, 1.21));
        assert!(announcer.significant(0.05, 0.0) && announcer.significant(0.0, 0.01));
        assert!(with(0.0).significant(1.0, 1.0001));
    }

    #[test]
    fn absurd_constants_are_pulled_into_range() {
        let config = AnnounceConfig { least: Time::ZERO, most: Time::ZERO, change: f64::NAN }.clamped();
        assert_eq!(
            (config.least, config.most, config.change),
            (Time::from_millis(1), Time::from_millis(1), 0.0)
        );
    }
}
