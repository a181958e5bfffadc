//! Two nodes, with a link in a few words each way.

use tollway_scenario::words::{LinkWords, WordError, preamble};

/// The options whose words this module parses.
const LINK: &str = "--link";
const LINK_UP: &str = "--link-up";

/// Builds a scenario of two nodes, [`PROGRAM`](super::PROGRAM) and [`SERVER`](super::SERVER). Its
/// links are `down` towards the program and `up` from it. `up` inherits from `down` the keys that
/// it lacks.
///
/// # Errors
/// [`WordError`]: a word describes no property of a link. The scenario itself checks values.
pub fn two_nodes(down: &str, up: Option<&str>, seed: u64) -> Result<String, WordError> {
    let down = LinkWords::read(LINK, down)?;
    let up = LinkWords::read(LINK_UP, up.unwrap_or_default())?.or(&down);
    let mut text = preamble("exec", seed, &[super::PROGRAM, super::SERVER]);
    down.completed().write(&mut text, "down", super::SERVER, super::PROGRAM);
    up.completed().write(&mut text, "up", super::PROGRAM, super::SERVER);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tollway_law::Time;
    use tollway_law::link::CodelConfig;
    use tollway_scenario::file::Scenario;

    use super::*;

    #[test]
    fn a_mistake_names_its_option() {
        let up = two_nodes("20Mbps", Some("5Mbp"), 1).unwrap_err().to_string();
        assert_eq!(
            up,
            "`--link-up`: `5Mbp` in `5Mbp` is not a rate, a delay or a law (did you mean `5Mbps`?)"
        );
    }

    #[test]
    fn the_way_up_takes_what_it_does_not_say_from_the_way_down() {
        let text = two_nodes("20Mbps 40ms fq_codel codel.target=9ms loss=1%", Some("5Mbps fifo"), 3).unwrap();
        let scenario = Scenario::parse::<&str>("--link", &text, &[]).unwrap();
        let [down, up] = &scenario.variants()[0].plan.links[..] else { panic!("{text}") };
        assert_eq!(down.law.get::<CodelConfig>().map(|codel| codel.target), Some(Time::from_millis(9)));
        assert!(down.law.queue.is_some());
        assert_eq!((up.law.is_none(), up.rate.mbps(), up.loss), (true, 5.0, 0.01));
        assert_eq!((down.delay, up.delay, scenario.variants()[0].plan.seed), (up.delay, down.delay, 3));
    }

    #[test]
    fn bandwidth_delay_products_are_those_of_the_whole_way() {
        let text = two_nodes("10Mbps 20ms limit=1BDP", None, 1).unwrap();
        let scenario = Scenario::parse::<&str>("--link", &text, &[]).unwrap();
        let link = &scenario.variants()[0].plan.links[0];
        assert!(
            (49_000..=51_000).contains(&link.law.limit.bytes) || (33..=34).contains(&link.law.limit.packets),
            "{link:?}"
        );
    }

    proptest! {
        #[test]
        fn no_words_make_it_panic_and_what_is_read_is_toml(text in "[ -~]{0,40}") {
            if let Ok(text) = two_nodes(&text, None, 1) {
                // The values may make no sense, but the text is TOML.
                let _ = Scenario::parse::<&str>("--link", &text, &[]);
                prop_assert!(toml::from_str::<toml::Value>(&text).is_ok(), "{text}");
            }
        }
    }
}
