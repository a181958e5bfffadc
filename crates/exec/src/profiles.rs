//! Named networks: links in words, with the measurement that each follows.

/// A network between a program and `server`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Name for `--profile`.
    pub name: &'static str,
    /// The link towards the program, in words.
    pub down: &'static str,
    /// The link from the program, in words.
    pub up: &'static str,
    /// The published measurement, and the parts of the words that it does not have.
    pub source: &'static str,
}

impl Profile {
    /// Returns the profile with this name.
    pub fn named(name: &str) -> Option<&'static Profile> {
        PROFILES.iter().find(|profile| profile.name == name)
    }
}

/// All profiles. Queues are drop-tail with room for a thousand packets, as without a profile.
pub const PROFILES: [Profile; 4] = [
    Profile {
        name: "lte",
        down: "13Mbps 35ms",
        up: "6Mbps",
        source: "medians of J. Huang et al., A Close Examination of Performance and Power Characteristics of 4G LTE \
                 Networks, MobiSys 2012",
    },
    Profile {
        name: "dsl",
        down: "6Mbps 22ms",
        up: "768kbps",
        source: "mean round trip of DSL in FCC, Measuring Broadband America, 2011; the rates are chosen",
    },
    Profile {
        name: "satellite",
        down: "20Mbps 275ms",
        up: "3Mbps",
        source: "least round trip of D. Perdices et al., When Satellite is All You Have: Watching the Internet from 550 ms, \
                 IMC 2022; the rates are chosen",
    },
    Profile {
        name: "transatlantic",
        down: "1Gbps 39ms",
        up: "1Gbps",
        source: "round trip New York–Paris of P. Reinheimer, Miles per Millisecond, WonderProxy 2011; the rate is chosen",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::two_nodes;
    use tollway_scenario::file::Scenario;

    #[test]
    fn each_is_a_network_with_a_year_to_its_source() {
        for profile in PROFILES {
            let text = two_nodes(profile.down, Some(profile.up), 1).unwrap();
            let scenario = Scenario::parse::<&str>("--profile", &text, &[]).unwrap();
            let [down, up] = &scenario.variants()[0].plan.links[..] else { panic!("{text}") };
            assert!(down.delay == up.delay && down.rate >= up.rate, "{}", profile.name);
            assert!(profile.source.contains(" 20") && Profile::named(profile.name) == Some(&profile));
        }
    }
}
