//! A link in a few words: `20Mbps 40ms fq_codel`.

use std::fmt::Write;

use tollway_law::{Bytes, Rate, Time, UnitError};
use tollway_scenario::file::reading::{LINK_LAWS, closest, percent, spelt, synonyms};

/// A word that describes no property of a link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{option}`: `{word}` in `{words}` {why}")]
pub struct WordError {
    /// The option with the words.
    pub option: &'static str,
    /// The word.
    pub word: String,
    /// All words of the option.
    pub words: String,
    /// The mistake in the word.
    pub why: String,
}

impl WordError {
    /// A summary of the words that the option accepts.
    pub fn help(&self) -> &'static str {
        if self.option == CHAIN { SHELLS } else { WORDS }
    }
}

/// The options whose words this module parses.
const LINK: &str = "--link";
const LINK_UP: &str = "--link-up";
pub(crate) const CHAIN: &str = "--mahimahi";

const SHELLS: &str = "write it like `mm-delay 40 mm-link up.trace down.trace mm-loss uplink 0.01`";

const WORDS: &str = "a link is a rate (`20Mbps`) or `trace=FILE`, a one-way delay (`40ms`), a law (`fq_codel`), and any key \
                     of a scenario's `[link]` as `key=value` (`loss=1%`, `limit=100packets`, `codel.target=10ms`)";

/// One direction of a link, as keys of a scenario file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkWords {
    /// Keys and values of TOML, in order; each key once.
    keys: Vec<(String, String)>,
}

impl LinkWords {
    /// # Errors
    /// A word is no rate, delay, law or key.
    fn read(option: &'static str, words: &str) -> Result<LinkWords, WordError> {
        let mut link = LinkWords::default();
        let words_read = whole_quantities(words);
        let mut rest = words_read.iter().map(String::as_str);
        while let Some(word) = rest.next() {
            let failed =
                |why: &str| WordError { option, word: word.into(), words: words.into(), why: why.into() };
            // As in tc: a keyword, then its value.
            let value = match word {
                "rate" | "delay" | "loss" | "limit" | "rtt" | "trace" => {
                    Some((word, rest.next().ok_or_else(|| failed("has no value"))?))
                }
                _ => word.split_once('='),
            };
            let added = match value {
                Some((key, value)) => link.pair(key, value),
                None => link.word(word),
            };
            added.map_err(|why| failed(&why))?;
        }
        Ok(link)
    }

    fn word(&mut self, word: &str) -> Result<(), String> {
        if let Some(law) = law(word) {
            return self.set("law", quoted(law));
        }
        if word.ends_with('%') {
            return self.pair("loss", word);
        }
        if word.parse::<Rate>().is_ok() {
            return self.pair("rate", word);
        }
        if word.parse::<Time>().is_ok() {
            return self.pair("delay", word);
        }
        Err(format!("is not a rate, a delay or a law{}", meant(word)))
    }

    fn pair(&mut self, key: &str, value: &str) -> Result<(), String> {
        let key = key.replace('_', "-");
        if value.is_empty() {
            return Err("has no value".into());
        }
        match key.as_str() {
            "rate" => match value.parse::<Rate>() {
                Ok(_) => self.set("rate", quoted(value)),
                Err(error) => Err(format!("is not a rate ({error})")),
            },
            "delay" => {
                value.parse::<Time>().map_err(|error| format!("is not a delay ({error})"))?;
                self.set("delay", quoted(value))
            }
            // A round trip is twice the delay.
            "rtt" => {
                let rtt: Time =
                    value.parse().map_err(|error| format!("is not a round-trip time ({error})"))?;
                self.set("delay", quoted(&format!("{} ns", rtt.0 / 2)))
            }
            "loss" => {
                let share = percent(value).or_else(|| value.parse().ok());
                let share = share.filter(|share| (0.0..=1.0).contains(share));
                let share = share
                    .ok_or("is not a probability from 0 to 1: write it like `loss=1%` or `loss=0.01`")?;
                self.set("loss", share.to_string())
            }
            // In tc, a limit is a number of packets.
            "limit" if value.parse::<u32>().is_ok() => self.set("limit", quoted(&format!("{value} packets"))),
            "law" => match law(value) {
                Some(law) => self.set("law", quoted(law)),
                None => Err(format!("is not a law{}", meant(value))),
            },
            "from" | "to" | "duplex" | "symmetric" | "reverse" | "medium" => {
                Err("is not allowed here: `--link` and `--link-up` are the two directions".into())
            }
            _ if !key.split('.').all(is_bare) => Err("is not a key".into()),
            _ => {
                let bare =
                    value.parse::<f64>().is_ok_and(f64::is_finite) || matches!(value, "true" | "false");
                self.set(&key, if bare { value.to_owned() } else { quoted(value) })
            }
        }
    }

