//! The configuration of a router.

use std::path::Path;

use tollway_law::link::{AnyLink, CodelConfig, Shared};
use tollway_law::{Budget, Rate, words};
use tollway_net::LinkSpec;
use tollway_net::edge::{TOLLED_CLASS, TenantSpec, sees_packets};
use tollway_proto::port::{AnyQueue, ClassQueuesConfig};
use tollway_proto::route::Hash;
use tollway_scenario::file::reading::{Kind, Mistakes, Reader, page_markdown, read};
use tollway_scenario::file::{Scenario, ScenarioError};
use tollway_scenario::run::mesh::mesh;
use tollway_scenario::section;
use tollway_scenario::words::{LinkWords, preamble, quoted};

use crate::programs::Side;
use crate::tenants::{self, Condition, TENANT};

section! {
    /// A router at one interface.
    ROUTER_KEYS = "" {
        /// Name of this version in `status`.
        "version": Kind::Line, else "computed from the text";
        /// The interface, such as `"eth0"`.
        "device": Kind::Line;
        /// Rate at which packets leave it. A little less than that of the line keeps the queue here.
        "up": Kind::WireRate, else "packets leave as they come";
        /// Rate at which packets that arrive there go on.
        "down": Kind::WireRate, else "packets arrive as they come";
        /// The law of both directions, in the words of `tollway exec --link`: `"fq_codel"`,
        /// `"dualpi2"`, `"fq_codel codel.target=10ms limit=300packets"`.
        "law": Kind::Line, default "fq-codel";
        /// Under `xcp` and `fcp`, weight of traffic without their option against 1 for traffic with
        /// it. It has a separate queue, under CoDel; an unused part goes to the other. Zero: both
        /// kinds are in the law's queue.
        "ordinary": Kind::Number { least: 0.0, most: 1000.0 }, default "1";
        /// Under `xcp` and `fcp`, meters the senders of packets in this direction: one that lies is held
        /// to the part of an honest one. It is for the hosts behind this router. Needs both
        /// directions. Connections that were open before are ordinary traffic.
        "meter": Kind::Word(Metered::WORDS), default "none";
        /// Under `fcp` with `meter`: the budget of each host, $/s.
        "budget": Kind::Number { least: 0.0, most: 1e6 }, default "1";
        /// Bytes that the line adds to each IP packet: 38 for Ethernet with its preamble and gap.
        "overhead": Kind::Bytes { least: 0, most: 256 }, default "0 B";
        /// Packets while the router does not answer: they pass, or are held to the rates.
        "on-failure": Kind::Word(OnFailure::WORDS), default "pass";
        /// Tenants: packets that share a rate.
        "aggregate": Kind::Named(&TENANT), optional;
    }
}

words! {
    /// The treatment of packets while the router does not answer.
    pub enum OnFailure {
        /// They pass.
        Pass = "pass",
        /// They are held to the rates.
        Limit = "limit",
    }
}

words! {
    /// The direction whose senders are metered.
    pub enum Metered {
        /// None.
        None = "none",
        /// Out of the interface.
        Up = "up",
        /// Into it.
        Down = "down",
    }
}

/// A configuration, checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its version: that of the file, or a digest of the text.
    pub version: String,
    /// The interface.
    pub device: String,
    /// The law's words.
    pub law: String,
    /// The direction out of the interface.
    pub up: Option<Direction>,
    /// The direction into it.
    pub down: Option<Direction>,
    /// The treatment of packets while the router does not answer.
    pub on_failure: OnFailure,
    /// The meters of senders.
    pub meter: Option<Metering>,
    /// Conditions of tenants that packets' bytes do not show.
    pub conditions: Vec<Condition>,
}

/// Meters of senders under an explicit law.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metering {
    /// The direction of their packets.
    pub side: Side,
    /// The budget of each host under FCP; `None` under XCP.
    pub budget: Option<Budget>,
}

/// A direction of an interface.
#[derive(Clone, Debug)]
pub struct Direction {
    /// The link.
    pub link: LinkSpec,
    /// The words that it was made of.
    pub words: String,
    /// The tenants, in the file's order.
    pub tenants: Vec<TenantSpec>,
}

impl Direction {
    /// A direction without tenants, with the default for traffic without the law's option.
    pub fn of(link: LinkSpec) -> Direction {
        Direction { link: beside(link, 1.0), words: String::new(), tenants: Vec::new() }
    }
}

/// Command-line options, used instead of a file.
#[derive(Clone, Debug, Default)]
pub struct CommandLine {
    /// Keys of the file with their values.
    pub keys: Vec<(&'static str, String)>,
}

impl Config {
    /// Reads a configuration. Errors call it `name`.
    ///
    /// # Errors
    /// All mistakes that can be found at once, each with its place.
    pub fn parse(name: &str, text: &str) -> Result<Config, ScenarioError> {
        let resolve = |top: &Reader<'_>, mistakes: &mut Mistakes| resolve(top, text, mistakes);
        read(name, text, &ROUTER_KEYS, ("a router's configuration", "configuration"), resolve)
    }

