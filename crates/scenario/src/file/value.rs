//! Reads a single value: checks it against the [`Kind`] of its key, and reports mistakes.

use tollway_law::units::split_quantity;
use tollway_law::{Bytes, Rate, Time, UnitError};

use super::error::{At, Mistakes, closest};
use super::keys::Kind;
use super::tree::{Node, Table, Value};

/// A value read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Val {
    Text(String),
    Truth(bool),
    Word(&'static str),
    Count(u64),
    Number(f64),
    /// `None` is the word `none`.
    Time(Option<Time>),
    /// `None` is the word `all`.
    Rate(Option<Rate>),
    Bytes(u64),
    Limit(LimitSpec),
    When(When),
    Sizes(SizesSpec),
    Arrivals(crate::plan::Arrivals),
    /// Patterns, with their places.
    Patterns(Vec<(String, At)>),
}

/// A limit before it is resolved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum LimitSpec {
    Unlimited,
    Packets(f64),
    Bytes(f64),
    /// Multiples of the bandwidth–delay product; for a threshold, fractions of the queue's limit.
    Times(f64),
}

/// A time for each of several flows or links.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum When {
    At(Time),
    Spread { first: Time, last: Time },
    Random { span: Time, after: Time },
}

/// A distribution of sizes before it is resolved.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SizesSpec {
    Is(crate::plan::Sizes),
    /// The name of a file with the distribution, and the place of that name.
    File(String, At),
}

impl Kind {
    /// The range of valid values, for kinds with bounds.
    fn range(&self) -> Option<String> {
        Some(match *self {
            Kind::WireRate => format!("from {} to {}", Rate::SLOWEST_WIRE, Rate::FASTEST_WIRE),
            Kind::Rate | Kind::RateOrAll => "more than 0 bps".into(),
            Kind::Time { least } => format!("from {} to 100 years", Time(least)),
            Kind::TimeOrNone => "more than 0 s, up to 100 years".into(),
            Kind::Bytes { least, most } => format!("from {least} to {most} bytes"),
            Kind::Limit | Kind::Threshold => "more than zero".into(),
            _ => return None,
        })
    }

    /// A description of valid values, with an article and an example.
    pub(crate) fn wants(&self) -> String {
        match self {
            Kind::Text | Kind::Line => "a string".into(),
            Kind::Truth => "true or false".into(),
            Kind::Word(words) => format!("one of {}", list(words)),
            Kind::Count { .. } => "a whole number".into(),
            Kind::Number { .. } | Kind::Over { .. } => "a number".into(),
            Kind::Time { .. } => "a time, such as \"250 ms\"".into(),
            Kind::TimeOrNone => "a time, such as \"250 ms\", or \"none\"".into(),
            Kind::Rate | Kind::WireRate => "a rate, such as \"10 Mbps\"".into(),
            Kind::RateOrAll => "a rate, such as \"10 Mbps\", or \"all\"".into(),
            Kind::Bytes { .. } => "a size, such as \"1500 B\"".into(),
            Kind::Limit => "a limit: \"100 packets\", \"64 KiB\", \"2 BDP\" or \"unlimited\"".into(),
            Kind::Threshold => "a part of the limit, such as 0.5, or \"50 packets\" or \"64 KiB\"".into(),
            Kind::Spread => "a time, such as \"10 ms\", or { first = \"5 ms\", last = \"50 ms\" }".into(),
            Kind::When => {
                "a time, such as \"10 s\", { first = \"0 s\", last = \"30 s\" } or { random = \"1 s\" }"
                    .into()
            }
            Kind::Sizes => "a size, { exponential }, { pareto }, { empirical } or { file }".into(),
            Kind::Arrivals => "{ poisson = 100 }, per second, or { interval = \"10 ms\" }".into(),
            Kind::Node => "the name of a node".into(),
            Kind::Nodes => "a pattern of nodes, such as \"*\", or an array of patterns".into(),
            Kind::Match(what) => (*what).into(),
            Kind::Medium => "the name of a medium".into(),
            Kind::Links => "the name of a link".into(),
            Kind::Flows => "the name of a flow".into(),
            Kind::Table(_) | Kind::Named(_) | Kind::Variants | Kind::Grid | Kind::RawTable => {
                "a table".into()
            }
            Kind::List(_) | Kind::Raw | Kind::All(_) => "an array of tables".into(),
        }
    }

