//! The configuration file of `tollway host`.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tollway_law::param::{Field, Value};
use tollway_law::{Budget, Bytes};
use tollway_scenario::file::ScenarioError;
use tollway_scenario::file::reading::{Kind, Mistakes, Reader, page_markdown, read};
use tollway_scenario::plan::Strategy;
use tollway_scenario::section;

use crate::budgets::{Budgets, Goal, Owner, Rule};
use crate::connection::Connection;
use crate::group::hierarchy;
use crate::programs::{Law, OptionKind, Programs, Settings};

section! {
    /// One TOML file for a machine: its law, and the tenants among its connections.
    HOST = "" {
        /// The law.
        "law": Kind::Word(Law::WORDS), default "fcp";
        /// XCP: option 253 with the number of an experiment (RFC 6994), instead of the study's 14
        /// and 15.
        "experiment": Kind::Truth, default "false";
        /// Window of a new connection, packets.
        "initial-window": Kind::Count { least: 1, most: 1000 }, default "10";
        /// Congestion control to fall back on, by the kernel's name.
        "ordinary": Kind::Line, else "the machine's";
        /// Tenants: connections with one budget. Without any, those of the whole machine have a
        /// budget of 1.
        "tenant": Kind::Named(&TENANT), optional;
    }
}

section! {
    /// A tenant: its connections share one budget under FCP, however many they are. If several
    /// tenants match a connection, the first in the file applies. Others stay under the machine's
    /// ordinary law.
    TENANT = "[tenant.NAME]" {
        /// Budget of all its connections together, $/s. Only ratios matter.
        "budget": Kind::Number { least: 0.0, most: 1e6 }, default "1";
        /// Division of the budget over the connections. `deadline`: those with a deadline get what
        /// it costs, the others the rest.
        "strategy": Kind::Word(STRATEGIES), default "equal-budget";
        /// Weight, rate or deadline of some of its connections.
        "flow": Kind::Named(&FLOW), optional;
        /// Control group of the programs, with those below it.
        "cgroup": Kind::Match("a control group, such as \"/system.slice/nginx.service\", or an array of such"), else "any";
        /// User of the programs.
        "user": Kind::Match("a user's name or number, or an array of such"), else "any";
    }
}

section! {
    /// Some connections of a tenant. If several match a connection, the first in the file applies.
    FLOW = "[tenant.NAME.flow.NAME]" {
        /// Their own port, or the peer's.
        "port": Kind::Count { least: 1, most: 65535 }, else "any";
        /// The peer's address.
        "peer": Kind::Match("an address, such as \"192.0.2.7\""), else "any";
        /// Weight of each, for the strategies that have one.
        "weight": Kind::Number { least: 0.0, most: 1e6 }, default "1";
        /// Rate of each, with the strategy `stable`.
        "rate": Kind::Rate, optional;
        /// Data that each has to send, with the strategy `deadline`.
        "size": Kind::Bytes { least: 1, most: 1 << 60 }, optional;
        /// Time for them, from the connection's start, with the strategy `deadline`.
        "within": Kind::Time { least: 1_000_000 }, optional;
    }
}

/// A configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The settings of the programs.
    pub settings: Settings,
    /// The tenants, in the file's order.
    pub tenants: Vec<Tenant>,
}

/// A tenant.
#[derive(Clone, Debug, PartialEq)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// Its budget.
    pub budget: Budget,
    /// The division of the budget, by its word.
    pub strategy: &'static str,
    /// Rules for some of its connections.
    pub rules: Vec<Rule>,
    /// Paths below the hierarchy; empty for any.
    pub cgroups: Vec<String>,
    /// Users; empty for any.
    pub users: Vec<u32>,
}

