//! Policies for this machine's TCP connections: the file, its meaning, and its changes.
//!
//! Checks and messages are those of scenario files.

mod filter;
mod keys;
mod source;
#[cfg(feature = "etcd")]
mod store;

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use tollway_law::shares::{Contract, Tenant};
use tollway_law::{Bytes, Rate, Time};
use tollway_net::sys::interface;
use tollway_net::sys::prefix::Prefix;
use tollway_scenario::file::reading::{Mistakes, Reader, page_markdown, read};
use tollway_scenario::file::{Scenario, ScenarioError};

pub use filter::{Filter, Filters};
pub use source::{FileSource, News, Opener, Source};
#[cfg(feature = "etcd")]
pub use store::EtcdSource;

use crate::agent::default_depth;
use crate::{Party, Regime};
use keys::{POLICIES, POLICY, POLICY_CLASS, UPLINK};

/// Checked policies, ready for an agent.
#[derive(Clone, Debug)]
pub struct Policies {
    regime: Regime,
    filters: Arc<Filters>,
}

impl Policies {
    /// Reads the policy file at `path`.
    ///
    /// # Errors
    /// The file can't be read as text, or has mistakes.
    pub fn load(path: &Path) -> Result<Policies, ScenarioError> {
        let text = Scenario::read(path)?;
        Policies::parse(&path.display().to_string(), &text)
    }

    /// Reads an open file. Messages name it `path`.
    ///
    /// # Errors
    /// Those of [`Policies::load`].
    pub fn read(path: &Path, file: &File) -> Result<Policies, ScenarioError> {
        let text = Scenario::read_open(path, file)?;
        Policies::parse(&path.display().to_string(), &text)
    }

    /// Parses `text`. Messages name it `file`. User names are looked up in this machine's
    /// `/etc/passwd`.
    ///
    /// # Errors
    /// All independent mistakes, with their places.
    pub fn parse(file: &str, text: &str) -> Result<Policies, ScenarioError> {
        let title = ("a policy file", "policies");
        let resolve = |top: &Reader<'_>, mistakes: &mut Mistakes| resolve(top, text, mistakes);
        let (regime, filters) = read(file, text, &POLICIES, title, resolve)?;
        Ok(Policies { regime, filters })
    }

    /// The regime to put in force.
    pub fn regime(&self) -> &Regime {
        &self.regime
    }

    /// Names of policies whose local addresses this machine lacks.
    pub fn foreign(&self) -> Vec<&str> {
        let local = interface::addresses();
        let tenants = self.regime.tenants.iter().zip(&self.filters.tenants);
        tenants.filter(|(_, (filter, _))| filter.is_foreign(&local)).map(|(party, _)| &*party.name).collect()
    }

    /// The filters of the rules.
    pub(crate) fn filters(&self) -> &Filters {
        &self.filters
    }

    /// Sets the shortest interval between ticks.
    pub fn set_tick(&mut self, tick: Time) {
        self.regime.tick = tick;
    }

    /// Returns the regime, to be handed to an agent.
    pub fn into_regime(self) -> Regime {
        self.regime
    }
}

/// The chapter of the manual that lists every key of a policy file.
pub fn policy_reference_markdown() -> String {
    let by = "`policy_reference_markdown()` in `crates/shape`";
    page_markdown("Policy reference", by, EXAMPLE, &[&POLICIES, &UPLINK, &POLICY, &POLICY_CLASS], &[])
}

/// The example of the manual's page.
const EXAMPLE: &str = r#"[link]
rate = "90 Mbps"
overhead = "38 B"

[aggregate.web]
weight = 3
user = ["root", 1000]

[aggregate.web.class.video]
weight = 2
from-port = "8000-8099"

[aggregate.rest]
to = "*"
"#;