    /// Reads a value, or reports a mistake. `key` is the value's key.
    pub(crate) fn read(&self, key: &str, node: &Node, mistakes: &mut Mistakes) -> Option<Val> {
        let mut r = Read { key, kind: self, mistakes };
        match *self {
            Kind::Text | Kind::Node | Kind::Medium | Kind::Links | Kind::Flows => {
                r.text(node).map(|t| Val::Text(t.to_owned()))
            }
            Kind::Line => r.line(node).map(|t| Val::Text(t.to_owned())),
            Kind::Truth => match node.value {
                Value::Truth(b) => Some(Val::Truth(b)),
                _ => r.wrong_type(node),
            },
            Kind::Word(words) => r.word(node, words).map(Val::Word),
            Kind::Count { least, most } => r.count(node, least, most).map(Val::Count),
            Kind::Number { least, most } => {
                let inside = |x| (least..=most).contains(&x);
                let percent = if (least, most) == (0.0, 1.0) { ", or 0 % to 100 %" } else { "" };
                r.number(node, inside, format!("from {least} to {most}{percent}")).map(Val::Number)
            }
            Kind::Over { over, most } => {
                let inside = |x| x > over && x <= most;
                r.number(node, inside, format!("over {over}, up to {most}")).map(Val::Number)
            }
            Kind::Time { least } => r.time(node, Time(least)).map(|t| Val::Time(Some(t))),
            Kind::TimeOrNone => match &node.value {
                Value::Text(t) if t.trim() == "none" => Some(Val::Time(None)),
                _ => r.time(node, POSITIVE).map(|t| Val::Time(Some(t))),
            },
            Kind::Rate => r.rate(node).map(|rate| Val::Rate(Some(rate))),
            Kind::WireRate => match r.rate(node)? {
                rate if !(Rate::SLOWEST_WIRE..=Rate::FASTEST_WIRE).contains(&rate) => r.beyond(node),
                rate => Some(Val::Rate(Some(rate))),
            },
            Kind::RateOrAll => match &node.value {
                Value::Text(t) if t.trim() == "all" => Some(Val::Rate(None)),
                _ => r.rate(node).map(|rate| Val::Rate(Some(rate))),
            },
            Kind::Bytes { least, most } => r.bytes(node, least, most).map(Val::Bytes),
            Kind::Limit => r.limit(node).map(Val::Limit),
            Kind::Threshold => r.threshold(node).map(Val::Limit),
            Kind::Spread | Kind::When => r.when(node, matches!(self, Kind::When)).map(Val::When),
            Kind::Sizes => r.sizes(node).map(Val::Sizes),
            Kind::Arrivals => r.arrivals(node).map(Val::Arrivals),
            Kind::Nodes | Kind::Match(_) => r.patterns(node).map(Val::Patterns),
            _ => None,
        }
    }
}

/// The reading of one value of one key.
struct Read<'a> {
    key: &'a str,
    kind: &'a Kind,
    mistakes: &'a mut Mistakes,
}

