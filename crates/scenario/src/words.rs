//! A link in a few words: `20Mbps 40ms fq_codel`.

use std::fmt::Write;

use tollway_law::{Bytes, Rate, Time, UnitError};

use crate::file::reading::{LINK_LAWS, closest, percent, spelt, synonyms};

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
    /// A summary of the words that the option accepts.
    pub help: &'static str,
}

const WORDS: &str = "a link is a rate (`20Mbps`) or `trace=FILE`, a one-way delay (`40ms`), a law (`fq_codel`), and any key \
                     of a scenario's `[link]` as `key=value` (`loss=1%`, `limit=100packets`, `codel.target=10ms`)";

/// One direction of a link, as keys of a scenario file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkWords {
    /// Keys and values of TOML, in order; each key once.
    keys: Vec<(String, String)>,
}

impl LinkWords {
    /// Reads the words of `option`.
    ///
    /// # Errors
    /// A word is no rate, delay, law or key.
    pub fn read(option: &'static str, words: &str) -> Result<LinkWords, WordError> {
        let mut link = LinkWords::default();
        let words_read = whole_quantities(words);
        let mut rest = words_read.iter().map(String::as_str).peekable();
        while let Some(word) = rest.next() {
            let failed = |why: &str| WordError {
                option,
                word: word.into(),
                words: words.into(),
                why: why.into(),
                help: WORDS,
            };
            // As in tc: a keyword, then its value.
            let value = match word {
                "rate" | "delay" | "loss" | "limit" | "rtt" | "trace" | "duplicate" | "corrupt" => {
                    Some((word, rest.next().ok_or_else(|| failed("has no value"))?))
                }
                _ => word.split_once('='),
            };
            let jitter = rest.next_if(|next| word == "delay" && next.parse::<Time>().is_ok());
            let added = match (value, jitter) {
                (Some((_, delay)), Some(jitter)) => {
                    let correlation = rest.next_if(|next| next.ends_with('%'));
                    let has_distribution = rest.next_if_eq(&"distribution").is_some();
                    let distribution = if has_distribution { rest.next() } else { Some("uniform") };
                    let distribution = distribution.ok_or_else(|| failed("has no value"))?;
                    link.netem_delay(delay, jitter, correlation, distribution)
                }
                (Some((key, value)), _) => link.pair(key, value),
                (None, _) => link.word(word),
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
                Err("is not allowed here: the words are of one direction".into())
            }
            _ if !key.split('.').all(is_bare) => Err("is not a key".into()),
            _ => {
                let bare =
                    value.parse::<f64>().is_ok_and(f64::is_finite) || matches!(value, "true" | "false");
                self.set(&key, if bare { value.to_owned() } else { quoted(value) })
            }
        }
    }

    /// Adds netem's `delay DELAY JITTER`, where the delay is the mean, and late packets are overtaken.
    fn netem_delay(
        &mut self,
        delay: &str,
        jitter: &str,
        correlation: Option<&str>,
        distribution: &str,
    ) -> Result<(), String> {
        let time = |text: &str| text.parse::<Time>().map_err(|error| format!("is not a delay ({error})"));
        let (delay, jitter) = (time(delay)?, time(jitter)?);
        // Its uniform delays are up to the jitter less and more. The others have it as their deviation.
        let (mean, scale) = match distribution {
            "uniform" => (1.0, 2.0),
            "normal" => (3.0, 1.0),
            "pareto" => (1.0 / 3.0_f64.sqrt(), 1.0),
            _ => return Err("has a distribution that is not `uniform`, `normal` or `pareto`".into()),
        };
        let (early, scale) = ((jitter.0 as f64 * mean) as u64, jitter.0 as f64 * scale);
        let least = delay.0.checked_sub(early).ok_or_else(|| {
            format!("is below {mean:.2} × its jitter, so that packets would leave before they came")
        })?;
        self.set("delay", quoted(&format!("{least} ns")))?;
        self.set("jitter", quoted(&format!("{scale:.0} ns")))?;
        self.set("jitter-order", quoted("free"))?;
        self.set("jitter-distribution", quoted(distribution))?;
        correlation.map_or(Ok(()), |share| self.pair("jitter-correlation", share))
    }

    /// Adds a key with a value of TOML.
    ///
    /// # Errors
    /// The key has a value already.
    pub fn set(&mut self, key: &str, value: String) -> Result<(), String> {
        if self.has(key) {
            return Err(format!("sets `{key}` a second time"));
        }
        self.keys.push((key.to_owned(), value));
        Ok(())
    }

    /// True if the words set `key`.
    pub fn has(&self, key: &str) -> bool {
        self.keys.iter().any(|entry| entry.0 == key)
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.keys.iter().find(|entry| entry.0 == key).map(|entry| entry.1.as_str())
    }

    /// Adds the keys of `others` that these words lack. A rate excludes a trace, and constants of a
    /// law go with that law.
    pub fn or(mut self, others: &LinkWords) -> LinkWords {
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
    #[must_use]
    pub fn completed(mut self) -> LinkWords {
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
    pub fn write(&self, text: &mut String, name: &str, from: &str, to: &str) {
        let (from, to) = (quoted(from), quoted(to));
        let _ = writeln!(text, "\n[link.{name}]\nfrom = {from}\nto = {to}\nduplex = false");
        for (key, value) in &self.keys {
            let _ = writeln!(text, "{key} = {value}");
        }
    }
}

/// The start of a scenario for programs: its nodes, and a flow each way between the ends, for the
/// computation of BDPs.
pub fn preamble(name: &str, seed: u64, nodes: &[&str]) -> String {
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
pub fn quoted(text: &str) -> String {
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
    use super::*;

    const LINK: &str = "--link";

    fn words(text: &str) -> Vec<(String, String)> {
        LinkWords::read(LINK, text).unwrap().keys
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    #[test]
    fn every_law_of_a_link_is_a_word() {
        let schema = crate::file::schema();
        let words = &schema["properties"]["link"]["additionalProperties"]["properties"]["law"]["enum"];
        // Classes belong to a scenario's flows.
        for word in words.as_array().unwrap().iter().filter(|word| *word != "by-class") {
            assert_eq!(law(word.as_str().unwrap()), word.as_str());
        }
    }

    #[test]
    fn netem_s_delays_keep_their_mean() {
        let netem = |text: &str| -> Vec<String> {
            words(text).into_iter().map(|(key, value)| format!("{key}={value}")).collect()
        };
        assert_eq!(
            netem("delay 100ms 10ms duplicate 1%"),
            [
                "delay=\"90000000 ns\"",
                "jitter=\"20000000 ns\"",
                "jitter-order=\"free\"",
                "jitter-distribution=\"uniform\"",
                "duplicate=\"1%\"",
            ]
        );
        let normal = netem("delay 100ms 10 ms 25 % distribution normal rate 1mbit");
        assert_eq!(normal[..2], ["delay=\"70000000 ns\"", "jitter=\"10000000 ns\""]);
        assert_eq!(normal[3..5], ["jitter-distribution=\"normal\"", "jitter-correlation=\"25%\""]);
        assert_eq!(netem("delay 100ms 10ms distribution pareto")[0], "delay=\"94226498 ns\"");
        for (text, why) in [
            ("delay 20ms 10ms distribution normal", "is below 3.00 × its jitter"),
            ("delay 20ms 10ms distribution", "has no value"),
            ("delay 20ms 10ms distribution poisson", "that is not `uniform`, `normal`"),
        ] {
            let error = LinkWords::read(LINK, text).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
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
            assert!(error.to_string().contains(says) && error.help.contains("codel.target"), "{error}");
        }
    }
}