fn resolve(top: &Reader<'_>, text: &str, mistakes: &mut Mistakes) -> (Regime, Arc<Filters>) {
    let tick = top.span("tick");
    if !(Time::from_millis(1)..=Time::from_secs(10)).contains(&tick) {
        mistakes.add(top.at("tick"), "`tick` must be from 1 ms to 10 s", "out of range");
    }
    let uplink = top.table("link", &UPLINK);
    let link = Contract {
        weight: 1.0,
        rate: uplink.rate("rate"),
        peak: uplink.rate("peak"),
        depth: uplink.bytes("depth").map(Bytes),
    };
    for key in ["peak", "depth"] {
        if uplink.has(key) && uplink.lacks("rate") {
            mistakes.add(uplink.at(key), "needs a rate", "no `rate`").help("give the link's `rate`");
        }
    }
    if let (Some(rate), Some(peak)) = (link.rate, link.peak)
        && peak < rate
    {
        let message = format!("the link has a peak of {peak}, under its rate of {rate}");
        mistakes.add(uplink.at("peak"), message, "too low").help(PEAK);
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let users = users_of(&users);
    let (mut tenants, mut filters) = (Vec::new(), Filters::default());
    // The first policy with each filter.
    let mut firsts: HashMap<Filter, String> = HashMap::new();
    for (name, keys) in top.named("aggregate", &POLICY) {
        let contract = contract(name, &keys, &uplink, mistakes);
        let own = filter(&keys, &users, mistakes);
        // After a mistake the filters may be incomplete, so they are not compared.
        if let (true, Some(other)) = (mistakes.is_empty(), firsts.get(&own)) {
            let message = format!("policies `{other}` and `{name}` match the same connections");
            mistakes
                .add(keys.place(), message, "the same filter")
                .help("a connection has only one policy: narrow one of them");
        }
        firsts.entry(own.clone()).or_insert_with(|| name.to_owned());
        let (mut weights, mut names, mut classes) = (vec![1.0], vec![String::new()], Vec::new());
        for (class, keys) in keys.named("class", &POLICY_CLASS) {
            weights.push(keys.number("weight"));
            names.push(class.to_owned());
            classes.push(filter(&keys, &users, mistakes));
        }
        tenants.push(Party {
            name: name.to_owned(),
            tenant: Tenant { contract, classes: weights },
            classes: names,
        });
        filters.tenants.push((own, classes));
    }
    let filters = Arc::new(filters);
    let regime = Regime {
        version: top.text("version").unwrap_or_else(|| format!("{:08x}", fingerprint(text))),
        tick,
        overhead: uplink.bytes("overhead").unwrap_or_default() as u32,
        link,
        tenants,
        rules: Arc::clone(&filters) as _,
    };
    (regime, filters)
}

fn contract(name: &str, keys: &Reader<'_>, uplink: &Reader<'_>, mistakes: &mut Mistakes) -> Contract {
    let (rate, peak) = (keys.rate("rate"), keys.rate("peak"));
    if !uplink.has("rate") && keys.lacks("rate") {
        mistakes
            .add(keys.place(), format!("policy `{name}` has no rate, and the link has none"), "no `rate`")
            .help("give its `rate`, or that of `[link]`");
    }
    if let (Some(rate), Some(peak)) = (rate, peak)
        && peak < rate
    {
        let message = format!("policy `{name}` has a peak of {peak}, under its rate of {rate}");
        mistakes.add(keys.at("peak"), message, "too low").help(PEAK);
    }
    for key in ["peak", "depth"] {
        if keys.has(key) && keys.lacks("rate") {
            let message = format!("policy `{name}` has `{key}`, which needs a rate");
            mistakes.add(keys.at(key), message, "no `rate`").help("give its `rate`");
        }
    }
    // Where the link's rate bounds the sum, a tenant makes up for what others' bursts took from it.
    let made_up = |rate: Rate| Rate::from_bytes_per_sec(rate.bytes_per_sec() * MAKES_UP);
    let peak = peak.or_else(|| rate.filter(|_| uplink.has("rate")).map(made_up));
    let usual = rate.map(|rate| default_depth(rate.bytes_per_sec()) as u64);
    Contract { weight: keys.number("weight"), rate, peak, depth: keys.bytes("depth").or(usual).map(Bytes) }
}

fn filter(keys: &Reader<'_>, users: &Users<'_>, mistakes: &mut Mistakes) -> Filter {
    Filter {
        from: each(keys, "from", Prefix::parse, ADDRESS, mistakes).concat(),
        to: each(keys, "to", Prefix::parse, ADDRESS, mistakes).concat(),
        from_ports: each(keys, "from-port", ports, PORT, mistakes),
        to_ports: each(keys, "to-port", ports, PORT, mistakes),
        users: each(keys, "user", |text| user(text, users), USER, mistakes),
        cgroups: each(
            keys,
            "cgroup",
            |text| text.starts_with(['/', '*']).then(|| group(text).to_owned()),
            CGROUP,
            mistakes,
        ),
        // An empty name would match the root group, an ancestor of all.
        containers: each(
            keys,
            "container",
            |text| (!text.is_empty()).then(|| text.to_owned()),
            CONTAINER,
            mistakes,
        ),
    }
}

/// A message on a bad value of a filter, and the remedy.
type Wrong = (&'static str, &'static str);

const ADDRESS: Wrong =
    ("is not an address", "write it like `192.0.2.1`, `10.0.0.0/8`, `10.0.*`, `2001:db8::/32` or `*`");
const PORT: Wrong = ("is not a port", "write it like `443` or `\"8000-8099\"`");
const USER: Wrong = ("is not a user of this machine", "name one in `/etc/passwd`, or give the number");
const CGROUP: Wrong =
    ("is not a path of a control group", "paths begin with `/`, as in `/proc/PID/cgroup` after the `::`");
const CONTAINER: Wrong = (
    "is not a container",
    "write its name, with `*` and `?`, its identifier, or at least the first twelve letters of that",
);

/// Reads every part of a key's value.
fn each<T>(
    keys: &Reader<'_>,
    key: &str,
    read: impl Fn(&str) -> Option<T>,
    (is, help): Wrong,
    mistakes: &mut Mistakes,
) -> Vec<T> {
    let mut all = Vec::new();
    for (text, at) in keys.patterns(key) {
        match read(&text) {
            Some(value) => all.push(value),
            None => mistakes.add(at, format!("`{key}`: `{text}` {is}"), "here").help(help),
        }
    }
    all
}

/// A control group's path without a final slash.
fn group(text: &str) -> &str {
    match text.trim_end_matches('/') {
        "" => "/",
        path => path,
    }
}

fn ports(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range: (u16, u16) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (range.0 <= range.1 && range.0 > 0).then_some(range)
}

/// Users' numbers by name; none for a name whose row can't be read.
type Users<'a> = HashMap<&'a str, Option<u32>>;

/// Parses a text like `/etc/passwd`. The first of several rows with a name counts.
fn users_of(passwd: &str) -> Users<'_> {
    let mut users = Users::new();
    for row in passwd.lines() {
        let mut words = row.split(':');
        if let Some(name) = words.next() {
            users.entry(name).or_insert_with(|| words.nth(1)?.parse().ok());
        }
    }
    users
}