impl Read<'_> {
    fn wrong_type<T>(&mut self, node: &Node) -> Option<T> {
        let (key, wants, is) = (self.key, self.kind.wants(), node.value.what());
        let message = format!("`{key}` is {wants}; this is {is}");
        let found = self.mistakes.add(node.at, message, is);
        if let (Value::Table(_), Kind::Word(_)) = (&node.value, self.kind) {
            found.help("constants go into a table");
        }
        None
    }

    /// Reports a value outside the kind's range.
    fn beyond<T>(&mut self, node: &Node) -> Option<T> {
        let range = self.kind.range().unwrap_or_else(|| self.kind.wants());
        self.out_of_range(node, &range)
    }

    fn out_of_range<T>(&mut self, node: &Node, range: &str) -> Option<T> {
        self.mistakes.add(node.at, format!("`{}` must be {range}", self.key), "out of range");
        None
    }

    fn line<'n>(&mut self, node: &'n Node) -> Option<&'n str> {
        let text = self.text(node)?;
        let key = self.key;
        if text.trim().is_empty() {
            let help = format!("give a `{key}`, such as \"mine\"");
            self.mistakes.add(node.at, format!("`{key}` is empty"), "empty").help(help);
            return None;
        }
        // The text appears on terminals, in tables, in names of files and in labels of metrics.
        if text.contains(char::is_control) {
            let message = format!("`{key}` contains a control character");
            self.mistakes
                .add(node.at, message, "here")
                .help("write it on one line, with visible characters only");
            return None;
        }
        Some(text)
    }

    fn text<'n>(&mut self, node: &'n Node) -> Option<&'n str> {
        match &node.value {
            Value::Text(t) => Some(t),
            _ => self.wrong_type(node),
        }
    }

    fn patterns(&mut self, node: &Node) -> Option<Vec<(String, At)>> {
        let items = match &node.value {
            Value::List(items) if !items.is_empty() => items.as_slice(),
            _ => std::slice::from_ref(node),
        };
        let one = |item: &Node| match (&item.value, self.kind) {
            // A number may stand for a name.
            (Value::Whole(n), Kind::Match(_)) => Some((n.to_string(), item.at)),
            _ => Some((self.text(item)?.to_owned(), item.at)),
        };
        items.iter().map(one).collect()
    }

    fn word(&mut self, node: &Node, words: &'static [&'static str]) -> Option<&'static str> {
        let text = self.text(node)?;
        let found = spelt(text, words);
        if found.is_none() {
            self.mistakes
                .add(node.at, format!("`{text}` is not a value of `{}`", self.key), "unknown")
                .suggest(text, words.iter().copied());
        }
        found
    }

    fn count(&mut self, node: &Node, least: u64, most: u64) -> Option<u64> {
        match node.value {
            Value::Whole(n) => match u64::try_from(n) {
                Ok(n) if (least..=most).contains(&n) => Some(n),
                _ if most == i64::MAX as u64 => self.out_of_range(node, &format!("at least {least}")),
                _ => self.out_of_range(node, &format!("from {least} to {most}")),
            },
            _ => self.wrong_type(node),
        }
    }

    fn number(&mut self, node: &Node, inside: impl Fn(f64) -> bool, range: String) -> Option<f64> {
        let x = match node.value {
            Value::Whole(n) => n as f64,
            Value::Real(x) => x,
            Value::Text(ref text) => match percent(text) {
                Some(x) => x,
                None => return self.wrong_type(node),
            },
            _ => return self.wrong_type(node),
        };
        if inside(x) { Some(x) } else { self.out_of_range(node, &range) }
    }

    /// Reads a string with a quantity.
    fn quantity<T: std::str::FromStr<Err = UnitError>>(&mut self, node: &Node) -> Option<T> {
        match &node.value {
            Value::Text(t) => match t.parse() {
                Ok(value) => Some(value),
                Err(e) => self.unit_error(node, e),
            },
            Value::Whole(_) | Value::Real(_) => {
                let message = format!("`{}` needs a unit", self.key);
                self.mistakes.add(node.at, message, "no unit").help(format!(
                    "`{}` is {}",
                    self.key,
                    self.kind.wants()
                ));
                None
            }
            _ => self.wrong_type(node),
        }
    }

    fn unit_error<T>(&mut self, node: &Node, error: UnitError) -> Option<T> {
        let key = self.key;
        let (at, message, label, help) = match &error {
            UnitError::UnknownUnit { unit, what, example, units } => {
                // `Pbps` is as near to `bps` as to `Gbps`: do not suggest another prefix.
                let tail = |unit: &'_ str| unit.chars().skip(1).collect::<String>();
                let prefixed = |known: &&str| **known == tail(unit) || tail(known) == tail(unit);
                let help = match closest(unit, units.split(", ").filter(|known| !prefixed(known))) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => format!("use one of {units}, and write it like `{example}`"),
                };
                let message = format!("`{key}`: `{unit}` is not a unit of {what}");
                (within(node, unit), message, "unknown unit", Some(help))
            }
            UnitError::NoUnit { what, example, units, .. } => {
                let message = format!("`{key}`: {what} needs a unit");
                (
                    node.at,
                    message,
                    "no unit",
                    Some(format!("use one of {units}, and write it like `{example}`")),
                )
            }
            UnitError::NoNumber { text, what, example } => {
                let message = format!("`{key}`: `{text}` is not {what}");
                (node.at, message, "no number", Some(format!("write it like `{example}`")))
            }
            UnitError::OutOfRange { .. } => return self.beyond(node),
        };
        let found = self.mistakes.add(at, message, label);
        if let Some(help) = help {
            found.help(help);
        }
        None
    }

    fn time(&mut self, node: &Node, least: Time) -> Option<Time> {
        // A longer time is a mistake. The bound also allows sums of times without overflow.
        const MOST: Time = Time(100 * 365 * 86_400 * 1_000_000_000);
        let time: Time = self.quantity(node)?;
        if (least..=MOST).contains(&time) {
            return Some(time);
        }
        match least {
            POSITIVE => self.out_of_range(node, "more than zero, up to 100 years"),
            _ => self.out_of_range(node, &format!("from {least} to 100 years")),
        }
    }

    fn rate(&mut self, node: &Node) -> Option<Rate> {
        let rate: Rate = self.quantity(node)?;
        if rate == Rate::ZERO {
            return self.beyond(node);
        }
        if let Value::Text(text) = &node.value
            && text.trim_end().ends_with("Bps")
        {
            let note = format!(
                "`{} = \"{text}\"` counts bytes: it is {rate}; write `Mbps` for bits per second, `MB/s` for \
                bytes",
                self.key
            );
            self.mistakes.note(node.at, note);
        }
        Some(rate)
    }

    fn bytes(&mut self, node: &Node, least: u64, most: u64) -> Option<u64> {
        let n = match node.value {
            // A plain number is a number of bytes.
            Value::Whole(n) => match u64::try_from(n) {
                Ok(n) => n,
                Err(_) => return self.out_of_range(node, &format!("from {least} to {most} bytes")),
            },
            _ => self.quantity::<Bytes>(node)?.get(),
        };
        if (least..=most).contains(&n) {
            return Some(n);
        }
        self.out_of_range(node, &format!("from {least} to {most} bytes"))
    }

    fn limit(&mut self, node: &Node) -> Option<LimitSpec> {
        let text = self.text(node)?.trim();
        if matches!(text, "unlimited" | "none") {
            return Some(LimitSpec::Unlimited);
        }
        let spec = self.amount(node, text, true)?;
        match spec {
            LimitSpec::Packets(n) if n < 1.0 => self.out_of_range(node, "at least one packet"),
            LimitSpec::Packets(n) if n >= f64::from(u32::MAX) => {
                self.out_of_range(node, "under 4294967295 packets (or \"unlimited\")")
            }
            LimitSpec::Bytes(0.0) | LimitSpec::Times(0.0) => self.out_of_range(node, "more than zero"),
            _ => Some(spec),
        }
    }

    fn threshold(&mut self, node: &Node) -> Option<LimitSpec> {
        match &node.value {
            Value::Text(t) if percent(t).is_none() => self.amount(node, t, false),
            _ => self.number(node, |x| (0.0..=1.0).contains(&x), "from 0 to 1".into()).map(LimitSpec::Times),
        }
    }

    /// Reads a number of packets, bytes or, if `bdp`, bandwidth–delay products.
    fn amount(&mut self, node: &Node, text: &str, bdp: bool) -> Option<LimitSpec> {
        let what = if bdp { "a limit" } else { "a threshold" };
        let units = if bdp { AMOUNTS } else { &AMOUNTS[..AMOUNTS.len() - 1] };
        let number = match split_quantity(text, what, "100 packets", units) {
            Ok(number) => number,
            Err(e) => return self.unit_error(node, e),
        };
        // The last word is a unit: `split_quantity` has checked it.
        let unit = text.trim_end().rsplit(|c: char| !c.is_alphabetic()).next().unwrap_or("");
        Some(match unit.to_ascii_lowercase() {
            u if u.ends_with("bdp") => LimitSpec::Times(number),
            u if u.contains("p") => LimitSpec::Packets(number),
            _ => LimitSpec::Bytes(number),
        })
    }

    /// The table of a value with parts, which may have no parts but `known`.
    fn parts<'n>(&mut self, node: &'n Node, known: &[&str]) -> Option<&'n Table> {
        let Value::Table(table) = &node.value else { return self.wrong_type(node) };
        let mut good = true;
        for e in table.0.iter().filter(|e| !known.contains(&e.key.as_str())) {
            self.mistakes
                .add(e.at, format!("`{}` has no key `{}`", self.key, e.key), "unknown")
                .suggest(&e.key, known.iter().copied());
            good = false;
        }
        good.then_some(table)
    }

    /// One part of such a value.
    fn part<'n>(&mut self, node: &'n Node, table: &'n Table, name: &str) -> Option<&'n Node> {
        let entry = table.get(name);
        if entry.is_none() {
            self.mistakes.add(node.at, format!("`{}` needs `{name}` here", self.key), "missing");
        }
        entry.map(|e| &e.node)
    }

    fn when(&mut self, node: &Node, random: bool) -> Option<When> {
        let Value::Table(_) = node.value else { return self.time(node, Time::ZERO).map(When::At) };
        let known: &[&str] = if random { &["first", "last", "random", "after"] } else { &["first", "last"] };
        let table = self.parts(node, known)?;
        if let Some(span) = table.get("random") {
            if let Some(other) = table.get("first").or(table.get("last")) {
                let message = format!("`{}` has either `first` and `last`, or `random`", self.key);
                self.mistakes.add(other.at, message, "with `random`").help("leave out one of them");
                return None;
            }
            let span = self.time(&span.node, Time::ZERO)?;
            let after = match table.get("after") {
                Some(after) => self.time(&after.node, Time::ZERO)?,
                None => Time::ZERO,
            };
            return Some(When::Random { span, after });
        }
        if let Some(after) = table.get("after") {
            self.mistakes.add(after.at, "`after` needs `random`", "without `random`");
            return None;
        }
        let (first, last) = (self.part(node, table, "first"), self.part(node, table, "last"));
        let (first, last) = (self.time(first?, Time::ZERO), self.time(last?, Time::ZERO));
        Some(When::Spread { first: first?, last: last? })
    }

    fn arrivals(&mut self, node: &Node) -> Option<crate::plan::Arrivals> {
        use crate::plan::Arrivals;
        let table = self.parts(node, &["poisson", "interval"])?;
        match (table.get("poisson"), table.get("interval")) {
            (Some(rate), None) => self
                .number(&rate.node, |x| x > 0.0 && x <= 1e12, "over 0 a second".into())
                .map(|per_sec| Arrivals::Poisson { per_sec }),
            (None, Some(every)) => self.time(&every.node, POSITIVE).map(Arrivals::Every),
            _ => {
                let message = "`arrivals` needs either `poisson` or `interval`";
                self.mistakes.add(node.at, message, "here").help(self.kind.wants());
                None
            }
        }
    }

    fn sizes(&mut self, node: &Node) -> Option<SizesSpec> {
        use crate::plan::Sizes;
        const MOST: u64 = 1 << 60;
        let Value::Table(_) = node.value else {
            return self.bytes(node, 1, MOST).map(|n| SizesSpec::Is(Sizes::Fixed(n)));
        };
        let table = self.parts(node, &["fixed", "exponential", "pareto", "empirical", "file"])?;
        let [entry] = table.0.as_slice() else {
            self.mistakes.add(node.at, "`sizes` is one distribution", "here").help(self.kind.wants());
            return None;
        };
        let value = &entry.node;
        Some(SizesSpec::Is(match entry.key.as_str() {
            "fixed" => Sizes::Fixed(self.bytes(value, 1, MOST)?),
            "exponential" => Sizes::Exponential { mean: self.bytes(value, 1, MOST)? as f64 },
            "pareto" => {
                let table = self.parts(value, &["mean", "shape"])?;
                let (mean, shape) = (self.part(value, table, "mean"), self.part(value, table, "shape"));
                let mean = self.bytes(mean?, 1, MOST);
                let shape =
                    self.number(shape?, |x| x > 1.0 && x <= 1e6, "over 1, or the mean is infinite".into());
                Sizes::Pareto { mean: mean? as f64, shape: shape? }
            }
            "file" => return self.text(value).map(|file| SizesSpec::File(file.to_owned(), value.at)),
            _ => match &value.value {
                Value::Text(file) => return Some(SizesSpec::File(file.clone(), value.at)),
                _ => Sizes::Empirical(self.cdf(value)?),
            },
        }))
    }

    /// `[["1 kB", 0.5], ["1 MB", 1.0]]`.
    fn cdf(&mut self, node: &Node) -> Option<Vec<crate::plan::CdfPoint>> {
        let Value::List(items) = &node.value else { return self.wrong_type(node) };
        let mut points = Vec::with_capacity(items.len());
        for item in items {
            let pair = match &item.value {
                Value::List(pair) => pair.as_slice(),
                _ => &[],
            };
            let [size, cumulative] = pair else {
                self.mistakes.add(item.at, "a point is a size and a cumulative probability", "not a pair");
                return None;
            };
            let size = self.bytes(size, 0, 1 << 60)? as f64;
            let cumulative = self.number(cumulative, |x| (0.0..=1.0).contains(&x), "from 0 to 1".into())?;
            points.push(crate::plan::CdfPoint { size, cumulative });
        }
        if let Err(why) = check_cdf(&points) {
            self.mistakes.add(node.at, format!("`empirical`: {why}"), "here");
            return None;
        }
        Some(points)
    }
}

