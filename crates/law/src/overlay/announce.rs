//! The times at which a daemon announces the costs of its links (§ V).

use serde::{Deserialize, Serialize};

use crate::param::Kind;
use crate::{Time, config};

config! {
    /// The constants of announcements.
    #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
    pub struct AnnounceConfig in "update", "The times at which daemons announce the prices of their hops." {
        /// T_min: the least interval between announcements.
        least: Time = Time::from_millis(50), UPDATE, from "§ V";
        /// T_max: the greatest interval between announcements while a hop has a price.
        most: Time = Time::from_millis(2500), UPDATE, from "§ V";
        /// The change of a price that is announced at once, relative to 1 + price; 0 for any
        /// change. The paper leaves it open.
        change: f64 = 0.3, Kind::Number { least: 0.0, most: 1000.0 };
    }
}

const UPDATE: Kind = Kind::Time { least: 1_000_000 };

/// The schedule of one daemon's announcements.
#[derive(Clone, Copy, Debug)]
pub struct Announcer {
    config: AnnounceConfig,
    last: Option<Time>,
}

impl Announcer {
    /// A daemon that has announced nothing.
    pub fn new(config: AnnounceConfig) -> Announcer {
        Announcer { config, last: None }
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

    /// Records an announcement at `now`.
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
}