/// The user number in `text`, or the number of that name.
fn user(text: &str, users: &Users<'_>) -> Option<u32> {
    text.parse().ok().or_else(|| users.get(text).copied().flatten())
}

/// FNV-1a hash of a text, which names a version without a name.
fn fingerprint(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Default peak of a tenant, relative to its rate.
const MAKES_UP: f64 = 1.25;
const PEAK: &str = "the peak must be the rate or more";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use miette::Diagnostic as _;

    use super::*;

    fn wrong(text: &str) -> String {
        let error = Policies::parse("policies.toml", text).expect_err("it is wrong");
        format!("{:?}", miette::Report::new(error)).replace(|c: char| c.is_control() && c != '\n', "")
    }

    #[test]
    fn a_file_says_who_shares_what() {
        let text = r#"
            version = "7"
            tick = "20 ms"
            [link]
            rate = "1 Gbps"
            peak = "1050 Mbps"
            overhead = "18 B"
            [aggregate.web]
            weight = 3
            rate = "200 Mbps"
            peak = "400 Mbps"
            depth = "2 MB"
            user = ["root", 33]
            to-port = [443, "8000-8099"]
            [aggregate.web.class.bulk]
            weight = 0.5
            to = "198.51.100.*"
            [aggregate.rest]
        "#;
        let regime = Policies::parse("policies.toml", text).unwrap().into_regime();
        assert_eq!((regime.version.as_str(), regime.tick, regime.overhead), ("7", Time::from_millis(20), 18));
        let [web, rest] = &regime.tenants[..] else { panic!("{regime:?}") };
        assert_eq!(regime.link.peak.unwrap().mbps(), 1050.0);
        assert_eq!(web.tenant.contract.peak.unwrap().mbps(), 400.0);
        assert_eq!(web.tenant.contract.depth, Some(Bytes(2_000_000)));
        assert_eq!(
            (&web.tenant.classes[..], &web.classes[..]),
            (&[1.0, 0.5][..], &["".to_owned(), "bulk".to_owned()][..])
        );
        assert_eq!((rest.name.as_str(), rest.tenant.contract), ("rest", Contract::default()));
        let who = |remote: &str, uid| crate::Identity {
            local: "10.0.0.1:50000".parse().unwrap(),
            remote: remote.parse().unwrap(),
            uid,
            cgroup: None,
            stays: false,
        };
        let class = |remote: &str, uid| regime.rules.class_of(&who(remote, uid));
        assert_eq!(class("192.0.2.1:8050", 33), Some(0));
        assert_eq!(class("198.51.100.7:443", 0), Some(1));
        assert_eq!(class("192.0.2.1:443", 1000), Some(2));
        // A final slash in a control group's path is allowed.
        assert_eq!(["/a/b/", "/", "//", "*/b"].map(group), ["/a/b", "/", "/", "*/b"]);
        // The name of a version without a name changes with the text.
        let versions = ["1 Mbps", "2 Mbps"].map(|rate| {
            let text = format!("[link]\nrate = \"{rate}\"");
            Policies::parse("x", &text).unwrap().into_regime().version
        });
        assert_ne!(versions[0], versions[1]);
    }

    #[test]
    fn mistakes_are_shown_in_place_with_what_to_do() {
        insta::assert_snapshot!(wrong(
            "[aggregate.a]\nrat = \"10 Mbps\"\nuser = \"nobody-here\"\nto = [\"10.0.0.0/40\", \"192.0.2.1\"]\nto-port = 99999\ncgroup = \"web\"\n\
             [aggregate.b]\nrate = \"10 Mbps\"\npeak = \"5 Mbps\"\nfrom-port = \"90-80\"\n\
             [aggregate.c]\ndepth = \"1 kB\"\n"
        ));
        insta::assert_snapshot!(wrong(
            "[link]\nrate = \"1 Gbps\"\n[aggregate.d]\nto = \"192.0.2.1\"\n[aggregate.e]\nto = \"192.0.2.1/32\"\n"
        ));
    }

    #[test]
    fn a_container_without_a_name_means_nobody() {
        let said = wrong("[link]\nrate = \"10 Mbps\"\n[aggregate.a]\ncontainer = \"\"\n");
        assert!(said.contains("`container`: `` is not a container"), "{said}");
    }

    /// Only under a link's rate is the sum of tenants at their peaks bounded.
    #[test]
    fn a_tenant_makes_up_for_missed_rate_within_the_rate_of_the_link() {
        let contract = |link: &str, rate: &str| {
            let text = format!("{link}\n[aggregate.a]\nrate = \"{rate}\"\n");
            let regime = Policies::parse("policies.toml", &text).unwrap().into_regime();
            let contract = regime.tenants[0].tenant.contract;
            (contract.peak.map(Rate::mbps), contract.depth.unwrap().get())
        };
        assert_eq!(contract("[link]\nrate = \"50 Mbps\"", "20 Mbps"), (Some(25.0), 125_000));
        assert_eq!(contract("", "20 Mbps"), (None, 125_000));
        // The first window of a connection, and at low rates 100 ms.
        assert_eq!(contract("", "2 Mbps"), (None, 15_140));
        assert_eq!(contract("", "800 kbps"), (None, 10_000));
    }

    #[test]
    fn a_link_has_no_peak_under_its_rate_or_without_one() {
        let said = wrong("[link]\nrate = \"10 Mbps\"\npeak = \"5 Mbps\"\n[aggregate.a]\n");
        assert!(said.contains("the link has a peak of 5 Mbps, under its rate of 10 Mbps"), "{said}");
        let said = wrong("[link]\npeak = \"5 Mbps\"\n[aggregate.a]\nrate = \"1 Mbps\"\n");
        assert!(said.contains("needs a rate"), "{said}");
    }

    #[test]
    fn the_manual_has_every_key_of_a_policy() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/policy-reference.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, policy_reference_markdown()).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == policy_reference_markdown(),
            "policy-reference.md is behind: run `UPDATE_DOCS=1 cargo test -p tollway-shape manual`"
        );
        Policies::parse("policies.toml", EXAMPLE).unwrap();
    }

    #[test]
    fn a_version_is_something_to_be_read_on_a_line() {
        for (version, why) in [("", "`version` is empty"), (r"a\u001b[2J", "contains a control character")] {
            let said =
                wrong(&format!("version = \"{version}\"\n[link]\nrate = \"10 Mbps\"\n[aggregate.a]\n"));
            assert!(said.contains(why) && said.contains("policies.toml:1:"), "{said}");
        }
        // A message quotes no control character to a terminal.
        let text = "[link]\nrate = \"10 Mbps\"\n[aggregate.\"a\\u001b[2J\"]\n";
        let error = Policies::parse("policies.toml", text).unwrap_err();
        assert_eq!(error.to_string(), "`a\\u{1b}[2J` is not a valid name");
        // Nor do the lines of the file beside it, which may contain one literally.
        let error = Policies::parse("x", "[link]\nrate = 1 # \u{9b}2J\u{1b}[2J").unwrap_err();
        let label = error.labels().unwrap().next().unwrap();
        let source = error.source_code().unwrap().read_span(label.inner(), 1, 1);
        assert!(String::from_utf8_lossy(source.unwrap().data()).contains("# \u{b7}2J?[2J"));
        let text = "[link]\nrate = \"10 Mbps\"\n[aggregate.\"\"]\n";
        assert!(wrong(text).contains("`` is not a valid name"));
    }

    #[test]
    fn users_are_those_of_the_first_row_with_their_name() {
        let users = users_of("root:x:0:0::/:/bin/sh\n\na:x:7\na:x:8\nb:x:none\nb:x:9\nc\n");
        let found = ["root", "a", "b", "c", "d", "12"].map(|name| user(name, &users));
        assert_eq!(found, [Some(0), Some(7), None, None, None, Some(12)]);
    }

    proptest! {
        /// A filter that equals an earlier one is found, as by comparing each pair.
        #[test]
        fn policies_that_mean_the_same_are_found(picked in prop::collection::vec((0..5usize, 0..4usize), 0..7)) {
            let filter = |&(to, more): &(usize, usize)| {
                let to = ["192.0.2.1", "192.0.2.1/32", "192.0.2.*", "192.0.2.0/24", "*"][to];
                format!("to = \"{to}\"\n{}", ["", "from-port = 80\n", "from-port = \"80-80\"\n", "user = 0\n"][more])
            };
            let all = |picked: &[(usize, usize)]| -> String {
                let tables = picked.iter().enumerate().map(|(i, one)| format!("[aggregate.t{i}]\n{}", filter(one)));
                format!("[link]\nrate = \"1 Mbps\"\n{}", tables.collect::<String>())
            };
            // The meaning of each policy when parsed alone.
            let meant: Vec<String> = picked
                .iter()
                .map(|one| format!("{:?}", Policies::parse("x", &all(&[*one])).unwrap().regime.rules))
                .collect();
            let same = (0..meant.len()).find_map(|i| Some((meant[..i].iter().position(|other| *other == meant[i])?, i)));
            let said = Policies::parse("x", &all(&picked)).map(drop).map_err(|error| error.to_string());
            prop_assert_eq!(said, match same {
                None => Ok(()),
                Some((one, other)) => Err(format!("policies `t{one}` and `t{other}` match the same connections")),
            });
        }

        /// Any input is parsed or refused.
        #[test]
        fn any_text_can_be_read(
            text in ".{0,80}",
            key in "(rate|peak|to|from-port|user|cgroup|container|class|weight)",
            value in r#"("[0-9a-z./* -]{0,12}"|[0-9]{1,8}|\[\]|\{\}|-1|true)"#,
        ) {
            let _ = Policies::parse("x", &text);
            let _ = Policies::parse("x", &format!("[link]\nrate = \"1 Mbps\"\n[aggregate.a]\n{key} = {value}\n"));
        }
    }
}