/// Checks that points form a cumulative distribution.
pub(crate) fn check_cdf(points: &[crate::plan::CdfPoint]) -> Result<(), String> {
    match points.last() {
        None => return Err("it has no points".into()),
        Some(last) if last.cumulative != 1.0 => {
            return Err(format!("its last point has probability {}, not 1", last.cumulative));
        }
        Some(last) if last.size < 1.0 => return Err("its largest size is zero".into()),
        Some(_) => {}
    }
    match points.windows(2).find(|w| w[1].size < w[0].size || w[1].cumulative < w[0].cumulative) {
        Some(w) => Err(format!("size {} is followed by {}: both columns must grow", w[0].size, w[1].size)),
        None => Ok(()),
    }
}

/// A percentage as a fraction: `5%` or `5 %` is 0.05.
pub fn percent(text: &str) -> Option<f64> {
    text.trim().strip_suffix('%')?.trim_end().parse::<f64>().ok().map(|percent| percent / 100.0)
}

/// The member of `words` that `text` spells: exactly, with `_` for `-`, in another case, or by a
/// common alias.
pub fn spelt<'w>(text: &str, words: &[&'w str]) -> Option<&'w str> {
    let folded = text.trim().to_ascii_lowercase().replace('_', "-");
    let known = |name: &str| words.iter().copied().find(|word| *word == name);
    known(text.trim()).or_else(|| known(&folded)).or_else(|| {
        let (_, name) = ALIASES.iter().find(|(alias, _)| *alias == folded)?;
        known(name)
    })
}

