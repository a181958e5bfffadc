//! Scenario files drawn from the table of keys, for fuzz targets only.

use super::keys::{self, Default, Key, Kind, Section};

/// Returns a scenario file drawn with the bytes of `data`.
///
/// It has a few nodes in a line or a star, links, flows, and other tables of the table of keys,
/// with values over their whole ranges. Most such files have mistakes, since keys that exclude each
/// other are drawn independently; [`without`] removes these.
pub fn draw(data: &[u8]) -> String {
    let mut draw = Draw { data, text: String::new(), scale: Scale::default(), counts: Counts::default() };
    draw.file();
    draw.text
}

/// Returns the text without the line at byte `at`; if that is a header, without its table and inner
/// tables. `None` if the file needs them.
pub fn without(text: &str, at: usize) -> Option<String> {
    let start = text.get(..at)?.rfind('\n').map_or(0, |end| end + 1);
    let line = text[start..].lines().next()?;
    let after = start + line.len() + 1;
    let mut end = after.min(text.len());
    if line.starts_with('[') {
        let under = line.trim_start_matches('[').trim_end_matches(']');
        let own = format!("[{under}.");
        let mut inside = true;
        for line in text[end..].split_inclusive('\n') {
            if line.starts_with('[') {
                inside = !line.starts_with("[[") && line.starts_with(&own);
            }
            if !inside {
                break;
            }
            end += line.len();
        }
    } else if !text[..start].contains("\n[") {
        return None;
    }
    Some(text[..start].to_owned() + &text[end..])
}

/// Typical magnitudes of a file's values.
#[derive(Clone, Copy, Debug, std::default::Default)]
struct Scale {
    bps: f64,
    seconds: f64,
    /// Number of cases, of 256, in which an optional key is present.
    density: u8,
    law: usize,
}

#[derive(Clone, Copy, Debug, std::default::Default)]
struct Counts {
    nodes: usize,
    links: usize,
    flows: usize,
    workloads: usize,
    cbrs: usize,
    hosts: usize,
    classes: usize,
    media: usize,
    groups: bool,
}

struct Draw<'a> {
    data: &'a [u8],
    text: String,
    scale: Scale,
    counts: Counts,
}

const LAWS: [(&str, &str); 6] = [
    ("drop-tail", "cubic"),
    ("xcp", "xcp"),
    ("fcp", "fcp"),
    ("rcp", "rcp"),
    ("dualpi2", "dctcp"),
    ("by-class", "newreno"),
];