impl Config {
    /// Parses `text`. Messages name it `file`. User names are looked up in `/etc/passwd`.
    ///
    /// # Errors
    /// All independent mistakes, with their places.
    pub fn parse(file: &str, text: &str) -> Result<Config, ScenarioError> {
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let resolve = |top: &Reader<'_>, mistakes: &mut Mistakes| {
            let tenants = top.named("tenant", &TENANT);
            let tenants: Vec<_> = tenants.map(|(name, keys)| tenant(name, &keys, &users, mistakes)).collect();
            Config { settings: Settings { tenants: !tenants.is_empty(), ..settings(top) }, tenants }
        };
        read(file, text, &HOST, ("the configuration", "a configuration"), resolve)
    }

    /// A configuration of one owner for everything: a budget of `budget`, divided equally.
    pub fn whole(settings: Settings, budget: Budget) -> Config {
        let strategy = STRATEGIES[0];
        let (name, rules, cgroups, users) = ("all".into(), Vec::new(), Vec::new(), Vec::new());
        let tenant = Tenant { name, budget, strategy, rules, cgroups, users };
        Config { settings, tenants: vec![tenant] }
    }

    /// The folders of control groups to attach to. A tenant without one needs the whole hierarchy.
    ///
    /// # Errors
    /// No cgroup2 is mounted.
    pub fn groups(&self) -> std::io::Result<Vec<PathBuf>> {
        let root = hierarchy()?;
        if self.tenants.iter().any(|tenant| tenant.cgroups.is_empty()) || self.tenants.is_empty() {
            return Ok(vec![root]);
        }
        let mut paths: Vec<PathBuf> = self.tenants.iter().flat_map(|tenant| folders(&root, tenant)).collect();
        paths.sort();
        // A program attached to a group also has the groups below it, once.
        paths.dedup_by(|below, above| below.starts_with(above));
        Ok(paths)
    }

    /// Tells the programs which connections belong to a tenant. Others stay under the machine's
    /// ordinary law.
    ///
    /// # Errors
    /// No cgroup2 is mounted, a control group does not exist, or the programs' table is full.
    pub fn admit(&self, programs: &Programs) -> std::io::Result<()> {
        let root = hierarchy()?;
        for tenant in self.tenants.iter().filter(|_| self.settings.tenants) {
            let mut groups = Vec::new();
            for folder in folders(&root, tenant) {
                let named = |error| std::io::Error::other(format!("{}: {error}", folder.display()));
                groups.push(Some(fs::metadata(&folder).map_err(named)?.ino()));
            }
            if groups.is_empty() {
                groups.push(None);
            }
            let users: Vec<Option<u32>> = match tenant.users.is_empty() {
                true => vec![None],
                false => tenant.users.iter().copied().map(Some).collect(),
            };
            for group in groups {
                users.iter().try_for_each(|&user| programs.admit(group, user))?;
            }
        }
        Ok(())
    }

    /// The budgets under FCP; `None` under XCP.
    pub fn budgets(&self) -> Option<Budgets> {
        if self.settings.law != Law::Fcp {
            return None;
        }
        let owner = |tenant: &Tenant| {
            let strategy = Strategy::of(Value::Word(tenant.strategy)).unwrap_or(Strategy::Stable);
            Owner::new(tenant.name.clone(), tenant.budget, strategy.build()).with_rules(tenant.rules.clone())
        };
        let owners = self.tenants.iter().map(owner).collect();
        let mut tenant_of = self.tenant_of();
        Some(Budgets::new(owners, Box::new(move |connection, _| tenant_of(connection))))
    }

    /// The rule that assigns connections to tenants.
    pub(crate) fn tenant_of(&self) -> TenantOf {
        let (tenants, mut inside) = (self.tenants.clone(), Inside::default());
        Box::new(move |connection| {
            tenants.iter().position(|tenant| {
                let user = tenant.users.is_empty() || tenant.users.contains(&connection.user);
                user && (tenant.cgroups.is_empty() || inside.has(tenant, connection.cgroup))
            })
        })
    }
}

/// A function that returns the index of a connection's tenant.
pub(crate) type TenantOf = Box<dyn FnMut(&Connection) -> Option<usize> + Send>;

/// The chapter of the manual that lists every key of the configuration.
pub fn host_reference_markdown() -> String {
    let by = "`host_reference_markdown()` in `crates/host`";
    page_markdown("Configuration of `tollway host`", by, EXAMPLE, &[&HOST, &TENANT, &FLOW], &[])
}

/// The example of the manual's page.
const EXAMPLE: &str = r#"law = "fcp"

[tenant.web]
budget = 2
cgroup = "/system.slice/nginx.service"

[tenant.backup]
strategy = "deadline"
user = "root"
flow.copy = { port = 873, size = "2 GB", within = "600 s" }
"#;

/// By tenant and group, whether the group is below the tenant's.
#[derive(Debug, Default)]
struct Inside(HashMap<(String, u64), bool>);

impl Inside {
    fn has(&mut self, tenant: &Tenant, group: u64) -> bool {
        let search = || {
            let root = hierarchy().unwrap_or_default();
            let mut open: Vec<PathBuf> = folders(&root, tenant).collect();
            while let Some(folder) = open.pop() {
                if fs::metadata(&folder).is_ok_and(|meta| meta.ino() == group) {
                    return true;
                }
                let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
                let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
                open.extend(below.map(|entry| entry.path()));
            }
            false
        };
        *self.0.entry((tenant.name.clone(), group)).or_insert_with(search)
    }
}

fn folders<'a>(root: &'a Path, tenant: &'a Tenant) -> impl Iterator<Item = PathBuf> + 'a {
    tenant.cgroups.iter().map(move |path| root.join(path.trim_start_matches('/')))
}

fn settings(top: &Reader<'_>) -> Settings {
    let mut settings = Settings::new(top.one_of("law").unwrap_or(Law::Fcp));
    if top.truth("experiment") {
        settings.option = OptionKind::Experiment;
    }
    if let Some(window) = top.count("initial-window") {
        settings.initial_window = window as u32;
    }
    if let Some(name) = top.text("ordinary") {
        settings.ordinary = name;
    }
    settings
}