/// The place of `part` inside a string's place. Works for a string without escapes, with or without
/// quotes.
fn within(node: &Node, part: &str) -> At {
    let Value::Text(text) = &node.value else { return node.at };
    let quote = match ((node.at.end - node.at.start) as usize).checked_sub(text.len()) {
        Some(0) => 0,
        Some(2) => 1,
        _ => return node.at,
    };
    text.rfind(part).map_or(node.at, |i| node.at.part(quote + i, part.len()))
}

/// Aliases of laws, as in Linux and tc(8).
const ALIASES: [(&str, &str); 6] = [
    ("reno", "newreno"),
    ("fifo", "drop-tail"),
    ("droptail", "drop-tail"),
    ("pfifo", "drop-tail"),
    ("bfifo", "drop-tail"),
    ("pfifo-fast", "drop-tail"),
];
/// The least positive time.
const POSITIVE: Time = Time(1);

/// Units of limits; the last one is valid for limits only, not for thresholds.
const AMOUNTS: &[(&str, f64)] = &[
    ("packets", 1.0),
    ("packet", 1.0),
    ("pkts", 1.0),
    ("B", 1.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("KiB", 1024.0),
    ("MiB", 1048576.0),
    ("GiB", 1073741824.0),
    ("BDP", 1.0),
];

fn list(words: &[&str]) -> String {
    words.iter().map(|w| format!("\"{w}\"")).collect::<Vec<_>>().join(", ")
}