    pub(crate) fn set(&mut self, key: &str, value: String) -> Result<(), String> {
        if self.has(key) {
            return Err(format!("sets `{key}` a second time"));
        }
        self.keys.push((key.to_owned(), value));
        Ok(())
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.keys.iter().any(|entry| entry.0 == key)
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.keys.iter().find(|entry| entry.0 == key).map(|entry| entry.1.as_str())
    }

    /// Adds the keys of `others` that these words lack. A rate excludes a trace, and constants of a
    /// law go with that law.
    fn or(mut self, others: &LinkWords) -> LinkWords {
        let own_law = self.has("law");
        let own_rate = self.has("rate") || self.has("trace");
        for (key, value) in &others.keys {
            let another_rate = own_rate && matches!(key.as_str(), "rate" | "trace" | "capacity");
            let another_law = own_law && (key == "limit" || key.contains('.'));
            if !self.has(key) && !another_rate && !another_law {
                self.keys.push((key.clone(), value.clone()));
            }
        }
        self
    }

    /// Adds defaults: no limit of the rate, and a drop-tail queue of a thousand full packets, in
    /// bytes.
    pub(crate) fn completed(mut self) -> LinkWords {
        if !self.has("rate") && !self.has("trace") {
            self.keys.push(("rate".into(), quoted("1 Tbps")));
        }
        let plain = self.get("law").is_none_or(|law| law == quoted("drop-tail"));
        if plain && !self.has("limit") {
            self.keys.push(("limit".into(), quoted("1500 kB")));
        }
        self
    }

    /// Writes the keys as the table of the link `name`.
    pub(crate) fn write(&self, text: &mut String, name: &str, from: &str, to: &str) {
        let (from, to) = (quoted(from), quoted(to));
        let _ = writeln!(text, "\n[link.{name}]\nfrom = {from}\nto = {to}\nduplex = false");
        for (key, value) in &self.keys {
            let _ = writeln!(text, "{key} = {value}");
        }
    }
}

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

/// The start of a scenario for programs: its nodes, and a flow each way between the ends, for the
/// computation of BDPs.
pub(crate) fn preamble(name: &str, seed: u64, nodes: &[&str]) -> String {
    let mut text = format!("name = {}\nduration = \"1 s\"\nseed = {seed}\n", quoted(name));
    for node in nodes {
        let _ = writeln!(text, "[node.{node}]");
    }
    if let (Some(first), Some(last)) = (nodes.first(), nodes.last()) {
        for (flow, from, to) in [("download", last, first), ("upload", first, last)] {
            let _ = writeln!(text, "[flow.{flow}]\nfrom = \"{from}\"\nto = \"{to}\"\nlaw = \"cubic\"");
        }
    }
    text
}

/// Sender laws, which do not apply to programs' packets.
const SENDERS: [&str; 4] = ["newreno", "cubic", "bbr", "dctcp"];

/// Splits `text` into words, with a number and its unit after a space as one: `20 Mbps`,
/// `loss=1 %`.
fn whole_quantities(text: &str) -> Vec<String> {
    let is_unit = |word: &str| {
        let quantity = format!("1{word}");
        let amount = matches!(&*word.to_ascii_lowercase(), "%" | "packet" | "packets" | "pkts" | "bdp");
        !word.starts_with(|c: char| c.is_ascii_digit())
            && (amount
                || quantity.parse::<Rate>().is_ok()
                || quantity.parse::<Time>().is_ok()
                || quantity.parse::<Bytes>().is_ok())
    };
    let number = |word: &str| word.rsplit('=').next().is_some_and(|value| value.parse::<f64>().is_ok());
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match words.last_mut().filter(|last| number(last) && is_unit(word)) {
            Some(last) => last.push_str(word),
            None => words.push(word.to_owned()),
        }
    }
    words
}

/// Link laws by their names in scenario files, without `by-class`: classes belong to a scenario's
/// flows.
pub fn laws() -> impl Iterator<Item = &'static str> + Clone {
    LINK_LAWS.iter().copied().filter(|law| *law != "by-class")
}

/// A link law by its name in scenario files, or by tc's.
fn law(word: &str) -> Option<&'static str> {
    spelt(word, LINK_LAWS).filter(|law| *law != "by-class")
}