impl Draw<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.data.split_first() else { return 0 };
        self.data = rest;
        first
    }

    fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n.max(1)
    }

    fn once_in(&mut self, n: u8) -> bool {
        self.byte() % n == n - 1
    }

    /// A random number from 0 to 1, both included.
    fn part(&mut self) -> f64 {
        f64::from(self.byte()) / 255.0
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn file(&mut self) {
        let packets = [30.0, 300.0, 3000.0][self.below(3)];
        let bps = libm::pow(10.0, 3.0 + self.below(8) as f64);
        let seconds = (packets * 12_000.0 / bps).max(1e-6);
        let density = [10, 40, 90][self.below(3)];
        self.scale = Scale { bps, seconds, density, law: self.below(LAWS.len() + 2) };
        self.counts = Counts {
            nodes: 2 + self.below(4),
            links: 0,
            flows: 1 + self.below(4),
            workloads: usize::from(self.once_in(4)),
            cbrs: usize::from(self.once_in(4)),
            hosts: usize::from(self.scale.law == 2) * self.below(3),
            classes: if self.scale.law >= 5 || self.once_in(8) { 1 + self.below(3) } else { 0 },
            media: usize::from(self.once_in(8)),
            groups: self.once_in(4),
        };
        self.counts.links = self.counts.nodes - 1 + usize::from(self.once_in(4));
        let seed = self.byte();
        self.line(&format!("name = \"drawn\"\nduration = \"{seconds} s\"\nseed = {seed}"));
        self.table("measure", &keys::MEASURE, &[]);
        for i in 0..self.counts.nodes {
            let count = if self.counts.groups && i != 1 { Some(1 + self.below(4)) } else { None };
            let count = count.map(|count| ("count", count.to_string()));
            self.table(&format!("node.n{i}"), &keys::NODE, count.as_slice());
        }
        self.many("medium", &keys::MEDIUM, 'm', self.counts.media);
        let star = self.once_in(2);
        for i in 0..self.counts.links {
            // Links form a line or a star; one more link connects any two nodes.
            let (from, to) = match i + 1 {
                n if n == self.counts.nodes => (self.below(n), self.below(n)),
                n if star && i > 0 => (1, n),
                n => (i, n),
            };
            let mut fixed = vec![("from", format!("\"n{from}\"")), ("to", format!("\"n{to}\""))];
            fixed.push(("rate", self.value(&Kind::WireRate)));
            if let Some((law, _)) = LAWS.get(self.scale.law).filter(|_| !self.once_in(8)) {
                fixed.push(("law", format!("\"{law}\"")));
                if self.once_in(2) {
                    fixed.push(("symmetric", "true".into()));
                }
            }
            if !self.once_in(3) {
                fixed.push(("limit", self.value(&Kind::Limit)));
            }
            self.table(&format!("link.l{i}"), &keys::LINK, &fixed);
        }
        self.many("class", &keys::CLASS, 'k', self.counts.classes);
        for (kind, section, count) in
            [("flow", &keys::FLOW, self.counts.flows), ("workload", &keys::WORKLOAD, self.counts.workloads)]
        {
            for i in 0..count {
                let mut fixed = self.ends();
                if let Some((_, law)) = LAWS.get(self.scale.law).filter(|_| !self.once_in(8)) {
                    fixed.push(("law", format!("\"{law}\"")));
                }
                if self.counts.classes > 0 && self.once_in(2) {
                    fixed.push(("class", format!("\"k{}\"", self.below(self.counts.classes))));
                }
                let name = if kind == "flow" { 'f' } else { 'w' };
                self.table(&format!("{kind}.{name}{i}"), section, &fixed);
            }
        }
        self.many("host", &keys::HOST, 'h', self.counts.hosts);
        let aggregates = if self.once_in(3) { 1 + self.below(3) } else { 0 };
        self.many("aggregate", &keys::AGGREGATE, 'a', aggregates);
        for i in 0..self.counts.cbrs {
            let fixed = self.ends();
            self.table(&format!("cbr.c{i}"), &keys::CBR, &fixed);
        }
        for _ in 0..self.below(5) {
            self.change();
        }
        for _ in 0..self.below(3) {
            self.list("loss", &keys::LOSS, &[]);
        }
    }

    fn ends(&mut self) -> Vec<(&'static str, String)> {
        let from = self.below(self.counts.nodes);
        let to = (from + 1 + self.below(self.counts.nodes - 1)) % self.counts.nodes;
        vec![("from", format!("\"n{from}\"")), ("to", format!("\"n{to}\""))]
    }

    fn many(&mut self, kind: &str, section: &'static Section, letter: char, count: usize) {
        for i in 0..count {
            self.table(&format!("{kind}.{letter}{i}"), section, &[]);
        }
    }

    /// A change sets one thing of one kind of object.
    fn change(&mut self) {
        let flow = ["receive-buffer", "budget"];
        let host = ["budget", "strategy"];
        let link = ["rate", "delay", "loss", "blackout", "capacity", "limit", "price-error"];
        let (of, what) = match self.below(8) {
            0 => ("flow", flow[self.below(flow.len())]),
            1 if self.counts.hosts > 0 => ("host", host[self.below(host.len())]),
            _ => ("link", link[self.below(link.len())]),
        };
        let mut fixed = Vec::new();
        for name in [of, what] {
            if let Some(key) = keys::CHANGE.key(name) {
                fixed.push((key.name, self.value_of(key)));
            }
        }
        self.list("change", &keys::CHANGE, &fixed);
    }

    fn list(&mut self, name: &str, section: &'static Section, fixed: &[(&str, String)]) {
        self.line(&format!("[[{name}]]"));
        let density = std::mem::replace(&mut self.scale.density, 10);
        self.keys(name, section, fixed);
        self.scale.density = density;
    }

    fn table(&mut self, name: &str, section: &'static Section, fixed: &[(&str, String)]) {
        self.line(&format!("[{name}]"));
        self.keys(name, section, fixed);
    }

    /// Writes the keys of one table and its inner tables.
    fn keys(&mut self, name: &str, section: &'static Section, fixed: &[(&str, String)]) {
        let mut under = Vec::new();
        for key in section.keys() {
            if let Some((_, value)) = fixed.iter().find(|(name, _)| *name == key.name) {
                self.line(&format!("{} = {value}", key.name));
                continue;
            }
            let ends = ["from", "to", "between", "pairs"].contains(&key.name) && !fixed.is_empty();
            let must = matches!(key.default, Default::Must);
            if ends || key.name == "trace" || !must && self.byte() >= self.scale.density {
                continue;
            }
            match key.kind {
                Kind::Table(inner) => under.push((key.name, inner)),
                kind if kind.holds_tables() => {}
                _ => {
                    let value = self.value_of(key);
                    self.line(&format!("{} = {value}", key.name));
                }
            }
        }
        for (key, inner) in under {
            self.table(&format!("{name}.{key}"), inner, &[]);
        }
    }

    fn value_of(&mut self, key: &Key) -> String {
        match (key.name, &key.kind) {
            ("count" | "pairs", Kind::Count { .. }) => (1 + self.below(5)).to_string(),
            ("class", Kind::Text) => format!("\"k{}\"", self.below(self.counts.classes)),
            ("host", Kind::Text) => format!("\"h{}\"", self.below(self.counts.hosts)),
            (_, kind) => self.value(kind),
        }
    }

    /// A name, a member of a group, or a pattern.
    fn name(&mut self, letter: char, count: usize, pattern: bool) -> String {
        match self.byte() {
            0..32 if pattern => "\"*\"".into(),
            32..40 if pattern => format!("\"{letter}*\""),
            40..64 => format!("\"{letter}{}.1\"", self.below(count)),
            _ => format!("\"{letter}{}\"", self.below(count)),
        }
    }

    fn value(&mut self, kind: &Kind) -> String {
        match *kind {
            Kind::Text | Kind::Line | Kind::Match(_) => "\"text\"".into(),
            Kind::Truth => (self.once_in(2)).to_string(),
            Kind::Word(words) => format!("\"{}\"", words[self.below(words.len())]),
            Kind::Count { least, most } => self.whole(least, most).to_string(),
            Kind::Number { least, most } => self.real(least, most).to_string(),
            Kind::Over { over, most } => {
                let x = self.real(over, most);
                (if x > over { x } else { over + f64::EPSILON * over.max(1e-9) }).to_string()
            }
            Kind::Time { least } => self.time(least),
            Kind::TimeOrNone if self.once_in(4) => "\"none\"".into(),
            Kind::TimeOrNone => self.time(1),
            Kind::RateOrAll if self.once_in(4) => "\"all\"".into(),
            Kind::Rate | Kind::RateOrAll => self.rate(1e-3),
            Kind::WireRate => self.rate(1000.0),
            Kind::Bytes { least, most } => self.whole(least, most).to_string(),
            Kind::Limit => match self.byte() {
                0..16 => "\"unlimited\"".into(),
                16..128 => format!("\"{} packets\"", 1 + self.below(100)),
                128..192 => format!("\"{} BDP\"", self.part() * 4.0 + 1e-3),
                192..224 => format!("\"{} packets\"", self.whole(1, u64::from(u32::MAX) - 1)),
                _ => format!("\"{} B\"", self.whole(1, 1 << 53)),
            },
            Kind::Threshold => match self.byte() {
                0..192 => self.part().to_string(),
                192..224 => format!("\"{} packets\"", self.whole(0, 1 << 40)),
                _ => format!("\"{} B\"", self.whole(0, 1 << 53)),
            },
            Kind::Spread | Kind::When => match self.byte() {
                0..32 => format!("{{ first = {}, last = {} }}", self.time(0), self.time(0)),
                32..64 if matches!(kind, Kind::When) => {
                    format!("{{ random = {}, after = {} }}", self.time(0), self.time(0))
                }
                _ => self.time(0),
            },
            Kind::Sizes => match self.below(4) {
                0 => self.whole(1, 1 << 40).to_string(),
                1 => format!("{{ exponential = {} }}", self.whole(1, 1 << 40)),
                2 => format!(
                    "{{ pareto = {{ mean = {}, shape = {} }} }}",
                    self.whole(1, 1 << 40),
                    1.0 + 1e-6 + self.part() * 2.0
                ),
                _ => format!("{{ empirical = [[0, {}], [{}, 1.0]] }}", self.part(), self.whole(1, 1 << 40)),
            },
            Kind::Arrivals => {
                let flows = 1.0 + self.part() * 60.0;
                if self.once_in(2) {
                    format!("{{ interval = \"{} s\" }}", self.scale.seconds / flows)
                } else {
                    format!("{{ poisson = {} }}", flows / self.scale.seconds)
                }
            }
            Kind::Node => self.name('n', self.counts.nodes, false),
            Kind::Nodes => self.name('n', self.counts.nodes, true),
            Kind::Medium => self.name('m', self.counts.media, false),
            Kind::Links => {
                let name = self.name('l', self.counts.links, true);
                if self.once_in(16) { format!("{}.reverse\"", name.trim_end_matches('"')) } else { name }
            }
            Kind::Flows => self.name('f', self.counts.flows, true),
            _ => "{}".into(),
        }
    }

    /// A number near either bound, or with any number of digits between.
    fn whole(&mut self, least: u64, most: u64) -> u64 {
        let span = most - least;
        match self.byte() {
            0..96 => least + u64::from(self.byte()) % 12 % (span + 1).max(1),
            96..104 => most,
            104..108 => most - 1u64.min(span),
            108..200 => least + (libm::pow((span as f64).min(1e5) + 1.0, self.part()) - 1.0) as u64,
            _ => least + ((libm::pow(span as f64 + 1.0, self.part()) - 1.0) as u64).min(span),
        }
    }

    fn real(&mut self, least: f64, most: f64) -> f64 {
        let span = most - least;
        match self.byte() {
            0..16 => least,
            16..24 => most,
            24..128 => least + span.min(4.0) * self.part(),
            128..192 => least + span.min(100.0) * self.part(),
            192..224 => least + span * libm::pow(1e-12, self.part()),
            _ => least + span * self.part(),
        }
    }

    fn time(&mut self, least: u64) -> String {
        let seconds = match self.byte() {
            0..8 => 0.0,
            // From a nanosecond to a century.
            8..24 => 1e-9 * libm::pow(3e18, self.part()),
            24..128 => self.scale.seconds * self.part(),
            128..192 => self.scale.seconds * self.part() * 0.1,
            _ => self.scale.seconds * libm::pow(1e-4, self.part()),
        };
        let ns = (seconds * 1e9) as u64;
        format!("\"{} ns\"", ns.max(least))
    }

    fn rate(&mut self, least: f64) -> String {
        let bps = match self.byte() {
            0..8 => least * libm::pow(10.0, self.part() * 18.0),
            8..16 => least,
            16..128 => self.scale.bps,
            128..200 => self.scale.bps * (0.1 + self.part() * 2.0),
            _ => self.scale.bps * libm::pow(0.001, self.part()) * 10.0,
        };
        format!("\"{} bps\"", bps.max(least))
    }
}