    /// Reads the file at `path`.
    ///
    /// # Errors
    /// The file cannot be read, or has mistakes.
    pub fn load(path: &Path) -> Result<Config, ScenarioError> {
        Config::parse(&path.display().to_string(), &Scenario::read(path)?)
    }

    /// Builds a configuration from options.
    ///
    /// # Errors
    /// As for a file with the same content.
    pub fn from_words(words: &CommandLine) -> Result<Config, ScenarioError> {
        let line = |(key, value): &(&str, String)| format!("{key} = {}\n", quoted(value));
        Config::parse("the command line", &words.keys.iter().map(line).collect::<String>())
    }

    /// A line for each direction, with its interface, rate and law.
    pub fn summary(&self) -> String {
        let line = |way: &str, direction: &Option<Direction>| match direction {
            Some(direction) => {
                let first = format!("{way} {}: {}", self.device, direction.words);
                let rest = direction.tenants.iter().map(tenants::summary);
                [first].into_iter().chain(rest).collect::<Vec<_>>().join("\n")
            }
            None => format!("{way} {}: packets pass", self.device),
        };
        [line("out of", &self.up), line("into", &self.down)].join("\n")
    }
}

/// The chapter of the manual that lists every key of the configuration.
pub fn router_reference_markdown() -> String {
    let by = "`router_reference_markdown()` in `crates/router`";
    page_markdown("Configuration of `tollway router`", by, EXAMPLE, &[&ROUTER_KEYS, &TENANT], &[])
}

/// The example of the manual's page.
const EXAMPLE: &str = r#"device = "eth0"
up = "19 Mbps"
down = "95 Mbps"
law = "fq_codel"
on-failure = "limit"

[aggregate.guests]
from = "10.0.8.0/24"
rate = "5 Mbps"
hosts = "from"
"#;

/// The configuration of a file. After a mistake its values have no meaning.
fn resolve(top: &Reader<'_>, text: &str, mistakes: &mut Mistakes) -> Config {
    if top.lacks("up") && top.lacks("down") {
        mistakes
            .add(top.place(), "neither `up` nor `down` has a rate", "here")
            .help("add `up = \"95 Mbps\"`, a little less than the line sends");
    }
    let law = top.text("law").unwrap_or("fq-codel".into());
    let overhead = top.bytes("overhead").unwrap_or_default();
    let mut direction = |key: &str| {
        let rate = top.rate(key)?;
        match link(&law, rate, overhead) {
            Ok(direction) => {
                Some(Direction { link: beside(direction.link, top.number("ordinary")), ..direction })
            }
            Err((message, help)) => {
                mistakes.add(top.at("law"), message, "here").help(help);
                None
            }
        }
    };
    // A mistake in the law is shown once.
    let up = direction("up");
    let down = if up.is_some() || top.lacks("up") { direction("down") } else { None };
    let conditions = tenants::conditions(top, mistakes);
    let [up, down] = [(up, Side::Up), (down, Side::Down)].map(|(direction, side)| {
        direction.map(|direction| Direction {
            tenants: tenants::tenants(top, side, &direction.link, &conditions, mistakes),
            ..direction
        })
    });
    tenants::check(top, mistakes);
    let side = match top.one_of("meter") {
        Some(Metered::Up) => Some(Side::Up),
        Some(Metered::Down) => Some(Side::Down),
        Some(Metered::None) | None => None,
    };
    let word = law.split_whitespace().next();
    let budget = (word == Some("fcp")).then(|| Budget::per_sec(top.number("budget")));
    let meter = side.map(|side| Metering { side, budget });
    if meter.is_some() && !matches!(word, Some("xcp" | "fcp")) {
        let message = format!("`meter` has no effect under `{law}`: its senders state nothing");
        mistakes.add(top.at("meter"), message, "here").help("write `law = \"xcp\"` or `\"fcp\"`");
    }
    for way in ["up", "down"].into_iter().filter(|way| meter.is_some() && top.lacks(way)) {
        let message =
            format!("`meter` needs `{way}`: acknowledgements of one direction's data cross the other");
        mistakes.add(top.at("meter"), message, "here").help("give both directions a rate");
    }
    Config {
        version: top.text("version").unwrap_or_else(|| digest(text)),
        device: top.text("device").unwrap_or_default(),
        law,
        up,
        down,
        on_failure: top.one_of("on-failure").unwrap_or(OnFailure::Pass),
        meter,
        conditions,
    }
}

fn digest(text: &str) -> String {
    format!("{:08x}", Hash::new([0; 16]).of(text.as_bytes()) >> 32)
}

/// A direction by its law's words, or the mistake in them and its remedy.
fn link(law: &str, rate: Rate, overhead: u64) -> Result<Direction, (String, String)> {
    let mut words = LinkWords::read("law", law).map_err(|error| (error.to_string(), LAWS.to_owned()))?;
    if let Some(key) = ["rate", "trace", "delay", "loss"].into_iter().find(|key| words.has(key)) {
        let help = if key == "rate" { "give the rate as `up` or `down`" } else { LAWS };
        return Err((format!("`law`: `{key}` in `{law}` is no property of a law"), help.into()));
    }
    let clash = |why: String| (format!("`law`: `{law}` {why}"), LAWS.to_owned());
    let rate_words = format!("{} Mbps", rate.mbps());
    words.set("rate", quoted(&rate_words)).map_err(clash)?;
    if overhead > 0 {
        words.set("overhead", quoted(&format!("{overhead} B"))).map_err(clash)?;
    }
    let mut text = preamble("router", 1, &["inside", "outside"]);
    let words = words.completed();
    // The second one leads back: the constants of some laws depend on round trips.
    words.write(&mut text, "router", "inside", "outside");
    words.write(&mut text, "back", "outside", "inside");
    let scenario = Scenario::parse::<&str>("law", &text, &[]).map_err(|error| {
        let shown = error.in_words("law", &[("law", law)]);
        let mistakes: Vec<String> = shown.mistakes().iter().map(|mistake| mistake.to_string()).collect();
        (format!("`law`: {}", mistakes.join("; ")), LAWS.to_owned())
    })?;
    let plan = &scenario.variants()[0].plan;
    let emulated = plan.links[0].impairments.is_some();
    let mesh = mesh(plan).map_err(|error| (format!("`law`: {error}"), LAWS.to_owned()))?;
    let link = mesh.links.into_iter().next().filter(|_| !emulated);
    let link = link.ok_or_else(|| clash("emulates faults, which a real line has by itself".into()))?;
    let mut shown = format!("{rate_words} {law}");
    if overhead > 0 {
        shown += &format!(" overhead={overhead}B");
    }
    Ok(Direction { link, words: shown, tenants: Vec::new() })
}

/// A link of XCP or FCP with ordinary traffic in a queue beside it, of this weight against 1.
fn beside(link: LinkSpec, ordinary: f64) -> LinkSpec {
    if ordinary == 0.0 || !sees_packets(&link.law) || !matches!(link.queue, AnyQueue::Fifo(_)) {
        return link;
    }
    let codel = AnyLink::Codel(Box::new(CodelConfig::default().build()));
    let law = Shared::new(vec![(codel, ordinary), (link.law, 1.0)], link.rate);
    let mut queue = ClassQueuesConfig { apart: true, ..ClassQueuesConfig::default() };
    queue.weights[0] = ordinary;
    queue.queue_of[usize::from(TOLLED_CLASS)] = TOLLED_CLASS;
    LinkSpec { law: AnyLink::Shared(Box::new(law)), queue: queue.build().into(), ..link }
}

const LAWS: &str = "name a law of a scenario's links, with its constants: `fq_codel`, `dualpi2`, `pie`, `codel \
    codel.target=10ms`, `red`, `xcp`, `fcp`, `droptail limit=200packets`";

#[cfg(test)]
mod tests {
    use tollway_net::edge::Members;

    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse("router.toml", text).map_err(|error| format!("{:?}", miette::Report::from(error)))
    }