/// A suggestion for a word that describes nothing, as the end of a sentence.
fn meant(word: &str) -> String {
    if spelt(word, &SENDERS).is_some() {
        return ": it is a sender's law, which the kernel chooses here (`--sysctl \
            net.ipv4.tcp_congestion_control=…`)"
            .into();
    }
    let quantities = [word.parse::<Rate>().err(), word.parse::<Time>().err()];
    if let Some(error) =
        quantities.iter().flatten().find(|error| matches!(error, UnitError::OutOfRange { .. }))
    {
        return format!(" ({error})");
    }
    let known = synonyms(word, ["rate", "delay", "limit", "law", "loss"].into_iter());
    if !known.is_empty() {
        let keys: Vec<String> = known.iter().map(|key| format!("`{key}=…`")).collect();
        return format!(" (did you mean {}?)", keys.join(" or "));
    }
    let near = || {
        if let Some(law) = closest(word, laws()) {
            return Some(law.to_owned());
        }
        // A number with a misspelt unit, or with none.
        let (number, unit) = word.split_at(word.find(|c: char| c.is_alphabetic())?);
        number.parse::<f64>().ok()?;
        closest(unit, ["Mbps", "kbps", "Gbps", "mbit", "kbit", "gbit", "ms", "us"].into_iter())
            .map(|unit| format!("{number}{unit}"))
    };
    match near() {
        Some(near) => format!(" (did you mean `{near}`?)"),
        None if word.parse::<f64>().is_ok() => ", and has no unit".into(),
        None => String::new(),
    }
}

fn is_bare(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

/// A string of TOML.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", c as u32);
            }
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tollway_law::link::CodelConfig;

    use super::*;
    use tollway_scenario::file::Scenario;

    fn words(text: &str) -> Vec<(String, String)> {
        LinkWords::read(LINK, text).unwrap().keys
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    #[test]
    fn every_law_of_a_link_is_a_word() {
        let schema = tollway_scenario::file::schema();
        let words = &schema["properties"]["link"]["additionalProperties"]["properties"]["law"]["enum"];
        // Classes belong to a scenario's flows.
        for word in words.as_array().unwrap().iter().filter(|word| *word != "by-class") {
            assert_eq!(law(word.as_str().unwrap()), word.as_str());
        }
    }

    #[test]
    fn words_and_tc_s_keywords_say_the_same() {
        let ours = words("20Mbps 40ms fq_codel 1% limit=100");
        assert_eq!(ours, words("20 Mbps 40 ms FQ-CoDel 1 % limit=100"));
        let of_tc = words("rate 20mbit delay 40ms fq-codel loss 1% limit 100");
        assert_eq!((ours[1..].to_vec(), &*of_tc[0].1), (of_tc[1..].to_vec(), "\"20mbit\""));
        let expected = [
            ("rate", "\"20Mbps\""),
            ("delay", "\"40ms\""),
            ("law", "\"fq-codel\""),
            ("loss", "0.01"),
            ("limit", "\"100 packets\""),
        ];
        assert_eq!(ours, pairs(&expected));
        assert_eq!(words("rtt=80ms"), pairs(&[("delay", "\"40000000 ns\"")]));
    }

    #[test]
    fn what_is_no_word_is_named_with_what_would_be() {
        for (text, says) in [
            ("20Mbsp", "`20Mbsp` in `20Mbsp` is not a rate, a delay or a law (did you mean `20Mbps`?)"),
            ("20Mbps fqcodel", "did you mean `fq-codel`?"),
            ("20Mbps law=coddle", "is not a law (did you mean `codel`?)"),
            ("20mbit 40", "`40` in `20mbit 40` is not a rate, a delay or a law, and has no unit"),
            ("40mss", "did you mean `40ms`?"),
            ("loss=2", "is not a probability"),
            ("loss=-1%", "is not a probability"),
            ("20Mbps 30Mbps", "`30Mbps` in `20Mbps 30Mbps` sets `rate` a second time"),
            ("5ms loss", "`loss` in `5ms loss` has no value"),
            ("5ms loss=", "`loss=` in `5ms loss=` has no value"),
            ("loss=nan", "`loss=nan` in `loss=nan` is not a probability"),
            ("inf%", "is not a probability"),
            ("law=reno", "is not a law: it is a sender's"),
            ("20 Mbps 40", "`40` in `20 Mbps 40` is not a rate, a delay or a law, and has no unit"),
            ("bandwidth 5Mbps", "did you mean `rate=…`?"),
            ("rate=-5Mbps", "is not a rate (`-5Mbps` is out of range: a rate is from 0 to 1.8e19 bps)"),
            (
                "-5Mbps",
                "is not a rate, a delay or a law (`-5Mbps` is out of range: a rate is from 0 to 1.8e19 bps)",
            ),
            ("5Mbps -5 ms", "is not a rate, a delay or a law (`-5ms` is out of range: a time is from 0 to"),
            ("delay=fast", "is not a delay"),
            ("rtt=20Mbps", "is not a round-trip time"),
            ("codel.=5ms", "is not a key"),
            ("duplex=true", "is not allowed here"),
            ("a b=1", "is not a rate"),
            ("x\"y=1", "is not a key"),
        ] {
            let error = LinkWords::read(LINK, text).unwrap_err();
            assert!(error.to_string().contains(says) && error.help().contains("codel.target"), "{error}");
        }
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