fn tenant(name: &str, keys: &Reader<'_>, users: &str, mistakes: &mut Mistakes) -> Tenant {
    let mut numbers = Vec::new();
    for (text, at) in keys.patterns("user") {
        let named = |line: &str| {
            let mut fields = line.split(':');
            (fields.next() == Some(&text)).then(|| fields.nth(1)?.parse().ok()).flatten()
        };
        match text.parse().ok().or_else(|| users.lines().find_map(named)) {
            Some(number) => numbers.push(number),
            None => mistakes
                .add(at, format!("`user`: `{text}` is not a user of this machine"), "here")
                .help("name one in `/etc/passwd`, or give the number"),
        };
    }
    let mut cgroups = Vec::new();
    for (text, at) in keys.patterns("cgroup") {
        if !text.starts_with('/') {
            mistakes
                .add(at, format!("`cgroup`: `{text}` is not a path of a control group"), "here")
                .help("paths begin with `/`, as in `/proc/PID/cgroup` after the `::`");
        }
        cgroups.push(text);
    }
    Tenant {
        name: name.to_owned(),
        budget: Budget::per_sec(keys.number("budget")),
        strategy: keys.word("strategy"),
        rules: keys.named("flow", &FLOW).map(|(_, flow)| rule(keys, &flow, mistakes)).collect(),
        cgroups,
        users: numbers,
    }
}

fn rule(tenant: &Reader<'_>, keys: &Reader<'_>, mistakes: &mut Mistakes) -> Rule {
    let mut peer = None;
    for (text, at) in keys.patterns("peer") {
        match text.parse() {
            Ok(address) => peer = Some(address),
            Err(_) => {
                mistakes
                    .add(at, format!("`peer`: `{text}` is not an address"), "here")
                    .help("give one address");
            }
        }
    }
    let strategy = tenant.word("strategy");
    for (key, needs) in [("rate", "stable"), ("size", "deadline"), ("within", "deadline")] {
        if keys.has(key) && strategy != needs {
            let message = format!("`{key}` needs the strategy `{needs}`, and this tenant's is `{strategy}`");
            mistakes
                .add(keys.at(key), message, "no effect")
                .help(format!("give the tenant `strategy = \"{needs}\"`"));
        }
    }
    if keys.has("size") != keys.has("within") {
        let (have, lack) = if keys.has("size") { ("size", "within") } else { ("within", "size") };
        mistakes
            .add(
                keys.at(have),
                format!("a deadline is a `size` and a time, and there is no `{lack}`"),
                "here",
            )
            .help(format!("add `{lack}`"));
    }
    let deadline =
        keys.bytes("size").map(|size| Goal::Deadline { size: Bytes(size), within: keys.span("within") });
    let weight = keys.number("weight");
    let port = keys.count("port").map(|port| port as u16);
    Rule { port, peer, weight, goal: deadline.or(keys.rate("rate").map(Goal::Rate)) }
}

/// The strategies, equal shares first: those of scenario files, and `deadline`.
const STRATEGIES: &[&str] =
    &["equal-budget", "fixed", "background", "equal-throughput", "max-throughput", "stable", "deadline"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_are_read_in_the_file_s_order() {
        let text = "law = \"fcp\"\n[tenant.web]\nbudget = 2\ncgroup = \"/web\"\n\
                    [tenant.batch]\nstrategy = \"background\"\nuser = [\"root\", 7]\n";
        let config = Config::parse("host.toml", text).unwrap();
        let [web, batch] = &config.tenants[..] else { panic!("{config:?}") };
        assert_eq!(
            (web.name.as_str(), web.budget.get(), &*web.cgroups),
            ("web", 2.0, &["/web".to_owned()][..])
        );
        assert_eq!((batch.strategy, &*batch.users), ("background", &[0, 7][..]));
        assert_eq!(STRATEGIES.split_last(), Some((&"deadline", Strategy::WORDS)));
        assert_eq!(config.settings.law, Law::Fcp);
    }

    #[test]
    fn the_manual_lists_every_key() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/host-reference.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(path, host_reference_markdown()).unwrap();
        }
        let committed = fs::read_to_string(path).unwrap_or_default();
        assert!(
            committed == host_reference_markdown(),
            "run `UPDATE_DOCS=1 cargo test -p tollway-host manual`"
        );
        Config::parse("host.toml", EXAMPLE).unwrap();
    }

    #[test]
    fn each_mistake_is_reported_with_its_place_and_remedy() {
        let text = "law = \"bbr\"\n[tenant.a]\nbudget = -1\nuser = \"nobody-here\"\ncgroup = \"web\"\nshare = 1\n\
             [tenant.a.flow.x]\npeer = \"y\"\nrate = \"1 Mbps\"\n[tenant.b]\nstrategy = \"deadline\"\n\
             [tenant.b.flow.z]\nsize = \"1 MB\"\n";
        let error = Config::parse("host.toml", text).unwrap_err();
        let report = format!("{:?}", miette::Report::from(error));
        for part in [
            "bbr",
            "budget",
            "nobody-here",
            "paths begin with `/`",
            "share",
            "`y` is not",
            "`stable`",
            "no `within`",
        ] {
            assert!(report.contains(part), "{part}: {report}");
        }
    }
}