    #[test]
    fn every_law_of_a_link_makes_a_router() {
        for law in tollway_scenario::words::laws() {
            let text = format!("device = \"eth0\"\nup = \"95 Mbps\"\ndown = \"1 Gbps\"\nlaw = \"{law}\"\n");
            let config = parse(&text).unwrap_or_else(|error| panic!("{law}: {error}"));
            let (up, down) = (config.up.unwrap().link, config.down.unwrap().link);
            assert_eq!((up.rate.mbps(), down.rate.mbps(), up.delay.0), (95.0, 1000.0, 0), "{law}");
            assert!(up.limit.packets < u32::MAX || up.limit.bytes < u64::MAX, "{law} has no limit");
        }
    }

    #[test]
    fn ordinary_traffic_is_beside_explicit_laws_unless_it_has_no_weight() {
        let with = |law: &str, ordinary: &str| {
            let config = parse(&format!("device = \"eth0\"\nup = \"9 Mbps\"\nlaw = \"{law}\"\n{ordinary}\n"));
            let link = config.unwrap().up.unwrap().link;
            matches!(link.law, AnyLink::Shared(_)) && matches!(link.queue, AnyQueue::ByClass(_))
        };
        assert!(with("xcp", "") && with("fcp", "ordinary = 0.25"));
        assert!(!with("xcp", "ordinary = 0") && !with("fq_codel", ""));
    }

    #[test]
    fn words_of_the_command_line_are_keys() {
        let keys = [
            ("device", "eth0"),
            ("up", "10mbit"),
            ("law", "fq_codel codel.target=9ms"),
            ("overhead", "38 B"),
        ];
        let keys = keys.map(|(key, value)| (key, value.to_owned())).to_vec();
        let config = Config::from_words(&CommandLine { keys }).unwrap();
        let up = config.up.as_ref().unwrap();
        assert_eq!((up.link.overhead, config.down.is_none()), (38, true));
        let shown = "out of eth0: 10 Mbps fq_codel codel.target=9ms overhead=38B\ninto eth0: packets pass";
        assert_eq!(config.summary(), shown);
    }

    #[test]
    fn a_tenant_s_filter_is_turned_round_for_the_way_back() {
        let config = parse(
            "device = \"eth0\"\nup = \"95 Mbps\"\ndown = \"480 Mbps\"\n[aggregate.office]\n\
             from = [\"10.1.0.0/16\", \"fd01::/16\"]\nto-port = [80, \"8000-8099\"]\nhosts = \"from\"\n\
             rate = \"20 Mbps\"\n[aggregate.night]\nrate = \"1 Mbps\"\ndirection = \"down\"\naction = \"drop\"\n",
        )
        .unwrap();
        let (up, down) = (config.up.as_ref().unwrap(), config.down.as_ref().unwrap());
        let [office] = &up.tenants[..] else { panic!("{up:?}") };
        let [back, night] = &down.tenants[..] else { panic!("{down:?}") };
        assert_eq!((&office.filter, office.filter.from.len()), (&back.filter.clone().back(), 2));
        assert_eq!((office.members, back.members), (Members::Sources, Members::Destinations));
        assert_eq!((office.config.policy.profile.depth.get(), &*night.name), (250_000, "night"));
        assert!(config.summary().contains("night: dropped above 1 Mbps"), "{}", config.summary());
    }

    #[test]
    fn each_mistake_is_reported_with_its_remedy() {
        let tenant = |keys: &str| {
            format!("device = \"eth0\"\nup = \"9 Mbps\"\n[aggregate.a]\nrate = \"1 Mbps\"\n{keys}\n")
        };
        let with =
            |law: &str| format!("device = \"eth0\"\nup = \"9 Mbps\"\ndown = \"9 Mbps\"\nlaw = \"{law}\"\n");
        for (text, says) in [
            ("device = \"eth0\"\n".to_owned(), "neither `up` nor `down`"),
            ("up = \"9 Mbps\"\n".to_owned(), "device"),
            (tenant("direction = \"down\""), "which has no rate"),
            (tenant("from = \"10.0.0.256\""), "is not an address"),
            (tenant("to-port = 0"), "is not a port"),
            (tenant("dscp = \"AF51\""), "is not a codepoint"),
            (tenant("peak = \"900 kbps\""), "the peak must be the rate or more"),
            (tenant("excess-ecn = true"), "has no effect"),
            (tenant("mark = 7"), "which packets into the interface lack"),
            (tenant("mark = \"8/7\"\ndirection = \"up\""), "is not a mark"),
            (tenant("schema = \"common\""), "scheme"),
            (
                tenant("[aggregate.b]\nrate = \"1 Mbps\"\n").replace("up =", "meter = \"up\"\nup ="),
                "has no effect under",
            ),
            (
                "device = \"eth0\"\nup = \"9 Mbps\"\nlaw = \"xcp\"\nmeter = \"up\"\n".to_owned(),
                "needs `down`",
            ),
            (with("fqcodel"), "mean `fq-codel`?"),
            (with("cubic"), "name a law of a scenario's links"),
            (with("20Mbps fq_codel"), "give the rate as `up` or `down`"),
            (with("fq_codel loss=1%"), "no property of a law"),
            (with("fq_codel jitter=1ms"), "emulates faults"),
            (with("fq_codel codel.aim=1ms"), "aim"),
            ("device = \"eth0\"\nup = \"9 Mbps\"\non-failure = \"stop\"\n".to_owned(), "limit"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(says), "{says}: {error}");
        }
    }

    #[test]
    fn the_chapter_s_files_are_valid() {
        let page = include_str!("../../../docs/src/router.md");
        for rest in page.split("```toml\n").skip(1) {
            parse(rest.split("```").next().unwrap()).unwrap_or_else(|error| panic!("{error}"));
        }
    }

    #[test]
    fn the_manual_lists_every_key() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/router-reference.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, router_reference_markdown()).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            committed == router_reference_markdown(),
            "run `UPDATE_DOCS=1 cargo test -p tollway-router manual`"
        );
        parse(EXAMPLE).unwrap();
    }
}
